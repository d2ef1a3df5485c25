// HCCL between the processes of one machine. The ranks of a communicator connect to a socket in the
// abstract namespace, whose name is in the root info. There rank 0 passes them a file descriptor of
// anonymous shared memory. Nothing has a name in the file system, so nothing is left behind, however a
// process ends.
//
// Collectives: every rank writes a chunk of its data to its slot, all ranks wait for each other, every
// rank reads what it needs, and all wait again. Every rank reduces in the order of ranks, so that
// results are bitwise equal on all of them (HCCL guarantees that only with its deterministic setting).
// float16 and bfloat16 are summed in float32 and rounded once.
// Messages: there is one channel per ordered pair of ranks. A send ends when the receiver has all data.
//
// The calls of the ranks are compared, with counts and types. Ranks with different calls get an error
// that describes them; a chip would hang or corrupt data. If a rank has died, or does not arrive within
// MINDTORCH_STANDIN_TIMEOUT seconds (default 60), synchronization reports an error.
#include "_standin.h"
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <linux/futex.h>
#include <map>
#include <memory>
#include <mutex>
#include <poll.h>
#include <random>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

namespace {

using std::to_string;
using Numbers = std::vector<uint64_t>;

enum Result : int32_t { SUCCESS = 0, BAD_ARGUMENT = 1, NULL_POINTER = 2, NOT_SUPPORTED = 5, NOT_FOUND = 6, TIMEOUT = 9, BAD_FILE = 10, REMOTE = 21 };

// ---- data types, with HCCL's codes
enum Type { I8, I16, I32, F16, F32, I64, U64, U8, U16, U32, F64, BF16, TYPES };
const size_t WIDTH[] = {1, 2, 4, 2, 4, 8, 8, 1, 2, 4, 8, 2};
const char *const TYPE_NAME[] = {"i8", "i16", "i32", "f16", "f32", "i64", "u64", "u8", "u16", "u32", "f64", "bf16"};
enum Reduction { SUM, PRODUCT, MAXIMUM, MINIMUM, REDUCTIONS };
const char *const REDUCTION_NAME[] = {"sum", "prod", "max", "min"};

float bits_to_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
uint32_t float_to_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

struct Half {
    uint16_t bits;
    Half() = default;
    operator float() const {
        uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
        if (exponent == 31) return bits_to_float(sign | 0x7f800000u | mantissa << 13);
        if (exponent) return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
        float small = std::ldexp(float(mantissa), -24);
        return sign ? -small : small;
    }
    explicit Half(float f) {
        uint32_t u = float_to_bits(f), sign = u >> 16 & 0x8000;
        u &= 0x7fffffff;
        if (u > 0x7f800000) bits = sign | 0x7e00;                           // NaN
        else if (u >= 0x477ff000) bits = sign | 0x7c00;                     // rounds to infinity
        else if (u < 0x38800000) bits = sign | uint16_t(std::nearbyint(std::ldexp(bits_to_float(u), 24)));     // not normal
        else bits = sign | uint16_t((u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13);
    }
};

struct Brain {
    uint16_t bits;
    Brain() = default;
    operator float() const { return bits_to_float(uint32_t(bits) << 16); }
    explicit Brain(float f) {
        uint32_t u = float_to_bits(f);
        bits = f != f ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16;
    }
};

template <class A> A combine(A a, A b, int op) {
    switch (op) {
    case SUM: return a + b;
    case PRODUCT: return a * b;
    case MAXIMUM: return a != a || a > b ? a : b;       // NaN stays
    default: return a != a || a < b ? a : b;
    }
}

// T is the type in memory, S the type for comparisons, A the type of sums and products (unsigned for
// integers, because these wrap).
template <class T, class S, class A> void reduce_as(char *to, const std::vector<const char *> &from, size_t n, int op) {
    for (size_t i = 0; i < n; i++) {
        T first;
        memcpy(&first, from[0] + i * sizeof(T), sizeof(T));
        S s = S(first);
        for (size_t r = 1; r < from.size(); r++) {
            T next;
            memcpy(&next, from[r] + i * sizeof(T), sizeof(T));
            s = op == SUM || op == PRODUCT ? S(combine<A>(A(s), A(S(next)), op)) : combine<S>(s, S(next), op);
        }
        T result = T(s);
        memcpy(to + i * sizeof(T), &result, sizeof(T));
    }
}

void reduce(char *to, const std::vector<const char *> &from, size_t n, int type, int op) {
    switch (type) {
    case I8: return reduce_as<int8_t, int8_t, uint32_t>(to, from, n, op);
    case I16: return reduce_as<int16_t, int16_t, uint32_t>(to, from, n, op);
    case I32: return reduce_as<int32_t, int32_t, uint32_t>(to, from, n, op);
    case I64: return reduce_as<int64_t, int64_t, uint64_t>(to, from, n, op);
    case U8: return reduce_as<uint8_t, uint8_t, uint32_t>(to, from, n, op);
    case U16: return reduce_as<uint16_t, uint16_t, uint32_t>(to, from, n, op);
    case U32: return reduce_as<uint32_t, uint32_t, uint32_t>(to, from, n, op);
    case U64: return reduce_as<uint64_t, uint64_t, uint64_t>(to, from, n, op);
    case F16: return reduce_as<Half, float, float>(to, from, n, op);
    case BF16: return reduce_as<Brain, float, float>(to, from, n, op);
    case F32: return reduce_as<float, float, float>(to, from, n, op);
    case F64: return reduce_as<double, double, double>(to, from, n, op);
    }
}

// ---- errors
struct Trouble : std::runtime_error {
    Result code;
    Trouble(Result code, const std::string &text) : std::runtime_error(text), code(code) {}
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double patience() {
    const char *s = getenv("MINDTORCH_STANDIN_TIMEOUT");
    double v = s ? atof(s) : 0;
    return v > 0 ? v : 60;
}

std::string waited() {
    char b[80];
    snprintf(b, sizeof b, "within %g s (MINDTORCH_STANDIN_TIMEOUT)", patience());
    return b;
}

// ---- shared memory of the ranks
const size_t CHUNK = 1 << 20, MESSAGE = 1 << 16, LINE = 64;

struct Call {                   // the current call of a rank
    char what[24];
    uint64_t count;
    int32_t type, op, root;
    bool operator==(const Call &o) const { return !strcmp(what, o.what) && count == o.count && type == o.type && op == o.op && root == o.root; }
    std::string text() const {
        std::string s = what;
        if (type >= 0) s += " of " + to_string(count) + " " + TYPE_NAME[type];
        if (op >= 0) s += std::string(", ") + REDUCTION_NAME[op];
        if (root >= 0) s += ", root " + to_string(root);
        return s;
    }
};

struct alignas(LINE) Member {
    std::atomic<uint64_t> steps;        // number of steps at which it has arrived
    std::atomic<uint32_t> left;         // has destroyed its communicator
    Call call;
};

struct alignas(LINE) Channel {          // from one rank to another, one chunk at a time
    std::atomic<uint64_t> put, taken;
    uint64_t total, size;               // bytes of the message and of this chunk
    Call call;
    char data[MESSAGE];
};

struct alignas(LINE) Shared {
    std::atomic<uint32_t> tick;         // futex on which ranks sleep; every change of state increments it
    std::atomic<uint32_t> broken;       // 1: `why` is being written, 2: it can be read
    int32_t code;
    char why[400];
};

void wake(std::atomic<uint32_t> &tick) {
    tick++;
    syscall(SYS_futex, &tick, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0);
}

struct Communicator {
    int size, rank, fd = -1;
    std::string name;
    Shared *shared = nullptr;
    std::mutex busy;
    uint64_t steps = 0;
    std::map<std::string, int> children;        // number of sub-communicators created for a list of ranks

