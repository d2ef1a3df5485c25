/* Recurrent layers over whole sequences: LSTM (with projection), GRU and plain RNN, forward and
 * backward through time (backend/c_kernels/rnn.py).
 *
 * The rows of all steps are stored step after step; the gates of a row are adjacent, as in PyTorch.
 * The state's contribution to a step is a product (rows, k) @ (k, columns). Its weights are copied
 * once into panels of columns whose sums fit the registers. The rest of a step (gate functions, new
 * state) runs on a block of rows and columns as soon as its sums are complete. A panel of an LSTM
 * or a GRU has the same units of all gates. Threads share the panels and rows of a step and
 * synchronize after it; the result of an element does not depend on the thread.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "common.h"

#if defined(__AVX512F__)
#define VL 16
#define MOST 6          /* rows whose sums, with four vectors each, fit the registers */
#elif defined(__AVX2__)
#define VL 8
#define MOST 3
#else
#define VL 4
#define MOST 3
#endif
#define PANEL 4         /* maximum vectors of a panel */
typedef float vf __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int vi __attribute__((vector_size(VL * 4), aligned(4), may_alias));
#define LOAD(p) (*(const vf *)(p))
#define STORE(p, v) (*(vf *)(p) = (v))
#define UNROLL _Pragma("GCC unroll 32")

static void (*share)(long n, piece fn, void *ctx);      /* mt_share and mt_parts of thread_pool.c */
static int (*parts)(long n);

void mt_use(void (*share_)(long, piece, void *), int (*parts_)(long)) {
    share = share_;
    parts = parts_;
}

/* ------------------------------------------------------------------ functions of vectors */
#define EXP(x) pick((x) > 88.0f, same(INFINITY), clamped_exp(x))
#include "common_vectors.h"

/* Loads the first n elements at p; zeros after them, and if p is null. */
static inline vf get(const float *p, long n) {
    vf v = {0};
    if (!p) return v;
    if (n >= VL) return LOAD(p);
    memcpy(&v, p, n * 4);
    return v;
}
static inline void put(float *p, long n, vf v) {
    if (n >= VL) STORE(p, v);
    else memcpy(p, &v, n * 4);
}
static inline const float *step_in(const float *p, long by) { return p ? p + by : 0; }

/* ------------------------------------------------------------------ register-tiled products */
#define SUMS(O, V)                                                                                                      \
    static void sums_##O##_##V(const float *a, long lda, long k, const float *w, float *to) {                           \
        vf s[O][V];                                                                                                     \
        UNROLL for (int o = 0; o < O; o++) UNROLL for (int v = 0; v < V; v++) s[o][v] = (vf){0};                        \
        for (long r = 0; r < k; r++, w += V * VL) {                                                                     \
            vf x[V];                                                                                                    \
            UNROLL for (int v = 0; v < V; v++) x[v] = LOAD(w + v * VL);                                                 \
            UNROLL for (int o = 0; o < O; o++) UNROLL for (int v = 0; v < V; v++) s[o][v] += x[v] * a[o * lda + r];     \
        }                                                                                                               \
        UNROLL for (int o = 0; o < O; o++) UNROLL for (int v = 0; v < V; v++) STORE(to + (o * V + v) * VL, s[o][v]);    \
    }
#define ROWS(V) SUMS(1, V) SUMS(2, V) SUMS(3, V)
ROWS(3) ROWS(4)
#if MOST == 6
SUMS(4, 3) SUMS(4, 4) SUMS(6, 3) SUMS(6, 4)
#endif
typedef void (*sumsfn)(const float *, long, long, const float *, float *);

/* Returns how many of n rows are processed at once, and the function for that. */
static int rows_of(long n, int v, sumsfn *f) {
#define TAKE(O) if (n >= O) { *f = v == 3 ? sums_##O##_3 : sums_##O##_4; return O; }
#if MOST == 6
    TAKE(6)
    TAKE(4)
#endif
    TAKE(3)
    TAKE(2)
    *f = v == 3 ? sums_1_3 : sums_1_4;
    return 1;
}

/* ------------------------------------------------------------------ weights */
static long blocks_of(long columns, int v) { return (columns + v * VL - 1) / (v * VL); }

