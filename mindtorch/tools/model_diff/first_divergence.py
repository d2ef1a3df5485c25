"""Comparison of two recorded runs of one model, and the location of their first divergence."""
import dataclasses
import itertools
import json

import numpy as np

from mindtorch.tools.model_diff.tolerance import NOISE, SAME, WHO, Verdict, bound, coarsest, judge, rms, worst
from mindtorch.tools.model_diff.activation_recorder import FUNCTIONALS, Held

AMPLIFICATION = 16  # factor by which a layer may amplify the rounding error of its inputs
# relative difference of weight updates: near a zero gradient, Adam's update can have either sign
UPDATE = 5e-3
MOST_TERMS = 1024  # longer sums are computed in blocks, whose errors do not grow further
MOST_CARRIED = 1e-4
KINKED = 1e-4  # fraction of the elements that rounding may move across a kink
# relative norm of what such elements may add to the gradients, before amplification
MOST_TIPPED = 0.02
# relative difference that rounding may cause in one step by flipping a ReLU or a maximum
CHAOS = 0.25
GROWTH = 64  # ... and the factor by which it may amplify the previous step's gradient difference
EXACT = ("float8_e5m2", "float8_e4m3fn", "bfloat16", "float16", "complex32", "float32", "complex64", "float64", "complex128")
RECURRENT = ("RNN", "LSTM", "GRU")


@dataclasses.dataclass
class Finding:
    """The first divergence of the two runs. `phase`: forward, gradient, buffer, optimizer, weights
    or loss."""

    layer: str
    phase: str
    inputs_differed: bool
    text: str
    verdict: Verdict
    tensor: str = ""
    step: int = 0
    around: str | None = None  # the module whose own forward contains the cause, if known
    call: int = -1  # number (`begun`) of the call whose launches are at fault


class CompareError(RuntimeError):
    """Raised if the two sides cannot be compared; the message is one sentence for the user."""


class Row:
    """One call on both sides: the second side's `a` and the first side's `b`."""

    def __init__(self, a, b):
        self.a, self.b = a, b
        self.call = b
        self.name, self.type, self.kind, self.nth = self.call.name, self.call.type, self.call.kind, self.call.nth
        self.leaf = self.call.leaf and self.kind == "module"
        self.inputs = self.outputs = self.grad_inputs = self.grad_outputs = Verdict(SAME)
        self.params = {}
        self.depth = 0

    @property
    def title(self):
        return (self.name or "(model)") + (f" #{self.nth + 1}" if self.nth else "")


@dataclasses.dataclass
class Parting:
    """The first point where two records have different calls: a sentence, the names in it, and the
    reference's calls that ended before."""

    text: str
    names: list
    ended: list


def _events(calls):
    """Returns a record in chronological order: (call, whether it ends here)."""
    begun, below = {c.begun for c in calls}, {}
    for c in sorted(calls, key=lambda c: c.begun):
        below.setdefault(c.parent if c.parent in begun else -1, []).append(c)

    def walk(parent):
        for c in below.get(parent, ()):
            yield c, False
            yield from walk(c.begun)
            yield c, True
    return list(walk(-1))


def _titled(c):
    return f"{Row(c, c).title} ({c.type})"


def parted(torch, ours, who=WHO):
    """Returns the `Parting` of two lists of calls, or None. Calls, their order or nesting, or the
    tensors of a result may differ."""
    around, ended, n = [], [], 1
    for b, a in itertools.zip_longest(_events(torch), _events(ours), fillvalue=(None, True)):
        if a[1] == b[1] and a[0] is not None and b[0] is not None and a[0].key == b[0].key:
            if not b[1]:
                around.append(b[0])
                n += 1
                continue
            around.pop()
            paths = [list(x[0].outputs) for x in (b, a)]
            if sorted(paths[0]) == sorted(paths[1]):
                ended.append(b[0])
                continue
            said = " and ".join(f"{len(p)} tensor{'s' * (len(p) != 1)} ({', '.join(p)}) in {w}" if p else f"no tensor in {w}"
                                for w, p in zip(who, paths))
            return Parting(f"{_titled(b[0])} returns {said}", [], ended)
        said = [f"{w} calls {_titled(c)}" if not end else f"{w} makes no further call"
                for w, (c, end) in zip(who, (b, a))]
        inside = f", in the forward of {_titled(around[-1])}" if around else ""
        return Parting(f"at call {n}{inside}, {said[0]} and {said[1]}", [c.name for c, end in (b, a) if not end], ended)
    return None


