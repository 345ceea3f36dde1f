/* SPDX-License-Identifier: Apache-2.0 */
// mutation_test.cc: manifests and tables that were changed on purpose, with the checksums that belong to them. None crashes a
// reader, reads outside of the folder or takes memory beyond that of the text. A checkpoint that opens has the same elements.
#include "covering.h"
#include "memory_count.h"
#include "sample.h"

#include <fcntl.h>
#include <random>
#include <stdarg.h>

using namespace zoff_test;

/* ---- files that are opened ---- */

static std::string allowed; // the only folder whose files may be opened
static int opened_outside;

extern "C" {
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    const std::string name = path;
    opened_outside += !allowed.empty() && (name.compare(0, allowed.size() + 1, allowed + "/") != 0 ||
                                           name.find('/', allowed.size() + 1) != std::string::npos);
    return __real_open(path, flags, mode);
}

namespace
{
/* ---- changes of a manifest ---- */

class mutator
{
  public:
    mutator(std::vector<std::string> corpus_, unsigned seed) : corpus(corpus_), random(seed) {}

    // A changed text without the line of the checksum.
    std::string next()
    {
        std::string text = corpus[random() % corpus.size()];
        text = text.substr(0, text.rfind(",\n  \"checksum\""));
        for (unsigned i = 1 + random() % 3; i; i--)
            change(&text);
        return text;
    }

  private:
    size_t any(size_t end) { return end ? random() % end : 0; }
    std::string piece(const std::string &text)
    {
        const size_t at = any(text.size());
        return text.substr(at, any(40));
    }
    // The begin and the end of a number or of a text at random.
    std::pair<size_t, size_t> value(const std::string &text, bool is_text)
    {
        const char *set = is_text ? "\"" : "0123456789";
        const size_t begin = text.find_first_of(set, any(text.size()));
        if (begin == std::string::npos)
            return {0, 0};
        const size_t end = is_text ? text.find('"', begin + 1) : text.find_first_not_of(set, begin);
        return {begin, end == std::string::npos ? text.size() : end + is_text};
    }
    void change(std::string *text)
    {
        static const char *const NUMBERS[] = {"0",
                                              "1",
                                              "2",
                                              "-1",
                                              "7",
                                              "1024",
                                              "4096",
                                              "2147483648",
                                              "4294967295",
                                              "4294967296",
                                              "288230376151711744",
                                              "9007199254740993",
                                              "4611686018427387905",
                                              "9223372036854775807",
                                              "9223372036854775808",
                                              "18446744073709551616",
                                              "1.5",
                                              "1e308",
                                              "1e999",
                                              "-0",
                                              "00",
                                              "null",
                                              "\"12\"",
                                              "[]",
                                              "{}",
                                              "true"};
        static const char *const TEXTS[] = {"\"\"",
                                            "\"../../../etc/passwd\"",
                                            "\"/etc/passwd\"",
                                            "\"%\"",
                                            "\"%00\"",
                                            "\"\\u0000\"",
                                            "\"%FF\"",
                                            "\"fp32\"",
                                            "\"bf16\"",
                                            "\"master\"",
                                            "\"weights\"",
                                            "\"v\"",
                                            "\"one\"",
                                            "\"tied\"",
                                            "\"tied_to\"",
                                            "\"dims\"",
                                            "\"step\"",
                                            "\"files\"",
                                            "3",
                                            "null",
                                            "[\"m\"]",
                                            "{\"a\": 1}",
                                            "\"\\ud800\"",
                                            "\"\xff\"",
                                            "\"later\""};
        const bool is_text = random() % 2;
        const auto range = value(*text, is_text);
        const size_t at = any(text->size());
        switch (random() % 9) {
        case 0:
            if (!text->empty())
                (*text)[at] = (char)((*text)[at] ^ 1 << random() % 8);
            break;
        case 1:
            text->insert(at, 1, (char)random());
            break;
        case 2:
            text->erase(at, 1 + any(30));
            break;
        case 3:
        case 4:
            text->replace(range.first, range.second - range.first,
                          is_text ? TEXTS[any(sizeof TEXTS / sizeof *TEXTS)] : NUMBERS[any(sizeof NUMBERS / sizeof *NUMBERS)]);
            break;
        case 5:
            text->insert(at, piece(corpus[any(corpus.size())]));
            break;
        case 6:
            change_line(text, at);
            break;
        case 7: { // the same bytes at another place
            const std::string moved = piece(*text);
            text->insert(any(text->size()), moved);
            break;
        }
        default: // a digit
            if (!is_text && range.second > range.first)
                (*text)[range.first + any(range.second - range.first)] = (char)('0' + random() % 10);
        }
    }
    // Remove, repeat or move a line.
    void change_line(std::string *text, size_t at)
    {
        const size_t begin = text->rfind('\n', at), end = text->find('\n', at);
        if (begin == std::string::npos || end == std::string::npos || begin >= end)
            return;
        const std::string line = text->substr(begin, end - begin);
        const unsigned how = random() % 3;
        if (how != 1)
            text->erase(begin, end - begin);
        if (how != 0) {
            const size_t to = text->find('\n', any(text->size()));
            text->insert(to == std::string::npos ? text->size() : to, line);
        }
    }

