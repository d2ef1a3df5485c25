"""Recurrent layers (https://pytorch.org/docs/stable/nn.html#recurrent-layers)."""
import math
import numbers
import warnings
import weakref

import mindtorch.torch as torch
from mindtorch.core.tensor.tensor import Parameter, is_tensor
from mindtorch.torch.nn import init
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.nn.utils.rnn import PackedSequence

__all__ = ["RNNBase", "RNN", "LSTM", "GRU", "RNNCellBase", "RNNCell", "LSTMCell", "GRUCell"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def apply_permutation(tensor, permutation, dim=1):
    """Deprecated: tensor.index_select(dim, permutation)."""
    warnings.warn("`apply_permutation` is deprecated, please use `tensor.index_select(dim, permutation)` instead",
                  FutureWarning, stacklevel=2)
    return tensor.index_select(dim, permutation)


class RNNBase(Module):
    """Base class of RNN, LSTM and GRU: weights per layer and direction, argument checks, packed and
    unbatched inputs."""

    __constants__ = ["mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout",
                     "bidirectional",
                     "proj_size"]

    def __init__(self, mode, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, proj_size=0, device=None, dtype=None):
        super().__init__()
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout) if isinstance(dropout, numbers.Number) else dropout
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._flat_weight_refs = []
        if isinstance(dropout, bool) or not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element "
                             "being zeroed")
        if dropout > 0 and num_layers == 1:
            warnings.warn("dropout option adds dropout after all but last recurrent layer, so non-zero dropout "
                          f"expects num_layers greater than 1, but got dropout={dropout} and "
                          f"num_layers={num_layers}", stacklevel=2)
        for name, value in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(value, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
        if not isinstance(input_size, int):
            raise TypeError(f"input_size should be of type int, got: {type(input_size).__name__}")
        if input_size <= 0:
            raise ValueError("input_size must be greater than zero")
        if not isinstance(hidden_size, int):
            raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if mode not in _GATES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")

        gates = _GATES[mode] * hidden_size
        out = proj_size or hidden_size
        self._flat_weights_names = []
        self._all_weights = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse") if bidirectional else ("",):
                width = input_size if layer == 0 else out * (2 if bidirectional else 1)
                sizes = [("weight_ih", (gates, width)), ("weight_hh", (gates, out))]
                if bias:
                    sizes += [("bias_ih", (gates,)), ("bias_hh", (gates,))]
                if proj_size:
                    sizes.append(("weight_hr", (proj_size, hidden_size)))
                names = [f"{kind}_l{layer}{suffix}" for kind, _ in sizes]
                for name, (_, size) in zip(names, sizes):
                    setattr(self, name, Parameter(torch.empty(size, device=device, dtype=dtype)))
                self._flat_weights_names += names
                self._all_weights.append(names)
        self._init_flat_weights()
        self.reset_parameters()

    def _init_flat_weights(self):
        self._flat_weights = [getattr(self, n, None) for n in self._flat_weights_names]
        self._flat_weight_refs = [None if w is None else weakref.ref(w) for w in self._flat_weights]

    def _weights_have_changed(self):
        # An attribute may have been replaced, or may be recomputed on each access (weight_norm,
        # parametrizations).
        for ref, name in zip(self._flat_weight_refs, self._flat_weights_names):
            if getattr(self, name, None) is not (None if ref is None else ref()):
                return True
        return False

    def _update_flat_weights(self):
        if self._weights_have_changed():
            self._init_flat_weights()

    def __setattr__(self, attr, value):
        names = self.__dict__.get("_flat_weights_names")
        if names is not None and attr in names and "_flat_weights" in self.__dict__:
            self._flat_weights[names.index(attr)] = value
        super().__setattr__(attr, value)

    def flatten_parameters(self):
        """Does nothing: only cuDNN needs the weights in one contiguous block."""

    def _apply(self, fn, recurse=True):
        self._flat_weight_refs = []
        result = super()._apply(fn, recurse)
        self._init_flat_weights()
        return result

    def reset_parameters(self):
        """Reinitializes all weights from a uniform distribution on +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for w in self.parameters():
            init.uniform_(w, -bound, bound)

    @property
    def all_weights(self):
        """The weights, as one list per layer and direction."""
        return [[getattr(self, n) for n in names] for names in self._all_weights]

    def extra_repr(self):
        parts = [f"{self.input_size}, {self.hidden_size}"]
        for name, default in (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False),
                              ("dropout", 0), ("bidirectional", False)):
            value = getattr(self, name)
            if value != default:
                parts.append(f"{name}={value}")
        return ", ".join(parts)

    def __getstate__(self):
        state = super().__getstate__()
        state.pop("_flat_weight_refs", None)
        return state

    def __setstate__(self, d):
        super().__setstate__(d)
        self.__dict__.setdefault("proj_size", 0)
        self.__dict__.setdefault("_flat_weights_names", [n for names in self._all_weights for n in names])
        self._init_flat_weights()

    def _replicate_for_data_parallel(self):
        replica = super()._replicate_for_data_parallel()
        replica._flat_weights = replica._flat_weights[:]
        replica._flat_weights_names = replica._flat_weights_names[:]
        return replica

    # ---- checks
    def check_input(self, input, batch_sizes):
        """Checks the dtype, rank and size of the input. Raises PyTorch's ValueError or
        RuntimeError."""
        weight = self._flat_weights[0]
        if input.dtype != weight.dtype and not torch.is_autocast_enabled(input.device.type):
            raise ValueError(f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). Convert "
                             f"input: input.to({weight.dtype}), or convert model: model.to({input.dtype})")
        expected = 3 if batch_sizes is None else 2
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                               f"{input.size(-1)}")

    def _states(self, input, batch_sizes, width):
        n = int(batch_sizes[0]) if batch_sizes is not None else input.size(0 if self.batch_first else 1)
        return self.num_layers * (2 if self.bidirectional else 1), n, width

    def get_expected_hidden_size(self, input, batch_sizes):
        """Returns (layers * directions, N, H) for this input."""
        return self._states(input, batch_sizes, self.proj_size or self.hidden_size)

    def check_hidden_size(self, hx, expected_hidden_size, msg="Expected hidden size {}, got {}"):
        """Raises RuntimeError unless `hx` has this shape."""
        if hx.size() != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input, hidden, batch_sizes):
        """Checks the shapes of the input and hidden state."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx, permutation):
        """Permutes the batch dimension of the hidden state."""
        return hx if permutation is None else hx.index_select(1, permutation)


def _zeros(rnn, input, n, width):
    return torch.zeros(rnn.num_layers * (2 if rnn.bidirectional else 1), n, width, dtype=input.dtype,
                       device=input.device)


def _forward(rnn, input, hx, widths, dims_message):
    """Runs the forward of RNN, LSTM or GRU.

    Unpacks or unsqueezes the input, checks the arguments, and converts the results back to the form
    of the input. `widths` holds the size of each state, `dims_message` formats the error for a
    state with the wrong number of dimensions.
    """
    rnn._update_flat_weights()
    packed = isinstance(input, PackedSequence)
    many = len(widths) > 1
    batched = True
    batch_sizes = sorted_indices = unsorted_indices = None
    if packed:
        input, batch_sizes, sorted_indices, unsorted_indices = input
        n = int(batch_sizes[0])
    else:
        if input.dim() not in (2, 3):
            name, noun = ("RNN", " tensor") if rnn.mode.startswith("RNN") else (rnn.mode, "")
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.dim()}D{noun} instead")
        batched = input.dim() == 3
        batch_dim = 0 if rnn.batch_first else 1
        if not batched:
            input = input.unsqueeze(batch_dim)
        n = input.size(batch_dim)
    if hx is None:
        states = tuple(_zeros(rnn, input, n, w) for w in widths)
        hx = states if many else states[0]
    else:
        if not packed:
            given = (hx[0], hx[1]) if many else (hx,)
            if any(s.dim() != (3 if batched else 2) for s in given):
                raise RuntimeError(dims_message(batched, given))
            if not batched:
                given = tuple(s.unsqueeze(1) for s in given)
                hx = given if many else given[0]
        hx = rnn.permute_hidden(hx, sorted_indices)
    rnn.check_forward_args(input, hx, batch_sizes)
    kernel = getattr(torch, rnn.mode.lower())
    tail = (rnn._flat_weights, rnn.bias, rnn.num_layers, rnn.dropout, rnn.training, rnn.bidirectional)
    if packed:
        output, *states = kernel(input, batch_sizes, hx, *tail)
        output = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        return output, rnn.permute_hidden(tuple(states) if many else states[0], unsorted_indices)
    if input.size(1 if rnn.batch_first else 0) == 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    output, *states = kernel(input, hx, *tail, rnn.batch_first)
    states = tuple(states) if many else states[0]
    if not batched:
        output = output.squeeze(batch_dim)
        states = tuple(s.squeeze(1) for s in states) if many else states.squeeze(1)
    return output, states


