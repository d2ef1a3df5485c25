/* Layer, RMS, batch and group norm, scale and shift by channel, for float32; see reduce.c. */
#define V V_f32
#define W ((long)(BYTES / sizeof(float)))
#define LOAD(p) (*(const V *)(p))
#define STORE(p, v) (*(V *)(p) = (v))
#define STRETCH 4096

/* Rows of n elements. mean is null for RMS norm; w, b, gx, gw, gb may be null. */
typedef struct {
    const float *x, *g, *w, *b, *mean, *rstd;
    float *to, *means, *rstds, *gx, *gw, *gb;
    long rows, n, step;
    double eps;
} Normed;

/* the sum of (x - m)^2 */
ALWAYS double deviations(const float *x, long n, float m) {
    double r = 0;
    for (long b = 0; b < n; b += STRETCH) {
        const long e = n - b < STRETCH ? n : b + STRETCH;
        V s = {0}, s1 = {0};
        long i = b;
        for (; i + 2 * W <= e; i += 2 * W) {
            const V d = LOAD(x + i) - m, d1 = LOAD(x + i + W) - m;
            s += d * d, s1 += d1 * d1;
        }
        for (; i < e; i += W) {
            const V d = some(x + i, e - i, m) - m;
            s += d * d;
        }
        r += lanes_f32(s + s1, SUM);
    }
    return r;
}

static void normed(void *ctx, long start, long stop, int who) {
    const Normed *k = ctx;
    const long n = k->n;
    (void)who;
    for (long row = start; row < stop; row++) {
        const float *x = k->x + row * n;
        float *y = k->to + row * n;
        const float mean = k->means ? (float)(along_f32(x, n, SUM) / n) : 0;
        const float rstd = (float)(1 / sqrt((k->means ? deviations(x, n, mean) : along_f32(x, n, SQUARES)) / n + k->eps));
        if (k->means) k->means[row] = mean;
        k->rstds[row] = rstd;
        for (long i = 0; i < n; i += W) {
            V v = (some(x + i, n - i, 0) - mean) * rstd;
            if (k->w) v *= some(k->w + i, n - i, 0);
            if (k->b) v += some(k->b + i, n - i, 0);
            put(y + i, n - i, v);
        }
    }
}

/* piece p: the rows from p * step on */
static void normed_back(void *ctx, long start, long stop, int who) {
    const Normed *k = ctx;
    const long n = k->n;
    (void)who;
    for (long p = start; p < stop; p++) {
        float *gw = k->gw ? k->gw + p * n : 0, *gb = k->gb ? k->gb + p * n : 0;
        if (gw) memset(gw, 0, n * sizeof *gw);
        if (gb) memset(gb, 0, n * sizeof *gb);
        for (long row = p * k->step; row < k->rows && row < (p + 1) * k->step; row++) {
            const float *x = k->x + row * n, *g = k->g + row * n, mean = k->mean ? k->mean[row] : 0, rstd = k->rstd[row];
            double c1 = 0, c2 = 0;
            for (long b = 0; b < n; b += STRETCH) {
                const long e = n - b < STRETCH ? n : b + STRETCH;
                V s = {0}, t = {0};
                for (long i = b; i < e; i += W) {
                    const V v = some(g + i, e - i, 0), d = v * ((some(x + i, e - i, mean) - mean) * rstd);
                    if (gw) put(gw + i, e - i, some(gw + i, e - i, 0) + d);
                    if (gb) put(gb + i, e - i, some(gb + i, e - i, 0) + v);
                    if (k->w) {
                        const V w = some(k->w + i, e - i, 0);
                        s += v * w, t += d * w;
                    } else s += v, t += d;
                }
                c1 += lanes_f32(s, SUM), c2 += lanes_f32(t, SUM);
            }
            if (!k->gx) continue;
            const float first = k->mean ? (float)(c1 / n) : 0, second = (float)(c2 / n);
            float *to = k->gx + row * n;
            for (long i = 0; i < n; i += W) {
                V h = some(g + i, n - i, 0);
                if (k->w) h *= some(k->w + i, n - i, 0);
                put(to + i, n - i, (h - first - (some(x + i, n - i, 0) - mean) * rstd * second) * rstd);
            }
        }
    }
}

/* Computes per row of x: mean and 1 / standard deviation (RMS norm: mean is null, 1 / root mean
   square), and the normalized row times w plus b. */
