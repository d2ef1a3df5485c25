/* Random numbers from a Mersenne twister (backend/c_kernels/random.py): raw words, uniforms,
 * normals, masks, integers and permutations.
 *
 * Compiled with -ffp-contract=off: every value is the one that backend/cpu/random.py computes with
 * NumPy.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "common_threads.h"
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;

/* ------------------------------------------------------------------ words */
#define BLOCK 624           /* words per block of the twister */
#define MIDDLE 397

/* State of a generator: `key` is NumPy's state at the end of a block, `words` are the buffered
   words. */
typedef struct {
    u32 *key;
    const u32 *words;
    i64 size;
} Source;

typedef struct {
    u32 *key, *fresh;       /* fresh: memory for the words of the last generated block */
    const u32 *words;
    long at, size;
} Stream;

#define MIXED(k, far, next) { u32 y_ = ((k) & 0x80000000u) | ((next) & 0x7fffffffu); (k) = (far) ^ (y_ >> 1) ^ (-(y_ & 1) & 0x9908b0dfu); }

static void next_block(u32 *key, u32 *to) {
    /* (a word depends on words at distance 397 or 227 and on the old next one, so they can be
       computed as vectors) */
    _Pragma("omp simd safelen(64)")
    for (int i = 0; i < BLOCK - MIDDLE; i++) MIXED(key[i], key[i + MIDDLE], key[i + 1])
    _Pragma("omp simd safelen(64)")
    for (int i = BLOCK - MIDDLE; i < BLOCK - 1; i++) MIXED(key[i], key[i + MIDDLE - BLOCK], key[i + 1])
    MIXED(key[BLOCK - 1], key[MIDDLE - 1], key[0])
    for (int i = 0; i < BLOCK; i++) {
        u32 y = key[i];
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c5680u;
        y ^= y << 15 & 0xefc60000u;
        to[i] = y ^ y >> 18;
    }
}

static Stream stream(const Source *s, long at, u32 *fresh) { return (Stream){s->key, fresh, s->words, at, s->size}; }

/* Number of the next `n` words that are contiguous at s->words + s->at; at least one. */
static long ahead(Stream *s, long n) {
    if (s->at == s->size) {
        next_block(s->key, s->fresh);
        s->words = s->fresh, s->at = 0, s->size = BLOCK;
    }
    return n < s->size - s->at ? n : s->size - s->at;
}

static void take(Stream *s, u32 *to, long n) {
    while (n) {
        const long m = ahead(s, n);
        memcpy(to, s->words + s->at, m * sizeof *to);
        to += m, n -= m, s->at += m;
    }
}

static long elements(const struct array *a) {
    long n = 1;
    for (int d = 0; d < a->nd; d++) n *= a->dims[d];
    return n;
}

/* Fills a C-contiguous array, starting at buffered word `at`. Returns the number of used words of
   the current buffer (of the last generated block, if any). The caller knows whether `fresh` is
   needed. */
#define DRAW(NAME, T, ...) long NAME(const Source *source, long at, u32 *fresh, struct array *out, ##__VA_ARGS__)
#define BEGIN(T) Stream s = stream(source, at, fresh); T *to = (T *)out->data; long n = elements(out);

DRAW(mt_draw_words, u32) {
    BEGIN(u32)
    take(&s, to, n);
    return s.at;
}

/* ------------------------------------------------------------------ uniforms */
#define STEP24 5.9604644775390625e-8f

static void uniforms(Stream *s, float *to, long n) {
    while (n) {
        const long m = ahead(s, n);
        const u32 *w = s->words + s->at;
        for (long i = 0; i < m; i++) to[i] = (float)(int32_t)(w[i] & 0xffffff) * STEP24;
        to += m, n -= m, s->at += m;
    }
}

DRAW(mt_draw_uniforms, float) {
    BEGIN(float)
    uniforms(&s, to, n);
    return s.at;
}

