"""Nodes of the autograd graph against real PyTorch: saved values, edges, AccumulateGrad nodes,
hooks on saved tensors, and the state of a running backward pass."""
import gc
import weakref

import pytest
import torch as real

import mindtorch.torch as mt


def plain(x):
    """Converts tensors to lists, also inside lists and tuples."""
    if hasattr(x, "tolist"):
        return [round(v, 4) for v in x.detach().reshape(-1).tolist()]
    if isinstance(x, (tuple, list)):
        return [plain(y) for y in x]
    return x


def same(fn):
    """Checks that fn(torch) has the same value or class of error in both libraries; returns it."""
    def run(T):
        try:
            return plain(fn(T))
        except Exception as e:
            return type(e)
    want = run(real)
    assert run(mt) == want
    return want


def same_view(T):
    """Returns a Function that returns a view of its input."""
    class Same(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g
    return Same


def leaf(T, *values):
    return T.tensor(list(values) or [1., 2., 3.], requires_grad=True)


# ------------------------------------------------------------------ saved values of a node
SAVED = {
    "mul": (lambda T, a: a * T.tensor([2., 3., 4.]), "self other"), "exp": (lambda T, a: a.exp(), "result"), "sin": (lambda T, a: a.sin(), "self"),
    "tanh": (lambda T, a: a.tanh(), "result"), "div": (lambda T, a: T.tensor([2., 3., 4.]) / a, "self other"), "sigmoid": (lambda T, a: a.sigmoid(), "result"),
    "mean": (lambda T, a: a.mean(), "self_sym_sizes"), "sum": (lambda T, a: a.sum(), "self_sym_sizes"), "cumsum": (lambda T, a: a.cumsum(0), "dim"),
}


@pytest.mark.parametrize("name", SAVED)
def test_saved_values_have_torch_names(name):
    fn, names = SAVED[name]

    def all_of(T):
        y = fn(T, leaf(T))
        return [getattr(y.grad_fn, "_saved_" + n) for n in names.split()]
    assert None not in same(all_of) or name == "mul" or name == "div"


def test_saved_values_are_freed_after_backward():
    def run(T):
        y = leaf(T).exp()
        y.sum().backward()
        return y.grad_fn._saved_result
    assert same(run) is RuntimeError


@pytest.mark.parametrize("made", ["leaf", "inner"])
@pytest.mark.parametrize("power", [1, 2])
def test_hooks_on_a_saved_tensor(made, power):
    def run(T):
        a = leaf(T)
        x = a if made == "leaf" else a + 1
        y = x * x
        y.grad_fn._raw_saved_self.register_hooks(lambda t: t * 3, lambda t: t / 1.5)
        shown = y.grad_fn._saved_self
        g, = T.autograd.grad(y.sum(), a, create_graph=power == 2)
        if power == 2:
            g, = T.autograd.grad(g.sum(), a)
        return shown, g, shown.grad_fn is x.grad_fn or made == "leaf"
    same(run)


def _twice(s):
    s.register_hooks(lambda x: x, lambda x: x)
    s.register_hooks(lambda x: x, lambda x: x)


@pytest.mark.parametrize("case", [_twice, lambda s: s.register_hooks(lambda x: x), lambda s: s.register_hooks(1, 2), lambda s: s.register_hooks(lambda x: x.add_(1), id),
                                  lambda s: type(s)()], ids=["twice", "one", "no functions", "writes", "made by hand"])
def test_invalid_uses_of_a_saved_tensor_raise(case):
    def run(T):
        y = leaf(T).exp()
        case(y.grad_fn._raw_saved_result)
    assert issubclass(same(run), Exception)


def test_pack_hook_that_writes_raises():
    def run(T):
        with T.autograd.graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t):
            leaf(T).exp()
    assert same(run) is RuntimeError


def test_hooks_pushed_in_backward_are_dropped_after_it():
    packed = []

    def pack(t):
        packed.append(1)
        return t

    def scope():
        def unpack(t):
            hooks().__enter__()
            return t
        ctx = mt.autograd.graph.saved_tensors_hooks(pack, unpack)
        hooks = weakref.ref(ctx)
        with ctx:
            leaf(mt).sin().sum().backward()
        return weakref.ref(unpack)
    assert scope()() is None and len(packed) == 1
    leaf(mt).exp()
    assert len(packed) == 1


