/* SPDX-License-Identifier: Apache-2.0 */
// numa_test.cc: on a machine with several NUMA nodes, pages and threads must be on the nodes that map.h and team.h promise,
// also those of an engine. The kernel is asked about each page. Skipped on machines with one node; tests/nvme/run_nvme.py
// emulates two.
#include "small_engine.h"

extern "C" {
#include "map.h"
#include "team.h"
}

#include <numa.h>
#include <numaif.h>
#include <sched.h>
#include <stdio.h>

#include <algorithm>
#include <map>

using namespace zoff_test;

namespace
{
const size_t HUGE_BYTES = 2 << 20;

int node_of_this_thread()
{
    return numa_node_of_cpu(sched_getcpu());
}

const int ABSENT = -1;

// The nodes of all pages of a range; ABSENT for pages that were never touched. A page is also absent for a moment while the
// kernel moves it or merges it into a huge page, so it is queried again.
std::vector<int> nodes_of(const void *base, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    std::vector<void *> pages;
    for (size_t at = 0; at < bytes; at += page)
        pages.push_back((char *)const_cast<void *>(base) + at);
    std::vector<int> nodes(pages.size());
    for (int i = 0; i < 20; i++) {
        EXPECT_EQ(0, move_pages(0, pages.size(), pages.data(), nullptr, nodes.data(), 0)) << strerror(errno);
        if (*std::min_element(nodes.begin(), nodes.end()) >= 0)
            return nodes;
        usleep(10000);
    }
    for (int &node : nodes)
        node = node < 0 ? ABSENT : node;
    return nodes;
}

std::map<int, size_t> count(const std::vector<int> &nodes)
{
    std::map<int, size_t> counts;
    for (int node : nodes)
        counts[node]++;
    return counts;
}

// Each allowed node must have its share of the present pages, within a huge page and a tenth.
void expect_even(const std::vector<int> &nodes)
{
    std::map<int, size_t> counts = count(nodes);
    const size_t absent = counts[ABSENT], share = (nodes.size() - absent) / (size_t)numa_num_task_nodes();
    counts.erase(ABSENT);
    EXPECT_LT(absent, nodes.size() / 10) << "pages that were never touched, of " << nodes.size();
    ASSERT_EQ((size_t)numa_num_task_nodes(), counts.size());
    for (auto [node, pages] : counts) {
        EXPECT_NEAR((double)share, (double)pages, (double)share / 10 + 512) << "node " << node;
    }
}

// The node on which each thread of the team runs.
std::vector<int> seats(unsigned threads)
{
    std::vector<int> nodes(threads, -1);
    zoff_base_team_run(
        threads, [](void *ctx, unsigned i, unsigned) { ((int *)ctx)[i] = node_of_this_thread(); }, nodes.data());
    return nodes;
}

class Numa : public testing::Test
{
  protected:
    // Request local allocation explicitly. It is the default, but an explicit policy stops NUMA balancing, which would unmap
    // pages for moments and move some. Later threads inherit the policy.
    static void SetUpTestSuite() { EXPECT_EQ(0, set_mempolicy(MPOL_LOCAL, nullptr, 0)) << strerror(errno); }
    void SetUp() override
    {
        if (numa_available() < 0 || numa_num_task_nodes() < 2)
            GTEST_SKIP() << "needs a machine with two NUMA nodes";
        threads = zoff_base_team_threads(0);
        if (count(seats(threads)).size() < 2)
            GTEST_SKIP() << "this process may only use the CPUs of one NUMA node";
    }
    // A node without free memory would use memory of another node.
    bool room_for(size_t bytes)
    {
        for (int node = 0; node <= numa_max_node(); node++) {
            long long unused = 0;
            if (numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned)node) && numa_node_size64(node, &unused) > 0 &&
                unused < 2 * (long long)bytes)
                return false;
        }
        return true;
    }
    unsigned threads = 0;
};

TEST_F(Numa, InterleavedMemoryLiesOnAllNodes)
{
    zoff_map map;
    const size_t bytes = 64 << 20;
    ASSERT_ZOFF_OK(zoff_base_map_alloc(bytes, "a test", ZOFF_MAP_INTERLEAVED, &map));
    int mode = -1;
    ASSERT_EQ(0, get_mempolicy(&mode, nullptr, 0, map.base, MPOL_F_ADDR)) << strerror(errno);
    EXPECT_EQ(MPOL_INTERLEAVE, mode);
    memset(map.base, 1, bytes); // one thread, on one node, touches all of it
    ASSERT_NO_FATAL_FAILURE(expect_even(nodes_of(map.base, bytes)));
    zoff_base_map_free(&map);
}

