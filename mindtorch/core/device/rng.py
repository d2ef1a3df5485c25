"""Random number generators, and functions that draw from the host's generators without creating
tensors (backend/cpu/random.py).

Devices other than the host draw by seed and offset: their kernels derive all random numbers from
the two, and every draw advances the offset.

MINDTORCH_NPU_RANDOM=host makes a device's default generator use the random numbers of the host's
default generator instead, one stream for both, and upload them.
"""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from mindtorch.backend.cpu import random as _host
from mindtorch.backend.cpu.random import (Generator, bernoulli, bernoulli_mask, binomial, cauchy, exponential, geometric,  # noqa: F401
                                          in_memory_order, log_normal, multinomial, normal, normal_like, poisson, randint, random, randperm,
                                          rrelu_noise, standard_dirichlet, standard_gamma, uniform)
from mindtorch.core.device import device as _device
from mindtorch.core.hooks import hooks

default_generator = _host.default_generator


def set_default(generator):
    """Sets the default generator, which is used where none is passed."""
    global default_generator
    default_generator = generator
    _host.set_default_generator(generator)


# ------------------------------------------------------------------ devices
class _Policy:
    """Flag `host`: True if device generators use the host's random numbers."""

    __slots__ = ("host",)

    def __init__(self) -> None:
        wanted = os.environ.get("MINDTORCH_NPU_RANDOM", "")
        if wanted not in ("", "host"):
            raise ValueError(f"invalid MINDTORCH_NPU_RANDOM={wanted}: expected 'host' (use the host generator's random numbers) or unset")
        self.host = wanted == "host"


policy = _Policy()
# offset increment per draw: a multiple of 4 in PyTorch; MindSpore's kernels count in steps of 12
_STEP = 12
_MASK = (1 << 64) - 1


def mixed(seed: int, offset: int) -> int:
    """Hashes a seed and an offset to 64 pseudorandom bits (splitmix64)."""
    x = (seed ^ (offset * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D)) & _MASK
    for shift, by in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ x >> shift) * by & _MASK
    return x ^ x >> 31


class Counter:
    """Engine of a device's generator: a seed and the offset of the next draw."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._host_generator: Generator | None = None  # host generator that replaces it
        self._default = False
        self.manual_seed(67280421310721)  # PyTorch's default seed

    def manual_seed(self, seed: Any) -> Any:
        """Restarts from a seed, an int in [-2**63, 2**64); returns the generator."""
        if isinstance(seed, (bool, float)) or not hasattr(seed, "__index__"):
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        seed = seed.__index__()
        if not -(1 << 63) <= seed < 1 << 64:
            raise ValueError("Overflow when unpacking long long")
        self._seed, self._offset = seed & _MASK, 0
        if self._host_generator is not None:
            self._host_generator.manual_seed(seed)
        return self

    def initial_seed(self) -> int:
        """The seed last set, as an int in [0, 2**64)."""
        return self._seed

    def seed(self) -> int:
        """Restarts from a seed taken from the operating system; returns it."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def get_offset(self) -> int:
        """Returns the offset: how far the stream has advanced since the seed was set."""
        return self._offset

    def set_offset(self, offset: int) -> None:
        """Moves to an offset in the stream of the current seed."""
        if offset < 0 or offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        self._offset = int(offset)

    @property
    def on_host(self) -> bool:
        """True if the random numbers come from the host."""
        return policy.host

    def take(self) -> tuple[int, int]:
        """Returns (seed, offset) for one draw and advances the offset."""
        at = self._offset
        self._offset = at + _STEP
        return self._seed, at

    def for_host(self) -> Generator:
        """Returns a host generator from which a host kernel draws in place of this one."""
        if policy.host:
            if self._default:
                return default_generator
            if self._host_generator is None:
                self._host_generator = Generator().manual_seed(self._seed)
            return self._host_generator
        return Generator().manual_seed(mixed(*self.take()))

    def clone_state(self) -> Any:
        """Returns a new generator that continues this stream independently."""
        other = type(self)(self.device)
        other._load_state(self._dump_state())
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.device,), self._dump_state()

    def __setstate__(self, state: np.ndarray) -> None:
        self._load_state(state)

    def _dump_state(self) -> np.ndarray:
        return np.array([self._seed, self._offset], np.uint64).view(np.uint8)

    def _load_state(self, state: np.ndarray) -> None:
        state = np.ascontiguousarray(state)
        if state.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if state.size != 16:
            raise RuntimeError("RNG state is wrong size")
        self._seed, self._offset = state.reshape(-1).view(np.uint64).tolist()


class _Hosts:
    """Generator of tensors that stand for host tensors: the host's default generator."""

    on_host = True

    def for_host(self) -> Generator:
        return default_generator


_hosts = _Hosts()
_defaults: dict[tuple[str, int], Any] = {}
_seed_of_new: int | None = None


def default_of(dev: _device.device) -> Any:
    """Returns a device's default generator."""
    found = _device.registered.get(dev.type)
    if found is None:
        return default_generator
    if found.of_host:
        return default_generator
    if found.shadows:
        return _hosts
    key = found.type, dev.index or 0
    g = _defaults.get(key)
    if g is None:
        g = _defaults[key] = hooks.device_generator(dev)
        g._default = True
        g.seed() if _seed_of_new is None else g.manual_seed(_seed_of_new)
    return g


def seed_devices(seed: int) -> None:
    """Reseeds the default generators of all devices, including those that are not in use yet."""
    global _seed_of_new
    _seed_of_new = seed
    for g in _defaults.values():
        g.manual_seed(seed)


def device_states() -> dict[tuple[str, int], tuple[int, int]]:
    """Returns (seed, offset) of the devices' default generators."""
    return {k: (g._seed, g._offset) for k, g in _defaults.items()}


def set_device_states(states: dict[tuple[str, int], tuple[int, int]]) -> None:
    """Restores the devices' default generators from `device_states`."""
    for k, at in states.items():
        if k in _defaults:
            _defaults[k]._seed, _defaults[k]._offset = at
