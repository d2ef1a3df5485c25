"""torch.fx.experimental.unify_refinements: gives equal unknown sizes in a program's types the same
name."""
from mindtorch.torch.fx.experimental.graph_gradual_typechecker import Refine
from mindtorch.torch.fx.experimental.unification import Var, unify
from mindtorch.torch.fx.tensor_type import TensorType

__all__ = ["infer_symbolic_types", "infer_symbolic_types_single_pass", "convert_eq", "unify_eq", "substitute_solution_one_type", "substitute_all_types",
           "check_for_type_equality"]


def infer_symbolic_types_single_pass(traced):
    """Names unknown sizes, and gives sizes that one node constrains to be equal the same name."""
    r = Refine(traced)
    r.refine()
    substitute_all_types(traced.graph, unify_eq(r.constraints))


def infer_symbolic_types(traced):
    """Sets the types of a program checked by GraphTypeChecker, with sympy symbols and expressions
    for unknown sizes."""
    infer_symbolic_types_single_pass(traced)
    infer_symbolic_types_single_pass(traced)
    Refine(traced).symbolic_relations()


def convert_eq(list_of_eq):
    """Returns (left sides, right sides) of Equalities."""
    return tuple(e.lhs for e in list_of_eq), tuple(e.rhs for e in list_of_eq)


def unify_eq(list_of_eq):
    """Returns {variable: size} that satisfies all equalities, or False if there is none."""
    return unify(*convert_eq(list_of_eq))


def substitute_solution_one_type(mapping, t):
    """Substitutes the variables of a type by the mapping."""
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
    """Applies `substitute_solution_one_type` to the types of all nodes."""
    for n in graph.nodes:
        n.type = substitute_solution_one_type(mapping, n.type)


def check_for_type_equality(g1, g2):
    """True if the nodes of two graphs have pairwise equal types."""
    return all(a.type == b.type for a, b in zip(g1.nodes, g2.nodes))
