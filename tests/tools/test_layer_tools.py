"""debug_layer_info, compare_layers and `python -m mindtorch diff`: planted faults are found where
they are."""
import io
import json
import pathlib
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch as real

import mindtorch.torch as mine
from mindtorch.__main__ import main
from mindtorch.tools import CompareError, compare_layers, debug_layer_info, load_layer_info
from mindtorch.tools.model_diff import activation_recorder, compare
from mindtorch.tools.model_diff.tolerance import judge
from mindtorch.tools.model_diff.first_divergence import Comparison
from mindtorch.tools.model_diff.activation_recorder import Held, load, save

MODELS = str(pathlib.Path(__file__).resolve().parents[1] / "_layer_models.py")
# all models are compared in one run, whose time counts for the first test
pytestmark = pytest.mark.timeout(300)


def net(T):
    T.manual_seed(3)
    return T.nn.Sequential(T.nn.Linear(4, 6), T.nn.ReLU(inplace=True), T.nn.Sequential(T.nn.Linear(6, 2), T.nn.Tanh()))


# ------------------------------------------------------------------ debug_layer_info
@pytest.mark.parametrize("T, frame", [(mine, "mindtorch"), (real, "pytorch")])
def test_layer_info_has_no_side_effects_and_is_removable(T, frame, tmp_path):
    def run(hooked):
        m, x, out = net(T), T.arange(8.0).reshape(2, 4).requires_grad_(), io.StringIO()
        info = debug_layer_info(m, frame, file=out) if hooked else None
        y = m(x)
        y.square().sum().backward()
        return m, info, out.getvalue(), [y.detach().numpy(), x.grad.numpy(), *(p.grad.numpy() for p in m.parameters())]

    plain, (m, info, text, values) = run(False)[3], run(True)
    for a, b in zip(plain, values):
        np.testing.assert_array_equal(a, b)
    names = [c["name"] for c in info.calls]
    assert names == ["0", "1", "2.0", "2.1", "2", ""]
    first = info.calls[0]
    # The ReLU modifies this output in place; the reported values are those at the time the layer
    # returned it.
    expected = (np.arange(8.0, dtype="float32").reshape(2, 4) @ m[0].weight.detach().numpy().T
                + m[0].bias.detach().numpy())
    assert first["outputs"]["0"]["min"] == pytest.approx(float(expected.min()), rel=1e-5) and expected.min() < 0
    assert set(info.gradients) == {n for n, _ in m.named_parameters()}
    assert info.gradients["0.bias"]["max"] == pytest.approx(float(m[0].bias.grad.max()), rel=1e-6)
    assert all(c["grad_outputs"] for c in info.calls)
    assert "[forward]  2.0" in text and "[backward] parameter 2.0.weight" in text and "2.1" in info.table()
    for name in ("info.npz", "info.json"):
        info.save(str(tmp_path / name))
        assert load_layer_info(str(tmp_path / name))["calls"] == info.calls
    info.remove()
    m(T.ones(2, 4))
    assert len(info.calls) == 6 and not any(x._forward_hooks or x._forward_pre_hooks for x in m.modules())


def test_layer_info_matches_on_both_sides():
    infos = []
    for T, frame in ((mine, "mindtorch"), (real, "pytorch")):
        m = net(T)
        with debug_layer_info(m, frame, quiet=True) as info:
            m(T.ones(3, 4)).sum().backward()
        infos.append(info)
    a, b = infos
    for x, y in zip(a.calls, b.calls, strict=True):
        assert (x["name"], x["type"], x["leaf"]) == (y["name"], y["type"], y["leaf"])
        for field in ("inputs", "outputs", "grad_outputs"):
            for path in y[field]:
                for k in ("max", "min", "mean", "norm"):
                    assert x[field][path][k] == pytest.approx(y[field][path][k], abs=1e-5)


@pytest.mark.parametrize("model, frame, error", [
    (lambda: net(real), "mindtorch", "real PyTorch"), (lambda: net(mine), "pytorch", "mindtorch"),
    (lambda: 3, "mindtorch", "not int")])
def test_layer_info_rejects_the_wrong_framework(model, frame, error):
    with pytest.raises(TypeError, match=error):
        debug_layer_info(model(), frame)
    with pytest.raises(ValueError, match="frame"):
        debug_layer_info(model(), "jax")


