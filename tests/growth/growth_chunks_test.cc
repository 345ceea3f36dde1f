/* SPDX-License-Identifier: Apache-2.0 */
// growth_chunks_test.cc: the cost of seal, steps, windows and passes over all states must be linear in the chunks, slices and
// parameters. The tests count operations and bytes; they read no clock.
#include "counted.h"
#include "small_engine.h"

#include <algorithm>
#include <fstream>

using namespace zoff_test;

namespace
{
const double MOST = 1.1;   // the largest exponent allowed
const size_t CHUNK = 1024; // elements of a chunk, the fewest possible
const uint64_t SLOTS = 4;

size_t largest()
{
    return getenv("ZOFF_TEST_FULL") ? 4096 : 512;
}

enum class axis { chunks, slices, params };

// One kind of engine: the place of its states, and which number grows.
struct shape {
    const char *name;
    const char *device; // nvme, cpu
    bool persist;
    int resident_percent; // share of the states in DRAM
    axis many;
};
std::ostream &operator<<(std::ostream &out, const shape &s)
{
    return out << s.name;
}

const shape SHAPES[] = {
    {"DramChunks", "cpu", false, 0, axis::chunks},
    {"DramSlices", "cpu", false, 0, axis::slices},
    {"DramParams", "cpu", false, 0, axis::params},
    {"StreamedChunks", "nvme", false, 0, axis::chunks},
    {"HalfResidentChunks", "nvme", false, 50, axis::chunks},
    {"NearlyAllResidentChunks", "nvme", false, 97, axis::chunks},
    {"ResidentChunks", "nvme", false, 100, axis::chunks},
    {"ResidentSlices", "nvme", false, 100, axis::slices},
    {"ResidentParams", "nvme", false, 100, axis::params},
    {"PersistChunks", "nvme", true, 0, axis::chunks},
    {"PersistHalfResidentChunks", "nvme", true, 50, axis::chunks},
    {"PersistResidentChunks", "nvme", true, 100, axis::chunks},
    {"PersistParams", "nvme", true, 0, axis::params},
};

// An engine with `count` chunks, slices or parameters. With posix I/O all work happens inside calls, so counts are repeatable.
class subject
{
  public:
    subject(const shape &s, size_t count) : t_(7)
    {
        const bool several = s.many == axis::params;
        for (size_t i = 0; i < (several ? count : 1); i++)
            t_.add(several ? CHUNK : (s.many == axis::slices ? CHUNK : CHUNK * count), s.many == axis::slices ? count : 1,
                   ZOFF_BF16, ZOFF_BF16);
        const std::string text =
            std::string("{\"gradient_clipping\": 0, \"zero_optimization\": {\"offload_optimizer\": {\"device\": \"") +
            s.device + "\", \"nvme_path\": \"" + folder_.path + "\", \"buffer_count\": " + std::to_string(SLOTS) +
            "}}, \"zoff\": {\"io_backend\": \"posix\", \"durability\": \"process\", \"persist\": " +
            (s.persist ? "true" : "false") + "}}";
        const uint64_t slot = plan_of(make_engine(t_, text, CHUNK).get()).chunk_bytes;
        const uint64_t residents = count * (uint64_t)s.resident_percent / 100;
        e_ = make_engine(t_, text, CHUNK, s.device[0] == 'n' ? (SLOTS + residents) * slot : 0);
    }
    void seal() { ASSERT_ZOFF_OK(zoff_engine_seal(e_.get())); }
    void step() { ASSERT_ZOFF_OK(zoff_step(e_.get(), nullptr, nullptr)); }
    void push() { ASSERT_ZOFF_OK(zoff_params_push(e_.get())); }
    void pull() { ASSERT_ZOFF_OK(zoff_params_pull(e_.get())); }
    void destroy() { e_.reset(); }

    // Read or write all states in windows, in the order of the parameters, once for each list of kinds. In each window the
    // kinds of a list follow one another.
    typedef std::vector<std::vector<zoff_state_kind>> order;
    void windows(bool write, size_t most = CHUNK / 2, const order &lists = {{ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}})
    {
        for (const auto &kinds : lists) {
            for (size_t p = 0; p < t_.tensors.size(); p++) {
                for (size_t first = 0; first < t_.tensors[p].total(); first += most) {
                    std::vector<float> window(std::min(most, t_.tensors[p].total() - first), 0.5f);
                    for (zoff_state_kind kind : kinds)
                        ASSERT_ZOFF_OK(
                            write ? zoff_state_write(e_.get(), (zoff_param)p, kind, first, window.size(), window.data())
                                  : zoff_state_read(e_.get(), (zoff_param)p, kind, first, window.size(), window.data()));
                }
            }
        }
    }
    zoff_engine *engine_of() { return e_.get(); }

