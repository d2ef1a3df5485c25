"""Ownership of tensors by torch.func transforms, compared with PyTorch: writes to captured tensors,
printing, custom Functions, functorch's older names."""
import re
import warnings

import pytest
import torch as real

import mindtorch.functorch as older
import mindtorch.torch as mine

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import functorch as real_older
    real.func.jvp(real.sin, (real.ones(1),), (real.ones(1),))


def told(f, T, *args):
    """Returns the text of a result, or an error's class and the start of its message."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return repr(f(T, *args))
    except (RuntimeError, ValueError, TypeError, IndexError) as e:
        return type(e).__name__, re.sub(r"\(aten::.*?\)|\(Tensor\..*?\)", "", str(e))[:60]


def alike(f, *args):
    a, b = told(f, real, *args), told(f, mine, *args)
    assert a == b
    return a


# -------------------------------------------------- writes: programs over x and a captured tensor c
WRITES = {
    "copy_": lambda T, x, c: c.copy_(x), "add_ of a number": lambda T, x, c: c.add_(1), "relu_": lambda T, x, c: T.relu_(c),
    "item": lambda T, x, c: c.__setitem__(0, 1.0) or c, "view": lambda T, x, c: c.view(3, 1).mul_(2), "row": lambda T, x, c: c[0].copy_(x[0]),
    "detach": lambda T, x, c: c.detach().add_(1), "data": lambda T, x, c: c.data.add_(1), "split": lambda T, x, c: T.split(c, 1)[0].add_(1),
    "expand": lambda T, x, c: c.expand(2, 3)[0].add_(1), "same dtype": lambda T, x, c: c.to(T.float32).add_(1), "reshape": lambda T, x, c: c.reshape(-1).add_(1),
    "contiguous": lambda T, x, c: c.contiguous().add_(1), "broadcast": lambda T, x, c: T.broadcast_tensors(c, x)[0].add_(1), "t_": lambda T, x, c: c.t_(),
    "init": lambda T, x, c: T.nn.init.zeros_(c), "inplace": lambda T, x, c: T.nn.functional.relu(c, inplace=True),
    "no_grad": lambda T, x, c: T.no_grad()(lambda: c.add_(1))(),
    "clone": lambda T, x, c: c.clone().add_(x), "other dtype": lambda T, x, c: c.to(T.float64).add_(1), "zeros": lambda T, x, c: T.zeros(3).copy_(x),
    "row of zeros": lambda T, x, c: T.zeros(2, 3)[0].copy_(x), "result": lambda T, x, c: (x * 2).add_(x), "tensor": lambda T, x, c: T.tensor([1.0, 2, 3]).add_(x),
    "new_zeros": lambda T, x, c: x.new_zeros(3).add_(x), "legacy": lambda T, x, c: T.Tensor(3).zero_() + x, "max": lambda T, x, c: x.max(0)[0].add_(1),
    "cat": lambda T, x, c: T.cat([x, c]).mul_(2), "einsum": lambda T, x, c: T.einsum("i,i", x, x).add_(1), "input": lambda T, x, c: x.add_(1),
    "parameter": lambda T, x, c: T.nn.Parameter(T.zeros(3)).data.add_(1) + x, "module": lambda T, x, c: (T.nn.Linear(3, 3)(x) * 0).detach() + x,
    "gradient": lambda T, x, c: T.autograd.grad(x.sin().sum(), x, create_graph=True)[0].add_(1),
    "inner vjp": lambda T, x, c: T.func.vjp(T.sin, x)[1](T.ones(3))[0].add_(1), "inner grad": lambda T, x, c: T.func.grad(lambda y: y.sin().sum())(x).mul_(2),
    "inner vmap": lambda T, x, c: T.vmap(T.sin)(x).add_(1),
    "captured inside": lambda T, x, c: T.func.grad(lambda y: x.sin().add_(y).sum())(x),
    "made one level out": lambda T, x, c: (lambda z: T.func.grad(lambda y: z.add_(y).sum())(x))(x.sin()),
}


@pytest.mark.parametrize("name", WRITES)
def test_captured_tensors_are_not_modified(name):
    def run(T):
        c, x = T.tensor([4.0, 5.0, 6.0]), T.tensor([1.0, 2.0, 3.0])
        try:
            return T.func.grad(lambda y: WRITES[name](T, y, c).sum())(x)
        finally:
            seen.append(c.tolist())
    seen = []
    alike(run)
    assert seen[0] == seen[1] == [4.0, 5.0, 6.0]


def test_other_arguments_may_be_written():
    def f(T):
        x, y = T.ones(3), T.zeros(3)
        return T.func.jacrev(lambda a, b: b.copy_(a) * 2)(x, y), y, T.func.grad(lambda a, *, b: b.add_(a).sum())(x, b=y), y
    alike(f)


def test_vmap_and_captured_tensors():
    alike(lambda T: T.vmap(lambda a: a.add_(1))(T.zeros(2, 3)))
    for T in (real, mine):
        c = T.ones(3)
        for f in (lambda a: c.mul_(a), lambda a: c.copy_(a)):
            with pytest.raises(RuntimeError):
                T.vmap(f)(T.ones(2, 3) * 2)
        with pytest.raises(RuntimeError):
            T.vmap(lambda a, b: a.add_(b), (None, 0))(c, T.ones(2, 3))
        assert c.tolist() == [1, 1, 1]
    def once(T):
        c = T.zeros(3)
        return T.vmap(lambda a: c.add_(1) + a)(T.ones(2, 3)), c
    alike(once)


# --------------------------------------------------------------- properties and printing of tensors
def shows(T, found):
    c = T.tensor([7.0])

    def f(x):
        y = x.sin()
        found.extend(repr(t) for t in (x, y, T.zeros(2), x.detach(), (y.sum(),), c))
        return y.sum()
    return f


@pytest.mark.parametrize("how", ["grad", "grad grad", "vjp", "jacrev", "functionalize", "requires grad", "no_grad"])
def test_printing(how):
    def run(T):
        found = []
        f, x = shows(T, found), T.tensor(1.5)
        if how == "grad grad":
            T.func.grad(T.func.grad(lambda x: f(x) * 0 + x ** 3))(x)
        elif how == "vjp":
            T.func.vjp(f, x)
        elif how == "no_grad":
            T.func.grad(lambda x: T.no_grad()(f)(x) + x)(x)
        else:
            getattr(T.func, "grad" if how == "requires grad" else how)(f)(x.requires_grad_(how == "requires grad"))
        found += [repr(c) for c in (x, x * 2)]
        return found
    assert run(mine) == run(real)


def test_vjp_under_no_grad_is_differentiable_later():
    def run(T):
        x = T.tensor(3.0, requires_grad=True)
        with T.no_grad():
            out, pull = T.func.vjp(lambda t: t ** 2, x)
        y, = pull(T.tensor(1.0))
        return out, y.requires_grad, T.autograd.grad(y, x)
    alike(run)


INSIDE = {
    "requires_grad_": lambda T, x: x.sin().requires_grad_().sum(), "of the input": lambda T, x: x.requires_grad_().sum(),
    "retain_grad": lambda T, x: x.sin().retain_grad() or x.sum(), "backward": lambda T, x: x.sin().sum().backward() or x.sum(),
    "autograd.functional.vjp": lambda T, x: T.autograd.functional.vjp(lambda a: a.sum(), x)[1].sum(),
    "autograd.functional.jacobian": lambda T, x: T.autograd.functional.jacobian(lambda a: a.sum(), x).sum(),
    "Parameter": lambda T, x: T.nn.Parameter(T.ones(2)).sum() * x.sum(), "requires_grad=True": lambda T, x: (T.ones(3, requires_grad=True) * x).sum(),
    "saved tensor hooks": lambda T, x: T.autograd.graph.saved_tensors_hooks(lambda a: a, lambda a: a).__enter__() or x.sum(),
}


@pytest.mark.parametrize("name", INSIDE)
@pytest.mark.parametrize("how", ["grad", "jacrev"])
def test_unsupported_calls_inside_transforms_raise(name, how):
    alike(lambda T: getattr(T.func, how)(lambda x: INSIDE[name](T, x))(T.ones(3)))


def test_saved_tensor_hooks_around_transforms_raise():
    def run(T):
        with T.autograd.graph.saved_tensors_hooks(lambda a: a, lambda a: a):
            return T.func.grad(lambda x: (x * x).sum())(T.ones(3))
    assert "don't yet support" in alike(run)[1]
    assert mine.func.grad(lambda x: (x * x).sum())(mine.ones(2)).tolist() == [2, 2]


# ------------------------------------------------------------------ custom functions
def functions(T):
    class Old(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return g

    class Sine(T.autograd.Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].cos()
    return Old, Sine


@pytest.mark.parametrize("how", ["grad", "vmap", "jacrev", "hessian"])
def test_setup_context_is_needed(how):
    alike(lambda T: getattr(T.func, how)(lambda x: functions(T)[0].apply(x).sum())(T.ones(3)))
    alike(lambda T: T.vmap(functions(T)[0].apply)(T.ones(3)))


def test_generated_names():
    def run(T):
        sine, names = functions(T)[1], []
        T.func.grad(lambda x: names.append(type(sine.apply(x).grad_fn).__name__) or x.sum())(T.ones(2))
        return [*names, type(sine.apply(T.ones(2, requires_grad=True)).grad_fn).__name__]
    alike(run)


RULES = {
    "plain": lambda info, dims, x: (x.cos(), dims[0]), "unbatched": lambda info, dims, x: (x.movedim(dims[0], 0)[0], None),
    "info": lambda info, dims, x: (x * info.batch_size + len(info.randomness), dims[0]), "several": lambda info, dims, x: ((x, [x + 1]), dims[0]),
    "one return": lambda info, dims, x: x, "three": lambda info, dims, x: (x, 0, 0), "out_dims too long": lambda info, dims, x: (x, (0, 0)),
    "out_dims nested": lambda info, dims, x: (x, (None,)),
}


@pytest.mark.parametrize("name", RULES)
def test_vmap_rules(name):
    def run(T):
        rule = type("Rule", (functions(T)[1],), {"vmap": staticmethod(RULES[name])})
        x = T.arange(6.0).reshape(2, 3)
        return [T.vmap(rule.apply, d, o, randomness="same")(x) for d in (0, 1, -1) for o in ((0,) if name == "unbatched" else (0, 1))]
    alike(run)


def test_only_one_vmap_rule_is_allowed():
    def run(T, more):
        return T.vmap(type("Rule", (functions(T)[1],), more).apply)(T.ones(2, 3))
    alike(run, {})
    alike(run, {"generate_vmap_rule": True})
    alike(run, {"generate_vmap_rule": True, "vmap": staticmethod(RULES["plain"])})


# ------------------------------------------------------------------ arguments and results
RESULTS = [(), [], None, 1.0, {}, "s", "x", "x,1", "[(x,)]", "{'a': x}", "x.sum()", "(x.sum(), x)", "(x.sum(), 1)", "[x.sum(), x]", "x + 0j"]


@pytest.mark.parametrize("result", RESULTS, ids=str)
def test_results(result):
    def run(T, how, aux):
        x = T.ones(3)
        f = (lambda x: eval(result, {"x": x})) if isinstance(result, str) and "x" in result else (lambda x: result)
        if how in ("vjp", "jvp"):
            return getattr(T.func, how)(f, *((x,) if how == "vjp" else ((x,), (x,))), has_aux=aux)[0]
        return getattr(T.func, how)(f, has_aux=aux)(x)
    for how in ("grad", "vjp", "jvp", "jacrev", "jacfwd"):
        for aux in (False, True):
            alike(run, how, aux)


@pytest.mark.parametrize("argnums", [0.0, [0], (0.0,), (), (0, 0), (5,), -4, 3, (1, 0), -1, (0, -3), True], ids=str)
def test_argnums(argnums):
    def f(T):
        import importlib
        slices = importlib.import_module(T.__name__ + "._functorch.eager_transforms")._slice_argnums
        return slices((0.1, 1.1, 2.1), argnums), slices((0.1, 1.1, 2.1), argnums, as_tuple=False)
    alike(f)
    alike(lambda T: T.func.grad(lambda x, y, z: (x * y * z).sum(), argnums=argnums)(T.ones(2), T.ones(2) * 2, T.ones(2) * 3))


JVP = ["x, x", "(x,), x", "(), ()", "(x,), (x, x)", "(x,), (x[:2],)", "((x, x), 1), ((x, x), x)", "((x, x), x), ((x, x), 1)", "([],), ([],)", "[x], [x]", "(1.,), (1.,)",
       "(x,), ()", "(x.long(),), (x.long(),)"]


@pytest.mark.parametrize("given", JVP)
def test_jvp_arguments(given):
    alike(lambda T: T.func.jvp(T.sin, *eval(given, {"x": T.ones(3)})))


# ------------------------------------------------------------------ functorch
def models(T, n=2):
    class Tied(T.nn.Module):
        def __init__(self, i=0):
            super().__init__()
            self.linear = T.nn.Linear(3, 3)
            self.weight, self.again = self.linear.weight, self.linear
            self.register_buffer("shift", T.full((3,), float(i)))
            self.shift_again = self.shift
            with T.no_grad():
                for p in self.parameters():
                    p.copy_(T.arange(float(p.numel())).reshape(p.shape) + i)

        def forward(self, x):
            return self.again(self.linear(x)) @ self.weight + self.shift + self.shift_again
    return [Tied(i) for i in range(n)]


def test_make_functional():
    def run(T):
        lib = older if T is mine else real_older
        f, params, buffers = lib.make_functional_with_buffers(models(T)[1])
        assert all(p.device.type == "meta" for p in f.stateless_model.parameters())
        x = T.ones(2, 3)
        g = T.func.grad(lambda p: f(p, buffers, x).sum())(params)
        h, p = lib.make_functional(T.nn.Linear(2, 2), disable_autograd_tracking=True)
        return (f(params, buffers, x), [type(p).__name__ for p in (*params, *buffers)], f.all_names_map, f.param_names, f.buffer_names, g,
                [t.requires_grad for t in p], h.names_map, repr(f))
    alike(run)
    alike(lambda T: (older if T is mine else real_older).make_functional(models(T)[0]))


def test_combine_state_for_ensemble():
    def run(T):
        lib = older if T is mine else real_older
        f, params, buffers = lib.combine_state_for_ensemble(models(T, 3))
        return T.vmap(f, (0, 0, None))(params, buffers, T.ones(2, 3)), [p.requires_grad for p in params], [tuple(b.shape) for b in buffers]
    alike(run)
    alike(lambda T: (older if T is mine else real_older).combine_state_for_ensemble([]))
    alike(lambda T: (older if T is mine else real_older).combine_state_for_ensemble([T.nn.Linear(1, 1), T.nn.Linear(1, 1).eval()]))
    alike(lambda T: (older if T is mine else real_older).combine_state_for_ensemble([T.nn.Linear(1, 1), T.nn.Conv1d(1, 1, 1)]))


@pytest.mark.parametrize("name", ["vmap", "grad", "grad_and_value", "jacrev", "jacfwd", "hessian"])
def test_older_names_warn(name):
    for lib in (older, real_older):
        with pytest.warns(FutureWarning, match=f"`functorch.{name}` is deprecated"):
            getattr(lib, name)(mine.sin if lib is older else real.sin)


def test_reductify():
    from torch._functorch.autograd_function import reductify_leaf as theirs

    from mindtorch.torch._functorch.autograd_function import reductify_leaf as ours
    cases = [((2, 3, 4), 0, 0, 2, None), ((2, 3, 4), 0, 1, 2, None), ((2, 3, 4), 1, None, 3, None), ((3, 4), None, 1, 2, None), ((3, 4), None, 1, 2, (4,)),
             ((3, 4), None, None, 2, None), ((2, 3, 4), 0, 1, 2, (1, 1)), ((3, 4, 5, 2), 3, 0, 2, (5,))]
    for shape, *rest in cases:
        a = theirs(real.arange(1.0, real.Size(shape).numel() + 1).reshape(shape), *rest)
        b = ours(mine.arange(1.0, real.Size(shape).numel() + 1).reshape(shape), *rest)
        assert a.tolist() == b.tolist(), (shape, rest)
    assert ours(None, None, 0, 2) is theirs(None, None, 0, 2) is None


# ------------------------------------------------------------------ operators with their own rules
def operator(T):
    import importlib
    ops, c = importlib.import_module(T.__name__ + "._ops"), T._C._functorch

    class Sum(ops.HigherOrderOperator):
        def __init__(self):
            super().__init__("levels_sum")

        def __call__(self, *args):
            return super().__call__(*args)
    op, seen = Sum(), []

    @op.py_impl(c.TransformType.Vmap)
    def _vmap(interpreter, x, dim):
        seen.append(("vmap", interpreter.level()))
        if not c.is_batchedtensor(x):
            with interpreter.lower():
                return op(x, dim)
        value = c.get_unwrapped(x).movedim(c.maybe_get_bdim(x), 0)
        with interpreter.lower():
            return c._add_batch_dim(op(value, dim + 1), 0, interpreter.level())

    @op.py_impl(c.TransformType.Grad)
    def _grad(interpreter, x, dim):
        level = interpreter.level()
        seen.append(("grad", level))

        class Inner(T.autograd.function._SingleLevelFunction):
            @staticmethod
            def forward(ctx, x, dim):
                ctx.given = x.shape, dim
                x = c._unwrap_for_grad(x, level)
                with T.enable_grad(), interpreter.lower():
                    y = op(x, dim)
                return c._wrap_for_grad(y, level)

            @staticmethod
            def backward(ctx, g):
                return g.unsqueeze(ctx.given[1]).expand(ctx.given[0]), None
        with importlib.import_module(T.__name__ + "._functorch.utils").enable_single_level_autograd_function():
            return Inner.apply(x, dim)
    op.py_impl(T._C.DispatchKey.AutogradCPU)(lambda x, dim: x.sum(dim))
    return op, seen


@pytest.mark.parametrize("how", ["plain", "vmap", "grad", "grad grad", "vmap grad", "grad vmap"])
def test_higher_order_operators(how):
    def run(T):
        op, seen = operator(T)
        x, F = T.arange(6.0).reshape(2, 3), T.func
        r = {"plain": lambda: op(x, 1), "vmap": lambda: T.vmap(op, (0, None))(x, 0), "grad": lambda: F.grad(op)(x[0], 0),
             "grad grad": lambda: F.grad(lambda a: F.grad(lambda b: op(b.sin(), 0))(a).sum())(x[0]), "vmap grad": lambda: T.vmap(F.grad(op), (0, None))(x, 0),
             "grad vmap": lambda: F.grad(lambda a: T.vmap(op, (0, None))(a, 0).sum())(x)}[how]()
        return r, list(dict.fromkeys(seen))
    alike(run)


def test_batched_tensors_print_all_slices():
    def run(T):
        found = []
        x = T.arange(6.0).reshape(2, 3)
        T.vmap(lambda a: found.append(repr(a)) or a.sum())(x)
        T.vmap(T.vmap(lambda a: found.append(repr(a)) or a), 1)(x)
        T.vmap(T.func.grad(lambda a: found.append(repr(a)) or a.sum()))(x)
        T.func.grad(lambda a: T.vmap(lambda b: found.append(repr(b)) or b, 1)(a).sum())(x)
        return list(dict.fromkeys(found))
    assert run(mine) == run(real)


def test_vmap_over_gradients_of_an_outer_graph():
    """One traversal of the graph serves all slices, so it need not be retained explicitly.
    Afterwards it is freed."""
    def run(T):
        x = T.arange(6.0).reshape(2, 3).requires_grad_()
        y = (x * x).sum(1).exp().log()
        rows = T.vmap(lambda g: T.autograd.grad(y, x, g)[0])(T.eye(2))
        deep = (x.sin() * x).sum(1)
        twice = T.vmap(T.vmap(lambda g: T.autograd.grad(deep, x, g)[0]))(T.eye(2).expand(2, 2, 2))
        return rows, twice, told(lambda T: T.autograd.grad(y, x, T.ones(2)), T)
    got, want = run(mine), run(real)
    for a, b in zip(got[:2], want[:2]):
        assert real.allclose(real.tensor(a.detach().numpy()), b.detach(), atol=1e-5)
    assert got[2] == want[2] and "second time" in str(want[2])