# ------------------------------------------------------------------ comparison
def test_verdicts():
    a = np.linspace(-1, 1, 101, dtype=np.float32)
    assert judge(Held(a, "float32"), Held(a.copy(), "float32")).verdict == "same"
    near = judge(Held(np.nextafter(a, np.float32(2)), "float32"), Held(a, "float32"), 1e-6)
    assert near.verdict == "noise" and near.max_abs > 0
    off = judge(Held(a + np.float32(1e-3), "float32"), Held(a, "float32"), 1e-6)
    assert off.verdict == "different" and off.max_abs == pytest.approx(1e-3, rel=1e-3)
    nan = a.copy()
    nan[3] = np.nan
    assert judge(Held(nan, "float32"), Held(a, "float32"), 1.0).bad
    assert judge(Held(nan, "float32"), Held(nan.copy(), "float32")).verdict == "same"
    assert judge(None, Held(a, "float32")).bad and judge(None, None).verdict == "same"
    assert judge(Held(a[:5], "float32"), Held(a, "float32")).bad
    assert judge(Held(np.array([1, 2]), "int64"), Held(np.array([1, 3]), "int64"), 1.0).bad


def test_records_survive_the_file(tmp_path):
    value = {"a": [Held(np.arange(3), "int64"), None, 1.5], "b": {"c": Held(np.float32(2) * np.ones(()), "bfloat16")}}
    save(tmp_path / "r.npz", value)
    back = load(tmp_path / "r.npz")
    assert back["a"][0].a.tolist() == [0, 1, 2] and back["a"][1:] == [None, 1.5] and back["b"]["c"].dtype == "bfloat16"
    with np.load(tmp_path / "r.npz", allow_pickle=False) as z:  # no pickles, so no paths of modules
        assert "mindtorch." not in str(z["mindtorch.json"])


def test_records_of_earlier_versions_load(tmp_path):
    """A file in format 1, written out here: it names no module of mindtorch, so modules may move."""
    call = {"name": "fc1", "type": "Linear", "outputs": {"0": {"$": "0", "dtype": "float32"}}, "wants": ["0"],
            "grad_outputs": {"0": {"$": "1", "dtype": "bfloat16", "of": [4, 8], "odd": [1, 0]}}}
    text = json.dumps({"version": 1, "value": {"version": "2.0", "calls": [{"$call": call}]}})
    with open(tmp_path / "old.npz", "wb") as f:
        np.savez(f, **{"0": np.arange(2.0, dtype="float32"), "1": np.ones(3, "float32"), "mindtorch.json": np.array(text)})
    for read in (load, load_layer_info):
        back = read(str(tmp_path / "old.npz"))["calls"][0]
        assert back.key == ("fc1", "module", 0) and back.outputs["0"].a.tolist() == [0.0, 1.0] and back.wants == ["0"]
        assert back.grad_outputs["0"].shape == (4, 8) and back.grad_outputs["0"].odd == (1, 0)


# ------------------------------------------------------------------ planted faults
#
# model -> fault on one side: the layer where it must be found, and in which phase
PLANTED = {
    "mlp": {"eps": ("norm", "forward"), "bias": ("fc2", "forward"), "activation": ("act2", "forward"),
            "transposed": ("fc2", "forward"), "detached": ("act2", "gradient"), "buffer": ("norm", "buffer")},
    "resnet": {"eps": ("layer2.0.bn2", "forward"), "bias": ("layer3.1.bn1", "forward"),
               "activation": ("layer3.0.relu", "forward"), "transposed": ("layer2.1.conv1", "forward"),
               "detached": ("layer3.0.downsample", "gradient"), "buffer": ("layer4.1.bn1", "buffer")},
    "lstm": {"eps": ("norm", "forward"), "bias": ("lstm", "forward"), "activation": ("act", "forward"),
             "transposed": ("lstm", "forward"), "detached": ("embed", "gradient"), "buffer": ("center", "buffer")},
    "transformer": {"eps": ("encoder.layers.0.norm1", "forward"), "bias": ("encoder.layers.1.linear2", "forward"),
                    "activation": ("encoder.layers.1.dropout", "forward"),
                    "transposed": ("encoder.layers.1.self_attn", "forward"),
                    "detached": ("center", "gradient"), "buffer": ("center", "buffer")}}
