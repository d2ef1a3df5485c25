"""`debug_layer_info`: prints and records the inputs and outputs of every layer of a model while it
runs."""
import json
import sys

from mindtorch.tools.model_diff import activation_recorder

_FRAMES = ("mindtorch", "pytorch")
_COLUMNS = ("max", "min", "mean", "std")


def debug_layer_info(net, frame="mindtorch", *, file=None, arrays=False, quiet=False):
    """Hooks `net` so that every forward and backward prints, layer by layer, statistics of the
    inputs, outputs and gradients.

        net     a torch.nn.Module: the facade's for frame='mindtorch', PyTorch's for frame='pytorch'
        file    where to print (default: standard output at the time of printing)
        arrays  store the values too, not only their statistics (for `save`)
        quiet   print nothing while the model runs

    Returns a `LayerInfo`: `calls`, `table()`, `save(path)`, `remove()`; as a context manager it
    removes its hooks at the end. Results do not change. TypeError if `net` is not a Module of that
    framework, ValueError for another frame.
    """
    return LayerInfo(net, frame, file=file, arrays=arrays, quiet=quiet)


class LayerInfo:
    """The record of `debug_layer_info`.

        calls       one dict per call, in the order in which they ended: name, type, nth, leaf,
                    training, and under 'inputs', 'outputs', 'grad_outputs' {path: statistics}
        parameters  {name: statistics} when debug_layer_info was called; `buffers` likewise
        gradients   {parameter name: statistics} of the last backward
    """

    def __init__(self, net, frame, file=None, arrays=False, quiet=False):
        _check(net, frame)
        self.frame, self._net, self._file, self._arrays, self._quiet = frame, net, file, arrays, quiet
        self.parameters = {n: activation_recorder.statistics(activation_recorder.held(p)) for n, p in net.named_parameters() if _has_values(p)}
        self.buffers = {n: activation_recorder.statistics(activation_recorder.held(b)) for n, b in net.named_buffers() if _has_values(b)}
        self._grads, self.calls = {}, []
        self._live = {}  # id(Call) -> its dict, for gradients that arrive later
        self._recorder = activation_recorder.Recorder(net, finished=self._finished, gradient=self._gradient)
        self._handles = [p.register_hook(self._parameter_hook(n)) for n, p in net.named_parameters()
                         if p.requires_grad and _has_values(p)]
        if not quiet:
            self._print_header()

    # ---- while it runs
    def _finished(self, call):
        entry = {"name": call.name, "type": call.type, "nth": call.nth, "leaf": call.leaf, "training": call.training}
        for field in ("inputs", "outputs"):
            entry[field] = {p: activation_recorder.statistics(h) for p, h in getattr(call, field).items()}
        entry["grad_outputs"] = {}
        self.calls.append(entry)
        self._live[id(call)] = entry
        if not self._arrays:
            call.inputs, call.outputs = {}, {}
        if not self._quiet:
            again = f" (call {call.nth + 1})" if call.nth else ""
            mode = "train" if call.training else "eval"
            self._print(f"[forward]  {_shown(call.name)}  {call.type}  {mode}{again}")
            for what, field in (("in", "inputs"), ("out", "outputs")):
                for path, s in entry[field].items():
                    self._print(_row(what, path, s))

    def _gradient(self, call, path):
        s = self._live[id(call)]["grad_outputs"][path] = activation_recorder.statistics(call.grad_outputs[path])
        if not self._arrays:
            del call.grad_outputs[path]
        if not self._quiet:
            self._print(f"[backward] {_shown(call.name)}  {call.type}")
            self._print(_row("grad", path, s))

    def _parameter_hook(self, name):
        def hook(g):
            if g is None:
                return
            h = activation_recorder.held(g)
            self._grads[name] = h if self._arrays else activation_recorder.statistics(h)
            if not self._quiet:
                self._print("[backward] parameter " + name)
                self._print(_row("grad", "0", activation_recorder.statistics(h)))
        return hook

    # ---- afterwards
    @property
    def gradients(self):
        return {n: activation_recorder.statistics(g) if self._arrays else g for n, g in self._grads.items()}

    def table(self, leaves=True):
        """Returns the calls as text, one line per output; leaves=False includes containers."""
        rows = [("layer", "type", "output", "max", "min", "mean", "std", "nan/inf")]
        for c in self.calls:
            if c["leaf"] or not leaves:
                for path, s in c["outputs"].items():
                    name = _shown(c["name"]) + (f" #{c['nth'] + 1}" if c["nth"] else "")
                    rows.append((name, c["type"], f"{'' if len(c['outputs']) == 1 else path + ' '}{_kind(s)}",
                                 *(_number(s[k]) for k in _COLUMNS), f"{s['nan']}/{s['inf']}"))
        widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(v.ljust(w) if i < 3 else v.rjust(w) for i, (v, w) in enumerate(zip(r, widths))).rstrip()
                 for r in rows]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])

    def as_dict(self):
        """Returns everything recorded as a dict of JSON types."""
        return {"frame": self.frame, "model": type(self._net).__name__, "parameters": self.parameters,
                "buffers": self.buffers, "calls": self.calls, "gradients": self.gradients}

    def save(self, path):
        """Writes the record to one file: statistics as JSON if `path` ends in .json, else .npz with
        everything that was stored.

        `mindtorch.tools.load_layer_info(path)` reads both formats as the dict of `as_dict` (with
        'values' if arrays=True).
        """
        if str(path).endswith(".json"):
            with open(path, "w", encoding="utf-8") as f:
                json.dump(self.as_dict(), f, indent=1)
            return
        value = self.as_dict()
        if self._arrays:
            value["values"] = {"calls": list(self._recorder.calls), "gradients": self._grads}
        activation_recorder.save(path, value)

    def clear(self):
        """Discards the recorded data, for the next batch; the hooks stay."""
        self._recorder.clear()
        self.calls, self._live, self._grads = [], {}, {}

    def remove(self):
        """Removes the hooks; the recorded data stays. Calling it twice is allowed."""
        self._recorder.remove()
        for h in self._handles:
            h.remove()
        self._handles = []

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.remove()

    # ---- printing
    def _print(self, text):
        print(text, file=self._file or sys.stdout)

    def _print_header(self):
        self._print(f"debug_layer_info: {type(self._net).__name__}, {self.frame}, {len(self.parameters)} parameters, "
                    f"{len(self.buffers)} buffers")
        for what, values in (("parameter", self.parameters), ("buffer", self.buffers)):
            for name, s in values.items():
                self._print(_row(what, name, s))


