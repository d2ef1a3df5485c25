"""`python -m mindtorch coverage`: counts what passes, is wrong or is refused, per namespace and
device, using PyTorch's op database.

The npu device is always available here: it uses MindSpore's CPU target where MindSpore has no
other. `--kernels` and `--op NAME` run no op: they print the registered information on primitives
and ops (tools/_kernels.py).
"""
import collections
import contextlib
import os
import sys

COLUMNS = ("pass", "shape only", "wrong", "error", "refused", "unchecked")
RIGHT = ("pass", "shape only")


def configure(parser):
    parser.add_argument("--samples", type=int, default=4, help="samples per op and dtype (default 4)")
    parser.add_argument("--dtypes", default="float32,int64,bool,complex64")
    parser.add_argument("--devices", default="cpu,npu", help="devices to check (default cpu,npu)")
    parser.add_argument("--npu-samples", type=int, default=2, help="samples per op and dtype on the npu device (default 2)")
    parser.add_argument("--npu-dtypes", default="float32,int64")
    parser.add_argument("--filter", default="", help="only ops whose name contains this")
    parser.add_argument("--failures", action="store_true", help="list every check that did not pass")
    parser.add_argument("--markdown", metavar="FILE", help="write the table and the failures as Markdown")
    parser.add_argument("--kernels", action="store_true", help="instead: list the primitives with a kernel on each device")
    parser.add_argument("--op", metavar="NAME", help="instead: describe one op or primitive and its kernels")


@contextlib.contextmanager
def npu():
    """Context manager that provides the npu device, on MindSpore's CPU target where there is no
    other."""
    import mindtorch.torch  # noqa: F401  (fills the tables)
    from mindtorch.core.device import device_dispatch
    if "npu" in device_dispatch.DEVICES:
        yield device_dispatch.DEVICES["npu"]
        return
    from mindtorch.backend.mindspore import npu as made
    from mindtorch.core.device import backend_autoload
    device = made.Npu("CPU")
    backend_autoload.register_device(device)
    try:
        yield device
    finally:
        backend_autoload.unregister_device(device)


@contextlib.contextmanager
def _placed(device):
    """Context manager that creates new tensors on a device. Inside it the device uses the host's
    random numbers, and CPU fallbacks do not warn."""
    if device == "cpu":
        yield
        return
    import mindtorch.torch as mt
    from mindtorch.core.device import device_dispatch, rng
    before = mt.get_default_device(), device_dispatch.fallback.policy, rng.policy.host
    mt.set_default_device(device)
    device_dispatch.fallback.policy, rng.policy.host = "silent", True
    try:
        yield
    finally:
        mt.set_default_device(before[0])
        device_dispatch.fallback.policy, rng.policy.host = before[1:]


class Judged:
    """Results of one device.

        checks    {namespace: Counter of outcomes per check}
        ops       {op: (whether every check passes, primitives that fell back to the host,
                  namespace)}
        failures  [(op, dtype, check, outcome, detail)]
    """

    def __init__(self, device, samples, dtypes):
        self.device, self.samples, self.dtypes = device, samples, dtypes
        self.checks, self.ops, self.failures = collections.defaultdict(collections.Counter), {}, []


def collect(samples, dtypes, text="", device="cpu"):
    """Returns the `Judged` of the ops whose name contains `text`."""
    from mindtorch.core.device.device_dispatch import FALLBACKS
    from mindtorch.tools import _opinfo_runner as C
    torch, db = C.real_torch()
    found = Judged(device, samples, dtypes)
    with _placed(device):
        for name, op in C.ops(db):
            if text not in name:
                continue
            ns, clean, before = C.namespace(op.name), True, dict(FALLBACKS)
            for d in dtypes:
                if not op.supports_dtype(getattr(torch, d), "cpu"):
                    continue
                seen = set()
                for check, outcome, detail in C.judge(op, d, limit=samples, device=device):
                    found.checks[ns][outcome] += 1
                    if outcome not in RIGHT:
                        clean = False
                        if check not in seen:
                            seen.add(check)
                            found.failures.append((name, d, check, outcome, detail))
            helped = {p for (dev, p), n in FALLBACKS.items() if n != before.get((dev, p))}
            found.ops[name] = clean, tuple(sorted(helped)), ns
    return found


# ------------------------------------------------------------------ ops by namespace
def summary(judged):
    """Returns (heads, rows): the number of ops in each namespace, and how many of them pass every
    check on each device."""
    head = ["namespace", "ops"]
    for j in judged:
        head += [j.device] if j.device == "cpu" else [j.device, f"{j.device} without CPU fallback"]
    by = collections.defaultdict(list)
    for name, (*_, ns) in judged[0].ops.items():
        by[ns].append(name)
    body = []
    for ns, names in [*sorted(by.items()), ("all", list(judged[0].ops))]:
        row = [ns, str(len(names))]
        for j in judged:
            clean = [n for n in names if j.ops[n][0]]
            row.append(str(len(clean)))
            if j.device != "cpu":
                row.append(str(sum(not j.ops[n][1] for n in clean)))
        body.append(row)
    return head, body


def verdict(found):
    """Describes the result of one op on one device."""
    clean, helped, _ = found
    return f"{'passes' if clean else 'fails'}{f', on the host: {chr(32).join(helped)}' if helped else ''}"


# ------------------------------------------------------------------ checks
def rows(judged):
    out, total = [], collections.Counter()
    for ns, c in sorted(judged.checks.items()):
        out.append([ns, *(str(c[k]) for k in COLUMNS), _rate(c)])
        total.update(c)
    return [*out, ["all", *(str(total[k]) for k in COLUMNS), _rate(total)]]


