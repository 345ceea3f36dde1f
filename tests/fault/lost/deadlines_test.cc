/* SPDX-License-Identifier: Apache-2.0 */
// deadlines_test.cc: a disk or a device that hangs. After the communicator's timeout_seconds the call must return an error. The
// step can be finished when the disk or device works again, and an engine can be destroyed while it hangs.
#include "aio_place.h"
#include "small_engine.h"
#include "zoff_test.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string.h>
#include <unistd.h>

extern "C" {
#include "accel.h"
#include "backend_priv.h"
ssize_t __real_pwrite(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __real_pread(int fd, void *dst, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *dst, size_t bytes, off_t offset);
}

using namespace zoff_test;

namespace
{
// Blocks every thread that calls pass() while the gate is shut.
class gate
{
  public:
    void shut() { set(true); }
    void open() { set(false); }
    void pass()
    {
        std::unique_lock<std::mutex> guard(lock);
        moved.wait(guard, [&] { return !is_shut; });
    }

  private:
    void set(bool to)
    {
        const std::lock_guard<std::mutex> guard(lock);
        is_shut = to;
        moved.notify_all();
    }
    std::mutex lock;
    std::condition_variable moved;
    bool is_shut = false;
};

double limit = 0; // seconds; see measure()
enum { COUNT = 32768, CHUNKS = 8 };

// The engine keeps the weights in files, too, so most places concern both stores.
enum where { NOWHERE, AT_WRITES, AT_RECORDS, AT_READS, BEHIND_A_WRITE, AT_READS_OF_STATES, AT_READS_OF_BOTH, ON_THE_DEVICE };
gate the_gate;
std::atomic<int> shut_at{NOWHERE};
std::atomic<size_t> chunk_bytes{0}; // size of a chunk in the file of states

bool is_state_file(int fd)
{
    char path[4096] = "";
    return readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1) > 0 && strstr(path, ".states");
}

void pass(void *)
{
    the_gate.pass();
}

// True for an offset in the second chunk of the states, in either of its two copies.
bool is_second_chunk(off_t offset)
{
    const off_t records = 16384, places = static_cast<off_t>(2 * chunk_bytes);
    return offset >= records + places && offset < records + 2 * places;
}

// AT_READS_OF_STATES: reads of the second chunk of the states never end. AT_READS_OF_BOTH: then reads of weights do not end
// either. So a step has the chunk it needs first, and waits for both stores.
bool is_shut(int at, size_t bytes, off_t offset)
{
    const bool is_weights = bytes <= 2 * COUNT / CHUNKS;
    if (at == AT_READS_OF_STATES || at == AT_READS_OF_BOTH)
        return is_weights ? at == AT_READS_OF_BOTH : is_second_chunk(offset);
    return at == AT_READS;
}

double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The operation for which the call waits, as the error names it.
const char *words_for(where place)
{
    return place == AT_WRITES                               ? "the write of chunk"
           : place == AT_RECORDS                            ? "a commit record of"
           : place == AT_READS || place == AT_READS_OF_BOTH ? "the read of chunk"
                                                            : "the download of gradient 0 of layer";
}

class Deadlines : public testing::TestWithParam<where>
{
  protected:
    Deadlines() : weights(COUNT, 0x3f80), grads(COUNT, 0x3c23) { limit = 0; }
    ~Deadlines() override { clear(); }

    void clear()
    {
        shut_at = NOWHERE;
        the_gate.open();
        e.reset();
        zoff_accel_stream_close(device.get(), stream);
        stream = nullptr;
        device.reset();
        group.reset();
    }

    // On a busy machine an operation of a millisecond may take a second. So the limit is ten times the longest step measured
    // here with the gate open.
    void measure()
    {
        zoff_step_info info;
        double most = 0;
        limit = 20;
        for (int i = 0; i < 4; i++) {
            const double from = now();
            if (i == 0) {
                ASSERT_NO_FATAL_FAILURE(open());
            } else
                ASSERT_ZOFF_OK(step(&info));
            most = std::max(most, now() - from);
        }
        limit = std::min(std::max(0.5, 10 * most), 4.0);
        start_anew();
    }
    void start_anew()
    {
        clear();
        ASSERT_EQ(0, system(("rm '" + folder.path + "'/*").c_str()));
        weights.assign(COUNT, 0x3f80);
    }

    // Open an engine with DRAM for two chunks.
    void open(size_t chunks = CHUNKS)
    {
        if (!limit) {
            ASSERT_NO_FATAL_FAILURE(measure());
        }
        zoff_comm *joined = nullptr;
        zoff_comm_opts how = {};
        how.struct_size = sizeof how;
        how.timeout_seconds = limit;
        ASSERT_ZOFF_OK(zoff_comm_open(&how, &joined));
        group.reset(joined);
        if (GetParam() == ON_THE_DEVICE) {
            zoff_accel *opened = nullptr;
            ASSERT_ZOFF_OK(zoff_accel_open("emulated", 0, &opened));
            device.reset(opened);
            ASSERT_ZOFF_OK(zoff_accel_stream_open(opened, &stream));
        }
        const std::string text =
            "{\"gradient_clipping\": 0, \"zero_optimization\": {" +
            (owned ? "\"stage\": 3, \"stage3_param_persistence_threshold\": 0, \"offload_param\": {\"device\": \"nvme\", "
                     "\"max_in_cpu\": 0, \"buffer_count\": 2, \"nvme_path\": \"" +
                         folder.path + "\"}"
                   : std::string("\"stage\": 1")) +
            ", \"offload_optimizer\": {\"device\": \"nvme\", \"buffer_count\": 2, \"nvme_path\": \"" + folder.path +
            "\"}}, \"zoff\": {\"io_backend\": \"threads\", \"persist\": true}}";
        zoff_engine_opts opts = {};
        opts.chunk_elements = COUNT / chunks;
        opts.threads = 1;
        opts.comm = group.get();
        opts.accel = device.get();
        e = make_engine(text, opts);
        ASSERT_TRUE(e);
        zoff_param_desc d = {};
        d.struct_size = sizeof d;
        d.name = "layer";
        d.value = owned ? nullptr : weights.data();
        d.grad = owned ? nullptr : grads.data();
        d.engine_owned = owned;
        d.count = COUNT;
        d.dtype = ZOFF_BF16;
        ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        zoff_plan_info plan = {};
        plan.struct_size = sizeof plan;
        ASSERT_ZOFF_OK(zoff_engine_plan(e.get(), &plan));
        chunk_bytes = plan.chunk_bytes;
        if (owned) {
            ASSERT_ZOFF_OK(zoff_param_write(e.get(), 0, 0, COUNT, weights.data()));
        }
    }

    // The current weights, wherever they are.
    const std::vector<uint16_t> &now_weights()
    {
        if (owned) {
            EXPECT_ZOFF_OK(zoff_param_read(e.get(), 0, 0, COUNT, weights.data()));
        }
        return weights;
    }

    zoff_status step(zoff_step_info *info)
    {
        *info = zoff_step_info();
        info->struct_size = sizeof *info;
        void *grad;
        zoff_status status = owned ? zoff_grad_acquire(e.get(), 0, 0, stream, &grad) : ZOFF_OK;
        if (owned && status == ZOFF_OK)
            memcpy(grad, grads.data(), COUNT * sizeof grads[0]);
        status = status < 0 ? status : zoff_grad_ready(e.get(), 0, 0, stream);
        status = status < 0 ? status : zoff_step_begin(e.get(), nullptr);
        return status < 0 ? status : zoff_step_wait(e.get(), info);
    }

    // Prevent the next step from ending. An error if a busy disk hangs before that.
    zoff_status shut()
    {
        zoff_step_info info;
        the_gate.shut();
        shut_at = owned ? BEHIND_A_WRITE : GetParam();
        if (stream) {
            EXPECT_ZOFF_OK(zoff_accel_stream_call(device.get(), stream, pass, nullptr));
        }
        // The engine writes the second chunk after its last read, and then reads it for the next step.
        const zoff_status status = owned ? step(&info) : ZOFF_OK;
        if (owned)
            shut_at = AT_READS_OF_BOTH;
        return status;
    }

    // Take the second step while it cannot end. A busy disk sometimes hangs longer than the limit by itself, and the error then
    // names another transfer. In that case try again with a longer limit.
    void step_with_a_longer_limit(zoff_step_info *info)
    {
        for (int tries = 0; tries < 3 && said.find(words_for(GetParam())) == std::string::npos; tries++) {
            limit *= tries ? 4 : 1;
            ASSERT_NO_FATAL_FAILURE(start_anew());
            ASSERT_NO_FATAL_FAILURE(open());
            ASSERT_ZOFF_OK(step(info));
            if (shut() < 0)
                continue;
            const double from = now();
            failed = step(info);
            said = failed < 0 ? zoff_last_error() : "";
            EXPECT_GE(now() - from, limit);
        }
    }

    const bool owned = GetParam() == AT_READS_OF_BOTH;
    zoff_status failed = ZOFF_OK;
    std::string said;
    log_catcher log;
    scratch_folder folder;
    std::vector<uint16_t> weights, grads;
    comm group;
    accel device;
    void *stream = nullptr;
    engine e;
};

INSTANTIATE_TEST_SUITE_P(Places, Deadlines, testing::Values(AT_WRITES, AT_RECORDS, AT_READS, AT_READS_OF_BOTH, ON_THE_DEVICE),
                         [](const auto &p) {
                             return std::string(p.param == AT_WRITES          ? "writes"
                                                : p.param == AT_RECORDS       ? "records"
                                                : p.param == AT_READS         ? "reads"
                                                : p.param == AT_READS_OF_BOTH ? "both"
                                                                              : "device");
                         });

TEST_P(Deadlines, AStepThatWaitsTooLongIsAnErrorAndCanBeFinished)
{
    zoff_step_info info;
    ASSERT_NO_FATAL_FAILURE(open());
    for (int i = 0; i < 3; i++)
        ASSERT_ZOFF_OK(step(&info));
    const std::vector<uint16_t> right = now_weights();
    ASSERT_NO_FATAL_FAILURE(step_with_a_longer_limit(&info));
    EXPECT_EQ(GetParam() == ON_THE_DEVICE ? ZOFF_ERR_DEVICE : ZOFF_ERR_IO, failed) << said;
    EXPECT_NE(std::string::npos, said.find(words_for(GetParam()))) << said;
    EXPECT_NE(std::string::npos, said.find("timeout_seconds")) << said;
    if (GetParam() == ON_THE_DEVICE) // the device may still write into memory that a drop would reuse
        EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "timeout_seconds", zoff_grads_drop(e.get()));
    shut_at = NOWHERE;
    the_gate.open();
    zoff_status status = zoff_step_retry(e.get(), &info);
    for (int tries = 0; status < 0 && tries < 5; tries++) // the other transfers take their usual time
        status = zoff_step_retry(e.get(), &info);
    ASSERT_ZOFF_OK(status);
    if (!owned) {
        ASSERT_ZOFF_OK(step(&info));
    }
    EXPECT_TRUE(now_weights() == right);
    int64_t t;
    ASSERT_ZOFF_OK(zoff_step_count(e.get(), &t));
    EXPECT_EQ(3, t);
}

