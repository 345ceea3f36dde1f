/* SPDX-License-Identifier: Apache-2.0 */
// forgotten_wait.cc: one step over a device, with one kind of wait left out. "await": a stream does not wait for another;
// "poll": the host does not wait for a stream; "none": all waits happen. Built with ThreadSanitizer, which must detect the
// difference.
#include "small_engine.h"

using namespace zoff_test;

int main(int count, char **words)
{
    const std::string what = count > 1 ? words[1] : "none";
    test_device device(1);
    trainer t(1);
    t.add(30000, 4, ZOFF_BF16, ZOFF_BF16);
    t.put_on(&device);
    engine e = make_engine(t, config_text(""), 10000, 0, nullptr, device.accel);
    if (!e || zoff_engine_seal(e.get()) < 0)
        return 2;
    device.forgets_await = what == "await";
    device.forgets_poll = what == "poll";
    for (int step = 0; step < 3; step++) {
        for (size_t slice = 4; slice-- > 0;) {
            t.backward(0, slice, 1.0f);
            t.hand_over(e.get(), 0, slice);
        }
        if (zoff_step_begin(e.get(), nullptr) < 0 || zoff_step_wait(e.get(), nullptr) < 0)
            return 3;
    }
    return 0;
}
