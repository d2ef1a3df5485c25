"""Generates Python source from a graph, for `Graph.python_code`."""
import builtins
import enum
import keyword
import math
import re
import types
import typing
from typing import NamedTuple

from mindtorch.core.device import device as _device
from mindtorch.core.tensor import dtypes
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._ops import OpOverload
from mindtorch.torch.fx import _pytree as fx_pytree
from mindtorch.torch.fx._wrapped import wrapped_objects
from mindtorch.torch.fx.node import Node, qualified_name, type_text
from mindtorch.torch.fx.proxy import inplace_methods, magic_methods
from mindtorch.torch.utils import _pytree as pytree

_RESERVED = frozenset(dir(builtins)) | frozenset(keyword.kwlist) | frozenset(["inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree"])
_INPLACE = {getattr(__import__("operator"), n): text for n, text in inplace_methods.items()}
_MAGIC = {getattr(__import__("operator"), n): text for n, text in magic_methods.items()}
#: builtin generic classes mapped to their older typing names
_TYPING = {c: getattr(typing, n) for c, n in ((list, "List"), (dict, "Dict"), (set, "Set"), (frozenset, "FrozenSet"), (tuple, "Tuple"))}


def common_globals():
    """Returns the names that all generated code may use."""
    from mindtorch import torch
    return {"inf": math.inf, "nan": math.nan, "NoneType": type(None), "torch": torch, "device": _device.device, "fx_pytree": fx_pytree,
            "pytree": pytree}


class _Namespace:
    """Names in use in the generated code."""

    def __init__(self):
        self._used, self._names, self._count = set(), {}, {}

    def create_name(self, candidate, obj):
        """Returns an unused Python name similar to `candidate` and associates it with obj."""
        if obj is not None and obj in self._names:
            return self._names[obj]
        candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = "_" + candidate
        base, number = candidate, None
        m = re.fullmatch(r"(.*)_(\d+)", candidate)
        if m and m.group(1):
            base, number = m.group(1), int(m.group(2))
        name = candidate
        number = self._count.get(base, 0) if number is None or name in self._used else number
        while name in self._used or name in _RESERVED:
            number += 1
            name = f"{base}_{number}"
        self._used.add(name)
        self._count[base] = number or 0
        if obj is not None:
            self._names[obj] = name
        return name

    def associate_name_with_obj(self, name, obj):
        self._names[obj] = name


def dotted(root, target):
    """Returns `root.a.b` as an expression, with getattr() for parts that are not identifiers."""
    text = root
    for part in target.split("."):
        text = f"{text}.{part}" if part.isidentifier() and not keyword.iskeyword(part) else f'getattr({text}, "{part}")'
    return text


class PythonCode:
    """Source of a forward function, and the global names that it needs.

    `_lineno_map` maps a line, counted from the one after the function's head (line
    `_prologue_start`), to the index of its node.
    """

    def __init__(self, src, globals, _lineno_map=None, _prologue_start=0):
        self.src, self.globals, self._lineno_map, self._prologue_start = src, globals, _lineno_map, _prologue_start


class _Line(str):
    """A line of the body with the index of its node, which is preserved through the user's code
    transformer."""

    number = None


def _of(text, number):
    line = _Line(text)
    line.number = number
    return line


