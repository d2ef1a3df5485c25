"""torch.utils.cpp_extension: not supported, since C++ extensions are built against libtorch."""
from mindtorch.torch._refusing import refuse

CUDA_HOME = ROCM_HOME = CUDNN_HOME = None
refuse(globals(), "C++ extensions are built against libtorch; write a Python operator with torch.library, or a MindSpore custom "
       "operator", "load load_inline include_paths library_paths is_ninja_available verify_ninja_availability CUDAExtension "
       "CppExtension get_cxx_compiler check_compiler_abi_compatibility", "BuildExtension")
