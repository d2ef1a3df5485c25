"""Creation functions accept every dtype on Ascend, as on the host. `torch.cat` on Ascend copies
nothing for empty operands."""
import pathlib

import pytest

pytestmark = pytest.mark.ascend


def test_creation_with_every_dtype(standin):
    r = standin.run(pathlib.Path(__file__).with_name("_ascend_creation.py"))
    count, bad = map(int, r.said("created").split())
    assert count > 900 and not bad, r.stdout[:3000]
    assert r.said("joined") == "True 0" and r.said("gradient") == "True"
