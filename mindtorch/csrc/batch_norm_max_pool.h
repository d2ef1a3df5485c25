/* ------------------------------------------------------------------ fused batch norm */
typedef struct {
    const float *x, *w, *b, *res, *y, *g;
    float *out, *mean, *rstd, *rm, *rv, *gx, *gw, *gb, *gres;
    long n, c, hw;
    float eps, momentum, slope;
    int act, needx;
} Norm;

static void norm_channels(void *ctx, long start, long stop, int who) {
    Norm *k = ctx;
    long hw = k->hw, pitch = k->c * hw;
    double count = (double)k->n * hw;
    (void)who;
    for (long c = start; c < stop; c++) {
        double s = 0, q = 0;
        for (long n = 0; n < k->n; n++) {
            const float *x = k->x + n * pitch + c * hw;
            float t = 0;
            SUM(t) for (long i = 0; i < hw; i++) t += x[i];
            s += t;
        }
        float mean = (float)(s / count);
        for (long n = 0; n < k->n; n++) {
            const float *x = k->x + n * pitch + c * hw;
            float t = 0;
            SUM(t) for (long i = 0; i < hw; i++) { float d = x[i] - mean; t += d * d; }
            q += t;
        }
        float var = (float)(q / count), rstd = 1 / sqrtf(var + k->eps);
        k->mean[c] = mean;
        k->rstd[c] = rstd;
        if (k->rm) {
            k->rm[c] = k->rm[c] * (1 - k->momentum) + mean * k->momentum;
            k->rv[c] = k->rv[c] * (1 - k->momentum) + var * (float)(count / (count - 1)) * k->momentum;
        }
        float a = k->w ? rstd * k->w[c] : rstd, b = (k->b ? k->b[c] : 0) - mean * a;
        for (long n = 0; n < k->n; n++) {
            const float *x = k->x + n * pitch + c * hw, *r = k->res ? k->res + n * pitch + c * hw : 0;
            float *y = k->out + n * pitch + c * hw;
            float slope = k->slope;
            if (k->act == 1 && r) for (long i = 0; i < hw; i++) { float v = x[i] * a + b + r[i]; y[i] = v <= 0 ? 0 : v; }
            else if (k->act == 1) for (long i = 0; i < hw; i++) { float v = x[i] * a + b; y[i] = v <= 0 ? 0 : v; }
            else if (k->act) for (long i = 0; i < hw; i++) { float v = x[i] * a + b; y[i] = v > 0 ? v : v * slope; }
            else if (r) for (long i = 0; i < hw; i++) y[i] = x[i] * a + b + r[i];
            else for (long i = 0; i < hw; i++) y[i] = x[i] * a + b;
        }
    }
}

/* act: 0 none, 1 relu (after adding res), 2 leaky relu */
void mt_batch_norm(const float *x, const float *w, const float *b, const float *res, float *out, float *mean, float *rstd, float *rm,
                   float *rv, long n, long c, long hw, float eps, float momentum, int act, float slope) {
    Norm k = {.x = x, .w = w, .b = b, .res = res, .out = out, .mean = mean, .rstd = rstd, .rm = rm, .rv = rv, .n = n, .c = c,
              .hw = hw, .eps = eps, .momentum = momentum, .act = act, .slope = slope};
    if (n * c * hw < 16384) norm_channels(&k, 0, c, 0);
    else share(c, norm_channels, &k);
}

static void norm_grad_channels(void *ctx, long start, long stop, int who) {
    Norm *k = ctx;
    long hw = k->hw, pitch = k->c * hw;
    float count = (float)(k->n * hw);
    (void)who;
    for (long c = start; c < stop; c++) {
        double s = 0, q = 0;
        float mean = k->mean[c], rstd = k->rstd[c], slope = k->slope;
        for (long n = 0; n < k->n; n++) {
            long at = n * pitch + c * hw;
            const float *x = k->x + at, *g = k->g + at, *y = k->y + at;
            float t = 0, u = 0;
            if (k->act == 1) SUM(t, u) for (long i = 0; i < hw; i++) { float d = y[i] <= 0 ? 0 : g[i]; t += d; u += d * (x[i] - mean); }
            else if (k->act) SUM(t, u) for (long i = 0; i < hw; i++) { float d = y[i] > 0 ? g[i] : g[i] * slope; t += d; u += d * (x[i] - mean); }
            else SUM(t, u) for (long i = 0; i < hw; i++) { t += g[i]; u += g[i] * (x[i] - mean); }
            s += t;
            q += u;
        }
        float sum = (float)s, dot = (float)q;
        if (k->gb) k->gb[c] = sum;
        if (k->gw) k->gw[c] = dot * rstd;
        float a = (k->w ? k->w[c] : 1) * rstd, m = sum / count, d = dot * rstd * rstd / count;
        for (long n = 0; n < k->n; n++) {
            long at = n * pitch + c * hw;
            const float *x = k->x + at, *g = k->g + at, *y = k->y + at;
            float *o = k->gx + at, *r = k->gres ? k->gres + at : 0;
            if (k->act == 1 && r)
                for (long i = 0; i < hw; i++) {
                    float e = y[i] <= 0 ? 0 : g[i];
                    r[i] = e;
                    o[i] = (e - m - (x[i] - mean) * d) * a;
                }
            else if (k->act == 1)
                for (long i = 0; i < hw; i++) { float e = y[i] <= 0 ? 0 : g[i]; o[i] = (e - m - (x[i] - mean) * d) * a; }
            else if (k->act)
                for (long i = 0; i < hw; i++) { float e = y[i] > 0 ? g[i] : g[i] * slope; o[i] = (e - m - (x[i] - mean) * d) * a; }
            else for (long i = 0; i < hw; i++) o[i] = (g[i] - m - (x[i] - mean) * d) * a;
        }
    }
}

