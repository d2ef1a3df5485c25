"""Runs several example flows in one process: `python _ascend_flows.py FOLDER NAME=ARGS...` records
the numbers of each flow in FOLDER/NAME.npz."""
import pathlib
import runpy
import sys

import mindspore as ms
import torch

FLOWS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "flows"
folder, *flows = sys.argv[1:]
sys.path.insert(0, str(FLOWS))
for flow in flows:
    name, _, args = flow.partition("=")
    sys.argv[:] = [name, "--device", "npu", f"--record={folder}/{name}.npz", *args.split()]
    print(f"== {name}", flush=True)
    runpy.run_path(str(FLOWS / f"{name}.py"), run_name="__main__")
    torch.npu.synchronize()
    torch.set_default_device(None)
    ms.set_context(mode=ms.PYNATIVE_MODE)
