/* For one T: see roi.c. */

/* ------------------------------------------------------------------ bins of regions */
/* A region along one axis: bin i starts at start + i * bin. samples > 0: the mean of this many
   bilinear samples; 0: the result is zero; -1: the mean of the pixels from floor to ceil. */
typedef struct { T start, bin; int samples, unused; } NAME(Axis);

/* Computes the weights of each of n bins on the pixels 0 .. size of an axis: weight[i * size ...];
   only those in range[i] may be nonzero. */
static void NAME(weigh)(const NAME(Axis) *a, int n, int size, T *weight, Range *range) {
    memset(weight, 0, sizeof(T) * n * size);
    for (int i = 0; i < n; i++, weight += size) {
        int lo = size, hi = 0;
        if (a->samples < 0) {
            T from = floor(i * a->bin + a->start), to = ceil((i + 1) * a->bin + a->start);
            lo = from > 0 ? from < size ? (int)from : size : 0;
            hi = to > 0 ? to < size ? (int)to : size : 0;
            for (int p = lo; p < hi; p++) weight[p] = (T)1 / (hi - lo);
        }
        int s = 0, stop = a->samples;
        /* of very many samples only those that may be inside the image */
        if (stop > 64 && a->bin > 0) {
            const double base = (double)a->start + (double)i * a->bin, step = (double)a->bin / stop, most = stop;
            const double slack = 16 * (sizeof(T) == 4 ? 0x1p-23 : 0x1p-52) * (fabs((double)a->start) + (i + 1.0) * a->bin);
            const double first = floor((-1 - base - slack) / step) - 2, last = ceil((size - base + slack) / step) + 2;
            s = first > 0 ? first < most ? (int)first : stop : 0;
            stop = last > 0 ? last < most ? (int)last : stop : 0;
        }
        for (; s < stop; s++) {
            T at = a->start + i * a->bin + (s + (T)0.5) * a->bin / a->samples;
            if (!(at >= -1 && at <= size)) continue;            /* (nan is outside) */
            if (at <= 0) at = 0;
            int p = (int)at, q = p + 1;
            if (p >= size - 1) { p = q = size - 1; at = p; }
            T second = at - p;
            weight[p] += (1 - second) / a->samples;
            weight[q] += second / a->samples;
            if (p < lo) lo = p;
            if (q + 1 > hi) hi = q + 1;
        }
        range[i] = (Range){lo, hi > lo ? hi : lo};
    }
}

typedef struct {
    long regions, channels;             /* channels of the result */
    int rows, columns, height, width;   /* number of bins; size of the image */
    /* distance in channels between the inputs of two bins (0: all bins read the same channels) */
    long apart;
    Strides at;
    /* image and result; for the gradient: gradients of the result and of the image */
    const T *from; T *to;
    const int *image;
    const NAME(Axis) *vertical, *horizontal;
} NAME(Bins);

static void NAME(add)(long n, T w, const T *restrict from, long step, T *restrict to, long other) {
    if (step == 1 && other == 1) for (long c = 0; c < n; c++) to[c] += w * from[c];
    else for (long c = 0; c < n; c++) to[c * other] += w * from[c * step];
}

/* Processes a region's bins, channels first .. stop, in `own` [bins, channels]: its result or its
   gradient. */
static void NAME(bins)(const NAME(Bins) *k, long r, long first, long stop, T *own, T *weights, Range *ranges, int back) {
    T *wy = weights, *wx = wy + (long)k->rows * k->height;
    Range *ry = ranges, *rx = ry + k->rows;
    NAME(weigh)(k->vertical + r, k->rows, k->height, wy, ry);
    NAME(weigh)(k->horizontal + r, k->columns, k->width, wx, rx);
    const long n = stop - first, base = k->image[r] * k->at.image;
    for (int i = 0; i < k->rows; i++)
        for (int j = 0; j < k->columns; j++) {
            const long bin = i * k->columns + j;
            for (int y = ry[i].from; y < ry[i].to; y++) {
                const T v = wy[(long)i * k->height + y];
                if (v == 0) continue;
                for (int x = rx[j].from; x < rx[j].to; x++) {
                    const T w = v * wx[(long)j * k->width + x];
                    if (w == 0) continue;
                    const long p = base + y * k->at.row + x * k->at.column + (bin * k->apart + first) * k->at.channel;
                    if (back) NAME(add)(n, w, own + bin * n, 1, k->to + p, k->at.channel);
                    else NAME(add)(n, w, k->from + p, k->at.channel, own + bin * n, 1);
                }
            }
        }
}

