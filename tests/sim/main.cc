// main.cc: runs programs that seeds draw, or that files hold, and makes those that fail smaller.
//
//      sim [--seconds N] [--no-shrink] [--only TEXT]... FIRST LAST       seeds; those whose programs have these texts
//      sim [--seconds N] [--no-shrink] [--loud] FILE...                   programs
//      sim --show SEED                                                    prints a program
#include "program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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
};

enum { SECONDS = 120 }; // of a program

result run_process(const program &p, const std::string &folder, bool is_loud, unsigned life)
{
    int ends[2];
    if (pipe(ends) != 0)
        return {FOUND, "no pipe"};
    std::cout.flush();
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        alarm(SECONDS);
        run_program(p, folder, ends[1], is_loud, life);
    }
    close(ends[1]);
    result r;
    char part[4096];
    for (ssize_t got; (got = read(ends[0], part, sizeof part)) > 0;)
        r.text.append(part, static_cast<size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : FOUND;
    if (WIFSIGNALED(status))
        r.text += std::string("ended by signal ") + strsignal(WTERMSIG(status)) + "\n";
    return r;
}

// In a process of its own, or several where it crashes, and a folder of its own that is removed.
result run_one(const program &p, bool is_loud)
{
    std::string folder = (std::filesystem::exists("/dev/shm") ? "/dev/shm" : ".") + std::string("/zoff-sim-XXXXXX");
    if (!mkdtemp(folder.data()))
        return {FOUND, "no folder"};
    result r;
    for (unsigned life = 0; life == 0 || r.code == CRASHED; life++)
        r = run_process(p, folder, is_loud, life);
    if (r.code != FINE && r.code != REFUSED)
        r.code = FOUND;
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
            const result now = run_one(other, false);
            if (now.code != FOUND || kind_of(now) != kind_of(r))
                return false;
            least = now;
            return true;
        },
        2000);
    std::cout << "the smallest program that fails in this way:\n# " << kind_of(least) << "\n"
              << to_text(small) << least.text << std::endl;
}
} // namespace

static int usage(const std::string &why)
{
    std::cerr << "sim: " << why << "\nusage: sim [--seconds N] [--no-shrink] [--only TEXT]... FIRST LAST\n"
              << "       sim [--no-shrink] [--loud] FILE...\n       sim --show SEED\n";
    return 2;
}

int main(int argc, char **argv)
{
    bool is_loud = false, shrinks = true;
    double seconds = 0;
    std::vector<std::string> words, wanted;
    const auto is_number = [](const std::string &word) { return word.find_first_not_of("0123456789") == std::string::npos; };
    for (int i = 1; i < argc; i++) {
        const std::string word = argv[i], next = i + 1 < argc ? argv[i + 1] : "";
        if (word == "--loud")
            is_loud = true, shrinks = false;
        else if (word == "--no-shrink")
            shrinks = false;
        else if (word == "--seconds" && !next.empty())
            seconds = atof(argv[++i]);
        else if (word == "--only" && !next.empty())
            wanted.push_back(argv[++i]);
        else if (word == "--show" && !next.empty() && is_number(next))
            return std::cout << to_text(generate(strtoull(next.c_str(), nullptr, 10))), 0;
        else if (word[0] == '-')
            return usage("unknown option, or one without its value: " + word);
        else
            words.push_back(word);
    }
    if (words.empty())
        return usage("which programs?");
    unsigned found = 0, refused = 0, fine = 0;
    const auto take = [&](const program &p, const std::string &name) {
        const result r = run_one(p, is_loud);
        fine += r.code == FINE;
        refused += r.code == REFUSED;
        found += r.code == FOUND;
        if (r.code == FOUND)
            report(p, r, shrinks, name);
        return r;
    };
    const time_t began = time(nullptr);
    const bool draws = words.size() == 2 && is_number(words[0]) && is_number(words[1]);
    if (draws) {
        const uint64_t last = strtoull(words[1].c_str(), nullptr, 10);
        for (uint64_t seed = strtoull(words[0].c_str(), nullptr, 10); seed <= last; seed++) {
            if (seconds > 0 && difftime(time(nullptr), began) > seconds) {
                std::cout << "cut before seed " << seed << "\n";
                break;
            }
            const program p = generate(seed);
            const std::string text = to_text(p);
            if (std::all_of(wanted.begin(), wanted.end(), [&](const auto &one) { return text.find(one) != std::string::npos; }))
                (void)take(p, "seed " + std::to_string(seed));
        }
    }
    for (const std::string &path : draws ? std::vector<std::string>() : words) {
        std::ifstream in(path);
        std::stringstream text;
        text << in.rdbuf();
        const program p = read_program(text.str());
        if (std::none_of(p.begin(), p.end(), is_operation))
            return usage("no program in the file '" + path + "'");
        const result r = take(p, path);
        if (r.code == REFUSED) // it shows nothing
            std::cout << "REFUSED " << path << ": " << r.text;
    }
    std::cout << fine << " programs are fine, " << refused << " were refused, " << found << " failed, in "
              << time(nullptr) - began << " s\n";
    // Most programs that are drawn must run.
    return found != 0 || (draws ? refused > 10 && refused > fine / 4 : refused != 0);
}
