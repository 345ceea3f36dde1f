/* SPDX-License-Identifier: Apache-2.0 */
// main.cc: runs programs that seeds draw, or that files hold, and makes those that fail smaller.
//
//      sim [--seconds N] [--only TEXT]... FIRST LAST   Seeds, up to the first failure; those whose programs have these texts.
//                                                      Each tenth one runs twice, with the same turns and transfers.
//      sim [--loud] FILE...                            Programs.
//      sim --each-nth FILE...                          Each kind in place of `fault=each`, nth=1, 2, ...
//      sim --no-shrink ...                             Goes on behind a failure, and makes no program smaller.
//      sim --show SEED                                 Prints a program.
//      sim --as-c SEED|FILE                            Prints it in C. It runs once, and must not be refused.
#include "program.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace sim;

namespace
{
struct result {
    int code = FINE; // FINE, FOUND, REFUSED
    std::string text;
    bool was_hit = false; // a fault has hit the run
    std::string trace;    // world_trace() of each process
};

enum { SECONDS = 120, MOST_SECONDS = 1800 }; // of a program: of the CPU, because the machine may be busy, and in all

result run_process(const program &p, const std::string &folder, run_opts opts, unsigned life)
{
    int ends[2];
    if (pipe(ends) != 0)
        return {FOUND, "no pipe"};
    std::cout.flush();
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        // Its threads take turns: on one CPU they hand over in a third of the time.
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
        (void)sched_setaffinity(0, sizeof one, &one);
        const rlimit limit = {SECONDS, RLIM_INFINITY};
        (void)setrlimit(RLIMIT_CPU, &limit);
        alarm(MOST_SECONDS);
        run_program(p, folder, ends[1], opts, life);
    }
    close(ends[1]);
    result r;
    char part[4096];
    for (ssize_t got; (got = read(ends[0], part, sizeof part)) > 0;)
        r.text.append(part, static_cast<size_t>(got));
    close(ends[0]);
    r.trace = r.text.substr(0, TRACE_DIGITS);
    r.text.erase(0, TRACE_DIGITS);
    int status = 0;
    waitpid(child, &status, 0);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : FOUND;
    if (WIFSIGNALED(status))
        r.text += std::string("ended by signal ") + strsignal(WTERMSIG(status)) + "\n";
    return r;
}

// In a process of its own, or several where it crashes, and a folder of its own that is removed.
result run_one(const program &p, run_opts opts, std::string *in_c = nullptr)
{
    std::string folder = (std::filesystem::exists("/dev/shm") ? "/dev/shm" : ".") + std::string("/zoff-sim-XXXXXX");
    if (!mkdtemp(folder.data()))
        return {FOUND, "no folder"};
    result r;
    bool has_crashed = false;
    for (unsigned life = 0; life == 0 || r.code == CRASHED; life++) {
        const std::string before = r.trace;
        r = run_process(p, folder, opts, life);
        r.trace = before + r.trace;
        has_crashed = has_crashed || r.code == CRASHED;
    }
    r.was_hit = has_crashed || (r.code == FINE && r.text == HIT);
    if (r.code != FINE && r.code != REFUSED)
        r.code = FOUND;
    if (in_c)
        *in_c = to_c(p, folder);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    return r;
}

// The text of a failure up to its first number. A smaller program must fail in the same way.
std::string kind_of(const result &r)
{
    std::string kind = r.text.substr(0, r.text.find_first_of(":0123456789\n"));
    return kind;
}

void report(const program &p, const result &r, bool shrinks, const std::string &name)
{
    std::cout << "FOUND " << name << ": " << r.text << std::flush;
    if (!shrinks)
        return;
    result least = r;
    const program small = shrink(
        p,
        [&](const program &other) {
            const result now = run_one(other, {});
            if (now.code != FOUND || kind_of(now) != kind_of(r))
                return false;
            least = now;
            return true;
        },
        2000);
    std::cout << "the smallest program that fails in this way:\n# " << kind_of(least) << "\n"
              << to_text(small) << least.text << std::endl;
    std::string in_c;
    (void)run_one(small, {false, true}, &in_c);
    std::cout << "the same in C:\n" << in_c << std::endl;
}
} // namespace

// The program with this in place of `fault=each`; empty: it has none.
static program with_fault(program p, const std::string &kind, unsigned nth)
{
    for (std::string &text : p) {
        const std::string each = " fault=each";
        const size_t at = text.find(each);
        if (at != std::string::npos)
            return text.replace(at, each.size(), " fault=" + kind + " nth=" + std::to_string(nth) + " errno=5"), p;
    }
    return {};
}

