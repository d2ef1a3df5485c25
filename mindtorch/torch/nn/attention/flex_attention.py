"""torch.nn.attention.flex_attention: attention with user-defined score and mask functions of
indices.

The full score matrix is computed eagerly, for any dtype and device. Gradients also reach tensors
that the functions capture. Empty blocks are not skipped.
"""
import inspect
import itertools
import math
import warnings
from typing import Any, NamedTuple, TypedDict

from mindtorch.core.dispatch.op_registry import OPS
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch._higher_order_ops.flex_attention import over_indices

__all__ = ["BlockMask", "flex_attention", "AuxOutput", "AuxRequest", "FlexKernelOptions", "create_block_mask", "create_mask", "or_masks", "and_masks", "noop_mask"]

_DEFAULT_SPARSE_BLOCK_SIZE = 128
_LARGE_SPARSE_BLOCK_SIZE = 1 << 30
_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = False


def _f(name):
    row = OPS[name]
    return row.public or row.fn


class FlexKernelOptions(TypedDict, total=False):
    """Options of PyTorch's kernels. They have no effect here."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    USE_TMA: bool
    BACKEND: str


class AuxRequest(NamedTuple):
    """Additional results that flex_attention returns."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """Additional results: the logsumexp and the maximum of each row of scores. None if not
    requested."""

    lse: Any = None
    max_scores: Any = None


def noop_mask(batch, head, token_q, token_kv):
    """Allows every key."""
    return batch.new_ones(size=(), dtype=_bool(), device=batch.device)


def _bool():
    from mindtorch.core.tensor.dtypes import bool_
    return bool_


def _int32():
    from mindtorch.core.tensor.dtypes import int32
    return int32


def _sliced(batch, head, token_q, token_kv):
    raise RuntimeError("Cannot use mask_mod from a sliced BlockMask. When you slice a BlockMask using [], the mask_mod attribute is reset. You must set it from the "
                       "original BlockMask's mask_mod.")


def or_masks(*mask_mods):
    """Returns a mask_mod that allows the positions which any of these masks allows."""
    _callables(mask_mods)

    def or_mask(b, h, q_idx, kv_idx):
        r = b.new_zeros((), dtype=_bool())
        for mask in mask_mods:
            r = r | mask(b, h, q_idx, kv_idx)
        return r
    return or_mask


def and_masks(*mask_mods):
    """Returns a mask_mod that allows the positions which all of these masks allow."""
    _callables(mask_mods)

    def and_mask(b, h, q_idx, kv_idx):
        r = b.new_ones((), dtype=_bool())
        for mask in mask_mods:
            r = r & mask(b, h, q_idx, kv_idx)
        return r
    return and_mask


def _callables(mask_mods):
    if not all(callable(m) for m in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")


def _takes_score(fn):
    """True if a function accepts a score before the four indices.

    AssertionError unless it has 4 or 5 positional arguments.
    """
    n = sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in inspect.signature(fn).parameters.values())
    if n not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {n}")
    return n == 5


def _device(device):
    if device is not None:
        return device
    from mindtorch.torch import accelerator
    return accelerator.current_accelerator() or "cpu"


def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device=None):
    """Returns the bool mask (B, H, Q_LEN, KV_LEN) of a mask_mod.

    For a score_mod, the mask is True where the score is not -inf. None for B or H means 1.
    """
    device = _device(device)
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    at = [_f("arange")(n, device=device) for n in sizes]
    if _takes_score(mod_fn):
        return ~over_indices(mod_fn, *at, score=_f("zeros")(*sizes, device=device)).isneginf()
    return over_indices(mod_fn, *at)


# ------------------------------------------------------------------ blocks
def _to_dense(counts, columns, width):
    """Converts the listed column indices of each row to a dense int32 matrix of zeros and ones."""
    n = columns.shape[-1]
    listed = _f("arange")(n, device=columns.device) < counts.unsqueeze(-1)
    at = columns.long().masked_fill(~listed, width)
    dense = columns.new_zeros((*columns.shape[:-1], width + 1), dtype=_int32())
    return dense.scatter(-1, at, 1)[..., :width].contiguous()


def _to_ordered(dense):
    """Returns (number of nonzero blocks per row, their column indices followed by all other
    columns)."""
    dense = dense.to(_int32())
    return dense.sum(-1).to(_int32()), dense.argsort(dim=-1, descending=True, stable=True).to(_int32()).contiguous()


def _transposed(counts, columns):
    return _to_ordered(_to_dense(counts, columns, columns.shape[-1]).transpose(-2, -1))


class BlockMask:
    """A block-sparse mask: for each block of queries, the key blocks that take part, and a
    mask_mod.

    Blocks that take part entirely are listed separately (full_kv_*). Tensors are int32:
    kv_num_blocks (B, H, rows), kv_indices (B, H, rows, columns). The q_* tensors list the query
    blocks of each key block.
    """

    def __init__(self, seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, q_num_blocks, q_indices, full_q_num_blocks, full_q_indices,
                 BLOCK_SIZE, mask_mod, dq_write_order=None, dq_write_order_full=None, dq_kv_order=None, dq_kv_order_spt=None):
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        for first, second, names in ((full_kv_num_blocks, full_kv_indices, "full_kv_num_blocks and full_kv_indices"), (q_num_blocks, q_indices, "q_num_blocks and q_indices"),
                                     (full_q_num_blocks, full_q_indices, "full_q_num_blocks and full_q_indices")):
            if (first is None) != (second is None):
                raise AssertionError(f"{names} must be both provided or omitted")
        if dq_write_order_full is not None and dq_write_order is None:
            raise ValueError("dq_write_order_full requires dq_write_order")
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices = kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices, self.full_q_num_blocks, self.full_q_indices = q_num_blocks, q_indices, full_q_num_blocks, full_q_indices
        self.dq_write_order, self.dq_write_order_full, self.dq_kv_order, self.dq_kv_order_spt = dq_write_order, dq_write_order_full, dq_kv_order, dq_kv_order_spt

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks, kv_indices, full_kv_num_blocks=None, full_kv_indices=None, BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, mask_mod=None,
                       seq_lengths=None, compute_q_blocks=True, *, dq_write_order=None, dq_write_order_full=None, dq_kv_order=None):
        """Creates a BlockMask from the row lists; the column lists are derived from them."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        by_columns = _transposed(kv_num_blocks, kv_indices) if compute_q_blocks else (None, None)
        full_by_columns = _transposed(full_kv_num_blocks, full_kv_indices) if compute_q_blocks and full_kv_indices is not None else (None, None)
        if isinstance(BLOCK_SIZE, int):
            BLOCK_SIZE = (BLOCK_SIZE, BLOCK_SIZE)
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * BLOCK_SIZE[0], kv_indices.shape[-1] * BLOCK_SIZE[1])
        if dq_kv_order is not None and not isinstance(dq_kv_order, bool) and not is_tensor(dq_kv_order):
            raise ValueError("dq_kv_order must be a bool, Tensor, or None")
        flag = isinstance(dq_kv_order, bool)
        return cls(seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, *by_columns, *full_by_columns, BLOCK_SIZE,
                   noop_mask if mask_mod is None else mask_mod, dq_write_order, dq_write_order_full, None if flag else dq_kv_order, dq_kv_order if flag else None)

    def as_tuple(self, flatten=True):
        """Returns all fields in PyTorch's order.

        With `flatten`, lengths and block sizes are four ints instead of two pairs.
        """
        lengths, sizes = ((*self.seq_lengths,), (*self.BLOCK_SIZE,)) if flatten else ((self.seq_lengths,), (self.BLOCK_SIZE,))
        return (*lengths, *[getattr(self, n) for n in _TENSORS], self.dq_kv_order_spt, *sizes, self.mask_mod)

    @property
    def shape(self):
        """(B, H, number of queries, number of keys)"""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self):
        """Returns the number of entries of the mask."""
        return math.prod(self.shape)

    def sparsity(self):
        """Returns the percentage of entries in skipped blocks."""
        n = self.kv_num_blocks.sum().item() + (0 if self.full_kv_num_blocks is None else self.full_kv_num_blocks.sum().item())
        return 100 * (1 - n * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self):
        """Returns a tensor with 1 for each block that takes part, else 0."""
        dense = _to_dense(self.kv_num_blocks, self.kv_indices, self.kv_indices.shape[-1])
        return dense if self.full_kv_indices is None else dense | _to_dense(self.full_kv_num_blocks, self.full_kv_indices, self.full_kv_indices.shape[-1])

    def __getitem__(self, index):
        """Slices batches, heads and query blocks. An int index keeps its dimension.

        The mask_mod of the result must be set again.
        """
        if self.dq_kv_order is not None:
            raise NotImplementedError("Slicing BlockMask with tensor dq_kv_order is not supported yet.")
        index = index if isinstance(index, tuple) else (index,)
        index = (*index, slice(None), slice(None), slice(None))[:3]
        sizes = self.kv_num_blocks.shape
        at = tuple(slice(i + n, i + n + 1) if isinstance(i, int) and -n <= i < 0 else slice(i, i + 1) if isinstance(i, int) else i for i, n in zip(index, sizes))
        made = BlockMask.from_kv_blocks(*[None if t is None else t[at] for t in (self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices)],
                                        BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=_sliced, seq_lengths=self.seq_lengths, compute_q_blocks=self.q_indices is not None)
        made.dq_kv_order_spt = self.dq_kv_order_spt
        return made

    def _adjust(self, new_q_len, new_kv_len):
        """Crops the mask to other lengths, keeping its upper left part."""
        rows, columns = -(-new_q_len // self.BLOCK_SIZE[0]), -(-new_kv_len // self.BLOCK_SIZE[1])

        def cut(counts, indices):
            if counts is None:
                return None, None
            indices = indices[..., :rows, :columns]
            counts = counts[..., :rows].clamp(max=columns)
            return (indices < counts[..., None]).sum(-1).to(_int32()), indices
        return self.from_kv_blocks(*cut(self.kv_num_blocks, self.kv_indices), *cut(self.full_kv_num_blocks, self.full_kv_indices), BLOCK_SIZE=self.BLOCK_SIZE,
                                   mask_mod=self.mask_mod, seq_lengths=(new_q_len, new_kv_len), compute_q_blocks=self.q_indices is not None)

    def to(self, device):
        """Returns a copy with its tensors on `device`."""
        moved = {n: getattr(self, n) for n in _TENSORS}
        return BlockMask(seq_lengths=self.seq_lengths, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod, dq_kv_order_spt=self.dq_kv_order_spt,
                         **{n: None if t is None else t.to(device) for n, t in moved.items()})

    def to_string(self, grid_size=(20, 20), limit=4):
        """Draws the mask: a full, shaded or empty cell per block.

        A cell stands for a group of blocks if there are more than `grid_size` (-1: draw all
        blocks).
        """
        dense = self.to_dense().float()
        *batch, rows, columns = dense.shape
        height, width = (rows, columns) if grid_size == -1 else (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        down, along = max(1, -(-rows // height)), max(1, -(-columns // width))
        pictures = []
        for k, at in enumerate(itertools.product(*[range(n) for n in batch])):
            if k == limit:
                pictures += ["...", "To print out more, set BlockMask.to_string(limit=N)", "You can also index (BlockMask[batch, head]) to choose a specific batch or head"]
                break
            lines = [f"{at}"]
            for r in range(0, rows, down):
                cells = [dense[at][r:r + down, c:c + along].mean().item() for c in range(0, columns, along)]
                lines.append("".join([2 * ("█" if share == 1 else " " if share == 0 else "░") for share in cells]))
            pictures.append("\n".join(lines) + "\n")
        return "\n".join(pictures)

    def __str__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self):
        lines = [f"    {n}={None if getattr(self, n) is None else getattr(self, n).shape},\n" for n in _TENSORS[:8]]
        name = getattr(self.mask_mod, "__name__", self.mask_mod)
        return f"BlockMask(\n{''.join(lines)}    BLOCK_SIZE={self.BLOCK_SIZE},\n    shape={self.shape},\n    sparsity={self.sparsity():.2f}%,\n    mask_mod={name}\n)"


_TENSORS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices", "dq_write_order",
            "dq_write_order_full", "dq_kv_order")


def create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN, device=None, BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, _compile=False, separate_full_blocks=True,
                      compute_dq_write_order=False, dq_kv_order=True):
    """Creates the BlockMask of a mask_mod(b, h, q_idx, kv_idx) -> bool.

    B or H may be None if the mask does not depend on it. BLOCK_SIZE is an int or a pair (queries,
    keys). With `separate_full_blocks`, blocks that take part entirely are listed separately.

    NotImplementedError for `compute_dq_write_order`, which only PyTorch's CUDA kernels use.
    """
    if _takes_score(mask_mod):
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    if compute_dq_write_order:
        raise NotImplementedError("create_block_mask: compute_dq_write_order (the order in which CUDA kernels write gradients) is not supported")
    if _compile:
        warnings.warn("_compile flag on create_block_mask is deprecated: compile create_block_mask itself", DeprecationWarning, stacklevel=2)
    rows, columns = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    mask = _f("nn.functional.pad")(mask, (0, -KV_LEN % columns, 0, -Q_LEN % rows))
    b, h, m, n = mask.shape
    inside = mask.view(b, h, m // rows, rows, n // columns, columns).sum((3, 5))
    full = inside == rows * columns
    lists = (*_to_ordered((inside > 0) & ~full), *_to_ordered(full)) if separate_full_blocks else (*_to_ordered(inside > 0), None, None)
    return BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=(rows, columns), mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN))


