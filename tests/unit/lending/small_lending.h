// small_lending.h: weights in a real store, and the context that lends them, filled in as in an engine. The bits of each
// element identify its slice, and the number of changes.
#ifndef ZOFF_SMALL_LENDING_H
#define ZOFF_SMALL_LENDING_H

#include "rank_channel.h"
#include "small_model.h"
#include "store_ptr.h"

extern "C" {
#include "lending.h"
}

#include <string.h>

namespace zoff_test
{
class small_lending
{
  public:
    // `ranks`: NULL: a single rank.
    explicit small_lending(zoff_comm *ranks = nullptr) : wire(ranks), values(parts.values.weights)
    {
        values.tier = ZOFF_TIER_HOST;
        values.slots = 4;
        l.model = &parts.m;
        l.plan = &parts.plan;
        l.values = &values;
        l.comm = ranks;
        l.channel = &wire.channel;
        l.progress = &progress;
        l.pollers.stored = &stored;
        l.pollers.reads = &reads;
        l.pollers.ranks = &others;
        l.pollers.device = &device;
        step.pump = [](void *ctx) {
            static_cast<small_lending *>(ctx)->go_on();
            return ZOFF_OK;
        };
        step.ctx = this;
        l.pollers.step = &step;
        others.timeout_seconds = -1;
        device.timeout_seconds = -1;
        EXPECT_ZOFF_OK(zoff_accel_open("host", 0, &accel));
        l.accel = accel;
        choose(wire.size() > 1);
        zoff_base_progress_add(&progress, &others);
    }
    // Ranks complete the gathers that they have planned, as engines do.
    ~small_lending()
    {
        if (l.cache.assembly.gather)
            (void)zoff_lending_param_gather_finish(&l); // a broken group completes nothing
        close();
        if (!is_borrowed)
            zoff_accel_close(accel);
    }
    small_lending(const small_lending &) = delete;

    // Set values.tier before.
    void choose(bool has_parts) { zoff_lending_sources_choose(&l, has_parts, on_device, reaches); }

    // Lend in the memory of the emulated device. `stays`: the weights are stored there, too. `given`: a device of the test,
    // which closes it after this object. Call it before open().
    void put_on_device(bool stays, zoff_accel *given = nullptr)
    {
        zoff_accel_close(accel);
        is_borrowed = given != nullptr;
        accel = given;
        if (!given) {
            EXPECT_ZOFF_OK(zoff_accel_open("emulated", 0, &accel));
        }
        l.accel = accel;
        on_device = true;
        values.stays = stays;
        zoff_base_progress_add(&progress, &device);
    }

    // Weights that are not trained: a pass needs no step.
    zoff_param add(const char *name, size_t count, size_t slices = 1, zoff_dtype dtype = ZOFF_F32)
    {
        zoff_param_desc d = describe(name, count, slices);
        d.engine_owned = d.frozen = true;
        d.dtype = dtype;
        return parts.add(d);
    }

    // Plan, and reserve memory. `replicated`: each rank has all weights.
    void open_cache(size_t chunk_elements, bool replicated = false)
    {
        parts.make_plan(chunk_elements, wire.rank(), wire.size(), replicated);
        ASSERT_ZOFF_OK(zoff_model_slices_open(&parts.m, &parts.plan));
        choose(wire.size() > 1 && !replicated);
        ASSERT_ZOFF_OK(zoff_lending_copies_open(&l));
        ASSERT_ZOFF_OK(zoff_lending_param_cache_open(&l));
        ASSERT_ZOFF_OK(zoff_lending_secondary_open(&l));
        ASSERT_ZOFF_OK(zoff_lending_secondary_connect(&l));
    }

    // DRAM for slices, as a plan has it.
    uint64_t room() const
    {
        zoff_plan_info info = ZOFF_PLAN_INFO_INIT;
        zoff_lending_param_cache_plan(&l, &parts.plan, &info);
        return info.weight_host_bytes;
    }

