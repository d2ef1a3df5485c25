"""Names of the operators of `mindtorch/torch/_aten_layer_ops.py`, which is imported on first use of
one."""
RESIZED = """upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d""".split()
_PADS = [f"{kind}_pad{n}d" for kind in ("reflection", "replication") for n in (1, 2, 3)]
_POOLS = [name.format(n) for n in (2, 3) for name in ("max_pool{}d_with_indices_backward", "avg_pool{}d_backward", "_adaptive_avg_pool{}d",
                                                      "_adaptive_avg_pool{}d_backward", "adaptive_max_pool{}d", "adaptive_max_pool{}d_backward")]
NAMES = frozenset([*RESIZED, *_PADS, *[n + "_backward" for n in (*RESIZED, *_PADS)], *_POOLS, *"""convolution_backward native_batch_norm_backward
 native_layer_norm_backward native_group_norm_backward nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward
 _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward gelu_backward embedding_dense_backward im2col col2im
 leaky_relu_backward softplus_backward""".split()])
