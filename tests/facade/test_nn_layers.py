"""Layers compared with PyTorch's: initial weights from the seed, outputs, and gradients of inputs
and parameters.

hypothesis generates the constructor arguments. Calls that PyTorch rejects raise the same exception
in mindtorch.
"""
import copy

import numpy as np
import pytest
import torch as real
from _both_sides import agree, data, plain, same
from hypothesis import given, settings
from hypothesis import strategies as st

import mindtorch.torch as mine


def tensors(T, x, grad):
    """Converts arrays to tensors (float arrays with gradient), also inside tuples."""
    if isinstance(x, np.ndarray):
        t = T.tensor(x)
        return t.requires_grad_() if grad and t.is_floating_point() else t
    if isinstance(x, (tuple, list)):
        return type(x)(tensors(T, v, grad) for v in x)
    return x


def leaves(x):
    """Lists all tensors in a result, in order."""
    if isinstance(x, (real.Tensor, mine.Tensor)):
        return [x]
    if isinstance(x, (tuple, list)):
        return [t for v in x for t in leaves(v)]
    return []


def weights(seed, shape):
    """Weights for the sum of the outputs, so that all gradients differ."""
    return data(seed, *shape) if shape else np.array(1.5, "float32")


def run(T, build, inputs, kwargs=None, train=True, grad=99, seed=3):
    """Returns a layer's initial state, output, gradients and final state, or its error. The first
    `grad` inputs require a gradient."""
    try:
        T.manual_seed(seed)
        m = build(T.nn).train(train)
        state = {n: p.detach().clone() for n, p in m.state_dict().items()}
        args = [tensors(T, x, i < grad) for i, x in enumerate(inputs)]
        out = m(*args, **{k: tensors(T, v, True) for k, v in (kwargs or {}).items()})
        got = leaves(out)
        grads = {}
        if grad:
            loss = sum((t * T.tensor(weights(90 + i, t.shape)).to(t.dtype)).sum() for i,
                       t in enumerate(got) if t.requires_grad)
            if isinstance(loss, T.Tensor) and loss.requires_grad:
                loss.backward()
            grads = {f"input {i}": a.grad for i, a in enumerate(leaves(args))}
            grads.update((n, p.grad) for n, p in m.named_parameters())
        return plain([repr(m).replace("mindtorch.torch.", "torch."), state, got, grads, m.state_dict()])
    except (ValueError, RuntimeError, TypeError, IndexError, AssertionError) as e:
        return ["refused", type(e).__name__]


def both(build, *inputs, rtol=2e-4, atol=2e-5, **options):
    a, b = (run(T, build, inputs, **options) for T in (real, mine))
    agree(a, b, rtol, atol)
    return a


# ------------------------------------------------------------------ linear
@given(i=st.integers(1, 6), o=st.integers(1, 6), bias=st.booleans(), lead=st.lists(st.integers(0, 3), max_size=3))
def test_linear(i, o, bias, lead):
    both(lambda nn: nn.Linear(i, o, bias), data(0, *lead, i))


@given(a=st.integers(1, 4), b=st.integers(1, 4), o=st.integers(1, 4), bias=st.booleans(),
       lead=st.lists(st.integers(1, 3), min_size=1, max_size=2))
def test_bilinear(a, b, o, bias, lead):
    both(lambda nn: nn.Bilinear(a, b, o, bias), data(0, *lead, a), data(1, *lead, b))


# ------------------------------------------------------------------ convolution
def some(n, values):
    return st.one_of(values, st.tuples(*[values] * n))


