/* Reductions of arrays of T over adjacent axes; see reduce.c. */
#define V NAME(V)
#define W ((long)(BYTES / sizeof(T)))
#define LOAD(p) (*(const V *)(p))
#define STORE(p, v) (*(V *)(p) = (v))

/* Rounding errors of a sum grow with the number of additions per lane: STRETCH / (4 W) in a row,
   BLOCK / 8 + 3 in a column; partial results are added in double. */
#define STRETCH (256 * W)
#define BLOCK 128
#define COLUMNS 1024        /* columns processed at once */
#define SHORT 8             /* for rows shorter than this, W rows are processed together */
#define PIECE 65536         /* minimum number of elements per thread */

typedef struct { const T *from; T *to; double *part; long outer, n, inner, step, pieces, strips; int what; double over; } NAME(Reduce);

ALWAYS double NAME(first)(const int what) {
    return what == PRODUCT ? 1 : what == LARGEST ? -INFINITY : what == LEAST ? INFINITY : 0;
}
ALWAYS V NAME(all)(double x) { return (V){0} + (T)x; }

/* Maps an element to its term of the sum. */
ALWAYS V NAME(term)(V x, const int what) {
    if (what == SQUARES) return x * x;
    if (what == SIZES) return NAME(larger)(x, -x);
    return x;
}
ALWAYS V NAME(met)(V x, V y, const int what) {
    if (what == PRODUCT) return x * y;
    if (what == LARGEST) return NAME(larger)(x, y);
    if (what == LEAST) return NAME(smaller)(x, y);
    return x + y;
}
ALWAYS double NAME(joined)(double x, double y, const int what) {
    if (what == PRODUCT) return x * y;
    if (what == LARGEST) return x > y || x != x ? x : y;
    if (what == LEAST) return x < y || x != x ? x : y;
    return x + y;
}
ALWAYS double NAME(one)(T x, const int what) { return what == SQUARES ? (double)(T)(x * x) : what == SIZES ? fabs((double)x) : (double)x; }

/* per lane: x where it is larger (LARGEST) or not larger (LEAST), else y */
#define FIRST_OF(V, x, y) ({ const __typeof__((x) > (y)) m = what == LARGEST ? (x) > (y) : ~((x) > (y));                              \
    (V)(((__typeof__(m))(x) & m) | ((__typeof__(m))(y) & ~m)); })

/* Reduces the lanes of a vector, none of them nan for extremes; a product of lanes may exceed T's
   range. */
ALWAYS double NAME(lanes)(V v, const int what) {
    typedef T half __attribute__((vector_size(BYTES / 2), aligned(sizeof(T)), may_alias));
    typedef T quarter __attribute__((vector_size(BYTES / 4), aligned(sizeof(T)), may_alias));
    const half h0 = ((half *)&v)[0], h1 = ((half *)&v)[1];
    if (what == PRODUCT) {
        typedef double wide __attribute__((vector_size(BYTES / 2 / sizeof(T) * 8)));
        const wide s = __builtin_convertvector(h0, wide) * __builtin_convertvector(h1, wide);
        double r[W / 2];
        _Pragma("GCC unroll 8") for (int i = 0; i < W / 2; i++) r[i] = s[i];
        _Pragma("GCC unroll 4") for (int k = W / 4; k; k /= 2)
            _Pragma("GCC unroll 8") for (int i = 0; i < k; i++) r[i] *= r[i + k];
        return r[0];
    }
    half h = h0 + h1;
    if (what >= LARGEST) h = FIRST_OF(half, h0, h1);
    const quarter q0 = ((quarter *)&h)[0], q1 = ((quarter *)&h)[1];
    quarter q = q0 + q1;
    if (what >= LARGEST) q = FIRST_OF(quarter, q0, q1);
    double r = q[0];
    if (what < LARGEST) return W == 16 ? (double)((q[0] + q[2 % (W / 4)]) + (q[1 % (W / 4)] + q[W / 4 - 1])) : W == 8 ? (double)(q[0] + q[W / 4 - 1]) : (double)q[0];
    for (int i = 1; i < W / 4; i++) r = NAME(joined)(r, q[i], what);
    return r;
}

