"""`watch`: finds problems of a training run, and the step and layer where they begin."""
import functools
import math
import sys

import numpy as np

from mindtorch.tools import _nan_detector
from mindtorch.tools.model_diff import activation_recorder
from mindtorch.tools._nan_detector import array as _array, finite as _finite

_ENDS = {"Sigmoid": (0.0, 1.0), "Hardsigmoid": (0.0, 1.0), "Tanh": (-1.0, 1.0), "Hardtanh": (-1.0, 1.0),
         "Softsign": (-1.0, 1.0)}
_RELUS = ("ReLU", "ReLU6")
# length of a history: beyond it, every second entry of the earlier half is dropped
MOST_STEPS = 20_000


def watch(model, optimizer=None, **options):
    """Watches a training run: `with watch(model, optimizer) as w: ...`; afterwards `w.findings` is
    a list of dicts.

    Each finding has 'kind', 'name' (of the layer or parameter), 'step' (counted from 0), 'text',
    and the measured value:

        overflow                  NaN or infinity reaches the model's output or a gradient. The
                                  finding names its origin: the layer (also 'op'), or the gradient.
                                  Infinity that is consumed before that (as by a softmax of scores
                                  masked with -inf) does not count, nor does a mask that the model
                                  returns
        vanishing_gradient        the largest element of a parameter's gradient is below `vanishing`
                                  (1e-9)
        exploding_gradient        ... above `exploding` (1e4)
        unchanged_weight          a parameter with requires_grad has not changed in `patience` (3)
                                  consecutive steps
        weight_change_too_large   the largest change is more than `change` (10) times the largest
                                  element
        dead_relu                 more than `dead` (0.9) of the units of an nn.ReLU are zero for the
                                  entire batch, in `patience` consecutive steps
        saturated_activation      more than `saturated` (0.95) of the outputs of an nn.Sigmoid, Tanh
                                  ... are at its limits

        every       check only every n-th step; in the other steps the model has no hooks, so that
                    they cost nothing
        ops         observe every torch function, including those of the loss, and name the one that
                    produced NaN or infinity from finite values (slow; for debugging)
        on_finding  called with each finding immediately; by default prints it to standard error

    `history` has, for each checked step, (step, loss, norm of all gradients, the smallest and the
    largest norm of a parameter's gradient); in long runs the early steps are thinned out.
    `save(path)` draws it as a page. The loss is the tensor on which the last `backward()` before
    the step was called; `w.loss(value)` overrides it (with an unscaled one, for example).

    With an optimizer, its `step()` marks the steps. Without one, call `w.step_end()` after each
    step (or pass `w` to a trainer as its callback). Works for models of the facade and of PyTorch,
    and changes no result.
    """
    return Watch(model, optimizer, **options)


def watch_training(model, optimizer, step, n_steps, **options):
    """Calls step(0) ... step(n_steps - 1), each a complete training step, under `watch`; returns
    the findings."""
    options.setdefault("on_finding", None)
    with Watch(model, optimizer, **options) as w:
        for i in range(n_steps):
            step(i)
    return w.findings


def report(finding):
    """Prints a finding as one line to standard error (the default `on_finding`)."""
    print(f"watch: {finding['text']}", file=sys.stderr)