@st.composite
def convolution(draw, n):
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    kw = {"kernel_size": draw(some(n, st.integers(1, 3))), "stride": draw(some(n, st.integers(1, 3))),
          "padding": draw(st.one_of(some(n, st.integers(0, 2)), st.sampled_from(["same", "valid"]))),
          "dilation": draw(some(n, st.integers(1, 2))), "groups": groups, "bias": draw(st.booleans()),
          "padding_mode": draw(st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"]))}
    channels = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    batch = draw(st.sampled_from([(), (1,), (2,)]))
    size = draw(st.lists(st.integers(3, 7), min_size=n, max_size=n))
    return channels, kw, (*batch, channels[0], *size)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_conv(n):
    @settings(max_examples=40 if n < 3 else 20)
    @given(convolution(n))
    def check(case):
        (i, o), kw, shape = case
        both(lambda nn: getattr(nn, f"Conv{n}d")(i, o, **kw), data(1, *shape))
    check()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_conv_transpose(n):
    @settings(max_examples=30 if n < 3 else 15)
    @given(convolution(n), some(n, st.integers(0, 2)))
    def check(case, output_padding):
        (i, o), kw, shape = case
        kw = {**kw, "output_padding": output_padding, "padding_mode": "zeros"}
        shape = (*shape[:-n], *(s + 2 for s in shape[-n:]))  # no output is empty for any padding
        kw["padding"] = 1 if isinstance(kw["padding"], str) else kw["padding"]
        both(lambda nn: getattr(nn, f"ConvTranspose{n}d")(i, o, **kw), data(1, *shape))
    check()


@pytest.mark.parametrize("size", [(9, 9), (10, 9), (1, 2, 10, 10), (12, 10), (9,)])
def test_conv_transpose_output_size(size):
    both(lambda nn: nn.ConvTranspose2d(2, 2, 3, 2), data(0, 1, 2, 4, 4), kwargs={"output_size": size})


# ------------------------------------------------------------------ pooling
@st.composite
def pooling(draw, n):
    kw = {"kernel_size": draw(some(n, st.integers(1, 3))),
          "stride": draw(st.one_of(st.none(), some(n, st.integers(1, 3)))),
          "padding": draw(some(n, st.integers(0, 1))), "ceil_mode": draw(st.booleans())}
    return kw, (*draw(st.sampled_from([(), (2,)])), 2, *draw(st.lists(st.integers(3, 6), min_size=n, max_size=n)))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_max_pool(n):
    @settings(max_examples=25)
    @given(pooling(n), some(n, st.integers(1, 2)), st.booleans())
    def check(case, dilation, indices):
        kw, shape = case
        both(lambda nn: getattr(nn, f"MaxPool{n}d")(**kw, dilation=dilation, return_indices=indices), data(1, *shape))
    check()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_avg_pool(n):
    @settings(max_examples=25)
    @given(pooling(n), st.booleans(), st.sampled_from([None, None, 3]))
    def check(case, include, divisor):
        kw, shape = case
        if n > 1:
            kw = {**kw, "divisor_override": divisor}
        both(lambda nn: getattr(nn, f"AvgPool{n}d")(**kw, count_include_pad=include), data(1, *shape))
    check()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_adaptive_pool(n):
    @settings(max_examples=15)
    @given(some(n, st.one_of(st.integers(1, 4), st.none() if n > 1 else st.integers(1, 2))),
           st.lists(st.integers(2, 6), min_size=n, max_size=n), st.booleans())
    def check(out, size, indices):
        both(lambda nn: getattr(nn, f"AdaptiveAvgPool{n}d")(out), data(1, 2, 2, *size))
        both(lambda nn: getattr(nn, f"AdaptiveMaxPool{n}d")(out, indices), data(1, 2, 2, *size))
    check()


@given(st.sampled_from([1.0, 2.0, 3.5]), st.integers(1, 3), st.sampled_from([None, 1, 2]), st.booleans())
@settings(max_examples=15)
def test_lp_pool(norm, kernel, stride, ceil):
    both(lambda nn: nn.LPPool2d(norm, kernel, stride, ceil), np.abs(data(1, 1, 2, 5, 5)) + 0.1)


def test_max_unpool():
    x = data(1, 1, 2, 6, 6)
    for T in (real, mine):
        pool = T.nn.MaxPool2d(2, return_indices=True)
        y, i = pool(T.tensor(x))
        out = T.nn.MaxUnpool2d(2)(y, i)
        assert tuple(out.shape) == x.shape
        if T is real:
            want = out.numpy()
    np.testing.assert_array_equal(out.numpy(), want)


# ------------------------------------------------------------------ normalization
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_batch_norm(n, train):
    @settings(max_examples=20)
    @given(st.sampled_from([0.1, 0.7, None]), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 3),
           st.integers(1, 3))
    def check(momentum, affine, track, bias, batch, size):
        shape = (batch, 3, *[size] * n) if n > 1 or size > 1 else (batch, 3)
        both(lambda nn: getattr(nn, f"BatchNorm{n}d")(3, momentum=momentum, affine=affine, track_running_stats=track,
                                                      bias=bias),
             data(1, *shape) * 2 + 1, train=train, rtol=1e-3, atol=1e-4)
    check()


def test_batch_norm_cumulative_statistics():
    def program(T):
        m = T.nn.BatchNorm1d(3, momentum=None)
        out = []
        for i in range(4):
            out.append(m(T.tensor(data(i, 5, 3))))
        return out, m.state_dict(), m.eval()(T.tensor(data(9, 2, 3)))
    same(program, rtol=1e-4, atol=1e-5)


@given(st.integers(1, 3), st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.sampled_from([2, 3]))
@settings(max_examples=30)
def test_instance_norm(n, affine, track, train, batched, channels):
    shape = (*([2] if batched else []), channels, *[3] * n)
    both(lambda nn: getattr(nn, f"InstanceNorm{n}d")(2, affine=affine, track_running_stats=track), data(1, *shape),
         train=train, rtol=1e-3, atol=1e-4)


@given(st.integers(1, 3), st.integers(1, 4), st.booleans(), st.booleans(), st.lists(st.integers(1, 3), max_size=2))
@settings(max_examples=30)
def test_group_norm(groups, channels, affine, bias, rest):
    both(lambda nn: nn.GroupNorm(groups, channels, affine=affine, bias=bias), data(1, 2, channels, *rest), rtol=1e-3,
         atol=1e-4)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=2), st.booleans(), st.booleans(),
       st.lists(st.integers(1, 3), max_size=2))
