/* Kernels that torch.compile uses on CPU, compiled on the user's machine (backend/native_build.py).
 *
 * Convolution without unfolding: an image is copied once into planes with its padding, a row after another, so that every
 * place of the kernel ("tap") is the same plane read at a fixed offset.  A tile of output channels by positions stays in
 * registers while all channels and taps are added up.  Strides split the planes by remainder; the input's gradient is the same
 * computation with other taps, once for each remainder of the position.
 */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define VL 16
#define OCB 8
#define VB 3
#elif defined(__AVX2__)
#define VL 8
#define OCB 4
#define VB 3
#else
#define VL 4
#define OCB 4
#define VB 3
#endif
typedef float vf __attribute__((vector_size(VL * 4), aligned(4), may_alias));
#define LOAD(p) (*(const vf *)(p))
#define STORE(p, v) (*(vf *)(p) = (v))
#define UNROLL _Pragma("GCC unroll 32")
#define TILE (VL * VB)
#define PRAGMA(x) _Pragma(#x)
#define SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#define ROUND(n, k) (((n) + (k) - 1) / (k) * (k))
#if defined(__x86_64__) || defined(__i386__)
#define PAUSE __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE __asm__ volatile("yield")
#else
#define PAUSE
#endif

static inline float total(vf v) {
    typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));
#if VL == 16
    typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
    v8 a = ((v8 *)&v)[0] + ((v8 *)&v)[1];
    v4 b = ((v4 *)&a)[0] + ((v4 *)&a)[1];
#elif VL == 8
    v4 b = ((v4 *)&v)[0] + ((v4 *)&v)[1];
#else
    v4 b = (v4)v;
#endif
    return b[0] + b[2] + (b[1] + b[3]);
}

/* ------------------------------------------------------------------ threads */
typedef void (*piece)(void *ctx, long start, long stop, int who);
static struct {
    int count, made, parts;
    long start[64], n;
    pthread_mutex_t busy, m;
    pthread_cond_t c;
    atomic_long turn;
    atomic_int left;
    piece fn;
    void *ctx;
} team = {.count = 1, .busy = PTHREAD_MUTEX_INITIALIZER, .m = PTHREAD_MUTEX_INITIALIZER, .c = PTHREAD_COND_INITIALIZER};

static void *work(void *arg) {
    long who = (long)arg, seen = team.start[who];
    for (;;) {
        for (int i = 0; i < 2000 && atomic_load(&team.turn) == seen; i++) PAUSE;
        if (atomic_load(&team.turn) == seen) {
            pthread_mutex_lock(&team.m);
            while (atomic_load(&team.turn) == seen) pthread_cond_wait(&team.c, &team.m);
            pthread_mutex_unlock(&team.m);
        }
        seen = atomic_load(&team.turn);
        if (who < team.parts) team.fn(team.ctx, team.n * who / team.parts, team.n * (who + 1) / team.parts, (int)who);
        atomic_fetch_sub(&team.left, 1);
    }
    return 0;
}

static void after_fork(void) {      /* threads do not survive a fork */
    team.made = 0;
    pthread_mutex_init(&team.busy, 0);
    pthread_mutex_init(&team.m, 0);
    pthread_cond_init(&team.c, 0);
}

void mt_threads(int n) {
    static int registered = 0;
    if (!registered) registered = !pthread_atfork(0, 0, after_fork);
    team.count = n < 1 ? 1 : n > 63 ? 63 : n;
}

