/* Regions of images: bilinear samples and means over bins, maxima of bins, overlapping boxes,
 * shifted taps of a convolution (backend/c_kernels/roi.py). Each for float and double: roi_typed.h.
 *
 * Images have arbitrary strides, in elements: (image, row, column, channel). With adjacent channels
 * (channels-last) the loops over them vectorize; if few pixels are read, an image in PyTorch's
 * default order is read in place.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef void (*piece)(void *ctx, long start, long stop, int who);
static void (*share)(long n, piece fn, void *ctx);      /* mt_share of thread_pool.c */

void mt_use(void (*share_)(long, piece, void *)) { share = share_; }

static __thread void *room_[2];
static __thread size_t room_size[2];
/* scratch buffer k of this thread */
static void *room(int k, size_t bytes) {
    if (room_size[k] < bytes) {
        free(room_[k]);
        void *p = 0;
        if (posix_memalign(&p, 64, bytes)) abort();
        room_[k] = p;
        room_size[k] = bytes;
    }
    return room_[k];
}

typedef struct { long image, row, column, channel; } Strides;
typedef struct { int from, to; } Range;

#define NAME_(a, b) a##_##b
#define NAME__(a, b) NAME_(a, b)
#define NAME(a) NAME__(a, T)

#define T float
#include "roi_typed.h"
#undef T
#define T double
#include "roi_typed.h"