/* Packs the columns of w (k, columns) into panels. */
static void pack(const float *w, long k, long columns, float *to) {
    const long wide = PANEL * VL;
    for (long p = 0; p < columns; p += wide) {
        long n = columns - p < wide ? columns - p : wide;
        for (long r = 0; r < k; r++, to += wide) {
            memcpy(to, w + r * columns + p, n * 4);
            memset(to + n, 0, (wide - n) * 4);
        }
    }
}

/* Packs rows of w (rows, k) as columns of panels: vector q of panel b has the rows from q * apart +
   b * next on, limited to the first `units`. */
static void pack_turned(const float *w, long k, int v, long blocks, long apart, long next, long units, float *to) {
    for (long b = 0; b < blocks; b++, to += k * v * VL)
        for (int q = 0; q < v; q++) {
            long first = next == VL ? b * VL : b * next + q * VL, n = units - first;
            const float *from = w + (q * apart + b * next) * k;
            n = n < 0 ? 0 : n < VL ? n : VL;
            long r = 0;
            for (; r + VL <= k && n == VL; r += VL) {
                float t[VL][VL];
                for (int i = 0; i < VL; i++) STORE(t[i], LOAD(from + i * k + r));
                for (int j = 0; j < VL; j++) {
                    float *d = to + ((r + j) * v + q) * VL;
                    for (int i = 0; i < VL; i++) d[i] = t[i][j];
                }
            }
            for (; r < k; r++) {
                float *d = to + (r * v + q) * VL;
                for (long i = 0; i < VL; i++) d[i] = i < n ? from[i * k + r] : 0;
            }
        }
}

static float *floats(size_t n) {
    void *p = 0;
    if (posix_memalign(&p, 64, (n ? n : 1) * 4)) abort();
    return p;
}

/* ------------------------------------------------------------------ one step */
/* Shared by all cells: the number of rows of a step and their start; the arrays are those of
   backend/c_kernels/rnn.py. */
typedef struct Job Job;
struct Job {
    long n, start, units, out;      /* units of the cell, of its output (those of the projection) */
    float *gates, *c, *h, *c_before, *tc, *y, *raw, *inner, *h_before;
    const float *bias, *gy;
    float *dh, *dc, *d, *d2, *full;
    int flag;
    /* the matrix product */
    const float *a, *panels, *given;
    long lda, k, counted, rows, blocks, chunk, chunks;
    int v, gated;                   /* vectors of a panel; whether it has one vector per gate */
    void (*then)(const Job *, long row, int m, long u, int q, const float *s, long pitch);
};

static void step(void *ctx, long start, long stop, int who) {
    const Job *j = ctx;
    float tile[MOST * PANEL * VL] __attribute__((aligned(64)));
    (void)who;
    for (long it = start; it < stop; it++) {
        long b = it / j->chunks, row = it % j->chunks * j->chunk, end = row + j->chunk < j->rows ? row + j->chunk : j->rows;
        while (row < end) {
            long left = (row < j->counted && j->counted < end ? j->counted : end) - row;
            sumsfn f;
            int m = rows_of(left, j->v, &f);
            const float *s = 0;
            if (row < j->counted) f(j->a + row * j->lda, j->lda, j->k, j->panels + b * j->k * j->v * VL, tile), s = tile;
            if (j->gated) j->then(j, row, m, b * VL, j->v, s, j->v * VL);
            else
                for (int q = 0; q < j->v; q++) {
                    long u = (b * j->v + q) * VL;
                    if (u < j->units || u < j->out) j->then(j, row, m, u, 1, s ? s + q * VL : 0, j->v * VL);
                }
            row += m;
        }
    }
}

/* (Synchronizing two threads takes 1 to 2 us; 16 rows of 32 units are 65536 multiplications, 1.2
   us.) */
#define ALONE (1 << 17)

static void run_step(Job *j, long columns, long rows) {
    j->rows = rows;
    j->blocks = blocks_of(columns, j->gated ? 1 : j->v);
    long all = j->blocks * rows * j->v * VL * (j->k + 16);
    j->chunk = 8 * MOST;
    j->chunks = (rows + j->chunk - 1) / j->chunk;
    if (all < ALONE) {
        step(j, 0, j->blocks * j->chunks, 0);
        return;
    }
    int threads = parts(1 << 10);
    while (j->blocks * j->chunks < threads && j->chunk > MOST) {
        j->chunk /= 2;
        j->chunks = (rows + j->chunk - 1) / j->chunk;
    }
    share(j->blocks * j->chunks, step, j);
}