ALWAYS double NAME(along)(const T *x, long n, const int what) {
    const V none = NAME(all)(NAME(first)(what));
    double r = NAME(first)(what);
    NAME(Bad) bad = {0};
    for (long b = 0; b < n; b += STRETCH) {
        const long e = n - b < STRETCH ? n : b + STRETCH;
        long i = b;
        V s = none;
        if (e - b >= 4 * W) {
            V s1 = s, s2 = s, s3 = s;
            for (; i + 4 * W <= e; i += 4 * W) {
                const V x0 = LOAD(x + i), x1 = LOAD(x + i + W), x2 = LOAD(x + i + 2 * W), x3 = LOAD(x + i + 3 * W);
                if (what >= LARGEST) bad |= NAME(unordered)(x0, x1) | NAME(unordered)(x2, x3);
                s = NAME(met)(NAME(term)(x0, what), s, what);
                s1 = NAME(met)(NAME(term)(x1, what), s1, what);
                s2 = NAME(met)(NAME(term)(x2, what), s2, what);
                s3 = NAME(met)(NAME(term)(x3, what), s3, what);
            }
            s = NAME(met)(NAME(met)(s, s1, what), NAME(met)(s2, s3, what), what);
        }
        for (; i < e; i += W) {
            const V y = i + W <= e ? LOAD(x + i) : NAME(some_of)(x + i, e - i, none);
            if (what >= LARGEST) bad |= NAME(unordered)(y, y);
            s = NAME(met)(NAME(term)(y, what), s, what);
        }
        r = NAME(joined)(r, NAME(lanes)(s, what), what);
    }
    return what >= LARGEST && NAME(some)(bad) ? NAN : r;
}

/* r[W]: reductions of W rows of few elements. */
ALWAYS void NAME(short_rows)(const T *x, long n, double *restrict r, const int what) {
    _Pragma("GCC unroll 16") for (long j = 0; j < W; j++) r[j] = NAME(one)(x[j * n], what);
    for (long i = 1; i < n; i++)
        _Pragma("GCC unroll 16") for (long j = 0; j < W; j++) r[j] = NAME(joined)(r[j], NAME(one)(x[j * n + i], what), what);
}

/* r[width]: reductions over n rows that are `pitch` elements apart; width at most COLUMNS. */
ALWAYS void NAME(across)(const T *x, long n, long pitch, long width, double *restrict r, const int what) {
    const long whole = width / W * W;
    T s[COLUMNS];
    NAME(Bad) bad = {0};
    for (long j = 0; j < width; j++) r[j] = NAME(first)(what);
    for (long b = 0; b < n; b += BLOCK) {
        const long e = n - b < BLOCK ? n : b + BLOCK;
        for (long j = 0; j < width; j++) s[j] = (T)NAME(first)(what);
        long i = b;
        for (; i + 8 <= e; i += 8) {
            const T *p = x + i * pitch;
            for (long j = 0; j < whole; j += W) {
                V y[8];
                _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) y[k] = LOAD(p + k * pitch + j);
                if (what >= LARGEST)
                    bad |= NAME(unordered)(y[0], y[1]) | NAME(unordered)(y[2], y[3]) | NAME(unordered)(y[4], y[5]) | NAME(unordered)(y[6], y[7]);
                _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) y[k] = NAME(term)(y[k], what);
                const V left = NAME(met)(NAME(met)(y[0], y[1], what), NAME(met)(y[2], y[3], what), what);
                const V right = NAME(met)(NAME(met)(y[4], y[5], what), NAME(met)(y[6], y[7], what), what);
                STORE(s + j, NAME(met)(NAME(met)(left, right, what), LOAD(s + j), what));
            }
            for (long j = whole; j < width; j++) {
                double t = s[j];
                for (int k = 0; k < 8; k++) t = NAME(joined)(t, NAME(one)(p[k * pitch + j], what), what);
                s[j] = (T)t;
            }
        }
        for (; i < e; i++) {
            const T *p = x + i * pitch;
            for (long j = 0; j < whole; j += W) {
                const V y = LOAD(p + j);
                if (what >= LARGEST) bad |= NAME(unordered)(y, y);
                STORE(s + j, NAME(met)(NAME(term)(y, what), LOAD(s + j), what));
            }
            for (long j = whole; j < width; j++) s[j] = (T)NAME(joined)(s[j], NAME(one)(p[j], what), what);
        }
        for (long j = 0; j < width; j++) r[j] = NAME(joined)(r[j], s[j], what);
    }
    if (what >= LARGEST && NAME(some)(bad))
        for (long i = 0; i < n; i++)
            for (long j = 0; j < whole; j++)
                if (x[i * pitch + j] != x[i * pitch + j]) r[j] = NAN;
}

/* Like `across`, for adjacent rows so short that several are combined into one long row. */
ALWAYS void NAME(narrow)(const T *x, long n, long inner, double *restrict r, const int what) {
    const long group = 8 * W / inner;
    double wide[8 * W];
    for (long j = 0; j < inner; j++) r[j] = NAME(first)(what);
    long i = 0;
    if (n >= 8 * group) {
        NAME(across)(x, n / group, group * inner, group * inner, wide, what);
        for (; i < group; i++)
            for (long j = 0; j < inner; j++) r[j] = NAME(joined)(r[j], wide[i * inner + j], what);
        i = n / group * group;
    }
    for (; i < n; i++)
        for (long j = 0; j < inner; j++) r[j] = NAME(joined)(r[j], NAME(one)(x[i * inner + j], what), what);
}

