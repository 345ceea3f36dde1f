/* step.h: updates that end when a weight is used next. Not implemented: see README.md. */
#ifndef ZOFF_SEAMS_STEP_H
#define ZOFF_SEAMS_STEP_H

#include <zoff/engine.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Wait until a slice has the weights of the step that was begun last. With `native_stream` the wait is put into that stream and
 * the call returns at once.  @blocks without one  @return the error of the update, which zoff_step_wait() returns as well */
zoff_status zoff_param_wait(zoff_engine *engine, zoff_param param, size_t slice, void *native_stream);
/* Wait until the gradient of a slice has been read (and zeroed, with ZOFF_STEP_ZERO_GRADS): the next pass may write it. */
zoff_status zoff_grad_reusable(zoff_engine *engine, zoff_param param, size_t slice, void *native_stream);
/* Say before the backward pass what the step will use, so that updates can start before the norm is known. Results are the
 * same without the call; arguments that differ at zoff_step_begin() cost the updates that had started. */
zoff_status zoff_step_prepare(zoff_engine *engine, const zoff_step_args *args);

#ifdef __cplusplus
}
#endif
#endif