def test_saved_tensor_hooks_are_thread_local():
    import threading
    seen = []
    with mt.autograd.graph.saved_tensors_hooks(lambda t: seen.append(1) or t, lambda t: t):
        t = threading.Thread(target=lambda: leaf(mt).exp())
        t.start()
        t.join()
        assert not seen
        leaf(mt).exp()
    assert seen == [1]


def test_saved_tensor_hooks_can_be_disabled():
    def run(T):
        out = []
        for inner in False, True:
            try:
                if inner:
                    with T.autograd.graph.saved_tensors_hooks(id, id), T.autograd.graph.disable_saved_tensors_hooks("no"):
                        pass
                else:
                    with T.autograd.graph.disable_saved_tensors_hooks("no"):
                        out.append(T._C._autograd._saved_tensors_hooks_is_enabled())
                        with T.autograd.graph.saved_tensors_hooks(id, id):
                            pass
            except RuntimeError as e:
                out.append(str(e))
        return out, T._C._autograd._saved_tensors_hooks_is_enabled()
    assert same(run) == [[False, "no", "no"], True]


# ------------------------------------------------------------------ AccumulateGrad nodes
def test_hooks_on_accumulate_grad_nodes():
    """Tests order and values of all kinds of hooks, in backward and grad, with and without
    `inputs`."""
    def run(T, call):
        seen = []
        a, other = leaf(T), leaf(T)
        b = a * 2
        c = b * other
        end = b.grad_fn.next_functions[0][0]

        def note(name, change=None):
            def hook(*args):
                g = args[-1]
                seen.append((name, plain(g)))
                return change(*args) if change else None
            return hook
        b.grad_fn.register_prehook(note("node's pre", lambda gs: (gs[0] * 2,)))
        b.grad_fn.register_hook(note("node's post"))
        a.register_hook(note("tensor", lambda g: g - 1))
        end.register_prehook(note("pre", lambda gs: (gs[0] / 2,)))
        a.register_post_accumulate_grad_hook(note("accumulated"))
        end.register_hook(note("post"))
        call(T, c.sum(), a, b)
        return seen, a.grad, end.name(), len(end.next_functions), isinstance(end, T.autograd.graph.Node)
    for call in (lambda T, c, a, b: c.backward(), lambda T, c, a, b: T.autograd.grad(c, a), lambda T, c, a, b: T.autograd.grad(c, (a, b)),
                 lambda T, c, a, b: c.backward(inputs=[b]), lambda T, c, a, b: c.backward(inputs=[T.autograd.graph.get_gradient_edge(b), a]),
                 lambda T, c, a, b: c.backward(inputs=[T.autograd.graph.get_gradient_edge(b)]), lambda T, c, a, b: c.backward(inputs=[a]), lambda T, c, a, b: c.backward(inputs=[a, b]), lambda T, c, a, b: T.autograd.grad(c, b)):
        same(lambda T: run(T, call))


def test_accumulate_grad_is_unique_and_lives_with_the_graph():
    a = leaf(mt)
    y, z = a * 2, a * 3
    assert y.grad_fn.next_functions[0][0] is z.grad_fn.next_functions[0][0]
    y.grad_fn.next_functions[0][0].metadata["x"] = 1
    gc.collect()
    assert z.grad_fn.next_functions[0][0].metadata == {"x": 1}
    assert isinstance(y.grad_fn.next_functions[0][0], mt._C._functions.AccumulateGrad)
    alive = weakref.ref(y.grad_fn.next_functions[0][0])
    del y
    assert alive() is not None
    del z
    assert alive() is None


def test_post_accumulate_hook_that_returns_a_value_raises():
    def run(T):
        a = leaf(T)
        a.register_post_accumulate_grad_hook(lambda t: t.grad)
        a.sum().backward()
    assert same(run) is RuntimeError