void mt_batch_norm_grad(const float *g, const float *x, const float *y, const float *w, float *mean, float *rstd, float *gx, float *gw,
                        float *gb, float *gres, long n, long c, long hw, int act, float slope) {
    Norm k = {.g = g, .x = x, .y = y, .w = w, .mean = mean, .rstd = rstd, .gx = gx, .gw = gw, .gb = gb, .gres = gres, .n = n, .c = c,
              .hw = hw, .act = act, .slope = slope};
    if (n * c * hw < 16384) norm_grad_channels(&k, 0, c, 0);
    else share(c, norm_grad_channels, &k);
}

/* ------------------------------------------------------------------ max pooling (after relu) */
typedef struct {
    const float *x, *g;
    float *y, *gx;
    int *at;
    int h, w, oh, ow, kh, kw, sh, sw, ph, pw, relu;
} Pool;

#define POOL_ROW(S)                                                                                                      \
    for (int j = low; j < high; j++) {                                                                                   \
        float v = r[j * S + off];                                                                                        \
        int take = (v > y[j]) | (v != v) | (at[j] == -2);                                                                \
        at[j] = take ? base + j * S : at[j];                                                                             \
        y[j] = take ? v : y[j];                                                                                          \
    }

static void pool_planes(void *ctx, long start, long stop, int who) {
    Pool *k = ctx;
    (void)who;
    for (long p = start; p < stop; p++) {
        const float *x = k->x + p * k->h * k->w;
        for (int i = 0; i < k->oh; i++) {
            float *restrict y = k->y + (p * k->oh + i) * k->ow;
            int *restrict at = k->at + (p * k->oh + i) * k->ow;
            int begun = 0;
            for (int a = 0; a < k->kh; a++) {
                int row = i * k->sh - k->ph + a;
                if (row < 0 || row >= k->h) continue;
                const float *r = x + (long)row * k->w;
                for (int b = 0; b < k->kw; b++) {
                    int off = b - k->pw, low = 0, high = k->ow;
                    while (low < high && low * k->sw + off < 0) low++;
                    while (high > low && (high - 1) * k->sw + off >= k->w) high--;
                    /* the first element of a window is its maximum until a larger one is found */
                    if (!begun) {
                        for (int j = 0; j < k->ow; j++) y[j] = -INFINITY, at[j] = -2;
                        begun = 1;
                    }
                    int base = row * k->w + off;
                    if (k->sw == 2) POOL_ROW(2) else if (k->sw == 1) POOL_ROW(1) else POOL_ROW(k->sw)
                }
            }
            if (k->relu)
                for (int j = 0; j < k->ow; j++) {
                    at[j] = y[j] <= 0 ? -1 : at[j];
                    y[j] = y[j] <= 0 ? 0 : y[j];
                }
        }
    }
}

/* at: index of each maximum in its plane, -1 where relu clipped it */
void mt_max_pool(const float *x, float *y, int *at, long planes, const int *geo, int relu) {
    Pool k = {.x = x, .y = y, .at = at, .h = geo[0], .w = geo[1], .oh = geo[2], .ow = geo[3], .kh = geo[4], .kw = geo[5], .sh = geo[6],
              .sw = geo[7], .ph = geo[8], .pw = geo[9], .relu = relu};
    if (planes * k.h * k.w < 16384) pool_planes(&k, 0, planes, 0);
    else share(planes, pool_planes, &k);
}

static void pool_grad_planes(void *ctx, long start, long stop, int who) {
    Pool *k = ctx;
    (void)who;
    for (long p = start; p < stop; p++) {
        float *gx = k->gx + p * k->h * k->w;
        const float *g = k->g + p * k->oh * k->ow;
        const int *at = k->at + p * k->oh * k->ow;
        memset(gx, 0, sizeof(float) * k->h * k->w);
        for (int i = 0; i < k->oh * k->ow; i++) if (at[i] >= 0) gx[at[i]] += g[i];
    }
}

void mt_max_pool_grad(const float *g, int *at, float *gx, long planes, const int *geo) {
    Pool k = {.g = g, .at = at, .gx = gx, .h = geo[0], .w = geo[1], .oh = geo[2], .ow = geo[3]};
    if (planes * k.h * k.w < 16384) pool_grad_planes(&k, 0, planes, 0);
    else share(planes, pool_grad_planes, &k);
}

