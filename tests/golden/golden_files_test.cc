// golden_files_test.cc: whole checkpoints and state files that an earlier build has written mean the numbers that they meant,
// and an engine goes on from them. With ZOFF_GOLDEN_WRITE=1 the test writes those that are not there yet.
#include "small_engine.h"

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace zoff_test;

namespace
{
// Moments in 8 bits are for slices of at least four blocks.
enum { LONG = 4200, SHORT = 40, EACH = 41, STEPS = 2 };

struct kind {
    const char *name, *moments, *master;
    zoff_dtype dtype;
};
const kind KINDS[] = {{"fp16", "fp32", "auto", ZOFF_F16},
                      {"whole_bf16", "bf16", "fp32", ZOFF_BF16},
                      {"split_m8v16", "m8v16", "auto", ZOFF_BF16},
                      {"split_q8", "q8", "auto", ZOFF_BF16}};

// A model of two parameters. Numbers are made by integer arithmetic, so that they are the same wherever the test runs.
class model
{
  public:
    explicit model(const kind &k_) : k(k_)
    {
        for (size_t count : {LONG, SHORT}) {
            values.emplace_back(4 * count);
            grads.emplace_back(4 * count);
            for (size_t i = 0; i < count; i++)
                trainer::put(values.back().data(), k.dtype, i, (float)((int)(i * 37 % 101) - 50) / 64);
        }
    }

    engine open(const std::string &folder)
    {
        const std::string states =
            folder.empty()
                ? ""
                : ", \"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" + folder + "\"}}";
        const std::string text =
            "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"zoff\": {\"moments\": \"" +
            std::string(k.moments) + "\", \"master\": \"" + k.master +
            "\", \"persist\": " + (folder.empty() ? "false" : "true") + "}" + states + "}";
        engine e = make_engine(text, ZOFF_ENGINE_OPTS_INIT);
        const char *const names[] = {"layers.0.weight", "norm"};
        for (size_t i = 0; i < 2; i++) {
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = names[i];
            d.count = i ? SHORT : LONG;
            d.dtype = d.grad_dtype = k.dtype;
            d.value = values[i].data();
            d.grad = grads[i].data();
            EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
        return e;
    }

    // A gradient far above the others of its block is an outlier of moments in 8 bits.
    void step(zoff_engine *e, int64_t t)
    {
        for (size_t p = 0; p < 2; p++) {
            for (size_t i = 0; i < (p ? SHORT : LONG); i++)
                trainer::put(grads[p].data(), k.dtype, i,
                             i == 7 ? 512.0f : (float)((int)((i + (size_t)t) * 53 % 89) - 44) / 1024);
        }
        ASSERT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
    }

    // The number of updates, and every 41st number of each state with its bits, a line for each state.
    static std::string numbers(zoff_engine *e)
    {
        std::ostringstream out;
        int64_t t = 0;
        EXPECT_ZOFF_OK(zoff_step_count(e, &t));
        out << "updates " << t << "\n";
        for (unsigned p = 0; p < 2; p++) {
            for (zoff_state_kind state : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
                std::vector<float> all(p ? SHORT : LONG);
                EXPECT_ZOFF_OK(zoff_state_read(e, p, state, 0, all.size(), all.data()));
                out << "parameter " << p << " state " << state << std::hex;
                for (size_t i = 7; i < all.size(); i += EACH) {
                    uint32_t bits;
                    memcpy(&bits, &all[i], sizeof bits);
                    out << " " << bits;
                }
                out << std::dec << "\n";
            }
        }
        return out.str();
    }

  private:
    const kind k;
    std::vector<std::vector<char>> values, grads;
};

std::string text_of(const std::string &path)
{
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
}

class GoldenFiles : public testing::TestWithParam<kind>
{
  protected:
    // The folder with the files of this kind. A build that is asked to writes it, if there is none.
    std::string files(const std::string &what, const std::function<void(const std::string &)> &write)
    {
        const std::string path = std::string(GOLDEN) + "/" + what + "_" + GetParam().name;
        if (getenv("ZOFF_GOLDEN_WRITE") && !std::filesystem::exists(path)) {
            std::filesystem::create_directory(path);
            write(path);
        }
        return path;
    }
    scratch_folder scratch;
};
INSTANTIATE_TEST_SUITE_P(Kinds, GoldenFiles, testing::ValuesIn(KINDS), [](const auto &p) { return std::string(p.param.name); });

TEST_P(GoldenFiles, ACheckpointMeansWhatItMeant)
{
    model m(GetParam());
    const std::string path = files("checkpoint", [&](const std::string &to) {
        engine e = m.open("");
        for (int64_t t = 1; t <= STEPS; t++)
            m.step(e.get(), t);
        ASSERT_ZOFF_OK(zoff_checkpoint_save(e.get(), to.c_str(), nullptr));
        std::ofstream(to + "/numbers.txt") << model::numbers(e.get());
    });
    engine e = m.open("");
    ASSERT_ZOFF_OK(zoff_checkpoint_load(e.get(), path.c_str(), nullptr));
    EXPECT_EQ(text_of(path + "/numbers.txt"), model::numbers(e.get()));
    m.step(e.get(), STEPS + 1);
}

TEST_P(GoldenFiles, AStateFileMeansWhatItMeant)
{
    model m(GetParam());
    const std::string path = files("states", [&](const std::string &to) {
        engine e = m.open(to);
        for (int64_t t = 1; t <= STEPS; t++)
            m.step(e.get(), t);
        std::ofstream(to + "/numbers.txt") << model::numbers(e.get());
    });
    std::filesystem::copy(path, scratch.path, std::filesystem::copy_options::recursive);
    engine e = m.open(scratch.path);
    EXPECT_EQ(text_of(path + "/numbers.txt"), model::numbers(e.get()));
    EXPECT_ZOFF_OK(zoff_params_push(e.get()));
    m.step(e.get(), STEPS + 1);
}

// The description beside a state file says which elements lie where.
TEST_P(GoldenFiles, ADescriptionMeansWhatItMeant)
{
    model m(GetParam());
    const std::string path = std::string(GOLDEN) + "/states_" + GetParam().name;
    const char *folder = path.c_str();
    ASSERT_ZOFF_OK(zoff_state_files_checkpoint(&folder, 1, scratch.path.c_str(), nullptr, nullptr, nullptr));
    engine e = m.open("");
    ASSERT_ZOFF_OK(zoff_checkpoint_load(e.get(), scratch.path.c_str(), nullptr));
    EXPECT_EQ(text_of(path + "/numbers.txt"), model::numbers(e.get()));
}
} // namespace
