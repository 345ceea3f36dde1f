/* SPDX-License-Identifier: Apache-2.0 */
// program.h: a program is a list of lines. The first ones describe a world, a configuration, and parameters, the others are
// operations. Each line has all its numbers and seeds, so that the others mean the same without it.

/*
 *      world KEY=N...        Seed and stay, see world.h.
 *      engines N             2: one model over two engines, which clip by one norm.
 *      ranks N               Threads, each of which runs all operations.
 *      device                Weights and gradients are on the emulated device.
 *      both KEY VALUE        A key of the configuration of all engines.
 *      set KEY VALUE         A key of the engines under test alone. $0 and $1 are folders of the engine.
 *      opts KEY=N...         zoff_engine_opts: chunk, host_bytes, progress_thread.
 *      param NAME KEY=N...   count, slices, pad, gpad, dtype, grad, group, engine, seed, frozen, owned, lent, reduced.
 * tie=NAME. step KEY=N...         A micro-step. All operations are in operations.cc.
 */
#ifndef ZOFF_SIM_PROGRAM_H
#define ZOFF_SIM_PROGRAM_H

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace sim
{
typedef std::vector<std::string> program;

struct line {
    explicit line(const std::string &text);
    std::string verb, name;                    // the first two words; the second one only if it has no '='
    std::string rest;                          // text behind the second word
    std::map<std::string, std::string> fields; // KEY=VALUE
    bool has(const char *key) const { return fields.count(key) != 0; }
    uint64_t number(const char *key, uint64_t otherwise = 0) const;
    double real(const char *key, double otherwise = 0) const;
};

program generate(uint64_t seed);
program read_program(const std::string &text);
std::string to_text(const program &p);

// Remove lines and make numbers smaller while `fails` holds, at most `most` tries.
program shrink(program p, const std::function<bool(const program &)> &fails, unsigned most);
bool is_operation(const std::string &text);

// Run a program in this process, which then ends: with 0, or with another number. On `out` are the digits of world_trace(), and
// a reason. CRASHED: with a fault of the world. The next process, whose number is `life`, then goes on in the same folder.
enum { FINE = 0, FOUND = 3, REFUSED = 5, CRASHED = 7, TRACE_DIGITS = 16 };
struct run_opts {
    bool is_loud = false, writes_c = false; // each rank writes its part of the program in C to a file script<rank>
};
inline const char HIT[] = "a fault has hit\n"; // the text of FINE, where one has
[[noreturn]] void run_program(const program &p, const std::string &folder, int out, run_opts opts, unsigned life);
std::string to_c(const program &p, const std::string &folder); // of the scripts in the folder
} // namespace sim

#endif
