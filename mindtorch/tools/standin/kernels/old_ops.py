"""Legacy ops (aclop), which MindSpore still launches for primitives without an aclnn kernel."""
from mindtorch.tools.standin.kernels._engine import F, torch
from mindtorch.tools.standin.kernels._table import op, put


def _of_inputs(names, function):
    """Registers an op without attributes that returns one tensor."""
    op(names)(lambda inputs, outputs, attributes: [function(*inputs)])


def _int_list(t):
    """Returns the values of an input that is a list of integers."""
    return [int(v) for v in t.reshape(-1)]


def _refuse(attributes, *names):
    for name in names:
        if attributes.get(name):
            raise NotImplementedError(f"{name}={attributes[name]!r}")


# ---- elementwise
_of_inputs("Identity", lambda x: x)
_of_inputs("ZerosLike", torch.zeros_like)
_of_inputs("OnesLike", torch.ones_like)
_of_inputs("Add AddV2", torch.add)
_of_inputs("Sub", torch.sub)
_of_inputs("Mul", torch.mul)
_of_inputs("RealDiv", torch.div)
_of_inputs("Div", lambda x, y: torch.div(x, y, rounding_mode=None if x.is_floating_point() else "trunc"))
_of_inputs("Maximum", torch.maximum)
_of_inputs("Minimum", torch.minimum)
_of_inputs("Pow", torch.pow)
_of_inputs("Neg", torch.neg)
_of_inputs("Square", torch.square)
_of_inputs("Sqrt", torch.sqrt)
_of_inputs("Exp", torch.exp)
_of_inputs("Log", torch.log)
_of_inputs("Tan", torch.tan)
_of_inputs("Acos", torch.acos)
_of_inputs("Asin", torch.asin)
_of_inputs("Atan", torch.atan)
_of_inputs("Acosh", torch.acosh)
_of_inputs("Asinh", torch.asinh)
_of_inputs("Lgamma CustLgamma", torch.lgamma)
_of_inputs("Digamma", torch.digamma)
_of_inputs("CustIgamma", torch.special.gammainc)
_of_inputs("CustPolygamma", lambda n, x: torch.special.polygamma(int(n), x))
_of_inputs("CustBesselI0", torch.special.i0)
_of_inputs("BiasAdd", lambda x, bias: x + bias.reshape([-1] + [1] * (x.dim() - 2)))
_of_inputs("BiasAddGrad", lambda g: g.transpose(0, 1).reshape(g.shape[1], -1).sum(1))
_of_inputs("L2Loss", lambda x: (x * x).sum() / 2)

# ---- gradients, from the input or (y) from the result
_of_inputs("SqrtGrad", lambda y, g: g / (2 * y))
_of_inputs("RsqrtGrad", lambda y, g: -g * y ** 3 / 2)
_of_inputs("ReciprocalGrad", lambda y, g: -g * y * y)
_of_inputs("AcosGrad", lambda x, g: -g * torch.rsqrt(1 - x * x))
_of_inputs("AsinGrad", lambda x, g: g * torch.rsqrt(1 - x * x))
_of_inputs("AtanGrad", lambda x, g: g / (1 + x * x))
_of_inputs("AcoshGrad", lambda y, g: g / torch.sinh(y))
_of_inputs("AsinhGrad", lambda y, g: g / torch.cosh(y))


# ---- variables
def _written(names, function):
    """Registers an op that writes its first input and returns it."""
    def into(inputs, outputs, attributes):
        value = function(*inputs)
        put(inputs[0], value)
        return [inputs[0]]
    op(names)(into)


_written("Assign", lambda x, value: value)
_written("AssignAdd", torch.add)
_written("AssignSub", torch.sub)
_written("ScatterUpdate", lambda x, index, updates: x.index_copy(0, index.long().reshape(-1), updates.reshape([-1, *x.shape[1:]])))
_written("ScatterAdd", lambda x, index, updates: x.index_add(0, index.long().reshape(-1), updates.reshape([-1, *x.shape[1:]])))


# ---- reductions, cumulative ops
def _reduction(names, function):
    def reduced(inputs, outputs, attributes):
        x, axes = inputs
        axes = _int_list(axes)
        if not axes:
            if attributes.get("noop_with_empty_axes"):
                return [x]
            axes = list(range(x.dim()))
        return [function(x, axes, bool(attributes.get("keep_dims")))]
    op(names)(reduced)


def _product(x, axes, keep):
    for d in sorted((d % x.dim() for d in axes), reverse=True):
        x = x.prod(d, keepdim=keep)
    return x


_reduction("ReduceSum", torch.sum)
_reduction("ReduceMean", torch.mean)
_reduction("ReduceProd", _product)


def _running(name, function):
    def run(inputs, outputs, attributes):
        _refuse(attributes, "exclusive")
        x, axis = inputs[0], int(inputs[1])
        return [function(x.flip(axis), axis).flip(axis) if attributes.get("reverse") else function(x, axis)]
    op(name)(run)


