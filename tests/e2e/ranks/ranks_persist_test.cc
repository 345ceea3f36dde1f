/* SPDX-License-Identifier: Apache-2.0 */
// ranks_persist_test.cc: states of several ranks that outlive their engines. Wherever a rank dies, all ranks must continue from
// a step that every rank has committed, or none may continue.
#include "comm_fault.h"
#include "rank_job.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

using namespace zoff_test;

namespace
{
enum { RANKS = 3 };

class RanksPersist : public testing::TestWithParam<unsigned>
{
  protected:
    RanksPersist() { open_job(60); }

    std::string config_text() const
    {
        return "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0, "
               "\"zoff\": {\"persist\": true}, \"zero_optimization\": {\"stage\": " +
               std::to_string(GetParam()) +
               ", \"reduce_bucket_size\": 6000, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" + folder.path +
               "\", \"buffer_count\": 3}}}";
    }

    void open_job(double timeout_seconds)
    {
        all.reset();
        job = std::make_unique<rank_job>(RANKS, timeout_seconds);
        all = std::make_unique<rank_trainers>(*job, 11, [](trainer &t) {
            t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
            t.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
            t.add(1500, 1, ZOFF_F16, ZOFF_F16, 1);
        });
    }

    void close()
    {
        for (auto &e : all->engines)
            e.reset();
    }

    // Reopen the engines after step `t`. The weights differ until they are derived from the states.
    void reopen(int64_t t)
    {
        close();
        for (auto &trainer : all->trainers)
            trainer->scramble();
        all->seal(config_text(), 2048);
        job->on_each([&](unsigned rank) {
            int64_t count = -1;
            EXPECT_ZOFF_OK(zoff_step_count(all->engines[rank].get(), &count));
            EXPECT_EQ(t, count) << "rank " << rank;
            EXPECT_ZOFF_OK(zoff_params_push(all->engines[rank].get()));
        });
        expect_all();
    }

    void expect_all()
    {
        job->on_each([&](unsigned rank) {
            trainer copy = *all->trainers[rank];
            copy.tensors = all->want.tensors;
            copy.expect_weights();
            copy.expect_states(all->engines[rank].get());
        });
    }

    void step(int64_t t)
    {
        all->backward((unsigned)t, 0.5f);
        all->step(config_groups(), t, 0);
        job->on_each([&](unsigned rank) {
            zoff_step_info info = new_info();
            EXPECT_ZOFF_OK(zoff_step(all->engines[rank].get(), nullptr, &info));
            EXPECT_EQ(t, info.t);
        });
        expect_all();
    }

    void expect_refused(const std::string &words)
    {
        close();
        job->on_each([&](unsigned rank) {
            all->engines[rank] = make_engine(*all->trainers[rank], config_text(), 2048, 0, job->comm_of(rank));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, words, zoff_engine_seal(all->engines[rank].get()));
        });
    }

    // ---- replace the files of one rank by those of another time ----

    static std::string file_of(unsigned rank) { return "zoff-r" + std::to_string(rank) + ".states"; }

    static void copy(const std::string &from, const std::string &to)
    {
        std::ifstream in(from, std::ios::binary);
        std::ofstream out(to, std::ios::binary | std::ios::trunc);
        out << in.rdbuf();
        EXPECT_TRUE(in && out) << from;
    }

    void save(unsigned rank) const { copy(folder.file(file_of(rank)), aside.file(file_of(rank))); }
    void restore(unsigned rank) const { copy(aside.file(file_of(rank)), folder.file(file_of(rank))); }

    log_catcher log;
    scratch_folder folder, aside;
    std::vector<std::unique_ptr<comm_fault>> wrapped; // destroyed after the communicators
    std::unique_ptr<rank_job> job;
    std::unique_ptr<rank_trainers> all;
};
INSTANTIATE_TEST_SUITE_P(Stages, RanksPersist, testing::Values(1u, 2u));

TEST_P(RanksPersist, ANewRunContinuesBitForBit)
{
    all->seal(config_text(), 2048);
    for (int64_t t = 1; t <= 3 && !HasFailure(); t++)
        step(t);
    for (int64_t t = 4; t <= 6 && !HasFailure(); t++) {
        reopen(t - 1);
        step(t);
    }
}

