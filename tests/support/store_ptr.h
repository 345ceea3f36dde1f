// store_ptr.h: a store that a test owns, and demands by chunk: for tests that borrow chunks one at a time, in any order.
#ifndef ZOFF_TESTS_STORE_PTR_H
#define ZOFF_TESTS_STORE_PTR_H
#include "open_store.h"

#include <map>
#include <memory>

namespace zoff_test
{
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
    zoff_offload_broker_hint(s, &chunk, 1);
}
} // namespace zoff_test
#endif
