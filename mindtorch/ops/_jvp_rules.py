"""Forward-mode rules of primitives, loaded when the first dual level is opened.

By default, a view takes the same view of the tangent, a real elementwise function uses its gradient
rule, and the rule of any other primitive is derived from its gradient rule. This module lists the
exceptions. Linear primitives are applied to the tangent, which is faster. Ops whose result depends
on their operands but that have no gradient rule raise an error.
"""
from mindtorch.core.autograd import forward_ad
from mindtorch.core.dispatch.op_schema import OPS
from mindtorch.core.dispatch.primitives import PRIMITIVES

#: linear in all differentiable operands jointly
_LINEAR = """
    cat stack clone clone_format copies to_copy to_copy_format to_device transposed_copy unsafe_view unsafe_transpose squeeze_batch unsqueeze_batch
    broadcast expand_elements repeat repeat_interleave roll flip flip_axis shift diag_embed trace tril triu diff cumsum cumsum_backward pair_sums
    sum_all sum_dims sum_elements mean_all mean_dims mean_upcast mean_elements sum_to_size expand_reduced expand_channels expand_rows column_sum channel_sum
    gather index_select take index_1 index_2 index_3 masked_select masked_pick pick_rows embedding embedding_sparse gather_flat
    gather_backward index_select_backward take_backward index_backward_1 index_backward_2 index_backward_3 masked_select_backward slice_backward
    diagonal_backward unfold_backward trace_backward
    read_region scatter_region copy_slices slice_scatter select_scatter diagonal_scatter as_strided_scatter index_copy scatter scatter_add
    fft_c2c fft_r2c fft_r2c_full fft_c2r im2col col2im pixel_shuffle pixel_unshuffle native_channel_shuffle pad_by_index pad_by_index_backward
    avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_nearest_exact1d upsample_nearest_exact2d upsample_nearest_exact3d
    upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d upsample_bilinear2d_aa upsample_bicubic2d_aa
    max_unpool real_copy conj neg
"""
#: linear in each of the first two operands; a third is added
_BILINEAR = "mm bmm linear matmul_rows fold mv vm dot outer einsum convolution convolution_transposed convolution_weight"


def _bilinear(ctx, tangents):
    f, kw = ctx._prim.function, {k: ctx._attrs[k] for k in ctx._prim.attrs}
    names = ctx._prim.inputs
    a, b = (getattr(ctx, n) for n in names[:2])
    bias = () if len(names) < 3 else (tangents.get(2),)
    parts = []
    if 0 in tangents:
        parts.append(f(tangents[0], b, *bias, **kw))
        bias = bias and (None,)
    if 1 in tangents:
        parts.append(f(a, tangents[1], *bias, **kw))
    if not parts:
        return forward_ad.derived(ctx._prim, [getattr(ctx, n) for n in names], kw, ctx.out, tangents)
    return parts[0] if len(parts) == 1 else parts[0].add(parts[1])


# ------------------------------------------------------------------ special rules
def _cholesky(ctx, tangents):
    """Returns L S, where S is L^-1 dA L^-H with a halved diagonal and without its upper triangle.
    (The derived rule gives the same for Hermitian dA.)"""
    f = ctx.out.mH if ctx.upper else ctx.out
    s = solve_triangular(f, tangents[0], upper=False)
    s = solve_triangular(f.mH, s, upper=True, left=False).tril()
    t = f @ (s - (s.diagonal(dim1=-2, dim2=-1) * 0.5).diag_embed())
    return t.mH if ctx.upper else t


def _eigh(ctx, tangents):
    """Returns the diagonal of P = V^H dA V, and V times the off-diagonal part of P divided by E,
    with E_ij = l_j - l_i."""
    values, v = ctx.out0, ctx.out1
    p = v.mH @ (tangents[0] @ v)
    on = p.diagonal(dim1=-2, dim2=-1)
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    gaps = gaps + ones_like(values).diag_embed()
    return on.real.clone() if on.is_complex() else on.clone(), v @ ((p - on.diag_embed()) / gaps)


def _vector_norm(ctx, tangents):
    """Tangent of a norm; 0 where the norm is 0 and has no derivative."""
    a, y, p = ctx.a, ctx.out, ctx.p
    if p == 2:
        t = tangents[0]
        t = (a.conj() * t).real if a.is_complex() else a * t
        t = t.sum(ctx.axes, ctx.keepdim, dtype=y.dtype) if ctx.axes is not None else t.sum(dtype=y.dtype).reshape(y.shape)
        return where(y == 0, 0.0, t / y).to(y.dtype)
    t, = forward_ad.derived(ctx._prim, [a], ctx._attrs, y, tangents)
    return t if p in (0, 1, float("inf"), -float("inf")) else where(y == 0, 0.0, t).to(y.dtype)


where, ones_like, solve_triangular = (OPS[n].fn for n in ("where", "ones_like", "linalg.solve_triangular"))
for _name, _rule in {"linalg_cholesky": _cholesky, "linalg_cholesky_ex": _cholesky, "linalg_eigh": _eigh, "linalg_vector_norm": _vector_norm}.items():
    PRIMITIVES[_name].prim.forward = _rule
PRIMITIVES["scatter_count"].prim.forward = "constant"
for _name in _LINEAR.split():
    PRIMITIVES[_name].prim.forward = "linear"
for _name in _BILINEAR.split():
    PRIMITIVES[_name].prim.forward = _bilinear

forward_ad.REFUSED.update({
    "cdist": "_cdist_forward", "pdist": "_pdist_forward", "nn.functional.pdist": "_pdist_forward", "cholesky": "cholesky", "ormqr": "ormqr",
    "geqrf": "geqrf", "index_reduce": "index_reduce", "segment_reduce": "segment_reduce", "scatter": ("aten::scatter", "reduce"),
    "unique": "_unique2", "unique_consecutive": "unique_consecutive", "histogram": "aten::histogram", "histogramdd": "aten::_histogramdd_bin_edges",
    "to_sparse": "_to_sparse", "nonzero_static": "aten::nonzero_static", "igamma": "igamma", "igammac": "igammac", "special.gammainc": "igamma",
    "special.gammaincc": "igammac", "heaviside": "aten::heaviside", "floor_divide": "aten::floor_divide", "special.zeta": "special_zeta",
    "binomial": "aten::binomial", "linalg.ldl_factor": "aten::linalg_ldl_factor_ex", "linalg.ldl_factor_ex": "aten::linalg_ldl_factor_ex",
    "linalg.ldl_solve": "aten::linalg_ldl_solve", "set": "set_",
    "nn.functional.embedding_bag": "_embedding_bag", "embedding_bag": "_embedding_bag", "nn.functional.grid_sample": "grid_sampler_2d",
    "grid_sampler": "grid_sampler_2d", "grid_sampler_2d": "grid_sampler_2d", "grid_sampler_3d": "grid_sampler_3d",
    "nn.functional.ctc_loss": "_ctc_loss", "ctc_loss": "_ctc_loss", "nn.functional.multi_margin_loss": "multi_margin_loss",
    "nn.functional.multilabel_margin_loss": "multilabel_margin_loss_forward",
})
