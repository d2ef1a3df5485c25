/* Softmax, its gradient and cross entropy, for float32; see reduce.c. */
#define V V_f32
#define W ((long)(BYTES / sizeof(float)))
#define LOAD(p) (*(const V *)(p))
#define STORE(p, v) (*(V *)(p) = (v))
#define STRETCH 4096        /* elements that are summed in float32 */
#define STRIP 128           /* columns processed at once */
ALWAYS V same(float x) { return (V){0} + x; }

/* e^x to 1.5 ulp, with denormal results, 0 and inf where they are due; nan is preserved */
ALWAYS V power(V x) {
    x = smaller_f32(same(100.0f), larger_f32(same(-104.0f), x));
    V n = x * 1.44269504f + 12582912.0f;        /* rounds to the nearest integer */
    n -= 12582912.0f;
    V r = x - n * 0.693145751953125f;
    r = r - n * 1.42860682030941723212e-6f;
    V p = same(1.989939246e-04f) * r + 1.393373322e-03f;
    p = p * r + 8.333298341e-03f;
    p = p * r + 4.166646417e-02f;
    p = p * r + 1.666666672e-01f;
    p = p * r + 5.000000014e-01f;
    p = p * (r * r) + r + 1.0f;
#ifdef __AVX512F__
    return (V)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    const M_f32 e = __builtin_convertvector(n, M_f32), half = e >> 1;
    return p * (V)((half + 127) << 23) * (V)((e - half + 127) << 23);
#endif
}
ALWAYS V some(const float *p, long n, float rest) { return n >= W ? LOAD(p) : some_of_f32(p, n, same(rest)); }
ALWAYS void put(float *p, long n, V v) {
    if (n >= W) STORE(p, v);
#ifdef __AVX512F__
    else _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
#elif defined(__AVX2__)
    else _mm256_maskstore_ps(p, upto_f32(n), (__m256)v);
#else
    else memcpy(p, &v, n * sizeof *p);
#endif
}
ALWAYS float total(V v) { return (float)lanes_f32(v, SUM); }

enum { SOFT, LOG_SOFT, SOFT_BACK, LOG_SOFT_BACK, LOG_SUM, CROSS, CROSS_BACK };
typedef struct { const float *x, *y; const i64 *at; const float *factor, *less; float *to, *sum, *loss; long n, inner; int what; } Soft;

/* Maximum of a row, ignoring nan; -inf if there is none. */
ALWAYS float top(const float *x, long n) {
    V m = same(-INFINITY), m1 = m;
    long i = 0;
    for (; i + 2 * W <= n; i += 2 * W) m = larger_f32(LOAD(x + i), m), m1 = larger_f32(LOAD(x + i + W), m1);
    for (; i < n; i += W) m = larger_f32(some(x + i, n - i, -INFINITY), m);
    return (float)lanes_f32(larger_f32(m, m1), LARGEST);
}

/* Stores e^(x - m) of a row to `to` and returns the sum. */
ALWAYS double powers(const float *x, long n, float m, float *to) {
    double r = 0;
    for (long b = 0; b < n; b += STRETCH) {
        const long e = n - b < STRETCH ? n : b + STRETCH;
        V s = {0}, s1 = {0};
        long i = b;
        for (; i + 2 * W <= e; i += 2 * W) {
            const V p = power(LOAD(x + i) - m), q = power(LOAD(x + i + W) - m);
            s += p, s1 += q;
            if (to) STORE(to + i, p), STORE(to + i + W, q);
        }
        for (; i < e; i += W) {
            const V p = power(some(x + i, e - i, -INFINITY) - m);
            /* (-inf - -inf is nan) */
            s += e - i < W ? some_of_f32((const float *)&p, e - i, same(0)) : p;
            if (to) put(to + i, e - i, p);
        }
        r += lanes_f32(s + s1, SUM);
    }
    return r;
}
ALWAYS double products(const float *x, const float *y, long n) {
    double r = 0;
    for (long b = 0; b < n; b += STRETCH) {
        const long e = n - b < STRETCH ? n : b + STRETCH;
        V s = {0}, s1 = {0};
        long i = b;
        for (; i + 2 * W <= e; i += 2 * W) s += LOAD(x + i) * LOAD(y + i), s1 += LOAD(x + i + W) * LOAD(y + i + W);
        for (; i < e; i += W) s += some(x + i, e - i, 0) * some(y + i, e - i, 0);
        r += lanes_f32(s + s1, SUM);
    }
    return r;
}

