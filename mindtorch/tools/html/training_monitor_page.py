"""HTML page of a watched run: curves of the loss and the gradients, with the findings at their
steps."""
from mindtorch.tools.html import document, svg

MOST_MARKS = 6


def page(watch):
    """Returns the page's text."""
    history, findings = watch.history, watch.findings
    marks = [(f["step"], f["kind"].replace("_", " ") + (f": {f['name']}" if f["name"] else "")) for f in findings]
    marks = [m for m in marks if m[0] in dict.fromkeys([s for s, _ in marks][:MOST_MARKS])]
    curves = [svg.curves([("loss", "--ours", "", [(h[0], h[1]) for h in history])], "the loss", marks=marks, log=svg.wide(h[1] for h in history)),
              svg.curves([("all parameters", "--ours", "", [(h[0], h[2]) for h in history]),
                          ("the largest of any parameter", "--different", "6 4", [(h[0], h[4]) for h in history]),
                          ("the smallest of any parameter", "--theirs", "2 3", [(h[0], h[3]) for h in history])],
                          "norms of the gradients, logarithmic; 0 is drawn on the lower edge", marks=marks, log=True)]
    lines = [("step", "finding", "of", "")] + [(str(f["step"]), f["kind"].replace("_", " "), f["name"], f["text"].partition(": ")[2]) for f in findings]
    looked = f"{len(history)} steps checked" + (f", one in {watch.every}" if watch.every > 1 else "")
    said = "Crosses at the upper edge are NaN or infinity. Red lines mark the steps of findings."
    parts = [("The loss", curves[0], said), ("Gradients", curves[1], ""),
             ("Findings", document.table(lines, (0,)) if findings else "", "" if findings else "Nothing was found.")]
    return document.document(f"{type(watch.model).__name__}: {len(findings)} finding{'s' * (len(findings) != 1)}", looked, parts)
