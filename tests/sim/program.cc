/* SPDX-License-Identifier: Apache-2.0 */
// program.cc: programs as text: drawn by a seed, read, and made smaller.
#include "program.h"

#include "world.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sstream>

using namespace sim;

line::line(const std::string &text)
{
    std::istringstream words(text);
    std::string word;
    words >> verb;
    for (bool is_second = true; words >> word; is_second = false) {
        const size_t equals = word.find('=');
        if (is_second && equals == std::string::npos) {
            name = word;
            std::getline(words >> std::ws, rest);
            words.clear();
            words.str(rest);
        } else if (equals != std::string::npos) {
            fields[word.substr(0, equals)] = word.substr(equals + 1);
        }
    }
}

uint64_t line::number(const char *key, uint64_t otherwise) const
{
    const auto found = fields.find(key);
    return found == fields.end() ? otherwise : strtoull(found->second.c_str(), nullptr, 0);
}

double line::real(const char *key, double otherwise) const
{
    const auto found = fields.find(key);
    return found == fields.end() ? otherwise : strtod(found->second.c_str(), nullptr);
}

program sim::read_program(const std::string &text)
{
    program p;
    std::istringstream lines(text);
    for (std::string one; std::getline(lines, one);) {
        if (!one.empty() && one[0] != '#')
            p.push_back(one);
    }
    return p;
}

std::string sim::to_text(const program &p)
{
    std::string text;
    for (const std::string &one : p)
        text += one + "\n";
    return text;
}

bool sim::is_operation(const std::string &text)
{
    static const char *const OTHERS[] = {"world", "engines", "ranks", "device", "both", "set", "opts", "param"};
    const std::string verb = line(text).verb;
    for (const char *other : OTHERS) {
        if (verb == other)
            return false;
    }
    return true;
}

// ---- drawing ----

namespace
{
class drawing
{
  public:
    explicit drawing(uint64_t seed)
        : d(dice(seed)()), ends(~seed), more(seed ^ 0x6d6f7265), moves(seed ^ 0x6d6f7665), shapes(seed ^ 0x73686170)
    {
    }
    program draw();

  private:
    void add(const char *format, ...) __attribute__((format(printf, 2, 3)));
    bool chance(unsigned percent) { return d.chance(percent); }
    template <typename T, size_t N> T one_of(const T (&list)[N]) { return list[d.below(N)]; }
    void config();
    void params();
    size_t rows_of(size_t size);
    void operation();
    void step();
    std::string fault();
    std::string crash();
    std::string of_checkpoint(const char *kind);
    void save();
    void pull(unsigned long long seed);

