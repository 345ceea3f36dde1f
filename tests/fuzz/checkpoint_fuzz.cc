/* SPDX-License-Identifier: Apache-2.0 */
// checkpoint_fuzz.cc: a folder of checkpoints, whose manifests and files were changed on purpose, with the checksums that
// belong to them. A reader lists it, and opens a checkpoint or says why not. A checkpoint that opens has no more elements than
// bytes, and is in the folder.
#include "fuzz.h"

#include "../e2e/checkpoint/saved_run.h"
#include "../unit/archive/sample.h"

#include <fcntl.h>
#include <filesystem>
#include <stdarg.h>

using namespace zoff_fuzz;

/* ---- files that are opened ---- */

static const std::string *allowed; // the only folder whose files may be opened

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
    const bool is_inside = !allowed || std::string(path).compare(0, allowed->size(), *allowed) == 0;
    require(is_inside && (!allowed || !strstr(path, "/../")), "only files of the folder are opened");
    return __real_open(path, flags, mode);
}

// Thousands of checkpoints are written for seeds, and no power fails here.
extern "C" int fsync(int)
{
    return 0;
}

/* ---- reading ---- */

static void read_param(zoff_checkpoint_reader *r, size_t i, uint64_t bytes)
{
    static std::vector<float> some(5000);
    zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
    size_t found = 0;
    require(zoff_checkpoint_reader_param(r, i, &p) == ZOFF_OK, "a parameter has a description");
    require(zoff_checkpoint_reader_find(r, p.name, &found) == ZOFF_OK && found == i, "a parameter is found by its name");
    const size_t all = p.count * p.slices;
    require(!p.states || all <= bytes, "a state has no more elements than the files have bytes");
    for (int kind = 0; kind < 4; kind++) {
        const char *format;
        if (!(p.states >> kind & 1))
            continue;
        require(zoff_checkpoint_reader_format(r, i, (zoff_state_kind)kind, &format) == ZOFF_OK || all == 0,
                "a state has a format");
        for (size_t at = 0; at < all; at += some.size() - 1) {
            if (zoff_checkpoint_reader_read(r, i, (zoff_state_kind)kind, at, std::min(all - at, some.size() - 1), some.data()) <
                0)
                break;
        }
    }
}

static void read_reader(zoff_checkpoint_reader *r)
{
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    require(zoff_checkpoint_reader_info(r, &info) == ZOFF_OK, "a checkpoint has facts");
    for (size_t i = 0; i < info.param_count; i++)
        read_param(r, i, info.bytes);
    char some[64];
    size_t count;
    for (size_t i = 0; i < info.data_count; i++) {
        zoff_checkpoint_data data = {};
        unsigned rank;
        require(zoff_checkpoint_reader_data_at(r, i, &data, &rank) == ZOFF_OK, "data of the program have a description");
        (void)zoff_checkpoint_reader_data(r, data.name, rank, some, sizeof some, &count);
    }
    (void)zoff_checkpoint_reader_verify(r, nullptr, nullptr);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const files all = unpack(data, bytes);
    const folder scratch(all);
    quiet_output();
    allowed = &scratch.path;
    size_t list = 0, again = 0;
    if (zoff_checkpoint_list(scratch.path.c_str(), nullptr, 0, &list) == ZOFF_OK) {
        std::string text(list + 1, '?');
        require(zoff_checkpoint_list(scratch.path.c_str(), text.data(), text.size(), &again) == ZOFF_OK && again == list,
                "the list has its size");
    }
    std::set<std::string> folders = {""};
    for (const auto &[name, text] : all)
        folders.insert(name.substr(0, name.find('/') == std::string::npos ? 0 : name.find('/')));
    for (const auto &name : folders) {
        zoff_checkpoint_reader *r = nullptr;
        if (zoff_checkpoint_reader_open(scratch.file(name).c_str(), nullptr, &r) < 0) {
            require(*zoff_last_error() && !r, "a refused checkpoint has a reason");
            continue;
        }
        read_reader(r);
        zoff_checkpoint_reader_close(r);
        accept();
    }
    allowed = nullptr;
    return 0;
}

/* ---- changes ---- */

static uint64_t number_of(const std::string &text, size_t at, const char *key)
{
    const size_t found = text.find(key, at);
    return found == std::string::npos ? 0 : strtoull(text.c_str() + found + strlen(key), nullptr, 10);
}

