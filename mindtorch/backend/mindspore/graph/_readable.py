"""Functions and Cells whose source MindSpore's compiler reads. It does not read other code of the
project (`jit_fallback.py`)."""
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
    """True if all elements are true."""
    return x.all()


def shaped(x, *sizes):
    """Returns x in other sizes."""
    return x.reshape(*sizes)


def typed(x, dtype):
    """Returns x cast to another dtype."""
    return x.astype(dtype)


class GradientOf(ms.nn.Cell):
    """Gradients of a Cell's result with respect to the arguments at `position`.

    Takes (*arguments, gradient of the result); returns a tensor, or a tuple for several positions.
    """

    _mindtorch_graph = True

    def __init__(self, net, position):
        super().__init__(auto_prefix=False)
        self.net, self.position = net, position

    def construct(self, *args):
        """See the class."""
        return ms.grad(self.net, self.position, sens_param=True)(*args)
