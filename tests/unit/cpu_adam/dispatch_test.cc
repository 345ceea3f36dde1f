/* SPDX-License-Identifier: Apache-2.0 */
// dispatch_test.cc: which table a process chooses, its log line, and that results do not depend on the choice. A process
// chooses once, so each case is a process of its own: adam_hash.
#include "zoff_test.h"

extern "C" {
#include "cpu.h"
#include "kernels.h"
}

#include <stdio.h>
#include <vector>

namespace
{
struct outcome {
    std::string isa, hash, words;
};

// Run adam_hash with ZOFF_ISA set (not set for ""), and separate its result from its log.
outcome run(const std::string &isa, unsigned threads)
{
    const std::string command = (isa.empty() ? "env -u ZOFF_ISA " : "env ZOFF_ISA=" + isa + " ") + "'" ADAM_HASH "' " +
                                std::to_string(threads) + " 2>&1";
    outcome result;
    FILE *pipe = popen(command.c_str(), "r");
    if (!pipe)
        return result;
    char line[4096];
    while (fgets(line, sizeof line, pipe)) {
        char name[32], hash[32];
        if (sscanf(line, "%31s %16[0-9a-f]", name, hash) == 2 && line[0] != '[') {
            result.isa = name;
            result.hash = hash;
        } else {
            result.words += line;
        }
    }
    EXPECT_EQ(pclose(pipe), 0) << result.words;
    return result;
}

size_t count(const std::string &text, const std::string &part)
{
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        found++;
    return found;
}

std::string best()
{
    return zoff_base_cpu_has_avx512() ? "avx512"
           : zoff_base_cpu_has_avx2() ? "avx2"
           : zoff_base_cpu_has_sve()  ? "sve"
           : zoff_base_cpu_has_neon() ? "neon"
                                      : "scalar";
}

// names in the order of the table, as in messages
const std::vector<std::string> ALL = {"scalar", "avx2", "avx512", "neon", "sve"};
#if defined(__x86_64__)
const std::string BUILT = "auto, scalar, avx2, avx512", FASTEST = "avx512", NEEDS = "AVX-512 F, BW, DQ and VL";
#elif defined(__aarch64__)
const std::string BUILT = "auto, scalar, neon, sve", FASTEST = "sve", NEEDS = "SVE";
#else
const std::string BUILT = "auto, scalar", FASTEST = "scalar", NEEDS = "nothing";
#endif

TEST(dispatch, each_instruction_set_and_team_gives_the_same_hash_after_100_steps)
{
    const outcome reference = run("scalar", 1);
    EXPECT_EQ(reference.isa, "scalar");
    ASSERT_EQ(reference.hash.size(), 16u) << reference.words;
    for (const std::string &isa : ALL) {
        if (!zoff_adam_dispatch_table(isa.c_str()))
            continue;
        for (unsigned threads : {2u, 7u}) {
            const outcome other = run(isa, threads);
            EXPECT_EQ(other.isa, isa);
            EXPECT_EQ(other.hash, reference.hash) << isa << " with " << threads << " threads";
        }
    }
}

TEST(dispatch, avx512_runs_here)
{
    if (!zoff_base_cpu_has_avx512())
        GTEST_SKIP() << "this CPU has no AVX-512 F, BW, DQ and VL: its kernels were compiled but not run";
    EXPECT_EQ(run("avx512", 1).isa, "avx512");
}

TEST(dispatch, tables_of_other_cpus_are_not_there)
{
    for (const std::string &isa : ALL)
        EXPECT_TRUE(BUILT.find(isa) != std::string::npos || !zoff_adam_dispatch_table(isa.c_str())) << isa;
}

TEST(dispatch, the_best_is_taken_silently)
{
    for (const char *isa : {"", "auto"}) {
        const outcome chosen = run(isa, 1);
        EXPECT_EQ(chosen.isa, best());
        EXPECT_EQ(chosen.words, "");
    }
    EXPECT_EQ(run(best(), 1).words, "");
}

TEST(dispatch, a_slower_table_is_used_with_one_warning)
{
    if (best() == "scalar")
        GTEST_SKIP() << "this CPU has nothing faster than the scalar kernels";
    const outcome forced = run("scalar", 1);
    EXPECT_EQ(forced.isa, "scalar");
    EXPECT_EQ(count(forced.words, "warn"), 1u) << forced.words;
    EXPECT_EQ(count(forced.words, "ZOFF_ISA=scalar forces slower kernels than this CPU's " + best()), 1u) << forced.words;
}

TEST(dispatch, an_unknown_name_is_refused_with_one_warning)
{
    for (const char *isa : {"sse9", "AVX2", "NEON", "avx2,avx512"}) {
        const outcome chosen = run(isa, 1);
        EXPECT_EQ(chosen.isa, best());
        EXPECT_EQ(count(chosen.words, "warn"), 1u) << chosen.words;
        EXPECT_EQ(count(chosen.words,
                        std::string("ZOFF_ISA=") + isa + " names no kernels of this build (" + BUILT + "); using " + best()),
                  1u)
            << chosen.words;
    }
}

TEST(dispatch, missing_instruction_sets_are_refused_with_one_warning)
{
    if (best() == FASTEST)
        GTEST_SKIP() << "this CPU has every instruction set that there are kernels for";
    const outcome chosen = run(FASTEST, 1);
    EXPECT_EQ(chosen.isa, best());
    EXPECT_EQ(count(chosen.words, "warn"), 1u) << chosen.words;
    EXPECT_EQ(count(chosen.words, "ZOFF_ISA=" + FASTEST + ", but this CPU lacks " + NEEDS + "; using " + best()), 1u)
        << chosen.words;
}

TEST(dispatch, tables_are_complete)
{
    ASSERT_NE(zoff_adam_dispatch_table("scalar"), nullptr);
    EXPECT_EQ(zoff_adam_dispatch_table("none"), nullptr);
    EXPECT_EQ(zoff_adam_dispatch_table(""), nullptr);
    for (const std::string &isa : ALL) {
        const struct zoff_kernels *table = zoff_adam_dispatch_table(isa.c_str());
        if (!table)
            continue;
        EXPECT_EQ(table->name, isa);
#define K(kernel, piece_type) EXPECT_NE(table->kernel, nullptr) << isa << " lacks " #kernel;
        ZOFF_KERNEL_LIST(K)
#undef K
    }
    EXPECT_GE(zoff_adam_dispatch_threads(), 1u);
    EXPECT_STREQ(zoff_isa(), zoff_adam_dispatch_kernels()->name);
}
} // namespace