static void NAME(turned)(const T *restrict from, T *restrict to, long rows, long columns) {
    for (long c = 0; c < columns; c++)
        for (long r = 0; r < rows; r++) to[c * rows + r] = from[r * columns + c];
}

static size_t NAME(weight_room)(const NAME(Bins) *k) {
    return sizeof(T) * ((size_t)k->rows * k->height + (size_t)k->columns * k->width) + sizeof(Range) * (k->rows + k->columns);
}

static void NAME(bins_forward)(void *ctx, long start, long stop, int who) {
    const NAME(Bins) *k = ctx;
    (void)who;
    const long bins = (long)k->rows * k->columns, each = bins * k->channels;
    T *own = room(0, sizeof(T) * each), *weights = room(1, NAME(weight_room)(k));
    Range *ranges = (Range *)(weights + (long)k->rows * k->height + (long)k->columns * k->width);
    for (long r = start; r < stop; r++) {
        memset(own, 0, sizeof(T) * each);
        NAME(bins)(k, r, 0, k->channels, own, weights, ranges, 0);
        NAME(turned)(own, k->to + r * each, bins, k->channels);
    }
}

#define CHANNELS 64         /* of the image's gradient, written by one thread */
static void NAME(bins_backward)(void *ctx, long start, long stop, int who) {
    const NAME(Bins) *k = ctx;
    (void)who;
    const long bins = (long)k->rows * k->columns, first = start * CHANNELS, end = stop * CHANNELS < k->channels ? stop * CHANNELS : k->channels;
    const long n = end - first;
    T *own = room(0, sizeof(T) * n * bins), *weights = room(1, NAME(weight_room)(k));
    Range *ranges = (Range *)(weights + (long)k->rows * k->height + (long)k->columns * k->width);
    for (long r = 0; r < k->regions; r++) {
        NAME(turned)(k->from + (r * k->channels + first) * bins, own, n, bins);
        NAME(bins)(k, r, first, end, own, weights, ranges, 1);
    }
}

/* numbers: regions, channels, rows, columns, height, width, apart, strides */
void NAME(mt_bins)(const long *numbers, const T *from, T *to, const int *image, const NAME(Axis) *vertical, const NAME(Axis) *horizontal, int back) {
    const long *v = numbers;
    NAME(Bins) k = {v[0], v[1], (int)v[2], (int)v[3], (int)v[4], (int)v[5], v[6], {v[7], v[8], v[9], v[10]}, from, to, image, vertical, horizontal};
    if (back) share((k.channels + CHANNELS - 1) / CHANNELS, NAME(bins_backward), &k);
    else share(k.regions, NAME(bins_forward), &k);
}
#undef CHANNELS

/* ------------------------------------------------------------------ maxima of bins */
typedef struct {
    long channels, height, width;
    int rows, columns;
    const T *from;
    const int *image;
    const Range *vertical, *horizontal;     /* of each region's bins */
    int *where;
} NAME(Maxima);

static void NAME(maxima)(void *ctx, long start, long stop, int who) {
    const NAME(Maxima) *k = ctx;
    (void)who;
    for (long r = start; r < stop; r++)
        for (long c = 0; c < k->channels; c++) {
            const T *plane = k->from + (k->image[r] * k->channels + c) * k->height * k->width;
            int *where = k->where + (r * k->channels + c) * k->rows * k->columns;
            for (int i = 0; i < k->rows; i++)
                for (int j = 0; j < k->columns; j++) {
                    const Range v = k->vertical[r * k->rows + i], h = k->horizontal[r * k->columns + j];
                    int found = -1;
                    for (int y = v.from; y < v.to; y++)
                        for (int x = h.from; x < h.to; x++) {
                            const int p = y * (int)k->width + x;
                            if (found < 0 || plane[p] > plane[found] || (plane[p] != plane[p] && plane[found] == plane[found])) found = p;
                        }
                    where[i * k->columns + j] = found;
                }
        }
}

void NAME(mt_maxima)(const long *numbers, const T *from, const int *image, const Range *vertical, const Range *horizontal, int *where) {
    NAME(Maxima) k = {numbers[1], numbers[4], numbers[5], (int)numbers[2], (int)numbers[3], from, image, vertical, horizontal, where};
    share(numbers[0], NAME(maxima), &k);
}

/* ------------------------------------------------------------------ boxes */
/* box [4, n], best first: sets gone[i] for boxes that a better one overlaps by more than the
   threshold */
