"""Views, and in-place writes through views, as functional calls: chains of torch's view ops against
NumPy's as_strided."""
import mindspore as ms
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mindtorch.backend.mindspore.graph import _views
from mindtorch.backend.mindspore.private import bfloat16_np

BFLOAT16 = np.dtype(bfloat16_np)
DTYPES = "float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128".split()


# ------------------------------------------------------------------ views
def _step(draw, t):
    """Returns the result of a random torch view op with valid arguments."""
    whole = st.integers(0, max(t.dim() - 1, 0))
    n = t.numel()
    kinds = ["unsqueeze", "expand", "as_strided"]
    if t.dim():
        kinds += ["slice", "slice", "select", "transpose", "permute", "movedim", "unfold", "chunk", "view"]
    if t.dim() > 1:
        kinds.append("diagonal")
    kind, d = draw(st.sampled_from(kinds)), draw(whole)
    if kind == "unsqueeze":
        return t.unsqueeze(d)
    if kind == "expand":
        return t.unsqueeze(d).expand(*t.shape[:d], draw(st.integers(1, 3)), *t.shape[d:]) if n < 1000 else t
    if kind == "slice":
        a = draw(st.integers(0, t.shape[d] - 1))
        return t[(slice(None),) * d + (slice(a, draw(st.integers(a + 1, t.shape[d])), draw(st.sampled_from([1, 1, 2, 3]))),)]
    if kind == "select":
        return t.select(d, draw(st.integers(0, t.shape[d] - 1)))
    if kind == "transpose":
        return t.transpose(d, draw(whole))
    if kind == "permute":
        return t.permute(draw(st.permutations(range(t.dim()))))
    if kind == "movedim":
        return t.movedim(d, draw(whole))
    if kind == "unfold":
        return t.unfold(d, draw(st.integers(1, t.shape[d])), draw(st.integers(1, 3))) if n < 1000 else t
    if kind == "chunk":
        return draw(st.sampled_from(t.chunk(draw(st.integers(1, 3)), d)))
    if kind == "diagonal":
        return t.diagonal(draw(st.sampled_from([0, 0, 1])) if t.shape[0] > 1 and t.shape[1] > 1 else 0, 0, 1)
    if kind == "view":
        if t.is_contiguous():
            a = draw(st.sampled_from([k for k in range(1, n + 1) if n % k == 0]))
            return t.view(a, n // a)
        return t
    sizes = draw(st.lists(st.integers(1, 3), max_size=3))
    strides = [draw(st.integers(0, 7)) for _ in sizes]
    offset = draw(st.integers(0, 3))
    fits = offset + sum([(a - 1) * b for a, b in zip(sizes, strides)]) < t.untyped_storage().nbytes() // 8
    return t.as_strided(sizes, strides, offset) if fits else t


@st.composite
def views(draw):
    """Draws (sizes of the root, and sizes, strides, offset of a view)."""
    root = draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 8]), max_size=4))
    t = torch.empty(root, dtype=torch.int64)
    for _ in range(draw(st.integers(1, 4))):
        t = _step(draw, t)
        assume(t.numel())
    return tuple(root), tuple(t.shape), t.stride(), t.storage_offset()


def numbers(n, dtype, first=0):
    a = np.arange(first, first + n)
    return (a * 7 % 3 == 0) if dtype == "bool" else (a % 200).astype(BFLOAT16 if dtype == "bfloat16" else dtype)


def part(a, view):
    _, sizes, strides, offset = view
    return np.lib.stride_tricks.as_strided(a.reshape(-1)[offset:], sizes, [s * a.itemsize for s in strides])


def stored(a, view, value):
    a = a.copy()
    part(a, view)[...] = value
    return a


def once(view):
    """True if no element occurs in the view twice."""
    at = part(np.arange(np.prod(view[0], dtype=int)), view)
    return len(np.unique(at)) == at.size


# ------------------------------------------------------------------ emitters
def tensor(a):
    return ms.Tensor(a.astype(np.float32)).astype(ms.bfloat16) if a.dtype == BFLOAT16 else ms.Tensor(np.array(a))


