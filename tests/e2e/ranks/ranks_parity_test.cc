/* SPDX-License-Identifier: Apache-2.0 */
// ranks_parity_test.cc: compares several ranks with one reference that sees the gradients of all of them. Weights on every
// rank, states, norm and clip factor must equal the reference bit for bit. The matrix varies stage, tier, types, the number of
// ranks and micro-batches and their weights, the order of gradients, and when they are sent.
#include "covering.h"
#include "rank_job.h"

using namespace zoff_test;

namespace
{
// The owner of the weights. The program: on the host, on a device, or on a device that the communicator accesses. Or the
// engine: in DRAM, in files or on the device, gathered when they are fetched; and lent on the host or on such a device.
enum weights {
    OF_PROGRAM,
    ON_DEVICE,
    REACHED,
    IN_DRAM,
    IN_FILES,
    DRAM_TO_DEVICE,
    FILES_TO_DEVICE,
    KEPT_ON_DEVICE,
    DRAM_TO_REACHED,
    FILES_TO_REACHED,
    KEPT_ON_REACHED
};

bool is_reached(weights w)
{
    return w == REACHED || w >= DRAM_TO_REACHED;
}

bool is_on_device(weights w)
{
    return w == ON_DEVICE || w == REACHED || w >= DRAM_TO_DEVICE;
}

const char *tier_of(weights w)
{
    return w == IN_FILES || w == FILES_TO_DEVICE || w == FILES_TO_REACHED ? "nvme"
           : w == IN_DRAM || w == DRAM_TO_DEVICE || w == DRAM_TO_REACHED  ? "cpu"
                                                                          : "none";
}

const char *name_of(weights owner)
{
    const char *const names[] = {"program",       "device",         "reached",       "dram",
                                 "files",         "dramToDevice",   "filesToDevice", "keptOnDevice",
                                 "dramToReached", "filesToReached", "keptOnReached"};
    return names[owner];
}

struct cell {
    unsigned stage;
    zoff_tier tier;
    zoff_dtype dtype;
    unsigned world, accumulation;
    const char *wire = nullptr; // communication_data_type
    unsigned chunk_elements = 3000;
    weights owner = OF_PROGRAM;
    double ratio = 1;   // the share of the states that is on the host
    bool sums = false;  // gradient_allreduce_op
    unsigned group = 1; // zero_hpz_partition_size
    const char *moments = "fp32";
    bool whole = false; // masters of bf16 weights are numbers of their own
    bool muon = false;
    bool exact = false; // zoff.reduce_scatter
    unsigned nodes = 0; // zoff.node_ranks
};

const char *name_of(zoff_dtype d)
{
    return d == ZOFF_F32 ? "fp32" : d == ZOFF_F16 ? "fp16" : "bf16";
}

std::string name(const cell &c)
{
    return "stage" + std::to_string(c.stage) + "_" + (c.tier == ZOFF_TIER_HOST ? "host" : "nvme") + "_" + name_of(c.dtype) +
           "_world" + std::to_string(c.world) + "_accumulate" + std::to_string(c.accumulation) +
           (c.wire ? std::string("_wire_") + c.wire : "") + "_chunk" + std::to_string(c.chunk_elements) +
           (c.owner == IN_DRAM     ? "_weightsInDram"
            : c.owner == IN_FILES  ? "_weightsInFiles"
            : c.owner == ON_DEVICE ? "_onDevice"
            : c.owner == REACHED   ? "_onDeviceReached"
            : c.owner > IN_FILES   ? std::string("_") + name_of(c.owner)
                                   : "") +
           (c.ratio < 1 ? "_ratio" + std::to_string((int)(c.ratio * 100)) : "") + (c.sums ? "_sum" : "") +
           (c.group > 1 ? "_groupsOf" + std::to_string(c.group) : "") +
           (std::string(c.moments) == "fp32" ? "" : std::string("_") + c.moments) + (c.whole ? "_wholeMasters" : "") +
           (c.muon ? "_muon" : "") + (c.exact ? "_exact" : "") + (c.nodes ? "_nodesOf" + std::to_string(c.nodes) : "");
}

class RanksParity : public testing::TestWithParam<cell>
{
  protected:
    std::string config_text() const
    {
        const cell &c = GetParam();
        return "{\"gradient_accumulation_steps\": " + std::to_string(c.accumulation) + ", \"optimizer\": {\"type\": \"" +
               (c.muon ? "Muon" : "AdamW") + "\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 2.0" +
               (c.wire ? std::string(", \"communication_data_type\": \"") + c.wire + "\"" : "") +
               (c.sums ? ", \"gradient_allreduce_op\": \"sum\"" : "") +
               ", \"zero_optimization\": {\"stage\": " + std::to_string(c.stage) +
               ", \"reduce_bucket_size\": 20000, \"offload_optimizer\": {\"device\": \"" +
               (c.tier == ZOFF_TIER_NVME ? "nvme" : "cpu") + "\", \"nvme_path\": \"" + folder.path +
               "\", \"ratio\": " + std::to_string(c.ratio) + ", \"buffer_count\": 3}" + weights_text() +
               "}, \"zoff\": {\"moments\": \"" + c.moments + "\", \"master\": \"" + (c.whole ? "fp32" : "auto") +
               "\", \"reduce_scatter\": \"" + (c.exact ? "exact" : "ordered") +
               "\", \"node_ranks\": " + std::to_string(c.nodes) + "}}";
    }

