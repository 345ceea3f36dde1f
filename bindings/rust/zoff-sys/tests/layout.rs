// SPDX-License-Identifier: Apache-2.0
//! The layout of each struct is that of C, and libzoff has each call. Written by bindings/make.py.
use std::mem::{align_of, size_of, MaybeUninit};
use std::ptr::addr_of;
use zoff_sys::*;

fn size_of_target<T>(_: *const T) -> usize {
    size_of::<T>()
}

macro_rules! layout {
    ($name:ident, $size:literal, $align:literal, $($field:ident at $offset:literal of $bytes:literal,)*) => {
        assert_eq!((size_of::<$name>(), align_of::<$name>()), ($size, $align), stringify!($name));
        let whole = MaybeUninit::<$name>::uninit();
        let base = whole.as_ptr();
        $(let field = unsafe { addr_of!((*base).$field) };
        assert_eq!((field as usize - base as usize, size_of_target(field)), ($offset, $bytes), concat!(stringify!($name), ".", stringify!($field)));)*
    };
}

#[test]
fn structs() {
    layout!(zoff_accel_info, 80, 8, struct_size at 0 of 8, backend at 8 of 8, name at 16 of 8, index at 24 of 4, numa_node at 28 of 4, memory_bytes at 32 of 8, pinned_bytes at 40 of 8, pin_refused_bytes at 48 of 8, bounced_bytes at 56 of 8, pageable_copies at 64 of 8, allocated_bytes at 72 of 8,);
    layout!(zoff_aio_opts, 40, 8, struct_size at 0 of 8, backend at 8 of 8, block_bytes at 16 of 8, depth at 24 of 4, direct at 28 of 4, writable at 32 of 1, create at 33 of 1,);
    layout!(zoff_aio_info, 64, 8, struct_size at 0 of 8, backend at 8 of 8, direct at 16 of 1, registered at 17 of 1, alignment at 24 of 8, read_bytes at 32 of 8, write_bytes at 40 of 8, bounce_bytes at 48 of 8, resumed_pieces at 56 of 8,);
    layout!(zoff_aio_tune_opts, 32, 8, struct_size at 0 of 8, backend at 8 of 8, seconds at 16 of 8, direct at 24 of 4, fresh at 28 of 1,);
    layout!(zoff_aio_tune_result, 104, 8, struct_size at 0 of 8, block_bytes at 8 of 8, backend at 16 of 8, read_rate at 24 of 8, write_rate at 32 of 8, mixed_rate at 40 of 8, seconds at 48 of 8, device at 56 of 8, file_system at 64 of 32, depth at 96 of 4, direct at 100 of 1, registered at 101 of 1, cached at 102 of 1,);
    layout!(zoff_checkpoint_opts, 88, 8, struct_size at 0 of 8, data at 8 of 8, data_count at 16 of 8, name at 24 of 8, label at 32 of 8, engines at 40 of 4, keep at 44 of 4, memory at 48 of 8, skip_frozen at 56 of 1, refuse_if_busy at 57 of 1, allow at 64 of 8, data_found at 72 of 8, pinned at 80 of 1, weights_only at 81 of 1,);
    layout!(zoff_checkpoint_info, 120, 8, struct_size at 0 of 8, folder at 8 of 8, id at 16 of 8, label at 24 of 8, t at 32 of 8, bytes at 40 of 8, param_count at 48 of 8, ranks at 56 of 4, has_loss_scaler at 60 of 1, loss_scaler at 64 of 40, data_count at 104 of 8, pinned at 112 of 1,);
    layout!(zoff_checkpoint_param, 80, 8, struct_size at 0 of 8, name at 8 of 8, slice_name at 16 of 8, tied_to at 24 of 8, dims at 32 of 8, dim_count at 40 of 8, count at 48 of 8, slices at 56 of 8, dtype at 64 of 4, states at 68 of 4, rule at 72 of 8,);
    layout!(zoff_comm_opts, 24, 8, struct_size at 0 of 8, backend at 8 of 8, timeout_seconds at 16 of 8,);
    layout!(zoff_comm_info, 72, 8, struct_size at 0 of 8, backend at 8 of 8, rank at 16 of 4, size at 20 of 4, operations at 24 of 8, sent_bytes at 32 of 8, received_bytes at 40 of 8, node_bytes at 48 of 8, notes at 56 of 8, messages at 64 of 8,);
    layout!(zoff_comm_transport, 128, 8, struct_size at 0 of 8, name at 8 of 8, ctx at 16 of 8, rank at 24 of 4, size at 28 of 4, most_bytes at 32 of 8, close_seconds at 40 of 8, send at 48 of 8, receive at 56 of 8, test at 64 of 8, cancel at 72 of 8, error at 80 of 8, close at 88 of 8, failure at 96 of 8, any_thread at 104 of 4, world_size at 112 of 8, node_ranks at 120 of 4,);
    layout!(zoff_nccl_opts, 64, 8, struct_size at 0 of 8, rank at 8 of 4, size at 12 of 4, device at 16 of 4, timeout_seconds at 24 of 8, broadcast at 32 of 8, ctx at 40 of 8, nccl_comm at 48 of 8, nccl_stream at 56 of 8,);
    layout!(zoff_engine_opts, 120, 8, struct_size at 0 of 8, config_path at 8 of 8, config at 16 of 8, accel at 24 of 8, comm at 32 of 8, ranks at 40 of 8, state_tier at 48 of 4, nvme_path at 56 of 8, host_bytes at 64 of 8, chunk_elements at 72 of 8, threads at 80 of 4, progress_thread at 84 of 1, persist_t at 88 of 8, progress at 96 of 8, progress_ctx at 104 of 8, norm_comm at 112 of 8,);
    layout!(zoff_param_desc, 136, 8, struct_size at 0 of 8, value at 8 of 8, grad at 16 of 8, count at 24 of 8, slices at 32 of 8, value_stride at 40 of 8, grad_stride at 48 of 8, dtype at 56 of 4, grad_dtype at 60 of 4, group at 64 of 4, frozen at 68 of 1, name at 72 of 8, engine_owned at 80 of 1, dims at 88 of 8, dim_count at 96 of 8, slice_name at 104 of 8, norm_replicated at 112 of 1, reduced at 113 of 1, matrix_rows at 120 of 8, matrix_row_count at 128 of 8,);
    layout!(zoff_plan_traffic, 32, 8, sent_bytes at 0 of 8, node_bytes at 8 of 8, notes at 16 of 8, messages at 24 of 8,);
    layout!(zoff_plan_info, 360, 8, struct_size at 0 of 8, tier at 8 of 4, elements at 16 of 8, state_bytes at 24 of 8, host_bytes at 32 of 8, nvme_bytes at 40 of 8, accumulator_bytes at 48 of 8, chunk_count at 56 of 8, chunk_bytes at 64 of 8, slots at 72 of 4, threads at 76 of 4, resident_bytes at 80 of 8, step_read_bytes at 88 of 8, step_write_bytes at 96 of 8, weight_bytes at 104 of 8, weight_host_bytes at 112 of 8, weight_nvme_bytes at 120 of 8, exchange_bytes at 128 of 8, device_host_bytes at 136 of 8, device_bytes at 144 of 8, memory_bytes at 152 of 8, memory_free_bytes at 160 of 8, save_bytes at 168 of 8, speculation_bytes at 176 of 8, nvme_memory_bytes at 184 of 8, matrix_elements at 192 of 8, matrix_flop at 200 of 8, matrix_bytes at 208 of 8, reduce at 216 of 32, report at 248 of 32, gather at 280 of 32, fetch at 312 of 32, exact_sums at 344 of 4, sum_ranks at 348 of 4, sums_once at 352 of 4,);
    layout!(zoff_optimizer_tensor, 88, 8, struct_size at 0 of 8, count at 8 of 8, master at 16 of 8, m at 24 of 8, v at 32 of 8, grad at 40 of 8, grad_dtype at 48 of 4, copy_out at 56 of 8, copy_dtype at 64 of 4, master_dtype at 68 of 4, rows at 72 of 8, cols at 80 of 8,);
    layout!(zoff_loss_scaler, 40, 8, struct_size at 0 of 8, scale at 8 of 8, iterations at 16 of 8, last_overflow at 24 of 8, hysteresis at 32 of 8,);
    layout!(zoff_checkpoint_data, 32, 8, name at 0 of 8, bytes at 8 of 8, count at 16 of 8, each_rank at 24 of 1,);
    layout!(zoff_norm_sum, 640, 8, words at 0 of 640,);
    layout!(zoff_step_args, 72, 8, struct_size at 0 of 8, t at 8 of 8, hyper at 16 of 8, hyper_stride at 24 of 8, hyper_count at 32 of 8, clip_norm at 40 of 8, grad_scale at 48 of 8, flags at 56 of 4, norm_sum at 64 of 8,);
    layout!(zoff_step_numbers, 88, 8, lr at 0 of 8, loss_scale at 8 of 8, grad_norm at 16 of 8, clip_factor at 24 of 8, elements_owned at 32 of 8, elements_updated at 40 of 8, elements_on_device at 48 of 8, reserved at 56 of 32,);
    layout!(zoff_step_bytes, 128, 8, host_read at 0 of 8, host_written at 8 of 8, nvme_read at 16 of 8, nvme_read_ahead at 24 of 8, nvme_written at 32 of 8, device_read at 40 of 8, device_written at 48 of 8, sent at 56 of 8, sent_gradients at 64 of 8, sent_weights at 72 of 8, received at 80 of 8, sent_matrices at 88 of 8, reserved at 96 of 32,);
    layout!(zoff_step_seconds, 96, 8, total at 0 of 8, measure at 8 of 8, update at 16 of 8, checksum at 24 of 8, io_wait at 32 of 8, device_wait at 40 of 8, comm_wait at 48 of 8, save_wait at 56 of 8, visible at 64 of 8, orthogonalize at 72 of 8, reserved at 80 of 16,);
    layout!(zoff_step_buckets, 32, 8, all at 0 of 8, speculated at 8 of 8, committed at 16 of 8, redone at 24 of 8,);
    layout!(zoff_step_culprit, 16, 8, param at 0 of 4, rank at 4 of 4, slice at 8 of 8,);
    layout!(zoff_step_info, 400, 8, struct_size at 0 of 8, outcome at 8 of 4, skipped at 12 of 1, accumulated at 13 of 1, micro_step at 16 of 4, micro_steps at 20 of 4, t at 24 of 8, numbers at 32 of 88, bytes at 120 of 128, seconds at 248 of 96, culprit at 344 of 16, stop_requested at 360 of 1, buckets at 368 of 32,);
    layout!(zoff_handover, 48, 8, struct_size at 0 of 8, param at 8 of 4, flags at 12 of 4, slice at 16 of 8, value at 24 of 8, grad at 32 of 8, native_stream at 40 of 8,);
    layout!(zoff_optimizer_hyper, 120, 8, struct_size at 0 of 8, lr at 8 of 8, beta1 at 16 of 8, beta2 at 24 of 8, eps at 32 of 8, weight_decay at 40 of 8, decay at 48 of 4, momentum at 56 of 8, dampening at 64 of 8, lr_decay at 72 of 8, optimizer at 80 of 4, nesterov at 84 of 1, filled at 85 of 1, flags at 88 of 8, adam_lr at 96 of 8, ns_steps at 104 of 4, ns_method at 108 of 4, scale at 112 of 4, coefficients at 116 of 4,);
    layout!(zoff_plugin_host, 32, 8, struct_size at 0 of 8, version at 8 of 4, fail at 16 of 8, warn at 24 of 8,);
    layout!(zoff_plugin_meeting, 32, 8, struct_size at 0 of 8, rank at 8 of 4, size at 12 of 4, place at 16 of 8, timeout_seconds at 24 of 8,);
    layout!(zoff_plugin, 32, 8, struct_size at 0 of 8, connect at 8 of 8, built_in at 16 of 8, meet at 24 of 8,);
}

