/* Shared by the kernels: vectors, threads, scratch memory. */
#include <math.h>
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
typedef int vi __attribute__((vector_size(VL * 4), aligned(4), may_alias));
#define LOAD(p) (*(const vf *)(p))
#define STORE(p, v) (*(vf *)(p) = (v))
#define UNROLL _Pragma("GCC unroll 32")
#define TILE (VL * VB)
#define PRAGMA(x) _Pragma(#x)
#define SUM(...) PRAGMA(omp simd reduction(+ : __VA_ARGS__))
#define ROUND(n, k) (((n) + (k) - 1) / (k) * (k))

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
static void (*share)(long n, piece fn, void *ctx);      /* mt_share and mt_parts of thread_pool.c */
static int (*parts)(long n);

void mt_use(void (*share_)(long, piece, void *), int (*parts_)(long)) {
    share = share_;
    parts = parts_;
}

static __thread float *room_[4];
static __thread size_t room_size[4];
/* scratch buffer k of this thread */
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


/* 1 if n integers at these addresses have the expected values: dict version tags
   (torch/_dynamo/_guards.py) */
int mt_same(const unsigned long long *const *at, const unsigned long long *want, long n) {
    unsigned long long differ = 0;
    for (long i = 0; i < n; i++) differ |= *at[i] ^ want[i];
    return !differ;
}