struct touched {
    char *base;
    std::vector<int> nodes;
};

TEST_F(Numa, APageIsOnTheNodeOfTheThreadThatTouchedItFirst)
{
    zoff_map map;
    const size_t share = 4 * HUGE_BYTES;
    if (!room_for(threads * share))
        GTEST_SKIP() << "a NUMA node has too little free memory";
    ASSERT_ZOFF_OK(zoff_base_map_alloc(threads * share, "a test", ZOFF_MAP_FIRST_TOUCH, &map));
    touched t = {(char *)map.base, std::vector<int>(threads, -1)};
    auto touch = [](void *ctx, unsigned thread, unsigned) {
        auto *seen = (touched *)ctx;
        memset(seen->base + thread * 4 * HUGE_BYTES, 1, 4 * HUGE_BYTES);
        seen->nodes[thread] = node_of_this_thread();
    };
    zoff_base_team_run(threads, touch, &t);
    EXPECT_GE(count(t.nodes).size(), 2u);
    for (unsigned i = 0; i < threads; i++) {
        const std::map<int, size_t> counts = count(nodes_of(t.base + i * share, share));
        EXPECT_EQ(1u, counts.size()) << "the pages of thread " << i << " are on several nodes";
        EXPECT_EQ(t.nodes[i], counts.begin()->first) << "thread " << i;
    }
    zoff_base_map_free(&map);
}

TEST_F(Numa, AThreadKeepsItsNodeAndGetsItsMaskBack)
{
    const std::vector<int> first = seats(threads);
    cpu_set_t before, after;
    ASSERT_EQ(0, sched_getaffinity(0, sizeof before, &before));
    for (int i = 0; i < 200; i++)
        ASSERT_EQ(first, seats(threads)) << "run " << i;
    ASSERT_EQ(0, sched_getaffinity(0, sizeof after, &after));
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

// The mappings of this process with at least so many bytes. The kernel lists a mapping in parts where they may have other huge
// pages. `joins`: those beside each other count as one.
std::vector<std::pair<char *, size_t>> mappings(size_t bytes, bool joins)
{
    std::vector<std::pair<char *, size_t>> found;
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], mode[8];
    size_t begin, end;
    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%zx-%zx %7s", &begin, &end, mode) != 3 || strncmp(mode, "rw", 2) != 0)
            continue;
        if (joins && !found.empty() && found.back().first + found.back().second == (char *)begin)
            found.back().second += end - begin;
        else
            found.emplace_back((char *)begin, end - begin);
    }
    if (maps)
        fclose(maps);
    found.erase(std::remove_if(found.begin(), found.end(), [&](const auto &range) { return range.second < bytes; }),
                found.end());
    return found;
}

// An engine over one tensor with gradients 1, 2, 3, ..., so that the value of each state shows its position.
class counted
{
  public:
    counted(const std::string &folder, unsigned threads) : elements((size_t)threads << 20), value(elements), grad(elements)
    {
        zoff_config *parsed = nullptr;
        const std::string text = config_text(folder, 1, ", \"zoff\": {\"master\": \"fp32\"}");
        EXPECT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "numa.json", &parsed));
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.config = parsed;
        opts.threads = threads;
        opts.chunk_elements = folder.empty() ? elements : 1 << 19;
        zoff_engine *made = nullptr;
        EXPECT_ZOFF_OK(zoff_engine_create(&opts, &made));
        zoff_config_close(parsed);
        e.reset(made);
        for (size_t i = 0; i < elements; i++) {
            value[i] = bf16_of(i);
            grad[i] = (float)i + 1;
        }
        zoff_param_desc d = {};
        d.struct_size = sizeof d;
        d.value = value.data();
        d.grad = grad.data();
        d.count = elements;
        d.slices = 1;
        d.dtype = ZOFF_BF16;
        d.grad_dtype = ZOFF_F32;
        EXPECT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
        zoff_optimizer_hyper h;
        zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
        h.lr = 0; // masters do not change
        h.beta1 = h.beta2 = 0.5;
        EXPECT_ZOFF_OK(zoff_engine_set_group(made, 0, &h));
        EXPECT_ZOFF_OK(zoff_engine_seal(made));
    }
    static uint16_t bf16_of(size_t i) { return (uint16_t)(0x3f80 + i % 128); } // between 1 and 2

    // Element i of each array of states after one step.
    static float master(size_t i) { return reference::from_bf16(bf16_of(i)); }
    static float m(size_t i) { return 0.5f * ((float)i + 1); }
    static float v(size_t i) { return 0.5f * ((float)i + 1) * ((float)i + 1); }

    size_t elements;
    std::vector<uint16_t> value;
    std::vector<float> grad;
    engine e;
};

