/* What the kernels share: vectors, threads, scratch memory. */
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


/* whether n integers at these addresses are those that are wanted: version tags of dicts (torch/_dynamo/_guards.py) */
int mt_same(const unsigned long long *const *at, const unsigned long long *want, long n) {
    unsigned long long differ = 0;
    for (long i = 0; i < n; i++) differ |= *at[i] ^ want[i];
    return !differ;
}
