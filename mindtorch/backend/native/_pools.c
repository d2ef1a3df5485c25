/* Windows of images (backend/native/pools.py): as columns, and pools over the last one to three axes, maxima with their places and means, with their
 * gradients.
 * By type: _pools_typed.h.
 *
 * Compiled with -ffp-contract=off.  A window's elements are taken in the order of memory, and what is added up at one place in that of the windows.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "_common_share.h"
typedef float f32;
typedef double f64;

#define CUT 256             /* windows of a row at once */

/* One axis: elements, of a window, between windows, of padding before, between a window's elements, windows */
typedef struct { long size, kernel, stride, pad, apart, out; } Axis;

typedef struct {
    Axis d, h, w;
    long include, divisor;      /* whether padding counts, what means are divided by (0: the number of elements) */
} Windows;

typedef struct {
    const Windows *k;
    const char *from;           /* images, or gradients of windows */
    char *to, *places;
    int narrow;                 /* places are of 8 bits, not of 32 */
    long in, out;               /* elements and windows of a plane */
} Job;

static long first(long a, long b) { return a <= 0 ? 0 : (a + b - 1) / b; }
/* Of the windows along an axis those that have their element q inside: [from, to) */
static long from_window(const Axis *x, long q) { return first(x->pad - q * x->apart, x->stride); }
static long to_window(const Axis *x, long q) {
    const long n = first(x->size + x->pad - q * x->apart, x->stride);
    return n < x->out ? n : x->out;
}
/* the first element of window o that is inside */
static long first_inside(const Axis *x, long o) { return first(x->pad - o * x->stride, x->apart); }
/* Which windows of a row have element c inside, for the first KEPT elements: divisions that rows shall not repeat. */
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

/* Elements of a window along an axis: all that count; within(...) of them are inside. */
static long counted(const Axis *x, long o, long include) {
    long start = o * x->stride - x->pad, end = start + x->kernel;
    if (end > x->size + x->pad) end = x->size + x->pad;
    if (!include) start = start < 0 ? 0 : start, end = end > x->size ? x->size : end;
    return end > start ? end - start : 0;
}

/* One more element of each window: of equal ones the first is the largest, of nans the last.  (As vectors: branches that go either way take 5 ns.) */
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

/* Elements between a window's first one and the one of number q */
#define PLACES 256
static long place(const Windows *k, long q) {
    const long across = k->h.kernel * k->w.kernel, a = q / across, b = (q - a * across) / k->w.kernel, c = q - a * across - b * k->w.kernel;
    return (a * k->d.apart * k->h.size + b * k->h.apart) * k->w.size + c * k->w.apart;
}

#define T f32
#define U int32_t
#include "_pools_typed.h"
#undef T
#undef U
#define T f64
#define U int64_t
#include "_pools_typed.h"
#undef T
#undef U

/* What is the matter with arrays of planes [..., size] and [..., out] in C order: their number of planes, or -1 */
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

enum { MAXIMA, MAXIMA_BACK, MEANS, MEANS_BACK };

/* Windows of images x (samples, channels, height, width) as columns y (samples, channels * places of a window, windows), or (back) these added up
   into x, place after place.  -1 for what there is not. */
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

/* x: images, y: of their windows; one of them is made (by the BACKs: x).  places: of the maxima in their windows, or NULL. */
int mt_pool(int what, int wide, int narrow, int dims, const Windows *k, const struct array *x, const struct array *y, const struct array *places) {
    const long n = planes_of(x, y, k, dims);
    if (n < 0 || k->d.out < 0 || k->h.out < 0 || k->w.out < 0) return -1;
    if (places && (!(places->flags & CONTIGUOUS) || planes_of(x, places, k, dims) != n)) return -1;
    static const piece kinds[2][4] = {{maxima_f32, maxima_back_f32, means_f32, means_back_f32}, {maxima_f64, maxima_back_f64, means_f64, means_back_f64}};
    const int back = what == MAXIMA_BACK || what == MEANS_BACK;
    Job j = {k, back ? y->data : x->data, back ? x->data : y->data, places ? places->data : 0, narrow,
             k->d.size * k->h.size * k->w.size, k->d.out * k->h.out * k->w.out};
    if (what == MAXIMA_BACK && !places) return -1;
    shared(n, n * (j.in + j.out * k->d.kernel * k->h.kernel), kinds[wide][what], &j);
    return 0;
}
