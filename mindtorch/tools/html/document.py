"""A self-contained HTML file: no scripts, no network access; light or dark as the user's system is.
"""
import string

from mindtorch.tools.html import svg

_PAGE = string.Template("""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<link rel="icon" href="data:,">
<style>
$variables
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto; max-width: 1100px; padding: 28px 24px 60px; }
h1 { font-size: 22px; margin: 0 0 2px; } h2 { font-size: 16px; margin: 34px 0 10px; } .dim { color: var(--dim); }
svg { display: block; width: 100%; height: auto; background: var(--card); border-radius: 6px; }
svg text { fill: var(--dim); font: 11px system-ui, sans-serif; } .grid { stroke: var(--line); }
.scroll { overflow-x: auto; } pre { font-size: 13px; background: var(--card); padding: 12px 16px; border-radius: 4px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; } th { text-align: left; color: var(--dim); }
td, th { padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.num, th.num { text-align: right; font-variant-numeric: tabular-nums; }
</style></head><body>
<h1>$heading</h1><div class="dim">$below</div>
$body
</body></html>
""")


def document(heading, below, parts):
    """Returns the page's text. `parts`: [(title, HTML, a sentence under it)]."""
    body = "".join(f"<h2>{svg.escaped(title)}</h2>{inner}" + (f'<div class="dim">{svg.escaped(said)}</div>' if said else "") for title, inner, said in parts)
    return _PAGE.substitute(title=svg.escaped(heading), heading=svg.escaped(heading), below=svg.escaped(below), variables=svg.variables(), body=body)


def table(lines, right=()):
    """Returns an HTML table of texts. The first line is the head; columns in `right` are
    right-aligned."""
    def cells(tag, row):
        return "".join(f'<{tag}{" class=num" if i in right else ""}>{svg.escaped(x)}</{tag}>' for i, x in enumerate(row))
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in lines[1:])
    return f'<div class="scroll"><table><thead><tr>{cells("th", lines[0])}</tr></thead><tbody>{body}</tbody></table></div>'


def plain(text):
    """Returns preformatted text as HTML."""
    return f'<pre class="scroll">{svg.escaped(text)}</pre>'
