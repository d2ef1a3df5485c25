"""Objects to save, functions that compare them, and functions that damage checkpoints."""

import collections
import io
import pickle
import warnings
import zipfile

import numpy as np
import torch as real

import mindtorch.torch as mine

SIDES = {"real": real, "mine": mine}
LOAD_ERRORS = (pickle.UnpicklingError, RuntimeError, EOFError, TypeError, ValueError, NotImplementedError)


def tensor(T, a, dtype=None):
    t = T.from_numpy(np.array(a))
    return t if dtype is None else t.to(getattr(T, dtype))


def numbers(T, dtype, n=6):
    return tensor(T, np.arange(n) % 3 / 2, dtype)


def views(T):
    base = tensor(T, np.arange(24, dtype=np.float32).reshape(4, 6))
    return {"t": base.t(), "part": base[1:3, ::2], "base": base, "row": base[2], "expanded": base[:1].expand(5, 6)}


def parameters(T):
    shared = T.nn.Parameter(tensor(T, np.ones((2, 3), np.float32)))
    return {"a": shared, "b": shared, "frozen": T.nn.Parameter(tensor(T, np.zeros(2, np.float32)), requires_grad=False)}


def model(T):
    m = T.nn.Sequential(T.nn.Linear(3, 4), T.nn.BatchNorm1d(4), T.nn.ReLU(), T.nn.Linear(4, 2, bias=False))
    with T.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(tensor(T, np.random.RandomState(i).randn(*p.shape).astype(np.float32)))
    return m


def trained(T, kind, **kw):
    m = model(T)
    opt = getattr(T.optim, kind)(m.parameters(), lr=0.1, **kw)
    m(tensor(T, np.ones((4, 3), np.float32))).sum().backward()
    opt.step()
    return m, opt


def checkpoint(T):
    m, opt = trained(T, "Adam")
    sched = T.optim.lr_scheduler.StepLR(opt, 2)
    return {
        "epoch": 3,
        "model": m.state_dict(),
        "optimizer": opt.state_dict(),
        "scheduler": sched.state_dict(),
        "best": 0.5,
    }


def with_attribute(T):
    t = tensor(T, [1.0])
    t.note = "kept"
    return t


OBJECTS = {
    f"dtype {d}": lambda T, d=d: numbers(T, d)
    for d in (
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "bool",
        "complex64",
        "complex128",
    )
}
NEW_ONLY = {f"dtype {d}": lambda T, d=d: tensor(T, np.arange(5).astype(d)) for d in ("uint16", "uint32", "uint64")}
OBJECTS |= {
    "scalar": lambda T: tensor(T, 2.5),
    "empty": lambda T: tensor(T, np.zeros((0, 3), np.float32)),
    "no dims empty": lambda T: tensor(T, np.zeros(0, np.int64)),
    "one": lambda T: tensor(T, [[[7]]]),
    "transposed": lambda T: tensor(T, np.arange(6.0).reshape(2, 3)).t(),
    "channels last": lambda T: tensor(T, np.arange(24.0).reshape(1, 2, 3, 4)).permute(0, 3, 1, 2),
    "offset": lambda T: tensor(T, np.arange(9.0))[4:],
    "strided": lambda T: tensor(T, np.arange(9.0))[1::3],
    "expanded": lambda T: tensor(T, np.ones((1, 3))).expand(4, 3),
    "empty view": lambda T: tensor(T, np.ones(5))[2:2],
    "views": views,
    "same twice": lambda T: [tensor(T, [1.0])] * 2,
    "requires grad": lambda T: tensor(T, np.ones(3)).requires_grad_(),
    "parameters": parameters,
    "parameter of a view": lambda T: T.nn.Parameter(tensor(T, np.arange(6.0))[2:]),
    "state dict": lambda T: model(T).state_dict(),
    "checkpoint": checkpoint,
    "sgd": lambda T: trained(T, "SGD", momentum=0.9)[1].state_dict(),
    "adamw": lambda T: trained(T, "AdamW")[1].state_dict(),
    "rmsprop": lambda T: trained(T, "RMSprop")[1].state_dict(),
    "adagrad": lambda T: trained(T, "Adagrad")[1].state_dict(),
    "size": lambda T: T.Size([2, 3]),
    "sizes": lambda T: {T.Size([]): 1, T.Size([1]): T.Size([0])},
    "dtypes": lambda T: [T.float32, T.bfloat16, T.bool, T.complex64, T.float8_e4m3fn],
    "devices": lambda T: [T.device("cpu"), T.device("cuda", 1), T.device("meta")],
    "layout": lambda T: T.strided,
    "generator state": lambda T: T.Generator().manual_seed(7).get_state(),
    "numbers": lambda T: [
        1,
        -1,
        2**70,
        -(2**70),
        255,
        256,
        65535,
        65536,
        -(2**31),
        2.5,
        float("inf"),
        True,
        None,
        1 + 2j,
    ],
    "strings": lambda T: ["", "a", "ü漢", "x" * 300, b"\x00\xff", bytearray(b"ab")],
    "containers": lambda T: {
        "l": [1, [2]],
        "t": (1, (2, 3), (4, 5, 6), (7, 8, 9, 10), ()),
        "d": {1: {2: 3}},
        "s": {1, 2},
        "o": collections.OrderedDict(a=1),
        "c": collections.Counter("aab"),
    },
    "recursive": lambda T: (lambda x: x.append(x) or x)([1]),
    "name like a global": lambda T: ["cmindtorch.torch._utils\n_rebuild_tensor_v2\n", tensor(T, [1.0])],
    "long list": lambda T: list(range(3000)),
    "many": lambda T: [tensor(T, [float(i)]) for i in range(300)],
    "deep": lambda T: {"a": [{"b": (tensor(T, [1]), {"c": [tensor(T, [2.0])]})}]},
    "ordered with metadata": lambda T: model(T).half().state_dict(),
    "attribute": with_attribute,
    "none": lambda T: None,
    "batch norm": lambda T: T.nn.BatchNorm2d(3).state_dict(),
    "lstm": lambda T: {k: T.full_like(v, 0.5) for k, v in T.nn.LSTM(2, 3, 2, bidirectional=True).state_dict().items()},
    "prefixed backwards": lambda T: {"module." + k: v for k, v in reversed(model(T).state_dict().items())},
    "nesterov": lambda T: trained(T, "SGD", momentum=0.9, nesterov=True, weight_decay=0.1)[1].state_dict(),
    "amsgrad": lambda T: trained(T, "Adam", amsgrad=True)[1].state_dict(),
    "cosine": lambda T: T.optim.lr_scheduler.CosineAnnealingLR(trained(T, "SGD")[1], 5).state_dict(),
    "rows of one memory": lambda T: list(tensor(T, np.arange(12.0).reshape(3, 4))),
    "halves of one memory": lambda T: tensor(T, np.arange(10, dtype=np.int32)).chunk(2),
    "diagonal": lambda T: tensor(T, np.arange(9.0).reshape(3, 3)).diagonal(),
    "unfolded": lambda T: tensor(T, np.arange(8.0)).unfold(0, 3, 2),
    "six dimensions": lambda T: tensor(T, np.arange(64, dtype=np.int8).reshape(2, 2, 2, 2, 2, 2)).permute(5, 0, 4, 1, 3, 2),
    "extreme numbers": lambda T: tensor(T, [np.nan, -np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7976931348623157e308]),
    "complex view": lambda T: tensor(T, np.arange(8) * (1 - 2j)).reshape(2, 4).t()[1:],
    "typed storage": lambda T: tensor(T, [1.0, 2.0]).storage(),
    "mixed": lambda T: {"x": tensor(T, [1.0]), "y": "text", "z": [T.float16, T.Size([1]), tensor(T, [True])]},
}
assert len(OBJECTS) >= 60  # number of different objects; each is written and read by both sides
BOTH = [(n, z) for n in OBJECTS for z in (True, False)] + [(n, True) for n in NEW_ONLY]


