/* SPDX-License-Identifier: Apache-2.0 */
/* analysis.h: read before each source by `scripts/analyze`, because an analyser sees one source alone. It does not know that
 * zoff_base_status_fail() and failed() return no success and zoff_base_status_prefix() its status, that ranks vote for none
 * with a failed one, and that a call without an engine fails. IN_... is the source that defines the function. */
#include "try.h"
#define TOLD(call, status)                                                                                                     \
    ({                                                                                                                         \
        (void)(call);                                                                                                          \
        (status);                                                                                                              \
    })
#ifndef IN_src_base_status_c
#define zoff_base_status_fail(status, ...) TOLD((zoff_base_status_fail)(status, __VA_ARGS__), (zoff_status)(status))
#define zoff_base_status_prefix(status, ...) TOLD((zoff_base_status_prefix)(status, __VA_ARGS__), (zoff_status)(status))
#endif
#if __has_include("agreement.h") && !defined IN_src_agreement_vote_c
#include "agreement.h"
#define zoff_agreement_vote_success(voters, status)                                                                            \
    ((status) != ZOFF_OK ? (zoff_status)(status) : (zoff_agreement_vote_success)(voters, status))
#endif
#if __has_include("view.h") && !defined IN_src_engine_step_c
#include "view.h"
#define zoff_engine_step_enter(engine, call) ((engine) ? (zoff_engine_step_enter)(engine, call) : ZOFF_ERR_INVALID)
#endif
#if __has_include("verbs.h") && !defined IN_tools_messages_c
#include "verbs.h"
#define failed(...) TOLD((failed)(__VA_ARGS__), EXIT_FAILED)
#define library_error() TOLD((library_error)(), EXIT_FAILED)
#define usage_error(...) TOLD((usage_error)(__VA_ARGS__), EXIT_USAGE)
#endif
