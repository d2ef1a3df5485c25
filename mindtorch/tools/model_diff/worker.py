"""One side of a comparison, in a separate process: ``python worker.py jobs.json`` runs models and
writes the recorded values.

Under PyTorch, only this file and `activation_recorder.py`, which it loads by path, are executed
from mindtorch.
"""
import importlib.util
import inspect
import json
import os
import random
import sys
import time
import traceback

import numpy as np


class Refused(Exception):
    """An error that the user must fix; its text is the message."""


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Side:
    """Builds the model and runs it according to the job."""

    def __init__(self, job, trace):
        self.job, self.trace, self.model = job, trace, None
        self.who, self.other = job["who"], job["other"]
        self.torch = self._import_torch()
        self.dtype = getattr(self.torch, job["dtype"]) if job["dtype"] else None
        self.device = "npu" if job["place"] == "npu" else "cpu"
        self.keep = trace.Sketch(self.torch) if job.get("statistics") else trace.held
        self.sampled = trace.Sampled(job.get("layers", ()), job.get("every", 1))
        log = os.environ.get("MINDTORCH_STANDIN_LOG") if self.device == "npu" else None
        self.log = trace.Launches(log, self.torch.npu.synchronize) if log else trace.Launches()
        self.module = self._stage(f"importing {os.path.basename(job['file'])}", self._import_script)

    # ---- failures as sentences
    def _stage(self, what, fn, *args):
        try:
            return fn(*args)
        except Refused:
            raise
        except (Exception, SystemExit) as e:
            here = os.path.dirname(os.path.abspath(__file__))
            ours = (here, os.path.dirname(here))        # (with the import hook)
            frames = [f for f in traceback.extract_tb(e.__traceback__) if os.path.dirname(f.filename) not in ours]
            theirs = [f for f in frames if os.path.abspath(f.filename) == os.path.abspath(self.job["file"])] or frames
            where = f" ({os.path.basename(theirs[-1].filename)}, line {theirs[-1].lineno})" if theirs else ""
            text = " ".join(str(e).split())
            raise Refused(f"{what} failed in {self.who}: {type(e).__name__}: {text[:600]}{where}{self._not_moved()}") from e

    def _not_moved(self):
        """Returns a likely cause of a failure on another device: the model's tensors that
        `.to(device)` does not move."""
        stray = [] if self.model is None else [
            f"{n}.{k}" if n else k for n, m in self.model.named_modules() for k, v in vars(m).items()
            if self.trace.is_tensor(v) and v.device.type != self.device]
        if not stray:
            return ""
        return f"; {', '.join(stray[:5])}: neither parameter nor buffer, and so not moved to {self.who} by model.to() (register_buffer helps)"

    def _import_torch(self):
        if self.job["place"] != "torch":
            sys.path.append(self.job["root"])
            return self._stage("the start", self._start)
        try:
            import torch
        except ImportError as e:
            raise Refused(f"real torch cannot be imported by {sys.executable} ({e}): install it there (pip install "
                          "torch) or select another interpreter with --torch-python") from e
        if "mindtorch.torch" in sys.modules:
            raise Refused("`import torch` returned mindtorch's facade in the process for real torch: something "
                          "enables it when Python starts")
        return torch

    def _start(self):
        if self.job["before"] and self.job["place"] == "npu":
            _load("mindtorch_before", self.job["before"])
        if self.job["place"] == "npu" and "MINDTORCH_STANDIN_SOCKET" in os.environ:
            from mindtorch.tools.standin import _attach
            _attach.quiet()
            import mindspore
            mindspore.set_device("Ascend")
        from mindtorch.tools import mstorch_enable  # noqa: F401
        import torch
        if self.job["place"] == "npu" and not torch.npu.is_available():
            raise Refused("there is no npu device on this machine: MindSpore's target is not Ascend (MINDTORCH_NPU=cpu uses MindSpore's CPU target "
                          "instead)")
        return torch

    def _import_script(self):
        folder = os.path.dirname(os.path.abspath(self.job["file"]))
        sys.path.insert(0, folder)
        name = os.path.splitext(os.path.basename(self.job["file"]))[0]
        return _load(name, self.job["file"])

    def _named(self, name, what):
        found = self.module
        for part in name.split("."):
            found = getattr(found, part, None)
            if found is None:
                raise Refused(f"{what}: there is no {name!r} in {self.job['file']}")
        return found

    # ---- building
    def seed(self, n=0):
        s = (self.job["seed"] + n) % 2**32
        random.seed(s)
        np.random.seed(s)
        self.torch.manual_seed(s)

    def build(self):
        """Builds the model, with the other side's weights, and its inputs."""
        job, torch = self.job, self.torch
        builder = self._named(job["builder"], "the model's builder")
        self.seed()
        if job["place"] != "torch":
            torch.set_default_device(None)  # (an earlier job may have set it)
        model = self._stage(f"{job['builder']}()", builder)
        given = None
        if isinstance(model, tuple) and len(model) == 2:
            model, given = model
        if not isinstance(model, torch.nn.Module):
            raise Refused(f"{job['builder']}() must return a torch.nn.Module (or a pair of it and its inputs), not "
                          f"{type(model).__name__} ({self.who})")
        self._take_inputs(model, given)
        if job["dropout"] == "off":
            _no_dropout(model)
        if any(type(p).__name__.startswith("Uninitialized") for p in [*model.parameters(), *model.buffers()]):
            with torch.no_grad():
                self._stage("the model's first forward", self.call, model, None, False)
        self.model = model
        self._stage(f"model.to({self.device})", lambda: model.to(device=self.device, dtype=self.dtype))
        if self.device != "cpu":
            # for tensors created by forward, loss and optimizer
            torch.set_default_device(self.device)
        self._weights(model)
        if job["fault"] and not job["first"]:
            self._stage(f"{job['fault']}()", self._named(job["fault"], "fault"), model)
        return model

    def _take_inputs(self, model, given):
        job, torch, kinds = self.job, self.torch, {}
        if job["inputs"]:
            with np.load(job["inputs"]) as z:
                arrays = {k: z[k] for k in z.files}
        else:
            if given is None and hasattr(self.module, "example_inputs"):
                given = self._stage("example_inputs()", self.module.example_inputs)
            if given is None:
                raise Refused("no inputs: give --input FILE.npz or --shape 8,3,32,32, return (model, inputs) from the "
                              "builder, or define example_inputs() in the script")
            items = given.items() if isinstance(given, dict) else enumerate(
                given if isinstance(given, (list, tuple)) else [given])
            arrays, kinds = {}, {}
            for k, v in items:
                k = k if isinstance(k, str) else f"arr_{k}"
                if self.trace.is_tensor(v):  # NumPy has no bfloat16: the dtype is stored separately
                    h = self.trace.held(v)
                    v, kinds[k] = h.a, h.dtype
                arrays[k] = np.asarray(v)
        self.targets = [a for k, a in arrays.items() if k.startswith("target")]
        arrays = {k: a for k, a in arrays.items() if not k.startswith("target")}
        accepted = inspect.signature(model.forward).parameters
        # If all names in the file are parameters of forward, they are passed by name; otherwise by
        # position.
        self.by_name = all(k in accepted for k in arrays)
        self.arrays = arrays
        self.kinds = {k: getattr(torch, kind) for k, kind in kinds.items()}

    def moved(self, array, dtype=None):
        """Creates a tensor from a NumPy array on this side's device; a floating one is cast to this
        side's dtype."""
        t = self.torch.from_numpy(np.array(array))
        t = t if dtype is None else t.to(dtype)
        return t.to(device=self.device, dtype=self.dtype if t.is_floating_point() and self.dtype else t.dtype)

    def call(self, model, leaves=None, moved=True):
        """Runs one forward. `leaves` receives the input tensors that need gradients. With
        moved=False the inputs stay on the cpu in their original dtype."""
        args = {}
        for k, a in self.arrays.items():
            kind = self.kinds.get(k)
            t = self.moved(a, kind) if moved else self.torch.from_numpy(np.array(a))
            t = t if moved or kind is None else t.to(kind)
            if leaves is not None and (t.is_floating_point() or t.is_complex()):
                leaves[k] = t.requires_grad_()
                t = t.clone()  # not a leaf, so that the model may modify it in place
            args[k] = t
        return model(**args) if self.by_name else model(*args.values())

    def _weights(self, model):
        job, torch = self.job, self.torch
        if job["first"]:
            if job["state"]:
                state = self._stage(f"reading {job['state']}", torch.load, job["state"])
                self._stage(f"load_state_dict() of {job['state']}", model.load_state_dict, state)
            self.trace.save_each(job["weights"] + ".part", ((k, self.trace.held(t)) for k, t in self._live(model).items()))
            os.replace(job["weights"] + ".part", job["weights"])
            return
        end = time.monotonic() + job["timeout"]
        while not os.path.exists(job["weights"]):
            if time.monotonic() > end or os.getppid() != job["parent"]:
                raise Refused(f"{self.other} did not write its weights in time")
            time.sleep(0.02)
        (theirs, values), mine = self.trace.load_each(job["weights"]), self._live(model)
        wrong = [f"{k} only in {self.other if k in theirs else self.who}" for k in sorted({*theirs} ^ {*mine})]
        wrong += [f"{k} is {s} in {self.other} and {list(mine[k].shape)} in {self.who}"
                  for k, s in theirs.items() if k in mine and s != list(mine[k].shape)]
        if wrong:
            raise Refused("the weights do not match, the builder returns two different models: " + "; ".join(wrong[:5])
                          + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""))
        with torch.no_grad():
            for k, h in values:
                t = torch.from_numpy(h.a)
                mine[k].copy_(t.to(mine[k].dtype))
        os.unlink(job["weights"])

    def _live(self, model):
        """Returns {name: tensor} of all parameters and buffers, including those that state_dict
        omits."""
        return {k: t.detach() for k, t in [*model.named_parameters(), *model.named_buffers()]}

    def _kept(self, named):
        """Returns {name: recorded values} of the selected parameters or buffers."""
        return {k: None if t is None else self.keep(t) for k, t in named if self.sampled.tensor(k)}

    # ---- running
    def dry_run(self, model):
        """Checks that two forwards from one seed agree, and restores the tensors that they modify.
        """
        # (With --statistics there is no memory for a second copy of the model, so only buffers are
        # saved and restored.)
        few = isinstance(self.keep, self.trace.Sketch)
        live = dict(model.named_buffers()) if few else self._live(model)
        saved, versions = {k: t.detach().clone() for k, t in live.items()}, [p._version for p in model.parameters()]
        first = None
        for _ in range(2):
            self.seed(1)
            with self.torch.no_grad():
                out = self._stage("the model's forward", self.call, model)
                values = [self.keep(t).a for _, t in self.trace.tensors(out)]
                if few and versions != [p._version for p in model.parameters()]:
                    raise Refused("the model's forward modifies its parameters, which cannot be restored with --statistics")
                for k, t in (dict(model.named_buffers()) if few else self._live(model)).items():
                    t.detach().copy_(saved[k])
            if first is None:
                first = values
        if not values:
            raise Refused(f"the model returns no tensor ({self.who})")
        if [v.shape for v in first] != [v.shape for v in values] or not all(
                np.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True) for a, b in zip(first, values)):
            raise Refused(f"the model is not deterministic: two forwards in {self.who} from the same seed, weights and "
                          "inputs differ; it cannot be compared")

    def loss(self, out):
        name = self.job["loss"]
        if name:
            fn = self._named(name, "the loss")
            value = self._stage(f"{name}()", fn, out, *[self.moved(t) for t in self.targets])
            if not self.trace.is_tensor(value) or value.numel() != 1:
                raise Refused(f"{name}() must return a tensor with one element")
            return value
        # A fixed random projection: unlike a sum, it does not hide a symmetry of the output.
        total, rng = None, np.random.RandomState(17)
        for _, t in self.trace.tensors(out):
            w = rng.randn(*t.shape) / max(1, t.numel()) ** 0.5
            if t.is_floating_point() and t.requires_grad:
                part = (t * self.torch.from_numpy(np.asarray(w)).to(t.dtype).to(t.device)).sum()
                total = part if total is None else total + part.to(total.dtype)
        return total

    def run(self):
        job, trace = self.job, self.trace
        model = self.build()
        self.dry_run(model)
        result = {"side": str(job["side"]), "who": self.who, "place": job["place"], "dtype": job["dtype"],
                  "model": type(model).__name__, "version": str(self.torch.__version__),
                  "modules": [[n, type(m).__name__] for n, m in model.named_modules()],
                  "initial": self._kept([*model.named_parameters(), *model.named_buffers()]),
                  "shapes": {n: list(p.shape) for n, p in model.named_parameters()}}
        recorder = trace.Recorder(model, separate=True, log=self.log, keep=self.keep, sampled=self.sampled)
        undo = _trace_functions(self.torch, recorder, trace) if job["ops"] else None
        leaves = {}
        try:
            self.seed(1)
            out = self._stage("the model's forward", self.call, model, leaves)
            recorder.busy += 1  # functions called by the loss belong to no layer
            loss = self._stage("the loss", self.loss, out) if job["grads"] else None
            if loss is not None and loss.requires_grad:
                self._stage("backward()", loss.backward)
                self.log.leave()
                result["loss"] = self.keep(loss)
        finally:
            recorder.busy -= 1
            recorder.remove()
            if undo:
                undo()
        self.log.hand_out()
        result["launches"] = self.log.path is not None
        result["output"] = {p: self.keep(t) for p, t in trace.tensors(out)}
        result["calls"] = recorder.calls
        result["followed"] = sorted(undo.names) if undo else []
        result["grads"] = self._kept((n, p.grad) for n, p in model.named_parameters())
        result["input_grads"] = {n: None if t.grad is None else self.keep(t.grad) for n, t in leaves.items()}
        result["buffers"] = self._kept(model.named_buffers())
        result["trains"] = [n for n, p in model.named_parameters() if p.requires_grad]
        del out, loss, leaves
        recorder.clear()
        result["steps"] = self.train(model) if job["steps"] else []
        result["peak"] = _peak()
        trace.save(job["out"] + ".part", result)
        os.replace(job["out"] + ".part", job["out"])

    def train(self, model):
        """Runs the optimizer's steps; the first one uses the gradients that already exist."""
        job, trace, steps = self.job, self.trace, []
        opt = self._stage("the optimizer", self.optimizer, model)
        names = {id(p): n for n, p in model.named_parameters()}
        wanted = range(job["steps"]) if isinstance(job["steps"], int) else job["steps"]
        for i in range(max(wanted) + 1):
            if i:
                self.seed(1 + i)
                opt.zero_grad()
                loss = self._stage(f"step {i}", lambda: self.loss(self.call(model)))
                if loss is None or not loss.requires_grad:
                    raise Refused(f"step {i}: no output of the model requires gradients in {self.who}")
                self._stage(f"backward() of step {i}", loss.backward)
            if i not in wanted:
                self._stage(f"optimizer.step() {i}", opt.step)
                continue
            grads = self._kept((n, p.grad) for n, p in model.named_parameters())
            start = self.log.path and self.log.here()
            self._stage(f"optimizer.step() {i}", opt.step)
            launched = self.log.between(start, self.log.here()) if self.log.path else []
            state = {f"{names.get(id(p), '?')}.{k}": self.keep(v) if trace.is_tensor(v) else
                     trace.Held(np.asarray(v, np.float64), "float64")
                     for p, values in opt.state.items() if self.sampled.tensor(names.get(id(p), "?")) for k, v in values.items()
                     if trace.is_tensor(v) or isinstance(v, (int, float)) and not isinstance(v, bool)}
            steps.append({"step": i, "loss": self.keep(loss) if i else None, "grads": grads, "state": state, "launches": launched,
                          "weights": self._kept(model.named_parameters()), "buffers": self._kept(model.named_buffers())})
        return steps

    def optimizer(self, model):
        name, optim = self.job["optimizer"], self.torch.optim
        known = {"sgd": lambda p: optim.SGD(p, lr=0.01, momentum=0.9), "adam": lambda p: optim.Adam(p, lr=1e-3),
                 "adamw": lambda p: optim.AdamW(p, lr=1e-3)}
        if name in known:
            return known[name]([p for p in model.parameters() if p.requires_grad])
        return self._named(name, f"the optimizer (sgd, adam, adamw or a function of the script: {name}(model))")(model)


