"""torch.fx.experimental.unification: variables, and substitutions that make two structures equal.
"""
import itertools

__all__ = ["Var", "var", "vars", "isvar", "unify", "reify"]

_fresh = itertools.count(1)


class Var:
    """A variable. Two variables with the same token are equal."""

    def __init__(self, *token):
        self.token = token[0] if token else f"_{next(_fresh)}"

    def __repr__(self):
        return f"~{self.token}"

    def __eq__(self, other):
        return type(self) is type(other) and self.token == other.token

    def __hash__(self):
        return hash((Var, self.token))


var = Var


def vars(n):
    """Returns n new variables."""
    return [Var() for _ in range(n)]


def isvar(x):
    return isinstance(x, Var)


def _walk(x, s):
    while isvar(x) and x in s:
        x = s[x]
    return x


def unify(u, v, s=None):
    """Returns {variable: value}, an extension of `s` that makes u and v equal. False if there is
    none."""
    s = {} if s is None else s
    u, v = _walk(u, s), _walk(v, s)
    if u is v or type(u) is type(v) and u == v:
        return s
    if isvar(u):
        return {**s, u: v}
    if isvar(v):
        return {**s, v: u}
    if isinstance(u, (list, tuple)) and type(u) is type(v) and len(u) == len(v):
        for a, b in zip(u, v):
            s = unify(a, b, s)
            if s is False:
                return False
        return s
    if isinstance(u, dict) and isinstance(v, dict) and u.keys() == v.keys():
        for k in u:
            s = unify(u[k], v[k], s)
            if s is False:
                return False
        return s
    return s if not isinstance(u, (list, tuple, dict)) and u == v else False


def reify(e, s):
    """Returns the structure e with variables replaced by their values."""
    e = _walk(e, s)
    if isinstance(e, (list, tuple)):
        return type(e)(reify(x, s) for x in e)
    if isinstance(e, dict):
        return {k: reify(v, s) for k, v in e.items()}
    return e
