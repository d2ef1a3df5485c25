"""``python -m mindtorch scan PATH...``: lists the torch APIs that scripts use, and whether
mindtorch supports them.

The scripts are parsed, not run. Each name is looked up in mindtorch's own namespace and op table,
so the result matches what an import would find. Exit status: 0 everything is supported, 1 something
is not, 2 a file cannot be read.
"""
import ast
import dataclasses
import difflib
import functools
import importlib
import importlib.util
import inspect
import json
import os
import pathlib
import re
import sys
import textwrap
import threading
import tokenize
import types
import urllib.parse

import mindtorch

from mindtorch.tools._api_usage import TENSOR, Reader
from mindtorch.tools._refused_modules import why

SUPPORTED, PARTLY, UNSUPPORTED = "supported", "partly", "unsupported"
_NUMPY = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}

#: names of mindtorch 0.4 that no longer exist -> their replacement (docs/from-mindtorch-0.4.md)
FROM_04 = {
    "mindtorch.module_hooker": "mindtorch.tools: mstorch_enable, mstorch_disable, enabled", "mindtorch.package_info": "mindtorch.__version__",
    "torch.logging": "Python's logging and warnings", "torch.common": "the functions of torch itself: mindtorch.torch.common was private",
    "mindtorch.torchvision": "the torchvision package, after mstorch_enable", "mindtorch.torchaudio": "the torchaudio package, after mstorch_enable",
    "mindtorch.tools.utils": "mindtorch.tools", "mindtorch.tools.pth2ckpt": "python -m mindtorch convert",
    "torch.cast_tp_adapter_tensor": "torch.cast_to_adapter_tensor",
    **{f"torch.optim.{n}.{a}": "optimizer.param_groups[i]['lr']" for n in ("SGD", "Adam", "AdamW", "Optimizer") for a in ("learning_rate", "get_lr", "lrs")},
}


@dataclasses.dataclass(frozen=True)
class Found:
    """One use of a name: location, name, verdict, reason, and what to write instead."""

    file: str
    line: int
    column: int
    name: str
    verdict: str
    reason: str = ""
    instead: str = ""


