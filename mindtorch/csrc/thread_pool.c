/* Thread pool of all CPU kernels, and work that needs nothing else: oneDNN in pieces, optimizers.

   Compiled on the user's machine (backend/c_kernels/build.py) with -ffp-contract=off: every value
   is the one that NumPy computes. */
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "common.h"
#ifdef __F16C__
#include <immintrin.h>
#endif

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE __asm__ volatile("yield")
#else
#define PAUSE
#endif
#define MOST 64
/* pauses (of 15 to 50 ns) after which the caller yields its processor, possibly to the thread that
   it waits for */
#define PATIENCE 2000

/* ------------------------------------------------------------------ threads */

/* A job is split into pieces, which threads claim one by one. The calling thread participates, so a
   late thread costs nothing. `ticket` holds the job's id, its number of pieces and the next piece
   (32, 16 and 16 bits). Claiming a piece by compare-and-swap fails once the job is over, and only a
   thread that has claimed a piece reads the job's data. */
static struct {
    int count, made;
    long n;
    piece fn;
    void *ctx;
    atomic_ulong ticket;
    /* place: the processor on which the caller of the last job ran */
    atomic_int done, sleeping, rest, place;
    pthread_mutex_t busy, m;
    pthread_cond_t c;
    long spin;
    int (*prepare)(int);
} team = {.count = 1, .spin = 300000, .busy = PTHREAD_MUTEX_INITIALIZER, .m = PTHREAD_MUTEX_INITIALIZER, .c = PTHREAD_COND_INITIALIZER};

static void join(void) {
    unsigned long t = atomic_load(&team.ticket);
    for (;;) {
        long i = t & 0xffff, parts = t >> 16 & 0xffff;
        if (i >= parts) return;
        /* (t is read again) */
        if (!atomic_compare_exchange_weak(&team.ticket, &t, t + 1)) continue;
        team.fn(team.ctx, team.n * i / parts, team.n * (i + 1) / parts, (int)i);
        atomic_fetch_add(&team.done, 1);
        t = atomic_load(&team.ticket);
    }
}

/* A thread woken on the caller's own processor moves to another one, if allowed. The system would
   move it only after some milliseconds, and until then the two block each other (a pass of 60 us on
   two threads took 200 to 280 us). */
static void spread(void) {
#ifdef __linux__
    cpu_set_t all, others;
    const int here = sched_getcpu();
    if (here < 0 || here != atomic_load(&team.place) || sched_getaffinity(0, sizeof all, &all)) return;
    others = all;
    CPU_CLR(here, &others);
    if (CPU_COUNT(&others) && !sched_setaffinity(0, sizeof others, &others)) sched_setaffinity(0, sizeof all, &all);
#endif
}

static long nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* Leaves signals to the program's threads: oneDNN's products point the stack pointer to where no
   signal frame may be written (backend/signals.py). */
static void take_no_signals(void) {
    const int faults[] = {SIGSEGV, SIGFPE, SIGILL, SIGABRT, SIGBUS, SIGTRAP, SIGSYS};
    sigset_t all;
    sigfillset(&all);
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_BLOCK, &all, 0);
}

static void *work(void *arg) {
    unsigned long seen = (unsigned long)(uintptr_t)arg;
    int prepared = 0;
    take_no_signals();
    for (;;) {
        long end = nanoseconds() + team.spin;
        for (int i = 0; atomic_load(&team.ticket) >> 32 == seen; i++) {
            PAUSE;
            if (i % 64 == 63 && (atomic_load(&team.rest) || nanoseconds() > end)) {
                pthread_mutex_lock(&team.m);
                atomic_fetch_add(&team.sleeping, 1);
                while (atomic_load(&team.ticket) >> 32 == seen) pthread_cond_wait(&team.c, &team.m);
                atomic_fetch_sub(&team.sleeping, 1);
                pthread_mutex_unlock(&team.m);
            }
        }
        seen = atomic_load(&team.ticket) >> 32;
        if (!prepared && team.prepare) prepared = 1, team.prepare(1);
        spread();
        join();
    }
    return 0;
}

static void after_fork(void) {      /* threads do not survive a fork */
    team.made = 0;
    atomic_store(&team.sleeping, 0);
    pthread_mutex_init(&team.busy, 0);
    pthread_mutex_init(&team.m, 0);
    pthread_cond_init(&team.c, 0);
}

