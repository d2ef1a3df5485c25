"""Reverse-mode autograd: nodes, saved tensors, the engine, and `primitive`, which makes a differentiable kernel.

Why not MindSpore's own tape (`run_backward`)?  On CPU it costs 20-60 us an op, has wrong or missing gradients for many
kernels, cannot follow writes through views, and takes 55 us for every kernel that is not its own.  This one costs about
1 us an op, and its rules are torch's: hooks, versions, views, retain_grad, double backward.
"""
import heapq
import itertools
import re
import threading

import numpy as np

from mindtorch.backend.host import quiet
from mindtorch.backend.half import narrow, widen
from mindtorch.backend.private import from_array, from_contiguous, native_recording
from mindtorch.core import grad_mode
from mindtorch.core import tensor as _tensor
from mindtorch.core.dtypes import LOW, of_np
from mindtorch.core.grad_mode import mode
from mindtorch.core.sparse import SparseTensor, SparseUse, dispatch
from mindtorch.core.tensor import Const, Tensor, Version, check_fragile, register_view, wrap

sequence = itertools.count()
_F32 = np.dtype(np.float32)


# ------------------------------------------------------------------ saved tensors
class _Out:
    """The node's own result, saved without a reference cycle: its memory, not the Tensor."""

    __slots__ = ("a", "idx", "ver", "at")

    def __init__(self, t, idx):
        self.a, self.idx = t._a, idx
        ver = t._ver
        if ver is None:
            ver = t._ver = Version()
        self.ver, self.at = ver, ver.v


class _Packed:
    """What torch.autograd.graph.saved_tensors_hooks made of a saved tensor."""

    __slots__ = ("value", "unpack")

    def __init__(self, value, unpack):
        self.value, self.unpack = value, unpack


saved_hooks = []        # stack of (pack, unpack)
saved_hooks_disabled = []
anomaly = None          # set by torch.autograd.anomaly_mode


class Node:
    """One recorded operation (grad_fn).  `edges[i]` leads to input i: (node, output index), a leaf tensor, or None."""

    __slots__ = ("prim", "edges", "vals", "kw", "meta", "seq", "hooks", "retain", "pre", "post", "freed", "metadata_",
                 "__weakref__")

    def __getattr__(self, name):
        # Rules read what the forward saved as attributes: c.a, c.out, c.dim, c.shapes, ...
        vals = Node.vals.__get__(self)
        if vals is not None and name in vals:
            s = vals[name]
            if s.__class__ is tuple:
                x, ver, at = s
                if ver.v == at:
                    return x
            return _unpack(self, s, name)
        kw = Node.kw.__get__(self)
        if kw is not None and name in kw:
            return kw[name]
        if name[:7] == "_saved_":
            return getattr(self, name[7:])
        if Node.freed.__get__(self) and not name.startswith("__"):
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
                "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or if "
                "you need to access saved tensors after calling backward.")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    # ---- what users of grad_fn call
    def name(self):
        return type(self).__name__

    @property
    def metadata(self):
        if self.metadata_ is None:
            self.metadata_ = {}
        return self.metadata_

    @property
    def next_functions(self):
        out = []
        for e in self.edges:
            if e is None:
                out.append((None, 0))
            elif e.__class__ is tuple:
                out.append(e)
            else:
                out.append((AccumulateGrad.of(e), 0))
        return tuple(out)

    def register_hook(self, fn):
        """fn(grad_inputs, grad_outputs) after this node ran; may return new grad_inputs."""
        return _add_hook(self, "post", fn)

    def register_prehook(self, fn):
        """fn(grad_outputs) before this node runs; may return new grad_outputs."""
        return _add_hook(self, "pre", fn)

    def _sequence_nr(self):
        return self.seq

    def _apply(self, gs):
        return self.prim.backward(self, gs)


def new_node(cls):
    n = object.__new__(cls)
    n.hooks = n.retain = n.pre = n.post = n.vals = n.kw = n.metadata_ = None
    n.freed = False
    n.seq = next(sequence)
    return n


class _Outside(Node):
    """Stands for what a MindSpore op computed while MindSpore recorded: on this tape gradients end here."""

    __slots__ = ()

    def _apply(self, gs):
        return ()


_Outside.__name__ = "MindSporeBackward"


def _outside():
    n = new_node(_Outside)
    n.prim, n.edges, n.meta = None, [], (None,)
    return n


