"""Pure MindSpore code on the Ascend target behaves the same when mindtorch is imported."""
import pytest

pytestmark = pytest.mark.ascend
SCRIPT = "tests/device/_ascend_plain.py"


def test_plain_mindspore_is_unchanged_by_mindtorch(standin):
    """Covers writes to parts of Parameters and mint's optimizers. MindSpore refuses them while it
    records autograd; recording for torch-style code must not cause that refusal."""
    alone, beside = [standin.run(SCRIPT, *argv, hook=False).stdout for argv in ((), ("with",))]
    assert alone.count("FusedAdamW") == 2 and beside == alone
