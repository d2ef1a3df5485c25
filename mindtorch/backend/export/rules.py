"""Lowering of a traced `Graph` to a format with its own operations: ONNX (onnx.py). (MindIR is
written by the npu device's kernels: torch/_mindir.py.)

An op of the graph is expressed in about sixty kinds of simple operations (`Emitter.unary`,
`matmul`, `conv`, ...). Only this module has the rules for shapes and dtypes of results. The
lowerings are defined in ops.py and the modules next to it:
LOWERINGS["nn.functional.linear"](emitter, *arguments).
"""
import math

import numpy as np

from mindtorch.backend.errors import LoweringError
from mindtorch.backend.graph import Sym, Value, mapped, signature

class _Once(dict):
    """A dict whose entries can be set only once."""

    def __setitem__(self, name, fn):
        if name in self:
            raise ValueError(f"there is a lowering of {name!r} already")
        super().__setitem__(name, fn)


#: qualified name of an op, or "prim." and the name of a primitive -> function(emitter, *arguments
#: in the order of its signature), which returns an L or a list of them (`Op.lowering`,
#: `Primitive.lowering`). Writes and other steps that exist only in a trace are named by
#: core/compile/tracing.py (`STEPS`).
LOWERINGS = _Once()


def lowering(*names):
    """Decorator: registers the lowering of these ops."""
    def deco(fn):
        for n in names:
            LOWERINGS[n] = fn
        return fn
    return deco


def has_lowering(name):
    """True if a trace may record an op of this name as one node."""
    return name in LOWERINGS


class OnnxTensor:
    """A tensor of the target format: shape (ints and Syms), dtype, the target's reference, and its
    values if it is a constant."""

    __slots__ = ("shape", "dtype", "ref", "const")

    def __init__(self, shape, dtype, ref, const=None):
        self.shape, self.dtype, self.ref, self.const = tuple(shape), dtype, ref, const

    @property
    def ndim(self):
        return len(self.shape)


def size(n):
    """Returns a size as an int; LoweringError if it is dynamic."""
    if isinstance(n, Sym):
        raise LoweringError(f"the dynamic size {n!r} where a fixed size is needed")
    return n


def known(shape):
    return tuple(size(n) for n in shape)


def example(n):
    return n.example if isinstance(n, Sym) else n


def axis(dim, ndim):
    return dim + max(ndim, 1) if dim < 0 else dim


def broadcast(*shapes):
    out = []
    for sizes in zip(*([1] * (max(map(len, shapes)) - len(s)) + list(s) for s in shapes)):
        n = 1
        for m in sizes:
            if m != 1:
                if n != 1 and n != m:
                    raise LoweringError(f"broadcasting of sizes {n!r} and {m!r}")
                n = m
        out.append(n)
    return tuple(out)


_CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def kind_of(dtype):
    return "f" if dtype == "bfloat16" else np.dtype(dtype).kind


def number_of(x):
    """Returns a Python number from a Python number or the tracer's 0-dim constant; None for
    anything else."""
    if isinstance(x, (bool, int, float)):
        return x
    a = getattr(x, "_array", None)
    return a.item() if isinstance(a, np.ndarray) and not isinstance(x, OnnxTensor) else None