def array(t):
    return t.astype(ms.float32).asnumpy().astype(BFLOAT16) if t.dtype == ms.bfloat16 else t.asnumpy()


def eager(op, *args):
    return op(*[tensor(a) if isinstance(a, np.ndarray) else a for a in args])


def by_numpy(op, *args):
    """Computes the primitives of either target with NumPy, as a reference."""
    name = type(op).__name__
    x = args[0]
    if name == "Reshape":
        return x.reshape(args[1])
    if name == "Slice":
        assert len(args[1]) == len(args[2]) == x.ndim
        return x[tuple([slice(a, a + n) for a, n in zip(args[1], args[2])])].copy()
    if name == "SliceExt":
        dim, start, stop, step = args[1:]
        return x[(slice(None),) * dim + (slice(start, stop, step),)].copy()
    if name == "Gather":
        return np.take(x, args[1], args[2])
    if name == "IndexSelect":
        assert args[2].ndim == 1
        return np.take(x, args[2], args[1])
    if name == "Transpose":
        return np.ascontiguousarray(x.transpose(args[1]))
    if name == "Tile":
        return np.tile(x, args[1])
    if name == "BroadcastTo":
        return np.broadcast_to(x, op.shape).copy()
    if name == "Concat":
        return np.concatenate(x, op.axis)
    if name == "Select":
        assert x.shape == args[1].shape == args[2].shape
        return np.where(*args)
    assert name == "TensorScatterUpdate", name
    r = x.copy()
    assert args[2].shape == (len(args[1]), *x.shape[1:])
    r[args[1][:, 0]] = args[2]
    return r


def check(emit, give, take, view, dtype="float32", ascend=False):
    n, sizes = int(np.prod(view[0], dtype=int)), view[1]
    a, value = numbers(n, dtype).reshape(view[0]), numbers(int(np.prod(sizes, dtype=int)), dtype, 31).reshape(sizes)
    r = take(_views.read(emit, give(a), *view, dtype, ascend))
    assert r.dtype == a.dtype and r.shape == sizes and np.array_equal(r, part(a, view))
    if once(view):
        r = take(_views.write(emit, give(a), *view, give(value), dtype, ascend))
        assert r.dtype == a.dtype and r.shape == view[0] and np.array_equal(r, stored(a, view, value))
    else:
        with pytest.raises(ValueError, match="several times"):
            _views.write(emit, give(a), *view, give(value), dtype, ascend)


@settings(max_examples=600)
@given(view=views(), ascend=st.booleans(), dtype=st.sampled_from(["float32", "int16"]))
def test_emitted_calls_compute_the_view(view, ascend, dtype):
    check(by_numpy, lambda a: a, lambda r: r, view, dtype, ascend)


@settings(max_examples=120)
@given(view=views())
def test_eager_calls_compute_the_view(view):
    check(eager, tensor, array, view)


# ------------------------------------------------------------------ number of calls
class Names:
    def __init__(self):
        self.calls = []

    def __call__(self, op, *args):
        self.calls.append(type(op).__name__)
        return f"v{len(self.calls)}"


def geometry(root, view):
    t = view(torch.empty(root))
    return tuple(root), tuple(t.shape), t.stride(), t.storage_offset()


