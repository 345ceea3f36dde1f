/* SPDX-License-Identifier: Apache-2.0 */
// ranks.h: a checkpoint that several ranks wrote: each has some pieces of one parameter, in a file of its own.
#ifndef ZOFF_ARCHIVE_RANKS_H
#define ZOFF_ARCHIVE_RANKS_H

#include "sample.h"

namespace zoff_test
{
class ranks_checkpoint
{
  public:
    ranks_checkpoint(const std::string &folder_, unsigned ranks_) : folder(folder_), files(ranks_), ranks(ranks_)
    {
        param.name = const_cast<char *>("w");
        param.dims = &param.count;
        param.dim_count = 1;
        param.count = (size_t)ranks * 1024;
        param.slices = 1;
        param.dtype = ZOFF_F32;
        param.states = 1;
        m.label = const_cast<char *>("");
        m.engines = 1;
        m.t = 7;
        m.params = &param;
        m.param_count = 1;
        m.files = files.data();
        m.file_count = ranks;
    }

    // `change` may change the piece of a rank before it is written.
    template <typename Change> zoff_status write(const Change &change)
    {
        char path[4096];
        zoff_status status = ZOFF_OK;
        m.sequence = zoff_archive_choose_sequence(folder.c_str());
        if (status == ZOFF_OK)
            status = zoff_archive_folder_id(m.id);
        zoff_archive_folder_work(folder.c_str(), "step-7", &m, path);
        for (unsigned rank = 0; rank < ranks && status == ZOFF_OK; rank++)
            status = write_rank(path, rank, change);
        return status == ZOFF_OK ? zoff_archive_publish_manifest(folder.c_str(), "step-7", &m, false, 0) : status;
    }
    zoff_status write()
    {
        return write([](unsigned, zoff_archive_piece *) {});
    }

    std::string folder;
    std::vector<zoff_archive_file> files;
    unsigned ranks;
    zoff_archive_param param = {};
    zoff_archive_manifest m = {};

  private:
    // The last rank has the first elements.
    template <typename Change> zoff_status write_rank(const std::string &path, unsigned rank, const Change &change)
    {
        zoff_archive_part p = {};
        zoff_archive_piece piece = {};
        zoff_status status = zoff_archive_part_open(path.c_str(), "", m.id, rank, &p);
        if (status < 0)
            return status;
        status = zoff_archive_part_region(&p, 4096, 0, &piece.region);
        piece.format = ZOFF_ARCHIVE_F32;
        piece.block = 1;
        piece.first = (uint64_t)(ranks - 1 - rank) * 1024;
        piece.count = 1024;
        std::vector<float> values(1024, (float)(ranks - 1 - rank));
        const std::string data = "data of " + std::to_string(rank);
        change(rank, &piece);
        p.table.checksums[0] = zoff_digest_blocks_whole(values.data(), 4096, 1);
        if (pwrite(p.fd, values.data(), 4096, 4096) != 4096)
            status = ZOFF_ERR_IO;
        if (status == ZOFF_OK)
            status = zoff_archive_table_add_piece(&p.table, &piece);
        if (status == ZOFF_OK)
            status = zoff_archive_part_item(&p, "rng", true, data.data(), data.size());
        if (status == ZOFF_OK && rank == 0)
            status = zoff_archive_part_item(&p, "position", false, "12", 2);
        if (status == ZOFF_OK)
            status = zoff_archive_part_finish(&p, &files[rank]);
        p.keeps = true;
        zoff_archive_part_close(&p);
        return status;
    }
};
} // namespace zoff_test

#endif