// Search the memory of this process for an array of states with these values.
const float *find_stream(size_t elements, float (*wanted)(size_t))
{
    for (auto [base, bytes] : mappings(elements * 3 * sizeof(float), true)) {
        for (size_t at = 0; at + elements * sizeof(float) <= bytes; at += 4096) {
            const float *stream = (const float *)(base + at);
            bool same = true;
            for (size_t i = 0; same && i < elements; i += i < 16 ? 1 : 65521)
                same = stream[i] == wanted(i);
            if (same)
                return stream;
        }
    }
    return nullptr;
}

// Huge pages that are entirely in one thread's share of an array must be on that thread's node.
void expect_near(const float *stream, size_t elements, const std::vector<int> &nodes, const char *what)
{
    const size_t share = elements / nodes.size() * sizeof(float);
    size_t wrong = 0, looked_at = 0;
    for (size_t i = 0; i < nodes.size(); i++) {
        const size_t begin = (size_t)stream + i * share;
        const size_t first = (begin + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
        const size_t last = (begin + share) / HUGE_BYTES * HUGE_BYTES;
        for (int node : nodes_of((const void *)first, last - first)) {
            wrong += node != nodes[i];
            looked_at++;
        }
    }
    // If a node has no free huge page, the kernel uses one of another node. So a few may be on the wrong node.
    EXPECT_LE(wrong, looked_at / 8) << what << ": pages that are not on their thread's node, of " << looked_at;
    EXPECT_GE(looked_at, nodes.size() * HUGE_BYTES / 4096) << what;
}

TEST_F(Numa, StatesInDramAreNearTheThreadsThatUpdateThem)
{
    if (!room_for((size_t)threads << 24))
        GTEST_SKIP() << "a NUMA node has too little free memory";
    log_catcher log;
    counted c("", threads);
    ASSERT_ZOFF_OK(zoff_step(c.e.get(), nullptr, nullptr));
    const float *masters = find_stream(c.elements, counted::master);
    const float *m = find_stream(c.elements, counted::m), *v = find_stream(c.elements, counted::v);
    ASSERT_TRUE(masters && m && v) << "the states were not found in memory";
    const std::vector<int> nodes = seats(threads);
    for (int step = 1; step <= 3; step++) {
        expect_near(masters, c.elements, nodes, "masters");
        expect_near(m, c.elements, nodes, "m");
        expect_near(v, c.elements, nodes, "v");
        EXPECT_EQ(nodes, seats(threads)) << "after step " << step;
        ASSERT_ZOFF_OK(zoff_step(c.e.get(), nullptr, nullptr));
    }
}

TEST_F(Numa, SlotsOfTheNvmeTierLieOnAllNodes)
{
    log_catcher log;
    scratch_folder folder;
    counted c(folder.path, threads);
    ASSERT_ZOFF_OK(zoff_step(c.e.get(), nullptr, nullptr));
    const zoff_plan_info plan = plan_of(c.e.get());
    ASSERT_GT(plan.chunk_count, 3u) << "the step must write and read some chunks";
    size_t found = 0;
    for (auto [base, bytes] : mappings(3 * plan.chunk_bytes, false)) {
        int mode = -1;
        ASSERT_EQ(0, get_mempolicy(&mode, nullptr, 0, base, MPOL_F_ADDR)) << strerror(errno);
        if (mode != MPOL_INTERLEAVE)
            continue;
        found++;
        ASSERT_NO_FATAL_FAILURE(expect_even(nodes_of(base, 3 * plan.chunk_bytes)));
    }
    EXPECT_EQ(1u, found) << "interleaved mappings of the size of three slots";
}
} // namespace
