// swap_test.cc: the tier in files as a table: no function is missing, and a retry writes the failed arrays and no others.
#include "ring_store.h"

using namespace zoff_test;

namespace
{
class SwapRetry : public Ring
{
};
} // namespace

TEST(SwapTable, NothingIsMissing)
{
    void (*all[sizeof zoff_offload_swap_ops / sizeof(void (*)())])();
    memcpy(all, &zoff_offload_swap_ops, sizeof all);
    for (auto one : all)
        EXPECT_NE(nullptr, one) << &one - all;
}

TEST_F(SwapRetry, WithoutAFailureThereIsNothingToDo)
{
    open();
    flush(0, 7);
    drain();
    EXPECT_EQ(traffic(0, 0), moved([&] { EXPECT_ZOFF_OK(zoff_offload_store_retry(store)); }));
}

TEST_F(SwapRetry, OnlyWhatHasFailedIsWrittenAgain)
{
    open();
    flush(0, 7);
    drain();
    flush(1, 8, 2);
    {
        aio_fault fault;
        fail_all(fault, true);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", zoff_offload_store_drain(store));
        // It may fail again.
        EXPECT_ZOFF_OK(zoff_offload_store_retry(store));
        EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_drain(store));
    }
    EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_drain(store)) << "as long as it is not written again";
    EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_commit(store, 1));
    EXPECT_EQ(traffic(0, 8192), moved([&] {
                  ASSERT_ZOFF_OK(zoff_offload_store_retry(store));
                  drain();
              }));
    EXPECT_EQ(8, value_in_file(1, 1));
    EXPECT_EQ((std::vector<int>{2, 8, 0}), values_of(1));
    EXPECT_FALSE(s()->has_failed);
}

TEST_F(SwapRetry, WritesPutOffStayPutOff)
{
    open();
    ASSERT_ZOFF_OK(keep(2, 9, 4));
    flush(1, 8);
    aio_fault fault;
    fail_all(fault, true);
    EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_pump(store));
    fault.result = nullptr;
    ASSERT_ZOFF_OK(zoff_offload_store_retry(store));
    EXPECT_EQ(ZOFF_SLOT_WRITING, state_of(1));
    EXPECT_TRUE(zoff_offload_swap_slot_is_put_off(slot_of(2)));
    drain();
    EXPECT_EQ(9, value_in_file(2, 2));
}