def _one_state_message(batched, given):
    kind, n = ("batched 3-D", 3) if batched else ("unbatched 2-D", 2)
    return f"For {kind} input, hx should also be {n}-D but got {given[0].dim()}-D tensor"


def _two_states_message(batched, given):
    kind, n = ("batched 3-D", 3) if batched else ("unbatched 2-D", 2)
    return (f"For {kind} input, hx and cx should also be {n}-D but got ({given[0].dim()}-D, "
            f"{given[1].dim()}-D) tensors")


class RNN(RNNBase):
    """Elman network: h = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu.

    The input has shape (L, N, input_size), (N, L, input_size) with `batch_first`, (L, input_size),
    or is a PackedSequence. Returns (output (L, N, directions * hidden_size), h_n (layers *
    directions, N, hidden_size)).
    """

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self.nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_" + self.nonlinearity.upper(), *args, **kwargs)

    def forward(self, input, hx=None):
        return _forward(self, input, hx, (self.hidden_size,), _one_state_message)


class LSTM(RNNBase):
    """Long short-term memory.

    The input is like that of `RNN`, hx = (h_0, c_0). Returns (output, (h_n, c_n)). With
    `proj_size`, h is projected to that size.
    """

    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input, batch_sizes):
        """Returns (layers * directions, N, hidden_size) for this input."""
        return self._states(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input, hidden, batch_sizes):
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden[0], self.get_expected_hidden_size(input, batch_sizes),
                               "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], self.get_expected_cell_size(input, batch_sizes),
                               "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx, permutation):
        if permutation is None:
            return hx
        return hx[0].index_select(1, permutation), hx[1].index_select(1, permutation)

    def forward(self, input, hx=None):
        return _forward(self, input, hx, (self.proj_size or self.hidden_size, self.hidden_size), _two_states_message)


