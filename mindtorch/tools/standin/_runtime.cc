// CANN's runtime on ordinary memory. Device memory and copies are real. Streams and events exist only
// by name, because there is one queue.
#include "_standin.h"
#include <chrono>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <unistd.h>

// ---- memory: ranges of device memory in units of 2 MB
static const size_t UNIT = (size_t)2 << 20;
static std::mutex guard;
static auto &used = *new std::map<char *, size_t>;          // (never destroyed: MindSpore's threads outlive main())
static auto &mapped = *new std::map<void *, size_t>;
static auto &pinned = *new std::map<char *, size_t>;        // host memory of aclrtMallocHost
static size_t in_use = 0;

static size_t capacity() {
    static size_t n = [] {
        const char *text = getenv("MINDTORCH_STANDIN_MEMORY");         // bytes, or with the suffix MB or GB
        char *end = nullptr;
        double v = text ? strtod(text, &end) : 0;
        if (v <= 0) return (size_t)32 << 30;
        return (size_t)(v * (strstr(end, "GB") ? 1 << 30 : strstr(end, "MB") ? 1 << 20 : 1));
    }();
    return n;
}

static size_t in_units(size_t n) { return (n + UNIT - 1) / UNIT * UNIT; }

// Counts memory as used, if enough is free.
static Status taken(size_t n) {
    if (Status failed = fault("malloc", "")) { if (!device_lost()) say_error("out of device memory, on request"); return failed; }
    std::lock_guard<std::mutex> lock(guard);
    if (in_use + n > capacity()) {
        say_error("out of device memory: " + std::to_string(n) + " bytes are asked for, " + std::to_string(capacity() - in_use) + " are free");
        return OUT_OF_MEMORY;
    }
    in_use += n;
    standin_log(("{\"memory\":" + std::to_string(in_use) + "}").c_str());
    return OK;
}
static void returned(size_t n) {
    std::lock_guard<std::mutex> lock(guard);
    in_use -= n;
    standin_log(("{\"memory\":" + std::to_string(in_use) + "}").c_str());
}

static Status addressed(void **p, size_t n) {
    if (in_forked_child()) return NO_DEVICE;
    char *base = device_memory(), *at = base;
    std::lock_guard<std::mutex> lock(guard);
    for (auto &range : used) {
        if ((size_t)(range.first - at) >= n) break;
        at = range.first + range.second;
    }
    if (at + n > base + device_memory_size()) return OUT_OF_MEMORY;
    used[at] = n;
    *p = at;
    return OK;
}
static void emptied(void *p, size_t n) {
    if (in_forked_child()) return;              // (the file is its parent's)
    fallocate(memory_file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (char *)p - device_memory(), n);
}
static size_t unaddressed(void *p) {
    standin_drain();
    std::lock_guard<std::mutex> lock(guard);
    auto found = used.find((char *)p);
    if (found == used.end()) return 0;
    size_t n = found->second;
    emptied(p, n);
    used.erase(found);
    return n;
}

// Newly allocated memory is NaN in every floating type, so that reads of uninitialized memory show.
// (MindSpore reuses a block that it has had before without clearing it.)
// MINDTORCH_STANDIN_FRESH=zeros leaves new memory at zeros.
static void unwritten(void *p, size_t n) {
    static const char *text = getenv("MINDTORCH_STANDIN_FRESH");
    static const bool zeros = text && !strcmp(text, "zeros");
    if (!zeros && !in_forked_child()) memset(p, 0xff, n);
}

static Status allocate(void **p, size_t n) {
    n = in_units(n + 512);
    if (Status failed = taken(n)) return failed;
    Status failed = addressed(p, n);
    if (failed) returned(n);
    else unwritten(*p, n);
    return failed;
}
static Status freed(void *p) {
    if (size_t n = unaddressed(p)) returned(n);
    return OK;
}

static bool on_device(const void *p) {
    char *base = device_memory();
    return p >= base && p < base + device_memory_size();
}