BIG = (1000, 1000)
CALLS = [
    ((4, 6, 8), lambda x: x, "", ""),
    ((4, 6, 8), lambda x: x.view(24, 8), "Reshape", "Reshape"),
    ((4, 6, 8), lambda x: x[1], "Gather", "Reshape TensorScatterUpdate"),
    ((4, 6, 8), lambda x: x[..., 1], "Gather", "Reshape Reshape TensorScatterUpdate Reshape"),
    ((4, 6, 8), lambda x: x[1, :, 2], "Slice Reshape", "Reshape TensorScatterUpdate Reshape"),
    ((4, 6, 8), lambda x: x[1:3], "Slice", "TensorScatterUpdate"),
    ((4, 6, 8), lambda x: x[:, 2:5], "Slice", "Reshape Reshape TensorScatterUpdate Reshape"),
    ((4, 6, 8), lambda x: x[1:3, 2:5, 1:7], "Slice", None),
    ((4, 6, 8), lambda x: x[..., ::2], "Gather", None),
    ((4, 6, 8), lambda x: x.transpose(0, 1), "Transpose", "Transpose"),
    ((4, 1, 8), lambda x: x.transpose(0, 2), "Transpose", None),
    ((4, 6, 8), lambda x: x.transpose(1, 2)[:, :3], "Slice Transpose", None),
    ((4, 6, 8), lambda x: x.expand(3, 4, 6, 8), "Tile", None),
    ((4, 6, 8), lambda x: x.unsqueeze(2).expand(4, 6, 3, 8), "Reshape Tile", None),
    ((4, 6, 8), lambda x: x.diagonal(0, 1, 2), "Reshape Gather", None),
    ((4, 6, 8), lambda x: x.unfold(2, 3, 1), "Gather", None),
    ((2, 5, 12), lambda x: x.view(2, 5, 3, 2, 2).permute(2, 0, 3, 1, 4), "Reshape Transpose", "Transpose Reshape"),
    ((2, 5, 12), lambda x: x.chunk(3, -1)[1].view(2, 5, 2, 2).transpose(1, 2), "Slice Reshape Transpose", None),
    ((37,), lambda x: x[5:29].view(4, 6).t(), "Slice Reshape Transpose", None),
    ((37,), lambda x: x.as_strided((5, 3), (2, 1)), "Gather", None),
    (BIG, lambda x: x[:, 2:600], "Slice", "Slice Slice Concat"),
    (BIG, lambda x: x[1:-1, 1:-1], "Slice", "Slice Slice Concat Slice Slice Concat"),
    (BIG, lambda x: x[:, ::2], "Gather", "Reshape Gather Select"),
    (BIG, lambda x: x[::2], "Gather", "TensorScatterUpdate"),
    ((100000,), lambda x: x[7:90007].view(300, 300)[:, 1:101], "Slice Reshape Gather", None),
]


@pytest.mark.parametrize("root, view, read, write", CALLS)
def test_calls(root, view, read, write):
    where = geometry(root, view)
    emit = Names()
    _views.read(emit, "x", *where, "float32")
    assert " ".join(emit.calls) == read
    if write is not None:
        emit = Names()
        _views.write(emit, "x", *where, "y", "float32")
        assert " ".join(emit.calls) == write


@pytest.mark.parametrize("ascend", [False, True])
@pytest.mark.parametrize("root, view", [(root, view) for root, view, *_ in CALLS if root != (4, 6, 8)])
def test_large_roots(root, view, ascend):
    check(by_numpy, lambda a: a, lambda r: r, geometry(root, view), "int64", ascend)


