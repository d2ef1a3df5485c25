"""For tools that still start here; everything is declared in pyproject.toml."""
from setuptools import setup

setup()
