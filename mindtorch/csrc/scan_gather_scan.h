/* Scans over T, computed in WIDE; see scan_gather.c. */

#define LANES 256
typedef struct { const T *from; T *to; i64 *where; long outer, n, inner; int times, back; } NAME(Scan);

#define STEP(acc, x) (k->times ? (acc) * (WIDE)(x) : (acc) + (WIDE)(x))

/* four rows at once: each sum depends on the previous one */
static void NAME(scan_rows)(void *ctx, long start, long stop, int who) {
    const NAME(Scan) *k = ctx;
    const long n = k->n, by = k->back ? -1 : 1, first = k->back ? n - 1 : 0;
    (void)who;
    for (long r = start * 4; r < stop * 4 && r < k->outer; r += 4) {
        const T *from = k->from + r * n + first;
        T *to = k->to + r * n + first;
        WIDE s[4];
        for (int j = 0; j < 4; j++) s[j] = k->times;
        if (r + 4 <= k->outer) {
            if (k->times)
                for (long i = 0; i < n; i++)
                    for (int j = 0; j < 4; j++) to[j * n + i * by] = (T)(s[j] *= (WIDE)from[j * n + i * by]);
            else
                for (long i = 0; i < n; i++)
                    for (int j = 0; j < 4; j++) to[j * n + i * by] = (T)(s[j] += (WIDE)from[j * n + i * by]);
        } else
            for (long j = 0; j < k->outer - r; j++)
                for (long i = 0; i < n; i++) to[j * n + i * by] = (T)(s[j] = STEP(s[j], from[j * n + i * by]));
    }
}

static void NAME(scan_lines)(void *ctx, long start, long stop, int who) {
    const NAME(Scan) *k = ctx;
    const long n = k->n, inner = k->inner, strips = (inner + LANES - 1) / LANES, by = k->back ? -inner : inner;
    (void)who;
    for (long p = start; p < stop; p++) {
        const long c = p % strips * LANES, width = inner - c < LANES ? inner - c : LANES, first = p / strips * n * inner + c;
        const T *from = k->from + first + (k->back ? (n - 1) * inner : 0);
        T *to = k->to + first + (k->back ? (n - 1) * inner : 0);
        WIDE s[LANES];
        for (long j = 0; j < width; j++) s[j] = k->times;
        for (long i = 0; i < n; i++, from += by, to += by) {
            if (k->times)
                for (long j = 0; j < width; j++) to[j] = (T)(s[j] *= (WIDE)from[j]);
            else
                for (long j = 0; j < width; j++) to[j] = (T)(s[j] += (WIDE)from[j]);
        }
    }
}

/* Cumulative sums (products) along an axis of a C-contiguous array, from its end if `back`. */
void NAME(mt_scan)(const struct array *from, const struct array *r, int axis, int times, int back) {
    long outer, n, inner;
    if (!sizes_along(from, axis, &outer, &n, &inner)) return;
    NAME(Scan) k = {(const T *)from->data, (T *)r->data, 0, outer, n, inner, times, back};
    if (inner == 1) shared((outer + 3) / 4, outer * n, NAME(scan_rows), &k);
    else shared(outer * ((inner + LANES - 1) / LANES), outer * n * inner, NAME(scan_lines), &k);
}

static void NAME(extremes)(void *ctx, long start, long stop, int who) {
    const NAME(Scan) *k = ctx;
    const long n = k->n, inner = k->inner, strips = (inner + LANES - 1) / LANES;
    (void)who;
    for (long p = start; p < stop; p++) {
        const long c = p % strips * LANES, width = inner - c < LANES ? inner - c : LANES, first = p / strips * n * inner + c;
        if (inner == 1) {
            T best = k->from[first];
            i64 at = 0;
            for (long i = first; i < first + n; i++) {
                const T x = k->from[i];
                const int ahead = k->back ? x <= best : x >= best;
                if (x != x || ahead) best = x, at = i - first;
                k->to[i] = best;
                k->where[i] = at;
            }
            continue;
        }
        T best[LANES];
        i64 at[LANES];
        memcpy(best, k->from + first, sizeof(T) * width);
        memset(at, 0, sizeof at);
        for (long i = 0; i < n; i++) {
            const T *from = k->from + first + i * inner;
            T *to = k->to + first + i * inner;
            i64 *where = k->where + first + i * inner;
            for (long j = 0; j < width; j++) {
                const T x = from[j];
                const int ahead = k->back ? x <= best[j] : x >= best[j];
                if (x != x || ahead) best[j] = x, at[j] = i; /* (nan compares as the extreme) */
                to[j] = best[j];
                where[j] = at[j];
            }
        }
    }
}

/* Cumulative maximum (minimum) and its last index. */
void NAME(mt_extremes)(const struct array *from, const struct array *r, const struct array *where, int axis, int least) {
    long outer, n, inner;
    if (!sizes_along(from, axis, &outer, &n, &inner)) return;
    NAME(Scan) k = {(const T *)from->data, (T *)r->data, (i64 *)where->data, outer, n, inner, 0, least};
    shared(outer * ((inner + LANES - 1) / LANES), outer * n * inner, NAME(extremes), &k);
}
#undef LANES
#undef STEP