static Status copied(void *to, const void *from, size_t n, int kind) {
    static const char *ways[] = {"H2H", "H2D", "D2H", "D2D"};
    if (in_forked_child() && (on_device(from) || on_device(to))) {
        say_error("a forked process uses the device of its parent: start processes that use one by spawn");
        return NO_DEVICE;
    }
    if (kind < 0 || kind > 3) kind = (on_device(from) ? 2 : 0) + (on_device(to) ? 1 : 0);
    std::string place = kind == 1 || kind == 2 ? site() : "";
    if (Status failed = fault(kind == 1 || kind == 2 ? "copy" : "lost", "copy")) { if (!device_lost()) say_error("a copy failed, on request"); return failed; }
    Status failed = synchronise();
    if (failed) return failed;              // (the stream has failed: nothing is copied)
    if (to && from) memmove(to, from, n);
    standin_log((std::string(kind == 3 ? "{\"launch\":\"memcpyD2D\",\"args\":\"" + std::to_string(n) + " bytes\"" : std::string("{\"copy\":\"") + ways[kind] + "\",\"bytes\":" + std::to_string(n)) +
                 (place.size() ? ",\"site\":" + quoted(place) : "") + "}").c_str());
    return failed;
}

static double now() { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
struct Event { double at = 0; };
static Status handle(void **p) { *p = calloc(1, 64); return OK; }
static char contexts[8][64];
static thread_local int current = 0;
static thread_local void *context = contexts[0];

extern "C" {
Status aclrtMalloc(void **p, size_t n, int) { return allocate(p, n); }
Status aclrtMallocAlign32(void **p, size_t n, int) { return allocate(p, n); }
Status aclrtMallocCached(void **p, size_t n, int) { return allocate(p, n); }
Status aclrtFree(void *p) { return freed(p); }
Status aclrtMallocHost(void **p, size_t n) {
    if (posix_memalign(p, 512, n ? n : 1)) return OUT_OF_MEMORY;
    std::lock_guard<std::mutex> lock(guard);
    pinned[(char *)*p] = n;
    return OK;
}
Status aclrtFreeHost(void *p) {
    std::lock_guard<std::mutex> lock(guard);
    pinned.erase((char *)p);
    free(p);
    return OK;
}
// aclrtPtrAttributes: device, kind of memory (0: pinned host memory, 1: a device's, 2: other), page size.
Status aclrtPointerGetAttributes(const void *p, uint32_t *attributes) {
    memset(attributes, 0, 28);
    std::lock_guard<std::mutex> lock(guard);
    auto next = pinned.upper_bound((char *)p);
    bool host = next != pinned.begin() && (char *)p < std::prev(next)->first + std::prev(next)->second;
    attributes[1] = on_device(p) ? 1 : host ? 0 : 2;
    attributes[2] = 4096;
    return OK;
}
// Allocation in two steps: addresses are reserved, then physical memory is mapped there. Only physical
// memory counts as used.
Status aclrtReserveMemAddress(void **p, size_t n, size_t, void *, Word) { return addressed(p, in_units(n)); }
Status aclrtReleaseMemAddress(void *p) { unaddressed(p); return OK; }
Status aclrtMallocPhysical(void **h, size_t n, void *, Word) {
    n = in_units(n);
    if (Status failed = taken(n)) return failed;
    *h = new size_t(n);
    return OK;
}
Status aclrtFreePhysical(void *h) { returned(*(size_t *)h); delete (size_t *)h; return OK; }
Status aclrtMapMem(void *p, size_t n, size_t, void *, Word) {
    unwritten(p, n);
    std::lock_guard<std::mutex> lock(guard);
    mapped[p] = n;
    return OK;
}
Status aclrtUnmapMem(void *p) {
    standin_drain();
    std::lock_guard<std::mutex> lock(guard);
    auto found = mapped.find(p);
    if (found != mapped.end()) emptied(p, found->second), mapped.erase(found);
    return OK;
}
Status aclrtGetMemInfo(int, size_t *free, size_t *total) {
    std::lock_guard<std::mutex> lock(guard);
    *total = capacity();
    *free = capacity() - in_use;
    return OK;
}
Status aclrtMemcpy(void *to, size_t, const void *from, size_t n, int kind) { return copied(to, from, n, kind); }
Status aclrtMemcpyAsync(void *to, size_t, const void *from, size_t n, int kind, void *) { return copied(to, from, n, kind); }
Status aclrtMemset(void *p, size_t, int v, size_t n) { Status failed = synchronise(); memset(p, v, n); return failed; }
Status aclrtMemsetAsync(void *p, size_t, int v, size_t n, void *) {
    Status failed = synchronise();
    memset(p, v, n);
    standin_log(("{\"launch\":\"memset\",\"args\":\"" + std::to_string(n) + " bytes\"}").c_str());
    return failed;
}

Status aclrtSynchronizeDevice() { if (Status lost = fault("sync", "")) return lost; return synchronise(); }
Status aclrtSynchronizeDeviceWithTimeout(int) { return aclrtSynchronizeDevice(); }
Status aclrtSynchronizeStream(void *) { return aclrtSynchronizeDevice(); }
Status aclrtSynchronizeStreamWithTimeout(void *, int) { return aclrtSynchronizeDevice(); }
Status aclrtSynchronizeEvent(void *) { return aclrtSynchronizeDevice(); }
Status aclrtSynchronizeEventWithTimeout(void *, int) { return aclrtSynchronizeDevice(); }

const char *aclrtGetSocName() { const char *p = getenv("MINDTORCH_STANDIN_CHIP"); return p && *p ? p : "Ascend910B2"; }
const char *aclGetRecentErrMsg() { return last_error(); }
Status aclrtGetDeviceCount(uint32_t *n) { *n = 8; return OK; }
Status aclrtSetDevice(int d) { if (d < 0 || d > 7) return NO_DEVICE; current = d; return OK; }
Status aclrtGetDevice(int *d) { *d = current; return OK; }
Status aclrtCreateContext(void **c, int d) { *c = contexts[d & 7]; return OK; }
Status aclrtGetCurrentContext(void **c) { *c = context; return OK; }
Status aclrtSetCurrentContext(void *c) { context = c; return OK; }
Status aclrtCreateStream(void **p) { return handle(p); }
Status aclrtCreateStreamWithConfig(void **p, uint32_t, uint32_t) { return handle(p); }
Status aclrtCreateStreamV2(void **p, void *) { return handle(p); }
Status aclrtStreamQuery(void *, int *state) { *state = 0; return aclrtSynchronizeDevice(); }       // ACL_STREAM_STATUS_COMPLETE
Status aclrtGetStreamId(void *, int *id) { *id = 0; return OK; }
Status aclrtCreateEvent(void **p) { *p = new Event; return OK; }
Status aclrtCreateEventWithFlag(void **p, uint32_t) { *p = new Event; return OK; }
Status aclrtCreateEventExWithFlag(void **p, uint32_t) { *p = new Event; return OK; }
Status aclrtDestroyEvent(void *p) { delete (Event *)p; return OK; }
// (Recording is queued like other work, and waiting for the event reports a lost device. MindSpore ends
// the process if this call returns an error.)
Status aclrtRecordEvent(void *p, void *) { standin_drain(); if (p) ((Event *)p)->at = now(); return OK; }
Status aclrtEventElapsedTime(float *ms, void *a, void *z) { *ms = a && z ? ((Event *)z)->at - ((Event *)a)->at : 0; return OK; }
Status aclrtEventGetTimestamp(void *p, Word *t) { *t = p ? (Word)(((Event *)p)->at * 1000) : 0; return OK; }
Status aclrtQueryEventStatus(void *, int *state) { *state = 1; return aclrtSynchronizeDevice(); }   // ACL_EVENT_RECORDED_STATUS_COMPLETE
Status aclrtQueryEventWaitStatus(void *, int *state) { *state = 0; return OK; }
Status aclrtGetRunMode(int *mode) { *mode = 1; return OK; }
Status aclrtDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 7; *greatest = 0; return OK; }
Status aclrtGetDeviceResLimit(int, int, uint32_t *n) { *n = 24; return OK; }
Status aclrtGetStreamResLimit(void *, int, uint32_t *n) { *n = 24; return OK; }
Status aclrtGetResInCurrentThread(int, uint32_t *n) { *n = 24; return OK; }
Status aclrtDeviceCanAccessPeer(int *can, int, int) { *can = 0; return OK; }
Status aclrtDeviceGetBareTgid(int *pid) { *pid = getpid(); return OK; }
Status aclrtProcessReport(int) { usleep(20000); return OK; }
Status aclrtLaunchCallback(void (*f)(void *), void *user, int, void *) { standin_drain(); if (f) f(user); return OK; }
size_t aclDataTypeSize(int type) {
    static const int sizes[] = {4, 2, 1, 4, 1, 0, 2, 2, 4, 8, 8, 8, 1, 0, 0, 0, 8, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
    return type >= 0 && type < 28 ? sizes[type] : 1;
}
Status rtGetC2cCtrlAddr(Word *address, uint32_t *size) { static char page[4096]; *address = (Word)page; *size = sizeof page; return OK; }
Status aclrtGetHardwareSyncAddr(void **address) { static char page[4096]; *address = page; return OK; }
Status rtDevBinaryRegister(void *, void **h) { return handle(h); }
Status aclrtBinaryLoadFromData(void *, size_t, void *, void **h) { return handle(h); }
Status aclrtBinaryGetFunction(void *, const char *, void **h) { return handle(h); }
Status aclsysGetCANNVersion(int, char *v) {        // the version, then its parts, at fixed offsets
    memset(v, 0, 512);
    strcpy(v, "8.5.0");
    strcpy(v + 128, "8");
    strcpy(v + 192, "5");
    strcpy(v + 256, "0");
    strcpy(v + 320, "0");
    return OK;
}
// ---- queries of torch_npu
// ACL_OP_JIT_COMPILE "disable": kernels are precompiled, as on a 910B. torch_npu then launches aclnn kernels.
size_t aclGetCompileoptSize(int) { return 16; }
Status aclGetCompileopt(int, char *v, size_t n) { memset(v, 0, n); strncpy(v, "disable", n); return OK; }
Status aclSetCompileopt(int, const char *) { return OK; }
// A 910B computes infinities and NaN (ACL_CANN_ATTR_INF_NAN), and its kernels are precompiled
// (ACL_CANN_ATTR_JIT_COMPILE).
Status aclGetCannAttributeList(const int **list, size_t *n) { static int all[] = {0, 1}; *list = all; *n = 2; return OK; }
Status aclGetCannAttribute(int, int *v) { *v = 1; return OK; }
Status aclGetDeviceCapability(uint32_t, int, Long *v) { *v = 24; return OK; }               // cores, as aclrtGetDeviceResLimit
Status aclrtGetDeviceInfo(uint32_t, int, Long *v) { *v = 24; return OK; }
Status aclsysGetVersionStr(const char *, char *v) { strcpy(v, "8.5.0"); return OK; }
Status aclrtGetPrimaryCtxState(int, uint32_t *flags, int *active) { if (flags) *flags = 0; *active = 1; return OK; }
Status aclrtStreamGetId(void *, int *id) { *id = 0; return OK; }
Status aclmdlRICaptureGetInfo(void *, int *state, void **) { *state = 0; return OK; }       // no capture
Status aclrtGetStreamOverflowSwitch(void *, uint32_t *flag) { *flag = 0; return OK; }
Status aclrtGetSysParamOpt(int, Long *v) { *v = 0; return OK; }
Status aclrtGetLogicDevIdByUserDevId(int user, int *logical) { *logical = user; return OK; }
Status aclrtGetMemUsageInfo(int, void *, size_t, size_t *n) { *n = 0; return OK; }          // of no other process
Status aclGetTensorDescType(const Object *o) { return o->type; }
Status aclrtGetDeviceUtilizationRate(int, void *) { return UNSUPPORTED; }

void *aclmdlCreateDesc() { return calloc(1, 64); }
void *aclmdlCreateDataset() { return calloc(1, 64); }
void *aclrtAllocatorCreateDesc() { return calloc(1, 64); }
void *acltdtCreateChannel(uint32_t, const char *) { return calloc(1, 64); }
void *acltdtCreateChannelWithCapacity(uint32_t, const char *, size_t) { return calloc(1, 64); }
void *acltdtCreateDataset() { return calloc(1, 64); }
void *acltdtCreateDataItem() { return calloc(1, 64); }
Status acltdtReceiveTensor(void *, void *, int) { usleep(100000); return TIMED_OUT; }

// A function that would compute or move data, which the simulator does not implement.
Status standin_absent(const char *name, const Word *, const Word *, const Word *) {
    return standin_missing((std::string(name) + " is not part of the stand-in").c_str());
}

// A function of CANN that has no effect here. MINDTORCH_STANDIN_CALLS logs these calls.
Status standin_nothing(const char *name, const Word *, const Word *, const Word *) {
    static const bool wanted = getenv("MINDTORCH_STANDIN_CALLS");
    if (wanted) standin_log(("{\"call\":" + quoted(name) + "}").c_str());
    return OK;
}
}
