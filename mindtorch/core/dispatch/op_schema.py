"""Entries of the op table (filled by core/dispatch/op_registry.py), and the kinds of ops' number arguments."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

#: qualified name ("add", "nn.functional.relu", "linalg.inv") -> OpSchema
OPS: dict[str, OpSchema] = {}

#: Tag of an op or a primitive -> its meaning. The names are those of torch.Tag where it has one;
#: `linear_pointwise` and `metadata_only` are mindtorch's.
TAGS = {
    "pointwise": "each element of the result depends on the same element of the broadcast operands only",
    "linear_pointwise": "pointwise, and linear: partial sums of operands give partial sums of the result",
    "reduction": "reduces dimensions of its operand",
    "view": "the result shares memory with its first operand",
    "inplace_view": "changes the metadata of its operand in place, not its values",
    "metadata_only": "depends on the operands' metadata only, never on their values",
    "data_dependent_output": "passes values of tensors to or from Python",
    "dynamic_output_shape": "the shape of the result depends on the operands' values",
    "nondeterministic_seeded": "draws random numbers from a generator",
    "core": "belongs to the core set of ops: others are decomposed into these",
}
_IMPLIED = {"linear_pointwise": "pointwise"}

#: Condition under which a call has an op's tag "data_dependent_output" or "dynamic_output_shape" ->
#: its meaning.
CONDITIONS = {
    "of tensors": "if an argument after the first is a tensor",
    "if alone": "if there are no further arguments",
    "unless told": "if no further argument is a number",
}


def parse_tags(tags: str) -> frozenset[str]:
    """Returns the tags in a space-separated string, with those that they imply.

    Raises ValueError for a name that `TAGS` does not contain.
    """
    found = set(tags.split())
    unknown = sorted(found - TAGS.keys())
    if unknown:
        raise ValueError(f"unknown tag {unknown[0]!r}; the tags are {', '.join(TAGS)}")
    return frozenset(found | {_IMPLIED[t] for t in found if t in _IMPLIED})


def tagged(tag: str) -> frozenset[str]:
    """Returns the qualified names of the ops with a tag, aliases included.

    `core/dispatch/primitives.py` has the same function for primitives.
    """
    parse_tags(tag)
    return frozenset([name for name, o in OPS.items() if tag in o.tags])


class OpSchema:
    """Entry of the op table: everything that is declared about an op."""

    __slots__ = ("name", "ns", "body", "fn", "public", "method", "inplace", "out", "aliases", "autocast", "overlap", "tags", "condition",
                 "aten", "writes", "expanded", "main")
    name: str
    ns: str
    body: Callable[..., Any]  # the declared function
    fn: Callable[..., Any]  # the function that ops call
    public: Callable[..., Any] | None        # torch.<qualname>
    method: bool
    inplace: bool | str
    out: Any                                 # False, True, "dtype_from_out" or core/dispatch/op_registry.py's `Same`
    aliases: tuple[str, ...]
    autocast: str | Callable[..., str | None] | None
    overlap: str | None
    tags: frozenset[str]                     # names of TAGS
    condition: str | None                    # of CONDITIONS
    #: aten's name, if it is not `name`, or (aten's name, parameters in the order of aten's schema);
    #: None: both are the op's own
    aten: str | tuple[str, ...] | None
    writes: tuple[str, object] | None
    expanded: Callable[..., object] | None
    main: OpSchema  # the op of which this is an alias, or itself

    def __repr__(self) -> str:
        return f"<op {self.qualname}>"

    @property
    def qualname(self) -> str:
        return f"{self.ns}.{self.name}" if self.ns else self.name

    @property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.body)

    @property
    def sharding(self) -> str | None:
        """How distributed tensors are processed (torch/distributed/tensor), from the tags.

        "linear", "elementwise" (equally sharded operands are processed locally, for "linear" also
        partial sums) or "random" (each process would draw its own numbers); None: on full tensors.
        """
        tags = self.tags
        return ("linear" if "linear_pointwise" in tags else "elementwise" if "pointwise" in tags
                else "random" if "nondeterministic_seeded" in tags else None)

    @property
    def capture(self) -> str | None:
        """How torch.compile and torch.export capture the op, from its tags and condition.

        "meta", "values" or "sizes", followed by the condition; None: it is recorded.
        """
        tags = self.tags
        kind = "meta" if "metadata_only" in tags else "values" if "data_dependent_output" in tags else "sizes" if "dynamic_output_shape" in tags else None
        return f"{kind} {self.condition}" if self.condition else kind

    @property
    def lowering(self) -> Callable[..., Any] | None:
        """Lowering of the op for export formats (backend/export); None: decomposed."""
        from mindtorch.backend.export.lowering import LOWERINGS
        return LOWERINGS.get(self.main.qualname)


# ------------------------------------------------------------------ numbers
#
# PyTorch's op schemas define how a tensor is interpreted that is passed for a number. Here the
# parameter's name decides: aten uses one vocabulary with few exceptions
# (tests/ops/test_number_arguments.py compares both with PyTorch's schemas).
#
#     bool            no tensor
#     int             a 0-dim integer tensor
#     size            like int, or an integer tensor with a single element
#     index           a valid index: an integer or bool tensor with a single element
#     number, float   a 0-dim tensor
#
# None of them accepts a tensor that requires grad, because its gradient would be lost.
_NUMBER_KINDS = {
    "bool": """accumulate adjoint align_corners align_to_window assume_unique ceil_mode center check_errors compute_uv count_include_pad cudnn_enable
               cudnn_enabled density descending enable_gqa equal_nan full full_matrices hermitian implicit include_last_offset include_self increasing
               invert is_causal is_coalesced keepdim largest left log_input log_target non_blocking normalized onesided out_int32 periodic pin_memory
               pivot replacement return_complex return_counts return_inverse right scale_grad_by_freq some sorted sparse sparse_grad stable swap train
               training transpose transposed unbiased unitriangular unpack_data unpack_pivots unsafe upper use_input_stats with_replacement
               zero_infinity""",
    "int": """axis axis0 axis1 blank chunks col compute_mode decimals dim dim0 dim1 dim2 dimension divisor_override downscale_factor edge_order end_dim
              group hop_length ind interpolation_mode n_fft num_classes num_groups offset padding_mode pow r row start_dim steps
              upscale_factor win_length window_length bins""",
    "size": "C HxW N diagonal groups high ignore_index k length low m minlength n num_samples padding_idx split_size storage_offset",
    "number": """alpha beta correction end fill_value initial input_scale lambd max max_val maxnorm min min_val negative_slope ord scalar start step
                 threshold value""",
    "float": """atol base d delta dropout_p dx eps lower margin max_norm momentum nan neginf norm_type p posinf rcond rtol scale scales_h scales_w""",
}
_KINDS = {name: kind for kind, names in _NUMBER_KINDS.items() for name in names.split()}

#: op -> parameters with another kind there; "" where a tensor selects another overload, or where
#: the op's body checks the argument itself
_KIND_EXCEPTIONS = {
    **dict.fromkeys(["gradient", "max", "min"], {"dim": ""}),
    **dict.fromkeys("""sum mean nansum nanmean squeeze squeeze_copy amax amin std var std_mean var_mean norm frobenius_norm nuclear_norm linalg.vector_norm
                       linalg.matrix_norm linalg.norm fft.fft2 fft.fftn fft.hfft2 fft.hfftn
                       fft.rfft2 fft.rfftn fft.ifft2 fft.ifftn fft.ihfft2 fft.ihfftn fft.irfft2 fft.irfftn fft.fftshift
                       fft.ifftshift""".split(), {"dim": "index"}),
    **dict.fromkeys(["clamp", "clip", "clamp_max", "clamp_min"], {"min": "", "max": ""}),
    **dict.fromkeys(["add", "sub"], {"alpha": ""}),  # the body checks an alpha other than 1
    **dict.fromkeys(["linspace", "logspace"], {"start": "", "end": ""}),
    **dict.fromkeys(["fill", "index_fill", "masked_fill", "scaled_dot_product_attention", "nn.functional.scaled_dot_product_attention",
                     "_foreach_addcdiv", "_foreach_addcmul"], {"value": ""}),
    **dict.fromkeys(["linalg.matrix_rank", "linalg.pinv"], {"atol": "", "rtol": "", "rcond": ""}),
    **dict.fromkeys(["histogram", "histogramdd"], {"bins": ""}),
    **dict.fromkeys(["select", "select_copy", "select_scatter"], {"index": "size"}),
    **dict.fromkeys(["slice_copy", "slice_inverse", "slice_scatter"], {"start": "size", "end": "size", "step": "size"}),
    **dict.fromkeys(["unfold", "unfold_copy"], {"size": "int", "step": "int"}),
    **dict.fromkeys(["rrelu", "nn.functional.rrelu"], {"upper": "number"}),
    **dict.fromkeys(["diff", "matrix_power", "linalg.matrix_power", "polygamma", "special.polygamma", "fft.fftfreq", "fft.rfftfreq"], {"n": "int"}),
    **dict.fromkeys(["mvlgamma", "special.multigammaln"], {"p": "int"}),
    **dict.fromkeys(["_embedding_bag", "_embedding_bag_forward_only", "embedding_bag", "nn.functional.embedding_bag"],
                    {"padding_idx": "int", "mode": "int"}),
    **dict.fromkeys(["conv_tbc", "nn.functional.conv_tbc"], {"pad": "int"}),
    **dict.fromkeys(["normal_", "log_normal_"], {"mean": "float", "std": "float"}),
    "cauchy_": {"median": "float", "sigma": "float"}, "uniform_": {"to": "float"}, "__setitem__": {"value": ""}, "logsumexp": {"dim": "index"},
    "special.logsumexp": {"dim": "index"}, "stft": {"center": ""}, "lerp": {"end": ""}, "bernoulli": {"p": ""},
    "_dirichlet_grad": {"alpha": ""}, "narrow": {"start": ""}, "narrow_copy": {"start": "size"},
    "randint_like": {"high": ""}, "cov": {"correction": "int"}, "nonzero_static": {"size": "size", "fill_value": "int"}, "scalar_tensor": {"s": "number"},
    "_convert_indices_from_coo_to_csr": {"size": "int"},
    "repeat_interleave": {"output_size": "size"}, "hash_tensor": {"mode": "int", "dim": "index"}, "istft": {"length": "int"}, "rot90": {"k": "int"},
    "vander": {"N": "int"}, "diag": {"diagonal": "int"},
}

#: composed of other Python calls, in PyTorch too: those calls check the arguments
_COMPOSED = frozenset(("normalize local_response_norm gaussian_nll_loss multi_head_attention_forward "
                       "triplet_margin_with_distance_loss pca_lowrank svd_lowrank").split())


def arg_kind(op: str, parameter: str) -> str:
    """Returns the kind of an op's parameter, or "" for one that is not a number.

    The kinds are "bool", "int", "size", "index", "number" and "float".
    """
    # in-place forms use the same entry
    other = _KIND_EXCEPTIONS.get(op) or _KIND_EXCEPTIONS.get(op.rstrip("_"))
    if other is not None and parameter in other:
        return other[parameter]
    if parameter == "n" and "polynomial" in op or op.startswith("masked.") or op.rpartition(".")[2] in _COMPOSED:
        return ""
    return _KINDS.get(parameter, "")


def arg_kinds(op: str, parameters: Iterable[str]) -> dict[str, str]:
    """Returns the number parameters among an op's parameters, with their kinds."""
    return {p: k for p in parameters if (k := arg_kind(op, p))}
