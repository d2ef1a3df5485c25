/* Passes over rows and columns of C-contiguous arrays: reductions, softmax and cross entropy, layer
 * norm, scale and shift by channel, attention (backend/c_kernels/reduce.py). See reduce_typed.h,
 * reduce_moments.h, reduce_attention.h (by type), reduce_softmax.h, reduce_norm.h.
 *
 * Pieces, and therefore results, do not depend on the number of threads.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#include "common_threads.h"

#define PLAIN_MEMORY (CONTIGUOUS | ALIGNED)
static int plain(const struct array *a) { return (a->flags & PLAIN_MEMORY) == PLAIN_MEMORY; }

typedef int32_t i32;
typedef int64_t i64;
typedef float f32;
typedef double f64;
#ifdef __AVX512F__
#define BYTES 64            /* of a vector */
#else
/* (vectors wider than the processor's are kept in memory: with 64 bytes on AVX2 a sum of 1024x1024
   took 340 us, with 32 bytes 90 us) */
#define BYTES 32
#endif
typedef f32 V_f32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef f64 V_f64 __attribute__((vector_size(BYTES), aligned(8), may_alias));
typedef i32 M_f32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef i64 M_f64 __attribute__((vector_size(BYTES), aligned(8), may_alias));

enum { SUM, SQUARES, SIZES, PRODUCT, LARGEST, LEAST, NORM };
enum { VARIANCE, DEVIATION, MEAN };

