// SPDX-License-Identifier: Apache-2.0
//! Declarations of zoff, a library that keeps the optimizer states of a training run in DRAM or on NVMe and steps them there.
//!
//! Written by bindings/make.py from share/zoff/api.json. Needs Rust 1.63 and no other crate. A struct by `Default` has its
//! `struct_size`, and everything else is zero, which is the default of each field. Enumerations are integers, because a later
//! version of the library may have more of their values. A handle is used by one thread at a time.
#![allow(non_camel_case_types, rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]

use std::marker::{PhantomData, PhantomPinned};
use std::os::raw::{c_char, c_int, c_uint, c_void};

/// The default stream of a device, in every call that takes a stream; cudaStreamLegacy of CUDA.
pub const ZOFF_STREAM_DEFAULT: *mut c_void = 1 as *mut c_void;
/// Any rank, in zoff_comm_transport.receive().
pub const ZOFF_COMM_ANY_RANK: c_uint = 4294967295;
/// As `grad` of zoff_param_bind(): the parameter has no gradient buffer from now on, as if it had been registered without.
pub const ZOFF_NO_GRAD: *mut c_void = 1 as *mut c_void;

pub const ZOFF_VERSION_MAJOR: c_int = 0;

pub const ZOFF_VERSION_MINOR: c_int = 1;

pub const ZOFF_VERSION_PATCH: c_int = 0;
/// The value that zoff_version() of this release returns.
pub const ZOFF_VERSION_NUMBER: c_uint = 100;
/// "Off", where 0 means "the default": do not clip (zoff_step_args.clip_norm), do not limit the time (timeout_seconds). The configuration's gradient_clipping understands it, too.
pub const ZOFF_OFF: f64 = -1.0;
/// In a number of zoff_optimizer_hyper, keep what the group has. zoff_engine_set_group() keeps the number of the configuration, or of the last call that has set it. In zoff_step_args.hyper it is the number that the step would use without `hyper`, with the schedule. Ranks compare the numbers that result.
///
/// The call zoff_optimizer_hyper_init(h, ZOFF_OPTIMIZER_KEEP) makes all fields so. With lr set in it, each group that it serves has another rate, and all else as before. No field has ZOFF_KEEP in its range. It is no NaN, so a number that a trainer has computed wrongly is refused.
pub const ZOFF_KEEP: f64 = -1e+300;
/// Version of the structs below. zoff passes it to zoff_plugin_init().
pub const ZOFF_PLUGIN_ABI: c_int = 1;

/// Whether to bypass the page cache.
pub type zoff_aio_direct = c_int;
/// O_DIRECT where the file system supports it; otherwise buffered, with one warning
pub const ZOFF_DIRECT_AUTO: zoff_aio_direct = 0;
/// O_DIRECT or an error
pub const ZOFF_DIRECT_REQUIRE: zoff_aio_direct = 1;
/// through the page cache
pub const ZOFF_DIRECT_OFF: zoff_aio_direct = 2;
/// the program has moved the weights: `value` has those of the old buffer, bit by bit. Nothing is copied, and the old buffer may be gone, unless zoff_checkpoint_begin() still saves it
pub const ZOFF_BIND_MOVED: c_uint = 1;

/// A state of a parameter.
pub type zoff_state_kind = c_int;
/// fp32 weights; for an fp32 parameter the weights themselves
pub const ZOFF_STATE_MASTER: zoff_state_kind = 0;
/// first moment: Adam, Lion, SGD with momentum
pub const ZOFF_STATE_M: zoff_state_kind = 1;
/// second moment: Adam; sum of squares: Adagrad
pub const ZOFF_STATE_V: zoff_state_kind = 2;
/// weights of a frozen parameter; in checkpoints only
pub const ZOFF_STATE_WEIGHTS: zoff_state_kind = 3;

/// The result of a call: ZOFF_OK, ZOFF_PENDING, or an error, which is negative.
pub type zoff_status = c_int;
/// done
pub const ZOFF_OK: zoff_status = 0;
/// not finished yet
pub const ZOFF_PENDING: zoff_status = 1;
/// an argument or a configuration is wrong
pub const ZOFF_ERR_INVALID: zoff_status = -1;
/// called at the wrong time
pub const ZOFF_ERR_STATE: zoff_status = -2;
/// memory or memory budget exhausted
pub const ZOFF_ERR_NO_MEMORY: zoff_status = -3;
/// not on this build or machine
pub const ZOFF_ERR_UNSUPPORTED: zoff_status = -4;
/// storage failed
pub const ZOFF_ERR_IO: zoff_status = -5;
/// storage is full
pub const ZOFF_ERR_NO_SPACE: zoff_status = -6;
/// stored data is not what was written
pub const ZOFF_ERR_CORRUPT: zoff_status = -7;
/// accelerator failed
pub const ZOFF_ERR_DEVICE: zoff_status = -8;
/// a peer failed or timed out
pub const ZOFF_ERR_COMM: zoff_status = -9;
/// gradients are not finite too often
pub const ZOFF_ERR_OVERFLOW: zoff_status = -10;
/// the program canceled it
pub const ZOFF_ERR_CANCELED: zoff_status = -11;

/// Severity of a log line.
pub type zoff_log_level = c_int;

pub const ZOFF_LOG_ERROR: zoff_log_level = 0;

pub const ZOFF_LOG_WARN: zoff_log_level = 1;

pub const ZOFF_LOG_INFO: zoff_log_level = 2;

pub const ZOFF_LOG_DEBUG: zoff_log_level = 3;

pub const ZOFF_LOG_TRACE: zoff_log_level = 4;
/// set the gradients to zero once they are used, also when the step is skipped
pub const ZOFF_STEP_ZERO_GRADS: c_uint = 1;

/// State of the weights and optimizer states when a call on a step returns.
pub type zoff_outcome = c_int;
/// the state before the step
pub const ZOFF_OUTCOME_BEFORE: zoff_outcome = 0;
/// the step is complete
pub const ZOFF_OUTCOME_AFTER: zoff_outcome = 1;
/// the step failed half way. zoff_step_retry() finishes it; with zoff.persist zoff_grads_drop() undoes it
pub const ZOFF_OUTCOME_TORN: zoff_outcome = 2;

/// Element type. ZOFF_DTYPE_DEFAULT is fp32 for weights, and the type of the weights for gradients.
pub type zoff_dtype = c_int;

pub const ZOFF_DTYPE_DEFAULT: zoff_dtype = 0;

pub const ZOFF_F32: zoff_dtype = 1;

pub const ZOFF_F16: zoff_dtype = 2;

pub const ZOFF_BF16: zoff_dtype = 3;

/// Where optimizer states are between steps.
pub type zoff_tier = c_int;
/// the tier of the configuration; DRAM without one
pub const ZOFF_TIER_AUTO: zoff_tier = 0;
/// DRAM
pub const ZOFF_TIER_HOST: zoff_tier = 1;
/// files under nvme_path, streamed through a DRAM budget
pub const ZOFF_TIER_NVME: zoff_tier = 2;

/// The update rule. See zoff_optimizer_step() for the formulas.
pub type zoff_optimizer = c_int;
/// the rule of the group, with each field that is no number: see ZOFF_KEEP
pub const ZOFF_OPTIMIZER_KEEP: zoff_optimizer = -1;
/// Adam and AdamW; states m and v
pub const ZOFF_OPTIMIZER_ADAM: zoff_optimizer = 0;
/// state v: the sum of squares
pub const ZOFF_OPTIMIZER_ADAGRAD: zoff_optimizer = 1;
/// state m
pub const ZOFF_OPTIMIZER_LION: zoff_optimizer = 2;
/// state m if there is momentum, otherwise no state
pub const ZOFF_OPTIMIZER_SGD: zoff_optimizer = 3;
/// Muon; state m of a matrix. Tensors that are no matrices get AdamW, with states m and v
pub const ZOFF_OPTIMIZER_MUON: zoff_optimizer = 4;

/// How weight decay enters Adam. Adagrad and SGD always add it to the gradient; Lion never does.
pub type zoff_decay = c_int;
/// AdamW: p -= lr * weight_decay * p
pub const ZOFF_DECAY_DECOUPLED: zoff_decay = 0;
/// Adam: g += weight_decay * p
pub const ZOFF_DECAY_L2: zoff_decay = 1;

/// How Muon orthogonalizes. Both methods compute the same function with other roundings.
pub type zoff_muon_method = c_int;
/// over the matrix's Gram matrix where one side is at least twice the other; else standard
pub const ZOFF_MUON_GRAM: zoff_muon_method = 0;
/// over the matrix itself
pub const ZOFF_MUON_STANDARD: zoff_muon_method = 1;

/// The factor of Muon's learning rate, for a matrix of r rows and c columns.
pub type zoff_muon_scale = c_int;
/// sqrt(max(1, r / c))
pub const ZOFF_MUON_SCALE_ORIGINAL: zoff_muon_scale = 0;
/// 0.2 * sqrt(max(r, c)): updates as large as those of AdamW
pub const ZOFF_MUON_SCALE_MATCH_RMS_ADAMW: zoff_muon_scale = 1;
/// sqrt(max(r, c))
pub const ZOFF_MUON_SCALE_SPECTRAL: zoff_muon_scale = 2;
/// sqrt(r / c)
pub const ZOFF_MUON_SCALE_UNIT_RMS_NORM: zoff_muon_scale = 3;

/// The polynomials of Muon's iterations.
pub type zoff_muon_coefficients = c_int;
/// one for all iterations (Jordan et al. 2024)
pub const ZOFF_MUON_SIMPLE: zoff_muon_coefficients = 0;
/// five, repeated (Cesista et al. 2025)
pub const ZOFF_MUON_QUINTIC: zoff_muon_coefficients = 1;
/// eight, of which the last is repeated (Amsel et al. 2025)
pub const ZOFF_MUON_POLAR_EXPRESS: zoff_muon_coefficients = 2;
/// five, of which the last is repeated (Grishina et al. 2025)
pub const ZOFF_MUON_CANS: zoff_muon_coefficients = 3;
/// ten, of which the last is repeated (DeepSeek-V4)
pub const ZOFF_MUON_DEEPSEEKV4: zoff_muon_coefficients = 4;
/// Adam, also Muon's AdamW: do not divide the moments by 1 - beta^t (bias_correction false in DeepSpeed)
pub const ZOFF_HYPER_NO_BIAS_CORRECTION: u64 = 1;

/// Index of a parameter in its engine: 0, 1, 2, ... in order of zoff_engine_add_param().
pub type zoff_param = u32;

/// Report progress of a long call, and decide whether it goes on.
///
/// Threads: the one that made the call
///
/// Return: false: end the call with ERR_CANCELED
pub type zoff_progress_fn = Option<unsafe extern "C" fn(what: *const c_char, done: u64, total: u64, ctx: *mut c_void) -> bool>;

/// Receive one log line.
///
/// Threads: any thread that is inside a zoff call
pub type zoff_log_fn = Option<unsafe extern "C" fn(level: zoff_log_level, room: *const c_char, line: *const c_char, ctx: *mut c_void)>;

/// Type of zoff_plugin_init(), the one function that a plug-in exports.
///
/// Return: 0, or -1
pub type zoff_plugin_init_fn = Option<unsafe extern "C" fn(abi: c_uint, host: *const zoff_plugin_host, out: *mut zoff_plugin) -> c_int>;

