"""Origin of NaN and infinity: the call that produced them from finite inputs, tracked through the
calls that propagate them.

Not every infinity is an error: attention fills scores with -inf on purpose, and its softmax
consumes them. So an origin is only recorded at first. The values are tracked, and the origin is
reported once they reach the model's output, the loss or a gradient.
"""
import dataclasses
import math
import weakref

import numpy as np

from mindtorch.tools.model_diff import activation_recorder

#: Ops, by autograd's names in lower case, that write given values: infinity in their results is
#: intended.
FILLS = ("maskedfill", "where", "indexfill", "fill", "indexput", "copyslices", "constantpad", "scatter", "maskedscatter")


@dataclasses.dataclass
class Origin:
    """The origin of a non-finite value. `name` is the module in whose forward it appeared, `at` the
    clock time."""

    name: str
    op: str | None
    where: str
    deliberate: bool = False  # written on purpose, or passed in
    tracked: bool = True  # gradients flow through it
    at: int = 0
    nan: bool = False  # it is NaN, or has become NaN


@dataclasses.dataclass
class Frame:
    """A module call in progress."""

    module: object
    name: str
    kind: str
    args: tuple
    kwargs: dict
    at: int = 0

    @property
    def where(self):
        return (self.name or "the model itself") + f" ({self.kind})"

    def given(self):
        return [t for _, t in activation_recorder.tensors(self.args) + activation_recorder.tensors(self.kwargs)]


class Origins:
    """Origins of the values of one step. `ops`: all functions are observed, not only modules."""

    def __init__(self, ops):
        self.ops, self.clock, self.stack = ops, 0, []
        self.entered = {}  # {module's name: start time of its last forward}
        self.clear()

    def clear(self):
        self.made, self._known = [], {}

    # ------------------------------------------------------------------ calls
    def enter(self, frame):
        self.clock += 1
        self.entered[frame.name] = frame.at = self.clock
        self.stack.append(frame)

    def born(self, bad, given, name, op, where, *, at, written=False):
        """Records the origin of `bad`, results that are not finite.

        `given` are the call's non-finite arguments as [(tensor, has NaN)]; `at` is the frame whose
        code made the call; `written` means that infinity was passed to the call as a value to
        write.
        """
        origins = [self._of(t, nan, at) for t, nan in given]
        faults = sorted((o for o in origins if not o.deliberate), key=lambda o: o.at)
        nan = any(has_nan(t) for t in bad)
        if faults:
            origin = faults[0]
        elif nan or not origins:
            # NaN can only have been produced here. Infinity from finite values is an overflow,
            # unless the call writes it.
            meant = not nan and (written or fills(op))
            origin = self._new(name, op, where, meant, any(t.requires_grad for t in bad))
        else:
            origin = origins[0]
        origin.nan |= nan
        for t in bad:
            self._remember(t, origin)

    def left(self, bad):
        """Records `bad` as outputs of the innermost module call. Values that no observed function
        produced were either passed to it or produced in it."""
        frame, unknown = self.stack[-1], [t for t in bad if self.known(t) is None]
        for t in unknown:
            carried = self._carried(t, has_nan(t), len(self.stack) - 1)
            if carried is not None:
                self._remember(t, carried)
            else:
                self.born([t], not_finite(frame.given()), frame.name, made_by(t), frame.where, at=len(self.stack) - 2)

    def _carried(self, t, nan, at):
        """Returns the most likely fault behind `t`, which an unobserved function produced in the
        forward of frame `at`: from the arguments of that frame, or from the origins recorded in it.
        None if there is no such fault."""
        frame = self.stack[at]
        if not nan and (fills(made_by(t)) or self.ops and not t.requires_grad):
            return None
        found = [self._of(g, n, at - 1) for g, n in not_finite(frame.given()) if n >= nan and _memory(g) != _memory(t)]
        found += [o for o in self.made if o.at >= frame.at]
        found = [o for o in found if not o.deliberate]
        return next((o for o in found if o.nan >= nan), found[0] if found else None)

    def forget(self, t):
        self._known.pop(_memory(t), None)

    def known(self, t):
        """Returns the known `Origin` of a tensor's values, or None."""
        refs, origin = self._known.get(_memory(t), ((), None))
        # otherwise the memory may belong to another tensor by now
        return origin if any(r() is not None for r in refs) else None

    def _remember(self, t, origin):
        refs, _ = self._known.get(_memory(t), ((), None))
        self._known[_memory(t)] = [r for r in refs if r() is not None] + [weakref.ref(t)], origin

    def _of(self, t, nan, at):
        """Returns the `Origin` of a non-finite tensor that the code of frame `at` passed to a call.
        """
        origin = self.known(t)
        if origin is not None:
            return origin
        outside, memory = not self.stack, _memory(t)
        while at >= 0 and any(_memory(g) == memory for g in self.stack[at].given()):
            at -= 1  # an argument of this frame too: it comes from further out
        if at < 0:
            what = "what the loss is given" if outside else "the model's input"
            origin = self._new(what, None, what, not nan and (outside or _mask(t)), t.requires_grad)
        else:
            frame, op = self.stack[at], made_by(t)
            origin = self._carried(t, nan, at)
            following = f", before {self.stack[at + 1].name}" if at + 1 < len(self.stack) else ""
            # If functions are observed, a value that none of them produced is a constant.
            meant = not nan and (_mask(t) or fills(op) or self.ops and not t.requires_grad)
            origin = origin or self._new(frame.name, op, frame.where + following, meant, t.requires_grad)
        origin.nan |= nan
        self._remember(t, origin)
        return origin

    def _new(self, name, op, where, deliberate, tracked):
        origin = Origin(name, op, where, deliberate, tracked, self.clock)
        self.made.append(origin)
        return origin

    # ------------------------------------------------------------------ queries
    def fault(self, tensors):
        """Returns the earliest unintended `Origin` of these tensors, or None."""
        found = [o for o in map(self.known, tensors) if o is not None and not o.deliberate]
        return min(found, key=self.made.index, default=None)

    def behind(self, parameter):
        """Returns the `Origin` that explains why a parameter's gradient, the first in backward, is
        not finite: the last origin in the forward that is no earlier than the parameter's own use.
        """
        owner = parameter.rpartition(".")[0]
        found = [o for o in self.made if not o.deliberate and o.tracked and o.at >= self.entered.get(owner, 0)]
        return found[-1] if found else None


