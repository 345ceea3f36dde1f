/* SPDX-License-Identifier: Apache-2.0 */
// mounts_test.cc: states on mounts that are not a plain disk. One gives all files another owner, as network file systems and
// folders of a virtual machine's host do. One is read-only. One is memory, in a cgroup that has less than the files need.
#include "aio_place.h"
#include "config_text.h"
#include "small_engine.h"

#include <sys/resource.h>

#include <fstream>
#include <functional>

using namespace zoff_test;

namespace
{
// A folder behind a FUSE file system. `why_not` says why it could not be mounted.
class bound
{
  public:
    bound(const std::string &from, const std::string &where, const std::string &options) : folder(where)
    {
        if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) != 0)
            why_not = "mounting needs root and /dev/fuse";
        else if (run("command -v bindfs") != 0)
            why_not = "bindfs is not installed";
        else if (run("mkdir -p '" + from + "' '" + where + "' && bindfs " + options + " '" + from + "' '" + where + "'") != 0)
            why_not = "bindfs cannot be mounted here";
    }
    ~bound()
    {
        if (why_not.empty() && run("umount '" + folder + "'") != 0 && run("umount -l '" + folder + "'") != 0)
            ADD_FAILURE() << "cannot unmount " << folder;
    }
    bound(const bound &) = delete;
    std::string folder, why_not;
};

// A cgroup with so many bytes of memory; a process that calls enter() is in it. `why_not` says why there is none.
class memory_group
{
  public:
    explicit memory_group(uint64_t bytes)
    {
        const bool is_first = access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK) == 0;
        folder = std::string(is_first ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup") + "/zoff-test-" + std::to_string(getpid());
        const std::string limit = folder + (is_first ? "/memory.limit_in_bytes" : "/memory.max");
        if (geteuid() != 0 || mkdir(folder.c_str(), 0755) != 0)
            why_not = "no cgroup can be made here";
        else if (!(std::ofstream(limit) << bytes << std::flush))
            why_not = "the cgroup takes no limit of memory";
    }
    ~memory_group() { rmdir(folder.c_str()); }
    memory_group(const memory_group &) = delete;
    bool enter() const { return bool(std::ofstream(folder + "/cgroup.procs") << getpid() << std::flush); }
    std::string folder, why_not;
};

// Open an engine of one parameter whose states persist in `folder` (none: they are in DRAM), take a step, save it, load it, and
// close it.
zoff_status train(const std::string &folder, size_t count, int64_t *t, const char *saved = nullptr)
{
    std::vector<float> weights(count, 1), grads(count, 1);
    const std::string text = folder.empty()
                                 ? "{}"
                                 : R"({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": ")" + folder +
                                       R"("}}, "zoff": {"persist": true, "host_memory": "4MiB"}})";
    zoff_config *config = nullptr;
    zoff_status status = zoff_config_open(nullptr, &config);
    if (status == ZOFF_OK)
        status = zoff_config_read_text(config, text.c_str(), text.size(), "mounts");
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    opts.config = config;
    zoff_param_desc desc = ZOFF_PARAM_DESC_INIT;
    desc.value = weights.data();
    desc.grad = grads.data();
    desc.count = count;
    desc.name = "w";
    zoff_engine *engine = nullptr;
    *t = -1;
    if (status == ZOFF_OK)
        status = zoff_engine_open(&opts, &desc, 1, &engine);
    if (status == ZOFF_OK)
        status = zoff_step_count(engine, t);
    if (status == ZOFF_OK && *t > 0)
        status = zoff_params_push(engine);
    if (status == ZOFF_OK)
        status = zoff_step(engine, nullptr, nullptr);
    if (status == ZOFF_OK && saved)
        status = zoff_checkpoint_save(engine, saved, nullptr);
    if (status == ZOFF_OK && saved)
        status = zoff_checkpoint_load(engine, saved, nullptr);
    zoff_engine_destroy(engine);
    zoff_config_close(config);
    return status;
}
} // namespace

// A user without rights, under limits of a shared machine.
namespace
{
std::string as_a_stranger(const std::string &folder, const std::function<std::string()> &work)
{
    if (chmod(folder.c_str(), 0777) != 0)
        return "cannot prepare";
    return in_child([&]() -> std::string {
        if (chdir(folder.c_str()) != 0 || setgid(54321) != 0 || setuid(54321) != 0)
            return "cannot become another user";
        return work();
    });
}
} // namespace

// First, because a child of a process with a team works alone anyway.
TEST(Strangers, OneThreadIsEnoughWhereTheSystemStartsNoMore)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "only root can become another user";
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        GTEST_SKIP() << "one CPU needs one thread";
    scratch_folder scratch;
    EXPECT_EQ(as_a_stranger(scratch.path,
                            []() -> std::string {
                                log_catcher log;
                                int64_t t;
                                const rlimit none = {1, 1};
                                log.expect("could not be started");
                                if (setrlimit(RLIMIT_NPROC, &none) != 0)
                                    return "cannot set the limit";
                                unsetenv("OMP_NUM_THREADS");
                                unsetenv("ZOFF_THREADS");
                                if (train("", 1 << 20, &t) != ZOFF_OK)
                                    return zoff_last_error();
                                return log.warnings.size() == 1 ? "" : "no word";
                            }),
              "");
}

