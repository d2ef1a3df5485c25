"""torch.save and torch.load: reads and writes PyTorch's file formats without PyTorch.

The zip format holds one pickle (`data.pkl`) and one aligned record per storage. The format before
PyTorch 1.6 is a series of pickles followed by the raw storages. Pickles contain PyTorch's own names
(see `_globals`).
"""

import contextlib
import enum
import functools
import io
import os
import pickle
import stat
import struct
import sys
import tarfile
import threading

import numpy as np

from mindtorch.backend.cpython import at_fork
from mindtorch.core.device import device as _device
from mindtorch.torch import _globals, _zipfile
from mindtorch.torch import _weights_only_unpickler as _weights_only
from mindtorch.torch._utils import deepcopy_tensor, reduce_tensor  # noqa: F401  (Tensor's methods call them by this module)
from mindtorch.torch._pickling import pickled
from mindtorch.torch._types import _get_layout  # noqa: F401
from mindtorch.torch.storage import TypedStorage, UntypedStorage, file_format, is_storage

# Public names under this module.
add_safe_globals = _weights_only.add_safe_globals
clear_safe_globals = _weights_only.clear_safe_globals
get_safe_globals = _weights_only.get_safe_globals
safe_globals = _weights_only.safe_globals

__all__ = [
    "save",
    "load",
    "register_package",
    "add_safe_globals",
    "get_safe_globals",
    "clear_safe_globals",
    "safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "get_crc32_options",
    "set_crc32_options",
    "get_default_load_endianness",
    "set_default_load_endianness",
    "get_default_mmap_options",
    "set_default_mmap_options",
    "LoadEndianness",
    "skip_data",
]

DEFAULT_PROTOCOL = 2
MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
_VERSION = b"3\n"
_MAX_VERSION = 10
MAP_LOCATION = object  # for annotations: None, a callable, torch.device, str or dict
FILE_LIKE = object  # for annotations: str, os.PathLike or a binary file


