# SPDX-License-Identifier: Apache-2.0
"""_api.py: the C API of zoff as declarations of ctypes. Written by bindings/make.py from share/zoff/api.json.

A struct that is made by its class has its struct_size, and everything else is zero; one in an array has all zeros. Handles,
memory and numbers that a call sets are c_void_p, which takes an address, None, or byref(). The manual pages of section 3
describe the calls."""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint,
                    c_uint32, c_uint64, c_void_p, sizeof)

VERSION = "0.1.0"
ZOFF_STREAM_DEFAULT = 1
ZOFF_COMM_ANY_RANK = 4294967295
ZOFF_NO_GRAD = 1
ZOFF_VERSION_MAJOR = 0
ZOFF_VERSION_MINOR = 1
ZOFF_VERSION_PATCH = 0
ZOFF_VERSION_NUMBER = 100
ZOFF_OFF = -1.0
ZOFF_KEEP = -1e+300
ZOFF_PLUGIN_ABI = 1
# zoff_aio_direct
ZOFF_DIRECT_AUTO = 0
ZOFF_DIRECT_REQUIRE = 1
ZOFF_DIRECT_OFF = 2
# flags of zoff_handover
ZOFF_BIND_MOVED = 1
# zoff_state_kind
ZOFF_STATE_MASTER = 0
ZOFF_STATE_M = 1
ZOFF_STATE_V = 2
ZOFF_STATE_WEIGHTS = 3
# zoff_status
ZOFF_OK = 0
ZOFF_PENDING = 1
ZOFF_ERR_INVALID = -1
ZOFF_ERR_STATE = -2
ZOFF_ERR_NO_MEMORY = -3
ZOFF_ERR_UNSUPPORTED = -4
ZOFF_ERR_IO = -5
ZOFF_ERR_NO_SPACE = -6
ZOFF_ERR_CORRUPT = -7
ZOFF_ERR_DEVICE = -8
ZOFF_ERR_COMM = -9
ZOFF_ERR_OVERFLOW = -10
ZOFF_ERR_CANCELED = -11
# zoff_log_level
ZOFF_LOG_ERROR = 0
ZOFF_LOG_WARN = 1
ZOFF_LOG_INFO = 2
ZOFF_LOG_DEBUG = 3
ZOFF_LOG_TRACE = 4
# flags of zoff_step_args
ZOFF_STEP_ZERO_GRADS = 1
# zoff_outcome
ZOFF_OUTCOME_BEFORE = 0
ZOFF_OUTCOME_AFTER = 1
ZOFF_OUTCOME_TORN = 2
# zoff_dtype
ZOFF_DTYPE_DEFAULT = 0
ZOFF_F32 = 1
ZOFF_F16 = 2
ZOFF_BF16 = 3
# zoff_tier
ZOFF_TIER_AUTO = 0
ZOFF_TIER_HOST = 1
ZOFF_TIER_NVME = 2
# zoff_optimizer
ZOFF_OPTIMIZER_KEEP = -1
ZOFF_OPTIMIZER_ADAM = 0
ZOFF_OPTIMIZER_ADAGRAD = 1
ZOFF_OPTIMIZER_LION = 2
ZOFF_OPTIMIZER_SGD = 3
ZOFF_OPTIMIZER_MUON = 4
# zoff_decay
ZOFF_DECAY_DECOUPLED = 0
ZOFF_DECAY_L2 = 1
# zoff_muon_method
ZOFF_MUON_GRAM = 0
ZOFF_MUON_STANDARD = 1
# zoff_muon_scale
ZOFF_MUON_SCALE_ORIGINAL = 0
ZOFF_MUON_SCALE_MATCH_RMS_ADAMW = 1
ZOFF_MUON_SCALE_SPECTRAL = 2
ZOFF_MUON_SCALE_UNIT_RMS_NORM = 3
# zoff_muon_coefficients
ZOFF_MUON_SIMPLE = 0
ZOFF_MUON_QUINTIC = 1
ZOFF_MUON_POLAR_EXPRESS = 2
ZOFF_MUON_CANS = 3
ZOFF_MUON_DEEPSEEKV4 = 4
# flags of zoff_optimizer_hyper
ZOFF_HYPER_NO_BIAS_CORRECTION = 1

