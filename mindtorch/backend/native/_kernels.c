/* Kernels that torch.compile uses on CPU, compiled on the user's machine (backend/native_build.py). */
#include "_kernels_base.h"
#include "_kernels_conv.h"
#include "_kernels_norm.h"
#include "_kernels_lstm.h"
