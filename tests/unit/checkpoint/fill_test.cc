// fill_test.cc: the states of a chunk from a checkpoint, into their final place or through a buffer; frozen weights; and what
// happens to damaged bytes.
#include "memory_fault.h"
#include "small_save.h"

using namespace zoff_test;

namespace
{
// The only places that call these functions of fill.c.
zoff_status open_filler(const zoff_match *match, zoff_filler *out)
{
    zoff_checkpoint_fill_open(match, out);
    return ZOFF_OK;
}

zoff_status fill_chunk(zoff_filler *f, size_t chunk, zoff_chunk_memory memory)
{
    zoff_status status = zoff_checkpoint_fill_begin(f, chunk, memory);
    if (status == ZOFF_OK)
        status = zoff_checkpoint_fill_masters(f, chunk);
    if (status == ZOFF_OK)
        status = zoff_checkpoint_fill_finish(f, chunk);
    if (status < 0)
        zoff_checkpoint_fill_stop(f);
    return status;
}

enum { SAME_CHUNK = 2048, OTHER_CHUNK = 3000 };

// An engine that has saved, and another one that a test fills from its checkpoint.
class Fill : public testing::Test
{
  protected:
    Fill() : from({"host"}, "", SAME_CHUNK)
    {
        from.step(1);
        from.step(2);
        EXPECT_ZOFF_OK(zoff_checkpoint_save(from.engine_of(0), folder.path.c_str(), nullptr));
        a = open_archive(folder.path);
    }
    ~Fill() override { close(); }
    void close()
    {
        if (is_open)
            zoff_checkpoint_fill_close(&filler);
        zoff_checkpoint_match_close(&match);
        is_open = false;
    }
    // `add`: another parameter, which the checkpoint lacks.
    void open(unsigned chunk, bool add = false, const char *master = "fp32")
    {
        close();
        to = std::make_unique<trainer>(7);
        add_awkward(*to, ZOFF_BF16, ZOFF_BF16);
        if (add)
            to->add(100, 1, ZOFF_BF16, ZOFF_BF16);
        e = seal_engine(*to, config_text("", 1, std::string(", \"zoff\": {\"master\": \"") + master + "\"}"), chunk);
        view = zoff_engine_rooms_view(e.get());
        ASSERT_ZOFF_OK(zoff_checkpoint_match_open(&view, a.get(), "param11", &match));
        ASSERT_ZOFF_OK(open_filler(&match, &filler));
        is_open = true;
    }
    // Fill every chunk in memory of the test, and compare.
    void expect_filled()
    {
        for (size_t chunk = 0; chunk < view.plan->chunk_count; chunk++) {
            const zoff_plan_chunk &c = view.plan->chunks[chunk];
            pages memory(c.bytes);
            ASSERT_ZOFF_OK(fill_chunk(&filler, chunk, {memory.data(), nullptr}));
            for (size_t i = c.first_piece; i < c.first_piece + c.piece_count; i++)
                expect_piece(view.plan->pieces[i], c, memory.data());
        }
    }
    void expect_piece(const zoff_plan_piece &p, const zoff_plan_chunk &c, const char *states)
    {
        const reference::tensor &t = to->tensors[p.param];
        for (unsigned array = 0; array < ZOFF_STORE_ARRAYS && p.param < 11; array++) {
            const std::vector<char> want = from.state(p.param, array);
            const char *at = states + c.starts[array] + p.offsets[array];
            const std::vector<char> numbers =
                array == ZOFF_STREAM_MASTER ? joined(p, at) : std::vector<char>(at, at + p.count * 4);
            EXPECT_EQ(0, memcmp(want.data() + (p.slice * t.count + p.first) * 4, numbers.data(), p.count * 4))
                << "state " << array << " of tensor " << p.param << " from " << p.first << " on";
        }
    }
    // Masters, which may be split.
    std::vector<char> joined(const zoff_plan_piece &p, const char *stored)
    {
        std::vector<char> numbers(p.count * 4);
        zoff_cast_piece cast = {};
        cast.count = p.count;
        cast.dst = numbers.data();
        cast.dst_dtype = cast.src_dtype = ZOFF_F32;
        cast.src = stored;
        if (zoff_model_masters_of(view.model, &view.model->params[p.param])->is_split) {
            cast.src = zoff_model_params_value(view.model, &p, nullptr);
            cast.src_dtype = ZOFF_BF16;
            cast.low = (uint16_t *)(void *)stored;
        }
        zoff_adam_cast_run(1, &cast, 1);
        return numbers;
    }
    // A byte of the file with an element of a state.
    uint64_t byte_of(uint32_t param, unsigned kind, size_t element) const
    {
        const zoff_archive_ref *ref = zoff_archive_find(a.get(), param, kind, 0, element);
        const size_t size = zoff_archive_table_element_bytes(ref->piece.format);
        return a->tables[ref->file].regions[ref->piece.region].offset + ref->piece.at + (element - ref->piece.first) * size;
    }
    size_t chunk_of(uint32_t param, size_t element) const
    {
        return view.plan->pieces[zoff_zero_plan_find(view.plan, param, 0, element)].bucket;
    }