void NAME(mt_suppress)(const T *box, long n, double threshold, unsigned char *gone) {
    const T *restrict x1 = box, *restrict y1 = box + n, *restrict x2 = box + 2 * n, *restrict y2 = box + 3 * n;
    for (long i = 0; i < n; i++) {
        if (gone[i]) continue;
        const T a = x1[i], b = y1[i], c = x2[i], d = y2[i], own = (c - a) * (d - b);
        for (long j = i + 1; j < n; j++) {
            T w = (c < x2[j] ? c : x2[j]) - (a > x1[j] ? a : x1[j]), h = (d < y2[j] ? d : y2[j]) - (b > y1[j] ? b : y1[j]);
            w = w > 0 ? w : 0;
            h = h > 0 ? h : 0;
            const T both = w * h, part = both / (own + (x2[j] - x1[j]) * (y2[j] - y1[j]) - both);
            gone[j] |= part > threshold;
        }
    }
}

/* ------------------------------------------------------------------ shifted taps */
typedef struct {
    long images, groups, channels;      /* channels of a group */
    long height, width, kh, kw, oh, ow, sh, sw, ph, pw, dh, dw;
    /* image [N, H, W, groups * channels]; [N, groups, taps, 2, oh, ow]; [N, groups, taps, oh, ow]
       or null */
    const T *from, *offset, *mask;
    T *columns; /* [N, oh, ow, taps, groups * channels]: the output, or its gradient */
    T *image_grad, *offset_grad, *mask_grad;
} NAME(Moved);

static void NAME(moved)(void *ctx, long start, long stop, int who) {
    const NAME(Moved) *k = ctx;
    (void)who;
    const long out = k->oh * k->ow, taps = k->kh * k->kw, all = k->groups * k->channels, n = k->channels;
    for (long piece = start; piece < stop; piece++) {
        const long image = piece / k->groups, group = piece % k->groups;
        for (long o = 0; o < out; o++)
            for (long t = 0; t < taps; t++) {
                const long place = (piece * taps + t) * out + o;
                const T *off = k->offset + (piece * taps + t) * 2 * out + o;
                const T y = (o / k->ow) * k->sh - k->ph + (t / k->kw) * k->dh + off[0];
                const T x = (o % k->ow) * k->sw - k->pw + (t % k->kw) * k->dw + off[out];
                const T m = k->mask ? k->mask[place] : 1;
                T *own = k->columns + ((image * out + o) * taps + t) * all + group * n;
                /* (false for nan) */
                const int near = y > -2 && y < k->height + 1 && x > -2 && x < k->width + 1;
                const long y0 = near ? (long)floor(y) : 0, x0 = near ? (long)floor(x) : 0;
                const T v = y - y0, u = x - x0;
                const T w[4] = {(1 - v) * (1 - u), (1 - v) * u, v * (1 - u), v * u};
                T dots[4] = {0, 0, 0, 0};
                if (!k->image_grad) memset(own, 0, sizeof(T) * n);
                for (int i = 0; i < 4; i++) {
                    const long yy = y0 + i / 2, xx = x0 + i % 2;
                    if (!near || yy < 0 || yy >= k->height || xx < 0 || xx >= k->width) continue;
                    const long p = ((image * k->height + yy) * k->width + xx) * all + group * n;
                    const T *restrict from = k->from + p, *restrict g = own;
                    if (!k->image_grad) {
                        NAME(add)(n, m * w[i], from, 1, own, 1);
                        continue;
                    }
                    T dot = 0, s = m * w[i];
                    T *restrict to = k->image_grad + p;
                    _Pragma("omp simd reduction(+ : dot)") for (long c = 0; c < n; c++) {
                        dot += g[c] * from[c];
                        to[c] += s * g[c];
                    }
                    dots[i] = dot;
                }
                if (!k->image_grad) continue;
                T *to = k->offset_grad + (piece * taps + t) * 2 * out + o;
                to[0] = m * ((1 - u) * (dots[2] - dots[0]) + u * (dots[3] - dots[1]));
                to[out] = m * ((1 - v) * (dots[1] - dots[0]) + v * (dots[3] - dots[2]));
                if (k->mask_grad) k->mask_grad[place] = w[0] * dots[0] + w[1] * dots[1] + w[2] * dots[2] + w[3] * dots[3];
            }
    }
}

/* numbers: images, groups, channels, height, width, kernel, out, stride, padding, dilation */
void NAME(mt_moved)(const long *v, const T *from, const T *offset, const T *mask, T *columns, T *image_grad, T *offset_grad, T *mask_grad) {
    NAME(Moved) k = {v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], v[14],
                     from, offset, mask, columns, image_grad, offset_grad, mask_grad};
    share(k.images * k.groups, NAME(moved), &k);
}
