/* SPDX-License-Identifier: Apache-2.0 */
// lost_write_test.cc: one write or flush in the use of an engine fails, is short, is silently lost, or is the last before a
// power cut: n = 1, 2, 3, ... to the end. Every call must return a correct result or an error. A retry or a rollback must end
// with the bits of an undisturbed run. The next engine that opens the files must find a whole step.
//
// By default one in 6 to 13 of the places is tried, plus some flushes, at different offsets for each kind. ZOFF_TEST_FULL=1
// tries all places.
#include "drive_fault.h"
#include "small_engine.h"
#include "zoff_test.h"

#include <algorithm>
#include <math.h>
#include <string.h>
#include <unistd.h>

extern "C" {
#include "accel.h"
}

using namespace zoff_test;

namespace
{
enum route { ALONE, RESIDENT, TWO_FOLDERS, OWNED, DEVICE, DEVICE_SHARE, DEVICE_KEEPS, TEMPORARY, WHOLE_MASTERS };

struct kind {
    const char *name;
    route way;
    drive_fault_kind fault;
};

struct shape {
    size_t count;
    zoff_dtype dtype;
};
const shape SHAPES[] = {{5000, ZOFF_BF16}, {1900, ZOFF_F32}, {700, ZOFF_BF16}};
enum { TENSORS = 3, OPERATIONS = 8 };

// All that a trainer can see: the count of steps, all states, all weights.
struct snapshot {
    int64_t t = -1;
    std::vector<float> states;
    std::vector<char> weights;
    bool operator==(const snapshot &o) const { return t == o.t && same_states(o) && weights == o.weights; }
    bool same_states(const snapshot &o) const
    {
        return states.size() == o.states.size() && memcmp(states.data(), o.states.data(), states.size() * sizeof(float)) == 0;
    }
};

class LostWrite : public testing::TestWithParam<kind>
{
  protected:
    LostWrite()
    {
        for (int i = 0; i < TENSORS; i++) {
            values[i].resize(SHAPES[i].count * size(i));
            grads[i].resize(SHAPES[i].count * size(i));
        }
        if (on_device()) {
            EXPECT_ZOFF_OK(zoff_accel_open("emulated", 0, &accelerator));
            real = accelerator->ops;
            dawdling = *real;
            dawdling.copy = copy_slowly;
            accelerator->ops = &dawdling;
        }
    }
    ~LostWrite() override
    {
        e.reset();
        if (accelerator)
            accelerator->ops = real;
        zoff_accel_close(accelerator);
        zoff_log_set(nullptr, nullptr);
    }

    // A slow copy: the engine waits for it while files are written.
    static zoff_status copy_slowly(zoff_accel *accel, void *stream, void *dst, const void *src, size_t bytes)
    {
        (void)real->streams.call(
            accel, stream, [](void *) { usleep(1000); }, nullptr);
        return real->copy(accel, stream, dst, src, bytes);
    }
    inline static const zoff_accel_ops *real = nullptr;
    inline static zoff_accel_ops dawdling = {};

    static size_t size(int i) { return SHAPES[i].dtype == ZOFF_F32 ? 4 : 2; }
    bool on_device() const { return GetParam().way >= DEVICE && GetParam().way <= DEVICE_KEEPS; }
    bool persists() const { return GetParam().way < DEVICE_KEEPS; }
    std::string moments() const
    {
        const route way = GetParam().way;
        const bool is_bf16 = way == RESIDENT || way == OWNED || way == DEVICE || way == TEMPORARY;
        return is_bf16 ? "bf16" : way == TWO_FOLDERS ? "q8" : way == DEVICE_SHARE ? "m8v16" : "fp32";
    }
    bool owned(int i) const { return GetParam().way == OWNED && i != 2; }

    static void put(char *base, zoff_dtype dtype, size_t k, float f)
    {
        uint32_t bits;
        memcpy(&bits, &f, 4);
        const uint16_t half = (uint16_t)(bits >> 16);
        if (dtype == ZOFF_F32)
            memcpy(base + 4 * k, &f, 4);
        else
            memcpy(base + 2 * k, &half, 2);
    }

    // The weights with which every process of this program starts.
    void first_weights()
    {
        for (int i = 0; i < TENSORS; i++) {
            for (size_t k = 0; k < SHAPES[i].count; k++)
                put(values[i].data(), SHAPES[i].dtype, k, (float)((k * 7 + (size_t)i) % 101) / 64 - 0.5f);
        }
    }