_tensor._outside = _outside

_hook_ids = itertools.count()


class RemovableHandle:
    """Handle of a registered hook; `remove()` takes the hook away, also at the end of a `with` block."""

    def __init__(self, hooks, extra=()):
        self.hooks, self.id, self.extra = hooks, next(_hook_ids), extra

    def remove(self):
        self.hooks.pop(self.id, None)
        for d in self.extra:
            d.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()


def _add_hook(obj, attr, fn):
    d = getattr(obj, attr)
    if d is None:
        d = {}
        setattr(obj, attr, d)
    h = RemovableHandle(d)
    d[h.id] = fn
    return h


class AccumulateGrad:
    """The end of the graph at a leaf: adds the incoming gradient to `variable.grad`."""

    __slots__ = ("variable",)

    def __init__(self, variable):
        self.variable = variable

    @classmethod
    def of(cls, leaf):
        return cls(leaf)

    def name(self):
        return "torch::autograd::AccumulateGrad"

    next_functions = ()

    def __eq__(self, other):
        return isinstance(other, AccumulateGrad) and other.variable is self.variable

    def __hash__(self):
        return id(self.variable)

    def register_hook(self, fn):
        """fn(grad_inputs, grad_outputs) after the gradient was accumulated."""
        return _add_hook(self.variable, "_acchooks", lambda leaf: fn((), (leaf._g,)))

    def register_prehook(self, fn):
        def hook(g):
            r = fn((g,))
            return g if r is None else (r[0] if isinstance(r, tuple) else r)
        return _add_hook(self.variable, "_thooks", hook)


def _save(name, x, kept):
    if saved_hooks and x.__class__ is not Const:
        pack, unpack = saved_hooks[-1]
        with grad_mode.no_grad():
            kept[name] = _Packed(pack(x), unpack)
        return
    if x.__class__ is Const:
        kept[name] = x
        return
    ver = x._ver
    if ver is None:
        ver = x._ver = Version()
    kept[name] = (x, ver, ver.v)


def _unpack(node, s, name):
    c = s.__class__
    if c is tuple:
        x, ver, at = s
        if ver.v != at:
            raise _stale(x, node, ver.v, at)
        return x
    if c is _Out:
        if s.ver.v != s.at:
            raise _stale(s, node, s.ver.v, s.at)
        t = wrap(s.a)
        t._ver = s.ver
        if node.meta[s.idx] is not None:        # indices and the like have no history
            t._gnode, t._oi, t._rg = node, s.idx, True
        return t
    if c is _Packed:
        return s.unpack(s.value)
    return s


def _stale(x, node, now, then):
    a = x.a if x.__class__ is _Out else x._a
    kind = {"float32": "FloatTensor", "float64": "DoubleTensor", "float16": "HalfTensor", "int64": "LongTensor",
            "complex64": "ComplexFloatTensor"}.get(a.dtype.name, "Tensor")
    origin = ""
    if x.__class__ is _Out:
        origin = f", which is output {x.idx} of {node.name()},"
    elif x._gnode is not None:
        origin = f", which is output {x._oi} of {x._gnode.name()},"
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[torch.{kind} {list(a.shape)}]{origin or ','} is at version {now}; expected version {then} instead. Hint: enable "
        "anomaly detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True).")


# ------------------------------------------------------------------ primitives
PRIMITIVES = []         # every function that `primitive` made


