/* step_no_swapper.c: in the place of step_swapper.c where libaio is not installed: the report says so. */
#include "step_bench.h"

int step_swapper_open(const step_model *m, const char *folder, size_t group_elements, step_book *book, step_states *out)
{
    (void)m;
    (void)folder;
    (void)group_elements;
    (void)out;
    snprintf(book->no_rivals, sizeof book->no_rivals,
             "built without libaio, which the yardstick is made of: install libaio-dev and configure again");
    return -1;
}
