/* SPDX-License-Identifier: Apache-2.0 */
// nccl.cc: an NCCL whose ranks are threads of one process. It has the name of the real one and the functions that
// libzoff_nccl.so calls.
//
// A group of sends and receives is one function in the CUDA stream, and so is a sum. As the kernel on a GPU does, it blocks the
// stream until all partners have arrived. It enters the stream after a few polls of the communicator, as with a communicator
// that does not block.
//
// This NCCL is stricter than the real one. Communicators must be non-blocking. After every call they return ncclInProgress for
// a few polls and accept no other call in that time. A message of an unexpected length is an error, and so is memory that is
// not the device's.
//
// The first group of a communicator connects its ranks, and so does the first sum: it enters the stream only when all ranks
// have called. Sums are computed from the last rank to the first, so that no test can depend on the other order.
//
// Tests steer it through functions zoff_nccl_*(): see nccl_control.h.
#include "nccl_control.h"
#include "nccl_records.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace
{
std::mutex lock; // guards everything here

std::map<std::string, std::weak_ptr<group>> groups;

std::map<std::string, int> fails;
std::set<int> stopped;
std::map<int, std::chrono::milliseconds> delays; // delay of each rank
std::set<ncclComm *> all;
int version = NCCL_VERSION_CODE;
std::map<std::thread::id, ncclComm *> under_way; // the open group of each thread, for versions of NCCL that allow one
thread_local std::string last_error;
} // namespace

