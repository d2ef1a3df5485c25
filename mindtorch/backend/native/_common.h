/* What several of our libraries start with: what NumPy's arrays look like, pieces of work, functions by element type. */
#include <stdint.h>

/* elements start to stop of a job, by thread `who` */
typedef void (*piece)(void *ctx, long start, long stop, int who);

/* What a NumPy array starts with, the same in NumPy 1 and 2 (checked by backend/cpu/_numpy_private.py: reads_arrays). */
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
#define MANY 65536          /* elements from which on several threads are worth it */