static void soft_rows(void *ctx, long start, long stop, int who) {
    const Soft *k = ctx;
    const long n = k->n;
    (void)who;
    for (long row = start; row < stop; row++) {
        const float *x = k->x + row * n, *y = k->y ? k->y + row * n : 0;
        float *to = k->to ? k->to + row * n : 0;
        switch (k->what) {
            case SOFT: {
                const float by = (float)(1 / powers(x, n, top(x, n), to));
                for (long i = 0; i < n; i += W) put(to + i, n - i, some(to + i, n - i, 0) * by);
                break;
            }
            case LOG_SOFT: {
                const float m = top(x, n), less = logf((float)powers(x, n, m, 0));
                for (long i = 0; i < n; i += W) put(to + i, n - i, some(x + i, n - i, 0) - m - less);
                break;
            }
            case SOFT_BACK: {           /* (g - sum(g y)) y */
                const float s = (float)products(x, y, n);
                for (long i = 0; i < n; i += W) put(to + i, n - i, (some(x + i, n - i, 0) - s) * some(y + i, n - i, 0));
                break;
            }
            case LOG_SOFT_BACK: {       /* g - e^y sum(g) */
                const float s = (float)along_f32(x, n, SUM);
                for (long i = 0; i < n; i += W) put(to + i, n - i, some(x + i, n - i, 0) - power(some(y + i, n - i, 0)) * s);
                break;
            }
            case LOG_SUM: {
                float m = top(x, n);
                if (!isfinite(m)) m = 0;
                k->sum[row] = logf((float)powers(x, n, m, 0)) + m;
                break;
            }
            case CROSS: {
                const float m = top(x, n), s = (float)powers(x, n, m, to);
                k->sum[row] = s;
                k->loss[row] = logf(s) - (x[k->at[row]] - m);
                break;
            }
            default: {
                const float by = k->factor[row];
                for (long i = 0; i < n; i += W) put(to + i, n - i, some(x + i, n - i, 0) * by);
                to[k->at[row]] -= k->less[row];
            }
        }
    }
}

/* processes STRIP columns at once */
static void soft_columns(void *ctx, long start, long stop, int who) {
    const Soft *k = ctx;
    const long n = k->n, inner = k->inner, strips = (inner + STRIP - 1) / STRIP;
    (void)who;
    for (long t = start; t < stop; t++) {
        const long at = t / strips * n * inner + t % strips * STRIP, width = inner - t % strips * STRIP < STRIP ? inner - t % strips * STRIP : STRIP;
        const float *x = k->x + at, *y = k->y ? k->y + at : 0;
        float *to = k->to + at, m[STRIP], s[STRIP];
        for (long j = 0; j < STRIP; j++) m[j] = -INFINITY, s[j] = 0;
        if (k->what <= LOG_SOFT)
            for (long i = 0; i < n; i++)
                for (long j = 0; j < width; j += W) STORE(m + j, larger_f32(some(x + i * inner + j, width - j, 0), LOAD(m + j)));
        double wide[STRIP] = {0};
        for (long b = 0; b < n; b += 64) {
            for (long j = 0; j < STRIP; j += W) STORE(s + j, same(0));
            for (long i = b; i < n && i < b + 64; i++)
                for (long j = 0; j < width; j += W) {
                    const V v = some(x + i * inner + j, width - j, 0);
                    V p = v;
                    if (k->what <= LOG_SOFT) p = power(v - LOAD(m + j));
                    else if (k->what == SOFT_BACK) p = v * some(y + i * inner + j, width - j, 0);
                    if (k->what == SOFT) put(to + i * inner + j, width - j, p);
                    STORE(s + j, LOAD(s + j) + p);
                }
            for (long j = 0; j < width; j++) wide[j] += s[j];
        }
        for (long j = 0; j < width; j++) s[j] = k->what == SOFT ? (float)(1 / wide[j]) : k->what == LOG_SOFT ? logf((float)wide[j]) : (float)wide[j];
        for (long i = 0; i < n; i++)
            for (long j = 0; j < width; j += W) {
                const long e = i * inner + j;
                const V v = some(x + e, width - j, 0), l = LOAD(s + j);
                V r;
                if (k->what == SOFT) r = some(to + e, width - j, 0) * l;
                else if (k->what == LOG_SOFT) r = v - LOAD(m + j) - l;
                else if (k->what == SOFT_BACK) r = (v - l) * some(y + e, width - j, 0);
                else r = v - power(some(y + e, width - j, 0)) * l;
                put(to + e, width - j, r);
            }
    }
}

