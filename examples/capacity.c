/* capacity - how many requests of uneven lengths fit into PIM memory: chunks as tokens come (lazy),
 * or room for the longest context from the start (static). Only counting: no clock is in it.
 */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#define EX_NAME "capacity"
#include "common.h"
#include "lengths.h"
#include "published.h"

enum { RUNS = 200, LOL_WINDOW = 32768 }; /* the most tokens of LoL-PIM's models */

/* Models and lengths of PIMphony's tables I and II, memory as its section VIII-A configures it;
 * weights: 2 bytes a parameter. And the one data set that only LoL-PIM's table 2 has. */
typedef struct workload {
    const char *name;
    int task; /* of lengths.h */
    uint32_t window;
    uint32_t n_layers, n_heads, n_kv_heads;
    uint64_t weights, memory; /* bytes */
    bool apart;               /* not of PIMphony: in no average beside it */
} workload;

#define GB(n) ((uint64_t)(n) << 30)

static const workload WORKLOADS[] = {
    {"7B, QMSum", LENGTHS_QMSUM, 32768, 32, 32, 32, GB(14), GB(128), false},
    {"7B, Musique", LENGTHS_MUSIQUE, 32768, 32, 32, 32, GB(14), GB(128), false},
    {"72B, QMSum", LENGTHS_QMSUM, 32768, 80, 64, 64, GB(134), GB(512), false},
    {"72B, Musique", LENGTHS_MUSIQUE, 32768, 80, 64, 64, GB(134), GB(512), false},
    {"8B GQA, multifieldqa", LENGTHS_MULTIFIELDQA, 131072, 32, 32, 8, GB(15), GB(128), false},
    {"8B GQA, Loogle-SD", LENGTHS_LOOGLE, 131072, 32, 32, 8, GB(15), GB(128), false},
    {"70B GQA, multifieldqa", LENGTHS_MULTIFIELDQA, 131072, 80, 64, 8, GB(131), GB(512), false},
    {"70B GQA, Loogle-SD", LENGTHS_LOOGLE, 131072, 80, 64, 8, GB(131), GB(512), false},
    {"7B, HotpotQA", LENGTHS_HOTPOTQA, 32768, 32, 32, 32, GB(14), GB(128), true},
};

/* A policy's averages over all runs. */
typedef struct outcome {
    double batch;
    double of_reserved; /* bytes of K and V over those set aside for requests */
    double of_memory;   /* the same over all that the weights leave */
} outcome;

/* Requests come until the next one does not fit. */
static outcome fill(const workload *w, const pimattn_plan *plan, bool lazy, uint64_t seed)
{
    uint64_t chunk = (uint64_t)pimattn_plan_chunk_rows(plan) * plan->device.row_bytes *
                     pimhw_config_banks(&plan->device) * plan->unit_channels;
    uint64_t heads = (uint64_t)w->n_layers * w->n_kv_heads, random = seed;
    uint64_t n_chunks = (w->memory - w->weights) / chunk;
    double token_bytes = (double)heads * 2 * plan->shape.head_dim * plan->device.element_bytes;
    outcome o = {0, 0, 0};
    for (int run = 0; run < RUNS; run++) {
        uint64_t used = 0, tokens = 0, n = 0;
        for (;; n++) {
            uint64_t its = lengths_draw(&lengths_tasks[w->task], &random);
            uint64_t wanted = heads * pimattn_plan_chunks(plan, lazy ? its : w->window);
            if (used + wanted > n_chunks) break;
            used += wanted;
            tokens += its;
        }
        o.batch += (double)n / RUNS;
        if (used) o.of_reserved += (double)tokens * token_bytes / (double)(used * chunk) / RUNS;
        o.of_memory += (double)tokens * token_bytes / (double)(n_chunks * chunk) / RUNS;
    }
    return o;
}

/* As LoL-PIM's Fig. 4: a 7B model in 80 GB times n, every context 4096 times n; percent more. */
static double lazy_in_figure_4(const pimattn_plan *plan, uint64_t n)
{
    const workload *w = &WORKLOADS[0];
    uint64_t chunk = (uint64_t)pimattn_plan_chunk_rows(plan) * plan->device.row_bytes *
                     pimhw_config_banks(&plan->device) * plan->unit_channels;
    uint64_t heads = (uint64_t)w->n_layers * w->n_kv_heads;
    uint64_t n_chunks = (GB(80) * n - w->weights) / chunk;
    uint64_t lazy = n_chunks / (heads * pimattn_plan_chunks(plan, 4096 * n));
    uint64_t fixed = n_chunks / (heads * pimattn_plan_chunks(plan, w->window));
    return 100 * ((double)lazy / (double)fixed - 1);
}