// A device that accepts work but reports no completion while the gate is shut.
const zoff_accel_ops *moving = nullptr;
zoff_status poll_gate(zoff_accel *accel, void *event)
{
    return shut_at == ON_THE_DEVICE ? ZOFF_PENDING : moving->event_poll(accel, event);
}

class DeadlinesOfADevice : public Deadlines
{
};
INSTANTIATE_TEST_SUITE_P(Places, DeadlinesOfADevice, testing::Values(ON_THE_DEVICE), [](const auto &) { return "device"; });

// The device accepts copies but reports no completion. A pull waits for each copy. A push continues until all windows are in
// use, and then waits for one.
TEST_P(DeadlinesOfADevice, APullOrPushThatWaitsTooLongIsAnErrorAndCanBeCalledAgain)
{
    zoff_step_info info;
    ASSERT_NO_FATAL_FAILURE(open(32));
    ASSERT_ZOFF_OK(step(&info));
    const std::vector<uint16_t> right = weights;
    moving = device->ops;
    zoff_accel_ops gated = *moving;
    gated.event_poll = poll_gate;
    for (zoff_status (*call)(zoff_engine *) : {zoff_params_pull, zoff_params_push}) {
        device->ops = &gated;
        shut_at = ON_THE_DEVICE;
        const double from = now();
        EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "timeout_seconds", call(e.get()));
        EXPECT_GE(now() - from, limit);
        shut_at = NOWHERE;
        EXPECT_ZOFF_OK(call(e.get()));
        device->ops = moving;
        ASSERT_ZOFF_OK(zoff_accel_stream_wait(device.get(), stream));
        EXPECT_TRUE(weights == right);
    }
}

