/* SPDX-License-Identifier: Apache-2.0 */
// described_test.cc: the description beside state files gives a checkpoint its names, shapes and ties. One that is damaged, of
// another version or of other states is refused by name, and the way out that the message names works.
#include "file_bytes.h"
#include "random.h"
#include "zoff_test.h"

#include <fstream>
#include <map>

extern "C" {
#include "digest.h"
}

using namespace zoff_test;

namespace
{
class Described : public testing::Test
{
  protected:
    enum : size_t { TABLE = 60 * 50, SQUARE = 49, LAYERS = 3, BASE = 7, LONG = 4000 };

    Described() : log(), table(TABLE), table_grad(TABLE), wide(LONG), wide_grad(LONG)
    {
        fast_random random(5);
        for (auto *all : {&table, &table_grad, &wide, &wide_grad}) {
            for (float &x : *all)
                x = (float)(random() % 1000) / 100 - 5;
        }
        static const size_t wte[] = {60, 50}, square[] = {7, 7};
        for (auto &p : params)
            p = ZOFF_PARAM_DESC_INIT;
        params[0].name = "w\"t\xc3\xff\\e";
        params[0].value = table.data();
        params[0].grad = table_grad.data();
        params[0].count = TABLE;
        params[0].dims = wte;
        params[0].dim_count = 2;
        params[1].name = "layers";
        params[1].value = layers;
        params[1].grad = layers_grad;
        params[1].count = SQUARE;
        params[1].slices = LAYERS;
        params[1].dtype = ZOFF_BF16;
        params[1].dims = square;
        params[1].dim_count = 2;
        params[2].name = "base";
        params[2].value = base;
        params[2].count = BASE;
        params[2].dtype = ZOFF_F16;
        params[2].frozen = true;
        params[3] = params[0];
        params[3].name = "head";
        params[3].grad = nullptr;
        params[4].name = "wide";
        params[4].value = wide.data();
        params[4].grad = wide_grad.data();
        params[4].count = LONG;
        train();
    }
    zoff_status open(engine *out)
    {
        const std::string path = folder.file("config.json");
        std::ofstream(path) << "{\"optimizer\": {\"type\": \"AdamW\"}, \"zero_optimization\": {\"offload_optimizer\": "
                               "{\"device\": \"nvme\", \"nvme_path\": \""
                            << states.path << "\"}}, \"zoff\": {\"persist\": true, \"durability\": \"process\"}}";
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.config_path = path.c_str();
        zoff_engine *opened = nullptr;
        const zoff_status status = zoff_engine_open(&opts, params, 5, &opened);
        out->reset(opened);
        return status;
    }
    void train()
    {
        engine e;
        ASSERT_ZOFF_OK(open(&e));
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        const size_t counts[] = {TABLE, LAYERS * SQUARE, 0, 0, LONG};
        for (zoff_param p : {0u, 1u, 4u}) {
            for (zoff_state_kind k : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
                std::vector<float> values(counts[p]);
                ASSERT_ZOFF_OK(zoff_state_read(e.get(), p, k, 0, counts[p], values.data()));
                want[{p, k}] = values;
            }
        }
    }
    // Into a checkpoint of another name each time.
    zoff_status convert()
    {
        const char *folders[] = {states.path.c_str()};
        const std::string name = std::to_string(++conversions);
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.name = name.c_str();
        opts.keep = 1;
        return zoff_state_files_checkpoint(folders, 1, to.path.c_str(), &opts, nullptr, nullptr);
    }
    handle<zoff_checkpoint_reader, zoff_checkpoint_reader_close> read() const
    {
        zoff_checkpoint_reader *r = nullptr;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_open(to.path.c_str(), nullptr, &r));
        return handle<zoff_checkpoint_reader, zoff_checkpoint_reader_close>(r);
    }
    // How many elements of the checkpoint differ from the engine's.
    size_t differences() const
    {
        size_t count = 0;
        const auto r = read();
        for (const auto &[key, values] : want) {
            std::vector<float> got(values.size());
            EXPECT_ZOFF_OK(zoff_checkpoint_reader_read(r.get(), key.first, key.second, 0, got.size(), got.data()));
            for (size_t i = 0; i < got.size(); i++)
                count += got[i] != values[i];
        }
        return count;
    }
    std::string description() const { return states.file("zoff-r0.states.layout"); }
    std::string former() const { return states.file("zoff-r0.states.json"); }
    // How many complaints a scrub has, which say these words.
    size_t complaints(const std::string &words) const
    {
        const char *folder_ = states.path.c_str();
        std::vector<char> report(10000);
        uint64_t wrong = 0;
        EXPECT_ZOFF_OK(zoff_state_files_scrub(&folder_, 1, nullptr, nullptr, report.data(), report.size(), nullptr, &wrong));
        return strstr(report.data(), words.c_str()) ? (size_t)wrong : 0;
    }
    // An engine that opens the state files writes their description anew.
    void expect_mended(const std::string &good)
    {
        engine e;
        EXPECT_ZOFF_OK(open(&e));
        e.reset();
        EXPECT_TRUE(good == bytes_of(description()));
        EXPECT_ZOFF_OK(convert());
        EXPECT_EQ(0u, differences());
    }
    // Change a field of the head, and let the checksum fit.
    void write_changed(const std::string &good, size_t at, uint32_t value)
    {
        std::string changed = good;
        memcpy(&changed[at], &value, sizeof value);
        memset(&changed[48], 0, 8);
        const uint64_t sum = zoff_digest_blocks_small(changed.data(), changed.size());
        memcpy(&changed[48], &sum, sizeof sum);
        write_bytes(description(), changed);
    }

