"""Builds the CANN simulator for a plugin (MindSpore's, or torch_npu): one library that provides all of
CANN's symbols, in the user's cache folder.

The wheels contain the plugins but not CANN's libraries. The required symbols are read from the
plugin itself: its undefined symbols, and the names that it looks up at run time. About 150 are
implemented by the sources next to this file. Each aclnn kernel gets two entry points that pass on
all registers. The remaining functions do nothing and return success.
"""
import fcntl
import hashlib
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
from mindtorch.tools.standin import _plugins
from mindtorch.tools.standin._plugins import CannotBuild

SOURCES = pathlib.Path(__file__).parent
_SYSTEM = [pathlib.Path(p) for p in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")]
_RUNTIME = re.compile(r"(acl(rt|mdl|op|tdt|prof|Create|Destroy|Set|Get|Data|Init|Finalize|Add|Dump|dump|Update|grph|sys)\w+|aclInit|aclFinalize|"
                      r"Hccl[A-Z]\w+|Msprof[A-Z]\w+|rt[A-Z]\w+)")
_OBJECTS = ("Tensor", "Scalar", "IntArray", "FloatArray", "BoolArray", "TensorList", "ScalarList", "AclOpExecutor")
#: functions that would compute or move data and are not implemented: doing nothing would return
#: wrong values
_AT_WORK = re.compile(r"aclmdl(RI)?Execute|aclop\w*Execute|aclmdlRICaptureBegin|Launch|Mem(cpy|set|Import|Export)|7Session\d+RunGraph|"
                      r"Hccl(All|Reduce|Broad|Send|Recv|Scatter|Batch)")
#: functions that return their first argument (C++: *this)
_ITSELF = re.compile(r"_ZN2ge8Operator(7SetAttr|8SetInput)")


def folder(plugin=_plugins.MINDSPORE) -> pathlib.Path:
    """Returns the folder of the simulator for a plugin. The path must end in `cann`, because MindSpore
    derives its toolkit's root from it."""
    return cache_folder() / "standin" / f"{plugin.version()}-{_digest(plugin)}" / "cann"


def built(plugin=_plugins.MINDSPORE) -> bool:
    """True if the simulator is built completely."""
    at = folder(plugin)
    try:
        manifest = json.loads(secure_files.read(str(at / "standin.json")))
        # (a library that other users can write is not loaded)
        library = secure_files.read(str(at / "lib64" / "libstandin.so"))
        return hashlib.sha256(library).hexdigest() == manifest["sha256"] and all((at / name).exists() for name in manifest["files"])
    except (OSError, ValueError, KeyError):
        return False


def environment(plugin=_plugins.MINDSPORE) -> dict[str, str]:
    """Returns the variables that make a process use the simulator; to be merged with the process's
    own."""
    at = folder(plugin)
    return {"LD_LIBRARY_PATH": _before([at / "lib64", *plugin.linked()], os.environ.get("LD_LIBRARY_PATH")), "ASCEND_OPP_PATH": str(at / "opp"),
            "ASCEND_HOME_PATH": str(at), "PYTHONPATH": _before(plugin.packages(at), os.environ.get("PYTHONPATH"))}


def build(say=print, plugin=_plugins.MINDSPORE) -> pathlib.Path:
    """Builds the simulator if necessary; returns its folder. CannotBuild if that is impossible."""
    check_machine(plugin)
    if built(plugin):
        return folder(plugin)
    tools = [t for t in ("g++", "nm", "readelf") if not shutil.which(t)]
    if tools:
        raise CannotBuild(f"the CANN simulator is compiled on this machine: {' and '.join(tools)} must be installed (Debian: apt-get install g++ binutils)")
    at = folder(plugin)
    if os.pathsep in str(at):
        raise CannotBuild(f"the cache folder {cache_folder()} has a colon in its name, which LD_LIBRARY_PATH does not allow: set MINDTORCH_CACHE to another "
                          f"folder")
    try:
        secure_files.secure_dir(at.parent)
        with open(at.parent / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if built(plugin):  # by a faster process
                return at
            sweep(at.parent)
            with tempfile.TemporaryDirectory(prefix=PART, dir=at.parent) as work:
                made = pathlib.Path(work) / "cann"
                counts = _make(plugin, made, pathlib.Path(work))
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


def check_machine(plugin=_plugins.MINDSPORE):
    """Raises CannotBuild if the simulator does not support this machine."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise CannotBuild(f"the CANN simulator runs on x86-64 Linux only, not on {platform.machine()} {sys.platform}")
    if platform.libc_ver()[0] != "glibc":
        raise CannotBuild("the CANN simulator needs glibc, as MindSpore does")
    plugin.check()


def _before(first, rest):
    return os.pathsep.join([*map(str, first), *([rest] if rest else [])])


def _digest(plugin):
    """Hashes the simulator's inputs: its sources, this file, and the plugin's libraries by name and
    size."""
    h = hashlib.sha256()
    for path in sorted([*SOURCES.glob("*.cc"), *SOURCES.glob("*.h"), *SOURCES.glob("kernels/*.py"), pathlib.Path(__file__), pathlib.Path(_plugins.__file__)]):
        h.update(path.read_bytes())
    for name, path in sorted(plugin.libraries().items()):
        h.update(f"{name} {path.stat().st_size}\n".encode())
    return h.hexdigest()[:16]


def _output(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout


def _compiled(*command):
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if r.returncode:
        raise CannotBuild(f"{command[0]} failed:\n{r.stderr[-3000:]}")


def _wanted(plugin):
    """Returns (names of missing libraries, undefined symbols, names looked up at run time)."""
    missing, defined, undefined, seen = set(), set(), set(), set()
    libraries = plugin.libraries()
    todo = [libraries[r] for r in plugin.roots if r in libraries]
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
        if plugin.looks_up(name):
            with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
                looked_up.update(m.decode() for m in plugin.names.findall(data))
    return missing, {s for s in undefined - defined if plugin.of_cann(s)}, looked_up


def _computed():
    """Returns the names of the kernels in the table. (Another process imports it, because that
    enables mindtorch's cpu device.)"""
    names = "from mindtorch.tools.standin.kernels import _table; print(*_table.KERNELS)"
    env = {k: v for k, v in os.environ.items() if not k.startswith("MINDTORCH_STANDIN")}
    found = subprocess.run([sys.executable, "-c", names], capture_output=True, text=True, check=True,
                           env={**env, "PYTHONPATH": _before([SOURCES.parents[2]], os.environ.get("PYTHONPATH"))})
    return {f"aclnn{n}" for n in found.stdout.split()}


def _make(plugin, at, work):
    """Builds into a folder that becomes `cann`; returns counts of its parts."""
    library = at / "lib64"
    library.mkdir(parents=True)
    for path, words in plugin.toolkit.items():
        (at / path).parent.mkdir(parents=True, exist_ok=True)
        (at / path).write_text(words)
    missing, undefined, looked_up = _wanted(plugin)
    kernels = {n.removesuffix("GetWorkspaceSize") for n in looked_up if re.fullmatch(r"aclnn[A-Z]\w+", n)} - {"aclnnInit", "aclnnFinalize"}
    kernels |= _computed()      # mindtorch launches some that MindSpore does not look up
    functions = {n for n in looked_up if _RUNTIME.fullmatch(n)} | undefined | {"aclnnInit", "aclnnFinalize", "aclGenGraphAndDumpForOp"}
    functions |= {f"acl{verb}{what}" for verb in ("Create", "Destroy") for what in _OBJECTS}
    objects = []
    for source in sorted(SOURCES.glob("*.cc")):
        objects.append(work / (source.stem + ".o"))
        _compiled("g++", "-std=c++17", f"-D_GLIBCXX_USE_CXX11_ABI={plugin.string_abi}", "-O1", "-fPIC", "-Wno-attributes", "-c", source, "-o", objects[-1])
    have = {line.split()[-1] for line in _output("nm", "--defined-only", *objects).splitlines() if line.split()[1:2] in (["T"], ["W"], ["V"])}
    (work / "entries.S").write_text(_entries(sorted(functions - have), sorted(kernels)))
    _compiled("g++", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-o", library / "libstandin.so", work / "entries.S", *objects, "-lrt", "-lpthread")
    for name in missing | plugin.opened:
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
