/* SPDX-License-Identifier: Apache-2.0 */
// life.h: a program that runs: its parameters, the engines under test, and the reference, with which they are compared. The
// reference is an engine in DRAM, with one thread, on which nothing fails.
#ifndef ZOFF_SIM_LIFE_H
#define ZOFF_SIM_LIFE_H

#include "program.h"
#include "reference.h"
#include "world.h"

#include <zoff/zoff.h>

#include <string.h>

#include <memory>

namespace sim
{
inline size_t width_of(zoff_dtype dtype)
{
    return dtype == ZOFF_F32 ? 4 : 2;
}

void put(char *at, zoff_dtype dtype, float x); // digits that do not fit are cut off; fp16 has no subnormals
bool is_same(double a, double b);              // bits; NaN is NaN

struct param {
    std::string name;
    size_t count, slices, stride, grad_stride;
    size_t dims[2] = {0, 0}; // shape of a slice; zeros: none is given
    zoff_dtype dtype, grad_dtype;
    unsigned group, engine;
    bool frozen, owned, lent, reduced;
    param *tie = nullptr;
    uint64_t seed;
    zoff_param id = 0, ref_id = 0; // ids in the engine and in the reference
    char *value, *grad, *ref_value, *ref_grad;
    char *other_grad = nullptr; // a gradient buffer that the engine does not know
    bool unbound = false;       // zoff_grads_hand_over() has taken the buffer away
    std::vector<char> given;    // slices that have a gradient in this micro-step
    size_t value_bytes() const { return slices * stride * width_of(dtype); }
    size_t grad_bytes() const { return slices * grad_stride * width_of(grad_dtype); }
    char *grad_of(size_t slice) const { return grad + slice * grad_stride * width_of(grad_dtype); }
    char *ref_grad_of(size_t slice) const { return ref_grad + slice * grad_stride * width_of(grad_dtype); }
};

char *allocate(size_t bytes);

// The gradient of a slice that a rank hands over in a micro-step.
struct gradient {
    size_t of, slice;     // the place of its parameter, and its slice
    uint64_t from;        // the dice of its numbers
    double size;          // the range of its numbers
    size_t bad;           // the element that is not finite; SIZE_MAX: none
    bool is_early, polls; // it comes before the step; zoff_engine_progress() comes behind it
    std::vector<char> numbers;
};

class life
{
  public:
    life(const program &p_, const std::string &folder_, int out_, run_opts opts_, unsigned number_)
        : p(p_), folder(folder_), out(out_), with(opts_), number(number_)
    {
    }
    [[noreturn]] void run();

