"""make_fx of torch.func.functionalize: graphs without writes, compared with PyTorch's."""
import contextlib
import re
import warnings

import pytest
import torch as real
from hypothesis import given, settings, strategies as st
from torch.fx.experimental.proxy_tensor import make_fx as real_make_fx

import mindtorch.torch as mine
from mindtorch.torch.fx.experimental.proxy_tensor import make_fx


def graph(T, f, *args, remove="mutations"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (make_fx if T is mine else real_make_fx)(T.func.functionalize(f, remove=remove))(*args)


def view_of_input(T, x):
    y = x.view(8)
    y.add_(1)
    return x


def transposed(T, x):
    y = x.transpose(0, 1)
    y.mul_(2)
    return y


def plain(T, x) -> int:
    y = x + 1
    return y.sin_()


def filled(T, x):
    y = T.zeros(4, 2)
    y.copy_(x)
    y += 1
    return y


def piece(T, x):
    y = x.clone()
    y[1:3].add_(1)
    return y


def turned(T, x):
    y = x * 1
    y.t_()
    y.squeeze_()
    return y


def into(T, x):
    y = T.empty(4, 2)
    T.add(x, x, out=y)
    return y


def diagonal(T, x):
    y = x * 1
    y.diagonal().fill_(3)
    return y


def zeroed(T, x):
    y = x * 1
    y.zero_()
    return T.nn.functional.relu(y, inplace=True)


def two(T, x):
    y = x * 1
    z = y[:, 0]
    z.add_(1)
    y.mul_(2)
    return y, z


PROGRAMS = [view_of_input, transposed, plain, filled, piece, turned, into, diagonal, zeroed, two]


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_functionalized_graphs_match_torch(program, remove):
    def f(T):
        def run(x):
            return program(T, x)
        run.__annotations__ = {k: v for k, v in program.__annotations__.items() if k == "return"}
        return run
    codes = [graph(T, f(T), T.arange(8.0).reshape(4, 2), remove=remove).code for T in (real, mine)]
    assert codes[0] == codes[1]


# ----------------------------------------------------------- arbitrary programs of views and writes
VIEWS = {"row": lambda t: t[0], "rows": lambda t: t[1:], "column": lambda t: t[..., 0], "flat": lambda t: t.reshape(-1), "turned": lambda t: t.transpose(0, -1),
         "unsqueezed": lambda t: t.unsqueeze(0), "diagonal": lambda t: t.diagonal(0, 0, -1), "halves": lambda t: t.split(2, -1)[-1], "odd": lambda t: t[::2],
         "unbound": lambda t: t.unbind(0)[-1], "detached": lambda t: t.detach(), "newaxis": lambda t: t[None, ..., None], "narrow": lambda t: t.narrow(-1, 0, 1)}


def _store(t, o):
    t[0] = 5.0


WRITES = {"add": lambda t, o: t.add_(1), "mul": lambda t, o: t.mul_(t), "of the other": lambda t, o: t.add_(o.sum()), "zero": lambda t, o: t.zero_(),
          "fill": lambda t, o: t.fill_(2.5), "copy": lambda t, o: t.copy_(o.sum().expand(t.shape)), "item": _store, "clamp": lambda t, o: t.clamp_(0, 3),
          "iadd": lambda t, o: t.__iadd__(2)}


def runs(T, steps, x):
    """Returns the tensors of a program, or raises an error where a step does not fit."""
    faces = [x, x * 2]
    for i, view, j, write in steps:
        t = faces[i % len(faces)]
        if view is not None:
            if not t.dim() or view == "diagonal" and t.dim() < 2:
                continue
            t = VIEWS[view](t)
            faces.append(t)
        if write is not None and not (write == "item" and not t.dim()) and t.numel():
            WRITES[write](t, faces[j % len(faces)])
    return tuple(faces[1:])


STEPS = st.lists(st.tuples(st.integers(0, 5), st.none() | st.sampled_from(sorted(VIEWS)), st.integers(0, 5), st.none() | st.sampled_from(sorted(WRITES))), max_size=6)


def holds(steps, remove, want, after):
    """True if PyTorch's own graph computes what the program does."""
    x = real.arange(16.0).reshape(4, 4) * 0.25 - 1
    try:
        got = graph(real, lambda t: runs(real, steps, t), x.clone(), remove=remove)(x)
    except RuntimeError:
        return False
    return all(a.tolist() == b.tolist() for a, b in zip((*want, after), (*got, x), strict=True))


@settings(deadline=None, max_examples=30)
@given(STEPS, st.booleans())
def test_functionalized_programs_compute_the_same(steps, copies):
    x = [T.arange(16.0).reshape(4, 4) * 0.25 - 1 for T in (real, mine, mine)]
    want = runs(real, steps, x[0])
    remove = "mutations_and_views" if copies else "mutations"
    if not holds(steps, remove, want, x[0]):
        # PyTorch's graph is wrong: it treats a reshape that copies as a view. Ours raises an error,
        # or is right.
        with contextlib.suppress(RuntimeError):
            graph(mine, lambda t: runs(mine, steps, t), x[1].clone(), remove=remove)
        return
    gm = graph(mine, lambda t: runs(mine, steps, t), x[1].clone(), remove=remove)
    written = [n for n in gm.graph.nodes if n.op != "placeholder" and re.fullmatch(r".*[a-z]_", getattr(n.target, "_opname", str(n.target)))]
    assert [n.target._opname for n in written] in ([], ["copy_"]), gm.code
    got = gm(x[2])
    for a, b in zip((*want, x[0]), (*got, x[2]), strict=True):
        assert a.tolist() == b.tolist(), gm.code


def test_refused():
    for f in (lambda x: x.resize_(3), lambda x: x.expand(2, 4).add_(1), lambda x: mine.aminmax(x, dim=0, out=(mine.empty(()), mine.empty(())))):
        with pytest.raises((NotImplementedError, RuntimeError)):
            graph(mine, f, mine.ones(4))


def test_functionalize_runs_eagerly():
    for T in (real, mine):
        x = T.zeros(2, 2)
        y = T.func.functionalize(lambda t: t.view(4).add_(1))(x)
        assert y.tolist() == [1, 1, 1, 1] and x.tolist() == [[1, 1], [1, 1]]
