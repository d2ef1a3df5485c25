"""The implementations that are compared, and the process that runs one of them."""
import json
import os
import resource
import sys
import time

SIDES = ["torch", "mindspore", "mindspore-tuned", "mindspore-jit", "mindtorch", "mindtorch-compiled"]


def build(side, model):
    """step() of a model for one implementation, in this process."""
    if side == "torch":
        import torch
        import models
        return models.training_step(torch, model)
    if side == "mindtorch-npu":
        os.environ["MINDTORCH_NPU"] = "cpu"
        import mindtorch.torch as torch
        import models
        if os.environ.get("OMP_NUM_THREADS"):
            import mindspore as ms
            ms.runtime.dispatch_threads_num(1)
            ms.set_context(runtime_num_threads=int(os.environ["OMP_NUM_THREADS"]))
        torch.set_default_device("npu")
        return models.moved(models.MODELS[model](torch), "npu").step(torch, False)
    if side.startswith("mindtorch"):
        import mindtorch.torch as torch
        import models
        return models.training_step(torch, model, compiled=side == "mindtorch-compiled")
    shipped = side == "mindspore"
    os.environ.setdefault("GLOG_v", "3")
    if not shipped:
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    import mindspore as ms
    if not shipped:
        ms.runtime.launch_blocking()
    if os.environ.get("OMP_NUM_THREADS"):
        ms.runtime.dispatch_threads_num(1)
        ms.set_context(runtime_num_threads=int(os.environ["OMP_NUM_THREADS"]))
    import ms_models
    return ms_models.MODELS[model](ms, not shipped, side == "mindspore-jit")


def peak_memory():
    """Largest resident size of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def worker(side, model, warm=3):
    """Answers each line 'n' on stdin with the wall and CPU time of n steps, and the peak of memory since the start."""
    start = time.perf_counter()
    step = build(side, model)
    losses = [step() for _ in range(warm)]
    print(json.dumps({"losses": losses, "memory": peak_memory(), "start": time.perf_counter() - start}), flush=True)
    for line in sys.stdin:
        walls, cpus = [], []
        for _ in range(int(line)):
            w, c = time.perf_counter(), time.process_time()
            step()
            walls.append(time.perf_counter() - w)
            cpus.append(time.process_time() - c)
        print(json.dumps({"wall": walls, "cpu": cpus, "memory": peak_memory()}), flush=True)
