/* SPDX-License-Identifier: Apache-2.0 */
// cpp_test.cc: zoff.hpp: handles have one owner, errors are exceptions with their text, and texts are whole.
#include "cpp/zoff.hpp"
#include "zoff_test.h"

#include <array>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace
{
zoff_engine_opts plain()
{
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    return opts;
}

struct line {
    std::vector<float> weight = {1, 2, 3};
    std::array<float, 3> grad = {1, 1, 1};
    zoff_param_desc described() { return zoff::param("w", weight, grad); }
};
} // namespace

TEST(cpp, an_error_is_thrown_with_its_status_and_text)
{
    try {
        zoff::config config("no-such-file.json");
        FAIL() << "no exception";
    } catch (const zoff::error &error) {
        EXPECT_EQ(ZOFF_ERR_IO, error.status());
        EXPECT_NE(std::string::npos, std::string(error.what()).find("no-such-file.json")) << error.what();
    }
    // A constructor that fails leaves nothing behind, and the next one works.
    line a;
    EXPECT_THROW(zoff::engine(plain(), {a.described(), a.described()}), zoff::error);
    EXPECT_EQ(1, zoff::engine(plain(), {a.described()}).step().t);
}

TEST(cpp, an_engine_finds_its_parameters_and_takes_a_rate)
{
    line a, b;
    zoff::engine engine(plain(), {zoff::param("a", a.weight, a.grad), zoff::param("b", b.weight, b.grad)});
    EXPECT_EQ(1u, engine.find("b"));
    EXPECT_THROW(engine.find("c"), zoff::error);
    engine.set_lr(0, 0.5);
    EXPECT_EQ(0.5, engine.step().numbers.lr);
    EXPECT_FLOAT_EQ(0.5f, a.weight[0]); // Adam's first step is lr long
    EXPECT_THROW(engine.set_lr(0, -1), zoff::error);
}

TEST(cpp, pending_is_no_error)
{
    EXPECT_TRUE(zoff::check(ZOFF_OK));
    EXPECT_FALSE(zoff::check(ZOFF_PENDING));
    EXPECT_THROW(zoff::check(ZOFF_ERR_STATE), zoff::error);
}

TEST(cpp, a_handle_has_one_owner)
{
    static_assert(!std::is_copy_constructible<zoff::engine>::value, "a copy would be closed twice");
    static_assert(std::is_nothrow_move_constructible<zoff::config>::value, "a container moves it");
    line a;
    zoff::engine first(plain(), {a.described()});
    zoff_engine *const handle = first;
    zoff::engine second(std::move(first));
    EXPECT_EQ(nullptr, first.get());
    EXPECT_EQ(handle, second.get());
    second.step();
    // With zoff.persist only one engine may have a folder, so a handle that was not closed would be seen.
    const zoff_test::scratch_folder folder;
    zoff::config config;
    config.read_text(R"({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": ")" + folder.path +
                     R"("}}, "zoff": {"persist": true}})");
    zoff_engine_opts opts = plain();
    opts.config = config;
    for (int life = 0; life < 3; life++) {
        line again;
        zoff::engine engine(opts, {again.described()});
        EXPECT_EQ(life, engine.step_count());
        engine.push();
        engine.step();
    }
}

TEST(cpp, a_gradient_of_another_length_is_refused)
{
    std::vector<float> weight(3), grad(4), none;
    EXPECT_THROW(zoff::param("w", weight, grad), std::invalid_argument);
    EXPECT_EQ(nullptr, zoff::param("w", none, none).value);
    EXPECT_EQ(3u, zoff::param("w", weight.data(), grad.data(), 3).count);
}

TEST(cpp, texts_are_whole)
{
    zoff::config config;
    config.set("optimizer.params.lr", "0.25");
    zoff::check(zoff_config_resolve(config, 1));
    const std::string dump = config.dump();
    EXPECT_NE(std::string::npos, dump.find("0.25"));
    EXPECT_EQ('\n', dump.back());
    line a;
    EXPECT_EQ('{', zoff::engine(plain(), {a.described()}).stats().front());
    // A text that grows between its two calls.
    std::string grown = "a";
    EXPECT_EQ("aaaa", zoff::text([&](char *dst, size_t room, size_t *out_bytes) {
                  if (grown.size() < 4)
                      grown += grown;
                  snprintf(dst, room, "%s", grown.c_str());
                  *out_bytes = grown.size();
                  return ZOFF_OK;
              }));
}

TEST(cpp, saves_are_read_and_loaded)
{
    const zoff_test::scratch_folder folder;
    line a;
    zoff::engine engine(plain(), std::vector<zoff_param_desc>{a.described()});
    engine.step();
    engine.save(folder.file("at-once").c_str());
    zoff::checkpoint beside(engine, folder.file("beside").c_str());
    while (!beside.poll())
        engine.step();
    beside.wait();
    EXPECT_EQ(nullptr, beside.get());
    const std::vector<float> saved = a.weight;
    {
        zoff::checkpoint forgotten(engine, folder.file("forgotten").c_str()); // its end waits
    }
    zoff::reader reader(folder.file("forgotten").c_str());
    EXPECT_EQ(engine.step_count(), reader.info().t);
    EXPECT_EQ(saved, reader.read(reader.find("w"), ZOFF_STATE_MASTER));
    EXPECT_THROW(reader.find("x"), zoff::error);
    engine.step();
    EXPECT_NE(saved, a.weight);
    engine.load(folder.file("forgotten").c_str());
    EXPECT_EQ(saved, a.weight);
}
