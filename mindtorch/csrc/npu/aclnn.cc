// Launches aclnn kernels through MindSpore's PyNative pipeline, by name. MindSpore has primitives for a
// part of CANN's kernels only.
//
// Python: Kernel(name)(kinds, arguments, outputs). `kinds` has one letter for each argument of
// aclnnXxxGetWorkspaceSize, in the order of CANN's header, without the last two:
//
//     t  a tensor or None                       l  a list of tensors
//     o  the next new output                    p  all new outputs, as a list of tensors
//     s  (value, dtype): an aclScalar           c  ([values], dtype): a list of scalars
//     i  an integer, a bool or a dtype          d, f  a double, a float by value
//     I, B, F  an array of integers, bools, floats; None is a null pointer
//     z  a string
//
// `outputs` lists (shape, dtype) of the new tensors. dtypes are CANN's numbers (aclDataType). The call returns before the kernel is launched; its errors appear at a synchronization.
//
// Nothing is linked with CANN or the Ascend plugin, and no header of CANN is used: its functions are
// looked up in the libraries that the plugin has loaded.
#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pybind11/pybind11.h"
#include "ir/tensor.h"
#include "include/pynative/utils/pyboost/custom/pyboost_extension.h"
#include "include/pynative/utils/pyboost/custom/tensor.h"

namespace py = pybind11;

