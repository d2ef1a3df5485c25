/* For one T, and U, an integer type of its size: see pooling.c. */

static void NAME(maxima)(void *ctx, long start, long stop, int who) {
    const Job *j = ctx;
    const Windows *k = j->k;
    const Ends ends = ends_of(&k->w);
    (void)who;
    for (long plane = start; plane < stop; plane++) {
        const T *x = (const T *)j->from + plane * j->in;
        T *y = (T *)j->to + plane * j->out;
        char *places = j->places ? j->places + plane * j->out * (j->narrow ? 1 : 4) : 0;
        for (long d = 0; d < k->d.out; d++)
            for (long h = 0; h < k->h.out; h++) {
                const long d0 = first_inside(&k->d, d), h0 = first_inside(&k->h, h), line = (d * k->h.out + h) * k->w.out;
                for (long cut = 0; cut < k->w.out; cut += CUT) {
                    const long end = k->w.out - cut < CUT ? k->w.out : cut + CUT;
                    T best[CUT];
                    U at[CUT];
                    for (long i = 0; i < end - cut; i++) best[i] = -(T)INFINITY;
                    /* (if no element is larger than that, the first one inside counts) */
                    if (places)
                        for (long i = 0; i < end - cut; i++)
                            at[i] = (U)((d0 * k->h.kernel + h0) * k->w.kernel + first_inside(&k->w, cut + i));
                    for (long a = d0; a < k->d.kernel; a++) {
                        const long z = d * k->d.stride - k->d.pad + a * k->d.apart;
                        if (z >= k->d.size) break;
                        for (long b = h0; b < k->h.kernel; b++) {
                            const long v = h * k->h.stride - k->h.pad + b * k->h.apart;
                            if (v >= k->h.size) break;
                            const T *row = x + (z * k->h.size + v) * k->w.size;
                            for (long c = 0; c < k->w.kernel; c++) {
                                const long low = within(LOW(c), cut, end) - cut, high = within(HIGH(c), cut, end) - cut;
                                const T *p = row + cut * k->w.stride - k->w.pad + c * k->w.apart;
                                const long s = k->w.stride;
                                const U q = (U)((a * k->h.kernel + b) * k->w.kernel + c);
                                if (places) {
                                    if (s == 1) LARGEST_AT(1)
                                    else if (s == 2) LARGEST_AT(2)
                                    else LARGEST_AT(s)
                                } else if (s == 1) LARGEST(1)
                                else if (s == 2) LARGEST(2)
                                else LARGEST(s)
                            }
                        }
                    }
                    memcpy(y + line + cut, best, (end - cut) * sizeof(T));
                    if (places && j->narrow) for (long i = 0; i < end - cut; i++) ((int8_t *)places)[line + cut + i] = (int8_t)at[i];
                    else if (places) for (long i = 0; i < end - cut; i++) ((int32_t *)places)[line + cut + i] = (int32_t)at[i];
                }
            }
    }
}

static void NAME(maxima_back)(void *ctx, long start, long stop, int who) {
    const Job *j = ctx;
    const Windows *k = j->k;
    long known[PLACES];
    const long all = k->d.kernel * k->h.kernel * k->w.kernel, few = all < PLACES ? all : PLACES;
    for (long q = 0; q < few; q++) known[q] = place(k, q);
    (void)who;
    for (long plane = start; plane < stop; plane++) {
        const T *g = (const T *)j->from + plane * j->out;
        T *to = (T *)j->to + plane * j->in;
        const char *places = j->places + plane * j->out * (j->narrow ? 1 : 4);
        memset(to, 0, j->in * sizeof(T));
        long n = 0;
        for (long d = 0; d < k->d.out; d++)
            for (long h = 0; h < k->h.out; h++) {
                long at = ((d * k->d.stride - k->d.pad) * k->h.size + h * k->h.stride - k->h.pad) * k->w.size - k->w.pad;
                for (long w = 0; w < k->w.out; w++, n++, at += k->w.stride) {
                    const unsigned long q = j->narrow ? ((const int8_t *)places)[n] : ((const int32_t *)places)[n];
                    const unsigned long i = at + (q < (unsigned long)few ? known[q] : place(k, q));
                    if (i < (unsigned long)j->in) to[i] += g[n];
                }
            }
    }
}

