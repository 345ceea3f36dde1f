/* SPDX-License-Identifier: Apache-2.0 */
// fuzz.cc: see fuzz.h.
#include "fuzz.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zoff/zoff.h>

#include <algorithm>
#include <filesystem>

// Only libFuzzer has it.
extern "C" __attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t bytes, size_t most);

/* ---- memory ---- */

static bool is_limited; // from the first run on

// Inputs have at most some MB, so a larger piece of memory has a size that only a number of the input claims. Mappings may be
// as large as the buffers of a queue, which are used as far as there is something to move.
enum { HEAP_MOST = 16 << 20, MAP_MOST = 128 << 20 };

static void check_size(size_t bytes, size_t most)
{
    zoff_fuzz::require(!is_limited || bytes <= most, "no memory is much larger than the input");
}

extern "C" {
void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__real_realloc(void *from, size_t bytes);
void *__wrap_realloc(void *from, size_t bytes);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
}

void *__wrap_malloc(size_t bytes)
{
    check_size(bytes, HEAP_MOST);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    check_size(bytes && count > SIZE_MAX / bytes ? SIZE_MAX : count * bytes, HEAP_MOST);
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *from, size_t bytes)
{
    check_size(bytes, HEAP_MOST);
    return __real_realloc(from, bytes);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    check_size(bytes, MAP_MOST);
    return __real_mmap(at, bytes, protection, flags, fd, offset);
}

namespace zoff_fuzz
{
unsigned accepted;

void accept()
{
    accepted++;
}

void require(bool holds, const char *property)
{
    if (holds)
        return;
    dprintf(STDERR_FILENO, "a property does not hold: %s\nlast error: %s\n", property, zoff_last_error());
    abort();
}

/* ---- inputs of several files ---- */

// Each file is a line "NAME BYTES", then extents, each a line "PLACE COUNT" with its bytes and a line end, then an empty line.
enum { GAP = 32, FILE_MOST = 1 << 22, FILES_MOST = 64 };

std::string pack(const files &all)
{
    std::string text;
    for (const auto &[name, bytes] : all) {
        text += name + " " + std::to_string(bytes.size()) + "\n";
        for (size_t at = bytes.find_first_not_of('\0'); at != std::string::npos;) {
            size_t end = at, next = at;
            while (next != std::string::npos && next <= end + GAP) {
                end = std::min(bytes.find('\0', next), bytes.size());
                next = bytes.find_first_not_of('\0', end);
            }
            text += std::to_string(at) + " " + std::to_string(end - at) + "\n" + bytes.substr(at, end - at) + "\n";
            at = next;
        }
        text += "\n";
    }
    return text;
}

// Whether a line is two words, the second one a number; the first is before its last space.
static bool read_line(const std::string &text, size_t *at, std::string *first, size_t *second)
{
    const size_t end = text.find('\n', *at), space = text.rfind(' ', end);
    if (end == std::string::npos || space == std::string::npos || space <= *at || space >= end)
        return false;
    *first = text.substr(*at, space - *at);
    *second = strtoull(text.c_str() + space, nullptr, 10);
    *at = end + 1;
    return true;
}

files unpack(const uint8_t *data, size_t bytes)
{
    files all;
    const std::string text((const char *)data, bytes);
    std::string name, place;
    size_t at = 0, size, count;
    while (all.size() < FILES_MOST && read_line(text, &at, &name, &size)) {
        std::string &file = all[name];
        file.assign(std::min(size, (size_t)FILE_MOST), 0);
        while (at < text.size() && text[at] != '\n' && read_line(text, &at, &place, &count)) {
            const size_t from = strtoull(place.c_str(), nullptr, 10), there = std::min(count, text.size() - at);
            if (from < file.size())
                file.replace(from, std::min(there, file.size() - from), text, at, std::min(there, file.size() - from));
            at += std::min(there + 1, text.size() - at);
        }
        at++;
    }
    return all;
}

// Names that lead out of the folder are not written.
static bool is_inside(const std::string &name)
{
    return !name.empty() && name[0] != '/' && name.find("..") == std::string::npos && name.find('\0') == std::string::npos;
}

// Zeros are holes, because most files are large and have few other bytes.
static void write_sparse(const std::string &path, const std::string &bytes)
{
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) // an odd name
        return;
    require(ftruncate(fd, (off_t)bytes.size()) == 0, "the file has its size");
    for (size_t at = 0; at < bytes.size(); at += 4096) {
        const size_t count = std::min(bytes.size() - at, (size_t)4096);
        static const char ZEROS[4096] = {0};
        if (memcmp(bytes.data() + at, ZEROS, count) != 0)
            require(pwrite(fd, bytes.data() + at, count, (off_t)at) == (ssize_t)count, "the file is written");
    }
    close(fd);
}

