/* SPDX-License-Identifier: Apache-2.0 */
/* api.c: `zoff api`: the C API, for programs that generate bindings. */
#include "verbs.h"

#include <jansson.h>
#include <string.h>

/* The text of share/zoff/api.json, a part of this program, so that no path is needed to find it. */
extern const char zoff_api_json[];
__asm__(".section .rodata\n.globl zoff_api_json\nzoff_api_json:\n.incbin \"share/zoff/api.json\"\n.byte 0\n.previous");

static void print_declaration(const char *name, const json_t *call)
{
    const char *result = json_string_value(json_object_get(call, "result"));
    printf("%s%s%s(", result, result[strlen(result) - 1] == '*' ? "" : " ", name);
    const json_t *arguments = json_object_get(call, "args"), *argument;
    size_t i;
    json_array_foreach(arguments, i, argument)
    {
        const char *type = json_string_value(json_object_get(argument, "type"));
        const char *its_name = json_string_value(json_object_get(argument, "name"));
        const char *pointer = strstr(type, "(*)"); /* the name of a function pointer is inside of its type */
        const size_t before = pointer ? (size_t)(pointer - type) + 2 : strlen(type);
        printf("%s%.*s%s%s%s", i ? ", " : "", (int)before, type, pointer || type[before - 1] == '*' ? "" : " ", its_name,
               type + before);
    }
    puts(json_array_size(arguments) ? ");" : "void);");
}

int verb_api(int argc, char **argv)
{
    if (argc > 1 || (argc == 1 && strcmp(argv[0], "--json") != 0))
        return usage_error("api takes no arguments but --json, and was given \"%s\"", argv[argc - 1]);
    if (argc == 1) {
        fputs(zoff_api_json, stdout);
        return finish_output();
    }
    json_error_t error;
    json_t *api = json_loads(zoff_api_json, 0, &error), *call;
    if (!api)
        return failed("api.json: %s", error.text);
    const char *name;
    json_object_foreach(json_object_get(api, "calls"), name, call)
    {
        print_declaration(name, call);
    }
    json_decref(api);
    return finish_output();
}
