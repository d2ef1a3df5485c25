"""`mindtorch run` in a terminal: output appears as without it, including bars, colors, warnings and
Ctrl-C; slow first-time steps are reported once."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from mindtorch.backend import progress

RUN = "-m", "mindtorch", "run"
pytestmark = pytest.mark.timeout(120)


def in_its_terminal():
    """Runs before the command: makes the streams its controlling terminal and lets Ctrl-C end it (a
    test runner in the background may ignore it)."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A process whose standard streams are a terminal; `seen` is [(seconds, bytes)] in order of
    arrival."""

    def __init__(self, process, *args, env=None):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        variables = {k: v for k, v in os.environ.items() if not k.startswith(("MINDTORCH_", "PYTHON"))}
        variables.update({"PYTHONPATH": str(progress.__file__).rpartition("/mindtorch/")[0], "MINDTORCH_PROGRESS": "0", "TERM": "xterm", "COLUMNS": "80", **(env or {})})
        self.child = subprocess.Popen([sys.executable, *map(str, args)], stdin=slave, stdout=slave, stderr=slave, cwd=process.folder, env=variables, start_new_session=True,
                                      preexec_fn=in_its_terminal)
        os.close(slave)
        self.seen = []

    def read(self, until=None, patience=100):
        """Returns everything shown up to a text, or to the end."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if until is not None and until in self.text:
                return self.text
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    data = os.read(self.master, 65536)
                except OSError:  # the other side is closed
                    data = b""
                if not data:
                    break
                self.seen.append((time.monotonic(), data))
        assert until is None or until in self.text, self.text
        return self.text

    @property
    def text(self):
        return b"".join(d for _, d in self.seen).decode()

    def end(self):
        text = self.read()
        status = self.child.wait(20)
        os.close(self.master)
        return text, status


def both(process, script, **options):
    """Returns (text, status) in a terminal for the plain interpreter and for `run`."""
    return [Terminal(process, *command, script, **options).end() for command in ((), RUN)]


SHOWS = """
    import logging, sys, warnings
    print("tty", [s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)], sys.stdout.line_buffering)
    for k in range(4):
        print(f"\\rstep {k}/3", end="", flush=True)
    print("\\n\\x1b[32mgreen\\x1b[0m")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    logging.info("epoch 1")
    warnings.warn("careful")
    sys.stderr.write("no newline")
    sys.stderr.flush()
    sys.exit(3)
"""


def test_terminal_output_matches_the_interpreter(process):
    script = process.file("show.py", SHOWS)
    plain, ours = both(process, script)
    assert ours == plain and plain[1] == 3
    assert "tty [True, True, True] True" in plain[0] and "\rstep 3/3" in plain[0] and "careful" in plain[0]


def test_progress_bar_updates_during_training(process):
    pytest.importorskip("tqdm")
    script = process.file("bar.py", """
        import time
        import torch
        from tqdm import tqdm
        w = torch.ones(2, requires_grad=True)
        for k in tqdm(range(5), mininterval=0, ascii=True, desc="train"):
            (w * w).sum().backward()
            time.sleep(0.3)
        print("grad", w.grad.tolist())
    """)
    shell = Terminal(process, *RUN, script)
    text, status = shell.end()
    assert status == 0 and "grad [10.0, 10.0]" in text
    assert list(dict.fromkeys(re.findall(r"\rtrain:\s+(\d+)%", text))) == ["0", "20", "40", "60", "80", "100"]
    times = [t for t, data in shell.seen if b"train:" in data]
    assert len(times) >= 4 and times[-1] - times[0] > 0.8  # while it runs, not at the end


