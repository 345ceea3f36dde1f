/* SPDX-License-Identifier: Apache-2.0 */
// fuzz.h: shared by the fuzz targets: inputs of several files, a folder in memory for them, and changes that keep the form of
// an input. docs/adr/0062-untrusted-bytes.md lists the targets.
//
// A target is a program with LLVMFuzzerTestOneInput() and LLVMFuzzerCustomMutator(). The preset `fuzz` links libFuzzer. All
// other builds link replay.cc, which runs the corpus, and inputs that the same mutator makes of it.
#ifndef ZOFF_FUZZ_H
#define ZOFF_FUZZ_H

#include "random.h"

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed);
}

namespace zoff_fuzz
{
/* ---- the target ---- */

// A target as replay.cc sees it.
struct target {
    unsigned cases;  // changed inputs of a full run
    double accepted; // least share of changed seeds that the library accepts: otherwise all end at the first check
    std::vector<std::string> (*seeds)();
};
extern const target TARGET;

// A run calls this when the library has accepted its input.
void accept();
extern unsigned accepted;

// End the program if a property does not hold.
void require(bool holds, const char *property);

/* ---- inputs of several files ---- */

using files = std::map<std::string, std::string>; // bytes by name, which may have folders

// Files as one text, without the zeros between their bytes: large sparse files have small inputs.
std::string pack(const files &all);
files unpack(const uint8_t *data, size_t bytes);

// A folder in /dev/shm, which is empty after every run.
class folder
{
  public:
    explicit folder(const files &all);
    ~folder();
    folder(const folder &) = delete;
    std::string file(const std::string &name) const { return path + "/" + name; }
    const std::string path;
};

// The log is dropped, and what the library prints on stderr is here until the next run. For LLVMFuzzerTestOneInput().
std::string quiet_output();

/* ---- changes ---- */

class changes
{
  public:
    explicit changes(unsigned seed) : random(seed) {}
    size_t any(size_t end) { return end ? random() % end : 0; }
    template <typename T> const T &one_of(const std::vector<T> &all) { return all[any(all.size())]; }
    // A number at the end of some range, or beside one.
    uint64_t number();
    // Any bytes: by libFuzzer's own mutations where there are any.
    void bytes(std::string *text);
    // One token, member or line of a JSON text. `words` are tokens of the format.
    void json(std::string *text, const std::vector<std::string> &words);
    // A little-endian number of 1, 2, 4 or 8 bytes between two places.
    void field(std::string *text, size_t from, size_t to);
    // An opcode of a pickle.
    void pickle(std::string *text);
    // An entry of a zip archive with entries that are stored, whose sizes and checksums are made again. `most`: of its bytes.
    void zip(std::string *archive, size_t most);
    // An archive that zip() can change. Each entry is a name and its bytes.
    static std::string make_zip(const std::vector<std::pair<std::string, std::string>> &entries);

  private:
    zoff_test::fast_random random;
};

// Copy a changed input to libFuzzer, or the input as it was if the change is too long.
size_t give(const std::string &changed, uint8_t *data, size_t bytes, size_t most);
} // namespace zoff_fuzz

#endif
