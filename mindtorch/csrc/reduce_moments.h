/* Variances and means of arrays of T over adjacent axes, accumulated in double precision; see
   reduce.c. */
#define N ((long)(BYTES / sizeof(double)))      /* elements converted at once */
#define WIDE(p) __builtin_convertvector(*(const NAME(Few) *)(p), V_f64)
#define LOAD(p) (*(const V_f64 *)(p))
#define STORE(p, v) (*(V_f64 *)(p) = (v))
#define BLOCK 128
#define COLUMNS 1024        /* columns processed at once */
#define PIECE 65536         /* minimum number of elements per thread */

typedef T NAME(Few) __attribute__((vector_size(BYTES / sizeof(double) * sizeof(T)), aligned(sizeof(T)), may_alias));
typedef struct { const T *from; T *to; double *part; long outer, n, inner, step, pieces, strips; int what; double over; } NAME(Moments);

/* The sum of x - middle, or of its squares. */
ALWAYS double NAME(apart)(const T *x, long n, double middle, const int square) {
    const V_f64 m = (V_f64){0} + middle;
    V_f64 s[4] = {{0}};
    long i = 0;
    for (; i + 4 * N <= n; i += 4 * N)
        _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) {
            const V_f64 d = WIDE(x + i + k * N) - m;
            s[k] += square ? (V_f64)(d * d) : (V_f64)d;
        }
    const V_f64 t = (s[0] + s[1]) + (s[2] + s[3]);
    double r = 0;
    for (int k = 0; k < N; k++) r += t[k];
    for (; i < n; i++) {
        const double d = x[i] - middle;
        r += square ? d * d : d;
    }
    return r;
}

/* The mean is the first element plus the mean deviation from it, so that the mean of equal values
   is exact. */
ALWAYS void NAME(row_moments)(const T *x, long n, double *mean, double *squares, int what) {
    const double first = isfinite(x[0]) ? x[0] : 0;
    *mean = first + NAME(apart)(x, n, first, 0) / n;
    *squares = what == MEAN ? 0 : NAME(apart)(x, n, *mean, 1);
}

/* s[width]: the sums over n rows, `pitch` apart, of the deviations from `middle`, or of their
   squares. */
ALWAYS void NAME(apart_columns)(const T *x, long n, long pitch, long width, const double *middle, double *restrict s, const int square) {
    const long whole = width / N * N;
    for (long j = 0; j < width; j++) s[j] = 0;
    for (long i = 0; i < n; i += 8) {
        const T *p = x + i * pitch;
        const long rows = n - i < 8 ? n - i : 8;
        for (long j = 0; j < whole; j += N) {
            const V_f64 m = LOAD(middle + j);
            V_f64 t = LOAD(s + j);
            if (rows == 8)
                _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) {
                    const V_f64 d = WIDE(p + k * pitch + j) - m;
                    t += square ? (V_f64)(d * d) : (V_f64)d;
                }
            else
                for (long k = 0; k < rows; k++) {
                    const V_f64 d = WIDE(p + k * pitch + j) - m;
                    t += square ? (V_f64)(d * d) : (V_f64)d;
                }
            STORE(s + j, t);
        }
        for (long j = whole; j < width; j++)
            for (long k = 0; k < rows; k++) {
                const double d = p[k * pitch + j] - middle[j];
                s[j] += square ? d * d : d;
            }
    }
}

ALWAYS void NAME(column_moments)(const T *x, long n, long pitch, long width, double *restrict mean, double *restrict squares, int what) {
    for (long j = 0; j < width; j++) mean[j] = isfinite(x[j]) ? x[j] : 0;
    NAME(apart_columns)(x, n, pitch, width, mean, squares, 0);
    for (long j = 0; j < width; j++) mean[j] += squares[j] / n;
    if (what != MEAN) NAME(apart_columns)(x, n, pitch, width, mean, squares, 1);
}

/* Combines the moments of `count` elements with those of `more` others. */
ALWAYS void NAME(meet)(double *mean, double *squares, double count, double mean_of_others, double squares_of_others, double more) {
    const double d = mean_of_others - *mean, part = more / (count + more);
    *mean += d * part;
    *squares += squares_of_others + d * d * count * part;
}

