// self_test.cc: a single rank: it copies the bytes for itself, and waits for nobody.
#include "memory_fault.h"

extern "C" {
#include "comm.h"
}

using namespace zoff_test;

namespace
{
class Self : public testing::Test
{
  protected:
    Self()
    {
        zoff_comm *made = nullptr;
        EXPECT_ZOFF_OK(zoff_comm_open(nullptr, &made));
        alone.reset(made);
    }
    // Start an operation; it is done at the first poll.
    zoff_status run(const zoff_comm_call &call)
    {
        zoff_comm_work work = {};
        const zoff_status status = zoff_comm_start(alone.get(), &call, &work);
        return status < 0 ? status : zoff_comm_poll(alone.get(), &work);
    }
    comm alone;
};
} // namespace

TEST_F(Self, ItIsRankZeroOfOne)
{
    EXPECT_EQ(0u, zoff_comm_rank(alone.get()));
    EXPECT_EQ(1u, zoff_comm_size(alone.get()));
    zoff_comm_info info = {};
    info.struct_size = sizeof info;
    ASSERT_ZOFF_OK(zoff_comm_get_info(alone.get(), &info));
    EXPECT_STREQ("self", info.backend);
}

TEST_F(Self, PiecesAreCopied)
{
    for (const zoff_comm_kind kind : {ZOFF_COMM_EXCHANGE, ZOFF_COMM_GATHER}) {
        for (const size_t bytes : {size_t{0}, size_t{1}, size_t{5000}}) {
            std::vector<char> in(bytes, 7), out(bytes + 1, 0);
            zoff_comm_call call = {};
            call.kind = kind;
            call.send_bytes = call.receive_bytes = &bytes;
            call.in = in.data();
            call.out = out.data();
            EXPECT_ZOFF_OK(run(call));
            EXPECT_EQ(std::string(bytes, 7) + '\0', std::string(out.data(), out.size()));
            call.out = in.data(); // the result is there already
            EXPECT_ZOFF_OK(run(call));
            EXPECT_EQ(std::vector<char>(bytes, 7), in);
        }
    }
}

TEST_F(Self, SumsAndBroadcastsAreCompleteAsTheyAre)
{
    double x[2] = {1.5, -2};
    for (const zoff_comm_kind kind : {ZOFF_COMM_SUM, ZOFF_COMM_BROADCAST, ZOFF_COMM_BARRIER}) {
        zoff_comm_call call = {};
        call.kind = kind;
        call.out = x;
        call.count = 2;
        EXPECT_ZOFF_OK(run(call));
        EXPECT_EQ(1.5, x[0]);
        EXPECT_EQ(-2, x[1]);
    }
}

TEST_F(Self, ARankAgreesWithItself)
{
    char in[8] = {}, out[8] = {};
    size_t sent = 4, expected = 8;
    zoff_comm_call call = {};
    call.kind = ZOFF_COMM_EXCHANGE;
    call.in = in;
    call.out = out;
    call.send_bytes = &sent;
    call.receive_bytes = &expected;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "it sends 4 bytes to itself, but expects 8", run(call));
}

TEST_F(Self, WithoutMemoryThereIsNone)
{
    zoff_comm_opts opts = {};
    opts.timeout_seconds = 1;
    const int failed = fail_each_allocation([&] {
        zoff_comm *made = nullptr;
        const zoff_status status = zoff_comm_self_open(&opts, &made);
        EXPECT_EQ(status == ZOFF_OK, made != nullptr);
        zoff_comm_close(made);
        return status;
    });
    EXPECT_EQ(3, failed) << "the communicator, its book, and what others tell";
}
