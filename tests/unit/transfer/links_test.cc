// links_test.cc: how gradients come from the program and weights go to it: in place, or through memory of the engine.
#include "allocation_fault.h"
#include "device_transfer.h"

using namespace zoff_test;

namespace
{
const zoff_link &IN_PLACE = zoff_transfer_links_in_place, &STAGED = zoff_transfer_links_staged;

// The CPU works on the program's memory: there is nothing to wait for, and no device is called.
TEST(LinksInPlace, NeedNoDevice)
{
    small_transfer self;
    self.add(20, 2);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    self.t.accel = nullptr;
    const zoff_map map = {};
    EXPECT_ZOFF_OK(IN_PLACE.memory.pin(&self.t, &map));
    IN_PLACE.memory.unpin(&self.t, &map);
    EXPECT_ZOFF_OK(IN_PLACE.follow(&self.t, nullptr));
    EXPECT_ZOFF_OK(IN_PLACE.take(&self.t, 0, 1, nullptr));
    IN_PLACE.taken(&self.t, 0, 1);
    EXPECT_EQ(0, self.flag(0, 1)) << "whoever takes it marks it";
    EXPECT_ZOFF_OK(IN_PLACE.lend(&self.t, 0, true));
    EXPECT_EQ(nullptr, self.t.walk.runs[0].staging);
    EXPECT_ZOFF_OK(IN_PLACE.settle(&self.t));
    EXPECT_ZOFF_OK(IN_PLACE.step.finish(&self.t, true));
    EXPECT_ZOFF_OK(IN_PLACE.sums.follow(&self.t));
    IN_PLACE.range(&self.t, "row", 0);
    IN_PLACE.range(&self.t, nullptr, 0);
    self.t.accel = self.host.get();
}

TEST(LinksInPlace, ReadGradientsWhereTheyAre)
{
    small_transfer self;
    const zoff_param own = self.add(40, 2, ZOFF_F32, ZOFF_BF16);
    const zoff_param borrows = self.add(40, 2, ZOFF_F32, ZOFF_BF16, false, false);
    ASSERT_NO_FATAL_FAILURE(self.open(32));
    for (const size_t slice : {0, 1}) {
        char *at;
        ASSERT_ZOFF_OK(zoff_transfer_intake_lend(&self.t, self.t.route.lent, self.number_of(borrows, slice), 80, &at));
    }
    for (const zoff_plan_piece &piece : self.pieces()) {
        const char *base = piece.param == own ? self.param(own).grad + piece.slice * self.param(own).grad_stride
                                              : zoff_transfer_arena_at(&self.t.grads, self.number_of(borrows, piece.slice));
        EXPECT_EQ(base + 2 * piece.first, IN_PLACE.gradient(&self.t, &piece));
        EXPECT_EQ(self.param(piece.param).value + piece.slice * self.param(piece.param).value_stride + 4 * piece.first,
                  IN_PLACE.weights(&self.t, &piece, nullptr));
    }
    IN_PLACE.sums.added(&self.t, self.number_of(borrows, 1));
    EXPECT_EQ(nullptr, zoff_transfer_arena_at(&self.t.grads, self.number_of(borrows, 1)));
    EXPECT_NE(nullptr, zoff_transfer_arena_at(&self.t.grads, self.number_of(borrows, 0)));
}

std::vector<zoff_cast_piece> moves_of(char *to, const char *from)
{
    return {{10, to, from, ZOFF_F32, ZOFF_F32}, {7, to + 60, from + 60, ZOFF_BF16, ZOFF_BF16}};
}

void expect_moved(const std::string &to, const std::string &from)
{
    std::string want(to.size(), '?');
    want.replace(0, 40, from, 0, 40).replace(60, 14, from, 60, 14);
    EXPECT_EQ(want, to);
}

std::string pattern(size_t bytes)
{
    std::string out;
    for (size_t i = 0; i < bytes; i++)
        out += (char)(i * 7 % 120);
    return out;
}

TEST(LinksInPlace, MoveWeights)
{
    small_transfer self;
    const std::string from = pattern(100);
    std::string to(100, '?');
    const auto moves = moves_of(&to[0], from.data());
    ASSERT_ZOFF_OK(IN_PLACE.move(&self.t, moves.data(), moves.size(), true));
    expect_moved(to, from);
}

// The same sum in memory of the host and of a device.
void add_twice(small_transfer &self, const zoff_link &link, float *sum, char *grad)
{
    zoff_accumulate_piece piece = {};
    piece.count = 50;
    piece.sum = sum;
    piece.grad = grad;
    piece.dtype = ZOFF_BF16;
    piece.first = true;
    for (size_t k = 0; k < 50; k++) {
        put(ZOFF_BF16, grad, k, number(0, 0, 0, k, 0));
        sum[k] = 1e30f;
    }
    ASSERT_ZOFF_OK(link.sums.add(&self.t, &piece));
    EXPECT_EQ(&link == &IN_PLACE ? 50u * 2 : 0u, self.t.batch.early.read_bytes);
    piece.first = false;
    ASSERT_ZOFF_OK(link.sums.add(&self.t, &piece));
}

void expect_doubled(const float *sum)
{
    for (size_t k = 0; k < 50; k++)
        EXPECT_EQ(2 * reference::rounded(ZOFF_BF16, number(0, 0, 0, k, 0)), sum[k]);
}

TEST(LinksInPlace, AddGradients)
{
    small_transfer self;
    std::vector<float> sum(50);
    std::vector<char> grad(100);
    ASSERT_NO_FATAL_FAILURE(add_twice(self, IN_PLACE, sum.data(), grad.data()));
    expect_doubled(sum.data());
    EXPECT_EQ(2u * 50 * 2 + 50 * 4, self.t.batch.early.read_bytes) << "the second time the sum is read, too";
    EXPECT_EQ(2u * 50 * 4, self.t.batch.early.write_bytes);
}

TEST(LinksInPlace, HaveSumsOnTheHost)
{
    small_transfer self;
    char *base = nullptr;
    allocations_left = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "sums of gradients", IN_PLACE.sums.alloc(&self.t, 4096, &base));
    allocations_left = -1;
    EXPECT_EQ(nullptr, base);
    ASSERT_ZOFF_OK(IN_PLACE.sums.alloc(&self.t, 4096, &base));
    EXPECT_EQ(self.t.accumulator.tied.host.base, base);
    EXPECT_EQ(4096u, self.t.accumulator.tied.host.bytes);
}