/* Sets the number of threads, how long (ns) one without work spins before it sleeps, and what a new
   one calls first (with 1; or 0). */
void mt_threads(int n, long spin, int (*prepare)(int)) {
    static int registered = 0;
    if (!registered) registered = !pthread_atfork(0, 0, after_fork);
    team.count = n < 1 ? 1 : n > MOST ? MOST : n;
    team.spin = spin;
    if (prepare) team.prepare = prepare;
}

/* Lets spinning threads sleep, because other threads are about to work. */
void mt_rest(void) { atomic_store(&team.rest, 1); }

int mt_parts(long n) { return team.count < n ? team.count : (int)n; }

/* Runs fn over 0..n in mt_parts(n) pieces on all threads; `who` is the index of the piece. */
void mt_share(long n, piece fn, void *ctx) {
    int parts = mt_parts(n);
    if (parts < 2 || pthread_mutex_trylock(&team.busy)) {
        for (int i = 0; i < parts; i++) fn(ctx, n * i / parts, n * (i + 1) / parts, i);
        return;
    }
    while (team.made < parts - 1) {
        pthread_t t;
        pthread_attr_t a;
        pthread_attr_init(&a);
        pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&t, &a, work, (void *)(uintptr_t)(atomic_load(&team.ticket) >> 32))) break;
        team.made++;
    }
    atomic_store(&team.rest, 0);
    team.fn = fn;
    team.ctx = ctx;
    team.n = n;
    atomic_store(&team.done, 0);
#ifdef __linux__
    atomic_store(&team.place, sched_getcpu());
#endif
    atomic_store(&team.ticket, ((atomic_load(&team.ticket) >> 32) + 1) << 32 | (unsigned long)parts << 16);
    if (atomic_load(&team.sleeping)) {
        pthread_mutex_lock(&team.m);
        pthread_cond_broadcast(&team.c);
        pthread_mutex_unlock(&team.m);
    }
    join();
    for (long i = 0; atomic_load(&team.done) < parts; i++) {
        if (i < PATIENCE) PAUSE;
        else sched_yield();
    }
    pthread_mutex_unlock(&team.busy);
}

/* ------------------------------------------------------------------ oneDNN on several threads */
typedef int (*sgemm)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float, float *, int64_t);
struct product {
    sgemm fn;
    char ta, tb;
    long m, n, k, lda, ldb, ldc, rows;
    float beta;
    const float *a, *b, *bias;
    float *c;
    atomic_int status;
};

static void product_piece(void *ctx, long start, long stop, int who) {
    struct product *p = ctx;
    (void)who;
    long limit = p->rows ? p->m : p->n, from = start * 16, to = stop * 16 < limit ? stop * 16 : limit;
    int status;
    if (p->rows)
        status = p->fn(p->ta, p->tb, to - from, p->n, p->k, 1, p->a + (p->ta == 'N' ? from * p->lda : from), p->lda, p->b, p->ldb, p->beta,
                       p->c + from * p->ldc, p->ldc);
    else
        status = p->fn(p->ta, p->tb, p->m, to - from, p->k, 1, p->a, p->lda, p->b + (p->tb == 'N' ? from : from * p->ldb), p->ldb, p->beta,
                       p->c + from, p->ldc);
    if (status) atomic_store(&p->status, status);
    if (p->bias) {
        const long low = p->rows ? from : 0, high = p->rows ? to : p->m, left = p->rows ? 0 : from, width = (p->rows ? p->n : to) - left;
        const float *restrict add = p->bias + left;
        for (long i = low; i < high; i++) {
            float *restrict row = p->c + i * p->ldc + left;
            for (long j = 0; j < width; j++) row[j] += add[j];
        }
    }
}

/* c = a @ b + beta * c (+ bias, a row, if not null), split along the longer side of c */
int mt_sgemm(sgemm fn, char ta, char tb, long m, long n, long k, const float *a, long lda, const float *b, long ldb, float beta, float *c,
             long ldc, const float *bias) {
    struct product p = {fn, ta, tb, m, n, k, lda, ldb, ldc, m >= n, beta, a, b, bias, c, 0};
    mt_share(((m >= n ? m : n) + 15) / 16, product_piece, &p);
    return atomic_load(&p.status);
}

