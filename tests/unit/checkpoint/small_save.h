// small_save.h: engines whose states are saved, and the parts of a save over them, one by one.
#ifndef ZOFF_SMALL_SAVE_H
#define ZOFF_SMALL_SAVE_H

#include "rank_job.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

extern "C" {
#include "bits.h"
#include "checkpoint_priv.h"
#include "digest.h"
}

namespace zoff_test
{
extern std::atomic<bool> refuses_threads; // checkpoint_io: no thread can be started
using archive = handle<zoff_archive, zoff_archive_close>;

// Open the newest checkpoint of a folder.
inline archive open_archive(const std::string &folder)
{
    char *chosen = nullptr;
    zoff_archive *a = nullptr;
    EXPECT_ZOFF_OK(zoff_archive_choose(folder.c_str(), "", &chosen));
    if (chosen) {
        EXPECT_ZOFF_OK(zoff_archive_open(chosen, "", &a));
    }
    zoff_base_mem_free(chosen);
    return archive(a);
}

inline std::string path_of(const zoff_archive *a, uint32_t file)
{
    char path[4096];
    zoff_archive_path(a, file, path);
    return path;
}

// Change a bit of a byte in a file, or change it back.
inline void flip_byte(const std::string &path, uint64_t offset)
{
    char byte = 0;
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_LE(0, fd);
    EXPECT_EQ(1, pread(fd, &byte, 1, (off_t)offset));
    byte = (char)(byte ^ 8);
    EXPECT_EQ(1, pwrite(fd, &byte, 1, (off_t)offset));
    close(fd);
}

inline void flip_byte(int fd, uint64_t offset)
{
    flip_byte("/proc/self/fd/" + std::to_string(fd), offset);
}

inline std::vector<char> bytes_at(const std::string &path, uint64_t offset, size_t count)
{
    std::vector<char> bytes(count);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_LE(0, fd);
    EXPECT_EQ((ssize_t)count, pread(fd, bytes.data(), count, (off_t)offset));
    close(fd);
    return bytes;
}

// Memory at a page, for units and chunks.
class pages
{
  public:
    explicit pages(size_t count) : bytes(count + ZOFF_ARCHIVE_PAGE, (char)0x5a) {}
    char *data() { return (char *)zoff_base_bits_align((size_t)bytes.data(), ZOFF_ARCHIVE_PAGE); }

  private:
    std::vector<char> bytes;
};

// Where an engine has its states and weights.
struct save_shape {
    const char *name;
    unsigned world = 1, stage = 1;
    bool nvme = false, persist = false;
    std::string weights;             // the engine's: "cpu" or "nvme"; "": the program's
    double ratio = -1;               // weights are on a device, and this share of the states is not; negative: no device
    std::string optimizer = "AdamW"; // type of the configuration
    zoff_dtype dtype = ZOFF_BF16;
    bool splits = false; // masters, where they can be
};

inline save_shape with_split_masters(save_shape s, const char *name)
{
    s.name = name;
    s.splits = true;
    return s;
}

// One engine of each route to the states.
inline std::vector<save_shape> save_shapes()
{
    return {{"host"},
            with_split_masters({"host"}, "split"),
            with_split_masters({"nvme", 1, 1, true}, "split_nvme"),
            with_split_masters({"stage3", 3, 3}, "split_stage3"),
            with_split_masters({"replicated_files", 2, 0, true}, "split_replicated_files"),
            with_split_masters({"owned", 2, 3, false, false, "cpu"}, "split_owned"),
            with_split_masters({"owned_files", 2, 3, true, false, "nvme"}, "split_owned_files"),
            {"nvme", 1, 1, true},
            {"persist", 1, 1, true, true, "", -1, "AdamW", ZOFF_F32},
            {"stage3", 3, 3},
            {"replicated", 3, 0},
            {"replicated_files", 2, 0, true},
            {"owned", 2, 3, false, false, "cpu"},
            {"owned_files", 2, 3, true, false, "nvme"},
            {"device", 2, 1, false, false, "", 0.5},
            {"device_only", 1, 0, false, false, "", 0},
            {"staged", 1, 1, true, false, "", 1},
            {"momentum_only", 1, 1, true, false, "", -1, "Lion", ZOFF_F16},
            {"stateless", 2, 1, false, false, "", -1, "SGD", ZOFF_F32},
            {"stateless_owned", 1, 3, true, false, "nvme", -1, "SGD", ZOFF_F32}};
}

inline std::string shape_name(const testing::TestParamInfo<save_shape> &p)
{
    return p.param.name;
}

inline std::string text_of(const save_shape &s, const std::string &folder)
{
    const std::string path = (folder.empty() ? "" : ", \"nvme_path\": \"" + folder + "\"") + ", \"buffer_count\": ";
    std::string zero = "\"stage\": " + std::to_string(s.stage) +
                       ", \"reduce_bucket_size\": 20000, \"offload_optimizer\": {\"device\": \"" + (s.nvme ? "nvme" : "cpu") +
                       "\", \"ratio\": " + std::to_string(s.ratio < 0 ? 1 : s.ratio) + path + "3}";
    if (!s.weights.empty())
        zero += ", \"offload_param\": {\"device\": \"" + s.weights + "\", \"max_in_cpu\": 0" + path +
                "2}, \"stage3_param_persistence_threshold\": 1023";
    return "{\"optimizer\": {\"type\": \"" + s.optimizer +
           "\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0, \"zero_optimization\": {" + zero +
           "}, \"zoff\": {\"master\": \"" + (s.splits ? "split" : "fp32") +
           "\", \"persist\": " + (s.persist ? "true" : "false") + ", \"durability\": \"process\"}}";
}

// The ranks of a shape, with awkward tensors. The gradients of a step depend on its number and the rank only.
class save_ranks
{
  public:
    save_ranks(const save_shape &s_, const std::string &folder, unsigned chunk = 2048)
        : s(s_), job(s.world), all(job, 42, [this](trainer &t) {
              add_awkward(t, s.dtype, s.dtype);
              for (size_t i = 1; !s.weights.empty() && i < t.tensors.size(); i++) {
                  if (i != 5)
                      t.give_away(i);
              }
          })
    {
        if (s.ratio >= 0)
            all.use_devices(0);
        if (s.ratio >= 0 && s.world > 1)
            job.reach_devices();
        all.seal(text_of(s, folder), chunk);
    }

