/* Sorting and selection in rows of T by keys of type K; see scan_gather.c. */
typedef struct { K key; u32 at; } NAME(Keyed);
typedef struct { const T *from; T *values; i64 *places; long rows, n, k; int down, failed; } NAME(Rows);

#define KEY_(t) key_##t
#define KEY__(t) KEY_(t)
#define KEY KEY__(T)

#define SORTED(W)                                                                                   \
    do {                                                                                            \
        Keyed_##W *here = (Keyed_##W *)room;                                                                     \
        for (long i = 0; i < n; i++)                                                                \
            here[i].key = (W)((KEY(from[i]) ^ turn) - low), here[i].at = (u32)i;                    \
        here = digits_##W(here, here + n, n, (W)(high - low), count);                               \
        for (long i = 0; i < n; i++) {                                                              \
            if (k->places) k->places[r * n + i] = here[i].at;                                       \
            if (k->values) k->values[r * n + i] = from[here[i].at];                                 \
        }                                                                                           \
    } while (0)

/* Stable insertion sort of few keys in ascending order. */
static void NAME(insert)(NAME(Keyed) *here, long n) {
    for (long i = 1; i < n; i++) {
        const NAME(Keyed) x = here[i];
        long j = i;
        for (; j && x.key < here[j - 1].key; j--) here[j] = here[j - 1];
        here[j] = x;
    }
}

static void NAME(order_few)(void *ctx, long start, long stop, int who) {
    NAME(Rows) *k = ctx;
    const long n = k->n;
    const K turn = k->down ? (K)-1 : 0;
    NAME(Keyed) here[FEW];
    (void)who;
    for (long r = start; r < stop; r++) {
        const T *from = k->from + r * n;
        for (long i = 0; i < n; i++) here[i] = (NAME(Keyed)){KEY(from[i]) ^ turn, (u32)i};
        NAME(insert)(here, n);
        for (long i = 0; i < n; i++) {
            if (k->places) k->places[r * n + i] = here[i].at;
            if (k->values) k->values[r * n + i] = from[here[i].at];
        }
    }
}

/* Sorts rows by their keys minus the row's smallest key, to use as few bits as possible. */
static void NAME(order)(void *ctx, long start, long stop, int who) {
    NAME(Rows) *k = ctx;
    const long n = k->n;
    const K turn = k->down ? (K)-1 : 0;
    (void)who;
    char *room = malloc(2 * n * sizeof(Keyed_u64));
    long *count = malloc(sizeof *count << 11);
    if (!room || !count) __atomic_store_n(&k->failed, 1, __ATOMIC_RELAXED);
    else for (long r = start; r < stop; r++) {
        const T *from = k->from + r * n;
        K low = (K)-1, high = 0;
        for (long i = 0; i < n; i++) {
            const K x = KEY(from[i]) ^ turn;
            low = x < low ? x : low, high = x > high ? x : high;
        }
        if (sizeof(K) == 4 || (u64)(high - low) >> 32 == 0) SORTED(u32);
        else SORTED(u64);
    }
    free(room);
    free(count);
}
#undef SORTED

/* Sorts the rows of from[rows, n], n below 2^32, into values and indices `places` (either may be
   null). Returns 1 if out of memory. */
int NAME(mt_order)(const T *from, T *values, i64 *places, long rows, long n, int down) {
    NAME(Rows) k = {from, values, places, rows, n, 0, down, 0};
    if (rows && n) shared(rows, rows * n, n <= FEW ? NAME(order_few) : NAME(order), &k);
    return k.failed;
}

/* Heap of the best elements so far with the worst on top; of equal elements the later one is
   worse. */
ALWAYS int NAME(worse)(NAME(Keyed) a, NAME(Keyed) b) { return a.key < b.key || (a.key == b.key && a.at > b.at); }

