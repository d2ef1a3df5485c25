"""Tensors of the npu device: where they are, and that their values come back."""
import numpy as np

import mindtorch.torch as mt


def test_values_go_there_and_back(npu):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = mt.from_numpy(a).to(npu)
    assert x.device == npu and x.is_contiguous()
    np.testing.assert_array_equal((x + 1).cpu().numpy(), a + 1)
    np.testing.assert_array_equal(x.t().cpu().numpy(), a.T)


def test_a_module_that_moves_keeps_its_parameters(npu):
    model = mt.nn.Sequential(mt.nn.Linear(3, 2), mt.nn.Linear(2, 3))
    model[1].weight = mt.nn.Parameter(mt.ones(3, 2))
    first, optimizer = model[0].weight, mt.optim.SGD(model.parameters(), lr=1.)
    model.to(npu)
    assert model[0].weight is first and first.device == npu
    model(mt.ones(1, 3, device=npu)).sum().backward()
    before = first.detach().cpu().clone()
    optimizer.step()
    assert not mt.equal(first.detach().cpu(), before)
