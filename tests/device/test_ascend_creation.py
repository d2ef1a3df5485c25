"""Creation functions take every dtype on Ascend, as on the host; torch.cat there copies nothing for operands of no elements."""
import pathlib

import pytest

pytestmark = pytest.mark.ascend


def test_creation_with_every_dtype(standin):
    r = standin.run(pathlib.Path(__file__).with_name("_ascend_creation.py"))
    count, bad = map(int, r.said("created").split())
    assert count > 900 and not bad, r.stdout[:3000]
    assert r.said("joined") == "True 0" and r.said("gradient") == "True"
