/* SPDX-License-Identifier: Apache-2.0 */
// loadable_test.cc: what an engine accepts, a save can write and everybody can read. Random descriptions, legal and not, are
// opened under random configurations. One that opens is saved, verified, loaded into another engine, exported, imported again,
// and made of its state files. One that does not open is one that this test calls illegal, too.
#include "covering.h"
#include "tool_checkpoints.h"

#include <map>

using namespace tool_files;

// No power fails here, and thousands of flushes wait for the disk.
extern "C" int fsync(int)
{
    return 0;
}

namespace
{
// One parameter as the program gives it. Texts and sizes must live as long as the description.
struct given {
    std::string name, slice_name;
    bool has_name = true, has_slice_name = false, has_dims = false, frozen = false, owned = false;
    std::vector<size_t> dims;
    size_t count = 1, slices = 1;
    zoff_dtype dtype = ZOFF_F32;
    unsigned group = 0;
    int tied_to = -1; // index of the parameter that has the same weights
};

class description
{
  public:
    explicit description(uint64_t seed) : random(seed)
    {
        const size_t params = 1 + pick(4);
        for (size_t i = 0; i < params; i++)
            all.push_back(make(i));
    }

    bool is_legal() const
    {
        std::map<std::string, size_t> owners; // owner of each name of a parameter or tensor
        for (size_t i = 0; i < all.size(); i++) {
            const given &g = all[i];
            const std::string &pattern = g.slice_name;
            if (g.name.size() > 4095 || (g.has_slice_name && pattern.size() > 4095) || !dims_fit(g))
                return false;
            const size_t place = pattern.find("{}");
            if (g.has_slice_name && (place == std::string::npos || pattern.find("{}", place + 2) != std::string::npos))
                return false;
            if (!owners.emplace(name_of(i), i).second && owners[name_of(i)] != i)
                return false;
            for (size_t k = 0; g.has_slice_name && k < g.slices; k++) {
                std::string tensor = pattern;
                tensor.replace(place, 2, std::to_string(k));
                if (!owners.emplace(tensor, i).second && owners[tensor] != i)
                    return false;
            }
        }
        return true;
    }

    std::string name_of(size_t i) const { return all[i].has_name ? all[i].name : "param" + std::to_string(i); }

    // Weights and gradients, and the parameters over them.
    std::vector<zoff_param_desc> describe(std::vector<std::string> &weights, std::vector<std::string> &grads) const
    {
        std::vector<zoff_param_desc> list;
        for (size_t i = 0; i < all.size(); i++) {
            const given &g = all[i];
            weights.push_back(rounded(small(g.count * g.slices, (unsigned)i), g.dtype));
            grads.push_back(rounded(small(g.count * g.slices, 100 + (unsigned)i), g.dtype));
        }
        for (size_t i = 0; i < all.size(); i++) {
            const given &g = all[i];
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = g.has_name ? g.name.c_str() : nullptr;
            d.slice_name = g.has_slice_name ? g.slice_name.c_str() : nullptr;
            d.dims = g.has_dims ? g.dims.data() : nullptr;
            d.dim_count = g.has_dims ? g.dims.size() : 0;
            d.count = g.count;
            d.slices = g.slices;
            d.dtype = g.dtype;
            d.group = g.group;
            d.frozen = g.frozen;
            d.engine_owned = g.owned;
            d.value = &weights[(size_t)(g.tied_to < 0 ? (int)i : g.tied_to)][0];
            d.grad = g.frozen ? nullptr : &grads[i][0];
            list.push_back(d);
        }
        return list;
    }

    std::vector<given> all;
    zoff_test::fast_random random;

    size_t pick(size_t count) { return random() % count; }

  private:
    static std::vector<float> small(size_t count, unsigned seed)
    {
        zoff_test::fast_random numbers(seed);
        std::vector<float> values(count + 1); // there is an address, also without elements
        for (float &v : values)
            v = numbers.normal();
        return values;
    }

    static bool dims_fit(const given &g)
    {
        unsigned __int128 product = 1;
        bool is_empty = false;
        if (!g.has_dims)
            return true;
        if (g.dims.empty() || g.dims.size() > 64)
            return false;
        for (size_t dim : g.dims) {
            is_empty = is_empty || dim == 0;
            product *= dim ? dim : 1;
            if (product > (size_t)1 << 58)
                return false;
        }
        return (is_empty ? 0 : (size_t)product) == g.count;
    }