// Bytes that all ranks share are those of rank 0; others are each rank's own. All are those of the commit that the ranks
// continue with, also where a rank goes back by one.
TEST_P(RanksPersist, TheProgramsBytesAreThoseOfTheCommit)
{
    int64_t shared[RANKS] = {}, own[RANKS] = {};
    const auto give = [&](const char *name = "shared", size_t count = 8) {
        job->on_each([&](unsigned rank) {
            const zoff_checkpoint_data list[] = {{rank == 1 ? name : "shared", &shared[rank], rank == 1 ? count : 8, false},
                                                 {"own", &own[rank], 8, true}};
            const zoff_status status = zoff_persist_data(all->engines[rank].get(), list, 2);
            if (count == 8)
                EXPECT_ZOFF_OK(status);
            else
                EXPECT_ZOFF_FAILS(rank == 1 ? ZOFF_ERR_INVALID : ZOFF_ERR_COMM,
                                  rank == 1 ? "has 8 bytes in the state files, and 4" : "rank 1 has failed", status);
        });
    };
    const auto set = [&](int64_t t) {
        for (unsigned rank = 0; rank < RANKS; rank++) {
            shared[rank] = 100 * t + rank; // other ranks than 0 are wrong
            own[rank] = 1000 * t + rank;
        }
    };
    const auto expect = [&](int64_t t) {
        for (unsigned rank = 0; rank < RANKS; rank++) {
            EXPECT_EQ(100 * t, shared[rank]) << "rank " << rank;
            EXPECT_EQ(1000 * t + rank, own[rank]) << "rank " << rank;
        }
    };
    all->seal(config_text(), 2048);
    give();
    for (int64_t t = 1; t <= 2 && !HasFailure(); t++) {
        set(t);
        step(t);
    }
    reopen(2);
    set(-1);
    give("shared", 4);
    EXPECT_EQ(-100, shared[0]) << "nothing is copied on any rank if one refuses";
    give();
    expect(2);
    save(1);
    const std::vector<reference::tensor> second = all->want.tensors;
    set(3);
    step(3);
    close();
    restore(1);
    all->want.tensors = second;
    reopen(2);
    set(-1);
    give();
    expect(2);
    step(3);
}

// All ranks open the commit before the last, or none. If one rank cannot open it, all keep the last one.
TEST_P(RanksPersist, TheCommitBeforeTheLastIsOpenedByAll)
{
    const auto open_at = [&](int64_t persist_t, int64_t other_t, zoff_status want, const std::string &words) {
        close();
        job->on_each([&](unsigned rank) {
            zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
            zoff_config *made = nullptr;
            const std::string text = config_text();
            EXPECT_ZOFF_OK(config_from_text(text.data(), text.size(), "ds.json", &made));
            const config c(made);
            opts.config = made;
            opts.comm = job->comm_of(rank);
            opts.chunk_elements = 2048;
            opts.threads = threads_of_rank();
            opts.persist_t = rank == 1 ? other_t : persist_t;
            zoff_engine *opened = nullptr;
            const auto params = all->trainers[rank]->descs();
            const zoff_status status = zoff_engine_open(&opts, params.data(), params.size(), &opened);
            all->engines[rank].reset(opened);
            if (want == ZOFF_OK)
                EXPECT_ZOFF_OK(status);
            else
                EXPECT_ZOFF_FAILS(rank == 1 || want == ZOFF_ERR_INVALID ? want : ZOFF_ERR_COMM,
                                  rank == 1 || want == ZOFF_ERR_INVALID ? words : "rank 1 has failed", status);
        });
    };
    all->seal(config_text(), 2048);
    step(1);
    step(2);
    const std::vector<reference::tensor> second = all->want.tensors;
    step(3);
    close();
    open_at(2, 3, ZOFF_ERR_INVALID, "zoff_engine_opts.persist_t");
    open_at(1, 1, ZOFF_ERR_INVALID, "the states after step 3, and those after step 2");
    // A bit of the older commit flips on rank 1: its first byte of states is at a multiple of 4 KiB from the end.
    const std::string name = folder.file(file_of(1));
    save(1);
    {
        std::fstream file(name, std::ios::binary | std::ios::in | std::ios::out);
        file.seekg(0, std::ios::end);
        const std::streamoff end = file.tellg();
        for (std::streamoff at = end / 2 / 4096 * 4096; at < end; at += 4096) {
            file.seekp(at);
            file.put('?');
        }
    }
    close();
    open_at(2, 2, ZOFF_ERR_CORRUPT, "that commit is not whole any more");
    close();
    restore(1);
    reopen(3);
    open_at(2, 2, ZOFF_OK, "");
    all->want.tensors = second;
    close();
    reopen(2);
    step(3);
}

