/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_list.c: `zoff checkpoint list`: the checkpoints of a folder, and what saves that ended early have left in it. */
#include "import_kind.h"
#include "progress.h"
#include "verbs.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zoff/zoff.h>

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static json_int_t number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static void print_engines(const json_t *engines)
{
    size_t i;
    json_t *engine;
    json_int_t ranks = 0;
    json_array_foreach(engines, i, engine) ranks += number_of(engine, "ranks");
    printf("  %" JSON_INTEGER_FORMAT " rank%s", ranks, ranks == 1 ? "" : "s");
    json_array_foreach(engines, i, engine)
    {
        if (*text_of(engine, "label"))
            printf("%s%s", i ? ", " : "  engines ", text_of(engine, "label"));
    }
}

static void print_entry(const json_t *c, int width)
{
    char bytes[32], when[32] = "";
    const char *name = text_of(c, "name"), *problem = text_of(c, "problem"), *removed_by = text_of(c, "removed_by");
    const time_t time = (time_t)number_of(c, "time");
    struct tm local;
    if (localtime_r(&time, &local))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
    progress_bytes(bytes, (double)number_of(c, "bytes"));
    print_json_text(name);
    printf("%*s  ", width - (int)strlen(name), "");
    if (json_object_get(c, "step"))
        printf("step %-8" JSON_INTEGER_FORMAT, number_of(c, "step"));
    else
        printf("%13s", "");
    printf("  %s  %9s", when, bytes);
    if (json_array_size(json_object_get(c, "engines")))
        print_engines(json_object_get(c, "engines"));
    if (json_is_true(json_object_get(c, "latest")))
        printf("  latest");
    if (json_is_true(json_object_get(c, "pinned")))
        printf("  pinned");
    if (problem) {
        printf("  NOT COMPLETE: ");
        print_json_text(problem);
    }
    if (removed_by)
        printf("; removed by %s", removed_by);
    printf("\n");
}

static int print_all(const char *text)
{
    size_t i, complete = 0, names_latest = 0;
    int width = 0;
    json_t *c, *all = json_loads(text, 0, NULL);
    if (!all)
        return failed("out of memory for a list of %zu bytes", strlen(text));
    const json_t *list = json_object_get(all, "checkpoints");
    const char *latest = text_of(all, "latest");
    json_array_foreach(list, i, c)
    {
        const int bytes = (int)strlen(text_of(c, "name"));
        width = bytes > width ? bytes : width;
        complete += json_is_true(json_object_get(c, "complete"));
        names_latest += json_is_true(json_object_get(c, "latest"));
    }
    json_array_foreach(list, i, c) print_entry(c, width);
    print_json_text(text_of(all, "folder"));
    printf(": %zu complete checkpoint%s", complete, complete == 1 ? "" : "s");
    if (json_array_size(list) > complete)
        printf(", %zu not complete", json_array_size(list) - complete);
    if (latest && !names_latest)
        printf("; `latest` names %s, which is not there", latest);
    printf("\n");
    if (!json_array_size(list))
        import_kind_note(text_of(all, "folder"));
    json_decref(all);
    return EXIT_DONE;
}

static int list(const char *folder, bool json)
{
    char *text = NULL;
    size_t room = 0, bytes = 0;
    while (bytes >= room) { /* again if checkpoints have come meanwhile */
        free(text);
        room = bytes + 4096;
        text = malloc(room);
        if (!text)
            return failed("out of memory for a list of %zu bytes", room);
        if (zoff_checkpoint_list(folder, text, room, &bytes) < 0) {
            free(text);
            return library_error();
        }
    }
    const int result = json ? (puts(text), EXIT_DONE) : print_all(text);
    free(text);
    return result == EXIT_DONE ? finish_output() : result;
}

int verb_checkpoint_list(int argc, char **argv)
{
    bool json = false;
    const char *folder = NULL;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (argv[i][0] == '-' && argv[i][1])
            return usage_error("checkpoint list has no option \"%s\"", argv[i]);
        else if (folder)
            return usage_error("checkpoint list takes one folder, not both \"%s\" and \"%s\"", folder, argv[i]);
        else
            folder = argv[i];
    }
    return folder ? list(folder, json) : usage_error("checkpoint list needs a folder of checkpoints");
}
