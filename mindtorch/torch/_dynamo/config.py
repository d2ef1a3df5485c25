"""torch._dynamo.config: settings that are kept and change nothing."""
suppress_errors = verbose = False
cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = accumulated_recompile_limit = 256
capture_scalar_outputs = capture_dynamic_output_shape_ops = False
assume_static_by_default = automatic_dynamic_shapes = optimize_ddp = inline_inbuilt_nn_modules = True
dynamic_shapes = True
compiled_autograd = disable = False
allow_unspec_int_on_nn_module = False