namespace
{
thread_local int depth = 0;
thread_local std::vector<batch> batches;

ncclResult_t say(ncclResult_t result, const std::string &words)
{
    last_error = words;
    return result;
}

// Call with the lock held.
bool is_failing(const char *call)
{
    const auto found = fails.find(call);
    if (found == fails.end())
        return false;
    if (found->second-- > 0)
        return false;
    fails.erase(found);
    return true;
}

#define BEGIN(call)                                                                                                            \
    std::unique_lock<std::mutex> hold(lock);                                                                                   \
    if (is_failing(call))                                                                                                      \
    return say(ncclSystemError, "a test has " call " fail")

bool is_busy(const ncclComm *c)
{
    return c->looks > 0 || c->ranks->joined < c->ranks->size || c->child ||
           (c->is_finalizing && c->ranks->finalized < c->ranks->size);
}

// All ranks have called the split in progress.
bool is_split(const ncclComm *c)
{
    size_t ranks = 0;
    for (const auto &[color, members] : c->ranks->splits[c->splits])
        ranks += members.size();
    return ranks == (size_t)c->ranks->size;
}

// A communicator enqueues nothing before its ranks are connected.
bool is_connecting(const ncclComm *c)
{
    return (c->exchanges && c->ranks->exchanging < c->ranks->size) || (c->adds && c->ranks->adding < c->ranks->size);
}

// True if this thread has a group of another communicator in progress, which forbids the call.
bool is_in_the_way(const ncclComm *c)
{
    const auto mine = under_way.find(std::this_thread::get_id());
    return mine != under_way.end() && mine->second != c;
}

void hand_in(ncclComm *c)
{
    if (version < 22700)
        under_way[std::this_thread::get_id()] = c;
}

void clear_away(const ncclComm *c)
{
    for (auto one = under_way.begin(); one != under_way.end();)
        one = one->second == c ? under_way.erase(one) : std::next(one);
}

void want_ready(const ncclComm *c)
{
    std::lock_guard<std::mutex> hold(lock);
    if (!is_busy(c) && !is_connecting(c))
        clear_away(c);
}

ncclComm *make(const std::string &id, int size, int rank, int device)
{
    auto &known = groups[id];
    auto ranks = known.lock();
    if (!ranks) {
        ranks = std::make_shared<group>();
        ranks->size = size;
        known = ranks;
    }
    auto *c = new ncclComm;
    c->ranks = ranks;
    c->id = id;
    c->rank = rank;
    c->device = device;
    ranks->joined++;
    all.insert(c);
    return c;
}

// Call with the lock held.
void send(const transfer &t, ncclComm *c, std::deque<bool> &taken)
{
    const auto delay = delays.find(c->rank);
    auto &box = c->ranks->boxes[{c->rank, t.peer}];
    taken.push_back(delay != delays.end());
    box.push_back({c, t.data, t.bytes, &taken.back(), {}, {}});
    if (delay == delays.end())
        return;
    message &m = box.back();
    m.on_the_way.assign((const char *)t.data, (const char *)t.data + t.bytes);
    m.is_taken = nullptr;
    m.arrives = std::chrono::steady_clock::now() + delay->second;
}

// Call with the lock held. Messages of this communicator that the network still has are lost with the connection.
void lose_messages(const ncclComm *c)
{
    const auto now = std::chrono::steady_clock::now();
    for (auto &[way, queue] : c->ranks->boxes) {
        const auto is_lost = [&](const message &m) { return m.from == c && !m.is_taken && m.arrives > now; };
        const auto first = std::find_if(queue.begin(), queue.end(), is_lost);
        for (auto *other : all) {
            if (first != queue.end() && other->ranks == c->ranks && other->rank == way.second)
                other->state = ncclRemoteError;
        }
        queue.erase(first, queue.end());
    }
}

// Call with the lock held. Copies all incoming messages and waits until the sent ones are taken.
void transfer_all(std::unique_lock<std::mutex> &hold, const batch &b)
{
    ncclComm *c = b.comm;
    auto &boxes = c->ranks->boxes;
    std::deque<bool> taken;
    for (const auto &t : b.transfers) {
        if (t.sends)
            send(t, c, taken);
    }
    c->ranks->changed.notify_all();
    const auto goes_on = [&](const auto &is_there) {
        while (!c->is_aborted && (stopped.count(c->rank) || !is_there()))
            c->ranks->changed.wait_for(hold, std::chrono::milliseconds(1)); // nobody tells when a delay is over
        return !c->is_aborted;
    };
    for (const auto &t : b.transfers) {
        if (t.sends)
            continue;
        auto &box = boxes[{t.peer, c->rank}];
        if (!goes_on([&] { return !box.empty() && box.front().arrives <= std::chrono::steady_clock::now(); }))
            break;
        const message m = box.front();
        box.pop_front();
        if (m.bytes == t.bytes) {
            memcpy(t.data, m.is_taken ? m.data : m.on_the_way.data(), m.bytes);
        } else {
            fprintf(stderr, "rank %d expects %zu bytes of rank %d, which has sent %zu\n", c->rank, t.bytes, t.peer, m.bytes);
            c->state = ncclInvalidUsage;
        }
        if (m.is_taken)
            *m.is_taken = true;
        c->ranks->changed.notify_all();
    }
    for (const bool &one : taken) {
        if (!goes_on([&] { return one; }))
            break;
    }
    // After an abort nobody reads this memory any more.
    for (auto &box : boxes) {
        auto &queue = box.second;
        for (auto m = queue.begin(); m != queue.end();)
            m = m->from == c && m->is_taken && c->is_aborted ? queue.erase(m) : m + 1;
    }
    c->in_streams--;
    c->ranks->changed.notify_all();
}

// Call with the lock held. Computes this rank's piece of the sum over all ranks.
void add_up(std::unique_lock<std::mutex> &hold, const batch &b)
{
    ncclComm *c = b.comm;
    const int number = ++c->sums, size = c->ranks->size;
    sum &s = c->ranks->sums[number];
    s.in.resize((size_t)size);
    s.counts.resize((size_t)size, b.count);
    s.in[(size_t)c->rank] = b.in;
    s.counts[(size_t)c->rank] = b.count;
    c->ranks->changed.notify_all();
    const auto goes_on = [&](const auto &is_there) {
        c->ranks->changed.wait(hold, [&] { return c->is_aborted || (!stopped.count(c->rank) && is_there()); });
        return !c->is_aborted;
    };
    const auto all_came = [&] { return std::count(s.in.begin(), s.in.end(), nullptr) == 0; };
    if (goes_on(all_came)) {
        if (s.counts != std::vector<size_t>((size_t)size, b.count)) {
            fprintf(stderr, "rank %d adds up %zu numbers, and others have another count\n", c->rank, b.count);
            c->state = ncclInvalidUsage;
        }
        for (size_t i = 0; i < b.count && c->state == ncclSuccess; i++) {
            const size_t at = (size_t)c->rank * b.count + i;
            float x = s.in[(size_t)size - 1][at];
            for (size_t rank = (size_t)size - 1; rank-- > 0;)
                x += s.in[rank][at];
            b.out[i] = x;
        }
        s.taken++;
        c->ranks->changed.notify_all();
        goes_on([&] { return s.taken >= size; });
    }
    // After an abort nobody reads this memory any more. Otherwise the last rank to leave frees the sum.
    if (c->is_aborted && s.taken < size)
        s.in[(size_t)c->rank] = nullptr;
    else if (++s.taken == 2 * size)
        c->ranks->sums.erase(number);
    c->in_streams--;
    c->ranks->changed.notify_all();
}

void CUDART_CB run(void *ctx)
{
    const std::unique_ptr<batch> b((batch *)ctx);
    std::unique_lock<std::mutex> hold(lock);
    if (b->transfers.empty())
        add_up(hold, *b);
    else
        transfer_all(hold, *b);
}

bool is_of_device(const void *data)
{
    struct cudaPointerAttributes about;
    return cudaPointerGetAttributes(&about, data) == cudaSuccess && about.type == cudaMemoryTypeDevice;
}

ncclResult_t add(bool sends, void *data, size_t bytes, int peer, ncclComm *c, cudaStream_t stream)
{
    if (!depth)
        return say(ncclInvalidUsage, "a send or receive outside of a group: the test's NCCL has none of these");
    if (!is_of_device(data))
        return say(ncclInvalidArgument, "memory that is not the device's");
    if (is_busy(c) || is_connecting(c) || c->state != ncclSuccess)
        return say(ncclInvalidUsage, "a communicator that is not ready");
    if (is_in_the_way(c))
        return say(ncclInvalidUsage, "this thread has another group under way");
    for (auto &b : batches) {
        if (b.comm == c) {
            b.transfers.push_back({sends, data, bytes, peer});
            return ncclSuccess;
        }
    }
    batch made = {};
    made.comm = c;
    made.stream = stream;
    made.transfers.push_back({sends, data, bytes, peer});
    batches.push_back(made);
    return ncclSuccess;
}
} // namespace

