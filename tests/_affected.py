"""Selection of the tests that a change can affect: compares the record of tests/record.py with the
tree.

A test is skipped if it executes no changed unit (tests/_units.py), opens no changed file and lists
no folder whose files changed: it then does the same as when it was recorded, and it passed then.
Everything that the record does not cover runs: new tests, tests that the recorder could not follow,
changed files that no recorded test used, other package versions.
"""
import contextlib
import functools
import importlib.metadata
import json
import lzma
import os
import pathlib
import subprocess
import sys

import _units

FILE = pathlib.Path(__file__).resolve().parent / "recorded.xz"
#: File types that no test reads unless the record says otherwise: text for people.
_PROSE = (".md", ".gitignore", "LICENSE", ".png", ".svg")


#: packages whose versions a record depends on
PACKAGES = ("mindspore", "numpy", "torch", "hypothesis")


def packages(python=None):
    """Returns {name: version} of Python and of the packages that a record depends on.

    `python` is the interpreter of another environment; None means the current one.
    """
    if python is not None:
        code = "import sys; sys.path.insert(0, sys.argv[1]); import _affected, json; print(json.dumps(_affected.packages()))"
        return json.loads(subprocess.run([python, "-c", code, os.path.dirname(__file__)], capture_output=True, text=True, check=True).stdout)
    found = {"python": "{}.{}".format(*sys.version_info)}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


#: key for the combined digest of all units of a module that no test executes
UNSEEN = "unseen"


def kept(units, hit):
    """Returns the digests that a record stores for a module: one per executed unit, and one for all
    the others together."""
    found = {unit: digest for unit, digest in units.items() if unit in hit}
    found[UNSEEN] = _units.digest(repr(sorted((unit, digest) for unit, digest in units.items() if unit not in hit)))
    return found


