/* SPDX-License-Identifier: Apache-2.0 */
// manifest_test.cc: a manifest is printed, and read back as it was.
#include "sample.h"

using namespace zoff_test;

namespace
{
// A manifest with one parameter and one file.
struct small {
    small()
    {
        param.name = const_cast<char *>("w");
        param.dims = &dim;
        param.dim_count = 1;
        param.count = 10;
        param.slices = 1;
        param.dtype = ZOFF_BF16;
        param.states = 7;
        file = {8192 + 48, 1, 8192, 48, 2};
        memcpy(m.id, "0123456789abcdef", sizeof m.id);
        m.label = const_cast<char *>("tp0");
        m.engines = 3;
        m.sequence = 1000;
        m.replaces = 900;
        m.t = 5;
        m.params = &param;
        m.param_count = 1;
        m.files = &file;
        m.file_count = 1;
    }
    std::string print()
    {
        char *text = nullptr;
        size_t bytes = 0;
        EXPECT_ZOFF_OK(zoff_archive_manifest_print(&m, &text, &bytes));
        const std::string copy(text ? text : "", bytes);
        zoff_base_mem_free(text);
        return copy;
    }
    size_t dim = 10;
    zoff_archive_param param = {};
    zoff_archive_file file = {};
    zoff_archive_manifest m = {};
};
} // namespace

TEST(manifest, refuses_numbers_that_json_lacks)
{
    small s;
    char *text = nullptr;
    size_t bytes = 0;
    s.m.has_scaler = true;
    const zoff_loss_scaler good = {sizeof(zoff_loss_scaler), 2, 0, -1, 1};
    const zoff_loss_scaler bad[] = {{sizeof good, INFINITY, 0, -1, 1}, {sizeof good, NAN, 0, -1, 1},
                                    {sizeof good, 0, 0, -1, 1},        {sizeof good, 2, -1, -1, 1},
                                    {sizeof good, 2, 0, -2, 1},        {sizeof good, 2, 0, -1, UINT64_MAX}};
    for (const auto &scaler : bad) {
        s.m.scaler = scaler;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "loss scaler", zoff_archive_manifest_print(&s.m, &text, &bytes));
    }
    s.m.scaler = good;
    s.print();
}

TEST(manifest, leaves_out_hyper_parameters_that_are_not_known)
{
    small s;
    zoff_archive_manifest m;
    zoff_archive_group group = {const_cast<char *>("SGD"), {0.5, NAN, INFINITY}};
    s.m.groups = &group;
    s.m.group_count = 1;
    const std::string text = s.print();
    ASSERT_ZOFF_OK(zoff_archive_manifest_read("x", text.data(), text.size(), &m));
    ASSERT_EQ(1u, m.group_count);
    EXPECT_EQ(0.5, m.groups[0].numbers[0]);
    EXPECT_TRUE(std::isnan(m.groups[0].numbers[1]) && std::isnan(m.groups[0].numbers[2]));
    EXPECT_EQ(0, m.groups[0].numbers[3]);
    zoff_archive_manifest_free(&m);
}

TEST(manifest, has_a_checksum_that_others_can_compute)
{
    small s;
    const std::string text = s.print();
    EXPECT_EQ(text, with_checksum(text));
    EXPECT_EQ("}\n", text.substr(text.size() - 2));
}
