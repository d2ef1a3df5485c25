/* Windows of images (backend/c_kernels/pooling.py): unfolding to columns, convolutions of small
 * images, and pooling over the last one to three axes (maxima with indices, means), with gradients.
 * Per type: pooling_typed.h, pooling_conv.h.
 *
 * Compiled with -ffp-contract=off. A window's elements are processed in memory order; additions to
 * one element happen in the order of the windows.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common_threads.h"
typedef float f32;
typedef double f64;

#define CUT 256             /* windows of a row processed at once */

/* One axis: number of elements, window size, stride, padding before, dilation, number of
   windows. */
typedef struct { long size, kernel, stride, pad, apart, out; } Axis;

typedef struct {
    Axis d, h, w;
    /* whether padding counts, the divisor of means (0: the number of elements) */
    long include, divisor;
    /* mt_pool: the operation, whether images are double, whether indices have 8 bits (not 32),
       axes */
    long what, wide, narrow, dims;
} Windows;

typedef struct {
    const Windows *k;
    const char *from;           /* images, or gradients of windows */
    char *to, *places;
    int narrow;                 /* indices have 8 bits, not 32 */
    long in, out;               /* elements and windows per plane */
} Job;

static long first(long a, long b) { return a <= 0 ? 0 : (a + b - 1) / b; }
/* The windows along an axis that contain the element of offset q inside the image: [from, to). */
static long from_window(const Axis *x, long q) { return first(x->pad - q * x->apart, x->stride); }
static long to_window(const Axis *x, long q) {
    const long n = first(x->size + x->pad - q * x->apart, x->stride);
    return n < x->out ? n : x->out;
}
/* The first element of window o that is inside. */
static long first_inside(const Axis *x, long o) { return first(x->pad - o * x->stride, x->apart); }
/* The windows of a row whose element c is inside, for the first KEPT elements: saves repeated
   divisions per row. */
#define KEPT 16
typedef struct { long low[KEPT], high[KEPT]; } Ends;
static Ends ends_of(const Axis *x) {
    Ends e;
    for (long c = 0; c < x->kernel && c < KEPT; c++) e.low[c] = from_window(x, c), e.high[c] = to_window(x, c);
    return e;
}
#define LOW(c) ((c) < KEPT ? ends.low[c] : from_window(&k->w, c))
#define HIGH(c) ((c) < KEPT ? ends.high[c] : to_window(&k->w, c))
static long within(long x, long low, long high) { return x < low ? low : x > high ? high : x; }

/* Number of counted elements of a window along an axis; within(...) of them are inside. */
static long counted(const Axis *x, long o, long include) {
    long start = o * x->stride - x->pad, end = start + x->kernel;
    if (end > x->size + x->pad) end = x->size + x->pad;
    if (!include) start = start < 0 ? 0 : start, end = end > x->size ? x->size : end;
    return end > start ? end - start : 0;
}

/* Bounds of the o-th of x->out pieces of an axis. */
static long piece_start(const Axis *x, long o) { return o * x->size / x->out; }
static long piece_end(const Axis *x, long o) { return ((o + 1) * x->size + x->out - 1) / x->out; }

/* Processes one more element of each window: of equal elements the first is the maximum, of nans
   the last. (Vectorized: an unpredictable branch takes 5 ns.) */
#define LARGEST(STEP) {                                                                                                             \
    _Pragma("omp simd simdlen(4)")                                                                                                             \
    for (long i = low; i < high; i++) {                                                                                             \
        const T e = p[i * (STEP)], m = best[i];                                                                                     \
        const int larger = (e > m) | (e != e);                                                                                      \
        best[i] = larger ? e : m;                                                                                                   \
    }                                                                                                                               \
}
#define LARGEST_AT(STEP) {                                                                                                          \
    _Pragma("omp simd simdlen(4)")                                                                                                             \
    for (long i = low; i < high; i++) {                                                                                             \
        const T e = p[i * (STEP)], m = best[i];                                                                                     \
        const int larger = (e > m) | (e != e);                                                                                      \
        best[i] = larger ? e : m;                                                                                                   \
        at[i] = larger ? q : at[i];                                                                                                 \
    }                                                                                                                               \
}
#define ADDED(STEP) {                                                                                                               \
    _Pragma("omp simd simdlen(4)")                                                                                                             \
    for (long i = low; i < high; i++) y[i] += p[i * (STEP)];                                                                        \
}

