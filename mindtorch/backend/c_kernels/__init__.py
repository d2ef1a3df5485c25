"""C kernels (sources in mindtorch/csrc): built by the machine's compiler, loaded and called."""
