"""CANN's documented dtypes: attention, images. (Format: limits/__init__.py.)"""

TABLE = """
ops-transformer attention/flash_attention_score aclnnFlashAttentionScore
    FlashAttentionScore 0 query, 1 key, 2 value, 3 realShiftOptional, 17 attentionOutOut: floats
    FlashAttentionScore 4 dropMaskOptional: u8
    FlashAttentionScore 6 attenMaskOptional: u8 bool
    FlashAttentionScore 14 softmaxMaxOut, 15 softmaxSumOut: f32
ops-transformer attention/flash_attention_score_grad aclnnFlashAttentionScoreGrad
    FlashAttentionScoreGrad 0 query, 1 keyIn, 2 value, 3 dy, 4 pseShiftOptional, 11 attentionInOptional, 19 dqOut, 20 dkOut, 21 dvOut, 22 dpseOut: floats
    FlashAttentionScoreGrad 5 dropMaskOptional: u8
    FlashAttentionScoreGrad 7 attenMaskOptional: u8 bool
    FlashAttentionScoreGrad 8 softmaxMaxOptional, 9 softmaxSumOptional: f32
ops-transformer attention/flash_attention_score_grad aclnnFlashAttentionScoreGradV2
    FlashAttentionScoreGradV2 0 query, 1 keyIn, 2 value, 3 dy, 4 pseShiftOptional, 11 attentionInOptional, 22 dqOut, 23 dkOut, 24 dvOut, 25 dpseOut: floats
    FlashAttentionScoreGradV2 5 dropMaskOptional: u8
    FlashAttentionScoreGradV2 7 attenMaskOptional: u8 bool
    FlashAttentionScoreGradV2 8 softmaxMaxOptional, 9 softmaxSumOptional: f32
ops-transformer attention/flash_attention_score_grad aclnnFlashAttentionUnpaddingScoreGrad
    FlashAttentionUnpaddingScoreGrad 0 query, 1 keyIn, 2 value, 3 dy, 4 pseShiftOptional: floats
    FlashAttentionUnpaddingScoreGrad 10 softmaxInOptional, 11 attentionInOptional, 21 dqOut, 22 dkOut, 23 dvOut, 24 dpseOut: floats
    FlashAttentionUnpaddingScoreGrad 5 dropMaskOptional: u8
    FlashAttentionUnpaddingScoreGrad 6 paddingMaskOptional, 7 attenMaskOptional: u8 bool
    FlashAttentionUnpaddingScoreGrad 8 softmaxMaxOptional, 9 softmaxSumOptional: f32
ops-transformer attention/flash_attention_score_grad aclnnFlashAttentionUnpaddingScoreGradV2
    FlashAttentionUnpaddingScoreGradV2 0 query, 1 keyIn, 2 value, 3 dy, 4 pseShiftOptional: floats
    FlashAttentionUnpaddingScoreGradV2 10 softmaxInOptional, 11 attentionInOptional, 24 dqOut, 25 dkOut, 26 dvOut, 27 dpseOut: floats
    FlashAttentionUnpaddingScoreGradV2 5 dropMaskOptional: u8
    FlashAttentionUnpaddingScoreGradV2 6 paddingMaskOptional, 7 attenMaskOptional: u8 bool
    FlashAttentionUnpaddingScoreGradV2 8 softmaxMaxOptional, 9 softmaxSumOptional: f32
ops-transformer posembedding/apply_rotary_pos_emb aclnnApplyRotaryPosEmb
    ApplyRotaryPosEmb 0 queryRef, 1 keyRef, 2 cos, 3 sin: floats
ops-transformer posembedding/rotary_position_embedding aclnnRotaryPositionEmbedding
    RotaryPositionEmbedding 0 x, 1 cos, 2 sin, 4 out: floats
ops-transformer posembedding/rotary_position_embedding_grad aclnnRotaryPositionEmbeddingGrad
    RotaryPositionEmbeddingGrad 0 dy, 1 cos, 2 sin, 3 xOptional, 5 dxOut, 6 dcosOut, 7 dsinOut: floats
ops-cv image/col2im aclnnIm2colBackward
    Im2colBackward 0 gradOutput, 6 out: floats
ops-cv image/grid_sample aclnnGridSampler2D
    GridSampler2D 0 input, 1 grid, 5 out: floats f64 | 310P: f32
ops-cv image/grid_sample aclnnGridSampler3D
    GridSampler3D 0 input, 1 grid, 5 out: floats f64
ops-cv image/grid_sampler2_d_grad aclnnGridSampler2DBackward
    GridSampler2DBackward 0 gradOutput, 1 input, 2 grid, 7 inputGrad, 8 gridGrad: floats f64 | 910A: f32 f16
ops-cv image/grid_sampler3_d_grad aclnnGridSampler3DBackward
    GridSampler3DBackward 0 gradOutput, 1 input, 2 grid, 7 inputGrad, 8 gridGrad: floats f64
ops-cv image/resize_nearest_neighbor_v2 aclnnUpsampleNearest1d
    UpsampleNearest1d 0 self, 2 out: floats f64 u8
ops-cv image/resize_nearest_neighbor_v2 aclnnUpsampleNearest2d
    UpsampleNearest2d 0 self, 2 out: floats f64 u8 | 910A 310P: f16 f64 u8
ops-cv image/resize_upsample_trilinear aclnnUpsampleTrilinear3d
    UpsampleTrilinear3d 0 self, 3 out: floats f64 | 310P: f32 f16
ops-cv image/upsample_bicubic2d aclnnUpsampleBicubic2d
    UpsampleBicubic2d 0 self, 3 out: floats
ops-cv image/upsample_bicubic2d_grad aclnnUpsampleBicubic2dBackward
    UpsampleBicubic2dBackward 0 gradOut, 4 gradInput: floats
ops-cv image/upsample_bilinear2d aclnnUpsampleBilinear2d
    UpsampleBilinear2d 0 self, 3 out: floats f64
ops-cv image/upsample_bilinear2d_grad aclnnUpsampleBilinear2dBackwardV2
    UpsampleBilinear2dBackwardV2 0 gradOut, 4 out: floats
ops-cv image/upsample_bilinear2d_grad aclnnUpsampleLinear1dBackward
    UpsampleLinear1dBackward 0 gradOut, 4 out: floats
ops-cv image/upsample_linear1d aclnnUpsampleLinear1d
    UpsampleLinear1d 0 self, 3 out: floats
ops-cv image/upsample_nearest2d_grad aclnnUpsampleNearest1dBackward
    UpsampleNearest1dBackward 0 gradOut, 3 out: floats f64 | 910A 310P: f16
ops-cv image/upsample_nearest2d_grad aclnnUpsampleNearest2dBackward
    UpsampleNearest2dBackward 0 gradOut, 3 gradInput: floats | 910A 310P: f16
ops-cv image/upsample_nearest3d aclnnUpsampleNearest3d
    UpsampleNearest3d 0 self, 2 out: floats f64 | 310P: f32 f16
ops-cv image/upsample_nearest3d_grad aclnnUpsampleNearest3dBackward
    UpsampleNearest3dBackward 0 gradOut, 3 gradInput: floats f64
ops-cv image/upsample_trilinear3d_backward aclnnUpsampleTrilinear3dBackward
    UpsampleTrilinear3dBackward 0 gradOut, 4 gradInput: floats f64
"""
