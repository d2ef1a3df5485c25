/* Functions of vectors vf (VL floats; vi: as many integers). EXP(x) is the exponential used in the
   logistic function and tanh: clamped_exp, or a more complete one that the including file defines. */
#ifndef EXP
#define EXP(x) clamped_exp(x)
#endif
static inline vf pick(vi m, vf a, vf b) { return (vf)((m & (vi)a) | (~m & (vi)b)); }
static inline vf same(float x) { return x - (vf){0}; }

static inline vf clamped_exp(vf x) {
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
static inline vf vsigmoid(vf x) { return 1.0f / (1.0f + EXP(-x)); }
static inline vf vtanh(vf x) {
    vf e = EXP(x * 2.0f), s = x * x;
    vf big = 1.0f - 2.0f / (e + 1.0f);
    /* power series, where the formula above suffers cancellation */
    vf p = s * 3.5921280e-3f - 8.8632355e-3f;
    p = p * s + 2.1869489e-2f;
    p = p * s - 5.3968254e-2f;
    p = p * s + 1.3333333e-1f;
    p = p * s - 3.3333333e-1f;
    return pick(s < 0.1225f, x + x * s * p, big);
}