struct products {
    sgemm fn;
    char ta, tb;
    long m, n, k, lda, ldb, ldc;
    const char *a, *b;
    char *c;
    const long *at, *bt, *ct;       /* offsets in bytes */
    atomic_int status;
};

static void products_piece(void *ctx, long start, long stop, int who) {
    struct products *p = ctx;
    (void)who;
    for (long i = start; i < stop; i++) {
        int status = p->fn(p->ta, p->tb, p->m, p->n, p->k, 1, (const float *)(p->a + p->at[i]), p->lda, (const float *)(p->b + p->bt[i]),
                           p->ldb, 0, (float *)(p->c + p->ct[i]), p->ldc);
        if (status) atomic_store(&p->status, status);
    }
}

/* Computes `count` matrix products of one shape; `alone`: on the calling thread. */
int mt_sgemms(sgemm fn, char ta, char tb, long m, long n, long k, const char *a, long lda, const char *b, long ldb, char *c, long ldc,
              const long *at, const long *bt, const long *ct, long count, int alone) {
    struct products p = {fn, ta, tb, m, n, k, lda, ldb, ldc, a, b, c, at, bt, ct, 0};
    if (alone) products_piece(&p, 0, count, 0);
    else mt_share(count, products_piece, &p);
    return atomic_load(&p.status);
}

/* One step of a piece: set the address of a memory object; execute a primitive; add one array to
   another. */
struct step {
    long kind;              /* 0 set address, 1 execute, 2 add */
    void *what;             /* memory object or primitive */
    /* whose address (-1: the piece's scratch buffer) and byte offset; execute: argument count */
    long operand, offset;
    void *args;             /* execute: its arguments; add: the index of the other operand */
    long other, n;          /* add: byte offset of the other operand, number of floats */
};
struct steps {
    long count, room;
    struct step *at;
};
struct plan {
    int (*put)(void *, void *), (*execute)(void *, void *, int, void *);
    struct steps *pieces;
    char **operands;
    void **streams;
    atomic_int status;
};
#define KEPT (1L << 24)     /* maximum bytes of a scratch buffer that stays allocated */
static __thread char *room_;
static __thread long room_size;

static char *room(long size) {
    if (size > room_size) {
        free(room_);
        void *p = 0;
        room_size = 0;
        room_ = posix_memalign(&p, 64, size) ? 0 : p;
        if (room_) room_size = size;
    }
    return room_;
}

static void plan_pieces(void *ctx, long start, long stop, int who) {
    struct plan *p = ctx;
    (void)who;
    for (long i = start; i < stop; i++) {
        struct steps *s = p->pieces + i;
        char *own = s->room ? room(s->room) : 0;
        int status = s->room && !own ? 1 : 0;
        for (struct step *t = s->at, *end = s->at + s->count; t < end && !status; t++) {
            char *x = (t->operand < 0 ? own : p->operands[t->operand]) + t->offset;
            if (t->kind == 0) status = p->put(t->what, x);
            else if (t->kind == 1) status = p->execute(t->what, p->streams[i], (int)t->n, t->args);
            else {
                long o = (long)(intptr_t)t->args;
                float *restrict to = (float *)x;
                const float *restrict from = (const float *)((o < 0 ? own : p->operands[o]) + t->other);
                for (long j = 0; j < t->n; j++) to[j] += from[j];
            }
        }
        if (status) atomic_store(&p->status, status);
        if (room_size > KEPT) free(room_), room_ = 0, room_size = 0;
    }
}

/* Runs n lists of steps, if possible each on its own thread. */
int mt_plan(int (*put)(void *, void *), int (*execute)(void *, void *, int, void *), long n, struct steps *pieces, char **operands,
            void **streams) {
    struct plan p = {put, execute, pieces, operands, streams, 0};
    if (n == 1) plan_pieces(&p, 0, 1, 0);
    else mt_share(n, plan_pieces, &p);
    return atomic_load(&p.status);
}

/* Primitives of one elementwise pass over many pieces: each thread has its own memory objects,
   which are set to the addresses of a piece. */
#define OPERANDS 4
struct pass_of {
    void *primitive, *args, *stream, *memories[OPERANDS];
    long count;             /* number of arguments */
};
struct passes {
    int (*put)(void *, void *), (*execute)(void *, void *, int, void *);
    struct pass_of *of;
    float **operands;
    long arity, n, size;
    int guarded;
    char *left;
    atomic_int status;
};

