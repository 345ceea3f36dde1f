// layout_test.cc: the files of all ranks have each element of each state once, wherever the states are.
#include "memory_fault.h"
#include "small_save.h"

#include <algorithm>

using namespace zoff_test;

namespace
{
// How many pieces have each element of a state, by slice and element.
using counts = std::map<std::pair<uint32_t, unsigned>, std::vector<unsigned>>;

class Layout : public testing::TestWithParam<save_shape>
{
  protected:
    Layout() : ranks(GetParam(), states.path) {}

    // Lay out the files of all ranks, and call `look` for each.
    void lay_out(bool skip_frozen, const std::function<void(const small_save &, unsigned)> &look)
    {
        ranks.job.on_each([&](unsigned rank) {
            small_save save(ranks.engine_of(rank), folder.path);
            EXPECT_ZOFF_OK(zoff_engine_stores_drain(ranks.engine_of(rank)));
            EXPECT_ZOFF_OK(zoff_checkpoint_layout_make(&save.s, skip_frozen));
            const std::lock_guard<std::mutex> guard(lock);
            look(save, rank);
        });
    }
    void count(const small_save &save, counts &all)
    {
        for (size_t i = 0; i < save.s.part.table.piece_count; i++) {
            const zoff_archive_piece &p = save.s.part.table.pieces[i];
            const reference::tensor &t = ranks.all.want.tensors[p.param];
            std::vector<unsigned> &of = all[{p.param, p.kind}];
            of.resize(t.total());
            EXPECT_EQ(0u, p.first % ZOFF_ARCHIVE_BLOCK);
            EXPECT_LT(0u, p.count);
            EXPECT_EQ(1u, p.block);
            ASSERT_LT(p.slice, t.slices);
            ASSERT_LE(p.first + p.count, t.count);
            const bool is_weight = p.kind == ZOFF_STATE_WEIGHTS || p.kind == ZOFF_ARCHIVE_UPPER;
            const bool is_half = p.kind == ZOFF_STATE_MASTER && ranks.is_split(p.param);
            EXPECT_EQ(is_weight ? (unsigned)t.dtype : unsigned(is_half ? ZOFF_ARCHIVE_SPLIT : ZOFF_ARCHIVE_F32), p.format);
            for (size_t k = 0; k < p.count; k++)
                of[p.slice * t.count + p.first + k]++;
        }
    }
    void expect_each_once(bool skip_frozen)
    {
        counts all;
        std::vector<unsigned> want;
        lay_out(skip_frozen, [&](const small_save &save, unsigned rank) {
            count(save, all);
            for (size_t i = 0; rank == 0 && i < ranks.all.want.tensors.size(); i++)
                want.push_back(zoff_planning_describe_states(save.s.view.model, i, skip_frozen));
        });
        for (uint32_t i = 0; i < want.size(); i++) {
            want[i] |= ranks.is_split(i) ? 1u << ZOFF_ARCHIVE_UPPER : 0;
            for (unsigned kind = 0; kind < ZOFF_ARCHIVE_PIECE_KINDS; kind++) {
                const size_t total = want[i] >> kind & 1 ? ranks.all.want.tensors[i].total() : 0;
                EXPECT_EQ(std::vector<unsigned>(total, 1), (all[{i, kind}])) << "state " << kind << " of tensor " << i;
            }
        }
    }

