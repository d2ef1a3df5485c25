/* Convolution without unfolding: an image is copied once, with padding, row by row into planes, so
 * that every element of the kernel ("tap") is the same plane read at a fixed offset. A tile of
 * output channels by positions stays in registers while all channels and taps are added. Strides
 * split the planes by position modulo the stride. The input gradient is the same computation with
 * other taps, once per remainder of the position.
 */

/* ------------------------------------------------------------------ convolution */
/* Layout of a convolution's source: (c, h, w) images, padded by (top, left), in s * s planes of hp
   * wp, split by remainder. */
typedef struct { int c, h, w, s, top, left, hp, wp; } Source;

static long plane_floats(const Source *g) { return (long)g->s * g->s * g->hp * g->wp; }

static void fill(const Source *g, const float *x, float *b) {
    const int s = g->s, hp = g->hp, wp = g->wp;
    const long one = (long)hp * wp;
    for (int c = 0; c < g->c; c++, x += (long)g->h * g->w, b += s * s * one) {
        if (s == 1) {
            int end = g->top + g->h < hp ? g->top + g->h : hp, right = g->left + g->w < wp ? g->left + g->w : wp;
            memset(b, 0, sizeof(float) * g->top * wp);
            for (int y = g->top; y < end; y++) {
                float *r = b + (long)y * wp;
                for (int i = 0; i < g->left; i++) r[i] = 0;
                memcpy(r + g->left, x + (long)(y - g->top) * g->w, sizeof(float) * (right - g->left));
                for (int i = right; i < wp; i++) r[i] = 0;
            }
            if (end < hp) memset(b + (long)end * wp, 0, sizeof(float) * (hp - end) * wp);
        } else {
            for (int py = 0; py < s; py++)
                for (int y = 0; y < hp; y++) {
                    int sy = y * s + py - g->top;
                    for (int px = 0; px < s; px++) {
                        float *r = b + (py * s + px) * one + (long)y * wp;
                        if (sy < 0 || sy >= g->h) {
                            memset(r, 0, sizeof(float) * wp);
                            continue;
                        }
                        const float *row = x + (long)sy * g->w;
                        int first = px - g->left, i = 0;
                        for (; i < wp && first + i * s < 0; i++) r[i] = 0;
                        int n = (g->w - 1 - first) / s + 1;
                        if (n > wp) n = wp;
                        if (s == 2) for (; i < n; i++) r[i] = row[first + 2 * i];
                        else for (; i < n; i++) r[i] = row[first + i * s];
                        for (; i < wp; i++) r[i] = 0;
                    }
                }
        }
    }
    memset(b, 0, sizeof(float) * TILE);       /* read by the last tile beyond the planes */
}

#define TAPS(O, V)                                                                                                       \
    static void taps_##O##_##V(const float *b, long plane, int channels, const int *off, int taps, const float *w, float *y,  \
                               long pitch) {                                                                             \
        vf a[O][V];                                                                                                      \
        UNROLL for (int o = 0; o < O; o++) UNROLL for (int v = 0; v < V; v++) a[o][v] = (vf){0};                         \
        for (int c = 0; c < channels; c++, b += plane)                                                                   \
            for (int t = 0; t < taps; t++, w += O) {                                                                     \
                const float *p = b + off[t];                                                                             \
                vf x[V];                                                                                                 \
                UNROLL for (int v = 0; v < V; v++) x[v] = LOAD(p + v * VL);                                              \
                UNROLL for (int o = 0; o < O; o++) UNROLL for (int v = 0; v < V; v++) a[o][v] += x[v] * w[o];            \
            }                                                                                                            \
        UNROLL for (int o = 0; o < O; o++) UNROLL for (int v = 0; v < V; v++) STORE(y + o * pitch + v * VL, a[o][v]);    \
    }
TAPS(OCB, 1) TAPS(OCB, 2) TAPS(OCB, 3)
#if OCB == 8
TAPS(4, 1) TAPS(4, 2) TAPS(4, 3)
#endif
TAPS(2, 1) TAPS(2, 2) TAPS(2, 3)
TAPS(1, 1) TAPS(1, 2) TAPS(1, 3)

