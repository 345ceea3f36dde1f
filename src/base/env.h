/* env.h: the one table of environment variables. getenv is called in env.c and nowhere else. */
#ifndef ZOFF_BASE_ENV_H
#define ZOFF_BASE_ENV_H

/* clang-format off */
#define ZOFF_ENV_LIST(E) /* id         variable          default   help */                                              \
    E(LOG_LEVEL,  "ZOFF_LOG_LEVEL", "info",   "how much is logged: error, warn, info, debug, trace")                    \
    E(ISA,        "ZOFF_ISA",       "auto",   "kernels to use: auto, scalar, avx2, avx512, neon, sve")                             \
    E(AIO,        "ZOFF_AIO",       "auto",   "I/O back-end where the configuration leaves it open: auto, io_uring, posix")
/* clang-format on */

typedef enum zoff_env {
#define E(id, variable, fallback, help) ZOFF_ENV_##id,
    ZOFF_ENV_LIST(E)
#undef E
        ZOFF_ENV_COUNT
} zoff_env;

/* The value in the environment, or NULL where it is not set or empty. */
const char *zoff_base_env_get(zoff_env id);

/* Name of the variable, for messages. */
const char *zoff_base_env_name(zoff_env id);

#endif
