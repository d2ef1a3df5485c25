"""torch.utils.collect_env: environment information for bug reports; run `python -m
torch.utils.collect_env`."""
import platform
import sys
from collections import namedtuple

SystemEnv = namedtuple("SystemEnv", ["torch_version", "mindspore_version", "device_target", "python_version", "os", "numpy_version"])


def get_env_info():
    """Returns the versions of the relevant software."""
    import numpy

    from mindtorch.backend.mindspore import runtime
    from mindtorch.torch import version

    return SystemEnv(version.__version__, runtime.ms.__version__, runtime.target(), sys.version.replace("\n", " "),
                     platform.platform(), numpy.__version__)


def get_pretty_env_info():
    """Formats `get_env_info()` with one line per field."""
    return "\n".join(f"{k}: {v}" for k, v in get_env_info()._asdict().items())


def main():
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
