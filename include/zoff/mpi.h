/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.h: make a communicator over the MPI of the program that includes this header. Not part of zoff.h.
 *
 * MPIs have no common binary interface, so this code is compiled into the program and libzoff needs no MPI.
 *
 * zoff calls MPI only inside zoff calls, on the thread that makes them. With zoff_engine_opts.progress_thread a thread of the
 * engine calls it, too. With MPI_THREAD_MULTIPLE there are no further rules. Below that level, no other thread
 * may be in MPI during a zoff call. With MPI_THREAD_FUNNELED or _SINGLE only the main thread may make zoff calls.
 *
 * zoff's calls have deadlines, MPI's have none. MPI_Init() waits for a rank that never starts, and MPI_Finalize() for one that
 * is lost. After ERR_COMM end the program with MPI_Abort(). */
#ifndef ZOFF_MPI_H
#define ZOFF_MPI_H

/* Leave out the C++ classes of old MPIs: a program would have to link them. */
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/comm.h>

#if MPI_VERSION < 3
#error "zoff/mpi.h needs MPI 3.0"
#endif

#ifdef __cplusplus
#define ZOFF_MPI_CAST(type, value) static_cast<type>(value)
extern "C" {
#else
#define ZOFF_MPI_CAST(type, value) ((type)(value))
#endif

/* Programs call zoff_comm_from_mpi() only, at the end of this file. */

typedef struct zoff_mpi_context {
    MPI_Comm comm; /* a duplicate that only zoff uses */
    char words[MPI_MAX_ERROR_STRING + 128];
} zoff_mpi_context;

/* zoff stores a request in a pointer. */
typedef char zoff_mpi_request_fits[sizeof(MPI_Request) <= sizeof(void *) ? 1 : -1];

/* Whether MPI may be called. */
static inline int zoff_mpi_is_up(void)
{
    int initialised = 0, finalised = 0;
    MPI_Initialized(&initialised);
    if (initialised)
        MPI_Finalized(&finalised);
    return initialised && !finalised;
}

/* Check the result of a call.  @return 0, or -1 with a message */
static inline int zoff_mpi_check(zoff_mpi_context *c, const char *call, int ret)
{
    int length = 0;
    if (ret == MPI_SUCCESS)
        return 0;
    snprintf(c->words, sizeof c->words, "%s: ", call);
    const size_t used = strlen(c->words);
    if (MPI_Error_string(ret, c->words + used, &length) != MPI_SUCCESS)
        snprintf(c->words + used, sizeof c->words - used, "error %d", ret);
    return -1;
}

static inline int zoff_mpi_check_up(zoff_mpi_context *c)
{
    if (zoff_mpi_is_up())
        return 0;
    snprintf(c->words, sizeof c->words, "MPI_Finalize() was called before zoff_comm_close()");
    return -1;
}

static inline int zoff_mpi_send(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out_request)
{
    zoff_mpi_context *c = ZOFF_MPI_CAST(zoff_mpi_context *, ctx);
    MPI_Request request;
    if (zoff_mpi_check_up(c) < 0)
        return -1;
    if (zoff_mpi_check(c, "MPI_Isend",
                       MPI_Isend(data, ZOFF_MPI_CAST(int, bytes), MPI_BYTE, ZOFF_MPI_CAST(int, to), tag, c->comm, &request)) <
        0)
        return -1;
    memcpy(out_request, &request, sizeof request);
    return 0;
}

static inline int zoff_mpi_receive(void *ctx, unsigned from, int tag, void *data, size_t bytes, void **out_request)
{
    zoff_mpi_context *c = ZOFF_MPI_CAST(zoff_mpi_context *, ctx);
    const int source = from == ZOFF_COMM_ANY_RANK ? MPI_ANY_SOURCE : ZOFF_MPI_CAST(int, from);
    MPI_Request request;
    if (zoff_mpi_check_up(c) < 0)
        return -1;
    if (zoff_mpi_check(c, "MPI_Irecv", MPI_Irecv(data, ZOFF_MPI_CAST(int, bytes), MPI_BYTE, source, tag, c->comm, &request)) <
        0)
        return -1;
    memcpy(out_request, &request, sizeof request);
    return 0;
}

static inline int zoff_mpi_test(void *ctx, void **io_request)
{
    zoff_mpi_context *c = ZOFF_MPI_CAST(zoff_mpi_context *, ctx);
    MPI_Request request;
    int done = 0;
    if (zoff_mpi_check_up(c) < 0)
        return -1;
    memcpy(&request, io_request, sizeof request);
    if (zoff_mpi_check(c, "MPI_Test", MPI_Test(&request, &done, MPI_STATUS_IGNORE)) < 0)
        return -1;
    memcpy(io_request, &request, sizeof request);
    return done != 0;
}

static inline int zoff_mpi_cancel(void *ctx, void **io_request)
{
    zoff_mpi_context *c = ZOFF_MPI_CAST(zoff_mpi_context *, ctx);
    MPI_Request request;
    if (zoff_mpi_check_up(c) < 0)
        return -1;
    memcpy(&request, io_request, sizeof request);
    return zoff_mpi_check(c, "MPI_Cancel", MPI_Cancel(&request));
}

static inline const char *zoff_mpi_error(void *ctx)
{
    return ZOFF_MPI_CAST(zoff_mpi_context *, ctx)->words;
}

static inline void zoff_mpi_close(void *ctx, int clean)
{
    zoff_mpi_context *c = ZOFF_MPI_CAST(zoff_mpi_context *, ctx);
    /* Free it only after a clean close: a late message would go to the next communicator with this number. */
    if (clean && zoff_mpi_is_up())
        MPI_Comm_free(&c->comm);
    free(c);
}

/* Fill in a transport over a duplicate of `comm`, or say in its `failure` why there is none. All ranks of `comm` call it. */
static inline void zoff_mpi_connect(MPI_Comm comm, zoff_comm_transport *out)
{
    int level = MPI_THREAD_SINGLE, is_main = 1, is_inter = 0, rank = 0, size = 0, world_size = 0;
    zoff_mpi_context *c;
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->failure =
        "MPI is not initialised, or was finalised: call zoff_comm_from_mpi() between MPI_Init_thread() and MPI_Finalize()";
    if (!zoff_mpi_is_up())
        return;
    out->failure = "zoff_comm_from_mpi: the communicator is MPI_COMM_NULL; ranks that are not in it do not call";
    if (comm == MPI_COMM_NULL)
        return;
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&is_main);
    out->failure = "zoff_comm_from_mpi: below MPI_THREAD_SERIALIZED only the main thread may call MPI, and so zoff; ask "
                   "MPI_Init_thread() for MPI_THREAD_MULTIPLE";
    if (level < MPI_THREAD_SERIALIZED && !is_main)
        return;
    out->failure = "zoff_comm_from_mpi: the communicator joins two groups; zoff needs the ranks of one";
    if (MPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS || is_inter)
        return;
    out->failure = "zoff_comm_from_mpi: out of memory";
    c = ZOFF_MPI_CAST(zoff_mpi_context *, calloc(1, sizeof *c));
    if (!c)
        return;
    out->failure = "zoff_comm_from_mpi: MPI_Comm_dup failed";
    if (MPI_Comm_dup(comm, &c->comm) != MPI_SUCCESS) {
        free(c);
        return;
    }
    /* Errors are returned, because by default MPI ends the program. */
    MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(c->comm, &rank);
    MPI_Comm_size(c->comm, &size);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    out->failure = NULL;
    out->name = "mpi";
    out->ctx = c;
    out->rank = ZOFF_MPI_CAST(unsigned, rank);
    out->size = ZOFF_MPI_CAST(unsigned, size);
    out->close_seconds = 2;
    out->any_thread = level == MPI_THREAD_MULTIPLE;
    out->send = zoff_mpi_send;
    out->receive = zoff_mpi_receive;
    out->test = zoff_mpi_test;
    out->cancel = zoff_mpi_cancel;
    out->error = zoff_mpi_error;
    out->close = zoff_mpi_close;
    /* MPI_COMM_SELF says that this rank is alone on purpose. */
    out->world_size = comm == MPI_COMM_SELF ? 0 : ZOFF_MPI_CAST(size_t, world_size);
}

/** Make a communicator of the ranks of an MPI communicator. zoff works on a duplicate, so its messages never mix with those of
 *  `comm`, which stays the caller's. If MPI_COMM_WORLD has one rank and variables of a launcher say that there are more, the
 *  call fails, because the launcher belongs to another MPI. MPI_COMM_SELF is never compared: pass it for one rank on purpose.
 *  @param comm all ranks or some  @param opts its backend is not read; may be NULL
 *  @owns caller; zoff_comm_close() before MPI_Finalize(), on all ranks at about the same time. Closing waits up to 2 s for the
 *        others; the duplicate of a rank that others left waiting is freed by MPI_Finalize()
 *  @blocks until all ranks of `comm` have called
 *  @return ERR_UNSUPPORTED when MPI is not initialised, may not be called by this thread, or does not know the other ranks that
 *  the launcher has started */
static inline zoff_status zoff_comm_from_mpi(MPI_Comm comm, const zoff_comm_opts *opts, zoff_comm **out)
{
    zoff_comm_transport transport;
    zoff_mpi_connect(comm, &transport);
    const zoff_status status = zoff_comm_open_transport(opts, &transport, out);
    if (status < 0 && !transport.failure)
        transport.close(transport.ctx, 1);
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