    void open_store()
    {
        std::vector<zoff_store_chunk> chunks;
        for (size_t i = 0; i < parts.plan.chunk_count; i++)
            chunks.push_back({parts.plan.chunks[i].weight_bytes, parts.plan.chunks[i].weight_bytes});
        const char *path = folder.path.c_str();
        zoff_store_opts opts = {};
        opts.tier = values.tier;
        opts.what = "the weights";
        opts.chunks = chunks.data();
        opts.chunk_count = chunks.size();
        opts.fill = [](void *ctx, size_t chunk, void *base) { static_cast<small_lending *>(ctx)->fill(chunk, (char *)base); };
        opts.fill_ctx = this;
        opts.threads = 1;
        opts.paths = &path;
        opts.path_count = 1;
        opts.rank = parts.plan.rank;
        opts.ranks = parts.plan.ranks;
        ASSERT_ZOFF_OK(zoff_lending_homes_open(&l, &opts, ZOFF_PINNED_STORE, &l.store));
        ASSERT_ZOFF_OK(open_found(l.store, &opts, {}, {}));
        reads.pump = [](void *store) { return zoff_offload_store_pump((zoff_store *)store); };
        reads.park = [](void *store) { return zoff_offload_store_wait((zoff_store *)store); };
        reads.is_busy = [](void *store) { return zoff_offload_store_busy((zoff_store *)store, false); };
        l.group.store = l.store;
        if (zoff_lending_secondary_is(&l))
            open_secondary(opts, chunks);
        reads.ctx = l.group.store;
        reads.timeout_seconds = -1;
        zoff_base_progress_add(&progress, &reads);
        stored = reads;
        stored.ctx = l.store;
        if (l.store != l.group.store)
            zoff_base_progress_add(&progress, &stored);
    }

    void open(size_t chunk_elements, bool replicated = false)
    {
        ASSERT_NO_FATAL_FAILURE(open_cache(chunk_elements, replicated));
        ASSERT_NO_FATAL_FAILURE(open_store());
        ASSERT_NO_FATAL_FAILURE(wire.open());
        ASSERT_ZOFF_OK(zoff_lending_sources_open(&l));
    }

    void close()
    {
        zoff_lending_param_gather_close(&l);
        zoff_lending_secondary_abandon(&l);
        zoff_model_slices_close(&parts.m);
        zoff_base_progress_remove(&progress, &reads);
        zoff_base_progress_remove(&progress, &stored);
        zoff_lending_copies_close(&l);
        zoff_offload_store_close(l.store);
        zoff_offload_store_close(l.secondary.store);
        l.store = l.group.store = nullptr;
        zoff_lending_secondary_close(&l);
        zoff_lending_param_cache_close(&l);
    }

    zoff_cached_slice &slice(size_t number) { return l.cache.slices[number]; }
    uint32_t number_of(zoff_param p, size_t slice) const { return (uint32_t)(parts.m.params[p].first_flag + slice); }

    // All weights have changed, and are in the store.
    void change()
    {
        version++;
        for (size_t chunk = 0; chunk < parts.plan.chunk_count; chunk++) {
            void *base = nullptr;
            zoff_status status;
            while ((status = claim_chunk(l.store, chunk, &base)) == ZOFF_PENDING)
                ASSERT_ZOFF_OK(zoff_offload_store_wait(l.store));
            ASSERT_ZOFF_OK(status);
            fill(chunk, (char *)base);
            ASSERT_ZOFF_OK(flush_chunk(l.store, chunk));
        }
        ASSERT_ZOFF_OK(zoff_offload_store_drain(l.store));
    }

    // Elements [first, first + count) of a slice, as they are in the store.
    std::string bits(size_t param, size_t slice, size_t first, size_t count) const
    {
        const zoff_model_param &p = parts.m.params[param];
        const size_t bytes = zoff_adam_dtype_bytes(p.dtype), number = p.first_flag + slice;
        std::string out(count * bytes, 0);
        for (size_t k = 0; k < count; k++) {
            const uint32_t element = (uint32_t)((number + 100 * version) * 100000 + first + k + 1) * 2654435761u;
            memcpy(&out[k * bytes], (const char *)&element + 4 - bytes, bytes);
        }
        return out;
    }
    std::string bits(size_t param, size_t slice) const { return bits(param, slice, 0, parts.m.params[param].count); }

