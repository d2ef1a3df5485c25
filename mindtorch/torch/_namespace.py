"""Fills the facade's namespaces from the op table."""
from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import Tensor


def fill(scope, ns):
    """Adds every public op of namespace `ns` to a module's globals and returns the added names.

    Existing names stay.
    """
    names = []
    for o in list(OPS.values()):
        if o.ns == ns and o.public is not None and o.name not in scope:
            scope[o.name] = o.public
            _publish(o.public, o.name, scope)
            names.append(o.name)
    return names


def _publish(f, name, scope):
    """Sets the `__module__` of a function to where users and pickles look for it (the first module,
    if there are several)."""
    if f.__name__ == name and f.__module__.startswith(("mindtorch.ops", "mindtorch.core")):
        f.__module__ = scope["__name__"]


# In-place ops that PyTorch also provides as functions.
_FUNCTIONS = """abs acos acosh addmv alpha_dropout as_strided conj_physical arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh ceil celu
 clamp clamp_max clamp_min clip cos cosh deg2rad detach dropout erf erfc erfinv exp exp2 expm1 feature_alpha_dropout
 feature_dropout fill fix floor frac gcd i0 index_put lcm ldexp log log10 log1p log2 logit nan_to_num neg negative rad2deg
 reciprocal relu resize_as round rrelu rsqrt selu sigmoid sin sinc sinh sqrt square tan tanh threshold trunc xlogy zero""".split()


def inplace_functions(scope):
    for n in _FUNCTIONS:
        f = Tensor.__dict__.get(n + "_")
        if f is not None and n + "_" not in scope:
            scope[n + "_"] = f
            _publish(f, n + "_", scope)
