/* SPDX-License-Identifier: Apache-2.0 */
// versions_test.cc: every file that carries a version is refused by name where the version is another one: the message has the
// file, its version, what this library reads, and a way out. Only the version of a golden file is changed, and the checksums
// that cover it.
#include "small_engine.h"

#include <filesystem>
#include <fstream>
#include <sstream>

extern "C" {
#include "digest.h"
#include "swap_record_priv.h"
}

using namespace zoff_test;

namespace
{
std::string read(const std::string &path)
{
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

void write(const std::string &path, const std::string &bytes)
{
    std::ofstream(path, std::ios::binary) << bytes;
}

void replace(std::string *text, const std::string &from, const std::string &to)
{
    const size_t at = text->find(from);
    ASSERT_NE(std::string::npos, at) << from;
    text->replace(at, from.size(), to);
}

void put(std::string *bytes, size_t at, uint32_t number)
{
    memcpy(&(*bytes)[at], &number, sizeof number);
}

uint64_t sum(const std::string &bytes)
{
    return zoff_digest_blocks_small(bytes.data(), bytes.size());
}

std::string hex(uint64_t number)
{
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)number);
    return text;
}

// A copy of golden files in a scratch folder.
class Versions : public testing::Test
{
  protected:
    std::string copy(const std::string &name)
    {
        const std::string to = scratch.path + "/" + name;
        std::filesystem::copy(std::string(GOLDEN) + "/" + name, to, std::filesystem::copy_options::recursive);
        return to;
    }

    // Change the manifest, and the checksum at its end.
    void change_manifest(const std::function<void(std::string *)> &change)
    {
        const std::string path = save + "/manifest.json", end = ",\n  \"checksum\": \"";
        std::string text = read(path);
        change(&text);
        const size_t at = text.rfind(end);
        ASSERT_NE(std::string::npos, at);
        write(path, text.substr(0, at) + end + hex(sum(text.substr(0, at))) + "\"\n}\n");
    }
    // Write version 2 at a place of the rank's file, and what the manifest says of those bytes.
    void change_file(bool is_table)
    {
        for (const auto &entry : std::filesystem::directory_iterator(save)) {
            if (entry.path().extension() != ".states")
                continue;
            std::string bytes = read(entry.path());
            uint64_t from = 0, count = 4096;
            if (is_table) {
                memcpy(&from, &bytes[40], sizeof from);
                count = bytes.size() - from;
            }
            const std::string before = hex(sum(bytes.substr(from, count)));
            put(&bytes, from + 8, 2);
            write(entry.path(), bytes);
            change_manifest([&](std::string *text) { replace(text, before, hex(sum(bytes.substr(from, count)))); });
        }
    }
    void begin_checkpoint() { save = copy("checkpoint_fp32") + "/step-0000000002"; }
    void expect_refused(zoff_status status, const std::string &words)
    {
        SCOPED_TRACE(words);
        zoff_checkpoint_reader *reader = nullptr;
        EXPECT_ZOFF_FAILS(status, words, zoff_checkpoint_reader_open(save.c_str(), nullptr, &reader));
    }

