/* SPDX-License-Identifier: Apache-2.0 */
// world_test.cc: a program that MPI has started alone, in the environment of each launcher of two ranks: no way to join may
// leave it a working rank of one. This program is not started by mpirun.
#include "launcher.h"

#include <zoff/mpi.h>

using namespace zoff_test;

namespace
{
zoff_status open_over(MPI_Comm comm, zoff_comm **out)
{
    return zoff_comm_from_mpi(comm, nullptr, out);
}

zoff_status create(const char *word)
{
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    zoff_engine *made = nullptr;
    opts.ranks = word;
    const zoff_status status = zoff_engine_create(&opts, &made);
    zoff_engine_destroy(made);
    return status;
}

class World : public testing::Test
{
  protected:
    World()
    {
        MPI_Comm_dup(MPI_COMM_WORLD, &copy);
        MPI_Comm_split(MPI_COMM_WORLD, 0, 0, &part);
    }
    ~World() override
    {
        MPI_Comm_free(&copy);
        MPI_Comm_free(&part);
    }
    MPI_Comm copy, part;
    unsigned cells = 0;
};
} // namespace

TEST_F(World, RefusesToBeOneRankBesideALauncherOfTwo)
{
    const no_launcher clean;
    for (unsigned rank = 0; rank < 2; rank++) {
        for (const auto &launcher : launchers_of_two(rank)) {
            SCOPED_TRACE(launcher.first + ", rank " + std::to_string(rank));
            const with_variables here(launcher.second);
            for (const char *word : {"auto", "mpi"}) {
                EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "has started", create(word));
                EXPECT_NE(nullptr, strstr(zoff_last_error(), " 2 (")) << zoff_last_error();
                cells++;
            }
            for (MPI_Comm comm : {MPI_COMM_WORLD, copy, part}) {
                zoff_comm *made = nullptr;
                EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "MPI_COMM_SELF", open_over(comm, &made));
                zoff_comm_close(made);
                cells++;
            }
            // A program may open a communicator of one rank on purpose.
            zoff_comm *made = nullptr;
            EXPECT_ZOFF_OK(open_over(MPI_COMM_SELF, &made));
            zoff_comm_close(made);
            EXPECT_ZOFF_OK(create("self"));
            EXPECT_ZOFF_OK(create(nullptr));
            cells += 3;
        }
    }
    RecordProperty("cells", std::to_string(cells));
}

TEST_F(World, MayHaveOneRankWhereOneWasStarted)
{
    zoff_comm *made = nullptr;
    EXPECT_ZOFF_OK(open_over(MPI_COMM_WORLD, &made)) << "with what MPI itself has set";
    zoff_comm_close(made);
    const no_launcher clean;
    for (const auto &launcher : launchers_of_one()) {
        SCOPED_TRACE(launcher.first);
        const with_variables here(launcher.second);
        for (const char *word : {"auto", "mpi", "self"})
            EXPECT_ZOFF_OK(create(word));
        for (MPI_Comm comm : {MPI_COMM_WORLD, copy, part, MPI_Comm(MPI_COMM_SELF)}) {
            zoff_comm *one = nullptr;
            EXPECT_ZOFF_OK(open_over(comm, &one));
            zoff_comm_close(one);
        }
        cells += 7;
    }
    RecordProperty("cells", std::to_string(cells));
}
