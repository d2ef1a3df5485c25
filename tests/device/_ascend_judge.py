"""Checks ops of PyTorch's op database on the Ascend target in float32. test_ascend_ops.py runs it
in a separate process.

Argument: a file with the op names, separated by blanks. It prints a JSON object on standard output:
name -> failures. Ops that PyTorch defines only for integers are checked in int64.
"""
import json
import os
import sys

os.environ["MINDTORCH_NPU_FALLBACK"] = "0"
import mindspore as ms  # noqa: E402
ms.set_device("Ascend")
import _on_device  # noqa: E402
import mindtorch.torch as mt  # noqa: E402
from mindtorch.core.device import rng  # noqa: E402
from mindtorch.tools import _opinfo_runner as C  # noqa: E402

WHOLE = {"bincount", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "nn.functional.one_hot"}
rng.policy.host = True  # makes random numbers comparable
with open(sys.argv[1]) as f:
    wanted = set(f.read().split())
found = {}
with _on_device.Everything("npu"):
    assert mt.device("npu").type == "npu"
    for name, op in C.ops():
        if name in wanted:
            print(name, file=sys.stderr, flush=True)  # shows where the process died
            dtype = "int64" if op.name in WHOLE else "float32"
            found[name] = [f"{check} {outcome}: {detail}" for check, outcome, detail in C.judge(op, dtype, limit=2) if outcome not in ("pass", "shape only")]
print("found", json.dumps(found))