    Communicator(int size, int rank, const std::string &name) : size(size), rank(rank), name(name) {}
    ~Communicator() {
        if (shared) munmap(shared, bytes(size));
        if (fd >= 0) close(fd);
    }
    static size_t bytes(size_t n) { return sizeof(Shared) + n * sizeof(Member) + n * n * sizeof(Channel) + n * CHUNK; }
    Member &member(int r) { return reinterpret_cast<Member *>(shared + 1)[r]; }
    Channel &channel(int from, int to) { return reinterpret_cast<Channel *>(&member(size))[from * size + to]; }
    char *slot(int r) { return reinterpret_cast<char *>(&channel(size, 0)) + r * CHUNK; }

    // Every rank holds a lock on one byte of the memory file. The lock ends with the process: no child
    // inherits it, and a zombie has none.
    void hold() {
        struct flock l = {};
        l.l_type = F_WRLCK, l.l_whence = SEEK_SET, l.l_start = rank, l.l_len = 1;
        if (fcntl(fd, F_SETLK, &l)) throw Trouble(REMOTE, "rank " + to_string(rank) + " is taken by another process");
    }
    bool gone(int r) {
        struct flock l = {};
        l.l_type = F_WRLCK, l.l_whence = SEEK_SET, l.l_start = r, l.l_len = 1;
        return r != rank && !fcntl(fd, F_GETLK, &l) && l.l_type == F_UNLCK;
    }
    void map() {
        void *p = mmap(nullptr, bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) throw Trouble(REMOTE, std::string("shared memory: ") + strerror(errno));
        shared = static_cast<Shared *>(p);
    }

    // The first error ends the communicator for all ranks, which would otherwise wait for this rank.
    void break_it(Result code, const std::string &why) {
        uint32_t whole = 0;
        if (shared && shared->broken.compare_exchange_strong(whole, 1)) {
            shared->code = code;
            snprintf(shared->why, sizeof shared->why, "%s", why.c_str());
            shared->broken = 2;
            wake(shared->tick);
        }
    }

    void look() {
        if (shared->broken == 2) throw Trouble(Result(shared->code), shared->why);
    }

    // Sleeps until done() is true. late(r) is true while rank r has not arrived. Throws if a late rank has
    // died or the timeout has passed.
    template <class Done, class Late> void wait(Done done, Late late) {
        double end = now() + patience(), next = 0;
        for (;;) {
            uint32_t tick = shared->tick;
            if (done()) return;
            look();
            if (double t = now(); t > next) {
                next = t + 0.05;
                std::vector<bool> lost(size);
                for (int r = 0; r < size; r++) lost[r] = late(r) && gone(r);
                if (done()) return;             // a rank that has ended since then arrived before
                std::string late_ones;
                for (int r = 0; r < size; r++) {
                    if (lost[r] && late(r)) throw Trouble(REMOTE, "rank " + to_string(r) + (member(r).left ? " has left" : " has died"));
                    if (late(r)) late_ones += (late_ones.empty() ? "rank " : ", ") + to_string(r);
                }
                if (t > end) throw Trouble(TIMEOUT, late_ones + " did not come " + waited());
            }
            timespec most = {0, 50000000};
            syscall(SYS_futex, &shared->tick, FUTEX_WAIT, tick, &most, nullptr, 0);
        }
    }

