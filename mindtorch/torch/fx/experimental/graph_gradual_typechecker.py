"""torch.fx.experimental.graph_gradual_typechecker: checks and infers the sizes of a program's
values, some of which may be unknown.

A type is a TensorType, Dyn if nothing is known, or a Python class. Rules for functions and modules
are registered by target: `register_inference_rule` (the type of a node), `register_refinement_rule`
(sizes that must be equal) and `register_algebraic_expressions_inference_rule` (sizes as expressions
of others).
"""
import itertools
import math
import operator
import sys

from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.fx.experimental.refinement_types import Equality
from mindtorch.torch.fx.experimental.unification import Var
from mindtorch.torch.fx.node import Node, map_arg
from mindtorch.torch.fx.tensor_type import Dyn, TensorType, is_consistent, is_more_precise
from mindtorch.torch.nn.modules.activation import ReLU
from mindtorch.torch.nn.modules.batchnorm import BatchNorm2d
from mindtorch.torch.nn.modules.conv import Conv2d
from mindtorch.torch.nn.modules.linear import Linear
from mindtorch.torch.nn.modules.pooling import AdaptiveAvgPool2d, MaxPool2d

_torch = sys.modules["mindtorch.torch"]
_INFERENCE_RULES: dict = {}
_REFINEMENT_RULES: dict = {}
_RULES: dict = {}


def _registering(rules):
    def register(call_target):
        def deco(fn):
            if call_target in rules:
                raise RuntimeError(f"Rule already registered for {call_target}!")
            rules[call_target] = fn
            return fn
        return deco
    return register


register_inference_rule = _registering(_INFERENCE_RULES)
register_refinement_rule = _registering(_REFINEMENT_RULES)
register_algebraic_expressions_inference_rule = _registering(_RULES)


# ------------------------------------------------------------------ types
def expand_to_tensor_dim(t, n):
    """Converts a type to one with n sizes. TypeError if it has a different number of sizes."""
    if t == Dyn:
        return TensorType((Dyn,) * n)
    if not isinstance(t, TensorType):
        raise TypeError(f"Cannot extend the type {t}")
    if len(t.__args__) != n:
        raise TypeError(f"Cannot extend tensor. Tensor {t} has rank {len(t.__args__)}. It should have rank {n}")
    return t


def broadcast_types(t1, t2):
    """Broadcasts two types: pads the shorter with ones, and replaces each 1 by the other type's
    size."""
    if t1 == Dyn or t2 == Dyn or isinstance(t1, Var) or isinstance(t2, Var):
        return t1, t2
    if not isinstance(t1, TensorType) or not isinstance(t2, TensorType):
        raise TypeError(f"Cannot broadcast types {t1} and {t2}")
    a, b = list(t1.__args__), list(t2.__args__)
    a, b = [1] * (len(b) - len(a)) + a, [1] * (len(a) - len(b)) + b
    for i, (x, y) in enumerate(zip(list(a), list(b))):
        if x == 1:
            a[i] = y
        elif y == 1:
            b[i] = x
    return TensorType(tuple(a)), TensorType(tuple(b))


def get_greatest_upper_bound(type1, type2):
    """Returns the combined information of both types. TypeError if they are inconsistent, None for
    non-tensor types."""
    if type1 == Dyn:
        return type2
    if type2 == Dyn:
        return type1
    if not isinstance(type1, TensorType) or not isinstance(type2, TensorType):
        return None
    if not is_consistent(type1, type2):
        raise TypeError(f"Inconsistent types {type1}, {type2}")
    return TensorType(tuple(a if is_more_precise(a, b) else b for a, b in zip(type1.__args__, type2.__args__)))


def _pair(x):
    return x if isinstance(x, (tuple, list)) else (x, x)