# ------------------------------------------------------------------ edges
def test_edges_as_inputs_and_outputs():
    def run(T):
        a = leaf(T)
        b = a.exp()
        at_a, at_b = map(T.autograd.graph.get_gradient_edge, (a, b))
        c = (b * b).sum()
        to_b, to_a = T.autograd.grad(c, (at_b, at_a), retain_graph=True)
        on, = T.autograd.grad(at_b, (at_a,), grad_outputs=(to_b,), retain_graph=True)
        by_class, = T.autograd.grad(c, T.autograd.graph.GradientEdge(b.grad_fn, b.output_nr), retain_graph=True)
        T.autograd.backward(T.autograd.graph.get_gradient_edge(c), inputs=at_a)
        return to_b, to_a, on, by_class, a.grad, at_b.output_nr, at_b.node is b.grad_fn
    same(run)


def test_edge_to_the_value_before_an_inplace_op():
    def run(T):
        x = leaf(T).clone()
        edge = T.autograd.graph.get_gradient_edge(x)
        x *= 2
        return T.autograd.grad(x.sum(), (edge, x))
    same(run)


@pytest.mark.parametrize("case", [lambda T, a, e: T.autograd.grad(e, a), lambda T, a, e: T.autograd.grad(e, a, T.ones(2)), lambda T, a, e: T.autograd.grad(a.sum(), []),
                                  lambda T, a, e: T.autograd.grad(e, a, T.ones(3, dtype=T.complex64)),
                                  lambda T, a, e: T.autograd.grad(a.sum(), e, materialize_grads=True, allow_unused=True)],
                         ids=["no gradient", "shape", "no inputs", "complex", "materialize"])
def test_invalid_arguments_for_edges_raise(case):
    def run(T):
        a = leaf(T)
        return case(T, a, T.autograd.graph.get_gradient_edge(a.exp()))
    assert same(run) is RuntimeError


def test_nodes_are_callable():
    def run(T):
        a, b = leaf(T), T.ones(1, requires_grad=True)
        y = a * b
        return y.grad_fn(T.ones(3)), a.sin().grad_fn(T.ones(3)), (a + b).grad_fn(T.ones(3))
    same(run)

    def wrong(T):
        leaf(T).sin().grad_fn(1, 2)
    assert same(wrong) is TypeError


# ------------------------------------------------------------------ a running backward pass
def test_state_of_the_running_backward_is_visible():
    def run(T):
        C, out = T._C, []
        a, unused = leaf(T), leaf(T)
        b = a * unused
        c = b.exp()

        def look(g):
            out.append((C._current_graph_task_id() >= 0, C._autograd._get_current_graph_task_keep_graph(),
                        [C._will_engine_execute_node(n) for n in (b.grad_fn, c.grad_fn)]))
        b.register_hook(look)
        s = c.sum()
        s.register_hook(lambda g: out.append([n.name() for n in C._current_graph_task_execution_order()]))
        with T.autograd.set_multithreading_enabled(False):
            s.backward(retain_graph=True)
            T.autograd.grad(s, b, retain_graph=True)
            s.backward(inputs=[a])
        return out, C._current_graph_task_id(), C._current_autograd_node() is None
    same(run)


def test_queued_callbacks_run_after_backward():
    def run(T):
        order = []
        queue = T.autograd.Variable._execution_engine.queue_callback

        def more():
            order.append("first")
            queue(lambda: order.append("second"))
        a = leaf(T)
        y = a * 2
        y.register_hook(lambda g: queue(more))
        y.sum().backward()
        return order
    assert same(run) == ["first", "second"]
    with pytest.raises(RuntimeError, match="during backward"):
        mt.autograd.Variable._execution_engine.queue_callback(print)


def test_delayed_error_is_raised_in_backward():
    def run(T, inputs):
        a, b = leaf(T), leaf(T)
        c = T._C._functions.DelayedError("boom", 1)(b)
        return T.autograd.grad((a * c).sum(), [(a, b, c)[i] for i in inputs])
    assert same(lambda T: run(T, [0, 2])) is not RuntimeError
    assert same(lambda T: run(T, [0, 1])) is RuntimeError


def test_writes_that_preserve_the_version_counter():
    def run(T):
        a = leaf(T)
        x = a * 1
        y = x.exp().sum() + x.sin().sum()
        with T.no_grad(), T.autograd._unsafe_preserve_version_counter(x):
            x.mul_(2)
        y.backward()
        return a.grad, x._version
    same(run)


