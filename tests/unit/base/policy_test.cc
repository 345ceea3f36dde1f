/* SPDX-License-Identifier: Apache-2.0 */
// policy_test.cc: how many threads a rank takes, and on which nodes. Machines are made of files, with masks, quotas, containers
// and neighbours on the same host.
#include "fake_root.h"

#include <map>

extern "C" {
#include "policy.h"
}

using namespace zoff_test;
using list = std::vector<unsigned>;

namespace
{
class policy : public ::testing::Test
{
  protected:
    void make(const zoff_cpus &mask, unsigned ranks = 1, unsigned rank = 0, int preferred = -1)
    {
        const zoff_env_ranks r = {ranks, rank, nullptr};
        zoff_base_policy_make(root.path(), &mask, &r, preferred, &p);
    }
    unsigned threads(const zoff_cpus &mask, unsigned ranks = 1, unsigned rank = 0)
    {
        make(mask, ranks, rank);
        return p.threads;
    }
    // For each thread of a team the CPU on whose node it works, and the number of threads on each node.
    list seats()
    {
        list cpus;
        for (unsigned i = 0; i < p.threads; i++)
            cpus.push_back(p.order[(p.first + i) % p.cores]);
        return cpus;
    }
    std::map<unsigned, unsigned> by_node()
    {
        std::map<unsigned, unsigned> count;
        for (unsigned cpu : seats())
            count[p.topology.node[cpu]]++;
        return count;
    }
    // 2 nodes, 8 cores, 16 hardware threads.
    void two_nodes()
    {
        root.cores(8, 2);
        root.nodes({"0-3,8-11", "4-7,12-15"});
    }
    fake_root root;
    zoff_policy p;
    const zoff_cpus all = cpu_range(0, 15);
};
using node_count = std::map<unsigned, unsigned>;
} // namespace

TEST(policy_threads, is_the_least_of_mask_quota_and_share)
{
    EXPECT_EQ(8u, zoff_base_policy_threads(8, 0, 0, 1));
    EXPECT_EQ(3u, zoff_base_policy_threads(8, 3, 0, 1));
    EXPECT_EQ(8u, zoff_base_policy_threads(8, 100, 64, 4));
    EXPECT_EQ(2u, zoff_base_policy_threads(8, 8, 64, 4)) << "the quota is shared";
    EXPECT_EQ(16u, zoff_base_policy_threads(64, 0, 64, 4)) << "unbound: a share";
    EXPECT_EQ(16u, zoff_base_policy_threads(16, 0, 64, 4)) << "bound to its share: all of it";
    EXPECT_EQ(16u, zoff_base_policy_threads(32, 0, 64, 4)) << "two ranks bound to one socket of two";
    for (unsigned quota : {0u, 1u}) {
        EXPECT_EQ(1u, zoff_base_policy_threads(0, quota, 0, 1));
        EXPECT_EQ(1u, zoff_base_policy_threads(8, quota, 4, 100)) << "more ranks than cores";
    }
}

TEST_F(policy, one_thread_a_core)
{
    two_nodes();
    EXPECT_EQ(8u, threads(all));
    EXPECT_EQ((list{0, 1, 2, 3, 4, 5, 6, 7}), seats());
    EXPECT_TRUE(p.places);
    EXPECT_EQ(2u, threads(cpu_set({2, 10, 15})));
    EXPECT_EQ((list{2, 15}), seats());
}

TEST_F(policy, one_node_places_nobody)
{
    root.cores(4, 2);
    root.nodes({"0-7"});
    make(cpu_range(0, 7));
    EXPECT_FALSE(p.places);
    two_nodes();
    make(cpu_set({4, 5, 12}));
    EXPECT_FALSE(p.places) << "several nodes, but the mask is on one";
    make(cpu_set({3, 4}));
    EXPECT_TRUE(p.places);
}

TEST_F(policy, a_seat_is_a_node_and_never_outside_the_mask)
{
    two_nodes();
    make(cpu_set({0, 1, 8, 5, 6, 13}));
    zoff_cpus seat;
    ASSERT_EQ(4u, p.threads);
    const list node_0 = {0, 1, 8}, node_1 = {5, 6, 13};
    for (unsigned i = 0; i < 9; i++) { // with more threads than cores, cores get a second one
        zoff_base_policy_seat(&p, i, &seat);
        EXPECT_EQ(i % 4 < 2 ? node_0 : node_1, members(seat)) << i;
    }
}

TEST_F(policy, the_preferred_node_comes_first)
{
    two_nodes();
    make(all, 1, 0, 1);
    EXPECT_EQ((list{4, 5, 6, 7, 0, 1, 2, 3}), seats());
    make(all, 1, 0, 0);
    EXPECT_EQ((list{0, 1, 2, 3, 4, 5, 6, 7}), seats());
    make(all, 1, 0, 9); // close to a device on another node
    EXPECT_EQ(8u, p.threads);
    EXPECT_EQ(8u, p.cores);
}

