/* Elements picked and placed by more than one axis: images at the places of a grid, bags of rows, strided and padded copies
 * (backend/native/moves.py).  By type: _moves_grid.h, _moves_bags.h.
 *
 * Compiled with -ffp-contract=off.  What is added up at one place is added in the order of the operands, however many threads there are.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "_common_share.h"
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

/* ------------------------------------------------------------------ places by tables, triangles */
typedef struct { uint64_t low, high; } u128;
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
#define MOST 32             /* dimensions */
#define RUNS 16             /* of the last axis; where there are more, places are read one by one */
#define T u8
#include "_moves_tables.h"
#undef T
#define T u16
#include "_moves_tables.h"
#undef T
#define T u32
#include "_moves_tables.h"
#undef T
#define T u64
#include "_moves_tables.h"
#undef T
#define T u128
#include "_moves_tables.h"
#undef T

#define EACH(F, ...)                                                                                                                \
    switch (bytes) {                                                                                                                \
    case 1: F##_u8(__VA_ARGS__); return 0;                                                                                          \
    case 2: F##_u16(__VA_ARGS__); return 0;                                                                                         \
    case 4: F##_u32(__VA_ARGS__); return 0;                                                                                         \
    case 8: F##_u64(__VA_ARGS__); return 0;                                                                                         \
    case 16: F##_u128(__VA_ARGS__); return 0;                                                                                       \
    default: return -1;                                                                                                             \
    }

/* to, of that shape and in one piece, by the axes' tables of places (in elements) one after another */
int mt_spread(int bytes, int dims, const long *shape, const i64 *tables, const void *from, void *to) {
    if (dims < 1 || dims > MOST) return -1;
    EACH(spread_all, dims, shape, tables, from, to)
}

/* the lower or upper triangle of matrices in one piece; what is above or below it is zero */
int mt_triangle(int bytes, long matrices, long rows, long columns, long diagonal, int lower, const void *from, void *to) {
    EACH(triangle_all, matrices, rows, columns, diagonal, lower, from, to)
}
