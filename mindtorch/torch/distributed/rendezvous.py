"""torch.distributed.rendezvous: how the processes of a job find their store (env://,
tcp://host:port, file:///path)."""
import os
import urllib.parse
import zlib

from mindtorch.backend.comm.store import FileStore, PrefixStore
from mindtorch.backend.comm.tcpstore import TCPStore
from mindtorch.torch.distributed.constants import default_pg_timeout

__all__ = ["register_rendezvous_handler", "rendezvous"]

_handlers = {}

# Names of rank, world size and master address in other launchers: Open MPI's mpirun and similar
# ones, and MindSpore's msrun.
_OTHER = {"RANK": ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MS_NODE_ID", "RANK_ID"),
          "WORLD_SIZE": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MS_WORKER_NUM", "RANK_SIZE"),
          "LOCAL_RANK": ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "DEVICE_ID"),
          "LOCAL_WORLD_SIZE": ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"),
          "MASTER_ADDR": ("MS_SCHED_HOST",), "MASTER_PORT": ("MS_SCHED_PORT",)}


def environment(name):
    """Returns a torchrun variable, or another launcher's equivalent. None if neither is set."""
    for key in (name, *_OTHER.get(name, ())):
        if os.environ.get(key):
            return os.environ[key]
    if name in ("MASTER_ADDR", "MASTER_PORT") and _mpirun_here():
        return "127.0.0.1" if name == "MASTER_ADDR" else str(_port_of_job())
    return None


def _mpirun_here():
    """True if mpirun started all processes of the job on this machine."""
    size = os.environ.get("OMPI_COMM_WORLD_SIZE")
    return size is not None and size == os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")


def _all_here():
    """True if the launcher reports that it started all processes of the job on this machine."""
    size = environment("WORLD_SIZE")
    return size is not None and size == environment("LOCAL_WORLD_SIZE")


def _port_of_job():
    """Returns a port that all processes of one mpirun derive identically, from the name of the job.
    """
    name = os.environ.get("PMIX_NAMESPACE") or os.environ.get("OMPI_MCA_ess_base_jobid") or str(os.getppid())
    return 20000 + zlib.crc32(name.encode()) % 10000


def register_rendezvous_handler(scheme, handler):
    """Registers a handler for URLs of a scheme: `handler(url, timeout=..., **kwargs)` yields
    (store, rank, world_size)."""
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url, rank=-1, world_size=-1, **kwargs):
    """Returns an iterator of (store, rank, world_size) for a URL. `rank` and `world_size` override
    those in its query."""
    if not isinstance(url, (str, bytes)):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    if not isinstance(rank, int):
        raise RuntimeError(f"`rank` must be an integer. {rank}")
    if not isinstance(world_size, int):
        raise RuntimeError(f"`world_size` must be an integer. {world_size}")
    scheme = urllib.parse.urlparse(url).scheme
    if scheme not in _handlers:
        raise RuntimeError(f"No rendezvous handler for {scheme}://")
    return _handlers[scheme](url, rank=rank, world_size=world_size, **kwargs)


def _query(result, rank, world_size):
    query = dict(urllib.parse.parse_qsl(result.query))
    if rank == -1 and "rank" in query:
        rank = int(query["rank"])
    if world_size == -1 and "world_size" in query:
        world_size = int(query["world_size"])
    return rank, world_size


# a store's server lives as long as its process, so that a second init_process_group finds it
_kept = []


def _tcp_store(host, port, rank, timeout):
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(host, port, None, rank == 0 and not agent, timeout, multi_tenant=True, _all_here=_all_here())
    if store._server is not None:
        _kept.append(store)
    if agent:
        return PrefixStore(f"worker/attempt_{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    return store


def _of_file(url, timeout=default_pg_timeout, rank=-1, world_size=-1, **kwargs):
    result = urllib.parse.urlparse(url)
    rank, world_size = _query(result, rank, world_size)
    if not result.path:
        raise _error("file://", "path missing")
    if rank == -1:
        raise _error("file://", "rank parameter missing")
    if world_size == -1:
        raise _error("file://", "world size parameter missing")
    yield FileStore(urllib.parse.unquote(result.path), world_size), rank, world_size
    raise RuntimeError("Unable to perform rerendezvous using file:// method")


def _of_tcp(url, timeout=default_pg_timeout, rank=-1, world_size=-1, **kwargs):
    result = urllib.parse.urlparse(url)
    rank, world_size = _query(result, rank, world_size)
    if result.port is None:
        raise _error("tcp://", "port number missing")
    if rank == -1:
        raise _error("tcp://", "rank parameter missing")
    if world_size == -1:
        raise _error("tcp://", "world size parameter missing")
    if not result.hostname:
        raise ValueError("hostname cannot be None")
    yield _tcp_store(result.hostname, result.port, rank, timeout), rank, world_size
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method")


def _of_environment(url, timeout=default_pg_timeout, rank=-1, world_size=-1, **kwargs):
    rank, world_size = _query(urllib.parse.urlparse(url), rank, world_size)

    def need(name):
        value = environment(name)
        if not value:
            raise _error("env://", f"environment variable {name} expected, but not set")
        return value
    rank = int(need("RANK")) if rank == -1 else rank
    world_size = int(need("WORLD_SIZE")) if world_size == -1 else world_size
    host, port = need("MASTER_ADDR"), int(need("MASTER_PORT"))
    yield _tcp_store(host, port, rank, timeout), rank, world_size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


def _error(scheme, text):
    return ValueError(f"Error initializing torch.distributed using {scheme} rendezvous: {text}")


register_rendezvous_handler("tcp", _of_tcp)
register_rendezvous_handler("env", _of_environment)
register_rendezvous_handler("file", _of_file)
