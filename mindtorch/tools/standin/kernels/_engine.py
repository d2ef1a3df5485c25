"""Module with torch's interface that computes the kernels: the one named by
MINDTORCH_STANDIN_ENGINE, by default mindtorch's own cpu device."""
import importlib
import os
from typing import Any

torch: Any = importlib.import_module(os.environ.get("MINDTORCH_STANDIN_ENGINE", "mindtorch.torch"))
F: Any = torch.nn.functional
