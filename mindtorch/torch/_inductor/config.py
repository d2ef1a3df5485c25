"""torch._inductor.config: settings that are stored but have no effect. Kernels are chosen by
measurement."""
import types

coordinate_descent_tuning = max_autotune = epilogue_fusion = fx_graph_cache = shape_padding = force_fuse_int_mm_with_mul = False
conv_1x1_as_mm = max_autotune_gemm = freezing = use_mixed_mm = cpp_wrapper = False
compile_threads = 1
triton = types.SimpleNamespace(cudagraphs=False, unique_kernel_names=False, cudagraph_trees=False)
