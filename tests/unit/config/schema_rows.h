/* SPDX-License-Identifier: Apache-2.0 */
// schema_rows.h: the rows of the table of keys.
#ifndef SCHEMA_ROWS_H
#define SCHEMA_ROWS_H

#include <vector>

extern "C" {
#include "schema.h"
}

namespace config_test
{
inline std::vector<const zoff_config_key *> rows()
{
    size_t count;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    std::vector<const zoff_config_key *> out;
    for (size_t i = 0; i < count; i++)
        out.push_back(&table[i]);
    return out;
}
} // namespace config_test

#endif
