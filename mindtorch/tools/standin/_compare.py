"""Runs one script under mindtorch and under torch_npu on the simulator and compares what they did.

torch_npu is an independent reference: its choice of kernels and their arguments run on real chips.
"""
from __future__ import annotations

import collections
import dataclasses
import difflib
import json
import os
import re
import statistics
import struct
import sys
import tempfile

from mindtorch.tools.standin import _plugins, _report, _running

#: columns of the comparison
SIDES = {"mindtorch": _plugins.MINDSPORE, "torch_npu": _plugins.REFERENCE}
VARIABLES = {"MINDTORCH_STANDIN_STEPS": "1", "MINDTORCH_STANDIN_FLOATING": "1"}
#: printed numbers that differ by more than this part of the reference's are listed
RTOL = 1e-4
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")
#: lists of kernels longer than this are compared without their order
_ALIGNED = 20_000


@dataclasses.dataclass
class Launch:
    """A launch: the kernel, and its arguments as text."""

    kernel: str
    args: tuple[str, ...]


@dataclasses.dataclass
class Side:
    """What one library did."""

    launches: list[Launch] = dataclasses.field(default_factory=list)          # of the last step, or of the run if there is no step
    copies: collections.Counter = dataclasses.field(default_factory=collections.Counter)      # of the last step or the run, by direction
    total: _report.Found = dataclasses.field(default_factory=_report.Found)   # of the run
    steps: list[dict[str, float]] = dataclasses.field(default_factory=list)   # times (`_steps.mark`)
    printed: str = ""

    def time(self, clock):
        """Returns the median of a clock over the second half of the steps, in ms, or None. The first
        steps compile and fill caches."""
        late = self.steps[(len(self.steps) + 1) // 2:]
        return statistics.median(s[clock] for s in late) if late else None


def split_arguments(text):
    """Splits the arguments of a launch: `T[2,3]f32, S(f32)0.5` -> ("T[2,3]f32", "S(f32)0.5")."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    return (*parts, text[start:].strip()) if text.strip() else ()


def _floating(kernel, words):
    """Returns the values of a kernel's `double` and `float` arguments, from its floating registers."""
    from mindtorch.tools.standin.kernels import _table
    entry = _table.KERNELS.get(kernel.removeprefix("aclnn"))
    kinds = [a.kind for a in entry.arguments if a.kind in ("double", "float")] if entry else []
    data = [w.to_bytes(8, "little") for w in words]
    return tuple(f"{struct.unpack('<d', d)[0] if k == 'double' else struct.unpack('<f', d[:4])[0]:.7g}" for k, d in zip(kinds, data))


def read(log, printed="") -> Side:
    """Reads one side's log."""
    with open(log, "rb") as f:
        data = f.read()
    side = Side(total=_report.parse(data), printed=printed)
    launches, copies, marked = [], collections.Counter(), None
    for line in data.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:  # (of a killed process)
            continue
        if "launch" in entry:
            launches.append(Launch(entry["launch"], split_arguments(entry["args"]) + _floating(entry["launch"], entry.get("floating", ()))))
        elif "aclop" in entry:
            launches.append(Launch(f"aclop {entry['aclop']}", (*split_arguments(entry["args"].replace(" -> ", ", ")), json.dumps(entry["attributes"]))))
        elif "copy" in entry:
            copies[entry["copy"]] += 1
        elif "step" in entry:
            side.steps.append({k: entry[k] for k in ("wall", "main", "all")})
            marked, launches, copies = (launches, copies), [], collections.Counter()
    side.launches, side.copies = marked or (launches, copies)
    return side


def _described(argument):
    """Returns an argument without its sizes and addresses: what a kernel's choice of it is."""
    tensor = re.fullmatch(r"T\[(.*?)\](\w+)(.*)", argument)
    if not tensor:
        return argument
    return f"T{len(tensor[1].split(',')) if tensor[1] else 0}d {tensor[2]}" + (" strided" if "strides" in tensor[3] else "")


def differences(mine, other):
    """Returns a Counter of (kernel, position, my argument, the other's) over aligned launches.

    Launches are aligned by the order of kernels. Tensors differ in their dtype, number of dimensions
    or strides, other arguments in their value.
    """
    found = collections.Counter()
    if max(len(mine), len(other)) > _ALIGNED:
        return found
    matcher = difflib.SequenceMatcher(None, [x.kernel for x in mine], [x.kernel for x in other], autojunk=False)
    for a, b, n in matcher.get_matching_blocks():
        for x, y in zip(mine[a:a + n], other[b:b + n]):
            if len(x.args) != len(y.args):
                found[x.kernel, None, f"{len(x.args)} arguments", f"{len(y.args)} arguments"] += 1
                continue
            for k, (s, t) in enumerate(zip(x.args, y.args)):
                if "?" not in (s, t) and _described(s) != _described(t):        # (?: an address)
                    found[x.kernel, k, _described(s), _described(t)] += 1
    return found


def numbers(mine, other):
    """Compares the numbers in two texts, line by line.

    Returns (count, largest relative difference, [(line, line)] that differ by more than RTOL, or in
    their words). nan equals nan.
    """
    count, largest, wrong = 0, 0.0, []
    lines, others = mine.splitlines(), other.splitlines()
    for x, y in zip(lines, others):
        a, b = _NUMBER.findall(x), _NUMBER.findall(y)
        if _NUMBER.sub("#", x) != _NUMBER.sub("#", y):
            wrong.append((x, y))
            continue
        worst = 0.0
        for s, t in zip(a, b):
            v, w = float(s), float(t)
            count += 1
            if v != w and not (v != v and w != w):
                worst = max(worst, abs(v - w) / max(abs(w), 1e-30) if abs(v) != float("inf") and v == v and w == w else float("inf"))
        largest = max(largest, worst)
        if worst > RTOL:
            wrong.append((x, y))
    wrong += [(x, "(nothing)") for x in lines[len(others):]] + [("(nothing)", y) for y in others[len(lines):]]
    return count, largest, wrong


def compared(mine: Side, other: Side) -> dict:
    """Returns the comparison as a dict of JSON types."""
    counts = [collections.Counter(x.kernel for x in side.launches) for side in (mine, other)]
    count, largest, wrong = numbers(mine.printed, other.printed)
    rows = {}
    for name, of in (("launches", lambda s: len(s.launches)), ("copies to the device", lambda s: s.copies["H2D"]),
                     ("copies from the device", lambda s: s.copies["D2H"]),
                     ("peak memory of tensors", lambda s: s.total.allocated), ("peak memory of the device", lambda s: s.total.memory),
                     ("host ms, main thread", lambda s: s.time("main")), ("host ms, all threads", lambda s: s.time("all")),
                     ("wall ms", lambda s: s.time("wall"))):
        rows[name] = [of(mine), of(other)]
    return {
        "steps": [len(mine.steps), len(other.steps)],
        "rows": rows,
        "kernels of one side": [{k: n for k, n in (a - b).most_common()} for a, b in (counts, counts[::-1])],
        "arguments": [[kernel, position, a, b, n] for (kernel, position, a, b), n in differences(mine.launches, other.launches).most_common()],
        "numbers": {"count": count, "largest relative difference": largest, "lines": wrong},
        "host fallbacks": dict(mine.total.fallbacks),
    }


def text(found) -> str:
    """Returns a comparison as text."""
    per = "the last optimizer step" if all(found["steps"]) else "the whole run (no optimizer step)"
    lines = [f"{per:34s} {'mindtorch':>12} {'torch_npu':>12}"]
    for name, values in found["rows"].items():
        if all(v is not None for v in values):
            shown = [_report.size(v) if "memory" in name else f"{v:.2f}" if isinstance(v, float) else str(v) for v in values]
            lines.append(f"{name:34s} {shown[0]:>12} {shown[1]:>12}")
    for side, more in zip(SIDES, found["kernels of one side"]):
        lines.append(f"launched more often, or only, by {side}: {', '.join(f'{k} +{n}' for k, n in more.items()) or 'none'}")
    if found["host fallbacks"]:
        lines.append("computed on the host by mindtorch: " + ", ".join(f"{k} {n}" for k, n in found["host fallbacks"].items()))
    lines.append(f"arguments that differ in aligned launches: {len(found['arguments']) or 'none'}")
    for kernel, position, a, b, n in found["arguments"]:
        lines.append(f"  {n:4d}  {kernel} {'' if position is None else f'argument {position}'}: {a} / {b}")
    compared_numbers = found["numbers"]
    lines.append(f"printed numbers: {compared_numbers['count']}, largest relative difference {compared_numbers['largest relative difference']:.2g}")
    for a, b in compared_numbers["lines"][:20]:
        lines += [f"  mindtorch  {a}", f"  torch_npu  {b}"]
    if len(compared_numbers["lines"]) > 20:
        lines.append(f"  and {len(compared_numbers['lines']) - 20} more lines")
    return "\n".join([*lines, _report.LIMITATIONS])


def main(args):
    """Runs both sides and prints the comparison. Returns 1 if the script failed on a side, else 0."""
    with tempfile.TemporaryDirectory(prefix="standin-") as folder:
        if args.logs:
            os.makedirs(args.logs, exist_ok=True)
            folder = args.logs
        sides = {}
        for name, plugin in SIDES.items():
            log = os.path.join(os.path.abspath(folder), f"{name}.log")
            open(log, "w").close()
            outcome = _running.run(args, plugin, log, VARIABLES, capture=True)
            side = sides[name] = read(log, outcome.printed)
            status = outcome.exit_status(side.total.failed)
            if status:
                print(outcome.printed, end="")
                print(f"python -m mindtorch standin compare: the script failed under {name}: "
                      f"{outcome.failure(side.total.failed) or f'exit status {status}'}", file=sys.stderr)
                return 1
        found = compared(*sides.values())
    print(text(found))
    if args.json:
        with open(args.json, "w") as f:
            json.dump(found, f, indent=1)
    return 0