// Replace the value behind a key, up to one of these characters.
static void put(std::string *text, size_t at, const char *key, const std::string &value)
{
    const size_t found = text->find(key, at);
    if (found == std::string::npos)
        return;
    const size_t from = found + strlen(key), end = std::min(text->find_first_of(",}\"", from), text->size());
    text->replace(from, end - from, value);
}

// The checksums of the units of a file. `at`: where its table begins.
static void mend_units(std::string *file, size_t at)
{
    uint64_t head[6];
    if (file->size() < sizeof head || at > file->size() - sizeof head)
        return;
    memcpy(head, &(*file)[at], sizeof head);
    const uint64_t regions = head[2], checksums = head[3];
    if (regions > 1000 || checksums > 1000 || at + sizeof head + regions * 32 + checksums * 8 > file->size())
        return;
    for (uint64_t i = 0; i < regions; i++) {
        zoff_archive_region r;
        memcpy(&r, &(*file)[at + sizeof head + i * sizeof r], sizeof r);
        for (uint64_t k = 0, from = 0; r.unit && r.bytes <= file->size() && from < r.bytes && k < 1000; k++, from += r.unit) {
            const uint64_t count = std::min(r.unit, r.bytes - from), index = r.first_checksum + k;
            if (index >= checksums || r.offset > at || from + count > at - r.offset)
                break;
            const uint64_t sum = zoff_digest_blocks_whole(&(*file)[r.offset + from], count, 1);
            memcpy(&(*file)[at + sizeof head + regions * 32 + index * 8], &sum, 8);
        }
    }
}

// The facts of files in a manifest, and its own checksum. `sizes`: also the sizes of files and tables.
static void mend(files *all, bool sizes)
{
    for (auto &[name, text] : *all) {
        if (name.find("manifest.json") == std::string::npos)
            continue;
        for (auto &[part, bytes] : *all) {
            const size_t slash = part.rfind('/'), at = text.find("{\"name\": \"" + part.substr(slash + 1) + "\"");
            if (slash == std::string::npos || at == std::string::npos || part.find(".states") == std::string::npos)
                continue;
            const size_t table = (size_t)number_of(text, at, "\"offset\": ");
            if (table > bytes.size())
                continue;
            mend_units(&bytes, table);
            if (sizes) {
                put(&text, at, "\"bytes\": ", std::to_string(bytes.size()));
                put(&text, text.find("\"table\"", at), "\"bytes\": ", std::to_string(bytes.size() - table));
            }
            const size_t count =
                std::min((size_t)number_of(text, std::min(text.find("\"table\"", at), text.size()), "\"bytes\": "),
                         bytes.size() - table);
            put(&text, at, "\"head\": \"",
                zoff_test::hex_of(zoff_digest_blocks_small(bytes.data(), std::min(bytes.size(), (size_t)4096))));
            put(&text, at, "\"checksum\": \"", zoff_test::hex_of(zoff_digest_blocks_small(bytes.data() + table, count)));
        }
        text = zoff_test::with_checksum(text);
    }
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    static const std::vector<std::string> WORDS = {"\"fp32\"",
                                                   "\"bf16\"",
                                                   "\"fp16\"",
                                                   "\"master\"",
                                                   "\"m\"",
                                                   "\"v\"",
                                                   "\"weights\"",
                                                   "\"one\"",
                                                   "\"tied\"",
                                                   "\"tied_to\"",
                                                   "\"dims\"",
                                                   "\"slices\"",
                                                   "\"states\"",
                                                   "\"slice_name\"",
                                                   "\"group\"",
                                                   "\"step\"",
                                                   "\"files\"",
                                                   "\"params\"",
                                                   "\"groups\"",
                                                   "\"needs\"",
                                                   "\"label\"",
                                                   "\"replaces\"",
                                                   "\"%2e\"",
                                                   "288230376151711744",
                                                   "288230376151711745",
                                                   "4611686018427387904",
                                                   "\"0000000000000000\"",
                                                   "[\"master\"]",
                                                   "[1, 0, 5]"};
    changes c(seed);
    files all = unpack(data, bytes);
    if (all.empty())
        return give(pack({{"latest", "x"}}), data, bytes, most);
    const size_t which = c.any(all.size());
    auto file = std::next(all.begin(), (ptrdiff_t)which);
    std::string &text = file->second;
    const bool is_part = file->first.find(".states") != std::string::npos;
    uint64_t table = 0;
    if (is_part && text.size() > 4096)
        for (table = text.size() / 8 * 8; table > 8 && text.compare(table, 8, "zofftabl") != 0;)
            table -= 8;
    if (c.any(64) == 0) {
        all.erase(file);
    } else if (c.any(64) == 0) {
        std::string name = file->first;
        c.bytes(&name);
        all[name] = text;
    } else if (file->first.find("manifest.json") != std::string::npos) {
        c.any(20) ? c.json(&text, WORDS) : c.bytes(&text);
    } else if (is_part && table > 8) {
        std::string entries = text.substr(table);
        switch (c.any(8)) {
        case 0: // data
            c.field(&text, 4096, table);
            break;
        case 1: // the head
            c.field(&text, 0, 64);
            break;
        case 2: { // bytes of the table, away or twice
            const size_t at = c.any(entries.size()), count = 8 << c.any(6);
            c.any(2) ? (void)entries.erase(at, count) : (void)entries.insert(at, entries.substr(at, count));
            text = text.substr(0, table) + entries;
            break;
        }
        case 3: // the counts of the table
            c.field(&text, table, table + 48);
            break;
        default:
            c.field(&text, table + 48, text.size());
        }
    } else {
        c.bytes(&text);
    }
    if (c.any(16))
        mend(&all, c.any(4));
    return give(pack(all), data, bytes, most);
}

