"""CANN's documented dtypes: layers, losses, matrix products, convolutions, indexing, optimizers.
(Format: limits/__init__.py.)"""

TABLE = """
ops-nn activation/elu aclnnElu&aclnnInplaceElu
    Elu 0 self, 4 out: floats f64
    InplaceElu 0 selfRef: floats f64
ops-nn activation/elu_grad_v2 aclnnEluBackward
    EluBackward 0 gradOutput, 5 selfOrResult, 6 gradInput: floats
ops-nn activation/erfinv aclnnErfinv&aclnnInplaceErfinv
    Erfinv 0 self: floats ints bool | 910A: f32 f16
    Erfinv 1 out: floats
    InplaceErfinv 0 selfRef: floats
ops-nn activation/gelu aclnnGelu
    Gelu 0 self, 1 out: floats
ops-nn activation/gelu_grad aclnnGeluBackward
    GeluBackward 0 gradOutput, 1 self, 2 gradInput: floats
ops-nn activation/gelu_grad_v2 aclnnGeluBackwardV2
    GeluBackwardV2 0 gradOutput, 1 self, 3 gradInput: floats
ops-nn activation/gelu_v2 aclnnGeluV2
    GeluV2 0 x, 2 y: floats
ops-nn activation/glu aclnnGlu
    Glu 0 self, 2 out: floats f64
ops-nn activation/glu_grad aclnnGluBackward
    GluBackward 0 gradOut, 1 self, 3 out: floats f64
ops-nn activation/hard_shrink aclnnHardshrink
    Hardshrink 0 self, 2 out: floats
ops-nn activation/hard_shrink_grad aclnnHardshrinkBackward
    HardshrinkBackward 0 gradOutput, 1 self, 3 gradInput: floats
ops-nn activation/hard_sigmoid aclnnHardsigmoid&aclnnInplaceHardsigmoid
    Hardsigmoid 0 self, 1 out: floats i32
ops-nn activation/hard_sigmoid_grad aclnnHardsigmoidBackward
    HardsigmoidBackward 0 gradOutput, 1 self, 2 out: floats
ops-nn activation/hard_swish aclnnHardswish&aclnnInplaceHardswish
    Hardswish 0 self, 1 out: floats
ops-nn activation/hard_swish_grad aclnnHardswishBackward
    HardswishBackward 0 gradOutput, 1 self, 2 out: floats
ops-nn activation/hardtanh_grad aclnnHardtanhBackward
    HardtanhBackward 0 gradOutput, 1 self, 4 out: floats
ops-nn activation/leaky_relu aclnnLeakyRelu&aclnnInplaceLeakyRelu
    LeakyRelu 0 self, 2 out: floats f64
ops-nn activation/leaky_relu_grad aclnnLeakyReluBackward
    LeakyReluBackward 0 gradOutput, 1 self, 4 out: floats f64
ops-nn activation/log_sigmoid aclnnLogSigmoidForward
    LogSigmoidForward 0 self, 1 out: floats
ops-nn activation/log_softmax_grad aclnnLogSoftmaxBackward
    LogSoftmaxBackward 0 gradOutput, 1 output, 3 out: floats
ops-nn activation/log_softmax_v2 aclnnLogSoftmax
    LogSoftmax 0 self, 2 out: floats f64
ops-nn activation/logsigmoid_grad aclnnLogSigmoidBackward
    LogSigmoidBackward 0 gradOutput, 1 self, 2 buffer, 3 gradInput: floats
ops-nn activation/mish aclnnMish&aclnnInplaceMish
    Mish 0 self, 1 out: floats
ops-nn activation/mish_grad aclnnMishBackward
    MishBackward 0 gradOutput, 1 self, 2 gradInput: floats
ops-nn activation/p_relu aclnnPrelu
    Prelu 0 self, 1 weight, 2 out: floats
ops-nn activation/p_relu_grad_update aclnnPreluBackward
    PreluBackward 0 gradOutput, 1 self, 2 weight, 3 gradInput, 4 gradWeight: floats
ops-nn activation/relu aclnnRelu&aclnnInplaceRelu
    InplaceRelu 0 selfRef: floats i8 i32 i64 u8
    Relu 0 self, 1 out: floats i8 i32 i64 u8 | 910A 310P: f32 f16 i8 i32 i64
ops-nn activation/selu aclnnSelu&aclnnInplaceSelu
    Selu 0 self, 1 out: floats i8 i32
ops-nn activation/selu_grad aclnnSeluBackward
    SeluBackward 0 gradOutput, 1 result, 2 gradInput: floats i8 i32
ops-nn activation/sigmoid aclnnSigmoid&aclnnInplaceSigmoid
    InplaceSigmoid 0 selfRef: floats f64 complexes
    Sigmoid 0 self: floats f64 ints bool complexes
    Sigmoid 1 out: floats f64 complexes
ops-nn activation/sigmoid_grad aclnnSigmoidBackward
    SigmoidBackward 0 gradOutput, 1 output, 2 gradInput: floats f64 complexes
ops-nn activation/silu_grad aclnnSiluBackward
    SiluBackward 0 gradOutput, 1 self, 2 gradInput: floats
ops-nn activation/soft_shrink_grad aclnnSoftshrinkBackward
    SoftshrinkBackward 0 gradOutput, 1 self, 3 gradInput: floats
ops-nn activation/softmax_grad aclnnSoftmaxBackward
    SoftmaxBackward 0 gradOutput, 1 output, 3 out: floats
ops-nn activation/softmax_v2 aclnnSoftmax
    Softmax 0 self, 2 out: floats f64
ops-nn activation/softplus_v2 aclnnSoftplus
    Softplus 0 self, 3 out: floats
ops-nn activation/softplus_v2_grad aclnnSoftplusBackward
    SoftplusBackward 0 gradOutput, 4 gradInput: floats f64
    SoftplusBackward 1 self: floats f64 ints bool | 910A: f32 f16 f64
ops-nn activation/softshrink aclnnSoftshrink
    Softshrink 0 self, 2 out: floats
ops-nn activation/swi_glu aclnnSwiGlu
    SwiGlu 0 x, 2 out: floats
ops-nn activation/swi_glu_grad aclnnSwiGluGrad
    SwiGluGrad 0 yGrad, 1 x, 3 out: floats
ops-nn activation/swish aclnnSilu
    Silu 0 self, 1 out: floats
ops-nn activation/threshold aclnnThreshold&aclnnInplaceThreshold
    InplaceThreshold 0 selfRef: floats ints
    Threshold 0 self, 3 out: floats ints
ops-nn activation/threshold_grad_v2_d aclnnThresholdBackward
    ThresholdBackward 0 gradOutput, 1 self, 3 out: floats i8 i32 u8
ops-nn conv/convolution_backward aclnnConvolutionBackward
    ConvolutionBackward 0 gradOutput, 1 input, 2 weight, 12 gradInput, 13 gradWeight, 14 gradBias: floats
ops-nn conv/convolution_forward aclnnConvTbc
    ConvTbc 0 self, 1 weight, 2 bias, 4 out: floats
ops-nn conv/convolution_forward aclnnConvolution
    Convolution 0 input, 1 weight, 2 bias, 9 output: floats
ops-nn index/embedding aclnnEmbedding
    Embedding 0 weight, 2 out: floats f64 ints bool complexes
    Embedding 1 indices: i32 i64
ops-nn index/embedding_dense_grad aclnnEmbeddingDenseBackward
    EmbeddingDenseBackward 0 grad, 5 out: floats
    EmbeddingDenseBackward 1 indices: f32 f16 f64 ints bool
ops-nn index/gather_elements_v2 aclnnGather
    Gather 0 self, 3 out: floats f64 ints u16 u32 u64 bool
    Gather 2 index: i32 i64
ops-nn index/gather_nd aclnnGatherNd
    GatherNd 0 self, 3 out: floats i8 i32 i64 u8 bool
    GatherNd 1 indices: i32 i64
ops-nn index/gather_v2 aclnnIndexSelect
    IndexSelect 0 self, 3 out: floats f64 ints u16 u32 u64 bool complexes
    IndexSelect 2 index: i32 i64
ops-nn index/gather_v2 aclnnKthvalue
    Kthvalue 0 self, 4 valuesOut: floats ints
    Kthvalue 5 indicesOut: i64
ops-nn index/gather_v2 aclnnMedian
    Median 0 self, 1 valuesOut: floats ints
ops-nn index/gather_v2 aclnnMedianDim
    MedianDim 0 self, 3 valuesOut: floats ints
    MedianDim 4 indicesOut: i64
ops-nn index/gather_v2 aclnnTake
    Take 0 self, 2 out: floats f64 ints u16 u32 u64 bool complexes
    Take 1 index: i32 i64
ops-nn index/index aclnnIndex
    Index 0 self, 2 out: floats f64 ints bool
    Index 1 indices: i32 i64 bool
ops-nn index/index_fill_d aclnnIndexFillTensor&aclnnInplaceIndexFillTensor
    IndexFillTensor 0 self, 4 out: floats i32 i64 bool
    InplaceIndexFillTensor 0 selfRef: floats i32 i64 bool
ops-nn index/index_put_v2 aclnnIndexPutImpl
    IndexPutImpl 0 selfRef, 2 values: floats f64 ints bool
    IndexPutImpl 1 indices: i32 i64 bool
ops-nn index/inplace_scatter_add aclnnIndexAdd
    IndexAdd 0 self, 3 source, 5 out: floats f64 ints bool
    IndexAdd 2 index: i32 i64
ops-nn index/masked_scatter aclnnInplaceMaskedScatter
    InplaceMaskedScatter 0 selfRef, 2 source: floats f64 ints bool
    InplaceMaskedScatter 1 mask: u8 bool
ops-nn index/matrix_inverse aclnnInverse
    Inverse 0 self, 1 out: f32 f16 | 910A: f32
ops-nn index/non_zero aclnnNonzero
    Nonzero 0 self: floats f64 ints bool
    Nonzero 1 out: i64
ops-nn index/non_zero aclnnNonzeroV2
    NonzeroV2 0 self: floats f64 ints u16 u32 u64 bool
    NonzeroV2 1 out: i64
ops-nn index/repeat_interleave aclnnRepeatInterleave
    RepeatInterleave 0 self, 3 out: floats ints bool
    RepeatInterleave 1 repeats: i32 i64
ops-nn index/repeat_interleave aclnnRepeatInterleaveInt
    RepeatInterleaveInt 0 self, 3 out: floats ints bool
ops-nn index/repeat_interleave aclnnRepeatInterleaveIntWithDim
    RepeatInterleaveIntWithDim 0 self, 4 out: floats ints bool
ops-nn index/repeat_interleave aclnnRepeatInterleaveWithDim
    RepeatInterleaveWithDim 0 self, 4 out: floats ints bool
    RepeatInterleaveWithDim 1 repeats: i32 i64
ops-nn index/repeat_interleave_grad aclnnRepeatInterleaveGrad
    RepeatInterleaveGrad 0 yGrad, 3 out: floats
    RepeatInterleaveGrad 1 repeats: i32 i64
ops-nn index/reverse_v2 aclnnFlip
    Flip 0 self, 2 out: floats f64 ints bool complexes
ops-nn index/scatter aclnnInplaceScatterUpdate
    InplaceScatterUpdate 0 data, 2 updates: floats i8 i32 u8 | 910A: f32 f16 i8 i32
    InplaceScatterUpdate 1 indices: i32 i64
ops-nn index/scatter_add aclnnScatterAdd
    ScatterAdd 0 self, 3 src, 4 out: floats f64 ints bool complexes
    ScatterAdd 2 index: i32 i64
ops-nn index/scatter_elements aclnnMaxUnpool2d
    MaxUnpool2d 0 self, 3 out: f32 f16 f64 ints
    MaxUnpool2d 1 indices: i32 i64
ops-nn index/scatter_elements_v2 aclnnScatter&aclnnInplaceScatter
    InplaceScatter 0 selfRef, 3 src: floats f64 ints bool complexes
    InplaceScatter 2 index: i32 i64
    Scatter 0 self, 3 src, 5 out: floats f64 ints bool complexes
    Scatter 2 index: i32 i64
ops-nn index/scatter_elements_v2 aclnnScatterValue&aclnnInplaceScatterValue
    InplaceScatterValue 0 selfRef: floats f64 ints bool complexes
    InplaceScatterValue 2 index: i32 i64
    ScatterValue 0 self, 5 out: floats f64 ints bool complexes
    ScatterValue 2 index: i32 i64
ops-nn index/scatter_nd_update aclnnInplacePut
    InplacePut 0 selfRef, 2 source: floats f64 ints bool complexes | 910A 310P: f32 f16 f64 ints bool
    InplacePut 1 index: i32 i64
ops-nn index/scatter_update aclnnIndexCopy&aclnnInplaceIndexCopy
    InplaceIndexCopy 0 selfRef, 3 source: floats f64 ints bool complexes
    InplaceIndexCopy 2 index: i32 i64
ops-nn index/tf_scatter_add aclnnTfScatterAdd
    TfScatterAdd 0 varRef, 2 updates: floats i8 i32 u8
    TfScatterAdd 1 indices: i32 i64
ops-nn index/unique_consecutive aclnnUnique
    Unique 0 self, 3 valueOut: floats f64 ints u16 u32 u64 bool
ops-nn index/unique_consecutive aclnnUnique2
    Unique2 0 self, 4 valueOut: floats f64 ints u16 u32 u64 bool
    Unique2 5 inverseOut, 6 countsOut: i64
ops-nn index/unique_consecutive aclnnUniqueConsecutive
    UniqueConsecutive 0 self, 4 valueOut: floats f64 ints u16 u32 u64 bool complexes
    UniqueConsecutive 5 inverseOut, 6 countsOut: i32 i64
ops-nn index/unique_with_counts_ext2 aclnnUniqueDim
    UniqueDim 0 self, 4 valueOut: floats f64 ints u16 u32 u64 bool
    UniqueDim 5 inverseOut, 6 countsOut: i64
ops-nn loss/binary_cross_entropy aclnnBinaryCrossEntropy
    BinaryCrossEntropy 0 self, 1 target, 2 weight, 4 out: floats
ops-nn loss/binary_cross_entropy_grad aclnnBinaryCrossEntropyBackward
    BinaryCrossEntropyBackward 0 gradOutput, 1 self, 2 target, 3 weightOptional, 5 out: floats
ops-nn loss/cross_entropy_loss aclnnCrossEntropyLoss
    CrossEntropyLoss 0 input, 6 lossOut, 7 logProbOut, 8 zlossOut, 9 lseForZlossOut: floats
    CrossEntropyLoss 1 target: i32 i64
    CrossEntropyLoss 2 weightOptional: f32
ops-nn loss/cross_entropy_loss_grad aclnnCrossEntropyLossGrad
    CrossEntropyLossGrad 0 gradLoss, 1 logProb, 4 gradZlossOptional, 5 lseForZlossOptional, 8 out: floats
    CrossEntropyLossGrad 2 target: i64
    CrossEntropyLossGrad 3 weightOptional: f32
ops-nn loss/kl_div_loss_grad aclnnKlDivBackward
    KlDivBackward 0 gradOutput, 1 self, 2 target, 5 out: floats
ops-nn loss/l1_loss_grad aclnnL1LossBackward
    L1LossBackward 0 gradOutput, 1 self, 2 target, 4 gradInput: floats
ops-nn loss/lp_loss aclnnL1Loss
    L1Loss 0 self, 1 target, 3 out: floats i64
ops-nn loss/mse_loss aclnnMseLoss
    MseLoss 0 self, 1 target, 3 out: floats
ops-nn loss/mse_loss_grad_v2 aclnnMseLossBackward
    MseLossBackward 0 gradOutput, 1 self, 2 target, 4 out: floats
ops-nn loss/nll_loss aclnnNLLLoss
    NLLLoss 0 self, 2 weight, 5 out, 6 totalWeightOut: floats
    NLLLoss 1 target: i32 i64 u8
ops-nn loss/nll_loss aclnnNLLLoss2d
    NLLLoss2d 0 self, 2 weight, 5 out, 6 totalWeightOut: floats
    NLLLoss2d 1 target: i32 i64 u8
ops-nn loss/nll_loss_grad aclnnNLLLoss2dBackward
    NLLLoss2dBackward 0 gradOutput, 1 self, 3 weight, 6 totalWeight, 7 out: floats
    NLLLoss2dBackward 2 target: i32 i64 u8
ops-nn loss/nll_loss_grad aclnnNLLLossBackward
    NLLLossBackward 0 gradOutput, 1 self, 3 weight, 6 totalWeight, 7 out: floats
    NLLLossBackward 2 target: i32 i64 u8
ops-nn loss/sigmoid_cross_entropy_with_logits_grad_v2 aclnnBinaryCrossEntropyWithLogitsBackward
    BinaryCrossEntropyWithLogitsBackward 0 gradOutput, 1 self, 2 target, 3 weightOptional, 4 posWeightOptional, 6 out: floats
ops-nn loss/sigmoid_cross_entropy_with_logits_v2 aclnnBinaryCrossEntropyWithLogits
    BinaryCrossEntropyWithLogits 0 self, 1 target, 2 weightOptional, 3 posWeightOptional, 5 out: floats
ops-nn loss/smooth_l1_loss_grad_v2 aclnnSmoothL1LossBackward
    SmoothL1LossBackward 0 gradOut, 1 self, 2 target, 4 gradInput: floats
ops-nn loss/smooth_l1_loss_v2 aclnnSmoothL1Loss
    SmoothL1Loss 0 self, 1 target, 3 result: floats
ops-nn loss/soft_margin_loss aclnnSoftMarginLoss
    SoftMarginLoss 0 self, 1 target, 3 out: floats
ops-nn loss/soft_margin_loss_grad aclnnSoftMarginLossBackward
    SoftMarginLossBackward 0 gradOutput, 1 self, 2 target, 4 out: floats
ops-nn matmul/addmv aclnnAddmv
    Addmv 0 self, 1 mat, 2 vec: floats f64 ints bool
    Addmv 5 out: floats f64 ints
ops-nn matmul/batch_mat_mul_v3 aclnnAddbmm&aclnnInplaceAddbmm
    Addbmm 0 self, 1 batch1, 2 batch2, 5 out: floats
ops-nn matmul/batch_mat_mul_v3 aclnnBaddbmm&aclnnInplaceBaddbmm
    Baddbmm 0 self, 1 batch1, 2 batch2, 5 out: floats
ops-nn matmul/batch_mat_mul_v3 aclnnBatchMatMul
    BatchMatMul 0 self, 1 mat2, 2 out: floats
ops-nn matmul/mat_mul_v3 aclnnAddmm&aclnnInplaceAddmm
    Addmm 0 self, 1 mat1, 2 mat2, 5 out: floats
    InplaceAddmm 0 selfRef, 1 mat1, 2 mat2: floats
ops-nn matmul/mat_mul_v3 aclnnMatmul
    Matmul 0 self, 1 mat2, 2 out: floats
ops-nn matmul/mat_mul_v3 aclnnMm
    Mm 0 self, 1 mat2, 2 out: floats
ops-nn matmul/mv aclnnMv
    Mv 0 self, 1 vec, 2 out: floats
ops-nn norm/add_layer_norm aclnnAddLayerNorm
    AddLayerNorm 0 x1, 1 x2, 2 gamma, 3 beta, 4 biasOptional, 6 yOut, 9 xOut: floats
    AddLayerNorm 7 meanOut, 8 rstdOut: f32
ops-nn norm/add_layer_norm_grad aclnnAddLayerNormGrad
    AddLayerNormGrad 0 dy, 1 x1, 2 x2, 5 gamma, 6 dsumOptional, 7 dxOut: floats
    AddLayerNormGrad 3 rstd, 4 mean, 8 dgammaOut, 9 dbetaOut: f32
ops-nn norm/add_rms_norm aclnnAddRmsNorm
    AddRmsNorm 0 x1, 1 x2, 2 gamma, 3 yOut, 5 xOut: floats
    AddRmsNorm 4 rstdOut: f32
ops-nn norm/batch_norm_elemt aclnnBatchNormElemt
    BatchNormElemt 0 input, 1 weight, 2 bias, 3 mean, 4 invstd, 5 output: floats
ops-nn norm/batch_norm_grad_v3 aclnnBatchNormBackward
    BatchNormBackward 0 gradOut, 1 input, 2 weight, 3 runningMean, 4 runningVar, 5 saveMean, 6 saveInvstd, 9 gradInput, 10 gradWeight, 11 gradBias: floats
ops-nn norm/batch_norm_v3 aclnnBatchNorm
    BatchNorm 0 input, 1 weight, 2 bias, 3 runningMean, 4 runningVar, 6 output, 7 saveMean, 8 saveInvstd: floats
ops-nn norm/group_norm aclnnGroupNorm
    GroupNorm 0 self, 1 gamma, 2 beta, 7 out, 8 meanOut, 9 rstdOut: floats
ops-nn norm/group_norm_grad aclnnGroupNormBackward
    GroupNormBackward 0 gradOut, 1 input, 2 mean, 3 rstd, 4 gamma, 10 gradInput, 11 gradGammaOut, 12 gradBetaOut: floats
ops-nn norm/layer_norm_grad_v3 aclnnLayerNormBackward
    LayerNormBackward 0 gradOut, 1 input, 3 mean, 4 rstd, 5 weightOptional, 6 biasOptional, 8 gradInputOut, 9 gradWeightOut, 10 gradBiasOut: floats
ops-nn norm/layer_norm_v4 aclnnLayerNorm&aclnnLayerNormWithImplMode
    LayerNorm 0 input, 2 weightOptional, 3 biasOptional, 4 out, 5 meanOutOptional, 6 rstdOutOptional: floats
ops-nn norm/lp_norm_v2 aclnnLinalgVectorNorm
    LinalgVectorNorm 0 self, 5 out: floats
ops-nn norm/lp_norm_v2 aclnnNorm
    Norm 0 self, 4 out: floats
ops-nn norm/renorm aclnnEmbeddingRenorm
    EmbeddingRenorm 0 selfRef: floats
    EmbeddingRenorm 1 indices: i32 i64
ops-nn norm/rms_norm aclnnRmsNorm
    RmsNorm 0 x, 1 gamma, 2 yOut: floats
    RmsNorm 3 rstdOut: f32
ops-nn norm/rms_norm_grad aclnnRmsNormGrad
    RmsNormGrad 0 dy, 1 x, 3 gamma, 4 dxOut: floats
    RmsNormGrad 2 rstd, 5 dgammaOut: f32
ops-nn norm/sync_batch_norm_backward_elemt aclnnBatchNormElemtBackward
    BatchNormElemtBackward 0 gradOut, 1 input, 2 mean, 3 invstd, 4 weight, 5 sumDy, 6 sumDyXmu, 8 gradInput: floats
    BatchNormElemtBackward 7 counter: f32 f16 i32
ops-nn norm/sync_batch_norm_backward_reduce aclnnBatchNormReduceBackward
    BatchNormReduceBackward 0 gradOut, 1 input, 2 mean, 3 invstd, 4 weight, 8 sumDy, 9 sumDyXmu, 10 gradWeight, 11 gradBias: floats
ops-nn norm/sync_batch_norm_gather_stats_with_counts aclnnBatchNormGatherStatsWithCounts
    BatchNormGatherStatsWithCounts 0 input, 1 mean, 2 invstd, 3 runningMean, 4 runningVar, 5 counts, 6 meanAll, 7 invstdAll: floats
ops-nn optim/apply_adam_w_v2 aclnnApplyAdamWV2
    ApplyAdamWV2 0 varRef, 1 mRef, 2 vRef, 3 maxGradNormOptionalRef, 4 grad: floats
    ApplyAdamWV2 5 step: f32 i64
ops-nn pooling/adaptive_avg_pool2d aclnnAdaptiveAvgPool2d
    AdaptiveAvgPool2d 0 self, 2 out: floats
ops-nn pooling/adaptive_avg_pool2d_grad aclnnAdaptiveAvgPool2dBackward
    AdaptiveAvgPool2dBackward 0 gradOutput, 1 self, 2 out: floats
ops-nn pooling/adaptive_avg_pool3d aclnnAdaptiveAvgPool3d
    AdaptiveAvgPool3d 0 self, 2 out: floats
ops-nn pooling/adaptive_avg_pool3d_grad aclnnAdaptiveAvgPool3dBackward
    AdaptiveAvgPool3dBackward 0 gradOutput, 1 self, 2 out: floats
ops-nn pooling/adaptive_max_pool2d aclnnAdaptiveMaxPool2d
    AdaptiveMaxPool2d 0 self, 2 outputOut: floats f64
    AdaptiveMaxPool2d 3 indicesOut: i64
ops-nn pooling/adaptive_max_pool3d_grad aclnnAdaptiveMaxPool2dBackward
    AdaptiveMaxPool2dBackward 0 gradOutput, 1 self, 3 gradInput: floats
    AdaptiveMaxPool2dBackward 2 indices: i32 i64
ops-nn pooling/avg_pool3_d aclnnAvgPool2d
    AvgPool2d 0 self, 8 out: floats
ops-nn pooling/avg_pool3_d aclnnAvgPool3d
    AvgPool3d 0 self, 7 out: floats
ops-nn pooling/avg_pool3_d_grad aclnnAvgPool2dBackward
    AvgPool2dBackward 0 gradOutput, 1 self, 9 gradInput: floats
ops-nn pooling/avg_pool3_d_grad aclnnAvgPool3dBackward
    AvgPool3dBackward 0 gradOutput, 1 self, 8 output: floats
ops-nn pooling/max_pool3d_grad_with_argmax aclnnMaxPool2dWithIndicesBackward
    MaxPool2dWithIndicesBackward 0 gradOutput, 1 self, 8 gradInput: f32
    MaxPool2dWithIndicesBackward 2 indices: i32
ops-nn pooling/max_pool3d_grad_with_argmax aclnnMaxPool2dWithMaskBackward
    MaxPool2dWithMaskBackward 0 gradOutput, 1 self, 8 gradInput: floats
    MaxPool2dWithMaskBackward 2 indices: i8
ops-nn pooling/max_pool3d_with_argmax_v2 aclnnMaxPool2dWithIndices
    MaxPool2dWithIndices 0 self, 6 out: floats
    MaxPool2dWithIndices 7 indices: i32 i64
ops-nn pooling/max_pool3d_with_argmax_v2 aclnnMaxPool2dWithMask
    MaxPool2dWithMask 0 self, 6 out: floats | 310P: f32
    MaxPool2dWithMask 7 indices: i8
ops-nn vfusion/multi_scale_deformable_attention_grad aclnnMultiScaleDeformableAttentionGrad
    MultiScaleDeformableAttentionGrad 0 value, 3 location, 4 attnWeight, 5 gradOutput, 6 gradValue, 7 gradLocation, 8 gradAttnWeight: floats
    MultiScaleDeformableAttentionGrad 1 spatialShape, 2 levelStartIndex: i32 i64
ops-nn vfusion/multi_scale_deformable_attn_function aclnnMultiScaleDeformableAttnFunction
    MultiScaleDeformableAttnFunction 0 value, 3 location, 4 attnWeight, 5 output: floats
    MultiScaleDeformableAttnFunction 1 spatialShape, 2 levelStartIndex: i32 i64
"""
