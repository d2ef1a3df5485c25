"""What tracing tells graphs and graph modules, which it stands on."""

#: functions that are one step of a trace: those that `wrap` was called for
wrapped_objects = set()
#: the class by which a pickled GraphModule is traced again: torch.fx.Tracer
default_tracer = []
