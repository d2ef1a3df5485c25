"""What the kernels are computed with: a module with torch's interface. MINDTORCH_STANDIN_ENGINE names it, mindtorch's own cpu device if nothing does."""
import importlib
import os
from typing import Any

torch: Any = importlib.import_module(os.environ.get("MINDTORCH_STANDIN_ENGINE", "mindtorch.torch"))
F: Any = torch.nn.functional
