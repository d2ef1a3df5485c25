"""Collectives of Python objects, which are sent pickled."""
import io
import pickle

import numpy as np

from mindtorch.backend.comm.errors import DistBackendError
from mindtorch.core.tensor.tensor import wrap_array
from mindtorch.core.tensor.storage_impl import host_memory
from mindtorch.torch.distributed import _collectives as c
from mindtorch.torch.distributed._process_group import is_member, of, warn_outside


def _dump(obj):
    f = io.BytesIO()
    pickle.Pickler(f).dump(obj)
    return np.frombuffer(bytearray(f.getvalue()), np.uint8)


def _load(raw):
    return pickle.loads(raw.tobytes())


_MOST = 1 << 40  # maximum size of one object in bytes; a larger or negative size is invalid


def _checked(sizes, whose="the object of rank {}"):
    for i, n in enumerate(sizes):
        if not 0 <= n <= _MOST:
            raise DistBackendError(f"{whose.format(i)} has an invalid size of {n} bytes")
    return sizes


def _sizes(pg, n):
    sizes = np.zeros(pg.size(), np.int64)
    c.all_gather_into_tensor(wrap_array(sizes), wrap_array(np.array([n], np.int64)), pg)
    return _checked(sizes)


def _padded(raw, n):
    a = np.zeros(n, np.uint8)
    a[:len(raw)] = raw
    return wrap_array(a)


def all_gather_object(object_list, obj, group=None):
    """Writes rank i's object to object_list[i]."""
    if not is_member(group):
        return warn_outside("all_gather_object")
    pg = of(group)
    raw = _dump(obj)
    sizes = _sizes(pg, len(raw))
    longest = int(sizes.max())
    rows = np.zeros((pg.size(), longest), np.uint8)
    c.all_gather_into_tensor(wrap_array(rows), _padded(raw, longest), pg)
    for i, n in enumerate(sizes):
        object_list[i] = _load(rows[i, :n])
    return None


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    """Writes rank i's object to object_gather_list[i] on rank `dst` (default 0)."""
    if not is_member(group):
        return warn_outside("gather_object")
    pg = of(group)
    root = 0 if dst is None and group_dst is None else c._root(pg, dst, group_dst, "dst")
    mine = pg.rank() == root
    if mine and object_gather_list is None:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    if not mine and object_gather_list is not None:
        raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
    raw = _dump(obj)
    sizes = _sizes(pg, len(raw))
    longest = int(sizes.max())
    rows = [wrap_array(np.zeros(longest, np.uint8)) for _ in sizes] if mine else None
    c.gather(_padded(raw, longest), rows, group=pg, group_dst=root)
    if mine:
        for i, n in enumerate(sizes):
            object_gather_list[i] = _load(host_memory(rows[i])[:n])
    return None


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    """Replaces the objects in every rank's list by those of rank `src` (default 0)."""
    if not is_member(group):
        return warn_outside("broadcast_object_list")
    pg = of(group)
    root = 0 if src is None and group_src is None else c._root(pg, src, group_src, "src")
    mine = pg.rank() == root
    raws = [_dump(o) for o in object_list] if mine else []
    sizes = np.array([len(r) for r in raws], np.int64) if mine else np.zeros(len(object_list), np.int64)
    c.broadcast(wrap_array(sizes), group=pg, group_src=root)
    _checked(sizes, f"object {{}} of rank {root}")
    joined = np.concatenate(raws) if mine and raws else np.zeros(int(sizes.sum()), np.uint8)
    c.broadcast(wrap_array(joined), group=pg, group_src=root)
    if not mine:
        _fill(object_list, joined, sizes)
    return None


def _fill(object_list, joined, sizes):
    at = 0
    for i, n in enumerate(sizes):
        object_list[i] = _load(joined[at:at + n])
        at += n


def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None):
    """Writes scatter_object_input_list[own rank] of rank `src` (default 0) to
    scatter_object_output_list[0]."""
    if not is_member(group):
        return warn_outside("scatter_object_list")
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    pg = of(group)
    root = 0 if src is None and group_src is None else c._root(pg, src, group_src, "src")
    mine = pg.rank() == root
    if mine and (scatter_object_input_list is None or len(scatter_object_input_list) != pg.size()):
        raise ValueError("Argument ``scatter_object_input_list`` must hold one object for each rank on the source rank.")
    raws = [_dump(o) for o in scatter_object_input_list] if mine else []
    sizes = np.array([len(r) for r in raws], np.int64) if mine else np.zeros(pg.size(), np.int64)
    c.broadcast(wrap_array(sizes), group=pg, group_src=root)
    _checked(sizes, f"object {{}} of rank {root}")
    longest = int(sizes.max())
    out = np.zeros(longest, np.uint8)
    c.scatter(wrap_array(out), [_padded(r, longest) for r in raws] if mine else None, group=pg, group_src=root)
    scatter_object_output_list[0] = _load(out[:sizes[pg.rank()]])
    return None


def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False):
    """Sends objects to rank `dst`."""
    if not is_member(group):
        return warn_outside("send_object_list")
    pg = of(group)
    peer = c._peer(pg, dst, group_dst, "dst")
    raws = [_dump(o) for o in object_list]
    c.send(wrap_array(np.array([len(r) for r in raws], np.int64)), group=pg, group_dst=peer)
    c.send(wrap_array(np.concatenate(raws) if raws else np.zeros(0, np.uint8)), group=pg, group_dst=peer)
    return None


def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False):
    """Receives as many objects as the list is long, from rank `src` or from any rank. Returns the
    sender's global rank."""
    if not is_member(group):
        warn_outside("recv_object_list")
        return -1
    pg = of(group)
    peer = None if src is None and group_src is None else c._peer(pg, src, group_src, "src")
    sizes = wrap_array(np.zeros(len(object_list), np.int64))
    source = c.recv(sizes, group=pg, **({} if peer is None else {"group_src": peer}))
    _checked(host_memory(sizes), f"object {{}} of rank {source}")
    joined = np.zeros(int(host_memory(sizes).sum()), np.uint8)
    c.recv(wrap_array(joined), source, group=pg)
    _fill(object_list, joined, host_memory(sizes))
    return source
