/* SPDX-License-Identifier: Apache-2.0 */
// grid.cc: runs all threads of a grid, one after the other. If they exchange values, a warp is 32 fibers. Each fiber runs until
// it has given its value, and continues when all fibers have.
#include "grid.h"

#include <cstdlib>
#include <memory>
#include <ucontext.h>
#include <vector>

namespace zoff_test
{
thread_local dim3 thread_index, block_index, block_size, grid_size;

namespace
{
enum { WARP = 32, STACK = 64 << 10 };

struct warp {
    ucontext_t scheduler;
    ucontext_t fibers[WARP];
    std::unique_ptr<char[]> stacks{new char[WARP * STACK]};
    double given[WARP];
    bool done[WARP];
    unsigned lane;
    const std::function<void()> *thread;
};
thread_local warp *current;

void enter()
{
    (*current->thread)();
    current->done[current->lane] = true;
}

// Run all fibers in rounds until they end. A round ends for a fiber when it gives a value.
void run_warp(unsigned first_thread, const std::function<void()> &thread)
{
    warp w;
    current = &w;
    w.thread = &thread;
    for (unsigned lane = 0; lane < WARP; lane++) {
        w.done[lane] = false;
        getcontext(&w.fibers[lane]);
        w.fibers[lane].uc_stack.ss_sp = w.stacks.get() + lane * STACK;
        w.fibers[lane].uc_stack.ss_size = STACK;
        w.fibers[lane].uc_link = &w.scheduler;
        makecontext(&w.fibers[lane], enter, 0);
    }
    while (!w.done[WARP - 1]) {
        for (w.lane = 0; w.lane < WARP; w.lane++) {
            thread_index.x = first_thread + w.lane;
            swapcontext(&w.scheduler, &w.fibers[w.lane]);
            if (w.done[w.lane] != w.done[0])
                abort(); // all threads of a warp must shuffle equally often
        }
    }
    current = nullptr;
}

void run_block(bool shuffles, const std::function<void()> &thread)
{
    if (shuffles) {
        for (unsigned first = 0; first < block_size.x; first += WARP)
            run_warp(first, thread);
        return;
    }
    for (unsigned x = 0; x < block_size.x; x++) {
        thread_index.x = x;
        thread();
    }
}
} // namespace

// All values of a round are given before any is read; the first switch ensures this. All are read before any of the next round
// is given; the second switch ensures that.
double shuffle_from(double mine, unsigned from)
{
    warp *w = current;
    if (!w)
        abort(); // the table in cudart.cc does not list this kernel as one that shuffles
    const unsigned lane = w->lane;
    w->given[lane] = mine;
    swapcontext(&w->fibers[lane], &w->scheduler);
    const double theirs = w->given[from];
    swapcontext(&w->fibers[lane], &w->scheduler);
    return theirs;
}

double shuffle_down(double mine, unsigned delta, unsigned width)
{
    const unsigned lane = current ? current->lane : 0;
    return shuffle_from(mine, lane % width + delta < width ? lane + delta : lane);
}

void run_grid(dim3 grid, dim3 block, bool shuffles, const std::function<void()> &thread)
{
    grid_size = grid;
    block_size = block;
    thread_index = dim3(0, 0, 0);
    for (unsigned y = 0; y < grid.y; y++) {
        for (unsigned x = 0; x < grid.x; x++) {
            block_index = dim3(x, y, 0);
            run_block(shuffles, thread);
        }
    }
}
} // namespace zoff_test