static std::string new_folder()
{
    static unsigned number;
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : ".";
    return std::string(root) + "/zoff-fuzz-" + std::to_string(getpid()) + "-" + std::to_string(number++ % 2);
}

folder::folder(const files &all) : path(new_folder())
{
    std::error_code error;
    std::filesystem::create_directory(path, error);
    for (const auto &[name, bytes] : all) {
        if (!is_inside(name))
            continue;
        if (name.find('/') != std::string::npos)
            std::filesystem::create_directories(std::filesystem::path(file(name)).parent_path(), error);
        write_sparse(file(name), bytes);
    }
}

folder::~folder()
{
    std::error_code error;
    std::filesystem::remove_all(path, error);
}

std::string quiet_output()
{
    static char *text;
    static size_t bytes;
    static FILE *kept;
    if (!kept) {
        zoff_log_set([](zoff_log_level, const char *, const char *, void *) {}, nullptr);
        kept = open_memstream(&text, &bytes);
        stderr = kept; // libFuzzer and the sanitizers write to the descriptor
        stdout = fopen("/dev/null", "we");
    }
    is_limited = true;
    fflush(kept);
    const std::string printed(text, bytes);
    rewind(kept);
    return printed;
}

/* ---- changes ---- */

uint64_t changes::number()
{
    static const uint64_t ENDS[] = {0,
                                    1,
                                    2,
                                    16,
                                    64,
                                    1024,
                                    4096,
                                    65536,
                                    1u << 24,
                                    1u << 31,
                                    UINT32_MAX,
                                    (uint64_t)1 << 32,
                                    (uint64_t)1 << 40,
                                    (uint64_t)1 << 58,
                                    (uint64_t)1 << 62,
                                    INT64_MAX,
                                    (uint64_t)1 << 63,
                                    UINT64_MAX};
    return ENDS[any(sizeof ENDS / sizeof ENDS[0])] + any(3) - 1;
}

void changes::bytes(std::string *text)
{
    if (LLVMFuzzerMutate && any(2)) {
        std::string room = *text;
        room.resize(text->size() + 64);
        room.resize(LLVMFuzzerMutate((uint8_t *)room.data(), text->size(), room.size()));
        *text = room;
        return;
    }
    const size_t at = any(text->size());
    switch (text->empty() ? 1 : any(5)) {
    case 0:
        (*text)[at] = (char)((*text)[at] ^ 1 << any(8));
        break;
    case 1:
        text->insert(at, 1, (char)random());
        break;
    case 2:
        text->erase(at, 1 + any(8));
        break;
    case 3:
        text->insert(any(text->size()), text->substr(at, 1 + any(40)));
        break;
    default:
        text->resize(any(text->size()) + any(64));
    }
}

void changes::field(std::string *text, size_t from, size_t to)
{
    to = std::min(to, text->size());
    const size_t size = (size_t)1 << any(4);
    if (from + size > to)
        return;
    const size_t at = from + any((to - from) / size) * size;
    uint64_t value = 0;
    memcpy(&value, &(*text)[at], size);
    value = any(2) ? number() : any(2) ? value + 1 : any(2) ? value - 1 : value ^ (uint64_t)1 << any(8 * size);
    memcpy(&(*text)[at], &value, size);
}

/* ---- JSON ---- */

static std::vector<std::pair<size_t, size_t>> tokens_of(const std::string &text)
{
    std::vector<std::pair<size_t, size_t>> all;
    for (size_t at = 0; at < text.size();) {
        size_t end = at + 1;
        if (text[at] == '"') {
            while (end < text.size() && text[end] != '"')
                end += text[end] == '\\' ? 2 : 1;
            end = std::min(end + 1, text.size());
        } else if (isalnum((unsigned char)text[at]) || text[at] == '-') {
            while (end < text.size() && (isalnum((unsigned char)text[end]) || strchr("+-.", text[end])) && text[end])
                end++;
        } else if (!strchr("[]{},:", text[at]) || !text[at]) {
            at++;
            continue;
        }
        all.push_back({at, end - at});
        at = end;
    }
    return all;
}

