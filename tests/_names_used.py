"""Records which torch names a script really uses: runs it with every attribute lookup routed
through a recorder.

    python _names_used.py OUT.json script.py [arguments] -- another.py ...  # {script: {"used": ..., "missing": ..., "refused": ...}}

The scripts run on mindtorch, one after the other. `used` are (file, line, name, True if on a
tensor) of names that exist, `missing` those of names that do not. `refused` are the lines of the
script from which an uncaught NotImplementedError, AttributeError or ImportError came.
"""
import ast
import importlib.machinery
import json
import os
import sys
import traceback
import types


class Recorder(ast.NodeTransformer):
    """Rewrites x.name to __seen__(x, "name", line), with the line of the name itself."""

    def visit_Attribute(self, node):
        self.generic_visit(node)
        if not isinstance(node.ctx, ast.Load) or node.attr.startswith("__") and not node.attr.endswith("__"):
            return node
        call = ast.Call(ast.Name("__seen__", ast.Load()),
                        [node.value, ast.Constant(node.attr), ast.Constant(node.end_lineno), ast.Name("__file__", ast.Load())], [])
        return ast.copy_location(call, node)

    def visit_ImportFrom(self, node):
        if node.level or (node.module or "").split(".")[0] != "torch" or any(a.name == "*" for a in node.names):
            return node
        checks = [ast.Expr(ast.Call(ast.Name("__imported__", ast.Load()), [
            ast.Constant(node.module), ast.Constant(a.name), ast.Constant(a.end_lineno), ast.Name("__file__", ast.Load())], []))
            for a in node.names]
        return [ast.copy_location(x, node) for x in (node, *checks)]


class Watcher:
    """Records attribute accesses on torch's modules, classes and tensors by code in the folders
    `roots`."""

    def __init__(self, torch, roots):
        self.torch, self.roots = torch, [os.path.abspath(r) + os.sep for r in roots]
        self.used, self.missing, self.refused = set(), set(), set()

    def concerns(self, path):
        return any(os.path.abspath(path).startswith(r) for r in self.roots)

    def of_torch(self, x):
        """Returns 'torch' for a torch module or class, 'tensor' for a tensor, else None."""
        if isinstance(x, types.ModuleType):
            return "torch" if x.__name__.split(".")[0] == "torch" else None
        if isinstance(x, self.torch.Tensor):
            return "tensor"
        if isinstance(x, type):
            return "torch" if str(x.__module__).split(".")[0] == "torch" else None
        return None

    def seen(self, x, name, line, file):
        kind = self.of_torch(x)
        if kind is None:
            return getattr(x, name)
        place = os.path.abspath(file), line, name, kind == "tensor"
        try:
            value = getattr(x, name)
        except (AttributeError, NotImplementedError):
            self.missing.add(place)
            raise
        self.used.add(place)
        return value

    def imported(self, module, name, line, file):
        self.used.add((os.path.abspath(file), line, name, False))

    def compiled(self, source, path):
        tree = ast.fix_missing_locations(Recorder().visit(ast.parse(source, path)))
        return compile(tree, path, "exec", dont_inherit=True)

    def failed(self, e):
        """Records an uncaught error at the script's own innermost line."""
        mine = [f for f in traceback.extract_tb(e.__traceback__) if self.concerns(f.filename)]
        if mine and isinstance(e, (NotImplementedError, AttributeError, ImportError)):
            self.refused.add((os.path.abspath(mine[-1].filename), mine[-1].lineno, f"{type(e).__name__}: {e}"))

    def install(self):
        import builtins
        builtins.__seen__, builtins.__imported__ = self.seen, self.imported
        plain = importlib.machinery.SourceFileLoader.source_to_code

        def source_to_code(loader, data, path, **options):
            return self.compiled(data, path) if self.concerns(path) else plain(loader, data, path, **options)

        def get_code(loader, name):  # ignore .pyc files: rewritten code must not be cached
            path = loader.get_filename(name)
            if self.concerns(path):
                return source_to_code(loader, loader.get_data(path), path)
            return whole(loader, name)
        whole = importlib.machinery.SourceFileLoader.get_code
        importlib.machinery.SourceFileLoader.source_to_code = source_to_code
        importlib.machinery.SourceFileLoader.get_code = get_code

    def report(self):
        return {"used": sorted(self.used), "missing": sorted(self.missing), "refused": sorted(self.refused)}


def missed(report, found):
    """Returns what the run has shown and `scan` did not report: unlisted names, and failures
    without a finding at their line."""
    listed = {(os.path.abspath(f.file), f.line, part) for f in found for part in f.name.split(".")}
    announced = {(os.path.abspath(f.file), f.line) for f in found if f.verdict != "supported"}
    out = [f"not listed: {u}" for u in report["used"] if not u[3] and tuple(u[:3]) not in listed and not u[2].startswith("__")]
    out += [f"not announced: {u}" for u in report["missing"] if tuple(u[:2]) not in announced]
    return out + [f"refused, not announced: {u}" for u in report["refused"] if tuple(u[:2]) not in announced]


def run(watcher, path, arguments=()):
    """Runs one script as `python path arguments` does; returns the report."""
    watcher.used, watcher.missing, watcher.refused = set(), set(), set()
    watcher.roots = [os.path.dirname(os.path.abspath(path)) + os.sep]
    sys.argv, sys.path[0] = [path, *arguments], os.path.dirname(os.path.abspath(path))
    module = types.ModuleType("__main__")
    module.__file__ = os.path.abspath(path)
    sys.modules["__main__"] = module
    with open(path, encoding="utf-8") as f:
        code = watcher.compiled(f.read(), os.path.abspath(path))
    try:
        exec(code, vars(module))
    except SystemExit:
        pass
    except Exception as e:
        watcher.failed(e)
        if not watcher.refused:
            raise
    return watcher.report()


def main(out, *words):
    from mindtorch.tools import mstorch_enable  # noqa: F401
    import torch
    watcher, reports, words = Watcher(torch, []), {}, list(words)
    watcher.install()
    while words:
        end = words.index("--") if "--" in words else len(words)
        reports[words[0]] = run(watcher, words[0], words[1:end])
        del words[:end + 1]
    with open(out, "w", encoding="utf-8") as f:
        json.dump(reports, f)


if __name__ == "__main__":
    main(*sys.argv[1:])