int mt_norm(const struct array *x, const struct array *w, const struct array *b, const struct array *to, const struct array *mean, const struct array *rstd, double eps) {
    if (!plain(x) || (w && !plain(w)) || (b && !plain(b))) return 1;
    Normed k = {.x = (const float *)x->data, .w = w ? (const float *)w->data : 0, .b = b ? (const float *)b->data : 0, .to = (float *)to->data,
                .means = mean ? (float *)mean->data : 0, .rstds = (float *)rstd->data, .rows = rstd->dims[0], .eps = eps};
    long size = 1;
    for (int d = 0; d < x->nd; d++) size *= x->dims[d];
    k.n = size / k.rows;
    shared(k.rows, size, normed, &k);
    return 0;
}

/* Gradients of mt_norm: gx, and gw, gb of n elements (each may be null). */
int mt_norm_back(const struct array *g, const struct array *x, const struct array *w, const struct array *mean, const struct array *rstd, const struct array *gx,
                 const struct array *gw, const struct array *gb) {
    if (!plain(g) || !plain(x) || (w && !plain(w)) || (mean && !plain(mean)) || !plain(rstd)) return 1;
    Normed k = {.x = (const float *)x->data, .g = (const float *)g->data, .w = w ? (const float *)w->data : 0, .mean = mean ? (const float *)mean->data : 0,
                .rstd = (const float *)rstd->data, .gx = gx ? (float *)gx->data : 0, .rows = rstd->dims[0]};
    long size = 1;
    for (int d = 0; d < x->nd; d++) size *= x->dims[d];
    k.n = size / k.rows;
    /* (sums over rows: in float32 within a piece, which has few rows, then in double) */
    k.step = MANY / k.n < 1 ? 1 : MANY / k.n < 128 ? MANY / k.n : 128;
    const long pieces = (k.rows + k.step - 1) / k.step, n = k.n;
    float *room = gw || gb ? malloc(2 * pieces * n * sizeof *room) : 0;
    if ((gw || gb) && !room) return 1;
    if (gw) k.gw = room;
    if (gb) k.gb = room + pieces * n;
    shared(pieces, size, normed_back, &k);
    double sums[1024];
    for (int which = 0; which < 2; which++) {
        const struct array *to = which ? gb : gw;
        if (!to) continue;
        const float *from = which ? k.gb : k.gw;
        for (long j = 0; j < n; j += 1024) {
            const long width = n - j < 1024 ? n - j : 1024;
            across_f32(from + j, pieces, n, width, sums, SUM);
            for (long i = 0; i < width; i++) ((float *)to->data)[j + i] = (float)sums[i];
        }
    }
    free(room);
    return 0;
}

/* ------------------------------------------------------------------ channels */
typedef struct { const float *x, *y, *factor, *by, *shift; float *to; long channels, inner; } Channels;

static void channels(void *ctx, long start, long stop, int who) {
    const Channels *k = ctx;
    const long c = k->channels, hw = k->inner;
    (void)who;
    for (long s = start; s < stop; s++) {
        if (hw == 1) {              /* s: index of a sample */
            for (long j = 0; j < c; j += W) {
                V v = some(k->x + s * c + j, c - j, 0) * some(k->factor + j, c - j, 0);
                if (k->y) v += some(k->y + s * c + j, c - j, 0) * some(k->by + j, c - j, 0);
                if (k->shift) v += some(k->shift + j, c - j, 0);
                put(k->to + s * c + j, c - j, v);
            }
            continue;
        }
        /* s: index of a (sample, channel) pair */
        const float *x = k->x + s * hw, *y = k->y ? k->y + s * hw : 0, f = k->factor[s % c], b = y ? k->by[s % c] : 0;
        float *to = k->to + s * hw;
        if (y && k->shift) { const float t = k->shift[s % c]; for (long i = 0; i < hw; i += W) put(to + i, hw - i, some(x + i, hw - i, 0) * f + (some(y + i, hw - i, 0) * b + t)); }
        else if (k->shift) { const float t = k->shift[s % c]; for (long i = 0; i < hw; i += W) put(to + i, hw - i, some(x + i, hw - i, 0) * f + t); }
        else for (long i = 0; i < hw; i += W) put(to + i, hw - i, some(x + i, hw - i, 0) * f);
    }
}

