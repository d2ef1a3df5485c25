"""Every registered op has PyTorch's signature: names, order, defaults and keyword-only parameters.

PyTorch's side comes from its schemas (`aten::`) and, for functions written in Python, from their
signatures. An op passes if it has exactly the parameters of one overload, or if it merges the
overloads: each can be called as PyTorch allows, by position and by name, with the same defaults.
Ops that pass neither way are listed in DIFFERENT, with the reason.
"""
import collections
import inspect

import pytest
import torch as real

import mindtorch.torch as mine  # noqa: F401  (fills the table)
from mindtorch.core.dispatch.op_registry import OPS

Parameter = collections.namedtuple("Parameter", "name required default keyword")

_PREFIX = {"_C._nn": "", "": "", "linalg": "linalg_", "fft": "fft_", "special": "special_", "nn.functional": ""}

SIZES = "sizes are given as *args or size=, and all else by name, so Python has to find out which overload is meant"
SECOND = "the second argument has a name of its own in each overload; all of them are accepted"
REMOVED = "removed from torch, where the name raises an error as well, whatever the arguments"
RNN = "two overloads (padded and packed input) whose names differ from the first argument on"

DIFFERENT = {
    "_segment_reduce": "another name of segment_reduce, which torch has as a function and not as an operator",
    **dict.fromkeys(["empty", "ones", "zeros", "rand", "randn", "randint", "randint_like"], SIZES),
    **dict.fromkeys(["max", "min", "tensor_split", "dsplit", "hsplit", "vsplit"], SECOND),
    **dict.fromkeys([f"_foreach_{n}{s}" for n in ("add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum",
                                                  "addcmul", "addcdiv", "lerp") for s in ("", "_")], SECOND),
    **dict.fromkeys(["eig", "lstsq", "solve", "matrix_rank", "symeig"], REMOVED),
    **dict.fromkeys(["lstm", "gru", "rnn_tanh", "rnn_relu"], RNN),
    **dict.fromkeys(["std", "std_mean", "var", "var_mean"], "unbiased and correction exclude each other, so that neither has a default of "
                                                            "its own; None stands for unbiased=True, correction=1"),
    **dict.fromkeys(["trapezoid", "trapz", "cumulative_trapezoid"], "x and dx exclude each other; dx=None stands for 1"),
    "_native_batch_norm_legit": "two overloads, with and without running statistics in the middle of the arguments",
    "nonzero": "as_tuple is read by the Python binding and is in no schema",
    "unique": "torch's public function hides its signature behind *args; Tensor.unique's is used",
    "lu": "torch's public function hides its signature behind *args; Tensor.lu's is used",
}

# Ops that PyTorch implements only in C++ without a schema: their signatures come from the
# documentation.
DOCUMENTED = {
    "asarray": "obj *dtype=None *device=None *copy=None *requires_grad=False", "from_numpy": "ndarray",
    "frombuffer": "buffer *dtype *count=-1 *offset=0 *requires_grad=False", "nn.functional.logsigmoid": "input",
}


def schemas():
    found = collections.defaultdict(list)
    for s in real._C._jit_get_all_schemas():
        if s.name.startswith("aten::") and not any(a.is_out for a in s.arguments) and not _for_scripts(s):
            found[s.name[len("aten::"):]].append(s)
    return found


def _for_scripts(s):
    """True for overloads that only TorchScript has: an op's name on plain numbers, lists or
    strings."""
    names = [a.name for a in s.arguments]
    return names[-1:] == ["reverse"] or names[:1] in (["self"], ["a"], ["t"], ["l"], ["x"], ["value"]) and \
        "pin_memory" not in names and not any("Tensor" in str(a.type) for a in s.arguments)


SCHEMAS = schemas()


def of_schema(s):
    return [Parameter("input" if a.name == "self" else a.name, not a.has_default_value(), a.default_value, a.kwarg_only)
            for a in s.arguments]


def of_python(fn):
    """Returns the parameters of a Python function; None if it hides them behind *args, **kwargs."""
    ps = [p for p in inspect.signature(fn).parameters.values() if p.name != "out"]
    if any(p.kind == p.VAR_KEYWORD for p in ps):
        return None
    return [Parameter("*" + p.name, True, None, False) if p.kind == p.VAR_POSITIONAL else
            Parameter("input" if p.name == "self" else p.name, p.default is p.empty, p.default, p.kind == p.KEYWORD_ONLY) for p in ps]


def of_ours(row):
    return of_python(row.public)


def of_text(text):
    r = []
    for word in text.split():
        name, eq, default = word.lstrip("*").partition("=")
        r.append(Parameter(name, not eq, eval(default) if eq else None, word.startswith("*")))
    return r


def overloads(row):
    if row.qualname in DOCUMENTED:
        return [of_text(DOCUMENTED[row.qualname])]
    found, home = [], real
    for part in row.ns.split("."):
        home = getattr(home, part) if part else home
    for name in (row.name, row.name + "_with_indices"):
        fn = getattr(home, name, None)
        if inspect.isfunction(fn):
            ps = of_python(fn)
            if ps is not None:
                found.append(ps)
    if row.ns in _PREFIX and not (row.ns == "nn.functional" and found):
        found += [of_schema(s) for s in SCHEMAS.get(_PREFIX[row.ns] + row.name, ())]
    return found


