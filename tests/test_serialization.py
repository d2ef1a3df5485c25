"""torch.save and torch.load against real torch: each side reads what the other wrote, and bad files end in clear errors."""

import collections
import copy
import io
import multiprocessing
import os
import pathlib
import pickle
import pickletools
import random
import signal
import stat
import struct
import tarfile
import time
import warnings
import zipfile

import numpy as np
import pytest
import torch as real
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mindtorch.torch as mine
from mindtorch.torch import _weights_only_unpickler, _zipfile

SIDES = {"real": real, "mine": mine}
LOAD_ERRORS = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, NotImplementedError)


def tensor(T, a, dtype=None):
    t = T.from_numpy(np.array(a))
    return t if dtype is None else t.to(getattr(T, dtype))


def numbers(T, dtype, n=6):
    return tensor(T, np.arange(n) % 3 / 2, dtype)


def views(T):
    base = tensor(T, np.arange(24, dtype=np.float32).reshape(4, 6))
    return {"t": base.t(), "part": base[1:3, ::2], "base": base, "row": base[2], "expanded": base[:1].expand(5, 6)}


def parameters(T):
    shared = T.nn.Parameter(tensor(T, np.ones((2, 3), np.float32)))
    return {"a": shared, "b": shared, "frozen": T.nn.Parameter(tensor(T, np.zeros(2, np.float32)), requires_grad=False)}


def model(T):
    m = T.nn.Sequential(T.nn.Linear(3, 4), T.nn.BatchNorm1d(4), T.nn.ReLU(), T.nn.Linear(4, 2, bias=False))
    with T.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(tensor(T, np.random.RandomState(i).randn(*p.shape).astype(np.float32)))
    return m


def trained(T, kind, **kw):
    m = model(T)
    opt = getattr(T.optim, kind)(m.parameters(), lr=0.1, **kw)
    m(tensor(T, np.ones((4, 3), np.float32))).sum().backward()
    opt.step()
    return m, opt


def checkpoint(T):
    m, opt = trained(T, "Adam")
    sched = T.optim.lr_scheduler.StepLR(opt, 2)
    return {
        "epoch": 3,
        "model": m.state_dict(),
        "optimizer": opt.state_dict(),
        "scheduler": sched.state_dict(),
        "best": 0.5,
    }


def with_attribute(T):
    t = tensor(T, [1.0])
    t.note = "kept"
    return t


OBJECTS = {
    f"dtype {d}": lambda T, d=d: numbers(T, d)
    for d in (
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "bool",
        "complex64",
        "complex128",
    )
}
NEW_ONLY = {f"dtype {d}": lambda T, d=d: tensor(T, np.arange(5).astype(d)) for d in ("uint16", "uint32", "uint64")}
OBJECTS |= {
    "scalar": lambda T: tensor(T, 2.5),
    "empty": lambda T: tensor(T, np.zeros((0, 3), np.float32)),
    "no dims empty": lambda T: tensor(T, np.zeros(0, np.int64)),
    "one": lambda T: tensor(T, [[[7]]]),
    "transposed": lambda T: tensor(T, np.arange(6.0).reshape(2, 3)).t(),
    "channels last": lambda T: tensor(T, np.arange(24.0).reshape(1, 2, 3, 4)).permute(0, 3, 1, 2),
    "offset": lambda T: tensor(T, np.arange(9.0))[4:],
    "strided": lambda T: tensor(T, np.arange(9.0))[1::3],
    "expanded": lambda T: tensor(T, np.ones((1, 3))).expand(4, 3),
    "empty view": lambda T: tensor(T, np.ones(5))[2:2],
    "views": views,
    "same twice": lambda T: [tensor(T, [1.0])] * 2,
    "requires grad": lambda T: tensor(T, np.ones(3)).requires_grad_(),
    "parameters": parameters,
    "parameter of a view": lambda T: T.nn.Parameter(tensor(T, np.arange(6.0))[2:]),
    "state dict": lambda T: model(T).state_dict(),
    "checkpoint": checkpoint,
    "sgd": lambda T: trained(T, "SGD", momentum=0.9)[1].state_dict(),
    "adamw": lambda T: trained(T, "AdamW")[1].state_dict(),
    "rmsprop": lambda T: trained(T, "RMSprop")[1].state_dict(),
    "adagrad": lambda T: trained(T, "Adagrad")[1].state_dict(),
    "size": lambda T: T.Size([2, 3]),
    "sizes": lambda T: {T.Size([]): 1, T.Size([1]): T.Size([0])},
    "dtypes": lambda T: [T.float32, T.bfloat16, T.bool, T.complex64, T.float8_e4m3fn],
    "devices": lambda T: [T.device("cpu"), T.device("cuda", 1), T.device("meta")],
    "layout": lambda T: T.strided,
    "generator state": lambda T: T.Generator().manual_seed(7).get_state(),
    "numbers": lambda T: [
        1,
        -1,
        2**70,
        -(2**70),
        255,
        256,
        65535,
        65536,
        -(2**31),
        2.5,
        float("inf"),
        True,
        None,
        1 + 2j,
    ],
    "strings": lambda T: ["", "a", "ü漢", "x" * 300, b"\x00\xff", bytearray(b"ab")],
    "containers": lambda T: {
        "l": [1, [2]],
        "t": (1, (2, 3), (4, 5, 6), (7, 8, 9, 10), ()),
        "d": {1: {2: 3}},
        "s": {1, 2},
        "o": collections.OrderedDict(a=1),
        "c": collections.Counter("aab"),
    },
    "recursive": lambda T: (lambda x: x.append(x) or x)([1]),
    "name like a global": lambda T: ["cmindtorch.torch._utils\n_rebuild_tensor_v2\n", tensor(T, [1.0])],
    "long list": lambda T: list(range(3000)),
    "many": lambda T: [tensor(T, [float(i)]) for i in range(300)],
    "deep": lambda T: {"a": [{"b": (tensor(T, [1]), {"c": [tensor(T, [2.0])]})}]},
    "ordered with metadata": lambda T: model(T).half().state_dict(),
    "attribute": with_attribute,
    "none": lambda T: None,
    "typed storage": lambda T: tensor(T, [1.0, 2.0]).storage(),
    "mixed": lambda T: {"x": tensor(T, [1.0]), "y": "text", "z": [T.float16, T.Size([1]), tensor(T, [True])]},
}
assert len(OBJECTS) >= 40
BOTH = [(n, z) for n in OBJECTS for z in (True, False)] + [(n, True) for n in NEW_ONLY]


