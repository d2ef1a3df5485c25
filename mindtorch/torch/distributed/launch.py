"""torch.distributed.launch: the older launcher. Like torch.distributed.run, but also passes
--local-rank to the script."""
import sys
import warnings

from mindtorch.torch.distributed import run as _run


def parse_args(args=None):
    """Parses torchrun's arguments and --use_env."""
    parser = _run.get_args_parser()
    parser.add_argument("--use-env", "--use_env", dest="use_env", action="store_true",
                        help="do not pass --local-rank: the script reads LOCAL_RANK")
    return parser.parse_args(args)


def main(args=None):
    """Starts the script."""
    warnings.warn("torch.distributed.launch is deprecated; use torch.distributed.run (torchrun), and read LOCAL_RANK from the "
                  "environment", FutureWarning, stacklevel=2)
    args = parse_args(args)
    if not args.use_env:
        # The local rank is known only in each worker, from its environment.
        code = ("import os, sys; sys.argv[1:] = [*sys.argv[1:2 + (sys.argv[1] == '-m')], '--local-rank=' + os.environ['LOCAL_RANK'], "
                "*sys.argv[2 + (sys.argv[1] == '-m'):]]; from mindtorch.__main__ import main; sys.exit(main(['run', *sys.argv[1:]]))")
        job = _run.job_from_args(args)
        at = job.command.index("-m")
        job.command[at:at + 3] = ["-c", code]
        return _launch(job)
    return _launch(_run.job_from_args(args))


def _launch(job):
    try:
        _run.Agent(job).run()
    except _run.WorkersFailed as e:
        print(e, file=sys.stderr)
        sys.exit(1)
    except _run.Stopped as e:
        print(e, file=sys.stderr)
        sys.exit(128 + e.number)


if __name__ == "__main__":
    main()
