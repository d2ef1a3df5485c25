"""``python -m mindtorch standin build | run script.py``: runs the npu device without an Ascend
chip.

MindSpore's own Ascend plugin runs on this machine, on a CANN simulator that is compiled once:
kernels are launched, logged, and computed on the host.

    standin build                             compile it (run does so automatically)
    standin run [options] script.py args      the script under `python -m mindtorch run`, on the
                                              simulator
    standin report [--html FILE] launches.log the table of a saved log
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

from mindtorch.tools.standin import _build, _report, _session, limits


def configure(parser):
    """Declares the arguments of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="build|run|report")
    commands.add_parser("build", help="compile the CANN simulator for the installed MindSpore")
    run = commands.add_parser("run", help="run a script on it")
    run.usage = "%(prog)s [options] (-m MODULE | SCRIPT) [ARGS ...]"
    run.add_argument("--log", metavar="FILE", help="file for the log: one JSON object for each launch and copy")
    run.add_argument("--report", action=argparse.BooleanOptionalAction, default=True,
                     help="at the end print launches by kernel, copies by line of the script, and peak memory; makes launches synchronous")
    run.add_argument("--json", metavar="FILE", help="write the report as JSON as well")
    run.add_argument("--html", metavar="FILE", help="write the report as an HTML page, with launches, copies and memory over time")
    run.add_argument("--chip", default=_session.CHIP, help="the chip whose dtypes are accepted: Ascend910A, Ascend910B2, Ascend310P3, ... (default: "
                                                           "%(default)s)")
    run.add_argument("--no-limits", action="store_true", help="accept every dtype")
    run.add_argument("--engine", choices=sorted(_session.ENGINES), default="cpu",
                     help="what computes the launches: mindtorch's cpu device, or real torch (default: %(default)s)")
    run.add_argument("--kernels", action="append", default=[], metavar="FILE",
                     help="Python file executed over the kernel table, to inject a fault (KERNELS, kernel, torch)")
    run.add_argument("--random", choices=("host", "device"), default="host",
                     help="source of random numbers: the host, with a copy, so that losses are comparable for the same seed; or the device's kernels (default: "
                          "%(default)s)")
    run.add_argument("--fail", metavar="WHAT", help="simulate a failure: malloc:2, reject:Mm, launch:Mm:3, copy:4, lost:500")
    run.add_argument("--memory", metavar="SIZE", help="the device's memory, e.g. 64MB (default: 32GB)")
    run.add_argument("--device", metavar="DEVICE", help="the default device for new tensors (for a script without a device option)")
    run.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE ...", help="a module, and its arguments")
    run.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT ...", help="a script, and its arguments")
    report = commands.add_parser("report", help="print the table of a log")
    report.add_argument("log")
    report.add_argument("--html", metavar="FILE", help="write the HTML page as well")
    parser.set_defaults(parser=parser)


def main(args):
    """Runs the command; returns its exit status: the script's, or 1 if the script succeeded but a
    launch failed."""
    try:
        if args.action == "build":
            print(_build.build(lambda text: None))
            return 0
        if args.action == "report":
            try:
                found = _report.read(args.log)
            except OSError as e:
                args.parser.error(f"{args.log} cannot be read: {e.strerror}")
            print(_report.text(found))
            if args.html:
                _writable(args, args.html)
                _page(args.html, args.log, found)
            return 0
        return _run(args)
    except (_build.CannotBuild, _session.CannotRun) as e:
        print(f"python -m mindtorch standin: {e}", file=sys.stderr)
        return 2


def _run(args):
    if not args.script and not args.module:
        args.parser.error("a script, or -m and a module, must be given")
    try:
        limits.chip_of(args.chip)
    except ValueError as e:
        args.parser.error(str(e))
    if args.memory and not re.fullmatch(r"\d+(\.\d+)?(MB|GB)?", args.memory):
        args.parser.error(f"--memory {args.memory}: expected a number followed by MB or GB, such as 64MB")
    for path in filter(None, (args.json, args.html)):
        _writable(args, path)
    with tempfile.TemporaryDirectory(prefix="standin-") as folder:
        log = os.path.abspath(args.log) if args.log else os.path.join(folder, "launches.log")
        _writable(args, log)
        with _session.Machine(args.engine, tuple(args.kernels), lambda text: print(text, file=sys.stderr)) as machine:
            env = machine.environment(log, args.chip, not args.no_limits)
            for name, value in (("FAIL", args.fail), ("MEMORY", args.memory)):
                if value:
                    env["MINDTORCH_STANDIN_" + name] = value
            if args.random == "host":
                env["MINDTORCH_NPU_RANDOM"] = "host"
            if args.report or args.json or args.html:
                env["ASCEND_LAUNCH_BLOCKING"] = "1"
            command = ["--device", args.device] if args.device else []
            command += args.script if not args.module else ["-m", *args.module]
            env["MINDTORCH_STANDIN_RUNNER"] = str(os.getpid())
            status = _run_script([sys.executable, "-m", "mindtorch.tools.standin._inside", *command], env)
            ended = machine.ended()
        found = _report.read(log)
        if args.report:
            print(_report.text(found))
        if args.json:
            with open(args.json, "w") as f:
                json.dump(found.as_dict(), f, indent=1)
        if args.html:
            _page(args.html, log, found)
    message = ended
    if not message and status < 0:
        message = f"the script was ended by signal {-status} ({signal.strsignal(-status)})"
    if not message and not status and found.failed:
        message = found.failed[0]
    if message:
        print(f"python -m mindtorch standin: {message}", file=sys.stderr)
    return 128 - status if status < 0 else status or (1 if message else 0)


def _page(path, log, found):
    from mindtorch.tools.standin import _timeline
    with open(path, "w", encoding="utf-8") as f:
        f.write(_timeline.page(log, found))


def _writable(args, path):
    """Empties a file that will be written; a usage error if that is impossible."""
    try:
        open(path, "w").close()
    except OSError as e:
        args.parser.error(f"{path} cannot be written: {e.strerror}")


def _run_script(command, env):
    """Runs a process and returns its exit status, as subprocess reports it. Ctrl-C reaches the
    process directly, and its handling may take time; other termination signals are forwarded."""
    process = subprocess.Popen(command, env=env)

    def handed_on(number, frame):
        if number != signal.SIGINT:
            process.send_signal(number)
    before = {number: signal.signal(number, handed_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
