/* SPDX-License-Identifier: Apache-2.0 */
// pickle_hostile_test.cc: hostile pickles are refused by the name of what they try, in bounded memory.
#include "torch_bytes.h"

#include <sys/resource.h>

extern "C" {
#include "verbs.h"
}

using namespace torch_bytes;

namespace
{
// The message of a refusal; "" if the pickle is read.
std::string refusal(const std::string &bytes, pickle_names names = PICKLE_NAMES_LISTED)
{
    pickle *p = nullptr;
    fault f = {""};
    // a copy of its own size, so that a sanitizer sees each read beyond it
    const std::vector<char> exact(bytes.begin(), bytes.end());
    if (!pickle_open(exact.data(), exact.size(), names, &p, &f))
        return f.text;
    pickle_close(p);
    return "";
}

void expect_refused(const std::string &bytes, const std::string &words, pickle_names names = PICKLE_NAMES_LISTED)
{
    const std::string message = refusal(bytes, names);
    EXPECT_NE(std::string::npos, message.find(words)) << "\"" << message << "\" has no \"" << words << "\"";
}

long peak_kib()
{
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

std::string repeated(const std::string &piece, size_t count)
{
    std::string all;
    all.reserve(piece.size() * count);
    for (size_t i = 0; i < count; i++)
        all += piece;
    return all;
}
} // namespace

TEST(pickle_refuses, PythonObjectsBesideThoseOfTensors)
{
    const std::vector<std::pair<std::string, std::string>> objects = {{"os", "system"},
                                                                      {"posix", "system"},
                                                                      {"builtins", "eval"},
                                                                      {"__builtin__", "exec"},
                                                                      {"subprocess", "Popen"},
                                                                      {"torch", "load"},
                                                                      {"torch.storage", "_load_from_bytes"},
                                                                      {"torch._utils", "_rebuild_tensor_v2x"},
                                                                      {"torch", "_utils _rebuild_tensor_v2"},
                                                                      {"", ""}};
    for (const auto &object : objects) {
        const std::string call = global(object.first, object.second) + tuple({text("true")}) + "R";
        expect_refused(pickled(call), "\"" + object.first + "." + object.second + "\"");
    }
    EXPECT_EQ("", refusal(pickled(global("collections", "OrderedDict") + ")R")));
}

TEST(pickle_refuses, NamesWithControlCharactersWithoutPrintingThem)
{
    const std::string message = refusal(pickled(global("o\x1b[2Js", "system")));
    testing::internal::CaptureStderr();
    failed("%s", message.c_str());
    const std::string printed = testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::string::npos, printed.find('\x1b'));
    EXPECT_NE(std::string::npos, printed.find("\"o\\x1b[2Js.system\"")) << printed;
}

TEST(pickle_refuses, OpcodesThatNoTensorNeeds)
{
    const std::vector<std::pair<unsigned char, std::string>> opcodes = {{'0', "POP"},
                                                                        {'2', "DUP"},
                                                                        {'i', "INST"},
                                                                        {'o', "OBJ"},
                                                                        {'P', "PERSID"},
                                                                        {'S', "STRING"},
                                                                        {'I', "INT"},
                                                                        {'p', "PUT"},
                                                                        {'g', "GET"},
                                                                        {0x82, "EXT1"},
                                                                        {0x8b, "LONG4"},
                                                                        {0x93, "STACK_GLOBAL"},
                                                                        {0x94, "MEMOIZE"},
                                                                        {0x95, "FRAME"},
                                                                        {0x92, "NEWOBJ_EX"},
                                                                        {0x96, "BYTEARRAY8"},
                                                                        {0x98, "READONLY_BUFFER"}};
    for (const pickle_names names : {PICKLE_NAMES_LISTED, PICKLE_NAMES_ANY}) {
        for (const auto &opcode : opcodes)
            expect_refused(pickled("K\x01" + std::string(1, (char)opcode.first)), "opcode " + opcode.second + " ", names);
        expect_refused(pickled(std::string(1, '\x7f')), "no opcode 0x7f", names);
    }
}

