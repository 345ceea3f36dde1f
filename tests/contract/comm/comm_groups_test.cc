/* SPDX-License-Identifier: Apache-2.0 */
// comm_groups_test.cc: operations within groups of ranks, on each communicator: blocks of consecutive ranks, and the nodes and
// rails of a grid.
#include "comm_fault.h"
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
        : comm(of), first(from), members(count), bytes(piece), salt(added), each(count, piece),
          in(piece + 1, (char)((char)zoff_comm_rank(of) + added)), out(count * piece + 1)
    {
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
                     {ZOFF_COMM_BARRIER, 0, size, "barrier of the weights of a group of ranks"}};
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

// ---- grids ----

namespace
{
struct Grids : Groups {
    // A new communicator with nodes of so many ranks.
    void open_grid(unsigned node_ranks, double timeout_seconds = 20)
    {
        ASSERT_NO_FATAL_FAILURE(open(timeout_seconds));
        on_each([&](zoff_comm *comm, unsigned) {
            zoff_comm_grid grid = {};
            ASSERT_ZOFF_OK(zoff_comm_open_grid(comm, node_ranks, &grid));
            if (node_ranks > 1) {
                EXPECT_EQ(node_ranks, grid.node_ranks);
                EXPECT_EQ(size / node_ranks, grid.nodes);
            }
            comm->node = node_ranks; // also 1, where the hosts say otherwise
        });
    }
};

// Bytes and a value that one rank sends to another: none, in a header, just in one, just in none, in several messages.
size_t bytes_of(unsigned salt, unsigned from, unsigned to)
{
    static const size_t BYTES[] = {0, 3, 1936, 1937, 30000, 700, 0, 5001};
    return BYTES[(salt * 3 + from * 5 + to) % 8];
}

char value_of(unsigned salt, unsigned from, unsigned to)
{
    return (char)(salt * 7 + from * 13 + to + 1);
}

// One operation of a rank within its node or its rail. A gather sends what is for rank 0 to all.
struct talk {
    talk(zoff_comm *of, zoff_comm_kind kind, zoff_comm_stream stream, unsigned salt_) : comm(of), salt(salt_)
    {
        call.kind = kind;
        call.stream = stream;
        call.item = {ZOFF_COMM_ABOUT_GRADIENTS, 0, salt, 0};
        zoff_comm_call_group(comm, &call);
        const unsigned me = zoff_comm_rank(comm);
        for (unsigned i = 0; i < call.members; i++) {
            const unsigned other = zoff_comm_call_member(&call, i);
            sends.push_back(bytes_of(salt, me, to(other)));
            receives.push_back(bytes_of(salt, other, to(me)));
            if (kind == ZOFF_COMM_EXCHANGE || other == me)
                in.insert(in.end(), sends[i], value_of(salt, me, to(other)));
            expected.insert(expected.end(), receives[i], value_of(salt, other, to(me)));
        }
        in.push_back(0);
        out.resize(expected.size() + 1);
        call.in = in.data();
        call.out = out.data();
        call.send_bytes = sends.data();
        call.receive_bytes = receives.data();
    }
    talk(const talk &) = delete;

    unsigned to(unsigned rank) const { return call.kind == ZOFF_COMM_EXCHANGE ? rank : 0; }

    zoff_status start() { return zoff_comm_start(comm, &call, &work); }

    zoff_status run()
    {
        const zoff_status status = start();
        return status < 0 ? status : zoff_comm_wait(comm, &work);
    }

    void check()
    {
        ASSERT_ZOFF_OK(zoff_comm_wait(comm, &work));
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin())) << "salt " << salt;
        EXPECT_EQ(0, out.back());
    }

    zoff_comm *comm;
    unsigned salt;
    std::vector<size_t> sends, receives;
    std::vector<char> in, expected, out;
    zoff_comm_call call = {};
    zoff_comm_work work = {};
};

#ifdef ZOFF_RANKS_MPI
INSTANTIATE_TEST_SUITE_P(Mpi, Grids, testing::Values(kind{"world", "mpi", 0}), name_of);
#ifdef ZOFF_RANKS_UCX
INSTANTIATE_TEST_SUITE_P(Ucx, Grids, testing::Values(kind{"ucx", "ucx", 0}), name_of);
#endif
#elif defined(ZOFF_RANKS_NCCL)
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Grids);

