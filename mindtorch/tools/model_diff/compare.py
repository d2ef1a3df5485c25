"""`compare_layers`: runs one model under the facade and under PyTorch, layer by layer, and finds
the first divergence."""
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

import mindtorch
from mindtorch.tools.model_diff import activation_recorder
from mindtorch.tools.model_diff.first_divergence import CompareError, Comparison
from mindtorch.tools.model_diff.sides import DEFAULT_SIDES, parse_sides


def compare_layers(target, builder=None, *, inputs=None, shapes=(), state=None, loss=None, targets=(), steps=0,
                   optimizer="sgd", fault=None, seed=0, dropout="off", ops=False, grads=True, workdir=None,
                   torch_python=None, timeout=600, sides="torch,cpu", before=None, standin=None,
                   kernels=(), statistics=False, layers=(), every=1):
    """Runs a model under the facade and under PyTorch, or on two devices, from the same weights and
    inputs, and compares all recorded values.

        target        'script.py:build_model', or a script's path with `builder`, or the builder
                      function itself (a module-level function); it returns a torch.nn.Module, or a
                      pair of the module and its inputs
        inputs        arrays: a list for positional inputs, a dict by name, or the path of an .npz
                      file
        shapes        instead of inputs: shapes of random inputs, as (8, 3, 32, 32) or
                      '8,16:int64:100' (integers below 100)
        state         a state dict written by PyTorch, loaded first; by default the initial weights
                      of the reference are used
        loss          name of a function of the script: loss(output, *targets) -> scalar; default: a
                      fixed random projection
        steps         optimizer steps to compare after the first backward (an int: how many;
                      '0,10,100-110' or a list: which ones), with `optimizer`: sgd, adam, adamw or
                      the name of a function of the script, optimizer(model)
        fault         name of a function of the script, fault(model), applied on the second side
                      only (to test the comparison)
        dropout       'off' (probabilities become 0) or 'seeded' (both sides use the same seed)
        ops           also record functions and Tensor methods called between the modules
        torch_python  the interpreter that has PyTorch (default: this one)
        sides         where it runs: two of torch, cpu, npu, each with an optional dtype
                      ('npu:float32,npu:bfloat16') to which the model and its floating inputs are
                      cast; the second is compared with the first, by the tolerance of the coarser
                      dtype
        statistics    store statistics of tensors instead of their values: 2 KB per tensor of any
                      size
        layers        names of the modules to record, as 'encoder.*' (or several, in a list or with
                      commas); `every` n: record every n-th call of them
        standin       'cpu' or 'torch': an npu side runs on the CANN simulator, and this is what
                      computes its kernel launches; `kernels`: Python files executed over its kernel
                      table
        before        a Python file that is executed first in the process of an npu side, before
                      mindtorch sets MindSpore up

    Each side runs in its own process, so the state of this process neither matters nor changes.
    Returns a `Comparison`. ValueError for invalid sides. CompareError (with one sentence) if a side
    cannot run or is not deterministic, or if the two sides do not make the same calls: it names the
    first call that differs.
    """
    file, builder = _target(target, builder)
    if dropout not in ("off", "seeded"):
        raise ValueError(f"dropout must be 'off' or 'seeded', not {dropout!r}")
    steps, layers = _numbers(steps), tuple(layers.split(",")) if isinstance(layers, str) else tuple(layers)
    if every < 1:
        raise ValueError(f"every must be at least 1, not {every}")
    if steps and not grads:
        raise ValueError("steps need gradients")
    sides = parse_sides(sides)
    if before is not None and not os.path.isfile(before):
        raise CompareError(f"there is no file {before}")
    with tempfile.TemporaryDirectory(prefix="mindtorch-diff-") as folder:
        job = {"file": file, "builder": builder, "state": os.path.abspath(state) if state else None,
               "inputs": _inputs(inputs, shapes, targets, seed, folder), "loss": _name(loss), "steps": steps,
               "optimizer": _name(optimizer), "fault": _name(fault), "seed": int(seed), "dropout": dropout,
               "ops": bool(ops), "grads": bool(grads), "statistics": bool(statistics), "layers": layers, "every": int(every)}
        (reference, ours), = run([job], folder, workdir, torch_python, timeout, sides, before, standin, kernels)
    return Comparison(ours, reference, f"{os.path.basename(file)}:{builder}")


