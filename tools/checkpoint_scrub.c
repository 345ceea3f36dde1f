/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint_scrub.c: `zoff checkpoint scrub`: compare every array of persistent state files with its checksum, and print what
 * each file and commit has. */
#include "progress.h"
#include "verbs.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zoff/zoff.h>

/* most bytes of the result: 4 KiB for each file are usual, and memory beyond them is not touched */
enum { TEXT_MOST = 64 << 20 };

static json_int_t number_of(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static void print_commit(const json_t *commit)
{
    const json_int_t wrong = number_of(commit, "wrong"), unknown = number_of(commit, "without_checksum");
    const bool last = json_is_true(json_object_get(commit, "last"));
    printf("  step %" JSON_INTEGER_FORMAT "%s: %" JSON_INTEGER_FORMAT " arrays", number_of(commit, "t"),
           last ? ", the last commit" : ", the commit before", number_of(commit, "arrays"));
    if (wrong && last)
        printf(", %" JSON_INTEGER_FORMAT " WRONG", wrong);
    else if (wrong)
        printf(", %" JSON_INTEGER_FORMAT " differ: a later step has overwritten them, which is no damage", wrong);
    else
        printf(", intact");
    if (unknown)
        printf(" (%" JSON_INTEGER_FORMAT " have no checksum: they can be read)", unknown);
    printf("\n");
}

static void print_file(const json_t *file)
{
    size_t i;
    json_t *value;
    const json_t *commits = json_object_get(file, "commits"), *complaints = json_object_get(file, "complaints");
    print_json_text(json_string_value(json_object_get(file, "path")));
    if (json_object_get(file, "rank"))
        printf(": rank %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT ", file %" JSON_INTEGER_FORMAT
               " of %" JSON_INTEGER_FORMAT "\n",
               number_of(file, "rank"), number_of(file, "ranks"), number_of(file, "file") + 1, number_of(file, "files"));
    else
        printf(": %s\n", json_array_size(complaints) ? "no states" : "empty, its engine ended before the first commit");
    json_array_foreach(commits, i, value) print_commit(value);
    json_array_foreach(complaints, i, value)
    {
        printf("  ! ");
        print_json_text(json_string_value(value));
        printf("\n");
    }
}

static int print_all(const char *text)
{
    size_t i;
    json_t *file;
    char bytes[32];
    json_t *all = json_loads(text, 0, NULL);
    if (!all)
        return failed("out of memory for a result of %zu bytes", strlen(text));
    const json_t *files = json_object_get(all, "files");
    json_array_foreach(files, i, file) print_file(file);
    progress_bytes(bytes, (double)number_of(all, "bytes"));
    const json_int_t wrong = number_of(all, "wrong");
    printf("%s in %zu file%s: ", bytes, json_array_size(files), json_array_size(files) == 1 ? "" : "s");
    if (wrong)
        printf("%" JSON_INTEGER_FORMAT " WRONG\n", wrong);
    else
        printf("intact\n");
    json_decref(all);
    return EXIT_DONE;
}

static int scrub(const char *const *folders, size_t count, bool json)
{
    progress p;
    size_t bytes = 0;
    uint64_t wrong = 0;
    char *text = malloc(TEXT_MOST);
    if (!text)
        return failed("out of memory for a result");
    progress_begin(&p, "scrub");
    const bool works = zoff_state_files_scrub(folders, count, progress_tell, &p, text, TEXT_MOST, &bytes, &wrong) >= 0;
    progress_end(&p, works);
    int result = EXIT_DONE;
    if (!works)
        result = library_error();
    else if (bytes >= TEXT_MOST)
        result = failed("there are too many files for one call: %" PRIu64 " things are wrong; give fewer folders", wrong);
    else if (json)
        printf("%s\n", text);
    else
        result = print_all(text);
    free(text);
    if (result == EXIT_DONE)
        result = finish_output();
    return result == EXIT_DONE && wrong ? EXIT_FAILED : result;
}

int verb_checkpoint_scrub(int argc, char **argv)
{
    bool json = false;
    size_t count = 0;
    const char **folders = calloc((size_t)argc + 1, sizeof *folders);
    if (!folders)
        return failed("out of memory");
    int result = EXIT_DONE;
    for (int i = 0; i < argc && result == EXIT_DONE; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (argv[i][0] == '-' && argv[i][1])
            result = usage_error("checkpoint scrub has no option \"%s\"", argv[i]);
        else
            folders[count++] = argv[i];
    }
    if (result == EXIT_DONE && !count)
        result = usage_error("checkpoint scrub needs the folders of nvme_path");
    if (result == EXIT_DONE)
        result = scrub(folders, count, json);
    free(folders);
    return result;
}
