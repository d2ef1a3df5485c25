"""Operators of the namespace "profiler": a labelled block of code as two steps of a program."""
from mindtorch.torch import _ops
from mindtorch.torch.autograd.profiler import record_function


def _op(schema):
    def deco(fn):
        _ops.define("profiler", schema).kernels["CompositeImplicitAutograd"] = fn
        return fn
    return deco


@_op("_record_function_enter(str name, str? args=None) -> Tensor")
@_op("_record_function_enter_new(str name, str? args=None) -> __torch__.torch.classes.profiler._RecordFunction")
def enter(name, args=None):
    """Enters the block and returns the object that ends it."""
    return record_function(name, args).__enter__()


@_op("_record_function_exit._RecordFunction(__torch__.torch.classes.profiler._RecordFunction _0) -> ()")
@_op("_record_function_exit(Tensor _0) -> ()")
def leave(region):
    """Ends the block."""
    region.__exit__(None, None, None)
