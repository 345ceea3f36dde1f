/* SPDX-License-Identifier: Apache-2.0 */
// fake_root.h: a folder with the files in which a kernel describes a machine: CPUs, cores, nodes, groups.
#ifndef ZOFF_FAKE_ROOT_H
#define ZOFF_FAKE_ROOT_H

#include "zoff_test.h"

#include <stdio.h>

extern "C" {
#include "topology.h"
}

namespace zoff_test
{
class fake_root
{
  public:
    void put(const std::string &path, const std::string &text)
    {
        const std::string full = folder.file(path);
        ASSERT_EQ(0, system(("mkdir -p '" + full.substr(0, full.rfind('/')) + "'").c_str()));
        FILE *f = fopen(full.c_str(), "w");
        ASSERT_NE(nullptr, f);
        fputs((text + "\n").c_str(), f);
        fclose(f);
    }
    // Cores with `ways` hardware threads each, numbered as firmware does: CPU i and i + cores are siblings.
    void cores(unsigned cores, unsigned ways)
    {
        for (unsigned cpu = 0; cpu < cores * ways; cpu++) {
            std::string siblings;
            for (unsigned way = 0; way < ways; way++)
                siblings += (way ? "," : "") + std::to_string(cpu % cores + way * cores);
            put("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", siblings);
        }
        put("sys/devices/system/cpu/online", "0-" + std::to_string(cores * ways - 1));
    }
    // The CPUs of each node, as lists.
    void nodes(const std::vector<std::string> &lists)
    {
        for (size_t node = 0; node < lists.size(); node++)
            put("sys/devices/system/node/node" + std::to_string(node) + "/cpulist", lists[node]);
        put("sys/devices/system/node/online", "0-" + std::to_string(lists.size() - 1));
    }
    const char *path() const { return folder.path.c_str(); }

  private:
    scratch_folder folder;
};

inline zoff_cpus cpu_set(const std::vector<unsigned> &list)
{
    zoff_cpus cpus = {};
    for (unsigned cpu : list)
        zoff_base_topology_add(&cpus, cpu);
    return cpus;
}

inline zoff_cpus cpu_range(unsigned first, unsigned last)
{
    zoff_cpus cpus = {};
    for (unsigned cpu = first; cpu <= last; cpu++)
        zoff_base_topology_add(&cpus, cpu);
    return cpus;
}

inline std::vector<unsigned> members(const zoff_cpus &cpus)
{
    std::vector<unsigned> list;
    for (unsigned cpu = 0; cpu < ZOFF_CPUS_MAX; cpu++) {
        if (zoff_base_topology_has(&cpus, cpu))
            list.push_back(cpu);
    }
    return list;
}
} // namespace zoff_test

#endif
