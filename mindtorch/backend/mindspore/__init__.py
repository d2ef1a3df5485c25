"""MindSpore itself: set-up, private symbols, Cells, its gradients beside our tape."""
