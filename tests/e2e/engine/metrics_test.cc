/* SPDX-License-Identifier: Apache-2.0 */
// metrics_test.cc: the files of ZOFF_METRICS have the numbers of all steps, one file for each engine, and never stop a
// training.
#include "file_bytes.h"
#include "small_engine.h"
#include "thread_ranks.h"

#include <dirent.h>
#include <fstream>
#include <map>
#include <sstream>
#include <sys/resource.h>
#include <unistd.h>

using namespace zoff_test;

namespace
{
class Metrics : public testing::Test
{
  protected:
    ~Metrics() override { unsetenv("ZOFF_METRICS"); }
    void name(const std::string &file) { ASSERT_EQ(0, setenv("ZOFF_METRICS", (out + "/" + file).c_str(), 1)); }

    // An engine of one weight, which is sealed.
    static engine open_over(std::vector<float> &weight, std::vector<float> &grad, const std::string &text,
                            zoff_comm *ranks = nullptr)
    {
        zoff_engine_opts opts = {};
        opts.comm = ranks;
        opts.chunk_elements = 1024; // more chunks than slots: files are read, too
        engine e = make_engine(text, opts);
        zoff_param_desc desc = ZOFF_PARAM_DESC_INIT;
        desc.value = weight.data();
        desc.grad = grad.data();
        desc.count = weight.size();
        EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &desc, nullptr));
        EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
        return e;
    }
    engine open(unsigned accumulation = 1) { return open_over(weights, grads, config_text(folder.path, accumulation)); }
    zoff_step_info step(zoff_engine *e, float grad = 1)
    {
        zoff_step_info info = new_info();
        std::fill(grads.begin(), grads.end(), grad);
        EXPECT_ZOFF_OK(zoff_step(e, nullptr, &info));
        return info;
    }
    std::vector<std::string> files() const
    {
        std::vector<std::string> found;
        DIR *dir = opendir(out.c_str());
        while (const dirent *entry = readdir(dir)) {
            if (entry->d_name[0] != '.')
                found.push_back(entry->d_name);
        }
        closedir(dir);
        std::sort(found.begin(), found.end());
        return found;
    }
    std::vector<std::string> lines_of(const std::string &file) const
    {
        std::ifstream in(out + "/" + file);
        std::vector<std::string> lines;
        for (std::string line; std::getline(in, line);)
            lines.push_back(line);
        return lines;
    }
    // The samples of a file, whose names have these labels, a help and a type before them.
    std::map<std::string, double> samples(const std::string &file, const std::string &labels) const
    {
        std::map<std::string, double> found;
        const auto lines = lines_of(file);
        for (size_t i = 0; i + 2 < lines.size(); i += 3) {
            const std::string name = lines[i + 2].substr(0, lines[i + 2].find('{'));
            const bool counts = name.size() > 6 && name.substr(name.size() - 6) == "_total";
            EXPECT_EQ(0u, lines[i].find("# HELP " + name + " ")) << lines[i];
            EXPECT_EQ("# TYPE " + name + (counts ? " counter" : " gauge"), lines[i + 1]);
            EXPECT_EQ(0u, lines[i + 2].find(name + "{" + labels + "} ")) << lines[i + 2];
            found[name] = std::stod(lines[i + 2].substr(lines[i + 2].find("} ") + 2));
        }
        EXPECT_EQ(lines.size(), 3 * found.size());
        return found;
    }
    scratch_folder folder;
    const std::string out = (mkdir(folder.file("out").c_str(), 0777), folder.file("out"));
    std::vector<float> weights = std::vector<float>(20000, 1), grads = std::vector<float>(20000);
    log_catcher log;
};

TEST_F(Metrics, HaveTheNumbersOfAllSteps)
{
    name("m.prom");
    log.expect("step 2 skipped");
    engine e = open(2);
    zoff_step_info sum = new_info(), last = new_info();
    unsigned skipped = 0;
    for (int i = 0; i < 8; i++) {
        last = step(e.get(), i == 3 ? INFINITY : (float)i);
        sum.seconds.total += last.seconds.total;
        sum.seconds.visible += last.seconds.visible;
        sum.bytes.nvme_read += last.bytes.nvme_read;
        sum.bytes.nvme_written += last.bytes.nvme_written;
        sum.bytes.host_read += last.bytes.host_read;
        skipped += last.skipped;
        if (i == 0) {
            EXPECT_EQ(std::vector<std::string>{}, files()) << "a micro-step alone has no numbers";
        }
        if (i == 1) {
            EXPECT_EQ(1, samples("m.prom", "rank=\"0\",engine=\"1\"")["zoff_step"]) << "written at once";
        }
    }
    e.reset();
    auto had = samples("m.prom", "rank=\"0\",engine=\"1\"");
    EXPECT_EQ(std::vector<std::string>{"m.prom"}, files());
    EXPECT_EQ(26u, had.size());
    EXPECT_EQ(1u, skipped);
    EXPECT_EQ((double)last.t, had["zoff_step"]);
    EXPECT_EQ(8, had["zoff_micro_steps_total"]);
    EXPECT_EQ(3, had["zoff_updates_total"]);
    EXPECT_EQ(1, had["zoff_skipped_steps_total"]);
    EXPECT_EQ((double)sum.bytes.nvme_read, had["zoff_nvme_read_bytes_total"]);
    EXPECT_EQ((double)sum.bytes.nvme_written, had["zoff_nvme_written_bytes_total"]);
    EXPECT_EQ((double)sum.bytes.host_read, had["zoff_host_read_bytes_total"]);
    EXPECT_LT((double)last.bytes.nvme_read, had["zoff_nvme_read_bytes_total"]);
    EXPECT_LT(0, had["zoff_nvme_written_bytes_total"]);
    EXPECT_NEAR(sum.seconds.total, had["zoff_step_seconds_total"], 1e-6);
    EXPECT_NEAR(sum.seconds.visible, had["zoff_visible_seconds_total"], 1e-6);
    EXPECT_NEAR(last.seconds.total, had["zoff_last_step_seconds"], 1e-6);
    EXPECT_NEAR(last.numbers.grad_norm, had["zoff_grad_norm"], 1e-6 * last.numbers.grad_norm);
    EXPECT_EQ(0.01, had["zoff_learning_rate"]);
    EXPECT_EQ(1, had["zoff_loss_scale"]);
    EXPECT_EQ(1, had["zoff_clip_factor"]);
}

