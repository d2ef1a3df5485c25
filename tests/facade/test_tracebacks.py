"""Tracebacks of users' errors have the frames of the user only
(mindtorch/core/dispatch/traceback_filter.py)."""
import json
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 keeps the frame of the function that the user called")

HOOK = "from mindtorch.tools import mstorch_enable"

# Every function fails. The frames of this file must be those of real PyTorch.
PROGRAM = '''import torch
import json, sys, traceback
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

a, b = torch.ones(2), torch.ones(3)


def function(): torch.add(a, b)
def operator(): a + b
def in_place():
    x = torch.ones(2)
    x += b
def method(): torch.ones(4).view(3)
def shaped(): torch.ones(4).reshape(3)
def permuted(): torch.ones(4).permute(1, 2)
def not_differentiable(): torch.ones(2).long().requires_grad_()
def subscript(): a[5]
def assignment():
    a[5] = 1
def product(): torch.ones(2, 3) @ torch.ones(2, 3)
def loss(): torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.tensor([1, 9]))
def creation(): torch.zeros(-1)
def missing_argument(): torch.add(a)
def conversion(): a.item()
def truth(): bool(a)
def detached(): torch.ones(2, requires_grad=True).numpy()
def gradient():
    x = torch.ones(2, requires_grad=True)
    x.grad = b
def out(): torch.add(a, a, out=torch.ones(2, requires_grad=True))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(3, 3))

    def forward(self, x):
        return self.helper(x)

    def helper(self, x):
        return self.inner(x)


def layer(): torch.nn.Linear(2, 3)(torch.ones(5))
def network(): Net()(a)
def nested_network(): torch.nn.Sequential(torch.nn.Identity(), Net())(a)
def state(): torch.nn.Linear(2, 3).load_state_dict({})


def fail(*args): raise ValueError("the user's")
def forward_hook():
    net = torch.nn.Linear(2, 3)
    net.register_forward_hook(fail)
    net(a)
def tensor_hook():
    y = torch.ones(2, requires_grad=True) * 2
    y.register_hook(fail)
    y.sum().backward()
def node_hook():
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.grad_fn.register_hook(fail)
    torch.autograd.grad(y.sum(), x)
def saved_hook():
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, fail):
        y = torch.ones(2, requires_grad=True).exp().sum()
    y.backward()


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 1

    @staticmethod
    def backward(ctx, g): return g + torch.ones(7)


class Forward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x + torch.ones(7)


def custom_backward(): Backward.apply(torch.ones(2, requires_grad=True)).sum().backward()
def custom_backward_of_grad():
    x = torch.ones(2, requires_grad=True)
    torch.autograd.grad(Backward.apply(x).sum(), x)
def custom_forward(): Forward.apply(torch.ones(2, requires_grad=True))
def modified_in_place():
    y = torch.ones(2, requires_grad=True).exp()
    loss = y.sum()
    y.add_(1)
    loss.backward()
def no_graph(): torch.ones(2).sum().backward()
def no_graph_grad(): torch.autograd.grad(a.sum(), a)
def twice():
    y = torch.ones(2, requires_grad=True).exp().sum()
    y.backward()
    y.backward()
def gradient_of_gradient():
    x = torch.ones(2, requires_grad=True)
    g, = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
    g.register_hook(fail)
    g.sum().backward()
def backward_in_hook():
    def again(g):
        torch.ones(1).backward()
    y = torch.ones(2, requires_grad=True) * 2
    y.register_hook(again)
    y.sum().backward()


def wrong(x): return x + torch.ones(9)
def vmap(): torch.vmap(wrong)(torch.ones(2, 3))
def vmap_of_grad(): torch.vmap(torch.func.grad(wrong))(torch.ones(2, 3))
def grad_transform(): torch.func.grad(wrong)(a)
def vjp(): torch.func.vjp(wrong, a)
def jvp(): torch.func.jvp(wrong, (a,), (a,))
def jacobian(): torch.func.jacrev(wrong)(a)
def recomputed(): checkpoint(wrong, torch.ones(2, requires_grad=True), use_reentrant=False)
@torch.no_grad()
def decorated(): a + b
@torch.inference_mode()
def decorated_for_inference(): wrong(a)
def closure():
    torch.optim.SGD([torch.ones(2, requires_grad=True)], 0.1).step(fail)


class Data(torch.utils.data.Dataset):
    def __len__(self): return 3
    def __getitem__(self, i): fail(i)


def batches(): next(iter(DataLoader(Data())))


class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


def subclass(): a.as_subclass(Sub) + b


# control flow by exceptions: errors that are caught, raised again, chained, thrown into generators
def raised_again():
    try:
        torch.add(a, b)
    except RuntimeError:
        raise
def raised_later():
    try:
        torch.add(a, b)
    except RuntimeError as e:
        kept = e
    raise kept
def raised_again_in_a_module():
    class Retry(torch.nn.Module):
        def forward(self, x):
            try:
                return wrong(x)
            except RuntimeError:
                wrong(x)
    Retry()(a)
def from_cause():
    try:
        wrong(a)
    except RuntimeError as e:
        raise KeyError(1) from e
def in_generator():
    def generate():
        yield 1
        wrong(a)
    list(generate())
def thrown():
    def generate():
        try:
            yield 1
        except ValueError:
            wrong(a)
    g = generate()
    next(g)
    g.throw(ValueError())
def in_finally():
    try:
        wrong(a)
    finally:
        torch.add(a, a)
def in_map(): list(map(wrong, [a]))
def in_hook_of_two_errors():
    def again(g):
        try:
            wrong(a)
        except RuntimeError:
            fail()
    y = torch.ones(2, requires_grad=True) * 2
    y.register_hook(again)
    y.sum().backward()


def frames(e):
    """The frames of an error and of those in its chain."""
    found = []
    while e is not None:
        found.append([type(e).__name__, [(f.name, f.lineno) if f.filename == __file__ else f.filename for f in traceback.extract_tb(e.__traceback__)]])
        # an error of an op may have a context inside the library
        e = e.__cause__ or (e.__context__ if type(e) is ValueError else None)
    return found


told = {}
skipped = {"Net", "Backward", "Forward", "Data", "Sub", "frames", "fail", "wrong", "checkpoint", "DataLoader"}
for name, value in list(globals().items()):
    if callable(value) and name not in skipped:
        try:
            value()
        except Exception as e:
            told[name] = frames(e)
        else:
            told[name] = "no error"
print(json.dumps(told))
'''


