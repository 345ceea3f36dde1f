// write_sample.cc: usage: checkpoint_sample FOLDER: writes checkpoints for check_checkpoint.py: of one engine in "one", of two
// engines in "two", of three ranks in "ranks".
#include "../../unit/archive/ranks.h"

using namespace zoff_test;

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
    if (status < 0)
        fprintf(stderr, "%s\n", zoff_last_error());
    return status < 0;
}