    // Little room: fetched slices must be evicted for the next ones; small slices stay replicated.
    std::string weights_text() const
    {
        if (GetParam().owner < IN_DRAM)
            return "";
        return std::string(", \"offload_param\": {\"device\": \"") + tier_of(GetParam().owner) + "\", \"nvme_path\": \"" +
               folder.path +
               "\", \"buffer_count\": 2, \"max_in_cpu\": 0}, \"zero_hpz_partition_size\": " + std::to_string(GetParam().group) +
               ", \"stage3_param_persistence_threshold\": 1023, "
               "\"stage3_max_live_parameters\": 36000, \"stage3_prefetch_bucket_size\": 5000";
    }

    // One rank's micro-batch: hand over the gradients one by one in the rank's own order, then take the step; or only take the
    // step.
    static void take(rank_trainers &all, unsigned rank, unsigned round, zoff_step_info *info)
    {
        trainer &t = *all.trainers[rank];
        zoff_engine *e = all.engines[rank].get();
        EXPECT_ZOFF_OK(zoff_grad_weight(e, all.weights[rank]));
        auto ready = t.present();
        if (round % 3 == 1)
            std::shuffle(ready.begin(), ready.end(), t.random);
        else
            std::reverse(ready.begin(), ready.end());
        for (auto [i, slice] : ready) {
            t.hand_over(e, i, slice);
            const zoff_status status = t.random() % 4 ? ZOFF_OK : zoff_engine_progress(e);
            EXPECT_LE(ZOFF_OK, status);
        }
        EXPECT_ZOFF_OK(zoff_step_begin(e, nullptr));
        if (is_just_in_time(round)) {
            t.wait_for_weights(e, rank % 3, 1 + rank % 2); // each rank waits for other parameters
            t.fetch_all(e, round % 4 == 3);                // all ranks fetch the same ones
        }
        EXPECT_ZOFF_OK(zoff_step_wait(e, info));
    }

    static bool is_just_in_time(unsigned round) { return round % 2; }

