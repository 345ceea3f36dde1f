/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint.h: save the states of an engine in a folder, load them into any engine of the same model, and read or write such
 * folders without an engine.
 *
 *      zoff_checkpoint_save(engine, "checkpoints", NULL);          waits until the checkpoint is complete
 *
 *      zoff_checkpoint_begin(engine, "checkpoints", NULL, &save);  the same beside further steps
 *      ... steps; zoff_checkpoint_poll(save) after each ...
 *      zoff_checkpoint_wait(save);
 *
 *      zoff_checkpoint_load(engine, "checkpoints", NULL);          the newest complete checkpoint, or one of its folders
 *
 *  A checkpoint has masters, moments, frozen weights, the number of updates, the loss scale, and the program's own bytes. Any
 *  number of ranks, ZeRO stage, tier, chunk size and list of paths loads it. docs/CHECKPOINT.md describes the files.
 *
 *  A checkpoint is a folder in `folder`. It appears under its name once it is complete. Then the file `latest` names it. A save
 *  that ends early, also by kill -9 or a power cut, leaves earlier checkpoints as they were, also one of the same name.
 *
 *  Each engine that saves into a folder needs a label of its own, such as one for each pipeline stage. Engines that make one
 *  checkpoint together give the same name and the same number of engines. Without labels the engines replace each other's
 *  checkpoints, or remove them with `keep`, and a load finds the newest one of any of them.
 */
#ifndef ZOFF_CHECKPOINT_H
#define ZOFF_CHECKPOINT_H

#include <zoff/state.h>
#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A save that takes place beside steps. */
typedef struct zoff_checkpoint zoff_checkpoint;

/** Options of a save or a load. All zero: defaults. */
typedef struct zoff_checkpoint_opts {
    size_t struct_size; /**< set by ZOFF_CHECKPOINT_OPTS_INIT */
    const zoff_checkpoint_data
        *data; /**< data_count entries of the program's own bytes. A load ignores other entries of the checkpoint */
    size_t data_count;
    const char *name;    /**< name of the checkpoint's folder. NULL: a save takes "step-" and ten digits, a load the newest. An
                              engine that saves alone with a label puts the label and a "." before it */
    const char *label;   /**< names an engine where several save into one folder, such as "tp0.pp1": letters, digits, ".", "_",
                              "-"; at most 200. A load needs the same. NULL: the only one */
    unsigned engines;    /**< save: engines that save into this checkpoint, each with its label; it is complete when all have.
                              0 means 1 */
    unsigned keep;       /**< save: complete checkpoints that stay in the folder, the new one included; 0: all. Pinned ones
                              stay beside them */
    uint64_t memory;     /**< every save: most DRAM in bytes for states on their way to the disk. Beside steps it also has the
                              copies of states that a step changes; beyond it updates wait for the disk. 0: 64 MiB; at least
                              three units, see docs/MEMORY.md */
    bool skip_frozen;    /**< save: leave frozen weights out; a load leaves them as they are */
    bool refuse_if_busy; /**< save and begin: return ERR_STATE while an earlier save of this engine is under way. false: wait
                              until it has ended */
    const char *allow; /**< load: names of parameters that may be missing, extra or different, as patterns separated by spaces,
                            "*" for any text */
    bool *data_found;  /**< load: data_count flags, set by a load that succeeds: whether the checkpoint has these bytes for
                            this rank. An imported checkpoint has none. Bytes that it lacks stay as they are. NULL: all of
                            `data` must be there */
    bool pinned;       /**< save: pin the checkpoint as zoff_checkpoint_pin() does. One of several engines is enough */
    bool weights_only; /**< load: take masters and frozen weights, and begin the rest as a new engine does: moments and number
                            of updates at zero. For another optimizer, or to fine-tune; see zoff_checkpoint_load() */
} zoff_checkpoint_opts;
#define ZOFF_CHECKPOINT_OPTS_INIT ZOFF_SIZED(zoff_checkpoint_opts)

/** Save the states of the last step. Collective over the ranks, which all see `folder`.
 *  @param opts NULL: defaults  @blocks until files and folders are durable
 *  @return ERR_STATE between the micro-steps of an update, as zoff_params_pull(); ERR_NO_SPACE before anything is written, or
 *  ERR_IO; ERR_INVALID for a folder that not all ranks share; ERR_COMM names ranks that did not call. A disk that completes
 *  nothing for a quarter of timeout_seconds is ERR_IO. ERR_STATE also says that another program has saved under this name, with
 *  a save that began later. After an error the checkpoints before this one are as they were, and training can go on */
