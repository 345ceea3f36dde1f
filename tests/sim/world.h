/* SPDX-License-Identifier: Apache-2.0 */
// world.h: one thread runs at a time, and a seed says which. Threads take turns at each call that could wait for another one:
// mutexes, conditions, futexes, joins, pauses, the clock, and transfers of files. Time is virtual. It goes on by a microsecond
// with each turn and, where all threads wait, to the next moment that one waits for. So a run is its seed, a deadlock is found
// at once, and a hang is a number of turns.
//
// The linker puts these functions in front of the system's: add world.cc to the sources of a program, and ${sim_links} of
// CMakeLists.txt to its LINKS. Threads of shared libraries are not seen.
#ifndef ZOFF_SIM_WORLD_H
#define ZOFF_SIM_WORLD_H

#include <cstdint>
#include <functional>
#include <string>

namespace sim
{
// Random numbers: splitmix64.
class dice
{
  public:
    explicit dice(uint64_t seed) : state(seed) {}
    uint64_t operator()()
    {
        uint64_t x = state += 0x9e3779b97f4a7c15ull;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ x >> 27) * 0x94d049bb133111ebull;
        return x ^ x >> 31;
    }
    uint64_t below(uint64_t n) { return n ? (*this)() % n : 0; }
    bool chance(unsigned percent) { return below(100) < percent; }
    uint64_t seed() const { return state; } // seed of dice that go on like these
    double unit() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }

  private:
    uint64_t state;
};

// A fault of one transfer, or of one allocation of the library; `some`: of reads and writes by chance. The last two end the
// process there; `power` also takes some of the written bytes that nothing has flushed.
enum class fault_kind { none, read, write, flush, slow, some, memory, kill, power };

struct world_opts {
    uint64_t seed = 0;
    unsigned stay = 4; // a thread goes on after `stay - 1` of `stay` turns in which it could
};

// The calling thread becomes the first of the world. `on_end` is told how it ended, if not well, and `on_crash` is called where
// a fault ends it. Neither may return.
void world_start(const world_opts &opts, std::function<void(const std::string &)> on_end, std::function<void()> on_crash);

// Begins to count anew the turns and the time without a transfer, of which more than so many are a hang.
void world_operation();

// From now on the nth transfer of this kind (from 1) fails and, with `lasts`, all behind it until another call. With an
// `error` of 0 it moves a part of its bytes; `slow` takes `error` milliseconds. Transfers of every kind count for `kill` and
// `power`. With `some`, `nth` in a thousand fail.
void world_fault(fault_kind kind, unsigned nth, int error, bool lasts);
unsigned world_errors(); // that transfers and allocations have returned since the start. Slow and partial ones are none
bool world_was_hit();    // whether any fault has hit the world

uint64_t world_trace(); // a hash of all turns and transfers: two runs of a seed have the same

void world_sleep(uint64_t nanoseconds);
void world_remember(); // what files were before each write that is not flushed. Without it `power` takes nothing
} // namespace sim

#endif
