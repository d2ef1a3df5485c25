"""Random tensors. `mindtorch/core/device/rng.py` generates the same values as PyTorch."""
import sys

from mindtorch.core.hooks import hooks
from mindtorch.core.tensor import inplace, dtypes
from mindtorch.core.device import device_dispatch, device as _device, rng
from mindtorch.core.tensor.dtypes import I64, as_np
from mindtorch.core.dispatch.error_messages import type_name
from mindtorch.core.autograd.grad_mode import mode
from mindtorch.core.dispatch.op_registry import register_op, store_out
from mindtorch.core.dispatch.op_schema import Bool, Float, Scalar, SymInt
from mindtorch.core.dispatch.primitives import primitive
from mindtorch.core.tensor.tensor import Tensor, detached, is_tensor
from mindtorch.core.tensor.sync import of_all, tensor_from, to_host
from mindtorch.ops._operands import no_derivative
from mindtorch.ops._checks import check_tensor, not_implemented
from mindtorch.core.tensor.scalars import number_of, read
from mindtorch.ops.basic import cast, new_full
from mindtorch.ops.creation._from_data import CPU, finalize_new, resolve_dtype_device, resolve_device
from mindtorch.ops.creation.create import into, like, new_size, required
from mindtorch.ops.shapes._sizes import int_of

# Attributes: stride, the dense strides of the result (None: C order), in whose order memory is
# filled; generator, the source of the random numbers.
_uniform = primitive("uniform", "*, size, stride, np_dtype, generator, device", raw=True)
_normal = primitive("normal", "*, size, stride, mean, std, np_dtype, generator, device", raw=True)
_randint = primitive("randint", "*, size, stride, low, high, np_dtype, generator, device", raw=True)
_randperm = primitive("randperm", "*, n, np_dtype, generator, device", raw=True)


def _zero_grad(i):
    """Returns the gradient rule of random numbers with respect to operand `i`: zeros."""
    return lambda ctx, grad: new_full(grad, size=ctx.shapes[i], value=0, np_dtype=grad._np_dtype)


_normal_by = primitive("normal_by", "mean=None, std=None, *, loc, scale, generator", _zero_grad(0), _zero_grad(1), raw=True, node="NormalBackward0")
_bernoulli_by = primitive("bernoulli", "a, *, generator", _zero_grad(0), raw=True)
_bernoulli_of = primitive("bernoulli_p", "a, *, p, generator", _zero_grad(0), raw=True, node="BernoulliBackward0")
_poisson = primitive("poisson", "a, *, generator", _zero_grad(0), raw=True)
_binomial = primitive("binomial", "count, prob, *, generator", no_derivative("binomial"), no_derivative("binomial"), raw=True, node="NormalBackward0")
_multinomial = primitive("multinomial", "a, *, num_samples, replacement, generator", raw=True)


# ------------------------------------------------------------------ generators
class Generator(rng.Generator):
    """Random number generator (https://pytorch.org/docs/stable/generated/torch.Generator.html)."""

    def __new__(cls, device="cpu"):
        return object.__new__(DeviceGenerator if _device.device(device).type in _device.registered and cls is Generator else cls)

    def __init__(self, device="cpu"):
        d = _device.device(device)
        if d.type != "cpu":
            raise RuntimeError(f"Device type {d.type} is not supported for torch.Generator() api.")
        super().__init__(d)

    def get_state(self):
        """Returns the state as a uint8 tensor, interchangeable with PyTorch's."""
        return tensor_from(self._dump_state())

    def set_state(self, new_state):
        """Restores a state that get_state returned."""
        if not (new_state.__class__ is Tensor or is_tensor(new_state)):
            raise TypeError("set_state(): argument 'new_state' (position 1) must be Tensor, not "
                            f"{type(new_state).__name__}")
        self._load_state(to_host(new_state))
        return self

    graphsafe_get_state = rng.Generator.clone_state

    def graphsafe_set_state(self, state):
        """Continues from the current state of another generator."""
        self._load_state(state._dump_state())
        return self


