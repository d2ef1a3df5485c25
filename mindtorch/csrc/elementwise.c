/* Elementwise ops in one pass (backend/c_kernels/elementwise.py): each line of elementwise_table.h
 * becomes a loop over float and one over double. float16 and bfloat16 use the float loop piece by
 * piece, with one final rounding.
 *
 * Compiled with -ffp-contract=off: fused operations are explicit. An element depends only on its
 * operands, so results do not depend on threads and pieces.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "common.h"
#ifdef __F16C__
#include <immintrin.h>
#endif

static void (*share)(long n, piece fn, void *ctx);                              /* mt_share of thread_pool.c */

static const void *single_type;                                                 /* NumPy's float32 */

void mt_use(void (*share_)(long, piece, void *), const void *type) { share = share_, single_type = type; }

/* number of elements from which on threads share a loop: for additions two threads break even
   there, all other ops gain */
#define SHARES 32768

typedef float f32;
typedef double f64;

/* Processes n elements; v: the op's three scalar parameters. The result may be an operand. */
typedef void (*loop)(const void *x, const void *y, const void *z, void *to, long n, const f64 *v);
/* `single`: the variant with one y for all of x, if there is one */
typedef struct { const char *name; int operands; loop fn, single; } Entry;

#include "elementwise_functions.h"

#define REAL 4
#define T f32
#define F(name) name##f
#include "elementwise_typed.h"
#undef T
#undef F
#undef REAL
#define REAL 8
#define T f64
#define F(name) name
#include "elementwise_typed.h"
#undef T
#undef F

/* Converts n elements of kind 2 or 3 (float16 or bfloat16) to float, and back with rounding to
   nearest even. */
static void widen(int kind, const void *from, f32 *restrict b, long n) {
    const uint16_t *restrict a = from;
    long i = 0;
    if (kind == 3) {
        _Pragma("omp simd") for (i = 0; i < n; i++) b[i] = float_of((uint32_t)a[i] << 16);
        return;
    }
#ifdef __F16C__
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16) _mm512_storeu_ps(b + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(a + i))));
#endif
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(b + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(a + i))));
    for (; i < n; i++) b[i] = _cvtsh_ss(a[i]);
#endif
}

static void narrow(int kind, const f32 *restrict a, void *to, long n) {
    uint16_t *restrict b = to;
    long i = 0;
    if (kind == 3) {
        _Pragma("omp simd") for (i = 0; i < n; i++) {
            const uint32_t u = bits_of(a[i]);
            /* (all nans become one) */
            b[i] = (u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
        }
        return;
    }
#ifdef __F16C__
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16) _mm256_storeu_si256((__m256i *)(b + i), _mm512_cvtps_ph(_mm512_loadu_ps(a + i), 0));
#endif
    for (; i + 8 <= n; i += 8) _mm_storeu_si128((__m128i *)(b + i), _mm256_cvtps_ph(_mm256_loadu_ps(a + i), 0));
    for (; i < n; i++) b[i] = _cvtss_sh(a[i], 0);
#endif
}

static const Entry *entry(int code, int kind) { return (kind == 1 ? table_f64 : table_f32) + code; }

/* Returns the op's index in the table for elements of a kind (0 float, 1 double, 2 float16, 3
   bfloat16); -1 if there is none. */
int mt_loop_named(const char *name, int kind) {
    const Entry *t = kind == 1 ? table_f64 : table_f32;
    const int n = kind == 1 ? sizeof table_f64 / sizeof *table_f64 : sizeof table_f32 / sizeof *table_f32;
#ifndef __F16C__
    if (kind == 2) return -1;           /* (the processor lacks that instruction) */
#endif
    for (int i = 0; i < n; i++)
        if (!strcmp(t[i].name, name)) return i;
    return -1;
}

/* ------------------------------------------------------------------ iteration */
#define MOST 8              /* dimensions, after merging contiguous ones */
#define BLOCK 4096          /* elements of a row that a thread processes at once */
#define PART 512           /* elements converted or repeated at once */

typedef struct {
    const Entry *e;
    /* wide: operands that are a single float next to half precision operands */
    int kind, dims, wide;
    /* strides in elements, the last ones are the result's; along rows 0 or 1 */
    const long *shape, *step[4];
    const char *at[3];
    char *to;
    const f64 *v;
    long blocks;                        /* per row */
} Job;

static const long size_of[] = {4, 8, 2, 2};