# ------------------------------------------------------------------ attention
def flex_attention(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, kernel_options=None, *, return_aux=None):
    """Computes softmax(score_mod(query @ key.T * scale, b, h, q_idx, kv_idx)) @ value.

    The softmax covers the positions that block_mask's mask_mod allows. A row without any key
    returns 0.

    Shapes: query (B, Hq, L, E), key (B, Hkv, S, E), value (B, Hkv, S, Ev) -> (B, Hq, L, Ev). With
    `enable_gqa`, Hq may be a multiple of Hkv.

    With `return_lse`, also returns the logsumexp of the scores (B, Hq, L). With `return_aux` (an
    AuxRequest), also returns an AuxOutput.
    """
    _check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux. return_lse is deprecated, please use return_aux=AuxRequest(lse=True) instead.")
    from mindtorch.torch._higher_order_ops.flex_attention import math_attention
    mask_mod = None if block_mask is None or block_mask.mask_mod is noop_mask else block_mask.mask_mod
    if mask_mod is _sliced:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    out, lse, top = math_attention(query, key, value, score_mod, mask_mod, scale)
    if return_aux is not None:
        return out, AuxOutput(lse * math.log(2) if return_aux.lse else None, top * math.log(2) if return_aux.max_scores else None)
    return (out, lse * math.log(2)) if return_lse else out


