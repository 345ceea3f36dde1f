/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.c: `zoff checkpoint verify|diff|pin|unpin`: whether a checkpoint is intact, how two differ, and whether it stays.
 */
#include "checkpoint_diff.h"
#include "import_kind.h"
#include "progress.h"
#include "verbs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zoff/zoff.h>

typedef struct checkpoint_options {
    const char *folders[2];
    int folder_count;
    const char *label;
} checkpoint_options;

/* ---- verify ---- */

static int verify(const checkpoint_options *o)
{
    zoff_checkpoint_reader *r;
    char bytes[32];
    progress p;
    if (zoff_checkpoint_reader_open(o->folders[0], o->label, &r) < 0)
        return import_kind_no_checkpoint(o->folders[0]);
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    progress_begin(&p, "verify");
    const bool works = zoff_checkpoint_reader_info(r, &info) >= 0 && zoff_checkpoint_reader_verify(r, progress_tell, &p) >= 0;
    progress_end(&p, works);
    int result = works ? EXIT_DONE : library_error();
    if (works) {
        progress_bytes(bytes, (double)info.bytes);
        print_line(stdout,
                   "%s is intact: step %" PRId64
                   ", %zu parameter%s, %s. Its bytes are those that were saved; NaN among them is found "
                   "by `zoff checkpoint inspect --stats`",
                   info.folder, info.t, info.param_count, info.param_count == 1 ? "" : "s", bytes);
        result = finish_output();
    }
    zoff_checkpoint_reader_close(r);
    return result;
}

/* ---- diff ---- */

static int diff(const checkpoint_options *o)
{
    zoff_checkpoint_reader *r[2] = {NULL, NULL};
    bool equal = false;
    int result = EXIT_DONE;
    for (int i = 0; i < 2 && result == EXIT_DONE; i++)
        result = zoff_checkpoint_reader_open(o->folders[i], o->label, &r[i]) < 0 ? import_kind_no_checkpoint(o->folders[i])
                                                                                 : EXIT_DONE;
    if (result == EXIT_DONE)
        result = checkpoint_diff(r[0], r[1], &equal);
    for (int i = 0; i < 2; i++)
        zoff_checkpoint_reader_close(r[i]);
    if (result != EXIT_DONE)
        return result;
    result = finish_output();
    return result == EXIT_DONE && !equal ? EXIT_FAILED : result;
}

/* ---- pin ---- */

/* Pin the checkpoint that is named, also if another save completes a newer one meanwhile. */
static int set_pin(const checkpoint_options *o, zoff_status (*set)(const char *folder, const char *label), const char *done)
{
    zoff_checkpoint_reader *r;
    if (zoff_checkpoint_reader_open(o->folders[0], o->label, &r) < 0)
        return import_kind_no_checkpoint(o->folders[0]);
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    int result = zoff_checkpoint_reader_info(r, &info) < 0 || set(info.folder, o->label) < 0 ? library_error() : EXIT_DONE;
    if (result == EXIT_DONE) {
        print_line(stdout, "%s is %s: step %" PRId64, info.folder, done, info.t);
        result = finish_output();
    }
    zoff_checkpoint_reader_close(r);
    return result;
}

static int pin(const checkpoint_options *o)
{
    return set_pin(o, zoff_checkpoint_pin, "pinned");
}

static int unpin(const checkpoint_options *o)
{
    return set_pin(o, zoff_checkpoint_unpin, "not pinned");
}

/* ---- arguments ---- */

static int read_arguments(checkpoint_options *o, int argc, char **argv, int folders)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--label") == 0 && i + 1 < argc) {
            o->label = argv[++i];
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return usage_error("checkpoint %s: there is no option \"%s\", or it needs a value", argv[0], argv[i]);
        } else if (o->folder_count == folders) {
            return usage_error("checkpoint %s takes %d folder%s, not \"%s\" as well", argv[0], folders, folders > 1 ? "s" : "",
                               argv[i]);
        } else {
            o->folders[o->folder_count++] = argv[i];
        }
    }
    if (o->folder_count < folders)
        return usage_error("checkpoint %s needs %d folder%s", argv[0], folders, folders > 1 ? "s" : "");
    return EXIT_DONE;
}

int verb_checkpoint(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const checkpoint_options *o);
        int folders;
    } PARTS[] = {{"verify", verify, 1}, {"diff", diff, 2}, {"pin", pin, 1}, {"unpin", unpin, 1}};
    checkpoint_options o = {.label = NULL};
    for (size_t i = 0; argc > 0 && i < sizeof PARTS / sizeof PARTS[0]; i++) {
        if (strcmp(PARTS[i].name, argv[0]) != 0)
            continue;
        const int result = read_arguments(&o, argc, argv, PARTS[i].folders);
        return result == EXIT_DONE ? PARTS[i].run(&o) : result;
    }
    return usage_error("checkpoint needs list, inspect, verify, diff, pin, unpin, scrub or reshard%s%s",
                       argc > 0 ? ", not " : "", argc > 0 ? argv[0] : "");
}
