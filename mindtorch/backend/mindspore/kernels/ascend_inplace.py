"""In-place Ascend kernels: one launch, where an op and a copy take two (`in_place` in
`mindtorch/core/device/device_dispatch.py`)."""
from mindtorch.backend.mindspore.kernels._call import G, UnsupportedByKernel, op
from mindtorch.backend.mindspore.kernels.ascend import CUBE, _is_number, ascend, named, scalar_argument

_SUPPORTED = CUBE + " int64 int32"


@ascend("add_", only=_SUPPORTED, numbers=True)
def _add(x, y, *, alpha=1):
    if _is_number(y):
        op(G.InplaceAddsExt)(x, y, alpha)
    else:
        op(G.InplaceAddExt)(x, y, alpha)


@ascend("sub_", only=_SUPPORTED, numbers=True)
def _sub(x, y, *, alpha=1):
    if _is_number(y):
        op(G.InplaceSubScalar)(x, y, alpha)
    else:
        op(G.InplaceSubExt)(x, y, alpha)


@ascend("mul_", only=_SUPPORTED, numbers=True)
def _mul(x, y):
    if _is_number(y):
        op(G.InplaceMuls)(x, y)
    else:
        op(G.InplaceMul)(x, y)


@ascend("div_", only=CUBE, numbers=True)
def _div(x, y, *, rounding_mode=None):
    if rounding_mode is not None:
        raise UnsupportedByKernel
    if _is_number(y):
        op(G.InplaceDivs)(x, y)
    else:
        op(G.InplaceDiv)(x, y)


@ascend("clamp_", only=_SUPPORTED)
def _clamp(x, low=None, high=None, *, min=None, max=None):
    low, high = min if low is None else low, max if high is None else high
    if not (low is None or _is_number(low)) or not (high is None or _is_number(high)) or low is None and high is None:
        raise UnsupportedByKernel
    op(G.InplaceClampScalar)(x, low, high)


for _name, _prim in {"exp_": G.InplaceExp, "log_": G.InplaceLog, "tanh_": G.InplaceTanh, "sigmoid_": G.InplaceSigmoid, "floor_": G.InplaceFloor}.items():
    ascend(_name, (lambda p: lambda x: op(p)(x))(_prim), only=CUBE)


def _three(name, kernel):
    @ascend(name, only=CUBE)
    def f(x, a, b, *, value=1):
        launch = named(kernel, "ttts") if not _is_number(a) and not _is_number(b) else None
        if launch is None:
            raise UnsupportedByKernel
        launch(x, a, b, scalar_argument(value))


for _name, _kernel in ("addcmul_", "InplaceAddcmul"), ("addcdiv_", "InplaceAddcdiv"):
    _three(_name, _kernel)


@ascend("lerp_", only=CUBE, numbers=True)
def _lerp(x, end, weight):
    by_number = _is_number(weight)
    launch = named("InplaceLerps", "tts") if by_number else named("InplaceLerp", "ttt")
    if launch is None or _is_number(end):
        raise UnsupportedByKernel
    launch(x, end, scalar_argument(float(weight)) if by_number else weight)
