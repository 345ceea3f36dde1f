/* SPDX-License-Identifier: Apache-2.0 */
// refusals_test.cc: what the library says to wrong values, as text that is read in a review. Each configuration key gets values
// of other types and sizes, and each kind of call gets arguments that it cannot take. A change of a message is a change of
// refusals_of_*.txt: run the program with ZOFF_GOLDEN_WRITE=1, and read the difference.
#include "golden_text.h"
#include "small_engine.h"

#include <math.h>

#include <map>

extern "C" {
#include "schema.h"
}

using namespace zoff_test;

namespace
{
// A line for each message of a key, with the values that are refused so.
TEST(Refusals, ValuesOfEachKey)
{
    static const char *const VALUES[] = {"true", "-1", "\"no\"", "[1]"};
    std::ostringstream all;
    log_catcher log;
    size_t count;
    const zoff_config_key *keys = zoff_config_schema_table(&count);
    for (size_t i = 0; i < count; i++) {
        if (keys[i].class_ == ZOFF_CLASS_ALIAS)
            continue;
        std::vector<std::string> order;
        std::map<std::string, std::string> values; // one value for each message
        for (const char *value : VALUES) {
            zoff_config *config;
            ASSERT_ZOFF_OK(zoff_config_open(nullptr, &config));
            const zoff_status status = zoff_config_set(config, keys[i].path, value);
            std::string why = status < 0 ? zoff_last_error() : "";
            const size_t at = why.find(value);
            if (at != std::string::npos)
                why.replace(at, strlen(value), "VALUE");
            if (status < 0 && !values.count(why))
                order.push_back(why);
            if (status < 0)
                values[why] += std::string(values[why].empty() ? "" : ", ") + value;
            zoff_config_close(config);
        }
        for (const std::string &why : order)
            all << keys[i].path << " = " << values[why] << "\n    " << why << "\n";
    }
    ASSERT_NO_FATAL_FAILURE(expect_golden("refusals_of_keys.txt", all.str()));
}

class Calls : public testing::Test
{
  protected:
    // `with`: what is wrong, where the call does not show it.
    void say(const std::string &call, const std::string &with, zoff_status status)
    {
        all << call << (with.empty() ? "" : "   with " + with) << "\n    " << status << ": "
            << (status < 0 ? zoff_last_error() : "") << "\n";
        EXPECT_LT(status, 0) << call << " " << with;
        // Each of these calls keeps its text in the engine, too.
        for (const auto &[name, engine] : engines) {
            if (call.find("(" + name + ",") != std::string::npos || call.find("(" + name + ")") != std::string::npos) {
                EXPECT_STREQ(zoff_last_error(), zoff_engine_error(engine)) << call;
            }
        }
    }
    std::map<std::string, const zoff_engine *> engines; // by the variable that the calls name
    std::ostringstream all;
};
#define SAY(call) say(#call, "", call)
#define SAY_WITH(with, call) say(#call, with, call)

TEST_F(Calls, Arguments)
{
    log_catcher log;
    zoff_engine *const none = nullptr, *made = nullptr;
    zoff_engine_opts opts = {};
    SAY_WITH("struct_size 0", zoff_engine_create(&opts, &made));
    SAY(zoff_engine_create(nullptr, nullptr));
    trainer t(1);
    t.add(3, 2, ZOFF_F32, ZOFF_F32, 2);
    t.add(5, 1, ZOFF_BF16, ZOFF_BF16, 0, true);
    const zoff_param_desc good = t.desc(0);
    SAY(zoff_engine_open_sized(nullptr, &good, 0, 1, &made));
    SAY(zoff_engine_open_sized(nullptr, nullptr, sizeof good, 1, &made));
    EXPECT_EQ(nullptr, made);

    engine building = make_engine(t, "{}");
    made = building.get();
    engines["made"] = made;
    zoff_param_desc d = good;
    zoff_param p = 0;
    d.struct_size = 0;
    SAY_WITH("struct_size 0", zoff_engine_add_param(made, &d, nullptr));
    d = good;
    d.name = "other";
    d.dtype = (zoff_dtype)7;
    SAY_WITH("dtype 7", zoff_engine_add_param(made, &d, nullptr));
    d.dtype = ZOFF_F32;
    d.grad_dtype = (zoff_dtype)7;
    SAY_WITH("grad_dtype 7", zoff_engine_add_param(made, &d, nullptr));
    d.grad_dtype = ZOFF_F32;
    d.value = (char *)good.value + 1;
    SAY_WITH("value at an odd address", zoff_engine_add_param(made, &d, nullptr));
    d.value = good.value;
    d.count = SIZE_MAX / 2;
    SAY_WITH("count SIZE_MAX / 2", zoff_engine_add_param(made, &d, nullptr));
    d.count = good.count;
    d.value_stride = 1;
    SAY_WITH("value_stride 1", zoff_engine_add_param(made, &d, nullptr));
    d.value_stride = 0;
    d.matrix_row_count = 1;
    SAY_WITH("matrix_row_count 1", zoff_engine_add_param(made, &d, nullptr));
    const size_t rows[] = {2}, dims[] = {3, 1};
    d.matrix_rows = rows;
    SAY_WITH("matrix_rows {2}", zoff_engine_add_param(made, &d, nullptr));
    d.dims = dims;
    d.dim_count = 2;
    SAY_WITH("dims {3, 1} and matrix_rows {2}", zoff_engine_add_param(made, &d, nullptr));
    d.matrix_rows = d.dims = nullptr;
    d.matrix_row_count = d.dim_count = 0;
    ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    SAY_WITH("a name that is there", zoff_engine_add_param(made, &d, nullptr));
    SAY(zoff_engine_find_param(made, "another", &p));
    SAY(zoff_engine_find_param(made, nullptr, &p));
    SAY(zoff_engine_add_param(made, nullptr, nullptr));
    SAY(zoff_grad_ready(made, 0, 0, nullptr));
    SAY(zoff_step(made, nullptr, nullptr));
    SAY(zoff_grads_drop(made));

    engine e_ = seal_engine(t, "{\"gradient_clipping\": 0}");
    zoff_engine *const e = e_.get();
    engines["e"] = e;
    SAY(zoff_engine_seal(e));
    SAY(zoff_engine_add_param(e, &good, nullptr));
    zoff_step_args args = {};
    zoff_step_info info = {};
    zoff_plan_info plan = {};
    zoff_optimizer_hyper h[2] = {}, out = {};
    SAY_WITH("struct_size 0", zoff_step(e, &args, nullptr));
    SAY_WITH("struct_size 0", zoff_step(e, nullptr, &info));
    SAY_WITH("struct_size 0", zoff_engine_plan(e, &plan));
    SAY_WITH("struct_size 0", zoff_engine_set_group(e, 0, h));
    zoff_optimizer_hyper_init(&h[0], ZOFF_OPTIMIZER_ADAM);
    zoff_optimizer_hyper_init(&h[1], ZOFF_OPTIMIZER_ADAM);
    zoff_optimizer_hyper_init(&out, ZOFF_OPTIMIZER_ADAM);
    args = ZOFF_STEP_ARGS_INIT;
    args.t = -1;
    SAY_WITH("t -1", zoff_step(e, &args, nullptr));
    args.t = INT64_MAX; // the next step would have no number
    SAY_WITH("t INT64_MAX", zoff_step(e, &args, nullptr));
    args.t = 0;
    for (const double scale : {(double)INFINITY, (double)NAN, 1e200}) {
        args.grad_scale = scale;
        SAY_WITH("grad_scale " + std::to_string(scale).substr(0, 8), zoff_step(e, &args, nullptr));
    }
    args.grad_scale = 0;
    args.clip_norm = NAN;
    SAY_WITH("clip_norm NAN", zoff_step(e, &args, nullptr));
    args.clip_norm = 0;
    args.flags = 0x80;
    SAY_WITH("flags 0x80", zoff_step(e, &args, nullptr));
    args.flags = 0;
    args.hyper = h;
    args.hyper_count = 2;
    SAY_WITH("hyper of 2 groups", zoff_step(e, &args, nullptr));
    args.hyper_count = 3;
    // A stride that is not the size of a struct would read the next hyper-parameters from the middle of these.
    for (const size_t stride : {size_t{4}, sizeof h[0] - 8, sizeof h[0] + 4}) {
        args.hyper_stride = stride;
        SAY_WITH("hyper_stride " + std::to_string(stride), zoff_step(e, &args, nullptr));
    }
    args.hyper_stride = 0;
    args.hyper_count = 1;
    const struct {
        const char *name;
        double zoff_optimizer_hyper::*field;
        double value;
    } fields[] = {{"lr", &zoff_optimizer_hyper::lr, NAN},
                  {"beta1", &zoff_optimizer_hyper::beta1, 1},
                  {"beta2", &zoff_optimizer_hyper::beta2, -0.1},
                  {"eps", &zoff_optimizer_hyper::eps, -1},
                  {"weight_decay", &zoff_optimizer_hyper::weight_decay, INFINITY}};
    for (const auto &f : fields) {
        const double before = h[0].*f.field;
        h[0].*f.field = f.value;
        SAY_WITH(f.name, zoff_step(e, &args, nullptr));
        SAY_WITH(f.name, zoff_engine_set_group(e, 2, h));
        h[0].*f.field = before;
    }
    SAY(zoff_engine_set_group(e, 7, h));
    SAY(zoff_engine_set_lr(e, 7, 1));
    SAY(zoff_engine_set_lr(e, 2, -1));
    out = {};
    out.struct_size = sizeof out;
    out.lr = out.beta1 = ZOFF_KEEP;
    SAY_WITH("beta2 forgotten", zoff_engine_set_group(e, 2, &out));
    args.hyper = &out;
    SAY_WITH("beta2 forgotten", zoff_step(e, &args, nullptr));
    args.hyper = h;
    zoff_optimizer_hyper_init(&out, ZOFF_OPTIMIZER_ADAM);
    out.beta1 = out.beta2 = out.eps = 0;
    SAY_WITH("betas and eps 0", zoff_engine_set_group(e, 2, &out));
    SAY(zoff_engine_get_group(e, 7, 0, &out));
    SAY(zoff_engine_get_group(e, 2, -1, &out));
    SAY(zoff_grad_ready(e, 0, 2, nullptr));
    SAY(zoff_grad_ready(e, 9, 0, nullptr));
    SAY_WITH("a stream", zoff_grad_ready(e, 0, 0, h));
    void *there;
    const void *weights;
    SAY(zoff_grad_acquire(e, 9, 0, nullptr, &there));
    SAY(zoff_grad_acquire(e, 0, 0, nullptr, nullptr));
    SAY(zoff_grad_weight(e, -1));
    SAY(zoff_grad_weight(e, NAN));
    SAY(zoff_param_wait(e, 0, 5, nullptr));
    SAY(zoff_param_fetch(e, 0, 0, nullptr, &weights));
    SAY(zoff_param_release(e, 0, 0, nullptr));
    SAY(zoff_grad_reusable(e, 9, 0, nullptr));
    float numbers[8] = {};
    SAY(zoff_state_read(e, 0, ZOFF_STATE_M, 0, 7, numbers));
    SAY(zoff_state_read(e, 0, ZOFF_STATE_M, 7, 0, numbers));
    SAY(zoff_state_read(e, 0, (zoff_state_kind)9, 0, 1, numbers));
    SAY(zoff_state_read(e, 1, ZOFF_STATE_M, 0, 1, numbers));
    SAY(zoff_state_read(e, 0, ZOFF_STATE_M, 0, 1, nullptr));
    SAY(zoff_state_write(e, 9, ZOFF_STATE_M, 0, 1, numbers));
    SAY(zoff_param_read(e, 9, 0, 1, numbers));
    SAY(zoff_param_read(e, 0, 0, 7, numbers));
    SAY(zoff_param_write(e, 0, 0, 1, numbers));
    SAY(zoff_param_bind(e, 9, numbers, nullptr));
    SAY(zoff_param_bind_opts(e, 0, numbers, nullptr, 6));
    SAY(zoff_param_bind_opts(e, 0, nullptr, nullptr, ZOFF_BIND_MOVED));
    SAY(zoff_param_pull(e, 9));
    SAY(zoff_params_wait(e, 0, 99, 0, nullptr));
    SAY(zoff_grads_hand_over(e, nullptr, 0, 1));
    SAY(zoff_step_count(e, nullptr));
    SAY(zoff_step_count_set(e, -1));
    SAY(zoff_loss_scale(e, nullptr));
    SAY(zoff_step_wait(e, nullptr));
    SAY(zoff_step_retry(e, nullptr));
    SAY(zoff_step_measure(e, nullptr, nullptr));
    SAY(zoff_norm_sum_join(nullptr, nullptr));
    ASSERT_ZOFF_OK(zoff_grad_ready(e, 0, 0, nullptr));
    SAY_WITH("the same gradient twice", zoff_grad_ready(e, 0, 0, nullptr));
    SAY_WITH("a gradient of the next step", zoff_params_push(e));
    log.expect("updates nothing");                // a step without a gradient, at the end
    EXPECT_ZOFF_OK(zoff_step(e, &args, nullptr)); // after all these errors the engine is unchanged
    info = ZOFF_STEP_INFO_INIT;
    ASSERT_ZOFF_OK(zoff_step_begin(e, nullptr));
    SAY_WITH("a step open", zoff_step_begin(e, nullptr));
    SAY_WITH("a step open", zoff_grad_ready(e, 0, 0, nullptr));
    SAY_WITH("a step open", zoff_engine_set_group(e, 2, h));
    SAY_WITH("a step open", zoff_engine_set_lr(e, 2, 1));
    EXPECT_ZOFF_OK(zoff_step_wait(e, &info));

    SAY(zoff_step(none, nullptr, nullptr));
    SAY(zoff_step_begin(none, nullptr));
    SAY(zoff_step_wait(none, nullptr));
    SAY(zoff_step_retry(none, nullptr));
    SAY(zoff_step_prepare(none, nullptr));
    SAY(zoff_step_measure(none, nullptr, nullptr));
    SAY(zoff_grads_drop(none));
    SAY(zoff_engine_seal(none));
    SAY(zoff_engine_add_param(none, nullptr, nullptr));
    SAY(zoff_engine_set_group(none, 0, nullptr));
    SAY(zoff_engine_set_lr(none, 0, 1));
    SAY(zoff_engine_find_param(none, "wte", &p));
    SAY(zoff_engine_get_group(none, 0, 0, nullptr));
    SAY(zoff_engine_plan(none, nullptr));
    SAY(zoff_engine_progress(none));
    SAY(zoff_param_bind(none, 0, nullptr, nullptr));
    SAY(zoff_param_bind_opts(none, 0, nullptr, nullptr, 0));
    SAY(zoff_param_pull(none, 0));
    SAY(zoff_params_wait(none, 0, 0, 0, nullptr));
    SAY(zoff_grads_hand_over(none, nullptr, 0, 0));
    SAY(zoff_param_wait(none, 0, 0, nullptr));
    SAY(zoff_param_fetch(none, 0, 0, nullptr, nullptr));
    SAY(zoff_param_release(none, 0, 0, nullptr));
    SAY(zoff_param_read(none, 0, 0, 0, nullptr));
    SAY(zoff_param_write(none, 0, 0, 0, nullptr));
    SAY(zoff_grad_ready(none, 0, 0, nullptr));
    SAY(zoff_grad_acquire(none, 0, 0, nullptr, nullptr));
    SAY(zoff_grad_reusable(none, 0, 0, nullptr));
    SAY(zoff_grad_weight(none, 1));
    SAY(zoff_params_pull(none));
    SAY(zoff_params_push(none));
    SAY(zoff_state_read(none, 0, ZOFF_STATE_M, 0, 0, numbers));
    SAY(zoff_state_write(none, 0, ZOFF_STATE_M, 0, 0, numbers));
    SAY(zoff_state_flush(none));
    SAY(zoff_persist_data(none, nullptr, 0));
    SAY(zoff_step_count(none, nullptr));
    SAY(zoff_step_count_set(none, 0));
    SAY(zoff_loss_scale(none, nullptr));
    SAY(zoff_loss_scaler_get(none, nullptr));
    SAY(zoff_loss_scaler_set(none, nullptr));
    SAY(zoff_stats_print(none, nullptr, 0, nullptr));
    SAY(zoff_checkpoint_save(none, nullptr, nullptr));
    SAY(zoff_checkpoint_load(none, nullptr, nullptr));
    SAY(zoff_checkpoint_begin(none, nullptr, nullptr, nullptr));
    SAY(zoff_checkpoint_poll(nullptr));
    zoff_engine_destroy(nullptr);
    zoff_accel_close(nullptr);
    zoff_comm_close(nullptr);
    zoff_config_close(nullptr);
    zoff_aio_close(nullptr);

    SAY(zoff_checkpoint_save(e, nullptr, nullptr));
    SAY(zoff_checkpoint_save(e, "", nullptr));
    SAY(zoff_checkpoint_load(e, "no/such/folder", nullptr));
    zoff_checkpoint_opts save = ZOFF_CHECKPOINT_OPTS_INIT;
    save.struct_size = 0;
    SAY_WITH("struct_size 0", zoff_checkpoint_save(e, "no/such/folder", &save));
    for (const auto &[field, value] : {std::pair{&zoff_checkpoint_opts::label, "tp/0"},
                                       {&zoff_checkpoint_opts::name, "../x"},
                                       {&zoff_checkpoint_opts::name, "latest"}}) {
        save = ZOFF_CHECKPOINT_OPTS_INIT;
        save.*field = value;
        SAY_WITH(value, zoff_checkpoint_save(e, "no/such/folder", &save));
        SAY_WITH(value, zoff_checkpoint_load(e, "no/such/folder", &save));
    }
    save = ZOFF_CHECKPOINT_OPTS_INIT;
    save.engines = (1 << 24) + 1;
    SAY_WITH("2^24 + 1 engines", zoff_checkpoint_save(e, "no/such/folder", &save));
    save.engines = 0;
    save.data_count = 2;
    SAY_WITH("data NULL", zoff_checkpoint_save(e, "no/such/folder", &save));
    SAY_WITH("data NULL", zoff_checkpoint_load(e, "no/such/folder", &save));
    SAY(zoff_checkpoint_load(e, "", nullptr));
    zoff_checkpoint *saving = nullptr;
    SAY(zoff_checkpoint_begin(e, "", nullptr, &saving));
    SAY_WITH("4000 letters", zoff_checkpoint_save(e, std::string(4000, 'x').c_str(), nullptr));
    zoff_checkpoint_reader *reader = nullptr;
    SAY(zoff_checkpoint_reader_open("no/such/folder", nullptr, &reader));
    SAY(zoff_checkpoint_reader_open(nullptr, nullptr, &reader));
    SAY(zoff_checkpoint_reader_info(nullptr, nullptr));
    SAY(zoff_checkpoint_reader_verify(nullptr, nullptr, nullptr));
    size_t count;
    SAY(zoff_checkpoint_reader_open("x", "../y", &reader));
    SAY(zoff_checkpoint_reader_param(nullptr, 0, nullptr));
    SAY(zoff_checkpoint_reader_read(nullptr, 0, ZOFF_STATE_M, 0, 1, numbers));
    SAY(zoff_checkpoint_reader_find(nullptr, "w", &count));
    SAY(zoff_checkpoint_reader_data(nullptr, "x", 0, nullptr, 3, &count));
    SAY(zoff_checkpoint_reader_manifest(nullptr, nullptr, 0, &count));
    const char *format;
    SAY(zoff_checkpoint_reader_format(nullptr, 0, ZOFF_STATE_M, &format));
    SAY(zoff_checkpoint_list(nullptr, nullptr, 0, &count));
    SAY(zoff_checkpoint_list("no/such/folder", nullptr, 0, &count));
    SAY(zoff_checkpoint_pin(nullptr, nullptr));
    SAY(zoff_checkpoint_unpin("no/such/folder", nullptr));
    SAY(zoff_checkpoint_writer_commit(nullptr));
    SAY(zoff_state_files_scrub(nullptr, 0, nullptr, nullptr, nullptr, 0, nullptr, nullptr));

    zoff_accel *accel = nullptr;
    SAY(zoff_accel_open("gpu", 0, &accel));
    SAY(zoff_accel_open("host", 1, &accel));
    SAY(zoff_accel_open("host", 0, nullptr));
    zoff_comm *comm = nullptr;
    zoff_comm_opts of_comm = {};
    SAY_WITH("struct_size 0", zoff_comm_open(&of_comm, &comm));
    of_comm.struct_size = sizeof of_comm;
    of_comm.backend = "gloo";
    SAY_WITH("backend gloo", zoff_comm_open(&of_comm, &comm));
    SAY(zoff_comm_open_threads(nullptr, 0, &comm));
    SAY(zoff_comm_open_transport(nullptr, nullptr, &comm));
    EXPECT_EQ(nullptr, accel);
    EXPECT_EQ(nullptr, comm);
    zoff_config *config = nullptr;
    SAY(zoff_config_open("no/such/file.json", &config));
    SAY(zoff_config_open(nullptr, nullptr));
    ASSERT_ZOFF_OK(zoff_config_open(nullptr, &config));
    SAY(zoff_config_set(config, "no_such_key", "1"));
    SAY(zoff_config_set(config, nullptr, "1"));
    SAY(zoff_config_set(config, "optimizer.params.lr", nullptr));
    SAY(zoff_config_read_text(config, "{\"a\": ", 6, "this.json"));
    SAY(zoff_config_read_text(config, "[1]", 3, "this.json"));
    SAY(zoff_config_resolve(config, 0));
    SAY(zoff_config_reference(nullptr, 1, &count));
    SAY(zoff_config_reference(nullptr, 0, nullptr));
    SAY(zoff_config_schema(nullptr, 1, &count));
    SAY(zoff_config_schema(nullptr, 0, nullptr));
    double number;
    const char *word;
    SAY(zoff_config_number(config, "no_such_key", &number));
    SAY(zoff_config_string(config, "no_such_key", &word));
    zoff_config_close(config);
    ASSERT_NO_FATAL_FAILURE(expect_golden("refusals_of_calls.txt", all.str()));
}
} // namespace
