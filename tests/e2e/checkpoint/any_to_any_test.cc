/* SPDX-License-Identifier: Apache-2.0 */
// any_to_any_test.cc: a checkpoint of any number of ranks, stage, tier and owner of the weights is loaded by any other. Then
// masters, moments, weights and the next step equal those of a reference that was never interrupted.
#include "covering.h"
#include "rank_job.h"

using namespace zoff_test;

namespace
{
// The owner of the weights: the program, on the host or on a device; or the engine, in DRAM or in files.
enum weights { OF_PROGRAM, ON_DEVICE, REACHED, IN_DRAM, IN_FILES };

// One side: the engine that saves, or the one that loads.
struct side {
    unsigned stage;
    zoff_tier tier;
    unsigned world;
    weights owner;
    unsigned chunk_elements;
    bool persist;
    const char *moments = "fp32";
    bool whole = false; // fp32 masters also where they could be split
};

struct cell {
    side from, to;
    zoff_dtype dtype;
    bool beside; // saved while steps run
};

std::string name(const side &s)
{
    static const char *const OWNERS[] = {"program", "device", "reached", "dram", "files"};
    return "world" + std::to_string(s.world) + "_stage" + std::to_string(s.stage) +
           (s.tier == ZOFF_TIER_HOST ? "_host" : "_nvme") + "_" + OWNERS[s.owner] + "_chunk" +
           std::to_string(s.chunk_elements) + (s.persist ? "_persist" : "") +
           (std::string(s.moments) == "fp32" ? "" : std::string("_") + s.moments) + (s.whole ? "_wholeMasters" : "");
}

std::string name_of(zoff_dtype d)
{
    return d == ZOFF_F32 ? "fp32" : d == ZOFF_F16 ? "fp16" : "bf16";
}

std::string name(const cell &c)
{
    return name_of(c.dtype) + (c.beside ? "_beside_" : "_") + name(c.from) + "_to_" + name(c.to);
}

std::vector<side> sides()
{
    std::vector<side> all;
    for (unsigned world : {1u, 2u, 3u, 4u}) {
        for (unsigned stage : {0u, 1u, 2u, 3u}) {
            for (zoff_tier tier : {ZOFF_TIER_HOST, ZOFF_TIER_NVME}) {
                const unsigned chunk = (world + stage) % 3 == 0 ? 1u << 20 : (world + stage) % 3 == 1 ? 3000 : 2048;
                all.push_back({stage, tier, world, OF_PROGRAM, chunk, tier == ZOFF_TIER_NVME && (world + stage) % 2 == 0});
                if (stage == 3)
                    all.push_back({stage, tier, world, world % 2 ? IN_DRAM : IN_FILES, chunk, false});
                if (stage < 3 && world < 4)
                    all.push_back({stage, tier, world, (world + stage) % 2 && world > 1 ? REACHED : ON_DEVICE, 3000,
                                   tier == ZOFF_TIER_NVME && (world + stage) % 3 != 0});
            }
        }
    }
    for (size_t i = 1; i < all.size(); i += 3)
        all[i].moments = "bf16";
    for (size_t i = 2; i < all.size(); i += 3)
        all[i].moments = i % 2 ? "q8" : "m8v16";
    for (size_t i = 0; i < all.size(); i += 2)
        all[i].whole = i % 4 == i / 4 % 2 * 2;
    return all;
}

// Every side saves and loads, with partners that differ.
void fill(covering<cell> &cells)
{
    const std::vector<side> all = sides();
    for (size_t i = 0; i < all.size(); i++) {
        for (size_t k = 0; k < all.size(); k++) {
            const zoff_dtype dtype = (i + k) % 3 == 0 ? ZOFF_F32 : (i + k) % 3 == 1 ? ZOFF_BF16 : ZOFF_F16;
            cells.add({all[i], all[k], dtype, (i * 7 + k) % 2 == 0});
        }
    }
}

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Matrix/AnyToAny.HasTheSameStates/", [](const cell &c) { return name(c); },
        [](const cell &c) {
            auto has = [](const side &s) { return std::to_string(s.stage) + (s.tier == ZOFF_TIER_HOST ? "h" : "n"); };
            return covering<cell>::values{{"saved", has(c.from)},
                                          {"loaded", has(c.to)},
                                          {"saving world", std::to_string(c.from.world)},
                                          {"loading world", std::to_string(c.to.world)},
                                          {"saved weights", std::to_string((int)c.from.owner)},
                                          {"loaded weights", std::to_string((int)c.to.owner)},
                                          {"saved files persist", c.from.persist ? "yes" : "no"},
                                          {"loaded files persist", c.to.persist ? "yes" : "no"},
                                          {"saved moments", c.from.moments},
                                          {"loaded moments", c.to.moments},
                                          {"saved masters", c.from.whole ? "fp32" : "auto"},
                                          {"loaded masters", c.to.whole ? "fp32" : "auto"},
                                          {"type", name_of(c.dtype)},
                                          {"beside", c.beside ? "yes" : "no"}};
        },
        fill);
    return all;
}

