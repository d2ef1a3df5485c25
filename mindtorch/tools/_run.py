"""``python -m mindtorch run script.py args``: runs an unmodified torch script with the hook
enabled.

The script sees the same environment as under ``python script.py args``: sys.argv, __name__,
__file__, sys.path, exit status, and tracebacks that begin with its own first line. ``run -m
package.module args`` corresponds to ``python -m package.module args``. ``run - args`` reads the
script from standard input, as does ``run`` without arguments if standard input is not a terminal.
"""
import argparse
import builtins
import importlib.util
import io
import os
import pkgutil
import sys
import types
from importlib.machinery import BuiltinImporter, PathFinder, SourceFileLoader

from mindtorch.backend.cpython import put
from mindtorch.tools import _hook


def configure(parser):
    """Declares the arguments of the command."""
    parser.usage = "%(prog)s [-h] [--device DEVICE] (-m MODULE | SCRIPT) [ARGS ...]"
    parser.add_argument("--device", metavar="DEVICE", help="the default device for new tensors: npu, npu:1, ...")
    # Everything after the script's or module's name belongs to the script, including options.
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE ...",
                        help="a module, and its arguments")
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT ...",
                        help="a script (or a folder or zip file with a __main__.py), and its arguments")
    parser.set_defaults(parser=parser)


def main(args, library=_hook.enable):
    """Runs the script. Returns when the script has finished; SystemExit and exceptions propagate.

    library: called before the script is read. It makes `import torch` work in the script.
    """
    if args.module is None:
        find, command = _find_script, args.script
    else:
        find, command = _find_module, args.module
    if not command and find is _find_script and sys.stdin is not None and not sys.stdin.isatty():
        find, command = _find_input, [""]
    if not command:
        args.parser.error("a script, or -m and a module, must be given")
    library()
    if args.device is not None:
        import torch
        try:
            torch.set_default_device(args.device)
        except RuntimeError as e:
            print(f"python -m mindtorch run: --device {args.device}: {e}", file=sys.stderr)
            return 2
    try:
        code, attributes, sys.argv[:] = find(command[0], command[1:])
    except _NotRunnable as e:
        if e.usage:
            args.parser.error(str(e))
        print(f"python -m mindtorch run: {e}", file=sys.stderr)
        return e.status
    except SyntaxError as e:
        _report_from(e, None)
        raise
    return _execute(code, attributes)


class _NotRunnable(Exception):
    def __init__(self, message, status, usage=False):
        super().__init__(message)
        self.status, self.usage = status, usage  # the same status as the plain interpreter's


def _find_script(path, rest):
    """Returns (code, attributes of the module __main__, sys.argv) for a file, folder or zip file,
    or for standard input ("-")."""
    if path == "-":
        return _find_input(path, rest)
    if pkgutil.get_importer(path) is not None:      # a folder or a zip file
        return _find_in_folder(path, rest)
    # not abspath: the interpreter also keeps `..` in __file__
    full = os.path.join(os.getcwd(), path)
    try:
        with io.open_code(full) as f:
            source = f.read()
    except OSError as e:
        raise _NotRunnable(f"can't open file {full!r}: [Errno {e.errno}] {e.strerror}", 2) from e
    if not _safe_path():
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    # Only the script's own future statements and flags apply, not this module's.
    code = compile(source, full, "exec", dont_inherit=True)
    attributes = {"__file__": full, "__cached__": None, "__loader__": SourceFileLoader("__main__", full),
                  "__package__": None, "__spec__": None}
    return code, attributes, [path, *rest]


def _find_input(name, rest):
    """Like `_find_script`, for the script on standard input."""
    if sys.stdin is None:
        raise _NotRunnable("there is no standard input to read the script from", 1)
    source = sys.stdin.buffer.read()
    if not name and not source.strip():
        raise _NotRunnable("a script, or -m and a module, must be given", 2, usage=True)
    if not _safe_path():
        sys.path[0] = ""
    code = compile(source, "<stdin>", "exec", dont_inherit=True)
    return code, {"__file__": "<stdin>", "__cached__": None, "__loader__": BuiltinImporter, "__package__": None, "__spec__": None}, [name, *rest]


def _find_in_folder(path, rest):
    full = os.path.join(os.getcwd(), path)
    spec = PathFinder.find_spec("__main__", [full])
    if spec is None or spec.loader is None:
        raise _NotRunnable(f"can't find '__main__' module in {full!r}", 1)
    if _safe_path():
        sys.path.insert(0, full)
    else:
        sys.path[0] = full
    return spec.loader.get_code("__main__"), _attributes(spec), [path, *rest]


def _find_module(name, rest):
    """Like `_find_script`, for a module name, which is resolved as by ``python -m``: for a package,
    its ``__main__``."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            package, name = name, name + ".__main__"
            spec = importlib.util.find_spec(name)
            if spec is None:
                raise _NotRunnable(f"No module named {name}; {package!r} is a package and cannot be directly executed",
                                   1)
    except (ModuleNotFoundError, ValueError) as e:
        if isinstance(e, ModuleNotFoundError) and not (e.name and (name + ".").startswith(e.name + ".")):
            raise  # a parent package fails to import another module
        raise _NotRunnable(f"No module named {name}", 1) from e
    if spec is None:
        raise _NotRunnable(f"No module named {name}", 1)
    code = spec.loader.get_code(spec.name) if hasattr(spec.loader, "get_code") else None
    if code is None:
        raise _NotRunnable(f"No code object available for {name}", 1)
    return code, _attributes(spec), [spec.origin, *rest]


def _attributes(spec):
    return {"__file__": spec.origin, "__cached__": spec.cached, "__loader__": spec.loader,
            "__package__": spec.parent, "__spec__": spec}


def _safe_path():
    """True if Python was started without the script's folder on sys.path (-P, -I)."""
    return getattr(sys.flags, "safe_path", False) or bool(sys.flags.isolated)


def _execute(code, attributes):
    main_module = types.ModuleType("__main__")
    vars(main_module).update(attributes, __builtins__=builtins, __annotations__={})
    # Permanently, not only during the call: exit handlers, threads and pickling also look __main__
    # up later.
    former = sys.modules["__main__"]
    sys.modules["__main__"] = main_module
    # Spawned workers import the script as __mp_main__, and their parent resolves the workers'
    # results under that name. multiprocessing has bound the name to the module that was __main__
    # when multiprocessing was imported.
    if sys.modules.get("__mp_main__") is former:
        sys.modules["__mp_main__"] = main_module
    try:
        exec(code, vars(main_module))
    except SystemExit:
        raise
    except BaseException as e:
        _report_from(e, code)
        raise  # to the interpreter, which sets the exit status
    return 0


def _report_from(error, code):
    """Makes the interpreter's traceback of an error begin at the script, without frames of
    mindtorch and ``python -m``."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code is not code:
        traceback = traceback.tb_next
    report = sys.excepthook  # may have been replaced by the script

    def begin_at_script(kind, value, _):
        value.__traceback__ = sys.last_traceback = traceback
        report(kind, value, traceback)

    put("sys:excepthook", begin_at_script)
