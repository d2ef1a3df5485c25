"""nn.utils, DataParallel and attention contexts: most programs run on PyTorch and on mindtorch, and
the results are compared."""
import copy
import pickle
import re
import warnings

import pytest
import torch as real
import torch.nn.utils.prune  # noqa: F401  torch does not import it by itself
from _both_sides import data
from _both_sides import same as _same

import mindtorch.torch as mine
import mindtorch.torch.nn.utils.prune  # noqa: F401


def neutral(s):
    """Returns the text without the parts that always differ: addresses, and the modules of the
    classes."""
    return re.sub(r"0x[0-9a-f]+", "0x", s).replace("mindtorch.torch.", "torch.")


def text(x):
    return neutral(repr(x))


def same(program, rtol=1e-5, atol=1e-6):
    """Checks that program(torch) gives the same values, errors and warnings on both sides."""
    def run(T):
        try:
            return program(T)
        except Exception as e:
            return "raised", type(e).__name__, neutral(str(e))
    _same(run, rtol, atol)


def grads(T, *values):
    """Returns parameters with these gradients (None: no gradient)."""
    ps = [T.nn.Parameter(T.zeros(2)) for _ in values]
    for p, v in zip(ps, values):
        p.grad = None if v is None else T.full((2,), float(v))
    return ps


def linear(T, *size, seed=1):
    m = T.nn.Linear(*(size or (3, 4)))
    with T.no_grad():
        m.weight.copy_(T.tensor(data(seed, *m.weight.shape)))
        m.bias.copy_(T.tensor(data(seed + 1, *m.bias.shape)))
    return m


