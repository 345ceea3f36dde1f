/* SPDX-License-Identifier: Apache-2.0 */
// swap_arrays_model_test.cc: windows, steps, commits, rollbacks and process ends in random order, with random faults in
// between.
#include "aio_fault.h"
#include "covering.h"
#include "swap_arrays.h"

#include <random>

using namespace zoff_test;

TEST_P(Arrays, AnythingMayFailInAnyOrder)
{
    for (unsigned seed = 0; seed < (is_full_run() ? 100 : 3); seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937 random(seed), luck(seed + 100);
        aio_fault fault;
        bool armed = false;
        int failures = 0;
        fault.result = [&](int, int res, bool writes, uint64_t, size_t) {
            const bool fails = armed && luck() % 5 == 0;
            failures += fails;
            return fails ? (writes ? -ENOSPC : -EIO) : res;
        };
        store.reset();
        for (size_t i = 0; i < GetParam().paths; i++)
            unlink(file(i).c_str());
        now = content(CHUNKS.size());
        records = {{0, now}};
        last = count = 0;
        ASSERT_NO_FATAL_FAILURE(open());
        ASSERT_NO_FATAL_FAILURE(commit());
        for (int i = 0; i < 250; i++) {
            const size_t c = random() % CHUNKS.size();
            const unsigned arrays = 1u << random() % 3 | (random() % 4 == 0 ? 1u << random() % 3 : 0), what = random() % 40;
            armed = seed && random() % 2;
            if (armed && GetParam().persist && random() % 8 == 0)
                failing_flushes = 1;
            if (what < 12 && CHUNKS[c].bytes)
                write(c, arrays);
            else if (what < 24 && CHUNKS[c].bytes)
                read(c, arrays);
            else if (what < 27 && CHUNKS[c].bytes)
                read(c, ALL);
            else if (what < 29)
                update_all();
            else if (what < 31 && CHUNKS[c].bytes)
                hint(store.get(), c);
            else if (what < 33)
                (void)zoff_offload_store_drain(store.get());
            else if (what < 36)
                commit();
            if (what == 36 && GetParam().persist) {
                (void)zoff_offload_store_rollback(store.get());
                armed = false; // no more faults: one failed read of a resident chunk would restart the rollback
                roll_back();
            }
            armed = false;
            if (what == 37 && GetParam().persist) {
                failing_flushes = 0;
                die(random() % 8, 2 + random() % 3);
            }
            ASSERT_FALSE(HasFatalFailure()) << "operation " << i;
        }
        failing_flushes = 0;
        ASSERT_NO_FATAL_FAILURE(read_all());
        ASSERT_NO_FATAL_FAILURE(commit());
        if (GetParam().persist) {
            ASSERT_NO_FATAL_FAILURE(die());
        }
        EXPECT_TRUE(!seed || failures > 10) << failures;
    }
}
