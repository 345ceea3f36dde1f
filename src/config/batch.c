/* batch.c: solves train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks. The given keys
 * decide the others, by integer division as in DeepSpeed. Afterwards the equation must hold exactly. */
#include "config_priv.h"
#include "try.h"

static uint64_t value_of(const zoff_config_cell *cell)
{
    return cell->kind == ZOFF_CELL_VALUE ? (uint64_t)cell->integer : 0;
}

static void compute(zoff_config_cell *cell, uint64_t value)
{
    cell->kind = ZOFF_CELL_VALUE;
    cell->integer = (int64_t)value;
    cell->number = (double)value;
    cell->is_computed = true;
}

static zoff_status contradiction(const zoff_config_cell *total, const zoff_config_cell *micro, const zoff_config_cell *steps,
                                 unsigned world_size)
{
    return zoff_base_status_fail(
        ZOFF_ERR_INVALID,
        "%s: train_batch_size %llu (%s) != train_micro_batch_size_per_gpu %llu (%s) * gradient_accumulation_steps %llu (%s) * "
        "world size %u (ranks); expected equal sides, all above 0: change one of them, or leave one out and it is computed",
        total->source   ? zoff_config_value_place(total)
        : micro->source ? zoff_config_value_place(micro)
                        : "api",
        (unsigned long long)total->integer, zoff_config_cells_source(total), (unsigned long long)micro->integer,
        zoff_config_cells_source(micro), (unsigned long long)steps->integer, zoff_config_cells_source(steps), world_size);
}

zoff_status zoff_config_batch_solve(zoff_config *config, unsigned world_size)
{
    zoff_config_cell *total = zoff_config_cells_find(config, "train_batch_size");
    zoff_config_cell *micro = zoff_config_cells_find(config, "train_micro_batch_size_per_gpu");
    zoff_config_cell *steps = zoff_config_cells_find(config, "gradient_accumulation_steps");
    uint64_t all = value_of(total), each = value_of(micro), count = value_of(steps);

    if (count == 0 && all && each)
        compute(steps, all / each / world_size);
    else if (count == 0)
        compute(steps, 1);
    if (all == 0 && each == 0)
        return ZOFF_OK; /* the optimizer does not need the batch sizes */
    count = value_of(steps);
    if (each == 0)
        compute(micro, all / world_size / count);
    each = value_of(micro);

    /* The product of three factors below 2^32 may overflow 64 bits. */
    uint64_t product;
    bool too_large = __builtin_mul_overflow(each, count, &product) ||
                     __builtin_mul_overflow(product, (uint64_t)world_size, &product) || product > UINT32_MAX;
    if (all == 0) {
        ZOFF_FAIL_IF(too_large, ZOFF_ERR_INVALID,
                     "%s: train_micro_batch_size_per_gpu %llu * gradient_accumulation_steps %llu (%s) * world size %u (ranks) "
                     "is too large; expected a train_batch_size below 2^32",
                     zoff_config_value_place(micro), (unsigned long long)each, (unsigned long long)count,
                     zoff_config_cells_source(steps), world_size);
        compute(total, product);
    }
    return !too_large && product > 0 && product == value_of(total) ? ZOFF_OK : contradiction(total, micro, steps, world_size);
}