/* fn over 0..n in pieces on all threads */
static void share(long n, piece fn, void *ctx) {
    int parts = team.count < n ? team.count : (int)n;
    if (parts < 2 || pthread_mutex_trylock(&team.busy)) {
        fn(ctx, 0, n, 0);
        return;
    }
    while (team.made < parts - 1) {
        pthread_t t;
        pthread_attr_t a;
        pthread_attr_init(&a);
        pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
        team.start[team.made + 1] = atomic_load(&team.turn);
        if (pthread_create(&t, &a, work, (void *)(long)(team.made + 1))) break;
        team.made++;
    }
    if (team.made < parts - 1) parts = team.made + 1;
    team.fn = fn;
    team.ctx = ctx;
    team.n = n;
    team.parts = parts;
    atomic_store(&team.left, team.made);
    pthread_mutex_lock(&team.m);
    atomic_fetch_add(&team.turn, 1);
    pthread_cond_broadcast(&team.c);
    pthread_mutex_unlock(&team.m);
    fn(ctx, 0, n / parts, 0);
    for (long i = 0; atomic_load(&team.left); i++) {
        if (i < 2000) PAUSE;
        else sched_yield();
    }
    pthread_mutex_unlock(&team.busy);
}

static __thread float *room_[4];
static __thread size_t room_size[4];
/* scratch memory of this thread, number k */
static float *room(int k, size_t n) {
    if (room_size[k] < n) {
        free(room_[k]);
        void *p = 0;
        if (posix_memalign(&p, 64, n * 4)) abort();
        room_[k] = p;
        room_size[k] = n;
    }
    return room_[k];
}

/* ------------------------------------------------------------------ convolution */
/* How a convolution reads its source: (c, h, w) images padded by (top, left) into s * s planes of hp * wp, split by remainder. */
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
    memset(b, 0, sizeof(float) * TILE);       /* what the last tile reads beyond */
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

/* One remainder of the result: its taps (offset in the planes, place in the kernel) and where its positions lie. */
typedef struct { int taps, oh, ow, first; const int *off, *at; } Phase;
typedef struct {
    Source src;
    int n, oc, dh, dw, step, phases, places, turned;      /* result (n, oc, dh, dw); turned: w is (src.c, oc, places) */
    Phase phase[16];
    const float *x, *w, *bias;
    float *y, *packed;
} Conv;

/* weights in the order in which the tiles read them: phase, block of output channels, input channel, tap */
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

/* geo: c h w s top left hp wp n oc dh dw step phases places turned, then for each phase taps oh ow first, then its offsets, then its
   places in the kernel. */
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
    if (full < k.phases) {          /* positions that no tap reaches */
        long out = (long)k.dh * k.dw;
        for (long i = 0; i < (long)k.n * k.oc; i++)
            for (long j = 0; j < out; j++) y[i * out + j] = bias ? bias[i % k.oc] : 0;
    }
    pack(&k);
    share(k.n, conv_images, &k);
}

/* ------------------------------------------------------------------ gradient of the weight */
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

/* The same with output channels side by side in the vectors: for sixteen channels and more.  g: positions by O vectors. */
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
            for (long p = 0; p < positions; p += VL)            /* transposed in squares */
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

/* gw (oc, c, places), gb (oc) or null; the geometry is that of the forward */
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
    int who = team.count;
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

/* ------------------------------------------------------------------ batch norm with what follows it */
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

/* act: 0 nothing, 1 relu (after adding res), 2 leaky relu */
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