class Facts:
    """Queries on mindtorch's API: `verdict(use)`, and the result types that the reader needs."""

    def __init__(self):
        import mindtorch.torch as facade
        from mindtorch.core.tensor import return_types
        from mindtorch.core.dispatch import op_registry

        self.facade, self.table, self._known = facade, op_registry.OPS, {}
        self._several, self._refused, self._installed, self._modules, self._single = set(return_types.TYPES), {}, {}, {}, {}

    # ---- looking up
    def find(self, name):
        """Returns (object, None), or (None, (the existing prefix, the missing name))."""
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name):
        here, done = (mindtorch, "mindtorch") if name.startswith("mindtorch.") else (self.facade, "torch")
        for part in name.split(".")[1:]:
            full = f"{done}.{part}"
            try:
                here = getattr(here, part)
            except AttributeError:
                here = self._imported(full) if isinstance(here, types.ModuleType) else getattr(self._imported(done), part, None)
                # (a submodule with the name of a function can add attributes to it: torch.tensor)
                if here is None:
                    return None, (done, part)
            except NotImplementedError as e:
                return None, (done, f"{part} ({e})")
            done = full
        return here, None

    def _imported(self, name):
        target = name if name.startswith("mindtorch") else "mindtorch." + name
        try:
            return importlib.import_module(target)
        except ModuleNotFoundError as e:
            if e.name and (target == e.name or target.startswith(e.name + ".")):
                return None
            raise

    def has(self, name):
        """True if a name exists. An unloaded module of mindtorch is located but not imported,
        because importing some modules has side effects (mstorch_enable)."""
        if name.startswith("mindtorch.") and name not in sys.modules:
            here, lacking = self.find(name.rpartition(".")[0])
            if lacking is None and hasattr(here, "__path__") and importlib.util.find_spec(name) is not None:
                return True
        return self.find(name)[1] is None

    def installed(self, package):
        """True if a package other than torch can be imported. It is located but not imported."""
        if package not in self._installed:
            try:
                found = package in sys.modules or importlib.util.find_spec(package) is not None
            except (ImportError, ValueError):
                found = False
            self._installed[package] = found
        return self._installed[package]

    def star(self, module):
        """Returns the names that `from module import *` binds."""
        found = self.find(module)[0]
        return getattr(found, "__all__", [n for n in vars(found) if n[0] != "_"]) if found is not None else ()

    # ---- results
    def result(self, name):
        """Returns the kind of a call's result, if it is certain."""
        if name in ("torch.tensor", "torch.as_tensor", "torch.from_numpy", "torch.Tensor", "torch.nn.Parameter"):
            return TENSOR
        short = name.removeprefix("torch.").removeprefix("_C._")
        if short in self.table:
            return TENSOR if self._one(short.rpartition(".")[2]) else None
        found = self.find(name)[0]
        return f"instance:{name}" if isinstance(found, type) else None

    def method_result(self, name):
        base = name[:-1] if name.endswith("_") and not name.startswith("_") else name
        return TENSOR if base in self.table and self._one(base) else None

    def refused_method(self, name):
        """True if Tensor has a method of this name that always raises NotImplementedError. Methods
        that lists, strings etc. also have are ignored, because the receiver is rarely a tensor."""
        if name not in self._refused:
            found = getattr(self.facade.Tensor, name, None) if name[0] != "_" else None
            common = any(hasattr(t, name) for t in (list, dict, set, tuple, str, bytes, int, float))
            self._refused[name] = found is not None and not common and _refusals(found)[1]
        return self._refused[name]

    def _one(self, op):
        """True if an op returns a single tensor, not a named tuple, a Python scalar, or a list."""
        if op not in self._single:
            self._single[op] = self._gives_one(op)
        return self._single[op]

    def _gives_one(self, op):
        row = self.table.get(op)
        if op in self._several or row is None or op.startswith(("is_", "split", "unsafe_split", "can_", "result_")):
            return False
        try:
            given = inspect.signature(row.body).return_annotation
        except (TypeError, ValueError):
            return False
        if given is not inspect.Signature.empty:
            return getattr(given, "__name__", str(given)) == "Tensor"
        return self._returns_one(row.body)

    def _returns_one(self, fn):
        tree = _source(fn)
        if tree is None:
            return False
        returns = [n.value for n in ast.walk(tree) if isinstance(n, ast.Return)]
        return bool(returns) and not any(isinstance(r, (ast.Tuple, ast.List, ast.Constant, ast.Compare, ast.ListComp,
                                                        ast.BoolOp, type(None))) or _named_tuple(r) for r in returns)

    # ---- verdicts
    def verdict(self, use):
        """Returns (verdict, reason, instead)."""
        if use.module and use.module.partition(".")[0] not in ("torch", "mindtorch"):
            return PARTLY, f"its import fails here: the package {use.module} is neither installed nor next to the script", ""
        found, missing = self.find(use.name)
        if use.module and missing is None and not self.importable(use.module):
            return self._failing(use)
        if missing is not None:
            holder, part = missing
            reason = f"mindtorch's {holder} has no {part}" if holder != "mindtorch" else f"mindtorch has no {part}"
            reason = why(f"{holder}.{part}") or reason
            if use.guarded:
                return PARTLY, reason + "; the script catches that", ""
            return UNSUPPORTED, reason, self._instead(holder, part, use)
        refusal, always = _refusals(found)
        if always:
            refusal = refusal or "it always raises NotImplementedError"
            return (UNSUPPORTED, refusal, "") if use.sure else (PARTLY, f"if this is a tensor: {refusal}", "")
        unknown = [k for k in use.keywords if not _accepts(found, k)]
        if unknown:
            return PARTLY, f"does not accept the argument {', '.join(map(repr, unknown))}", ""
        if refusal:
            return PARTLY, f"some cases are not supported: {refusal}", ""
        return SUPPORTED, "", ""

    def importable(self, module):
        """True if `import module` works. Classes and functions have no submodules, whatever
        attributes they have."""
        if module not in self._modules:
            target = module if module.startswith("mindtorch") else "mindtorch." + module
            self._modules[module] = target in sys.modules or self._imported(module) is not None
        return self._modules[module]

    def _failing(self, use):
        """Returns the verdict of an import of something that exists but is not a module."""
        holder = use.module
        while not self.importable(holder):
            holder, _, part = holder.rpartition(".")
        reason = f"its import fails: {holder}.{part} is not a module"
        if use.guarded:
            return PARTLY, reason + "; the script catches that", ""
        return UNSUPPORTED, reason, f"from {holder} import {part}"

    def _instead(self, holder, part, use):
        if f"{holder}.{part}" in FROM_04:
            return FROM_04[f"{holder}.{part}"]
        if use.method and part in self.table and self.table[part].public is not None:
            return f"torch.{part}(tensor, ...)"
        names = dir(self.find(holder)[0])
        close = difflib.get_close_matches(part, [n for n in names if n[0] != "_"], 1, 0.75)
        return f"the nearest name is {holder}.{close[0]}" if close else ""


