/* Gathering and copying over more than one axis: grid sampling, embedding bags, strided and padded
 * copies (backend/c_kernels/copy_pad_grid.py). Per type: copy_pad_grid_sample.h,
 * copy_pad_grid_bags.h, copy_pad_grid_tables.h, copy_pad_grid_transpose.h, copy_pad_grid_where.h.
 *
 * Compiled with -ffp-contract=off. Additions to one element happen in the order of the operands,
 * whatever the number of threads.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common_threads.h"
#ifdef __AVX2__
#include <immintrin.h>
#endif
typedef int64_t i64;
typedef float f32;
typedef double f64;

enum { NEAREST, LINEAR, CUBIC };
enum { ZEROS, BORDER, REFLECTION };
#define BLOCK 128           /* grid points processed at once */

#define T f32
#include "copy_pad_grid_sample.h"
#include "copy_pad_grid_bags.h"
#undef T
#define T f64
#include "copy_pad_grid_sample.h"
#include "copy_pad_grid_bags.h"
#undef T

/* ------------------------------------------------------------------ gathers, triangles */
typedef struct { uint64_t low, high; } u128;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
#define MOST 32             /* dimensions */
#define RUNS 16             /* of the last axis; with more runs, indices are read one by one */

enum { TILES, ROWS, WOVEN, PARTED };
/* A transposed copy: `nd` elements are contiguous in the result; `ns` is the length of the axis
   along which the operand's elements are closest. Strides in bytes: by, fs, fd of the operand,
   step, ts of the result. */
typedef struct {
    const char *from;
    char *to;
    int dims, way;              /* the other axes */
    long shape[MOST], by[MOST], step[MOST], nd, ns, fs, fd, ts, high, blocks;
} Turn;

