"""`__torch_function__` of Tensor subclasses, and TorchFunctionMode."""
import pytest

import mindtorch.torch as mt
from mindtorch.torch import overrides
from mindtorch.torch.overrides import TorchFunctionMode


class Log(TorchFunctionMode):
    def __init__(self):
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


def test_mode_sees_calls_and_leaves_no_trace():
    add, code = mt.add, mt.add.__code__
    a = mt.ones(2)
    with Log() as log:
        assert add(a, a).tolist() == [2, 2]
        mt.nn.functional.softmax(a, dim=-1)
    assert "add" in log.names and "softmax" in log.names
    assert mt.add.__code__ is code
    before = list(log.names)
    add(a, a)
    assert log.names == before


def test_mode_can_replace_the_result():
    class Zeros(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return 0 if func is mt.exp else func(*args, **(kwargs or {}))

    with Zeros():
        assert mt.exp(mt.ones(2)) == 0
        assert mt.neg(mt.ones(1)).item() == -1
    assert mt.exp(mt.zeros(1)).item() == 1


def test_helpers():
    assert not overrides.has_torch_function((mt.ones(1), 2))
    assert overrides.is_tensor_like(mt.ones(1)) and not overrides.is_tensor_like(1)
    assert overrides.resolve_name(mt.nn.functional.softmax) == "torch.nn.functional.softmax"


class Duck:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, types


def test_handle():
    d = Duck()
    assert overrides.has_torch_function_unary(d)
    assert overrides.handle_torch_function(mt.add, (d,), d, 1) == ("add", (Duck,))


def test_all_handlers_returning_notimplemented_raises():
    class No:
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match="NotImplemented"):
        overrides.handle_torch_function(mt.add, (No(),), No(), 1)


def test_subclass_enables_torch_function_protocol():
    # The first instance of a subclass enables the protocol for the entire process.
    import subprocess
    import sys
    source = """
import mindtorch.torch as torch
add = torch.add
class Plain(torch.Tensor):
    pass
class Loud(torch.Tensor):
    seen = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})
class Duck:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "quack"
a = torch.ones(2, requires_grad=True)
p = a.as_subclass(Plain)
r = add(p, 1) * 2
assert type(r) is Plain and type(a + 1) is torch.Tensor
assert [type(x) for x in p.split(1)] == [Plain, Plain]
r.sum().backward()
assert a.grad.tolist() == [2, 2]
q = torch.zeros(2).as_subclass(Loud)
assert type(torch.cat([q, q])) is Loud and type(torch.nn.functional.relu(q)) is Loud
assert "cat" in Loud.seen and "relu" in Loud.seen
assert torch.add(Duck(), 1) == "quack"
with torch._C.DisableTorchFunctionSubclass():
    assert type(q + 1) is torch.Tensor
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_torch_function_of_classes_that_are_not_tensors():
    import subprocess
    import sys
    source = """
import inspect
import mindtorch.torch as torch

class Scalar:
    def __init__(self, v):
        self.v = v
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.relu:
            return "relu"
        if func.__name__ == "stack":
            return cls([a.v for a in args[0]])
        return cls(func(*[a.v if isinstance(a, cls) else torch.as_tensor(a) for a in args], **(kwargs or {})))

try:
    torch.add(object(), 1)
except TypeError as e:
    print("refused")
r = torch.add(Scalar(torch.ones(2)), 1)
print(type(r).__name__, r.v.tolist(), torch.stack([r, r]).v[1].tolist(), torch.nn.functional.relu(r))
print(torch.unsqueeze(Scalar(torch.ones(2)), 0).v.shape)
print(inspect.signature(torch.add), list(inspect.signature(torch.nn.functional.linear).parameters))
"""
    out = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout.splitlines()
    assert out == ["refused", "Scalar [2.0, 2.0] [2.0, 2.0] relu", "torch.Size([1, 2])", "(input, other, *, alpha=1, out=None)",
                   "['input', 'weight', 'bias']"] or out == [
        "refused", "Scalar [2.0, 2.0] [2.0, 2.0] relu", "torch.Size([1, 2])", "(input, other, *, alpha=1, out=None) ['input', 'weight', 'bias']"]


def test_subclass_does_not_affect_sparse_or_torch_tensors():
    """The library's SparseTensor is not a user subclass, and the handler of a real PyTorch tensor
    does not apply to mindtorch."""
    import torch

    class Mine(mt.Tensor):
        pass

    assert type(mt.ones(2).as_subclass(Mine) + 1) is Mine
    s = mt.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0], (2, 2))
    product = mt.mm(s, mt.ones(2, 2))
    assert type(product) is mt.Tensor and product.tolist() == [[1, 1], [2, 2]]
    assert mt.from_dlpack(torch.arange(3.0)).tolist() == [0, 1, 2]


def test_mixin_before_tensor_sees_only_user_attributes():
    """Copying `__dict__` from tensor to tensor, as MONAI's MetaTensor does, does not move the
    memory."""
    import torch as real
    for T in (real, mt):
        class Mixin:
            pass

        class Meta(Mixin, T.Tensor):
            pass
        a, b = T.ones(3).as_subclass(Meta), T.zeros(2).as_subclass(Meta)
        a.note = 1
        b.__dict__ = a.__dict__.copy()
        assert list(a.__dict__) == ["note"] and tuple(b.shape) == (2,) and b.note == 1 and tuple((a + 1).shape) == (3,)