// It takes nothing but the sums of tied parameters, which are on the host.
TEST(LinksInPlace, PlanNoMemory)
{
    small_transfer self;
    self.add(20, 2);
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(16));
    zoff_plan_info info = {};
    IN_PLACE.memory.plan(&self.t, &self.parts.plan, &info);
    IN_PLACE.sums.plan(&info, 100);
    EXPECT_EQ(0u, info.device_bytes + info.device_host_bytes);
    EXPECT_EQ(100u, info.accumulator_bytes);
    zoff_transfer_links_staged.sums.plan(&info, 100);
    EXPECT_EQ(100u, info.device_bytes);
    EXPECT_EQ(100u, info.accumulator_bytes);
}

// Only when the step is over, and only gradients that it has used.
TEST(LinksInPlace, ZeroGradientsThatWereHandedOver)
{
    small_transfer self;
    self.add(20, 2);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    for (size_t slice = 0; slice < 2; slice++)
        self.make_gradient(0, slice, 0);
    self.flag(0, 1) = ZOFF_SLICE_READY;
    const std::string before(self.param(0).grad, 43 * 4);
    ASSERT_ZOFF_OK(IN_PLACE.step.finish(&self.t, true));
    IN_PLACE.step.recorded(&self.t, false);
    EXPECT_EQ(before, std::string(self.param(0).grad, 43 * 4));
    IN_PLACE.step.recorded(&self.t, true);
    EXPECT_EQ(before.substr(0, 23 * 4) + std::string(20 * 4, 0), std::string(self.param(0).grad, 43 * 4));
}

