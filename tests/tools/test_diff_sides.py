"""`diff --sides`: finds the layer where the npu device diverges from PyTorch, from the cpu device,
or from itself in another dtype."""
import pathlib

import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine

from mindtorch.__main__ import main
from mindtorch.tools import CompareError, compare_layers
from mindtorch.tools.model_diff import activation_recorder, compare
from mindtorch.tools.model_diff.tolerance import judge
from mindtorch.tools.model_diff.first_divergence import Comparison
from mindtorch.tools.model_diff.sides import parse_sides

HERE = pathlib.Path(__file__).resolve().parents[1]
MODELS, LAYERS = str(HERE / "_side_models.py"), str(HERE / "_layer_models.py")
# all faults are compared in one run, whose time counts for the first test
pytestmark = pytest.mark.timeout(300)


def job(builder="net", fault=None, **more):
    return {"file": MODELS, "builder": builder, "state": None, "inputs": None, "loss": None, "steps": 2, "optimizer": "adam", "fault": fault,
            "seed": 0, "dropout": "off", "ops": False, "grads": True, **more}


@pytest.fixture(scope="module")
def on_cpu():
    """Uses MindSpore's CPU target as the npu device, in processes started while the fixture is
    active."""
    with pytest.MonkeyPatch.context() as m:
        m.setenv("MINDTORCH_NPU", "cpu")
        yield m


# ------------------------------------------------------------------ sides
def test_sides_are_parsed():
    a, b = parse_sides("npu:float32, npu:bfloat16")
    assert (str(a), str(b), a.called(b), b.called(a)) == ("npu:float32", "npu:bfloat16", "the npu device in float32", "the npu device in bfloat16")
    a, b = parse_sides("torch,cpu")
    assert (a.called(b), b.called(a)) == ("real torch", "mindtorch")
    a, b = parse_sides(("torch", "npu"))
    assert (a.called(b), b.called(a)) == ("real torch", "the npu device")


@pytest.mark.parametrize("sides, sentence", [("npu", "sides must be two"), ("cpu,npu,torch", "sides must be two"), ("cpu,gpu", "invalid side 'gpu'"),
                                             ("cpu,npu:int8", "invalid side 'npu:int8'"), ("cpu,npu:", "invalid side 'npu:'")])
def test_invalid_side_prints_one_sentence(sides, sentence, capsys):
    assert main(["diff", f"{MODELS}:net", "--sides", sides]) == 2
    said = capsys.readouterr()
    assert said.out == "" and sentence in said.err and said.err.count("\n") == 1


def test_machine_without_npu_prints_one_sentence(capsys, monkeypatch):
    monkeypatch.delenv("MINDTORCH_NPU", raising=False)
    assert main(["diff", f"{MODELS}:net", "--sides", "cpu,npu"]) == 2
    said = capsys.readouterr().err
    assert "there is no npu device on this machine" in said and said.count("\n") == 1 and "Traceback" not in said


# ------------------------------------------------------------------ faults in kernels
PLANTED = {"axis": ("soft", "forward"), "eps": ("body.0.norm", "forward"), "transposed": ("square", "forward"), "stale": ("body.1.act1", "forward"),
           "accumulate": ("embed", "gradient"), "sign": ("tanh", "gradient"), "broadcast": ("gate", "forward"), "mean": ("mean", "forward"),
           "statistic": ("bn", "buffer"), "optimizer": ("embed", "weights"), "bias": ("head", "forward"), "rounded": ("tanh", "forward")}


def all_faults(folder, **more):
    """Returns {fault: Comparison} of cpu and npu, with one process per side for all of them; "" is
    the run without a fault."""
    faults = ["", *PLANTED]
    jobs = [job(fault=f"kernel_{f}", **{"optimizer": "adam" if f != "optimizer" else "adam_eps", **more}) for f in faults]
    records = compare.run(jobs, str(folder), sides=parse_sides("cpu,npu"))
    return {f: Comparison(ours, reference, f) for f, (reference, ours) in zip(faults, records)}


@pytest.fixture(scope="module")
def compared(on_cpu, tmp_path_factory):
    return all_faults(tmp_path_factory.mktemp("sides"))


@pytest.fixture(scope="module")
def sketched(on_cpu, tmp_path_factory):
    return all_faults(tmp_path_factory.mktemp("sketched"), builder="larger_net", statistics=True)


