"""MindSpore itself: set-up, private symbols, Cells, and MindSpore's autograd next to the project's
own."""
