"""torch._foreach_*: one op over lists of tensors, implemented with the ops themselves.

Out-of-place forms return a tuple. In-place forms write to the tensors of the first list and return
them as a list.
"""
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.tensor.dtypes import LOW
from mindtorch.core.tensor.scalars import NUMBER, plain_number, read
from mindtorch.core.dispatch.op_registry import OPS, register_op
from mindtorch.core.dispatch.op_schema import Bool, Scalar
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.ops._checks import tensor_type_error


def _public(name):
    return OPS[name].fn


# ------------------------------------------------------------------ arguments
def _tensors(name, arg, position, x):
    """Checks a list of tensors and returns it."""
    if not isinstance(x, (list, tuple)):
        raise TypeError(f"{name}() received an invalid combination of arguments: '{arg}' must be tuple of Tensors, not {type_name(x)}")
    for t in x:
        if not (t.__class__ is Tensor or is_tensor(t)):
            raise tensor_type_error(name, arg, position, t)
    if not x:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return x


def _match(self, x):
    if len(x) != len(self):
        raise RuntimeError(f"Tensor lists must have the same number of tensors, got {len(self)} and {len(x)}")
    return x


#: ops that accept a tensor as the second operand; the others read the value of a 0-dim tensor
_BY_TENSOR = {f"_foreach_{n}{end}" for n in ("add", "mul", "div") for end in ("", "_")}


def _operands(name, self, other):
    """Returns the second operand for each tensor, from a list of tensors, a list of scalars, a
    scalar or a 0-dim tensor."""
    if other.__class__ is Tensor or is_tensor(other):
        if name not in _BY_TENSOR:
            if other.ndim:
                raise TypeError(f"{name}() received an invalid combination of arguments - got ({type_name(self)}, Tensor)")
            return [read(name, "scalar", "number", other)] * len(self)
        if other.ndim or other._numel != 1:
            raise RuntimeError(f"scalar tensor expected to be 0 dim but it has {other.ndim} dimensions and {other._numel} elements.")
        return [other] * len(self)
    if isinstance(other, NUMBER):
        return [other] * len(self)
    if not isinstance(other, (list, tuple)):
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({type_name(self)}, {type_name(other)})")
    if other and all(isinstance(x, NUMBER) for x in other):
        if len(other) != len(self):
            raise RuntimeError("Tensor list must have same number of elements as scalar list.")
        return other
    for i, x in enumerate(other):
        if not (x.__class__ is Tensor or is_tensor(x)):
            raise TypeError(f"expected Tensor as element {i} in argument 1, but got {type_name(x)}")
    return _match(self, other)


def _exactly_one(name, **options):
    """Returns the one of several mutually exclusive arguments that was passed."""
    there = [v for v in options.values() if v is not None]
    if len(there) != 1:
        raise TypeError(f"{name}() received an invalid combination of arguments: pass exactly one of {', '.join(options)}")
    return there[0]


