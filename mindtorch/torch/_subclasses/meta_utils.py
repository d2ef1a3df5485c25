"""torch._subclasses.meta_utils: placeholders."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "use the meta device", "assert_metadata_eq is_sparse_any", "MetaConverter MetaTensorDesc")