TEST(Strangers, FilesOfAnyUmaskCanBeOpenedAgain)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "only root can become another user";
    scratch_folder scratch;
    EXPECT_EQ(as_a_stranger(scratch.path,
                            []() -> std::string {
                                int64_t t = -1;
                                if (mkdir("states", 0755) != 0)
                                    return "skip";
                                umask(0777);
                                if (train("states", 5000, &t, "saved") != ZOFF_OK ||
                                    train("states", 5000, &t, "saved") != ZOFF_OK)
                                    return zoff_last_error();
                                return t == 1 ? "" : "the second run did not find the first";
                            }),
              "");
}

// Every file there belongs to user 65534, also those that this process makes.
TEST(Mounts, FilesOfAMountThatMapsOwnersAreOurs)
{
    scratch_folder scratch;
    bound mount(scratch.file("below"), scratch.file("mapped"), "--force-user=65534 --force-group=65534");
    if (!mount.why_not.empty())
        GTEST_SKIP() << mount.why_not;
    int64_t t = -1;
    ASSERT_ZOFF_OK(train(mount.folder, 100000, &t));
    EXPECT_EQ(0, t);
    ASSERT_ZOFF_OK(train(mount.folder, 100000, &t));
    EXPECT_EQ(1, t) << "the second run does not find the states of the first";
    for (const char *suite :
         {"'" E2E_PERSIST "' --gtest_filter='Persist.*'", "'" PERSIST_DATA "' --gtest_filter='PersistFiles.*'"})
        EXPECT_EQ(0, system(("ZOFF_TEST_DIR='" + mount.folder + "' " + suite + " --gtest_brief=1").c_str())) << suite;
}

TEST(Mounts, AReadOnlyMountIsRefusedByName)
{
    scratch_folder scratch;
    int64_t t = -1;
    {
        bound mount(scratch.file("below"), scratch.file("states"), "-o ro");
        if (!mount.why_not.empty())
            GTEST_SKIP() << mount.why_not;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, mount.folder, train(mount.folder, 1000, &t));
        EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("Read-only file system")) << zoff_last_error();
    }
    ASSERT_ZOFF_OK(train(scratch.file("below"), 1000, &t));
    bound mount(scratch.file("below"), scratch.file("states"), "-o ro");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Read-only file system", train(mount.folder, 1000, &t));
    EXPECT_EQ(-1, t);
}

// The files would take more memory than the cgroup has, and the kernel would kill the process when it writes them.
TEST(Mounts, FilesInMemoryCountAsDram)
{
    memory_group group(96 << 20);
    if (!group.why_not.empty())
        GTEST_SKIP() << group.why_not;
    scratch_folder scratch;
    mounted memory(scratch.file("tmpfs"), "tmpfs", "size=1g");
    if (!memory.why_not.empty())
        GTEST_SKIP() << memory.why_not;
    const std::string overlay = scratch.file("overlay"), lower = scratch.file("lower"),
                      layers = "lowerdir=" + lower + ",upperdir=" + memory.folder + "/up,workdir=" + memory.folder + "/work";
    const bool has_overlay = run("mkdir '" + overlay + "' '" + lower + "' '" + memory.folder + "/up' '" + memory.folder +
                                 "/work'" + " && mount -t overlay -o " + layers + " zoff-test '" + overlay + "'") == 0;
    for (const std::string &folder : {memory.folder, overlay}) {
        if (folder == overlay && !has_overlay)
            continue;
        EXPECT_EQ(in_child([&]() -> std::string {
                      log_catcher log;
                      int64_t t = -1;
                      if (!group.enter())
                          return "cannot enter the cgroup";
                      if (train(folder, 4 << 20, &t) != ZOFF_ERR_NO_MEMORY) // 96 MiB of files, twice the states
                          return "states of 48 MiB were not refused";
                      for (const char *words : {"files in folders that are in memory 96.", "nvme_path", "cgroup"})
                          if (std::string(zoff_last_error()).find(words) == std::string::npos)
                              return zoff_last_error();
                      return "";
                  }),
                  "")
            << folder;
        EXPECT_EQ(in_child([&]() -> std::string {
                      log_catcher log;
                      int64_t t = -1;
                      log.expect("is not on a disk but in memory");
                      if (!group.enter())
                          return "cannot enter the cgroup";
                      // The second run has the memory of the first one's files already.
                      if (train(folder, 1 << 20, &t) != ZOFF_OK || train(folder, 1 << 20, &t) != ZOFF_OK)
                          return zoff_last_error();
                      return t == 1 ? "" : "the second run did not find the first";
                  }),
                  "")
            << folder;
    }
    if (has_overlay && run("umount '" + overlay + "'") != 0)
        ADD_FAILURE() << "cannot unmount " << overlay;
}

