// described_test.cc: the description beside state files gives a checkpoint its names, shapes and ties. A description that was
// changed is refused, or the states are right all the same: no number of it puts a state in a wrong place.
#include "file_bytes.h"
#include "random.h"
#include "zoff_test.h"

#include <fstream>
#include <map>

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
        const size_t wte[] = {60, 50}, square[] = {7, 7};
        zoff_param_desc params[5] = {};
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
        train(params);
    }
    void train(const zoff_param_desc *params)
    {
        const std::string path = folder.file("config.json");
        std::ofstream(path) << "{\"optimizer\": {\"type\": \"AdamW\"}, \"zero_optimization\": {\"offload_optimizer\": "
                               "{\"device\": \"nvme\", \"nvme_path\": \""
                            << states.path << "\"}}, \"zoff\": {\"persist\": true, \"durability\": \"process\"}}";
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.config_path = path.c_str();
        zoff_engine *opened = nullptr;
        ASSERT_ZOFF_OK(zoff_engine_open(&opts, params, 5, &opened));
        const engine e(opened);
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
    std::string description() const { return states.file("zoff-r0.states.json"); }

    log_catcher log;
    scratch_folder folder, states, to;
    unsigned conversions = 0;
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

// One digit at a time becomes another.
TEST_F(Described, AChangedDigitPutsNoStateElsewhere)
{
    const std::string good = bytes_of(description());
    size_t refused = 0, tried = 0;
    for (size_t at = good.find("\"params\""); at < good.size(); at++) {
        if (!isdigit((unsigned char)good[at]))
            continue;
        std::string changed = good;
        changed[at] = changed[at] == '9' ? '1' : (char)(changed[at] + 1);
        write_bytes(description(), changed);
        tried++;
        const zoff_status status = convert();
        if (status != ZOFF_OK) {
            EXPECT_EQ(ZOFF_ERR_CORRUPT, status) << zoff_last_error() << "\n" << changed;
            refused++;
        } else {
            EXPECT_EQ(0u, differences()) << changed;
        }
    }
    write_bytes(description(), good);
    EXPECT_GT(tried, 50u);
    EXPECT_GT(refused, tried / 2);
    EXPECT_ZOFF_OK(convert());
}

TEST_F(Described, AForeignDescriptionIsRefused)
{
    const std::string good = bytes_of(description());
    const auto with = [&](const std::string &from, const std::string &into) {
        std::string changed = good;
        changed.replace(changed.find(from), from.size(), into);
        write_bytes(description(), changed);
    };
    with("\"version\": 1", "\"version\": 2");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "another version", convert());
    with("\"rank\": 0", "\"rank\": 1");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "describes other states", convert());
    with("\"layout\": \"", "\"layout\": \"0");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "describes other states", convert());
    with("zoff states", "other states");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "is not a description", convert());
    with("\"m\", ", "");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "does not fit its parameter", convert());
    for (const char *former : {"q8", "m8v16"}) {
        with("\"states\": [", std::string("\"moments\": \"") + former + "\", \"states\": [");
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "has moments in 8 bits in a former format, whose bytes mean other numbers now",
                          convert());
    }
    with("\"states\": [", "\"moments\": \"q8.4\", \"states\": [");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "a format that this library does not know", convert());
    write_bytes(description(), good.substr(0, good.size() / 2));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, description(), convert());
    write_bytes(description(), "[]");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, description(), convert());
}
} // namespace
