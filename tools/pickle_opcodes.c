/* SPDX-License-Identifier: Apache-2.0 */
/* pickle_opcodes.c: the opcodes of a pickle: those that PyTorch writes are carried out, all others are refused by their names.
 */
#include "pickle_priv.h"

#include <string.h>

static bool push_new(pickle_reader *r, pickle_type type)
{
    pickle_value *v = pickle_reader_make(r, type);
    return v && pickle_reader_push(r, v);
}

static bool push_int(pickle_reader *r, pickle_type type, int64_t number)
{
    pickle_value *v = pickle_reader_make(r, type);
    if (!v)
        return false;
    v->number = number;
    return pickle_reader_push(r, v);
}

/* ---- numbers and texts ---- */

static bool op_none(pickle_reader *r)
{
    return push_new(r, PICKLE_NONE);
}
static bool op_true(pickle_reader *r)
{
    return push_int(r, PICKLE_BOOL, 1);
}
static bool op_false(pickle_reader *r)
{
    return push_int(r, PICKLE_BOOL, 0);
}

static bool read_int(pickle_reader *r, size_t bytes)
{
    uint64_t number;
    return pickle_reader_unsigned(r, bytes, &number) && push_int(r, PICKLE_INT, (int64_t)number);
}

static bool op_binint1(pickle_reader *r)
{
    return read_int(r, 1);
}
static bool op_binint2(pickle_reader *r)
{
    return read_int(r, 2);
}

static bool op_binint(pickle_reader *r)
{
    uint64_t number;
    return pickle_reader_unsigned(r, 4, &number) && push_int(r, PICKLE_INT, (int32_t)(uint32_t)number);
}

/* Push an integer: two's complement in as many bytes as it needs. */
static bool op_long1(pickle_reader *r)
{
    uint64_t bytes, number;
    const unsigned char *large;
    if (!pickle_reader_unsigned(r, 1, &bytes))
        return false;
    if (bytes > 8)
        return pickle_reader_bytes(r, bytes, &large) && push_new(r, PICKLE_LARGE);
    if (!pickle_reader_unsigned(r, bytes, &number))
        return false;
    const unsigned unused = 64 - 8 * (unsigned)bytes;
    if (bytes > 0 && number >> (8 * bytes - 1)) /* negative */
        number |= unused ? ~UINT64_C(0) << (64 - unused) : 0;
    return push_int(r, PICKLE_INT, (int64_t)number);
}

static bool op_binfloat(pickle_reader *r)
{
    const unsigned char *from;
    if (!pickle_reader_bytes(r, 8, &from))
        return false;
    uint64_t bits = 0;
    for (size_t i = 0; i < 8; i++)
        bits = bits << 8 | from[i];
    pickle_value *v = pickle_reader_make(r, PICKLE_FLOAT);
    if (!v)
        return false;
    memcpy(&v->real, &bits, sizeof bits);
    return pickle_reader_push(r, v);
}

static bool op_binunicode(pickle_reader *r)
{
    uint64_t bytes;
    const unsigned char *text;
    if (!pickle_reader_unsigned(r, 4, &bytes) || !pickle_reader_bytes(r, bytes, &text))
        return false;
    pickle_value *v = pickle_reader_make(r, PICKLE_TEXT);
    if (!v)
        return false;
    v->text = (const char *)text, v->text_bytes = bytes;
    return pickle_reader_push(r, v);
}

/* ---- containers ---- */

static bool op_mark(pickle_reader *r)
{
    return pickle_reader_mark(r);
}
static bool op_empty_tuple(pickle_reader *r)
{
    return push_new(r, PICKLE_TUPLE);
}
static bool op_empty_list(pickle_reader *r)
{
    return push_new(r, PICKLE_LIST);
}
static bool op_empty_dict(pickle_reader *r)
{
    return push_new(r, PICKLE_DICT);
}

/* Make a tuple of the values from `first` on. */
static bool make_tuple(pickle_reader *r, size_t first)
{
    pickle_value *v = pickle_reader_make(r, PICKLE_TUPLE);
    for (size_t i = first; v && i < r->height; i++) {
        if (!pickle_reader_add(r, v, r->stack[i]))
            return false;
    }
    r->height = first;
    return v && pickle_reader_push(r, v);
}

static bool short_tuple(pickle_reader *r, size_t count)
{
    if (r->height - pickle_reader_floor(r) < count)
        return fault_set(r->fault, "a tuple of %zu needs more values than the stack has", count);
    return make_tuple(r, r->height - count);
}

static bool op_tuple1(pickle_reader *r)
{
    return short_tuple(r, 1);
}
static bool op_tuple2(pickle_reader *r)
{
    return short_tuple(r, 2);
}
static bool op_tuple3(pickle_reader *r)
{
    return short_tuple(r, 3);
}

static bool op_tuple(pickle_reader *r)
{
    size_t first;
    return pickle_reader_unmark(r, &first) && make_tuple(r, first);
}

