"""Plain MindSpore code on the Ascend target does the same beside mindtorch."""
import pytest

pytestmark = pytest.mark.ascend
SCRIPT = "tests/device/_ascend_plain.py"


def test_plain_mindspore_beside_mindtorch(standin):
    """Writes to parts of Parameters, and mint's optimizers, which MindSpore refuses while it records: what it records for torch-style code is no reason."""
    alone, beside = [standin.run(SCRIPT, *argv, hook=False).stdout for argv in ((), ("with",))]
    assert alone.count("FusedAdamW") == 2 and beside == alone