/* Offset in elements between a window's first element and element q. */
#define PLACES 256
static long place(const Windows *k, long q) {
    const long across = k->h.kernel * k->w.kernel, a = q / across, b = (q - a * across) / k->w.kernel, c = q - a * across - b * k->w.kernel;
    return (a * k->d.apart * k->h.size + b * k->h.apart) * k->w.size + c * k->w.apart;
}

#define T f32
#define U int32_t
#include "pooling_typed.h"
#undef T
#undef U
#define T f64
#define U int64_t
#include "pooling_typed.h"
#undef T
#undef U

/* ------------------------------------------------------------------ convolutions */
enum { FORWARD, INPUT, WEIGHT };

typedef struct {
    const Windows *k;
    /* plain: 1x1 windows with stride 1 and no padding: the images are the columns */
    int what, plain;
    char *x, *w, *b, *y;
    long n, groups, c, o;               /* images, groups, input and output channels of a group */
    long depth, height, width;          /* of a padded image, as far as windows reach */
    /* elements of a window, elements of a plane, windows of a plane, the latter rounded up to whole
       tiles */
    long places, in, out, pitch;
    int lost;                           /* 1 if out of memory */
} Conv;

/* Bytes of a vector (GCC splits larger ones and keeps them in memory, at an eighth of the speed),
   vectors across a tile of four rows */
#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define ACROSS 2
#define PACKED 256                      /* rows of a tile that are packed */
/* columns processed with four rows at once: as many sums as there are registers */
#define DEEP (BYTES == 64 ? 4 : 2)
#define UNROLL _Pragma("GCC unroll 16")
/* Calls F(m) for the next m rows (4, or the remaining 1 to 3), where m is a compile-time
   constant. */
#define FOUR_ROWS(left, F)                                                                                                          \
    switch (left) {                                                                                                                 \
    case 1: F(1); break;                                                                                                            \
    case 2: F(2); break;                                                                                                            \
    case 3: F(3); break;                                                                                                            \
    default: F(4);                                                                                                                  \
    }
/* (The order of additions differs from other implementations anyway; with FMA products take half
   the time.) */
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#define T f32
#include "pooling_conv.h"
#undef T
#define T f64
#include "pooling_conv.h"
#undef T
#pragma GCC pop_options

/* Given C-contiguous x (samples, channels, size...), w (channels out, channels / groups,
   kernel...), b (channels out) or NULL and y (samples, channels out, out...), computes by `what`:
   y, the gradient of x, or the gradient of w (from y's gradient in y). Returns -1 if
   unsupported. */
int mt_convolve(int what, int wide, int dims, const Windows *k, long groups, const struct array *x, const struct array *w, const struct array *b,
                const struct array *y) {
    const struct array *all[3] = {x, w, y};
    const Axis *axes = &k->d;
    if (groups < 1 || what < FORWARD || what > WEIGHT) return -1;
    for (int i = 0; i < 3; i++)
        if (all[i]->nd != dims + 2 || !(all[i]->flags & CONTIGUOUS) || !(all[i]->flags & ALIGNED)) return -1;
    for (int i = 0; i < dims; i++) {
        const Axis *a = axes + 3 - dims + i;
        if (x->dims[2 + i] != a->size || w->dims[2 + i] != a->kernel || y->dims[2 + i] != a->out || a->pad < 0 || a->out < 1 || a->kernel < 1) return -1;
    }
    if (x->dims[0] != y->dims[0] || w->dims[0] != y->dims[1] || w->dims[1] * groups != x->dims[1] || y->dims[1] % groups) return -1;
    if (b && (b->nd != 1 || b->dims[0] != y->dims[1] || !(b->flags & CONTIGUOUS) || !(b->flags & ALIGNED))) return -1;
    const long tile = ACROSS * (BYTES / (wide ? 8 : 4));
    Conv v = {.k = k, .what = what, .plain = 1, .x = x->data, .w = w->data, .b = b ? b->data : 0, .y = y->data, .n = x->dims[0], .groups = groups,
              .c = w->dims[1], .o = y->dims[1] / groups};
    long reach[3];
    for (int i = 0; i < 3; i++) {
        const Axis *a = axes + i;
        reach[i] = (a->out - 1) * a->stride + (a->kernel - 1) * a->apart + 1;
        v.plain &= a->kernel == 1 && a->stride == 1 && !a->pad && a->out == a->size;
    }
    v.depth = reach[0], v.height = reach[1], v.width = reach[2];
    v.places = k->d.kernel * k->h.kernel * k->w.kernel;
    v.in = k->d.size * k->h.size * k->w.size;
    v.out = k->d.out * k->h.out * k->w.out;
    v.pitch = (v.out + tile - 1) / tile * tile;
    const long units = what == WEIGHT ? groups : v.n * groups;
    shared(units, v.n * groups * v.o * v.c * v.places * v.out / 8, wide ? convolve_f64 : convolve_f32, &v);
    return v.lost ? -1 : 0;
}

