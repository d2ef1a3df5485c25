"""torch_npu: the package that scripts and libraries for Ascend import in addition to torch
(https://www.hiascend.com/document).

While the import hook is enabled, `import torch_npu` finds this package on every machine;
`torch.npu.is_available()` tells whether there is an NPU. The npu device is built into torch here,
so importing changes nothing. The fused functions are composed of PyTorch ops: results and gradients
are the same on every device, but each part is a separate kernel. A name `npu_...` that is not
implemented raises an error when it is called.
"""
from mindtorch.torch import npu  # noqa: F401
from mindtorch.torch.version import __version__  # noqa: F401
from mindtorch.torch_npu import contrib, optim  # noqa: F401
from mindtorch.torch_npu._attention import npu_apply_rotary_pos_emb, npu_fusion_attention, npu_rotary_mul  # noqa: F401
from mindtorch.torch_npu._boxes import npu_ciou, npu_diou, npu_giou, npu_iou, npu_ptiou  # noqa: F401
from mindtorch.torch_npu._layout import (get_npu_format, npu_broadcast, npu_confusion_transpose, npu_dtype_cast, npu_format_cast, npu_format_cast_,  # noqa: F401
                                         npu_one_hot, npu_reshape, npu_slice, npu_transpose)
from mindtorch.torch_npu._layers import (npu_add_rms_norm, npu_bmmV2, npu_conv2d, npu_conv3d, npu_deep_norm, npu_fast_gelu, npu_ffn,  # noqa: F401
                                         npu_geglu, npu_gelu, npu_group_norm_silu, npu_layer_norm_eval, npu_linear, npu_max, npu_min, npu_mish, npu_rms_norm,
                                         npu_scaled_masked_softmax, npu_silu, npu_silu_, npu_softmax_cross_entropy_with_logits, npu_stride_add, npu_swiglu)
from mindtorch.torch_npu._steps import npu_apply_adam, npu_apply_adam_w  # noqa: F401


def __getattr__(name):
    if not name.startswith("npu_"):
        raise AttributeError(f"module 'torch_npu' has no attribute '{name}'")

    def refused(*args, **kwargs):
        raise NotImplementedError(f"torch_npu.{name} is not supported: no MindSpore kernel can compute it")
    refused.__name__ = refused.__qualname__ = name
    return refused


def synchronize(device=None):
    """Waits for all work on the NPU."""
    npu.synchronize(device)
