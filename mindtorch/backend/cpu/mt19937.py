"""Engine of the CPU generator: a 32-bit Mersenne Twister whose states are interchangeable with
PyTorch's."""

import os

import numpy as np

from mindtorch.backend.cpu import large

_BLOCK = 624  # words that the twister generates at a time
_STATE_BYTES = 5056
_LOW24 = np.uint32((1 << 24) - 1)
_STEP24 = np.float32(2.0**-24)
_DEFAULT_SEED = 67280421310721


def _temper(key):
    """Returns the outputs of a block of twister state."""
    y = key.copy()
    y ^= y >> np.uint32(11)
    y ^= (y << np.uint32(7)) & np.uint32(0x9D2C5680)
    y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
    y ^= y >> np.uint32(18)
    return y


def _untemper(out):
    """Recovers the block of twister state from its 624 outputs: the inverse of `_temper`."""
    y = out.copy()
    y ^= y >> np.uint32(18)
    y ^= (y << np.uint32(15)) & np.uint32(0xEFC60000)
    t = y.copy()
    for _ in range(4):  # each iteration determines seven more bits
        t = y ^ ((t << np.uint32(7)) & np.uint32(0x9D2C5680))
    y = t
    y = y ^ (y >> np.uint32(11)) ^ (y >> np.uint32(22))
    return y


def uniform_floats(words):
    """Converts 32-bit words to float32 uniforms in [0, 1) with 24 random bits."""
    floats = (words & _LOW24).view(np.int32).astype(np.float32)
    floats *= _STEP24
    return floats