/* Checks C-contiguous arrays of planes [..., size] and [..., out]; returns the number of planes, or
   -1 if they do not match. */
static long planes_of(const struct array *x, const struct array *y, const Windows *k, int dims) {
    const Axis *axes = &k->d;
    long n = 1;
    if (x->nd < dims || x->nd != y->nd || !(x->flags & CONTIGUOUS) || !(y->flags & CONTIGUOUS) || !(x->flags & ALIGNED) || !(y->flags & ALIGNED))
        return -1;
    for (int i = 0; i < x->nd; i++) {
        const int axis = 3 - (x->nd - i);
        if (i < x->nd - dims) {
            if (x->dims[i] != y->dims[i]) return -1;
            n *= x->dims[i];
        } else if (x->dims[i] != axes[axis].size || y->dims[i] != axes[axis].out) return -1;
    }
    return n;
}

enum { MAXIMA, MAXIMA_BACK, MEANS, MEANS_BACK, PIECES, PIECES_BACK, LARGEST_PIECES };

/* Unfolds the windows of images x (samples, channels, height, width) to columns y (samples,
   channels * elements of a window, windows), or (back) adds columns into x, one window offset after
   another. Returns -1 if unsupported. */
int mt_columns(int back, int wide, const Windows *k, const struct array *x, const struct array *y) {
    if (x->nd != 4 || y->nd != 3 || !(x->flags & CONTIGUOUS) || !(y->flags & CONTIGUOUS) || !(x->flags & ALIGNED) || !(y->flags & ALIGNED)) return -1;
    if (x->dims[2] != k->h.size || x->dims[3] != k->w.size || y->dims[0] != x->dims[0] || y->dims[1] != x->dims[1] * k->h.kernel * k->w.kernel
        || k->h.out < 0 || k->w.out < 0 || y->dims[2] != k->h.out * k->w.out) return -1;
    const long n = x->dims[0] * x->dims[1];
    Job j = {k, back ? y->data : x->data, back ? x->data : y->data, 0, 0, k->h.size * k->w.size, k->h.kernel * k->w.kernel * k->h.out * k->w.out};
    static const piece kinds[2][2] = {{columns_f32, columns_back_f32}, {columns_f64, columns_back_f64}};
    shared(n, n * j.out, kinds[wide][back], &j);
    return 0;
}

/* x: images, y: their windows' values; one of them is computed (by the BACK operations: x). places:
   indices of the maxima in their windows, or NULL. */
int mt_pool(const Windows *k, const struct array *x, const struct array *y, const struct array *places) {
    const int dims = (int)k->dims, what = (int)k->what, wide = k->wide != 0;
    const long n = planes_of(x, y, k, dims);
    if (n < 0 || k->d.out < 0 || k->h.out < 0 || k->w.out < 0) return -1;
    if (places && (!(places->flags & CONTIGUOUS) || planes_of(x, places, k, dims) != n)) return -1;
    static const piece kinds[2][7] = {{maxima_f32, maxima_back_f32, means_f32, means_back_f32, pieces_f32, pieces_back_f32, largest_f32},
                                      {maxima_f64, maxima_back_f64, means_f64, means_back_f64, pieces_f64, pieces_back_f64, largest_f64}};
    const int back = what == MAXIMA_BACK || what == MEANS_BACK || what == PIECES_BACK;
    Job j = {k, back ? y->data : x->data, back ? x->data : y->data, places ? places->data : 0, (int)k->narrow,
             k->d.size * k->h.size * k->w.size, k->d.out * k->h.out * k->w.out};
    if (what == MAXIMA_BACK && !places) return -1;
    shared(n, n * (j.in + j.out * k->d.kernel * k->h.kernel), kinds[wide][what], &j);
    return 0;
}
