"""Names of torch's API used by a Python source: imports, aliases, attribute chains, and methods of
expressions known to be tensors.

The source is only parsed, never executed.
"""
import ast
import dataclasses
import os
import tokenize

PACKAGES = ("torch", "mindtorch.torch")
LIKELY = "<perhaps a tensor>"   # an argument of a module's forward
# inferred kind of an expression: TENSOR, "instance:torch.optim.SGD", a dotted name, or None
TENSOR = "<tensor>"


@dataclasses.dataclass(frozen=True)
class Use:
    """One use of a torch name."""

    name: str
    line: int
    column: int
    keywords: tuple = ()        # of the call, if the name is called
    guarded: bool = False       # inside a try whose except catches the failure
    method: bool = False        # Tensor.<name> through a value
    sure: bool = True  # False: the kind of that value is unknown
    module: str = ""  # the module that an import statement requires


def public(name):
    """Returns the torch name of a dotted name, or None if it does not belong to torch."""
    for package in reversed(PACKAGES):
        if name == package or name.startswith(package + "."):
            return "torch" + name[len(package):]
    return None


class _Scope:
    def __init__(self, parent=None, is_class=False):
        self.parent, self.is_class, self.names = parent, is_class, {}

    def find(self, name, inner=True):
        if name in self.names and (inner or not self.is_class):
            return self.names[name]
        return self.parent.find(name, False) if self.parent is not None else None


_CATCHES = {"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException", "RuntimeError",
            "NotImplementedError"}


