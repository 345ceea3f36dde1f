/* SPDX-License-Identifier: Apache-2.0 */
// golden_files_test.cc: whole checkpoints and state files that an earlier build has written mean the numbers that they meant,
// and an engine goes on from them. With ZOFF_GOLDEN_WRITE=1 the test writes those that are not there yet.
#include "small_engine.h"
#include "trace_file.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

using namespace zoff_test;

namespace
{
// Moments in 8 bits are for slices of at least four blocks.
enum { LONG = 4200, MIDDLE = 1100, SHORT = 40, FROZEN = 10, EACH = 41, STEPS = 2 };
const size_t ROWS[] = {MIDDLE / 50, 50};

struct kind {
    const char *name, *moments, *master;
    zoff_dtype dtype;
    size_t count;      // elements of the first parameter
    unsigned ranks;    // at stage 2
    bool has_more;     // frozen weights, bytes of the program, and a second engine in the checkpoint
    bool scales;       // a dynamic loss scale, which an overflow has lowered
    bool muon = false; // a matrix
    bool exact = false;
};
const kind KINDS[] = {{"fp16", "fp32", "auto", ZOFF_F16, LONG, 1, false},
                      {"whole_bf16", "bf16", "fp32", ZOFF_BF16, LONG, 1, false},
                      {"split_m8v16", "m8v16", "auto", ZOFF_BF16, LONG, 1, false},
                      {"split_q8", "q8", "auto", ZOFF_BF16, LONG, 1, false},
                      {"fp32", "fp32", "auto", ZOFF_F32, MIDDLE, 1, false},
                      {"split_ranks", "fp32", "auto", ZOFF_BF16, MIDDLE, 2, false},
                      {"more", "fp32", "auto", ZOFF_F32, MIDDLE, 2, true},
                      {"loss_scale", "fp32", "auto", ZOFF_F16, MIDDLE, 1, false, true},
                      {"muon", "fp32", "auto", ZOFF_BF16, MIDDLE, 1, false, false, true},
                      {"exact", "fp32", "auto", ZOFF_BF16, MIDDLE, 2, false, false, false, true}};

// A model of two parameters, or three with a frozen one. Numbers are made by integer arithmetic, so that they are the same
// wherever the test runs.
class model
{
  public:
    explicit model(const kind &k_, unsigned rank_ = 0, zoff_comm *comm_ = nullptr) : k(k_), rank(rank_), comm(comm_)
    {
        counts = {k.count, SHORT};
        if (k.has_more)
            counts.push_back(FROZEN);
        for (size_t count : counts) {
            values.emplace_back(4 * count);
            grads.emplace_back(4 * count);
            for (size_t i = 0; i < count; i++)
                trainer::put(values.back().data(), k.dtype, i, (float)((int)(i * 37 % 101) - 50) / 64);
        }
    }

