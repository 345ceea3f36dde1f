! SPDX-License-Identifier: Apache-2.0
! zoff.f90: the C API of zoff. Written by bindings/make.py from share/zoff/api.json.
!
! Handles are of type(c_ptr), enumerations are integers, and unsigned numbers have the bits of signed ones. A structure begins
! with its struct_size, and everything else is zero, so set only what you need. An argument that may be NULL in C is optional.
! A text that goes to C ends with c_null_char. The module needs Fortran 2018. The manual pages of section 3 describe the calls.
module zoff
   use, intrinsic :: iso_c_binding
   implicit none

   !> The default stream of a device, in every call that takes a stream; cudaStreamLegacy of CUDA.
   type(c_ptr), parameter :: ZOFF_STREAM_DEFAULT = transfer(1_c_intptr_t, c_null_ptr)
   !> Any rank, in zoff_comm_transport.receive().
   integer(c_int), parameter :: ZOFF_COMM_ANY_RANK = -1
   !> As `grad` of zoff_param_bind(): the parameter has no gradient buffer from now on, as if it had been registered
   !  without.
   type(c_ptr), parameter :: ZOFF_NO_GRAD = transfer(1_c_intptr_t, c_null_ptr)
   integer(c_int), parameter :: ZOFF_VERSION_MAJOR = 0
   integer(c_int), parameter :: ZOFF_VERSION_MINOR = 1
   integer(c_int), parameter :: ZOFF_VERSION_PATCH = 0
   !> The value that zoff_version() of this release returns.
   integer(c_int), parameter :: ZOFF_VERSION_NUMBER = 100
   !> "Off", where 0 means "the default": do not clip (zoff_step_args.clip_norm), do not limit the time
   !  (timeout_seconds). The configuration's gradient_clipping understands it, too.
   real(c_double), parameter :: ZOFF_OFF = -1.0_c_double
   !> In a number of zoff_optimizer_hyper, keep what the group has. zoff_engine_set_group() keeps the number of the
   !  configuration, or of the last call that has set it. In zoff_step_args.hyper it is the number that the step would
   !  use without `hyper`, with the schedule. Ranks compare the numbers that result.
   real(c_double), parameter :: ZOFF_KEEP = -1e+300_c_double
   !> Version of the structs below. zoff passes it to zoff_plugin_init().
   integer(c_int), parameter :: ZOFF_PLUGIN_ABI = 1

   !> Whether to bypass the page cache.
   integer(c_int), parameter :: ZOFF_DIRECT_AUTO = 0
      !< O_DIRECT where the file system supports it; otherwise buffered, with one warning
   integer(c_int), parameter :: ZOFF_DIRECT_REQUIRE = 1
      !< O_DIRECT or an error
   integer(c_int), parameter :: ZOFF_DIRECT_OFF = 2
      !< through the page cache

   !> Flags of zoff_handover.
   integer(c_int), parameter :: ZOFF_BIND_MOVED = 1
      !< the program has moved the weights: `value` has those of the old buffer, bit by bit. Nothing is copied, and the
      !  old buffer may be gone, unless zoff_checkpoint_begin() still saves it

   !> A state of a parameter.
   integer(c_int), parameter :: ZOFF_STATE_MASTER = 0
      !< fp32 weights; for an fp32 parameter the weights themselves
   integer(c_int), parameter :: ZOFF_STATE_M = 1
      !< first moment: Adam, Lion, SGD with momentum
   integer(c_int), parameter :: ZOFF_STATE_V = 2
      !< second moment: Adam; sum of squares: Adagrad
   integer(c_int), parameter :: ZOFF_STATE_WEIGHTS = 3
      !< weights of a frozen parameter; in checkpoints only

   !> The result of a call: ZOFF_OK, ZOFF_PENDING, or an error, which is negative.
   integer(c_int), parameter :: ZOFF_OK = 0
      !< done
   integer(c_int), parameter :: ZOFF_PENDING = 1
      !< not finished yet
   integer(c_int), parameter :: ZOFF_ERR_INVALID = -1
      !< an argument or a configuration is wrong
   integer(c_int), parameter :: ZOFF_ERR_STATE = -2
      !< called at the wrong time
   integer(c_int), parameter :: ZOFF_ERR_NO_MEMORY = -3
      !< memory or memory budget exhausted
   integer(c_int), parameter :: ZOFF_ERR_UNSUPPORTED = -4
      !< not on this build or machine
   integer(c_int), parameter :: ZOFF_ERR_IO = -5
      !< storage failed
   integer(c_int), parameter :: ZOFF_ERR_NO_SPACE = -6
      !< storage is full
   integer(c_int), parameter :: ZOFF_ERR_CORRUPT = -7
      !< stored data is not what was written
   integer(c_int), parameter :: ZOFF_ERR_DEVICE = -8
      !< accelerator failed
   integer(c_int), parameter :: ZOFF_ERR_COMM = -9
      !< a peer failed or timed out
   integer(c_int), parameter :: ZOFF_ERR_OVERFLOW = -10
      !< gradients are not finite too often
   integer(c_int), parameter :: ZOFF_ERR_CANCELED = -11
      !< the program canceled it

   !> Severity of a log line.
   integer(c_int), parameter :: ZOFF_LOG_ERROR = 0
   integer(c_int), parameter :: ZOFF_LOG_WARN = 1
   integer(c_int), parameter :: ZOFF_LOG_INFO = 2
   integer(c_int), parameter :: ZOFF_LOG_DEBUG = 3
   integer(c_int), parameter :: ZOFF_LOG_TRACE = 4

   !> Flags of zoff_step_args.
   integer(c_int), parameter :: ZOFF_STEP_ZERO_GRADS = 1
      !< set the gradients to zero once they are used, also when the step is skipped

   !> State of the weights and optimizer states when a call on a step returns.
   integer(c_int), parameter :: ZOFF_OUTCOME_BEFORE = 0
      !< the state before the step
   integer(c_int), parameter :: ZOFF_OUTCOME_AFTER = 1
      !< the step is complete
   integer(c_int), parameter :: ZOFF_OUTCOME_TORN = 2
      !< the step failed half way. zoff_step_retry() finishes it; with zoff.persist zoff_grads_drop() undoes it

   !> Element type. ZOFF_DTYPE_DEFAULT is fp32 for weights, and the type of the weights for gradients.
   integer(c_int), parameter :: ZOFF_DTYPE_DEFAULT = 0
   integer(c_int), parameter :: ZOFF_F32 = 1
   integer(c_int), parameter :: ZOFF_F16 = 2
   integer(c_int), parameter :: ZOFF_BF16 = 3

   !> Where optimizer states are between steps.
   integer(c_int), parameter :: ZOFF_TIER_AUTO = 0
      !< the tier of the configuration; DRAM without one
   integer(c_int), parameter :: ZOFF_TIER_HOST = 1
      !< DRAM
   integer(c_int), parameter :: ZOFF_TIER_NVME = 2
      !< files under nvme_path, streamed through a DRAM budget

   !> The update rule. See zoff_optimizer_step() for the formulas.
   integer(c_int), parameter :: ZOFF_OPTIMIZER_KEEP = -1
      !< the rule of the group, with each field that is no number: see ZOFF_KEEP
   integer(c_int), parameter :: ZOFF_OPTIMIZER_ADAM = 0
      !< Adam and AdamW; states m and v
   integer(c_int), parameter :: ZOFF_OPTIMIZER_ADAGRAD = 1
      !< state v: the sum of squares
   integer(c_int), parameter :: ZOFF_OPTIMIZER_LION = 2
      !< state m
   integer(c_int), parameter :: ZOFF_OPTIMIZER_SGD = 3
      !< state m if there is momentum, otherwise no state
   integer(c_int), parameter :: ZOFF_OPTIMIZER_MUON = 4
      !< Muon; state m of a matrix. Tensors that are no matrices get AdamW, with states m and v

   !> How weight decay enters Adam. Adagrad and SGD always add it to the gradient; Lion never does.
   integer(c_int), parameter :: ZOFF_DECAY_DECOUPLED = 0
      !< AdamW: p -= lr * weight_decay * p
   integer(c_int), parameter :: ZOFF_DECAY_L2 = 1
      !< Adam: g += weight_decay * p

   !> How Muon orthogonalizes. Both methods compute the same function with other roundings.
   integer(c_int), parameter :: ZOFF_MUON_GRAM = 0
      !< over the matrix's Gram matrix where one side is at least twice the other; else standard
   integer(c_int), parameter :: ZOFF_MUON_STANDARD = 1
      !< over the matrix itself

   !> The factor of Muon's learning rate, for a matrix of r rows and c columns.
   integer(c_int), parameter :: ZOFF_MUON_SCALE_ORIGINAL = 0
      !< sqrt(max(1, r / c))
   integer(c_int), parameter :: ZOFF_MUON_SCALE_MATCH_RMS_ADAMW = 1
      !< 0.2 * sqrt(max(r, c)): updates as large as those of AdamW
   integer(c_int), parameter :: ZOFF_MUON_SCALE_SPECTRAL = 2
      !< sqrt(max(r, c))
   integer(c_int), parameter :: ZOFF_MUON_SCALE_UNIT_RMS_NORM = 3
      !< sqrt(r / c)

   !> The polynomials of Muon's iterations.
   integer(c_int), parameter :: ZOFF_MUON_SIMPLE = 0
      !< one for all iterations (Jordan et al. 2024)
   integer(c_int), parameter :: ZOFF_MUON_QUINTIC = 1
      !< five, repeated (Cesista et al. 2025)
   integer(c_int), parameter :: ZOFF_MUON_POLAR_EXPRESS = 2
      !< eight, of which the last is repeated (Amsel et al. 2025)
   integer(c_int), parameter :: ZOFF_MUON_CANS = 3
      !< five, of which the last is repeated (Grishina et al. 2025)
   integer(c_int), parameter :: ZOFF_MUON_DEEPSEEKV4 = 4
      !< ten, of which the last is repeated (DeepSeek-V4)

   !> Flags of zoff_optimizer_hyper.
   integer(c_int64_t), parameter :: ZOFF_HYPER_NO_BIAS_CORRECTION = 1
      !< Adam, also Muon's AdamW: do not divide the moments by 1 - beta^t (bias_correction false in DeepSpeed)

   !> Facts and counters of a device.
   type, bind(c) :: zoff_accel_info
      integer(c_size_t) :: struct_size = 80
         !< set by ZOFF_ACCEL_INFO_INIT
      type(c_ptr) :: backend = c_null_ptr
         !< static text
      type(c_ptr) :: name = c_null_ptr
         !< name of the device; valid until it is closed
      integer(c_int) :: index = 0
         !< index, as passed to zoff_accel_open()
      integer(c_int) :: numa_node = 0
         !< host node that the device is attached to; -1: none, or unknown
      integer(c_int64_t) :: memory_bytes = 0
         !< device memory
      integer(c_int64_t) :: pinned_bytes = 0
         !< host memory pinned now
      integer(c_int64_t) :: pin_refused_bytes = 0
         !< host memory that the system refused to pin, in all
      integer(c_int64_t) :: bounced_bytes = 0
         !< bytes copied through another pinned buffer because their own memory could not be pinned
      integer(c_int64_t) :: pageable_copies = 0
         !< copies from or to memory that is not pinned: always 0
      integer(c_int64_t) :: allocated_bytes = 0
         !< device memory that engines hold now
   end type zoff_accel_info

   !> Options of a queue. All zero: defaults.
   type, bind(c) :: zoff_aio_opts
      integer(c_size_t) :: struct_size = 40
         !< set by ZOFF_AIO_OPTS_INIT
      type(c_ptr) :: backend = c_null_ptr
         !< "io_uring"; "threads": pread and pwrite by up to 8 threads; "posix": by the caller; NULL or "auto": the
         !  first of these that works
      integer(c_size_t) :: block_bytes = 0
         !< a request is split into pieces of this size; 0: 2 MiB; at most 1 GiB
      integer(c_int) :: depth = 0
         !< most pieces in flight; 0: 32
      integer(c_int) :: direct = 0
         !< default AUTO
      logical(c_bool) :: writable = .false.
         !< open for writing, too
      logical(c_bool) :: create = .false.
         !< create the file if it does not exist (mode 0600); needs writable
   end type zoff_aio_opts

   !> Facts and counters of a queue.
   type, bind(c) :: zoff_aio_info
      integer(c_size_t) :: struct_size = 64
         !< set by ZOFF_AIO_INFO_INIT
      type(c_ptr) :: backend = c_null_ptr
         !< "io_uring", "threads" or "posix"; static text
      logical(c_bool) :: direct = .false.
         !< O_DIRECT is in use
      logical(c_bool) :: registered = .false.
         !< the kernel has pinned the memory given to zoff_aio_register()
      integer(c_size_t) :: alignment = 0
         !< bytes to which memory, offset and length of a request are aligned if it needs no copy
      integer(c_int64_t) :: read_bytes = 0
         !< bytes read from the file since open
      integer(c_int64_t) :: write_bytes = 0
         !< bytes written to the file since open
      integer(c_int64_t) :: bounce_bytes = 0
         !< bytes of both that were copied through aligned memory of the queue
      integer(c_int64_t) :: resumed_pieces = 0
         !< pieces that the kernel moved partly, so that the rest was submitted again
   end type zoff_aio_info

   !> Options of a measurement. All zero: defaults.
   type, bind(c) :: zoff_aio_tune_opts
      integer(c_size_t) :: struct_size = 32
         !< set by ZOFF_AIO_TUNE_OPTS_INIT
      type(c_ptr) :: backend = c_null_ptr
         !< back-end, as in zoff_aio_opts
      real(c_double) :: seconds = 0
         !< longest measurement; 0: 2; at most 60
      integer(c_int) :: direct = 0
         !< page cache, as in zoff_aio_opts
      logical(c_bool) :: fresh = .false.
         !< measure again, although the folder has an earlier result
   end type zoff_aio_tune_opts

   !> The settings with which a folder is fastest, and its rates with them.
   type, bind(c) :: zoff_aio_tune_result
      integer(c_size_t) :: struct_size = 104
         !< set by ZOFF_AIO_TUNE_RESULT_INIT
      integer(c_size_t) :: block_bytes = 0
         !< block size for zoff_aio_opts: 512 KiB, 1 MiB or 4 MiB
      type(c_ptr) :: backend = c_null_ptr
         !< back-end that was measured; static text
      real(c_double) :: read_rate = 0
         !< bytes per second, reading alone
      real(c_double) :: write_rate = 0
         !< bytes per second, writing alone
      real(c_double) :: mixed_rate = 0
         !< bytes per second of both, half reading, half writing; this rate decides
      real(c_double) :: seconds = 0
         !< duration of the measurement
      integer(c_int64_t) :: device = 0
         !< st_dev of the folder
      character(kind=c_char) :: file_system(32) = c_null_char
         !< "ext4"
      integer(c_int) :: depth = 0
         !< depth for zoff_aio_opts: 8, 16 or 32
      logical(c_bool) :: direct = .false.
         !< O_DIRECT was in use
      logical(c_bool) :: registered = .false.
         !< the memory was registered
      logical(c_bool) :: cached = .false.
         !< an earlier result of this folder, not measured now
   end type zoff_aio_tune_result

   !> Bytes of the program that a checkpoint carries, such as the state of a random generator or a position in the data.
   type, bind(c) :: zoff_checkpoint_data
      type(c_ptr) :: name = c_null_ptr
         !< name, unique in its list; at most 255 bytes
      type(c_ptr) :: bytes = c_null_ptr
         !< memory that a save reads before it returns, and a load writes
      integer(c_size_t) :: count = 0
         !< number of bytes; a load fails if the checkpoint has another one
      logical(c_bool) :: each_rank = .false.
         !< each rank has its own, and as many ranks load them; false: rank 0 saves, all ranks load
   end type zoff_checkpoint_data

   !> Options of a save or a load. All zero: defaults.
   type, bind(c) :: zoff_checkpoint_opts
      integer(c_size_t) :: struct_size = 88
         !< set by ZOFF_CHECKPOINT_OPTS_INIT
      type(c_ptr) :: data = c_null_ptr
         !< data_count entries of the program's own bytes. A load ignores other entries of the checkpoint
      integer(c_size_t) :: data_count = 0
      type(c_ptr) :: name = c_null_ptr
         !< name of the checkpoint's folder. NULL: a save takes "step-" and ten digits, a load the newest. An engine
         !  that saves alone with a label puts the label and a "." before it
      type(c_ptr) :: label = c_null_ptr
         !< names an engine where several save into one folder, such as "tp0.pp1": letters, digits, ".", "_", "-"; at
         !  most 200. A load needs the same. NULL: the only one
      integer(c_int) :: engines = 0
         !< save: engines that save into this checkpoint, each with its label; it is complete when all have. 0 means 1
      integer(c_int) :: keep = 0
         !< save: complete checkpoints that stay in the folder, the new one included; 0: all. Pinned ones stay beside
         !  them
      integer(c_int64_t) :: memory = 0
         !< every save: most DRAM in bytes for states on their way to the disk. Beside steps it also has the copies of
         !  states that a step changes; beyond it updates wait for the disk. 0: 64 MiB; at least three units, see
         !  docs/MEMORY.md
      logical(c_bool) :: skip_frozen = .false.
         !< save: leave frozen weights out; a load leaves them as they are
      logical(c_bool) :: refuse_if_busy = .false.
         !< save and begin: return ERR_STATE while an earlier save of this engine is under way. false: wait until it has
         !  ended
      type(c_ptr) :: allow = c_null_ptr
         !< load: names of parameters that may be missing, extra or different, as patterns separated by spaces, "*" for
         !  any text
      type(c_ptr) :: data_found = c_null_ptr
         !< load: data_count flags, set by a load that succeeds: whether the checkpoint has these bytes for this rank.
         !  An imported checkpoint has none. Bytes that it lacks stay as they are. NULL: all of `data` must be there
      logical(c_bool) :: pinned = .false.
         !< save: pin the checkpoint as zoff_checkpoint_pin() does. One of several engines is enough
      logical(c_bool) :: weights_only = .false.
         !< load: take masters and frozen weights, and begin the rest as a new engine does: moments and number of
         !  updates at zero. For another optimizer, or to fine-tune; see zoff_checkpoint_load()
   end type zoff_checkpoint_opts

   !> The dynamic loss scale of fp16 training, complete: a checkpoint that keeps these numbers continues with the same
   !  scales. They are cur_scale, cur_iter, last_overflow_iter and cur_hysteresis of DeepSpeed's checkpoints.
   type, bind(c) :: zoff_loss_scaler
      integer(c_size_t) :: struct_size = 40
         !< set by ZOFF_LOSS_SCALER_INIT
      real(c_double) :: scale = 0
         !< the trainer multiplies its loss by this
      integer(c_int64_t) :: iterations = 0
         !< steps taken, including skipped ones
      integer(c_int64_t) :: last_overflow = 0
         !< the latest skipped step, counted from 0; -1: none
      integer(c_int64_t) :: hysteresis = 0
         !< overflows until the scale is halved; 1: the next one
   end type zoff_loss_scaler

   !> Facts of a checkpoint.
   type, bind(c) :: zoff_checkpoint_info
      integer(c_size_t) :: struct_size = 120
         !< set by ZOFF_CHECKPOINT_INFO_INIT
      type(c_ptr) :: folder = c_null_ptr
         !< the checkpoint's own folder
      type(c_ptr) :: id = c_null_ptr
         !< 16 hexadecimal digits, new for each save
      type(c_ptr) :: label = c_null_ptr
         !< label of the engine; "" for the only one
      integer(c_int64_t) :: t = 0
         !< updates made
      integer(c_int64_t) :: bytes = 0
         !< bytes of all files
      integer(c_size_t) :: param_count = 0
         !< parameters, tied ones included
      integer(c_int) :: ranks = 0
         !< ranks that have written the checkpoint
      logical(c_bool) :: has_loss_scaler = .false.
         !< loss_scaler is set
      type(zoff_loss_scaler) :: loss_scaler
      integer(c_size_t) :: data_count = 0
         !< bytes of the program: entries of zoff_checkpoint_reader_data_at()
      logical(c_bool) :: pinned = .false.
         !< zoff_checkpoint_opts.keep of later saves does not remove the checkpoint
   end type zoff_checkpoint_info

   !> One parameter of a checkpoint.
   type, bind(c) :: zoff_checkpoint_param
      integer(c_size_t) :: struct_size = 80
         !< set by ZOFF_CHECKPOINT_PARAM_INIT
      type(c_ptr) :: name = c_null_ptr
         !< any bytes, 0-terminated; at most 4095
      type(c_ptr) :: slice_name = c_null_ptr
         !< as zoff_param_desc.slice_name; NULL: none
      type(c_ptr) :: tied_to = c_null_ptr
         !< the parameter that has the states; NULL: this one
      type(c_ptr) :: dims = c_null_ptr
         !< shape of a slice; their product is `count`
      integer(c_size_t) :: dim_count = 0
         !< number of dims; a writer takes 0 as one dimension of `count`
      integer(c_size_t) :: count = 0
         !< elements of a slice, and slices
      integer(c_size_t) :: slices = 0
         !< elements of a slice, and slices
      integer(c_int) :: dtype = 0
         !< type of the weights
      integer(c_int) :: states = 0
         !< bits: k for state k of zoff_state_kind. Frozen parameters have ZOFF_STATE_WEIGHTS alone
      type(c_ptr) :: rule = c_null_ptr
         !< "muon": m is that of its matrices; NULL: its optimizer updates each element by itself
   end type zoff_checkpoint_param

   !> Options of a communicator. All zero: this rank alone.
   type, bind(c) :: zoff_comm_opts
      integer(c_size_t) :: struct_size = 24
         !< set by ZOFF_COMM_OPTS_INIT
      type(c_ptr) :: backend = c_null_ptr
         !< NULL or "self": one rank. "mpi": MPI_COMM_WORLD. "nccl", "ucx": the ranks in the launcher's variables.
         !  "auto": whichever the launcher started. "threads": see zoff_comm_open_threads()
      real(c_double) :: timeout_seconds = 0
         !< how long an operation waits for other ranks, and an engine for a disk or device that neither moves nor
         !  fails; 0: 600; ZOFF_OFF: no limit
   end type zoff_comm_opts

   !> Facts and counters of a communicator.
   type, bind(c) :: zoff_comm_info
      integer(c_size_t) :: struct_size = 72
         !< set by ZOFF_COMM_INFO_INIT
      type(c_ptr) :: backend = c_null_ptr
         !< name; static text, or over a zoff_comm_transport its name
      integer(c_int) :: rank = 0
         !< as zoff_comm_rank() and zoff_comm_size()
      integer(c_int) :: size = 0
         !< as zoff_comm_rank() and zoff_comm_size()
      integer(c_int64_t) :: operations = 0
         !< finished collective operations of all engines
      integer(c_int64_t) :: sent_bytes = 0
         !< bytes that these operations sent to other ranks
      integer(c_int64_t) :: received_bytes = 0
         !< bytes that these operations received from other ranks
      integer(c_int64_t) :: node_bytes = 0
         !< the part of `sent_bytes` to ranks of the same node; all of it until an engine has looked at the hosts. 0 if
         !  hosts have different numbers of ranks, or ranks that are not consecutive
      integer(c_int64_t) :: notes = 0
         !< headers that these operations sent; small pieces are inside. 0 over NCCL
      integer(c_int64_t) :: messages = 0
         !< messages beside them, for larger pieces. 0 over NCCL
   end type zoff_comm_info

   !> Point-to-point messages, from which zoff builds its collective operations. An adapter to a network fills this
   !  struct; zoff/mpi.h has the one for MPI.
   type, bind(c) :: zoff_comm_transport
      integer(c_size_t) :: struct_size = 128
         !< set by ZOFF_COMM_TRANSPORT_INIT
      type(c_ptr) :: name = c_null_ptr
         !< static text, for messages
      type(c_ptr) :: ctx = c_null_ptr
         !< first argument of the functions
      integer(c_int) :: rank = 0
         !< rank of this process, and number of ranks
      integer(c_int) :: size = 0
         !< rank of this process, and number of ranks
      integer(c_size_t) :: most_bytes = 0
         !< most bytes of one message; 0: 64 MiB
      real(c_double) :: close_seconds = 0
         !< how long zoff_comm_close() waits until other ranks close, too; 0: not at all
      type(c_funptr) :: send = c_null_funptr
         !< Begin to send, or to receive from a rank or ZOFF_COMM_ANY_RANK. The memory is in use until test() returns 1.
      type(c_funptr) :: receive = c_null_funptr
         !< Begin to send, or to receive from a rank or ZOFF_COMM_ANY_RANK. The memory is in use until test() returns 1.
      type(c_funptr) :: test = c_null_funptr
         !< returns 1: done, and the request is freed; 0: not yet
      type(c_funptr) :: cancel = c_null_funptr
         !< cancel a receive; test() then returns 1 when it has ended
      type(c_funptr) :: error = c_null_funptr
         !< message of the last error
      type(c_funptr) :: close = c_null_funptr
         !< Free ctx. `clean` is 0 when messages may still be in flight: then the memory that they use must stay.
      type(c_ptr) :: failure = c_null_ptr
         !< reason why there is no transport, in which case nothing else is read; NULL: there is one
      integer(c_int) :: any_thread = 0
         !< not 0 if any thread may call the functions, one at a time, while others of the program run. Needed for
         !  zoff_engine_opts.progress_thread
      integer(c_size_t) :: world_size = 0
         !< all ranks that the network knows, where the program asked for all or some of them; 0: not compared with the
         !  launcher. A world of one rank beside launcher's variables of more is an error
      integer(c_int) :: node_ranks = 0
         !< ranks of a node, which are consecutive; 0: not known, so the engine compares hosts
   end type zoff_comm_transport

   !> Options of a communicator over NCCL: either `nccl_comm`, or rank, size, device and broadcast.
   type, bind(c) :: zoff_nccl_opts
      integer(c_size_t) :: struct_size = 64
         !< set by ZOFF_NCCL_OPTS_INIT
      integer(c_int) :: rank = 0
         !< rank of this process, and number of ranks
      integer(c_int) :: size = 0
         !< rank of this process, and number of ranks
      integer(c_int) :: device = 0
         !< index of the CUDA device; -1: the thread's current one
      real(c_double) :: timeout_seconds = 0
         !< as zoff_comm_opts.timeout_seconds; also limits joining
      type(c_funptr) :: broadcast = c_null_funptr
         !< Copy bytes from rank 0 to all ranks, such as MPI_Bcast(). Every rank calls it once; it may block. @return 0
      type(c_ptr) :: ctx = c_null_ptr
         !< argument of broadcast
      type(c_ptr) :: nccl_comm = c_null_ptr
         !< An ncclComm_t of the program. zoff splits communicators of its own off and does not use this one afterwards.
         !  A blocking one waits for other ranks without a limit. One made with splitShare 1 is aborted together with
         !  zoff's: leave that at 0, NCCL's default.
      type(c_ptr) :: nccl_stream = c_null_ptr
         !< the cudaStream_t in which the program uses nccl_comm. The split waits for the work in it, as NCCL requires.
         !  NULL: nothing of nccl_comm is in flight. Name a default stream as cudaStreamLegacy or cudaStreamPerThread
   end type zoff_nccl_opts

   !> Options of an engine. A value given here wins over the configuration. All zero: the default configuration, on the
   !  host, one rank.
   type, bind(c) :: zoff_engine_opts
      integer(c_size_t) :: struct_size = 120
         !< set by ZOFF_ENGINE_OPTS_INIT
      type(c_ptr) :: config_path = c_null_ptr
         !< a ds_config file; NULL: defaults. Ignored when `config` is given
      type(c_ptr) :: config = c_null_ptr
         !< an open configuration; read during create, stays the caller's
      type(c_ptr) :: accel = c_null_ptr
         !< device that holds weights and gradients; NULL: the host. Borrowed until destroy
      type(c_ptr) :: comm = c_null_ptr
         !< the ranks; NULL: see `ranks`. Borrowed until destroy
      type(c_ptr) :: ranks = c_null_ptr
         !< join these ranks, and leave them at destroy: "auto", "mpi", "nccl", as zoff_comm_opts.backend; NULL: this
         !  rank alone. Not together with `comm`
      integer(c_int) :: state_tier = 0
         !< tier of the states; AUTO: NVME with nvme_path, otherwise offload_optimizer.device
      type(c_ptr) :: nvme_path = c_null_ptr
         !< folder for state files, and for files of weights without a folder of their own; NULL:
         !  offload_optimizer.nvme_path
      integer(c_int64_t) :: host_bytes = 0
         !< DRAM budget for states; 0: zoff.host_memory
      integer(c_int64_t) :: chunk_elements = 0
         !< largest chunk in which states are stored and moved, at least 1024; 0: automatic
      integer(c_int) :: threads = 0
         !< threads of the update; 0: zoff.threads, by default one for each physical core
      logical(c_bool) :: progress_thread = .false.
         !< run zoff_engine_progress() on a thread of the engine while the program computes, without updates of an open
         !  step (zoff.background_threads adds those). Useful with several ranks from stage 2 on, or on a device. The
         !  thread polls 5,000 times a second while something is in flight and sleeps otherwise. Calls of the engine
         !  wait while it adds up gradients. Several engines on one communicator may have one each
      integer(c_int64_t) :: persist_t = 0
         !< with zoff.persist: open the states after this update. The files have the last commit and, until the next
         !  step begins to write, the one before it. Opening that one compares all of it with its checksums and then
         !  removes the newer one. 0: the last. Another number is ERR_INVALID, which lists those that there are
      type(c_funptr) :: progress = c_null_funptr
         !< called by seal at least every 64 MiB that it writes to files or reads from them, or every aio.block_size *
         !  aio.queue_depth bytes if that is more; if it returns false, seal ends with ERR_CANCELED on all ranks. NULL:
         !  a line of level info every 5 seconds
      type(c_ptr) :: progress_ctx = c_null_ptr
         !< passed to progress
      type(c_ptr) :: norm_comm = c_null_ptr
         !< ranks whose engines train other parts of one model, as tensor and pipeline parallel ranks do: gradient norm,
         !  clipping, skipped steps and zoff_engine_request_stop() are those of all of them. Every rank of `comm` gives
         !  one, and has the same rank in it. Seal, steps and zoff_grads_drop() are then collective over it, too. NULL:
         !  the norm is that of this engine. Borrowed until destroy
   end type zoff_engine_opts

   !> A parameter: `slices` arrays of `count` elements each, `value_stride` apart, as C trainers stack their layers.
   type, bind(c) :: zoff_param_desc
      integer(c_size_t) :: struct_size = 136
         !< set by ZOFF_PARAM_DESC_INIT; zoff_engine_open() accepts 0
      type(c_ptr) :: value = c_null_ptr
         !< weights; read at seal, written by each step. May be NULL when count is 0
      type(c_ptr) :: grad = c_null_ptr
         !< gradients; NULL: bound later, lent by zoff_grad_acquire(), or none. With a device, a parameter without it at
         !  seal reserves memory to lend, and the host measures the gradients
      integer(c_size_t) :: count = 0
         !< elements of a slice; 0, 1 and more than 2^31 are legal
      integer(c_size_t) :: slices = 0
         !< number of slices; 0 means 1
      integer(c_size_t) :: value_stride = 0
         !< elements from one slice to the next; 0 means count
      integer(c_size_t) :: grad_stride = 0
         !< elements from one slice to the next; 0 means count
      integer(c_int) :: dtype = 0
         !< type of value: ZOFF_F32 (default), ZOFF_BF16 or ZOFF_F16
      integer(c_int) :: grad_dtype = 0
         !< type of grad: any type beside any dtype; 0 means the same as dtype
      integer(c_int) :: group = 0
         !< index of the parameter's group of hyper-parameters
      logical(c_bool) :: frozen = .false.
         !< never updated; has no states
      type(c_ptr) :: name = c_null_ptr
         !< name in messages, checkpoints and exports; at most 4,095 bytes, and no other parameter may have it; copied;
         !  NULL: "param<index>"
      logical(c_bool) :: engine_owned = .false.
         !< the engine owns the weights: see zoff_param_fetch(). `value` may point to the first weights, which seal
         !  reads once, in host memory also where the engine has a device; NULL: zeros, until zoff_param_write()
      type(c_ptr) :: dims = c_null_ptr
         !< shape of a slice, for checkpoints and exports; copied. NULL: one dimension of `count`
      integer(c_size_t) :: dim_count = 0
         !< dimensions in `dims`, 1 to 64; their product must be `count`. 0 where dims is NULL
      type(c_ptr) :: slice_name = c_null_ptr
         !< name of one slice in exports: "{}", once in it, becomes the index of the slice, as in "layers.{}.weight"; at
         !  most 4,095 bytes; copied. No other parameter or slice may have the resulting names. NULL: slices are
         !  exported as one tensor
      logical(c_bool) :: norm_replicated = .false.
         !< other ranks of norm_comm have this parameter by the same name, with the same first weights and gradients:
         !  its norm counts once, on the lowest of them. Seal compares the weights, and each step that measures the
         !  gradients compares the sums of squares of their blocks: a difference is ERR_INVALID on all ranks, names the
         !  parameter, and changes nothing
      logical(c_bool) :: reduced = .false.
         !< every rank of the engine hands over the same gradient, which the trainer has reduced itself: the engine
         !  neither exchanges nor averages it. The owner of an element reads its own copy, for the norm, the check for
         !  inf and nan, and the update. Steps compare the bits of all copies: 16 blocks of 1,024 elements of each
         !  slice, and other blocks in the next step. A difference is ERR_INVALID on all ranks, names the parameter, and
         !  changes nothing. Not for several ranks whose communicator reaches the memory of the device
      type(c_ptr) :: matrix_rows = c_null_ptr
         !< for Muon: a slice is read as dims[0] rows, which are cut into matrices of so many rows, in this order, again
         !  and again: {4096, 1024, 1024} for a fused QKV. Their sum divides dims[0]. Copied. NULL: zoff.muon_rows or
         !  dims decide
      integer(c_size_t) :: matrix_row_count = 0
         !< numbers in `matrix_rows`; 0 where it is NULL
   end type zoff_param_desc

   !> Traffic of this rank with others, as zoff_comm_info counts it.
   type, bind(c) :: zoff_plan_traffic
      integer(c_int64_t) :: sent_bytes = 0
         !< to other ranks
      integer(c_int64_t) :: node_bytes = 0
         !< part of sent_bytes to ranks of the same node; all of it where nodes are not known
      integer(c_int64_t) :: notes = 0
         !< headers
      integer(c_int64_t) :: messages = 0
         !< other messages
   end type zoff_plan_traffic

   !> Memory, files and traffic of an engine on this rank. The engine allocates by the same numbers.
   type, bind(c) :: zoff_plan_info
      integer(c_size_t) :: struct_size = 360
         !< set by ZOFF_PLAN_INFO_INIT
      integer(c_int) :: tier = 0
         !< tier of the states
      integer(c_int64_t) :: elements = 0
         !< trainable elements of this rank
      integer(c_int64_t) :: state_bytes = 0
         !< masters and moments, without padding
      integer(c_int64_t) :: host_bytes = 0
         !< DRAM for states: all of them; on the NVMe tier the slots and resident_bytes
      integer(c_int64_t) :: nvme_bytes = 0
         !< files of states, padded; doubled by zoff.persist and by zoff.speculation_memory. Each file also has a header
      integer(c_int64_t) :: accumulator_bytes = 0
         !< DRAM for gradient accumulation in fp32, and for sums of tied gradients
      integer(c_int64_t) :: chunk_count = 0
         !< chunks in which states are stored and moved
      integer(c_int64_t) :: chunk_bytes = 0
         !< size of the largest chunk
      integer(c_int) :: slots = 0
         !< chunks in DRAM at a time on the NVMe tier; 0 on the host tier
      integer(c_int) :: threads = 0
         !< threads of the update
      integer(c_int64_t) :: resident_bytes = 0
         !< NVMe tier: states that stay in DRAM because the budget has room beside the slots. Part of host_bytes; in
         !  files only with zoff.persist
      integer(c_int64_t) :: step_read_bytes = 0
         !< bytes read from files in a step that updates every parameter
      integer(c_int64_t) :: step_write_bytes = 0
         !< bytes written to files in such a step
      integer(c_int64_t) :: weight_bytes = 0
         !< weights that the engine owns, without padding
      integer(c_int64_t) :: weight_host_bytes = 0
         !< DRAM for engine-owned weights: all, or buffers, cached ones, and slices that are lent. With a device: stored
         !  ones, buffers, and small slices that stay whole
      integer(c_int64_t) :: weight_nvme_bytes = 0
         !< files of weights
      integer(c_int64_t) :: exchange_bytes = 0
         !< DRAM for data to and from other ranks; 0 for one rank
      integer(c_int64_t) :: device_host_bytes = 0
         !< DRAM for gradients downloaded from a device, weights to upload, and 8 bytes for each 1024 elements whose
         !  norm is measured there; 0 where the CPU reaches the device's memory. From stage 2 on gradients also take the
         !  bytes in flight
      integer(c_int64_t) :: device_bytes = 0
         !< device memory: the states that offload_optimizer.ratio leaves there, with sums of their gradients; where the
         !  communicator reaches the device, staging and sums of the exchange; weights of the engine that are stored or
         !  whole there; and gradients that it lends, twice reduce_bucket_size at most. zoff.device_memory limits it
      integer(c_int64_t) :: memory_bytes = 0
         !< DRAM in all: host_bytes, accumulator_bytes, weight_host_bytes, exchange_bytes, device_host_bytes,
         !  speculation_bytes, nvme_memory_bytes and matrix_bytes. zoff.host_memory limits only the first
      integer(c_int64_t) :: memory_free_bytes = 0
         !< DRAM that this process can still allocate, by the machine and its cgroups
      integer(c_int64_t) :: save_bytes = 0
         !< DRAM beside memory_bytes while a checkpoint is saved, at most: copies of states, by the default of
         !  zoff_checkpoint_opts.memory
      integer(c_int64_t) :: speculation_bytes = 0
         !< DRAM for buckets that are updated ahead of a step: zoff.speculation_memory, or less where all buckets need
         !  less. For states in DRAM at most 1/15 of them more, so that chunks of about the same size can change places
      integer(c_int64_t) :: nvme_memory_bytes = 0
         !< DRAM for files of states and weights whose folder is in memory (tmpfs, or an overlay on it), beside what
         !  such files of an earlier run have already. Part of memory_bytes
      integer(c_int64_t) :: matrix_elements = 0
         !< Muon: elements of matrices, of this rank
      integer(c_int64_t) :: matrix_flop = 0
         !< Muon: floating-point operations of a step that orthogonalizes all matrices, on this rank: from stage 1 on,
         !  its share of them
      integer(c_int64_t) :: matrix_bytes = 0
         !< Muon: DRAM for directions of matrices and for their products. Part of memory_bytes
      type(zoff_plan_traffic) :: reduce
         !< of a step of all micro-batches: gradients
      type(zoff_plan_traffic) :: report
         !< of a step: decisions, such as which slices take part, and the norm
      type(zoff_plan_traffic) :: gather
         !< of a step that updates every parameter: weights, or sums at stage 0, and matrices
      type(zoff_plan_traffic) :: fetch
         !< of one fetch of each slice of engine-owned weights, as far as ranks have parts of them
      integer(c_int) :: exact_sums = 0
         !< not 0: sums of gradients are exact
      integer(c_int) :: sum_ranks = 0
         !< gradients take two hops, within nodes of so many ranks and between them; 0 or 1: one hop
      integer(c_int) :: sums_once = 0
         !< not 0: the second hop is once a step, and not in each micro-batch
   end type zoff_plan_info

   !> One tensor of a step. All arrays have `count` elements, need only their element's alignment, and must not overlap.
   !  A state that the optimizer does not have is not touched and may be NULL.
   type, bind(c) :: zoff_optimizer_tensor
      integer(c_size_t) :: struct_size = 88
         !< set by ZOFF_OPTIMIZER_TENSOR_INIT
      integer(c_size_t) :: count = 0
         !< elements; may be 0
      type(c_ptr) :: master = c_null_ptr
         !< weights, updated in place, of type master_dtype
      type(c_ptr) :: m = c_null_ptr
         !< states, updated in place. Zeros before step 1; v of Adagrad: its initial accumulator
      type(c_ptr) :: v = c_null_ptr
         !< states, updated in place. Zeros before step 1; v of Adagrad: its initial accumulator
      type(c_ptr) :: grad = c_null_ptr
         !< gradient, not changed
      integer(c_int) :: grad_dtype = 0
         !< ZOFF_F32 (default), ZOFF_BF16 or ZOFF_F16
      type(c_ptr) :: copy_out = c_null_ptr
         !< receives the weights rounded to 16 bits, with ties away from zero (bf16) or to even (fp16); or NULL
      integer(c_int) :: copy_dtype = 0
         !< type of copy_out: ZOFF_BF16 (default) or ZOFF_F16
      integer(c_int) :: master_dtype = 0
         !< ZOFF_F32 (default); or ZOFF_BF16 or ZOFF_F16 without copy_out. In 16 bits the step is computed in fp32 and
         !  rounded once, as for copy_out, so that small updates are lost
      integer(c_size_t) :: rows = 0
         !< Muon: the shape of a matrix, whose rows lie one after the other. If `count` is a multiple of it, the tensor
         !  is a stack of such matrices. 0 and 0 (default): no matrix. Other optimizers ignore both
      integer(c_size_t) :: cols = 0
         !< Muon: the shape of a matrix, whose rows lie one after the other. If `count` is a multiple of it, the tensor
         !  is a stack of such matrices. 0 and 0 (default): no matrix. Other optimizers ignore both
   end type zoff_optimizer_tensor

   !> Sums of squares of the gradients of one or more engines: exact, so that the order of zoff_norm_sum_join() does not
   !  matter. Plain bytes of a fixed size, which carry their version, the number of the step, and which measurements
   !  they contain. Copy them, or send them to a process with the same zoff on a machine of the same byte order.
   type, bind(c) :: zoff_norm_sum
      integer(c_int64_t) :: words(80) = 0
         !< written by zoff_step_measure()
   end type zoff_norm_sum

   !> Hyper-parameters of one step. Fill them with zoff_optimizer_hyper_init(), or with zoff_engine_get_group() from an
   !  engine's configuration, and change what you need: then 0 means 0. An optimizer ignores the fields that it has no
   !  use for. In a struct that neither call has filled, a 0 in lr, a beta or eps is refused, because it may have been
   !  forgotten.
   type, bind(c) :: zoff_optimizer_hyper
      integer(c_size_t) :: struct_size = 120
         !< set by zoff_optimizer_hyper_init()
      real(c_double) :: lr = 0
         !< learning rate, >= 0, and lr / (1 - beta1) finite in fp32; default 1e-3 (Adam, SGD), 1e-2 (Adagrad), 1e-4
         !  (Lion), 0.02 (Muon's matrices, at most 1e28)
      real(c_double) :: beta1 = 0
         !< decay rates of the moments, in [0, 1); default 0.9, 0.999 (Adam), 0.9, 0.99 (Lion), 0.9, 0.95 (Muon's AdamW)
      real(c_double) :: beta2 = 0
         !< decay rates of the moments, in [0, 1); default 0.9, 0.999 (Adam), 0.9, 0.99 (Lion), 0.9, 0.95 (Muon's AdamW)
      real(c_double) :: eps = 0
         !< number added to a square root, > 0 in fp32; default 1e-8 (Adam), 1e-10 (Adagrad, Muon)
      real(c_double) :: weight_decay = 0
         !< factor, >= 0, and lr * weight_decay at most 2 where it shrinks weights (Adam decoupled, Lion, SGD, Muon); at
         !  most 1e9 where it is added to the gradient (Adam L2, Adagrad, SGD); default 0
      integer(c_int) :: decay = 0
         !< Adam: default decoupled
      real(c_double) :: momentum = 0
         !< SGD: >= 0; default 0, which needs no state. Muon: in [0, 1); default 0.95
      real(c_double) :: dampening = 0
         !< SGD: default 0
      real(c_double) :: lr_decay = 0
         !< Adagrad: >= 0; default 0
      integer(c_int) :: optimizer = 0
         !< the update rule
      logical(c_bool) :: nesterov = .false.
         !< SGD: needs momentum > 0 and dampening 0; default false. Muon: default true
      logical(c_bool) :: filled = .false.
         !< set by zoff_optimizer_hyper_init() and zoff_engine_get_group(): each 0 is meant
      integer(c_int64_t) :: flags = 0
         !< ZOFF_HYPER_*; default 0. An unknown flag is refused
      real(c_double) :: adam_lr = 0
         !< Muon: the AdamW's learning rate, >= 0; default 3e-4
      integer(c_int) :: ns_steps = 0
         !< Muon: iterations of the orthogonalization, 1 to 99; default 5
      integer(c_int) :: ns_method = 0
         !< Muon: default gram
      integer(c_int) :: scale = 0
         !< Muon: default original
      integer(c_int) :: coefficients = 0
         !< Muon: default simple
   end type zoff_optimizer_hyper

   !> Arguments of a step. NULL in its place, or all zero: everything as the configuration says.
   type, bind(c) :: zoff_step_args
      integer(c_size_t) :: struct_size = 72
         !< set by ZOFF_STEP_ARGS_INIT
      integer(c_int64_t) :: t = 0
         !< number of this step, from 1, for bias correction and schedule; 0: one more than zoff_step_count()
      type(c_ptr) :: hyper = c_null_ptr
         !< hyper_count structs, one for each group, of the optimizer that the group was sealed for; a single one serves
         !  all groups. ZOFF_KEEP in a number, or NULL for all: configuration and schedule. Read by the call; the open
         !  step keeps them
      integer(c_size_t) :: hyper_stride = 0
         !< bytes from one struct to the next; 0: sizeof(zoff_optimizer_hyper) of the caller
      integer(c_size_t) :: hyper_count = 0
         !< structs in `hyper`; must not be 0 beside it
      real(c_double) :: clip_norm = 0
         !< clip the global norm to this; 0: gradient_clipping; ZOFF_OFF: do not clip. Clipping multiplies the gradients
         !  by clip_norm / (norm + 1e-6) if that is below 1, like PyTorch's clip_grad_norm_
      real(c_double) :: grad_scale = 0
         !< multiplies each gradient before anything else, such as 1 / loss scale; 0 means 1. The same in all micro-
         !  steps of an update. Comes on top of 1 / zoff_loss_scale() with fp16.enabled
      integer(c_int) :: flags = 0
         !< ZOFF_STEP_*
      type(c_ptr) :: norm_sum = c_null_ptr
         !< after zoff_step_measure(), and only then: the sum of this engine joined with those of all engines that clip
         !  together. Norm, clip factor and skip decision are made from it
   end type zoff_step_args

   !> Numbers of a step. With several ranks they are those of all ranks, except the elements, which are this rank's.
   type, bind(c) :: zoff_step_numbers
      real(c_double) :: lr = 0
         !< learning rate of group 0
      real(c_double) :: loss_scale = 0
         !< loss scale of the gradients of this step; 1 without fp16.enabled
      real(c_double) :: grad_norm = 0
         !< L2 norm of all gradients after scaling, before clipping. NAN where nothing needs it, because
         !  zoff.skip_nonfinite is false and nothing is clipped
      real(c_double) :: clip_factor = 0
         !< factor by which clipping multiplied the gradients; 1: not clipped
      integer(c_int64_t) :: elements_owned = 0
         !< elements with states on this rank
      integer(c_int64_t) :: elements_updated = 0
         !< owned elements that have a gradient
      integer(c_int64_t) :: elements_on_device = 0
         !< owned elements that the device updated (offload_optimizer.ratio)
      integer(c_int64_t) :: reserved(4) = 0
         !< zero
   end type zoff_step_numbers

   !> Bytes that this rank moved. Transfers of NVMe-tier weights, of the device and to other ranks count since the step
   !  before.
   type, bind(c) :: zoff_step_bytes
      integer(c_int64_t) :: host_read = 0
         !< states, weights and gradients that kernels read from DRAM
      integer(c_int64_t) :: host_written = 0
         !< states and weights that kernels wrote to DRAM
      integer(c_int64_t) :: nvme_read = 0
         !< states and engine-owned weights read from files
      integer(c_int64_t) :: nvme_read_ahead = 0
         !< part of nvme_read whose reading began before the step was asked for
      integer(c_int64_t) :: nvme_written = 0
         !< states and engine-owned weights written to files
      integer(c_int64_t) :: device_read = 0
         !< downloads: gradients, weights for zoff_params_pull(), weights that the device stores for other ranks
      integer(c_int64_t) :: device_written = 0
         !< uploads: new weights, and fetched ones of the engine
      integer(c_int64_t) :: sent = 0
         !< bytes sent to other ranks: gradients, weights, control messages
      integer(c_int64_t) :: sent_gradients = 0
         !< part of sent: (N - 1) / N of the gradients over N ranks; at stage 0 also their fp32 sums
      integer(c_int64_t) :: sent_weights = 0
         !< part of sent: replicated weights, and fetched weights
      integer(c_int64_t) :: received = 0
         !< bytes received from other ranks
      integer(c_int64_t) :: sent_matrices = 0
         !< part of sent: directions of Muon's matrices, to their workers and back: 8 (N - 1) / N bytes of each of their
         !  elements, over all N ranks
      integer(c_int64_t) :: reserved(4) = 0
         !< zero
   end type zoff_step_bytes

   !> Seconds of a step on this rank. The waits are those of the calling thread.
   type, bind(c) :: zoff_step_seconds
      real(c_double) :: total = 0
         !< from zoff_step_begin() to the end of zoff_step_wait()
      real(c_double) :: measure = 0
         !< accumulation, norm, and the check for inf and nan
      real(c_double) :: update = 0
         !< kernels of the update
      real(c_double) :: checksum = 0
         !< checksums of data read from files and written to them
      real(c_double) :: io_wait = 0
         !< waits for the disk: submit, copy, wait
      real(c_double) :: device_wait = 0
         !< waits for the device: the rest of the backward pass, and copies
      real(c_double) :: comm_wait = 0
         !< waits for other ranks
      real(c_double) :: save_wait = 0
         !< waits for a checkpoint that is being saved, because its memory for copies is full
      real(c_double) :: visible = 0
         !< part of total inside calls of the program; the rest was hidden beside its own work
      real(c_double) :: orthogonalize = 0
         !< Muon: orthogonalization of matrices
      real(c_double) :: reserved(2) = 0
         !< zero
   end type zoff_step_seconds

   !> Buckets of a step on this rank that were updated before its norm was known (zoff.speculation_memory).
   type, bind(c) :: zoff_step_buckets
      integer(c_int64_t) :: all = 0
         !< buckets of this rank with a gradient in the step
      integer(c_int64_t) :: speculated = 0
         !< buckets updated before zoff_step_begin(), or before a device had computed the last gradient
      integer(c_int64_t) :: committed = 0
         !< speculated buckets whose results count
      integer(c_int64_t) :: redone = 0
         !< speculated buckets updated again, because the step clips or differs from what was assumed
   end type zoff_step_buckets

   !> The first gradient that was not finite. Valid when the step was skipped for it.
   type, bind(c) :: zoff_step_culprit
      integer(c_int32_t) :: param = 0
         !< the parameter
      integer(c_int) :: rank = 0
         !< the rank whose gradient it was, where that is known; otherwise the rank that added it up
      integer(c_size_t) :: slice = 0
         !< the slice of the parameter
   end type zoff_step_culprit

   !> The result of a step.
   type, bind(c) :: zoff_step_info
      integer(c_size_t) :: struct_size = 400
         !< set by ZOFF_STEP_INFO_INIT
      integer(c_int) :: outcome = 0
         !< also set by a call that returns an error
      logical(c_bool) :: skipped = .false.
         !< a gradient, the norm, or the factor that scales and clips is not finite in fp32: no weight and no state has
         !  changed
      logical(c_bool) :: accumulated = .false.
         !< gradients were added up; a later micro-step updates
      integer(c_int32_t) :: micro_step = 0
         !< number of the micro-step, 1 .. micro_steps
      integer(c_int32_t) :: micro_steps = 0
         !< gradient_accumulation_steps
      integer(c_int64_t) :: t = 0
         !< number of this step
      type(zoff_step_numbers) :: numbers
      type(zoff_step_bytes) :: bytes
      type(zoff_step_seconds) :: seconds
      type(zoff_step_culprit) :: culprit
         !< the gradient that made the engine skip the step
      logical(c_bool) :: stop_requested = .false.
         !< a rank has called zoff_engine_request_stop(). All ranks see it in the same step, also a skipped one, and in
         !  every step after it
      type(zoff_step_buckets) :: buckets
   end type zoff_step_info

   !> An entry of zoff_grads_hand_over(): the gradient of one slice, and the present buffers of its parameter.
   type, bind(c) :: zoff_handover
      integer(c_size_t) :: struct_size = 48
         !< set by ZOFF_HANDOVER_INIT
      integer(c_int32_t) :: param = 0
         !< the parameter
      integer(c_int) :: flags = 0
         !< ZOFF_BIND_*, about `value`
      integer(c_size_t) :: slice = 0
         !< the slice whose gradient is ready; ignored beside ZOFF_NO_GRAD
      type(c_ptr) :: value = c_null_ptr
         !< weights, from the first slice on; NULL: they have not moved
      type(c_ptr) :: grad = c_null_ptr
         !< gradients, from the first slice on; NULL: they have not moved. ZOFF_NO_GRAD: no gradient is ready
      type(c_ptr) :: native_stream = c_null_ptr
         !< as of zoff_grad_ready()
   end type zoff_handover

   !> Services of zoff for a plug-in. Valid for the life of the process.
   type, bind(c) :: zoff_plugin_host
      integer(c_size_t) :: struct_size = 32
         !< bytes of the library's struct
      integer(c_int) :: version = 0
         !< as zoff_version()
      type(c_funptr) :: fail = c_null_funptr
         !< set zoff_last_error(); returns `status`
      type(c_funptr) :: warn = c_null_funptr
         !< write a line to the log
   end type zoff_plugin_host

   !> Which rank this is, and where the ranks meet, by the launcher's variables.
   type, bind(c) :: zoff_plugin_meeting
      integer(c_size_t) :: struct_size = 32
         !< bytes of the library's struct
      integer(c_int) :: rank = 0
         !< rank of this process, and number of ranks
      integer(c_int) :: size = 0
         !< rank of this process, and number of ranks
      type(c_ptr) :: place = c_null_ptr
         !< "host:port" or "[host]:port" where rank 0 listens; valid during the call. Empty if size is 1
      real(c_double) :: timeout_seconds = 0
         !< how long to wait for the other ranks; negative: without a limit
   end type zoff_plugin_meeting

   !> Services of a plug-in. struct_size is set by zoff; the plug-in fills the fields that it has.
   type, bind(c) :: zoff_plugin
      integer(c_size_t) :: struct_size = 32
      type(c_funptr) :: connect = c_null_funptr
         !< Connect to all ranks of this process' job: fill `out`. On failure set `failure` of the transport, to a
         !  static text.
      type(c_ptr) :: built_in = c_null_ptr
         !< for the plug-ins of zoff itself, which are built with one version of it; leave it NULL
      type(c_funptr) :: meet = c_null_funptr
         !< Join ranks that know no more than their numbers and a place: fill `out`. @blocks until all ranks have come,
         !  or for timeout_seconds @return an error that zoff_plugin_host.fail() has set
   end type zoff_plugin

   interface
      !> Open device `index` of a back-end.
      function zoff_accel_open(backend, index, out) result(its_result) bind(c)
         import
         character(kind=c_char), intent(in), optional :: backend(*)
         integer(c_int), value :: index
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Close
      subroutine zoff_accel_close(accel) bind(c)
         import
         type(c_ptr), value :: accel
      end subroutine
      !> Read facts and counters of a device
      function zoff_accel_get_info(accel, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: accel
         type(zoff_accel_info), intent(inout), optional :: out
         integer(c_int) :: its_result
      end function
      !> Open a stream
      function zoff_accel_stream_open(accel, out_stream) result(its_result) bind(c)
         import
         type(c_ptr), value :: accel
         type(c_ptr), intent(out) :: out_stream
         integer(c_int) :: its_result
      end function
      !> Wait for all work in a stream, and close it; the default stream stays open
      subroutine zoff_accel_stream_close(accel, stream) bind(c)
         import
         type(c_ptr), value :: accel
         type(c_ptr), value :: stream
      end subroutine
      !> Enqueue a function that the host runs after all earlier work of the stream
      function zoff_accel_stream_call(accel, stream, run, ctx) result(its_result) bind(c)
         import
         type(c_ptr), value :: accel
         type(c_ptr), value :: stream
         type(c_funptr), value :: run
         type(c_ptr), value :: ctx
         integer(c_int) :: its_result
      end function
      !> Wait until all work enqueued in a stream so far is done
      function zoff_accel_stream_wait(accel, stream) result(its_result) bind(c)
         import
         type(c_ptr), value :: accel
         type(c_ptr), value :: stream
         integer(c_int) :: its_result
      end function
      !> Open a queue on the file at `path`
      function zoff_aio_open(path, opts, out) result(its_result) bind(c)
         import
         character(kind=c_char), intent(in), optional :: path(*)
         type(zoff_aio_opts), intent(in), optional :: opts
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Wait for transfers in flight and close
      subroutine zoff_aio_close(q) bind(c)
         import
         type(c_ptr), value :: q
      end subroutine
      !> Reserve disk space for a file of `bytes`, so that no later write runs out of space
      function zoff_aio_reserve(q, bytes) result(its_result) bind(c)
         import
         type(c_ptr), value :: q
         integer(c_int64_t), value :: bytes
         integer(c_int) :: its_result
      end function
      !> Register the memory that most requests use, so that the kernel does not pin it for each request
      function zoff_aio_register(q, base, bytes) result(its_result) bind(c)
         import
         type(c_ptr), value :: q
         type(c_ptr), value :: base
         integer(c_size_t), value :: bytes
         integer(c_int) :: its_result
      end function
      !> Begin to read `bytes` at `offset` of the file into `dst`. Any offset, length and address work; aligned ones
      !  (zoff_aio_info.alignment) avoid a copy
      function zoff_aio_read(q, offset, bytes, dst, out_ticket) result(its_result) bind(c)
         import
         type(c_ptr), value :: q
         integer(c_int64_t), value :: offset
         integer(c_size_t), value :: bytes
         type(c_ptr), value :: dst
         integer(c_int64_t), intent(out), optional :: out_ticket
         integer(c_int) :: its_result
      end function
      !> Begin to write `bytes` from `src` at `offset` of the file; otherwise like zoff_aio_read()
      function zoff_aio_write(q, offset, bytes, src, out_ticket) result(its_result) bind(c)
         import
         type(c_ptr), value :: q
         integer(c_int64_t), value :: offset
         integer(c_size_t), value :: bytes
         type(c_ptr), value :: src
         integer(c_int64_t), intent(out), optional :: out_ticket
         integer(c_int) :: its_result
      end function
      !> Submit queued pieces and collect finished ones, without waiting
      function zoff_aio_pump(q) result(its_result) bind(c)
         import
         type(c_ptr), value :: q
         integer(c_int) :: its_result
      end function
      !> Ask whether a request is done
      function zoff_aio_poll(q, ticket) result(its_result) bind(c)
         import
         type(c_ptr), value :: q
         integer(c_int64_t), value :: ticket
         integer(c_int) :: its_result
      end function
      !> Wait for a request, return its result as zoff_aio_poll() does, and finish the ticket
      function zoff_aio_wait(q, ticket) result(its_result) bind(c)
         import
         type(c_ptr), value :: q
         integer(c_int64_t), value :: ticket
         integer(c_int) :: its_result
      end function
      !> Wait until at least one piece in flight has finished
      function zoff_aio_wait_any(q) result(its_result) bind(c)
         import
         type(c_ptr), value :: q
         integer(c_int) :: its_result
      end function
      !> Read facts and counters of a queue
      function zoff_aio_get_info(q, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: q
         type(zoff_aio_info), intent(inout), optional :: out
         integer(c_int) :: its_result
      end function
      !> Find the block size and depth with which `folder` reads and writes fastest at the same time
      function zoff_aio_tune(folder, opts, out) result(its_result) bind(c)
         import
         character(kind=c_char), intent(in), optional :: folder(*)
         type(zoff_aio_tune_opts), intent(in), optional :: opts
         type(zoff_aio_tune_result), intent(inout), optional :: out
         integer(c_int) :: its_result
      end function
      !> Write a result as JSON. Its "aio" object can be pasted into a ds_config, where the rest is ignored
      function zoff_aio_tune_print(result, dst, dst_bytes, out_bytes) result(its_result) bind(c)
         import
         type(zoff_aio_tune_result), intent(in), optional :: result
         character(kind=c_char), intent(out), optional :: dst(*)
         integer(c_size_t), value :: dst_bytes
         integer(c_size_t), intent(out), optional :: out_bytes
         integer(c_int) :: its_result
      end function
      !> Save the states of the last step
      function zoff_checkpoint_save(e, folder, opts) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         character(kind=c_char), intent(in), optional :: folder(*)
         type(zoff_checkpoint_opts), intent(in), optional :: opts
         integer(c_int) :: its_result
      end function
      !> Begin to save the states of the last step, while further steps run
      function zoff_checkpoint_begin(e, folder, opts, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         character(kind=c_char), intent(in), optional :: folder(*)
         type(zoff_checkpoint_opts), intent(in), optional :: opts
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Ask whether a save has ended, and complete it once all ranks have written their part
      function zoff_checkpoint_poll(checkpoint) result(its_result) bind(c)
         import
         type(c_ptr), value :: checkpoint
         integer(c_int) :: its_result
      end function
      !> Wait until a save has ended, and free it, also after an error
      function zoff_checkpoint_wait(checkpoint) result(its_result) bind(c)
         import
         type(c_ptr), value :: checkpoint
         integer(c_int) :: its_result
      end function
      !> Load a checkpoint
      function zoff_checkpoint_load(e, folder, opts) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         character(kind=c_char), intent(in), optional :: folder(*)
         type(zoff_checkpoint_opts), intent(in), optional :: opts
         integer(c_int) :: its_result
      end function
      !> Pin a checkpoint, such as the best one, so that no save with `keep` counts or removes it
      function zoff_checkpoint_pin(folder, label) result(its_result) bind(c)
         import
         character(kind=c_char), intent(in), optional :: folder(*)
         character(kind=c_char), intent(in), optional :: label(*)
         integer(c_int) :: its_result
      end function
      !> Unpin a checkpoint
      function zoff_checkpoint_unpin(folder, label) result(its_result) bind(c)
         import
         character(kind=c_char), intent(in), optional :: folder(*)
         character(kind=c_char), intent(in), optional :: label(*)
         integer(c_int) :: its_result
      end function
      !> Open a checkpoint, and check manifest, tables, and the sizes of its files
      function zoff_checkpoint_reader_open(folder, label, out) result(its_result) bind(c)
         import
         character(kind=c_char), intent(in), optional :: folder(*)
         character(kind=c_char), intent(in), optional :: label(*)
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Close a reader
      subroutine zoff_checkpoint_reader_close(r) bind(c)
         import
         type(c_ptr), value :: r
      end subroutine
      !> Read the facts of a checkpoint
      function zoff_checkpoint_reader_info(r, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: r
         type(zoff_checkpoint_info), intent(inout), optional :: out
         integer(c_int) :: its_result
      end function
      !> Read the description of parameter `index`
      function zoff_checkpoint_reader_param(r, index, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: r
         integer(c_size_t), value :: index
         type(zoff_checkpoint_param), intent(inout), optional :: out
         integer(c_int) :: its_result
      end function
      !> Find a parameter by its name
      function zoff_checkpoint_reader_find(r, name, out_index) result(its_result) bind(c)
         import
         type(c_ptr), value :: r
         character(kind=c_char), intent(in), optional :: name(*)
         integer(c_size_t), intent(out), optional :: out_index
         integer(c_int) :: its_result
      end function
      !> Read how a state is stored
      function zoff_checkpoint_reader_format(r, index, kind, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: r
         integer(c_size_t), value :: index
         integer(c_int), value :: kind
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Read elements of a state
      function zoff_checkpoint_reader_read(r, index, kind, first, count, dst) result(its_result) bind(c)
         import
         type(c_ptr), value :: r
         integer(c_size_t), value :: index
         integer(c_int), value :: kind
         integer(c_size_t), value :: first
         integer(c_size_t), value :: count
         real(c_float), intent(out) :: dst(*)
         integer(c_int) :: its_result
      end function
      !> Read the program's bytes
      function zoff_checkpoint_reader_data(r, name, rank, dst, room, out_count) result(its_result) bind(c)
         import
         type(c_ptr), value :: r
         character(kind=c_char), intent(in), optional :: name(*)
         integer(c_int), value :: rank
         type(c_ptr), value :: dst
         integer(c_size_t), value :: room
         integer(c_size_t), intent(out), optional :: out_count
         integer(c_int) :: its_result
      end function
      !> Describe the program's bytes number `index`, in the order of ranks
      function zoff_checkpoint_reader_data_at(r, index, out, out_rank) result(its_result) bind(c)
         import
         type(c_ptr), value :: r
         integer(c_size_t), value :: index
         type(zoff_checkpoint_data), intent(inout), optional :: out
         integer(c_int), intent(out), optional :: out_rank
         integer(c_int) :: its_result
      end function
      !> Copy the manifest, which is JSON
      function zoff_checkpoint_reader_manifest(r, dst, dst_bytes, out_bytes) result(its_result) bind(c)
         import
         type(c_ptr), value :: r
         character(kind=c_char), intent(out), optional :: dst(*)
         integer(c_size_t), value :: dst_bytes
         integer(c_size_t), intent(out), optional :: out_bytes
         integer(c_int) :: its_result
      end function
      !> Compare every byte of the checkpoint with its checksum
      function zoff_checkpoint_reader_verify(r, progress, ctx) result(its_result) bind(c)
         import
         type(c_ptr), value :: r
         type(c_funptr), value :: progress
         type(c_ptr), value :: ctx
         integer(c_int) :: its_result
      end function
      !> List the checkpoints of a folder, the newest first, and behind them the hidden folders of saves
      function zoff_checkpoint_list(folder, dst, dst_bytes, out_bytes) result(its_result) bind(c)
         import
         character(kind=c_char), intent(in), optional :: folder(*)
         character(kind=c_char), intent(out), optional :: dst(*)
         integer(c_size_t), value :: dst_bytes
         integer(c_size_t), intent(out), optional :: out_bytes
         integer(c_int) :: its_result
      end function
      !> Begin to write a checkpoint
      function zoff_checkpoint_writer_open(folder, opts, t, params, count, scaler, out) result(its_result) bind(c)
         import
         character(kind=c_char), intent(in), optional :: folder(*)
         type(zoff_checkpoint_opts), intent(in), optional :: opts
         integer(c_int64_t), value :: t
         type(zoff_checkpoint_param), intent(in), optional :: params(*)
         integer(c_size_t), value :: count
         type(zoff_loss_scaler), intent(in), optional :: scaler
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Write elements of a state, as zoff_checkpoint_reader_read() reads them
      function zoff_checkpoint_writer_write(w, index, kind, first, count, src) result(its_result) bind(c)
         import
         type(c_ptr), value :: w
         integer(c_size_t), value :: index
         integer(c_int), value :: kind
         integer(c_size_t), value :: first
         integer(c_size_t), value :: count
         real(c_float), intent(in) :: src(*)
         integer(c_int) :: its_result
      end function
      !> Write bytes of the program
      function zoff_checkpoint_writer_data(w, name, bytes, count) result(its_result) bind(c)
         import
         type(c_ptr), value :: w
         character(kind=c_char), intent(in), optional :: name(*)
         type(c_ptr), value :: bytes
         integer(c_size_t), value :: count
         integer(c_int) :: its_result
      end function
      !> Make the checkpoint complete and durable
      function zoff_checkpoint_writer_commit(w) result(its_result) bind(c)
         import
         type(c_ptr), value :: w
         integer(c_int) :: its_result
      end function
      !> Close a writer; without a commit before, remove what was written
      subroutine zoff_checkpoint_writer_close(w) bind(c)
         import
         type(c_ptr), value :: w
      end subroutine
      !> Read all state files (zoff-r0.states and so on; zoff-p0-r0.states of engines with a norm_comm) of some folders
      !  and compare every array with its checksum, while no engine uses them
      function zoff_state_files_scrub(folders, count, progress, ctx, dst, dst_bytes, out_bytes, out_wrong) &
         result(its_result) bind(c)
         import
         type(c_ptr), intent(in) :: folders(*)
         integer(c_size_t), value :: count
         type(c_funptr), value :: progress
         type(c_ptr), value :: ctx
         character(kind=c_char), intent(out), optional :: dst(*)
         integer(c_size_t), value :: dst_bytes
         integer(c_size_t), intent(out), optional :: out_bytes
         integer(c_int64_t), intent(out), optional :: out_wrong
         integer(c_int) :: its_result
      end function
      !> Make one checkpoint of the state files of all ranks of a run, while no engine uses them
      function zoff_state_files_checkpoint(folders, count, checkpoints, opts, progress, ctx) result(its_result) &
         bind(c)
         import
         type(c_ptr), intent(in) :: folders(*)
         integer(c_size_t), value :: count
         character(kind=c_char), intent(in), optional :: checkpoints(*)
         type(zoff_checkpoint_opts), intent(in), optional :: opts
         type(c_funptr), value :: progress
         type(c_ptr), value :: ctx
         integer(c_int) :: its_result
      end function
      !> Join the ranks that the launcher started.
      function zoff_comm_open(opts, out) result(its_result) bind(c)
         import
         type(zoff_comm_opts), intent(in), optional :: opts
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Make a group of ranks inside this process, one for each of the program's threads, to try and test several ranks
      function zoff_comm_open_threads(opts, size, out) result(its_result) bind(c)
         import
         type(zoff_comm_opts), intent(in), optional :: opts
         integer(c_int), value :: size
         type(c_ptr), intent(out) :: out(*)
         integer(c_int) :: its_result
      end function
      !> Make a communicator over a transport
      function zoff_comm_open_transport(opts, transport, out) result(its_result) bind(c)
         import
         type(zoff_comm_opts), intent(in), optional :: opts
         type(zoff_comm_transport), intent(in), optional :: transport
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Join ranks over NCCL, with the plug-in libzoff_nccl.so
      function zoff_comm_open_nccl(opts, out) result(its_result) bind(c)
         import
         type(zoff_nccl_opts), intent(in), optional :: opts
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Leave the ranks
      subroutine zoff_comm_close(comm) bind(c)
         import
         type(c_ptr), value :: comm
      end subroutine
      !> Return this rank's number, from 0
      function zoff_comm_rank(comm) result(its_result) bind(c)
         import
         type(c_ptr), value :: comm
         integer(c_int) :: its_result
      end function
      !> Return the number of ranks
      function zoff_comm_size(comm) result(its_result) bind(c)
         import
         type(c_ptr), value :: comm
         integer(c_int) :: its_result
      end function
      !> Read facts and counters of a communicator
      function zoff_comm_get_info(comm, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: comm
         type(zoff_comm_info), intent(inout), optional :: out
         integer(c_int) :: its_result
      end function
      !> Open a configuration
      function zoff_config_open(path, out) result(its_result) bind(c)
         import
         character(kind=c_char), intent(in), optional :: path(*)
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Replace what `config` was opened with by the contents of a file
      function zoff_config_read(config, path) result(its_result) bind(c)
         import
         type(c_ptr), value :: config
         character(kind=c_char), intent(in), optional :: path(*)
         integer(c_int) :: its_result
      end function
      !> Replace the contents of `config` by `bytes` of JSON text; otherwise like zoff_config_read()
      function zoff_config_read_text(config, text, bytes, name) result(its_result) bind(c)
         import
         type(c_ptr), value :: config
         character(kind=c_char), intent(in), optional :: text(*)
         integer(c_size_t), value :: bytes
         character(kind=c_char), intent(in), optional :: name(*)
         integer(c_int) :: its_result
      end function
      !> Set one key, as if it stood in the file
      function zoff_config_set(config, key, value) result(its_result) bind(c)
         import
         type(c_ptr), value :: config
         character(kind=c_char), intent(in), optional :: key(*)
         character(kind=c_char), intent(in), optional :: value(*)
         integer(c_int) :: its_result
      end function
      !> Settle values that depend on other keys and on the number of ranks
      function zoff_config_resolve(config, world_size) result(its_result) bind(c)
         import
         type(c_ptr), value :: config
         integer(c_int), value :: world_size
         integer(c_int) :: its_result
      end function
      !> Read one number of a resolved configuration, such as "optimizer.params.lr". Booleans are 0 and 1
      function zoff_config_number(config, key, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: config
         character(kind=c_char), intent(in), optional :: key(*)
         real(c_double), intent(out), optional :: out
         integer(c_int) :: its_result
      end function
      !> Read one text of a resolved configuration
      function zoff_config_string(config, key, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: config
         character(kind=c_char), intent(in), optional :: key(*)
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Write the effective configuration, one key a line
      function zoff_config_dump(config, dst, dst_bytes, out_bytes) result(its_result) bind(c)
         import
         type(c_ptr), value :: config
         character(kind=c_char), intent(out), optional :: dst(*)
         integer(c_size_t), value :: dst_bytes
         integer(c_size_t), intent(out), optional :: out_bytes
         integer(c_int) :: its_result
      end function
      !> Write the reference of all keys as Markdown, generated from the schema that parses them; sizes as
      !  zoff_config_dump()
      function zoff_config_reference(dst, dst_bytes, out_bytes) result(its_result) bind(c)
         import
         character(kind=c_char), intent(out), optional :: dst(*)
         integer(c_size_t), value :: dst_bytes
         integer(c_size_t), intent(out), optional :: out_bytes
         integer(c_int) :: its_result
      end function
      !> Write a JSON Schema (draft-07) of the configuration, for editors, generated from the same schema; sizes as
      !  zoff_config_dump()
      function zoff_config_schema(dst, dst_bytes, out_bytes) result(its_result) bind(c)
         import
         character(kind=c_char), intent(out), optional :: dst(*)
         integer(c_size_t), value :: dst_bytes
         integer(c_size_t), intent(out), optional :: out_bytes
         integer(c_int) :: its_result
      end function
      !> Free a configuration
      subroutine zoff_config_close(config) bind(c)
         import
         type(c_ptr), value :: config
      end subroutine
      !> Create an empty engine
      function zoff_engine_create(opts, out) result(its_result) bind(c)
         import
         type(zoff_engine_opts), intent(in), optional :: opts
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Create an engine, add `count` parameters and seal it, in one call
      function zoff_engine_open_sized(opts, params, param_stride, count, out) result(its_result) bind(c)
         import
         type(zoff_engine_opts), intent(in), optional :: opts
         type(zoff_param_desc), intent(in), optional :: params(*)
         integer(c_size_t), value :: param_stride
         integer(c_size_t), value :: count
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Wait for what is in flight, remove the files unless zoff.persist keeps them, leave the ranks of opts.ranks, and
      !  free the engine
      subroutine zoff_engine_destroy(e) bind(c)
         import
         type(c_ptr), value :: e
      end subroutine
      !> Add a parameter
      function zoff_engine_add_param(e, desc, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_param_desc), intent(in), optional :: desc
         integer(c_int32_t), intent(out), optional :: out
         integer(c_int) :: its_result
      end function
      !> Find a parameter by its name, which is "param<index>" for one that was added without
      function zoff_engine_find_param(e, name, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         character(kind=c_char), intent(in), optional :: name(*)
         integer(c_int32_t), intent(out), optional :: out
         integer(c_int) :: its_result
      end function
      !> Return the message of the call with this engine that has just failed, on whichever thread
      function zoff_engine_error(e) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(c_ptr) :: its_result
      end function
      !> Set the learning rate of a group, as a trainer with a schedule of its own does before each step
      function zoff_engine_set_lr(e, group, lr) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int), value :: group
         real(c_double), value :: lr
         integer(c_int) :: its_result
      end function
      !> Set the hyper-parameters of a group that differ from the configuration; ZOFF_KEEP leaves a number as it is
      function zoff_engine_set_group(e, group, hyper) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int), value :: group
         type(zoff_optimizer_hyper), intent(in), optional :: hyper
         integer(c_int) :: its_result
      end function
      !> Fill `out` with the hyper-parameters of a group
      function zoff_engine_get_group(e, group, t, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int), value :: group
         integer(c_int64_t), value :: t
         type(zoff_optimizer_hyper), intent(inout), optional :: out
         integer(c_int) :: its_result
      end function
      !> Compute what the parameters added so far take on this rank, without allocating it
      function zoff_engine_plan(e, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_plan_info), intent(inout), optional :: out
         integer(c_int) :: its_result
      end function
      !> Fix the list of parameters and the optimizer of each group, allocate memory and files, and take the weights as
      !  masters
      function zoff_engine_seal(e) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int) :: its_result
      end function
      !> Bind other buffers to a parameter, between steps; NULL leaves one as it is
      function zoff_param_bind(e, p, value, grad) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         type(c_ptr), value :: value
         type(c_ptr), value :: grad
         integer(c_int) :: its_result
      end function
      !> Bind other buffers as zoff_param_bind() does, with flags
      function zoff_param_bind_opts(e, p, value, grad, flags) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         type(c_ptr), value :: value
         type(c_ptr), value :: grad
         integer(c_int), value :: flags
         integer(c_int) :: its_result
      end function
      !> Return the communicator of an engine, which has the rank and the number of ranks
      function zoff_engine_comm(e) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(c_ptr) :: its_result
      end function
      !> Let transfers between steps continue
      function zoff_engine_progress(e) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int) :: its_result
      end function
      !> Request a clean stop of all ranks
      subroutine zoff_engine_request_stop(e) bind(c)
         import
         type(c_ptr), value :: e
      end subroutine
      !> Write bytes, seconds and counts since seal as one JSON object
      function zoff_stats_print(e, dst, dst_bytes, out_bytes) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         character(kind=c_char), intent(out), optional :: dst(*)
         integer(c_size_t), value :: dst_bytes
         integer(c_size_t), intent(out), optional :: out_bytes
         integer(c_int) :: its_result
      end function
      !> Take step number `t` (1, 2, ...) on one tensor
      function zoff_optimizer_step(hyper, t, grad_scale, tensor) result(its_result) bind(c)
         import
         type(zoff_optimizer_hyper), intent(in), optional :: hyper
         integer(c_int64_t), value :: t
         real(c_double), value :: grad_scale
         type(zoff_optimizer_tensor), intent(in), optional :: tensor
         integer(c_int) :: its_result
      end function
      !> Take one step on `count` tensors in one call
      function zoff_optimizer_step_list(hyper, hyper_stride, t, grad_scale, tensors, tensor_stride, count) &
         result(its_result) bind(c)
         import
         type(zoff_optimizer_hyper), intent(in), optional :: hyper(*)
         integer(c_size_t), value :: hyper_stride
         integer(c_int64_t), value :: t
         real(c_double), value :: grad_scale
         type(zoff_optimizer_tensor), intent(in), optional :: tensors(*)
         integer(c_size_t), value :: tensor_stride
         integer(c_size_t), value :: count
         integer(c_int) :: its_result
      end function
      !> Return the instruction set of the kernels in use
      function zoff_isa() result(its_result) bind(c)
         import
         type(c_ptr) :: its_result
      end function
      !> Take the weights as the new masters, after the caller has loaded or changed them
      function zoff_params_pull(e) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int) :: its_result
      end function
      !> Take the weights of one parameter as its new masters, as zoff_params_pull() does for all
      function zoff_param_pull(e, p) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         integer(c_int) :: its_result
      end function
      !> Write the masters to the weights, rounded as a step rounds them, after states were loaded
      function zoff_params_push(e) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int) :: its_result
      end function
      !> Copy a range of a parameter's state
      function zoff_state_read(e, p, kind, first, count, dst) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         integer(c_int), value :: kind
         integer(c_size_t), value :: first
         integer(c_size_t), value :: count
         real(c_float), intent(out) :: dst(*)
         integer(c_int) :: its_result
      end function
      !> Set a range of a parameter's state; otherwise like zoff_state_read()
      function zoff_state_write(e, p, kind, first, count, src) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         integer(c_int), value :: kind
         integer(c_size_t), value :: first
         integer(c_size_t), value :: count
         real(c_float), intent(in) :: src(*)
         integer(c_int) :: its_result
      end function
      !> Write the ranges that zoff_state_write() and zoff_param_write() have put off, and make them durable with
      !  zoff.persist
      function zoff_state_flush(e) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int) :: its_result
      end function
      !> Borrow the weights of one slice of an engine-owned parameter
      function zoff_param_fetch(e, p, slice, native_stream, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         integer(c_size_t), value :: slice
         type(c_ptr), value :: native_stream
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Return what one zoff_param_fetch() has lent
      function zoff_param_release(e, p, slice, native_stream) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         integer(c_size_t), value :: slice
         type(c_ptr), value :: native_stream
         integer(c_int) :: its_result
      end function
      !> Set a range of the weights of an engine-owned parameter, and its masters
      function zoff_param_write(e, p, first, count, src) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         integer(c_size_t), value :: first
         integer(c_size_t), value :: count
         type(c_ptr), value :: src
         integer(c_int) :: its_result
      end function
      !> Copy a range of the weights of an engine-owned parameter; otherwise like zoff_param_write()
      function zoff_param_read(e, p, first, count, dst) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         integer(c_size_t), value :: first
         integer(c_size_t), value :: count
         type(c_ptr), value :: dst
         integer(c_int) :: its_result
      end function
      !> Record the program's own bytes, such as the position in its data, together with the states
      function zoff_persist_data(e, data, count) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_checkpoint_data), intent(in), optional :: data(*)
         integer(c_size_t), value :: count
         integer(c_int) :: its_result
      end function
      !> Read the factor that the trainer multiplies its loss by in the coming micro-step; 1 without fp16.enabled
      function zoff_loss_scale(e, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         real(c_double), intent(out), optional :: out
         integer(c_int) :: its_result
      end function
      !> Read the loss scale and its counters, for a checkpoint
      function zoff_loss_scaler_get(e, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_loss_scaler), intent(inout), optional :: out
         integer(c_int) :: its_result
      end function
      !> Set the loss scale and its counters from a checkpoint
      function zoff_loss_scaler_set(e, scaler) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_loss_scaler), intent(in), optional :: scaler
         integer(c_int) :: its_result
      end function
      !> Return the version of the library in use, as 10000 * major + 100 * minor + patch
      function zoff_version() result(its_result) bind(c)
         import
         integer(c_int) :: its_result
      end function
      !> Describe a status in a few words
      function zoff_status_text(status) result(its_result) bind(c)
         import
         integer(c_int), value :: status
         type(c_ptr) :: its_result
      end function
      !> Return the message of this thread's last failed call
      function zoff_last_error() result(its_result) bind(c)
         import
         type(c_ptr) :: its_result
      end function
      !> Send log lines to `fn`, or to stderr when `fn` is NULL.
      subroutine zoff_log_set(fn, ctx) bind(c)
         import
         type(c_funptr), value :: fn
         type(c_ptr), value :: ctx
      end subroutine
      !> Ask whether this build and this machine have a feature, such as "io_uring", "mpi", "cuda" or "avx512".
      !  zoff_features() lists all names
      function zoff_feature(name) result(its_result) bind(c)
         import
         character(kind=c_char), intent(in), optional :: name(*)
         integer(c_int) :: its_result
      end function
      !> Write one line for each feature
      function zoff_features(dst, dst_bytes, out_bytes) result(its_result) bind(c)
         import
         character(kind=c_char), intent(out), optional :: dst(*)
         integer(c_size_t), value :: dst_bytes
         integer(c_size_t), intent(out), optional :: out_bytes
         integer(c_int) :: its_result
      end function
      !> Declare the gradient of one slice final for this micro-step
      function zoff_grad_ready(e, p, slice, native_stream) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         integer(c_size_t), value :: slice
         type(c_ptr), value :: native_stream
         integer(c_int) :: its_result
      end function
      !> Hand over all gradients of a backward pass that may have moved its buffers
      function zoff_grads_hand_over(e, list, stride, count) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_handover), intent(in), optional :: list(*)
         integer(c_size_t), value :: stride
         integer(c_size_t), value :: count
         integer(c_int) :: its_result
      end function
      !> Borrow memory for the gradient of one slice whose parameter has no buffer (zoff_param_desc.grad is NULL)
      function zoff_grad_acquire(e, p, slice, native_stream, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         integer(c_size_t), value :: slice
         type(c_ptr), value :: native_stream
         type(c_ptr), intent(out) :: out
         integer(c_int) :: its_result
      end function
      !> Set the weight of this rank's micro-batch
      function zoff_grad_weight(e, weight) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         real(c_double), value :: weight
         integer(c_int) :: its_result
      end function
      !> Take a step
      function zoff_step(e, args, info) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_step_args), intent(in), optional :: args
         type(zoff_step_info), intent(inout), optional :: info
         integer(c_int) :: its_result
      end function
      !> Measure the gradients of a step before it is taken, so that several engines of one rank can clip by one norm
      function zoff_step_measure(e, args, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_step_args), intent(in), optional :: args
         type(zoff_norm_sum), intent(inout), optional :: out
         integer(c_int) :: its_result
      end function
      !> Add the sum of another engine, whose step may have another number
      function zoff_norm_sum_join(into, other) result(its_result) bind(c)
         import
         type(zoff_norm_sum), intent(inout), optional :: into
         type(zoff_norm_sum), intent(in), optional :: other
         integer(c_int) :: its_result
      end function
      !> Read the L2 norm, after the factor of the gradients and before clipping
      function zoff_norm_sum_value(sum, out) result(its_result) bind(c)
         import
         type(zoff_norm_sum), intent(in), optional :: sum
         real(c_double), intent(out), optional :: out
         integer(c_int) :: its_result
      end function
      !> Say what the next step will use, before its first zoff_grad_ready()
      function zoff_step_prepare(e, args) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_step_args), intent(in), optional :: args
         integer(c_int) :: its_result
      end function
      !> Begin the step with the gradients that were declared ready
      function zoff_step_begin(e, args) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_step_args), intent(in), optional :: args
         integer(c_int) :: its_result
      end function
      !> Finish the step
      function zoff_step_wait(e, info) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_step_info), intent(inout), optional :: info
         integer(c_int) :: its_result
      end function
      !> Between zoff_step_begin() and zoff_step_wait()
      function zoff_param_wait(e, p, slice, native_stream) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         integer(c_size_t), value :: slice
         type(c_ptr), value :: native_stream
         integer(c_int) :: its_result
      end function
      !> Wait for one slice of each of `count` parameters from `first` on, as zoff_param_wait() does for one
      function zoff_params_wait(e, first, count, slice, native_stream) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: first
         integer(c_size_t), value :: count
         integer(c_size_t), value :: slice
         type(c_ptr), value :: native_stream
         integer(c_int) :: its_result
      end function
      !> Between zoff_step_begin() and zoff_step_wait()
      function zoff_grad_reusable(e, p, slice, native_stream) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int32_t), value :: p
         integer(c_size_t), value :: slice
         type(c_ptr), value :: native_stream
         integer(c_int) :: its_result
      end function
      !> Continue a step that failed, without repeating what is done
      function zoff_step_retry(e, info) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         type(zoff_step_info), intent(inout), optional :: info
         integer(c_int) :: its_result
      end function
      !> Drop the gradients of this step and of all its micro-steps so far, without an update
      function zoff_grads_drop(e) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int) :: its_result
      end function
      !> Read the number of updates made so far
      function zoff_step_count(e, out) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int64_t), intent(out), optional :: out
         integer(c_int) :: its_result
      end function
      !> Set the number of updates after states were loaded
      function zoff_step_count_set(e, t) result(its_result) bind(c)
         import
         type(c_ptr), value :: e
         integer(c_int64_t), value :: t
         integer(c_int) :: its_result
      end function
      !> Fill `h` with the defaults of an optimizer
      subroutine zoff_optimizer_hyper_init_sized(h, struct_size, optimizer) bind(c)
         import
         type(zoff_optimizer_hyper), intent(inout), optional :: h
         integer(c_size_t), value :: struct_size
         integer(c_int), value :: optimizer
      end subroutine
   end interface

