/* Convolutions of small images for one T (see pooling.c): windows become columns in scratch memory,
 * which are multiplied by the weights.
 *
 * Images are first copied to padded ones, so that windows need no bounds checks. The pitch of the
 * columns is a multiple of the tile, zero-filled after the last window.
 */
typedef T NAME(vec) __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
#define VEC NAME(vec)
#define LANES ((long)(BYTES / sizeof(T)))
#define AT(p) (*(VEC *)(p))

/* to (m rows of `count` elements) = a (m, depth) @ b (depth, a tile) + bias */
ALWAYS void NAME(tile)(const int m, long depth, const T *a, long ar, long ak, const T *b, long pitch, const T *bias, T *to, long step, long count) {
    VEC s[4][ACROSS];
    UNROLL for (int i = 0; i < m; i++) UNROLL for (int j = 0; j < ACROSS; j++) s[i][j] = (VEC){0} + (bias ? bias[i] : 0);
    for (long k = 0; k < depth; k++, a += ak, b += pitch) {
        VEC v[ACROSS];
        UNROLL for (int j = 0; j < ACROSS; j++) v[j] = AT(b + j * LANES);
        UNROLL for (int i = 0; i < m; i++) UNROLL for (int j = 0; j < ACROSS; j++) s[i][j] += v[j] * a[i * ar];
    }
    UNROLL for (int i = 0; i < m; i++)
        if (count >= ACROSS * LANES) UNROLL for (int j = 0; j < ACROSS; j++) AT(to + i * step + j * LANES) = s[i][j];
        else {
            VEC t[ACROSS]; /* (keeps the sums in registers: their addresses are not used) */
            UNROLL for (int j = 0; j < ACROSS; j++) t[j] = s[i][j];
            memcpy(to + i * step, t, count * sizeof(T));
        }
}

/* to (rows, columns) = a (rows, depth; strides ar and ak) @ b (depth, columns; in whole tiles) +
   bias */
static void NAME(product)(long rows, long depth, long columns, const T *a, long ar, long ak, const T *b, long pitch, const T *bias, T *to, long step) {
    T room[PACKED * ACROSS * LANES];
    /* (Rows of b at distances of a multiple of 4096 bytes conflict in the cache: read each tile
       from there only once.) */
    const int packs = rows > 4 && depth <= PACKED && pitch * (long)sizeof(T) % 1024 == 0;
    for (long p = 0; p < columns; p += ACROSS * LANES) {
        const T *tile = b + p;
        if (packs) {
            for (long k = 0; k < depth; k++) UNROLL for (int j = 0; j < ACROSS; j++) AT(room + (k * ACROSS + j) * LANES) = AT(tile + k * pitch + j * LANES);
            tile = room;
        }
        const long each = packs ? ACROSS * LANES : pitch;
        for (long i = 0; i < rows; i += 4) {
            const T *from = a + i * ar, *add = bias ? bias + i : 0;
            T *into = to + i * step + p;
#define ROWS(m) NAME(tile)(m, depth, from, ar, ak, tile, each, add, into, step, columns - p)
            FOUR_ROWS(rows - i, ROWS)
#undef ROWS
        }
    }
}

/* to[i, j] += dot product of a's row i (of m) and b's row j (of l), n elements each */
ALWAYS void NAME(dots)(const int m, const int l, long n, const T *a, const T *b, long pa, long pb, T *to, long step) {
    VEC s[4][DEEP];
    UNROLL for (int i = 0; i < m; i++) UNROLL for (int j = 0; j < l; j++) s[i][j] = (VEC){0};
    for (long p = 0; p < n; p += LANES) {
        VEC v[DEEP];
        UNROLL for (int j = 0; j < l; j++) v[j] = AT(b + j * pb + p);
        UNROLL for (int i = 0; i < m; i++) {
            const VEC u = AT(a + i * pa + p);
            UNROLL for (int j = 0; j < l; j++) s[i][j] += u * v[j];
        }
    }
    UNROLL for (int i = 0; i < m; i++)
        UNROLL for (int j = 0; j < l; j++) {
            T sum[LANES];
            AT(sum) = s[i][j];
            UNROLL for (long h = LANES / 2; h; h /= 2) UNROLL for (long q = 0; q < h; q++) sum[q] += sum[q + h];
            to[i * step + j] += sum[0];
        }
}

static void NAME(dotted)(long rows, long columns, long n, const T *a, const T *b, long pa, long pb, T *to, long step) {
    for (long i = 0; i < rows; i += 4)
        for (long j = 0; j < columns;) {
            const T *u = a + i * pa, *v = b + j * pb;
            T *into = to + i * step + j;
            const int many = columns - j >= DEEP;
#define ROWS(m) if (many) NAME(dots)(m, DEEP, n, u, v, pa, pb, into, step); else NAME(dots)(m, 1, n, u, v, pa, pb, into, step)
            FOUR_ROWS(rows - i, ROWS)
#undef ROWS
            j += many ? DEEP : 1;
        }
}

/* Iterates over the rows of an image inside the padded one: their starts in both, their length. */
#define EACH_ROW(...)                                                                                                               \
    for (long c = 0; c < v->c; c++)                                                                                                 \
        for (long d = 0; d < k->d.size && d + k->d.pad < v->depth; d++)                                                             \
            for (long h = 0; h < k->h.size && h + k->h.pad < v->height; h++) {                                                      \
                T *in = room + ((c * v->depth + d + k->d.pad) * v->height + h + k->h.pad) * v->width + k->w.pad;                    \
                const long out = ((c * k->d.size + d) * k->h.size + h) * k->w.size;                                                 \
                const long n = k->w.size < v->width - k->w.pad ? k->w.size : v->width - k->w.pad;                                   \
                for (long i = 0; i < n; i++) { __VA_ARGS__ }                                                                        \
            }