namespace mindtorch {
using mindspore::TypeId;
using Tensor = ms::Tensor;
using Tensors = std::vector<Tensor>;

// ---- functions of CANN
static void *library() {
    static void *handle = dlopen("libopapi.so", RTLD_LAZY);
    if (!handle) throw std::runtime_error(std::string("CANN's kernels cannot be loaded: ") + dlerror());
    return handle;
}

template <typename F> static F function(const char *name) {
    void *found = dlsym(library(), name);
    if (!found) throw std::runtime_error(std::string("CANN has no function ") + name);
    return reinterpret_cast<F>(found);
}

// MindSpore's types and those of CANN's binary interface (aclDataType).
static const std::pair<TypeId, int> TYPES[] = {
    {mindspore::kNumberTypeFloat32, 0}, {mindspore::kNumberTypeFloat16, 1}, {mindspore::kNumberTypeInt8, 2}, {mindspore::kNumberTypeInt32, 3},
    {mindspore::kNumberTypeUInt8, 4}, {mindspore::kNumberTypeInt16, 6}, {mindspore::kNumberTypeUInt16, 7}, {mindspore::kNumberTypeUInt32, 8},
    {mindspore::kNumberTypeInt64, 9}, {mindspore::kNumberTypeUInt64, 10}, {mindspore::kNumberTypeFloat64, 11}, {mindspore::kNumberTypeBool, 12},
    {mindspore::kNumberTypeComplex64, 16}, {mindspore::kNumberTypeComplex128, 17}, {mindspore::kNumberTypeBFloat16, 27}};

static int acl_type(TypeId id) {
    for (auto &[own, acl] : TYPES)
        if (own == id) return acl;
    throw std::invalid_argument("CANN has no type for MindSpore's type " + std::to_string(id));
}
static TypeId type_id(int type) {
    for (auto &[own, acl] : TYPES)
        if (acl == type) return own;
    throw std::invalid_argument("MindSpore has no type for CANN's type " + std::to_string(type));
}

// ---- arguments
struct Scalar { double real = 0, imaginary = 0; int64_t integer = 0; int type = 0; };
struct Argument {
    char kind;
    bool null = false;
    Tensors tensors{};                  // t, l
    std::vector<Scalar> scalars{};      // s, c
    std::vector<int64_t> integers{};    // i, I, B
    std::vector<double> floats{};       // d, f, F
    std::string text{};                 // z
};

static Scalar scalar_of(py::handle value, int type) {
    Scalar s;
    s.type = type;
    if (PyComplex_Check(value.ptr())) {
        s.real = PyComplex_RealAsDouble(value.ptr());
        s.imaginary = PyComplex_ImagAsDouble(value.ptr());
    } else if (PyFloat_Check(value.ptr())) {
        s.real = PyFloat_AS_DOUBLE(value.ptr());
        s.integer = static_cast<int64_t>(s.real);
    } else {
        s.integer = PyLong_AsLongLong(value.ptr());
        s.real = PyLong_AsDouble(value.ptr());
        if (PyErr_Occurred()) throw py::error_already_set();
    }
    return s;
}

static Argument argument_of(char kind, py::handle value) {
    Argument a{kind};
    if (value.is_none()) {
        if (!strchr("tlIBFz", kind)) throw std::invalid_argument(std::string("None for an argument of kind ") + kind);
        a.null = true;
        return a;
    }
    switch (kind) {
    case 't': a.tensors.push_back(py::cast<Tensor>(value)); break;
    case 'l': for (py::handle t : value) a.tensors.push_back(py::cast<Tensor>(t)); break;
    case 's': case 'c': {
        py::tuple pair = py::cast<py::tuple>(value);
        int type = py::cast<int>(pair[1]);
        if (kind == 's') a.scalars.push_back(scalar_of(pair[0], type));
        else for (py::handle v : py::reinterpret_borrow<py::object>(pair[0])) a.scalars.push_back(scalar_of(v, type));
        break;
    }
    case 'i': a.integers.push_back(py::cast<int64_t>(value)); break;
    case 'I': case 'B': for (py::handle v : value) a.integers.push_back(py::cast<int64_t>(v)); break;
    case 'd': case 'f': a.floats.push_back(py::cast<double>(value)); break;
    case 'F': for (py::handle v : value) a.floats.push_back(py::cast<double>(v)); break;
    case 'z': a.text = py::cast<std::string>(value); break;
    default: throw std::invalid_argument(std::string("no kind of argument: ") + kind);
    }
    return a;
}

// ---- objects of CANN, destroyed after the launch
class Objects {
public:
    ~Objects() {
        for (auto &[destroy, object] : made_) destroy(object);
    }
    void *tensor(const Tensor &t) { return kept("aclDestroyTensor", create_tensor(t)); }
    void *tensors(const Tensors &list) {
        static const auto create = function<void *(*)(void *const *, uint64_t)>("aclCreateTensorList");
        std::vector<void *> items;
        for (auto &t : list) items.push_back(create_tensor(t));      // (the list owns them)
        return kept("aclDestroyTensorList", create(items.data(), items.size()));
    }
    void *scalar(const Scalar &s) { return kept("aclDestroyScalar", create_scalar(s)); }
    void *scalars(const std::vector<Scalar> &list) {
        static const auto create = function<void *(*)(void *const *, uint64_t)>("aclCreateScalarList");
        std::vector<void *> items;
        for (auto &s : list) items.push_back(create_scalar(s));
        return kept("aclDestroyScalarList", create(items.data(), items.size()));
    }
    void *integers(const std::vector<int64_t> &v) {
        static const auto create = function<void *(*)(const int64_t *, uint64_t)>("aclCreateIntArray");
        return kept("aclDestroyIntArray", create(v.data(), v.size()));
    }
    void *bools(const std::vector<int64_t> &v) {
        static const auto create = function<void *(*)(const bool *, uint64_t)>("aclCreateBoolArray");
        std::unique_ptr<bool[]> values(new bool[v.size() + 1]);
        for (size_t k = 0; k < v.size(); k++) values[k] = v[k] != 0;
        return kept("aclDestroyBoolArray", create(values.get(), v.size()));
    }
    void *floats(const std::vector<double> &v) {
        static const auto create = function<void *(*)(const float *, uint64_t)>("aclCreateFloatArray");
        std::vector<float> values(v.begin(), v.end());
        return kept("aclDestroyFloatArray", create(values.data(), values.size()));
    }

private:
    using Destroy = int (*)(const void *);
    std::vector<std::pair<Destroy, void *>> made_{};