static void NAME(means)(void *ctx, long start, long stop, int who) {
    const Job *j = ctx;
    const Windows *k = j->k;
    const Ends ends = ends_of(&k->w);
    (void)who;
    for (long plane = start; plane < stop; plane++) {
        const T *x = (const T *)j->from + plane * j->in;
        T *y = (T *)j->to + plane * j->out;
        for (long d = 0; d < k->d.out; d++)
            for (long h = 0; h < k->h.out; h++, y += k->w.out) {
                const long rest = counted(&k->d, d, k->include) * counted(&k->h, h, k->include);
                memset(y, 0, k->w.out * sizeof(T));
                for (long a = first_inside(&k->d, d); a < k->d.kernel; a++) {
                    const long z = d * k->d.stride - k->d.pad + a;
                    if (z >= k->d.size) break;
                    for (long b = first_inside(&k->h, h); b < k->h.kernel; b++) {
                        const long v = h * k->h.stride - k->h.pad + b;
                        if (v >= k->h.size) break;
                        const T *row = x + (z * k->h.size + v) * k->w.size;
                        for (long c = 0; c < k->w.kernel; c++) {
                            const long low = LOW(c), high = HIGH(c), s = k->w.stride;
                            const T *p = row - k->w.pad + c;
                            if (s == 1) ADDED(1)
                            else if (s == 2) ADDED(2)
                            else ADDED(s)
                        }
                    }
                }
                long by = k->divisor, last = -1;
                /* (runs of windows with equal numbers of elements) */
                for (long i = 0; i < k->w.out;) {
                    const long n = counted(&k->w, i, k->include);
                    long to = i + 1;
                    while (to < k->w.out && counted(&k->w, to, k->include) == n) to++;
                    if (!k->divisor && n != last) by = rest * n, last = n;
                    if (by) for (long m = i; m < to; m++) y[m] /= (T)by;
                    i = to;
                }
            }
    }
}

static void NAME(means_back)(void *ctx, long start, long stop, int who) {
    const Job *j = ctx;
    const Windows *k = j->k;
    const Ends ends = ends_of(&k->w);
    (void)who;
    for (long plane = start; plane < stop; plane++) {
        const T *g = (const T *)j->from + plane * j->out;
        T *to = (T *)j->to + plane * j->in;
        memset(to, 0, j->in * sizeof(T));
        for (long d = 0; d < k->d.out; d++)
            for (long h = 0; h < k->h.out; h++, g += k->w.out) {
                const long rest = counted(&k->d, d, k->include) * counted(&k->h, h, k->include);
                for (long cut = 0; cut < k->w.out; cut += CUT) {
                    const long end = k->w.out - cut < CUT ? k->w.out : cut + CUT;
                    T each[CUT];
                    for (long i = 0; i < end - cut; i++) {
                        const long by = k->divisor ? k->divisor : rest * counted(&k->w, cut + i, k->include);
                        each[i] = by ? g[cut + i] / (T)by : 0;
                    }
                    for (long a = first_inside(&k->d, d); a < k->d.kernel; a++) {
                        const long z = d * k->d.stride - k->d.pad + a;
                        if (z >= k->d.size) break;
                        for (long b = first_inside(&k->h, h); b < k->h.kernel; b++) {
                            const long v = h * k->h.stride - k->h.pad + b;
                            if (v >= k->h.size) break;
                            T *row = to + (z * k->h.size + v) * k->w.size;
                            for (long c = 0; c < k->w.kernel; c++) {
                                const long low = within(LOW(c), cut, end) - cut, high = within(HIGH(c), cut, end) - cut;
                                T *p = row + cut * k->w.stride - k->w.pad + c;
                                for (long i = low; i < high; i++) p[i * k->w.stride] += each[i];
                            }
                        }
                    }
                }
            }
    }
}

/* Iterates over the pieces of the axes, as many as there are windows (they may overlap by an
   element), and over their rows. */
#define EACH_PIECE(...)                                                                                                             \
    for (long d = 0; d < k->d.out; d++)                                                                                             \
        for (long h = 0; h < k->h.out; h++)                                                                                         \
            for (long w = 0; w < k->w.out; w++) {                                                                                   \
                const long d0 = piece_start(&k->d, d), d1 = piece_end(&k->d, d), h0 = piece_start(&k->h, h), h1 = piece_end(&k->h, h), \
                           w0 = piece_start(&k->w, w), w1 = piece_end(&k->w, w);                                                    \
                __VA_ARGS__                                                                                                         \
            }
#define EACH_ROW(...)                                                                                                               \
    for (long a = d0; a < d1; a++)                                                                                                  \
        for (long b = h0; b < h1; b++) {                                                                                            \
            const long row = (a * k->h.size + b) * k->w.size;                                                                       \
            __VA_ARGS__                                                                                                             \
        }

