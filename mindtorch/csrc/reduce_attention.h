/* Attention for one T, head by head; see reduce.c. EXPONENTIALS(x, n, m, to): stores e^(x - m) to
   `to` and returns the sum; TOP: the maximum, ignoring nan. */
#define V NAME(V)
#define W ((long)(BYTES / sizeof(T)))
#define ACROSS (2 * W)                  /* columns processed at once */
#define PITCH(n) (((n) + ACROSS - 1) / ACROSS * ACROSS)

/* to[r][...] = the products of `m` rows a[r * ap + i * as] with b[i][...], i < n, columns [0,
   across) of b (in steps of ACROSS) */
ALWAYS void NAME(rows_times)(const int m, const T *a, long ap, long as, const T *b, long n, long pitch, long across, T *to, long tp, T by) {
    for (long j = 0; j < across; j += ACROSS) {
        V s[4][2];
        for (int r = 0; r < m; r++) s[r][0] = s[r][1] = (V){0};
        for (long i = 0; i < n; i++) {
            const V b0 = *(const V *)(b + i * pitch + j), b1 = *(const V *)(b + i * pitch + j + W);
            _Pragma("GCC unroll 4") for (int r = 0; r < m; r++) {
                const V x = a[r * ap + i * as] - (V){0};
                s[r][0] += x * b0, s[r][1] += x * b1;
            }
        }
        _Pragma("GCC unroll 4") for (int r = 0; r < m; r++) *(V *)(to + r * tp + j) = s[r][0] * by, *(V *)(to + r * tp + j + W) = s[r][1] * by;
    }
}
static void NAME(some_rows)(long m, const T *a, long ap, long as, const T *b, long n, long pitch, long across, T *to, long tp, T by) {
    switch (m) {
        case 1: NAME(rows_times)(1, a, ap, as, b, n, pitch, across, to, tp, by); break;
        case 2: NAME(rows_times)(2, a, ap, as, b, n, pitch, across, to, tp, by); break;
        case 3: NAME(rows_times)(3, a, ap, as, b, n, pitch, across, to, tp, by); break;
        default: NAME(rows_times)(4, a, ap, as, b, n, pitch, across, to, tp, by);
    }
}

/* Replaces a row's scores x by its weights: adds the bias and computes the softmax of unmasked
   keys; the rest is zero. */
ALWAYS void NAME(weigh)(const Attend *u, long head, long row, T *x) {
    const long s = u->s, n = u->causal && row + 1 < s ? row + 1 : s;
    if (u->bias) {
        const char *b = part_of(u->bias, u->y, head) + row * step_of(u->bias, 2, 1);
        const long by = step_of(u->bias, 1, 1);
        if (u->yes) for (long j = 0; j < n; j++) x[j] += b[j * by] ? 0 : -(T)INFINITY;
        else for (long j = 0; j < n; j++) x[j] += *(const T *)(b + j * by);
    }
    T high = TOP(x, n);
    if (high == -(T)INFINITY) high = 0;
    const double sum = EXPONENTIALS(x, n, high, x);
    const T by = sum == 0 ? 0 : (T)(1 / sum);           /* (a row without any key) */
    for (long j = 0; j < n; j++) x[j] *= by;
    for (long j = n; j < s; j++) x[j] = 0;
}

/* Dot product of n elements. */
ALWAYS T NAME(dot)(const T *a, const T *b, long n) {
    V s[4] = {{0}, {0}, {0}, {0}};
    long i = 0;
    for (; i + 4 * W <= n; i += 4 * W)
        _Pragma("GCC unroll 4") for (int h = 0; h < 4; h++) s[h] += *(const V *)(a + i + h * W) * *(const V *)(b + i + h * W);
    for (; i + W <= n; i += W) s[0] += *(const V *)(a + i) * *(const V *)(b + i);
    T lanes[BYTES / sizeof(T)], r = 0;
    *(V *)lanes = (s[0] + s[1]) + (s[2] + s[3]);
    for (long j = 0; j < W; j++) r += lanes[j];
    for (; i < n; i++) r += a[i] * b[i];
    return r;
}

/* For few queries, as in token generation: keys and values, whose rows are contiguous, are read in
   place. */
