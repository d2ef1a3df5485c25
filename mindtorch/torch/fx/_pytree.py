"""torch.fx._pytree: structures taken apart by a spec that is known, which may name fewer keys than they have."""
import collections

__all__ = ["register_pytree_flatten_spec", "tree_flatten_spec"]

SUPPORTED_NODES: dict = {}
SUPPORTED_NODES_EXACT_MATCH: dict = {}


def register_pytree_flatten_spec(cls, flatten_fn_spec, flatten_fn_exact_match_spec=None):
    """flatten_fn_spec(value, spec) gives the children of a value of class `cls` that the spec has; the other says whether they are all it has."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def tree_flatten_spec(pytree, spec):
    """Leaves of a structure in the order of `spec`; RuntimeError for a class that has no rule."""
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


def _places(d, spec):
    return [d[i] for i in range(len(spec.children_specs))]


register_pytree_flatten_spec(dict, _items, lambda d, spec: list(d) == list(spec.context))
register_pytree_flatten_spec(list, _places, lambda d, spec: len(d) == len(spec.children_specs))
register_pytree_flatten_spec(tuple, _places, lambda d, spec: len(d) == len(spec.children_specs))
register_pytree_flatten_spec(collections.namedtuple, _places, lambda d, spec: len(d) == len(spec.children_specs))