/* x * factor[channel] + y * by[channel] + shift[channel] of (samples, channels, ...); y and by, or shift, may be null */
int mt_channels(const struct array *x, const struct array *factor, const struct array *shift, const struct array *y, const struct array *by, const struct array *to) {
    if (!plain(x) || !plain(factor) || (shift && !plain(shift)) || (y && (!plain(y) || !plain(by) || !shift))) return 1;
    Channels k = {(const float *)x->data, y ? (const float *)y->data : 0, (const float *)factor->data, y ? (const float *)by->data : 0,
                  shift ? (const float *)shift->data : 0, (float *)to->data, x->dims[1], 1};
    for (int d = 2; d < x->nd; d++) k.inner *= x->dims[d];
    const long rows = x->dims[0] * (k.inner == 1 ? 1 : k.channels);
    shared(rows, x->dims[0] * k.channels * k.inner, channels, &k);
    return 0;
}

#define FEW_CHANNELS 128
/* (x - mean[channel]) / sqrt(var[channel] + eps) * w[channel] + b[channel] as one multiplication
   and one addition; w, b may be null */
int mt_scaled(const struct array *x, const struct array *w, const struct array *b, const struct array *mean, const struct array *var, const struct array *to,
              double eps) {
    const struct array *all[4] = {mean, var, w, b};
    if (x->nd < 2 || !plain(x) || !plain(to)) return -1;
    const long c = x->dims[1];
    for (int i = 0; i < 4; i++)
        if (all[i] ? !plain(all[i]) || all[i]->nd != 1 || all[i]->dims[0] != c : i < 2) return -1;
    float few[2 * FEW_CHANNELS], *factor = c <= FEW_CHANNELS ? few : malloc(2 * sizeof(float) * c), *shift = factor + c;
    if (!factor) return -1;
    for (long i = 0; i < c; i++) {
        factor[i] = 1 / sqrtf(((const float *)var->data)[i] + (float)eps);
        if (w) factor[i] *= ((const float *)w->data)[i];
        shift[i] = -((const float *)mean->data)[i] * factor[i] + (b ? ((const float *)b->data)[i] : 0);
    }
    Channels k = {(const float *)x->data, 0, factor, 0, shift, (float *)to->data, c, 1};
    for (int d = 2; d < x->nd; d++) k.inner *= x->dims[d];
    shared(x->dims[0] * (k.inner == 1 ? 1 : c), x->dims[0] * c * k.inner, channels, &k);
    if (factor != few) free(factor);
    return 0;
}

/* ------------------------------------------------------------------ batch norm, group norm */
/* x (samples, channels, ...) as rows of hw elements. Each of `count` groups has a mean and a
   deviation: in batch norm a group is one channel of all samples, in group norm some channels of
   one sample. */
typedef struct {
    const float *x, *g, *w, *b, *mean, *rstd;
    float *to, *means, *vars, *rstds;
    double *plain, *dot;            /* per row the sums of g and of g (x - mean) rstd */
    long channels, hw, count, step;
    double eps;
} Grouped;

ALWAYS long row_of(const Grouped *k, long group, long i) { return k->step == 1 ? group * k->count + i : group + i * k->step; }

static void grouped(void *ctx, long start, long stop, int who) {
    const Grouped *k = ctx;
    const long hw = k->hw;
    const double all = (double)k->count * hw;
    (void)who;
    for (long group = start; group < stop; group++) {
        double s = 0;
        for (long i = 0; i < k->count; i++) s += along_f32(k->x + row_of(k, group, i) * hw, hw, SUM);
        const float mean = (float)(s / all);
        s = 0;
        for (long i = 0; i < k->count; i++) s += deviations(k->x + row_of(k, group, i) * hw, hw, mean);
        const float rstd = (float)(1 / sqrt(s / all + k->eps));
        k->means[group] = mean, k->rstds[group] = rstd;
        if (k->vars) k->vars[group] = (float)(s / all);
        for (long i = 0; i < k->count; i++) {
            const long row = row_of(k, group, i);
            const float *x = k->x + row * hw, f = k->w ? rstd * k->w[row % k->channels] : rstd, t = k->b ? k->b[row % k->channels] : 0;
            float *y = k->to + row * hw;
            for (long j = 0; j < hw; j += W) put(y + j, hw - j, (some(x + j, hw - j, 0) - mean) * f + t);
        }
    }
}