static void passes_piece(void *ctx, long start, long stop, int who) {
    struct passes *p = ctx;
    struct pass_of *own = p->of + who;
    for (long k = start; k < stop; k++) {
        const long at = k * p->n < p->size - p->n ? k * p->n : p->size - p->n;
        if (p->guarded) {
            const float *x = p->operands[p->arity - 2] + at;
            int below = 1;
            for (long i = 0; i < p->n; i++) below &= x[i] < INFINITY;
            if ((p->left[k] = !below)) continue;
        }
        int status = 0;
        for (long j = 0; j < p->arity && !status; j++) status = p->put(own->memories[j], p->operands[j] + at);
        if (!status) status = p->execute(own->primitive, own->stream, (int)own->count, own->args);
        if (status) atomic_store(&p->status, status);
    }
}

/* An elementwise pass over `size` floats in pieces of n (the last one ends with the arrays); the
   last operand is the result. left: set for each piece that was skipped because the operand before
   the result has an element that is not below infinity there; null: no piece is skipped. */
int mt_passes(int (*put)(void *, void *), int (*execute)(void *, void *, int, void *), struct pass_of *of, float **operands, long arity, long n,
              long size, char *left) {
    struct passes p = {put, execute, of, operands, arity, n, size, left != 0, left, 0};
    mt_share((size + n - 1) / n, passes_piece, &p);
    return atomic_load(&p.status);
}

/* ------------------------------------------------------------------ optimizers */
#define BLOCK 4096
#define COLUMNS 5

struct update {
    long rows, columns;
    struct array **at[COLUMNS];     /* parameters, states, gradients */
    const long *first; /* row -> its first block; after the last row the number of blocks */
    const float *number;
    int option[4];
    void (*run)(const struct update *, float *restrict *, long);
};

static void update_blocks(void *ctx, long start, long stop, int who) {
    const struct update *u = ctx;
    (void)who;
    long r = 0, high = u->rows;
    while (high - r > 1) {
        long m = (r + high) / 2;
        if (u->first[m] <= start) r = m;
        else high = m;
    }
    while (start < stop) {
        while (u->first[r + 1] <= start) r++;
        struct array *a = u->at[0][r];
        long size = 1;
        for (int d = 0; d < a->nd; d++) size *= a->dims[d];
        long from = (start - u->first[r]) * BLOCK, end = u->first[r + 1] < stop ? u->first[r + 1] : stop;
        long to = (end - u->first[r]) * BLOCK;
        if (to > size) to = size;
        float *restrict p[COLUMNS];
        for (long c = 0; c < u->columns; c++) p[c] = (float *)u->at[c][r]->data + from;
        u->run(u, p, to - from);
        start = end;
    }
}

static inline __attribute__((always_inline)) float seen(float g, float p, float wd, int maximize, int decay) {
    if (decay) {
        float t = p * wd;
        return maximize ? t - g : t + g;
    }
    return maximize ? -g : g;
}

/* rounding happens in the order of backend/cpu/optimizer.py */
static inline __attribute__((always_inline)) void sgd(const struct update *u, float *restrict *at, long n, int maximize, int decay,
                                                      int momentum, int nesterov) {
    const float lr = u->number[0], wd = u->number[1], mu = u->number[2], damp = u->number[3];
    float *restrict p = at[0], *restrict b = at[1], *restrict g = at[momentum ? 2 : 1];
    for (long i = 0; i < n; i++) {
        float d = seen(g[i], p[i], wd, maximize, decay);
        if (momentum) {
            float m = momentum == 2 ? d : b[i] * mu + d * damp;
            b[i] = m;
            d = nesterov ? m * mu + d : m;
        }
        p[i] = p[i] + d * lr;
    }
}

static void sgd_block(const struct update *u, float *restrict *at, long n) {
    const int *o = u->option;
#define CASE(x, d, m, v) if (o[0] == x && o[1] == d && o[2] == m && o[3] == v) return sgd(u, at, n, x, d, m, v)
#define MORE(x, d) CASE(x, d, 0, 0); CASE(x, d, 1, 0); CASE(x, d, 2, 0); CASE(x, d, 1, 1); CASE(x, d, 2, 1)
    MORE(0, 0);
    MORE(0, 1);
    MORE(1, 0);
    MORE(1, 1);
#undef CASE
#undef MORE
}

