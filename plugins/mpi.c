/* mpi.c: libzoff_mpi.so, the communicator "mpi": MPI_COMM_WORLD of the MPI that zoff was built beside. */
#include <zoff/mpi.h>
#include <zoff/plugin.h>

/* Of this process, for the plug-in is loaded once. Communicators are opened and closed by one thread at a time. */
static int open_count, is_ours; /* communicators; whether it was the plug-in that initialised MPI */

static void close_one(void *ctx, int clean)
{
    zoff_mpi_close(ctx, clean);
    /* MPI_Finalize waits for all ranks, and those that a broken group misses do not come. */
    if (--open_count == 0 && is_ours && clean && zoff_mpi_is_up())
        MPI_Finalize();
}

/* NULL, or why the functions that the loader has found are not those that this was compiled for. */
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
        "libzoff_mpi.so was built for %s, and the MPI of this program is %.80s: compile zoff_comm_from_mpi() of zoff/mpi.h "
        "into the program",
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
    out->failure = "MPI was finalised, and cannot be initialised again in this process: keep one communicator open, or call "
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
