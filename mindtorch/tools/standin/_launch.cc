// Launches: aclnn kernels and, for MindSpore's old path, aclop. Assembler stubs call both functions of
// an aclnn kernel with all registers.
#include "_standin.h"
#include <mutex>
#include <sys/uio.h>
#include <unistd.h>
#include <unordered_map>

// The arguments of aclnnXxxGetWorkspaceSize, stored until aclnnXxx is called.
struct Executor {
    std::string kernel, said{};
    std::vector<Word> arguments{};          // the integer ones, in C order
    std::vector<std::string> read{};        // values of scalars and arrays, which CANN reads now (addresses of tensors are read at the launch)
    Word floating[8] = {};
    std::string strings{};                  // JSON: argument index -> C string
    bool repeatable = false;
};
static std::unordered_map<const void *, Executor *> &executors() { static auto *m = new std::unordered_map<const void *, Executor *>; return *m; }

static void forgotten(const void *p) {
    auto found = executors().find(p);
    if (found != executors().end()) {
        delete found->second;
        executors().erase(found);
    }
}

// True if memory at an address holds a short printable C string, which is stored in `s`.
static bool c_string(Word address, std::string &s) {
    char text[65] = {0};
    size_t room = 64, page = 4096 - (address & 4095);
    if (room > page) room = page;
    iovec here = {text, room}, there = {(void *)address, room};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) <= 0) return false;
    size_t n = 0;
    while (n < room && text[n] >= 32 && text[n] < 127) n++;
    if (n == room || text[n]) return false;
    s = text;
    return true;
}

