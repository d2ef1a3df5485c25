"""torch.save and torch.load against PyTorch: each side reads the files of the other."""

import collections
import copy
import io
import multiprocessing
import os
import pickle
import pickletools
import random
import signal
import stat
import subprocess
import sys
import textwrap
import time
import warnings
import zipfile

import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine
from mindtorch.torch import _zipfile

from _checkpoints import BOTH, NEW_ONLY, OBJECTS, Other, User, build, check, model, rebuilt, saved, tensor, views


# ------------------------------------------------------------------ both directions
@pytest.mark.parametrize("name, zipped", BOTH)
def test_torch_files_are_loaded(name, zipped):
    data = saved(real, build(real, name), zipped)
    for kw in ({}, {"weights_only": False}):
        data.seek(0)
        check(build(real, name), mine.load(data, **kw))


@pytest.mark.parametrize("name, zipped", BOTH)
def test_torch_loads_our_files(name, zipped, tmp_path):
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
def test_pickles_contain_the_globals_of_torch(name):
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


def test_pickled_torch_modules_load_as_mindtorch_modules():
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


UNDER_THE_HOOK = """
    import sys
    from mindtorch.tools import mstorch_enable
    import torch
    m = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    opt = torch.optim.Adam(m.parameters())
    m(torch.ones(2, 2)).sum().backward()
    opt.step()
    torch.save({"m": m.state_dict(), "o": opt.state_dict(), "d": torch.float16, "s": torch.Size([1]), "p": m[0].weight,
                "u": torch.zeros(2).to(torch.bool)}, sys.argv[1] + "/data.pth")
    torch.save(m, sys.argv[1] + "/module.pth")
    assert isinstance(torch.load(sys.argv[1] + "/module.pth", weights_only=False), torch.nn.Sequential)
    torch.save(m.state_dict(), sys.argv[1] + "/legacy.pth", _use_new_zipfile_serialization=False)
    print(torch.load(sys.argv[1] + "/data.pth")["m"]["0.weight"].tolist())
"""


