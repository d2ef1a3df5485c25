/* Passes over the rows and columns of arrays in C order: reductions, softmax and what goes with it, layer norm, scale and shift
 * by channel (backend/native/rows.py).  In _rows_reduce.h (by type), _rows_soft.h, _rows_norm.h.
 *
 * Pieces are the same however many threads there are, and so are the results.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "_common_share.h"

#define PLAIN_MEMORY (CONTIGUOUS | ALIGNED)
static int plain(const struct array *a) { return (a->flags & PLAIN_MEMORY) == PLAIN_MEMORY; }

typedef int32_t i32;
typedef int64_t i64;
typedef float f32;
typedef double f64;
#define BYTES 64            /* of a vector */
typedef f32 V_f32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef f64 V_f64 __attribute__((vector_size(BYTES), aligned(8), may_alias));
typedef i32 M_f32 __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef i64 M_f64 __attribute__((vector_size(BYTES), aligned(8), may_alias));

enum { SUM, SQUARES, SIZES, PRODUCT, LARGEST, LEAST, NORM };

/* ------------------------------------------------------------------ reductions */
/* larger, smaller: the second where either is nan.  unordered: lanes where either is. */
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
/* the first n lanes, n < W, the others being `rest` */
ALWAYS V_f32 some_of_f32(const f32 *p, long n, V_f32 rest) { return (V_f32)_mm512_mask_loadu_ps((__m512)rest, (1u << n) - 1, p); }
ALWAYS V_f64 some_of_f64(const f64 *p, long n, V_f64 rest) { return (V_f64)_mm512_mask_loadu_pd((__m512d)rest, (1u << n) - 1, p); }
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
#include "_rows_reduce.h"
#undef T
#define T f64
#include "_rows_reduce.h"
#undef T

/* ------------------------------------------------------------------ softmax */
#include "_rows_soft.h"

/* ------------------------------------------------------------------ norms */
#include "_rows_norm.h"