FAULTS = [(f"{model}_{fault}", *where) for model, faults in PLANTED.items() for fault, where in faults.items()] + [
    ("mlp_rate", "fc3", "optimizer"), ("cnn_eps", "block1.bn1", "forward"), ("cnn_bias", "block2.conv2", "forward"),
    ("cnn_buffer", "block1.bn2", "buffer"), ("resnet_eval_eps", "layer3.0.downsample.1", "forward"),
    ("transformer_scale", "center", "forward"), ("half_bias", "fc2", "forward"), ("double_bias", "fc2", "forward")]
CLEAN = ["mlp", "resnet", "lstm", "transformer", "cnn", "resnet_eval", "half", "double"]
# The fault is in the forward of this module, before the reported layer, whose inputs therefore
# differ already.
AROUND = {"transformer_activation": "encoder.layers.1", "transformer_scale": "", "mlp_detached": "",
          "resnet_detached": "layer3.0", "lstm_detached": "", "transformer_detached": ""}


def _builder(name):
    return "resnet_eval" if name.startswith("resnet_eval") else name.partition("_")[0]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Returns {name of a model or fault: Comparison}, with one process per side for all of them."""
    names = CLEAN + [f[0] for f in FAULTS]
    jobs = [{"file": MODELS, "builder": _builder(n), "state": None, "inputs": None, "loss": None, "steps": 2,
            "optimizer": "rate" if n == "mlp_rate" else "adam" if "cnn" in n else "sgd",
            "fault": n if n not in CLEAN and n != "mlp_rate" else None, "seed": 0, "dropout": "off", "ops": False,
            "grads": True} for n in names]
    records = compare.run(jobs, str(tmp_path_factory.mktemp("diff")))
    return {n: Comparison(ours, reference, n) for n, (reference, ours) in zip(names, records)}


@pytest.mark.parametrize("model", CLEAN)
def test_clean_models_give_no_alarm(compared, model):
    c = compared[model]
    assert c.ok and c.first_diverging is None, c.table()
    assert len(c.layers) >= 4 and c.grads and len(c.steps) == 2 and "AGREE" in c.table()
    assert max(d for _, d in c.layers) < (0.05 if model == "half" else 1e-12 if model == "double" else 1e-3)


@pytest.mark.parametrize("fault, layer, phase", [pytest.param(*f, id=f[0]) for f in FAULTS])
def test_a_planted_fault_is_found_at_its_layer(compared, fault, layer, phase):
    c = compared[fault]
    assert (c.first_diverging, c.first.phase) == (layer, phase), c.table()
    assert c.first.inputs_differed is (fault in ("transformer_activation", "transformer_scale"))
    assert c.first.around == AROUND.get(fault), c.first.text
    assert c.first.text in c.table() and not c.ok
    expected = {"transformer_scale": "in the forward of (model) (Transformer), after embed, before center",
                "mlp_activation": "act2 (Tanh, in mindtorch Hardtanh) is the first",
                "transformer_transposed": "its out_proj.weight did not start with the same values"}
    assert expected.get(fault, "") in c.first.text


def test_fault_matrix_is_complete():
    assert len(PLANTED) == 4 and sum(map(len, PLANTED.values())) == 24
    assert {frozenset(f) for f in PLANTED.values()} == {frozenset("eps bias activation transposed detached buffer".split())}


# The difference in the calls of one side, and the expected message.
PARTINGS = {
    "order": "at call 3, in the forward of (model) (Calls), real torch calls act1 (ReLU) and mindtorch calls act2 (ReLU)",
    "missing": "at call 4, in the forward of (model) (Calls), real torch calls act2 (ReLU) and mindtorch calls block (Sequential)",
    "times": "at call 5, in the forward of (model) (Calls), real torch calls block (Sequential) and mindtorch calls act2 #2 (ReLU)",
    "nesting": "real torch calls block (Sequential) and mindtorch calls block.0 (Tanh)",
    "extra": "real torch calls torch.cos (torch.cos) and mindtorch calls extra (Identity)",
    "last": "real torch makes no further call and mindtorch calls extra (Identity)",
    "function": "real torch calls torch.cos (torch.cos) and mindtorch calls torch.sin (torch.sin)",
    "outputs": "(model) (Calls) returns 1 tensor (0) in real torch and 2 tensors (0, 1) in mindtorch",
    "mapping": "(model) (Calls) returns 1 tensor (0) in real torch and 1 tensor (a) in mindtorch",
    "shared": "real torch calls act2 (ReLU) and mindtorch calls act1 #2 (ReLU); act2 is a module in real torch only",
    "wrong_before": "mindtorch calls act2 #2 (ReLU); before that, fc1 (Linear) is the first layer whose output differs"}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Returns {fault: the records of the two sides}, with functions recorded too."""
    jobs = [{"file": MODELS, "builder": "calls", "state": None, "inputs": None, "loss": None, "steps": 1, "optimizer": "sgd",
            "fault": f"calls_{n}" if n else None, "seed": 0, "dropout": "off", "ops": True, "grads": True}
            for n in (*PARTINGS, "")]
    return dict(zip((*PARTINGS, ""), compare.run(jobs, str(tmp_path_factory.mktemp("calls")))))


