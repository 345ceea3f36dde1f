// self_test.cc: a single rank that contradicts itself, or has no memory. tests/contract/comm has what it copies.
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
