"""torch.export.dynamic_shapes: names of dynamic dimensions of an exported program."""
import inspect

from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._dynamo.exc import UserError
from mindtorch.torch._refusing import refuse

__all__ = ["Dim", "dims", "ShapesCollection", "Constraint"]


class _DimHint:
    """A hint for a dimension: AUTO (dynamic if the program allows it), DYNAMIC (dynamic, or an
    error), STATIC."""

    def __init__(self, name, min=None, max=None):
        self.name, self.min, self.max = name, min, max

    def __call__(self, *, min=None, max=None):
        return _DimHint(self.name, min, max)

    def __eq__(self, other):
        return isinstance(other, _DimHint) and (self.name, self.min, self.max) == (other.name, other.min, other.max)

    def __hash__(self):
        return hash((self.name, self.min, self.max))

    def __repr__(self):
        return f"_DimHint({self.name})"


class Dim:
    """Name of a dynamic dimension with a size between min and max. Dimensions with the same name
    have the same size."""

    AUTO, DYNAMIC, STATIC = _DimHint("AUTO"), _DimHint("DYNAMIC"), _DimHint("STATIC")

    def __init__(self, name, *, min=None, max=None):
        if min is not None and max is not None and max <= min:
            raise AssertionError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        if not str(name).isidentifier():
            raise AssertionError(f"Dim name must be a valid identifier, got {name}")
        self.__name__, self.min, self.max = name, min, max

    def _derived(self, *_):
        raise NotImplementedError(f"torch.export: a dimension computed from {self.__name__!r} is not supported; use a separate Dim, or Dim.AUTO")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = _derived

    def __repr__(self):
        return f"Dim('{self.__name__}', min={0 if self.min is None else self.min}, max={'int_oo' if self.max is None else self.max})"


def dims(*names, min=None, max=None):
    """Returns a tuple of Dims."""
    return tuple(Dim(n, min=min, max=max) for n in names)


class Range:
    """Sizes from `lower` to `upper` (None: any)."""

    def __init__(self, lower, upper):
        self.lower, self.upper = lower, upper

    def __eq__(self, other):
        return isinstance(other, Range) and (self.lower, self.upper) == (other.lower, other.upper)

    def __repr__(self):
        return f"VR[{self.lower}, {'int_oo' if self.upper is None else self.upper}]"


def _error(text):
    return UserError(text + ". For more information about this error, see: https://pytorch.org/docs/main/generated/exportdb/index.html"
                     "#dynamic-shapes-validation")


def named_arguments(fn, args, kwargs):
    """Returns {name: value} of the arguments of a call, with *args as a tuple and **kwargs as a
    dict."""
    try:
        return dict(inspect.signature(fn).bind(*args, **kwargs).arguments)
    except TypeError as e:
        raise UserError(f"torch.export.export: the example inputs do not fit forward: {e}") from None


def free_sizes(given, shapes, order):
    """Converts dynamic_shapes to {index of an input: {axis: Dim or hint}}.

      given   {argument name: value}
      order   {id of a tensor among them: its index}

    UserError if the structure does not match the arguments.
    """
    found = {}
    if not shapes:
        return found
    if isinstance(shapes, dict):
        if set(shapes) != set(given):
            raise _error(f"When `dynamic_shapes` is specified as a dict, its top-level keys must be the arg names {list(given)} of `inputs`, but "
                         f"here they are {list(shapes)}. Alternatively, you could also ignore arg names entirely and specify `dynamic_shapes` as a "
                         "list/tuple matching `inputs`")
        pairs = [(v, shapes[k], k) for k, v in given.items()]
    else:
        if len(shapes) != len(given):
            raise _error(f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `inputs` has {len(given)} elements, but "
                         f"`dynamic_shapes` has {len(shapes)} elements")
        pairs = [(v, s, k) for (k, v), s in zip(given.items(), shapes)]

    def walk(x, spec, path):
        if spec is None:
            return
        if is_tensor(x):
            if isinstance(spec, dict):
                axes = spec.items()
            elif isinstance(spec, (tuple, list)):
                if len(spec) != x.ndim:
                    raise _error(f"Expected dynamic shape spec {spec} specified at `dynamic_shapes[{path!r}]` to have the same length as the actual "
                                 f"tensor shape {x.shape} (expected {x.ndim}, but got {len(spec)} instead)")
                axes = enumerate(spec)
            else:
                raise _error(f"Unexpected input tensor shape {spec} specified at `dynamic_shapes[{path!r}]` (expected either a list/tuple of "
                             "dimensions, or a dict mapping indices to dimensions, where each dimension is an int, a Dim, Dim.AUTO, Dim.STATIC, or "
                             "Dim.DYNAMIC)")
            for axis, d in axes:
                if isinstance(axis, bool) or not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
                    raise _error(f"Unexpected axis {axis} at `dynamic_shapes[{path!r}]`, of a tensor of shape {x.shape}")
                axis %= x.ndim
                if d is None or d == Dim.STATIC:
                    continue
                if isinstance(d, int) and not isinstance(d, bool):
                    if d != x.shape[axis]:
                        raise _error(f"Static shape constraint of {d} does not match input size of {x.shape[axis]}, for {path}.shape[{axis}]")
                    continue
                if not isinstance(d, (Dim, _DimHint)):
                    raise _error(f"Unexpected dimension mapped to index {axis} in input tensor shape {spec} specified at `dynamic_shapes[{path!r}]` "
                                 f"(expected None, an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC, but got {d!r} instead)")
                low, high, n = d.min, d.max, x.shape[axis]
                if low is not None and n < low or high is not None and n > high:
                    raise _error(f"Constraints violated ({getattr(d, '__name__', d)})! - {path}.shape[{axis}] = {n} is outside of "
                                 f"[{low}, {high}]")
                found.setdefault(order[id(x)], {})[axis] = d
        elif isinstance(x, dict):
            if not isinstance(spec, dict) or set(spec) != set(x):
                raise _mismatch(path, x, spec)
            for k in x:
                walk(x[k], spec[k], f"{path}[{k!r}]")
        elif isinstance(x, (tuple, list)):
            if not isinstance(spec, (tuple, list)) or len(spec) != len(x):
                raise _mismatch(path, x, spec)
            for i, (v, s) in enumerate(zip(x, spec)):
                walk(v, s, f"{path}[{i}]")
        elif spec not in (Dim.STATIC, Dim.AUTO):
            raise NotImplementedError(f"torch.export: dynamic_shapes of {path}, which is not a tensor ({type(x).__name__}), is not supported: Python scalars "
                                      "are constants of the program")
    for x, spec, path in pairs:
        walk(x, spec, path)
    return found


def _mismatch(path, x, spec):
    return _error(f"Detected mismatch between the structure of `inputs` and `dynamic_shapes`: `inputs[{path!r}]` is a {type(x)}, but "
                  f"`dynamic_shapes[{path!r}]` is a {type(spec)} of another structure")


refuse(globals(), "give dynamic_shapes as nested dicts and tuples", "refine_dynamic_shapes_from_suggested_fixes", "ShapesCollection AdditionalInputs Constraint")