class Primitive:
    """A differentiable kernel: `fwd` over arrays, one gradient rule for each tensor input."""

    def __init__(self, name, fwd, grads, inputs, statics, node_name, view, raw, nondiff, saves):
        self.name, self.fwd, self.grads, self.inputs, self.statics = name, fwd, grads, inputs, statics
        self.view, self.raw, self.nondiff, self.multi_view = view, raw, nondiff, False
        camel = "".join(p[:1].upper() + p[1:] for p in re.split(r"[_.]", name))
        self.node_class = type((node_name or camel) + ("" if "Backward" in (node_name or "") else "Backward0"),
                               (Node,), {"__slots__": (), "__module__": "torch.autograd.functions"})
        self.joint = len(grads) == 1 and len(inputs) > 1 and grads[0] is not None
        self._masks = {}
        self._explicit = saves

    def needed(self, mask):
        """Names that the rules of the inputs in `mask` read, so that nothing else is kept alive."""
        names = set()
        for i, rule in enumerate(self.grads):
            if rule is not None and (self.joint or mask >> i & 1):
                names.update(_names_read(rule.__code__))
        if self._explicit:
            names.update(self._explicit)
        ins = [(n, i) for i, n in enumerate(self.inputs) if n in names]
        outs = [(n, 0 if n == "out" else int(n[3:])) for n in names if re.fullmatch(r"out\d*", n)]
        r = self._masks[mask] = (ins, outs, "shapes" in names, "dtypes" in names, "needs" in names)
        return r

    def backward(self, node, gs):
        """Gradients of the inputs; `gs` holds one gradient (or None) per output."""
        if len(node.meta) == 1:
            g = gs[0]
        else:
            g = [_zeros(m) if x is None and m is not None else x for x, m in zip(gs, node.meta)]
        if self.joint:
            return self.grads[0](node, g)
        return [None if e is None or rule is None else rule(node, g) for e, rule in zip(node.edges, self.grads)]


def _names_read(code):
    names = set(code.co_names)
    for c in code.co_consts:
        if hasattr(c, "co_names"):
            names |= _names_read(c)
    return names


def _zeros(meta):
    return wrap(np.zeros(meta[0], meta[1]))


def record(prim, outs, ins, kw):
    """Links the results to a new node.  `outs` is a Tensor or a tuple of them."""
    node = new_node(prim.node_class)
    node.prim = prim
    mask, edges, i = 0, [], 0
    for x in ins:
        if x is not None and x._rg:
            mask |= 1 << i
            gn = x._gnode
            if x._fragile is not None:
                check_fragile(x)
            edges.append((gn, x._oi) if gn is not None else None if x._orphan else x)
        else:
            edges.append(None)
        i += 1
    node.edges = edges
    single = outs.__class__ is not tuple
    if single:
        a = outs._a
        if a.dtype.kind not in "fcV":
            return outs
        node.meta = ((a.shape, a.dtype),)
        outs._gnode, outs._rg = node, True
    else:
        meta = []
        for i, t in enumerate(outs):
            if t is None or t._a.dtype.kind not in "fcV" or i in prim.nondiff:
                meta.append(None)
                continue
            meta.append((t._a.shape, t._a.dtype))
            t._gnode, t._rg, t._oi = node, True, i
        node.meta = tuple(meta)
    saved_ins, saved_outs, shapes, dtypes, needs = prim._masks.get(mask) or prim.needed(mask)
    if shapes:
        kw["shapes"] = [None if x is None else x._a.shape for x in ins]
    if dtypes:
        kw["dtypes"] = [None if x is None else x._a.dtype for x in ins]
    if needs:
        kw["needs"] = [e is not None for e in edges]
    node.kw = kw
    if saved_ins or saved_outs:
        kept = {}
        for n, i in saved_ins:
            x = ins[i]
            if x is None:
                kept[n] = None
            else:
                _save(n, x, kept)
        for n, i in saved_outs:
            t = outs if single else outs[i]
            if saved_hooks:
                d = wrap(t._a)
                d._gnode, d._oi, d._rg = node, i, True
                _save(n, d, kept)
            else:
                kept[n] = _Out(t, i)
        node.vals = kept
    if native_recording():
        _link(node, outs, ins)
    return outs


def _link(node, outs, ins):
    from mindtorch.core.native import link
    link(node, outs, ins)


@quiet
def _low(fwd, arrays, kw):
    """float16 and bfloat16: compute in float32, round the result (what torch's CPU kernels do as well)."""
    to = None
    for x in arrays:
        if x is not None and x.dtype in LOW:
            to = x.dtype
    if to is None:
        return fwd(*arrays, **kw)
    arrays = [widen(x) if x is not None and x.dtype in LOW else x for x in arrays]
    r = fwd(*arrays, **kw)
    if r.__class__ is tuple:
        return tuple(narrow(x, to) if x is not None and x.dtype == _F32 else x for x in r)
    return narrow(r, to) if r.dtype == _F32 else r


def _bad(name, inputs, values):
    for i, (n, v) in enumerate(zip(inputs, values)):
        if v is not None and not hasattr(v, "_a"):
            return TypeError(f"{name}(): argument '{n}' (position {i + 1}) must be Tensor, not {type(v).__name__}")
    return AttributeError(f"{name}(): an argument lost its memory")


