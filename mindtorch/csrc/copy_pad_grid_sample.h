/* For one T: see copy_pad_grid.c. */

/* ------------------------------------------------------------------ grid sampling */
typedef struct {
    long images, channels, points, plane, size[3];
    int dims, mode, padding, align;
    const T *x, *grid, *g;
    T *out, *gx, *gg; /* forward: out; backward: the requested gradients of x and grid */
} NAME(Grid);

/* The taps of an axis: weight, its derivative with respect to the coordinate, pixel, and all ones
   where that is in the image. */
typedef struct { T w[4][BLOCK], d[4][BLOCK]; int at[4][BLOCK], ok[4][BLOCK]; } NAME(Taps);

/* Reflects a position into [low / 2, high / 2]. */
static T NAME(reflected)(T p, long low2, long high2, T *slope) {
    if (low2 == high2) { *slope = 0; return 0; }
    const T low = (T)low2 / 2, span = (T)(high2 - low2) / 2;
    T d = p - low, sign = 1;
    if (d < 0) d = -d, sign = -1;
    /* (the same result as with the division; nan takes the other branch) */
    if (d < span) { *slope *= sign; return d + low; }
    const T extra = (T)fmod(d, span), turns = floor(d / span);
    const int odd = fmod(turns, 2) == 1;
    *slope *= odd ? -sign : sign;
    return odd ? span - extra + low : extra + low;
}

ALWAYS T NAME(clipped)(T p, T last, T *slope) {
    if (!(p > 0 && p < last)) *slope = 0;
    return p < 0 ? 0 : p > last ? last : p;                 /* (nan is preserved) */
}

static void NAME(axis)(const NAME(Grid) *k, const T *grid, int step, long m, long n, NAME(Taps) *to) {
    T p[BLOCK], s[BLOCK];
    const T last = (T)(n - 1), half = k->align ? last / 2 : (T)n / 2;
    if (k->align) for (long i = 0; i < m; i++) p[i] = (grid[i * step] + 1) * half;
    else for (long i = 0; i < m; i++) p[i] = ((grid[i * step] + 1) * (T)n - 1) * (T)0.5;
    for (long i = 0; i < m; i++) s[i] = half;
    const long low2 = k->align ? 0 : -1, high2 = k->align ? 2 * (n - 1) : 2 * n - 1;
    if (k->mode != CUBIC && k->padding == BORDER) for (long i = 0; i < m; i++) p[i] = NAME(clipped)(p[i], last, s + i);
    if (k->mode != CUBIC && k->padding == REFLECTION)
        for (long i = 0; i < m; i++) {
            p[i] = NAME(reflected)(p[i], low2, high2, s + i);
            p[i] = NAME(clipped)(p[i], last, s + i);
        }
    /* values beyond the integer range are outside */
    for (long i = 0; i < m; i++) p[i] = p[i] > -2147483646 && p[i] < 2147483646 ? p[i] : -100;
    if (k->mode == NEAREST)
        for (long i = 0; i < m; i++) {
            const T q = nearbyint(p[i]);
            const int ok = q >= 0 && q <= last;
            to->at[0][i] = ok ? (int)q : 0, to->ok[0][i] = -ok, to->w[0][i] = ok, to->d[0][i] = 0;
        }
    else if (k->mode == LINEAR)
        for (long i = 0; i < m; i++) {
            const T q = floor(p[i]), f = p[i] - q;
            const int a = q >= 0 && q <= last, b = q + 1 >= 0 && q + 1 <= last;
            to->at[0][i] = a ? (int)q : 0, to->ok[0][i] = -a, to->w[0][i] = a ? 1 - f : 0, to->d[0][i] = a ? -s[i] : 0;
            to->at[1][i] = b ? (int)q + 1 : 0, to->ok[1][i] = -b, to->w[1][i] = b ? f : 0, to->d[1][i] = b ? s[i] : 0;
        }
    else
        for (long i = 0; i < m; i++) {
            const T q = floor(p[i]), f = p[i] - q, a = (T)-0.75, e = 1 - f, t[4] = {f + 1, f, e, e + 1};
            for (int j = 0; j < 4; j++) {
                const int far = j == 0 || j == 3;
                T w = far ? ((a * t[j] - 5 * a) * t[j] + 8 * a) * t[j] - 4 * a : ((a + 2) * t[j] - (a + 3)) * t[j] * t[j] + 1;
                T d = far ? (3 * a * t[j] - 10 * a) * t[j] + 8 * a : (3 * (a + 2) * t[j] - 2 * (a + 3)) * t[j];
                T r = q + (j - 1), unused = 1;
                if (j > 1) d = -d;
                if (k->padding == REFLECTION) r = NAME(reflected)(r, low2, high2, &unused);
                if (k->padding != ZEROS) r = NAME(clipped)(r, last, &unused);
                const int ok = r >= 0 && r <= last;
                to->at[j][i] = ok ? (int)r : 0, to->ok[j][i] = -ok, to->w[j][i] = ok ? w : 0, to->d[j][i] = ok ? d * s[i] : 0;
            }
        }
}