    log_catcher log;
    scratch_folder folder, states;
    std::mutex lock;
    save_ranks ranks;
};

INSTANTIATE_TEST_SUITE_P(Of, Layout, testing::ValuesIn(save_shapes()), shape_name);

TEST_P(Layout, EachElementIsInOnePiece)
{
    expect_each_once(false);
}

TEST_P(Layout, WithoutFrozenOnes)
{
    expect_each_once(true);
}

TEST_P(Layout, RegionsArePagesAndPiecesDoNotOverlap)
{
    lay_out(false, [](const small_save &save, unsigned) {
        const zoff_archive_table &t = save.s.part.table;
        std::vector<std::map<uint64_t, uint64_t>> pieces(t.region_count); // begin to end, by region
        uint64_t end = ZOFF_ARCHIVE_PAGE;
        for (size_t i = 0; i < t.region_count; i++) {
            EXPECT_EQ(0u, t.regions[i].offset % ZOFF_ARCHIVE_PAGE);
            EXPECT_EQ(0u, t.regions[i].bytes % ZOFF_ARCHIVE_PAGE);
            EXPECT_EQ(0u, t.regions[i].unit % ZOFF_ARCHIVE_PAGE);
            EXPECT_LE(end, t.regions[i].offset);
            end = t.regions[i].offset + t.regions[i].bytes;
        }
        EXPECT_EQ(end, save.s.part.end);
        for (size_t i = 0; i < t.piece_count; i++) {
            const zoff_archive_piece &p = t.pieces[i];
            EXPECT_EQ(0u, p.at % ZOFF_ARCHIVE_PAD);
            EXPECT_TRUE(pieces[p.region].emplace(p.at, p.at + p.count * zoff_archive_table_element_bytes(p.format)).second);
        }
        for (size_t i = 0; i < t.region_count; i++) {
            uint64_t last = 0;
            for (auto [from, to] : pieces[i]) {
                EXPECT_LE(last, from) << "region " << i;
                last = to;
            }
            EXPECT_LT(0u, last) << "no region is empty";
            EXPECT_LE(last, t.regions[i].bytes);
        }
    });
}

// The guard finds the units of a chunk by this list, so it must have all regions except that of frozen weights.
TEST_P(Layout, SourcesAndUnitsBelongToTheirRegions)
{
    lay_out(false, [](const small_save &save, unsigned) {
        const zoff_saver &s = save.s;
        size_t units = 0;
        EXPECT_EQ(s.part.table.region_count, s.source_count + s.frozen.has);
        for (size_t i = 0; i < s.source_count; i++) {
            const zoff_save_source &source = s.sources[i];
            const zoff_archive_region &r = save.region_of(source);
            EXPECT_EQ(i + 1, s.by_chunk[source.chunk * (ZOFF_STORE_ARRAYS + 1) + source.array]);
            EXPECT_EQ(units, source.first_unit);
            EXPECT_EQ(zoff_archive_table_units(&r), source.unit_count);
            for (size_t k = 0; k < source.unit_count; k++, units++) {
                EXPECT_EQ(i, s.units[units].source);
                EXPECT_EQ(k, s.units[units].number);
                EXPECT_EQ(ZOFF_UNIT_PENDING, s.units[units].state);
            }
            EXPECT_EQ(source.place == ZOFF_SAVE_MEMORY, source.memory && source.array < ZOFF_STORE_ARRAYS) << i;
            if (source.place != ZOFF_SAVE_FILE)
                continue;
            EXPECT_EQ(1u, source.unit_count) << "an array of a file is verified as a whole";
            EXPECT_EQ(source.file.bytes, r.bytes);
            EXPECT_EQ(source.file.begin, source.begin);
            EXPECT_LE(0, source.file.fd);
        }
        EXPECT_EQ(units, s.unit_count);
    });
}

TEST_P(Layout, PlacesAreThoseOfTheShape)
{
    const save_shape &shape = GetParam();
    std::set<zoff_save_place> places;
    bool has_frozen = false;
    lay_out(false, [&](const small_save &save, unsigned) {
        for (size_t i = 0; i < save.s.source_count; i++) {
            places.insert(save.s.sources[i].place);
            EXPECT_EQ(shape.persist, save.s.sources[i].file.stays);
        }
        has_frozen = has_frozen || save.s.frozen.has;
    });
    const bool has_states = shape.optimizer != "SGD";
    const bool is_device = shape.ratio >= 0 && shape.ratio < 1;
    EXPECT_EQ(has_states && !shape.nvme && shape.ratio != 0, places.count(ZOFF_SAVE_MEMORY) == 1);
    EXPECT_EQ(has_states && shape.nvme, places.count(ZOFF_SAVE_FILE) == 1);
    EXPECT_EQ(is_device || shape.weights == "nvme", places.count(ZOFF_SAVE_VISIT) == 1);
    EXPECT_EQ(shape.weights.empty(), has_frozen) << "frozen weights of the engine are in chunks";
}

TEST_P(Layout, FrozenSlicesAreSharedByTheRanks)
{
    std::multiset<std::pair<uint32_t, size_t>> seen;
    std::vector<size_t> by_rank(GetParam().world);
    ranks.job.on_each([&](unsigned rank) {
        const zoff_engine_view v = zoff_engine_rooms_view(ranks.engine_of(rank));
        std::vector<std::pair<uint32_t, size_t>> mine;
        EXPECT_ZOFF_OK(zoff_checkpoint_layout_frozen(
            &v,
            [](void *ctx, uint32_t param, size_t slice) {
                static_cast<std::vector<std::pair<uint32_t, size_t>> *>(ctx)->emplace_back(param, slice);
                return ZOFF_OK;
            },
            &mine));
        const std::lock_guard<std::mutex> guard(lock);
        by_rank[rank] = mine.size();
        seen.insert(mine.begin(), mine.end());
    });
    if (!GetParam().weights.empty()) {
        EXPECT_EQ(0u, seen.size()) << "the engine owns them";
        return;
    }
    EXPECT_EQ((std::multiset<std::pair<uint32_t, size_t>>{{4, 0}, {4, 1}}), seen);
    EXPECT_GE(1u, *std::max_element(by_rank.begin(), by_rank.end()) - *std::min_element(by_rank.begin(), by_rank.end()));
}

TEST_P(Layout, AnErrorOfAVisitEndsIt)
{
    int calls = 0;
    const zoff_engine_view v = zoff_engine_rooms_view(ranks.engine_of(0));
    const zoff_status status = zoff_checkpoint_layout_frozen(
        &v,
        [](void *ctx, uint32_t, size_t) {
            ++*static_cast<int *>(ctx);
            return ZOFF_ERR_IO;
        },
        &calls);
    EXPECT_EQ(GetParam().weights.empty() ? ZOFF_ERR_IO : ZOFF_OK, status);
    EXPECT_EQ(GetParam().weights.empty() ? 1 : 0, calls);
}

TEST(LayoutMemory, WithoutMemory)
{
    log_catcher log;
    scratch_folder folder;
    save_ranks ranks({"host"}, "");
    std::unique_ptr<small_save> save;
    EXPECT_LE(3, fail_each_allocation([&] {
                  const int left = memory_countdown::left;
                  memory_countdown::left = 0; // the file is opened before
                  save = std::make_unique<small_save>(ranks.engine_of(0), folder.path);
                  memory_countdown::left = left;
                  return zoff_checkpoint_layout_make(&save->s, false);
              }));
}
} // namespace