def save(path, files, units, rows, packages):
    """Writes a record: the digests of files and units, and for each row a bitmap of the units that
    it used."""
    index = sorted({unit for found in rows.values() for row in found.values() for unit in row["hit"]})
    place = {unit: i for i, unit in enumerate(index)}

    def written(row):
        bits = bytearray(len(index) // 8 + 1)
        for unit in row["hit"]:
            bits[place[unit] // 8] |= 1 << place[unit] % 8
        return {**row, "hit": bytes(bits).hex()}
    found = {"packages": packages, "files": {p: _units.digest(d) for p, d in sorted(files.items())}, "units": {p: kept(units[p], place) for p in sorted(units)}, "index": index,
             "rows": {job: {key: written(done[key]) for key in sorted(done)} for job, done in rows.items()}}
    text = json.dumps(found, separators=(",", ":")).encode()
    part = f"{path}.part"
    pathlib.Path(part).write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
    os.replace(part, path)


class Record:
    """A record loaded from its file."""

    def __init__(self, found, root=_units.ROOT):
        self.root = root
        self.packages, self.files, self.units, self.index, self._rows = (found[k] for k in ("packages", "files", "units", "index", "rows"))

    @classmethod
    def load(cls, path=FILE, root=_units.ROOT):
        """Loads the record in `path` for the tree at `root`; returns None if there is no such file.
        """
        path = pathlib.Path(path)
        return cls(json.loads(lzma.decompress(path.read_bytes())), root) if path.exists() else None

    def rows(self, job):
        """Returns {key: row} of a job, with `hit` as a set of units."""
        def read(row):
            bits = bytes.fromhex(row["hit"])
            return {**row, "hit": {unit for i, unit in enumerate(self.index) if bits[i // 8] >> i % 8 & 1}}
        return {key: read(row) for key, row in self._rows.get(job, {}).items()}

    def keys_of(self, job, path):
        return [key for key in self._rows.get(job, {}) if key.startswith(f"{path}::")]

    def seconds(self, job, path):
        """Returns the recorded duration of a test file in seconds; 0 if it is not in the record."""
        return self._rows.get(job, {}).get(path, {"seconds": 0})["seconds"]

    @functools.cached_property
    def changes(self):
        """Returns (changed units, reason); the reason is "" unless a change may affect every test.
        """
        return _Changes(self, self.root).found()

    def select(self, job, packages):
        """Returns the `Choice` of a job. `packages` are the versions in the job's environment."""
        changed, unknown = self.changes
        if packages != self.packages.get(job):
            unknown = f"recorded with other packages: {self.packages.get(job)}, now {packages}"
        return Choice(self, job, changed, unknown)


class _Changes:
    """Comparison of a record's digests with the tree."""

    def __init__(self, record, root):
        self.record, self.root, self.changed, self.unknown = record, root, set(), ""
        self.hit = set(record.index)

    def found(self):
        now = set(_units.files(self.root))
        for path in sorted(now | self.record.files.keys()):
            data = _units.read(path, self.root) if path in now else None
            if data is None or path not in self.record.files:
                folder = path.rpartition("/")[0]
                self.changed.add(f"list:{folder}")
            elif _units.digest(data) == self.record.files[path]:
                continue
            self.changed.add(f"read:{path}")
            if path in _units.SELECTION and not path.endswith(".py"):
                continue
            if path.endswith(".py"):
                self.python(path, data)
            elif f"read:{path}" not in self.hit and not path.endswith(_PROSE):
                self.anything(f"{path} has changed, and no recorded test reads it")
        return self.changed, self.unknown

    def anything(self, why):
        self.unknown = self.unknown or why

    def python(self, path, data):
        try:
            now = kept(_units.units(data.decode("utf-8"), path)[0] if data is not None else {}, self.hit)
        except (SyntaxError, UnicodeDecodeError) as e:
            return self.anything(f"{path} cannot be read: {e}")
        before = self.record.units.get(path)
        if before is None:
            return self.new(path, data)
        for unit in now.keys() | before.keys():
            if now.get(unit) != before.get(unit):
                # no recorded test executes these units: every test that loads the module may
                if unit == UNSEEN:
                    self.module(path)
                else:
                    self.changed.add(unit)
        return None

    def module(self, path):
        if path in self.hit:
            self.changed.add(path)
        elif not _is_test(path) and path not in _units.SELECTION:
            self.anything(f"{path} has changed, and no recorded test loads it")

    def new(self, path, data):
        """Marks the tests that load a module that imports this new module."""
        if _is_test(path) or path in _units.SELECTION:
            return
        name, _ = _units.module_of(path)
        importers = [p for p, names in self.imports.items() if p != path and name in names]
        if not importers:
            self.anything(f"{path} is new, and no module imports it")
        for importer in importers:
            if not _is_test(importer) and importer in self.record.units:
                self.module(importer)

    @functools.cached_property
    def imports(self):
        found = {}
        for path in _units.files(self.root):
            if path.endswith(".py"):
                try:
                    found[path] = _units.imported((self.root / path).read_text("utf-8"), *_units.module_of(path))
                except SyntaxError:
                    found[path] = set()
        return found


def _is_test(path):
    return path.startswith("tests/") and path.rpartition("/")[2].startswith("test_")


class Choice:
    """The part of a job that has to run."""

    def __init__(self, record, job, changed, unknown):
        self.record, self.job, self.changed, self.unknown = record, job, changed, unknown
        self.rows = record._rows.get(job, {})
        self.bits = {i for i, unit in enumerate(record.index) if unit in changed}
        self.kept = {}

    def reason(self, key):
        """Returns why a row (a test file or a test) has to run; "" if it is not affected."""
        if key not in self.kept:
            self.kept[key] = self.unknown or self._reason(key)
        return self.kept[key]

    def _reason(self, key):
        row = self.rows.get(key)
        if row is None:
            return "" if "::" in key else "it is not in the record"
        if row["always"]:
            return row["always"]
        bits = bytes.fromhex(row["hit"])
        hit = [self.record.index[i] for i in self.bits if bits[i // 8] >> i % 8 & 1]
        return f"it uses {min(hit)}" + (f" and {len(hit) - 1} more" if len(hit) > 1 else "") if hit else ""

    def of_test(self, nodeid):
        """Returns why a test has to run; "" if it is not affected."""
        return self.reason(nodeid.partition("::")[0]) or self.reason(nodeid)

    def files(self, paths):
        """Returns those of the given test files in which something has to run."""
        return [p for p in paths if self.reason(p) or any(self.reason(k) for k in self.record.keys_of(self.job, p))]
