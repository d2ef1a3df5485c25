"""Hides inherited MindSpore methods that have the name of a torch method.

Tensor derives from `mindspore.Tensor`, so a torch method that is not defined here would silently be
MindSpore's method of that name, with other arguments, no CPU kernel or no in-place effect. Such a
name raises AttributeError instead.
"""
from mindtorch.core.tensor.tensor import Parameter, Tensor

# Names that mindspore.Tensor and torch.Tensor share.
_SHARED = """
    H T abs absolute acos acosh add add_ addbmm addcdiv addcmul addmm addmm_ addmv addr adjoint all allclose
    amax amin aminmax angle any arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort
    argwhere asin asinh atan atan2 atanh baddbmm bernoulli bernoulli_ bfloat16 bincount bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm bool broadcast_to byte ceil
    cholesky cholesky_inverse cholesky_solve chunk clamp clamp_ clip clone conj contiguous copy_ copysign cos
    cosh count_nonzero cov cross cummax cummin cumprod cumsum data data_ptr deg2rad det device diag diagflat
    diagonal diagonal_scatter diff digamma dim div div_ divide dot double dsplit dtype eq equal erf erfc
    erfinv erfinv_ exp exp_ expand expand_as expm1 exponential_ fill_ fill_diagonal_ flatten flip fliplr
    flipud float float_power floor floor_ floor_divide floor_divide_ fmax fmin fmod frac gather gcd ge geqrf
    ger greater greater_equal gt half hardshrink heaviside histc hsplit hypot i0 igamma igammac imag index
    index_add index_add_ index_copy_ index_fill index_fill_ index_put index_put_ index_select inner int
    inverse is_complex is_contiguous is_floating_point is_meta is_pinned is_shared is_signed isclose isfinite
    isinf isnan isneginf isposinf isreal item itemsize kthvalue lcm ldexp le lerp less less_equal lgamma log
    log10 log1p log2 log_ logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not logical_or
    logical_xor logit logsumexp long lstsq lt lu_solve mH mT masked_fill masked_fill_ masked_scatter
    masked_scatter_ masked_select matmul matrix_power max maximum mean median min minimum mm moveaxis movedim
    msort mul mul_ multinomial multiply mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow nbytes
    ndim ndimension ne neg negative nelement new_empty new_full new_ones new_zeros nextafter nonzero norm
    normal_ not_equal numel numpy orgqr ormqr outer permute pin_memory positive pow prod put_ qr quantile
    rad2deg random_ ravel real reciprocal register_hook remainder remainder_ renorm repeat repeat_interleave
    requires_grad_ reshape reshape_as resize roll rot90 round rsqrt scatter scatter_ scatter_add scatter_add_
    select select_scatter set_ sgn shape short sigmoid sigmoid_ sign sign_ signbit sin sinc sinh size
    slice_scatter slogdet softmax sort split sqrt square squeeze std storage storage_offset stride sub sub_
    subtract sum sum_to_size svd swapaxes swapdims t take tan tanh tanh_ tensor_split tile to tolist topk
    trace transpose triangular_solve tril triu true_divide trunc type type_as unbind unfold uniform_ unique
    unique_consecutive unsqueeze untyped_storage var view view_as vsplit where xlogy zero_
""".split()


class _Closed:
    """Descriptor of a name that is not available."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __get__(self, obj, cls=None):
        raise AttributeError(f"'{(cls or type(obj)).__name__}' object has no attribute '{self.name}': torch's "
                             f"Tensor.{self.name} is not supported yet on device cpu")

    def __set__(self, obj, value):
        # Users can set an attribute of that name on a tensor, as on any torch tensor.
        obj.__dict__[self.name] = value


def is_closed(name):
    """True if a name of the class Tensor is hidden."""
    return isinstance(Tensor.__dict__.get(name), _Closed)


def close():
    """Hides every shared name that the facade does not define."""
    for name in _SHARED:
        if name not in Tensor.__dict__:
            setattr(Tensor, name, _Closed(name))
        elif name in Parameter.__dict__ and isinstance(Tensor.__dict__[name], _Closed):
            delattr(Tensor, name)
