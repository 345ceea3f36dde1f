/* SPDX-License-Identifier: Apache-2.0 */
// config_text.h: a configuration of JSON text.
#ifndef ZOFF_TEST_CONFIG_TEXT_H
#define ZOFF_TEST_CONFIG_TEXT_H

#include <zoff/config.h>

namespace zoff_test
{
// `name` stands for the file in messages.
inline zoff_status config_from_text(const char *text, size_t bytes, const char *name, zoff_config **out)
{
    zoff_config *made;
    zoff_status status = zoff_config_open(nullptr, &made);
    if (status < 0)
        return status;
    status = zoff_config_read_text(made, text, bytes, name);
    if (status < 0)
        zoff_config_close(made);
    else
        *out = made;
    return status;
}
} // namespace zoff_test

#endif
