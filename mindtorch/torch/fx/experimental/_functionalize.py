"""Removes in-place ops from a recorded graph: torch.func.functionalize under make_fx.

Tensors on the same memory share a `_Base`, and each is a `_Face` of it: the base itself, or a view
of another face. An in-place op on a face computes a new value, which is scattered back into the
base through the inverse of each view. Other faces are recomputed at their next use. Inputs that
were modified are updated by a copy at the end.
"""
import math
import operator

from mindtorch.core.autograd.grad_mode import no_grad
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch import _ops
from mindtorch.torch.fx.graph import Graph
from mindtorch.torch.fx.graph_module import GraphModule
from mindtorch.torch.fx.interpreter import Interpreter
from mindtorch.torch.fx.node import Node, map_arg

_OPERATORS = {getattr(operator, f"i{n}"): t for n, t in (("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"))}


def _aten(name, overload="default"):
    packet = _ops.find_packet("aten", name)
    if packet is None:
        raise NotImplementedError(f"torch.func.functionalize: torch.ops.aten.{name} is not supported")
    return getattr(packet, overload)


class _Base:
    """A memory: the node of its current value, and the number of in-place changes."""

    def __init__(self, node, source=None):
        self.node, self.source, self.version = node, source, 0


class _Face:
    """A tensor's view of its base: a view (name, overload, arguments; index among several results)
    of `parent`, or the full base."""

    def __init__(self, base, shape, parent=None, view=None, place=None):
        self.base, self.shape, self.parent, self.view, self.place = base, tuple(shape), parent, view, place
        self.node, self.version = None, base.version


class _Shapes(Interpreter):
    """Interpreter that records the shapes of all tensors."""

    def __init__(self, gm):
        super().__init__(gm, garbage_collect_values=False)
        self.found = {}

    def run_node(self, n):
        r = super().run_node(n)
        if is_tensor(r):
            self.found[n] = tuple(r.shape), r.dtype, r.device
        elif isinstance(r, (tuple, list)):
            self.found[n] = [(tuple(x.shape), x.dtype) if is_tensor(x) else None for x in r]
        return r


_MADE = frozenset("zeros ones empty".split())  # PyTorch's graphs always pass the device to these
_KEPT = frozenset("view reshape unsqueeze squeeze flatten unflatten detach alias view_as numpy_T".split())
_SAME_AGAIN = frozenset("t transpose swapaxes swapdims adjoint".split())
_SCATTERED = {"select": ("select_scatter", (0, 0)), "slice": ("slice_scatter", (0, None, None, 1)), "diagonal": ("diagonal_scatter", (0, 0, 1))}
_SEVERAL = frozenset("split chunk unbind split_with_sizes tensor_split".split())
_VIEWS = _KEPT | _SAME_AGAIN | frozenset(_SCATTERED) | {"permute", "narrow", "expand", "expand_as", "view_as_real", "real", "imag", "movedim"}


