"""The zip container of checkpoint files: stored, aligned records that can be read in place or
memory-mapped.

It implements only what checkpoints need: a writer that streams to any object with ``write`` and
aligns each record's bytes, and a reader that validates the file's metadata before using it.
"""

import hashlib
import mmap
import struct
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

ALIGNMENT = 64

# Sizes, offsets and counts from these values on need zip64 fields; the short fields then contain
# all ones.
_LIMIT32 = 0xFFFFFFFF
_LIMIT16 = 0xFFFF

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR64 = struct.Struct("<4sIQI")

_UTF8 = 0x800
# 1980-01-01, the first date that zip can express. A fixed date makes equal input give equal files.
_EPOCH_DATE = 0x21
_PAD_ID = 0x4246  # "FB", the id of the padding field in PyTorch's writer

# Maximum size of decompressed records per byte of the file, in addition to a fixed allowance.
_MAX_EXPANSION = 64
_EXPANSION_ALLOWANCE = 64 << 20

_CHUNK = 1 << 20

# Minimum record size in bytes for which a checksum is computed in a separate thread.
_CRC_ASIDE = 256 << 10

# Smaller arrays share allocations of this size, which the OS can back with huge pages: touching
# small fresh allocations costs four times as much as reading the file. The size also bounds the
# memory that a surviving array keeps alive for its neighbours.
_ARENA = 32 << 20


def _short32(n):
    return 0xFFFFFFFF if n >= _LIMIT32 else n


def _short16(n):
    return 0xFFFF if n >= _LIMIT16 else n


def write_all(write, data):
    """Writes all bytes of a buffer. Raw files and sockets may accept only a part per call."""
    view = memoryview(data).cast("B") if len(data) else b""
    while len(view):
        n = write(view)
        # An object whose write() returns None has written everything.
        if n is None or n >= len(view):
            break
        view = view[n:]


class Writer:
    """Writes records one after another to `f` (needs only ``write``). ``finish`` writes the
    directory.

    Without `checksums` the CRC fields are zero, which checkpoint readers treat as unknown.
    """

    def __init__(self, f, folder, checksums=True):
        self._write = f.write
        self._checksums = checksums
        self._folder = folder
        self._pos = 0
        self._directory = []
        self._digest = hashlib.sha1()

    def _put(self, data):
        write_all(self._write, data)
        self._pos += len(data)

    def add_all(self, records):
        """Adds (name, data) pairs. A thread computes the checksums of large records while earlier
        records are written."""
        records = list(records)
        large = [d for _, d in records if len(d) >= _CRC_ASIDE] if self._checksums else []
        pool = ThreadPoolExecutor(1) if len(large) > 1 else None
        try:
            ahead = iter([pool.submit(zlib.crc32, d) for d in large] if pool else ())
        except RuntimeError:
            ahead = iter(())  # no thread can be started, e.g. at interpreter shutdown
        try:
            for name, data in records:
                crc = next(ahead, None) if len(data) >= _CRC_ASIDE else None
                self.add(name, data, crc and crc.result())
        finally:
            if pool:
                pool.shutdown(cancel_futures=True)

    def add(self, name, data, crc=None):
        """Adds record `folder/name` with the bytes of `data` (any contiguous buffer), aligned to 64
        bytes."""
        view = memoryview(data).cast("B") if len(data) else b""
        path = f"{self._folder}/{name}".encode()
        size = len(view)
        if crc is None:
            crc = zlib.crc32(view) if self._checksums else 0
        big = size >= _LIMIT32
        extra = struct.pack("<2H2Q", 1, 16, size, size) if big else b""
        start = self._pos + _LOCAL.size + len(path) + len(extra) + 4
        extra += struct.pack("<2H", _PAD_ID, -start % ALIGNMENT) + bytes(-start % ALIGNMENT)
        short = _short32(size)
        self._directory.append((path, size, crc, self._pos))
        self._put(
            _LOCAL.pack(
                b"PK\3\4", 45 if big else 20, _UTF8, 0, 0, _EPOCH_DATE, crc, short, short, len(path), len(extra)
            )
            + path
            + extra
        )
        self._put(view)
        self._digest.update(path + struct.pack("<QI", size, crc))

    def identity(self):
        """Returns a 40-digit id of the content."""
        return str(int.from_bytes(self._digest.digest(), "big") % 10**40).zfill(40)

    def finish(self):
        """Writes the central directory."""
        start = self._pos
        for path, size, crc, offset in self._directory:
            big = b""
            if size >= _LIMIT32:
                big += struct.pack("<2Q", size, size)
            if offset >= _LIMIT32:
                big += struct.pack("<Q", offset)
            extra = struct.pack("<2H", 1, len(big)) + big if big else b""
            short = _short32(size)
            self._put(
                _CENTRAL.pack(
                    b"PK\1\2",
                    45 if big else 20,
                    45 if big else 20,
                    _UTF8,
                    0,
                    0,
                    _EPOCH_DATE,
                    crc,
                    short,
                    short,
                    len(path),
                    len(extra),
                    0,
                    0,
                    0,
                    0,
                    _short32(offset),
                )
                + path
                + extra
            )
        size, count, end = self._pos - start, len(self._directory), self._pos
        if count >= _LIMIT16 or size >= _LIMIT32 or start >= _LIMIT32:
            self._put(_END64.pack(b"PK\6\6", _END64.size - 12, 45, 45, 0, 0, count, count, size, start))
            self._put(_LOCATOR64.pack(b"PK\6\7", 0, end, 1))
        self._put(_END.pack(b"PK\5\6", 0, 0, _short16(count), _short16(count), _short32(size), _short32(start), 0))