  private:
    void live(); // live the life of one rank
    [[noreturn]] void stop(int code, const std::string &text);
    void fail(const char *format, ...) __attribute__((format(printf, 2, 3)));
    void say(const char *format, ...) __attribute__((format(printf, 2, 3)));
    void c(const char *format, ...) __attribute__((format(printf, 2, 3))); // a line of the program in C
    void c_args(const zoff_step_args &args);
    void c_same(const param &q, size_t slice); // with the reference's weights
    void c_add(const param &q);
    enum { SET_GROUP, SET_LR, KEEP_OTHERS }; // three calls that set the rate of a group
    void c_group(unsigned group, const zoff_optimizer_hyper &hyper, unsigned form);
    void ok(zoff_status status, const char *call)
    {
        if (status != ZOFF_OK)
            fail("%s: %d: %s", call, status, zoff_last_error());
    }
    // Whether an error of a transfer explains this one. Each explains one, up to the second update behind it: work in
    // the background keeps its error until a call takes it.
    bool is_explained(zoff_status status)
    {
        if (status == ZOFF_OK || told >= world_errors())
            return false;
        told++;
        say("%s", zoff_last_error());
        return true;
    }
    void disarm() { world_fault(fault_kind::none, 0, 0, false); }
    // A call whose transfers may fail is repeated then, without new faults.
    template <typename F> zoff_status repeat(F &&f)
    {
        zoff_status status = f();
        while (status < 0 && status != ZOFF_ERR_OVERFLOW && is_explained(status)) {
            disarm();
            status = f();
        }
        return status;
    }
    template <typename F> void persist_in(const char *call, F &&f)
    {
        const zoff_status status = repeat(f);
        // A drive has lost writes of states that no step has committed. The reference still has what is undone then.
        for (const char *way_out : {"Call zoff_grads_drop()", "End the program, and start all ranks again"}) {
            if (status == ZOFF_ERR_IO && persist && flush_failed && strstr(zoff_last_error(), way_out))
                stop(FINE, "");
        }
        // That rank is told so, and this one only that it has failed.
        if (status == ZOFF_ERR_COMM && ranks > 1 && persist && flush_failed &&
            strstr(zoff_last_error(), "see the message of that rank"))
            stop(FINE, "");
        ok(status, call);
    }
    // The one error of a step that needs no fault: all micro-batches have the weight 0.
    bool is_weightless(zoff_status status) const
    {
        return status == ZOFF_ERR_INVALID && (micro_steps > 1 || ranks > 1) && strstr(zoff_last_error(), "have weight 0");
    }
    void describe();
    zoff_param_desc desc(const param &q, bool is_ref) const;
    void add_param(const line &l);
    zoff_config *config(int engine); // negative: of the reference
    void open(bool again);
    zoff_status open_one(unsigned engine);
    void open_ref();
    void operation(const line &l);
    void arm(const line &l);
    // The dice of a step on a rank. Each rank has other gradients, so that a wrong sum of them has other bits.
    dice dice_of(const line &l, unsigned of_rank) const { return dice(l.number("seed") + 1000003ull * of_rank); }
    std::vector<gradient> draw(const line &l, unsigned of_rank, dice &d) const;
    double weight_of(const line &l, unsigned of_rank) const;
    void hand_over(const line &l, dice &d);
    void bind_grads(bool listed);
    void hand_over_list(unsigned engine, const std::vector<zoff_handover> &list);
    void step(const line &l);
    zoff_step_args begin_args(const line &l); // arguments of a step, and the weight of its micro-batch
    zoff_status step_of_ref(const line &l, const zoff_step_args &args, zoff_step_info &info);
    void replay(const line &l);
    bool is_last() const { return micro + 1 == micro_steps; }
    bool is_measured(const line &l) const { return is_last() && (engines == 2 || form_of(l) == "measure"); }
    bool hands_all_over(const line &l) const { return is_measured(l) || form_of(l) == "whole"; }
    static std::string form_of(const line &l) { return l.has("form") ? l.fields.at("form") : "split"; }
    bool finish(dice &d, unsigned engine, zoff_status &status, zoff_step_info &info);
    void calls(const line &l, dice &d, unsigned engine, bool zero);
    void compare_step(const zoff_step_info *infos, const zoff_step_info &ref);
    void drop();
    void states(const line &l);
    void pull(const line &l);
    void move(const line &l);
    void read_states(const line &l, bool all);
    void save(const line &l);
    void finish_save(); // one that runs beside operations
    void load(const line &l);
    void reopen(const line &l);
    [[noreturn]] void start_again(); // the program ends, and where that is known how, the next one goes on
    bool can_crash(const line &l) const;
    std::string note_path(unsigned of) const { return folder + "/note" + std::to_string(of); }
    void note();        // note what the process after a crash must know
    void after_crash(); // opens engines in such a process
    void forget_weights();
    void go_on(const line &l);
    void group(const line &l);
    void compare_weights(int engine = -1); // of one engine: only those in the program's memory, for others take a call
    void check_cleared();
    void compare_states(param &q, int kind, size_t first, size_t count, bool may_refuse);
    void compare_counts();
    void open_book(); // book.cc
    void add_to_book(const line &l);
    void add_rank_to_book(const line &l, unsigned of_rank, float weight, float of_all);
    size_t owner_of(size_t i) const; // owner of tied weights
    void compare_book(const zoff_step_args &args, const zoff_step_info &info);
    void forget_book();
    void pull_book(const std::vector<const param *> &of);
    void load_book(); // the reference has loaded a checkpoint
    void write_book(const param &q, zoff_state_kind kind, size_t first, size_t count, const float *numbers);

    const program &p;
    const std::string folder;
    const int out;
    const run_opts with;
    FILE *script = nullptr;
    const unsigned number;  // how many have crashed before it
    std::string now;        // the operation
    std::string last_error; // error of open_one()
    std::vector<std::unique_ptr<param>> params;
    std::vector<std::pair<std::string, std::string>> both, own;
    uint64_t chunk = 0, host_bytes = 0;
    bool progress_thread = false, persist = false, has_saved = false, flush_failed = false, limits_live = false;
    bool crashes = false, outlives_power = true, is_noted = false;
    bool has_put_off = false;  // ranges of states, which the end of the process takes
    size_t here = 0, safe = 0; // the operation, and the first one of its update
    bool recorded[2] = {};     // the files of an engine have something to go on with
    unsigned engines = 1, micro = 0, micro_steps = 1, told = 0, before = 0, before_save = 0;
    unsigned rank = 0, ranks = 1;
    double update_scale = 0;
    zoff_accel *device = nullptr;
    zoff_checkpoint *saving = nullptr;
    zoff_comm *comm = nullptr, *ref_comm = nullptr;
    zoff_engine *tested[2] = {}, *ref = nullptr;
    std::map<unsigned, zoff_optimizer_hyper> hypers;
    std::vector<reference::tensor> book;  // one for each parameter; empty: it is not kept
    double weights = 0;                   // weights of the micro-batches in the sums
    double clip = 0, factor = 1;          // gradient_clipping of the configuration; factor of each rank's weight
    bool adds = false;                    // gradient_allreduce_op
    zoff_dtype wire = ZOFF_DTYPE_DEFAULT; // communication_data_type
};

} // namespace sim

#endif
