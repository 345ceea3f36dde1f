/* SPDX-License-Identifier: Apache-2.0 */
// broker_model_test.cc: a model of the rules by which slots are given (src/offload/broker.c), and all interleavings of a step,
// a fetch of weights, reads ahead, and transfers of which one may fail. From every state the step and the fetch must be able to
// end. Without the first, the second or the third invariant, there are states from which they cannot.
//
// A bucket of the step needs a slot of states and a slot of weights. Buckets ask in the order of the walk. The fetch needs the
// weights of one chunk after another. A read ahead may start at any time, for any chunk. At the beginning each slot may be
// free, hold a clean copy, or hold a write that was put off. The fourth invariant is about who is first, and not about an end.
#include <gtest/gtest.h>

#include <stdint.h>
#include <stdio.h>

#include <array>
#include <deque>
#include <unordered_map>
#include <vector>

namespace
{
enum kind { FREE, GRANTED, CLEAN, DEFERRED, READING, WRITING, FAILED };
enum owner { NOBODY, STEP, FETCH };
enum { STATES, WEIGHTS, POOLS, CHUNKS_MOST = 4, SLOTS_MOST = 2, FETCHES = 2 };

struct slot {
    uint8_t is = FREE, chunk = 0, owner = NOBODY; // an owner asked for it; READING without one: it is read ahead
    bool operator==(const slot &o) const { return is == o.is && chunk == o.chunk && owner == o.owner; }
};

struct state {
    std::array<std::array<slot, SLOTS_MOST>, POOLS> pools;
    std::array<bool, CHUNKS_MOST> asked = {}, updated = {}; // flags of each bucket: it has places; it is given back
    uint8_t fetched = 0;
    bool has_asked = false, has_failed = false; // the fetch has a place; one transfer has failed

    uint64_t key() const
    {
        uint64_t k = fetched + 4u * has_asked + 8u * has_failed;
        for (const auto &pool : pools) {
            for (const slot &s : pool)
                k = k << 7 | (s.is == FREE ? 0u : s.is | s.chunk << 3 | s.owner << 5);
        }
        for (size_t c = 0; c < CHUNKS_MOST; c++)
            k = k << 2 | asked[c] | updated[c] << 1;
        return k;
    }
};

struct rules {
    bool all_at_once = true, revokes = true, clears = true;
};

class model
{
  public:
    model(size_t slots, size_t weight_slots, size_t chunks, rules r) : sizes{slots, weight_slots}, chunks(chunks), r(r) {}

    // The number of states from which an end cannot be reached.
    size_t explore()
    {
        begin({}, 0, 0);
        while (!queue.empty()) {
            const state s = queue.front();
            queue.pop_front();
            from = ids[s.key()];
            expand(s);
        }
        std::vector<bool> ends(ids.size());
        std::deque<size_t> back(finals.begin(), finals.end());
        for (const size_t f : finals)
            ends[f] = true;
        size_t count = finals.size();
        while (!back.empty()) {
            const size_t at = back.front();
            back.pop_front();
            for (const size_t before : reached_from[at]) {
                if (ends[before])
                    continue;
                ends[before] = true;
                count++;
                back.push_back(before);
            }
        }
        return ids.size() - count;
    }
    size_t states() const { return ids.size(); }
    size_t dishonest = 0; // states in which a demand waits for what will not end

  private:
    void begin(state s, size_t pool, size_t at)
    {
        if (pool == POOLS) {
            from = SIZE_MAX;
            go(s);
            return;
        }
        const size_t next_pool = at + 1 < sizes[pool] ? pool : pool + 1, next = at + 1 < sizes[pool] ? at + 1 : 0;
        begin(s, next_pool, next);
        for (const uint8_t is : {CLEAN, DEFERRED}) {
            for (uint8_t c = 0; c < chunks; c++) {
                if (find(s, pool, c))
                    continue;
                state t = s;
                t.pools[pool][at] = {is, c, NOBODY};
                begin(t, next_pool, next);
            }
        }
    }
    void go(const state &s)
    {
        const auto [it, is_new] = ids.emplace(s.key(), ids.size());
        if (is_new) {
            queue.push_back(s);
            reached_from.emplace_back();
            bool is_final = s.fetched == FETCHES;
            for (size_t c = 0; c < chunks; c++)
                is_final = is_final && s.updated[c];
            if (is_final)
                finals.push_back(it->second);
        }
        if (from != SIZE_MAX)
            reached_from[it->second].push_back(from);
    }

