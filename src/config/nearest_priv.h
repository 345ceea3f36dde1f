/* nearest_priv.h: the known word that a misspelt one was probably meant to be. */
#ifndef ZOFF_CONFIG_NEAREST_PRIV_H
#define ZOFF_CONFIG_NEAREST_PRIV_H

#include <stddef.h>

/* Letters to change, add, drop or swap to make one word of the other, case ignored; words longer than 64 letters differ in
 * all of them. */
unsigned zoff_config_nearest_distance(const char *a, const char *b);

/* The path of the key that `key` in `section` is closest to; NULL when nothing is close. */
const char *zoff_config_nearest_key(const char *section, const char *key);

/* The word of "a|b|c" closest to `word`, copied to dst; "" when nothing is close. */
void zoff_config_nearest_choice(const char *list, const char *word, char *dst, size_t dst_bytes);

#endif
