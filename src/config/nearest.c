/* SPDX-License-Identifier: Apache-2.0 */
/* nearest.c: finds the key or word that a misspelt one probably means, by edit distance and a table of synonyms. */
#include "config_priv.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 64 };

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: Levenshtein's distance plus swaps of adjacent letters. Three rows of the table are enough. */
unsigned zoff_config_nearest_distance(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > LONGEST || b_length > LONGEST)
        return LONGEST + 1;
    unsigned rows[3][LONGEST + 1];
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_length; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]))
                row[j] = least(row[j], above2[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

/* Names that other programs use for a key. A row with a section applies only there ("" is the top level); rows without one
 * apply everywhere. */
static const struct {
    const char *words, *section, *path;
} SYNONYMS[] = {
    {"learning_rate|learningrate|base_lr|initial_lr|peak_lr|max_learning_rate", NULL, "optimizer.params.lr"},
    {"epsilon|adam_epsilon|opt_eps|optimizer_eps", NULL, "optimizer.params.eps"},
    {"beta|beta1|beta2|adam_beta1|adam_beta2|adam_betas", NULL, "optimizer.params.betas"},
    {"wd|decay|weightdecay|l2|l2_penalty", NULL, "optimizer.params.weight_decay"},
    {"adamw_mode|decoupled|decoupled_weight_decay|decouple_weight_decay", NULL, "optimizer.params.adam_w_mode"},
    {"correct_bias|bias_corrected", NULL, "optimizer.params.bias_correction"},
    {"name|kind|class|optimizer_type|optim", "optimizer", "optimizer.type"},
    {"optim|optimizer_type|optimizer_name|opt", "", "optimizer.type"},
    {"name|kind|class|scheduler_type|lr_scheduler_type", "scheduler", "scheduler.type"},
    {"lr_scheduler|lr_schedule|scheduler_type|lr_scheduler_type", "", "scheduler.type"},
    {"warmup|warmup_steps|warmup_iters|num_warmup_steps|warmup_updates|warmup_iterations", NULL,
     "scheduler.params.warmup_num_steps"},
    {"total_steps|max_steps|num_training_steps|total_updates|num_steps|train_steps|max_iters|t_max", NULL,
     "scheduler.params.total_num_steps"},
    {"min_lr|warmup_init_lr", NULL, "scheduler.params.warmup_min_lr"},
    {"max_lr", NULL, "scheduler.params.warmup_max_lr"},
    {"batch_size|global_batch_size|total_batch_size|batch", NULL, "train_batch_size"},
    {"micro_batch|micro_batch_size|microbatch|microbatch_size|per_device_train_batch_size|per_gpu_batch_size|"
     "batch_size_per_gpu|train_micro_batch_size",
     NULL, "train_micro_batch_size_per_gpu"},
    {"accumulation_steps|accumulate_grad_batches|grad_accum|grad_accum_steps|gradient_accumulation|grad_accumulation_steps|"
     "accum",
     NULL, "gradient_accumulation_steps"},
    {"grad_clip|clip_grad|clip_grad_norm|grad_clipping|clip_norm|clip|max_norm|max_grad_norm|gradient_clip|gradient_clip_val",
     NULL, "gradient_clipping"},
    {"log_interval|log_every|print_every|logging_steps|log_steps", NULL, "steps_per_print"},
    {"zero_stage|zero|zero_level", NULL, "zero_optimization.stage"},
    {"bucket_size|allreduce_bucket_size", NULL, "zero_optimization.reduce_bucket_size"},
    {"chunk_size|group_size|subgroup_size", NULL, "zero_optimization.sub_group_size"},
    {"path|folder|dir|directory|nvme_dir|nvme_folder|swap_path|swap_folder|nvme", "zero_optimization.offload_param",
     "zero_optimization.offload_param.nvme_path"},
    {"path|folder|dir|directory|nvme_dir|nvme_folder|swap_path|swap_folder|nvme|offload_dir|offload_path", NULL,
     "zero_optimization.offload_optimizer.nvme_path"},
    {"offload|offload_optimizer_device|optimizer_offload|offload_device|tier|state_tier", NULL,
     "zero_optimization.offload_optimizer.device"},
    {"offload_param_device|param_offload|offload_params", NULL, "zero_optimization.offload_param.device"},
    {"slots|buffers|num_buffers", NULL, "zero_optimization.offload_optimizer.buffer_count"},
    {"num_threads|nthreads|n_threads|thread|omp_num_threads", NULL, "zoff.threads"},
    {"memory|host_mem|dram|cpu_memory|memory_budget|budget|max_memory", NULL, "zoff.host_memory"},
    {"persistent|resume|keep_files", NULL, "zoff.persist"},
    {"odirect|o_direct|direct", NULL, "zoff.direct_io"},
    {"checksum|checksums|verify_checksums", NULL, "zoff.verify"},
    {"half|mixed_precision|use_fp16|half_precision", NULL, "fp16.enabled"},
    {"use_bf16|brain_float", NULL, "bf16.enabled"},
    {"dynamic_loss_scale|static_loss_scale|scale", "fp16", "fp16.loss_scale"},
    {"initial_loss_scale|init_scale|init_loss_scale", NULL, "fp16.initial_scale_power"},
    {"iodepth|io_depth|depth", "aio", "aio.queue_depth"},
    {"bs|blocksize|block_bytes", "aio", "aio.block_size"},
};

static const char *synonym(const char *section, const char *key)
{
    for (size_t i = 0; i < sizeof SYNONYMS / sizeof SYNONYMS[0]; i++) {
        const bool here = !SYNONYMS[i].section || strcmp(SYNONYMS[i].section, section) == 0;
        if (here && zoff_config_schema_in_list(SYNONYMS[i].words, key, NULL, NULL))
            return SYNONYMS[i].path;
    }
    return NULL;
}

/* The largest distance that still counts as close: a third of the letters, at least 1. */
static unsigned tolerance(const char *word)
{
    size_t length = strlen(word);
    return length < 6 ? 1 : (unsigned)(length / 3);
}

static const char *last_word(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* A refused key is never suggested. */
static bool may_be_named(const zoff_config_key *row)
{
    return zoff_config_schema_target(row)->class_ != ZOFF_CLASS_REFUSED;
}

/* Look for a synonym first, then for a close key in the same section, then for an almost equal key in another section. */
const char *zoff_config_nearest_key(const char *section, const char *key)
{
    size_t count, section_length = strlen(section), key_bytes = strlen(key);
    const char *meant = synonym(section, key);
    if (meant || key_bytes > LONGEST)
        return meant;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    const char *here = NULL, *there = NULL;
    unsigned here_best = tolerance(key), there_best = 1;
    for (size_t i = 0; i < count; i++) {
        const char *path = table[i].path, *word = last_word(path);
        bool sibling =
            (size_t)(word - path) == section_length + (section_length > 0) && strncmp(path, section, section_length) == 0;
        const size_t bytes = strlen(word), gap = bytes > key_bytes ? bytes - key_bytes : key_bytes - bytes;
        if (gap > (sibling ? here_best : there_best) || !may_be_named(&table[i]))
            continue;
        unsigned distance = zoff_config_nearest_distance(key, word);
        if (sibling && distance <= here_best && (!here || distance < here_best)) {
            here = path;
            here_best = distance;
        } else if (!sibling && distance <= there_best && (!there || distance < there_best)) {
            there = path;
            there_best = distance;
        }
    }
    /* A closer match in another section wins: "lr" at the top level is more likely optimizer.params.lr than a misspelt key. */
    return here && !(there && there_best < here_best) ? here : there;
}

bool zoff_config_nearest_is_stray(const char *key)
{
    size_t count;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    bool resembles = strchr(key, '.') || zoff_config_nearest_key("", key);
    for (size_t i = 0; i < count && !resembles; i++)
        resembles = !may_be_named(&table[i]) && zoff_config_nearest_distance(key, last_word(table[i].path)) <= tolerance(key);
    return !resembles;
}

void zoff_config_nearest_choice(const char *list, const char *word, char *dst, size_t dst_bytes)
{
    unsigned best = tolerance(word) + 1;
    dst[0] = 0;
    if (strlen(word) > LONGEST)
        return;
    while (*list) {
        char choice[LONGEST];
        size_t bytes = strcspn(list, "|");
        snprintf(choice, sizeof choice, "%.*s", (int)bytes, list);
        unsigned distance = zoff_config_nearest_distance(word, choice);
        if (distance < best) {
            best = distance;
            snprintf(dst, dst_bytes, "%s", choice);
        }
        list += bytes + (list[bytes] == '|');
    }
}
