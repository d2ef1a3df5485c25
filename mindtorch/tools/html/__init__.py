"""HTML pages of the tools, and the SVG drawings in them."""
