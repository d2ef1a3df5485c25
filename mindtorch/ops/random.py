"""Random numbers: torch's CPU stream (core/rng.py) as tensors and in-place fills."""
import numpy as np

from mindtorch.core import alias, rng
from mindtorch.core import device as _device
from mindtorch.core.dtypes import as_np, bfloat16_np, default_np
from mindtorch.core.grad_mode import mode
from mindtorch.core.table import op, store_out
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor, bump, set_requires_grad, wrap
from mindtorch.ops._sizes import check_nonnegative, int_of, size_of
from mindtorch.ops.basic import cast_array, mul_

_F32, _I64 = np.dtype(np.float32), np.dtype(np.int64)


class Generator(rng.Generator):
    """A stream of random numbers (https://pytorch.org/docs/stable/generated/torch.Generator.html)."""

    def __init__(self, device="cpu"):
        d = _device.device(device)
        if d.type != "cpu" and d.type not in _device.accelerator():
            raise RuntimeError(f"Device type {d.type.upper()} is not supported for torch.Generator() api.")
        super().__init__(d)

    def get_state(self):
        """The state as a uint8 tensor, interchangeable with real torch's."""
        return wrap(self._dump_state())

    def set_state(self, new_state):
        """Continues from a state that get_state gave."""
        if not isinstance(new_state, Tensor):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
        self._load_state(new_state._a)
        return self


default_generator = rng.default_generator = Generator()
default_generator.seed()


def manual_seed(seed):
    """Seeds the default generator; returns it."""
    return default_generator.manual_seed(int(seed))


def seed():
    """Seeds the default generator from the operating system; returns the seed."""
    return default_generator.seed()


def initial_seed():
    """The seed that the default generator was last given."""
    return default_generator.initial_seed()


