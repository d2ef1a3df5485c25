"""torch._subclasses.functional_tensor: names; there are no functional tensors outside of torch.func.functionalize."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "use torch.func.functionalize", "", "FunctionalTensor FunctionalTensorMode")


def mb_unwrap_functional_tensor(tensor):
    """The tensor itself, which is no functional one."""
    return tensor
