/* SPDX-License-Identifier: Apache-2.0 */
// plan_test.cc: properties of the partition over random lists. Every element lies in exactly one piece. Pieces do not overlap
// in any stream. Cuts are at units, chunks keep their limits, and any set of streams keeps its distance.
#include "zoff_test.h"

#include <algorithm>
#include <list>
#include <numeric>
#include <random>
#include <set>

extern "C" {
#include "zero.h"
}

namespace
{
struct owned_plan {
    zoff_plan plan = {};
    ~owned_plan() { zoff_zero_plan_free(&plan); }
};

size_t padded(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

// A header lies before each block of a stream, the last of which may be shorter.
size_t bytes_of(const zoff_plan_tensor &t, size_t stream, size_t count)
{
    size_t bytes = count * t.bytes[stream];
    for (size_t at = 0; t.headers[stream] && at < count; at += t.block)
        bytes += t.headers[stream];
    return bytes;
}

bool has_states(const zoff_plan_tensor &t)
{
    return zoff_zero_plan_streams(&t) > 0;
}

bool has_matrices(const zoff_plan_tensor &t)
{
    return t.matrix_ends && (!t.frozen || t.weight_bytes) && t.count;
}

// The order of a plan: parameters with matrices come behind the others.
std::vector<size_t> order_of(const std::vector<zoff_plan_tensor> &tensors)
{
    std::vector<size_t> order(tensors.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_partition(order.begin(), order.end(), [&](size_t i) { return !has_matrices(tensors[i]); });
    return order;
}

// Each matrix lies in one round, each bucket in one round or in none, and a round is no larger than it has to be.
void check_rounds(const std::vector<zoff_plan_tensor> &tensors, const zoff_plan_opts &opts, const zoff_plan &plan)
{
    const size_t ranks = opts.ranks ? opts.ranks : 1;
    size_t chunk = 0, before = 0, elements = 0, matrices = 0, ended = 0;
    while (chunk < plan.chunk_count && !plan.chunks[chunk].round)
        chunk++;
    for (size_t r = 0; r < plan.rounds.count; r++) {
        ASSERT_EQ(chunk, plan.rounds.all[r].first_chunk);
        ASSERT_GT(plan.rounds.all[r].chunk_count, 0u);
        for (size_t end = chunk + plan.rounds.all[r].chunk_count; chunk < end; chunk++)
            ASSERT_EQ(r + 1, plan.chunks[chunk].round);
    }
    ASSERT_EQ(plan.chunk_count, chunk);
    for (const size_t i : order_of(tensors)) {
        const zoff_plan_tensor &t = tensors[i];
        for (size_t slice = 0; has_matrices(t) && slice < t.slices; slice++) {
            for (size_t m = 0, first = 0; m < t.matrices; first = t.matrix_ends[m++]) {
                const size_t end = t.matrix_ends[m];
                const size_t run = zoff_zero_plan_find_run(&plan, (uint32_t)i, slice, first);
                const size_t last = zoff_zero_plan_find_run(&plan, (uint32_t)i, slice, end - 1);
                const size_t round = plan.chunks[plan.runs[run].bucket].round;
                ASSERT_EQ(round, plan.chunks[plan.runs[last].bucket].round);
                ASSERT_TRUE(round == before || round == before + 1);
                const bool may_end = ended % opts.unit == 0 || first == 0;
                if (round != before && before) {
                    ASSERT_TRUE(may_end && matrices >= ranks && elements >= opts.round_elements);
                    ASSERT_EQ(elements, plan.rounds.all[before - 1].elements);
                } else if (before) {
                    ASSERT_FALSE(may_end && matrices >= ranks && elements >= opts.round_elements);
                }
                matrices = round == before ? matrices + 1 : 1;
                elements = (round == before ? elements : 0) + end - first;
                before = round;
                ended = end;
            }
        }
    }
    ASSERT_EQ(before, plan.rounds.count);
}

void check(const std::vector<zoff_plan_tensor> &tensors, const zoff_plan_opts &opts, const zoff_plan &plan)
{
    size_t piece = 0, elements = 0, state_bytes = 0, weight_bytes = 0, owned = 0;
    for (const size_t i : order_of(tensors)) {
        const bool is_kept = !tensors[i].frozen || tensors[i].weight_bytes;
        for (size_t slice = 0; is_kept && slice < tensors[i].slices; slice++) {
            for (size_t first = 0; first < tensors[i].count; piece++) {
                ASSERT_LT(piece, plan.piece_count);
                const zoff_plan_piece &p = plan.pieces[piece];
                ASSERT_EQ(i, p.param);
                ASSERT_EQ(slice, p.slice);
                ASSERT_EQ(first, p.first);
                ASSERT_EQ(0u, p.first % opts.unit);
                ASSERT_GT(p.count, 0u);
                ASSERT_EQ(owned, p.owned_offset);
                ASSERT_EQ(piece, zoff_zero_plan_find(&plan, (uint32_t)i, slice, first));
                ASSERT_EQ(piece, zoff_zero_plan_find(&plan, (uint32_t)i, slice, first + p.count - 1));
                first += p.count;
                for (size_t s = 0; s < ZOFF_STREAM_COUNT; s++)
                    state_bytes += bytes_of(tensors[i], s, p.count);
                weight_bytes += p.count * tensors[i].weight_bytes;
                if (!tensors[i].frozen) {
                    elements += p.count;
                    owned += (p.count + 15) / 16 * 16;
                }
            }
            ASSERT_EQ(SIZE_MAX, zoff_zero_plan_find(&plan, (uint32_t)i, slice, tensors[i].count));
        }
    }
    ASSERT_EQ(piece, plan.piece_count);
    EXPECT_EQ(elements, plan.elements);
    EXPECT_EQ(state_bytes, plan.state_bytes);
    EXPECT_EQ(weight_bytes, plan.weight_bytes);
    EXPECT_EQ(owned, plan.owned_elements);

    size_t next = 0;
    for (size_t c = 0; c < plan.chunk_count; c++) {
        const zoff_plan_chunk &chunk = plan.chunks[c];
        ASSERT_EQ(next, chunk.first_piece);
        ASSERT_GT(chunk.piece_count, 0u);
        size_t lengths[ZOFF_STREAM_COUNT] = {}, inside = 0, blocks = 0, weights = 0, stateful_units = 0;
        for (size_t k = 0; k < chunk.piece_count; k++) {
            const zoff_plan_piece &p = plan.pieces[chunk.first_piece + k];
            for (size_t s = 0; s < ZOFF_STREAM_COUNT; s++) {
                if (tensors[p.param].bytes[s]) {
                    ASSERT_EQ(lengths[s], p.offsets[s]);
                    lengths[s] += padded(bytes_of(tensors[p.param], s, p.count));
                }
            }
            ASSERT_EQ(weights, p.weight_offset);
            weights += (p.count * tensors[p.param].weight_bytes + 63) / 64 * 64;
            ASSERT_EQ(c, p.bucket);
            inside += p.count;
            blocks += (p.count + opts.unit - 1) / opts.unit;
            stateful_units += has_states(tensors[p.param]) ? (p.count + opts.unit - 1) / opts.unit : 0;
        }
        EXPECT_EQ(inside, chunk.elements);
        EXPECT_EQ((weights + 4095) / 4096 * 4096, chunk.weight_bytes);
        EXPECT_LE(chunk.weight_bytes, plan.most.chunk_weights);
        EXPECT_EQ(blocks, chunk.blocks);
        EXPECT_LE(blocks, plan.most.blocks);
        // Streams follow one another without overlap, on pages, and start at different places of the 32 KiB; masters first.
        std::set<size_t> places;
        size_t end = 0, streams = 0;
        for (size_t s = 0; s < ZOFF_STREAM_COUNT; s++) {
            EXPECT_EQ(lengths[s], chunk.lengths[s]);
            if (lengths[s] == 0)
                continue;
            EXPECT_GE(chunk.starts[s], end);
            EXPECT_LT(chunk.starts[s], end + 32768 + 4096);
            EXPECT_EQ(0u, chunk.starts[s] % 4096);
            end = chunk.starts[s] + lengths[s];
            places.insert(chunk.starts[s] % 32768);
            streams++;
        }
        EXPECT_EQ(streams, places.size());
        EXPECT_EQ((end + 4095) / 4096 * 4096, chunk.bytes);
        EXPECT_EQ(0u, lengths[ZOFF_STREAM_MASTER] ? chunk.starts[ZOFF_STREAM_MASTER] : 0);
        // A chunk exceeds a limit only if its parts with states are no more than one unit.
        if (inside > opts.unit) {
            EXPECT_LE(inside, opts.max_chunk_elements);
        }
        if (stateful_units > 1) {
            EXPECT_LE(chunk.bytes, opts.max_chunk_bytes);
        }
        EXPECT_LE(chunk.bytes, plan.most.chunk_bytes);
        EXPECT_LE(chunk.piece_count, plan.most.pieces);
        next += chunk.piece_count;
    }
    EXPECT_EQ(plan.piece_count, next);
}

// Cut a slice into matrices of random sizes, of which some end at units.
void add_matrices(std::mt19937 &random, zoff_plan_tensor &t, std::list<std::vector<size_t>> &ends)
{
    std::vector<size_t> own;
    for (size_t at = 0; at < t.count; own.push_back(at)) {
        const size_t rest = t.count - at, most = random() % 4 ? 3000 : 30000;
        at += random() % 3 ? std::min(rest, (size_t)1024 << random() % 3) : 1 + random() % std::min(rest, most);
    }
    ends.push_back(own);
    t.matrix_ends = ends.back().data();
    t.matrices = own.size();
}

std::vector<zoff_plan_tensor> random_tensors(std::mt19937 &random, std::list<std::vector<size_t>> &ends)
{
    std::vector<zoff_plan_tensor> tensors(random() % 12);
    const bool with_matrices = random() % 2;
    for (auto &t : tensors) {
        static const size_t SIZES[] = {0, 1, 15, 16, 17, 1023, 1024, 1025, 5000, 100000};
        t.count = random() % 3 ? SIZES[random() % 10] : random() % 20000;
        t.slices = random() % 4;
        t.frozen = random() % 8 == 0;
        for (size_t &bytes : t.bytes) {
            static const size_t ELEMENTS[] = {0, 4, 2, 1};
            bytes = t.frozen ? 0 : ELEMENTS[random() % 4];
        }
        t.block = 4u << random() % 3; // 4, 8 or 16: all divide the units
        for (size_t s = 0; s < ZOFF_STREAM_COUNT; s++)
            t.headers[s] = t.bytes[s] && random() % 3 == 0 ? 1 + random() % 64 : 0;
        t.weight_bytes = random() % 2 ? 0 : 2u << random() % 2;
        if (with_matrices && random() % 2)
            add_matrices(random, t, ends);
    }
    return tensors;
}

zoff_plan_opts random_opts(std::mt19937 &random)
{
    zoff_plan_opts opts = {};
    opts.unit = random() % 2 ? 1024 : 16;
    opts.max_chunk_elements = random() % 3 ? 1 + random() % 20000 : SIZE_MAX;
    opts.max_chunk_bytes = random() % 3 ? 1 + random() % 300000 : SIZE_MAX;
    opts.round_elements = random() % 3 ? random() % 20000 : 0;
    return opts;
}

TEST(Plan, PropertiesOverRandomLists)
{
    std::mt19937 random(1);
    for (int round = 0; round < 3000; round++) {
        std::list<std::vector<size_t>> ends;
        const std::vector<zoff_plan_tensor> tensors = random_tensors(random, ends);
        const zoff_plan_opts opts = random_opts(random);
        owned_plan made;
        ASSERT_ZOFF_OK(zoff_zero_plan_make(tensors.data(), tensors.size(), &opts, &made.plan));
        ASSERT_NO_FATAL_FAILURE(check(tensors, opts, made.plan)) << "round " << round;
        ASSERT_NO_FATAL_FAILURE(check_rounds(tensors, opts, made.plan)) << "round " << round;
        if (testing::Test::HasFailure())
            FAIL() << "round " << round;
    }
}

bool same(const zoff_plan_piece &a, const zoff_plan_piece &b)
{
    return a.param == b.param && a.slice == b.slice && a.first == b.first && a.count == b.count && a.block == b.block &&
           a.bucket == b.bucket;
}

// A run on each rank: its share, and the owners of its elements.
void check_shares(const zoff_plan &plan, const zoff_plan_piece &run)
{
    size_t next = run.first, first = 0;
    for (unsigned r = 0; r < plan.ranks; r++) {
        const size_t count = zoff_zero_plan_share(&plan, &run, r, &first);
        if (!count)
            continue;
        ASSERT_EQ(next, first);
        ASSERT_EQ(r, zoff_zero_plan_rank_of(&plan, &run, first));
        ASSERT_EQ(r, zoff_zero_plan_rank_of(&plan, &run, first + count - 1));
        next += count;
    }
    ASSERT_EQ(run.first + run.count, next);
}

// The plans of all ranks are one partition: the parts cover every element once. Parts of a bucket, and the sums of the ranks,
// differ by one block at most. Each rank's chunk is its part, or the whole bucket. All ranks agree on the owner of each part.
void check_ranks(const std::vector<zoff_plan_tensor> &tensors, const zoff_plan_opts &opts, const std::vector<owned_plan> &all)
{
    const zoff_plan &first = all[0].plan;
    const unsigned ranks = opts.ranks;
    std::vector<size_t> blocks(ranks), elements(ranks), next(ranks);
    std::vector<zoff_plan_piece> list;
    for (size_t b = 0; b < first.chunk_count; b++) {
        size_t least = SIZE_MAX, most = 0, sum = 0;
        for (unsigned r = 0; r < ranks; r++) {
            zoff_plan_cursor part = zoff_zero_plan_part(&first, b, r);
            const zoff_plan &theirs = all[r].plan;
            const zoff_plan_span own = zoff_zero_plan_own(&theirs, b);
            size_t now = 0, k = own.first_piece;
            for (zoff_plan_piece p; zoff_zero_plan_next(&part, &p); k++) {
                ASSERT_LT(k, own.first_piece + own.piece_count);
                ASSERT_TRUE(same(p, theirs.pieces[k])) << "bucket " << b << ", rank " << r;
                ASSERT_EQ(k, zoff_zero_plan_find(&theirs, p.param, p.slice, p.first));
                now += (p.count + opts.unit - 1) / opts.unit;
                elements[r] += tensors[p.param].frozen ? 0 : p.count;
                list.push_back(p);
            }
            ASSERT_EQ(own.first_piece + own.piece_count, k);
            least = std::min(least, now);
            most = std::max(most, now);
            sum += now;
            blocks[r] += now;
            const zoff_plan_chunk &chunk = theirs.chunks[b];
            ASSERT_EQ(next[r], chunk.first_piece);
            next[r] += chunk.piece_count;
            if (!opts.replicated) {
                ASSERT_EQ(now, chunk.blocks);
            }
        }
        ASSERT_LE(most - least, 1u);
        ASSERT_GT(sum, 0u);
        ASSERT_LE(sum, opts.max_bucket_units ? opts.max_bucket_units : SIZE_MAX);
    }
    ASSERT_LE(*std::max_element(blocks.begin(), blocks.end()) - *std::min_element(blocks.begin(), blocks.end()), 1u);

    size_t piece = 0, run = 0, block = 0;
    for (const size_t i : order_of(tensors)) {
        const bool is_kept = !tensors[i].frozen || tensors[i].weight_bytes;
        for (size_t slice = 0; is_kept && slice < tensors[i].slices; slice++) {
            for (size_t from = 0; from < tensors[i].count; piece++) {
                ASSERT_LT(piece, list.size());
                const zoff_plan_piece &p = list[piece];
                ASSERT_TRUE(p.param == i && p.slice == slice && p.first == from && from % opts.unit == 0 && p.count > 0);
                ASSERT_EQ(block, p.block);
                if (run + 1 < first.run_count && first.runs[run + 1].block == p.block)
                    run++;
                ASSERT_EQ(run, zoff_zero_plan_find_run(&first, p.param, p.slice, p.first));
                from += p.count;
                block += (p.count + opts.unit - 1) / opts.unit;
            }
        }
    }
    ASSERT_EQ(list.size(), piece);
    for (size_t i = 0; i < first.run_count; i++)
        ASSERT_NO_FATAL_FAILURE(check_shares(first, first.runs[i]));

    for (unsigned r = 0; r < ranks; r++) {
        const zoff_plan &plan = all[r].plan;
        ASSERT_EQ(next[r], plan.piece_count);
        ASSERT_EQ(opts.replicated ? list.size() : next[r], plan.piece_count);
        ASSERT_EQ(first.run_count, plan.run_count);
        ASSERT_EQ(first.chunk_count, plan.chunk_count);
        size_t owned = 0, own_elements = 0, state_bytes = 0;
        for (size_t b = 0; b < plan.chunk_count; b++) {
            const zoff_plan_chunk &chunk = plan.chunks[b];
            size_t lengths[ZOFF_STREAM_COUNT] = {}, stateful_units = 0;
            for (size_t k = 0; k < chunk.piece_count; k++) {
                const zoff_plan_piece &p = plan.pieces[chunk.first_piece + k];
                const zoff_plan_tensor &t = tensors[p.param];
                ASSERT_EQ(owned, p.owned_offset);
                owned += t.frozen ? 0 : (p.count + 15) / 16 * 16;
                own_elements += t.frozen ? 0 : p.count;
                stateful_units += has_states(t) ? (p.count + opts.unit - 1) / opts.unit : 0;
                for (size_t s = 0; s < ZOFF_STREAM_COUNT; s++) {
                    if (t.bytes[s]) {
                        ASSERT_EQ(lengths[s], p.offsets[s]);
                    }
                    lengths[s] += padded(bytes_of(t, s, p.count));
                    state_bytes += bytes_of(t, s, p.count);
                }
            }
            if (stateful_units > 1) {
                ASSERT_LE(chunk.bytes, opts.max_chunk_bytes);
            }
            if (chunk.elements > opts.unit) {
                ASSERT_LE(chunk.elements, opts.max_chunk_elements);
            }
        }
        ASSERT_EQ(owned, plan.owned_elements);
        ASSERT_EQ(own_elements, plan.elements);
        ASSERT_EQ(state_bytes, plan.state_bytes);
        if (!opts.replicated) {
            ASSERT_EQ(elements[r], plan.elements);
        }
    }
}

TEST(Plan, RanksShareOnePartition)
{
    std::mt19937 random(2);
    for (int round = 0; round < 1000; round++) {
        std::list<std::vector<size_t>> ends;
        const std::vector<zoff_plan_tensor> tensors = random_tensors(random, ends);
        zoff_plan_opts opts = random_opts(random);
        opts.ranks = 2 + random() % 8;
        opts.replicated = random() % 4 == 0;
        opts.max_bucket_units = random() % 2 ? 1 + random() % 40 : 0;
        std::vector<owned_plan> all(opts.ranks);
        for (opts.rank = 0; opts.rank < opts.ranks; opts.rank++)
            ASSERT_ZOFF_OK(zoff_zero_plan_make(tensors.data(), tensors.size(), &opts, &all[opts.rank].plan));
        ASSERT_NO_FATAL_FAILURE(check_ranks(tensors, opts, all)) << "round " << round;
        ASSERT_NO_FATAL_FAILURE(check_rounds(tensors, opts, all[0].plan)) << "round " << round;
    }
}

// One parameter for each set of states of an optimizer, with and without a master.
TEST(Plan, EveryCombinationOfStates)
{
    for (unsigned states = 0; states < 8; states++) {
        const size_t streams = (states & 1) + (states >> 1 & 1) + (states >> 2 & 1);
        std::vector<zoff_plan_tensor> tensors = {{65536, 1, false, {(states & 1) * 4, (states & 2) * 2, states & 4}}};
        zoff_plan_opts opts = {1024, SIZE_MAX, SIZE_MAX};
        owned_plan made;
        ASSERT_ZOFF_OK(zoff_zero_plan_make(tensors.data(), 1, &opts, &made.plan));
        ASSERT_NO_FATAL_FAILURE(check(tensors, opts, made.plan)) << states;
        ASSERT_EQ(1u, made.plan.chunk_count);
        EXPECT_EQ(streams * 65536 * 4, made.plan.state_bytes);
        EXPECT_EQ(streams, zoff_zero_plan_streams(tensors.data()));
        // 256 KiB in each stream: the second and third start 12 KiB later than necessary, so that their places differ.
        EXPECT_EQ(streams * 65536 * 4 + (streams ? streams - 1 : 0) * 12288, made.plan.most.chunk_bytes);
    }
}

// A parameter without states is added to chunks that are full of others, and takes none of their bytes.
TEST(Plan, ParametersWithoutStatesTakeNoBytes)
{
    std::vector<zoff_plan_tensor> tensors = {{2048, 1, false, {0, 4, 0}}, {1000000, 1, false, {}}, {2048, 1, false, {0, 4, 0}}};
    zoff_plan_opts opts = {1024, SIZE_MAX, 8192};
    owned_plan made;
    ASSERT_ZOFF_OK(zoff_zero_plan_make(tensors.data(), tensors.size(), &opts, &made.plan));
    ASSERT_NO_FATAL_FAILURE(check(tensors, opts, made.plan));
    ASSERT_EQ(2u, made.plan.chunk_count);
    EXPECT_EQ(1002048u, made.plan.chunks[0].elements);
    EXPECT_EQ(8192u, made.plan.chunks[0].bytes);
    opts.max_chunk_elements = 500000;
    owned_plan cut;
    ASSERT_ZOFF_OK(zoff_zero_plan_make(tensors.data(), tensors.size(), &opts, &cut.plan));
    ASSERT_NO_FATAL_FAILURE(check(tensors, opts, cut.plan));
    ASSERT_EQ(3u, cut.plan.chunk_count);
    EXPECT_EQ(0u, cut.plan.chunks[1].bytes);
}

TEST(Plan, MoreThanTwoToThe31Elements)
{
    std::vector<zoff_plan_tensor> tensors = {{((size_t)1 << 33) + 5, 2, false, {4, 4, 4}}};
    zoff_plan_opts opts = {1024, (size_t)1 << 30, SIZE_MAX};
    owned_plan made;
    ASSERT_ZOFF_OK(zoff_zero_plan_make(tensors.data(), 1, &opts, &made.plan));
    ASSERT_NO_FATAL_FAILURE(check(tensors, opts, made.plan));
    EXPECT_EQ(17u, made.plan.chunk_count);
}

TEST(Plan, SizesThatOverflowAreRefused)
{
    zoff_plan_opts opts = {1024, SIZE_MAX, SIZE_MAX};
    zoff_plan plan = {};
    zoff_plan_tensor product = {SIZE_MAX / 2, 3, false, {4, 4, 4}};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "parameter 0", zoff_zero_plan_make(&product, 1, &opts, &plan));
    zoff_plan_tensor sum[2] = {{(size_t)1 << 57, 1, false, {}}, {(size_t)1 << 57, 1, false, {}}};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "parameter 1", zoff_zero_plan_make(sum, 2, &opts, &plan));
    EXPECT_EQ(nullptr, plan.pieces);
}
} // namespace