/* ------------------------------------------------------------------ LSTM */
static void lstm_unit(const Job *j, long row, int m, long u, int q, const float *s, long pitch) {
    const long n = j->units, left = n - u;
    (void)q;
    vf bias[4];
    for (int g = 0; g < 4; g++) bias[g] = get(step_in(j->bias, g * n + u), left);
    for (int i = 0; i < m; i++, row++, s += s ? pitch : 0) {
        long at = j->start + row;
        float *z = j->gates + at * 4 * n + u, *c = j->c + row * n + u;
        vf x[4];
        for (int g = 0; g < 4; g++) x[g] = get(z + g * n, left) + bias[g] + (s ? LOAD(s + g * VL) : (vf){0});
        vf in = vsigmoid(x[0]), forget = vsigmoid(x[1]), cell = vtanh(x[2]), out = vsigmoid(x[3]), old = get(c, left);
        vf now = forget * old + in * cell, t = vtanh(now), h = out * t;
        put(c, left, now);
        if (j->tc) {
            put(z, left, in), put(z + n, left, forget), put(z + 2 * n, left, cell), put(z + 3 * n, left, out);
            put(j->tc + at * n + u, left, t);
            put(j->c_before + at * n + u, left, old);
        }
        if (j->raw) put(j->raw + (j->tc ? at : row) * n + u, left, h);
        else put(j->y + at * n + u, left, h), put(j->h + row * n + u, left, h);
    }
}

static void project_unit(const Job *j, long row, int m, long u, int q, const float *s, long pitch) {
    const long n = j->out, left = n - u;
    (void)q;
    if (left <= 0) return;
    for (int i = 0; i < m; i++, row++, s += pitch)
        put(j->y + (j->start + row) * n + u, left, LOAD(s)), put(j->h + row * n + u, left, LOAD(s));
}

/* sizes: rows of each of t steps; gates (rows, 4 n): the input's contribution, replaced by i, f, g,
   o; bias (4 n) or null; w (4 n, p); wr (p, n) or null, then p = n; h (b, p), c (b, n): initial
   states, replaced by the final ones; y (rows, p). If gradients are needed (else null): tc,
   c_before (rows, n) and h_before (rows, p), with wr also raw (rows, n). With a single step w may
   be null: then gates includes the state's contribution. */
void mt_lstm(const long *sizes, long t, int reverse, long n, long p, long b, float *gates, const float *bias, const float *w, const float *wr, float *h, float *c,
             float *y, float *tc, float *c_before, float *h_before, float *raw) {
    long blocks = blocks_of(n, 1), start = 0;
    float *panels = w ? floats(blocks * p * 4 * VL) : 0, *rp = wr ? floats(blocks_of(p, PANEL) * n * PANEL * VL) : 0;
    float *held = tc ? 0 : floats(b * (n + p));
    if (w) pack_turned(w, p, 4, blocks, n, VL, n, panels);
    if (wr) pack_turned(wr, n, PANEL, blocks_of(p, PANEL), VL, PANEL * VL, p, rp);
    for (long i = 0; i < t && reverse; i++) start += sizes[i];
    Job j = {.units = n, .out = p, .gates = gates, .c = c, .h = h, .c_before = c_before, .tc = tc, .y = y, .bias = bias, .raw = wr ? tc ? raw : held : 0};
    for (long i = 0; i < t; i++) {
        long rows = sizes[reverse ? t - 1 - i : i];
        if (reverse) start -= rows;
        float *before = tc ? h_before + start * p : held + b * n;
        memcpy(before, h, rows * p * 4);
        j.start = start, j.n = rows, j.a = before, j.lda = p, j.k = p, j.panels = panels, j.counted = w ? rows : 0, j.v = 4, j.gated = 1, j.then = lstm_unit;
        run_step(&j, n, rows);
        if (wr) {
            j.a = tc ? raw + start * n : held, j.lda = n, j.k = n, j.panels = rp, j.counted = rows, j.v = PANEL, j.gated = 0, j.then = project_unit;
            run_step(&j, p, rows);
        }
        if (!reverse) start += rows;
    }
    free(panels), free(rp), free(held);
}