/* Processes m elements (m <= PART) if an operand has to be converted or repeated. */
static void part(const Job *k, const char **at, char *to, long m, char room[4][PART * 8], const char **filled, long *full) {
    const long half = k->kind > 1;
    const void *x[3] = {0, 0, 0};
    int single = 0;
    for (int o = 0; o < k->e->operands; o++) {
        x[o] = at[o];
        if (!k->step[o][k->dims - 1]) {
            single = o == 1 && k->e->single;
            if (filled[o] != at[o] || full[o] < m) {
                const long n = single ? 1 : m;
                if (k->kind == 1) {
                    const f64 w = *(const f64 *)at[o];
                    for (long i = 0; i < n; i++) ((f64 *)room[o])[i] = w;
                } else {
                    f32 w;
                    if (half && !(k->wide >> o & 1)) widen(k->kind, at[o], &w, 1);
                    else w = *(const f32 *)at[o];
                    for (long i = 0; i < n; i++) ((f32 *)room[o])[i] = w;
                }
                filled[o] = at[o], full[o] = m;
            }
            x[o] = room[o];
        } else if (half) {
            widen(k->kind, at[o], (f32 *)room[o], m);
            x[o] = room[o];
        }
    }
    void *r = half ? room[3] : to;
    (single ? k->e->single : k->e->fn)(x[0], x[1], x[2], r, m, k->v);
    if (half) narrow(k->kind, r, to, m);
}

static void walk(void *ctx, long start, long stop, int who) {
    const Job *k = ctx;
    (void)who;
    const long size = size_of[k->kind];
    const int last = k->dims - 1, operands = k->e->operands;
    const long width = k->shape[last];
    int plain = k->kind < 2;
    for (int o = 0; o < operands; o++) plain &= k->step[o][last] == 1;
    char room[4][PART * 8] __attribute__((aligned(64)));
    const char *filled[3] = {0, 0, 0};
    long full[3] = {0, 0, 0}, count[MOST], rest = start / k->blocks, block = start % k->blocks;
    const char *base[3] = {0, 0, 0};
    char *result = k->to;
    for (int o = 0; o < operands; o++) base[o] = k->at[o];
    for (int d = last - 1; d >= 0; d--) {
        count[d] = rest % k->shape[d], rest /= k->shape[d];
        for (int o = 0; o < operands; o++) base[o] += count[d] * k->step[o][d] * size;
        result += count[d] * k->step[3][d] * size;
    }
    for (long u = start; u < stop; u++) {
        const long from = block * BLOCK, end = from + BLOCK < width ? from + BLOCK : width, by = plain ? BLOCK : PART;
        for (long i = from; i < end; i += by) {
            const long m = end - i < by ? end - i : by;
            const char *at[3] = {0, 0, 0};
            for (int o = 0; o < operands; o++) at[o] = base[o] + (k->step[o][last] ? i * size : 0);
            char *to = result + i * size;
            if (plain) k->e->fn(at[0], at[1], at[2], to, m, k->v);
            else part(k, at, to, m, room, filled, full);
        }
        if (++block < k->blocks) continue;
        block = 0;
        for (int d = last - 1; d >= 0; d--) {
            for (int o = 0; o < operands; o++) base[o] += k->step[o][d] * size;
            result += k->step[3][d] * size;
            if (++count[d] < k->shape[d]) break;
            count[d] = 0;
            for (int o = 0; o < operands; o++) base[o] -= k->step[o][d] * k->shape[d] * size;
            result -= k->step[3][d] * k->shape[d] * size;
        }
    }
}

typedef struct array Array;
#define NARROW 4            /* rows shorter than this are left to NumPy, which can reorder loops */

/* Computes the strides of operands and result along the result's dimensions and merges contiguous
   ones. Returns 0 if unsupported. */
static int planned(Job *k, const Array *r, const Array *const *in, long *shape, long (*step)[MOST]) {
    const long size = size_of[k->kind];
    const int operands = k->e->operands;
    int n = 0;
    for (int d = 0; d < r->nd; d++) {
        const long count = r->dims[d];
        if (count == 1) continue;
        long s[4] = {0, 0, 0, r->strides[d]};
        for (int o = 0; o < operands; o++) {
            const int own = d - r->nd + in[o]->nd;
            const long have = own < 0 ? 1 : in[o]->dims[own];
            if (have != count && have != 1) return 0;
            s[o] = have == 1 ? 0 : in[o]->strides[own];
        }
        int on = n > 0;
        for (int o = 0; o < 4; o++) {
            if (s[o] % size) return 0;
            s[o] /= size;
            on &= n > 0 && step[o][n - 1] == s[o] * count;
        }
        if (on) n--, shape[n] *= count;
        else if (n == MOST) return 0;
        else shape[n] = count;
        for (int o = 0; o < 4; o++) step[o][n] = s[o];
        n++;
    }
    if (!n) {
        shape[0] = 1, n = 1;
        for (int o = 0; o < 4; o++) step[o][0] = !(k->wide >> o & 1);
    }
    for (int o = 0; o < operands; o++)
        if (step[o][n - 1] != 0 && step[o][n - 1] != 1) return 0;
    k->dims = n;
    return step[3][n - 1] == 1 && (n == 1 || shape[n - 1] >= NARROW);
}

/* how: the op's index in the table, plus the element kind from bit 16 on. Arrays are passed as the
   addresses of their Python objects. The result has the broadcast shape of the operands, and each
   of its elements may alias only its own operands. Returns 1, without doing anything, if
   unsupported. */
