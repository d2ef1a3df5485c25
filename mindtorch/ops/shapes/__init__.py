"""View ops and ops that change shapes."""
