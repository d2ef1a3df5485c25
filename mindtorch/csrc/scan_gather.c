/* Ops along one axis: cumulative sums, products and extremes, gather and scatter, sorting and
 * selection, weighted sums of few elements, sums of rows (backend/c_kernels/scan_gather.py). Per
 * type: scan_gather_scan.h, scan_gather_rows.h, scan_gather_sort.h; counts and indices:
 * scan_gather_search.h.
 *
 * Compiled with -ffp-contract=off. Additions to one element happen in the order of the operands,
 * whatever the number of threads: threads split an axis that the indices do not depend on. Indices
 * are always checked before use.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common_threads.h"

/* ------------------------------------------------------------------ gather and scatter */
enum { GATHER, PUT, ADD };
#define MOST 32             /* dimensions */

/* Loops over `shape`. The first array is read or written at the index along an axis and at the
   loop's position elsewhere (strides `at`, in elements; `step` along the axis, which has n
   elements), the second array in order (strides `by`), the index in order (strides `of`). */
typedef struct {
    int dims, cut;          /* `cut`: the axis split among threads */
    const long *shape, *at, *by, *of, *step_of;     /* step_of: 1 at the indexed axis */
    long step, n;
    char *picked, *line;
    const int64_t *index;
    int bad;                /* 1 if an index was out of bounds */
} Move;

typedef struct { uint64_t low, high; } u128;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;
typedef int32_t i32;
typedef float f32;
typedef double f64;

#define MOVES(T, NAMED, ADDS)                                                                                                       \
    ALWAYS void NAMED##_move(Move *k, long start, long stop, const int how) {                                                       \
        long shape[MOST], count[MOST] = {0}, rows = 1;                                                                              \
        const int last = k->dims - 1;                                                                                               \
        for (int d = 0; d < k->dims; d++) shape[d] = d == k->cut ? stop - start : k->shape[d];                                      \
        for (int d = 0; d < last; d++) rows *= shape[d];                                                                            \
        const long width = shape[last], at = k->at[last], by = k->by[last], of = k->of[last], step = k->step;                       \
        const unsigned long n = k->n;                                                                                               \
        T *picked = (T *)k->picked + start * k->at[k->cut], *line = (T *)k->line + start * k->by[k->cut];                           \
        const int64_t *index = k->index + start * k->of[k->cut];                                                                    \
        for (long r = 0; r < rows; r++) {                                                                                           \
            if (!of) {                                                                                                              \
                if (width > 0 && (unsigned long)*index >= n) { __atomic_store_n(&k->bad, 1, __ATOMIC_RELAXED); return; }            \
                T *p = width > 0 ? picked + *index * step : picked;                                                                 \
                if (at == 1 && by == 1) {                                                                                           \
                    if (how == GATHER) memcpy(line, p, sizeof(T) * width);                                                          \
                    else if (how == PUT) memcpy(p, line, sizeof(T) * width);                                                        \
                    else for (long i = 0; i < width; i++) ADDS(p[i], line[i]);                                                      \
                } else                                                                                                              \
                    for (long i = 0; i < width; i++) {                                                                              \
                        if (how == GATHER) line[i * by] = p[i * at];                                                                \
                        else if (how == PUT) p[i * at] = line[i * by];                                                              \
                        else ADDS(p[i * at], line[i * by]);                                                                         \
                    }                                                                                                               \
            } else if (of == 1 && by == 1 && !at)                                                                                   \
                for (long b = 0; b < width; b += 256) {     /* (check first: two loops, one or both of which vectorize) */          \
                    const long e = width - b < 256 ? width : b + 256;                                                               \
                    unsigned long most = 0;                                                                                         \
                    for (long i = b; i < e; i++) most = (unsigned long)index[i] > most ? (unsigned long)index[i] : most;            \
                    if (most >= n) { __atomic_store_n(&k->bad, 1, __ATOMIC_RELAXED); return; }                                      \
                    if (how == GATHER && step == 1) for (long i = b; i < e; i++) line[i] = picked[index[i]];                        \
                    else if (how == GATHER) for (long i = b; i < e; i++) line[i] = picked[index[i] * step];                         \
                    else if (how == PUT && step == 1) for (long i = b; i < e; i++) picked[index[i]] = line[i];                      \
                    else if (how == PUT) for (long i = b; i < e; i++) picked[index[i] * step] = line[i];                            \
                    else if (step == 1) for (long i = b; i < e; i++) ADDS(picked[index[i]], line[i]);                               \
                    else for (long i = b; i < e; i++) ADDS(picked[index[i] * step], line[i]);                                       \
                }                                                                                                                   \
            else                                                                                                                    \
                for (long i = 0; i < width; i++) {                                                                                  \
                    const int64_t j = index[i * of];                                                                                \
                    if ((unsigned long)j >= n) { __atomic_store_n(&k->bad, 1, __ATOMIC_RELAXED); return; }                          \
                    T *p = picked + j * step + i * at;                                                                              \
                    if (how == GATHER) line[i * by] = *p;                                                                           \
                    else if (how == PUT) *p = line[i * by];                                                                         \
                    else ADDS(*p, line[i * by]);                                                                                    \
                }                                                                                                                   \
            for (int d = last - 1; d >= 0; d--) {                                                                                   \
                picked += k->at[d], line += k->by[d], index += k->of[d];                                                            \
                if (++count[d] < shape[d]) break;                                                                                   \
                count[d] = 0;                                                                                                       \
                picked -= k->at[d] * shape[d], line -= k->by[d] * shape[d], index -= k->of[d] * shape[d];                           \
            }                                                                                                                       \
        }                                                                                                                           \
    }