class Emitter:
    """The simple operations. A target implements `emit(kind, inputs, attributes, shape, dtype)`,
    `constant` and `parameter`."""

    target = ""

    def __init__(self):
        self.out = ()       # Values of the node being lowered

    # ---- what a target implements
    def emit(self, kind, inputs, attrs, shape, dtype):
        raise NotImplementedError

    def constant(self, array):
        raise NotImplementedError

    # ---- constants
    def const(self, value, dtype=None):
        """Returns a constant from an array or Python number."""
        if dtype == "bfloat16":
            raise LoweringError(f"constants of dtype bfloat16 in {self.target}")
        a = np.array(value, dtype)
        return self.constant(a)

    def tensor(self, x, dtype=None):
        """Returns x as an L, cast to `dtype`; Python numbers become constants."""
        n = number_of(x)
        if n is not None:
            if dtype is None:
                dtype = "bool" if isinstance(n, bool) else "int64" if isinstance(n, int) else "float32"
            return self.const(n, dtype)
        return x if dtype is None else self.cast(x, dtype)

    def together(self, *xs):
        """Returns the operands in their common dtype, by PyTorch's type promotion rules."""
        rank = {}
        for x in xs:
            n = number_of(x)
            if n is not None:
                c, level, d = (0 if isinstance(n, bool) else 1 if isinstance(n, int) else 2), 0, None
            else:
                c, level, d = _CATEGORY[kind_of(x.dtype)], 2 if x.ndim else 1, x.dtype
            rank.setdefault(level, []).append((c, d))
        best, dtype = -1, None
        for level in sorted(rank, reverse=True):
            top = max(c for c, _ in rank[level])
            if top > best:
                named = [d for c, d in rank[level] if c == top and d is not None]
                if not named:
                    dtype = {0: "bool", 1: "int64", 2: "float32"}[top]
                elif "bfloat16" in named:
                    dtype = "bfloat16" if all(d == "bfloat16" for d in named) else np.result_type(
                        "float32", *(d for d in named if d != "bfloat16")).name
                else:
                    dtype = np.result_type(*named).name
                best = top
        return [self.tensor(x, dtype) for x in xs]

    # ---- elementwise
    def unary(self, kind, x, dtype=None):
        return self.emit(kind, [x], {}, x.shape, dtype or x.dtype)

    def binary(self, kind, a, b, dtype=None):
        n, m = number_of(a), number_of(b)
        if n is not None:
            a = self.const(n, b.dtype)
        if m is not None:
            b = self.const(m, a.dtype)
        return self.emit(kind, [a, b], {}, broadcast(a.shape, b.shape), dtype or a.dtype)

    def add(self, a, b):
        return self.binary("add", a, b)

    def sub(self, a, b):
        return self.binary("sub", a, b)

    def mul(self, a, b):
        return self.binary("mul", a, b)

    def div(self, a, b):
        return self.binary("div", a, b)

    def compare(self, kind, a, b):
        return self.binary(kind, a, b, "bool")

    def where(self, c, a, b):
        return self.emit("where", [c, a, b], {}, broadcast(c.shape, a.shape, b.shape), a.dtype)

    def cast(self, x, dtype):
        if x.dtype == dtype:
            return x
        if x.const is not None and "bfloat16" not in (dtype, x.dtype):
            return self.const(x.const.astype(dtype))
        return self.emit("cast", [x], {"dtype": dtype}, x.shape, dtype)

    # ---- shapes
    def reshape(self, x, shape):
        shape = tuple(shape)
        if shape == x.shape:
            return x
        return self.emit("reshape", [x], {"shape": shape}, shape, x.dtype)

    def transpose(self, x, perm):
        perm = tuple(perm)
        if perm == tuple(range(x.ndim)):
            return x
        return self.emit("transpose", [x], {"perm": perm}, [x.shape[p] for p in perm], x.dtype)

    def swap(self, x, a, b):
        perm = list(range(x.ndim))
        a, b = axis(a, x.ndim), axis(b, x.ndim)
        perm[a], perm[b] = perm[b], perm[a]
        return self.transpose(x, perm)

    def expand(self, x, shape):
        shape = tuple(shape)
        if shape == x.shape:
            return x
        if len(shape) > x.ndim:
            x = self.reshape(x, (1,) * (len(shape) - x.ndim) + x.shape)
            if shape == x.shape:
                return x
        if x.dtype == "bool":
            return self.cast(self.expand(self.cast(x, "int32"), shape), "bool")
        return self.emit("expand", [x], {"shape": shape}, shape, x.dtype)

    def concat(self, xs, dim):
        if len(xs) == 1:
            return xs[0]
        dim = axis(dim, xs[0].ndim)
        total = sum(size(x.shape[dim]) for x in xs) if not any(isinstance(x.shape[dim], Sym) for x in xs) else _sum(
            [x.shape[dim] for x in xs])
        return self.emit("concat", list(xs), {"axis": dim}, (*xs[0].shape[:dim], total, *xs[0].shape[dim + 1:]), xs[0].dtype)

    def slice(self, x, dim, start, stop, step=1):
        """Returns x[start:stop:step] along `dim`; 0 <= start, stop <= size, step > 0."""
        dim = axis(dim, x.ndim)
        n = x.shape[dim]
        if start == 0 and stop == n and step == 1:
            return x
        start, stop, step = size(start), size(stop), size(step)
        if isinstance(n, Sym):
            raise LoweringError(f"a slice of an axis of dynamic size {n!r}")
        return self.emit("slice", [x], {"axis": dim, "start": start, "stop": stop, "step": step},
                         (*x.shape[:dim], max(0, -(-(stop - start) // step)), *x.shape[dim + 1:]), x.dtype)

    def gather(self, x, index, dim):
        """Gathers from x along `dim` at `index` (an L of integers >= 0)."""
        dim = axis(dim, x.ndim)
        return self.emit("gather", [x, index], {"axis": dim}, (*x.shape[:dim], *index.shape, *x.shape[dim + 1:]), x.dtype)

    def pad(self, x, pads, value=0.0):
        """Pads with a constant: pads is [(before, after)] per dimension, all non-negative."""
        pads = [(size(a), size(b)) for a, b in pads]
        if all(p == (0, 0) for p in pads):
            return x
        shape = [n if p == (0, 0) else size(n) + p[0] + p[1] for n, p in zip(x.shape, pads)]
        return self.emit("pad", [x], {"pads": pads, "value": value}, shape, x.dtype)

    # ---- matrix products and reductions
    def matmul(self, a, b):
        """Multiplies matrices in the last two dimensions; the others are broadcast."""
        shape = (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        return self.emit("matmul", [a, b], {}, shape, a.dtype)

    def reduce(self, kind, x, dims, keepdim=False):
        """Reduces `dims`; kind: sum mean max min prod."""
        dims = tuple(sorted({axis(d, x.ndim) for d in dims}))
        if not dims:
            return x
        shape = [1 if i in dims else n for i, n in enumerate(x.shape) if keepdim or i not in dims]
        return self.emit("reduce_" + kind, [x], {"axes": dims, "keepdim": bool(keepdim)}, shape, x.dtype)

    def arg(self, kind, x, dim, keepdim=False):
        """Returns indices along `dim`; kind: argmax argmin."""
        dim = axis(dim, x.ndim)
        shape = [1 if i == dim else n for i, n in enumerate(x.shape) if keepdim or i != dim]
        return self.emit(kind, [x], {"axis": dim, "keepdim": bool(keepdim)}, shape, "int64")

    def softmax(self, x, dim, log=False):
        return self.emit("log_softmax" if log else "softmax", [x], {"axis": axis(dim, x.ndim)}, x.shape, x.dtype)

    def cumsum(self, x, dim):
        return self.emit("cumsum", [x], {"axis": axis(dim, x.ndim)}, x.shape, x.dtype)

    # ---- windowed ops; x is (N, C, *sizes)
    def conv(self, x, w, b, stride, padding, dilation, groups):
        """Computes a convolution; padding is [(before, after)] per spatial dimension."""
        spatial = [_windows(n, k, s, p, d) for n, k, s, p, d in zip(x.shape[2:], w.shape[2:], stride, padding, dilation)]
        y = self.emit("conv", [x, w], {"stride": tuple(stride), "padding": list(padding), "dilation": tuple(dilation),
                                       "groups": groups}, (x.shape[0], w.shape[0], *spatial), x.dtype)
        return y if b is None else self.channels("add", y, b)

    def conv_transpose(self, x, w, b, stride, padding, output_padding, dilation, groups):
        spatial = [(size(n) - 1) * s - 2 * p + d * (k - 1) + o + 1 for n, k, s, p, o, d in
                   zip(x.shape[2:], w.shape[2:], stride, padding, output_padding, dilation)]
        y = self.emit("conv_transpose", [x, w], {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation),
                                                 "output_padding": tuple(output_padding), "groups": groups},
                      (x.shape[0], w.shape[1] * groups, *spatial), x.dtype)
        return y if b is None else self.channels("add", y, b)

    def channels(self, kind, x, v):
        """Applies the binary op `kind` to x (N, C, ...) and a vector (C,)."""
        return self.binary(kind, x, self.reshape(v, (1, v.shape[0]) + (1,) * (x.ndim - 2)))

    def max_pool(self, x, kernel, stride):
        """Computes max pooling; all windows must lie entirely inside x."""
        return self._pool("max_pool", x, kernel, stride)

    def avg_pool(self, x, kernel, stride):
        return self._pool("avg_pool", x, kernel, stride)

    def _pool(self, kind, x, kernel, stride):
        spatial = [_windows(n, k, s, (0, 0), 1) for n, k, s in zip(x.shape[2:], kernel, stride)]
        return self.emit(kind, [x], {"kernel": tuple(kernel), "stride": tuple(stride)}, (*x.shape[:2], *spatial), x.dtype)


def _windows(n, k, s, p, d):
    return (size(n) + p[0] + p[1] - d * (k - 1) - 1) // s + 1


def _sum(sizes):
    syms = [n for n in sizes if isinstance(n, Sym)]
    if len({(s.input, s.axis) for s in syms}) != 1:
        raise LoweringError("a sum of different dynamic sizes")
    s = syms[0]
    return Sym(s.input, s.axis, sum(x.scale for x in syms), sum(x.offset if isinstance(x, Sym) else x for x in sizes),
               sum(example(x) for x in sizes), s.name)


def product(shape):
    """Returns the number of elements; a Sym if one size is dynamic."""
    syms = [n for n in shape if isinstance(n, Sym)]
    fixed = math.prod(n for n in shape if not isinstance(n, Sym))
    if not syms:
        return fixed
    if len(syms) > 1:
        raise LoweringError("a product of dynamic sizes")
    s = syms[0]
    return Sym(s.input, s.axis, s.scale * fixed, s.offset * fixed, s.example * fixed, s.name)


def close(got, want, what):
    """Raises AssertionError if an array differs from the facade's result (beyond the tolerance of
    its dtype)."""
    if want.dtype.kind == "V":
        want, tol = want.astype(np.float32), 0.05
    else:
        tol = {"float16": 1e-2, "float64": 1e-6}.get(want.dtype.name, 2e-3)
    if want.dtype.kind not in "fc":
        ok = np.array_equal(got, want)
    else:
        scale = np.abs(want[np.isfinite(want)]).max(initial=0) if want.size else 0
        ok = np.allclose(got, want, tol, tol * max(scale, 1e-6) + 1e-30, equal_nan=True)
    if not ok:
        raise AssertionError(f"{what} differs from the facade's result (largest difference "
                             f"{np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64)).max():.3g})")


# ------------------------------------------------------------------ lowering a graph
def lower_graph(graph, emitter):
    """Emits every node of the graph; returns a function from a Value to its L.

    Raises NotImplementedError, naming the op, if an op has no lowering.
    """
    env = {}
    for i, v in enumerate(graph.inputs):
        env[v] = emitter.input(i, v)
    for v in graph.parameters:
        env[v] = emitter.parameter(v)

    def get(v):
        x = env.get(v)
        if x is None:
            if v.kind != "constant":
                raise AssertionError(f"{v!r} has not been computed")
            if v.dtype == "bfloat16":
                raise NotImplementedError(f"export to {emitter.target}: a constant of dtype bfloat16")
            x = env[v] = emitter.constant(np.asarray(v.array))
        return x
    for n in graph.nodes:
        if n.opaque or n.op not in LOWERINGS:
            raise NotImplementedError(f"export to {emitter.target}: the op {n.label} has no lowering (dtype "
                                      f"{n.outputs[0].dtype}, device cpu)")
        emitter.out = n.outputs
        given = n.arguments()
        args = [mapped(v, get) for v in given.values()]
        try:
            signature(LOWERINGS[n.op]).bind(emitter, *args)
        except TypeError:
            raise NotImplementedError(f"export to {emitter.target}: the op {n.label} with the arguments {', '.join(given)} is not "
                                      "supported") from None
        try:
            r = LOWERINGS[n.op](emitter, *args)
        except LoweringError as e:
            raise NotImplementedError(f"export to {emitter.target}: the op {n.label} (dtype {n.outputs[0].dtype}, device cpu) is not "
                                      f"supported with these arguments: {e}") from e
        r = r if isinstance(r, (list, tuple)) else [r]
        for v, x in zip(n.outputs, r, strict=True):
            if x is None:
                continue
            if tuple(map(example, x.shape)) != tuple(map(example, v.shape)) or x.dtype != v.dtype:
                raise AssertionError(f"lowering of {n.op} to {emitter.target} gives {x.dtype} {list(x.shape)}, not {v.dtype} {list(v.shape)}")
            env[v] = x
    return get


__all__ = ["OnnxTensor", "Emitter", "LOWERINGS", "close", "lowering", "lower_graph", "has_lowering", "Value"]
