/* described.c: reads the description beside a persistent state file, which src/model/describe.c writes. Every number is
 * checked: the text has no checksum. */
#include "described_priv.h"

#include "bits.h"
#include "cpu_adam.h"
#include "try.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ELEMENTS_MOST ((json_int_t)1 << 58)

/* ---- open ---- */

static bool has_number(const json_t *object, const char *key, uint64_t wanted)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) && json_integer_value(value) >= 0 && (uint64_t)json_integer_value(value) == wanted;
}

static bool has_text(const json_t *object, const char *key, const char *wanted)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text && strcmp(text, wanted) == 0;
}

static bool has_hex(const json_t *object, const char *key, uint64_t wanted)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, wanted);
    return has_text(object, key, text);
}

static zoff_status check(const zoff_described *d, uint64_t layout, uint64_t cut, unsigned rank)
{
    ZOFF_FAIL_IF(!has_text(d->root, "format", "zoff states"), ZOFF_ERR_CORRUPT, "'%s' is not a description of state files",
                 d->path);
    ZOFF_FAIL_IF(!has_number(d->root, "version", 1), ZOFF_ERR_UNSUPPORTED,
                 "'%s' has another version, and this library reads version 1", d->path);
    ZOFF_FAIL_IF(!has_hex(d->root, "layout", layout) || !has_hex(d->root, "cut", cut) || !has_number(d->root, "rank", rank),
                 ZOFF_ERR_CORRUPT, "'%s' describes other states than the file beside it has", d->path);
    ZOFF_FAIL_IF(!json_is_array(json_object_get(d->root, "params")) || !json_is_array(json_object_get(d->root, "chunks")),
                 ZOFF_ERR_CORRUPT, "'%s' has no lists of parameters and chunks", d->path);
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_described_open(const char *state_file, uint64_t layout, uint64_t cut, unsigned rank,
                                           zoff_described *out)
{
    json_error_t error;
    zoff_described d = {.root = NULL};
    const size_t room = strlen(state_file) + sizeof ".json";
    ZOFF_TRY(zoff_base_mem_alloc(room, 1, "a path", &d.path));
    snprintf(d.path, room, "%s.json", state_file);
    d.root = json_load_file(d.path, JSON_REJECT_DUPLICATES, &error);
    zoff_status status = ZOFF_OK;
    if (!d.root && json_error_code(&error) == json_error_cannot_open_file)
        status = zoff_base_status_fail(ZOFF_ERR_IO,
                                       "cannot read '%s', which says where states are in the file beside it. An engine that "
                                       "opens the state files writes it",
                                       d.path);
    else if (!d.root)
        status = zoff_base_status_fail(ZOFF_ERR_CORRUPT, "'%s' cannot be read: %s (line %d)", d.path, error.text, error.line);
    else
        status = check(&d, layout, cut, rank);
    if (status < 0)
        zoff_checkpoint_described_close(&d);
    else
        *out = d;
    return status;
}

void zoff_checkpoint_described_close(zoff_described *d)
{
    json_decref(d->root);
    zoff_base_mem_free(d->path);
    *d = (zoff_described){.root = NULL};
}

/* ---- parameters ---- */

/* A name whose characters stand for one byte each: those from 128 on are two bytes of UTF-8. */
static zoff_status copy_name(const char *text, char **out)
{
    ZOFF_FAIL_IF(!text, ZOFF_ERR_CORRUPT, "it has no name");
    ZOFF_TRY(zoff_base_mem_alloc(strlen(text) + 1, 1, "a name", out));
    char *to = *out;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        ZOFF_FAIL_IF(*c > 0xc3, ZOFF_ERR_CORRUPT, "its name has a character that is no byte");
        *to++ = (char)(*c < 0x80 ? *c : (*c & 3) << 6 | (c[1] & 0x3f));
        c += *c >= 0x80;
    }
    ZOFF_FAIL_IF(to - *out > ZOFF_ARCHIVE_PARAM_NAME_MOST, ZOFF_ERR_CORRUPT, "its name is longer than %d bytes",
                 ZOFF_ARCHIVE_PARAM_NAME_MOST);
    return ZOFF_OK;
}

static zoff_status read_size(const json_t *value, size_t *out)
{
    ZOFF_FAIL_IF(!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > ELEMENTS_MOST,
                 ZOFF_ERR_CORRUPT, "a number is missing or out of range");
    *out = (size_t)json_integer_value(value);
    return ZOFF_OK;
}

