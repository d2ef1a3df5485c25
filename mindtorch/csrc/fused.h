/* Building blocks of generated loops (backend/host_inductor/fusion.py): each line of
 * elementwise_table.h as a function of one element, and some more functions.
 *
 * A generated file includes this header and has one function per loop. It is compiled with
 * -ffp-contract=off, like the loops of single ops.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>
#include "common_threads.h"

typedef float f32;
typedef double f64;

#include "elementwise_functions.h"

#define PIECE 4096          /* elements that a thread processes at once if there are no rows */

#define REAL 4
#define T f32
#define F(name) name##f
#define FUNCTION(name, expression)                                                                                                  \
    ALWAYS f32 op_##name(const f32 x, const f32 y, const f32 z, const f32 p, const f32 q, const f32 r) {                            \
        (void)x, (void)y, (void)z, (void)p, (void)q, (void)r;                                                                       \
        return (f32)(expression);                                                                                                   \
    }
#define ONE(name, expression) FUNCTION(name, expression)
#define TWO(name, expression) FUNCTION(name, expression)
#define PAIR(name, expression) FUNCTION(name, expression)
#define THREE(name, expression) FUNCTION(name, expression)
#define WHOLE(name, call)
#include "elementwise_table.h"

FUNCTION(neg, -x)
FUNCTION(abs, fabsf(x))
