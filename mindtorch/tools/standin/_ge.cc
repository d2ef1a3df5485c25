// The few C++ functions of CANN's graph engine that return objects. MindSpore calls them at startup.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ge {
struct StatusFactory {
    std::map<uint32_t, std::string> texts;
    char more[256];
    static StatusFactory *Instance();
};
StatusFactory *StatusFactory::Instance() { static auto *all = new StatusFactory(); return all; }

// In CANN an Operator is a vtable and a shared_ptr: 24 bytes. It has a destructor, so it is returned
// through memory.
struct Operator {
    virtual ~Operator() {}
    void *data = nullptr, *count = nullptr;
    char more[40] = {0};
    std::string GetName() const;
    std::string GetOpType() const;
};
std::string Operator::GetName() const { return "none"; }
std::string Operator::GetOpType() const { return "none"; }

struct Returned {
    void *vtable, *data, *count;
    ~Returned() {}
};
static Returned empty() {
    static auto *one = new Operator;
    return {*(void **)one, nullptr, nullptr};
}
struct OperatorFactory {
    static Returned CreateOperator(const char *, const char *);
    static Returned CreateOperator(const std::string &, const std::string &);
    static bool IsExistOp(const char *);
    static bool IsExistOp(const std::string &);
};
Returned OperatorFactory::CreateOperator(const char *, const char *) { return empty(); }
Returned OperatorFactory::CreateOperator(const std::string &, const std::string &) { return empty(); }
bool OperatorFactory::IsExistOp(const char *) { return true; }
bool OperatorFactory::IsExistOp(const std::string &) { return true; }

struct Shape { std::vector<int64_t> GetDims() const; };
std::vector<int64_t> Shape::GetDims() const { return {}; }
}