@pytest.mark.parametrize("n", [8, 9, 10])
def test_many_dimensions(n, tmp_path):
    cases = [geometry((2,) * n, view) for view in (
        lambda x: x.permute(*range(n - 1, -1, -1)), lambda x: x[(slice(None), slice(1, 2)) * (n // 2)], lambda x: x.transpose(0, 3)[..., 1],
        lambda x: x.unsqueeze(3).expand(*x.shape[:3], 3, *x.shape[3:]), lambda x: x.diagonal(0, 3, 4), lambda x: x.view(-1, *x.shape[3:])[1:-1, ..., 1:])]
    cases += [geometry((5,) + (2,) * n, lambda x: x[::2, ..., :1]), geometry((2,) * (n - 1) + (2000,), lambda x: x[..., 1:-1])]
    for view in cases:
        for ascend in (False, True):
            check(by_numpy, lambda a: a, lambda r: r, view, "int64", ascend)
    _in_a_graph(cases, "float32", tmp_path)


def test_no_elements():
    for view in (((3, 4), (0, 2), (4, 1), 0), ((0, 4), (2, 0), (4, 1), 0), ((0, 4), (0, 4), (4, 1), 0)):
        for ascend in (False, True):
            check(by_numpy, lambda a: a, lambda r: r, view, "float32", ascend)
        check(eager, tensor, array, view)


def test_refused():
    with pytest.raises(ValueError, match="leaves its memory"):
        _views.read(eager, None, (4,), (3,), (1,), 2)
    with pytest.raises(ValueError, match="leaves its memory"):
        _views.read(eager, None, (4,), (3,), (-1,), 3)
    with pytest.raises(ValueError, match="several times"):
        _views.write(eager, None, (4,), (3, 4), (0, 1), 0, None)
    with pytest.raises(ValueError, match="several times"):
        _views.write(eager, None, (4,), (2, 3), (1, 1), 0, None)


# ------------------------------------------------------------------ in a graph
class Source:
    """Emits calls as lines of a method that MindSpore's compiler reads from a file."""

    def __init__(self):
        self.lines, self.attributes = [], {}

    def said(self, a):
        if isinstance(a, tuple):
            return "(" + "".join([self.said(b) + ", " for b in a]) + ")"
        if isinstance(a, (int, str)):
            return str(a)
        name = f"a{len(self.attributes)}"
        self.attributes[name] = tensor(a) if isinstance(a, np.ndarray) else a
        return f"self.{name}"

    def __call__(self, op, *args):
        call = self.said(op)
        self.lines.append(f"    v{len(self.lines)} = {call}({', '.join([self.said(a) for a in args])})")
        return f"v{len(self.lines) - 1}"

    def compiled(self, folder, names, results):
        path = folder / "graph.py"
        path.write_text("\n".join([f"def construct(self, {', '.join(names)}):", *self.lines, f"    return ({''.join([r + ', ' for r in results])})", ""]))
        scope = {"__name__": __name__}  # the compiler imports it
        exec(compile(path.read_text(), path, "exec"), scope)
        cell = type("Graph", (ms.nn.Cell,), {"construct": ms.jit(scope["construct"], capture_mode="ast", jit_level="O0")})()
        for name, a in self.attributes.items():
            setattr(cell, name, a)
        return cell


KINDS = [((4, 6), lambda x: x[:, 2:5]), ((4, 6), lambda x: x.t()), ((4, 6), lambda x: x.t()[1:4].unsqueeze(1).expand(3, 2, 4)), ((4, 6), lambda x: x[:, ::2]),
         ((4, 6), lambda x: x.diagonal()), ((4, 6), lambda x: x.view(2, 12)[1]), ((40, 60), lambda x: x[1:-1, 1:-1]), ((40, 60), lambda x: x[:, ::2]),
         ((4, 6), lambda x: x[1, 2]), ((40, 60), lambda x: x.t()[1:59]), ((2, 3, 4), lambda x: x.unfold(2, 2, 1)), ((), lambda x: x.expand(2, 3))]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_in_a_graph(dtype, tmp_path):
    _in_a_graph([geometry(*k) for k in KINDS], dtype, tmp_path)


def _in_a_graph(cases, dtype, folder):
    emit, given, names, results, wants = Source(), [], [], [], []
    for i, view in enumerate(cases):
        a, value = [numbers(int(np.prod(s, dtype=int)), dtype, k).reshape(s) for s, k in ((view[0], 0), (view[1], 31))]
        given += [tensor(a), tensor(value)]
        names += [f"x{i}", f"y{i}"]
        results.append(_views.read(emit, f"x{i}", *view, dtype))
        wants.append(part(a, view))
        if once(view):
            results.append(_views.write(emit, f"x{i}", *view, f"y{i}", dtype))
            wants.append(stored(a, view, value))
    for r, want in zip(emit.compiled(folder, names, results)(*given), wants, strict=True):
        r = array(r)
        assert r.dtype == want.dtype and r.shape == want.shape and np.array_equal(r, want)


@settings(max_examples=3)
@given(cases=st.lists(views(), min_size=20, max_size=20))
def test_random_views_in_a_graph(cases, tmp_path_factory):
    _in_a_graph(cases, "float32", tmp_path_factory.mktemp("graph"))
