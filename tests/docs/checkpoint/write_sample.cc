/* SPDX-License-Identifier: Apache-2.0 */
// write_sample.cc: usage: checkpoint_sample FOLDER: writes checkpoints for check_checkpoint.py: of one engine in "one", of two
// engines in "two", of three ranks in "ranks". Those of an engine with each format of moments are in "fp32", "bf16" and so on.
// The numbers of its states are beside them, in "fp32.numbers".
#include "../../unit/archive/ranks.h"

#include "small_engine.h"

#include <fstream>

using namespace zoff_test;

// Masters of bf16 weights are in two halves, those of fp16 weights are not. Some slices are too short for blocks.
static zoff_status write_format(const std::string &folder, const std::string &moments)
{
    trainer t(3);
    t.add(5000, 2, ZOFF_BF16, ZOFF_BF16);
    t.add(4097, 1, ZOFF_F16, ZOFF_F16);
    t.add(100, 3, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, config_text("", 1, ", \"zoff\": {\"moments\": \"" + moments + "\"}"), 2048);
    zoff_status status = ZOFF_OK;
    for (int step = 0; step < 3 && status == ZOFF_OK; step++) {
        t.next_step();
        t.backward_all(0.1f);
        status = zoff_step(e.get(), nullptr, nullptr);
    }
    status = status < 0 ? status : zoff_checkpoint_save(e.get(), (folder + "/" + moments).c_str(), nullptr);
    std::ofstream file(folder + "/" + moments + ".numbers", std::ios::binary);
    for (size_t i = 0; i < t.tensors.size() && status == ZOFF_OK; i++) {
        for (zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
            std::vector<float> all(t.tensors[i].total());
            status = status < 0 ? status : zoff_state_read(e.get(), (zoff_param)i, kind, 0, all.size(), all.data());
            file.write((const char *)all.data(), (std::streamsize)(all.size() * sizeof(float)));
        }
    }
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    const std::string folder = argv[1];
    const sample s;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    zoff_status status = s.write(folder + "/one");
    opts.engines = 2;
    for (const char *label : {"tp0", "tp1"}) {
        opts.label = label;
        status = status < 0 ? status : s.write(folder + "/two", &opts);
    }
    ranks_checkpoint ranks(folder + "/ranks", 3);
    status = status < 0 ? status : ranks.write();
    for (const char *moments : {"fp32", "bf16", "m8v16", "q8"})
        status = status < 0 ? status : write_format(folder, moments);
    if (status < 0)
        fprintf(stderr, "%s\n", zoff_last_error());
    return status < 0;
}