    std::string configuration() const
    {
        const std::string folder = "\"nvme_path\": ";
        std::string where = "\"" + folders[0].path + "\"";
        if (GetParam().way == TWO_FOLDERS)
            where = "[" + where + ", \"" + folders[1].path + "\"]";
        std::string text = "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0, "
                           "\"zero_optimization\": {\"stage\": ";
        text += GetParam().way == OWNED
                    ? "3, \"stage3_param_persistence_threshold\": 1, \"offload_param\": {\"device\": \"nvme\", "
                      "\"buffer_count\": 2, \"max_in_cpu\": 0, " +
                          folder + where + "}"
                    : "1";
        text += ", \"offload_optimizer\": {\"device\": \"nvme\", \"buffer_count\": 2, " + folder + where;
        text += GetParam().way == DEVICE_KEEPS || GetParam().way == DEVICE_SHARE ? ", \"ratio\": 0.5}}" : "}}";
        text += std::string(", \"zoff\": {\"io_backend\": \"posix\", \"direct_io\": \"off\", \"persist\": ") +
                (persists() ? "true" : "false") + ", \"master\": \"" + (GetParam().way == WHOLE_MASTERS ? "fp32" : "auto") +
                "\", \"moments\": \"" + moments() + "\"}}";
        return text;
    }