def load_layer_info(path):
    """Loads the dict that `LayerInfo.save` wrote. ValueError if `path` is not such a file."""
    if str(path).endswith(".json"):
        with open(path, encoding="utf-8") as f:
            return json.load(f)
    return activation_recorder.load(path)


def _check(net, frame):
    if frame not in _FRAMES:
        raise ValueError(f"frame must be 'mindtorch' or 'pytorch', not {frame!r}")
    facade, real = (_module_class(n) for n in ("mindtorch.torch.nn", "torch.nn"))
    is_facade = facade is not None and isinstance(net, facade)
    if is_facade and frame == "pytorch":
        raise TypeError(f"frame='pytorch' is for models of real PyTorch; {type(net).__name__} is one of mindtorch (the "
                        "hook is enabled, or it was built with mindtorch.torch): leave `frame` out")
    if not is_facade and frame == "mindtorch":
        if real is not None and isinstance(net, real):
            raise TypeError(f"{type(net).__name__} is a model of real PyTorch: pass frame='pytorch', or enable mindtorch "
                            "before torch is imported")
        raise TypeError(f"debug_layer_info() takes a torch.nn.Module, not {type(net).__name__}")
    if not is_facade and not (real is not None and isinstance(net, real)):
        raise TypeError(f"debug_layer_info() takes a torch.nn.Module, not {type(net).__name__}")


def _module_class(name):
    return getattr(sys.modules.get(name), "Module", None)


def _has_values(t):
    return not type(t).__name__.startswith("Uninitialized")


def _shown(name):
    return name or "(model)"


def _kind(s):
    return f"{s['dtype']}[{', '.join(map(str, s['shape']))}]"


def _number(v):
    """Formats a number at a fixed precision, always with a decimal point, so that columns can be
    read and parsed."""
    if v is None:
        return "-"
    if v != v or abs(v) == float("inf"):
        return str(v)
    return f"{v:.6f}" if v == 0 or 1e-3 <= abs(v) < 1e6 else f"{v:.5e}"


def _row(what, path, s):
    label = what if path == "0" else f"{what} {path}"
    text = f"    {label:<12} {_kind(s):<28} " + "  ".join(f"{k} {_number(s[k]):>13}" for k in _COLUMNS)
    return text + (f"  nan: {s['nan']}  infinite: {s['inf']}" if s["nan"] or s["inf"] else "")