  private:
    scratch_folder folder_;
    trainer t_;
    engine e_;
};

class GrowthChunks : public testing::TestWithParam<shape>
{
  protected:
    log_catcher log;
};
INSTANTIATE_TEST_SUITE_P(Shapes, GrowthChunks, testing::ValuesIn(SHAPES), [](const auto &p) { return p.param.name; });

const subject::order BY_KIND = {{ZOFF_STATE_MASTER}, {ZOFF_STATE_M}, {ZOFF_STATE_V}};

// The basic blocks of each phase of an engine's use, at one size.
std::vector<std::pair<const char *, uint64_t>> costs_at(const shape &s, size_t count)
{
    std::vector<std::pair<const char *, uint64_t>> costs;
    subject all(s, count);
    const auto take = [&](const char *what, const std::function<void()> &work) {
        costs.emplace_back(what, count_blocks(work));
    };
    take("seal", [&] { all.seal(); });
    take("first step", [&] { all.step(); });
    take("step", [&] { all.step(); });
    take("reading windows", [&] { all.windows(false); });
    take("writing windows", [&] { all.windows(true); });
    take("writing windows kind by kind", [&] { all.windows(true, CHUNK / 2, BY_KIND); });
    take("step after windows", [&] { all.step(); });
    take("push", [&] { all.push(); });
    take("pull", [&] { all.pull(); });
    take("destroy", [&] { all.destroy(); });
    return costs;
}

TEST_P(GrowthChunks, IsLinear)
{
    const size_t small = largest() / 8, large = largest();
    const auto few = costs_at(GetParam(), small), many = costs_at(GetParam(), large);
    for (size_t i = 0; i < few.size(); i++) {
        ASSERT_GT(few[i].second, 0u);
        const double grows = exponent(few[i].second, many[i].second, small, large);
        RecordProperty(std::string(few[i].first), std::to_string(grows));
        EXPECT_LE(grows, MOST) << few[i].first << ": " << few[i].second << " blocks at " << small << ", " << many[i].second
                               << " at " << large;
    }
}

// The bytes that this process has read and written by system calls. With posix I/O these are the engine's transfers.
struct traffic {
    uint64_t read = 0, written = 0;
};
traffic traffic_of(const std::function<void()> &work)
{
    const auto now = [] {
        std::ifstream io("/proc/self/io");
        traffic sum;
        std::string word;
        uint64_t number;
        while (io >> word >> number) {
            sum.read = word == "rchar:" ? number : sum.read;
            sum.written = word == "wchar:" ? number : sum.written;
        }
        return sum;
    };
    const traffic before = now();
    work();
    const traffic after = now();
    return {after.read - before.read, after.written - before.written};
}

// All windows together must read each array of a chunk once and write it once. That holds for all kinds in each window, for one
// kind after the other, and for both mixed. Windows may end inside chunks.
const struct {
    const char *name;
    subject::order lists;
    std::vector<size_t> windows;
} ORDERS[] = {
    {"ByWindow", {{ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}}, {CHUNK / 2, CHUNK / 3, CHUNK}},
    {"ByKind", BY_KIND, {CHUNK / 2, CHUNK / 3, 7 * CHUNK}},
    {"Mixed", {{ZOFF_STATE_V}, {ZOFF_STATE_M, ZOFF_STATE_MASTER}}, {CHUNK / 3}},
};
class GrowthOfBytes : public testing::TestWithParam<shape>
{
  protected:
    log_catcher log;
};
INSTANTIATE_TEST_SUITE_P(Shapes, GrowthOfBytes,
                         testing::Values(SHAPES[3], SHAPES[4], SHAPES[9], SHAPES[10], SHAPES[11], SHAPES[12]),
                         [](const auto &p) { return p.param.name; });

TEST_P(GrowthOfBytes, WindowsMoveTheStatesOnce)
{
    for (const auto &order : ORDERS) {
        for (size_t window : order.windows) {
            SCOPED_TRACE(order.name + (" " + std::to_string(window)));
            subject all(GetParam(), 64);
            all.seal();
            all.step();
            const zoff_plan_info plan = plan_of(all.engine_of());
            // commit records and /proc
            const uint64_t states = plan.nvme_bytes / (GetParam().persist ? 2 : 1), slack = 64 << 10;
            const uint64_t most_read = states - (GetParam().persist ? plan.resident_bytes : 0) + slack;
            const traffic saving = traffic_of([&] { all.windows(false, window, order.lists); });
            EXPECT_LE(saving.read, most_read + states / 10);
            EXPECT_LE(saving.written, slack);
            const traffic loading = traffic_of([&] {
                all.windows(true, window, order.lists);
                ASSERT_ZOFF_OK(zoff_state_flush(all.engine_of()));
            });
            EXPECT_LE(loading.read, most_read + states / 10);
            EXPECT_LE(loading.written, states + states / 10 + slack);
            // Writing single elements one after the other must cost one transfer of the array, not one each.
            const traffic small = traffic_of([&] {
                float x;
                for (size_t k = 0; k < CHUNK; k += 8)
                    ASSERT_ZOFF_OK(zoff_state_read(all.engine_of(), 0, ZOFF_STATE_V, k, 1, &x));
            });
            EXPECT_LE(small.read, 2 * plan.chunk_bytes + slack);
        }
    }
}
} // namespace