/* Like column moments, for rows so short that several are combined into one long row. */
ALWAYS void NAME(narrow_moments)(const T *x, long n, long inner, double *restrict mean, double *restrict squares, int what) {
    const long group = 8 * N / inner, rows = n / group, width = group * inner;
    double means[8 * N], of[8 * N];
    long i = 0;
    for (long j = 0; j < inner; j++) mean[j] = x[j], squares[j] = 0;
    if (what == MEAN) {         /* (sums, so that an infinity stays infinite) */
        double first[8 * N];
        for (long j = 0; j < inner; j++) first[j] = isfinite(x[j]) ? x[j] : 0, mean[j] = 0;
        for (; i < n; i++)
            for (long j = 0; j < inner; j++) mean[j] += x[i * inner + j] - first[j];
        for (long j = 0; j < inner; j++) mean[j] = first[j] + mean[j] / n;
        return;
    }
    if (rows >= 8) {
        NAME(column_moments)(x, rows, width, width, means, of, what);
        for (long j = 0; j < inner; j++) mean[j] = means[j], squares[j] = of[j];
        for (long g = 1; g < group; g++)
            for (long j = 0; j < inner; j++) NAME(meet)(mean + j, squares + j, (double)(g * rows), means[g * inner + j], of[g * inner + j], (double)rows);
        i = rows * group;
    }
    for (; i < n; i++)
        for (long j = 0; j < inner; j++) {
            const double y = x[i * inner + j];
            /* (an infinity's distance from itself is nan) */
            NAME(meet)(mean + j, squares + j, (double)i, y, y - y, 1);
        }
}

static void NAME(moments_done)(const NAME(Moments) *k, T *to, const double *mean, const double *squares, long n) {
    for (long j = 0; j < n; j++) {
        const double r = squares[j] / k->over;
        to[j] = (T)(k->what == MEAN ? mean[j] : k->what == DEVIATION ? sqrt(r) : r);
    }
}

static void NAME(moments)(void *ctx, long start, long stop, int who) {
    const NAME(Moments) *k = ctx;
    const long n = k->n, inner = k->inner;
    double means[COLUMNS], of[COLUMNS];
    (void)who;
    for (long t = start; t < stop; t++) {
        const long strip = t % k->strips * COLUMNS, p = t / k->strips % k->pieces, o = t / k->strips / k->pieces;
        const long first = p * k->step, count = n - first < k->step ? n - first : k->step, width = inner - strip < COLUMNS ? inner - strip : COLUMNS;
        const T *x = k->from + (o * n + first) * inner + strip;
        double *mean = means, *squares = of;
        if (k->pieces > 1) {
            mean = k->part + (o * k->pieces + p) * 2 * inner + strip;
            squares = mean + inner;
        }
        if (inner == 1) NAME(row_moments)(x, count, mean, squares, k->what);
        else if (inner < 4 * N) NAME(narrow_moments)(x, count, inner, mean, squares, k->what);
        else NAME(column_moments)(x, count, inner, width, mean, squares, k->what);
        if (k->pieces == 1) NAME(moments_done)(k, k->to + o * inner + strip, mean, squares, width);
    }
}

/* Reduces axes low..high-1 of a into `to`: the sums of squared deviations divided by `over`
   (VARIANCE), their square roots (DEVIATION), or the means (MEAN). Returns 1 if a is not
   C-contiguous, or if out of memory. */
int NAME(mt_moments)(const struct array *a, const struct array *to, int low, int high, int what, double over) {
    if (!plain(a) || !plain(to)) return 1;
    NAME(Moments) k = {(const T *)a->data, (T *)to->data, 0, 1, 1, 1, 0, 1, 1, what, over};
    for (int d = 0; d < low; d++) k.outer *= a->dims[d];
    for (int d = low; d < high; d++) k.n *= a->dims[d];
    for (int d = high; d < a->nd; d++) k.inner *= a->dims[d];
    if (!k.outer || !k.inner) return 0;
    if (!k.n) {
        for (long j = 0; j < k.outer * k.inner; j++) k.to[j] = NAN;
        return 0;
    }
    const long columns = k.inner < COLUMNS ? k.inner : COLUMNS;
    k.strips = (k.inner + COLUMNS - 1) / COLUMNS;
    k.step = (PIECE / columns + BLOCK - 1) / BLOCK * BLOCK;
    k.pieces = k.n > k.step ? (k.n + k.step - 1) / k.step : 1;
    if (k.pieces > 1 && !(k.part = malloc(k.outer * k.pieces * 2 * k.inner * sizeof *k.part))) return 1;
    shared(k.outer * k.pieces * k.strips, k.outer * k.n * k.inner, NAME(moments), &k);
    if (k.pieces > 1) {
        for (long o = 0; o < k.outer; o++) {
            double *mean = k.part + o * k.pieces * 2 * k.inner, *squares = mean + k.inner;
            for (long p = 1; p < k.pieces; p++) {
                const long before = p * k.step, count = k.n - before < k.step ? k.n - before : k.step;
                const double *others = mean + p * 2 * k.inner;
                for (long j = 0; j < k.inner; j++) NAME(meet)(mean + j, squares + j, (double)before, others[j], others[k.inner + j], (double)count);
            }
            NAME(moments_done)(&k, k.to + o * k.inner, mean, squares, k.inner);
        }
        free(k.part);
    }
    return 0;
}
#undef N
#undef WIDE
#undef LOAD
#undef STORE
#undef BLOCK
#undef COLUMNS
#undef PIECE