class CodeGen:
    """Generates Python code from a graph."""

    def __init__(self):
        self._body_transformer, self._func_name = None, "forward"

    def gen_fn_def(self, free_vars, maybe_return_annotation, *, expanded_def=False):
        """Returns the def line of the function."""
        if not free_vars or free_vars[0] != "self":
            free_vars = ["self", *free_vars]
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args, *, descs=None):
        """Returns the return line of the function."""
        return f"return {self._text(output_args)}"

    def process_inputs(self, *args):
        return args

    def process_outputs(self, outputs):
        return outputs

    def additional_globals(self):
        """Returns additional (name, object) pairs that the code needs."""
        return []

    def _global(self, hint, obj):
        if isinstance(obj, type) and obj.__module__ == "builtins" or getattr(builtins, hint, None) is obj:
            return hint
        if hint.startswith("torch."):
            torch = self._globals["torch"]
            found = _found(torch, hint[6:])
            if found is None or found is obj:
                return hint
        for known, value in self._globals.items():
            if value is obj:
                return known
        name = self._namespace.create_name(hint, None)
        self._globals[name] = obj
        return name

    def _text(self, a):
        """Returns the expression for an argument."""
        if isinstance(a, Node):
            return a.name
        if isinstance(a, tuple):
            inner = ", ".join(map(self._text, a))
            if hasattr(a, "_fields"):
                return f"{self._global(qualified_name(type(a)), type(a))}({inner})"
            return f"({inner},)" if len(a) == 1 else f"({inner})"
        if isinstance(a, list):
            return f"[{', '.join(map(self._text, a))}]"
        if isinstance(a, dict):
            return f"{{{', '.join(f'{self._text(k)}: {self._text(v)}' for k, v in a.items())}}}"
        if isinstance(a, slice):
            return f"slice({self._text(a.start)}, {self._text(a.stop)}, {self._text(a.step)})"
        if isinstance(a, float) and not math.isfinite(a):
            name = "nan" if a != a else "inf"
            return "-inf" if a == -math.inf else name
        if isinstance(a, enum.Enum):
            return f"{self._global(qualified_name(type(a)), type(a))}.{a.name}"
        if isinstance(a, _device.device):
            return repr(a)
        if isinstance(a, dtypes.dtype) or type(a).__module__.endswith("torch._types"):
            return self._global(repr(a), a)
        if isinstance(a, OpOverload):
            return self._global(f"torch.ops.{a}", a)
        if is_tensor(a):
            raise NotImplementedError("a Tensor as a node argument is not supported: register it as a buffer of the module and use get_attr")
        if isinstance(a, type) or callable(a) and hasattr(a, "__name__"):
            return self._global(qualified_name(a), a)
        if type(a).__module__ != "builtins":
            # for example a generator, whose repr is not valid source
            return self._global(f"_{type(a).__name__.lower()}", a)
        return repr(a)

    def _arguments(self, args, kwargs):
        return ", ".join([self._text(a) for a in args] + [f"{k} = {self._text(v)}" for k, v in kwargs.items()])

    def _statement(self, node, root_module):
        kind, args, kwargs = node.op, node.args, node.kwargs
        if kind == "placeholder":
            default = f" = {self._text(args[0])}" if args else ""
            note = f" : {t}" if (t := self._annotation(node.type)) else ""
            self._free.append(f"{node.target}{note}{default}")
            raw = node.target.replace("*", "")
            return f"{node.name} = {raw}" if raw != node.name else ""
        note = f" : {t}" if (t := self._annotation(node.type)) and kind != "output" else ""
        if kind == "call_method":
            return f"{node.name}{note} = {self._attribute_of(args[0])}.{node.target}({self._arguments(args[1:], kwargs)})"
        if kind == "call_function":
            if node.target in _MAGIC and not kwargs:
                return f"{node.name}{note} = {_MAGIC[node.target].format(*map(self._text, args))}"
            if node.target in _INPLACE and not kwargs:
                line = _INPLACE[node.target].format(*map(self._text, args))
                return f"{line};  {node.name}{note} = {self._text(args[0])}"
            if node.target is getattr and len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier() and not kwargs:
                return f"{node.name}{note} = {dotted(self._attribute_of(args[0]), args[1])}"
            name = self._global(qualified_name(node.target), node.target)
            if node.target in wrapped_objects:
                self._wrapped.setdefault(name)
            return f"{node.name}{note} = {name}({self._arguments(args, kwargs)})"
        if kind == "call_module":
            return f"{node.name}{note} = {dotted(root_module, node.target)}({self._arguments(args, kwargs)})"
        if kind == "get_attr":
            return f"{node.name}{note} = {dotted(root_module, node.target)}"
        if kind == "output":
            if t := self._annotation(node.type):
                self._returns[0] = f" -> {t}"
            return self.generate_output(args[0])
        raise NotImplementedError(f"cannot generate code for a node of kind {kind!r} with target {node.target}")

    def _attribute_of(self, a):
        text = self._text(a)
        return text if isinstance(a, Node) else f"({text})"

    def _annotation(self, t):
        """Returns a type annotation as source, "" for None."""
        if t is None:
            return ""
        origin = typing.get_origin(t)
        if origin is None:
            if isinstance(t, type):
                return t.__name__ if t.__module__ == "builtins" else self._global(qualified_name(t), t)
            return self._global(type_text(t), t)
        inner = [self._annotation(type(None) if a is None else a) for a in typing.get_args(t) if a != ()]
        if origin is types.UnionType:
            return "|".join(inner)
        if isinstance(t, types.GenericAlias):
            name = self._global(qualified_name(origin), origin)
        else:
            origin = _TYPING.get(origin, origin)
            name = self._global(f"typing.{origin._name}" if getattr(origin, "__module__", "") == "typing" else qualified_name(origin), origin)
        return f"{name}[{','.join(inner)}]" if inner else name

    def _gen_python_code(self, nodes, root_module, namespace=None, verbose=False, **options):
        self._globals, self._free, self._wrapped, self._returns = common_globals(), [], {}, [""]
        self._namespace = _Namespace()
        self._namespace._used.update(n.name for n in nodes)
        for name, value in self.additional_globals():
            self._globals[name] = value
        last = {}
        seen = set()
        for node in reversed(list(nodes)):
            for n in node._input_nodes:
                if n not in seen:
                    seen.add(n)
                    last.setdefault(node, []).append(n)
        body, last_location = [], None
        for i, node in enumerate(nodes):
            line = self._statement(node, root_module)
            if verbose and node.op not in ("placeholder", "output") and (where := _where(node)) != last_location:
                last_location = where
                body.append(_of(f"# {where}\n", i))
            if node.op == "placeholder":
                if line:
                    body.append(_of(line + "\n", i))
                continue
            if node.op == "output":
                body.append(_of(line, i))
                continue
            dead = list(last.get(node, ()))
            if not node.users:
                dead.append(node)
            body.append(_of(f"{line};  {' = '.join(n.name for n in dead)} = None\n" if dead else line + "\n", i))
        if not body or nodes and not any(n.op == "output" for n in nodes):
            body.append("pass\n")
        if self._body_transformer is not None:
            body = self._body_transformer(body)
        wrapped = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in self._wrapped)
        head = f"\n{wrapped}\n\n{self.gen_fn_def(self._free, self._returns[0])}"
        code = "\n".join("    " + line for line in "".join(body).lstrip("\n").split("\n"))
        python = PythonCode(f"{head}\n{code}\n    ", self._globals, _line_numbers(body), head.count("\n") + 1)
        del self._globals, self._free, self._wrapped, self._returns, self._namespace
        return python


