// swap_slot_test.cc: the slot of a chunk, which slot another chunk gets, and the lists of slots.
#include "zoff_test.h"

extern "C" {
#include "swap_priv.h"
}

namespace
{
// A ring of three slots, and chunk 9 with a home behind it.
struct ring {
    ring()
    {
        s.slots = slots;
        s.ring_count = 3;
        s.home_count = 1;
        s.places = places;
        slots[3].is_home = true;
        slots[3].chunk = 9;
        places[9].home = &slots[3];
    }
    void set(unsigned slot, zoff_slot_state state, size_t chunk, uint64_t used = 0)
    {
        slots[slot].state = state;
        slots[slot].chunk = chunk;
        places[chunk].ring = &slots[slot];
        slots[slot].used = used;
    }
    zoff_swap_slot slots[4] = {};
    zoff_swap_place places[10] = {};
    zoff_swap_store s = {};
};

std::vector<size_t> chunks_of(const zoff_swap_list &list)
{
    std::vector<size_t> chunks;
    for (const zoff_swap_slot *slot = list.oldest; slot; slot = slot->newer)
        chunks.push_back(slot->chunk);
    std::vector<size_t> backwards;
    for (const zoff_swap_slot *slot = list.newest; slot; slot = slot->older)
        backwards.insert(backwards.begin(), slot->chunk);
    EXPECT_EQ(chunks, backwards);
    EXPECT_EQ(chunks.size(), list.count);
    return chunks;
}
} // namespace

TEST(SwapSlot, AChunkIsFoundInItsSlotOrItsHome)
{
    ring r;
    r.set(0, ZOFF_SLOT_FREE, 4);
    r.set(1, ZOFF_SLOT_WRITING, 5);
    EXPECT_EQ(nullptr, zoff_offload_swap_slot_find(&r.s, 4)) << "a free slot has had it, and has it no more";
    EXPECT_EQ(&r.slots[1], zoff_offload_swap_slot_find(&r.s, 5));
    EXPECT_EQ(&r.slots[3], zoff_offload_swap_slot_find(&r.s, 9));
    EXPECT_EQ(nullptr, zoff_offload_swap_slot_find(&r.s, 6));
}

TEST(SwapSlot, AFreeSlotIsTakenBeforeTheOneThatWasKeptForLongest)
{
    ring r;
    r.set(0, ZOFF_SLOT_KEPT, 1, 7);
    r.set(1, ZOFF_SLOT_KEPT, 2, 5);
    r.set(2, ZOFF_SLOT_FREE, 3);
    EXPECT_EQ(&r.slots[2], zoff_offload_swap_slot_take(&r.s));
    zoff_offload_swap_slot_assign(&r.s, &r.slots[2], 8);
    EXPECT_EQ(ZOFF_SLOT_LENT, r.slots[2].state);
    EXPECT_EQ(&r.slots[1], zoff_offload_swap_slot_take(&r.s));
    EXPECT_EQ(ZOFF_SLOT_FREE, r.slots[1].state);
    zoff_offload_swap_slot_assign(&r.s, &r.slots[1], 6);
    EXPECT_EQ(&r.slots[0], zoff_offload_swap_slot_take(&r.s));
    zoff_offload_swap_slot_assign(&r.s, &r.slots[0], 7);
    EXPECT_EQ(nullptr, zoff_offload_swap_slot_take(&r.s)) << "all are lent";
}

TEST(SwapSlot, ListsKeepTheirOrder)
{
    ring r;
    zoff_swap_list list = {};
    for (unsigned i = 0; i < 3; i++) {
        r.slots[i].chunk = i;
        zoff_offload_swap_slot_append(&list, &r.slots[i]);
    }
    EXPECT_EQ((std::vector<size_t>{0, 1, 2}), chunks_of(list));
    zoff_offload_swap_slot_take_out(&list, &r.slots[1]);
    EXPECT_EQ((std::vector<size_t>{0, 2}), chunks_of(list));
    zoff_offload_swap_slot_append(&list, &r.slots[1]);
    zoff_offload_swap_slot_take_out(&list, &r.slots[0]);
    EXPECT_EQ((std::vector<size_t>{2, 1}), chunks_of(list));
    zoff_offload_swap_slot_take_out(&list, &r.slots[1]);
    zoff_offload_swap_slot_take_out(&list, &r.slots[2]);
    EXPECT_EQ((std::vector<size_t>{}), chunks_of(list));
}

TEST(SwapSlot, SlotsNewerThanTheFileAreNotFreed)
{
    ring r;
    zoff_offload_swap_slot_assign(&r.s, &r.slots[0], 1);
    zoff_offload_swap_slot_leave(&r.s, &r.slots[0]);
    EXPECT_EQ(ZOFF_SLOT_FREE, r.slots[0].state);
    zoff_offload_swap_slot_assign(&r.s, &r.slots[1], 2);
    r.slots[1].changed = 4;
    zoff_offload_swap_slot_leave(&r.s, &r.slots[1]);
    EXPECT_TRUE(zoff_offload_swap_slot_is_put_off(&r.slots[1]));
    EXPECT_EQ((std::vector<size_t>{2}), chunks_of(r.s.put_off));
    zoff_offload_swap_slot_discard(&r.s, &r.slots[1]);
    EXPECT_EQ((std::vector<size_t>{}), chunks_of(r.s.put_off));
    EXPECT_EQ(0u, r.slots[1].changed);
}
