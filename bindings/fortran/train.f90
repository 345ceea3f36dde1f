! SPDX-License-Identifier: Apache-2.0
! train.f90: the trainer of README.md in Fortran.
program train
   use, intrinsic :: iso_fortran_env, only: error_unit
   use zoff
   implicit none
   real(c_float), target :: weight(2) = 0, grad(2) = 0
   character(len=5), target :: name = "line" // c_null_char
   character(len=4096), target :: config, ranks
   type(zoff_param_desc) :: param
   type(zoff_engine_opts) :: opts ! all zero: AdamW, lr 1e-3, no clipping, DRAM, this process alone
   type(c_ptr) :: engine = c_null_ptr
   integer(c_int) :: status
   integer(c_int64_t) :: first = 0, t ! first: after a crash the last complete step, if states persist
   real(c_float) :: x, error

   param%value = c_loc(weight)
   param%grad = c_loc(grad)
   param%count = 2
   param%name = c_loc(name)
   if (command_argument_count() > 0) then ! train [ds_config [ranks]]
      call get_command_argument(1, config)
      config = trim(config) // c_null_char
      opts%config_path = c_loc(config)
   end if
   if (command_argument_count() > 1) then
      call get_command_argument(2, ranks)
      ranks = trim(ranks) // c_null_char
      opts%ranks = c_loc(ranks)
   end if
   status = zoff_engine_open(opts, [param], 1_c_size_t, engine)
   if (status >= 0) status = zoff_step_count(engine, first)
   if (status >= 0 .and. first > 0) status = zoff_params_push(engine) ! set the weights from the states
   do t = first, 1999
      if (status < 0) exit
      x = real(mod(t, 4_c_int64_t), c_float) - 1
      error = weight(1) * x + weight(2) - (0.5 * x - 0.25)
      grad = [error * x, error]
      status = zoff_step(engine) ! reads grad, updates weight
   end do
   if (status < 0) write (error_unit, '(a)') zoff_text(zoff_last_error())
   if (status >= 0) print '(a, i0, a, f4.2, a, sp, f5.2)', "after step ", first, ": y = ", weight(1), " x ", weight(2)
   call zoff_engine_destroy(engine)
   if (status < 0) stop 1
end program train
