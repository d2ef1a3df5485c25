"""Corner cases of modules, compared with PyTorch: hook handles, return values of hooks, conversion
in place and by swapping."""
import collections
import copy
import gc
import importlib
import pickle
import re
import warnings
import weakref

import pytest
from _both_sides import SIDES
from _both_sides import same as _same


def same(program, rtol=0.0, atol=0.0):
    """Asserts that `program(torch)` agrees on both sides; errors are compared by type and the start
    of the message."""
    def run(T):
        try:
            return program(T)
        except Exception as e:
            return "raised", type(e).__name__, re.split(r"[.(]", str(e))[0]
    _same(run, rtol, atol)


def ignore(*args):
    pass


# ------------------------------------------------------------------ handles of hooks
REGISTER = {
    "forward": lambda T, m: m.register_forward_hook(ignore), "forward pre": lambda T, m: m.register_forward_pre_hook(ignore, with_kwargs=True),
    "always": lambda T, m: m.register_forward_hook(ignore, with_kwargs=True, always_call=True),
    "backward": lambda T, m: m.register_full_backward_hook(ignore), "state": lambda T, m: m.register_state_dict_pre_hook(ignore),
    "tensor": lambda T, m: m.weight.register_hook(ignore), "accumulated": lambda T, m: m.weight.register_post_accumulate_grad_hook(ignore),
}


@pytest.mark.parametrize("kind", REGISTER)
def test_a_handle_refers_weakly_to_its_hooks(kind):
    def run(T):
        m = T.nn.Linear(2, 2)
        h, k = REGISTER[kind](T, m), REGISTER[kind](T, m)
        hooks = h.hooks_dict_ref()
        seen = [type(hooks).__name__, len(hooks), h.id in hooks, k.id == h.id + 1, T.utils.hooks.RemovableHandle.next_id > k.id, k.__getstate__()[1] == k.id]
        h.remove()
        h.remove()
        seen.append(len(hooks))
        with k as entered:
            seen.append(entered is k)
        seen.append([len(hooks), all(not d() for d in k.extra_dict_ref)])
        del m, hooks
        gc.collect()
        return seen + [h.hooks_dict_ref() is None]
    same(run)


def test_a_copied_handle_belongs_to_the_copied_module():
    def run(T):
        m = T.nn.Linear(2, 2)
        h = m.register_forward_hook(ignore)
        n, k = copy.deepcopy((m, h))
        alone = pickle.loads(pickle.dumps(h))
        alone.remove()
        later = m.register_forward_hook(ignore)
        seen = [len(n._forward_hooks), k.id == h.id, alone.id == h.id, later.id > h.id]
        k.remove()
        return seen + [len(n._forward_hooks), len(m._forward_hooks)]
    same(run)


def test_handles_do_not_keep_hooks_alive():
    def run(T):
        class Owner:
            pass
        owner, y = Owner(), T.ones(2, requires_grad=True) * 2
        gone = weakref.ref(owner)
        handle = y.register_hook(lambda g, owner=owner: None)
        del owner, y
        gc.collect()
        handle.remove()
        return gone() is None
    same(run)


def test_global_hooks_are_where_torch_keeps_them():
    def run(T):
        module = T.nn.modules.module
        with T.nn.modules.module.register_module_forward_hook(ignore, with_kwargs=True, always_call=True):
            during = [len(getattr(module, n)) for n in ("_global_forward_hooks", "_global_forward_hooks_always_called", "_global_forward_hooks_with_kwargs")]
        return during + [len(module._global_forward_hooks_always_called), len(module._global_module_registration_hooks)]
    same(run)


# ------------------------------------------------------------------ what hooks may return
ANSWERS = {
    "fewer": lambda T, g: g[:-1], "more": lambda T, g: g + (T.ones(2),), "other shape": lambda T, g: (T.ones(3),), "none": lambda T, g: (None,),
    "number": lambda T, g: 3, "tensor": lambda T, g: T.ones(2), "numbers": lambda T, g: (1,), "list": lambda T, g: [T.ones(2)],
    "other dtype": lambda T, g: (T.ones(2, dtype=T.float64),), "twice": lambda T, g: (g[0] * 2,), "nothing": lambda T, g: None,
}


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("kind", ["register_hook", "register_prehook", "module"])
def test_node_hook_results_are_validated(kind, answer):
    def run(T):
        x, act = T.ones(2, requires_grad=True), T.nn.Sigmoid()
        if kind == "module":
            act.register_backward_hook(lambda m, gi, go: ANSWERS[answer](T, gi))
            y = act(x)
        else:
            y = act(x)
            getattr(y.grad_fn, kind)(lambda *gs: ANSWERS[answer](T, gs[0]))
        y.sum().backward()
        return x.grad
    same(run, rtol=1e-6)