    // Those of crashes, and of what was added later, are apart, so that programs without are as they were.
    dice d, ends, more, moves, shapes;
    program p;
    unsigned engines = 1, ranks = 1, groups = 1, micro_steps = 1, optimizer = 0;
    bool nvme = false, persist = false, device = false, fp16 = false, is_muon = false, has_moments = false, is_small = false,
         crashes = false;
};

void drawing::add(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p.push_back(text);
}

void drawing::config()
{
    static const char *const OPTIMIZERS[] = {"AdamW", "Adam", "Adagrad", "Lion", "SGD"};
    static const char *const MOMENTS[] = {"bf16", "m8v16", "q8"};
    micro_steps = chance(35) ? 2 + (unsigned)d.below(2) : 1;
    if (micro_steps > 1)
        add("both gradient_accumulation_steps %u", micro_steps);
    optimizer = chance(60) ? 0 : (unsigned)d.below(5);
    is_muon = shapes.chance(12);
    add("both optimizer.type \"%s\"", is_muon ? "Muon" : OPTIMIZERS[optimizer]);
    add("both optimizer.params.lr %g", chance(10) ? 0.0 : 0.001 + d.unit() * 0.05);
    has_moments = optimizer <= 1 && chance(40);
    const char *moments = one_of(MOMENTS);
    if (has_moments && (!is_muon || moments == MOMENTS[0]))
        add("both zoff.moments \"%s\"", moments);
    if (chance(50))
        add("both optimizer.params.weight_decay %g", d.unit() * 0.1);
    if (optimizer == 1 && chance(50) && !is_muon)
        add("both optimizer.params.adam_w_mode false");
    if (optimizer == 4 && chance(60) && !is_muon)
        add("both optimizer.params.momentum 0.9");
    add("both gradient_clipping %g", chance(50) ? (chance(50) ? 0.5 : 5 + 100 * d.unit()) : chance(50) ? 0.0 : 1e6);
    if (chance(25)) {
        add("both scheduler.type \"WarmupLR\"");
        add("both scheduler.params.warmup_num_steps 5");
        add("both scheduler.params.warmup_max_lr 0.01");
    }
    fp16 = chance(25);
    if (fp16) {
        add("both fp16.enabled true");
        add("both fp16.initial_scale_power %u", (unsigned)d.below(5));
        add("both fp16.loss_scale_window %u", 2 + (unsigned)d.below(3));
        add("both fp16.hysteresis %u", 1 + (unsigned)d.below(2));
    } else if ((!has_moments || moments == MOMENTS[0]) && chance(15)) {
        add("both zoff.skip_nonfinite false");
    }
    if (more.chance(25))
        add("both zoff.no_decay [\"*1\", \"*4\"]"); // is_without_decay() in book.cc
    if (ranks > 1 && more.chance(25))
        add("both gradient_allreduce_op \"sum\"");
    if (ranks > 1 && more.chance(20))
        add("both communication_data_type \"%s\"", more.chance(50) ? "bf16" : more.chance(50) ? "fp16" : "fp32");
    if (ranks > 1 && more.chance(20))
        add(more.chance(50) ? "both prescale_gradients true" : "both gradient_predivide_factor 3");
    if (chance(50))
        add("set zoff.master \"%s\"", chance(50) ? "auto" : "fp32");
    add("set zoff.threads %u", 1 + (unsigned)d.below(3));
    add("set zoff.io_backend \"%s\"", chance(70) ? "threads" : "posix");
    if (nvme) {
        static const char *const VERIFY[] = {"full", "full", "sample", "off"};
        add("set zero_optimization.offload_optimizer.device \"nvme\"");
        add("set zoff.nvme_paths %s", chance(60) ? "[\"$0\"]" : "[\"$0\", \"$1\"]");
        add("set zero_optimization.offload_optimizer.buffer_count %u", 1 + (unsigned)d.below(6));
        add("set zoff.verify \"%s\"", one_of(VERIFY));
        if (persist) {
            add("set zoff.persist true");
            add("set zoff.durability \"%s\"", chance(70) ? "process" : "power");
        }
        if (chance(50))
            add("set aio.block_size %u", 4096u << d.below(5));
        if (chance(50))
            add("set aio.queue_depth %u", 1 + (unsigned)d.below(8));
        if (chance(30))
            add("set zoff.direct_io \"off\"");
    }
    if (chance(60))
        add("set zoff.speculation_memory %u", 1024u << d.below(15));
    if (chance(45))
        add("set zoff.background_threads %u", 1 + (unsigned)d.below(2));
    if (!device && ranks == 1 && chance(12))
        add("set zoff.check_use true");
    if (device && chance(50))
        add("set zero_optimization.offload_optimizer.ratio %g", d.unit());
    const uint64_t chunk = chance(80) ? 1024u << d.below(6) : 0;
    const uint64_t host_bytes = nvme && chance(40) ? (chunk ? chunk : 65536) * 12 * (2 + d.below(20)) : 0;
    add("opts chunk=%llu host_bytes=%llu progress_thread=%u", (unsigned long long)chunk, (unsigned long long)host_bytes,
        chance(25));
}

// A divisor of a slice's size that leaves little work for products.
size_t drawing::rows_of(size_t size)
{
    std::vector<size_t> all;
    for (size_t rows = 1; rows <= std::min<size_t>(size, 64); rows++) {
        if (size % rows == 0)
            all.push_back(rows);
    }
    const size_t rows = all[shapes.below(all.size())];
    return shapes.chance(50) ? rows : size / rows;
}

void drawing::params()
{
    static const unsigned SIZES[] = {0, 1, 2, 3, 7, 64, 100, 1000, 1023, 1024, 1025, 2048, 4096, 4097, 5000, 9000, 20000};
    const unsigned count = 1 + (unsigned)d.below(chance(20) ? 20 : 6);
    const bool owns = chance(30), one_is_empty = engines == 2 && chance(30);
    groups = chance(30) ? 2 + (unsigned)d.below(2) : 1;
    size_t budget = is_small ? 20000 : 120000;
    for (unsigned i = 0; i < count; i++) {
        const unsigned slices = chance(60) ? 1 : 1 + (unsigned)d.below(4), engine = engines == 2 ? (unsigned)d.below(2) : 0;
        size_t size = one_of(SIZES);
        while (size * slices > budget)
            size /= 2;
        budget -= size * slices;
        unsigned dtype = 1 + (unsigned)d.below(3), grad = chance(60) ? dtype : 1 + (unsigned)d.below(3);
        if (fp16 && chance(60))
            dtype = grad = 2; // ZOFF_F16
        std::string text = "param p" + std::to_string(i) + " count=" + std::to_string(size) +
                           " slices=" + std::to_string(slices) + " dtype=" + std::to_string(dtype) +
                           " grad=" + std::to_string(grad) + " seed=" + std::to_string(d.below(1000));
        const auto with = [&](const char *key, uint64_t value) {
            text += std::string(" ") + key + "=" + std::to_string(value);
        };
        if (groups > 1)
            with("group", d.below(groups));
        if (engine)
            with("engine", engine);
        if (chance(20))
            with("pad", d.below(40));
        if (chance(20))
            with("gpad", d.below(40));
        if (chance(10) || (one_is_empty && engine))
            with("frozen", 1);
        if (owns && chance(60))
            with("owned", 1);
        if (chance(12))
            with("lent", 1);
        if (ranks > 1 && more.chance(12))
            with("reduced", 1);
        if (is_muon && size && shapes.chance(80))
            with("rows", rows_of(size));
        if (i && chance(8))
            text += " tie=p" + std::to_string(d.below(i));
        p.push_back(text);
    }
    if (owns) {
        static const char *const PLACES[] = {"none", "cpu", "nvme"};
        const unsigned place = (unsigned)d.below(3);
        add("set zero_optimization.stage 3");
        add("set zero_optimization.offload_param.device \"%s\"", PLACES[place]);
        if (place == 2) {
            add("set zero_optimization.offload_param.nvme_path \"$0\"");
            add("set zero_optimization.offload_param.buffer_count %u", 1 + (unsigned)d.below(5));
            add("set zero_optimization.offload_param.max_in_cpu %u", chance(50) ? 0 : (unsigned)d.below(100000));
            add("set zero_optimization.offload_param.buffer_size %u", 1024 + (unsigned)d.below(8000));
        }
        if (ranks == 4 && more.chance(60))
            add("set zero_optimization.zero_hpz_partition_size 2");
        if (chance(50))
            add("set zero_optimization.stage3_max_live_parameters %u", (unsigned)d.below(300000));
        if (chance(50))
            add("set zero_optimization.stage3_prefetch_bucket_size %u", (unsigned)d.below(200000));
        if (chance(60))
            add("set zero_optimization.stage3_param_persistence_threshold %u", (unsigned)d.below(3000));
    } else {
        add("set zero_optimization.stage %u", nvme ? 3 : (unsigned)d.below(4));
    }
}

std::string drawing::fault()
{
    static const char *const KINDS[] = {"read", "write", "flush", "slow"};
    const unsigned most = ends.chance(50) ? 10 : 100;
    const std::string memory = ends.chance(5) ? " fault=memory nth=" + std::to_string(1 + ends.below(most)) : "";
    if (!nvme || !chance(35))
        return memory;
    unsigned kind = ranks > 1 ? 3 : (unsigned)d.below(4);
    kind = ranks > 1 && ends.chance(60) ? (unsigned)ends.below(4) : kind;
    kind = kind == 2 && engines == 2 ? 1 : kind; // a step that only a drop ends is not that of both
    const unsigned error = kind == 3                ? 1 + (unsigned)d.below(400)
                           : kind < 2 && chance(25) ? 0
                           : chance(70)             ? 5
                                                    : 28; // EIO, ENOSPC
    const std::string one = std::string(" fault=") + KINDS[kind] + " nth=" + std::to_string(1 + d.below(chance(50) ? 4 : 30)) +
                            " errno=" + std::to_string(error) + (error && chance(30) ? " lasts=1" : "");
    if (kind < 2 && ends.chance(40))
        return " fault=some nth=" + std::to_string(1 + ends.below(ends.chance(50) ? 60 : 300)) + " errno=5";
    return one;
}

// The end of the process in this operation.
std::string drawing::crash()
{
    if (!crashes || !ends.chance(12))
        return "";
    const unsigned most = ends.chance(50) ? 6 : ends.chance(50) ? 30 : 200;
    return (ends.chance(50) ? " fault=kill nth=" : " fault=power nth=") + std::to_string(1 + ends.below(most));
}

// A fault in the files of a checkpoint.
std::string drawing::of_checkpoint(const char *kind)
{
    if (more.chance(30))
        return " fault=some nth=" + std::to_string(1 + more.below(more.chance(50) ? 60 : 300)) + " errno=5";
    return std::string(" fault=") + (more.chance(15) ? "memory" : kind) + " nth=" + std::to_string(1 + more.below(30)) +
           " errno=" + (more.chance(70) ? "5" : "28") + (more.chance(30) ? " lasts=1" : "");
}

void drawing::save()
{
    const std::string end = crash();
    const bool is_beside = more.chance(40), fails = more.chance(30);
    add("save%s%s", end.empty() && fails ? of_checkpoint(more.chance(50) ? "write" : "flush").c_str() : end.c_str(),
        is_beside ? " beside=1" : "");
}

void drawing::step()
{
    static const char *const FORMS[] = {"split", "split", "split", "split", "whole", "measure"};
    const char *form = engines == 2 ? "measure" : one_of(FORMS);
    std::string text = "step seed=" + std::to_string(d.below(100000)) + " form=" + form;
    const std::string error = fault(), end = crash();
    text += end.empty() ? error : end;
    const auto with = [&](const char *key, const std::string &value) { text += std::string(" ") + key + "=" + value; };
    if (chance(50))
        with("share", "70");
    if (chance(30))
        with("mag", chance(80) ? "50" : "6e38");
    if (chance(12))
        with("bad", chance(50) ? "nan" : "inf");
    if (chance(25))
        with("scale", chance(80) ? "0.5" : "-0.5");
    if (chance(15))
        with("clip", chance(30) ? "-1" : "0.7");
    if (chance(40))
        with("zero", "1");
    if (chance(25))
        with("prepare", std::to_string(1 + d.below(2)));
    if (micro_steps > 1 && chance(30))
        with("weight", chance(10) ? "0" : std::to_string(1 + d.below(8)));
    else if (ranks > 1 && micro_steps == 1 && more.chance(30))
        with("weight", more.chance(10) ? "0" : std::to_string(1 + more.below(8)));
    if (form[0] == 's' && chance(60))
        with("calls", std::to_string(1 + d.below(8)));
    if (chance(4))
        with("drop", std::to_string(1 + d.below(2)));
    if (chance(10))
        with("t", "2");
    if (moves.chance(25))
        with("list", "1");
    p.push_back(text);
}

void drawing::pull(unsigned long long seed)
{
    static const char *const KINDS[] = {"read", "write"};
    const std::string one = moves.chance(60) ? " one=1" : "", place = std::to_string(1 + moves.below(20));
    const bool fails = nvme && moves.chance(30);
    add("pull seed=%llu%s%s", seed, one.c_str(),
        fails ? (" fault=" + std::string(KINDS[moves.below(2)]) + " nth=" + place + " errno=5").c_str() : "");
}

void drawing::operation()
{
    if (moves.chance(8))
        add("move seed=%u", (unsigned)moves.below(100000));
    const unsigned kind = (unsigned)d.below(100);
    const unsigned long long seed = d.below(100000);
    if (kind < 64)
        step();
    else if (kind < 71)
        add("states seed=%llu flush=%u%s", seed, chance(50), fault().c_str());
    else if (kind < 75)
        pull(seed);
    else if (kind < 82)
        add("read seed=%llu%s", seed, fault().c_str());
    else if (kind < 87 && chance(50))
        save();
    else if (kind < 87)
        add("load seed=%llu%s", seed, more.chance(25) ? of_checkpoint("read").c_str() : "");
    else if (kind < 94 && persist) {
        const unsigned look = chance(50), open = chance(30);
        add("reopen open=%u look=%u%s", open, look, crash().c_str());
    } else if (kind < 97)
        add("group seed=%llu", seed);
    else
        add("progress turns=%u", 1 + (unsigned)d.below(20));
}

program drawing::draw()
{
    add("world seed=%llu stay=%u", (unsigned long long)d.below(1000000), 1u << d.below(7));
    engines = chance(15) ? 2 : 1;
    nvme = chance(65);
    persist = nvme && chance(50);
    device = chance(20);
    ranks = engines == 1 && !device && chance(20) ? 2 + (unsigned)d.below(2) : 1;
    if (device && engines == 1 && more.chance(30))
        ranks = 2;
    else if (ranks > 1 && more.chance(25))
        ranks = 4;
    is_small = chance(40);
    crashes = persist && engines == 1 && ends.chance(50);
    if (engines == 2)
        add("engines 2");
    if (ranks > 1)
        add("ranks %u", ranks);
    if (device)
        add("device");
    config();
    params();
    const unsigned count = 5 + (unsigned)d.below(25);
    for (unsigned i = 0; i < count; i++)
        operation();
    return p;
}
} // namespace

