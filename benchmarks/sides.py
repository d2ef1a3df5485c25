"""Implementations under comparison, and the worker process that runs one of them."""
import json
import os
import resource
import sys
import time

#: Sides that run.py compares by default. npu.py and step_graph.py request further ones.
SIDES = ["torch", "torch-compiled", "mindspore", "mindspore-tuned", "mindspore-jit", "mindtorch", "mindtorch-compiled"]
#: Sides that run the large models, which have no hand-written MindSpore version.
FACADES = ["torch", "torch-compiled", "mindtorch", "mindtorch-compiled"]


def _threads(ms):
    """Limits MindSpore's own threads to OMP_NUM_THREADS, if that is set."""
    if os.environ.get("OMP_NUM_THREADS"):
        ms.runtime.dispatch_threads_num(1)
        ms.set_context(runtime_num_threads=int(os.environ["OMP_NUM_THREADS"]))


def task(torch, model):
    """Returns the Task of a model of models.py or large_models.py.

    Large models may also be named `name@batch` or `name@tiny`.
    """
    import large_models
    import models
    return models.MODELS[model](torch) if model in models.MODELS else large_models.build(torch, model)


def training_step(torch, model, compiled=False):
    """Returns step() of a model, run by the library `torch` (PyTorch or mindtorch)."""
    return task(torch, model).step(torch, compiled)


def _mindtorch(side, model):
    npu = side.startswith("mindtorch-npu")
    if npu:
        os.environ["MINDTORCH_NPU"] = "cpu"
    import mindtorch.torch as torch
    if not npu:
        return training_step(torch, model, compiled=side == "mindtorch-compiled")
    import mindspore as ms
    import models
    _threads(ms)
    torch.set_default_device("npu")
    there = models.moved(task(torch, model), "npu")
    return there.whole_step(torch, backend="mindspore") if side == "mindtorch-npu-graph" else there.step(torch, False)


def _mindspore(side, model):
    """Returns step() of the hand-written MindSpore model.

    - `mindspore`: as shipped.
    - `mindspore-tuned`: tuned model and runtime settings.
    - `mindspore-jit`: the whole step as one graph.
    - `mindspore-jit-async`: the same without blocking launches.
    - `mindspore-jit-O1`: the same with fusion (jit_level O1).
    - `mindspore-jit-inline`: the same in the calling thread, by a private switch of MindSpore (see
      step_graph.py).
    """
    shipped = side == "mindspore"
    os.environ.setdefault("GLOG_v", "3")
    if not shipped:
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")
    import mindspore as ms
    if not (shipped or side.endswith("-async")):
        ms.runtime.launch_blocking()
    _threads(ms)
    if side.endswith("-inline"):
        from mindspore.graph.api import _pynative_executor
        _pynative_executor.disable_frontend_and_bprop_pipeline()
    import ms_models
    jit = {"jit_level": "O1" if side.endswith("-O1") else "O0"} if side.startswith("mindspore-jit") else None
    return ms_models.MODELS[model](ms, not shipped, jit)


def build(side, model):
    """Builds step() of a model for one implementation, in this process."""
    if side in ("torch", "torch-compiled"):
        import torch
        return training_step(torch, model, compiled=side == "torch-compiled")
    return (_mindtorch if side.startswith("mindtorch") else _mindspore)(side, model)


def peak_memory():
    """Returns the peak resident size of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _timed(step):
    """Runs a step and returns (loss, wall seconds, CPU seconds)."""
    w, c = time.perf_counter(), time.process_time()
    loss = step()
    return loss, time.perf_counter() - w, time.process_time() - c


def worker(side, model, warm="3"):
    """Worker process of one side.

    Prints the losses and times of the first `warm` steps. Then answers each line on stdin, a number
    of steps, with the wall and CPU times of these steps and the peak memory.
    """
    start = time.perf_counter()
    if side.startswith("torch"):
        import torch  # noqa: F401
    elif side.startswith("mindtorch"):
        os.environ.update({"MINDTORCH_NPU": "cpu"} if side.startswith("mindtorch-npu") else {})
        import mindtorch.torch  # noqa: F401
    imported = peak_memory()
    step = build(side, model)
    losses, walls, cpus = zip(*[_timed(step) for _ in range(int(warm))])
    print(json.dumps({"losses": losses, "first": {"wall": walls, "cpu": cpus}, "memory": peak_memory(), "imported": imported,
          "start": time.perf_counter() - start}), flush=True)
    for line in sys.stdin:
        _, walls, cpus = zip(*[_timed(step) for _ in range(int(line))])
        print(json.dumps({"wall": walls, "cpu": cpus, "memory": peak_memory()}), flush=True)
