/* Counts, nonzero elements and binary search; see scan_gather.c. */

/* The largest of n values, compared as unsigned: negative values are larger than all others. */
u64 mt_largest(const struct array *a) {
    const u64 *x = (const u64 *)a->data;
    const long n = a->dims[0];
    u64 most = 0;
    for (long i = 0; i < n; i++) most = x[i] > most ? x[i] : most;
    return most;
}

/* Counts each value; all are in bounds. Many values are counted in four tables, because consecutive
   additions to the same element stall. */
void mt_counted(const struct array *a, const struct array *r) {
    const i64 *x = (const i64 *)a->data;
    i64 *to = (i64 *)r->data;
    const long n = a->dims[0], all = r->dims[0];
    long i = 0;
    u32 *more = n >= 1024 && n < 1L << 32 && all <= n / 4 ? calloc(4 * all, sizeof *more) : 0;
    if (more) {
        for (; i + 4 <= n; i += 4)
            for (int j = 0; j < 4; j++) more[j * all + x[i + j]]++;
        for (long d = 0; d < all; d++) to[d] += (i64)more[d] + more[all + d] + more[2 * all + d] + more[3 * all + d];
        free(more);
    }
    for (; i < n; i++) to[x[i]]++;
}

/* Writes the coordinates of the `count` nonzero bytes of a C-contiguous array: coordinate d of the
   k-th one to to[k * row + d * column]. Returns 1 if there are not exactly that many. */
int mt_nonzero(const struct array *a, i64 *to, long count, long row, long column) {
    const u8 *x = (const u8 *)a->data;
    const int last = a->nd - 1;
    long at[MOST] = {0}, rows = 1, k = 0;
    if (last < 0 || a->nd > MOST) return 1;
    const long n = a->dims[last];
    for (int d = 0; d < last; d++) rows *= a->dims[d];
    for (long r = 0; r < rows; r++, x += n) {
        for (long c = 0; c < n; c += 256) {
            const int m = n - c < 256 ? n - c : 256;
            int found = 0;
            u8 there[257];
            for (int i = 0; i < m; i++) { /* (branch-free: mask values are hard to predict) */
                there[found] = i;
                found += x[c + i] != 0;
            }
            if (found > count - k) return 1;
            for (int d = 0; d < last; d++)
                for (int i = 0; i < found; i++) to[(k + i) * row + d * column] = at[d];
            for (int i = 0; i < found; i++) to[(k + i) * row + last * column] = c + there[i];
            k += found;
        }
        for (int d = last - 1; d >= 0; d--) {
            if (++at[d] < a->dims[d]) break;
            at[d] = 0;
        }
    }
    return k != count;
}

/* Finds the insertion index of each value of a row in a sorted row, before equal elements or after
   them. The bisection steps are PyTorch's, so the results are the same if nan leaves the row
   unsorted. */
#define SEARCHED(T)                                                                                                                 \
    typedef struct { const T *sorted, *x; i64 *to; long n, width, part, parts; int right; } Search_##T;                             \
    static void search_##T(void *ctx, long start, long stop, int who) {                                                             \
        const Search_##T *k = ctx;                                                                                                  \
        enum { W = 8 };                                                                                                             \
        (void)who;                                                                                                                  \
        for (long p = start; p < stop; p++) {                                                                                       \
            const long row = p / k->parts, from = p % k->parts * k->part, behind = from + k->part < k->width ? from + k->part : k->width; \
            const T *s = k->sorted + row * k->n, *x = k->x + row * k->width;                                                        \
            i64 *to = k->to + row * k->width;                                                                                       \
            for (long i = from; i < behind; i += W) {                                                                               \
                const int w = behind - i < W ? behind - i : W;                                                                      \
                long low[W] = {0}, high[W];                                                                                         \
                T v[W];                                                                                                             \
                for (int j = 0; j < W; j++) high[j] = k->n, v[j] = x[i + (j < w ? j : 0)];                                          \
                for (long left = k->n; left; left >>= 1)                                                                            \
                    for (int j = 0; j < W; j++) {        /* (by masks: the branch would be mispredicted half of the time) */        \
                        const long mid = low[j] + ((high[j] - low[j]) >> 1), open = -(low[j] < high[j]);                            \
                        const T at = s[mid & open];                                                                                 \
                        const long above = -(long)(k->right ? at > v[j] : at >= v[j]);                                              \
                        low[j] += (mid + 1 - low[j]) & open & ~above;                                                               \
                        high[j] += (mid - high[j]) & open & above;                                                                  \
                    }                                                                                                               \
                for (int j = 0; j < w; j++) to[i + j] = low[j];                                                                     \
            }                                                                                                                       \
        }                                                                                                                           \
    }                                                                                                                               \
    /* sorted [rows, n], x and to [rows, width], all C-contiguous */                                                                \
    void mt_searched_##T(const struct array *sorted, const struct array *x, const struct array *to, long rows, long n, long width, int right) { \
        const long part = 1024, parts = (width + part - 1) / part;                                                                  \
        Search_##T k = {(const T *)sorted->data, (const T *)x->data, (i64 *)to->data, n, width, part, parts, right};                \
        long halves = 1;                                                                                                            \
        while (n >> halves) halves++;                                                                                               \
        shared(rows * parts, rows * width * halves, search_##T, &k);                                                                \
    }
SEARCHED(f32) SEARCHED(f64) SEARCHED(i64) SEARCHED(i32) SEARCHED(u8)
#undef SEARCHED