/* ------------------------------------------------------------------ reductions */
/* larger, smaller: the second operand if either is nan. unordered: lanes where either is nan. */
#ifdef __AVX512F__
ALWAYS V_f32 larger_f32(V_f32 x, V_f32 y) { return (V_f32)_mm512_max_ps((__m512)x, (__m512)y); }
ALWAYS V_f64 larger_f64(V_f64 x, V_f64 y) { return (V_f64)_mm512_max_pd((__m512d)x, (__m512d)y); }
ALWAYS V_f32 smaller_f32(V_f32 x, V_f32 y) { return (V_f32)_mm512_min_ps((__m512)x, (__m512)y); }
ALWAYS V_f64 smaller_f64(V_f64 x, V_f64 y) { return (V_f64)_mm512_min_pd((__m512d)x, (__m512d)y); }
typedef unsigned Bad_f32, Bad_f64;
ALWAYS Bad_f32 unordered_f32(V_f32 x, V_f32 y) { return _mm512_cmp_ps_mask((__m512)x, (__m512)y, _CMP_UNORD_Q); }
ALWAYS Bad_f64 unordered_f64(V_f64 x, V_f64 y) { return _mm512_cmp_pd_mask((__m512d)x, (__m512d)y, _CMP_UNORD_Q); }
ALWAYS int some_f32(Bad_f32 b) { return b != 0; }
ALWAYS int some_f64(Bad_f64 b) { return b != 0; }
/* Loads the first n lanes, n < W; the others are `rest`. */
ALWAYS V_f32 some_of_f32(const f32 *p, long n, V_f32 rest) { return (V_f32)_mm512_mask_loadu_ps((__m512)rest, (1u << n) - 1, p); }
ALWAYS V_f64 some_of_f64(const f64 *p, long n, V_f64 rest) { return (V_f64)_mm512_mask_loadu_pd((__m512d)rest, (1u << n) - 1, p); }
#elif defined(__AVX2__)
ALWAYS V_f32 larger_f32(V_f32 x, V_f32 y) { return (V_f32)_mm256_max_ps((__m256)x, (__m256)y); }
ALWAYS V_f64 larger_f64(V_f64 x, V_f64 y) { return (V_f64)_mm256_max_pd((__m256d)x, (__m256d)y); }
ALWAYS V_f32 smaller_f32(V_f32 x, V_f32 y) { return (V_f32)_mm256_min_ps((__m256)x, (__m256)y); }
ALWAYS V_f64 smaller_f64(V_f64 x, V_f64 y) { return (V_f64)_mm256_min_pd((__m256d)x, (__m256d)y); }
typedef M_f32 Bad_f32;
typedef M_f64 Bad_f64;
ALWAYS Bad_f32 unordered_f32(V_f32 x, V_f32 y) { return (M_f32)_mm256_cmp_ps((__m256)x, (__m256)y, _CMP_UNORD_Q); }
ALWAYS Bad_f64 unordered_f64(V_f64 x, V_f64 y) { return (M_f64)_mm256_cmp_pd((__m256d)x, (__m256d)y, _CMP_UNORD_Q); }
ALWAYS int some_f32(Bad_f32 b) { return _mm256_movemask_ps((__m256)b); }
ALWAYS int some_f64(Bad_f64 b) { return _mm256_movemask_pd((__m256d)b); }
ALWAYS __m256i upto_f32(long n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)); }
ALWAYS __m256i upto_f64(long n) { return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3)); }
/* (masked lanes are not read) */
ALWAYS V_f32 some_of_f32(const f32 *p, long n, V_f32 rest) {
    const __m256i m = upto_f32(n);
    return (V_f32)_mm256_blendv_ps((__m256)rest, _mm256_maskload_ps(p, m), (__m256)m);
}
ALWAYS V_f64 some_of_f64(const f64 *p, long n, V_f64 rest) {
    const __m256i m = upto_f64(n);
    return (V_f64)_mm256_blendv_pd((__m256d)rest, _mm256_maskload_pd(p, m), (__m256d)m);
}
#else
typedef M_f32 Bad_f32;
typedef M_f64 Bad_f64;
#define SELECTED(T)                                                                                                                 \
    ALWAYS V_##T chosen_##T(M_##T m, V_##T x, V_##T y) { return (V_##T)(((M_##T)x & m) | ((M_##T)y & ~m)); }                        \
    ALWAYS V_##T larger_##T(V_##T x, V_##T y) { return chosen_##T(x > y, x, y); }                                                   \
    ALWAYS V_##T smaller_##T(V_##T x, V_##T y) { return chosen_##T(x < y, x, y); }                                                  \
    ALWAYS Bad_##T unordered_##T(V_##T x, V_##T y) { return (x != x) | (y != y); }                                                  \
    ALWAYS int some_##T(Bad_##T b) {                                                                                                \
        int r = 0;                                                                                                                  \
        for (unsigned i = 0; i < BYTES / sizeof(T); i++) r |= b[i] != 0;                                                            \
        return r;                                                                                                                   \
    }                                                                                                                               \
    ALWAYS V_##T some_of_##T(const T *p, long n, V_##T rest) {                                                                      \
        for (long i = 0; i < n; i++) rest[i] = p[i];                                                                                \
        return rest;                                                                                                                \
    }
SELECTED(f32)
SELECTED(f64)
#endif

#define T f32
#include "reduce_typed.h"
#include "reduce_moments.h"
#undef T
#define T f64
#include "reduce_typed.h"
#include "reduce_moments.h"
#undef T

/* ------------------------------------------------------------------ softmax */
#include "reduce_softmax.h"

/* ------------------------------------------------------------------ attention */
typedef struct {
    const struct array *q, *k, *v, *bias, *y, *p;
    long l, s, d, e; /* numbers of queries and keys, elements of these, elements of values */
    int causal, yes, lost;      /* yes: the bias is a bool mask of keys; lost: out of memory */
    double scale;
} Attend;

/* Start of the part of an array that belongs to a head of `y`, with leading axes broadcast to those
   of y. */
