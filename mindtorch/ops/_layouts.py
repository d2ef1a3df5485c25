"""The strides that torch gives to the results of kernels that are not elementwise: rules by primitive name (core/layout.py).

What stands nowhere here, and is not elementwise, gives C order, as most of torch's kernels do.
"""
from mindtorch.core.layout import (RULES, batch_norm, by_operand, convolution, kept, like)


def _give(rule, names):
    for n in names.split():
        RULES[n] = rule


# What torch allocates like its first operand.
_give(like, "to_copy clone")

# Layers over channels.
_give(batch_norm, "native_batch_norm")
_give((by_operand(1), None, None, None, None), "native_batch_norm_backward")
_give(convolution, "convolution convolution_transposed")

# Kernels that see to it themselves.
_give(kept, "transpose sum_to_size")
