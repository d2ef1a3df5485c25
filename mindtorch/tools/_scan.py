"""``python -m mindtorch scan PATH...``: every torch API that scripts use, and whether mindtorch has it.

The scripts are read, not run. Each name is looked up in mindtorch's own namespace and op table, so the answer is what an
import would find. Exit status: 0 everything is supported, 1 something is not, 2 a file cannot be read.
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
import tokenize
import types
import urllib.parse

import mindtorch

from mindtorch.tools._names import TENSOR, Reader

SUPPORTED, PARTLY, UNSUPPORTED = "supported", "partly", "unsupported"
_NUMPY = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}

#: names of mindtorch 0.4 that are not there -> what to write (docs/from-mindtorch-0.4.md)
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
    """One use of a name: where, what, whether it is supported, why not, and what to write instead."""

    file: str
    line: int
    column: int
    name: str
    verdict: str
    reason: str = ""
    instead: str = ""


class Facts:
    """What mindtorch has: `verdict(use)`, and what the reader must know of results."""

    def __init__(self):
        import mindtorch.torch as facade
        from mindtorch.core import return_types, table

        self.facade, self.table, self._known = facade, table.TABLE, {}
        self._several, self._refused = set(return_types.TYPES), {}

    # ---- looking up
    def find(self, name):
        """(object, None), or (None, (the part that is there, the missing name))."""
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
                if here is None:        # (a function may have a module of its name, which gives it more: torch.tensor)
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
        """Whether a name is there; a module of ours that is not loaded is looked for and not run: some do something when they are (mstorch_enable)."""
        if name.startswith("mindtorch.") and name not in sys.modules:
            here, lacking = self.find(name.rpartition(".")[0])
            if lacking is None and hasattr(here, "__path__") and importlib.util.find_spec(name) is not None:
                return True
        return self.find(name)[1] is None

    def star(self, module):
        """The names that `from module import *` gives."""
        found = self.find(module)[0]
        return getattr(found, "__all__", [n for n in vars(found) if n[0] != "_"]) if found is not None else ()

    # ---- results
    def result(self, name):
        """What a call of this name gives, if that is certain."""
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
        """Whether Tensor has a method of this name that does nothing but refuse; one that lists, strings ... have too does
        not count, as it is seldom a tensor's."""
        if name not in self._refused:
            found = getattr(self.facade.Tensor, name, None) if name[0] != "_" else None
            common = any(hasattr(t, name) for t in (list, dict, set, tuple, str, bytes, int, float))
            self._refused[name] = found is not None and not common and _refusals(found)[1]
        return self._refused[name]

    def _one(self, op):
        """Whether an op gives one tensor: not a named tuple, a number, or a list."""
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
        """(verdict, reason, instead)"""
        found, missing = self.find(use.name)
        if missing is not None:
            holder, part = missing
            reason = f"mindtorch's {holder} has no {part}" if holder != "mindtorch" else f"mindtorch has no {part}"
            if use.guarded:
                return PARTLY, reason + "; the script catches that", ""
            return UNSUPPORTED, reason, self._instead(holder, part, use)
        refusal, always = _refusals(found)
        if always:
            refusal = refusal or "it always raises NotImplementedError"
            return (UNSUPPORTED, refusal, "") if use.sure else (PARTLY, f"if this is a tensor: {refusal}", "")
        unknown = [k for k in use.keywords if not _accepts(found, k)]
        if unknown:
            return PARTLY, f"takes no argument {', '.join(map(repr, unknown))}", ""
        if refusal:
            return PARTLY, f"refuses some cases: {refusal}", ""
        return SUPPORTED, "", ""

    def _instead(self, holder, part, use):
        if f"{holder}.{part}" in FROM_04:
            return FROM_04[f"{holder}.{part}"]
        if use.method and part in self.table and self.table[part].public is not None:
            return f"torch.{part}(tensor, ...)"
        names = dir(self.find(holder)[0])
        close = difflib.get_close_matches(part, [n for n in names if n[0] != "_"], 1, 0.75)
        return f"the nearest name is {holder}.{close[0]}" if close else ""


def _source(fn):
    """The syntax tree of a function, or None if there is no text of it."""
    fn = inspect.unwrap(getattr(fn, "__func__", fn))
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(fn))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


def _named_tuple(node):
    return isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)) and (
        ast.unparse(node.func).partition(".")[0] in ("return_types", "tuple", "list", "bool", "int", "float"))


# Messages that speak of mindtorch. Others are torch's own: a mode that there is none of, a module without forward.
_OURS = re.compile(r"\b(not |un)(yet )?(be )?(supported|implemented|available)|there (is|are) no|one process", re.I)


@functools.cache
def _refusals(found):
    """(what the source of a function or class says it does not do, whether it does nothing else)."""
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
        for n in ast.walk(tree):
            if isinstance(n, ast.Raise) and n.exc is not None and "NotImplementedError" in ast.unparse(n.exc)[:40]:
                args = n.exc.args if isinstance(n.exc, ast.Call) else []
                said = _literal(args[0], names) if args else ""
                # The methods of an abstract class raise it without words, or say that a subclass has to write them.
                alone = bool(body) and body[0] is n and bool(args) and f is bodies[0]
                if alone or _OURS.search(said):
                    text, always = text or said, always or alone
    return " ".join(text.split()), always


def _names_of(fn):
    """{name: value} that a function's own code sees, for the words of its messages."""
    fn = inspect.unwrap(getattr(fn, "__func__", fn))
    try:
        seen = inspect.getclosurevars(fn)
    except TypeError:
        return {}
    return {**seen.globals, **seen.nonlocals}


def _literal(node, names):
    """A message as text, with ... for what is not known before it is raised."""
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
    """([Found] in order of file and line, [messages about files that could not be read])."""
    facts = facts or Facts()
    found, failed, files = [], [], {}
    for path in _files(paths, failed):
        try:
            with tokenize.open(path) as f:
                source = f.read()
            tree = ast.parse(source, path)
        except (OSError, SyntaxError, ValueError) as e:
            failed.append(f"{path}: {e}")
            continue
        seen, lines = set(), source.splitlines()
        for use in sorted(Reader(facts, path, files).read(tree), key=lambda u: (u.line, u.column, u.name)):
            if (use.name, use.line) not in seen:
                seen.add((use.name, use.line))
                # Python counts bytes of UTF-8; readers of the report count UTF-16 units.
                before = lines[use.line - 1].encode()[:use.column - 1].decode(errors="replace") if use.line <= len(lines) else ""
                column = len(before.encode("utf-16-le")) // 2 + 1
                found.append(Found(path, use.line, column, use.name, *facts.verdict(use)))
    return found, failed


def _files(paths, failed):
    for path in paths:
        if os.path.isdir(path):
            for folder, below, names in os.walk(path):
                below[:] = sorted(d for d in below if d[0] != "." and d != "__pycache__")
                yield from (os.path.join(folder, n) for n in sorted(names) if n.endswith(".py"))
        elif os.path.exists(path):
            yield path
        else:
            failed.append(f"{path}: there is no such file")


def text(found):
    """One line for each use, `file:line: name: verdict`, reasons below it, and a sum."""
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
    """The report in SARIF 2.1.0, as code hosts read it: what is partly or not supported."""
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
    parser.add_argument("--problems", action="store_true", help="only what is partly or not supported")
    parser.add_argument("--output", metavar="FILE", help="where to write it (default: standard output)")


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
