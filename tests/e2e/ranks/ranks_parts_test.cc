/* SPDX-License-Identifier: Apache-2.0 */
// ranks_parts_test.cc: engines that train parts of one model (zoff_engine_opts.norm_comm) and keep their states in files. Seal
// passes on all parts or on none. All parts may use one folder, and continue from the same step after any end of a run.
#include "rank_job.h"

#include <atomic>
#include <cmath>
#include <filesystem>
#include <thread>

using namespace zoff_test;
namespace fs = std::filesystem;

namespace
{
enum { PARTS = 2, COUNT = 3000 };

struct worker {
    std::vector<float> value, grad;
    engine e;
    std::string folder;
    std::string more;          // more keys of the configuration
    bool has_no_value = false; // an error of its plan
    bool persists = true;
    bool cancels = false;

    zoff_status open(unsigned part, zoff_comm *comm, zoff_comm *norm)
    {
        std::string offload = "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" + folder + "\"}";
        const std::string text =
            "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 1.0, "
            "\"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 1024, " +
            offload + "}, \"zoff\": {\"persist\": " + (persists ? "true" : "false") + more + "}}";
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.threads = 1;
        opts.comm = comm;
        opts.norm_comm = norm;
        opts.progress_ctx = this;
        opts.progress = [](const char *, uint64_t, uint64_t, void *ctx) { return !static_cast<worker *>(ctx)->cancels; };
        value.resize(COUNT);
        grad.resize(COUNT);
        for (size_t i = 0; i < COUNT; i++)
            value[i] = std::sin((float)(i + 7 * part));
        e = make_engine(text, opts);
        zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
        d.name = "w"; // the name is the same in all parts
        d.value = has_no_value ? nullptr : value.data();
        d.grad = grad.data();
        d.count = COUNT;
        EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        const zoff_status status = zoff_engine_seal(e.get());
        int64_t count = 0;
        if (status == ZOFF_OK && zoff_step_count(e.get(), &count) == ZOFF_OK && count > 0) {
            EXPECT_ZOFF_OK(zoff_params_push(e.get()));
        }
        return status;
    }
    int64_t count() const
    {
        int64_t t = -1;
        EXPECT_ZOFF_OK(zoff_step_count(e.get(), &t));
        return t;
    }
};

class Parts : public testing::TestWithParam<unsigned>
{
  protected:
    Parts() : ranks(GetParam()), workers(ranks * PARTS)
    {
        for (unsigned part = 0; part < PARTS; part++)
            of_part.push_back(std::make_unique<rank_job>(ranks, 20.0));
        for (unsigned rank = 0; rank < ranks; rank++)
            over_parts.push_back(std::make_unique<rank_job>((unsigned)PARTS, 20.0));
        for (worker &w : workers)
            w.folder = shared.path;
    }
    ~Parts() override { close(); }
    void on_each(const std::function<void(worker &w, unsigned rank, unsigned part)> &run)
    {
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < workers.size(); i++)
            threads.emplace_back([&, i] { run(workers[i], i / PARTS, i % PARTS); });
        for (auto &one : threads)
            one.join();
    }
    zoff_status open(worker &w, unsigned rank, unsigned part)
    {
        return w.open(part, of_part[part]->comm_of(rank), over_parts[rank]->comm_of(part));
    }
    void open()
    {
        on_each([&](worker &w, unsigned rank, unsigned part) { EXPECT_ZOFF_OK(open(w, rank, part)); });
    }
    void close()
    {
        on_each([](worker &w, unsigned, unsigned) { w.e.reset(); });
    }
    void train(int64_t from, int64_t to)
    {
        on_each([&](worker &w, unsigned rank, unsigned part) {
            for (int64_t t = from; t <= to; t++) {
                EXPECT_EQ(t - 1, w.count());
                for (size_t i = 0; i < COUNT; i++)
                    w.grad[i] = std::cos((float)i * 0.3f + (float)t + (float)(rank + 5 * part));
                EXPECT_ZOFF_OK(zoff_step(w.e.get(), nullptr, nullptr));
            }
        });
    }
    std::vector<std::vector<float>> weights() const
    {
        std::vector<std::vector<float>> all;
        for (const worker &w : workers)
            all.push_back(w.value);
        return all;
    }
    static size_t files_in(const std::string &folder)
    {
        size_t count = 0;
        for (const auto &entry : fs::directory_iterator(folder))
            count += entry.path().filename().string().rfind("zoff-", 0) == 0;
        return count;
    }

    log_catcher log;
    const unsigned ranks;
    const scratch_folder shared, other;
    std::vector<std::unique_ptr<rank_job>> of_part, over_parts;
    std::vector<worker> workers;
};
INSTANTIATE_TEST_SUITE_P(Ranks, Parts, testing::Values(1u, 2u),
                         [](const auto &p) { return "ranks" + std::to_string(p.param); });
} // namespace

TEST_P(Parts, ShareAFolderAndGoOnFromIt)
{
    open();
    train(1, 6);
    const auto want = weights();
    close();
    for (const auto &entry : fs::directory_iterator(shared.path))
        fs::remove_all(entry.path());
    open();
    train(1, 3);
    close();
    EXPECT_EQ(2 * workers.size(), files_in(shared.path)) << "one for each rank of each part, with its description";
    EXPECT_TRUE(fs::exists(shared.path + "/zoff-p1-r0.states"));
    open();
    train(4, 6);
    EXPECT_EQ(want, weights());
}