typedef void (*tapfn)(const float *, long, int, const int *, int, const float *, float *, long);
static tapfn kernel_for(int o, int v) {
#define PICK(O) if (o == O) return v == 3 ? taps_##O##_3 : v == 2 ? taps_##O##_2 : taps_##O##_1;
    PICK(OCB)
#if OCB == 8
    PICK(4)
#endif
    PICK(2)
    PICK(1)
    return 0;
}
static int block(int left) { return left >= OCB ? OCB : left >= 4 && OCB == 8 ? 4 : left >= 2 ? 2 : 1; }

/* One remainder class of the result: its taps (offset in the planes, index in the kernel) and its
   positions. */
typedef struct { int taps, oh, ow, first; const int *off, *at; } Phase;
typedef struct {
    Source src;
    int n, oc, dh, dw, step, phases, places, turned;      /* result (n, oc, dh, dw); turned: w is (src.c, oc, places) */
    Phase phase[16];
    const float *x, *w, *bias;
    float *y, *packed;
} Conv;

/* Packs the weights in the order in which the tiles read them: phase, block of output channels,
   input channel, tap. */
static void pack(const Conv *k) {
    float *p = k->packed;
    int ic = k->src.c;
    for (int f = 0; f < k->phases; f++) {
        const Phase *ph = &k->phase[f];
        for (int o = 0; o < k->oc;) {
            int m = block(k->oc - o);
            for (int c = 0; c < ic; c++)
                for (int t = 0; t < ph->taps; t++)
                    for (int i = 0; i < m; i++)
                        *p++ = k->turned ? k->w[((long)c * k->oc + o + i) * k->places + ph->at[t]]
                                         : k->w[((long)(o + i) * ic + c) * k->places + ph->at[t]];
            o += m;
        }
    }
}

static void conv_images(void *ctx, long start, long stop, int who) {
    const Conv *k = ctx;
    const Source *g = &k->src;
    long plane = plane_floats(g), image = (long)g->c * g->h * g->w, out = (long)k->dh * k->dw;
    float *b = room(0, plane * g->c + 2 * TILE), *tile = room(1, OCB * TILE);
    (void)who;
    for (long n = start; n < stop; n++) {
        fill(g, k->x + n * image, b);
        const float *w0 = k->packed;
        float *y = k->y + n * k->oc * out;
        for (int f = 0; f < k->phases; f++) {
            const Phase *ph = &k->phase[f];
            long len = ph->oh ? (long)(ph->oh - 1) * g->wp + ph->ow : 0;
            long each = (long)g->c * ph->taps;
            for (long p = 0; p < len; p += TILE) {
                long left = len - p;
                int v = left > 2 * VL ? 3 : left > VL ? 2 : 1;
                const float *w = w0;
                for (int o = 0; o < k->oc;) {
                    int m = block(k->oc - o);
                    kernel_for(m, v)(b + p, plane, g->c, ph->off, ph->taps, w, tile, TILE);
                    for (int i = 0; i < m; i++) {
                        float add = k->bias ? k->bias[o + i] : 0;
                        float *d = y + (o + i) * out + ph->first;
                        const float *s = tile + i * TILE;
                        long end = p + (left < v * VL ? left : v * VL);
                        for (long q = p; q < end;) {
                            long row = q / g->wp, col = q - row * g->wp, stopq = (row + 1) * g->wp;
                            if (stopq > end) stopq = end;
                            long cnt = (col + stopq - q > ph->ow ? ph->ow : col + stopq - q) - col;
                            float *dd = d + (row * k->step) * k->dw + col * k->step;
                            const float *ss = s + (q - p);
                            if (k->step == 1) for (long j = 0; j < cnt; j++) dd[j] = ss[j] + add;
                            else for (long j = 0; j < cnt; j++) dd[j * k->step] = ss[j] + add;
                            q = stopq;
                        }
                    }
                    w += each * m;
                    o += m;
                }
            }
            w0 += each * k->oc;
        }
    }
}

/* geo: c h w s top left hp wp n oc dh dw step phases places turned, then for each phase taps oh ow
   first, its offsets, and its indices in the kernel. */
static const int *geometry(Conv *k, const int *geo) {
    memcpy(&k->src, geo, sizeof(Source));
    geo += 8;
    k->n = geo[0]; k->oc = geo[1]; k->dh = geo[2]; k->dw = geo[3]; k->step = geo[4];
    k->phases = geo[5]; k->places = geo[6]; k->turned = geo[7];
    geo += 8;
    for (int f = 0; f < k->phases; f++) {
        Phase *p = &k->phase[f];
        p->taps = geo[0]; p->oh = geo[1]; p->ow = geo[2]; p->first = geo[3];
        p->off = geo + 4;
        p->at = geo + 4 + p->taps;
        geo += 4 + 2 * p->taps;
    }
    return geo;
}

