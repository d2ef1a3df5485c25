/* Calls functions of the C libraries as builtin functions of the interpreter
 * (backend/c_kernels/fastcall.py) and converts their arguments: about 0.45 us per call with five
 * arguments vs 1.2 us with ctypes. The GIL is released during the call, as in ctypes.
 *
 * Only functions of Python's stable ABI are called, through the addresses passed to mt_direct_use,
 * so no Python headers are needed.
 */
#include <stddef.h>

typedef struct object Object;       /* PyObject */

/* (in the order of fastcall.py) */
typedef struct {
    void *(*pointer)(Object *);                 /* PyLong_AsVoidPtr */
    long (*integer)(Object *);                  /* PyLong_AsLong */
    double (*real)(Object *);                   /* PyFloat_AsDouble */
    Object *(*of_integer)(long);                /* PyLong_FromLong */
    Object *(*failed)(void);                    /* PyErr_Occurred */
    int (*bad)(void);                           /* PyErr_BadArgument */
    void *(*release)(void);                     /* PyEval_SaveThread */
    void (*acquire)(void *);                    /* PyEval_RestoreThread */
    Object *none;
} Python;

static Python python;

void mt_direct_use(const Python *p) { python = *p; }

typedef void (*function)(void);
/* which: index of the line below; kinds: P, I, L and D for a pointer (None: NULL), an int, a long,
   a double */
typedef struct { function fn; int which, count; const char *kinds; } Target;
typedef union { void *p; long l; double d; } Value;

#define MOST 12
#define P(i) v[i].p
#define I(i) (int)v[i].l
#define L(i) v[i].l
#define D(i) v[i].d
typedef void *ptr;

/* One line per signature: its name (i: returns int, v: void, and a letter per argument), the types,
   the values */
#define LINES \
    INTEGER(iPPIIID, (ptr, ptr, int, int, int, double), (P(0), P(1), I(2), I(3), I(4), D(5))) \
    INTEGER(iPPPII, (ptr, ptr, ptr, int, int), (P(0), P(1), P(2), I(3), I(4))) \
    INTEGER(iPPPPP, (ptr, ptr, ptr, ptr, ptr), (P(0), P(1), P(2), P(3), P(4))) \
    INTEGER(iPPPPPPD, (ptr, ptr, ptr, ptr, ptr, ptr, double), (P(0), P(1), P(2), P(3), P(4), P(5), D(6))) \
    INTEGER(iPPPPPPPP, (ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr), (P(0), P(1), P(2), P(3), P(4), P(5), P(6), P(7))) \
    INTEGER(iPPPPPP, (ptr, ptr, ptr, ptr, ptr, ptr), (P(0), P(1), P(2), P(3), P(4), P(5))) \
    INTEGER(iPPPPPPPID, (ptr, ptr, ptr, ptr, ptr, ptr, ptr, int, double), (P(0), P(1), P(2), P(3), P(4), P(5), P(6), I(7), D(8))) \
    INTEGER(iPPPPPPPPI, (ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, int), (P(0), P(1), P(2), P(3), P(4), P(5), P(6), P(7), I(8))) \
    NOTHING(vPPIII, (ptr, ptr, int, int, int), (P(0), P(1), I(2), I(3), I(4))) \
    NOTHING(vPPPII, (ptr, ptr, ptr, int, int), (P(0), P(1), P(2), I(3), I(4))) \
    INTEGER(iPPPLLI, (ptr, ptr, ptr, long, long, int), (P(0), P(1), P(2), L(3), L(4), I(5))) \
    INTEGER(iPPPLLLI, (ptr, ptr, ptr, long, long, long, int), (P(0), P(1), P(2), L(3), L(4), L(5), I(6))) \
    INTEGER(iPPI, (ptr, ptr, int), (P(0), P(1), I(2))) \
    INTEGER(iPPPI, (ptr, ptr, ptr, int), (P(0), P(1), P(2), I(3))) \
    INTEGER(iPPPIL, (ptr, ptr, ptr, int, long), (P(0), P(1), P(2), I(3), L(4))) \
    INTEGER(iIIIPPP, (int, int, int, ptr, ptr, ptr), (I(0), I(1), I(2), P(3), P(4), P(5))) \
    INTEGER(iIIPP, (int, int, ptr, ptr), (I(0), I(1), P(2), P(3))) \
    INTEGER(iPPL, (ptr, ptr, long), (P(0), P(1), L(2))) \
    INTEGER(iILLLLIPP, (int, long, long, long, long, int, ptr, ptr), (I(0), L(1), L(2), L(3), L(4), I(5), P(6), P(7))) \
    INTEGER(iIPPPP, (int, ptr, ptr, ptr, ptr), (I(0), P(1), P(2), P(3), P(4))) \
    INTEGER(iIPPPPDDD, (int, ptr, ptr, ptr, ptr, double, double, double), (I(0), P(1), P(2), P(3), P(4), D(5), D(6), D(7))) \
    INTEGER(iPPPPPPP, (ptr, ptr, ptr, ptr, ptr, ptr, ptr), (P(0), P(1), P(2), P(3), P(4), P(5), P(6))) \
    INTEGER(iIPPPPPPPLLLL, (int, ptr, ptr, ptr, ptr, ptr, ptr, ptr, long, long, long, long), \
            (I(0), P(1), P(2), P(3), P(4), P(5), P(6), P(7), L(8), L(9), L(10), L(11))) \
    INTEGER(iPPLLL, (ptr, ptr, long, long, long), (P(0), P(1), L(2), L(3), L(4))) \
    NOTHING(vPPPLLLD, (ptr, ptr, ptr, long, long, long, double), (P(0), P(1), P(2), L(3), L(4), L(5), D(6))) \
    NOTHING(vPPPLLLI, (ptr, ptr, ptr, long, long, long, int), (P(0), P(1), P(2), L(3), L(4), L(5), I(6))) \
    INTEGER(iIPPPPPPD, (int, ptr, ptr, ptr, ptr, ptr, ptr, double), (I(0), P(1), P(2), P(3), P(4), P(5), P(6), D(7))) \
    INTEGER(iPPPPLLLLLI, (ptr, ptr, ptr, ptr, long, long, long, long, long, int), (P(0), P(1), P(2), P(3), L(4), L(5), L(6), L(7), L(8), I(9))) \
    INTEGER(iPPPPLLID, (ptr, ptr, ptr, ptr, long, long, int, double), (P(0), P(1), P(2), P(3), L(4), L(5), I(6), D(7))) \
    NOTHING(vPPPPPPLL, (ptr, ptr, ptr, ptr, ptr, ptr, long, long), (P(0), P(1), P(2), P(3), P(4), P(5), L(6), L(7))) \
    NOTHING(vPP, (ptr, ptr), (P(0), P(1))) \
    INTEGER(iIPPP, (int, ptr, ptr, ptr), (I(0), P(1), P(2), P(3))) \
    INTEGER(iPPPP, (ptr, ptr, ptr, ptr), (P(0), P(1), P(2), P(3))) \
    INTEGER(iIIPPP, (int, int, ptr, ptr, ptr), (I(0), I(1), P(2), P(3), P(4))) \
    INTEGER(iIIIPLPPPP, (int, int, int, ptr, long, ptr, ptr, ptr, ptr), (I(0), I(1), I(2), P(3), L(4), P(5), P(6), P(7), P(8)))

