/* SPDX-License-Identifier: Apache-2.0 */
// comm_test.cc: the list of communicators, and their common properties; options in a struct of another length; transports that
// are refused; a communicator that a shared library connects.
#include "memory_fault.h"
#include "plugin.h"
#include "post_office.h"
#include "thread_ranks.h"

#include <dlfcn.h>

#include <cmath>
#include <fstream>

using namespace zoff_test;

namespace
{
TEST(Comm, ErrorsNameTheCause)
{
    zoff_comm *comm = nullptr;
    zoff_comm_opts opts = {};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "struct_size is 0", zoff_comm_open(&opts, &comm));
    opts.struct_size = sizeof opts;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "size is 0", zoff_comm_open_threads(&opts, 0, &comm));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "size is 1025", zoff_comm_open_threads(&opts, 1025, &comm));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "out must not be NULL", zoff_comm_open_threads(&opts, 2, nullptr));
    opts.backend = "carrier pigeons";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "choose self, threads, mpi, ucx, nccl or auto", zoff_comm_open(&opts, &comm));
    EXPECT_EQ(nullptr, comm);
}

// The list has two communicators for one rank: "self" copies, "threads" is the group of threads with one member.
TEST(Comm, TheNameChoosesFromTheList)
{
    for (const char *name : {"self", "threads"}) {
        zoff_comm_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.backend = name;
        zoff_comm *made = nullptr;
        ASSERT_ZOFF_OK(zoff_comm_open(&opts, &made));
        comm alone(made);
        EXPECT_EQ(0u, zoff_comm_rank(made));
        EXPECT_EQ(1u, zoff_comm_size(made));
        zoff_comm_info info = {};
        info.struct_size = sizeof info;
        ASSERT_ZOFF_OK(zoff_comm_get_info(made, &info));
        EXPECT_STREQ(name, info.backend);
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_comm_open: out must not be NULL", zoff_comm_open(nullptr, nullptr));
}

TEST(Comm, EachRankTellsWhoItIs)
{
    const thread_ranks ranks(3);
    for (unsigned rank = 0; rank < 3; rank++) {
        zoff_comm_info info = {};
        info.struct_size = sizeof info;
        ASSERT_ZOFF_OK(zoff_comm_get_info(ranks[rank], &info));
        EXPECT_EQ(rank, zoff_comm_rank(ranks[rank]));
        EXPECT_EQ(rank, info.rank);
        EXPECT_EQ(3u, zoff_comm_size(ranks[rank]));
        EXPECT_EQ(3u, info.size);
        EXPECT_EQ(sizeof info, info.struct_size);
    }
}

TEST(Comm, WithoutMemoryNoRankIsOpened)
{
    zoff_comm *made[2] = {};
    const int failures = fail_each_allocation([&] {
        const zoff_status status = zoff_comm_open_threads(nullptr, 2, made);
        EXPECT_EQ(status == ZOFF_OK, made[0] != nullptr);
        return status;
    });
    EXPECT_LT(2 * 32, failures) << "each rank listens with several receives";
    for (zoff_comm *one : made)
        zoff_comm_close(one);
}

TEST(Comm, InfoIsWrittenAsFarAsTheCallersStructGoes)
{
    const thread_ranks ranks(2);
    zoff_comm_info info;
    memset(&info, 0x5a, sizeof info);
    info.struct_size = offsetof(zoff_comm_info, size);
    ASSERT_ZOFF_OK(zoff_comm_get_info(ranks[1], &info));
    EXPECT_EQ(1u, info.rank);
    EXPECT_EQ(0x5a5a5a5au, info.size) << "behind the end of the caller's struct";
    EXPECT_EQ(offsetof(zoff_comm_info, size), info.struct_size);
    struct {
        zoff_comm_info known;
        char more[32];
    } longer = {};
    longer.known.struct_size = sizeof longer;
    ASSERT_ZOFF_OK(zoff_comm_get_info(ranks[1], &longer.known));
    EXPECT_EQ(sizeof longer, longer.known.struct_size);
    EXPECT_EQ(std::string(32, 0), std::string(longer.more, 32));
    info.struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_comm_info.struct_size is 0", zoff_comm_get_info(ranks[0], &info));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_comm_get_info(ranks[0], nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_comm_get_info(nullptr, &info));
}

// Opens a communicator with these options, and returns its timeout.
double timeout_of(const zoff_comm_opts *opts)
{
    zoff_comm *made = nullptr;
    EXPECT_ZOFF_OK(zoff_comm_open(opts, &made));
    const comm alone(made);
    return made ? made->timeout_seconds : NAN;
}

TEST(CommOpts, AShorterStructHasDefaultsForTheRest)
{
    const double without = timeout_of(nullptr);
    EXPECT_EQ(ZOFF_COMM_TIMEOUT_SECONDS, without);
    zoff_comm_opts in = {};
    in.struct_size = offsetof(zoff_comm_opts, timeout_seconds);
    in.backend = "self";
    in.timeout_seconds = 5;
    EXPECT_EQ(without, timeout_of(&in)) << "behind the end of the caller's struct";
    in.struct_size = sizeof in;
    EXPECT_EQ(5, timeout_of(&in));
}

TEST(CommOpts, ALongerStructIsReadAsFarAsItIsKnownAndRefusedWhereItSaysMore)
{
    struct {
        zoff_comm_opts known;
        char more[64];
    } in = {};
    in.known.struct_size = sizeof in;
    in.known.timeout_seconds = -1;
    EXPECT_EQ(-1, timeout_of(&in.known));
    in.more[63] = 1;
    zoff_comm *made = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "zoff_comm_opts has a field at byte 87", zoff_comm_open(&in.known, &made));
}

