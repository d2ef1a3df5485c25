"""Information on ops and primitives, read from their records: `coverage --kernels` and `coverage
--op NAME`."""
import collections
import contextlib
import functools
import inspect
import json
import os
import re
import subprocess
import sys

HEAD = ["primitive", "signature", "gradient"]


def devices():
    """Returns the device types that can have kernels: cpu, meta, and every registered device under
    its primary name."""
    from mindtorch.core.device.device_dispatch import DEVICES
    return ["cpu", "meta", *sorted(n for n, d in DEVICES.items() if getattr(d, "type", n) == n)]


# The kernels for a target are selected when their modules are imported, so another target's kernels
# are listed in a separate process.
_ASK = """
import json, sys
import mindtorch.torch
from mindtorch.backend.mindspore import runtime
runtime.target = lambda: sys.argv[1]
for name in [n for n in sys.modules if n.startswith(("mindtorch.backend.mindspore.kernels", "mindtorch.backend.mindspore.npu"))]:
    del sys.modules[name]
from mindtorch.backend import kernels
from mindtorch.backend.mindspore import kernels as own
kernels.load(own)
kernels.TABLES.pop("npu", None)
own.fill_table()
from mindtorch.tools._kernels import place
print(json.dumps({n: (sorted([t.name for t in kernels.flags_of(f).only or ()]), place(f)) for n, f in kernels.TABLES["npu"].items()}))
"""


def of_target(target):
    """Returns {name: supported element types ([]: any)} of the npu device's kernels on a MindSpore
    target, which need not be available here."""
    return {n: only for n, (only, _) in _table_of_target(target).items()}


@functools.cache
def _table_of_target(target):
    """Returns {name: (supported element types, source location)} of a target's kernels."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("MINDTORCH_NPU")}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run([sys.executable, "-c", _ASK, target], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the kernels for {target} cannot be listed: {done.stderr[-800:]}")
    return {n: (tuple(only), where) for n, (only, where) in json.loads(done.stdout.splitlines()[-1]).items()}


def targets(on):
    """Returns MindSpore's targets, for the columns of the npu device."""
    return ["CPU", "Ascend"] if "npu" in on else []


def on_target(prim, target):
    """Describes how the npu device computes a primitive on a target: as in `by`, and after a colon
    the element types that the kernel is limited to."""
    kernels = of_target(target)
    if prim.name not in kernels:
        return "sent" if not prim.inputs else "copy" if prim.name == "to_device" else "view" if prim.view else ""
    only = kernels[prim.name]
    return "kernel" + (f": {' '.join(only)}" if only else "")


def primitives(text=""):
    """Returns {name: record}, sorted by name."""
    import mindtorch.torch.distributed.tensor  # noqa: F401  (declares one of its own)
    from mindtorch.core.dispatch.primitives import PRIMITIVES
    return {n: PRIMITIVES[n].prim for n in sorted(PRIMITIVES) if text in n}


def by(prim, device):
    """Returns how a device computes a primitive: "kernel", "rule" (meta: shapes only), another path
    as described by the markdown page, or "" if it is unsupported."""
    from mindtorch.backend.kernels import TABLES
    has = prim.name in TABLES.get(device, {})
    if device == "meta":
        # (The shape of a view is computed by the host's kernel. A primitive without a rule runs on
        # arrays of zeros.)
        return "view" if prim.view else "rule" if has else "elementwise" if prim.elementwise else "host's on zeros"
    if has:
        return "kernel"
    if not prim.inputs:
        return "sent"
    if prim.name == "to_device":
        return "copy"
    return "view" if prim.view else ""


def signature(prim):
    """Returns the tensor arguments, then after a star the constants."""
    tensors = [f"{n}=None" if i in prim.optional else n for i, n in enumerate(prim.inputs)]
    return ", ".join([*tensors, *(["*", *prim.attrs] if prim.attrs else [])])


def gradient(prim):
    """Returns which operands have a gradient: "yes" for all of them, some names, or "-" for none.
    """
    rules = [g is not None for g in prim.grads]
    if not any(rules):
        return "-"
    return "yes" if prim.joint or prim.variadic or all(rules) and len(rules) == len(prim.inputs) else ", ".join(
        n for n, has in zip(prim.inputs, rules) if has)