// Ranks with their engines, and the reference.
class run
{
  public:
    run(const side &s_, zoff_dtype dtype, const std::string &states, bool muon_ = false)
        : s(s_), muon(muon_), job(s.world), all(job, 42, [&](trainer &t) {
              if (muon)
                  return add_matrices(t, dtype, dtype);
              add_awkward(t, dtype, dtype);
              t.add(4100, 2, dtype, dtype, 0, false, 3); // two slices that are long enough for blocks
              for (auto &tensor : t.tensors) {
                  tensor.halves = std::string(s.moments) == "bf16";
                  tensor.blocks = s.moments[0] == 'm' || s.moments[0] == 'q' ? s.moments : "";
              }
              for (size_t i = 1; s.owner >= IN_DRAM && i < t.tensors.size(); i++) {
                  if (i != 5)
                      t.give_away(i);
              }
          })
    {
        if (s.owner == ON_DEVICE || s.owner == REACHED)
            all.use_devices(s.stage * 10 + s.world);
        if (s.owner == REACHED)
            job.reach_devices();
        all.seal(text(states), s.chunk_elements);
    }

    std::string text(const std::string &folder) const
    {
        std::string offload = s.owner < IN_DRAM
                                  ? ""
                                  : std::string(", \"offload_param\": {\"device\": \"") +
                                        (s.owner == IN_FILES ? "nvme" : "cpu") + "\", \"nvme_path\": \"" + folder +
                                        "\", \"buffer_count\": 2, \"max_in_cpu\": 0}, "
                                        "\"stage3_param_persistence_threshold\": 1023";
        const double ratio = s.owner == REACHED || (s.owner == ON_DEVICE && s.persist) ? 0.5 : 1;
        return "{\"optimizer\": {\"type\": \"" + std::string(muon ? "Muon" : "AdamW") +
               "\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 2.0, "
               "\"zero_optimization\": {\"stage\": " +
               std::to_string(s.stage) + ", \"reduce_bucket_size\": 20000, \"offload_optimizer\": {\"device\": \"" +
               (s.tier == ZOFF_TIER_NVME ? "nvme" : "cpu") + "\", \"nvme_path\": \"" + folder +
               "\", \"ratio\": " + std::to_string(ratio) + ", \"buffer_count\": 3}" + offload + "}" +
               ", \"zoff\": {\"persist\": " + (s.persist ? "true" : "false") + ", \"moments\": \"" + s.moments +
               "\", \"master\": \"" + (s.whole ? "fp32" : "auto") + "\"}}";
    }

