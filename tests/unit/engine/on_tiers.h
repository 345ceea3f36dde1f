/* SPDX-License-Identifier: Apache-2.0 */
// on_tiers.h: tests that run twice, with states in DRAM and with states in files.
#ifndef ZOFF_ON_TIERS_H
#define ZOFF_ON_TIERS_H

#include "small_engine.h"

namespace zoff_test
{
class on_tiers : public testing::TestWithParam<bool> // true: NVMe
{
  protected:
    std::string text(unsigned accumulation = 1, const std::string &more = "") const
    {
        return config_text(GetParam() ? folder.path : "", accumulation, more);
    }
    scratch_folder folder;
    log_catcher log;
};

inline std::string tier_name(const testing::TestParamInfo<bool> &p)
{
    return p.param ? "nvme" : "host";
}
} // namespace zoff_test

#endif
