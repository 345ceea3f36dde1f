/* SPDX-License-Identifier: Apache-2.0 */
// comm_groups_test.cc: gathers within groups of ranks, on each communicator. Groups are blocks of consecutive ranks.
#include "ranks.h"

#include <algorithm>
#include <chrono>
#include <vector>

using namespace zoff_test;

namespace
{
struct Groups : Comm {
    // A new communicator whose groups have `members` ranks.
    void open_groups(unsigned members, double timeout_seconds)
    {
        ASSERT_NO_FATAL_FAILURE(open(timeout_seconds));
        on_each([&](zoff_comm *comm, unsigned) { ASSERT_ZOFF_OK(zoff_comm_open_groups(comm, members)); });
    }
};

std::string name_of(const testing::TestParamInfo<kind> &p)
{
    return std::string(p.param.how) + (p.param.size ? std::to_string(p.param.size) : "");
}

#ifdef ZOFF_RANKS_MPI
INSTANTIATE_TEST_SUITE_P(Mpi, Groups, testing::Values(kind{"world", "mpi", 0}), name_of);
#ifdef ZOFF_RANKS_UCX
INSTANTIATE_TEST_SUITE_P(Ucx, Groups, testing::Values(kind{"ucx", "ucx", 0}), name_of);
#endif
#elif defined(ZOFF_RANKS_NCCL)
INSTANTIATE_TEST_SUITE_P(Nccl, Groups, testing::Values(kind{"nccl", "nccl", 1}, kind{"nccl", "nccl", 4}), name_of);
#else
INSTANTIATE_TEST_SUITE_P(BackEnds, Groups,
                         testing::Values(kind{"self", "self", 1}, kind{"threads", "threads", 4}, kind{"threads", "threads", 6},
                                         kind{"messages", "messages", 4}, kind{"messages", "messages", 6}),
                         name_of);
#endif

// A gather of `bytes` bytes of each member, with the value of its rank plus `salt`.
struct gathering {
    gathering(zoff_comm *of, unsigned from, unsigned count, size_t piece, char added = 0)
        : comm(of), first(from), members(count), bytes(piece), salt(added), each(zoff_comm_size(of)),
          in(piece + 1, (char)((char)zoff_comm_rank(of) + added)), out(count * piece + 1)
    {
        for (unsigned rank = first; rank < first + members; rank++)
            each[rank] = bytes;
        call.kind = ZOFF_COMM_GATHER;
        call.stream = ZOFF_COMM_GROUP;
        call.in = in.data();
        call.out = out.data();
        call.receive_bytes = each.data();
        call.first = first;
        call.members = members;
    }

    zoff_status run()
    {
        const zoff_status status = zoff_comm_start(comm, &call, &work);
        return status < 0 ? status : zoff_comm_wait(comm, &work);
    }

    void check() const
    {
        for (size_t i = 0; i < members * bytes; i++)
            ASSERT_EQ((char)((char)(first + i / bytes) + salt), out[i]) << "byte " << i;
    }

    zoff_comm *comm;
    unsigned first, members;
    size_t bytes;
    char salt;
    std::vector<size_t> each;
    std::vector<char> in, out;
    zoff_comm_call call = {};
    zoff_comm_work work = {};
};

zoff_comm_info info_of(zoff_comm *comm)
{
    zoff_comm_info info = {};
    info.struct_size = sizeof info;
    EXPECT_ZOFF_OK(zoff_comm_get_info(comm, &info));
    return info;
}
} // namespace

// Pieces of any size, several in flight; all groups work at the same time, and meet in operations of all ranks.
TEST_P(Groups, EachGathersAmongItsMembers)
{
    enum { ROUNDS = 10, FLIGHT = 4 };
    for (unsigned members : {1u, 2u, 3u, size}) {
        if (size % members)
            continue;
        ASSERT_NO_FATAL_FAILURE(open_groups(members, 20));
        on_each([&](zoff_comm *comm, unsigned rank) {
            const unsigned first = rank / members * members;
            uint64_t sent = 0;
            const uint64_t before = info_of(comm).sent_bytes;
            for (unsigned round = 0; round < ROUNDS; round++) {
                std::vector<std::unique_ptr<gathering>> all;
                for (unsigned k = 0; k < FLIGHT; k++) {
                    const size_t bytes = k == 0 ? 1 : k == 1 ? 700 : (size_t)30000 * k + round;
                    all.push_back(std::make_unique<gathering>(comm, first, members, bytes, (char)(round + k)));
                    ASSERT_ZOFF_OK(zoff_comm_start(comm, &all[k]->call, &all[k]->work));
                    sent += bytes * (members - 1);
                }
                for (auto &g : all) {
                    ASSERT_ZOFF_OK(zoff_comm_wait(comm, &g->work));
                    g->check();
                }
                gathering together(comm, 0, size, 300);
                together.call.stream = ZOFF_COMM_WEIGHTS;
                together.call.members = 0;
                EXPECT_ZOFF_OK(together.run());
                together.check();
                sent += 300 * (size - 1);
            }
            EXPECT_EQ(sent, info_of(comm).sent_bytes - before) << "nothing goes to another group";
        });
    }
}