static void NAME(attend_few)(void *ctx, long start, long stop, int who) {
    Attend *u = ctx;
    const long l = u->l, s = u->s, d = u->d, e = u->e;
    T *const row = malloc(sizeof(T) * (d + 1));
    (void)who;
    if (!row) { u->lost = 1; return; }
    for (long head = start; head < stop; head++) {
        const T *q = (const T *)part_of(u->q, u->y, head), *k = (const T *)part_of(u->k, u->y, head), *v = (const T *)part_of(u->v, u->y, head);
        const long ql = step_of(u->q, 2, sizeof(T)), qd = step_of(u->q, 1, sizeof(T)), ks = step_of(u->k, 2, sizeof(T)), vs = step_of(u->v, 2, sizeof(T));
        for (long i = 0; i < l; i++) {
            T *const x = (T *)u->p->data + (head * l + i) * s, *const y = (T *)u->y->data + (head * l + i) * e;
            const long n = u->causal && i + 1 < s ? i + 1 : s;
            for (long c = 0; c < d; c++) row[c] = q[i * ql + c * qd];
            for (long j = 0; j < n; j++) x[j] = NAME(dot)(row, k + j * ks, d) * (T)u->scale;
            NAME(weigh)(u, head, i, x);
            long c = 0;
            for (; c + 4 * W <= e; c += 4 * W) {
                V t[4] = {{0}, {0}, {0}, {0}};
                for (long j = 0; j < n; j++) _Pragma("GCC unroll 4") for (int h = 0; h < 4; h++) t[h] += x[j] * *(const V *)(v + j * vs + c + h * W);
                _Pragma("GCC unroll 4") for (int h = 0; h < 4; h++) *(V *)(y + c + h * W) = t[h];
            }
            for (; c + W <= e; c += W) {
                V t = {0};
                for (long j = 0; j < n; j++) t += x[j] * *(const V *)(v + j * vs + c);
                *(V *)(y + c) = t;
            }
            for (; c < e; c++) {
                T t = 0;
                for (long j = 0; j < n; j++) t += x[j] * v[j * vs + c];
                y[c] = t;
            }
        }
    }
    free(row);
}

static void NAME(attend)(void *ctx, long start, long stop, int who) {
    Attend *u = ctx;
    const long l = u->l, s = u->s, d = u->d, e = u->e, sp = PITCH(s), ep = PITCH(e);
    T *const keys = malloc(sizeof(T) * (d * sp + s * ep + 4 * sp + 4 * ep)), *const values = keys + d * sp, *const w = values + s * ep, *const r = w + 4 * sp;
    (void)who;
    if (!keys) { u->lost = 1; return; }
    for (long i = 0; i < d; i++) for (long j = s; j < sp; j++) keys[i * sp + j] = 0;
    for (long j = 0; j < s; j++) for (long i = e; i < ep; i++) values[j * ep + i] = 0;
    for (long head = start; head < stop; head++) {
        const T *q = (const T *)part_of(u->q, u->y, head), *k = (const T *)part_of(u->k, u->y, head), *v = (const T *)part_of(u->v, u->y, head);
        const long ql = step_of(u->q, 2, sizeof(T)), qd = step_of(u->q, 1, sizeof(T)), ks = step_of(u->k, 2, sizeof(T)), kd = step_of(u->k, 1, sizeof(T)),
                   vs = step_of(u->v, 2, sizeof(T)), ve = step_of(u->v, 1, sizeof(T));
        for (long j = 0; j < s; j++) for (long i = 0; i < d; i++) keys[i * sp + j] = k[j * ks + i * kd];
        for (long j = 0; j < s; j++) for (long i = 0; i < e; i++) values[j * ep + i] = v[j * vs + i * ve];
        T *const p = (T *)u->p->data + head * l * s, *const y = (T *)u->y->data + head * l * e;
        for (long i = 0; i < l; i += 4) {
            const long m = l - i < 4 ? l - i : 4, most = u->causal && i + m < s ? i + m : s;
            NAME(some_rows)(m, q + i * ql, ql, qd, keys, d, sp, PITCH(most), w, sp, (T)u->scale);
            for (long a = 0; a < m; a++) {
                T *x = w + a * sp;
                NAME(weigh)(u, head, i + a, x);
                memcpy(p + (i + a) * s, x, sizeof(T) * s);
            }
            NAME(some_rows)(m, w, sp, 1, values, s, ep, ep, r, ep, 1);
            for (long a = 0; a < m; a++) memcpy(y + (i + a) * e, r + a * ep, sizeof(T) * e);
        }
    }
    free(keys);
}
#undef V
#undef W
#undef ACROSS
#undef PITCH