class Watch:
    """Watcher of one model. See `watch`."""

    def __init__(self, model, optimizer=None, *, vanishing=1e-9, exploding=1e4, change=10.0, dead=0.9, saturated=0.95,
                 patience=3, every=1, ops=False, on_finding=report):
        if every < 1 or patience < 1:
            raise ValueError("every and patience must be at least 1")
        self.model, self.optimizer = model, optimizer
        self.vanishing, self.exploding, self.change = vanishing, exploding, change
        self.dead, self.saturated, self.patience, self.every = dead, saturated, patience, every
        self.ops, self.on_finding = ops, on_finding
        self.findings, self.history, self.step = [], [], 0
        self._told, self._norms = None, (math.nan,) * 3
        self._seen, self._still, self._quiet = set(), {}, {}
        self._hooks, self._steps, self._before, self._undo = [], [], {}, None
        self._origins = _nan_detector.Origins(ops)
        self._overflow, self._was_overflow, self._inside = False, False, False

    # ------------------------------------------------------------------ on and off
    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop()

    def start(self):
        """Starts watching, as `with` does; `stop` ends it."""
        if self._steps:
            raise RuntimeError("this watch has been started already")
        opt = self.optimizer
        if opt is not None:
            self._steps = [opt.register_step_pre_hook(lambda *_: self._before_step()),
                           opt.register_step_post_hook(lambda *_: self.step_end(gradients=False))]
        self._arm()

    def stop(self):
        """Removes all hooks; calling it twice is allowed."""
        self._cut_short()
        self._disarm()
        for h in self._steps:
            h.remove()
        self._steps = []

    def _arm(self):
        if self.step % self.every or self._hooks:
            return
        self._origins.stack = []
        for name, m in self.model.named_modules():
            self._hooks.append(m.register_forward_pre_hook(self._enter(name), with_kwargs=True))
            self._hooks.append(m.register_forward_hook(self._leave))
        self._before = {n: _copied(_array(p)) for n, p in self._parameters()}
        # the module that the model is built from: the facade or PyTorch
        torch = _torch_of(self.model)
        undo = activation_recorder.patch(torch, self._follow, more=True) if self.ops else lambda: None
        _listen(torch, self)

        def restore():
            _unlisten(torch, self)
            undo()
        self._undo = restore

    def _disarm(self):
        for h in self._hooks:
            h.remove()
        self._hooks = []
        if self._undo is not None:
            self._undo()
            self._undo = None

    def _parameters(self):
        return [(n, p) for n, p in self.model.named_parameters()
                if p.requires_grad and not type(p).__name__.startswith("Uninitialized")]

    def _add(self, kind, name, text, **more):
        if (kind, name) in self._seen:
            return
        self._seen.add((kind, name))
        finding = {"kind": kind, "name": name, "step": self.step, "text": f"step {self.step}: {text}", **more}
        self.findings.append(finding)
        if self.on_finding is not None:
            self.on_finding(finding)

    # ------------------------------------------------------------------ forward
    def _enter(self, name):
        def hook(module, args, kwargs):
            if module is self.model:
                self._cut_short()
            self._origins.enter(_nan_detector.Frame(module, name, type(module).__name__, args, kwargs))
        return hook

    def _leave(self, module, args, output):
        # calls made to inspect values are not the model's
        inside, self._inside = self._inside, True
        try:
            self._left(module, output)
        finally:
            self._inside = inside

    def _left(self, module, output):
        stack = self._origins.stack
        while stack and stack[-1].module is not module:
            stack.pop()  # calls that ended with a caught exception
        if not stack:
            return
        found = activation_recorder.tensors(output)
        bad = [] if self._overflow else [t for _, t in found if not _finite(t)]
        if bad:
            self._origins.left(bad)
        frame = stack.pop()
        if bad and not stack:
            self._tell(self._origins.fault(bad))
        if module.training and found:
            if frame.kind in _RELUS:
                self._relu(frame.name, _array(found[0][1]))
            elif frame.kind in _ENDS:
                self._saturation(frame.name, frame.kind, _array(found[0][1]))

    def _cut_short(self):
        """Reports the NaN of a forward that ended with an exception: it has no output that NaN
        could reach, and NaN may be the cause of the exception."""
        if self._origins.stack and not self._overflow:
            self._tell(next((o for o in self._origins.made if not o.deliberate), None))
        self._origins.stack = []

    def _tell(self, origin, what=""):
        if origin is not None:
            self._found_overflow(origin.name, origin.op, origin.where, what)

    def _found_overflow(self, name, op, where, what=""):
        self._overflow = True
        if not self._was_overflow:
            self._add("overflow", name, f"NaN or infinity first in {where}" + (f", op {op}" if op else "") + what, op=op)

    def _backward_of(self, loss):
        """Called when backward() is called on a tensor."""
        inside, self._inside = self._inside, True
        self._told = loss.detach()
        self._inside = inside
        if self.ops:
            self._loss(loss)

    def loss(self, value):
        """Sets the loss of this step, a tensor or a Python scalar, if it is not the one on which
        `backward()` is called."""
        self._told = value.detach() if hasattr(value, "detach") else value

    def _loss(self, loss):
        inside, self._inside = self._inside, True
        try:
            if self._overflow or _finite(loss):
                return
        finally:
            self._inside = inside
        origin = self._origins.fault([loss])
        if origin is None:  # intended infinity has reached the loss
            self._found_overflow("the loss", _nan_detector.made_by(loss), "the loss")
        self._tell(origin)

    def _follow(self, name, fn):
        method = name.rpartition(".")[2]
        inplace = method == "__setitem__" or method.startswith("__i") and method != "__invert__" or method[-1] == "_" != method[-2]

        def followed(*args, **kwargs):
            if self._inside or self._overflow:
                return fn(*args, **kwargs)
            self._inside, origins = True, self._origins
            try:
                given = [t for _, t in activation_recorder.tensors(args) + activation_recorder.tensors(kwargs)]
                writes = inplace or kwargs.get("inplace") or kwargs.get("out") is not None
                before = _nan_detector.not_finite(given) if writes else None
                out = fn(*args, **kwargs)
                found = [t for _, t in activation_recorder.tensors(args[0] if method == "__setitem__" else out)]
                bad = [t for t in found if not _finite(t)]
                if bad:
                    frame = origins.stack[-1] if origins.stack else None
                    origins.born(bad, _nan_detector.not_finite(given) if before is None else before, frame.name if frame else "the loss",
                                 name, frame.where if frame else "the loss", at=len(origins.stack) - 1,
                                 written=_nan_detector.writes_infinity((args, kwargs)))
                elif writes:
                    for t in found:
                        origins.forget(t)
                return out
            finally:
                self._inside = False
        return followed

    def _relu(self, name, a):
        zero = _silent(a, 1 if a.ndim > 1 else 0, self.dead)
        old = self._quiet.get(name)
        dead = zero if old is None or old[0].shape != zero.shape else old[0] & zero
        count = 1 if old is None else old[1] + 1
        self._quiet[name] = dead, count
        if count >= self.patience:
            share = float(dead.mean()) if dead.size else 0.0
            if share > self.dead:
                self._add("dead_relu", name, f"{share:.0%} of the units of {name} were zero in {count} consecutive batches",
                          share=share)
            self._quiet.pop(name)

    def _saturation(self, name, kind, a):
        low, high = _ENDS[kind]
        share = float(((a - low < 1e-3) | (high - a < 1e-3)).mean()) if a.size else 0.0
        if share > self.saturated:
            self._add("saturated_activation", name, f"{share:.0%} of the outputs of {name} ({kind}) are at its limits",
                      share=share)

    # ------------------------------------------------------------------ gradients and weights
    def _before_step(self):
        self._gradients()
        self._inside = True  # the optimizer's own functions are not observed

    def _gradients(self):
        if not self._hooks:
            return
        norms = []
        # Backward reaches the last parameters first, so an overflow there was not propagated from
        # other gradients.
        for name, p in reversed(self._parameters()):
            if p.grad is None:
                continue
            g = _array(p.grad)
            if not g.size:
                continue
            low, high, norm = _measured(g)
            norms.append(norm)
            if low >= self.vanishing and high <= self.exploding:
                continue
            top = _top(g)
            if not math.isfinite(top):
                if not self._overflow:
                    origin = self._origins.behind(name)
                    self._tell(origin, f", and then in the gradient of {name}")
                    if origin is None:
                        self._found_overflow(name, None, f"the gradient of {name}")
            elif top < self.vanishing:
                self._add("vanishing_gradient", name, f"the gradient of {name} vanishes (largest element {top:.3g})",
                          value=top)
            elif top > self.exploding:
                self._add("exploding_gradient", name, f"the gradient of {name} explodes (largest element {top:.3g})",
                          value=top)
        self._norms = (math.hypot(*norms), _least(norms), max(norms, key=_rank)) if norms else (math.nan,) * 3

    def step_end(self, *_, gradients=True):
        """Ends a training step (called automatically if `watch` received an optimizer)."""
        self._inside = False
        self._cut_short()
        if self._hooks:
            if gradients:
                self._gradients()
            self._weights()
            self._remember()
        self._origins.clear()
        self._was_overflow, self._overflow = self._overflow, False
        if self._hooks and self.every > 1:
            self._disarm()
        self.step += 1
        self._arm()

    __call__ = step_end

    def _remember(self):
        told, self._told = self._told, None
        self.history.append((self.step, _number(told), *self._norms))
        self._norms = (math.nan,) * 3
        if len(self.history) > MOST_STEPS:
            self.history[:MOST_STEPS // 2] = self.history[:MOST_STEPS // 2:2]

    def save(self, path):
        """Writes a self-contained HTML page: curves of the loss and the gradients, with the
        findings at their steps."""
        from mindtorch.tools.html import training_monitor_page
        with open(path, "w", encoding="utf-8") as f:
            f.write(training_monitor_page.page(self))

    def _weights(self):
        scale = 0.0
        for name, p in self._parameters():
            new, (old, size) = _array(p), self._before.get(name, (None, 0.0))
            if old is None or old.shape != new.shape or not new.size:
                self._before[name] = _copied(new)
                continue
            with np.errstate(all="ignore"):
                _, moved = _between(np.subtract(new, old, out=old))
            if moved == 0:
                np.copyto(old, new)
                still = self._still[name] = self._still.get(name, 0) + 1
                if still >= self.patience:
                    self._add("unchanged_weight", name, f"{name} has not changed in {still} steps"
                              + ("" if p.grad is not None else "; it has no gradient"), steps=still)
                continue
            self._still[name] = 0
            if size == 0:  # initialized to zeros: use the scale of the other weights
                scale = scale or max((t for t in (_top(_array(q)) for _, q in self._parameters() if q.numel())
                                      if math.isfinite(t)), default=0.0)
                size = scale
            if not moved <= self.change * size:  # the bounds are inconclusive: compute exactly
                moved, size = _top(old), max(size, _top(new - old))
            ratio = moved / (size + 1e-6)
            if ratio > self.change and math.isfinite(ratio):
                self._add("weight_change_too_large", name, f"{name} changed by {ratio:.3g} times its largest element",
                          ratio=ratio)
            np.copyto(old, new)
            self._before[name] = old, _between(new)[0]


def _copied(a):
    return a.copy(), _between(a)[0] if a.size else 0.0


def _silent(a, units, share):
    """Returns a mask of the units that are zero in the entire batch, or, if clearly at most `share`
    of them are, of those that may be."""
    if not a.size:
        return np.zeros(0, bool)
    others = tuple(i for i in range(a.ndim) if i != units)
    if units == 1:
        first = ~a[:1].any(axis=others)
        # units that are nonzero for the first element of the batch are alive
        if first.mean() <= share:
            return first
    return ~a.any(axis=others)


def _between(a):
    """Returns (lower, upper) bounds of the largest absolute value, from the norm in one fast pass
    where possible."""
    return _measured(a, False)[:2]


def _measured(a, wanted=True):
    """Returns (lower, upper) bounds of the largest absolute value, and the norm if `wanted`, in one
    fast pass where possible."""
    if a.flags.c_contiguous and a.dtype.kind == "f" and a.itemsize >= 4:
        flat = a.reshape(-1)
        with np.errstate(all="ignore"):
            # of NaN, max is 0 or NaN; both are handled below
            norm = math.sqrt(max(float(np.dot(flat, flat)), 0.0))
        if 1e-15 < norm < math.inf:  # otherwise squares may have under- or overflowed
            return 0.99 * norm / math.sqrt(flat.size), 1.01 * norm, norm
    top = _top(a)
    with np.errstate(all="ignore"):
        return top, top, top * float(np.linalg.norm((np.abs(a) / top).astype(np.float64).reshape(-1))) if wanted and top and math.isfinite(top) else top


def _rank(v):
    """Sort key for the largest of some values: NaN sorts last."""
    return math.inf if math.isnan(v) else v


def _least(values):
    return min(values, key=_rank)


def _number(value):
    """Returns a loss as a float; NaN if there is none, or if it has more than one element."""
    if value is None or hasattr(value, "numel") and value.numel() != 1:
        return math.nan
    return float(_array(value).reshape(-1)[0].real) if hasattr(value, "numel") else float(value)


def _top(a):
    """Returns the largest absolute value, or NaN if there is one, without a temporary array (except
    for complex values)."""
    return max(float(a.max()), -float(a.min())) if a.dtype.kind != "c" else float(np.abs(a).max())


def _torch_of(model):
    facade = sys.modules.get("mindtorch.torch")
    return facade if facade is not None and isinstance(model, facade.nn.Module) else sys.modules["torch"]


# torch -> (its original Tensor.backward, the watches notified of its calls): several watches may
# start and end in any order.
_LISTENING: dict = {}


def _listen(torch, watch):
    if torch not in _LISTENING:
        backward, watches = torch.Tensor.backward, []

        @functools.wraps(backward)
        def told(loss, *args, **kwargs):
            for w in tuple(watches):
                w._backward_of(loss)
            return backward(loss, *args, **kwargs)
        _LISTENING[torch] = backward, watches
        torch.Tensor.backward = told
    _LISTENING[torch][1].append(watch)


def _unlisten(torch, watch):
    backward, watches = _LISTENING[torch]
    watches.remove(watch)
    if not watches:
        torch.Tensor.backward = backward
        del _LISTENING[torch]