_TEMPLATE = """
def {name}({sig}):
    try:
        {arrays}
    except AttributeError:
        raise _bad({name!r}, {inputs!r}, ({args},)) from None
    {compute}
    if r_.__class__ is not ndarray:
        if r_.__class__ is tuple:
            return _many(PRIM, r_, ({args},), {kw})
        r_ = asarray(r_)
    t_ = from_contiguous(r_) if r_.flags.c_contiguous else from_array(r_)
    t_.__class__ = Tensor
    t_._a = r_
{view}
{tail}
    return t_
"""


def _many(prim, arrays, ins, kw):
    outs = tuple(None if a is None else wrap(a if a.__class__ is np.ndarray else np.asarray(a)) for a in arrays)
    if prim.view:
        x = ins[0]
        for t in outs:
            if t is not None:
                register_view(t, x, multi=True)
    if mode.on and prim.grads and any(x is not None and x._rg for x in ins):
        return record(prim, outs, ins, kw)
    return outs


PRIMITIVES = []      # all functions that `primitive` made


def primitive(name, fwd, *grads, inputs=None, node=None, view=False, raw=False, nondiff=(), saves=(), native=None):
    """Makes a differentiable function over Tensors out of a kernel over arrays.

    fwd      positional parameters are arrays (None passes through, default None makes one optional), keyword-only
             parameters are constants.  Returns an array or a tuple of arrays.
    grads    one rule `lambda c, g: ...` per array parameter (None: not differentiable), or one rule for all of them
             (returning a tuple).  A rule reads what the forward had as c.<parameter>, c.out (c.out0, ...), c.<constant>,
             c.shapes, c.dtypes, c.needs; only what it reads is saved.  Gradients are reduced to the input's shape and
             dtype by the engine, so rules of broadcasting kernels need not care.  Rules are written with Tensor ops, so
             they can be differentiated again.
    view     the result shares the first input's memory.
    raw      the kernel moves bits and takes float16/bfloat16 as they are; otherwise those are computed in float32.
    nondiff  indices of outputs that have no gradient.
    native   (least number of elements, MindSpore kernel over the tensors themselves) used from that size on.
    """
    if inputs is None:
        import inspect
        ps = list(inspect.signature(fwd).parameters.values())
        inputs = [p.name for p in ps if p.kind == p.POSITIONAL_OR_KEYWORD]
        optional = {p.name for p in ps if p.default is None and p.kind == p.POSITIONAL_OR_KEYWORD}
        statics = [p.name for p in ps if p.kind == p.KEYWORD_ONLY]
    else:
        inputs, statics, optional = inputs.split(), [], set()
    prim = Primitive(name, fwd, grads, inputs, statics, node, view, raw, nondiff, saves)
    args = ", ".join(inputs)
    sig = ", ".join(n + "=None" if n in optional else n for n in inputs)
    if statics:
        sig += ", *, " + ", ".join(statics)
    arrays = "; ".join(f"x_{n} = None if {n} is None else {n}._a" if n in optional else f"x_{n} = {n}._a" for n in inputs)
    xs = ", ".join("x_" + n for n in inputs)
    kws = "".join(f", {s}={s}" for s in statics)
    kw = "{" + ", ".join(f"{s!r}: {s}" for s in statics) + "}"
    call = f"r_ = fwd({xs}{kws})"
    if raw or view:
        compute = call
    else:
        half = " or ".join(f"x_{n}.itemsize == 2" if n not in optional else f"(x_{n} is not None and x_{n}.itemsize == 2)"
                           for n in inputs)
        compute = f"if {half}:\n        r_ = _low(fwd, ({xs},), {kw})\n    else:\n        {call}"
    if native is not None:
        least, kernel = native
        first = inputs[0]
        tail_native = f"""
    if x_{first}.size >= {least} and x_{first}.dtype is F32:
        t_ = kernel({args}{kws})
        t_.__class__ = Tensor
        {{tail}}
        return t_
"""
    viewlines = f"    register_view(t_, {inputs[0]})" if view else ""
    tail = ""
    if grads:
        anyrg = " or ".join(f"({n} is not None and {n}._rg)" if n in optional else f"{n}._rg" for n in inputs)
        tail = f"    if MODE.on and ({anyrg}):\n        return record(PRIM, t_, ({args},), {kw})"
    src = _TEMPLATE.format(name=re.sub(r"\W", "_", name), sig=sig, arrays=arrays, inputs=tuple(inputs), args=args, kw=kw,
                           compute=compute, view=viewlines, tail=tail)
    if native is not None:
        inner = f"if MODE.on and ({anyrg}):\n            return record(PRIM, t_, ({args},), {kw})" if grads else ""
        src = src.replace("\n    " + compute.split("\n")[0], tail_native.format(tail=inner) + "    " + compute.split("\n")[0], 1)
    scope = {"fwd": fwd, "PRIM": prim, "ndarray": np.ndarray, "asarray": np.asarray, "from_contiguous": from_contiguous,
             "from_array": from_array, "Tensor": Tensor, "MODE": mode, "record": record, "_low": _low, "_many": _many,
             "_bad": _bad, "register_view": register_view, "F32": _F32, "kernel": native and native[1]}
    exec(compile(src, f"<primitive {name}>", "exec"), scope)
    f = scope[re.sub(r"\W", "_", name)]
    f.prim = prim
    PRIMITIVES.append(f)
    f.__module__ = "mindtorch.core.tape"
    PRIMITIVES.append(f)
    return f


