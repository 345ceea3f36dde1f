/* SPDX-License-Identifier: Apache-2.0 */
// memory_test.cc: the memory that a save or a load takes beside that of the engine, as the kernel counts it. It is what
// docs/MEMORY.md says: a save takes the copies that zoff_checkpoint_opts.memory allows, a load into the same chunks nothing,
// and into others 12 MiB or three units.
#include "save_fault.h"
#include "saved_run.h"

#include <fstream>

using namespace zoff_test;

namespace
{
constexpr double MIB = 1024 * 1024, SLACK = 2 * MIB;
// More units than a save has in hand at a time, so that some are left for a step that begins late.
enum { ELEMENTS = 5 << 20, CHUNK = 1 << 19 };

// Memory of this process, now and at most since reset_peak(). Files in /dev/shm do not count: they are not mapped.
double bytes_of(const char *field)
{
    std::ifstream file("/proc/self/status");
    for (std::string word; file >> word;) {
        double kib = 0;
        if (word == field && file >> kib)
            return kib * 1024;
    }
    return 0;
}

// The peak of a call, beyond the memory before it.
double peak_of(const std::function<void()> &call)
{
    std::ofstream("/proc/self/clear_refs") << "5" << std::flush;
    const double before = bytes_of("VmRSS:");
    EXPECT_LT(bytes_of("VmHWM:") - before, 2 * MIB) << "the peak is not reset";
    call();
    return bytes_of("VmHWM:") - before;
}

class SaveMemory : public testing::TestWithParam<run_shape>
{
  protected:
    static run_shape with_chunk(unsigned elements)
    {
        run_shape s = GetParam();
        s.chunk = elements;
        return s;
    }
    static void fill(trainer &t)
    {
        t.add(ELEMENTS / 2, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(ELEMENTS / 2, 1, ZOFF_BF16, ZOFF_BF16);
    }

    save_log log;
    save_fault fault;
    scratch_folder folder, states, other_states;
};

run_shape shape_of(zoff_tier tier, bool persist)
{
    run_shape s;
    s.tier = tier;
    s.persist = persist;
    return s;
}
INSTANTIATE_TEST_SUITE_P(Tiers, SaveMemory,
                         testing::Values(shape_of(ZOFF_TIER_HOST, false), shape_of(ZOFF_TIER_NVME, false),
                                         shape_of(ZOFF_TIER_NVME, true)),
                         [](const auto &p) { return name_of(p.param); });

TEST_P(SaveMemory, IsAsStated)
{
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.memory = 16 << 20;
    zoff_step_info info = new_info();
    double saved, beside, loaded, reloaded;
    {
        saved_run r(with_chunk(CHUNK), states.path, fill);
        for (int64_t t = 1; t <= 2; t++)
            r.step(t);
        saved = peak_of([&] { expect_all_ok(r.save(folder.path, opts)); });
        // A slow disk: steps copy what they can. It also holds what it has in hand until a step copies or waits: on a busy
        // machine a step may begin late. The limit is for a step that does neither.
        const bool holds = !GetParam().persist;
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        fault.before = [&](disk_call kind) {
            const auto waits = [&] {
                return holds && fault.copies == 0 && fault.waits == 0 && std::chrono::steady_clock::now() < limit;
            };
            const bool is_disk = is_library_thread() && (kind == CALL_TRANSFER || is_read(kind));
            for (int i = 0; is_disk && (i < 20 || waits()); i++)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        };
        r.backward(3);
        r.keep_gradient_of(0); // the disk is busy with the other one
        beside = peak_of([&] {
            expect_all_ok(r.begin(folder.path, opts));
            EXPECT_ZOFF_OK(r.step_on(0, &info));
            r.step(4);
            expect_all_ok(r.wait());
        });
        fault.before = nullptr;
        reloaded = peak_of([&] { expect_all_ok(r.load(folder.path, opts)); });
    }
    saved_run other(with_chunk(CHUNK / 2 + 1024), other_states.path, fill);
    other.step(1);
    loaded = peak_of([&] { expect_all_ok(other.load(folder.path, opts)); });
    printf("MiB: save %.1f, beside steps %.1f, load %.1f, load into other chunks %.1f\n", saved / MIB, beside / MIB,
           reloaded / MIB, loaded / MIB);
    if (!GetParam().persist) { // there the first update leaves the old states in their place
        EXPECT_GT(fault.copies, 0);
    }
    const uint64_t planned = plan_of(other.engine_of(0)).save_bytes; // without opts.memory: as many whole units as fit
    EXPECT_GE(64u << 20, planned);
    EXPECT_LT(60u << 20, planned);
    EXPECT_LE(saved, (double)opts.memory + SLACK);
    EXPECT_LE(beside, (double)opts.memory + SLACK);
    // Weights that are half of their masters do not fill the units of a checkpoint.
    EXPECT_LE(reloaded, (GetParam().persist ? 0 : 12 * MIB) + SLACK);
    EXPECT_LE(loaded, 12 * MIB + SLACK);
    EXPECT_GT(loaded, 4 * MIB) << "the layout is another, so there are buffers";
}

// A unit on the NVMe tier is one kind of state of a chunk. States in DRAM are written from there, but copies of the weights
// that are half of the masters are made.
TEST_P(SaveMemory, IsThreeUnitsAtLeast)
{
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.memory = 1;
    saved_run r(with_chunk(CHUNK), states.path, fill);
    r.step(1);
    const double units = (double)plan_of(r.engine_of(0)).chunk_bytes;
    const double saved = peak_of([&] { expect_all_ok(r.save(folder.path, opts)); });
    printf("MiB: save %.1f, three units %.1f\n", saved / MIB, units / MIB);
    EXPECT_LE(saved, (GetParam().tier == ZOFF_TIER_NVME ? units : 3.0 * sizeof(float) * CHUNK) + MIB);
    if (GetParam().tier == ZOFF_TIER_NVME) {
        EXPECT_GT(saved, units / 3 * 2);
    }
}
} // namespace
