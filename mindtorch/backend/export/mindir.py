"""A traced graph as a MindSpore Cell that MindSpore's compiler can read, and so as MINDIR.

Every simple operation becomes a line of a generated `construct`, whose primitives, constants and parameters are attributes of
the Cell.  Each is also run at once (eagerly) on the values of the trace, and every op's result is compared with what the
facade computed: a Cell that computes something else is never handed out.
"""
import functools
import math
import os
import shutil
import sys
import tempfile

import numpy as np

from mindtorch.backend.cpython import at_exit
from mindtorch.backend.graph import Sym
from mindtorch.backend.export.rules import Emitter, L, Unsupported, example, known, lower_graph, size
from mindtorch.backend.mindspore.private import MSParameter, MSTensor
from mindtorch.backend.mindspore.runtime import ms

P = ms.ops.operations
_DTYPES = {n: getattr(ms, n if n != "bool" else "bool_") for n in
           "float32 float64 float16 bfloat16 int64 int32 int16 int8 uint8 bool complex64 complex128".split()}

_UNARY = {"abs": P.Abs, "neg": P.Neg, "exp": P.Exp, "log": P.Log, "sqrt": P.Sqrt, "rsqrt": P.Rsqrt, "reciprocal": P.Reciprocal,
          "sin": P.Sin, "cos": P.Cos, "tan": P.Tan, "asin": P.Asin, "acos": P.ACos, "atan": P.Atan, "sinh": P.Sinh, "cosh": P.Cosh,
          "tanh": P.Tanh, "asinh": P.Asinh, "acosh": P.Acosh, "atanh": P.Atanh, "erf": P.Erf, "floor": P.Floor, "ceil": P.Ceil,
          "round": P.Round, "sign": P.Sign, "relu": P.ReLU, "sigmoid": P.Sigmoid, "not": P.LogicalNot, "isnan": P.IsNan}
_BINARY = {"add": P.Add, "sub": P.Sub, "mul": P.Mul, "div": P.RealDiv, "pow": P.Pow, "maximum": P.Maximum, "minimum": P.Minimum,
           "intdiv": P.FloorDiv, "eq": P.Equal, "ne": P.NotEqual, "lt": P.Less, "le": P.LessEqual, "gt": P.Greater,
           "ge": P.GreaterEqual, "and": P.LogicalAnd, "or": P.LogicalOr, "atan2": P.Atan2}
_REDUCE = {"reduce_sum": P.ReduceSum, "reduce_mean": P.ReduceMean, "reduce_max": P.ReduceMax, "reduce_min": P.ReduceMin,
           "reduce_prod": P.ReduceProd}


_PLAIN = {"rsqrt": lambda e, x: e.div(e.const(1, x.dtype), e.unary("sqrt", x)), "reciprocal": lambda e, x: e.div(e.const(1, x.dtype), x)}