zoff_progress_fn = CFUNCTYPE(c_bool, c_char_p, c_uint64, c_uint64, c_void_p)
zoff_log_fn = CFUNCTYPE(None, c_int, c_char_p, c_char_p, c_void_p)
zoff_plugin_init_fn = CFUNCTYPE(c_int, c_uint, c_void_p, c_void_p)


class Struct(Structure):
    """A struct of zoff."""

    def __init__(self, **fields):
        super().__init__(**fields)
        if self._fields_[0][0] == "struct_size":
            self.struct_size = sizeof(self)


class zoff_accel_info(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backend", c_char_p),
        ("name", c_char_p),
        ("index", c_int),
        ("numa_node", c_int),
        ("memory_bytes", c_uint64),
        ("pinned_bytes", c_uint64),
        ("pin_refused_bytes", c_uint64),
        ("bounced_bytes", c_uint64),
        ("pageable_copies", c_uint64),
        ("allocated_bytes", c_uint64),
    ]


class zoff_aio_opts(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backend", c_char_p),
        ("block_bytes", c_size_t),
        ("depth", c_uint),
        ("direct", c_int),
        ("writable", c_bool),
        ("create", c_bool),
    ]


class zoff_aio_info(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backend", c_char_p),
        ("direct", c_bool),
        ("registered", c_bool),
        ("alignment", c_size_t),
        ("read_bytes", c_uint64),
        ("write_bytes", c_uint64),
        ("bounce_bytes", c_uint64),
        ("resumed_pieces", c_uint64),
    ]


class zoff_aio_tune_opts(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backend", c_char_p),
        ("seconds", c_double),
        ("direct", c_int),
        ("fresh", c_bool),
    ]


class zoff_aio_tune_result(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("block_bytes", c_size_t),
        ("backend", c_char_p),
        ("read_rate", c_double),
        ("write_rate", c_double),
        ("mixed_rate", c_double),
        ("seconds", c_double),
        ("device", c_uint64),
        ("file_system", c_char * 32),
        ("depth", c_uint),
        ("direct", c_bool),
        ("registered", c_bool),
        ("cached", c_bool),
    ]


class zoff_checkpoint_data(Struct):
    _fields_ = [
        ("name", c_char_p),
        ("bytes", c_void_p),
        ("count", c_size_t),
        ("each_rank", c_bool),
    ]


class zoff_checkpoint_opts(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("data", POINTER(zoff_checkpoint_data)),
        ("data_count", c_size_t),
        ("name", c_char_p),
        ("label", c_char_p),
        ("engines", c_uint),
        ("keep", c_uint),
        ("memory", c_uint64),
        ("skip_frozen", c_bool),
        ("refuse_if_busy", c_bool),
        ("allow", c_char_p),
        ("data_found", c_void_p),
        ("pinned", c_bool),
        ("weights_only", c_bool),
    ]


class zoff_loss_scaler(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("scale", c_double),
        ("iterations", c_int64),
        ("last_overflow", c_int64),
        ("hysteresis", c_uint64),
    ]


class zoff_checkpoint_info(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("folder", c_char_p),
        ("id", c_char_p),
        ("label", c_char_p),
        ("t", c_int64),
        ("bytes", c_uint64),
        ("param_count", c_size_t),
        ("ranks", c_uint),
        ("has_loss_scaler", c_bool),
        ("loss_scaler", zoff_loss_scaler),
        ("data_count", c_size_t),
        ("pinned", c_bool),
    ]


class zoff_checkpoint_param(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("slice_name", c_char_p),
        ("tied_to", c_char_p),
        ("dims", c_void_p),
        ("dim_count", c_size_t),
        ("count", c_size_t),
        ("slices", c_size_t),
        ("dtype", c_int),
        ("states", c_uint),
        ("rule", c_char_p),
    ]


class zoff_comm_opts(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backend", c_char_p),
        ("timeout_seconds", c_double),
    ]


class zoff_comm_info(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("backend", c_char_p),
        ("rank", c_uint),
        ("size", c_uint),
        ("operations", c_uint64),
        ("sent_bytes", c_uint64),
        ("received_bytes", c_uint64),
        ("node_bytes", c_uint64),
        ("notes", c_uint64),
        ("messages", c_uint64),
    ]