class _Functional:
    def __init__(self, gm, args, copies):
        self.gm, self.copies, self.graph, self.faces = gm, copies, Graph(), {}
        run = _Shapes(gm)
        with no_grad():
            run.run(*[x.detach().clone() if is_tensor(x) else x for x in args])
        self.shapes = run.found

    # ---- values
    def emit(self, name, overload, args, kwargs=None):
        return self.graph.create_node("call_function", _aten(name, overload), tuple(args), kwargs or {}, name=name)

    def value(self, face):
        """Returns the node of a face's current value."""
        if face.parent is None:
            return face.base.node
        if face.version != face.base.version or face.node is None:
            name, overload, args = face.view
            made = self.emit(name + "_copy" if self.copies and name != "detach" else name, overload, (self.value(face.parent), *args))
            if face.place is not None:
                made = self.graph.call_function(operator.getitem, (made, face.place))
            face.node, face.version = made, face.base.version
        return face.node

    def put(self, face, node):
        """Assigns a node to a face as its new value, and updates the base."""
        if face.parent is None:
            face.base.node = node
            face.base.version += 1
            return
        self.put(face.parent, self.undone(face, node))
        self.value(face)

    def undone(self, face, node):
        """Returns the parent's value with the face's new value inserted."""
        name, overload, args = face.view
        p = face.parent
        renamed = (lambda n: n + "_copy") if self.copies else (lambda n: n)
        if name == "detach":
            return node
        if name in _KEPT:
            return self.emit(renamed("view"), "default", (node, list(p.shape)))
        if name in _SAME_AGAIN:
            return self.emit(renamed(name), overload, (node, *args))
        if name == "permute":
            dims = [d % len(p.shape) for d in args[0]]
            return self.emit(renamed("permute"), "default", (node, [dims.index(i) for i in range(len(dims))]))
        if name in _SCATTERED:
            op, _ = _SCATTERED[name]
            return self.emit(op, "default", (self.value(p), node, *args))
        if name in ("split", "chunk", "split_with_sizes", "tensor_split"):
            dim = args[1] if len(args) > 1 else 0
            before = sum([s[0][dim] for s in face.sizes[:face.place]])
            return self.emit("slice_scatter", "default", (self.value(p), node, dim, before, before + face.shape[dim]))
        if name == "unbind":
            return self.emit("select_scatter", "default", (self.value(p), node, args[0] if args else 0, face.place))
        raise NotImplementedError(f"torch.func.functionalize: an in-place op on a view created by {name} is not supported")

    def fresh(self, n, node, source=None):
        self.faces[n] = _Face(_Base(node, source), self.shapes[n][0] if n in self.shapes else ())
        return self.faces[n]

    def now(self, x):
        """Converts an argument of the recorded graph to the new graph."""
        return map_arg(x, lambda m: self.value(self.faces[m]) if m.__class__ is Node and m in self.faces else self.plain[m])

    # ---- nodes
    def build(self):
        self.plain, inputs = {}, []
        for n in self.gm.graph.nodes:
            if n.op in ("placeholder", "get_attr"):
                node = self.graph.node_copy(n, lambda m: m)
                self.plain[n] = node
                if n in self.shapes:
                    face = self.fresh(n, node, node)
                    inputs += [face] if n.op == "placeholder" else []
            elif n.op == "output":
                result = map_arg(n.args[0], lambda m: self.value(self.faces[m]) if m in self.faces else self.plain[m])
                for face in inputs:
                    if face.base.version:
                        at = face.base.source
                        if self.shapes_of(at) != face.shape:
                            raise NotImplementedError("torch.func.functionalize: an input whose size is changed in place is not supported")
                        self.emit("copy_", "default", (at, face.base.node))
                out = self.graph.output(result)
                out.type = n.type
            else:
                self.node(n)
        for node in list(self.graph.nodes):
            node.meta = {}
        self.graph._codegen = self.gm.graph._codegen
        return GraphModule(self.gm, self.graph, self.gm.__class__.__name__)

    def shapes_of(self, placeholder):
        for n, made in self.plain.items():
            if made is placeholder:
                return self.shapes[n][0]
        return None

    def node(self, n):
        t, args, kwargs = n.target, n.args, dict(n.kwargs)
        if t is operator.getitem and args[0] in self.faces:
            return self.item(n, args[0], args[1])
        if t is operator.getitem and args[0] in self.several:
            return self.part(n, *args)
        if t is operator.setitem:
            return self.set_item(n, *args)
        name, overload = (t._opname, t._overloadname) if isinstance(t, _ops.OpOverload) and t.namespace == "aten" else (None, None)
        if t in _OPERATORS:
            name, overload = _OPERATORS[t] + "_", "Tensor"
        out = kwargs.pop("out", None)
        if out is not None:
            return self.into(n, t, args, kwargs, out)
        if name is None:
            if n.op == "call_method" and str(t).endswith("_") or kwargs.get("inplace") or n.op == "call_method" and args and args[0] in self.faces:
                raise NotImplementedError(f"torch.func.functionalize: {t} is not supported in a graph: it has no torch.ops.aten operator")
            self.other(n, self.graph.node_copy(n, lambda m: self.now(m)))
        elif name.endswith("_") and name[-2:] != "__" and args and args[0] in self.faces:
            self.write(n, name[:-1], overload, args, kwargs)
        elif name in _VIEWS and args and args[0] in self.faces and not kwargs and self.shapes[n][1] == self.shapes[args[0]][1]:
            parent = self.faces[args[0]]
            if name == "narrow":
                dim, start, length = args[1:]
                view = "slice", "Tensor", (dim, start, start + length)
            else:
                view = name, overload, tuple(self.now(args[1:]))
            if view[0] == "reshape" and math.prod(parent.shape) == math.prod(self.shapes[n][0]):
                view = "view", "default", view[2]
            self.faces[n] = face = _Face(parent.base, self.shapes[n][0], parent, view)
            self.value(face)
        elif name in _SEVERAL and args and args[0] in self.faces:
            view = name, overload, tuple(self.now(args[1:]))
            self.several[n] = self.faces[args[0]], view
            made = self.emit(name + "_copy" if self.copies else name, overload, (self.value(self.faces[args[0]]), *view[2]))
            self.plain[n] = made
        else:
            if name in _MADE and not [a for a in args if isinstance(a, Node)]:
                kwargs = {**{k: v for k, v in kwargs.items() if k == "dtype"}, "device": kwargs.get("device", self.shapes[n][2]), "pin_memory": False}
                t = _aten("empty", "memory_format") if name == "empty" else t
            self.other(n, self.graph.create_node(n.op, t, self.now(args), self.now(kwargs), name=name))

    several = None

    def other(self, n, made):
        """Adds a node that neither modifies its arguments nor is a view."""
        self.plain[n] = made
        if n in self.shapes and isinstance(self.shapes[n], tuple):
            self.fresh(n, made)

    def part(self, n, of, i):
        parent, view = self.several[of]
        sizes = self.shapes[of]
        self.faces[n] = face = _Face(parent.base, sizes[i][0], parent, view, i)
        face.sizes = sizes
        if face.version == parent.base.version:
            face.node = self.graph.call_function(operator.getitem, (self.plain[of], i))

    def write(self, n, name, overload, args, kwargs):
        face = self.faces[args[0]]
        if name in ("t", "transpose", "squeeze", "unsqueeze", "swapaxes", "swapdims"):
            before = _Face(face.base, face.shape, face.parent, face.view, face.place)
            before.node = face.node
            face.parent, face.view, face.place, face.node = before, (name, overload, tuple(self.now(args[1:]))), None, None
            face.shape = self.shapes[n][0]
            self.value(face)
        elif name in ("detach", "requires_grad", "resize", "set", "as_strided", "share_memory", "rename"):
            raise NotImplementedError(f"torch.func.functionalize: {name}_ is not supported in a graph")
        else:
            if name == "copy":
                new = self.emit("copy", "default", self.now(args), self.now(kwargs))
            else:
                if name == "fill":
                    overload = "Tensor" if isinstance(args[1], Node) else "Scalar"
                new = self.emit(name, overload, self.now(args), self.now(kwargs))
            self.put(face, new)
        self.faces[n] = face

    def into(self, n, t, args, kwargs, out):
        """Converts a call with out=: its result replaces the value of `out`."""
        if isinstance(out, (tuple, list)) or out not in self.faces or not isinstance(self.shapes[n], tuple):
            raise NotImplementedError(f"torch.func.functionalize: {t} with several out= is not supported in a graph")
        name = getattr(t, "_opname", None) or getattr(t, "__name__", "")
        overload = getattr(t, "_overloadname", None) or ("Tensor" if name in ("add", "sub", "mul", "div") else "default")
        face = self.faces[out]
        if self.shapes[n][1] != self.shapes[out][1] or face.parent is not None and self.shapes[n][0] != face.shape:
            raise NotImplementedError(f"torch.func.functionalize: out= of another size or dtype of {name} is not supported in a graph")
        face.shape = self.shapes[n][0]
        self.put(face, self.emit(name, overload, self.now(args), self.now(kwargs)))
        self.faces[n] = face

    # ---- indexing
    def steps(self, shape, key):
        """Returns [(view, shape)] of a basic index, or None for another index."""
        key = key if isinstance(key, tuple) else (key,)
        if any([not (k is None or k is Ellipsis or k.__class__ in (int, slice)) for k in key]):
            return None
        taking = len([k for k in key if k is not None and k is not Ellipsis])
        if Ellipsis in key:
            at = key.index(Ellipsis)
            key = (*key[:at], *[slice(None)] * (len(shape) - taking), *key[at + 1:])
        found, dim, shape = [], 0, list(shape)
        for k in key:
            if k is None:
                shape.insert(dim, 1)
                found.append((("unsqueeze", "default", (dim,)), tuple(shape)))
                dim += 1
            elif k.__class__ is int:
                del shape[dim]
                found.append((("select", "int", (dim, k)), tuple(shape)))
            else:
                start, stop, step = k.indices(shape[dim])
                if (start, stop, step) != (0, shape[dim], 1):
                    shape[dim] = len(range(start, stop, step))
                    end = k.stop if k.stop is not None else 9223372036854775807
                    more = (step,) if step != 1 else ()
                    found.append((("slice", "Tensor", (dim, k.start or 0, end, *more)), tuple(shape)))
                dim += 1
        return found or [(("detach", "default", ()), tuple(shape))]

    def through(self, face, steps):
        for view, shape in steps:
            face = _Face(face.base, shape, face, view)
            self.value(face)
        return face

    def item(self, n, of, key):
        face = self.faces[of]
        steps = self.steps(face.shape, key)
        if steps is not None:
            self.faces[n] = self.through(face, steps)
            return
        self.other(n, self.emit("index", "Tensor", (self.value(face), self.indices(key))))

    def indices(self, key):
        key = list(key) if isinstance(key, tuple) else [key]
        while key and key[-1].__class__ is slice and key[-1] == slice(None):
            key.pop()
        found = [None if k.__class__ is slice and k == slice(None) else self.now(k) if isinstance(k, Node) else k for k in key]
        if any([not (k is None or isinstance(k, Node)) for k in found]):
            raise NotImplementedError(f"torch.func.functionalize: an index that mixes tensors with other types, {key}, is not supported in a graph")
        return found

    def set_item(self, n, of, key, value):
        face = self.faces[of]
        steps = self.steps(face.shape, key)
        if steps is None:
            if not isinstance(value, Node):
                raise NotImplementedError("torch.func.functionalize: assigning a Python scalar to tensor indices is not supported in a graph")
            self.put(face, self.emit("index_put", "default", (self.value(face), self.indices(key), self.now(value))))
        else:
            part = self.through(face, steps)
            old = self.value(part)
            self.put(part, self.emit("copy", "default", (old, self.now(value))) if isinstance(value, Node) else self.emit("fill", "Scalar", (old, value)))
        self.faces[n] = face


def functional(gm, args, copies):
    """Returns the GraphModule without in-place ops. With `copies`, views also become copies.
    NotImplementedError if an in-place op cannot be converted."""
    f = _Functional(gm, args, copies)
    f.several = {}
    return f.build()
