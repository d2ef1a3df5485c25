"""The log of the stand-in, read and told."""
from __future__ import annotations

import collections
import dataclasses
import json

#: what a report must not be taken for
NOT_SHOWN = """\
What this does not show: the numbers of a chip (launches were computed on the host, in its precision), its speed, and limits of CANN beyond the documented
dtypes: shapes, layouts, memory of kernels, what has to be compiled."""


@dataclasses.dataclass
class Found:
    """What a log says: launches and ops of the old way by kernel; copies by (direction, place) with their number and bytes."""

    launches: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    aclop: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    copies: dict = dataclasses.field(default_factory=dict)
    collectives: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    fallbacks: collections.Counter = dataclasses.field(default_factory=collections.Counter)      # primitives that the host computed
    refused: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failed: list = dataclasses.field(default_factory=list)
    random: str = ""        # where random numbers came from: "host" or "device"
    unreadable: int = 0     # lines that are no JSON: of a process that was killed
    memory: int = 0         # bytes taken from the device at once, at most
    allocated: int = 0      # bytes of tensors at once, at most

    def count(self, direction):
        """Copies of one direction, `H2D` or `D2H`."""
        return sum(n for (d, _), (n, _) in self.copies.items() if d == direction)

    def as_dict(self):
        """For JSON."""
        return {"launches": dict(self.launches.most_common()), "aclop": dict(self.aclop.most_common()),
                "copies": [{"direction": d, "site": s, "copies": n, "bytes": b} for (d, s), (n, b) in self.copies.items()],
                "collectives": dict(self.collectives), "fallbacks": dict(self.fallbacks), "refused": dict(self.refused), "failed": self.failed,
                "random": self.random, "memory": self.memory, "allocated": self.allocated, "unreadable": self.unreadable,
                "not shown": " ".join(NOT_SHOWN.split())}


def read(path, start=0, end=None) -> Found:
    """What stands in a log between two places (bytes)."""
    with open(path, "rb") as f:
        f.seek(start)
        return tell(f.read() if end is None else f.read(end - start))


def tell(data) -> Found:
    """What lines of a log say."""
    found = Found()
    for line in data.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            found.unreadable += 1
            continue
        if "launch" in said:
            found.launches[said["launch"]] += 1
        elif "aclop" in said:
            found.aclop[said["aclop"]] += 1
        elif "copy" in said:
            n, size = found.copies.get((said["copy"], said.get("site", "")), (0, 0))
            found.copies[said["copy"], said.get("site", "")] = n + 1, size + said["bytes"]
        elif "hccl" in said:
            found.collectives[said["hccl"]] += 1
        elif "refused" in said:
            found.refused[f"{said['refused']}: {said['why']}"] += 1
        elif "failed" in said:
            found.failed.append(said["failed"])
        found.fallbacks.update(said.get("fallbacks", {}))
        found.random = said.get("random", found.random)
        found.memory = max(found.memory, said.get("memory", 0))
        found.allocated = max(found.allocated, said.get("allocated", 0))
    return found


def text(found: Found, most=40) -> str:
    """The report."""
    collectives = f", {sum(found.collectives.values())} collectives" if found.collectives else ""
    lines = [f"launches: {sum(found.launches.values())} of {len(found.launches)} kernels{collectives}"]
    lines += _table(found.launches, most)
    lines.append(f"aclop (the old way, compiled on line on a chip): {sum(found.aclop.values())}")
    lines += _table(found.aclop, most)
    lines += _table(found.collectives, most)
    if found.fallbacks:
        lines.append(f"computed on the host, with copies there and back, for want of a kernel: {sum(found.fallbacks.values())}")
        lines += _table(found.fallbacks, most)
    for direction, words in (("H2D", "to the device"), ("D2H", "from the device")):
        rows = sorted(((n, size, site) for (d, site), (n, size) in found.copies.items() if d == direction), reverse=True)
        lines.append(f"copies {words} ({direction}): {sum(r[0] for r in rows)}, {size(sum(r[1] for r in rows))}")
        lines += [f"  {n:>8}  {size(n_bytes):>10}  {site or '(not by Python)'}" for n, n_bytes, site in rows[:most]]
        if len(rows) > most:
            lines.append(f"            and {len(rows) - most} more places")
    if found.random == "host":
        lines.append("  random numbers among them: drawn on the host, so that losses compare (--random device: by kernels)")
    tensors = f"{size(found.allocated)} of tensors, " if found.allocated else ""       # (who ends without Python's exit handlers does not tell)
    lines.append(f"device memory: at most {tensors}{size(found.memory)} taken from the device")
    lines += [f"refused by the chip's limits: {what} ({n})" for what, n in found.refused.most_common()]
    lines += [f"FAILED: {what}" for what in found.failed]
    if found.unreadable:
        lines.append(f"lines of the log that cannot be read: {found.unreadable}")
    return "\n".join([*lines, NOT_SHOWN])


def _table(counts, most):
    rows = [f"  {n:>8}  {name}" for name, n in counts.most_common(most)]
    if len(counts) > most:
        rows.append(f"            and {len(counts) - most} more, {sum(n for _, n in counts.most_common()[most:])}")
    return rows


def size(n):
    """Bytes in words."""
    for unit, least in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if n >= least:
            return f"{n / least:.1f} {unit}"
    return f"{n} B"
