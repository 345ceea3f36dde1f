/* SPDX-License-Identifier: Apache-2.0 */
// place.cc: memory of the host, of the emulated device and of a CUDA device.
#include "place.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace combinations
{
namespace
{
class host : public place
{
    void *alloc(size_t bytes) override { return calloc(bytes ? bytes : 1, 1); }
    void free(void *memory) override { ::free(memory); }
    void put(void *there, const void *here, size_t bytes) override { memcpy(there, here, bytes); }
    void get(void *here, const void *there, size_t bytes) override { memcpy(here, there, bytes); }
    void wait() override {}
};

class device : public place
{
  public:
    device(zoff_accel *opened_, void *stream_) : opened(opened_), own(stream_) {}
    ~device() override
    {
        zoff_accel_stream_close(opened, own);
        zoff_accel_close(opened);
    }
    void wait() override { (void)zoff_accel_stream_wait(opened, own); }
    zoff_accel *accel() override { return opened; }
    void *stream() override { return own; }

  protected:
    zoff_accel *opened;
    void *own;
};

// Memory of the emulated device is memory of the process. Only its streams may touch it.
class emulated : public device
{
  public:
    using device::device;
    void *alloc(size_t bytes) override { return calloc(bytes ? bytes : 1, 1); }
    void free(void *memory) override { ::free(memory); }
    void put(void *there, const void *here, size_t bytes) override
    {
        auto *c = new copy{there, malloc(bytes), bytes};
        memcpy(c->from, here, bytes);
        (void)zoff_accel_stream_call(opened, own, run, c);
    }
    void get(void *here, const void *there, size_t bytes) override
    {
        wait();
        memcpy(here, there, bytes);
    }

  private:
    struct copy {
        void *to, *from;
        size_t bytes;
    };
    static void run(void *ctx)
    {
        auto *c = static_cast<copy *>(ctx);
        memcpy(c->to, c->from, c->bytes);
        ::free(c->from);
        delete c;
    }
};

// The CUDA runtime that the plug-in has loaded. This program itself is built without CUDA.
struct runtime {
    int (*alloc)(void **, size_t);
    int (*free)(void *);
    int (*copy)(void *, const void *, size_t, int, void *);
    int (*set_device)(int);
    int (*alloc_pinned)(void **, size_t, unsigned);
    int (*free_pinned)(void *);
};

class cuda : public device
{
  public:
    cuda(zoff_accel *opened_, void *stream_, int index_, runtime r_) : device(opened_, stream_), index(index_), r(r_) {}
    void *alloc(size_t bytes) override
    {
        void *memory = nullptr;
        (void)r.set_device(index);
        if (r.alloc(&memory, bytes ? bytes : 1) != 0)
            return nullptr;
        put(memory, std::vector<char>(bytes).data(), bytes);
        return memory;
    }
    void free(void *memory) override { (void)r.free(memory); }
    void put(void *there, const void *here, size_t bytes) override
    {
        void *pinned = take_pinned(bytes);
        memcpy(pinned, here, bytes);
        move(there, pinned, bytes);
        (void)r.free_pinned(pinned);
    }
    void get(void *here, const void *there, size_t bytes) override
    {
        void *pinned = take_pinned(bytes);
        move(pinned, there, bytes);
        memcpy(here, pinned, bytes);
        (void)r.free_pinned(pinned);
    }

  private:
    [[noreturn]] static void give_up(const char *why)
    {
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    void *take_pinned(size_t bytes)
    {
        void *memory = nullptr;
        (void)r.set_device(index);
        if (r.alloc_pinned(&memory, bytes ? bytes : 1, 0) != 0)
            give_up("the trainer has no pinned memory");
        return memory;
    }
    void move(void *to, const void *from, size_t bytes)
    {
        enum { BY_ADDRESS = 4 }; // the value of cudaMemcpyDefault
        if (r.copy(to, from, bytes, BY_ADDRESS, own) != 0)
            give_up("a copy of the trainer's has failed");
        wait();
    }
    int index;
    runtime r;
};

bool open_device(const char *backend, int index, zoff_accel **out, void **out_stream, std::string *reason)
{
    if (zoff_accel_open(backend, index, out) != ZOFF_OK) {
        *reason = zoff_last_error();
        return false;
    }
    if (zoff_accel_stream_open(*out, out_stream) != ZOFF_OK) {
        *reason = zoff_last_error();
        zoff_accel_close(*out);
        return false;
    }
    return true;
}
} // namespace

std::unique_ptr<place> make_host()
{
    return std::make_unique<host>();
}

std::unique_ptr<place> make_emulated(std::string *reason)
{
    zoff_accel *opened;
    void *stream;
    if (!open_device("emulated", 0, &opened, &stream, reason))
        return nullptr;
    return std::make_unique<emulated>(opened, stream);
}

std::unique_ptr<place> make_cuda(int index, std::string *reason)
{
    zoff_accel *opened;
    void *stream;
    if (!open_device("cuda", index, &opened, &stream, reason))
        return nullptr;
    runtime r = {};
    for (const char *name : {"libcudart.so.13", "libcudart.so.12"}) {
        void *library = dlopen(name, RTLD_LAZY);
        if (!library)
            continue;
        *reinterpret_cast<void **>(&r.alloc) = dlsym(library, "cudaMalloc");
        *reinterpret_cast<void **>(&r.free) = dlsym(library, "cudaFree");
        *reinterpret_cast<void **>(&r.copy) = dlsym(library, "cudaMemcpyAsync");
        *reinterpret_cast<void **>(&r.set_device) = dlsym(library, "cudaSetDevice");
        *reinterpret_cast<void **>(&r.alloc_pinned) = dlsym(library, "cudaHostAlloc");
        *reinterpret_cast<void **>(&r.free_pinned) = dlsym(library, "cudaFreeHost");
        break;
    }
    if (!r.alloc || !r.free || !r.copy || !r.set_device || !r.alloc_pinned || !r.free_pinned) {
        *reason = "no runtime of CUDA has been loaded";
        zoff_accel_stream_close(opened, stream);
        zoff_accel_close(opened);
        return nullptr;
    }
    return std::make_unique<cuda>(opened, stream, index, r);
}
} // namespace combinations