/* Gradient of the output of this step; where it is not from this step, that of the state. */
static inline vf lstm_arrived(const Job *j, long row, long u, const float *s, long n, long left) {
    return s ? LOAD(s) : get(j->dh + row * n + u, left);
}

static void lstm_back(const Job *j, long row, int m, long u, int q, const float *s, long pitch) {
    const long n = j->units, left = n - u;
    (void)q;
    if (left <= 0) return;
    for (int i = 0; i < m; i++, row++, s += s ? pitch : 0) {
        vf e = lstm_arrived(j, row, u, s, n, left);
        if (row >= j->n) {
            put(j->dh + row * n + u, left, e);
            continue;
        }
        long at = j->start + row;
        if (!j->full) e += get(step_in(j->gy, at * n + u), left);
        const float *z = j->gates + at * 4 * n + u;
        float *d = j->d + at * 4 * n + u, *dc = j->dc + row * n + u;
        vf in = get(z, left), forget = get(z + n, left), cell = get(z + 2 * n, left), out = get(z + 3 * n, left), t = get(j->tc + at * n + u, left);
        vf x = get(dc, left) + e * out * (1.0f - t * t);
        put(d, left, x * cell * in * (1.0f - in));
        put(d + n, left, x * get(j->c_before + at * n + u, left) * forget * (1.0f - forget));
        put(d + 2 * n, left, x * in * (1.0f - cell * cell));
        put(d + 3 * n, left, e * t * out * (1.0f - out));
        put(dc, left, x * forget);
    }
}

static void project_back(const Job *j, long row, int m, long u, int q, const float *s, long pitch) {
    const long p = j->out, left = p - u;
    (void)q;
    if (left <= 0) return;
    for (int i = 0; i < m; i++, row++, s += s ? pitch : 0) {
        vf e = lstm_arrived(j, row, u, s, p, left);
        if (row < j->n) put(j->full + (j->start + row) * p + u, left, e + get(step_in(j->gy, (j->start + row) * p + u), left));
        else put(j->dh + row * p + u, left, e);
    }
}

/* w (4 n, p), wr (p, n) or null; dh (b, p), dc (b, n): gradients of the final states, replaced by
   those of the initial states; d (rows, 4 n): gradients of the gates before their functions; full
   (rows, p) with wr: gradients of projected outputs; gy may be null. */
void mt_lstm_grad(const long *sizes, long t, int reverse, long n, long p, float *gates, float *tc, float *c_before, const float *w, const float *wr, const float *gy,
                  float *dh, float *dc, float *d, float *full) {
    long start = 0, last = 0, counted = 0;
    float *panels = floats(blocks_of(p, PANEL) * 4 * n * PANEL * VL), *rp = wr ? floats(blocks_of(n, PANEL) * p * PANEL * VL) : 0;
    pack(w, 4 * n, p, panels);
    if (wr) pack(wr, p, n, rp);
    for (long i = 0; i < t && !reverse; i++) start += sizes[i];
    Job j = {.units = n, .out = p, .gates = gates, .tc = tc, .c_before = c_before, .gy = gy, .dh = dh, .dc = dc, .d = d, .full = wr ? full : 0, .v = PANEL};
    for (long i = 0; i <= t; i++) {
        long rows = i == t ? 0 : sizes[reverse ? i : t - 1 - i];
        if (!reverse) start -= rows;
        j.start = start, j.n = rows, j.counted = counted, j.a = d + last * 4 * n, j.lda = j.k = 4 * n, j.panels = panels, j.then = wr ? project_back : lstm_back;
        run_step(&j, p, rows > counted ? rows : counted);
        if (wr && rows) {
            j.counted = rows, j.a = full + start * p, j.lda = j.k = p, j.panels = rp, j.then = lstm_back;
            run_step(&j, n, rows);
        }
        last = start, counted = rows;
        if (reverse) start += rows;
    }
    free(panels), free(rp);
}

/* ------------------------------------------------------------------ GRU and plain RNN */
/* Runs all steps: j->a becomes the states (rows, n) before each step, which h_before saves unless
   null; h (b, n); product: whether there are weights. */
