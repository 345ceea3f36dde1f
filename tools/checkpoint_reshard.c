/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_reshard.c: `zoff checkpoint reshard`: make a checkpoint of the persistent state files of all ranks, which any
 * number of ranks loads. */
#include "progress.h"
#include "verbs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

typedef struct reshard_options {
    const char **folders;
    size_t count;
    const char *to;
    zoff_checkpoint_opts opts; /* name and label */
} reshard_options;

/* Tell how a run goes on with the checkpoint. A load needs its label, and its own folder if it has a name. */
static void print_hint(const reshard_options *o, const char *path)
{
    const char *label = o->opts.label && *o->opts.label ? o->opts.label : NULL;
    printf("Now start the run with any number of ranks, stage and tier. Its nvme_path needs empty folders.\n");
    print_text(stdout, "Let it call zoff_checkpoint_load(engine, \"%s\", %s) before its first step", path,
               label ? "&opts" : "NULL");
    if (label)
        print_text(stdout, ", where opts.label of zoff_checkpoint_opts is \"%s\"", label);
    printf(". That writes its state files.\n");
}

/* Print the checkpoint that was written, and how to go on with it. */
static int print_result(const reshard_options *o)
{
    zoff_checkpoint_reader *r;
    char bytes[32], path[4096];
    snprintf(path, sizeof path, "%s%s%s", o->to, o->opts.name ? "/" : "", o->opts.name ? o->opts.name : "");
    if (zoff_checkpoint_reader_open(path, o->opts.label, &r) < 0)
        return library_error();
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    int result = zoff_checkpoint_reader_info(r, &info) < 0 ? library_error() : EXIT_DONE;
    if (result == EXIT_DONE) {
        progress_bytes(bytes, (double)info.bytes);
        const char *slash = strrchr(info.folder, '/'); /* the reader gives an absolute path of the folder */
        print_line(stdout, "%s/%s: step %" PRId64 ", %s, from %u rank%s", o->to, slash ? slash + 1 : info.folder, info.t, bytes,
                   info.ranks, info.ranks == 1 ? "" : "s");
        print_hint(o, path);
        result = finish_output();
    }
    zoff_checkpoint_reader_close(r);
    return result;
}

static int reshard(const reshard_options *o)
{
    progress p;
    progress_begin(&p, "reshard");
    const bool works = zoff_state_files_checkpoint(o->folders, o->count, o->to, &o->opts, progress_tell, &p) >= 0;
    progress_end(&p, works);
    return works ? print_result(o) : library_error();
}

static int read_options(reshard_options *o, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "-o") == 0 && i + 1 < argc)
            o->to = argv[++i];
        else if (strcmp(argv[i], "--name") == 0 && i + 1 < argc)
            o->opts.name = argv[++i];
        else if (strcmp(argv[i], "--label") == 0 && i + 1 < argc)
            o->opts.label = argv[++i];
        else if (argv[i][0] == '-' && argv[i][1])
            return usage_error("checkpoint reshard: there is no option \"%s\", or it needs a value", argv[i]);
        else
            o->folders[o->count++] = argv[i];
    }
    if (!o->count || !o->to)
        return usage_error("checkpoint reshard needs the folders of nvme_path, of all ranks, and -o CHECKPOINTS");
    return EXIT_DONE;
}

int verb_checkpoint_reshard(int argc, char **argv)
{
    reshard_options o = {.opts = ZOFF_CHECKPOINT_OPTS_INIT};
    o.folders = calloc((size_t)argc + 1, sizeof *o.folders);
    if (!o.folders)
        return failed("out of memory");
    int result = read_options(&o, argc, argv);
    if (result == EXIT_DONE)
        result = reshard(&o);
    free(o.folders);
    return result;
}
