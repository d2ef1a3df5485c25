"""Conversion of a traced graph to an ONNX model with the `onnx` package (an optional dependency).
"""
import math

import numpy as np

from mindtorch.backend.graph import Sym
from mindtorch.backend.export.rules import Emitter, OnnxTensor, lower_graph

_UNARY = {"abs": "Abs", "neg": "Neg", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal", "sin": "Sin", "cos": "Cos",
          "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh",
          "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sign": "Sign",
          "relu": "Relu", "sigmoid": "Sigmoid", "not": "Not", "isnan": "IsNaN"}
_BINARY = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "maximum": "Max", "minimum": "Min", "eq": "Equal",
           "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual", "and": "And", "or": "Or", "matmul": "MatMul"}
_REDUCE = {"reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin",
           "reduce_prod": "ReduceProd"}
OPSETS = range(13, 22)


def require():
    """Returns the onnx package; if it is missing, ImportError with the command to install it."""
    try:
        import onnx
    except ImportError as e:
        raise ImportError("torch.onnx.export needs the package onnx: pip install mindtorch[export], or pip install onnx") from e
    return onnx


class OnnxEmitter(Emitter):
    """Collects ONNX nodes and initializers."""

    target = "ONNX"

    def __init__(self, opset):
        super().__init__()
        onnx = require()
        self.helper, self.numpy, self.types = onnx.helper, onnx.numpy_helper, onnx.TensorProto
        self.opset, self.nodes, self.initializers, self.inputs = opset, [], [], []
        self._constants, self._n = {}, 0

    # ---- tensors
    def type_of(self, dtype):
        if dtype == "bfloat16":
            return self.types.BFLOAT16
        return self.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def info(self, name, shape, dtype):
        return self.helper.make_tensor_value_info(name, self.type_of(dtype), [str(n) if isinstance(n, Sym) else n for n in shape])

    def input(self, i, v):
        self.inputs.append(self.info(v.name, v.shape, v.dtype))
        return OnnxTensor(v.shape, v.dtype, v.name)

    def parameter(self, v):
        if v.dtype == "bfloat16":
            raise NotImplementedError("export to ONNX: parameters of dtype bfloat16")
        self.initializers.append(self.numpy.from_array(np.ascontiguousarray(v.array), v.name))
        return OnnxTensor(v.shape, v.dtype, v.name)

    def constant(self, array):
        key = array.tobytes(), array.dtype.str, array.shape
        if key not in self._constants:
            name = f"constant_{len(self._constants)}"
            self.initializers.append(self.numpy.from_array(np.ascontiguousarray(array) if array.ndim else array, name))
            self._constants[key] = name
        return OnnxTensor(array.shape, array.dtype.name, self._constants[key], array)

    def ints(self, values):
        return self.constant(np.array(values, np.int64))

    # ---- nodes
    def node(self, op, inputs, shape, dtype, outputs=1, **attrs):
        names = [f"t{self._n + i}" for i in range(outputs)]
        self._n += outputs
        self.nodes.append(self.helper.make_node(op, [x.ref if isinstance(x, OnnxTensor) else x for x in inputs], names, **attrs))
        r = OnnxTensor(shape, dtype, names[0])
        return r if outputs == 1 else (r, *names[1:])

    def emit(self, kind, inputs, attrs, shape, dtype):
        x = inputs[0]
        if kind in _UNARY:
            return self.node(_UNARY[kind], inputs, shape, dtype)
        if kind in _BINARY:
            return self.node(_BINARY[kind], inputs, shape, dtype)
        if kind in _REDUCE:
            return self._reduce(_REDUCE[kind], x, shape, dtype, **attrs)
        return getattr(self, "_" + kind)(*inputs, **attrs, result=tuple(shape), to=dtype)

    def _reduce(self, op, x, shape, dtype, axes, keepdim):
        if op == "ReduceSum" or self.opset >= 18:
            return self.node(op, [x, self.ints(axes)], shape, dtype, keepdims=int(keepdim))
        return self.node(op, [x], shape, dtype, axes=list(axes), keepdims=int(keepdim))

    def _rsqrt(self, x, result, to):
        return self.node("Reciprocal", [self.node("Sqrt", [x], result, to)], result, to)

    def _ne(self, a, b, result, to):
        return self.node("Not", [self.node("Equal", [a, b], result, to)], result, to)

    def _intdiv(self, a, b, result, to):
        # ONNX's integer division truncates; this op rounds down.
        q = self.node("Div", [a, b], result, to)
        rest = self.sub(a, self.mul(q, b))
        zero = self.const(0, to)
        wrong = self.binary("and", self._ne(rest, zero, result, "bool"),
                            self._ne(self.compare("lt", rest, zero), self.compare("lt", b, zero), result, "bool"))
        return self.sub(q, self.cast(wrong, to))

    def _atan2(self, a, b, result, to):
        # ONNX has no such op: use the arctangent of the quotient, shifted by pi in the left half
        # plane.
        half = self.mul(self.where(self.compare("lt", a, 0), self.const(-1, to), self.const(1, to)), math.pi / 2)
        turn = self.where(self.compare("lt", b, 0), self.mul(half, 2.0), self.const(0, to))
        angle = self.add(self.unary("atan", self.div(a, b)), turn)
        return self.where(self.compare("eq", b, 0), self.mul(half, self.unary("abs", self.unary("sign", a))), angle)

    def _where(self, c, a, b, result, to):
        return self.node("Where", [c, a, b], result, to)

    def _cast(self, x, dtype, result, to):
        return self.node("Cast", [x], result, to, to=self.type_of(dtype))

    def shape(self, shape):
        """Returns a shape as a tensor; dynamic sizes are read from the inputs."""
        if not any(isinstance(n, Sym) for n in shape):
            return self.ints(shape)
        parts = []
        for n in shape:
            if not isinstance(n, Sym):
                parts.append(self.ints([n]))
                continue
            sizes = self.node("Shape", [self.inputs[n.input].name], (1,), "int64")
            one = self.node("Gather", [sizes, self.ints([n.axis])], (1,), "int64", axis=0)
            if n.scale != 1:
                one = self.mul(one, self.ints([n.scale]))
            if n.offset:
                one = self.add(one, self.ints([n.offset]))
            parts.append(one)
        return self.node("Concat", parts, (len(shape),), "int64", axis=0)

    def _reshape(self, x, shape, result, to):
        free = [i for i, n in enumerate(shape) if isinstance(n, Sym)]
        if len(free) == 1:
            return self.node("Reshape", [x, self.ints([-1 if i in free else n for i, n in enumerate(shape)])], result, to)
        return self.node("Reshape", [x, self.shape(shape)], result, to)

    def _transpose(self, x, perm, result, to):
        return self.node("Transpose", [x], result, to, perm=list(perm))

    def _expand(self, x, shape, result, to):
        return self.node("Expand", [x, self.shape(shape)], result, to)

    def _concat(self, *xs, axis, result, to):
        return self.node("Concat", xs, result, to, axis=axis)

    def _slice(self, x, axis, start, stop, step, result, to):
        return self.node("Slice", [x, self.ints([start]), self.ints([stop]), self.ints([axis]), self.ints([step])], result, to)

    def _gather(self, x, index, axis, result, to):
        if index.dtype not in ("int32", "int64"):
            index = self.cast(index, "int64")
        return self.node("Gather", [x, index], result, to, axis=axis)

    def _pad(self, x, pads, value, result, to):
        flat = [p[0] for p in pads] + [p[1] for p in pads]
        return self.node("Pad", [x, self.ints(flat), self.const(value, x.dtype)], result, to)

    def _softmax(self, x, axis, result, to):
        return self.node("Softmax", [x], result, to, axis=axis)

    def _log_softmax(self, x, axis, result, to):
        return self.node("LogSoftmax", [x], result, to, axis=axis)

    def _argmax(self, x, axis, keepdim, result, to, op="ArgMax"):
        return self.node(op, [x], result, to, axis=axis, keepdims=int(keepdim))

    def _argmin(self, x, axis, keepdim, result, to):
        return self._argmax(x, axis, keepdim, result, to, "ArgMin")

    def _cumsum(self, x, axis, result, to):
        return self.node("CumSum", [x, self.constant(np.array(axis, np.int64))], result, to)

    def topk(self, x, k):
        """Returns (values, indices) of the k largest elements of the last axis, sorted."""
        shape = (*x.shape[:-1], k)
        values, index = self.node("TopK", [x, self.ints([k])], shape, x.dtype, outputs=2, axis=-1)
        return values, OnnxTensor(shape, "int64", index)

    # ---- windowed ops
    def _conv(self, x, w, stride, padding, dilation, groups, result, to):
        return self.node("Conv", [x, w], result, to, strides=list(stride), dilations=list(dilation), group=groups,
                         pads=[p[0] for p in padding] + [p[1] for p in padding])

    def _conv_transpose(self, x, w, stride, padding, dilation, output_padding, groups, result, to):
        return self.node("ConvTranspose", [x, w], result, to, strides=list(stride), dilations=list(dilation), group=groups,
                         pads=list(padding) * 2, output_padding=list(output_padding))

    def _max_pool(self, x, kernel, stride, result, to):
        return self.node("MaxPool", [x], result, to, kernel_shape=list(kernel), strides=list(stride))

    def _avg_pool(self, x, kernel, stride, result, to):
        return self.node("AveragePool", [x], result, to, kernel_shape=list(kernel), strides=list(stride))

    def batch_norm(self, x, w, b, mean, var, eps):
        """Normalizes with the given statistics (evaluation mode); all vectors are required."""
        return self.node("BatchNormalization", [x, w, b, mean, var], x.shape, x.dtype, epsilon=float(eps))