int mt_loop_numbers(int how, Array *r, const Array *x, const Array *y, const Array *z, f64 p, f64 q, f64 t) {
    const Array *in[3] = {x, y, z};
    const f64 v[3] = {p, q, t};
    Job k = {.e = entry(how & 0xffff, how >> 16), .kind = how >> 16, .to = r->data, .v = v};
    const int needed = ALIGNED | WRITEABLE;
    long shape[MOST], step[4][MOST] = {{0}}, rows = 1;
    if ((r->flags & needed) != needed) return 1;
    int plain = r->flags & CONTIGUOUS;
    for (int o = 0; o < k.e->operands; o++) {
        if (!(in[o]->flags & ALIGNED)) return 1;
        if (in[o]->dtype != r->dtype) {
            if (k.kind < 2 || in[o]->nd || in[o]->dtype != single_type || !r->nd) return 1;
            k.wide |= 1 << o;
        }
        k.at[o] = in[o]->data;
        plain = plain && in[o]->flags & CONTIGUOUS && in[o]->nd == r->nd && !memcmp(in[o]->dims, r->dims, r->nd * sizeof *r->dims);
    }
    for (int o = 0; o < 4; o++) k.step[o] = step[o];
    if (plain) {
        k.dims = 1, shape[0] = 1;
        for (int d = 0; d < r->nd; d++) shape[0] *= r->dims[d];
        for (int o = 0; o < 4; o++) step[o][0] = 1;
    } else if (!planned(&k, r, in, shape, step)) return 1;
    k.shape = shape;
    for (int d = 0; d < k.dims - 1; d++) rows *= shape[d];
    const long width = shape[k.dims - 1];
    if (rows < 1 || width < 1) return 0;
    k.blocks = (width + BLOCK - 1) / BLOCK;
    if (rows * width >= SHARES) share(rows * k.blocks, walk, &k);
    else walk(&k, 0, rows * k.blocks, 0);
    return 0;
}

int mt_loop(int how, Array *r, const Array *x, const Array *y, const Array *z) { return mt_loop_numbers(how, r, x, y, z, 0, 0, 0); }

typedef struct { const Entry *e; const char *at[3]; f64 *sums; const f64 *v; long n, size; } Sums;

#define SUMMED(T) static f64 summed_##T(const T *x, long n) {                                                                       \
        f64 s[16] = {0}, all = 0;                                                                                                   \
        long i = 0;                                                                                                                 \
        for (; i + 16 <= n; i += 16)                                                                                                \
            for (int j = 0; j < 16; j++) s[j] += x[i + j];                                                                          \
        for (; i < n; i++) s[i & 15] += x[i];                                                                                       \
        for (int j = 0; j < 16; j++) all += s[j];                                                                                   \
        return all;                                                                                                                 \
    }
SUMMED(f32) SUMMED(f64)

static void sum_blocks(void *ctx, long start, long stop, int who) {
    const Sums *k = ctx;
    f64 room[BLOCK] __attribute__((aligned(64)));
    (void)who;
    for (long u = start; u < stop; u++) {
        const long from = u * BLOCK, n = k->n - from < BLOCK ? k->n - from : BLOCK;
        const char *at[3] = {0, 0, 0};
        for (int o = 0; o < k->e->operands; o++) at[o] = k->at[o] + from * k->size;
        k->e->fn(at[0], at[1], at[2], room, n, k->v);
        k->sums[u] = k->size == 4 ? summed_f32((const f32 *)room, n) : summed_f64(room, n);
    }
}

/* Sums the results of mt_loop_numbers in double, for C-contiguous operands of one shape, float or
   double: sums (float64) gets one value per 4096 elements, whatever the number of threads. Returns
   1, without doing anything, if unsupported. */
int mt_loop_sums(int how, const Array *sums, const Array *x, const Array *y, const Array *z, f64 p, f64 q, f64 t) {
    const Array *in[3] = {x, y, z};
    const f64 v[3] = {p, q, t};
    const int kind = how >> 16;
    Sums k = {.e = entry(how & 0xffff, kind), .sums = (f64 *)sums->data, .v = v, .n = 1, .size = size_of[kind]};
    if (kind > 1) return 1;
    for (int d = 0; d < x->nd; d++) k.n *= x->dims[d];
    const long blocks = (k.n + BLOCK - 1) / BLOCK;
    for (int o = 0; o < k.e->operands; o++) {
        if ((in[o]->flags & (ALIGNED | CONTIGUOUS)) != (ALIGNED | CONTIGUOUS) || in[o]->nd != x->nd || in[o]->dtype != x->dtype) return 1;
        if (memcmp(in[o]->dims, x->dims, x->nd * sizeof *x->dims)) return 1;
        k.at[o] = in[o]->data;
    }
    if (sums->nd != 1 || sums->dims[0] < blocks || !(sums->flags & CONTIGUOUS)) return 1;
    if (k.n >= SHARES) share(blocks, sum_blocks, &k);
    else sum_blocks(&k, 0, blocks, 0);
    return 0;
}