/* ------------------------------------------------------------------ max pooling, by itself or after relu */
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
                    if (!begun) {           /* the first place that a window has is its maximum until a larger one comes */
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

/* at: place of each maximum in its plane, -1 where relu has cut it off. */
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

/* ------------------------------------------------------------------ LSTM through time */
typedef int vi __attribute__((vector_size(VL * 4), aligned(4), may_alias));
static inline vf pick(vi m, vf a, vf b) { return (vf)((m & (vi)a) | (~m & (vi)b)); }
static inline vf same(float x) { return x - (vf){0}; }

static inline vf vexp(vf x) {
    x = pick(x > 88.0f, same(88.0f), x);
    x = pick(x < -87.0f, same(-87.0f), x);
    vf n = x * 1.44269504f + 12582912.0f;        /* rounds to the nearest integer */
    n -= 12582912.0f;
    vf r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vf p = 1.0f / 5040 * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    vi e = (__builtin_convertvector(n, vi) + 127) << 23;
    return p * (vf)e;
}
static inline vf vsigmoid(vf x) { return 1.0f / (1.0f + vexp(-x)); }
static inline vf vtanh(vf x) {
    vf e = vexp(x * 2.0f), s = x * x;
    vf big = 1.0f - 2.0f / (e + 1.0f);
    vf p = s * 3.5921280e-3f - 8.8632355e-3f;          /* the power series, where the formula above would cancel */
    p = p * s + 2.1869489e-2f;
    p = p * s - 5.3968254e-2f;
    p = p * s + 1.3333333e-1f;
    p = p * s - 3.3333333e-1f;
    return pick(s < 0.1225f, x + x * s * p, big);
}

typedef struct {
    float *gates, *h, *c, *tc, *dgates, *dh0, *dc0;
    const float *w, *h0, *c0, *gy, *gh, *gc;
    long t, b, n;
    int reverse;
} Lstm;
static const int none[1] = {0};

static void lstm_rows(void *ctx, long start, long stop, int who) {
    Lstm *k = ctx;
    long n = k->n, wide = 4 * n;
    float *packed = room(0, n * OCB + TILE), *tile = room(1, OCB * TILE);
    (void)who;
    for (long blk = start; blk < stop; blk++)
        for (long row = blk * OCB, end = row + OCB < k->b ? row + OCB : k->b; row < end;) {
            int m = block((int)(end - row));
            for (long step = 0; step < k->t; step++) {
                long t = k->reverse ? k->t - 1 - step : step, prev = k->reverse ? t + 1 : t - 1;
                const float *h = step ? k->h + (prev * k->b + row) * n : k->h0 + row * n;
                const float *c = step ? k->c + (prev * k->b + row) * n : k->c0 + row * n;
                for (int i = 0; i < m; i++) for (long j = 0; j < n; j++) packed[j * m + i] = h[i * n + j];
                float *z = k->gates + (t * k->b + row) * wide;
                for (long p = 0; p < wide;) {
                    int v = wide - p >= 3 * VL ? 3 : wide - p >= 2 * VL ? 2 : 1;
                    kernel_for(m, v)(k->w + p, wide, (int)n, none, 1, packed, tile, TILE);
                    for (int i = 0; i < m; i++)
                        for (int j = 0; j < v; j++) {
                            float *d = z + i * wide + p + j * VL;
                            STORE(d, LOAD(d) + LOAD(tile + i * TILE + j * VL));
                        }
                    p += v * VL;
                }
                for (int i = 0; i < m; i++) {
                    float *q = z + i * wide;
                    long at = (t * k->b + row + i) * n;
                    for (long j = 0; j < n; j += VL) {
                        vf a = vsigmoid(LOAD(q + j)), f = vsigmoid(LOAD(q + n + j)), g = vtanh(LOAD(q + 2 * n + j));
                        vf o = vsigmoid(LOAD(q + 3 * n + j)), cell = f * LOAD(c + i * n + j) + a * g, tc = vtanh(cell);
                        STORE(q + j, a);
                        STORE(q + n + j, f);
                        STORE(q + 2 * n + j, g);
                        STORE(q + 3 * n + j, o);
                        STORE(k->c + at + j, cell);
                        STORE(k->tc + at + j, tc);
                        STORE(k->h + at + j, o * tc);
                    }
                }
            }
            row += m;
        }
}

/* gates (t, b, 4n): the input's part, becomes i, f, g, o; w (n, 4n) is the transposed weight; h, c, tc (t, b, n) */
void mt_lstm(float *gates, const float *w, const float *h0, const float *c0, float *h, float *c, float *tc, long t, long b, long n,
             int reverse) {
    Lstm k = {.gates = gates, .w = w, .h0 = h0, .c0 = c0, .h = h, .c = c, .tc = tc, .t = t, .b = b, .n = n, .reverse = reverse};
    share((b + OCB - 1) / OCB, lstm_rows, &k);
}

static void lstm_grad_rows(void *ctx, long start, long stop, int who) {
    Lstm *k = ctx;
    long n = k->n, wide = 4 * n;
    float *packed = room(0, wide * OCB + TILE), *tile = room(1, OCB * TILE);
    (void)who;
    for (long blk = start; blk < stop; blk++)
        for (long row = blk * OCB, end = row + OCB < k->b ? row + OCB : k->b; row < end;) {
            int m = block((int)(end - row));
            float *dh = k->dh0 + row * n, *dc = k->dc0 + row * n;
            for (int i = 0; i < m; i++)
                for (long j = 0; j < n; j++) {
                    dh[i * n + j] = k->gh ? k->gh[(row + i) * n + j] : 0;
                    dc[i * n + j] = k->gc ? k->gc[(row + i) * n + j] : 0;
                }
            for (long step = k->t - 1; step >= 0; step--) {
                long t = k->reverse ? k->t - 1 - step : step, prev = k->reverse ? t + 1 : t - 1;
                const float *c = step ? k->c + (prev * k->b + row) * n : k->c0 + row * n;
                for (int i = 0; i < m; i++) {
                    long at = (t * k->b + row + i) * n;
                    const float *q = k->gates + at * 4, *tc = k->tc + at, *gy = k->gy ? k->gy + at : 0;
                    float *d = k->dgates + at * 4;
                    for (long j = 0; j < n; j += VL) {
                        vf a = LOAD(q + j), f = LOAD(q + n + j), g = LOAD(q + 2 * n + j), o = LOAD(q + 3 * n + j), u = LOAD(tc + j);
                        vf e = LOAD(dh + i * n + j);
                        if (gy) e += LOAD(gy + j);
                        vf x = LOAD(dc + i * n + j) + e * o * (1.0f - u * u);
                        STORE(d + j, x * g * a * (1.0f - a));
                        STORE(d + n + j, x * LOAD(c + i * n + j) * f * (1.0f - f));
                        STORE(d + 2 * n + j, x * a * (1.0f - g * g));
                        STORE(d + 3 * n + j, e * u * o * (1.0f - o));
                        STORE(dc + i * n + j, x * f);
                    }
                    for (long j = 0; j < wide; j++) packed[j * m + i] = d[j];
                }
                for (long p = 0; p < n;) {
                    int v = n - p >= 3 * VL ? 3 : n - p >= 2 * VL ? 2 : 1;
                    kernel_for(m, v)(k->w + p, n, (int)wide, none, 1, packed, tile, TILE);
                    for (int i = 0; i < m; i++) memcpy(dh + i * n + p, tile + i * TILE, sizeof(float) * v * VL);
                    p += v * VL;
                }
            }
            row += m;
        }
}

/* w (4n, n) as it is; gy, gh, gc may be null */
void mt_lstm_grad(const float *gy, const float *gh, const float *gc, float *gates, const float *w, const float *c0, float *c, float *tc,
                  float *dgates, float *dh0, float *dc0, long t, long b, long n, int reverse) {
    Lstm k = {.gy = gy, .gh = gh, .gc = gc, .gates = gates, .w = w, .c0 = c0, .c = c, .tc = tc, .dgates = dgates, .dh0 = dh0, .dc0 = dc0,
              .t = t, .b = b, .n = n, .reverse = reverse};
    share((b + OCB - 1) / OCB, lstm_grad_rows, &k);
}

int mt_width(void) { return VL; }

/* ------------------------------------------------------------------ matrix products */
typedef struct { const float *a, *b, *bias; float *c; long m, k, n; int relu, tb; } Gemm;

/* d (count of k, pitch) = columns of the rows b, `wide` of them, k apart */
static void transpose(const float *b, long k, long wide, float *d, long pitch) {
    long r = 0;
#if defined(__GNUC__) && !defined(__clang__)
    for (; r + VL <= k; r += VL)
        for (long j = 0; j < pitch; j += VL) {
            vf x[VL];
            for (int i = 0; i < VL; i++) x[i] = j + i < wide ? LOAD(b + (j + i) * k + r) : (vf){0};
            /* squares of 1, 2, 4, ... elements change places across the diagonal */
            UNROLL for (int s = 1; s < VL; s *= 2) {
                vi low, high;
                UNROLL for (int c = 0; c < VL; c++) low[c] = c & s ? VL + c - s : c, high[c] = c & s ? VL + c : c + s;
                UNROLL for (int i = 0; i < VL; i++)
                    if (!(i & s)) {
                        vf u = x[i], w = x[i + s];
                        x[i] = __builtin_shuffle(u, w, low);
                        x[i + s] = __builtin_shuffle(u, w, high);
                    }
            }
            UNROLL for (int i = 0; i < VL; i++) STORE(d + (r + i) * pitch + j, x[i]);
        }
#endif
    for (; r < k; r++)
        for (long j = 0; j < pitch; j++) d[r * pitch + j] = j < wide ? b[j * k + r] : 0;
}

/* c (m, n) = a b: a (m, k) or, ta, (k, m); b (k, n) or, tb, (n, k); then + bias, relu */
static void nn_columns(void *ctx, long start, long stop, int who) {
    Gemm *g = ctx;
    long k = g->k, n = g->n;
    float *panel = room(1, k * TILE), *tile = room(3, OCB * TILE);
    (void)who;
    for (long pn = start; pn < stop; pn++) {
        long p = pn * TILE, wide = n - p < TILE ? n - p : TILE;
        int v = wide > 2 * VL ? 3 : wide > VL ? 2 : 1;
        long pitch = v * VL;
        if (g->tb) transpose(g->b + p * k, k, wide, panel, pitch);
        else
            for (long r = 0; r < k; r++) {
                float *d = panel + r * pitch;
                memcpy(d, g->b + r * n + p, sizeof(float) * wide);
                for (long j = wide; j < pitch; j++) d[j] = 0;
            }
        const float *w = g->a;             /* packed by blocks of rows */
        for (long i = 0; i < g->m;) {
            int m = block((int)(g->m - i));
            int whole = wide == pitch && !g->bias && !g->relu;
            kernel_for(m, v)(panel, pitch, (int)k, none, 1, w, whole ? g->c + i * n + p : tile, whole ? n : TILE);
            if (!whole)
                for (int x = 0; x < m; x++) {
                    float *c = g->c + (i + x) * n + p, *t = tile + x * TILE;
                    if (g->bias) for (long j = 0; j < wide; j++) t[j] += g->bias[p + j];
                    if (g->relu) for (long j = 0; j < wide; j++) c[j] = t[j] <= 0 ? 0 : t[j];
                    else memcpy(c, t, sizeof(float) * wide);
                }
            w += m * k;
            i += m;
        }
    }
}

void mt_gemm(const float *a, const float *b, const float *bias, float *c, long m, long k, long n, int ta, int tb, int relu) {
    float *packed = room(2, m * k + VL), *w = packed;
    for (long i = 0; i < m;) {
        int o = block((int)(m - i));
        if (ta) for (long r = 0; r < k; r++, w += o) for (int x = 0; x < o; x++) w[x] = a[r * m + i + x];
        else for (long r = 0; r < k; r++, w += o) for (int x = 0; x < o; x++) w[x] = a[(i + x) * k + r];
        i += o;
    }
    Gemm g = {.a = packed, .b = b, .bias = bias, .c = c, .m = m, .k = k, .n = n, .tb = tb, .relu = relu};
    if (m * k * n < 1000000) nn_columns(&g, 0, (n + TILE - 1) / TILE, 0);
    else share((n + TILE - 1) / TILE, nn_columns, &g);
}