    void step(int64_t t)
    {
        std::fill(all.weights.begin(), all.weights.end(), 1.0);
        all.backward((unsigned)t, 0.5f, t == 3 ? 0.5 : 0);
        job.on_each([&](unsigned rank) {
            trainer &mine = *all.trainers[rank];
            zoff_engine *e = all.engines[rank].get();
            mine.fetch_all(e);
            for (auto [i, slice] : mine.present())
                mine.hand_over(e, i, slice);
            zoff_step_info info = new_info();
            EXPECT_ZOFF_OK(zoff_step_begin(e, nullptr));
            EXPECT_ZOFF_OK(zoff_step_wait(e, &info));
            EXPECT_EQ(t, info.t);
        });
        (void)all.step(groups(), t, 2.0);
    }

    void expect(const std::vector<reference::tensor> &want)
    {
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            t.tensors = want;
            t.fetch_all(all.engines[rank].get());
            t.expect_weights();
            t.expect_states(all.engines[rank].get(), groups());
        });
    }

    std::vector<zoff_optimizer_hyper> groups() const
    {
        std::vector<zoff_optimizer_hyper> own = config_groups();
        for (auto &h : own) {
            if (muon) {
                zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_MUON);
                h.lr = h.adam_lr = 0.01;
            }
        }
        return own;
    }

    const side s;
    const bool muon;
    rank_job job;
    rank_trainers all;
};

class AnyToAny : public testing::TestWithParam<cell>
{
  protected:
    void save(run &r)
    {
        r.job.on_each([&](unsigned rank) {
            zoff_engine *e = r.all.engines[rank].get();
            uint64_t mine = 100 + rank;
            zoff_checkpoint_data data[] = {{"position", &position, sizeof position, false}, {"own", &mine, sizeof mine, true}};
            zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
            opts.data = data;
            opts.data_count = 2;
            opts.memory = 1; // as few copies as possible: steps have to wait
            if (GetParam().beside)
                EXPECT_ZOFF_OK(zoff_checkpoint_begin(e, folder.path.c_str(), &opts, &saves[rank]));
            else
                EXPECT_ZOFF_OK(zoff_checkpoint_save(e, folder.path.c_str(), &opts));
        });
    }
    void finish(run &r)
    {
        r.job.on_each([&](unsigned rank) { EXPECT_ZOFF_OK(zoff_checkpoint_wait(saves[rank])); });
    }
    // The reader, which tools use, has the same numbers. It is asked for ranges that cut blocks.
    void expect_read(const std::vector<reference::tensor> &saved)
    {
        zoff_checkpoint_reader *reader = nullptr;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(folder.path.c_str(), nullptr, &reader));
        for (size_t i = 0; i < saved.size(); i++) {
            const reference::tensor &x = saved[i];
            zoff_checkpoint_param about = ZOFF_CHECKPOINT_PARAM_INIT;
            EXPECT_ZOFF_OK(zoff_checkpoint_reader_param(reader, i, &about));
            for (const auto &[kind, want] :
                 {std::pair{ZOFF_STATE_MASTER, &x.master}, {ZOFF_STATE_M, &x.m}, {ZOFF_STATE_V, &x.v}}) {
                if (!(about.states >> kind & 1))
                    continue;
                std::vector<float> have(x.total());
                for (size_t at = 0, now; at < have.size(); at += now) {
                    now = std::min(have.size() - at, (size_t)1500);
                    EXPECT_ZOFF_OK(zoff_checkpoint_reader_read(reader, i, kind, at, now, &have[at]));
                }
                EXPECT_TRUE(have.empty() || memcmp(have.data(), want->data(), have.size() * sizeof(float)) == 0)
                    << "state " << kind << " of " << x.name;
            }
        }
        zoff_checkpoint_reader_close(reader);
    }
    void load(run &r)
    {
        r.job.on_each([&](unsigned rank) {
            zoff_engine *e = r.all.engines[rank].get();
            uint64_t got = 0;
            int64_t t = 0;
            zoff_checkpoint_data data[] = {{"position", &got, sizeof got, false}};
            zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
            opts.data = data;
            opts.data_count = 1;
            EXPECT_ZOFF_OK(zoff_checkpoint_load(e, folder.path.c_str(), &opts));
            EXPECT_EQ(position, got);
            EXPECT_ZOFF_OK(zoff_step_count(e, &t));
            EXPECT_EQ(2, t);
        });
    }

    uint64_t position = 77;
    scratch_folder folder, states, other_states;
    zoff_checkpoint *saves[8] = {};
};

