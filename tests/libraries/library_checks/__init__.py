"""Small programs for libraries that are written for torch: each builds something tiny, runs it
forward and backward, and checks the result. `python tests/libraries/check.py` runs those whose
library is installed, each in a separate process with the import hook enabled.

A check is a function whose docstring says what it runs; `CHECKS` maps the library's PyPI name to
it. The modules here are divided by subject; importing this package registers the checks of all of
them.
"""
import importlib
import json

from library_checks import (
    attention, audio, differential_equations, figures, generation, geometry, gradients, inspection,
    optimizers, probability, registry, reinforcement_learning, tensors, text, training, vision)
from library_checks.registry import CHECKS, settle

# `run` records the local variables of the functions in these.
_MODULES = (
    attention, audio, differential_equations, generation, geometry, gradients, inspection,
    optimizers, probability, registry, reinforcement_learning, tensors, text, training, vision)


def run(name, device="cpu", hook=True):
    """Runs one check in this process, from a fixed seed, with the hook enabled (or, with
    hook=False, with the installed torch). Prints the recorded figures and the kernels that the
    device executed."""
    if hook:
        importlib.import_module("mindtorch.tools.mstorch_enable")
    settle(name, device)
    figures.seed()
    with figures.Seen(*(m.__file__ for m in _MODULES)) as seen:
        CHECKS[name][0]()
    print("FIGURES", json.dumps(seen.calls), flush=True)
    if device != "cpu":
        from mindtorch.core.device import device_dispatch
        print("ASKED", json.dumps({"kernels": sorted(device_dispatch.called_primitives(device)), "host": sorted(n for kind,
                n in device_dispatch.FALLBACKS if kind == device)}), flush=True)