    slot *find(state &s, size_t pool, size_t chunk) const
    {
        for (size_t i = 0; i < sizes[pool]; i++) {
            if (s.pools[pool][i].is != FREE && s.pools[pool][i].chunk == chunk)
                return &s.pools[pool][i];
        }
        return nullptr;
    }
    // The slots that a chunk can get now, by number.
    std::vector<size_t> places(state &s, size_t pool, size_t chunk) const
    {
        std::vector<size_t> list;
        if (const slot *own = find(s, pool, chunk)) {
            const bool is_open = own->is == CLEAN || own->is == DEFERRED || (own->is == READING && own->owner == NOBODY);
            if (is_open)
                list.push_back((size_t)(own - s.pools[pool].data()));
            return list;
        }
        for (size_t i = 0; i < sizes[pool]; i++) {
            if (s.pools[pool][i].is == FREE || (r.revokes && s.pools[pool][i].is == CLEAN))
                list.push_back(i);
        }
        return list;
    }
    static void take(state &s, size_t pool, size_t at, size_t chunk, owner who)
    {
        slot &x = s.pools[pool][at];
        const bool is_here = x.is != FREE && x.chunk == chunk;
        const kind now = is_here && x.is != READING ? GRANTED : READING;
        x = {(uint8_t)now, (uint8_t)chunk, (uint8_t)who};
    }
    // The third invariant. `out` is the state after it, if it does anything.
    bool clear(const state &s, size_t pool, size_t chunk, state &out) const
    {
        if (!r.clears)
            return false;
        out = s;
        slot *own = find(out, pool, chunk), *failed = own && own->is == FAILED ? own : nullptr;
        for (size_t i = 0; !own && i < sizes[pool]; i++) {
            slot &x = out.pools[pool][i];
            if (x.is == DEFERRED) {
                x.is = WRITING;
                return true;
            }
            failed = x.is == FAILED ? &x : failed;
        }
        if (failed && (own || !is_busy(s, pool)))
            failed->is = WRITING;
        return failed && failed->is == WRITING;
    }
    bool is_busy(const state &s, size_t pool) const
    {
        bool busy = false;
        for (size_t i = 0; i < sizes[pool]; i++) {
            const uint8_t is = s.pools[pool][i].is;
            busy = busy || is == GRANTED || is == READING || is == WRITING;
        }
        return busy;
    }
    // A demand that has no place in a pool clears the way, or waits for what will end.
    void wait(state s, size_t pool, size_t chunk)
    {
        state t;
        if (clear(s, pool, chunk, t))
            go(t);
        else if (!is_busy(s, pool))
            dishonest++;
    }

    void ask_for_bucket(state s, size_t c)
    {
        const std::vector<size_t> a = places(s, STATES, c), b = places(s, WEIGHTS, c);
        for (const size_t i : a) {
            for (const size_t k : b) {
                state t = s;
                take(t, STATES, i, c, STEP);
                take(t, WEIGHTS, k, c, STEP);
                t.asked[c] = true;
                go(t);
            }
        }
        if (a.empty())
            wait(s, STATES, c);
        if (b.empty())
            wait(s, WEIGHTS, c);
    }
    // Without the first invariant: each part is taken when there is a place for it.
    void ask_for_parts(state s, size_t c)
    {
        for (const size_t pool : {STATES, WEIGHTS}) {
            const slot *own = find(s, pool, c);
            if (own && own->owner == STEP)
                continue;
            const std::vector<size_t> a = places(s, pool, c);
            for (const size_t i : a) {
                state t = s;
                take(t, pool, i, c, STEP);
                go(t);
            }
            if (a.empty())
                wait(s, pool, c);
        }
    }
    bool is_granted(state s, size_t pool, size_t c, owner who)
    {
        const slot *own = find(s, pool, c);
        return own && own->is == GRANTED && own->owner == who;
    }