def build(T, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {**OBJECTS, **NEW_ONLY}[name](T)


def saved(T, obj, zipped=True, **kw):
    b = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        T.save(obj, b, _use_new_zipfile_serialization=zipped, **kw)
    b.seek(0)
    return b


def side(x):
    return next(
        (T for T in SIDES.values() if isinstance(x, (T.Tensor, T.dtype, T.device, T.Size, T.layout, T.TypedStorage))),
        None,
    )


def raw(t):
    """Returns a tensor's elements as bytes."""
    T = side(t)
    t = t.detach().contiguous()
    return (
        t.view(T.uint8).numpy().tobytes()
        if t.dim() and t.numel()
        else (t.reshape(1).view(T.uint8).numpy().tobytes() if t.numel() else b"")
    )


def compare(a, b, places, seen):
    """Checks that `b` equals `a` in every element and attribute, and collects their storages."""
    if id(a) in seen:
        return
    if isinstance(a, (list, dict)):
        seen.add(id(a))
    T = side(a)
    if T is None or isinstance(a, T.Size):
        assert type(a).__name__ == type(b).__name__, f"{type(b)} for {type(a)}"
    if T is not None and isinstance(a, T.Tensor):
        assert type(a).__name__ == type(b).__name__
        assert (str(a.dtype), tuple(a.shape), a.requires_grad) == (str(b.dtype), tuple(b.shape), b.requires_grad)
        # For empty arrays the two `from_numpy` convert NumPy's strides differently.
        assert not a.numel() or (a.stride(), a.storage_offset()) == (b.stride(), b.storage_offset())
        assert raw(a) == raw(b)
        places.append(
            (
                a.untyped_storage().data_ptr() if a.numel() else None,
                b.untyped_storage().data_ptr() if b.numel() else None,
            )
        )
        assert getattr(a, "note", None) == getattr(b, "note", None)
    elif T is not None and isinstance(a, T.TypedStorage):
        assert (str(a.dtype), a.tolist()) == (str(b.dtype), b.tolist())
    elif T is not None and not isinstance(a, T.Size):
        assert repr(a) == repr(b)
    elif isinstance(a, dict):
        assert [str(k) for k in a] == [str(k) for k in b]
        for x, y in zip(a, b):
            compare(x, y, places, seen)
            compare(a[x], b[y], places, seen)
        if getattr(a, "_metadata", None) is not None:
            compare(a._metadata, b._metadata, places, seen)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            compare(x, y, places, seen)
    else:
        assert a == b


def check(a, b):
    places = []
    compare(a, b, places, set())
    one, other = {}, {}
    for i, (x, y) in enumerate(places):
        if x is not None:
            assert one.setdefault(x, i) == other.setdefault(y, i), "storages are not shared alike"


def rebuilt(data, records, compression=zipfile.ZIP_STORED):
    """Returns a checkpoint with some records replaced, added, or (None) left out."""
    z, b = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(b, "w", compression) as out:
        for n in z.namelist():
            short = n.split("/", 1)[1]
            content = records.get(short, z.read(n))
            if content is not None:
                out.writestr(n, content)
        for short, content in records.items():
            if f"archive/{short}" not in z.namelist() and content is not None:
                out.writestr(f"archive/{short}", content)
    return b.getvalue()


class User:
    def __init__(self, name):
        self.name = name

    def __eq__(self, other):
        return type(other) is User and other.name == self.name


class Other(User):
    pass
