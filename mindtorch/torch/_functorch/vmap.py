"""torch._functorch.vmap: an alias of the module that implements vmap, because libraries replace
some of its functions."""
import sys

from mindtorch.torch.func import _vmap

sys.modules[__name__] = _vmap