/* Iterates over the rows of windows for each window offset: their start in the padded image (p,
   stride s) and in the columns (line). */
#define EACH_LINE(...)                                                                                                              \
    for (long c = 0; c < v->c; c++)                                                                                                 \
        for (long e = 0; e < k->d.kernel; e++)                                                                                      \
            for (long a = 0; a < k->h.kernel; a++)                                                                                  \
                for (long b = 0; b < k->w.kernel; b++, columns += v->pitch) {                                                       \
                    T *line = columns;                                                                                              \
                    for (long d = 0; d < k->d.out; d++)                                                                             \
                        for (long h = 0; h < k->h.out; h++, line += k->w.out) {                                                     \
                            T *p = room + ((c * v->depth + d * k->d.stride + e * k->d.apart) * v->height                            \
                                           + h * k->h.stride + a * k->h.apart) * v->width + b * k->w.apart;                         \
                            __VA_ARGS__                                                                                             \
                        }                                                                                                           \
                    if (fill) memset(columns + v->out, 0, (v->pitch - v->out) * sizeof(T));                                         \
                }

static void NAME(lay)(const Conv *v, const T *x, T *room, T *columns) {
    const Windows *k = v->k;
    const long w = k->w.out, s = k->w.stride;
    const int fill = 1;
    memset(room, 0, v->c * v->depth * v->height * v->width * sizeof(T));
    EACH_ROW(in[i] = x[out + i];)
    /* (Writes whole vectors past a row's end; the next row overwrites the excess.) */
    if (s == 1) EACH_LINE(for (long i = 0; i < w; i += LANES) AT(line + i) = AT(p + i);)
    else EACH_LINE(for (long i = 0; i < w; i++) line[i] = p[i * s];)
}

static void NAME(gather)(const Conv *v, T *x, T *room, T *columns) {
    const Windows *k = v->k;
    const long w = k->w.out, s = k->w.stride;
    const int fill = 0;
    memset(room, 0, v->c * v->depth * v->height * v->width * sizeof(T));
    if (s == 1) EACH_LINE(for (long i = 0; i < w; i++) p[i] += line[i];)
    else EACH_LINE(for (long i = 0; i < w; i++) p[i * s] += line[i];)
    memset(x, 0, v->c * v->in * sizeof(T));
    EACH_ROW(x[out + i] = in[i];)
}

/* g, `rows` of v->out elements, padded to whole tiles */
static const T *NAME(padded)(const Conv *v, const T *g, T *room) {
    if (v->out == v->pitch) return g;
    for (long i = 0; i < v->o; i++) {
        memcpy(room + i * v->pitch, g + i * v->out, v->out * sizeof(T));
        memset(room + i * v->pitch + v->out, 0, (v->pitch - v->out) * sizeof(T));
    }
    return room;
}

static void NAME(convolve)(void *ctx, long start, long stop, int who) {
    Conv *v = ctx;
    const Windows *k = v->k;
    const long inner = v->c * v->places, weights = v->o * inner, image = v->c * v->in, result = v->o * v->out;
    const long laid = v->plain && (v->what == INPUT || v->out == v->pitch) ? 0 : v->c * v->depth * v->height * v->width + LANES;
    const long unfolded = laid ? inner * v->pitch + LANES : 0, rows = v->what != FORWARD && v->out != v->pitch ? v->o * v->pitch : 0;
    T *room = malloc((laid + unfolded + rows + 1) * sizeof(T)), *columns = room + laid, *more = columns + unfolded;
    (void)who; (void)k;
    if (!room) {
        __atomic_store_n(&v->lost, 1, __ATOMIC_RELAXED);
        return;
    }
    memset(columns - (laid ? LANES : 0), 0, (laid ? LANES : 0) * sizeof(T));
    for (long u = start; u < stop; u++) {
        if (v->what == WEIGHT) {
            T *w = (T *)v->w + u * weights;
            memset(w, 0, weights * sizeof(T));
            for (long i = u; i < v->n * v->groups; i += v->groups) {
                const T *x = (const T *)v->x + i * image, *g = NAME(padded)(v, (const T *)v->y + i * result, more);
                if (laid) NAME(lay)(v, x, room, columns);
                NAME(dotted)(v->o, inner, v->pitch, g, laid ? columns : x, v->pitch, v->pitch, w, inner);
            }
            continue;
        }
        T *x = (T *)v->x + u * image, *y = (T *)v->y + u * result;
        const T *w = (const T *)v->w + u % v->groups * weights;
        if (v->what == FORWARD) {
            if (laid) NAME(lay)(v, x, room, columns);
            NAME(product)(v->o, inner, v->out, w, inner, 1, laid ? columns : x, v->pitch, v->b ? (const T *)v->b + u % v->groups * v->o : 0, y, v->out);
        } else {
            const T *g = NAME(padded)(v, y, more);
            NAME(product)(inner, v->o, laid ? v->pitch : v->out, w, 1, inner, g, v->pitch, 0, laid ? columns : x, laid ? v->pitch : v->out);
            if (laid) NAME(gather)(v, x, room, columns);
        }
    }
    free(room);
}
#undef VEC
#undef LANES
#undef AT
#undef EACH_ROW
#undef EACH_LINE
