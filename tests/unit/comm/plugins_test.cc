// plugins_test.cc: a communicator that a shared library connects: who owns the transport after a failed open, and the errors if
// the library is missing or has none.
#include "plugin.h"
#include "post_office.h"

#include <dlfcn.h>

#include <cmath>
#include <fstream>

extern "C" {
#include "comm.h"
}

using namespace zoff_test;

namespace
{
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
} // namespace

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
    for (const char *words : {"no ", "/libzoff_mpi.so", "apt-get install libopenmpi-dev", "ZOFF_PLUGIN_PATH", "zoff/mpi.h"})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words, zoff_comm_open(&opts, &made));
    setenv("ZOFF_PLUGIN_PATH", (":/nowhere::" + folder.path + ":").c_str(), 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "no /nowhere/libzoff_mpi.so", zoff_comm_open(&opts, &made));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "no " + folder.file("libzoff_mpi.so"), zoff_comm_open(&opts, &made));
    // If the file exists, the loader's message.
    std::ofstream(folder.file("libzoff_mpi.so")) << "not a library, however long it may be";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, folder.file("libzoff_mpi.so") + ":", zoff_comm_open(&opts, &made));
    EXPECT_EQ(nullptr, made);
}