contains
   !> Copy a text of C, such as that of zoff_last_error().
   function zoff_text(text) result(copy)
      type(c_ptr), intent(in) :: text
      character(len=:), allocatable :: copy
      character(kind=c_char), pointer :: letters(:)
      integer :: i, length
      interface
         pure function strlen(text) result(length) bind(c)
            import
            type(c_ptr), value :: text
            integer(c_size_t) :: length
         end function
      end interface
      length = 0
      if (c_associated(text)) length = int(strlen(text))
      if (length > 0) call c_f_pointer(text, letters, [length])
      allocate (character(len=length) :: copy)
      do i = 1, length
         copy(i:i) = letters(i)
      end do
   end function

   !> zoff_engine_open_sized() with the size of the structure.
   function zoff_engine_open(opts, params, count, out) result(its_result)
      type(zoff_engine_opts), intent(in), optional :: opts
      type(zoff_param_desc), intent(in), optional :: params(*)
      integer(c_size_t), value :: count
      type(c_ptr), intent(out) :: out
      integer(c_int) :: its_result
      its_result = zoff_engine_open_sized(opts, params, 136_c_size_t, count, out)
   end function

   !> zoff_optimizer_hyper_init_sized() with the size of the structure.
   subroutine zoff_optimizer_hyper_init(h, optimizer)
      type(zoff_optimizer_hyper), intent(inout), optional :: h
      integer(c_int), value :: optimizer
      call zoff_optimizer_hyper_init_sized(h, 120_c_size_t, optimizer)
   end subroutine
end module zoff