def test_without_a_fault_they_agree(compared):
    c = compared[""]
    assert c.ok and c.sides == ("npu", "cpu") and c.against == "npu against cpu", c.table()
    assert "AGREE" in c.table() and "npu against cpu" in c.table()


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_in_a_kernel_is_found_at_its_layer(compared, fault):
    c = compared[fault]
    assert c.first is not None, c.table(True)
    assert (c.first.layer, c.first.phase, c.first.inputs_differed) == (*PLANTED[fault], False), c.table(True)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", *PLANTED])
def test_fault_in_a_kernel_is_found_by_statistics(sketched, fault):
    c = sketched[fault]
    assert any(h.of for r in c.rows for h in r.b.outputs.values())
    found = None if c.first is None else (c.first.layer, c.first.phase, c.first.inputs_differed)
    assert found == ((*PLANTED[fault], False) if fault else None), c.table(True)


def test_twelve_kinds_of_faults():
    assert len(PLANTED) == 12


# ------------------------------------------------------------ dtypes, and values that are not moved
@pytest.mark.parametrize("sides", ["npu:float32,npu:bfloat16", *(pytest.param(s, marks=pytest.mark.slow) for s in ("torch,npu:float16", "cpu:float64,npu"))])
def test_dtypes_are_compared_at_the_lower_precision(on_cpu, sides):
    c = compare_layers(LAYERS, "mlp", sides=sides, steps=1)
    assert c.ok, c.table()
    assert c.sides == tuple(sides.split(",")[::-1]) and max(d for _, d in c.layers) > 1e-9
    assert {h.dtype for r in c.rows for h in r.b.outputs.values()} == {{"n": "bfloat16", "t": "float16", "c": "float32"}[sides[0]]}


@pytest.mark.slow
def test_a_fault_in_another_dtype_is_found(on_cpu):
    c = compare_layers(LAYERS, "half", fault="half_bias", sides="npu:float32,npu:bfloat16")
    assert (c.first.layer, c.first.phase) == ("fc2", "forward") and "the npu device" not in c.first.text, c.table()


def test_tensor_that_is_not_moved_is_named(on_cpu):
    with pytest.raises(CompareError, match="scale: neither parameter nor buffer, and so not moved to the npu device"):
        compare_layers(MODELS, "kept", sides="cpu,npu")


# ------------------------------------------------------------------ statistics, sampling
def sketches(array, dtype="float32"):
    out = []
    for torch in (real, mine):
        t = torch.from_numpy(array)
        out.append(activation_recorder.Sketch(torch)(t.to(getattr(torch, dtype))))
    return out


def test_sketch_contains_summary_statistics():
    x = np.random.RandomState(0).randn(300, 1000, 15).astype("float32") + 0.5       # two chunks
    for h in sketches(x):
        assert h.of == x.shape and h.size == x.size and len(h.a) == 256 + activation_recorder.FUNCTIONALS and h.odd == (0, 0)
        least, greatest, mean, rms = h.a[256:260]
        assert (least, greatest) == (x.min(), x.max())
        assert mean == pytest.approx(x.mean(dtype="float64"), rel=1e-5) and rms == pytest.approx(np.sqrt((x.astype("float64") ** 2).mean()), rel=1e-5)
        assert np.isin(h.a[:256], x).all() and len({*h.a[:256]}) > 250
    a, b = sketches(x)
    assert judge(a, b, 0.0).verdict in ("same", "noise")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64"])
@pytest.mark.parametrize("change", ["swapped", "transposed", "row", "sign", "nan"])
def test_sketch_detects_moved_and_changed_elements(dtype, change):
    x = np.round(np.random.RandomState(1).randn(96, 96) * 100).astype("float32")
    y = {"swapped": np.concatenate([x[48:], x[:48]]), "transposed": x.T.copy(), "row": np.vstack([x[:50], x[50:51] * 2, x[51:]]),
         "sign": -x, "nan": np.where(np.arange(96) == 5, np.nan, x).astype("float32")}[change]
    if change == "nan" and dtype == "int64":
        return
    (a, same), (b, _) = sketches(x, dtype), sketches(y, dtype)
    assert not judge(a, same, 1e-6).bad and judge(b, a, 1e-3).bad and a.of == (96, 96)
    assert not judge(a, a).bad