/* Values in [low, low + width); rounding up to the excluded `high` gives low. */
DRAW(mt_draw_between, float, float low, float width, float high) {
    BEGIN(float)
    while (n) {
        const long m = n < BLOCK ? n : BLOCK;
        uniforms(&s, to, m);
        for (long i = 0; i < m; i++) {
            const float x = fmaf(to[i], width, low);
            to[i] = x == high ? low : x;
        }
        to += m, n -= m;
    }
    return s.at;
}

#define PAIRS 512
#define LONG(k) ((u64)(pair[2 * (k)] & 0x1fffff) << 32 | pair[2 * (k) + 1])
#define BY_PAIRS(STATEMENT)                                                                                                         \
    while (n) {                                                                                                                     \
        u32 pair[2 * PAIRS];                                                                                                        \
        const long m = n < PAIRS ? n : PAIRS;                                                                                       \
        take(&s, pair, 2 * m);                                                                                                      \
        for (long i = 0; i < m; i++) STATEMENT                                                                                      \
        to += m, n -= m;                                                                                                            \
    }

DRAW(mt_draw_doubles, double) {
    BEGIN(double)
    BY_PAIRS(to[i] = (double)(i64)LONG(i) * 0x1p-53;)
    return s.at;
}

/* 1 where a 53-bit random integer is below `bound` */
DRAW(mt_draw_mask, char, i64 bound) {
    BEGIN(char)
    BY_PAIRS(to[i] = (i64)LONG(i) < bound;)
    return s.at;
}

/* ------------------------------------------------------------------ integers */
/* low + (word modulo width), width below 2^32: multiplying by 2^64 / width leaves the remainder in
   the fraction. */
DRAW(mt_draw_integers, i64, i64 low, i64 width) {
    BEGIN(i64)
    const u64 d = (u64)width, inverse = UINT64_MAX / d + 1;
    while (n) {
        const long m = ahead(&s, n);
        const u32 *w = s.words + s.at;
        for (long i = 0; i < m; i++) to[i] = low + (i64)(u64)((unsigned __int128)(inverse * w[i]) * d >> 64);
        to += m, n -= m, s.at += m;
    }
    return s.at;
}

/* Permutation of 0..n-1: swaps element i with a random one from i on, for n - 1 steps in order (n
   below 2^32). */
DRAW(mt_draw_order, i64) {
    BEGIN(i64)
    for (long i = 0; i < n; i++) to[i] = i;
    for (long i = 0; i < n - 1;) {
        const long m = ahead(&s, n - 1 - i);
        const u32 *w = s.words + s.at;
        for (long k = 0; k < m; k++, i++) {
            const long j = i + w[k] % (u32)(n - i);
            const i64 t = to[i];
            to[i] = to[j], to[j] = t;
        }
        s.at += m;
    }
    return s.at;
}

/* ------------------------------------------------------------------ normals */
#if defined(__FMA__) || defined(__aarch64__)
#define FUSED 1
#define GROUP 32        /* blocks of sixteen processed together */
#define PART 65536 /* uniforms generated before threads share them: they are still in the cache */

/* Cephes' logarithm, cosine and sine, evaluated like PyTorch's vector code
   (backend/cpu/box_muller.py does the same in NumPy) */
