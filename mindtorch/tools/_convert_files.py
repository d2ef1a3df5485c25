"""`python -m mindtorch convert SOURCE TARGET`: converts parameters between PyTorch, MindSpore and
safetensors files.

The file name extension selects the format: .pth, .pt, .bin (PyTorch), .ckpt (MindSpore),
.safetensors. Names, shapes, dtypes and values are unchanged. If the target format cannot store an
entry, it is an error, and no file is written.
"""
import json
import os
import pathlib
import struct
import sys

TORCH = (".pth", ".pt", ".bin", ".tar")
FORMATS = {**dict.fromkeys(TORCH, "torch"), ".ckpt": "MindSpore", ".safetensors": "safetensors"}

# Dtype names in safetensors.
_NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
          "I8": "int8", "U8": "uint8", "U16": "uint16", "U32": "uint32", "U64": "uint64", "BOOL": "bool", "C64": "complex64"}


class Refused(Exception):
    """Raised for a conversion that is not possible; the message says why and what to do."""


def configure(parser):
    parser.add_argument("source", help="file to read")
    parser.add_argument("target", help="file to write")
    parser.add_argument("--key", help="entry of a torch file's dict that holds the parameters, such as state_dict; "
                        "with dots for entries of entries")
    parser.add_argument("--tensors-only", action="store_true", help="leave out entries that are no tensors")
    parser.add_argument("--force", action="store_true", help="overwrite the target")


def format_of(path):
    """Returns 'torch', 'MindSpore' or 'safetensors', by the file name extension."""
    end = pathlib.Path(path).suffix.lower()
    if end not in FORMATS:
        raise Refused(f"{path}: unknown file extension {end!r}; supported are {', '.join(FORMATS)}")
    return FORMATS[end]


# ---------------------------------------------------------------- reading
def _read_torch(path):
    import mindtorch.torch as torch
    return torch.load(path, map_location="cpu", weights_only=True)


def _read_mindspore(path):
    from mindtorch.backend.mindspore.runtime import ms
    from mindtorch.core.tensor.tensor import adopt, wrap_array
    return {k: wrap_array(adopt(v)._array) if isinstance(v, ms.Tensor) else v for k, v in ms.load_checkpoint(str(path)).items()}


def _read_safetensors(path):
    import numpy as np
    import safetensors

    import mindtorch.torch as torch
    from mindtorch.core.tensor.tensor import wrap_array
    out = {}
    for name, entry in safetensors.deserialize(pathlib.Path(path).read_bytes()):
        dtype = _NAMES.get(entry["dtype"])
        if dtype is None:
            raise Refused(f"{path}: {name} has dtype {entry['dtype']}, which is not supported")
        a = np.frombuffer(bytearray(entry["data"]), np.uint8)
        out[name] = wrap_array(a.view(getattr(torch, dtype).np).reshape(entry["shape"]))
    return out


# ---------------------------------------------------------------- writing
def _write_torch(tensors, path):
    import mindtorch.torch as torch
    torch.save(tensors, path)


def _write_mindspore(tensors, path):
    from mindtorch.backend.mindspore.checkpoint import holds
    from mindtorch.backend.mindspore.runtime import ms
    for name, t in tensors.items():
        if not t.numel():
            raise Refused(f"{name} has no elements (shape {list(t.shape)}), which a .ckpt file cannot hold")
        if not holds(t._array):
            raise Refused(f"{name} has dtype {t.dtype}, which a .ckpt file cannot hold")
    ms.save_checkpoint([{"name": k, "data": v.detach().contiguous()} for k, v in tensors.items()], str(path))


def _write_safetensors(tensors, path):
    import numpy as np

    # Written here because the library accepts no bfloat16 arrays: length of the header, header,
    # contents.
    codes = {v: k for k, v in _NAMES.items()}
    header, blocks, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, t in tensors.items():
        dtype = str(t.dtype).rpartition(".")[2]
        if dtype not in codes:
            raise Refused(f"{name} has dtype {t.dtype}, which a .safetensors file cannot hold")
        block = np.ascontiguousarray(t._array).tobytes()
        header[name] = {"dtype": codes[dtype], "shape": list(t._array.shape), "data_offsets": [at, at + len(block)]}
        at += len(block)
        blocks.append(block)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(head)) + head + b"".join(blocks))


READ = {"torch": _read_torch, "MindSpore": _read_mindspore, "safetensors": _read_safetensors}
WRITE = {"torch": _write_torch, "MindSpore": _write_mindspore, "safetensors": _write_safetensors}


def _is_state(x, tensor):
    return isinstance(x, dict) and bool(x) and all(isinstance(k, str) for k in x) and any(
        isinstance(v, tensor) for v in x.values())


def select(loaded, key, path):
    """Returns the dict of parameters inside the object loaded from a file."""
    from mindtorch.core.tensor.tensor import Tensor
    if key is not None:
        for part in key.split("."):
            if not isinstance(loaded, dict) or part not in loaded:
                raise Refused(f"{path}: there is no {key!r}; the entries are {_listed(loaded)}")
            loaded = loaded[part]
    if _is_state(loaded, Tensor):
        return loaded
    if isinstance(loaded, dict):
        inner = [k for k, v in loaded.items() if _is_state(v, Tensor)]
        raise Refused(f"{path} has no parameters at the top level. "
                      + (f"Select an entry with --key: {', '.join(map(str, inner))}" if inner else
                         f"The entries are {_listed(loaded)}"))
    raise Refused(f"{path} holds a {type(loaded).__name__}, not a dict of parameters")


def _listed(x):
    if not isinstance(x, dict):
        return f"those of a {type(x).__name__}"
    names = [str(k) for k in x]
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def convert(source, target, key=None, tensors_only=False):
    """Writes the parameters of file `source` into file `target`; returns the names of the entries
    left out (tensors_only).

    Raises `Refused`, and writes nothing, for unknown file extensions, entries that are no tensors,
    and dtypes that the target format does not support.
    """
    from mindtorch.torch import Tensor
    read, write = READ[format_of(source)], WRITE[format_of(target)]
    state = select(read(source), key, source)
    others = [k for k, v in state.items() if not isinstance(v, Tensor)]
    if others and not tensors_only:
        raise Refused(f"{source}: {', '.join(map(str, others[:10]))} {'is' if len(others) == 1 else 'are'} no tensor; "
                      "--tensors-only leaves such entries out")
    write({k: v.detach() for k, v in state.items() if k not in others}, target)
    return others


def main(args):
    if os.path.exists(args.target) and not args.force:
        print(f"{args.target} exists; --force overwrites it", file=sys.stderr)
        return 1
    try:
        others = convert(args.source, args.target, args.key, args.tensors_only)
    except (Refused, OSError) as e:
        print(e, file=sys.stderr)
        return 1
    for name in others:
        print(f"left out: {name}")
    print(f"{args.source} -> {args.target}")
    return 0