# ------------------------------------------------------------------ hooks on views, writes to views
def test_hooks_on_a_view_modified_in_place():
    def run(T):
        out = []

        def note(name):
            return lambda g: out.append((name, plain(g)))
        a = leaf(T)
        base = a.clone()
        view, beside = base[1:], base[:2]
        view.register_hook(note("view before"))
        beside.register_hook(note("beside before"))
        base.register_hook(note("base before"))
        view.retain_grad()
        view.mul_(2)
        view.register_hook(note("view after"))
        assert beside.grad_fn is not None
        beside.register_hook(note("beside after"))
        (base.sum() * 3 + view.sum() + beside.sum()).backward()
        return out, a.grad, view.grad
    same(run)


def test_hooks_on_unused_unbind_results_receive_none():
    def run(T):
        out, x = [], leaf(T)
        parts = x.unbind()
        parts[0].register_hook(lambda g: out.append(g))
        parts[1].backward()
        parts[0].backward()
        return out, x.grad
    assert same(run)[0][0] is None


CHANGES = {"t_": lambda v: v.t_(), "transpose_": lambda v: v.transpose_(0, -1), "squeeze_": lambda v: v.squeeze_(0), "unsqueeze_": lambda v: v.unsqueeze_(0),
           "as_strided_": lambda v: v.as_strided_((1, 2), (1, 1)), "add_": lambda v: v.add_(1), "none": lambda v: None}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("how", ["view", "several", "custom", "part"])
def test_writes_to_views(how, change):
    """Tests which views accept a write while gradients are recorded, also after a change of their
    geometry: values, gradients, errors."""
    def run(T, made, changed, wanted):
        Same = same_view(T)
        a = T.arange(6.).reshape(2, 3).requires_grad_(wanted)
        base = a.clone()
        with made(T):
            v = {"view": lambda: base.view_as(base), "several": lambda: base.unbind()[0], "custom": lambda: Same.apply(base), "part": lambda: base[:, 1:]}[how]()
        try:
            with changed(T):
                CHANGES[change](v)
            shape = tuple(v.shape)
            v.mul_(2.)
            if wanted:
                (base * T.arange(6.).reshape(2, 3)).sum().backward()
            return shape, a.grad if wanted else base, v
        except RuntimeError as e:
            return str(e).partition(".")[0]
    modes = [lambda T: T.enable_grad(), lambda T: T.no_grad()]
    # for a custom Function the error mentions no_grad there
    for made in (*modes, *[lambda T: T.inference_mode()] * (how != "custom")):
        for changed in modes:
            for wanted in (True, False):
                same(lambda T: run(T, made, changed, wanted))


def test_inference_tensors_outside_inference_mode():
    def run(T, change):
        with T.inference_mode():
            x = T.ones(2, 3)
            y = T.ones(2, 3, requires_grad=True)
        out = []
        for t in x, y:
            v = t.view(-1)
            out.append((v.requires_grad, v.is_leaf, v._is_view(), T.is_inference(v)))
        for t in x, x[0]:
            try:
                change(t)
                out.append("changed")
            except RuntimeError as e:
                out.append(str(e)[:50])
        return out
    for change in lambda t: t.add_(1), lambda t: t.unsqueeze_(0), lambda t: t.copy_(t.clone()), lambda t: t.zero_():
        same(lambda T: run(T, change))


# ------------------------------------------------------------------ writes to saved tensors
MUTATIONS = {
    "add_": lambda T, x: x.add_(1), "a view": lambda T, x: x[:1].mul_(3), "setitem": lambda T, x: x.__setitem__(0, 7.), "operator": lambda T, x: x.__imul__(2),
    "out=": lambda T, x: T.sin(T.ones(3), out=x.detach()), "copy_": lambda T, x: x.copy_(T.ones(3)), "foreach": lambda T, x: T._foreach_mul_([x], 2.),
    "fill_": lambda T, x: x.detach().fill_(2), "index": lambda T, x: x.index_fill_(0, T.tensor([1]), 5.), "nothing": lambda T, x: None,
}


