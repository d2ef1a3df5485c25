"""MindSpore's `save_checkpoint` over facade tensors.

It writes the name of each tensor's dtype into the file, and `load_checkpoint` knows only MindSpore's names; and of a dict
it takes Parameters only.  So a list or dict of facade tensors is handed on as MindSpore parameters on the same memory.
"""
from mindtorch.backend.private import MSParameter, MSTensor, from_array

from mindspore.train import serialization as _serialization  # noqa: E402


def _native(name, t):
    # (MindSpore's own tensors have no `_rg`.)
    if isinstance(t, MSTensor) and hasattr(t, "_rg"):
        return MSParameter(from_array(t._a), name=name, requires_grad=t._rg)
    return t


_convert = _serialization._convert_save_obj_to_param_list


def _convert_facade(save_obj, *args):
    if isinstance(save_obj, dict):
        save_obj = type(save_obj)((k, _native(k, v)) for k, v in save_obj.items())
    elif isinstance(save_obj, list):
        save_obj = [{**p, "data": _native(p["name"], p["data"])} if isinstance(p, dict) and {"name", "data"} <= p.keys()
                    else _native(p.name, p) if isinstance(p, MSParameter) else p for p in save_obj]
    return _convert(save_obj, *args)


_serialization._convert_save_obj_to_param_list = _convert_facade


def holds(a):
    """Whether `load_checkpoint` can read back an array of this dtype."""
    return str(from_array(a).dtype) in _serialization.tensor_to_ms_type
