// The device: its memory (a file that both processes map), its log, and the connection to the process
// that computes launches (_machine.py, with the kernels of kernels/).
//
// Launches are written to a socket and are asynchronous. Every access to device memory drains first.
// MINDTORCH_STANDIN_SOCKET names the socket, MINDTORCH_STANDIN_LOG the log file.
// ASCEND_LAUNCH_BLOCKING=1 makes each launch synchronous, so that it reports its own error.
#include "_standin.h"
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const size_t ROOM = (size_t)1 << 38;        // reserved addresses; unused memory costs nothing

struct Device {
    std::recursive_mutex guard;
    bool tried = false, blocking = false;
    int socket = -1, memory = -1, log = -1;
    pid_t owner = 0;
    char *base = nullptr;
    size_t pending = 0;
    std::set<std::string> kernels;
    std::string failed;                            // the first failure, never cleared
    Status code = OK;
};
static Device &device = *new Device;               // never destroyed: MindSpore's threads outlive main()

static thread_local std::string said;
const char *last_error() { return said.c_str(); }
void say_error(const std::string &text) { said = text; }

static void memory_needed() {
    if (device.base) return;
    device.owner = getpid();
    device.memory = memfd_create("standin", MFD_CLOEXEC);
    if (device.memory < 0 || ftruncate(device.memory, ROOM)) { perror("stand-in: device memory"); _exit(70); }
    void *p = mmap(nullptr, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, device.memory, 0);
    if (p == MAP_FAILED) { perror("stand-in: device memory"); _exit(70); }
    device.base = (char *)p;
    // A forked child has no device: neither its memory nor the connection to the computing process.
    madvise(p, ROOM, MADV_DONTFORK);
    pthread_atfork(nullptr, nullptr, [] {
        close(device.memory);
        if (device.socket >= 0) close(device.socket);
        device.memory = device.socket = -1;
    });
}
char *device_memory() { std::lock_guard<std::recursive_mutex> lock(device.guard); memory_needed(); return device.base; }
size_t device_memory_size() { return ROOM; }
int memory_file() { device_memory(); return device.memory; }
bool in_forked_child() { return device.owner && device.owner != getpid(); }

// ---- messages: four bytes of length, then text
static bool all_written(const char *p, size_t n) {
    while (n) {
        ssize_t done = send(device.socket, p, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        p += done, n -= done;
    }
    return true;
}
static bool written(const std::string &s) {
    uint32_t n = s.size();
    return all_written(std::string((char *)&n, 4).append(s).data(), n + 4);
}
static bool all_read(char *p, size_t n) {
    while (n) {
        ssize_t done = recv(device.socket, p, n, 0);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        p += done, n -= done;
    }
    return true;
}
static bool answered(std::string &s) {
    uint32_t n;
    if (!all_read((char *)&n, 4)) return false;
    s.resize(n);
    return all_read(&s[0], n);
}

// Lines of an answer: "kernel NAME", "shape OBJECT SIZES...", "failed TEXT".
static void taken(const std::string &answer) {
    for (size_t a = 0; a < answer.size();) {
        size_t z = answer.find('\n', a);
        if (z == std::string::npos) z = answer.size();
        std::string line = answer.substr(a, z - a), word = line.substr(0, line.find(' ')), rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
        a = z + 1;
        if (word == "kernel") device.kernels.insert(rest);
        else if (word == "failed") standin_fail(rest.c_str());
        else if (word == "shape") {
            char *end;
            const void *at = (const void *)strtoull(rest.c_str(), &end, 10);
            Lock lock;
            if (Object *o = object_at(at)) {
                o->found = true;
                o->found_shape.clear();
                while (*end) o->found_shape.push_back(strtoll(end, &end, 10));
            }
        }
    }
}

static void log_needed() {
    static bool opened = false;
    if (opened) return;
    opened = true;
    if (const char *path = getenv("MINDTORCH_STANDIN_LOG")) device.log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

static const char *nobody() {
    const char *path = getenv("MINDTORCH_STANDIN_SOCKET");
    return path && *path ? "the stand-in's process that computes launches has ended, or was never there"
                         : "nothing computes launches here: start by `python -m mindtorch standin run`";
}

static void connected() {
    if (device.tried) return;
    device.tried = true;
    const char *path = getenv("MINDTORCH_STANDIN_SOCKET"), *blocking = getenv("ASCEND_LAUNCH_BLOCKING");
    device.blocking = blocking && *blocking && strcmp(blocking, "0");
    memory_needed();
    if (!path || !*path) return;
    sockaddr_un where = {};
    where.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof where.sun_path) return;
    strcpy(where.sun_path, path);
    device.socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(device.socket, (sockaddr *)&where, sizeof where)) {
        close(device.socket);
        device.socket = -1;
        return;
    }
    // The first byte carries the file descriptors of the memory and of the log. The computing process
    // writes failures to the log, because this process may have ended before it can receive them.
    log_needed();
    int files[] = {device.memory, device.log};
    size_t n = sizeof(int) * (device.log < 0 ? 1 : 2);
    char byte = 1, room[CMSG_SPACE(sizeof files)] = {0};
    iovec data = {&byte, 1};
    msghdr m = {};
    m.msg_iov = &data, m.msg_iovlen = 1, m.msg_control = room, m.msg_controllen = CMSG_SPACE(n);
    cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(n);
    memcpy(CMSG_DATA(c), files, n);
    std::string answer;
    if (sendmsg(device.socket, &m, MSG_NOSIGNAL) == 1 && answered(answer)) taken(answer);
    else close(device.socket), device.socket = -1;
}

