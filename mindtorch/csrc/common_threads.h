/* Runs jobs on the pool's threads, for the other libraries. */
#include "common.h"

static void (*share)(long n, piece fn, void *ctx);      /* mt_share of thread_pool.c */

void mt_use(void (*share_)(long, piece, void *)) { share = share_; }

static void shared(long n, long elements, piece fn, void *ctx) {
    if (n > 1 && elements >= MANY) share(n, fn, ctx);
    else if (n > 0) fn(ctx, 0, n, 0);
}