def table(text=""):
    """Returns (heads, rows, totals): a row for each primitive, a column for each device."""
    on, found = devices(), primitives(text)
    plain = [d for d in on if d != "npu"]
    rows = [[n, signature(p), gradient(p), *(by(p, d) or "-" for d in plain), *(on_target(p, t) or "-" for t in targets(on))] for n, p in found.items()]
    totals = [[d, *_counts(by(p, d) for p in found.values())] for d in plain]
    totals += [[f"npu on {t}", *_counts(on_target(p, t).partition(":")[0] for p in found.values())] for t in targets(on)]
    return [*HEAD, *plain, *(f"npu on {t}" for t in targets(on))], rows, totals


KINDS = ("kernel", "rule", "elementwise", "view", "copy", "sent", "host's on zeros", "")


def _counts(kinds):
    kinds = list(kinds)
    return [str(kinds.count(k)) for k in KINDS]


def lacking(text=""):
    """Returns {device: names of the primitives that it does not support}."""
    on, found = devices(), primitives(text)
    r = {d: [n for n, p in found.items() if not by(p, d)] for d in on if d != "npu"}
    return {**r, **{f"npu on {t}": [n for n, p in found.items() if not on_target(p, t)] for t in targets(on)}}


def strangers():
    """Returns {device: kernels in its table that belong to no primitive}: in-place writes, kernels
    that are called directly, and primitives not created yet."""
    from mindtorch.backend.kernels import TABLES
    known, on = primitives(), devices()
    tables = {**{d: TABLES.get(d, {}) for d in on if d != "npu"}, **{f"npu on {t}": of_target(t) for t in targets(on)}}
    return {d: _runs(n for n in table if n not in known) for d, table in tables.items()}


def _runs(names):
    """Sorts names and merges those that differ only in a trailing number: "index_4..32"."""
    runs = {}
    for n in names:
        stem = n.rstrip("0123456789")
        runs.setdefault(stem, []).append(n[len(stem):])
    return sorted(f"{stem}{min(ends, key=int)}..{max(ends, key=int)}" if len(ends) > 1 else stem + ends[0] for stem, ends in runs.items())


TOTALS = ["device", *(k or "none" for k in KINDS)]


def text_report(text=""):
    head, rows, totals = table(text)
    lines = [_columns([head, *rows]), "", f"{len(rows)} primitives", _columns([TOTALS, *totals])]
    lines += [f"{d} has no kernel for: {' '.join(names)}" for d, names in lacking(text).items() if names]
    lines += [f"{d} also has kernels that belong to no primitive: {' '.join(names)}" for d, names in strangers().items() if names]
    return "\n".join(lines)


def markdown(text=""):
    head, rows, totals = table(text)
    lines = ["# Kernels", "", "Generated by `python -m mindtorch coverage --kernels --markdown FILE` from the records of the primitives. "
             "*rule*: shapes by the primitive's own rule; *elementwise*, *host's on zeros*: shapes by the host's kernel; *view*: geometry by the "
             "host's kernel, then the device's `view`; *sent*: no tensor inputs, the host's result is copied; *-*: computed on the host, "
             "with a warning. After a colon: the element types that a kernel supports; others are computed on the host.", "", *_markdown([TOTALS, *totals])]
    lines += ["", f"## {len(rows)} primitives", "", *_markdown([head, *rows])]
    for title, names in (("Without a kernel", lacking(text)), ("Kernels of no primitive", strangers())):
        found = [f"- {d}: {', '.join(f'`{n}`' for n in v)}" for d, v in names.items() if v]
        lines += ["", f"## {title}", "", *(found or ["None."])]
    return "\n".join(lines) + "\n"


def _columns(rows):
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in rows)


def _markdown(rows):
    cells = [[c.replace("|", "\\|").replace("*", "\\*") for c in r] for r in rows]
    return ["| " + " | ".join(r) + " |" for r in (cells[0], ["---"] * len(cells[0]), *cells[1:])]


