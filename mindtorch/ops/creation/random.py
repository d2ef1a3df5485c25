"""Random numbers as tensors: the numbers themselves are torch's, made by mindtorch.core.rng."""
import numpy as np

from mindtorch.core import alias, device as _device, dtypes, rng
from mindtorch.core.dtypes import BOOL, I64, bfloat16_np
from mindtorch.core.foreign import type_name
from mindtorch.core.grad_mode import mode
from mindtorch.core.table import op, store_out
from mindtorch.core.tape import primitive
from mindtorch.core.tensor import Tensor, bump, wrap
from mindtorch.ops._checks import need_tensor, unsupported
from mindtorch.ops._numbers import number_of
from mindtorch.ops.shapes._sizes import empty_as, format_name, int_of
from mindtorch.ops.basic import mul_
from mindtorch.ops.creation.create import _into, finish, new_size, place



# ------------------------------------------------------------------ generators
class Generator(rng.Generator):
    """A stream of random numbers (https://pytorch.org/docs/stable/generated/torch.Generator.html)."""

    def __init__(self, device="cpu"):
        d = _device.device(device)
        if d.type != "cpu":
            raise RuntimeError(f"Device type {d.type} is not supported for torch.Generator() api.")
        super().__init__(d)

    def get_state(self):
        """The state as a uint8 tensor, interchangeable with real torch's."""
        return wrap(self._dump_state())

    def set_state(self, new_state):
        """Continues from a state that get_state gave."""
        if not isinstance(new_state, Tensor):
            raise TypeError("set_state(): argument 'new_state' (position 1) must be Tensor, not "
                            f"{type(new_state).__name__}")
        self._load_state(new_state._a)
        return self

    graphsafe_get_state = rng.Generator.clone_state

    def graphsafe_set_state(self, state):
        """Continues from where another generator stands."""
        self._load_state(state._dump_state())
        return self


default_generator = Generator()
default_generator.seed()
rng.set_default(default_generator)


def manual_seed(seed):
    """Restarts the default generator from a seed; returns it."""
    return default_generator.manual_seed(int(seed))


def seed():
    """Restarts the default generator from a seed taken from the operating system; returns the seed."""
    return default_generator.seed()


def initial_seed():
    """The seed last given to the default generator."""
    return default_generator.initial_seed()