// MINDTORCH_STANDIN_COMPUTE=0: launches are logged and not computed.
static bool idle() {
    static const char *text = getenv("MINDTORCH_STANDIN_COMPUTE");
    static const bool off = text && !strcmp(text, "0");
    return off;
}

bool computes(const std::string &kernel) {
    if (idle()) return true;
    std::lock_guard<std::recursive_mutex> lock(device.guard);
    connected();
    return device.socket < 0 || device.kernels.count(kernel);         // (without a process, enqueue reports the error)
}

Status enqueue(const std::string &message) {
    std::lock_guard<std::recursive_mutex> lock(device.guard);
    if (in_forked_child()) return standin_fail("a forked process uses the device of its parent: start processes that use one by spawn");
    if (idle()) return OK;
    connected();
    if (device.socket < 0 || !written(message)) return standin_fail(nobody());
    device.pending++;
    if (!device.blocking) return OK;
    Status failed = synchronise();
    device.code = OK;           // reported by this launch: the next launch starts without an error
    return failed;
}

extern "C" {
void standin_drain() {
    std::lock_guard<std::recursive_mutex> lock(device.guard);
    if (!device.pending || in_forked_child()) return;
    device.pending = 0;
    std::string answer;
    if (written("drain") && answered(answer)) taken(answer);
    else standin_fail(nobody());
}

// A failure that the caller reports itself, at the launch.
Status standin_missing(const char *text) {
    standin_log(("{\"failed\":" + quoted(text) + "}").c_str());
    say_error(text);
    return NO_KERNEL;
}

Status standin_fail(const char *text) {
    std::lock_guard<std::recursive_mutex> lock(device.guard);
    if (device.code == OK) {
        device.code = CORE_FAILED;
        device.failed = text;
        standin_log(("{\"failed\":" + quoted(text) + "}").c_str());
    }
    say_error(text);
    return CORE_FAILED;
}

void standin_log(const char *line) {
    std::lock_guard<std::recursive_mutex> lock(device.guard);
    log_needed();
    if (device.log < 0 || in_forked_child()) return;
    // Every entry has a time stamp (ms) and the process id, for the time line of a report.
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    char when[80];
    snprintf(when, sizeof when, ",\"t\":%.3f,\"pid\":%d}\n", now.tv_sec * 1e3 + now.tv_nsec / 1e6, (int)getpid());
    std::string whole(line);
    whole.pop_back();
    whole += when;
    if (write(device.log, whole.data(), whole.size()) < 0) perror("stand-in: log");
}

// Python reports the source line of a copy: `find` writes a C string into the buffer. It is called
// without our locks, because it acquires Python's.
static void (*find_site)(char *, size_t) = nullptr;
void standin_find_site_by(void (*find)(char *, size_t)) { find_site = find; }

// True if this process has a device and has used it.
Status standin_in_use() { return device.owner == getpid(); }

}

std::string site() {
    char text[512] = {0};
    if (find_site && !in_forked_child()) find_site(text, sizeof text);
    return text;
}

Status synchronise() {
    standin_drain();
    std::lock_guard<std::recursive_mutex> lock(device.guard);
    if (device.code != OK) say_error(device.failed);
    return device.code;
}
