/* SPDX-License-Identifier: Apache-2.0 */
// state_mutation_test.cc: persistent state files and their descriptions that were changed on purpose, with the checksums that
// belong to them. Scrub and reshard return a result or an error, and a checkpoint that is made of them is whole.
#include "covering.h"
#include "file_bytes.h"
#include "random.h"
#include "saved_run.h"

extern "C" {
#include "digest.h"
#include "swap_record_priv.h"
}

#include <stddef.h>

using namespace zoff_test;

// Thousands of files are written.
extern "C" int fsync(int)
{
    return 0;
}

namespace
{
// The files of one run of three steps.
struct corpus {
    std::string states, description;
    run_shape shape;
};

class StateMutation : public testing::Test
{
  protected:
    StateMutation()
    {
        for (const char *moments : {"fp32", "bf16", "q8"}) {
            corpus c;
            c.shape.tier = ZOFF_TIER_NVME;
            c.shape.persist = true;
            c.shape.engine = std::string(", \"moments\": \"") + moments + "\"";
            const scratch_folder scratch;
            {
                saved_run r(c.shape, scratch.path);
                for (int64_t t = 1; t <= 3; t++)
                    r.step(t);
            }
            c.states = bytes_of(scratch.file("zoff-r0.states"));
            c.description = bytes_of(scratch.file("zoff-r0.states.layout"));
            EXPECT_FALSE(c.states.empty() || c.description.empty());
            all.push_back(c);
        }
    }

    template <typename T> static T read(const std::string &bytes, size_t at)
    {
        T value = {};
        if (at + sizeof value <= bytes.size())
            memcpy(&value, &bytes[at], sizeof value);
        return value;
    }

    static void put(std::string &bytes, size_t at, const void *value, size_t count)
    {
        if (at + count <= bytes.size())
            memcpy(&bytes[at], value, count);
    }

    // A number that is the end of some range.
    uint64_t number()
    {
        static const uint64_t ENDS[] = {0,
                                        1,
                                        2,
                                        64,
                                        4096,
                                        139264,
                                        1u << 31,
                                        UINT32_MAX,
                                        (uint64_t)1 << 32,
                                        (uint64_t)1 << 58,
                                        (uint64_t)1 << 62,
                                        INT64_MAX,
                                        (uint64_t)1 << 63,
                                        UINT64_MAX};
        return ENDS[random() % (sizeof ENDS / sizeof ENDS[0])] + random() % 3 - 1;
    }

    static size_t table_of(const zoff_swap_head &h, unsigned which)
    {
        return 2 * ZOFF_RECORD_HEAD_BYTES + (size_t)(which * h.table_room);
    }

    void change_states(std::string &bytes)
    {
        const unsigned which = random() % 2;
        const auto head = read<zoff_swap_head>(bytes, which * ZOFF_RECORD_HEAD_BYTES);
        const uint64_t value = number();
        switch (random() % 4) {
        case 0: // a field of a head
            put(bytes, which * ZOFF_RECORD_HEAD_BYTES + random() % (sizeof head / 8) * 8, &value, 8);
            break;
        case 1:
            put(bytes, which * ZOFF_RECORD_HEAD_BYTES + offsetof(zoff_swap_head, generation), &value, 8);
            if (random() % 2) // the other record is gone, so nothing else is to go on from
                bytes.replace(!which * ZOFF_RECORD_HEAD_BYTES, ZOFF_RECORD_HEAD_BYTES, ZOFF_RECORD_HEAD_BYTES, 0);
            break;
        case 2: // bytes of a table
            put(bytes, table_of(head, which) + random() % 64 * 8, &value, 8);
            break;
        default:
            bytes[random() % bytes.size()] ^= (char)(1 << random() % 8);
        }
    }

    // The checksums that belong to what the bytes are now.
    static void repair(std::string &bytes)
    {
        for (unsigned which = 0; which < 2; which++) {
            auto head = read<zoff_swap_head>(bytes, which * ZOFF_RECORD_HEAD_BYTES);
            const size_t at = table_of(head, which);
            if (head.entry_count < 10000 && head.attached_bytes < bytes.size()) {
                const size_t table = (size_t)head.entry_count * sizeof(zoff_swap_entry), attached = (size_t)head.attached_bytes;
                if (at < bytes.size() && at + table + attached <= bytes.size()) {
                    head.table_checksum = zoff_digest_blocks_small(&bytes[at], table);
                    head.attached_checksum = zoff_digest_blocks_small(&bytes[at + table], attached);
                }
            }
            head.checksum = zoff_digest_blocks_small(&head, offsetof(zoff_swap_head, checksum));
            put(bytes, which * ZOFF_RECORD_HEAD_BYTES, &head, sizeof head);
        }
    }

