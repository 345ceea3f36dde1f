// names_test.cc: parameters are found by name, and ties that contradict themselves are refused.
#include "sample.h"

using namespace zoff_test;

namespace
{
struct list {
    explicit list(std::vector<std::string> names_) : names(names_), params(names.size())
    {
        for (size_t i = 0; i < names.size(); i++) {
            params[i].name = &names[i][0];
            params[i].count = 4;
            params[i].slices = 2;
            params[i].states = 1;
        }
        manifest.params = params.data();
        manifest.param_count = params.size();
    }
    ~list() { zoff_base_mem_free(sorted); }
    zoff_status sort() { return zoff_archive_names_sort(params.data(), params.size(), &sorted); }
    std::vector<std::string> names;
    std::vector<zoff_archive_param> params;
    zoff_archive_manifest manifest = {};
    const zoff_archive_param **sorted = nullptr;
};
} // namespace

TEST(names, are_found)
{
    list l({"b", "", "a", "\xff", "ab"});
    ASSERT_ZOFF_OK(l.sort());
    for (size_t i = 0; i < l.names.size(); i++)
        EXPECT_EQ(&l.params[i], zoff_archive_names_find(l.sorted, l.params.size(), l.names[i].c_str()));
    EXPECT_EQ(nullptr, zoff_archive_names_find(l.sorted, l.params.size(), "aa"));
    EXPECT_EQ(nullptr, zoff_archive_names_find(l.sorted, 0, "a"));
}

TEST(names, must_differ_or_are_refused)
// X_parameters_have_are_refused)
{
    list l({"b", "a", "b"});
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "two parameters 'b'", l.sort());
}

TEST(names, for_ties_must_be_there_and_fit)
{
    list l({"a", "b", "c"});
    ASSERT_ZOFF_OK(l.sort());
    l.params[1].states = 0;
    ASSERT_ZOFF_OK(zoff_archive_names_tie(&l.manifest, l.sorted, "a", &l.params[1]));
    EXPECT_EQ(1u, l.params[1].tied_to);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "not there", zoff_archive_names_tie(&l.manifest, l.sorted, "x", &l.params[1]));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no states", zoff_archive_names_tie(&l.manifest, l.sorted, "b", &l.params[2]));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "another size", zoff_archive_names_tie(&l.manifest, l.sorted, "a", &l.params[0]));
    l.params[2].slices = 1;
    l.params[2].count = 8;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "another size", zoff_archive_names_tie(&l.manifest, l.sorted, "a", &l.params[2]));
}
