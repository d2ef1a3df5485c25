/* Elements picked and placed by more than one axis: images at the places of a grid, bags of rows, strided and padded copies
 * (backend/native/moves.py).  By type: _moves_grid.h, _moves_bags.h.
 *
 * Compiled with -ffp-contract=off.  What is added up at one place is added in the order of the operands, however many threads there are.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*piece)(void *ctx, long start, long stop, int who);
static void (*share)(long n, piece fn, void *ctx);      /* mt_share of _pool.c */

void mt_use(void (*share_)(long, piece, void *)) { share = share_; }

#define MANY 65536          /* elements from which on several threads are worth it */
static void shared(long n, long elements, piece fn, void *ctx) {
    if (n > 1 && elements >= MANY) share(n, fn, ctx);
    else if (n > 0) fn(ctx, 0, n, 0);
}

#define NAME_(a, b) a##_##b
#define NAME__(a, b) NAME_(a, b)
#define NAME(a) NAME__(a, T)
#define ALWAYS static inline __attribute__((always_inline))
typedef int64_t i64;
typedef float f32;
typedef double f64;

enum { NEAREST, LINEAR, CUBIC };
enum { ZEROS, BORDER, REFLECTION };
#define BLOCK 128           /* points of a grid at once */

#define T f32
#include "_moves_grid.h"
#include "_moves_bags.h"
#undef T
#define T f64
#include "_moves_grid.h"
#include "_moves_bags.h"
#undef T
