"""Kernel launches of a log that a chip rejects according to CANN's documentation.

    ascend_limits.py [--chip Ascend910B] [--without] log ...

A log has one JSON object per line, {"launch": "aclnnAdd", "args": "T[2,3]f32, T[2,3]f32, S(i64)1,
T[2,3]f32"}. Objects without "launch" are skipped. The limits are those of
mindtorch/tools/standin/limits.json. Each rejection is printed once, with the number of its launches.
`--without` also lists the kernels that have no limits. The exit status is 1 if any launch is
rejected.
"""
import argparse
import collections
import json
import re
import sys

from mindtorch.tools.standin import limits


def refusals(lines, chip):
    """Returns Counters of (reason, arguments without shapes) and of kernels without limits."""
    refused, without = collections.Counter(), collections.Counter()
    for line in lines:
        said = json.loads(line)
        if "launch" not in said:
            continue
        name = said["launch"].removeprefix("aclnn")
        if name not in limits.limits():
            without[name] += 1
        elif why := limits.check(name, limits.launched(said.get("args", "")), chip):
            refused[why, re.sub(r"\[[^]]*\]", "[]", said["args"])] += 1
    return refused, without


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("logs", nargs="+")
    p.add_argument("--chip", default="Ascend910B")
    p.add_argument("--without", action="store_true")
    args = p.parse_args()
    refused, without = collections.Counter(), collections.Counter()
    for log in args.logs:
        with open(log) as f:
            a, b = refusals(f, args.chip)
        refused += a
        without += b
    for (why, text), n in sorted(refused.items()):
        print(f"{n:6} {why}\n       {text}")
    if args.without:
        print("without limits:", ", ".join(f"{k} {n}" for k, n in without.most_common()) or "-")
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main())
