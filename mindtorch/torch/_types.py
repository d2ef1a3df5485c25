"""Small value types of torch: layouts, memory formats and typed tensor constructors."""
from mindtorch.backend.mindspore.private import is_ours
from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.tensor import Tensor

#: Capture policy of this module's functions under torch.compile (see `torch/_dynamo/_capture.py`).
CAPTURE = "safe"


class layout:
    """Memory layout of a tensor."""

    __slots__ = ("_name",)

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return "torch." + self._name

    def __reduce__(self):
        return _find, (self._name,)


class memory_format(layout):
    """Order of the dimensions in memory."""

    __slots__ = ()


class qscheme(layout):
    """Quantization scheme. Quantized kernels are unsupported."""

    __slots__ = ()


def _find(name):
    return NAMES[name]


NAMES = {n: layout(n) for n in ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "_mkldnn", "jagged")}
NAMES.update({n: memory_format(n) for n in ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format")})
NAMES["legacy_contiguous_format"] = NAMES["contiguous_format"]
NAMES.update({n: qscheme(n) for n in ("per_tensor_affine", "per_channel_affine", "per_tensor_symmetric", "per_channel_symmetric",
                                      "per_channel_affine_float_qparams")})


def _get_layout(name):
    """Returns the layout of a name in a file."""
    found = NAMES.get(name.rpartition(".")[2]) if name.startswith("torch.") else None
    if found is None:
        raise NotImplementedError(f"layout {name} is not supported on device cpu")
    return found


class _TypedMeta(type):
    def __instancecheck__(cls, x):
        return isinstance(x, Tensor) and (not is_ours(x) or x._handle is None) and (cls.dtype is None or (x.dtype if is_ours(x) else dtypes.of_np(x.asnumpy().dtype)) is cls.dtype)

    def __call__(cls, *args, **kwargs):
        from mindtorch.ops.creation.create import legacy_tensor
        return legacy_tensor(cls.dtype.np, args, kwargs, of=cls.dtype.np)

    def __repr__(cls):
        return f"<class 'torch.{cls.__name__}'>"


def type_name(kind):
    """Returns the name of a tensor type, e.g. "torch.FloatTensor" or "torch.cuda.FloatTensor"."""
    return f"{kind.__module__.removeprefix('mindtorch.')}.{kind.__name__}"


def _typed(name, d):
    return _TypedMeta(name, (), {"dtype": d, "__module__": "torch", "is_cuda": False, "is_sparse": False,
                                 "__doc__": f"Legacy constructor of {d} tensors."})


TYPED = {n: _typed(n, dtypes.NAMES[d]) for n, d in {
    "FloatTensor": "float32", "DoubleTensor": "float64", "HalfTensor": "float16", "BFloat16Tensor": "bfloat16",
    "LongTensor": "int64", "IntTensor": "int32", "ShortTensor": "int16", "CharTensor": "int8", "ByteTensor": "uint8",
    "BoolTensor": "bool"}.items()}
