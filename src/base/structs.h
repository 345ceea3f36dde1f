/* SPDX-License-Identifier: Apache-2.0 */
/* structs.h: structs that programs pass to the library, which grow at their end. Each begins with struct_size, the bytes that
 * the caller was compiled with. */
#ifndef ZOFF_BASE_STRUCTS_H
#define ZOFF_BASE_STRUCTS_H

#include <zoff/status.h>

/* Check an input struct. `name` is its type, `start` its initializer ("ZOFF_STEP_ARGS_INIT"); both are static text for the
 * message.
 * @return ERR_INVALID for a struct_size that no version has; ERR_UNSUPPORTED for a field beyond `known_bytes` that is not zero:
 * a newer program requests something that this version does not have */
zoff_status zoff_base_structs_check(const char *name, const char *start, const void *given, size_t known_bytes);

/* Check an input struct likewise, copy its fields over the defaults in `known`, and set `known`'s struct_size to
 * `known_bytes`. */
zoff_status zoff_base_structs_read(const char *name, const char *start, const void *given, void *known, size_t known_bytes);

/* Check the struct_size of an output struct.  @return ERR_INVALID for one that no version has */
zoff_status zoff_base_structs_check_out(const char *name, const char *start, const void *out);

/* Copy `known` into an output struct, as far as the caller has its fields. Does not change struct_size; fields of a newer
 * caller become zero. */
void zoff_base_structs_write(const void *known, size_t known_bytes, void *out);

#endif