#define NO_ADD(a, b) (void)0
#define PLAIN_ADD(a, b) a += b
#define MODE(NAMED, HOW, SUFFIX) static void NAMED##_##SUFFIX(void *ctx, long start, long stop, int who) { (void)who; NAMED##_move(ctx, start, stop, HOW); }
#define BYTES(T) MOVES(T, T, NO_ADD) MODE(T, GATHER, gather) MODE(T, PUT, put)
#define ADDED(T) MOVES(T, add_##T, PLAIN_ADD) MODE(add_##T, ADD, add)
BYTES(u8) BYTES(u16) BYTES(u32) BYTES(u64) BYTES(u128)
ADDED(f32) ADDED(f64) ADDED(u8) ADDED(u16) ADDED(u32) ADDED(u64)

static int moved(int what, int kind, Move *k) {
    piece fn = 0;
    if (what == ADD)
        fn = kind == 260 ? add_f32_add : kind == 264 ? add_f64_add : kind == 1 ? add_u8_add : kind == 2 ? add_u16_add :
             kind == 4 ? add_u32_add : kind == 8 ? add_u64_add : 0;
    else if (what == PUT)
        fn = kind == 1 ? u8_put : kind == 2 ? u16_put : kind == 4 ? u32_put : kind == 8 ? u64_put : kind == 16 ? u128_put : 0;
    else
        fn = kind == 1 ? u8_gather : kind == 2 ? u16_gather : kind == 4 ? u32_gather : kind == 8 ? u64_gather : kind == 16 ? u128_gather : 0;
    if (!fn) return -1;
    /* Threads split the first long axis that the indices do not depend on. */
    long size = 1;
    k->cut = -1;
    for (int d = 0; d < k->dims; d++) {
        size *= k->shape[d];
        if (k->step_of[d] && what != GATHER) continue;
        if (k->cut < 0 || (k->shape[d] > k->shape[k->cut] && k->shape[k->cut] < 16)) k->cut = d;
    }
    if (!size) return 0;
    if (k->cut < 0) {            /* (no axis can be split among threads) */
        k->cut = 0;
        fn(k, 0, k->shape[0], 0);
    } else shared(k->shape[k->cut], size, fn, k);
    return k->bad;
}

/* Computes strides in elements; 0 if elements of this size cannot be addressed (complex numbers may
   be aligned to half their size). */
