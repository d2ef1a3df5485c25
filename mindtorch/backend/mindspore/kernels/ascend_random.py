"""Random numbers that are one aclnn launch on Ascend. Seed and offset come from the generator
(`random.py`)."""
from mindtorch.backend.mindspore.kernels._call import G, UnsupportedByKernel, op, shape_of
from mindtorch.backend.mindspore.kernels.ascend import CUBE, ascend
from mindtorch.backend.mindspore.kernels.random import drawn, rng_state
from mindtorch.backend.mindspore.recorder_api import new_buffer


def _state(generator):
    return new_buffer(rng_state, drawn(generator), 0)


@ascend("uniform_", only=CUBE)
def _uniform_(h, *, low, high, generator):
    if not -3e38 <= low <= high <= 3e38 or high - low > 3e38:
        raise UnsupportedByKernel  # the host kernel raises the error
    op(G.InplaceUniform)(h, float(low), float(high), *_state(generator))


@ascend("normal_", only=CUBE)
def _normal_(h, *, mean, std, generator):
    if not std >= 0:
        raise UnsupportedByKernel  # the host kernel raises the error
    op(G.InplaceNormal)(h, float(mean), float(std), *_state(generator))


# A device does not check the values of weights and probabilities: that would read them back.
ascend("bernoulli", lambda a, *, generator: op(G.BernoulliExt)(a, *_state(generator)), only=CUBE)


@ascend("multinomial", only=CUBE)
def _multinomial(a, *, num_samples, replacement, generator):
    if num_samples <= 0 or not replacement and num_samples > shape_of(a)[-1]:
        raise UnsupportedByKernel
    return op(G.MultinomialExt)(a, num_samples, replacement, *_state(generator))