    zoff_status make(uint64_t host_bytes)
    {
        const std::string text = configuration();
        zoff_engine_opts opts = {};
        opts.chunk_elements = 1536;
        opts.host_bytes = host_bytes;
        opts.threads = 1;
        opts.accel = accelerator;
        e = make_engine(text, opts);
        for (int i = 0; i < TENSORS; i++) {
            zoff_param_desc d = {};
            d.struct_size = sizeof d;
            d.value = values[i].data();
            d.grad = grads[i].data();
            d.count = SHAPES[i].count;
            d.dtype = SHAPES[i].dtype;
            d.engine_owned = owned(i);
            EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        return ZOFF_OK;
    }

    zoff_status open()
    {
        first_weights();
        EXPECT_ZOFF_OK(make(0));
        if (GetParam().way == RESIDENT) {
            zoff_plan_info plan = {};
            plan.struct_size = sizeof plan;
            EXPECT_ZOFF_OK(zoff_engine_plan(e.get(), &plan));
            EXPECT_ZOFF_OK(make(plan.chunk_bytes * (plan.slots + 3)));
        }
        return zoff_engine_seal(e.get());
    }

    zoff_status look(snapshot *out)
    {
        *out = snapshot();
        zoff_status status = zoff_step_count(e.get(), &out->t);
        for (int i = 0; i < TENSORS && status == ZOFF_OK; i++) {
            for (int state = 0; state < 3 && status == ZOFF_OK; state++) {
                const size_t at = out->states.size();
                out->states.resize(at + SHAPES[i].count);
                status = zoff_state_read(e.get(), (zoff_param)i, (zoff_state_kind)state, 0, SHAPES[i].count, &out->states[at]);
            }
            const size_t at = out->weights.size();
            out->weights.resize(at + values[i].size());
            if (status == ZOFF_OK && owned(i))
                status = zoff_param_read(e.get(), (zoff_param)i, 0, SHAPES[i].count, &out->weights[at]);
            else
                memcpy(&out->weights[at], values[i].data(), values[i].size());
        }
        return status;
    }

    // As a trainer that begins its forward pass before the step is over. An error is one of the step, which tells it again.
    void wait_for_weights(int number)
    {
        zoff_status first = ZOFF_OK;
        std::string words;
        for (int i = 0; i < TENSORS && number % 2 == 0; i++) {
            const zoff_status status = owned(i) ? ZOFF_OK : zoff_param_wait(e.get(), (zoff_param)i, 0, nullptr);
            if (first < 0 && !owned(i)) {
                EXPECT_EQ(first, status);
                EXPECT_EQ(words, zoff_last_error());
            }
            if (first == ZOFF_OK && status < 0) {
                first = status;
                words = zoff_last_error();
            }
        }
    }

    // Take a step; some tensors have no gradient in some steps. If `insists`, a failed step is finished, or undone and taken
    // again.
    zoff_status step(int number, bool insists)
    {
        zoff_step_info info = {};
        info.struct_size = sizeof info;
        float scale = 1;
        for (int tries = 0;; tries++) {
            zoff_status status = ZOFF_OK;
            for (int i = 0; i < TENSORS; i++) {
                for (size_t k = 0; k < SHAPES[i].count; k++)
                    put(grads[i].data(), SHAPES[i].dtype, k,
                        scale * sinf((float)(k + 31 * (size_t)i) * 0.1f * (float)(number + 1)));
                if (status == ZOFF_OK && (i != 1 || number % 2))
                    status = zoff_grad_ready(e.get(), (zoff_param)i, 0, nullptr);
            }
            zoff_step_args args = {};
            args.struct_size = sizeof args;
            args.flags = ZOFF_STEP_ZERO_GRADS;
            if (status == ZOFF_OK && (status = zoff_step_begin(e.get(), &args)) == ZOFF_OK) {
                wait_for_weights(number);
                status = zoff_step_wait(e.get(), &info);
            }
            if (status == ZOFF_OK || !insists || tries == 5)
                return status;
            errors++;
            bool dropped = false;
            for (int more = 0; status < 0 && more < 6; more++) {
                if (info.outcome == ZOFF_OUTCOME_TORN && (!persists() || (places + more) % 2 == 0)) {
                    status = zoff_step_retry(e.get(), &info);
                } else if (zoff_grads_drop(e.get()) == ZOFF_OK) {
                    dropped = true;
                    break;
                }
            }
            if (!dropped)
                return status;
            /* Use other gradients now: the revoked record must not match the chunks written from here on. */
            if (GetParam().fault == DRIVE_DIES) {
                scale = 1.5f;
                is_another = true;
            }
        }
    }

    // Do one operation of the test. `insists`: repeat it while it fails.
    zoff_status operate(int number, bool insists)
    {
        zoff_status status = ZOFF_OK;
        std::vector<float> window(2500);
        for (size_t k = 0; k < window.size(); k++)
            window[k] = (float)(k % 17) / 8;
        for (int tries = 0; tries < 6; tries++) {
            switch (number) {
            case 0:
            case 1:
            case 4:
            case 7:
                return step(number, insists);
            case 2: // several chunks, and part of the last one; in 8 bits whole blocks
                status = moments() == "q8" || moments() == "m8v16"
                             ? zoff_state_write(e.get(), 0, ZOFF_STATE_M, 1024, 2048, window.data())
                             : zoff_state_write(e.get(), 0, ZOFF_STATE_M, 100, window.size(), window.data());
                break;
            case 3:
                status = zoff_step_count_set(e.get(), 40);
                break;
            case 5:
                status = zoff_params_pull(e.get());
                break;
            case 6:
                status = zoff_params_push(e.get());
                break;
            default:
                break;
            }
            if (status == ZOFF_OK || !insists)
                return status;
            errors++;
            /* The drive cannot repeat a write that it has lost. Roll back to the last record and repeat the operations since.
             */
            if (tries == 2 && persists() && zoff_grads_drop(e.get()) == ZOFF_OK && number == 3)
                (void)operate(2, true);
        }
        return status;
    }

    // The undisturbed run: records what can be seen before each operation and in the end.
    void undisturbed()
    {
        drive calm;
        ASSERT_ZOFF_OK(open());
        for (int i = 0; i < OPERATIONS; i++) {
            ASSERT_ZOFF_OK(look(&seen[i]));
            ASSERT_ZOFF_OK(operate(i, false));
        }
        ASSERT_ZOFF_OK(look(&seen[OPERATIONS]));
        e.reset();
        clean();
        calm.arm(DRIVE_WORKS, 0, 0);
        ASSERT_ZOFF_OK(open());
        for (int i = 0; i < OPERATIONS; i++)
            ASSERT_ZOFF_OK(operate(i, false));
        length = calm.calls();
        for (int n = 1; n <= length; n++) {
            if (calm.was_flush(n))
                flushes.push_back(n);
        }
        e.reset();
        clean();
    }

    void clean()
    {
        for (auto &folder : folders) {
            std::vector<std::filesystem::path> files;
            for (const auto &entry : std::filesystem::directory_iterator(folder.path)) {
                if (entry.path().filename().string().rfind("zoff-", 0) == 0)
                    files.push_back(entry);
            }
            for (const auto &file : files)
                ASSERT_TRUE(std::filesystem::remove(file)) << file;
        }
    }

    // After reopening: the last operation of `least` to `most` whose "before" equals the state found. -1: there is none.
    int where(int least, int most)
    {
        snapshot found;
        if (zoff_params_push(e.get()) < 0 || look(&found) < 0)
            return -1;
        for (int i = std::min<int>(most, OPERATIONS); i >= std::max(least, 0); i--) {
            if (found.t == seen[i].t && found.same_states(seen[i]))
                return i;
        }
        return -1;
    }

    // The earliest state that may be found if operation `done` was the last one that started. A window's changes are durable
    // with the step count, or earlier.
    static int least(int done) { return done == 3 ? 2 : done; }

    // Do the operations from `from` to the end without faults; the result must be that of the undisturbed run.
    void live_on(int from)
    {
        snapshot end;
        for (int i = from; i < OPERATIONS; i++)
            ASSERT_ZOFF_OK(operate(i, false)) << "operation " << i;
        ASSERT_ZOFF_OK(look(&end));
        EXPECT_TRUE(end == seen[OPERATIONS]);
    }

    bool looks_well()
    {
        snapshot found;
        return look(&found) == ZOFF_OK;
    }

    // After an error was handled the bits must be those of the undisturbed run, also after a later power cut.
    void after_an_error(drive &d, drive_loss how, int n, zoff_status status, int done)
    {
        d.revive(); // writes that are not on the drive by now never get there
        snapshot end;
        if (status < 0 && persists() && done >= 0) { // the drive has lost writes that cannot be repeated: only a rollback is
                                                     // possible
            unfinished++;
            EXPECT_NE(std::string(zoff_last_error()).find("flush"), std::string::npos) << zoff_last_error();
            e.reset();
            ASSERT_ZOFF_OK(open());
            const int at = where(least(done), done + 1);
            ASSERT_NE(-1, at) << "no whole step: " << zoff_last_error();
            ASSERT_NO_FATAL_FAILURE(live_on(at));
        } else {
            ASSERT_ZOFF_OK(status) << "operation " << done;
            ASSERT_ZOFF_OK(look(&end));
            ASSERT_TRUE(end == seen[OPERATIONS]);
        }
        e.reset();
        if (!persists())
            return;
        d.lose(how, (unsigned)n);
        ASSERT_ZOFF_OK(open());
        EXPECT_EQ((int)OPERATIONS, where(OPERATIONS, OPERATIONS)) << zoff_last_error();
    }

    // After a power cut the files must hold a whole step, and no step that had returned may be lost.
    void after_a_cut(drive &d, drive_loss how, int n, int done)
    {
        e.reset();
        d.lose(how, (unsigned)n);
        d.revive();
        ASSERT_ZOFF_OK(open());
        if (is_another) { // a step that was dropped and taken with other gradients: checked by its checksums only
            ASSERT_ZOFF_OK(zoff_params_push(e.get()));
            ASSERT_TRUE(looks_well()) << zoff_last_error();
            return;
        }
        const int at = where(least(done), done + 1);
        ASSERT_NE(-1, at) << "no whole step, cut in operation " << done << ": " << zoff_last_error();
        ASSERT_NO_FATAL_FAILURE(live_on(at));
    }

    // A drive that loses writes silently: the engine must find a whole step or report an error, never a mix of steps.
    void after_a_lie(drive &d, drive_loss how, int n)
    {
        e.reset();
        if (!persists())
            return;
        d.lose(how, (unsigned)n);
        d.revive();
        if (open() == ZOFF_OK && where(0, OPERATIONS) >= 0)
            return;
        refused++;
        EXPECT_TRUE(!e || zoff_params_push(e.get()) < 0 || !looks_well()) << "a mix of steps";
    }

    static bool in_full() { return getenv("ZOFF_TEST_FULL") != nullptr; }
    // AddressSanitizer makes each run ten times as long. A third of the places is enough for it.
    static int stride(int wanted) { return in_full() ? 1 : wanted * IS_SLOW; }
#if defined(ZOFF_TEST_SANITIZED_ADDRESS)
    enum {IS_SLOW = 3};
#else
    enum { IS_SLOW = 1 };
#endif

    // The kinds of loss at the nth place, each with a seed for the drive's other choices.
    static std::vector<std::pair<drive_loss, unsigned>> losses_of(int n, int step_of, bool is_flush)
    {
        std::vector<std::pair<drive_loss, unsigned>> all;
        const bool ends = GetParam().fault == DRIVE_IS_CUT || GetParam().fault == DRIVE_DIES;
        for (int how = 0; how < DRIVE_LOSSES; how++) {
            if (ends && in_full())
                all.emplace_back((drive_loss)how, (unsigned)(n + how));
        }
        if (all.empty())
            all.emplace_back((drive_loss)(n / step_of % DRIVE_LOSSES), (unsigned)n);
        // The flush of a record fails, but the record is on the drive. The engine must revoke it, and flush that, before it
        // overwrites anything that the record names. The power fails at each of the later calls, and the last writes survive.
        for (unsigned later = 0; GetParam().fault == DRIVE_DIES && GetParam().way == ALONE && is_flush && later < 8; later++)
            all.emplace_back(LOSE_OLD, LOSE_NOTHING + DRIVE_LOSSES * later);
        return all;
    }

    scratch_folder folders[2];
    std::vector<char> values[TENSORS], grads[TENSORS];
    zoff_accel *accelerator = nullptr;
    engine e;
    snapshot seen[OPERATIONS + 1];
    int length = 0; // length of the undisturbed run, in writes and flushes
    std::vector<int> flushes;
    bool is_another = false; // a step was taken with other gradients than in the undisturbed run
    int places = 0, errors = 0, refused = 0, unfinished = 0;
};

std::vector<kind> kinds()
{
    static const char *const WAYS[] = {"alone",        "resident",     "two_folders", "owned",        "device",
                                       "device_share", "device_keeps", "temporary",   "whole_masters"};
    static const char *const FAULTS[] = {"works", "fails", "full", "stops", "forgets", "cut", "dies"};
    static std::vector<std::string> names;
    std::vector<kind> all;
    names.reserve(128);
    for (int way = ALONE; way <= WHOLE_MASTERS; way++) {
        for (int fault = DRIVE_FAILS; fault <= DRIVE_DIES; fault++) {
            if (way >= DEVICE_KEEPS && fault >= DRIVE_IS_CUT)
                continue; // temporary files are gone after a power cut
            if ((way == RESIDENT || way == OWNED || way == TWO_FOLDERS) && (fault == DRIVE_IS_FULL || fault == DRIVE_STOPS))
                continue; // the case is the same as ALONE
            names.push_back(std::string(WAYS[way]) + "_" + FAULTS[fault]);
            all.push_back({names.back().c_str(), (route)way, (drive_fault_kind)fault});
        }
    }
    return all;
}
INSTANTIATE_TEST_SUITE_P(Kinds, LostWrite, testing::ValuesIn(kinds()), [](const auto &p) { return std::string(p.param.name); });

void quiet(zoff_log_level, const char *, const char *, void *) {}

TEST_P(LostWrite, AnyPlace)
{
    const drive_fault_kind fault = GetParam().fault;
    zoff_log_set(quiet, nullptr); // swap_keep_test.cc checks the log lines about damage
    ASSERT_NO_FATAL_FAILURE(undisturbed());
    const bool ends = fault == DRIVE_IS_CUT || fault == DRIVE_DIES;
    const int step_of = stride(ends ? 6 : 13), phase = 1 + (int)GetParam().way % step_of;
    for (int n = 1; n <= length && !HasFatalFailure(); n++) {
        const bool is_flush = std::count(flushes.begin(), flushes.end(), n);
        const bool tries_flush = IS_SLOW == 1 && (GetParam().way == ALONE || GetParam().way == DEVICE);
        if (n % step_of != phase % step_of && !(is_flush && tries_flush))
            continue;
        SCOPED_TRACE("place " + std::to_string(n) + " of " + std::to_string(length));
        for (const auto &[how, seed] : losses_of(n, step_of, is_flush && tries_flush)) {
            drive d;
            SCOPED_TRACE("loss " + std::to_string(how) + ", seed " + std::to_string(seed));
            int done = -1; // operations that have returned
            is_another = false;
            places++;
            d.arm(fault, n, seed);
            zoff_status status = open();
            if (status < 0 && !d.is_dead()) { // a failed operation changes all or nothing, so repeating it completes it
                errors++;
                status = zoff_engine_seal(e.get());
                ASSERT_TRUE(status == ZOFF_OK || d.is_dead()) << zoff_last_error();
            }
            while (status == ZOFF_OK && done + 1 < OPERATIONS && !d.is_dead()) {
                done++;
                status = operate(done, fault != DRIVE_IS_CUT && fault != DRIVE_FORGETS);
            }
            if (d.is_dead() || is_another)
                ASSERT_NO_FATAL_FAILURE(after_a_cut(d, how, n, done));
            else if (fault == DRIVE_FORGETS)
                ASSERT_NO_FATAL_FAILURE(after_a_lie(d, how, n));
            else
                ASSERT_NO_FATAL_FAILURE(after_an_error(d, how, n, status, done));
            e.reset();
            ASSERT_NO_FATAL_FAILURE(clean());
        }
    }
    RecordProperty("places", places);
    EXPECT_EQ(0, unfinished) << "an operation could be neither finished nor undone";
    printf("%s: %d faults placed in a life of %d writes and flushes, %d calls failed, %d times refused\n", GetParam().name,
           places, length, errors, refused);
}
} // namespace
