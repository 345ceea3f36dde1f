! SPDX-License-Identifier: Apache-2.0
! layout.f90: compares sizes and offsets of zoff.f90 with those of C. Written by bindings/make.py.
program layout
   use zoff
   implicit none
   integer :: wrong = 0
   type(zoff_accel_info), target :: the_accel_info
   type(zoff_aio_opts), target :: the_aio_opts
   type(zoff_aio_info), target :: the_aio_info
   type(zoff_aio_tune_opts), target :: the_aio_tune_opts
   type(zoff_aio_tune_result), target :: the_aio_tune_result
   type(zoff_checkpoint_opts), target :: the_checkpoint_opts
   type(zoff_checkpoint_info), target :: the_checkpoint_info
   type(zoff_checkpoint_param), target :: the_checkpoint_param
   type(zoff_comm_opts), target :: the_comm_opts
   type(zoff_comm_info), target :: the_comm_info
   type(zoff_comm_transport), target :: the_comm_transport
   type(zoff_nccl_opts), target :: the_nccl_opts
   type(zoff_engine_opts), target :: the_engine_opts
   type(zoff_param_desc), target :: the_param_desc
   type(zoff_plan_traffic), target :: the_plan_traffic
   type(zoff_plan_info), target :: the_plan_info
   type(zoff_optimizer_tensor), target :: the_optimizer_tensor
   type(zoff_loss_scaler), target :: the_loss_scaler
   type(zoff_checkpoint_data), target :: the_checkpoint_data
   type(zoff_norm_sum), target :: the_norm_sum
   type(zoff_step_args), target :: the_step_args
   type(zoff_step_numbers), target :: the_step_numbers
   type(zoff_step_bytes), target :: the_step_bytes
   type(zoff_step_seconds), target :: the_step_seconds
   type(zoff_step_buckets), target :: the_step_buckets
   type(zoff_step_culprit), target :: the_step_culprit
   type(zoff_step_info), target :: the_step_info
   type(zoff_handover), target :: the_handover
   type(zoff_optimizer_hyper), target :: the_optimizer_hyper
   type(zoff_plugin_host), target :: the_plugin_host
   type(zoff_plugin_meeting), target :: the_plugin_meeting
   type(zoff_plugin), target :: the_plugin
   call compare("zoff_accel_info", 0, 0, int(c_sizeof(the_accel_info)), 80)
   call compare("zoff_accel_info%struct_size", away(c_loc(the_accel_info%struct_size), c_loc(the_accel_info)), 0, &
      int(c_sizeof(the_accel_info%struct_size)), 8)
   call compare("zoff_accel_info%backend", away(c_loc(the_accel_info%backend), c_loc(the_accel_info)), 8, &
      int(c_sizeof(the_accel_info%backend)), 8)
   call compare("zoff_accel_info%name", away(c_loc(the_accel_info%name), c_loc(the_accel_info)), 16, &
      int(c_sizeof(the_accel_info%name)), 8)
   call compare("zoff_accel_info%index", away(c_loc(the_accel_info%index), c_loc(the_accel_info)), 24, &
      int(c_sizeof(the_accel_info%index)), 4)
   call compare("zoff_accel_info%numa_node", away(c_loc(the_accel_info%numa_node), c_loc(the_accel_info)), 28, &
      int(c_sizeof(the_accel_info%numa_node)), 4)
   call compare("zoff_accel_info%memory_bytes", away(c_loc(the_accel_info%memory_bytes), c_loc(the_accel_info)), 32, &
      int(c_sizeof(the_accel_info%memory_bytes)), 8)
   call compare("zoff_accel_info%pinned_bytes", away(c_loc(the_accel_info%pinned_bytes), c_loc(the_accel_info)), 40, &
      int(c_sizeof(the_accel_info%pinned_bytes)), 8)
   call compare("zoff_accel_info%pin_refused_bytes", away(c_loc(the_accel_info%pin_refused_bytes), &
      c_loc(the_accel_info)), 48, int(c_sizeof(the_accel_info%pin_refused_bytes)), 8)
   call compare("zoff_accel_info%bounced_bytes", away(c_loc(the_accel_info%bounced_bytes), c_loc(the_accel_info)), &
      56, int(c_sizeof(the_accel_info%bounced_bytes)), 8)
   call compare("zoff_accel_info%pageable_copies", away(c_loc(the_accel_info%pageable_copies), &
      c_loc(the_accel_info)), 64, int(c_sizeof(the_accel_info%pageable_copies)), 8)
   call compare("zoff_accel_info%allocated_bytes", away(c_loc(the_accel_info%allocated_bytes), &
      c_loc(the_accel_info)), 72, int(c_sizeof(the_accel_info%allocated_bytes)), 8)
   call compare("zoff_aio_opts", 0, 0, int(c_sizeof(the_aio_opts)), 40)
   call compare("zoff_aio_opts%struct_size", away(c_loc(the_aio_opts%struct_size), c_loc(the_aio_opts)), 0, &
      int(c_sizeof(the_aio_opts%struct_size)), 8)
   call compare("zoff_aio_opts%backend", away(c_loc(the_aio_opts%backend), c_loc(the_aio_opts)), 8, &
      int(c_sizeof(the_aio_opts%backend)), 8)
   call compare("zoff_aio_opts%block_bytes", away(c_loc(the_aio_opts%block_bytes), c_loc(the_aio_opts)), 16, &
      int(c_sizeof(the_aio_opts%block_bytes)), 8)
   call compare("zoff_aio_opts%depth", away(c_loc(the_aio_opts%depth), c_loc(the_aio_opts)), 24, &
      int(c_sizeof(the_aio_opts%depth)), 4)
   call compare("zoff_aio_opts%direct", away(c_loc(the_aio_opts%direct), c_loc(the_aio_opts)), 28, &
      int(c_sizeof(the_aio_opts%direct)), 4)
   call compare("zoff_aio_opts%writable", away(c_loc(the_aio_opts%writable), c_loc(the_aio_opts)), 32, &
      int(c_sizeof(the_aio_opts%writable)), 1)
   call compare("zoff_aio_opts%create", away(c_loc(the_aio_opts%create), c_loc(the_aio_opts)), 33, &
      int(c_sizeof(the_aio_opts%create)), 1)
   call compare("zoff_aio_info", 0, 0, int(c_sizeof(the_aio_info)), 64)
   call compare("zoff_aio_info%struct_size", away(c_loc(the_aio_info%struct_size), c_loc(the_aio_info)), 0, &
      int(c_sizeof(the_aio_info%struct_size)), 8)
   call compare("zoff_aio_info%backend", away(c_loc(the_aio_info%backend), c_loc(the_aio_info)), 8, &
      int(c_sizeof(the_aio_info%backend)), 8)
   call compare("zoff_aio_info%direct", away(c_loc(the_aio_info%direct), c_loc(the_aio_info)), 16, &
      int(c_sizeof(the_aio_info%direct)), 1)
   call compare("zoff_aio_info%registered", away(c_loc(the_aio_info%registered), c_loc(the_aio_info)), 17, &
      int(c_sizeof(the_aio_info%registered)), 1)
   call compare("zoff_aio_info%alignment", away(c_loc(the_aio_info%alignment), c_loc(the_aio_info)), 24, &
      int(c_sizeof(the_aio_info%alignment)), 8)
   call compare("zoff_aio_info%read_bytes", away(c_loc(the_aio_info%read_bytes), c_loc(the_aio_info)), 32, &
      int(c_sizeof(the_aio_info%read_bytes)), 8)
   call compare("zoff_aio_info%write_bytes", away(c_loc(the_aio_info%write_bytes), c_loc(the_aio_info)), 40, &
      int(c_sizeof(the_aio_info%write_bytes)), 8)
   call compare("zoff_aio_info%bounce_bytes", away(c_loc(the_aio_info%bounce_bytes), c_loc(the_aio_info)), 48, &
      int(c_sizeof(the_aio_info%bounce_bytes)), 8)
   call compare("zoff_aio_info%resumed_pieces", away(c_loc(the_aio_info%resumed_pieces), c_loc(the_aio_info)), 56, &
      int(c_sizeof(the_aio_info%resumed_pieces)), 8)
   call compare("zoff_aio_tune_opts", 0, 0, int(c_sizeof(the_aio_tune_opts)), 32)
   call compare("zoff_aio_tune_opts%struct_size", away(c_loc(the_aio_tune_opts%struct_size), &
      c_loc(the_aio_tune_opts)), 0, int(c_sizeof(the_aio_tune_opts%struct_size)), 8)
   call compare("zoff_aio_tune_opts%backend", away(c_loc(the_aio_tune_opts%backend), c_loc(the_aio_tune_opts)), 8, &
      int(c_sizeof(the_aio_tune_opts%backend)), 8)
   call compare("zoff_aio_tune_opts%seconds", away(c_loc(the_aio_tune_opts%seconds), c_loc(the_aio_tune_opts)), 16, &
      int(c_sizeof(the_aio_tune_opts%seconds)), 8)
   call compare("zoff_aio_tune_opts%direct", away(c_loc(the_aio_tune_opts%direct), c_loc(the_aio_tune_opts)), 24, &
      int(c_sizeof(the_aio_tune_opts%direct)), 4)
   call compare("zoff_aio_tune_opts%fresh", away(c_loc(the_aio_tune_opts%fresh), c_loc(the_aio_tune_opts)), 28, &
      int(c_sizeof(the_aio_tune_opts%fresh)), 1)
   call compare("zoff_aio_tune_result", 0, 0, int(c_sizeof(the_aio_tune_result)), 104)
   call compare("zoff_aio_tune_result%struct_size", away(c_loc(the_aio_tune_result%struct_size), &
      c_loc(the_aio_tune_result)), 0, int(c_sizeof(the_aio_tune_result%struct_size)), 8)
   call compare("zoff_aio_tune_result%block_bytes", away(c_loc(the_aio_tune_result%block_bytes), &
      c_loc(the_aio_tune_result)), 8, int(c_sizeof(the_aio_tune_result%block_bytes)), 8)
   call compare("zoff_aio_tune_result%backend", away(c_loc(the_aio_tune_result%backend), &
      c_loc(the_aio_tune_result)), 16, int(c_sizeof(the_aio_tune_result%backend)), 8)
   call compare("zoff_aio_tune_result%read_rate", away(c_loc(the_aio_tune_result%read_rate), &
      c_loc(the_aio_tune_result)), 24, int(c_sizeof(the_aio_tune_result%read_rate)), 8)
   call compare("zoff_aio_tune_result%write_rate", away(c_loc(the_aio_tune_result%write_rate), &
      c_loc(the_aio_tune_result)), 32, int(c_sizeof(the_aio_tune_result%write_rate)), 8)
   call compare("zoff_aio_tune_result%mixed_rate", away(c_loc(the_aio_tune_result%mixed_rate), &
      c_loc(the_aio_tune_result)), 40, int(c_sizeof(the_aio_tune_result%mixed_rate)), 8)
   call compare("zoff_aio_tune_result%seconds", away(c_loc(the_aio_tune_result%seconds), &
      c_loc(the_aio_tune_result)), 48, int(c_sizeof(the_aio_tune_result%seconds)), 8)
   call compare("zoff_aio_tune_result%device", away(c_loc(the_aio_tune_result%device), c_loc(the_aio_tune_result)), &
      56, int(c_sizeof(the_aio_tune_result%device)), 8)
   call compare("zoff_aio_tune_result%file_system", away(c_loc(the_aio_tune_result%file_system), &
      c_loc(the_aio_tune_result)), 64, int(c_sizeof(the_aio_tune_result%file_system)), 32)
   call compare("zoff_aio_tune_result%depth", away(c_loc(the_aio_tune_result%depth), c_loc(the_aio_tune_result)), &
      96, int(c_sizeof(the_aio_tune_result%depth)), 4)
   call compare("zoff_aio_tune_result%direct", away(c_loc(the_aio_tune_result%direct), c_loc(the_aio_tune_result)), &
      100, int(c_sizeof(the_aio_tune_result%direct)), 1)
   call compare("zoff_aio_tune_result%registered", away(c_loc(the_aio_tune_result%registered), &
      c_loc(the_aio_tune_result)), 101, int(c_sizeof(the_aio_tune_result%registered)), 1)
   call compare("zoff_aio_tune_result%cached", away(c_loc(the_aio_tune_result%cached), c_loc(the_aio_tune_result)), &
      102, int(c_sizeof(the_aio_tune_result%cached)), 1)
   call compare("zoff_checkpoint_opts", 0, 0, int(c_sizeof(the_checkpoint_opts)), 88)
   call compare("zoff_checkpoint_opts%struct_size", away(c_loc(the_checkpoint_opts%struct_size), &
      c_loc(the_checkpoint_opts)), 0, int(c_sizeof(the_checkpoint_opts%struct_size)), 8)
   call compare("zoff_checkpoint_opts%data", away(c_loc(the_checkpoint_opts%data), c_loc(the_checkpoint_opts)), 8, &
      int(c_sizeof(the_checkpoint_opts%data)), 8)
   call compare("zoff_checkpoint_opts%data_count", away(c_loc(the_checkpoint_opts%data_count), &
      c_loc(the_checkpoint_opts)), 16, int(c_sizeof(the_checkpoint_opts%data_count)), 8)
   call compare("zoff_checkpoint_opts%name", away(c_loc(the_checkpoint_opts%name), c_loc(the_checkpoint_opts)), 24, &
      int(c_sizeof(the_checkpoint_opts%name)), 8)
   call compare("zoff_checkpoint_opts%label", away(c_loc(the_checkpoint_opts%label), c_loc(the_checkpoint_opts)), &
      32, int(c_sizeof(the_checkpoint_opts%label)), 8)
   call compare("zoff_checkpoint_opts%engines", away(c_loc(the_checkpoint_opts%engines), &
      c_loc(the_checkpoint_opts)), 40, int(c_sizeof(the_checkpoint_opts%engines)), 4)
   call compare("zoff_checkpoint_opts%keep", away(c_loc(the_checkpoint_opts%keep), c_loc(the_checkpoint_opts)), 44, &
      int(c_sizeof(the_checkpoint_opts%keep)), 4)
   call compare("zoff_checkpoint_opts%memory", away(c_loc(the_checkpoint_opts%memory), c_loc(the_checkpoint_opts)), &
      48, int(c_sizeof(the_checkpoint_opts%memory)), 8)
   call compare("zoff_checkpoint_opts%skip_frozen", away(c_loc(the_checkpoint_opts%skip_frozen), &
      c_loc(the_checkpoint_opts)), 56, int(c_sizeof(the_checkpoint_opts%skip_frozen)), 1)
   call compare("zoff_checkpoint_opts%refuse_if_busy", away(c_loc(the_checkpoint_opts%refuse_if_busy), &
      c_loc(the_checkpoint_opts)), 57, int(c_sizeof(the_checkpoint_opts%refuse_if_busy)), 1)
   call compare("zoff_checkpoint_opts%allow", away(c_loc(the_checkpoint_opts%allow), c_loc(the_checkpoint_opts)), &
      64, int(c_sizeof(the_checkpoint_opts%allow)), 8)
   call compare("zoff_checkpoint_opts%data_found", away(c_loc(the_checkpoint_opts%data_found), &
      c_loc(the_checkpoint_opts)), 72, int(c_sizeof(the_checkpoint_opts%data_found)), 8)
   call compare("zoff_checkpoint_opts%pinned", away(c_loc(the_checkpoint_opts%pinned), c_loc(the_checkpoint_opts)), &
      80, int(c_sizeof(the_checkpoint_opts%pinned)), 1)
   call compare("zoff_checkpoint_opts%weights_only", away(c_loc(the_checkpoint_opts%weights_only), &
      c_loc(the_checkpoint_opts)), 81, int(c_sizeof(the_checkpoint_opts%weights_only)), 1)
   call compare("zoff_checkpoint_info", 0, 0, int(c_sizeof(the_checkpoint_info)), 120)
   call compare("zoff_checkpoint_info%struct_size", away(c_loc(the_checkpoint_info%struct_size), &
      c_loc(the_checkpoint_info)), 0, int(c_sizeof(the_checkpoint_info%struct_size)), 8)
   call compare("zoff_checkpoint_info%folder", away(c_loc(the_checkpoint_info%folder), c_loc(the_checkpoint_info)), &
      8, int(c_sizeof(the_checkpoint_info%folder)), 8)
   call compare("zoff_checkpoint_info%id", away(c_loc(the_checkpoint_info%id), c_loc(the_checkpoint_info)), 16, &
      int(c_sizeof(the_checkpoint_info%id)), 8)
   call compare("zoff_checkpoint_info%label", away(c_loc(the_checkpoint_info%label), c_loc(the_checkpoint_info)), &
      24, int(c_sizeof(the_checkpoint_info%label)), 8)
   call compare("zoff_checkpoint_info%t", away(c_loc(the_checkpoint_info%t), c_loc(the_checkpoint_info)), 32, &
      int(c_sizeof(the_checkpoint_info%t)), 8)
   call compare("zoff_checkpoint_info%bytes", away(c_loc(the_checkpoint_info%bytes), c_loc(the_checkpoint_info)), &
      40, int(c_sizeof(the_checkpoint_info%bytes)), 8)
   call compare("zoff_checkpoint_info%param_count", away(c_loc(the_checkpoint_info%param_count), &
      c_loc(the_checkpoint_info)), 48, int(c_sizeof(the_checkpoint_info%param_count)), 8)
   call compare("zoff_checkpoint_info%ranks", away(c_loc(the_checkpoint_info%ranks), c_loc(the_checkpoint_info)), &
      56, int(c_sizeof(the_checkpoint_info%ranks)), 4)
   call compare("zoff_checkpoint_info%has_loss_scaler", away(c_loc(the_checkpoint_info%has_loss_scaler), &
      c_loc(the_checkpoint_info)), 60, int(c_sizeof(the_checkpoint_info%has_loss_scaler)), 1)
   call compare("zoff_checkpoint_info%loss_scaler", away(c_loc(the_checkpoint_info%loss_scaler), &
      c_loc(the_checkpoint_info)), 64, int(c_sizeof(the_checkpoint_info%loss_scaler)), 40)
   call compare("zoff_checkpoint_info%data_count", away(c_loc(the_checkpoint_info%data_count), &
      c_loc(the_checkpoint_info)), 104, int(c_sizeof(the_checkpoint_info%data_count)), 8)
   call compare("zoff_checkpoint_info%pinned", away(c_loc(the_checkpoint_info%pinned), c_loc(the_checkpoint_info)), &
      112, int(c_sizeof(the_checkpoint_info%pinned)), 1)
   call compare("zoff_checkpoint_param", 0, 0, int(c_sizeof(the_checkpoint_param)), 80)
   call compare("zoff_checkpoint_param%struct_size", away(c_loc(the_checkpoint_param%struct_size), &
      c_loc(the_checkpoint_param)), 0, int(c_sizeof(the_checkpoint_param%struct_size)), 8)
   call compare("zoff_checkpoint_param%name", away(c_loc(the_checkpoint_param%name), c_loc(the_checkpoint_param)), &
      8, int(c_sizeof(the_checkpoint_param%name)), 8)
   call compare("zoff_checkpoint_param%slice_name", away(c_loc(the_checkpoint_param%slice_name), &
      c_loc(the_checkpoint_param)), 16, int(c_sizeof(the_checkpoint_param%slice_name)), 8)
   call compare("zoff_checkpoint_param%tied_to", away(c_loc(the_checkpoint_param%tied_to), &
      c_loc(the_checkpoint_param)), 24, int(c_sizeof(the_checkpoint_param%tied_to)), 8)
   call compare("zoff_checkpoint_param%dims", away(c_loc(the_checkpoint_param%dims), c_loc(the_checkpoint_param)), &
      32, int(c_sizeof(the_checkpoint_param%dims)), 8)
   call compare("zoff_checkpoint_param%dim_count", away(c_loc(the_checkpoint_param%dim_count), &
      c_loc(the_checkpoint_param)), 40, int(c_sizeof(the_checkpoint_param%dim_count)), 8)
   call compare("zoff_checkpoint_param%count", away(c_loc(the_checkpoint_param%count), c_loc(the_checkpoint_param)), &
      48, int(c_sizeof(the_checkpoint_param%count)), 8)
   call compare("zoff_checkpoint_param%slices", away(c_loc(the_checkpoint_param%slices), &
      c_loc(the_checkpoint_param)), 56, int(c_sizeof(the_checkpoint_param%slices)), 8)
   call compare("zoff_checkpoint_param%dtype", away(c_loc(the_checkpoint_param%dtype), c_loc(the_checkpoint_param)), &
      64, int(c_sizeof(the_checkpoint_param%dtype)), 4)
   call compare("zoff_checkpoint_param%states", away(c_loc(the_checkpoint_param%states), &
      c_loc(the_checkpoint_param)), 68, int(c_sizeof(the_checkpoint_param%states)), 4)
   call compare("zoff_checkpoint_param%rule", away(c_loc(the_checkpoint_param%rule), c_loc(the_checkpoint_param)), &
      72, int(c_sizeof(the_checkpoint_param%rule)), 8)
   call compare("zoff_comm_opts", 0, 0, int(c_sizeof(the_comm_opts)), 24)
   call compare("zoff_comm_opts%struct_size", away(c_loc(the_comm_opts%struct_size), c_loc(the_comm_opts)), 0, &
      int(c_sizeof(the_comm_opts%struct_size)), 8)
   call compare("zoff_comm_opts%backend", away(c_loc(the_comm_opts%backend), c_loc(the_comm_opts)), 8, &
      int(c_sizeof(the_comm_opts%backend)), 8)
   call compare("zoff_comm_opts%timeout_seconds", away(c_loc(the_comm_opts%timeout_seconds), c_loc(the_comm_opts)), &
      16, int(c_sizeof(the_comm_opts%timeout_seconds)), 8)
   call compare("zoff_comm_info", 0, 0, int(c_sizeof(the_comm_info)), 72)
   call compare("zoff_comm_info%struct_size", away(c_loc(the_comm_info%struct_size), c_loc(the_comm_info)), 0, &
      int(c_sizeof(the_comm_info%struct_size)), 8)
   call compare("zoff_comm_info%backend", away(c_loc(the_comm_info%backend), c_loc(the_comm_info)), 8, &
      int(c_sizeof(the_comm_info%backend)), 8)
   call compare("zoff_comm_info%rank", away(c_loc(the_comm_info%rank), c_loc(the_comm_info)), 16, &
      int(c_sizeof(the_comm_info%rank)), 4)
   call compare("zoff_comm_info%size", away(c_loc(the_comm_info%size), c_loc(the_comm_info)), 20, &
      int(c_sizeof(the_comm_info%size)), 4)
   call compare("zoff_comm_info%operations", away(c_loc(the_comm_info%operations), c_loc(the_comm_info)), 24, &
      int(c_sizeof(the_comm_info%operations)), 8)
   call compare("zoff_comm_info%sent_bytes", away(c_loc(the_comm_info%sent_bytes), c_loc(the_comm_info)), 32, &
      int(c_sizeof(the_comm_info%sent_bytes)), 8)
   call compare("zoff_comm_info%received_bytes", away(c_loc(the_comm_info%received_bytes), c_loc(the_comm_info)), &
      40, int(c_sizeof(the_comm_info%received_bytes)), 8)
   call compare("zoff_comm_info%node_bytes", away(c_loc(the_comm_info%node_bytes), c_loc(the_comm_info)), 48, &
      int(c_sizeof(the_comm_info%node_bytes)), 8)
   call compare("zoff_comm_info%notes", away(c_loc(the_comm_info%notes), c_loc(the_comm_info)), 56, &
      int(c_sizeof(the_comm_info%notes)), 8)
   call compare("zoff_comm_info%messages", away(c_loc(the_comm_info%messages), c_loc(the_comm_info)), 64, &
      int(c_sizeof(the_comm_info%messages)), 8)
   call compare("zoff_comm_transport", 0, 0, int(c_sizeof(the_comm_transport)), 128)
   call compare("zoff_comm_transport%struct_size", away(c_loc(the_comm_transport%struct_size), &
      c_loc(the_comm_transport)), 0, int(c_sizeof(the_comm_transport%struct_size)), 8)
   call compare("zoff_comm_transport%name", away(c_loc(the_comm_transport%name), c_loc(the_comm_transport)), 8, &
      int(c_sizeof(the_comm_transport%name)), 8)
   call compare("zoff_comm_transport%ctx", away(c_loc(the_comm_transport%ctx), c_loc(the_comm_transport)), 16, &
      int(c_sizeof(the_comm_transport%ctx)), 8)
   call compare("zoff_comm_transport%rank", away(c_loc(the_comm_transport%rank), c_loc(the_comm_transport)), 24, &
      int(c_sizeof(the_comm_transport%rank)), 4)
   call compare("zoff_comm_transport%size", away(c_loc(the_comm_transport%size), c_loc(the_comm_transport)), 28, &
      int(c_sizeof(the_comm_transport%size)), 4)
   call compare("zoff_comm_transport%most_bytes", away(c_loc(the_comm_transport%most_bytes), &
      c_loc(the_comm_transport)), 32, int(c_sizeof(the_comm_transport%most_bytes)), 8)
   call compare("zoff_comm_transport%close_seconds", away(c_loc(the_comm_transport%close_seconds), &
      c_loc(the_comm_transport)), 40, int(c_sizeof(the_comm_transport%close_seconds)), 8)
   call compare("zoff_comm_transport%send", away(c_loc(the_comm_transport%send), c_loc(the_comm_transport)), 48, &
      int(c_sizeof(the_comm_transport%send)), 8)
   call compare("zoff_comm_transport%receive", away(c_loc(the_comm_transport%receive), c_loc(the_comm_transport)), &
      56, int(c_sizeof(the_comm_transport%receive)), 8)
   call compare("zoff_comm_transport%test", away(c_loc(the_comm_transport%test), c_loc(the_comm_transport)), 64, &
      int(c_sizeof(the_comm_transport%test)), 8)
   call compare("zoff_comm_transport%cancel", away(c_loc(the_comm_transport%cancel), c_loc(the_comm_transport)), 72, &
      int(c_sizeof(the_comm_transport%cancel)), 8)
   call compare("zoff_comm_transport%error", away(c_loc(the_comm_transport%error), c_loc(the_comm_transport)), 80, &
      int(c_sizeof(the_comm_transport%error)), 8)
   call compare("zoff_comm_transport%close", away(c_loc(the_comm_transport%close), c_loc(the_comm_transport)), 88, &
      int(c_sizeof(the_comm_transport%close)), 8)
   call compare("zoff_comm_transport%failure", away(c_loc(the_comm_transport%failure), c_loc(the_comm_transport)), &
      96, int(c_sizeof(the_comm_transport%failure)), 8)
   call compare("zoff_comm_transport%any_thread", away(c_loc(the_comm_transport%any_thread), &
      c_loc(the_comm_transport)), 104, int(c_sizeof(the_comm_transport%any_thread)), 4)
   call compare("zoff_comm_transport%world_size", away(c_loc(the_comm_transport%world_size), &
      c_loc(the_comm_transport)), 112, int(c_sizeof(the_comm_transport%world_size)), 8)
   call compare("zoff_comm_transport%node_ranks", away(c_loc(the_comm_transport%node_ranks), &
      c_loc(the_comm_transport)), 120, int(c_sizeof(the_comm_transport%node_ranks)), 4)
   call compare("zoff_nccl_opts", 0, 0, int(c_sizeof(the_nccl_opts)), 64)
   call compare("zoff_nccl_opts%struct_size", away(c_loc(the_nccl_opts%struct_size), c_loc(the_nccl_opts)), 0, &
      int(c_sizeof(the_nccl_opts%struct_size)), 8)
   call compare("zoff_nccl_opts%rank", away(c_loc(the_nccl_opts%rank), c_loc(the_nccl_opts)), 8, &
      int(c_sizeof(the_nccl_opts%rank)), 4)
   call compare("zoff_nccl_opts%size", away(c_loc(the_nccl_opts%size), c_loc(the_nccl_opts)), 12, &
      int(c_sizeof(the_nccl_opts%size)), 4)
   call compare("zoff_nccl_opts%device", away(c_loc(the_nccl_opts%device), c_loc(the_nccl_opts)), 16, &
      int(c_sizeof(the_nccl_opts%device)), 4)
   call compare("zoff_nccl_opts%timeout_seconds", away(c_loc(the_nccl_opts%timeout_seconds), c_loc(the_nccl_opts)), &
      24, int(c_sizeof(the_nccl_opts%timeout_seconds)), 8)
   call compare("zoff_nccl_opts%broadcast", away(c_loc(the_nccl_opts%broadcast), c_loc(the_nccl_opts)), 32, &
      int(c_sizeof(the_nccl_opts%broadcast)), 8)
   call compare("zoff_nccl_opts%ctx", away(c_loc(the_nccl_opts%ctx), c_loc(the_nccl_opts)), 40, &
      int(c_sizeof(the_nccl_opts%ctx)), 8)
   call compare("zoff_nccl_opts%nccl_comm", away(c_loc(the_nccl_opts%nccl_comm), c_loc(the_nccl_opts)), 48, &
      int(c_sizeof(the_nccl_opts%nccl_comm)), 8)
   call compare("zoff_nccl_opts%nccl_stream", away(c_loc(the_nccl_opts%nccl_stream), c_loc(the_nccl_opts)), 56, &
      int(c_sizeof(the_nccl_opts%nccl_stream)), 8)
   call compare("zoff_engine_opts", 0, 0, int(c_sizeof(the_engine_opts)), 120)
   call compare("zoff_engine_opts%struct_size", away(c_loc(the_engine_opts%struct_size), c_loc(the_engine_opts)), 0, &
      int(c_sizeof(the_engine_opts%struct_size)), 8)
   call compare("zoff_engine_opts%config_path", away(c_loc(the_engine_opts%config_path), c_loc(the_engine_opts)), 8, &
      int(c_sizeof(the_engine_opts%config_path)), 8)
   call compare("zoff_engine_opts%config", away(c_loc(the_engine_opts%config), c_loc(the_engine_opts)), 16, &
      int(c_sizeof(the_engine_opts%config)), 8)
   call compare("zoff_engine_opts%accel", away(c_loc(the_engine_opts%accel), c_loc(the_engine_opts)), 24, &
      int(c_sizeof(the_engine_opts%accel)), 8)
   call compare("zoff_engine_opts%comm", away(c_loc(the_engine_opts%comm), c_loc(the_engine_opts)), 32, &
      int(c_sizeof(the_engine_opts%comm)), 8)
   call compare("zoff_engine_opts%ranks", away(c_loc(the_engine_opts%ranks), c_loc(the_engine_opts)), 40, &
      int(c_sizeof(the_engine_opts%ranks)), 8)
   call compare("zoff_engine_opts%state_tier", away(c_loc(the_engine_opts%state_tier), c_loc(the_engine_opts)), 48, &
      int(c_sizeof(the_engine_opts%state_tier)), 4)
   call compare("zoff_engine_opts%nvme_path", away(c_loc(the_engine_opts%nvme_path), c_loc(the_engine_opts)), 56, &
      int(c_sizeof(the_engine_opts%nvme_path)), 8)
   call compare("zoff_engine_opts%host_bytes", away(c_loc(the_engine_opts%host_bytes), c_loc(the_engine_opts)), 64, &
      int(c_sizeof(the_engine_opts%host_bytes)), 8)
   call compare("zoff_engine_opts%chunk_elements", away(c_loc(the_engine_opts%chunk_elements), &
      c_loc(the_engine_opts)), 72, int(c_sizeof(the_engine_opts%chunk_elements)), 8)
   call compare("zoff_engine_opts%threads", away(c_loc(the_engine_opts%threads), c_loc(the_engine_opts)), 80, &
      int(c_sizeof(the_engine_opts%threads)), 4)
   call compare("zoff_engine_opts%progress_thread", away(c_loc(the_engine_opts%progress_thread), &
      c_loc(the_engine_opts)), 84, int(c_sizeof(the_engine_opts%progress_thread)), 1)
   call compare("zoff_engine_opts%persist_t", away(c_loc(the_engine_opts%persist_t), c_loc(the_engine_opts)), 88, &
      int(c_sizeof(the_engine_opts%persist_t)), 8)
   call compare("zoff_engine_opts%progress", away(c_loc(the_engine_opts%progress), c_loc(the_engine_opts)), 96, &
      int(c_sizeof(the_engine_opts%progress)), 8)
   call compare("zoff_engine_opts%progress_ctx", away(c_loc(the_engine_opts%progress_ctx), c_loc(the_engine_opts)), &
      104, int(c_sizeof(the_engine_opts%progress_ctx)), 8)
   call compare("zoff_engine_opts%norm_comm", away(c_loc(the_engine_opts%norm_comm), c_loc(the_engine_opts)), 112, &
      int(c_sizeof(the_engine_opts%norm_comm)), 8)
   call compare("zoff_param_desc", 0, 0, int(c_sizeof(the_param_desc)), 136)
   call compare("zoff_param_desc%struct_size", away(c_loc(the_param_desc%struct_size), c_loc(the_param_desc)), 0, &
      int(c_sizeof(the_param_desc%struct_size)), 8)
   call compare("zoff_param_desc%value", away(c_loc(the_param_desc%value), c_loc(the_param_desc)), 8, &
      int(c_sizeof(the_param_desc%value)), 8)
   call compare("zoff_param_desc%grad", away(c_loc(the_param_desc%grad), c_loc(the_param_desc)), 16, &
      int(c_sizeof(the_param_desc%grad)), 8)
   call compare("zoff_param_desc%count", away(c_loc(the_param_desc%count), c_loc(the_param_desc)), 24, &
      int(c_sizeof(the_param_desc%count)), 8)
   call compare("zoff_param_desc%slices", away(c_loc(the_param_desc%slices), c_loc(the_param_desc)), 32, &
      int(c_sizeof(the_param_desc%slices)), 8)
   call compare("zoff_param_desc%value_stride", away(c_loc(the_param_desc%value_stride), c_loc(the_param_desc)), 40, &
      int(c_sizeof(the_param_desc%value_stride)), 8)
   call compare("zoff_param_desc%grad_stride", away(c_loc(the_param_desc%grad_stride), c_loc(the_param_desc)), 48, &
      int(c_sizeof(the_param_desc%grad_stride)), 8)
   call compare("zoff_param_desc%dtype", away(c_loc(the_param_desc%dtype), c_loc(the_param_desc)), 56, &
      int(c_sizeof(the_param_desc%dtype)), 4)
   call compare("zoff_param_desc%grad_dtype", away(c_loc(the_param_desc%grad_dtype), c_loc(the_param_desc)), 60, &
      int(c_sizeof(the_param_desc%grad_dtype)), 4)
   call compare("zoff_param_desc%group", away(c_loc(the_param_desc%group), c_loc(the_param_desc)), 64, &
      int(c_sizeof(the_param_desc%group)), 4)
   call compare("zoff_param_desc%frozen", away(c_loc(the_param_desc%frozen), c_loc(the_param_desc)), 68, &
      int(c_sizeof(the_param_desc%frozen)), 1)
   call compare("zoff_param_desc%name", away(c_loc(the_param_desc%name), c_loc(the_param_desc)), 72, &
      int(c_sizeof(the_param_desc%name)), 8)
   call compare("zoff_param_desc%engine_owned", away(c_loc(the_param_desc%engine_owned), c_loc(the_param_desc)), 80, &
      int(c_sizeof(the_param_desc%engine_owned)), 1)
   call compare("zoff_param_desc%dims", away(c_loc(the_param_desc%dims), c_loc(the_param_desc)), 88, &
      int(c_sizeof(the_param_desc%dims)), 8)
   call compare("zoff_param_desc%dim_count", away(c_loc(the_param_desc%dim_count), c_loc(the_param_desc)), 96, &
      int(c_sizeof(the_param_desc%dim_count)), 8)
   call compare("zoff_param_desc%slice_name", away(c_loc(the_param_desc%slice_name), c_loc(the_param_desc)), 104, &
      int(c_sizeof(the_param_desc%slice_name)), 8)
   call compare("zoff_param_desc%norm_replicated", away(c_loc(the_param_desc%norm_replicated), &
      c_loc(the_param_desc)), 112, int(c_sizeof(the_param_desc%norm_replicated)), 1)
   call compare("zoff_param_desc%reduced", away(c_loc(the_param_desc%reduced), c_loc(the_param_desc)), 113, &
      int(c_sizeof(the_param_desc%reduced)), 1)
   call compare("zoff_param_desc%matrix_rows", away(c_loc(the_param_desc%matrix_rows), c_loc(the_param_desc)), 120, &
      int(c_sizeof(the_param_desc%matrix_rows)), 8)
   call compare("zoff_param_desc%matrix_row_count", away(c_loc(the_param_desc%matrix_row_count), &
      c_loc(the_param_desc)), 128, int(c_sizeof(the_param_desc%matrix_row_count)), 8)
   call compare("zoff_plan_traffic", 0, 0, int(c_sizeof(the_plan_traffic)), 32)
   call compare("zoff_plan_traffic%sent_bytes", away(c_loc(the_plan_traffic%sent_bytes), c_loc(the_plan_traffic)), &
      0, int(c_sizeof(the_plan_traffic%sent_bytes)), 8)
   call compare("zoff_plan_traffic%node_bytes", away(c_loc(the_plan_traffic%node_bytes), c_loc(the_plan_traffic)), &
      8, int(c_sizeof(the_plan_traffic%node_bytes)), 8)
   call compare("zoff_plan_traffic%notes", away(c_loc(the_plan_traffic%notes), c_loc(the_plan_traffic)), 16, &
      int(c_sizeof(the_plan_traffic%notes)), 8)
   call compare("zoff_plan_traffic%messages", away(c_loc(the_plan_traffic%messages), c_loc(the_plan_traffic)), 24, &
      int(c_sizeof(the_plan_traffic%messages)), 8)
   call compare("zoff_plan_info", 0, 0, int(c_sizeof(the_plan_info)), 360)
   call compare("zoff_plan_info%struct_size", away(c_loc(the_plan_info%struct_size), c_loc(the_plan_info)), 0, &
      int(c_sizeof(the_plan_info%struct_size)), 8)
   call compare("zoff_plan_info%tier", away(c_loc(the_plan_info%tier), c_loc(the_plan_info)), 8, &
      int(c_sizeof(the_plan_info%tier)), 4)
   call compare("zoff_plan_info%elements", away(c_loc(the_plan_info%elements), c_loc(the_plan_info)), 16, &
      int(c_sizeof(the_plan_info%elements)), 8)
   call compare("zoff_plan_info%state_bytes", away(c_loc(the_plan_info%state_bytes), c_loc(the_plan_info)), 24, &
      int(c_sizeof(the_plan_info%state_bytes)), 8)
   call compare("zoff_plan_info%host_bytes", away(c_loc(the_plan_info%host_bytes), c_loc(the_plan_info)), 32, &
      int(c_sizeof(the_plan_info%host_bytes)), 8)
   call compare("zoff_plan_info%nvme_bytes", away(c_loc(the_plan_info%nvme_bytes), c_loc(the_plan_info)), 40, &
      int(c_sizeof(the_plan_info%nvme_bytes)), 8)
   call compare("zoff_plan_info%accumulator_bytes", away(c_loc(the_plan_info%accumulator_bytes), &
      c_loc(the_plan_info)), 48, int(c_sizeof(the_plan_info%accumulator_bytes)), 8)
   call compare("zoff_plan_info%chunk_count", away(c_loc(the_plan_info%chunk_count), c_loc(the_plan_info)), 56, &
      int(c_sizeof(the_plan_info%chunk_count)), 8)
   call compare("zoff_plan_info%chunk_bytes", away(c_loc(the_plan_info%chunk_bytes), c_loc(the_plan_info)), 64, &
      int(c_sizeof(the_plan_info%chunk_bytes)), 8)
   call compare("zoff_plan_info%slots", away(c_loc(the_plan_info%slots), c_loc(the_plan_info)), 72, &
      int(c_sizeof(the_plan_info%slots)), 4)
   call compare("zoff_plan_info%threads", away(c_loc(the_plan_info%threads), c_loc(the_plan_info)), 76, &
      int(c_sizeof(the_plan_info%threads)), 4)
   call compare("zoff_plan_info%resident_bytes", away(c_loc(the_plan_info%resident_bytes), c_loc(the_plan_info)), &
      80, int(c_sizeof(the_plan_info%resident_bytes)), 8)
   call compare("zoff_plan_info%step_read_bytes", away(c_loc(the_plan_info%step_read_bytes), c_loc(the_plan_info)), &
      88, int(c_sizeof(the_plan_info%step_read_bytes)), 8)
   call compare("zoff_plan_info%step_write_bytes", away(c_loc(the_plan_info%step_write_bytes), &
      c_loc(the_plan_info)), 96, int(c_sizeof(the_plan_info%step_write_bytes)), 8)
   call compare("zoff_plan_info%weight_bytes", away(c_loc(the_plan_info%weight_bytes), c_loc(the_plan_info)), 104, &
      int(c_sizeof(the_plan_info%weight_bytes)), 8)
   call compare("zoff_plan_info%weight_host_bytes", away(c_loc(the_plan_info%weight_host_bytes), &
      c_loc(the_plan_info)), 112, int(c_sizeof(the_plan_info%weight_host_bytes)), 8)
   call compare("zoff_plan_info%weight_nvme_bytes", away(c_loc(the_plan_info%weight_nvme_bytes), &
      c_loc(the_plan_info)), 120, int(c_sizeof(the_plan_info%weight_nvme_bytes)), 8)
   call compare("zoff_plan_info%exchange_bytes", away(c_loc(the_plan_info%exchange_bytes), c_loc(the_plan_info)), &
      128, int(c_sizeof(the_plan_info%exchange_bytes)), 8)
   call compare("zoff_plan_info%device_host_bytes", away(c_loc(the_plan_info%device_host_bytes), &
      c_loc(the_plan_info)), 136, int(c_sizeof(the_plan_info%device_host_bytes)), 8)
   call compare("zoff_plan_info%device_bytes", away(c_loc(the_plan_info%device_bytes), c_loc(the_plan_info)), 144, &
      int(c_sizeof(the_plan_info%device_bytes)), 8)
   call compare("zoff_plan_info%memory_bytes", away(c_loc(the_plan_info%memory_bytes), c_loc(the_plan_info)), 152, &
      int(c_sizeof(the_plan_info%memory_bytes)), 8)
   call compare("zoff_plan_info%memory_free_bytes", away(c_loc(the_plan_info%memory_free_bytes), &
      c_loc(the_plan_info)), 160, int(c_sizeof(the_plan_info%memory_free_bytes)), 8)
   call compare("zoff_plan_info%save_bytes", away(c_loc(the_plan_info%save_bytes), c_loc(the_plan_info)), 168, &
      int(c_sizeof(the_plan_info%save_bytes)), 8)
   call compare("zoff_plan_info%speculation_bytes", away(c_loc(the_plan_info%speculation_bytes), &
      c_loc(the_plan_info)), 176, int(c_sizeof(the_plan_info%speculation_bytes)), 8)
   call compare("zoff_plan_info%nvme_memory_bytes", away(c_loc(the_plan_info%nvme_memory_bytes), &
      c_loc(the_plan_info)), 184, int(c_sizeof(the_plan_info%nvme_memory_bytes)), 8)
   call compare("zoff_plan_info%matrix_elements", away(c_loc(the_plan_info%matrix_elements), c_loc(the_plan_info)), &
      192, int(c_sizeof(the_plan_info%matrix_elements)), 8)
   call compare("zoff_plan_info%matrix_flop", away(c_loc(the_plan_info%matrix_flop), c_loc(the_plan_info)), 200, &
      int(c_sizeof(the_plan_info%matrix_flop)), 8)
   call compare("zoff_plan_info%matrix_bytes", away(c_loc(the_plan_info%matrix_bytes), c_loc(the_plan_info)), 208, &
      int(c_sizeof(the_plan_info%matrix_bytes)), 8)
   call compare("zoff_plan_info%reduce", away(c_loc(the_plan_info%reduce), c_loc(the_plan_info)), 216, &
      int(c_sizeof(the_plan_info%reduce)), 32)
   call compare("zoff_plan_info%report", away(c_loc(the_plan_info%report), c_loc(the_plan_info)), 248, &
      int(c_sizeof(the_plan_info%report)), 32)
   call compare("zoff_plan_info%gather", away(c_loc(the_plan_info%gather), c_loc(the_plan_info)), 280, &
      int(c_sizeof(the_plan_info%gather)), 32)
   call compare("zoff_plan_info%fetch", away(c_loc(the_plan_info%fetch), c_loc(the_plan_info)), 312, &
      int(c_sizeof(the_plan_info%fetch)), 32)
   call compare("zoff_plan_info%exact_sums", away(c_loc(the_plan_info%exact_sums), c_loc(the_plan_info)), 344, &
      int(c_sizeof(the_plan_info%exact_sums)), 4)
   call compare("zoff_plan_info%sum_ranks", away(c_loc(the_plan_info%sum_ranks), c_loc(the_plan_info)), 348, &
      int(c_sizeof(the_plan_info%sum_ranks)), 4)
   call compare("zoff_plan_info%sums_once", away(c_loc(the_plan_info%sums_once), c_loc(the_plan_info)), 352, &
      int(c_sizeof(the_plan_info%sums_once)), 4)
   call compare("zoff_optimizer_tensor", 0, 0, int(c_sizeof(the_optimizer_tensor)), 88)
   call compare("zoff_optimizer_tensor%struct_size", away(c_loc(the_optimizer_tensor%struct_size), &
      c_loc(the_optimizer_tensor)), 0, int(c_sizeof(the_optimizer_tensor%struct_size)), 8)
   call compare("zoff_optimizer_tensor%count", away(c_loc(the_optimizer_tensor%count), c_loc(the_optimizer_tensor)), &
      8, int(c_sizeof(the_optimizer_tensor%count)), 8)
   call compare("zoff_optimizer_tensor%master", away(c_loc(the_optimizer_tensor%master), &
      c_loc(the_optimizer_tensor)), 16, int(c_sizeof(the_optimizer_tensor%master)), 8)
   call compare("zoff_optimizer_tensor%m", away(c_loc(the_optimizer_tensor%m), c_loc(the_optimizer_tensor)), 24, &
      int(c_sizeof(the_optimizer_tensor%m)), 8)
   call compare("zoff_optimizer_tensor%v", away(c_loc(the_optimizer_tensor%v), c_loc(the_optimizer_tensor)), 32, &
      int(c_sizeof(the_optimizer_tensor%v)), 8)
   call compare("zoff_optimizer_tensor%grad", away(c_loc(the_optimizer_tensor%grad), c_loc(the_optimizer_tensor)), &
      40, int(c_sizeof(the_optimizer_tensor%grad)), 8)
   call compare("zoff_optimizer_tensor%grad_dtype", away(c_loc(the_optimizer_tensor%grad_dtype), &
      c_loc(the_optimizer_tensor)), 48, int(c_sizeof(the_optimizer_tensor%grad_dtype)), 4)
   call compare("zoff_optimizer_tensor%copy_out", away(c_loc(the_optimizer_tensor%copy_out), &
      c_loc(the_optimizer_tensor)), 56, int(c_sizeof(the_optimizer_tensor%copy_out)), 8)
   call compare("zoff_optimizer_tensor%copy_dtype", away(c_loc(the_optimizer_tensor%copy_dtype), &
      c_loc(the_optimizer_tensor)), 64, int(c_sizeof(the_optimizer_tensor%copy_dtype)), 4)
   call compare("zoff_optimizer_tensor%master_dtype", away(c_loc(the_optimizer_tensor%master_dtype), &
      c_loc(the_optimizer_tensor)), 68, int(c_sizeof(the_optimizer_tensor%master_dtype)), 4)
   call compare("zoff_optimizer_tensor%rows", away(c_loc(the_optimizer_tensor%rows), c_loc(the_optimizer_tensor)), &
      72, int(c_sizeof(the_optimizer_tensor%rows)), 8)
   call compare("zoff_optimizer_tensor%cols", away(c_loc(the_optimizer_tensor%cols), c_loc(the_optimizer_tensor)), &
      80, int(c_sizeof(the_optimizer_tensor%cols)), 8)
   call compare("zoff_loss_scaler", 0, 0, int(c_sizeof(the_loss_scaler)), 40)
   call compare("zoff_loss_scaler%struct_size", away(c_loc(the_loss_scaler%struct_size), c_loc(the_loss_scaler)), 0, &
      int(c_sizeof(the_loss_scaler%struct_size)), 8)
   call compare("zoff_loss_scaler%scale", away(c_loc(the_loss_scaler%scale), c_loc(the_loss_scaler)), 8, &
      int(c_sizeof(the_loss_scaler%scale)), 8)
   call compare("zoff_loss_scaler%iterations", away(c_loc(the_loss_scaler%iterations), c_loc(the_loss_scaler)), 16, &
      int(c_sizeof(the_loss_scaler%iterations)), 8)
   call compare("zoff_loss_scaler%last_overflow", away(c_loc(the_loss_scaler%last_overflow), &
      c_loc(the_loss_scaler)), 24, int(c_sizeof(the_loss_scaler%last_overflow)), 8)
   call compare("zoff_loss_scaler%hysteresis", away(c_loc(the_loss_scaler%hysteresis), c_loc(the_loss_scaler)), 32, &
      int(c_sizeof(the_loss_scaler%hysteresis)), 8)
   call compare("zoff_checkpoint_data", 0, 0, int(c_sizeof(the_checkpoint_data)), 32)
   call compare("zoff_checkpoint_data%name", away(c_loc(the_checkpoint_data%name), c_loc(the_checkpoint_data)), 0, &
      int(c_sizeof(the_checkpoint_data%name)), 8)
   call compare("zoff_checkpoint_data%bytes", away(c_loc(the_checkpoint_data%bytes), c_loc(the_checkpoint_data)), 8, &
      int(c_sizeof(the_checkpoint_data%bytes)), 8)
   call compare("zoff_checkpoint_data%count", away(c_loc(the_checkpoint_data%count), c_loc(the_checkpoint_data)), &
      16, int(c_sizeof(the_checkpoint_data%count)), 8)
   call compare("zoff_checkpoint_data%each_rank", away(c_loc(the_checkpoint_data%each_rank), &
      c_loc(the_checkpoint_data)), 24, int(c_sizeof(the_checkpoint_data%each_rank)), 1)
   call compare("zoff_norm_sum", 0, 0, int(c_sizeof(the_norm_sum)), 640)
   call compare("zoff_norm_sum%words", away(c_loc(the_norm_sum%words), c_loc(the_norm_sum)), 0, &
      int(c_sizeof(the_norm_sum%words)), 640)
   call compare("zoff_step_args", 0, 0, int(c_sizeof(the_step_args)), 72)
   call compare("zoff_step_args%struct_size", away(c_loc(the_step_args%struct_size), c_loc(the_step_args)), 0, &
      int(c_sizeof(the_step_args%struct_size)), 8)
   call compare("zoff_step_args%t", away(c_loc(the_step_args%t), c_loc(the_step_args)), 8, &
      int(c_sizeof(the_step_args%t)), 8)
   call compare("zoff_step_args%hyper", away(c_loc(the_step_args%hyper), c_loc(the_step_args)), 16, &
      int(c_sizeof(the_step_args%hyper)), 8)
   call compare("zoff_step_args%hyper_stride", away(c_loc(the_step_args%hyper_stride), c_loc(the_step_args)), 24, &
      int(c_sizeof(the_step_args%hyper_stride)), 8)
   call compare("zoff_step_args%hyper_count", away(c_loc(the_step_args%hyper_count), c_loc(the_step_args)), 32, &
      int(c_sizeof(the_step_args%hyper_count)), 8)
   call compare("zoff_step_args%clip_norm", away(c_loc(the_step_args%clip_norm), c_loc(the_step_args)), 40, &
      int(c_sizeof(the_step_args%clip_norm)), 8)
   call compare("zoff_step_args%grad_scale", away(c_loc(the_step_args%grad_scale), c_loc(the_step_args)), 48, &
      int(c_sizeof(the_step_args%grad_scale)), 8)
   call compare("zoff_step_args%flags", away(c_loc(the_step_args%flags), c_loc(the_step_args)), 56, &
      int(c_sizeof(the_step_args%flags)), 4)
   call compare("zoff_step_args%norm_sum", away(c_loc(the_step_args%norm_sum), c_loc(the_step_args)), 64, &
      int(c_sizeof(the_step_args%norm_sum)), 8)
   call compare("zoff_step_numbers", 0, 0, int(c_sizeof(the_step_numbers)), 88)
   call compare("zoff_step_numbers%lr", away(c_loc(the_step_numbers%lr), c_loc(the_step_numbers)), 0, &
      int(c_sizeof(the_step_numbers%lr)), 8)
   call compare("zoff_step_numbers%loss_scale", away(c_loc(the_step_numbers%loss_scale), c_loc(the_step_numbers)), &
      8, int(c_sizeof(the_step_numbers%loss_scale)), 8)
   call compare("zoff_step_numbers%grad_norm", away(c_loc(the_step_numbers%grad_norm), c_loc(the_step_numbers)), 16, &
      int(c_sizeof(the_step_numbers%grad_norm)), 8)
   call compare("zoff_step_numbers%clip_factor", away(c_loc(the_step_numbers%clip_factor), c_loc(the_step_numbers)), &
      24, int(c_sizeof(the_step_numbers%clip_factor)), 8)
   call compare("zoff_step_numbers%elements_owned", away(c_loc(the_step_numbers%elements_owned), &
      c_loc(the_step_numbers)), 32, int(c_sizeof(the_step_numbers%elements_owned)), 8)
   call compare("zoff_step_numbers%elements_updated", away(c_loc(the_step_numbers%elements_updated), &
      c_loc(the_step_numbers)), 40, int(c_sizeof(the_step_numbers%elements_updated)), 8)
   call compare("zoff_step_numbers%elements_on_device", away(c_loc(the_step_numbers%elements_on_device), &
      c_loc(the_step_numbers)), 48, int(c_sizeof(the_step_numbers%elements_on_device)), 8)
   call compare("zoff_step_numbers%reserved", away(c_loc(the_step_numbers%reserved), c_loc(the_step_numbers)), 56, &
      int(c_sizeof(the_step_numbers%reserved)), 32)
   call compare("zoff_step_bytes", 0, 0, int(c_sizeof(the_step_bytes)), 128)
   call compare("zoff_step_bytes%host_read", away(c_loc(the_step_bytes%host_read), c_loc(the_step_bytes)), 0, &
      int(c_sizeof(the_step_bytes%host_read)), 8)
   call compare("zoff_step_bytes%host_written", away(c_loc(the_step_bytes%host_written), c_loc(the_step_bytes)), 8, &
      int(c_sizeof(the_step_bytes%host_written)), 8)
   call compare("zoff_step_bytes%nvme_read", away(c_loc(the_step_bytes%nvme_read), c_loc(the_step_bytes)), 16, &
      int(c_sizeof(the_step_bytes%nvme_read)), 8)
   call compare("zoff_step_bytes%nvme_read_ahead", away(c_loc(the_step_bytes%nvme_read_ahead), &
      c_loc(the_step_bytes)), 24, int(c_sizeof(the_step_bytes%nvme_read_ahead)), 8)
   call compare("zoff_step_bytes%nvme_written", away(c_loc(the_step_bytes%nvme_written), c_loc(the_step_bytes)), 32, &
      int(c_sizeof(the_step_bytes%nvme_written)), 8)
   call compare("zoff_step_bytes%device_read", away(c_loc(the_step_bytes%device_read), c_loc(the_step_bytes)), 40, &
      int(c_sizeof(the_step_bytes%device_read)), 8)
   call compare("zoff_step_bytes%device_written", away(c_loc(the_step_bytes%device_written), c_loc(the_step_bytes)), &
      48, int(c_sizeof(the_step_bytes%device_written)), 8)
   call compare("zoff_step_bytes%sent", away(c_loc(the_step_bytes%sent), c_loc(the_step_bytes)), 56, &
      int(c_sizeof(the_step_bytes%sent)), 8)
   call compare("zoff_step_bytes%sent_gradients", away(c_loc(the_step_bytes%sent_gradients), c_loc(the_step_bytes)), &
      64, int(c_sizeof(the_step_bytes%sent_gradients)), 8)
   call compare("zoff_step_bytes%sent_weights", away(c_loc(the_step_bytes%sent_weights), c_loc(the_step_bytes)), 72, &
      int(c_sizeof(the_step_bytes%sent_weights)), 8)
   call compare("zoff_step_bytes%received", away(c_loc(the_step_bytes%received), c_loc(the_step_bytes)), 80, &
      int(c_sizeof(the_step_bytes%received)), 8)
   call compare("zoff_step_bytes%sent_matrices", away(c_loc(the_step_bytes%sent_matrices), c_loc(the_step_bytes)), &
      88, int(c_sizeof(the_step_bytes%sent_matrices)), 8)
   call compare("zoff_step_bytes%reserved", away(c_loc(the_step_bytes%reserved), c_loc(the_step_bytes)), 96, &
      int(c_sizeof(the_step_bytes%reserved)), 32)
   call compare("zoff_step_seconds", 0, 0, int(c_sizeof(the_step_seconds)), 96)
   call compare("zoff_step_seconds%total", away(c_loc(the_step_seconds%total), c_loc(the_step_seconds)), 0, &
      int(c_sizeof(the_step_seconds%total)), 8)
   call compare("zoff_step_seconds%measure", away(c_loc(the_step_seconds%measure), c_loc(the_step_seconds)), 8, &
      int(c_sizeof(the_step_seconds%measure)), 8)
   call compare("zoff_step_seconds%update", away(c_loc(the_step_seconds%update), c_loc(the_step_seconds)), 16, &
      int(c_sizeof(the_step_seconds%update)), 8)
   call compare("zoff_step_seconds%checksum", away(c_loc(the_step_seconds%checksum), c_loc(the_step_seconds)), 24, &
      int(c_sizeof(the_step_seconds%checksum)), 8)
   call compare("zoff_step_seconds%io_wait", away(c_loc(the_step_seconds%io_wait), c_loc(the_step_seconds)), 32, &
      int(c_sizeof(the_step_seconds%io_wait)), 8)
   call compare("zoff_step_seconds%device_wait", away(c_loc(the_step_seconds%device_wait), c_loc(the_step_seconds)), &
      40, int(c_sizeof(the_step_seconds%device_wait)), 8)
   call compare("zoff_step_seconds%comm_wait", away(c_loc(the_step_seconds%comm_wait), c_loc(the_step_seconds)), 48, &
      int(c_sizeof(the_step_seconds%comm_wait)), 8)
   call compare("zoff_step_seconds%save_wait", away(c_loc(the_step_seconds%save_wait), c_loc(the_step_seconds)), 56, &
      int(c_sizeof(the_step_seconds%save_wait)), 8)
   call compare("zoff_step_seconds%visible", away(c_loc(the_step_seconds%visible), c_loc(the_step_seconds)), 64, &
      int(c_sizeof(the_step_seconds%visible)), 8)
   call compare("zoff_step_seconds%orthogonalize", away(c_loc(the_step_seconds%orthogonalize), &
      c_loc(the_step_seconds)), 72, int(c_sizeof(the_step_seconds%orthogonalize)), 8)
   call compare("zoff_step_seconds%reserved", away(c_loc(the_step_seconds%reserved), c_loc(the_step_seconds)), 80, &
      int(c_sizeof(the_step_seconds%reserved)), 16)
   call compare("zoff_step_buckets", 0, 0, int(c_sizeof(the_step_buckets)), 32)
   call compare("zoff_step_buckets%all", away(c_loc(the_step_buckets%all), c_loc(the_step_buckets)), 0, &
      int(c_sizeof(the_step_buckets%all)), 8)
   call compare("zoff_step_buckets%speculated", away(c_loc(the_step_buckets%speculated), c_loc(the_step_buckets)), &
      8, int(c_sizeof(the_step_buckets%speculated)), 8)
   call compare("zoff_step_buckets%committed", away(c_loc(the_step_buckets%committed), c_loc(the_step_buckets)), 16, &
      int(c_sizeof(the_step_buckets%committed)), 8)
   call compare("zoff_step_buckets%redone", away(c_loc(the_step_buckets%redone), c_loc(the_step_buckets)), 24, &
      int(c_sizeof(the_step_buckets%redone)), 8)
   call compare("zoff_step_culprit", 0, 0, int(c_sizeof(the_step_culprit)), 16)
   call compare("zoff_step_culprit%param", away(c_loc(the_step_culprit%param), c_loc(the_step_culprit)), 0, &
      int(c_sizeof(the_step_culprit%param)), 4)
   call compare("zoff_step_culprit%rank", away(c_loc(the_step_culprit%rank), c_loc(the_step_culprit)), 4, &
      int(c_sizeof(the_step_culprit%rank)), 4)
   call compare("zoff_step_culprit%slice", away(c_loc(the_step_culprit%slice), c_loc(the_step_culprit)), 8, &
      int(c_sizeof(the_step_culprit%slice)), 8)
   call compare("zoff_step_info", 0, 0, int(c_sizeof(the_step_info)), 400)
   call compare("zoff_step_info%struct_size", away(c_loc(the_step_info%struct_size), c_loc(the_step_info)), 0, &
      int(c_sizeof(the_step_info%struct_size)), 8)
   call compare("zoff_step_info%outcome", away(c_loc(the_step_info%outcome), c_loc(the_step_info)), 8, &
      int(c_sizeof(the_step_info%outcome)), 4)
   call compare("zoff_step_info%skipped", away(c_loc(the_step_info%skipped), c_loc(the_step_info)), 12, &
      int(c_sizeof(the_step_info%skipped)), 1)
   call compare("zoff_step_info%accumulated", away(c_loc(the_step_info%accumulated), c_loc(the_step_info)), 13, &
      int(c_sizeof(the_step_info%accumulated)), 1)
   call compare("zoff_step_info%micro_step", away(c_loc(the_step_info%micro_step), c_loc(the_step_info)), 16, &
      int(c_sizeof(the_step_info%micro_step)), 4)
   call compare("zoff_step_info%micro_steps", away(c_loc(the_step_info%micro_steps), c_loc(the_step_info)), 20, &
      int(c_sizeof(the_step_info%micro_steps)), 4)
   call compare("zoff_step_info%t", away(c_loc(the_step_info%t), c_loc(the_step_info)), 24, &
      int(c_sizeof(the_step_info%t)), 8)
   call compare("zoff_step_info%numbers", away(c_loc(the_step_info%numbers), c_loc(the_step_info)), 32, &
      int(c_sizeof(the_step_info%numbers)), 88)
   call compare("zoff_step_info%bytes", away(c_loc(the_step_info%bytes), c_loc(the_step_info)), 120, &
      int(c_sizeof(the_step_info%bytes)), 128)
   call compare("zoff_step_info%seconds", away(c_loc(the_step_info%seconds), c_loc(the_step_info)), 248, &
      int(c_sizeof(the_step_info%seconds)), 96)
   call compare("zoff_step_info%culprit", away(c_loc(the_step_info%culprit), c_loc(the_step_info)), 344, &
      int(c_sizeof(the_step_info%culprit)), 16)
   call compare("zoff_step_info%stop_requested", away(c_loc(the_step_info%stop_requested), c_loc(the_step_info)), &
      360, int(c_sizeof(the_step_info%stop_requested)), 1)
   call compare("zoff_step_info%buckets", away(c_loc(the_step_info%buckets), c_loc(the_step_info)), 368, &
      int(c_sizeof(the_step_info%buckets)), 32)
   call compare("zoff_handover", 0, 0, int(c_sizeof(the_handover)), 48)
   call compare("zoff_handover%struct_size", away(c_loc(the_handover%struct_size), c_loc(the_handover)), 0, &
      int(c_sizeof(the_handover%struct_size)), 8)
   call compare("zoff_handover%param", away(c_loc(the_handover%param), c_loc(the_handover)), 8, &
      int(c_sizeof(the_handover%param)), 4)
   call compare("zoff_handover%flags", away(c_loc(the_handover%flags), c_loc(the_handover)), 12, &
      int(c_sizeof(the_handover%flags)), 4)
   call compare("zoff_handover%slice", away(c_loc(the_handover%slice), c_loc(the_handover)), 16, &
      int(c_sizeof(the_handover%slice)), 8)
   call compare("zoff_handover%value", away(c_loc(the_handover%value), c_loc(the_handover)), 24, &
      int(c_sizeof(the_handover%value)), 8)
   call compare("zoff_handover%grad", away(c_loc(the_handover%grad), c_loc(the_handover)), 32, &
      int(c_sizeof(the_handover%grad)), 8)
   call compare("zoff_handover%native_stream", away(c_loc(the_handover%native_stream), c_loc(the_handover)), 40, &
      int(c_sizeof(the_handover%native_stream)), 8)
   call compare("zoff_optimizer_hyper", 0, 0, int(c_sizeof(the_optimizer_hyper)), 120)
   call compare("zoff_optimizer_hyper%struct_size", away(c_loc(the_optimizer_hyper%struct_size), &
      c_loc(the_optimizer_hyper)), 0, int(c_sizeof(the_optimizer_hyper%struct_size)), 8)
   call compare("zoff_optimizer_hyper%lr", away(c_loc(the_optimizer_hyper%lr), c_loc(the_optimizer_hyper)), 8, &
      int(c_sizeof(the_optimizer_hyper%lr)), 8)
   call compare("zoff_optimizer_hyper%beta1", away(c_loc(the_optimizer_hyper%beta1), c_loc(the_optimizer_hyper)), &
      16, int(c_sizeof(the_optimizer_hyper%beta1)), 8)
   call compare("zoff_optimizer_hyper%beta2", away(c_loc(the_optimizer_hyper%beta2), c_loc(the_optimizer_hyper)), &
      24, int(c_sizeof(the_optimizer_hyper%beta2)), 8)
   call compare("zoff_optimizer_hyper%eps", away(c_loc(the_optimizer_hyper%eps), c_loc(the_optimizer_hyper)), 32, &
      int(c_sizeof(the_optimizer_hyper%eps)), 8)
   call compare("zoff_optimizer_hyper%weight_decay", away(c_loc(the_optimizer_hyper%weight_decay), &
      c_loc(the_optimizer_hyper)), 40, int(c_sizeof(the_optimizer_hyper%weight_decay)), 8)
   call compare("zoff_optimizer_hyper%decay", away(c_loc(the_optimizer_hyper%decay), c_loc(the_optimizer_hyper)), &
      48, int(c_sizeof(the_optimizer_hyper%decay)), 4)
   call compare("zoff_optimizer_hyper%momentum", away(c_loc(the_optimizer_hyper%momentum), &
      c_loc(the_optimizer_hyper)), 56, int(c_sizeof(the_optimizer_hyper%momentum)), 8)
   call compare("zoff_optimizer_hyper%dampening", away(c_loc(the_optimizer_hyper%dampening), &
      c_loc(the_optimizer_hyper)), 64, int(c_sizeof(the_optimizer_hyper%dampening)), 8)
   call compare("zoff_optimizer_hyper%lr_decay", away(c_loc(the_optimizer_hyper%lr_decay), &
      c_loc(the_optimizer_hyper)), 72, int(c_sizeof(the_optimizer_hyper%lr_decay)), 8)
   call compare("zoff_optimizer_hyper%optimizer", away(c_loc(the_optimizer_hyper%optimizer), &
      c_loc(the_optimizer_hyper)), 80, int(c_sizeof(the_optimizer_hyper%optimizer)), 4)
   call compare("zoff_optimizer_hyper%nesterov", away(c_loc(the_optimizer_hyper%nesterov), &
      c_loc(the_optimizer_hyper)), 84, int(c_sizeof(the_optimizer_hyper%nesterov)), 1)
   call compare("zoff_optimizer_hyper%filled", away(c_loc(the_optimizer_hyper%filled), c_loc(the_optimizer_hyper)), &
      85, int(c_sizeof(the_optimizer_hyper%filled)), 1)
   call compare("zoff_optimizer_hyper%flags", away(c_loc(the_optimizer_hyper%flags), c_loc(the_optimizer_hyper)), &
      88, int(c_sizeof(the_optimizer_hyper%flags)), 8)
   call compare("zoff_optimizer_hyper%adam_lr", away(c_loc(the_optimizer_hyper%adam_lr), &
      c_loc(the_optimizer_hyper)), 96, int(c_sizeof(the_optimizer_hyper%adam_lr)), 8)
   call compare("zoff_optimizer_hyper%ns_steps", away(c_loc(the_optimizer_hyper%ns_steps), &
      c_loc(the_optimizer_hyper)), 104, int(c_sizeof(the_optimizer_hyper%ns_steps)), 4)
   call compare("zoff_optimizer_hyper%ns_method", away(c_loc(the_optimizer_hyper%ns_method), &
      c_loc(the_optimizer_hyper)), 108, int(c_sizeof(the_optimizer_hyper%ns_method)), 4)
   call compare("zoff_optimizer_hyper%scale", away(c_loc(the_optimizer_hyper%scale), c_loc(the_optimizer_hyper)), &
      112, int(c_sizeof(the_optimizer_hyper%scale)), 4)
   call compare("zoff_optimizer_hyper%coefficients", away(c_loc(the_optimizer_hyper%coefficients), &
      c_loc(the_optimizer_hyper)), 116, int(c_sizeof(the_optimizer_hyper%coefficients)), 4)
   call compare("zoff_plugin_host", 0, 0, int(c_sizeof(the_plugin_host)), 32)
   call compare("zoff_plugin_host%struct_size", away(c_loc(the_plugin_host%struct_size), c_loc(the_plugin_host)), 0, &
      int(c_sizeof(the_plugin_host%struct_size)), 8)
   call compare("zoff_plugin_host%version", away(c_loc(the_plugin_host%version), c_loc(the_plugin_host)), 8, &
      int(c_sizeof(the_plugin_host%version)), 4)
   call compare("zoff_plugin_host%fail", away(c_loc(the_plugin_host%fail), c_loc(the_plugin_host)), 16, &
      int(c_sizeof(the_plugin_host%fail)), 8)
   call compare("zoff_plugin_host%warn", away(c_loc(the_plugin_host%warn), c_loc(the_plugin_host)), 24, &
      int(c_sizeof(the_plugin_host%warn)), 8)
   call compare("zoff_plugin_meeting", 0, 0, int(c_sizeof(the_plugin_meeting)), 32)
   call compare("zoff_plugin_meeting%struct_size", away(c_loc(the_plugin_meeting%struct_size), &
      c_loc(the_plugin_meeting)), 0, int(c_sizeof(the_plugin_meeting%struct_size)), 8)
   call compare("zoff_plugin_meeting%rank", away(c_loc(the_plugin_meeting%rank), c_loc(the_plugin_meeting)), 8, &
      int(c_sizeof(the_plugin_meeting%rank)), 4)
   call compare("zoff_plugin_meeting%size", away(c_loc(the_plugin_meeting%size), c_loc(the_plugin_meeting)), 12, &
      int(c_sizeof(the_plugin_meeting%size)), 4)
   call compare("zoff_plugin_meeting%place", away(c_loc(the_plugin_meeting%place), c_loc(the_plugin_meeting)), 16, &
      int(c_sizeof(the_plugin_meeting%place)), 8)
   call compare("zoff_plugin_meeting%timeout_seconds", away(c_loc(the_plugin_meeting%timeout_seconds), &
      c_loc(the_plugin_meeting)), 24, int(c_sizeof(the_plugin_meeting%timeout_seconds)), 8)
   call compare("zoff_plugin", 0, 0, int(c_sizeof(the_plugin)), 32)
   call compare("zoff_plugin%struct_size", away(c_loc(the_plugin%struct_size), c_loc(the_plugin)), 0, &
      int(c_sizeof(the_plugin%struct_size)), 8)
   call compare("zoff_plugin%connect", away(c_loc(the_plugin%connect), c_loc(the_plugin)), 8, &
      int(c_sizeof(the_plugin%connect)), 8)
   call compare("zoff_plugin%built_in", away(c_loc(the_plugin%built_in), c_loc(the_plugin)), 16, &
      int(c_sizeof(the_plugin%built_in)), 8)
   call compare("zoff_plugin%meet", away(c_loc(the_plugin%meet), c_loc(the_plugin)), 24, &
      int(c_sizeof(the_plugin%meet)), 8)
   if (wrong > 0) stop 1
   print '(a)', "the layout is that of C"
contains
   integer function away(field, struct)
      type(c_ptr), intent(in) :: field, struct
      away = int(transfer(field, 0_c_intptr_t) - transfer(struct, 0_c_intptr_t))
   end function
   subroutine compare(what, offset, c_offset, bytes, c_bytes)
      character(len=*), intent(in) :: what
      integer, intent(in) :: offset, c_offset, bytes, c_bytes
      if (offset == c_offset .and. bytes == c_bytes) return
      print '(a, 4(a, i0))', what, " has ", bytes, " bytes at ", offset, ", in C ", c_bytes, " at ", c_offset
      wrong = wrong + 1
   end subroutine
end program layout
