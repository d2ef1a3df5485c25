"""torch.fx.graph: a program as a list of nodes
(https://pytorch.org/docs/stable/fx.html#torch.fx.Graph)."""
import contextlib
import copy
import inspect
import re

from mindtorch.torch.fx._codegen import CodeGen, PythonCode, _Namespace, _PyTreeCodeGen, _PyTreeInfo  # noqa: F401
from mindtorch.torch.fx.node import Node, map_arg

__all__ = ["Graph", "CodeGen", "PythonCode"]


def _snake(text):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower() if not text.islower() else text


class _Nodes:
    """The nodes of a graph in order. The graph may change during iteration."""

    def __init__(self, graph, direction="_next"):
        self.graph, self.direction = graph, direction

    def __len__(self):
        return self.graph._len

    def __iter__(self):
        root = self.graph._root
        n = getattr(root, self.direction)
        while n is not root:
            following = getattr(n, self.direction)
            if not n._erased:
                yield n
            # Nodes inserted after the current one are also visited. If the current node was erased,
            # iteration continues with its former successor.
            n = following if n._erased else getattr(n, self.direction)

    def __reversed__(self):
        return iter(_Nodes(self.graph, "_prev" if self.direction == "_next" else "_next"))


class _Point:
    def __init__(self, graph, insert):
        self.graph, self.before, graph._insert = graph, graph._insert, insert

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.graph._insert = self.before