static int steps(const struct array *a, long size, long *to) {
    if ((uintptr_t)a->data % (size < 8 ? size : 8)) return 0;
    for (int d = 0; d < a->nd; d++) {
        if (a->strides[d] % size) return 0;
        to[d] = a->strides[d] / size;
    }
    return 1;
}

/* line[...] = a at the coordinates of the loop, with that of `axis` replaced by the index (what:
   0), the reverse (1), or an addition to a (2). index: int64, as many dimensions as a, no larger
   than a except along the axis; line: no smaller than index, or 0-dim. kind: bytes per element,
   plus 256 for additions of floats. Returns 1 if an index is out of bounds (part of the work is
   done then), -1 if unsupported. */
int mt_move(int what, int kind, int axis, const struct array *a, const struct array *line, const struct array *index) {
    const int dims = index->nd, size = kind & 255;
    long shape[MOST], at[MOST], by[MOST] = {0}, of[MOST], step_of[MOST] = {0};
    if (dims < 1 || dims > MOST || a->nd != dims || (line->nd != dims && line->nd) || axis < 0 || axis >= dims || !size) return -1;
    if (!steps(a, size, at) || !steps(line, size, by) || !steps(index, 8, of)) return -1;
    for (int d = 0; d < dims; d++) {
        shape[d] = index->dims[d];
        if ((d != axis && shape[d] > a->dims[d]) || (line->nd && shape[d] > line->dims[d])) return -1;
    }
    const long step = at[axis];
    at[axis] = 0, step_of[axis] = 1;
    Move k = {dims, 0, shape, at, by, of, step_of, step, a->dims[axis], a->data, line->data, (const int64_t *)index->data, 0};
    return moved(what, kind, &k);
}

/* Like mt_move, with a 1D index: line[..., k, ...] is a[..., index[k], ...], both C-contiguous. */
int mt_move_rows(int what, int kind, int axis, const struct array *a, const struct array *line, const struct array *index) {
    const int size = kind & 255;
    long outer = 1, inner = 1, by[MOST], of;
    if (a->nd > MOST || line->nd != a->nd || index->nd != 1 || axis < 0 || axis >= a->nd || !size) return -1;
    if (!(a->flags & CONTIGUOUS) || !(line->flags & CONTIGUOUS) || !steps(a, size, by) || !steps(line, size, by) || !steps(index, 8, &of)) return -1;
    for (int d = 0; d < a->nd; d++) {
        if (line->dims[d] != (d == axis ? index->dims[0] : a->dims[d])) return -1;
        if (d < axis) outer *= a->dims[d];
        if (d > axis) inner *= a->dims[d];
    }
    const long n = a->dims[axis], count = index->dims[0];
    Move k = {inner == 1 ? 2 : 3, 0, (long[]){outer, count, inner}, (long[]){n * inner, 0, 1}, (long[]){count * inner, inner, 1}, (long[]){0, of, 0},
              (long[]){0, 1, 0}, inner, n, a->data, line->data, (const int64_t *)index->data, 0};
    return moved(what, kind, &k);
}

/* ------------------------------------------------------------------ scans */
/* Numbers of elements before, along and after an axis; returns 0 if the array is empty. */
static int sizes_along(const struct array *a, int axis, long *outer, long *n, long *inner) {
    *outer = *inner = 1, *n = a->dims[axis];
    for (int d = 0; d < axis; d++) *outer *= a->dims[d];
    for (int d = axis + 1; d < a->nd; d++) *inner *= a->dims[d];
    return *outer && *n && *inner;
}

#define T f32
#define WIDE double
#define REAL 1
#include "scan_gather_scan.h"
#undef T
#undef WIDE
#define T f64
#define WIDE double
#include "scan_gather_scan.h"
#undef T
#undef WIDE
#undef REAL
#define T i64
#define WIDE u64
#define REAL 0
#include "scan_gather_scan.h"
#undef T
#undef WIDE
#undef REAL