    void expand(const state &s)
    {
        for (size_t c = 0; c < chunks; c++) {
            if (s.updated[c])
                continue;
            if (!r.all_at_once)
                ask_for_parts(s, c);
            else if (!s.asked[c])
                ask_for_bucket(s, c);
            if (is_granted(s, STATES, c, STEP) && is_granted(s, WEIGHTS, c, STEP))
                update(s, c);
            else if (r.all_at_once && !s.asked[c])
                break; // requests behind it come later
        }
        if (s.fetched < FETCHES)
            fetch(s);
        for (size_t pool = 0; pool < POOLS; pool++) {
            for (size_t i = 0; i < sizes[pool]; i++)
                transfer(s, pool, i);
            for (size_t c = 0; c < chunks; c++)
                read_ahead(s, pool, c);
        }
    }
    void update(state s, size_t c)
    {
        for (const size_t pool : {STATES, WEIGHTS})
            *find(s, pool, c) = {WRITING, (uint8_t)c, NOBODY};
        s.updated[c] = true;
        go(s);
    }
    void fetch(state s)
    {
        const size_t c = s.fetched + 1; // chunks 1 and 2
        if (is_granted(s, WEIGHTS, c, FETCH)) {
            *find(s, WEIGHTS, c) = {CLEAN, (uint8_t)c, NOBODY};
            s.fetched++;
            s.has_asked = false;
            go(s);
            return;
        }
        if (s.has_asked)
            return;
        const std::vector<size_t> a = places(s, WEIGHTS, c);
        for (const size_t i : a) {
            state t = s;
            take(t, WEIGHTS, i, c, FETCH);
            t.has_asked = true;
            go(t);
        }
        if (a.empty())
            wait(s, WEIGHTS, c);
    }
    // A read or write ends, well or not.
    void transfer(state s, size_t pool, size_t i)
    {
        slot &x = s.pools[pool][i];
        state t = s;
        slot &y = t.pools[pool][i];
        if (x.is == WRITING)
            y = {FREE, 0, NOBODY};
        else if (x.is == READING)
            y.is = x.owner == NOBODY ? CLEAN : GRANTED;
        else
            return;
        go(t);
        if (s.has_failed)
            return;
        s.has_failed = true;
        if (x.is == WRITING)
            x.is = FAILED;
        else
            fail_read(s, x);
        go(s);
    }
    // The demand ends with the error: it has nothing any more, and asks anew.
    void fail_read(state &s, slot &x)
    {
        const uint8_t who = x.owner, c = x.chunk;
        x = {FREE, 0, NOBODY};
        if (who == FETCH)
            s.has_asked = false;
        if (who != STEP)
            return;
        s.asked[c] = false;
        for (const size_t pool : {STATES, WEIGHTS}) {
            slot *part = find(s, pool, c);
            if (part && part->owner == STEP)
                *part = {(uint8_t)(part->is == READING ? READING : CLEAN), c, NOBODY};
        }
    }
    // Into a free slot, or over a clean copy, which is an older one.
    void read_ahead(state s, size_t pool, size_t c)
    {
        if (find(s, pool, c))
            return;
        for (size_t i = 0; i < sizes[pool]; i++) {
            state t = s;
            if (s.pools[pool][i].is != FREE && !(r.revokes && s.pools[pool][i].is == CLEAN))
                continue;
            t.pools[pool][i] = {READING, (uint8_t)c, NOBODY};
            go(t);
        }
    }

    std::array<size_t, POOLS> sizes;
    size_t chunks, from = 0;
    rules r;
    std::unordered_map<uint64_t, size_t> ids;
    std::deque<state> queue;
    std::vector<std::vector<size_t>> reached_from;
    std::vector<size_t> finals;
};

struct size_of_pools {
    size_t slots, weight_slots, chunks;
};
const size_of_pools ALL_SIZES[] = {{1, 1, 3}, {1, 1, 4}, {1, 2, 3}, {1, 2, 4}, {2, 1, 3}, {2, 1, 4}, {2, 2, 3}, {2, 2, 4}};

TEST(BrokerModel, EveryStateCanEnd)
{
    for (const size_of_pools &n : ALL_SIZES) {
        model m(n.slots, n.weight_slots, n.chunks, {});
        EXPECT_EQ(0u, m.explore()) << n.slots << " and " << n.weight_slots << " slots, " << n.chunks << " chunks";
        EXPECT_EQ(0u, m.dishonest) << "a demand waits for nothing";
        EXPECT_LT(1000u, m.states());
        printf("%zu and %zu slots, %zu chunks: %zu states\n", n.slots, n.weight_slots, n.chunks, m.states());
    }
}

// The number of states from which the step or the fetch cannot end, of all sizes.
size_t stuck(rules r)
{
    size_t sum = 0;
    for (const size_of_pools &n : ALL_SIZES)
        sum += n.slots + n.weight_slots < 4 && n.chunks == 3 ? model(n.slots, n.weight_slots, n.chunks, r).explore() : 0;
    return sum;
}

TEST(BrokerModel, WithoutOneOfThreeInvariantsSomeCannot)
{
    rules takes_one_by_one, keeps_copies, lets_wait;
    takes_one_by_one.all_at_once = false;
    keeps_copies.revokes = false;
    lets_wait.clears = false;
    const size_t counts[] = {stuck(takes_one_by_one), stuck(keeps_copies), stuck(lets_wait)};
    for (size_t i = 0; i < 3; i++) {
        EXPECT_LT(0u, counts[i]) << "without invariant " << i + 1;
        printf("without invariant %zu: %zu states\n", i + 1, counts[i]);
    }
}
} // namespace
