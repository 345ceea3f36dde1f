/* SPDX-License-Identifier: Apache-2.0 */
// store_ptr.h: a store that a test owns, opened as one rank does that meets no others, and demands by chunk: for tests that
// borrow chunks one at a time, in any order.
#ifndef ZOFF_TESTS_STORE_PTR_H
#define ZOFF_TESTS_STORE_PTR_H
#include <functional>
#include <map>
#include <memory>

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

// By thread, because ranks are threads. A node of a map does not move.
inline thread_local std::map<std::pair<zoff_store *, size_t>, zoff_demand> demands;

struct store_closer {
    void operator()(zoff_store *s) const
    {
        zoff_offload_store_close(s);
        for (auto i = demands.begin(); i != demands.end();)
            i = i->first.first == s ? demands.erase(i) : std::next(i);
    }
};
using store_ptr = std::unique_ptr<zoff_store, store_closer>;

inline zoff_status ask(zoff_store *s, size_t chunk, zoff_demand_part part, void **out)
{
    zoff_demand &d = demands[{s, chunk}];
    if (!d.is_granted)
        d = {};
    if (!d.is_granted) {
        d.kind = ZOFF_DEMAND_PASS;
        d.chunk = chunk;
        d.states = part;
    }
    const zoff_status status = zoff_offload_broker_ask(&d);
    *out = d.states.base;
    return status;
}

// Borrow arrays of a chunk, whose bytes are read and compared.
inline zoff_status borrow_arrays(zoff_store *s, size_t chunk, unsigned arrays, void **out)
{
    zoff_demand_part part = {};
    part.store = s;
    part.arrays = arrays;
    return ask(s, chunk, part, out);
}
inline zoff_status borrow_chunk(zoff_store *s, size_t chunk, void **out)
{
    return borrow_arrays(s, chunk, ZOFF_STORE_ALL, out);
}
// Borrow a chunk of any content.
inline zoff_status claim_chunk(zoff_store *s, size_t chunk, void **out)
{
    zoff_demand_part part = {};
    part.store = s;
    part.overwrites = true;
    return ask(s, chunk, part, out);
}
inline zoff_status flush_chunk(zoff_store *s, size_t chunk)
{
    zoff_demand &d = demands[{s, chunk}];
    return zoff_offload_broker_give(&d, &d.states, ZOFF_STORE_ALL, false);
}
// `changed`: written later, once.
inline zoff_status keep_chunk(zoff_store *s, size_t chunk, unsigned changed)
{
    zoff_demand &d = demands[{s, chunk}];
    return zoff_offload_broker_give(&d, &d.states, changed, true);
}
inline zoff_status put_chunk(zoff_store *s, size_t chunk)
{
    zoff_demand &d = demands[{s, chunk}];
    d.chunk = chunk;
    d.states.store = s;
    return zoff_offload_broker_put(&d, &d.states);
}
// Give a chunk back as if it had not been borrowed.
inline void withdraw(zoff_store *s, size_t chunk)
{
    zoff_offload_broker_withdraw(&demands[{s, chunk}]);
}
inline void hint(zoff_store *s, size_t chunk)
{
    zoff_offload_broker_hint(s, &chunk, nullptr, 1);
}
} // namespace zoff_test
#endif
