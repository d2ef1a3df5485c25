/* CPU kernels of torch.compile, compiled on the user's machine (backend/native/build.py). */
#include "_kernels_base.h"
#include "_kernels_conv.h"
#include "_kernels_norm.h"
#include "_kernels_lstm.h"