def _source(fn):
    """Returns the syntax tree of a function, or None if its source is unavailable."""
    fn = inspect.unwrap(getattr(fn, "__func__", fn))
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(fn))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


def _named_tuple(node):
    return isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)) and (
        ast.unparse(node.func).partition(".")[0] in ("return_types", "tuple", "list", "bool", "int", "float"))


# Matches messages about mindtorch's own limits. Others are PyTorch's own: an invalid mode, a module
# without forward.
_OURS = re.compile(r"\b(not |un)(yet )?(be )?(supported|implemented|available)|there (is|are) no|one process", re.I)


@functools.cache
def _refusals(found):
    """Returns (the message of a NotImplementedError in the source of a function or class, whether
    it always raises)."""
    bodies = [found]
    if isinstance(found, type):
        bodies = [vars(found).get(n) for n in ("__new__", "__init__", "forward", "step")]
    text, always = "", False
    for f in bodies:
        tree = _source(f) if inspect.isroutine(f) else None
        if not isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        body = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
        names = _names_of(f)
        end = "" if f not in bodies[:2] or isinstance(tree, ast.AsyncFunctionDef) else _dead_end(body, names)
        if end:
            text, always = text or end, True
        for n in ast.walk(tree):
            if isinstance(n, ast.Raise) and n.exc is not None and "NotImplementedError" in ast.unparse(n.exc)[:40]:
                args = n.exc.args if isinstance(n.exc, ast.Call) else []
                said = _literal(args[0], names) if args else ""
                # In an abstract class, methods raise it without a message, or say that a subclass
                # must implement them.
                if _OURS.search(said):
                    text = text or said
    return " ".join(text.split()), always


#: maximum depth of nested calls that are followed to a NotImplementedError
_DEEP = 4


def _dead_end(statements, names, deep=_DEEP):
    """Returns the message of the NotImplementedError that every path through these statements
    raises; else "".

    A call of a function that always raises counts. Other errors, for example about arguments, may
    come first.
    """
    for s in statements:
        if isinstance(s, ast.Raise):
            args = s.exc.args if isinstance(s.exc, ast.Call) and "NotImplementedError" in ast.unparse(s.exc.func) else []
            return _literal(args[0], names) if args else ""
        if isinstance(s, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)) and isinstance(s.value, ast.Call):
            end = _of_call(s.value, names, deep)
            if end:
                return end
        if isinstance(s, ast.With):
            end = _dead_end(s.body, names, deep)
            if end:
                return end
        if isinstance(s, ast.If) and s.orelse:
            ends = [_dead_end(part, names, deep) for part in (s.body, s.orelse)]
            if all(ends):
                return ends[0]
        if any(isinstance(n, (ast.Return, ast.Yield, ast.YieldFrom)) for n in ast.walk(s)):
            return ""
    return ""


