"""State that tracing shares with the modules it imports, graphs and graph modules."""

#: functions registered with `wrap`, whose calls become one node of a trace
wrapped_objects = set()
#: the tracer class for unpickling a GraphModule: torch.fx.Tracer
default_tracer = []