ZOFF_API zoff_status zoff_checkpoint_save(zoff_engine *e, const char *folder, const zoff_checkpoint_opts *opts);

/** Begin to save the states of the last step, while further steps run. The engine saves or copies a state before a step
 *  overwrites it. Collective over the ranks.
 *
 *  Until the save has ended, do not change weights of the program other than by steps. The save reads fp32 weights, which are
 *  their own masters, 16-bit ones that are half of them (zoff.master), and frozen ones. After a change the checkpoint would
 * have the states of no step. zoff.check_use notices a change of trained weights: the save fails with ERR_STATE. Calls that
 * change states outside of a step wait until all states are saved. Destroying the engine gives the save up.
 *  @param opts as zoff_checkpoint_save()
 *  @owns caller; zoff_checkpoint_wait()  @blocks briefly; for states that stay on a device until they are copied
 *  @return as zoff_checkpoint_save() */
ZOFF_API zoff_status zoff_checkpoint_begin(zoff_engine *e, const char *folder, const zoff_checkpoint_opts *opts,
                                           zoff_checkpoint **out);

/** Ask whether a save has ended, and complete it once all ranks have written their part. Collective over the ranks: call it
 *  after the same steps on each.
 *  @blocks for one short message of every other rank
 *  @return PENDING: under way; OK: complete; an error: not saved. zoff_checkpoint_wait() returns the same again */
ZOFF_API zoff_status zoff_checkpoint_poll(zoff_checkpoint *checkpoint);

/** Wait until a save has ended, and free it, also after an error. NULL returns OK. Collective over the ranks.
 *  @blocks until files and folders are durable  @return as zoff_checkpoint_save() */
ZOFF_API zoff_status zoff_checkpoint_wait(zoff_checkpoint *checkpoint);

/** Load a checkpoint: masters, moments, frozen weights, number of updates, loss scale and the program's bytes. Then the weights
 *  are those of the masters. Collective over the ranks.
 *
 *  Tied parameters share one set of states, so the checkpoint needs it under one of their names only. A parameter that `allow`
 *  names takes what the checkpoint has, and one warning lists such parameters. The rest stays as it is: in a new engine as it
 *  was registered, with moments of zero. A parameter that was frozen and is trained now takes the frozen weight as its master;
 *  one that was trained and is frozen now takes the rounded master as its weight. If the number of rows (the first of `dims`)
 *  or slices differs, the first ones are taken. If other dims have as many elements, they are taken in their order. If the
 *  optimizer differs, the moments that both have are taken.
 *
 *  With `weights_only` it does not matter which optimizer has saved, and which parameters were frozen or have moments in
 *  another format. Moments begin as in a new engine, and the number of updates at 0, so bias correction and a schedule begin
 *  again. The loss scale and rates that the program has set stay. The program's bytes are taken if `data` asks for them. Names
 *  and shapes count as ever.
 *
 *  Names, shapes, states and files are compared before anything changes; an error then leaves the engine as it was. An error
 *  later, of the data, leaves the engine without states: only zoff_checkpoint_load() and zoff_engine_destroy() are legal. With
 *  zoff.persist it goes back to its last commit, unless it owns frozen weights, which are in no commit.
 *  @param folder a folder of checkpoints, of which that of opts->name is loaded, or the newest complete one; or one checkpoint
 *  @blocks yes
 *  @return ERR_INVALID for a model that differs, with the first names; ERR_CORRUPT with file and place. ERR_IO where there is
 *  no complete checkpoint, or one that may be the newest cannot be read. ERR_UNSUPPORTED for a checkpoint of a newer version,
 *  with what it needs */
ZOFF_API zoff_status zoff_checkpoint_load(zoff_engine *e, const char *folder, const zoff_checkpoint_opts *opts);

/* ---- files, without an engine ---- */

/** Pin a checkpoint, such as the best one, so that no save with `keep` counts or removes it. A file in its folder says so, and
 *  goes with a copy. To keep the newest 3 and the best, save with keep = 3, pin the best, and then unpin the one before: a
 *  program that ends between the two leaves both. A save under the name of a pinned checkpoint replaces it, and warns unless
 *  the new one is pinned, too. Call it on one rank.
 *  @param folder as zoff_checkpoint_load(): one checkpoint, or a folder of checkpoints with the newest  @param label of one of
 *  its engines; NULL: the only one
 *  @threads any  @blocks until the folder is durable
 *  @return OK, also if it was pinned; ERR_IO, also where there is no complete checkpoint; ERR_CORRUPT; ERR_UNSUPPORTED */