def build(T, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {**OBJECTS, **NEW_ONLY}[name](T)


def saved(T, obj, zipped=True, **kw):
    b = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        T.save(obj, b, _use_new_zipfile_serialization=zipped, **kw)
    b.seek(0)
    return b


def side(x):
    return next(
        (T for T in SIDES.values() if isinstance(x, (T.Tensor, T.dtype, T.device, T.Size, T.layout, T.TypedStorage))),
        None,
    )


def raw(t):
    """A tensor's elements as bytes."""
    T = side(t)
    t = t.detach().contiguous()
    return (
        t.view(T.uint8).numpy().tobytes()
        if t.dim() and t.numel()
        else (t.reshape(1).view(T.uint8).numpy().tobytes() if t.numel() else b"")
    )


def compare(a, b, places, seen):
    """`b` is what `a` is, element for element and attribute for attribute; storages are shared alike."""
    if id(a) in seen:
        return
    if isinstance(a, (list, dict)):
        seen.add(id(a))
    T = side(a)
    if T is None or isinstance(a, T.Size):
        assert type(a).__name__ == type(b).__name__, f"{type(b)} for {type(a)}"
    if T is not None and isinstance(a, T.Tensor):
        assert type(a).__name__ == type(b).__name__
        assert (str(a.dtype), tuple(a.shape), a.requires_grad) == (str(b.dtype), tuple(b.shape), b.requires_grad)
        # Without elements the two from_numpy differ in what they make of NumPy's strides.
        assert not a.numel() or (a.stride(), a.storage_offset()) == (b.stride(), b.storage_offset())
        assert raw(a) == raw(b)
        places.append(
            (
                a.untyped_storage().data_ptr() if a.numel() else None,
                b.untyped_storage().data_ptr() if b.numel() else None,
            )
        )
        assert getattr(a, "note", None) == getattr(b, "note", None)
    elif T is not None and isinstance(a, T.TypedStorage):
        assert (str(a.dtype), a.tolist()) == (str(b.dtype), b.tolist())
    elif T is not None and not isinstance(a, T.Size):
        assert repr(a) == repr(b)
    elif isinstance(a, dict):
        assert [str(k) for k in a] == [str(k) for k in b]
        for x, y in zip(a, b):
            compare(x, y, places, seen)
            compare(a[x], b[y], places, seen)
        if getattr(a, "_metadata", None) is not None:
            compare(a._metadata, b._metadata, places, seen)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            compare(x, y, places, seen)
    else:
        assert a == b


def check(a, b):
    places = []
    compare(a, b, places, set())
    one, other = {}, {}
    for i, (x, y) in enumerate(places):
        if x is not None:
            assert one.setdefault(x, i) == other.setdefault(y, i), "storages are not shared alike"


# ------------------------------------------------------------------ both ways
@pytest.mark.parametrize("name, zipped", BOTH)
def test_real_files_are_read(name, zipped):
    data = saved(real, build(real, name), zipped)
    for kw in ({}, {"weights_only": False}):
        data.seek(0)
        check(build(real, name), mine.load(data, **kw))


@pytest.mark.parametrize("name, zipped", BOTH)
def test_real_torch_reads_ours(name, zipped, tmp_path):
    obj = build(mine, name)
    check(obj, real.load(saved(mine, obj, zipped), weights_only=True))
    path = tmp_path / "file.pth"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine.save(obj, path, _use_new_zipfile_serialization=zipped)
    if zipped:
        check(obj, real.load(path, weights_only=True, mmap=True))
        check(obj, mine.load(path, mmap=True))
    check(obj, mine.load(path))


@pytest.mark.parametrize("name", [n for n in OBJECTS if n not in ("many", "long list")])
def test_pickles_name_what_real_torch_names(name):
    def globals_of(T):
        z = zipfile.ZipFile(saved(T, build(T, name)))
        return {a for o, a, _ in pickletools.genops(z.read("archive/data.pkl")) if o.name == "GLOBAL"}

    assert globals_of(mine) == globals_of(real)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("zipped", [True, False])
def test_pickle_protocols(protocol, zipped):
    obj = build(mine, "mixed")
    data = saved(mine, obj, zipped, pickle_protocol=protocol)
    check(obj, real.load(data, weights_only=False))
    for weights_only in (True, False):
        data.seek(0)
        check(obj, mine.load(data, weights_only=weights_only))
    data = saved(real, build(real, "mixed"), zipped, pickle_protocol=protocol)
    check(obj, mine.load(data))


def test_zip_container_is_torchs(tmp_path):
    obj = {"a": tensor(mine, np.arange(100.0)), "b": tensor(mine, [1, 2])}
    mine.save(obj, tmp_path / "some.name.pth")
    z = zipfile.ZipFile(tmp_path / "some.name.pth")
    assert z.testzip() is None
    assert z.namelist() == [
        f"some.name/{n}"
        for n in (
            "data.pkl",
            ".format_version",
            ".storage_alignment",
            "byteorder",
            "data/0",
            "data/1",
            "version",
            ".data/serialization_id",
        )
    ]
    assert z.read("some.name/version") == b"3\n" and z.read("some.name/byteorder") == b"little"
    with open(tmp_path / "some.name.pth", "rb") as f:
        reader = _zipfile.Reader(f)
        assert all(reader.locate(n)[0] % 64 == 0 for n in reader.names())
    mine.save(obj, tmp_path / "again.pth")
    ids = [
        zipfile.ZipFile(tmp_path / n).read(n[:-4] + "/.data/serialization_id") for n in ("some.name.pth", "again.pth")
    ]
    assert all(len(i) == 40 and i.isdigit() for i in ids)


def test_zip64_fields(monkeypatch, tmp_path):
    monkeypatch.setattr(_zipfile, "_LIMIT32", 2000)
    monkeypatch.setattr(_zipfile, "_LIMIT16", 10)
    obj = [tensor(mine, np.arange(float(i * 50))) for i in range(1, 20)]
    mine.save(obj, tmp_path / "big.pth")
    assert zipfile.ZipFile(tmp_path / "big.pth").testzip() is None
    check(obj, real.load(tmp_path / "big.pth", weights_only=True, mmap=True))
    check(obj, mine.load(tmp_path / "big.pth"))


class Net(real.nn.Module):
    pass


def test_whole_modules_of_real_torch_become_ours():
    def make(T):
        return T.nn.Sequential(
            T.nn.Conv2d(1, 2, 3), T.nn.BatchNorm2d(2), T.nn.ReLU(), T.nn.Flatten(), T.nn.Linear(8, 3), T.nn.Dropout(0.2)
        ).eval()

    m = make(real)
    x = np.random.RandomState(0).randn(5, 1, 4, 4).astype(np.float32)
    with pytest.raises(pickle.UnpicklingError, match=r"torch\.nn\.modules\.container\.Sequential"):
        mine.load(saved(real, m))
    for zipped in (True, False):
        got = mine.load(saved(real, m, zipped), weights_only=False)
        assert type(got) is mine.nn.Sequential and isinstance(got[0].weight, mine.nn.Parameter)
        np.testing.assert_allclose(
            got(tensor(mine, x)).detach().numpy(), m(tensor(real, x)).detach().numpy(), rtol=1e-5, atol=1e-5
        )
        back = real.load(saved(mine, got, zipped), weights_only=False)
        assert type(back) is real.nn.Sequential
        np.testing.assert_allclose(
            back(tensor(real, x)).detach().numpy(), m(tensor(real, x)).detach().numpy(), rtol=1e-5, atol=1e-5
        )


def test_user_classes_and_safe_globals():
    obj = {"who": User("me"), "w": tensor(mine, [1.0])}
    data = saved(mine, obj)
    with pytest.raises(pickle.UnpicklingError, match=r"add_safe_globals\(\[.*User\]\)") as e:
        mine.load(data)
    assert "Weights only load failed" in str(e.value) and "weights_only" in str(e.value)
    data.seek(0)
    assert mine.serialization.get_unsafe_globals_in_checkpoint(data) == [f"{__name__}.User"]
    assert mine.load(saved(mine, obj), weights_only=False)["who"] == User("me")
    with mine.serialization.safe_globals([User]):
        assert mine.serialization.get_safe_globals() == [User]
        assert mine.load(saved(mine, obj))["who"] == User("me")
    assert mine.serialization.get_safe_globals() == []
    mine.serialization.add_safe_globals([(Other, f"{__name__}.User")])
    try:
        assert type(mine.load(saved(mine, obj))["who"]) is Other
    finally:
        mine.serialization.clear_safe_globals()
    with pytest.raises(pickle.UnpicklingError):
        mine.load(saved(mine, obj))


class User:
    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return type(other) is User and other.name == self.name


class Other(User):
    pass


# ------------------------------------------------------------------ files
def test_paths_and_file_objects(tmp_path):
    obj = build(mine, "mixed")
    for f in (str(tmp_path / "a.pth"), tmp_path / "b", tmp_path / "ü.pt", tmp_path / ".x"):
        mine.save(obj, f)
        check(obj, mine.load(f))
        check(obj, real.load(f))
    with open(tmp_path / "two", "wb") as f:
        f.write(b"head")
        mine.save(obj, f, _use_new_zipfile_serialization=False)
        mine.save([1], f, _use_new_zipfile_serialization=False)
    with open(tmp_path / "two", "rb") as f:
        f.seek(4)
        check(obj, mine.load(f))
        assert mine.load(f) == [1] and not f.read()
    b = io.BytesIO(b"head" + saved(mine, obj).getvalue())
    b.seek(4)
    check(obj, mine.load(b))
    check(obj, mine.load(Plain(saved(mine, obj).getvalue())))
    check(obj, mine.load(Plain(saved(mine, obj, False).getvalue())))


class Plain:
    """A file object with no more than a file needs."""

    def __init__(self, data):
        b = io.BytesIO(data)
        self.read, self.seek, self.tell = b.read, b.seek, b.tell


class Writes:
    """Takes seven bytes at a time."""

    def __init__(self):
        self.got = b""

    def write(self, data):
        data = bytes(data[:7])
        self.got += data
        return len(data)


@pytest.mark.parametrize("zipped", [True, False])
def test_short_writes_are_continued(zipped):
    obj, w = build(mine, "mixed"), Writes()
    mine.save(obj, w, _use_new_zipfile_serialization=zipped)
    check(obj, real.load(io.BytesIO(w.got)))


def test_map_location_in_all_forms(tmp_path):
    data = saved(real, {"a": real.arange(3.0), "b": real.nn.Parameter(real.ones(2))})
    seen = []

    def note(storage, location):
        seen.append((type(storage).__name__, storage.nbytes(), location, str(storage.device)))
        return storage

    forms = [
        None,
        "cpu",
        mine.device("cpu"),
        {"cuda:0": "cpu"},
        {"cpu": "cpu"},
        note,
        lambda s, loc: None,
        lambda s, loc: s.clone(),
    ]
    for form in forms:
        data.seek(0)
        got = mine.load(data, map_location=form)
        assert got["a"].tolist() == [0, 1, 2] and got["b"].requires_grad and str(got["a"].device) == "cpu"
    assert seen == [("UntypedStorage", 12, "cpu", "cpu"), ("UntypedStorage", 8, "cpu", "cpu")]
    for form in ("meta", mine.device("meta"), {"cpu": "meta"}):
        data.seek(0)
        got = mine.load(data, map_location=form)
        assert str(got["a"].device) == "meta" and tuple(got["a"].shape) == (3,) and got["a"].dtype == mine.float32
    for form, error, text in (
        (5, TypeError, "not callable"),
        ("cuda:0", RuntimeError, "map_location=torch.device"),
        ("nowhere", RuntimeError, "don't know how to restore"),
        (lambda s, loc: 5, TypeError, "storage"),
    ):
        data.seek(0)
        with pytest.raises(error, match=text):
            mine.load(data, map_location=form)
    gpu = data.getvalue().replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    raw_file = rebuilt(
        data.getvalue(),
        {
            "data.pkl": zipfile.ZipFile(data)
            .read("archive/data.pkl")
            .replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
        },
    )
    assert gpu != data.getvalue()
    with pytest.raises(RuntimeError, match="map_location=torch.device"):
        mine.load(io.BytesIO(raw_file))
    for form in ("cpu", {"cuda:0": "cpu"}, lambda s, loc: s):
        assert mine.load(io.BytesIO(raw_file), map_location=form)["a"].tolist() == [0, 1, 2]


def test_an_error_of_the_users_map_location_is_the_users():
    class Mine(ValueError):
        pass

    def fail(storage, location):
        raise Mine("mine")

    with pytest.raises(Mine):
        mine.load(saved(mine, tensor(mine, [1.0])), map_location=fail)


def test_mmap_is_private(tmp_path):
    path = tmp_path / "m.pth"
    mine.save({"a": tensor(mine, np.arange(1000.0))}, path)
    before = path.read_bytes()
    t = mine.load(path, mmap=True)["a"]
    t[0] = 5.0
    assert t[0].item() == 5 and path.read_bytes() == before and mine.load(path)["a"][0].item() == 0
    with pytest.raises(ValueError, match="file path"):
        mine.load(io.BytesIO(before), mmap=True)
    mine.save([1], path, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap"):
        mine.load(path, mmap=True)


def test_loaded_storages_are_shared_and_writable():
    o = mine.load(saved(real, views(real)))
    o["base"][1, 0] = 77.0
    assert o["part"][0, 0].item() == 77.0 and o["t"][0, 1].item() == 77.0


def test_big_endian_files():
    data = saved(real, real.arange(5, dtype=real.int32)).getvalue()
    swapped = rebuilt(data, {"byteorder": b"big", "data/0": np.arange(5, dtype=">i4").tobytes()})
    assert mine.load(io.BytesIO(swapped)).tolist() == [0, 1, 2, 3, 4]
    swapped = rebuilt(data, {"byteorder": None, "data/0": np.arange(5, dtype=">i4").tobytes()})
    mine.serialization.set_default_load_endianness(mine.serialization.LoadEndianness.BIG)
    try:
        assert mine.load(io.BytesIO(swapped)).tolist() == [0, 1, 2, 3, 4]
    finally:
        mine.serialization.set_default_load_endianness(None)


def rebuilt(data, records, compression=zipfile.ZIP_STORED):
    """A checkpoint with some records replaced (None: left out) or added."""
    z, b = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(b, "w", compression) as out:
        for n in z.namelist():
            short = n.split("/", 1)[1]
            content = records.get(short, z.read(n))
            if content is not None:
                out.writestr(n, content)
        for short, content in records.items():
            if f"archive/{short}" not in z.namelist() and content is not None:
                out.writestr(f"archive/{short}", content)
    return b.getvalue()


def test_compressed_files_load_but_bombs_do_not():
    obj = build(real, "checkpoint")
    data = saved(real, obj).getvalue()
    check(obj, mine.load(io.BytesIO(rebuilt(data, {}, zipfile.ZIP_DEFLATED))))
    bomb = rebuilt(data, {"data/99": bytes(300 << 20)}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 20
    with pytest.raises(RuntimeError, match="unpack"):
        mine.load(io.BytesIO(bomb))


def test_checksums():
    t = tensor(mine, np.arange(1000.0))
    good = saved(mine, t).getvalue()
    at = good.index(np.arange(1000.0).tobytes()) + 100
    bad = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
    with pytest.raises(RuntimeError, match="CRC"):
        mine.load(io.BytesIO(bad))
    for T in (real, mine):
        T.serialization.set_crc32_options(False)
        try:
            assert mine.load(saved(T, tensor(T, np.arange(9.0)))).tolist() == list(range(9))
            assert real.load(saved(T, tensor(T, np.arange(9.0)))).tolist() == list(range(9))
        finally:
            T.serialization.set_crc32_options(True)


# ------------------------------------------------------------------ refusals
def legacy_file(payload, storages=()):
    return b"".join(
        [pickle.dumps(x, 2) for x in (mine.serialization.MAGIC_NUMBER, 1001, {"little_endian": True})]
        + [payload if isinstance(payload, bytes) else pickle.dumps(payload, 2), pickle.dumps(list(storages), 2)]
    )


def zip_file(payload):
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w") as z:
        z.writestr("archive/data.pkl", payload if isinstance(payload, bytes) else pickle.dumps(payload, 2))
        z.writestr("archive/version", "3\n")
    return b.getvalue()


class Call:
    def __init__(self, f, *a):
        self.value = f, a

    def __reduce__(self):
        return self.value


HOSTILE = {
    "system": Call(os.system, "touch executed"),
    "eval": Call(eval, "open('executed','w')"),
    "exec": Call(exec, "open('executed','w')"),
    "open": Call(open, "executed", "w"),
    "nested": {"w": [Call(eval, "1")]},
    "getattr": Call(getattr, "", "join"),
    "bytearray": Call(bytearray, 10**13),
    "import": b"\x80\x02cantigravity\nfly\n.",
    "file": b"\x80\x02cos\npopen\nX\x04\x00\x00\x00true\x85R.",
    "codec": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00zlib\x86R.",
    "attribute of a class": b"\x80\x02ctorch\nTensor\n}X\x01\x00\x00\x00aK\x01sb.",
    "state of a function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.",
    "tensor by size": b"\x80\x02ctorch\nTensor\nJ\xff\xff\xff\x7f\x85R.",
    "storage by size": b"\x80\x02ctorch\nFloatStorage\nJ\xff\xff\xff\x7f\x85R.",
    "tuple bomb as key": b"\x80\x02}(K\x01" + b"2\x86" * 60 + b"K\x01u.",
    "tuple bomb in a set": b"\x80\x02c__builtin__\nset\n](K\x01" + b"2\x86" * 60 + b"e\x85R.",
    "tuple bomb called": b"\x80\x02K\x01" + b"2\x86" * 60 + b")R.",
    "long integer": b"\x80\x02\x8b\xff\xff\xff\x7f" + b"\x01" * 10000 + b".",
    "no memo": b"\x80\x02j\xff\xff\xff\xff.",
    "string without end": b"\x80\x02X\xff\xff\xff\xff.",
    "bytes without end": b"\x80\x03\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "no storage": b"\x80\x02K\x01\x85Q.",
    "odd storage": b"\x80\x02(X\x07\x00\x00\x00storagectorch\nTensor\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x05NtQ.",
    "negative": b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuJ\xff\xff\xff\xffNtQ.",
    "huge": b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu\x8a\x07\xff\xff\xff\xff\xff\xff\x7fNtQ.",
    "stack": b"\x80\x02(((((.",
    "nothing": b"\x80\x02.",
    "pop": b"\x80\x020.",
    "mark in a tuple": b"\x80\x02(\x85.",
    "protocol 9": b"\x80\x09N.",
    "protocol 0": pickle.dumps({"a": 1}, 0),
    "ext": b"\x80\x02\x82\x01.",
    "next buffer": b"\x80\x05\x97.",
    "inst": b"(ios\nsystem\n.",
    "obj": b"\x80\x02(cos\nsystem\no.",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("make", [zip_file, legacy_file])
def test_hostile_files_run_nothing(name, make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    with pytest.raises(LOAD_ERRORS) as e:
        mine.load(io.BytesIO(make(HOSTILE[name])))
    assert len(str(e.value)) > 10 and not os.listdir(tmp_path) and time.monotonic() - start < 5
    assert not hasattr(mine.Tensor, "a")


OUTSIDE = [
    dict(offset=0, size=(25,), stride=(1,)),
    dict(offset=20, size=(5,), stride=(1,)),
    dict(offset=-1, size=(2,), stride=(1,)),
    dict(offset=0, size=(2, 2), stride=(30, 1)),
    dict(offset=0, size=(-1,), stride=(1,)),
    dict(offset=0, size=(2,), stride=(-1,)),
    dict(offset=0, size=(2,), stride=(1, 1)),
    dict(offset=10**30, size=(1,), stride=(1,)),
    dict(offset=0, size=(10**30,), stride=(0,)),
]


@pytest.mark.parametrize("where", OUTSIDE, ids=str)
def test_tensors_outside_their_storage_are_refused(where):
    def persistent(pid):
        return pid

    b = io.BytesIO()
    p = pickle.Pickler(b, 2)
    p.persistent_id = lambda o: ("storage", mine.storage.FloatStorage, "0", "cpu", 24) if o == "STORAGE" else None
    p.dump(
        Call(
            mine._utils._rebuild_tensor_v2,
            "STORAGE",
            where["offset"],
            where["size"],
            where["stride"],
            False,
            collections.OrderedDict(),
        )
    )
    payload = (
        b.getvalue()
        .replace(b"cmindtorch.torch.storage\nFloatStorage", b"ctorch\nFloatStorage")
        .replace(b"cmindtorch.", b"c")
    )
    data = rebuilt(saved(real, real.arange(24.0)).getvalue(), {"data.pkl": payload})
    with pytest.raises(LOAD_ERRORS, match="storage|size|stride"):
        mine.load(io.BytesIO(data))
    with pytest.raises(LOAD_ERRORS + (TypeError,)):
        real.load(io.BytesIO(data), weights_only=True)


DAMAGE = {
    "empty": b"",
    "noise": b"\0garbage" * 50,
    "text": b"hello world\n",
    "PK": b"PK\3\4" + b"\0" * 100,
    "empty zip": b"PK\5\6" + b"\0" * 18,
    "one byte": b"\x80",
    "plain pickle": pickle.dumps({"x": 1}, 2),
}


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("weights_only", [True, False])
def test_damaged_files_say_so(name, weights_only, tmp_path):
    (tmp_path / "f").write_bytes(DAMAGE[name])
    for f in (io.BytesIO(DAMAGE[name]), tmp_path / "f"):
        with pytest.raises(LOAD_ERRORS) as e:
            mine.load(f, weights_only=weights_only)
        assert len(str(e.value)) > 5


@pytest.mark.parametrize("zipped", [True, False])
def test_truncated_anywhere(zipped):
    data = saved(real, {"a": real.arange(50.0), "b": [1, "x"]}, zipped).getvalue()
    for n in range(len(data)):
        with pytest.raises(LOAD_ERRORS) as e:
            mine.load(io.BytesIO(data[:n]))
        assert len(str(e.value)) > 5


def test_refusals_of_load_and_save(tmp_path):
    with pytest.raises(FileNotFoundError):
        mine.load(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        mine.load(tmp_path)
    with pytest.raises(AttributeError, match="seekable"):
        mine.load(5)
    with pytest.raises(RuntimeError, match="pickle_module"):
        mine.load(saved(mine, 1), weights_only=True, pickle_module=pickle)
    with pytest.raises(TypeError, match="foo"):
        mine.load(saved(mine, 1), foo=1)
    assert mine.load(saved(mine, User("x")), pickle_module=pickle) == User("x")
    with pytest.raises(AttributeError, match="write"):
        mine.save(1, 5)
    with pytest.raises(RuntimeError, match="does not exist"):
        mine.save(1, tmp_path / "no" / "x.pth")
    with pytest.raises((RuntimeError, IsADirectoryError)):
        mine.save(1, tmp_path)
    with pytest.raises((AttributeError, pickle.PicklingError)):
        mine.save(lambda: 1, tmp_path / "x")
    assert os.listdir(tmp_path) == []
    t = tensor(mine, np.arange(4.0))
    with pytest.raises(RuntimeError, match="different types"):
        mine.save([t, t.view(mine.int64)], io.BytesIO())
    with pytest.raises(RuntimeError, match="version 99"):
        mine.load(io.BytesIO(rebuilt(saved(mine, 1).getvalue(), {"version": b"99\n"})))
    with pytest.raises(RuntimeError, match="TorchScript"):
        mine.load(io.BytesIO(rebuilt(saved(mine, 1).getvalue(), {"constants.pkl": b"x"})))
    b = io.BytesIO()
    with tarfile.open(fileobj=b, mode="w") as tar:
        for n in ("sys_info", "pickle", "tensors", "storages"):
            tar.addfile(tarfile.TarInfo(n))
    for weights_only in (True, False):
        b.seek(0)
        with pytest.raises(RuntimeError, match="tar"):
            mine.load(b, weights_only=weights_only)


def test_environment_switches(monkeypatch):
    data = saved(mine, User("x"))
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    assert mine.load(data) == User("x")
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(RuntimeError, match="both"):
        mine.load(data)
    monkeypatch.delenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    data.seek(0)
    with pytest.raises(pickle.UnpicklingError):
        mine.load(data, weights_only=False)


def test_dtypes_without_kernels_are_refused_by_name():
    for d in ("float8_e4m3fn", "complex32"):
        with pytest.raises((NotImplementedError, pickle.UnpicklingError), match=d):
            mine.load(saved(real, real.zeros(3, dtype=getattr(real, d))))
    with pytest.raises(NotImplementedError, match="sparse"):
        mine.load(saved(real, real.eye(2).to_sparse()))
    t = real.view_as_complex(real.arange(6.0).reshape(3, 2)).conj()
    assert mine.load(saved(real, t)).tolist() == t.tolist()


SEED_FILES = {}


def seed_file(zipped):
    if zipped not in SEED_FILES:
        obj = {
            "w": real.arange(40.0).reshape(5, 8),
            "p": real.nn.Parameter(real.ones(3)),
            "n": [1, "text", None, 2.5],
            "s": real.Size([1]),
        }
        obj["v"] = obj["w"][1:, ::2]
        SEED_FILES[zipped] = obj, saved(real, obj, zipped).getvalue()
    return SEED_FILES[zipped]


mutations = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "cut", "copy", "drop"]), st.floats(0, 1), st.integers(0, 255), st.floats(0, 0.2)
    ),
    min_size=1,
    max_size=3,
)


def mutated(data, changes):
    b = bytearray(data)
    for kind, where, value, share in changes:
        i, n = int(where * (len(b) - 1)), max(int(share * len(b)), 1)
        if kind == "flip":
            b[i] ^= 1 << value % 8
        elif kind == "set":
            b[i] = value
        elif kind == "cut":
            del b[i:]
        elif kind == "copy":
            b[i : i + n] = b[:n]
        else:
            del b[i : i + n]
        if not b:
            break
    return bytes(b)


@pytest.mark.parametrize("zipped", [True, False])
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(changes=mutations)
def test_mutated_files_give_documented_errors_or_load(zipped, changes):
    obj, data = seed_file(zipped)
    bad = mutated(data, changes)
    try:
        got = mine.load(io.BytesIO(bad), map_location="cpu")
    except LOAD_ERRORS as e:
        assert len(str(e)) > 5
    else:
        if zipped:
            # Checksums leave no room for a wrong load.
            check(obj, got)


# ------------------------------------------------------------------ saving is atomic
def test_an_error_while_saving_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "m.pth"
    mine.save([1], path)
    os.chmod(path, 0o640)
    before = path.read_bytes()

    def fail(self):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr(_zipfile.Writer, "finish", fail)
        with pytest.raises(OSError, match="space"):
            mine.save(build(mine, "checkpoint"), path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m.pth"]
    mine.save([2], path)
    assert mine.load(path) == [2] and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_links_modes_and_devices(tmp_path):
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real" / "m.pth", tmp_path / "link.pth")
    mine.save([1], tmp_path / "link.pth")
    assert (tmp_path / "link.pth").is_symlink() and mine.load(tmp_path / "real" / "m.pth") == [1]
    mask = os.umask(0o027)
    try:
        mine.save([1], tmp_path / "new.pth")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new.pth").stat().st_mode) == 0o640
    mine.save(build(mine, "views"), "/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def _save_for_ever(path, ready):
    obj = {str(i): tensor(mine, np.full(200_000, float(i))) for i in range(8)}
    ready.set()
    while True:
        mine.save(obj, path)


def test_killed_while_saving(tmp_path):
    path = tmp_path / "m.pth"
    mine.save("the old one", path)
    ctx = multiprocessing.get_context("fork")
    for i in range(8):
        ready = ctx.Event()
        p = ctx.Process(target=_save_for_ever, args=(path, ready), daemon=True)
        p.start()
        ready.wait(20)
        time.sleep(random.Random(i).uniform(0, 0.06))
        os.kill(p.pid, signal.SIGKILL)
        p.join()
        got = mine.load(path)
        assert got == "the old one" or len(got) == 8 and got["7"][-1].item() == 7.0


# ------------------------------------------------------------------ copies and plain pickles
def test_deepcopy_of_tensors():
    for T in (real, mine):
        base = tensor(T, np.arange(6.0))
        b, v = copy.deepcopy((base, base[1:4]))
        v[0] = 9.0
        assert b[1].item() == 9 and base[1].item() == 1 and v.storage_offset() == 1
        leaf = tensor(T, np.ones(3)).requires_grad_()
        (leaf * 2).sum().backward()
        leaf.note = [1]
        c = copy.deepcopy(leaf)
        assert c.requires_grad and c.grad.tolist() == [2, 2, 2] and c.grad is not leaf.grad
        assert c.note == [1] and c.note is not leaf.note
        p = T.nn.Parameter(tensor(T, np.ones((2, 3))).t())
        p.grad = tensor(T, np.ones((3, 2)))
        q, again = copy.deepcopy((p, p))
        assert q is again and type(q) is T.nn.Parameter and q.grad is None and q.stride() == (1, 3)
        assert copy.deepcopy(tensor(T, np.ones((1, 3))).expand(4, 3)).stride() == (0, 1)
        with pytest.raises(RuntimeError, match="graph leaves"):
            copy.deepcopy(leaf * 2)
        shallow = copy.copy(base)
        shallow[0] = 5.0
        assert base[0].item() == 5.0
        m = copy.deepcopy(model(T))
        assert m[0].weight.tolist() == model(T)[0].weight.tolist()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_pickles(protocol):
    for name in [n for n in OBJECTS if n not in ("layout",)] + list(NEW_ONLY):
        obj = build(mine, name)
        check(obj, pickle.loads(pickle.dumps(obj, protocol)))


def test_storage_interface():
    def answers(T):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            t = tensor(T, np.arange(6, dtype=np.float32))
            u, s = t.untyped_storage(), t.storage()
            F = T.FloatStorage if T is real else mine.storage.FloatStorage
            yield (
                u.nbytes(),
                u.size(),
                len(u),
                u[3],
                u[-1],
                u.tolist()[:8],
                str(u.device),
                u.element_size(),
                u.type(),
                str(u),
            )
            yield (
                s.nbytes(),
                s.size(),
                len(s),
                s[3],
                s[-1],
                s.tolist(),
                str(s.device),
                s.element_size(),
                s.type(),
                str(s),
            )
            yield u is t[2:].untyped_storage(), u.data_ptr() == t.data_ptr(), t[2:].storage().data_ptr() == t.data_ptr()
            yield (
                s.pickle_storage_type(),
                str(s.dtype),
                isinstance(s, F),
                type(F(3)).__name__,
                F(3).size(),
                F([1, 2]).tolist(),
            )
            yield F([1, 2]).double().tolist(), F([1.5]).long().tolist(), list(F([1, 2])), F([1, 2]).fill_(3).tolist()
            yield (
                T.UntypedStorage(4).nbytes(),
                T.UntypedStorage([1, 2, 300]).tolist(),
                T.is_storage(u),
                T.is_storage(s),
                T.is_storage(t),
            )
            s[0] = 7.5
            u[4] = 0
            yield (
                t.tolist(),
                u.clone().data_ptr() != u.data_ptr(),
                copy.deepcopy(s).tolist(),
                u[1:3].tolist(),
                list(u)[:3],
            )
            for bad in ("u[100]", "s[100]", "s[0:1]", "u.dtype", "T.UntypedStorage('a')", "F([1, 2]).copy_(F(1))"):
                with pytest.raises(Exception) as e:
                    eval(bad, {"u": u, "s": s, "T": T, "F": F})
                yield bad, e.type.__name__
            yield pickle.loads(pickle.dumps(t[1:])).tolist(), pickle.loads(pickle.dumps(s)).tolist()

    for a, b in zip(answers(real), answers(mine), strict=True):
        assert a == b


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_storages_stay_shared_in_plain_pickles(protocol):
    t = tensor(mine, np.arange(4.0))
    a, b, u = pickle.loads(pickle.dumps((t, t[1:], t.untyped_storage()), protocol))
    b[0] = 9.0
    assert a[1].item() == 9 and u.data_ptr() == a.data_ptr() and u.nbytes() == 32
    buffers = []
    data = pickle.dumps(t, 5, buffer_callback=buffers.append)
    assert len(buffers) == 1 and pickle.loads(data, buffers=buffers).data_ptr() == t.data_ptr()


def test_flatten_dense_tensors():
    for T in (real, mine):
        parts = [tensor(T, np.arange(6.0).reshape(2, 3)), tensor(T, [7.0])]
        flat = T._utils._flatten_dense_tensors(parts)
        assert flat.tolist() == [0, 1, 2, 3, 4, 5, 7]
        assert [t.tolist() for t in T._utils._unflatten_dense_tensors(flat, parts)] == [t.tolist() for t in parts]


def test_a_large_memo_index_takes_no_memory():
    assert mine.load(io.BytesIO(zip_file(b"\x80\x02Nr\xff\xff\xff\xff."))) is None


def test_empty_bytes():
    assert mine.load(saved(mine, [b"", bytearray()])) == [b"", bytearray()]


def test_scan_finds_names_without_running(tmp_path):
    for protocol in (2, 4):
        data = pickle.dumps(
            [Call(os.system, "touch " + str(tmp_path / "x")), collections.OrderedDict(), User("a")], protocol
        )
        found = _weights_only_unpickler.globals_in(data)
        assert {"posix.system", "collections.OrderedDict", f"{__name__}.User"} <= set(found)
    assert not os.listdir(tmp_path)
    assert pathlib.Path(tmp_path).exists() and struct.calcsize("<q") == 8