def test_public_names():
    for name in ("nn", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize", "nn.utils.parametrizations"):
        theirs, ours = real, mine
        for part in name.split("."):
            theirs, ours = getattr(theirs, part), getattr(ours, part)
        public = [n for n in theirs.__all__ if not n.startswith("_")] if hasattr(theirs, "__all__") else []
        assert [n for n in public if not hasattr(ours, n)] == [], name
        assert sorted(public) == sorted(ours.__all__) or name == "nn", name
    layers = [n for n in dir(real.nn) if n[0].isupper()]
    assert [n for n in layers if not hasattr(mine.nn, n)] == []


# ------------------------------------------------------------------ gradients
@pytest.mark.parametrize("kwargs", [{}, {"norm_type": 1}, {"norm_type": 3.5}, {"norm_type": "inf"}, {"norm_type": 0},
                                    {"foreach": False}, {"max_norm": 100.0}])
@pytest.mark.parametrize("values", [(3, 4, None), (3,), (None,), (), (float("nan"), 1), (float("inf"), 1)])
def test_clip_grad_norm(values, kwargs):
    def program(T):
        ps = grads(T, *values)
        return T.nn.utils.clip_grad_norm_(ps, **{"max_norm": 1.0, **kwargs}), [p.grad for p in ps]
    same(program)


@pytest.mark.parametrize("form", ["tensor", "generator", "nonfinite", "deprecated", "value", "value of one",
                                  "total norm",
                                  "with norm"])
def test_clipping_forms(form):
    def program(T):
        U = T.nn.utils
        ps = grads(T, 3, -4, None)
        result = {
            "tensor": lambda: U.clip_grad_norm_(ps[0], 1.0),
            "generator": lambda: U.clip_grad_norm_((p for p in ps), 1.0),
            "nonfinite": lambda: U.clip_grad_norm_(grads(T, float("nan")), 1.0, error_if_nonfinite=True),
            "deprecated": lambda: U.clip_grad_norm(ps, 1.0), "value": lambda: U.clip_grad_value_(ps, 2.0),
            "value of one": lambda: U.clip_grad_value_(ps[1], 1),
            "total norm": lambda: U.get_total_norm([p for p in ps], 2.0),
            "with norm": lambda: U.clip_grads_with_norm_(ps, 1.0, T.tensor(10.0))}[form]()
        return result, [p.grad for p in ps]
    same(program)


def test_parameters_and_vectors():
    def program(T):
        ps = [T.nn.Parameter(T.ones(2)), T.nn.Parameter(T.zeros(1, 2))]
        v = T.nn.utils.parameters_to_vector(ps)
        T.nn.utils.vector_to_parameters(T.arange(4.0), ps)
        return v.detach(), v.requires_grad, ps, [type(p).__name__ for p in ps]
    same(program)
    same(lambda T: T.nn.utils.vector_to_parameters(3, []))


# ------------------------------------------------------------------ weight and spectral norm
@pytest.mark.parametrize("dim", [0, 1, None, -1])
def test_weight_norm_hook(dim):
    def program(T):
        m = T.nn.utils.weight_norm(linear(T), dim=dim)
        names = [(n, tuple(p.shape)) for n, p in m.named_parameters()]
        with T.no_grad():
            m.weight_g.mul_(2)
        y = m(T.tensor(data(5, 2, 3)))
        y.sum().backward()
        out = names, y, m.weight_g.grad, m.weight_v.grad
        again = copy.deepcopy(T.nn.utils.remove_weight_norm(m))
        return out, [n for n, _ in again.named_parameters()], again.weight
    same(program)


def test_weight_norm_invalid_calls_raise():
    same(lambda T: T.nn.utils.weight_norm(T.nn.utils.weight_norm(linear(T))))
    same(lambda T: T.nn.utils.weight_norm(linear(T), "foo"))
    same(lambda T: T.nn.utils.remove_weight_norm(linear(T)))
    same(lambda T: T.nn.utils.remove_spectral_norm(linear(T)))
    same(lambda T: T.nn.utils.spectral_norm(linear(T), n_power_iterations=0))
    same(lambda T: T.nn.utils.spectral_norm(T.nn.utils.spectral_norm(linear(T))))


@pytest.mark.parametrize("kwargs", [{}, {"n_power_iterations": 3}, {"dim": 1}])
def test_spectral_norm_hook(kwargs):
    def program(T):
        T.manual_seed(4)
        m = T.nn.utils.spectral_norm(linear(T), **kwargs)
        x = T.tensor(data(5, 2, 3))
        out = [m.state_dict(), m.state_dict()._metadata, m(x), m(x)]
        out[-1].sum().backward()
        m.eval()
        out += [m.weight_orig.grad, m(x), m(x), [n for n, _ in m.named_parameters()]]
        fresh = T.nn.utils.spectral_norm(linear(T, seed=9), **kwargs).eval()
        fresh.load_state_dict(m.state_dict())
        out.append(fresh(x))
        T.nn.utils.remove_spectral_norm(m)
        return out, m.weight, m.state_dict()
    same(program, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", ["linear", "conv", "transposed", "bias"])
def test_spectral_norm_parametrization(make):
    def program(T):
        T.manual_seed(4)
        m = {"linear": lambda: linear(T), "conv": lambda: T.nn.Conv2d(2, 3, 2),
             "transposed": lambda: T.nn.ConvTranspose1d(2, 3, 2), "bias": lambda: linear(T)}[make]()
        name = "bias" if make == "bias" else "weight"
        m = T.nn.utils.parametrizations.spectral_norm(m, name)
        first = getattr(m, name)
        m.eval()
        return m.state_dict(), first, getattr(m, name), getattr(m, name), text(m)
    same(program, rtol=1e-4, atol=1e-5)


def test_weight_norm_parametrization():
    def program(T):
        P = T.nn.utils.parametrizations
        m = P.weight_norm(linear(T))
        m(T.ones(1, 3)).sum().backward()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            old = T.nn.utils.weight_norm(linear(T, seed=7))
        n = P.weight_norm(linear(T))
        n.load_state_dict(old.state_dict())  # a state dict in the hook's format
        m.weight = T.ones(4, 3)
        return m.state_dict(), m.parametrizations.weight.original0.grad, n.weight, m.weight
    same(program)


ORTHOGONAL = [{}, {"orthogonal_map": "cayley"}, {"orthogonal_map": "matrix_exp"}, {"orthogonal_map": "householder"},
              {"use_trivialization": False}, {"orthogonal_map": "cayley", "use_trivialization": False},
              {"orthogonal_map": "foo"}]


@pytest.mark.parametrize("size", [(3, 3), (2, 4), (4, 2)], ids=str)
@pytest.mark.parametrize("kwargs", ORTHOGONAL, ids=str)
def test_orthogonal_parametrization(kwargs, size):
    def program(T):
        T.manual_seed(2)
        m = T.nn.utils.parametrizations.orthogonal(linear(T, *size), **kwargs)
        w = m.weight
        with T.no_grad():
            for p in m.parametrizations.weight.parameters():
                p.add_(T.tensor(data(3, *p.shape)) * 0.1)
        moved = m.weight
        moved.sum().backward()
        square = moved @ moved.T if size[1] >= size[0] else moved.T @ moved
        return w, moved, bool((square - T.eye(min(size))).abs().max() < 1e-4), m.parametrizations.weight.original.grad
    same(program, rtol=1e-3, atol=1e-4)


# ------------------------------------------------------------------ parametrize
def _parts(T):
    class Double(T.nn.Module):
        def forward(self, x):
            return x * 2

        def right_inverse(self, x):
            return x / 2

    class Sum(T.nn.Module):
        def forward(self, a, b):
            return a + b

        def right_inverse(self, x):
            return x / 4, x * 3 / 4

    class Symmetric(T.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).mT

    def bad(forward, inverse=None):
        class Bad(T.nn.Module):
            pass
        Bad.forward = lambda self, x: forward(x)
        if inverse is not None:
            Bad.right_inverse = lambda self, x: inverse(x)
        return Bad()

    return {"double": Double(), "sum": Sum(), "symmetric": Symmetric(), "shape": bad(lambda x: x[:1]),
            "dtype": bad(lambda x: x.double()), "type": bad(lambda x: 3), "inverse type": bad(lambda x: x, lambda x: 3),
            "inverse parts": bad(lambda x: x, lambda x: (x, 3)),
            "inverse dtype": bad(lambda x: x, lambda x: x.double())}


@pytest.mark.parametrize("unsafe", [False, True])
@pytest.mark.parametrize("first", [None, "double"])
@pytest.mark.parametrize("name", ["double", "sum", "symmetric", "shape", "dtype", "type", "inverse type",
                                  "inverse parts",
                                  "inverse dtype"])
def test_register_parametrization(name, first, unsafe):
    def program(T):
        m, parts, P = linear(T, 3, 3), _parts(T), T.nn.utils.parametrize
        if first:
            P.register_parametrization(m, "weight", parts[first])
        P.register_parametrization(m, "weight", parts[name], unsafe=unsafe)
        return list(m.state_dict()), text(m), type(m).__name__
    same(program)


def test_parametrized_module():
    def program(T):
        P, parts = T.nn.utils.parametrize, _parts(T)
        m = linear(T, 2, 2)
        w = m.weight
        P.register_parametrization(m, "weight", parts["double"])
        log = [m.weight, m.parametrizations.weight.original is w, P.is_parametrized(m), P.is_parametrized(m, "bias"),
               P.type_before_parametrizations(m).__name__, [n for n, _ in m.named_parameters()]]
        m.weight = T.ones(2, 2)
        with P.cached():
            log.append(m.weight is m.weight)
        log += [m.weight is m.weight, m.parametrizations.weight.original, copy.deepcopy(m).weight]
        other = P.transfer_parametrizations_and_params(m, linear(T, 2, 2, seed=8))
        log += [other.weight, type(other).__name__]
        P.remove_parametrizations(m, "weight")
        log += [m.weight is w, m.weight, type(m).__name__, list(m.state_dict())]
        return log
    same(program)


def test_parametrized_module_of_several_tensors():
    def program(T):
        P, m = T.nn.utils.parametrize, linear(T, 2, 2)
        P.register_parametrization(m, "weight", _parts(T)["sum"])
        keys = list(m.state_dict())
        try:
            P.remove_parametrizations(m, "weight", leave_parametrized=False)
        except ValueError as e:
            keys.append(str(e))
        P.remove_parametrizations(m, "weight")
        return keys, m.weight, list(m.state_dict())
    same(program)


def test_parametrize_invalid_calls_raise():
    def program(T, name, part):
        T.nn.utils.parametrize.register_parametrization(linear(T, 2, 2), name, _parts(T)[part])
    same(lambda T: program(T, "foo", "double"))
    same(lambda T: program(T, "in_features", "double"))
    same(lambda T: T.nn.utils.parametrize.remove_parametrizations(linear(T), "weight"))

    def no_inverse(T):
        m = linear(T, 2, 2)
        T.nn.utils.parametrize.register_parametrization(m, "weight", _parts(T)["symmetric"])
        m.weight = T.ones(2, 2)
    same(no_inverse)
    m = mine.nn.utils.parametrizations.weight_norm(linear(mine))
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(m)


def test_parametrized_buffer_and_lstm():
    def program(T):
        P, parts = T.nn.utils.parametrize, _parts(T)
        n = T.nn.BatchNorm1d(2)
        P.register_parametrization(n, "running_mean", parts["double"])
        lstm = T.nn.LSTM(2, 2)
        with T.no_grad():
            for p in lstm.parameters():
                p.fill_(0.1)
        before = lstm(T.ones(1, 1, 2))[0]
        P.register_parametrization(lstm, "weight_hh_l0", parts["double"])
        P.register_parametrization(lstm, "weight_ih_l0", parts["sum"])
        return list(n.state_dict()), before, lstm(T.ones(2, 1, 2))[0]
    same(program)


# ------------------------------------------------------------------ pruning
@pytest.mark.parametrize("method, "
                         "args", [("l1_unstructured", (0.4,)), ("l1_unstructured", (5,)),
                                  ("random_unstructured", (0.3,)),
                                          ("random_structured", (2, 1)), ("ln_structured", (1, 2, 0)), ("identity", ()),
                                          ("ln_structured", (0.5, 1, -1)), ("l1_unstructured", (1.5,)),
                                          ("l1_unstructured", (100,)), ("l1_unstructured", (-1,)),
                                          ("l1_unstructured", ("a",)), ("ln_structured", (1, 2, 7))])
def test_prune(method, args):
    def program(T):
        T.manual_seed(1)
        prune, m = T.nn.utils.prune, linear(T, 4, 3)
        getattr(prune, method)(m, "weight", *args)
        out = m.state_dict(), m.weight, prune.is_pruned(m)
        prune.l1_unstructured(m, "weight", 0.25)  # prunes the weights that are left
        m(T.ones(1, 4)).sum().backward()
        out += m.weight_mask, m.weight_orig.grad, m.weight
        prune.remove(m, "weight")
        return out, m.state_dict(), prune.is_pruned(m)
    same(program)


def test_prune_more():
    def program(T):
        prune = T.nn.utils.prune
        a, b = linear(T, 2, 2), linear(T, 3, 3, seed=4)
        prune.global_unstructured([(a, "weight"), (b, "weight")], prune.L1Unstructured, amount=0.4)
        c = prune.custom_from_mask(linear(T, 2, 2), "weight", T.eye(2))
        return a.weight, b.weight, c.weight
    same(program)
    same(lambda T: T.nn.utils.prune.remove(linear(T), "weight"))
    same(lambda T: T.nn.utils.prune.ln_structured(linear(T), "bias", 1, 2, 0))


# ------------------------------------------------------------------ fusion, stateless calls, and the rest
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_fuse_conv_bn(bias, transpose):
    def program(T):
        conv = (T.nn.ConvTranspose2d if transpose else T.nn.Conv2d)(2, 3, 2, bias=bias)
        bn = T.nn.BatchNorm2d(3)
        with T.no_grad():
            for i, t in enumerate([*conv.parameters(), *bn.parameters(), bn.running_mean]):
                t.copy_(T.tensor(data(i, *t.shape)))
            bn.running_var.copy_(T.tensor(data(9, 3)) ** 2 + 0.1)
        conv.eval(), bn.eval()
        fused = T.nn.utils.fuse_conv_bn_eval(conv, bn, transpose)
        x = T.tensor(data(8, 1, 2, 4, 4))
        return fused(x), bool((fused(x) - bn(conv(x))).abs().max() < 1e-4), text(fused), type(fused.weight).__name__
    same(program, rtol=1e-4, atol=1e-5)


def test_fuse_linear_bn():
    def program(T, train=False, features=4):
        m, bn = linear(T).train(train), T.nn.BatchNorm1d(features).eval()
        bn.running_mean.fill_(0.5)
        return T.nn.utils.fuse_linear_bn_eval(m, bn)(T.ones(2, 3))
    same(program)
    same(lambda T: program(T, train=True))
    same(lambda T: program(T, features=3))
    same(lambda T: program(T, features=1))


def _call(T, module, tensors, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns that the name is deprecated
        return T.nn.utils.stateless.functional_call(module, tensors, *args, **kwargs)


@pytest.mark.parametrize("tensors, kwargs", [({"weight": 0.0}, {}), ({"weight": 0.0, "bias": 1.0}, {"strict": True}),
                                             ({"weight": 0.0}, {"strict": True}), ({"foo": 0.0}, {}),
                                             ({"foo": 0.0}, {"strict": True}), ({}, {})])
def test_functional_call(tensors, kwargs):
    def program(T):
        m = linear(T, 2, 2)
        given = {n: T.full((2,) if n == "bias" else (2, 2), v, requires_grad=True) for n, v in tensors.items()}
        y = _call(T, m, given, T.ones(1, 2), **kwargs)
        y.sum().backward()
        return y, {n: t.grad for n, t in given.items()}, m.weight, m.bias.grad
    same(program)


def test_functional_call_of_tied_weights_and_buffers():
    def program(T):
        class Tied(T.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = T.nn.Linear(2, 2, False)
                self.b = T.nn.Linear(2, 2, False)
                self.b.weight = self.a.weight
                self.register_buffer("n", T.zeros(1))

            def forward(self, x):
                self.n.add_(1)
                self.n = self.n * 2
                return self.a(x) + self.b(x)
        m = Tied()
        one, state = T.ones(2, 2), {"a.weight": T.ones(2, 2), "n": T.full((1,), 5.0)}
        log = [_call(T, m, state, (T.ones(1, 2),)), state["n"], m.n]
        log.append(tuple(_call(T, m, {"a.weight": one}, T.ones(1, 2), tie_weights=False).shape))
        log.append(m.a.weight is m.b.weight)
        _call(T, m, {"a.weight": one, "b.weight": one * 2}, T.ones(1, 2))
        return log
    same(program)


def test_channels_last_weights():
    def program(T):
        m = T.nn.Sequential(T.nn.Conv2d(2, 3, 2), T.nn.Conv3d(2, 3, 2))
        T.nn.utils.convert_conv2d_weight_memory_format(m, T.channels_last)
        return m[0].weight.stride(), m[1].weight.stride()
    same(program)


def test_data_parallel_forwards_to_the_module():
    def program(T):
        m = T.nn.DataParallel(linear(T))
        return text(m), list(m.state_dict()), m(T.ones(2, 3)), m.module(T.ones(2, 3)), m.device_ids
    same(program)


def test_sdpa_kernel():
    def program(T):
        A = T.nn.attention
        q = T.tensor(data(1, 1, 2, 3, 4))
        with A.sdpa_kernel(A.SDPBackend.MATH):
            one = T.nn.functional.scaled_dot_product_attention(q, q, q)
        with A.sdpa_kernel([A.SDPBackend.MATH, A.SDPBackend.FLASH_ATTENTION]):
            two = T.nn.functional.scaled_dot_product_attention(q, q, q)
        return one, two, repr(A.SDPBackend.MATH), str(A.SDPBackend.EFFICIENT_ATTENTION)
    same(program)
    same(lambda T: T.nn.attention.sdpa_kernel(3).__enter__())


def test_convolution_gradients():
    def program(T):
        x, w, g = (T.tensor(data(i, *s)) for i, s in enumerate([(1, 2, 4, 4), (3, 2, 2, 2), (1, 3, 3, 3)]))
        return T.nn.grad.conv2d_input(x.shape, w, g), T.nn.grad.conv2d_weight(x, w.shape, g)
    same(program, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ sequences
PACKING = """
R.pack_padded_sequence(x, [5, 3, 2]) | R.pack_padded_sequence(x, [2, 3, 5]) | R.pack_padded_sequence(x, [5, 3, 0])
R.pack_padded_sequence(x, [2, 3, 5], enforce_sorted=False) | R.pack_padded_sequence(x,
                                                                                    [5, 3]) | R.pack_padded_sequence(x,
                                                                                                                     [])
R.pack_padded_sequence(x, T.tensor([4, 3, 1])) | R.pack_padded_sequence(x.transpose(0, 1), [5, 3, 2], batch_first=True)
R.pad_packed_sequence(p) | R.pad_packed_sequence(p, True, -1.0, 7) | R.pad_packed_sequence(p, total_length=3)
p.to(T.float64) | p.to('cpu') is p | p.long() | p.double().float() | p.is_cuda
R.PackedSequence(x, T.tensor([5])) | R.PackedSequence(x)
R.pad_sequence([x[:2], x]) | R.pad_sequence([x[:2], x], True, 9.0, 'left') | R.pad_sequence([x], padding_side='x')
R.pad_sequence([]) | R.pad_sequence(3) | R.pad_sequence(x) | R.pad_sequence([x, x[:, :2]]) | R.pad_sequence([x, 3])
R.unpad_sequence(x, T.tensor([3, 5, 1])) | R.pack_sequence([x[:2], x]) | R.pack_sequence([x[:2], x],
                                                                                         enforce_sorted=False)
R.unpack_sequence(R.pack_sequence([x[:2], x], enforce_sorted=False)) | R.invert_permutation(T.tensor([2, 0, 1]))
R.invert_permutation(None) | R.pad_packed_sequence(R.pack_padded_sequence(x, [2, 3, 5], enforce_sorted=False))
"""


@pytest.mark.parametrize("expression", [e.strip() for line in PACKING.strip().split("\n") for e in line.split(" | ")])
def test_packing(expression):
    def program(T):
        R = T.nn.utils.rnn
        x = T.tensor(data(1, 5, 3, 2))
        return eval(expression, {"R": R, "T": T, "x": x, "p": R.pack_padded_sequence(x, [5, 3, 2])})
    same(program)


def test_packing_keeps_gradients():
    def program(T):
        R = T.nn.utils.rnn
        x = T.tensor(data(1, 5, 3, 2), requires_grad=True)
        padded, _ = R.pad_packed_sequence(R.pack_padded_sequence(x, [2, 5, 4], enforce_sorted=False))
        (padded * T.tensor(data(2, 5, 3, 2))).sum().backward()
        return x.grad
    same(program)


@pytest.mark.parametrize("size", [3, (4,), (None, 4), (4, None), (None, None), (1, 2, 3), (None, 2, None), ()])
@pytest.mark.parametrize("defaults", [(5,), (5, 6), (5, 6, 7), (5, 6, 7, 8)])
def test_list_with_default(size, defaults):
    """Calls it as adaptive pooling does: None stands for the input's size, and the input has at
    least one more leading dimension."""
    for where in (lambda T: T.nn.functional, lambda T: T.nn.modules.utils):
        same(lambda T: where(T)._list_with_default(size, defaults))