class NativeEmitter(Emitter):
    """Collects the lines of `construct` and the attributes that it uses."""

    target = "MindIR"

    def __init__(self, plain=False):
        super().__init__()
        self.plain = plain      # only what MindSpore's ONNX writer knows, where there is a choice
        self.lines, self.attributes, self.params, self.inputs = [], {}, [], []
        self._constants, self._primitives, self._n = {}, {}, 0

    # ---- tensors
    def input(self, i, v):
        self.inputs.append(v)
        return L(v.shape, v.dtype, f"x{i}", now=_tensor(v.array))

    def parameter(self, v):
        p = MSParameter(_tensor(v.array), name=v.name, requires_grad=bool(getattr(v.tensor, "requires_grad", False)))
        self.params.append(p)
        name = f"p{len(self.params) - 1}"
        self.attributes[name] = p
        return L(v.shape, v.dtype, "self." + name, now=p)

    def constant(self, array):
        key = array.tobytes(), array.dtype.str, array.shape
        if key not in self._constants:
            name = f"c{len(self._constants)}"
            self.attributes[name] = t = _tensor(array)
            self._constants[key] = "self." + name, t
        ref, t = self._constants[key]
        return L(array.shape, array.dtype.name, ref, array, t)

    # ---- lines
    def primitive(self, prim, *key):
        """Name of the attribute that holds prim(*key); one for equal calls."""
        if (prim, key) not in self._primitives:
            name = f"op{len(self._primitives)}"
            self.attributes[name] = prim(*(dict(k) if isinstance(k, _Keywords) else k for k in key if not isinstance(k, _Keywords)),
                                         **{k: v for d in key if isinstance(d, _Keywords) for k, v in d})
            self._primitives[prim, key] = name
        return self._primitives[prim, key]

    def line(self, prim, key, args, shape, dtype, part=None):
        """One more line: the primitive prim(*key) of `args` (Ls and plain values)."""
        name = self.primitive(prim, *key)
        now = self.attributes[name](*(a.now if isinstance(a, L) else a for a in args))
        text = f"self.{name}({', '.join(a.ref if isinstance(a, L) else repr(a) for a in args)})"
        if part is not None:
            text, now = f"{text}[{part}]", now[part]
        ref = f"v{self._n}"
        self._n += 1
        self.lines.append(f"    {ref} = {text}")
        if now.shape != tuple(map(example, shape)):
            raise AssertionError(f"{prim.__name__}{key} gives {now.shape}, not {shape}")
        return L(shape, dtype, ref, now=now)

    def emit(self, kind, inputs, attrs, shape, dtype):
        x = inputs[0]
        if self.plain and kind in _PLAIN:
            return _PLAIN[kind](self, *inputs)
        if kind in _UNARY:
            return self.line(_UNARY[kind], (), inputs, shape, dtype)
        if kind in _BINARY:
            return self.line(_BINARY[kind], (), inputs, shape, dtype)
        if kind in _REDUCE:
            return self.line(_REDUCE[kind], (attrs["keepdim"],), [x, attrs["axes"]], shape, dtype)
        return getattr(self, "_" + kind)(*inputs, **attrs, result=tuple(shape), to=dtype)

    def _where(self, c, a, b, result, to):
        c, a, b = (self.expand(t, result) for t in (c, a, b))
        return self.line(P.Select, (), [c, a, b], result, to)

    def _cast(self, x, dtype, result, to):
        return self.line(P.Cast, (), [x, _Dtype(dtype)], result, to)

    def _reshape(self, x, shape, result, to):
        return self.line(P.Reshape, (), [x, _free(shape)], result, to)

    def _transpose(self, x, perm, result, to):
        return self.line(P.Transpose, (), [x, perm], result, to)

    def _expand(self, x, shape, result, to):
        return self.line(P.BroadcastTo, (tuple(-1 if isinstance(n, Sym) or n == m else n for n, m in zip(shape, x.shape)),),
                         [x], result, to)

    def _concat(self, *xs, axis, result, to):
        name = self.primitive(P.Concat, axis)
        now = self.attributes[name](tuple(x.now for x in xs))
        ref = f"v{self._n}"
        self._n += 1
        self.lines.append(f"    {ref} = self.{name}(({', '.join(x.ref for x in xs)},))")
        return L(result, to, ref, now=now)

    def _slice(self, x, axis, start, stop, step, result, to):
        begin, end, strides = [0] * x.ndim, [0 if isinstance(n, Sym) else n for n in x.shape], [1] * x.ndim
        begin[axis], end[axis], strides[axis] = start, stop, step
        mask = sum(1 << i for i, n in enumerate(x.shape) if isinstance(n, Sym))
        return self.line(P.StridedSlice, (0, mask), [x, tuple(begin), tuple(end), tuple(strides)], result, to)

    def _gather(self, x, index, axis, result, to):
        return self.line(P.Gather, (), [x, self.cast(index, "int32") if index.dtype not in ("int32", "int64") else index, axis],
                         result, to)

    def _pad(self, x, pads, value, result, to):
        if value == 0 and x.dtype == "float32" and x.ndim <= 5:
            return self.line(P.Pad, (tuple(pads),), [x], result, to)
        if self.plain and not any(isinstance(n, Sym) for n in result):
            for d, (before, after) in enumerate(pads):
                blocks = [self.const(np.full((*x.shape[:d], n, *x.shape[d + 1:]), value, x.dtype)) if n else None for n in (before, after)]
                x = self.concat([b for b in (blocks[0], x, blocks[1]) if b is not None], d)
            return x
        flat = tuple(n for p in reversed(pads) for n in p)
        return self.line(P.PadV3, ("constant", True), [x, flat, self.const(value, x.dtype)], result, to)

    # ---- products
    def _matmul(self, a, b, result, to):
        if a.ndim == 2 and b.ndim == 2:
            return self.line(P.MatMul, (), [a, b], result, to)
        if b.ndim == 2:
            rows = self.reshape(a, (_count(a.shape[:-1]), a.shape[-1]))
            return self.reshape(self.line(P.MatMul, (), [rows, b], (rows.shape[0], b.shape[-1]), to), result)
        batch = result[:-2]
        a, b = self.expand(a, (*batch, *a.shape[-2:])), self.expand(b, (*batch, *b.shape[-2:]))
        return self.line(P.BatchMatMul, (), [a, b], result, to)

    def _softmax(self, x, axis, result, to, prim=P.Softmax):
        if axis == x.ndim - 1:
            return self.line(prim, (-1,), [x], result, to)
        y = self.swap(x, axis, -1)
        return self.swap(self.line(prim, (-1,), [y], y.shape, to), axis, -1)

    def _log_softmax(self, x, axis, result, to):
        return self._softmax(x, axis, result, to, P.LogSoftmax)

    def _argmax(self, x, axis, keepdim, result, to, prim=P.ArgMaxWithValue):
        index = self.line(prim, (axis, keepdim), [x], result, "int32", part=0)
        return self.cast(L(result, _name(index.now.dtype), index.ref, now=index.now), to)

    def _argmin(self, x, axis, keepdim, result, to):
        return self._argmax(x, axis, keepdim, result, to, P.ArgMinWithValue)

    def _cumsum(self, x, axis, result, to):
        return self.line(P.CumSum, (), [x, axis], result, to)

    def _topk(self, x, k, result, to):
        values = self.line(P.TopK, (True,), [x, k], result, to, part=0)
        index = self.line(P.TopK, (True,), [x, k], result, "int32", part=1)
        return values, self.cast(index, "int64")

    def topk(self, x, k):
        """(values, indices) of the k largest of the last axis, sorted."""
        return self._topk(x, k, (*x.shape[:-1], k), x.dtype)

    # ---- windows
    def _conv(self, x, w, stride, padding, dilation, groups, result, to):
        n = x.ndim - 2
        if n == 1:
            x, w, shape = self.reshape(x, (*x.shape[:2], 1, x.shape[2])), self.reshape(w, (*w.shape[:2], 1, w.shape[2])), (
                *result[:2], 1, result[2])
            return self.reshape(self._conv(x, w, (1, *stride), [(0, 0), *padding], (1, *dilation), groups, shape, to), result)
        if n == 3:
            if groups != 1 or any(d != 1 for d in dilation):
                raise Unsupported("a 3d convolution with groups or dilation")
            x = self.pad(x, [(0, 0), (0, 0), *padding])
            key = _Keywords(out_channel=w.shape[0], kernel_size=tuple(w.shape[2:]), stride=tuple(stride))
            return self.line(P.Conv3D, (key,), [x, w], result, to)
        flat = tuple(p for pair in padding for p in pair)
        key = _Keywords(out_channel=w.shape[0], kernel_size=tuple(w.shape[2:]), pad_mode="pad", pad=flat, stride=tuple(stride),
                        dilation=tuple(dilation), group=groups)
        return self.line(P.Conv2D, (key,), [x, w], result, to)

    def _conv_transpose(self, x, w, stride, padding, dilation, output_padding, groups, result, to):
        n = x.ndim - 2
        if n == 1:
            x, w = self.reshape(x, (*x.shape[:2], 1, x.shape[2])), self.reshape(w, (*w.shape[:2], 1, w.shape[2]))
            return self.reshape(self._conv_transpose(x, w, (1, *stride), (0, *padding), (1, *dilation), (0, *output_padding), groups,
                                                     (*result[:2], 1, result[2]), to), result)
        if n == 3:
            raise Unsupported("a 3d transposed convolution")
        # By definition: zeros between the elements, then a convolution with the kernel turned around.
        for i, s in enumerate(stride):
            if s > 1:
                d = 2 + i
                m = size(x.shape[d])
                x = self.reshape(x, (*x.shape[:d + 1], 1, *x.shape[d + 1:]))
                x = self.pad(x, [(0, s - 1) if j == d + 1 else (0, 0) for j in range(x.ndim)])
                x = self.reshape(x, (*x.shape[:d], m * s, *x.shape[d + 2:]))
                x = self.slice(x, d, 0, (m - 1) * s + 1)
        edges = [(d * (k - 1) - p, d * (k - 1) - p + o) for k, p, o, d in zip(w.shape[2:], padding, output_padding, dilation)]
        for i, (before, after) in enumerate(edges):
            if before < 0 or after < 0:
                x = self.slice(x, 2 + i, max(0, -before), x.shape[2 + i] - max(0, -after))
        edges = [(max(0, a), max(0, b)) for a, b in edges]
        # (in, out / groups, ...) -> (out, in / groups, ...), reversed in space
        c, o = w.shape[:2]
        w = self.reshape(w, (groups, c // groups, o, *w.shape[2:]))
        w = self.reshape(self.swap(w, 1, 2), (groups * o, c // groups, *w.shape[3:]))
        for d in (2, 3):
            if w.shape[d] > 1:
                w = self.gather(w, self.const(np.arange(w.shape[d])[::-1].copy(), "int64"), d)
        return self._conv(x, w, (1,) * n, edges, dilation, groups, result, to)

    def _max_pool(self, x, kernel, stride, result, to, prim=P.MaxPool):
        if len(kernel) == 1:
            x = self.reshape(x, (*x.shape[:2], 1, x.shape[2]))
            return self.reshape(self._max_pool(x, (1, *kernel), (1, *stride), (*result[:2], 1, result[2]), to, prim), result)
        if len(kernel) == 3:
            raise Unsupported("3d pooling")
        return self.line(prim, (kernel, stride, "valid"), [x], result, to)

    def _avg_pool(self, x, kernel, stride, result, to):
        return self._max_pool(x, kernel, stride, result, to, P.AvgPool)

    # ---- kernels that do more at once
    def batch_norm(self, x, w, b, mean, var, eps):
        """Evaluation; all vectors given."""
        shape = x.shape
        if x.ndim != 4:
            x = self.reshape(x, (*shape[:2], _count(shape[2:]), 1))
        y = self.line(P.BatchNorm, (_Keywords(is_training=False, epsilon=eps),), [x, w, b, mean, var], x.shape, x.dtype, part=0)
        return self.reshape(y, shape)


def _count(shape):
    from mindtorch.backend.export.rules import product
    return product(shape)


def _free(shape):
    """A shape for Reshape: one free size is -1."""
    if sum(isinstance(n, Sym) for n in shape) > 1:
        raise Unsupported("a shape with several free sizes")
    return tuple(-1 if isinstance(n, Sym) else n for n in shape)


class _Keywords(tuple):
    """Keyword arguments of a primitive, hashable."""

    def __new__(cls, **kw):
        return tuple.__new__(cls, kw.items())


class _Dtype(L):
    """A dtype as an argument: the name that the generated code knows, and MindSpore's object."""

    __slots__ = ()

    def __init__(self, name):
        if name not in _DTYPES:
            raise Unsupported(f"dtype {name}")
        super().__init__((), name, f"mstype_{name}", now=_DTYPES[name])


def _name(dtype):
    return next(n for n, d in _DTYPES.items() if d == dtype)


def _tensor(a):
    if a.dtype.kind == "V":
        return MSTensor(a.astype(np.float32)).astype(ms.bfloat16)
    return MSTensor(np.ascontiguousarray(a) if a.ndim else a)


def _array(t):
    return t.astype(ms.float32).asnumpy() if t.dtype == ms.bfloat16 else t.asnumpy()


def close(got, want, what):
    """AssertionError if an array is not what the facade computed (to the accuracy of its dtype)."""
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
        raise AssertionError(f"{what} computes something else than the facade does (largest difference "
                             f"{np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64)).max():.3g})")


def _check(node, value, x):
    close(_array(x.now), np.asarray(value.array), f"the lowering of {node.op} to MindIR")


# ------------------------------------------------------------------ the Cell
_made = 0


@functools.cache
def _folder():
    """A folder for generated sources, gone when the process ends."""
    folder = tempfile.mkdtemp(prefix="mindtorch-graphs-")
    owner = os.getpid()
    at_exit("generated sources")(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    return folder


class _GraphCell(ms.nn.Cell):
    """Base of the Cells made here; `_mindtorch_graph` tells mindspore.jit that there is nothing of the facade in it."""

    _mindtorch_graph = True

    def __del__(self, ending=sys.is_finalizing, base=ms.nn.Cell.__del__):
        if not ending():        # MindSpore's needs modules that are gone by then
            base(self)


def to_cell(graph, class_name="Traced", plain=False):
    """A MindSpore Cell that computes the graph: its inputs in order, its output a tensor or a tuple of tensors.

    Parameters bear the torch names.  NotImplementedError naming the op if one has no lowering; AssertionError if an op's result
    is not the facade's.  plain: of operations that MindSpore's ONNX writer knows, as far as there is a choice.
    """
    global _made
    e = NativeEmitter(plain)
    mode = ms.get_context("mode")
    ms.set_context(mode=ms.PYNATIVE_MODE)
    try:
        get = lower_graph(graph, e, _check)
        outs = [get(v) for v in graph.outputs]
    finally:
        ms.set_context(mode=mode)
    if not outs:
        raise NotImplementedError("export to MindIR: the function returns no tensor")
    # An output that is an input or a constant needs an operation of its own.
    names = [e.line(P.Identity, (), [o], o.shape, o.dtype).ref if not o.ref.startswith("v") else o.ref for o in outs]
    source = "\n".join([f"def construct(self, {', '.join(f'x{i}' for i in range(len(graph.inputs)))}):", *e.lines,
                        f"    return {', '.join(names)}", ""])
    _made += 1
    # MindSpore's compiler reads a method's source from its file.
    file = os.path.join(_folder(), f"graph_{_made}.py")
    with open(file, "w", encoding="utf-8") as f:
        f.write(source)
    scope = globals()
    local = {}
    exec(compile(source, file, "exec"), scope, local)
    cell = type(class_name, (_GraphCell,), {"construct": local["construct"], "__module__": __name__})()
    for name, value in e.attributes.items():
        setattr(cell, name, value)
    cell.set_train(False)
    return cell


globals().update({f"mstype_{n}": d for n, d in _DTYPES.items()})
__all__ = ["to_cell", "NativeEmitter", "close", "known", "math"]
