"""README's main example: the digits example learns, and prints PyTorch's losses."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "examples" / "digits.py"


def lines(*command):
    p = subprocess.run([sys.executable, *command, str(SCRIPT), "--no-progress", "--epochs", "5"], cwd=ROOT, text=True,
                       capture_output=True, timeout=110)
    assert p.returncode == 0, p.stderr[-2000:]
    losses = [float(x) for x in re.findall(r"loss (\d+\.\d+)", p.stdout)]
    return losses, float(re.search(r"final test accuracy (\d+\.\d+)%", p.stdout).group(1))


def test_digits_reach_97_percent_with_torchs_losses():
    losses, accuracy = lines("-m", "mindtorch", "run")
    wanted, _ = lines()
    assert len(losses) == 5
    assert accuracy >= 97.0
    for got, want in zip(losses, wanted):
        assert abs(got - want) <= 2e-3, (losses, wanted)


def test_script_says_nothing_of_mindspore_in_code():
    code = SCRIPT.read_text().split('"""', 2)[2]
    assert "mind" not in code.lower()