ZOFF_API zoff_status zoff_checkpoint_pin(const char *folder, const char *label);
/** Unpin a checkpoint. It stays until a save with `keep` finds enough newer ones.
 *  @param folder as zoff_checkpoint_pin()  @threads any  @blocks until the folder is durable
 *  @return OK, also if it was not pinned; an error as zoff_checkpoint_pin() */
ZOFF_API zoff_status zoff_checkpoint_unpin(const char *folder, const char *label);

/** A checkpoint that is open for reading. */
typedef struct zoff_checkpoint_reader zoff_checkpoint_reader;
/** A checkpoint that is being written. */
typedef struct zoff_checkpoint_writer zoff_checkpoint_writer;

/** Facts of a checkpoint. */
typedef struct zoff_checkpoint_info {
    size_t struct_size;   /**< set by ZOFF_CHECKPOINT_INFO_INIT */
    const char *folder;   /**< the checkpoint's own folder */
    const char *id;       /**< 16 hexadecimal digits, new for each save */
    const char *label;    /**< label of the engine; "" for the only one */
    int64_t t;            /**< updates made */
    uint64_t bytes;       /**< bytes of all files */
    size_t param_count;   /**< parameters, tied ones included */
    unsigned ranks;       /**< ranks that have written the checkpoint */
    bool has_loss_scaler; /**< loss_scaler is set */
    zoff_loss_scaler loss_scaler;
    size_t data_count; /**< bytes of the program: entries of zoff_checkpoint_reader_data_at() */
    bool pinned;       /**< zoff_checkpoint_opts.keep of later saves does not remove the checkpoint */
} zoff_checkpoint_info;
#define ZOFF_CHECKPOINT_INFO_INIT ZOFF_SIZED(zoff_checkpoint_info)

/** One parameter of a checkpoint. */
typedef struct zoff_checkpoint_param {
    size_t struct_size;     /**< set by ZOFF_CHECKPOINT_PARAM_INIT */
    const char *name;       /**< any bytes, 0-terminated; at most 4095 */
    const char *slice_name; /**< as zoff_param_desc.slice_name; NULL: none */
    const char *tied_to;    /**< the parameter that has the states; NULL: this one */
    const size_t *dims;     /**< shape of a slice; their product is `count` */
    size_t dim_count;       /**< number of dims; a writer takes 0 as one dimension of `count` */
    size_t count, slices;   /**< elements of a slice, and slices */
    zoff_dtype dtype;       /**< type of the weights */
    unsigned states;        /**< bits: k for state k of zoff_state_kind. Frozen parameters have ZOFF_STATE_WEIGHTS alone */
    const char *rule;       /**< "muon": m is that of its matrices; NULL: its optimizer updates each element by itself */
} zoff_checkpoint_param;
#define ZOFF_CHECKPOINT_PARAM_INIT ZOFF_SIZED(zoff_checkpoint_param)

/** Open a checkpoint, and check manifest, tables, and the sizes of its files.
 *  @param folder as zoff_checkpoint_load()  @param label of the engine; NULL: the only one
 *  @owns caller; zoff_checkpoint_reader_close()
 *  @return ERR_IO, ERR_CORRUPT with file and place, or ERR_UNSUPPORTED with what a newer version needs */
ZOFF_API zoff_status zoff_checkpoint_reader_open(const char *folder, const char *label, zoff_checkpoint_reader **out);
/** Close a reader. NULL is allowed. */
ZOFF_API void zoff_checkpoint_reader_close(zoff_checkpoint_reader *r);
/** Read the facts of a checkpoint. @owns texts are the reader's */
ZOFF_API zoff_status zoff_checkpoint_reader_info(const zoff_checkpoint_reader *r, zoff_checkpoint_info *out);
/** Read the description of parameter `index`. @owns texts and dims are the reader's */
ZOFF_API zoff_status zoff_checkpoint_reader_param(const zoff_checkpoint_reader *r, size_t index, zoff_checkpoint_param *out);
/** Find a parameter by its name.  @return ERR_INVALID: there is none */
ZOFF_API zoff_status zoff_checkpoint_reader_find(const zoff_checkpoint_reader *r, const char *name, size_t *out_index);
/** Read how a state is stored: "fp32", "fp16", "bf16", "split" (a bf16 weight and 16 more bits), "q8" (8 bits an element), or
 *  "mixed" where the ranks have saved several of them.
 *  @param out static text  @return ERR_INVALID: there is no such state */
