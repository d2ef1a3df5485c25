"""torch.random: seeds and generator states (https://pytorch.org/docs/stable/random.html)."""
import contextlib

from mindtorch.ops.creation.random import (Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed,  # noqa: F401
                                  set_rng_state)

__all__ = ["set_rng_state", "get_rng_state", "manual_seed", "seed", "initial_seed", "fork_rng", "default_generator"]


@contextlib.contextmanager
def fork_rng(devices=None, enabled=True, _caller="fork_rng", _devices_kw="devices", device_type="cuda"):
    """Restores the global generator's state at the end of the block."""
    if not enabled:
        yield
        return
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