    scratch_folder folder;
};

// The matrix, and extra cells that it lacks or has only once.
void fill(covering<cell> &all)
{
    for (unsigned stage : {0u, 1u, 2u, 3u}) {
        for (zoff_tier tier : {ZOFF_TIER_HOST, ZOFF_TIER_NVME}) {
            for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
                for (unsigned world : {1u, 2u, 3u, 4u}) {
                    for (unsigned accumulation : {1u, 3u})
                        all.add({stage, tier, dtype, world, accumulation});
                }
            }
        }
    }
    all.corner({1, ZOFF_TIER_HOST, ZOFF_F32, 3, 2, "bf16"});
    all.corner({2, ZOFF_TIER_HOST, ZOFF_BF16, 2, 1, "fp32"});
    all.corner({2, ZOFF_TIER_NVME, ZOFF_BF16, 4, 1, "fp16"});
    all.corner({2, ZOFF_TIER_HOST, ZOFF_BF16, 4, 2, nullptr, 1024});     // more ranks than blocks in a bucket
    all.corner({1, ZOFF_TIER_HOST, ZOFF_BF16, 8, 1, nullptr, 1u << 20}); // one bucket
    for (unsigned stage : {0u, 1u, 2u}) {
        for (zoff_tier tier : {ZOFF_TIER_HOST, ZOFF_TIER_NVME}) {
            for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
                for (unsigned world : {1u, 2u, 3u})
                    all.add({stage, tier, dtype, world, 1 + (stage + world) % 2 * 2, nullptr, 3000, ON_DEVICE});
                for (unsigned world : {2u, 3u, 4u})
                    all.add({stage, tier, dtype, world, 1 + (stage + world) % 2 * 2, nullptr, 3000, REACHED});
            }
        }
    }
    all.corner({2, ZOFF_TIER_HOST, ZOFF_BF16, 4, 2, "fp32", 1024, ON_DEVICE});
    all.corner({3, ZOFF_TIER_HOST, ZOFF_BF16, 2, 1, nullptr, 3000, ON_DEVICE});
    all.corner({2, ZOFF_TIER_HOST, ZOFF_BF16, 4, 2, "fp32", 1024, REACHED});
    all.corner({1, ZOFF_TIER_HOST, ZOFF_F32, 3, 2, "bf16", 3000, REACHED});
    all.corner({3, ZOFF_TIER_HOST, ZOFF_BF16, 2, 1, nullptr, 3000, REACHED});
    all.corner({1, ZOFF_TIER_HOST, ZOFF_BF16, 4, 1, nullptr, 1u << 20, REACHED});
    for (unsigned stage : {0u, 1u, 2u, 3u}) {
        for (double ratio : {0.0, 0.25, 0.5, 0.75}) {
            const zoff_tier tier = stage % 2 ? ZOFF_TIER_NVME : ZOFF_TIER_HOST;
            const zoff_dtype dtype = ratio == 0.25 ? ZOFF_F32 : ratio == 0.75 ? ZOFF_F16 : ZOFF_BF16;
            all.add({stage, tier, dtype, 2, stage < 2 ? 1u : 3u, nullptr, 3000, REACHED, ratio});
            all.add({stage, ZOFF_TIER_HOST, dtype, 4, stage < 2 ? 3u : 1u, nullptr, 1024, REACHED, ratio});
        }
    }
    for (weights owner :
         {ON_DEVICE, DRAM_TO_DEVICE, FILES_TO_DEVICE, KEPT_ON_DEVICE, DRAM_TO_REACHED, FILES_TO_REACHED, KEPT_ON_REACHED}) {
        for (double ratio : {0.0, 0.5}) {
            for (unsigned world : {1u, 2u, 4u}) {
                const unsigned stage = owner > IN_FILES ? 3 : world / 2;
                const zoff_tier tier = world == 2 ? ZOFF_TIER_NVME : ZOFF_TIER_HOST;
                for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16})
                    all.add({stage, tier, dtype, world, dtype == ZOFF_F32 ? 1u : 3u, nullptr, 3000, owner, ratio});
            }
        }
        if (owner > IN_FILES)
            all.add({3, ZOFF_TIER_NVME, ZOFF_BF16, 4, 1, nullptr, 3000, owner, 0.5, false, 2});
    }
    for (weights owner : {OF_PROGRAM, ON_DEVICE, REACHED, IN_DRAM, IN_FILES, DRAM_TO_DEVICE, KEPT_ON_REACHED}) {
        for (unsigned stage : {0u, 1u, 3u}) {
            for (zoff_tier tier : {ZOFF_TIER_HOST, ZOFF_TIER_NVME}) {
                const bool is_device = owner == ON_DEVICE || owner == REACHED || owner > IN_FILES;
                const double ratio = is_device && tier == ZOFF_TIER_HOST ? 0.5 : 1;
                if (owner >= IN_DRAM && stage != 3)
                    continue;
                using pair = std::pair<const char *, bool>;
                for (const auto &[moments, whole] : {pair{"bf16", false}, pair{"bf16", true}, pair{"fp32", true},
                                                     pair{"m8v16", false}, pair{"q8", false}, pair{"q8", true}}) {
                    all.add({stage, tier, ZOFF_BF16, 2 + stage % 2, 1 + stage % 2 * 2, nullptr, 3000, owner, ratio, false, 1,
                             moments, whole});
                }
            }
        }
    }
    all.corner({2, ZOFF_TIER_HOST, ZOFF_BF16, 3, 1, nullptr, 1u << 20, REACHED, 0.5});
    all.corner({1, ZOFF_TIER_HOST, ZOFF_F32, 3, 2, "bf16", 3000, REACHED, 0.5});
    for (unsigned world : {1u, 3u, 4u}) {
        all.corner({0, ZOFF_TIER_HOST, ZOFF_F32, world, 3, nullptr, 3000, OF_PROGRAM, 1, true});
        all.corner({2, ZOFF_TIER_NVME, ZOFF_BF16, world, 1, nullptr, 3000, OF_PROGRAM, 1, true});
    }
    all.corner({3, ZOFF_TIER_HOST, ZOFF_BF16, 3, 1, nullptr, 3000, IN_FILES, 1, true});
    all.corner({2, ZOFF_TIER_HOST, ZOFF_F16, 3, 3, nullptr, 3000, REACHED, 0.5, true});
    for (weights owner : {IN_DRAM, IN_FILES}) {
        for (unsigned stage : {0u, 1u, 3u}) {
            for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16}) {
                for (unsigned world : {1u, 2u, 3u, 4u})
                    all.add({stage, ZOFF_TIER_HOST, dtype, world, 1, nullptr, 3000, owner});
            }
        }
        all.add({3, ZOFF_TIER_NVME, ZOFF_F16, 2, 3, nullptr, 3000, owner});
        all.add({3, ZOFF_TIER_NVME, ZOFF_BF16, 4, 3, nullptr, 1024, owner});
    }
    for (weights owner :
         {DRAM_TO_DEVICE, FILES_TO_DEVICE, KEPT_ON_DEVICE, DRAM_TO_REACHED, FILES_TO_REACHED, KEPT_ON_REACHED}) {
        for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16}) {
            for (unsigned world : {1u, 2u, 3u, 4u}) {
                for (unsigned accumulation : {1u, 3u})
                    all.add({3, ZOFF_TIER_HOST, dtype, world, accumulation, nullptr, 3000, owner});
            }
        }
    }
    for (weights owner : {IN_DRAM, IN_FILES, DRAM_TO_DEVICE, FILES_TO_DEVICE, KEPT_ON_DEVICE, DRAM_TO_REACHED, FILES_TO_REACHED,
                          KEPT_ON_REACHED}) {
        for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16}) {
            for (auto [world, group] : {std::pair{4u, 2u}, std::pair{6u, 3u}}) {
                for (unsigned accumulation : {1u, 3u})
                    all.add({3, ZOFF_TIER_HOST, dtype, world, accumulation, nullptr, 3000, owner, 1, false, group});
            }
        }
    }
    const auto is_refused = [](unsigned stage, unsigned world) { // see Matrices.OverNcclAreRefused
        return stage > 0 && world > 1 && rank_job::is_over_nccl();
    };
    for (unsigned stage : {0u, 1u, 2u, 3u}) {
        for (zoff_tier tier : {ZOFF_TIER_HOST, ZOFF_TIER_NVME}) {
            for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
                for (unsigned world : {1u, 2u, 3u, 4u}) {
                    for (unsigned chunk : {1024u, 3000u}) {
                        if (is_refused(stage, world))
                            continue;
                        const unsigned accumulation = 1 + (stage + world) % 2 * 2;
                        all.add({stage, tier, dtype, world, accumulation, nullptr, chunk, OF_PROGRAM, 1, false, 1, "fp32",
                                 false, true});
                        if (dtype == ZOFF_BF16)
                            all.add({stage, tier, dtype, world, accumulation, nullptr, chunk, OF_PROGRAM, 1, false, 1, "bf16",
                                     chunk == 1024, true});
                    }
                }
            }
        }
    }
    for (weights owner : {ON_DEVICE, REACHED, IN_DRAM, IN_FILES, DRAM_TO_DEVICE, FILES_TO_DEVICE, KEPT_ON_DEVICE,
                          DRAM_TO_REACHED, FILES_TO_REACHED, KEPT_ON_REACHED}) {
        for (zoff_tier tier : {ZOFF_TIER_HOST, ZOFF_TIER_NVME}) {
            for (unsigned world : {1u, 2u, 3u}) {
                for (double ratio : {1.0, 0.5}) {
                    const bool is_device = is_on_device(owner);
                    if ((ratio < 1 && !is_device) || (world == 1 && owner == REACHED))
                        continue;
                    const unsigned stage = owner >= IN_DRAM ? 3 : world % 3;
                    if (is_refused(stage, world))
                        continue;
                    all.add({stage, tier, world == 3 ? ZOFF_F32 : ZOFF_BF16, world, 1 + world % 2 * 2, nullptr, 3000, owner,
                             ratio, false, 1, "fp32", false, true});
                }
            }
        }
    }
    for (weights owner : {OF_PROGRAM, ON_DEVICE, IN_DRAM, IN_FILES, DRAM_TO_DEVICE}) {
        for (unsigned stage : {0u, 1u, 2u, 3u}) {
            for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
                for (unsigned world : {1u, 2u, 3u, 4u}) {
                    for (unsigned accumulation : {1u, 3u}) {
                        const bool is_there = is_on_device(owner) && rank_job::is_over_nccl(); // sums, which are ordered
                        const bool needs_stage = (owner >= IN_DRAM && stage != 3) || is_there;
                        const bool sums = world > 1 || accumulation > 1; // otherwise there is nothing to add
                        const zoff_tier tier = (stage + world) % 2 ? ZOFF_TIER_NVME : ZOFF_TIER_HOST;
                        if (!needs_stage && sums)
                            all.add({stage, tier, dtype, world, accumulation, nullptr, 3000, owner, 1, false, 1, "fp32", false,
                                     world == 2 && owner == OF_PROGRAM && !rank_job::is_over_nccl(), true});
                    }
                }
            }
        }
    }
    for (weights owner : {OF_PROGRAM, ON_DEVICE, IN_DRAM}) { // two levels of ranks
        for (unsigned stage : {0u, 1u, 2u, 3u}) {
            for (unsigned accumulation : {1u, 3u}) {
                for (bool exact : {false, true}) {
                    const zoff_dtype dtype = exact && accumulation == 1 ? ZOFF_F32 : ZOFF_BF16;
                    if ((owner != IN_DRAM || stage == 3) && !rank_job::is_over_nccl()) {
                        all.add({stage, ZOFF_TIER_HOST, dtype, 4, accumulation, nullptr, 3000, owner, 1, false, 1, "fp32",
                                 false, false, exact, 2});
                        all.add({stage, ZOFF_TIER_NVME, dtype, 8, accumulation, nullptr, 3000, owner, 1, false, 1, "fp32",
                                 false, owner == OF_PROGRAM, exact, 4});
                    }
                }
            }
        }
    }
    all.corner({3, ZOFF_TIER_NVME, ZOFF_BF16, 8, 1, nullptr, 1u << 20, IN_DRAM, 1, false, 2}); // one bucket
    all.corner({3, ZOFF_TIER_HOST, ZOFF_BF16, 4, 1, nullptr, 1024, IN_FILES, 1, false, 4});    // one group: no second shard
}

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Matrix/RanksParity.EqualsTheReferenceOnEveryRank/", name,
        [](const cell &c) {
            return covering<cell>::values{{"stage", std::to_string(c.stage)},
                                          {"states", c.tier == ZOFF_TIER_HOST ? "host" : "nvme"},
                                          {"type", name_of(c.dtype)},
                                          {"world", std::to_string(c.world)},
                                          {"accumulation", std::to_string(c.accumulation)},
                                          {"wire", c.wire ? c.wire : "default"},
                                          {"chunk", std::to_string(c.chunk_elements)},
                                          {"weights", name_of(c.owner)},
                                          {"ratio", std::to_string((int)(c.ratio * 100))},
                                          {"over ranks", c.sums ? "sum" : "mean"},
                                          {"groups", std::to_string(c.group)},
                                          {"moments", c.moments},
                                          {"master", c.whole ? "fp32" : "auto"},
                                          {"optimizer", c.muon ? "Muon" : "AdamW"},
                                          {"sums", c.exact ? "exact" : "ordered"},
                                          {"nodes", std::to_string(c.nodes)}};
        },
        fill);
    return all;
}
INSTANTIATE_TEST_SUITE_P(Matrix, RanksParity, testing::ValuesIn(matrix().cells()),
                         [](const auto &one) { return name(one.param); });