def get_rng_state():
    """State of the default generator as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state):
    """Restores a state that get_rng_state gave."""
    default_generator.set_state(new_state)


# ------------------------------------------------------------------ factories
def _finish(name, a, out, device, requires_grad, layout=None):
    if layout is not None and str(layout) != "torch.strided":
        raise NotImplementedError(f"{name}: layout {layout} is not supported on device cpu")
    d = _device.check(device)
    if d.type == "meta":
        raise NotImplementedError(f"{name}: meta tensors of dtype {a.dtype} are not supported")
    t = wrap(a)
    if out is not None:
        return store_out(name, out, t)
    if requires_grad:
        set_requires_grad(t, True)
    return t


def _float_dtype(dtype, out=None):
    if dtype is not None:
        return as_np(dtype)
    return default_np() if out is None else out._a.dtype


def _shape(name, size):
    s = size_of(name, size)
    check_nonnegative(s)
    return s


@op(method=False)
def rand(*size, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, names=None):
    """Uniform numbers from [0, 1)."""
    a = rng.uniform(_shape("rand", size), _float_dtype(dtype, out), generator=generator)
    return _finish("rand", a, out, device, requires_grad, layout)


@op(method=False)
def randn(*size, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, names=None):
    """Standard normal numbers."""
    a = rng.normal(_shape("randn", size), _float_dtype(dtype, out), generator=generator)
    return _finish("randn", a, out, device, requires_grad, layout)


def _randint_args(args, low, high, size):
    args = list(args)
    if size is None:
        if not args or not isinstance(args[-1], (tuple, list)):
            raise TypeError("randint() received an invalid combination of arguments: a tuple of ints `size` is needed")
        size = args.pop()
    if high is None:
        if not args:
            raise TypeError("randint(): argument 'high' is missing")
        high = args.pop()
    if args:
        low = args.pop()
    return int_of("randint", low, "low"), int_of("randint", high, "high"), _shape("randint", (size,))


@op(method=False)
def randint(*args, low=0, high=None, size=None, generator=None, out=None, dtype=None, layout=None, device=None,
            requires_grad=False, pin_memory=False):
    """randint(low=0, high, size): whole numbers from [low, high)."""
    if len(args) == 3 and size is None:
        low, high, size = args
        args = ()
    elif len(args) == 3:
        raise TypeError("randint() got multiple values for argument 'size'")
    elif len(args) == 2 and size is not None:
        low, high = args
        args = ()
    low, high, shape = _randint_args(args, low, high, size)
    d = as_np(dtype) if dtype is not None else (out._a.dtype if out is not None else _I64)
    a = rng.randint(low, high, shape, d, generator)
    return _finish("randint", a, out, device, requires_grad, layout)


@op(method=False)
def randperm(n, *, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """A random permutation of 0..n-1."""
    d = as_np(dtype) if dtype is not None else (out._a.dtype if out is not None else _I64)
    return _finish("randperm", rng.randperm(int_of("randperm", n, "n"), d, generator), out, device, requires_grad, layout)


def _like(input, a, device, requires_grad):
    dense = np.empty_like(input._a, dtype=a.dtype, order="K")
    view = rng.in_memory_order(dense)
    view[...] = a.reshape(view.shape)
    return _finish("rand_like", dense, None, device, requires_grad)


def _ordered(input):
    return rng.in_memory_order(input._a).shape


@op(method=False)
def rand_like(input, *, generator=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False,
              memory_format=None):
    """Uniform numbers from [0, 1) in the shape of `input`."""
    d = input._a.dtype if dtype is None else as_np(dtype)
    return _like(input, rng.uniform(_ordered(input), d, generator=generator), device, requires_grad)


@op(method=False)
def randn_like(input, *, generator=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False,
               memory_format=None):
    """Standard normal numbers in the shape of `input`."""
    d = input._a.dtype if dtype is None else as_np(dtype)
    plain = alias.dense(input._a)
    return _like(input, rng.normal(_ordered(input), d, generator=generator, contiguous=plain and input._a.flags.c_contiguous),
                 device, requires_grad)


@op(method=False)
def randint_like(input, *args, low=0, high=None, generator=None, dtype=None, layout=None, device=None, pin_memory=False,
                 requires_grad=False, memory_format=None):
    """randint_like(input, low=0, high): whole numbers from [low, high) in the shape of `input`."""
    args = list(args)
    if high is None:
        if not args:
            raise TypeError("randint_like(): argument 'high' is missing")
        high = args.pop()
    if args:
        low = args.pop()
    d = input._a.dtype if dtype is None else as_np(dtype)
    a = rng.randint(int_of("randint_like", low, "low"), int_of("randint_like", high, "high"), _ordered(input), d, generator)
    return _like(input, a, device, requires_grad)


@op(method=False)
def normal(mean=0.0, std=1.0, size=None, *, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False,
           pin_memory=False):
    """Normal numbers; mean and std are numbers (with `size`) or tensors."""
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        if size is not None:
            raise TypeError("normal() with a tensor for mean or std takes no size")
        m, s = (x._a if isinstance(x, Tensor) else float(x) for x in (mean, std))
        a = rng.normal_like(m, s, generator)
        return _finish("normal", a, out, device, requires_grad)
    if size is None:
        raise TypeError("normal() with numbers for mean and std needs a size")
    a = rng.normal(_shape("normal", (size,)), _float_dtype(dtype, out), float(mean), float(std), generator)
    return _finish("normal", a, out, device, requires_grad, layout)


# ------------------------------------------------------------------ sampling from tensors
def _no_grad(prim_name, like):
    """torch's bernoulli and poisson have a gradient: zero."""
    return primitive(prim_name, lambda a, *, value: value, lambda c, g: g * 0, raw=True)


_bernoulli = _no_grad("bernoulli", None)
_poisson = _no_grad("poisson", None)


@op(out=True)
def bernoulli(input, p=None, *, generator=None):
    """0 or 1 with the probabilities in `input` (or `p` everywhere)."""
    if p is not None:
        a = rng.bernoulli_mask(input._a.shape, float(p), generator)
    else:
        a = rng.bernoulli(input._a, generator)
    return _bernoulli(input, value=cast_array(a, input._a.dtype))


@op
def poisson(input, generator=None):
    """Poisson numbers with the rates in `input`."""
    low = input._a.dtype == bfloat16_np
    a = rng.poisson(input._a.astype(_F32) if low else input._a, generator, dtype="bfloat16" if low else None)
    return _poisson(input, value=cast_array(a, input._a.dtype))


@op(out=True)
def multinomial(input, num_samples, replacement=False, *, generator=None):
    """Category numbers drawn by the weights in the rows of `input`."""
    low = input._a.dtype == bfloat16_np
    a = input._a.astype(_F32) if low else input._a
    return wrap(rng.multinomial(a, num_samples, replacement, generator, dtype="bfloat16" if low else None))


@op(method=False)
def binomial(count, prob, generator=None):
    """Binomial numbers."""
    return wrap(rng.binomial(count._a, prob._a, generator))


@op(name="_standard_gamma", method=False)
def _standard_gamma(input, generator=None):
    return wrap(rng.standard_gamma(input._a, generator))


