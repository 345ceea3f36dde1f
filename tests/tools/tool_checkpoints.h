/* SPDX-License-Identifier: Apache-2.0 */
// tool_checkpoints.h: checkpoints for tests of the verbs: written and read by the library, without an engine.
#ifndef ZOFF_TESTS_TOOL_CHECKPOINTS_H
#define ZOFF_TESTS_TOOL_CHECKPOINTS_H

#include "random.h"
#include "tool_files.h"

extern "C" {
#include "cpu_adam.h"
}

namespace tool_files
{
using checkpoint_reader = zoff_test::handle<zoff_checkpoint_reader, zoff_checkpoint_reader_close>;
using checkpoint_writer = zoff_test::handle<zoff_checkpoint_writer, zoff_checkpoint_writer_close>;

enum : unsigned {
    FROZEN = 1 << ZOFF_STATE_WEIGHTS,
    MASTER = 1 << ZOFF_STATE_MASTER,
    M = 1 << ZOFF_STATE_M,
    V = 1 << ZOFF_STATE_V
};

// A parameter of a checkpoint and its masters, or its weights if it is frozen.
struct param {
    std::string name;
    std::vector<size_t> dims;
    zoff_dtype dtype = ZOFF_BF16;
    unsigned states = MASTER | M | V;
    size_t slices = 1;
    std::string slice_name, tied_to; // "": none
    std::vector<float> values;
    const char *rule = nullptr;

    size_t count() const
    {
        size_t product = 1;
        for (size_t dim : dims)
            product *= dim;
        return product;
    }
    zoff_checkpoint_param facts() const
    {
        zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
        p.name = name.c_str();
        p.slice_name = slice_name.empty() ? nullptr : slice_name.c_str();
        p.tied_to = tied_to.empty() ? nullptr : tied_to.c_str();
        p.dims = dims.data();
        p.dim_count = dims.size();
        p.count = count();
        p.slices = slices;
        p.dtype = dtype;
        p.states = states;
        p.rule = rule;
        return p;
    }
};

// Numbers of every kind: normal, subnormal in fp16, too large for fp16, infinite, NaN.
inline std::vector<float> numbers(size_t count, unsigned seed)
{
    static const float SPECIAL[] = {0.f,   -0.f,   65519.f,  65520.f,   -1e9f, 1e-7f,
                                    3e-8f, 1e-40f, INFINITY, -INFINITY, NAN,   1.00390625f};
    zoff_test::fast_random random(seed);
    std::vector<float> all(count);
    for (size_t i = 0; i < count; i++)
        all[i] = random() % 8 ? random.normal() : SPECIAL[random() % (sizeof SPECIAL / sizeof SPECIAL[0])];
    return all;
}

// The bytes of numbers as the library rounds them to weights.
inline std::string rounded(const std::vector<float> &values, zoff_dtype dtype)
{
    std::string bytes(values.size() * (dtype == ZOFF_F32 ? 4 : 2), 0);
    const zoff_cast_piece piece = {values.size(), bytes.data(), values.data(), dtype, ZOFF_F32};
    zoff_adam_cast_run(1, &piece, 1);
    return bytes;
}

// The numbers as fp32 again.
inline std::vector<float> widened(const std::string &bytes, zoff_dtype dtype)
{
    std::vector<float> values(bytes.size() / (dtype == ZOFF_F32 ? 4 : 2));
    const zoff_cast_piece piece = {values.size(), values.data(), bytes.data(), ZOFF_F32, dtype};
    zoff_adam_cast_run(1, &piece, 1);
    return values;
}

// Write a checkpoint; parameters that are not tied get numbers unless they have some.
inline void write_checkpoint(const std::string &folder, std::vector<param> &params, int64_t t = 7, const char *label = nullptr,
                             const std::map<std::string, std::string> &data = {})
{
    std::vector<zoff_checkpoint_param> facts;
    for (const param &p : params)
        facts.push_back(p.facts());
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.label = label;
    zoff_checkpoint_writer *w = nullptr;
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_open(folder.c_str(), &opts, t, facts.data(), facts.size(), nullptr, &w));
    const checkpoint_writer closes(w);
    for (size_t i = 0; i < params.size(); i++) {
        param &p = params[i];
        if (!p.tied_to.empty() || !(p.states & (MASTER | FROZEN)))
            continue;
        if (p.values.empty())
            p.values = numbers(p.count() * p.slices, (unsigned)i + 1);
        const zoff_state_kind kind = p.states & MASTER ? ZOFF_STATE_MASTER : ZOFF_STATE_WEIGHTS;
        ASSERT_ZOFF_OK(zoff_checkpoint_writer_write(w, i, kind, 0, p.values.size(), p.values.data()));
    }
    for (const auto &[name, bytes] : data)
        ASSERT_ZOFF_OK(zoff_checkpoint_writer_data(w, name.c_str(), bytes.data(), bytes.size()));
    ASSERT_ZOFF_OK(zoff_checkpoint_writer_commit(w));
}