def same_default(a, b):
    """True for equal defaults, or two spellings of one default: 1 and [1, 1], () and None, False
    and None, strided and None."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return list(a) == list(b)
    if isinstance(b, (list, tuple)) and b:
        return all(a == x for x in b)
    if isinstance(a, bool) != isinstance(b, bool):
        return {a, b} == {None, False} if None in (a, b) else False
    if a in ((), None) and b in ((), [], None) if not isinstance(b, list) else a in ((), None) and not b:
        return True
    return a == b or str(a) == str(b) or {str(a), str(b)} == {"None", "torch.strided"}


def equal(ours, theirs):
    return len(ours) == len(theirs) and all(
        p.name == q.name and p.keyword == q.keyword and p.required == q.required and (p.required or same_default(p.default, q.default))
        for p, q in zip(ours, theirs))


def complaints(ours, found):
    """Returns the reasons why `ours` does not merge these overloads."""
    names, r = {p.name: i for i, p in enumerate(ours)}, []
    for theirs in found:
        positional = [q.name for q in theirs if not q.keyword and q.name in names]
        if [names[n] for n in positional] != sorted(names[n] for n in positional):
            r.append(f"the order is {positional}")
        for q in theirs:
            if q.name not in names:
                r.append(f"no parameter {q.name}")
                continue
            p = ours[names[q.name]]
            if p.required and not q.required:
                r.append(f"{q.name} is required")
            if p.keyword and not q.keyword:
                r.append(f"{q.name} can not be given by position")
    for p in ours:
        there = [q for theirs in found for q in theirs if q.name == p.name]
        if not there:
            # Factories have parameters that schemas leave to the Python layer.
            if p.name not in ("requires_grad", "pin_memory", "check_invariants"):
                r.append(f"{p.name} is not torch's")
        elif not p.required:
            defaults = [q.default for q in there if not q.required]
            if defaults and not any(same_default(p.default, d) for d in defaults) and not (p.name == "dtype" and p.default is None):
                r.append(f"{p.name}={p.default!r}, not {defaults}")
    return r


def problems(row):
    found = overloads(row)
    if not found:
        return ["torch has no such op"]
    ours = of_ours(row)
    return [] if any(equal(ours, theirs) for theirs in found) else complaints(ours, found)


ROWS = {q: row for q, row in sorted(OPS.items()) if row.public is not None}


def test_signatures():
    wrong = {q: problems(row) for q, row in ROWS.items() if q not in DIFFERENT}
    wrong = {q: sorted(set(r)) for q, r in wrong.items() if r}
    assert not wrong, "\n" + "\n".join(f"{q}{inspect.signature(ROWS[q].public)}: {'; '.join(r)}" for q, r in wrong.items())


def test_listed_exceptions_still_differ():
    """An exception must be removed from the list once its op agrees with PyTorch or no longer
    exists."""
    for q in DIFFERENT:
        assert q in ROWS, f"{q} is not on the table"
        assert problems(ROWS[q]), f"{q} has torch's signature"


def test_most_signatures_are_exact():
    exact = [q for q, row in ROWS.items() if any(equal(of_ours(row), theirs) for theirs in overloads(row))]
    assert len(exact) >= 0.85 * len(ROWS)


def _row(fn, name, ns=""):
    row = type(next(iter(ROWS.values())))()
    row.name, row.ns, row.public = name, ns, fn
    return row


@pytest.mark.parametrize("fn", [
    lambda x, dim=None, keepdim=False, *, dtype=None: 0, lambda input, keepdim=False, dim=None, *, dtype=None: 0,
    lambda input, dim=None, keepdim=True, *, dtype=None: 0, lambda input, dim=None, *, keepdim=False, dtype=None: 0,
    lambda input, dim=None, keepdim=False, *, dtype=None, extra=1: 0, lambda input, dim, keepdim=False, *, dtype=None, axis: 0])
def test_the_comparison_finds_differences(fn):
    assert not problems(_row(lambda input, dim=None, keepdim=False, *, dtype=None: 0, "sum"))
    assert problems(_row(fn, "sum"))


# ------------------------------------------------------------------ methods
def test_methods_have_the_parameters_of_functions():
    """Tensor.f has the parameters of torch.f after the first one (sizes also as *args)."""
    wrong = []
    for q, row in ROWS.items():
        if row.ns == "" and row.method and hasattr(mine.Tensor, row.name):
            m = getattr(mine.Tensor, row.name)
            if not inspect.isfunction(m) or row.qualname in DIFFERENT:
                continue
            parameters = list(inspect.signature(m).parameters.values())[1:]
            # (the *args form of dims is declared after `dim`)
            ours = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL or p.name == "args"]
            wanted = [p.name for p in inspect.signature(row.body).parameters.values()][1:]
            if ours != wanted and "args" not in ours:
                theirs = [[a.name for a in s.arguments][1:] for s in SCHEMAS.get(row.name, ())]
                if ours not in theirs:
                    wrong.append(f"Tensor.{row.name}{inspect.signature(m)} beside torch.{row.name}{inspect.signature(row.body)}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_out_is_accepted_where_torch_accepts_it():
    """Every op whose schema has an out overload and whose documentation shows `out=` accepts it in
    mindtorch."""
    with_out = {s.name.removeprefix("aten::") for s in real._C._jit_get_all_schemas() if any(a.is_out for a in s.arguments)}
    wanted, missing = 0, []
    for row in OPS.values():
        place = real
        for part in row.ns.split(".") if row.ns else ():
            place = getattr(place, part, None)
        fn = getattr(place, row.name, None)
        if fn is None or (row.name if row.ns not in ("linalg", "fft", "special") else f"{row.ns}_{row.name}") not in with_out:
            continue
        shown = (fn.__doc__ or "").strip().split("\n")[0]
        # these two reject the `out=` that their documentation shows
        if ", out=" in shown and row.name not in ("std_mean", "var_mean"):
            wanted += 1
            if not row.out and "out" not in inspect.signature(row.body).parameters:
                missing.append(row.qualname)
    assert wanted > 250 and not missing