/* Move the values from `first` on into the container below them. Only lists, dicts and objects grow. */
static bool fill(pickle_reader *r, size_t first, bool pairs)
{
    if (first == pickle_reader_floor(r))
        return fault_set(r->fault, "an opcode fills a container, and there is none on the stack");
    pickle_value *to = r->stack[first - 1];
    if (to->type != PICKLE_OBJECT && to->type != (pairs ? PICKLE_DICT : PICKLE_LIST))
        return fault_set(r->fault, "an opcode fills what is no %s", pairs ? "dict" : "list");
    if (pairs && (r->height - first) % 2 != 0)
        return fault_set(r->fault, "a dict gets a key without a value");
    for (size_t i = first; i < r->height; i++) {
        if (!pickle_reader_add(r, to, r->stack[i]))
            return false;
    }
    r->height = first;
    return true;
}

/* Fill with the values above the mark. */
static bool fill_marked(pickle_reader *r, bool pairs)
{
    size_t first;
    return pickle_reader_unmark(r, &first) && fill(r, first, pairs);
}

static bool fill_short(pickle_reader *r, size_t count)
{
    if (r->height - pickle_reader_floor(r) < count)
        return fault_set(r->fault, "an opcode adds more values than the stack has");
    return fill(r, r->height - count, count == 2);
}

static bool op_append(pickle_reader *r)
{
    return fill_short(r, 1);
}
static bool op_appends(pickle_reader *r)
{
    return fill_marked(r, false);
}
static bool op_setitem(pickle_reader *r)
{
    return fill_short(r, 2);
}
static bool op_setitems(pickle_reader *r)
{
    return fill_marked(r, true);
}

/* ---- the memo ---- */

static bool memo_index(pickle_reader *r, size_t bytes, bool (*use)(pickle_reader *, size_t))
{
    uint64_t index;
    return pickle_reader_unsigned(r, bytes, &index) && use(r, index);
}

static bool op_binput(pickle_reader *r)
{
    return memo_index(r, 1, pickle_reader_remember);
}
static bool op_long_binput(pickle_reader *r)
{
    return memo_index(r, 4, pickle_reader_remember);
}
static bool op_binget(pickle_reader *r)
{
    return memo_index(r, 1, pickle_reader_recall);
}
static bool op_long_binget(pickle_reader *r)
{
    return memo_index(r, 4, pickle_reader_recall);
}

/* ---- Python objects ---- */

/* The objects that tensor files of a universal checkpoint name. */
static const char *const LISTED[] = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "torch FloatStorage",
    "torch HalfStorage",
    "torch BFloat16Storage",
    "torch LongStorage",
    "torch Size",
    "deepspeed.checkpoint.universal_checkpoint SubparamShape",
};

static bool is_listed(const pickle_value *v)
{
    for (size_t i = 0; i < sizeof LISTED / sizeof LISTED[0]; i++) {
        if (pickle_is_global(v, LISTED[i]))
            return true;
    }
    return false;
}

/* Read two lines, the module and the name. The value's text has both, with the end of the first line between them. */
static bool op_global(pickle_reader *r)
{
    enum { NAME_MAX_BYTES = 400 };
    const unsigned char *text = r->bytes + r->at;
    const size_t left = r->count - r->at < NAME_MAX_BYTES ? r->count - r->at : NAME_MAX_BYTES;
    const unsigned char *first = memchr(text, '\n', left);
    const unsigned char *second = first ? memchr(first + 1, '\n', left - (size_t)(first + 1 - text)) : NULL;
    if (!second)
        return fault_set(r->fault, "the name of a Python object has no end");
    r->at += (size_t)(second + 1 - text);
    pickle_value *v = pickle_reader_make(r, PICKLE_GLOBAL);
    if (!v)
        return false;
    v->text = (const char *)text, v->text_bytes = (size_t)(second - text);
    if (r->names == PICKLE_NAMES_LISTED && !is_listed(v))
        return fault_set(r->fault,
                         "it names the Python object \"%.*s.%.*s\", which no tensor needs; nothing of it was executed",
                         (int)(first - text), (const char *)text, (int)(second - first - 1), (const char *)first + 1);
    return pickle_reader_push(r, v);
}

/* Pop the arguments and the called object, and push an object for the result. */
static bool op_call(pickle_reader *r)
{
    pickle_value *arguments, *callee, *v = pickle_reader_make(r, PICKLE_OBJECT);
    if (!v || !pickle_reader_pop(r, &arguments) || !pickle_reader_pop(r, &callee))
        return false;
    if (arguments->type != PICKLE_TUPLE || callee->type != PICKLE_GLOBAL)
        return fault_set(r->fault, "it calls what is no Python object by its name, or without a tuple of arguments");
    v->callee = callee, v->arguments = arguments, v->depth = arguments->depth + 1;
    if (v->depth > PICKLE_DEPTH)
        return fault_set(r->fault, "the pickle is nested deeper than %d levels", PICKLE_DEPTH);
    return pickle_reader_push(r, v);
}