program sim::generate(uint64_t seed)
{
    return drawing(seed).draw();
}

// ---- making it smaller ----

static program without(const program &p, size_t first, size_t count)
{
    program out(p.begin(), p.begin() + static_cast<ptrdiff_t>(first));
    out.insert(out.end(), p.begin() + static_cast<ptrdiff_t>(first + count), p.end());
    return out;
}

// The same line with one field less, or with a smaller number in it.
static std::vector<std::string> smaller(const std::string &text)
{
    std::vector<std::string> out;
    const line l(text);
    for (const auto &[key, value] : l.fields) {
        const std::string field = " " + key + "=" + value;
        const size_t at = text.find(field);
        if (at == std::string::npos)
            continue;
        const auto put = [&](const std::string &other) {
            out.push_back(text.substr(0, at) + other + text.substr(at + field.size()));
        };
        put("");
        char *end;
        const unsigned long long number = strtoull(value.c_str(), &end, 10);
        if (*end || number < 2 || key == "seed")
            continue;
        for (const unsigned long long less : {1ull, number / 2, number - 1}) {
            if (less < number)
                put(" " + key + "=" + std::to_string(less));
        }
    }
    return out;
}

program sim::shrink(program p, const std::function<bool(const program &)> &fails, unsigned most)
{
    unsigned tries = 0;
    const auto accept = [&](const program &other) {
        if (tries >= most)
            return false;
        tries++;
        if (!fails(other))
            return false;
        p = other;
        return true;
    };
    for (bool has_changed = true; has_changed && tries < most;) {
        has_changed = false;
        for (size_t width = p.size() / 2; width >= 1; width /= 2) {
            for (size_t first = 0; first + width <= p.size();) {
                if (accept(without(p, first, width)))
                    has_changed = true;
                else
                    first += width;
            }
        }
        for (size_t i = 0; i < p.size(); i++) {
            const std::vector<std::string> others = smaller(p[i]);
            for (const std::string &other : others) {
                program with = p;
                with[i] = other;
                if (accept(with)) {
                    has_changed = true;
                    i--; // the same line again
                    break;
                }
            }
        }
    }
    return p;
}
