"""torch._subclasses.fake_tensor."""
import contextlib

from mindtorch.torch._refusing import refuse


def is_fake(x):
    """False: there are no fake tensors."""
    return False


@contextlib.contextmanager
def unset_fake_temporarily():
    """No mode of fake tensors is on, inside as outside."""
    yield None


refuse(globals(), "use the meta device", "", "FakeTensor FakeTensorMode FakeTensorConverter")
