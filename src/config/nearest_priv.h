/* nearest_priv.h: finds the known word that a misspelt one probably means. */
#ifndef ZOFF_CONFIG_NEAREST_PRIV_H
#define ZOFF_CONFIG_NEAREST_PRIV_H

#include <stdbool.h>
#include <stddef.h>

/* The number of letters to change, add, drop or swap to turn one word into the other, ignoring case. If a word is longer than
 * 64 letters, the result is 65. */
unsigned zoff_config_nearest_distance(const char *a, const char *b);

/* The path of the known key that is closest to `key` in `section`; NULL if none is close. */
const char *zoff_config_nearest_key(const char *section, const char *key);

/* Whether a key of the top level resembles no key that has a meaning, not even a refused one, so it is no misspelt one. */
bool zoff_config_nearest_is_stray(const char *key);

/* Copy the word of "a|b|c" that is closest to `word` into dst; "" if none is close. */
void zoff_config_nearest_choice(const char *list, const char *word, char *dst, size_t dst_bytes);

#endif