    void step() {
        member(rank).steps = ++steps;
        wake(shared->tick);
        auto late = [&](int r) { return member(r).steps < steps; };
        wait([&] { for (int r = 0; r < size; r++) if (late(r)) return false; return true; }, late);
    }

    // Runs the rounds of all ranks over `length` elements of `width` bytes. put(at, n) writes to slots,
    // take(at, n) reads them.
    template <class Put, class Take> void rounds(const Call &call, uint64_t length, size_t width, Put put, Take take) {
        member(rank).call = call;
        uint64_t most = width ? CHUNK / width : 1, at = 0;
        do {
            uint64_t n = std::min(most, length - at);
            if (n) put(at, n);
            step();
            if (!at)
                for (int r = 0; r < size; r++)
                    if (!(member(r).call == call))
                        differ(" calls ", call, r, " ", member(r).call);
            if (n) take(at, n);
            step();
            at += n;
        } while (at < length);
    }

    [[noreturn]] void differ(const char *does, const Call &own, int other, const char *did, const Call &theirs) {
        throw Trouble(BAD_ARGUMENT, "rank " + to_string(rank) + does + own.text() + ", rank " + to_string(other) + did + theirs.text());
    }

    std::vector<const char *> slots() {
        std::vector<const char *> all;
        for (int r = 0; r < size; r++) all.push_back(slot(r));
        return all;
    }

    // ---- messages
    struct Item {
        bool sends;
        char *data;
        uint64_t bytes, at = 0, last = 0;
        int peer;
        Call call;
        bool begun = false, done = false;
    };

    // Advances every message that can be advanced; messages of one channel are in order. Returns true if
    // any advanced.
    bool advance(std::vector<Item> &items) {
        bool moved = false;
        std::vector<char> used(2 * size);
        for (Item &i : items) {
            char &turn = used[2 * i.peer + i.sends];
            if (i.done || turn) continue;
            turn = 1;
            Channel &c = i.sends ? channel(rank, i.peer) : channel(i.peer, rank);
            if (i.sends && c.put == c.taken) {
                moved = true;
                if (i.begun && i.at == i.bytes) { i.done = true; continue; }
                c.total = i.bytes, c.call = i.call, c.size = std::min<uint64_t>(MESSAGE, i.bytes - i.at);
                memcpy(c.data, i.data + i.at, c.size);
                i.at += c.size, i.begun = true;
                c.put++;
            } else if (!i.sends && c.put > c.taken) {
                if (!(c.call == i.call) || c.total != i.bytes)
                    differ(" receives ", i.call, i.peer, " sends ", c.call);
                memcpy(i.data + i.at, c.data, c.size);
                i.at += c.size;
                i.done = i.at == i.bytes, moved = true;
                c.taken++;
            }
        }
        if (moved) wake(shared->tick);
        return moved;
    }

