// source_test.cc: the bytes of a region, read from where they are: equal to zoff_state_read(), damaged ones are found, and
// arrays that were never updated are zero.
#include "aio_fault.h"
#include "small_save.h"

using namespace zoff_test;

namespace
{
// The only place that calls this function of source.c.
zoff_status read_unit(small_save &save, const zoff_save_source &source, size_t unit, char *dst)
{
    zoff_aio *queue;
    uint64_t ticket;
    if (source.place != ZOFF_SAVE_FILE) {
        zoff_checkpoint_source_read(&save.s, &source, unit, dst);
        return ZOFF_OK;
    }
    if (source.file.written) {
        EXPECT_ZOFF_OK(zoff_checkpoint_flights_reader(&save.s.work.readers, source.file.queue, -1, &queue));
        EXPECT_ZOFF_OK(zoff_aio_read(queue, source.file.offset, source.file.written, dst, &ticket));
        const zoff_status status = zoff_aio_wait(queue, ticket);
        if (status < 0)
            return status;
    }
    return zoff_checkpoint_source_check(&source, dst, 1);
}

class Source : public testing::TestWithParam<save_shape>
{
  protected:
    Source() : ranks(GetParam(), states.path) {}

    // Read the regions of all ranks unit by unit, and collect the elements of their pieces by parameter and kind.
    void read_all()
    {
        ranks.job.on_each([&](unsigned rank) {
            zoff_engine *e = ranks.engine_of(rank);
            small_save save(e, folder.path);
            EXPECT_ZOFF_OK(zoff_engine_stores_drain(e));
            EXPECT_ZOFF_OK(zoff_checkpoint_layout_make(&save.s, false));
            for (size_t i = 0; i < save.s.source_count; i++) {
                pages bytes(save.region_of(save.s.sources[i]).bytes);
                read_source(save, save.s.sources[i], e, bytes.data());
                const std::lock_guard<std::mutex> guard(lock);
                collect(save, save.s.sources[i].region, bytes.data());
            }
        });
    }
    void read_source(small_save &save, const zoff_save_source &source, zoff_engine *e, char *dst)
    {
        if (source.place != ZOFF_SAVE_VISIT) {
            for (size_t unit = 0; unit < source.unit_count; unit++)
                EXPECT_ZOFF_OK(read_unit(save, source, unit, dst + unit * save.region_of(source).unit));
            return;
        }
        zoff_pass pass = {};
        zoff_lent_chunk lent;
        pass.states = true;
        pass.weights = source.array == ZOFF_STORE_ARRAYS && save.s.view.lending->store;
        ASSERT_ZOFF_OK(zoff_engine_states_place_borrow(e, &pass, source.chunk, &lent));
        zoff_checkpoint_source_copy(&save.s, &source, lent.memory, 0, save.region_of(source).bytes, dst);
        EXPECT_ZOFF_OK(zoff_engine_states_place_give_back(e, &pass, &lent));
    }
    void collect(const small_save &save, uint32_t region, const char *bytes)
    {
        for (size_t i = 0; i < save.s.part.table.piece_count; i++) {
            const zoff_archive_piece &p = save.s.part.table.pieces[i];
            const reference::tensor &t = ranks.all.want.tensors[p.param];
            const size_t size = zoff_archive_table_element_bytes(p.format);
            std::vector<char> &of = got[{p.param, p.kind}];
            of.resize(t.total() * size);
            if (p.region == region)
                memcpy(of.data() + (p.slice * t.count + p.first) * size, bytes + p.at, p.count * size);
        }
    }
    log_catcher log;
    scratch_folder folder, states;
    std::mutex lock;
    save_ranks ranks;
    std::map<std::pair<uint32_t, unsigned>, std::vector<char>> got;
};

INSTANTIATE_TEST_SUITE_P(Of, Source, testing::ValuesIn(save_shapes()), shape_name);

TEST_P(Source, HasTheStatesOfTheEngine)
{
    ranks.step(1);
    ranks.step(2);
    ASSERT_NO_FATAL_FAILURE(read_all());
    size_t frozen = 0;
    for (const auto &[key, bytes] : got) {
        const bool is_program = key.second == ZOFF_STATE_WEIGHTS && GetParam().weights.empty();
        frozen += is_program;
        if (!is_program) { // frozen.c writes those
            EXPECT_TRUE(ranks.saved(key.first, key.second) == bytes) << "state " << key.second << " of tensor " << key.first;
        }
    }
    EXPECT_LT(frozen, got.size());
}

TEST_P(Source, WithoutAStepToo)
{
    ASSERT_NO_FATAL_FAILURE(read_all());
    for (const auto &[key, bytes] : got) {
        if (key.second == ZOFF_STATE_M || key.second == ZOFF_STATE_V) {
            EXPECT_TRUE(std::vector<char>(bytes.size()) == bytes) << "state " << key.second << " of tensor " << key.first;
        }
        if (key.second == ZOFF_STATE_MASTER || key.second == ZOFF_ARCHIVE_UPPER) {
            EXPECT_TRUE(ranks.saved(key.first, key.second) == bytes) << "master of tensor " << key.first;
        }
    }
}

/* ---- state files ---- */

class SourceFile : public testing::Test
{
  protected:
    SourceFile() : ranks({"nvme", 1, 1, true}, states.path) {}
    zoff_engine *e() { return ranks.engine_of(0); }
    void lay_out()
    {
        ASSERT_ZOFF_OK(zoff_engine_stores_drain(e()));
        save = std::make_unique<small_save>(e(), folder.path);
        ASSERT_ZOFF_OK(zoff_checkpoint_layout_make(&save->s, false));
    }
    // The first array of a kind.
    const zoff_save_source *find(unsigned array) const
    {
        for (size_t i = 0; i < save->s.source_count; i++) {
            if (save->s.sources[i].array == array && save->s.sources[i].place == ZOFF_SAVE_FILE)
                return &save->s.sources[i];
        }
        return nullptr;
    }
    zoff_status read(const zoff_save_source &source, std::vector<char> *out = nullptr)
    {
        pages bytes(source.file.bytes);
        const zoff_status status = read_unit(*save, source, 0, bytes.data());
        if (out)
            out->assign(bytes.data(), bytes.data() + source.file.bytes);
        return status;
    }
    log_catcher log;
    scratch_folder folder, states;
    save_ranks ranks;
    std::unique_ptr<small_save> save;
};

TEST_F(SourceFile, BytesThatChangedAreFound)
{
    ranks.step(1);
    ASSERT_NO_FATAL_FAILURE(lay_out());
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
        const zoff_save_source *source = find(array);
        ASSERT_NE(nullptr, source);
        ASSERT_TRUE(source->file.has_checksum);
        ASSERT_ZOFF_OK(read(*source));
        flip_byte(source->file.fd, source->file.offset + source->file.bytes - 1);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "checksum does not hold at offset " + std::to_string(source->file.offset),
                          read(*source));
        flip_byte(source->file.fd, source->file.offset + source->file.bytes - 1);
        EXPECT_ZOFF_OK(read(*source));
    }
}