TEST_P(Groups, NcclHasNoNodes)
{
    on_each([&](zoff_comm *comm, unsigned) {
        zoff_comm_grid grid = {};
        if (size > 1)
            EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "nodes of 2 ranks: NCCL has no operations within nodes and rails",
                              zoff_comm_open_grid(comm, 2, &grid));
        EXPECT_ZOFF_OK(zoff_comm_open_grid(comm, 0, &grid));
        EXPECT_EQ(1u, grid.node_ranks);
        EXPECT_EQ(size, grid.nodes);
    });
}
#else
INSTANTIATE_TEST_SUITE_P(BackEnds, Grids,
                         testing::Values(kind{"self", "self", 1}, kind{"threads", "threads", 4}, kind{"threads", "threads", 6},
                                         kind{"threads", "threads", 8}, kind{"messages", "messages", 4},
                                         kind{"messages", "messages", 6}, kind{"messages", "messages", 8}),
                         name_of);
#endif
} // namespace

// Two engines, all streams of groups, each rank in an order of its own; operations of all ranks between them. The counters are
// those of the calls.
TEST_P(Grids, RanksTalkToTheirNodeAndTheirRail)
{
    static const zoff_comm_stream STREAMS[] = {ZOFF_COMM_REDUCE_NODE, ZOFF_COMM_REDUCE_RAIL, ZOFF_COMM_STEP_NODE,
                                               ZOFF_COMM_STEP_RAIL};
    enum { CHANNELS = 2, LISTS = 4 * CHANNELS, EACH = 6 };
    for (unsigned node = 1; node <= size; node++) {
        if (size % node)
            continue;
        ASSERT_NO_FATAL_FAILURE(open_grid(node));
        on_each([&](zoff_comm *comm, unsigned rank) {
            zoff_comm_channel channels[CHANNELS] = {};
            for (auto &channel : channels) {
                zoff_comm_channel_come(comm, &channel);
                ASSERT_ZOFF_OK(zoff_comm_channel_open(comm, &channel));
            }
            const zoff_comm_info before = info_of(comm);
            std::vector<std::unique_ptr<talk>> all;
            unsigned next[LISTS] = {}, random = rank + 1;
            zoff_comm_traffic traffic = {};
            uint64_t node_bytes = 0, sent = 0, notes = 0, messages = 0;
            while (all.size() < LISTS * EACH) {
                random = random * 1103515245 + 12345;
                const unsigned list = random / 65536 % LISTS, k = next[list];
                if (k == EACH)
                    continue;
                next[list]++;
                all.push_back(std::make_unique<talk>(comm, k % 2 ? ZOFF_COMM_GATHER : ZOFF_COMM_EXCHANGE,
                                                     STREAMS[list / CHANNELS], list * EACH + k));
                talk &t = *all.back();
                t.call.channel = &channels[list % CHANNELS];
                ASSERT_ZOFF_OK(t.start());
                for (unsigned i = 0; i < t.call.members; i++) {
                    const unsigned other = t.call.first + i * t.call.stride;
                    if (other == rank)
                        continue;
                    sent += t.sends[i];
                    node_bytes += other / node == rank / node ? t.sends[i] : 0;
                    notes++;
                    messages += t.sends[i] > 1936 ? (t.sends[i] + comm->message_bytes - 1) / comm->message_bytes : 0;
                }
                zoff_comm_call_traffic(comm, &t.call, &traffic);
                EXPECT_EQ(t.call.members - 1, traffic.notes);
            }
            for (auto &t : all)
                t->check();
            const zoff_comm_info after = info_of(comm);
            EXPECT_EQ(sent, after.sent_bytes - before.sent_bytes);
            EXPECT_EQ(node_bytes, after.node_bytes - before.node_bytes);
            EXPECT_EQ(notes, after.notes - before.notes);
            EXPECT_EQ(messages, after.messages - before.messages);
            EXPECT_ZOFF_OK(run_barrier(comm));
            for (auto &channel : channels)
                zoff_comm_channel_leave(comm, &channel);
        });
    }
}