void changes::json(std::string *text, const std::vector<std::string> &words)
{
    static const std::vector<std::string> COMMON = {"0",
                                                    "1",
                                                    "-1",
                                                    "1.5",
                                                    "1e308",
                                                    "1e999",
                                                    "-0.0",
                                                    "00",
                                                    "9223372036854775807",
                                                    "9223372036854775808",
                                                    "4294967296",
                                                    "null",
                                                    "true",
                                                    "false",
                                                    "[]",
                                                    "{}",
                                                    "\"\"",
                                                    "[1,2]",
                                                    "{\"a\":1}",
                                                    "\"\\u0000\"",
                                                    "\"\\ud800\"",
                                                    "\"%00\"",
                                                    "\"%FF\"",
                                                    "\"../x\"",
                                                    "\"/\"",
                                                    "\"\xff\"",
                                                    "{\"a\":1,\"a\":2}",
                                                    "[[[[[[[[1]]]]]]]]",
                                                    ",",
                                                    "]",
                                                    "}",
                                                    "\"\n\""};
    const auto tokens = tokens_of(*text);
    if (tokens.empty() || any(16) == 0)
        return bytes(text);
    const auto [at, count] = tokens[any(tokens.size())];
    const auto [from, length] = tokens[any(tokens.size())];
    const std::string token = text->substr(at, count);
    switch (any(7)) {
    case 0: // a word of the format or of JSON
    case 1:
        text->replace(at, count, any(2) && !words.empty() ? one_of(words) : one_of(COMMON));
        break;
    case 2: // a number
        if (isdigit((unsigned char)token[0]) || any(4) == 0)
            text->replace(at, count,
                          any(3) ? std::to_string((int64_t)number())
                                 : std::to_string(strtoll(token.c_str(), nullptr, 10) + (int64_t)any(3) - 1));
        break;
    case 3: { // what is inside of a token
        std::string inside = token.size() > 2 ? token.substr(1, token.size() - 2) : token;
        bytes(&inside);
        text->replace(token.size() > 2 ? at + 1 : at, token.size() > 2 ? count - 2 : count, inside);
        break;
    }
    case 4: // the token of another place
        text->replace(at, count, text->substr(from, length));
        break;
    case 5: { // from here to the next line, comma or bracket: away, or twice
        const size_t end = std::min(text->find_first_of("\n,}]", at + count), text->size());
        if (any(2))
            text->erase(at, end - at);
        else
            text->insert(at, text->substr(at, end - at) + ",");
        break;
    }
    default: // a span to another place
        text->insert(from, text->substr(at, 1 + any(60)));
    }
}

/* ---- pickles ---- */

// Bytes of an opcode with its operand; 1 for one that is not known.
static size_t opcode_bytes(const std::string &text, size_t at)
{
    const auto little = [&](size_t from, size_t count) {
        size_t value = 0;
        for (size_t i = count; i-- > 0;)
            value = value << 8 | (from + i < text.size() ? (uint8_t)text[from + i] : 0);
        return value;
    };
    const auto line = [&](size_t from) { return std::min(text.find('\n', from), text.size() - 1) + 1; };
    switch ((uint8_t)text[at]) {
    case 0x80:
    case 'K':
    case 'h':
    case 'q':
        return 2;
    case 'M':
        return 3;
    case 'J':
    case 'j':
    case 'r':
        return 5;
    case 'G':
    case 0x95:
        return 9;
    case 'X':
    case 'T':
        return 5 + little(at + 1, 4);
    case 0x8a:
    case 0x8c:
    case 'U':
        return 2 + little(at + 1, 1);
    case 'c':
        return line(line(at + 1)) - at;
    default:
        return 1;
    }
}

void changes::pickle(std::string *text)
{
    static const std::string OPCODES = ".(NJKMGX)t]ae}suqrhjcRbQ\x80\x81\x85\x86\x87\x88\x89\x8a\x8c\x94\x93\x95";
    static const std::vector<std::string> WORDS = {
        "param",       "step",      "state",        "param_groups",  "params",
        "model",       "optimizer", "exp_avg",      "exp_avg_sq",    "storage",
        "0",           "1",         "cpu",          "module.",       "cat_dim",
        "loss_scaler", "cur_scale", "param_shapes", "shared_params", "max_exp_avg_sq"};
    static const std::vector<std::string> GLOBALS = {"torch._utils\n_rebuild_tensor_v2\n",
                                                     "torch._utils\n_rebuild_tensor_v3\n",
                                                     "torch._utils\n_rebuild_parameter\n",
                                                     "collections\nOrderedDict\n",
                                                     "torch\nFloatStorage\n",
                                                     "torch\nHalfStorage\n",
                                                     "torch\nBFloat16Storage\n",
                                                     "torch\nLongStorage\n",
                                                     "torch\nDoubleStorage\n",
                                                     "torch\nSize\n",
                                                     "os\nsystem\n",
                                                     "torch.storage\nUntypedStorage\n",
                                                     "torch\nfloat8_e4m3fn\n"};
    std::vector<std::pair<size_t, size_t>> all;
    for (size_t at = 0; at < text->size(); at += all.back().second)
        all.push_back({at, std::min(opcode_bytes(*text, at), text->size() - at)});
    if (all.empty() || any(12) == 0)
        return bytes(text);
    const auto [at, count] = all[any(all.size())];
    const auto [from, length] = all[any(all.size())];
    std::string word = one_of(WORDS), size(4, 0);
    switch (any(8)) {
    case 0:
        text->erase(at, count);
        break;
    case 1: // an opcode, or some, at another place, or as often as a tensor has dimensions
        word = text->substr(at, any(3) ? count : any(60));
        for (size_t times = any(8) ? 1 : 1 + any(20); times; times--)
            text->insert(from, word);
        break;
    case 2:
        text->insert(at, 1, OPCODES[any(OPCODES.size())]);
        break;
    case 3: // an operand of numbers
        if (count <= 9)
            field(text, at + 1, at + count);
        break;
    case 4: // a text
        if (any(3) == 0)
            bytes(&word);
        size[0] = (char)word.size();
        text->replace(at, (*text)[at] == 'X' ? count : 0, "X" + size + word);
        break;
    case 5: // a Python object
        text->replace(at, (*text)[at] == 'c' ? count : 0, "c" + one_of(GLOBALS));
        break;
    case 6: // a number of any size
        text->replace(at, any(2) ? count : 0, "\x8a\x08" + std::string(8, 0));
        if (text->size() > at + 10) {
            const uint64_t value = number();
            memcpy(&(*text)[at + 2], &value, 8);
        }
        break;
    default:
        text->replace(at, count, text->substr(from, length));
    }
}