TEST(RanksParityCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}

std::vector<zoff_optimizer_hyper> muon_groups()
{
    std::vector<zoff_optimizer_hyper> groups(2);
    for (auto &h : groups) {
        zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_MUON);
        h.lr = h.adam_lr = 0.01;
    }
    return groups;
}

TEST_P(RanksParity, EqualsTheReferenceOnEveryRank)
{
    const cell &c = GetParam();
    if (!rank_job::is_possible(c.world))
        GTEST_SKIP() << "this job has another number of ranks";
    rank_job job(c.world);
    rank_trainers all(job, 42, [&](trainer &t) {
        if (c.muon)
            add_matrices(t, c.dtype, c.dtype);
        else
            add_awkward(t, c.dtype, c.dtype);
        t.add(4100, 2, c.dtype, c.dtype, 0, false, 3); // two slices that are long enough for blocks
        for (auto &tensor : t.tensors) {
            tensor.halves = std::string(c.moments) == "bf16";
            tensor.blocks = c.moments[0] == 'm' || c.moments[0] == 'q' ? c.moments : "";
        }
        for (size_t i = 1; c.owner >= IN_DRAM && i < t.tensors.size(); i++) {
            if (i != 5)
                t.give_away(i);
            if (i != 7 && !t.tensors[i].frozen)
                t.give_away_grad(i);
        }
    });
    if (c.wire)
        all.wire = std::string(c.wire) == "bf16" ? ZOFF_BF16 : std::string(c.wire) == "fp16" ? ZOFF_F16 : ZOFF_F32;
    all.sums = c.sums;
    all.exact = c.exact;
    if (is_on_device(c.owner))
        all.use_devices(c.stage * 10 + c.world);
    if (is_reached(c.owner))
        job.reach_devices();
    all.seal(config_text(), c.chunk_elements);
    if (HasFailure())
        return;
    for (unsigned rank = 0; is_reached(c.owner) && rank < c.world; rank++) {
        if (job.is_here(rank)) { /* slots on the device: the communicator does access it */
            EXPECT_LT(0u, plan_of(all.engines[rank].get()).device_bytes);
        }
    }
    unsigned round = 0;
    for (int64_t step = 1; step <= 4; step++) {
        std::vector<zoff_step_info> infos(c.world, new_info());
        for (unsigned micro = 0; micro < c.accumulation; micro++, round++) {
            for (unsigned rank = 0; rank < c.world; rank++)
                all.weights[rank] = round % 2 ? 1.0 : (double)((round * 7 + rank * 5) % 11 + (rank == 0));
            all.backward(round, step == 2 ? 50.0f : 0.5f, step == 3 ? 0.5 : 0);
            job.on_each([&](unsigned rank) {
                all.trainers[rank]->fetch_all(all.engines[rank].get());
                all.trainers[rank]->fetch_all(all.engines[rank].get(), true);
                take(all, rank, round, &infos[rank]);
            });
        }
        const reference::result want = all.step(c.muon ? muon_groups() : config_groups(), step, 2.0);
        for (unsigned rank = 0; rank < c.world; rank++) {
            if (!job.is_here(rank))
                continue;
            EXPECT_EQ(want.norm, infos[rank].numbers.grad_norm);
            EXPECT_EQ(want.clip, infos[rank].numbers.clip_factor);
            EXPECT_EQ(step, infos[rank].t);
        }
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            for (size_t i = 0; i < t.tensors.size(); i++)
                t.tensors[i].master = all.want.tensors[i].master;
            if (!is_just_in_time(round - 1)) // otherwise expect the weights that were lent in the open step
                t.fetch_all(all.engines[rank].get(), step % 2);
            t.expect_weights();
            t.tensors = all.want.tensors;
            t.expect_states(all.engines[rank].get());
        });
        if (HasFailure())
            return;
    }
}

