// Fault injection, and the limits of the chip.
//
// MINDTORCH_STANDIN_FAIL: words of the form what[:name][:n]. The n-th event fails (default: the first;
// n+: all from the n-th on). `name` is a kernel without the prefix aclnn.
//     malloc:2        the second allocation of device memory fails (MindSpore retries once by itself);
//                     malloc:2+ fails from the second on
//     reject:Mm:3     the third Mm is rejected when it is prepared, as for an invalid argument
//     launch:Mm       the first Mm fails on the device: synchronization reports it
//     copy:4          the fourth copy between host and device fails
//     lost:500        the device is lost from the 500th launch on
// MINDTORCH_STANDIN_LIMITS: a file of lines "Kernel position dtype,dtype,...". Other dtypes at that
// position are rejected.
#include "_standin.h"
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

struct Wish { std::string what, name; long at = 1, seen = 0; bool always = false; };
static std::mutex guard;
static bool lost = false;

static std::vector<Wish> &wishes() {
    static auto *v = [] {
        auto *v = new std::vector<Wish>;
        const char *text = getenv("MINDTORCH_STANDIN_FAIL");
        std::istringstream words(text ? text : "");
        for (std::string word; words >> word;) {
            Wish w;
            std::istringstream parts(word);
            std::string part;
            std::getline(parts, w.what, ':');
            while (std::getline(parts, part, ':')) (part.size() && isdigit((unsigned char)part[0])) ? (void)(w.at = std::stol(part), w.always = part.back() == '+') : (void)(w.name = part);
            v->push_back(w);
        }
        return v;
    }();
    return *v;
}

bool device_lost() { return lost; }

Status fault(const char *what, const std::string &name) {
    std::lock_guard<std::mutex> lock(guard);
    if (lost) {
        say_error("the device is lost (heartbeat)");
        return HEARTBEAT_LOST;
    }
    for (Wish &w : wishes()) {
        if (w.what != what || (w.name.size() && w.name != name) || (++w.seen != w.at && !(w.always && w.seen > w.at))) continue;
        standin_log(("{\"fault\":" + quoted(std::string(what) + (name.size() ? " " + name : "")) + "}").c_str());
        if (w.what == "lost") {
            lost = true;
            say_error("the device is lost (heartbeat)");
            return HEARTBEAT_LOST;
        }
        return w.what == "malloc" ? OUT_OF_MEMORY : w.what == "reject" ? REFUSED : w.what == "copy" ? DRIVER_FAILED : CORE_FAILED;
    }
    return OK;
}

bool refused(const std::string &kernel, size_t position, const Object &o, std::string &why) {
    static const auto *limits = [] {
        auto *all = new std::map<std::pair<std::string, size_t>, std::set<std::string>>;
        const char *path = getenv("MINDTORCH_STANDIN_LIMITS");
        if (!path) return all;
        std::ifstream file(path);
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            std::string name, types, type;
            size_t at;
            if (!(words >> name >> at >> types)) continue;
            auto &set = (*all)[{name, at}];
            std::istringstream each(types);
            while (std::getline(each, type, ',')) set.insert(type);
        }
        return all;
    }();
    if (limits->empty()) return false;
    auto found = limits->find({kernel, position});
    if (found == limits->end()) return false;
    auto bad = [&](const Object &t) { return t.kind == TENSOR && !found->second.count(type_name(t.type)); };
    const Object *wrong = bad(o) ? &o : nullptr;
    if (o.kind == TENSORS)
        for (auto item : o.items)
            if (Object *t = object_at(item)) if (bad(*t)) wrong = t;
    if (!wrong) return false;
    why = "argument " + std::to_string(position) + " is " + type_name(wrong->type) + "; the chip takes";
    for (auto &type : found->second) why += " " + type;
    return true;
}
