/* SPDX-License-Identifier: Apache-2.0 */
/* import_kind.c: names what a file or folder is, by its first bytes, contents or name, and what reads or converts it. */
#include "import_kind.h"

#include "import_files.h"
#include "torch_contents.h"
#include "verbs.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum kind {
    UNKNOWN,
    SAFETENSORS,
    SAFETENSORS_PART,
    SAFETENSORS_INDEX,
    SAFETENSORS_FOLDER,
    TORCH,
    TORCH_CLOSED,
    TORCH_PART,
    TORCH_INDEX,
    TORCH_FOLDER,
    OPTIMIZER,
    MODULE,
    SCRIPT,
    NO_MODEL,
    LEGACY,
    DEEPSPEED_FILE,
    DEEPSPEED,
    UNIVERSAL,
    DCP,
    DCP_FILE,
    LLAMA,
    LLAMA_FILE,
    LLAMA_ONE,
    MEGATRON,
    MEGATRON_FILE,
    CHECKPOINT,
    CHECKPOINT_FILE,
    STATES,
    GGUF,
    NPY,
    NPZ,
    HDF5,
    ONNX,
    TENSORFLOW,
    PICKLE,
    TAR,
    ZIP,
    GZIP,
    COMPRESSED,
    LFS,
    PAGE,
    TEXT,
    EMPTY
} kind;

#define TO_UNIVERSAL                                                                                                           \
    "convert it: python -m deepspeed.checkpoint.ds_to_universal --inject_missing_state --input_folder RUN/global_step1 "       \
    "--output_folder NEW, and zoff import universal NEW"
#define FROM_DCP                                                                                                               \
    "convert its folder: python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER model.pt, and then "          \
    "zoff import torch model.pt"
#define FROM_LLAMA                                                                                                             \
    "convert it to a folder of Hugging Face: python -m transformers.models.llama.convert_llama_weights_to_hf, for "            \
    "zoff import safetensors"
#define FROM_MEGATRON "convert it to a folder of Hugging Face, such as with Megatron Bridge, for zoff import safetensors"
#define FROM_ARRAYS "save its arrays in Python: safetensors.numpy.save_file({NAME: ARRAY, ...}, \"model.safetensors\")"