static char *part_of(const struct array *a, const struct array *y, long head) {
    char *p = a->data;
    for (int d = y->nd - 3, at = a->nd - 3; at >= 0; d--, at--) {
        if (a->dims[at] != 1) p += head % y->dims[d] * a->strides[at];
        head /= y->dims[d];
    }
    return p;
}
/* Stride in elements of an axis counted from the last (1); 0 if it has size 1. */
static long step_of(const struct array *a, int axis, long bytes) {
    return a->nd < axis || a->dims[a->nd - axis] == 1 ? 0 : a->strides[a->nd - axis] / bytes;
}
static int broadcasts(const struct array *a, const struct array *to, int axes, long bytes) {
    if (!(a->flags & ALIGNED) || a->nd > to->nd) return 0;
    for (int i = 1; i <= a->nd; i++) {
        if (a->dims[a->nd - i] != 1 && a->strides[a->nd - i] % bytes) return 0;
        if (i > axes && a->dims[a->nd - i] != 1 && a->dims[a->nd - i] != to->dims[to->nd - i]) return 0;
    }
    return 1;
}

static double powers_f64(const f64 *x, long n, double m, f64 *to) {
    double r = 0;
    for (long i = 0; i < n; i++) r += to[i] = exp(x[i] - m);
    return r;
}
static double top_f64(const f64 *x, long n) {
    double m = -INFINITY;
    for (long i = 0; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}
#define T f32
#define TOP top
#define EXPONENTIALS powers
#include "reduce_attention.h"
#undef T
#undef TOP
#undef EXPONENTIALS
#define T f64
#define TOP top_f64
#define EXPONENTIALS powers_f64
#include "reduce_attention.h"
#undef T
#undef TOP
#undef EXPONENTIALS

/* p = softmax(q @ k.T * scale + bias) and y = p @ v over the last two axes; the others are
   broadcast to those of y and p, which are C-contiguous. bias: NULL, of the other arrays' type, or
   (yes) bytes that are 0 for masked keys; causal: key j is masked for query i < j. how: 1 double
   precision, 2 causal, 4 yes. Returns -1 if unsupported. */
int mt_attend(int how, const struct array *q, const struct array *k, const struct array *v, const struct array *bias,
              const struct array *y, const struct array *p, double scale) {
    const int wide = how & 1, causal = how >> 1 & 1, yes = how >> 2 & 1;
    const long bytes = wide ? 8 : 4;
    if (q->nd < 2 || k->nd < 2 || v->nd < 2 || y->nd < 2 || y->nd != p->nd || !plain(y) || !plain(p)) return -1;
    Attend u = {q, k, v, bias, y, p, q->dims[q->nd - 2], k->dims[k->nd - 2], q->dims[q->nd - 1], v->dims[v->nd - 1], causal, yes, 0, scale};
    if (u.l < 1 || u.s < 1 || u.e < 1 || k->dims[k->nd - 1] != u.d || v->dims[v->nd - 2] != u.s) return -1;
    if (y->dims[y->nd - 2] != u.l || y->dims[y->nd - 1] != u.e || p->dims[p->nd - 2] != u.l || p->dims[p->nd - 1] != u.s) return -1;
    if (!broadcasts(q, y, 2, bytes) || !broadcasts(k, y, 2, bytes) || !broadcasts(v, y, 2, bytes)) return -1;
    if (bias && !broadcasts(bias, p, 0, yes ? 1 : bytes)) return -1;
    long heads = 1;
    for (int i = 0; i < y->nd - 2; i++) {
        if (y->dims[i] != p->dims[i]) return -1;
        heads *= y->dims[i];
    }
    const int few = u.l < 4 && (u.d == 1 || step_of(k, 1, bytes) == 1) && (u.e == 1 || step_of(v, 1, bytes) == 1);
    shared(heads, heads * u.l * u.s * (u.d + u.e) / (few ? 4 : 8), few ? (wide ? attend_few_f64 : attend_few_f32) : wide ? attend_f64 : attend_f32, &u);
    return u.lost ? -1 : 0;
}

/* ------------------------------------------------------------------ norms */
#include "reduce_norm.h"
