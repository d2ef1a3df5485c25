/* Selection between elements of T by a mask; see copy_pad_grid.c. */

ALWAYS void NAME(choose)(const u8 *mask, const T *a, const T *b, T *to, long n, const int wide_a, const int wide_b) {
    const T one_a = *a, one_b = *b;
    for (long i = 0; i < n; i++) {
        const T x = wide_a ? a[i] : one_a, y = wide_b ? b[i] : one_b;
        to[i] = mask[i] ? x : y;
    }
}

static void NAME(chosen)(void *ctx, long start, long stop, int who) {
    const Choice *k = ctx;
    const long from = start * PIECE, n = (stop * PIECE < k->n ? stop * PIECE : k->n) - from;
    const T *a = (const T *)k->a + (k->wide_a ? from : 0), *b = (const T *)k->b + (k->wide_b ? from : 0);
    T *to = (T *)k->to + from;
    (void)who;
    if (k->wide_a && k->wide_b) NAME(choose)(k->mask + from, a, b, to, n, 1, 1);
    else if (k->wide_a) NAME(choose)(k->mask + from, a, b, to, n, 1, 0);
    else if (k->wide_b) NAME(choose)(k->mask + from, a, b, to, n, 0, 1);
    else NAME(choose)(k->mask + from, a, b, to, n, 0, 0);
}
static void NAME(chosen_all)(Choice *k) { shared((k->n + PIECE - 1) / PIECE, k->n, NAME(chosen), k); }
