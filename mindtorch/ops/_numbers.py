"""Python numbers as elements of a dtype (core/numbers.py)."""
from mindtorch.core.numbers import NUMBER, fitting, number_as, number_of  # noqa: F401