// A persistent file that is removed under its engine would end with the process. A run notices at its next commit.
TEST(Mounts, AStateFileThatIsRemovedStopsTheRun)
{
    for (bool is_replaced : {false, true}) {
        scratch_folder scratch;
        ASSERT_EQ(0, mkdir(scratch.file("states").c_str(), 0755));
        const std::string folder = scratch.file("states"), file = folder + "/zoff-r0.states";
        std::vector<float> weights(5000, 1), grads(5000, 1);
        zoff_config *config = nullptr;
        const std::string text = R"({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": ")" + folder +
                                 R"("}}, "zoff": {"persist": true}})";
        ASSERT_ZOFF_OK(zoff_config_open(nullptr, &config));
        ASSERT_ZOFF_OK(zoff_config_read_text(config, text.c_str(), text.size(), "mounts"));
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.config = config;
        zoff_param_desc desc = ZOFF_PARAM_DESC_INIT;
        desc.value = weights.data();
        desc.grad = grads.data();
        desc.count = weights.size();
        desc.name = "w";
        zoff_engine *engine = nullptr;
        ASSERT_ZOFF_OK(zoff_engine_open(&opts, &desc, 1, &engine));
        ASSERT_ZOFF_OK(zoff_step(engine, nullptr, nullptr));
        const std::vector<float> before = weights;

        ASSERT_EQ(0, unlink(file.c_str()));
        if (is_replaced)
            close(open(file.c_str(), O_CREAT | O_WRONLY, 0600));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "was removed", zoff_step(engine, nullptr, nullptr));
        EXPECT_EQ(is_replaced, std::string(zoff_last_error()).find("and replaced") != std::string::npos) << zoff_last_error();
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "was removed", zoff_step_retry(engine, nullptr));

        // The message advises this.
        ASSERT_ZOFF_OK(zoff_grads_drop(engine));
        EXPECT_EQ(before, weights);
        ASSERT_ZOFF_OK(zoff_checkpoint_save(engine, scratch.file("saved").c_str(), nullptr));
        zoff_engine_destroy(engine);
        unlink(file.c_str());
        weights.assign(5000, 7);
        ASSERT_ZOFF_OK(zoff_engine_open(&opts, &desc, 1, &engine));
        ASSERT_ZOFF_OK(zoff_checkpoint_load(engine, scratch.file("saved").c_str(), nullptr));
        EXPECT_EQ(before, weights);
        ASSERT_ZOFF_OK(zoff_step(engine, nullptr, nullptr));
        zoff_engine_destroy(engine);
        zoff_config_close(config);
    }
}

// It is where the user has put it, so nothing is lost.
TEST(Mounts, AFolderThatIsMovedIsTold)
{
    log_catcher log;
    scratch_folder scratch;
    ASSERT_EQ(0, mkdir(scratch.file("states").c_str(), 0755));
    std::vector<float> weights(5000, 1), grads(5000, 1);
    zoff_config *config = nullptr;
    const std::string text = R"({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": ")" +
                             scratch.file("states") + R"("}}, "zoff": {"persist": true}})";
    ASSERT_ZOFF_OK(zoff_config_open(nullptr, &config));
    ASSERT_ZOFF_OK(zoff_config_read_text(config, text.c_str(), text.size(), "mounts"));
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    opts.config = config;
    zoff_param_desc desc = ZOFF_PARAM_DESC_INIT;
    desc.value = weights.data();
    desc.grad = grads.data();
    desc.count = weights.size();
    zoff_engine *engine = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_open(&opts, &desc, 1, &engine));
    ASSERT_ZOFF_OK(zoff_step(engine, nullptr, nullptr));
    ASSERT_EQ(0, rename(scratch.file("states").c_str(), scratch.file("moved").c_str()));
    log.expect("it was moved");
    ASSERT_ZOFF_OK(zoff_step(engine, nullptr, nullptr));
    ASSERT_ZOFF_OK(zoff_step(engine, nullptr, nullptr));
    EXPECT_EQ(1u, log.warnings.size()) << "one warning is enough";
    ASSERT_EQ(0, rename(scratch.file("moved").c_str(), scratch.file("states").c_str()));
    ASSERT_ZOFF_OK(zoff_step(engine, nullptr, nullptr));
    zoff_engine_destroy(engine);
    ASSERT_ZOFF_OK(zoff_engine_open(&opts, &desc, 1, &engine));
    int64_t t = 0;
    ASSERT_ZOFF_OK(zoff_step_count(engine, &t));
    EXPECT_EQ(4, t);
    zoff_engine_destroy(engine);
    zoff_config_close(config);
}

TEST(Mounts, AFolderIsTakenAsItStands)
{
    int64_t t;
    for (const char *folder : {"~/states", "$HOME/states"}) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, folder, train(folder, 100, &t));
        EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("give the full path")) << zoff_last_error();
    }
}
