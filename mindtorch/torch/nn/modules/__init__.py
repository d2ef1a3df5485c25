"""All built-in modules (https://pytorch.org/docs/stable/nn.html)."""
from mindtorch.torch.nn.modules import module  # noqa: F401  first: everything stands on it
from mindtorch.torch.nn.modules import _cells  # noqa: F401
from mindtorch.torch.nn.modules.module import Module
from mindtorch.torch.nn.modules import (  # noqa: F401
    activation, adaptive, batchnorm, channelshuffle, container, conv, distance, dropout, flatten, fold, instancenorm,
    lazy, linear, linear_cross_entropy_options, loss, normalization, padding, pixelshuffle, pooling, rnn, sparse,
    transformer, upsampling, utils)

__all__ = ["Module"]
for _m in (activation, adaptive, batchnorm, channelshuffle, container, conv, distance, dropout, flatten, fold,
           instancenorm, linear, loss, normalization, padding, pixelshuffle, pooling, rnn, sparse, transformer,
           upsampling):
    for _name in _m.__all__:
        globals()[_name] = getattr(_m, _name)
        __all__.append(_name)
del _m, _name