/* all taps of a block of points */
typedef struct { NAME(Taps) axis[3]; T w[16][BLOCK]; int at[16][BLOCK], ok[16][BLOCK], inside; } NAME(Block);

ALWAYS void NAME(tapped)(const NAME(Grid) *k, long image, long first, long m, NAME(Block) *b, const int taps, const int dims) {
    int all = -1;
    for (int i = 0; i < dims; i++)
        NAME(axis)(k, k->grid + (image * k->points + first) * dims + (dims - 1 - i), dims, m, k->size[i], b->axis + i);
    int each[3] = {0, 0, 0};
    int c = 0;
    for (each[0] = 0; each[0] < taps; each[0]++)
        for (each[1] = 0; each[1] < taps; each[1]++)
            for (each[2] = 0; each[2] < (dims == 3 ? taps : 1); each[2]++, c++) {
                const NAME(Taps) *u = b->axis, *v = b->axis + 1, *t = b->axis + 2;
                const int i0 = each[0], i1 = each[1], i2 = each[2], width = (int)k->size[1], depth = (int)k->size[2];
                for (long i = 0; i < m; i++) {
                    T w = u->w[i0][i] * v->w[i1][i];
                    int at = u->at[i0][i] * width + v->at[i1][i], ok = u->ok[i0][i] & v->ok[i1][i];
                    if (dims == 3) w *= t->w[i2][i], at = at * depth + t->at[i2][i], ok &= t->ok[i2][i];
                    b->w[c][i] = w, b->at[c][i] = ok & at, b->ok[c][i] = ok;
                    all &= ok;
                }
            }
    b->inside = all;
}

ALWAYS void NAME(read)(const NAME(Grid) *k, long start, long stop, const int taps, const int dims) {
    const int count = taps * taps * (dims == 3 ? taps : 1);
    const long blocks = (k->points + BLOCK - 1) / BLOCK;
    NAME(Block) b;
    for (long piece = start; piece < stop; piece++) {
        const long image = piece / blocks, first = piece % blocks * BLOCK, m = k->points - first < BLOCK ? k->points - first : BLOCK;
        NAME(tapped)(k, image, first, m, &b, taps, dims);
        for (long c = 0; c < k->channels; c++) {
            const T *restrict x = k->x + (image * k->channels + c) * k->plane;
            T *restrict to = k->out + (image * k->channels + c) * k->points + first;
            if (b.inside || *x - *x == 0) /* (outside taps have weight 0 on the first pixel) */
                for (long i = 0; i < m; i++) {
                    T sum = 0;
                    for (int j = 0; j < count; j++) sum += b.w[j][i] * x[b.at[j][i]];
                    to[i] = sum;
                }
            else            /* (outside taps are skipped: the first pixel is not finite) */
                for (long i = 0; i < m; i++) {
                    T sum = 0;
                    for (int j = 0; j < count; j++) {
                        const T v = b.w[j][i] * x[b.at[j][i]];
                        sum += b.ok[j][i] ? v : 0;
                    }
                    to[i] = sum;
                }
        }
    }
}