    zoff_engine *engine_of(unsigned rank) const { return all.engines[rank].get(); }

    void step(unsigned number)
    {
        all.backward(number, 0.5f);
        job.on_each([&](unsigned rank) {
            trainer &mine = *all.trainers[rank];
            mine.fetch_all(engine_of(rank));
            mine.hand_over_all(engine_of(rank));
            EXPECT_ZOFF_OK(zoff_step(engine_of(rank), nullptr, nullptr));
        });
        all.forget();
    }

    // Whether the masters of a tensor are in two halves.
    bool is_split(size_t i) const
    {
        const zoff_model *m = zoff_engine_rooms_view(engine_of(0)).model;
        return zoff_model_masters_of(m, &m->params[i])->is_split;
    }
    // The bytes of a kind of pieces in a checkpoint.
    std::vector<char> saved(size_t i, unsigned kind)
    {
        if (kind != ZOFF_ARCHIVE_UPPER && !(kind == ZOFF_STATE_MASTER && is_split(i)))
            return state(i, kind);
        const std::vector<char> numbers = state(i, ZOFF_STATE_MASTER);
        std::vector<uint16_t> high(numbers.size() / 4), low(high.size());
        zoff_cast_piece cast = {};
        cast.count = high.size();
        cast.dst = high.data();
        cast.dst_dtype = ZOFF_BF16;
        cast.src = numbers.data();
        cast.src_dtype = ZOFF_F32;
        cast.low = low.data();
        zoff_adam_cast_run(1, &cast, 1);
        const char *from = (const char *)(kind == ZOFF_ARCHIVE_UPPER ? high : low).data();
        return std::vector<char>(from, from + 2 * high.size());
    }
    // The elements of a state, as the engines return them. WEIGHTS: of a frozen tensor, from its trainer, as bytes of its type.
    std::vector<char> state(size_t i, unsigned kind)
    {
        const reference::tensor &t = all.want.tensors[i];
        trainer &mine = *all.trainers[0];
        std::vector<char> bytes(t.total() * (kind == ZOFF_STATE_WEIGHTS ? trainer::size(t.dtype) : sizeof(float)));
        if (kind != ZOFF_STATE_WEIGHTS) {
            job.on_each([&](unsigned rank) {
                std::vector<float> out(t.total());
                EXPECT_ZOFF_OK(
                    zoff_state_read(engine_of(rank), (zoff_param)i, (zoff_state_kind)kind, 0, t.total(), out.data()));
                if (rank == 0 && t.total())
                    memcpy(bytes.data(), out.data(), bytes.size());
            });
            return bytes;
        }
        for (size_t k = 0; k < t.total(); k++)
            trainer::put(bytes.data(), t.dtype, k, trainer::get(mine.value(i), t.dtype, mine.place(i, k)));
        return bytes;
    }

    const save_shape s;
    rank_job job;
    rank_trainers all;
};

// A save of one rank whose parts the test calls itself.
class small_save
{
  public:
    small_save(zoff_engine *e, const std::string &folder)
    {
        static std::atomic<unsigned> number;
        char id[ZOFF_ARCHIVE_ID_BYTES];
        snprintf(id, sizeof id, "%016x", number++);
        s.view = zoff_engine_rooms_view(e);
        s.part.fd = -1;
        pthread_mutex_init(&s.work.lock, nullptr);
        pthread_cond_init(&s.work.moved, nullptr);
        EXPECT_ZOFF_OK(zoff_archive_part_open(folder.c_str(), "", id, zoff_comm_rank(s.view.comm), &s.part));
    }
    ~small_save()
    {
        zoff_checkpoint_saver_stop(&s);
        zoff_checkpoint_saver_detach(&s);
        zoff_checkpoint_saver_close(&s);
    }
    small_save(const small_save &) = delete;

    const zoff_archive_region &region_of(const zoff_save_source &source) const { return s.part.table.regions[source.region]; }
    const zoff_archive_region &region_of(const zoff_save_unit &unit) const { return region_of(s.sources[unit.source]); }
    size_t bytes_of(const zoff_save_unit &unit) const { return zoff_archive_table_unit_bytes(&region_of(unit), unit.number); }
    uint64_t checksum_of(const zoff_archive_region &r, size_t unit) const
    {
        return s.part.table.checksums[r.first_checksum + unit];
    }

    // The bytes of a unit in the file now.
    std::vector<char> in_file(const zoff_save_unit &unit) const
    {
        const zoff_archive_region &r = region_of(unit);
        return bytes_at(s.part.path, r.offset + unit.number * r.unit, bytes_of(unit));
    }
    // Every unit of the file has the checksum of the table.
    void expect_checksums() const
    {
        for (size_t i = 0; i < s.unit_count; i++) {
            const std::vector<char> bytes = in_file(s.units[i]);
            EXPECT_EQ(checksum_of(region_of(s.units[i]), s.units[i].number),
                      zoff_digest_blocks_whole(bytes.data(), bytes.size(), 1))
                << "unit " << i;
        }
    }

    zoff_saver s = {};
};
} // namespace zoff_test

#endif