def _memory(t):
    """Returns a key of a tensor's memory; its views have the same key."""
    try:
        return t.untyped_storage().data_ptr() or id(t)
    except (RuntimeError, NotImplementedError, AttributeError):        # sparse, meta and wrapped tensors
        return id(t)


def _mask(t):
    """True if the tensor looks like an attention mask: zeros or finite values, and -inf, without
    autograd."""
    if t.requires_grad:
        return False
    a = array(t)
    return a.dtype.kind == "f" and not np.isposinf(a).any() and bool(np.isfinite(a).any())


def fills(op):
    return op is not None and op.lower().startswith(FILLS)


def made_by(t):
    """Returns the op that produced a tensor, if autograd knows it."""
    fn = getattr(t, "grad_fn", None)
    return fn.name().partition("Backward")[0] if fn is not None else None


def writes_infinity(x):
    """True if a function's arguments contain infinity as a Python scalar."""
    if isinstance(x, (list, tuple)):
        return any(map(writes_infinity, x))
    return writes_infinity(list(x.values())) if isinstance(x, dict) else isinstance(x, float) and math.isinf(x)


def not_finite(tensors):
    """Returns [(tensor, has NaN)] for the tensors that are not finite."""
    return [(t, has_nan(t)) for t in tensors if not finite(t)]


def has_nan(t):
    return bool(np.isnan(array(t)).any())


def array(t):
    """Returns a tensor's values as an array, without a copy where possible."""
    t = t.detach()
    if "bfloat16" in str(t.dtype):
        t = t.float()
    if getattr(t, "is_sparse", False):
        t = t.to_dense()
    return t.cpu().numpy()


def finite(t):
    if not (t.is_floating_point() or t.is_complex()):
        return True
    a = array(t)
    with np.errstate(all="ignore"):
        # One pass without a temporary: if the sum of squares is finite, so are all values.
        # Otherwise check the elements, because large finite values can overflow the sum too.
        if a.flags.c_contiguous and a.dtype.kind == "f" and a.itemsize >= 4:
            flat = a.reshape(-1)
            if math.isfinite(np.dot(flat, flat)):
                return True
        return bool(np.isfinite(a).all())
