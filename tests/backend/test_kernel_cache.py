"""Compiled kernels and other caches: files that another user could have written are not executed,
damaged ones are rebuilt."""
import ctypes
import logging
import os
import pathlib
import stat
import subprocess
import sys
import zipfile

import pytest

import mindtorch.torch as torch
from mindtorch.backend.c_kernels import build
from mindtorch.tools import CachedDataset

ROOT = pathlib.Path(build.__file__).parents[3]
pytestmark = pytest.mark.skipif(build.compiler() is None, reason="no C compiler")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner of a file")


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "tiny.c"
    path.write_text("int answer(void) { return 42; }\n")
    return path


@pytest.fixture
def umask():
    """Yields os.umask, and restores the umask after the test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def planted(tmp_path):
    """Returns the bytes of a malicious library."""
    path = tmp_path / "evil.c"
    path.write_text("int answer(void) { return 666; }\n")
    subprocess.run([*build.compiler(), "-shared", "-fPIC", str(path), "-o", str(tmp_path / "evil.so")], check=True)
    return (tmp_path / "evil.so").read_bytes()


def truncate(path, tmp_path):
    os.truncate(path, 5000)


def empty(path, tmp_path):
    os.truncate(path, 0)


def one_bit(path, tmp_path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def no_digest(path, tmp_path):
    path.write_bytes(planted(tmp_path))


def for_all(path, tmp_path):
    path.write_bytes(planted(tmp_path))
    path.chmod(0o666)


def for_all_but_intact(path, tmp_path):
    path.chmod(0o777)


def for_a_group(path, tmp_path):
    os.chown(path, -1, 54321)
    path.chmod(0o664)


def of_another(path, tmp_path):
    path.write_bytes(planted(tmp_path))
    os.chown(path, 12345, -1)


def a_link(path, tmp_path):
    kept = tmp_path / "kept.so"
    path.rename(kept)
    path.symlink_to(kept)


def a_pipe(path, tmp_path):
    path.unlink()
    os.mkfifo(path)


def test_concurrent_processes_compile_a_library_once(source, tmp_path, monkeypatch):
    """Checks that concurrent processes, like the ranks of a job, compile once and leave only the
    library."""
    log, slow = tmp_path / "log", tmp_path / "slow-cc"
    slow.write_text(f"#!/bin/sh\necho compiled >> {log}\nsleep 1\nexec {' '.join(build.compiler())} \"$@\"\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CC", str(slow))
    text = f"""if True:
        import ctypes, pathlib, sys
        sys.path.insert(0, {str(ROOT)!r})
        from mindtorch.backend.c_kernels import build
        print("ready", flush=True)
        sys.stdin.readline()
        print(ctypes.CDLL(str(build.build(pathlib.Path({str(source)!r})))).answer())"""
    ranks = [subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for r in ranks:
        assert r.stdout.readline() == "ready\n"
    for r in ranks:
        r.stdin.write("go\n")
        r.stdin.flush()
    assert [r.communicate()[0] for r in ranks] == ["42\n"] * 3
    assert log.read_text() == "compiled\n"
    assert [p.name[:8] for p in (tmp_path / "cache").iterdir()] == ["kernels-"]


@pytest.mark.parametrize("harm", [truncate, empty, one_bit, no_digest, for_all, for_all_but_intact, a_link, a_pipe,
                                  pytest.param(for_a_group, marks=as_root), pytest.param(of_another, marks=as_root)])
def test_damaged_library_is_rebuilt(source, tmp_path, harm, caplog, process):
    path = build.build(source)
    good, stamp = path.read_bytes(), path.stat().st_ino
    assert build.build(source) == path and path.stat().st_ino == stamp
    harm(path, tmp_path)
    # In a separate process, because a damaged library may crash it.
    text = f"""
        import ctypes, pathlib
        from mindtorch.backend.c_kernels import build
        print(ctypes.CDLL(str(build.build(pathlib.Path({str(source)!r})))).answer())"""
    done = process.code(text, env={"MINDTORCH_CACHE": os.environ["MINDTORCH_CACHE"]})
    assert done.returncode == 0 and done.stdout == "42\n", done
    assert len(done.stderr.splitlines()) == 1 and "recompiling C kernels" in done.stderr, done.stderr
    assert path.read_bytes() == good and not path.is_symlink() and path.stat().st_mode & 0o022 == 0
    with caplog.at_level(logging.WARNING, "torch._inductor"):
        assert build.build(source) == path
    assert not caplog.records


@pytest.mark.parametrize("mask", [0, 0o002, 0o077])
def test_cache_is_not_writable_by_other_users(source, tmp_path, umask, mask, monkeypatch):
    monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path / "a" / "b" / "cache"))
    umask(mask)
    path = build.build(source)
    for p in (path, *path.parents[:3]):
        assert stat.S_IMODE(p.stat().st_mode) & 0o022 == 0, p
    assert os.listdir(path.parent) == [path.name]


def test_own_cache_folder_becomes_unwritable_for_others(source, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    build.build(source)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


@as_root
def test_cache_folder_of_another_user_raises(source, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    os.chown(folder, 12345, -1)
    with pytest.raises(RuntimeError, match="belongs to user 12345"):
        build.build(source)
    os.chown(folder, 0, -1)
    assert build.build(source).exists()


def test_cache_folder_in_a_writable_parent_raises(source, tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "link").symlink_to(shared)
    for name in ("shared", "link"):
        monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path / name / "cache"))
        shared.chmod(0o777)
        with pytest.raises(RuntimeError, match="everybody may write to .*shared"):
            build.build(source)
        shared.chmod(0o1777)  # like /tmp: only its owner can move an entry
        path = build.build(source)
        assert path.parent == shared / "cache"


@pytest.mark.parametrize("name", ["file", "file/below", "/dev/null", "/proc/self/none", "x" * 300, "link"])
def test_unusable_cache_folders_raise(source, tmp_path, name, monkeypatch):
    (tmp_path / "file").write_text("a file")
    (tmp_path / "link").symlink_to(tmp_path / "link")
    monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path / name))
    with pytest.raises(RuntimeError, match="the cache folder .* cannot be"):
        build.build(source)


def test_relative_cache_folder_is_resolved(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINDTORCH_CACHE", "beside")
    path = build.build(source)
    assert path.parent == tmp_path / "beside"


def test_library_depends_on_its_headers(source, tmp_path):
    """Checks that a change of a header, also of one that another header includes, gives another
    library."""
    source.write_text('#include "outer.h"\nint answer(void) { return ANSWER; }\n')
    (tmp_path / "outer.h").write_text('#include <stddef.h>\n#  include "inner.h"\n')
    (tmp_path / "inner.h").write_text("#define ANSWER 42\n")
    first = build.build(source)
    (tmp_path / "unused.h").write_text("#define ANSWER 7\n")
    assert build.build(source) == first
    (tmp_path / "inner.h").write_text("#define ANSWER 43\n")
    second = build.build(source)
    assert second != first and ctypes.CDLL(str(second)).answer() == 43
    (tmp_path / "inner.h").unlink()
    with pytest.raises(RuntimeError, match="inner.h"):
        build.build(source)


def test_full_disk_leaves_no_partial_file(source, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(RuntimeError, match="No space left"):
        build.build(source)
    assert os.listdir(os.environ["MINDTORCH_CACHE"]) == []


def test_concurrent_builds_load_the_same_library(source):
    code = (f"import pathlib, ctypes; from mindtorch.backend.c_kernels import build as n; "
            f"print(ctypes.CDLL(str(n.build(pathlib.Path({str(source)!r})))).answer())")
    some = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(5)]
    assert [p.communicate()[0] for p in some] == ["42\n"] * 5
    assert len(os.listdir(os.environ["MINDTORCH_CACHE"])) == 1


def test_invalid_choice_files_are_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "build", lambda source: tmp_path / "kernels-x.so")
    path = tmp_path / "choices-kernels-x.json"
    for text in ('[1, 2]', '{"a": "b"}', '7', '{"a"', "\x00"):
        path.write_text(text)
        choices = build.Choices()
        assert choices.ask("a", lambda: None, lambda: [None] * 200000) is True
    path.write_text('{"a": false}')
    path.chmod(0o666)
    assert build.Choices().ask("a", lambda: None, lambda: [None] * 200000) is True


def test_doctor_survives_a_crashing_library(tmp_path, monkeypatch):
    cc = tmp_path / "cc"
    crash = tmp_path / "crash.c"
    crash.write_text("__attribute__((constructor)) static void f(void) { __builtin_trap(); }\n")
    cc.write_text(f'#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nexec {build.compiler()[0]} -shared -fPIC {crash} -o "$2"\n')
    cc.chmod(0o755)
    monkeypatch.setenv("CC", str(cc))
    monkeypatch.setenv("MINDTORCH_CACHE", str(tmp_path / "cache"))
    text, right = build.load_in_child()
    assert not right and ("SIGILL" in text or "SIGTRAP" in text)
    from mindtorch.tools import _doctor
    assert _doctor._kernels().state == _doctor.SLOW and text in _doctor._kernels().found


# ---- other cached files
class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        return i * i


def test_cached_items_writable_by_others_are_not_loaded(tmp_path, umask):
    umask(0)
    folder = tmp_path / "items"
    cache = CachedDataset(Squares(), folder)
    assert [cache[i] for i in range(3)] == [0, 1, 4]
    cache.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    file = next(folder.iterdir())
    file.chmod(0o666)
    with pytest.raises(PermissionError, match="everybody may write"):
        CachedDataset(Squares(), folder)
    file.chmod(0o644)
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
        with pytest.raises(PermissionError, match="belongs to user 12345"):
            CachedDataset(Squares(), folder)
        os.chown(file, 0, -1)
    assert CachedDataset(Squares(), folder)[2] == 4


def test_hub_archive_cannot_escape_its_folder(tmp_path):
    torch.save({"a": 1}, tmp_path / "elsewhere.pt")
    torch.save({"a": 2}, tmp_path / "inside.pt")
    with zipfile.ZipFile(tmp_path / "wrapped.zip", "w") as z:
        z.writestr("../elsewhere.pt", (tmp_path / "inside.pt").read_bytes())
    found = torch.hub.load_state_dict_from_url((tmp_path / "wrapped.zip").as_uri(), str(tmp_path / "models"), progress=False)
    assert found == {"a": 2}


def test_self_check():
    assert "compute right" in build.self_check()
    assert isinstance(build.load(build.THREAD_POOL, build.NO_CONTRACTION), ctypes.CDLL)
