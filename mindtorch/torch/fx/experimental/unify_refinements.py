"""torch.fx.experimental.unify_refinements: unknown sizes of a program's types that must be the same get one name."""
from mindtorch.torch.fx.experimental.graph_gradual_typechecker import Refine
from mindtorch.torch.fx.experimental.unification import Var, unify
from mindtorch.torch.fx.tensor_type import TensorType

__all__ = ["infer_symbolic_types", "infer_symbolic_types_single_pass", "convert_eq", "unify_eq", "substitute_solution_one_type", "substitute_all_types",
           "check_for_type_equality"]


def infer_symbolic_types_single_pass(traced):
    """Names unknown sizes, and gives those one name that a single node says to be the same."""
    r = Refine(traced)
    r.refine()
    substitute_all_types(traced.graph, unify_eq(r.constraints))


def infer_symbolic_types(traced):
    """Types of a program checked by GraphTypeChecker with sympy's symbols and expressions for unknown sizes."""
    infer_symbolic_types_single_pass(traced)
    infer_symbolic_types_single_pass(traced)
    Refine(traced).symbolic_relations()


def convert_eq(list_of_eq):
    """(left sides, right sides) of Equalities."""
    return tuple(e.lhs for e in list_of_eq), tuple(e.rhs for e in list_of_eq)


def unify_eq(list_of_eq):
    """{variable: size} by which all hold; False if there is none."""
    return unify(*convert_eq(list_of_eq))


def substitute_solution_one_type(mapping, t):
    """A type with what the mapping says of its variables."""
    if isinstance(t, Var):
        while mapping and isinstance(t, Var) and t in mapping:
            t = mapping[t]
        return t
    if isinstance(t, TensorType):
        return TensorType(tuple(substitute_solution_one_type(mapping, x) for x in t.__args__))
    if isinstance(t, (list, tuple)):
        return type(t)(substitute_solution_one_type(mapping, x) for x in t)
    return t


def substitute_all_types(graph, mapping):
    """substitute_solution_one_type for the types of all nodes."""
    for n in graph.nodes:
        n.type = substitute_solution_one_type(mapping, n.type)


def check_for_type_equality(g1, g2):
    """Whether the nodes of two graphs have the same types, one by one."""
    return all(a.type == b.type for a, b in zip(g1.nodes, g2.nodes))