/* Every kind: its name; the verb or option that reads it, NULL if none does; and what to do with it. */
static const struct {
    const char *name, *verb, *way;
} KINDS[] = {
    [SAFETENSORS] = {"a safetensors file", "safetensors", "zoff import safetensors reads it"},
    [SAFETENSORS_PART] = {"one of several safetensors files of a model", "safetensors",
                          "zoff import safetensors reads all of them, or their folder"},
    [SAFETENSORS_INDEX] = {"the index of a model in several safetensors files", NULL,
                           "zoff import safetensors reads its folder"},
    [SAFETENSORS_FOLDER] = {"a folder with a model in safetensors files", "safetensors", "zoff import safetensors reads it"},
    [TORCH] = {"a model in a file of torch.save()", "torch", "zoff import torch reads it"},
    [TORCH_CLOSED] = {"a file of torch.save()", "torch", "zoff import torch reads it if it has a model"},
    [TORCH_PART] = {"one of several files of torch.save() of a model", "torch",
                    "zoff import torch reads all of them, or their folder"},
    [TORCH_INDEX] = {"the index of a model in several files of torch.save()", NULL, "zoff import torch reads its folder"},
    [TORCH_FOLDER] = {"a folder with a model in files of torch.save()", "torch", "zoff import torch reads it"},
    [OPTIMIZER] = {"the state of an optimizer in a file of torch.save()", "optimizer",
                   "zoff import torch MODEL --optimizer FILE reads it beside its model"},
    [MODULE] = {"a model as an object of its class in a file of torch.save()", NULL,
                "load it in Python, where its class is, and torch.save(model.state_dict(), \"model.pt\") for zoff import "
                "torch"},
    [SCRIPT] = {"a TorchScript file", NULL,
                "in Python torch.save(torch.jit.load(FILE).state_dict(), \"model.pt\"), and zoff import torch model.pt"},
    [NO_MODEL] = {"a file of torch.save() without a model that zoff finds", NULL,
                  "load it in Python, and torch.save() the dict of the tensors by name for zoff import torch"},
    [LEGACY] = {"a file of torch.save() in the format from before PyTorch 1.6", NULL,
                "load it in Python and torch.save it again for zoff import torch"},
    [DEEPSPEED_FILE] = {"one file of a checkpoint of DeepSpeed", NULL, TO_UNIVERSAL},
    [DEEPSPEED] = {"a checkpoint folder of DeepSpeed", NULL, TO_UNIVERSAL},
    [UNIVERSAL] = {"a universal checkpoint folder of DeepSpeed", "universal", "zoff import universal reads it"},
    [DCP] = {"a folder of torch.distributed.checkpoint", NULL, FROM_DCP},
    [DCP_FILE] = {"one file of torch.distributed.checkpoint", NULL, FROM_DCP},
    [LLAMA] = {"a folder with a model of Llama in several parts of each tensor", NULL, FROM_LLAMA},
    [LLAMA_FILE] = {"one of several consolidated files of Llama, each with a part of every tensor", NULL, FROM_LLAMA},
    [LLAMA_ONE] = {"a folder with a model of Llama", NULL, "zoff import torch reads its file consolidated.00.pth"},
    [MEGATRON] = {"a checkpoint folder of Megatron", NULL, FROM_MEGATRON},
    [MEGATRON_FILE] = {"one rank's file of a checkpoint of Megatron", NULL, FROM_MEGATRON},
    [CHECKPOINT] = {"a checkpoint of zoff", NULL, "zoff_checkpoint_load() takes it as it is; zoff export writes its weights"},
    [CHECKPOINT_FILE] = {"one file of a checkpoint of zoff", NULL, "zoff_checkpoint_load() takes the folder"},
    [STATES] = {"a state file of zoff.persist, or a folder of them", NULL,
                "zoff checkpoint reshard makes a checkpoint of them"},
    [GGUF] = {"a GGUF file of llama.cpp", NULL,
              "load it in Python with transformers: from_pretrained(FOLDER, gguf_file=NAME).save_pretrained(NEW), and "
              "zoff import safetensors NEW"},
    [NPY] = {"an array of NumPy", NULL, FROM_ARRAYS},
    [NPZ] = {"arrays of NumPy in a zip archive", NULL, FROM_ARRAYS},
    [HDF5] = {"an HDF5 file, such as Keras writes", NULL, FROM_ARRAYS},
    [ONNX] = {"an ONNX model", NULL, FROM_ARRAYS},
    [TENSORFLOW] = {"a model of TensorFlow", NULL, FROM_ARRAYS},
    [PICKLE] = {"a Python pickle that torch.save() has not written", NULL,
                "load it in Python, and torch.save() the dict of its tensors by name for zoff import torch"},
    [TAR] = {"a tar archive", NULL, "unpack it (tar -xf), and import what was in it"},
    [ZIP] = {"a zip archive that torch.save() has not written", NULL, "unpack it (unzip), and import what was in it"},
    [GZIP] = {"a gzip file", NULL, "unpack it (tar -xzf, or gunzip), and import what was in it"},
    [COMPRESSED] = {"a compressed file", NULL, "unpack it (unxz, bunzip2, unzstd), and import what was in it"},
    [LFS] = {"a pointer of Git LFS, in place of the file itself", NULL, "fetch the file: git lfs pull"},
    [PAGE] = {"a web page, in place of the file itself", NULL, "download the file again, by the link to its bytes"},
    [TEXT] = {"a text, such as JSON", NULL, "the tensors of a model are in another file"},
    [EMPTY] = {"an empty file", NULL, "copy or download it again"},
};

/* ---- names ---- */

/* A kind by a pattern of a name, as fnmatch() has it. Earlier rows win. */
typedef struct sign {
    const char *pattern;
    kind is;
} sign;

static const sign NAMES[] = {{"*.distcp", DCP_FILE},
                             {"model.safetensors.index.json", SAFETENSORS_INDEX},
                             {"pytorch_model.bin.index.json", TORCH_INDEX},
                             {"zoff-*.states", STATES},
                             {"*.rank-[0-9]*.states", CHECKPOINT_FILE}};

static const sign ENTRIES[] = {{"zero", UNIVERSAL},
                               {"latest_universal", UNIVERSAL},
                               {".metadata", DCP},
                               {"*.distcp", DCP},
                               {"*mp_rank_*_model_states.pt", DEEPSPEED},
                               {"*_optim_states.pt", DEEPSPEED},
                               {"global_step[0-9]*", DEEPSPEED},
                               {"latest_checkpointed_iteration.txt", MEGATRON},
                               {"iter_[0-9]*", MEGATRON},
                               {"mp_rank_[0-9]*", MEGATRON},
                               {"*manifest.json", CHECKPOINT},
                               {"step-[0-9]*", CHECKPOINT},
                               {"zoff-*.states", STATES},
                               {"*.safetensors", SAFETENSORS_FOLDER},
                               {"model.safetensors.index.json", SAFETENSORS_FOLDER},
                               {"pytorch_model*.bin", TORCH_FOLDER},
                               {"pytorch_model.bin.index.json", TORCH_FOLDER},
                               {"consolidated.01.pth", LLAMA},
                               {"consolidated.00.pth", LLAMA_ONE},
                               {"saved_model.pb", TENSORFLOW},
                               {"checkpoint.index", TENSORFLOW},
                               {"*.ckpt*.index", TENSORFLOW}};
