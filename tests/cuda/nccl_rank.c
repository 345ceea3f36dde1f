/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_rank.c: one rank of a group of processes that join by the launcher's variables; nccl_ranks.py starts them.
 * Arguments: the communicator ("nccl"); a case: "works", "differs" (rank 1 calls something else) or "dies" (the last rank
 * ends silently); the deadline of an operation in seconds. Exits with 77 if there is no such communicator. */
#include "comm.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MOST = 64, SKIPPED = 77 };

static unsigned rank, size;

static int complain(const char *what, const char *words)
{
    fprintf(stderr, "nccl_rank: rank %u: %s: %s\n", rank, what, words);
    return 1;
}

static zoff_status run(zoff_comm *comm, const zoff_comm_call *call)
{
    zoff_comm_work work = {0};
    const zoff_status status = zoff_comm_start(comm, call, &work);
    return status < 0 ? status : zoff_comm_wait(comm, &work);
}

/* ---- operations that succeed ---- */

static int sums(zoff_comm *comm)
{
    enum { EACH = 5 };
    double x[ZOFF_COMM_GROUP][EACH];
    zoff_comm_work works[ZOFF_COMM_GROUP][EACH] = {0};
    double want = 1;
    for (unsigned i = 1; i < size; i++)
        want += 0x1p-53; /* the order of the sum changes the last bit */
    for (unsigned i = 0; i < ZOFF_COMM_GROUP * EACH; i++) {
        const unsigned stream = (i + rank) % ZOFF_COMM_GROUP, k = i / ZOFF_COMM_GROUP; /* each rank has another order */
        x[stream][k] = rank ? 0x1p-53 : 1.0;
        const zoff_comm_call call = {
            .kind = ZOFF_COMM_SUM, .stream = (zoff_comm_stream)stream, .out = &x[stream][k], .count = 1};
        if (zoff_comm_start(comm, &call, &works[stream][k]) < 0)
            return complain("start a sum", zoff_last_error());
    }
    for (unsigned i = 0; i < ZOFF_COMM_GROUP * EACH; i++) {
        if (zoff_comm_wait(comm, &works[i / EACH][i % EACH]) < 0)
            return complain("a sum", zoff_last_error());
        if (x[i / EACH][i % EACH] != want)
            return complain("a sum", "has other bits than in rank order");
    }
    return 0;
}

static size_t bytes_of(unsigned from, unsigned to)
{
    static const size_t SIZES[] = {0, 100, 300000, (40 << 20) + 12345};
    return SIZES[(from * 2 + to) % 4];
}

static char byte_of(unsigned from, unsigned to, size_t at)
{
    return (char)(from * 7 + to * 3 + at + (at >> 9));
}

/* Pinned memory if this program itself copies between it and the device. Otherwise pageable: zoff makes the copies. */
static char *get_memory(size_t bytes, bool is_pinned)
{
    void *memory = NULL;
    if (!is_pinned)
        return calloc(bytes + 1, 1);
    return cudaHostAlloc(&memory, bytes + 1, cudaHostAllocPortable) == cudaSuccess ? memory : NULL;
}

static void put_back(char *memory, bool is_pinned)
{
    if (is_pinned)
        (void)cudaFreeHost(memory);
    else
        free(memory);
}

static bool copy(void *dst, const void *src, size_t bytes)
{
    return cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, NULL) == cudaSuccess &&
           cudaStreamSynchronize(NULL) == cudaSuccess;
}

/* Pieces of all sizes, from and to memory of the host (false) or of the device (true). */
static int exchange(zoff_comm *comm, bool in_is_device, bool out_is_device)
{
    size_t send[RANKS_MOST], receive[RANKS_MOST], sends = 0, receives = 0;
    for (unsigned other = 0; other < size; other++) {
        sends += send[other] = bytes_of(rank, other);
        receives += receive[other] = bytes_of(other, rank);
    }
    char *in = get_memory(sends, in_is_device), *out = get_memory(receives, out_is_device), *at = in;
    void *in_device = NULL, *out_device = NULL;
    if (!in || !out || cudaMalloc(&in_device, sends + 1) != cudaSuccess || cudaMalloc(&out_device, receives + 1) != cudaSuccess)
        return complain("exchange", "no memory");
    for (unsigned other = 0; other < size; other++) {
        for (size_t i = 0; i < send[other]; i++)
            *at++ = byte_of(rank, other, i);
    }
    if (in_is_device && !copy(in_device, in, sends))
        return complain("exchange", "a copy to the device");
    const zoff_comm_call call = {.kind = ZOFF_COMM_EXCHANGE,
                                 .stream = ZOFF_COMM_REDUCE,
                                 .in = in_is_device ? in_device : in,
                                 .out = out_is_device ? out_device : out,
                                 .send_bytes = send,
                                 .receive_bytes = receive};
    if (run(comm, &call) < 0)
        return complain("exchange", zoff_last_error());
    if (out_is_device && !copy(out, out_device, receives))
        return complain("exchange", "a copy from the device");
    at = out;
    for (unsigned other = 0; other < size; other++) {
        for (size_t i = 0; i < receive[other]; i++) {
            if (*at++ != byte_of(other, rank, i))
                return complain("exchange", "another byte than was sent");
        }
    }
    put_back(in, in_is_device);
    put_back(out, out_is_device);
    (void)cudaFree(in_device);
    (void)cudaFree(out_device);
    return 0;
}

