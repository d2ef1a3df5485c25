/* CPU kernels of torch.compile, compiled on the user's machine (backend/c_kernels/build.py). */
#include "conv_norm_lstm_base.h"
#include "conv.h"
#include "batch_norm_max_pool.h"
#include "lstm_gemm.h"