static inline __attribute__((always_inline)) void adam(const struct update *u, float *restrict *at, long n, int maximize, int decay,
                                                       int amsgrad) {
    const float *c = u->number;
    const float size = c[0], root = c[1], eps = c[2], wd = c[3], w1 = c[4], b2 = c[5], w2 = c[6];
    float *restrict p = at[0], *restrict m = at[1], *restrict v = at[2], *restrict x = at[3], *restrict g = at[amsgrad ? 4 : 3];
    for (long i = 0; i < n; i++) {
        float q = decay == 2 ? p[i] * wd : p[i];
        float d = seen(g[i], q, wd, maximize, decay == 1);
        float mean = m[i] + (d - m[i]) * w1;
        float square = v[i] * b2 + d * d * w2;
        float top = square;
        m[i] = mean;
        v[i] = square;
        if (amsgrad) {
            top = x[i];
            top = !(top >= square) && top == top ? square : top;        /* NaN is preserved */
            x[i] = top;
        }
        p[i] = q + mean * size / (sqrtf(top) / root + eps);
    }
}

static void adam_block(const struct update *u, float *restrict *at, long n) {
    const int *o = u->option;       /* maximize, 1 decay or 2 decoupled, amsgrad */
#define CASE(x, d, a) if (o[0] == x && o[1] == d && o[2] == a) return adam(u, at, n, x, d, a)
#define MORE(x) CASE(x, 0, 0); CASE(x, 1, 0); CASE(x, 2, 0); CASE(x, 0, 1); CASE(x, 1, 1); CASE(x, 2, 1)
    MORE(0);
    MORE(1);
#undef CASE
#undef MORE
}

/* Updates `rows` rows in place; arrays are passed as the addresses of their Python objects, column
   by column. Returns 1, without doing anything, if one of them is not a contiguous array of this
   dtype and of its parameter's size. */
int mt_update(int kind, long rows, long columns, struct array **arrays, const void *dtype, const int *option, const float *number) {
    if (rows < 1 || columns > COLUMNS) return 1;
    struct update u = {.rows = rows, .columns = columns, .number = number, .run = kind ? adam_block : sgd_block};
    memcpy(u.option, option, sizeof u.option);
    long *first = malloc((rows + 1) * sizeof(long)), blocks = 0, total = 0;
    if (!first) return 1;
    for (long r = 0; r < rows; r++) {
        long size = -1;
        for (long c = 0; c < columns; c++) {
            const struct array *a = arrays[c * rows + r];
            long n = 1;
            for (int d = 0; d < a->nd; d++) n *= a->dims[d];
            int needed = c < columns - 1 ? CONTIGUOUS | ALIGNED | WRITEABLE : CONTIGUOUS | ALIGNED;
            if (a->dtype != dtype || (a->flags & needed) != needed || (c && n != size)) {
                free(first);
                return 1;
            }
            size = n;
        }
        first[r] = blocks;
        blocks += (size + BLOCK - 1) / BLOCK;
        total += size;
    }
    first[rows] = blocks;
    u.first = first;
    for (long c = 0; c < columns; c++) u.at[c] = arrays + c * rows;
    if (blocks && total < (1L << 15)) update_blocks(&u, 0, blocks, 0);
    else if (blocks) mt_share(blocks, update_blocks, &u);
    free(first);
    return 0;
}

/* ------------------------------------------------------------------ casts */
#define PLAIN 16            /* kinds from here on convert between C types, with C's semantics */
enum { BOOL, U8, I8, I16, I32, I64, F32, F64, KINDS };

struct cast {
    int kind;
    const void *from;
    void *to;
    long n;
};

#define TO(F, T, code) case code: for (; i < end; i++) ((T *)k->to)[i] = (T)((const F *)k->from)[i]; break;
#define TO_WIDE(F) TO(F, int32_t, I32) TO(F, int64_t, I64) TO(F, float, F32) TO(F, double, F64)
#define FROM_INTEGER(F, code) case code: switch (to) { TO(F, uint8_t, U8) TO(F, int8_t, I8) TO(F, int16_t, I16) TO_WIDE(F) } break;
#define FROM_REAL(F, code) case code: switch (to) { TO_WIDE(F) } break;

