// SPDX-License-Identifier: Apache-2.0
/* zoff.hpp: zoff in C++14: handles that close themselves, and exceptions with the text of the error.
 *
 * A class stands for a handle and converts to its pointer, so every call of zoff.h works on it, also those without a method
 * here:
 *
 *      zoff::engine engine(opts, {zoff::param("line", weight, grad)});
 *      zoff::check(zoff_grad_ready(engine, 0, 0, nullptr));
 *      engine.step();
 *
 * An object is moved, not copied, and closes its handle at its end. Objects that a struct of options names, such as a
 * configuration or the ranks, must live longer than the engine, so declare them before it. No callback may throw: it is called
 * from C. */
#ifndef ZOFF_HPP
#define ZOFF_HPP

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include <zoff/zoff.h>

namespace zoff
{
/** The error of a call: its status, and what zoff_last_error() says. */
class error : public std::runtime_error
{
  public:
    explicit error(zoff_status status) : std::runtime_error(zoff_last_error()), its_status(status) {}
    zoff_status status() const noexcept { return its_status; }

  private:
    zoff_status its_status;
};

/** Throw the error of a call.  @return whether the call is done: false for ZOFF_PENDING */
inline bool check(zoff_status status)
{
    if (status < 0)
        throw error(status);
    return status == ZOFF_OK;
}

/** The text of a call that takes `dst`, `dst_bytes` and `out_bytes`: text([&](auto... to) { return zoff_features(to...); }) */
template <typename Call> std::string text(Call call)
{
    std::size_t bytes = 0;
    std::string found;
    do { /* the text may have grown since it was measured */
        found.resize(bytes + 1);
        check(call(&found[0], found.size(), &bytes));
    } while (bytes >= found.size());
    found.resize(bytes);
    return found;
}

/** Describe a parameter of fp32 weights. For other types set dtype and the rest of the struct. */
inline zoff_param_desc param(const char *name, float *value, float *grad, std::size_t count)
{
    zoff_param_desc desc = ZOFF_PARAM_DESC_INIT;
    desc.name = name, desc.value = value, desc.grad = grad, desc.count = count, desc.dtype = ZOFF_F32;
    return desc;
}

/** The same for containers and arrays of float, such as std::vector or std::span. */
template <typename Values, typename Grads> zoff_param_desc param(const char *name, Values &&value, Grads &&grad)
{
    if (std::end(value) - std::begin(value) != std::end(grad) - std::begin(grad))
        throw std::invalid_argument(std::string(name) + " has a gradient of another length");
    const std::size_t count = static_cast<std::size_t>(std::end(value) - std::begin(value));
    return param(name, count ? &*std::begin(value) : nullptr, count ? &*std::begin(grad) : nullptr, count);
}

/** A handle with one owner. */
template <typename T, typename Result, Result (*close)(T *)> class owner
{
  public:
    owner() = default;
    explicit owner(T *handle) : its_handle(handle) {}
    operator T *() const noexcept { return its_handle.get(); }
    T *get() const noexcept { return its_handle.get(); }
    T *release() noexcept { return its_handle.release(); }

  protected:
    struct closes {
        void operator()(T *handle) const noexcept { close(handle); }
    };
    std::unique_ptr<T, closes> its_handle;
};

/** Open a handle by a call whose last argument receives it: opened<zoff_aio>(zoff_aio_open, path, nullptr). */
template <typename T, typename Call, typename... Args> T *opened(Call call, Args... args)
{
    T *handle = nullptr;
    check(call(args..., &handle));
    return handle;
}

using accel = owner<zoff_accel, void, zoff_accel_close>;
using comm = owner<zoff_comm, void, zoff_comm_close>;
using aio = owner<zoff_aio, void, zoff_aio_close>;
using writer = owner<zoff_checkpoint_writer, void, zoff_checkpoint_writer_close>;

/** A configuration. */
class config : public owner<zoff_config, void, zoff_config_close>
{
  public:
    /** Read a ds_config file; nullptr: defaults. */
    explicit config(const char *path = nullptr) : owner(opened<zoff_config>(zoff_config_open, path)) {}
    void read_text(const std::string &json, const char *name = nullptr)
    {
        check(zoff_config_read_text(get(), json.data(), json.size(), name));
    }
    void set(const char *key, const std::string &value) { check(zoff_config_set(get(), key, value.c_str())); }
    std::string dump() const
    {
        return text([this](auto... to) { return zoff_config_dump(get(), to...); });
    }
};

/** An engine. */
class engine : public owner<zoff_engine, void, zoff_engine_destroy>
{
  public:
    /** Create an engine without parameters, to add and seal them later. */
    explicit engine(const zoff_engine_opts &opts) : owner(opened<zoff_engine>(zoff_engine_create, &opts)) {}
    /** Create an engine, add `count` parameters and seal it. */
    engine(const zoff_engine_opts &opts, const zoff_param_desc *params, std::size_t count)
        : owner(opened<zoff_engine>(zoff_engine_open_sized, &opts, params, sizeof *params, count))
    {
    }
    engine(const zoff_engine_opts &opts, std::initializer_list<zoff_param_desc> params)
        : engine(opts, params.begin(), params.size())
    {
    }
    engine(const zoff_engine_opts &opts, const std::vector<zoff_param_desc> &params)
        : engine(opts, params.data(), params.size())
    {
    }
    zoff_param add(const zoff_param_desc &param)
    {
        zoff_param index = 0;
        check(zoff_engine_add_param(get(), &param, &index));
        return index;
    }
    void seal() { check(zoff_engine_seal(get())); }
    /** Take a step. After an error zoff_step_retry() and zoff_grads_drop() go on from it. */
    zoff_step_info step(const zoff_step_args *args = nullptr)
    {
        zoff_step_info info = ZOFF_STEP_INFO_INIT;
        check(zoff_step(get(), args, &info));
        return info;
    }
    void ready(zoff_param p, std::size_t slice = 0, void *stream = nullptr) { check(zoff_grad_ready(get(), p, slice, stream)); }
    std::int64_t step_count() const
    {
        std::int64_t count = 0;
        check(zoff_step_count(get(), &count));
        return count;
    }
    /** Find a parameter by its name. */
    zoff_param find(const char *name) const
    {
        zoff_param index = 0;
        check(zoff_engine_find_param(get(), name, &index));
        return index;
    }
    void set_lr(unsigned group, double lr) { check(zoff_engine_set_lr(get(), group, lr)); }
    void push() { check(zoff_params_push(get())); }
    void pull() { check(zoff_params_pull(get())); }
    void save(const char *folder, const zoff_checkpoint_opts *opts = nullptr)
    {
        check(zoff_checkpoint_save(get(), folder, opts));
    }
    void load(const char *folder, const zoff_checkpoint_opts *opts = nullptr)
    {
        check(zoff_checkpoint_load(get(), folder, opts));
    }
    std::string stats() const
    {
        return text([this](auto... to) { return zoff_stats_print(get(), to...); });
    }
};

/** A save beside steps. Its end waits for the save, and loses its error: call wait() before, and before the engine ends. */
class checkpoint : public owner<zoff_checkpoint, zoff_status, zoff_checkpoint_wait>
{
  public:
    checkpoint(engine &e, const char *folder, const zoff_checkpoint_opts *opts = nullptr)
        : owner(opened<zoff_checkpoint>(zoff_checkpoint_begin, e.get(), folder, opts))
    {
    }
    /** Ask whether the save has ended. */
    bool poll() { return check(zoff_checkpoint_poll(get())); }
    void wait() { check(zoff_checkpoint_wait(release())); }
};

/** A checkpoint that is open for reading. */
class reader : public owner<zoff_checkpoint_reader, void, zoff_checkpoint_reader_close>
{
  public:
    explicit reader(const char *folder, const char *label = nullptr)
        : owner(opened<zoff_checkpoint_reader>(zoff_checkpoint_reader_open, folder, label))
    {
    }
    zoff_checkpoint_info info() const
    {
        zoff_checkpoint_info found = ZOFF_CHECKPOINT_INFO_INIT;
        check(zoff_checkpoint_reader_info(get(), &found));
        return found;
    }
    zoff_checkpoint_param param(std::size_t index) const
    {
        zoff_checkpoint_param found = ZOFF_CHECKPOINT_PARAM_INIT;
        check(zoff_checkpoint_reader_param(get(), index, &found));
        return found;
    }
    std::size_t find(const char *name) const
    {
        std::size_t index = 0;
        check(zoff_checkpoint_reader_find(get(), name, &index));
        return index;
    }
    /** Read a whole state of a parameter. */
    std::vector<float> read(std::size_t index, zoff_state_kind kind)
    {
        const zoff_checkpoint_param found = param(index);
        std::vector<float> values(found.count * found.slices);
        check(zoff_checkpoint_reader_read(get(), index, kind, 0, values.size(), values.data()));
        return values;
    }
};
} // namespace zoff
#endif