// 16-bit parts of odd length followed by fp32. On a device the fp32 part must still be aligned.
TEST(RanksMixed, TypesBesideOneAnother_onDeviceReached)
{
    if (!rank_job::is_possible(3))
        GTEST_SKIP() << "this job has another number of ranks";
    rank_job job(3);
    rank_trainers all(job, 42, [](trainer &t) {
        for (size_t count : {1, 3, 1025, 2049, 1}) {
            t.add(count, 1, ZOFF_BF16, ZOFF_BF16);
            t.add(count + 1, 2, ZOFF_F32, ZOFF_F32);
            t.add(count, 3, ZOFF_F16, ZOFF_F16);
        }
    });
    all.use_devices(5);
    job.reach_devices();
    all.seal("{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 2.0, "
             "\"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 3000}}",
             3000);
    for (int64_t step = 1; step <= 3; step++) {
        all.backward((unsigned)step, 0.5f);
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            for (size_t i = t.tensors.size(); i-- > 0;) {
                for (size_t slice = t.tensors[i].slices; slice-- > 0;)
                    t.hand_over(all.engines[rank].get(), i, slice);
            }
            zoff_step_info info = new_info();
            EXPECT_ZOFF_OK(zoff_step_begin(all.engines[rank].get(), nullptr));
            EXPECT_ZOFF_OK(zoff_step_wait(all.engines[rank].get(), &info));
        });
        (void)all.step(config_groups(), step, 2.0);
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            t.tensors = all.want.tensors;
            t.expect_weights();
            t.expect_states(all.engines[rank].get());
        });
    }
}

