/* SPDX-License-Identifier: Apache-2.0 */
/* planning.h: the memory that an engine needs, before anything is allocated. Seal allocates from the same plan that
 * zoff_engine_plan() shows. */
#ifndef ZOFF_PLANNING_H
#define ZOFF_PLANNING_H

#include "archive.h"
#include "lending.h"
#include "transfer.h"
#include "zoff_model.h"

#include <zoff/engine.h>

/* Memory for copies of a save: by default, of a part of an array in DRAM, and the fewest copies. An array in a state file is
 * copied as a whole. */
enum { ZOFF_SAVE_COPIES = 64 << 20, ZOFF_SAVE_UNIT = 4 << 20, ZOFF_SAVE_COPIES_LEAST = 3 };

/* The most elements and bytes of states in a chunk, and the most elements in a bucket. */
typedef struct zoff_planning_limits {
    uint64_t chunk_bytes, chunk_elements, bucket_elements;
    bool of_files; /* the limits of chunks are those of states that are to be opened again */
} zoff_planning_limits;

/* Inputs of a plan. The pointers are the engine's. */
typedef struct zoff_planning {
    const zoff_model *model;
    const zoff_transfer *transfer;
    const zoff_lending *lending;
    const zoff_comm *comm;
    unsigned part; /* number of the part: see zoff_store_owner */
    const zoff_config_values *values;
    zoff_tier tier;
    uint64_t host_bytes;        /* the most DRAM for states; 0: no limit */
    const char *host_bytes_key; /* key that set the limit, for messages */
    uint64_t chunk_elements;    /* most elements of a chunk; 0: the largest slice */
    unsigned threads;
    const char *const *folders; /* folders for files of states */
    size_t folder_count;
    const char *const *weight_folders; /* folders for files of weights */
    size_t weight_folder_count;
    const zoff_planning_limits *limits; /* limits that all ranks have agreed on; NULL: this rank's own */
} zoff_planning;

/* budget.c: the plan, and whether it fits into memory. With the NVMe tier: how many chunks stay in DRAM. */
size_t zoff_planning_budget_states(const zoff_planning *in, const zoff_plan *plan);
size_t zoff_planning_budget_weights(const zoff_planning *in, const zoff_plan *plan);
/* Buckets that may be updated ahead of a step at a time, and second contents of chunks in DRAM (zoff.speculation_memory). */
typedef struct zoff_planning_places {
    size_t buckets, spares;
} zoff_planning_places;
zoff_planning_places zoff_planning_budget_places(const zoff_planning *in, const zoff_plan *plan);
/* The limits of this rank: memory budgets and state files of others may allow less. */
zoff_planning_limits zoff_planning_budget_limits(const zoff_planning *in);
zoff_status zoff_planning_budget_plan(const zoff_planning *in, zoff_plan *out_plan, zoff_plan_info *out_info);
zoff_status zoff_planning_budget_check(const zoff_planning *in, const zoff_plan_info *info);
uint64_t zoff_planning_budget_need(const zoff_plan_info *info); /* bytes of DRAM, of all kinds */

/* Checksums of the list of parameters with their optimizers, and of its cut into chunks. Files of an earlier process
 * fit if both are the same. */
zoff_status zoff_planning_layout_checksums(const zoff_planning *in, const zoff_plan *plan, uint64_t *out_layout,
                                           uint64_t *out_cut);

/* describe.c: the zoff_archive_format of an array of a chunk, where elements of a parameter lie in it. */
unsigned zoff_planning_describe_format(const zoff_model *m, const zoff_model_param *p, unsigned array);
/* The states of a parameter in a checkpoint: bits of zoff_state_kind; 0 for one that is tied to another. */
unsigned zoff_planning_describe_states(const zoff_model *m, size_t param, bool skip_frozen);
/* Fill in the parameters of a manifest. Call zoff_archive_manifest_free() also after an error. */
zoff_status zoff_planning_describe_params(const zoff_model *m, bool skip_frozen, zoff_archive_manifest *out);
/* Make the description that stands beside the state files of this rank. @owns out: zoff_base_mem_free() */
zoff_status zoff_planning_describe_files(const zoff_model *m, const zoff_plan *plan, char **out, size_t *out_bytes);

#endif