enum { NAME_COUNT = sizeof NAMES / sizeof NAMES[0], ENTRY_COUNT = sizeof ENTRIES / sizeof ENTRIES[0] };

static bool reads(kind k, const char *verb)
{
    return KINDS[k].verb && verb && strcmp(KINDS[k].verb, verb) == 0;
}

/* Find the kind of a folder by the names in it: the first that `verb` reads, or else the first of all. */
static kind folder_kind(const char *path, const char *verb)
{
    bool found[ENTRY_COUNT] = {false};
    kind first = UNKNOWN;
    DIR *folder = opendir(path);
    if (!folder)
        return UNKNOWN;
    for (struct dirent *entry; (entry = readdir(folder));) {
        for (size_t i = 0; i < ENTRY_COUNT; i++)
            found[i] = found[i] || fnmatch(ENTRIES[i].pattern, entry->d_name, 0) == 0;
    }
    closedir(folder);
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        if (found[i] && reads(ENTRIES[i].is, verb))
            return ENTRIES[i].is;
        first = first || !found[i] ? first : ENTRIES[i].is;
    }
    return first;
}

/* ---- first bytes ---- */

/* The bytes at the begin of a file. */
typedef struct head {
    unsigned char bytes[512];
    size_t count;
    uint64_t file_bytes;
} head;

/* Bytes at a place that tell the kind of a file. */
typedef struct magic {
    size_t at, count;
    const char *bytes;
    kind is;
} magic;

static const magic MAGICS[] = {
    {0, 4, "GGUF", GGUF},
    {0, 6, "\x93NUMPY", NPY},
    {0, 8, "\x89HDF\r\n\x1a\n", HDF5},
    {257, 5, "ustar", TAR},
    {0, 2, "\x1f\x8b", GZIP},
    {0, 6,
     "\xfd"
     "7zXZ",
     COMPRESSED},
    {0, 3, "BZh", COMPRESSED},
    {0, 4, "\x28\xb5\x2f\xfd", COMPRESSED},
    {0, 42, "version https://git-lfs.github.com/spec/v1", LFS},
    {4, 10, "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", LEGACY}, /* the magic number of torch.save(), as LONG1 of protocol 2 */
};

/* Read the begin of a file. Returns false if it is no file that can be read. */
static bool read_head(const char *path, head *h)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would block */
    const bool ok = fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    const ssize_t got = ok ? pread(fd, h->bytes, sizeof h->bytes, 0) : -1;
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return false;
    h->count = (size_t)got;
    h->file_bytes = (uint64_t)about.st_size;
    return true;
}

static bool has(const head *h, size_t at, const char *bytes, size_t count)
{
    return h->count >= at + count && memcmp(h->bytes + at, bytes, count) == 0;
}

static bool is_text(const head *h)
{
    for (size_t i = 0; i < h->count; i++) {
        if (h->bytes[i] == 127 || (h->bytes[i] < ' ' && !strchr("\t\n\r\f", h->bytes[i])))
            return false;
    }
    return h->bytes[0] < 0x80; /* the other bytes may be UTF-8 */
}

static bool is_safetensors(const head *h)
{
    uint64_t bytes = 0;
    for (int i = 7; i >= 0; i--)
        bytes = bytes << 8 | h->bytes[i];
    return h->count > 8 && h->bytes[8] == '{' && bytes <= ST_HEADER_MAX && bytes <= h->file_bytes - 8;
}

/* A message of protobuf with a version, and then the name of a program as a text. */
static bool is_onnx(const head *h)
{
    if (h->count < 5 || h->bytes[0] != 0x08 || h->bytes[1] > 32 || h->bytes[2] != 0x12 || h->bytes[3] == 0 ||
        (size_t)h->bytes[3] + 4 > h->count)
        return false;
    for (size_t i = 0; i < h->bytes[3]; i++) {
        if (h->bytes[4 + i] < ' ' || h->bytes[4 + i] > '~')
            return false;
    }
    return true;
}

