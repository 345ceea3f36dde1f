/* SPDX-License-Identifier: Apache-2.0 */
/* plan_ranks.c: the traffic of a rank in a step, and its time over links of given rates, by each route of gradients. The
 * numbers of bytes and messages are the engine's own plan; the seconds are a model of the links. */
#include "plan_ranks.h"

#include "verbs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct route {
    const char *name, *sums, *between; /* keys; NULL: as they are in the file */
    bool is_flat;
} route;

static const route ROUTES[] = {{.name = "flat", .is_flat = true},
                               {.name = "levels", .sums = "exact", .between = "micro_step"},
                               {.name = "levels, once a step", .sums = "exact", .between = "step"}};
enum { ROUTE_COUNT = sizeof ROUTES / sizeof ROUTES[0] };

static const route *taken(const zoff_plan_info *info)
{
    return &ROUTES[info->sum_ranks <= 1 ? 0 : info->sums_once ? 2 : 1];
}

static double seconds(const plan_links *l, const zoff_plan_traffic *t)
{
    const double between = (double)(t->sent_bytes - t->node_bytes) / (l->inter * 1e9);
    return fmax((double)t->node_bytes / (l->intra * 1e9), between) + (double)(t->notes + t->messages) * l->message_us * 1e-6;
}

static zoff_plan_traffic sum_of(const zoff_plan_info *info)
{
    const zoff_plan_traffic *all[] = {&info->reduce, &info->report, &info->gather, &info->fetch};
    zoff_plan_traffic sum = {.notes = 0};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        sum.sent_bytes += all[i]->sent_bytes;
        sum.node_bytes += all[i]->node_bytes;
        sum.notes += all[i]->notes;
        sum.messages += all[i]->messages;
    }
    return sum;
}

static double total(const plan_links *l, const zoff_plan_info *info)
{
    return seconds(l, &info->reduce) + seconds(l, &info->report) + seconds(l, &info->gather) + seconds(l, &info->fetch);
}

static void print_row(const char *what, const zoff_plan_traffic *t, double s)
{
    printf("%-34s %9" PRIu64 " %9" PRIu64 " %10.3f %10.3f %10.4f\n", what, t->notes, t->messages, (double)t->node_bytes * 1e-9,
           (double)(t->sent_bytes - t->node_bytes) * 1e-9, s);
}

static const char *why(const plan_links *l, unsigned ranks, const zoff_plan_info *info)
{
    if (info->sums_once)
        return "exact sums of a node stay on their rank until the last micro-batch, because there is room for them";
    if (info->sum_ranks > 1)
        return "exact sums of a node take fewer bytes between nodes than its gradients";
    if (ranks == l->node_ranks || l->node_ranks == 1)
        return "there are no nodes of several ranks beside each other";
    return info->exact_sums ? "sums of a node would save no byte between nodes, or zoff.node_ranks is 1"
                            : "only \"exact\" sums take two levels, and zoff.reduce_scatter is another";
}

/* Plan one route.  @return whether it is one of its own */
static int plan_route(const route *r, unsigned ranks, unsigned node_ranks, zoff_config *config, plan_of_ranks plan,
                      const void *model, zoff_plan_info *info, bool *is_own)
{
    char nodes[16];
    snprintf(nodes, sizeof nodes, "%u", r->is_flat ? 1 : node_ranks);
    if (zoff_config_set(config, "zoff.node_ranks", nodes) < 0 ||
        zoff_config_set(config, "zoff.between_nodes", r->between ? r->between : "auto") < 0 ||
        (r->sums && zoff_config_set(config, "zoff.reduce_scatter", r->sums) < 0))
        return library_error();
    const int result = plan(model, ranks, node_ranks, info);
    *is_own = result == EXIT_DONE && taken(info) == r;
    return result;
}

int print_traffic(const plan_links *links, unsigned ranks, const zoff_plan_info *info, zoff_config *config, plan_of_ranks plan,
                  const void *model)
{
    const zoff_plan_traffic sum = sum_of(info);
    printf("\nranks: %u in nodes of %u; of a rank %g GB/s within its node, %g GB/s to others, %g us for a note or message\n",
           ranks, links->node_ranks, links->intra, links->inter, links->message_us);
    printf("%-34s %9s %9s %10s %10s %10s\n", "sent by rank 0 in a step", "notes", "messages", "GB in node", "GB between",
           "seconds");
    print_row("reduce: gradients", &info->reduce, seconds(links, &info->reduce));
    print_row("report: decisions", &info->report, seconds(links, &info->report));
    print_row("gather: new weights", &info->gather, seconds(links, &info->gather));
    print_row("fetch: weights for use, once", &info->fetch, seconds(links, &info->fetch));
    print_row("in all", &sum, total(links, info));
    if (links->compute_seconds > 0)
        printf("%-34s %9.3f s if all of it is hidden behind %g s of the program, %.3f s if none is\n", "a step",
               fmax(links->compute_seconds, total(links, info)), links->compute_seconds,
               links->compute_seconds + total(links, info));
    printf("%-34s %s: %s\n", "route", taken(info)->name, why(links, ranks, info));
    for (unsigned i = 0; i < ROUTE_COUNT; i++) {
        zoff_plan_info other = {.struct_size = sizeof other};
        bool is_own;
        const int result = plan_route(&ROUTES[i], ranks, links->node_ranks, config, plan, model, &other, &is_own);
        if (result != EXIT_DONE)
            return result;
        if (is_own)
            printf("  %-32s %10.4f s  %10.3f GB between nodes, %.3f GiB of DRAM for exchange\n", ROUTES[i].name,
                   total(links, &other), (double)(sum_of(&other).sent_bytes - sum_of(&other).node_bytes) * 1e-9,
                   (double)other.exchange_bytes / (1 << 30));
    }
    return EXIT_DONE;
}

int print_sweep(const plan_links *links, unsigned ranks, zoff_config *config, plan_of_ranks plan, const void *model)
{
    printf("ranks,node_ranks,route,notes,messages,node_bytes,between_bytes,reduce_seconds,report_seconds,gather_seconds,"
           "fetch_seconds,exchange_bytes\n");
    for (unsigned n = 1; n <= ranks; n *= 2) {
        const unsigned node = n < links->node_ranks ? n : links->node_ranks;
        for (unsigned i = 0; n % node == 0 && i < ROUTE_COUNT; i++) {
            zoff_plan_info info = {.struct_size = sizeof info};
            bool is_own;
            const int result = plan_route(&ROUTES[i], n, node, config, plan, model, &info, &is_own);
            if (result != EXIT_DONE)
                return result;
            if (!is_own)
                continue;
            const zoff_plan_traffic sum = sum_of(&info);
            printf("%u,%u,\"%s\",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.6g,%.6g,%.6g,%.6g,%" PRIu64 "\n", n, node,
                   ROUTES[i].name, sum.notes, sum.messages, sum.node_bytes, sum.sent_bytes - sum.node_bytes,
                   seconds(links, &info.reduce), seconds(links, &info.report), seconds(links, &info.gather),
                   seconds(links, &info.fetch), info.exchange_bytes);
        }
    }
    return finish_output();
}