class DeviceGenerator(rng.Counter, Generator):
    """torch.Generator of a device: a seed and an offset, from which the device's kernels compute
    random numbers."""

    def __init__(self, device):
        rng.Counter.__init__(self, _device.check(device))


default_generator = Generator()
default_generator.seed()
rng.set_default(default_generator)


def _default_generator(dev):
    """Returns a default generator for any device of this machine, even if this process does not
    compute on it: a script seeds all devices before it selects one."""
    g = object.__new__(DeviceGenerator)
    rng.Counter.__init__(g, dev)
    return g


def manual_seed(seed):
    """Seeds the default generators of all devices; returns the host's."""
    g = default_generator.manual_seed(int(seed))
    rng.seed_devices(g.initial_seed())
    return g


def seed():
    """Seeds the default generators of all devices from the operating system's entropy; returns the
    seed."""
    r = default_generator.seed()
    rng.seed_devices(r)
    return r


def initial_seed():
    """Returns the last seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state():
    """Returns the default generator's state as a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state):
    """Restores a state of the default generator."""
    default_generator.set_state(new_state)


def _gen(generator, dev=CPU):
    """Returns the generator for random numbers on the device `dev`. Raises PyTorch's error for a
    generator of another device."""
    if generator is None:
        return default_generator if dev is CPU else rng.default_of(dev)
    if not isinstance(generator, rng.Generator):
        raise TypeError(f"argument 'generator' must be torch._C.Generator, not {type_name(generator)}")
    there = generator.device
    if dev is not CPU and dev.type in _device.registered or there is not CPU and there.type != "cpu":
        if dev.type != "meta" and _device.registered.get(dev.type) is not _device.registered.get(there.type):
            raise RuntimeError(f"Expected a '{dev.type}' device type for generator but found '{there.type}'")
    return generator


def _expect(x, message, most=None):
    """Checks the parameters of a distribution on a device before sampling, as PyTorch does: all
    must be at least 0, and at most `most`. On the host, the kernels check them. On Ascend nothing does,
    because that would read them back; PyTorch checks them on a GPU without waiting."""
    if _is_checked(x):
        x = detached(x)
        if not (_numbers(x.amin()) >= 0).all() or most is not None and not (_numbers(x.amax()) <= most).all():
            raise RuntimeError(message)


def _is_checked(x):
    return x._handle is not None and x._numel and not device_dispatch.is_strided(x)


def _numbers(x):
    """Returns values that can be compared with scalars, which NumPy does not support for bfloat16.
    """
    return of_all(x).astype("float64")


# ------------------------------------------------------------------ new tensors
def _sample_out(name, out, size, dtype, device, layout, requires_grad, draw, generator, **how):
    """Writes random numbers to out=."""
    into(name, out, size, None, dtype, layout, device, False)
    return required(out.copy_(draw(size=size, stride=None, np_dtype=out._np_dtype, generator=_gen(generator, out._device), device=out._device, **how)),
                    requires_grad)


def _sample_new(name, args, size, out, dtype, device, layout, requires_grad, draw, **how):
    size = new_size(name, args, size)
    if out is not None:
        return _sample_out(name, out, size, dtype, device, layout, requires_grad, draw, **how)
    d, on = resolve_dtype_device(name, dtype, device, layout)
    how["generator"] = _gen(how["generator"], on)
    t = draw(size=size, stride=None, np_dtype=dtypes.default_np() if d is None else d, device=on, **how)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


