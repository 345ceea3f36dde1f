// store_ptr.h: a store that a test owns.
#ifndef ZOFF_TESTS_STORE_PTR_H
#define ZOFF_TESTS_STORE_PTR_H
#include "open_store.h"

#include <memory>

namespace zoff_test
{
struct store_closer {
    void operator()(zoff_store *s) const { zoff_offload_store_close(s); }
};
using store_ptr = std::unique_ptr<zoff_store, store_closer>;
} // namespace zoff_test
#endif