ZOFF_API zoff_status zoff_checkpoint_reader_format(const zoff_checkpoint_reader *r, size_t index, zoff_state_kind kind,
                                                   const char **out);
/** Read elements of a state. A tied parameter has those of its owner. The slices of a parameter count as one array, one after
 *  the other. Bytes are compared with their checksums. If ranges of one state follow one another, each byte is read once.
 *  @blocks for the disk  @return ERR_CORRUPT with file and place */
ZOFF_API zoff_status zoff_checkpoint_reader_read(zoff_checkpoint_reader *r, size_t index, zoff_state_kind kind, size_t first,
                                                 size_t count, float *dst);
/** Read the program's bytes.  @param rank whose bytes to read, if each rank has its own
 *  @return OK; *out_count (may be NULL) is their number, also where `dst` has less room; ERR_INVALID: there are none */
ZOFF_API zoff_status zoff_checkpoint_reader_data(zoff_checkpoint_reader *r, const char *name, unsigned rank, void *dst,
                                                 size_t room, size_t *out_count);
/** Describe the program's bytes number `index`, in the order of ranks: name, count and each_rank.
 *  @param out bytes becomes NULL  @param out_rank may be NULL: the rank that has saved them; 0 for those of all ranks
 *  @owns the name is the reader's  @return ERR_INVALID: there are only zoff_checkpoint_info.data_count */
ZOFF_API zoff_status zoff_checkpoint_reader_data_at(const zoff_checkpoint_reader *r, size_t index, zoff_checkpoint_data *out,
                                                    unsigned *out_rank);
/** Copy the manifest, which is JSON.
 *  @return OK; *out_bytes (may be NULL) is the length of the whole text without the final 0, also where `dst` is shorter */
ZOFF_API zoff_status zoff_checkpoint_reader_manifest(const zoff_checkpoint_reader *r, char *dst, size_t dst_bytes,
                                                     size_t *out_bytes);
/** Compare every byte of the checkpoint with its checksum.
 *  @param progress NULL: none  @blocks for all of the data
 *  @return ERR_CORRUPT with the file, the place, and the parameters there; ERR_CANCELED */
ZOFF_API zoff_status zoff_checkpoint_reader_verify(zoff_checkpoint_reader *r, zoff_progress_fn progress, void *ctx);

/** List the checkpoints of a folder, the newest first, and behind them the hidden folders of saves. Files are not changed.
 *
 *  Writes one JSON object: {"folder", "latest", "checkpoints": [{"name", "complete", "latest", "pinned", "time", "bytes",
 * "step", "engines": [{"label", "ranks"}], "problem", "removed_by"}]}. Without the file `latest`, or with a damaged one,
 * "latest" is null. "time" is in seconds since 1970, of the begin of a save. A manifest that cannot be read leaves out its
 * engine; without any there is no "step". An entry that is not complete has a "problem". "removed_by" says what removes an
 * entry that nobody needs. Each character of a text stands for one byte. A load takes the first complete checkpoint of its
 * label.
 *  @param dst may be NULL if dst_bytes is 0  @param out_bytes may be NULL: length of the whole text without the final 0, also
 *  where `dst` is shorter
 *  @blocks for one look at each checkpoint  @return ERR_IO: the folder cannot be read; ERR_INVALID: it is a checkpoint itself
 */
ZOFF_API zoff_status zoff_checkpoint_list(const char *folder, char *dst, size_t dst_bytes, size_t *out_bytes);

/** Begin to write a checkpoint.
 *  @param folder folder of checkpoints; made if it does not exist
 *  @param opts name, label, engines, keep and pinned; NULL: defaults  @param params `count` descriptions, copied
 *  @param scaler NULL: none
 *  @owns caller; zoff_checkpoint_writer_close()
 *  @return ERR_INVALID for descriptions that contradict themselves or each other, or if `folder` has a checkpoint of this name
 *  and label already: only saves of an engine replace one; ERR_NO_SPACE; ERR_IO */
ZOFF_API zoff_status zoff_checkpoint_writer_open(const char *folder, const zoff_checkpoint_opts *opts, int64_t t,
                                                 const zoff_checkpoint_param *params, size_t count,
                                                 const zoff_loss_scaler *scaler, zoff_checkpoint_writer **out);
/** Write elements of a state, as zoff_checkpoint_reader_read() reads them. Each kind of state is written in the order of
 *  parameters and elements. Elements that are left out are zero, and whole units of 4 MiB of them take no space on the disk.
 *  @blocks for the disk  @return ERR_INVALID for elements before those of an earlier call; ERR_IO, ERR_NO_SPACE: then the
 *  checkpoint cannot be committed any more */