void mt_conv(const int *geo, const float *x, const float *w, const float *bias, float *y) {
    Conv k = {.x = x, .w = w, .bias = bias, .y = y};
    geometry(&k, geo);
    int taps = 0, full = 0;
    for (int f = 0; f < k.phases; f++) {
        taps += k.phase[f].taps;
        full += k.phase[f].taps > 0 && k.phase[f].oh > 0;
    }
    k.packed = room(2, (size_t)taps * k.src.c * k.oc + VL);
    if (full < k.phases) {          /* positions without any tap */
        long out = (long)k.dh * k.dw;
        for (long i = 0; i < (long)k.n * k.oc; i++)
            for (long j = 0; j < out; j++) y[i * out + j] = bias ? bias[i % k.oc] : 0;
    }
    pack(&k);
    share(k.n, conv_images, &k);
}

/* ------------------------------------------------------------------ weight gradient */
#define WTAPS(T, O)                                                                                                      \
    static void wtaps_##T##_##O(const float *b, long bimage, const float *g, long gimage, long gpitch, int images, long len,  \
                                const int *off, const int *at, float *gw, long wpitch) {                                 \
        vf a[O][T];                                                                                                      \
        UNROLL for (int o = 0; o < O; o++) UNROLL for (int t = 0; t < T; t++) a[o][t] = (vf){0};                         \
        for (int n = 0; n < images; n++, b += bimage, g += gimage)                                                       \
            for (long p = 0; p < len; p += VL) {                                                                         \
                vf gv[O];                                                                                                \
                UNROLL for (int o = 0; o < O; o++) gv[o] = LOAD(g + o * gpitch + p);                                     \
                UNROLL for (int t = 0; t < T; t++) {                                                                     \
                    vf x = LOAD(b + off[t] + p);                                                                         \
                    UNROLL for (int o = 0; o < O; o++) a[o][t] += gv[o] * x;                                             \
                }                                                                                                        \
            }                                                                                                            \
        UNROLL for (int o = 0; o < O; o++) UNROLL for (int t = 0; t < T; t++) gw[o * wpitch + at[t]] += total(a[o][t]);  \
    }
#if VL == 16
#define MANY(T) (T == 9 ? 3 : T == 8 ? 3 : T == 5 ? 5 : T == 7 ? 3 : T == 4 ? 6 : T == 3 ? 8 : T == 2 ? 8 : 8)
WTAPS(9, 3) WTAPS(8, 3) WTAPS(7, 3) WTAPS(5, 5) WTAPS(4, 6) WTAPS(3, 8) WTAPS(2, 8) WTAPS(1, 8)
WTAPS(9, 1) WTAPS(8, 1) WTAPS(7, 1) WTAPS(5, 1) WTAPS(4, 1) WTAPS(3, 1) WTAPS(2, 1) WTAPS(1, 1)
#define WKERNEL(T, O) (O == 1 ? wtaps_##T##_1 : T == 9 ? wtaps_9_3 : T == 8 ? wtaps_8_3 : T == 7 ? wtaps_7_3 : T == 5 ? wtaps_5_5  \
    : T == 4 ? wtaps_4_6 : T == 3 ? wtaps_3_8 : T == 2 ? wtaps_2_8 : wtaps_1_8)
#else
#define MANY(T) (T == 9 ? 1 : T == 8 ? 1 : T == 5 ? 2 : T == 7 ? 1 : T == 4 ? 2 : T == 3 ? 4 : T == 2 ? 4 : 4)
WTAPS(9, 1) WTAPS(8, 1) WTAPS(7, 1) WTAPS(5, 2) WTAPS(4, 2) WTAPS(3, 4) WTAPS(2, 4) WTAPS(1, 4)
WTAPS(5, 1) WTAPS(4, 1) WTAPS(3, 1) WTAPS(2, 1) WTAPS(1, 1)
#define WKERNEL(T, O) (O == 1 ? wtaps_##T##_1 : T == 5 ? wtaps_5_2 : T == 4 ? wtaps_4_2 : T == 3 ? wtaps_3_4 : T == 2 ? wtaps_2_4  \
    : T == 1 ? wtaps_1_4 : wtaps_9_1)
#endif