# ------------------------------------------------------------------ engine
def _fit(g, meta, name):
    """A gradient made to have the shape and dtype of what it is the gradient of."""
    shape, dtype = meta
    try:
        a = g._a
    except SparseUse:
        return _fit_sparse(g, shape, dtype, name)
    if a.shape != shape:
        if not _expandable(shape, a.shape):
            raise RuntimeError(f"Function {name} returned an invalid gradient at index 0 - got {list(a.shape)} but expected "
                               f"shape compatible with {list(shape)}")
        g = _ops["sum_to"](g, size=shape)
        a = g._a
    if a.dtype != dtype:
        g = _ops["cast_grad"](g, dtype)
    return g


def _fit_sparse(g, shape, dtype, name):
    if tuple(g.shape) != shape:
        raise RuntimeError(f"Function {name} returned an invalid gradient at index 0 - got {list(g.shape)} but expected shape compatible "
                           f"with {list(shape)}")
    return g if g._coo_values._a.dtype == dtype else dispatch["to"](g, of_np(dtype))


def _sum_with_sparse(g, h):
    """Sum of two gradients of which one or both are sparse; dense if one of them is."""
    return dispatch["add"](h, g) if isinstance(g, SparseTensor) else dispatch["add"](g, h)


def _expandable(shape, to):
    if len(shape) > len(to):
        return False
    for s, t in zip(reversed(shape), reversed(to)):
        if s != t and s != 1:
            return False
    return True


_ops = {}        # sum_to, cast_grad, add: differentiable helpers set by the ops floor


class _Buffer:
    """Sum of the gradients that arrive at one place."""

    __slots__ = ("g", "own")

    def __init__(self):
        self.g, self.own = None, False

    def add(self, g, create_graph):
        if self.g is None:
            self.g = g
            return
        try:
            if create_graph:
                self.g = _ops["add"](self.g, g)
            elif self.own:
                np.add(self.g._a, g._a, out=self.g._a) if self.g._a.dtype.kind != "V" else self._low_add(g)
            else:
                self._low_add(g)
                self.own = True
        except SparseUse:
            self.g = _sum_with_sparse(self.g, g)

    def _low_add(self, g):
        a, b = self.g._a, g._a
        self.g = wrap(np.asarray(a + b) if a.dtype.kind != "V" else
                      (a.astype(_F32) + b.astype(_F32)).astype(a.dtype))


class _Under(threading.local):
    """How many backwards of this thread are under way, and what is to be called when the outermost has ended."""

    depth = 0
    callbacks = ()


_under = _Under()


def queue_callback(fn):
    """fn() when the outermost backward of this thread has ended well; RuntimeError outside of one."""
    if not _under.depth:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    _under.callbacks += (fn,)


