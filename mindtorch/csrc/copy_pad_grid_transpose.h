/* Transposed copies of elements of type T; see copy_pad_grid.c. */

/* Copies a tile of m rows by n: to[i, j] = from[j, i]. It uses a buffer whose pitch avoids rows
   that fall into one cache set, as with large powers of two. */
#define TILE ((long)((sizeof(T) < 8 ? 128 : 256) / sizeof(T)))
#define PITCH (TILE + (sizeof(T) < 8 ? 4 / sizeof(T) * 4 : 1))

static void NAME(tile)(const Turn *k, const char *from, char *to, long m, long n) {
    T room[TILE * PITCH];
    long j = 0;
#if defined(__AVX2__)
    if (sizeof(T) == 4 && k->fs == sizeof(T))
        for (; j + 8 <= n; j += 8) {
            long i = 0;
            for (; i + 8 <= m; i += 8) square(from + j * k->fd + i * sizeof(T), k->fd, (char *)(room + i * PITCH + j), PITCH * sizeof(T));
            for (; i < m; i++)
                for (long l = j; l < j + 8; l++) room[i * PITCH + l] = ((const T *)(from + l * k->fd))[i];
        }
#endif
    for (; j < n; j++) {
        const char *p = from + j * k->fd;
        if (k->fs == sizeof(T)) for (long i = 0; i < m; i++) room[i * PITCH + j] = ((const T *)p)[i];
        else for (long i = 0; i < m; i++) room[i * PITCH + j] = *(const T *)(p + i * k->fs);
    }
    if (n == TILE) for (long i = 0; i < m; i++) memcpy(to + i * k->ts, room + i * PITCH, TILE * sizeof(T));
    else for (long i = 0; i < m; i++) memcpy(to + i * k->ts, room + i * PITCH, n * sizeof(T));
}

/* Interleaves `few` rows, and separates them again (`few` is a compile-time constant). */
ALWAYS void NAME(woven)(const char *from, T *restrict to, long m, long step, const long few) {
    const T *restrict p[4];
    for (long j = 0; j < few; j++) p[j] = (const T *)(from + j * step);
    for (long i = 0; i < m; i++)
        for (long j = 0; j < few; j++) to[i * few + j] = p[j][i];
}
ALWAYS void NAME(parted)(const T *restrict from, char *to, long n, long step, const long few) {
    for (long i = 0; i < few; i++) {
        T *restrict q = (T *)(to + i * step);
        for (long j = 0; j < n; j++) q[j] = from[j * few + i];
    }
}

static void NAME(turned)(void *ctx, long start, long stop, int who) {
    const Turn *k = ctx;
    const long size = sizeof(T), high = k->high;
    (void)who;
    for (long u = start; u < stop; u++) {
        const char *from = k->from;
        char *to = k->to;
        long rest = u / k->blocks;
        for (int d = k->dims - 1; d >= 0; d--) {
            const long at = rest % k->shape[d];
            rest /= k->shape[d], from += at * k->by[d], to += at * k->step[d];
        }
        const long first = u % k->blocks * high, m = k->ns - first < high ? k->ns - first : high;
        from += first * k->fs, to += first * k->ts;
        switch (k->way) {
        case ROWS:
            for (long i = 0; i < m; i++) memcpy(to + i * k->ts, from + i * k->fs, k->nd * size);
            break;
        case WOVEN:
            if (k->nd == 2) NAME(woven)(from, (T *)to, m, k->fd, 2);
            else if (k->nd == 3) NAME(woven)(from, (T *)to, m, k->fd, 3);
            else NAME(woven)(from, (T *)to, m, k->fd, 4);
            break;
        case PARTED:
            if (k->ns == 2) NAME(parted)((const T *)from, to, k->nd, k->ts, 2);
            else if (k->ns == 3) NAME(parted)((const T *)from, to, k->nd, k->ts, 3);
            else NAME(parted)((const T *)from, to, k->nd, k->ts, 4);
            break;
        default:
            for (long j = 0; j < k->nd; j += TILE)
                for (long i = 0; i < m; i += TILE)
                    NAME(tile)(k, from + i * k->fs + j * k->fd, to + i * k->ts + j * size, m - i < TILE ? m - i : TILE, k->nd - j < TILE ? k->nd - j : TILE);
        }
    }
}
static void NAME(turned_all)(long units, long all, Turn *k) { shared(units, all, NAME(turned), k); }
#undef TILE
#undef PITCH