    std::string text()
    {
        static const std::vector<std::string> TEXTS = {"",
                                                       "a",
                                                       "a",
                                                       "b.0",
                                                       "b.1",
                                                       "param0",
                                                       "param1",
                                                       "../../x",
                                                       "x/y",
                                                       "latest",
                                                       "\xff",
                                                       "%FF",
                                                       "%25FF",
                                                       "__metadata__",
                                                       "format",
                                                       "zoff.params",
                                                       "%5F_metadata__",
                                                       "\xc3\xa9t\xc3\xa9",
                                                       "\n\t\x01\x7f\"\\",
                                                       "\xc0\x80",
                                                       "%",
                                                       "manifest.json",
                                                       "0",
                                                       "{}",
                                                       "b.{}"};
        switch (pick(12)) {
        case 0:
            return std::string(4094 + pick(3), 'l');
        case 1:
        case 2:
            return "h." + std::to_string(pick(3));
        case 3:
        case 4:
        case 5:
        case 6:
            return "own" + std::to_string(all.size()); // names are unique, so that many programs are legal
        default:
            return TEXTS[pick(TEXTS.size())];
        }
    }

    std::string pattern()
    {
        static const std::vector<std::string> PATTERNS = {"b.{}", "h.{}", "{}",   "%{}F", "\xff{}",
                                                          "a{}",  "a{}0", "{}{}", "none", "{"};
        switch (pick(8)) {
        case 0:
            return PATTERNS[pick(PATTERNS.size())];
        case 1:
            return std::string(4092 + pick(3), 'p') + "{}";
        default:
            return "s" + std::to_string(all.size()) + ".{}.w";
        }
    }

    void shape(given &g)
    {
        static const std::vector<std::vector<size_t>> EMPTY = {{0},
                                                               {3, 0, 5},
                                                               {0, SIZE_MAX},
                                                               {(size_t)1 << 30, (size_t)1 << 30, 0},
                                                               {(size_t)1 << 58, 0},
                                                               {0, ((size_t)1 << 58) + 1}};
        g.has_dims = true;
        if (g.count == 0)
            g.dims = EMPTY[pick(EMPTY.size())];
        else if (pick(4) == 0)
            g.dims = std::vector<size_t>(62 + pick(4), 1);
        else
            g.dims = {};
        for (size_t left = g.count; left > 1;) {
            const size_t part = left % 2 == 0 && pick(2) ? 2 : left;
            if (g.dims.size() > 60)
                g.dims.pop_back();
            g.dims.push_back(part);
            left /= part;
        }
        if (g.dims.empty() || pick(30) == 0)
            g.dims.push_back(pick(30) ? 1 : 2);
    }

    given make(size_t index)
    {
        static const size_t COUNTS[] = {0, 1, 2, 7, 1024, 1025, 3000};
        static const zoff_dtype DTYPES[] = {ZOFF_F32, ZOFF_BF16, ZOFF_F16};
        given g;
        g.has_name = pick(5) != 0;
        g.name = g.has_name ? text() : "";
        g.count = COUNTS[pick(7)];
        g.slices = 1 + pick(2) * pick(4);
        g.dtype = DTYPES[pick(3)];
        g.group = (unsigned)pick(3);
        g.has_slice_name = pick(3) == 0;
        g.slice_name = g.has_slice_name ? pattern() : "";
        if (pick(2))
            shape(g);
        g.frozen = pick(5) == 0;
        g.owned = !g.frozen && pick(4) == 0;
        if (index && !g.frozen && !g.owned && pick(3) == 0) {
            const size_t other = pick(index);
            const given &o = all[other];
            if (!o.frozen && !o.owned && o.tied_to < 0 && o.count) {
                g.tied_to = (int)other;
                g.count = o.count;
                g.slices = o.slices;
                g.dtype = o.dtype;
                g.group = o.group;
                g.has_dims = o.has_dims;
                g.dims = o.dims;
            }
        }
        return g;
    }
};

// How states are stored.
struct setting {
    const char *optimizer, *moments;
    bool persists;
    std::string text(const std::string &folder) const
    {
        return "{\"optimizer\": {\"type\": \"" + std::string(optimizer) +
               "\", \"params\": {\"lr\": 0.01}}, \"zero_optimization\": {\"offload_optimizer\": {\"device\": \"" +
               (persists ? "nvme\", \"nvme_path\": \"" + folder : "cpu") + "\"}}, \"zoff\": {\"moments\": \"" + moments + "\"" +
               (persists ? ", \"persist\": true, \"durability\": \"process\"" : "") + "}}";
    }
};

const setting SETTINGS[] = {{"Adam", "fp32", false}, {"AdamW", "bf16", true}, {"AdamW", "m8v16", false}, {"Adam", "q8", true},
                            {"SGD", "fp32", true},   {"Lion", "fp32", false}, {"Adagrad", "fp32", true}};

class Loadable : public testing::Test
{
  protected:
    zoff_test::engine open(const setting &s, std::vector<zoff_param_desc> &list, const std::string &states)
    {
        const std::string text = s.text(states);
        zoff_config *c_ = nullptr;
        EXPECT_ZOFF_OK(zoff_test::config_from_text(text.c_str(), text.size(), "settings", &c_));
        const zoff_test::config c(c_);
        zoff_engine_opts o = ZOFF_ENGINE_OPTS_INIT;
        o.config = c.get();
        zoff_engine *e = nullptr;
        status = zoff_engine_open(&o, list.data(), list.size(), &e);
        return zoff_test::engine(e);
    }