static bool op_build(pickle_reader *r)
{
    pickle_value *state, *v;
    if (!pickle_reader_pop(r, &state) || !pickle_reader_pop(r, &v))
        return false;
    if (v->type != PICKLE_OBJECT)
        return fault_set(r->fault, "it gives a state to what is no object");
    v->state = state;
    return pickle_reader_push(r, v);
}

static bool op_binpersid(pickle_reader *r)
{
    pickle_value *id, *v = pickle_reader_make(r, PICKLE_STORAGE);
    if (!v || !pickle_reader_pop(r, &id))
        return false;
    v->arguments = id, v->depth = id->depth + 1;
    return pickle_reader_push(r, v);
}

/* ---- begin and end ---- */

static bool op_proto(pickle_reader *r)
{
    uint64_t version;
    if (!pickle_reader_unsigned(r, 1, &version))
        return false;
    return version <= 5 || fault_set(r->fault, "it has version %u of the pickle protocol, newer than 5", (unsigned)version);
}

static bool op_stop(pickle_reader *r)
{
    pickle_value *v;
    if (!pickle_reader_pop(r, &v))
        return false;
    if (r->height > 0 || r->mark_count > 0)
        return fault_set(r->fault, "it ends with more than one value");
    r->root = v;
    r->ended = true;
    return true;
}

/* All opcodes of Python's module pickle. Those without a function are refused. */
/* clang-format off */
static const struct {
    unsigned char code;
    const char *name;
    bool (*run)(pickle_reader *r);
} OPCODES[] = {
    {0x80, "PROTO", op_proto}, {'.', "STOP", op_stop}, {'(', "MARK", op_mark},
    {'N', "NONE", op_none}, {0x88, "NEWTRUE", op_true}, {0x89, "NEWFALSE", op_false},
    {'J', "BININT", op_binint}, {'K', "BININT1", op_binint1}, {'M', "BININT2", op_binint2}, {0x8a, "LONG1", op_long1},
    {'G', "BINFLOAT", op_binfloat}, {'X', "BINUNICODE", op_binunicode},
    {')', "EMPTY_TUPLE", op_empty_tuple}, {0x85, "TUPLE1", op_tuple1}, {0x86, "TUPLE2", op_tuple2}, {0x87, "TUPLE3", op_tuple3},
    {'t', "TUPLE", op_tuple}, {']', "EMPTY_LIST", op_empty_list}, {'a', "APPEND", op_append}, {'e', "APPENDS", op_appends},
    {'}', "EMPTY_DICT", op_empty_dict}, {'s', "SETITEM", op_setitem}, {'u', "SETITEMS", op_setitems},
    {'q', "BINPUT", op_binput}, {'r', "LONG_BINPUT", op_long_binput},
    {'h', "BINGET", op_binget}, {'j', "LONG_BINGET", op_long_binget},
    {'c', "GLOBAL", op_global}, {'R', "REDUCE", op_call}, {0x81, "NEWOBJ", op_call}, {'b', "BUILD", op_build},
    {'Q', "BINPERSID", op_binpersid},
    {'0', "POP", NULL}, {'1', "POP_MARK", NULL}, {'2', "DUP", NULL}, {'F', "FLOAT", NULL}, {'I', "INT", NULL},
    {'L', "LONG", NULL}, {0x8b, "LONG4", NULL}, {'P', "PERSID", NULL}, {'S', "STRING", NULL}, {'T', "BINSTRING", NULL},
    {'U', "SHORT_BINSTRING", NULL}, {'V', "UNICODE", NULL}, {'d', "DICT", NULL}, {'l', "LIST", NULL}, {'g', "GET", NULL},
    {'p', "PUT", NULL}, {'i', "INST", NULL}, {'o', "OBJ", NULL}, {'B', "BINBYTES", NULL}, {'C', "SHORT_BINBYTES", NULL},
    {0x82, "EXT1", NULL}, {0x83, "EXT2", NULL}, {0x84, "EXT4", NULL}, {0x8c, "SHORT_BINUNICODE", NULL},
    {0x8d, "BINUNICODE8", NULL}, {0x8e, "BINBYTES8", NULL}, {0x8f, "EMPTY_SET", NULL}, {0x90, "ADDITEMS", NULL},
    {0x91, "FROZENSET", NULL}, {0x92, "NEWOBJ_EX", NULL}, {0x93, "STACK_GLOBAL", NULL}, {0x94, "MEMOIZE", NULL},
    {0x95, "FRAME", NULL}, {0x96, "BYTEARRAY8", NULL}, {0x97, "NEXT_BUFFER", NULL}, {0x98, "READONLY_BUFFER", NULL},
};
/* clang-format on */

bool pickle_opcode_run(pickle_reader *r, unsigned char code)
{
    for (size_t i = 0; i < sizeof OPCODES / sizeof OPCODES[0]; i++) {
        if (OPCODES[i].code != code)
            continue;
        if (OPCODES[i].run)
            return OPCODES[i].run(r);
        return fault_set(r->fault, "the opcode %s is none that PyTorch writes for tensors", OPCODES[i].name);
    }
    return fault_set(r->fault, "there is no opcode 0x%02x", code);
}