    log_catcher log;
    scratch_folder folder, states, to;
    unsigned conversions = 0;
    zoff_param_desc params[5] = {};
    std::vector<float> table, table_grad, wide, wide_grad;
    uint16_t layers[LAYERS * SQUARE] = {0x3f80, 0x4000}, layers_grad[LAYERS * SQUARE] = {0x3f80, 0x3f80}, base[BASE] = {};
    std::map<std::pair<zoff_param, zoff_state_kind>, std::vector<float>> want;
};

TEST_F(Described, NamesShapesAndTiesAreThere)
{
    ASSERT_ZOFF_OK(convert());
    const auto r = read();
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_info(r.get(), &info));
    EXPECT_EQ(1, info.t);
    EXPECT_FALSE(info.has_loss_scaler);
    ASSERT_EQ(5u, info.param_count);
    zoff_checkpoint_param p[5];
    for (size_t i = 0; i < 5; i++) {
        p[i] = ZOFF_CHECKPOINT_PARAM_INIT;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_param(r.get(), i, &p[i]));
    }
    EXPECT_STREQ("w\"t\xc3\xff\\e", p[0].name);
    EXPECT_EQ(std::vector<size_t>({60, 50}), std::vector<size_t>(p[0].dims, p[0].dims + p[0].dim_count));
    EXPECT_EQ(ZOFF_F32, p[0].dtype);
    EXPECT_EQ(7u, p[0].states);
    EXPECT_EQ((size_t)LAYERS, p[1].slices);
    EXPECT_EQ(std::vector<size_t>({7, 7}), std::vector<size_t>(p[1].dims, p[1].dims + p[1].dim_count));
    EXPECT_EQ(ZOFF_BF16, p[1].dtype);
    EXPECT_EQ(0u, p[2].states) << "frozen weights are not in state files";
    EXPECT_STREQ(p[0].name, p[3].tied_to);
    EXPECT_EQ(std::vector<size_t>({LONG}), std::vector<size_t>(p[4].dims, p[4].dims + p[4].dim_count));
    EXPECT_EQ(0u, differences());
}

// Each byte of it counts.
TEST_F(Described, AChangedByteIsRefused)
{
    const std::string good = bytes_of(description());
    for (size_t at = 0; at < good.size() && !HasFailure(); at++) {
        std::string changed = good;
        changed[at] = (char)(changed[at] ^ 1 << at % 8);
        write_bytes(description(), changed);
        const bool is_version = at >= 8 && at < 12;
        SCOPED_TRACE(at);
        EXPECT_ZOFF_FAILS(is_version ? ZOFF_ERR_UNSUPPORTED : ZOFF_ERR_CORRUPT, description(), convert());
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "An engine that opens the state files writes it anew"));
        if (at % 16 == 0) {
            EXPECT_EQ(1u, complaints(description()));
        }
    }
    expect_mended(good);
    EXPECT_EQ(0u, complaints(""));
}

TEST_F(Described, ATruncatedOneIsRefused)
{
    const std::string good = bytes_of(description());
    for (size_t bytes = 0; bytes < good.size(); bytes += bytes < 64 ? 1 : 41) {
        write_bytes(description(), good.substr(0, bytes));
        SCOPED_TRACE(bytes);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, description(), convert());
    }
    write_bytes(description(), good + good);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, description(), convert());
    expect_mended(good);
}

TEST_F(Described, OneOfOtherStatesIsRefused)
{
    const std::string good = bytes_of(description());
    for (size_t at : {12, 16, 24, 32}) { // rank, ranks, layout, cut
        SCOPED_TRACE(at);
        write_changed(good, at, 7);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "'" + description() + "' describes other states than the file beside it",
                          convert());
        EXPECT_EQ(1u, complaints("describes other states"));
    }
    expect_mended(good);
}

TEST_F(Described, OneOfANewerVersionIsRefused)
{
    const std::string good = bytes_of(description());
    write_changed(good, 8, 3);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "'" + description() + "' has version 3, and this library reads version 2",
                      convert());
    EXPECT_EQ(1u, complaints("has version 3"));
    expect_mended(good);
}

TEST_F(Described, AFileThatHasNoneIsRefused)
{
    const std::string good = bytes_of(description());
    ASSERT_EQ(0, unlink(description().c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot read '" + description(), convert());
    EXPECT_EQ(1u, complaints("cannot read"));
    expect_mended(good);
}

// The former format is of an earlier version, which is the way out.
TEST_F(Described, AFileWithTheFormerFormatIsRefused)
{
    const std::string good = bytes_of(description());
    const std::string states_before = bytes_of(states.file("zoff-r0.states"));
    ASSERT_EQ(0, unlink(description().c_str()));
    write_bytes(former(), "{\"format\": \"zoff states\", \"version\": 1}");
    const std::string words = "has its description in a former format, in '" + former() + "'";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words, convert());
    EXPECT_EQ(1u, complaints("in a former format"));
    engine e;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words, open(&e));
    EXPECT_NE(nullptr, strstr(zoff_last_error(), "zoff checkpoint reshard"));
    e.reset();
    EXPECT_TRUE(states_before == bytes_of(states.file("zoff-r0.states")));
    EXPECT_NE(0, access(description().c_str(), F_OK));
    // Without both the files begin a new run.
    ASSERT_EQ(0, unlink(former().c_str()));
    ASSERT_EQ(0, unlink(states.file("zoff-r0.states").c_str()));
    EXPECT_ZOFF_OK(open(&e));
    EXPECT_TRUE(good == bytes_of(description()));
}
} // namespace