/// A save that takes place beside steps.
#[repr(C)]
pub struct zoff_checkpoint {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A checkpoint that is open for reading.
#[repr(C)]
pub struct zoff_checkpoint_reader {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A checkpoint that is being written.
#[repr(C)]
pub struct zoff_checkpoint_writer {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// An optimizer: parameters, their states, the step.
#[repr(C)]
pub struct zoff_engine {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A parsed configuration.
#[repr(C)]
pub struct zoff_config {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// The device that holds weights and gradients.
#[repr(C)]
pub struct zoff_accel {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A communicator: the ranks that train together.
#[repr(C)]
pub struct zoff_comm {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// An asynchronous queue on one file.
#[repr(C)]
pub struct zoff_aio {
    _data: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

/// Facts and counters of a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_accel_info {
    /// set by ZOFF_ACCEL_INFO_INIT
    pub struct_size: usize,
    /// static text
    pub backend: *const c_char,
    /// name of the device; valid until it is closed
    pub name: *const c_char,
    /// index, as passed to zoff_accel_open()
    pub index: c_int,
    /// host node that the device is attached to; -1: none, or unknown
    pub numa_node: c_int,
    /// device memory
    pub memory_bytes: u64,
    /// host memory pinned now
    pub pinned_bytes: u64,
    /// host memory that the system refused to pin, in all
    pub pin_refused_bytes: u64,
    /// bytes copied through another pinned buffer because their own memory could not be pinned
    pub bounced_bytes: u64,
    /// copies from or to memory that is not pinned: always 0
    pub pageable_copies: u64,
    /// device memory that engines hold now
    pub allocated_bytes: u64,
}
impl Default for zoff_accel_info {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Options of a queue. All zero: defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_aio_opts {
    /// set by ZOFF_AIO_OPTS_INIT
    pub struct_size: usize,
    /// "io_uring"; "threads": pread and pwrite by up to 8 threads; "posix": by the caller; NULL or "auto": the first of these that works
    pub backend: *const c_char,
    /// a request is split into pieces of this size; 0: 2 MiB; at most 1 GiB
    pub block_bytes: usize,
    /// most pieces in flight; 0: 32
    pub depth: c_uint,
    /// default AUTO
    pub direct: zoff_aio_direct,
    /// open for writing, too
    pub writable: bool,
    /// create the file if it does not exist (mode 0600); needs writable
    pub create: bool,
}
impl Default for zoff_aio_opts {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Facts and counters of a queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_aio_info {
    /// set by ZOFF_AIO_INFO_INIT
    pub struct_size: usize,
    /// "io_uring", "threads" or "posix"; static text
    pub backend: *const c_char,
    /// O_DIRECT is in use
    pub direct: bool,
    /// the kernel has pinned the memory given to zoff_aio_register()
    pub registered: bool,
    /// bytes to which memory, offset and length of a request are aligned if it needs no copy
    pub alignment: usize,
    /// bytes read from the file since open
    pub read_bytes: u64,
    /// bytes written to the file since open
    pub write_bytes: u64,
    /// bytes of both that were copied through aligned memory of the queue
    pub bounce_bytes: u64,
    /// pieces that the kernel moved partly, so that the rest was submitted again
    pub resumed_pieces: u64,
}
impl Default for zoff_aio_info {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Options of a measurement. All zero: defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_aio_tune_opts {
    /// set by ZOFF_AIO_TUNE_OPTS_INIT
    pub struct_size: usize,
    /// back-end, as in zoff_aio_opts
    pub backend: *const c_char,
    /// longest measurement; 0: 2; at most 60
    pub seconds: f64,
    /// page cache, as in zoff_aio_opts
    pub direct: zoff_aio_direct,
    /// measure again, although the folder has an earlier result
    pub fresh: bool,
}
impl Default for zoff_aio_tune_opts {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// The settings with which a folder is fastest, and its rates with them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_aio_tune_result {
    /// set by ZOFF_AIO_TUNE_RESULT_INIT
    pub struct_size: usize,
    /// block size for zoff_aio_opts: 512 KiB, 1 MiB or 4 MiB
    pub block_bytes: usize,
    /// back-end that was measured; static text
    pub backend: *const c_char,
    /// bytes per second, reading alone
    pub read_rate: f64,
    /// bytes per second, writing alone
    pub write_rate: f64,
    /// bytes per second of both, half reading, half writing; this rate decides
    pub mixed_rate: f64,
    /// duration of the measurement
    pub seconds: f64,
    /// st_dev of the folder
    pub device: u64,
    /// "ext4"
    pub file_system: [c_char; 32],
    /// depth for zoff_aio_opts: 8, 16 or 32
    pub depth: c_uint,
    /// O_DIRECT was in use
    pub direct: bool,
    /// the memory was registered
    pub registered: bool,
    /// an earlier result of this folder, not measured now
    pub cached: bool,
}
impl Default for zoff_aio_tune_result {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Options of a save or a load. All zero: defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_checkpoint_opts {
    /// set by ZOFF_CHECKPOINT_OPTS_INIT
    pub struct_size: usize,
    /// data_count entries of the program's own bytes. A load ignores other entries of the checkpoint
    pub data: *const zoff_checkpoint_data,
    pub data_count: usize,
    /// name of the checkpoint's folder. NULL: a save takes "step-" and ten digits, a load the newest. An engine that saves alone with a label puts the label and a "." before it
    pub name: *const c_char,
    /// names an engine where several save into one folder, such as "tp0.pp1": letters, digits, ".", "_", "-"; at most 200. A load needs the same. NULL: the only one
    pub label: *const c_char,
    /// save: engines that save into this checkpoint, each with its label; it is complete when all have. 0 means 1
    pub engines: c_uint,
    /// save: complete checkpoints that stay in the folder, the new one included; 0: all. Pinned ones stay beside them
    pub keep: c_uint,
    /// every save: most DRAM in bytes for states on their way to the disk. Beside steps it also has the copies of states that a step changes; beyond it updates wait for the disk. 0: 64 MiB; at least three units, see docs/MEMORY.md
    pub memory: u64,
    /// save: leave frozen weights out; a load leaves them as they are
    pub skip_frozen: bool,
    /// save and begin: return ERR_STATE while an earlier save of this engine is under way. false: wait until it has ended
    pub refuse_if_busy: bool,
    /// load: names of parameters that may be missing, extra or different, as patterns separated by spaces, "*" for any text
    pub allow: *const c_char,
    /// load: data_count flags, set by a load that succeeds: whether the checkpoint has these bytes for this rank. An imported checkpoint has none. Bytes that it lacks stay as they are. NULL: all of `data` must be there
    pub data_found: *mut bool,
    /// save: pin the checkpoint as zoff_checkpoint_pin() does. One of several engines is enough
    pub pinned: bool,
    /// load: take masters and frozen weights, and begin the rest as a new engine does: moments and number of updates at zero. For another optimizer, or to fine-tune; see zoff_checkpoint_load()
    pub weights_only: bool,
}
impl Default for zoff_checkpoint_opts {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Facts of a checkpoint.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_checkpoint_info {
    /// set by ZOFF_CHECKPOINT_INFO_INIT
    pub struct_size: usize,
    /// the checkpoint's own folder
    pub folder: *const c_char,
    /// 16 hexadecimal digits, new for each save
    pub id: *const c_char,
    /// label of the engine; "" for the only one
    pub label: *const c_char,
    /// updates made
    pub t: i64,
    /// bytes of all files
    pub bytes: u64,
    /// parameters, tied ones included
    pub param_count: usize,
    /// ranks that have written the checkpoint
    pub ranks: c_uint,
    /// loss_scaler is set
    pub has_loss_scaler: bool,
    pub loss_scaler: zoff_loss_scaler,
    /// bytes of the program: entries of zoff_checkpoint_reader_data_at()
    pub data_count: usize,
    /// zoff_checkpoint_opts.keep of later saves does not remove the checkpoint
    pub pinned: bool,
}
impl Default for zoff_checkpoint_info {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// One parameter of a checkpoint.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_checkpoint_param {
    /// set by ZOFF_CHECKPOINT_PARAM_INIT
    pub struct_size: usize,
    /// any bytes, 0-terminated; at most 4095
    pub name: *const c_char,
    /// as zoff_param_desc.slice_name; NULL: none
    pub slice_name: *const c_char,
    /// the parameter that has the states; NULL: this one
    pub tied_to: *const c_char,
    /// shape of a slice; their product is `count`
    pub dims: *const usize,
    /// number of dims; a writer takes 0 as one dimension of `count`
    pub dim_count: usize,
    /// elements of a slice, and slices
    pub count: usize,
    /// elements of a slice, and slices
    pub slices: usize,
    /// type of the weights
    pub dtype: zoff_dtype,
    /// bits: k for state k of zoff_state_kind. Frozen parameters have ZOFF_STATE_WEIGHTS alone
    pub states: c_uint,
    /// "muon": m is that of its matrices; NULL: its optimizer updates each element by itself
    pub rule: *const c_char,
}
impl Default for zoff_checkpoint_param {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Options of a communicator. All zero: this rank alone.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_comm_opts {
    /// set by ZOFF_COMM_OPTS_INIT
    pub struct_size: usize,
    /// NULL or "self": one rank. "mpi": MPI_COMM_WORLD. "nccl", "ucx": the ranks in the launcher's variables. "auto": whichever the launcher started. "threads": see zoff_comm_open_threads()
    pub backend: *const c_char,
    /// how long an operation waits for other ranks, and an engine for a disk or device that neither moves nor fails; 0: 600; ZOFF_OFF: no limit
    pub timeout_seconds: f64,
}
impl Default for zoff_comm_opts {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Facts and counters of a communicator.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_comm_info {
    /// set by ZOFF_COMM_INFO_INIT
    pub struct_size: usize,
    /// name; static text, or over a zoff_comm_transport its name
    pub backend: *const c_char,
    /// as zoff_comm_rank() and zoff_comm_size()
    pub rank: c_uint,
    /// as zoff_comm_rank() and zoff_comm_size()
    pub size: c_uint,
    /// finished collective operations of all engines
    pub operations: u64,
    /// bytes that these operations sent to other ranks
    pub sent_bytes: u64,
    /// bytes that these operations received from other ranks
    pub received_bytes: u64,
    /// the part of `sent_bytes` to ranks of the same node; all of it until an engine has looked at the hosts. 0 if hosts have different numbers of ranks, or ranks that are not consecutive
    pub node_bytes: u64,
    /// headers that these operations sent; small pieces are inside. 0 over NCCL
    pub notes: u64,
    /// messages beside them, for larger pieces. 0 over NCCL
    pub messages: u64,
}
impl Default for zoff_comm_info {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Point-to-point messages, from which zoff builds its collective operations. An adapter to a network fills this struct; zoff/mpi.h has the one for MPI.
///
/// No function may block. Only threads inside a zoff call with this communicator call them. They return a negative number on an error, and error() has the message. A message may be shorter than the memory of its receive; the rest of the memory is not written. Messages from one rank to another with the same tag arrive in the order they were sent in, and receives take them in the order they were posted in. Tags are 0 to 1023.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_comm_transport {
    /// set by ZOFF_COMM_TRANSPORT_INIT
    pub struct_size: usize,
    /// static text, for messages
    pub name: *const c_char,
    /// first argument of the functions
    pub ctx: *mut c_void,
    /// rank of this process, and number of ranks
    pub rank: c_uint,
    /// rank of this process, and number of ranks
    pub size: c_uint,
    /// most bytes of one message; 0: 64 MiB
    pub most_bytes: usize,
    /// how long zoff_comm_close() waits until other ranks close, too; 0: not at all
    pub close_seconds: f64,
    /// Begin to send, or to receive from a rank or ZOFF_COMM_ANY_RANK. The memory is in use until test() returns 1.
    pub send: Option<unsafe extern "C" fn(ctx: *mut c_void, to: c_uint, tag: c_int, data: *const c_void, bytes: usize, out_request: *mut *mut c_void) -> c_int>,
    /// Begin to send, or to receive from a rank or ZOFF_COMM_ANY_RANK. The memory is in use until test() returns 1.
    pub receive: Option<unsafe extern "C" fn(ctx: *mut c_void, from: c_uint, tag: c_int, data: *mut c_void, bytes: usize, out_request: *mut *mut c_void) -> c_int>,
    /// returns 1: done, and the request is freed; 0: not yet
    pub test: Option<unsafe extern "C" fn(ctx: *mut c_void, request: *mut *mut c_void) -> c_int>,
    /// cancel a receive; test() then returns 1 when it has ended
    pub cancel: Option<unsafe extern "C" fn(ctx: *mut c_void, request: *mut *mut c_void) -> c_int>,
    /// message of the last error
    pub error: Option<unsafe extern "C" fn(ctx: *mut c_void) -> *const c_char>,
    /// Free ctx. `clean` is 0 when messages may still be in flight: then the memory that they use must stay.
    pub close: Option<unsafe extern "C" fn(ctx: *mut c_void, clean: c_int)>,
    /// reason why there is no transport, in which case nothing else is read; NULL: there is one
    pub failure: *const c_char,
    /// not 0 if any thread may call the functions, one at a time, while others of the program run. Needed for zoff_engine_opts.progress_thread
    pub any_thread: c_int,
    /// all ranks that the network knows, where the program asked for all or some of them; 0: not compared with the launcher. A world of one rank beside launcher's variables of more is an error
    pub world_size: usize,
    /// ranks of a node, which are consecutive; 0: not known, so the engine compares hosts
    pub node_ranks: c_uint,
}
impl Default for zoff_comm_transport {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Options of a communicator over NCCL: either `nccl_comm`, or rank, size, device and broadcast.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_nccl_opts {
    /// set by ZOFF_NCCL_OPTS_INIT
    pub struct_size: usize,
    /// rank of this process, and number of ranks
    pub rank: c_uint,
    /// rank of this process, and number of ranks
    pub size: c_uint,
    /// index of the CUDA device; -1: the thread's current one
    pub device: c_int,
    /// as zoff_comm_opts.timeout_seconds; also limits joining
    pub timeout_seconds: f64,
    /// Copy bytes from rank 0 to all ranks, such as MPI_Bcast(). Every rank calls it once; it may block. @return 0
    pub broadcast: Option<unsafe extern "C" fn(ctx: *mut c_void, data: *mut c_void, bytes: usize) -> c_int>,
    /// argument of broadcast
    pub ctx: *mut c_void,
    /// An ncclComm_t of the program. zoff splits communicators of its own off and does not use this one afterwards. A blocking one waits for other ranks without a limit. One made with splitShare 1 is aborted together with zoff's: leave that at 0, NCCL's default.
    pub nccl_comm: *mut c_void,
    /// the cudaStream_t in which the program uses nccl_comm. The split waits for the work in it, as NCCL requires. NULL: nothing of nccl_comm is in flight. Name a default stream as cudaStreamLegacy or cudaStreamPerThread
    pub nccl_stream: *mut c_void,
}
impl Default for zoff_nccl_opts {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Options of an engine. A value given here wins over the configuration. All zero: the default configuration, on the host, one rank.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_engine_opts {
    /// set by ZOFF_ENGINE_OPTS_INIT
    pub struct_size: usize,
    /// a ds_config file; NULL: defaults. Ignored when `config` is given
    pub config_path: *const c_char,
    /// an open configuration; read during create, stays the caller's
    pub config: *mut zoff_config,
    /// device that holds weights and gradients; NULL: the host. Borrowed until destroy
    pub accel: *mut zoff_accel,
    /// the ranks; NULL: see `ranks`. Borrowed until destroy
    pub comm: *mut zoff_comm,
    /// join these ranks, and leave them at destroy: "auto", "mpi", "nccl", as zoff_comm_opts.backend; NULL: this rank alone. Not together with `comm`
    pub ranks: *const c_char,
    /// tier of the states; AUTO: NVME with nvme_path, otherwise offload_optimizer.device
    pub state_tier: zoff_tier,
    /// folder for state files, and for files of weights without a folder of their own; NULL: offload_optimizer.nvme_path
    pub nvme_path: *const c_char,
    /// DRAM budget for states; 0: zoff.host_memory
    pub host_bytes: u64,
    /// largest chunk in which states are stored and moved, at least 1024; 0: automatic
    pub chunk_elements: u64,
    /// threads of the update; 0: zoff.threads, by default one for each physical core
    pub threads: c_uint,
    /// run zoff_engine_progress() on a thread of the engine while the program computes, without updates of an open step (zoff.background_threads adds those). Useful with several ranks from stage 2 on, or on a device. The thread polls 5,000 times a second while something is in flight and sleeps otherwise. Calls of the engine wait while it adds up gradients. Several engines on one communicator may have one each
    pub progress_thread: bool,
    /// with zoff.persist: open the states after this update. The files have the last commit and, until the next step begins to write, the one before it. Opening that one compares all of it with its checksums and then removes the newer one. 0: the last. Another number is ERR_INVALID, which lists those that there are
    pub persist_t: i64,
    /// called by seal at least every 64 MiB that it writes to files or reads from them, or every aio.block_size * aio.queue_depth bytes if that is more; if it returns false, seal ends with ERR_CANCELED on all ranks. NULL: a line of level info every 5 seconds
    pub progress: zoff_progress_fn,
    /// passed to progress
    pub progress_ctx: *mut c_void,
    /// ranks whose engines train other parts of one model, as tensor and pipeline parallel ranks do: gradient norm, clipping, skipped steps and zoff_engine_request_stop() are those of all of them. Every rank of `comm` gives one, and has the same rank in it. Seal, steps and zoff_grads_drop() are then collective over it, too. NULL: the norm is that of this engine. Borrowed until destroy
    pub norm_comm: *mut zoff_comm,
}
impl Default for zoff_engine_opts {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// A parameter: `slices` arrays of `count` elements each, `value_stride` apart, as C trainers stack their layers.
///
/// Owns: value and grad are the caller's; they must live until destroy, or until zoff_param_bind() replaces them. Trained bf16 weights may be half of the state (zoff.master): docs/how-to/choose-tiers.md says what follows
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_param_desc {
    /// set by ZOFF_PARAM_DESC_INIT; zoff_engine_open() accepts 0
    pub struct_size: usize,
    /// weights; read at seal, written by each step. May be NULL when count is 0
    pub value: *mut c_void,
    /// gradients; NULL: bound later, lent by zoff_grad_acquire(), or none. With a device, a parameter without it at seal reserves memory to lend, and the host measures the gradients
    pub grad: *mut c_void,
    /// elements of a slice; 0, 1 and more than 2^31 are legal
    pub count: usize,
    /// number of slices; 0 means 1
    pub slices: usize,
    /// elements from one slice to the next; 0 means count
    pub value_stride: usize,
    /// elements from one slice to the next; 0 means count
    pub grad_stride: usize,
    /// type of value: ZOFF_F32 (default), ZOFF_BF16 or ZOFF_F16
    pub dtype: zoff_dtype,
    /// type of grad: any type beside any dtype; 0 means the same as dtype
    pub grad_dtype: zoff_dtype,
    /// index of the parameter's group of hyper-parameters
    pub group: c_uint,
    /// never updated; has no states
    pub frozen: bool,
    /// name in messages, checkpoints and exports; at most 4,095 bytes, and no other parameter may have it; copied; NULL: "param<index>"
    pub name: *const c_char,
    /// the engine owns the weights: see zoff_param_fetch(). `value` may point to the first weights, which seal reads once, in host memory also where the engine has a device; NULL: zeros, until zoff_param_write()
    pub engine_owned: bool,
    /// shape of a slice, for checkpoints and exports; copied. NULL: one dimension of `count`
    pub dims: *const usize,
    /// dimensions in `dims`, 1 to 64; their product must be `count`. 0 where dims is NULL
    pub dim_count: usize,
    /// name of one slice in exports: "{}", once in it, becomes the index of the slice, as in "layers.{}.weight"; at most 4,095 bytes; copied. No other parameter or slice may have the resulting names. NULL: slices are exported as one tensor
    pub slice_name: *const c_char,
    /// other ranks of norm_comm have this parameter by the same name, with the same first weights and gradients: its norm counts once, on the lowest of them. Seal compares the weights, and each step that measures the gradients compares the sums of squares of their blocks: a difference is ERR_INVALID on all ranks, names the parameter, and changes nothing
    pub norm_replicated: bool,
    /// every rank of the engine hands over the same gradient, which the trainer has reduced itself: the engine neither exchanges nor averages it. The owner of an element reads its own copy, for the norm, the check for inf and nan, and the update. Steps compare the bits of all copies: 16 blocks of 1,024 elements of each slice, and other blocks in the next step. A difference is ERR_INVALID on all ranks, names the parameter, and changes nothing. Not for several ranks whose communicator reaches the memory of the device
    pub reduced: bool,
    /// for Muon: a slice is read as dims[0] rows, which are cut into matrices of so many rows, in this order, again and again: {4096, 1024, 1024} for a fused QKV. Their sum divides dims[0]. Copied. NULL: zoff.muon_rows or dims decide
    pub matrix_rows: *const usize,
    /// numbers in `matrix_rows`; 0 where it is NULL
    pub matrix_row_count: usize,
}
impl Default for zoff_param_desc {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Traffic of this rank with others, as zoff_comm_info counts it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_plan_traffic {
    /// to other ranks
    pub sent_bytes: u64,
    /// part of sent_bytes to ranks of the same node; all of it where nodes are not known
    pub node_bytes: u64,
    /// headers
    pub notes: u64,
    /// other messages
    pub messages: u64,
}
impl Default for zoff_plan_traffic {
    fn default() -> Self {
        let its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its
    }
}

/// Memory, files and traffic of an engine on this rank. The engine allocates by the same numbers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_plan_info {
    /// set by ZOFF_PLAN_INFO_INIT
    pub struct_size: usize,
    /// tier of the states
    pub tier: zoff_tier,
    /// trainable elements of this rank
    pub elements: u64,
    /// masters and moments, without padding
    pub state_bytes: u64,
    /// DRAM for states: all of them; on the NVMe tier the slots and resident_bytes
    pub host_bytes: u64,
    /// files of states, padded; doubled by zoff.persist and by zoff.speculation_memory. Each file also has a header
    pub nvme_bytes: u64,
    /// DRAM for gradient accumulation in fp32, and for sums of tied gradients
    pub accumulator_bytes: u64,
    /// chunks in which states are stored and moved
    pub chunk_count: u64,
    /// size of the largest chunk
    pub chunk_bytes: u64,
    /// chunks in DRAM at a time on the NVMe tier; 0 on the host tier
    pub slots: c_uint,
    /// threads of the update
    pub threads: c_uint,
    /// NVMe tier: states that stay in DRAM because the budget has room beside the slots. Part of host_bytes; in files only with zoff.persist
    pub resident_bytes: u64,
    /// bytes read from files in a step that updates every parameter
    pub step_read_bytes: u64,
    /// bytes written to files in such a step
    pub step_write_bytes: u64,
    /// weights that the engine owns, without padding
    pub weight_bytes: u64,
    /// DRAM for engine-owned weights: all, or buffers, cached ones, and slices that are lent. With a device: stored ones, buffers, and small slices that stay whole
    pub weight_host_bytes: u64,
    /// files of weights
    pub weight_nvme_bytes: u64,
    /// DRAM for data to and from other ranks; 0 for one rank
    pub exchange_bytes: u64,
    /// DRAM for gradients downloaded from a device, weights to upload, and 8 bytes for each 1024 elements whose norm is measured there; 0 where the CPU reaches the device's memory. From stage 2 on gradients also take the bytes in flight
    pub device_host_bytes: u64,
    /// device memory: the states that offload_optimizer.ratio leaves there, with sums of their gradients; where the communicator reaches the device, staging and sums of the exchange; weights of the engine that are stored or whole there; and gradients that it lends, twice reduce_bucket_size at most. zoff.device_memory limits it
    pub device_bytes: u64,
    /// DRAM in all: host_bytes, accumulator_bytes, weight_host_bytes, exchange_bytes, device_host_bytes, speculation_bytes, nvme_memory_bytes and matrix_bytes. zoff.host_memory limits only the first
    pub memory_bytes: u64,
    /// DRAM that this process can still allocate, by the machine and its cgroups
    pub memory_free_bytes: u64,
    /// DRAM beside memory_bytes while a checkpoint is saved, at most: copies of states, by the default of zoff_checkpoint_opts.memory
    pub save_bytes: u64,
    /// DRAM for buckets that are updated ahead of a step: zoff.speculation_memory, or less where all buckets need less. For states in DRAM at most 1/15 of them more, so that chunks of about the same size can change places
    pub speculation_bytes: u64,
    /// DRAM for files of states and weights whose folder is in memory (tmpfs, or an overlay on it), beside what such files of an earlier run have already. Part of memory_bytes
    pub nvme_memory_bytes: u64,
    /// Muon: elements of matrices, of this rank
    pub matrix_elements: u64,
    /// Muon: floating-point operations of a step that orthogonalizes all matrices, on this rank: from stage 1 on, its share of them
    pub matrix_flop: u64,
    /// Muon: DRAM for directions of matrices and for their products. Part of memory_bytes
    pub matrix_bytes: u64,
    /// of a step of all micro-batches: gradients
    pub reduce: zoff_plan_traffic,
    /// of a step: decisions, such as which slices take part, and the norm
    pub report: zoff_plan_traffic,
    /// of a step that updates every parameter: weights, or sums at stage 0, and matrices
    pub gather: zoff_plan_traffic,
    /// of one fetch of each slice of engine-owned weights, as far as ranks have parts of them
    pub fetch: zoff_plan_traffic,
    /// not 0: sums of gradients are exact
    pub exact_sums: c_int,
    /// gradients take two hops, within nodes of so many ranks and between them; 0 or 1: one hop
    pub sum_ranks: c_uint,
    /// not 0: the second hop is once a step, and not in each micro-batch
    pub sums_once: c_int,
}
impl Default for zoff_plan_info {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// One tensor of a step. All arrays have `count` elements, need only their element's alignment, and must not overlap. A state that the optimizer does not have is not touched and may be NULL.
///
/// Owns: the caller owns all arrays; the call keeps nothing
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_optimizer_tensor {
    /// set by ZOFF_OPTIMIZER_TENSOR_INIT
    pub struct_size: usize,
    /// elements; may be 0
    pub count: usize,
    /// weights, updated in place, of type master_dtype
    pub master: *mut c_void,
    /// states, updated in place. Zeros before step 1; v of Adagrad: its initial accumulator
    pub m: *mut f32,
    /// states, updated in place. Zeros before step 1; v of Adagrad: its initial accumulator
    pub v: *mut f32,
    /// gradient, not changed
    pub grad: *const c_void,
    /// ZOFF_F32 (default), ZOFF_BF16 or ZOFF_F16
    pub grad_dtype: zoff_dtype,
    /// receives the weights rounded to 16 bits, with ties away from zero (bf16) or to even (fp16); or NULL
    pub copy_out: *mut c_void,
    /// type of copy_out: ZOFF_BF16 (default) or ZOFF_F16
    pub copy_dtype: zoff_dtype,
    /// ZOFF_F32 (default); or ZOFF_BF16 or ZOFF_F16 without copy_out. In 16 bits the step is computed in fp32 and rounded once, as for copy_out, so that small updates are lost
    pub master_dtype: zoff_dtype,
    /// Muon: the shape of a matrix, whose rows lie one after the other. If `count` is a multiple of it, the tensor is a stack of such matrices. 0 and 0 (default): no matrix. Other optimizers ignore both
    pub rows: usize,
    /// Muon: the shape of a matrix, whose rows lie one after the other. If `count` is a multiple of it, the tensor is a stack of such matrices. 0 and 0 (default): no matrix. Other optimizers ignore both
    pub cols: usize,
}
impl Default for zoff_optimizer_tensor {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// The dynamic loss scale of fp16 training, complete: a checkpoint that keeps these numbers continues with the same scales. They are cur_scale, cur_iter, last_overflow_iter and cur_hysteresis of DeepSpeed's checkpoints.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_loss_scaler {
    /// set by ZOFF_LOSS_SCALER_INIT
    pub struct_size: usize,
    /// the trainer multiplies its loss by this
    pub scale: f64,
    /// steps taken, including skipped ones
    pub iterations: i64,
    /// the latest skipped step, counted from 0; -1: none
    pub last_overflow: i64,
    /// overflows until the scale is halved; 1: the next one
    pub hysteresis: u64,
}
impl Default for zoff_loss_scaler {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Bytes of the program that a checkpoint carries, such as the state of a random generator or a position in the data.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_checkpoint_data {
    /// name, unique in its list; at most 255 bytes
    pub name: *const c_char,
    /// memory that a save reads before it returns, and a load writes
    pub bytes: *mut c_void,
    /// number of bytes; a load fails if the checkpoint has another one
    pub count: usize,
    /// each rank has its own, and as many ranks load them; false: rank 0 saves, all ranks load
    pub each_rank: bool,
}
impl Default for zoff_checkpoint_data {
    fn default() -> Self {
        let its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its
    }
}

/// Sums of squares of the gradients of one or more engines: exact, so that the order of zoff_norm_sum_join() does not matter. Plain bytes of a fixed size, which carry their version, the number of the step, and which measurements they contain. Copy them, or send them to a process with the same zoff on a machine of the same byte order.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_norm_sum {
    /// written by zoff_step_measure()
    pub words: [u64; 80],
}
impl Default for zoff_norm_sum {
    fn default() -> Self {
        let its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its
    }
}

/// Arguments of a step. NULL in its place, or all zero: everything as the configuration says.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_step_args {
    /// set by ZOFF_STEP_ARGS_INIT
    pub struct_size: usize,
    /// number of this step, from 1, for bias correction and schedule; 0: one more than zoff_step_count()
    pub t: i64,
    /// hyper_count structs, one for each group, of the optimizer that the group was sealed for; a single one serves all groups. ZOFF_KEEP in a number, or NULL for all: configuration and schedule. Read by the call; the open step keeps them
    pub hyper: *const zoff_optimizer_hyper,
    /// bytes from one struct to the next; 0: sizeof(zoff_optimizer_hyper) of the caller
    pub hyper_stride: usize,
    /// structs in `hyper`; must not be 0 beside it
    pub hyper_count: usize,
    /// clip the global norm to this; 0: gradient_clipping; ZOFF_OFF: do not clip. Clipping multiplies the gradients by clip_norm / (norm + 1e-6) if that is below 1, like PyTorch's clip_grad_norm_
    pub clip_norm: f64,
    /// multiplies each gradient before anything else, such as 1 / loss scale; 0 means 1. The same in all micro-steps of an update. Comes on top of 1 / zoff_loss_scale() with fp16.enabled
    pub grad_scale: f64,
    /// ZOFF_STEP_*
    pub flags: c_uint,
    /// after zoff_step_measure(), and only then: the sum of this engine joined with those of all engines that clip together. Norm, clip factor and skip decision are made from it
    pub norm_sum: *const zoff_norm_sum,
}
impl Default for zoff_step_args {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Numbers of a step. With several ranks they are those of all ranks, except the elements, which are this rank's.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_step_numbers {
    /// learning rate of group 0
    pub lr: f64,
    /// loss scale of the gradients of this step; 1 without fp16.enabled
    pub loss_scale: f64,
    /// L2 norm of all gradients after scaling, before clipping. NAN where nothing needs it, because zoff.skip_nonfinite is false and nothing is clipped
    pub grad_norm: f64,
    /// factor by which clipping multiplied the gradients; 1: not clipped
    pub clip_factor: f64,
    /// elements with states on this rank
    pub elements_owned: u64,
    /// owned elements that have a gradient
    pub elements_updated: u64,
    /// owned elements that the device updated (offload_optimizer.ratio)
    pub elements_on_device: u64,
    /// zero
    pub reserved: [u64; 4],
}
impl Default for zoff_step_numbers {
    fn default() -> Self {
        let its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its
    }
}

/// Bytes that this rank moved. Transfers of NVMe-tier weights, of the device and to other ranks count since the step before.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_step_bytes {
    /// states, weights and gradients that kernels read from DRAM
    pub host_read: u64,
    /// states and weights that kernels wrote to DRAM
    pub host_written: u64,
    /// states and engine-owned weights read from files
    pub nvme_read: u64,
    /// part of nvme_read whose reading began before the step was asked for
    pub nvme_read_ahead: u64,
    /// states and engine-owned weights written to files
    pub nvme_written: u64,
    /// downloads: gradients, weights for zoff_params_pull(), weights that the device stores for other ranks
    pub device_read: u64,
    /// uploads: new weights, and fetched ones of the engine
    pub device_written: u64,
    /// bytes sent to other ranks: gradients, weights, control messages
    pub sent: u64,
    /// part of sent: (N - 1) / N of the gradients over N ranks; at stage 0 also their fp32 sums
    pub sent_gradients: u64,
    /// part of sent: replicated weights, and fetched weights
    pub sent_weights: u64,
    /// bytes received from other ranks
    pub received: u64,
    /// part of sent: directions of Muon's matrices, to their workers and back: 8 (N - 1) / N bytes of each of their elements, over all N ranks
    pub sent_matrices: u64,
    /// zero
    pub reserved: [u64; 4],
}
impl Default for zoff_step_bytes {
    fn default() -> Self {
        let its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its
    }
}

/// Seconds of a step on this rank. The waits are those of the calling thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_step_seconds {
    /// from zoff_step_begin() to the end of zoff_step_wait()
    pub total: f64,
    /// accumulation, norm, and the check for inf and nan
    pub measure: f64,
    /// kernels of the update
    pub update: f64,
    /// checksums of data read from files and written to them
    pub checksum: f64,
    /// waits for the disk: submit, copy, wait
    pub io_wait: f64,
    /// waits for the device: the rest of the backward pass, and copies
    pub device_wait: f64,
    /// waits for other ranks
    pub comm_wait: f64,
    /// waits for a checkpoint that is being saved, because its memory for copies is full
    pub save_wait: f64,
    /// part of total inside calls of the program; the rest was hidden beside its own work
    pub visible: f64,
    /// Muon: orthogonalization of matrices
    pub orthogonalize: f64,
    /// zero
    pub reserved: [f64; 2],
}
impl Default for zoff_step_seconds {
    fn default() -> Self {
        let its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its
    }
}

/// Buckets of a step on this rank that were updated before its norm was known (zoff.speculation_memory).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_step_buckets {
    /// buckets of this rank with a gradient in the step
    pub all: u64,
    /// buckets updated before zoff_step_begin(), or before a device had computed the last gradient
    pub speculated: u64,
    /// speculated buckets whose results count
    pub committed: u64,
    /// speculated buckets updated again, because the step clips or differs from what was assumed
    pub redone: u64,
}
impl Default for zoff_step_buckets {
    fn default() -> Self {
        let its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its
    }
}

/// The first gradient that was not finite. Valid when the step was skipped for it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_step_culprit {
    /// the parameter
    pub param: zoff_param,
    /// the rank whose gradient it was, where that is known; otherwise the rank that added it up
    pub rank: c_uint,
    /// the slice of the parameter
    pub slice: usize,
}
impl Default for zoff_step_culprit {
    fn default() -> Self {
        let its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its
    }
}

/// The result of a step.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_step_info {
    /// set by ZOFF_STEP_INFO_INIT
    pub struct_size: usize,
    /// also set by a call that returns an error
    pub outcome: zoff_outcome,
    /// a gradient, the norm, or the factor that scales and clips is not finite in fp32: no weight and no state has changed
    pub skipped: bool,
    /// gradients were added up; a later micro-step updates
    pub accumulated: bool,
    /// number of the micro-step, 1 .. micro_steps
    pub micro_step: u32,
    /// gradient_accumulation_steps
    pub micro_steps: u32,
    /// number of this step
    pub t: i64,
    pub numbers: zoff_step_numbers,
    pub bytes: zoff_step_bytes,
    pub seconds: zoff_step_seconds,
    /// the gradient that made the engine skip the step
    pub culprit: zoff_step_culprit,
    /// a rank has called zoff_engine_request_stop(). All ranks see it in the same step, also a skipped one, and in every step after it
    pub stop_requested: bool,
    pub buckets: zoff_step_buckets,
}
impl Default for zoff_step_info {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// An entry of zoff_grads_hand_over(): the gradient of one slice, and the present buffers of its parameter.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_handover {
    /// set by ZOFF_HANDOVER_INIT
    pub struct_size: usize,
    /// the parameter
    pub param: zoff_param,
    /// ZOFF_BIND_*, about `value`
    pub flags: c_uint,
    /// the slice whose gradient is ready; ignored beside ZOFF_NO_GRAD
    pub slice: usize,
    /// weights, from the first slice on; NULL: they have not moved
    pub value: *mut c_void,
    /// gradients, from the first slice on; NULL: they have not moved. ZOFF_NO_GRAD: no gradient is ready
    pub grad: *mut c_void,
    /// as of zoff_grad_ready()
    pub native_stream: *mut c_void,
}
impl Default for zoff_handover {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Hyper-parameters of one step. Fill them with zoff_optimizer_hyper_init(), or with zoff_engine_get_group() from an engine's configuration, and change what you need: then 0 means 0. An optimizer ignores the fields that it has no use for. In a struct that neither call has filled, a 0 in lr, a beta or eps is refused, because it may have been forgotten.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_optimizer_hyper {
    /// set by zoff_optimizer_hyper_init()
    pub struct_size: usize,
    /// learning rate, >= 0, and lr / (1 - beta1) finite in fp32; default 1e-3 (Adam, SGD), 1e-2 (Adagrad), 1e-4 (Lion), 0.02 (Muon's matrices, at most 1e28)
    pub lr: f64,
    /// decay rates of the moments, in [0, 1); default 0.9, 0.999 (Adam), 0.9, 0.99 (Lion), 0.9, 0.95 (Muon's AdamW)
    pub beta1: f64,
    /// decay rates of the moments, in [0, 1); default 0.9, 0.999 (Adam), 0.9, 0.99 (Lion), 0.9, 0.95 (Muon's AdamW)
    pub beta2: f64,
    /// number added to a square root, > 0 in fp32; default 1e-8 (Adam), 1e-10 (Adagrad, Muon)
    pub eps: f64,
    /// factor, >= 0, and lr * weight_decay at most 2 where it shrinks weights (Adam decoupled, Lion, SGD, Muon); at most 1e9 where it is added to the gradient (Adam L2, Adagrad, SGD); default 0
    pub weight_decay: f64,
    /// Adam: default decoupled
    pub decay: zoff_decay,
    /// SGD: >= 0; default 0, which needs no state. Muon: in [0, 1); default 0.95
    pub momentum: f64,
    /// SGD: default 0
    pub dampening: f64,
    /// Adagrad: >= 0; default 0
    pub lr_decay: f64,
    /// the update rule
    pub optimizer: zoff_optimizer,
    /// SGD: needs momentum > 0 and dampening 0; default false. Muon: default true
    pub nesterov: bool,
    /// set by zoff_optimizer_hyper_init() and zoff_engine_get_group(): each 0 is meant
    pub filled: bool,
    /// ZOFF_HYPER_*; default 0. An unknown flag is refused
    pub flags: u64,
    /// Muon: the AdamW's learning rate, >= 0; default 3e-4
    pub adam_lr: f64,
    /// Muon: iterations of the orthogonalization, 1 to 99; default 5
    pub ns_steps: c_uint,
    /// Muon: default gram
    pub ns_method: zoff_muon_method,
    /// Muon: default original
    pub scale: zoff_muon_scale,
    /// Muon: default simple
    pub coefficients: zoff_muon_coefficients,
}
impl Default for zoff_optimizer_hyper {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Services of zoff for a plug-in. Valid for the life of the process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_plugin_host {
    /// bytes of the library's struct
    pub struct_size: usize,
    /// as zoff_version()
    pub version: c_uint,
    /// set zoff_last_error(); returns `status`
    pub fail: Option<unsafe extern "C" fn(status: zoff_status, message: *const c_char) -> zoff_status>,
    /// write a line to the log
    pub warn: Option<unsafe extern "C" fn(message: *const c_char)>,
}
impl Default for zoff_plugin_host {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Which rank this is, and where the ranks meet, by the launcher's variables.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_plugin_meeting {
    /// bytes of the library's struct
    pub struct_size: usize,
    /// rank of this process, and number of ranks
    pub rank: c_uint,
    /// rank of this process, and number of ranks
    pub size: c_uint,
    /// "host:port" or "[host]:port" where rank 0 listens; valid during the call. Empty if size is 1
    pub place: *const c_char,
    /// how long to wait for the other ranks; negative: without a limit
    pub timeout_seconds: f64,
}
impl Default for zoff_plugin_meeting {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

/// Services of a plug-in. struct_size is set by zoff; the plug-in fills the fields that it has.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct zoff_plugin {
    pub struct_size: usize,
    /// Connect to all ranks of this process' job: fill `out`. On failure set `failure` of the transport, to a static text.
    pub connect: Option<unsafe extern "C" fn(out: *mut zoff_comm_transport)>,
    /// for the plug-ins of zoff itself, which are built with one version of it; leave it NULL
    pub built_in: *const c_void,
    /// Join ranks that know no more than their numbers and a place: fill `out`. @blocks until all ranks have come, or for timeout_seconds @return an error that zoff_plugin_host.fail() has set
    pub meet: Option<unsafe extern "C" fn(meeting: *const zoff_plugin_meeting, out: *mut zoff_comm_transport) -> zoff_status>,
}
impl Default for zoff_plugin {
    fn default() -> Self {
        let mut its: Self = unsafe { std::mem::zeroed() }; // zeros, null and None
        its.struct_size = std::mem::size_of::<Self>();
        its
    }
}

#[link(name = "zoff")]
extern "C" {
    /// Open device `index` of a back-end.
    ///
    /// "host" is the CPU: weights and gradients are updated in place, without copies.
    ///
    /// "emulated" is a device whose streams are threads of this process and whose memory is ordinary memory. It shows mistakes of a trainer for a device, such as a missing wait, without a device. Do not touch a buffer between a call that passes it on and the end of the work that this call starts.
    ///
    /// "cuda" is an NVIDIA GPU, numbered as CUDA does; -1: the thread's current one. It is the plug-in libzoff_cuda.so, found in the folder zoff beside libzoff or in one of ZOFF_PLUGIN_PATH. Streams are cudaStream_t. The thread's current device stays as it is.
    ///
    /// Owns: caller; close it after every engine on it
    ///
    /// Threads: any
    ///
    /// Return: ERR_UNSUPPORTED for a back-end that this build or machine does not have, with the reason
    pub fn zoff_accel_open(backend: *const c_char, index: c_int, out: *mut *mut zoff_accel) -> zoff_status;
    /// Close. NULL is allowed.
    pub fn zoff_accel_close(accel: *mut zoff_accel);
    /// Read facts and counters of a device.
    ///
    /// Threads: any
    pub fn zoff_accel_get_info(accel: *const zoff_accel, out: *mut zoff_accel_info) -> zoff_status;
    /// Open a stream.
    ///
    /// Owns: caller; zoff_accel_stream_close() before zoff_accel_close()
    ///
    /// Return: ERR_UNSUPPORTED for "host", which has none; ERR_DEVICE when the system gives none
    pub fn zoff_accel_stream_open(accel: *mut zoff_accel, out_stream: *mut *mut c_void) -> zoff_status;
    /// Wait for all work in a stream, and close it; the default stream stays open. NULL is allowed.
    pub fn zoff_accel_stream_close(accel: *mut zoff_accel, stream: *mut c_void);
    /// Enqueue a function that the host runs after all earlier work of the stream. It must not call zoff.
    ///
    /// Blocks: never
    pub fn zoff_accel_stream_call(accel: *mut zoff_accel, stream: *mut c_void, run: Option<unsafe extern "C" fn(ctx: *mut c_void)>, ctx: *mut c_void) -> zoff_status;
    /// Wait until all work enqueued in a stream so far is done.
    ///
    /// Blocks: yes
    pub fn zoff_accel_stream_wait(accel: *mut zoff_accel, stream: *mut c_void) -> zoff_status;
    /// Open a queue on the file at `path`.
    ///
    /// Owns: caller; zoff_aio_close()
    ///
    /// Threads: one at a time per queue, not always the same
    ///
    /// Blocks: for the open
    ///
    /// Return: ERR_IO with path and reason; ERR_UNSUPPORTED when the named back-end does not work here, or O_DIRECT with REQUIRE
    pub fn zoff_aio_open(path: *const c_char, opts: *const zoff_aio_opts, out: *mut *mut zoff_aio) -> zoff_status;
    /// Wait for transfers in flight and close. NULL is allowed.
    pub fn zoff_aio_close(q: *mut zoff_aio);
    /// Reserve disk space for a file of `bytes`, so that no later write runs out of space.
    ///
    /// Blocks: yes
    ///
    /// Return: ERR_NO_SPACE with the bytes needed and the bytes free
    pub fn zoff_aio_reserve(q: *mut zoff_aio, bytes: u64) -> zoff_status;
    /// Register the memory that most requests use, so that the kernel does not pin it for each request. Call it once per queue. When the kernel refuses (RLIMIT_MEMLOCK), the queue works without and warns once.
    ///
    /// Owns: caller; keep the memory until the queue is closed
    pub fn zoff_aio_register(q: *mut zoff_aio, base: *mut c_void, bytes: usize) -> zoff_status;
    /// Begin to read `bytes` at `offset` of the file into `dst`. Any offset, length and address work; aligned ones (zoff_aio_info.alignment) avoid a copy.
    ///
    /// Owns: the queue uses dst until the ticket is finished
    ///
    /// Blocks: never, apart from the copy of an unaligned write
    pub fn zoff_aio_read(q: *mut zoff_aio, offset: u64, bytes: usize, dst: *mut c_void, out_ticket: *mut u64) -> zoff_status;
    /// Begin to write `bytes` from `src` at `offset` of the file; otherwise like zoff_aio_read(). Overlapping requests of one queue have no order: wait between them. Without O_DIRECT a write is done when it is in the page cache. If it then fails on its way to the disk, every later request returns that error.
    pub fn zoff_aio_write(q: *mut zoff_aio, offset: u64, bytes: usize, src: *const c_void, out_ticket: *mut u64) -> zoff_status;
    /// Submit queued pieces and collect finished ones, without waiting. Makes no system call when nothing has changed.
    ///
    /// Return: OK; an error only when the queue itself is broken. A ticket has the error of its request
    pub fn zoff_aio_pump(q: *mut zoff_aio) -> zoff_status;
    /// Ask whether a request is done. A result other than PENDING finishes the ticket.
    ///
    /// Return: PENDING; or OK; or ERR_IO or ERR_NO_SPACE with path, offset, length and reason
    pub fn zoff_aio_poll(q: *mut zoff_aio, ticket: u64) -> zoff_status;
    /// Wait for a request, return its result as zoff_aio_poll() does, and finish the ticket.
    pub fn zoff_aio_wait(q: *mut zoff_aio, ticket: u64) -> zoff_status;
    /// Wait until at least one piece in flight has finished. Returns at once when none is in flight.
    pub fn zoff_aio_wait_any(q: *mut zoff_aio) -> zoff_status;
    /// Read facts and counters of a queue.
    pub fn zoff_aio_get_info(q: *const zoff_aio, out: *mut zoff_aio_info) -> zoff_status;
    /// Find the block size and depth with which `folder` reads and writes fastest at the same time. Among those within 3 % of the best, take the one with the fewest bytes in flight.
    ///
    /// Writes up to 256 MiB to a temporary file and uses up to 128 MiB of memory. The result stays in the folder as zoff-aio-tune.json. It is used again while device, file system, back-end, O_DIRECT and version of the library are the same. Processes that measure one folder take turns.
    ///
    /// Blocks: for opts.seconds; before that, while another process measures, for up to twice as long and one second more
    ///
    /// Return: ERR_NO_SPACE when less than 16 MiB are free; ERR_IO with path and reason; otherwise as zoff_aio_open()
    pub fn zoff_aio_tune(folder: *const c_char, opts: *const zoff_aio_tune_opts, out: *mut zoff_aio_tune_result) -> zoff_status;
    /// Write a result as JSON. Its "aio" object can be pasted into a ds_config, where the rest is ignored.
    ///
    /// Return: OK; *out_bytes (may be NULL) is the length of the whole text without the final 0, also where `dst` is shorter
    pub fn zoff_aio_tune_print(result: *const zoff_aio_tune_result, dst: *mut c_char, dst_bytes: usize, out_bytes: *mut usize) -> zoff_status;
    /// Save the states of the last step. Collective over the ranks, which all see `folder`.
    ///
    /// Blocks: until files and folders are durable
    ///
    /// Return: ERR_STATE between the micro-steps of an update, as zoff_params_pull(); ERR_NO_SPACE before anything is written, or ERR_IO; ERR_INVALID for a folder that not all ranks share; ERR_COMM names ranks that did not call. A disk that completes nothing for a quarter of timeout_seconds is ERR_IO. ERR_STATE also says that another program has saved under this name, with a save that began later. After an error the checkpoints before this one are as they were, and training can go on
    pub fn zoff_checkpoint_save(e: *mut zoff_engine, folder: *const c_char, opts: *const zoff_checkpoint_opts) -> zoff_status;
    /// Begin to save the states of the last step, while further steps run. The engine saves or copies a state before a step overwrites it. Collective over the ranks.
    ///
    /// Until the save has ended, do not change weights of the program other than by steps. The save reads fp32 weights, which are their own masters, 16-bit ones that are half of them (zoff.master), and frozen ones. After a change the checkpoint would have the states of no step. zoff.check_use notices a change of trained weights: the save fails with ERR_STATE. Calls that change states outside of a step wait until all states are saved. Destroying the engine gives the save up.
    ///
    /// Owns: caller; zoff_checkpoint_wait()
    ///
    /// Blocks: briefly; for states that stay on a device until they are copied
    ///
    /// Return: as zoff_checkpoint_save()
    pub fn zoff_checkpoint_begin(e: *mut zoff_engine, folder: *const c_char, opts: *const zoff_checkpoint_opts, out: *mut *mut zoff_checkpoint) -> zoff_status;
    /// Ask whether a save has ended, and complete it once all ranks have written their part. Collective over the ranks: call it after the same steps on each.
    ///
    /// Blocks: for one short message of every other rank
    ///
    /// Return: PENDING: under way; OK: complete; an error: not saved. zoff_checkpoint_wait() returns the same again
    pub fn zoff_checkpoint_poll(checkpoint: *mut zoff_checkpoint) -> zoff_status;
    /// Wait until a save has ended, and free it, also after an error. NULL returns OK. Collective over the ranks.
    ///
    /// Blocks: until files and folders are durable
    ///
    /// Return: as zoff_checkpoint_save()
    pub fn zoff_checkpoint_wait(checkpoint: *mut zoff_checkpoint) -> zoff_status;
    /// Load a checkpoint: masters, moments, frozen weights, number of updates, loss scale and the program's bytes. Then the weights are those of the masters. Collective over the ranks.
    ///
    /// Tied parameters share one set of states, so the checkpoint needs it under one of their names only. A parameter that `allow` names takes what the checkpoint has, and one warning lists such parameters. The rest stays as it is: in a new engine as it was registered, with moments of zero. A parameter that was frozen and is trained now takes the frozen weight as its master; one that was trained and is frozen now takes the rounded master as its weight. If the number of rows (the first of `dims`) or slices differs, the first ones are taken. If other dims have as many elements, they are taken in their order. If the optimizer differs, the moments that both have are taken.
    ///
    /// With `weights_only` it does not matter which optimizer has saved, and which parameters were frozen or have moments in another format. Moments begin as in a new engine, and the number of updates at 0, so bias correction and a schedule begin again. The loss scale and rates that the program has set stay. The program's bytes are taken if `data` asks for them. Names and shapes count as ever.
    ///
    /// Names, shapes, states and files are compared before anything changes; an error then leaves the engine as it was. An error later, of the data, leaves the engine without states: only zoff_checkpoint_load() and zoff_engine_destroy() are legal. With zoff.persist it goes back to its last commit, unless it owns frozen weights, which are in no commit.
    ///
    /// Blocks: yes
    ///
    /// Return: ERR_INVALID for a model that differs, with the first names; ERR_CORRUPT with file and place. ERR_IO where there is no complete checkpoint, or one that may be the newest cannot be read. ERR_UNSUPPORTED for a checkpoint of a newer version, with what it needs
    pub fn zoff_checkpoint_load(e: *mut zoff_engine, folder: *const c_char, opts: *const zoff_checkpoint_opts) -> zoff_status;
    /// Pin a checkpoint, such as the best one, so that no save with `keep` counts or removes it. A file in its folder says so, and goes with a copy. To keep the newest 3 and the best, save with keep = 3, pin the best, and then unpin the one before: a program that ends between the two leaves both. A save under the name of a pinned checkpoint replaces it, and warns unless the new one is pinned, too. Call it on one rank.
    ///
    /// Threads: any
    ///
    /// Blocks: until the folder is durable
    ///
    /// Return: OK, also if it was pinned; ERR_IO, also where there is no complete checkpoint; ERR_CORRUPT; ERR_UNSUPPORTED
    pub fn zoff_checkpoint_pin(folder: *const c_char, label: *const c_char) -> zoff_status;
    /// Unpin a checkpoint. It stays until a save with `keep` finds enough newer ones.
    ///
    /// Threads: any
    ///
    /// Blocks: until the folder is durable
    ///
    /// Return: OK, also if it was not pinned; an error as zoff_checkpoint_pin()
    pub fn zoff_checkpoint_unpin(folder: *const c_char, label: *const c_char) -> zoff_status;
    /// Open a checkpoint, and check manifest, tables, and the sizes of its files.
    ///
    /// Owns: caller; zoff_checkpoint_reader_close()
    ///
    /// Return: ERR_IO, ERR_CORRUPT with file and place, or ERR_UNSUPPORTED with what a newer version needs
    pub fn zoff_checkpoint_reader_open(folder: *const c_char, label: *const c_char, out: *mut *mut zoff_checkpoint_reader) -> zoff_status;
    /// Close a reader. NULL is allowed.
    pub fn zoff_checkpoint_reader_close(r: *mut zoff_checkpoint_reader);
    /// Read the facts of a checkpoint.
    ///
    /// Owns: texts are the reader's
    pub fn zoff_checkpoint_reader_info(r: *const zoff_checkpoint_reader, out: *mut zoff_checkpoint_info) -> zoff_status;
    /// Read the description of parameter `index`.
    ///
    /// Owns: texts and dims are the reader's
    pub fn zoff_checkpoint_reader_param(r: *const zoff_checkpoint_reader, index: usize, out: *mut zoff_checkpoint_param) -> zoff_status;
    /// Find a parameter by its name.
    ///
    /// Return: ERR_INVALID: there is none
    pub fn zoff_checkpoint_reader_find(r: *const zoff_checkpoint_reader, name: *const c_char, out_index: *mut usize) -> zoff_status;
    /// Read how a state is stored: "fp32", "fp16", "bf16", "split" (a bf16 weight and 16 more bits), "q8" (8 bits an element), or "mixed" where the ranks have saved several of them.
    ///
    /// Return: ERR_INVALID: there is no such state
    pub fn zoff_checkpoint_reader_format(r: *const zoff_checkpoint_reader, index: usize, kind: zoff_state_kind, out: *mut *const c_char) -> zoff_status;
    /// Read elements of a state. A tied parameter has those of its owner. The slices of a parameter count as one array, one after the other. Bytes are compared with their checksums. If ranges of one state follow one another, each byte is read once.
    ///
    /// Blocks: for the disk
    ///
    /// Return: ERR_CORRUPT with file and place
    pub fn zoff_checkpoint_reader_read(r: *mut zoff_checkpoint_reader, index: usize, kind: zoff_state_kind, first: usize, count: usize, dst: *mut f32) -> zoff_status;
    /// Read the program's bytes.
    ///
    /// Return: OK; *out_count (may be NULL) is their number, also where `dst` has less room; ERR_INVALID: there are none
    pub fn zoff_checkpoint_reader_data(r: *mut zoff_checkpoint_reader, name: *const c_char, rank: c_uint, dst: *mut c_void, room: usize, out_count: *mut usize) -> zoff_status;
    /// Describe the program's bytes number `index`, in the order of ranks: name, count and each_rank.
    ///
    /// Owns: the name is the reader's
    ///
    /// Return: ERR_INVALID: there are only zoff_checkpoint_info.data_count
    pub fn zoff_checkpoint_reader_data_at(r: *const zoff_checkpoint_reader, index: usize, out: *mut zoff_checkpoint_data, out_rank: *mut c_uint) -> zoff_status;
    /// Copy the manifest, which is JSON.
    ///
    /// Return: OK; *out_bytes (may be NULL) is the length of the whole text without the final 0, also where `dst` is shorter
    pub fn zoff_checkpoint_reader_manifest(r: *const zoff_checkpoint_reader, dst: *mut c_char, dst_bytes: usize, out_bytes: *mut usize) -> zoff_status;
    /// Compare every byte of the checkpoint with its checksum.
    ///
    /// Blocks: for all of the data
    ///
    /// Return: ERR_CORRUPT with the file, the place, and the parameters there; ERR_CANCELED
    pub fn zoff_checkpoint_reader_verify(r: *mut zoff_checkpoint_reader, progress: zoff_progress_fn, ctx: *mut c_void) -> zoff_status;
    /// List the checkpoints of a folder, the newest first, and behind them the hidden folders of saves. Files are not changed.
    ///
    /// Writes one JSON object: {"folder", "latest", "checkpoints": [{"name", "complete", "latest", "pinned", "time", "bytes", "step", "engines": [{"label", "ranks"}], "problem", "removed_by"}]}. Without the file `latest`, or with a damaged one, "latest" is null. "time" is in seconds since 1970, of the begin of a save. A manifest that cannot be read leaves out its engine; without any there is no "step". An entry that is not complete has a "problem". "removed_by" says what removes an entry that nobody needs. Each character of a text stands for one byte. A load takes the first complete checkpoint of its label.
    ///
    /// Blocks: for one look at each checkpoint
    ///
    /// Return: ERR_IO: the folder cannot be read; ERR_INVALID: it is a checkpoint itself
    pub fn zoff_checkpoint_list(folder: *const c_char, dst: *mut c_char, dst_bytes: usize, out_bytes: *mut usize) -> zoff_status;
    /// Begin to write a checkpoint.
    ///
    /// Owns: caller; zoff_checkpoint_writer_close()
    ///
    /// Return: ERR_INVALID for descriptions that contradict themselves or each other, or if `folder` has a checkpoint of this name and label already: only saves of an engine replace one; ERR_NO_SPACE; ERR_IO
    pub fn zoff_checkpoint_writer_open(folder: *const c_char, opts: *const zoff_checkpoint_opts, t: i64, params: *const zoff_checkpoint_param, count: usize, scaler: *const zoff_loss_scaler, out: *mut *mut zoff_checkpoint_writer) -> zoff_status;
    /// Write elements of a state, as zoff_checkpoint_reader_read() reads them. Each kind of state is written in the order of parameters and elements. Elements that are left out are zero, and whole units of 4 MiB of them take no space on the disk.
    ///
    /// Blocks: for the disk
    ///
    /// Return: ERR_INVALID for elements before those of an earlier call; ERR_IO, ERR_NO_SPACE: then the checkpoint cannot be committed any more
    pub fn zoff_checkpoint_writer_write(w: *mut zoff_checkpoint_writer, index: usize, kind: zoff_state_kind, first: usize, count: usize, src: *const f32) -> zoff_status;
    /// Write bytes of the program. May be tried again after ERR_IO or ERR_NO_SPACE.
    ///
    /// Return: ERR_INVALID for a name that is used already, or has more than 255 bytes
    pub fn zoff_checkpoint_writer_data(w: *mut zoff_checkpoint_writer, name: *const c_char, bytes: *const c_void, count: usize) -> zoff_status;
    /// Make the checkpoint complete and durable. After an error it is not, and may be tried again. Nothing can be written after the first call.
    ///
    /// Blocks: for the disk
    ///
    /// Return: ERR_STATE after zoff_checkpoint_writer_write() or a flush has failed at the disk: close the writer and begin again
    pub fn zoff_checkpoint_writer_commit(w: *mut zoff_checkpoint_writer) -> zoff_status;
    /// Close a writer; without a commit before, remove what was written. NULL is allowed.
    pub fn zoff_checkpoint_writer_close(w: *mut zoff_checkpoint_writer);
    /// Read all state files (zoff-r0.states and so on; zoff-p0-r0.states of engines with a norm_comm) of some folders and compare every array with its checksum, while no engine uses them. The files are not changed.
    ///
    /// Writes one JSON object: {"files": [{"path", "rank", "ranks", "file", "files", "layout", "commits": [{"generation", "t", "last", "arrays", "without_checksum", "wrong"}], "complaints": [text]}], "bytes", "wrong"}. A file has the last commit and, until the next step begins, the one before it, of which `last` is false. The next step overwrites that one, so arrays of it that differ are neither damage nor a complaint. An array that cannot be read is wrong, too. A file has at most 16 complaints. Each character of a path stands for one byte.
    ///
    /// Blocks: for all of the data, read once for each commit
    ///
    /// Return: OK, also where arrays are wrong; ERR_STATE for a file that an engine has open; ERR_IO for a folder without state files; ERR_UNSUPPORTED for files of another version; ERR_CANCELED
    pub fn zoff_state_files_scrub(folders: *const *const c_char, count: usize, progress: zoff_progress_fn, ctx: *mut c_void, dst: *mut c_char, dst_bytes: usize, out_bytes: *mut usize, out_wrong: *mut u64) -> zoff_status;
    /// Make one checkpoint of the state files of all ranks of a run, while no engine uses them. Any number of ranks, stage, tier and list of paths loads it: start the new run with empty folders, and call zoff_checkpoint_load(). The files are not changed.
    ///
    /// It has masters, moments, number of updates, loss scale, and the bytes of zoff_persist_data(), of the newest commit that all files have. Frozen weights are not in state files, so a load leaves them as they are. Where the file system can, the checkpoint shares disk blocks with the state files. Every array is read and compared with its checksum.
    ///
    /// Blocks: for all of the data
    ///
    /// Return: ERR_INVALID for a rank or file that is missing, files of different runs, or if `checkpoints` has a checkpoint of this name and label already. ERR_STATE for a file that an engine has open; ERR_CORRUPT with the file that is damaged. ERR_IO, also for a file without its description (the same name and ".layout"), or ERR_NO_SPACE. ERR_UNSUPPORTED for another version; ERR_CANCELED. After an error earlier checkpoints are as they were
    pub fn zoff_state_files_checkpoint(folders: *const *const c_char, count: usize, checkpoints: *const c_char, opts: *const zoff_checkpoint_opts, progress: zoff_progress_fn, ctx: *mut c_void) -> zoff_status;
    /// Join the ranks that the launcher started.
    ///
    /// "auto" looks at the environment. It takes "mpi" when the program has initialised MPI or variables of mpirun, PMI or PMIx are set. Under torchrun it takes "nccl" where NCCL finds a GPU, and otherwise "ucx". Without any launcher it takes "self". A launcher without a way to send messages (srun without PMIx, torchrun without NCCL and UCX) and variables that contradict each other are errors that say what to do.
    ///
    /// The ranks that were started must be those that join. The call fails if this process has joined alone and variables of a launcher say that there are more ranks, because each rank would train a model of its own. A launcher of another MPI starts such processes. "self" is never compared with the launcher: choose it for one rank on purpose.
    ///
    /// "mpi" loads the plug-in libzoff_mpi.so, found in the folder zoff beside libzoff or in one of ZOFF_PLUGIN_PATH. If the program has not initialised MPI, the plug-in does so with MPI_THREAD_MULTIPLE, and finalises MPI when the last communicator is closed; none can be opened afterwards. A program with another MPI, or MPI in some ranks, includes zoff/mpi.h instead.
    ///
    /// "ucx" loads libzoff_ucx.so, and needs no MPI and no GPU. Rank and size are the launcher's (RANK, WORLD_SIZE). Ranks meet at MASTER_ADDR, one port above MASTER_PORT, which torch.distributed may use, and rank 0 listens there until all have come. The network is trusted. UCX moves the messages over shared memory, InfiniBand or TCP, as its variables (UCX_TLS, UCX_NET_DEVICES) permit.
    ///
    /// "nccl" loads libzoff_nccl.so. Rank and size are the launcher's (RANK, WORLD_SIZE), and the device is the rank's number on its host (LOCAL_RANK). Ranks meet at MASTER_ADDR and MASTER_PORT, one port higher where torchrun's agent uses that one, or at NCCL_COMM_ID ("host:port") where it is set. A program whose ranks are connected already calls zoff_comm_open_nccl().
    ///
    /// Owns: caller; close it after every engine on it
    ///
    /// Blocks: until all ranks have joined
    ///
    /// Return: ERR_UNSUPPORTED for a back-end that this build or machine does not have, and where a launcher has started more ranks than the one that has joined
    pub fn zoff_comm_open(opts: *const zoff_comm_opts, out: *mut *mut zoff_comm) -> zoff_status;
    /// Make a group of ranks inside this process, one for each of the program's threads, to try and test several ranks. Each handle is used by one thread at a time; different handles are used in parallel.
    ///
    /// Owns: caller; each handle is closed by itself
    pub fn zoff_comm_open_threads(opts: *const zoff_comm_opts, size: c_uint, out: *mut *mut zoff_comm) -> zoff_status;
    /// Make a communicator over a transport.
    ///
    /// Owns: caller; closing it closes the transport. After an error the transport stays the caller's
    ///
    /// Return: ERR_UNSUPPORTED with the text of transport->failure, if there is one, and where world_size is 1 and the launcher has started more
    pub fn zoff_comm_open_transport(opts: *const zoff_comm_opts, transport: *const zoff_comm_transport, out: *mut *mut zoff_comm) -> zoff_status;
    /// Join ranks over NCCL, with the plug-in libzoff_nccl.so. Operations work on host memory and on device memory. NCCL cannot tell which rank is missing, so the error of an operation that timed out names no rank.
    ///
    /// Owns: caller
    ///
    /// Blocks: until all ranks have joined, or for timeout_seconds
    ///
    /// Return: ERR_UNSUPPORTED without a GPU, without NCCL 2.18 or newer, or without the plug-in
    pub fn zoff_comm_open_nccl(opts: *const zoff_nccl_opts, out: *mut *mut zoff_comm) -> zoff_status;
    /// Leave the ranks. NULL is allowed. Operations that other ranks begin afterwards, or have begun without this rank, fail at once. Call it on every rank before main() returns: where zoff has initialised MPI this call finalises it, and mpirun reports a rank that exits without as failed.
    pub fn zoff_comm_close(comm: *mut zoff_comm);
    /// Return this rank's number, from 0.
    ///
    /// Threads: any
    pub fn zoff_comm_rank(comm: *const zoff_comm) -> c_uint;
    /// Return the number of ranks.
    ///
    /// Threads: any
    pub fn zoff_comm_size(comm: *const zoff_comm) -> c_uint;
    /// Read facts and counters of a communicator.
    pub fn zoff_comm_get_info(comm: *const zoff_comm, out: *mut zoff_comm_info) -> zoff_status;
    /// Open a configuration.
    ///
    /// Owns: caller; zoff_config_close()
    ///
    /// Threads: one at a time per handle
    ///
    /// Blocks: for the read
    ///
    /// Return: ERR_INVALID with file, line, column, JSON path, expected value and nearest known key; ERR_UNSUPPORTED for a key that would change the result and that zoff does not have; ERR_IO when the file cannot be read
    pub fn zoff_config_open(path: *const c_char, out: *mut *mut zoff_config) -> zoff_status;
    /// Replace what `config` was opened with by the contents of a file. Values of zoff_config_set() stay, and win already while the file is checked: with "zoff.strict" set to false, unknown keys of the file pass.
    ///
    /// Return: as zoff_config_open(); after an error the configuration is unchanged
    pub fn zoff_config_read(config: *mut zoff_config, path: *const c_char) -> zoff_status;
    /// Replace the contents of `config` by `bytes` of JSON text; otherwise like zoff_config_read().
    pub fn zoff_config_read_text(config: *mut zoff_config, text: *const c_char, bytes: usize, name: *const c_char) -> zoff_status;
    /// Set one key, as if it stood in the file: ("optimizer.params.lr", "3e-4"). Wins over the file.
    ///
    /// Return: as zoff_config_open(); after an error the configuration is unchanged
    pub fn zoff_config_set(config: *mut zoff_config, key: *const c_char, value: *const c_char) -> zoff_status;
    /// Settle values that depend on other keys and on the number of ranks: "auto", batch sizes, old key names. zoff_engine_create() does this with the size of its communicator. A call with another size starts afresh.
    ///
    /// Return: ERR_INVALID when values contradict each other, with each value and its place
    pub fn zoff_config_resolve(config: *mut zoff_config, world_size: c_uint) -> zoff_status;
    /// Read one number of a resolved configuration, such as "optimizer.params.lr". Booleans are 0 and 1.
    ///
    /// Return: ERR_INVALID for an unknown key, or one that is not a number
    pub fn zoff_config_number(config: *const zoff_config, key: *const c_char, out: *mut f64) -> zoff_status;
    /// Read one text of a resolved configuration. *out is NULL where the key is null or not set.
    ///
    /// Owns: the configuration
    ///
    /// Return: ERR_INVALID for an unknown key, or one that is not a text
    pub fn zoff_config_string(config: *const zoff_config, key: *const c_char, out: *mut *const c_char) -> zoff_status;
    /// Write the effective configuration, one key a line: its value, and where that comes from (file and line, default, api, computed).
    ///
    /// Return: OK; *out_bytes is the length of the whole text without the final 0, also where `dst` is shorter
    pub fn zoff_config_dump(config: *const zoff_config, dst: *mut c_char, dst_bytes: usize, out_bytes: *mut usize) -> zoff_status;
    /// Write the reference of all keys as Markdown, generated from the schema that parses them; sizes as zoff_config_dump().
    pub fn zoff_config_reference(dst: *mut c_char, dst_bytes: usize, out_bytes: *mut usize) -> zoff_status;
    /// Write a JSON Schema (draft-07) of the configuration, for editors, generated from the same schema; sizes as zoff_config_dump(). Its "$comment" lists the rules that it cannot say.
    pub fn zoff_config_schema(dst: *mut c_char, dst_bytes: usize, out_bytes: *mut usize) -> zoff_status;
    /// Free a configuration. NULL is allowed.
    pub fn zoff_config_close(config: *mut zoff_config);
    /// Create an empty engine. Engines may share a communicator: then each rank creates and seals them in the same order, and makes the collective calls of all engines in one order (docs/RANKS.md).
    ///
    /// Owns: caller; zoff_engine_destroy()
    ///
    /// Blocks: with opts.ranks until all ranks have joined
    ///
    /// Return: an error leaves nothing behind; ERR_UNSUPPORTED for a progress_thread where the communicator allows calls from the program's threads only
    pub fn zoff_engine_create(opts: *const zoff_engine_opts, out: *mut *mut zoff_engine) -> zoff_status;
    /// Create an engine, add `count` parameters and seal it, in one call. Programs call it by the macro zoff_engine_open(opts, params, count, &engine). Collective over the ranks.
    ///
    /// Owns: caller; zoff_engine_destroy()
    ///
    /// Blocks: as zoff_engine_seal()
    ///
    /// Return: as zoff_engine_create(), zoff_engine_add_param() and zoff_engine_seal(); an error leaves nothing behind
    pub fn zoff_engine_open_sized(opts: *const zoff_engine_opts, params: *const zoff_param_desc, param_stride: usize, count: usize, out: *mut *mut zoff_engine) -> zoff_status;
    /// Wait for what is in flight, remove the files unless zoff.persist keeps them, leave the ranks of opts.ranks, and free the engine. NULL is allowed. A step that zoff_step_wait() has not ended is given up with a warning, and its weights may be old.
    ///
    /// With zoff.persist, ranges written since the last commit are flushed first, which is collective. An error of that flush is only logged and the files hold the last commit: call zoff_state_flush() before to get the error.
    ///
    /// Blocks: for a disk or device that does not move at most 10 s, or the communicator's timeout_seconds if that is less. Memory that the disk or device may still use stays allocated, and a warning says so
    pub fn zoff_engine_destroy(e: *mut zoff_engine);
    /// Add a parameter. Every rank adds the same parameters in the same order.
    ///
    /// Register tied weights once for each name, with the same value, count, slices, value_stride, dtype, dims and group. They share one master and one set of states, which zoff_state_read() and zoff_state_write() reach by any of the names. The engine adds up the gradients of all names in fp32; a name may have no gradient, or share the buffer of another. Any other overlap of weights or gradients is refused by zoff_engine_seal().
    ///
    /// Return: ERR_STATE once sealed; ERR_INVALID for a description that contradicts itself, or a name that another parameter has: nothing was added
    pub fn zoff_engine_add_param(e: *mut zoff_engine, desc: *const zoff_param_desc, out: *mut zoff_param) -> zoff_status;
    /// Find a parameter by its name, which is "param<index>" for one that was added without.
    ///
    /// Return: ERR_INVALID where no parameter has the name
    pub fn zoff_engine_find_param(e: *const zoff_engine, name: *const c_char, out: *mut zoff_param) -> zoff_status;
    /// Return the message of the call with this engine that has just failed, on whichever thread. Goroutines and tasks move between threads, and zoff_last_error() has the message of one thread.
    ///
    /// Owns: the engine; valid until the next call with it, also from another thread. "" before any failure
    pub fn zoff_engine_error(e: *const zoff_engine) -> *const c_char;
    /// Set the learning rate of a group, as a trainer with a schedule of its own does before each step. A scheduler of the configuration that scales the group's rate goes on from this one. With Muon it is that of matrices; zoff_engine_set_group() sets adam_lr. Legal as zoff_engine_set_group(), of which it is a short form. With zoff.speculation_memory call it before the first zoff_grad_ready() of a step, or buckets are updated again.
    ///
    /// Return: ERR_INVALID for a number out of range, or for a scheduler that computes the rate without that of the group; ERR_STATE while a step is open
    pub fn zoff_engine_set_lr(e: *mut zoff_engine, group: c_uint, lr: f64) -> zoff_status;
    /// Set the hyper-parameters of a group that differ from the configuration; ZOFF_KEEP leaves a number as it is. A learning-rate schedule still acts on lr and adam_lr, and OneCycle on the betas. Legal between steps, on every rank before the same step; groups may have different optimizers.
    ///
    /// Return: ERR_INVALID for a number out of range; ERR_STATE when seal has laid out the states of another optimizer, or of SGD without the momentum that is asked for now
    pub fn zoff_engine_set_group(e: *mut zoff_engine, group: c_uint, hyper: *const zoff_optimizer_hyper) -> zoff_status;
    /// Fill `out` with the hyper-parameters of a group: the configuration's, or those of zoff_engine_set_group(). Change one field and pass the struct to zoff_engine_set_group() or zoff_step_args.hyper.
    ///
    /// Return: ERR_INVALID for a group that no parameter is in, or a negative t
    pub fn zoff_engine_get_group(e: *const zoff_engine, group: c_uint, t: i64, out: *mut zoff_optimizer_hyper) -> zoff_status;
    /// Compute what the parameters added so far take on this rank, without allocating it.
    ///
    /// Return: ERR_INVALID or ERR_NO_MEMORY where zoff_engine_seal() would return it
    pub fn zoff_engine_plan(e: *const zoff_engine, out: *mut zoff_plan_info) -> zoff_status;
    /// Fix the list of parameters and the optimizer of each group, allocate memory and files, and take the weights as masters. The moments begin at zero. Weights on a device are read in a stream of the engine, so finish writing them before this call. Collective over the ranks.
    ///
    /// With zoff.persist, and files of an earlier engine of the same parameters in the folder, the states are those that it has recorded last. A whole step, zoff_state_flush(), zoff_step_count_set() and zoff_checkpoint_load() record them. zoff_step_count() returns the number of the step. The weights are not changed: before the next step call zoff_params_push() to set them from the states, or zoff_params_pull() to take them as masters. If nothing was recorded, the files begin anew.
    ///
    /// Blocks: seconds; for the disk and the other ranks
    ///
    /// Return: ERR_NO_MEMORY or ERR_NO_SPACE with the bytes needed, the bytes available and the key to change. ERR_IO for a path that cannot be used. ERR_INVALID for buffers that overlap. ERR_INVALID or ERR_CORRUPT for persistent files that belong to another model or are damaged, or do not have persist_t. ERR_INVALID or ERR_COMM for ranks that differ, with the values. ERR_CANCELED where zoff_engine_opts.progress returned false. After an error the engine is as before and may be sealed again
    pub fn zoff_engine_seal(e: *mut zoff_engine) -> zoff_status;
    /// Bind other buffers to a parameter, between steps; NULL leaves one as it is. Gradients may be allocated late this way, and ZOFF_NO_GRAD takes one away: then steps leave the parameter out until another buffer is bound. The weights of the new buffer are not read: see zoff_param_pull(). Those that are half of their masters (zoff.master) are copied to it from the old buffer, which must still be there.
    ///
    /// Return: ERR_INVALID for a `value` of weights that the engine owns; ERR_STATE after a gradient of the parameter was handed over (zoff_grad_ready()) or lent (zoff_grad_acquire()) for the coming step: nothing has moved
    pub fn zoff_param_bind(e: *mut zoff_engine, p: zoff_param, value: *mut c_void, grad: *mut c_void) -> zoff_status;
    /// Bind other buffers as zoff_param_bind() does, with flags.
    ///
    /// Return: as zoff_param_bind(); ERR_INVALID for unknown flags, and for ZOFF_BIND_MOVED where `value` is NULL
    pub fn zoff_param_bind_opts(e: *mut zoff_engine, p: zoff_param, value: *mut c_void, grad: *mut c_void, flags: c_uint) -> zoff_status;
    /// Return the communicator of an engine, which has the rank and the number of ranks.
    ///
    /// Owns: the engine, or the caller who passed it; never NULL for an engine
    ///
    /// Threads: any
    pub fn zoff_engine_comm(e: *const zoff_engine) -> *mut zoff_comm;
    /// Let transfers between steps continue: gradients in flight, and states that the next step begins with. zoff_grad_ready() does the same. In an open step, after its first zoff_param_wait(), it also updates the buckets that are ready. Call it now and then in a long computation, or set zoff_engine_opts.progress_thread or zoff.background_threads. Nearly free when nothing has arrived.
    ///
    /// Blocks: while it updates; never for a transfer, except for reads of the "posix" I/O back-end
    ///
    /// Return: OK: nothing is in flight; PENDING: something is; ERR_STATE before seal. The step reports an error of its work
    pub fn zoff_engine_progress(e: *mut zoff_engine) -> zoff_status;
    /// Request a clean stop of all ranks. The next update says so on every rank, by zoff_step_info.stop_requested, and so do all steps after it. Then each rank can save a checkpoint and end.
    ///
    /// A request that comes too late for the update that is under way takes effect in the one after it. A skipped step counts as an update. With gradient accumulation the last micro-step is the one that updates. There is no way to withdraw a request. The engine itself neither stops nor installs a signal handler: call this from the program's own handler, for example of SIGTERM.
    ///
    /// Threads: any, also a signal handler, from the return of zoff_engine_create() to the call of zoff_engine_destroy(). One rank is enough
    ///
    /// Blocks: never; errno and zoff_last_error() stay as they are
    pub fn zoff_engine_request_stop(e: *mut zoff_engine);
    /// Write bytes, seconds and counts since seal as one JSON object.
    ///
    /// Return: OK; *out_bytes (may be NULL) is the length of the whole text without the final 0, also where `dst` is shorter
    pub fn zoff_stats_print(e: *const zoff_engine, dst: *mut c_char, dst_bytes: usize, out_bytes: *mut usize) -> zoff_status;
    /// Take step number `t` (1, 2, ...) on one tensor. For each element, in fp32 with fused multiply-adds, first
    ///
    ///     g  = grad * grad_scale
    ///
    /// Adam (Kingma and Ba 2015, algorithm 1) and AdamW (Loshchilov and Hutter 2019, algorithm 2). Here c1 and c2 are 1 - beta^t, computed as (1 - beta) * (1 + beta + ... + beta^(t-1)) with 1 - beta and beta each rounded to fp32:
    ///
    ///     g  = fma(weight_decay, p, g)                           with ZOFF_DECAY_L2
    ///     m  = fma(1 - beta1, g, beta1 * m)
    ///     v  = fma((1 - beta2) * g, g, beta2 * v)
    ///     u  = m / fma(sqrt(v), 1 / sqrt(c2), eps)
    ///     p  = fma(-lr / c1, u, p)                               or with ZOFF_DECAY_DECOUPLED
    ///     p  = p + fma(-lr / c1, u, (-lr * weight_decay) * p)
    ///
    /// With ZOFF_HYPER_NO_BIAS_CORRECTION c1 and c2 are 1.
    ///
    /// Adagrad (Duchi, Hazan and Singer 2011, diagonal form; lr_decay as in PyTorch):
    ///
    ///     g  = fma(weight_decay, p, g)
    ///     v  = fma(g, g, v)
    ///     p  = fma(-lr / (1 + (t - 1) * lr_decay), g / (sqrt(v) + eps), p)
    ///
    /// Lion (Chen et al. 2023, algorithm 2); the sign of 0 is 0, that of NaN is NaN:
    ///
    ///     u  = sign(fma(1 - beta1, g, beta1 * m))
    ///     m  = fma(1 - beta2, g, beta2 * m)
    ///     p  = p + fma(-lr, u, (-lr * weight_decay) * p)
    ///
    /// SGD (momentum, dampening and Nesterov's form as in PyTorch). In step 1 m becomes g, without dampening. PyTorch counts steps from a parameter's first gradient; here t counts:
    ///
    ///     g  = fma(weight_decay, p, g)
    ///     m  = fma(1 - dampening, g, momentum * m)      u = m, or with nesterov u = fma(momentum, m, g)
    ///     p  = fma(-lr, u, p)                           without momentum: u = g
    ///
    /// Muon (Jordan et al. 2024), for each matrix X of a tensor with rows r and columns c. Other tensors take AdamW's step, with lr = adam_lr. The factor scale(r, c) is that of zoff_muon_scale:
    ///
    ///     m  = fma(1 - momentum, g, momentum * m)       u = m, or with nesterov u = fma(1 - momentum, g, momentum * m)
    ///     X  = U / (|U| + 1e-7)                         in double, rounded once
    ///     X  = (a + b S + c S^2) X, S = X X^T           ns_steps times, each with its own a, b and c; see below
    ///     p  = fma(-lr * scale(r, c), x, p)             or with weight_decay
    ///     p  = p + fma(-lr * scale(r, c), x, (-lr * weight_decay) * p)
    ///
    /// |U| is the root of the sum of squares: of the sums of blocks of 1,024 elements, added in order in double. An element of a product A B is a sum over k, in blocks of 256. In each block s = 0, then s = fma(A[i][k], B[k][j], s) with ascending k, and the sums of blocks are added in order. Symmetric matrices are computed in their lower triangle and mirrored. With ZOFF_MUON_STANDARD each iteration is, with X^T X and X B in place of X X^T and B X where r > c:
    ///
    ///     A  = X X^T                                    B = fma(c, A A, b * A)
    ///     X  = fma(a, X, B X)
    ///
    /// With ZOFF_MUON_GRAM, where one side is at least twice the other, iterations work on R, the A of the first one, and Q:
    ///
    ///     Z  = fma(c, R R, b * R)
    ///     Q  = Z + a I in the first iteration, else fma(a, Q, Z Q)
    ///     T  = fma(a, R, Z R)                           R = fma(a, T, Z T)
    ///
    /// In the end X = Q X. The same is done before the third iteration and each third one after it: then R is the A of the new X, and this iteration is a first one.
    ///
    /// Constants are computed in double and rounded to fp32 once. With a weight_decay of 0 its terms are left out. Subnormals are honoured, also in a process that flushes them. A NaN stays a NaN; in 16 bits it is 0x7fc0 (bf16) or 0x7e00 (fp16).
    ///
    /// The bits of the result do not depend on the instruction set or on the number of threads, except for the sign and payload of an fp32 NaN. A matrix that has a NaN or an infinite number becomes NaN as a whole.
    ///
    /// Threads: any, on disjoint memory; uses the library's threads
    ///
    /// Blocks: until done
    ///
    /// Return: ERR_INVALID for a NULL array, an unknown type, or a number out of range. ERR_NO_MEMORY for a matrix: it needs 4 r c bytes, 8 or 16 times the square of its smaller side (16 if the other is twice as long), and some 3 MiB for each thread. Nothing has changed then
    pub fn zoff_optimizer_step(hyper: *const zoff_optimizer_hyper, t: i64, grad_scale: f64, tensor: *const zoff_optimizer_tensor) -> zoff_status;
    /// Take one step on `count` tensors in one call. The threads are woken once and get equal shares in bytes, however many or small the tensors are.
    ///
    /// Threads: as zoff_optimizer_step()
    ///
    /// Blocks: until done
    ///
    /// Return: as zoff_optimizer_step(), with the index of the tensor in the message; all tensors are checked before any is changed. ERR_NO_MEMORY only with a hyper_stride, or for the largest matrix
    pub fn zoff_optimizer_step_list(hyper: *const zoff_optimizer_hyper, hyper_stride: usize, t: i64, grad_scale: f64, tensors: *const zoff_optimizer_tensor, tensor_stride: usize, count: usize) -> zoff_status;
    /// Return the instruction set of the kernels in use: "scalar", "avx2", "avx512", "neon" or "sve". The environment variable ZOFF_ISA selects one; a warning follows when a faster one would work.
    ///
    /// Owns: static text
    ///
    /// Threads: any
    pub fn zoff_isa() -> *const c_char;
    /// Take the weights as the new masters, after the caller has loaded or changed them. Moments stay.
    ///
    /// Call it after each change of weights, and before the next step, for every type and tier. If one parameter has changed, zoff_param_pull() is enough, and leaves other masters as they are. A step without either goes on from some of the changed weights and overwrites others. It goes on from fp32 weights, because they are their own masters, and from 16-bit weights that are the upper halves of their masters (zoff.master), with the old lower halves. It computes all others from the old masters. zoff.check_use refuses such a step. zoff_params_push() undoes a change instead, except of weights that are masters or half of them.
    ///
    /// This call, zoff_params_push(), zoff_param_write(), zoff_state_read(), zoff_state_write(), zoff_step_count_set() and zoff_loss_scaler_set() are for the time between two updates, because gradients in flight are in no state.
    ///
    /// Blocks: yes
    ///
    /// Return: ERR_STATE between the micro-steps of an update, and after a gradient of the next step was handed over: finish the update, or call zoff_grads_drop()
    pub fn zoff_params_pull(e: *mut zoff_engine) -> zoff_status;
    /// Take the weights of one parameter as its new masters, as zoff_params_pull() does for all. Other masters keep their bits. Tied parameters share one set. With zoff.persist the files get them as those of zoff_state_write(), at the next flush.
    ///
    /// With several ranks each one calls it in the same order, with the same weights, and sets the part of the masters that it has.
    ///
    /// Blocks: on the NVMe tier for the chunks of the parameter; never for other ranks
    ///
    /// Return: ERR_INVALID for a parameter that does not exist; ERR_STATE as zoff_params_pull(), or while a slice of it is lent. After ERR_IO or ERR_DEVICE only a part of its masters may be set: steps are ERR_STATE until it is called again
    pub fn zoff_param_pull(e: *mut zoff_engine, p: zoff_param) -> zoff_status;
    /// Write the masters to the weights, rounded as a step rounds them, after states were loaded. Collective over the ranks.
    ///
    /// After ERR_IO or ERR_DEVICE call it again on this rank: the other ranks wait for it, and it goes on where it was. If some weights were sent before the error, calls that use states or weights return ERR_STATE until then.
    ///
    /// Blocks: yes
    ///
    /// Return: ERR_STATE as zoff_params_pull()
    pub fn zoff_params_push(e: *mut zoff_engine) -> zoff_status;
    /// Copy a range of a parameter's state. Its slices are counted as one array, one after the other. Collective over the ranks.
    ///
    /// Three orders read all states once. (1) Parameter by parameter. (2) One kind of all parameters before the next kind. (3) All kinds of one range before the next range, with ranges of at most half of zoff_plan_info.chunk_bytes. The same holds for writing. On the NVMe tier the states of one kind in one chunk move together and stay in a slot until another chunk needs it. A small range in order therefore costs a copy, and a range in random order costs one kind of a chunk. The first call stops reading ahead for the next step; the next step starts it again.
    ///
    /// Units: first and count: elements
    ///
    /// Blocks: yes; on the NVMe tier for a chunk that is in no slot
    ///
    /// Return: ERR_INVALID when the range is not inside slices * count, the parameter is frozen, or its optimizer has no such state. ERR_IO also for an earlier range that could not be written: it is kept, and the next call writes it again. If a rank cannot read its part, all ranks have an error, `dst` has undefined content, and all may repeat the call
    pub fn zoff_state_read(e: *mut zoff_engine, p: zoff_param, kind: zoff_state_kind, first: usize, count: usize, dst: *mut f32) -> zoff_status;
    /// Set a range of a parameter's state; otherwise like zoff_state_read(). Moments in 16 or 8 bits are rounded to the nearest. Those in 8 bits are written in whole blocks of 1,024 elements of a slice, of which the last may be shorter. They are finite, but for up to 10 second moments of a block. Call zoff_params_push() after masters were set: some weights follow at once, and others only then. The states have the numbers at once. With zoff.persist the files get all ranges or none, at the next zoff_state_flush(), zoff_step_count_set(), step, or zoff_engine_destroy().
    ///
    /// Return: as zoff_state_read(). ERR_INVALID also for a range that cuts a block, and for numbers that it does not store
    pub fn zoff_state_write(e: *mut zoff_engine, p: zoff_param, kind: zoff_state_kind, first: usize, count: usize, src: *const f32) -> zoff_status;
    /// Write the ranges that zoff_state_write() and zoff_param_write() have put off, and make them durable with zoff.persist. Does nothing without such ranges, except where it records the bytes of zoff_persist_data(). Collective over the ranks.
    ///
    /// Blocks: for the disk
    ///
    /// Return: ERR_IO or ERR_NO_SPACE: the files hold what they held before; call it again. An error of one rank is an error of all. With zoff_persist_data() ERR_STATE between the micro-steps of an update
    pub fn zoff_state_flush(e: *mut zoff_engine) -> zoff_status;
    /// Borrow the weights of one slice of an engine-owned parameter: contiguous, aligned to 64 bytes, read-only, as the last step left them. Change them with zoff_param_write(). A slice may be lent several times. Collective over the ranks.
    ///
    /// With a device they are lent in its memory. Work that the program enqueues in `native_stream` after this call finds them. The call does not wait for copies to the device, nor for the program's work with other slices: the streams do.
    ///
    /// In an open step it lends the weights after that step, whose buckets it updates as zoff_param_wait() does. On one rank without a device the slices that it expects next are copied when they are updated. Otherwise they are copied, sent or read after that, from files one chunk at a time. With several ranks it finishes a micro-step that only adds gradients.
    ///
    /// The engine learns the order of these calls. In the next pass, from one step to the next, it reads slices ahead by stage3_prefetch_bucket_size. Slices that fit into stage3_max_live_parameters stay there for their next use.
    ///
    /// Owns: the engine; valid until the zoff_param_release() that undoes this call
    ///
    /// Blocks: for reads from files and for other ranks, where the slice was not read ahead
    ///
    /// Return: ERR_NO_MEMORY when more than stage3_max_live_parameters would be lent at a time, or no contiguous piece is free. ERR_IO or ERR_CORRUPT when the weights cannot be read: nothing is lent, call it again. An error of the open step, as zoff_param_wait(); with several ranks the step stays open, and this rank repeats the call, in which the others wait for it. ERR_STATE after a failed step that zoff_step_wait() has told
    pub fn zoff_param_fetch(e: *mut zoff_engine, p: zoff_param, slice: usize, native_stream: *mut c_void, out: *mut *const c_void) -> zoff_status;
    /// Return what one zoff_param_fetch() has lent. Before a step that updates, everything must be returned; weights may stay lent during a micro-step that only accumulates.
    ///
    /// Return: ERR_STATE for a slice that is not lent; with several ranks also after a failed step
    pub fn zoff_param_release(e: *mut zoff_engine, p: zoff_param, slice: usize, native_stream: *mut c_void) -> zoff_status;
    /// Set a range of the weights of an engine-owned parameter, and its masters. Its slices are counted as one array, one after the other. Moments stay. No part of the range may be lent. Durable as zoff_state_write() is.
    ///
    /// Units: first and count: elements; src: the parameter's type
    ///
    /// Blocks: yes
    pub fn zoff_param_write(e: *mut zoff_engine, p: zoff_param, first: usize, count: usize, src: *const c_void) -> zoff_status;
    /// Copy a range of the weights of an engine-owned parameter; otherwise like zoff_param_write(). Collective over the ranks.
    ///
    /// Return: as zoff_state_read()
    pub fn zoff_param_read(e: *mut zoff_engine, p: zoff_param, first: usize, count: usize, dst: *mut c_void) -> zoff_status;
    /// Record the program's own bytes, such as the position in its data, together with the states. For zoff.persist.
    ///
    /// If zoff_engine_seal() has found states of an earlier run, the call first copies the bytes of that commit to `data`, by name. Bytes whose name the files do not have stay as they are. From then on each commit records the bytes as they are during it: each step that updates, zoff_state_flush() and zoff_step_count_set(). So before a step, set the position to where the next run shall go on after it. A step that is skipped commits nothing: a run that ends then repeats the skipped steps, with the bytes, the loss scale and the states of the last update.
    ///
    /// Call it once, after zoff_engine_open() and before the first step. Another call replaces the list; what was recorded is copied until the first update. Collective over the ranks: each gives the same names. Bytes without each_rank are those of rank 0.
    ///
    /// zoff_checkpoint_load() commits, too. Until the program has given a list, that commit records the bytes that it loads (zoff_checkpoint_opts.data), as many entries as fit into 64 KiB, and a later call copies those.
    ///
    /// Owns: the bytes stay the caller's: keep them until the next call, or until zoff_engine_destroy() has returned
    ///
    /// Blocks: for the other ranks
    ///
    /// Return: ERR_INVALID without zoff.persist, for a list that is too long, and for a number of bytes that differs from the files': nothing was copied. ERR_STATE before seal, and between the micro-steps of an update
    pub fn zoff_persist_data(e: *mut zoff_engine, data: *const zoff_checkpoint_data, count: usize) -> zoff_status;
    /// Read the factor that the trainer multiplies its loss by in the coming micro-step; 1 without fp16.enabled. It is the same in all micro-steps of an update. The engine divides the gradients by it before it takes their norm.
    ///
    /// While a step is open it is the scale after that step, which its gradients decide.
    ///
    /// Blocks: where fp16.loss_scale is dynamic and a step is open: until all ranks have decided, as zoff_param_wait()
    ///
    /// Return: ERR_INVALID; ERR_STATE after a failed zoff_checkpoint_load(); otherwise as zoff_param_wait()
    pub fn zoff_loss_scale(e: *const zoff_engine, out: *mut f64) -> zoff_status;
    /// Read the loss scale and its counters, for a checkpoint.
    ///
    /// Return: ERR_INVALID; ERR_STATE after a failed zoff_checkpoint_load()
    pub fn zoff_loss_scaler_get(e: *const zoff_engine, out: *mut zoff_loss_scaler) -> zoff_status;
    /// Set the loss scale and its counters from a checkpoint. Fields that a shorter struct lacks stay as they are. With zoff.persist no call is needed: each commit records them, as they are after its update, and an engine that continues with the states of an earlier run continues with them. Files get what this call sets at the next step or zoff_step_count_set().
    ///
    /// Return: ERR_INVALID for a scale out of range, or one that differs from a static scale of the configuration; ERR_STATE without fp16.enabled, and in the middle of an update (see zoff_params_pull())
    pub fn zoff_loss_scaler_set(e: *mut zoff_engine, scaler: *const zoff_loss_scaler) -> zoff_status;
    /// Return the version of the library in use, as 10000 * major + 100 * minor + patch.
    ///
    /// Threads: any
    pub fn zoff_version() -> c_uint;
    /// Describe a status in a few words.
    ///
    /// Owns: static text
    ///
    /// Threads: any
    pub fn zoff_status_text(status: zoff_status) -> *const c_char;
    /// Return the message of this thread's last failed call: the cause, the place, and what to do. "" before any failure. zoff_engine_error() has that of an engine, on any thread.
    ///
    /// Owns: the library; valid until this thread's next failing call
    ///
    /// Threads: any; each thread has its own message
    pub fn zoff_last_error() -> *const c_char;
    /// Send log lines to `fn`, or to stderr when `fn` is NULL.
    ///
    /// The environment variable ZOFF_LOG_LEVEL (error, warn, info, debug, trace) sets the level. Without it stderr gets warnings, errors, and the step lines that steps_per_print asks for; a terminal also gets one line of zoff_engine_seal() about optimizer, rate, clipping and memory. `fn` gets all lines of level info.
    ///
    /// Threads: call it before anything else
    pub fn zoff_log_set(r#fn: zoff_log_fn, ctx: *mut c_void);
    /// Ask whether this build and this machine have a feature, such as "io_uring", "mpi", "cuda" or "avx512". zoff_features() lists all names.
    ///
    /// Threads: any
    ///
    /// Blocks: a few milliseconds: a plug-in is loaded to see whether it can be
    ///
    /// Return: OK: yes; ERR_UNSUPPORTED: no, and zoff_last_error() has the reason; ERR_INVALID for an unknown name
    pub fn zoff_feature(name: *const c_char) -> zoff_status;
    /// Write one line for each feature: its name, "yes" or "no", and details or the reason.
    ///
    /// Return: OK; *out_bytes (may be NULL) is the length of the whole text without the final 0, also where `dst` is shorter
    pub fn zoff_features(dst: *mut c_char, dst_bytes: usize, out_bytes: *mut usize) -> zoff_status;
    /// Declare the gradient of one slice final for this micro-step. Do not touch it until zoff_step_wait() returns.
    ///
    /// On a device the gradient is downloaded behind the work that is in the stream now. New weights are uploaded behind the work that each stream held at the last call that named it, also for frozen parameters. So enqueue work that reads weights before that call, or finish it before zoff_step_begin().
    ///
    /// Blocks: never, except: for reads of the "posix" I/O back-end; as zoff_grad_acquire() on a device from stage 2 on; as zoff_state_flush() after ranges were written. Several ranks with zoff.persist commit ranges in the step instead, because they do it together
    ///
    /// Return: ERR_STATE before seal, for a gradient that was declared twice, or without a gradient buffer. With zoff.background_threads the engine's thread may take the gradient later: then the next zoff_grad_ready() or the begin of the step returns its error
    pub fn zoff_grad_ready(e: *mut zoff_engine, p: zoff_param, slice: usize, native_stream: *mut c_void) -> zoff_status;
    /// Hand over all gradients of a backward pass that may have moved its buffers: bind each entry's buffers as zoff_param_bind_opts() does, then declare its slice ready as zoff_grad_ready() does.
    ///
    /// Parameters that are neither in the list nor handed over in this step lose their gradient buffers, as by ZOFF_NO_GRAD. So a program may free the gradients of earlier steps, and has no gradient where it does not list one. An empty list unbinds all. All entries are checked before the first one is bound. Entries for other slices of a parameter repeat its buffers, or have NULL.
    ///
    /// Blocks: as zoff_grad_ready()
    ///
    /// Return: as zoff_param_bind_opts() and zoff_grad_ready(), with the number of the entry: nothing has changed. After an error of a device, a disk or other ranks the entries before this one are handed over, and the buffers of all are bound
    pub fn zoff_grads_hand_over(e: *mut zoff_engine, list: *const zoff_handover, stride: usize, count: usize) -> zoff_status;
    /// Borrow memory for the gradient of one slice whose parameter has no buffer (zoff_param_desc.grad is NULL): contiguous, zeroed, aligned to 64 bytes. A second call for a slice that is lent returns the same memory. With a device it is memory of the device, zeroed in `native_stream`.
    ///
    /// With several ranks from stage 2 on, and with gradient accumulation, no rank holds all gradients at a time. The memory serves another slice as soon as the gradient has been sent or added up. On a device it does so in every stage and with one rank, as soon as the gradient is downloaded or packed.
    ///
    /// Owns: the engine; valid until zoff_grad_ready() of the slice, or the end of the step. With a device, memory that is not handed over must not be written by work that is still in another stream when it is acquired again
    ///
    /// Blocks: for gradients of other slices in flight, where that frees memory
    ///
    /// Return: ERR_INVALID when the caller has a buffer, or for a frozen parameter; ERR_STATE once the slice was handed over. With a device also ERR_STATE where all parameters had buffers at seal, because then no memory was reserved, and ERR_NO_MEMORY where zoff.device_memory allows no more
    pub fn zoff_grad_acquire(e: *mut zoff_engine, p: zoff_param, slice: usize, native_stream: *mut c_void, out: *mut *mut c_void) -> zoff_status;
    /// Set the weight of this rank's micro-batch. An update uses the weighted mean over all micro-batches of all ranks. If the gradients are those of a mean over tokens, for example, the weight is the number of tokens. Call it before the first zoff_grad_ready() of the micro-batch. Without a call the weight is 1. A weight of 0 means no work: the gradients count as zeros, also inf and nan. Without other ranks and without accumulation the call changes nothing.
    ///
    /// Return: ERR_INVALID for a negative number or one that is not finite in fp32; ERR_STATE after the first zoff_grad_ready()
    pub fn zoff_grad_weight(e: *mut zoff_engine, weight: f64) -> zoff_status;
    /// Take a step: declare every slice that has a gradient buffer ready, begin, and wait. Collective over the ranks.
    ///
    /// Blocks: until done or failed
    ///
    /// Return: as zoff_step_begin() and zoff_step_wait()
    pub fn zoff_step(e: *mut zoff_engine, args: *const zoff_step_args, info: *mut zoff_step_info) -> zoff_status;
    /// Measure the gradients of a step before it is taken, so that several engines of one rank can clip by one norm. Declares every slice that has a gradient buffer ready. Then join the sums of all engines, and take the step with zoff_step_args.norm_sum, by zoff_step(), or zoff_step_begin() and zoff_step_wait(). In between, weights and gradients are the engine's, and calls that need them are ERR_STATE. zoff_grads_drop() gives the step up.
    ///
    /// Collective over the ranks of the engine, as a step: all get the same sum, and must pass the same joined one.
    ///
    /// Threads: as zoff_step()
    ///
    /// Blocks: until all gradients are summed and measured, or it has failed
    ///
    /// Return: ERR_INVALID for bad arguments; ERR_STATE when a step is open, or before the last micro-step of an update; ERR_UNSUPPORTED with zoff_engine_opts.norm_comm: nothing has begun. An error while measuring, also ERR_INVALID where ranks differ, is that of all ranks (ERR_COMM where another one has it). It leaves the step failed, with weights and states unchanged. Then zoff_grads_drop() ends it, and zoff_step_retry() is ERR_STATE. zoff_grads_drop() is legal after every error
    pub fn zoff_step_measure(e: *mut zoff_engine, args: *const zoff_step_args, out: *mut zoff_norm_sum) -> zoff_status;
    /// Add the sum of another engine, whose step may have another number. Join each measurement once: zoff does not notice one that is added twice.
    ///
    /// Threads: any, one at a time on each `into`
    ///
    /// Blocks: never
    ///
    /// Return: ERR_INVALID for NULL, for bytes that are not a sum of this version, or for another factor of the gradients: `into` is unchanged
    pub fn zoff_norm_sum_join(into: *mut zoff_norm_sum, other: *const zoff_norm_sum) -> zoff_status;
    /// Read the L2 norm, after the factor of the gradients and before clipping.
    ///
    /// Threads: any
    ///
    /// Blocks: never
    ///
    /// Return: ERR_INVALID for NULL, or for bytes that are not a sum of this version
    pub fn zoff_norm_sum_value(sum: *const zoff_norm_sum, out: *mut f64) -> zoff_status;
    /// Say what the next step will use, before its first zoff_grad_ready(). With zoff.speculation_memory buckets are updated before zoff_step_begin(), as soon as their gradients are complete. Without this call they are updated with `args` NULL. Where the step then has other arguments, or clips, these buckets are updated again: results never depend on this call.
    ///
    /// Threads: as zoff_step()
    ///
    /// Blocks: never
    ///
    /// Return: ERR_INVALID for bad arguments; ERR_STATE before seal and while a step is open
    pub fn zoff_step_prepare(e: *mut zoff_engine, args: *const zoff_step_args) -> zoff_status;
    /// Begin the step with the gradients that were declared ready. From here to zoff_step_wait() weights and gradients are the engine's. Collective over the ranks.
    ///
    /// Calls that need whole states or weights finish the step first: saves and loads, zoff_params_pull() and zoff_params_push(), ranges of states and weights, zoff_loss_scaler_get(). They return its error if it fails. The next zoff_step_wait() returns its result in any case, and gradients of the next step are accepted after that.
    ///
    /// Weights and states of a slice without a gradient stay as they are. The step still counts for it, also when no slice has a gradient: bias correction and schedule use one count of updates for the whole engine, as DeepSpeed's ZeRO does. (So Adam moves a weight whose first gradient comes late by up to (1 - beta1) / sqrt(1 - beta2) times lr: 3.2 times with the default betas. torch.optim counts for each parameter.)
    ///
    /// Blocks: never, except: for reads of the "posix" I/O back-end; for reads in flight of engine-owned weights, and, with zoff.speculation_memory, of states that the step needs later; as zoff_state_flush() after ranges were written
    ///
    /// Return: ERR_INVALID, ERR_STATE, or what zoff_state_flush() returns: nothing has begun
    pub fn zoff_step_begin(e: *mut zoff_engine, args: *const zoff_step_args) -> zoff_status;
    /// Finish the step: all weights are new and all states are stored, or, when the step is skipped, nothing has changed. With gradient_accumulation_steps = k only every k-th call updates, with the mean of the k gradients, added up in fp32. Collective over the ranks.
    ///
    /// Blocks: until done or failed
    ///
    /// Return: OK, also for a skipped step (info->skipped). ERR_OVERFLOW with fp16.enabled and a dynamic loss scale that cannot become less, and from the n-th skipped step in a row on where zoff.skip_nonfinite is n. Then the step is skipped and over, nothing has changed, and the trainer decides whether to go on. ERR_STATE with zoff.check_use, for a weight that was used too early: the step is complete. Any other error leaves the step open: info->outcome tells how far it came. Then zoff_step_retry() continues it, and zoff_grads_drop() gives up a step that has changed nothing
    pub fn zoff_step_wait(e: *mut zoff_engine, info: *mut zoff_step_info) -> zoff_status;
    /// Between zoff_step_begin() and zoff_step_wait(): wait until the weights of one slice are those after the step. So a trainer can begin its next forward pass before the step is over, and call this before each use of a weight. The step is the same to the bit. Weights without such a call may change at any time until zoff_step_wait(), which must come before the first gradient of the next pass is written, except to buffers of zoff_grad_reusable(). Buckets are updated in the order in which these calls used them in earlier steps, on rank 0 if there are several, at first in that of the parameters. They are updated inside this call, inside zoff_engine_progress(), or by zoff.background_threads. Transfers go on between calls. Without an open step, and in a micro-step that only adds gradients, it returns at once.
    ///
    /// Threads: as zoff_step_wait()
    ///
    /// Blocks: until the slice is updated, or, with other ranks, until theirs are here
    ///
    /// Return: OK, also when the step is skipped: the weights stay as they are. An error of the step, which every further call and zoff_step_wait() return, too: then as after zoff_step_wait(). With several ranks and weights of the engine the step stays open, and the call is repeated. ERR_INVALID for weights of the engine, or another stream; ERR_STATE after a failed step that zoff_step_wait() has told
    pub fn zoff_param_wait(e: *mut zoff_engine, p: zoff_param, slice: usize, native_stream: *mut c_void) -> zoff_status;
    /// Wait for one slice of each of `count` parameters from `first` on, as zoff_param_wait() does for one: for all tensors of a layer, for example, whose slices are its layers.
    ///
    /// Blocks: until the last of them is updated
    ///
    /// Return: as zoff_param_wait(), for the first that fails; ERR_INVALID before any wait, also where one has no such slice
    pub fn zoff_params_wait(e: *mut zoff_engine, first: zoff_param, count: usize, slice: usize, native_stream: *mut c_void) -> zoff_status;
    /// Between zoff_step_begin() and zoff_step_wait(): wait until the engine has read the gradient of one slice, so that the program may write the next one to its buffer before zoff_step_wait(). With ZOFF_STEP_ZERO_GRADS the buffer is then cleared. Parameters with tied weights may share a buffer: one call is enough. The next gradient is handed over after zoff_step_wait(). In a micro-step that only adds gradients, the call finishes the step, as a save does. Without an open step it returns at once.
    ///
    /// Threads: as zoff_step_wait()
    ///
    /// Blocks: until the slice is updated, and with several ranks until all gradients are sent
    ///
    /// Return: as zoff_param_wait(); ERR_INVALID also for a parameter without a buffer of the program
    pub fn zoff_grad_reusable(e: *mut zoff_engine, p: zoff_param, slice: usize, native_stream: *mut c_void) -> zoff_status;
    /// Continue a step that failed, without repeating what is done. Weights and gradients must be as the failed call left them. After a flush of the drive failed (zoff.persist), everything that the step had written is written again; where the drive has lost some of it the call refuses, and only zoff_grads_drop() is left.
    ///
    /// Blocks: as zoff_step_wait()
    ///
    /// Return: as zoff_step_wait(); ERR_STATE when no step has failed
    pub fn zoff_step_retry(e: *mut zoff_engine, info: *mut zoff_step_info) -> zoff_status;
    /// Drop the gradients of this step and of all its micro-steps so far, without an update. Also ends a failed step that has changed nothing (ZOFF_OUTCOME_BEFORE). With zoff.persist it undoes a torn step: states and weights are those before it. After a flush of the drive failed it also undoes states set since the last commit. Collective over the ranks.
    ///
    /// Return: ERR_STATE for a torn step where states do not persist, or while weights are lent; ERR_IO: not undone, call it again
    pub fn zoff_grads_drop(e: *mut zoff_engine) -> zoff_status;
    /// Read the number of updates made so far.
    ///
    /// Return: ERR_INVALID; ERR_STATE after a failed zoff_checkpoint_load()
    pub fn zoff_step_count(e: *const zoff_engine, out: *mut i64) -> zoff_status;
    /// Set the number of updates after states were loaded: the next step is number `t` + 1. Flushes like zoff_state_flush(). With zoff.persist the files record it. The next engine continues with what was recorded last, also where `t` is 0. Collective over the ranks.
    ///
    /// Return: an error leaves count and files as they were; call it again
    pub fn zoff_step_count_set(e: *mut zoff_engine, t: i64) -> zoff_status;
    /// Fill `h` with the defaults of an optimizer: PyTorch's, for Lion those of its paper, for Muon DeepSpeed's. A configuration that leaves them open means DeepSpeed's defaults instead, which differ for Lion: lr 1e-3, betas 0.9 and 0.999. ZOFF_OPTIMIZER_KEEP: fill it with ZOFF_KEEP.
    ///
    /// Threads: any
    pub fn zoff_optimizer_hyper_init_sized(h: *mut zoff_optimizer_hyper, struct_size: usize, optimizer: zoff_optimizer);
}

/// `zoff_engine_open_sized()` with the size of the struct.
///
/// # Safety
/// As of that call.
#[inline]
pub unsafe fn zoff_engine_open(opts: *const zoff_engine_opts, params: *const zoff_param_desc, count: usize, out: *mut *mut zoff_engine) -> zoff_status {
    zoff_engine_open_sized(opts, params, std::mem::size_of::<zoff_param_desc>(), count, out)
}

/// `zoff_optimizer_hyper_init_sized()` with the size of the struct.
///
/// # Safety
/// As of that call.
#[inline]
pub unsafe fn zoff_optimizer_hyper_init(h: *mut zoff_optimizer_hyper, optimizer: zoff_optimizer) {
    zoff_optimizer_hyper_init_sized(h, std::mem::size_of::<zoff_optimizer_hyper>(), optimizer)
}
