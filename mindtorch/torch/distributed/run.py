"""torch.distributed.run (torchrun): starts a script in several processes, on one machine or
several.

    python -m mindtorch.torch.distributed.run --nproc_per_node 2 script.py ARGS
    python -m mindtorch run -m torch.distributed.run --nproc_per_node 2 script.py ARGS

The script runs as under ``python -m mindtorch run``: an unmodified PyTorch script imports mindtorch
as `torch`, and in a script that enables mindtorch itself it is already enabled. Every process gets
torchrun's environment variables (RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR ...).
"""
import argparse
import os
import socket
import sys

from mindtorch.backend.comm.launch_agent import Agent, Job, Stopped, WorkersFailed, new_run_id
from mindtorch.core.device import device as _device

DEFAULT_PORT = 29500


def get_args_parser():
    """Returns the parser of torchrun's arguments."""
    p = argparse.ArgumentParser(prog="torchrun", description="Start a script in several processes that train together.",
                                allow_abbrev=False)

    def add(name, **kwargs):
        names = [f"--{name}", f"--{name.replace('_', '-')}"] if "_" in name else [f"--{name}"]
        p.add_argument(*names, dest=name, **kwargs)
    add("nnodes", default="1:1", help="number of machines, or MIN:MAX (equal)")
    add("nproc_per_node", default="1", help="processes on this machine: a number, auto, cpu or gpu")
    add("rdzv_backend", default="static", help="static: ranks of machines by --node_rank; c10d: in the order of arrival")
    add("rdzv_endpoint", default="", help="host:port of the rendezvous")
    add("rdzv_id", default="none", help="name of this run")
    add("rdzv_conf", default="", help="further rendezvous options: key=value,... (join_timeout)")
    add("standalone", action="store_true", help="one machine, on a free port")
    add("max_restarts", type=int, default=0, help="maximum number of restarts of all processes after a failure")
    add("monitor_interval", type=float, default=0.1, help="seconds between two checks of the processes")
    add("start_method", default="spawn", choices=["spawn", "fork", "forkserver"], help="accepted; every process is started as a new interpreter")
    add("event_log_handler", default="null", help="accepted and ignored")
    add("role", default="default", help="role name of the processes, set in ROLE_NAME and prefixed to their output")
    p.add_argument("-m", "--module", action="store_true", help="the script is the name of a module")
    add("no_python", action="store_true", help="the script is an executable")
    add("run_path", action="store_true", help="accepted: scripts are run by their path")
    add("log_dir", default=None, help="folder for the processes' output")
    p.add_argument("-r", "--redirects", default="0", help="output that is redirected to files: 0 none, 1 stdout, 2 stderr, 3 both, or 0:3,1:0")
    p.add_argument("-t", "--tee", default="0", help="output that is written to files and also shown")
    add("local_ranks_filter", default="", help="local ranks whose output is shown: 0,1")
    add("duplicate_stdout_filters", default="", help="accepted and ignored")
    add("duplicate_stderr_filters", default="", help="accepted and ignored")
    add("node_rank", type=int, default=0, help="rank of this machine")
    add("master_addr", default="127.0.0.1", help="address of the machine of rank 0")
    add("master_port", type=int, default=None, help="port on the machine of rank 0")
    add("local_addr", default=None, help="address of this machine, as others reach it")
    add("logs_specs", default=None, help="not supported")
    add("numa_binding", default=None, help="not supported")
    add("signals_to_handle", default="SIGTERM,SIGINT,SIGHUP,SIGQUIT", help="signals that end all processes")
    add("shutdown_timeout", type=int, default=None, help="seconds between terminating a process and killing it")
    add("virtual_local_rank", action="store_true", help="LOCAL_RANK is 0 in every process")
    p.add_argument("training_script", help="the script")
    p.add_argument("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    return p


def parse_args(args=None):
    """Parses the arguments. An environment variable PET_NAME is the default of --name."""
    parser = get_args_parser()
    for action in parser._actions:
        given = os.environ.get(f"PET_{action.dest.upper()}")
        if given is not None and action.dest != "help":
            action.default = given == "1" if isinstance(action.default, bool) else given
    return parser.parse_args(args)


def parse_min_max_nnodes(nnodes):
    """Parses '2' or '1:4' into (min, max)."""
    parts = [int(n) for n in nnodes.split(":")]
    if len(parts) not in (1, 2):
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    return parts[0], parts[-1]


def determine_local_world_size(nproc_per_node):
    """Returns the number of processes for a number, 'auto', 'cpu' or 'gpu'."""
    try:
        return int(nproc_per_node)
    except ValueError:
        pass
    if nproc_per_node not in ("auto", "cpu", "gpu", "npu"):
        raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}")
    if nproc_per_node != "cpu" and _device.accelerator():
        from mindtorch.torch.cuda import device_count

        return device_count()
    if nproc_per_node in ("gpu", "npu"):
        raise ValueError("Cuda is not available.")
    return os.cpu_count()