def _numbers(steps):
    """Returns an int unchanged; '0,10,100-110' or a list becomes a sorted list of steps."""
    if isinstance(steps, int):
        return steps
    if not isinstance(steps, str):
        return sorted(set(map(int, steps)))
    if steps.strip().isdigit():
        return int(steps)
    out = set()
    for part in steps.split(","):
        m = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if m is None or m[2] and int(m[2]) < int(m[1]):
            raise ValueError(f"invalid steps {steps!r}: expected a count, or a list such as 0,10,100-110")
        out |= set(range(int(m[1]), int(m[2] or m[1]) + 1))
    return sorted(out)


def _root():
    return os.path.dirname(os.path.dirname(os.path.abspath(mindtorch.__file__)))


def _name(x):
    return x.__qualname__ if inspect.isfunction(x) else x


def _target(target, builder):
    if inspect.isfunction(target) or inspect.isclass(target):
        try:
            file = inspect.getsourcefile(target)
        except TypeError:
            file = None
        if file is None or "<locals>" in target.__qualname__ or not os.path.exists(file):
            raise CompareError(f"{target.__qualname__} must be a module-level function of a file, so that the worker process can import it")
        return os.path.abspath(file), target.__qualname__
    file = os.fspath(target)
    if builder is None:
        file, colon, builder = file.rpartition(":")
        if not colon or not file or not builder.isidentifier():
            raise CompareError(f"no builder in {target!r}: write script.py:build_model")
    if not os.path.isfile(file):
        raise CompareError(f"there is no file {file}")
    return os.path.abspath(file), _name(builder)


def _inputs(inputs, shapes, targets, seed, folder):
    if isinstance(inputs, (str, os.PathLike)):
        if not os.path.isfile(inputs):
            raise CompareError(f"there is no file {inputs}")
        try:
            with np.load(inputs, allow_pickle=False) as z:
                arrays = {k: z[k] for k in z.files}
        except (ValueError, OSError, AttributeError) as e:
            raise CompareError(f"{inputs} is not an .npz file of arrays ({e})") from e
    elif inputs is None and shapes:
        rng = np.random.RandomState(seed)
        arrays = {f"arr_{i}": _random(rng, s) for i, s in enumerate(shapes)}
    elif inputs is None:
        if targets:
            raise CompareError("targets need inputs or shapes as well")
        return None
    elif isinstance(inputs, dict):
        arrays = {k: np.asarray(v) for k, v in inputs.items()}
    else:
        arrays = {f"arr_{i}": np.asarray(v) for i, v in enumerate(inputs)}
    arrays.update({f"target{i}": np.asarray(t) for i, t in enumerate(targets)})
    path = os.path.join(folder, "inputs.npz")
    np.savez(path, **arrays)
    return path


def _random(rng, shape):
    if not isinstance(shape, str):
        return rng.randn(*shape).astype(np.float32)
    m = re.fullmatch(r"(\d+(?:,\d+)*)(?::(\w+))?(?::(\d+))?", shape.replace(" ", ""))
    if m is None:
        raise CompareError(f"invalid shape {shape!r}: write 8,3,32,32 or 8,16:int64:100")
    size, dtype = [int(n) for n in m[1].split(",")], m[2] or "float32"
    try:
        kind = np.dtype(dtype)
    except TypeError as e:
        raise CompareError(f"{dtype!r} in {shape!r} is not a NumPy dtype") from e
    if kind.kind in "iu":
        return rng.randint(0, int(m[3] or 10), size).astype(kind)
    return (rng.rand(*size) < 0.5) if kind.kind == "b" else rng.randn(*size).astype(kind)


