/* SPDX-License-Identifier: Apache-2.0 */
/* universal_verbs.h: the verbs for DeepSpeed's universal checkpoint folders. Every build has them, and one without libzip says
 * that it cannot. */
#ifndef ZOFF_TOOL_UNIVERSAL_VERBS_H
#define ZOFF_TOOL_UNIVERSAL_VERBS_H

/* Each takes the arguments behind `zoff import universal` or `zoff export universal`, and returns the exit status. */
int universal_import(int argc, char **argv);
int universal_export(int argc, char **argv);

#endif
