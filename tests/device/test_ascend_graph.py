"""torch.compile(step, backend="mindspore") on MindSpore's Ascend target, with the stand-in for CANN in the place of an NPU."""
import json

import pytest

PROGRAM = """
import json, os, sys
import mindspore as ms
ms.set_device("Ascend")
sys.path.insert(0, "benchmarks")
import mindtorch.torch as torch
from mindtorch.core import devices, lazy
import ascend_launches as models
log = models.Log(os.environ["MINDTORCH_STANDIN_LOG"])
STEPS = 6
found = {}

def trained(name, compiled):
    places = []
    def mark():
        ms.runtime.synchronize()
        places.append((log.here(), lazy.counters["eager"]))
    losses = models.train(torch, name, "npu", STEPS, mark, compiled)
    launches, aclops, copies = log.between(places[-2][0], places[-1][0])
    return {"losses": losses, "launches": sum(launches.values()) + sum(aclops.values()), "copies": sum(copies.values()), "alone": places[-1][1] - places[-2][1]}

# (All of them eagerly first: backward passes are compiled where anything has been.)
eager = {name: trained(name, False) for name in sys.argv[1:]}
for name in sys.argv[1:]:
    lazy.counters.clear()
    lazy.breaks.clear()
    before = sum(devices.FALLBACKS.values())
    found[name] = {"eager": eager[name], "compiled": trained(name, True), "runs": lazy.counters["graph_runs"], "breaks": dict(lazy.breaks),
                   "fallbacks": sum(devices.FALLBACKS.values()) - before}
print("FOUND", json.dumps(found))
"""

#: launches that a step's graph has beyond the eager step's: a Reshape that a view is taken of is a copy there, MindSpore's compiler has the gradient of a
#: batch norm with its forward again
MORE = {"mlp": 0, "lenet": 0, "unet": 0, "cnn_adam": 1, "cnn_adamw": 1, "resnet": 7, "transformer": 5, "gpt": 2, "bert": 0}


@pytest.mark.ascend
@pytest.mark.parametrize("names", [("mlp", "lenet", "unet", "cnn_adam", "cnn_adamw"), ("resnet", "transformer"), ("gpt", "bert")], ids=" ".join)
def test_models(standin, tmp_path, names):
    """The eager step's losses; in the steady state one graph, no kernel by itself, no copy, no fallback."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    r = standin.run(path, *names, hook=False)
    for name, found in json.loads(r.said("FOUND")).items():
        eager, compiled = found["eager"], found["compiled"]
        assert max(abs(a - b) / max(1, abs(b)) for a, b in zip(compiled["losses"], eager["losses"])) <= 1e-6, (name, found)
        assert found["runs"] >= 2 and not found["breaks"] and not found["fallbacks"] and not compiled["alone"] and not compiled["copies"], (name, found)
        assert compiled["launches"] <= eager["launches"] + MORE[name], (name, compiled["launches"], eager["launches"])
