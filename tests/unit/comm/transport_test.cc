// transport_test.cc: transports that zoff_comm_open_transport() refuses.
#include "post_office.h"

extern "C" {
#include "comm.h"
}

using namespace zoff_test;

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
