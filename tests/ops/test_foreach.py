"""torch._foreach_* against PyTorch: every name and every kind of second operand, in place and out
of place."""
import pytest
from _both_sides import mine, real, refused, same

NAMES = sorted(n for n in dir(real) if n.startswith("_foreach_"))
RTOL = {"rtol": 2e-6, "atol": 1e-7}


def lists(T, grad=False, dtype="float32"):
    a = [T.tensor([0.3, 0.5, 0.9]), T.tensor([[0.1, 0.2], [0.4, 0.8]])]
    b = [T.tensor([0.7, 0.2, 0.4]), T.tensor([[0.6, 0.3], [0.9, 0.5]])]
    a, b = ([t.to(getattr(T, dtype)) for t in x] for x in (a, b))
    return ([t.requires_grad_() for t in a] if grad else a), b


def second(T, kind, b):
    return {"list": b, "scalar": 1.5, "scalars": [1.5, -2.0], "tensor": T.tensor(1.5)}[kind]


def arguments(T, name, kind, b):
    """Returns the arguments after the first list, chosen by the op's base name."""
    base = name[len("_foreach_"):].rstrip("_")
    if base in ("add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "pow"):
        return (second(T, kind, b),)
    if base in ("addcmul", "addcdiv"):
        return (b, b, *({"list": (), "scalar": (2.0,), "scalars": ([2.0, 3.0],), "tensor": (T.tensor([2.0, 3.0]),)}[kind]))
    if base == "lerp":
        return b, {"list": b, "scalar": 0.25, "scalars": [0.25, 0.5], "tensor": 0.75}[kind]
    if base == "copy":
        return (b,)
    if base == "mm":
        return ([T.ones(3, 2), T.ones(2, 2)],)
    return ()


def test_all_foreach_names_exist():
    assert [n for n in NAMES if not hasattr(mine, n)] == []


@pytest.mark.parametrize("kind", ["list", "scalar", "scalars", "tensor"])
@pytest.mark.parametrize("name", NAMES)
def test_values(name, kind):
    def run(T):
        a, b = lists(T)
        a = [a[1], a[1] + 1] if "_mm" in name else a
        b = [a[1], a[0]] if "_mm" in name else b
        args = (b,) if "_mm" in name else arguments(T, name, kind, b)
        r = getattr(T, name)(a, *args)
        return r, a
    if kind != "list" and not arguments(real, name, kind, lists(real)[1]):
        return
    same(run, **RTOL)


@pytest.mark.parametrize("name", ["_foreach_exp", "_foreach_mul", "_foreach_addcmul", "_foreach_lerp", "_foreach_norm", "_foreach_div",
                                  "_foreach_maximum", "_foreach_pow"])
def test_gradients(name):
    def run(T):
        a, b = lists(T, grad=True)
        out = getattr(T, name)(a, *arguments(T, name, "list", b))
        sum(t.sum() for t in out).backward()
        return [t.grad for t in a]
    same(run, **RTOL)


def test_gradient_through_writes():
    def run(T):
        a, b = lists(T, grad=True)
        x = [t * 1 for t in a]
        T._foreach_mul_(x, b)
        T._foreach_add_(x, x)
        sum((t * t).sum() for t in x).backward()
        return [t.grad for t in a]
    same(run, **RTOL)


PROGRAMS = {
    "alpha": lambda T: T._foreach_add(*lists(T), alpha=2),
    "alpha tensor": lambda T: T._foreach_add(lists(T)[0], T.tensor(2.0), alpha=3),
    "sub alpha": lambda T: T._foreach_sub(*lists(T), alpha=2),
    "keyword scalar": lambda T: T._foreach_add(lists(T)[0], scalar=2),
    "keyword scalars": lambda T: T._foreach_mul(lists(T)[0], scalars=[1, 2]),
    "keyword other": lambda T: T._foreach_mul(self=lists(T)[0], other=lists(T)[1]),
    "addcdiv scalars": lambda T: T._foreach_addcdiv(lists(T)[0], lists(T)[1], lists(T)[1], scalars=[1, 2]),
    "number to the power": lambda T: T._foreach_pow(2, lists(T)[0]),
    "norms": lambda T: (T._foreach_norm(lists(T)[0], 1, dtype=T.float64), T._foreach_norm(lists(T)[0], ord=float("inf")),
                        T._foreach_powsum(lists(T)[0], 3)),
    "integers": lambda T: (T._foreach_div([T.arange(3)], 2), T._foreach_sqrt([T.arange(3)]), T._foreach_add([T.arange(3)], [T.ones(3)])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    same(PROGRAMS[name], **RTOL)


ERRORS = {
    "empty": lambda T: T._foreach_add([], 1),
    "lengths": lambda T: T._foreach_add(lists(T)[0], lists(T)[1][:1]),
    "scalar lengths": lambda T: T._foreach_add(lists(T)[0], [1.0]),
    "vector operand": lambda T: T._foreach_add(lists(T)[0], T.tensor([2.0])),
    "mixed list": lambda T: T._foreach_add(lists(T)[0], [lists(T)[1][0], 1]),
    "packed length": lambda T: T._foreach_addcmul(*[lists(T)[0]] * 3, T.tensor([1.0])),
    "packed dim": lambda T: T._foreach_addcmul(*[lists(T)[0]] * 3, T.tensor(1.0)),
    "integer division in place": lambda T: T._foreach_div_([T.arange(3)], 2),
    "leaf": lambda T: T._foreach_add_([T.ones(2, requires_grad=True)], 1),
    "empty max": lambda T: T._foreach_max([T.ones(0)]),
    "shapes": lambda T: T._foreach_add([T.ones(2)], [T.ones(3)]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    refused(ERRORS[name])


@pytest.mark.parametrize("fn", [lambda T: T._foreach_add(3, 1), lambda T: T._foreach_add(lists(T)[0], "a"),
                                lambda T: T._foreach_add(lists(T)[0], 2, alpha=2)])
def test_type_errors(fn):
    for T in (real, mine):
        with pytest.raises(TypeError):
            fn(T)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "lerp", "addcmul", "addcdiv"])
def test_scalars_and_0d_tensors(name, in_place, dtype):
    """Compares half-precision results bitwise, and the operands that each op rejects."""
    if mine.get_default_device().type != "cpu" and dtype != "float32":
        pytest.skip("rounded by the device")
    for kind in (lambda T: 1.7, lambda T: 77, lambda T: [1.7, -.3], lambda T: T.tensor(1.7), lambda T: T.tensor(1.7, dtype=T.float64), lambda T: T.tensor(77),
                 lambda T: [T.tensor(1.7), T.tensor(-.3)], lambda T: T.tensor([1.7, -.3])):
        def run(T):
            a, b = lists(T, dtype=dtype)
            args = (b, b, kind(T)) if name.startswith("addc") else (b, kind(T)) if name == "lerp" else (kind(T),)
            try:
                r = getattr(T, f"_foreach_{name}" + "_" * in_place)(a, *args)
            except (TypeError, RuntimeError) as e:
                return type(e).__name__
            return list(a if in_place else r)
        same(run, **(RTOL if dtype == "float32" else {}))


@pytest.mark.parametrize("kind", [lambda T: 1.7, lambda T: [1.7, 2.0], lambda T: T.tensor(1.7)])
@pytest.mark.parametrize("name", ["_foreach_add", "_foreach_sub", "_foreach_add_", "_foreach_sub_"])
def test_alpha_with_scalars_and_tensors(name, kind):
    def run(T):
        try:
            return list(getattr(T, name)(lists(T)[0], kind(T), alpha=2))
        except (TypeError, RuntimeError) as e:
            return type(e).__name__
    same(run, **RTOL)
