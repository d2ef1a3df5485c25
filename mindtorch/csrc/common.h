/* Common definitions of the C libraries: NumPy's array header, pieces of work, functions by element
   type. */
#include <stdint.h>

/* processes elements start to stop of a job, on thread `who` */
typedef void (*piece)(void *ctx, long start, long stop, int who);

/* The head of a NumPy array object, the same in NumPy 1 and 2 (checked by
   backend/cpu/_numpy_private.py: reads_arrays). */
struct array {
    intptr_t count;
    void *type;
    char *data;
    int nd;
    intptr_t *dims, *strides;
    void *base, *dtype;
    int flags;
};
#define CONTIGUOUS 1
#define ALIGNED 0x0100
#define WRITEABLE 0x0400

#define NAME_(a, b) a##_##b
#define NAME__(a, b) NAME_(a, b)
#define NAME(a) NAME__(a, T)
#define ALWAYS static inline __attribute__((always_inline))
#define MANY 65536          /* number of elements from which on several threads pay off */
