"""Functions of torch that exist by name and raise NotImplementedError.

Kernels of vendor libraries (cuDNN, MIOpen, oneDNN, FBGEMM), float8 and float4 matrices, quantized
tensors, and parts of TorchScript.
"""

_REASONS = {
    "is a kernel of a vendor library that is not available": """
        batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats
        batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats cudnn_affine_grid_generator
        cudnn_batch_norm cudnn_convolution cudnn_convolution_add_relu cudnn_convolution_relu cudnn_convolution_transpose
        cudnn_grid_sampler fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation fbgemm_linear_int8_weight
        fbgemm_linear_int8_weight_fp32_activation fbgemm_linear_quantize_weight fbgemm_pack_gemm_matrix_fp16
        fbgemm_pack_quantized_matrix miopen_batch_norm miopen_convolution miopen_convolution_add_relu miopen_convolution_relu
        miopen_convolution_transpose miopen_ctc_loss miopen_depthwise_convolution miopen_rnn mkldnn_adaptive_avg_pool2d
        mkldnn_convolution mkldnn_linear_backward_weights mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer native_norm""",
    "takes 8-bit and 4-bit floating point matrices, which are not supported": "_scaled_mm _scaled_mm_v2 _scaled_grouped_mm _scaled_grouped_mm_v2",
    "works on quantized tensors, which are not supported": """
        choose_qparams_optimized dequantize empty_quantized fake_quantize_per_channel_affine fake_quantize_per_tensor_affine
        fused_moving_avg_obs_fake_quant int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale
        q_zero_point quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic quantized_batch_norm quantized_gru
        quantized_gru_cell quantized_lstm quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d
        quantized_rnn_relu_cell quantized_rnn_tanh_cell""",
    "is TorchScript, of which only torch.jit.script and torch.jit.trace are accepted": """
        fork wait import_ir_module import_ir_module_from_buffer merge_type_from_type_comment parse_ir parse_schema
        parse_type_comment unify_type_list""",
}


def _refusal(name, reason):
    def fn(*args, **kwargs):
        given = next((a for a in (*args, *kwargs.values()) if hasattr(a, "dtype") and hasattr(a, "device")), None)
        where = f" (dtype {given.dtype}, device {given.device})" if given is not None else " on device cpu"
        raise NotImplementedError(f"torch.{name} {reason}{where}")
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"Not supported: {name} {reason}."
    return fn


FUNCTIONS = {name: _refusal(name, reason) for reason, names in _REASONS.items() for name in names.split()}