    std::vector<std::string> corpus;
    std::mt19937 random;
};

// Memory of a manifest: a copy of its text, its parameters, and the tree of one value.
size_t limit_for(size_t bytes)
{
    return 4 * bytes + (96 << 10);
}

class mutation : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_ZOFF_OK(written.write(scratch.path));
        folder = scratch.file("step-0000000012");
        manifest = folder + "/manifest.json";
        part = part_in(folder);
        text = read_file(manifest);
        table_at = strtoull(&text[text.find("\"offset\": ") + 10], nullptr, 10);
        states = read_file(part);
        allowed = folder;
        opened_outside = 0;
    }
    void TearDown() override
    {
        allowed = "";
        EXPECT_EQ(0, opened_outside);
    }

    // Open the checkpoint. If that works, its parameters have the sizes and elements of the original.
    bool opens(bool with_elements)
    {
        zoff_checkpoint_reader *r = nullptr;
        zoff_archive *found = nullptr;
        if (zoff_checkpoint_reader_open(folder.c_str(), nullptr, &r) < 0)
            return false;
        checkpoint_reader owner(r);
        EXPECT_ZOFF_OK(zoff_archive_open(folder.c_str(), "", 0, &found));
        for (size_t i = 0; with_elements && i < found->manifest.param_count; i++)
            compare(r, found->manifest.params[i], i);
        EXPECT_EQ(with_elements ? written.params.size() : found->manifest.param_count, found->manifest.param_count);
        zoff_archive_close(found);
        return true;
    }
    void compare(zoff_checkpoint_reader *r, const zoff_archive_param &p, size_t i)
    {
        ASSERT_LT(i, written.params.size());
        const zoff_checkpoint_param &wanted = written.params[i];
        if (p.tied_to || p.count == 0 || p.states == 0) { // it has no elements of its own
            ASSERT_TRUE(wanted.tied_to || wanted.count == 0);
            return;
        }
        ASSERT_EQ(wanted.states, p.states);
        ASSERT_EQ(wanted.count, p.count);
        ASSERT_EQ(wanted.slices, p.slices);
        for (unsigned kind = 0; kind < 4; kind++) {
            std::vector<float> got(p.count * p.slices);
            if (!(p.states >> kind & 1) || got.empty())
                continue;
            ASSERT_ZOFF_OK(zoff_checkpoint_reader_read(r, i, (zoff_state_kind)kind, 0, got.size(), got.data()));
            for (size_t k = 0; k < got.size(); k++)
                ASSERT_EQ(sample::value(i, kind, k), got[k]);
        }
    }
    // Read all that is there. Elements that do not have their checksums are refused.
    void read_everything()
    {
        zoff_checkpoint_reader *r = nullptr;
        if (zoff_checkpoint_reader_open(folder.c_str(), nullptr, &r) < 0)
            return;
        checkpoint_reader owner(r);
        const auto holds = [](zoff_status status) { return status == ZOFF_OK || status == ZOFF_ERR_CORRUPT; };
        EXPECT_TRUE(holds(zoff_checkpoint_reader_verify(r, nullptr, nullptr))) << zoff_last_error();
        for (size_t i = 0; i < written.params.size(); i++) {
            std::vector<float> got(written.params[i].count * written.params[i].slices);
            for (unsigned kind = 0; kind < 4; kind++) {
                if (written.params[i].states >> kind & 1) {
                    EXPECT_TRUE(holds(zoff_checkpoint_reader_read(r, i, (zoff_state_kind)kind, 0, got.size(), got.data())));
                }
            }
        }
        std::vector<char> data(1 << 20);
        const zoff_status status = zoff_checkpoint_reader_data(r, "rng", 0, data.data(), data.size(), nullptr);
        EXPECT_TRUE(holds(status) || status == ZOFF_ERR_INVALID) << zoff_last_error();
    }

    // Write a table with its checksum in the manifest.
    void write_table(const std::string &table)
    {
        write_file(part, states.substr(0, table_at) + table);
        std::string other = text;
        const size_t at = other.find("\"checksum\": \"", other.find("\"table\"")) + 13;
        other.replace(at, 16, hex_of(zoff_digest_blocks_small(table.data(), table.size())));
        other = replaced(other, "\"bytes\": " + std::to_string(states.size()),
                         "\"bytes\": " + std::to_string(table_at + table.size()));
        other = replaced(other, "\"bytes\": " + std::to_string(states.size() - table_at) + ",",
                         "\"bytes\": " + std::to_string(table.size()) + ",");
        write_file(manifest, with_checksum(other));
    }

    scratch_folder scratch;
    sample written;
    std::string folder, manifest, part, text, states;
    size_t table_at = 0;
};
} // namespace

