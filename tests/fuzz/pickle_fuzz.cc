/* SPDX-License-Identifier: Apache-2.0 */
// pickle_fuzz.cc: a pickle is read as data or refused with a reason. A copy with other numbers is a pickle again.
#include "fuzz.h"

#include "../tools/universal/torch_bytes.h"

using namespace zoff_fuzz;

// Look at everything that callers look at, and change each number. A value may be reached by many ways, so `left` limits them.
static void use(const pickle_value *v, std::vector<pickle_edit> *edits, unsigned *left)
{
    int64_t number;
    if (!v || *left == 0)
        return;
    --*left;
    if (v->type == PICKLE_INT || v->type == PICKLE_FLOAT)
        edits->push_back({v, edits->size() % 2 ? 1e300 : 3.5});
    (void)pickle_number(v, &number);
    (void)pickle_is_text(v, "param");
    (void)pickle_is_global(v, "torch FloatStorage");
    for (const char *key : {"param", "step", "state", "loss_scaler"})
        (void)pickle_find(v, key);
    require(v->depth <= PICKLE_DEPTH, "nesting is limited");
    if (v->type == PICKLE_OBJECT || v->type == PICKLE_STORAGE)
        use(v->arguments, edits, left);
    if (v->type == PICKLE_OBJECT) {
        use(v->callee, edits, left);
        use(v->state, edits, left);
    }
    if (v->type != PICKLE_TEXT && v->type != PICKLE_GLOBAL)
        for (const pickle_item *item = v->first; item; item = item->next)
            use(item->value, edits, left);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    for (const pickle_names names : {PICKLE_NAMES_LISTED, PICKLE_NAMES_ANY}) {
        pickle *p = nullptr, *again = nullptr;
        fault f = {""};
        if (!pickle_open(data, bytes, names, &p, &f)) {
            require(f.text[0] && !p, "a refused pickle has a reason");
            continue;
        }
        std::vector<pickle_edit> edits;
        unsigned left = 3000;
        unsigned char *copy = nullptr;
        size_t count = 0;
        use(pickle_root(p), &edits, &left);
        std::sort(edits.begin(), edits.end(), [](const auto &a, const auto &b) { return a.value->begin < b.value->begin; });
        edits.erase(std::unique(edits.begin(), edits.end(), [](const auto &a, const auto &b) { return a.value == b.value; }),
                    edits.end());
        if (pickle_copy_edited(data, bytes, edits.data(), edits.size(), &copy, &count, &f)) {
            require(pickle_open(copy, count, names, &again, &f), "the copy of a pickle is one");
            pickle_close(again);
            free(copy);
        }
        pickle_close(p);
        accept();
    }
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    changes c(seed);
    std::string text((const char *)data, bytes);
    c.pickle(&text);
    return give(text, data, bytes, most);
}

static std::vector<std::string> seeds()
{
    using namespace torch_bytes;
    return {pickled(dict({{text("cat_dim"), std::string("K\0q\0", 4)},
                          {text("param"), tensor(contiguous({3, 4}))},
                          {text("list"), std::string("](h\0h\0e", 7)},
                          {text("sub_param_shape"), global("deepspeed.checkpoint.universal_checkpoint", "SubparamShape") +
                                                        ")\x81" + dict({{text("shape"), numbers({1, 2})}}) + "b"},
                          {text("real"), real(1.5)}})),
            pickled(global("torch._utils", "_rebuild_parameter") +
                    tuple({tensor(contiguous({2})), "\x88", global("collections", "OrderedDict") + ")R"}) + "R"),
            pickled(tuple({"\x8a\x02\x34\x92", "M\x01\x02", "N\x89\x88\x87", "j\0\0\0\0"})),
            pickled("](" + dict({{text("a"), "K\x01"}}) + "e")};
}

const target zoff_fuzz::TARGET = {600000, 0.02, seeds};