INSTANTIATE_TEST_SUITE_P(Matrix, AnyToAny, testing::ValuesIn(matrix().cells()),
                         [](const auto &one) { return name(one.param); });

TEST(AnyToAnyCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}

TEST_P(AnyToAny, HasTheSameStates)
{
    const cell &c = GetParam();
    std::vector<reference::tensor> saved;
    {
        run from(c.from, c.dtype, states.path);
        from.step(1);
        from.step(2);
        saved = from.all.want.tensors;
        save(from);
        if (c.beside) {
            for (int64_t t = 3; t <= 5; t++)
                from.step(t);
            finish(from);
            from.expect(from.all.want.tensors);
        }
        expect_read(saved);
        if (HasFailure())
            return;
    }
    run to(c.to, c.dtype, other_states.path);
    for (auto &t : to.all.trainers)
        t->scramble();
    load(to);
    if (HasFailure())
        return;
    for (auto &tensor : saved) {
        reference::store_moments(tensor, c.to.moments); // to the nearest; those that are stored so already stay as they are
    }
    to.expect(saved);
    for (size_t i = 0; i < saved.size(); i++) {
        to.all.want.tensors[i].master = saved[i].master;
        to.all.want.tensors[i].m = saved[i].m;
        to.all.want.tensors[i].v = saved[i].v;
        to.all.want.tensors[i].m_blocks = saved[i].m_blocks;
        to.all.want.tensors[i].v_blocks = saved[i].v_blocks;
    }
    to.step(3);
    to.expect(to.all.want.tensors);
}

// Matrices are cut by other ranks, chunks and tiers after each load, and the steps have the bits of a run that none disturbed.
TEST(AnyToAnyMuon, GoesOnWithTheSameBits)
{
    const side sides[] = {{2, ZOFF_TIER_NVME, 3, OF_PROGRAM, 2048, false},
                          {1, ZOFF_TIER_HOST, 2, OF_PROGRAM, 3000, false},
                          {0, ZOFF_TIER_NVME, 1, OF_PROGRAM, 1u << 20, true}};
    scratch_folder folder;
    std::vector<reference::tensor> undisturbed;
    int64_t t = 0;
    for (const side &one : sides) {
        SCOPED_TRACE(name(one));
        scratch_folder states;
        run r(one, ZOFF_BF16, states.path, true);
        if (t > 0) {
            for (auto &mine : r.all.trainers)
                mine->scramble();
            r.job.on_each([&](unsigned rank) {
                EXPECT_ZOFF_OK(zoff_checkpoint_load(r.all.engines[rank].get(), folder.path.c_str(), nullptr));
            });
            for (size_t i = 0; i < undisturbed.size(); i++) {
                r.all.want.tensors[i].master = undisturbed[i].master;
                r.all.want.tensors[i].m = undisturbed[i].m;
                r.all.want.tensors[i].v = undisturbed[i].v;
            }
        }
        r.expect(r.all.want.tensors);
        for (const int64_t end = t + 2; t < end && !HasFailure(); t++)
            r.step(t + 1);
        r.expect(r.all.want.tensors);
        if (HasFailure())
            return;
        undisturbed = r.all.want.tensors;
        r.job.on_each([&](unsigned rank) {
            EXPECT_ZOFF_OK(zoff_checkpoint_save(r.all.engines[rank].get(), folder.path.c_str(), nullptr));
        });
    }
}
} // namespace
