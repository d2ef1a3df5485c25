"""torch.hub: files and models from a local cache or the network."""
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.request
import zipfile
from urllib.parse import urlparse

from mindtorch.torch import serialization

try:
    from tqdm.auto import tqdm
except ImportError:
    class tqdm:
        """Silent replacement of tqdm's progress bar."""

        def __init__(self, iterable=None, *args, **kwargs):
            self.iterable = iterable

        def __iter__(self):
            return iter(self.iterable)

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            return False

        def update(self, n=1):
            """Does nothing."""

        def close(self):
            """Does nothing."""

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
ENV_TORCH_HOME, ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR = "TORCH_HOME", "XDG_CACHE_HOME", "~/.cache"
READ_DATA_CHUNK = 128 * 1024
_hub_dir = None


def _get_torch_home():
    """Returns PyTorch's cache folder: $TORCH_HOME, else `torch` in $XDG_CACHE_HOME or ~/.cache."""
    default = os.path.join(os.environ.get(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR), "torch")
    return os.path.expanduser(os.environ.get(ENV_TORCH_HOME, default))


def get_dir():
    """Returns the download folder of torch.hub."""
    return _hub_dir if _hub_dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d):
    """Sets the download folder of torch.hub."""
    global _hub_dir
    _hub_dir = os.path.expanduser(d)


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Downloads a URL (file: too) to a file. RuntimeError if its SHA-256 does not start with
    `hash_prefix`."""
    dst = os.path.expanduser(dst)
    request = urllib.request.Request(url, headers={"User-Agent": "torch.hub"})
    with urllib.request.urlopen(request) as source:
        length = source.headers.get("Content-Length")
        # Write to a temporary file and move it, so that an interrupted download leaves nothing
        # behind.
        handle, part = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(dst)), suffix=".partial")
        digest = hashlib.sha256()
        try:
            with os.fdopen(handle, "wb") as f, tqdm(total=length and int(length), disable=not progress, unit="B",
                                                    unit_scale=True) as bar:
                while chunk := source.read(READ_DATA_CHUNK):
                    f.write(chunk)
                    digest.update(chunk)
                    bar.update(len(chunk))
            if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
            shutil.move(part, dst)
        finally:
            if os.path.exists(part):
                os.unlink(part)


def load_state_dict_from_url(url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None,
                             weights_only=False):
    """Loads a checkpoint from a URL with `torch.load`.

    The file is downloaded once and cached in `model_dir` (default: the hub's `checkpoints` folder).
    """
    if model_dir is None:
        model_dir = os.path.join(get_dir(), "checkpoints")
    os.makedirs(model_dir, exist_ok=True)
    name = file_name if file_name is not None else os.path.basename(urlparse(url).path)
    cached = os.path.join(model_dir, name)
    if not os.path.exists(cached):
        sys.stderr.write(f'Downloading: "{url}" to {cached}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, cached, found.group(1) if found else None, progress=progress)
    if zipfile.is_zipfile(cached):
        with zipfile.ZipFile(cached) as z:
            members = z.infolist()
            # A saved model is itself a zip; an archive that only wraps one holds a single file.
            if len(members) == 1:
                # the member's name may point elsewhere; the extracted path does not
                cached = z.extract(members[0], model_dir)
    return serialization.load(cached, map_location=map_location, weights_only=weights_only)


def _hubconf(repo_or_dir, source, name):
    if source != "local":
        raise NotImplementedError(f"torch.hub.{name}: only source='local' is supported; clone {repo_or_dir!r} and pass its folder")
    folder = os.path.expanduser(repo_or_dir)
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("hubconf", os.path.join(folder, "hubconf.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    missing = [p for p in getattr(module, "dependencies", ()) if importlib.util.find_spec(p) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(module, model):
    f = vars(module).get(model)
    if not callable(f):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return f


def load(repo_or_dir, model, *args, source="github", trust_repo=None, force_reload=False, verbose=True,
         skip_validation=False, **kwargs):
    """Calls an entry point of the hubconf.py in a local folder (source='local')."""
    return _entry(_hubconf(repo_or_dir, source, "load"), model)(*args, **kwargs)


def list(github, force_reload=False, skip_validation=False, trust_repo=None, verbose=True):
    """Returns the entry points of the hubconf.py in a folder."""
    module = _hubconf(github, "local" if os.path.isdir(github) else "github", "list")
    return [n for n, f in vars(module).items() if callable(f) and not n.startswith("_")]


def help(github, model, force_reload=False, skip_validation=False, trust_repo=None):
    """Returns the docstring of an entry point of the hubconf.py in a folder."""
    return _entry(_hubconf(github, "local" if os.path.isdir(github) else "github", "help"), model).__doc__