class Comparison:
    """Result of `compare_layers`.

        ok         True if nothing differs beyond rounding
        first      the Finding, or None; `first_diverging` is its layer's name ('' is the model) or
                   None
        layers     [(leaf module's name, largest absolute difference of its outputs)] in forward
                   order
        grads      {parameter name: largest absolute difference of its gradient}; input_grads
                   likewise
        rows       all calls (Row); `steps` is a list of {kind: {name: Verdict}}
        unjudged   the first step whose gradients cannot be judged, because training has amplified
                   rounding too much; or None
        table(), as_dict(), save(path): the report as text, as a dict, and as .json or .html
    """

    def __init__(self, ours, reference, title=""):
        self.ours, self.reference, self.title = ours, reference, title
        self.model, self.modules = reference["model"], reference["modules"]
        self.who = reference.get("who", WHO[0]), ours.get("who", WHO[1])
        _leveled(reference, ours)
        self.initial = {n: self._judge(h, reference["initial"].get(n)) for n, h in ours["initial"].items()}
        followed = [set(side["followed"]) for side in (reference, ours)]
        self._calls = [[c for c in side["calls"] if c.kind != "op" or c.type in set.intersection(*followed)]
                       for side in (reference, ours)]
        parting = parted(*self._calls, self.who)
        if parting is not None:
            raise CompareError(self._parted(parting))
        self._match(self._calls[0])
        self._leave_out()
        self._forward()
        self.param_verdicts, self._floors = {}, {}
        self._backward()
        self.buffers = self._buffers(ours["buffers"], reference["buffers"], 1)
        self.unjudged = None
        self.steps = self._steps()
        self.first = (self._first_forward() or self._first_gradient() or self._first_buffer()
                      or self._first_step())

    def _judge(self, *args):
        return judge(*args, who=self.who)

    # ------------------------------------------------------------------ results
    @property
    def sides(self):
        """Returns the short names (second, first) of the compared sides."""
        short = [x.get("side", s) for x, s in ((self.ours, "cpu"), (self.reference, "torch"))]
        return tuple({"cpu": "mindtorch"}.get(s, s) if "torch" in short else s for s in short)

    @property
    def against(self):
        """Returns the names of the sides as text, for titles."""
        return " against ".join(self.sides) + (f" {self.reference['version']}" if self.sides[1] == "torch" else "")

    @property
    def ok(self):
        return self.first is None

    @property
    def first_diverging(self):
        return None if self.first is None else self.first.layer

    @property
    def layers(self):
        out = {}
        for r in self.rows:
            if r.leaf:
                out[r.name] = max(out.get(r.name, 0.0), r.outputs.max_abs)
        return list(out.items())

    @property
    def grads(self):
        return {n: v.max_abs for n, v in self.param_verdicts.items()}

    @property
    def input_grads(self):
        return {n: v.max_abs for n, v in self.input_verdicts.items()}

    def table(self, everything=False, color=False):
        from mindtorch.tools.model_diff import report
        return report.text(self, everything, color)

    def as_dict(self):
        from mindtorch.tools.model_diff import report
        return report.plain(self)

    def save(self, path):
        """Writes the report: HTML if `path` ends in .html, else JSON."""
        from mindtorch.tools.html import model_diff_page
        text = model_diff_page.page(self) if str(path).endswith((".html", ".htm")) else json.dumps(self.as_dict(), indent=1)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def __repr__(self):
        return f"<Comparison of {self.title}: {self.summary()}>"

    @property
    def launches(self):
        """Returns {side: lines}, the kernels launched at the divergence in launch order; {} if no
        log was written."""
        f = self.first
        if f is None:
            return {}
        out, name = {}, f.layer
        for record, side in ((self.ours, self.sides[0]), (self.reference, self.sides[1])):
            if not record.get("launches"):
                continue
            if f.phase in ("optimizer", "weights"):
                lines = record["steps"][self.numbers.index(f.step)]["launches"]
                shape = "T[{}]".format(",".join(map(str, self.reference["initial"][f.tensor].shape))) if f.tensor in self.reference["initial"] else ""
                lines = [x for x in lines if shape in x] or lines
            else:
                calls = [c for c in record["calls"] if c.begun == f.call] or [c for c in record["calls"] if c.name == name and not c.nth]
                lines = calls[0].launches.get("backward" if f.phase == "gradient" else "forward", []) if calls else []
            out[side] = lines
        return out

    def summary(self):
        """Returns the result as one sentence."""
        if self.first is None:
            return f"{len(self.rows)} calls agree; all differences are within rounding error" + (
                f" (from step {self.unjudged} on rounding error is too large to judge gradients)" if self.unjudged else "")
        return self.first.text

    # ------------------------------------------------------------------ matching
    def _match(self, calls):
        a = {c.key: c for c in self._calls[1]}
        self.rows = [Row(a[c.key], c) for c in calls]
        self._by_begun = {r.b.begun: r for r in self.rows}

    def _leave_out(self):
        """Drops parameters of modules with no recorded call, because the rounding error of their
        gradients is unknown."""
        looked = {r.name for r in self.rows if r.call.sampled}
        out = {p for name, own in self._own_parameters(self.reference["grads"]).items() if name not in looked for p in own}
        for record in (self.ours, self.reference) if looked else ():
            for step in (record, *record["steps"]):
                for kind in ("grads", "weights", "state"):
                    step[kind] = {n: h for n, h in step.get(kind, {}).items() if n not in out and n.rpartition(".")[0] not in out}

    def _parted(self, parting):
        """Returns the sentence for two sides that do not make the same calls. A difference before
        that point is the likely cause."""
        self._match(parting.ended)
        self._forward()
        first = self._first_forward()
        before = f"; before that, {first.text}" if first else \
            f"; the outputs of the {len(self.rows)} calls that ended before that point agree" if self.rows else ""
        there = [{n for n, _ in side["modules"]} for side in (self.reference, self.ours)]
        only = [f"{n} is a module in {who} only (the other side may share another module instead)"
                for i, who in enumerate(self.who) for n in dict.fromkeys(parting.names) if n in there[i] - there[1 - i]]
        return "; ".join([f"the two sides do not make the same calls: {parting.text}", *only]) + before

    def _own_parameters(self, names):
        """Returns {name of a called module: its parameters, and those of its submodules that are
        not called themselves}."""
        called = {r.name for r in self.rows if r.kind == "module"}
        out = {}
        for name in names:
            owner = name.rpartition(".")[0]
            while owner and owner not in called:
                owner = owner.rpartition(".")[0]
            out.setdefault(owner, []).append(name)
        return out

    def _terms(self, row, params):
        """Returns the number of terms summed in one output element."""
        shapes = [self.reference["shapes"][p] for p in params]
        terms = max((int(np.prod(s[1:])) for s in shapes if len(s) > 1), default=1)
        inputs, outputs = (sum(h.size for h in x.values()) for x in (row.call.inputs, row.call.outputs))
        terms = max(terms, inputs // max(1, outputs))
        if row.type.startswith(RECURRENT) and row.call.inputs:
            shape = next(iter(row.call.inputs.values())).shape
            terms *= max(shape[:2], default=1)
        return min(terms, MOST_TERMS)

    # ------------------------------------------------------------------ forward
    def _forward(self):
        # `level` is the rounding error accumulated so far: a layer that sums nothing passes on the
        # error of earlier layers.
        own, all_own, depth, level = self._own_parameters(self.reference["grads"]), self._own_parameters(self.reference["shapes"]), 0, 0.0
        self.least = min((_least(r) for r in self.rows), key=_exactness, default="float32")
        seen, unseen = 0.0, 0
        for r in self.rows:
            r.own = own.get(r.name, []) if r.kind == "module" else []
            r.depth = depth
            inside = [x for x in self.rows if x.call.parent == r.call.begun]
            r.terms = max([self._terms(r, all_own.get(r.name, []) if r.kind == "module" else []), *(x.terms for x in inside)])
            depth += r.leaf or r.kind == "op"
            # Each layer since the last recorded one may have amplified that layer's error.
            hidden = min(MOST_CARRIED, max(seen, level) * AMPLIFICATION ** min(unseen, 4)) if unseen else 0.0
            r.inputs = worst(self._values(r, "inputs", r.depth, 1, max(level, hidden)))
            # A module may have as much error as the modules inside it.
            noise = max([level, 0.0 if r.inputs.bad else AMPLIFICATION * r.inputs.relative,
                         *(x.outputs.tolerance for x in inside)])
            r.amplified = max([noise, *(x.amplified for x in inside)])
            # The result of a subtraction may be smaller than its operands but carries their
            # rounding error.
            floor = bound(_least(r), 0, 0) / 2 * max([rms(h.a) for h in r.b.inputs.values()
                                                      if h.a.dtype.kind in "fc"], default=0.0)
            r.outputs = worst(self._values(r, "outputs", r.depth + 1, r.terms, noise, floor))
            level = self._carried(r, level, r.outputs, r.depth + 1)
            if r.call.sampled:
                seen, unseen = 0.0 if r.outputs.bad else r.outputs.relative, 0
            else:
                unseen += r.leaf or r.kind == "op"
        self.depth = depth

    def _carried(self, r, level, verdict, depth):
        kinds = [_lower(h, r) for h in r.b.outputs.values() if h.a.dtype.kind in "fc"] if r.call.sampled else [self.least]
        made = max([bound(k, depth, r.terms) for k in kinds], default=0.0)
        return max(level, made, 0.0 if verdict.bad else min(verdict.relative, MOST_CARRIED))

    def _values(self, *args):
        return (v for _, v in self._by_path(*args))

    def _by_path(self, r, field, depth, terms, noise=0.0, floor=0.0):
        a, b = getattr(r.a, field), getattr(r.b, field)
        for path in {**b, **a}:
            if field == "grad_inputs" and (path in r.a.wants) != (path in r.b.wants):
                # gradients are cut off before this call on one side; this call is not the cause
                continue
            h = b.get(path) or a.get(path)
            yield path, self._judge(a.get(path), b.get(path), max(noise, bound(_lower(h, r), depth, terms)), floor)

    def _first_forward(self):
        for i, r in enumerate(self.rows):
            if r.outputs.bad:
                return self._forward_finding(i, r)
        return None

    def _forward_finding(self, i, r):
        around = self._by_begun.get(r.call.parent)
        weights = [n for n in r.own if self.initial[n].bad]
        size = _size(r.outputs)
        other = f"{r.type}, in {self.who[1]} {r.a.type}" if r.a.type != r.type else r.type
        if r.inputs.bad:
            at = r  # the outermost enclosing call whose inputs differ already
            while around is not None and around.inputs.bad:
                at, around = around, self._by_begun.get(around.call.parent)
            before = [x for x in self.rows[:i] if x.call.parent == at.call.parent and x.call.sampled]
            after = f"after {before[-1].title}, before {at.title}" if before else f"before {at.title}"
            inside = f"in the forward of {around.title} ({around.type})" if around else "before the model"
            text = (f"{r.title} ({other}) is the first layer whose output differs ({size}), but its inputs differ "
                    f"already ({_size(r.inputs)}): the cause lies {inside}, {after}")
        elif weights:
            text = (f"{r.title} ({other}) is the first layer whose output differs ({size}); its inputs agree, but its "
                    f"{', '.join(_below(n, r.name) for n in weights)} did not start with the same values")
        elif not r.call.leaf and r.kind == "module":
            text = (f"{r.title} ({r.type}) is the first module whose output differs ({size}); its inputs agree and so "
                    "do all modules inside it: the cause lies in its own forward, after the last of them")
        else:
            text = f"{r.title} ({other}) is the first layer whose output differs ({size}); its inputs agree"
        if not r.inputs.bad:
            around = r if not r.call.leaf and not weights else None
        call = around.b.begun if r.inputs.bad and around else r.b.begun
        return Finding(r.name, "forward", r.inputs.bad, text, r.outputs, around=around.name if around else None, call=call)

    # ------------------------------------------------------------------ gradients
    def _backward(self):
        ours, reference, level = self.ours, self.reference, 0.0
        rows = self.rows[::-1]
        self.tipped = 2 * any("Max" in r.type or "max" in r.type for r in rows) + sum(_tipped(r) for r in rows)
        self.far = 0.0  # relative norm that flipped kinks have added to the gradients so far
        for r in rows:
            depth = 2 * self.depth - r.depth
            forward = 0.0 if r.outputs.bad else r.outputs.relative
            r.back_noise = max(AMPLIFICATION * forward, r.amplified, level)
            r.grad_outputs = worst(self._gradients(r, "grad_outputs", depth, r.terms, r.back_noise))
            r.far = self.far
            # A ReLU's gradient is discontinuous at zero, so rounding upstream of it has a large
            # effect.
            r.grad_noise = 0.0 if r.grad_outputs.bad else AMPLIFICATION * min(r.grad_outputs.relative, MOST_CARRIED)
            level = self._carried(r, level, r.grad_outputs, depth)
        # the input gradient of a module may have the error of the modules inside it
        inner, fars = {}, {}
        for r in reversed(rows):
            noise, self.far = (max(x, y.get(r.b.begun, 0.0)) for x, y in
                               ((max(r.back_noise, r.grad_noise), inner), (r.far, fars)))
            self._sent(r, 2 * self.depth - r.depth, noise)
            inner[r.b.parent] = max(inner.get(r.b.parent, 0.0), noise)
            fars[r.b.parent] = max(fars.get(r.b.parent, 0.0), self.far)
        for p, h in reference["grads"].items():
            floor, tolerance, far = self._floors.get(p, (0.0, bound(reference["initial"][p].dtype, 2 * self.depth, 64), 0.0))
            self.param_verdicts[p] = _forgiven(self._judge(ours["grads"].get(p), h, tolerance, floor), ours["grads"].get(p), h, far)
        for r in self.rows:
            r.params = {p: self.param_verdicts[p] for p in r.own}
        noise = max([bound(min(map(_least, rows), key=_exactness, default="float32"), 2 * self.depth, 256),
                     *(r.grad_noise for r in rows)])
        self.input_verdicts = {n: _forgiven(self._judge(ours["input_grads"].get(n), h, noise), ours["input_grads"].get(n), h, self.far)
                               for n, h in reference["input_grads"].items()}

    def _sent(self, r, depth, noise):
        """Judges the gradients of a call's inputs, and sets the tolerance for the gradients of its
        parameters."""
        gout = max([rms(h.a) for h in r.b.grad_outputs.values()], default=0.0)
        x = max([rms(h.a) for h in r.b.inputs.values() if h.a.dtype.kind in "fc"], default=0.0)
        r.grad_inputs = worst(self._gradients(r, "grad_inputs", depth + 1, r.terms, noise, bound(_least(r)) / 2 * gout))
        for p in r.own:
            initial = self.reference["initial"][p]
            n = max([h.size for h in r.b.grad_outputs.values()], default=1) / max(1, (*initial.shape, 1)[0])
            tolerance = max(noise, bound(initial.dtype, depth, min(max(n, r.terms), MOST_TERMS)))
            # The uncertainty of the terms of the sum, which may cancel: a bias before a BatchNorm.
            f, t, far = self._floors.get(p, (0.0, 0.0, 0.0))
            self._floors[p] = f + tolerance * gout * (1 + x) * max(n, 1) ** 0.5, max(t, tolerance), max(far, self.far)

    def _gradients(self, r, field, depth, terms, noise, floor=0.0):
        for path, v in self._by_path(r, field, depth, terms, noise, floor):
            if v.bad and np.isfinite(v.relative):
                # Rounding may decide on which side of a kink (ReLU, max) a few elements fall. Those
                # of a ReLU are visible in the forward. A maximum taken from another index is not,
                # and changes the gradient of two elements.
                a, b = getattr(r.a, field)[path], getattr(r.b, field)[path]
                if v.beyond <= max(b.a.size * KINKED, min(self.tipped, b.a.size / 64)):
                    v.verdict, v.why = NOISE, v.why + ": rounding flips a ReLU or maximum"
                    self.far = max(self.far, min(_distance(a, b), MOST_TIPPED))
                elif b.of is not None and _functionals_only(a, b, v.tolerance):
                    v.verdict, v.why = NOISE, v.why + ": rounding flips a ReLU or maximum"
                elif _forgiven(v, a, b, self.far).verdict == NOISE:
                    self.far = max(self.far, min(_distance(a, b), MOST_TIPPED))
            yield v

    def _first_gradient(self):
        rows = self.rows
        guilty = [r for r in rows if not r.grad_outputs.bad
                  and (r.grad_inputs.bad or any(v.bad for v in r.params.values()))]
        children = {}
        for r in rows:
            children.setdefault(r.call.parent, []).append(r)
        for r in reversed(rows):
            if r not in guilty:
                continue
            below = children.get(r.call.begun, [])
            inner = [c for c in below if c in guilty or c.grad_outputs.bad]
            if any(c in guilty for c in _all_below(r, children)):
                continue  # an inner call locates the cause more precisely
            wrong = [n for n, v in r.params.items() if v.bad]
            if inner:
                c = inner[-1]
                return Finding(c.name, "gradient", False,
                               f"forward agrees, but the gradient that reaches the output of {c.title} ({c.type}) "
                               f"differs ({_size(c.grad_outputs)}): the cause lies in the forward of {r.title} "
                               f"({r.type}), after {c.title}", c.grad_outputs, around=r.name, call=r.b.begun)
            v = worst([r.params[n] for n in wrong] or [r.grad_inputs])
            what = f"the gradient of its {', '.join(_below(n, r.name) for n in wrong)}" if wrong else \
                "the gradient of its inputs"
            return Finding(r.name, "gradient", False,
                           f"forward agrees, but in the backward of {r.title} ({r.type}) {what} differs ({_size(v)}), "
                           "while the gradient of its output agrees", v, wrong[0] if wrong else "", call=r.b.begun)
        for r in reversed(rows):
            if r.grad_outputs.bad:
                around = self._by_begun.get(r.call.parent)
                inside = f"the forward of {around.title} ({around.type}), after {r.title}" if around else "the loss"
                return Finding(r.name, "gradient", False,
                               f"forward agrees, but the gradient that reaches the output of {r.title} ({r.type}) "
                               f"differs ({_size(r.grad_outputs)}): the cause lies in {inside}", r.grad_outputs,
                               around=around.name if around else None, call=around.b.begun if around else r.b.begun)
        for names in (self.param_verdicts, self.input_verdicts):
            for n, v in names.items():
                if v.bad:
                    layer = n.rpartition(".")[0] if names is self.param_verdicts else ""
                    return Finding(layer, "gradient", False, f"forward agrees, but the gradient of {n} differs "
                                   f"({_size(v)})", v, n)
        return None

    # ------------------------------------------------------------------ buffers, steps
    def _buffers(self, a, b, more, floor=0.0, extra=0.0):
        noise = {}
        for r in self.rows:
            if r.kind == "module":
                noise[r.name] = max(noise.get(r.name, 0.0), AMPLIFICATION * r.inputs.relative * (not r.inputs.bad))
        kinds = {n: min([h.dtype, *(_least(r) for r in self.rows if r.name == n.rpartition(".")[0])], key=_exactness)
                 for n, h in {**a, **b}.items()}
        return {n: self._judge(a.get(n), b.get(n), max(bound(kinds[n], self.depth * more, 256), noise.get(n.rpartition(".")[0], 0.0) * more) + extra, floor)
                for n in {**b, **a}}

    def _first_buffer(self):
        for n, v in self.buffers.items():
            if v.bad:
                return Finding(n.rpartition(".")[0], "buffer", False,
                               f"outputs and gradients agree, but the buffer {n} differs after the forward "
                               f"({_size(v)})", v, n)
        return None

    def _steps(self):
        ours, reference, out, drift, whole = self.ours, self.reference, [], 0.0, 0.0
        unsure = {}  # {parameter: elements whose gradient has been little more than rounding error}
        grown = {}  # relative differences of the gradients so far, which the optimizer receives
        self.numbers = [b.get("step", i) for i, b in enumerate(reference["steps"])]
        for i, a, b in zip(self.numbers, ours["steps"], reference["steps"]):
            still = {p for p, h in b["grads"].items()  # gradients that are only rounding error
                     if h is not None and h.a.size and np.abs(h.a).max() <= self._floors.get(p, (0.0, 0.0, 0.0))[0]}
            step = {"weights": {}, "state": {}, "grads": {}}
            apart = max(CHAOS, GROWTH * max([whole, *grown.values()]))
            if i and apart >= 1 and self.unjudged is None:
                self.unjudged = i
            for n, h in b["grads"].items():
                # Gradients of the first step are those of the backward, which has already been
                # judged.
                step["grads"][n] = _moved(a["grads"].get(n), h, None, None, n in still, apart, who=self.who) if i else self.param_verdicts[n]
                unsure[n] = unsure.get(n, False) | _little(a["grads"].get(n), h)
                if n not in still and not step["grads"][n].bad:
                    grown[n] = max(grown.get(n, 0.0), _distance(a["grads"].get(n), h))
            whole = max(whole, _distance_of_all(a["grads"], b["grads"]))
            step["buffers"] = self._buffers(a["buffers"], b["buffers"], 4 * (i + 1), drift,
                                            max(grown.values(), default=0.0))
            # Optimizers that divide by the size of gradients also make full steps for small
            # elements, in either direction.
            root = 2 * any(n.endswith(("sq", "square_avg", "sum", "inf")) for n in b["state"])
            for n, h in b["weights"].items():
                tolerance = UPDATE * (i + 1) + 4 * grown.get(n, 0.0) + root * grown.get(n, 0.0) ** 0.5
                step["weights"][n] = _moved(a["weights"].get(n), h, ours["initial"].get(n), reference["initial"][n],
                                            n in still, tolerance, unsure.get(n) if root else None, self.who)
            # Adam makes full-size steps for these, and a BatchNorm after such a bias adds them to
            # its running mean.
            drift = max([drift, *(step["weights"][n].max_abs for n in still)])
            for n in {**b["state"], **a["state"]}:
                step["state"][n] = _moved(a["state"].get(n), b["state"].get(n), None, None,
                                          n.rpartition(".")[0] in still,
                                          UPDATE * (i + 1) + 4 * grown.get(n.rpartition(".")[0], 0.0), who=self.who)
            if b["loss"] is not None:
                tolerance = UPDATE * (i + 1) + max(grown.values(), default=0.0) + bound(b["loss"].dtype, self.depth)
                step["loss"] = {"loss": self._judge(a["loss"], b["loss"], tolerance)}
            out.append(step)
        return out

    def _first_step(self):
        for i, step in zip(self.numbers, self.steps):
            for kind, text in (("loss", "the loss"), ("grads", "the gradient of"), ("state", "the optimizer's state"),
                               ("weights", "the weight"), ("buffers", "the buffer")):
                for n, v in step.get(kind, {}).items():
                    if v.bad:
                        layer = n.rpartition(".")[0]
                        if kind == "state":
                            layer = layer.rpartition(".")[0]
                        phase = {"state": "optimizer", "grads": "gradient", "buffers": "buffer"}.get(kind, kind)
                        return Finding(layer if kind != "loss" else "", phase, False,
                                       f"the first forward and backward agree; {text} {n} differs after optimizer "
                                       f"step {i} ({_size(v)})", v, n, i)
        return None


def _leveled(reference, ours):
    """If the two sides compute in different dtypes, judges all floating values by the coarser one.
    """
    dtypes = [side.get("dtype") for side in (reference, ours)]
    if dtypes[0] == dtypes[1]:
        return
    coarse = coarsest(*(d or "float32" for d in dtypes))

    def level(x):
        if isinstance(x, Held):
            if x.a.dtype.kind == "f" and x.dtype != coarse:
                x.dtype = coarsest(x.dtype, coarse)
        elif isinstance(x, dict):
            for v in x.values():
                level(v)
        elif isinstance(x, list):
            for v in x:
                level(v)
        elif hasattr(x, "grad_outputs"):
            for v in (x.inputs, x.outputs, x.grad_inputs, x.grad_outputs):
                level(v)
    level(list(reference.values()))
    level(list(ours.values()))


def _functionals_only(a, b, tolerance):
    """True if the elements of two sketches agree and their statistics nearly do: then only few
    other elements can have been flipped."""
    n = len(b.a) - FUNCTIONALS
    off, size = np.abs(a.a - b.a), rms(b.a[:n])
    nearly = off[n:] <= KINKED ** 0.5 * max(size, rms(b.a[n:]))
    return bool((off[:n] <= tolerance * (size + np.abs(b.a[:n]))).all() and nearly.all())


def _little(a, b):
    """Returns a mask of the gradient elements that are little more than rounding, estimated by the
    difference of the two sides."""
    if a is None or b is None or a.shape != b.shape:
        return False
    return np.abs(b.a) <= 32 * rms(a.a.astype(np.float64) - b.a)


def _moved(a, b, a0, b0, still, tolerance, unsure=None, who=WHO):
    """Compares the change since (a0, b0) by norms. `unsure` elements are left out, because they may
    move in either direction."""
    v = judge(a, b, bound(b.dtype if b is not None else "float32", 4, 16), who=who)
    if not v.bad or a is None or b is None or a.shape != b.shape or not np.isfinite(v.relative):
        return v
    if still:
        v.verdict, v.why = NOISE, "its gradient is only rounding error"
        return v
    x, y = a.a.astype(np.float64), b.a.astype(np.float64)
    moved = y - (b0.a if b0 is not None else 0)
    diff = (x - (a0.a if a0 is not None else 0)) - moved
    if unsure is not None:
        diff = np.where(unsure, 0, diff)
    if np.linalg.norm(diff) <= tolerance * np.linalg.norm(moved) + bound(b.dtype) * np.linalg.norm(y):
        v.verdict, v.tolerance = NOISE, tolerance
    return v


def _forgiven(v, a, b, far):
    """Compares gradients by norms after flipped kinks, when many elements differ slightly."""
    if far and v.bad and np.isfinite(v.relative) and a is not None and b is not None and (
            _distance(a, b) <= AMPLIFICATION * far):
        v.verdict, v.why = NOISE, "rounding has flipped a ReLU or maximum in a later layer"
    return v


def _tipped(row):
    """Returns the number of values that are zero on one side and rounding error on the other, as a
    ReLU produces at its kink."""
    if row.outputs.bad or row.inputs.bad:
        return 0
    pairs = [(x.a, y.a) for f in ("inputs", "outputs") for k, y in getattr(row.b, f).items()
             for x in [getattr(row.a, f).get(k)] if x is not None and x.a.shape == y.a.shape and y.a.dtype.kind == "f"]
    return max((int(np.count_nonzero((x == 0) != (y == 0))) for x, y in pairs), default=0)


def _below(name, layer):
    """Returns a parameter's name relative to its layer."""
    return name[len(layer) + 1:] if layer and name.startswith(layer + ".") else name


def _distance(a, b):
    if a is None or b is None or not b.a.size or a.shape != b.shape:
        return 0.0
    size = np.linalg.norm(b.a.astype(np.float64))
    return float(np.linalg.norm(a.a.astype(np.float64) - b.a) / size) if size else 0.0


def _distance_of_all(a, b):
    """Like `_distance`, for all gradients together: it is meaningful even where each single
    gradient is only rounding error."""
    pairs = [(a[n].a, h.a) for n, h in b.items() if h is not None and a.get(n) is not None and a[n].a.shape == h.a.shape]
    size = sum(float(np.sum(np.abs(y.astype(np.float64)) ** 2)) for _, y in pairs)
    far = sum(float(np.sum(np.abs(x.astype(np.float64) - y) ** 2)) for x, y in pairs)
    return (far / size) ** 0.5 if size and np.isfinite(far) else 0.0


def _exactness(dtype):
    return EXACT.index(dtype) if dtype in EXACT else len(EXACT)


def _least(row):
    """Returns the least precise of the floating dtypes of a call's outputs."""
    kinds = [_lower(h, row) for h in row.call.outputs.values() if h.a.dtype.kind in "fc"]
    return min(kinds, key=_exactness, default="float32")


def _lower(h, row):
    """Returns the dtype that limits precision: the least precise one among a value and the call's
    inputs."""
    kinds = [x.dtype for x in row.call.inputs.values()] + [h.dtype]
    for low in ("bfloat16", "float16"):
        if low in kinds:
            return low
    return h.dtype


def _all_below(r, children):
    for c in children.get(r.call.begun, ()):
        yield c
        yield from _all_below(c, children)


def _size(v):
    if v.why and not np.isfinite(v.max_abs):
        return v.why
    text = f"max abs {v.max_abs:.3g}, relative {v.relative:.3g}"
    return text + (f", {v.why}" if v.why and v.tolerance == 0 else "")
