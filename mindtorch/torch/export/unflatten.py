"""torch.export.unflatten: names that can be imported and raise NotImplementedError when used."""
from mindtorch.torch._refusing import refuse

refuse(globals(), "a program is one flat graph; use exported_program.module()", "unflatten", "UnflattenedModule InterpreterModule FlatArgsAdapter")