def test_pipes_receive_lines_when_flushed(process):
    script = process.file("lines.py", """
        import sys, time
        import torch
        for k in range(3):
            print("out", k, flush=True)
            print("err", k, file=sys.stderr)
            time.sleep(0.3)
    """)
    env = {**os.environ, "PYTHONPATH": str(progress.__file__).rpartition("/mindtorch/")[0]}
    child = subprocess.Popen([sys.executable, *RUN, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    times = []
    for line in child.stdout:
        times.append((time.monotonic(), line))
    said = child.stderr.read()
    child.stderr.close()
    child.stdout.close()
    assert child.wait() == 0 and [x for _, x in times] == [b"out 0\n", b"out 1\n", b"out 2\n"] and said == b"err 0\nerr 1\nerr 2\n"
    assert times[2][0] - times[0][0] > 0.4


@pytest.mark.parametrize("caught", [False, True])
def test_ctrl_c_reaches_the_script(process, caught):
    script = process.file("wait.py", f"""
        import time
        import torch
        try:
            print("ready", flush=True)
            while True:
                torch.ones(10).sum()
                time.sleep(0.05)
        except {'KeyboardInterrupt' if caught else 'ZeroDivisionError'}:
            print("saved")
    """)
    shell = Terminal(process, *RUN, script)
    shell.read("ready")
    os.write(shell.master, b"\x03")
    text, status = shell.end()
    assert (status, "saved" in text) == ((0, True) if caught else (-signal.SIGINT, False))
    assert ("KeyboardInterrupt" in text) is not caught and "mindtorch/tools" not in text


def test_a_signal_ends_the_script(process):
    script = process.file("wait.py", "import time\nimport torch\nprint('ready', flush=True)\ntime.sleep(60)\n")
    shell = Terminal(process, *RUN, script)
    shell.read("ready")
    shell.child.send_signal(signal.SIGTERM)
    assert shell.end()[1] == -signal.SIGTERM


# ---------------------------------------------------------------- slow first-time steps
SLOW = """
    import pathlib
    from mindtorch.backend.c_kernels import build
    pathlib.Path("tiny.c").write_text("int one(void) { return 1; }")
    print(build.load("tiny.c").one())
"""
COMPILER = "#!/bin/sh\nsleep 2\nexec cc \"$@\"\n"


@pytest.fixture
def slow_compiler(process):
    path = process.folder / "slow-cc"
    path.write_text(COMPILER)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("after, times", [("0.5", 1), ("0", 0), ("60", 0)])
def test_slow_compiler_is_reported_once(process, slow_compiler, after, times):
    process.file("slow.py", SLOW)
    env = {"MINDTORCH_PROGRESS": after, "CC": slow_compiler, "MINDTORCH_CACHE": str(process.folder / "cache")}
    text, status = Terminal(process, *RUN, "slow.py", env=env).end()
    assert status == 0 and "1\r\n" in text
    assert text.count("mindtorch: compiling kernels in C, once on this machine") == times
    if times:
        assert "\r\x1b[Kmindtorch: " in text
        again, _ = Terminal(process, *RUN, "slow.py", env=env).end()
        assert again == "1\r\n"  # the cache contains the kernels


def test_progress_line_in_a_pipe_has_no_control_characters(process, slow_compiler):
    process.file("slow.py", SLOW)
    done = process.run(*RUN, "slow.py", env={"MINDTORCH_PROGRESS": "0.5", "CC": slow_compiler, "MINDTORCH_CACHE": str(process.folder / "cache")})
    assert done.stdout == "1\n" and re.fullmatch(r"mindtorch: compiling kernels in C, once on this machine \(.*cache\)\n", done.stderr), done.stderr


@pytest.mark.slow
def test_slow_graph_compilation_is_reported_once(process):
    process.file("graph.py", """
        import torch
        net = torch.nn.Sequential(*[m for _ in range(12) for m in (torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))])
        step = torch.compile(lambda x: net(x).square().mean())
        for n in (3, 3, 3, 4, 4, 4):
            loss = step(torch.ones(n, 8)).item()
        print("done")
    """)
    done = process.run(*RUN, "--device", "npu", "graph.py", env={"MINDTORCH_PROGRESS": "0.05", "MINDTORCH_NPU": "cpu"})
    assert done.stdout == "done\n" and done.stderr.count("mindtorch: MindSpore compiles a graph of torch.compile") == 1, done.stderr


def test_quick_steps_are_not_reported(capsys, monkeypatch):
    monkeypatch.setenv("MINDTORCH_PROGRESS", "0.3")
    monkeypatch.setattr(progress, "_notified", set())
    with progress.notify_if_slow("something quick"):
        pass
    with pytest.raises(ZeroDivisionError), progress.notify_if_slow("something that fails"):
        raise ZeroDivisionError
    time.sleep(0.5)
    for _ in range(2):
        with progress.notify_if_slow("something slow"):
            time.sleep(0.5)
    assert capsys.readouterr().err == "mindtorch: something slow\n"
    monkeypatch.setenv("MINDTORCH_PROGRESS", "nonsense")
    assert progress.seconds() == progress.SECONDS