class Generator:
    """Stream of random numbers: torch.Generator for the CPU, with states as uint8 arrays.

    A new generator starts from PyTorch's fixed default seed.
    """

    # Words are generated in whole blocks into `_buf`; `_pos` of them are used. `_bits` is
    # positioned at the start of the block after `_buf`. The state of a block is recovered from its
    # words (`_untemper`), so sampling stores no snapshots. `_origin` is the state before the first
    # sample (None: the state that follows from the seed).

    def __init__(self, device="cpu"):
        self.device = device
        self._bits = np.random.MT19937(0)
        self._source = None  # the C code's data for this generator (`c_kernels/random.py`)
        self._seeder = np.random.RandomState(self._bits)
        self.manual_seed(_DEFAULT_SEED)

    def manual_seed(self, seed):
        """Restarts from `seed`, an int in [-2**63, 2**64); negative seeds count modulo 2**64.
        Returns the generator."""
        if isinstance(seed, (bool, float)) or not hasattr(seed, "__index__"):
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        seed = seed.__index__()
        if not -(2**63) <= seed < 2**64:
            raise ValueError("Overflow when unpacking long long")
        self._seed = seed % 2**64
        self._seeder.seed(self._seed & 0xFFFFFFFF)  # as in PyTorch, only 32 bits reach the twister
        self._restart()
        return self

    def _restart(self):
        self._buf = np.empty(0, np.uint32)
        self._pos = 0
        self._origin = None
        self._parts = None  # radii and directions of the words in the buffer (`rng._few_normals`)
        self._cached_normal = None  # second value of a Box-Muller pair, if not used yet
        self._float_normal = b"\0" * 8  # a field of PyTorch's state that its CPU kernels do not use

    def initial_seed(self):
        """Returns the seed that was set last, as an int in [0, 2**64)."""
        return self._seed

    def seed(self):
        """Restarts from a random seed of the operating system and returns this seed."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def clone_state(self):
        """Returns a new generator of the same class that continues this stream independently."""
        other = type(self)(self.device)
        other._load_state(self._dump_state())
        return other

    def get_state(self):
        """Returns the state as 5056 bytes (uint8), in the layout of PyTorch's CPU generator."""
        return self._dump_state()

    def set_state(self, state):
        """Continues from a state that `get_state` or PyTorch returned. Raises RuntimeError if it is
        invalid."""
        self._load_state(state)
        return self

    def get_offset(self):
        raise RuntimeError("CPU Generator does not use offset")

    def set_offset(self, offset):
        raise RuntimeError("CPU Generator does not use offset")

    def __reduce__(self):
        return type(self), (self.device,), self._dump_state()

    def __setstate__(self, state):
        self._load_state(state)

    def _dump_state(self):
        state = np.zeros(_STATE_BYTES, np.uint8)
        words = state.view(np.uint64)
        words[0] = self._seed
        if self._pos:
            start = (self._pos - 1) // _BLOCK * _BLOCK
            key = _untemper(self._buf[start : start + _BLOCK])
            following = self._pos - start
            left = _BLOCK + 1 - following
        else:
            key = self._origin
            if key is None:
                key = np.random.RandomState(self._seed & 0xFFFFFFFF).get_state(legacy=False)["state"]["key"]
            following, left = 0, 1
        state[8:16].view(np.int32)[:] = left, 1
        words[2] = following
        words[3 : 3 + _BLOCK] = key
        if self._cached_normal is not None:
            state[5024:5032].view(np.float64)[0] = self._cached_normal
            state[5040:5044].view(np.int32)[0] = 1
        state[5048:5056] = np.frombuffer(self._float_normal, np.uint8)
        return state

    def _load_state(self, state):
        state = np.ascontiguousarray(state)
        if state.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if state.size != _STATE_BYTES:
            raise RuntimeError(
                f"Expected a CPUGeneratorImplState of size {_STATE_BYTES} but found the input RNG state size "
                f"to be {state.size}"
            )
        state = state.reshape(-1)
        words = state.view(np.uint64)
        left, seeded = state[8:16].view(np.int32).tolist()
        following = int(words[2])
        if seeded != 1 or not (left == 1 and following <= _BLOCK or left > 1 and left + following == _BLOCK + 1):
            raise RuntimeError("Invalid mt19937 state")
        self._restart()
        self._seed = int(words[0])
        key = words[3 : 3 + _BLOCK].astype(np.uint32)
        self._bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": _BLOCK}}
        if left == 1 and following < _BLOCK:
            self._origin = key
        else:
            self._buf = _temper(key)
            self._pos = following
        if state[5040:5044].view(np.int32)[0]:
            self._cached_normal = float(state[5024:5032].view(np.float64)[0])
        self._float_normal = state[5048:5056].tobytes()

    # ---- Sampling. The returned arrays may alias the buffer: do not modify them.

    def _words(self, n):
        """Returns the next n 32-bit words."""
        end = self._pos + n
        if end <= self._buf.size:
            words = self._buf[self._pos : end]
            self._pos = end
            return words
        if (words := large.random().words(self, n)) is not None:
            return words
        rest = self._buf[self._pos :]
        need = n - rest.size
        last = (need - 1) // _BLOCK * _BLOCK
        fresh = self._bits.random_raw(last + _BLOCK).astype(np.uint32)
        self._buf = fresh[last:].copy() if last else fresh
        self._pos = need - last
        return np.concatenate((rest, fresh[:need])) if rest.size else fresh[:need]

    def _ready(self, n):
        """Ensures that the buffer has the next n words (at most 1248)."""
        if self._buf.size - self._pos < n:
            keep = self._buf[max(self._pos - 1, 0) // _BLOCK * _BLOCK :]
            self._pos -= self._buf.size - keep.size
            self._buf = np.concatenate((keep, self._bits.random_raw(2 * _BLOCK).astype(np.uint32)))

    def _longs(self, n):
        """Returns the next n 64-bit words. Each combines two 32-bit words, the high half first."""
        pairs = self._words(2 * n)
        longs = pairs[0::2].astype(np.uint64)
        longs <<= np.uint64(32)
        longs |= pairs[1::2]
        return longs

    def _doubles(self, n):
        """Returns the next n float64 uniforms in [0, 1), with 53 random bits."""
        if (doubles := large.random().doubles(self, n)) is not None:
            return doubles
        longs = self._longs(n)
        longs &= np.uint64(2**53 - 1)
        doubles = longs.view(np.int64).astype(np.float64)
        doubles *= 2.0**-53
        return doubles

    def _floats(self, n):
        """Returns the next n float32 uniforms in [0, 1), with 24 random bits."""
        if (floats := large.random().uniforms(self, n)) is not None:
            return floats
        return uniform_floats(self._words(n))

    def _each_double(self):
        """Yields float64 uniforms for kernels with rejection sampling. Values that were not yielded
        stay in the stream."""
        while True:
            self._ready(2 * _BLOCK)
            words = self._buf[self._pos : self._pos + 2 * _BLOCK].astype(np.uint64)
            longs = (words[0::2] << np.uint64(32) | words[1::2]) & np.uint64(2**53 - 1)
            for double in (longs.astype(np.float64) * 2.0**-53).tolist():
                self._pos += 2
                yield double
