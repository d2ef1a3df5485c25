"""Matrix products, factorizations, systems of equations."""