#[test]
fn calls() {
    let calls = [
        zoff_accel_open as *const (),
        zoff_accel_close as *const (),
        zoff_accel_get_info as *const (),
        zoff_accel_stream_open as *const (),
        zoff_accel_stream_close as *const (),
        zoff_accel_stream_call as *const (),
        zoff_accel_stream_wait as *const (),
        zoff_aio_open as *const (),
        zoff_aio_close as *const (),
        zoff_aio_reserve as *const (),
        zoff_aio_register as *const (),
        zoff_aio_read as *const (),
        zoff_aio_write as *const (),
        zoff_aio_pump as *const (),
        zoff_aio_poll as *const (),
        zoff_aio_wait as *const (),
        zoff_aio_wait_any as *const (),
        zoff_aio_get_info as *const (),
        zoff_aio_tune as *const (),
        zoff_aio_tune_print as *const (),
        zoff_checkpoint_save as *const (),
        zoff_checkpoint_begin as *const (),
        zoff_checkpoint_poll as *const (),
        zoff_checkpoint_wait as *const (),
        zoff_checkpoint_load as *const (),
        zoff_checkpoint_pin as *const (),
        zoff_checkpoint_unpin as *const (),
        zoff_checkpoint_reader_open as *const (),
        zoff_checkpoint_reader_close as *const (),
        zoff_checkpoint_reader_info as *const (),
        zoff_checkpoint_reader_param as *const (),
        zoff_checkpoint_reader_find as *const (),
        zoff_checkpoint_reader_format as *const (),
        zoff_checkpoint_reader_read as *const (),
        zoff_checkpoint_reader_data as *const (),
        zoff_checkpoint_reader_data_at as *const (),
        zoff_checkpoint_reader_manifest as *const (),
        zoff_checkpoint_reader_verify as *const (),
        zoff_checkpoint_list as *const (),
        zoff_checkpoint_writer_open as *const (),
        zoff_checkpoint_writer_write as *const (),
        zoff_checkpoint_writer_data as *const (),
        zoff_checkpoint_writer_commit as *const (),
        zoff_checkpoint_writer_close as *const (),
        zoff_state_files_scrub as *const (),
        zoff_state_files_checkpoint as *const (),
        zoff_comm_open as *const (),
        zoff_comm_open_threads as *const (),
        zoff_comm_open_transport as *const (),
        zoff_comm_open_nccl as *const (),
        zoff_comm_close as *const (),
        zoff_comm_rank as *const (),
        zoff_comm_size as *const (),
        zoff_comm_get_info as *const (),
        zoff_config_open as *const (),
        zoff_config_read as *const (),
        zoff_config_read_text as *const (),
        zoff_config_set as *const (),
        zoff_config_resolve as *const (),
        zoff_config_number as *const (),
        zoff_config_string as *const (),
        zoff_config_dump as *const (),
        zoff_config_reference as *const (),
        zoff_config_schema as *const (),
        zoff_config_close as *const (),
        zoff_engine_create as *const (),
        zoff_engine_open_sized as *const (),
        zoff_engine_destroy as *const (),
        zoff_engine_add_param as *const (),
        zoff_engine_find_param as *const (),
        zoff_engine_error as *const (),
        zoff_engine_set_lr as *const (),
        zoff_engine_set_group as *const (),
        zoff_engine_get_group as *const (),
        zoff_engine_plan as *const (),
        zoff_engine_seal as *const (),
        zoff_param_bind as *const (),
        zoff_param_bind_opts as *const (),
        zoff_engine_comm as *const (),
        zoff_engine_progress as *const (),
        zoff_engine_request_stop as *const (),
        zoff_stats_print as *const (),
        zoff_optimizer_step as *const (),
        zoff_optimizer_step_list as *const (),
        zoff_isa as *const (),
        zoff_params_pull as *const (),
        zoff_param_pull as *const (),
        zoff_params_push as *const (),
        zoff_state_read as *const (),
        zoff_state_write as *const (),
        zoff_state_flush as *const (),
        zoff_param_fetch as *const (),
        zoff_param_release as *const (),
        zoff_param_write as *const (),
        zoff_param_read as *const (),
        zoff_persist_data as *const (),
        zoff_loss_scale as *const (),
        zoff_loss_scaler_get as *const (),
        zoff_loss_scaler_set as *const (),
        zoff_version as *const (),
        zoff_status_text as *const (),
        zoff_last_error as *const (),
        zoff_log_set as *const (),
        zoff_feature as *const (),
        zoff_features as *const (),
        zoff_grad_ready as *const (),
        zoff_grads_hand_over as *const (),
        zoff_grad_acquire as *const (),
        zoff_grad_weight as *const (),
        zoff_step as *const (),
        zoff_step_measure as *const (),
        zoff_norm_sum_join as *const (),
        zoff_norm_sum_value as *const (),
        zoff_step_prepare as *const (),
        zoff_step_begin as *const (),
        zoff_step_wait as *const (),
        zoff_param_wait as *const (),
        zoff_params_wait as *const (),
        zoff_grad_reusable as *const (),
        zoff_step_retry as *const (),
        zoff_grads_drop as *const (),
        zoff_step_count as *const (),
        zoff_step_count_set as *const (),
        zoff_optimizer_hyper_init_sized as *const (),
    ];
    assert!(calls.iter().all(|call| !call.is_null()));
}
