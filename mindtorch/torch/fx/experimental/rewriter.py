"""torch.fx.experimental.rewriter: rewrites functions so that `assert` and annotated assignments are
traced."""
import ast
import copy
import inspect
import sys
import textwrap
import types

from mindtorch.torch.fx._symbolic_trace import Tracer
from mindtorch.torch.fx.annotate import annotate
from mindtorch.torch.nn.modules.module import Module

__all__ = ["AST_Rewriter", "RewritingTracer"]

_ASSERT, _ANNOTATE = "_mindtorch_assert", "_mindtorch_annotate"


class AST_Rewriter(ast.NodeTransformer):
    """Rewrites `assert c, m` to torch._assert(c, m), and `x: T = v` to x = annotate(v, T)."""

    def rewrite(self, fn):
        """Returns the function compiled from fn's rewritten source. RuntimeError if the source is
        not available."""
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
        except (OSError, TypeError, SyntaxError) as e:
            raise RuntimeError(f"cannot rewrite {fn}: its source is not available") from e
        found = next((n for n in tree.body if isinstance(n, ast.FunctionDef)), None)
        if found is None:
            raise AssertionError(f"cannot rewrite {fn}: its source is not a `def` statement")
        # Default values of the signature stay unchanged. An enclosing function provides the names
        # that the function closes over.
        found.decorator_list, found.returns = [], None
        for a in (*found.args.args, *found.args.posonlyargs, *found.args.kwonlyargs, found.args.vararg, found.args.kwarg):
            if a is not None:
                a.annotation = None
        found.args.defaults, found.args.kw_defaults = [], [None] * len(found.args.kwonlyargs)
        cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
        cells[_ASSERT], cells[_ANNOTATE] = types.CellType(sys.modules["mindtorch.torch"]._assert), types.CellType(annotate)
        around = ast.parse(f"def make({', '.join(cells)}):\n    pass")
        around.body[0].body = [self.visit(found), ast.Return(ast.Name(found.name, ast.Load()))]
        scope = {}
        exec(compile(ast.fix_missing_locations(around), fn.__code__.co_filename, "exec"), scope)
        code = scope["make"](*cells).__code__
        new = types.FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, tuple(cells[n] for n in code.co_freevars))
        new.__kwdefaults__, new.__annotations__, new.__qualname__ = fn.__kwdefaults__, fn.__annotations__, fn.__qualname__
        new.__module__ = fn.__module__
        new.__dict__.update(fn.__dict__)
        return new

    def visit_Assert(self, node):
        msg = ast.Constant("") if node.msg is None else node.msg
        return ast.copy_location(ast.Expr(ast.Call(ast.Name(_ASSERT, ast.Load()), [node.test, msg], [])), node)

    def visit_AnnAssign(self, node):
        if node.value is None:
            return node
        value = ast.Call(ast.Name(_ANNOTATE, ast.Load()), [node.value, node.annotation], [])
        return ast.copy_location(ast.Assign([node.target], value), node)


class RewritingTracer(Tracer):
    """A Tracer of programs rewritten by AST_Rewriter: a function, or the forward of the given
    module. Its `root` is a copy of the module."""

    def trace(self, root, concrete_args=None):
        return super().trace(_rewrite(root), concrete_args)


def _rewrite(fn):
    if not isinstance(fn, Module):
        return AST_Rewriter().rewrite(fn)

    class RewrittenModule(Module):
        def __init__(self, of):
            super().__init__()
            self.__dict__.update((k, copy.copy(v)) for k, v in of.__dict__.items())
    RewrittenModule.forward = AST_Rewriter().rewrite(type(fn).forward)
    return RewrittenModule(fn)
