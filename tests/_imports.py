"""Lists the imports of a source text."""
import ast


def _is_typing(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imports(source, module, is_package=False, typing=True):
    """Returns [(line, imported module, imported name or None)] of a source text, with relative
    imports resolved. typing: include the imports under `if TYPE_CHECKING`."""
    tree, found = ast.parse(source), []
    if not typing:
        tree.body = [node for node in tree.body if not _is_typing(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[:len(parts) - node.level + (1 if is_package else 0)]
                base = ".".join([*parts, base] if base else parts)
            found += [(node.lineno, base, alias.name) for alias in node.names]
    return found
