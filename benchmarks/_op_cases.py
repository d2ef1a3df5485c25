"""Ops of ops.py, each written once for both libraries, on named inputs of three sizes.

`CASES` is {name: Case}. A case names its inputs (see `Inputs`) and makes the timed function from a
torch namespace.
"""
import numpy as np

SIZES = ("small", "medium", "large")
#: Dimensions of the inputs: `n`, side of a matrix; `m`, side of a matrix for linear algebra;
#: `image`, (batch, channels, side); `attention`, (batch, heads, tokens, width); `batch`, (number,
#: side) of matrices; `boxes`, number of boxes.
_SHAPES = {"small": {"n": 16, "m": 8, "image": (1, 4, 8), "attention": (1, 2, 8, 8), "batch": (2, 8), "boxes": 4},
           "medium": {"n": 256, "m": 64, "image": (4, 16, 32), "attention": (4, 4, 64, 32), "batch": (8, 64), "boxes": 64},
           "large": {"n": 1024, "m": 256, "image": (16, 64, 32), "attention": (4, 8, 128, 64), "batch": (16, 256), "boxes": 512}}


class Inputs:
    """Named arrays of one size, each created once and shared by both libraries.

    - x, z: normal, (n, n). p, y: in (0.5, 1.5). q: in (-0.9, 0.9). mask: bool.
    - r, v: normal, (n,). col: normal, (n, 1). w: weights, (n, n).
    - k, l: int64 in [0, n), of shapes (n, n) and (n,). i: int64 in [1, 100). perm: a permutation.
    - lo: sorted, (n,). half, bf: like p, as float16 and bfloat16. prob: in (0.01, 0.99). c: complex.
    - a: normal, (m, m). spd: positive definite, (m, m). rhs: (m, 4). b: a batch of matrices.
    - img: images. ker, ker1 (1x1), each (depthwise), up (transposed): convolution kernels for them.
      gam, bet: scale and bias for their channels.
    - seq, ker3: 1-d convolution. vol, kerv: 3-d convolution. cols: patches. grid: of grid_sample.
    - heads: attention. steps: (T, B, C) of a recurrence. boxes: regions of images.
    """

    def __init__(self, size):
        self.size, self.shapes, self._made = size, _SHAPES[size], {}
        self.n = self.shapes["n"]

    def __getitem__(self, name):
        if name not in self._made:
            self._made[name] = self._make(name, np.random.RandomState(sum(map(ord, name))))
        return self._made[name]

    def _make(self, name, rs):
        n, m, (b, c, h), (bb, bm) = self.n, self.shapes["m"], self.shapes["image"], self.shapes["batch"]

        def normal(*shape, by=1.0):
            return (rs.standard_normal(shape) * by).astype(np.float32)
        if name in ("p", "y", "half", "bf", "prob"):
            return (rs.rand(n, n) * (0.98 if name == "prob" else 1) + (0.01 if name == "prob" else 0.5)).astype(np.float32)
        if name == "spd":
            return (lambda a: a @ a.T / m + np.eye(m, dtype=np.float32))(normal(m, m))
        if name == "boxes":
            low = rs.rand(self.shapes["boxes"], 2) * h / 2
            return np.concatenate((rs.randint(0, b, (len(low), 1)), low, low + 1 + rs.rand(len(low), 2) * (h / 2 - 1)), 1).astype(np.float32)
        makers = {"x": lambda: normal(n, n), "z": lambda: normal(n, n), "w": lambda: normal(n, n, by=n ** -0.5), "r": lambda: normal(n), "v": lambda: normal(n),
                  "col": lambda: normal(n, 1), "q": lambda: (rs.rand(n, n) * 1.8 - 0.9).astype(np.float32), "mask": lambda: rs.rand(n, n) > 0.5,
                  "k": lambda: rs.randint(0, n, (n, n)), "l": lambda: rs.randint(0, n, n), "lo": lambda: np.sort(normal(n)),
                  "i": lambda: rs.randint(1, 100, (n, n)),
                  "perm": lambda: rs.permutation(n), "c": lambda: (normal(n, n) + 1j * normal(n, n)).astype(np.complex64),
                  "a": lambda: normal(m, m) + 2 * m ** 0.5 * np.eye(m, dtype=np.float32), "rhs": lambda: normal(m, 4),
                  "b": lambda: normal(bb, bm, bm, by=bm ** -0.5),
                  "img": lambda: normal(b, c, h, h), "ker": lambda: normal(c, c, 3, 3, by=(9 * c) ** -0.5), "ker1": lambda: normal(c, c, 1, 1, by=c ** -0.5),
                  "each": lambda: normal(c, 1, 3, 3), "up": lambda: normal(c, c, 4, 4, by=(4 * c) ** -0.5), "gam": lambda: normal(c, by=0.1) + np.float32(1),
                  "bet": lambda: normal(c), "seq": lambda: normal(b, c, h * h), "ker3": lambda: normal(c, c, 3, by=(3 * c) ** -0.5),
                  "vol": lambda: normal(b, c // 4, h // 4, h, h), "kerv": lambda: normal(c // 4, c // 4, 3, 3, 3, by=(27 * c / 4) ** -0.5),
                  "cols": lambda: normal(b, c * 9, h * h), "grid": lambda: (rs.rand(b, h, h, 2) * 2.2 - 1.1).astype(np.float32),
                  "heads": lambda: normal(*self.shapes["attention"]), "steps": lambda: normal(h, b, 4 * c)}
        return makers[name]()


class Case:
    """One op of the benchmark.

    `inputs` are the names of its inputs. `make`(t, inputs) returns the timed function. `grad`
    selects the inputs that get a gradient. `compare` is False if values are random.
    """

    def __init__(self, name, inputs, make, grad, compare, sizes, needs):
        self.name, self.inputs, self.make, self.grad, self.compare, self.sizes, self.needs = name, inputs.split(), make, grad, compare, sizes, needs

    def arguments(self, t, inputs, grad):
        """Returns the inputs as tensors of library `t`.

        With `grad`, the floating-point inputs that the case selects are leaves that require a
        gradient.
        """
        out = []
        for name in self.inputs:
            x = t.from_numpy(inputs[name].copy())
            x = x.half() if name == "half" else x.bfloat16() if name == "bf" else x
            out.append(x.requires_grad_() if grad and x.is_floating_point() and (self.grad is True or name in self.grad) else x)
        return out


CASES = {}


def case(name, inputs, make=None, grad=True, compare=True, sizes=SIZES, needs=None):
    """Adds a case.

    `make` receives (t, s), the library and the `Inputs`; without it the function is t.<name>.
    `grad` is False, True or the names of the inputs that get a gradient.
    """
    CASES[name] = Case(name, inputs, make or (lambda t, s, f=name: getattr(t, f)), grad.split() if isinstance(grad, str) else grad, compare, sizes, needs)


def each(names, inputs, **options):
    for name in names.split():
        case(name, inputs, **options)


def functional(names, inputs, **options):
    for name in names.split():
        case(name, inputs, lambda t, s, f=name: getattr(t.nn.functional, f), **options)


def F(f):
    """Returns `make` for a function of (functional namespace, *inputs)."""
    return lambda t, s: (lambda *a, F=t.nn.functional: f(F, *a))


def T(f):
    """Returns `make` for a function of (torch namespace, *inputs)."""
    return lambda t, s: (lambda *a: f(t, *a))


def M(f):
    """Returns `make` for a function of the inputs only, which uses methods and operators."""
    return lambda t, s: f


# ------------------------------------------------------------------ elementwise
each("exp log sqrt rsqrt sin cos tanh sigmoid erf log1p expm1 reciprocal", "p")
each("abs neg square atan", "x")
each("floor round sign isnan", "x", grad=False)
each("add sub mul div", "x p")
each("maximum atan2", "x z")
case("pow tensor", "p x", T(lambda t, p, x: t.pow(p, x)))
case("pow 2", "x", M(lambda x: x ** 2))
case("add number", "x", M(lambda x: x + 1.5))
case("mul number", "x", M(lambda x: x * 2.0))
case("add row", "x r", M(lambda x, r: x + r))
case("mul column", "x col", M(lambda x, c: x * c))
case("mul transposed", "x z", M(lambda x, z: x * z.t()), grad="x")
case("remainder", "x p", grad=False)
case("floor_divide int", "i k", M(lambda i, k: k // i), grad=False)
case("lerp", "x z p")
case("addcmul", "x z p")
case("clamp", "x", T(lambda t, x: t.clamp(x, -0.5, 0.5)))
case("where", "mask x z")
case("masked_fill", "x mask", M(lambda x, m: x.masked_fill(m, 0.0)))
each("eq lt", "x z", grad=False)
case("logical_and", "mask mask", grad=False)
case("add int64", "i k", M(lambda i, k: i + k), grad=False)
case("add bfloat16", "bf bf", M(lambda a, b: a + b))
case("mul float16", "half half", M(lambda a, b: a * b))
case("mul complex", "c c", M(lambda a, b: a * b), grad=False)
# ------------------------------------------------------------------ activations
functional("relu leaky_relu elu selu gelu silu mish softplus hardswish logsigmoid", "x")
case("gelu tanh", "x", F(lambda F, x: F.gelu(x, approximate="tanh")))
case("prelu", "x v", F(lambda F, x, v: F.prelu(x, v)))
case("glu", "x", F(lambda F, x: F.glu(x, 1)))
case("softmax", "x", T(lambda t, x: t.softmax(x, 1)))
case("softmax dim 0", "x", T(lambda t, x: t.softmax(x, 0)))
case("log_softmax", "x", T(lambda t, x: t.log_softmax(x, 1)))
case("dropout", "x", F(lambda F, x: F.dropout(x, 0.1, True)), compare=False)
# ------------------------------------------------------------------ reductions, scans, order
each("sum mean", "x")
case("sum dim 0", "x", M(lambda x: x.sum(0)))
case("sum dim 1", "x", M(lambda x: x.sum(1)))
case("mean dim 1", "x", M(lambda x: x.mean(1)))
case("var", "x", M(lambda x: x.var()))
case("std dim 1", "x", M(lambda x: x.std(1)))
case("prod dim 1", "p", M(lambda p: p.prod(1)), grad=False)
case("amax dim 1", "x", M(lambda x: x.amax(1)))
case("max dim 1", "x", M(lambda x: x.max(1)))
case("min", "x", M(lambda x: x.min()))
case("argmax dim 1", "x", M(lambda x: x.argmax(1)), grad=False)
case("any", "mask", M(lambda m: m.any()), grad=False)
case("count_nonzero", "mask", grad=False)
case("logsumexp", "x", T(lambda t, x: t.logsumexp(x, 1)))
case("norm", "x", T(lambda t, x: t.linalg.vector_norm(x)))
case("norm dim 1", "x", T(lambda t, x: t.linalg.vector_norm(x, dim=1)))
case("cumsum", "x", M(lambda x: x.cumsum(1)))
case("cumsum dim 0", "x", M(lambda x: x.cumsum(0)))
case("cumprod", "p", M(lambda p: p.cumprod(1)))
case("cummax", "x", M(lambda x: x.cummax(1)))
case("logcumsumexp", "x", M(lambda x: x.logcumsumexp(1)))
case("median dim 1", "x", M(lambda x: x.median(1)))
case("kthvalue", "x", M(lambda x: x.kthvalue(5, 1)))
case("topk", "x", M(lambda x: x.topk(5, 1)))
case("sort", "x", M(lambda x: x.sort(1)))
case("sort dim 0", "x", M(lambda x: x.sort(0)))
case("argsort int64", "k", M(lambda k: k.argsort(stable=True, dim=1)), grad=False)
case("unique", "i", T(lambda t, i: t.unique(i)), grad=False)
case("bincount", "i", M(lambda i: i.view(-1).bincount()), grad=False)
case("searchsorted", "lo x", T(lambda t, a, x: t.searchsorted(a, x)), grad=False)
case("histc", "x", T(lambda t, x: t.histc(x, 64, -3, 3)), grad=False)
# ------------------------------------------------------------------ indexing, copies, shapes
case("gather", "x k", M(lambda x, k: x.gather(1, k)))
case("gather dim 0", "x k", M(lambda x, k: x.gather(0, k)))
case("scatter", "x perm z", M(lambda x, p, z: x.scatter(1, p.expand_as(x), z)))
case("scatter_add", "x k z", M(lambda x, k, z: x.scatter_add(1, k, z)))
case("index_select", "x l", M(lambda x, i: x.index_select(0, i)))
case("index_select dim 1", "x l", M(lambda x, i: x.index_select(1, i)))
case("index_add", "x l z", M(lambda x, i, z: x.index_add(0, i, z)))
case("index_add dim 1", "x l z", M(lambda x, i, z: x.index_add(1, i, z)))
case("index rows", "x l", M(lambda x, i: x[i]))
case("index columns", "x l", M(lambda x, i: x[:, i]))
case("index mask", "x mask", M(lambda x, m: x[m]))
case("index_put accumulate", "x l z", M(lambda x, i, z: x.index_put((i,), z, accumulate=True)))
case("take_along_dim", "x k", M(lambda x, k: x.take_along_dim(k, 1)))
case("nonzero", "mask", M(lambda m: m.nonzero()), grad=False)
case("embedding", "k w", F(lambda F, k, w: F.embedding(k[:, :16], w)))
case("embedding_bag", "k w", F(lambda F, k, w: F.embedding_bag(k[:, :16], w, mode="sum")))
case("one_hot", "l", F(lambda F, i: F.one_hot(i)), grad=False)
case("tril", "x", M(lambda x: x.tril()))
case("roll", "x", M(lambda x: x.roll(3, 1)))
case("flip", "x", M(lambda x: x.flip(1)))
case("repeat", "x", M(lambda x: x.repeat(2, 2)))
case("repeat_interleave", "x", M(lambda x: x.repeat_interleave(2, 0)))
case("cat", "x z", T(lambda t, x, z: t.cat((x, z))))
case("cat dim 1", "x z", T(lambda t, x, z: t.cat((x, z), 1)))
case("stack", "x z", T(lambda t, x, z: t.stack((x, z))))
case("pad", "x", F(lambda F, x: F.pad(x, (1, 1, 2, 2))))
case("pad reflect", "img", F(lambda F, x: F.pad(x, (1, 1, 1, 1), mode="reflect")))
case("transposed copy", "x", M(lambda x: x.t().contiguous()))
case("permuted copy", "img", M(lambda x: x.permute(0, 2, 3, 1).contiguous()))
case("slice copy", "x", M(lambda x: x[:, ::2].contiguous()))
case("view", "x", M(lambda x: x.view(-1)))
case("transpose", "x", M(lambda x: x.transpose(0, 1)))
case("split", "x", M(lambda x: x.split(8, 1)[0]))
case("clone", "x", M(lambda x: x.clone()))
case("to float64", "x", M(lambda x: x.double()))
case("to bfloat16", "x", M(lambda x: x.bfloat16()))
case("from float16", "half", M(lambda x: x.float()))
case("float to int64", "x", M(lambda x: x.long()), grad=False)
# ------------------------------------------------------------------ in place
case("add_", "x p", M(lambda x, p: x.add_(p, alpha=0.0)), grad=False)
case("mul_ number", "x", M(lambda x: x.mul_(1.0)), grad=False)
case("copy_", "x z", M(lambda x, z: x.copy_(z)), grad=False)
case("zero_", "x", M(lambda x: x.zero_()), grad=False)
case("index assigned", "x z", lambda t, s: (lambda x, z: x.__setitem__(slice(1, None), z[1:])), grad=False)
# ------------------------------------------------------------------ creation, random numbers
case("zeros", "", lambda t, s: (lambda n=s.n: t.zeros(n, n)), grad=False)
case("full", "", lambda t, s: (lambda n=s.n: t.full((n, n), 2.0)), grad=False)
case("arange", "", lambda t, s: (lambda n=s.n * s.n: t.arange(n)), grad=False)
case("eye", "", lambda t, s: (lambda n=s.n: t.eye(n)), grad=False)
case("rand", "", lambda t, s: (lambda n=s.n: t.rand(n, n)), grad=False, compare=False)
case("randn", "", lambda t, s: (lambda n=s.n: t.randn(n, n)), grad=False, compare=False)
case("randint", "", lambda t, s: (lambda n=s.n: t.randint(0, 100, (n, n))), grad=False, compare=False)
case("randperm", "", lambda t, s: (lambda n=s.n * s.n: t.randperm(n)), grad=False, compare=False)
case("bernoulli", "prob", M(lambda p: p.bernoulli()), grad=False, compare=False)
case("multinomial", "prob", M(lambda p: p.multinomial(1)), grad=False, compare=False)
# ------------------------------------------------------------------ linear algebra
case("mm", "x w", M(lambda x, w: x @ w))
case("mm transposed", "x w", M(lambda x, w: x @ w.t()))
case("mv", "w v", M(lambda w, v: w @ v))
case("bmm", "b b", T(lambda t, a, b: t.bmm(a, b)))
case("addmm", "r x w", T(lambda t, r, x, w: t.addmm(r, x, w)))
case("linear", "x w r", F(lambda F, x, w, b: F.linear(x, w, b)))
case("einsum", "b b", T(lambda t, a, b: t.einsum("bij,bkj->bik", a, b)))
case("cdist", "x z", T(lambda t, x, z: t.cdist(x[:, :16], z[:, :16])))
case("cholesky", "spd", T(lambda t, a: t.linalg.cholesky(a)))
case("inv", "a", T(lambda t, a: t.linalg.inv(a)))
case("solve", "a rhs", T(lambda t, a, b: t.linalg.solve(a, b)))
case("qr", "a", T(lambda t, a: t.linalg.qr(a)[1].abs()), grad=False)
case("svdvals", "a", T(lambda t, a: t.linalg.svdvals(a)))
case("eigvalsh", "spd", T(lambda t, a: t.linalg.eigvalsh(a)))
case("det", "a", T(lambda t, a: t.linalg.slogdet(a)[1]))
# ------------------------------------------------------------------ layers
case("conv1d", "seq ker3 bet", F(lambda F, x, w, b: F.conv1d(x, w, b, padding=1)))
case("conv2d", "img ker bet", F(lambda F, x, w, b: F.conv2d(x, w, b, padding=1)))
case("conv2d 1x1", "img ker1", F(lambda F, x, w: F.conv2d(x, w)))
case("conv2d stride 2", "img ker", F(lambda F, x, w: F.conv2d(x, w, stride=2, padding=1)))
case("conv2d depthwise", "img each", F(lambda F, x, w: F.conv2d(x, w, padding=1, groups=w.shape[0])))
case("conv_transpose2d", "img up", F(lambda F, x, w: F.conv_transpose2d(x, w, stride=2, padding=1)))
case("conv3d", "vol kerv", F(lambda F, x, w: F.conv3d(x, w, padding=1)))
case("max_pool2d", "img", F(lambda F, x: F.max_pool2d(x, 2)))
case("max_pool2d 3/2", "img", F(lambda F, x: F.max_pool2d(x, 3, 2, 1)))
case("avg_pool2d", "img", F(lambda F, x: F.avg_pool2d(x, 2)))
case("adaptive_avg_pool2d", "img", F(lambda F, x: F.adaptive_avg_pool2d(x, 1)))
case("batch_norm", "img gam bet", F(lambda F, x, g, b: F.batch_norm(x, None, None, g, b, True)))
case("layer_norm", "x r v", F(lambda F, x, w, b: F.layer_norm(x, w.shape, w, b)))
case("rms_norm", "x r", F(lambda F, x, w: F.rms_norm(x, w.shape, w)))
case("group_norm", "img gam bet", F(lambda F, x, g, b: F.group_norm(x, 4, g, b)))
case("instance_norm", "img gam bet", F(lambda F, x, g, b: F.instance_norm(x, weight=g, bias=b)))
case("interpolate nearest", "img", F(lambda F, x: F.interpolate(x, scale_factor=2)))
case("interpolate bilinear", "img", F(lambda F, x: F.interpolate(x, scale_factor=2, mode="bilinear")))
case("interpolate bicubic", "img", F(lambda F, x: F.interpolate(x, scale_factor=2, mode="bicubic")))
case("unfold", "img", F(lambda F, x: F.unfold(x, 3, padding=1)))
case("fold", "cols", lambda t, s: (lambda x, h=s.shapes["image"][2]: t.nn.functional.fold(x, (h, h), 3, padding=1)))
case("grid_sample", "img grid", F(lambda F, x, g: F.grid_sample(x, g, align_corners=False)))
case("pixel_shuffle", "img", F(lambda F, x: F.pixel_shuffle(x, 2)))
case("attention", "heads heads heads", F(lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v)))
case("attention causal", "heads heads heads", F(lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)))
case("cross_entropy", "x l", F(lambda F, x, i: F.cross_entropy(x, i)))
case("mse_loss", "x z", F(lambda F, x, z: F.mse_loss(x, z)), grad="x")
case("smooth_l1_loss", "x z", F(lambda F, x, z: F.smooth_l1_loss(x, z)), grad="x")
case("bce_with_logits", "x prob", F(lambda F, x, p: F.binary_cross_entropy_with_logits(x, p)), grad="x")
case("cosine_similarity", "x z", F(lambda F, x, z: F.cosine_similarity(x, z)))


def _recurrent(kind):
    def make(t, s):
        width = 4 * s.shapes["image"][1]
        net = getattr(t.nn, kind)(width, width)
        rs = np.random.RandomState(0)
        with t.no_grad():
            for p in net.parameters():
                p.copy_(t.from_numpy((rs.standard_normal(tuple(p.shape)) * width ** -0.5).astype(np.float32)))
        return lambda x: net(x)[0]
    return make


def _batch_norm_eval(t, s):
    mean, var = t.zeros(s.shapes["image"][1]), t.ones(s.shapes["image"][1])
    return lambda x, g, b: t.nn.functional.batch_norm(x, mean, var, g, b)


case("batch_norm eval", "img gam bet", _batch_norm_eval)
case("lstm", "steps", _recurrent("LSTM"))
case("gru", "steps", _recurrent("GRU"))
# ------------------------------------------------------------------ Fourier transforms, regions
case("fft", "c", T(lambda t, x: t.fft.fft(x)), grad=False)
case("rfft", "x", T(lambda t, x: t.fft.rfft(x)), grad=False)
case("fft2", "c", T(lambda t, x: t.fft.fft2(x)), grad=False)
case("roi_align", "img boxes", lambda t, s: (lambda x, b, f=t.ops.torchvision.roi_align: f(x, b, 0.5, 7, 7, 2, False)), grad="img", needs="torchvision")