    log_catcher log;
    scratch_folder folder;
    save_ranks from;
    archive a;
    std::unique_ptr<trainer> to;
    engine e;
    zoff_engine_view view = {};
    zoff_match match = {};
    zoff_filler filler = {};
    bool is_open = false;
};

TEST_F(Fill, IntoTheFinalPlace)
{
    open(SAME_CHUNK);
    expect_filled();
}

TEST_F(Fill, ThroughABuffer)
{
    open(OTHER_CHUNK);
    expect_filled();
}

// Masters in two halves, in the checkpoint, in the engine or in both.
TEST_F(Fill, MastersOfEitherForm)
{
    for (const bool splits : {false, true}) {
        scratch_folder other;
        save_shape shape = {"host"};
        shape.splits = splits;
        save_ranks source(shape, "", SAME_CHUNK);
        source.step(1);
        source.step(2);
        ASSERT_ZOFF_OK(zoff_checkpoint_save(source.engine_of(0), other.path.c_str(), nullptr));
        close();
        a = open_archive(other.path);
        EXPECT_EQ(splits, zoff_archive_is_split(a.get(), 0));
        for (const char *master : {"fp32", "split"}) {
            for (const unsigned chunk : {(unsigned)SAME_CHUNK, (unsigned)OTHER_CHUNK}) {
                SCOPED_TRACE(std::string(master) + (splits ? " from halves" : " from numbers"));
                open(chunk, false, master);
                expect_filled();
            }
        }
        close();
    }
}

TEST_F(Fill, InAnyOrderOfChunks)
{
    open(1024);
    for (size_t chunk = view.plan->chunk_count; chunk-- > 0;) {
        const zoff_plan_chunk &c = view.plan->chunks[chunk];
        pages memory(c.bytes);
        ASSERT_ZOFF_OK(fill_chunk(&filler, chunk, {memory.data(), nullptr}));
        expect_piece(view.plan->pieces[c.first_piece], c, memory.data());
    }
}

// Memory behind the arrays of a chunk may belong to another chunk.
TEST_F(Fill, NothingBehindTheChunkIsWritten)
{
    for (unsigned chunk_elements : {(unsigned)SAME_CHUNK, (unsigned)OTHER_CHUNK}) {
        open(chunk_elements);
        for (size_t chunk = 0; chunk < view.plan->chunk_count; chunk++) {
            const size_t bytes = view.plan->chunks[chunk].bytes;
            pages memory(bytes + ZOFF_ARCHIVE_PAGE);
            ASSERT_ZOFF_OK(fill_chunk(&filler, chunk, {memory.data(), nullptr}));
            for (size_t i = bytes; i < bytes + ZOFF_ARCHIVE_PAGE; i++)
                ASSERT_EQ(0x5a, memory.data()[i]) << "chunk " << chunk;
        }
    }
}

TEST_F(Fill, AChunkWithAMissingParameterIsNotWhole)
{
    open(SAME_CHUNK, true);
    size_t partial = 0;
    for (size_t chunk = 0; chunk < view.plan->chunk_count; chunk++) {
        bool has_new = false;
        const zoff_plan_chunk &c = view.plan->chunks[chunk];
        for (size_t i = c.first_piece; i < c.first_piece + c.piece_count; i++)
            has_new = has_new || view.plan->pieces[i].param == 11;
        EXPECT_EQ(!has_new, zoff_checkpoint_fill_is_whole(&filler, chunk));
        partial += has_new;
    }
    EXPECT_EQ(1u, partial);
    expect_filled();
}

TEST_F(Fill, MissingParametersStayAsTheyWere)
{
    open(SAME_CHUNK, true);
    const zoff_plan_piece &p = view.plan->pieces[zoff_zero_plan_find(view.plan, 11, 0, 0)];
    const zoff_plan_chunk &c = view.plan->chunks[p.bucket];
    pages memory(c.bytes);
    ASSERT_ZOFF_OK(fill_chunk(&filler, p.bucket, {memory.data(), nullptr}));
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
        for (size_t i = 0; i < p.count * 4; i++)
            ASSERT_EQ(0x5a, memory.data()[c.starts[array] + p.offsets[array] + i]);
    }
}