@settings(max_examples=30)
def test_layer_and_rms_norm(shape, affine, bias, lead):
    both(lambda nn: nn.LayerNorm(shape, elementwise_affine=affine, bias=bias), data(1, *lead, *shape), rtol=1e-3,
         atol=1e-4)
    both(lambda nn: nn.RMSNorm(shape, elementwise_affine=affine), data(1, *lead, *shape), rtol=1e-3, atol=1e-4)


# PyTorch's CrossMapLRN2d of size 1 fails in backward.
@pytest.mark.parametrize("cls, size", [("LocalResponseNorm", n) for n in (1, 2, 3, 5)] +
                         [("CrossMapLRN2d", n) for n in (2, 3, 4, 5)])
def test_local_response_norm(cls, size):
    both(lambda nn: getattr(nn, cls)(size, alpha=0.1, k=2.0), data(1, 2, 4, 3, 3))


def test_sync_batch_norm_in_one_process():
    both(lambda nn: nn.SyncBatchNorm(3), data(1, 4, 3, 2), rtol=1e-3, atol=1e-4)
    same(lambda T: repr(T.nn.SyncBatchNorm.convert_sync_batchnorm(T.nn.Sequential(T.nn.BatchNorm2d(2), T.nn.ReLU()))))


# ------------------------------------------------------------------ activations, dropout, shape
ACTIVATIONS = """
Threshold(0.1,2) ReLU() RReLU() Hardtanh() Hardtanh(-0.5,0.25) ReLU6() Sigmoid() Hardsigmoid() Tanh() SiLU() Mish()
Hardswish() ELU(0.7) CELU(1.3) SELU() GLU() GLU(0) GELU() GELU('tanh') Hardshrink(0.3) LeakyReLU(0.2) LogSigmoid()
Softplus(2,1) Softshrink() PReLU() PReLU(4,0.1) Softsign() Tanhshrink() Softmin(1) Softmax(-1) LogSoftmax(0)
Identity(5) Flatten() Flatten(0) Unflatten(1,(2,2)) Unflatten(1,(3,2))
""".split()


@pytest.mark.parametrize("ctor", ACTIVATIONS)
@pytest.mark.parametrize("train", [True, False])
def test_activation(ctor, train):
    both(lambda nn: eval("nn." + ctor, {"nn": nn}), data(1, 6, 4), train=train)


@pytest.mark.parametrize("ctor", ["ReLU(True)", "ELU(inplace=True)", "LeakyReLU(0.1,True)", "Hardtanh(inplace=True)",
                                  "SiLU(True)", "Dropout(0.5,True)"])