TEST_F(policy, ranks_share_an_unbound_host)
{
    two_nodes();
    const list want[4] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
    for (unsigned rank = 0; rank < 4; rank++) {
        EXPECT_EQ(2u, threads(all, 4, rank));
        EXPECT_EQ(want[rank], seats()) << rank;
    }
    for (unsigned rank = 0; rank < 100; rank++)
        EXPECT_EQ(1u, threads(all, 100, rank));
}

TEST_F(policy, ranks_beside_their_accelerators_share_its_node)
{
    two_nodes();
    const list want[4] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
    for (unsigned rank = 0; rank < 4; rank++) {
        make(all, 4, rank, rank < 2 ? 0 : 1);
        EXPECT_EQ(want[rank], seats()) << rank;
    }
    // One rank on each node, and one over all.
    make(all, 2, 1, 1);
    EXPECT_EQ((node_count{{1, 4}}), by_node());
    make(all, 1, 0, 1);
    EXPECT_EQ((node_count{{0, 4}, {1, 4}}), by_node());
}

TEST_F(policy, a_bound_rank_keeps_all_of_its_mask)
{
    two_nodes();
    for (unsigned rank = 0; rank < 4; rank++) {
        const unsigned core = 2 * rank;
        EXPECT_EQ(2u, threads(cpu_set({core, core + 1, core + 8, core + 9}), 4, rank));
        EXPECT_EQ((list{core, core + 1}), seats());
    }
}

TEST_F(policy, ranks_bound_to_a_socket_share_it)
{
    two_nodes();
    const list want[4] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
    for (unsigned rank = 0; rank < 4; rank++) {
        const zoff_cpus socket = rank < 2 ? cpu_set({0, 1, 2, 3, 8, 9, 10, 11}) : cpu_set({4, 5, 6, 7, 12, 13, 14, 15});
        EXPECT_EQ(2u, threads(socket, 4, rank));
        EXPECT_EQ(want[rank], seats()) << rank;
    }
}

TEST_F(policy, a_container_has_its_own_cores)
{
    two_nodes();
    const zoff_cpus mask = cpu_set({0, 1, 2, 3}); // the mask has 4 of 16 hardware threads
    root.put("proc/self/cgroup", "0::/job/step");
    EXPECT_EQ(4u, threads(mask, 2)) << "no list anywhere: half of the machine is more than the mask";
    root.put("sys/fs/cgroup/job/cpuset.cpus.effective", "0-3");
    EXPECT_EQ(2u, threads(mask, 2)) << "the list of the group above";
    root.put("sys/fs/cgroup/job/step/cpuset.cpus.effective", "");
    EXPECT_EQ(2u, threads(mask, 2)) << "an empty list is none";
    root.put("sys/fs/cgroup/job/step/cpuset.cpus.effective", "0-1,8-9");
    EXPECT_EQ(1u, threads(mask, 2)) << "two cores, four hardware threads";
    EXPECT_EQ(4u, threads(mask, 1)) << "alone, the mask is all there is to know";
}

TEST_F(policy, a_container_of_version_1)
{
    two_nodes();
    const zoff_cpus mask = cpu_set({0, 1, 2, 3});
    root.put("proc/self/cgroup", "4:cpuset:/docker/abc");
    root.put("sys/fs/cgroup/cpuset/cpuset.cpus", "0-3"); // the container sees its group at the top
    EXPECT_EQ(2u, threads(mask, 2));
    root.put("sys/fs/cgroup/cpuset/cpuset.effective_cpus", "0-1");
    EXPECT_EQ(1u, threads(mask, 2));
}

TEST_F(policy, a_quota_is_for_all_ranks)
{
    two_nodes();
    root.put("proc/self/cgroup", "0::/job");
    root.put("sys/fs/cgroup/job/cpu.max", "600000 100000");
    EXPECT_EQ(6u, threads(all));
    EXPECT_EQ(3u, threads(all, 2));
    EXPECT_EQ(1u, threads(all, 4));
    EXPECT_EQ(1u, threads(all, 8));
}

TEST_F(policy, a_machine_with_more_than_1024_cpus)
{
    // 16 nodes with interleaved CPUs.
    std::vector<std::string> nodes(16);
    for (unsigned cpu = 0; cpu < 2048; cpu++)
        nodes[cpu % 16] += (cpu < 16 ? "" : ",") + std::to_string(cpu);
    root.nodes(nodes);
    make(cpu_range(0, 2047), 1, 0, 15);
    EXPECT_EQ(2048u, p.threads);
    EXPECT_EQ(15u, p.order[0]);
    EXPECT_EQ(2047u, p.order[127]);
    EXPECT_EQ(0u, p.order[128]) << "node 0 comes after the last";
    zoff_cpus seat;
    zoff_base_policy_seat(&p, 2047, &seat);
    EXPECT_EQ(128u, members(seat).size());
    EXPECT_TRUE(zoff_base_topology_has(&seat, 2046));
}

TEST_F(policy, a_machine_that_shows_nothing_has_a_thread_a_cpu)
{
    EXPECT_EQ(3u, threads(cpu_set({0, 1, 2})));
    EXPECT_EQ(3u, threads(cpu_set({0, 1, 2}), 4)) << "nothing is known to share";
    EXPECT_EQ(1u, threads(cpu_set({})));
    EXPECT_FALSE(p.places);
}