// A group is done while the ranks of another group have not even come; one may be any number of operations ahead.
TEST_P(Groups, NobodyOutsideIsWaitedFor)
{
    const unsigned members = size < 2 ? 1 : 2;
    ASSERT_NO_FATAL_FAILURE(open_groups(members, 20));
    on_each([&](zoff_comm *comm, unsigned rank) {
        const auto gather = [&](unsigned times) {
            for (unsigned i = 0; i < times; i++) {
                gathering g(comm, rank / members * members, members, 5000);
                ASSERT_ZOFF_OK(g.run());
                g.check();
            }
        };
        gather(rank < members ? 300 : 0);
        meet();
        gather(rank < members ? 0 : 200);
        meet();
        EXPECT_ZOFF_OK(run_barrier(comm));
        gather(3);
    });
}

TEST_P(Groups, AMemberThatDoesNotComeIsNamed)
{
    const unsigned members = size < 2 ? 1 : 2;
    ASSERT_NO_FATAL_FAILURE(open_groups(members, 30));
    on_each([&](zoff_comm *comm, unsigned rank) {
        EXPECT_ZOFF_OK(gathering(comm, rank / members * members, members, 10).run());
        meet();
        if (rank == 0 || !tells_who())
            comm->timeout_seconds = 1;
        if (rank == 0 && size > 1) {
            const std::string who = tells_who() ? "rank 1 of " + std::to_string(size) : std::string("one of the other ranks");
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "among ranks 0 to 1 (16 bytes) has waited for 1 s: " + who + " did not arrive",
                              gathering(comm, 0, 2, 8).run());
        }
        meet();
        // The others have missed nothing, and yet the communicator is over for them, too.
        if (rank != 0 && tells_who())
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 1 of ", run_barrier(comm));
    });
}

TEST_P(Groups, AnotherItemIsNamed)
{
    const unsigned members = size < 2 ? 1 : 2;
    ASSERT_NO_FATAL_FAILURE(open_groups(members, tells_who() ? 20 : 1));
    on_each([&](zoff_comm *comm, unsigned rank) {
        gathering g(comm, rank / members * members, members, 8);
        g.call.item.about = ZOFF_COMM_ABOUT_WEIGHTS;
        g.call.item.index = rank == 1 ? 7 : 5;
        if (rank < 2 && size > 1)
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "among ranks 0 to 1", g.run());
        meet();
    });
}

TEST_P(Groups, CallsThatAreNoGroupAreRefused)
{
    on_each([&](zoff_comm *comm, unsigned) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "where groups have 0", gathering(comm, 0, size, 8).run());
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "do not divide", zoff_comm_open_groups(comm, 0));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "do not divide", zoff_comm_open_groups(comm, size + 1));
        ASSERT_ZOFF_OK(zoff_comm_open_groups(comm, size));
        EXPECT_ZOFF_OK(zoff_comm_open_groups(comm, size)) << "another engine wants the same";
        if (size > 1)
            EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "groups of " + std::to_string(size) + " ranks for another engine",
                              zoff_comm_open_groups(comm, 1));
        const struct {
            zoff_comm_kind kind;
            unsigned first, members;
            const char *words;
        } cells[] = {{ZOFF_COMM_GATHER, 0, size + 1, "in a group of"},
                     {ZOFF_COMM_GATHER, 1, size, "in a group of"},
                     {ZOFF_COMM_GATHER, 0, 0, "in a group of"},
                     {ZOFF_COMM_BARRIER, 0, size, "barrier of a group of ranks"}};
        for (const auto &cell : cells) {
            gathering g(comm, 0, size, 8);
            g.call.kind = cell.kind;
            g.call.first = cell.first;
            g.call.members = cell.members;
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, cell.words, g.run());
        }
        EXPECT_ZOFF_OK(gathering(comm, 0, size, 10).run()) << "a refused call takes no number";
    });
}