class Reader(ast.NodeVisitor):
    """AST visitor that collects `uses`. `facts` provides what the source alone does not tell (see
    `_scan.Facts`)."""

    def __init__(self, facts, path=None, files=None):
        self.facts, self.uses, self.path = facts, [], path
        # module-level names of files that are imported from
        self.files = {} if files is None else files
        self.scope, self.guards, self.typing, self.later = _Scope(), 0, 0, []
        self.scope_of_file = self.scope

    def read(self, tree):
        # A method that the script defines itself is not Tensor's, even if it has the same name.
        self.own = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))} | {
            n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
        self.visit(tree)
        while self.later:  # function bodies run after all module-level names exist
            scope, node = self.later.pop(0)
            self.scope, self.guards = scope, 0
            for statement in node.body if isinstance(node.body, list) else [node.body]:
                self.visit(statement)
        return self.uses

    # ------------------------------------------------------------------ results
    def use(self, name, node, keywords=(), method=False, sure=True, module=""):
        # For a chain over several lines, report the last name and its line.
        line, column = node.lineno, node.col_offset + 1
        if isinstance(node, ast.Attribute):
            line, column = node.end_lineno, node.end_col_offset - len(node.attr.encode()) + 1
        self.uses.append(Use(name, line, column,
                             tuple(keywords), self.guards > 0, method, sure, module))

    # ------------------------------------------------------------------ imports
    def visit_Import(self, node):
        for a in node.names:
            name = public(a.name)
            self.ours(a.name, node)
            if name is None:
                self.elsewhere(a.name, node)
                if a.asname:
                    self.scope.names[a.asname] = None
                continue
            if a.asname:
                self.scope.names[a.asname] = name
            else:
                root = a.name.split(".")[0]
                self.scope.names[root] = "torch" if root == "torch" else "mindtorch"
            if name != "torch":
                self.use(name, node, module=name)

    def visit_ImportFrom(self, node):
        base = node.module or ""
        if node.level == 0 and public(base) is None:
            self.elsewhere(base, node)
        for a in node.names:
            if node.level == 0 and a.name == "*" and public(base):
                for n in self.facts.star(public(base)):
                    self.scope.names[n] = f"{public(base)}.{n}"
                self.use(public(base), node, module=public(base))
                continue
            own = self._local(base, node.level) if node.level or public(base) is None else {}
            if a.name == "*":
                self.scope.names.update(own)
                continue
            if own.get(a.name):
                self.scope.names[a.asname or a.name] = own[a.name]
                continue
            name = public(f"{base}.{a.name}") if node.level == 0 else None
            if node.level == 0:
                self.ours(f"{base}.{a.name}", a)
            self.scope.names[a.asname or a.name] = name
            if name and name != "torch":
                self.use(name, a, module=public(base) or "")

    def ours(self, name, node):
        """Records a use of this package outside torch's names if it does not exist (mindtorch 0.4
        had other modules)."""
        if name.startswith("mindtorch.") and public(name) is None and not self.facts.has(name):
            self.use(name, node)

    def elsewhere(self, module, node):
        """Records a package other than torch that the script imports unconditionally and that is
        not installed."""
        root = module.partition(".")[0]
        if self.guards or self.typing or root == "mindtorch" or self.facts.installed(root) or any(
                os.path.exists(os.path.join(folder, root + end)) for folder in self._folders() for end in ("", ".py")):
            return
        self.use(root, node, module=root)

    def _folders(self):
        """Yields the script's folder and its parents: one of them is on sys.path when the script
        runs."""
        folder = os.path.dirname(os.path.abspath(self.path)) if self.path is not None else os.getcwd()
        while True:
            yield folder
            outer = os.path.dirname(folder)
            if outer == folder:
                return
            folder = outer

    def visit_If(self, node):
        """Visits a conditional. A block under TYPE_CHECKING is marked as not executed."""
        typing = isinstance(node.test, (ast.Name, ast.Attribute)) and getattr(node.test, "id", getattr(node.test, "attr", "")) == "TYPE_CHECKING"
        self.visit(node.test)
        self.typing += typing
        for s in node.body:
            self.visit(s)
        self.typing -= typing
        for s in node.orelse:
            self.visit(s)

    def _local(self, module, level):
        """Returns {name: its kind} at module level of one of the script's own files, if it is found
        next to the script."""
        if self.path is None:
            return {}
        folder = os.path.dirname(os.path.abspath(self.path))
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        stem = os.path.join(folder, *module.split(".")) if module else folder
        path = next((p for p in (stem + ".py", os.path.join(stem, "__init__.py")) if os.path.isfile(p)), None)
        if path is None:
            return {}
        if path not in self.files:
            # placeholder while the file is read: files may import from each other
            self.files[path] = {}
            inner = Reader(self.facts, path, self.files)
            try:
                with tokenize.open(path) as f:
                    inner.read(ast.parse(f.read(), path))
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                return {}  # reported when that file itself is scanned
            self.files[path] = {n: k for n, k in inner.scope_of_file.names.items() if n[0] != "_"}
        return self.files[path]

    # ------------------------------------------------------------------ names
    def dotted(self, node):
        """Returns the torch name that an expression refers to, or None."""
        if isinstance(node, ast.Name):
            found = self.scope.find(node.id)
            return found if found and found[0] != "<" and ":" not in found else None
        if isinstance(node, ast.Attribute):
            base = self.dotted(node.value)
            if base is None:
                return None
            name = f"{base}.{node.attr}"
            return public(name) if base == "mindtorch" else name
        return None

    def kind(self, node):
        """Returns the kind of an expression: TENSOR, 'instance:<class>', a dotted name, or None."""
        name = self.dotted(node)
        if name is not None:
            return name
        if isinstance(node, ast.Name):
            return self.scope.find(node.id)
        if isinstance(node, ast.Call):
            name = self.dotted(node.func)
            if name is not None:
                return self.facts.result(name)
            if isinstance(node.func, ast.Attribute) and self.kind(node.func.value) == TENSOR:
                return self.facts.method_result(node.func.attr)
        elif isinstance(node, ast.BinOp):
            if TENSOR in (self.kind(node.left), self.kind(node.right)):
                return TENSOR
        elif isinstance(node, (ast.Subscript, ast.UnaryOp)):
            inner = self.kind(node.value if isinstance(node, ast.Subscript) else node.operand)
            return TENSOR if inner == TENSOR and not isinstance(getattr(node, "op", None), ast.Not) else None
        elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT", "data", "H") and self.kind(node.value) == TENSOR:
            return TENSOR
        elif isinstance(node, (ast.NamedExpr, ast.Await)):
            return self.kind(node.value)
        return None

    def visit_Attribute(self, node, keywords=()):
        name = self.dotted(node)
        if name is not None:
            if name not in ("torch", "mindtorch"):
                self.use(name, node, keywords)
            return
        kind = self.kind(node.value)
        if kind == TENSOR:
            self.use(f"torch.Tensor.{node.attr}", node, keywords, True)
        elif kind and kind.startswith("instance:") and self.facts.has(f"{kind[9:]}.{node.attr}"):
            # An instance may have attributes that its class lacks, so only existing attributes are
            # reported.
            self.use(f"{kind[9:]}.{node.attr}", node, keywords, True)
        elif (kind is None or kind == LIKELY) and node.attr not in self.own and self.facts.refused_method(node.attr):
            self.use(f"torch.Tensor.{node.attr}", node, keywords, True, kind == LIKELY)
        self.visit(node.value)

    def visit_Name(self, node, keywords=()):
        name = self.dotted(node) if isinstance(node.ctx, ast.Load) else None
        if name is not None and name not in PACKAGES and name != "mindtorch":
            self.use(name, node, keywords)

    def visit_Call(self, node):
        keywords = [k.arg for k in node.keywords if k.arg]
        if isinstance(node.func, ast.Attribute):
            self.visit_Attribute(node.func, keywords)
        elif isinstance(node.func, ast.Name):
            self.visit_Name(node.func, keywords)
            self._by_string(node)
        else:
            self.visit(node.func)
        for x in [*node.args, *node.keywords]:
            self.visit(x)

    def _by_string(self, node):
        """Handles getattr(torch, "name")."""
        if node.func.id == "getattr" and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
            base = self.dotted(node.args[0])
            if base and isinstance(node.args[1].value, str):
                self.use(f"{base}.{node.args[1].value}", node)

    # ------------------------------------------------------------------ bindings
    def bind(self, target, kind):
        if isinstance(target, ast.Name):
            # The kind of a name bound twice is unknown, unless both bindings agree.
            known = self.scope.names.get(target.id, kind)
            self.scope.names[target.id] = kind if known == kind or self.scope.parent is None else None
        elif isinstance(target, (ast.Tuple, ast.List)):
            for t in target.elts:
                self.bind(t, None)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, None)
        elif isinstance(target, (ast.Attribute, ast.Subscript)):
            self.visit(target)

    def visit_Assign(self, node):
        self.visit(node.value)
        kind = self.kind(node.value)
        for t in node.targets:
            if isinstance(t, (ast.Tuple, ast.List)) and isinstance(node.value, (ast.Tuple, ast.List)) and (
                    len(t.elts) == len(node.value.elts)):
                kinds = [self.kind(v) for v in node.value.elts]
                for x, k in zip(t.elts, kinds):
                    self.bind(x, k)
            else:
                self.bind(t, kind)

    def visit_AnnAssign(self, node):
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
        self.bind(node.target, self._annotated(node.annotation) or (self.kind(node.value) if node.value else None))

    def visit_NamedExpr(self, node):
        self.visit(node.value)
        self.bind(node.target, self.kind(node.value))

    def _annotated(self, node):
        return TENSOR if node is not None and self.dotted(node) in ("torch.Tensor", "torch.FloatTensor") else None

    def visit_For(self, node):
        self.visit(node.iter)
        self.bind(node.target, TENSOR if self.kind(node.iter) == TENSOR else None)
        for s in [*node.body, *node.orelse]:
            self.visit(s)

    visit_AsyncFor = visit_For

    def visit_withitem(self, node):
        self.visit(node.context_expr)
        if node.optional_vars is not None:
            self.bind(node.optional_vars, None)

    def visit_ExceptHandler(self, node):
        if node.name:
            self.scope.names[node.name] = None
        self.generic_visit(node)

    def visit_Try(self, node):
        caught = any(h.type is None or any(isinstance(n, ast.Name) and n.id in _CATCHES for n in ast.walk(h.type))
                     for h in node.handlers)
        self.guards += caught
        for s in node.body:
            self.visit(s)
        self.guards -= caught
        for s in [*node.handlers, *node.orelse, *node.finalbody]:
            self.visit(s)

    # ------------------------------------------------------------------ scopes
    def visit_FunctionDef(self, node):
        for d in node.decorator_list:
            self.visit(d)
        self.scope.names.setdefault(node.name, None)
        if node.returns is not None:
            self.visit(node.returns)
        self._function(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node):
        self._function(node)

    def _function(self, node):
        a = node.args
        for d in [*a.defaults, *a.kw_defaults]:
            if d is not None:
                self.visit(d)
        inner = _Scope(self.scope)
        for p in [*a.posonlyargs, *a.args, *a.kwonlyargs, a.vararg, a.kwarg]:
            if p is not None:
                if p.annotation is not None:
                    self.visit(p.annotation)
                inner.names[p.arg] = self._annotated(p.annotation)
        if getattr(node, "name", "") == "forward" and getattr(self.scope, "is_module", False):
            inner.names.update({p.arg: LIKELY for p in a.args[1:] if p.annotation is None})
        self.later.append((inner, node))

    def visit_ClassDef(self, node):
        for x in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(x)
        self.scope.names[node.name] = None
        outer, self.scope = self.scope, _Scope(self.scope, is_class=True)
        self.scope.is_module = any(self.dotted(b) or isinstance(b, ast.Name) for b in node.bases)
        for s in node.body:
            self.visit(s)
        self.scope = outer

    def _comprehension(self, node):
        outer, self.scope = self.scope, _Scope(self.scope)
        for g in node.generators:
            self.visit(g.iter)
            self.bind(g.target, TENSOR if self.kind(g.iter) == TENSOR else None)
            for c in g.ifs:
                self.visit(c)
        for part in ("key", "value", "elt"):
            if hasattr(node, part):
                self.visit(getattr(node, part))
        self.scope = outer

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension
