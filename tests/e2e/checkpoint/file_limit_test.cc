/* SPDX-License-Identifier: Apache-2.0 */
// file_limit_test.cc: under `ulimit -f` each write of the library that does not fit is an error. The kernel would send SIGXFSZ,
// which ends the process.
#include "saved_run.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

using namespace zoff_test;

namespace
{
// Calls that write files. Each returns the first error.
struct writing {
    const char *name;
    zoff_status (*run)(const std::string &folder);
};

zoff_status open_and_save(const std::string &folder, const std::string &text)
{
    static std::vector<float> w(60000), g(60000);
    const std::string whole = "{" + text + "}";
    zoff_config *c = nullptr;
    zoff_status status = config_from_text(whole.c_str(), whole.size(), "limits", &c);
    zoff_engine_opts o = ZOFF_ENGINE_OPTS_INIT;
    zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
    zoff_engine *e = nullptr;
    o.config = c;
    d.name = "w";
    d.value = w.data();
    d.grad = g.data();
    d.count = w.size();
    if (status == ZOFF_OK)
        status = zoff_engine_open(&o, &d, 1, &e);
    if (status == ZOFF_OK)
        status = zoff_step(e, nullptr, nullptr);
    if (status == ZOFF_OK)
        status = zoff_checkpoint_save(e, (folder + "/saves").c_str(), nullptr);
    zoff_engine_destroy(e);
    zoff_config_close(c);
    return status;
}

zoff_status save(const std::string &folder)
{
    return open_and_save(folder, "");
}

zoff_status save_from_files(const std::string &folder)
{
    return open_and_save(folder, "\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" +
                                     folder + "\"}}, \"zoff\": {\"persist\": true}");
}

zoff_status trace(const std::string &folder)
{
    setenv("ZOFF_TRACE", (folder + "/trace.json").c_str(), 1);
    return open_and_save(folder, "");
}

zoff_status write_alone(const std::string &folder)
{
    static const std::vector<float> values(60000);
    zoff_checkpoint_param p = ZOFF_CHECKPOINT_PARAM_INIT;
    zoff_checkpoint_writer *w = nullptr;
    p.name = "w";
    p.count = values.size();
    p.states = 1u << ZOFF_STATE_MASTER;
    zoff_status status = zoff_checkpoint_writer_open(folder.c_str(), nullptr, 1, &p, 1, nullptr, &w);
    if (status == ZOFF_OK)
        status = zoff_checkpoint_writer_write(w, 0, ZOFF_STATE_MASTER, 0, values.size(), values.data());
    if (status == ZOFF_OK)
        status = zoff_checkpoint_writer_data(w, "data", values.data(), 100000);
    if (status == ZOFF_OK)
        status = zoff_checkpoint_writer_commit(w);
    zoff_checkpoint_writer_close(w);
    return status;
}

template <zoff_aio_direct Direct> zoff_status transfer(const std::string &folder)
{
    zoff_aio_opts o = ZOFF_AIO_OPTS_INIT;
    zoff_aio *q = nullptr;
    uint64_t ticket = 0;
    static const std::vector<char> bytes(1 << 20);
    o.writable = o.create = true;
    o.direct = Direct;
    zoff_status status = zoff_aio_open((folder + "/file").c_str(), &o, &q);
    if (status == ZOFF_OK)
        status = zoff_aio_write(q, 0, bytes.size(), bytes.data(), &ticket);
    if (status == ZOFF_OK)
        status = zoff_aio_wait(q, ticket);
    zoff_aio_close(q);
    return status;
}

const writing WRITINGS[] = {{"save", save},
                            {"save_from_files", save_from_files},
                            {"trace", trace},
                            {"write_alone", write_alone},
                            {"direct", transfer<ZOFF_DIRECT_AUTO>},
                            {"buffered", transfer<ZOFF_DIRECT_OFF>}};

class FileLimit : public testing::TestWithParam<writing>
{
};

TEST_P(FileLimit, AWriteBeyondItIsAnErrorAndNoSignal)
{
    unsigned refused = 0, done = 0;
    for (rlim_t limit : {0, 1, 100, 4095, 4096, 8192, 60000, 200000, 500000, 1 << 20, 1 << 24}) {
        const scratch_folder scratch;
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            const rlimit most = {limit, limit};
            const quiet_log quiet;
            signal(SIGXFSZ, SIG_DFL);
            setrlimit(RLIMIT_FSIZE, &most);
            const zoff_status status = GetParam().run(scratch.path);
            _exit(status == ZOFF_OK ? 0 : strstr(zoff_last_error(), "RLIMIT_FSIZE") ? 1 : 2);
        }
        int status = 0;
        ASSERT_EQ(child, waitpid(child, &status, 0));
        ASSERT_FALSE(WIFSIGNALED(status)) << "limit " << limit << ": signal " << WTERMSIG(status);
        EXPECT_NE(2, WEXITSTATUS(status)) << "limit " << limit << ": the error does not name it";
        (WEXITSTATUS(status) ? refused : done)++;
    }
    EXPECT_GT(refused, 2u);
    EXPECT_GT(done, 0u);
}

INSTANTIATE_TEST_SUITE_P(Each, FileLimit, testing::ValuesIn(WRITINGS), [](const auto &i) { return i.param.name; });
} // namespace
