"""Lists the imports of a source text."""
import ast


def imports(source, module, is_package=False):
    """Returns [(line, imported module, imported name or None)] of a source text, with relative
    imports resolved."""
    found = []
    for node in ast.walk(ast.parse(source)):
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
