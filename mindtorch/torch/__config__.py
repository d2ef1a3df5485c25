"""torch.__config__: how this torch was built."""


def show():
    """A line of text about the backend."""
    from mindtorch.backend.mindspore import runtime
    return f"mindtorch on MindSpore {runtime.ms.__version__}, device target {runtime.target()}"


def parallel_info():
    """A line of text about threads."""
    from mindtorch.torch import get_num_threads
    return f"threads: {get_num_threads()}"