static void NAME(sink)(NAME(Keyed) *heap, long n, long i) {
    const NAME(Keyed) x = heap[i];
    for (long child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && NAME(worse)(heap[child + 1], heap[child])) child++;
        if (!NAME(worse)(heap[child], x)) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

static void NAME(best)(void *ctx, long start, long stop, int who) {
    NAME(Rows) *q = ctx;
    const long n = q->n, k = q->k;
    (void)who;
    NAME(Keyed) *heap = malloc(k * sizeof *heap);
    if (!heap) __atomic_store_n(&q->failed, 1, __ATOMIC_RELAXED);
    else for (long r = start; r < stop; r++) {
        const T *from = q->from + r * n;
        /* the smallest elements have the largest inverted keys */
        const K turn = q->down ? 0 : (K)-1;
        for (long i = 0; i < k; i++) heap[i].key = KEY(from[i]) ^ turn, heap[i].at = (u32)i;
        for (long i = k / 2 - 1; i >= 0; i--) NAME(sink)(heap, k, i);
        K least = heap[0].key;
        long i = k;
        /* (most blocks have no candidates: check them with a vectorized loop) */
        for (; i + 32 <= n; i += 32) {
            int any = 0;
            _Pragma("omp simd reduction(|:any)") for (int j = 0; j < 32; j++) any |= (KEY(from[i + j]) ^ turn) > least;
            if (!any) continue;
            for (int j = 0; j < 32; j++) {
                const K x = KEY(from[i + j]) ^ turn;
                if (x > least) {
                    heap[0].key = x, heap[0].at = (u32)(i + j);
                    NAME(sink)(heap, k, 0);
                    least = heap[0].key;
                }
            }
        }
        for (; i < n; i++) {
            const K x = KEY(from[i]) ^ turn;
            if (x > least) {
                heap[0].key = x, heap[0].at = (u32)i;
                NAME(sink)(heap, k, 0);
                least = heap[0].key;
            }
        }
        for (long m = k - 1; m >= 0; m--) {
            q->places[r * k + m] = heap[0].at;
            q->values[r * k + m] = from[heap[0].at];
            heap[0] = heap[m];
            NAME(sink)(heap, m, 0);
        }
    }
    free(heap);
}

/* Selects the first k (1 <= k <= n) elements of each row in descending (down) or ascending order;
   equal elements stay in order. Returns 1 if out of memory. */
int NAME(mt_best)(const T *from, T *values, i64 *places, long rows, long n, long k, int down) {
    NAME(Rows) q = {from, values, places, rows, n, k, down, 0};
    if (rows && n) shared(rows, rows * n, NAME(best), &q);
    return q.failed;
}
/* ---- order statistics, and the first few elements with detection of ties */
#define SOME 16
/* The m smallest keys (m at most FEW + 1 and n) of a row in ascending order; equal keys stay in
   order. */
static void NAME(first)(const T *from, long n, long m, K turn, NAME(Keyed) *here) {
    for (long i = 0; i < m; i++) here[i] = (NAME(Keyed)){KEY(from[i]) ^ turn, (u32)i};
    NAME(insert)(here, m);
    for (long i = m; i < n;) {
        const long end = n - i < SOME ? n : i + SOME;
        K x[SOME];
        int any = 0;
        /* (most blocks have no candidates: check them with a vectorized loop) */
        if (end - i == SOME) {
            const K least = here[m - 1].key;
            _Pragma("omp simd reduction(|:any)") for (int j = 0; j < SOME; j++) x[j] = KEY(from[i + j]) ^ turn, any |= x[j] < least;
            if (!any) { i = end; continue; }
        } else
            for (long j = i; j < end; j++) x[j - i] = KEY(from[j]) ^ turn;
        for (int l = 0; i < end; i++, l++) {
            long j = m - 1;
            if (x[l] >= here[j].key) continue;
            for (; j && x[l] < here[j - 1].key; j--) here[j] = here[j - 1];
            here[j] = (NAME(Keyed)){x[l], (u32)i};
        }
    }
}
#undef SOME

static void NAME(top_rows)(void *ctx, long start, long stop, int who) {
    NAME(Rows) *q = ctx;
    /* one extra element shows whether a tie leaves a choice */
    const long n = q->n, k = q->k, m = k < n ? k + 1 : n;
    NAME(Keyed) here[FEW + 1];
    int tied = 0;
    (void)who;
    for (long r = start; r < stop; r++) {
        const T *from = q->from + r * n;
        NAME(first)(from, n, m, q->down ? (K)-1 : 0, here);
        for (long i = 0; i < k; i++) q->places[r * k + i] = here[i].at, q->values[r * k + i] = from[here[i].at];
        for (long i = 1; i < m; i++) tied |= here[i].key == here[i - 1].key;
    }
    if (tied) __atomic_store_n(&q->failed, 1, __ATOMIC_RELAXED);
}

/* Selects the first k (at most FEW) elements of each row of a C-contiguous array in descending
   (down) or ascending order. Returns 1 if some of them, or the next one, are equal; -1 if
   unsupported. */
int NAME(mt_top)(const struct array *a, const struct array *values, const struct array *places, int down) {
    const long n = a->nd ? a->dims[a->nd - 1] : 0, k = values->nd ? values->dims[values->nd - 1] : 0;
    if (!(a->flags & CONTIGUOUS) || !(a->flags & ALIGNED) || k < 1 || k > FEW || k > n || n >> 32) return -1;
    long rows = 1;
    for (int d = 0; d < a->nd - 1; d++) rows *= a->dims[d];
    NAME(Rows) q = {(const T *)a->data, (T *)values->data, (i64 *)places->data, rows, n, k, down, 0};
    if (rows) shared(rows, rows * n, NAME(top_rows), &q);
    return q.failed;
}

/* Quickselect: returns the k-th smallest of n keys; reorders the keys. */
static K NAME(nth)(K *a, long n, long k) {
    long low = 0, high = n - 1;
    while (high - low > 12) {
        const K x = a[low], y = a[(low + high) / 2], z = a[high];
        const K pivot = x < y ? y < z ? y : x < z ? z : x : x < z ? x : y < z ? z : y;
        long i = low, j = high;
        while (i <= j) {
            while (a[i] < pivot) i++;
            while (pivot < a[j]) j--;
            if (i <= j) {
                const K t = a[i];
                a[i++] = a[j], a[j--] = t;
            }
        }
        if (k <= j) high = j;
        else if (k >= i) low = i;
        else return pivot;
    }
    for (long i = low + 1; i <= high; i++) {
        const K x = a[i];
        long j = i;
        for (; j > low && x < a[j - 1]; j--) a[j] = a[j - 1];
        a[j] = x;
    }
    return a[k];
}

static void NAME(ranked)(void *ctx, long start, long stop, int who) {
    NAME(Rows) *q = ctx;
    const long n = q->n;
    (void)who;
    K *keys = malloc(n * sizeof *keys);
    if (!keys) __atomic_store_n(&q->failed, -1, __ATOMIC_RELAXED);
    else for (long r = start; r < stop; r++) {
        const T *from = q->from + r * n;
        long missing = 0, k = q->k, less = 0, same = 0, at = 0;
        /* near an end: select the first few and one more */
        if (q->down == PLAIN && (k < FEW - 1 || n - k < FEW) && n > 2) {
            const int up = k < FEW - 1;
            const long place = up ? k : n - 1 - k, m = place + 2 < n ? place + 2 : n;
            NAME(Keyed) here[FEW + 1];
            for (long i = 0; i < n; i++) missing |= from[i] != from[i];
            NAME(first)(from, n, m, up ? 0 : (K)-1, here);
            const K key = here[place].key;
            if (missing || (place && here[place - 1].key == key) || (place + 1 < m && here[place + 1].key == key)) {
                __atomic_store_n(&q->failed, 1, __ATOMIC_RELAXED);
                break;
            }
            q->values[r] = from[here[place].at], q->places[r] = here[place].at;
            continue;
        }
        for (long i = 0; i < n; i++) keys[i] = KEY(from[i]), missing += from[i] != from[i];
        if (q->down == SKIPPING && missing == n) { __atomic_store_n(&q->failed, 1, __ATOMIC_RELAXED); break; }
        if (q->down == MEDIAN) k = missing ? n - missing : (n - 1) / 2;
        if (q->down == SKIPPING) k = (n - missing - 1) / 2;
        const K key = NAME(nth)(keys, n, k);
        for (long i = 0; i < n; i++) less += KEY(from[i]) < key, same += KEY(from[i]) == key;
        if (q->down == PLAIN && (same > 1 || missing)) { __atomic_store_n(&q->failed, 1, __ATOMIC_RELAXED); break; }
        /* (of equal elements, the one that a stable sort puts there) */
        for (long left = k - less; KEY(from[at]) != key || left--; at++);
        q->values[r] = from[at];
        q->places[r] = at;
    }
    free(keys);
}

/* Selects one element of each row of a C-contiguous array: the one at rank k, or (how) the lower
   median of all elements or of those that are not nan; of nans the first counts. Returns 1 if the
   result is ambiguous (PLAIN: ties or nans; SKIPPING: only nans), -1 if unsupported. */
int NAME(mt_ranked)(const struct array *a, const struct array *values, const struct array *places, int how, long k) {
    const long n = a->nd ? a->dims[a->nd - 1] : 0;
    if (!(a->flags & CONTIGUOUS) || !(a->flags & ALIGNED) || n < 1 || k < 0 || k >= n) return -1;
    NAME(Rows) q = {(const T *)a->data, (T *)values->data, (i64 *)places->data, 1, n, k, how, 0};
    for (int d = 0; d < a->nd - 1; d++) q.rows *= a->dims[d];
    if (q.rows) shared(q.rows, q.rows * n, NAME(ranked), &q);
    return q.failed;
}
#undef KEY
#undef KEY_
#undef KEY__
