"""torch.fx.graph_module."""
from mindtorch.torch._refusing import refuse

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
refuse(globals(), "modules are not captured as graphs; they run eagerly", "_copy_attr _assign_attr _del_attr", "GraphModule _CodeOnlyModule")