def run_backward(roots, grads, keep_graph, create_graph, inputs=None, allow_unused=False, accumulate=False):
    """Propagates `grads` from `roots`.

    Without `inputs` every leaf reached accumulates into .grad; with `inputs` either only those do (`accumulate`) or their
    gradients are returned (None where unreached).
    """
    targets = {}            # key -> position(s) in the result
    found = [None] * len(inputs) if inputs is not None else None
    if inputs is not None:
        for i, t in enumerate(inputs):
            targets.setdefault((id(t._gnode), t._oi) if t._gnode is not None else id(t), []).append(i)
    start = []
    for t in roots:
        start.append(t if t._gnode is None else (t._gnode, t._oi))

    # How often each node will be reached, so that it runs once, when all gradients are in.
    waiting, leaves, order, stack = {}, {}, {}, []
    for e in start:
        if e.__class__ is tuple and e[0] not in order:
            order[e[0]] = None
            stack.append(e[0])
    while stack:
        n = stack.pop()
        for e in n.edges:
            if e is None:
                continue
            if e.__class__ is tuple:
                m = e[0]
                if m in waiting:
                    waiting[m] += 1
                else:
                    waiting[m] = 1
                    if m not in order:
                        order[m] = None
                        stack.append(m)
            else:
                k = id(e)
                leaves[k] = leaves.get(k, 0) + 1
    for e in start:
        if e.__class__ is tuple:
            waiting[e[0]] = waiting.get(e[0], 0) + 1
        else:
            leaves[id(e)] = leaves.get(id(e), 0) + 1
    useful = _useful(order, targets) if inputs is not None else None

    buffers, ready, leafbuf = {}, [], {}
    old_mode = mode.on
    mode.on = create_graph
    _under.depth += 1
    well = False

    def leaf_done(leaf, buf):
        g = buf.g
        if g is None:
            return
        if leaf._thooks:
            g._passed = True
            for fn in list(leaf._thooks.values()):
                r = fn(g)
                if r is not None:
                    g = r
                    g._passed = True
        if inputs is not None:
            where = targets.get(id(leaf))
            if where is None:
                return
            if not accumulate:
                for i in where:
                    found[i] = g
                return
        if not leaf._rg:
            return            # cut off since (detach_, requires_grad_(False)): nothing more is gathered, as in torch
        _accumulate(leaf, g, create_graph)
        if leaf._acchooks:
            for fn in list(leaf._acchooks.values()):
                fn(leaf)

    def arrive(e, g, name):
        if e.__class__ is tuple:
            n, i = e
            if g is not None and (useful is None or n in useful or (id(n), i) in targets):
                meta = n.meta[i]
                try:
                    a = g._a
                    if a.shape != meta[0] or a.dtype is not meta[1]:
                        g = _fit(g, meta, name)
                except SparseUse:
                    g = _fit(g, meta, name)
                slots = buffers.get(n)
                if slots is None:
                    buffers[n] = {i: g}
                else:
                    b = slots.get(i)
                    if b is None:           # most places get one gradient, and need no sum
                        slots[i] = g
                    elif b.__class__ is _Buffer:
                        b.add(g, create_graph)
                    else:
                        total = slots[i] = _Buffer()
                        total.g = b
                        total.add(g, create_graph)
            left = waiting[n] = waiting[n] - 1
            if not left:
                heapq.heappush(ready, (-n.seq, n))
            return
        k = id(e)
        if g is not None:
            b = leafbuf.get(k)
            if b is None:
                b = leafbuf[k] = _Buffer()
            b.add(_fit(g, (e._a.shape, e._a.dtype), name), create_graph)
        leaves[k] -= 1
        if not leaves[k]:
            b = leafbuf.pop(k, None)
            if b is not None:
                leaf_done(e, b)

    try:
        for e, g in zip(start, grads):
            g._passed = True
            arrive(e, g, "the root gradient")
        while ready:
            _, n = heapq.heappop(ready)
            slots = buffers.pop(n, None)
            if slots is None:
                for e in n.edges:          # nothing arrived: what lies below still has to be counted down
                    if e is not None:
                        arrive(e, None, "")
                continue
            gs = []
            for i in range(len(n.meta)):
                g = slots.get(i)
                gs.append(g.g if g.__class__ is _Buffer else g)
            if n.hooks or n.retain:
                gs = _tensor_hooks(n, gs)
            if targets:
                for i in range(len(gs)):
                    for j in targets.get((id(n), i), ()):
                        if accumulate and gs[i] is not None:
                            _accumulate(inputs[j], gs[i], create_graph)
                        found[j] = gs[i]
            if useful is not None and n not in useful:
                for e in n.edges:
                    if e is not None:
                        arrive(e, None, "")
                continue
            if n.pre:
                for fn in list(n.pre.values()):
                    r = fn(tuple(gs))
                    if r is not None:
                        gs = list(r) if isinstance(r, (tuple, list)) else [r]
            if anomaly is None:
                res = n._apply(gs)
            else:
                try:
                    res = n._apply(gs)
                except Exception as e:
                    anomaly(n, e, None)
                    raise
                anomaly(n, None, [r for r in res if isinstance(r, Tensor)])
            if res.__class__ is Tensor or res is None:
                res = (res,)
            if n.post:
                for fn in list(n.post.values()):
                    r = fn(tuple(res), tuple(gs))
                    if r is not None:
                        res = r if isinstance(r, (tuple, list)) else (r,)
            if not keep_graph and n.vals is not None:
                n.vals = None
                n.freed = True
            name = n.__class__.__name__
            passes = n.prim is None or len(res) > 1
            for e, g in zip(n.edges, res):
                if e is not None:
                    if g is not None and (passes or g is gs[0]):
                        # Rules such as add's hand the same tensor on: a leaf that gets it must copy, not keep it.
                        if n.prim is None or _among(gs, g, 0) or _among(res, g, 1):
                            g._passed = True
                    arrive(e, g, name)
            del res, gs, slots
        well = True
    finally:
        mode.on = old_mode
        _under.depth -= 1
        if not _under.depth and _under.callbacks:
            callbacks, _under.callbacks = _under.callbacks, ()
            if well:
                for fn in callbacks:
                    fn()
    if inputs is None or accumulate:
        return None
    return found


