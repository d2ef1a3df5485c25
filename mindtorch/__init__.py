"""mindtorch: PyTorch's interface on MindSpore.

Importing this package changes nothing and loads neither MindSpore nor the facade:

- ``from mindtorch.tools import mstorch_enable`` above the first ``import torch`` makes ``torch``
  the facade;
- ``python -m mindtorch run script.py`` does the same for an unmodified script;
- ``import mindtorch.torch as torch`` uses the facade under its own name, if need be next to real
  PyTorch.
"""
__version__ = "0.2.0"
