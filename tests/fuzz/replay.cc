/* SPDX-License-Identifier: Apache-2.0 */
// replay.cc: the main program of a fuzz target in a build without libFuzzer.
//
//     NAME_fuzz FOLDER           every file of the folder, and inputs that the mutator makes of them.
//     NAME_fuzz FOLDER CASE      only that input.
//     NAME_fuzz --seeds FOLDER   writes the inputs with which a corpus begins.
#include "covering.h"
#include "file_bytes.h"
#include "fuzz.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

using namespace zoff_fuzz;

static const char *program, *corpus;
static std::string now; // the input that runs

static void tell(int)
{
    dprintf(STDERR_FILENO, "the input is %s %s %s\n", program, corpus, now.c_str());
}

// A copy of exactly this size, so that a sanitizer sees a read behind it.
static void run(const std::string &input)
{
    std::vector<uint8_t> exact(input.begin(), input.end());
    exact.shrink_to_fit();
    (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

static std::string change(const std::string &input, unsigned seed)
{
    enum { ROOM = 1 << 16 };
    std::vector<uint8_t> room(std::max(input.size(), (size_t)ROOM));
    zoff_test::fast_random random(seed);
    std::copy(input.begin(), input.end(), room.begin());
    size_t bytes = input.size();
    for (unsigned i = 1 + random() % 3; i > 0; i--)
        bytes = LLVMFuzzerCustomMutator(room.data(), bytes, room.size(), random());
    return std::string((const char *)room.data(), bytes);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3)
        return 2;
    std::vector<std::string> inputs = TARGET.seeds();
    if (strcmp(argv[1], "--seeds") == 0 && argc == 3) {
        for (size_t i = 0; i < inputs.size(); i++)
            zoff_test::write_bytes(std::string(argv[2]) + "/seed-" + std::to_string(i), inputs[i]);
        return 0;
    }
    const size_t seeds = inputs.size();
    program = argv[0];
    corpus = argv[1];
    signal(SIGABRT, tell);
    std::vector<std::filesystem::path> names;
    for (const auto &entry : std::filesystem::directory_iterator(corpus))
        names.push_back(entry.path());
    std::sort(names.begin(), names.end());
    for (const auto &name : names) {
        inputs.push_back(zoff_test::bytes_of(name));
        now = name.filename();
        if (argc == 2)
            run(inputs.back());
    }
    const unsigned cases = zoff_test::share_of(TARGET.cases);
    accepted = 0;
    for (unsigned i = argc == 3 ? (unsigned)atoi(argv[2]) : 0; i < cases; i++) {
        now = std::to_string(i);
        // Half of them are made of seeds, because most files of a corpus are inputs that the library refuses.
        run(change(inputs[i / 2 % (i % 2 ? inputs.size() : seeds)], i));
        if (argc == 3)
            return 0;
    }
    dprintf(STDOUT_FILENO, "%zu files; %u of %u changed inputs are accepted\n", names.size(), accepted, cases);
    if (accepted < TARGET.accepted * cases || names.empty()) {
        dprintf(STDOUT_FILENO,
                "fewer than %g %%, so nearly all end at the first check, or there is no corpus: write the seeds anew\n",
                100 * TARGET.accepted);
        return 1;
    }
    return 0;
}
