"""torch._higher_order_ops: control flow and loops as higher-order functions, computed eagerly.

A loop runs its function step by step, so its gradients are those of the steps. The combine function
of an associative scan is mapped (torch.vmap) over all pairs of a level. torch.ops.higher_order has
the underlying operators.
"""
from mindtorch.torch._higher_order_ops.associative_scan import associative_scan
from mindtorch.torch._higher_order_ops.cond import cond
from mindtorch.torch._higher_order_ops.flex_attention import flex_attention, flex_attention_backward
from mindtorch.torch._higher_order_ops.map import map
from mindtorch.torch._higher_order_ops.scan import scan
from mindtorch.torch._higher_order_ops.while_loop import while_loop
from mindtorch.torch._higher_order_ops.wrap import (
    dynamo_bypassing_wrapper,
    tag_activation_checkpoint,
    wrap_activation_checkpoint,
    wrap_with_autocast,
    wrap_with_set_grad_enabled,
)
from mindtorch.torch._refusing import refuse

__all__ = ["cond", "while_loop", "scan", "map", "associative_scan", "flex_attention", "flex_attention_backward", "tag_activation_checkpoint",
           "wrap_activation_checkpoint", "wrap_with_autocast", "wrap_with_set_grad_enabled", "dynamo_bypassing_wrapper"]

refuse(globals(), "it is an operator of compiled graphs", """invoke_subgraph hints_wrapper flat_apply with_effects auto_functionalized auto_functionalized_v2 out_dtype
 executorch_call_delegate call_torchbind run_const_graph invoke_leaf_function invoke_quant invoke_quant_packed strict_mode aoti_call_delegate while_loop_stack_output
 local_map_hop inductor_compiled_code inline_asm_elementwise foreach_map _foreach_map""", "BaseHOP InvokeQuant")
