"""torch.random: seeds and generator states (https://pytorch.org/docs/stable/random.html)."""
import contextlib

from mindtorch.core.device import rng
from mindtorch.core.device.device import device as torch_device
from mindtorch.ops.creation.random import (Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed,  # noqa: F401
                                           set_rng_state)

__all__ = ["set_rng_state", "get_rng_state", "manual_seed", "seed", "initial_seed", "fork_rng", "default_generator"]


@contextlib.contextmanager
def fork_rng(devices=None, enabled=True, _caller="fork_rng", _devices_kw="devices", device_type="cuda"):
    """Restores the state of the CPU generator and of the accelerator's `devices` (None: all) at the
    end of the block."""
    if not enabled:
        yield
        return
    state, there = get_rng_state(), rng.device_states()
    if devices is not None:
        wanted = {d if isinstance(d, int) else torch_device(d).index or 0 for d in devices}
        there = {k: v for k, v in there.items() if k[1] in wanted}
    try:
        yield
    finally:
        set_rng_state(state)
        rng.set_device_states(there)