TEST_F(Fill, DamagedBytesAreNamed)
{
    const uint64_t byte = byte_of(8, ZOFF_STATE_V, 9000);
    flip_byte(path_of(a.get(), 0), byte);
    for (unsigned chunk_elements : {(unsigned)SAME_CHUNK, (unsigned)OTHER_CHUNK}) {
        SCOPED_TRACE(chunk_elements);
        open(chunk_elements);
        const size_t damaged = chunk_of(8, 9000);
        pages memory(view.plan->most.chunk_bytes);
        for (int again = 0; again < 2; again++) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "'" + path_of(a.get(), 0) + "' is damaged in the bytes from",
                              fill_chunk(&filler, damaged, {memory.data(), nullptr}));
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "'param8'")) << zoff_last_error();
        }
        EXPECT_ZOFF_OK(fill_chunk(&filler, 0, {memory.data(), nullptr})) << "others are whole";
    }
}

TEST_F(Fill, FrozenWeightsAreVerifiedFirst)
{
    open(SAME_CHUNK);
    const std::vector<char> want = from.state(4, ZOFF_STATE_WEIGHTS);
    auto have = [&] {
        std::vector<char> bytes(want.size());
        for (size_t k = 0; k < to->tensors[4].total(); k++)
            trainer::put(bytes.data(), ZOFF_BF16, k, trainer::get(to->value(4), ZOFF_BF16, to->place(4, k)));
        return bytes;
    };
    const std::vector<char> before = have();
    ASSERT_FALSE(want == before);
    ASSERT_ZOFF_OK(zoff_checkpoint_fill_frozen(&filler, true));
    EXPECT_TRUE(before == have()) << "verify_only writes nothing";
    flip_byte(path_of(a.get(), 0), byte_of(4, ZOFF_STATE_WEIGHTS, 499));
    open(SAME_CHUNK);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "weights of 'param4'", zoff_checkpoint_fill_frozen(&filler, true));
    flip_byte(path_of(a.get(), 0), byte_of(4, ZOFF_STATE_WEIGHTS, 499));
    ASSERT_ZOFF_OK(zoff_checkpoint_fill_frozen(&filler, false));
    EXPECT_TRUE(want == have());
}

TEST_F(Fill, WithoutMemory)
{
    open(OTHER_CHUNK);
    pages memory(view.plan->most.chunk_bytes);
    EXPECT_LE(1, fail_each_allocation([&] { return zoff_checkpoint_fill_frozen(&filler, true); }));
}

/* ---- the engine's weights ---- */

// Weights that are their own masters, and frozen ones, go into the memory of weights.
TEST(FillWeights, AreThoseOfTheCheckpoint)
{
    log_catcher log;
    const scratch_folder folder, states, other_states;
    const save_shape shape = {"owned", 1, 3, false, false, "cpu", -1, "SGD", ZOFF_F32};
    save_ranks from(shape, states.path), to(shape, other_states.path, OTHER_CHUNK);
    from.step(1);
    ASSERT_ZOFF_OK(zoff_checkpoint_save(from.engine_of(0), folder.path.c_str(), nullptr));
    const archive a = open_archive(folder.path);
    const zoff_engine_view view = zoff_engine_rooms_view(to.engine_of(0));
    zoff_match match = {};
    zoff_filler filler = {};
    ASSERT_ZOFF_OK(zoff_checkpoint_match_open(&view, a.get(), nullptr, &match));
    ASSERT_ZOFF_OK(open_filler(&match, &filler));
    size_t compared = 0;
    for (size_t chunk = 0; chunk < view.plan->chunk_count; chunk++) {
        const zoff_plan_chunk &c = view.plan->chunks[chunk];
        pages states_there(c.bytes), weights(c.weight_bytes);
        ASSERT_ZOFF_OK(fill_chunk(&filler, chunk, {states_there.data(), weights.data()}));
        for (size_t i = c.first_piece; i < c.first_piece + c.piece_count; i++) {
            const zoff_plan_piece &p = view.plan->pieces[i];
            const reference::tensor &t = from.all.want.tensors[p.param];
            const std::vector<char> want = from.state(p.param, t.frozen ? ZOFF_STATE_WEIGHTS : ZOFF_STATE_MASTER);
            const char *value = zoff_model_params_value(view.model, &p, weights.data());
            EXPECT_EQ(0, memcmp(want.data() + (p.slice * t.count + p.first) * 4, value, p.count * 4)) << "tensor " << p.param;
            compared += p.count;
        }
    }
    EXPECT_LT(40000u, compared);
    zoff_checkpoint_fill_close(&filler);
    zoff_checkpoint_match_close(&match);
}
} // namespace
