"""torch._subclasses.functional_tensor: placeholders. Functional tensors exist only inside
torch.func.functionalize."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "use torch.func.functionalize", "", "FunctionalTensor FunctionalTensorMode")


def mb_unwrap_functional_tensor(tensor):
    """Returns the tensor unchanged: it is never a functional tensor."""
    return tensor
