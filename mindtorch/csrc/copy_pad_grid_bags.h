/* For one T: see copy_pad_grid.c. */

/* ------------------------------------------------------------------ embedding bags */
/* Entry k of `count` selects row index[k] for bag[k], which is ascending, with weight samples[k]
   (null: 1). */
typedef struct {
    long count, bags, width;
    const T *rows, *g, *samples, *divisor;
    const i64 *index, *bag;
    T *to;
} NAME(Bags);

#define ROW(i) (k->rows + k->index[i] * width)
static void NAME(bags)(void *ctx, long start, long stop, int who) {
    const NAME(Bags) *k = ctx;
    const long width = k->width;
    (void)who;
    long i = 0, behind = k->count;
    while (i < behind) { /* binary search for the start of bag `start` */
        const long m = i + (behind - i) / 2;
        if (k->bag[m] < start) i = m + 1;
        else behind = m;
    }
    for (long b = start; b < stop; b++) {
        T *restrict to = k->to + b * width;
        memset(to, 0, sizeof(T) * width);
        long end = i;
        while (end < k->count && k->bag[end] == b) end++;
        for (; i + 4 <= end; i += 4) {
            const T *restrict p = ROW(i), *restrict q = ROW(i + 1), *restrict r = ROW(i + 2), *restrict s = ROW(i + 3);
            if (width < 1024)
                for (long n = i + 4; n < i + 8 && n < k->count; n++)
                    for (long j = 0; j < width; j += 64 / sizeof(T)) __builtin_prefetch(ROW(n) + j);
            if (!k->samples) for (long j = 0; j < width; j++) to[j] = to[j] + p[j] + q[j] + r[j] + s[j];
            else {
                const T *v = k->samples + i;
                const T v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3];
                for (long j = 0; j < width; j++) to[j] = to[j] + p[j] * v0 + q[j] * v1 + r[j] * v2 + s[j] * v3;
            }
        }
        for (; i < end; i++) {
            const T *restrict p = ROW(i);
            if (!k->samples) for (long j = 0; j < width; j++) to[j] += p[j];
            else {
                const T v = k->samples[i];
                for (long j = 0; j < width; j++) to[j] += p[j] * v;
            }
        }
        if (k->divisor) {
            const T d = k->divisor[b];
            for (long j = 0; j < width; j++) to[j] /= d;
        }
    }
}

#define COLUMNS 256
static void NAME(unbag)(void *ctx, long start, long stop, int who) {
    const NAME(Bags) *k = ctx;
    const long first = start * COLUMNS, end = stop * COLUMNS < k->width ? stop * COLUMNS : k->width;
    (void)who;
    for (long i = 0; i < k->count; i++) {
        T *restrict to = k->to + k->index[i] * k->width;
        const T *restrict g = k->g + k->bag[i] * k->width;
        if (!k->samples) for (long j = first; j < end; j++) to[j] += g[j];
        else {
            const T v = k->samples[i];
            for (long j = first; j < end; j++) to[j] += g[j] * v;
        }
    }
}

static void NAME(dots)(void *ctx, long start, long stop, int who) {
    const NAME(Bags) *k = ctx;
    const long width = k->width;
    (void)who;
    for (long i = start; i < stop; i++) {
        const T *restrict p = ROW(i), *restrict g = k->g + k->bag[i] * width;
        T sum = 0;
        _Pragma("omp simd reduction(+ : sum)") for (long j = 0; j < width; j++) sum += p[j] * g[j];
        k->to[i] = sum;
    }
}
#undef ROW

/* what: 0 to[bag] = sums of rows (over divisor[bag]); 1 to[index] += g[bag]; 2 to = dot products of
   rows and g[bag]. Returns 1 if a row or a bag is out of bounds. */
int NAME(mt_bags)(int what, const T *rows, const i64 *index, const i64 *bag, const T *samples, const T *divisor, const T *g, T *to,
                  long count, long bags, long width, long n) {
    NAME(Bags) k = {count, bags, width, rows, g, samples, divisor, index, bag, to};
    unsigned long most = 0, last = 0;
    for (long i = 0; i < count; i++) {
        most = (unsigned long)index[i] > most ? (unsigned long)index[i] : most;
        last = (unsigned long)bag[i] > last ? (unsigned long)bag[i] : last;
    }
    if (count && (most >= (unsigned long)n || last >= (unsigned long)bags)) return 1;
    if (what == 0) shared(bags, count * width, NAME(bags), &k);
    else if (what == 1) shared((width + COLUMNS - 1) / COLUMNS, count * width, NAME(unbag), &k);
    else shared(count, count * width, NAME(dots), &k);
    return 0;
}
#undef COLUMNS