TEST(CommOpts, ErrorsNameTheCall)
{
    zoff_comm_opts in = {};
    zoff_comm *made = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_comm_opts.struct_size is 0", zoff_comm_open(&in, &made));
    in.struct_size = sizeof in;
    in.timeout_seconds = NAN;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_comm_open: timeout_seconds is not a number", zoff_comm_open(&in, &made));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_comm_open_threads: timeout_seconds", zoff_comm_open_threads(&in, 1, &made));
}

TEST(CommTransport, ErrorsNameTheDefectOfATransport)
{
    post_office office(2);
    zoff_comm *made = nullptr;
    zoff_comm_transport t = office.transport(0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_comm_open_transport(nullptr, nullptr, &made));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_comm_open_transport(nullptr, &t, nullptr));
    t.rank = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "rank 2 of 2", zoff_comm_open_transport(nullptr, &t, &made));
    t = office.transport(0);
    t.cancel = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "lacks its name or one of its functions", zoff_comm_open_transport(nullptr, &t, &made));
    t.failure = "no line";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "no line", zoff_comm_open_transport(nullptr, &t, &made));
    t.struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "struct_size is 0", zoff_comm_open_transport(nullptr, &t, &made));
    EXPECT_EQ(nullptr, made);
    EXPECT_EQ(0u, office.closed) << "it stays the caller's";
}

TEST(CommTransport, ItIsTheCommunicatorsUntilThatIsClosed)
{
    post_office office(1);
    zoff_comm *made = nullptr;
    const zoff_comm_transport t = office.transport(0);
    ASSERT_ZOFF_OK(zoff_comm_open_transport(nullptr, &t, &made));
    EXPECT_EQ(0u, zoff_comm_rank(made));
    EXPECT_EQ(1u, zoff_comm_size(made));
    EXPECT_EQ(0u, office.closed);
    zoff_comm_close(made);
    EXPECT_EQ(1u, office.closed);
}

// A plug-in path for the test, restored at the end.
class Plugins : public testing::Test
{
  protected:
    Plugins()
    {
        opts.struct_size = sizeof opts;
        opts.backend = "mpi";
        if (getenv("ZOFF_PLUGIN_PATH"))
            before = getenv("ZOFF_PLUGIN_PATH");
        unsetenv("ZOFF_PLUGIN_PATH");
    }
    ~Plugins() override
    {
        if (before.empty())
            unsetenv("ZOFF_PLUGIN_PATH");
        else
            setenv("ZOFF_PLUGIN_PATH", before.c_str(), 1);
    }
    // Open "mpi" over the plug-in of this test.
    zoff_status open(const zoff_comm_transport *transport)
    {
        setenv("ZOFF_PLUGIN_PATH", ZOFF_TEST_PLUGINS, 1);
        void *library = dlopen(ZOFF_TEST_PLUGINS "/libzoff_mpi.so", RTLD_NOW | RTLD_GLOBAL);
        EXPECT_NE(nullptr, library) << dlerror();
        void *found = library ? dlsym(library, "test_plugin_get") : nullptr;
        test_plugin *(*get)() = nullptr;
        memcpy(&get, &found, sizeof get);
        if (!get)
            return ZOFF_ERR_IO;
        get()->transport = transport;
        return zoff_comm_open(&opts, &made);
    }
    zoff_comm_opts opts = {};
    zoff_comm *made = nullptr;
    std::string before;
};

TEST_F(Plugins, TheCommunicatorOwnsItsTransportUntilClose)
{
    post_office office(1);
    const zoff_comm_transport transport = office.transport(0);
    ASSERT_ZOFF_OK(open(&transport));
    EXPECT_EQ(1u, zoff_comm_size(made));
    EXPECT_EQ(0u, office.closed);
    zoff_comm_close(made);
    EXPECT_EQ(1u, office.closed);
}

TEST_F(Plugins, OneThatCannotConnectSaysWhy)
{
    post_office office(1);
    zoff_comm_transport transport = office.transport(0);
    transport.failure = "no job is running";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "no job is running", open(&transport));
    EXPECT_EQ(nullptr, made);
    EXPECT_EQ(0u, office.closed) << "there is nothing to close";
}

TEST_F(Plugins, ATransportThatIsRefusedIsClosed)
{
    post_office office(1);
    zoff_comm_transport transport = office.transport(0);
    transport.cancel = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "lacks its name or one of its functions", open(&transport));
    EXPECT_EQ(nullptr, made);
    EXPECT_EQ(1u, office.closed);
}

TEST_F(Plugins, OneWithoutACommunicatorIsNamed)
{
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "libzoff_mpi.so has no communicator: install it together with libzoff",
                      open(nullptr));
    EXPECT_EQ(nullptr, made);
}

TEST_F(Plugins, OneThatIsMissingIsNamedWithTheWayOut)
{
    const scratch_folder folder;
    for (const char *words :
         {"no ", "/zoff/libzoff_mpi.so", "With the package libzoff0 install libzoff-plugin-mpi. Otherwise build zoff",
          "apt-get install libopenmpi-dev", "ZOFF_PLUGIN_PATH", "zoff/mpi.h"})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words, zoff_comm_open(&opts, &made));
    setenv("ZOFF_PLUGIN_PATH", (":/nowhere::" + folder.path + ":").c_str(), 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "no /nowhere/libzoff_mpi.so", zoff_comm_open(&opts, &made));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "no " + folder.file("libzoff_mpi.so"), zoff_comm_open(&opts, &made));
    // If the file exists, the loader's message.
    std::ofstream(folder.file("libzoff_mpi.so")) << "not a library, however long it may be";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, folder.file("libzoff_mpi.so") + ":", zoff_comm_open(&opts, &made));
    EXPECT_EQ(nullptr, made);
}
} // namespace