extern "C" {

/* ---- steering ---- */

void zoff_nccl_fail(const char *call, int after)
{
    std::lock_guard<std::mutex> hold(lock);
    fails[call] = after;
}

void zoff_nccl_break(int rank)
{
    std::lock_guard<std::mutex> hold(lock);
    for (auto *c : all) {
        if (c->rank == rank)
            c->state = ncclRemoteError;
    }
}

void zoff_nccl_delay(int rank, int milliseconds)
{
    std::lock_guard<std::mutex> hold(lock);
    delays[rank] = std::chrono::milliseconds(milliseconds);
}

void zoff_nccl_stop(int rank)
{
    std::lock_guard<std::mutex> hold(lock);
    stopped.insert(rank);
}

void zoff_nccl_heal(void)
{
    std::lock_guard<std::mutex> hold(lock);
    fails.clear();
    stopped.clear();
    delays.clear();
    version = NCCL_VERSION_CODE;
    for (auto *c : all)
        c->ranks->changed.notify_all();
}

void zoff_nccl_pretend(int other)
{
    std::lock_guard<std::mutex> hold(lock);
    version = other ? other : NCCL_VERSION_CODE;
}

int zoff_nccl_under_way(void)
{
    std::lock_guard<std::mutex> hold(lock);
    return is_in_the_way(nullptr);
}

int zoff_nccl_count(void)
{
    std::lock_guard<std::mutex> hold(lock);
    return (int)all.size();
}

/* ---- error texts ---- */

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSystemError    ? "unhandled system error"
           : result == ncclRemoteError  ? "remote process exited or there was a network error"
           : result == ncclInvalidUsage ? "invalid usage"
                                        : "an error of the test's NCCL";
}

const char *ncclGetLastError(ncclComm_t)
{
    return last_error.c_str();
}

ncclResult_t ncclGetVersion(int *out)
{
    std::lock_guard<std::mutex> hold(lock);
    *out = version;
    return ncclSuccess;
}

