/* Orders of rows of T by keys of K; see _along.c. */
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

/* Keys less the smallest of the row, in as few bits as they take. */
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

/* What sorts the rows of from[rows, n], n below 2^32 (values and places may be none); 1: no memory. */
int NAME(mt_order)(const T *from, T *values, i64 *places, long rows, long n, int down) {
    NAME(Rows) k = {from, values, places, rows, n, 0, down, 0};
    if (rows && n) shared(rows, rows * n, NAME(order), &k);
    return k.failed;
}

/* A heap of the best so far, the worst of them on top; of equal ones the later is worse. */
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
        const K turn = q->down ? 0 : (K)-1;     /* the smallest are the largest of turned keys */
        for (long i = 0; i < k; i++) heap[i].key = KEY(from[i]) ^ turn, heap[i].at = (u32)i;
        for (long i = k / 2 - 1; i >= 0; i--) NAME(sink)(heap, k, i);
        K least = heap[0].key;
        long i = k;
        for (; i + 32 <= n; i += 32) {          /* (most blocks have none: a loop that is a vector) */
            int any = 0;
            for (int j = 0; j < 32; j++) any |= (KEY(from[i + j]) ^ turn) > least;
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

/* The k first (1 <= k <= n) of the rows in falling (down) or rising order, equal ones in theirs; 1: no memory. */
int NAME(mt_best)(const T *from, T *values, i64 *places, long rows, long n, long k, int down) {
    NAME(Rows) q = {from, values, places, rows, n, k, down, 0};
    if (rows && n) shared(rows, rows * n, NAME(best), &q);
    return q.failed;
}
#undef KEY
#undef KEY_
#undef KEY__