/* Means of pieces; sums are in double precision. */
static void NAME(pieces)(void *ctx, long start, long stop, int who) {
    const Job *j = ctx;
    const Windows *k = j->k;
    (void)who;
    for (long plane = start; plane < stop; plane++) {
        const T *x = (const T *)j->from + plane * j->in;
        T *y = (T *)j->to + plane * j->out;
        EACH_PIECE(
            double sum = 0;
            EACH_ROW(
                double s = 0;
                for (long c = w0; c < w1; c++) s += x[row + c];
                sum += s;)
            *y++ = (T)(sum / ((d1 - d0) * (h1 - h0) * (w1 - w0)));)
    }
}

/* Maximum of each piece and its index in the plane (64 bits): of equal elements the first, of nans
   the last. */
static void NAME(largest)(void *ctx, long start, long stop, int who) {
    const Job *j = ctx;
    const Windows *k = j->k;
    (void)who;
    for (long plane = start; plane < stop; plane++) {
        const T *x = (const T *)j->from + plane * j->in;
        T *y = (T *)j->to + plane * j->out;
        int64_t *places = j->places ? (int64_t *)j->places + plane * j->out : 0;
        EACH_PIECE(
            long at = (d0 * k->h.size + h0) * k->w.size + w0;
            T best = x[at];
            EACH_ROW(
                for (long c = w0; c < w1; c++) {
                    const T e = x[row + c];
                    if (e > best || e != e) best = e, at = row + c;
                })
            *y++ = best;
            if (places) *places++ = at;)
    }
}

static void NAME(pieces_back)(void *ctx, long start, long stop, int who) {
    const Job *j = ctx;
    const Windows *k = j->k;
    (void)who;
    for (long plane = start; plane < stop; plane++) {
        const T *g = (const T *)j->from + plane * j->out;
        T *to = (T *)j->to + plane * j->in;
        memset(to, 0, j->in * sizeof(T));
        EACH_PIECE(
            const T each = *g++ / (T)((d1 - d0) * (h1 - h0) * (w1 - w0));
            EACH_ROW(for (long c = w0; c < w1; c++) to[row + c] += each;))
    }
}
#undef EACH_PIECE
#undef EACH_ROW

/* Iterates over window offsets: each selects rows of the images shifted by it; outside is zero. */
#define EACH_PLACE(...)                                                                                                             \
    for (long a = 0; a < k->h.kernel; a++)                                                                                          \
        for (long b = 0; b < k->w.kernel; b++) {                                                                                    \
            const long low = LOW(b), high = HIGH(b) > LOW(b) ? HIGH(b) : LOW(b), s = k->w.stride;                                   \
            for (long h = 0; h < k->h.out; h++, line += k->w.out) {                                                                 \
                const long v = h * k->h.stride - k->h.pad + a * k->h.apart;                                                         \
                const int inside = v >= 0 && v < k->h.size;                                                                         \
                T *p = image + (inside ? v : 0) * k->w.size - k->w.pad + b * k->w.apart;                                            \
                __VA_ARGS__                                                                                                         \
            }                                                                                                                       \
        }

static void NAME(columns)(void *ctx, long start, long stop, int who) {
    const Job *j = ctx;
    const Windows *k = j->k;
    const Ends ends = ends_of(&k->w);
    (void)who;
    for (long plane = start; plane < stop; plane++) {
        T *image = (T *)j->from + plane * j->in, *line = (T *)j->to + plane * j->out;
        EACH_PLACE(
            if (!inside || low > 0) memset(line, 0, (inside ? low < k->w.out ? low : k->w.out : k->w.out) * sizeof(T));
            if (!inside) continue;
            if (s == 1 && high > low) memcpy(line + low, p + low, (high - low) * sizeof(T));
            else for (long i = low; i < high; i++) line[i] = p[i * s];
            if (high < k->w.out) memset(line + high, 0, (k->w.out - high) * sizeof(T));
        )
    }
}

static void NAME(columns_back)(void *ctx, long start, long stop, int who) {
    const Job *j = ctx;
    const Windows *k = j->k;
    const Ends ends = ends_of(&k->w);
    (void)who;
    for (long plane = start; plane < stop; plane++) {
        const T *line = (const T *)j->from + plane * j->out;
        T *image = (T *)j->to + plane * j->in;
        memset(image, 0, j->in * sizeof(T));
        EACH_PLACE(
            if (!inside) continue;
            if (s == 1) for (long i = low; i < high; i++) p[i] += line[i];
            else for (long i = low; i < high; i++) p[i * s] += line[i];
        )
    }
}
#undef EACH_PLACE
