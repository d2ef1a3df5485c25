"""CANN's documented dtypes: arithmetic, reductions, comparisons, shapes, random numbers. (Format:
limits/__init__.py.)"""

TABLE = """
ops-math conversion/clip_by_value_v2 aclnnClamp
    Clamp 0 self, 3 out: floats f64 ints
ops-math conversion/clip_by_value_v2 aclnnClampMin
    ClampMin 0 self, 2 out: floats f64 ints
ops-math conversion/clip_by_value_v2 aclnnClampTensor
    ClampTensor 0 self, 3 out: floats f64 ints
    ClampTensor 1 clipValueMin, 2 clipValueMax: floats f64 ints bool
ops-math conversion/clip_by_value_v2 aclnnHardtanh&aclnnInplaceHardtanh
    Hardtanh 0 self, 3 out: floats f64 ints
    InplaceHardtanh 0 selfRef: floats f64 ints
ops-math conversion/concat_d aclnnCat
    Cat 0 tensors, 2 out: floats f64 ints bool c64
ops-math conversion/diag_v2 aclnnDiag
    Diag 0 self, 2 out: floats f64 ints bool c64
ops-math conversion/fill aclnnInplaceFillScalar
    InplaceFillScalar 0 selfRef: floats f64 ints u16 u32 u64 bool complexes | 910A 310P: f32 f16 f64 ints bool complexes
ops-math conversion/fill aclnnInplaceFillTensor
    InplaceFillTensor 0 selfRef, 1 value: floats f64 ints u16 u32 u64 bool complexes
ops-math conversion/fill_diagonal_v2 aclnnInplaceFillDiagonal
    InplaceFillDiagonal 0 selfRef: floats f64 ints bool c64
ops-math conversion/im2col aclnnIm2col
    Im2col 0 self, 5 out: floats
ops-math conversion/masked_fill aclnnInplaceMaskedFillScalar
    InplaceMaskedFillScalar 0 selfRef: floats i8 i32 i64 bool
    InplaceMaskedFillScalar 1 mask: bool
ops-math conversion/masked_fill aclnnInplaceMaskedFillTensor
    InplaceMaskedFillTensor 0 selfRef, 2 value: floats i8 i32 i64 bool
    InplaceMaskedFillTensor 1 mask: bool
ops-math conversion/masked_select_v3 aclnnMaskedSelect
    MaskedSelect 0 self, 2 out: floats f64 ints bool
    MaskedSelect 1 mask: u8 bool
ops-math conversion/mirror_pad aclnnReflectionPad1d
    ReflectionPad1d 0 self, 2 out: floats f64 ints bool complexes | 910A 310P: f32 f16 f64 ints bool
ops-math conversion/mirror_pad aclnnReflectionPad2d
    ReflectionPad2d 0 self, 2 out: floats f64 ints bool complexes | 910A 310P: f32 f16 f64 ints bool
ops-math conversion/mirror_pad aclnnReflectionPad3d
    ReflectionPad3d 0 self, 2 out: floats f64 ints bool complexes | 910A 310P: f32 f16 f64 ints bool
ops-math conversion/pack aclnnStack
    Stack 0 tensors, 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math conversion/pad_v3 aclnnConstantPadNd
    ConstantPadNd 0 self, 3 out: floats f64 ints u16 u32 u64 bool complexes
ops-math conversion/pad_v3 aclnnReplicationPad1d
    ReplicationPad1d 0 self, 2 out: floats f64 ints complexes
ops-math conversion/pad_v3 aclnnReplicationPad2d
    ReplicationPad2d 0 self, 2 out: floats f64 ints complexes
ops-math conversion/pad_v3 aclnnReplicationPad3d
    ReplicationPad3d 0 self, 2 out: floats f64 ints complexes
ops-math conversion/pad_v3_grad_replicate aclnnReflectionPad2dBackward
    ReflectionPad2dBackward 0 gradOutput, 1 self, 3 gradInput: floats f64 complexes
ops-math conversion/pad_v3_grad_replicate aclnnReplicationPad1dBackward
    ReplicationPad1dBackward 0 gradOutput, 1 self, 3 gradInput: floats f64 complexes
ops-math conversion/pad_v3_grad_replicate aclnnReplicationPad2dBackward
    ReplicationPad2dBackward 0 gradOutput, 1 self, 3 gradInput: floats f64 complexes
ops-math conversion/pad_v3_grad_replication aclnnReplicationPad3dBackward
    ReplicationPad3dBackward 0 gradOutput, 1 self, 3 gradInput: floats f64 complexes
ops-math conversion/pad_v4_grad aclnnReflectionPad1dBackward
    ReflectionPad1dBackward 0 gradOutput, 1 self, 3 gradInput: floats f64 complexes
ops-math conversion/reflection_pad3d_grad aclnnReflectionPad3dBackward
    ReflectionPad3dBackward 0 gradOutput, 1 self, 3 gradInput: floats f64 complexes
ops-math conversion/roll aclnnRoll
    Roll 0 x, 3 out: floats ints u32 bool
ops-math conversion/slice aclnnSlice
    Slice 0 self, 5 out: floats i8 i32 i64 u8 bool
ops-math conversion/split_v aclnnSplitTensor
    SplitTensor 0 self, 3 out: floats f64 ints u16 u32 u64 bool complexes
ops-math conversion/split_v aclnnSplitWithSize
    SplitWithSize 0 self, 3 out: floats f64 ints u16 u32 u64 bool complexes
ops-math conversion/transpose aclnnPermute
    Permute 0 self, 2 out: floats f64 ints u16 u32 u64 bool complexes | 910A: f32 f16 f64 ints u16 u32 u64 bool c64
ops-math conversion/tril aclnnTril&aclnnInplaceTril
    Tril 0 self, 2 out: floats f64 ints u16 u32 u64 bool c64
ops-math conversion/triu aclnnTriu&aclnnInplaceTriu
    Triu 0 self, 2 out: floats f64 ints u16 u32 u64 bool c64
ops-math conversion/view_copy aclnnInplaceCopy
    InplaceCopy 0 selfRef, 1 src: floats f64 ints u16 u32 u64 bool complexes
ops-math math/abs aclnnAbs
    Abs 0 self: floats f64 ints bool c64 | 910A 310P: f32 f16 f64 ints bool
    Abs 1 out: floats f64 ints bool
ops-math math/acos aclnnAcos&aclnnInplaceAcos
    Acos 0 input: floats f64 ints bool
    Acos 1 out: floats f64
ops-math math/acosh aclnnAcosh&aclnnInplaceAcosh
    Acosh 0 self: floats f64 ints bool complexes
    Acosh 1 out: floats f64 ints bool complexes | 910A 310P: f32 f16 f64 complexes
ops-math math/add aclnnAdd&aclnnInplaceAdd
    Add 0 self, 1 other, 3 out: floats f64 ints bool complexes
    InplaceAdd 0 selfRef, 1 other: floats f64 ints bool complexes
ops-math math/add aclnnAdds
    Adds 0 self, 3 out: floats f64 ints bool complexes
ops-math math/add aclnnInplaceAdds
    InplaceAdds 0 selfRef: floats f64 ints bool
ops-math math/addcdiv aclnnAddcdiv&aclnnInplaceAddcdiv
    Addcdiv 0 self, 1 tensor1, 2 tensor2, 4 out: floats f64 i64
ops-math math/addcmul aclnnAddcmul&aclnnInplaceAddcmul
    Addcmul 0 self, 1 tensor1, 2 tensor2, 4 out: floats f64 i8 i32 i64 u8
ops-math math/addr aclnnAddr&aclnnInplaceAddr
    InplaceAddr 0 selfRef, 1 vec1, 2 vec2: floats f64 ints bool
ops-math math/arg_max_v2 aclnnArgMax
    ArgMax 0 self: floats f64 ints
    ArgMax 3 out: i32 i64
ops-math math/arg_max_with_value aclnnMaxDim
    MaxDim 0 self, 3 out: floats i64 bool
    MaxDim 4 indices: i64
ops-math math/arg_min aclnnArgMin
    ArgMin 0 self: floats f64 ints
    ArgMin 3 out: i32 i64
ops-math math/arg_min_with_value aclnnMinDim
    MinDim 0 self, 3 out: floats i64 bool
    MinDim 4 indices: i32 i64
ops-math math/asin aclnnAsin&aclnnInplaceAsin
    Asin 0 self: floats f64 ints bool
    Asin 1 out: floats f64
ops-math math/asinh aclnnAsinh&aclnnInplaceAsinh
    Asinh 0 input: floats f64 ints bool complexes
    Asinh 1 out: floats f64 complexes
ops-math math/atan aclnnAtan&aclnnInplaceAtan
    Atan 0 input: floats f64 ints bool
    Atan 1 out: floats f64
ops-math math/atan2 aclnnAtan2&aclnnInplaceAtan2
    Atan2 0 self, 1 other: floats f64 ints bool
    Atan2 2 out: floats f64
ops-math math/atanh aclnnAtanh&aclnnInplaceAtanh
    Atanh 0 input: floats f64 ints bool complexes
    Atanh 1 out: floats f64 complexes
ops-math math/bincount aclnnBincount
    Bincount 0 self: ints
    Bincount 1 weights: f32 f16 f64 ints bool
    Bincount 3 out: f32 f64 i32 i64
ops-math math/bitwise_and aclnnBitwiseAndScalar
    BitwiseAndScalar 0 self: ints u16 bool
    BitwiseAndScalar 2 out: floats f64 ints u16 bool
ops-math math/bitwise_and aclnnBitwiseAndTensor
    BitwiseAndTensor 0 self, 1 other: ints u16 bool
    BitwiseAndTensor 2 out: ints u16 u32 u64 bool
ops-math math/bitwise_not aclnnBitwiseNot
    BitwiseNot 0 self, 1 out: ints bool
ops-math math/bitwise_or aclnnBitwiseOrScalar&aclnnInplaceBitwiseOrScalar
    BitwiseOrScalar 0 self: ints u16 bool
    BitwiseOrScalar 2 out: floats f64 ints u16 bool
ops-math math/bitwise_or aclnnBitwiseOrTensor&aclnnInplaceBitwiseOrTensor
    BitwiseOrTensor 0 self, 1 other, 2 out: ints u16 u32 u64 bool
ops-math math/bitwise_xor aclnnBitwiseXorScalar&aclnnInplaceBitwiseXorScalar
    BitwiseXorScalar 0 self: ints bool
    BitwiseXorScalar 2 out: floats f64 ints bool
ops-math math/bitwise_xor aclnnBitwiseXorTensor&aclnnInplaceBitwiseXorTensor
    BitwiseXorTensor 0 self, 1 other: ints bool
    BitwiseXorTensor 2 out: floats f64 ints bool
ops-math math/cast aclnnCast
    Cast 0 self, 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/cdist aclnnCdist
    Cdist 0 x1, 1 x2, 3 out: floats
ops-math math/ceil aclnnCeil&aclnnInplaceCeil
    Ceil 0 self, 1 out: floats f64
ops-math math/cos aclnnCos&aclnnInplaceCos
    Cos 0 input: floats f64 ints bool complexes
    Cos 1 out: floats f64 complexes
ops-math math/cosh aclnnCosh&aclnnInplaceCosh
    Cosh 0 self: floats f64 ints bool complexes
    Cosh 1 out: floats f64 ints bool complexes | 910A 310P: f32 f16 f64 complexes
ops-math math/cross aclnnLinalgCross
    LinalgCross 0 self, 1 other, 3 out: floats f64 ints complexes
ops-math math/cummax aclnnCummax
    Cummax 0 self, 2 valuesOut: floats f64 ints bool
    Cummax 3 indicesOut: i32 i64
ops-math math/cummin aclnnCummin
    Cummin 0 self, 2 valuesOut: floats f64 ints bool
    Cummin 3 indicesOut: i32 i64
ops-math math/cumsum aclnnCumsum
    Cumsum 0 self, 3 out: floats f64 ints complexes
ops-math math/div aclnnDiv&aclnnInplaceDiv
    Div 0 self, 1 other, 2 out: floats f64 ints bool complexes
    InplaceDiv 0 selfRef, 1 other: floats f64 ints bool complexes
ops-math math/div aclnnDivMod&aclnnInplaceDivMod
    DivMod 0 self, 1 other, 3 out: floats f64 ints bool complexes
    InplaceDivMod 0 selfRef: f32 f16 f64 ints bool complexes
    InplaceDivMod 1 other: f32 f16 f64 ints bool
ops-math math/div aclnnDivMods&aclnnInplaceDivMods
    DivMods 0 self: floats f64 ints bool complexes
    DivMods 3 out: f32 f16 f64 ints bool complexes
    InplaceDivMods 0 selfRef: floats f64 ints bool complexes
ops-math math/div aclnnDivs&aclnnInplaceDivs
    Divs 0 self, 2 out: floats f64 ints bool complexes
    InplaceDivs 0 selfRef: floats f64 ints bool complexes
ops-math math/dot aclnnDot
    Dot 0 self, 1 tensor, 2 out: floats i8 i32 u8
ops-math math/equal aclnnEqScalar&aclnnInplaceEqScalar
    EqScalar 0 self, 2 out: floats f64 ints bool complexes
ops-math math/equal aclnnEqTensor&aclnnInplaceEqTensor
    EqTensor 0 self, 1 other, 2 out: floats f64 ints bool complexes
ops-math math/erf aclnnErf&aclnnInplaceErf
    Erf 0 self: floats f64 i64 bool
    Erf 1 out: floats f64
ops-math math/erfc aclnnErfc&aclnnInplaceErfc
    Erfc 0 self: floats f64 i64 bool
    Erfc 1 out: floats f64
ops-math math/exp aclnnExp&aclnnInplaceExp
    Exp 0 self: floats f64 i64 bool complexes
    Exp 1 out: floats f64 complexes
    InplaceExp 0 selfRef: floats f64 complexes
ops-math math/expand aclnnExpand
    Expand 0 self, 2 out: floats i8 i32 i64 u8 bool
ops-math math/expm1 aclnnExpm1&aclnnInplaceExpm1
    Expm1 0 self: floats i64 bool
    Expm1 1 out: floats f64
ops-math math/eye aclnnEye
    Eye 2 out: floats ints bool
ops-math math/floor aclnnFloor&aclnnInplaceFloor
    Floor 0 self, 1 out: floats f64 ints u16 u32 u64
    InplaceFloor 0 selfRef: floats f64 ints u16 u32 u64
ops-math math/floor_div aclnnFloorDivide&aclnnInplaceFloorDivide
    FloorDivide 0 self, 1 other: floats f64 ints bool
    FloorDivide 2 out: floats f64 ints complexes
    InplaceFloorDivide 0 selfRef, 1 other: floats f64 ints bool
ops-math math/floor_div aclnnFloorDivides&aclnnInplaceFloorDivides
    FloorDivides 0 self, 2 out: floats f64 ints bool
    InplaceFloorDivides 0 selfRef: floats f64 ints bool
ops-math math/floor_mod aclnnRemainderScalarTensor
    RemainderScalarTensor 1 other, 2 out: floats f64 i32 i64
ops-math math/floor_mod aclnnRemainderTensorScalar&aclnnInplaceRemainderTensorScalar
    InplaceRemainderTensorScalar 0 selfRef: floats f64 i32 i64
    RemainderTensorScalar 0 self: floats f64 i32 i64
    RemainderTensorScalar 2 out: floats f64 ints complexes
ops-math math/floor_mod aclnnRemainderTensorTensor&aclnnInplaceRemainderTensorTensor
    InplaceRemainderTensorTensor 0 selfRef, 1 other: floats f64 i32 i64
    RemainderTensorTensor 0 self, 1 other: floats f64 i32 i64
    RemainderTensorTensor 2 out: floats f64 ints complexes
ops-math math/gcd aclnnGcd
    Gcd 0 self, 1 other: ints
    Gcd 2 out: ints u16 u32 u64
ops-math math/greater aclnnGtTensor&aclnnInplaceGtTensor
    GtTensor 0 self, 1 other: floats f64 ints u16 u32 u64 bool
    GtTensor 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/greater_equal aclnnGeScalar&aclnnInplaceGeScalar
    GeScalar 0 self: floats f64 ints u16 u32 u64 bool
    GeScalar 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/greater_equal aclnnGeTensor&aclnnInplaceGeTensor
    GeTensor 0 self, 1 other: floats f64 ints u16 u32 u64 bool
    GeTensor 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/histogram_v2 aclnnHistc
    Histc 0 self, 4 out: f32 f16 ints
ops-math math/is_close aclnnIsClose
    IsClose 0 self, 1 other: floats f64 ints bool
    IsClose 3 out: bool
ops-math math/is_finite aclnnIsFinite
    IsFinite 0 self: floats f64 ints bool
    IsFinite 1 out: bool
ops-math math/is_inf aclnnIsInf
    IsInf 0 x: floats f64 ints bool
    IsInf 1 out: bool
ops-math math/is_neg_inf aclnnIsNegInf
    IsNegInf 0 self: floats f64 ints bool
    IsNegInf 1 out: bool
ops-math math/kl_div_v2 aclnnKlDiv
    KlDiv 0 self, 1 target, 4 out: floats
ops-math math/left_shift aclnnLeftShift
    LeftShift 0 self, 1 shiftBits, 2 out: ints u16 u32 u64
ops-math math/lerp aclnnLerp&aclnnInplaceLerp
    Lerp 0 self, 1 end, 2 weight, 3 out: floats
ops-math math/lerp aclnnLerps&aclnnInplaceLerps
    Lerps 0 self, 1 end: floats
    Lerps 3 out: floats f64
ops-math math/less aclnnLtScalar&aclnnInplaceLtScalar
    LtScalar 0 self: floats f64 ints u16 u32 u64 bool
    LtScalar 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/less aclnnLtTensor&aclnnInplaceLtTensor
    LtTensor 0 self, 1 other: floats f64 ints u16 u32 u64 bool
    LtTensor 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/less_equal aclnnLeTensor&aclnnInplaceLeTensor
    LeTensor 0 self, 1 other: floats f64 ints u16 bool
    LeTensor 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/lin_space aclnnLinspace
    Linspace 3 out: floats f64 ints | 910A 310P: f32 f16 f64 i8 i32 u8
ops-math math/log aclnnLog&aclnnInplaceLog
    InplaceLog 0 selfRef: floats f64 complexes
    Log 0 self: floats f64 ints bool complexes
    Log 1 out: floats f64 complexes
ops-math math/log aclnnLog10&aclnnInplaceLog10
    Log10 0 self: floats f64 ints bool complexes
    Log10 1 out: floats f64 complexes
ops-math math/log aclnnLog2&aclnnInplaceLog2
    Log2 0 self: floats f64 ints bool complexes
    Log2 1 out: floats f64 complexes
ops-math math/log1p aclnnLog1p&aclnnInplaceLog1p
    Log1p 0 self: floats f64 ints bool
    Log1p 1 out: floats f64
ops-math math/log_add_exp aclnnLogAddExp
    LogAddExp 0 self, 1 other: floats f64 ints u16 u32 u64 bool
    LogAddExp 2 out: floats
ops-math math/log_add_exp aclnnLogAddExp2
    LogAddExp2 0 self, 1 other: floats f64 ints u16 u32 u64 bool
    LogAddExp2 2 out: floats
ops-math math/logical_and aclnnLogicalAnd&aclnnInplaceLogicalAnd
    LogicalAnd 0 self, 1 other, 2 out: floats f64 ints bool complexes
ops-math math/logical_not aclnnLogicalNot&aclnnInplaceLogicalNot
    LogicalNot 0 self, 1 out: floats f64 ints bool
ops-math math/logical_or aclnnLogicalOr&aclnnInplaceLogicalOr
    LogicalOr 0 self, 1 other, 2 out: floats f64 ints bool complexes
ops-math math/maximum aclnnMaximum
    Maximum 0 self, 1 other, 2 out: floats f64 ints bool
ops-math math/minimum aclnnMinimum
    Minimum 0 self: floats f64 ints bool | 910A 310P: f32 f16 f64 ints
    Minimum 1 other, 2 out: floats f64 ints bool
ops-math math/mod aclnnFmodScalar&aclnnInplaceFmodScalar
    FmodScalar 0 self, 2 out: floats f64 i8 i32 i64 u8
ops-math math/mod aclnnFmodTensor&aclnnInplaceFmodTensor
    FmodTensor 0 self, 1 other, 2 out: floats f64 i8 i32 i64 u8
ops-math math/mul aclnnMul&aclnnInplaceMul
    InplaceMul 0 selfRef, 1 other: floats f64 ints bool complexes
    Mul 0 self, 1 other, 2 out: floats f64 ints bool complexes
ops-math math/muls aclnnMuls&aclnnInplaceMuls
    InplaceMuls 0 selfRef: floats f64 ints bool complexes
    Muls 0 self, 2 out: floats f64 ints bool complexes
ops-math math/nan_to_num aclnnNanToNum&aclnnInplaceNanToNum
    NanToNum 0 self, 1 out: floats ints bool
ops-math math/neg aclnnNeg&aclnnInplaceNeg
    Neg 0 self, 1 out: floats f64 i8 i32 i64 complexes
ops-math math/not_equal aclnnLogicalXor
    LogicalXor 0 self, 1 other, 2 out: floats f64 ints bool complexes
ops-math math/not_equal aclnnNeScalar&aclnnInplaceNeScalar
    NeScalar 0 self, 2 out: floats f64 ints bool complexes
ops-math math/not_equal aclnnNeTensor&aclnnInplaceNeTensor
    NeTensor 0 self, 1 other: floats f64 ints u64 bool complexes
    NeTensor 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/one_hot aclnnOneHot
    OneHot 0 self: i32 i64 | 910A 310P: i32 i64 u8
    OneHot 2 onValue, 3 offValue, 5 out: f32 f16 i32 i64 | 910A 310P: f32 f16 i8 i32 i64 u8
ops-math math/ones_like aclnnInplaceOne
    InplaceOne 0 selfRef: floats f64 ints u16 bool
ops-math math/polar aclnnPolar
    Polar 0 input, 1 angle: f32
    Polar 2 out: c64
ops-math math/pow aclnnExp2&aclnnInplaceExp2
    Exp2 0 self: floats f64 ints bool
    Exp2 1 out: floats f64
ops-math math/pow aclnnPowScalarTensor
    PowScalarTensor 1 exponent: floats f64 ints complexes
    PowScalarTensor 2 out: floats f64 ints u16 u32 u64 complexes
ops-math math/pow aclnnPowTensorScalar&aclnnInplacePowTensorScalar
    PowTensorScalar 0 self: floats f64 ints bool complexes
    PowTensorScalar 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/pow aclnnPowTensorTensor&aclnnInplacePowTensorTensor
    PowTensorTensor 0 self, 1 exponent: floats f64 ints bool complexes
    PowTensorTensor 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/qr aclnnLinalgQr
    LinalgQr 0 self, 2 Q, 3 R: f32 f16 f64 complexes
ops-math math/range aclnnArange
    Arange 3 out: floats f64 i32 i64
ops-math math/reciprocal aclnnReciprocal&aclnnInplaceReciprocal
    Reciprocal 0 self: floats f64 ints bool complexes
    Reciprocal 1 out: floats f64 complexes
ops-math math/reduce_all aclnnAll
    All 0 self: floats f64 ints bool
    All 3 out: u8 bool
ops-math math/reduce_any aclnnAny
    Any 0 self: floats f64 ints bool
    Any 3 out: bool
ops-math math/reduce_log_sum_exp aclnnLogSumExp
    LogSumExp 0 self: floats ints bool
    LogSumExp 3 out: floats
ops-math math/reduce_max aclnnAmax
    Amax 0 self, 3 out: floats f64 ints bool
ops-math math/reduce_max aclnnMax
    Max 0 self, 1 out: floats f64 ints bool
ops-math math/reduce_mean aclnnMean
    Mean 0 self, 4 out: floats f64 ints complexes
ops-math math/reduce_min aclnnAmin
    Amin 0 self, 3 out: floats f64 ints bool
ops-math math/reduce_min aclnnMin
    Min 0 self, 1 out: floats f64 ints bool
ops-math math/reduce_nansum aclnnReduceNansum
    ReduceNansum 0 self, 4 out: floats ints bool
ops-math math/reduce_prod aclnnProd
    Prod 0 self, 2 out: floats f64 ints bool complexes
ops-math math/reduce_prod aclnnProdDim
    ProdDim 0 self, 4 out: floats f64 ints bool complexes
ops-math math/reduce_std_v2 aclnnStd
    Std 0 self, 4 out: floats
ops-math math/reduce_std_with_mean aclnnBatchNormStats
    BatchNormStats 0 input: f32 f16
    BatchNormStats 1 mean, 2 invstd: f32
ops-math math/reduce_std_with_mean aclnnStdMeanCorrection
    StdMeanCorrection 0 self, 4 stdOut, 5 meanOut: floats
ops-math math/reduce_sum aclnnReduceSum
    ReduceSum 0 self, 4 out: floats f64 ints bool complexes
ops-math math/reduce_var aclnnVarCorrection
    VarCorrection 0 self, 4 out: floats
ops-math math/reduce_var aclnnVarMean
    VarMean 0 self, 4 varOut, 5 meanOut: floats
ops-math math/round aclnnRoundDecimals&aclnnInplaceRoundDecimals
    RoundDecimals 0 self, 2 out: floats f64 i32 i64
ops-math math/rsqrt aclnnRsqrt&aclnnInplaceRsqrt
    Rsqrt 0 self: floats f64 ints bool complexes
    Rsqrt 1 out: floats f64 complexes
ops-math math/search_sorted aclnnSearchSorted
    SearchSorted 0 sortedSequence, 1 self: f32 f16 f64 ints
    SearchSorted 4 sorter: i64
    SearchSorted 5 out: i32 i64
ops-math math/select aclnnSWhere
    SWhere 0 condition: u8 bool
    SWhere 1 self, 2 other, 3 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/sign aclnnSign
    Sign 0 self, 1 result: floats f64 i32 i64 bool complexes
ops-math math/silent_check aclnnSilentCheck
    SilentCheck 0 val, 1 inputGradRef: floats
    SilentCheck 2 sfdaRef: f32
    SilentCheck 3 stepRef: i64
    SilentCheck 6 result: i32
ops-math math/silent_check_v2 aclnnSilentCheckV2
    SilentCheckV2 0 val, 1 max, 2 avgRef, 3 inputGradRef: floats
    SilentCheckV2 4 stepRef: i64
    SilentCheckV2 9 result: i32
ops-math math/sin aclnnSin&aclnnInplaceSin
    Sin 0 self: floats f64 ints bool complexes
    Sin 1 out: floats f64 complexes
ops-math math/sinc aclnnSinc&aclnnInplaceSinc
    Sinc 0 self: floats f64 ints bool
    Sinc 1 out: floats f64
ops-math math/sinh aclnnSinh&aclnnInplaceSinh
    Sinh 0 self: floats f64 ints bool complexes
    Sinh 1 out: floats f64 complexes
ops-math math/sort aclnnSort
    Sort 0 self: floats ints bool
    Sort 4 valuesOut: floats f64 ints bool
    Sort 5 indicesOut: i64
ops-math math/sqrt aclnnSqrt&aclnnInplaceSqrt
    Sqrt 0 self: floats f64 ints bool complexes
    Sqrt 1 out: floats f64 complexes
ops-math math/sub aclnnFrac&aclnnInplaceFrac
    Frac 0 input, 1 out: floats ints
ops-math math/sub aclnnSub&aclnnInplaceSub
    InplaceSub 0 selfRef, 1 other: floats f64 ints bool complexes
    Sub 0 self, 1 other, 3 out: floats f64 ints bool complexes
ops-math math/sub aclnnSubs&aclnnInplaceSubs
    InplaceSubs 0 selfRef: floats f64 ints bool complexes
    Subs 0 self, 3 out: floats f64 ints bool complexes
ops-math math/tan aclnnTan&aclnnInplaceTan
    Tan 0 self: floats f64 ints bool complexes | 910A 310P: f32 f16 f64 ints bool c128
    Tan 1 out: floats f64 complexes | 910A 310P: f32 f16 f64 c128
ops-math math/tanh aclnnTanh&aclnnInplaceTanh
    InplaceTanh 0 selfRef: floats
    Tanh 0 self: floats ints bool
    Tanh 1 out: floats
ops-math math/tanh_grad aclnnTanhBackward
    TanhBackward 0 gradOutput, 1 output, 2 gradInput: floats f64
ops-math math/tensor_equal aclnnEqual
    Equal 0 self, 1 other: floats f64 ints u16 u32 u64 bool
ops-math math/tile aclnnRepeat
    Repeat 0 self, 2 out: floats f64 ints u16 u32 u64 bool complexes
ops-math math/topk aclnnTopk
    Topk 0 self: floats f64 ints
    Topk 5 valuesOut: floats f64 ints u16 u32 u64
    Topk 6 indicesOut: i64
ops-math math/trace aclnnTrace
    Trace 0 self: floats f64 ints bool complexes
    Trace 1 out: floats f64 i64 complexes
ops-math math/triangular_solve aclnnTriangularSolve
    TriangularSolve 0 self, 1 A, 5 xOut, 6 mOut: f32 f64 complexes
ops-math math/trunc aclnnTrunc&aclnnInplaceTrunc
    Trunc 0 self, 1 out: floats
ops-math math/xlogy aclnnXLogYScalarOther&aclnnInplaceXLogYScalarOther
    XLogYScalarOther 0 self: floats ints bool
    XLogYScalarOther 2 out: floats
ops-math math/xlogy aclnnXLogYScalarSelf
    XLogYScalarSelf 1 other: floats f64 ints bool
    XLogYScalarSelf 2 out: floats
ops-math math/xlogy aclnnXLogYTensor&aclnnInplaceXLogYTensor
    XLogYTensor 0 self, 1 other, 2 out: floats ints bool
ops-math math/zero_op aclnnInplaceZero
    InplaceZero 0 selfRef: floats f64 ints u16 bool complexes
ops-math random/drop_out_do_mask aclnnDropoutDoMask
    DropoutDoMask 0 self, 2 out: floats
    DropoutDoMask 1 mask: u8
ops-math random/dsa_gen_bit_mask aclnnDropout
    Dropout 0 input, 4 out: floats
    Dropout 5 maskOut: u8
ops-math random/dsa_gen_bit_mask aclnnDropoutGenMaskV2
    DropoutGenMaskV2 4 out: u8
ops-math random/dsa_random_normal aclnnInplaceNormal
    InplaceNormal 0 selfRef: floats f64
ops-math random/dsa_random_uniform aclnnInplaceRandom
    InplaceRandom 0 selfRef: floats f64 ints bool complexes
ops-math random/dsa_random_uniform aclnnInplaceUniform
    InplaceUniform 0 selfRef: floats f64 ints
ops-math random/stateless_bernoulli aclnnBernoulli&aclnnInplaceBernoulli
    InplaceBernoulli 0 selfRef: floats f64 ints bool
ops-math random/stateless_bernoulli aclnnBernoulliTensor&aclnnInplaceBernoulliTensor
    InplaceBernoulliTensor 0 selfRef: f32 f16 f64 ints bool
    InplaceBernoulliTensor 1 prob: f32 f16 f64
ops-math random/stateless_random_normal_v2 aclnnNormalFloatFloat
    NormalFloatFloat 2 out: floats f64
ops-math random/stateless_random_normal_v2 aclnnNormalFloatTensor
    NormalFloatTensor 0 std, 3 out: floats f64
ops-math random/stateless_random_normal_v2 aclnnNormalTensorFloat
    NormalTensorFloat 0 mean, 3 out: floats f64
ops-math random/stateless_random_normal_v2 aclnnNormalTensorTensor
    NormalTensorTensor 0 mean, 1 std, 4 out: floats f64
ops-math random/stateless_randperm aclnnRandperm
    Randperm 3 out: floats f64 ints
ops-math random/stateless_sample_multinomial aclnnMultinomial
    Multinomial 0 self: floats f64
    Multinomial 5 out: i64
"""
