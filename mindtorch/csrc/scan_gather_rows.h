/* Weighted sums of a few elements along an axis, sums and combinations of rows of T; see
   scan_gather.c. */

/* ------------------------------------------------------------------ taps */
typedef struct { const T *from; T *to; const i64 *index; const T *weight; long outer, n, inner, out, taps; } NAME(Taps);

#define STRIP 512
static void NAME(taps)(void *ctx, long start, long stop, int who) {
    const NAME(Taps) *k = ctx;
    const long n = k->n, inner = k->inner, out = k->out, taps = k->taps;
    (void)who;
    for (long o = start; o < stop; o++) {
        const T *from = k->from + o * n * inner;
        T *to = k->to + o * out * inner;
        if (inner == 1)
            for (long b = 0; b < out; b += STRIP) {
                const long e = out - b < STRIP ? out : b + STRIP;
                for (long t = 0; t < taps; t++) {
                    const i64 *restrict at = k->index + t * out;
                    const T *restrict w = k->weight + t * out;
                    T *restrict r = to;
                    if (t)
                        for (long j = b; j < e; j++) r[j] += from[at[j]] * w[j];
                    else
                        for (long j = b; j < e; j++) r[j] = from[at[j]] * w[j];
                }
            }
        else
            for (long j = 0; j < out; j++)
                for (long b = 0; b < inner; b += STRIP) {
                    const long e = inner - b < STRIP ? inner : b + STRIP;
                    T *restrict r = to + j * inner;
                    for (long t = 0; t < taps; t++) {
                        const T *restrict x = from + k->index[t * out + j] * inner;
                        const T w = k->weight[t * out + j];
                        if (t)
                            for (long i = b; i < e; i++) r[i] += x[i] * w;
                        else
                            for (long i = b; i < e; i++) r[i] = x[i] * w;
                    }
                }
    }
}

static void NAME(taps_back)(void *ctx, long start, long stop, int who) {
    const NAME(Taps) *k = ctx;
    const long n = k->n, inner = k->inner, out = k->out, taps = k->taps;
    (void)who;
    for (long o = start; o < stop; o++) {
        const T *from = k->from + o * out * inner;
        T *to = k->to + o * n * inner;
        memset(to, 0, sizeof(T) * n * inner);
        if (inner == 1)
            for (long j = 0; j < out; j++)
                for (long t = 0; t < taps; t++) to[k->index[t * out + j]] += from[j] * k->weight[t * out + j];
        else
            for (long j = 0; j < out; j++)
                for (long b = 0; b < inner; b += STRIP) {
                    const long e = inner - b < STRIP ? inner : b + STRIP;
                    const T *restrict x = from + j * inner;
                    for (long t = 0; t < taps; t++) {
                        T *restrict r = to + k->index[t * out + j] * inner;
                        const T w = k->weight[t * out + j];
                        for (long i = b; i < e; i++) r[i] += x[i] * w;
                    }
                }
    }
}
#undef STRIP

/* to[outer, out, inner]: sums over the taps of weight[taps, out] * from[outer, n, inner] at
   index[taps, out]; `back`: the adjoint, from `out` to n. Returns 1 if an index is out of
   bounds. */
int NAME(mt_taps)(const T *from, T *to, const i64 *index, const T *weight, long outer, long n, long inner, long out, long taps, int back) {
    NAME(Taps) k = {from, to, index, weight, outer, n, inner, out, taps};
    for (long i = 0; i < taps * out; i++)
        if ((unsigned long)index[i] >= (unsigned long)n) return 1;
    if (outer && inner) shared(outer, outer * inner * (out > n ? out : n), back ? NAME(taps_back) : NAME(taps), &k);
    return 0;
}

/* ------------------------------------------------------------------ rows */
/* Sums are taken in T over blocks of BLOCK elements and added in double; each piece of PIECE
   elements is summed by one thread. */
#define BLOCK 1024
#define PIECE 65536
enum NAME(What) { NAME(PLAIN), NAME(PRODUCT), NAME(CENTRED), NAME(SIZES) };
typedef struct { const T *a, *b; const T *middle; double *part; long n, pieces; int what; } NAME(Sums);

