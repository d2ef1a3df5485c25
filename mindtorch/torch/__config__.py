"""torch.__config__: build and backend information."""


def show():
    """Returns a one-line description of the backend."""
    from mindtorch.backend.mindspore import runtime
    return f"mindtorch on MindSpore {runtime.ms.__version__}, device target {runtime.target()}"


def parallel_info():
    """Returns a one-line description of the threads in use."""
    from mindtorch.torch import get_num_threads
    return f"threads: {get_num_threads()}"