def test_inplace_activation(ctor):
    def program(T):
        T.manual_seed(0)
        m = eval("T.nn." + ctor, {"T": T})
        x = T.tensor(data(1, 5, 3), requires_grad=True)
        h = x * 2
        y = m(h)
        y.sum().backward()
        try:
            m(T.tensor(data(1, 2), requires_grad=True))
        except RuntimeError:
            return h, y is h, x.grad, "a leaf may not be written"
        return h, y is h, x.grad
    same(program, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("ctor, shape", [("Dropout(0.3)", (7, 5)), ("Dropout(0.0)", (4,)), ("Dropout(1.0)", (4,)),
                                         ("Dropout1d(0.5)", (4, 3, 5)), ("Dropout2d(0.5)", (4, 3, 2, 2)),
                                         ("Dropout3d(0.5)", (2, 3, 2, 2, 2)), ("AlphaDropout(0.3)", (6, 5)),
                                         ("FeatureAlphaDropout(0.4)", (4, 5, 3))])
def test_dropout(ctor, shape, train):
    both(lambda nn: eval("nn." + ctor, {"nn": nn}), data(1, *shape), train=train)


RESHAPERS = [
    ("PixelShuffle(2)", (2, 8, 3, 2)), ("PixelUnshuffle(2)", (1, 2, 4, 6)), ("ChannelShuffle(2)", (2, 4, 3)),
    ("Upsample(scale_factor=2)", (1, 2, 3)), ("Upsample(size=5,mode='linear')", (1, 2, 3)),
    ("Upsample(scale_factor=1.5,mode='bilinear',align_corners=True)", (1, 2, 4, 3)),
    ("Upsample(scale_factor=(2,3),mode='bicubic')", (1, 1, 3, 4)),
    ("UpsamplingNearest2d(scale_factor=2)", (1, 1, 2, 3)), ("UpsamplingBilinear2d(size=(4,5))", (1, 1, 2, 3)),
    ("Unfold((2,3),padding=1,stride=2)", (1, 2, 4, 5)), ("Fold((4,5),2)", (1, 8, 12)),
    ("Fold((4,4),2,stride=2)", (1, 4, 4)), ("ReflectionPad1d((1,2))", (2, 3, 4)), ("ReflectionPad2d(1)", (1, 2, 3, 3)),
    ("ReflectionPad3d(1)", (1, 1, 2, 3, 2)), ("ReplicationPad2d((1,0,2,1))", (1, 2, 3, 3)), ("ZeroPad1d(2)", (1, 3)),
    ("ZeroPad2d((1,-1,0,2))", (1, 2, 3, 3)), ("ConstantPad3d(1,2.5)", (1, 1, 2, 2, 2)),
    ("CircularPad1d((1,2))", (1, 2, 4)), ("CircularPad2d(1)", (1, 2, 3, 3)), ("CircularPad3d(1)", (1, 1, 2, 2, 2)),
    ("CircularPad2d(1)", (2, 2)), ("ReflectionPad1d(5)", (1, 2, 3)),
]


@pytest.mark.parametrize("ctor, shape", RESHAPERS, ids=lambda v: str(v).replace(" ", ""))
def test_shape_layers(ctor, shape):
    both(lambda nn: eval("nn." + ctor, {"nn": nn}), data(1, *shape))


@pytest.mark.parametrize("ctor", ["CosineSimilarity()", "CosineSimilarity(0,1e-3)", "PairwiseDistance()",
                                  "PairwiseDistance(1,keepdim=True)",
                                  "PairwiseDistance(3.0)"])
def test_distance(ctor):
    both(lambda nn: eval("nn." + ctor, {"nn": nn}), data(1, 4, 3), data(2, 4, 3))


# ------------------------------------------------------------------ embeddings
@pytest.mark.parametrize("kwargs", [{}, {"padding_idx": 1}, {"padding_idx": -1}, {"max_norm": 1.0},
                                    {"max_norm": 1.0, "norm_type": 1.0},
                                    {"scale_grad_by_freq": True}, {"padding_idx": 9}])
def test_embedding(kwargs):
    both(lambda nn: nn.Embedding(5, 3, **kwargs), np.array([[0, 1, 4], [1, 1, 2]]))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("kwargs", [{}, {"padding_idx": 1}, {"include_last_offset": True}])
def test_embedding_bag(mode, kwargs):
    offsets = np.array([0, 2, 2, 5]) if "include_last_offset" not in kwargs else np.array([0, 2, 2, 6])
    both(lambda nn: nn.EmbeddingBag(5, 3, mode=mode, **kwargs), np.array([0, 1, 4, 1, 1, 2]), offsets)
    if "include_last_offset" not in kwargs:
        both(lambda nn: nn.EmbeddingBag(5, 3, mode=mode, **kwargs), np.array([[0, 1, 4], [1, 1, 2]]))


def test_from_pretrained():
    def program(T):
        w = T.tensor(data(1, 4, 2))
        e = T.nn.Embedding.from_pretrained(w, padding_idx=2)
        b = T.nn.EmbeddingBag.from_pretrained(w, freeze=False)
        return e.weight, e.weight.requires_grad, b.weight.requires_grad, e(T.tensor([3, 2])), repr(e), repr(b)
    same(program)
    same(lambda T: T.nn.Embedding.from_pretrained(T.ones(3)))
    same(lambda T: T.nn.Embedding(3, 2, _weight=T.ones(2, 2)))


# ------------------------------------------------------------------ losses
X, Y = data(1, 5, 4), data(2, 5, 4)
P = 1 / (1 + np.exp(-X))
B = (Y > 0).astype(np.float32)
C = np.array([0, 3, 1, 1, 2])
SIGN = np.sign(Y[:, 0]).astype(np.float32)
LOSSES = [
    ("L1Loss", {}, (X, Y)), ("MSELoss", {}, (X, Y)), ("SmoothL1Loss", {"beta": 0.5}, (X, Y)),
    ("HuberLoss", {"delta": 0.7}, (X, Y)), ("BCELoss", {}, (P, B)), ("BCEWithLogitsLoss", {}, (X, B)),
    ("KLDivLoss", {}, (np.log(P), P)), ("KLDivLoss", {"log_target": True}, (X, Y)), ("NLLLoss", {}, (X, C)),
    ("NLLLoss", {"ignore_index": 1}, (X, C)), ("CrossEntropyLoss", {}, (X, C)), ("CrossEntropyLoss", {}, (X, P)),
    ("CrossEntropyLoss", {"label_smoothing": 0.2, "ignore_index": 3}, (X, C)), ("PoissonNLLLoss", {}, (X, np.abs(Y))),
    ("PoissonNLLLoss", {"log_input": False, "full": True}, (np.abs(X), np.abs(Y) + 1)),
    ("GaussianNLLLoss", {}, (X, Y, np.abs(Y))), ("GaussianNLLLoss", {"full": True}, (X, Y, np.abs(Y[:, 0]))),
    ("HingeEmbeddingLoss", {"margin": 0.5}, (X, np.sign(Y))), ("SoftMarginLoss", {}, (X, np.sign(Y))),
    ("MultiLabelSoftMarginLoss", {}, (X, B)), ("MultiMarginLoss", {"p": 2}, (X, C)), ("MultiMarginLoss", {}, (X, C)),
    ("MultiLabelMarginLoss", {}, (X, np.array([[0, 2, -1, 1]] * 5))),
    ("CosineEmbeddingLoss", {"margin": 0.1}, (X, Y, SIGN)),
    ("MarginRankingLoss", {"margin": 0.3}, (X[:, 0], Y[:, 0], SIGN)),
    ("TripletMarginLoss", {"swap": True}, (X, Y, data(3, 5, 4))),
    ("TripletMarginWithDistanceLoss", {}, (X, Y, data(3, 5, 4))),
]


# Losses that also have gradients with respect to inputs after the first.
DIFFERENTIABLE = {"L1Loss": 2, "MSELoss": 2, "SmoothL1Loss": 2, "HuberLoss": 2, "KLDivLoss": 2, "BCEWithLogitsLoss": 2,
                  "CrossEntropyLoss": 2, "GaussianNLLLoss": 3, "CosineEmbeddingLoss": 2, "MarginRankingLoss": 2,
                  "TripletMarginLoss": 3, "TripletMarginWithDistanceLoss": 3}


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name, kwargs, inputs", LOSSES, ids=[f"{n}-{k}" for n, k, _ in LOSSES])
def test_loss(name, kwargs, inputs, reduction):
    both(lambda nn: getattr(nn, name)(reduction=reduction, **kwargs), *inputs, grad=DIFFERENTIABLE.get(name, 1))


@pytest.mark.parametrize("name", ["NLLLoss", "CrossEntropyLoss", "MultiMarginLoss"])
def test_weighted_loss(name):
    def program(T):
        m = getattr(T.nn, name)(weight=T.tensor([1.0, 2.0, 0.5, 0.1]))
        return m(T.tensor(X), T.tensor(C)), m.state_dict()
    same(program, rtol=1e-5)


def test_binary_weights():
    def program(T):
        w = T.tensor([1.0, 2.0, 0.5, 0.1])
        return (T.nn.BCELoss(w)(T.tensor(P), T.tensor(B)),
                T.nn.BCEWithLogitsLoss(w, pos_weight=w)(T.tensor(X), T.tensor(B)),
                T.nn.MultiLabelSoftMarginLoss(w)(T.tensor(X), T.tensor(B)))
    same(program, rtol=1e-5)


@pytest.mark.parametrize("size_average, "
                         "reduce", [(True, None), (False, None), (None, False), (True, True), (False, False)])
def test_deprecated_reductions(size_average, reduce):
    same(lambda T: T.nn.MSELoss(size_average, reduce)(T.tensor(X), T.tensor(Y)), rtol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc(reduction):
    logp = np.log(np.exp(data(1, 6, 2, 5)) / np.exp(data(1, 6, 2, 5)).sum(-1, keepdims=True))
    both(lambda nn: nn.CTCLoss(reduction=reduction, zero_infinity=True), logp, np.array([[1, 2, 2], [3, 1, 4]]),
         np.array([6, 4]), np.array([3, 2]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kwargs", [{}, {"bias": True, "label_smoothing": 0.1}, {"out_features": (2,)},
                                    {"reduction": "sum", "ignore_index": 1}])
def test_linear_cross_entropy(kwargs):
    target = np.stack([C, C[::-1]], 1) if "out_features" in kwargs else C
    both(lambda nn: nn.LinearCrossEntropyLoss(3, 4, **kwargs), data(1, 5, 3), target)


def test_adaptive_log_softmax():
    both(lambda nn: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0), data(1, 6, 8),
         np.array([1, 12, 3, 19, 5, 4]))
    both(lambda nn: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0), data(1, 8), np.array(7))
    both(lambda nn: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10]), data(1, 2, 8), np.array([1, 20]))

    def program(T):
        T.manual_seed(1)
        m = T.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0, head_bias=True)
        return m.log_prob(T.tensor(data(1, 3, 8))), m.predict(T.tensor(data(2, 9, 8)))
    same(program, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ recurrent
@given(st.sampled_from(["RNN", "LSTM", "GRU"]), st.integers(1, 3), st.integers(2, 4), st.integers(1, 2), st.booleans(),
       st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.integers(1, 4))
@settings(max_examples=40)
def test_rnn(cls, i, h, layers, bias, batch_first, bidirectional, batched, with_state, steps):
    kw = {"num_layers": layers, "bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
    shape = ((2, steps) if batch_first else (steps, 2)) if batched else (steps,)
    state = (layers * (1 + bidirectional), *([2] if batched else []), h)
    hx = []
    if with_state:
        hx = [(data(5, *state), data(6, *state)) if cls == "LSTM" else data(5, *state)]
    both(lambda nn: getattr(nn, cls)(i, h, **kw), data(1, *shape, i), *hx)


@pytest.mark.parametrize("kwargs", [{"nonlinearity": "relu"}, {"nonlinearity": "tanh", "num_layers": 2}])
def test_elman(kwargs):
    both(lambda nn: nn.RNN(3, 4, **kwargs), data(1, 5, 2, 3))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_lstm_projection(bidirectional):
    both(lambda nn: nn.LSTM(3, 4, 2, proj_size=2, bidirectional=bidirectional), data(1, 5, 2, 3))


@pytest.mark.parametrize("train", [True, False])
def test_rnn_dropout(train):
    both(lambda nn: nn.LSTM(3, 4, 3, dropout=0.4), data(1, 5, 2, 3), train=train)


@pytest.mark.parametrize("cls", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("enforce_sorted", [False, True])
def test_packed(cls, bidirectional, enforce_sorted):
    def program(T):
        T.manual_seed(3)
        m = getattr(T.nn, cls)(3, 4, 2, bidirectional=bidirectional)
        x = T.tensor(data(1, 5, 4, 3), requires_grad=True)
        lengths = [5, 3, 3, 1] if enforce_sorted else [3, 1, 5, 3]
        packed = T.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)
        out, hn = m(packed)
        padded, n = T.nn.utils.rnn.pad_packed_sequence(out, padding_value=7.0)
        (padded.sum() + sum(s.square().sum() for s in (hn if cls == "LSTM" else (hn,)))).backward()
        return padded, n, hn, x.grad, [p.grad for p in m.parameters()], out.batch_sizes
    same(program, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cls", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("with_state", [True, False])
def test_cell(cls, batched, with_state):
    lead = [2] if batched else []
    h = data(4, *lead, 4)
    state = [(h, data(5, *lead, 4)) if cls == "LSTMCell" else h] if with_state else []
    both(lambda nn: getattr(nn, cls)(3, 4, bias=batched), data(1, *lead, 3), *state)


BAD_RNN_INPUTS = [
    ((5, 2, 7), None), ((5, 2, 3, 1), None), ((5, 2, 3), (1, 3, 4)), ((5, 3), (1, 2, 4)), ((5, 2, 3), (1, 4)),
    ((5,), None), ((0, 2, 3), None), ((5, 2, 3), (1, 2, 5)),
]


@pytest.mark.parametrize("cls", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("shape, state", BAD_RNN_INPUTS)
def test_rnn_refusals(cls, shape, state):
    def program(T):
        hx = None if state is None else T.zeros(state)
        return getattr(T.nn, cls)(3, 4)(T.zeros(shape), (hx, hx) if cls == "LSTM" and hx is not None else hx)
    same(program)


def test_rnn_weights_follow_the_attributes():
    def program(T):
        m = T.nn.GRU(2, 2)
        with T.no_grad():
            for p in m.parameters():
                p.fill_(0.1)
        m.weight_hh_l0 = T.nn.Parameter(T.full((6, 2), 0.3))
        n = copy.deepcopy(m)
        n.weight_ih_l0.data.mul_(2)
        x = T.tensor(data(1, 3, 1, 2))
        return m(x), n(x), m.double()(x.double()), [len(w) for w in m.all_weights], m._flat_weights_names
    same(program, rtol=1e-5, atol=1e-6)


def test_second_derivative_through_lstm():
    def program(T):
        T.manual_seed(0)
        m = T.nn.LSTM(2, 3).double()
        x = T.tensor(data(1, 3, 1, 2, dtype="float64"), requires_grad=True)
        g, = T.autograd.grad(m(x)[0].sum(), x, create_graph=True)
        g.square().sum().backward()
        return g, x.grad
    same(program, rtol=1e-5, atol=1e-8)


# ------------------------------------------------------------------ attention
@given(st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans(),
       st.sampled_from([None, "bool", "float", "3d"]), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=40)
def test_attention(bias, bias_kv, zero, batch_first, other_dims, mask, padding, weights, batched):
    kw = {"bias": bias, "add_bias_kv": bias_kv, "add_zero_attn": zero, "batch_first": batch_first}
    kd, vd = (3, 5) if other_dims else (4, 4)
    if other_dims:
        kw.update(kdim=3, vdim=5)

    def shape(n, e):
        return ((2, n, e) if batch_first else (n, 2, e)) if batched else (n, e)
    options = {"need_weights": weights}
    if mask == "bool":
        options["attn_mask"] = np.triu(np.ones((3, 4), bool), 2)
    elif mask == "float":
        options["attn_mask"] = data(7, 3, 4)
    elif mask == "3d":
        options["attn_mask"] = data(7, 4 if batched else 2, 3, 4)
    if padding:
        options["key_padding_mask"] = np.array([[False, False, True, True],
                                                [False] * 4])[0 if not batched else slice(None)]
    # Masks are constants here: gradients with respect to masks are not tested.
    both(lambda nn: _MasksAsConstants(nn, nn.MultiheadAttention(4, 2, **kw), options), data(1, *shape(3, 4)),
         data(2, *shape(4, kd)), data(3, *shape(4, vd)))


def _MasksAsConstants(nn, attention, options):
    T = real if isinstance(attention, real.nn.Module) else mine

    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = attention

        def forward(self, q, k, v):
            return self.attention(q, k, v, **{n: T.tensor(x) if isinstance(x, np.ndarray) else x for n,
                                              x in options.items()})
    return Wrapper()


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("kwargs", [{}, {"batch_first": True}, {"norm_first": True, "activation": "gelu"},
                                    {"bias": False}])
def test_transformer_layers(kwargs, train):
    both(lambda nn: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, **kwargs), data(1, 3, 2, 4), train=train,
         rtol=1e-3, atol=1e-4)
    both(lambda nn: nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, **kwargs), data(1, 3, 2, 4),
         data(2, 5, 2, 4) if not kwargs.get(
        "batch_first") else data(2, 3, 5, 4), train=train, rtol=1e-3, atol=1e-4)


def test_transformer():
    both(lambda nn: nn.Transformer(4, 2, 1, 2, 8, dropout=0.0), data(1, 3, 2, 4), data(2, 4, 2, 4), rtol=1e-3,
         atol=1e-4)
    both(lambda nn: nn.Transformer(4, 2, 1, 1, 8, dropout=0.0, batch_first=True, norm_first=True), data(1, 2, 3, 4),
         data(2, 2, 5, 4), rtol=1e-3, atol=1e-4)
    same(lambda T: T.nn.Transformer.generate_square_subsequent_mask(3))
    both(lambda nn: nn.Transformer(4, 2, 1, 1, 8), data(1, 3, 2, 4), data(2, 4, 3, 4))
    both(lambda nn: nn.Transformer(4, 2, 1, 1, 8), data(1, 3, 2, 4), data(2, 4, 2, 5))


def test_transformer_dropout_from_the_seed():
    both(lambda nn: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True), data(1, 2, 3, 4), rtol=1e-3,
         atol=1e-4)


@pytest.mark.parametrize("no_grad", [True, False])
@pytest.mark.parametrize("padding", [[[0, 0, 1], [0, 1, 1]], [[0, 1, 0], [0, 0, 1]]])
def test_encoder_padding(padding, no_grad):
    """Where PyTorch packs the sequences (in inference, padding at the end) its output is 0 at
    padded positions, and so is ours."""
    def program(T):
        T.manual_seed(0)
        enc = T.nn.TransformerEncoder(T.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2).eval()
        with T.set_grad_enabled(not no_grad):
            return enc(T.tensor(data(1, 2, 3, 4)), src_key_padding_mask=T.tensor(padding).bool()).detach()

    def values(T):
        import warnings
        with warnings.catch_warnings():
            # PyTorch warns about the prototype stage of nested tensors
            warnings.simplefilter("ignore")
            return program(T)
    same(values, rtol=1e-3, atol=1e-4)


# ------------------------------------------------------------------ seeds
INITIALISED = """
Linear(5,4) Bilinear(2,3,4) Conv1d(2,4,3) Conv2d(4,6,(2,3),groups=2) Conv3d(1,2,2) ConvTranspose1d(4,2,3)
ConvTranspose2d(4,2,3,groups=2) ConvTranspose3d(2,2,2) Embedding(7,3) Embedding(7,3,padding_idx=2) EmbeddingBag(20,3)
RNN(3,4,2) LSTM(3,4,2,bidirectional=True) LSTM(3,4,proj_size=2) GRU(3,4) RNNCell(3,4) LSTMCell(3,4)
GRUCell(3,4,bias=False) MultiheadAttention(4,2) MultiheadAttention(4,2,kdim=3,vdim=5,add_bias_kv=True)
TransformerEncoderLayer(4,2,8) TransformerDecoderLayer(4,2,8) Transformer(4,2,1,1,8)
AdaptiveLogSoftmaxWithLoss(8,20,[4,10],div_value=2.0) BatchNorm2d(3) LayerNorm(3) PReLU(3)
LinearCrossEntropyLoss(3,4,bias=True)
""".split()


@pytest.mark.parametrize("ctor", INITIALISED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_initial_weights_from_the_seed(ctor, dtype):
    def program(T):
        T.manual_seed(11)
        m = eval("T.nn." + ctor[:-1] + f", dtype=T.{dtype})", {"T": T})
        return m.state_dict(), T.rand(2)
    same(program, rtol=1e-6, atol=1e-6)
