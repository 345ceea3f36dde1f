/* SPDX-License-Identifier: Apache-2.0 */
// persist_faults_test.cc: with persistent files a step that fails half way can be undone as well as finished. After a drop,
// weights and states must be those before the step; after a repeat, those after it. The next engine that opens the files must
// find the same.
#include "aio_fault.h"
#include "small_engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <set>

using namespace zoff_test;

namespace
{
enum remedy { DROP, RETRY, ABANDON };

// The write of a commit record is reported as failed, but the record is on the drive. The program can undo the step, or commit
// it again, or end; then the next process finds the step done. The states must be whole in each case.
TEST(PersistFault, ACommitThatLandedAllTheSame)
{
    for (remedy with : {DROP, RETRY, ABANDON}) {
        log_catcher log;
        scratch_folder folder;
        trainer t(6);
        t.add(20000, 1, ZOFF_BF16, ZOFF_BF16);
        const std::string text = config_text(folder.path, 1, ", \"zoff\": {\"persist\": true}");
        engine e = seal_engine(t, text, 2048);
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
        auto info = new_info();
        {
            aio_fault fault; // the two heads are the first two pages
            fault.result = [](int, int res, bool writes, uint64_t offset, size_t) {
                return writes && offset < 8192 ? -EIO : res;
            };
            EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the commit of step 2 failed", zoff_step(e.get(), nullptr, &info));
        }
        EXPECT_EQ(ZOFF_OUTCOME_TORN, info.outcome);
        if (with == DROP) {
            ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
            // Write half of the step again, and then end the process. The record that was on the drive must be invalid by then.
            {
                aio_fault fault;
                int written = 0;
                fault.result = [&](int, int res, bool writes, uint64_t, size_t) {
                    return writes && ++written > 4 ? -EIO : res;
                };
                EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "step 2 failed half way", zoff_step(e.get(), nullptr, &info));
            }
            e.reset();
            e = seal_engine(t, text, 2048);
            ASSERT_ZOFF_OK(zoff_params_push(e.get()));
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
            ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        } else if (with == RETRY) {
            ASSERT_ZOFF_OK(zoff_step_retry(e.get(), &info));
        }
        EXPECT_EQ(2, info.t);
        reference::step(t.tensors, config_groups(), 2, 1, 1, 0);
        t.scramble();
        e.reset();
        e = seal_engine(t, text, 2048);
        ASSERT_ZOFF_OK(zoff_params_push(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
}

// The error of a torn step names the way to undo it. An undo that fails can be repeated.
TEST(PersistFault, AWayBackThatFailsCanBeTriedAgain)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(6);
    t.add(20000, 1, ZOFF_BF16, ZOFF_BF16);
    const std::string text = config_text(folder.path, 1, ", \"zoff\": {\"persist\": true}");
    engine e = make_engine(t, text, 2048);
    const zoff_plan_info plan = plan_of(e.get());
    e = seal_engine(t, text, 2048, plan.chunk_bytes * (plan.slots + 4));
    t.backward_all(0.1f);
    {
        aio_fault fault;
        int writes_seen = 0;
        fault.result = [&](int, int res, bool writes, uint64_t, size_t) { return writes && ++writes_seen > 3 ? -EIO : res; };
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "zoff_step_retry() can finish it, zoff_grads_drop() undo it",
                          zoff_step(e.get(), nullptr, nullptr));
        fault.result = [&](int, int res, bool writes, uint64_t, size_t) { return writes ? res : -EIO; };
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot read", zoff_grads_drop(e.get()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step has failed", zoff_step(e.get(), nullptr, nullptr));
    }
    // A retry of a step that is half undone would give a wrong result.
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is being undone and cannot be retried; call zoff_grads_drop() again",
                      zoff_step_retry(e.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

// The same where the step is open, and half of it is done. Nobody may go on with it after a drop that has failed.
TEST(PersistFault, ADropOfAnOpenStepIsRepeated)
{
    log_catcher log;
    scratch_folder folder;
    aio_fault fault;
    trainer t(5);
    t.add(20000, 2, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(
        t, config_text(folder.path, 1, ", \"zoff\": {\"persist\": true, \"background_threads\": 1, \"master\": \"fp32\"}"),
        2048);
    t.next_step();
    t.backward_all(0.1f);
    t.hand_over_all(e.get());
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_param_wait(e.get(), 0, 0, nullptr));
    fault.result = [&](int, int res, bool writes, uint64_t, size_t) { return writes ? res : -EIO; };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot read", zoff_grads_drop(e.get()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step has failed", zoff_step_wait(e.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "is being undone", zoff_step_retry(e.get(), nullptr));
    fault.result = nullptr;
    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

// Seal allocates all the disk space that steps need, even if the file system cannot reserve it. So no step fails on a full
// disk.
TEST(PersistFault, AStepTakesNoRoomThatSealDidNotTake)
{
    log_catcher log;
    scratch_folder folder;
    aio_fault fault;
    fault.refuse_fallocate = EOPNOTSUPP;
    trainer t(6);
    t.add(200000, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, config_text(folder.path, 1, ", \"zoff\": {\"persist\": true}"), 20000);
    const std::string name = folder.file("zoff-r0.states");
    struct stat sealed, stepped;
    ASSERT_EQ(0, stat(name.c_str(), &sealed));
    for (int i = 0; i < 2; i++) {
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    }
    ASSERT_EQ(0, stat(name.c_str(), &stepped));
    EXPECT_GE((uint64_t)sealed.st_blocks * 512, (uint64_t)sealed.st_size);
    EXPECT_EQ(sealed.st_blocks, stepped.st_blocks);
    EXPECT_EQ(sealed.st_size, stepped.st_size);
}

// A drive that changes bits: flips one bit in each 8 KiB of the second half of all state files. Flips it back where nothing was
// written since.
class rot
{
  public:
    explicit rot(const std::string &folder)
    {
        std::set<ino_t> seen;
        // A non-persistent file has no name, but the engine has it open.
        DIR *dir = opendir("/proc/self/fd");
        for (dirent *entry; dir && (entry = readdir(dir));) {
            char path[4096] = "";
            struct stat st;
            if (readlinkat(dirfd(dir), entry->d_name, path, sizeof path - 1) < 0 ||
                !strstr(path, (folder + "/zoff-").c_str()) || fstatat(dirfd(dir), entry->d_name, &st, 0) != 0 ||
                !seen.insert(st.st_ino).second)
                continue;
            const int fd = openat(dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC);
            EXPECT_GE(fd, 0);
            block b = {fd, lseek(fd, 0, SEEK_END) / 2 / 8192 * 8192, std::string(8192, 0)};
            for (; pread(fd, b.bytes.data(), 8192, b.at) == 8192; b.at += 8192) {
                flip(b);
                blocks.push_back(b);
            }
            files.push_back(fd);
        }
        closedir(dir);
    }
    ~rot()
    {
        std::string now(8192, 0);
        for (block &b : blocks) {
            EXPECT_EQ(8192, pread(b.fd, now.data(), 8192, b.at));
            if (now == b.bytes)
                flip(b);
        }
        for (int fd : files)
            close(fd);
    }

  private:
    struct block {
        int fd;
        off_t at;
        std::string bytes;
    };
    static void flip(block &b)
    {
        b.bytes[5] = (char)(b.bytes[5] ^ 16);
        EXPECT_EQ(1, pwrite(b.fd, &b.bytes[5], 1, b.at + 5));
    }
    std::vector<block> blocks;
    std::vector<int> files;
};

// A flipped bit must give an error that names the place, and never an update. When the bit is right again, the step continues.
TEST(PersistFault, AFlippedBitIsNeverAnUpdate)
{
    for (const char *keys : {"\"persist\": true", "\"master\": \"fp32\"", "\"master\": \"split\""}) {
        log_catcher log;
        scratch_folder folder;
        trainer t(6);
        t.add(40000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(9000, 1, ZOFF_F32, ZOFF_F32);
        engine e = seal_engine(t, config_text(folder.path, 1, std::string(", \"zoff\": {") + keys + "}"), 2048);
        const bool splits = strstr(keys, "split") != nullptr;
        for (int64_t step = 1; step <= 3; step++) {
            auto info = new_info();
            t.next_step();
            t.backward_all(0.1f);
            if (splits && step == 1) { // nothing is read: the lower halves of the masters begin at zero
                ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
                reference::step(t.tensors, config_groups(), step, 1, 1, 0);
                continue;
            }
            auto rotten = std::make_unique<rot>(folder.path);
            EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "') is not what was written there", zoff_step(e.get(), nullptr, &info));
            EXPECT_NE(ZOFF_OUTCOME_AFTER, info.outcome);
            EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "its checksum is wrong", zoff_step_retry(e.get(), &info));
            rotten.reset();
            // Some chunks were read ahead while the bits were wrong.
            zoff_status status = ZOFF_ERR_CORRUPT;
            for (int i = 0; i < 4 && status == ZOFF_ERR_CORRUPT; i++)
                status = zoff_step_retry(e.get(), &info);
            ASSERT_ZOFF_OK(status);
            reference::step(t.tensors, config_groups(), step, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
            ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
        }
    }
}
} // namespace
