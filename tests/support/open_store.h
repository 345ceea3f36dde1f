// open_store.h: opens a store as one rank does that meets no others. A test may take part between the functions of the opening.
#ifndef ZOFF_OPEN_STORE_H
#define ZOFF_OPEN_STORE_H

#include <functional>

extern "C" {
#include "offload.h"
#include "try.h"
}

namespace zoff_test
{
// Answers of other ranks. An empty function agrees.
struct other_ranks {
    std::function<zoff_status(const zoff_store_found &found, uint64_t *io_generation)> decide;
    std::function<zoff_status()> verified, between, written;
};

inline zoff_status ask(const std::function<zoff_status()> &others)
{
    return others ? others() : ZOFF_OK;
}

// `part` does a part of its work in each call.
inline zoff_status do_all(const other_ranks &others, const std::function<zoff_status()> &part)
{
    zoff_status status;
    while ((status = part()) == ZOFF_PENDING)
        ZOFF_TRY(ask(others.between));
    return status;
}

inline zoff_status open_found(zoff_store *store, const zoff_store_opts *opts, const zoff_store_found &found,
                              const other_ranks &others)
{
    uint64_t generation = found.reopened ? found.generation : 0;
    if (opts->persist && others.decide)
        ZOFF_TRY(others.decide(found, &generation));
    ZOFF_TRY(do_all(others, [&] { return zoff_offload_store_verify(store, opts, generation); }));
    if (generation != found.generation && opts->wanted_t)
        ZOFF_TRY(ask(others.verified));
    ZOFF_TRY(do_all(others, [&] { return zoff_offload_store_fill(store, opts); }));
    if (opts->persist && !generation)
        ZOFF_TRY(ask(others.written));
    return zoff_offload_store_ready(store);
}

// *out is unchanged after an error.
inline zoff_status open_store(const zoff_store_opts *opts, zoff_store **out, const other_ranks &others = {})
{
    zoff_store *store = nullptr;
    zoff_store_found found;
    ZOFF_TRY(zoff_offload_store_find(opts, &store, &found));
    const zoff_status status = open_found(store, opts, found, others);
    if (status < 0)
        zoff_offload_store_close(store);
    else
        *out = store;
    return status;
}
} // namespace zoff_test

#endif