static void NAME(sums)(void *ctx, long start, long stop, int who) {
    const NAME(Sums) *k = ctx;
    (void)who;
    for (long p = start; p < stop; p++) {
        const long row = p / k->pieces, first = p % k->pieces * PIECE, last = k->n - first < PIECE ? k->n : first + PIECE;
        double sum = 0;
        for (long b = first; b < last; b += BLOCK) {
            const long e = last - b < BLOCK ? last : b + BLOCK;
            const T *restrict x = k->a + row * k->n, *restrict y = k->b + row * k->n;
            T s = 0;
            if (k->what == NAME(PRODUCT)) {
                _Pragma("omp simd reduction(+ : s)") for (long i = b; i < e; i++) s += x[i] * y[i];
            } else if (k->what == NAME(CENTRED)) {
                const T m = k->middle[row];
                _Pragma("omp simd reduction(+ : s)") for (long i = b; i < e; i++) s += (x[i] - m) * (x[i] - m);
            } else if (k->what == NAME(SIZES)) {
                _Pragma("omp simd reduction(+ : s)") for (long i = b; i < e; i++) s += x[i] < 0 ? -x[i] : x[i];
            } else {
                _Pragma("omp simd reduction(+ : s)") for (long i = b; i < e; i++) s += x[i];
            }
            sum += s;
        }
        k->part[p] = sum;
    }
}

/* sum[rows] over rows of n: of a (0), of a * b (1), of (a - middle[row])^2 (2), of |a| (3),
   multiplied by `times`. Returns 1 if out of memory. */
int NAME(mt_sums)(const T *a, const T *b, const T *middle, T *sum, long rows, long n, int what, double times) {
    const long pieces = n ? (n + PIECE - 1) / PIECE : 1;
    double *part = malloc((rows ? rows : 1) * pieces * sizeof *part);
    if (!part) return 1;
    NAME(Sums) k = {a, b ? b : a, middle, part, n, pieces, what};
    shared(rows * pieces, rows * n, NAME(sums), &k);
    for (long r = 0; r < rows; r++) {
        double s = 0;
        for (long p = 0; p < pieces; p++) s += part[r * pieces + p];
        sum[r] = (T)(s * times);
    }
    free(part);
    return 0;
}
#undef BLOCK
#undef PIECE

typedef struct { const T *x, *g, *p, *q, *r; T *y; long n; } NAME(Combined);
static void NAME(combined)(void *ctx, long start, long stop, int who) {
    const NAME(Combined) *k = ctx;
    const long n = k->n;
    (void)who;
    for (long row = start; row < stop; row++) {
        const T *restrict x = k->x + row * n, p = k->p[row], r = k->r[row];
        T *restrict y = k->y + row * n;
        if (k->g) {
            const T *restrict g = k->g + row * n, q = k->q[row];
            for (long i = 0; i < n; i++) y[i] = x[i] * p + g[i] * q + r;
        } else
            for (long i = 0; i < n; i++) y[i] = x[i] * p + r;
    }
}

/* y = x * p[row] + g * q[row] + r[row] over rows of n (without g: x * p[row] + r[row]) */
void NAME(mt_combined)(const T *x, const T *g, const T *p, const T *q, const T *r, T *y, long rows, long n) {
    NAME(Combined) k = {x, g, p, q, r, y, n};
    shared(rows, rows * n, NAME(combined), &k);
}

/* ------------------------------------------------------------------ rows added to a table */
#define AHEAD 8
typedef struct { T *table; const i64 *places; const T *rows; long count, n; T times; } NAME(Addends);
static void NAME(addends)(void *ctx, long start, long stop, int who) {
    const NAME(Addends) *k = ctx;
    const long n = k->n, size = n * sizeof(T), wanted = size >= 128 && size <= 1024;
    (void)who;
    for (long e = 0; e < k->count; e++) {
        const i64 at = k->places[e];
        /* (Prefetching scattered rows of a large table: 1024 rows of 64 floats among 100000 take 19
           us vs 30 us.) */
        if (wanted && e + AHEAD < k->count && k->places[e + AHEAD] >= start && k->places[e + AHEAD] < stop)
            for (long i = 0; i < size; i += 64) __builtin_prefetch((const char *)(k->table + k->places[e + AHEAD] * n) + i, 1);
        if (at < start || at >= stop) continue;
        T *restrict to = k->table + at * n;
        const T *restrict from = k->rows + e * n;
        for (long i = 0; i < n; i++) to[i] = sizeof(T) == 4 ? (T)fmaf((f32)k->times, (f32)from[i], (f32)to[i]) : (T)fma(k->times, from[i], to[i]);
    }
}

/* table[places[e]] += times * rows[e] for e in order, each with one rounding; rows of n elements,
   all places in [0, size). */
void NAME(mt_addends)(T *table, const i64 *places, const T *rows, long size, long n, long count, double times) {
    NAME(Addends) k = {table, places, rows, count, n, (T)times};
    /* (each thread updates its own rows of the table) */
    shared(size, count * n, NAME(addends), &k);
}
#undef AHEAD
