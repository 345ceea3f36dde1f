/* SPDX-License-Identifier: Apache-2.0 */
// tune_fuzz.cc: the file in a folder with the last measurement of its drive. One that is used has block and depth in range.
#include "fuzz.h"

extern "C" {
#include "tune_priv.h"
}

#include <zoff/zoff.h>

using namespace zoff_fuzz;

static zoff_aio_tune_result result_here()
{
    zoff_aio_tune_result io = {};
    io.struct_size = sizeof io;
    io.backend = "io_uring";
    snprintf(io.file_system, sizeof io.file_system, "ext4");
    io.device = 7;
    io.direct = true;
    return io;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const folder scratch({{ZOFF_AIO_TUNE_FILE, std::string((const char *)data, bytes)}});
    zoff_aio_tune_result io = result_here();
    quiet_output();
    if (!zoff_aio_tune_keep_load(scratch.path.c_str(), &io))
        return 0;
    require(io.block_bytes >= 4096 && io.block_bytes <= ZOFF_AIO_TUNE_BLOCK_MOST, "the block is in range");
    require(io.depth >= 1 && io.depth <= ZOFF_AIO_TUNE_DEPTH_MOST, "the depth is in range");
    require(io.read_rate >= 1 && io.write_rate >= 1 && io.mixed_rate >= 1, "rates are positive");
    accept();
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    static const std::vector<std::string> WORDS = {"4096", "4095",         "4194304",  "4194305",         "32",
                                                   "33",   "\"io_uring\"", "\"ext4\"", "1000000000000001"};
    changes c(seed);
    std::string text((const char *)data, bytes);
    c.json(&text, WORDS);
    return give(text, data, bytes, most);
}

static std::vector<std::string> seeds()
{
    zoff_aio_tune_result io = result_here();
    char text[1024];
    size_t bytes = 0;
    io.block_bytes = 65536;
    io.depth = 8;
    io.read_rate = io.write_rate = io.mixed_rate = 1e9;
    io.seconds = 0.5;
    require(zoff_aio_tune_print(&io, text, sizeof text, &bytes) == ZOFF_OK, "a result can be printed");
    return {std::string(text, bytes)};
}

const target zoff_fuzz::TARGET = {20000, 0.01, seeds};