def _among(items, x, more_than):
    n = 0
    for i in items:
        if i is x:
            n += 1
    return n > more_than


def _useful(order, targets):
    """Nodes from which some target can be reached; the others need not run."""
    below = {}
    for n in sorted(order, key=lambda n: n.seq):
        ok = False
        for e in n.edges:
            if e is None:
                continue
            if e.__class__ is tuple:
                ok = ok or below.get(e[0], False) or (id(e[0]), e[1]) in targets
            else:
                ok = ok or id(e) in targets
        below[n] = ok
    return {n for n, ok in below.items() if ok}


def _tensor_hooks(n, gs):
    for i in range(len(gs)):
        g = gs[i]
        if g is None:
            continue
        if n.hooks and i in n.hooks:
            for fn in list(n.hooks[i].values()):
                r = fn(g)
                if r is not None:
                    if not isinstance(r, Tensor):
                        raise TypeError(f"hook '{getattr(fn, '__name__', fn)}' has changed the type of value (was "
                                        f"torch.Tensor got {type(r).__name__})")
                    g = _fit(r, n.meta[i], "a tensor hook")
            gs[i] = g
        if n.retain and i in n.retain:
            t = n.retain[i]()
            if t is not None:
                t._g = g if t._g is None else _ops["add"](t._g, g)
    return gs


def _accumulate(leaf, g, create_graph):
    try:
        _accumulate_dense(leaf, g, create_graph)
    except SparseUse:
        old = leaf._g
        if old is None:
            leaf._g = g if create_graph else dispatch["clone"](g.detach())
        else:
            leaf._g = _sum_with_sparse(old, g) if create_graph else _sum_with_sparse(old, g.detach())


def _accumulate_dense(leaf, g, create_graph):
    old = leaf._g
    if leaf._dev.type == "meta":
        leaf._g = _ops["meta"](g) if old is None else old
        return
    if old is None:
        if create_graph:
            leaf._g = _ops["clone"](g) if g._gnode is None or _shared(g) else g
        else:
            leaf._g = wrap(g._a.copy()) if _shared(g) or g._rg or not g._a.flags.c_contiguous else g
        if leaf._dev is not leaf._g._dev:
            leaf._g._dev = leaf._dev
    elif create_graph:
        leaf._g = _ops["add"](old, g)
    else:
        # As torch: the same .grad tensor is kept, so that references to it and views of it stay valid.
        a = old._a
        if a.dtype.kind == "V":
            a[...] = (a.astype(_F32) + g._a.astype(_F32)).astype(a.dtype)
        else:
            np.add(a, g._a, out=a)
        if old._ver is None:
            old._ver = Version()
        old._ver.v += 1


def _shared(g):
    """True if somebody else may see this gradient's memory (it was passed through a node, or is a view)."""
    return g._passed or g._a.base is not None or g._base is not None