static void cast_plain(void *ctx, long start, long stop, int who) {
    const struct cast *k = ctx;
    const int to = (k->kind - PLAIN) % KINDS;
    long i = start * BLOCK, end = stop * BLOCK < k->n ? stop * BLOCK : k->n;
    (void)who;
    switch ((k->kind - PLAIN) / KINDS) {
    FROM_INTEGER(uint8_t, BOOL)
    FROM_INTEGER(uint8_t, U8)
    FROM_INTEGER(int8_t, I8)
    FROM_INTEGER(int16_t, I16)
    FROM_INTEGER(int32_t, I32)
    FROM_INTEGER(int64_t, I64)
    FROM_REAL(float, F32)
    FROM_REAL(double, F64)
    }
}

static void cast_blocks(void *ctx, long start, long stop, int who) {
    const struct cast *k = ctx;
    (void)who;
    long i = start * BLOCK, end = stop * BLOCK < k->n ? stop * BLOCK : k->n;
    if (k->kind == 0) {
        const uint16_t *restrict a = k->from;
        uint32_t *restrict b = k->to;
        for (; i < end; i++) b[i] = (uint32_t)a[i] << 16;
    } else if (k->kind == 1) {
        const uint32_t *restrict a = k->from;
        uint16_t *restrict b = k->to;
        for (; i < end; i++) {
            uint32_t u = a[i];
            /* rounds to nearest even; all NaNs become one */
            b[i] = (u & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
        }
    }
#ifdef __F16C__
    else if (k->kind == 2) {
        const uint16_t *restrict a = k->from;
        float *restrict b = k->to;
        for (; i + 8 <= end; i += 8) _mm256_storeu_ps(b + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(a + i))));
        for (; i < end; i++) b[i] = _cvtsh_ss(a[i]);
    } else {
        const float *restrict a = k->from;
        uint16_t *restrict b = k->to;
        for (; i + 8 <= end; i += 8) _mm_storeu_si128((__m128i *)(b + i), _mm256_cvtps_ph(_mm256_loadu_ps(a + i), 0));
        for (; i < end; i++) b[i] = _cvtss_sh(a[i], 0);
    }
#endif
}

/* kind: 0 bfloat16 to float32, 1 back, 2 float16 to float32, 3 back, or PLAIN + KINDS * (source
   type) + (target type). Returns 1 if the processor lacks the instruction, if C leaves the result
   undefined, and for bools, for which NumPy's loops are faster. */
int mt_cast(int kind, const void *from, void *to, long n) {
#ifndef __F16C__
    if (kind > 1 && kind < PLAIN) return 1;
#endif
    struct cast k = {kind, from, to, n};
    long blocks = (n + BLOCK - 1) / BLOCK;
    piece fn = kind < PLAIN ? cast_blocks : cast_plain;
    if (kind >= PLAIN && (kind - PLAIN) % KINDS < (kind < PLAIN + F32 * KINDS ? U8 : I32)) return 1;
    if (n < 1L << 16) fn(&k, 0, blocks, 0);
    else mt_share(blocks, fn, &k);
    return 0;
}

/* ------------------------------------------------------------------ elementwise */
struct pass {
    int kind, single;       /* single: b is a single value */
    const float *a, *b;
    float *to;
    long n;
};
#define PASS(k, expression)                                                                                                        \
    case k:                                                                                                                        \
        if (p->single) {                                                                                                           \
            const float y = *p->b;                                                                                                 \
            for (long i = from; i < end; i++) { const float x = a[i]; to[i] = expression; }                                        \
        } else {                                                                                                                   \
            for (long i = from; i < end; i++) { const float x = a[i], y = b[i]; to[i] = expression; }                              \
        }                                                                                                                          \
        break;

static void pass_blocks(void *ctx, long start, long stop, int who) {
    const struct pass *p = ctx;
    (void)who;
    const float *a = p->a, *b = p->b;       /* the result may be one of them */
    float *to = p->to;
    const long from = start * BLOCK, end = stop * BLOCK < p->n ? stop * BLOCK : p->n;
    switch (p->kind) {
        PASS(0, x <= y ? y : x) /* the larger one, for a y that is not nan; nan in x is preserved */
        PASS(1, x <= 0 ? 0 : y)             /* y where x is positive */
    }
}

/* An elementwise pass over n elements. */
void mt_pass(int kind, const float *a, const float *b, int single, float *to, long n) {
    struct pass p = {kind, single, a, b, to, n};
    mt_share((n + BLOCK - 1) / BLOCK, pass_blocks, &p);
}

