"""Entry point for tools that call setup.py; all settings are in pyproject.toml."""
from setuptools import setup

setup()
