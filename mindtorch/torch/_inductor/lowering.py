"""From the ops of a captured call to fewer and faster ones: the backend "inductor" of torch.compile.

An op gets a C kernel where _plans.py has one for its shapes, and batch norm takes in the addition and the relu that
follow it, max pooling the relu before it, where nobody else sees what lies between.
"""
import inspect

import numpy as np

from mindtorch.core.tensor import Tensor
from mindtorch.torch._dynamo._capture import Op, Ref, _refs
from mindtorch.torch._inductor import _plans as native

_sets = {}


def _functions():
    """Function objects by what they compute; an op's function and its method are different objects."""
    if not _sets:
        from mindtorch import torch
        F = torch.nn.functional

        def those(*names, spaces=(torch, F, Tensor)):
            return {f for s in spaces for n in names if (f := vars(s).get(n)) is not None}
        _sets.update(conv=those("conv2d"), transposed=those("conv_transpose2d"), norm={F.batch_norm}, pool=those("max_pool2d"),
                     lstm={torch.lstm}, linear={F.linear},
                     relu=those("relu"), relu_=those("relu_"), leaky=those("leaky_relu", spaces=(F,)), add=those("add", "__add__"),
                     add_=those("add_", "__iadd__"))
        _sets["pool"] &= {F.max_pool2d, torch.max_pool2d}
    return _sets


def _bound(op):
    """Arguments by name with defaults, or None if they do not fit the function's signature."""
    try:
        b = inspect.signature(op.func).bind(*op.args, **op.kwargs)
    except (TypeError, ValueError):
        return None
    b.apply_defaults()
    return b.arguments