class LinksStaged : public testing::Test
{
  protected:
    void SetUp() override
    {
        self.add(40, 2, ZOFF_BF16, ZOFF_BF16);
        ASSERT_NO_FATAL_FAILURE(self.open(32));
    }
    device_transfer self;
};

TEST_F(LinksStaged, BringGradientsDownAndMarkThem)
{
    self.make_gradient(0, 1, 0);
    ASSERT_ZOFF_OK(STAGED.take(&self.t, 0, 1, self.device.stream));
    while (!(self.flag(0, 1) & ZOFF_SLICE_DOWN)) {
        STAGED.taken(&self.t, 0, 1);
        usleep(20);
    }
    for (const zoff_plan_piece &piece : self.pieces()) {
        if (piece.slice != 1)
            continue;
        const char *at = STAGED.gradient(&self.t, &piece);
        for (size_t k = 0; k < piece.count; k++)
            EXPECT_EQ(self.gradient(0, 0, 1, piece.first + k, 0), get(ZOFF_BF16, at, k));
        EXPECT_EQ(nullptr, STAGED.weights(&self.t, &piece, nullptr)) << "it has no staging slot";
    }
    const char *lent = zoff_transfer_arena_at(&self.t.grads, self.number_of(0, 1));
    STAGED.sums.added(&self.t, self.number_of(0, 1));
    EXPECT_EQ(lent, zoff_transfer_arena_at(&self.t.grads, self.number_of(0, 1))) << "nobody has lent it to the program";
}

TEST_F(LinksStaged, MoveWeightsUpAndDown)
{
    const std::string from = pattern(100);
    char *there = self.there->alloc(100);
    std::string back(100, '?');
    memset(there, '?', 100);
    auto moves = moves_of(there, from.data());
    ASSERT_ZOFF_OK(STAGED.move(&self.t, moves.data(), moves.size(), true));
    expect_moved(std::string(there, 100), from);
    moves = moves_of(&back[0], there);
    ASSERT_ZOFF_OK(STAGED.move(&self.t, moves.data(), moves.size(), false));
    expect_moved(back, from);
}

TEST_F(LinksStaged, AddGradientsWhereTheyAreBehindTheTrainersStream)
{
    char *sums = nullptr;
    ASSERT_ZOFF_OK(STAGED.sums.alloc(&self.t, 200, &sums));
    EXPECT_EQ(self.t.accumulator.tied.device, sums);
    ASSERT_NO_FATAL_FAILURE(self.hold(self.device.stream));
    ASSERT_ZOFF_OK(STAGED.follow(&self.t, self.device.stream));
    ASSERT_ZOFF_OK(STAGED.sums.follow(&self.t));
    ASSERT_NO_FATAL_FAILURE(add_twice(self, STAGED, (float *)sums, self.there->alloc(100)));
    ASSERT_ZOFF_OK(self.t.accel->ops->event_record(self.t.accel, self.t.device.synced, self.t.device.compute));
    for (int i = 0; i < 50; i++, usleep(200))
        EXPECT_EQ(ZOFF_PENDING, self.t.accel->ops->event_poll(self.t.accel, self.t.device.synced));
    self.let_go = true;
    ASSERT_NO_FATAL_FAILURE(self.settle(self.t.device.compute));
    expect_doubled((float *)sums);
}

TEST(LinksReached, LeaveGradientsWhereTheyAre)
{
    EXPECT_EQ(&zoff_transfer_reduce_scatter_mark, zoff_transfer_links_reached.taken);
    device_transfer self;
    self.add(40, 2, ZOFF_BF16, ZOFF_BF16);
    ASSERT_NO_FATAL_FAILURE(self.open(32));
    ASSERT_ZOFF_OK(zoff_transfer_links_reached.take(&self.t, 0, 1, self.device.stream));
    EXPECT_EQ(self.t.device.downloads.first, self.t.device.downloads.end) << "nothing comes down";
    EXPECT_EQ(nullptr, zoff_transfer_arena_at(&self.t.grads, self.number_of(0, 1)));
    EXPECT_TRUE(self.t.device.computes);
}
} // namespace