// Ranks 0 and 1 have another opinion of the nodes, of the sizes, of the subject: both calls are named.
TEST_P(Grids, AnotherCallIsNamed)
{
    if (size != 4)
        GTEST_SKIP() << "the texts are those of 4 ranks";
    const struct {
        void (*change)(talk &);
        const char *words[2]; // one of them is there, by who looks first
    } cells[] = {{[](talk &t) {
                      t.comm->node = 4;
                      t.call.members = 4;
                      t.call.first = 0;
                  },
                  {"among ranks 0 to 3 (", "among ranks 0 to 1 ("}},
                 {[](talk &t) { t.call.item.index++; }, {"gradients of bucket 3", "gradients of bucket 4"}},
                 {[](talk &t) {
                      t.sends[0]++;
                      t.in.push_back(0);
                      t.call.in = t.in.data();
                  },
                  {"rank 1 has ", "for rank 0, which expects"}},
                 {[](talk &t) { t.call.kind = ZOFF_COMM_GATHER; },
                  {"all_gather number 1 of the gradients among ranks 0 to 1", "all_to_all"}}};
    for (const auto &cell : cells) {
        ASSERT_NO_FATAL_FAILURE(open_grid(2));
        on_each([&](zoff_comm *comm, unsigned rank) {
            talk t(comm, ZOFF_COMM_EXCHANGE, ZOFF_COMM_REDUCE_NODE, 3);
            if (rank == 1)
                cell.change(t);
            if (rank < 2) {
                t.receives.resize(4);
                t.sends.resize(4);
                t.out.resize(t.out.size() + 200000);
                t.in.resize(t.in.size() + 200000);
                t.call.in = t.in.data();
                t.call.out = t.out.data();
                t.call.send_bytes = t.sends.data();
                t.call.receive_bytes = t.receives.data();
                EXPECT_EQ(ZOFF_ERR_COMM, t.run());
                for (const char *words : cell.words)
                    EXPECT_NE(nullptr, strstr(zoff_last_error(), words)) << zoff_last_error();
            }
            meet();
        });
    }
}

// Ranks of other rails that have a part in nothing learn the name as well.
TEST_P(Grids, AMemberThatDoesNotComeOrLeavesIsNamed)
{
    if (size != 4)
        GTEST_SKIP() << "the texts are those of 4 ranks";
    for (const bool leaves : {false, true}) {
        ASSERT_NO_FATAL_FAILURE(open_grid(2, 20));
        on_each([&](zoff_comm *comm, unsigned rank) {
            EXPECT_ZOFF_OK(talk(comm, ZOFF_COMM_GATHER, ZOFF_COMM_REDUCE_RAIL, 1).run());
            EXPECT_ZOFF_OK(talk(comm, ZOFF_COMM_GATHER, ZOFF_COMM_REDUCE_NODE, 1).run());
            meet();
            if (rank == 3) {
                if (leaves)
                    comms[rank].reset(); // closes, and waits for nobody that still works
                meet();
                return;
            }
            if (rank == 1) {
                comm->timeout_seconds = leaves ? 20 : 1;
                const std::string words =
                    leaves ? " cannot be done: rank 3 has left the group" : " has waited for 1 s: rank 3 of 4 did not arrive";
                talk t(comm, ZOFF_COMM_EXCHANGE, ZOFF_COMM_REDUCE_RAIL, 2);
                EXPECT_EQ(ZOFF_ERR_COMM, t.run());
                EXPECT_NE(nullptr, strstr(zoff_last_error(), "among ranks 1 to 3 in steps of 2 (")) << zoff_last_error();
                EXPECT_NE(nullptr, strstr(zoff_last_error(), words.c_str())) << zoff_last_error();
            }
            meet();
            if (rank == 0) // has missed nothing
                EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 3 ", run_barrier(comm));
        });
    }
}

// Rank 0 waits in its rail for rank 2, and rank 2 in its node for rank 3, which does not come. The error of both is its name.
TEST_P(Grids, TheRankBehindTheNeighbourIsNamed)
{
    if (size != 4)
        GTEST_SKIP() << "the texts are those of 4 ranks";
    ASSERT_NO_FATAL_FAILURE(open_grid(2));
    on_each([&](zoff_comm *comm, unsigned rank) {
        EXPECT_ZOFF_OK(talk(comm, ZOFF_COMM_GATHER, ZOFF_COMM_STEP_NODE, 1).run());
        EXPECT_ZOFF_OK(talk(comm, ZOFF_COMM_GATHER, ZOFF_COMM_STEP_RAIL, 1).run());
        meet();
        comm->timeout_seconds = rank == 0 ? 1.5 : 2; // rank 0 is the first to fail
        if (rank == 0) {
            talk t(comm, ZOFF_COMM_GATHER, ZOFF_COMM_STEP_RAIL, 2);
            EXPECT_EQ(ZOFF_ERR_COMM, t.run());
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "has waited for 1.5 s: rank 3 of 4 did not arrive"))
                << zoff_last_error();
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "; rank 2 waits for rank 3")) << zoff_last_error();
        } else if (rank == 2) {
            talk t(comm, ZOFF_COMM_GATHER, ZOFF_COMM_STEP_NODE, 2);
            EXPECT_EQ(ZOFF_ERR_COMM, t.run());
            EXPECT_NE(nullptr, strstr(zoff_last_error(), ": rank 3 of 4 did not arrive")) << zoff_last_error();
        }
        meet();
    });
}