/* A ufunc's inner loop for one element type, as stored by NumPy, and the sizes of the operands' and
   the result's elements. */
typedef void (*inner)(char **at, const intptr_t *n, const intptr_t *steps, void *data);
struct inner_loop {
    inner fn;
    void *data;
    long operands, sizes[3];
};
struct ufunc {
    const struct inner_loop *loop;
    char *at[3];
    intptr_t steps[3], n;
};

static void ufunc_blocks(void *ctx, long start, long stop, int who) {
    const struct ufunc *u = ctx;
    (void)who;
    const intptr_t from = start * BLOCK, n = (stop * BLOCK < u->n ? stop * BLOCK : u->n) - from;
    char *at[3];
    for (int i = 0; i <= u->loop->operands; i++) at[i] = u->at[i] + from * u->steps[i];
    u->loop->fn(at, &n, u->steps, u->loop->data);
}

/* to = the ufunc of a and b (null: unary). Each operand has the shape and memory order of `to`, or
   one element. Returns 1, without doing anything, if unsupported: the result has gaps, or an
   operand partly overlaps it. */
int mt_ufunc(const struct inner_loop *loop, const struct array *to, const struct array *a, const struct array *b) {
    const struct array *in[2] = {a, b};
    struct ufunc u = {.loop = loop, .n = 1};
    const long size = loop->sizes[loop->operands];
    long reach = 1;
    if (~to->flags & (ALIGNED | WRITEABLE)) return 1;
    for (int d = 0; d < to->nd; d++) {
        if (to->dims[d] > 1) {
            if (to->strides[d] <= 0) return 1;
            reach += (to->dims[d] - 1) * (to->strides[d] / size);
        }
        u.n *= to->dims[d];
    }
    if (!u.n) return 0;
    if (reach != u.n) return 1;
    u.at[loop->operands] = to->data, u.steps[loop->operands] = size;
    for (int i = 0; i < loop->operands; i++) {
        const struct array *x = in[i];
        long n = 1;
        if (!(x->flags & ALIGNED)) return 1;
        for (int d = 0; d < x->nd; d++) n *= x->dims[d];
        u.at[i] = x->data;
        if (n == 1 && x->nd <= to->nd) continue;
        if (x->nd != to->nd) return 1;
        for (int d = 0; d < to->nd; d++)
            if (x->dims[d] != to->dims[d] || (to->dims[d] > 1 && x->strides[d] * size != to->strides[d] * loop->sizes[i])) return 1;
        u.steps[i] = loop->sizes[i];
        if (x->data != to->data && x->data < to->data + u.n * size && to->data < x->data + n * loop->sizes[i]) return 1;
        if (x->data == to->data && loop->sizes[i] != size) return 1;
    }
    mt_share((u.n + BLOCK - 1) / BLOCK, ufunc_blocks, &u);
    return 0;
}

struct lines { const struct inner_loop *loop; char *at; long n, inner; };

static void running(void *ctx, long start, long stop, int who) {
    const struct lines *k = ctx;
    const long size = k->loop->sizes[0];
    const intptr_t step = k->inner * size, steps[3] = {step, step, step}, count = k->n - 1;
    (void)who;
    for (long i = start; i < stop; i++) {
        char *p = k->at + (i / k->inner * k->inner * k->n + i % k->inner) * size, *at[3] = {p, p + step, p + step};
        k->loop->fn(at, &count, steps, k->loop->data);
    }
}

/* a[k] = the ufunc of a[k - 1] and a[k] along an axis of a C-contiguous array, in order. Returns 1,
   without doing anything, if unsupported. */
int mt_accumulate(const struct inner_loop *loop, const struct array *a, int axis) {
    struct lines k = {loop, a->data, 1, 1};
    long outer = 1;
    const int needed = CONTIGUOUS | ALIGNED | WRITEABLE;
    if ((a->flags & needed) != needed || loop->operands != 2 || loop->sizes[0] != loop->sizes[2] || axis < 0 || axis >= a->nd) return 1;
    k.n = a->dims[axis];
    for (int d = 0; d < axis; d++) outer *= a->dims[d];
    for (int d = axis + 1; d < a->nd; d++) k.inner *= a->dims[d];
    if (k.n > 1 && outer * k.inner) mt_share(outer * k.inner, running, &k);
    return 0;
}