ALWAYS void NAME(spread)(const NAME(Grid) *k, long start, long stop, const int taps, const int dims) {
    const int count = taps * taps * (dims == 3 ? taps : 1);
    NAME(Block) b;
    T dot[16][BLOCK];
    for (long image = start; image < stop; image++)
        for (long first = 0; first < k->points; first += BLOCK) {
            const long m = k->points - first < BLOCK ? k->points - first : BLOCK;
            NAME(tapped)(k, image, first, m, &b, taps, dims);
            memset(dot, 0, sizeof dot);
            for (long c = 0; c < k->channels; c++) {
                const T *restrict g = k->g + (image * k->channels + c) * k->points + first, *restrict x = k->x + (image * k->channels + c) * k->plane;
                if (k->gx) {
                    T *gx = k->gx + (image * k->channels + c) * k->plane;
                    if (b.inside)
                        for (long i = 0; i < m; i++)
                            for (int j = 0; j < count; j++) gx[b.at[j][i]] += b.w[j][i] * g[i];
                    else
                        for (long i = 0; i < m; i++)
                            for (int j = 0; j < count; j++)
                                if (b.ok[j][i]) gx[b.at[j][i]] += b.w[j][i] * g[i];
                }
                if (k->gg && taps > 1)
                    for (int j = 0; j < count; j++)
                        for (long i = 0; i < m; i++) {
                            const T v = g[i] * x[b.at[j][i]];
                            dot[j][i] += b.ok[j][i] ? v : 0;
                        }
            }
            if (!k->gg) continue;
            T *gg = k->gg + (image * k->points + first) * dims;
            for (long i = 0; i < m; i++)
                for (int a = 0; a < dims; a++) {
                    T sum = 0;
                    for (int j = 0; taps > 1 && j < count; j++) {
                        int rest = j;
                        T w = dot[j][i];
                        for (int e = dims - 1; e >= 0; e--, rest /= taps) w *= e == a ? b.axis[e].d[rest % taps][i] : b.axis[e].w[rest % taps][i];
                        sum += w;
                    }
                    gg[i * dims + dims - 1 - a] = sum;
                }
        }
}

#define MODES(F) {                                                                                                                  \
    const NAME(Grid) *k = ctx;                                                                                                      \
    (void)who;                                                                                                                      \
    if (k->dims == 2) {                                                                                                             \
        if (k->mode == NEAREST) F(k, start, stop, 1, 2);                                                                            \
        else if (k->mode == LINEAR) F(k, start, stop, 2, 2);                                                                        \
        else F(k, start, stop, 4, 2);                                                                                               \
    } else if (k->mode == NEAREST) F(k, start, stop, 1, 3);                                                                         \
    else F(k, start, stop, 2, 3);                                                                                                   \
}
static void NAME(grid_forward)(void *ctx, long start, long stop, int who) MODES(NAME(read))
static void NAME(grid_backward)(void *ctx, long start, long stop, int who) MODES(NAME(spread))
#undef MODES

/* x [images, channels, *size] at grid [images, points, dims], into out [images, channels, points].
   With g, the gradient of out, gx (zeroed) and gg are computed instead, if given. All are
   C-contiguous. numbers: images, channels, points, dims, mode, padding, align, size */
int NAME(mt_grid)(const long *v, const struct array *x, const struct array *grid, const struct array *g, const struct array *out, const struct array *gx,
                  const struct array *gg) {
    const struct array *all[6] = {x, grid, g, out, gx, gg};
    T *at[6];
    for (int i = 0; i < 6; i++) {
        at[i] = all[i] ? (T *)all[i]->data : 0;
        if (all[i] && (!(all[i]->flags & CONTIGUOUS) || !(all[i]->flags & ALIGNED))) return -1;
    }
    NAME(Grid) k = {v[0], v[1], v[2], 1, {1, 1, 1}, (int)v[3], (int)v[4], (int)v[5], (int)v[6], at[0], at[1], at[2], at[3], at[4], at[5]};
    for (int i = 0; i < k.dims; i++) k.plane *= k.size[i] = v[7 + i];
    if (k.plane > INT32_MAX) return -1;
    const long count = k.images * k.channels * k.points;
    if (g) shared(k.images, count, NAME(grid_backward), &k);
    else shared(k.images * ((k.points + BLOCK - 1) / BLOCK), count, NAME(grid_forward), &k);
    return 0;
}
