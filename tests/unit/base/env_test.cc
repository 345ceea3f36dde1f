// env_test.cc: the table of environment variables, and what is read for each of its lines.
#include "zoff_test.h"

#include <string.h>

#include <set>

extern "C" {
#include "env.h"
}

TEST(env, every_variable_is_ours_and_listed_once)
{
    std::set<std::string> names;
    for (int id = 0; id < ZOFF_ENV_COUNT; id++) {
        const char *name = zoff_base_env_name(static_cast<zoff_env>(id));
        EXPECT_EQ(0, strncmp(name, "ZOFF_", 5)) << name;
        EXPECT_TRUE(names.insert(name).second) << name;
    }
    EXPECT_EQ(static_cast<size_t>(ZOFF_ENV_COUNT), names.size());
    EXPECT_STREQ("ZOFF_ISA", zoff_base_env_name(ZOFF_ENV_ISA));
}

TEST(env, unset_and_empty_are_the_same)
{
    for (int i = 0; i < ZOFF_ENV_COUNT; i++) {
        const auto id = static_cast<zoff_env>(i);
        const char *name = zoff_base_env_name(id);
        const char *before = getenv(name);
        const std::string kept = before ? before : "";
        setenv(name, "some value", 1);
        EXPECT_STREQ("some value", zoff_base_env_get(id));
        setenv(name, "", 1);
        EXPECT_EQ(nullptr, zoff_base_env_get(id));
        unsetenv(name);
        EXPECT_EQ(nullptr, zoff_base_env_get(id));
        if (before)
            setenv(name, kept.c_str(), 1);
    }
}

TEST(env, every_line_of_the_table_has_a_default_and_help)
{
#define E(id, variable, fallback, help)                                                                                        \
    EXPECT_GT(strlen(fallback), 0u) << variable;                                                                               \
    EXPECT_NE(nullptr, strstr(help, fallback)) << variable << ": the help lists the values, the default among them";
    ZOFF_ENV_LIST(E)
#undef E
}
