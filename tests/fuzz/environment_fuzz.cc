/* SPDX-License-Identifier: Apache-2.0 */
// environment_fuzz.cc: variables of launchers, of ZOFF_TRACE and of ZOFF_METRICS, each a line NAME=VALUE. A value that cannot
// be used is an error or a warning. Files are written where the value says, and nowhere else.
#include "fuzz.h"

extern "C" {
#include "comm.h"
#include "env.h"
#include "trace.h"
}

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zoff/zoff.h>

#include <algorithm>

using namespace zoff_fuzz;

static const std::vector<std::string> NAMES = {
#define E(launcher, count, index, only_with) count, index,
    ZOFF_ENV_LAUNCHER_LIST(E)
#undef E
#define E(id, launcher, rank, size, only_with) rank, size,
        ZOFF_ENV_WORLD_LIST(E)
#undef E
            "SLURM_STEP_ID",
    "OMP_NUM_THREADS",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NCCL_COMM_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "ZOFF_TRACE",
    "ZOFF_METRICS"};

static void use()
{
    zoff_env_ranks ranks;
    zoff_env_meeting meeting;
    zoff_env_place place;
    char words[160];
    const char *chosen = nullptr;
    zoff_base_env_ranks(&ranks);
    require(ranks.count >= 1 && ranks.index < ranks.count, "a rank is one of several");
    (void)zoff_base_env_omp_threads();
    zoff_base_env_meeting(&meeting);
    if (zoff_comm_world_several(&place) != ZOFF_ENV_WORLD_COUNT)
        require(strlen(zoff_comm_world_print(&place, words, sizeof words)) < sizeof words, "the words fit");
    require(zoff_comm_world_check("self", 1) == ZOFF_OK || *zoff_last_error(), "a refused world has a reason");
    if (zoff_comm_discover(false, &chosen) == ZOFF_OK)
        accept();
    else
        require(*zoff_last_error(), "a contradiction has a reason");
    for (const unsigned rank : {0u, 1u}) {
        const zoff_trace_rank who = {rank, 2, false};
        zoff_trace *t = zoff_trace_open(&who, 1);
        zoff_trace_step_begin(t, 1);
        zoff_trace_step_end(t);
        zoff_trace_close(t);
        zoff_metrics *m = zoff_trace_metrics_open(&who);
        zoff_step_info info = ZOFF_STEP_INFO_INIT;
        zoff_trace_metrics_step(m, &info);
        zoff_trace_metrics_close(m);
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const int home = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const folder scratch({});
    std::string lines((const char *)data, bytes);
    std::replace(lines.begin(), lines.end(), '\0', ' ');
    quiet_output();
    require(chdir(scratch.path.c_str()) == 0, "the folder is there");
    for (size_t at = 0; at < lines.size();) {
        const size_t end = std::min(lines.find('\n', at), lines.size()), equals = lines.find('=', at);
        const std::string name = equals < end ? lines.substr(at, equals - at) : "";
        if (std::find(NAMES.begin(), NAMES.end(), name) != NAMES.end()) {
            const std::string value = lines.substr(equals + 1, end - equals - 1);
            if (name.compare(0, 5, "ZOFF_") != 0 || value.find('/') == std::string::npos)
                setenv(name.c_str(), value.c_str(), 1);
        }
        at = end + 1;
    }
    use();
    for (const auto &name : NAMES)
        unsetenv(name.c_str());
    require(fchdir(home) == 0, "libFuzzer has its folder again");
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    static const std::vector<std::string> VALUES = {"0",
                                                    "1",
                                                    "2",
                                                    "3",
                                                    "4(x2),3",
                                                    "65536",
                                                    "65537",
                                                    "true",
                                                    "host:1",
                                                    "t.json",
                                                    "t.json:1-3",
                                                    "t.json:3-1",
                                                    "t.json:0-0",
                                                    "m.prom",
                                                    "m.csv",
                                                    ".csv",
                                                    ":",
                                                    ":1-2",
                                                    "a:1-9223372036854775808",
                                                    "-1",
                                                    " 1",
                                                    ""};
    changes c(seed);
    std::string text((const char *)data, bytes);
    const size_t at = text.find('\n', c.any(text.size())), line = at == std::string::npos ? 0 : at + 1;
    const size_t end = std::min(text.find('\n', line), text.size()), equals = std::min(text.find('=', line), end);
    std::string value = text.substr(equals, end - equals);
    switch (c.any(6)) {
    case 0:
        text.erase(line, end + 1 - line);
        break;
    case 1:
        text.replace(std::min(equals + 1, end), end - std::min(equals + 1, end), c.one_of(VALUES));
        break;
    case 2:
        c.bytes(&value);
        text.replace(equals, end - equals, value);
        break;
    case 3:
        c.bytes(&text);
        break;
    default:
        text.insert(line, c.one_of(NAMES) + "=" + c.one_of(VALUES) + "\n");
    }
    return give(text, data, bytes, most);
}

static std::vector<std::string> seeds()
{
    return {"RANK=0\nWORLD_SIZE=2\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=2\nMASTER_ADDR=h\nMASTER_PORT=1\n",
            "SLURM_STEP_ID=1\nSLURM_PROCID=1\nSLURM_STEP_NUM_TASKS=7\nSLURM_STEP_TASKS_PER_NODE=4(x2),3\nSLURM_LOCALID=1\n",
            "OMPI_COMM_WORLD_RANK=0\nOMPI_COMM_WORLD_SIZE=1\nOMPI_COMM_WORLD_LOCAL_RANK=0\nOMPI_COMM_WORLD_LOCAL_SIZE=1\nPMIX_"
            "RANK=0\n",
            "ZOFF_TRACE=t.json:1-2\nZOFF_METRICS=m.csv\n",
            "ZOFF_TRACE=t\nZOFF_METRICS=m.prom\nPMI_RANK=1\nPMI_SIZE=2\nOMP_NUM_THREADS=2\n"};
}

const target zoff_fuzz::TARGET = {20000, 0.05, seeds};
