"""aten operators that have no function in PyTorch's public namespaces. Handlers of
`__torch_dispatch__` and captured graphs call them."""
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.dispatch.primitives import PRIMITIVES
from mindtorch.core.tensor.tensor import Tensor, is_tensor
from mindtorch.core.tensor.sync import to_host
from mindtorch.torch import _aten_layer_names
from mindtorch.torch._hooks import hooks

_FUNCTIONS = {}


def _register(fn):
    _FUNCTIONS[fn.__name__] = fn
    return fn


def function(name):
    """Returns the operator as a function, or None."""
    found = _FUNCTIONS.get(name)
    if found is None and name in _aten_layer_names.NAMES:
        found = _FUNCTIONS[name] = hooks.layer_operator(name)
    return found


def _op(name):
    row = OPS[name]
    return row.public or row.fn


@_register
def _to_copy(input, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    """Copies a tensor to another dtype, device or memory format."""
    named = {k: v for k, v in (("dtype", dtype), ("device", device), ("memory_format", memory_format)) if v is not None}
    return input.to(copy=True, **named)


@_register
def _local_scalar_dense(input):
    """Returns the value of a one-element tensor as a Python scalar."""
    return input.item()


@_register
def _unsafe_view(input, size):
    """Like view, but autograd does not treat the result as a view."""
    return PRIMITIVES["unsafe_view"](input, size=tuple(size))


@_register
def _softmax(input, dim, half_to_float=False):
    """softmax; with half_to_float it is computed and returned in float32."""
    return _op("softmax")(input.float() if half_to_float else input, dim)


@_register
def _log_softmax(input, dim, half_to_float=False):
    """log_softmax; with half_to_float it is computed and returned in float32."""
    return _op("log_softmax")(input.float() if half_to_float else input, dim)


@_register
def slice(input, dim=0, start=None, end=None, step=1):
    """View of every step-th element from start to end along one dimension."""
    import builtins
    return input[(builtins.slice(None),) * (dim % max(input.ndim, 1)) + (builtins.slice(start, end, step),)]


@_register
def slice_backward(grad_output, input_sizes, dim, start, end, step):
    """Gradient of slice."""
    import builtins
    return _placed(grad_output, input_sizes, dim, builtins.slice(start, end, step))


@_register
def select_backward(grad_output, input_sizes, dim, index):
    """Gradient of select."""
    return _placed(grad_output, input_sizes, dim, index)


def _placed(g, sizes, dim, item):
    import builtins
    return PRIMITIVES["slice_backward"](g, shape=tuple(sizes), key=(builtins.slice(None),) * dim + (item, ...))


@_register
def alias(input):
    """Returns a view of the entire tensor."""
    return input[...]


@_register
def lift_fresh(input):
    """Returns the tensor itself."""
    return input


lift = _register(lift_fresh)


@_register
def copy(input, src, non_blocking=False):
    """Out-of-place form of input.copy_(src)."""
    return _op("empty_like")(input).copy_(src)


@_register
def zero(input):
    """Out-of-place form of input.zero_()."""
    return _op("zeros_like")(input)


@_register
def index(input, indices):
    """Returns input[indices], where None selects an entire dimension."""
    import builtins
    return input[tuple([builtins.slice(None) if i is None else i for i in indices])]


@_register
def index_put(input, indices, values, accumulate=False):
    """Returns a copy of the input with values written to (or added at) input[indices], where None
    selects an entire dimension."""
    if not any([i is None for i in indices]):
        return Tensor.index_put(input, tuple(indices), values, accumulate)
    at = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(at) > 3 or any([i._np_dtype.kind == "b" for _, i in at]):
        raise NotImplementedError("torch.ops.aten.index_put: None indices together with masks, or with more than three index tensors, are not supported")
    name = f"index_put_add_{len(at)}" if accumulate else f"index_put_{len(at)}"
    values = values.to(input.dtype).expand(index(input, indices)._sizes)
    return PRIMITIVES[name](input, values, *[i for _, i in at], dims=tuple([d for d, _ in at]))


@_register
def t(input):
    """Transposes a matrix; returns vectors and 0-d tensors unchanged."""
    return Tensor.t(input)


def _layer(kind, n):
    return _op(f"nn.functional.{kind}{n}d")


@_register
def convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """Convolution, or transposed convolution, with the number of spatial dimensions of the weight.
    """
    n = weight.ndim - 2
    if transposed:
        return _layer("conv_transpose", n)(input, weight, bias, tuple(stride), tuple(padding), tuple(output_padding), groups, tuple(dilation))
    return _layer("conv", n)(input, weight, bias, tuple(stride), tuple(padding), tuple(dilation), groups)


@_register
def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """Looks up rows of the weight."""
    return _op("nn.functional.embedding")(indices, weight, padding_idx=None if padding_idx == -1 else padding_idx, scale_grad_by_freq=scale_grad_by_freq,
                                          sparse=sparse)


def _backward(prim, name):
    """Registers an activation's gradient: fn(grad_output, input or result, *constants)."""
    def fn(grad_output, other, *args):
        return prim.function(grad_output, other, **dict(zip(prim.attrs, args)))
    fn.__name__ = name
    return _register(fn)


for _f in PRIMITIVES.values():
    _name = (_f.prim.aten or "").partition(".")[0]
    if _name.endswith("_backward") and _name not in _aten_layer_names.NAMES:
        _backward(_f.prim, _name)


@_register
def _softmax_backward_data(grad_output, output, dim, input_dtype):
    """Gradient of softmax."""
    return PRIMITIVES["softmax_backward"](grad_output, output, dim=dim)


@_register
def _log_softmax_backward_data(grad_output, output, dim, input_dtype):
    """Gradient of log_softmax."""
    return PRIMITIVES["log_softmax_backward"](grad_output, output, dim=dim)


@_register
def is_same_size(input, other):
    """True if two tensors have the same shape."""
    return input.shape == other.shape


@_register
def sym_numel(input):
    """Returns the number of elements."""
    return input.numel()


@_register
def sym_stride(input, dim=None):
    """Returns the strides, or the stride of one dimension."""
    return input.stride() if dim is None else input.stride(dim)


@_register
def sym_storage_offset(input):
    """Returns the offset of a tensor in its storage, in elements."""
    return input.storage_offset()


@_register
def _is_all_true(input):
    """Returns a 0-d bool tensor: whether all elements of a bool tensor are True."""
    return input.all()


@_register
def _is_any_true(input):
    """Returns a 0-d bool tensor: whether any element of a bool tensor is True."""
    return input.any()


@_register
def _assert_async(input, assert_msg=None):
    """Raises RuntimeError unless the only element is true."""
    if not (is_tensor(input) and bool(to_host(input).all())):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")
