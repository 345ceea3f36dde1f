/* SPDX-License-Identifier: Apache-2.0 */
// states_fuzz.cc: persistent state files and their descriptions that were changed on purpose, with the checksums that belong to
// them. Scrub and reshard return a result or an error, and a checkpoint that is made of them is whole.
#include "fuzz.h"

#include "../e2e/checkpoint/saved_run.h"
#include "file_bytes.h"

extern "C" {
#include "digest.h"
#include "swap_record_priv.h"
}

#include <filesystem>

using namespace zoff_fuzz;

// Thousands of files are written, and no power fails here.
extern "C" int fsync(int)
{
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const folder scratch(unpack(data, bytes)), made({});
    const char *from = scratch.path.c_str();
    static std::vector<char> report(200000);
    size_t count = 0;
    uint64_t wrong = 0;
    quiet_output();
    setenv("ZOFF_AIO", "posix", 1); // the kernel's queues would take most of the time
    if (zoff_state_files_scrub(&from, 1, nullptr, nullptr, report.data(), report.size(), &count, &wrong) < 0)
        require(*zoff_last_error(), "a refused folder has a reason");
    if (zoff_state_files_checkpoint(&from, 1, made.path.c_str(), nullptr, nullptr, nullptr) < 0) {
        require(*zoff_last_error(), "a refused folder has a reason");
        return 0;
    }
    zoff_checkpoint_reader *r = nullptr;
    require(zoff_checkpoint_reader_open(made.path.c_str(), nullptr, &r) == ZOFF_OK, "the checkpoint can be opened");
    require(zoff_checkpoint_reader_verify(r, nullptr, nullptr) == ZOFF_OK, "the checkpoint is whole");
    zoff_checkpoint_reader_close(r);
    accept();
    return 0;
}

/* ---- changes ---- */

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

static size_t table_of(const zoff_swap_head &h, unsigned which)
{
    return 2 * ZOFF_RECORD_HEAD_BYTES + (size_t)(which * h.table_room);
}

// The checksums that belong to what the bytes are now.
static void mend(std::string &bytes)
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
        if (head.version)
            put(bytes, which * ZOFF_RECORD_HEAD_BYTES, &head, sizeof head);
    }
}

// The last chunk of a table is larger by twice this many bytes, which are zeros that are in no file.
static void grow(std::string &bytes, uint64_t more)
{
    for (unsigned which = 0; which < 2; which++) {
        auto head = read<zoff_swap_head>(bytes, which * ZOFF_RECORD_HEAD_BYTES);
        const size_t at = table_of(head, which) + (size_t)(head.entry_count - 1) * sizeof(zoff_swap_entry);
        if (head.entry_count == 0 || head.entry_count > 1000)
            continue;
        auto entry = read<zoff_swap_entry>(bytes, at);
        entry.arrays[ZOFF_STORE_ARRAYS - 1].end += more;
        entry.arrays[ZOFF_STORE_ARRAYS - 1].flags |= ZOFF_ENTRY_FRESH;
        head.file_bytes += 2 * more;
        put(bytes, at, &entry, sizeof entry);
        put(bytes, which * ZOFF_RECORD_HEAD_BYTES, &head, sizeof head);
    }
}

static void change_states(std::string &bytes, changes &c)
{
    const unsigned which = (unsigned)c.any(2);
    const size_t at = which * ZOFF_RECORD_HEAD_BYTES;
    const auto head = read<zoff_swap_head>(bytes, at);
    const size_t table = table_of(head, which),
                 entries = (size_t)std::min(head.entry_count, (uint64_t)100) * sizeof(zoff_swap_entry);
    switch (c.any(9)) {
    case 8:
        grow(bytes, (uint64_t)4096 << c.any(46));
        break;
    case 0:
    case 1: // a field of a head
        c.field(&bytes, at, at + sizeof head);
        break;
    case 2: // the other record is gone, so nothing else is to go on from
        if (bytes.size() > 2 * ZOFF_RECORD_HEAD_BYTES)
            bytes.replace(at, ZOFF_RECORD_HEAD_BYTES, ZOFF_RECORD_HEAD_BYTES, 0);
        break;
    case 3:
    case 4: // an entry of a table
        c.field(&bytes, table, table + entries);
        break;
    case 5: // the attachment
        c.field(&bytes, table + entries, table + entries + 200);
        break;
    case 6: // the size of the file
        bytes.resize(c.any(2) ? bytes.size() / 2 : bytes.size() + 4096 * c.any(3));
        break;
    default:
        c.field(&bytes, table_of(head, 2), bytes.size());
    }
}