def to_model(graph, opset, output_names=(), producer="mindtorch"):
    """Returns the graph as an onnx.ModelProto, validated by onnx's checker.

    Initializers are named like the PyTorch parameters. ImportError without the package onnx;
    NotImplementedError, naming the op, if one has no lowering.
    """
    onnx = require()
    e = OnnxEmitter(opset)
    get = lower_graph(graph, e)
    outs = graph.outputs
    names = list(output_names) or [f"output_{i}" for i in range(len(outs))] if len(outs) != 1 else list(output_names) or ["output"]
    if len(names) < len(outs):
        names += [f"output_{i}" for i in range(len(names), len(outs))]
    infos = []
    for name, v in zip(names, outs):
        x = get(v)
        e.nodes.append(e.helper.make_node("Identity", [x.ref], [name]))
        infos.append(e.info(name, x.shape, x.dtype))
    g = e.helper.make_graph(e.nodes, "mindtorch", e.inputs, infos, _used(e))
    model = e.helper.make_model(g, opset_imports=[e.helper.make_opsetid("", opset)], producer_name=producer)
    model.ir_version = min(model.ir_version, 10)  # readable by the ONNX runtimes of recent years
    onnx.checker.check_model(model)
    return model


def _used(e):
    read = {name for n in e.nodes for name in n.input}
    return [t for t in e.initializers if t.name in read]


__all__ = ["to_model", "OnnxEmitter", "OPSETS", "require"]