def _peak():
    """Returns the peak memory of this process in bytes; 0 if it is not available."""
    try:
        # (getrusage starts from the parent's peak)
        with open("/proc/self/status", encoding="ascii") as f:
            return next((int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM")), 0)
    except OSError:
        return 0


def _no_dropout(model):
    for m in model.modules():
        if "Dropout" in type(m).__name__ and isinstance(getattr(m, "p", None), float):
            m.p = 0.0
        elif isinstance(getattr(m, "dropout", None), float):
            m.dropout = 0.0


# ------------------------------------------------------------------ functions between the modules
def _trace_functions(torch, recorder, trace):
    """Records calls of torch functions and Tensor methods from the user's own modules; returns a
    function that removes the recording."""
    inside = False

    def wrap(name, fn):
        def traced(*args, **kwargs):
            nonlocal inside
            current = recorder.current
            if inside or recorder.busy or current is None or current[1].own or not current[1].sampled:
                return fn(*args, **kwargs)
            inside = True
            try:
                given = trace.tensors(args) + trace.tensors(kwargs)
                if not given:
                    return fn(*args, **kwargs)
                recorder.busy += 1
                # before the function may modify them in place
                values = {p: recorder.held(t) for p, t in given}
                recorder.busy -= 1
                around = current[1].name
                call = recorder.begin(f"{around}:{name}" if around else name, name, "op", inputs=values)
                out = fn(*args, **kwargs)
                if trace.tensors(out):
                    recorder.end(call, out)
                return out
            finally:
                inside = False
        return traced

    return trace.patch(torch, wrap)


def main(path):
    with open(path, encoding="utf-8") as f:
        top = json.load(f)
    here = os.path.dirname(os.path.abspath(__file__))
    # Python puts the folder of a script first on sys.path; the names in this folder must not shadow
    # other modules.
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    trace = _load("mindtorch_trace", os.path.join(here, "activation_recorder.py"))
    shared = {k: v for k, v in top.items() if k != "jobs"}
    for job in top["jobs"]:
        try:
            side = Side({**job, **shared}, trace)
            side._stage("the run", side.run)
        except Refused as e:
            with open(job["out"] + ".refused", "w", encoding="utf-8") as f:
                f.write(str(e))
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
