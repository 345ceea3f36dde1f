/* SPDX-License-Identifier: Apache-2.0 */
// plugin_test.cc: where plug-ins are searched, the errors if none can be used, and the library's functions for them. The
// plug-ins of tests/support/plugin_under_test.c are real ones.
#include "zoff_test.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

extern "C" {
#include "plugin.h"
#include "plugin_built_in.h"
}

using zoff_test::log_catcher;
using zoff_test::scratch_folder;

namespace
{
const std::string FOLDER = PLUGIN_FOLDER;

class plugin : public testing::Test
{
  protected:
    void SetUp() override { unsetenv("ZOFF_PLUGIN_PATH"); }
    void TearDown() override { unsetenv("ZOFF_PLUGIN_PATH"); }
    static void look_in(const std::string &path) { setenv("ZOFF_PLUGIN_PATH", path.c_str(), 1); }
    zoff_status load(const char *name, bool shares_names = false)
    {
        const zoff_plugin_wish wish = {name, "the thing \"x\"", "Do this first", shares_names};
        memset(&loaded, 0x55, sizeof loaded);
        return zoff_base_plugin_load(&wish, &loaded);
    }
    bool was_filled() const { return loaded.struct_size == sizeof loaded; }
    zoff_plugin loaded = {};
};
} // namespace

TEST_F(plugin, beside_the_library_is_found_without_a_path)
{
    log_catcher log;
    log.expect("the plug-in was loaded, 100 %s");
    ASSERT_ZOFF_OK(load("test_beside"));
    EXPECT_TRUE(was_filled());
    EXPECT_EQ(nullptr, loaded.connect) << "what it does not have";
    ASSERT_NE(nullptr, loaded.built_in);
    const auto *own = static_cast<const zoff_plugin_built_in *>(loaded.built_in);
    EXPECT_NE(nullptr, own->open_accel);
    EXPECT_EQ(nullptr, own->open_comm);
}

TEST_F(plugin, the_folders_of_the_path_are_tried_in_turn)
{
    log_catcher log;
    log.expect("the plug-in was loaded");
    look_in("::/nowhere/at/all:" + FOLDER + "::");
    ASSERT_ZOFF_OK(load("test_full"));
    zoff_accel *accel = nullptr;
    ASSERT_NE(nullptr, loaded.built_in);
    const auto *own = static_cast<const zoff_plugin_built_in *>(loaded.built_in);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "device 7 says %s%n", own->open_accel(7, &accel));
}

TEST_F(plugin, all_that_was_tried_is_told)
{
    look_in("::/nowhere/one::/nowhere/two:"); // an empty entry between two colons is no folder
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "the thing \"x\" is a plug-in, and cannot be loaded: no ", load("test_absent"));
    const std::string words = zoff_last_error();
    EXPECT_NE(std::string::npos, words.find("/libzoff_test_absent.so; no /nowhere/one/libzoff_test_absent.so; no "
                                            "/nowhere/two/libzoff_test_absent.so. Do this first, or set ZOFF_PLUGIN_PATH to "
                                            "the folder of libzoff_test_absent.so"))
        << words;
    EXPECT_FALSE(was_filled()) << "outputs are written on success only";
}

// The program that the next test runs: its first argument has no folder, as a shell passes it for a command found along PATH.
TEST_F(plugin, DISABLED_is_loaded_by_a_command)
{
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "cannot be loaded: no /", load("test_full"));
}

TEST_F(plugin, none_comes_from_the_current_folder)
{
    const scratch_folder folder;
    ASSERT_EQ(0, symlink(FOLDER.c_str(), (folder.path + "/zoff").c_str()));
    const pid_t child = fork();
    if (child == 0) {
        if (chdir(folder.path.c_str()) == 0)
            execl("/proc/self/exe", "base", "--gtest_also_run_disabled_tests",
                  "--gtest_filter=plugin.DISABLED_is_loaded_by_a_command", nullptr);
        _exit(99);
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(plugin, a_file_that_is_no_library_is_told_and_the_next_folder_tried)
{
    const scratch_folder folder;
    std::ofstream(folder.file("libzoff_test_full.so")) << "no library";
    look_in(folder.path);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, folder.file("libzoff_test_full.so: "), load("test_full"));
    log_catcher log;
    log.expect("the plug-in was loaded");
    look_in(folder.path + ":" + FOLDER);
    EXPECT_ZOFF_OK(load("test_full"));
}

TEST_F(plugin, a_path_of_any_length_does_no_harm)
{
    std::string path = "/" + std::string(PATH_MAX, 'x');
    look_in(path);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "Do this first", load("test_absent"));
    EXPECT_EQ(std::string::npos, std::string(zoff_last_error()).find("xxx")) << "no path is so long";
    for (int i = 0; i < 200; i++)
        path += ":/nowhere/number/" + std::to_string(i);
    look_in(path);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "/nowhere/number/0/libzoff_test_absent.so; no ", load("test_absent"));
    EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("Do this first")) << "the list is cut, the advice is not";
    log_catcher log;
    log.expect("the plug-in was loaded");
    look_in(path + ":" + FOLDER);
    EXPECT_ZOFF_OK(load("test_full")) << "however many were tried in vain";
}

TEST_F(plugin, one_for_another_version_is_refused)
{
    look_in(FOLDER);
    for (const char *name : {"test_bare", "test_other"}) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED,
                          std::string("libzoff_") + name +
                              ".so is no plug-in for this version of zoff: install the two together",
                          load(name));
        EXPECT_FALSE(was_filled());
    }
}

TEST_F(plugin, names_are_shared_where_that_is_wished)
{
    log_catcher log;
    log.expect("the plug-in was loaded");
    look_in(FOLDER);
    ASSERT_ZOFF_OK(load("test_full"));
    EXPECT_EQ(nullptr, dlsym(RTLD_DEFAULT, "zoff_test_symbol_of_test_full"));
    ASSERT_ZOFF_OK(load("test_shared", true));
    EXPECT_NE(nullptr, dlsym(RTLD_DEFAULT, "zoff_test_symbol_of_test_shared"));
}