@register_op(method=False, tags="nondeterministic_seeded")
def rand(*args, size=None, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """Returns uniform random numbers from [0, 1)."""
    size = new_size("rand", args, size)
    if out is not None:
        return _sample_out("rand", out, size, dtype, device, layout, requires_grad, _uniform, generator)
    on = CPU if device is None and layout is None and _device._default is CPU else resolve_device("rand", dtype, device, layout)
    g = default_generator if generator is None and on is CPU else _gen(generator, on)
    t = _uniform(size=size, stride=None, np_dtype=dtypes.default_np() if dtype is None else as_np(dtype), generator=g, device=on)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


@register_op(method=False, tags="nondeterministic_seeded")
def randn(*args, size=None, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """Returns normal random numbers of mean 0 and standard deviation 1."""
    size = new_size("randn", args, size)
    if out is not None:
        return _sample_out("randn", out, size, dtype, device, layout, requires_grad, _normal, generator, mean=0.0, std=1.0)
    on = CPU if device is None and layout is None and _device._default is CPU else resolve_device("randn", dtype, device, layout)
    g = default_generator if generator is None and on is CPU else _gen(generator, on)
    t = _normal(size=size, stride=None, mean=0.0, std=1.0, np_dtype=dtypes.default_np() if dtype is None else as_np(dtype), generator=g, device=on)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


def _bounds(name, args, low, high, rest):
    """Splits the arguments of f(high, ...) and f(low, high, ...) into (low, high, remaining
    arguments)."""
    if low is high is None and len(args) == 2 + rest and args[0].__class__ is int and args[1].__class__ is int:
        return args[0], args[1], args[2:]
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


@register_op(method=False, tags="nondeterministic_seeded")
def randint(*args, low: SymInt = None, high: SymInt = None, size=None, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False,
            requires_grad=False):
    """Returns random integers from [low, high): randint(high, size) or randint(low, high, size)."""
    lo, hi, left = _bounds("randint", args, low, high, 1)
    if left:
        size = left[0]
    if size is None:
        raise TypeError("randint() missing 1 required positional arguments: \"size\"")
    size = new_size("randint", (), size)
    if out is not None:
        return _sample_out("randint", out, size, dtype, device, layout, requires_grad, _randint, generator, low=lo, high=hi)
    on = CPU if device is None and layout is None and _device._default is CPU else resolve_device("randint", dtype, device, layout)
    g = _gen(generator, on)
    t = _randint(size=size, stride=None, low=lo, high=hi, np_dtype=I64 if dtype is None else as_np(dtype), generator=g, device=on)
    return t if on is CPU and not requires_grad else finalize_new(t, requires_grad, on)


@register_op(method=False, tags="nondeterministic_seeded")
def randperm(n: SymInt, *, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False):
    """Returns the integers 0 .. n-1 in random order."""
    n = int_of("randperm", n, "n")
    if n < 0:
        raise RuntimeError(f"n must be non-negative, got{n}")
    if out is not None:
        into("randperm", out, (n,), None, dtype, layout, device, False)
        return required(out.copy_(_randperm(n=n, np_dtype=out._np_dtype, generator=_gen(generator, out._device), device=out._device)), requires_grad)
    d, on = resolve_dtype_device("randperm", dtype, device, layout)
    t = _randperm(n=n, np_dtype=I64 if d is None else d, generator=_gen(generator, on), device=on)
    return finalize_new(t, requires_grad, on)


def _like(name, input, dtype, device, layout, memory_format, requires_grad, draw, **how):
    stride, d, on = like(name, input, dtype, layout, device, memory_format)
    how["generator"] = _gen(how["generator"], on)
    return finalize_new(draw(size=input._sizes, stride=stride, np_dtype=d, device=on, **how), requires_grad, on)


@register_op(method=False, tags="nondeterministic_seeded")
def rand_like(input, *, generator=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False, memory_format=None):
    """Like `rand`, with the size and dtype of input."""
    return _like("rand_like", input, dtype, device, layout, memory_format, requires_grad, _uniform, generator=generator)


@register_op(method=False, tags="nondeterministic_seeded")
def randn_like(input, *, generator=None, dtype=None, layout=None, device=None, pin_memory: Bool = False, requires_grad=False, memory_format=None):
    """Like `randn`, with the size and dtype of input."""
    return _like("randn_like", input, dtype, device, layout, memory_format, requires_grad, _normal, mean=0.0, std=1.0, generator=generator)


@register_op(method=False, tags="nondeterministic_seeded")
def randint_like(input, *args, low: SymInt = None, high=None, generator=None, dtype=None, layout=None, device=None, pin_memory: Bool = False,
                 requires_grad=False, memory_format=None):
    """Like `randint`, with the size and dtype of input."""
    lo, hi, _ = _bounds("randint_like", args, low, high, 0)
    return _like("randint_like", input, dtype, device, layout, memory_format, requires_grad, _randint, low=lo, high=hi, generator=generator)


@register_op(method=False, tags="nondeterministic_seeded")
def normal(mean, std=1.0, size=None, *, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory: Bool = False,
           requires_grad=False):
    """Returns normal random numbers. mean and std are scalars (with a size), or tensors that
    broadcast against each other."""
    if size is not None:  # With a size, a 0-dim tensor counts as a scalar.
        mean, std = [read("normal", "std", "float", x) if is_tensor(x) and not x.ndim else x for x in (mean, std)]
    if not (mean.__class__ is Tensor or is_tensor(mean)) and not (std.__class__ is Tensor or is_tensor(std)):
        if size is None:
            raise TypeError("normal() received an invalid combination of arguments: size is required if mean and std "
                            "are scalars")
        return _sample_new("normal", (), size, out, dtype, device, layout, requires_grad, _normal, mean=float(mean), std=float(std),
                           generator=generator)
    if size is not None:
        raise TypeError("normal() received an invalid combination of arguments: size is only allowed if mean and std are scalars")
    m, loc = (mean, None) if (mean.__class__ is Tensor or is_tensor(mean)) else (None, float(mean))
    v, scale = (std, None) if (std.__class__ is Tensor or is_tensor(std)) else (None, float(std))
    if v is not None and v._np_dtype.kind != "c":
        _expect(v, "normal expects all elements of std >= 0.0")
    r = _normal_by(m, v, loc=loc, scale=scale, generator=_gen(generator, (mean if v is None or m is not None and m.ndim else std)._device))
    return r if out is None else store_out("normal", out, r)


# ------------------------------------------------------------------ distributions by tensor
@register_op(tags="nondeterministic_seeded")
def bernoulli(input, p=None, *, generator=None, out=None):
    """Samples 0 or 1. The elements of input are the probabilities of 1, unless `p` is passed for
    all. out= can have any dtype."""
    check_tensor("bernoulli", input)
    if out is not None:
        check_tensor("bernoulli", out, "out")
        return store_out("bernoulli", out, cast(bernoulli(input, p, generator=generator), out._np_dtype))
    g = _gen(generator, input._device)
    if p is None:
        if input._np_dtype.kind in "fV":
            _expect(input, "Expected p_in >= 0 && p_in <= 1 to be true, but got false.", 1)
        return _bernoulli_by(input, generator=g)
    if p.__class__ is Tensor or is_tensor(p):
        p = read("bernoulli", "p", "float", p)
    return _bernoulli_of(input, p=float(p), generator=g)


@register_op(out="same", tags="nondeterministic_seeded")
def multinomial(input, num_samples: SymInt, replacement: Bool = False, *, generator=None):
    """Samples indices by the weights in the last dimension of a 1-D or 2-D tensor."""
    check_tensor("multinomial", input)
    if input._np_dtype.kind not in "fV":
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {inplace.scalar_type_name(input._np_dtype)}")
    if not 0 < input.ndim <= 2:
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if _is_checked(input):
        _expect(input, "probability tensor contains either `inf`, `nan` or element < 0", sys.float_info.max)
        if (_numbers(detached(input).amax(-1).amin()) <= 0).any():
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    return _multinomial(input, num_samples=int_of("multinomial", num_samples, "num_samples"), replacement=bool(replacement),
                        generator=_gen(generator, input._device))


@register_op(method=False, tags="nondeterministic_seeded")
def poisson(input, generator=None):
    """Samples Poisson counts with the elements of input as rates."""
    check_tensor("poisson", input)
    return _poisson(input, generator=_gen(generator, input._device))


@register_op(method=False, tags="nondeterministic_seeded")
def binomial(count, prob, generator=None):
    """Samples the number of successes in `count` trials of probability `prob`."""
    check_tensor("binomial", count, "count")
    check_tensor("binomial", prob, "prob", 2)
    return _binomial(count, prob, generator=_gen(generator, count._device))


# ------------------------------------------------------------------ in place
def _inplace(self, kernel, constants, *operands):
    """Fills the tensor with a kernel's random numbers, in memory order. The previous history of the
    tensor then receives zero gradients."""
    inplace.check_inplace(self, False)
    inplace.fill_by(self, kernel, constants, *operands)
    if hooks.tangent_write is not None:
        hooks.tangent_write(self, None, 0)
    if mode.on and self._requires_grad_:
        inplace.rebase(self, detached(self))
    return self


def _method(fn):
    setattr(Tensor, fn.__name__, fn)
    return fn


def _from_to(name, args, kwargs, first, second):
    """Parses two scalars passed by position or as from= and to= (`from` is a keyword in Python)."""
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
    """Fills the tensor with uniform random numbers from [from, to), by default [0, 1)."""
    low, high = _from_to("uniform_", args, kwargs, 0.0, 1.0)
    g = _gen(generator, self._device)
    low, high = float(number_of("uniform_", read("uniform_", "from", "float", low))), float(number_of("uniform_", read("uniform_", "to", "float", high)))
    return _inplace(self, "uniform_", {"low": low, "high": high, "generator": g})


@_method
def normal_(self, mean: Float = 0.0, std: Float = 1.0, *, generator=None):
    """Fills the tensor with normal random numbers of the given mean and standard deviation."""
    g = _gen(generator, self._device)
    mean, std = float(number_of("normal_", read("normal_", "mean", "float", mean))), float(number_of("normal_", read("normal_", "std", "float", std)))
    return _inplace(self, "normal_", {"mean": mean, "std": std, "generator": g})


@_method
def random_(self, *args, generator=None, **kwargs):
    """Fills the tensor with random integers: random_() from all that the dtype represents exactly,
    random_(to) from [0, to), random_(from, to) from [from, to)."""
    g = _gen(generator, self._device)
    if len(args) == 1 and not kwargs:
        args = (0, args[0])
    low, high = _from_to("random_", args, kwargs, None, None)
    if low is None and high is None:
        return _inplace(self, "random_", {"generator": g})
    low = 0 if low is None else int_of("random_", low, "from")
    high = None if high is None else int_of("random_", high, "to")
    return _inplace(self, "randint_", {"low": low, "high": high, "generator": g})


@_method
def bernoulli_(self, p=0.5, *, generator=None):
    """Fills the tensor with 0 or 1, where 1 has probability p (a scalar, or a tensor that is
    broadcast)."""
    g = _gen(generator, self._device)
    if p.__class__ is Tensor or is_tensor(p):
        return _inplace(self, "bernoulli_by_", {"generator": g}, p)
    if self._np_dtype.kind == "c" and self._numel:
        raise not_implemented("bernoulli_", self)
    p = float(number_of("bernoulli_", p))
    return _inplace(self, "bernoulli_", {"p": p, "generator": g})


@_method
def exponential_(self, lambd: Scalar = 1, *, generator=None):
    """Fills the tensor with exponential random numbers of the given rate."""
    g = _gen(generator, self._device)
    return _inplace(self, "exponential_", {"lambd": lambd, "generator": g})


@_method
def geometric_(self, p: Float, *, generator=None):
    """Fills the tensor with the number of trials of probability p until the first success."""
    g = _gen(generator, self._device)
    return _inplace(self, "geometric_", {"p": p, "generator": g})


@_method
def cauchy_(self, median: Float = 0, sigma: Float = 1, *, generator=None):
    """Fills the tensor with Cauchy random numbers."""
    g = _gen(generator, self._device)
    return _inplace(self, "cauchy_", {"median": median, "sigma": sigma, "generator": g})


@_method
def log_normal_(self, mean: Float = 1, std: Float = 2, *, generator=None):
    """Fills the tensor with exp of normal random numbers of the given mean and standard deviation.
    """
    g = _gen(generator, self._device)
    return _inplace(self, "log_normal_", {"mean": mean, "std": std, "generator": g})