TEST_F(SourceFile, ASaveOfDamagedStatesFails)
{
    ranks.step(1);
    ASSERT_NO_FATAL_FAILURE(lay_out());
    const zoff_store_source file = find(1)->file;
    save.reset();
    flip_byte(file.fd, file.offset + 5);
    const scratch_folder other;
    // A clone is not read. Then the checkpoint has the damage, and its reader finds it.
    if (zoff_checkpoint_save(e(), other.path.c_str(), nullptr) < 0) {
        EXPECT_NE(nullptr, strstr(zoff_last_error(), ("offset " + std::to_string(file.offset)).c_str()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "", zoff_checkpoint_load(e(), other.path.c_str(), nullptr));
    } else {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "is damaged", zoff_checkpoint_load(e(), other.path.c_str(), nullptr));
        return;
    }
    flip_byte(file.fd, file.offset + 5);
    EXPECT_ZOFF_OK(zoff_checkpoint_save(e(), other.path.c_str(), nullptr));
}

TEST_F(SourceFile, FreshArraysAreZeroBehindWhatWasWritten)
{
    ASSERT_NO_FATAL_FAILURE(lay_out());
    const zoff_save_source *moments = find(1);
    ASSERT_NE(nullptr, moments);
    EXPECT_EQ(0u, moments->file.written);
    std::vector<char> bytes;
    ASSERT_ZOFF_OK(read(*moments, &bytes));
    EXPECT_TRUE(std::vector<char>(bytes.size()) == bytes);
    // A part that was written.
    zoff_save_source source = *find(0);
    ASSERT_LT((size_t)ZOFF_ARCHIVE_PAGE, source.file.bytes);
    source.file.written = ZOFF_ARCHIVE_PAGE;
    source.file.has_checksum = false;
    std::vector<char> all;
    ASSERT_ZOFF_OK(read(*find(0), &all));
    ASSERT_ZOFF_OK(read(source, &bytes));
    std::fill(all.begin() + ZOFF_ARCHIVE_PAGE, all.end(), (char)0);
    EXPECT_TRUE(all == bytes);
}

TEST_F(SourceFile, AFileThatEndsOrFailsIsNamed)
{
    ranks.step(1);
    ASSERT_NO_FATAL_FAILURE(lay_out());
    zoff_save_source source = *find(0);
    source.file.offset = (uint64_t)1 << 40;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "bytes at offset 1099511627776 of ", read(source));
}

// Some file systems share blocks. Then the copy has the bytes of the array.
TEST_F(SourceFile, AClonedRegionHasTheBytes)
{
    ranks.step(1);
    ASSERT_NO_FATAL_FAILURE(lay_out());
    ASSERT_ZOFF_OK(zoff_archive_part_reserve(&save->s.part));
    zoff_save_source source = *find(0);
    std::vector<char> bytes;
    ASSERT_ZOFF_OK(read(source, &bytes));
    if (zoff_checkpoint_source_clone(&save->s, &source)) {
        EXPECT_TRUE(save->in_file(save->s.units[source.first_unit]) == bytes);
    }
    source.file.has_checksum = false;
    EXPECT_FALSE(zoff_checkpoint_source_clone(&save->s, &source)) << "its bytes must be read for a checksum";
}

TEST(SourceMemory, IsNeverCloned)
{
    log_catcher log;
    const scratch_folder folder;
    save_ranks ranks({"host"}, "");
    small_save save(ranks.engine_of(0), folder.path);
    ASSERT_ZOFF_OK(zoff_checkpoint_layout_make(&save.s, false));
    ASSERT_LT(0u, save.s.source_count);
    EXPECT_FALSE(zoff_checkpoint_source_clone(&save.s, &save.s.sources[0]));
}
} // namespace