# ------------------------------------------------------------------ one operand
_UNARY = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt
 sigmoid sign sin sinh sqrt tan tanh trunc""".split()


def _unary(name):
    full = f"_foreach_{name}"

    def out_of_place(self):
        fn = _public(name)
        return tuple([fn(x) for x in _tensors(full, "self", 1, self)])

    def in_place(self):
        method = getattr(Tensor, name + "_")
        return [method(x) for x in _tensors(full + "_", "self", 1, self)]

    out_of_place.__doc__ = f"{name} of each tensor."
    in_place.__doc__ = f"{name}_ of each tensor."
    register_op(out_of_place, name=full, method=False)
    register_op(in_place, name=full + "_", method=False)


for _name in _UNARY:
    _unary(_name)


# ------------------------------------------------------------------ two operands
def _declare(name, compute, write, with_alpha=False):
    """Declares an op on a list and a second operand; `write(x, y)` updates x."""
    full = f"_foreach_{name}"

    def pairs(f, self, other, scalar, scalars):
        second = _exactly_one(f, other=other, scalar=scalar, scalars=scalars)
        return zip(_tensors(f, "self", 1, self), _operands(f, self, second))

    if with_alpha:
        def check(f, self, other, scalar, scalars, alpha):
            second = _exactly_one(f, other=other, scalar=scalar, scalars=scalars)
            if alpha != 1 and not (isinstance(second, (list, tuple)) and not (second and isinstance(second[0], NUMBER))) and not (
                    f in _BY_TENSOR and (second.__class__ is Tensor or is_tensor(second))):
                raise TypeError(f"{f}() received an invalid combination of arguments - got (list, {type_name(second)}, alpha=int)")
            return pairs(f, self, other, scalar, scalars)

        def out_of_place(self, other=None, *, alpha: Scalar = 1, scalar: Scalar = None, scalars=None):
            return tuple([compute(x, y, alpha) for x, y in check(full, self, other, scalar, scalars, alpha)])

        def in_place(self, other=None, *, alpha: Scalar = 1, scalar: Scalar = None, scalars=None):
            return [write(x, y, alpha) for x, y in check(full + "_", self, other, scalar, scalars, alpha)]
    else:
        def out_of_place(self, other=None, *, scalar: Scalar = None, scalars=None):
            return tuple([compute(x, y) for x, y in pairs(full, self, other, scalar, scalars)])

        def in_place(self, other=None, *, scalar: Scalar = None, scalars=None):
            return [write(x, y) for x, y in pairs(full + "_", self, other, scalar, scalars)]

    out_of_place.__doc__ = f"{name} of each tensor and its operand, from a list of tensors, a list of scalars or one scalar."
    in_place.__doc__ = f"{name} in place."
    register_op(out_of_place, name=full, method=False)
    register_op(in_place, name=full + "_", method=False)


def _plain(name):
    """Returns (compute, write) for the op of that name and its in-place method."""
    return (lambda x, y: _public(name)(x, y)), (lambda x, y: getattr(x, name + "_")(y))


def _round_scalar_to_half(x, y):
    """Rounds a scalar to half precision next to a half-precision tensor, as PyTorch does when it
    multiplies a list in place."""
    return plain_number(y, x._np_dtype) if x._np_dtype in LOW and isinstance(y, (int, float)) and abs(y) < 6e4 else y


def _extremum(name, tensor_op):
    """Returns (compute, write) for maximum and minimum, which accept scalars here."""
    def compute(x, y):
        return _public(tensor_op)(x, y) if (y.__class__ is Tensor or is_tensor(y)) else _public(name)(x, y)
    return compute, lambda x, y: x.copy_(compute(x, y))


_declare("add", lambda x, y, alpha: _public("add")(x, y, alpha=alpha), lambda x, y, alpha: x.add_(y, alpha=alpha), True)
_declare("sub", lambda x, y, alpha: _public("sub")(x, y, alpha=alpha), lambda x, y, alpha: x.sub_(y, alpha=alpha), True)
_declare("mul", lambda x, y: _public("mul")(x, y), lambda x, y: x.mul_(_round_scalar_to_half(x, y)))
_declare("div", *_plain("div"))
for _name, _by_number, _by_tensor in (("clamp_max", "clamp_max", "minimum"), ("clamp_min", "clamp_min", "maximum"),
                                      ("maximum", "clamp_min", "maximum"), ("minimum", "clamp_max", "minimum")):
    _declare(_name, *_extremum(_by_number, _by_tensor))


@register_op(name="_foreach_pow", method=False)
def _pow(self, exponent):
    """self ** exponent, tensor by tensor; self can be a scalar, exponent a scalar or a list of
    scalars."""
    if isinstance(self, NUMBER):
        return tuple([_public("pow")(self, y) for y in _tensors("_foreach_pow", "exponent", 2, exponent)])
    return tuple([_public("pow")(x, y) for x, y in zip(_tensors("_foreach_pow", "self", 1, self), _operands("_foreach_pow", self, exponent))])


@register_op(name="_foreach_pow_", method=False)
def _pow_(self, exponent):
    """self **= exponent, tensor by tensor."""
    return [x.pow_(y) for x, y in zip(_tensors("_foreach_pow_", "self", 1, self), _operands("_foreach_pow_", self, exponent))]


@register_op(name="_foreach_mm", method=False)
def _mm(self, mat2):
    """Matrix products, pair by pair."""
    first, second = _tensors("_foreach_mm", "self", 1, self), _tensors("_foreach_mm", "mat2", 2, mat2)
    return tuple([_public("mm")(x, y) for x, y in zip(first, _match(self, second))])


# ------------------------------------------------------------------ three operands
def _values(f, self, value, scalars):
    """Returns the factor of addcmul and addcdiv for each tensor."""
    packed = scalars
    if packed is None:
        if not isinstance(value, (list, tuple, Tensor)):
            return [value] * len(self)
        packed = value
    if packed.__class__ is Tensor or is_tensor(packed):
        if packed.ndim != 1:
            raise RuntimeError(f"Expected packed scalar Tensor to be of dimension 1. Got {packed.ndim} instead.")
        packed = packed.tolist()
        if len(packed) != len(self):
            raise RuntimeError(f"Expected length of scalars to match input of length {len(self)} but got {len(packed)} instead.")
    elif not all([isinstance(v, NUMBER) for v in packed]):
        raise TypeError(f"{f}() received an invalid combination of arguments: the factors must be scalars")
    if len(packed) != len(self):
        raise RuntimeError("Tensor list must have same number of elements as scalar list.")
    return packed


def _pointwise(name):
    full = f"_foreach_{name}"

    def each(f, self, tensor1, tensor2, value, scalars):
        xs = _tensors(f, "self", 1, self)
        return zip(xs, _match(self, _tensors(f, "tensor1", 2, tensor1)), _match(self, _tensors(f, "tensor2", 3, tensor2)),
                   _values(f, self, value, scalars))

    def out_of_place(self, tensor1, tensor2, value=1, *, scalars=None):
        fn = _public(name)
        return tuple([fn(x, a, b, value=v) for x, a, b, v in each(full, self, tensor1, tensor2, value, scalars)])

    def in_place(self, tensor1, tensor2, value=1, *, scalars=None):
        method = getattr(Tensor, name + "_")
        return [method(x, a, b, value=v) for x, a, b, v in each(full + "_", self, tensor1, tensor2, value, scalars)]

    out_of_place.__doc__ = f"{name}, tensor by tensor; value is a scalar, a list of scalars or a 1-D tensor."
    in_place.__doc__ = f"{name} in place."
    register_op(out_of_place, name=full, method=False)
    register_op(in_place, name=full + "_", method=False)


_pointwise("addcmul")
_pointwise("addcdiv")


@register_op(name="_foreach_lerp", method=False)
def _lerp(self, tensors1, weight=None, *, weights=None):
    """self + weight * (tensors1 - self), tensor by tensor; weight is a scalar, or a list of scalars
    or tensors."""
    f = "_foreach_lerp"
    xs, ends = _tensors(f, "self", 1, self), _match(self, _tensors(f, "tensors1", 2, tensors1))
    return tuple([_public("lerp")(x, y, w) for x, y, w in zip(xs, ends, _operands(f, self, _exactly_one(f, weight=weight, weights=weights)))])


@register_op(name="_foreach_lerp_", method=False)
def _lerp_(self, tensors1, weight=None, *, weights=None):
    """_foreach_lerp in place."""
    f = "_foreach_lerp_"
    xs, ends = _tensors(f, "self", 1, self), _match(self, _tensors(f, "tensors1", 2, tensors1))
    return [x.lerp_(y, w) for x, y, w in zip(xs, ends, _operands(f, self, _exactly_one(f, weight=weight, weights=weights)))]


# ------------------------------------------------------------------ reductions, copies
@register_op(name="_foreach_norm", method=False)
def _norm(self, ord: Scalar = 2, dtype=None):
    """Norm of each tensor."""
    return tuple([_public("linalg.vector_norm")(x, ord, dtype=dtype) for x in _tensors("_foreach_norm", "self", 1, self)])


@register_op(name="_foreach_powsum", method=False)
def _powsum(self, ord: Scalar = 2, dtype=None):
    """Sum of |element| ** ord of each tensor."""
    return tuple([_public("sum")(_public("pow")(x.abs(), ord), dtype=dtype) for x in _tensors("_foreach_powsum", "self", 1, self)])


@register_op(name="_foreach_max", method=False)
def _max(self):
    """Largest element of each tensor."""
    for x in _tensors("_foreach_max", "self", 1, self):
        if not x._numel:
            raise RuntimeError("_foreach_max cannot compute the maximum of an empty tensor; max over zero elements is undefined.")
    return tuple([_public("max")(x) for x in self])


@register_op(name="_foreach_clone", method=False)
def _clone(self, *, memory_format=None):
    """Copy of each tensor."""
    return tuple([x.clone(memory_format=memory_format) for x in _tensors("_foreach_clone", "self", 1, self)])


@register_op(name="_foreach_copy_", method=False)
def _copy_(self, src, non_blocking: Bool = False):
    """Copies each tensor of src into the corresponding tensor of self."""
    xs = _tensors("_foreach_copy_", "self", 1, self)
    return [x.copy_(y) for x, y in zip(xs, _match(self, _tensors("_foreach_copy_", "src", 2, src)))]


@register_op(name="_foreach_zero_", method=False)
def _zero_(self):
    """Fills each tensor with zeros."""
    return [x.zero_() for x in _tensors("_foreach_zero_", "self", 1, self)]
