/* Vectorizable functions of float, without calls or branches. Errors are at most 2 ulp. */
ALWAYS uint32_t bits_of(f32 x) { uint32_t b; memcpy(&b, &x, 4); return b; }
ALWAYS f32 float_of(uint32_t b) { f32 x; memcpy(&x, &b, 4); return x; }

/* exp(r) - 1 for |r| <= log(2) / 2 */
ALWAYS f32 small_power_f32(f32 r) {
    f32 p = fmaf(r, 1.98412698e-4f, 1.38888889e-3f);
    p = fmaf(p, r, 8.33333333e-3f);
    p = fmaf(p, r, 4.16666667e-2f);
    p = fmaf(p, r, 1.66666667e-1f);
    p = fmaf(p, r, 0.5f);
    return fmaf(p * r, r, r);
}
/* exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1) with |r| <= log(2) / 2: 2^n is a * b, exp(r) - 1 is p */
typedef struct { f32 a, b, p; } Power;
ALWAYS Power power_of(f32 x) {
    x = x > 90.0f ? 90.0f : x;
    x = x < -104.0f ? -104.0f : x;                                  /* (nan is preserved) */
    /* rounded to an integer, in the lowest bits */
    const f32 t = fmaf(x, 1.44269504088896341f, 12582912.0f);
    const f32 n = t - 12582912.0f;
    f32 r = fmaf(n, -0.693145752f, x);
    r = fmaf(n, -1.42860677e-6f, r);
    const uint32_t i = bits_of(t) - 0x4B400000u, h = (uint32_t)((int32_t)i >> 1);
    return (Power){float_of((h + 127u) << 23), float_of((i - h + 127u) << 23), small_power_f32(r)};
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
/* 2^x; exact for integers */
ALWAYS f32 exp2_f32(f32 x) {
    f32 c = x > 129 ? 129 : x;
    c = c < -151 ? -151 : c;
    const f32 n = c + 12582912.0f - 12582912.0f, r = (c - n) * 0.693147181f;
    const int32_t i = (int32_t)n, h = i >> 1;
    const f32 a = float_of((uint32_t)(h + 127) << 23), b = float_of((uint32_t)(i - h + 127) << 23);
    return x != x ? x : fmaf(a, small_power_f32(r), a) * b;
}
/* (2 atanh(s) - 2 s) / s^3 as a function of s^2, up to the s of sqrt(2) */
ALWAYS f32 log_series_f32(f32 t) {
    f32 p = fmaf(t, 0.181818182f, 0.222222222f);
    p = fmaf(p, t, 0.285714286f);
    p = fmaf(p, t, 0.4f);
    return fmaf(p, t, 0.666666667f);
}
/* x = 2^e m with m in about 0.7 to 1.4 */
typedef struct { f32 e, m; } Scaled;
ALWAYS Scaled scaled_of(const f32 x) {
    const int small = x < 1.17549435e-38f;
    /* (from sqrt(1/2) on) */
    const uint32_t u = small ? bits_of(x * 8388608.0f) : bits_of(x), b = u - 0x3F3504F3u;
    return (Scaled){(f32)((int32_t)b >> 23) - (small ? 23.0f : 0.0f), float_of((b & 0x7FFFFFu) + 0x3F3504F3u)};
}
/* Likewise x = 2^e (1 + f), and log(1 + f) = f + rest */
typedef struct { f32 e, f, rest; } Logarithm;
ALWAYS Logarithm logarithm_of(const f32 x) {
    const Scaled c = scaled_of(x);
    const f32 f = c.m - 1, s = f / (2 + f), t = s * s, half = 0.5f * f * f;
    return (Logarithm){c.e, f, s * fmaf(log_series_f32(t), t, half) - half};
}
ALWAYS f32 log_ends_f32(const f32 x, const f32 r) { return x < 0 || x != x ? NAN : x == 0 ? -INFINITY : x > 3.4028235e38f ? INFINITY : r; }
ALWAYS f32 log_f32(const f32 x) {
    const Logarithm l = logarithm_of(x);
    return log_ends_f32(x, fmaf(l.e, 0.693145752f, l.f + fmaf(l.e, 1.42860677e-6f, l.rest)));
}
/* (1 / log(2) and 1 / log(10) are a float plus its rounding error; e * 0.3010254 is exact) */
ALWAYS f32 log2_f32(const f32 x) {
    const Logarithm l = logarithm_of(x);
    return log_ends_f32(x, l.e + fmaf(l.f, 1.44269502f, fmaf(l.f, 1.92596303e-8f, l.rest * 1.44269502f)));
}
ALWAYS f32 log10_f32(const f32 x) {
    const Logarithm l = logarithm_of(x);
    return log_ends_f32(x, fmaf(l.e, 0.301025391f, fmaf(l.f, 0.434294492f, fmaf(l.e, 4.60503835e-6f, fmaf(l.f, -1.01055599e-8f, l.rest * 0.434294492f)))));
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
/* log(1 + x) for any x: 1 + x is 2^k (1 + f) with 1 + f around 1; d is the rounding error of 1 +
   x */
ALWAYS f32 log_after_one_f32(f32 x) {
    const f32 u = 1 + x, d = (x >= 1 ? 1 - (u - x) : x - (u - 1)) / u;
    const int32_t k = (int32_t)(bits_of(u) - 0x3F3504F3u) >> 23;
    const f32 f = float_of(bits_of(u) - ((uint32_t)k << 23)) - 1, n = (f32)k, half = 0.5f * f * f;
    const f32 s = f / (2 + f), t = s * s;
    const f32 r = fmaf(n, 0.693145752f, f - (half - fmaf(s, fmaf(log_series_f32(t), t, half), fmaf(n, 1.42860677e-6f, d))));
    return x == 0 || x == INFINITY ? x : x == -1 ? -INFINITY : x < -1 ? NAN : r;
}
/* exp(x) / 2 for x >= 0, finite wherever sinh is; hyperbolic functions and their inverses. */
ALWAYS f32 half_exp_f32(f32 x) {
    const Power e = power_of(x);
    const f32 r = fmaf(e.a, e.p, e.a) * (0.5f * e.b);
    return x > 89.415985f ? INFINITY : r;
}
ALWAYS f32 sinh_f32(f32 x) {
    const Power e = power_of(fabsf(x));
    const f32 s = e.a * e.b, less = fmaf(s, e.p, s - 1);            /* (exp(x) - 1) */
    const f32 near = 0.5f * (less + less / (less + 1)), far = fmaf(e.a, e.p, e.a) * (0.5f * e.b);
    return x == 0 || x != x ? x : copysignf(fabsf(x) > 89.415985f ? INFINITY : fabsf(x) > 9 ? far : near, x);
}
ALWAYS f32 cosh_f32(f32 x) {
    const f32 h = half_exp_f32(fabsf(x));
    return h + 0.25f / h;
}
ALWAYS f32 asinh_f32(f32 x) {
    const f32 a = fabsf(x), b = a > 1e9f ? 1 : a, square = b * b;
    const f32 r = log_after_one_f32(a > 1e9f ? a : a + square / (1 + sqrtf(square + 1)));
    return x == 0 || x != x ? x : copysignf(a > 1e9f ? r + 0.693147181f : r, x);
}
ALWAYS f32 acosh_f32(f32 x) {
    const f32 t = x - 1, b = t > 1e9f ? 1 : t;
    const f32 r = log_after_one_f32(t > 1e9f ? t : b + sqrtf(2 * b + b * b));
    return x < 1 ? NAN : t > 1e9f ? r + 0.693147181f : r;
}
ALWAYS f32 atanh_f32(f32 x) {
    const f32 a = fabsf(x), r = 0.5f * log_after_one_f32(2 * a / (1 - a));
    return x == 0 || x != x ? x : a > 1 ? NAN : copysignf(r, x);
}
/* atan(a / b) for 0 <= a <= b; from tan(pi / 8) on as pi / 4 + atan((a - b) / (a + b)). The
 * coefficients minimize the largest relative error (2e-8).
 */
ALWAYS f32 atan_part_f32(f32 a, f32 b) {
    const int far = a > 0.414213562f * b;
    const f32 x = (far ? a - b : a) / (far ? a + b : b), t = x * x;
    f32 p = fmaf(t, 0.0805992335f, -0.138797387f);
    p = fmaf(p, t, 0.199779168f);
    p = fmaf(p, t, -0.333329558f);
    const f32 r = fmaf(p * t, x, x);
    return far ? 0.785398185f + (r - 2.18556941e-8f) : r;
}
ALWAYS f32 atan_f32(f32 x) {
    const f32 a = fabsf(x);
    const int over = a > 1;
    const f32 r = atan_part_f32(over ? (a < INFINITY ? 1 : 0) : a, over ? a : 1);
    return x != x ? x : copysignf(over ? 1.57079637f - (r + 4.37113883e-8f) : r, x);
}
ALWAYS f32 atan2_f32(f32 y, f32 x) {
    f32 a = fabsf(y), b = fabsf(x);
    const int steep = a > b;
    f32 low = steep ? b : a, high = steep ? a : b;
    const f32 scale = high > 8.5e37f ? 0.25f : 1;                   /* (their sum must be finite) */
    low *= scale, high *= scale;
    high = low == high ? (low = low > 0 ? 1 : 0, 1) : high;         /* (two zeros, two infinities) */
    f32 r = atan_part_f32(high < INFINITY ? low : 0, high < INFINITY ? high : 1);
    r = steep ? 1.57079637f - (r + 4.37113883e-8f) : r;
    r = copysignf(1, x) < 0 ? 3.14159274f - (r + 8.74227766e-8f) : r;
    return x != x || y != y ? x + y : copysignf(r, y);
}
/* asin(x) for 0 <= x <= 1/2, fitted likewise (5e-9); beyond that pi / 2 - 2 asin(sqrt((1 - x) /
   2)) */
ALWAYS f32 asin_part_f32(f32 x) {
    const f32 t = x * x;
    f32 p = fmaf(t, 0.0422185659f, 0.0241476018f);
    p = fmaf(p, t, 0.0454770997f);
    p = fmaf(p, t, 0.0749524161f);
    p = fmaf(p, t, 0.166667536f);
    return fmaf(p * t, x, x);
}
ALWAYS f32 asin_f32(f32 x) {
    const f32 a = fabsf(x);
    const int far = a > 0.5f;
    const f32 r = asin_part_f32(far ? sqrtf(0.5f * (1 - a)) : a);
    return x != x ? x : copysignf(far ? 1.57079637f - (2 * r + 4.37113883e-8f) : r, x);
}
ALWAYS f32 acos_f32(f32 x) {
    const f32 a = fabsf(x);
    const int far = a > 0.5f;
    const f32 r = asin_part_f32(far ? sqrtf(0.5f * (1 - a)) : a);
    return far ? (x < 0 ? 3.14159274f - (2 * r + 8.74227766e-8f) : 2 * r) : 1.57079637f - (copysignf(r, x) + 4.37113883e-8f);
}
/* from exp(-2 |x|) - 1 */
ALWAYS f32 tanh_f32(f32 x) {
    const f32 e = expm1_f32(-2 * fabsf(x));
    return copysignf(-e / (e + 2), x);
}
/* tanh(x p(x^2)) with p as in backend/cpu/special.py */
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
/* x^y = 2^(y log2 |x|), computed in double (log2 to 5e-11, the power of two to 5e-9: the remaining
   error is the rounding of the result). */
ALWAYS f64 log2_in_double(const f32 a) {
    const Scaled c = scaled_of(a);
    const f64 m = c.m, s = (m - 1) / (m + 1), t = s * s;
    f64 p = fma(t, 0.26230818925253880, 0.32059889797532520);
    p = fma(p, t, 0.41219858311113240);
    p = fma(p, t, 0.57707801635558536);
    p = fma(p, t, 0.96179669392597560);
    p = fma(p, t, 2.88539008177792681);
    return fma(p, s, c.e);
}
ALWAYS f64 exp2_in_double(f64 z) {
    z = z > 129 ? 129 : z;
    z = z < -151 ? -151 : z;
    /* (rounded, in the lowest bits) */
    const f64 whole = z + 6755399441055744.0, r = (z - (whole - 6755399441055744.0)) * 0.693147180559945309;
    uint64_t n;
    memcpy(&n, &whole, 8);
    n = (n - 0x4338000000000000u + 1023u) << 52;
    f64 scale, p = fma(r, 1.9841269841269841e-4, 1.3888888888888889e-3);
    memcpy(&scale, &n, 8);
    p = fma(p, r, 8.3333333333333333e-3);
    p = fma(p, r, 4.1666666666666667e-2);
    p = fma(p, r, 1.6666666666666667e-1);
    p = fma(p, r, 0.5);
    p = fma(p, r, 1);
    return fma(p, r, 1) * scale;
}
ALWAYS f32 pow_f32(const f32 x, const f32 y) {
    const f32 a = fabsf(x), half = 0.5f * y;
    const int whole = floorf(y) == y, odd = whole & (floorf(half) != half);
    f32 r = (f32)exp2_in_double(log2_in_double(a) * (f64)y);
    r = a == 0 ? (y < 0 ? INFINITY : 0) : a > 3.4028235e38f ? (y < 0 ? 0 : INFINITY) : a == 1 ? 1 : r;
    r = odd & (copysignf(1, x) < 0) ? -r : r;
    r = (x < 0) & (a <= 3.4028235e38f) & !whole ? NAN : r;
    r = (x != x) | (y != y) ? NAN : r;
    return (y == 0) | (x == 1) ? 1 : r;
}
/* The normal distribution's CDF and density at x, from one exponential: Abramowitz and Stegun,
 * Handbook of Mathematical Functions, 7.1.26 (error 7.5e-8; with rounding 1.9e-7). It computes the
 * lower tail directly, not as 1 minus the upper one.
 */
typedef struct { f32 below, density; } Normal;
ALWAYS Normal normal_of(f32 x) {
    const f32 e = exp_f32(-0.5f * x * x), t = 1 / fmaf(fabsf(x), 0.231641888f, 1);
    f32 p = fmaf(t, 0.5307027145f, -0.7265760135f);
    p = fmaf(p, t, 0.7107068705f);
    p = fmaf(p, t, -0.142248368f);
    p = fmaf(p, t, 0.127414796f);
    const f32 tail = p * t * e;
    return (Normal){x < 0 ? tail : 1 - tail, 0.3989422804014327f * e};
}
ALWAYS f32 gelu_f32(f32 x) { return x * normal_of(x).below; }
ALWAYS f32 exact_gelu_slope_f32(f32 x) {
    const Normal n = normal_of(x);
    return fmaf(x, n.density, n.below);
}
ALWAYS f32 logistic_f32(f32 x) { return 1 / (1 + exp_f32(-x)); }
/* tanh-gelu is x times the logistic function of twice tanh's argument: accurate where 1 + tanh
   would cancel. Its derivative is nan for large |x|, as in PyTorch. */
ALWAYS f32 gelu_logistic_f32(f32 x) { return logistic_f32(2 * x * fmaf(x * x, 0.035677408136300125f, 0.7978845608028654f)); }
ALWAYS f32 gelu_slope_f32(f32 x) {
    const f32 s = gelu_logistic_f32(x);
    return s + 2 * x * s * (1 - s) * fmaf(x * x, 0.10703222440890037f, 0.7978845608028654f);
}
ALWAYS f32 silu_slope_f32(f32 x) { const f32 s = logistic_f32(x); return s * (1 + x * (1 - s)); }
/* tanh(log(1 + e^x)) = n / (n + 2) */
ALWAYS f32 mish_value_f32(f32 x) {
    const f32 e = exp_f32(x > 20 ? 20 : x), n = e * (e + 2);
    return x * (n / (n + 2));
}
ALWAYS f32 mish_slope_f32(f32 x) {
    const f32 e = exp_f32(x > 20 ? 20 : x), n = e * (e + 2), t = n / (n + 2);
    return t + (1 - t * t) * (e / (e + 1)) * x;
}
ALWAYS f32 logistic_slope_f32(f32 x) { const f32 s = logistic_f32(x); return s * (1 - s); }

/* Remainder and floor division of floats in double, where the product of a quotient below 2^28 (for
   floor division 2^21) and a divisor is exact. A block with other quotients uses fmod per element,
   like Python. */
static void divided_f32(const f32 *x, const f32 *y, f32 *to, long n, const int quotient) {
    const f64 most = quotient ? 0x1p21 : 0x1p28;
    f32 room[256];
    for (long b = 0; b < n; b += 256) {
        const long m = n - b < 256 ? n - b : 256;
        int far = 0;
        _Pragma("omp simd reduction(| : far)") for (long i = 0; i < m; i++) {
            const f64 d = y[b + i], a = x[b + i], q = floor(a / d), r = a - q * d;
            const f64 over = r * d < 0 ? 1 : 0; /* (the quotient was rounded up to an integer) */
            far |= !(fabs(q) < most) | !(fabs(d) < INFINITY);
            const f32 left = (f32)(r + over * d); /* (a zero remainder has the dividend's sign) */
            room[i] = quotient ? (f32)(q - over) : copysignf(left, left == 0 ? x[b + i] : y[b + i]);
        }
        if (far)
            for (long i = 0; i < m; i++) {
                const f32 d = y[b + i], a = x[b + i];
                f32 r = fmodf(a, d), q = (a - r) / d;
                if (r != 0 && (d < 0) != (r < 0)) r += d, q -= 1;
                const f32 whole = floorf(q);
                q = d == 0 ? a / d : q == 0 ? copysignf(0, a / d) : q - whole > 0.5f ? whole + 1 : whole;
                room[i] = quotient ? q : d == 0 ? NAN : r;
            }
        memcpy(to + b, room, m * sizeof *to);
    }
}
