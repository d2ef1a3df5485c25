"""Builds the CANN simulator for the installed MindSpore: one library that provides all of CANN's
symbols, in the user's cache folder.

MindSpore's wheel contains its Ascend plugin but not CANN's libraries. The required symbols are read
from the plugin itself: its undefined symbols, and the names that it looks up at run time. About a
hundred are implemented by the sources next to this file. Each aclnn kernel gets two entry points
that pass on all registers. The remaining functions do nothing and return success.
"""
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import mmap
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile

from mindtorch.backend import secure_files
from mindtorch.backend.c_kernels.build import PART, cache_folder, sweep

SOURCES = pathlib.Path(__file__).parent
#: the plugin's libraries; their dependencies are followed
_ROOTS = ("libmindspore_ascend.so.2", "libmindspore_ge_backend.so", "libmindspore_graph_ir.so", "libmindspore_extension_ascend_aclnn.so")
_SYSTEM = [pathlib.Path(p) for p in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")]
#: CANN libraries that are opened by name
_OPENED = {"libopapi.so", "libacl_op_compiler.so", "libacl_tdt_channel.so", "libacl_tdt_queue.so", "libhccl_plugin.so", "libprofapi.so"}
_LOOKED_UP = re.compile(rb"(?<=\0)(?:acl|Hccl|msprof|Msprof|rt)[A-Za-z]\w+(?=\0)")
_RUNTIME = re.compile(r"(acl(rt|mdl|op|tdt|prof|Create|Destroy|Set|Get|Data|Init|Finalize|Add|Dump|dump|Update|grph|sys)\w+|aclInit|aclFinalize|"
                      r"Hccl[A-Z]\w+|Msprof[A-Z]\w+|rt[A-Z]\w+)")
_OBJECTS = ("Tensor", "Scalar", "IntArray", "FloatArray", "BoolArray", "TensorList", "ScalarList", "AclOpExecutor")
#: where MindSpore looks for CANN's Python packages; it reads only their versions
_PACKAGES = "opp/built-in/op_impl/ai_core/tbe"
#: functions that would compute or move data and are not implemented: doing nothing would return
#: wrong values
_AT_WORK = re.compile(r"aclmdl(RI)?Execute|aclop\w*Execute|aclmdlRICaptureBegin|Launch|Mem(cpy|set|Import|Export)|7Session\d+RunGraph|"
                      r"Hccl(All|Reduce|Broad|Send|Recv|Scatter|Batch)")
#: functions that return their first argument (C++: *this)
_ITSELF = re.compile(r"_ZN2ge8Operator(7SetAttr|8SetInput)")


class CannotBuild(RuntimeError):
    """Raised if the simulator cannot be built here; the message gives the reason."""


def folder() -> pathlib.Path:
    """Returns the folder of the simulator for the installed MindSpore. The path must end in `cann`,
    because MindSpore derives its toolkit's root from it."""
    return cache_folder() / "standin" / f"{importlib.metadata.version('mindspore')}-{_digest()}" / "cann"


def built() -> bool:
    """True if the simulator is built completely."""
    at = folder()
    try:
        manifest = json.loads(secure_files.read(str(at / "standin.json")))
        # (a library that other users can write is not loaded)
        library = secure_files.read(str(at / "lib64" / "libstandin.so"))
        return hashlib.sha256(library).hexdigest() == manifest["sha256"] and all((at / name).exists() for name in manifest["files"])
    except (OSError, ValueError, KeyError):
        return False


def environment() -> dict[str, str]:
    """Returns the variables that make a MindSpore process use the simulator; to be merged with the
    process's own."""
    at = folder()
    return {"LD_LIBRARY_PATH": _before(str(at / "lib64"), os.environ.get("LD_LIBRARY_PATH")), "ASCEND_OPP_PATH": str(at / "opp"), "ASCEND_HOME_PATH": str(at),
            "PYTHONPATH": _before(str(at / _PACKAGES), os.environ.get("PYTHONPATH"))}


def build(say=print) -> pathlib.Path:
    """Builds the simulator if necessary; returns its folder. CannotBuild if that is impossible."""
    check_machine()
    if built():
        return folder()
    tools = [t for t in ("g++", "nm", "readelf") if not shutil.which(t)]
    if tools:
        raise CannotBuild(f"the CANN simulator is compiled on this machine: {' and '.join(tools)} must be installed (Debian: apt-get install g++ binutils)")
    at = folder()
    if os.pathsep in str(at):
        raise CannotBuild(f"the cache folder {cache_folder()} has a colon in its name, which LD_LIBRARY_PATH does not allow: set MINDTORCH_CACHE to another "
                          f"folder")
    try:
        secure_files.secure_dir(at.parent)
        with open(at.parent / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if built():  # by a faster process
                return at
            sweep(at.parent)
            with tempfile.TemporaryDirectory(prefix=PART, dir=at.parent) as work:
                made = pathlib.Path(work) / "cann"
                counts = _make(made, pathlib.Path(work))
                # never writable by others, whatever the umask
                for path in (made, *made.rglob("*")):
                    if not path.is_symlink():
                        path.chmod(path.stat().st_mode & ~0o022)
                if at.exists():                 # damaged
                    os.rename(at, pathlib.Path(work) / "damaged")
                os.rename(made, at)
    except OSError as e:
        raise CannotBuild(f"the cache folder {cache_folder()} cannot be used ({e}): set MINDTORCH_CACHE to another folder") from None
    say(f"CANN simulator: {counts['kernels']} aclnn kernels, {counts['functions']} other functions, {counts['undefined']} of them linked; in {at}")
    return at


def check_machine():
    """Raises CannotBuild if the simulator does not support this machine."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise CannotBuild(f"the CANN simulator runs on x86-64 Linux only, not on {platform.machine()} {sys.platform}")
    if platform.libc_ver()[0] != "glibc":
        raise CannotBuild("the CANN simulator needs glibc, as MindSpore does")
    if not (_mindspore() / "lib").is_dir() or not _libraries(_mindspore()).get(_ROOTS[0]):
        raise CannotBuild("the installed MindSpore has no Ascend plugin (libmindspore_ascend.so.2)")


def _before(first, rest):
    return first + os.pathsep + rest if rest else first


def _mindspore():
    # (located, not imported: an import would load its plugins)
    spec = importlib.util.find_spec("mindspore")
    if spec is None or not spec.submodule_search_locations:
        raise CannotBuild("MindSpore is not installed")
    return pathlib.Path(spec.submodule_search_locations[0])


def _digest():
    """Hashes the simulator's inputs: its sources, this file, and MindSpore's libraries by name and
    size."""
    h = hashlib.sha256()
    for path in sorted([*SOURCES.glob("*.cc"), *SOURCES.glob("*.h"), pathlib.Path(__file__)]):
        h.update(path.read_bytes())
    for name, path in sorted(_libraries(_mindspore()).items()):
        h.update(f"{name} {path.stat().st_size}\n".encode())
    return h.hexdigest()[:16]


def _libraries(mindspore):
    """Returns {name: path} of MindSpore's shared libraries."""
    found = {}
    for path in sorted((mindspore / "lib").rglob("*.so*")):
        if "gpu" not in "".join(p.name for p in path.relative_to(mindspore).parents):
            found.setdefault(path.name, path)
    return found


def _output(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout


def _compiled(*command):
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if r.returncode:
        raise CannotBuild(f"{command[0]} failed:\n{r.stderr[-3000:]}")


def _wanted(libraries):
    """Returns (names of missing libraries, undefined symbols, names looked up at run time)."""
    missing, defined, undefined, seen = set(), set(), set(), set()
    todo = [libraries[r] for r in _ROOTS if r in libraries]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in re.findall(r"NEEDED.*\[(.*)\]", _output("readelf", "-d", path)):
            own = libraries.get(name) or next((d / name for d in _SYSTEM if (d / name).exists()), None)
            if own:
                todo.append(own)
            # (a name with a version suffix is a system library, not CANN's)
            elif name.endswith(".so"):
                missing.add(name)
        defined.update(line.split()[-1].split("@")[0] for line in _output("nm", "-D", "--defined-only", path).splitlines())
        if path.parent not in _SYSTEM:
            for line in _output("nm", "-D", "--undefined-only", path).splitlines():
                kind, name = line.split()[-2:]
                if kind not in "wv":
                    undefined.add(name.split("@")[0])
    looked_up = set()
    for name, path in libraries.items():
        if "mindspore" in name or "d_collective" in name or "dvpp" in name:
            with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
                looked_up.update(m.decode() for m in _LOOKED_UP.findall(data))
    return missing, {s for s in undefined - defined if not re.match(r"_?Py|__tls_get_addr|__cxa|_dl_", s)}, looked_up


def _make(at, work):
    """Builds into a folder that becomes `cann`; returns counts of its parts."""
    library = at / "lib64"
    library.mkdir(parents=True)
    # The toolkit version and packages that MindSpore checks at start-up.
    for path, words in (("compiler/version.info", "Version=8.5.0\n"),
                        (f"{_PACKAGES}/hccl/__init__.py", ""), (f"{_PACKAGES}/hccl/sys_version/__init__.py", '__sys_version__ = "8.5"\n')):
        (at / path).parent.mkdir(parents=True, exist_ok=True)
        (at / path).write_text(words)
    missing, undefined, looked_up = _wanted(_libraries(_mindspore()))
    kernels = {n.removesuffix("GetWorkspaceSize") for n in looked_up if re.fullmatch(r"aclnn[A-Z]\w+", n)} - {"aclnnInit", "aclnnFinalize"}
    functions = {n for n in looked_up if _RUNTIME.fullmatch(n)} | undefined | {"aclnnInit", "aclnnFinalize", "aclGenGraphAndDumpForOp"}
    functions |= {f"acl{verb}{what}" for verb in ("Create", "Destroy") for what in _OBJECTS}
    objects = []
    for source in sorted(SOURCES.glob("*.cc")):
        objects.append(work / (source.stem + ".o"))
        # MindSpore's wheel uses the old ABI of std::string.
        _compiled("g++", "-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", "-O1", "-fPIC", "-Wno-attributes", "-c", source, "-o", objects[-1])
    have = {line.split()[-1] for line in _output("nm", "--defined-only", *objects).splitlines() if line.split()[1:2] in (["T"], ["W"], ["V"])}
    (work / "entries.S").write_text(_entries(sorted(functions - have), sorted(kernels)))
    _compiled("g++", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o", library / "libstandin.so", work / "entries.S", *objects, "-lrt", "-lpthread")
    for name in missing | _OPENED:
        (library / name).symlink_to("libstandin.so")
    files = [str(path.relative_to(at)) for path in at.rglob("*") if not path.is_dir()]
    counts = {"kernels": len(kernels), "functions": len(functions), "undefined": len(undefined), "nothing": len(functions - have)}
    digest = hashlib.sha256((library / "libstandin.so").read_bytes()).hexdigest()
    (at / "standin.json").write_text(json.dumps({"sha256": digest, **counts, "names": sorted(kernels), "files": sorted(files)}, indent=1))
    return counts


def _entries(functions, kernels):
    """Returns assembly with an entry point per name, which calls standin_nothing, _absent, _prepare
    or _launch with its name and all registers."""
    plan = [(n, "itself" if _ITSELF.match(n) else "absent" if _AT_WORK.search(n) else "nothing") for n in functions]
    plan += [(n + "GetWorkspaceSize", "prepare") for n in kernels] + [(n, "launch") for n in kernels]
    lines = [".text"]
    for k, (name, kind) in enumerate(plan):
        lines += [f".globl {name}", f".type {name}, @function", f"{name}:", f"  leaq .Lname{k}(%rip), %rax", f"  jmp .Lto_{kind}", f".size {name}, .-{name}"]
    for kind in ("nothing", "absent", "prepare", "launch"):
        # On the stack: 64 bytes of xmm0 to xmm7, above them rdi rsi rdx rcx r8 r9. The caller's
        # stack arguments begin after the frame pointer and the return address.
        integers = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"]
        lines += [f".Lto_{kind}:", "  pushq %rbp", "  movq %rsp, %rbp", "  subq $112, %rsp",
                  *[f"  movq %{r}, {64 + 8 * i}(%rsp)" for i, r in enumerate(integers)], *[f"  movq %xmm{i}, {8 * i}(%rsp)" for i in range(8)],
                  "  movq %rax, %rdi", "  leaq 64(%rsp), %rsi", "  leaq 16(%rbp), %rdx", "  movq %rsp, %rcx", "  andq $-16, %rsp",
                  f"  call standin_{kind}@PLT", "  cltq", "  leave", "  ret"]
    lines += [".Lto_itself:", "  movq %rdi, %rax", "  ret", ".section .rodata"]
    lines += [f'.Lname{k}: .asciz "{name}"' for k, (name, _) in enumerate(plan)]
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])
