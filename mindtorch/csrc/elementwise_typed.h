/* For one T: see elementwise.c. */
#define NUMBERS const T p = (T)v[0], q = (T)v[1], r = (T)v[2]; (void)p, (void)q, (void)r;
#define ONE(name, expression)                                                                                                       \
    static void NAME(loop_##name)(const void *a, const void *b, const void *c, void *o, long n, const f64 *v) {                            \
        const T *xs = a; T *to = o; (void)b, (void)c; NUMBERS                                                                       \
        _Pragma("omp simd") for (long i = 0; i < n; i++) { const T x = xs[i]; to[i] = expression; }                                 \
    }
#define TWO(name, expression)                                                                                                       \
    static void NAME(loop_##name)(const void *a, const void *b, const void *c, void *o, long n, const f64 *v) {                            \
        const T *xs = a, *ys = b; T *to = o; (void)c; NUMBERS                                                                       \
        _Pragma("omp simd") for (long i = 0; i < n; i++) { const T x = xs[i], y = ys[i]; to[i] = expression; }                      \
    }
#define PAIR(name, expression) TWO(name, expression)                                                                                \
    static void NAME(loop_##name##_single)(const void *a, const void *b, const void *c, void *o, long n, const f64 *v) {                   \
        const T *xs = a, y = *(const T *)b; T *to = o; (void)c; NUMBERS                                                             \
        _Pragma("omp simd") for (long i = 0; i < n; i++) { const T x = xs[i]; to[i] = expression; }                                 \
    }
#define THREE(name, expression)                                                                                                     \
    static void NAME(loop_##name)(const void *a, const void *b, const void *c, void *o, long n, const f64 *v) {                            \
        const T *xs = a, *ys = b, *zs = c; T *to = o; NUMBERS                                                                       \
        _Pragma("omp simd") for (long i = 0; i < n; i++) { const T x = xs[i], y = ys[i], z = zs[i]; to[i] = expression; }           \
    }
#define WHOLE(name, call)                                                                                                           \
    static void NAME(loop_##name)(const void *x, const void *y, const void *z, void *to, long n, const f64 *v) { (void)z, (void)v; call; }
#include "elementwise_table.h"
#undef ONE
#undef TWO
#undef PAIR
#undef THREE
#undef WHOLE

#define ONE(name, expression) {#name, 1, NAME(loop_##name), 0},
#define TWO(name, expression) {#name, 2, NAME(loop_##name), 0},
#define PAIR(name, expression) {#name, 2, NAME(loop_##name), NAME(loop_##name##_single)},
#define THREE(name, expression) {#name, 3, NAME(loop_##name), 0},
#define WHOLE(name, call) {#name, 2, NAME(loop_##name), 0},
static const Entry NAME(table)[] = {
#include "elementwise_table.h"
};
#undef ONE
#undef TWO
#undef PAIR
#undef THREE
#undef WHOLE
#undef NUMBERS