typedef struct { Conv k; const float *gy; float *gw, *gb; int group, by_channel; float *sums; long size, width; } WConv;

/* Like WTAPS, with output channels as vector lanes: for sixteen or more channels. g: positions by O
   vectors. */
#define CTAPS(T, O)                                                                                                      \
    static void ctaps_##T##_##O(const float *b, int wp, const float *g, int rows, int cols, const int *off, const int *at,  \
                                float *gw, long pitch) {                                                                 \
        vf a[T][O];                                                                                                      \
        UNROLL for (int t = 0; t < T; t++) UNROLL for (int o = 0; o < O; o++) a[t][o] = (vf){0};                         \
        const float *q[T];                                                                                               \
        UNROLL for (int t = 0; t < T; t++) q[t] = b + off[t];                                                            \
        for (long r = 0; r < rows; r++)                                                                                  \
            for (long p = r * wp; p < r * wp + cols; p++, g += O * VL) {                                                 \
                vf v[O];                                                                                                 \
                UNROLL for (int o = 0; o < O; o++) v[o] = LOAD(g + o * VL);                                              \
                UNROLL for (int t = 0; t < T; t++) UNROLL for (int o = 0; o < O; o++) a[t][o] += v[o] * q[t][p];         \
            }                                                                                                            \
        UNROLL for (int t = 0; t < T; t++) UNROLL for (int o = 0; o < O; o++) {                                          \
            float *d = gw + at[t] * pitch + o * VL;                                                                      \
            STORE(d, LOAD(d) + a[t][o]);                                                                                 \
        }                                                                                                                \
    }
#define CALL(O) CTAPS(9, O) CTAPS(8, O) CTAPS(7, O) CTAPS(5, O) CTAPS(4, O) CTAPS(3, O) CTAPS(2, O) CTAPS(1, O)
CALL(1)
CALL(2)
#define CPICK(O) (T == 9 ? ctaps_9_##O : T == 8 ? ctaps_8_##O : T == 7 ? ctaps_7_##O : T == 5 ? ctaps_5_##O : T == 4 ? ctaps_4_##O    \
    : T == 3 ? ctaps_3_##O : T == 2 ? ctaps_2_##O : ctaps_1_##O)

static int taps_at_once(int left) {
    return left % 9 == 0 ? 9 : left % 8 == 0 ? 8 : left % 5 == 0 ? 5 : left % 7 == 0 ? 7 : left >= 8 ? 8 : left >= 5 ? 5 : left;
}

static void wconv_by_channel(void *ctx, long start, long stop, int who) {
    WConv *k = ctx;
    const Source *g = &k->k.src;
    const Phase *ph = &k->k.phase[0];
    long plane = plane_floats(g), image = (long)g->c * g->h * g->w, positions = (long)ph->oh * ph->ow, width = k->width;
    int oc = k->k.oc;
    float *b = room(0, plane * g->c + 2 * TILE), *gp = room(1, positions * width + VL);
    float *gw = k->sums + (long)who * k->size, *gb = gw + (long)g->c * k->k.places * width;
    memset(gw, 0, sizeof(float) * k->size);
    for (long n = start; n < stop; n++) {
        fill(g, k->k.x + n * image, b);
        const float *gy = k->gy + n * oc * positions;
        for (long o = 0; o < width;) {
            int O = width - o >= 2 * VL ? 2 : 1, m = oc - o < O * VL ? oc - o : O * VL;
            float *d = gp + o * positions;
            for (long p = 0; p < positions; p += VL)            /* transposes in square blocks */
                for (int i = 0; i < O * VL; i++) {
                    long end = positions - p < VL ? positions - p : VL;
                    const float *s = gy + (o + i) * positions + p;
                    if (i < m) for (long j = 0; j < end; j++) d[(p + j) * O * VL + i] = s[j];
                    else for (long j = 0; j < end; j++) d[(p + j) * O * VL + i] = 0;
                }
            if (k->gb)
                for (int i = 0; i < m; i++) {
                    float sum = 0;
                    const float *s = gy + (o + i) * positions;
                    SUM(sum) for (long j = 0; j < positions; j++) sum += s[j];
                    gb[o + i] += sum;
                }
            for (int c = 0; c < g->c; c++)
                for (int t = 0; t < ph->taps;) {
                    int T = taps_at_once(ph->taps - t);
                    (O == 2 ? CPICK(2) : CPICK(1))(b + c * plane, g->wp, d, ph->oh, ph->ow, ph->off + t, ph->at + t,
                                                   gw + (long)c * k->k.places * width + o, width);
                    t += T;
                }
            o += O * VL;
        }
    }
}