extern "C" {
// aclnnXxxGetWorkspaceSize(arguments..., uint64_t *workspace_size, aclOpExecutor **executor).
// `registers`: rdi to r9; `stack`: the arguments on the stack; `floating`: xmm0 to xmm7. The number of
// arguments is unknown. Only the last two mark the end: both point to zeros in the caller's frame.
Status standin_prepare(const char *name, const Word *registers, const Word *stack, const Word *floating) {
    std::string kernel(name + 5, strlen(name) - 5 - 16);
    if (Status lost = fault("prepare", kernel)) return lost;       // (a lost device; MindSpore prepares a launch once and repeats it)
    Lock lock;
    auto argument = [&](int k) { return k < 6 ? registers[k] : stack[k - 6]; };
    const Word low = (Word)stack, high = low + (1 << 20);
    auto zero_in_frame = [&](Word p) { return p >= low && p < high && p % 8 == 0 && *(Word *)p == 0; };
    int end = -1;
    for (int k = 0; k < 96 && end < 0; k++) {
        Word p = argument(k), q = argument(k + 1);
        if (zero_in_frame(p) && zero_in_frame(q) && p != q && (p > q ? p - q : q - p) < 4096) end = k;
    }
    if (end < 0) {
        return standin_missing(("the stand-in does not see where the arguments of aclnn" + kernel + " end").c_str());
    }
    auto *e = new Executor{kernel};
    memcpy(e->floating, floating, sizeof e->floating);
    std::string why;
    for (int k = 0; k < end; k++) {
        Word v = argument(k);
        Object *o = object_at((void *)v);
        e->arguments.push_back(v);
        e->said += k ? ", " : "";
        if (o) {
            e->read.push_back(o->kind == TENSOR || o->kind == TENSORS ? "" : wire(*o));
            e->said += words(*o);
            if (why.empty()) refused(kernel, k, *o, why);
        } else {
            e->read.push_back(std::to_string((Long)v));
            std::string s;
            if (v >= 1 << 20 && v < 1ull << 47 && c_string(v, s)) e->strings += (e->strings.size() ? ",\"" : "\"") + std::to_string(k) + "\":" + quoted(s);
            Long n = (Long)v;
            e->said += s.size() ? quoted(s) : n > -(1 << 20) && n < 1 << 20 ? std::to_string(n) : "?";
        }
    }
    if (Status asked = fault("reject", kernel)) { why = "refused on request"; (void)asked; }
    if (why.size()) {
        say_error("aclnn" + kernel + ": " + why);
        standin_log(("{\"refused\":" + quoted("aclnn" + kernel) + ",\"args\":" + quoted(e->said) + ",\"why\":" + quoted(why) + "}").c_str());
        delete e;
        return REFUSED;
    }
    *(Word *)argument(end) = 0;
    *(Executor **)argument(end + 1) = e;
    executors()[e] = e;
    return OK;
}

// Returns the number of a stream, in the order of first launches.
static int stream_number(const void *stream) {
    static auto &seen = *new std::unordered_map<const void *, int>;
    return seen.emplace(stream, (int)seen.size()).first->second;
}

// The log has the floating registers too, for the values of `double` and `float` arguments, whose
// number only the kernel table knows.
static bool registers_wanted() {
    static const bool wanted = getenv("MINDTORCH_STANDIN_FLOATING");
    return wanted;
}

// aclnnXxx(void *workspace, uint64_t workspace_size, aclOpExecutor *executor, aclrtStream stream)
Status standin_launch(const char *name, const Word *registers, const Word *, const Word *) {
    std::string kernel(name + 5), message;
    if (Status lost = fault("lost", kernel)) return lost;
    {
        Lock lock;
        auto found = executors().find((void *)registers[2]);
        if (found == executors().end() || found->second->kernel != kernel)
            return standin_fail(("aclnn" + kernel + " is launched without an executor of its own").c_str());
        Executor &e = *found->second;
        std::string floating;
        for (int k = 0; k < 8 && registers_wanted(); k++) floating += (k ? "," : ",\"floating\":[") + std::to_string(e.floating[k]) + (k == 7 ? "]" : "");
        standin_log(("{\"launch\":" + quoted("aclnn" + kernel) + ",\"args\":" + quoted(e.said) + ",\"stream\":" + std::to_string(stream_number((void *)registers[3])) +
                     floating + "}").c_str());
        message = "[" + quoted(kernel) + ",[";
        for (size_t k = 0; k < e.arguments.size(); k++) {
            message += k ? "," : "";
            if (e.read[k].size()) { message += e.read[k]; continue; }
            Object *o = object_at((void *)e.arguments[k]);
            message += o ? wire(*o) : "[\"gone\"]";
        }
        message += "],[";
        for (int k = 0; k < 8; k++) (message += k ? "," : "") += std::to_string(e.floating[k]);
        message += "],{" + e.strings + "}]";
        if (!e.repeatable) forgotten(&e);
    }
    if (!computes(kernel)) return standin_missing(("aclnn" + kernel + " is not computed: the stand-in has no such kernel").c_str());
    if (Status failed = fault("launch", kernel)) {
        if (device_lost()) return failed;
        standin_fail(("aclnn" + kernel + " failed on the device, on request").c_str());
        return OK;
    }
    return enqueue(message);
}

// (MindSpore calls these around launches whose operands it creates itself. In CANN they reserve memory
// for these objects; the simulator needs none.)
int InitHugeMemThreadLocal(void *, bool) { return 0; }
void UnInitHugeMemThreadLocal(void *, bool) {}
void ReleaseHugeMem(void *, bool) {}

Status aclSetAclOpExecutorRepeatable(void *p) {
    Lock lock;
    auto found = executors().find(p);
    if (found != executors().end()) found->second->repeatable = true;
    return OK;
}
Status aclDestroyAclOpExecutor(void *p) {
    Lock lock;
    forgotten(p);
    return OK;
}

// ---- aclop, the old path: ops by name, which a chip compiles online
struct Attributes { std::string json; };
static Status attribute(Attributes *a, const char *key, const std::string &value) {
    a->json += (a->json.size() ? "," : "") + quoted(key) + ":" + value;
    return OK;
}
void *aclopCreateAttr() { return new Attributes; }
void aclopDestroyAttr(const Attributes *a) { delete a; }
Status aclopSetAttrBool(Attributes *a, const char *k, uint8_t v) { return attribute(a, k, v ? "true" : "false"); }
Status aclopSetAttrInt(Attributes *a, const char *k, Long v) { return attribute(a, k, std::to_string(v)); }
Status aclopSetAttrFloat(Attributes *a, const char *k, float v) { return attribute(a, k, number(v)); }
Status aclopSetAttrString(Attributes *a, const char *k, const char *v) { return attribute(a, k, quoted(v)); }
Status aclopSetAttrDataType(Attributes *a, const char *k, int v) { return attribute(a, k, std::to_string(v)); }
Status aclopSetAttrListInt(Attributes *a, const char *k, int n, const Long *v) {
    std::string r = "[";
    for (int i = 0; i < n; i++) (r += i ? "," : "") += std::to_string(v[i]);
    return attribute(a, k, r + "]");
}
Status aclopSetAttrListFloat(Attributes *a, const char *k, int n, const float *v) {
    std::string r = "[";
    for (int i = 0; i < n; i++) (r += i ? "," : "") += number(v[i]);
    return attribute(a, k, r + "]");
}

Status aclopSetAttrListBool(Attributes *a, const char *k, int n, const uint8_t *v) {
    std::string r = "[";
    for (int i = 0; i < n; i++) (r += i ? "," : "") += v[i] ? "true" : "false";
    return attribute(a, k, r + "]");
}
Status aclopSetAttrListDataType(Attributes *a, const char *k, int n, const int *v) {
    return aclopSetAttrListInt(a, k, n, std::vector<Long>(v, v + n).data());
}
Status aclopSetAttrListString(Attributes *a, const char *k, int n, const char **v) {
    std::string r = "[";
    for (int i = 0; i < n; i++) (r += i ? "," : "") += quoted(v[i]);
    return attribute(a, k, r + "]");
}
Status aclopSetAttrListListInt(Attributes *a, const char *k, int n, const int *counts, const Long *const *v) {
    std::string r = "[";
    for (int i = 0; i < n; i++) {
        r += i ? ",[" : "[";
        for (int j = 0; j < counts[i]; j++) (r += j ? "," : "") += std::to_string(v[i][j]);
        r += "]";
    }
    return attribute(a, k, r + "]");
}

struct Buffer { char *data; size_t size; };
void *aclCreateDataBuffer(void *p, size_t n) { return new Buffer{(char *)p, n}; }
Status aclDestroyDataBuffer(const Buffer *b) { delete b; return OK; }

// Constants of an op are in host memory: the message contains their bytes.
static bool on_host(const Buffer &b) {
    char *base = device_memory();
    return b.data && (b.data < base || b.data >= base + device_memory_size());
}
static std::string constant(const Object &o, const Buffer &b) {
    static const char *digits = "0123456789abcdef";
    std::string r = "[\"H\"," + std::to_string(o.type) + ",[";
    for (size_t k = 0; k < o.shape.size(); k++) (r += k ? "," : "") += std::to_string(o.shape[k]);
    r += "],\"";
    for (size_t k = 0; k < b.size; k++) (r += digits[(uint8_t)b.data[k] >> 4]) += digits[b.data[k] & 15];
    return r + "\"]";
}

Status aclopCompileAndExecute(const char *name, int n_in, Object **in, Buffer **in_data, int n_out, Object **out, Buffer **out_data, Attributes *a) {
    if (Status lost = fault("lost", name)) return lost;
    std::string args, message = "[" + quoted(std::string("op:") + name) + ",[";
    for (int k = 0; k < n_in + n_out; k++) {
        Object *o = k < n_in ? in[k] : out[k - n_in];
        Buffer *b = k < n_in ? in_data[k] : out_data[k - n_in];
        if (o && b) o->data = b->data;
        (message += k ? "," : "") += !(o && b && o->type >= 0) ? "0" : on_host(*b) ? constant(*o, *b) : wire(*o);
        (args += k == n_in ? " -> " : k ? ", " : "") += o && o->type >= 0 ? words(*o) : "0";
    }
    message += "]," + std::to_string(n_in) + ",{" + (a ? a->json : "") + "}]";
    standin_log(("{\"aclop\":" + quoted(name) + ",\"args\":" + quoted(args) + ",\"attributes\":{" + (a ? a->json : "") + "}}").c_str());
    if (!computes(std::string("op:") + name)) return standin_missing((std::string("aclop ") + name + " is not computed: the stand-in has no such op").c_str());
    return enqueue(message);
}
Status aclopCompileAndExecuteV2(const char *name, int n_in, Object **in, Buffer **in_data, int n_out, Object **out, Buffer **out_data, Attributes *a) {
    return aclopCompileAndExecute(name, n_in, in, in_data, n_out, out, out_data, a);
}
}
