/* env.c: reads the variables of env.h. */
#include "env.h"

#include <stdlib.h>

static const char *const NAMES[] = {
#define E(id, variable, fallback, help) variable,
    ZOFF_ENV_LIST(E)
#undef E
};

const char *zoff_base_env_get(zoff_env id)
{
    const char *value = getenv(NAMES[id]);
    return value && value[0] ? value : 0;
}

const char *zoff_base_env_name(zoff_env id)
{
    return NAMES[id];
}