/* ---- seeds ---- */

static std::string packed(const std::string &path)
{
    files all;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(path))
        if (entry.is_regular_file())
            all[std::filesystem::relative(entry.path(), path)] = zoff_test::read_file(entry.path());
    return pack(all);
}

static std::vector<std::string> seeds()
{
    using namespace zoff_test;
    std::vector<std::string> all;
    const quiet_log quiet;
    for (const char *how : {"", ", \"moments\": \"bf16\"", ", \"moments\": \"q8\", \"master\": \"split\"", "2"}) {
        run_shape shape;
        shape.world = *how == '2' ? 2 : 1;
        shape.engine = *how == ',' ? how : "";
        const scratch_folder scratch;
        saved_run r(shape, "", [](trainer &t) {
            t.add(9, 1, ZOFF_BF16, ZOFF_BF16);
            t.add(3, 2, ZOFF_BF16, ZOFF_BF16, 1, false, 2);
            t.add(2, 2, ZOFF_BF16, ZOFF_BF16, 0, true);
        });
        r.step(1);
        expect_all_ok(r.save(scratch.path));
        all.push_back(packed(scratch.path));
    }
    // Names and shapes of all kinds, and bytes of the program.
    const size_t dims[] = {2, 3}, none = 0;
    std::vector<zoff_checkpoint_param> params(5, ZOFF_CHECKPOINT_PARAM_INIT);
    params[0].name = "a%\xff b", params[0].dtype = ZOFF_BF16, params[0].states = 7;
    params[1].name = "frozen", params[1].dtype = ZOFF_F16, params[1].states = 8;
    params[2].name = "empty", params[2].dtype = ZOFF_F32, params[2].states = 1;
    params[3].name = "tied", params[3].dtype = ZOFF_BF16, params[3].tied_to = "a%\xff b";
    params[4].name = "\n\x01\x7f\"\\/", params[4].dtype = ZOFF_F32, params[4].states = 7, params[4].slice_name = "layer.{}.w%";
    for (auto &p : params) {
        p.dims = &p == &params[2] ? &none : dims, p.dim_count = &p == &params[2] ? 1 : 2;
        p.count = &p == &params[2] ? 0 : 6;
        p.slices = &p == &params[2] || &p == &params[1] ? 1 : 2;
    }
    const scratch_folder scratch;
    zoff_checkpoint_writer *writer = nullptr;
    zoff_loss_scaler scaler = {sizeof scaler, 65536.5, 40, -1, 2};
    EXPECT_ZOFF_OK(
        zoff_checkpoint_writer_open(scratch.path.c_str(), nullptr, 12, params.data(), params.size(), &scaler, &writer));
    for (size_t i = 0; i < params.size(); i++)
        for (unsigned kind = 0; kind < 4; kind++)
            if (params[i].states >> kind & 1) {
                const std::vector<float> values(params[i].count * params[i].slices, 0.5f);
                EXPECT_ZOFF_OK(zoff_checkpoint_writer_write(writer, i, (zoff_state_kind)kind, 0, values.size(), values.data()));
            }
    EXPECT_ZOFF_OK(zoff_checkpoint_writer_data(writer, "rng", "hello", 5));
    EXPECT_ZOFF_OK(zoff_checkpoint_writer_commit(writer));
    zoff_checkpoint_writer_close(writer);
    all.push_back(packed(scratch.path));
    return all;
}

const target zoff_fuzz::TARGET = {20000, 0.05, seeds};