/* ---- zip archives ---- */

static void put(std::string *to, uint64_t number, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        *to += (char)(number >> 8 * i);
}

static uint32_t crc_of(const std::string &bytes)
{
    uint32_t crc = ~0u;
    for (const char c : bytes) {
        crc ^= (uint8_t)c;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xedb88320 & -(crc & 1));
    }
    return ~crc;
}

std::string changes::make_zip(const std::vector<std::pair<std::string, std::string>> &entries)
{
    std::string archive, directory;
    for (const auto &[name, bytes] : entries) {
        std::string common(10, 0); // of both headers
        put(&common, crc_of(bytes), 4);
        put(&common, bytes.size(), 4);
        put(&common, bytes.size(), 4);
        put(&common, name.size(), 2);
        put(&common, 0, 2);
        directory += "PK\1\2" + std::string(2, 0) + common + std::string(10, 0);
        put(&directory, archive.size(), 4);
        directory += name;
        archive += "PK\3\4" + common + name + bytes;
    }
    const size_t at = archive.size();
    archive += directory + "PK\5\6" + std::string(4, 0);
    put(&archive, entries.size(), 2);
    put(&archive, entries.size(), 2);
    put(&archive, directory.size(), 4);
    put(&archive, at, 4);
    put(&archive, 0, 2);
    return archive;
}

static std::vector<std::pair<std::string, std::string>> entries_of(const std::string &archive)
{
    std::vector<std::pair<std::string, std::string>> all;
    for (size_t at = 0; at + 30 <= archive.size() && archive.compare(at, 4, "PK\3\4") == 0;) {
        uint32_t bytes;
        uint16_t name, extra;
        memcpy(&bytes, &archive[at + 18], 4);
        memcpy(&name, &archive[at + 26], 2);
        memcpy(&extra, &archive[at + 28], 2);
        const size_t data = at + 30 + name + extra;
        if (data + bytes > archive.size())
            break;
        all.push_back({archive.substr(at + 30, name), archive.substr(data, bytes)});
        at = data + bytes;
    }
    return all;
}

void changes::zip(std::string *archive, size_t most)
{
    auto entries = entries_of(*archive);
    const size_t directory = archive->rfind("PK\1\2");
    if (entries.empty() || any(16) == 0)
        return bytes(archive);
    if (any(8) == 0 && directory != std::string::npos) // a field of the directory that does not fit the entry
        return field(archive, directory + any(2) * 10, directory + 46);
    auto &entry = entries[any(entries.size())];
    const auto pickle_entry = std::find_if(entries.begin(), entries.end(), [](const auto &e) {
        return e.first.size() > 8 && e.first.compare(e.first.size() - 8, 8, "data.pkl") == 0;
    });
    switch (any(12)) {
    case 0:
        bytes(&entry.first);
        break;
    case 1:
        entries.push_back(entry);
        break;
    case 2:
        entries.erase(entries.begin() + (ptrdiff_t)any(entries.size()));
        break;
    case 3:
        bytes(&entry.second);
        break;
    default:
        if (pickle_entry == entries.end())
            bytes(&entry.second);
        else
            pickle(&pickle_entry->second);
    }
    const std::string made = make_zip(entries);
    if (made.size() <= most)
        *archive = made;
}

size_t give(const std::string &changed, uint8_t *data, size_t bytes, size_t most)
{
    if (changed.size() > most)
        return bytes;
    memcpy(data, changed.data(), changed.size());
    return changed.size();
}
} // namespace zoff_fuzz
