/* SPDX-License-Identifier: Apache-2.0 */
// named_model.h: an engine over parameters that a test describes one by one, and a checkpoint that exists only as its manifest.
#ifndef ZOFF_NAMED_MODEL_H
#define ZOFF_NAMED_MODEL_H

#include "small_engine.h"

extern "C" {
#include "checkpoint_priv.h"
}

#include <deque>

namespace zoff_test
{
class named_model
{
  public:
    zoff_param_desc &add(const std::string &name, size_t count, size_t slices = 1, zoff_dtype dtype = ZOFF_BF16)
    {
        names.push_back(name);
        memory.emplace_back(count * slices + 1);
        zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
        d.name = names.back().c_str();
        d.count = count;
        d.slices = slices;
        d.dtype = dtype;
        d.value = memory.back().data();
        memory.emplace_back(count * slices + 1);
        d.grad = memory.back().data();
        descs.push_back(d);
        return descs.back();
    }
    zoff_param_desc &add_frozen(const std::string &name, size_t count, size_t slices = 1, zoff_dtype dtype = ZOFF_BF16)
    {
        zoff_param_desc &d = add(name, count, slices, dtype);
        d.frozen = true;
        return d;
    }
    // Another name of parameter `owner`.
    zoff_param_desc &add_tied(const std::string &name, size_t owner)
    {
        names.push_back(name);
        descs.push_back(descs[owner]);
        descs.back().name = names.back().c_str();
        return descs.back();
    }
    void shape(std::vector<size_t> dims)
    {
        shapes.push_back(std::move(dims));
        descs.back().dims = shapes.back().data();
        descs.back().dim_count = shapes.back().size();
    }

    zoff_engine *seal(const std::string &text = config_text(""))
    {
        zoff_config *settings = nullptr;
        zoff_engine *created = nullptr;
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        EXPECT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "test.json", &settings));
        opts.config = settings;
        opts.threads = 1;
        EXPECT_ZOFF_OK(zoff_engine_create(&opts, &created));
        zoff_config_close(settings);
        for (const zoff_param_desc &d : descs)
            EXPECT_ZOFF_OK(zoff_engine_add_param(created, &d, nullptr));
        EXPECT_ZOFF_OK(zoff_engine_seal(created));
        made.reset(created);
        v = zoff_engine_engine_view(created);
        return created;
    }
    const zoff_engine_view *view() const { return &v; }

    // The manifest that a save of this engine writes, without files.
    void describe(bool skip_frozen = false)
    {
        static char folder[] = "the/checkpoint";
        forget();
        a.folder = folder;
        EXPECT_ZOFF_OK(zoff_checkpoint_describe_engine(&v, skip_frozen, &a.manifest));
    }
    void forget() { zoff_archive_manifest_free(&a.manifest); }

    ~named_model() { forget(); }
    named_model() = default;
    named_model(const named_model &) = delete;

    std::vector<zoff_param_desc> descs;
    zoff_archive a = {};
    engine made;

  private:
    std::deque<std::string> names;
    std::deque<std::vector<float>> memory;
    std::deque<std::vector<size_t>> shapes;
    zoff_engine_view v = {};
};
} // namespace zoff_test

#endif