// Buckets without trained parameters have nothing to wait for. The weight of the micro-batch must not be sent before it is set.
TEST(RanksWeights, AreNotToldBeforeTheyAreSet)
{
    if (!rank_job::is_possible(2))
        GTEST_SKIP() << "this job has another number of ranks";
    rank_job job(2);
    rank_trainers all(job, 42, [](trainer &t) {
        t.add(2000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16, 0, true);
        t.give_away(1); /* frozen weights of the program are in no bucket */
    });
    all.seal("{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 2.0, "
             "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 1024}}",
             1024);
    for (int64_t step = 1; step <= 3; step++) {
        all.weights = {3.0 + (double)step, 5.0};
        all.backward((unsigned)step, 0.5f);
        job.on_each([&](unsigned rank) {
            zoff_engine *e = all.engines[rank].get();
            all.trainers[rank]->fetch_all(e);
            for (int i = 0; i < 3; i++)
                EXPECT_LE(ZOFF_OK, zoff_engine_progress(e));
            EXPECT_ZOFF_OK(zoff_grad_weight(e, all.weights[rank]));
            all.trainers[rank]->hand_over(e, 0, 0);
            zoff_step_info info = new_info();
            EXPECT_ZOFF_OK(zoff_step(e, nullptr, &info));
        });
        (void)all.step(config_groups(), step, 2.0);
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            t.tensors = all.want.tensors;
            t.expect_weights();
            t.expect_states(all.engines[rank].get());
        });
    }
}
// Each rank has its own lower halves, and the upper ones of all in its buffer of weights. A write of masters sets both at once.
TEST(RanksSplitMasters, AreReadAndWrittenByAllRanks)
{
    const unsigned world = 3;
    if (!rank_job::is_possible(world))
        GTEST_SKIP() << "this job has another number of ranks";
    for (const unsigned stage : {0u, 1u, 3u}) {
        rank_job job(world);
        rank_trainers all(job, 7, [](trainer &t) { add_awkward(t, ZOFF_BF16, ZOFF_BF16); });
        all.seal("{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0, "
                 "\"zero_optimization\": {\"stage\": " +
                     std::to_string(stage) + ", \"reduce_bucket_size\": 4096}, \"zoff\": {\"master\": \"split\"}}",
                 2048);
        std::vector<float> numbers(1000);
        for (size_t k = 0; k < numbers.size(); k++)
            numbers[k] = (float)k / 7;
        const auto expect = [&](const char *when) {
            SCOPED_TRACE(std::string(when) + ", stage " + std::to_string(stage));
            job.on_each([&](unsigned rank) {
                trainer &t = *all.trainers[rank];
                t.tensors = all.want.tensors;
                t.expect_weights();
                t.expect_states(all.engines[rank].get());
            });
        };
        job.on_each([&](unsigned rank) {
            for (zoff_param i : {3u, 8u})
                EXPECT_ZOFF_OK(
                    zoff_state_write(all.engines[rank].get(), i, ZOFF_STATE_MASTER, 10, numbers.size(), numbers.data()));
        });
        for (size_t i : {3u, 8u})
            std::copy(numbers.begin(), numbers.end(), all.want.tensors[i].master.begin() + 10);
        expect("written");
        job.on_each([&](unsigned rank) { EXPECT_ZOFF_OK(zoff_params_push(all.engines[rank].get())); });
        expect("pushed");
        job.on_each([&](unsigned rank) { EXPECT_ZOFF_OK(zoff_params_pull(all.engines[rank].get())); });
        for (auto &tensor : all.want.tensors) {
            for (auto &x : tensor.master)
                x = reference::rounded(tensor.dtype, x);
        }
        expect("pulled");
    }
}
} // namespace
