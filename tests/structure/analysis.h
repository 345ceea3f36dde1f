/* SPDX-License-Identifier: Apache-2.0 */
/* analysis.h: read before each source by `scripts/analyze gcc`, because the analyser sees one source alone. It does not know
 * that zoff_base_status_fail() returns no success, and that ranks vote for none with a failed one. */
#include "try.h"
#define zoff_base_status_fail(status, ...) ((void)(zoff_base_status_fail)(status, __VA_ARGS__), (zoff_status)(status))
#if __has_include("agreement.h")
#include "agreement.h"
#define zoff_agreement_vote_success(voters, status)                                                                            \
    ((status) < 0 ? (zoff_status)(status) : (zoff_agreement_vote_success)(voters, status))
#endif
