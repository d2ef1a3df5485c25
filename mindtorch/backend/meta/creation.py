"""Kernels without operands compute here as on the host, because ops read the values that they
create for internal use.

(A meta tensor requested by the user is created from its shape alone, in torch/_meta.py.)
"""
from mindtorch.backend.meta import kernel
from mindtorch.backend.meta.arrays import meta_array


@kernel("new_full")
def _new_full(fwd, arrays, kw):
    return meta_array(kw["size"], kw["np_dtype"])


@kernel("""empty empty_strided zeros full arange linspace logspace eye uniform normal randint randperm
 cosine_window triangle_window kaiser_window exponential_window sine_window gaussian_window""")
def _as_on_the_host(fwd, arrays, kw):
    return fwd(**kw)