class Lowering:
    """One pass over the recorded ops."""

    def __init__(self, ops, result, tensors):
        self.tensors, self.kinds = tensors, {}
        self.ops, self.sets = list(ops), _functions()
        self.fused = 0
        self.uses = {}
        for j, op in enumerate(self.ops):
            for r in _refs((op.args, op.kwargs)):
                self.uses.setdefault(r.name, []).append(j)
        self.results = {r.name for r in _refs([result])}
        self.drop = set()

    def run(self):
        """The new list of ops."""
        modes = self.ops[0].modes if self.ops else None
        for j, op in enumerate(self.ops):
            if j in self.drop or op.modes != modes or op.modes[2] is not None:
                continue
            for kind, handle in (("norm", self._norm), ("conv", self._conv), ("transposed", self._conv), ("pool", self._pool),
                                 ("lstm", self._lstm), ("linear", self._linear)):
                if op.func in self.sets[kind]:
                    handle(j, op, kind)
        return [op for j, op in enumerate(self.ops) if j not in self.drop]

    def _info(self, op, ref):
        return None if ref is None else op.info[ref.name]

    # -- one op
    def _conv(self, j, op, kind):
        a = _bound(op)
        if a is None or not all(isinstance(a[k], Ref) or k == "bias" and a[k] is None for k in ("input", "weight", "bias")):
            return
        infos = [self._info(op, a[k]) for k in ("input", "weight", "bias")]
        if kind == "conv":
            f = native.plan_conv(*infos, a["stride"], a["padding"], a["dilation"], a["groups"])
        else:
            f = native.plan_conv_transpose(*infos, a["stride"], a["padding"], a["output_padding"], a["groups"], a["dilation"])
        if f is not None:
            self.fused += 1
            self.ops[j] = Op(f, (a["input"], a["weight"], a["bias"]), {}, op.outs, op.modes, op.info)

    def _lstm(self, j, op, kind):
        if len(op.args) != 9 or op.kwargs or not isinstance(op.args[1], (tuple, list)) or len(op.args[1]) != 2:
            return
        tensors = [op.args[0], *op.args[1], *op.args[2]]
        if not all(isinstance(t, Ref) for t in tensors):
            return
        x, h, c, *weights = (op.info[t.name] for t in tensors)
        f = native.plan_lstm(x, h, c, weights)
        if f is not None:
            self.fused += 1
            self.ops[j] = Op(f, op.args, {}, op.outs, op.modes, op.info)

    # -- chains
    def _next(self, name, after):
        """Index of the next op that uses a value, or None."""
        return next((i for i in self.uses.get(name, ()) if i > after and i not in self.drop), None)

    def _only_use(self, name, at, after):
        """Whether nobody but op `at` uses the value that op `after` gave."""
        return name not in self.results and [i for i in self.uses.get(name, ()) if i > after] == [at]

    def _activation(self, name, at):
        """(1 relu or 2 leaky relu, slope, in place?) if op `at` is one of the value, else None."""
        op = self.ops[at]
        a = _bound(op)
        if a is None or not op.args or not isinstance(op.args[0], Ref) or op.args[0].name != name:
            return None
        if op.func in self.sets["relu"]:
            return 1, 0.0, bool(a.get("inplace", False))
        if op.func in self.sets["relu_"] and len(op.args) == 1:
            return 1, 0.0, True
        if op.func in self.sets["leaky"] and 0 < a["negative_slope"] < 1e6:
            return 2, float(a["negative_slope"]), bool(a["inplace"])
        return None

    def _quiet_between(self, first, last, names):
        """Whether no op between two writes to one of the values (or to a view of anything)."""
        for op in self.ops[first + 1:last]:
            if op in (self.ops[i] for i in self.drop):
                continue
            known = {r.name for r in _refs((op.args, op.kwargs))}
            written = {n for _, n in op.outs if n in known}
            if op.name.rstrip("_") == "setitem" or op.kwargs.get("out") is not None or not op.outs:
                return False
            if op.func in self.sets["norm"]:
                written |= {r.name for r in _refs((op.args[1:3], [op.kwargs.get(k) for k in ("running_mean", "running_var")]))}
            if any(self._alias(w, n) for w in written for n in names):
                return False
        return True

    def _alias(self, a, b):
        """Whether two values may lie in the same memory, here or in another call with arguments alike."""
        if a == b or np.may_share_memory(self.tensors[a]._a, self.tensors[b]._a):
            return True
        kinds = self._kind(a), self._kind(b)
        return "i" in kinds and "v" not in kinds       # (arguments may be views of each other, or of what the code reads, next time)

    def _aliases(self, name):
        """Other names of the same memory."""
        return {n for n, t in self.tensors.items() if n != name and np.may_share_memory(t._a, self.tensors[name]._a)}

    def _seen_later(self, name, after):
        """Whether the memory of a value is read, written or given out under another name after op `after`."""
        return any(n in self.results or any(i > after for i in self.uses.get(n, ())) for n in self._aliases(name))

    def _stays(self, name, at):
        """Whether nobody writes to the value of op `at`.  Kernels with a leaky relu need their own result in the backward pass, where
        eager code needs what went into it."""
        names = self._aliases(name) | {name}
        if names & self.results:
            return False
        for op in self.ops[at + 1:]:
            known = names & {r.name for r in _refs((op.args, op.kwargs))}
            if known and (not op.outs or isinstance(op.kwargs.get("out"), Ref) or known & {n for _, n in op.outs}):
                return False
        return True

    def _kind(self, name):
        """Whose memory a value lies in: an argument's ("i"), a parameter's, buffer's or the like ("k"), or new memory ("v")."""
        if name[0] == "v" and name not in self.kinds:
            x = self.tensors[name]._a
            over = {n[0] for n, t in self.tensors.items() if n[0] != "v" and np.may_share_memory(x, t._a)}
            self.kinds[name] = "i" if "i" in over else "k" if over else "v"
        return self.kinds.get(name, name[0])

    def _norm(self, j, op, kind):
        a = _bound(op)
        keys = ("input", "running_mean", "running_var", "weight", "bias")
        if a is None or not all(a[k] is None or isinstance(a[k], Ref) for k in keys) or a["input"] is None:
            return
        infos = [self._info(op, a[k]) for k in keys]
        values = [a[k] for k in keys]
        rest = (a["training"], a["momentum"], a["eps"])
        if a["momentum"] is None or native.plan_batch_norm(*infos, *rest) is None:
            return
        name, last, dropped, res, out = op.outs[0][1], j, [], None, op.outs
        reads = {v.name for v in values if v is not None}
        i = self._next(name, j)
        # ... + something
        if i is not None and self.ops[i].modes == op.modes:
            add = self.ops[i]
            inplace = add.func in self.sets["add_"]
            if (inplace or add.func in self.sets["add"]) and len(add.args) == 2 and not add.kwargs and all(
                    isinstance(x, Ref) for x in add.args):
                names = [x.name for x in add.args]
                other = add.args[1 - names.index(name)] if name in names and names[0] != names[1] else None
                if inplace and names[0] != name:
                    other = None
                if other is not None and (inplace or self._only_use(name, i, j)):
                    k = self._next(add.outs[0][1], i)
                    act = k is not None and self.ops[k].modes == op.modes and self._activation(add.outs[0][1], k)
                    ok = act and act[0] == 1 and (act[2] or self._only_use(add.outs[0][1], k, i))
                    if ok and self._quiet_between(j, i, reads | {other.name, name}) and self._quiet_between(
                            i, k, reads | {other.name, add.outs[0][1]}) and native.plan_batch_norm(
                            *infos, *rest, add.info[other.name], act[0], act[1]) is not None:
                        res, last, dropped, out = other, k, [j, i], self.ops[k].outs
                        f = native.plan_batch_norm(*infos, *rest, add.info[other.name], act[0], act[1])
        if res is None:
            act = i is not None and self.ops[i].modes == op.modes and self._activation(name, i)
            if act and act[0] == 2 and not act[2] and not self._stays(self.ops[i].outs[0][1], i):
                act = None
            if act and (act[2] or self._only_use(name, i, j)) and self._quiet_between(j, i, reads | {name}):
                f = native.plan_batch_norm(*infos, *rest, None, act[0], act[1])
                last, dropped, out = i, [j], self.ops[i].outs
            else:
                f = native.plan_batch_norm(*infos, *rest)
        args = tuple(values) + ((res,) if res is not None else ())
        info = {**op.info, **self.ops[last].info, **({res.name: self.ops[dropped[1]].info[res.name]} if res is not None else {})}
        self.fused += 1
        self.ops[last] = Op(f, args, {}, out, op.modes, info)
        self.drop.update(dropped)

    def _linear(self, j, op, kind):
        a = _bound(op)
        keys = ("input", "weight", "bias")
        if a is None or not all(isinstance(a[k], Ref) or k == "bias" and a[k] is None for k in keys):
            return
        infos = [self._info(op, a[k]) for k in keys]
        f, fused = native.plan_linear(*infos), native.plan_linear(*infos, True)
        if fused is None:
            return
        name = op.outs[0][1]
        i = self._next(name, j)
        act = i is not None and self.ops[i].modes == op.modes and self._activation(name, i)
        reads = {a[k].name for k in keys if a[k] is not None}
        args = tuple(a[k] for k in keys)
        if act and act[0] == 1 and (act[2] or self._only_use(name, i, j)) and self._quiet_between(j, i, reads | {name}):
            self.fused += 1
            self.ops[i] = Op(fused, args, {}, self.ops[i].outs, op.modes, {**op.info, **self.ops[i].info})
            self.drop.add(j)
        elif f is not None:
            self.fused += 1
            self.ops[j] = Op(f, args, {}, op.outs, op.modes, op.info)

    def _pool(self, j, op, kind):
        a = _bound(op)
        if a is None or not isinstance(a["input"], Ref):
            return
        x = a["input"]
        rest = [a[k] for k in ("kernel_size", "stride", "padding", "dilation", "ceil_mode")] + [bool(a.get("return_indices", False))]
        if any(True for _ in _refs(rest)):
            return
        # relu just before, seen by nobody else
        for i in range(j - 1, -1, -1):
            o = self.ops[i]
            if i not in self.drop and any(n == x.name for _, n in o.outs):
                break
        else:
            i = None
        source = x
        relu = False
        if i is not None and self.ops[i].modes == op.modes:
            o = self.ops[i]
            given = o.args[0] if o.args and isinstance(o.args[0], Ref) else None
            act = given is not None and self._activation(given.name, i)
            if act and act[0] == 1 and self._only_use(x.name, j, i) and self._quiet_between(i, j, {given.name}):
                if not act[2] or (given.name[0] == "v" and not o.info[given.name][4] and not self._seen_later(given.name, i)):
                    source, relu = given, True
        info = self.ops[i].info[source.name] if relu else op.info[source.name]
        f = native.plan_max_pool(info, relu, *rest)
        if f is None and relu:
            return
        if f is not None:
            if relu:
                self.drop.add(i)
            self.fused += 1
            self.ops[j] = Op(f, (source,), {}, op.outs, op.modes, {source.name: info})


def lower(ops, result, tensors):
    """(ops for the replay, how many of them are C kernels).  tensors: name -> tensor of the captured call."""
    if not native.available():
        return ops, 0
    low = Lowering(ops, result, tensors)
    return low.run(), low.fused


