"""`diff --sides`: the place where the npu device leaves real torch, the cpu device, or itself in another dtype."""
import pathlib

import pytest

from mindtorch.__main__ import main
from mindtorch.tools import _compare, _sides
from mindtorch.tools._locate import Comparison

HERE = pathlib.Path(__file__).resolve().parents[1]
MODELS, LAYERS = str(HERE / "_side_models.py"), str(HERE / "_layer_models.py")
pytestmark = pytest.mark.timeout(300)        # the comparisons with all faults are made in one go, which the first test waits for


def job(builder="net", fault=None, **more):
    return {"file": MODELS, "builder": builder, "state": None, "inputs": None, "loss": None, "steps": 2, "optimizer": "adam", "fault": fault,
            "seed": 0, "dropout": "off", "ops": False, "grads": True, **more}


@pytest.fixture(scope="module")
def on_cpu():
    """The npu device on MindSpore's CPU target, for processes started while it is there."""
    with pytest.MonkeyPatch.context() as m:
        m.setenv("MINDTORCH_NPU", "cpu")
        yield m


# ------------------------------------------------------------------ sides
def test_sides_are_read():
    a, b = _sides.parse("npu:float32, npu:bfloat16")
    assert (str(a), str(b), a.called(b), b.called(a)) == ("npu:float32", "npu:bfloat16", "the npu device in float32", "the npu device in bfloat16")
    a, b = _sides.parse("torch,cpu")
    assert (a.called(b), b.called(a)) == ("real torch", "mindtorch")
    a, b = _sides.parse(("torch", "npu"))
    assert (a.called(b), b.called(a)) == ("real torch", "the npu device")


@pytest.mark.parametrize("sides, sentence", [("npu", "sides must be two"), ("cpu,npu,torch", "sides must be two"), ("cpu,gpu", "'gpu' is no side"),
                                             ("cpu,npu:int8", "'npu:int8' is no side"), ("cpu,npu:", "'npu:' is no side")])
def test_what_is_no_side_is_one_sentence(sides, sentence, capsys):
    assert main(["diff", f"{MODELS}:net", "--sides", sides]) == 2
    said = capsys.readouterr()
    assert said.out == "" and sentence in said.err and said.err.count("\n") == 1


def test_a_machine_without_npu_is_one_sentence(capsys, monkeypatch):
    monkeypatch.delenv("MINDTORCH_NPU", raising=False)
    assert main(["diff", f"{MODELS}:net", "--sides", "cpu,npu"]) == 2
    said = capsys.readouterr().err
    assert "there is no npu device on this machine" in said and said.count("\n") == 1 and "Traceback" not in said


# ------------------------------------------------------------------ faults in kernels
#: fault -> the layer where it must be found, in which phase
PLANTED = {"axis": ("soft", "forward"), "eps": ("body.0.norm", "forward"), "transposed": ("square", "forward"), "stale": ("body.1.act1", "forward"),
           "accumulate": ("embed", "gradient"), "sign": ("tanh", "gradient"), "broadcast": ("gate", "forward"), "mean": ("mean", "forward"),
           "statistic": ("bn", "buffer"), "optimizer": ("embed", "weights"), "bias": ("head", "forward"), "rounded": ("tanh", "forward")}


@pytest.fixture(scope="module")
def compared(on_cpu, tmp_path_factory):
    """{fault: Comparison} of cpu and npu, all of them by one process for each side; "" is the one without a fault."""
    faults = ["", *PLANTED]
    jobs = [job(fault=f"kernel_{f}", optimizer="adam" if f != "optimizer" else "adam_eps") for f in faults]
    records = _compare.run(jobs, str(tmp_path_factory.mktemp("sides")), sides=_sides.parse("cpu,npu"))
    return {f: Comparison(ours, reference, f) for f, (reference, ours) in zip(faults, records)}


def test_without_a_fault_they_agree(compared):
    c = compared[""]
    assert c.ok and c.sides == ("npu", "cpu") and c.against == "npu against cpu", c.table()
    assert "AGREE" in c.table() and "npu against cpu" in c.table()


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_in_a_kernel_is_found_at_its_layer(compared, fault):
    c = compared[fault]
    assert c.first is not None, c.table(True)
    assert (c.first.layer, c.first.phase, c.first.inputs_differed) == (*PLANTED[fault], False), c.table(True)


def test_twelve_kinds_of_faults():
    assert len(PLANTED) == 12