// The program of one rank ends seal: all end, no file is left, and the same engines can be sealed again.
TEST_P(RanksPersist, AProgramMayEndSealOnAllRanks)
{
    static std::atomic<bool> stops;
    stops = true;
    job->on_each([&](unsigned rank) {
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        zoff_config *made = nullptr;
        const std::string text = config_text();
        EXPECT_ZOFF_OK(config_from_text(text.data(), text.size(), "ds.json", &made));
        const config c(made);
        opts.config = made;
        opts.comm = job->comm_of(rank);
        opts.chunk_elements = 2048;
        opts.threads = threads_of_rank();
        opts.progress = [](const char *what, uint64_t, uint64_t, void *ctx) {
            EXPECT_STREQ("write states", what);
            return !(ctx && stops);
        };
        opts.progress_ctx = rank == 1 ? &stops : nullptr;
        zoff_engine *e = nullptr;
        EXPECT_ZOFF_OK(zoff_engine_create(&opts, &e));
        all->engines[rank].reset(e);
        for (const auto &desc : all->trainers[rank]->descs())
            EXPECT_ZOFF_OK(zoff_engine_add_param(e, &desc, nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CANCELED, rank == 1 ? "the program ended \"write states\"" : "the program of rank 1 ended",
                          zoff_engine_seal(e));
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder.path));
    stops = false;
    job->on_each([&](unsigned rank) { EXPECT_ZOFF_OK(zoff_engine_seal(all->engines[rank].get())); });
    step(1);
}

// The process of rank 1 ends after the commits of the other ranks and before its own.
TEST_P(RanksPersist, ARankThatCommittedMoreGoesBack)
{
    all->seal(config_text(), 2048);
    for (int64_t t = 1; t <= 3 && !HasFailure(); t++)
        step(t);
    save(1);
    const std::vector<reference::tensor> third = all->want.tensors;
    step(4);
    close();
    restore(1);
    all->want.tensors = third;
    reopen(3);
    if (HasFailure())
        return;
    EXPECT_TRUE(log.contains("the states are those after step 3"));
    // The discarded step must stay discarded in later runs.
    reopen(3);
    for (int64_t t = 4; t <= 6 && !HasFailure(); t++)
        step(t);
    reopen(6);
}

TEST_P(RanksPersist, ACrashInTheFirstCommitStartsAllAnew)
{
    all->seal(config_text(), 2048);
    const std::vector<reference::tensor> first = all->want.tensors;
    close();
    save(2);
    all->seal(config_text(), 2048);
    step(1);
    close();
    restore(2);
    open_job(60); // the job begins with the first weights
    all->want.tensors = first;
    all->seal(config_text(), 2048);
    for (int64_t t = 1; t <= 2 && !HasFailure(); t++)
        step(t);
    reopen(2);
}

TEST_P(RanksPersist, RanksWithNothingInCommonAreNamed)
{
    all->seal(config_text(), 2048);
    step(1);
    save(1);
    step(2);
    step(3);
    close();
    restore(1);
    expect_refused("rank 0 has the states after step 3 (generation 4), and rank 1 those after step 1 (generation 2)");
    EXPECT_EQ(0, unlink(folder.file(file_of(1)).c_str()));
    expect_refused("rank 0 has the states after step 3, but rank 1 has none in its nvme_path");
}

// A rank dies after it has written everything, but before it knows that the others have. No rank may commit.
TEST_P(RanksPersist, NobodyCommitsBeforeAllHaveWritten)
{
    open_job(1);
    all->seal(config_text(), 2048);
    step(1);
    step(2);
    const std::vector<reference::tensor> second = all->want.tensors;
    for (unsigned rank = 0; rank < RANKS; rank++)
        wrapped.push_back(std::make_unique<comm_fault>(job->comm_of(rank)));
    std::atomic<bool> has_died{false};
    wrapped[2]->before = [&](const zoff_comm_work &work) {
        if (work.call.kind == ZOFF_COMM_BARRIER) {
            has_died = true;
            pthread_exit(nullptr);
        }
        return ZOFF_OK;
    };
    log.expect("step 3 was begun, and is given up"); // by the engine of rank 2
    all->backward(3, 0.5f);
    all->forget();
    job->on_each([&](unsigned rank) {
        zoff_step_info info = new_info();
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "(0 bytes)", zoff_step(all->engines[rank].get(), nullptr, &info));
        EXPECT_EQ(ZOFF_OUTCOME_TORN, info.outcome);
        EXPECT_NE(nullptr, strstr(zoff_last_error(), rank_job::is_over_nccl() ? "one of the other ranks did not arrive"
                                                                              : "rank 2 of 3 did not arrive"))
            << zoff_last_error();
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the group of ranks is over", zoff_grads_drop(all->engines[rank].get()));
    });
    EXPECT_TRUE(has_died);
    close();
    open_job(60);
    all->want.tensors = second;
    reopen(2);
    for (int64_t t = 3; t <= 4 && !HasFailure(); t++)
        step(t);
}