// Memory that a hanging transfer may still touch is never freed, so the test runs in another process.
TEST_P(Deadlines, AnEngineIsDestroyedAllTheSame)
{
    EXPECT_EQ("", in_child([&]() -> std::string {
                  zoff_step_info info;
                  log.expect(GetParam() == ON_THE_DEVICE ? "does not finish its work" : "cannot be freed");
                  open();
                  if (!e || step(&info) < 0)
                      return zoff_last_error();
                  if (shut() >= 0 && step(&info) >= 0)
                      return "the step came through";
                  const double from = now();
                  zoff_engine_destroy(e.release());
                  const double took = now() - from;
                  if (took > 20 * limit)
                      return "destroy took " + std::to_string(took) + " s";
                  if (!log.contains(GetParam() == ON_THE_DEVICE ? "does not finish its work" : "stays open and locked"))
                      return "nothing was said about it";
                  the_gate.open(); // the transfer continues, and its memory is still valid
                  usleep(100000);
                  stream = nullptr;
                  (void)device.release();
                  return "";
              }));
}

// A wait with a limit by the kernel itself: a read of an empty pipe.
TEST(DeadlineOfARing, TheKernelEndsTheWait)
{
    int ends[2];
    void *ring = nullptr;
    char byte = 0;
    ASSERT_EQ(0, pipe(ends));
    if (zoff_aio_uring_backend.open(ends[0], 4, &ring) < 0)
        GTEST_SKIP() << zoff_last_error();
    zoff_aio_io io = {false, 0, 1, &byte};
    zoff_aio_done done = {};
    zoff_aio_uring_backend.start(ring, &io);
    const double from = now();
    ASSERT_ZOFF_OK(zoff_aio_uring_backend.wait(ring, 0.25));
    EXPECT_GE(now() - from, 0.225);
    EXPECT_EQ(0u, zoff_aio_uring_backend.reap(ring, &done, 1));
    ASSERT_EQ(1, write(ends[1], "x", 1));
    ASSERT_ZOFF_OK(zoff_aio_uring_backend.wait(ring, 10));
    ASSERT_EQ(1u, zoff_aio_uring_backend.reap(ring, &done, 1));
    EXPECT_EQ(1, done.res);
    EXPECT_EQ('x', byte);
    EXPECT_LT(now() - from, 5.0);
    zoff_aio_uring_backend.close(ring, false);
    close(ends[0]);
    close(ends[1]);
}
} // namespace

ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset)
{
    const int at = shut_at;
    if (((at == AT_WRITES && offset >= 16384) || (at == AT_RECORDS && offset < 16384)) && is_state_file(fd))
        the_gate.pass();
    if (at == BEHIND_A_WRITE && bytes > 2 * COUNT / CHUNKS && is_second_chunk(offset))
        shut_at = AT_READS_OF_STATES;
    return __real_pwrite(fd, src, bytes, offset);
}

ssize_t __wrap_pread(int fd, void *dst, size_t bytes, off_t offset)
{
    const int at = shut_at;
    if (is_shut(at, bytes, offset) && is_state_file(fd))
        the_gate.pass();
    return __real_pread(fd, dst, bytes, offset);
}