class GRU(RNNBase):
    """Gated recurrent unit. Input and results are like those of `RNN`."""

    def __init__(self, *args, **kwargs):
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input, hx=None):
        return _forward(self, input, hx, (self.hidden_size,), _one_state_message)


class RNNCellBase(Module):
    """Base class of recurrent cells: the weights of a single step."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(self, input_size, hidden_size, bias, num_chunks, device=None, dtype=None):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates = num_chunks * hidden_size
        for name, size in (("weight_ih", (gates, input_size)), ("weight_hh", (gates, hidden_size)),
                           ("bias_ih", (gates,)), ("bias_hh", (gates,))):
            there = bias or name.startswith("weight")
            p = Parameter(torch.empty(size, device=device, dtype=dtype)) if there else None
            self.register_parameter(name, p)
        self.reset_parameters()

    def extra_repr(self):
        parts = [f"{self.input_size}, {self.hidden_size}"]
        if self.bias is not True:
            parts.append(f"bias={self.bias}")
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        if nonlinearity != "tanh":
            parts.append(f"nonlinearity={nonlinearity}")
        return ", ".join(parts)

    def reset_parameters(self):
        """Reinitializes all weights from a uniform distribution on +-1/sqrt(hidden_size)."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for w in self.parameters():
            init.uniform_(w, -bound, bound)


def _cell(cell, kernel, input, states, n_states):
    """Runs one step of a cell on (N, input_size) or (input_size,). The new states are batched if
    the input is."""
    name = type(cell).__name__
    if input.dim() not in (1, 2):
        raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
    if states is not None:
        if n_states == 2 and is_tensor(states):
            raise TypeError("lstm_cell(): argument 'hx' (position 2) must be tuple of Tensors, not Tensor")
        states = tuple(states) if n_states == 2 else (states,)
        for i, s in enumerate(states):
            if s.dim() not in (1, 2):
                where = f"hx[{i}]" if n_states == 2 else "hidden"
                raise ValueError(f"{name}: Expected {where} to be 1D or 2D, got {s.dim()}D instead")
    batched = input.dim() == 2
    if not batched:
        input = input.unsqueeze(0)
    if states is None:
        zeros = torch.zeros(input.size(0), cell.hidden_size, dtype=input.dtype, device=input.device)
        states = (zeros,) * n_states
    elif not batched:
        states = tuple(s.unsqueeze(0) if s.dim() == 1 else s for s in states)
    if input.size(1) != cell.input_size:
        raise RuntimeError(f"input has inconsistent input_size: got {input.size(1)} expected {cell.input_size}")
    for i, s in enumerate(states):
        if s.dim() != 2 or input.size(0) != s.size(0):
            raise RuntimeError(f"Input batch size {input.size(0)} doesn't match hidden{i} batch size {s.size(0)}")
        if s.size(1) != cell.hidden_size:
            raise RuntimeError(f"hidden{i} has inconsistent hidden_size: got {s.size(1)}, expected {cell.hidden_size}")
    states = kernel(input, states if n_states == 2 else states[0], cell.weight_ih, cell.weight_hh, cell.bias_ih,
                    cell.bias_hh)
    states = states if n_states == 2 else (states,)
    return states if batched else tuple(s.squeeze(0) for s in states)


class RNNCell(RNNCellBase):
    """One step of RNN: (N, input_size), (N, hidden_size) -> (N, hidden_size); or without N."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return _cell(self, torch.rnn_tanh_cell if self.nonlinearity == "tanh" else torch.rnn_relu_cell, input, hx, 1)[0]


class LSTMCell(RNNCellBase):
    """One step of LSTM: (N, input_size), (h, c) -> (h, c); or without N."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input, hx=None):
        return _cell(self, torch.lstm_cell, input, hx, 2)


class GRUCell(RNNCellBase):
    """One step of GRU: (N, input_size), (N, hidden_size) -> (N, hidden_size); or without N."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input, hx=None):
        return _cell(self, torch.gru_cell, input, hx, 1)[0]