    void expect_intact(const std::string &from)
    {
        zoff_checkpoint_reader *r = nullptr;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(from.c_str(), nullptr, &r));
        const checkpoint_reader closes(r);
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(r, nullptr, nullptr));
    }

    // The masters of another engine of the same description, which has loaded the checkpoint.
    void expect_loads(const setting &s, const description &d, const std::string &from, zoff_engine *saved)
    {
        std::vector<std::string> weights, grads;
        std::vector<zoff_param_desc> list = d.describe(weights, grads);
        for (std::string &w : weights)
            w.assign(w.size(), 0);
        const zoff_test::scratch_folder states;
        const zoff_test::engine e = open(s, list, states.path);
        ASSERT_ZOFF_OK(status);
        ASSERT_ZOFF_OK(zoff_checkpoint_load(e.get(), from.c_str(), nullptr));
        for (size_t i = 0; i < list.size(); i++) {
            const size_t all = list[i].frozen || d.all[i].tied_to >= 0 ? 0 : list[i].count * list[i].slices;
            std::vector<float> mine(all + 1), other(all + 1);
            if (!all)
                continue;
            EXPECT_ZOFF_OK(zoff_state_read(saved, (zoff_param)i, ZOFF_STATE_MASTER, 0, all, mine.data()));
            EXPECT_ZOFF_OK(zoff_state_read(e.get(), (zoff_param)i, ZOFF_STATE_MASTER, 0, all, other.data()));
            EXPECT_TRUE(mine == other) << "masters of " << i;
        }
    }

    // The parameters come back by name from an export.
    void expect_exports(const description &d, const std::string &from)
    {
        const std::string to = folder.file("export"), again = folder.file("again");
        const verb_result out = run_verb(verb_export, {from, "-o", to});
        ASSERT_EQ(EXIT_DONE, out.exit) << out.err;
        const verb_result in = run_import({to, "-o", again});
        ASSERT_EQ(EXIT_DONE, in.exit) << in.err;
        zoff_checkpoint_reader *r = nullptr;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(again.c_str(), nullptr, &r));
        const checkpoint_reader closes(r);
        for (size_t i = 0, at; i < d.all.size(); i++)
            EXPECT_ZOFF_OK(zoff_checkpoint_reader_find(r, d.name_of(i).c_str(), &at));
    }

    void expect_all(const setting &s, const description &d)
    {
        const std::string states = folder.file("states"), saves = folder.file("saves"), left_out = folder.file("left_out");
        ASSERT_EQ(0, mkdir(states.c_str(), 0777));
        std::vector<std::string> weights, grads;
        std::vector<zoff_param_desc> list = d.describe(weights, grads);
        {
            const zoff_test::engine e = open(s, list, states);
            ASSERT_EQ(d.is_legal() ? ZOFF_OK : ZOFF_ERR_INVALID, status) << (status < 0 ? zoff_last_error() : "it opens");
            if (status < 0) {
                EXPECT_NE('\0', *zoff_last_error());
                return;
            }
            opened++;
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
            ASSERT_ZOFF_OK(zoff_checkpoint_save(e.get(), saves.c_str(), nullptr));
            zoff_checkpoint_opts o = ZOFF_CHECKPOINT_OPTS_INIT;
            o.skip_frozen = true;
            ASSERT_ZOFF_OK(zoff_checkpoint_save(e.get(), left_out.c_str(), &o));
            expect_intact(saves);
            expect_intact(left_out);
            expect_loads(s, d, saves, e.get());
            expect_loads(s, d, left_out, e.get());
        }
        expect_exports(d, saves);
        if (s.persists) {
            const verb_result r = run_verb(verb_checkpoint_reshard, {states, "-o", folder.file("made")});
            ASSERT_EQ(EXIT_DONE, r.exit) << r.err;
            expect_intact(folder.file("made"));
        }
    }

    void clear() { ASSERT_EQ(0, system(("rm -rf '" + folder.path + "'/*").c_str())); }

    zoff_test::scratch_folder folder;
    zoff_status status = ZOFF_OK;
    unsigned opened = 0;
};

TEST_F(Loadable, AnEngineThatOpensIsSavedVerifiedLoadedExportedAndResharded)
{
    const unsigned programs = zoff_test::share_of(600);
    for (unsigned seed = 0; seed < programs && !HasFailure(); seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const description d(seed);
        expect_all(SETTINGS[seed % (sizeof SETTINGS / sizeof SETTINGS[0])], d);
        clear();
    }
    EXPECT_GT(opened, programs / 4) << "the generator makes too few legal programs";
    EXPECT_LT(opened, programs * 9 / 10) << "the generator makes too few illegal programs";
    printf("%u programs, %u of them open\n", programs, opened);
}
} // namespace
