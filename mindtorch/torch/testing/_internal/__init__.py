"""torch.testing._internal: the helpers of PyTorch's tests that the tests of other projects import.
"""