/* Applies `what` to x (a gradient, with the result y) along an axis, into `to`. Returns 1 if one of
   them is not C-contiguous. */
int mt_soft(const struct array *x, const struct array *y, const struct array *to, int axis, int what) {
    if (!plain(x) || !plain(y) || !plain(to)) return 1;
    long outer = 1, inner = 1;
    for (int d = 0; d < axis; d++) outer *= x->dims[d];
    for (int d = axis + 1; d < x->nd; d++) inner *= x->dims[d];
    Soft k = {.x = (const float *)x->data, .y = (const float *)y->data, .to = (float *)to->data, .n = x->dims[axis], .inner = inner, .what = what};
    if (what == LOG_SUM) k.sum = k.to, k.to = 0;
    if (inner == 1) shared(outer, outer * k.n, soft_rows, &k);
    else shared(outer * ((inner + STRIP - 1) / STRIP), outer * k.n * inner, soft_columns, &k);
    return 0;
}

/* For rows of x with maxima m: e^(x - m) into `to`, its sums into `sum`, log(sum) - (x[at] - m)
   into `loss`. Returns 1 if an array is not C-contiguous, 2 if an index is out of bounds. */
int mt_cross(const struct array *x, const struct array *at, const struct array *to, const struct array *sum, const struct array *loss) {
    if (!plain(x) || !plain(at) || !plain(to) || !plain(sum) || !plain(loss)) return 1;
    Soft k = {.x = (const float *)x->data, .at = (const i64 *)at->data, .to = (float *)to->data, .sum = (float *)sum->data, .loss = (float *)loss->data,
              .n = x->dims[1], .what = CROSS};
    for (long i = 0; i < x->dims[0]; i++)
        if ((unsigned long)k.at[i] >= (unsigned long)k.n) return 2;
    shared(x->dims[0], x->dims[0] * k.n, soft_rows, &k);
    return 0;
}

/* Writes rows of e * factor[row] to `to` and subtracts less[row] at at[row]; returns like
   mt_cross. */
int mt_cross_back(const struct array *e, const struct array *at, const struct array *factor, const struct array *less, const struct array *to) {
    if (!plain(e) || !plain(at) || !plain(factor) || !plain(less) || !plain(to)) return 1;
    Soft k = {.x = (const float *)e->data, .at = (const i64 *)at->data, .factor = (const float *)factor->data, .less = (const float *)less->data,
              .to = (float *)to->data, .n = e->dims[1], .what = CROSS_BACK};
    for (long i = 0; i < e->dims[0]; i++)
        if ((unsigned long)k.at[i] >= (unsigned long)k.n) return 2;
    shared(e->dims[0], e->dims[0] * k.n, soft_rows, &k);
    return 0;
}
#undef V
#undef W
#undef LOAD
#undef STORE
#undef STRETCH
#undef STRIP
