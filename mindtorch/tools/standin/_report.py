"""Reads the simulator's log and prints a report."""
from __future__ import annotations

import collections
import dataclasses
import json

#: what a report does not show
LIMITATIONS = """\
What this does not show: numeric results of a chip (launches were computed on the host, in its precision), its speed, and limits of CANN beyond the documented
dtypes: shapes, layouts, memory of kernels, online compilation."""


@dataclasses.dataclass
class Found:
    """Contents of a log: launches and legacy ops (aclop) by kernel; copies by (direction, source
    line) with their number and bytes."""

    launches: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    aclop: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    copies: dict = dataclasses.field(default_factory=dict)
    collectives: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    fallbacks: collections.Counter = dataclasses.field(default_factory=collections.Counter)      # primitives that the host computed
    refused: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failed: list = dataclasses.field(default_factory=list)
    random: str = ""  # source of random numbers: "host" or "device"
    unreadable: int = 0  # invalid lines, from a killed process
    memory: int = 0  # peak bytes reserved on the device
    allocated: int = 0  # peak bytes of tensors

    def count(self, direction):
        """Returns the number of copies in one direction, `H2D` or `D2H`."""
        return sum(n for (d, _), (n, _) in self.copies.items() if d == direction)

    def as_dict(self):
        """Returns a dict of JSON types."""
        return {"launches": dict(self.launches.most_common()), "aclop": dict(self.aclop.most_common()),
                "copies": [{"direction": d, "site": s, "copies": n, "bytes": b} for (d, s), (n, b) in self.copies.items()],
                "collectives": dict(self.collectives), "fallbacks": dict(self.fallbacks), "refused": dict(self.refused), "failed": self.failed,
                "random": self.random, "memory": self.memory, "allocated": self.allocated, "unreadable": self.unreadable,
                "not shown": " ".join(LIMITATIONS.split())}


def read(path, start=0, end=None) -> Found:
    """Reads a log between two byte offsets."""
    with open(path, "rb") as f:
        f.seek(start)
        return parse(f.read() if end is None else f.read(end - start))


def parse(data) -> Found:
    """Parses lines of a log."""
    found = Found()
    for line in data.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            found.unreadable += 1
            continue
        if "launch" in entry:
            found.launches[entry["launch"]] += 1
        elif "aclop" in entry:
            found.aclop[entry["aclop"]] += 1
        elif "copy" in entry:
            n, size = found.copies.get((entry["copy"], entry.get("site", "")), (0, 0))
            found.copies[entry["copy"], entry.get("site", "")] = n + 1, size + entry["bytes"]
        elif "hccl" in entry:
            found.collectives[entry["hccl"]] += 1
        elif "refused" in entry:
            found.refused[f"{entry['refused']}: {entry['why']}"] += 1
        elif "failed" in entry:
            found.failed.append(entry["failed"])
        found.fallbacks.update(entry.get("fallbacks", {}))
        found.random = entry.get("random", found.random)
        found.memory = max(found.memory, entry.get("memory", 0))
        found.allocated = max(found.allocated, entry.get("allocated", 0))
    return found


def text(found: Found, most=40) -> str:
    """Returns the report as text."""
    collectives = f", {sum(found.collectives.values())} collectives" if found.collectives else ""
    lines = [f"launches: {sum(found.launches.values())} of {len(found.launches)} kernels{collectives}"]
    lines += _table(found.launches, most)
    lines.append(f"aclop (legacy ops, compiled online on a chip): {sum(found.aclop.values())}")
    lines += _table(found.aclop, most)
    lines += _table(found.collectives, most)
    if found.fallbacks:
        lines.append(f"computed on the host because the device has no kernel, with copies there and back: {sum(found.fallbacks.values())}")
        lines += _table(found.fallbacks, most)
    for direction, words in (("H2D", "to the device"), ("D2H", "from the device")):
        rows = sorted(((n, size, site) for (d, site), (n, size) in found.copies.items() if d == direction), reverse=True)
        lines.append(f"copies {words} ({direction}): {sum(r[0] for r in rows)}, {size(sum(r[1] for r in rows))}")
        lines += [f"  {n:>8}  {size(n_bytes):>10}  {site or '(not by Python)'}" for n, n_bytes, site in rows[:most]]
        if len(rows) > most:
            lines.append(f"            and {len(rows) - most} more lines of code")
    if found.random == "host":
        lines.append("  including random numbers: drawn on the host, so that losses are comparable (--random device: drawn by kernels)")
    # (a process that ends without Python's exit handlers does not log it)
    tensors = f"{size(found.allocated)} of tensors, " if found.allocated else ""
    lines.append(f"device memory: peak {tensors}{size(found.memory)} reserved on the device")
    lines += [f"refused by the chip's limits: {what} ({n})" for what, n in found.refused.most_common()]
    lines += [f"FAILED: {what}" for what in found.failed]
    if found.unreadable:
        lines.append(f"lines of the log that cannot be read: {found.unreadable}")
    return "\n".join([*lines, LIMITATIONS])


def _table(counts, most):
    rows = [f"  {n:>8}  {name}" for name, n in counts.most_common(most)]
    if len(counts) > most:
        rows.append(f"            and {len(counts) - most} more, {sum(n for _, n in counts.most_common()[most:])}")
    return rows


def size(n):
    """Formats a number of bytes."""
    for unit, least in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if n >= least:
            return f"{n / least:.1f} {unit}"
    return f"{n} B"