def calculate_out_dimension(d_in, module_instance, index):
    """Returns the size of a dimension after a convolution or pooling."""
    if d_in == Dyn:
        return Dyn
    if not isinstance(d_in, int) and not hasattr(d_in, "free_symbols"):
        raise TypeError(f"{d_in} in {module_instance} must be a number or Dyn. Received {type(d_in)}")
    padding, kernel, stride, dilation = (_pair(getattr(module_instance, k))[index] for k in ("padding", "kernel_size", "stride", "dilation"))
    return (d_in + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def maxpool2d_check(typ, module_instance):
    """Returns the type after MaxPool2d."""
    if len(typ.__args__) not in (3, 4):
        raise TypeError(f"Wrong size {typ} for {module_instance}")
    *same, h, w = typ.__args__
    return TensorType((*same, calculate_out_dimension(h, module_instance, 0), calculate_out_dimension(w, module_instance, 1)))


def adaptiveavgpool2d_check(tensor_type, module_instance):
    """Returns the type after AdaptiveAvgPool2d."""
    if len(tensor_type.__args__) not in (3, 4):
        raise TypeError(f"Tensor ranks must be 3 or 4. Got {tensor_type}")
    *same, h, w = tensor_type.__args__
    out = _pair(module_instance.output_size)
    return TensorType((*same, h if out[0] is None else out[0], w if out[1] is None else out[1]))


def linear_check(tensor_type, module_instance):
    """Returns the type after Linear."""
    if len(tensor_type.__args__) < 2:
        raise TypeError(f"Type {tensor_type} must have rank 2 or more.")
    *same, last = tensor_type.__args__
    if not is_consistent(module_instance.in_features, last):
        raise TypeError(f"Inconsistent {module_instance.in_features} and {last} in {module_instance}")
    return TensorType((*same, module_instance.out_features))


def flatten_check(tensor_type, start_dim, end_dim):
    """Returns the type after flatten."""
    sizes = tensor_type.__args__
    rank = len(sizes)
    start = rank + start_dim if start_dim < 0 else start_dim
    end = rank + end_dim + 1 if end_dim < 0 else end_dim + 1
    if not 0 <= start <= rank - 1 or not start < end <= rank:
        raise TypeError(f"Incompatible dimensions {start}, {end - 1} in type {tensor_type}")
    inner = sizes[start:end]
    return TensorType((*sizes[:start], Dyn if Dyn in inner else math.prod(inner), *sizes[end:]))


def get_parameter(traced, target):
    """Returns a parameter by its dotted name."""
    path, _, name = target.rpartition(".")
    at = traced.get_submodule(path)
    if not hasattr(at, name):
        raise AttributeError(f"{type(at).__name__} has no attribute `{name}`")
    return getattr(at, name)


# ------------------------------------------------------------------ the type of a node
def _type(x):
    return x.type if isinstance(x, Node) else type(x)


def _bounded(n, new):
    n.type = get_greatest_upper_bound(new, n.type)
    return n.type


def _argument(n):
    """Returns the type of the first argument. If that is unknown, it gets the number of sizes of
    the node's declared type."""
    arg = n.args[0]
    if arg.type == Dyn and isinstance(n.type, TensorType):
        arg.type = expand_to_tensor_dim(arg.type, len(n.type.__args__))
    return arg.type


@register_inference_rule(_torch.add)
@register_inference_rule(operator.add)
def add_inference_rule(n):
    """Broadcasts the sizes. The less precise of the two types becomes the type of the sum."""
    a, b = n.args[0], n.args[1]
    t1, t2 = _type(a), _type(b)
    for scalar, other in ((t1, t2), (t2, t1)):
        if scalar in (int, float) and (isinstance(other, TensorType) or other == Dyn or other in (int, float)):
            n.type = other
            return n.type
    new1, new2 = broadcast_types(t1, t2)
    n.meta["broadcast"] = new1 != t1 or new2 != t2
    if n.meta["broadcast"]:
        n.meta[str(a)], n.meta[str(b)] = new1, new2
    if not is_consistent(new1, new2):
        raise TypeError(f"Cannot add arguments {a} ({t1}) and {b} ({t2}) in node {n}. Types should match ")
    n.type = new2 if is_more_precise(new1, new2) else new1
    return n.type


@register_inference_rule(getattr)
def get_attr_inference_rule(n, traced):
    """Only the attribute `shape` is supported. Its type is Dyn."""
    if n.args[1] != "shape":
        raise TypeError("Not yet implemented")
    n.type = Dyn
    return n.type


@register_inference_rule(_torch.transpose)
def transpose_inference_rule(n):
    t, i, j = n.args[0].type, n.args[1], n.args[2]
    if t == Dyn:
        n.type = Dyn
        return n.type
    if not isinstance(t, TensorType) or not 0 <= i < len(t.__args__) or not 0 <= j < len(t.__args__):
        raise TypeError(f"Cannot transpose {i} and {j} in type {t} for node {n}")
    sizes = list(t.__args__)
    sizes[i], sizes[j] = sizes[j], sizes[i]
    return _bounded(n, TensorType(sizes))


@register_inference_rule(_torch.reshape)
def reshape_inference_rule(n):
    """Returns the new sizes. One number of elements must divide the other (unknown sizes count as
    1)."""
    t, shape = n.args[0].type, n.args[1]
    new = TensorType([Dyn if e == -1 else e for e in shape])
    if t == Dyn:
        n.type = new
        return new
    if not isinstance(t, TensorType):
        raise TypeError(f"Cannot reshape in node {n} from {t} to {new}")
    count, wanted = math.prod(1 if e == Dyn else e for e in t.__args__), math.prod(shape)
    if not count or not wanted or count % wanted and wanted % count:
        raise TypeError(f"Cannot reshape in node {n} from {t} to {new}")
    n.type = new
    return new


@register_inference_rule(_torch.flatten)
def flatten_inference_rule(n):
    t = _argument(n)
    return _bounded(n, flatten_check(t, *_flattened(n))) if isinstance(t, TensorType) else n.type


def _flattened(n):
    start = n.args[1] if len(n.args) > 1 else n.kwargs.get("start_dim", 0)
    return start, n.args[2] if len(n.args) > 2 else n.kwargs.get("end_dim", -1)


@register_inference_rule(BatchNorm2d)
def bn2d_inference_rule(n, module_instance):
    n.args[0].type = t = expand_to_tensor_dim(n.args[0].type, 4)
    n.type = expand_to_tensor_dim(n.type, 4)
    if not (is_consistent(t.__args__[1], module_instance.num_features) and is_consistent(n.type.__args__[1], module_instance.num_features)
            and is_consistent(t, n.type)):
        raise TypeError(f"Cannot apply {module_instance} with input type {t} and existing type {n.type} on {n}")
    return _bounded(n, t)


@register_inference_rule(Conv2d)
def conv2d_inference_rule(n, module_instance):
    n.args[0].type = t = expand_to_tensor_dim(n.args[0].type, 4)
    now = expand_to_tensor_dim(n.type, 4)
    if not is_consistent(t.__args__[1], module_instance.in_channels):
        raise TypeError(f"Cannot apply {module_instance} with input type {t} and existing type {n.type} on {n}")
    batch, _, h, w = t.__args__
    new = TensorType((batch, module_instance.out_channels, calculate_out_dimension(h, module_instance, 0), calculate_out_dimension(w, module_instance, 1)))
    n.type = get_greatest_upper_bound(new, now)
    return n.type


@register_inference_rule(ReLU)
def relu_inference_rule(n, module_instance):
    t = _argument(n)
    return _bounded(n, t) if isinstance(t, TensorType) else n.type


@register_inference_rule(MaxPool2d)
def maxpool2d_inference_rule(n, module_instance):
    t = _argument(n)
    return _bounded(n, maxpool2d_check(t, module_instance)) if isinstance(t, TensorType) else n.type


@register_inference_rule(AdaptiveAvgPool2d)
def adaptiveavgpool2d_inference_rule(n, module_instance):
    t = _argument(n)
    return _bounded(n, adaptiveavgpool2d_check(t, module_instance)) if isinstance(t, TensorType) else n.type


@register_inference_rule(Linear)
def linear_inference_rule(n, module_instance):
    t = _argument(n)
    return _bounded(n, linear_check(t, module_instance)) if isinstance(t, TensorType) else n.type


class GraphTypeChecker:
    """Checks the types of a traced program and infers the types of its nodes.

      env      types by name, for custom rules
      traced   a GraphModule, whose nodes' `type` is read and set
    """

    def __init__(self, env, traced):
        self.env, self.traced = env, traced

    def type_check(self):
        """Returns True. TypeError if types contradict each other, RuntimeError for a node without a
        rule."""
        for n in self.traced.graph.nodes:
            self.type_check_node(n)
        return True

    def type_check_node(self, n):
        """Infers the type of one node from the types of its arguments."""
        if n.type is None:
            n.type = Dyn
        if n.op == "get_attr":
            t = get_parameter(self.traced, n.target)
            n.type = TensorType(tuple(t.shape)) if is_tensor(t) else n.type
        elif n.op == "call_function":
            rule = _INFERENCE_RULES.get(n.target)
            if rule is None:
                raise RuntimeError(f"No inference rule registered for target {n.target}!")
            rule(n, self.traced) if n.target is getattr else rule(n)
        elif n.op == "call_module":
            module = self.traced.get_submodule(n.target)
            rule = _INFERENCE_RULES.get(type(module))
            if rule is None:
                raise RuntimeError(f"No inference rule registered for class {type(module)}!")
            rule(n, module)
        elif n.op == "output":
            n.type = map_arg(n.args[0], lambda a: a.type)
        elif n.op != "placeholder":
            raise NotImplementedError(f"Method {n.op} not yet implemented")
        return n.type


# ------------------------------------------------------------------ equal sizes
def _types(n):
    t = n.args[0].type
    return (t.__args__, n.type.__args__) if isinstance(t, TensorType) and isinstance(n.type, TensorType) else ((), ())


@register_refinement_rule(BatchNorm2d)
@register_refinement_rule(ReLU)
def all_eq(n):
    a, b = _types(n)
    return [Equality(x, y) for x, y in zip(a, b)]


@register_refinement_rule(AdaptiveAvgPool2d)
@register_refinement_rule(MaxPool2d)
def first_two_eq(n):
    """Sizes except height and width are equal."""
    a, b = _types(n)
    return [Equality(x, y) for x, y in zip(a[:-2], b[:-2])]


@register_refinement_rule(_torch.add)
@register_refinement_rule(operator.add)
def element_wise_eq(n):
    """A size that both operands share equals that of the sum. Other sizes may be 1 in one operand.
    """
    if not isinstance(n.args[0], Node) or not isinstance(n.args[1], Node):
        return []
    t1, t2 = n.args[0].type, n.args[1].type
    if not all(isinstance(t, TensorType) for t in (t1, t2, n.type)):
        return []
    t1, t2 = broadcast_types(t1, t2)
    return [Equality(x, z) for x, y, z in zip(t1.__args__, t2.__args__, n.type.__args__) if x == y]


@register_refinement_rule(_torch.flatten)
def flatten_refinement_rule(n):
    a, b = _types(n)
    start = _flattened(n)[0]
    start = start + len(a) if start < 0 else start
    return [Equality(x, y) for x, y in zip(b[:start], a[:start])]


@register_refinement_rule(Conv2d)
@register_refinement_rule(Linear)
def conv_refinement_rule(n):
    a, b = _types(n)
    return [Equality(x, y) for x, y in zip(a[:1], b[:1])]


linear_refinement_rule = conv_refinement_rule


@register_algebraic_expressions_inference_rule(Conv2d)
def conv_rule(n, module_instance):
    """Expresses height and width in terms of the input's sizes."""
    t = n.args[0].type
    if not isinstance(t, TensorType) or not isinstance(n.type, TensorType):
        return None
    h, w = (calculate_out_dimension(t.__args__[i + 2], module_instance, i) for i in (0, 1))
    n.type = TensorType((*n.type.__args__[:2], h, w))
    return n.type


class Refine:
    """Names the unknown sizes of a program and collects their equalities in `constraints`."""

    def __init__(self, traced):
        self.constraints, self.traced, self.symbol_iter = [], traced, itertools.count()

    def refine(self):
        """Names unknown sizes and collects constraints. Returns True."""
        for n in self.traced.graph.nodes:
            self.refine_node(n)
        return True

    def symbolic_relations(self):
        """Converts sizes to sympy symbols, or to expressions where a rule provides one. Returns
        True."""
        for n in self.traced.graph.nodes:
            self.infer_symbolic_relations(n)
        return True

    def _mapped(self, typ, fn):
        if isinstance(typ, TensorType):
            return TensorType(tuple(self._mapped(t, fn) for t in typ.__args__))
        if isinstance(typ, (list, tuple)):
            return type(typ)(self._mapped(t, fn) for t in typ)
        return fn(typ)

    def replace_dyn_with_fresh_var(self, typ):
        """Replaces every Dyn in a type by a new variable."""
        return self._mapped(typ, lambda t: Var(next(self.symbol_iter)) if t == Dyn else t)

    def convert_to_sympy_symbols(self, typ):
        """Replaces the variables in a type by sympy symbols."""
        import sympy
        return self._mapped(typ, lambda t: sympy.symbols(str(t)) if isinstance(t, Var) else t)

    def refine_node(self, n):
        if n.type is None:
            n.type = Dyn
        n.type = self.replace_dyn_with_fresh_var(n.type)
        rule = self._rule(_REFINEMENT_RULES, n)
        if rule is not None:
            self.constraints += rule(n) or []
        self._output(n)
        return n.type

    def infer_symbolic_relations(self, n):
        n.type = self.convert_to_sympy_symbols(n.type)
        rule = self._rule(_RULES, n)
        if rule is not None:
            rule(n, self.traced.get_submodule(n.target)) if n.op == "call_module" else rule(n)
        self._output(n)
        return n.type

    def _rule(self, rules, n):
        return rules.get(type(self.traced.get_submodule(n.target))) if n.op == "call_module" else rules.get(n.target) if n.op == "call_function" else None

    @staticmethod
    def _output(n):
        if n.op == "output":
            n.type = map_arg(n.args[0], lambda a: a.type)