static void grouped_back(void *ctx, long start, long stop, int who) {
    const Grouped *k = ctx;
    const long hw = k->hw;
    const double all = (double)k->count * hw;
    (void)who;
    for (long group = start; group < stop; group++) {
        const float mean = k->mean[group], rstd = k->rstd[group];
        double first = 0, second = 0;
        for (long i = 0; i < k->count; i++) {
            const long row = row_of(k, group, i);
            const float *g = k->g + row * hw, *x = k->x + row * hw;
            double plain = 0, dot = 0;
            for (long b = 0; b < hw; b += STRETCH) {
                const long e = hw - b < STRETCH ? hw : b + STRETCH;
                V s = {0}, t = {0};
                for (long j = b; j < e; j += W) {
                    const V v = some(g + j, e - j, 0);
                    s += v, t += v * (some(x + j, e - j, mean) - mean);
                }
                plain += lanes_f32(s, SUM), dot += lanes_f32(t, SUM);
            }
            dot *= rstd;
            k->plain[row] = plain, k->dot[row] = dot;
            const double w = k->w ? k->w[row % k->channels] : 1;
            first += w * plain, second += w * dot;
        }
        if (!k->to) continue;
        const float less = (float)(first / all * rstd), slope = (float)(second / all * rstd * rstd);
        for (long i = 0; i < k->count; i++) {
            const long row = row_of(k, group, i);
            const float *g = k->g + row * hw, *x = k->x + row * hw, f = k->w ? rstd * k->w[row % k->channels] : rstd;
            float *to = k->to + row * hw;
            for (long j = 0; j < hw; j += W) put(to + j, hw - j, some(g + j, hw - j, 0) * f - less - (some(x + j, hw - j, 0) - mean) * slope);
        }
    }
}

static int describe(Grouped *k, const struct array *x, long groups, int batch, const struct array *w, const struct array *b) {
    if (x->nd < 2 || !plain(x) || (w && !plain(w)) || (b && !plain(b)) || groups < 1) return 1;
    k->channels = x->dims[1], k->hw = 1;
    for (int d = 2; d < x->nd; d++) k->hw *= x->dims[d];
    k->x = (const float *)x->data, k->w = w ? (const float *)w->data : 0, k->b = b ? (const float *)b->data : 0;
    k->count = batch ? x->dims[0] : x->dims[0] * k->channels / groups, k->step = batch ? k->channels : 1;
    return 0;
}

/* Normalizes x by group (batch: by channel), then multiplies by w and adds b per channel; also
   writes each group's mean, variance (unless null) and 1 / standard deviation. */
int mt_groups(const struct array *x, const struct array *w, const struct array *b, const struct array *to, const struct array *mean, const struct array *var,
              const struct array *rstd, int batch, double eps) {
    Grouped k = {.to = (float *)to->data, .means = (float *)mean->data, .vars = var ? (float *)var->data : 0, .rstds = (float *)rstd->data, .eps = eps};
    const long groups = mean->dims[0];
    if (describe(&k, x, groups, batch, w, b)) return 1;
    shared(groups, groups * k.count * k.hw, grouped, &k);
    return 0;
}

/* Gradients of mt_groups: of x (unless null), and of w, b per channel. */
int mt_groups_back(const struct array *g, const struct array *x, const struct array *w, const struct array *mean, const struct array *rstd,
                   const struct array *gx, const struct array *gw, const struct array *gb, int batch) {
    Grouped k = {.mean = (const float *)mean->data, .rstd = (const float *)rstd->data, .to = gx ? (float *)gx->data : 0};
    const long groups = mean->dims[0];
    if (describe(&k, x, groups, batch, w, 0) || !plain(g) || !plain(mean) || !plain(rstd)) return 1;
    const long rows = groups * k.count, channels = k.channels;
    k.g = (const float *)g->data;
    if (!(k.plain = malloc(2 * rows * sizeof *k.plain))) return 1;
    k.dot = k.plain + rows;
    shared(groups, rows * k.hw, grouped_back, &k);
    for (long row = channels; row < rows; row++) k.plain[row % channels] += k.plain[row], k.dot[row % channels] += k.dot[row];
    for (long c = 0; c < channels; c++) ((float *)gw->data)[c] = (float)k.dot[c], ((float *)gb->data)[c] = (float)k.plain[c];
    free(k.plain);
    return 0;
}
#undef V
#undef W
#undef LOAD
#undef STORE
#undef STRETCH
