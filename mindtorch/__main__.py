"""The command line: ``python -m mindtorch COMMAND ...``."""
import argparse
import importlib
import sys

import mindtorch

# command -> (module, help). A module has `configure(parser)`, which declares its arguments, and
# `main(args)`, which returns the exit status. Only the module of the given command is imported, so
# commands do not slow each other down.
COMMANDS = {
    "run": ("mindtorch.tools._run", "run an unmodified torch script on MindSpore"),
    "convert": ("mindtorch.tools._convert_files", "convert parameters between .pth, .ckpt and .safetensors files"),
    "doctor": ("mindtorch.tools._doctor", "check this installation and suggest fixes"),
    "scan": ("mindtorch.tools._api_scan", "list the torch APIs that scripts use, and whether they are supported"),
    "diff": ("mindtorch.tools.model_diff.command", "find the layer where a model differs from real torch (needs real torch)"),
    "standin": ("mindtorch.tools.standin._command", "run a script on MindSpore's Ascend plugin without an Ascend device, counting launches"),
    "coverage": ("mindtorch.tools._coverage", "test every op on PyTorch's own sample inputs (needs real torch)"),
}


def main(argv=None):
    """Runs one command and returns its exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv and argv[0] in COMMANDS:
        module = importlib.import_module(COMMANDS[argv[0]][0])
        parser = argparse.ArgumentParser(prog=f"python -m mindtorch {argv[0]}", description=module.__doc__,
                                         formatter_class=argparse.RawDescriptionHelpFormatter)
        module.configure(parser)
        return module.main(parser.parse_args(argv[1:]))
    lines = "".join(f"\n  {name:10}{text}" for name, (_, text) in COMMANDS.items())
    parser = argparse.ArgumentParser(prog="python -m mindtorch", description="PyTorch's interface on MindSpore.",
                                     epilog="commands:" + lines, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"mindtorch {mindtorch.__version__}")
    parser.add_argument("command", metavar="COMMAND", choices=COMMANDS,
                        help="one of the commands below; see COMMAND --help")
    parser.add_argument("arguments", metavar="...", nargs=argparse.REMAINDER, help="its arguments")
    parser.parse_args(argv)
    return parser.error("the first argument must be a COMMAND")


if __name__ == "__main__":
    sys.exit(main())
