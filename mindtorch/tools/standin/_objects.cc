// Meta objects of aclnn: tensors, scalars and arrays that the arguments of kernels point to.
#include "_standin.h"
#include <cmath>
#include <cstdio>
#include <mutex>
#include <unordered_map>

static std::recursive_mutex &guard() { static auto *m = new std::recursive_mutex; return *m; }
Lock::Lock() { guard().lock(); }
Lock::~Lock() { guard().unlock(); }
// Never destroyed: MindSpore's threads outlive main().
static std::unordered_map<const void *, Object *> &objects() { static auto *m = new std::unordered_map<const void *, Object *>; return *m; }

Object *object_at(const void *p) {
    auto found = objects().find(p);
    return found == objects().end() ? nullptr : found->second;
}

static Object *entered(Object *o) {
    Lock lock;
    return objects()[o] = o;
}

static Status removed(const void *p) {
    Lock lock;
    auto found = objects().find(p);
    if (found != objects().end()) {
        delete found->second;
        objects().erase(found);
    }
    return OK;
}

// ---- text forms
std::string type_name(int type) {
    static const std::unordered_map<int, const char *> names = {
        {0, "f32"}, {1, "f16"}, {2, "i8"}, {3, "i32"}, {4, "u8"}, {6, "i16"}, {7, "u16"}, {8, "u32"}, {9, "i64"}, {10, "u64"}, {11, "f64"},
        {12, "bool"}, {13, "string"}, {16, "c64"}, {17, "c128"}, {27, "bf16"}, {29, "i4"}};
    auto found = names.find(type);
    return found == names.end() ? "type" + std::to_string(type) : found->second;
}

std::string number(double v) {
    if (std::isnan(v)) return "NaN";
    if (std::isinf(v)) return v > 0 ? "Infinity" : "-Infinity";
    char text[40];
    snprintf(text, sizeof text, "%.17g", v);
    return text;
}

std::string quoted(const std::string &s) {
    std::string r = "\"";
    for (unsigned char c : s) {
        if (c == '"' || c == '\\') (r += '\\') += c;
        else if (c < 32) { char code[8]; snprintf(code, sizeof code, "\\u%04x", c); r += code; }
        else r += c;
    }
    return r + "\"";
}

static std::string list(const std::vector<Long> &v) {
    std::string r = "[";
    for (size_t k = 0; k < v.size(); k++) (r += k ? "," : "") += std::to_string(v[k]);
    return r + "]";
}

static bool contiguous(const Object &o) {
    Long step = 1;
    for (size_t k = o.shape.size(); k-- > 0;) {
        if (o.shape[k] != 1 && o.strides[k] != step) return false;
        step *= o.shape[k];
    }
    return true;
}

static bool integral(int type) { return type == 2 || type == 3 || type == 4 || (type >= 6 && type <= 10) || type == 12; }

std::string words(const Object &o) {
    std::string r;
    switch (o.kind) {
    case TENSOR:
        r = "T" + list(o.shape) + type_name(o.type);
        if (!contiguous(o)) r += " strides" + list(o.strides);
        if (o.offset) r += " offset" + std::to_string(o.offset);
        return r;
    case SCALAR: {
        char text[80];
        if (integral(o.type)) return "S(" + type_name(o.type) + ")" + std::to_string(o.integer);
        snprintf(text, sizeof text, o.floats.size() > 1 ? "%.7g%+.7gj" : "%.7g", o.floats[0], o.floats.size() > 1 ? o.floats[1] : 0.);
        return "S(" + type_name(o.type) + ")" + text;
    }
    case INTS: return "I" + list(o.shape);
    case BOOLS: return "B" + list(o.shape);
    case FLOATS: {
        r = "F[";
        for (size_t k = 0; k < o.floats.size(); k++) (r += k ? "," : "") += number(o.floats[k]);
        return r + "]";
    }
    default:
        r = "L(";
        for (size_t k = 0; k < o.items.size(); k++) {
            Object *item = object_at(o.items[k]);
            (r += k ? ", " : "") += item ? words(*item) : "null";
        }
        return r + ")";
    }
}

std::string wire(const Object &o) {
    std::string r;
    switch (o.kind) {
    case TENSOR:
        return "[\"T\"," + std::to_string((Word)&o) + "," + std::to_string(o.type) + "," +
               std::to_string(o.data ? o.data - device_memory() : (Long)-1) + "," + std::to_string(o.offset) + "," + list(o.shape) + "," + list(o.strides) + "]";
    case SCALAR:
        r = "[\"S\"," + std::to_string(o.type);
        if (integral(o.type)) return r + "," + std::to_string(o.integer) + "]";
        for (double v : o.floats) r += "," + number(v);
        return r + "]";
    case INTS: return "[\"I\"," + list(o.shape) + "]";
    case BOOLS: return "[\"B\"," + list(o.shape) + "]";
    case FLOATS:
        r = "[\"F\",[";
        for (size_t k = 0; k < o.floats.size(); k++) (r += k ? "," : "") += number(o.floats[k]);
        return r + "]]";
    default:
        r = "[\"L\",[";
        for (size_t k = 0; k < o.items.size(); k++) {
            Object *item = object_at(o.items[k]);
            (r += k ? "," : "") += item ? wire(*item) : "0";
        }
        return r + "]]";
    }
}

// ---- CANN's functions
static void set_strides(Object &o) {
    o.strides.assign(o.shape.size(), 1);
    for (size_t k = o.shape.size(); k-- > 1;) o.strides[k - 1] = o.strides[k] * o.shape[k];
}

static double half(uint16_t bits) {
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double v = exponent == 31 ? (fraction ? NAN : INFINITY) : exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24);
    return bits >> 15 ? -v : v;
}

