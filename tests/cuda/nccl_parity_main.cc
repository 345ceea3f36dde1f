/* SPDX-License-Identifier: Apache-2.0 */
// nccl_parity_main.cc: runs the parity matrix as one rank of a group of processes that join over NCCL; nccl_ranks.py starts
// them. Rank 0 prints all results, the other ranks only failures.
#include "rank_job.h"

int main(int argc, char **argv)
{
    zoff_comm_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.backend = "nccl";
    opts.timeout_seconds = 60;
    const zoff_status status = zoff_comm_open(&opts, &zoff_test::program_comm());
    if (status < 0) {
        printf("%s%s\n", status == ZOFF_ERR_UNSUPPORTED ? "skipped: " : "", zoff_last_error());
        return status == ZOFF_ERR_UNSUPPORTED ? 77 : 1;
    }
    if (zoff_comm_rank(zoff_test::program_comm()) != 0)
        testing::GTEST_FLAG(brief) = true;
    testing::InitGoogleTest(&argc, argv);
    const int failed = RUN_ALL_TESTS();
    zoff_comm_close(zoff_test::program_comm());
    return failed;
}
