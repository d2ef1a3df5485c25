"""torch.jit._script: where libraries look for what scripting makes."""
from mindtorch.torch.jit import Attribute, CompilationUnit, interface, script_method  # noqa: F401
from mindtorch.torch.jit._traced import RecursiveScriptModule, ScriptFunction, ScriptModule, script  # noqa: F401