def _line_numbers(body):
    """Returns {line of the body, from 1: index of its node}."""
    found, at, number = {}, 1, None
    for text in body:
        number = getattr(text, "number", number)
        for _ in range(max(text.count("\n"), 1)):
            found[at] = number
            at += 1
    found[at] = number
    return found


def _where(node):
    """Returns a description of the user's source line that created a node."""
    frames = re.findall(r'File "([^"]*)", line (\d+), in (.*)\n\s*(.*)', node.stack_trace or "")
    if not frames:
        return "No stacktrace found for following nodes"
    file, line, name, code = frames[-1]
    return f"File: {file}:{line} in {name}, code: {code}"


class _PyTreeInfo(NamedTuple):
    """The nested arguments of a function, their structure, and the structure of its result."""

    orig_args: list
    in_spec: object
    out_spec: object


def _with_keywords(spec):
    """True if a spec has the form (args, kwargs)."""
    children = spec.children_specs if spec.type is tuple else ()
    return len(children) == 2 and children[0].type is tuple and children[1].type is dict


class _PyTreeCodeGen(CodeGen):
    """Generates a function with nested arguments and results from a graph with flat ones."""

    def __init__(self, pytree_info):
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *args):
        return pytree.tree_leaves(list(args))

    def process_outputs(self, outputs):
        if self.pytree_info.out_spec is None:
            return outputs
        if not isinstance(outputs, (list, tuple)):
            outputs = (outputs,)
        return pytree.tree_unflatten(list(outputs), self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars, maybe_return_annotation, *, expanded_def=False):
        if self.pytree_info is None:
            return super().gen_fn_def(free_vars, maybe_return_annotation)
        given, spec = list(self.pytree_info.orig_args), self.pytree_info.in_spec
        names = [v.split(":")[0].split("=")[0].strip() for v in free_vars if v != "self"]
        if given[:1] == ["self"]:
            names.insert(0, "self")  # for a module's forward, the module is one of the arguments
        head = f"def {self._func_name}({', '.join(given if given[:1] == ['self'] else ['self', *given])}){maybe_return_annotation}:"
        if not names:
            return head
        if _with_keywords(spec):
            count = len(spec.children_specs[0].children_specs)
            keys = spec.children_specs[1].context
            text = f"([{', '.join(given[:count])}], {{{', '.join(f'{k!r}:{k}' for k in keys)}}})"
        else:
            text = f"[{', '.join(given)}]"
        lines = [f"    {', '.join(names)}, = fx_pytree.tree_flatten_spec({text}, self._in_spec)"]
        return "\n".join([head, *lines])

    def generate_output(self, output_args, *, descs=None):
        if self.pytree_info is not None and self.pytree_info.out_spec is not None:
            return f"return pytree.tree_unflatten({self._text(output_args)}, self._out_spec)"
        return super().generate_output(output_args)


def _found(root, path):
    for part in path.split("."):
        root = getattr(root, part, None)
    return root