#ifdef __AVX2__
/* transposes 8 by 8 elements of four bytes */
static inline void square(const char *from, long fd, char *to, long ts) {
    __m256 a[8], b[8];
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) a[i] = _mm256_loadu_ps((const float *)(from + i * fd));
    _Pragma("GCC unroll 4") for (int i = 0; i < 8; i += 2) b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]), b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
    _Pragma("GCC unroll 2") for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_shuffle_ps(b[i], b[i + 2], 0x44), a[i + 1] = _mm256_shuffle_ps(b[i], b[i + 2], 0xee);
        a[i + 2] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0x44), a[i + 3] = _mm256_shuffle_ps(b[i + 1], b[i + 3], 0xee);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps((float *)(to + i * ts), _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
        _mm256_storeu_ps((float *)(to + (i + 4) * ts), _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
}
#endif

typedef struct { const u8 *mask; const char *a, *b; char *to; long n; int wide_a, wide_b; } Choice;
#define PIECE 8192          /* elements that a thread processes at once */

#define T u8
#include "copy_pad_grid_tables.h"
#include "copy_pad_grid_transpose.h"
#include "copy_pad_grid_where.h"
#undef T
#define T u16
#include "copy_pad_grid_tables.h"
#include "copy_pad_grid_transpose.h"
#include "copy_pad_grid_where.h"
#undef T
#define T u32
#include "copy_pad_grid_tables.h"
#include "copy_pad_grid_transpose.h"
#include "copy_pad_grid_where.h"
#undef T
#define T u64
#include "copy_pad_grid_tables.h"
#include "copy_pad_grid_transpose.h"
#include "copy_pad_grid_where.h"
#undef T
#define T u128
#include "copy_pad_grid_tables.h"
#include "copy_pad_grid_transpose.h"
#include "copy_pad_grid_where.h"
#undef T

#define EACH(F, ...)                                                                                                                \
    switch (bytes) {                                                                                                                \
    case 1: F##_u8(__VA_ARGS__); return 0;                                                                                          \
    case 2: F##_u16(__VA_ARGS__); return 0;                                                                                         \
    case 4: F##_u32(__VA_ARGS__); return 0;                                                                                         \
    case 8: F##_u64(__VA_ARGS__); return 0;                                                                                         \
    case 16: F##_u128(__VA_ARGS__); return 0;                                                                                       \
    default: return -1;                                                                                                             \
    }

/* Fills `to` (dense, not empty) from `from` by concatenated index tables of its axes (in
   elements). */
int mt_spread(int bytes, const struct array *tables, const struct array *from, const struct array *to) {
    const int dims = to->nd;
    if (dims < 1 || dims > MOST || (uintptr_t)from->data % (bytes < 8 ? bytes : 8)) return -1;
    long all = 0;
    for (int d = 0; d < dims; d++) all += to->dims[d];
    if (tables->nd != 1 || tables->dims[0] != all) return -1;
    EACH(spread_all, dims, (const long *)to->dims, (const i64 *)tables->data, (const void *)from->data, (void *)to->data)
}

/* Lower or upper triangle of dense matrices; the rest is zero. */
int mt_triangle(int bytes, long matrices, long rows, long columns, long diagonal, int lower, const void *from, void *to) {
    EACH(triangle_all, matrices, rows, columns, diagonal, lower, from, to)
}

#define STRETCH 65536       /* bytes that a thread processes at once */
typedef struct { const char *from; char *to; long all; } Run;

static void run(void *ctx, long start, long stop, int who) {
    const Run *r = ctx;
    const long from = start * STRETCH, end = stop * STRETCH < r->all ? stop * STRETCH : r->all;
    (void)who;
    memcpy(r->to + from, r->from + from, end - from);
}

/* Copies `from` to `to`, of the same shape and element size; `to` overlaps neither itself nor
   `from`. Returns -1, without doing anything, if unsupported: the result's elements are not
   contiguous, or misaligned. */
int mt_turn(int bytes, int alone, const struct array *to, const struct array *from) {
    Turn k = {.from = from->data, .to = to->data};
    const long align = bytes < 8 ? bytes : 8;
    long n = 0, all = 1, shape[MOST], by[MOST], step[MOST];
    if (to->nd > MOST || to->nd != from->nd || ((uintptr_t)k.from | (uintptr_t)k.to) % align) return -1;
    for (int d = 0; d < to->nd; d++) {          /* in the result's memory order */
        const long count = to->dims[d], b = from->strides[d], s = to->strides[d];
        if (count != from->dims[d]) return -1;
        all *= count;
        if (count == 1) continue;
        if (s <= 0 || s % align || b % align) return -1;
        long i = n++;
        for (; i > 0 && step[i - 1] < s; i--) shape[i] = shape[i - 1], by[i] = by[i - 1], step[i] = step[i - 1];
        shape[i] = count, by[i] = b, step[i] = s;
    }
    if (!all) return 0;
    long m = 0;
    for (long i = 0; i < n; i++) {
        if (m && by[m - 1] == by[i] * shape[i] && step[m - 1] == step[i] * shape[i]) m--, shape[m] *= shape[i];
        else shape[m] = shape[i];
        by[m] = by[i], step[m] = step[i], m++;
    }
    if (!m || step[m - 1] != bytes) return -1;
    if (m == 1 && by[0] == bytes) {
        const Run r = {k.from, k.to, all * bytes};
        shared((r.all + STRETCH - 1) / STRETCH, alone ? 0 : r.all / 4, run, (void *)&r);
        return 0;
    }
    const long d = m - 1;
    long s = -1;
    k.nd = shape[d], k.fd = by[d], k.ns = 1;
    if (!k.fd) return -1;       /* (NumPy fills rows faster) */
    if (k.fd == bytes) {
        k.way = ROWS;
        s = d - 1;
    } else
        for (long i = 0; i < d; i++)
            if (by[i] > 0 && (k.fd <= 0 || by[i] < k.fd) && (s < 0 || by[i] < by[s] || (by[i] == by[s] && shape[i] > shape[s]))) s = i;
    if (s < 0 && k.way != ROWS) return -1;
    if (s >= 0) k.ns = shape[s], k.fs = by[s], k.ts = step[s];
    if (k.way != ROWS && k.fs == bytes) {
        if (k.nd <= 4 && k.ts == k.nd * bytes) k.way = WOVEN;
        else if (k.ns <= 4 && k.fd == k.ns * bytes) k.way = PARTED;
    }
    for (long i = 0; i < d; i++)
        if (i != s) k.shape[k.dims] = shape[i], k.by[k.dims] = by[i], k.step[k.dims++] = step[i];
    /* (a unit has at most some hundred kilobytes) */
    const long fit = 65536 / k.nd;
    const long some = k.way == ROWS ? STRETCH / bytes / k.nd : fit;
    k.high = k.way == PARTED ? k.ns : k.way != TILES ? (some < 1 ? 1 : some) : fit < 128 / bytes ? 128 / bytes : fit / (128 / bytes) * (128 / bytes);
    k.blocks = (k.ns + k.high - 1) / k.high;
    const long units = all / k.nd / k.ns * k.blocks;
    EACH(turned_all, units, alone ? 0 : all, &k)
}

/* ------------------------------------------------------------------ fills */
typedef struct { char *to; const char *value; long bytes, all; int same; } Fill;

static void filled(void *ctx, long start, long stop, int who) {
    const Fill *k = ctx;
    const long end = stop * STRETCH < k->all ? stop * STRETCH : k->all, n = end - start * STRETCH;
    char *to = k->to + start * STRETCH;
    (void)who;
    if (k->same) { memset(to, *k->value, n); return; }
#define FILL(T) { const T x = *(const T *)k->value; for (long i = 0; i < n / (long)sizeof(T); i++) ((T *)to)[i] = x; } break
    switch (k->bytes) {
    case 2: FILL(u16);
    case 4: FILL(u32);
    case 8: FILL(u64);
    default: FILL(u128);
    }
}

/* Fills `to`, which is dense, with the element of `value`, an array of the same dtype. Returns -1
   if unsupported. */
int mt_fill(const struct array *to, const struct array *value, long bytes) {
    Fill k = {to->data, value->data, bytes, bytes, 1};
    const int needed = CONTIGUOUS | WRITEABLE, align = bytes < 8 ? (int)bytes : 8;
    if ((bytes & (bytes - 1)) || bytes > 16 || (to->flags & needed) != needed || ((uintptr_t)k.to | (uintptr_t)k.value) % align) return -1;
    for (int d = 0; d < to->nd; d++) k.all *= to->dims[d];
    for (long i = 1; i < bytes; i++) k.same &= k.value[i] == *k.value;
    shared((k.all + STRETCH - 1) / STRETCH, k.all / bytes, filled, &k);
    return 0;
}

/* ------------------------------------------------------------------ rows */
typedef struct { const char *from; char *to; const i64 *index; long count, n, width; int bad; } Pick;

static void picked(void *ctx, long start, long stop, int who) {
    Pick *k = ctx;
    long o = start / k->count, i = start % k->count;
    (void)who;
    for (long u = start; u < stop; u++) {
        if ((unsigned long)k->index[i] >= (unsigned long)k->n) { __atomic_store_n(&k->bad, 1, __ATOMIC_RELAXED); return; }
        memcpy(k->to + u * k->width, k->from + (o * k->n + k->index[i]) * k->width, k->width);
        if (++i == k->count) i = 0, o++;
    }
}

/* to = a[..., index, ...] along an axis, all C-contiguous, index int64 (its dimensions replace the
   axis); bytes: element size. Returns 1 if an index is out of bounds (part of the work is done
   then), -1 if unsupported. */
int mt_pick(int bytes, int axis, const struct array *to, const struct array *a, const struct array *index) {
    Pick k = {.from = a->data, .to = to->data, .index = (const i64 *)index->data, .count = 1, .width = bytes};
    long outer = 1, all = bytes;
    if (axis < 0 || axis >= a->nd || !(to->flags & a->flags & index->flags & CONTIGUOUS) || (uintptr_t)k.index % 8) return -1;
    k.n = a->dims[axis];
    for (int d = 0; d < axis; d++) outer *= a->dims[d];
    for (int d = axis + 1; d < a->nd; d++) k.width *= a->dims[d];
    for (int d = 0; d < index->nd; d++) k.count *= index->dims[d];
    for (int d = 0; d < to->nd; d++) all *= to->dims[d];
    if (all != outer * k.count * k.width) return -1;
    if (!all) return 0;
    shared(outer * k.count, all / 4, picked, &k);
    return k.bad;
}

/* ------------------------------------------------------------------ where */
/* to = mask ? a : b for elements of this size. mask and `to` are C-contiguous and have one shape; a
   and b likewise, or they have one element; either may be `to`. Returns -1, without doing anything,
   if unsupported. */
int mt_choose(int bytes, const struct array *to, const struct array *mask, const struct array *a, const struct array *b) {
    const struct array *in[3] = {mask, a, b};
    Choice k = {(const u8 *)mask->data, a->data, b->data, to->data, 1, 0, 0};
    int wide[3];
    const int needed = CONTIGUOUS | ALIGNED | WRITEABLE, align = bytes < 8 ? bytes : 8;
    if ((to->flags & needed) != needed || ((uintptr_t)to->data | (uintptr_t)a->data | (uintptr_t)b->data) % align) return -1;
    for (int d = 0; d < to->nd; d++) k.n *= to->dims[d];
    for (int i = 0; i < 3; i++) {
        long n = 1;
        for (int d = 0; d < in[i]->nd; d++) n *= in[i]->dims[d];
        wide[i] = n != 1 || k.n == 1;
        if (!wide[i] && in[i]->nd <= to->nd && i) continue;
        if (in[i]->nd != to->nd || !(in[i]->flags & CONTIGUOUS) || !wide[i] || memcmp(in[i]->dims, to->dims, to->nd * sizeof *to->dims)) return -1;
        const char *from = in[i]->data;
        if (from != to->data && from < to->data + k.n * bytes && to->data < from + n * (i ? bytes : 1)) return -1;
    }
    k.wide_a = wide[1], k.wide_b = wide[2];
    EACH(chosen_all, &k)
}