_running("Cumsum", torch.cumsum)
_running("Cumprod", torch.cumprod)


@op("ArgMaxV2")
def _argmax(inputs, outputs, attributes):
    return [torch.argmax(inputs[0], int(inputs[1]))]


@op("TopK")
def _top(inputs, outputs, attributes):
    return torch.topk(inputs[0], int(inputs[1]))


@op("Sort")
def _sorted(inputs, outputs, attributes):
    return torch.sort(inputs[0], dim=attributes.get("axis", -1), descending=bool(attributes.get("descending")), stable=True)


# ---- shapes, indices
_of_inputs("Transpose", lambda x, order: x.permute(_int_list(order)))
_of_inputs("Range", lambda start, end, step: torch.arange(start.item(), end.item(), step.item(), dtype=start.dtype))
_of_inputs("LinSpace", lambda start, end, count: torch.linspace(start.item(), end.item(), int(count)))
_of_inputs("Fill", lambda shape, value: value.expand(_int_list(shape)))
_of_inputs("Diag", torch.diag)


def _slice_indices(x, begin, end, step, attributes):
    """Returns the flat indices of x that a strided slice selects. The mask attributes are bits: a
    begin or end that is ignored, a dimension that is removed."""
    _refuse(attributes, "ellipsis_mask", "new_axis_mask")
    indices = torch.arange(x.numel()).reshape(x.shape)
    free = [attributes.get(f"{side}_mask", 0) for side in ("begin", "end")]
    for d, (first, last, stride) in enumerate(zip(*map(_int_list, (begin, end, step)))):
        if attributes.get("shrink_axis_mask", 0) >> d & 1:
            chosen = [first]
        else:
            chosen = list(range(x.shape[d]))[slice(*(None if f >> d & 1 else at for f, at in zip(free, (first, last))), stride)]
        indices = indices.index_select(d, torch.tensor(chosen, dtype=torch.int64) % x.shape[d])
    return indices


@op("StridedSlice")
def _strided(inputs, outputs, attributes):
    x = inputs[0]
    return [x.reshape(-1)[_slice_indices(*inputs, attributes)]]


@op("StridedSliceGrad")
def _strided_gradient(inputs, outputs, attributes):
    shape, begin, end, step, grad = inputs
    zeros = torch.zeros(_int_list(shape), dtype=grad.dtype)
    indices = _slice_indices(zeros, begin, end, step, attributes)
    return [zeros.reshape(-1).index_copy(0, indices.reshape(-1), grad.reshape(-1)).reshape(zeros.shape)]


@op("Pack")
def _pack(inputs, outputs, attributes):
    return [torch.stack(inputs, attributes.get("axis", 0))]


@op("PadV3")
def _pad(inputs, outputs, attributes):
    x, pads, value = inputs
    if attributes.get("mode", "constant") != "constant":
        raise NotImplementedError(f"mode={attributes['mode']!r}")
    # (begin, end) of the first dimension first, or all begins before all ends
    sides = _int_list(pads)
    pairs = list(zip(sides[::2], sides[1::2])) if attributes.get("paddings_contiguous", True) else list(zip(sides[:len(sides) // 2], sides[len(sides) // 2:]))
    return [F.pad(x, [n for pair in reversed(pairs) for n in pair], value=value.item())]


@op("Pad")
def _pad_zero(inputs, outputs, attributes):
    return [F.pad(inputs[0], [n for pair in reversed(inputs[1].tolist()) for n in pair])]


@op("OneHot")
def _one_hot(inputs, outputs, attributes):
    x, depth, on, off = inputs
    axis = attributes.get("axis", -1)
    at, depth = axis if axis >= 0 else x.dim(), int(depth)
    return [torch.where(x.unsqueeze(at) == torch.arange(depth).reshape([depth] + [1] * (x.dim() - at)), on, off)]


@op("GatherV2")
def _gather(inputs, outputs, attributes):
    _refuse(attributes, "batch_dims")
    x, index, axis = inputs
    axis = int(axis) % x.dim()
    found = x.index_select(axis, index.long().reshape(-1) % x.shape[axis])
    return [found.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1:]])]


def _coordinates(indices):
    return tuple(indices.long().movedim(-1, 0))


_of_inputs("GatherNd", lambda x, indices: x[_coordinates(indices)])
_of_inputs("TensorScatterUpdate", lambda x, indices, updates: x.index_put(_coordinates(indices), updates))
_written("ScatterNdUpdate", lambda x, indices, updates: x.index_put(_coordinates(indices), updates))
_of_inputs("ScatterNd", lambda indices, updates, shape: torch.zeros(_int_list(shape), dtype=updates.dtype).index_put(
    _coordinates(indices), updates, accumulate=True))


@op("ScatterElements")
def _scatter_elements(inputs, outputs, attributes):
    x, index, updates = inputs
    function = {"none": torch.scatter, "add": torch.scatter_add}[attributes.get("reduction", "none")]
    return [function(x, attributes.get("axis", 0), index.long(), updates)]


