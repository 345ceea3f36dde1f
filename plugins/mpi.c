/* SPDX-License-Identifier: Apache-2.0 */
/* mpi.c: libzoff_mpi.so, the communicator "mpi". It uses MPI_COMM_WORLD of the MPI library that zoff was compiled with. */
#include <zoff/mpi.h>
#include <zoff/plugin.h>

/* Shared by the process, because the plug-in is loaded once. No lock: only one thread at a time opens or closes communicators.
 */
static int open_count, is_ours; /* number of open communicators; whether the plug-in has initialised MPI */

static void close_one(void *ctx, int clean)
{
    zoff_mpi_close(ctx, clean);
    /* After a failure MPI is not finalised: MPI_Finalize waits for all ranks, and a lost rank never comes. */
    if (--open_count == 0 && is_ours && clean && zoff_mpi_is_up())
        MPI_Finalize();
}

/* NULL, or an error text if the loaded MPI library is not the kind that this plug-in was compiled for. */
static const char *find_other_mpi(void)
{
    static char words[256];
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    const char *wanted = "";
    int length = 0;
#if defined(OPEN_MPI)
    wanted = "Open MPI";
#elif defined(MPICH_VERSION) && !defined(I_MPI_VERSION)
    wanted = "MPICH";
#endif
    MPI_Get_library_version(version, &length);
    version[strcspn(version, ",\n")] = 0;
    if (strstr(version, wanted))
        return NULL;
    snprintf(
        words, sizeof words,
        "libzoff_mpi.so was built for %s, but this program uses %.80s: compile zoff_comm_from_mpi() of zoff/mpi.h into the "
        "program",
        wanted, version);
    return words;
}

static void connect_world(zoff_comm_transport *out)
{
    int initialised = 0, finalised = 0, level;
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    out->failure = find_other_mpi();
    if (out->failure)
        return;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    out->failure = "MPI was finalised and cannot be initialised again in this process: keep one communicator open, or call "
                   "MPI_Init_thread() in the program";
    if (finalised)
        return;
    out->failure = "MPI_Init_thread failed";
    if (!initialised && MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return;
    is_ours |= !initialised;
    zoff_mpi_connect(MPI_COMM_WORLD, out);
    if (out->failure)
        return;
    open_count++;
    out->close = close_one;
}

ZOFF_API int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out);

int zoff_plugin_init(unsigned abi, const zoff_plugin_host *host, zoff_plugin *out)
{
    (void)host;
    if (abi != ZOFF_PLUGIN_ABI)
        return -1;
    out->connect = connect_world;
    return 0;
}
