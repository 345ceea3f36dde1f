// comm_test.cc: the list of communicators, and their common properties.
#include "thread_ranks.h"

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
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "choose self, threads, mpi, nccl or auto", zoff_comm_open(&opts, &comm));
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
} // namespace
