"""torch.nn.attention.flex_attention: names that refuse when they are used."""
from mindtorch.torch._refusing import refuse

_DEFAULT_SPARSE_BLOCK_SIZE = 128
refuse(globals(), "use torch.nn.functional.scaled_dot_product_attention with a mask",
       "flex_attention create_block_mask create_mask create_nested_block_mask and_masks or_masks noop_mask",
       "BlockMask AuxRequest AuxOutput FlexKernelOptions")