def _broken(what):
    return RuntimeError(
        f"PytorchStreamReader failed reading zip archive: {what}. The file is probably truncated or damaged: it may "
        "not have been saved or transferred completely, or it was changed afterwards."
    )


class _Checksum:
    """CRC-32 of consecutive pieces, `size` bytes in total. A large checksum runs in a thread next
    to the reading thread (0.3 s per GB)."""

    def __init__(self, size):
        self.value = 0
        self._aside = ThreadPoolExecutor(1) if size >= _CRC_ASIDE else None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self._aside is not None:
            self._aside.shutdown()

    def _add(self, chunk):
        self.value = zlib.crc32(chunk, self.value)

    def add(self, chunk):
        """Adds a piece. `value` is complete when the ``with`` block has ended."""
        if self._aside is None:
            self._add(chunk)
        else:
            self._aside.submit(self._add, chunk)


class Reader:
    """Records of a checkpoint zip in the seekable binary file `f`.

    Every kind of malformed file raises a RuntimeError that describes the defect. Checksums are
    verified unless they are zero, as written under
    ``torch.serialization.set_crc32_options(False)``.
    """

    def __init__(self, f):
        self._f = f
        here = f.tell()
        try:
            f.seek(0, 2)
            self._size = f.tell()
            f.seek(here)
            archive = zipfile.ZipFile(f)
        except MemoryError:
            raise
        except Exception as e:
            # The exceptions that zipfile raises on hostile directories are undocumented:
            # struct.error, UnicodeDecodeError, OSError, ...
            raise _broken(f"failed finding or reading its central directory ({e})") from e
        self._infos = {}
        for info in archive.infolist():
            if info.filename in self._infos:
                raise _broken(f"two records are named {info.filename!r}")
            self._infos[info.filename] = info
        if not self._infos:
            raise _broken("it has no records")
        first = next(iter(self._infos))
        if "/" not in first:
            raise RuntimeError(f"this zip is not a checkpoint: file in archive is not in a subdirectory: {first}")
        self.folder = first.split("/", 1)[0]
        starts = sorted(i.header_offset for i in self._infos.values()) + [archive.start_dir]
        # A record must end where the next begins, so overlapping records cannot multiply the file's
        # size.
        self._end = dict(zip(starts, starts[1:]))
        if len(self._end) != len(self._infos):
            raise _broken("records overlap")
        self._arena, self._arena_left = b"", sum(i.file_size for i in self._infos.values())
        packed = sum(i.file_size for i in self._infos.values() if i.compress_type != zipfile.ZIP_STORED)
        if packed > _EXPANSION_ALLOWANCE + _MAX_EXPANSION * self._size:
            raise RuntimeError(
                f"refusing to load: compressed records of this {self._size} byte file claim to unpack to {packed} "
                "bytes. Unpack it by hand and store it without compression if you trust it."
            )

    def __contains__(self, name):
        return f"{self.folder}/{name}" in self._infos

    def names(self):
        """Returns the record names without the folder."""
        return [n[len(self.folder) + 1 :] for n in self._infos]

    def _info(self, name):
        try:
            return self._infos[f"{self.folder}/{name}"]
        except KeyError:
            raise _broken(f"file not found: {self.folder}/{name}") from None

    def size(self, name):
        """Returns the size of a record in bytes."""
        return self._info(name).file_size

    def locate(self, name):
        """Returns (offset of a stored record's bytes in the file, their count)."""
        info = self._info(name)
        if info.flag_bits & 1:
            raise RuntimeError(f"record {info.filename} is encrypted")
        f = self._f
        f.seek(info.header_offset)
        head = f.read(_LOCAL.size)
        if len(head) != _LOCAL.size:
            raise _broken(f"the header of {info.filename} is truncated")
        fields = _LOCAL.unpack(head)
        signature, method, name_len, extra_len = fields[0], fields[3], fields[9], fields[10]
        # The directory contains the decoded name. A different local name means that one of the two
        # is corrupt.
        local = f.read(name_len).decode("utf-8" if fields[2] & _UTF8 else "cp437", "replace")
        if signature != b"PK\3\4" or local != info.orig_filename or method != info.compress_type:
            raise _broken(f"the header of {info.filename} does not match the central directory")
        start = info.header_offset + _LOCAL.size + name_len + extra_len
        if start + info.compress_size > self._end[info.header_offset]:
            raise _broken(f"record {info.filename} overlaps the next record")
        if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
            raise _broken(f"record {info.filename} has inconsistent sizes: {info.compress_size} and {info.file_size} bytes")
        return start, info.compress_size

    def read_into(self, name, out):
        """Fills the writable uint8 array `out` with the record. Both must have the same size."""
        info = self._info(name)
        if info.file_size != len(out):
            raise _broken(f"record {info.filename} has {info.file_size} bytes, expected {len(out)}")
        start, packed = self.locate(name)
        self._f.seek(start)
        if info.compress_type == zipfile.ZIP_STORED:
            crc = self._copy(info, memoryview(out))
        elif info.compress_type == zipfile.ZIP_DEFLATED:
            crc = self._inflate(info, packed, memoryview(out))
        else:
            raise RuntimeError(f"record {info.filename}: compression method {info.compress_type} is not supported")
        if crc != info.CRC and info.CRC:
            raise _broken(f"bad CRC-32 of record {info.filename}")

    def _copy(self, info, out):
        pos, size = 0, len(out)
        read_into = getattr(self._f, "readinto", None)
        with _Checksum(size) as crc:
            while pos < size:
                # Read in pieces, so that the checksum reads data that is still in the cache.
                chunk = out[pos : pos + _CHUNK]
                if read_into is not None:
                    n = read_into(chunk)
                else:
                    data = self._f.read(len(chunk))
                    n = len(data)
                    chunk[:n] = data
                if not n:
                    raise _broken(f"unexpected EOF in record {info.filename}")
                crc.add(chunk[:n])
                pos += n
        return crc.value

    def _inflate(self, info, packed, out):
        crc, pos, left = 0, 0, packed
        engine = zlib.decompressobj(-15)
        try:
            while pos < len(out):
                data = engine.unconsumed_tail
                if not data:
                    data = self._f.read(min(_CHUNK, left))
                    left -= len(data)
                    if not data:
                        break
                chunk = engine.decompress(data, min(_CHUNK, len(out) - pos))
                out[pos : pos + len(chunk)] = chunk
                crc = zlib.crc32(chunk, crc)
                pos += len(chunk)
        except zlib.error as e:
            raise _broken(f"record {info.filename} does not decompress ({e})") from e
        if pos != len(out):
            raise _broken(f"unexpected EOF in record {info.filename}")
        return crc

    def read(self, name):
        """Returns the bytes of a record."""
        out = bytearray(self._checked_size(name))
        self.read_into(name, out)
        return bytes(out)

    def _checked_size(self, name):
        """Returns a record's size after checking that the file can contain it: the directory alone
        is not trusted."""
        info = self._info(name)
        if info.compress_type == zipfile.ZIP_STORED and info.file_size > self._size:
            raise _broken(f"record {info.filename} is larger than the file")
        return info.file_size

    def array(self, name):
        """Returns a record as a new uint8 array, which is the root of its memory."""
        out = self._new(self._checked_size(name))
        self.read_into(name, out)
        return out

    def _new(self, size):
        padded_size = -(-size // ALIGNMENT) * ALIGNMENT
        if size >= _ARENA // 2 or not size:
            return np.empty(size, np.uint8)
        if len(self._arena) < padded_size:
            total = min(_ARENA, max(self._arena_left, 0) + padded_size)
            self._arena_left -= total
            a = np.empty(total + ALIGNMENT, np.uint8)
            self._arena = memoryview(a)[-a.__array_interface__["data"][0] % ALIGNMENT :]
        part, self._arena = self._arena[:size], self._arena[padded_size:]
        return np.frombuffer(part, np.uint8)


class MappedReader(Reader):
    """Reads records in place from private copy-on-write pages of the file: data is copied only when
    it is modified."""

    def __init__(self, f):
        super().__init__(f)
        self._map = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)

    def array(self, name):
        if self._info(name).compress_type != zipfile.ZIP_STORED:
            raise RuntimeError(f"mmap needs records stored without compression, {name} is compressed")
        start, size = self.locate(name)
        if not size:
            return np.empty(0, np.uint8)
        return np.frombuffer(self._map, np.uint8, size, start)