@op(name="_sample_dirichlet", method=False)
def _sample_dirichlet(input, generator=None):
    return wrap(rng.standard_dirichlet(input._a, generator))


# ------------------------------------------------------------------ in-place fills
def _fill(t, draw, name, by_memory=True):
    """Writes draw(shape, dtype) into `t`'s memory in the order torch fills it."""
    alias.check_inplace(t, False)
    a = t._a
    if by_memory:
        view = rng.in_memory_order(a)
        values = draw(view.shape, a.dtype)
        view[...] = values
    else:
        a[...] = draw(a.shape, a.dtype)
    bump(t)
    if t._rg and mode.on:
        alias.rebase(t, wrap(a))
    return t


def _method(name):
    def deco(fn):
        fn.__name__ = fn.__qualname__ = name
        setattr(Tensor, name, fn)
        return fn
    return deco


@_method("uniform_")
def _uniform_(self, from_=0, to=1, *, generator=None, **kw):
    """Fills with uniform numbers from [from, to)."""
    from_ = kw.pop("from", from_)
    if kw:
        raise TypeError(f"uniform_() got an unexpected keyword argument '{next(iter(kw))}'")
    return _fill(self, lambda s, d: rng.uniform(s, d, float(from_), float(to), generator), "uniform_")


@_method("normal_")
def _normal_(self, mean=0, std=1, *, generator=None):
    """Fills with normal numbers."""
    plain = self._a.flags.c_contiguous
    return _fill(self, lambda s, d: rng.normal(s, d, float(mean), float(std), generator, contiguous=plain), "normal_")


@_method("exponential_")
def _exponential_(self, lambd=1, *, generator=None):
    """Fills with exponential numbers."""
    return _fill(self, lambda s, d: rng.exponential(s, d, float(lambd), generator), "exponential_")


@_method("geometric_")
def _geometric_(self, p, *, generator=None):
    """Fills with geometric numbers."""
    return _fill(self, lambda s, d: rng.geometric(s, d, float(p), generator), "geometric_")


@_method("log_normal_")
def _log_normal_(self, mean=1, std=2, *, generator=None):
    """Fills with log-normal numbers."""
    return _fill(self, lambda s, d: rng.log_normal(s, d, float(mean), float(std), generator), "log_normal_")


@_method("cauchy_")
def _cauchy_(self, median=0, sigma=1, *, generator=None):
    """Fills with Cauchy numbers."""
    return _fill(self, lambda s, d: rng.cauchy(s, d, float(median), float(sigma), generator), "cauchy_")


@_method("random_")
def _random_(self, *args, generator=None, **kw):
    """random_(), random_(to), random_(from, to): fills with whole numbers."""
    args = list(args) + [kw[k] for k in ("from", "to") if k in kw]
    if not args:
        return _fill(self, lambda s, d: rng.random(s, d, generator), "random_")
    low, high = (0, args[0]) if len(args) == 1 else args
    if high is not None:
        high = int_of("random_", high, "to")
    return _fill(self, lambda s, d: rng.randint(int_of("random_", low, "from"), high, s, d, generator), "random_")


@_method("bernoulli_")
def _bernoulli_(self, p=0.5, *, generator=None):
    """Fills with 0 or 1; p is a number or a tensor of probabilities."""
    if isinstance(p, Tensor):
        if p._a.shape != self._a.shape:
            p = wrap(np.broadcast_to(p._a, self._a.shape).copy())
        return _fill(self, lambda s, d: cast_array(rng.bernoulli(p._a, generator), d), "bernoulli_", by_memory=False)
    return _fill(self, lambda s, d: cast_array(rng.bernoulli_mask(s, float(p), generator), d), "bernoulli_")


# ------------------------------------------------------------------ dropout
def dropout_mask(shape, keep, generator=None):
    """Bools, True with probability `keep`, in torch's order."""
    return rng.bernoulli_mask(shape, keep, generator)


@op(method=False)
def native_dropout(input, p, train):
    """(dropped input, mask)."""
    a = input._a
    if train is False or p == 0:
        return mul_(input, wrap(np.ones((), a.dtype))), wrap(np.ones(a.shape, np.bool_))
    if p == 1:
        return mul_(input, wrap(np.zeros((), a.dtype))), wrap(np.zeros(a.shape, np.bool_))
    mask = rng.bernoulli_mask(a.shape, 1 - p)
    return mul_(input, wrap((mask * (1 / (1 - p))).astype(a.dtype))), wrap(mask)
