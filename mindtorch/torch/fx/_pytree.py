"""torch.fx._pytree: flattens structures by a given spec, which may have fewer keys than the
structure."""
import collections

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]

SUPPORTED_NODES: dict = {}
SUPPORTED_NODES_EXACT_MATCH: dict = {}


def register_pytree_flatten_spec(cls, flatten_fn_spec, flatten_fn_exact_match_spec=None):
    """Registers `flatten_fn_spec(value, spec)`, which returns the children of a value of class
    `cls` that are in the spec, and a function that checks for an exact match."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def tree_flatten_spec(pytree, spec):
    """Returns the leaves of a structure in the order of `spec`. RuntimeError for a class without a
    rule."""
    if spec.is_leaf():
        return [pytree]
    rule = SUPPORTED_NODES.get(spec.type)
    if rule is None:
        raise RuntimeError(f"{type(pytree)} does not have a flatten_fn_spec associated with it. Please register one with "
                           "torch.fx._pytree.register_pytree_flatten_spec.  If you have serialized your model, make sure that any custom "
                           "pytrees have been registered before loading it.")
    leaves = []
    for child, inner in zip(rule(pytree, spec), spec.children_specs):
        leaves += tree_flatten_spec(child, inner)
    return leaves


def _items(d, spec):
    return [d[k] for k in spec.context]


def _elements(d, spec):
    return [d[i] for i in range(len(spec.children_specs))]


register_pytree_flatten_spec(dict, _items, lambda d, spec: list(d) == list(spec.context))
register_pytree_flatten_spec(list, _elements, lambda d, spec: len(d) == len(spec.children_specs))
register_pytree_flatten_spec(tuple, _elements, lambda d, spec: len(d) == len(spec.children_specs))
register_pytree_flatten_spec(collections.namedtuple, _elements, lambda d, spec: len(d) == len(spec.children_specs))