def _rate(c):
    n = sum(c.values())
    return f"{100 * sum(c[k] for k in RIGHT) / n:.1f}%" if n else "-"


HEAD = ["namespace", "checks passed", "shape only", "wrong", "error", "refused", "unchecked", "rate"]


def text_table(head, body):
    widths = [max(len(r[i]) for r in [head, *body]) for i in range(len(head))]
    return "\n".join("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths)))
                     for r in [head, *body])


def _table(head, body):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(r) + " |" for r in body)]


# The text between these marks is written by hand and is preserved when the page is generated.
BY_HAND = "<!-- by hand -->", "<!-- /by hand -->"


def by_hand(page):
    """Returns the hand-written lines of a page, marks included; an empty list if the page has no
    marks."""
    start, mark, rest = page.partition(BY_HAND[0])
    inside, end, _ = rest.partition(BY_HAND[1])
    return [BY_HAND[0] + inside + BY_HAND[1]] if end else []


def markdown(judged, page=""):
    """Returns the page as text; `page` is its current text, whose hand-written part is preserved.
    """
    from mindtorch.tools._comparators import COMPARATORS, SHAPE_ONLY
    lines = ["# Coverage", "", "Generated by `python -m mindtorch coverage --markdown docs/coverage.md` from PyTorch's own op database, "
             f"with up to {judged[0].samples} samples per op and dtype ({', '.join(judged[0].dtypes)}). The forward, method and in-place form of each sample, "
             "and for floating dtypes the gradient, are compared with real torch: values, dtype, shape. Random numbers use the same seed and "
             "are compared like other values.", ""]
    if len(judged) > 1:
        lines += ["*npu* is the npu device on MindSpore's CPU target (`MINDTORCH_NPU=cpu`) with the host's random numbers "
                  "(`MINDTORCH_NPU_RANDOM=host`), and every tensor is on it. "
                  f"It is checked with {judged[1].samples} samples per op and dtype ({', '.join(judged[1].dtypes)}). Primitives "
                  "without a kernel fall back to the host, which is counted: such an op "
                  "passes only with CPU fallback.", ""]
    lines += ["Ops that pass every check:", "", *_table(*summary(judged))]
    for j in judged:
        lines += ["", f"## Checks on {j.device}", "", *_table(HEAD, rows(j))]
    lines += ["", "## Failed checks", "", "*refused*: NotImplementedError, or the name does not exist; *error*: raises "
              "where torch does not; *wrong*: a result differs; *unchecked*: nothing was compared, which counts as a failure.", "",
              *_table(["device", "op", "dtype", "check", "outcome", ""], [(j.device, n, d, c, o, _cell(t)) for j in judged for n, d, c, o, t in j.failures])]
    lines += ["", "## Ops without a unique result", "", "The values of these ops are compared too. More than one "
              "result is correct (an order of equal values, a sign, a phase), so if the values differ, this property must hold instead. Gradients are always "
              "compared by value, of a function of the result that does not depend on the choice.", "",
              *_table(["op", "what must hold"], [(n, _cell(text)) for n, (text, _) in sorted(COMPARATORS.items())])]
    lines += ["", "Only shape, dtype and strides of these ops are compared:", "", *_table(["op", "why"], sorted(SHAPE_ONLY.items()))]
    for part in by_hand(page):
        lines += ["", part]
    if len(judged) > 1:
        lines += ["", "## Op by op", "", "*on the host*: the primitives of the op that the host computed.", "",
                  *_table(["op", *(j.device for j in judged)], [(n, *(verdict(j.ops[n]) for j in judged)) for n in sorted(judged[0].ops)])]
    return "\n".join(lines) + "\n"


def _cell(text):
    return text.replace("|", "\\|").replace("\n", " ")[:140]


def _records(args):
    """Runs `--kernels` and `--op`; returns the exit status."""
    from mindtorch.tools import _kernels
    if args.op:
        lines = _kernels.describe(args.op)
        print("\n".join(lines) or f"there is no op or primitive {args.op!r}", file=sys.stdout if lines else sys.stderr)
        return 0 if lines else 1
    print(_kernels.text_report(args.filter))
    if args.markdown:
        with open(args.markdown, "w", encoding="utf-8") as f:
            f.write(_kernels.markdown(args.filter))
    return 0


def main(args):
    if args.kernels or args.op:
        with npu():
            return _records(args)
    from mindtorch.tools import _opinfo_runner
    try:
        _opinfo_runner.real_torch()
    except ImportError as e:
        print(f"coverage needs real torch (pip install torch==2.13.0 expecttest): {e}", file=sys.stderr)
        return 2
    judged = []
    for device in args.devices.split(","):
        with npu() if device != "cpu" else contextlib.nullcontext():
            samples, dtypes = (args.samples, args.dtypes) if device == "cpu" else (args.npu_samples, args.npu_dtypes)
            judged.append(collect(samples, [d for d in dtypes.split(",") if d], args.filter, device))
    print(text_table(*summary(judged)))
    for j in judged:
        print(f"\non {j.device}")
        print(text_table(HEAD, rows(j)))
    if args.failures:
        for j in judged:
            for f in j.failures:
                print(j.device, *f[:4], "#", f[4].replace("\n", " ")[:200])
            for name, found in j.ops.items():
                if found[1]:
                    print(f"{j.device} {name} {verdict(found)}")
    if args.markdown:
        before = open(args.markdown, encoding="utf-8").read() if os.path.exists(args.markdown) else ""
        with open(args.markdown, "w", encoding="utf-8") as f:
            f.write(markdown(judged, before))
    return 0