int main(int argc, char **argv)
{
    uint32_t seed = 1;
    const ex_option options[] = {
        {.name = "--seed", .value = "N", .number = &seed, .help = "of the lengths; default 1"}};
    ex_options(argc, argv,
               "usage: build/capacity [options]\n"
               "Chunks taken as tokens come, beside room for the longest context.",
               options, EX_COUNT(options), NULL, 0);
    double of_free[2] = {0, 0}, of_all[2] = {0, 0}, most = 0, in_figure_4[4], at_work[2] = {0, 0};
    double low[2] = {100, 100}, high[2] = {0, 0}; /* static: of what weights leave, of all */
    printf("K and V of whole batches in modules of preset aimx, chunks of 1 MiB; %d batches each,\n"
           "seed %" PRIu32 ". Utilisation: K and V over what requests have set aside / over all "
           "that the\nweights leave.\n\n"
           "  %-22s %16s %23s %16s %23s %8s\n",
           (int)RUNS, seed, "workload", "static batch", "utilisation", "lazy batch", "utilisation",
           "batch");
    for (size_t i = 0; i < EX_COUNT(WORKLOADS); i++) {
        const workload *w = &WORKLOADS[i];
        pimattn_shape shape = {.n_layers = w->n_layers,
                               .n_heads = w->n_heads,
                               .n_kv_heads = w->n_kv_heads,
                               .head_dim = 128};
        pimhw_config device;
        pimattn_plan plan;
        pimhw_cause why = {{0}};
        ex_device(&device, "aimx", 0, NULL);
        if (pimattn_plan_init(&plan, &shape, &device, PIMATTN_TCP, 0, false, 1, &why) != PIMATTN_OK)
            ex_die("plan: %s", why.text);
        outcome fixed = fill(w, &plan, false, seed), lazy = fill(w, &plan, true, seed);
        for (int n = 0; n < 4 && i == 0; n++)
            in_figure_4[n] = lazy_in_figure_4(&plan, 1u << n);
        /* a token of K to a bank; of V to as many groups of channels as there are, a column each */
        at_work[0] = (double)plan.unit_channels * pimhw_config_banks(&device);
        at_work[1] = (double)plan.v_groups * pimhw_config_lanes(&device);
        double more = 100 * (lazy.batch / fixed.batch - 1);
        printf("  %-22s %16.2f %13.1f%% / %5.1f%% %16.2f %13.1f%% / %5.1f%% %+7.0f%%\n", w->name,
               fixed.batch, 100 * fixed.of_reserved, 100 * fixed.of_memory, lazy.batch,
               100 * lazy.of_reserved, 100 * lazy.of_memory, more);
        double left = (double)(w->memory - w->weights) / (double)w->memory;
        double its[2] = {100 * fixed.of_memory, 100 * fixed.of_memory * left};
        for (int k = 0; k < 2 && !w->apart; k++) {
            low[k] = fmin(low[k], its[k]);
            high[k] = fmax(high[k], its[k]);
        }
        for (int policy = 0; policy < 2 && !w->apart; policy++) {
            double mean =
                100 * (policy ? lazy : fixed).of_memory / (double)(EX_COUNT(WORKLOADS) - 1);
            of_free[policy] += mean;
            of_all[policy] += mean * left;
        }
        if (w->window == LOL_WINDOW) most = fmax(most, more);
    }
    printf("\n");
    for (int policy = 0; policy < 2; policy++) {
        const published *p = published_find(policy ? "ph.f19.dpa" : "ph.f19.static.avg");
        printf("  of what the weights leave; and of all memory, of which the paper may speak:\n");
        published_print(stdout, p, of_free[policy]);
        published_print(stdout, p, of_all[policy]);
        for (int k = 0; k < 2 && policy == 0; k++) {
            published_print(stdout, published_find("ph.f19.static.min"), low[k]);
            published_print(stdout, published_find("ph.f19.static.max"), high[k]);
        }
    }
    printf("  of windows of %d, as LoL-PIM's models have, in the memory above:\n", (int)LOL_WINDOW);
    published_print(stdout, published_find("lol.f4.batch"), most);
    printf(
        "  the same in 80 GB times N at contexts of 4096 times N, as its Fig. 4; N 1, 2, 4, 8:\n");
    for (int i = 0; i < 4; i++)
        published_print(stdout, published_find("lol.f4.batch"), in_figure_4[i]);
    printf("  one head of 128 dims over all channels of a module:\n");
    published_print(stdout, published_find("ph.tcp.qk"), at_work[0]);
    published_print(stdout, published_find("ph.tcp.sv"), at_work[1]);
    return ex_done();
}
