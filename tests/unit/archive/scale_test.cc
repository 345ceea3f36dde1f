/* SPDX-License-Identifier: Apache-2.0 */
// scale_test.cc: 100,000 parameters: nothing takes memory or time beyond their number. The times are printed, not compared.
#include "memory_count.h"
#include "sample.h"

#include <time.h>

using namespace zoff_test;

namespace
{
double seconds()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// Run a step, print its time and memory, and return the memory.
size_t measure(const char *what, const std::function<void()> &call)
{
    long left = 0;
    const double start = seconds();
    const size_t memory = memory_of(call, &left);
    printf("%-24s %6.3f s, at most %6.1f MiB\n", what, seconds() - start, (double)memory / (1 << 20));
    return memory;
}
} // namespace

TEST(scale, has_room_for_100000_parameters)
{
    const size_t count = 100000;
    scratch_folder scratch;
    std::vector<std::string> names(count);
    std::vector<zoff_checkpoint_param> params(count);
    for (size_t i = 0; i < count; i++) {
        names[i] = "model.layers." + std::to_string(i) + ".self_attn.q_proj.weight";
        params[i] = ZOFF_CHECKPOINT_PARAM_INIT;
        params[i].name = names[i].c_str();
        params[i].count = i % 3;
        params[i].dtype = ZOFF_BF16;
        params[i].states = 7;
    }
    for (size_t i = 2; i < count; i += 9) { // tied to the one before the one before it
        params[i].count = params[i - 2].count;
        params[i].tied_to = names[i - 2].c_str();
    }
    zoff_checkpoint_writer *w = nullptr;
    zoff_checkpoint_reader *r = nullptr;
    const float values[2] = {1, 2};
    measure("open a writer", [&] {
        ASSERT_ZOFF_OK(zoff_checkpoint_writer_open(scratch.path.c_str(), nullptr, 1, params.data(), count, nullptr, &w));
    });
    measure("write", [&] {
        for (size_t i = 0; i < count; i++) {
            for (unsigned kind = 0; kind < 3 && !params[i].tied_to; kind++)
                ASSERT_ZOFF_OK(zoff_checkpoint_writer_write(w, i, (zoff_state_kind)kind, 0, params[i].count, values));
        }
    });
    measure("commit", [&] { ASSERT_ZOFF_OK(zoff_checkpoint_writer_commit(w)); });
    zoff_checkpoint_writer_close(w);
    const std::string text = read_file(scratch.file("step-0000000001/manifest.json"));
    printf("manifest %.1f MiB\n", (double)text.size() / (1 << 20));
    const size_t parse = measure("parse", [&] {
        zoff_archive_manifest m = {};
        EXPECT_ZOFF_OK(zoff_archive_manifest_read("M", text.data(), text.size(), &m));
        zoff_archive_manifest_free(&m);
    });
    EXPECT_LE(parse, 2 * text.size());
    const size_t all =
        measure("open a reader", [&] { ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(scratch.path.c_str(), nullptr, &r)); });
    EXPECT_LE(all, 8 * text.size());
    measure("find and read", [&] {
        for (size_t i = 0; i < count; i++) {
            size_t index = 0;
            float got[2] = {0, 0};
            ASSERT_ZOFF_OK(zoff_checkpoint_reader_find(r, names[i].c_str(), &index));
            ASSERT_EQ(i, index);
            ASSERT_ZOFF_OK(zoff_checkpoint_reader_read(r, index, ZOFF_STATE_V, 0, params[i].count, got));
            ASSERT_EQ(params[i].count > 1 ? 2.0f : 0.0f, got[1]);
        }
    });
    zoff_checkpoint_reader_close(r);
}
