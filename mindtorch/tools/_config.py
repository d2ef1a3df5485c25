"""Configurations for `init_env` and training scripts: a YAML file whose entries can be overridden
on the command line."""
import argparse
import os
import re
import typing


def read_config(path=None, args=None, **defaults):
    """Reads a YAML file, applies the command line, and returns a namespace with the entries as
    attributes.

        path      the YAML file; `--config_path FILE` on the command line replaces it
        args      the command line (a list of strings), default sys.argv[1:]
        defaults  values of entries that the file omits

    Every entry becomes an option of the same name and type: `--lr 0.1`, `--amp true`,
    `--optimizer.momentum 0.8` for nested entries. Unknown options end the program with a message,
    as in argparse. ImportError without the package jsonargparse; FileNotFoundError; ValueError if
    the file is not a mapping.
    """
    try:
        import jsonargparse
        import yaml
    except ImportError as e:
        raise ImportError("mindtorch.tools.read_config needs the package jsonargparse: pip install mindtorch[config], or pip install "
                          "jsonargparse") from e
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--config_path", default=None if path is None else os.fspath(path))
    given, rest = first.parse_known_args(args)
    entries = dict(defaults)
    if given.config_path is not None:
        with open(given.config_path, encoding="utf-8") as f:
            found = yaml.load(f, _loader(yaml)) or {}
        if not isinstance(found, dict):
            raise ValueError(f"{given.config_path} must contain a mapping, not a {type(found).__name__}")
        entries = _merged(entries, found)
    parser = jsonargparse.ArgumentParser(description="Options are the entries of the configuration file.")
    parser.add_argument("--config_path", default=given.config_path, type=str | None, help="a YAML file")
    _add(parser, entries, "")
    return parser.parse_args(rest)


def _loader(yaml):
    """Returns YAML's safe loader, extended to parse 1e-3 as a float (YAML 1.1 requires 1.0e-3)."""
    class Loader(yaml.SafeLoader):
        pass
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789"))
    return Loader


def _merged(a, b):
    return {**a, **{k: _merged(a[k], v) if isinstance(v, dict) and isinstance(a.get(k), dict) else v for k, v in b.items()}}


def _add(parser, entries, prefix):
    for key, value in entries.items():
        if isinstance(value, dict):
            _add(parser, value, f"{prefix}{key}.")
            continue
        kind = typing.Any if value is None else list if isinstance(value, list) else float if isinstance(value, float) else type(value)
        parser.add_argument(f"--{prefix}{key}", type=kind, default=value)