static void normals(float *x, long blocks) {
    float r[GROUP * 8], a[GROUP * 8], c[GROUP * 8], s[GROUP * 8];
    long n = blocks * 8;
    for (long b = 0; b < blocks; b++) {
        memcpy(r + b * 8, x + b * 16, 32);
        memcpy(a + b * 8, x + b * 16 + 8, 32);
    }
    for (long i = 0; i < n; i++) {
        union { float f; int32_t i; } v = {.f = 1.0f - r[i]}, m;
        float e = (float)((v.i >> 23) - 126);
        m.i = (v.i & 0x7fffff) | 0x3f000000;
        float q = m.f, low = q < 0.707106781186547524f ? 1.0f : 0.0f;
        e -= low;
        q += low * q;
        q -= 1.0f;
        float z = q * q;
        float y = fmaf(q, 7.0376836292e-2f, -1.1514610310e-1f);
        y = fmaf(y, q, 1.1676998740e-1f);
        y = fmaf(y, q, -1.2420140846e-1f);
        y = fmaf(y, q, 1.4249322787e-1f);
        y = fmaf(y, q, -1.6668057665e-1f);
        y = fmaf(y, q, 2.0000714765e-1f);
        y = fmaf(y, q, -2.4999993993e-1f);
        y = fmaf(y, q, 3.3333331174e-1f);
        y *= q;
        y = fmaf(y, z, e * -2.12194440e-4f);
        y -= z * 0.5f;
        q += y;
        q += e * 0.693359375f;
        r[i] = sqrtf(q * -2.0f);
    }
    for (long i = 0; i < n; i++) {
        float t = a[i] * 6.283185307179586f;
        int32_t o = ((int32_t)(t * 1.2732395447351628f) + 1) & ~1;
        float k = (float)o;
        t = t + k * -0.78515625f;
        t = t + k * -2.4187564849853515625e-4f;
        t = fmaf(k, -3.77489497744594108e-8f, t);
        float z = t * t;
        union { float f; int32_t i; } p, q;
        p.f = fmaf(z, 2.443315711809948e-5f, -1.388731625493765e-3f);
        p.f = fmaf(p.f, z, 4.166664568298827e-2f) * z;
        p.f = fmaf(p.f, z, z * -0.5f) + 1.0f;
        q.f = fmaf(z, -1.9515295891e-4f, 8.3321608736e-3f);
        q.f = fmaf(q.f, z, -1.6666654611e-1f) * z;
        q.f = fmaf(q.f, t, t);
        int32_t swap = -(o >> 1 & 1) & (p.i ^ q.i);
        p.i ^= swap ^ (int32_t)((uint32_t)(o + 2) << 29 & 0x80000000u);
        q.i ^= swap ^ (int32_t)((uint32_t)o << 29 & 0x80000000u);
        c[i] = p.f * r[i];
        s[i] = q.f * r[i];
    }
    for (long b = 0; b < blocks; b++) {
        memcpy(x + b * 16, c + b * 8, 32);
        memcpy(x + b * 16 + 8, s + b * 8, 32);
    }
}

typedef struct {
    float *x, mean, std;
    long blocks;
} Normal;

static void normal_groups(void *ctx, long start, long stop, int who) {
    const Normal *k = ctx;
    (void)who;
    for (long g = start; g < stop; g++) {
        const long blocks = k->blocks - g * GROUP < GROUP ? k->blocks - g * GROUP : GROUP;
        float *x = k->x + g * GROUP * 16;
        normals(x, blocks);
        for (long i = 0; i < 16 * blocks; i++) x[i] = fmaf(x[i], k->std, k->mean);
    }
}
#endif

/* Processes blocks of sixteen: eight radii and eight angles. If some elements remain, the last
   sixteen are drawn again (`all`: the words of the remaining elements are drawn first). Returns -1,
   and draws nothing, without FMA or for fewer than sixteen elements. */
DRAW(mt_draw_normals, float, float mean, float std, int all) {
#ifdef FUSED
    BEGIN(float)
    if (n < 16) return -1;
    const long whole = n & ~15L;
    for (long i = 0; i < whole; i += PART) {
        Normal k = {to + i, mean, std, (whole - i < PART ? whole - i : PART) / 16};
        uniforms(&s, k.x, k.blocks * 16);
        shared((k.blocks + GROUP - 1) / GROUP, 16 * k.blocks, normal_groups, &k);
    }
    if (n > whole) {
        float last[16];
        if (all) uniforms(&s, last, n - whole);
        uniforms(&s, last, 16);
        Normal k = {last, mean, std, 1};
        normal_groups(&k, 0, 1, 0);
        memcpy(to + n - 16, last, sizeof last);
    }
    return s.at;
#else
    (void)source, (void)at, (void)fresh, (void)out, (void)mean, (void)std, (void)all;
    return -1;
#endif
}