def test_frames_are_those_of_the_user_in_pytorch(process):
    path = process.file("program.py", PROGRAM)
    plain = process.run(path)
    assert plain.returncode == 0, plain.stderr
    path.write_text(PROGRAM.replace("import torch\n", f"{HOOK}; import torch\n", 1), "utf-8")
    hooked = process.run(path)
    assert hooked.returncode == 0, hooked.stderr
    theirs, ours = json.loads(plain.stdout), json.loads(hooked.stdout)
    assert theirs.keys() == ours.keys() and len(ours) > 50
    assert "no error" not in theirs.values() and "no error" not in ours.values(), (theirs, ours)
    wrong = {}
    for name, found in ours.items():
        expected = [[kind, [f for f in frames if not isinstance(f, str)]] for kind, frames in theirs[name]]
        if [f for _, f in found] != [f for _, f in expected]:
            wrong[name] = found, expected
    assert not wrong, "\n".join(f"{k}\n    {a}\n    {b}" for k, (a, b) in wrong.items())


UNCAUGHT = f"""{HOOK}
import torch


def step(x):
    return torch.add(x, torch.ones(3))


step(torch.ones(2))
"""


def test_uncaught_error_shows_the_users_lines(process):
    path = process.file("program.py", UNCAUGHT)
    done = process.run(path)
    assert done.returncode == 1
    lines = [line for line in done.stderr.split("\n") if line.strip(" ^~")]
    assert lines == [
        "Traceback (most recent call last):",
        f'  File "{path}", line 9, in <module>', "    step(torch.ones(2))",
        f'  File "{path}", line 6, in step', "    return torch.add(x, torch.ones(3))",
        "RuntimeError: The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0"]


