/* What generated loops (backend/joint/fusion.py) are made of: each line of _loops_table.h as a function of one element, and some more functions.
 *
 * A generated file includes this and has one function a loop; it is compiled with -ffp-contract=off, as the loops of single ops are.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "_common_share.h"

typedef float f32;
typedef double f64;

#include "_loops_functions.h"

#define PIECE 4096          /* elements of a row that runs on without an end that a thread takes at once */

#define REAL 4
#define T f32
#define F(name) name##f
#define FUNCTION(name, expression)                                                                                                  \
    ALWAYS f32 op_##name(const f32 x, const f32 y, const f32 z, const f32 p, const f32 q, const f32 r) {                            \
        (void)x, (void)y, (void)z, (void)p, (void)q, (void)r;                                                                       \
        return (f32)(expression);                                                                                                   \
    }
#define ONE(name, expression) FUNCTION(name, expression)
#define TWO(name, expression) FUNCTION(name, expression)
#define PAIR(name, expression) FUNCTION(name, expression)
#define THREE(name, expression) FUNCTION(name, expression)
#define WHOLE(name, call)
#include "_loops_table.h"

/* log(x) = e log(2) + 2 atanh((m - 1) / (m + 1)) with m of 0.7 to 1.4 */
ALWAYS f32 log_f32(const f32 x) {
    const int small = x < 1.17549435e-38f;
    const uint32_t u = small ? bits_of(x * 8388608.0f) : bits_of(x), b = u - 0x3F3504F3u;       /* (from sqrt(1/2) on) */
    const f32 e = (f32)((int32_t)b >> 23) - (small ? 23.0f : 0.0f), m = float_of((b & 0x7FFFFFu) + 0x3F3504F3u);
    const f32 s = (m - 1) / (m + 1), t = s * s;
    f32 p = fmaf(t, 0.15313837f, 0.18183571f);
    p = fmaf(p, t, 0.22222198f);
    p = fmaf(p, t, 0.28571430f);
    p = fmaf(p, t, 0.4f);
    p = fmaf(p, t, 0.66666667f);
    const f32 r = fmaf(e, 0.693145752f, fmaf(s * t, p, fmaf(e, 1.42860677e-6f, 2 * s)));
    return x < 0 || x != x ? NAN : x == 0 ? -INFINITY : x > 3.4028235e38f ? INFINITY : r;
}
FUNCTION(exp, exp_f32(x))
FUNCTION(expm1, expm1_f32(x))
FUNCTION(log, log_f32(x))
FUNCTION(tanh, tanh_f32(x))
FUNCTION(neg, -x)
FUNCTION(abs, fabsf(x))