@pytest.mark.parametrize("change", MUTATIONS)
@pytest.mark.parametrize("saved", [lambda x: x ** 2, lambda x: x.exp(), lambda x: x[1:].sin(), lambda x: x * x.tanh()], ids=["operand", "result", "view", "both"])
def test_mutation_of_saved_tensors_can_be_allowed(saved, change):
    """Checks that gradients equal real PyTorch's without the write."""
    def run(T, change):
        with T.autograd.graph.allow_mutation_on_saved_tensors() as ctx:
            a = leaf(T)
            x = a * 1
            y = saved(x)
            MUTATIONS[change](T, x)
            copied = len(list(ctx.cloned.items()))
            g, = T.autograd.grad(y.sum(), a, create_graph=True)
            h, = T.autograd.grad(g.sum(), a, retain_graph=True)
            again, = T.autograd.grad(y.sum(), a)
            return plain((g, h, again)), copied
    values, copied = run(mt, change)
    assert values == run(real, "nothing")[0]
    assert bool(copied) == (change not in ("nothing",)) or saved(leaf(mt)).grad_fn.name() == "ExpBackward0"


@pytest.mark.parametrize("where", ["outside", "in another", "nested"])
def test_scopes_that_allow_mutation_of_saved_tensors(where):
    def run(T):
        allow = T.autograd.graph.allow_mutation_on_saved_tensors
        with allow():
            y = leaf(T).sin().sum()
            if where == "nested":
                with allow():
                    pass
        if where == "outside":
            y.backward()
        with allow():
            y.backward()
    assert same(run) in (AssertionError, RuntimeError)
    assert not mt.autograd.graph.autograd_graph.saved_hooks


# ------------------------------------------------------------------ autograd attributes of a tensor
@pytest.mark.parametrize("name", ["data", "requires_grad", "_grad_fn", "_backward_hooks"])
def test_deleting_autograd_attributes_raises(name):
    assert same(lambda T: delattr(leaf(T), name)) is RuntimeError


def test_aliases_of_gradient_and_hooks():
    def run(T):
        x, seen = leaf(T), []
        x._grad = T.ones(3)
        first = x.grad.clone()
        (x * 2).sum().backward()
        both = x._grad.clone()
        del x._grad
        gone = x.grad
        x._backward_hooks = {0: lambda g: seen.append(plain(g))}
        y = x * 3
        y.sum().backward()
        x._backward_hooks = None
        x.sum().backward()
        y._grad_fn = None
        return first, both, gone, seen, y.requires_grad, x._grad_fn, leaf(T)._backward_hooks
    same(run)
    for wrong in lambda T: setattr(leaf(T), "_grad", T.ones(4)), lambda T: setattr(leaf(T), "requires_grad", 1), lambda T: setattr(leaf(T), "data", T.tensor([1])):
        assert same(wrong) is RuntimeError


@pytest.mark.parametrize("saved", ["operand", "result"])
@pytest.mark.parametrize("used_again", [False, True])
def test_saved_tensor_detached_in_place(saved, used_again):
    def run(T):
        a = leaf(T)
        x = a * 2 if saved == "operand" else a.exp()
        y = x.sin()
        x.detach_()
        if used_again:
            x.requires_grad_()
            return T.autograd.grad(x.sin().sum(), x)
        y.sum().backward() if saved == "operand" else None
        return a.grad, x.grad_fn
    assert (same(run) is RuntimeError) == (saved == "operand" and not used_again)


def test_numpy_without_grad():
    def run(T):
        with T.no_grad():
            return leaf(T).numpy().tolist()
    same(run)
    assert same(lambda T: leaf(T).numpy()) is RuntimeError


def test_materialized_gradients_of_edges():
    def run(T, wanted):
        x, y = leaf(T).clone(), leaf(T).clone()
        places = {"x": x, "y": y, "edge of x": T.autograd.graph.get_gradient_edge(x), "edge of y": T.autograd.graph.get_gradient_edge(y)}
        return T.autograd.grad(x.sum(), [places[w] for w in wanted], allow_unused=True, materialize_grads=True)
    for wanted in ("edge of x", "y"), ("x", "y"):
        assert same(lambda T: run(T, wanted)) is not RuntimeError
    assert same(lambda T: run(T, ("x", "edge of y"))) is RuntimeError


