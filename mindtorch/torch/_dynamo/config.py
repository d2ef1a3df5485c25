"""torch._dynamo.config: settings of torch.compile.

Honoured: disable, cache_size_limit / recompile_limit, accumulated_cache_size_limit / accumulated_recompile_limit,
error_on_recompile, fail_on_recompile_limit_hit, verbose, parts_limit, capture_attempts, capture_wait.  The others are kept and change nothing.
"""
import contextlib
import sys

disable = False
verbose = False
suppress_errors = False
error_on_recompile = False
fail_on_recompile_limit_hit = False
#: variants (shapes, dtypes, modes) that one compiled function keeps; further ones run eagerly
cache_size_limit = recompile_limit = 8
#: the same over all functions together
accumulated_cache_size_limit = accumulated_recompile_limit = 256
#: variants of all modules together inside one function that cannot be captured whole
parts_limit = 512
#: calls of one function that may fail to be captured before it runs eagerly for good
capture_attempts = 3
#: seconds that a call waits for another thread's capture before it runs eagerly
capture_wait = 2.0
capture_scalar_outputs = capture_dynamic_output_shape_ops = False
assume_static_by_default = automatic_dynamic_shapes = optimize_ddp = inline_inbuilt_nn_modules = True
dynamic_shapes = True
compiled_autograd = False
allow_unspec_int_on_nn_module = False
guard_nn_modules = True


def limit():
    """The smaller of the two names' values, unless one was changed."""
    return recompile_limit if cache_size_limit == 8 else cache_size_limit


def total_limit():
    """The same for all functions together."""
    return accumulated_recompile_limit if accumulated_cache_size_limit == 256 else accumulated_cache_size_limit


@contextlib.contextmanager
def patch(arg=None, value=None, **changes):
    """Context manager or decorator: other values inside."""
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