class zoff_comm_transport(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("ctx", c_void_p),
        ("rank", c_uint),
        ("size", c_uint),
        ("most_bytes", c_size_t),
        ("close_seconds", c_double),
        ("send", CFUNCTYPE(c_int, c_void_p, c_uint, c_int, c_void_p, c_size_t, c_void_p)),
        ("receive", CFUNCTYPE(c_int, c_void_p, c_uint, c_int, c_void_p, c_size_t, c_void_p)),
        ("test", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("cancel", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("error", CFUNCTYPE(c_char_p, c_void_p)),
        ("close", CFUNCTYPE(None, c_void_p, c_int)),
        ("failure", c_char_p),
        ("any_thread", c_int),
        ("world_size", c_size_t),
        ("node_ranks", c_uint),
    ]


class zoff_nccl_opts(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rank", c_uint),
        ("size", c_uint),
        ("device", c_int),
        ("timeout_seconds", c_double),
        ("broadcast", CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)),
        ("ctx", c_void_p),
        ("nccl_comm", c_void_p),
        ("nccl_stream", c_void_p),
    ]


class zoff_engine_opts(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("config_path", c_char_p),
        ("config", c_void_p),
        ("accel", c_void_p),
        ("comm", c_void_p),
        ("ranks", c_char_p),
        ("state_tier", c_int),
        ("nvme_path", c_char_p),
        ("host_bytes", c_uint64),
        ("chunk_elements", c_uint64),
        ("threads", c_uint),
        ("progress_thread", c_bool),
        ("persist_t", c_int64),
        ("progress", CFUNCTYPE(c_bool, c_char_p, c_uint64, c_uint64, c_void_p)),
        ("progress_ctx", c_void_p),
        ("norm_comm", c_void_p),
    ]


class zoff_param_desc(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("value", c_void_p),
        ("grad", c_void_p),
        ("count", c_size_t),
        ("slices", c_size_t),
        ("value_stride", c_size_t),
        ("grad_stride", c_size_t),
        ("dtype", c_int),
        ("grad_dtype", c_int),
        ("group", c_uint),
        ("frozen", c_bool),
        ("name", c_char_p),
        ("engine_owned", c_bool),
        ("dims", c_void_p),
        ("dim_count", c_size_t),
        ("slice_name", c_char_p),
        ("norm_replicated", c_bool),
        ("reduced", c_bool),
        ("matrix_rows", c_void_p),
        ("matrix_row_count", c_size_t),
    ]


class zoff_plan_traffic(Struct):
    _fields_ = [
        ("sent_bytes", c_uint64),
        ("node_bytes", c_uint64),
        ("notes", c_uint64),
        ("messages", c_uint64),
    ]


class zoff_plan_info(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("tier", c_int),
        ("elements", c_uint64),
        ("state_bytes", c_uint64),
        ("host_bytes", c_uint64),
        ("nvme_bytes", c_uint64),
        ("accumulator_bytes", c_uint64),
        ("chunk_count", c_uint64),
        ("chunk_bytes", c_uint64),
        ("slots", c_uint),
        ("threads", c_uint),
        ("resident_bytes", c_uint64),
        ("step_read_bytes", c_uint64),
        ("step_write_bytes", c_uint64),
        ("weight_bytes", c_uint64),
        ("weight_host_bytes", c_uint64),
        ("weight_nvme_bytes", c_uint64),
        ("exchange_bytes", c_uint64),
        ("device_host_bytes", c_uint64),
        ("device_bytes", c_uint64),
        ("memory_bytes", c_uint64),
        ("memory_free_bytes", c_uint64),
        ("save_bytes", c_uint64),
        ("speculation_bytes", c_uint64),
        ("nvme_memory_bytes", c_uint64),
        ("matrix_elements", c_uint64),
        ("matrix_flop", c_uint64),
        ("matrix_bytes", c_uint64),
        ("reduce", zoff_plan_traffic),
        ("report", zoff_plan_traffic),
        ("gather", zoff_plan_traffic),
        ("fetch", zoff_plan_traffic),
        ("exact_sums", c_int),
        ("sum_ranks", c_uint),
        ("sums_once", c_int),
    ]


class zoff_optimizer_tensor(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("count", c_size_t),
        ("master", c_void_p),
        ("m", c_void_p),
        ("v", c_void_p),
        ("grad", c_void_p),
        ("grad_dtype", c_int),
        ("copy_out", c_void_p),
        ("copy_dtype", c_int),
        ("master_dtype", c_int),
        ("rows", c_size_t),
        ("cols", c_size_t),
    ]


class zoff_norm_sum(Struct):
    _fields_ = [
        ("words", c_uint64 * 80),
    ]


class zoff_optimizer_hyper(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
        ("decay", c_int),
        ("momentum", c_double),
        ("dampening", c_double),
        ("lr_decay", c_double),
        ("optimizer", c_int),
        ("nesterov", c_bool),
        ("filled", c_bool),
        ("flags", c_uint64),
        ("adam_lr", c_double),
        ("ns_steps", c_uint),
        ("ns_method", c_int),
        ("scale", c_int),
        ("coefficients", c_int),
    ]


class zoff_step_args(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("t", c_int64),
        ("hyper", POINTER(zoff_optimizer_hyper)),
        ("hyper_stride", c_size_t),
        ("hyper_count", c_size_t),
        ("clip_norm", c_double),
        ("grad_scale", c_double),
        ("flags", c_uint),
        ("norm_sum", POINTER(zoff_norm_sum)),
    ]


class zoff_step_numbers(Struct):
    _fields_ = [
        ("lr", c_double),
        ("loss_scale", c_double),
        ("grad_norm", c_double),
        ("clip_factor", c_double),
        ("elements_owned", c_uint64),
        ("elements_updated", c_uint64),
        ("elements_on_device", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class zoff_step_bytes(Struct):
    _fields_ = [
        ("host_read", c_uint64),
        ("host_written", c_uint64),
        ("nvme_read", c_uint64),
        ("nvme_read_ahead", c_uint64),
        ("nvme_written", c_uint64),
        ("device_read", c_uint64),
        ("device_written", c_uint64),
        ("sent", c_uint64),
        ("sent_gradients", c_uint64),
        ("sent_weights", c_uint64),
        ("received", c_uint64),
        ("sent_matrices", c_uint64),
        ("reserved", c_uint64 * 4),
    ]


class zoff_step_seconds(Struct):
    _fields_ = [
        ("total", c_double),
        ("measure", c_double),
        ("update", c_double),
        ("checksum", c_double),
        ("io_wait", c_double),
        ("device_wait", c_double),
        ("comm_wait", c_double),
        ("save_wait", c_double),
        ("visible", c_double),
        ("orthogonalize", c_double),
        ("reserved", c_double * 2),
    ]


class zoff_step_buckets(Struct):
    _fields_ = [
        ("all", c_uint64),
        ("speculated", c_uint64),
        ("committed", c_uint64),
        ("redone", c_uint64),
    ]


class zoff_step_culprit(Struct):
    _fields_ = [
        ("param", c_uint32),
        ("rank", c_uint),
        ("slice", c_size_t),
    ]


class zoff_step_info(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("outcome", c_int),
        ("skipped", c_bool),
        ("accumulated", c_bool),
        ("micro_step", c_uint32),
        ("micro_steps", c_uint32),
        ("t", c_int64),
        ("numbers", zoff_step_numbers),
        ("bytes", zoff_step_bytes),
        ("seconds", zoff_step_seconds),
        ("culprit", zoff_step_culprit),
        ("stop_requested", c_bool),
        ("buckets", zoff_step_buckets),
    ]


class zoff_handover(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("param", c_uint32),
        ("flags", c_uint),
        ("slice", c_size_t),
        ("value", c_void_p),
        ("grad", c_void_p),
        ("native_stream", c_void_p),
    ]


class zoff_plugin_host(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("version", c_uint),
        ("fail", CFUNCTYPE(c_int, c_int, c_char_p)),
        ("warn", CFUNCTYPE(None, c_char_p)),
    ]


class zoff_plugin_meeting(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rank", c_uint),
        ("size", c_uint),
        ("place", c_char_p),
        ("timeout_seconds", c_double),
    ]


class zoff_plugin(Struct):
    _fields_ = [
        ("struct_size", c_size_t),
        ("connect", CFUNCTYPE(None, c_void_p)),
        ("built_in", c_void_p),
        ("meet", CFUNCTYPE(c_int, c_void_p, c_void_p)),
    ]


CALLS = {
    "zoff_accel_open": (c_int, (c_char_p, c_int, c_void_p)),
    "zoff_accel_close": (None, (c_void_p,)),
    "zoff_accel_get_info": (c_int, (c_void_p, POINTER(zoff_accel_info))),
    "zoff_accel_stream_open": (c_int, (c_void_p, c_void_p)),
    "zoff_accel_stream_close": (None, (c_void_p, c_void_p)),
    "zoff_accel_stream_call": (c_int, (c_void_p, c_void_p, CFUNCTYPE(None, c_void_p), c_void_p)),
    "zoff_accel_stream_wait": (c_int, (c_void_p, c_void_p)),
    "zoff_aio_open": (c_int, (c_char_p, POINTER(zoff_aio_opts), c_void_p)),
    "zoff_aio_close": (None, (c_void_p,)),
    "zoff_aio_reserve": (c_int, (c_void_p, c_uint64)),
    "zoff_aio_register": (c_int, (c_void_p, c_void_p, c_size_t)),
    "zoff_aio_read": (c_int, (c_void_p, c_uint64, c_size_t, c_void_p, c_void_p)),
    "zoff_aio_write": (c_int, (c_void_p, c_uint64, c_size_t, c_void_p, c_void_p)),
    "zoff_aio_pump": (c_int, (c_void_p,)),
    "zoff_aio_poll": (c_int, (c_void_p, c_uint64)),
    "zoff_aio_wait": (c_int, (c_void_p, c_uint64)),
    "zoff_aio_wait_any": (c_int, (c_void_p,)),
    "zoff_aio_get_info": (c_int, (c_void_p, POINTER(zoff_aio_info))),
    "zoff_aio_tune": (c_int, (c_char_p, POINTER(zoff_aio_tune_opts), POINTER(zoff_aio_tune_result))),
    "zoff_aio_tune_print": (c_int, (POINTER(zoff_aio_tune_result), c_void_p, c_size_t, c_void_p)),
    "zoff_checkpoint_save": (c_int, (c_void_p, c_char_p, POINTER(zoff_checkpoint_opts))),
    "zoff_checkpoint_begin": (c_int, (c_void_p, c_char_p, POINTER(zoff_checkpoint_opts), c_void_p)),
    "zoff_checkpoint_poll": (c_int, (c_void_p,)),
    "zoff_checkpoint_wait": (c_int, (c_void_p,)),
    "zoff_checkpoint_load": (c_int, (c_void_p, c_char_p, POINTER(zoff_checkpoint_opts))),
    "zoff_checkpoint_pin": (c_int, (c_char_p, c_char_p)),
    "zoff_checkpoint_unpin": (c_int, (c_char_p, c_char_p)),
    "zoff_checkpoint_reader_open": (c_int, (c_char_p, c_char_p, c_void_p)),
    "zoff_checkpoint_reader_close": (None, (c_void_p,)),
    "zoff_checkpoint_reader_info": (c_int, (c_void_p, POINTER(zoff_checkpoint_info))),
    "zoff_checkpoint_reader_param": (c_int, (c_void_p, c_size_t, POINTER(zoff_checkpoint_param))),
    "zoff_checkpoint_reader_find": (c_int, (c_void_p, c_char_p, c_void_p)),
    "zoff_checkpoint_reader_format": (c_int, (c_void_p, c_size_t, c_int, c_void_p)),
    "zoff_checkpoint_reader_read": (c_int, (c_void_p, c_size_t, c_int, c_size_t, c_size_t, c_void_p)),
    "zoff_checkpoint_reader_data": (c_int, (c_void_p, c_char_p, c_uint, c_void_p, c_size_t, c_void_p)),
    "zoff_checkpoint_reader_data_at": (c_int, (c_void_p, c_size_t, POINTER(zoff_checkpoint_data), c_void_p)),
    "zoff_checkpoint_reader_manifest": (c_int, (c_void_p, c_void_p, c_size_t, c_void_p)),
    "zoff_checkpoint_reader_verify": (c_int, (c_void_p, CFUNCTYPE(c_bool, c_char_p, c_uint64, c_uint64, c_void_p), c_void_p)),
    "zoff_checkpoint_list": (c_int, (c_char_p, c_void_p, c_size_t, c_void_p)),
    "zoff_checkpoint_writer_open": (c_int, (c_char_p, POINTER(zoff_checkpoint_opts), c_int64, POINTER(zoff_checkpoint_param), c_size_t, POINTER(zoff_loss_scaler), c_void_p)),
    "zoff_checkpoint_writer_write": (c_int, (c_void_p, c_size_t, c_int, c_size_t, c_size_t, c_void_p)),
    "zoff_checkpoint_writer_data": (c_int, (c_void_p, c_char_p, c_void_p, c_size_t)),
    "zoff_checkpoint_writer_commit": (c_int, (c_void_p,)),
    "zoff_checkpoint_writer_close": (None, (c_void_p,)),
    "zoff_state_files_scrub": (c_int, (c_void_p, c_size_t, CFUNCTYPE(c_bool, c_char_p, c_uint64, c_uint64, c_void_p), c_void_p, c_void_p, c_size_t, c_void_p, c_void_p)),
    "zoff_state_files_checkpoint": (c_int, (c_void_p, c_size_t, c_char_p, POINTER(zoff_checkpoint_opts), CFUNCTYPE(c_bool, c_char_p, c_uint64, c_uint64, c_void_p), c_void_p)),
    "zoff_comm_open": (c_int, (POINTER(zoff_comm_opts), c_void_p)),
    "zoff_comm_open_threads": (c_int, (POINTER(zoff_comm_opts), c_uint, c_void_p)),
    "zoff_comm_open_transport": (c_int, (POINTER(zoff_comm_opts), POINTER(zoff_comm_transport), c_void_p)),
    "zoff_comm_open_nccl": (c_int, (POINTER(zoff_nccl_opts), c_void_p)),
    "zoff_comm_close": (None, (c_void_p,)),
    "zoff_comm_rank": (c_uint, (c_void_p,)),
    "zoff_comm_size": (c_uint, (c_void_p,)),
    "zoff_comm_get_info": (c_int, (c_void_p, POINTER(zoff_comm_info))),
    "zoff_config_open": (c_int, (c_char_p, c_void_p)),
    "zoff_config_read": (c_int, (c_void_p, c_char_p)),
    "zoff_config_read_text": (c_int, (c_void_p, c_char_p, c_size_t, c_char_p)),
    "zoff_config_set": (c_int, (c_void_p, c_char_p, c_char_p)),
    "zoff_config_resolve": (c_int, (c_void_p, c_uint)),
    "zoff_config_number": (c_int, (c_void_p, c_char_p, c_void_p)),
    "zoff_config_string": (c_int, (c_void_p, c_char_p, c_void_p)),
    "zoff_config_dump": (c_int, (c_void_p, c_void_p, c_size_t, c_void_p)),
    "zoff_config_reference": (c_int, (c_void_p, c_size_t, c_void_p)),
    "zoff_config_schema": (c_int, (c_void_p, c_size_t, c_void_p)),
    "zoff_config_close": (None, (c_void_p,)),
    "zoff_engine_create": (c_int, (POINTER(zoff_engine_opts), c_void_p)),
    "zoff_engine_open_sized": (c_int, (POINTER(zoff_engine_opts), POINTER(zoff_param_desc), c_size_t, c_size_t, c_void_p)),
    "zoff_engine_destroy": (None, (c_void_p,)),
    "zoff_engine_add_param": (c_int, (c_void_p, POINTER(zoff_param_desc), c_void_p)),
    "zoff_engine_find_param": (c_int, (c_void_p, c_char_p, c_void_p)),
    "zoff_engine_error": (c_char_p, (c_void_p,)),
    "zoff_engine_set_lr": (c_int, (c_void_p, c_uint, c_double)),
    "zoff_engine_set_group": (c_int, (c_void_p, c_uint, POINTER(zoff_optimizer_hyper))),
    "zoff_engine_get_group": (c_int, (c_void_p, c_uint, c_int64, POINTER(zoff_optimizer_hyper))),
    "zoff_engine_plan": (c_int, (c_void_p, POINTER(zoff_plan_info))),
    "zoff_engine_seal": (c_int, (c_void_p,)),
    "zoff_param_bind": (c_int, (c_void_p, c_uint32, c_void_p, c_void_p)),
    "zoff_param_bind_opts": (c_int, (c_void_p, c_uint32, c_void_p, c_void_p, c_uint)),
    "zoff_engine_comm": (c_void_p, (c_void_p,)),
    "zoff_engine_progress": (c_int, (c_void_p,)),
    "zoff_engine_request_stop": (None, (c_void_p,)),
    "zoff_stats_print": (c_int, (c_void_p, c_void_p, c_size_t, c_void_p)),
    "zoff_optimizer_step": (c_int, (POINTER(zoff_optimizer_hyper), c_int64, c_double, POINTER(zoff_optimizer_tensor))),
    "zoff_optimizer_step_list": (c_int, (POINTER(zoff_optimizer_hyper), c_size_t, c_int64, c_double, POINTER(zoff_optimizer_tensor), c_size_t, c_size_t)),
    "zoff_isa": (c_char_p, ()),
    "zoff_params_pull": (c_int, (c_void_p,)),
    "zoff_param_pull": (c_int, (c_void_p, c_uint32)),
    "zoff_params_push": (c_int, (c_void_p,)),
    "zoff_state_read": (c_int, (c_void_p, c_uint32, c_int, c_size_t, c_size_t, c_void_p)),
    "zoff_state_write": (c_int, (c_void_p, c_uint32, c_int, c_size_t, c_size_t, c_void_p)),
    "zoff_state_flush": (c_int, (c_void_p,)),
    "zoff_param_fetch": (c_int, (c_void_p, c_uint32, c_size_t, c_void_p, c_void_p)),
    "zoff_param_release": (c_int, (c_void_p, c_uint32, c_size_t, c_void_p)),
    "zoff_param_write": (c_int, (c_void_p, c_uint32, c_size_t, c_size_t, c_void_p)),
    "zoff_param_read": (c_int, (c_void_p, c_uint32, c_size_t, c_size_t, c_void_p)),
    "zoff_persist_data": (c_int, (c_void_p, POINTER(zoff_checkpoint_data), c_size_t)),
    "zoff_loss_scale": (c_int, (c_void_p, c_void_p)),
    "zoff_loss_scaler_get": (c_int, (c_void_p, POINTER(zoff_loss_scaler))),
    "zoff_loss_scaler_set": (c_int, (c_void_p, POINTER(zoff_loss_scaler))),
    "zoff_version": (c_uint, ()),
    "zoff_status_text": (c_char_p, (c_int,)),
    "zoff_last_error": (c_char_p, ()),
    "zoff_log_set": (None, (CFUNCTYPE(None, c_int, c_char_p, c_char_p, c_void_p), c_void_p)),
    "zoff_feature": (c_int, (c_char_p,)),
    "zoff_features": (c_int, (c_void_p, c_size_t, c_void_p)),
    "zoff_grad_ready": (c_int, (c_void_p, c_uint32, c_size_t, c_void_p)),
    "zoff_grads_hand_over": (c_int, (c_void_p, POINTER(zoff_handover), c_size_t, c_size_t)),
    "zoff_grad_acquire": (c_int, (c_void_p, c_uint32, c_size_t, c_void_p, c_void_p)),
    "zoff_grad_weight": (c_int, (c_void_p, c_double)),
    "zoff_step": (c_int, (c_void_p, POINTER(zoff_step_args), POINTER(zoff_step_info))),
    "zoff_step_measure": (c_int, (c_void_p, POINTER(zoff_step_args), POINTER(zoff_norm_sum))),
    "zoff_norm_sum_join": (c_int, (POINTER(zoff_norm_sum), POINTER(zoff_norm_sum))),
    "zoff_norm_sum_value": (c_int, (POINTER(zoff_norm_sum), c_void_p)),
    "zoff_step_prepare": (c_int, (c_void_p, POINTER(zoff_step_args))),
    "zoff_step_begin": (c_int, (c_void_p, POINTER(zoff_step_args))),
    "zoff_step_wait": (c_int, (c_void_p, POINTER(zoff_step_info))),
    "zoff_param_wait": (c_int, (c_void_p, c_uint32, c_size_t, c_void_p)),
    "zoff_params_wait": (c_int, (c_void_p, c_uint32, c_size_t, c_size_t, c_void_p)),
    "zoff_grad_reusable": (c_int, (c_void_p, c_uint32, c_size_t, c_void_p)),
    "zoff_step_retry": (c_int, (c_void_p, POINTER(zoff_step_info))),
    "zoff_grads_drop": (c_int, (c_void_p,)),
    "zoff_step_count": (c_int, (c_void_p, c_void_p)),
    "zoff_step_count_set": (c_int, (c_void_p, c_int64)),
    "zoff_optimizer_hyper_init_sized": (None, (POINTER(zoff_optimizer_hyper), c_size_t, c_int)),
}


def declare(library):
    """Give each function of a library that ctypes has loaded its types."""
    for name, (result, arguments) in CALLS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
