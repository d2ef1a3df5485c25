"""Op records, the dispatcher and its generated functions, primitives, type promotion, autocast."""
