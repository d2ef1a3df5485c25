"""Comparisons of tensors with scalars on Ascend: the scalar is an argument of the kernel, not a tensor.

MindSpore has primitives for three of the six. The others are launched by name
(`mindtorch/backend/mindspore/aclnn.py`).
"""
from mindtorch.backend.mindspore import aclnn
from mindtorch.backend.mindspore.kernels import _ops as o
from mindtorch.backend.mindspore.kernels._call import COMPLEX, G, MSTensor, dtype_of, ms, op, shape_of
from mindtorch.backend.mindspore.kernels.ascend import ascend, named, scalar_argument

_BOOL = aclnn.TYPES["bool"]
#: the comparison with exchanged operands
_TURNED = {"eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _primitive(prim):
    return lambda x, value: op(prim)(x, value)


def _by_name(name):
    def compare(x, value):
        launch = named(name, "tso")
        return None if launch is None else launch(x, scalar_argument(value), outputs=((shape_of(x), _BOOL),))[0]
    return compare


_WITH_SCALAR = {"eq": _primitive(G.EqScalar), "lt": _primitive(G.LessScalar), "ge": _primitive(G.GreaterEqualScalar),
                "ne": _by_name("NeScalar"), "gt": _by_name("GtScalar"), "le": _by_name("LeScalar")}


def _with_scalar(name, x, value):
    """Returns the comparison, or None if it needs the scalar as a tensor."""
    d = dtype_of(x)
    if value.__class__ not in (int, float) or d in COMPLEX or d is ms.bool_:
        return None
    return _WITH_SCALAR[name](x, value)


def _register(name, by_tensors):
    @ascend(name, scalars=True)
    def compare(a, b):
        r = None
        if not isinstance(a, MSTensor):
            r = _with_scalar(_TURNED[name], b, a)
        elif not isinstance(b, MSTensor):
            r = _with_scalar(name, a, b)
        return by_tensors(a, b) if r is None else r


for _name, _by_tensors in (("eq", o.eq), ("ne", o.ne), ("lt", o.lt), ("le", o.le), ("gt", o.gt), ("ge", o.ge)):
    _register(_name, _by_tensors)