static int usage(const std::string &why)
{
    std::cerr
        << "sim: " << why << "\nusage: sim [--seconds N] [--no-shrink] [--only TEXT]... FIRST LAST\n"
        << "       sim [--no-shrink] [--loud] [--each-nth] FILE...\n       sim --show SEED\n       sim --as-c SEED|FILE\n";
    return 2;
}

int main(int argc, char **argv)
{
    bool is_loud = false, shrinks = true, each = false;
    double seconds = 0;
    std::vector<std::string> words, wanted;
    const auto is_number = [](const std::string &word) { return word.find_first_not_of("0123456789") == std::string::npos; };
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i], next = i + 1 < argc ? argv[i + 1] : "";
        if (word == "--loud")
            is_loud = true, shrinks = false;
        else if (word == "--no-shrink")
            shrinks = false;
        else if (word == "--each-nth")
            each = true;
        else if (word == "--seconds" && !next.empty())
            seconds = atof(argv[++i]);
        else if (word == "--only" && !next.empty())
            wanted.push_back(argv[++i]);
        else if (word == "--show" && !next.empty() && is_number(next))
            return std::cout << to_text(generate(strtoull(next.c_str(), nullptr, 10))), 0;
        else if (word == "--as-c" && !next.empty()) {
            std::stringstream text;
            text << std::ifstream(next).rdbuf();
            const program p = is_number(next) ? generate(strtoull(next.c_str(), nullptr, 10)) : read_program(text.str());
            std::string in_c;
            const result r = run_one(p, {false, true}, &in_c);
            std::cout << in_c;
            std::cerr << r.text;
            return r.code == REFUSED;
        } else if (word[0] == '-')
            return usage("unknown option, or one without its value: " + word);
        else
            words.push_back(word);
    }
    if (words.empty())
        return usage("which programs?");
    unsigned found = 0, refused = 0, fine = 0;
    bool stopped = false;
    const auto take = [&](const program &p, const std::string &name, bool twice = false) {
        result r = run_one(p, {is_loud, false});
        const bool repeats = !twice || r.code == FOUND || run_one(p, {}).trace == r.trace;
        if (!repeats)
            r = {FOUND, "two runs differ\n"};
        fine += r.code == FINE;
        refused += r.code == REFUSED;
        found += r.code == FOUND;
        if (r.code == FOUND)
            report(p, r, shrinks && repeats, name);
        if (r.code == FOUND && shrinks)
            stopped = true;
        return r;
    };
    const time_t began = time(nullptr);
    const bool draws = words.size() == 2 && is_number(words[0]) && is_number(words[1]);
    if (draws) {
        const uint64_t last = strtoull(words[1].c_str(), nullptr, 10);
        for (uint64_t seed = strtoull(words[0].c_str(), nullptr, 10); seed <= last && !stopped; seed++) {
            if (seconds > 0 && difftime(time(nullptr), began) > seconds) {
                std::cout << "cut before seed " << seed << "\n";
                break;
            }
            const program p = generate(seed);
            const std::string text = to_text(p);
            if (std::all_of(wanted.begin(), wanted.end(), [&](const auto &one) { return text.find(one) != std::string::npos; }))
                (void)take(p, "seed " + std::to_string(seed), seed % 10 == 0);
        }
    }
    for (const std::string &path : draws ? std::vector<std::string>() : words) {
        if (stopped)
            break;
        std::ifstream in(path);
        std::stringstream text;
        text << in.rdbuf();
        const program p = read_program(text.str());
        if (std::none_of(p.begin(), p.end(), is_operation))
            return usage("no program in the file '" + path + "'");
        if (each && with_fault(p, "", 0).empty())
            return usage("no fault=each in the file '" + path + "'");
        for (const char *kind : {"read", "write", "flush", "memory", "kill", "power"}) {
            result r = {FINE, "", each && !stopped};
            for (unsigned nth = 1; r.code == FINE && r.was_hit; nth++)
                r = take(with_fault(p, kind, nth), path + " " + kind + " nth=" + std::to_string(nth));
        }
        if (each)
            continue;
        const result r = take(p, path);
        if (r.code == REFUSED) // a refused program shows nothing
            std::cout << "REFUSED " << path << ": " << r.text;
    }
    std::cout << fine << " programs are fine, " << refused << " were refused, " << found << " failed, in "
              << time(nullptr) - began << " s\n";
    // Most programs that are drawn must run.
    return found != 0 || (draws ? refused > 10 && refused > fine / 4 : refused != 0);
}
