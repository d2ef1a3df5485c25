/* Functions of float that become vectors: their loops have neither calls nor branches.  Errors are at most 2 units in the last place. */
ALWAYS uint32_t bits_of(f32 x) { uint32_t b; memcpy(&b, &x, 4); return b; }
ALWAYS f32 float_of(uint32_t b) { f32 x; memcpy(&x, &b, 4); return x; }

/* exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1) with |r| <= log(2) / 2: 2^n is a * b, exp(r) - 1 is p */
typedef struct { f32 a, b, p; } Power;
ALWAYS Power power_of(f32 x) {
    x = x > 88.8f ? 88.8f : x;
    x = x < -104.0f ? -104.0f : x;                                  /* (nan stays) */
    const f32 t = fmaf(x, 1.44269504088896341f, 12582912.0f);       /* rounded to a whole number, in the lowest bits */
    const f32 n = t - 12582912.0f;
    f32 r = fmaf(n, -0.693145752f, x);
    r = fmaf(n, -1.42860677e-6f, r);
    const uint32_t i = bits_of(t) - 0x4B400000u, h = (uint32_t)((int32_t)i >> 1);
    f32 p = fmaf(r, 1.98412698e-4f, 1.38888889e-3f);
    p = fmaf(p, r, 8.33333333e-3f);
    p = fmaf(p, r, 4.16666667e-2f);
    p = fmaf(p, r, 1.66666667e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p * r, r, r);
    return (Power){float_of((h + 127u) << 23), float_of((i - h + 127u) << 23), p};
}
ALWAYS f32 exp_f32(f32 x) {
    const Power e = power_of(x);
    const f32 r = fmaf(e.a, e.p, e.a) * e.b;
    return x > 88.722839f ? INFINITY : r;
}
ALWAYS f32 expm1_f32(f32 x) {
    const Power e = power_of(x);
    const f32 s = e.a * e.b;
    const f32 r = x > 20 ? fmaf(e.a, e.p, e.a) * e.b : fmaf(s, e.p, s - 1);
    return x == 0 ? x : r;
}
/* log(1 + u) for 0 <= u <= 1, as 2 atanh(u / (2 + u)) */
ALWAYS f32 log1p_f32(f32 u) {
    const f32 s = u / (u + 2), t = s * s;
    f32 p = fmaf(t, 0.0666666667f, 0.0769230769f);
    p = fmaf(p, t, 0.0909090909f);
    p = fmaf(p, t, 0.111111111f);
    p = fmaf(p, t, 0.142857143f);
    p = fmaf(p, t, 0.2f);
    p = fmaf(p, t, 0.333333333f);
    p = p * t * s;
    return 2 * (s + p);
}
/* from exp(-2 |x|) - 1 */
ALWAYS f32 tanh_f32(f32 x) {
    const f32 e = expm1_f32(-2 * fabsf(x));
    return copysignf(-e / (e + 2), x);
}
/* tanh(x p(x^2)) with p as in backend/cpu/heavy.py */
ALWAYS f32 error_f32(f32 x) {
    const f32 t = x * x;
    f32 p = fmaf(t, 1.4185437486975784e-07f, -5.66850547918735e-06f);
    p = fmaf(p, t, 8.763742678908294e-05f);
    p = fmaf(p, t, -0.0006197845373959508f);
    p = fmaf(p, t, -0.0001918316368721847f);
    p = fmaf(p, t, 0.10276905650201111f);
    p = fmaf(p, t, 1.1283792741847753f);
    return tanh_f32(x * p);
}
/* the probability that a standard normal number is below x, and its density there */
ALWAYS f32 normal_cdf_f32(f32 x) { return 0.5f * (1 + error_f32(x * 0.70710678118654752f)); }
ALWAYS f32 normal_pdf_f32(f32 x) { return 0.3989422804014327f * exp_f32(-0.5f * x * x); }
ALWAYS f32 logistic_f32(f32 x) { return 1 / (1 + exp_f32(-x)); }
/* Gelu by tanh is x times the logistic function of twice what tanh is passed: exact where 1 + tanh would cancel.  Its slope is nan far out, as torch's. */
ALWAYS f32 gelu_logistic_f32(f32 x) { return logistic_f32(2 * x * fmaf(x * x, 0.035677408136300125f, 0.7978845608028654f)); }
ALWAYS f32 gelu_slope_f32(f32 x) {
    const f32 s = gelu_logistic_f32(x);
    return s + 2 * x * s * (1 - s) * fmaf(x * x, 0.10703222440890037f, 0.7978845608028654f);
}
ALWAYS f32 silu_slope_f32(f32 x) { const f32 s = logistic_f32(x); return s * (1 + x * (1 - s)); }
ALWAYS f32 logistic_slope_f32(f32 x) { const f32 s = logistic_f32(x); return s * (1 - s); }

/* Remainders and whole quotients of floats through double, where the product of a quotient below 2^28 (for the quotient itself 2^21) and a divisor is
   exact; a block with other quotients goes through fmod, element by element, as Python does it. */
static void divided_f32(const f32 *x, const f32 *y, f32 *to, long n, const int quotient) {
    const f64 most = quotient ? 0x1p21 : 0x1p28;
    f32 room[256];
    for (long b = 0; b < n; b += 256) {
        const long m = n - b < 256 ? n - b : 256;
        int far = 0;
        _Pragma("omp simd reduction(| : far)") for (long i = 0; i < m; i++) {
            const f64 d = y[b + i], a = x[b + i], q = floor(a / d), r = a - q * d;
            const f64 over = r * d < 0 ? 1 : 0;         /* (the quotient was rounded up to a whole number) */
            far |= !(fabs(q) < most) | !(fabs(d) < INFINITY);
            room[i] = quotient ? (f32)(q - over) : copysignf((f32)(r + over * d), y[b + i]);
        }
        if (far)
            for (long i = 0; i < m; i++) {
                const f32 d = y[b + i], a = x[b + i];
                f32 r = fmodf(a, d), q = (a - r) / d;
                if (r != 0 && (d < 0) != (r < 0)) r += d, q -= 1;
                else if (r == 0) r = copysignf(0, d);
                const f32 whole = floorf(q);
                q = d == 0 ? a / d : q == 0 ? copysignf(0, a / d) : q - whole > 0.5f ? whole + 1 : whole;
                room[i] = quotient ? q : d == 0 ? NAN : r;
            }
        memcpy(to + b, room, m * sizeof *to);
    }
}
