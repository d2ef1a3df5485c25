// Shared declarations of the CANN simulator. It stores "device" memory in ordinary memory, logs the
// calls of MindSpore's Ascend plugin, and passes launches to a process that computes them. Codes of
// types and errors are CANN's.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

typedef int32_t Status;
typedef uint64_t Word;      // the content of a register
typedef int64_t Long;

// Error codes of CANN.
enum : Status {
    OK = 0,
    OUT_OF_MEMORY = 207001,         // ACL_ERROR_RT_MEMORY_ALLOCATION
    TIMED_OUT = 207013,             // ACL_ERROR_RT_QUEUE_EMPTY, returned by a channel without data
    UNSUPPORTED = 207000,           // ACL_ERROR_RT_FEATURE_NOT_SUPPORT
    NO_DEVICE = 107001,             // ACL_ERROR_RT_INVALID_DEVICEID
    CORE_FAILED = 507015,           // ACL_ERROR_RT_AICORE_EXCEPTION
    HEARTBEAT_LOST = 507010,        // ACL_ERROR_RT_LOST_HEARTBEAT
    DRIVER_FAILED = 507899,         // ACL_ERROR_RT_DRV_INTERNAL_ERROR
    NO_KERNEL = 561112,             // ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND
    REFUSED = 161002,               // ACLNN_ERR_PARAM_INVALID
};

// ---- _objects.cc: tensors, scalars and arrays referenced by the arguments of aclnn functions
enum Kind { TENSOR = 1, SCALAR, INTS, FLOATS, BOOLS, TENSORS, SCALARS };
struct Object {
    Kind kind;
    int type = 0;                               // aclDataType
    std::vector<Long> shape{}, strides{};       // of INTS and BOOLS: the values
    Long offset = 0;
    char *data = nullptr;
    std::vector<double> floats{};               // FLOATS; the value of a SCALAR (two for complex)
    Long integer = 0;                           // value of an integer SCALAR
    std::vector<const void *> items{};          // TENSORS, SCALARS
    bool found = false;                         // true: a kernel determined the shape:
    std::vector<Long> found_shape{};
};
Object *object_at(const void *p);               // null: no such object. Requires a Lock.
std::string words(const Object &o);             // human-readable: T[2,3]f32
std::string wire(const Object &o);              // for the device process: JSON
std::string type_name(int type);
std::string quoted(const std::string &s);       // a JSON string
std::string number(double v);
struct Lock { Lock(); ~Lock(); };               // locks the table of objects and executors

// ---- _device.cc: the process that computes launches
extern "C" {
void standin_drain();                           // waits for all earlier launches: device memory may be accessed
void standin_log(const char *json_line);
Status standin_missing(const char *text);       // reports a launch without an implementation; returns its code
Status standin_fail(const char *text);          // stores an error for all later synchronizations; returns its code
}
Status synchronise();                           // drains; returns the stored error, or OK
Status enqueue(const std::string &message);     // queues a launch; returns errors at once only if launches block
// true if the device process has this kernel (aclnn name without prefix, or "op:Name")
bool computes(const std::string &kernel);
const char *last_error();
void say_error(const std::string &text);        // sets the next result of aclGetRecentErrMsg
char *device_memory();                          // start of device memory (device_memory_size() bytes)
size_t device_memory_size();
int memory_file();
bool in_forked_child();
std::string site();                             // "file:line" of the running user Python code, or ""

// ---- _faults.cc: fault injection (MINDTORCH_STANDIN_FAIL), and limits of the chip
Status fault(const char *what, const std::string &name);        // what: "malloc", "reject", "launch", "lost", "copy"
bool refused(const std::string &kernel, size_t position, const Object &o, std::string &why);
bool device_lost();