def _of_call(call, names, deep):
    """Returns the message of the called function, if it always raises NotImplementedError."""
    helper = names.get(call.func.id) if isinstance(call.func, ast.Name) else None
    if not deep or not isinstance(helper, types.FunctionType):
        return ""
    tree = _source(helper)
    if not isinstance(tree, ast.FunctionDef):
        return ""
    given = {p.arg: a.value for p, a in zip(tree.args.args, call.args) if isinstance(a, ast.Constant)}
    return _dead_end(tree.body, {**_names_of(helper), **given}, deep - 1)


def _names_of(fn):
    """Returns {name: value} visible to a function's code, to fill in its messages."""
    fn = inspect.unwrap(getattr(fn, "__func__", fn))
    try:
        seen = inspect.getclosurevars(fn)
    except TypeError:
        return {}
    return {**seen.globals, **seen.nonlocals}


def _literal(node, names):
    """Returns a message as text, with ... for parts that are only known at run time."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(v.value if isinstance(v, ast.FormattedValue) else v, names) for v in node.values)
    if isinstance(node, ast.BinOp):
        return _literal(node.left, names) + _literal(node.right, names)
    if isinstance(node, ast.Name) and isinstance(names.get(node.id), (str, int)):
        return str(names[node.id])
    return "..."


def _accepts(found, keyword):
    try:
        parameters = inspect.signature(found).parameters
    except (TypeError, ValueError):
        return True
    kinds = {p.kind for p in parameters.values()}
    if inspect.Parameter.VAR_KEYWORD in kinds or keyword in parameters:
        return True
    return _NUMPY.get(keyword) in parameters or keyword == "out"


# ------------------------------------------------------------------ files
def scan(paths, facts=None):
    """Returns ([Found] in order of file and line, [messages about files that could not be read]).
    """
    facts = facts or Facts()
    found, failed, files = [], [], {}
    for path in _files(paths, failed):
        try:
            with tokenize.open(path) as f:
                source = f.read()
            uses = _uses(facts, path, source, files)
        except (OSError, SyntaxError, ValueError) as e:
            failed.append(f"{path}: {e}")
            continue
        except (RecursionError, MemoryError):
            failed.append(f"{path}: its expressions or blocks are nested too deeply to be read")
            continue
        seen, lines = set(), source.splitlines()
        for use in sorted(uses, key=lambda u: (u.line, u.column, u.name)):
            if (use.name, use.line) not in seen:
                seen.add((use.name, use.line))
                # Python's column counts UTF-8 bytes; consumers of the report count UTF-16 units.
                before = lines[use.line - 1].encode()[:use.column - 1].decode(errors="replace") if use.line <= len(lines) else ""
                column = len(before.encode("utf-16-le")) // 2 + 1
                found.append(Found(path, use.line, column, use.name, *facts.verdict(use)))
    return found, failed


def _uses(facts, path, source, files):
    """Returns the uses in a source. If its nesting exceeds Python's usual limit, it is parsed again
    on a larger stack."""
    def read():
        return Reader(facts, path, files).read(ast.parse(source, path))
    try:
        return read()
    except RecursionError:
        return _on_large_stack(read)


#: recursion limit and stack size (bytes) of the second attempt
_LIMIT, _STACK = 15_000, 512 << 20


def _on_large_stack(f):
    """Runs f() in a thread with a large stack and recursion limit; returns its result or raises its
    error."""
    results = []

    def run():
        try:
            results.append((f(), None))
        except BaseException as e:
            results.append((None, e))

    limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
    sys.setrecursionlimit(max(limit, _LIMIT))
    try:
        thread = threading.Thread(target=run, name="mindtorch-scan")
        thread.start()
        threading.stack_size(size)
        thread.join()
    finally:
        threading.stack_size(size)
        sys.setrecursionlimit(limit)
    result, error = results[0]
    if error is not None:
        raise error
    return result


def _files(paths, failed):
    for path in paths:
        if os.path.isdir(path):
            for folder, below, names in os.walk(path, onerror=lambda e: failed.append(f"{e.filename}: {e.strerror}")):
                below[:] = sorted(d for d in below if d[0] != "." and d != "__pycache__")
                for full in [os.path.join(folder, n) for n in sorted(names) if n.endswith(".py")]:
                    # Opening a pipe would block until it has a writer, and reading a device may
                    # never end.
                    if os.path.exists(full) and not os.path.isfile(full):
                        failed.append(f"{full}: not a regular file")
                    else:
                        yield full
        elif os.path.exists(path):
            yield path
        else:
            failed.append(f"{path}: there is no such file")


def text(found):
    """Returns one line per use, `file:line: name: verdict`, with the reason below it, and a
    summary."""
    words = {SUPPORTED: "supported", PARTLY: "partly supported", UNSUPPORTED: "UNSUPPORTED"}
    lines = []
    for f in found:
        lines.append(f"{f.file}:{f.line}: {f.name}: {words[f.verdict]}")
        if f.reason:
            lines.append(f"    {f.reason}")
        if f.instead:
            lines.append(f"    instead: {f.instead}")
    count = {v: len({f.name for f in found if f.verdict == v}) for v in words}
    lines.append(f"{len({f.name for f in found})} names: " + ", ".join(f"{count[v]} {w.lower()}" for v, w in words.items()))
    return "\n".join(lines)


def sarif(found):
    """Returns the report in SARIF 2.1.0, which code hosts read: names that are partly or not
    supported."""
    rules = {PARTLY: "torch-api-partly-supported", UNSUPPORTED: "torch-api-unsupported"}
    results = [{"ruleId": rules[f.verdict], "level": "error" if f.verdict == UNSUPPORTED else "note",
                "message": {"text": f"{f.name}: {f.reason}" + (f" (instead: {f.instead})" if f.instead else "")},
                "locations": [{"physicalLocation": {
                    "artifactLocation": {"uri": _uri(f.file)},
                    "region": {"startLine": f.line, "startColumn": f.column}}}]} for f in found if f.verdict in rules]
    driver = {"name": "mindtorch scan", "version": mindtorch.__version__, "rules": [{"id": r, "shortDescription": {"text": r.replace("-", " ")}}
                                                  for r in rules.values()]}
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}]}


def _uri(path):
    return pathlib.Path(path).as_uri() if os.path.isabs(path) else urllib.parse.quote(path.replace(os.sep, "/"))


# ------------------------------------------------------------------ command
def configure(parser):
    """Declares the arguments of the command."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="scripts, or folders with them")
    parser.add_argument("--format", choices=("text", "json", "sarif"), default="text")
    parser.add_argument("--problems", action="store_true", help="list only names that are not fully supported")
    parser.add_argument("--output", metavar="FILE", help="where to write the report (default: standard output)")


def main(args):
    """Prints the report; returns the exit status."""
    found, failed = scan(args.paths)
    shown = [f for f in found if f.verdict != SUPPORTED] if args.problems else found
    report = text(shown) if args.format == "text" else json.dumps(
        sarif(shown) if args.format == "sarif" else [dataclasses.asdict(f) for f in shown], indent=1)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as f:
            f.write(report + "\n")
    else:
        print(report)
    for message in failed:
        print(f"python -m mindtorch scan: {message}", file=sys.stderr)
    return 2 if failed else int(any(f.verdict == UNSUPPORTED for f in found))
