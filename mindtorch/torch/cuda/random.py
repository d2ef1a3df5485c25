"""torch.cuda.random: seeds and states of the accelerator's generators
(https://pytorch.org/docs/stable/cuda.html#random-number-generator)."""
from mindtorch.core.device import device as _device, rng

__all__ = ["get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed", "manual_seed_all", "seed", "seed_all", "initial_seed"]


def _there():
    names = _device.accelerator()
    return names[0] if names else None


def _all():
    """Returns the default generators of all accelerators of this machine.

    This includes those used by other processes, and those that this process only uses after a
    set_device.
    """
    name = _there()
    return [] if name is None else [rng.default_of(_device.device(name, i)) for i in range(_device.registered[name].count())]


def _generator(device):
    """Returns the default generator of a device (name, index or torch.device; None: the current
    one)."""
    name = _there()
    if name is None:
        raise RuntimeError("torch.cuda: MindSpore's device target here is CPU; there is no accelerator")
    if device is None:
        device = name
    return rng.default_of(_device.check(_device.device(name, device) if isinstance(device, int) else device))


def manual_seed(seed):
    """Seeds the generator of the current accelerator; ignored without one."""
    if _there() is not None:
        _generator(None).manual_seed(int(seed))


def manual_seed_all(seed):
    """Seeds the generators of all accelerators; ignored without one."""
    for g in _all():
        g.manual_seed(int(seed))


def seed():
    """Seeds the generator of the current accelerator from the operating system; ignored without one."""
    if _there() is not None:
        _generator(None).seed()


def seed_all():
    """Seeds the generators of all accelerators from the operating system, with one seed; ignored without one."""
    first, *rest = _all() or [None]
    if first is not None:
        s = first.seed()
        for g in rest:
            g.manual_seed(s)


def initial_seed():
    """Returns the seed of the current accelerator's generator."""
    return _generator(None).initial_seed()


def get_rng_state(device=None):
    """Returns the state of an accelerator's generator (default: the current one's) as a uint8
    tensor on the host."""
    return _generator(device).get_state()


def get_rng_state_all():
    """Returns the states of all accelerators' generators."""
    return [g.get_state() for g in _all()]


def set_rng_state(new_state, device=None):
    """Sets the state of an accelerator's generator (default: the current one's)."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states):
    """Sets the states of all accelerators' generators."""
    there = _all()
    for i, state in enumerate(new_states):
        (there[i] if i < len(there) else _generator(i)).set_state(state)