/* Whether a file is one of several of a tensor-parallel model of Llama. */
static bool has_llama_parts(const char *path, const char *name)
{
    char other[4096];
    struct stat about;
    if (fnmatch("consolidated.[0-9][0-9].pth", name, 0) != 0)
        return false;
    snprintf(other, sizeof other, "%.*sconsolidated.01.pth", (int)(name - path), path);
    return strcmp(name, "consolidated.00.pth") != 0 || stat(other, &about) == 0;
}

/* Find the kind of a zip archive by its contents, or, if they cannot be read, by the name of its first entry. */
static kind zip_kind(const char *path, const char *name, const head *h)
{
    static const kind CONTENTS[] = {
        [TORCH_MODEL] = TORCH,   [TORCH_OPTIMIZER] = OPTIMIZER,      [TORCH_MODULE] = MODULE,
        [TORCH_SCRIPT] = SCRIPT, [TORCH_DEEPSPEED] = DEEPSPEED_FILE, [TORCH_MEGATRON] = MEGATRON_FILE,
        [TORCH_OTHER] = NO_MODEL};
    torch_kind contents;
    unsigned shard;
    char entry[64] = "";
    const bool is_read = torch_contents_kind(path, &contents);
    if (is_read && contents != TORCH_MODEL)
        return CONTENTS[contents];
    if (has_llama_parts(path, name))
        return LLAMA_FILE;
    if (import_files_shards(name, ".bin", &shard) > 1)
        return TORCH_PART;
    if (is_read)
        return TORCH;
    const size_t bytes = (size_t)h->bytes[26] | (size_t)h->bytes[27] << 8, first = 30;
    if (h->count > first + bytes && bytes < sizeof entry)
        memcpy(entry, h->bytes + first, bytes);
    return fnmatch("*.npy", entry, 0) == 0 ? NPZ : fnmatch("*/data.pkl", entry, 0) == 0 ? TORCH_CLOSED : ZIP;
}

static kind file_kind(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    unsigned shard;
    head h = {.count = 0};
    if (!read_head(path, &h))
        return UNKNOWN;
    if (h.count == 0)
        return EMPTY;
    for (size_t i = 0; i < sizeof MAGICS / sizeof MAGICS[0]; i++) {
        if (has(&h, MAGICS[i].at, MAGICS[i].bytes, MAGICS[i].count))
            return MAGICS[i].is;
    }
    for (size_t i = 0; i < NAME_COUNT; i++) {
        if (fnmatch(NAMES[i].pattern, name, 0) == 0)
            return NAMES[i].is;
    }
    if (is_safetensors(&h))
        return import_files_shards(name, ".safetensors", &shard) > 1 ? SAFETENSORS_PART : SAFETENSORS;
    if (has(&h, 0, "PK\3\4", 4))
        return zip_kind(path, name, &h);
    if (h.count > 1 && h.bytes[0] == 0x80 && h.bytes[1] >= 1 && h.bytes[1] <= 5)
        return PICKLE;
    if (is_onnx(&h))
        return ONNX;
    const char *text = (const char *)h.bytes;
    if (!is_text(&h))
        return UNKNOWN;
    return strncasecmp(text, "<!doctype", 9) == 0 || strncasecmp(text, "<html", 5) == 0 ? PAGE : TEXT;
}

/* ---- the whole ---- */

static kind kind_of(const char *path, const char *verb)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return UNKNOWN;
    return S_ISDIR(about.st_mode) ? folder_kind(path, verb) : file_kind(path);
}

static int refuse(const char *path, kind k)
{
    return failed("%s is %s; %s", path, KINDS[k].name, KINDS[k].way);
}

int import_kind_check(const char *path, const char *verb)
{
    const kind k = kind_of(path, verb);
    const bool may_have_optimizer = (k == TORCH || k == TORCH_CLOSED) && strcmp(verb, "optimizer") == 0;
    return k == UNKNOWN || reads(k, verb) || may_have_optimizer ? EXIT_DONE : refuse(path, k);
}

int import_kind_tell(const char *path)
{
    const kind k = kind_of(path, NULL);
    return k != UNKNOWN ? refuse(path, k)
                        : failed("%s is nothing that zoff knows; it imports safetensors files, files of torch.save(), and "
                                 "universal checkpoint folders of DeepSpeed",
                                 path);
}

void import_kind_note(const char *path)
{
    const kind k = kind_of(path, NULL);
    if (k != UNKNOWN && k != CHECKPOINT && k != CHECKPOINT_FILE)
        print_line(stderr, "note: %s is %s; %s", path, KINDS[k].name, KINDS[k].way);
}

int import_kind_no_checkpoint(const char *path)
{
    const int result = library_error();
    import_kind_note(path);
    return result;
}