    void exchange(std::vector<Item> items) {
        auto waits_for = [&](int r) { return std::any_of(items.begin(), items.end(), [&](const Item &i) { return !i.done && (r < 0 || i.peer == r); }); };
        while (waits_for(-1))       // the timeout is for one chunk, not for all of them
            wait([&] { return advance(items); }, waits_for);
    }
};

std::mutex communicators_lock;
std::map<void *, std::shared_ptr<Communicator>> communicators;
std::map<std::string, int> listening;       // sockets of the root infos that were returned

std::shared_ptr<Communicator> find(void *handle) {
    std::lock_guard<std::mutex> guard(communicators_lock);
    auto it = communicators.find(handle);
    return it == communicators.end() ? nullptr : it->second;
}

// ---- rendezvous of the ranks
struct File {
    int fd;
    explicit File(int fd) : fd(fd) {}
    File(const File &) = delete;
    File(File &&o) : fd(o.fd) { o.fd = -1; }
    ~File() { if (fd >= 0) close(fd); }
};

sockaddr_un address(const std::string &name, socklen_t &length) {
    sockaddr_un a = {};
    a.sun_family = AF_UNIX;
    size_t n = std::min(name.size(), sizeof a.sun_path - 1);
    memcpy(a.sun_path + 1, name.data(), n);     // a leading zero byte: abstract namespace
    length = offsetof(sockaddr_un, sun_path) + 1 + n;
    return a;
}

int listen_at(const std::string &name) {
    socklen_t n;
    sockaddr_un a = address(name, n);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || bind(s, (sockaddr *)&a, n) || listen(s, 4096)) {
        int e = errno;
        if (s >= 0) close(s);
        throw Trouble(REMOTE, "a socket for the ranks to meet at: " + std::string(strerror(e)));
    }
    return s;
}

void await(int fd, double end, const std::string &whom) {
    for (;;) {
        double left = end - now();
        pollfd p = {fd, POLLIN, 0};
        int n = left > 0 ? poll(&p, 1, int(left * 1000) + 1) : 0;
        if (n > 0) return;
        if (n < 0 && errno == EINTR) continue;
        throw Trouble(TIMEOUT, whom + " did not come " + waited());
    }
}

struct Hello { int32_t rank, size; };

void say(int fd, const void *p, size_t n, int pass, const std::string &whom) {
    iovec part = {const_cast<void *>(p), n};
    msghdr m = {};
    m.msg_iov = &part, m.msg_iovlen = 1;
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    if (pass >= 0) {
        m.msg_control = room, m.msg_controllen = sizeof room;
        cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &pass, sizeof(int));
    }
    if (sendmsg(fd, &m, MSG_NOSIGNAL) != ssize_t(n)) throw Trouble(REMOTE, whom + " has gone");
}

void hear(int fd, void *p, size_t n, int *passed, double end, const std::string &whom) {
    await(fd, end, whom);
    iovec part = {p, n};
    msghdr m = {};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    m.msg_iov = &part, m.msg_iovlen = 1, m.msg_control = room, m.msg_controllen = sizeof room;
    if (recvmsg(fd, &m, MSG_CMSG_CLOEXEC) != ssize_t(n)) throw Trouble(REMOTE, whom + " has gone");
    if (passed) {
        cmsghdr *c = CMSG_FIRSTHDR(&m);
        if (!c || c->cmsg_type != SCM_RIGHTS) throw Trouble(REMOTE, whom + " has given up");
        memcpy(passed, CMSG_DATA(c), sizeof(int));
    }
}

void meet_as_root(Communicator &c, double end) {
    File door(-1);
    {
        std::lock_guard<std::mutex> guard(communicators_lock);
        auto it = listening.find(c.name);
        if (it != listening.end()) door.fd = it->second, listening.erase(it);
    }
    if (door.fd < 0) door.fd = listen_at(c.name);
    std::map<int, File> others;
    while (int(others.size()) < c.size - 1) {
        std::string missing;
        for (int r = 1; r < c.size; r++) if (!others.count(r)) missing += (missing.empty() ? "rank " : ", ") + to_string(r);
        await(door.fd, end, missing);
        File one(accept4(door.fd, nullptr, nullptr, SOCK_CLOEXEC));
        ucred who = {};
        socklen_t n = sizeof who;
        if (one.fd < 0 || getsockopt(one.fd, SOL_SOCKET, SO_PEERCRED, &who, &n) || who.uid != geteuid()) continue;
        Hello hello = {};
        hear(one.fd, &hello, sizeof hello, nullptr, end, "a rank");
        if (hello.size != c.size || hello.rank < 1 || hello.rank >= c.size || others.count(hello.rank))
            throw Trouble(BAD_ARGUMENT, "rank " + to_string(hello.rank) + " of " + to_string(hello.size) + " came where " + to_string(c.size) + " ranks meet" +
                          (others.count(hello.rank) ? ", where it was already" : ""));
        others.emplace(hello.rank, std::move(one));
    }
    c.fd = memfd_create("mindtorch-hccl", MFD_CLOEXEC);
    if (c.fd < 0 || ftruncate(c.fd, Communicator::bytes(c.size))) throw Trouble(REMOTE, std::string("shared memory: ") + strerror(errno));
    c.map();
    c.hold();
    char word = 0;
    for (auto &[r, f] : others) say(f.fd, &word, 1, c.fd, "rank " + to_string(r));
    for (auto &[r, f] : others) hear(f.fd, &word, 1, nullptr, end, "rank " + to_string(r));
    for (auto &[r, f] : others) say(f.fd, &word, 1, -1, "rank " + to_string(r));
}

void meet_root(Communicator &c, double end, bool listens) {
    File s(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t n;
    sockaddr_un a = address(c.name, n);
    while (connect(s.fd, (sockaddr *)&a, n)) {
        if (errno == EINTR) continue;
        if (listens && errno == ECONNREFUSED) throw Trouble(REMOTE, "rank 0 has gone");
        if (now() > end) throw Trouble(TIMEOUT, "rank 0 did not come " + waited());
        usleep(10000);
    }
    Hello hello = {c.rank, c.size};
    char word = 0;
    say(s.fd, &hello, sizeof hello, -1, "rank 0");
    hear(s.fd, &word, 1, &c.fd, end, "rank 0");
    c.map();
    c.hold();
    say(s.fd, &word, 1, -1, "rank 0");
    hear(s.fd, &word, 1, nullptr, end, "rank 0");
}

std::string line_of(const Communicator &c, const std::string &name) {
    return "{\"hccl\": \"" + name + "\", \"ranks\": " + to_string(c.size) + ", \"rank\": " + to_string(c.rank) + "}";
}

// `listens`: rank 0 opened its socket before it passed on the name
Result meet(const std::string &name, int size, int rank, bool listens, void **handle) {
    if (!handle) return NULL_POINTER;
    auto c = std::make_shared<Communicator>(size, rank, name);
    try {
        if (size < 1 || size > 1024 || rank < 0 || rank >= size) throw Trouble(BAD_ARGUMENT, "rank " + to_string(rank) + " of " + to_string(size));
        double end = now() + patience();
        rank ? meet_root(*c, end, listens) : meet_as_root(*c, end);
    } catch (const Trouble &e) {
        std::string text = "HCCL: rank " + to_string(rank) + " of " + to_string(size) + " found no communicator: " + e.what();
        standin_fail(text.c_str());
        return e.code;
    }
    {
        std::lock_guard<std::mutex> guard(communicators_lock);
        communicators[c.get()] = c;
    }
    *handle = c.get();
    standin_log(line_of(*c, "CommInit").c_str());
    return SUCCESS;
}

// ---- one call
Call described(const char *what, uint64_t count = 0, int type = -1, int op = -1, int root = -1) {
    Call c = {};
    snprintf(c.what, sizeof c.what, "%s", what);
    c.count = count, c.type = type, c.op = op, c.root = root;
    return c;
}

// Checks the arguments, writes the log line, waits for earlier launches and runs the call. Failures
// inside the call are reported at synchronization, as on the chip.
template <class Body> Result run(void *handle, const Call &call, const std::string &more, Body body) {
    auto c = find(handle);
    std::string wrong;
    if (!c) wrong = "no such communicator";
    else if (call.type >= TYPES || call.type < -1) wrong = "type of data " + to_string(call.type) + " is not known";
    else if (call.op >= REDUCTIONS || call.op < -1) wrong = "reduction " + to_string(call.op) + " is not known";
    else if (call.root >= c->size) wrong = "root " + to_string(call.root) + " of " + to_string(c->size) + " ranks";
    if (!wrong.empty()) {
        standin_fail(("Hccl" + std::string(call.what) + ": " + wrong).c_str());
        return BAD_ARGUMENT;
    }
    std::string line = "{\"hccl\": \"" + std::string(call.what) + "\"";
    if (call.type >= 0) line += ", \"count\": " + to_string(call.count) + ", \"dtype\": \"" + TYPE_NAME[call.type] + "\"";
    if (call.op >= 0) line += std::string(", \"op\": \"") + REDUCTION_NAME[call.op] + "\"";
    if (call.root >= 0) line += ", \"root\": " + to_string(call.root);
    line += more + ", \"ranks\": " + to_string(c->size) + ", \"rank\": " + to_string(c->rank) + "}";
    standin_log(line.c_str());
    standin_drain();
    std::lock_guard<std::mutex> guard(c->busy);
    try {
        c->look();
        body(*c);
        return SUCCESS;
    } catch (const Trouble &e) {
        std::string where = "Hccl" + std::string(call.what) + " on rank " + to_string(c->rank) + " of " + to_string(c->size) + ": ";
        c->break_it(e.code, where + e.what());
        standin_fail(c->shared->why == std::string(e.what()) ? e.what() : (where + e.what()).c_str());
        return SUCCESS;
    }
}

template <class T> char *bytes_of(T *p) { return static_cast<char *>(const_cast<void *>(static_cast<const void *>(p))); }
size_t width(int type) { return type >= 0 && type < TYPES ? WIDTH[type] : 0; }

std::string listed(const Numbers &v) {
    std::string s = "[";
    for (size_t i = 0; i < v.size(); i++) s += (i ? ", " : "") + to_string(v[i]);
    return s + "]";
}

std::string digest(const std::string &s) {
    uint64_t h = 1469598103934665603u;
    for (unsigned char c : s) h = (h ^ c) * 1099511628211u;
    char b[20];
    snprintf(b, sizeof b, "%016llx", (unsigned long long)h);
    return b;
}

int refuse(const char *name) {
    standin_fail((std::string(name) + " is not in the stand-in").c_str());
    return NOT_SUPPORTED;
}

// Reduces the parts one after the other: part r of all ranks is reduced into the output of rank r.
Result reduce_parts(const char *what, char *from, const Numbers &counts, char *to, int type, int op, void *comm) {
    bool even = true;
    for (uint64_t n : counts) even = even && n == counts[0];
    size_t w = width(type);
    std::string more = even ? "" : ", \"counts\": " + listed(counts);
    return run(comm, described(what, counts.empty() ? 0 : counts[0], type, op), more, [&](Communicator &c) {
        uint64_t begin = 0;
        for (int r = 0; r < c.size; begin += counts[r++])
            c.rounds(described(what, counts[r], type, op, r), counts[r], w,
                     [&](uint64_t at, uint64_t n) { memcpy(c.slot(c.rank), from + (begin + at) * w, n * w); },
                     [&](uint64_t at, uint64_t n) { if (c.rank == r) reduce(to + at * w, c.slots(), n, type, op); });
    });
}

Result gather_parts(const char *what, char *from, uint64_t mine, char *to, const Numbers &counts, const Numbers &places, int type,
                    void *comm) {
    uint64_t most = 0;
    for (uint64_t n : counts) most = std::max(most, n);
    size_t w = width(type);
    return run(comm, described(what, mine, type), "", [&](Communicator &c) {
        if (counts[c.rank] != mine) throw Trouble(BAD_ARGUMENT, "sends " + to_string(mine) + " and expects " + to_string(counts[c.rank]) + " of itself");
        c.rounds(described(what, most, type), most, w,
                 [&](uint64_t at, uint64_t n) { if (at < mine) memcpy(c.slot(c.rank), from + at * w, std::min(n, mine - at) * w); },
                 [&](uint64_t at, uint64_t n) {
                     for (int r = 0; r < c.size; r++)
                         if (at < counts[r]) memcpy(to + (places[r] + at) * w, c.slot(r), std::min(n, counts[r] - at) * w);
                 });
    });
}

Result all_to_all(const char *what, char *from, const Numbers &sends, const Numbers &send_at, char *to, const Numbers &takes,
                  const Numbers &take_at, int type, int take_type, void *comm, bool even) {
    uint64_t count = 0;
    for (uint64_t n : sends) count += n;
    size_t w = width(type);
    std::string more = even ? "" : ", \"sends\": " + listed(sends) + ", \"takes\": " + listed(takes);
    return run(comm, described(what, even ? sends[0] : count, type), more, [&](Communicator &c) {
        if (type != take_type) throw Trouble(NOT_SUPPORTED, "the types of what is sent and received differ");
        std::vector<Communicator::Item> items;
        for (int r = 0; r < c.size; r++) {
            items.push_back({true, from + send_at[r] * w, sends[r] * w, 0, 0, r, described(what, sends[r], type)});
            items.push_back({false, to + take_at[r] * w, takes[r] * w, 0, 0, r, described(what, takes[r], type)});
        }
        c.exchange(items);
    });
}

Numbers numbers(const void *p, int n) { auto *v = static_cast<const uint64_t *>(p); return Numbers(v, v + n); }

Numbers laid(const Numbers &counts) {
    Numbers at;
    uint64_t sum = 0;
    for (uint64_t n : counts) at.push_back(sum), sum += n;
    return at;
}

int ranks_of(void *comm) { auto c = find(comm); return c ? c->size : 0; }

}  // namespace

extern "C" {

const size_t ROOT_INFO = 4108;      // bytes; they start with the name of the rendezvous socket

int HcclGetRootInfo(char *info) {
    if (!info) return NULL_POINTER;
    std::random_device chance;
    char name[96];
    snprintf(name, sizeof name, "mindtorch-hccl-%d-%08x%08x", int(getpid()), unsigned(chance()), unsigned(chance()));
    memset(info, 0, ROOT_INFO);
    try {
        int fd = listen_at(name);
        std::lock_guard<std::mutex> guard(communicators_lock);
        listening[name] = fd;
    } catch (const Trouble &e) {
        standin_fail((std::string("HcclGetRootInfo: ") + e.what()).c_str());
        return e.code;
    }
    memcpy(info, name, strlen(name));
    return SUCCESS;
}

int HcclCommInitRootInfo(uint32_t ranks, const char *info, uint32_t rank, void **comm) {
    if (!info) return NULL_POINTER;
    return meet(std::string(info, strnlen(info, 95)), ranks, rank, true, comm);
}

int HcclCommInitRootInfoConfig(uint32_t ranks, const char *info, uint32_t rank, const void *, void **comm) {
    return HcclCommInitRootInfo(ranks, info, rank, comm);
}

// Creates a communicator from a rank table. Concurrent jobs with the same table would connect to each
// other, as they would on the machines that the table names.
int HcclCommInitClusterInfo(const char *table, uint32_t rank, void **comm) {
    FILE *f = table ? fopen(table, "r") : nullptr;
    if (!f) {
        standin_fail(("HcclCommInitClusterInfo: no table of ranks at " + std::string(table ? table : "")).c_str());
        return BAD_FILE;
    }
    std::string text;
    char part[4096];
    while (size_t n = fread(part, 1, sizeof part, f)) text.append(part, n);
    fclose(f);
    int ranks = 0;
    for (size_t at = 0; (at = text.find("\"rank_id\"", at)) != std::string::npos; at++) ranks++;
    return meet("mindtorch-hccl-table-" + to_string(geteuid()) + "-" + digest(text), ranks, rank, false, comm);
}

int HcclCommInitClusterInfoConfig(const char *table, uint32_t rank, void *, void **comm) { return HcclCommInitClusterInfo(table, rank, comm); }

int HcclCreateSubCommConfig(void **parent, uint32_t n, uint32_t *ids, uint64_t id, uint32_t rank, void *, void **comm) {
    auto c = parent ? find(*parent) : nullptr;
    if (!c || !ids) return c ? NULL_POINTER : NOT_FOUND;
    std::string key = to_string(id);
    for (uint32_t i = 0; i < n; i++) key += "," + to_string(ids[i]);
    int before;
    {
        std::lock_guard<std::mutex> guard(c->busy);
        before = c->children[key]++;
    }
    return meet("mindtorch-hccl-part-" + digest(c->name + "/" + key + "/" + to_string(before)) + digest(key + c->name), n, rank, false, comm);
}

int HcclCommDestroy(void *comm) {
    std::shared_ptr<Communicator> c;
    {
        std::lock_guard<std::mutex> guard(communicators_lock);
        auto it = communicators.find(comm);
        if (it == communicators.end()) return NOT_FOUND;
        c = it->second;
        communicators.erase(it);
    }
    standin_drain();
    c->member(c->rank).left = 1;
    wake(c->shared->tick);
    standin_log(line_of(*c, "CommDestroy").c_str());
    return SUCCESS;
}

int HcclGetRankSize(void *comm, uint32_t *n) { auto c = find(comm); if (!c || !n) return BAD_ARGUMENT; *n = c->size; return SUCCESS; }
int HcclGetRankId(void *comm, uint32_t *r) { auto c = find(comm); if (!c || !r) return BAD_ARGUMENT; *r = c->rank; return SUCCESS; }
int HcclGetCommName(void *comm, char *name) {
    auto c = find(comm);
    if (!c || !name) return BAD_ARGUMENT;
    snprintf(name, 128, "%s", c->name.c_str());
    return SUCCESS;
}
// (Errors are reported at synchronization.)
int HcclGetCommAsyncError(void *, int32_t *error) { if (!error) return NULL_POINTER; *error = SUCCESS; return SUCCESS; }
uint32_t HcclGetCommConfigCapability() { return 0; }
int HcclSetConfig(int32_t, int32_t) { return SUCCESS; }      // the only setting is determinism, and the simulator is always deterministic
const char *HcclGetErrorString(int code) {
    static const char *const WORDS[] = {"success", "parameter error", "null pointer", "memory error", "internal error", "not supported", "not found",
                                        "unavailable", "system call error", "timeout", "file cannot be opened"};
    return code == REMOTE ? "remote error" : code >= 0 && code <= 10 ? WORDS[code] : "error";
}

int HcclAllReduce(void *from, void *to, uint64_t count, int type, int op, void *comm, void *) {
    size_t w = width(type);
    Call call = described("AllReduce", count, type, op);
    return run(comm, call, "", [&](Communicator &c) {
        c.rounds(call, count, w, [&](uint64_t at, uint64_t n) { memcpy(c.slot(c.rank), bytes_of(from) + at * w, n * w); },
                 [&](uint64_t at, uint64_t n) { reduce(bytes_of(to) + at * w, c.slots(), n, type, op); });
    });
}

int HcclReduce(void *from, void *to, uint64_t count, int type, int op, uint32_t root, void *comm, void *) {
    size_t w = width(type);
    Call call = described("Reduce", count, type, op, root);
    return run(comm, call, "", [&](Communicator &c) {
        c.rounds(call, count, w, [&](uint64_t at, uint64_t n) { memcpy(c.slot(c.rank), bytes_of(from) + at * w, n * w); },
                 [&](uint64_t at, uint64_t n) { if (c.rank == int(root)) reduce(bytes_of(to) + at * w, c.slots(), n, type, op); });
    });
}

int HcclBroadcast(void *data, uint64_t count, int type, uint32_t root, void *comm, void *) {
    size_t w = width(type);
    Call call = described("Broadcast", count, type, -1, root);
    return run(comm, call, "", [&](Communicator &c) {
        c.rounds(call, count, w, [&](uint64_t at, uint64_t n) { if (c.rank == int(root)) memcpy(c.slot(root), bytes_of(data) + at * w, n * w); },
                 [&](uint64_t at, uint64_t n) { if (c.rank != int(root)) memcpy(bytes_of(data) + at * w, c.slot(root), n * w); });
    });
}

int HcclScatter(void *from, void *to, uint64_t count, int type, uint32_t root, void *comm, void *) {
    size_t w = width(type);
    Call call = described("Scatter", count, type, -1, root);
    return run(comm, call, "", [&](Communicator &c) {
        c.rounds(call, count, w, [&](uint64_t at, uint64_t n) {
                     for (int r = 0; r < c.size && c.rank == int(root); r++) memcpy(c.slot(r), bytes_of(from) + (r * count + at) * w, n * w);
                 },
                 [&](uint64_t at, uint64_t n) { memcpy(bytes_of(to) + at * w, c.slot(c.rank), n * w); });
    });
}

int HcclAllGather(void *from, void *to, uint64_t count, int type, void *comm, void *) {
    Numbers counts(ranks_of(comm), count);
    return gather_parts("AllGather", bytes_of(from), count, bytes_of(to), counts, laid(counts), type, comm);
}

int HcclAllGatherV(void *from, uint64_t mine, void *to, const void *counts, const void *places, int type, void *comm, void *) {
    int n = ranks_of(comm);
    return gather_parts("AllGatherV", bytes_of(from), mine, bytes_of(to), numbers(counts, n), numbers(places, n), type, comm);
}

int HcclReduceScatter(void *from, void *to, uint64_t count, int type, int op, void *comm, void *) {
    return reduce_parts("ReduceScatter", bytes_of(from), Numbers(ranks_of(comm), count), bytes_of(to), type, op, comm);
}

int HcclReduceScatterV(void *from, const void *counts, const void *places, void *to, uint64_t mine, int type, int op, void *comm, void *) {
    auto n = numbers(counts, ranks_of(comm));
    auto c = find(comm);
    if (c && (numbers(places, c->size) != laid(n) || n[c->rank] != mine)) return refuse("HcclReduceScatterV of parts that do not lie one behind the other");
    return reduce_parts("ReduceScatterV", bytes_of(from), n, bytes_of(to), type, op, comm);
}

int HcclAlltoAll(const void *from, uint64_t count, int type, const void *to, uint64_t take_count, int take_type, void *comm, void *) {
    Numbers sends(std::max(1, ranks_of(comm)), count), takes(sends.size(), take_count);
    return all_to_all("AlltoAll", bytes_of(from), sends, laid(sends), bytes_of(to), takes, laid(takes), type, take_type, comm, true);
}

int HcclAlltoAllV(const void *from, const void *counts, const void *places, int type, const void *to, const void *take_counts, const void *take_places,
                  int take_type, void *comm, void *) {
    int n = ranks_of(comm);
    return all_to_all("AlltoAllV", bytes_of(from), numbers(counts, n), numbers(places, n), bytes_of(to), numbers(take_counts, n), numbers(take_places, n),
                      type, take_type, comm, false);
}

int HcclAlltoAllVC(const void *from, const void *matrix, int type, const void *to, int take_type, void *comm, void *) {
    auto c = find(comm);
    Numbers sends, takes, all = numbers(matrix, c ? c->size * c->size : 0);
    for (int r = 0; c && r < c->size; r++) sends.push_back(all[c->rank * c->size + r]), takes.push_back(all[r * c->size + c->rank]);
    return all_to_all("AlltoAllVC", bytes_of(from), sends, laid(sends), bytes_of(to), takes, laid(takes), type, take_type, comm, false);
}

struct HcclSendRecvItem { int32_t receives; void *data; uint64_t count; int32_t type; uint32_t peer; };

static int messages(const char *what, HcclSendRecvItem *items, uint32_t n, void *comm) {
    std::string more = ", \"items\": [";
    for (uint32_t i = 0; i < n; i++) {
        int t = items[i].type;
        if (t < 0 || t >= TYPES || int(items[i].peer) >= ranks_of(comm)) return BAD_ARGUMENT;
        more += std::string(i ? ", " : "") + (items[i].receives ? "[\"recv\", " : "[\"send\", ") + to_string(items[i].count);
        more += std::string(", \"") + TYPE_NAME[t] + "\", " + to_string(items[i].peer) + "]";
    }
    std::string peer = n ? ", \"peer\": " + to_string(items[0].peer) : "";
    bool batch = !strcmp(what, "BatchSendRecv");
    return run(comm, batch ? described(what) : described(what, items[0].count, items[0].type), batch ? more + "]" : peer, [&](Communicator &c) {
        std::vector<Communicator::Item> all;
        for (uint32_t i = 0; i < n; i++) {
            const HcclSendRecvItem &m = items[i];
            all.push_back({!m.receives, bytes_of(m.data), m.count * WIDTH[m.type], 0, 0, int(m.peer), described("a message", m.count, m.type)});
        }
        c.exchange(all);
    });
}

int HcclBatchSendRecv(HcclSendRecvItem *items, uint32_t n, void *comm, void *) { return messages("BatchSendRecv", items, n, comm); }

// Calls between HcclGroupStart and HcclGroupEnd begin together. Messages are collected until the end of
// the group and exchanged as one batch for each communicator: a Send that waited inside the group would
// block the Recv behind it. Collectives run immediately, because all ranks call them in the same order.
struct Group { int depth = 0; std::vector<std::pair<void *, std::vector<HcclSendRecvItem>>> batches; };
static thread_local Group group;

static int message(const char *what, HcclSendRecvItem one, void *comm) {
    if (!group.depth) return messages(what, &one, 1, comm);
    for (auto &batch : group.batches)
        if (batch.first == comm) { batch.second.push_back(one); return 0; }
    group.batches.push_back({comm, {one}});
    return 0;
}

int HcclSend(void *data, uint64_t count, int type, uint32_t peer, void *comm, void *) { return message("Send", {0, data, count, type, peer}, comm); }
int HcclRecv(void *data, uint64_t count, int type, uint32_t peer, void *comm, void *) { return message("Recv", {1, data, count, type, peer}, comm); }

int HcclGroupStart() { group.depth++; return 0; }
int HcclGroupEnd() {
    if (!group.depth || --group.depth) return 0;
    auto batches = std::move(group.batches);
    group.batches.clear();
    for (auto &batch : batches)
        if (int failed = messages("BatchSendRecv", batch.second.data(), batch.second.size(), batch.first)) return failed;
    return 0;
}

int HcclBarrier(void *comm, void *) {
    Call call = described("Barrier");
    return run(comm, call, "", [&](Communicator &c) { c.rounds(call, 0, 0, [](uint64_t, uint64_t) {}, [](uint64_t, uint64_t) {}); });
}

int HcclCommResume(void *) { return refuse("HcclCommResume"); }
int HcclCommWorkingDevNicSet(void *, uint32_t *, bool *, uint32_t) { return refuse("HcclCommWorkingDevNicSet"); }
int HcclCommSetMemoryRange(void *, void *, size_t, size_t, uint64_t) { return refuse("HcclCommSetMemoryRange"); }
int HcclCommUnsetMemoryRange(void *, void *) { return refuse("HcclCommUnsetMemoryRange"); }
int HcclCommActivateCommMemory(void *, void *, size_t, size_t, void *, uint64_t) { return refuse("HcclCommActivateCommMemory"); }
int HcclCommDeactivateCommMemory(void *, void *) { return refuse("HcclCommDeactivateCommMemory"); }
int HcclGetRootInfoScalable(void *, uint32_t) { return refuse("HcclGetRootInfoScalable"); }
int HcclCommInitRootInfoScalable(uint32_t, void *, uint32_t, uint32_t, void *, void **) { return refuse("HcclCommInitRootInfoScalable"); }
int HcclCommInitAll(uint32_t, int32_t *, void **) { return refuse("HcclCommInitAll"); }
int HcclCommSymWinRegister(void *, void *, uint64_t, void **, uint32_t) { return refuse("HcclCommSymWinRegister"); }
int HcclCommRegister(void *, void *, uint64_t, void **, uint32_t) { return refuse("HcclCommRegister"); }
int HcclCommExchangeMem(void *, void *, uint32_t *, uint32_t) { return refuse("HcclCommExchangeMem"); }

}
