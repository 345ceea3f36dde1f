/* SPDX-License-Identifier: Apache-2.0 */
// agreement_keys_test.cc: gives every key of the schema another value on one rank. All ranks must refuse the key by its name.
// If the schema allows ranks to differ, no bit of the result may change. The keys come from the schema table, so that a new key
// is tested too.
#include "agreement.h"

extern "C" {
#include "config_priv.h"
}

#include <cmath>

using namespace agreement;

namespace
{
// Configurations to which a key can be added. The test uses the first one that accepts the changed key.
std::vector<std::string> bases(const std::string &folder)
{
    const std::string places = "\"offload_optimizer\": {\"nvme_path\": \"" + folder + "\", \"device\": \"";
    const auto with = [&](const char *optimizer, const char *device, const char *more) {
        return std::string("{\"optimizer\": {") + optimizer + "}, \"zero_optimization\": {\"stage\": 2, " + places + device +
               "\"}, \"offload_param\": {\"nvme_path\": \"" + folder + "\"}}" + more + "}";
    };
    return {with("\"type\": \"AdamW\"", "cpu", ""),
            with("\"type\": \"SGD\", \"params\": {\"momentum\": 0.9}", "cpu", ""),
            with("\"type\": \"Adagrad\"", "cpu", ""),
            with("\"type\": \"Muon\"", "cpu", ""),
            with("\"type\": \"AdamW\"", "nvme", ""),
            "{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"nvme_path\": \"" + folder + "\"}}}"};
}

std::vector<std::string> candidates(const zoff_config_key &row, const std::string &folder)
{
    std::vector<std::string> all;
    const auto number = [&](double x) {
        char text[64];
        snprintf(text, sizeof text, row.type == ZOFF_KEY_NUMBER || row.type == ZOFF_KEY_NUMBERS ? "%.17g" : "%.0f", x);
        return std::string(text);
    };
    const double fallback = row.fallback ? atof(row.fallback) : 0;
    switch (row.type) {
    case ZOFF_KEY_BOOL:
        return {"true", "false"};
    case ZOFF_KEY_BYTES:
        return {"67108864", number(fallback + 4096), "4096"};
    case ZOFF_KEY_INTEGER:
        return {number(fallback + 1), number(2 * fallback), number(fallback - 1), "2", "3", "4096", "67108864"};
    case ZOFF_KEY_NUMBER:
        return {number(fallback + 0.125), number(fallback / 2), number(fallback * 2), "0.5", "0.25", "2"};
    case ZOFF_KEY_NUMBERS:
        all.push_back("[");
        for (unsigned i = 0; i < row.count; i++)
            all[0] += (i ? ", " : "") + number(0.5 + 0.125 * i);
        all[0] += "]";
        return all;
    case ZOFF_KEY_CHOICE:
        for (const char *list = row.accepts && *row.accepts ? row.accepts : row.choices; *list;) {
            const size_t bytes = strcspn(list, "|");
            all.emplace_back(list, bytes);
            list += bytes + (list[bytes] == '|');
        }
        return all;
    case ZOFF_KEY_TEXTS:
        return {folder, "name=1"};
    case ZOFF_KEY_SECTION:
    case ZOFF_KEY_ANY:
        break;
    }
    return all;
}

struct change {
    std::string base, value;
};

std::string effective(const std::string &base, const zoff_config_key &row, const std::string *value)
{
    char text[1024] = "";
    zoff_config *c = nullptr;
    if (zoff_test::config_from_text(base.data(), base.size(), "test.json", &c) == ZOFF_OK &&
        (!value || zoff_config_set(c, row.path, value->c_str()) == ZOFF_OK) && zoff_config_resolve(c, 2) == ZOFF_OK)
        zoff_config_value_print(&row, &c->effective[zoff_config_schema_index(&row)], text, sizeof text);
    zoff_config_close(c);
    return text;
}

// Find a value that differs from the base configuration's and that the configuration accepts. Prefer one with which an engine
// can be made.
bool find_change(const zoff_config_key &row, const std::vector<std::string> &all_bases, const std::string &folder, change *out)
{
    rank_job job(2, 20);
    bool found = false;
    for (const auto &value : candidates(row, folder)) {
        for (const auto &base : all_bases) {
            const std::string now = effective(base, row, &value);
            if (now.empty() || now == effective(base, row, nullptr))
                continue;
            model m;
            zoff_engine *made = nullptr;
            saying s = m.usual(base);
            s.sets.emplace_back(row.path, value);
            const bool is_made = make(s, job.comm_of(0), &made) == ZOFF_OK;
            zoff_engine_destroy(made);
            if (is_made || !found)
                *out = {base, value};
            found = true;
            if (is_made)
                return true;
        }
    }
    return found;
}

class quiet
{
  public:
    quiet()
    {
        zoff_log_set([](zoff_log_level, const char *, const char *, void *) {}, nullptr);
    }
    ~quiet() { zoff_log_set(nullptr, nullptr); }
};

TEST(Agreement, EveryKeyOfTheSchema)
{
    quiet log;
    size_t count, refused = 0, without_effect = 0, number = 0;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    scratch_folder folder, other;
    const std::vector<std::string> all_bases = bases(folder.path);
    for (size_t i = 0; i < count; i++) {
        const zoff_config_key &row = table[i];
        if (row.class_ != ZOFF_CLASS_HONOURED || row.type == ZOFF_KEY_SECTION)
            continue;
        SCOPED_TRACE(row.path);
        change c;
        if (!find_change(row, all_bases, other.path, &c)) {
            ADD_FAILURE() << "no other value for this key is known: extend bases() or candidates()";
            continue;
        }
        const unsigned ranks = is_full() || number++ % 8 == 0 ? 4 : 2, changed = ranks == 4 ? 2 : 1;
        const auto say = [&](bool changes) {
            return [&, changes](model &m, unsigned rank) {
                saying s = m.usual(c.base);
                if (changes && rank == changed)
                    s.sets.emplace_back(row.path, c.value);
                return s;
            };
        };
        const auto got = run(ranks, say(true));
        if (got[changed].call == "create") {
            const std::string path = row.path, short_name = path.substr(path.find('.') + 1); // "offload_optimizer.ratio"
            EXPECT_NE(std::string::npos, got[changed].message.find(short_name)) << got[changed].message;
            refused++;
        } else if (row.may_differ) {
            const auto want = run(ranks, say(false));
            for (unsigned rank = 0; rank < ranks; rank++) {
                EXPECT_EQ(ZOFF_OK, got[rank].status) << got[rank].message;
                EXPECT_TRUE(got[rank].weights == want[rank].weights) << "weights differ on rank " << rank;
            }
            without_effect++;
        } else {
            const std::string whose = changed == 2 ? " on ranks 0, 1 and 3 and " : " on rank 0 and ";
            for (unsigned rank = 0; rank < ranks; rank++) {
                EXPECT_EQ(ZOFF_ERR_INVALID, got[rank].status) << got[rank].message;
                EXPECT_EQ("seal", got[rank].call);
                EXPECT_NE(std::string::npos, got[rank].message.find(std::string(row.path) + " is ")) << got[rank].message;
                EXPECT_NE(std::string::npos, got[rank].message.find(whose)) << got[rank].message;
                EXPECT_NE(std::string::npos, got[rank].message.find(" on rank " + std::to_string(changed)))
                    << got[rank].message;
            }
            refused++;
        }
    }
    RecordProperty("values_changed", (int)(refused + without_effect));
    printf("agreement: %zu keys changed on one rank: %zu refused by name, %zu without effect\n", refused + without_effect,
           refused, without_effect);
    EXPECT_GT(refused, 50u);
    EXPECT_GT(without_effect, 10u);
}

// The message names all keys that differ. After they are corrected the same engine can be sealed.
TEST(Agreement, AllDifferencesAreNamedAtOnce)
{
    quiet log;
    const auto got = run(3, [&](model &m, unsigned rank) {
        saying s = m.usual("{\"optimizer\": {\"type\": \"AdamW\"}}");
        if (rank) {
            s.sets.emplace_back("optimizer.params.lr", "0.5");
            s.sets.emplace_back("gradient_clipping", "3");
        }
        return s;
    });
    for (const auto &one : got) {
        EXPECT_EQ(ZOFF_ERR_INVALID, one.status);
        EXPECT_NE(std::string::npos, one.message.find("gradient_clipping is 0 on rank 0 and 3 on ranks 1 and 2"))
            << one.message;
        EXPECT_NE(std::string::npos, one.message.find("optimizer.params.lr is 0.001 on rank 0 and 0.5 on ranks 1 and 2"))
            << one.message;
    }
}
} // namespace
