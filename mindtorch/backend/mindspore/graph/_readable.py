"""Cells that MindSpore's compiler reads (all else of the project it does not: jit_fallback.py)."""
from mindtorch.backend.mindspore.runtime import ms


def times(x, y):
    """x * y."""
    return x * y


def plus(x, y):
    """x + y."""
    return x + y


def minus(x, y):
    """x - y."""
    return x - y


def below(x, y):
    """x < y."""
    return x < y


def over(x, y):
    """x / y."""
    return x / y


def under(x, y):
    """y / x."""
    return y / x


def everywhere(x):
    """Whether all elements are true."""
    return x.all()


def shaped(x, *sizes):
    """The same elements in other sizes."""
    return x.reshape(*sizes)


def typed(x, dtype):
    """The same values in another dtype."""
    return x.astype(dtype)


class GradientOf(ms.nn.Cell):
    """Gradients of a Cell's result to the arguments at `position`: (*arguments, gradient of the result) -> a tensor, or a tuple where there are several."""

    _mindtorch_graph = True

    def __init__(self, net, position):
        super().__init__(auto_prefix=False)
        self.net, self.position = net, position

    def construct(self, *args):
        """See the class."""
        return ms.grad(self.net, self.position, sens_param=True)(*args)