    engine open(const std::string &folder)
    {
        const std::string states =
            folder.empty() ? "" : ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" + folder + "\"}";
        const std::string text =
            "{\"optimizer\": {\"type\": \"" + std::string(k.muon ? "Muon" : "AdamW") +
            "\", \"params\": {\"lr\": 0.01}}, \"zoff\": {\"moments\": \"" + std::string(k.moments) + "\", \"master\": \"" +
            k.master + "\", \"persist\": " + (folder.empty() ? "false" : "true") +
            (k.exact ? ", \"reduce_scatter\": \"exact\"" : "") + "}, " +
            (k.scales ? "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 6, \"hysteresis\": 1}, " : "") +
            "\"zero_optimization\": {\"stage\": " + (comm ? "2" : "0") + states + "}}";
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.comm = comm;
        engine e = make_engine(text, opts);
        const char *const names[] = {"layers.0.weight", "norm", "embed"};
        for (size_t i = 0; i < counts.size(); i++) {
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = names[i];
            d.count = counts[i];
            d.dtype = d.grad_dtype = k.dtype;
            d.value = values[i].data();
            d.frozen = i == 2;
            d.grad = d.frozen ? nullptr : grads[i].data();
            if (k.muon && i == 0) {
                d.dims = ROWS;
                d.dim_count = 2;
            }
            EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
        return e;
    }

    // A gradient far above the others of its block is an outlier of moments in 8 bits.
    void step(zoff_engine *e, int64_t t)
    {
        for (size_t p = 0; p < 2; p++) {
            for (size_t i = 0; i < counts[p]; i++)
                trainer::put(grads[p].data(), k.dtype, i,
                             i == 7 ? 512.0f : (float)((int)((i + (size_t)t) * 53 % 89) - 44) / 1024);
        }
        ASSERT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
    }

    void train(zoff_engine *e)
    {
        for (int64_t t = 1; t <= STEPS; t++) {
            step(e, t);
            if (k.scales && t == 1) {
                trainer::put(grads[0].data(), k.dtype, 0, INFINITY);
                ASSERT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
            }
        }
    }

    // Overwrite what a load has to bring back.
    void forget()
    {
        if (k.has_more)
            values[2].assign(values[2].size(), 0);
        forget_data();
    }
    void forget_data()
    {
        position.assign(position.size(), '?');
        seed.assign(seed.size(), '?');
    }

    // The number of updates, and every 41st number of each state with its bits, a line for each state.
    std::string numbers(zoff_engine *e)
    {
        std::ostringstream out;
        int64_t t = 0;
        EXPECT_ZOFF_OK(zoff_step_count(e, &t));
        out << "updates " << t << "\n";
        for (unsigned p = 0; p < 2; p++) {
            for (zoff_state_kind state : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
                if (k.muon && p == 0 && state == ZOFF_STATE_V)
                    continue;
                std::vector<float> all(counts[p]);
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
        zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
        if (k.scales) {
            EXPECT_ZOFF_OK(zoff_loss_scaler_get(e, &scaler));
            out << "scale " << scaler.scale << ", " << scaler.iterations << " steps, the last overflow at "
                << scaler.last_overflow << ", hysteresis " << scaler.hysteresis << "\n";
        }
        return out.str();
    }
    // Frozen weights, and bytes of the program.
    std::string more() const
    {
        std::ostringstream out;
        for (size_t i = 0; k.has_more && i < FROZEN; i++)
            out << trainer::get(values[2].data(), k.dtype, i) << " ";
        return out.str() + position + ", " + seed + "\n";
    }
    void give_data(zoff_checkpoint_opts *opts, const char *label)
    {
        if (!k.has_more)
            return;
        data[0] = {"position", &position[0], position.size(), false};
        data[1] = {"seed", &seed[0], seed.size(), true};
        opts->data = data;
        opts->data_count = 2;
        opts->label = label;
        opts->engines = 2;
    }

  private:
    const kind k;
    const unsigned rank;
    zoff_comm *const comm;
    std::vector<size_t> counts;
    std::vector<std::vector<char>> values, grads;
    std::string position = "batch 17", seed = "seed of rank " + std::to_string(rank);
    zoff_checkpoint_data data[2];
};

// Call a function for each rank of a kind, in threads.
void for_ranks(const kind &k, const std::function<void(model &, unsigned)> &run)
{
    if (k.ranks == 1) {
        model m(k);
        run(m, 0);
        return;
    }
    zoff_comm_opts opts = ZOFF_COMM_OPTS_INIT;
    zoff_comm *comms[2];
    ASSERT_EQ(2u, k.ranks);
    ASSERT_ZOFF_OK(zoff_comm_open_threads(&opts, 2, comms));
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < 2; rank++) {
        threads.emplace_back([&, rank] {
            model m(k, rank, comms[rank]);
            run(m, rank);
        });
    }
    for (auto &thread : threads)
        thread.join();
    for (auto *comm : comms)
        zoff_comm_close(comm);
}

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
    const std::string path = files("checkpoint", [&](const std::string &to) {
        for_ranks(GetParam(), [&](model &m, unsigned rank) {
            engine e = m.open("");
            m.train(e.get());
            for (const char *label : {"left", "right"}) {
                zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
                m.give_data(&opts, label);
                if (label[0] == 'l' || GetParam().has_more) {
                    ASSERT_ZOFF_OK(zoff_checkpoint_save(e.get(), to.c_str(), &opts));
                }
            }
            const std::string numbers = m.numbers(e.get());
            std::ofstream(to + "/numbers" + (rank ? std::to_string(rank) : "") + ".txt")
                << numbers << (GetParam().has_more ? m.more() : "");
        });
    });
    for_ranks(GetParam(), [&](model &m, unsigned rank) {
        engine e = m.open("");
        for (const char *label : {"left", "right"}) {
            zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
            m.give_data(&opts, label);
            m.forget();
            ASSERT_ZOFF_OK(zoff_checkpoint_load(e.get(), path.c_str(), &opts));
            const std::string numbers = m.numbers(e.get());
            EXPECT_EQ(text_of(path + "/numbers" + (rank ? std::to_string(rank) : "") + ".txt"),
                      numbers + (GetParam().has_more ? m.more() : ""));
        }
        m.step(e.get(), STEPS + 1);
    });
}

TEST_P(GoldenFiles, AStateFileMeansWhatItMeant)
{
    const std::string path = files("states", [&](const std::string &to) {
        for_ranks(GetParam(), [&](model &m, unsigned rank) {
            engine e = m.open(to);
            zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
            m.give_data(&opts, nullptr);
            ASSERT_ZOFF_OK(zoff_persist_data(e.get(), opts.data, opts.data_count));
            m.train(e.get());
            const std::string numbers = m.numbers(e.get());
            std::ofstream(to + "/numbers" + (rank ? std::to_string(rank) : "") + ".txt")
                << numbers << (GetParam().has_more ? m.more() : "");
        });
    });
    std::filesystem::copy(path, scratch.path, std::filesystem::copy_options::recursive);
    for_ranks(GetParam(), [&](model &m, unsigned rank) {
        m.forget_data();
        engine e = m.open(scratch.path);
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        m.give_data(&opts, nullptr);
        ASSERT_ZOFF_OK(zoff_persist_data(e.get(), opts.data, opts.data_count));
        ASSERT_ZOFF_OK(zoff_params_push(e.get()));
        const std::string numbers = m.numbers(e.get());
        EXPECT_EQ(text_of(path + "/numbers" + (rank ? std::to_string(rank) : "") + ".txt"),
                  numbers + (GetParam().has_more ? m.more() : ""));
        m.step(e.get(), STEPS + 1);
    });
}

// The description beside a state file says which elements lie where.
TEST_P(GoldenFiles, ADescriptionMeansWhatItMeant)
{
    kind alone = GetParam();
    alone.ranks = 1;
    model m(alone);
    const std::string path = std::string(GOLDEN) + "/states_" + GetParam().name;
    const char *folder = path.c_str();
    ASSERT_ZOFF_OK(zoff_state_files_checkpoint(&folder, 1, scratch.path.c_str(), nullptr, nullptr, nullptr));
    engine e = m.open("");
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.allow = "embed"; // state files have no frozen weights
    ASSERT_ZOFF_OK(zoff_checkpoint_load(e.get(), scratch.path.c_str(), &opts));
    EXPECT_EQ(0u, text_of(path + "/numbers.txt").find(m.numbers(e.get())));
    const bool is_exact = text_of(scratch.path + "/step-0000000002/manifest.json").find("\"exact\"") != std::string::npos;
    EXPECT_EQ(GetParam().exact, is_exact);
}
// A trace has a version; viewers and bench/check-trace read its events.
// A pinned checkpoint is pinned for every later version, and one without a pin is not.
TEST(GoldenPin, MeansWhatItMeant)
{
    const std::string path = std::string(GOLDEN) + "/checkpoint_pinned";
    if (getenv("ZOFF_GOLDEN_WRITE") && !std::filesystem::exists(path)) {
        const zoff_checkpoint_param param = {sizeof param, "w", nullptr, nullptr, nullptr, 0, 1, 1, ZOFF_F32, 1};
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        zoff_checkpoint_writer *writer = nullptr;
        opts.pinned = true;
        ASSERT_ZOFF_OK(zoff_checkpoint_writer_open(path.c_str(), &opts, STEPS, &param, 1, nullptr, &writer));
        EXPECT_ZOFF_OK(zoff_checkpoint_writer_commit(writer));
        zoff_checkpoint_writer_close(writer);
    }
    for (const std::string name : {"pinned", "fp32"}) {
        zoff_checkpoint_reader *reader = nullptr;
        zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open((std::string(GOLDEN) + "/checkpoint_" + name).c_str(), nullptr, &reader));
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_info(reader, &info));
        EXPECT_EQ(name == "pinned", info.pinned);
        zoff_checkpoint_reader_close(reader);
    }
}

TEST(GoldenTrace, MeansWhatItMeant)
{
    const std::string path = std::string(GOLDEN) + "/trace.json";
    EXPECT_EQ(0u, text_of(path).find(R"({"displayTimeUnit": "ms", "otherData": {"format": "zoff trace", "version": 1},)"));
    const auto events = read_trace(path);
    expect_sound_tracks(events);
    for (const char *row : {"fetch", "update", "flush"})
        EXPECT_EQ(1u, count_events(events, "X", row)) << row;
}
} // namespace