def test_saved_tensors_of_a_custom_function():
    def run(T, keeps):
        class Twice(T.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                if keeps:
                    ctx.save_for_backward(x, None)
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * (ctx.saved_tensors[0] if keeps else 2)
        a = leaf(T)
        y = Twice.apply(a)
        raw = y.grad_fn._raw_saved_tensors
        if keeps:
            raw[0].register_hooks(lambda t: t * 3, lambda t: t + 1)
        y.sum().backward()
        return len(raw), a.grad
    same(lambda T: run(T, True))
    same(lambda T: run(T, False))


def test_gradients_that_are_none():
    def run(T):
        a, b = leaf(T), leaf(T)
        (T._C._functions.UndefinedGrad()(a * 1) * b).sum().backward()
        return a.grad, b.grad
    same(run)


def test_copying_grad_tensors_into_views_without_grad():
    def run(T, how):
        Same = same_view(T)
        a, b = T.zeros(2, 3), leaf(T)
        v = {"custom": lambda: Same.apply(a)[0], "several": lambda: a.unbind()[0], "one": lambda: a.select(0, 0)}[how]()
        v.copy_(b)
        a.sum().backward()
        return b.grad
    for how in "custom", "several", "one":
        same(lambda T: run(T, how))


# ------------------------------------------------------------------ custom Functions and related
def passing(T, backward=lambda ctx, g: g, forward=lambda ctx, x: x, **methods):
    """Returns a Function with these methods."""
    return type("Passing", (T.autograd.Function,), {k: staticmethod(v) for k, v in dict(methods, forward=forward, backward=backward).items()})


@pytest.mark.parametrize("wants", [False, True])
@pytest.mark.parametrize("handler", [False, True])
def test_unchanged_function_result_keeps_its_subclass(handler, wants):
    def run(T):
        class Marked(T.Tensor):
            if handler:
                @classmethod
                def __torch_function__(cls, func, types, args=(), kwargs=None):
                    out = super().__torch_function__(func, types, args, kwargs or {})
                    if isinstance(out, cls):
                        out.seen = func.__name__
                    return out

        x = T.tensor([1., 2.]).as_subclass(Marked).requires_grad_(wants)
        y = passing(T).apply(x)
        assert (y is not x) and y.data_ptr() == x.data_ptr()
        return type(y) is Marked, getattr(y, "seen", None), y.requires_grad, y.grad_fn is not None, y.is_leaf
    assert same(run)[0] is True


@pytest.mark.parametrize("setting", [True, False])
def test_non_differentiable_gradients_may_stay_none(setting):
    def run(T):
        told = []

        def forward(ctx, x):
            ctx._materialize_non_diff_grads = setting
            outs = x * 2, x * 3, x * 4
            ctx.mark_non_differentiable(outs[1])
            return outs

        def backward(ctx, *gs):
            told.extend(None if g is None else g.tolist() for g in gs)
            return gs[0]
        a = leaf(T)
        passing(T, backward, forward).apply(a)[0].sum().backward()
        return told, a.grad
    same(run)


def test_node_is_a_virtual_base():
    def run(T):
        kinds = T.autograd.graph.Node, T._C._functions
        Node, functions = kinds
        a = leaf(T)
        nodes = [a.exp().grad_fn, a.exp().grad_fn.next_functions[0][0], passing(T).apply(a).grad_fn, functions.DelayedError("no", 1)]
        others = [None, 1, Node, a, functions.AccumulateGrad]
        return ([isinstance(n, Node) and issubclass(type(n), Node) and Node not in type(n).mro() for n in nodes], [isinstance(o, Node) for o in others],
                [issubclass(c, Node) for c in (Node, functions.AccumulateGrad, functions.UndefinedGrad, T.autograd.function.BackwardCFunction, int, T.Tensor)],
                nodes[3].name())
    assert same(run)[0] == [True] * 4


def test_invalidated_view_says_so_in_its_repr():
    def run(T):
        a = T.ones(2, requires_grad=True)
        with T.no_grad():
            b = a[:]
            before = repr(b)
            b *= 2
        return before, repr(b), repr(a), repr(passing(T).apply(a)).replace("Passing", "")
    texts = []
    for T in (real, mt):
        texts.append(run(T))
    assert texts[0] == texts[1] and "Invalid" in texts[1][1]


def test_dispatch_modes_see_root_and_leaf_gradients():
    def run(T):
        if T is real:
            from torch.utils._python_dispatch import TorchDispatchMode
        else:
            from mindtorch.torch.utils._python_dispatch import TorchDispatchMode
        seen = []

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                node = T._C._current_autograd_node()
                seen.append((str(func), None if node is None else type(node).__name__))
                return func(*args, **(kwargs or {}))

        a = leaf(T)
        out = (a * 2).sum()
        with Mode():
            out.backward()
        assert not T._C._current_autograd_node()
        return seen, a.grad
    seen, _ = same(run)
    assert seen[0] == ["aten.ones_like.default", None] and seen[-1] == ["aten.detach.default", "AccumulateGrad"]


def test_forward_mode_is_off_in_a_functions_forward():
    def run(T):
        fw, told = T.autograd.forward_ad, []

        def forward(x):
            told.append(fw._is_fwd_grad_enabled())
            return x * x

        def setup(ctx, inputs, output):
            told.append(fw._is_fwd_grad_enabled())

        def fails(x):
            raise KeyError
        x = leaf(T)
        passing(T, forward=forward, setup_context=setup).apply(x)
        try:
            passing(T, forward=fails, setup_context=setup).apply(x)
        except KeyError:
            told.append("failed")
        return told, fw._is_fwd_grad_enabled()
    assert same(run) == [[False, False, "failed"], True]


@pytest.mark.parametrize("jvp", [lambda t: t, lambda t: t * 2, lambda t: t.mul_(2)])
@pytest.mark.parametrize("wants", [False, True])
def test_tangent_of_a_dirty_input_is_updated_in_place(wants, jvp):
    def forward(ctx, x):
        r = x.mul_(2)
        ctx.mark_dirty(r)
        return r

    def run(T):
        fw = T.autograd.forward_ad
        with fw.dual_level():
            x = leaf(T).requires_grad_(wants).clone()
            x = fw.make_dual(x, T.ones(3))
            y = passing(T, lambda ctx, g: None, forward, jvp=lambda ctx, t: jvp(t)).apply(x)
            return y is x, fw.unpack_dual(y).tangent
    same(run)


KEEPERS = {"nothing": lambda g: None, "itself": lambda g: g, "detached": lambda g: g.detach(), "a view": lambda g: g[1:], "data": lambda g: g.data,
           "array": lambda g: g.numpy(), "storage": lambda g: g.untyped_storage(), "bits": lambda g: g.view(mt.int32), "in a list": lambda g: [g],
           "alias": lambda g: g.view_as(g), "memory": lambda g: memoryview(g.numpy()), "MindSpore's": lambda g: g.asnumpy(), "capsule": lambda g: g.__dlpack__(),
           "closure": lambda g: lambda: g}


@pytest.mark.parametrize("made", [True, False])
@pytest.mark.parametrize("keeper", KEEPERS)
def test_unaliased_function_gradient_is_stolen_by_the_leaf(keeper, made):
    kept, where = [], []

    def backward(ctx, g):
        g = g * 3 if made else g
        kept.append(KEEPERS[keeper](g))
        where.append(g.data_ptr())
        return g, None if made else g
    a, b = leaf(mt), leaf(mt)
    f = passing(mt, backward, lambda ctx, x, y: x + y)
    for _ in range(2):
        (f.apply(a, b) * 2).sum().backward()
    places = [t.grad.data_ptr() for t in (a, b) if t.grad is not None]
    assert where[0] not in places if keeper != "nothing" else places.count(where[0]) == 1
    assert a.grad.tolist() == [12.] * 3 if made else a.grad.tolist() == b.grad.tolist() == [4.] * 3


def test_root_gradient_is_not_modified():
    for T in (real, mt):
        a, g = leaf(T), T.ones(3)
        f = passing(T, forward=lambda ctx, x: x.clone())
        f.apply(a).backward(g)
        f.apply(a).backward(g)
        assert g.tolist() == [1.] * 3 and a.grad.tolist() == [2.] * 3


def test_raw_values_of_a_sparse_tensor_have_no_history():
    def run(T):
        s = T.sparse_coo_tensor([[0, 1]], T.tensor([1., 2.])).requires_grad_()
        return s._values().requires_grad, s.coalesce().values().requires_grad
    same(run)


UNHEARD = {"clone": lambda T, x: x.clone(), "exp": lambda T, x: x.exp(), "mul": lambda T, x: x * 2, "matmul": lambda T, x: x @ T.eye(3), "view": lambda T, x: x.view(9),
           "function": lambda T, x: passing(T, forward=lambda ctx, x: x.clone()).apply(x)}


@pytest.mark.parametrize("op", UNHEARD)
@pytest.mark.parametrize("by", ["undefined", "none"])
def test_hooks_receive_missing_gradients(op, by):
    """Tests hooks on tensors before and after a node: the nodes below still run, and other
    gradients are unchanged."""
    def run(T):
        told = []
        a, b = T.eye(3).requires_grad_(), T.ones(3, 3, requires_grad=True)
        a.register_hook(lambda g: told.append("leaf"))
        before = a.sin()
        y = UNHEARD[op](T, before)
        for name, t in (("before", before), ("y", y)):
            t.register_hook(lambda g, name=name: told.append((name, g is None)))
        y.grad_fn.register_prehook(lambda gs: told.append(("pre", [g is None for g in gs])))
        before.grad_fn.register_hook(lambda gi, go: told.append(("post", [g is None for g in gi], [g is None for g in go])))
        if by == "undefined":
            (T._C._functions.UndefinedGrad()(y).sum() + (b * 2).sum()).backward()
        else:
            passing(T, lambda ctx, g: (g.reshape(3, 3), None), lambda ctx, x, y: x.reshape(-1) + y.reshape(-1)).apply(b, y).sum().backward()
        return told, a.grad is None, b.grad
    told = same(run)[0]
    assert ["y", True] in told


def test_hooks_on_unused_results_receive_none():
    def run(T):
        told = []
        x = T.tensor([[2., 1.], [0., 3.]], requires_grad=True)
        u, s, v = T.linalg.svd(x)
        q, r = T.linalg.qr(x)
        for name, t in (("u", u), ("v", v), ("q", q)):
            t.register_hook(lambda g, name=name: told.append((name, g is None)))
        seen = []
        T.autograd.graph.register_multi_grad_hook((u, s), lambda gs: seen.append([g is None for g in gs]))
        (s.sum() + (r * r).sum()).backward()
        return sorted(told), seen
    same(run)


def test_hooks_on_an_unused_cell_state_do_not_fire():
    def run(T):
        told = []
        h, c = T.nn.LSTMCell(2, 2)(T.ones(1, 2))
        h.register_hook(lambda g: told.append(g is None))
        c.sum().backward()
        return told
    assert same(run) == []


def test_only_inputs_with_a_rule_have_an_edge():
    """Checks that every edge has a gradient rule: the engine expects one gradient per edge, so a
    missing rule would block everything below."""
    from mindtorch.core.dispatch.primitives import PRIMITIVES
    for name, function in PRIMITIVES.items():
        prim = function.prim
        if not prim.grads or prim.joint or prim.variadic:
            continue
        assert all(prim.grads[i] is not None for i in range(len(prim.inputs)) if i not in prim.ruleless), name
        assert all(i >= len(prim.grads) or prim.grads[i] is None for i in prim.ruleless), name

    def run(T, pick):
        a, b = leaf(T, 1., 5., 2.), leaf(T, 3., 2., 4.)
        h, k = a * 2, b * 3
        o = getattr(T, pick)(h, k)
        g, = T.autograd.grad(o.pow(3).sum(), h, create_graph=True)
        (o.sum() + g.pow(2).sum()).backward()
        return a.grad, b.grad
    for pick in ("maximum", "minimum", "max", "min"):
        same(lambda T, pick=pick: run(T, pick))
