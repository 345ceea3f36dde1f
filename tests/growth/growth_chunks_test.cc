// growth_chunks_test.cc: what seal, step and passes over all states cost grows with the chunks, slices and parameters
// and no faster. Operations are counted, and bytes; no clock is read.
#include "counted.h"
#include "small_engine.h"

using namespace zoff_test;

namespace
{
const double MOST = 1.1;   // exponent
const size_t CHUNK = 1024; // elements, the smallest there is
const uint64_t SLOTS = 4;

size_t largest()
{
    return getenv("ZOFF_TEST_FULL") ? 4096 : 1024;
}

enum class axis { chunks, slices, params };

// One shape of engine: where its states are, and what is many.
struct shape {
    const char *name;
    const char *device; // nvme, cpu
    bool persist;
    int resident_percent; // of the states, in DRAM
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

// An engine of `count` chunks, slices or parameters, on posix I/O: all of it happens in calls, so counts repeat.
class subject
{
  public:
    subject(const shape &s, size_t count) : shape_(s), count_(count), t_(7)
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

  private:
    const shape shape_;
    const size_t count_;
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

// Blocks of each part of a life, at one size.
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
} // namespace