    void *kept(const char *destroy, void *object) {
        made_.emplace_back(function<Destroy>(destroy), object);
        return object;
    }
    static void *create_tensor(const Tensor &t) {
        static const auto create = function<void *(*)(const int64_t *, uint64_t, int, const int64_t *, int64_t, int, const int64_t *, uint64_t, void *)>(
            "aclCreateTensor");
        static const int ND = 2;        // ACL_FORMAT_ND
        const auto &shape = t.shape();
        const auto strides = t.stride();
        // The storage begins `offset` elements before the data and reaches to the last element.
        int64_t offset = t.storage_offset(), storage = offset + 1;
        for (size_t k = 0; k < shape.size(); k++) storage += shape[k] > 0 ? (shape[k] - 1) * strides[k] : 0;
        char *data = static_cast<char *>(t.tensor()->device_address()->GetMutablePtr());
        return create(shape.data(), shape.size(), acl_type(t.data_type()), strides.data(), offset, ND, &storage, 1, data);
    }
    static void *create_scalar(const Scalar &s) {
        static const auto create = function<void *(*)(void *, int)>("aclCreateScalar");
        double d[2] = {s.real, s.imaginary};
        float f[2] = {static_cast<float>(s.real), static_cast<float>(s.imaginary)};
        int64_t i = s.integer;
        bool b = s.real != 0;
        switch (s.type) {
        case 0: case 16: return create(f, s.type);
        case 11: case 17: return create(d, s.type);
        case 12: return create(&b, s.type);
        case 9: return create(&i, s.type);
        default: throw std::invalid_argument("a scalar of CANN's type " + std::to_string(s.type));
        }
    }
};

// ---- the call
// Integer and floating arguments have separate registers, and more than eight floating ones do not occur.
// So a function with any order of arguments can be called with all integer ones first (System V on x86-64,
// AAPCS64 on AArch64).
static const size_t MOST = 40;
template <size_t> using Word = int64_t;
template <size_t... K> static int call_with(void *f, const int64_t *w, const double *x, std::index_sequence<K...>) {
    using F = int (*)(Word<K>..., double, double, double, double, double, double, double, double);
    return reinterpret_cast<F>(f)(w[K]..., x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
}
template <size_t N> static int call_of(void *f, const int64_t *w, const double *x) { return call_with(f, w, x, std::make_index_sequence<N>()); }
template <size_t... N> static int call(void *f, size_t n, const int64_t *w, const double *x, std::index_sequence<N...>) {
    using F = int (*)(void *, const int64_t *, const double *);
    static const F all[] = {call_of<N>...};
    if (n >= sizeof...(N)) throw std::invalid_argument("a kernel with more than " + std::to_string(MOST) + " arguments");
    return all[n](f, w, x);
}

struct Symbols { std::string name; void *prepare, *run; };

class Runner : public ms::pynative::PyboostRunner {
public:
    Runner(const Symbols &symbols, const std::vector<Argument> &arguments) : PyboostRunner(symbols.name), symbols_(symbols), arguments_(arguments) {}

    size_t CalcWorkspace() override {
        std::vector<int64_t> words;
        double floats[8] = {0};
        size_t n_floats = 0, next = 0;
        for (auto &a : arguments_) {
            switch (a.kind) {
            case 't': word(&words, a.null ? nullptr : objects_.tensor(a.tensors[0])); break;
            case 'l': word(&words, a.null ? nullptr : objects_.tensors(a.tensors)); break;
            case 'o': word(&words, objects_.tensor(outputs()[next++])); break;
            case 'p': word(&words, objects_.tensors(outputs())); break;
            case 's': word(&words, objects_.scalar(a.scalars[0])); break;
            case 'c': word(&words, objects_.scalars(a.scalars)); break;
            case 'i': words.push_back(a.integers[0]); break;
            case 'I': word(&words, a.null ? nullptr : objects_.integers(a.integers)); break;
            case 'B': word(&words, a.null ? nullptr : objects_.bools(a.integers)); break;
            case 'F': word(&words, a.null ? nullptr : objects_.floats(a.floats)); break;
            case 'z': word(&words, a.null ? nullptr : const_cast<char *>(a.text.c_str())); break;
            default: {          // d, f
                if (n_floats == 8) throw std::invalid_argument(symbols_.name + ": more than eight floating arguments");
                float single = static_cast<float>(a.floats[0]);
                if (a.kind == 'd') floats[n_floats] = a.floats[0];
                else memcpy(&floats[n_floats], &single, sizeof single);
                n_floats++;
            }
            }
        }
        uint64_t size = 0;
        word(&words, &size);
        void *executor = nullptr;
        word(&words, &executor);
        int status = call(symbols_.prepare, words.size(), words.data(), floats, std::make_index_sequence<MOST + 1>());
        if (status) throw std::runtime_error(symbols_.name + " rejects its arguments (" + std::to_string(status) + "): " + recent_error());
        executor_ = executor;
        return size_ = size;
    }

    void LaunchKernel() override {
        using F = int (*)(void *, uint64_t, void *, void *);
        int status = reinterpret_cast<F>(symbols_.run)(workspace_ptr(), size_, executor_, stream());
        if (status) throw std::runtime_error(symbols_.name + " cannot be launched (" + std::to_string(status) + "): " + recent_error());
    }

private:
    Symbols symbols_;
    std::vector<Argument> arguments_;
    Objects objects_{};
    void *executor_ = nullptr;
    uint64_t size_ = 0;

    static void word(std::vector<int64_t> *words, const void *p) { words->push_back(reinterpret_cast<int64_t>(p)); }
    static std::string recent_error() {
        auto f = reinterpret_cast<const char *(*)()>(dlsym(RTLD_DEFAULT, "aclGetRecentErrMsg"));
        const char *text = f ? f() : nullptr;
        return text ? text : "";
    }
};

class Kernel {
public:
    explicit Kernel(const std::string &name) {
        symbols_.name = name;
        symbols_.prepare = dlsym(library(), (name + "GetWorkspaceSize").c_str());
        symbols_.run = dlsym(library(), name.c_str());
        if (!symbols_.prepare || !symbols_.run) throw py::key_error("this CANN has no kernel " + name);
    }

    py::object operator()(const std::string &kinds, py::sequence values, py::sequence shapes) const {
        std::vector<Argument> arguments;
        size_t next = 0, n_values = py::len(values);
        for (char kind : kinds) {
            if (kind == 'o' || kind == 'p') { arguments.push_back(Argument{kind}); continue; }
            if (next == n_values) throw std::invalid_argument(symbols_.name + ": fewer arguments than kinds");
            arguments.push_back(argument_of(kind, values[next++]));
        }
        if (next != n_values) throw std::invalid_argument(symbols_.name + ": more arguments than kinds");
        std::vector<std::pair<TypeId, mindspore::ShapeVector>> made;
        for (py::handle item : shapes) {
            py::tuple pair = py::cast<py::tuple>(item);
            mindspore::ShapeVector shape;
            for (py::handle n : py::reinterpret_borrow<py::object>(pair[0])) shape.push_back(py::cast<int64_t>(n));
            made.emplace_back(type_id(py::cast<int>(pair[1])), shape);
        }
        auto results = mindspore::tensor::MakeVector<false>(made.size());
        auto promises = mindspore::tensor::TransformVectorPromise(results);
        mindspore::pynative::DispatchOp(std::make_shared<mindspore::pynative::PassthroughFrontendTask>(
            [symbols = symbols_, arguments, made, promises]() {
                Tensors inputs, outputs;
                for (auto &a : arguments)
                    for (auto &t : a.tensors) {
                        t.ConvertStubNodeToTensor();
                        inputs.push_back(t);
                    }
                std::vector<mindspore::tensor::TensorPtr> found;
                for (auto &[type, shape] : made) {
                    outputs.emplace_back(type, shape);
                    found.push_back(outputs.back().tensor());
                }
                std::make_shared<Runner>(symbols, arguments)->Run(inputs, outputs);
                mindspore::tensor::SetPromise(promises, found);
            },
            [promises]() { mindspore::tensor::SetException(promises); }));
        return py::reinterpret_steal<py::object>(mindspore::tensor::TransformVectorOutput(results));
    }

    const std::string &name() const { return symbols_.name; }

private:
    Symbols symbols_;
};

}  // namespace mindtorch

PYBIND11_MODULE(MINDTORCH_MODULE, m) {
    py::class_<mindtorch::Kernel>(m, "Kernel").def(py::init<const std::string &>()).def("__call__", &mindtorch::Kernel::operator()).def_property_readonly(
        "name", &mindtorch::Kernel::name);
}