    // Write a version into the heads of the state file's records. The checksum of a head covers it.
    void change_records(const std::string &path, uint32_t version, unsigned first, bool with_sum = true)
    {
        std::string bytes = read(path);
        for (unsigned which = first; which < 2; which++) {
            zoff_swap_head head;
            memcpy(&head, &bytes[which * ZOFF_RECORD_HEAD_BYTES], sizeof head);
            head.version = version;
            if (with_sum)
                head.checksum = zoff_digest_blocks_small(&head, offsetof(zoff_swap_head, checksum));
            memcpy(&bytes[which * ZOFF_RECORD_HEAD_BYTES], &head, sizeof head);
        }
        write(path, bytes);
    }
    void expect_states_refused(const std::string &folder, const std::string &words)
    {
        SCOPED_TRACE(words);
        const std::string text = "{\"optimizer\": {\"type\": \"AdamW\"}, \"zoff\": {\"persist\": true}, \"zero_optimization\": "
                                 "{\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" +
                                 folder + "\"}}}";
        const char *path = folder.c_str();
        std::vector<float> value(1100), grad(1100);
        engine e = make_engine(text, ZOFF_ENGINE_OPTS_INIT);
        zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
        d.count = value.size();
        d.value = value.data();
        d.grad = grad.data();
        ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words, zoff_engine_seal(e.get()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words,
                          zoff_state_files_scrub(&path, 1, nullptr, nullptr, nullptr, 0, nullptr, nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, words,
                          zoff_state_files_checkpoint(&path, 1, (scratch.path + "/made").c_str(), nullptr, nullptr, nullptr));
    }

    scratch_folder scratch;
    std::string save;
};

TEST_F(Versions, AManifestOfANewerVersionIsRefused)
{
    begin_checkpoint();
    change_manifest([](std::string *text) { replace(text, "\"version\": 1", "\"version\": 2"); });
    expect_refused(ZOFF_ERR_UNSUPPORTED, "manifest.json' cannot be used: it has version 2 of the format, and this library "
                                         "reads up to version 1: use a newer one");
    change_manifest([](std::string *text) { replace(text, "\"version\": 2", "\"version\": 0"); });
    expect_refused(ZOFF_ERR_CORRUPT, "manifest.json' cannot be used: \"version\" is 0, which is out of range");
}

TEST_F(Versions, AManifestThatNeedsMoreIsRefused)
{
    begin_checkpoint();
    change_manifest([](std::string *text) { replace(text, "\"needs\": []", "\"needs\": [\"sparse states\"]"); });
    expect_refused(
        ZOFF_ERR_UNSUPPORTED,
        "manifest.json' cannot be used: it needs \"sparse states\", which this library does not have: use a newer one");
}

TEST_F(Versions, AFileOfARankOfANewerVersionIsRefused)
{
    begin_checkpoint();
    change_file(false);
    expect_refused(ZOFF_ERR_UNSUPPORTED,
                   ".rank-00000.states' has version 2, and this library reads version 1: use a newer one");
}

TEST_F(Versions, ATableOfANewerVersionIsRefused)
{
    begin_checkpoint();
    change_file(true);
    expect_refused(ZOFF_ERR_UNSUPPORTED,
                   ".rank-00000.states' cannot be used: it has version 2, and this library reads version 1: use a newer one");
}

TEST_F(Versions, AStateFileOfAnotherVersionIsRefused)
{
    const std::string folder = copy("states_fp32"), file = folder + "/zoff-r0.states";
    const std::string rest =
        ", and this library reads formats 4 and 5. Go on with the version of zoff that wrote it, or save a "
        "checkpoint with that and remove the file";
    change_records(file, 6, 0);
    expect_states_refused(folder, "zoff-r0.states' is a state file of format 6" + rest);
    change_records(file, 3, 0, false); // its head had other fields
    expect_states_refused(folder, "zoff-r0.states' is a state file of format 3" + rest);
}

// The record before it is whole, but going back to it in silence would lose a step.
TEST_F(Versions, AStateFileWhoseLastRecordIsNewerIsRefused)
{
    const std::string folder = copy("states_fp32"), file = folder + "/zoff-r0.states";
    change_records(file, 6, 1);
    expect_states_refused(folder, "zoff-r0.states' is a state file of format 6");
}

TEST_F(Versions, ADescriptionOfAnotherVersionIsRefused)
{
    for (const uint32_t version : {1u, 3u}) {
        const std::string folder = copy("states_fp32"), file = folder + "/zoff-r0.states.layout";
        const char *path = folder.c_str();
        std::string bytes = read(file);
        uint64_t checksum = 0;
        put(&bytes, 8, version);
        memset(&bytes[48], 0, sizeof checksum);
        checksum = sum(bytes);
        memcpy(&bytes[48], &checksum, sizeof checksum);
        write(file, bytes);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED,
                          "zoff-r0.states.layout' has version " + std::to_string(version) +
                              ", and this library reads version 2: use the version of zoff that wrote it",
                          zoff_state_files_checkpoint(&path, 1, (scratch.path + "/made").c_str(), nullptr, nullptr, nullptr));
        std::filesystem::remove_all(folder);
    }
}

// The bytes of zoff_persist_data() and the loss scale have a version of their own, in the record.
TEST_F(Versions, TheProgramsBytesOfANewerVersionAreRefused)
{
    const std::string folder = copy("states_loss_scale"), file = folder + "/zoff-r0.states";
    const char *path = folder.c_str();
    std::string bytes = read(file);
    for (unsigned which = 0; which < 2; which++) {
        zoff_swap_head head;
        memcpy(&head, &bytes[which * ZOFF_RECORD_HEAD_BYTES], sizeof head);
        const size_t at = 2 * ZOFF_RECORD_HEAD_BYTES + which * head.table_room + head.entry_count * sizeof(zoff_swap_entry);
        put(&bytes, at, 3);
        head.attached_checksum = sum(bytes.substr(at, head.attached_bytes));
        head.checksum = zoff_digest_blocks_small(&head, offsetof(zoff_swap_head, checksum));
        memcpy(&bytes[which * ZOFF_RECORD_HEAD_BYTES], &head, sizeof head);
    }
    write(file, bytes);
    const std::string rest =
        "the state files hold the program's bytes in format 3, and this library reads formats up to 2: finish the "
        "run with the version of zoff that began it";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "zoff-r0.states': " + rest,
                      zoff_state_files_checkpoint(&path, 1, (scratch.path + "/made").c_str(), nullptr, nullptr, nullptr));
    const char *const names[] = {"layers.0.weight", "norm"};
    const size_t counts[] = {1100, 40};
    std::vector<uint16_t> value(1140), grad(1140);
    engine e =
        make_engine("{\"optimizer\": {\"type\": \"AdamW\"}, \"fp16\": {\"enabled\": true}, \"zoff\": {\"persist\": true}, "
                    "\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" +
                        folder + "\"}}}",
                    ZOFF_ENGINE_OPTS_INIT);
    for (size_t i = 0; i < 2; i++) {
        zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
        d.name = names[i];
        d.count = counts[i];
        d.dtype = d.grad_dtype = ZOFF_F16;
        d.value = &value[i ? counts[0] : 0];
        d.grad = &grad[i ? counts[0] : 0];
        ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "'" + folder + "': " + rest, zoff_engine_seal(e.get()));
}
} // namespace