def test_hooks_preserve_named_tuples():
    pair = collections.namedtuple("pair", "left right")

    def run(T):
        class Two(T.nn.Module):
            def forward(self, x):
                return pair(x * 2, x + 1)
        m, seen = Two(), []
        m.register_full_backward_hook(lambda m, gi, go: seen.append([type(go).__name__, *go]))
        m.register_forward_hook(lambda m, a, r: seen.append(type(r).__name__))
        x = T.ones(2, requires_grad=True)
        r = m(x)
        (r.left * r.right).sum().backward()
        return [type(r).__name__, isinstance(r, pair), seen, x.grad]
    same(run)


# -------------------------------------------------------------- views returned by a custom Function
def _functions(T):
    class Same(T.autograd.Function):
        @staticmethod
        def forward(ctx, *xs):
            return xs if len(xs) > 1 else xs[0]

        @staticmethod
        def backward(ctx, *gs):
            return gs if len(gs) > 1 else gs[0]

    class Flat(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view(-1)

        @staticmethod
        def backward(ctx, g):
            return g
    return Same.apply, Flat.apply


@pytest.mark.parametrize("write", ["result", "part", "base", "detached", "no grad", "not at all"])
@pytest.mark.parametrize("kind", ["one", "two", "made inside", "no gradient", "full_backward_hook", "full_backward_pre_hook"])
def test_writes_to_custom_function_views_match_torch(kind, write):
    def run(T):
        given, flat = _functions(T)
        x = T.ones(4, requires_grad=kind != "no gradient").clone()
        if kind.startswith("full"):
            m = T.nn.Identity()
            getattr(m, "register_" + kind)(ignore)
            y = m(x)
        else:
            y = given(x, x * 2)[0] if kind == "two" else flat(x) if kind == "made inside" else given(x)
        if write == "result":
            y += 1
        elif write == "part":
            y[0] *= 3
        elif write == "base":
            x[0] *= 3
        elif write == "detached":
            y.detach().mul_(2)
        elif write == "no grad":
            with T.no_grad():
                y += 1
        return y + 2, kind == "no gradient" or y._is_view()
    same(run)


# ------------------------------------------- conversion: in place, with new tensors, or by swapping
@pytest.fixture
def switches():
    yield
    for T in SIDES:
        T.__future__.set_swap_module_params_on_conversion(False)
        T.__future__.set_overwrite_module_params_on_conversion(False)


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_swap_and_overwrite_flags_of_conversion(swap, overwrite, switches):
    def run(T):
        T.__future__.set_swap_module_params_on_conversion(swap)
        T.__future__.set_overwrite_module_params_on_conversion(overwrite)
        seen = [T.__future__.get_swap_module_params_on_conversion(), T.__future__.get_overwrite_module_params_on_conversion()]
        m = T.nn.BatchNorm1d(2)
        m(T.arange(4.0).reshape(2, 2)).sum().backward()
        w, g, b = m.weight, m.weight.grad, m.running_mean
        m.double()
        seen += [w is m.weight, m.weight.grad is g, str(w.dtype), str(g.dtype), str(m.weight.grad.dtype), b is m.running_mean, m.weight.requires_grad]
        for assign in False, True:
            w, b = m.weight, m.running_mean
            m.load_state_dict({k: v.clone() + 1 for k, v in m.state_dict().items()}, assign=assign)
            seen += [w is m.weight, b is m.running_mean, w.detach(), m.weight.detach(), type(m.weight).__name__, m.weight.requires_grad, b]
        m = T.nn.Linear(2, 2)
        seen.append(m.to("meta").to_empty(device="cpu").weight.shape == (2, 2))
        m, watched = T.nn.Linear(2, 2), []
        watched.append(weakref.ref(m.weight))
        for act in (lambda: m.double(), lambda: m.load_state_dict(T.nn.Linear(2, 2).state_dict())):
            try:
                act()
                seen.append("done")
            except RuntimeError as e:
                seen.append(str(e).split(",")[0].split("\n")[0])
        return seen
    same(run)


def test_swap_tensors_exchanges_everything_but_identity():
    def run(T):
        swap = T.utils.swap_tensors
        a, b = T.ones(2), T.zeros(3, dtype=T.float64)
        a.mark = 1
        swap(a, b)
        seen = [a, b, hasattr(a, "mark"), b.mark]
        p, q = T.nn.Parameter(T.ones(2)), T.zeros(3)
        p.register_hook(lambda g: g * 2)
        p.grad = T.ones(2) * 5
        swap(p, q)
        seen += [type(p).__name__, type(q).__name__, p.grad, q.grad, p.requires_grad, q.requires_grad]
        (q * 3).sum().backward()
        seen.append(q.grad)
        x, y = T.ones(2, requires_grad=True), T.zeros(3)
        z = x * 2
        swap(z, y)
        y.sum().backward()
        seen += [x.grad, z, type(y.grad_fn).__name__]
        w = weakref.ref(a)
        try:
            swap(b, a)
        except RuntimeError as e:
            seen.append(str(e))
        return seen + [w() is a]
    same(run)


# ------------------------------------------------------------------ pruning, flags, errors
@pytest.mark.parametrize("amount", [0, 3, 19, 20, 0.0, 0.26, 1.0, -1, 1.2, -0.1, "x"], ids=str)
def test_pruning_amounts(amount):
    def run(T):
        prune = importlib.import_module(T.__name__ + ".nn.utils.prune")
        prune._validate_pruning_amount_init(amount)
        prune._validate_pruning_amount(amount, 19)
        return prune._compute_nparams_toprune(amount, 19), prune._compute_norm(T.arange(12.0).reshape(2, 3, 2), 2, 1)
    same(run, rtol=1e-6)


def test_flags_of_onednn_are_kept():
    def run(T):
        flags = T.backends.mkldnn
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with flags.flags(enabled=False, deterministic=True):
                inside = [flags.enabled, flags.set_flags(_deterministic=False)[1]]
        return inside + [flags.enabled]
    same(run)


WRONG = {
    "rnn bias": lambda T: T.nn.RNN(3, 2, bias=1), "gru batch_first": lambda T: T.nn.GRU(3, 2, batch_first=0), "lstm size": lambda T: T.nn.LSTM(0, 2),
    "lstm float size": lambda T: T.nn.LSTM(3.0, 2), "lazy": lambda T: T.nn.utils.spectral_norm(T.nn.LazyLinear(3)),
    "dict": lambda T: T.nn.ParameterDict().update(T.nn.Parameter(T.ones(2, 2))),
    "unfold": lambda T: T.nn.functional.unfold(T.ones(2, 0, 5, 5), 2), "fold": lambda T: T.nn.functional.fold(T.ones(1, 0, 9), (4, 4), 2),
    "fold, negative": lambda T: T.nn.functional.fold(T.ones(1, 12, 12), (4, 5), 2, dilation=8),
    "linear_cross_entropy": lambda T: T.nn.functional.linear_cross_entropy(T.ones(4, 5), T.ones(2, 3), T.zeros(4).long()),
    "resize": lambda T: T.nn.functional.interpolate(T.ones(1, 1, 2, 2), scale_factor=1e20, mode="bilinear"),
    "transposed of nothing": lambda T: T.nn.functional.conv_transpose2d(T.ones(2, 3, 5, 5), T.ones(3, 0, 1, 1)),
    "eps of 0": lambda T: T.nn.BatchNorm1d(3, eps=0.0)(T.ones(2, 3)), "eps below 0": lambda T: T.nn.BatchNorm1d(3, eps=-1.0).eval()(T.ones(2, 3).double()),
    "cross entropy's bias": lambda T: T.nn.functional.linear_cross_entropy(T.ones(4, 3), T.ones(2, 3), T.zeros(4).long(), linear_bias=T.ones(5)),
    "one size for two": lambda T: T.nn.functional.fractional_max_pool2d(T.ones(1, 2, 6, 6), (2,), output_size=3),
    "no way back": lambda T: T.nn.functional.adaptive_avg_pool2d(T.ones(1, 2, 3, 3, requires_grad=True), 0).sum().backward(),
    "no way back of maxima": lambda T: T.nn.functional.adaptive_max_pool3d(T.ones(1, 2, 3, 3, 3, requires_grad=True), 0).sum().backward(),
    "empty space": lambda T: T.nn.functional.conv2d(T.ones(2, 3, 0, 5), T.ones(4, 3, 3, 3), padding=2),
}


@pytest.mark.parametrize("name", WRONG)
def test_invalid_calls_raise_as_in_torch(name):
    kinds = []
    for T in SIDES:
        with pytest.raises(Exception) as e:
            WRONG[name](T)
        kinds.append(e.type.__name__)
    assert kinds[0] == kinds[1]


@pytest.mark.parametrize("name", ["elu_", "leaky_relu_", "celu_", "rrelu_"])
@pytest.mark.parametrize("slope", [-1.0, 0.5])
def test_noninvertible_inplace_activations(name, slope):
    def run(T):
        x = T.tensor([-2.0, 0.5], requires_grad=True)
        y = getattr(T.nn.functional, name)(x.clone(), slope, *([slope] if name == "rrelu_" else ()))
        value = y.detach().clone()
        try:
            y.sum().backward()
        except RuntimeError as e:
            return value, str(e).split(" with")[0]
        return value, x.grad
    same(run, rtol=1e-5)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("shape, out", [((2, 0), 8), ((0, 3), 4), ((0, 0), 4), ((2, 3), 0)], ids=str)
def test_convolutions_of_empty_tensors(dims, dtype, shape, out):
    def run(T):
        d = getattr(T, dtype)
        x = T.ones(*shape, *[5] * dims, dtype=d, requires_grad=True)
        w, b = T.ones(out, shape[1], *[3] * dims, dtype=d, requires_grad=True), T.ones(out, dtype=d, requires_grad=True)
        y = getattr(T.nn.functional, f"conv{dims}d")(x, w, b)
        y.backward(T.ones_like(y))
        return y, x.grad, w.grad, b.grad
    same(run)


POOLS = ["max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool", "fractional_max_pool"]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("name", POOLS)
def test_pooling_of_empty_tensors(name, dims):
    """Which dimensions of the input and of the output may be empty."""
    def run(T, shape, out):
        if name == "fractional_max_pool":
            return T.nn.functional.fractional_max_pool2d(T.ones(*shape), 2, output_size=out) if dims == 2 else \
                T.nn.functional.fractional_max_pool3d(T.ones(*shape), 2, output_size=out)
        return getattr(T.nn.functional, f"{name}{dims}d")(T.ones(*shape), out or 2)
    if name == "fractional_max_pool" and dims == 1:
        dims = 3
    space = (6,) * dims
    for shape in (0, 3, *space), (2, 0, *space), (0, *space), (2, 3, 0, *space[1:]), (2, 3, *space[:-1], 0), (3, 0, *space[1:]), space, (2, 3, *space):
        if name == "fractional_max_pool" and shape == space:
            continue  # PyTorch fails while drawing the random samples
        for out in (2, 0):
            kinds = []
            for T in SIDES:
                try:
                    kinds.append(tuple(run(T, shape, out).shape))
                except Exception as e:
                    kinds.append(type(e).__name__)
            assert kinds[0] == kinds[1], (shape, out)


@pytest.mark.parametrize("order", ["plain", "last", "turned"])
@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("dims", [2, 3])
def test_memory_format_of_max_pool_results(dims, batch, order):
    """Strides of results, indices and gradients, for inputs with and without a batch."""
    def run(T):
        x = T.arange(float(2 * 3 * 6 ** dims)).reshape(2, 3, *[6] * dims)
        if order == "last":
            x = x.contiguous(memory_format=T.channels_last if dims == 2 else T.channels_last_3d)
        x = x if batch else x[0].clone()
        x = (x if order != "turned" else x.transpose(-1, -2)).detach().requires_grad_()
        y, at = getattr(T.nn.functional, f"max_pool{dims}d")(x, 2, return_indices=True)
        y.sum().backward()
        return [y.stride(), at.stride(), y, at, x.grad]
    same(run)


def test_load_state_dict_leaves_no_reference_cycle():
    """Objects that load_state_dict referenced are freed at once, without the garbage collector."""
    mine = SIDES[1]
    net = mine.nn.Sequential(mine.nn.Linear(3, 3), mine.nn.LSTM(3, 3))
    given = net.state_dict()
    gc.collect()
    gc.disable()
    try:
        net.load_state_dict(given)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_dir_lists_existing_attributes():
    mine = SIDES[1]
    for x in (mine.ones(2, 2), mine.nn.Parameter(mine.ones(2, 2)), mine.ones(2, 2, dtype=mine.complex64)):
        gone = [n for n in dir(x) if not (n == "imag" and not x.is_complex() or hasattr(x, n))]
        assert not gone and {"imag", "add_", "grad_fn"} <= set(dir(x))


@pytest.mark.parametrize("region", [None, "bfloat16"])
@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float32"])
@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_recurrent_cells_reject_mixed_dtypes(kind, dtype, region):
    """Outside of autocast an input whose dtype differs from the weights' raises an error, as in a
    linear layer."""
    def run(T):
        cell, x = getattr(T.nn, kind)(3, 4), T.ones(2, 3, dtype=getattr(T, dtype))
        try:
            with T.autocast("cpu", enabled=region is not None, dtype=T.bfloat16):
                r = cell(x)
        except RuntimeError as e:
            return str(e) if region is None else "refused"
        return [str(t.dtype) for t in (r if isinstance(r, tuple) else (r,))]
    results = [run(T) for T in SIDES]
    assert results[0] == results[1]


# -------------------------------------------------------------- inference fast path of transformers
_DEAD, _SOME = [[True, True, True], [False, False, True]], [[False, True, True], [False, False, True]]
MASKS = {
    "none": lambda T, heads: None, "rows without a key": lambda T, heads: T.tensor([[False, True, True], [True, True, True], [False, False, True]]),
    "floats": lambda T, heads: T.tensor([[-1.0, 0, 0.5], [0, 0, -2], [1, 1, 1]]),
    "by head": lambda T, heads: T.tensor([[False, True, True], [True, True, True], [False, False, True]]).expand(2 * heads, 3, 3),
}
PADDING = {"none": lambda T: None, "all": lambda T: T.tensor(_DEAD), "some": lambda T: T.tensor(_SOME),
           "floats": lambda T: T.tensor([[-float("inf")] * 3, [0, 0, -1.0]])}


@pytest.mark.parametrize("padding", PADDING)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["attention", "layer", "norm first", "encoder", "odd heads", "tanh", "time first"])
def test_rows_without_a_key_in_inference_and_training(kind, mask, padding):
    """NaN in such rows if PyTorch's inference kernel is used, otherwise 0."""
    def run(T):
        T.manual_seed(0)
        heads, first = (1 if kind == "odd heads" else 2), kind != "time first"
        if kind == "attention":
            m = T.nn.MultiheadAttention(8, heads, batch_first=first)
        else:
            m = T.nn.TransformerEncoderLayer(8, heads, 16, batch_first=first, dropout=0.0, norm_first=kind == "norm first",
                                             activation=T.tanh if kind == "tanh" else "relu")
            if kind == "encoder":
                m = T.nn.TransformerEncoder(m, 2, enable_nested_tensor=False)
        x = T.linspace(-1, 1, 48).reshape(2, 3, 8)
        x = x if first else x.transpose(0, 1)
        out = []
        for training in (False, True):
            m.train(training)
            for grad in (False, True):
                with T.set_grad_enabled(grad):
                    masks = MASKS[mask](T, heads), PADDING[padding](T)
                    if kind == "attention":
                        out.append(m(x, x, x, attn_mask=masks[0], key_padding_mask=masks[1], need_weights=False)[0].detach())
                        out.append(m(x, x * 1, x, attn_mask=masks[0], key_padding_mask=masks[1], need_weights=False)[0].detach())
                    else:
                        out.append(m(x, masks[0], src_key_padding_mask=masks[1]).detach())
        return out

    def quietly(T):
        with warnings.catch_warnings():  # warnings about masks of two kinds
            warnings.simplefilter("ignore")
            return run(T)
    same(quietly, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ cells inside autocast
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_recurrent_cells_inside_autocast(kind, dtype):
    """Products run in half precision, the rest in the dtype of its operands, also under double
    backward."""
    def run(T):
        T.manual_seed(0)
        m, x = getattr(T.nn, kind)(3, 4), T.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        with T.autocast("cpu", dtype=getattr(T, dtype)):
            out = m(x)
            out = out if isinstance(out, tuple) else (out,)
            h = m(x.to(getattr(T, dtype)), out if len(out) > 1 else out[0])
            h = h[0] if isinstance(h, tuple) else h
        g, = T.autograd.grad(h.float().sum(), x, create_graph=True)
        (g.square().sum() + h.float().sum()).backward()
        return [out[0].detach(), h.detach(), x.grad, *(p.grad for p in m.parameters())]
    same(run, rtol=2e-2, atol=1e-2)
