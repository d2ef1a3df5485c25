"""torch._subclasses.fake_tensor."""
import contextlib

from mindtorch.torch._refusing import refuse


def is_fake(x):
    """Returns False: fake tensors are unsupported."""
    return False


@contextlib.contextmanager
def unset_fake_temporarily():
    """Does nothing: a fake tensor mode is never active."""
    yield None


refuse(globals(), "use the meta device", "", "FakeTensor FakeTensorMode FakeTensorConverter")
