/* SPDX-License-Identifier: Apache-2.0 */
// persist_files_test.cc: the description beside state files: with it and the record of a commit, every element of every state
// is found in the files, without an engine.
#include "aio_fault.h"
#include "small_engine.h"

#include <zoff/checkpoint.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>

extern "C" {
#include "archive.h"
#include "swap_record_priv.h"
}

using namespace zoff_test;

namespace
{
std::string content(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
}

class PersistFiles : public testing::Test
{
  protected:
    PersistFiles() : t(6)
    {
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
        t.add(50, 1, ZOFF_F16, ZOFF_F16, 0, true);
        t.add(0, 1, ZOFF_F16, ZOFF_F16);
        t.add(1500, 1, ZOFF_F16, ZOFF_F16, 1);
    }
    std::string text() const
    {
        std::string all = config_text(folders[0].path, 1, ", \"zoff\": {\"persist\": true}");
        const std::string one = "\"" + folders[0].path + "\"";
        return all.replace(all.find(one), one.size(), "[" + one + ", \"" + folders[1].path + "\"]");
    }
    void open()
    {
        e.reset();
        e = seal_engine(t, text(), 2048);
    }
    std::string description(size_t i) const { return folders[i].file("zoff-r0.states.layout"); }

    log_catcher log;
    scratch_folder folders[2];
    trainer t;
    engine e;
};

// A reader of the files: the places of all chunks' arrays, by the last record of each file.
struct places {
    struct chunk {
        int fd = -1;
        zoff_swap_entry entry;
    };
    explicit places(const scratch_folder *folders)
    {
        for (int i = 0; i < 2; i++) {
            fds[i] = ::open(folders[i].file("zoff-r0.states").c_str(), O_RDONLY);
            zoff_swap_found found;
            EXPECT_ZOFF_OK(zoff_offload_swap_record_read(fds[i], "file", &found));
            const unsigned last = found.heads[1].generation > found.heads[0].generation;
            for (uint64_t k = 0; k < found.heads[last].entry_count; k++)
                chunks[found.tables[last][k].chunk] = {fds[i], found.tables[last][k]};
            zoff_offload_swap_record_free(&found);
        }
    }
    ~places()
    {
        close(fds[0]);
        close(fds[1]);
    }
    // Elements of a state, which lie `at` bytes behind the begin of their chunk.
    std::vector<float> read(uint64_t number, unsigned state, uint64_t at, size_t count)
    {
        const chunk &c = chunks.at(number);
        std::vector<float> x(count);
        const uint64_t offset = c.entry.offset + c.entry.arrays[state].slot * c.entry.arrays[2].end + at;
        EXPECT_EQ((ssize_t)(count * 4), pread(c.fd, x.data(), count * 4, (off_t)offset));
        return x;
    }
    int fds[2];
    std::map<uint64_t, chunk> chunks;
};

TEST_F(PersistFiles, EveryStateIsFoundByTheDescription)
{
    open();
    for (int i = 1; i <= 3; i++) {
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(t.tensors, config_groups(), i, 1, 1, 0);
    }
    e.reset();
    EXPECT_EQ(content(description(0)), content(description(1)));
    const std::string d = content(description(1)).substr(56); // text behind the head
    zoff_archive_manifest m = {};
    zoff_archive_table table = {};
    ASSERT_ZOFF_OK(zoff_archive_described_read("description", d.data(), d.size(), &m, &table));
    ASSERT_EQ(t.tensors.size(), m.param_count);
    places files(folders);
    size_t found = 0;
    for (size_t i = 0; i < table.piece_count; i++) {
        const zoff_archive_piece &p = table.pieces[i];
        const reference::tensor &want = t.tensors[p.param];
        const std::vector<float> *states[] = {&want.master, &want.m, &want.v};
        const auto got = files.read(p.region, p.kind, p.at, p.count);
        const size_t first = p.slice * want.count + p.first;
        ASSERT_EQ(0, memcmp(got.data(), states[p.kind]->data() + first, 4 * p.count))
            << "state " << p.kind << " of parameter " << p.param << ", element " << first;
        found += p.count;
    }
    zoff_archive_manifest_free(&m);
    zoff_archive_table_free(&table);
    EXPECT_EQ(3u * (9000 + 2100 + 1500), found) << "all but the frozen ones";
    // The files are intact.
    const char *paths[] = {folders[0].path.c_str(), folders[1].path.c_str()};
    uint64_t wrong = 1;
    ASSERT_ZOFF_OK(zoff_state_files_scrub(paths, 2, nullptr, nullptr, nullptr, 0, nullptr, &wrong));
    EXPECT_EQ(0u, wrong);
}

TEST_F(PersistFiles, TheDescriptionStaysAsLongAsTheFiles)
{
    open();
    const std::string first = content(description(0));
    EXPECT_EQ("zofflayt", first.substr(0, 8));
    t.next_step();
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    struct stat before, after;
    ASSERT_EQ(0, stat(description(0).c_str(), &before));
    open();
    ASSERT_EQ(0, stat(description(0).c_str(), &after));
    EXPECT_EQ(before.st_ino, after.st_ino) << "it is not written again";
    // One that was lost, or is of another model, or was being written when its process died, is written anew.
    e.reset();
    ASSERT_EQ(0, unlink(description(0).c_str()));
    std::ofstream(description(1)) << first.substr(0, 24) << "of another model" << first.substr(40);
    std::ofstream(description(1) + ".new") << "half";
    open();
    EXPECT_EQ(first, content(description(0)));
    EXPECT_EQ(first, content(description(1)));
    EXPECT_EQ(-1, access((description(1) + ".new").c_str(), F_OK));
}

// A seal that fails leaves neither the files nor their description.
TEST_F(PersistFiles, AFailedSealLeavesNothing)
{
    // The description cannot be written: its name is a folder.
    ASSERT_EQ(0, mkdir(description(1).c_str(), 0700));
    e = make_engine(t, text(), 2048);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot write the description of a state file, '" + description(1) + "': Is a directory",
                      zoff_engine_seal(e.get()));
    EXPECT_EQ(-1, access(description(0).c_str(), F_OK));
    EXPECT_EQ(-1, access((description(1) + ".new").c_str(), F_OK));
    EXPECT_EQ(-1, access(folders[0].file("zoff-r0.states").c_str(), F_OK));
    ASSERT_EQ(0, rmdir(description(1).c_str()));
    {
        // The first record cannot be written: the heads are cleared by one write, and then written by others.
        aio_fault fault;
        int heads = 0;
        fault.result = [&](int, int res, bool writes, uint64_t offset, size_t) {
            return writes && offset < 8192 && ++heads > 2 ? -EIO : res;
        };
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the commit of step 0 failed", zoff_engine_seal(e.get()));
    }
    for (const auto &folder : folders)
        EXPECT_NE(0, system(("ls '" + folder.path + "' | grep -q .").c_str()));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
}
} // namespace