def test_variable_keeps_all_frames(process):
    done = process.run(process.file("program.py", UNCAUGHT), env={"MINDTORCH_TRACEBACK": "full"})
    assert done.returncode == 1 and "functions.py" in done.stderr and done.stderr.count('  File "') > 4


@pytest.mark.parametrize("body", [
    pytest.param("torch.compile(wrong)(torch.ones(2))", id="compile"),
    pytest.param("torch.compile(torch.nn.Sequential(torch.nn.Linear(3, 3)))(torch.ones(2))", id="compiled module"),
    pytest.param("torch.jit.script(wrong)(torch.ones(2))", id="jit"),
    pytest.param("torch.fx.symbolic_trace(torch.nn.Linear(2, 2))(torch.ones(3))", id="fx"),
    pytest.param("torch.ones(2, 2).to_sparse().sort()", id="sparse"),
    pytest.param("torch.empty(1 << 60)", id="memory"),
    pytest.param("torch.func.jacfwd(wrong)(torch.ones(2))", id="jacfwd"),
])
def test_no_frame_of_mindtorch(process, body):
    done = process.ok(f"""
        {HOOK}
        import os, torch, traceback
        import mindtorch
        def wrong(x): return x + torch.ones(9)
        try:
            {body}
        except Exception as e:
            files = [f.filename for f in traceback.extract_tb(e.__traceback__)]
            print([f for f in files if f.startswith((os.path.dirname(mindtorch.__file__) + os.sep, "<mindtorch "))])
        """)
    assert done.strip() == "[]"


def test_sparse_error_names_the_op(process):
    """The message is built from frames that are removed."""
    assert "'sort' is not implemented for a sparse tensor" in process.ok(f"""
        {HOOK}
        import torch
        try:
            torch.ones(2, 2).to_sparse().sort()
        except NotImplementedError as e:
            print(e)
        """)


def test_call_from_internal_code_is_left_alone():
    """Errors that mindtorch catches itself keep their tracebacks: only the outer function filters."""
    import mindtorch.torch as torch
    from mindtorch.core.dispatch import traceback_filter
    internal = {"torch": torch}
    code = "def call(x):\n    try:\n        return torch.add(x, torch.ones(3))\n    except RuntimeError as e:\n        return e\n"
    exec(compile(code, traceback_filter.__file__, "exec"), internal)
    frames = []
    tb = internal["call"](torch.ones(2)).__traceback__
    while tb is not None:
        frames.append(tb.tb_frame.f_code.co_filename)
        tb = tb.tb_next
    assert len(frames) > 2


def test_error_has_no_internal_context():
    import mindtorch.torch as torch
    with pytest.raises(RuntimeError, match="is invalid for input of size 4") as info:
        torch.ones(4).view(3)
    assert info.value.__context__ is None


def test_users_context_and_cause_stay():
    import mindtorch.torch as torch
    cause, context = KeyError("cause"), KeyError("context")

    def hook(g):
        try:
            raise context
        except KeyError:
            raise ValueError from cause

    y = torch.ones(2, requires_grad=True) * 2
    y.register_hook(hook)
    with pytest.raises(ValueError) as info:
        y.sum().backward()
    e = info.value
    assert e.__cause__ is cause and e.__context__ is context and e.__suppress_context__
    assert context.__traceback__.tb_frame.f_code is hook.__code__


def test_filter_is_idempotent():
    import mindtorch.torch as torch
    from mindtorch.core.dispatch.traceback_filter import remove_internal_frames
    with pytest.raises(RuntimeError) as info:
        torch.add(torch.ones(2), torch.ones(3))
    e = info.value
    first = e.__traceback__
    assert first.tb_next is None and first.tb_frame.f_code.co_filename == __file__
    remove_internal_frames(e)
    assert e.__traceback__ is first and first.tb_next is None


def test_errors_in_a_cycle():
    """__context__ of errors can form a cycle."""
    from mindtorch.core.dispatch.traceback_filter import remove_internal_frames
    a, b = ValueError(1), ValueError(2)
    a.__context__, b.__context__ = b, a
    remove_internal_frames(a)
    assert a.__context__ is b and b.__context__ is a