ALWAYS void NAME(finish)(const NAME(Reduce) *k, T *to, const double *r, long n) {
    if (k->what == NORM) for (long j = 0; j < n; j++) to[j] = (T)sqrt(r[j]);
    else if (k->over != 1) for (long j = 0; j < n; j++) to[j] = (T)(r[j] / k->over);
    else for (long j = 0; j < n; j++) to[j] = (T)r[j];
}

ALWAYS void NAME(reduced)(const NAME(Reduce) *k, long start, long stop, const int what) {
    const long n = k->n, inner = k->inner;
    double room[COLUMNS];
    long t = start;
    if (inner == 1 && k->pieces == 1) {
        /* (in the order of the elements, whichever rows are processed together) */
        if (n && n < SHORT) {
            for (; t + W <= stop; t += W) {
                NAME(short_rows)(k->from + t * n, n, room, what);
                NAME(finish)(k, k->to + t, room, W);
            }
            for (; t < stop; t++) {
                const T *x = k->from + t * n;
                double r = NAME(one)(x[0], what);
                for (long i = 1; i < n; i++) r = NAME(joined)(r, NAME(one)(x[i], what), what);
                NAME(finish)(k, k->to + t, &r, 1);
            }
            return;
        }
        for (; t < stop; t++) {
            const double r = NAME(along)(k->from + t * n, n, what);
            NAME(finish)(k, k->to + t, &r, 1);
        }
        return;
    }
    for (; t < stop; t++) {
        const long strip = t % k->strips * COLUMNS, p = t / k->strips % k->pieces, o = t / k->strips / k->pieces;
        const long first = p * k->step, count = n - first < k->step ? n - first : k->step, width = inner - strip < COLUMNS ? inner - strip : COLUMNS;
        const T *x = k->from + (o * n + first) * inner + strip;
        double *r = k->pieces > 1 ? k->part + (o * k->pieces + p) * inner + strip : room;
        if (inner == 1) *r = NAME(along)(x, count, what);
        else if (inner < 4 * W) NAME(narrow)(x, count, inner, r, what);
        else NAME(across)(x, count, inner, width, r, what);
        if (k->pieces == 1) NAME(finish)(k, k->to + o * inner + strip, r, width);
    }
}

static void NAME(reduce)(void *ctx, long start, long stop, int who) {
    const NAME(Reduce) *k = ctx;
    (void)who;
    switch (k->what) {
        case SUM: NAME(reduced)(k, start, stop, SUM); break;
        case SQUARES: case NORM: NAME(reduced)(k, start, stop, SQUARES); break;
        case SIZES: NAME(reduced)(k, start, stop, SIZES); break;
        case PRODUCT: NAME(reduced)(k, start, stop, PRODUCT); break;
        case LARGEST: NAME(reduced)(k, start, stop, LARGEST); break;
        default: NAME(reduced)(k, start, stop, LEAST);
    }
}

/* Reduces axes low..high-1 of a into `to` and divides by `over`. Returns 1 if a is not
   C-contiguous, or if out of memory. */
int NAME(mt_reduce)(const struct array *a, const struct array *to, int low, int high, int what, double over) {
    if (!plain(a) || !plain(to)) return 1;
    NAME(Reduce) k = {(const T *)a->data, (T *)to->data, 0, 1, 1, 1, 0, 1, 1, what, over};
    for (int d = 0; d < low; d++) k.outer *= a->dims[d];
    for (int d = low; d < high; d++) k.n *= a->dims[d];
    for (int d = high; d < a->nd; d++) k.inner *= a->dims[d];
    if (!k.outer || !k.inner) return 0;
    const long columns = k.inner < COLUMNS ? k.inner : COLUMNS;
    k.strips = (k.inner + COLUMNS - 1) / COLUMNS;
    k.step = (PIECE / columns + BLOCK - 1) / BLOCK * BLOCK;
    k.pieces = k.n > k.step ? (k.n + k.step - 1) / k.step : 1;
    if (k.pieces > 1 && !(k.part = malloc(k.outer * k.pieces * k.inner * sizeof *k.part))) return 1;
    shared(k.outer * k.pieces * k.strips, k.outer * k.n * k.inner, NAME(reduce), &k);
    if (k.pieces > 1) {
        for (long o = 0; o < k.outer; o++) {
            double *r = k.part + o * k.pieces * k.inner;
            for (long p = 1; p < k.pieces; p++)
                for (long j = 0; j < k.inner; j++) {
                    const double x = r[p * k.inner + j];
                    r[j] = what == PRODUCT ? r[j] * x : what < PRODUCT || what == NORM ? r[j] + x : NAME(joined)(r[j], x, what);
                }
            NAME(finish)(&k, k.to + o * k.inner, r, k.inner);
        }
        free(k.part);
    }
    return 0;
}
#undef V
#undef W
#undef LOAD
#undef STORE
#undef STRETCH
#undef BLOCK
#undef COLUMNS
#undef PIECE
#undef SHORT