    // Change a field of the table, a number or a word of the parameters, or their length, and let the checksum fit.
    void change_description(std::string &bytes)
    {
        enum { LENGTH = 40, SUM = 48, PARAMS = 56, TEXT = 64 };
        static const char *const WORDS[] = {"0",  "-1", "1023", "4294967296", "\"\"",    "\"master\"",
                                            "[]", "{}", "null", "1.5",        "\"%FF\"", "288230376151711745"};
        const uint64_t value = number(), params = read<uint64_t>(bytes, PARAMS);
        if (params < 2 || params > bytes.size() - TEXT - 8)
            return;
        const size_t table = TEXT + (size_t)params;
        const std::string words = WORDS[random() % (sizeof WORDS / sizeof WORDS[0])];
        const size_t from = bytes.find_first_of("0123456789\"[", TEXT + random() % params);
        size_t to = bytes[from] == '"' ? bytes.find('"', from + 1) + 1 : bytes.find_first_not_of("0123456789.", from);
        to = std::max(std::min(to, table), from + 1);
        switch (random() % 8) {
        case 0:
            put(bytes, PARAMS, &value, 8);
            break;
        case 1:
        case 2:
        case 3:
            put(bytes, table + random() % ((bytes.size() - table) / 8) * 8, &value, 8);
            break;
        default:
            if (from < table) {
                const uint64_t now = params - (to - from) + words.size();
                bytes.replace(from, to - from, words);
                put(bytes, PARAMS, &now, 8);
            }
        }
        const uint64_t content = bytes.size() - PARAMS;
        put(bytes, LENGTH, &content, 8);
        memset(&bytes[SUM], 0, 8);
        const uint64_t sum = zoff_digest_blocks_small(bytes.data(), bytes.size());
        put(bytes, SUM, &sum, 8);
    }

    void read_all(const corpus &c, const std::string &states, const std::string &description)
    {
        const scratch_folder scratch;
        const std::string made = scratch.file("made");
        const char *folder = scratch.path.c_str();
        std::vector<char> report(100000);
        size_t bytes = 0;
        uint64_t wrong = 0;
        write_bytes(scratch.file("zoff-r0.states"), states);
        write_bytes(scratch.file("zoff-r0.states.layout"), description);
        (void)zoff_state_files_scrub(&folder, 1, nullptr, nullptr, report.data(), report.size(), &bytes, &wrong);
        if (zoff_state_files_checkpoint(&folder, 1, made.c_str(), nullptr, nullptr, nullptr) == ZOFF_OK) {
            zoff_checkpoint_reader *r = nullptr;
            ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(made.c_str(), nullptr, &r));
            EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(r, nullptr, nullptr));
            zoff_checkpoint_reader_close(r);
            converted++;
        } else {
            EXPECT_NE('\0', *zoff_last_error());
        }
        (void)c;
    }

    std::vector<corpus> all;
    fast_random random;
    unsigned converted = 0;
};

// The only record that is left has a number to which no reader can add one.
TEST_F(StateMutation, AGenerationAtTheEndOfItsRangeIsNoRecord)
{
    const quiet_log quiet;
    for (const uint64_t value : {UINT64_MAX, UINT64_MAX - 2, ((uint64_t)1 << 62) + 1}) {
        const scratch_folder scratch;
        const char *folder = scratch.path.c_str();
        std::string states = all[0].states;
        put(states, ZOFF_RECORD_HEAD_BYTES + offsetof(zoff_swap_head, generation), &value, 8);
        states.replace(0, ZOFF_RECORD_HEAD_BYTES, ZOFF_RECORD_HEAD_BYTES, 0);
        repair(states);
        states.replace(0, ZOFF_RECORD_HEAD_BYTES, ZOFF_RECORD_HEAD_BYTES, 0);
        write_bytes(scratch.file("zoff-r0.states"), states);
        write_bytes(scratch.file("zoff-r0.states.layout"), all[0].description);
        EXPECT_GT(0, zoff_state_files_checkpoint(&folder, 1, scratch.file("made").c_str(), nullptr, nullptr, nullptr));
        EXPECT_EQ(nullptr, strstr(zoff_last_error(), "memory")) << zoff_last_error();
    }
}

TEST_F(StateMutation, EveryReaderReturns)
{
    const quiet_log quiet;
    const unsigned count = is_full_run() ? 20000 : share_of(8000);
    for (unsigned seed = 0; seed < count && !HasFailure(); seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        random.seed(seed);
        const corpus &c = all[random() % all.size()];
        std::string states = c.states, description = c.description;
        for (unsigned i = 1 + random() % 3; i; i--)
            random() % 3 ? change_states(states) : change_description(description);
        repair(states);
        read_all(c, states, description);
    }
    printf("%u changes, %u of them still made a checkpoint\n", count, converted);
    EXPECT_GT(converted, count / 50) << "nearly all changes are found at the first look";
}
} // namespace