def _check(query, key, value, block_mask, gqa):
    for what, t in (("query", query), ("key", key), ("value", value)):
        if not is_tensor(t):
            raise TypeError(f"flex_attention(): argument '{what}' must be Tensor, not {type(t).__name__}")
    if len({t.device for t in (query, key, value)}) > 1:
        raise ValueError(f"Expected query, key, and value to have the same device type, but got query.device: {query.device}, key.device: {key.device}, and value.device: "
                         f"{value.device} instead.")
    if query.dim() < 2 or key.dim() < 2 or value.dim() < 2:
        raise ValueError(f"Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: {query.dim()}, key.dim: {key.dim()} and value.dim: "
                         f"{value.dim()} instead.")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"Expect query and key/value to have the same embedding dimension but got E={query.shape[-1]} and E={key.shape[-1]}.")
    if any(t.dim() != 4 for t in (query, key, value)):
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    heads, shared = query.shape[1], key.shape[1]
    if not gqa and heads != shared:
        raise ValueError(f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={shared}. Try setting enable_gqa=True for GQA.")
    if heads % shared:
        raise ValueError(f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={shared}.")
    batch, of_keys = query.shape[0], key.shape[0]
    if batch != of_keys:
        if block_mask is None:
            raise ValueError(f"Expect query and key/value to have the same batch size, or non-none block_mask, but got block_mask=None, Bq={batch}, and Bkv={of_keys}.")
        if block_mask.kv_num_blocks.shape[0] != batch:
            raise ValueError("Expect query and key/value to have the same batch size, or block_mask and query to have the same batch size, "
                             f"but got Bq={batch}, Bkv={of_keys}, B_block_mask={block_mask.kv_num_blocks.shape[0]}.")
    if block_mask is None or block_mask.mask_mod is _sliced:
        return
    if query.device != block_mask.kv_num_blocks.device:
        raise RuntimeError(f"Expect q/k/v and block_mask to be on the same device but got {query.device} and {block_mask.kv_num_blocks.device}.")
    lengths = (query.shape[-2], key.shape[-2])
    if tuple(block_mask.BLOCK_SIZE) != (_LARGE_SPARSE_BLOCK_SIZE,) * 2 and lengths != tuple(block_mask.shape[-2:]):
        smaller = lengths[0] > block_mask.shape[-2] or lengths[1] > block_mask.shape[-1]
        raise ValueError(f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={lengths[0]} and kv_len={lengths[1]}. As the block mask was created "
                         f"for a {'smaller' if smaller else 'larger'} length than you're using it for, you likely need to create a new block mask"
                         + (".", " with the correct length, or crop it by block_mask._adjust(q_len, kv_len).")[not smaller])
