// flights_test.cc: transfers end in the order in which they began, each with its own result. A state file is read through a
// queue of the save, which stays open until the save ends.
#include "small_save.h"

using namespace zoff_test;

namespace
{
class Flights : public testing::Test
{
  protected:
    Flights()
    {
        zoff_aio_opts opts = ZOFF_AIO_OPTS_INIT;
        opts.writable = opts.create = true;
        EXPECT_ZOFF_OK(zoff_aio_open((folder.path + "/file").c_str(), &opts, &q));
        for (size_t i = 0; i < bytes.size(); i++)
            bytes[i] = (char)(i / 4096);
        uint64_t ticket;
        EXPECT_ZOFF_OK(zoff_aio_write(q, 0, bytes.size(), bytes.data(), &ticket));
        EXPECT_ZOFF_OK(zoff_aio_wait(q, ticket));
    }
    ~Flights() override { zoff_aio_close(q); }
    void read(zoff_aio *queue, size_t page, char *to)
    {
        zoff_save_flight flight = {};
        flight.queue = queue;
        flight.buffer = to;
        ASSERT_ZOFF_OK(zoff_aio_read(queue, page * 4096, 4096, to, &flight.ticket));
        zoff_checkpoint_flights_add(&flights, &flight);
    }
    log_catcher log;
    scratch_folder folder;
    std::vector<char> bytes = std::vector<char>(ZOFF_SAVE_FLIGHTS * 4096);
    zoff_aio *q = nullptr;
    zoff_save_flights flights = {};
};
} // namespace

TEST_F(Flights, EndInTheirOrder)
{
    std::vector<char> to(bytes.size());
    zoff_save_flight landed = {};
    EXPECT_EQ(ZOFF_PENDING, zoff_checkpoint_flights_land(&flights, true, &landed)) << "there is none";
    for (int round = 0; round < 3; round++) { // the ring wraps around
        for (size_t page = 0; page < ZOFF_SAVE_FLIGHTS; page++)
            ASSERT_NO_FATAL_FAILURE(read(q, page, &to[page * 4096]));
        EXPECT_EQ((unsigned)ZOFF_SAVE_FLIGHTS, flights.count);
        for (size_t page = 0; page < ZOFF_SAVE_FLIGHTS; page++) {
            ASSERT_ZOFF_OK(zoff_checkpoint_flights_land(&flights, true, &landed));
            EXPECT_EQ(&to[page * 4096], landed.buffer);
            EXPECT_EQ((char)page, landed.buffer[17]);
        }
        EXPECT_EQ(0u, flights.count);
    }
}

TEST_F(Flights, AnErrorNamesItsFlight)
{
    std::vector<char> to(2 * 4096);
    zoff_save_flight landed = {};
    ASSERT_NO_FATAL_FAILURE(read(q, 100000, to.data())); // behind the end of the file
    ASSERT_NO_FATAL_FAILURE(read(q, 1, &to[4096]));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, folder.path, zoff_checkpoint_flights_land(&flights, true, &landed));
    EXPECT_EQ(to.data(), landed.buffer);
    ASSERT_ZOFF_OK(zoff_checkpoint_flights_land(&flights, true, &landed));
    EXPECT_EQ(1, landed.buffer[0]);
}

TEST_F(Flights, AFileHasOneReader)
{
    zoff_save_readers readers = {};
    zoff_aio *first = nullptr, *again = nullptr;
    std::vector<char> to(4096);
    zoff_save_flight landed = {};
    ASSERT_ZOFF_OK(zoff_checkpoint_flights_reader(&readers, q, -1, &first));
    ASSERT_ZOFF_OK(zoff_checkpoint_flights_reader(&readers, q, -1, &again));
    EXPECT_EQ(first, again);
    EXPECT_NE(q, first) << "the engine's queue belongs to its steps";
    ASSERT_NO_FATAL_FAILURE(read(first, 3, to.data()));
    ASSERT_ZOFF_OK(zoff_checkpoint_flights_land(&flights, true, &landed));
    EXPECT_EQ(3, to[4000]);
    EXPECT_TRUE(zoff_checkpoint_flights_close(&readers));
    EXPECT_EQ(0u, readers.count);
}
