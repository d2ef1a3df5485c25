"""C kernels: built by the machine's compiler, loaded and called."""
