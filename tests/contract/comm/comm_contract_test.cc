// comm_contract_test.cc: what every communicator must do, on each one that this build has.
#include "zoff_test.h"

extern "C" {
#include "comm.h"
}

namespace
{
class Comm : public testing::TestWithParam<const char *>
{
  protected:
    void SetUp() override
    {
        zoff_comm_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.backend = GetParam();
        zoff_comm *made = nullptr;
        ASSERT_ZOFF_OK(zoff_comm_open(&opts, &made));
        comm.reset(made);
    }
    zoff_test::comm comm;
};
INSTANTIATE_TEST_SUITE_P(BackEnds, Comm, testing::Values("self"), [](const auto &p) { return std::string(p.param); });

TEST_P(Comm, RanksAreDense)
{
    EXPECT_GE(zoff_comm_size(comm.get()), 1u);
    EXPECT_LT(zoff_comm_rank(comm.get()), zoff_comm_size(comm.get()));
}

TEST_P(Comm, ScalarsAreSummed)
{
    double size = zoff_comm_size(comm.get());
    double x[3] = {1.0, -0.5, 3e200};
    zoff_comm_work work = {};
    ASSERT_ZOFF_OK(zoff_comm_sum_scalars(comm.get(), x, 3, &work));
    double other[1] = {7};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "before the first was done", zoff_comm_sum_scalars(comm.get(), other, 1, &work));
    zoff_status status;
    while ((status = zoff_comm_poll(comm.get(), &work)) == ZOFF_PENDING) {
    }
    ASSERT_EQ(ZOFF_OK, status);
    EXPECT_EQ(1.0 * size, x[0]);
    EXPECT_EQ(-0.5 * size, x[1]);
    EXPECT_EQ(3e200 * size, x[2]);
    EXPECT_EQ(ZOFF_OK, zoff_comm_poll(comm.get(), &work)) << "polling what is done is legal";
}
} // namespace