class Graph:
    """A program: placeholders, calls, get_attr nodes, and one output."""

    def __init__(self, owning_module=None, tracer_cls=None, tracer_extras=None):
        self._root = Node(self, "", "root", "", (), {})
        self._insert = self._root.prepend
        self._len, self._namespace, self._codegen = 0, _Namespace(), CodeGen()
        self._owning_module, self._tracer_cls, self._tracer_extras = owning_module, tracer_cls, tracer_extras

    @property
    def owning_module(self):
        """The GraphModule that owns this graph."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, module):
        self._owning_module = module

    @property
    def nodes(self):
        """The nodes, in order."""
        return _Nodes(self)

    def find_nodes(self, *, op, target=None, sort=True):
        """Returns the nodes with this op (and this target, if given)."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self):
        """Returns the output node."""
        return self.find_nodes(op="output")[0]

    # ---- creating nodes
    def _target_to_str(self, target):
        name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
        if name.startswith("__") and name.endswith("__"):
            name = name[2:-2]
        return _snake(name)

    def create_node(self, op, target, args=None, kwargs=None, name=None, type_expr=None):
        """Creates a node at the insertion point (by default the end)."""
        if args is None:
            args = ()
        if kwargs is None:
            kwargs = {}
        if not isinstance(args, (tuple, list)):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        if not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        node = Node(self, "", op, target, args, kwargs, type_expr)
        node.name = self._namespace.create_name(name if name is not None else self._target_to_str(target), node)
        for hook in getattr(self._owning_module, "_create_node_hooks", ()):
            hook(node)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(self, name, type_expr=None, default_value=inspect.Signature.empty):
        """Adds a placeholder: an input of the program."""
        return self.create_node("placeholder", name, () if default_value is inspect.Signature.empty else (default_value,), type_expr=type_expr)

    def get_attr(self, qualified_name, type_expr=None):
        """Adds a get_attr node: a parameter, buffer or other attribute of the module."""
        if self._owning_module is not None and not _reachable(self._owning_module, qualified_name):
            import warnings
            warnings.warn(f"Attempted to insert a get_attr Node with no underlying reference in the owning GraphModule! ({qualified_name})", stacklevel=2)
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name, args=None, kwargs=None, type_expr=None):
        """Adds a call of a submodule."""
        if self._owning_module is not None and not _reachable(self._owning_module, module_name):
            import warnings
            warnings.warn(f"Attempted to insert a call_module Node with no underlying reference in the owning GraphModule! ({module_name})", stacklevel=2)
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name, args=None, kwargs=None, type_expr=None):
        """Adds a call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(self, the_function, args=None, kwargs=None, type_expr=None, name=None):
        """Adds a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result, type_expr=None):
        """Adds the output node with this result."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node, arg_transform=lambda x: x):
        """Copies a node of another graph into this one. `arg_transform` maps nodes of that graph to
        nodes of this one."""
        new = self.create_node(node.op, node.target, map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform),
                               node.name, node.type)
        new.meta = copy.copy(node.meta)
        return new

    def graph_copy(self, g, val_map, return_output_node=False):
        """Appends copies of all nodes of g. Returns the output of g, in nodes of this graph."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                r = map_arg(node.args[0], lambda n: val_map[n])
                return (r, node) if return_output_node else r
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo=None):
        g = Graph(tracer_cls=self._tracer_cls)
        memo = {} if memo is None else memo
        memo[id(self)] = g
        where = {}
        out = g.graph_copy(self, where, True)
        if out is not None:
            result, old = out
            new = g.output(result, old.type)
            new.meta = copy.copy(old.meta)
        g._codegen = copy.deepcopy(self._codegen) if type(self._codegen) is not CodeGen else CodeGen()
        return g

    # ---- modification
    def erase_node(self, to_erase):
        """Removes a node. RuntimeError if it has users."""
        if to_erase.users:
            raise RuntimeError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {to_erase.users}!")
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            import warnings
            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self._owning_module, "_erase_node_hooks", ()):
            hook(to_erase)
        p, n = to_erase._prev, to_erase._next
        p._next, n._prev = n, p
        to_erase._erased = True
        self._len -= 1
        to_erase._set((), {})

    def inserting_before(self, n=None):
        """Context manager: new nodes are inserted before n (before all others, if None)."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _Point(self, n.prepend)

    def inserting_after(self, n=None):
        """Context manager: new nodes are inserted after n, in the order of creation (at the end, if
        None)."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        at = [n]

        def insert(new):
            at[0].append(new)
            at[0] = new
        return _Point(self, insert)

    def eliminate_dead_code(self, is_impure_node=None):
        """Removes nodes without users and side effects. Returns whether any node was removed."""
        self.lint()
        changed = False
        for node in reversed(self.nodes):
            impure = is_impure_node(node) if is_impure_node is not None else node.is_impure()
            if not node.users and not impure:
                self.erase_node(node)
                changed = True
        return changed

    def lint(self):
        """Raises RuntimeError if the graph is invalid: uses before definition, duplicate names,
        missing targets."""
        names, seen = set(), set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            if node in seen:
                raise RuntimeError(f"Node redefined name {node.name}!")
            for arg in node._input_nodes:
                if arg.graph is not self:
                    raise RuntimeError(f"Argument '{arg}' of Node '{node}' does not belong to this Graph, but was used as an argument!")
                if arg not in seen:
                    raise RuntimeError(f"Argument '{arg}' of Node '{node}' was used before it has been defined! Please check that Nodes in "
                                       f"the graph are topologically ordered\n{self}")
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen.add(node)
            names.add(node.name)
            if node.op in ("get_attr", "call_module") and self._owning_module is not None:
                if not _reachable(self._owning_module, node.target):
                    raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute of the owning module")

    # ---- output
    def python_code(self, root_module, *, verbose=False, include_stride=False, include_device=False, colored=False, expanded_def=False,
                    record_func=False, additional_meta=None):
        """Returns the program as Python source, with the global names that it needs."""
        return self._codegen._gen_python_code(self.nodes, root_module, None, verbose=verbose)

    def set_codegen(self, codegen):
        self._codegen = codegen

    @contextlib.contextmanager
    def _codegen_changed(self, before):
        try:
            yield
        finally:
            self._codegen._body_transformer = before

    def on_generate_code(self, make_transformer):
        """Sets a transformer of the generated source: `make_transformer(current transformer)`
        returns a function from lines to lines. Used as a context manager, the previous transformer
        is restored at the end."""
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)
        return self._codegen_changed(before)

    def process_inputs(self, *args):
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out):
        return self._codegen.process_outputs(out)

    def __str__(self):
        names, returns = [], [""]
        lines = [n.format_node(names, returns) for n in self.nodes]
        return "graph():\n    " + "\n    ".join(lines) if lines else "graph():"

    def print_tabular(self):
        """Prints the nodes as a table."""
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        headers = ["opcode", "name", "target", "args", "kwargs"]
        try:
            from tabulate import tabulate
        except ImportError:
            print(_table(headers, rows))
        else:
            print(tabulate(rows, headers=headers))


def _table(headers, rows):
    rows = [list(map(str, r)) for r in rows]
    width = [max(len(r[i]) for r in [headers, *rows]) for i in range(len(headers))]
    lines = ["  ".join(t.ljust(w) for t, w in zip(r, width)).rstrip() for r in [headers, *rows]]
    lines.insert(1, "  ".join("-" * w for w in width))
    return "\n".join(lines)


def _reachable(module, target):
    for part in target.split("."):
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return True