// Hosts as a test says: in order and equal, unequal, scattered.
TEST_P(Grids, NodesAreTheHostsOfTheRanks)
{
    const struct {
        unsigned (*host)(unsigned rank, unsigned size);
        unsigned asked;
        unsigned parts; // number of nodes; 0: each rank is one
        const char *warning;
    } cells[] = {{[](unsigned, unsigned) { return 5u; }, 0, 1, nullptr},
                 {[](unsigned rank, unsigned all) { return 9 - rank / (all / 2); }, 0, 2, nullptr},
                 {[](unsigned rank, unsigned all) { return 9 - rank / (all / 2); }, 1, 0, nullptr},
                 {[](unsigned rank, unsigned) { return rank; }, 0, 0, nullptr},
                 {[](unsigned rank, unsigned all) { return rank + 1 == all ? 1u : 0u; }, 0, 0, "the host of rank 0 has "},
                 {[](unsigned rank, unsigned all) { return rank + 1 == all ? 1u : 0u; }, 1, 0, nullptr},
                 {[](unsigned rank, unsigned) { return rank % 2; }, 0, 0,
                  "ranks 0 and 2 are on one host, and a rank between them is not"}};
    if (size != 4 && size != 6 && size != 8)
        GTEST_SKIP() << "4 ranks are the fewest with nodes and rails";
    for (const auto &cell : cells) {
        ASSERT_NO_FATAL_FAILURE(open(20));
        log_catcher log;
#ifdef ZOFF_RANKS_MPI
        const bool hears = comms[0] != nullptr;
#else
        const bool hears = true;
#endif
        if (cell.warning && hears)
            log.expect(cell.warning);
        on_each([&](zoff_comm *comm, unsigned rank) {
            passing_comm_fault fault(comm);
            fault.before = [&](const zoff_comm_work &work) {
                if (work.call.item.about == ZOFF_COMM_ABOUT_HOSTS)
                    *(uint64_t *)(uintptr_t)work.call.in = cell.host(rank, size);
                return ZOFF_OK;
            };
            zoff_comm_grid grid = {};
            EXPECT_ZOFF_OK(zoff_comm_open_grid(comm, cell.asked, &grid));
            EXPECT_EQ(cell.parts ? size / cell.parts : 1, grid.node_ranks);
            EXPECT_EQ(cell.parts ? cell.parts : size, grid.nodes);
            const uint64_t operations = info_of(comm).operations;
            EXPECT_ZOFF_OK(zoff_comm_open_grid(comm, cell.asked, &grid)) << "another engine";
            EXPECT_EQ(operations, info_of(comm).operations) << "the hosts are known";
            meet();
        });
        EXPECT_EQ(cell.warning && hears ? 1u : 0u, log.warnings.size());
    }
}

TEST_P(Grids, NodesThatCannotBeAreRefused)
{
    on_each([&](zoff_comm *comm, unsigned rank) {
        zoff_comm_grid grid = {7, 7};
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "do not divide " + std::to_string(size) + " ranks: choose a number that does, 0 for",
                          zoff_comm_open_grid(comm, size + 1, &grid));
        const char *const real = comm->flat;
        comm->flat = "this network has none";
        if (size > 1)
            EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "this network has none", zoff_comm_open_grid(comm, size, &grid));
        EXPECT_EQ(7u, grid.node_ranks);
        EXPECT_ZOFF_OK(zoff_comm_open_grid(comm, 1, &grid)) << "hosts are compared";
        EXPECT_EQ(1u, grid.node_ranks);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "this network has none",
                          talk(comm, ZOFF_COMM_GATHER, ZOFF_COMM_STEP_RAIL, 0).run());
        comm->flat = real;
        comm->node = 0;
        if (real)
            return;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "where groups have 0", talk(comm, ZOFF_COMM_GATHER, ZOFF_COMM_STEP_RAIL, 0).run());
        comm->node = size;
        if (size % 2 == 0 && size > 2) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "has nodes of " + std::to_string(size) + " ranks for another engine",
                              zoff_comm_open_grid(comm, 2, &grid));
            comm->node = 2;
            talk t(comm, ZOFF_COMM_EXCHANGE, ZOFF_COMM_REDUCE_RAIL, 0);
            t.call.stride = 1;
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                              "on in steps of 1, where groups have " + std::to_string(size / 2) + " from " +
                                  std::to_string(rank % 2) + " on in steps of 2",
                              t.start());
        }
    });
}