def get_rng_state():
    """The default generator's state as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state):
    """Puts the default generator back into a state."""
    default_generator.set_state(new_state)


def _gen(generator):
    if generator is None:
        return default_generator
    if not isinstance(generator, rng.Generator):
        raise TypeError(f"argument 'generator' must be torch._C.Generator, not {type_name(generator)}")
    return generator


def _drawn(a, d):
    """What rng gave as an array of dtype `d` (it has bfloat16 values as float32)."""
    return a if a.dtype == d else a.astype(d)


# ------------------------------------------------------------------ new tensors
def _fresh(name, args, size, out, dtype, device, layout, requires_grad, draw):
    size = new_size(name, args, size)
    d = place(name, dtype, device, layout)
    if out is not None:
        return _into(name, out, size, None).copy_(wrap(_drawn(draw(size, out._stype), out._stype)))
    d = dtypes.default_np() if d is None else d
    return finish(_drawn(draw(size, d), d), requires_grad, device)


@op(method=False)
def rand(*args, size=None, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """Uniform numbers from [0, 1)."""
    g = _gen(generator)
    return _fresh("rand", args, size, out, dtype, device, layout, requires_grad, lambda s, d: rng.uniform(s, d, generator=g))


@op(method=False)
def randn(*args, size=None, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """Normal numbers of mean 0 and standard deviation 1."""
    g = _gen(generator)
    return _fresh("randn", args, size, out, dtype, device, layout, requires_grad, lambda s, d: rng.normal(s, d, generator=g))


def _bounds(name, args, low, high, rest):
    """low, high and what is left out of f(high, ...), f(low, high, ...)."""
    args = list(args)
    numbers = []
    while args and len(numbers) < 2 and not isinstance(args[0], (tuple, list)):
        numbers.append(int_of(name, args.pop(0), "high"))
    if low is not None:
        numbers.insert(0, int_of(name, low, "low"))
    if high is not None:
        numbers.append(int_of(name, high, "high"))
    if len(numbers) == 1:
        numbers.insert(0, 0)
    if len(numbers) != 2 or len(args) > rest:
        raise TypeError(f"{name}() received an invalid combination of arguments")
    return numbers[0], numbers[1], args


@op(method=False)
def randint(*args, low=None, high=None, size=None, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False,
            requires_grad=False):
    """Integers from [low, high): randint(high, size) or randint(low, high, size)."""
    lo, hi, left = _bounds("randint", args, low, high, 1)
    if left:
        size = left[0]
    if size is None:
        raise TypeError("randint() missing 1 required positional arguments: \"size\"")
    g = _gen(generator)
    if dtype is None and out is None:
        dtype = dtypes.int64
    return _fresh("randint", (), size, out, dtype, device, layout, requires_grad, lambda s, d: rng.randint(lo, hi, s, d, g))


@op(method=False)
def randperm(n, *, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False):
    """The integers 0 .. n-1 in random order."""
    n = int_of("randperm", n, "n")
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got{n}")
    d = place("randperm", dtype, device, layout)
    if d is None:
        d = I64 if out is None else out._stype
    a = _drawn(rng.randperm(n, d, _gen(generator)), d)
    return finish(a, requires_grad, device) if out is None else store_out("randperm", out, wrap(a))


def _like(name, input, dtype, device, layout, memory_format, requires_grad, draw):
    need_tensor(name, input)
    d = place(name, dtype, device, layout)
    a = input._a
    r = empty_as(a, None, a.dtype if d is None else d, format_name(memory_format))
    _draw_into(r, draw)
    return finish(r, requires_grad, input._dev if device is None else device)


def _draw_into(a, draw):
    """Fills an array in the order of its memory, as torch does."""
    if a.flags.c_contiguous:
        a[...] = _drawn(draw(a.shape, a.dtype, True), a.dtype)
    else:
        v = rng.in_memory_order(a)
        v[...] = _drawn(draw(v.shape, a.dtype, False), a.dtype)


@op(method=False)
def rand_like(input, *, generator=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
    """rand of the size and dtype of input."""
    g = _gen(generator)
    return _like("rand_like", input, dtype, device, layout, memory_format, requires_grad, lambda s, d, c: rng.uniform(s, d, generator=g))


@op(method=False)
def randn_like(input, *, generator=None, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False, memory_format=None):
    """randn of the size and dtype of input."""
    g = _gen(generator)
    return _like("randn_like", input, dtype, device, layout, memory_format, requires_grad,
                 lambda s, d, c: rng.normal(s, d, generator=g, contiguous=c))


@op(method=False)
def randint_like(input, *args, low=None, high=None, generator=None, dtype=None, layout=None, device=None, pin_memory=False,
                 requires_grad=False, memory_format=None):
    """randint of the size and dtype of input."""
    lo, hi, _ = _bounds("randint_like", args, low, high, 0)
    g = _gen(generator)
    return _like("randint_like", input, dtype, device, layout, memory_format, requires_grad, lambda s, d, c: rng.randint(lo, hi, s, d, g))


@op(method=False)
def normal(mean, std=1.0, size=None, *, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False,
           requires_grad=False):
    """Normal numbers; mean and std are numbers (with a size) or tensors that are broadcast against each other."""
    g = _gen(generator)
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        if size is None:
            raise TypeError("normal() received an invalid combination of arguments: a size is needed where mean and "
                            "std are numbers")
        mean, std = float(mean), float(std)
        return _fresh("normal", (), size, out, dtype, device, layout, requires_grad, lambda s, d: rng.normal(s, d, mean, std, g))
    a = mean._a if isinstance(mean, Tensor) else float(mean)
    b = std._a if isinstance(std, Tensor) else float(std)
    d = a.dtype if isinstance(mean, Tensor) else b.dtype
    shape = np.broadcast_shapes(*[x.shape for x in (a, b) if isinstance(x, np.ndarray)])
    r = wrap(_drawn(rng.normal_like(a, b, g), d).reshape(shape))
    if mode.on and any(isinstance(x, Tensor) and x._rg for x in (mean, std)):
        r = _no_slope(r, mean, std)
    return r if out is None else store_out("normal", out, r)


_zero_a = primitive("normal", lambda r, a, b: r, lambda c, g: None, lambda c, g: _zeros(c.shapes[1], g),
                    lambda c, g: _zeros(c.shapes[2], g), raw=True)
_zero_one = primitive("normal", lambda r, a: r, lambda c, g: None, lambda c, g: _zeros(c.shapes[1], g), raw=True)


def _zeros(shape, g):
    return wrap(np.zeros(shape, g._stype))


def _no_slope(r, *parents):
    """Random results have a gradient, of zeros, with respect to their parameters."""
    parents = [p for p in parents if isinstance(p, Tensor)]
    return _zero_a(r, *parents) if len(parents) == 2 else _zero_one(r, *parents)


# ------------------------------------------------------------------ distributions by tensor
def _sampler(name, draw):
    """Primitive whose result does not depend smoothly on its input: gradient zeros."""
    return primitive(name, draw, lambda c, g: _zeros(c.shapes[0], g), raw=True)


_bernoulli_by = _sampler("bernoulli", lambda a, *, g: rng.bernoulli(a, g).astype(a.dtype))
_bernoulli_of = _sampler("bernoulli", lambda a, *, p, g: rng.bernoulli_mask(a.shape, p, g).astype(a.dtype))
_poisson = _sampler("poisson", lambda a, *, g: _drawn(rng.poisson(a, g), a.dtype))


def _wide(a):
    return a.astype(np.float32) if a.dtype == bfloat16_np else a


@op(out=True)
def bernoulli(input, p=None, *, generator=None):
    """0 or 1, with the elements of input as the probabilities of 1 (or `p` for all of them)."""
    need_tensor("bernoulli", input)
    g = _gen(generator)
    if p is None:
        return _bernoulli_by(input, g=g)
    if isinstance(p, Tensor):
        r = _like("bernoulli", input, None, None, None, None, False, lambda s, d, c: np.zeros(s, d))
        return r.bernoulli_(p, generator=g)
    return _bernoulli_of(input, p=float(p), g=g)


@op(out=True)
def multinomial(input, num_samples, replacement=False, *, generator=None):
    """Indices drawn by the weights in the last dimension of a tensor of one or two dimensions."""
    need_tensor("multinomial", input)
    a = input._a
    if a.dtype.kind not in "fV":
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {alias.title(a.dtype)}")
    if not 0 < a.ndim <= 2:
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    return wrap(rng.multinomial(a, int_of("multinomial", num_samples, "num_samples"), bool(replacement), _gen(generator)))


@op(method=False)
def poisson(input, generator=None):
    """Poisson counts with the elements of input as rates."""
    need_tensor("poisson", input)
    return _poisson(input, g=_gen(generator))


@op(method=False)
def binomial(count, prob, generator=None):
    """How many of `count` trials of probability `prob` succeed."""
    need_tensor("binomial", count, "count")
    need_tensor("binomial", prob, "prob", 2)
    r = wrap(rng.binomial(count._a, prob._a, _gen(generator)))
    return _no_slope(r, count, prob) if mode.on and (count._rg or prob._rg) else r


# ------------------------------------------------------------------ in place
def _inplace(self, draw):
    """Writes random numbers to the tensor, in memory order; its history then gets zeros."""
    alias.check_inplace(self, False)
    _draw_into(self._a, draw)
    bump(self)
    if mode.on and self._rg:
        alias.rebase(self, wrap(self._a))
    return self


def _method(fn):
    setattr(Tensor, fn.__name__, fn)
    return fn


def _from_to(name, args, kwargs, first, second):
    """Two numbers given by position or as from= and to= (`from` is a keyword in Python)."""
    names = ("from", "to")
    values = dict(zip(names, args))
    for k, v in kwargs.items():
        if k not in names or k in values:
            raise TypeError(f"{name}() got an unexpected keyword argument '{k}'")
        values[k] = v
    if len(args) > 2:
        raise TypeError(f"{name}() takes at most 2 positional arguments, got {len(args)}")
    return values.get("from", first), values.get("to", second)


@_method
def uniform_(self, *args, generator=None, **kwargs):
    """Uniform numbers from [from, to), by default [0, 1)."""
    low, high = _from_to("uniform_", args, kwargs, 0.0, 1.0)
    g = _gen(generator)
    low, high = float(number_of("uniform_", low)), float(number_of("uniform_", high))
    return _inplace(self, lambda s, d, c: rng.uniform(s, d, low, high, g))


@_method
def normal_(self, mean=0.0, std=1.0, *, generator=None):
    """Normal numbers of the given mean and standard deviation."""
    g = _gen(generator)
    mean, std = float(number_of("normal_", mean)), float(number_of("normal_", std))
    if not self._numel:
        if not std >= 0.0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
        return _inplace(self, lambda s, d, c: np.empty(s, d))        # of any dtype, as in torch
    return _inplace(self, lambda s, d, c: rng.normal(s, d, mean, std, g, c))


@_method
def random_(self, *args, generator=None, **kwargs):
    """Integers: random_() over all that the dtype holds exactly, random_(to) from [0, to), random_(from, to) from [from, to)."""
    g = _gen(generator)
    if len(args) == 1 and not kwargs:
        args = (0, args[0])
    low, high = _from_to("random_", args, kwargs, None, None)
    if low is None and high is None:
        return _inplace(self, lambda s, d, c: rng.random(s, d, g))
    low = 0 if low is None else int_of("random_", low, "from")
    high = None if high is None else int_of("random_", high, "to")
    return _inplace(self, lambda s, d, c: rng.randint(low, high, s, d, g))


@_method
def bernoulli_(self, p=0.5, *, generator=None):
    """0 or 1, with probability p (a number, or a tensor that is broadcast) of 1."""
    g = _gen(generator)
    if isinstance(p, Tensor):
        q = np.broadcast_to(p._a, self._sizes)
        order = rng.in_memory_order(self._a)
        axes = sorted(range(self.ndim), key=lambda ax: -abs(self._a.strides[ax]))
        return _inplace(self, lambda s, d, c: rng.bernoulli(np.ascontiguousarray(q if c else q.transpose(axes)), g).reshape(
            s if c else order.shape).astype(d))
    if self._stype.kind == "c" and self._numel:
        raise unsupported("bernoulli_", self._stype)
    p = float(number_of("bernoulli_", p))
    return _inplace(self, lambda s, d, c: rng.bernoulli_mask(s, p, g).astype(d))


@_method
def exponential_(self, lambd=1, *, generator=None):
    """Exponential numbers of the given rate."""
    g = _gen(generator)
    return _inplace(self, lambda s, d, c: rng.exponential(s, d, lambd, g))


@_method
def geometric_(self, p, *, generator=None):
    """Number of trials of probability p until the first success."""
    g = _gen(generator)
    return _inplace(self, lambda s, d, c: rng.geometric(s, d, p, g))


@_method
def cauchy_(self, median=0, sigma=1, *, generator=None):
    """Cauchy numbers."""
    g = _gen(generator)
    return _inplace(self, lambda s, d, c: rng.cauchy(s, d, median, sigma, g))


@_method
def log_normal_(self, mean=1, std=2, *, generator=None):
    """exp of normal numbers of the given mean and standard deviation."""
    g = _gen(generator)
    return _inplace(self, lambda s, d, c: rng.log_normal(s, d, mean, std, g))


# ------------------------------------------------------------------ dropout
def keep_mask(a, keep, generator=None):
    """Bool array laid out like `a`, each element True with probability `keep`."""
    r = empty_as(a, None, BOOL)
    _draw_into(r, lambda s, d, c: rng.bernoulli_mask(s, keep, generator))
    return r


def check_probability(name, p):
    """ValueError-free check torch makes of a dropout rate; returns it as a float."""
    p = float(p)
    if not 0.0 <= p <= 1.0:
        raise RuntimeError(f"{name} probability has to be between 0 and 1, but got {p}")
    return p


def noise_like(a, p):
    """What dropout multiplies by: 0 with probability p, else 1 / (1 - p)."""
    work = np.float32 if a.dtype.itemsize == 2 else a.dtype.type(0).real.dtype
    mask = keep_mask(a, 1.0 - p).astype(work)
    mask /= work.type(1.0 - p) if isinstance(work, np.dtype) else work(1.0 - p)
    return mask.astype(a.dtype, copy=False)


def dropout_(x, p):
    """Dropout of rate p in training (p a float in [0, 1])."""
    if p == 0.0 or not x._numel:
        return x
    if p == 1.0:
        return mul_(x, wrap(np.zeros((), x._stype)))
    return mul_(x, wrap(noise_like(x._a, p)))


_native_dropout = primitive("native_dropout", lambda a, *, mask, scale: (a * mask * np.asarray(scale, a.dtype), mask),
                            lambda c, g: mul_(mul_(g[0], wrap(c.mask.astype(g[0]._stype))), wrap(np.asarray(c.scale, g[0]._stype))),
                            nondiff=(1,))


@op(method=False)
def native_dropout(input, p, train):
    """(dropout of input, the bool mask of what was kept)."""
    need_tensor("native_dropout", input)
    a = input._a
    if train is False or not a.size:
        return input.clone(), wrap(np.ones(a.shape, np.bool_))
    p = check_probability("dropout", p)
    mask = np.zeros(a.shape, np.bool_) if p == 1.0 else keep_mask(a, 1.0 - p)
    return _native_dropout(input, mask=mask, scale=0.0 if p == 1.0 else 1.0 / (1.0 - p))


@op(method=False)
def native_dropout_backward(grad_output, mask, scale):
    """Gradient of native_dropout's input."""
    need_tensor("native_dropout_backward", grad_output, "grad_output")
    return grad_output * mask * scale


