"""Undocumented PyTorch names that programs import, and the warnings of deprecated names: both match
PyTorch."""
import collections
import copy
import importlib
import io
import os
import pickle
import threading
import warnings

import pytest
import torch as real

import mindtorch.torch as mine

BOTH = pytest.mark.parametrize("T", (real, mine), ids=("real", "mine"))
SMALL = [f"{kind}{bits}" for kind in ("uint", "int") for bits in range(1, 8)]
BITS = ["bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"]


def outcome(f):
    """Returns (the value of a call or the class of its error, the (class, text) pairs of its
    warnings)."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        try:
            result = f()
        except Exception as e:
            result = type(e)
    return result, [(w.category, str(w.message)) for w in given]


# ------------------------------------------------------------------ dtypes
@pytest.mark.parametrize("name", SMALL + BITS + ["bit"])
def test_dtypes_without_kernels(name):
    a, b = getattr(real, name), getattr(mine, name)
    for of in (repr, lambda d: d.itemsize, lambda d: d.is_floating_point, lambda d: d.is_complex, lambda d: d == d, lambda d: d.to_complex()):
        assert outcome(lambda: of(a))[0] == outcome(lambda: of(b))[0]
    if name in SMALL:
        assert a.is_signed == b.is_signed
    assert pickle.loads(pickle.dumps(b)) is b and copy.deepcopy(b) is b and len({b, mine.int8, mine.uint8}) == 3
    for T, d in ((real, a), (mine, b)):
        with pytest.raises(TypeError):
            T.iinfo(d)
        with pytest.raises(TypeError):
            T.finfo(d)
        with pytest.raises(TypeError):
            T.set_default_dtype(d)
    for use in (lambda: mine.ones(2, dtype=b), lambda: mine.ones(2).to(b), lambda: mine.ones(2, dtype=mine.uint8).view(b), lambda: mine.tensor([1], dtype=b)):
        with pytest.raises(NotImplementedError, match=repr(b)):
            use()


def test_every_torch_dtype_exists():
    assert [n for n in dir(real) if isinstance(getattr(real, n), real.dtype) and not isinstance(getattr(mine, n, None), mine.dtype)] == []


# ------------------------------------------------------------------ modules
MODULES = {
    "cuda.amp.grad_scaler": "GradScaler OptState", "cuda.amp.autocast_mode": "autocast custom_fwd custom_bwd", "cuda.amp.common": "amp_definitely_not_available",
    "cpu.amp.autocast_mode": "autocast", "cpu.amp.grad_scaler": "GradScaler",
    "utils._device": "_device_constructors DeviceContext device_decorator set_device CURRENT_DEVICE", "utils.file_baton": "FileBaton",
    "utils.data._utils.pin_memory": "pin_memory", "fx._symbolic_trace": "compatibility Tracer", "_subclasses.fake_tensor": "FakeTensorConverter FakeTensorMode",
    "distributed._composable.fsdp": "fully_shard register_fsdp_forward_method", "distributed._composable.fsdp.fully_shard": "FSDPModule UnshardHandle",
    "distributed.fsdp": "register_fsdp_forward_method", "serialization": "skip_data normalize_storage_type",
    "_C": "_jit_set_autocast_mode _get_default_device",
}


@pytest.mark.parametrize("module", MODULES)
def test_modules_have_their_names(module):
    for T in (real, mine):
        there = importlib.import_module(f"{T.__name__}.{module}")
        assert [n for n in MODULES[module].split() if not hasattr(there, n)] == []
    public = getattr(importlib.import_module("torch." + module), "__all__", None)
    if module.count("amp.") and public is not None:
        assert set(public) <= set(dir(importlib.import_module("mindtorch.torch." + module)))


@pytest.mark.parametrize("package", ("utils.data.datapipes.iter", "utils.data.datapipes.map"))
def test_data_pipe_modules_have_torchs_names(package):
    import pkgutil
    whole = importlib.import_module("torch." + package)
    assert set(whole.__all__) <= set(dir(importlib.import_module("mindtorch.torch." + package)))
    for part in pkgutil.iter_modules(whole.__path__):
        there = importlib.import_module(f"torch.{package}.{part.name}")
        assert set(there.__all__) <= set(dir(importlib.import_module(f"mindtorch.torch.{package}.{part.name}"))), part.name


def test_deprecated_amp_names_alias_the_new_ones():
    from mindtorch.torch.cuda.amp import autocast_mode, grad_scaler
    assert grad_scaler.GradScaler is mine.cuda.amp.GradScaler and issubclass(grad_scaler.GradScaler, mine.amp.GradScaler)
    assert autocast_mode.autocast is mine.cuda.amp.autocast and issubclass(autocast_mode.autocast, mine.amp.autocast)


OLD = {
    "autocast": lambda T: T.cuda.amp.autocast().fast_dtype.__repr__(),
    "autocast by keywords": lambda T: T.cuda.amp.autocast(enabled=False, dtype=T.bfloat16).fast_dtype.__repr__(),
    "autocast, class": lambda T: type("Mine", (T.cuda.amp.autocast,), {})(enabled=False)._enabled,
    "GradScaler": lambda T: T.cuda.amp.GradScaler(2.0, 3.0, 0.5, 7, False).is_enabled(),
    "GradScaler, on": lambda T: T.cuda.amp.GradScaler().is_enabled(),
    "GradScaler, class": lambda T: type("Mine", (T.cuda.amp.GradScaler,), {})(enabled=False).is_enabled(),
    "custom_fwd": lambda T: callable(T.cuda.amp.custom_fwd(lambda ctx, x: x)),
    "custom_fwd with casts": lambda T: callable(T.cuda.amp.custom_fwd(cast_inputs=T.float32)(lambda ctx, x: x)),
    "custom_bwd": lambda T: callable(T.cuda.amp.custom_bwd(lambda ctx, x: x)),
    "_cast": lambda T: T.cuda.amp.autocast_mode._cast("text", T.float16),
    "cpu autocast": lambda T: T.cpu.amp.autocast().fast_dtype.__repr__(),
    "cpu autocast, decorator": lambda T: T.cpu.amp.autocast()(lambda: (T.ones(2, 2) @ T.ones(2, 2)).dtype.__repr__())(),
    "cpu GradScaler": lambda T: T.cpu.amp.GradScaler(enabled=False).is_enabled(),
    "torch.amp": lambda T: [T.amp.GradScaler("cuda", enabled=False).is_enabled(), T.amp.autocast("cuda", enabled=False)._enabled],
    "script": lambda T: T.jit.script(T.nn.ReLU())(T.ones(1)).item(),
    "trace": lambda T: T.jit.trace(lambda x: x + 1, T.ones(1))(T.ones(1)).item(),
    "freeze": lambda T: T.jit.freeze(T.jit.script(T.nn.ReLU().eval()))(T.ones(1)).item(),
    "interface": lambda T: T.jit.interface(3),
    "fork": lambda T: T.jit.wait(T.jit.fork(T.neg, T.ones(1))).item(),
    "clip, used up": lambda T: T.nn.utils.clip_grad_norm_((p for p in ()), 1.0).item(),
    "clip, an empty list": lambda T: T.nn.utils.clip_grad_norm_([], 1.0).item(),
    "clip, a generator": lambda T: T.nn.utils.clip_grad_norm_((p for p in [T.ones(2, requires_grad=True)]), 1.0).item(),
    "clip, an iterator": lambda T: T.nn.utils.clip_grad_norm_(iter(()), 1.0).item(),
}


SILENT = {"torch.amp", "clip, an empty list", "clip, a generator", "clip, an iterator"}


@pytest.mark.parametrize("name", OLD)
def test_deprecated_names_warn_like_torch(name):
    (a, given), (b, ours) = [outcome(lambda T=T: OLD[name](T)) for T in (real, mine)]
    assert a == b
    # PyTorch also emits the warnings of the functions it calls internally.
    given, ours = [{w for w in ws if issubclass(w[0], (FutureWarning, DeprecationWarning)) or "generator" in w[1]} for ws in (given, ours)]
    assert {w for w in given if "trace_method" not in w[1]} == ours and bool(ours) == (name not in SILENT)


def test_signatures_of_deprecated_names():
    import inspect
    for name in ("cuda.amp.autocast", "cuda.amp.GradScaler", "cuda.amp.custom_fwd", "cpu.amp.autocast", "cpu.amp.GradScaler"):
        a, b = [inspect.signature(eval(f"T.{name}", {"T": T})) for T in (real, mine)]
        assert [(p.name, p.kind, repr(p.default)) for p in a.parameters.values()] == [(p.name, p.kind, repr(p.default)) for p in b.parameters.values()], name


def test_deprecation_warning_points_to_the_caller():
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        mine.cuda.amp.autocast(enabled=False)
        mine.cuda.amp.GradScaler(enabled=False)
        mine.nn.utils.clip_grad_norm_((p for p in ()), 1.0)
    assert [w.filename for w in given] == [__file__] * 3


# ------------------------------------------------------------------ behavior
def test_device_mode_sees_all_device_constructors():
    seen, missed = set(), []
    makes = {
        "empty": lambda T: T.empty(2), "ones": lambda T: T.ones(2), "arange": lambda T: T.arange(2), "eye": lambda T: T.eye(2), "full": lambda T: T.full((2,), 1.0),
        "linspace": lambda T: T.linspace(0, 1, 2), "logspace": lambda T: T.logspace(0, 1, 2), "rand": lambda T: T.rand(2), "randn": lambda T: T.randn(2),
        "randint": lambda T: T.randint(2, (2,)), "randperm": lambda T: T.randperm(2), "zeros": lambda T: T.zeros(2), "tensor": lambda T: T.tensor([1]),
        "as_tensor": lambda T: T.as_tensor([1]), "asarray": lambda T: T.asarray([1]), "scalar_tensor": lambda T: T.scalar_tensor(1.0),
        "tril_indices": lambda T: T.tril_indices(2, 2), "hann_window": lambda T: T.hann_window(2), "empty_strided": lambda T: T.empty_strided((2,), (1,)),
        "sparse_coo_tensor": lambda T: T.sparse_coo_tensor(T.tensor([[0]]), T.tensor([1.0]), (2,)), "fft.fftfreq": lambda T: T.fft.fftfreq(2),
    }

    from mindtorch.torch.overrides import TorchFunctionMode
    constructors = importlib.import_module("mindtorch.torch.utils._device")._device_constructors()

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.add(func)
            return func(*args, **(kwargs or {}))

    for name, make in makes.items():
        seen.clear()
        with Watch():
            make(mine)
        if not seen & constructors:
            missed.append(name)
    assert missed == []
    theirs = {f.__name__ for f in importlib.import_module("torch.utils._device")._device_constructors()}
    assert theirs == {("fft_" if f.__name__.endswith("fftfreq") else "") + f.__name__ for f in constructors}


@BOTH
def test_default_device_and_device_contexts(T):
    part = importlib.import_module(f"{T.__name__}.utils._device")
    assert part.CURRENT_DEVICE is None
    T.set_default_device("meta")
    try:
        assert part.CURRENT_DEVICE == T.device("meta")
    finally:
        T.set_default_device(None)
    with part.DeviceContext("meta"):
        assert T.empty(2).device.type == "meta" and part.CURRENT_DEVICE == T.device("meta")
        assert T.empty(2, device="cpu").device.type == "cpu"
        with part.DeviceContext("cpu"):
            assert T.empty(2).device.type == "cpu" and part.CURRENT_DEVICE == T.device("cpu")
    assert T.empty(2).device.type == "cpu" and part.CURRENT_DEVICE is None
    assert part.set_device("meta")(lambda: T.ones(3))().device.type == "meta"
    assert part.device_decorator(T.device("meta"), lambda: T.ones(3))().device.type == "meta"


@BOTH
def test_file_baton(T, tmp_path):
    FileBaton = importlib.import_module(f"{T.__name__}.utils.file_baton").FileBaton
    path = str(tmp_path / "lock")
    one, two = FileBaton(path), FileBaton(path, wait_seconds=0.01, warn_after_seconds=0)
    assert one.try_acquire() and not two.try_acquire() and os.path.exists(path)
    timer = threading.Timer(0.1, one.release)
    timer.start()
    with pytest.warns(UserWarning, match="Waited on lock file"):
        two.wait()
    timer.join()
    assert two.try_acquire()
    two.release()
    assert not os.path.exists(path)


def test_pinned_batches():
    Pair = collections.namedtuple("Pair", "a b")

    class Own:
        def pin_memory(self):
            return "pinned"

    class Marked(dict):
        pass

    pin = importlib.import_module("mindtorch.torch.utils.data._utils.pin_memory").pin_memory
    x = mine.ones(2)
    marked = Marked(x=x)
    marked.more = 5
    r = pin({"a": [x, "text", b"b"], "b": Pair(x, (x, 1)), "c": Own(), "d": marked, "e": range(3)})
    assert r["a"][1:] == ["text", b"b"] and type(r["b"]) is Pair and type(r["b"].b) is tuple and r["c"] == "pinned"
    assert type(r["d"]) is Marked and r["d"].more == 5 and r["e"] == [0, 1, 2]
    assert all(t.equal(x) for t in (r["a"][0], r["b"].a, r["b"].b[0], r["d"]["x"]))


@BOTH
def test_settings_of_the_c_module(T):
    assert T._C._get_default_device() == "cpu"
    before = T._C._jit_set_autocast_mode(False)
    assert T._C._jit_set_autocast_mode(before) is False and T._C._jit_set_autocast_mode(before) is before


def test_checkpoints_without_data(tmp_path):
    def content(T):
        x = T.arange(6.0).reshape(2, 3)
        return {"x": x, "view": x[1], "n": T.ones(3, dtype=T.int64), "s": "text"}

    whole, files = {}, {}
    for T in (real, mine):
        b, full = io.BytesIO(), io.BytesIO()
        with T.serialization.skip_data():
            T.save(content(T), b)
        T.save(content(T), full)
        assert len(b.getvalue()) == len(full.getvalue())
        files[T], whole[T] = b.getvalue(), full.getvalue()
    for T in (real, mine):
        for f in (*files.values(), *whole.values()):
            with T.serialization.skip_data():
                skipped = T.load(io.BytesIO(f))
            r = T.load(io.BytesIO(f))
            for d in (skipped, r):
                assert [list(t.shape) for t in list(d.values())[:3]] == [[2, 3], [3], [3]] and d["s"] == "text" and d["n"].dtype == T.int64
                assert d["x"].untyped_storage().data_ptr() == d["view"].untyped_storage().data_ptr()
            assert (r["x"].sum().item() == 15) == (f in whole.values())
    with mine.serialization.skip_data(), pytest.raises(RuntimeError, match="_use_new_zipfile_serialization=False"):
        mine.save(content(mine), io.BytesIO(), _use_new_zipfile_serialization=False)
    old = io.BytesIO()
    mine.save(content(mine), old, _use_new_zipfile_serialization=False)
    with mine.serialization.skip_data():
        assert mine.load(io.BytesIO(old.getvalue()))["x"].shape == (2, 3)
    assert mine.load(io.BytesIO(old.getvalue()))["x"].sum().item() == 15


@BOTH
def test_storage_classes_by_name(T):
    assert T.serialization.normalize_storage_type(T.FloatStorage) is T.FloatStorage


@BOTH
def test_get_device_index(T):
    index = importlib.import_module(f"{T.__name__}.cuda._utils")._get_device_index
    assert [index(0), index("cuda:1"), index(T.device("cuda", 2)), index("cpu", allow_cpu=True), index(None, optional=True)] == [0, 1, 2, -1, None]
    for wrong in (None, "cpu", "cuda"):
        with pytest.raises(ValueError):
            index(wrong)


@BOTH
def test_nvtx_and_missing_packages(T):
    with pytest.raises(RuntimeError, match="NVTX"):
        T.cuda.nvtx.range_push("a")
    with pytest.raises(RuntimeError, match="NVTX"):
        with T.cuda.nvtx.range("{}", 1):
            pass
    assert not importlib.import_module(f"{T.__name__}.utils._triton").has_triton()
    assert importlib.import_module(f"{T.__name__}.utils._import_utils")._check_module_exists("numpy")
    not_none = importlib.import_module(f"{T.__name__}.utils._typing_utils").not_none
    assert not_none(3) == 3
    with pytest.raises(TypeError):
        not_none(None)
    graphs = importlib.import_module(f"{T.__name__}.cuda.graphs")
    assert graphs.CUDAGraph is T.cuda.CUDAGraph and graphs.is_current_stream_capturing is T.cuda.is_current_stream_capturing


def test_nvtx_ranges_on_an_accelerator(monkeypatch):
    from mindtorch.core.device import device
    monkeypatch.setattr(device, "accelerator", lambda: ("npu", "cuda"))
    nvtx = mine.cuda.nvtx
    assert [nvtx.range_push("a"), nvtx.range_push("b"), nvtx.range_pop(), nvtx.range_pop(), nvtx.range_pop()] == [0, 1, 1, 0, -1]
    with nvtx.range("step {}", 3):
        assert nvtx.range_push("a") == 1 and nvtx.range_pop() == 1
    assert nvtx.range_start("a") != nvtx.range_start("b")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_deprecated_autocast_in_a_compiled_function():
    layer = mine.nn.Linear(4, 4)

    def f(x):
        with mine.cpu.amp.autocast():
            y = layer(x)
        with mine.cuda.amp.autocast(enabled=False):
            return y, layer(x)

    x = mine.randn(2, 4)
    compiled = mine.compile(f)
    for _ in range(3):
        for a, b in zip(compiled(x), f(x)):
            assert a.dtype is b.dtype and a.equal(b)
    assert f(x)[0].dtype is mine.bfloat16 and mine._dynamo.explain(f)(x).graph_break_count == 0
