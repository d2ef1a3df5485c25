"""parallelize_module: applies styles to submodules by name."""
import fnmatch
import warnings

from mindtorch.torch.distributed.device_mesh import current_mesh
from mindtorch.torch.distributed.tensor.parallel.style import ParallelStyle

__all__ = ["parallelize_module"]


def parallelize_module(module, device_mesh=None, parallelize_plan=None, *, src_data_rank=0):
    """Parallelizes a module in place with one style, or its submodules with a dict of styles. Names
    may contain `*` and `?`."""
    mesh = device_mesh or current_mesh()
    if mesh.ndim != 1:
        raise NotImplementedError(f"parallelize_module on a mesh of {mesh.ndim} dimensions is not supported: pass a 1-D slice of it")
    if parallelize_plan is None:
        warnings.warn("No parallelize_plan is provided and auto-parallel is not supported at the moment, so this parallelize_module "
                      "call will do nothing.", stacklevel=2)
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, {type(parallelize_plan)} found!")
    for path, style in parallelize_plan.items():
        if path == "":
            parallelize_module(module, mesh, style, src_data_rank=src_data_rank)
            continue
        first, _, rest = path.partition(".")
        found = [c for n, c in module.named_children() if fnmatch.fnmatch(n, first)]
        if not found:
            warnings.warn(f"Parallelize plan key '{first}' could not be resolved: no submodule matching token '{first}' in module "
                          f"{module}, skipping this plan entry.", stacklevel=2)
        for child in found:
            parallelize_module(child, mesh, {rest: style} if rest else style, src_data_rank=src_data_rank)
    return module
