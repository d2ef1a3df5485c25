"""``python -m mindtorch standin build | run | compare script.py``: runs the npu device without an Ascend
chip.

MindSpore's own Ascend plugin runs on this machine, on a CANN simulator that is compiled once:
kernels are launched, logged, and computed on the host.

    standin build                             compile it (run does so automatically)
    standin run [options] script.py args      the script under `python -m mindtorch run`, on the
                                              simulator
    standin compare [options] script.py args  the script under mindtorch and under torch_npu
    standin report [--html FILE] launches.log the table of a saved log
"""
import argparse
import json
import os
import re
import sys
import tempfile

from mindtorch.tools.standin import _build, _compare, _plugins, _report, _running, _session, limits


def configure(parser):
    """Declares the arguments of the command."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="build|run|compare|report")
    build = commands.add_parser("build", help="compile the CANN simulator for the installed MindSpore, or for torch_npu")
    build.add_argument("--library", choices=_plugins.PLUGINS, default="mindspore", help="the plugin that runs on it (default: %(default)s)")
    run = commands.add_parser("run", help="run a script on it")
    run.usage = "%(prog)s [options] (-m MODULE | SCRIPT) [ARGS ...]"
    run.add_argument("--library", choices=_plugins.PLUGINS, default="mindspore",
                     help="mindspore: the script runs under mindtorch; torch_npu: under real torch with torch_npu, from the folder that "
                          "MINDTORCH_TORCH_NPU names (default: %(default)s)")
    run.add_argument("--log", metavar="FILE", help="file for the log: one JSON object for each launch and copy")
    run.add_argument("--report", action=argparse.BooleanOptionalAction, default=True,
                     help="at the end print launches by kernel, copies by line of the script, and peak memory; makes launches synchronous")
    run.add_argument("--json", metavar="FILE", help="write the report as JSON as well")
    run.add_argument("--html", metavar="FILE", help="write the report as an HTML page, with launches, copies and memory over time")
    run.add_argument("--random", choices=("host", "device"),
                     help="source of random numbers: the host, with a copy, so that losses are comparable for the same seed; or the device's kernels (default: "
                          "host; of torch_npu: always the device)")
    _add_options(run)
    compare = commands.add_parser("compare", help="run a script on it under mindtorch and under torch_npu, and compare")
    compare.usage = "%(prog)s [options] (-m MODULE | SCRIPT) [ARGS ...]"
    compare.add_argument("--json", metavar="FILE", help="write the comparison as JSON as well")
    compare.add_argument("--logs", metavar="FOLDER", help="keep the two logs in this folder")
    compare.set_defaults(random="device")
    _add_options(compare)
    report = commands.add_parser("report", help="print the table of a log")
    report.add_argument("log")
    report.add_argument("--html", metavar="FILE", help="write the HTML page as well")
    parser.set_defaults(parser=parser)


def _add_options(run):
    """Declares the options and arguments that `run` and `compare` share."""
    run.add_argument("--chip", default=_session.CHIP, help="the chip whose dtypes are accepted: Ascend910A, Ascend910B2, Ascend310P3, ... (default: "
                                                           "%(default)s)")
    run.add_argument("--no-limits", action="store_true", help="accept every dtype")
    run.add_argument("--engine", choices=sorted(_session.ENGINES), default="cpu",
                     help="what computes the launches: mindtorch's cpu device, or real torch (default: %(default)s)")
    run.add_argument("--no-compute", action="store_true", help="log launches without computing them: results are undefined, and wall time is host time")
    run.add_argument("--kernels", action="append", default=[], metavar="FILE",
                     help="Python file executed over the kernel table, to inject a fault (KERNELS, kernel, torch)")
    run.add_argument("--fail", metavar="WHAT", help="simulate a failure: malloc:2, reject:Mm, launch:Mm:3, copy:4, lost:500")
    run.add_argument("--memory", metavar="SIZE", help="the device's memory, e.g. 64MB (default: 32GB)")
    run.add_argument("--device", metavar="DEVICE", help="the default device for new tensors (for a script without a device option)")
    run.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE ...", help="a module, and its arguments")
    run.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT ...", help="a script, and its arguments")


def main(args):
    """Runs the command; returns its exit status: the script's, or 1 if the script succeeded but a
    launch failed."""
    try:
        if args.action == "build":
            print(_build.build(lambda text: None, _plugins.PLUGINS[args.library]))
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
        _check(args)
        return _run(args) if args.action == "run" else _compare.main(args)
    except (_build.CannotBuild, _session.CannotRun) as e:
        print(f"python -m mindtorch standin: {e}", file=sys.stderr)
        return 2


def _check(args):
    """Ends with a usage error if arguments of `run` or `compare` are invalid."""
    if not args.script and not args.module:
        args.parser.error("a script, or -m and a module, must be given")
    try:
        limits.chip_of(args.chip)
    except ValueError as e:
        args.parser.error(str(e))
    if args.memory and not re.fullmatch(r"\d+(\.\d+)?(MB|GB)?", args.memory):
        args.parser.error(f"--memory {args.memory}: expected a number followed by MB or GB, such as 64MB")


def _run(args):
    plugin = _plugins.PLUGINS[args.library]
    if plugin is _plugins.REFERENCE and args.random == "host":
        args.parser.error("--random host: torch_npu draws random numbers on the device")
    for path in filter(None, (args.json, args.html)):
        _writable(args, path)
    with tempfile.TemporaryDirectory(prefix="standin-") as folder:
        log = os.path.abspath(args.log) if args.log else os.path.join(folder, "launches.log")
        _writable(args, log)
        variables = {"ASCEND_LAUNCH_BLOCKING": "1"} if args.report or args.json or args.html else {}
        outcome = _running.run(args, plugin, log, variables)
        found = _report.read(log)
        if args.report:
            print(_report.text(found))
        if args.json:
            with open(args.json, "w") as f:
                json.dump(found.as_dict(), f, indent=1)
        if args.html:
            _page(args.html, log, found)
    message = outcome.failure(found.failed)
    if message:
        print(f"python -m mindtorch standin: {message}", file=sys.stderr)
    return outcome.exit_status(found.failed)


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