enum { LENGTH = 40, SUM = 48, PARAMS = 56, TEXT = 64 };

// Change a field of the table, or the parameters, and let lengths and checksum fit.
static void change_description(std::string &bytes, changes &c)
{
    static const std::vector<std::string> WORDS = {"\"master\"",  "\"m\"",    "\"name\"", "\"dims\"",
                                                   "\"tied_to\"", "\"fp32\"", "1023",     "288230376151711745"};
    uint64_t params = read<uint64_t>(bytes, PARAMS);
    bool is_fitting = true;
    if (bytes.size() < TEXT + 8 || params > bytes.size() - TEXT)
        return c.bytes(&bytes);
    std::string words = bytes.substr(TEXT, params), table = bytes.substr(TEXT + params);
    switch (c.any(8)) {
    case 0:
        c.field(&bytes, 0, TEXT);
        params = read<uint64_t>(bytes, PARAMS);
        is_fitting = false;
        break;
    case 1:
    case 2:
    case 3:
        c.field(&table, 0, table.size());
        break;
    case 4: { // bytes of the table, away or twice
        const size_t at = c.any(table.size() + 1), count = 8 << c.any(5);
        c.any(2) ? (void)table.erase(at, count) : (void)table.insert(at, table.substr(at, count));
        break;
    }
    default:
        c.json(&words, WORDS);
    }
    bytes = bytes.substr(0, TEXT) + words + table;
    params = is_fitting ? words.size() : params;
    put(bytes, PARAMS, &params, 8);
    const uint64_t content = bytes.size() - PARAMS;
    put(bytes, LENGTH, &content, 8);
    memset(&bytes[SUM], 0, 8);
    const uint64_t sum = zoff_digest_blocks_small(bytes.data(), bytes.size());
    put(bytes, SUM, &sum, 8);
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    changes c(seed);
    files all = unpack(data, bytes);
    if (all.empty())
        return give(pack({{"zoff-r0.states", std::string(8192, 0)}}), data, bytes, most);
    auto file = std::next(all.begin(), (ptrdiff_t)c.any(all.size()));
    if (c.any(64) == 0) {
        all.erase(file);
    } else if (c.any(64) == 0) {
        all[c.any(2) ? "zoff-r1.states" : "zoff-p1-r0.states"] = file->second;
    } else if (file->first.find(".layout") != std::string::npos) {
        change_description(file->second, c);
    } else {
        change_states(file->second, c);
        if (c.any(16))
            mend(file->second);
    }
    return give(pack(all), data, bytes, most);
}

/* ---- seeds ---- */

static std::vector<std::string> seeds()
{
    using namespace zoff_test;
    std::vector<std::string> all;
    const quiet_log quiet;
    for (const char *how : {"", ", \"moments\": \"bf16\"", ", \"moments\": \"q8\", \"master\": \"split\"", "2"}) {
        run_shape shape;
        shape.tier = ZOFF_TIER_NVME;
        shape.persist = true;
        shape.world = *how == '2' ? 2 : 1;
        shape.engine = *how == ',' ? how : "";
        const scratch_folder scratch;
        {
            saved_run r(shape, scratch.path, [](trainer &t) {
                t.add(9, 1, ZOFF_BF16, ZOFF_BF16);
                t.add(3, 2, ZOFF_BF16, ZOFF_BF16, 1, false, 2);
                t.add(2, 2, ZOFF_BF16, ZOFF_BF16, 0, true);
            });
            for (int64_t t = 1; t <= 3; t++)
                r.step(t);
        }
        files written;
        for (const auto &entry : std::filesystem::directory_iterator(scratch.path))
            written[entry.path().filename()] = bytes_of(entry.path());
        all.push_back(pack(written));
    }
    return all;
}

const target zoff_fuzz::TARGET = {8000, 0.02, seeds};