def test_files_written_under_the_hook(tmp_path):
    (tmp_path / "s.py").write_text(textwrap.dedent(UNDER_THE_HOOK))
    root = os.path.dirname(os.path.dirname(mine.__path__[0]))
    out = subprocess.run(
        [sys.executable, tmp_path / "s.py", tmp_path],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert out.returncode == 0, out.stderr
    for T in (real, mine):
        got = T.load(tmp_path / "data.pth", weights_only=True)
        assert got["m"]["0.weight"].tolist() == eval(out.stdout) and got["d"] == T.float16 and got["s"] == T.Size([1])
        assert type(got["p"]) is T.nn.Parameter and got["o"]["state"][0]["exp_avg"].shape == (3, 2)
        assert T.load(tmp_path / "legacy.pth")["0.weight"].tolist() == eval(out.stdout)
        assert type(T.load(tmp_path / "module.pth", weights_only=False)[0]) is T.nn.Linear
    names = zipfile.ZipFile(tmp_path / "module.pth").read("module/data.pkl")
    assert b"mindtorch" not in names


def test_user_classes_and_safe_globals():
    obj = {"who": User("me"), "w": tensor(mine, [1.0])}
    data = saved(mine, obj)
    with pytest.raises(pickle.UnpicklingError, match=r"add_safe_globals\(\[.*User\]\)") as e:
        mine.load(data)
    assert "Weights only load failed" in str(e.value) and "weights_only" in str(e.value)
    data.seek(0)
    assert mine.serialization.get_unsafe_globals_in_checkpoint(data) == ["_checkpoints.User"]
    assert mine.load(saved(mine, obj), weights_only=False)["who"] == User("me")
    with mine.serialization.safe_globals([User]):
        assert mine.serialization.get_safe_globals() == [User]
        assert mine.load(saved(mine, obj))["who"] == User("me")
    assert mine.serialization.get_safe_globals() == []
    mine.serialization.add_safe_globals([(Other, "_checkpoints.User")])
    try:
        assert type(mine.load(saved(mine, obj))["who"]) is Other
    finally:
        mine.serialization.clear_safe_globals()
    with pytest.raises(pickle.UnpicklingError):
        mine.load(saved(mine, obj))


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
    """A file object with only the methods that a load needs."""

    def __init__(self, data):
        b = io.BytesIO(data)
        self.read, self.seek, self.tell = b.read, b.seek, b.tell


class Writes:
    """A file object that accepts seven bytes per write."""

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


def test_error_in_a_user_map_location_propagates():
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


def test_compressed_files_load_and_zip_bombs_raise():
    obj = build(real, "checkpoint")
    data = saved(real, obj).getvalue()
    check(obj, mine.load(io.BytesIO(rebuilt(data, {}, zipfile.ZIP_DEFLATED))))
    bomb = rebuilt(data, {"data/99": bytes(300 << 20)}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 20
    with pytest.raises(RuntimeError, match="unpack"):
        mine.load(io.BytesIO(bomb))


def test_wrong_checksums_raise():
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


def test_numpy_objects_need_safe_globals():
    obj = {"loss": np.float64(2.5), "a": np.arange(6, dtype=np.int32).reshape(2, 3), "d": collections.deque([1, 2])}
    unsafe = [set(T.serialization.get_unsafe_globals_in_checkpoint(saved(mine, obj))) for T in (mine, real)]
    assert unsafe[0] == unsafe[1] and "numpy.core.multiarray.scalar" in unsafe[0]
    with pytest.raises(pickle.UnpicklingError, match=r"numpy\.core\.multiarray\.scalar"):
        mine.load(saved(mine, obj))
    allowed = [np.core.multiarray.scalar, np.dtype, np.core.multiarray._reconstruct, np.ndarray, type(np.dtype("f8"))]
    with mine.serialization.safe_globals([*allowed, type(np.dtype("i4")), collections.deque]):
        for T in (mine, real):
            got = mine.load(saved(T, obj))
            assert type(got["loss"]) is np.float64 and got["loss"] == 2.5 and got["d"] == obj["d"]
            assert got["a"].dtype == np.int32 and got["a"].tolist() == obj["a"].tolist()


# ------------------------------------------------------------------ saving is atomic
def test_error_while_saving_keeps_the_old_file(tmp_path, monkeypatch):
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


def test_saving_to_symlinks_with_file_modes_and_devices(tmp_path):
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


@pytest.mark.parametrize("kills", [8, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
def test_kill_while_saving_keeps_the_old_file(tmp_path, kills):
    path = tmp_path / "m.pth"
    mine.save("the old one", path)
    ctx = multiprocessing.get_context("fork")
    unfinished = 0
    for i in range(kills):
        ready = ctx.Event()
        p = ctx.Process(target=_save_for_ever, args=(path, ready), daemon=True)
        p.start()
        ready.wait(20)
        time.sleep(random.Random(i).uniform(0, 0.06))
        os.kill(p.pid, signal.SIGKILL)
        p.join()
        got = mine.load(path)
        assert got == "the old one" or len(got) == 8 and all((got[str(k)] == k).all() for k in range(8))
        rest = [f for f in os.listdir(tmp_path) if f != "m.pth"]
        unfinished += len(rest)
        for f in rest:
            os.unlink(tmp_path / f)
    # Kills did interrupt saves: the data of unfinished saves is in files of other names.
    assert unfinished >= kills // 4


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


def test_zip_central_directory_matches_torch(tmp_path):
    """Other zip readers use the central directory: one disk, stored entries, no attributes, no
    comments."""
    mine.save({"a": mine.ones(3), "b": mine.zeros(2, 2)}, tmp_path / "some.pth")
    real.save({"a": real.ones(3), "b": real.zeros(2, 2)}, tmp_path / "torch.pth")
    ours, theirs = ([(i.volume, i.compress_type, i.internal_attr, i.external_attr, i.comment, i.compress_size == i.file_size, i.create_version >= i.extract_version)
                     for i in zipfile.ZipFile(tmp_path / n).infolist()] for n in ("some.pth", "torch.pth"))
    assert set(ours) == set(theirs) == {(0, zipfile.ZIP_STORED, 0, 0, b"", True, ours[0][-1])}