static void walk(Job *j, const long *sizes, long t, int reverse, long b, float *h, float *h_before, int product) {
    const long n = j->units;
    long start = 0;
    float *held = h_before ? 0 : floats(b * n);
    for (long i = 0; i < t && reverse; i++) start += sizes[i];
    for (long i = 0; i < t; i++) {
        long rows = sizes[reverse ? t - 1 - i : i];
        if (reverse) start -= rows;
        float *before = h_before ? h_before + start * n : held;
        memcpy(before, h, rows * n * 4);
        j->start = start, j->n = rows, j->a = before, j->counted = product ? rows : 0;
        run_step(j, n, rows);
        if (!reverse) start += rows;
    }
    free(held);
}

/* Runs all steps backward, and one more for the initial state: j->a becomes the rows of d (rows,
   j->k) of the following step. */
static void walk_back(Job *j, const long *sizes, long t, int reverse, const float *d) {
    long start = 0, last = 0, counted = 0;
    for (long i = 0; i < t && !reverse; i++) start += sizes[i];
    for (long i = 0; i <= t; i++) {
        long rows = i == t ? 0 : sizes[reverse ? i : t - 1 - i];
        if (!reverse) start -= rows;
        j->start = start, j->n = rows, j->counted = counted, j->a = d + last * j->k;
        run_step(j, j->units, rows > counted ? rows : counted);
        last = start, counted = rows;
        if (reverse) start += rows;
    }
}

/* ------------------------------------------------------------------ GRU */
static void gru_unit(const Job *j, long row, int m, long u, int q, const float *s, long pitch) {
    const long n = j->units, left = n - u;
    (void)q;
    vf bias[3];
    for (int g = 0; g < 3; g++) bias[g] = get(step_in(j->bias, g * n + u), left);
    for (int i = 0; i < m; i++, row++, s += s ? pitch : 0) {
        long at = j->start + row;
        float *z = j->gates + at * 3 * n + u, *state = j->h + row * n + u;
        vf x[3];
        for (int g = 0; g < 3; g++) x[g] = (s ? LOAD(s + g * VL) : get(step_in(j->given, row * 3 * n + g * n + u), left)) + bias[g];
        vf r = vsigmoid(get(z, left) + x[0]), k = vsigmoid(get(z + n, left) + x[1]), v = vtanh(get(z + 2 * n, left) + r * x[2]);
        vf h = v + k * (get(state, left) - v);
        put(state, left, h);
        put(j->y + at * n + u, left, h);
        if (j->inner) {
            put(z, left, r), put(z + n, left, k), put(z + 2 * n, left, v);
            put(j->inner + at * n + u, left, x[2]);
        }
    }
}

/* gates (rows, 3 n): the input's contribution, replaced by r, u, v; bias (3 n) of the state's
   contribution or null; w (3 n, n), or null for a single step, then `given` (rows, 3 n) is the
   state's contribution; inner (rows, n): the state's contribution to v before the reset gate, and
   h_before; both null if no gradient is needed. */
void mt_gru(const long *sizes, long t, int reverse, long n, long b, float *gates, const float *bias, const float *w, const float *given, float *h, float *y,
            float *inner, float *h_before) {
    long blocks = blocks_of(n, 1);
    float *panels = w ? floats(blocks * n * 3 * VL) : 0;
    if (w) pack_turned(w, n, 3, blocks, n, VL, n, panels);
    Job j = {.units = n, .gates = gates, .h = h, .y = y, .bias = bias, .inner = inner, .given = given, .panels = panels, .lda = n, .k = n, .v = 3, .gated = 1,
             .then = gru_unit};
    walk(&j, sizes, t, reverse, b, h, h_before, w != 0);
    free(panels);
}

