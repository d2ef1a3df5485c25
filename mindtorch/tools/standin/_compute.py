"""Computes launches: decodes logged C arguments into tensors on the device's memory, calls the
table's functions, and writes the results there."""
import math
import mmap
import os
import struct

from mindtorch.tools.standin import kernels
from mindtorch.tools.standin.kernels import _engine, _table

assert kernels  # (the import fills the table)
torch = _engine.torch
TYPES = {0: torch.float32, 1: torch.float16, 2: torch.int8, 3: torch.int32, 4: torch.uint8, 6: torch.int16, 7: torch.uint16, 8: torch.uint32, 9: torch.int64,
         10: torch.uint64, 11: torch.float64, 12: torch.bool, 16: torch.complex64, 17: torch.complex128, 27: torch.bfloat16}
_SIZES = {"ints": "I", "bools": "B", "floats": "F", "tensors": "L", "scalars": "L", "scalar": "S", "tensor": "T"}


class Memory:
    """The device memory of one process, and tensors on it."""

    def __init__(self, file):
        self.map = mmap.mmap(file, os.fstat(file).st_size)

    def tensor(self, encoded):
        """Returns the strided view that an aclTensor describes."""
        _, _, kind, address, offset, shape, strides = encoded
        dtype = TYPES[kind]
        if 0 in shape:
            return torch.empty(shape, dtype=dtype)
        count = 1 + sum((n - 1) * s for n, s in zip(shape, strides))
        if address < 0:
            raise ValueError("a tensor without memory")
        flat = torch.frombuffer(self.map, dtype=dtype, count=count, offset=address + offset * dtype.itemsize)
        return flat.as_strided(shape, strides)


class Launcher:
    """Computes launches on a memory; `found` lists (object, shape) of results whose shape was
    determined since the last drain."""

    def __init__(self, memory):
        self.memory = memory
        self.found = []

    def compute(self, message):
        name, arguments, *rest = message
        if name.startswith("op:"):
            return self._op(name[3:], arguments, *rest)
        entry = _table.KERNELS[name]
        floating, strings = rest
        words, floats = iter(enumerate(arguments)), iter(floating)
        values, written = [], []
        for a in entry.arguments:
            if a.kind in ("double", "float"):
                word = next(floats).to_bytes(8, "little")
                values.append(struct.unpack("<d" if a.kind == "double" else "<f", word if a.kind == "double" else word[:4])[0])
                continue
            position, encoded = next(words, (None, None))
            if position is None:
                raise TypeError(f"too few arguments: the launch has {len(arguments)} non-floating ones, the table declares more")
            values.append(self._argument(a, encoded, strings.get(str(position))))
            if a.written:
                written.append((encoded, values[-1]))
        if next(words, None) is not None:
            raise TypeError(f"too many arguments: the launch has {len(arguments)} non-floating ones, the table declares fewer")
        with torch.no_grad():
            results = entry.function(*values)
            several = isinstance(results, (tuple, list)) and not (len(written) == 1 and isinstance(written[0][1], list))
            results = results if several else (results,)
            if len(results) != len(written):
                raise TypeError(f"{len(results)} results for {len(written)} outputs")
            for (encoded, receiver), value in zip(written, results):
                self._put(encoded, receiver, value)

    def _argument(self, a, encoded, string):
        if a.kind == "string":
            if string is None and encoded != 0:
                raise TypeError(f"{a.name} is not a string")
            return string
        if a.kind in _SIZES:
            if encoded == 0:
                return None
            if not isinstance(encoded, list) or encoded[0] != _SIZES[a.kind]:
                raise TypeError(f"{a.name} is not a {a.kind.removesuffix('s')} but {encoded}")
            return self._decoded(encoded)
        if not isinstance(encoded, int):
            raise TypeError(f"{a.name} is not a number but {encoded}")
        if a.kind == "bool":
            return bool(encoded & 0xff)
        bits = {"int8": 8, "int32": 32, "int": 64}[a.kind]
        encoded &= (1 << bits) - 1
        return encoded - (1 << bits) if encoded >> (bits - 1) else encoded

    def _decoded(self, encoded):
        if encoded == 0:
            return None
        if encoded[0] == "T":
            return self.memory.tensor(encoded)
        if encoded[0] == "S":
            if len(encoded) > 3:
                return complex(*encoded[2:])
            return bool(encoded[2]) if encoded[1] == 12 else encoded[2]
        if encoded[0] == "H":
            dtype, shape = TYPES[encoded[1]], encoded[2]
            count = math.prod(shape)
            return torch.frombuffer(bytearray.fromhex(encoded[3]), dtype=dtype, count=count).reshape(shape) if count else torch.empty(shape, dtype=dtype)
        if encoded[0] == "L":
            return [self._decoded(s) for s in encoded[1]]
        if encoded[0] == "B":
            return [bool(v) for v in encoded[1]]
        if encoded[0] == "gone":
            raise ValueError("an argument is an object that has been destroyed")
        return encoded[1]

    def _put(self, encoded, receiver, value):
        if isinstance(receiver, list):
            for s, r, v in zip(encoded[1], receiver, value, strict=True):
                self._put(s, r, v)
        elif isinstance(value, _table.Sized):
            value = value.value.contiguous()
            if value.numel() > receiver.numel():
                raise ValueError(f"a result of shape {list(value.shape)} for an output of at most {list(receiver.shape)}")
            if value.numel():
                receiver.as_strided([value.numel()], [1]).copy_(value.reshape(-1))
            self.found.append((encoded[1], list(value.shape)))
        else:
            _table.put(receiver, value)

    def _op(self, name, arguments, n_in, attributes):
        values = [self._decoded(a) for a in arguments]
        with torch.no_grad():
            for receiver, value in zip(values[n_in:], _table.OPS[name](values[:n_in], values[n_in:], attributes)):
                _table.put(receiver, value)


def names():
    """Returns the names of what can be computed: kernels without `aclnn`, and ops with the prefix
    `op:`."""
    return [*_table.KERNELS, *(f"op:{n}" for n in _table.OPS)]


def plant():
    """Executes the files named by MINDTORCH_STANDIN_KERNELS."""
    for path in filter(None, os.environ.get("MINDTORCH_STANDIN_KERNELS", "").split(os.pathsep)):
        with open(path) as f:
            exec(compile(f.read(), path, "exec"), {"KERNELS": _table.KERNELS, "OPS": _table.OPS, "kernel": _table.kernel, "op": _table.op, "torch": torch})


def isolate():
    """Uses one thread: launches are small, and the MindSpore process needs the other processor."""
    torch.set_num_threads(1)
