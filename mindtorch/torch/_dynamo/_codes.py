"""The names that a code object can refer to, read from its instructions and cached per code object.
"""
import dis
import types


def module_of(cls):
    """Returns the name of a class's module; "" for a C class whose `__module__` is a descriptor for
    its instances."""
    module = cls.__module__
    return module if isinstance(module, str) else ""


def names_of(code):
    """Returns (global names, all names and string constants, assigned globals, globals that are
    used other than by a direct call) of a code object and the code objects nested in it."""
    out = _names.get(code)
    if out is None:
        g, every, stores, values = set(), set(), set(), set()
        for i in dis.get_instructions(code):
            if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                g.add(i.argval)
                if not i.argrepr.startswith("NULL + ") and not i.argrepr.endswith(" + NULL"):
                    # not called directly (before Python 3.11 this cannot be determined)
                    values.add(i.argval)
            elif i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
                stores.add(i.argval)
        every.update(code.co_names)
        for c in code.co_consts:
            if isinstance(c, str):
                every.add(c)
            elif isinstance(c, tuple):
                every.update(x for x in c if isinstance(x, str))
            elif isinstance(c, types.CodeType):
                gi, ei, si, vi = names_of(c)
                g, every, stores, values = g | gi, every | ei, stores | si, values | vi
        out = _names[code] = (frozenset(g), frozenset(every), frozenset(stores), frozenset(values))
    return out


_names = {}


def imports_of(code):
    """Returns {(level, module)} of the imports in a code object."""
    out = _imports.get(code)
    if out is None:
        found, level = set(), 0
        at = list(dis.get_instructions(code))
        for n, i in enumerate(at):
            if i.opname == "IMPORT_NAME":
                level = at[n - 2].argval if n > 1 and at[n - 2].opname == "LOAD_CONST" else 0
                found.add((level if isinstance(level, int) else 0, i.argval))
        out = _imports[code] = frozenset(found)
    return out


_imports = {}


def computes_names(code):
    """True if a code object, or one nested in it, reads an attribute whose name is not a constant.
    """
    out = _computing.get(code)
    if out is None:
        at = list(dis.get_instructions(code))
        out = _computing[code] = any([i.opname in ("LOAD_GLOBAL", "LOAD_NAME") and (
            i.argval in ("dir", "vars") or i.argval in ("getattr", "hasattr") and not _by_constant(at, n)) for n, i in enumerate(at)]) or any(
                [computes_names(c) for c in code.co_consts if isinstance(c, types.CodeType)])
    return out


_computing = {}


def _by_constant(instructions, n):
    """True if the second argument of the call is a constant. Instruction n loads the called
    function."""
    depth, starts = 0, {}
    for m in range(n + 1, len(instructions)):
        i = instructions[m]
        if i.opname in ("PRECALL", "CALL", "CALL_FUNCTION") and depth == i.arg:
            end = m if depth == 2 else starts.get(3, -1)
            while end > 0 and instructions[end - 1].opname in ("EXTENDED_ARG", "KW_NAMES"):
                end -= 1
            return depth in (2, 3) and instructions[end - 1].opname == "LOAD_CONST" and starts[2] == end - 1
        if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs:
            return False
        effect = dis.stack_effect(i.opcode, i.arg, jump=False)
        for level in range(depth + 1, depth + effect + 1):
            starts[level] = m
        depth += effect
        if depth < 0:
            return False
    return False