def run(jobs, folder, workdir=None, torch_python=None, timeout=600, sides=DEFAULT_SIDES, before=None, standin=None, kernels=()):
    """Runs the jobs, one process per side, and returns [(first side's record, second side's
    record)]. The second side waits for the weights of the first. Files are written to `folder`."""
    if standin is None:
        return _run(jobs, folder, workdir, torch_python, timeout, sides, before, None)
    from mindtorch.tools.standin import _build, _session
    if all(side.place != "npu" for side in sides):
        raise CompareError("the CANN simulator needs an npu side (--sides torch,npu)")
    for path in kernels:
        if not os.path.isfile(path):
            raise CompareError(f"there is no file {path}")
    try:
        with _session.Machine(standin, tuple(map(os.path.abspath, kernels)), lambda text: print(text, file=sys.stderr)) as machine:
            return _run(jobs, folder, workdir, torch_python, timeout, sides, before, machine)
    except _build.CannotBuild as e:
        raise CompareError(str(e)) from e


def _run(jobs, folder, workdir, torch_python, timeout, sides, before, machine):
    running, jobs = [], list(enumerate(jobs))
    names = [side.called(other) for side, other in zip(sides, sides[::-1])]
    try:
        for n, side in enumerate(sides):
            path = os.path.join(folder, f"side{n}.json")
            out = [os.path.join(folder, f"side{n}-{i}.npz") for i, _ in jobs]
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"side": str(side), "place": side.place, "dtype": side.dtype, "who": names[n], "other": names[1 - n], "first": not n,
                           "before": os.path.abspath(before) if before else None, "root": _root(), "parent": os.getpid(), "timeout": timeout,
                           "jobs": [dict(job, out=out[i], weights=os.path.join(folder, f"weights{i}.npz")) for i, job in jobs]}, f)
            log = open(os.path.join(folder, f"side{n}.log"), "w+", encoding="utf-8", errors="replace")
            here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
            python = torch_python or sys.executable if side.place == "torch" else sys.executable
            try:
                process = subprocess.Popen([python, here, path], cwd=workdir or os.getcwd(), stdout=log, stderr=subprocess.STDOUT,
                                           stdin=subprocess.DEVNULL,
                                           env=_environment(side, sides[1 - n], machine, os.path.join(folder, f"side{n}.launches")))
            except OSError as e:
                log.close()
                raise CompareError(f"{python} cannot be run: {e.strerror}") from e
            running.append((names[n], process, out, log))
        end = time.monotonic() + timeout
        waiting = list(running)
        while waiting:
            for side in list(waiting):
                name, process, out, log = side
                if process.poll() is not None:
                    waiting.remove(side)
                    missing = next((o for o in out if not os.path.exists(o)), None)
                    if process.returncode or missing:
                        raise CompareError(_failure(name, process.returncode, missing, log))
            if time.monotonic() > end:
                raise CompareError(f"{' and '.join(side[0] for side in waiting)} did not finish within {timeout} seconds (--timeout)")
            time.sleep(0.03)
    finally:
        for _, process, _, log in running:
            if process.poll() is None:
                process.kill()
            process.wait()
            log.close()
    return [tuple(activation_recorder.load(running[n][2][i]) for n in (0, 1)) for i, _ in jobs]


def _environment(side, other, machine, log):
    if side.place == "npu" and machine is not None:
        env = machine.environment(log)
    else:
        env = dict(os.environ)
        if side.place == "npu" == other.place and "MINDTORCH_STANDIN_LOG" in env:
            env["MINDTORCH_STANDIN_LOG"] = log  # one log per side
    if "MINDTORCH_STANDIN_LOG" in env and side.place == "npu":
        open(env["MINDTORCH_STANDIN_LOG"], "a").close()
    if side.place == "npu" and other.place != "npu":
        # otherwise ops that draw random numbers would always differ
        env.setdefault("MINDTORCH_NPU_RANDOM", "host")
    return env


def _failure(name, status, out, log):
    if out and os.path.exists(out + ".refused"):
        with open(out + ".refused", encoding="utf-8") as f:
            return f.read()
    log.seek(0)
    last = [line.strip() for line in log.read().splitlines() if line.strip()][-1:]
    return f"the process of {name} ended with status {status}" + (f": {last[0][:400]}" if last else "")