# ------------------------------------------------------------------ one op
def names_of(op):
    """Returns the names under which a script can call an op."""
    from mindtorch.core.tensor.tensor import Tensor
    dotted = [n if "." in n or not op.ns else f"{op.ns}.{n}" for n in (op.qualname, *op.aliases)]
    plain = [op.name, *(a for a in op.aliases if "." not in a)]
    names = [f"torch.{n}" for n in dotted] if op.public is not None else []
    if op.method:
        names += [f"Tensor.{n}" for n in plain if hasattr(Tensor, n)]
    if op.inplace:
        names += [f"Tensor.{n}_" for n in plain]
    return names


def parts_of(fn, depth=2):
    """Returns the primitives that a function's code references, including those of the ops
    functions that it references."""
    return list(dict.fromkeys(x.prim.name for _, x in _referenced(fn, depth, set()) if hasattr(x, "prim")))


def _cells(f):
    """Returns the current values of a function's closure."""
    found = {}
    for n, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
        with contextlib.suppress(ValueError):  # (still empty)
            found[n] = cell.cell_contents
    return found


def place(fn):
    """Returns the source location of a function."""
    f = inspect.unwrap(fn)
    code = getattr(f, "__code__", None)
    if code is None:
        return f"{getattr(f, '__module__', None) or 'numpy'}.{getattr(f, '__name__', repr(f))}"
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return f"{os.path.relpath(code.co_filename, here)}:{code.co_firstlineno}"


def describe_op(op):
    op = op.main
    yield f"op {op.qualname}{typed(op)}"
    doc = (op.body.__doc__ or "").strip().splitlines()
    if doc:
        yield f"  {doc[0]}"
    yield f"  declared   {place(op.body)}"
    yield f"  names      {' '.join(names_of(op))}{' (out=)' if op.out else ''}"
    yield f"  aten       {op.aten_name}"
    yield f"  tags       {' '.join(sorted(op.tags)) or 'none'}{f' ({op.condition})' if op.condition else ''}"
    yield f"  promotion  {' '.join(promotions_of(op.body)) or 'none in its code'}"
    yield f"  autocast   {'depends on the arguments' if callable(op.autocast) else op.autocast or 'unchanged'}"
    if op.inplace or op.out:
        yield f"  overlap    {op.overlap or 'not checked for out='}"
    yield f"  sharding   {op.sharding or 'on complete tensors'}"
    yield f"  capture    {op.capture or 'recorded'}"
    if op.writes:
        yield f"  writes     unless {op.writes[0]} is {op.writes[1]}"
    yield f"  batching   {_batching_of_op(op)}"
    yield f"  lowering   {place(op.lowering) if op.lowering else 'by its primitives'}"
    yield f"  primitives {' '.join(parts_of(op.body)) or 'none in its code'}"
    files = tests_of(op.name)
    yield f"  tests      {' '.join(files[:8]) or 'none has its name'}{f' and {len(files) - 8} more' if len(files) > 8 else ''}"


def typed(op):
    """Returns the signature with the annotations of number parameters."""
    from mindtorch.core.dispatch.op_schema import ANNOTATIONS

    class Spelled(str):
        __repr__ = str.__str__
    kinds, given = op.arg_kinds, op.signature
    return str(given.replace(parameters=[p.replace(annotation=Spelled(ANNOTATIONS[kinds[n]])) if n in kinds else p for n, p in given.parameters.items()]))


def promotions_of(fn):
    """Returns the functions of core/dispatch/type_promotion.py that an op's code references."""
    f, found = inspect.unwrap(fn), []
    for name, x in _referenced(f, 2, set()):
        if getattr(x, "__module__", None) == "mindtorch.core.dispatch.type_promotion" and name not in found:
            found.append(name)
    return found


def _referenced(fn, depth, seen):
    """Yields (name, object) for what a function's code references, and helpers in ops/ reference."""
    f = inspect.unwrap(fn)
    code = getattr(f, "__code__", None)
    if code is None or code in seen:
        return
    seen.add(code)
    cells = _cells(f)
    for n in (*code.co_names, *code.co_freevars):
        x = cells.get(n, f.__globals__.get(n))
        yield n, x
        if depth and inspect.isfunction(x) and not hasattr(x, "prim") and x.__module__.startswith("mindtorch.ops"):
            yield from _referenced(x, depth - 1, seen)


def _batching_of_op(op):
    from mindtorch.core.transforms import vmap
    rule = vmap.RULES.get(op.qualname)
    return place(rule) if rule is not None else "by its primitives"


