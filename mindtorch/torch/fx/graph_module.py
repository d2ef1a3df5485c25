"""torch.fx.graph_module: a Module whose forward is generated from a Graph
(https://pytorch.org/docs/stable/fx.html#torch.fx.GraphModule)."""
import contextlib
import copy
import linecache
import os
import sys
import traceback

from mindtorch.core.dispatch import generated_files
from mindtorch.core.dispatch.traceback_filter import hide_internal_frames
from mindtorch.core.tensor.tensor import Parameter, is_tensor
from mindtorch.torch.fx._codegen import _PyTreeCodeGen, common_globals
from mindtorch.torch.fx._wrapped import default_tracer
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.nn.modules.module import Module

__all__ = ["GraphModule", "reduce_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_count = 0


def _walk(root, target):
    for part in target.split("."):
        root = getattr(root, part)
    return root


def _copy_attr(from_module, to_module, target):
    """Copies an attribute from one module to another, under the same dotted name."""
    *path, name = target.split(".")
    for part in path:
        inner = getattr(from_module, part)
        if inner is getattr(to_module, part, None):
            return
        if not hasattr(to_module, part):
            to_module.add_module(part, Module())
        from_module, to_module = inner, getattr(to_module, part)
    value = getattr(from_module, name)
    if is_tensor(value) and not is_tensor(value, Parameter):
        persistent = name not in getattr(from_module, "_non_persistent_buffers_set", ())
        to_module.register_buffer(name, value, persistent=persistent)
    else:
        setattr(to_module, name, value)


def _assign_attr(value, to_module, target):
    """Assigns a value to a dotted name."""
    *path, name = target.split(".")
    for part in path:
        if not hasattr(to_module, part):
            to_module.add_module(part, Module())
        to_module = getattr(to_module, part)
    if is_tensor(value) and not is_tensor(value, Parameter):
        to_module.register_buffer(name, value)
    else:
        setattr(to_module, name, value)


def _del_attr(model, target):
    *path, name = target.split(".")
    delattr(_walk(model, ".".join(path)) if path else model, name)


def _forward_of(src, names, origin=None):
    """Compiles generated source and returns its forward function. `origin` is (name, file, line) of
    the traced function."""
    global _count
    _count += 1
    file = f"<eval_with_key>.{_count}"
    if origin:
        file += f" from {origin[1]}:{origin[2]} in {origin[0]}"
    scope = {**common_globals(), **names}
    exec(compile(src, file, "exec"), scope)
    linecache.cache[file] = (len(src), None, src.splitlines(True), file)
    return scope["forward"]


def _point_out(error, file):
    """Writes the line of generated source at which an error occurred to stderr. Does nothing for
    errors outside of it."""
    number, tb = None, error.__traceback__
    while tb is not None:
        where = tb.tb_frame.f_code.co_filename
        if where == file:
            number = tb.tb_lineno
        elif not where.startswith((_PACKAGE, generated_files.folder(), "<mindtorch ")):
            number = None  # the error came from a function of the user
        tb = tb.tb_next
    if number is None:
        return
    lines = linecache.cache[file][2]
    before, after = "".join(lines[max(number - 3, 0):number]), "".join(lines[number:number + 2])
    sys.stderr.write("".join(traceback.format_exception(error)) + f"\nCall using an FX-traced Module, line {number} of the traced Module's "
                     f"generated forward function:\n{before}\n{'~' * 40} <--- HERE\n{after}\n")


class _CodeOnlyModule(Module):
    """The content of a pickle: attributes, and the source of forward."""

    def __init__(self, body):
        super().__init__()
        self.__dict__ = body


def reduce_graph_module(body, names):
    """Restores a GraphModule from a pickle by tracing its source again."""
    body = dict(body)
    code, name = body.pop("_code"), body.pop("_graphmodule_cls_name", "GraphModule")
    tracer_cls = body.pop("_tracer_cls", None) or default_tracer[0]
    forward = _forward_of(code, names)
    root_cls = type("_CodeOnlyModule", (_CodeOnlyModule,), {"forward": forward})
    root = root_cls(body)

    class Keep(tracer_cls):
        def is_leaf_module(self, m, module_qualified_name):
            return True
    made = GraphModule(root, Keep().trace(root), class_name=name)
    for k, v in body.items():
        if k not in made.__dict__:
            made.__dict__[k] = v
    return made


_NOT_PICKLED = frozenset(["_graph", "_names", "_create_node_hooks", "_erase_node_hooks", "_replace_hooks", "_deepcopy_hooks", "_lineno_map",
                          "_prologue_start"])


class GraphModule(Module):
    """A Module whose forward is generated from a Graph. Call `recompile()` after changes to the
    graph."""

    def __new__(cls, *args, **kwargs):
        # Each instance has its own class, for its own forward.
        for c in cls.__mro__:
            if c.__qualname__ == "GraphModuleImpl" or c.__name__ == "GraphModuleImpl":
                return super().__new__(cls)
        return super().__new__(type("GraphModuleImpl", (cls,), {"__module__": cls.__module__}))

    def __init__(self, root, graph, class_name="GraphModule"):
        super().__init__()
        self.__class__.__name__ = class_name
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, node.target)
        elif isinstance(root, dict):
            wanted = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
            for t in wanted:
                if t not in root:
                    raise RuntimeError(f"Node referenced target {t} but that target was not provided in ``root``!")
            for t in sorted(dict.fromkeys(wanted), key=lambda t: t.count(".")):
                _assign_attr(root[t], self, t)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        d = self.__dict__
        d["_create_node_hooks"], d["_erase_node_hooks"], d["_replace_hooks"], d["_deepcopy_hooks"] = [], [], [], []
        d["meta"] = dict(getattr(root, "meta", {}))
        d["_tracer_cls"] = graph._tracer_cls if graph._tracer_cls and "<locals>" not in graph._tracer_cls.__qualname__ else None
        self.graph = graph

    @property
    def graph(self):
        """The Graph of the program."""
        return self._graph

    @graph.setter
    def graph(self, g):
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self.__dict__["_graph"] = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self):
        """The source of forward."""
        if "_code" not in self.__dict__:
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self._code

    def recompile(self):
        """Regenerates forward from the graph."""
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            self._in_spec, self._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
        python = self._graph.python_code(root_module="self")
        d = self.__dict__
        d["_code"], d["_names"], d["_lineno_map"], d["_prologue_start"] = python.src, python.globals, python._lineno_map, python._prologue_start
        cls = type(self)
        cls.forward = _forward_of(python.src, python.globals, getattr(self._graph, "_co_fields", None))
        if "__call__" not in vars(cls):
            def call(self, *args, **kwargs):
                try:
                    return super(cls, self).__call__(*args, **kwargs)
                except Exception as e:
                    hide_internal_frames(e)
                    _point_out(e, cls.forward.__code__.co_filename)
                    raise
            call.__name__ = "__call__"
            cls.__call__ = call
        return python

    def _recompile_submodules(self):
        """Recompiles the GraphModules inside. Returns their results."""
        return [m.recompile() for m in self.modules() if m is not self and isinstance(m, GraphModule)]

    # ---- submodules
    def add_submodule(self, target, m):
        """Adds a module under a dotted name. False if a part of the name is not a module."""
        *path, name = target.split(".")
        at = self
        for part in path:
            if not hasattr(at, part):
                at.add_module(part, Module())
            at = getattr(at, part)
            if not isinstance(at, Module):
                return False
        at.add_module(name, m)
        return True

    def delete_submodule(self, target):
        """Removes a module. False if there is no module with this name."""
        *path, name = target.split(".")
        try:
            at = self.get_submodule(".".join(path))
        except AttributeError:
            return False
        if not isinstance(getattr(at, name, None), Module):
            return False
        delattr(at, name)
        return True

    def delete_all_unused_submodules(self):
        """Removes the modules that the graph does not use."""
        used = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used.update(".".join(parts[:i]) for i in range(1, len(parts) + 1))
                if node.op == "call_module":
                    try:
                        used.update(f"{node.target}.{n}" for n, _ in self.get_submodule(node.target).named_modules() if n)
                    except AttributeError:
                        pass  # already deleted: it has no submodules
        for name in [n for n, _ in self.named_modules() if n and n not in used]:
            self.delete_submodule(name)

    # ---- copies
    def __reduce__(self):
        body = {k: v for k, v in self.__dict__.items() if k not in _NOT_PICKLED}
        body["_graphmodule_cls_name"] = type(self).__name__
        known = common_globals()
        names = {k: v for k, v in self._names.items() if known.get(k) is not v}
        return reduce_graph_module, (body, names)

    def __reduce_ex__(self, protocol):
        return self.__reduce__()

    def _deepcopy_init(self):
        return GraphModule.__init__

    def __deepcopy__(self, memo):
        new = GraphModule.__new__(type(self).__mro__[1])
        memo[id(self)] = new
        held = _CodeOnlyModule({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items() if k not in ("_graph", "_names", "meta") and "_hooks" not in k
                                or k in ("_forward_hooks", "_forward_pre_hooks")})
        self._deepcopy_init()(new, _with_module_state(held), copy.deepcopy(self._graph, memo), type(self).__name__)
        new.__dict__["meta"] = copy.deepcopy(self.meta, memo)
        for k, v in self.__dict__.items():
            if k not in new.__dict__:
                new.__dict__[k] = copy.deepcopy(v, memo)
        for hook in self._deepcopy_hooks:
            hook(new)
        return new

    def __copy__(self):
        return GraphModule(self, copy.deepcopy(self._graph), type(self).__name__)

    # ---- hooks
    def _register_deepcopy_hook(self, f):
        self._deepcopy_hooks.append(f)

    def _unregister_deepcopy_hook(self, f):
        self._deepcopy_hooks.remove(f)

    @contextlib.contextmanager
    def _set_replace_hook(self, f):
        """Context manager: calls f(old=, new=, user=) when a node is replaced."""
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    def _register_create_node_hook(self, f):
        self._create_node_hooks.append(f)

    def _unregister_create_node_hook(self, f):
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f):
        self._erase_node_hooks.append(f)

    def _unregister_erase_node_hook(self, f):
        self._erase_node_hooks.remove(f)

    def _register_replace_node_hook(self, f):
        self._replace_hooks.append(f)

    def _unregister_replace_node_hook(self, f):
        self._replace_hooks.remove(f)

    # ---- text
    def print_readable(self, print_output=True, include_stride=False, include_device=False, colored=False, **options):
        """Prints and returns the source as a class."""
        body = self._graph.python_code(root_module="self", verbose=True).src.strip("\n").rstrip()
        text = f"class {type(self).__name__}(torch.nn.Module):\n" + "\n".join("    " + line for line in body.split("\n")) + "\n"
        for name, m in self.named_children():
            if isinstance(m, GraphModule):
                text += "\n" + "\n".join("    " + line if line else "" for line in m.print_readable(print_output=False).replace(
                    f"class {type(m).__name__}(", f"class {name}(", 1).rstrip().split("\n")) + "\n"
        if print_output:
            print(text)
        return text

    def to_folder(self, folder, module_name="FxModule"):
        """Not supported: torch.save writes source and weights."""
        raise NotImplementedError(f"GraphModule.to_folder({os.fspath(folder)!r}) is not supported: use torch.save(module, file)")

    def __str__(self):
        return "\n".join([super().__repr__(), self._code, "# To see more debug info, please use `graph_module.print_readable()`"])


def _with_module_state(held):
    for k, v in Module().__dict__.items():
        held.__dict__.setdefault(k, v)
    return held
