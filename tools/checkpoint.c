/* checkpoint.c: `zoff checkpoint inspect|verify|diff`: what a checkpoint has, whether it is intact, and how two differ. */
#include "checkpoint_diff.h"
#include "dtype.h"
#include "progress.h"
#include "verbs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

typedef struct checkpoint_options {
    const char *folders[2];
    int folder_count;
    const char *label;
    bool manifest; /* inspect: print the manifest as it is */
} checkpoint_options;

static const char *const KINDS[] = {"master", "m", "v", "weights"};

static void print_shape(const zoff_checkpoint_param *p)
{
    printf("%s [", dtype_name(p->dtype));
    if (p->slices > 1)
        printf("%zu x ", p->slices);
    for (size_t i = 0; i < p->dim_count; i++)
        printf("%s%zu", i ? ", " : "", p->dims[i]);
    printf("]");
}

/* ---- inspect ---- */

static int print_manifest(const zoff_checkpoint_reader *r)
{
    size_t bytes = 0;
    if (zoff_checkpoint_reader_manifest(r, NULL, 0, &bytes) < 0)
        return library_error();
    char *text = malloc(bytes + 1);
    if (!text)
        return failed("out of memory for a manifest of %zu bytes", bytes);
    zoff_checkpoint_reader_manifest(r, text, bytes + 1, NULL);
    fwrite(text, 1, bytes, stdout);
    free(text);
    return finish_output();
}

static int print_params(const zoff_checkpoint_reader *r, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
        if (zoff_checkpoint_reader_param(r, i, &p) < 0)
            return library_error();
        print_text(stdout, "  %s  ", p.name);
        print_shape(&p);
        for (unsigned kind = 0; kind < sizeof KINDS / sizeof KINDS[0] && !p.tied_to; kind++) {
            if (p.states >> kind & 1)
                printf(" %s", KINDS[kind]);
        }
        if (p.tied_to)
            print_text(stdout, " tied to %s", p.tied_to);
        printf("\n");
    }
    return EXIT_DONE;
}

static int inspect(const checkpoint_options *o)
{
    zoff_checkpoint_reader *r;
    char bytes[32];
    if (zoff_checkpoint_reader_open(o->folders[0], o->label, &r) < 0)
        return library_error();
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    int result = zoff_checkpoint_reader_info(r, &info) < 0 ? library_error() : EXIT_DONE;
    if (result == EXIT_DONE && o->manifest) {
        result = print_manifest(r);
    } else if (result == EXIT_DONE) {
        progress_bytes(bytes, (double)info.bytes);
        print_line(stdout, "%s", info.folder);
        printf("step %" PRId64 ", id %s, %s, written by %u rank%s\n", info.t, info.id, bytes, info.ranks,
               info.ranks == 1 ? "" : "s");
        if (info.has_loss_scaler)
            printf("loss scale %g, %" PRId64 " steps, last overflow %" PRId64 ", hysteresis %" PRIu64 "\n",
                   info.loss_scaler.scale, info.loss_scaler.iterations, info.loss_scaler.last_overflow,
                   info.loss_scaler.hysteresis);
        printf("%zu parameter%s\n", info.param_count, info.param_count == 1 ? "" : "s");
        result = print_params(r, info.param_count);
        result = result == EXIT_DONE ? finish_output() : result;
    }
    zoff_checkpoint_reader_close(r);
    return result;
}

/* ---- verify ---- */

static int verify(const checkpoint_options *o)
{
    zoff_checkpoint_reader *r;
    char bytes[32];
    progress p;
    if (zoff_checkpoint_reader_open(o->folders[0], o->label, &r) < 0)
        return library_error();
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    progress_begin(&p, "verify");
    const bool works = zoff_checkpoint_reader_info(r, &info) >= 0 && zoff_checkpoint_reader_verify(r, progress_tell, &p) >= 0;
    progress_end(&p, works);
    int result = works ? EXIT_DONE : library_error();
    if (works) {
        progress_bytes(bytes, (double)info.bytes);
        print_line(stdout, "%s is intact: step %" PRId64 ", %zu parameters, %s", info.folder, info.t, info.param_count, bytes);
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
        result = zoff_checkpoint_reader_open(o->folders[i], o->label, &r[i]) < 0 ? library_error() : EXIT_DONE;
    if (result == EXIT_DONE)
        result = checkpoint_diff(r[0], r[1], &equal);
    for (int i = 0; i < 2; i++)
        zoff_checkpoint_reader_close(r[i]);
    if (result != EXIT_DONE)
        return result;
    result = finish_output();
    return result == EXIT_DONE && !equal ? EXIT_FAILED : result;
}

/* ---- arguments ---- */

static int read_arguments(checkpoint_options *o, int argc, char **argv, int folders)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--manifest") == 0) {
            o->manifest = true;
        } else if (strcmp(argv[i], "--label") == 0 && i + 1 < argc) {
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
    if (o->manifest && strcmp(argv[0], "inspect") != 0)
        return usage_error("checkpoint %s has no --manifest", argv[0]);
    return EXIT_DONE;
}

int verb_checkpoint(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const checkpoint_options *o);
        int folders;
    } PARTS[] = {{"inspect", inspect, 1}, {"verify", verify, 1}, {"diff", diff, 2}};
    checkpoint_options o = {.label = NULL};
    for (size_t i = 0; argc > 0 && i < sizeof PARTS / sizeof PARTS[0]; i++) {
        if (strcmp(PARTS[i].name, argv[0]) != 0)
            continue;
        const int result = read_arguments(&o, argc, argv, PARTS[i].folders);
        return result == EXIT_DONE ? PARTS[i].run(&o) : result;
    }
    return usage_error("checkpoint needs inspect, verify, diff, scrub or reshard%s%s", argc > 0 ? ", not " : "",
                       argc > 0 ? argv[0] : "");
}