def _which_streams(text):
    """Parses '3' into {None: 3} and '0:3,1:0' into {0: 3, 1: 0}."""
    result = {}
    for part in text.split(","):
        rank, colon, value = part.rpartition(":")
        if value not in ("0", "1", "2", "3"):
            raise ValueError(f"{text} is not one of 0, 1, 2, 3 or RANK:VALUE,...")
        result[int(rank) if colon else None] = int(value)
    return result


def _is_here(host):
    if host in ("localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn()):
        return True
    try:
        addresses = {a[4][0] for a in socket.getaddrinfo(host, None)}
        own = {a[4][0] for a in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        return False
    if addresses & own:
        return True
    for address in addresses:  # an address that can be bound belongs to this machine
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as s:
            try:
                s.bind((address, 0))
                return True
            except OSError:
                continue
    return False


def command(args):
    """Returns the worker's command line."""
    if args.no_python:
        if args.module:
            raise ValueError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
        return [args.training_script, *args.training_script_args]
    module = ["-m"] if args.module else []
    return [os.environ.get("PYTHON_EXEC", sys.executable), "-u", "-m", "mindtorch", "run", *module, args.training_script,
            *args.training_script_args]


def job_from_args(args):
    """Returns the launch agent's Job."""
    for name in ("logs_specs", "numa_binding"):
        if getattr(args, name):
            raise NotImplementedError(f"torch.distributed.run: --{name} is not supported")
    least, most = parse_min_max_nnodes(args.nnodes)
    if least != most:
        raise NotImplementedError(f"torch.distributed.run: --nnodes {args.nnodes}: a variable number of machines is not "
                                  "supported; pass a single number")
    if args.rdzv_backend not in ("static", "c10d"):
        raise NotImplementedError(f"torch.distributed.run: --rdzv_backend {args.rdzv_backend} is not supported; use static or c10d")
    conf = dict(c.split("=", 1) for c in args.rdzv_conf.split(",") if c)
    host, port, node_rank, serve, run_id = args.master_addr, args.master_port, args.node_rank, None, args.rdzv_id
    if args.standalone:
        host, port, node_rank, run_id, most = "localhost", 0, 0, new_run_id(), 1
    elif args.rdzv_endpoint:
        host, _, text = args.rdzv_endpoint.rpartition(":") if ":" in args.rdzv_endpoint else (args.rdzv_endpoint, "", "")
        port = int(text) if text else DEFAULT_PORT
        if args.rdzv_backend == "c10d":
            serve = conf["is_host"].lower() in ("1", "true", "t", "yes", "y") if "is_host" in conf else _is_here(host)
            node_rank = -1 if most > 1 else 0
    elif args.rdzv_backend == "c10d" and most > 1:
        raise ValueError("--rdzv_backend c10d needs --rdzv_endpoint host:port")
    if port is None:
        port = 0 if most == 1 else DEFAULT_PORT
    # callers that build `args` without our parser may pass strings
    port, node_rank = int(port), int(node_rank)
    shown = {int(r) for r in args.local_ranks_filter.split(",") if r} or None
    env = {"MINDTORCH_HOST_ADDRESS": args.local_addr} if args.local_addr else {}
    return Job(command(args), determine_local_world_size(args.nproc_per_node), most, node_rank, host, port, serve, run_id,
               args.role, args.max_restarts, args.monitor_interval, args.log_dir, _which_streams(args.redirects),
               _which_streams(args.tee), shown, args.virtual_local_rank, float(conf.get("join_timeout", 900)),
               30.0 if args.shutdown_timeout is None else float(args.shutdown_timeout),
               tuple(args.signals_to_handle.split(",")), env)


def run(args):
    """Starts the job described by the parsed arguments. ChildFailedError if a process fails."""
    Agent(job_from_args(args)).run()


def main(args=None):
    """Runs torchrun. Exits with status 1 if a process fails."""
    try:
        run(parse_args(args))
    except WorkersFailed as e:
        print(e, file=sys.stderr)
        sys.exit(1)
    except Stopped as e:
        print(e, file=sys.stderr)
        sys.exit(128 + e.number)


if __name__ == "__main__":
    main()