@functools.cache
def _words_of_tests():
    """Returns {word: {test file: how often it has the word}} of the tests next to the package."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found = collections.defaultdict(dict)
    for folder, _, names in os.walk(os.path.join(here, "tests")):
        for path in [os.path.join(folder, n) for n in names if n.endswith(".py")]:
            with open(path, encoding="utf-8") as f:
                for word, n in collections.Counter(re.findall(r"\w+", f.read())).items():
                    found[word][os.path.relpath(path, here)] = n
    return found


def tests_of(name):
    """Returns the test files that contain an op's name or that of its in-place form, those with
    most of them first."""
    words = _words_of_tests()
    counts = collections.Counter(words.get(name, {})) + collections.Counter(words.get(name + "_", {}))
    return sorted(counts, key=lambda path: (-counts[path], path))


def describe_primitive(prim):
    from mindtorch.backend.kernels import TABLES
    yield f"primitive {prim.name}({signature(prim)})"
    yield f"  gradient   {gradient(prim)}  (grad_fn {prim.node_class.__name__})"
    if prim.joint or prim.variadic:
        yield f"  rule       of all operands: {place(prim.grads[0])}"
    else:
        for n, rule in zip(prim.inputs, prim.grads):
            if rule is not None:
                yield f"  rule       of {n}: {place(rule)}"
    yield f"  tangent    {_tangent(prim)}"
    yield f"  batching   {place(prim.batch) if prim.batch is not None else 'slice by slice'}"
    traits = [t for t, has in (("raw: float16 and bfloat16 without upcast", prim.raw), ("a sequence of tensors", prim.variadic)) if has]
    if prim.nondiff:
        traits.append(f"results without gradient: {', '.join(map(str, prim.nondiff))}")
    if prim.residuals:
        traits.append(f"results that are no tensors: {', '.join(map(str, prim.residuals))}")
    yield f"  tags       {' '.join(sorted(prim.tags)) or 'none'}"
    if traits:
        yield f"  traits     {'; '.join(traits)}"
    if not prim.view:
        yield f"  strides    {_rule(prim.layout)}{'' if prim.layout.__class__ is tuple else f'  {place(prim.layout)}'}"
    on = devices()
    for d in on:
        if d != "npu":
            fn = TABLES.get(d, {}).get(prim.name)
            yield f"  {d:10} {by(prim, d) or 'none'}{f'  {place(fn)}' if fn is not None else ''}"
    for t in targets(on):
        where = _table_of_target(t).get(prim.name)
        yield f"  {f'npu {t}':10} {on_target(prim, t) or 'none'}{f'  {where[1]}' if where is not None else ''}"
    yield f"  lowering   {place(prim.lowering) if prim.lowering else 'none'}"


def _tangent(prim):
    rule = prim.forward
    if rule is None:
        return "the same view of the tangent" if prim.view else "by the gradient rules" if prim.grads else "none"
    return rule if rule.__class__ is str else place(rule)


def load_rules():
    """Loads the JVP and vmap rules, which are otherwise loaded at their first use."""
    from mindtorch.core.autograd import forward_ad
    from mindtorch.core.transforms import vmap
    for hook in (*forward_ad.at_first, *vmap.at_first):
        hook()


def _rule(rule):
    if rule.__class__ is tuple:
        return ", ".join("contiguous" if r is None else _rule(r) for r in rule)
    return rule.__qualname__.removesuffix(".<locals>.<lambda>").removesuffix(".<locals>.rule")


def describe(name):
    """Returns everything that the records contain on ops and primitives of this name, as lines; an
    empty list if there are none."""
    from mindtorch.core.dispatch.op_schema import OPS
    load_rules()
    known = primitives()
    ops = {}
    for o in OPS.values():
        if name in (o.qualname, o.name):
            ops[o.main.qualname] = o.main
    lines = []
    for o in ops.values():
        lines += [*describe_op(o), ""]
    wanted = dict.fromkeys([n for o in ops.values() for n in parts_of(o.body)] + [name.removeprefix("prim.")])
    for n in wanted:
        if n in known:
            lines += [*describe_primitive(known[n]), ""]
    return lines[:-1]
