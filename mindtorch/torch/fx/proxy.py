"""torch.fx.proxy."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "modules are not captured as graphs; they run eagerly", "",
       "Proxy Attribute TracerBase GraphAppendingTracer ParameterProxy TraceError")