TEST(pickle_refuses, DeepNestingOfEveryKind)
{
    for (const char *open : {"(", "](", "}(K\x01"})
        expect_refused(pickled(repeated(open, 200000)), "nested deeper than 100");
    expect_refused(pickled("K\x01" + repeated("\x85", 200000)), "nested deeper than 100");
    expect_refused(pickled(global("collections", "OrderedDict") + ")R" + repeated("\x85Q", 200000)), "nested deeper than 100");
    const std::string call = global("torch", "Size");
    expect_refused(pickled(repeated(call, 300) + ")" + repeated("R\x85", 300)), "nested deeper than 100");
    // 100 levels are legal
    EXPECT_EQ("", refusal(pickled("K\x01" + repeated("\x85", 100))));
    EXPECT_EQ("", refusal(pickled(repeated("(", 100) + repeated("t", 100))));
}

TEST(pickle_refuses, CountsBeyondItsEnd)
{
    expect_refused("\x80\x02X\xff\xff\xff\xff"
                   "a.",
                   "ends within an opcode");
    expect_refused("\x80\x02\x8a\xff"
                   "a.",
                   "ends within an opcode");
    expect_refused(pickled("K\x01r" + little(0xffffffff, 4)), "memo entry 4294967295 is set when there are only 0");
    expect_refused(pickled("j" + little(0xffffffff, 4)), "memo entry 4294967295 is read");
    expect_refused(pickled(std::string("h\0", 2)), "memo entry 0 is read when there are only 0");
}

TEST(pickle_refuses, OpcodesWithoutTheirValues)
{
    for (const char *code : {"t", "e", "u"})
        expect_refused(pickled(code), "needs a mark");
    for (const char *code : {"\x85", "\x86", "\x87", "a", "s", "R", "\x81", "b", "Q", "(K\x01t\x86", "K\x01(\x85", "]K\x01(a"})
        EXPECT_NE("", refusal(pickled(code))) << code;
    expect_refused(pickled("K\x01K\x01"
                           "a"),
                   "fills what is no list");
    expect_refused(pickled("](K\x01K\x01u"), "fills what is no dict");
    expect_refused(pickled("}(K\x01u"), "a key without a value");
    expect_refused(pickled("(u"), "there is none on the stack");
    expect_refused(pickled("K\x01)R"), "calls what is no Python object");
    expect_refused(pickled(global("torch", "Size") + "]R"), "without a tuple of arguments");
    expect_refused(pickled("]}b"), "a state to what is no object");
    expect_refused("\x80\x02K\x01K\x01.", "more than one value");
    expect_refused("\x80\x02K\x01(.", "");
    expect_refused(pickled("K\x01") + "K\x01.", "3 bytes follow");
    expect_refused("\x80\x06K\x01.", "newer than 5");
    expect_refused("", "ends within an opcode");
    expect_refused(pickled("c" + std::string(500, 'a') + "\nb\n"), "has no end");
}

// A memo bomb: each level names the level before twice, so that the whole would be 2^90 values if it were copied.
TEST(pickle_is_bounded, MemoBombsTakeNoMoreThanTheirBytes)
{
    std::string bomb = std::string("K\x01q") + '\0';
    for (int level = 0; level < 90; level++) {
        const std::string get = std::string("h") + (char)level;
        bomb += get + get + "\x86q" + (char)(level + 1);
    }
    EXPECT_EQ("", refusal(pickled("(" + bomb + "t")));
}

TEST(pickle_is_bounded, ValuesAreCounted)
{
    const long before = peak_kib();
    expect_refused(pickled("](" + repeated("N", PICKLE_VALUES_MAX) + "e"), "more than 6000000 values");
#if !defined(ZOFF_TEST_SANITIZED)
    EXPECT_LT(peak_kib() - before, 1 << 20); // 1 GiB
#endif
    (void)before;
}

TEST(pickle_is_bounded, ListsThatContainThemselvesEnd)
{
    const std::string loop = std::string("]q") + '\0' + "(" + repeated(std::string("h") + '\0', 50) + "e";
    EXPECT_EQ("", refusal(pickled(loop)));
    expect_refused(pickled(std::string("]q") + '\0' + "(" + repeated(std::string("h") + '\0', 500) + "e"), "nested deeper");
}

TEST(pickle_refuses, EveryBeginningOfAGoodPickle)
{
    const std::string good = pickled(dict({{text("cat_dim"), "K\x01"},
                                           {text("vocab_tensor"), "\x88"},
                                           {text("x"), real(2)},
                                           {text("n"), "N"},
                                           {text("param"), tensor(contiguous({3, 5}))}}));
    ASSERT_EQ("", refusal(good));
    for (size_t count = 0; count < good.size(); count++)
        EXPECT_NE("", refusal(good.substr(0, count))) << count;
}
