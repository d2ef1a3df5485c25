"""torch._dynamo.config: settings of torch.compile.

Effective: disable, cache_size_limit / recompile_limit, accumulated_cache_size_limit /
accumulated_recompile_limit, error_on_recompile, fail_on_recompile_limit_hit, parts_limit,
capture_attempts, capture_wait, suppress_errors (callable backends), automatic_dynamic_shapes (npu
device). The other settings are stored but have no effect.
"""
import contextlib
import sys

disable = False
verbose = False
suppress_errors = False
error_on_recompile = False
fail_on_recompile_limit_hit = False
#: maximum number of variants (shapes, dtypes, modes) per compiled function; further ones run
#: eagerly
cache_size_limit = recompile_limit = 8
#: maximum number of variants of all compiled functions together
accumulated_cache_size_limit = accumulated_recompile_limit = 256
#: maximum number of variants of all modules together inside one function with a graph break
parts_limit = 512
#: failed captures of one function after which it runs eagerly for good
capture_attempts = 3
#: seconds to wait for another thread's capture before a call runs eagerly
capture_wait = 2.0
capture_scalar_outputs = capture_dynamic_output_shape_ops = False
assume_static_by_default = automatic_dynamic_shapes = optimize_ddp = inline_inbuilt_nn_modules = True
dynamic_shapes = True
compiled_autograd = False
allow_unspec_int_on_nn_module = False
guard_nn_modules = True


def limit():
    """Returns recompile_limit, or cache_size_limit if that was changed."""
    return recompile_limit if cache_size_limit == 8 else cache_size_limit


def total_limit():
    """Like `limit`, for all functions together."""
    return accumulated_recompile_limit if accumulated_cache_size_limit == 256 else accumulated_cache_size_limit


@contextlib.contextmanager
def patch(arg=None, value=None, **changes):
    """Context manager or decorator that changes settings inside."""
    if isinstance(arg, str):
        changes = {arg: value, **changes}
    elif arg:
        changes = {**arg, **changes}
    module = sys.modules[__name__]
    for k in changes:
        if not hasattr(module, k):
            raise AttributeError(f"torch._dynamo.config.{k} does not exist")
    old = {k: getattr(module, k) for k in changes}
    vars(module).update(changes)
    try:
        yield
    finally:
        vars(module).update(old)