static void wconv_images(void *ctx, long start, long stop, int who) {
    WConv *k = ctx;
    const Source *g = &k->k.src;
    const Phase *ph = &k->k.phase[0];
    long plane = plane_floats(g), bimage = plane * g->c, image = (long)g->c * g->h * g->w;
    long len = ROUND((long)ph->oh * g->wp, VL), gimage = len * k->k.oc, positions = (long)ph->oh * ph->ow;
    float *b = room(0, bimage * k->group + 2 * TILE), *gp = room(1, gimage * k->group);
    float *gw = k->sums + (long)who * k->size, *gb = gw + (long)k->k.oc * g->c * k->k.places;
    memset(gw, 0, sizeof(float) * k->size);
    for (long n = start; n < stop; n += k->group) {
        int m = stop - n < k->group ? stop - n : k->group;
        for (int i = 0; i < m; i++) {
            fill(g, k->k.x + (n + i) * image, b + i * bimage);
            for (int o = 0; o < k->k.oc; o++) {
                const float *s = k->gy + ((n + i) * k->k.oc + o) * positions;
                float *d = gp + i * gimage + o * len;
                float sum = 0;
                for (int r = 0; r < ph->oh; r++, s += ph->ow, d += g->wp) {
                    memcpy(d, s, sizeof(float) * ph->ow);
                    for (int j = ph->ow; j < g->wp; j++) d[j] = 0;
                    if (k->gb) SUM(sum) for (int j = 0; j < ph->ow; j++) sum += s[j];
                }
                if (k->gb) gb[o] += sum;
                for (float *e = gp + i * gimage + (o + 1) * len; d < e; d++) *d = 0;
            }
        }
        memset(b + bimage * m, 0, sizeof(float) * 2 * TILE);
        for (int t = 0; t < ph->taps;) {
            int T = taps_at_once(ph->taps - t);
            for (int o = 0; o < k->k.oc;) {
#define RUN(X) if (T == X) { O = k->k.oc - o >= MANY(X) ? MANY(X) : 1; f = WKERNEL(X, O); }
                int O = 1;
                void (*f)(const float *, long, const float *, long, long, int, long, const int *, const int *, float *, long) = 0;
                RUN(9) RUN(8) RUN(7) RUN(5) RUN(4) RUN(3) RUN(2) RUN(1)
                for (int c = 0; c < g->c; c++)
                    f(b + c * plane, bimage, gp + o * len, gimage, len, m, len, ph->off + t, ph->at + t,
                      gw + ((long)o * g->c + c) * k->k.places, (long)g->c * k->k.places);
                o += O;
            }
            t += T;
        }
    }
}

/* gw (oc, c, places), gb (oc) or null; geo is the geometry of the forward pass */
void mt_conv_weight(const int *geo, const float *gy, const float *x, float *gw, float *gb) {
    WConv k = {.gy = gy, .gw = gw, .gb = gb};
    geometry(&k.k, geo);
    k.k.x = x;
    const Source *g = &k.k.src;
    long each = (plane_floats(g) * g->c + (long)k.k.oc * k.k.phase[0].oh * g->wp) * 4;
    k.group = each > 400000 ? 1 : (int)(400000 / each) + 1;
    int oc = k.k.oc, places = k.k.places;
    k.width = ROUND(oc, VL);
    k.by_channel = k.width * 3 <= oc * 4;
    long weights = (k.by_channel ? k.width : oc) * (long)g->c * places;
    k.size = ROUND(weights + oc, 16);
    int who = parts(k.k.n);
    k.sums = room(3, k.size * who);
    memset(k.sums, 0, sizeof(float) * k.size * who);
    share(k.k.n, k.by_channel ? wconv_by_channel : wconv_images, &k);
    for (int i = 1; i < who; i++)
        for (long j = 0; j < k.size; j++) k.sums[j] += k.sums[i * k.size + j];
    if (k.by_channel)
        for (int o = 0; o < oc; o++)
            for (long j = 0; j < (long)g->c * places; j++) gw[o * (long)g->c * places + j] = k.sums[j * k.width + o];
    else memcpy(gw, k.sums, sizeof(float) * weights);
    if (gb) memcpy(gb, k.sums + weights, sizeof(float) * oc);
}