@pytest.mark.parametrize("how", PARTINGS)
def test_first_differing_call_of_the_sides_is_named(records, how):
    reference, ours = records[how]
    with pytest.raises(CompareError, match="do not make the same calls") as e:
        Comparison(ours, reference, how)
    assert PARTINGS[how] in str(e.value) and "\n" not in str(e.value)
    assert ("differs" in str(e.value)) is (how == "wrong_before")
    # The same with the sides swapped.
    with pytest.raises(CompareError, match="do not make the same calls"):
        Comparison(reference, ours, how)
    assert Comparison(ours, ours, how).ok and Comparison(*records[""][::-1], "").ok


def test_command_exits_with_2_if_calls_differ(capsys):
    assert main(["diff", f"{MODELS}:calls", "--fault", "calls_shared"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and PARTINGS["shared"] in said.err


def test_functions_between_modules_are_named_on_demand():
    c = compare_layers(MODELS, "transformer", fault="transformer_scale", ops=True)
    assert c.first_diverging == "Tensor.__mul__" and c.first.inputs_differed, c.table(True)


# ------------------------------------------------------------------ the command
@pytest.mark.parametrize("T", [real, mine], ids=["torch", "mindtorch"])
def test_tensors_stay_elements_while_functions_are_traced(T):
    """Indexing is traced, and torch.tensor accepts a list of 0-dim tensors as without tracing,
    during and after it."""
    seen = []

    def wrap(name, fn):
        def traced(*args, **kwargs):
            seen.append(name)
            return fn(*args, **kwargs)
        return traced
    for _ in range(2):
        undo = activation_recorder.patch(T, wrap)
        try:
            assert T.tensor([T.tensor(1.), T.tensor(2)]).tolist() == [1., 2.]
            assert T.nn.Parameter(T.tensor([1., 2.]))[1].item() == 2 and T.tensor([3, 4])[0].item() == 3
        finally:
            undo()
        assert "Tensor.__getitem__" in seen
        seen.clear()
        assert T.tensor([T.tensor(1.), T.nn.Parameter(T.tensor(2.))]).tolist() == [1., 2.] and T.tensor([3, 4])[1].item() == 4
        assert not seen


def test_command_reports_and_exit_status(process):
    out = process.folder / "report.json"
    done = process.run("-m", "mindtorch", "diff", f"{MODELS}:mlp", "--fault", "mlp_bias", "--json", out)
    assert done.returncode == 1 and "fc2 (Linear) is the first layer whose output differs" in done.stdout, done.stderr
    report = json.loads(out.read_text())
    assert report["first"]["layer"] == "fc2" and report["first"]["inputs_differed"] is False
    assert [c["name"] for c in report["calls"] if c["leaf"]] == ["fc1", "norm", "act1", "fc2", "act2", "fc3"]


@pytest.mark.parametrize("builder, sentence", [
    ("broken", "OSError: the data set is not there"), ("no_module", "must return a torch.nn.Module"),
    ("torch_cannot", "RuntimeError: only mindtorch builds this (_layer_models.py, line "),
    ("facade_cannot", "failed in mindtorch: NotImplementedError: "),
    ("random_each_time", "not deterministic"), ("two_shapes", "is [5, 3] in real torch and [4, 3] in mindtorch"),
    ("two_names", "the builder returns two different models: a.bias only in mindtorch"),
    ("nothing_there", "there is no 'nothing_there'"), ("Counting", "no inputs")])
def test_incomparable_models_print_one_sentence(builder, sentence, capsys):
    assert main(["diff", f"{MODELS}:{builder}"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and sentence in said.err and said.err.startswith("python -m mindtorch diff: ")
    assert said.err.count("\n") == 1 and "Traceback" not in said.err


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize("arguments, sentence", [
    (["--state", "{wrong}"], "size mismatch for fc1.weight"), slow(["--state", "{none}"], "FileNotFoundError"),
    (["--input", "{none}"], "there is no file"), (["--input", MODELS], "is not an .npz file"),
    (["--shape", "3;4"], "invalid shape"), slow(["--shape", "2,5"], "the model's forward failed in real torch: RuntimeError"),
    slow(["--optimizer", "no_such", "--steps", "1"], "there is no 'no_such'"), slow(["--loss", "no_such"], "there is no 'no_such'"),
    (["--steps", "1", "--no-grads"], "steps need gradients"), (["--torch-python", "{none}"], "cannot be run"),
    (["--timeout", "0.01"], "did not finish within 0.01 seconds")])
def test_bad_arguments_print_one_sentence(arguments, sentence, tmp_path, capsys):
    state = net(real).state_dict()
    real.save({"fc1.weight": state["0.weight"]}, tmp_path / "wrong.pth")
    files = {"wrong": tmp_path / "wrong.pth", "none": tmp_path / "none"}
    assert main(["diff", f"{MODELS}:mlp", *(a.format(**files) if "{" in a else a for a in arguments)]) == 2
    said = capsys.readouterr()
    assert sentence in said.err and said.err.count("\n") == 1 and "Traceback" not in said.err, said.err


def test_library_raises_the_errors_of_the_command():
    with pytest.raises(CompareError, match="there is no 'nothing_there'"):
        compare_layers(MODELS, "nothing_there")
    with pytest.raises(CompareError, match="must be a module-level function"):
        compare_layers(lambda: None)


def test_missing_torch_or_file_exits_with_2(process, tmp_path):
    done = process.run("-m", "mindtorch", "diff", "nowhere.py:build")
    assert done.returncode == 2 and "there is no file nowhere.py" in done.stderr and "Traceback" not in done.stderr
    # An interpreter without torch: the current one, with only NumPy as site-packages.
    fake = tmp_path / "python"
    folder = tmp_path / "only_numpy"
    folder.mkdir()
    for entry in pathlib.Path(np.__file__).parent.parent.glob("numpy*"):
        (folder / entry.name).symlink_to(entry)
    import sys
    fake.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} -S "$@"\n')
    fake.chmod(0o755)
    done = process.run("-m", "mindtorch", "diff", f"{MODELS}:mlp", "--torch-python", fake)
    assert done.returncode == 2 and "real torch cannot be imported" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


class _Page(HTMLParser):
    """Checks that tags are balanced, and that nothing outside the file is referenced."""

    VOID = {"meta", "link"}

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.refers = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.refers += [v for k, v in attrs if k in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_data(self, data):
        self.text.append(data)


def test_the_table_on_a_terminal(compared):
    console = pytest.importorskip("rich.console").Console
    from mindtorch.tools.model_diff import report
    for width, name in ((160, "resnet_eps"), (80, "mlp_buffer"), (200, "mlp")):
        c, out = compared[name], io.StringIO()
        report.draw(c, console=console(file=out, width=width, force_terminal=True, color_system="standard"))
        plain = "".join(re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).split())
        for r in c.rows:
            assert not r.leaf or r.name in plain
        words = re.sub("[─│╭╮╰╯]", "", plain)
        assert "".join(c.summary().split()) in words and ("AGREE" if c.ok else "DIFFERENT") in words
        assert ("\x1b[1;31m" in out.getvalue()) is (not c.ok)


@pytest.mark.parametrize("name", ["cnn", "cnn_eps", "mlp_detached", "cnn_buffer"])
def test_page_is_one_valid_file(compared, name, tmp_path):
    c = compared[name]
    c.save(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text("utf-8")
    page = _Page(text)
    assert page.refers == ["data:,"] and "<script" not in text and "$" not in text
    words = "".join(page.text)
    assert c.summary() in words and text.count("<circle") >= len(c.layers) and text.count("<svg") >= 2
    assert ('class="name here"' in text) is (not c.ok)
    c.save(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["ok"] is c.ok
