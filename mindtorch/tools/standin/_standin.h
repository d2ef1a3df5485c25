// What the parts of the stand-in for CANN share. It keeps "device" memory in ordinary memory, logs what MindSpore's Ascend plugin asks for, and hands launches
// to a process that computes them. Numbers of types and errors are CANN's.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

typedef int32_t Status;
typedef uint64_t Word;      // whatever stands in a register
typedef int64_t Long;

// Errors, as CANN numbers them.
enum : Status {
    OK = 0,
    OUT_OF_MEMORY = 207001,         // ACL_ERROR_RT_MEMORY_ALLOCATION
    TIMED_OUT = 207013,             // ACL_ERROR_RT_QUEUE_EMPTY, what a channel without data answers
    NO_DEVICE = 107001,             // ACL_ERROR_RT_INVALID_DEVICEID
    CORE_FAILED = 507015,           // ACL_ERROR_RT_AICORE_EXCEPTION
    HEARTBEAT_LOST = 507010,        // ACL_ERROR_RT_LOST_HEARTBEAT
    DRIVER_FAILED = 507899,         // ACL_ERROR_RT_DRV_INTERNAL_ERROR
    NO_KERNEL = 561112,             // ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND
    REFUSED = 161002,               // ACLNN_ERR_PARAM_INVALID
};

// ---- _objects.cc: tensors, scalars and arrays that aclnn's arguments point to
enum Kind { TENSOR = 1, SCALAR, INTS, FLOATS, BOOLS, TENSORS, SCALARS };
struct Object {
    Kind kind;
    int type = 0;                               // aclDataType
    std::vector<Long> shape{}, strides{};       // of INTS and BOOLS: the numbers
    Long offset = 0;
    char *data = nullptr;
    std::vector<double> floats{};               // FLOATS; of a SCALAR the value (two for complex)
    Long integer = 0;                           // of a SCALAR of integers
    std::vector<const void *> items{};          // TENSORS, SCALARS
    bool found = false;                         // a kernel found the shape out:
    std::vector<Long> found_shape{};
};
Object *object_at(const void *p);               // null: no such object. Call with `objects` locked.
std::string words(const Object &o);             // for people: T[2,3]f32
std::string wire(const Object &o);              // for the device process: JSON
std::string type_name(int type);
std::string quoted(const std::string &s);       // a JSON string
std::string number(double v);
struct Lock { Lock(); ~Lock(); };               // holds the table of objects and executors

// ---- _device.cc: the process that computes
extern "C" {
void standin_drain();                           // what was launched before is computed: device memory may be touched
void standin_log(const char *json_line);
Status standin_missing(const char *text);       // a launch that nothing computes; its code
Status standin_fail(const char *text);          // remembers an error, which every synchronisation reports from now on; its code
}
Status synchronise();                           // drains; the error to be reported, or OK
Status enqueue(const std::string &message);     // a launch, behind those before; errors now only where launches block
bool computes(const std::string &kernel);       // does the device process have this kernel (aclnn name without prefix, or "op:Name")?
const char *last_error();
void say_error(const std::string &text);        // what aclGetRecentErrMsg tells next
char *device_memory();                          // start of the device's memory, of device_memory_size() bytes
size_t device_memory_size();
int memory_file();
bool in_forked_child();
std::string site();                             // "file:line" of the user's Python code that is at work, or ""

// ---- _faults.cc: failures on request (MINDTORCH_STANDIN_FAIL), and limits of the chip
Status fault(const char *what, const std::string &name);        // what: "malloc", "reject", "launch", "lost", "copy"
bool refused(const std::string &kernel, size_t position, const Object &o, std::string &why);
bool device_lost();
