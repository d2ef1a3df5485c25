/* ------------------------------------------------------------------ LSTM over time */
#include "common_vectors.h"

typedef struct {
    float *gates, *h, *c, *tc, *dgates, *dh0, *dc0;
    const float *w, *h0, *c0, *gy, *gh, *gc;
    long t, b, n;
    int reverse;
} Lstm;
static const int none[1] = {0};

static void lstm_rows(void *ctx, long start, long stop, int who) {
    Lstm *k = ctx;
    long n = k->n, wide = 4 * n;
    float *packed = room(0, n * OCB + TILE), *tile = room(1, OCB * TILE);
    (void)who;
    for (long blk = start; blk < stop; blk++)
        for (long row = blk * OCB, end = row + OCB < k->b ? row + OCB : k->b; row < end;) {
            int m = block((int)(end - row));
            for (long step = 0; step < k->t; step++) {
                long t = k->reverse ? k->t - 1 - step : step, prev = k->reverse ? t + 1 : t - 1;
                const float *h = step ? k->h + (prev * k->b + row) * n : k->h0 + row * n;
                const float *c = step ? k->c + (prev * k->b + row) * n : k->c0 + row * n;
                for (int i = 0; i < m; i++) for (long j = 0; j < n; j++) packed[j * m + i] = h[i * n + j];
                float *z = k->gates + (t * k->b + row) * wide;
                for (long p = 0; p < wide;) {
                    int v = wide - p >= 3 * VL ? 3 : wide - p >= 2 * VL ? 2 : 1;
                    kernel_for(m, v)(k->w + p, wide, (int)n, none, 1, packed, tile, TILE);
                    for (int i = 0; i < m; i++)
                        for (int j = 0; j < v; j++) {
                            float *d = z + i * wide + p + j * VL;
                            STORE(d, LOAD(d) + LOAD(tile + i * TILE + j * VL));
                        }
                    p += v * VL;
                }
                for (int i = 0; i < m; i++) {
                    float *q = z + i * wide;
                    long at = (t * k->b + row + i) * n;
                    for (long j = 0; j < n; j += VL) {
                        vf a = vsigmoid(LOAD(q + j)), f = vsigmoid(LOAD(q + n + j)), g = vtanh(LOAD(q + 2 * n + j));
                        vf o = vsigmoid(LOAD(q + 3 * n + j)), cell = f * LOAD(c + i * n + j) + a * g, tc = vtanh(cell);
                        STORE(q + j, a);
                        STORE(q + n + j, f);
                        STORE(q + 2 * n + j, g);
                        STORE(q + 3 * n + j, o);
                        STORE(k->c + at + j, cell);
                        STORE(k->tc + at + j, tc);
                        STORE(k->h + at + j, o * tc);
                    }
                }
            }
            row += m;
        }
}

/* gates (t, b, 4n): the input's contribution, replaced by i, f, g, o; w (n, 4n) is the transposed
   weight; h, c, tc (t, b, n) */
void mt_lstm(float *gates, const float *w, const float *h0, const float *c0, float *h, float *c, float *tc, long t, long b, long n,
             int reverse) {
    Lstm k = {.gates = gates, .w = w, .h0 = h0, .c0 = c0, .h = h, .c = c, .tc = tc, .t = t, .b = b, .n = n, .reverse = reverse};
    share((b + OCB - 1) / OCB, lstm_rows, &k);
}

static void lstm_grad_rows(void *ctx, long start, long stop, int who) {
    Lstm *k = ctx;
    long n = k->n, wide = 4 * n;
    float *packed = room(0, wide * OCB + TILE), *tile = room(1, OCB * TILE);
    (void)who;
    for (long blk = start; blk < stop; blk++)
        for (long row = blk * OCB, end = row + OCB < k->b ? row + OCB : k->b; row < end;) {
            int m = block((int)(end - row));
            float *dh = k->dh0 + row * n, *dc = k->dc0 + row * n;
            for (int i = 0; i < m; i++)
                for (long j = 0; j < n; j++) {
                    dh[i * n + j] = k->gh ? k->gh[(row + i) * n + j] : 0;
                    dc[i * n + j] = k->gc ? k->gc[(row + i) * n + j] : 0;
                }
            for (long step = k->t - 1; step >= 0; step--) {
                long t = k->reverse ? k->t - 1 - step : step, prev = k->reverse ? t + 1 : t - 1;
                const float *c = step ? k->c + (prev * k->b + row) * n : k->c0 + row * n;
                for (int i = 0; i < m; i++) {
                    long at = (t * k->b + row + i) * n;
                    const float *q = k->gates + at * 4, *tc = k->tc + at, *gy = k->gy ? k->gy + at : 0;
                    float *d = k->dgates + at * 4;
                    for (long j = 0; j < n; j += VL) {
                        vf a = LOAD(q + j), f = LOAD(q + n + j), g = LOAD(q + 2 * n + j), o = LOAD(q + 3 * n + j), u = LOAD(tc + j);
                        vf e = LOAD(dh + i * n + j);
                        if (gy) e += LOAD(gy + j);
                        vf x = LOAD(dc + i * n + j) + e * o * (1.0f - u * u);
                        STORE(d + j, x * g * a * (1.0f - a));
                        STORE(d + n + j, x * LOAD(c + i * n + j) * f * (1.0f - f));
                        STORE(d + 2 * n + j, x * a * (1.0f - g * g));
                        STORE(d + 3 * n + j, e * u * o * (1.0f - o));
                        STORE(dc + i * n + j, x * f);
                    }
                    for (long j = 0; j < wide; j++) packed[j * m + i] = d[j];
                }
                for (long p = 0; p < n;) {
                    int v = n - p >= 3 * VL ? 3 : n - p >= 2 * VL ? 2 : 1;
                    kernel_for(m, v)(k->w + p, n, (int)wide, none, 1, packed, tile, TILE);
                    for (int i = 0; i < m; i++) memcpy(dh + i * n + p, tile + i * TILE, sizeof(float) * v * VL);
                    p += v * VL;
                }
            }
            row += m;
        }
}