def test_sketch_makes_one_copy_and_uses_no_randomness(process):
    """Reading a sketch costs one device-to-host copy and changes neither the tensor nor the RNG
    state."""
    said = process.ok("from mindtorch.tools import mstorch_enable; import torch\n"
                      "from mindtorch.core.device.device_dispatch import COPIES; from mindtorch.tools.model_diff import activation_recorder\n"
                      "x = torch.randn(300, 500).to('npu').bfloat16(); s = activation_recorder.Sketch(torch); s(x); before = torch.npu.get_rng_state()\n"
                      "n = COPIES.down; u = COPIES.up; v = x._version; h = s(x)\n"
                      "print(COPIES.down - n, COPIES.up - u, x._version - v, bool((torch.npu.get_rng_state() == before).all()), len(h.a))",
                      env={"MINDTORCH_NPU": "cpu", "MINDTORCH_NPU_FALLBACK": "0"})
    assert said.split()[-5:] == ["1", "0", "0", "True", str(256 + activation_recorder.FUNCTIONALS)]


@pytest.mark.slow
def test_memory_and_disk_are_bounded(on_cpu, tmp_path):
    """239 MB of activations and gradients per side take 0.22 MB as statistics, and 203 MB less
    memory than if recorded completely."""
    peaks, sizes = {}, {}
    for statistics in (False, True):
        folder = tmp_path / str(statistics)
        folder.mkdir()
        (a, b), = compare.run([job("large", steps=0, statistics=statistics)], str(folder), sides=parse_sides("cpu,npu"))
        c = Comparison(b, a, "large")
        assert c.ok, c.table()
        peaks[statistics], sizes[statistics] = b["peak"], sum(f.stat().st_size for f in folder.iterdir())
    assert sizes[False] > 400e6 and sizes[True] < 1e6
    assert peaks[False] - peaks[True] > 100e6


def test_sampled_layers_and_steps(on_cpu):
    c = compare_layers(MODELS, "net", sides="cpu,npu", fault="kernel_broadcast", layers="body.*,head", steps="0,3-4")
    assert c.numbers == [0, 3, 4] and set(c.grads) == {n for n in c.reference["shapes"] if n.startswith(("body.", "head."))}
    looked = {r.name for r in c.rows if r.call.sampled}
    assert "" in looked and {n.split(".")[0] for n in looked - {""}} == {"body", "head"} and "gate" in {r.name for r in c.rows}
    assert c.first.layer == "head" and c.first.inputs_differed and "after body, before head" not in c.first.text, c.first.text


@pytest.mark.slow
def test_every_third_call(on_cpu):
    c = compare_layers(MODELS, "net", sides="cpu,npu", every=3)
    assert c.ok, c.table()
    assert 1 < sum(r.call.sampled for r in c.rows) < len(c.rows) / 2


@pytest.mark.parametrize("steps, read", [(3, 3), ("3", 3), ("0,10,4-6", [0, 4, 5, 6, 10]), ([7, 1], [1, 7])])
def test_steps_are_parsed(steps, read):
    assert compare._numbers(steps) == read


def test_invalid_steps_print_one_sentence(capsys):
    for arguments in (["--steps", "5-3"], ["--steps", "x"], ["--every", "0"]):
        assert main(["diff", f"{MODELS}:net", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1


# ------------------------------------------------------------------ on the CANN simulator
LAUNCHED = {"axis": "Softmax", "eps": "LayerNorm", "transposed": "Addmm", "stale": "Sigmoid", "accumulate": "EmbeddingDenseBackward", "sign": "TanhBackward",
            "broadcast": "Mul", "mean": "Mean", "statistic": "BatchNorm", "optimizer": "ApplyAdamWV2", "bias": "Addmm", "rounded": "Tanh"}


@pytest.mark.ascend
@pytest.mark.parametrize("fault", LAUNCHED)
def test_fault_in_a_simulated_kernel_is_found_with_its_launch(fault, monkeypatch):
    monkeypatch.delenv("MINDTORCH_NPU", raising=False)
    monkeypatch.setenv("FAULT_IN_KERNELS", fault)
    c = compare_layers(MODELS, "net", sides="cpu,npu", standin="torch", kernels=[str(HERE / "_standin_faults.py")], steps=1, optimizer="adam_eps")
    assert (c.first.layer, c.first.phase, c.first.inputs_differed) == (*PLANTED[fault], False), c.table(True)
    lines = c.launches["npu"]
    assert any(x.startswith(f"aclnn{LAUNCHED[fault]} ") for x in lines) and len(lines) < 12, lines
    assert lines[0] in c.table() and "launched there on npu" in c.table()
