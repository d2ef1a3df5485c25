/* Separable gathers by index tables, for elements of type T; see copy_pad_grid.c. */

/* to[i, j, ...] = from[table 0[i] + table 1[j] + ...]; the last axis in runs of indices that ascend
   by 1, descend by 1 or are equal. */
typedef struct { long first, count, place; int step; } NAME(Run);
typedef struct {
    int dims;
    long runs;
    const long *shape;
    const i64 *table[MOST];
    const NAME(Run) *run;       /* null: index by index */
    const T *from;
    T *to;
} NAME(Spread);

static void NAME(spread)(void *ctx, long start, long stop, int who) {
    const NAME(Spread) *k = ctx;
    const int last = k->dims - 1;
    const long width = k->shape[last];
    long count[MOST], left = start;
    (void)who;
    for (int d = last - 1; d >= 0; d--) count[d] = left % k->shape[d], left /= k->shape[d];
    for (long row = start; row < stop; row++) {
        const T *restrict from = k->from;
        T *restrict to = k->to + row * width;
        for (int d = 0; d < last; d++) from += k->table[d][count[d]];
        if (!k->run) for (long i = 0; i < width; i++) to[i] = from[k->table[last][i]];
        for (long r = 0; r < k->runs; r++) {
            const NAME(Run) u = k->run[r];
            const T *restrict p = from + u.place;
            T *restrict q = to + u.first;
            if (u.count == 1) *q = *p;
            else if (u.step == 1) memcpy(q, p, sizeof(T) * u.count);
            else if (u.step == 0) for (long i = 0; i < u.count; i++) q[i] = *p;
            else {
                p -= u.count - 1;
                for (long i = 0; i < u.count; i++) q[i] = p[u.count - 1 - i];
            }
        }
        for (int d = last - 1; d >= 0 && ++count[d] == k->shape[d]; d--) count[d] = 0;
    }
}

static void NAME(spread_all)(int dims, const long *shape, const i64 *tables, const T *from, T *to) {
    NAME(Run) runs[RUNS];
    NAME(Spread) k = {dims, 0, shape, {0}, runs, from, to};
    long rows = 1;
    for (int d = 0; d < dims; d++) {
        k.table[d] = tables;
        tables += shape[d];
        if (d < dims - 1) rows *= shape[d];
    }
    const i64 *t = k.table[dims - 1];
    const long n = shape[dims - 1];
    for (long i = 0; i < n;) {
        if (k.runs == RUNS) { k.runs = 0, k.run = 0; break; }
        long e = i + 1;
        const i64 step = e < n ? t[e] - t[i] : 1;
        if (step >= -1 && step <= 1) while (e < n && t[e] - t[e - 1] == step) e++;
        runs[k.runs++] = (NAME(Run)){i, e - i, t[i], (int)step};
        i = e;
    }
    shared(rows, rows * n, NAME(spread), &k);
}

/* ------------------------------------------------------------------ triangles */
typedef struct { long rows, columns, diagonal; int lower; const T *from; T *to; } NAME(Triangle);
static void NAME(triangle)(void *ctx, long start, long stop, int who) {
    const NAME(Triangle) *k = ctx;
    const long m = k->columns;
    (void)who;
    for (long i = start; i < stop; i++) {
        long cut = i % k->rows + k->diagonal + k->lower;
        cut = cut < 0 ? 0 : cut > m ? m : cut;
        const T *from = k->from + i * m;
        T *to = k->to + i * m;
        if (k->lower) {
            memcpy(to, from, sizeof(T) * cut);
            memset(to + cut, 0, sizeof(T) * (m - cut));
        } else {
            memset(to, 0, sizeof(T) * cut);
            memcpy(to + cut, from + cut, sizeof(T) * (m - cut));
        }
    }
}
static void NAME(triangle_all)(long matrices, long rows, long columns, long diagonal, int lower, const T *from, T *to) {
    NAME(Triangle) k = {rows, columns, diagonal, lower, from, to};
    shared(matrices * rows, matrices * rows * columns, NAME(triangle), &k);
}
