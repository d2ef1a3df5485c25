"""Entry point for tools that call setup.py; all settings are in pyproject.toml.

The build adds the source of the generated functions (mindtorch/core/dispatch/generated_files.py),
if the environment has the requirements of the package. Otherwise the first import writes it.
"""
import os
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

WRITE = """
import importlib.util, sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
if all(importlib.util.find_spec(n) for n in ("mindspore", "numpy")):
    import mindtorch.torch
    from mindtorch.core.dispatch import generated_files
    generated_files.write(sys.argv[1] + "/mindtorch/_generated")
else:
    print("mindspore is not installed: the first import writes mindtorch/_generated")
"""


class Build(build_py):
    """Copies the package and writes mindtorch/_generated into the copy."""

    def run(self):
        super().run()
        if not self.editable_mode:
            # `-I` ignores PYTHONPATH, by which an isolated build hides the environment's packages.
            subprocess.run([sys.executable, "-I", "-c", WRITE, os.path.abspath(self.build_lib)], check=True)


setup(cmdclass={"build_py": Build})
