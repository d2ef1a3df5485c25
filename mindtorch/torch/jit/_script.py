"""torch.jit._script: the private module from which libraries import scripting classes."""
from mindtorch.torch.jit import Attribute, CompilationUnit, interface, script_method  # noqa: F401
from mindtorch.torch.jit._traced import RecursiveScriptModule, ScriptFunction, ScriptModule, script  # noqa: F401
