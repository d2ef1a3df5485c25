"""torch._subclasses.fake_tensor."""
from mindtorch.torch._refusing import refuse


def is_fake(x):
    """False: there are no fake tensors."""
    return False


refuse(globals(), "use the meta device", "", "FakeTensor FakeTensorMode")