    // Fetch a slice, compare it with the store, and keep it lent.
    const char *fetch(zoff_param p, size_t slice = 0)
    {
        const void *lent = nullptr;
        EXPECT_ZOFF_OK(zoff_lending_fetch_slice(&l, p, slice, nullptr, &lent));
        if (lent) {
            EXPECT_TRUE(has(lent, p, slice)) << "slice " << slice << " of parameter " << p;
        }
        return (const char *)lent;
    }
    bool has(const void *at, zoff_param p, size_t slice) const
    {
        const std::string want = bits(p, slice);
        return memcmp(at, want.data(), want.size()) == 0;
    }
    void release(zoff_param p, size_t slice = 0) { EXPECT_ZOFF_OK(zoff_lending_fetch_release(&l, p, slice, nullptr)); }
    void use(zoff_param p, size_t slice = 0)
    {
        fetch(p, slice);
        release(p, slice);
    }
    // A step: weights may have changed, and a pass is over.
    void turn()
    {
        if (l.cache.assembly.gather) {
            ASSERT_ZOFF_OK(zoff_lending_param_gather_finish(&l));
        }
        zoff_lending_param_cache_clear(&l);
        zoff_lending_prefetch_turn(&l);
    }

    uint64_t read_bytes() const { return stats().read_bytes; }
    uint64_t ahead_bytes() const { return stats().ahead_bytes; }
    // Wait for all reads in flight.
    void settle()
    {
        while (zoff_offload_store_busy(l.store, false)) {
            ASSERT_ZOFF_OK(zoff_offload_store_wait(l.store));
        }
    }
    // Borrow a chunk and give it back; returns whether it was read ahead.
    bool was_read_ahead(size_t chunk)
    {
        void *base;
        zoff_status status;
        const uint64_t before = ahead_bytes();
        while ((status = borrow_chunk(l.store, chunk, &base)) == ZOFF_PENDING)
            EXPECT_ZOFF_OK(zoff_offload_store_wait(l.store));
        EXPECT_ZOFF_OK(status);
        withdraw(l.store, chunk);
        return ahead_bytes() > before;
    }

    rank_channel wire;
    small_model parts;
    zoff_weight_values &values;
    scratch_folder folder;
    zoff_lending l = {};
    zoff_progress progress = {};
    zoff_poller stored = {}, reads = {}, others = {}, device = {}, step = {};
    zoff_accel *accel = nullptr;
    bool on_device = false;
    bool reaches = false;        // the communicator accesses the memory of the device
    bool is_borrowed = false;    // the device
    std::atomic<int> gone_on{0}; // pumps of the step
    size_t version = 0;

  private:
    void open_secondary(zoff_store_opts opts, std::vector<zoff_store_chunk> &chunks)
    {
        for (size_t i = 0; i < chunks.size(); i++)
            chunks[i] = {l.secondary.bytes[i], 0};
        opts.what = "the weights of the secondary shard";
        opts.fill = [](void *, size_t, void *) {};
        ASSERT_ZOFF_OK(zoff_lending_homes_open(&l, &opts, ZOFF_PINNED_SECONDARY, &l.secondary.store));
        ASSERT_ZOFF_OK(open_found(l.secondary.store, &opts, {}, {}));
        l.group.store = l.secondary.store;
    }
    void go_on() { gone_on++; }
    zoff_store_stats stats() const
    {
        zoff_store_stats out = {};
        zoff_offload_store_stats(l.store, &out);
        return out;
    }
    void fill(size_t chunk, char *base)
    {
        const zoff_plan_chunk &c = parts.plan.chunks[chunk];
        for (size_t i = c.first_piece; i < c.first_piece + c.piece_count; i++) {
            const zoff_plan_piece &piece = parts.plan.pieces[i];
            const std::string what = bits(piece.param, piece.slice, piece.first, piece.count);
            if (parts.m.params[piece.param].engine_owned)
                memcpy(base + piece.weight_offset, what.data(), what.size());
        }
        zoff_lending_param_cache_refresh(&l, chunk, base, true);
    }
};

// Run on all ranks at once, each with weights of its own.
inline void on_ranks(unsigned size, const std::function<void(small_lending &t, unsigned rank)> &run,
                     double timeout_seconds = 20)
{
    each_rank<small_lending>(size, run, timeout_seconds);
}
} // namespace zoff_test

#endif
