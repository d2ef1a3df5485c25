"""Tensors of the npu device: where they are, and that their values come back."""
import numpy as np

import mindtorch.torch as mt


def test_values_go_there_and_back(npu):
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    x = mt.from_numpy(a).to(npu)
    assert x.device == npu and x.is_contiguous()
    np.testing.assert_array_equal((x + 1).cpu().numpy(), a + 1)
    np.testing.assert_array_equal(x.t().cpu().numpy(), a.T)
