/* One line per op: ONE, TWO, THREE operands x, y, z (PAIR: two, with a variant for a single y;
 * WHOLE: the call that processes n elements) and scalar parameters p, q, r. F(name) is the C
 * function of the type.
 *
 * Comparisons are written so that nan behaves as in PyTorch: it propagates unless stated otherwise.
 * F(fma) is used where PyTorch's vector code fuses.
 */
#define ABOVE(a, b) ((a) > (b) || (a) != (a) ? (a) : (b)) /* the larger one; nan if a is nan */
#define BELOW(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define EXTREME(pick, a, b) ((b) != (b) ? (b) : pick(a, b))
#define WITHIN(a, low, high) ((a) < (low) ? ((low) > (high) ? (high) : (low)) : (a) > (high) ? (high) : (a))

/* arithmetic */
PAIR(add, x + y)
PAIR(sub, x - y)
PAIR(mul, x * y)
PAIR(div, x / y)
PAIR(rsub, y - x)
PAIR(maximum, EXTREME(ABOVE, x, y))
PAIR(minimum, EXTREME(BELOW, x, y))
PAIR(add_scaled, F(fma)(y, p, x))
THREE(lerp, F(fma)(F(fabs)(z) < (T)0.5 ? z : z - 1, y - x, F(fabs)(z) < (T)0.5 ? x : y))
TWO(lerp_number, F(fma)(F(fabs)(p) < (T)0.5 ? p : p - 1, y - x, F(fabs)(p) < (T)0.5 ? x : y))
THREE(addcmul, F(fma)(p * y, z, x))
THREE(addcdiv, x + p * y / z)
ONE(square, x * x)
ONE(sign, (T)((x > 0) - (x < 0)))
ONE(sqrt, F(sqrt)(x))
ONE(rsqrt, 1 / F(sqrt)(x))
ONE(reciprocal, 1 / x)
ONE(clamp, WITHIN(x, p, q))
TWO(tanh_backward, x * (1 - y * y))
TWO(sigmoid_backward, x * (1 - y) * y)

/* piecewise linear activations and their gradients (x: gradient of the result, y: the operand) */
ONE(relu, x < 0 ? 0 : x)
TWO(relu_backward, y <= 0 ? 0 : x)
PAIR(prelu, x > 0 ? x : x * y)
THREE(prelu_backward, y > 0 ? x : x * z)
TWO(prelu_weight_backward, y > 0 ? 0 : x * y)
ONE(leaky_relu, x > 0 ? x : x * p)
TWO(leaky_relu_backward, y > 0 ? x : x * p)
TWO(hardtanh_backward, y <= p || y >= q ? 0 : x)
ONE(threshold, x <= p ? q : x)
TWO(threshold_backward, y <= p ? 0 : x)
ONE(hardshrink, F(fabs)(x) <= p ? 0 : x)
TWO(shrink_backward, F(fabs)(y) <= p ? 0 : x)
ONE(softshrink, x > p ? x - p : x < -p ? x + p : x * 0)
ONE(hardsigmoid, WITHIN(x + 3, 0, 6) / 6)
TWO(hardsigmoid_backward, y > -3 && y < 3 ? x * (T)(1.0 / 6) : 0)
ONE(hardswish, x * WITHIN(x + 3, 0, 6) / 6)
TWO(hardswish_backward, y <= -3 ? 0 : y >= 3 ? x : x * (y / 3 + (T)0.5))

/* losses (p: start of the linear part) and their derivatives */
TWO(l1, F(fabs)(x - y))
TWO(l1_elementwise_backward, (T)((x > y) - (x < y)))
TWO(mse, (x - y) * (x - y))
TWO(bce_elementwise_backward, (x - y) / ((1 - x) * x < (T)1e-12 ? (T)1e-12 : (1 - x) * x))
TWO(mse_elementwise_backward, (x - y) * 2)
TWO(smooth_l1, F(fabs)(x - y) < p ? (T)0.5 * (x - y) * (x - y) / p : F(fabs)(x - y) - (T)0.5 * p)
TWO(smooth_l1_elementwise_backward, WITHIN((x - y) / p, -1, 1))
TWO(huber, F(fabs)(x - y) < p ? (T)0.5 * (x - y) * (x - y) : p * (F(fabs)(x - y) - (T)0.5 * p))
TWO(huber_elementwise_backward, WITHIN(x - y, -p, p))

/* float only */
#if REAL == 4
#define LIMITED(a) ((a) < -100 ? -100 : (a)) /* loss of a probability of 0 */
WHOLE(remainder, divided_f32(x, y, to, n, 0))
WHOLE(floor_divide, divided_f32(x, y, to, n, 1))
ONE(sigmoid, logistic_f32(x))
ONE(erf, error_f32(x))
ONE(log1p, log_after_one_f32(x))
ONE(exp, exp_f32(x))
ONE(exp2, exp2_f32(x))
ONE(expm1, expm1_f32(x))
ONE(log, log_f32(x))
ONE(log2, log2_f32(x))
ONE(log10, log10_f32(x))
ONE(tanh, tanh_f32(x))
ONE(sinh, sinh_f32(x))
ONE(cosh, cosh_f32(x))
ONE(asinh, asinh_f32(x))
ONE(acosh, acosh_f32(x))
ONE(atanh, atanh_f32(x))
ONE(asin, asin_f32(x))
ONE(acos, acos_f32(x))
ONE(atan, atan_f32(x))
TWO(atan2, atan2_f32(x, y))
TWO(pow, pow_f32(x, y))
ONE(pow_number, pow_f32(x, p))
ONE(gelu, gelu_f32(x))
TWO(gelu_backward, x * exact_gelu_slope_f32(y))
ONE(gelu_tanh, x * gelu_logistic_f32(x))
TWO(gelu_tanh_backward, x * gelu_slope_f32(y))
ONE(silu, x / (1 + exp_f32(-x)))
TWO(silu_backward, x * silu_slope_f32(y))
ONE(mish, mish_value_f32(x))
TWO(mish_backward, x * mish_slope_f32(y))
TWO(bce, -(y * (LIMITED(log_f32(x)) - LIMITED(log_after_one_f32(-x))) + LIMITED(log_after_one_f32(-x))))
TWO(bce_logits, (1 - y) * x - ((x >= 0 ? 0 : x) - log1p_f32(exp_f32(-fabsf(x)))))
TWO(bce_logits_elementwise_backward, logistic_f32(x) - y)
/* p: alpha * scale, q: scale, r: input scale */
ONE(elu, x <= 0 ? expm1_f32(x * r) * p : x * q)
TWO(elu_backward, y <= 0 ? x * (r * p) * exp_f32(y * r) : x * q)
/* p: beta, q: threshold */
ONE(softplus, x * p > q ? x : ((x * p <= 0 ? 0 : x * p) + log1p_f32(exp_f32(-fabsf(x * p)))) / p)
TWO(softplus_backward, y * p > q ? x : x * logistic_f32(y * p))
ONE(log_sigmoid, (x >= 0 ? 0 : x) - log1p_f32(exp_f32(-fabsf(x))))
TWO(log_sigmoid_backward, x * ((y < 0 ? 1 : exp_f32(-fabsf(y))) / (1 + exp_f32(-fabsf(y)))))
TWO(glu, x * logistic_f32(y))
THREE(glu_elementwise_backward, x * y * logistic_slope_f32(z))
#endif
#undef ABOVE
#undef BELOW
#undef EXTREME
#undef WITHIN
#undef LIMITED