class LoadEndianness(enum.Enum):
    """Byte order assumed for files that do not record theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class SourceChangeWarning(Warning):
    """Warning that the source of a pickled class changed (only files of the old format record the
    source)."""


_options = {"crc32": True, "endianness": None, "mmap": None}


class _Skipping(threading.local):
    on = False


_skipping = _Skipping()


class skip_data:
    """Context manager: `save` writes zeros instead of the bytes of storages, and `load` creates
    zeros without reading any.

    Args:
        materialize_fake_tensors: accepted and ignored, since there are no fake tensors.
    """

    def __init__(self, materialize_fake_tensors=False):
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self):
        self._before, _skipping.on = _skipping.on, True

    def __exit__(self, *exc):
        _skipping.on = self._before


def normalize_storage_type(storage_type):
    """Returns the class in the torch namespace with the name of a storage class."""
    from mindtorch import torch

    return getattr(torch, storage_type.__name__)


def get_crc32_options():
    """True if `save` writes checksums."""
    return _options["crc32"]


def set_crc32_options(compute_crc32):
    """Sets whether `save` writes checksums; without them `load` cannot detect corruption."""
    _options["crc32"] = bool(compute_crc32)


def get_default_load_endianness():
    """Returns the byte order assumed for files that do not record theirs; None means little endian.
    """
    return _options["endianness"]


def set_default_load_endianness(endianness):
    """Sets the byte order assumed for files that do not record theirs."""
    if not isinstance(endianness, LoadEndianness) and endianness is not None:
        raise TypeError("Invalid argument type in function set_default_load_endianness")
    _options["endianness"] = endianness


def get_default_mmap_options():
    """Returns the mmap flags for loading files; None until set (a private copy-on-write mapping).
    """
    return _options["mmap"]


def set_default_mmap_options(flags):
    """Accepts ``mmap.MAP_PRIVATE``, the flag that `load(mmap=True)` uses; MAP_SHARED is not
    supported."""
    import mmap

    if flags not in (None, mmap.MAP_PRIVATE):
        if flags == mmap.MAP_SHARED:
            raise NotImplementedError(
                "torch.load(mmap=True) with MAP_SHARED is not supported on device cpu: in-place changes would "
                "be written into the checkpoint"
            )
        raise ValueError(
            "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, "
            f"got {flags}"
        )
    _options["mmap"] = flags


# ------------------------------------------------------------------ save
def save(
    obj,
    f,
    pickle_module=pickle,
    pickle_protocol=DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization=True,
    _disable_byteorder_record=False,
):
    """Saves an object to a path or a binary file
    (https://pytorch.org/docs/stable/generated/torch.save.html).

    An existing file is replaced only when the new file is complete. Raises RuntimeError if the
    parent directory does not exist.
    """
    if not isinstance(f, (str, os.PathLike)) and not hasattr(f, "write"):
        raise AttributeError("expected 'f' to be string, path, or a file-like object with a 'write' attribute")
    legacy = not _use_new_zipfile_serialization
    if legacy and _skipping.on:
        raise RuntimeError("Cannot use skip_data=True with _use_new_zipfile_serialization=False")
    data, storages = pickled(obj, pickle_module, pickle_protocol, legacy, location_tag)
    if legacy:

        def write(out, folder):
            _write_legacy(out, data, storages, pickle_protocol)
    else:

        def write(out, folder):
            _write_zip(out, folder, data, storages.items, not _disable_byteorder_record)

    if hasattr(f, "write"):
        write(f, "archive")
        return
    path = os.fsdecode(f)
    stem = os.path.splitext(os.path.basename(path))[0]
    with _replacing(path, legacy) as out:
        write(out, stem if stem.isascii() and stem else "archive")


def _write_zip(out, folder, data, storages, byteorder):
    w = _zipfile.Writer(out, folder, checksums=_options["crc32"])
    w.add("data.pkl", data)
    w.add(".format_version", b"1")
    w.add(".storage_alignment", str(_zipfile.ALIGNMENT).encode())
    if byteorder:
        w.add("byteorder", sys.byteorder.encode())
    kept = [(f"data/{k}", s) for k, s in storages.items() if s.device.type != "meta"]
    if _skipping.on:
        for name, s in kept:
            # crc 0: unknown, since the bytes are written later
            w.add(name, np.zeros(s.nbytes(), np.uint8), crc=0)
    else:
        w.add_all((name, s._bytes) for name, s in kept)
    w.add("version", _VERSION)
    w.add(".data/serialization_id", w.identity().encode())
    w.finish()


def _write_legacy(out, data, storages, protocol):
    info = {
        "protocol_version": PROTOCOL_VERSION,
        "little_endian": sys.byteorder == "little",
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    if sys.byteorder == "big":
        raise NotImplementedError(
            "the legacy file format is not supported on big endian machines: save in the zip format"
        )
    keys = sorted(storages.items)
    head = b"".join(pickle.dumps(x, protocol) for x in (MAGIC_NUMBER, PROTOCOL_VERSION, info))
    _zipfile.write_all(out.write, head + data + pickle.dumps(keys, protocol))
    for key in keys:
        u8 = storages.items[key]._bytes
        _zipfile.write_all(out.write, struct.pack("<q", len(u8) // storages.width(key)))
        _zipfile.write_all(out.write, u8)


@contextlib.contextmanager
def _replacing(path, legacy):
    """Context manager for a file that replaces `path` when complete; until then, and after an
    error, the old file stays."""
    path = os.path.realpath(path)  # write through a symbolic link
    folder, name = os.path.split(path)
    try:
        old = os.stat(path)
    except FileNotFoundError:
        old = None
        if not os.path.isdir(folder):
            if legacy:
                raise
            raise RuntimeError(f"Parent directory {folder} does not exist.") from None
    if old is not None:
        if not stat.S_ISREG(old.st_mode):
            # A pipe or device has no content to protect; a directory is an error here.
            with open(path, "wb", buffering=0) as out:
                yield out
            return
        if not os.access(path, os.W_OK):
            raise PermissionError(13, "Permission denied", path)
    temporary = os.path.join(folder, f".{name[:200]}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        fd = os.open(
            temporary,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0),
            0o666,
        )
    except PermissionError:
        if old is None:
            raise
        # The file is writable but its folder is not, so it can only be written in place.
        with open(path, "wb", buffering=0) as out:
            yield out
        return
    try:
        with open(fd, "wb", buffering=0) as out:
            if old is not None and hasattr(os, "fchmod"):
                os.fchmod(fd, stat.S_IMODE(old.st_mode))
                if os.geteuid() == 0:
                    os.fchown(fd, old.st_uid, old.st_gid)
            yield out
        _put_in_place(temporary, path, old)
    except BaseException:
        os.unlink(temporary)
        raise


# File size in bytes from which the old file is closed in a background thread: freeing its memory
# and disk blocks takes 20 ms for 100 MB.
_LARGE_FILE = 8 << 20
_closing = set()  # descriptors to be closed by such threads
_closing_lock = threading.Lock()


def _put_in_place(temporary, path, old):
    """Renames the new file over the old one; the storage of a large old file is freed in the
    background."""
    fd = None
    if old is not None and old.st_size >= _LARGE_FILE and os.access(path, os.R_OK):
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        _closing.add(fd)
    try:
        os.replace(temporary, path)
    finally:
        if fd is not None:
            try:
                threading.Thread(target=_close, args=(fd,), daemon=True, name="mindtorch-close").start()
            except RuntimeError:
                _close(fd)  # no thread can be started, e.g. at interpreter exit


def _close(fd):
    with _closing_lock:
        _closing.discard(fd)
        os.close(fd)


def _close_in_child():
    # A forked child has the descriptors but not the threads.
    while _closing:
        os.close(_closing.pop())
    _closing_lock.release()


at_fork("files of lazily read checkpoints", before=_closing_lock.acquire, after_in_parent=_closing_lock.release, after_in_child=_close_in_child)


# ------------------------------------------------------------------ locations of storages
_packages = []


def register_package(priority, tagger, deserializer):
    """Registers how storages of a device are tagged in files and restored; lower priorities are
    tried first.

    `tagger(storage)` returns a tag or None, `deserializer(storage, location)` a storage or None.
    """
    _packages.append((priority, tagger, deserializer))
    _packages.sort(key=lambda p: p[0])


def location_tag(storage):
    """Returns the location tag under which a storage is saved."""
    for _, tagger, _ in _packages:
        tag = tagger(storage)
        if tag:
            return tag
    return str(storage.device)


def default_restore_location(storage, location):
    """Moves a storage to the device of its tag; raises RuntimeError if the device is not available.
    """
    for _, _, deserializer in _packages:
        result = deserializer(storage, location)
        if result is not None:
            return result
    if location == "cpu":
        return storage.cpu()
    try:
        device = _device.device(location)
    except (RuntimeError, TypeError):
        device = None
    if device is None:
        raise RuntimeError(
            f"don't know how to restore data location of {_full_name(type(storage))} (tagged with {location})"
        )
    if device.type != "meta" and device.type not in _device.accelerator():
        name = device.type.upper()
        raise RuntimeError(
            f"Attempting to deserialize object on a {name} device but torch.{device.type}.is_available() is False. "
            "If you are "
            "running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your "
            "storages to the CPU."
        )
    if device.type != "meta":
        count = _device.registered[device.type].count()
        if (device.index or 0) >= count:
            raise RuntimeError(
                f"Attempting to deserialize object on {device.type.upper()} device {device.index} but torch.{device.type}.device_count() is {count}. "
                "Please use torch.load with map_location to map your storages to an existing device."
            )
    return storage.to(device)


def _full_name(kind):
    module, name = _globals.torch_name(kind) or (kind.__module__, kind.__qualname__)
    return f"{module}.{name}"


def _restorer(map_location):
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        return lambda storage, location: default_restore_location(storage, str(map_location.get(location, location)))
    if isinstance(map_location, (str, bytes)):
        target = map_location if isinstance(map_location, str) else map_location.decode()
        return lambda storage, location: default_restore_location(storage, target)
    if isinstance(map_location, _device.device):
        return lambda storage, location: default_restore_location(storage, str(map_location))
    if not callable(map_location):
        raise TypeError(
            f"map_location: '{type(map_location).__name__}' object is not callable, nor a device, string or dict"
        )

    def restore(storage, location):
        result = map_location(storage, location)
        if result is None:
            result = default_restore_location(storage, location)
        if not is_storage(result):
            raise TypeError(f"map_location must return a storage, got {type(result)}")
        return result.untyped()

    return restore


# ------------------------------------------------------------------ load
def load(f, map_location=None, pickle_module=None, *, weights_only=None, mmap=None, **pickle_load_args):
    """Loads a file written by `save` or by PyTorch
    (https://pytorch.org/docs/stable/generated/torch.load.html).

    With `weights_only` (the default), no code in the file is run and only data is accepted.

    Raises pickle.UnpicklingError if the pickle is corrupt or contains a name that is not allowed,
    RuntimeError if the container is corrupt or a device is missing, and EOFError if the file is
    empty or truncated.
    """
    weights_only = _choose_weights_only(weights_only, pickle_module)
    restore = _restorer(map_location)
    pickle_module = pickle_module or pickle
    is_path = isinstance(f, (str, os.PathLike))
    if mmap is None:
        mmap = False
    if mmap and not is_path:
        raise ValueError("f must be a file path in order to use the mmap argument")
    if not weights_only:
        pickle_load_args.setdefault("encoding", "utf-8")
    with open(f, "rb") if is_path else contextlib.nullcontext(_checked_file(f)) as file:
        start = file.tell()
        head = file.read(64)
        file.seek(start)
        if not head:
            raise EOFError("Ran out of input: the file is empty")
        if head[:2] == b"PK":
            return _load_zip(file, restore, pickle_module, weights_only, mmap, pickle_load_args)
        if mmap:
            raise RuntimeError(
                "mmap can only be used with files saved with `torch.save(_use_new_zipfile_serialization=True)`, please "
                f"torch.save your checkpoint {os.fspath(f)!r} with this option in order to use mmap."
            )
        return _load_legacy(file, restore, pickle_module, weights_only, pickle_load_args, _seems(head))


def _choose_weights_only(weights_only, pickle_module):
    force, forbid = (
        os.environ.get(n, "0").lower() in ("1", "y", "yes", "true")
        for n in ("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")
    )
    if force and forbid:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but "
            "both were set."
        )
    if force:
        weights_only = True
    elif weights_only is None:
        weights_only = pickle_module is None and not forbid
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    return bool(weights_only)


def _checked_file(f):
    for name in ("read", "seek", "tell"):
        if not hasattr(f, name):
            raise AttributeError(
                f"'{type(f).__name__}' object has no attribute '{name}'. You can only torch.load from a file that is "
                "seekable. Please pre-load the data into a buffer like io.BytesIO and try to load from it instead."
            )
    return f


# Signatures of files that are often mistaken for checkpoints.
_OTHER_FILES = (
    (b"version https://git-lfs", "a pointer of Git LFS; `git lfs pull` fetches the file itself"),
    (b"<", "a web page or XML: the download probably returned an error page"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "an array of NumPy (numpy.load)"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ", "compressed with xz"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"GGUF", "a GGUF file"),
    (b"%PDF", "a PDF"),
)


def _seems(head):
    """Guesses the type of a file that cannot be unpickled from its first bytes.

    Returns a sentence to append to an error message, or an empty string.
    """
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 40:
        return " It seems to be a safetensors file (safetensors.torch.load_file)."
    for begin, what in _OTHER_FILES:
        if head.lstrip().startswith(begin) if begin == b"<" else head.startswith(begin):
            return f" It seems to be {what}."
    if head and all(32 <= c < 127 or c in b"\t\r\n" for c in head):
        return f" It seems to be a text file; it begins with {head[:40].decode()!r}."
    return ""


def _unpickle(file, persistent_load, pickle_module, weights_only, args, seems=""):
    """Unpickles one object from `file`."""
    if not weights_only:
        unpickler = _unpickler_class(pickle_module.Unpickler)(file, **args)
        unpickler.persistent_load = persistent_load
        return unpickler.load()
    unpickler = _weights_only.Unpickler(file, **args)
    unpickler.persistent_load = persistent_load
    try:
        return unpickler.load()
    except _weights_only.Refused as e:
        raise pickle.UnpicklingError(
            "Weights only load failed. The file names a class or function that is not allowed by default; nothing of it "
            "was run (with `weights_only=False` it could run anything).\n\tWeightsUnpickler error: "
            f"{e}"
        ) from None
    except pickle.UnpicklingError as e:
        # No alternative way to load would succeed, and one of them would run code from the file.
        raise pickle.UnpicklingError(
            "Weights only load failed. The file is corrupt or not a PyTorch checkpoint: it may not have been saved or "
            f"transferred completely.{seems}\n\tWeightsUnpickler error: {e}"
        ) from e


@functools.lru_cache(None)
def _unpickler_class(base):
    class Unpickler(base):
        def find_class(self, module, name):
            if _globals.is_torch(module):
                try:
                    return _globals.resolve(module, name)
                except _globals.Missing as e:
                    raise AttributeError(str(e)) from e
            return super().find_class(module, name)

    return Unpickler


def _load_zip(file, restore, pickle_module, weights_only, mmap, args):
    reader = (_zipfile.MappedReader if mmap else _zipfile.Reader)(file)
    if "constants.pkl" in reader:
        if weights_only:
            raise RuntimeError("Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``.")
        raise NotImplementedError("this file is a TorchScript archive: torch.jit.load is not supported on device cpu")
    _check_version(reader)
    swap = _byte_order(reader) != sys.byteorder
    loaded = {}

    def persistent_load(pid):
        kind, key, location, count = _storage_reference(pid, 5)
        storage = loaded.get(key)
        if storage is None:
            width = 1 if kind is UntypedStorage else kind.dtype.itemsize
            if location == "meta":
                storage = UntypedStorage(0, device="meta")
            else:
                name = f"data/{key}"
                if reader.size(name) != count * width:
                    raise RuntimeError(
                        f"corrupt checkpoint: record {name} has {reader.size(name)} bytes, its pickle declares "
                        f"{count * width}"
                    )
                u8 = np.zeros(count * width, np.uint8) if _skipping.on else reader.array(name)
                storage = UntypedStorage._of_bytes(u8)
                if swap and width > 1:
                    storage.byteswap(kind.dtype)
                storage = restore(storage, location)
            loaded[key] = storage
        return storage if kind is UntypedStorage else TypedStorage(wrap_storage=storage, dtype=kind.dtype)

    return _unpickle(io.BytesIO(reader.read("data.pkl")), persistent_load, pickle_module, weights_only, args)


def _check_version(reader):
    if "version" not in reader:
        raise RuntimeError('not a PyTorch checkpoint, or corrupt: the zip file has no record "version"')
    text = reader.read("version") if reader.size("version") < 64 else b""
    if not text.strip().isdigit():
        raise RuntimeError("corrupt checkpoint: unreadable version")
    version = int(text)
    if not 1 <= version <= _MAX_VERSION:
        raise RuntimeError(
            f"Attempted to read a PyTorch file with version {version}, but the maximum supported version for reading "
            "is "
            f"{_MAX_VERSION}."
        )


def _byte_order(reader):
    if "byteorder" in reader:
        order = reader.read("byteorder") if reader.size("byteorder") < 64 else b"?"
        if order not in (b"little", b"big"):
            raise ValueError(f"Unknown endianness type: {order!r}")
        return order.decode()
    chosen = _options["endianness"]
    if chosen is LoadEndianness.NATIVE:
        return sys.byteorder
    return "big" if chosen is LoadEndianness.BIG else "little"


def _storage_reference(pid, fields):
    """Parses a storage reference to (class, key, location, number of elements)."""
    if not isinstance(pid, tuple) or len(pid) < fields or pid[0] not in ("storage", b"storage"):
        raise pickle.UnpicklingError(
            f"Unknown typename for persistent_load, expected 'storage' but got {str(pid)[:60]!r}"
        )
    kind, key, location, count = pid[1:5]
    # Files written by Python 2 contain these as bytes.
    key = key.decode("ascii") if isinstance(key, bytes) else key
    location = location.decode("ascii") if isinstance(location, bytes) else location
    if (
        not isinstance(kind, type)
        or not issubclass(kind, (UntypedStorage, TypedStorage))
        or (kind is not UntypedStorage and kind.dtype is None)
    ):
        raise pickle.UnpicklingError(f"invalid storage class {kind!r} in the checkpoint")
    if type(key) is not str or type(location) is not str or type(count) is not int or count < 0:
        raise pickle.UnpicklingError("invalid storage reference in the checkpoint: key, location or size has the wrong type")
    return kind, key, location, count


# ------------------------------------------------------------------ the format before PyTorch 1.6
class _Lines:
    """Wrapper that adds ``readline`` to a file without it."""

    def __init__(self, f):
        self._f = f
        self.read = f.read
        self.seek = f.seek
        self.tell = f.tell

    def readline(self):
        out = bytearray()
        while True:
            c = self._f.read(1)
            out += c
            if not c or c == b"\n":
                return bytes(out)


def _is_tar(file, start):
    head = file.read(512)
    file.seek(start)
    if len(head) < 512:
        return False
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _load_legacy(file, restore, pickle_module, weights_only, args, seems=""):
    start = file.tell()
    if _is_tar(file, start):
        raise RuntimeError(
            "this file has the tar format of torch before 0.1.10, which is not supported: load it with an old torch "
            "and "
            "save it again" + (" (it also rejects the file with ``weights_only=True``)" if weights_only else "")
        )
    file.seek(0, 2)
    left = file.tell()  # bytes left for storages
    file.seek(start)
    if not hasattr(file, "readline"):
        file = _Lines(file)
    loaded, views, created = {}, {}, {}

    def nothing(pid):
        raise pickle.UnpicklingError("the checkpoint contains a storage reference where none is allowed")

    def persistent_load(pid):
        nonlocal left
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] in ("module", b"module"):
            # (tag, class, file, source): the source is not compared with the current one
            return pid[1]
        kind, key, location, count = _storage_reference(pid, 6)
        width = 1 if kind is UntypedStorage else kind.dtype.itemsize
        if key not in loaded:
            left -= count * width
            if left < 0:
                raise RuntimeError(
                    f"unexpected EOF: the checkpoint's pickle declares a storage of {count * width} bytes, but the "
                    "file is too short. The file might be corrupted."
                )
            storage = restore(UntypedStorage._of_bytes((np.zeros if _skipping.on else np.empty)(count * width, np.uint8)), location)
            loaded[key] = storage
            created[key] = kind, count
        storage = loaded[key]
        if pid[5] is not None:
            storage = _view(storage, pid[5], width, views)
        return storage if kind is UntypedStorage else TypedStorage(wrap_storage=storage, dtype=kind.dtype)

    def one(load_persistent=nothing):
        return _unpickle(file, load_persistent, pickle_module, weights_only, args, seems)

    try:
        if one() != MAGIC_NUMBER:
            raise RuntimeError("Invalid magic number; corrupt file?")
        version = one()
        if version != PROTOCOL_VERSION:
            raise RuntimeError(f"Invalid protocol version: {version}")
        # sizes of C types on the writing machine, unused: storages are little endian in any case
        one()
        result = one(persistent_load)
        keys = one()
    except EOFError as e:
        raise EOFError("Ran out of input: the file is truncated or not a checkpoint") from e
    if (
        not isinstance(keys, list)
        or not all(type(k) is str for k in keys)
        or len(set(keys)) != len(keys)
        or set(keys) != set(loaded)
    ):
        raise RuntimeError("the file's list of storages does not fit its content: it is damaged")
    for key in () if _skipping.on else keys:
        _fill(file, loaded[key], *created[key])
    return result


def _view(storage, metadata, width, views):
    if not isinstance(metadata, tuple) or len(metadata) != 3:
        raise pickle.UnpicklingError("invalid storage view in the checkpoint: expected a key, an offset and a size")
    key, offset, size = metadata
    if (
        type(offset) is not int
        or type(size) is not int
        or min(offset, size) < 0
        or (offset + size) * width > storage.nbytes()
    ):
        raise RuntimeError("corrupt checkpoint: a storage view exceeds its storage")
    if key not in views:
        views[key] = storage[offset * width : (offset + size) * width]
    return views[key]


def _fill(file, storage, kind, count):
    head = file.read(8)
    if len(head) != 8:
        raise RuntimeError("unexpected EOF, expected the size of a storage. The file might be corrupted.")
    written = struct.unpack("<q", head)[0]
    if written != count:
        raise RuntimeError(f"corrupt checkpoint: storage declares {count} elements, file contains {written}")
    with storage._written() as u8:
        _read_into(file, memoryview(u8))
    if sys.byteorder == "big" and kind is not UntypedStorage:
        storage.byteswap(kind.dtype)


def _read_into(file, out):
    read_into, pos = getattr(file, "readinto", None), 0
    while pos < len(out):
        if read_into is not None:
            n = read_into(out[pos:])
        else:
            data = file.read(len(out) - pos)
            n = len(data)
            out[pos : pos + n] = data
        if not n:
            raise RuntimeError(f"unexpected EOF, expected {len(out) - pos} more bytes. The file might be corrupted.")
        pos += n


def get_unsafe_globals_in_checkpoint(f):
    """Returns the names in a zip checkpoint that `weights_only` rejects, without running any code.
    """
    with open(f, "rb") if isinstance(f, (str, os.PathLike)) else contextlib.nullcontext(_checked_file(f)) as file:
        start = file.tell()
        head = file.read(2)
        file.seek(start)
        if head != b"PK":
            raise ValueError("Expected input to be a checkpoint returned by torch.save.")
        reader = _zipfile.Reader(file)
        if "constants.pkl" in reader:
            raise ValueError(
                "Expected input to be a checkpoint returned by torch.save but got a torchscript checkpoint"
            )
        return _weights_only.unsafe_globals_in(reader.read("data.pkl"))


file_format.update(save=save, load=load)