static float brain(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float v;
    memcpy(&v, &wide, 4);
    return v;
}

extern "C" {
void *aclCreateTensor(const Long *shape, Word rank, int type, const Long *strides, Long offset, int, const Long *, Word, void *data) {
    auto *o = new Object{TENSOR, type};
    o->shape.assign(shape, shape + rank);
    if (strides) o->strides.assign(strides, strides + rank);
    else set_strides(*o);
    o->offset = offset;
    o->data = (char *)data;
    return entered(o);
}

void *aclCreateScalar(void *value, int type) {
    auto *o = new Object{SCALAR, type};
    auto integer = [&](Long v) { o->integer = v; o->floats = {(double)v}; };
    switch (type) {
    case 0: o->floats = {*(float *)value}; break;
    case 1: o->floats = {half(*(uint16_t *)value)}; break;
    case 2: integer(*(int8_t *)value); break;
    case 3: integer(*(int32_t *)value); break;
    case 4: integer(*(uint8_t *)value); break;
    case 6: integer(*(int16_t *)value); break;
    case 7: integer(*(uint16_t *)value); break;
    case 8: integer(*(uint32_t *)value); break;
    case 9: case 10: integer(*(Long *)value); break;
    case 11: o->floats = {*(double *)value}; break;
    case 12: integer(*(bool *)value); break;
    case 16: o->floats = {((float *)value)[0], ((float *)value)[1]}; break;
    case 17: o->floats = {((double *)value)[0], ((double *)value)[1]}; break;
    case 27: o->floats = {brain(*(uint16_t *)value)}; break;
    default: o->floats = {NAN};
    }
    return entered(o);
}

void *aclCreateIntArray(const Long *v, Word n) {
    auto *o = new Object{INTS};
    o->shape.assign(v, v + n);
    return entered(o);
}

void *aclCreateBoolArray(const bool *v, Word n) {
    auto *o = new Object{BOOLS};
    o->shape.assign(v, v + n);
    return entered(o);
}

void *aclCreateFloatArray(const float *v, Word n) {
    auto *o = new Object{FLOATS};
    o->floats.assign(v, v + n);
    return entered(o);
}

static void *several(Kind kind, const void *const *v, Word n) {
    auto *o = new Object{kind};
    o->items.assign(v, v + n);
    return entered(o);
}
void *aclCreateTensorList(const void *const *v, Word n) { return several(TENSORS, v, n); }
void *aclCreateScalarList(const void *const *v, Word n) { return several(SCALARS, v, n); }

Status aclDestroyTensor(const void *p) { return removed(p); }
Status aclDestroyScalar(const void *p) { return removed(p); }
Status aclDestroyIntArray(const void *p) { return removed(p); }
Status aclDestroyFloatArray(const void *p) { return removed(p); }
Status aclDestroyBoolArray(const void *p) { return removed(p); }
Status aclDestroyTensorList(const void *p) {        // with its items
    Lock lock;
    if (Object *o = object_at(p)) {
        for (auto item : std::vector<const void *>(o->items)) removed(item);
    }
    return removed(p);
}
Status aclDestroyScalarList(const void *p) { return aclDestroyTensorList(p); }
Status aclGetTensorListSize(const void *p, Word *n) {
    Lock lock;
    Object *o = object_at(p);
    *n = o ? o->items.size() : 0;
    return OK;
}

// Returns the shape that a kernel determined, if it did. The object itself keeps the maximum shape for
// later launches.
Status aclGetViewShape(const void *p, Long **shape, Word *rank) {
    standin_drain();
    Lock lock;
    Object *o = object_at(p);
    const std::vector<Long> none, &v = !o ? none : o->found ? o->found_shape : o->shape;
    *rank = v.size();
    *shape = new Long[v.size() + 1];
    std::copy(v.begin(), v.end(), *shape);
    return o ? OK : REFUSED;
}
Status aclGetViewStrides(const void *p, Long **strides, Word *rank) {
    Lock lock;
    Object *o = object_at(p);
    *rank = o ? o->strides.size() : 0;
    *strides = new Long[*rank + 1];
    if (o) std::copy(o->strides.begin(), o->strides.end(), *strides);
    return o ? OK : REFUSED;
}

static Status placed(const void *tensor, void *address) {
    Lock lock;
    if (Object *o = object_at(tensor)) o->data = (char *)address;
    return OK;
}
static Status placed_in(const void *tensors, size_t at, void *address) {
    Lock lock;
    Object *o = object_at(tensors);
    return o && at < o->items.size() ? placed(o->items[at], address) : OK;
}
Status aclSetTensorAddr(void *, size_t, const void *tensor, void *address) { return placed(tensor, address); }
Status aclSetInputTensorAddr(void *, size_t, const void *tensor, void *address) { return placed(tensor, address); }
Status aclSetOutputTensorAddr(void *, size_t, const void *tensor, void *address) { return placed(tensor, address); }
Status aclSetDynamicTensorAddr(void *, size_t, size_t at, const void *tensors, void *address) { return placed_in(tensors, at, address); }
Status aclSetDynamicInputTensorAddr(void *, size_t, size_t at, const void *tensors, void *address) { return placed_in(tensors, at, address); }
Status aclSetDynamicOutputTensorAddr(void *, size_t, size_t at, const void *tensors, void *address) { return placed_in(tensors, at, address); }

// Descriptions of aclop operands are not in the table: no kernel's argument points to one.
void *aclCreateTensorDesc(int type, int rank, const Long *shape, int) {
    auto *o = new Object{TENSOR, type};
    o->shape.assign(shape, shape + (rank > 0 ? rank : 0));
    set_strides(*o);
    return o;
}
void aclDestroyTensorDesc(const Object *o) { delete o; }
}
