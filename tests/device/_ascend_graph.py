"""Runs the flows of _graph_flows.py on the Ascend target: graph mode, `ms.jit` and data sinking
must match the eager runs. Arguments: flows."""
import os
import sys
import tempfile
import warnings

import mindspore as ms
import numpy as np
import torch

import _graph_flows as flows
from mindtorch.core.compile import replay

flows.COUNTERS = torch._dynamo.utils.counters["mindspore"]
warnings.simplefilter("error", RuntimeWarning)
os.chdir(tempfile.mkdtemp())


def compare(name, have, want):
    assert len(have) == len(want), name
    for a, b in zip(have, want):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=name)


for name in sys.argv[1:]:
    if name == "sink":
        want = flows.model(torch, "npu", False)
        have = flows.model(torch, "npu", False, sink=True)
        compare(name, have, want)
        ms.set_context(mode=ms.GRAPH_MODE)
        have = flows.model(torch, "npu", True, sink=True)
        compare(name, have, [want[0][5::6], *want[1:]])  # one network call per epoch
        ms.set_context(mode=ms.PYNATIVE_MODE)
        continue
    if name == "data_sink":
        found = []
        for config in None, ms.JitConfig():
            m = flows.net(torch, "npu")
            opt, crit = torch.optim.SGD(m.parameters(), lr=0.1), torch.nn.CrossEntropyLoss()
            fn = ms.value_and_grad(lambda x, y: crit(m(x), y.long()), None, list(m.parameters()))

            def step(x, y):
                loss, gradients = fn(torch.as_tensor(x).to("npu"), torch.as_tensor(y).to("npu"))
                opt(gradients)
                return loss

            sunk = ms.data_sink(step, flows.dataset(), sink_size=4, jit_config=config)
            found.append([[float(sunk()) for _ in range(4)], *flows.numbers(*m.parameters())])
        compare(name, *found)
        continue
    flow = flows.FLOWS[name]
    want = flow(torch, "npu", False)
    for mode in ms.PYNATIVE_MODE, ms.GRAPH_MODE:
        ms.set_context(mode=mode)
        flows.COUNTERS.clear()
        flows.SEEN.clear()
        compare(name, flow(torch, "npu", True), want)
        if mode == ms.GRAPH_MODE or not name.startswith("model"):
            seen = flows.SEEN if name.startswith("model") else [*flows.SEEN, flows.COUNTERS["eager"]]
            print("COUNTERS", name, dict(flows.COUNTERS), seen)
            assert flows.COUNTERS["graph_runs"] and seen[-1] == seen[4], (name, dict(flows.COUNTERS), seen, replay.breaks)
    ms.set_context(mode=ms.PYNATIVE_MODE)
assert not any(f.startswith("rank_") for f in os.listdir()), os.listdir()
print("SAID", *sys.argv[1:])
