/* SPDX-License-Identifier: Apache-2.0 */
// race_test.cc: tests what benchmarks compute from samples: formulas, figures with their reasons, and samples of a child.
#include "zoff_test.h"

#include <jansson.h>
#include <stdio.h>
#include <zoff/zoff.h>

#include <cmath>
#include <string>
#include <vector>

extern "C" {
#include "report.h"
}

namespace
{
class bench_race : public testing::Test
{
  protected:
    ~bench_race() override
    {
        while (race_book.count)
            free(race_book.races[--race_book.count]);
    }

    race_entry *add(const char *name, const std::vector<double> &seconds)
    {
        race_line line = {};
        line.name = name;
        line.what = "";
        line.bytes = 24;
        race_entry *e = race_add(r, &line, 1000, nullptr, 1);
        std::copy(seconds.begin(), seconds.end(), e->seconds);
        r->rounds = (unsigned)seconds.size();
        return e;
    }
    double value(const char *formula) const { return race_values(r, formula, false).median; }
    const bench_figure &figure(const char *formula, unsigned enough)
    {
        bench_asked asked = {"ratio", 1, 2, "a / b", "part", formula, 1, enough};
        bench_figures.count = 0;
        bench_figures.missing = "not run";
        return *bench_figures_add(&asked, 1);
    }

    race *r = race_open("part", "1000 elements");
};

TEST_F(bench_race, formulas_have_the_usual_order_of_operations)
{
    add("a", {8});
    add("b_2", {2})->other[0] = 0.5;
    add("fio 1m x8", {4});
    EXPECT_DOUBLE_EQ(4, value("a / b_2"));
    EXPECT_DOUBLE_EQ(2, value("a / b_2 / 2"));
    EXPECT_DOUBLE_EQ(3, value("a-b_2-3"));
    EXPECT_DOUBLE_EQ(1 - 3.0, value("1 - (a - b_2) / 2"));
    EXPECT_DOUBLE_EQ(22.0 / 28 * 4, value("22 / 28 * a / b_2"));
    EXPECT_DOUBLE_EQ(2, value("a / 'fio 1m x8'"));
    EXPECT_DOUBLE_EQ(24 * 1000 + 1.5, value("a.bytes * a.elements + b_2 - b_2.other"));
}

TEST_F(bench_race, the_longest_leaves_out_what_was_not_measured_but_the_first)
{
    add("a", {8});
    add("b", {2});
    add("gone", {NAN});
    EXPECT_DOUBLE_EQ(8, value("max(b, a)"));
    EXPECT_DOUBLE_EQ(1, value("a / max(a, b, gone, never)"));
    EXPECT_TRUE(std::isnan(value("a / max(gone, b)")));
    EXPECT_TRUE(std::isnan(value("a / never")));
    EXPECT_EQ(0u, race_values(nullptr, "a / b", false).count);
}

TEST_F(bench_race, a_race_is_found_by_the_end_of_its_label)
{
    race *other = race_open("part", "2000");
    EXPECT_EQ(r, race_of("part"));
    EXPECT_EQ(r, race_of("part/elements"));
    EXPECT_EQ(other, race_of("part/2000"));
    EXPECT_EQ(nullptr, race_of("par"));
    EXPECT_EQ(nullptr, race_of("part/3000"));
}

TEST_F(bench_race, quiet_rounds_decide_if_they_are_enough)
{
    race_entry *a = add("a", {4, 4, 9, 9, 9});
    add("b", {1, 1, 1, 1, 1});
    add("c", {1, 1, 1, 1, 1})->disturbed[0] = true; // takes no part in the figure
    for (unsigned k = 2; k < 5; k++)
        a->disturbed[k] = true;
    EXPECT_DOUBLE_EQ(4, figure("a / b", 2).value);
    bench_figures_check_quiet("others worked");
    EXPECT_STREQ("", bench_figures.list[0].spoilt);
    EXPECT_TRUE(bench_figures_held(&bench_figures.list[0]));

    EXPECT_DOUBLE_EQ(9, figure("a / b", 3).value);
    bench_figures_check_quiet("others worked");
    EXPECT_STREQ("others worked in 3 of 5 rounds; run again on a quieter machine", bench_figures.list[0].spoilt);
    EXPECT_FALSE(bench_figures_held(&bench_figures.list[0]));
}

TEST_F(bench_race, too_few_rounds_are_void_and_none_have_the_reason_of_the_race)
{
    add("a", {4});
    add("b", {1});
    figure("a / b", 3);
    bench_figures_check_rounds();
    EXPECT_NE(std::string::npos, std::string(bench_figures.list[0].spoilt).find("1 rounds")) << bench_figures.list[0].spoilt;
    EXPECT_STREQ("not run", figure("a / never", 3).missing);
    r->missing = "no disk here";
    EXPECT_STREQ("no disk here", figure("a / never", 3).missing);
    EXPECT_TRUE(bench_figures_measured(&figure("a / b", 3)));
}

TEST_F(bench_race, the_first_reason_for_void_stays)
{
    figure("a / b", 3);
    bench_figures_void(2, "about something else");
    bench_figures_void(1, bench_text("about %d", 7));
    bench_figures_void(0, "about everything");
    EXPECT_STREQ("about 7", bench_figures.list[0].spoilt);
}

TEST_F(bench_race, samples_of_a_child_are_read_as_they_were_printed)
{
    add("a", {4, 4.25, 1e-6});
    add("b", {1, NAN, 3})->disturbed[2] = true;
    testing::internal::CaptureStdout();
    race_print_samples(r);
    const std::string line = testing::internal::GetCapturedStdout();
    race *own = r;
    r = race_open("read", "of the child");
    add("a", {});
    add("b", {});
    race_read_samples(r, line.c_str());
    ASSERT_EQ(3u, r->rounds) << line;
    EXPECT_EQ(1u, r->clean_rounds);
    for (unsigned k = 0; k < 3; k++)
        EXPECT_DOUBLE_EQ(own->entries[0].seconds[k], r->entries[0].seconds[k]);
    EXPECT_TRUE(std::isnan(r->entries[1].seconds[1]));
    EXPECT_TRUE(r->entries[0].disturbed[2]) << "a round counts as disturbed for all";
    EXPECT_FALSE(r->entries[0].disturbed[0]);
}
} // namespace
