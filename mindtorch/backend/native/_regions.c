/* Regions of images: bilinear samples and means over bins, largest values of bins, boxes that cover each other, moved taps of a
 * convolution (backend/native/regions.py).  Each over float and over double: _regions_typed.h.
 *
 * Images lie as their strides say, in elements: (image, row, column, channel).  With channels side by side the loops over them are
 * vectors; where few places are read, an image in torch's order is read as it lies.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef void (*piece)(void *ctx, long start, long stop, int who);
static void (*share)(long n, piece fn, void *ctx);      /* mt_share of _pool.c */

void mt_use(void (*share_)(long, piece, void *)) { share = share_; }

static __thread void *room_[2];
static __thread size_t room_size[2];
/* scratch memory of this thread, number k */
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
#include "_regions_typed.h"
#undef T
#define T double
#include "_regions_typed.h"