// Read a checkpoint with its masters, or its weights where they are frozen. `moments` gets the sum of all |moments|.
inline std::vector<param> read_checkpoint(const std::string &folder, int64_t *t = nullptr, double *moments = nullptr)
{
    zoff_checkpoint_reader *r = nullptr;
    std::vector<param> params;
    EXPECT_ZOFF_OK(zoff_checkpoint_reader_open(folder.c_str(), nullptr, &r));
    const checkpoint_reader closes(r);
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    if (!r || zoff_checkpoint_reader_info(r, &info) != ZOFF_OK)
        return params;
    if (t)
        *t = info.t;
    for (size_t i = 0; i < info.param_count; i++) {
        zoff_checkpoint_param f = ZOFF_CHECKPOINT_PARAM_INIT;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_param(r, i, &f));
        param p = {f.name,
                   {f.dims, f.dims + f.dim_count},
                   f.dtype,
                   f.states,
                   f.slices,
                   f.slice_name ? f.slice_name : "",
                   f.tied_to ? f.tied_to : "",
                   std::vector<float>(f.count * f.slices)};
        const zoff_state_kind kind = p.states & MASTER ? ZOFF_STATE_MASTER : ZOFF_STATE_WEIGHTS;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_read(r, i, kind, 0, p.values.size(), p.values.data()));
        for (zoff_state_kind moment : {ZOFF_STATE_M, ZOFF_STATE_V}) {
            std::vector<float> values(p.values.size());
            if (!moments || !(f.states >> moment & 1))
                continue;
            EXPECT_ZOFF_OK(zoff_checkpoint_reader_read(r, i, moment, 0, values.size(), values.data()));
            for (float value : values)
                *moments += fabs(value);
        }
        params.push_back(p);
    }
    return params;
}

// A verb of the tool in this process: its status, and its output.
struct verb_result {
    int exit;
    std::string out, err;
};

inline verb_result run_verb(int (*verb)(int argc, char **argv), std::vector<std::string> arguments)
{
    std::vector<char *> argv;
    for (std::string &argument : arguments)
        argv.push_back(argument.data());
    argv.push_back(nullptr);
    testing::internal::CaptureStdout();
    const outcome result = run([&] { return verb((int)arguments.size(), argv.data()); });
    return {result.exit, testing::internal::GetCapturedStdout(), result.err};
}

inline verb_result run_export(std::vector<std::string> arguments)
{
    return run_verb(verb_export, std::move(arguments));
}

inline verb_result run_import(std::vector<std::string> arguments)
{
    return run_verb(verb_import_safetensors, std::move(arguments));
}

// A safetensors file, with the bytes of its tensors by name.
struct tensor {
    zoff_dtype dtype;
    std::vector<size_t> dims;
    std::string bytes;
    uint64_t begin;
};
struct file {
    std::map<std::string, tensor> tensors;
    std::map<std::string, std::string> metadata;
};

inline file read_file(const std::string &path)
{
    st_reader r = {};
    file f;
    EXPECT_EQ(EXIT_DONE, st_reader_open(&r, path.c_str(), nullptr)) << path;
    for (size_t i = 0; i < r.tensor_count; i++) {
        const st_tensor &t = r.tensors[i];
        std::string bytes(t.count * (t.dtype == ZOFF_F32 ? 4 : 2), 0);
        EXPECT_EQ(EXIT_DONE, st_reader_read(&r, &t, 0, t.count, bytes.data()));
        f.tensors[t.name] = {t.dtype, dims_of(t), bytes, t.begin};
    }
    const char *key;
    json_t *value;
    json_object_foreach(r.metadata, key, value) f.metadata[key] = json_string_value(value);
    st_reader_close(&r);
    return f;
}
} // namespace tool_files

#endif
