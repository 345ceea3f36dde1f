/* structs.h: structs that cross the border of the library and grow at their end. Each begins with struct_size, the bytes that
 * the caller was compiled with. */
#ifndef ZOFF_BASE_STRUCTS_H
#define ZOFF_BASE_STRUCTS_H

#include <zoff/status.h>

/* Check an input struct. `name` is its type, `start` is what a caller fills it with ("ZOFF_STEP_ARGS_INIT"); both are static
 * text for the message.
 * @return ERR_INVALID for a struct_size that no version has; ERR_UNSUPPORTED for a field beyond `known_bytes` that is not
 * zero, with which a newer program asks for something that this version does not do */
zoff_status zoff_base_structs_check(const char *name, const char *start, const void *given, size_t known_bytes);

/* The same, then copy what the caller has of the struct over the defaults in `known`. Sets its struct_size to `known_bytes`. */
zoff_status zoff_base_structs_read(const char *name, const char *start, const void *given, void *known, size_t known_bytes);

/* Check the struct_size of an output struct.  @return ERR_INVALID for one that no version has */
zoff_status zoff_base_structs_check_out(const char *name, const char *start, const void *out);

/* Copy `known` into an output struct as far as the caller has fields. Leaves struct_size; fields that only a newer caller
 * has become zero. */
void zoff_base_structs_write(const void *known, size_t known_bytes, void *out);

#endif
