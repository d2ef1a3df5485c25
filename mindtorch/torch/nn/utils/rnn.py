"""Padded and packed sequences of different lengths
(https://pytorch.org/docs/stable/nn.html#utilities)."""
from collections import namedtuple
from collections.abc import Iterable

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import is_tensor
from mindtorch.torch.nn.modules._to import parse_to

#: Capture policy of this module's functions under torch.compile (see torch/_dynamo/_capture.py).
CAPTURE = "refused"

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pad_packed_sequence", "pad_sequence",
           "unpad_sequence", "pack_sequence", "unpack_sequence"]

_UNSORTED = ("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
             "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you "
             "do not need ONNX exportability.")

PackedSequence_ = namedtuple("PackedSequence", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"])


class PackedSequence(PackedSequence_):
    """Variable-length sequences, sorted by length and stored step by step.

    `data` has shape (sum of lengths, *). At step t, the first batch_sizes[t] sequences are still
    active. `sorted_indices` maps the user's order to the sorted order, and `unsorted_indices` maps
    it back.
    """

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError("batch_sizes should always be on CPU. Instances of PackedSequence should never be "
                             "created manually. They should be instantiated by functions like pack_sequence and "
                             "pack_padded_sequences in nn.utils.rnn.")
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args, **kwargs):
        """Returns the sequences with `data` moved or converted; returns `self` if nothing changes.
        """
        parse_to(args, kwargs)
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        kwargs = {k: v for k, v in kwargs.items() if k not in ("device", "dtype")}
        moved = [None if i is None else i.to(data.device, **kwargs) for i in (self.sorted_indices,
                                                                              self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *moved)

    def pin_memory(self):
        """Returns a copy in pinned memory, if the device has pinned memory."""
        pinned = [None if t is None else t.pin_memory() for t in (self.data, self.sorted_indices,
                                                                  self.unsorted_indices)]
        return type(self)(pinned[0], self.batch_sizes, *pinned[1:])

    def cuda(self, *args, **kwargs):
        """Returns the sequences on the accelerator."""
        return self._moved(self.data.cuda(*args, **kwargs))

    def cpu(self, *args, **kwargs):
        """Returns the sequences on the CPU."""
        return self._moved(self.data.cpu(*args, **kwargs))

    def _moved(self, data):
        return self if data is self.data else self.to(data.device)

    def double(self):
        """Returns the sequences with float64 data."""
        return self.to(dtype=torch.double)

    def float(self):
        """Returns the sequences with float32 data."""
        return self.to(dtype=torch.float)

    def half(self):
        """Returns the sequences with float16 data."""
        return self.to(dtype=torch.half)

    def long(self):
        """Returns the sequences with int64 data."""
        return self.to(dtype=torch.long)

    def int(self):
        """Returns the sequences with int32 data."""
        return self.to(dtype=torch.int)

    def short(self):
        """Returns the sequences with int16 data."""
        return self.to(dtype=torch.short)

    def char(self):
        """Returns the sequences with int8 data."""
        return self.to(dtype=torch.int8)

    def byte(self):
        """Returns the sequences with uint8 data."""
        return self.to(dtype=torch.uint8)

    @property
    def is_cuda(self):
        """True if the data is on an accelerator whose device type is cuda."""
        return self.data.is_cuda

    def is_pinned(self):
        """True if the data is in pinned memory."""
        return self.data.is_pinned()


def invert_permutation(permutation):
    """Returns the inverse permutation; None for None."""
    if permutation is None:
        return None
    inverse = torch.empty_like(permutation)
    inverse[permutation] = torch.arange(permutation.numel(), dtype=permutation.dtype, device=permutation.device)
    return inverse


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """Packs padded sequences of the given lengths; `input` is (T, N, *), or (N, T, *) if
    `batch_first`."""
    if not is_tensor(lengths):
        lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    else:
        lengths = lengths.to("cpu", torch.int64)
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = torch.sort(lengths, descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if batch_first:
        input = input.transpose(0, 1)
    n = input.size(1)
    many = lengths.tolist()
    if len(many) != n:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(many)} (batch_size={n})")
    if min(many) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is "
                           "<= 0")
    if any(a < b for a, b in zip(many, many[1:])):
        raise RuntimeError(_UNSORTED)
    if many[0] > input.size(0):
        raise RuntimeError(f"Expected all lengths to be at most the number of steps of the input ({input.size(0)}), "
                           f"but got {many[0]}")
    sizes, parts, begin = [], [], 0
    # Between two consecutive lengths the same sequences are active, so one slice covers all these
    # steps.
    alive = n
    for length in reversed(many):
        if length > begin:
            block = input[begin:length, :alive]
            parts.append(block.reshape((length - begin) * alive, *block.shape[2:]))
            sizes += [alive] * (length - begin)
            begin = length
        alive -= 1
    data = parts[0] if len(parts) == 1 else torch.cat(parts)
    return PackedSequence(data, torch.tensor(sizes, dtype=torch.int64, device="cpu"), sorted_indices, None)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """Inverts `pack_padded_sequence`; returns (padded sequences, lengths)."""
    sizes = sequence.batch_sizes.tolist()
    steps = len(sizes)
    if total_length is not None:
        if total_length < steps:
            raise ValueError("Expected total_length to be at least the length of the longest sequence in input, but "
                             f"got total_length={total_length} and max sequence length being {steps}")
    data, n = sequence.data, sizes[0]
    rows = []
    for part, alive in zip(data.split(sizes), sizes):
        if alive < n:
            part = torch.cat([part, part.new_full((n - alive, *part.shape[1:]), padding_value)])
        rows.append(part)
    out = torch.stack(rows)
    if total_length is not None and total_length > steps:
        out = torch.cat([out, out.new_full((total_length - steps, *out.shape[1:]), padding_value)])
    lengths = torch.tensor([sum(s > i for s in sizes) for i in range(n)], dtype=torch.int64, device="cpu")
    if batch_first:
        out = out.transpose(0, 1)
    if sequence.unsorted_indices is not None:
        out = out.index_select(0 if batch_first else 1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.cpu()]
    return out, lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Pads sequences (L_i, *) and stacks them into (max L, N, *), or (N, max L, *) if
    `batch_first`."""
    if is_tensor(sequences):
        sequences = sequences.unbind(0)
    elif not isinstance(sequences, Iterable):
        raise RuntimeError("pad_sequence: Expected iterable for input sequences, but got arg of type: "
                           f"{type(sequences)}")
    sequences = tuple(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    for i, s in enumerate(sequences):
        if not is_tensor(s):
            raise TypeError(f"expected Tensor as element {i} in argument 0, but got {type(s).__name__}")
        if s.dim() == 0:
            raise RuntimeError("pad_sequence: Expected sequences of at least one dimension, but got a 0-dimensional "
                               "tensor")
    longest = max(s.size(0) for s in sequences)
    rest = sequences[0].shape[1:]
    rows = []
    for s in sequences:
        if s.shape[1:] != rest:
            for d, (a, b) in enumerate(zip(rest, s.shape[1:])):
                if a != b:
                    raise RuntimeError(f"The size of tensor a ({a}) must match the size of tensor b ({b}) at "
                                       f"non-singleton dimension {d + 1}")
            raise RuntimeError(f"pad_sequence: the sequences differ in their number of dimensions ({len(rest) + 1} and "
                               f"{s.dim()})")
        if s.size(0) < longest:
            filler = sequences[0].new_full((longest - s.size(0), *rest), padding_value)
            s = torch.cat([filler, s] if padding_side == "left" else [s, filler])
        rows.append(s)
    return torch.stack(rows, dim=0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """Returns the list of unpadded sequences of the given lengths."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [row[:n] for row, n in zip(padded_sequences, lengths.tolist())]


def pack_sequence(sequences, enforce_sorted=True):
    """Packs a list of sequences of shape (L_i, *)."""
    lengths = torch.as_tensor([s.size(0) for s in sequences], device="cpu")
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """Inverts `pack_sequence`; returns a list of sequences."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