/* ---- create and destroy ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int made = 0;
    BEGIN("ncclGetUniqueId");
    const char *place = getenv("NCCL_COMM_ID");
    memset(id, 0, sizeof *id);
    if (place)
        snprintf(id->internal, sizeof id->internal, "%s", place);
    else
        snprintf(id->internal, sizeof id->internal, "group %d of the test", ++made);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    int device = 0;
    BEGIN("ncclCommInitRankConfig");
    if (config->blocking != 0 || rank < 0 || rank >= size)
        return say(ncclInvalidArgument, "a communicator that blocks, or another rank than there is");
    if (cudaGetDevice(&device) != cudaSuccess)
        return ncclUnhandledCudaError;
    if (is_in_the_way(nullptr))
        return say(ncclInvalidUsage, "this thread has another group under way");
    *comm = make(id.internal, size, rank, device);
    hand_in(*comm);
    return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config)
{
    BEGIN("ncclCommSplit");
    if (config->blocking != 0 || color < 0 || key != comm->rank || is_busy(comm) || is_in_the_way(comm) || comm->in_streams)
        return say(ncclInvalidArgument, "a split that the test's NCCL does not have");
    *made = nullptr;
    comm->color = color;
    comm->ranks->splits[++comm->splits][color].insert(comm->rank);
    comm->child = make(comm->id + "/" + std::to_string(comm->splits) + "." + std::to_string(color), comm->ranks->size,
                       comm->rank, comm->device);
    comm->made = made;
    comm->looks = LOOKS;
    hand_in(comm);
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    BEGIN("ncclCommGetAsyncError");
    if (comm->looks > 0)
        comm->looks--;
    if (comm->child && comm->looks == 0 && is_split(comm)) {
        const auto &members = comm->ranks->splits[comm->splits][comm->color];
        comm->child->ranks->size = (int)members.size();
        comm->child->rank = (int)std::distance(members.begin(), members.find(comm->rank));
        __atomic_store_n(comm->made, comm->child, __ATOMIC_RELEASE);
        comm->child = nullptr;
    }
    while (comm->looks == 0 && !is_connecting(comm) && !comm->late.empty()) {
        batch *b = comm->late.front();
        comm->late.pop_front();
        comm->in_streams++;
        if (cudaLaunchHostFunc(b->stream, run, b) == cudaSuccess)
            continue;
        comm->in_streams--;
        comm->state = ncclUnhandledCudaError;
        delete b;
    }
    if (comm->state == ncclRemoteError)
        last_error = "the test has broken the connection";
    *state = comm->state != ncclSuccess ? comm->state : is_busy(comm) || is_connecting(comm) ? ncclInProgress : ncclSuccess;
    if (*state == ncclSuccess && version >= 22600)
        clear_away(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    BEGIN("ncclCommFinalize");
    if (is_in_the_way(comm))
        return say(ncclInvalidUsage, "this thread has another group under way");
    hand_in(comm);
    comm->is_finalizing = true;
    comm->ranks->finalized++;
    comm->looks = LOOKS;
    return ncclInProgress;
}

// All functions leave the streams before the communicator is freed.
static ncclResult_t end(ncclComm_t comm)
{
    std::unique_lock<std::mutex> hold(lock);
    comm->is_aborted = true;
    comm->ranks->changed.notify_all();
    comm->ranks->changed.wait(hold, [&] { return comm->in_streams == 0; });
    for (batch *b : comm->late)
        delete b;
    if (comm->child) {
        all.erase(comm->child);
        delete comm->child;
    }
    all.erase(comm);
    clear_away(comm);
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return end(comm);
}

// The real function would hang here.
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (version >= 22200 && zoff_nccl_under_way()) {
        fprintf(stderr, "an abort in a thread that has a group under way\n");
        abort();
    }
    {
        std::lock_guard<std::mutex> hold(lock);
        lose_messages(comm);
    }
    return end(comm);
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    want_ready(comm);
    *count = comm->ranks->size;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    want_ready(comm);
    *device = comm->device;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    want_ready(comm);
    *rank = comm->rank;
    return ncclSuccess;
}

/* ---- messages ---- */

ncclResult_t ncclGroupStart()
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream)
{
    BEGIN("ncclSend");
    return add(true, (void *)data, count, peer, comm, stream);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t, int peer, ncclComm_t comm, cudaStream_t stream)
{
    BEGIN("ncclRecv");
    return add(false, data, count, peer, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream)
{
    BEGIN("ncclReduceScatter");
    if (depth)
        return say(ncclInvalidUsage, "a sum inside of a group: the test's NCCL has none of these");
    if (type != ncclFloat32 || op != ncclSum)
        return say(ncclInvalidArgument, "the test's NCCL has sums of fp32, and nothing else");
    if (!is_of_device(in) || !is_of_device(out))
        return say(ncclInvalidArgument, "memory that is not the device's");
    if (is_busy(comm) || is_connecting(comm) || comm->state != ncclSuccess)
        return say(ncclInvalidUsage, "a communicator that is not ready");
    if (is_in_the_way(comm))
        return say(ncclInvalidUsage, "this thread has another group under way");
    comm->ranks->adding += !comm->adds;
    comm->adds = true;
    auto *b = new batch;
    b->comm = comm;
    b->stream = stream;
    b->in = (const float *)in;
    b->out = (float *)out;
    b->count = count;
    comm->late.push_back(b);
    comm->looks = LOOKS;
    hand_in(comm);
    return ncclInProgress;
}

ncclResult_t ncclGroupEnd()
{
    std::vector<batch> mine;
    if (--depth)
        return ncclSuccess;
    mine.swap(batches);
    BEGIN("ncclGroupEnd");
    for (auto &b : mine) {
        b.comm->late.push_back(new batch(b));
        b.comm->looks = LOOKS;
        b.comm->ranks->exchanging += !b.comm->exchanges;
        b.comm->exchanges = true;
        hand_in(b.comm);
    }
    return mine.empty() ? ncclSuccess : ncclInProgress;
}
}