@op("UnsortedSegmentSum")
def _segments(inputs, outputs, attributes):
    x, owners, count = inputs
    rest = x.shape[owners.dim():]
    return [torch.zeros([int(count), *rest], dtype=x.dtype).index_add(0, owners.long().reshape(-1), x.reshape([-1, *rest]))]


# ---- matrices
def _adjoint(a, attributes):
    return a.mT.conj() if attributes.get("adjoint") else a


@op("MatrixInverse")
def _inverse(inputs, outputs, attributes):
    return [torch.linalg.inv(_adjoint(inputs[0], attributes))]


@op("MatrixSolve")
def _solve(inputs, outputs, attributes):
    return [torch.linalg.solve(_adjoint(inputs[0], attributes), inputs[1])]


_of_inputs("MatrixDeterminant", torch.linalg.det)
op("LogMatrixDeterminant")(lambda inputs, outputs, attributes: torch.linalg.slogdet(inputs[0]))


@op("CustCholeskyInverse")
def _cholesky_inverse(inputs, outputs, attributes):
    return [torch.cholesky_inverse(inputs[0], upper=bool(attributes.get("upper")))]


@op("Svd")
def _svd(inputs, outputs, attributes):
    if not attributes.get("compute_uv", True):
        return [torch.linalg.svdvals(inputs[0])]
    u, s, vh = torch.linalg.svd(inputs[0], full_matrices=bool(attributes.get("full_matrices")))
    return [s, u, vh.mT.conj()]


# ---- losses
@op("SoftmaxCrossEntropyWithLogits")
def _softmax_cross_entropy(inputs, outputs, attributes):
    x, wanted = inputs
    return [-(wanted * F.log_softmax(x, -1)).sum(-1), F.softmax(x, -1) - wanted]


def _ctc_loss(x, targets, lengths, target_lengths, attributes):
    return F.ctc_loss(x, targets.long(), lengths.long(), target_lengths.long(), blank=attributes.get("blank", 0), reduction="none",
                      zero_infinity=bool(attributes.get("zero_infinity")))


@op("CTCLossV2")
def _ctc(inputs, outputs, attributes):
    """The second output is only used by the chip's gradient op; the one here does not need it."""
    return [_ctc_loss(*inputs, attributes), None]


@op("CTCLossV2Grad")
def _ctc_gradient(inputs, outputs, attributes):
    grad, x, *rest = inputs
    with torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        return [torch.autograd.grad(_ctc_loss(x, *rest[:3], attributes), x, grad)[0]]


@op("MultilabelMarginLoss")
def _multilabel_margin(inputs, outputs, attributes):
    """The second output marks the classes that are targets, those before the first -1."""
    x, target = inputs
    counted = (target < 0).cumsum(-1) == 0
    marks = torch.zeros(x.shape, dtype=torch.int64).scatter_add(-1, target.long().clamp(min=0), counted.long()) > 0
    return [F.multilabel_margin_loss(x, target.long(), reduction=attributes.get("reduction", "mean")), marks]


@op("CustMultiMarginLoss")
def _multi_margin(inputs, outputs, attributes):
    x, target, weight = inputs
    return [F.multi_margin_loss(x, target.long(), attributes.get("p", 1), attributes.get("margin", 1.0), weight, reduction=attributes.get("reduction", "mean"))]


# ---- optimizer steps: the variable and its states are written
def _step(name, count, function):
    """Registers an optimizer step. function returns new values of the first `count` inputs; outputs
    are the first inputs."""
    def stepped(inputs, outputs, attributes):
        for target, value in zip(inputs[:count], function(*inputs, attributes)):
            put(target, value)
        return inputs[:len(outputs)]
    op(name)(stepped)


def _momentum(p, moment, lr, grad, momentum, attributes):
    moment = moment * momentum + grad
    return p - lr * (grad + moment * momentum if attributes.get("use_nesterov") else moment), moment


def _adam(p, m, v, power1, power2, lr, beta1, beta2, eps, grad, attributes):
    m = m + (grad - m) * (1 - beta1)
    v = v + (grad * grad - v) * (1 - beta2)
    ahead = beta1 * m + (1 - beta1) * grad if attributes.get("use_nesterov") else m
    return p - lr * (1 - power2).sqrt() / (1 - power1) * ahead / (v.sqrt() + eps), m, v


def _adagrad(p, squares, lr, grad, attributes):
    squares = squares + grad * grad
    return p - lr * grad / squares.sqrt(), squares


def _rmsprop(p, squares, moment, lr, rho, momentum, eps, grad, attributes):
    squares = rho * squares + (1 - rho) * grad * grad
    moment = momentum * moment + lr * grad * torch.rsqrt(squares + eps)
    return p - moment, squares, moment


_step("ApplyMomentum", 2, _momentum)
_step("ApplyAdamD", 3, _adam)
_step("ApplyAdagradD", 2, _adagrad)
_step("ApplyRMSProp", 3, _rmsprop)