/* w (4n, n) is not transposed; gy, gh, gc may be null */
void mt_lstm_grad(const float *gy, const float *gh, const float *gc, float *gates, const float *w, const float *c0, float *c, float *tc,
                  float *dgates, float *dh0, float *dc0, long t, long b, long n, int reverse) {
    Lstm k = {.gy = gy, .gh = gh, .gc = gc, .gates = gates, .w = w, .c0 = c0, .c = c, .tc = tc, .dgates = dgates, .dh0 = dh0, .dc0 = dc0,
              .t = t, .b = b, .n = n, .reverse = reverse};
    share((b + OCB - 1) / OCB, lstm_grad_rows, &k);
}

int mt_width(void) { return VL; }

/* ------------------------------------------------------------------ matrix products */
typedef struct { const float *a, *b, *bias; float *c; long m, k, n; int relu, tb; } Gemm;

/* d (k rows, `pitch` columns) = transpose of the `wide` rows of b, which are k elements apart;
   zero-padded */
static void transpose(const float *b, long k, long wide, float *d, long pitch) {
    long r = 0;
#if defined(__GNUC__) && !defined(__clang__)
    for (; r + VL <= k; r += VL)
        for (long j = 0; j < pitch; j += VL) {
            vf x[VL];
            for (int i = 0; i < VL; i++) x[i] = j + i < wide ? LOAD(b + (j + i) * k + r) : (vf){0};
            /* swaps blocks of 1, 2, 4, ... elements across the diagonal */
            UNROLL for (int s = 1; s < VL; s *= 2) {
                vi low, high;
                UNROLL for (int c = 0; c < VL; c++) low[c] = c & s ? VL + c - s : c, high[c] = c & s ? VL + c : c + s;
                UNROLL for (int i = 0; i < VL; i++)
                    if (!(i & s)) {
                        vf u = x[i], w = x[i + s];
                        x[i] = __builtin_shuffle(u, w, low);
                        x[i + s] = __builtin_shuffle(u, w, high);
                    }
            }
            UNROLL for (int i = 0; i < VL; i++) STORE(d + (r + i) * pitch + j, x[i]);
        }
#endif
    for (; r < k; r++)
        for (long j = 0; j < pitch; j++) d[r * pitch + j] = j < wide ? b[j * k + r] : 0;
}

/* c (m, n) = a b, then + bias and relu; a is (m, k), with ta (k, m); b is (k, n), with tb (n, k) */
static void nn_columns(void *ctx, long start, long stop, int who) {
    Gemm *g = ctx;
    long k = g->k, n = g->n;
    float *panel = room(1, k * TILE), *tile = room(3, OCB * TILE);
    (void)who;
    for (long pn = start; pn < stop; pn++) {
        long p = pn * TILE, wide = n - p < TILE ? n - p : TILE;
        int v = wide > 2 * VL ? 3 : wide > VL ? 2 : 1;
        long pitch = v * VL;
        if (g->tb) transpose(g->b + p * k, k, wide, panel, pitch);
        else
            for (long r = 0; r < k; r++) {
                float *d = panel + r * pitch;
                memcpy(d, g->b + r * n + p, sizeof(float) * wide);
                for (long j = wide; j < pitch; j++) d[j] = 0;
            }
        const float *w = g->a;             /* packed in blocks of rows */
        for (long i = 0; i < g->m;) {
            int m = block((int)(g->m - i));
            int whole = wide == pitch && !g->bias && !g->relu;
            kernel_for(m, v)(panel, pitch, (int)k, none, 1, w, whole ? g->c + i * n + p : tile, whole ? n : TILE);
            if (!whole)
                for (int x = 0; x < m; x++) {
                    float *c = g->c + (i + x) * n + p, *t = tile + x * TILE;
                    if (g->bias) for (long j = 0; j < wide; j++) t[j] += g->bias[p + j];
                    if (g->relu) for (long j = 0; j < wide; j++) c[j] = t[j] <= 0 ? 0 : t[j];
                    else memcpy(c, t, sizeof(float) * wide);
                }
            w += m * k;
            i += m;
        }
    }
}

void mt_gemm(const float *a, const float *b, const float *bias, float *c, long m, long k, long n, int ta, int tb, int relu) {
    float *packed = room(2, m * k + VL), *w = packed;
    for (long i = 0; i < m;) {
        int o = block((int)(m - i));
        if (ta) for (long r = 0; r < k; r++, w += o) for (int x = 0; x < o; x++) w[x] = a[r * m + i + x];
        else for (long r = 0; r < k; r++, w += o) for (int x = 0; x < o; x++) w[x] = a[(i + x) * k + r];
        i += o;
    }
    Gemm g = {.a = packed, .b = b, .bias = bias, .c = c, .m = m, .k = k, .n = n, .tb = tb, .relu = relu};
    if (m * k * n < 1000000) nn_columns(&g, 0, (n + TILE - 1) / TILE, 0);
    else share((n + TILE - 1) / TILE, nn_columns, &g);
}