// Changes between steps are committed, too.
TEST_P(RanksPersist, ValuesSetBetweenStepsPersistOnAllRanks)
{
    all->seal(config_text(), 2048);
    step(1);
    std::vector<float> m(700, 0.25f);
    job->on_each([&](unsigned rank) {
        EXPECT_ZOFF_OK(zoff_state_write(all->engines[rank].get(), 1, ZOFF_STATE_M, 700, m.size(), m.data()));
        EXPECT_ZOFF_OK(zoff_step_count_set(all->engines[rank].get(), 7));
    });
    std::copy(m.begin(), m.end(), all->want.tensors[1].m.begin() + 700);
    expect_all();
    reopen(7);
    step(8);
}
// The ranks compare what they found before any rank writes. A wrong folder must stay empty, however often it is used, and the
// step that the other ranks committed must survive.
TEST_P(RanksPersist, AWrongFolderStaysEmptyAndCostsNoStep)
{
    all->seal(config_text(), 2048);
    step(1);
    close();
    const scratch_folder wrong;
    for (int attempt = 0; attempt < 3; attempt++) {
        job->on_each([&](unsigned rank) {
            std::string text = config_text();
            if (rank == 1)
                text.replace(text.find(folder.path), folder.path.size(), wrong.path);
            all->engines[rank] = make_engine(*all->trainers[rank], text, 2048, 0, job->comm_of(rank));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "rank 0 has the states after step 1, but rank 1 has none in its nvme_path",
                              zoff_engine_seal(all->engines[rank].get()));
        });
        EXPECT_TRUE(std::filesystem::is_empty(wrong.path));
        close();
    }
    reopen(1);
    step(2);
}

// One rank finds the files of another model. No rank's files may change, and no new file may be left.
TEST_P(RanksPersist, FilesOfAnotherModelStopAllBeforeTheyWrite)
{
    all->seal(config_text(), 2048);
    step(1);
    save(2);
    close();
    const scratch_folder fresh;
    std::string text = config_text();
    text.replace(text.find(folder.path), folder.path.size(), fresh.path);
    std::filesystem::copy_file(folder.file(file_of(0)), fresh.file(file_of(2))); /* the files of rank 0 */
    open_job(60);
    job->on_each([&](unsigned rank) {
        all->engines[rank] = make_engine(*all->trainers[rank], text, 2048, 0, job->comm_of(rank));
        const zoff_status status = zoff_engine_seal(all->engines[rank].get());
        EXPECT_EQ(rank == 2 ? ZOFF_ERR_INVALID : ZOFF_ERR_COMM, status) << zoff_last_error();
        EXPECT_NE(nullptr, strstr(zoff_last_error(), rank == 2 ? "holds the states of rank 0 of 3" : "rank 2 has failed"))
            << zoff_last_error();
    });
    close();
    EXPECT_EQ(1, std::distance(std::filesystem::directory_iterator(fresh.path), std::filesystem::directory_iterator()));
    EXPECT_TRUE(std::filesystem::exists(fresh.file(file_of(2))));
}
} // namespace