#define INTEGER(name, types, values) name,
#define NOTHING INTEGER
enum { LINES };
#undef INTEGER
#define INTEGER(name, types, values) #name,
static const char *const kinds[] = {LINES};
#undef INTEGER
#undef NOTHING

static int called(const Target *t, const Value *v) {
    switch (t->which) {
#define INTEGER(name, types, values) case name: return ((int (*)types)t->fn)values;
#define NOTHING(name, types, values) case name: ((void (*)types)t->fn)values; return 0;
    LINES
    }
    return -1;
}

/* Initializes a Target; returns 0 if no line has this signature. */
int mt_direct(Target *t, function fn, const char *wanted) {
    for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++) {
        const char *a = kinds[k], *b = wanted;
        while (*a && *a == *b) a++, b++;
        if (*a || *b) continue;
        t->fn = fn, t->which = k, t->kinds = kinds[k] + 1, t->count = (int)(a - t->kinds);
        return 1;
    }
    return 0;
}

/* (METH_FASTCALL) self: the address of a Target as an int */
Object *mt_direct_call(Object *self, Object *const *args, ptrdiff_t n) {
    const Target *t = python.pointer(self);
    Value v[MOST];
    if (n != t->count) return python.bad(), NULL;
    int odd = 0;
    for (int k = 0; k < n; k++)
        switch (t->kinds[k]) {
        case 'P':
            v[k].p = args[k] == python.none ? NULL : python.pointer(args[k]);
            odd |= args[k] != python.none && !v[k].p; /* (neither 0 nor a non-int is an address) */
            break;
        case 'D': v[k].d = python.real(args[k]), odd |= v[k].d == -1; break;
        default: v[k].l = python.integer(args[k]), odd |= v[k].l == -1;
        }
    if (odd && python.failed()) return NULL;
    void *state = python.release();
    const int r = called(t, v);
    python.acquire(state);
    return python.of_integer(r);
}