TEST_F(mutation, makes_no_manifest_that_loads_wrongly)
{
    const unsigned all = share_of(100000);
    mutator changes({text, replaced(text, "\"about\": {}", "\"about\": {\"x\": [1, 2]}"),
                     replaced(text, "\"loss_scaler\": {", "\"loss_scaler\": null, \"x\": {")},
                    18);
    unsigned parsed = 0, opened = 0;
    double worst = 0;
    for (unsigned i = 0; i < all && !HasFatalFailure(); i++) {
        const std::string other = with_checksum(changes.next());
        zoff_status status = ZOFF_OK;
        const auto read = [&] {
            zoff_archive_manifest m = {};
            status = zoff_archive_manifest_read("M", other.data(), other.size(), &m);
            zoff_archive_manifest_free(&m);
        };
        long left = 0;
        const size_t memory = memory_of(read, &left);
        ASSERT_EQ(0, left) << "a leak: " << other;
        worst = std::max(worst, (double)memory / (double)other.size());
        ASSERT_LE(memory, limit_for(other.size())) << other;
        ASSERT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_CORRUPT || status == ZOFF_ERR_UNSUPPORTED) << other;
        if (status < 0)
            continue;
        parsed++;
        write_file(manifest, other);
        opened += opens(true);
        if (HasFailure())
            FAIL() << other;
    }
    RecordProperty("parsed", (int)parsed);
    RecordProperty("opened", (int)opened);
    printf("%u manifests: %u parsed, %u opened; memory at most %.1f times the text\n", all, parsed, opened, worst);
    EXPECT_GT(parsed, all / 20); // otherwise the changes test little but the first check
    EXPECT_GT(opened, all / 50);
}

TEST_F(mutation, makes_no_table_that_reads_elsewhere)
{
    static const uint64_t NUMBERS[] = {0,
                                       1,
                                       2,
                                       3,
                                       63,
                                       64,
                                       1023,
                                       1024,
                                       4095,
                                       4096,
                                       8192,
                                       1u << 31,
                                       UINT32_MAX,
                                       1ull << 32,
                                       1ull << 58,
                                       1ull << 62,
                                       INT64_MAX,
                                       1ull << 63,
                                       UINT64_MAX - 4095,
                                       UINT64_MAX};
    const unsigned all = share_of(20000);
    const std::string table = states.substr(table_at);
    std::mt19937 random(19);
    unsigned opened = 0;
    for (unsigned i = 0; i < all && !HasFatalFailure(); i++) {
        std::string other = table;
        for (unsigned k = 1 + random() % 3; k; k--) {
            const size_t size = 1u << random() % 4, at = random() % (other.size() / size) * size;
            uint64_t number = NUMBERS[random() % (sizeof NUMBERS / sizeof *NUMBERS)], old = 0;
            memcpy(&old, &other[at], size);
            number = random() % 3 ? number : random() % 2 ? old + 1 : old - 1;
            memcpy(&other[at], &number, size);
        }
        if (random() % 8 == 0)
            other.resize(random() % (2 * table.size()));
        zoff_archive_table t = {};
        zoff_status status = ZOFF_OK;
        const auto read = [&] {
            status = zoff_archive_table_read("F", other.data(), other.size(), table_at, &t);
            zoff_archive_table_free(&t);
        };
        long left = 0;
        const size_t memory = memory_of(read, &left);
        ASSERT_EQ(0, left);
        ASSERT_LE(memory, limit_for(other.size()));
        ASSERT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_CORRUPT || status == ZOFF_ERR_UNSUPPORTED);
        if (status < 0)
            continue;
        write_table(other);
        opened += opens(false);
        read_everything();
    }
    printf("%u tables: %u opened\n", all, opened);
    EXPECT_GT(opened, all / 100);
}