/* An empty list of dims is one dimension. */
static zoff_status read_dims(const json_t *dims, zoff_archive_param *p)
{
    size_t product = 1;
    const size_t count = json_array_size(dims);
    ZOFF_FAIL_IF(!json_is_array(dims) || count > ZOFF_ARCHIVE_DIMS_MOST, ZOFF_ERR_CORRUPT, "\"dims\" is no list of at most %d",
                 ZOFF_ARCHIVE_DIMS_MOST);
    ZOFF_TRY(zoff_base_mem_alloc(count + 1, sizeof *p->dims, "dimensions", &p->dims));
    p->dim_count = count ? count : 1;
    p->dims[0] = p->count;
    for (size_t i = 0; i < count; i++)
        ZOFF_TRY(read_size(json_array_get(dims, i), &p->dims[i]));
    for (size_t i = 0; i < p->dim_count; i++)
        ZOFF_FAIL_IF(!zoff_base_bits_mul(product, p->dims[i], &product), ZOFF_ERR_CORRUPT, "\"dims\" is too large");
    ZOFF_FAIL_IF(product != p->count, ZOFF_ERR_CORRUPT, "the product of \"dims\" is not \"count\"");
    return ZOFF_OK;
}

static zoff_status read_moments(const json_t *object, zoff_archive_param *p)
{
    const bool has_bf16 = has_text(object, "moments", "bf16"), has_m8v16 = has_text(object, "moments", "m8v16.3");
    const bool has_q8 = has_text(object, "moments", "q8.3");
    ZOFF_FAIL_IF(has_text(object, "moments", "m8v16") || has_text(object, "moments", "q8"), ZOFF_ERR_UNSUPPORTED,
                 "it has moments in 8 bits in a former format, whose bytes mean other numbers now. Load the states with the "
                 "version of zoff that wrote them, and save a checkpoint with \"zoff\": {\"moments\": \"fp32\"}");
    ZOFF_FAIL_IF(json_object_get(object, "moments") && !has_bf16 && !has_m8v16 && !has_q8, ZOFF_ERR_UNSUPPORTED,
                 "its moments have a format that this library does not know: use a newer one");
    p->m_format = has_bf16 ? ZOFF_ARCHIVE_BF16 : has_m8v16 || has_q8 ? ZOFF_ARCHIVE_M8 : ZOFF_ARCHIVE_F32;
    p->v_format = has_bf16 || has_m8v16 ? ZOFF_ARCHIVE_BF16 : has_q8 ? ZOFF_ARCHIVE_V8 : ZOFF_ARCHIVE_F32;
    return ZOFF_OK;
}

static zoff_status read_states(const json_t *object, zoff_archive_param *p)
{
    static const char *const WORDS[ZOFF_STORE_ARRAYS] = {"master", "m", "v"};
    const json_t *states = json_object_get(object, "states");
    for (size_t i = 0; i < json_array_size(states); i++) {
        unsigned k = 0;
        const char *word = json_string_value(json_array_get(states, i));
        while (word && k < ZOFF_STORE_ARRAYS && strcmp(word, WORDS[k]) != 0)
            k++;
        ZOFF_FAIL_IF(!word || k == ZOFF_STORE_ARRAYS, ZOFF_ERR_CORRUPT, "\"states\" has a word that is no state");
        p->states |= 1u << k;
    }
    ZOFF_TRY(read_moments(object, p));
    const bool needs_states = !json_is_true(json_object_get(object, "frozen")) && !p->tied_to;
    ZOFF_FAIL_IF(needs_states != (p->states >> ZOFF_STATE_MASTER & 1), ZOFF_ERR_CORRUPT,
                 needs_states ? "it has no master" : "it is frozen or tied, and has states");
    return ZOFF_OK;
}

static zoff_status read_param(const json_t *object, size_t param_count, zoff_archive_param *p)
{
    const char *dtype = json_string_value(json_object_get(object, "dtype"));
    size_t all, owner = 0;
    ZOFF_TRY(copy_name(json_string_value(json_object_get(object, "name")), &p->name));
    if (json_object_get(object, "slice_name"))
        ZOFF_TRY(copy_name(json_string_value(json_object_get(object, "slice_name")), &p->slice_name));
    ZOFF_TRY(read_size(json_object_get(object, "count"), &p->count));
    ZOFF_TRY(read_size(json_object_get(object, "slices"), &p->slices));
    ZOFF_FAIL_IF(!zoff_base_bits_mul(p->count, p->slices, &all) || all > (size_t)ELEMENTS_MOST, ZOFF_ERR_CORRUPT,
                 "it has too many elements");
    for (int i = ZOFF_F32; i <= ZOFF_BF16 && dtype; i++)
        p->dtype = strcmp(dtype, zoff_adam_dtype_name((zoff_dtype)i)) == 0 ? (zoff_dtype)i : p->dtype;
    ZOFF_FAIL_IF(p->dtype == ZOFF_DTYPE_DEFAULT, ZOFF_ERR_CORRUPT, "\"dtype\" is no type");
    ZOFF_TRY(read_dims(json_object_get(object, "dims"), p));
    if (json_object_get(object, "tied_to")) {
        ZOFF_TRY(read_size(json_object_get(object, "tied_to"), &owner));
        ZOFF_FAIL_IF(owner >= param_count, ZOFF_ERR_CORRUPT, "\"tied_to\" is no parameter");
        p->tied_to = 1 + (uint32_t)owner;
    }
    return read_states(object, p);
}

