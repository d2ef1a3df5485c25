"""Views and ops that change shapes."""
