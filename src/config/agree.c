/* agree.c: lists the keys that must be the same on all ranks. A key may differ only if its row in the schema says so. */
#include "config_priv.h"
#include "mem.h"
#include "try.h"

/* Only keys that zoff acts on are compared: ignored keys change no number, and refused keys pass only with a value that changes
 * nothing. */
static bool must_agree(const zoff_config_key *row)
{
    return row->class_ == ZOFF_CLASS_HONOURED && row->type != ZOFF_KEY_SECTION && !row->may_differ;
}

static zoff_status list(const zoff_config *config, zoff_config_sink *sink)
{
    size_t count;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    for (size_t i = 0; i < count; i++) {
        char *value;
        if (!must_agree(&table[i]))
            continue;
        ZOFF_TRY(zoff_config_value_text(&table[i], &config->effective[i], &value));
        zoff_config_sink_add(sink, "%s%c%s%c", table[i].path, 0, value, 0);
        zoff_base_mem_free(value);
    }
    return ZOFF_OK;
}

zoff_status zoff_config_agree_list(const zoff_config *config, char **out, size_t *out_bytes)
{
    zoff_config_sink sink = {0};
    ZOFF_TRY(list(config, &sink));
    ZOFF_TRY(zoff_base_mem_alloc(sink.used + 1, 1, "the keys that ranks compare", out));
    sink = (zoff_config_sink){.dst = *out, .dst_bytes = sink.used + 1};
    const zoff_status status = list(config, &sink);
    *out_bytes = sink.used;
    if (status < 0) {
        zoff_base_mem_free(*out);
        *out = NULL;
    }
    return status;
}