TEST_P(Parts, OneThatEndedAStepBehindTakesTheOthersBack)
{
    open();
    train(1, 5);
    const auto want = weights();
    close();
    for (const unsigned behind : {1u, 2u}) {
        for (const auto &entry : fs::directory_iterator(shared.path))
            fs::remove_all(entry.path());
        open();
        train(1, 3);
        close();
        for (unsigned rank = 0; rank < ranks; rank++) {
            const std::string name = "/zoff-p1-r" + std::to_string(rank) + ".states";
            fs::copy_file(shared.path + name, other.path + name, fs::copy_options::overwrite_existing);
        }
        open();
        train(4, 3 + behind);
        close();
        for (unsigned rank = 0; rank < ranks; rank++) {
            const std::string name = "/zoff-p1-r" + std::to_string(rank) + ".states";
            fs::copy_file(other.path + name, shared.path + name, fs::copy_options::overwrite_existing);
        }
        if (behind == 2) {
            on_each([&](worker &w, unsigned rank, unsigned part) {
                EXPECT_ZOFF_FAILS(
                    ZOFF_ERR_CORRUPT,
                    "rank 0 of zoff_engine_opts.norm_comm has the states after step 5, but rank 1 has those after "
                    "step 3",
                    open(w, rank, part));
            });
            continue;
        }
        open();
        train(4, 5);
        EXPECT_EQ(want, weights());
        close();
    }
}

// A fault of the last part, or of one of its ranks: every rank of every part gets an error in time, and nobody leaves a file. A
// rank of the first part hears of it from the other part, or from a rank of its own part that has.
TEST_P(Parts, SealAllOrNone)
{
    struct fault {
        const char *name;
        std::function<void(worker &w, unsigned rank)> make;
    };
    const std::vector<fault> faults = {
        {"settings", [](worker &w, unsigned rank) { w.more = rank ? ", \"skip_nonfinite\": false" : ""; }},
        {"plan", [](worker &w, unsigned rank) { w.has_no_value = rank == 0; }},
        {"folder", [](worker &w, unsigned rank) { w.folder += rank ? "" : "/missing"; }},
        {"writing", [](worker &w, unsigned rank) { w.cancels = rank == 0; }},
    };
    unsigned cells = 0;
    for (const fault &one : faults) {
        if (!strcmp(one.name, "settings") && ranks == 1)
            continue;
        SCOPED_TRACE(one.name);
        const auto began = std::chrono::steady_clock::now();
        std::atomic<unsigned> named{0};
        on_each([&](worker &w, unsigned rank, unsigned part) {
            w.folder = shared.path;
            w.more = "";
            w.has_no_value = w.cancels = false;
            if (part == PARTS - 1)
                one.make(w, rank);
            EXPECT_GT(ZOFF_OK, open(w, rank, part)) << one.name;
            if (part == 0) {
                EXPECT_NE(nullptr, strstr(zoff_last_error(), ranks > 1 ? "rank " : "norm_comm")) << zoff_last_error();
                named += strstr(zoff_last_error(), "rank 1 of zoff_engine_opts.norm_comm") != nullptr;
            }
            w.e.reset();
        });
        EXPECT_LE(1u, named);
        EXPECT_GT(10.0, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
        EXPECT_EQ(0u, files_in(shared.path));
        cells++;
    }
    for (worker &w : workers) {
        w.folder = shared.path;
        w.more = "";
        w.has_no_value = w.cancels = false;
    }
    open();
    train(1, 2);
    RecordProperty("cells", std::to_string(cells));
}

// The parts choose a common step when they open their files, so none may open them alone.
TEST_P(Parts, PersistInOnePartOnlyIsNamed)
{
    for (const unsigned without : {0u, 1u}) {
        on_each([&](worker &w, unsigned rank, unsigned part) {
            w.persists = part != without;
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                              without == 0 ? "zoff.persist is false on rank 0 of zoff_engine_opts.norm_comm and true on rank 1"
                                           : "zoff.persist is true on rank 0 of zoff_engine_opts.norm_comm and false on rank 1",
                              open(w, rank, part));
            w.e.reset();
        });
        EXPECT_EQ(0u, files_in(shared.path));
    }
    for (worker &w : workers)
        w.persists = true;
    open();
    train(1, 2);
}

TEST_P(Parts, OneWithoutItsFormerFilesIsNamed)
{
    open();
    train(1, 3);
    close();
    for (unsigned rank = 0; rank < ranks; rank++) {
        fs::remove(shared.path + "/zoff-p1-r" + std::to_string(rank) + ".states");
        fs::remove(shared.path + "/zoff-p1-r" + std::to_string(rank) + ".states.layout");
    }
    on_each([&](worker &w, unsigned rank, unsigned part) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT,
                          "rank 0 of zoff_engine_opts.norm_comm has the states after step 3, but rank 1 has none",
                          open(w, rank, part));
    });
    EXPECT_FALSE(fs::exists(shared.path + "/zoff-p1-r0.states"));
}

// Folders of one rank each, exchanged between parts or between the ranks of a part, as hosts are by a scheduler.
TEST_P(Parts, FoldersThatWereExchangedAreNamed)
{
    const std::string folders[] = {shared.path, other.path};
    for (unsigned i = 0; i < workers.size(); i++)
        workers[i].folder = folders[ranks == 1 ? i % PARTS : i / PARTS];
    open();
    train(1, 2);
    close();
    for (unsigned i = 0; i < workers.size(); i++)
        workers[i].folder = folders[!(ranks == 1 ? i % PARTS : i / PARTS)];
    on_each([&](worker &w, unsigned rank, unsigned part) {
        EXPECT_GT(ZOFF_OK, open(w, rank, part));
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "no states of its own in its nvme_path, but another rank's in zoff-p"))
            << zoff_last_error();
    });
    for (unsigned i = 0; i < workers.size(); i++)
        workers[i].folder = folders[ranks == 1 ? i % PARTS : i / PARTS];
    open();
    train(3, 3);
}