ZOFF_API zoff_status zoff_checkpoint_writer_write(zoff_checkpoint_writer *w, size_t index, zoff_state_kind kind, size_t first,
                                                  size_t count, const float *src);
/** Write bytes of the program. May be tried again after ERR_IO or ERR_NO_SPACE.
 *  @return ERR_INVALID for a name that is used already, or has more than 255 bytes */
ZOFF_API zoff_status zoff_checkpoint_writer_data(zoff_checkpoint_writer *w, const char *name, const void *bytes, size_t count);
/** Make the checkpoint complete and durable. After an error it is not, and may be tried again. Nothing can be written after the
 *  first call.
 *  @blocks for the disk  @return ERR_STATE after zoff_checkpoint_writer_write() or a flush has failed at the disk: close the
 *  writer and begin again */
ZOFF_API zoff_status zoff_checkpoint_writer_commit(zoff_checkpoint_writer *w);
/** Close a writer; without a commit before, remove what was written. NULL is allowed. */
ZOFF_API void zoff_checkpoint_writer_close(zoff_checkpoint_writer *w);

/* ---- state files of zoff.persist, without an engine ---- */

/** Read all state files (zoff-r0.states and so on; zoff-p0-r0.states of engines with a norm_comm) of some folders and compare
 * every array with its checksum, while no engine uses them. The files are not changed.
 *
 *  Writes one JSON object: {"files": [{"path", "rank", "ranks", "file", "files", "layout", "commits": [{"generation", "t",
 *  "last", "arrays", "without_checksum", "wrong"}], "complaints": [text]}], "bytes", "wrong"}. A file has the last commit and,
 *  until the next step begins, the one before it, of which `last` is false. The next step overwrites that one, so arrays of it
 *  that differ are neither damage nor a complaint. An array that cannot be read is wrong, too. A file has at most 16
 *  complaints. Each character of a path stands for one byte.
 *  @param folders `count` folders, as in nvme_path  @param progress NULL: none
 *  @param dst may be NULL if dst_bytes is 0  @param out_bytes may be NULL: length of the whole text without the final 0, also
 *  where `dst` is shorter; 4 KiB for each file are enough for most  @param out_wrong may be NULL: arrays of last commits that
 * are wrong, and files without a whole commit or description; 0: all is well
 *  @blocks for all of the data, read once for each commit
 *  @return OK, also where arrays are wrong; ERR_STATE for a file that an engine has open; ERR_IO for a folder without state
 *  files; ERR_UNSUPPORTED for files of another version; ERR_CANCELED */
ZOFF_API zoff_status zoff_state_files_scrub(const char *const *folders, size_t count, zoff_progress_fn progress, void *ctx,
                                            char *dst, size_t dst_bytes, size_t *out_bytes, uint64_t *out_wrong);

/** Make one checkpoint of the state files of all ranks of a run, while no engine uses them. Any number of ranks, stage, tier
 * and list of paths loads it: start the new run with empty folders, and call zoff_checkpoint_load(). The files are not changed.
 *
 *  It has masters, moments, number of updates, loss scale, and the bytes of zoff_persist_data(), of the newest commit that all
 *  files have. Frozen weights are not in state files, so a load leaves them as they are. Where the file system can, the
 *  checkpoint shares disk blocks with the state files. Every array is read and compared with its checksum.
 *  @param folders `count` folders, which together have all files of all ranks: those in nvme_path of each rank. State files of
 * several parts (zoff_engine_opts.norm_comm) must be in folders of their own
 *  @param checkpoints folder of checkpoints; made if it does not exist
 *  @param opts name, label, engines, keep and pinned; NULL: defaults  @param progress NULL: none
 *  @blocks for all of the data
 *  @return ERR_INVALID for a rank or file that is missing, files of different runs, or if `checkpoints` has a checkpoint of
 *  this name and label already. ERR_STATE for a file that an engine has open; ERR_CORRUPT with the file that is damaged.
 *  ERR_IO, also for a file without its description (the same name and ".layout"), or ERR_NO_SPACE. ERR_UNSUPPORTED for
 *  another version; ERR_CANCELED. After an error earlier checkpoints are as they were */
ZOFF_API zoff_status zoff_state_files_checkpoint(const char *const *folders, size_t count, const char *checkpoints,
                                                 const zoff_checkpoint_opts *opts, zoff_progress_fn progress, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