zoff_status zoff_checkpoint_described_params(const zoff_described *d, zoff_archive_manifest *m)
{
    const json_t *params = json_object_get(d->root, "params");
    const size_t count = json_array_size(params);
    ZOFF_FAIL_IF(count >= UINT32_MAX, ZOFF_ERR_CORRUPT, "'%s' has too many parameters", d->path);
    ZOFF_TRY(zoff_base_mem_alloc(count + 1, sizeof *m->params, "parameters of a manifest", &m->params));
    for (size_t i = 0; i < count; i++) {
        m->param_count = i + 1;
        const zoff_status status = read_param(json_array_get(params, i), count, &m->params[i]);
        if (status < 0)
            return zoff_base_status_prefix(status, "'%s': parameter %zu: ", d->path, i);
    }
    return ZOFF_OK;
}

/* ---- chunks and pieces ---- */

bool zoff_checkpoint_described_equal(const zoff_described *a, const zoff_described *b)
{
    return json_equal(json_object_get(a->root, "chunks"), json_object_get(b->root, "chunks"));
}

bool zoff_checkpoint_described_find(const zoff_described *d, size_t chunk, size_t *out_entry)
{
    const json_t *chunks = json_object_get(d->root, "chunks");
    size_t low = 0, high = json_array_size(chunks);
    while (low < high) { /* they are in the order of their numbers */
        const size_t middle = low + (high - low) / 2;
        const json_int_t number = json_integer_value(json_object_get(json_array_get(chunks, middle), "chunk"));
        if (number == (json_int_t)chunk) {
            *out_entry = middle;
            return true;
        }
        if (number < (json_int_t)chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static const json_t *pieces_of(const zoff_described *d, size_t entry)
{
    return json_object_get(json_array_get(json_object_get(d->root, "chunks"), entry), "pieces");
}

size_t zoff_checkpoint_described_pieces(const zoff_described *d, size_t entry)
{
    return json_array_size(pieces_of(d, entry));
}

zoff_status zoff_checkpoint_described_piece(const zoff_described *d, const zoff_archive_manifest *m, size_t entry, size_t index,
                                            zoff_described_piece *out)
{
    enum { PARAM, SLICE, FIRST, COUNT, AT, NUMBERS = AT + ZOFF_STORE_ARRAYS };
    const json_t *piece = json_array_get(pieces_of(d, entry), index);
    json_int_t n[NUMBERS];
    bool fits = json_array_size(piece) == NUMBERS;
    for (int i = 0; i < NUMBERS && fits; i++) {
        n[i] = json_integer_value(json_array_get(piece, (size_t)i));
        fits = json_is_integer(json_array_get(piece, (size_t)i)) && n[i] >= (i < AT ? 0 : -1);
    }
    fits = fits && n[PARAM] < (json_int_t)m->param_count;
    const zoff_archive_param *p = fits ? &m->params[n[PARAM]] : NULL;
    fits = fits && n[SLICE] < (json_int_t)p->slices && n[FIRST] < (json_int_t)p->count && n[COUNT] > 0 &&
           n[COUNT] <= (json_int_t)p->count - n[FIRST] && n[FIRST] % ZOFF_ARCHIVE_BLOCK == 0;
    for (unsigned k = 0; k < ZOFF_STORE_ARRAYS && fits; k++) {
        out->at[k] = n[AT + k];
        fits = (out->at[k] >= 0) == (p->states >> k & 1);
    }
    ZOFF_FAIL_IF(!fits, ZOFF_ERR_CORRUPT, "'%s': piece %zu of entry %zu does not fit its parameter", d->path, index, entry);
    out->param = (uint32_t)n[PARAM];
    out->slice = (size_t)n[SLICE];
    out->first = (size_t)n[FIRST];
    out->count = (size_t)n[COUNT];
    return ZOFF_OK;
}