static int others(zoff_comm *comm)
{
    unsigned all[RANKS_MOST] = {0};
    size_t bytes[RANKS_MOST];
    for (unsigned i = 0; i < size; i++)
        bytes[i] = sizeof all[0];
    all[rank] = rank + 100;
    const zoff_comm_call gather = {.kind = ZOFF_COMM_GATHER, .in = &all[rank], .out = all, .receive_bytes = bytes};
    if (run(comm, &gather) < 0)
        return complain("gather", zoff_last_error());
    for (unsigned i = 0; i < size; i++) {
        if (all[i] != i + 100)
            return complain("gather", "another number than that rank's");
    }
    for (unsigned root = 0; root < size; root++) {
        char text[1000];
        memset(text, rank == root ? (int)root + 1 : 0, sizeof text);
        const zoff_comm_call broadcast = {.kind = ZOFF_COMM_BROADCAST, .out = text, .count = sizeof text, .root = root};
        if (run(comm, &broadcast) < 0)
            return complain("broadcast", zoff_last_error());
        if (text[0] != (char)(root + 1) || text[999] != text[0])
            return complain("broadcast", "another byte than the root's");
    }
    const zoff_comm_call barrier = {.kind = ZOFF_COMM_BARRIER};
    for (int i = 0; i < 100; i++) {
        if (run(comm, &barrier) < 0)
            return complain("barrier", zoff_last_error());
    }
    return 0;
}

static int works(zoff_comm *comm)
{
    int bad = sums(comm);
    for (int i = 0; i < 4 && !bad; i++)
        bad = exchange(comm, i & 1, i & 2);
    return bad ? bad : others(comm);
}

/* ---- faults ---- */

static int must_fail(zoff_comm *comm, const zoff_comm_call *call, const char *words)
{
    if (run(comm, call) != ZOFF_ERR_COMM)
        return complain("an operation", "did not fail");
    fprintf(stderr, "rank %u: as it should: %s\n", rank, zoff_last_error());
    return strstr(zoff_last_error(), words) ? 0 : complain(words, zoff_last_error());
}

static int differs(zoff_comm *comm)
{
    double x = 1;
    const zoff_comm_call barrier = {.kind = ZOFF_COMM_BARRIER}, sum = {.kind = ZOFF_COMM_SUM, .out = &x, .count = 1};
    return must_fail(comm, rank == 1 ? &sum : &barrier, "every rank must make the same calls in the same order");
}

/* NCCL notices the broken connection, or the operation runs into its deadline. */
static int dies(zoff_comm *comm)
{
    const zoff_comm_call barrier = {.kind = ZOFF_COMM_BARRIER};
    if (run(comm, &barrier) < 0)
        return complain("barrier", zoff_last_error());
    if (rank == size - 1)
        _exit(0);
    return must_fail(comm, &barrier, "");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return complain("arguments", "communicator, case, seconds");
    zoff_comm_opts opts = {.struct_size = sizeof opts, .backend = argv[1], .timeout_seconds = atof(argv[3])};
    zoff_comm *comm;
    const zoff_status status = zoff_comm_open(&opts, &comm);
    if (status == ZOFF_ERR_UNSUPPORTED) {
        printf("skipped: %s\n", zoff_last_error());
        return SKIPPED;
    }
    if (status < 0)
        return complain("open", zoff_last_error());
    rank = zoff_comm_rank(comm);
    size = zoff_comm_size(comm);
    const bool is_alone = size < 2 || size > RANKS_MOST;
    int bad = strcmp(argv[2], "works") == 0  ? works(comm)
              : is_alone                     ? 0
              : strcmp(argv[2], "dies") == 0 ? dies(comm)
                                             : differs(comm);
    zoff_comm_close(comm);
    if (!bad && rank == 0)
        printf("%s: %u ranks: right\n", argv[2], size);
    return bad;
}
