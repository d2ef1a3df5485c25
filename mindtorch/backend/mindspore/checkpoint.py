"""MindSpore's `save_checkpoint` for facade tensors, and `export`.

`save_checkpoint` writes the name of each tensor's dtype into the file, but `load_checkpoint`
recognizes only MindSpore's names. From a dict, `save_checkpoint` accepts only Parameters. So a list
or dict of facade tensors is passed on as MindSpore parameters on the same memory.
"""
import functools
import os
import tempfile
import warnings
from typing import Any

from mindtorch.backend.hooks import hooks
from mindtorch.backend.mindspore.cell import is_buffer, is_module
from mindtorch.backend.mindspore.patches import put, put_everywhere
from mindtorch.backend.mindspore.private import MSParameter, MSTensor, from_array, is_ours

from mindtorch.backend.mindspore.runtime import ms

from mindspore.train import serialization as _serialization  # noqa: E402


def array_of(t):
    """Returns a facade tensor's values as an array; for a device tensor MindSpore fetches them."""
    return t._array if t._handle is None else t.asnumpy()


def _native(name, t):
    if is_ours(t):
        return MSParameter(from_array(array_of(t)), name=name, requires_grad=t._requires_grad_)
    return t


_convert = _serialization._convert_save_obj_to_param_list


def _convert_facade(save_obj, *args):
    if isinstance(save_obj, dict):
        save_obj = type(save_obj)((k, _native(k, v)) for k, v in save_obj.items())
    elif isinstance(save_obj, list):
        save_obj = [{**p, "data": _native(p["name"], p["data"])} if isinstance(p, dict) and {"name", "data"} <= p.keys()
                    else _native(p.name, p) if isinstance(p, MSParameter) else p for p in save_obj]
    return _convert(save_obj, *args)


put("mindspore.train.serialization:_convert_save_obj_to_param_list", _convert_facade)


_load: Any = _serialization.load_param_into_net


def _load_and_report(net, parameter_dict, *args, **kwargs):
    """Warns about buffers that a checkpoint lacks. MindSpore only logs missing entries, but
    unchanged statistics change a network's results."""
    missing, unused = _load(net, parameter_dict, *args, **kwargs)
    if missing:
        left = set(missing)
        buffers = [p.name for _, m in net.cells_and_names() if is_module(m) for p in m._params.values()
                   if is_buffer(m, p) and p.name in left]
        if buffers:
            warnings.warn(f"load_param_into_net: the checkpoint has no value for {len(buffers)} buffers, which stay as they are: "
                          f"{', '.join(buffers)}", RuntimeWarning, stacklevel=2)
    return missing, unused


put_everywhere("mindspore.train.serialization:load_param_into_net", functools.wraps(_load)(_load_and_report))


def holds(a):
    """True if `load_checkpoint` can read back an array of this dtype."""
    return str(from_array(a).dtype) in _serialization.tensor_to_ms_type


_export = _serialization._export


def numpy_dtype(x):
    """Returns the NumPy dtype of a MindSpore tensor, including one without data (`Tensor(shape=...,
    dtype=...)`)."""
    return ms.dtype_to_nptype(x.dtype)


def _export_graph(net, file_name, file_format, *inputs, **kwargs):
    """Exports a Module through a Cell made from a trace: MindSpore compiles a graph from a Cell's
    source, and cannot read a Module's."""
    cells = [net] + ([c for _, c in net.cells_and_names()] if isinstance(net, ms.nn.Cell) else [])
    if not any(is_module(c) for c in cells):
        return _export(net, file_name, file_format, *inputs, **kwargs)
    cell = hooks.export_cell(net, inputs, file_format)
    if isinstance(cell, bytes):
        path = file_name if file_name.endswith(f".{file_format.lower()}") else f"{file_name}.{file_format.lower()}"
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        with open(path, "wb") as f:
            f.write(cell)
        return None
    plain = [MSTensor(array_of(x)) if is_ours(x) else x for x in inputs]
    try:
        return _export(cell, file_name, file_format, *plain, **kwargs)
    except (TypeError, RuntimeError) as e:
        if file_format != "ONNX":
            raise
        raise NotImplementedError(f"mindspore.export to ONNX of {type(net).__name__}: MindSpore's ONNX writer does not support all of its operations; "
                                  "install the package onnx (pip install onnx) to use another writer "
                                  f"({str(e).splitlines()[0] if str(e) else type(e).__name__})") from e


put("mindspore.train.serialization:_export", _export_graph)


# ------------------------------------------------------------------ MindIR in memory
class _Compiled:
    """A MindIR graph as a callable on facade tensors; see `load_mindir`."""

    def __init__(self, cell):
        self.cell = cell

    def get_parameters(self):
        return list(self.cell.get_parameters())

    def __call__(self, *tensors):
        return self.cell(*(MSTensor(a if a.flags.c_contiguous else a.copy()) for a in map(array_of, tensors)))


def save_mindir(cell, inputs):
    """Returns the bytes of a Cell's MindIR. inputs: [(shape with None for free sizes, name of the
    dtype)]."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model")
        examples = [ms.Tensor(shape=list(shape), dtype=getattr(ms, "bool_" if dtype == "bool" else dtype)) if None in shape else
                    ms.ops.zeros(tuple(shape), getattr(ms, "bool_" if dtype == "bool" else dtype)) for shape, dtype in inputs]
        _export(cell, path, "MINDIR", *examples)
        if not os.path.exists(path + ".mindir"):
            raise NotImplementedError("models of more than 1 GB are not supported: MindSpore writes them as several files")
        with open(path + ".mindir", "rb") as f:
            return f.read()


def load_mindir(blob):
    """Returns a callable that computes the graph stored in `save_mindir`'s bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.mindir")
        with open(path, "wb") as f:
            f.write(blob)
        return _Compiled(ms.nn.GraphCell(ms.load(path)))