static void gru_back(const Job *j, long row, int m, long u, int q, const float *s, long pitch) {
    const long n = j->units, left = n - u;
    (void)q;
    if (left <= 0) return;
    for (int i = 0; i < m; i++, row++, s += s ? pitch : 0) {
        float *dh = j->dh + row * n + u;
        vf e = get(dh, left);
        if (s) e += LOAD(s);
        if (row >= j->n) {
            put(dh, left, e);
            continue;
        }
        long at = j->start + row;
        e += get(j->gy + at * n + u, left);
        const float *z = j->gates + at * 3 * n + u;
        float *d = j->d + at * 3 * n + u, *d2 = j->d2 + at * 3 * n + u;
        vf r = get(z, left), k = get(z + n, left), v = get(z + 2 * n, left);
        vf dv = e * (1.0f - v * v) * (1.0f - k), dk = e * (get(j->h_before + at * n + u, left) - v) * k * (1.0f - k);
        vf dr = dv * get(j->inner + at * n + u, left) * r * (1.0f - r);
        put(d, left, dr), put(d + n, left, dk), put(d + 2 * n, left, dv);
        put(d2, left, dr), put(d2 + n, left, dk), put(d2 + 2 * n, left, dv * r);
        put(dh, left, e * k);
    }
}

/* d, d2 (rows, 3 n): gradients of the input's and the state's contributions to the gates; the rest
   as above. */
void mt_gru_grad(const long *sizes, long t, int reverse, long n, float *gates, float *h_before, float *inner, const float *w, const float *gy, float *dh, float *d,
                 float *d2) {
    float *panels = floats(blocks_of(n, PANEL) * 3 * n * PANEL * VL);
    pack(w, 3 * n, n, panels);
    Job j = {.units = n, .gates = gates, .h_before = h_before, .inner = inner, .gy = gy, .dh = dh, .d = d, .d2 = d2, .panels = panels, .lda = 3 * n, .k = 3 * n,
             .v = PANEL, .then = gru_back};
    walk_back(&j, sizes, t, reverse, d2);
    free(panels);
}

/* ------------------------------------------------------------------ plain RNN */
static void rnn_unit(const Job *j, long row, int m, long u, int q, const float *s, long pitch) {
    const long n = j->units, left = n - u;
    (void)q;
    if (left <= 0) return;
    for (int i = 0; i < m; i++, row++, s += s ? pitch : 0) {
        float *y = j->y + (j->start + row) * n + u;
        vf x = get(y, left);
        if (s) x += LOAD(s);
        x = j->flag ? pick(x <= 0.0f, same(0.0f), x) : vtanh(x);
        put(y, left, x);
        put(j->h + row * n + u, left, x);
    }
}

/* y (rows, n): the input's contribution with biases, replaced by the output; w (n, n), or null for
   a single step whose y includes the state's contribution; h_before may be null. */
void mt_rnn(const long *sizes, long t, int reverse, int relu, long n, long b, const float *w, float *h, float *y, float *h_before) {
    long blocks = blocks_of(n, PANEL);
    float *panels = w ? floats(blocks * n * PANEL * VL) : 0;
    if (w) pack_turned(w, n, PANEL, blocks, VL, PANEL * VL, n, panels);
    Job j = {.units = n, .h = h, .y = y, .flag = relu, .panels = panels, .lda = n, .k = n, .v = PANEL, .then = rnn_unit};
    walk(&j, sizes, t, reverse, b, h, h_before, w != 0);
    free(panels);
}

static void rnn_back(const Job *j, long row, int m, long u, int q, const float *s, long pitch) {
    const long n = j->units, left = n - u;
    (void)q;
    if (left <= 0) return;
    for (int i = 0; i < m; i++, row++, s += s ? pitch : 0) {
        vf e = lstm_arrived(j, row, u, s, n, left);
        if (row >= j->n) {
            put(j->dh + row * n + u, left, e);
            continue;
        }
        long at = (j->start + row) * n + u;
        vf y = get(j->y + at, left), slope = 1.0f - y * y;
        if (j->flag) slope = pick(y > 0.0f, same(1.0f), same(0.0f));
        put(j->d + at, left, (e + get(j->gy + at, left)) * slope);
    }
}

/* d (rows, n): gradients before tanh or relu */
void mt_rnn_grad(const long *sizes, long t, int reverse, int relu, long n, float *y, const float *w, const float *gy, float *dh, float *d) {
    float *panels = floats(blocks_of(n, PANEL) * n * PANEL * VL);
    pack(w, n, n, panels);
    Job j = {.units = n, .y = y, .gy = gy, .dh = dh, .d = d, .flag = relu, .panels = panels, .lda = n, .k = n, .v = PANEL, .then = rnn_back};
    walk_back(&j, sizes, t, reverse, d);
    free(panels);
}
