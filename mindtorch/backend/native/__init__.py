"""C code: built by the machine's compiler, loaded, called."""
