/* cells.c: finds the cells of a key by its path: the effective one, and the one that the program or the file gave. */
#include "config_priv.h"

zoff_config_cell *zoff_config_cells_find(const zoff_config *config, const char *path)
{
    return &config->effective[zoff_config_schema_index(zoff_config_schema_find(path))];
}

const zoff_config_cell *zoff_config_cells_given(const zoff_config *config, const char *path)
{
    size_t row = zoff_config_schema_index(zoff_config_schema_find(path));
    if (config->api[row].kind != ZOFF_CELL_ABSENT)
        return &config->api[row];
    return config->file[row].kind != ZOFF_CELL_ABSENT ? &config->file[row] : NULL;
}

const char *zoff_config_cells_source(const zoff_config_cell *cell)
{
    return cell->source ? cell->source : cell->is_computed ? "computed" : "default";
}
