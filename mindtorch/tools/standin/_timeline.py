"""Page of the simulator's log: launches, copies and device memory over time."""
from __future__ import annotations

import collections
import json

from mindtorch.tools.html import document, svg
from mindtorch.tools.standin import _report

MOST_LANES = 24  # rows per process: the remaining kernels share one
MOST_PROCESSES = 16
CAPTION = """\
Each mark is an event, at the time of this machine's clock; events on the same pixel share a mark, whose height grows with their number. A launch waits for
the previous one and is computed by the host. So the order and the number of launches are the device's, but the gaps are not: they show where the script's
Python, MindSpore and the simulator spent time here."""


def read(path) -> dict[int, list]:
    """Returns {process: [(ms since the log's first entry, entry)]} of a log. Truncated lines and
    entries without a time (of older versions) are skipped."""
    found: dict[int, list] = {}
    with open(path, "rb") as f:
        for line in f:
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and "t" in entry:
                found.setdefault(entry.get("pid", 0), []).append((float(entry["t"]), entry))
    first = min((t for entries in found.values() for t, _ in entries), default=0.0)
    return {pid: sorted(((t - first, entry) for t, entry in entries), key=lambda e: e[0]) for pid, entries in found.items()}


def lanes(entries):
    """Returns ([(row, color, [(ms, text)])], [(ms, bytes)]): kernels by number of launches, the
    remaining kernels, copies, collectives; and the memory."""
    kernels: dict[str, list] = {}
    others: dict[str, list] = collections.defaultdict(list)
    memory = []
    several = len({entry["stream"] for _, entry in entries if "stream" in entry}) > 1
    for t, entry in entries:
        if "launch" in entry:
            name = entry["launch"] + (f", stream {entry['stream']}" if several and "stream" in entry else "")
            kernels.setdefault(name, []).append((t, entry.get("args", "")))
        elif "aclop" in entry:
            others["aclop (legacy ops)"].append((t, f"{entry['aclop']} {entry.get('args', '')}"))
        elif "copy" in entry:
            words = f"{_report.size(entry['bytes'])}" + (f", {entry['site']}" if entry.get("site") else "")
            others[{"H2D": "copies to the device", "D2H": "copies from the device"}.get(entry["copy"], f"copies {entry['copy']}")].append((t, words))
        elif "hccl" in entry:
            others["collectives"].append((t, entry["hccl"]))
        elif "failed" in entry or "refused" in entry:
            others["FAILED" if "failed" in entry else "refused"].append((t, str(entry.get("failed", entry.get("refused")))))
        if "memory" in entry:
            memory.append((t, entry["memory"]))
    order = sorted(kernels, key=lambda name: (-len(kernels[name]), name))
    drawn = order if len(order) <= MOST_LANES else order[:MOST_LANES - 1]
    rows = [(name, "--theirs", kernels[name]) for name in drawn]
    if len(drawn) < len(order):
        rows.append((f"{len(order) - len(drawn)} other kernels", "--noise", sorted(e for name in order[len(drawn):] for e in kernels[name])))
    colors = {"copies to the device": "--ours", "copies from the device": "--slight", "collectives": "--third", "FAILED": "--different",
              "refused": "--different", "aclop (legacy ops)": "--different"}
    rows += [(name, colors.get(name, "--fourth"), others[name]) for name in (*colors, *(n for n in others if n not in colors)) if name in others]
    return rows, memory


def page(path, found) -> str:
    """Returns the page's text. `found`: the log's counts (`_report.read`)."""
    processes = {pid: entries for pid, entries in read(path).items() if any(e.keys() & {"launch", "aclop", "copy"} for _, e in entries)}
    end = max((entries[-1][0] for entries in processes.values()), default=1.0)
    parts = []
    for k, (pid, entries) in enumerate(sorted(processes.items(), key=lambda p: p[1][0][0])[:MOST_PROCESSES]):
        rows, memory = lanes(entries)
        name = "Launches over time" if len(processes) == 1 else f"Process {k} (pid {pid})"
        drawn = svg.lanes(rows, ("memory of the device", memory, _report.size), end, f"{name}: kernels, copies and memory, one row each")
        parts.append((name, drawn, CAPTION if not k else ""))
    if not processes:
        parts.append(("Launches over time", "", "Nothing was launched."))
    elif len(processes) > MOST_PROCESSES:
        parts.append((f"{len(processes) - MOST_PROCESSES} more processes", "", "They are only in the summary."))
    parts.append(("Summary", document.plain(_report.text(found)), ""))
    return document.document("CANN simulator log", f"{sum(found.launches.values())} launches of {len(found.launches)} kernels", parts)