/* ------------------------------------------------------------------ taps and rows */
#define T f32
#include "scan_gather_rows.h"
#undef T
#define T f64
#include "scan_gather_rows.h"
#undef T

/* ------------------------------------------------------------------ random numbers */
/* Fills items with 0..n-1 and swaps elements i and i + steps[i] for n - 1 steps in order. Returns 1
   if a step is out of bounds. */
int mt_shuffled(i64 *items, const u32 *steps, long n) {
    for (long i = 0; i < n; i++) items[i] = i;
    for (long i = 0; i < n - 1; i++) {
        const long j = i + steps[i];
        if (j >= n) return 1;
        const i64 t = items[i];
        items[i] = items[j], items[j] = t;
    }
    return 0;
}

/* x * y + z with one rounding */
void mt_multiply_add(const f64 *x, f64 *to, long n, f64 y, f64 z) {
    for (long i = 0; i < n; i++) to[i] = fma(x[i], y, z);
}

/* ------------------------------------------------------------------ sorting */
/* Unsigned keys in the order of the elements: nan is the largest, zeros are equal. */
ALWAYS u32 key_f32(f32 x) {
    u32 b;
    x += 0.0f;
    memcpy(&b, &x, 4);
    return x != x ? UINT32_MAX : b ^ (b >> 31 ? UINT32_MAX : (u32)1 << 31);
}
ALWAYS u64 key_f64(f64 x) {
    u64 b;
    x += 0.0;
    memcpy(&b, &x, 8);
    return x != x ? UINT64_MAX : b ^ (b >> 63 ? UINT64_MAX : (u64)1 << 63);
}
ALWAYS u64 key_i64(i64 x) { return (u64)x ^ (u64)1 << 63; }
ALWAYS u32 key_i32(i32 x) { return (u32)x ^ (u32)1 << 31; }
ALWAYS u32 key_u8(u8 x) { return x; }

/* LSD radix sort of keys that are at most `high`; returns the buffer with the result, `here` or
   `there`. */
#define DIGITS(K)                                                                                                                   \
    typedef struct { K key; u32 at; } Keyed_##K;                                                                                    \
    static Keyed_##K *digits_##K(Keyed_##K *here, Keyed_##K *there, long n, K high, long *count) {                                  \
        const int bits = n >= 16384 ? 11 : 8;                                                                                       \
        const long all = 1L << bits;                                                                                                \
        for (int shift = 0; shift < (int)(8 * sizeof(K)) && high >> shift; shift += bits) {                                         \
            memset(count, 0, all * sizeof *count);                                                                                  \
            for (long i = 0; i < n; i++) count[here[i].key >> shift & (all - 1)]++;                                                 \
            if (count[here[0].key >> shift & (all - 1)] == n) continue;                                                             \
            long sum = 0;                                                                                                           \
            for (long d = 0; d < all; d++) {                                                                                        \
                const long c = count[d];                                                                                            \
                count[d] = sum;                                                                                                     \
                sum += c;                                                                                                           \
            }                                                                                                                       \
            for (long i = 0; i < n; i++) there[count[here[i].key >> shift & (all - 1)]++] = here[i];                                \
            Keyed_##K *t = here;                                                                                                    \
            here = there, there = t;                                                                                                \
        }                                                                                                                           \
        return here;                                                                                                                \
    }
DIGITS(u32) DIGITS(u64)

#define FEW 48              /* up to this number of keys insertion sort is used */
enum { PLAIN, MEDIAN, SKIPPING };

#define T f32
#define K u32
#include "scan_gather_sort.h"
#undef T
#undef K
#define T i32
#define K u32
#include "scan_gather_sort.h"
#undef T
#undef K
#define T u8
#define K u32
#include "scan_gather_sort.h"
#undef T
#undef K
#define T f64
#define K u64
#include "scan_gather_sort.h"
#undef T
#undef K
#define T i64
#define K u64
#include "scan_gather_sort.h"
#undef T
#undef K

/* ------------------------------------------------------------------ counts and indices */
#include "scan_gather_search.h"