TEST_F(Metrics, HaveTheTimeForMatrices)
{
    name("m.prom");
    trainer t(3);
    t.add(64 * 32, 1, ZOFF_F32, ZOFF_F32);
    t.shape(0, {64, 32});
    t.backward_all(0.1f);
    engine e = seal_engine(t, "{\"optimizer\": {\"type\": \"Muon\"}}");
    zoff_step_info info = new_info();
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    e.reset();
    auto had = samples("m.prom", "rank=\"0\",engine=\"1\"");
    EXPECT_EQ(27u, had.size());
    EXPECT_GT(info.seconds.orthogonalize, 0);
    EXPECT_NEAR(info.seconds.orthogonalize, had["zoff_orthogonalize_seconds_total"], 1e-6);
}

TEST_F(Metrics, AreInOneFileForEachEngine)
{
    name("m.prom");
    engine a = open(), b = open();
    step(a.get());
    step(b.get());
    step(b.get());
    a.reset();
    b.reset();
    EXPECT_EQ((std::vector<std::string>{"m.engine2.prom", "m.prom"}), files());
    EXPECT_EQ(1, samples("m.prom", "rank=\"0\",engine=\"1\"")["zoff_step"]);
    EXPECT_EQ(2, samples("m.engine2.prom", "rank=\"0\",engine=\"2\"")["zoff_step"]);
    a = open(); // the first name is free again
    for (int i = 0; i < 3; i++)
        step(a.get());
    a.reset();
    EXPECT_EQ(3, samples("m.prom", "rank=\"0\",engine=\"1\"")["zoff_step"]);
    EXPECT_EQ(2u, files().size());
}

TEST_F(Metrics, AreRowsOfACsvFileThatGoesOn)
{
    name("m.csv");
    for (int run = 0; run < 2; run++) {
        engine e = open();
        for (int i = 0; i < 3; i++)
            step(e.get(), 2);
    }
    const auto lines = lines_of("m.csv");
    ASSERT_EQ(7u, lines.size());
    EXPECT_EQ(0u, lines[0].find("step,lr,loss_scale,elapsed_time_ms_step,")) << "DeepSpeed's names";
    const auto commas = std::count(lines[0].begin(), lines[0].end(), ',');
    for (size_t i = 1; i < lines.size(); i++) {
        EXPECT_EQ(0u, lines[i].find(std::to_string((i - 1) % 3 + 1) + ",0.01,1,")) << lines[i];
        EXPECT_EQ(commas, std::count(lines[i].begin(), lines[i].end(), ',')) << lines[i];
    }
}

TEST_F(Metrics, AreWrittenByRank0Only)
{
    name("m.prom");
    const thread_ranks ranks(2);
    std::vector<float> own[2] = {weights, weights}, grad[2] = {grads, grads};
    ranks.on_each([&](zoff_comm *comm, unsigned rank) {
        engine e = open_over(own[rank], grad[rank], config_text(""), comm);
        EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    });
    EXPECT_EQ(std::vector<std::string>{"m.prom"}, files());
    EXPECT_LT(0, samples("m.prom", "rank=\"0\",engine=\"1\"")["zoff_sent_bytes_total"]);
}

TEST_F(Metrics, HaveTheNumberOfTheirProcess)
{
    name("m.csv");
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
    engine e = open();
    unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
    step(e.get());
    e.reset();
    EXPECT_EQ(std::vector<std::string>{"m.rank1.csv"}, files());
}

TEST_F(Metrics, AreOneWarningWhereTheyCannotBeWritten)
{
    log.expect("ZOFF_METRICS: cannot create '" + out + "/none/m.prom'");
    log.expect("ZOFF_METRICS: cannot write '" + out + "/none/m.csv'");
    log.expect("m.json\"; it may be FILE.prom, for Prometheus, or FILE.csv");
    for (const char *file : {"none/m.prom", "none/m.csv", "m.json"}) {
        name(file);
        engine e = open();
        for (int i = 0; i < 3; i++)
            step(e.get());
    }
    EXPECT_EQ(3u, log.warnings.size());
    EXPECT_EQ(std::vector<std::string>{}, files());
}

// The file keeps the numbers that it had, and no part of others.
TEST_F(Metrics, StayAsTheyWereOnAFullDisk)
{
    for (const char *file : {"m.prom", "m.csv"}) {
        name(file);
        log.expect(std::string("ZOFF_METRICS: cannot write '") + out + "/" + file + "': File too large");
        engine e = open_over(weights, grads, config_text(""));
        step(e.get());
        const auto before = lines_of(file);
        rlimit limit;
        ASSERT_EQ(0, getrlimit(RLIMIT_FSIZE, &limit));
        const rlimit small = {100, limit.rlim_max};
        ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &small));
        step(e.get());
        e.reset();
        ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &limit));
        EXPECT_EQ(before, lines_of(file));
        EXPECT_LT(1u, before.size());
    }
    EXPECT_EQ(2u, log.warnings.size());
    EXPECT_EQ(2u, files().size());
}
} // namespace
