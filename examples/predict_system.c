/* predict_system - what LoL-PIM and PIMphony print of whole systems of PIM modules beside ours.
 * What is counted and what not stands in system_model.h, what we chose is printed below the
 * figures. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#define EX_NAME "predict_system"
#include "common.h"
#include "published.h"
#include "system_model.h"

enum { MOST_RECORDS = 256, MOST_FIGURES = 48, NODE_MODULES = 8 };

static const double NODE_BPS = 10e9; /* [LOL 8.1] */

/* A row of output: a cut of a model on modules. */
typedef struct record {
    const char *of, *llm, *task, *way;
    uint32_t n_modules;
    sys_result result;
} record;

typedef struct figure {
    const published *of;
    double ours;
    const char *setting;
} figure;

/* Everything computed, before anything is printed. */
typedef struct results {
    record records[MOST_RECORDS];
    figure figures[MOST_FIGURES];
    size_t n_records, n_figures;
    uint64_t seed;
    bool refresh;
} results;

static void add_figure(results *all, const char *id, double ours, const char *setting)
{
    const published *of = published_find(id);
    if (of == NULL) ex_die("no published figure %s", id);
    if (all->n_figures == MOST_FIGURES) ex_die("too many figures");
    all->figures[all->n_figures++] = (figure){of, ours, setting};
}

/* What is run: one question to the model. */
typedef struct question {
    const char *of;
    int llm;
    const lengths *lengths;
    uint64_t window;
    sys_machine machine;
} question;

enum { BEST = 0, MOST_TP, EVERY };

/* Runs all cuts and records the one asked for, or every one: the best. A result of zeros: no cut
 * has room for a request. */
static sys_result answer(results *all, const question *q, const sys_way *way, int which)
{
    sys_cuts cuts = sys_all_cuts(&sys_llms[q->llm], &q->machine, way, q->lengths, q->window,
                                 all->seed, all->refresh);
    size_t chosen = which == MOST_TP && cuts.n > 0 ? cuts.n - 1 : cuts.best;
    for (size_t i = 0; i < cuts.n; i++) {
        if (which != EVERY && i != chosen) continue;
        if (all->n_records == MOST_RECORDS) ex_die("too many records");
        all->records[all->n_records++] =
            (record){q->of,     sys_llms[q->llm].name, q->lengths->name,
                     way->name, q->machine.n_modules,  cuts.of[i]};
    }
    return cuts.of[chosen];
}

/* --- LoL-PIM ------------------------------------------------------------------------------- */

/* The baseline has heads on channels and takes as much tensor parallelism as there are heads: the
 * paper says that such systems prefer it [LOL 4.1]. */
enum { LOL_PIM, LOL_1, LOL_12, LOL_123, LOL_SINGLE, LOL_BEST };

static const sys_way LOL_WAYS[] = {
    {"PIM", PIMATTN_HFP, PIMATTN_BY_KV_HEAD, PIMHW_STATIC_GAPS, false, false, false},
    {"1", PIMATTN_TCP, PIMATTN_BY_KV_HEAD, PIMHW_STATIC_GAPS, false, false, false},
    {"1 2", PIMATTN_TCP, PIMATTN_BY_KV_HEAD, PIMHW_STATIC_GAPS, false, true, false},
    {"1 2 3", PIMATTN_TCP, PIMATTN_BY_KV_HEAD, PIMHW_PING_PONG, true, true, false},
    {"1 2 3 single", PIMATTN_TCP, PIMATTN_BY_KV_HEAD, PIMHW_PING_PONG, true, true, true},
    {"PIM best cut", PIMATTN_HFP, PIMATTN_BY_KV_HEAD, PIMHW_STATIC_GAPS, false, false, false}};

enum { LOL_WINDOW = 32768 };

static question lol_question(const char *of, int llm, int task, uint32_t nodes)
{
    const sys_machine machine = {"aimx", NULL, nodes * NODE_MODULES, NODE_MODULES, NODE_BPS, 0};
    return (question){of, llm, &lengths_tasks[task], LOL_WINDOW, machine};
}

static void lol_table_8(results *all)
{
    static const uint32_t nodes[] = {4, 5, 16};
    static const char *const ids[][2][3] = {
        {{"lol.t8.7b.base", "lol.t8.7b.12", "lol.t8.7b.123"},
         {"lol.t8.7b.util.base", "lol.t8.7b.util.12", "lol.t8.7b.util.123"}},
        {{"lol.t8.14b.base", "lol.t8.14b.12", "lol.t8.14b.123"},
         {"lol.t8.14b.util.base", "lol.t8.14b.util.12", "lol.t8.14b.util.123"}},
        {{"lol.t8.72b.base", "lol.t8.72b.12", "lol.t8.72b.123"},
         {"lol.t8.72b.util.base", "lol.t8.72b.util.12", "lol.t8.72b.util.123"}}};
    static const int ways[] = {LOL_PIM, LOL_12, LOL_123};
    sys_result r[3];
    for (int llm = SYS_QWEN_7B; llm <= SYS_QWEN_72B; llm++) {
        question q = lol_question("LoL-PIM Table 8", llm, LENGTHS_MUSIQUE, nodes[llm]);
        for (int w = 0; w < 3; w++) {
            const char *cut = w ? "best cut" : "most tensor parallelism";
            r[w] = answer(all, &q, &LOL_WAYS[ways[w]], w ? BEST : MOST_TP);
            add_figure(all, ids[llm][0][w], r[w].tokens_s, cut);
            add_figure(all, ids[llm][1][w], 100 * r[w].utilisation, cut);
        }
        answer(all, &q, &LOL_WAYS[LOL_SINGLE], BEST); /* these two beside no figure */
        answer(all, &q, &LOL_WAYS[LOL_BEST], BEST);
    }
    add_figure(all, "lol.f12", 100 * (1 - r[0].tokens_s / r[2].tokens_s),
               "by throughput, 72B, 16 nodes, Musique; less by the paper's own Table 8");
}

/* GPUs of 64 GB and 4096 GB/s, one a node: rooflines of weights and of K and V [LOL Table 7]. */
static double lol_gpu_tokens_s(const sys_llm *m, const lengths *of, uint32_t nodes)
{
    const double flops = 312e12 * nodes, bandwidth = 4096e9 * nodes;
    double kv = (double)m->n_layers * 2 * m->n_kv_heads * SYS_HEAD_DIM * SYS_ELEMENT * of->mean;
    double weights = m->n_layers * sys_weights(m);
    double room = 64 * 1073741824.0 * nodes - SYS_ELEMENT * (weights + 2.0 * m->vocab * m->d_model);
    double batch = floor(room / kv);
    double fc = fmax(2 * weights * batch / flops, SYS_ELEMENT * weights / bandwidth);
    return batch < 1 ? 0 : batch / (fc + batch * kv / bandwidth);
}

/* Means over the three tasks; of the 72B model the largest ratios over 256 to 1024 GB. */
static void lol_scaling(results *all)
{
    static const int llms[] = {SYS_QWEN_7B, SYS_QWEN_72B};
    for (int i = 0; i < 2; i++) {
        double gpu_x = 0, pim_x = 0;
        for (uint32_t nodes = i ? 4 : 16; nodes <= 16; nodes *= 2) {
            double gpu = 0, pim = 0, lol = 0;
            for (int task = LENGTHS_QMSUM; task <= LENGTHS_MUSIQUE; task++) {
                question q =
                    lol_question(i ? "LoL-PIM Fig. 10" : "LoL-PIM Fig. 9", llms[i], task, nodes);
                pim += answer(all, &q, &LOL_WAYS[LOL_PIM], MOST_TP).tokens_s;
                lol += answer(all, &q, &LOL_WAYS[LOL_123], BEST).tokens_s;
                gpu += lol_gpu_tokens_s(&sys_llms[llms[i]], q.lengths, nodes);
            }
            gpu_x = fmax(gpu_x, lol / gpu);
            pim_x = fmax(pim_x, lol / pim);
        }
        const char *setting = i ? "largest of 256, 512, 1024 GB, mean of three tasks"
                                : "1024 GB, mean of three tasks";
        add_figure(all, i ? "lol.f10.72b.gpu" : "lol.f9.7b.gpu", gpu_x, setting);
        add_figure(all, i ? "lol.f10.72b.pim" : "lol.f9.7b.pim", pim_x, setting);
    }
}

/* All cuts of 4 nodes, room for the window and chunks as tokens come. */
static void lol_figure_11(results *all)
{
    question q = lol_question("LoL-PIM Fig. 11", SYS_QWEN_7B, LENGTHS_MUSIQUE, 4);
    size_t first = all->n_records, n;
    answer(all, &q, &LOL_WAYS[LOL_1], EVERY);
    n = all->n_records - first;
    answer(all, &q, &LOL_WAYS[LOL_12], EVERY);
    double gain = 0, best = 0, worst = HUGE_VAL;
    for (size_t i = first; i < first + n; i++) {
        double fixed = all->records[i].result.tokens_s, lazy = all->records[i + n].result.tokens_s;
        gain = fmax(gain, lazy / fixed);
        best = fmax(best, lazy);
        worst = fmin(worst, lazy);
    }
    add_figure(all, "lol.f11.dpa", gain, "4 nodes, the same cut");
    add_figure(all, "lol.f11.tppp", best / worst, "4 nodes, lazy, all cuts");
}

/* --- PIMphony ------------------------------------------------------------------------------ */

/* The baseline gives (request, query head) pairs to channels. For that each needs its KV head's
 * rows in its channel; they are counted once, for with copies there is no room for 1 M tokens, and
 * by KV head a request keeps one channel of a 70B model's module at work: far from what is
 * published. */
enum { PHONY_BASE, PHONY_TCP, PHONY_DCS, PHONY_DPA, N_PHONY };

static const sys_way PHONY_WAYS[N_PHONY] = {
    {"base", PIMATTN_HFP, PIMATTN_BY_QUERY_HEAD, PIMHW_STATIC_GAPS, false, false, false},
    {"TCP", PIMATTN_TCP, PIMATTN_BY_KV_HEAD, PIMHW_STATIC_GAPS, false, false, false},
    {"TCP DCS", PIMATTN_TCP, PIMATTN_BY_KV_HEAD, PIMHW_DCS, false, false, false},
    {"TCP DCS DPA", PIMATTN_TCP, PIMATTN_BY_KV_HEAD, PIMHW_DCS, false, true, false}};

/* CENT: modules of 16 GB; NeuPIMs: of 32 GB with 256 TFLOPS [PHONY Table IV]. All on one switch. */
static question phony_question(const char *of, int llm, const lengths *its, bool xpu, uint32_t gb)
{
    uint32_t n = gb / (xpu ? 32 : 16);
    const sys_machine machine = {xpu ? "neupims" : "cent", NULL, n, n, NODE_BPS, xpu ? 256e12 : 0};
    return (question){of, llm, its, llm >= SYS_LLAMA_8B ? 131072 : 32768, machine};
}

/* Of whole systems and, by energy, of attention: what all techniques give over the baseline. */
typedef struct gains {
    double least, most;         /* tokens a second */
    double faster, less_pJ;     /* most, attention of a token */
    double standby[2], n_cases; /* sums of shares */
} gains;

static double attention_of_token(const sys_result *r)
{
    return r->parts.attention_ns / r->parts.tokens; /* stages work at once */
}

static void take_gain(gains *g, const sys_result *base, const sys_result *full)
{
    double times = full->tokens_s / base->tokens_s;
    g->least = g->n_cases > 0 ? fmin(g->least, times) : times;
    g->most = fmax(g->most, times);
    g->faster = fmax(g->faster, attention_of_token(base) / attention_of_token(full));
    g->less_pJ = fmax(g->less_pJ, base->parts.attention_pJ / base->parts.tokens *
                                      full->parts.tokens / full->parts.attention_pJ);
    g->standby[0] += base->parts.standby_pJ / base->parts.attention_pJ;
    g->standby[1] += full->parts.standby_pJ / full->parts.attention_pJ;
    g->n_cases++;
}

/* Models with or without GQA, two tasks each, in 128 GB the smaller and in 512 the larger one. */
static void phony_gains(results *all, bool xpu, bool gqa, gains *g)
{
    static const int tasks[2][2] = {{LENGTHS_QMSUM, LENGTHS_MUSIQUE},
                                    {LENGTHS_MULTIFIELDQA, LENGTHS_LOOGLE}};
    static const int llms[2][2] = {{SYS_QWEN_7B, SYS_QWEN_72B}, {SYS_LLAMA_8B, SYS_LLAMA_70B}};
    for (int large = 0; large < 2; large++)
        for (int task = 0; task < 2; task++) {
            sys_result r[N_PHONY];
            question q =
                phony_question(xpu ? "PIMphony Fig. 14" : "PIMphony Fig. 13", llms[gqa][large],
                               &lengths_tasks[tasks[gqa][task]], xpu, large ? 512 : 128);
            for (int w = 0; w < N_PHONY; w++)
                r[w] = answer(all, &q, &PHONY_WAYS[w], BEST);
            take_gain(g, &r[PHONY_BASE], &r[PHONY_DPA]);
        }
}

static void phony_throughput(results *all)
{
    gains g[2][2]; /* of CENT and NeuPIMs, without and with GQA */
    memset(g, 0, sizeof g);
    for (int xpu = 0; xpu < 2; xpu++)
        for (int gqa = 0; gqa < 2; gqa++)
            phony_gains(all, xpu, gqa, &g[xpu][gqa]);
    const gains *plain = &g[0][0], *grouped = &g[0][1];
    double n = plain->n_cases + grouped->n_cases;
    add_figure(all, "ph.f13.nogqa.min", fmin(plain->least, g[1][0].least),
               "of eight, four on CENT and four on NeuPIMs");
    add_figure(all, "ph.f13.nogqa.max", fmax(plain->most, g[1][0].most), "of these");
    add_figure(all, "ph.f13.gqa", grouped->most, "of four");
    add_figure(all, "ph.f14.gqa", g[1][1].most, "of four");
    add_figure(all, "ph.f16.bg.base", 100 * (plain->standby[0] + grouped->standby[0]) / n,
               "standby and refresh, mean of eight on CENT");
    add_figure(all, "ph.f16.bg.ours", 100 * (plain->standby[1] + grouped->standby[1]) / n,
               "the same");
    add_figure(all, "ph.f16.red", fmax(plain->less_pJ, grouped->less_pJ), "of eight on CENT");
    add_figure(all, "ph.f16.speed", fmax(plain->faster, grouped->faster), "of eight on CENT");
}

/* 512 GB, ever longer windows, lengths of a mean of half the window and three sigma to its ends. */
static void phony_contexts(results *all)
{
    static const lengths of[] = {{"256 tokens", 128, 256 / 6., 1, 256},
                                 {"1 M tokens", 524288, 1048576 / 6., 1, 1048576}};
    for (int xpu = 0; xpu < 2; xpu++)
        for (int i = xpu; i < 2; i++) {
            question q = phony_question("PIMphony Fig. 17", SYS_LLAMA_8B, &of[i], xpu, 512);
            q.window = (uint64_t)of[i].most;
            sys_result base = answer(all, &q, &PHONY_WAYS[PHONY_BASE], BEST);
            sys_result full = answer(all, &q, &PHONY_WAYS[PHONY_DPA], BEST);
            double times = full.tokens_s / base.tokens_s;
            if (i == 1)
                add_figure(all, xpu ? "ph.f17.neu" : "ph.f17.cent", times, "mean of half a window");
            else
                add_figure(all, "ph.f17.short", times, "CENT, 512 GB, mean of half a window");
            if (i == 1 && !xpu)
                add_figure(all, "ph.f17.centutil", 100 * base.utilisation, "mean of half a window");
        }
}

/* --- Printing ------------------------------------------------------------------------------ */

static void print_records(const results *all)
{
    printf("Techniques are the papers': of LoL-PIM 1 partition by tokens, 2 lazy memory, 3 more "
           "buffers.\n%s\n\n"
           "%-16s %-13s %-12s %-12s %7s %4s %4s %8s %9s %6s %6s %6s %6s\n",
           SYS_LEGEND, "figure", "model", "task", "techniques", "modules", "TP", "PP", "requests",
           "tokens/s", "util", "FC", "attn", "moving");
    for (size_t i = 0; i < all->n_records; i++) {
        const record *r = &all->records[i];
        const sys_parts *p = &r->result.parts;
        double sum = (p->fc_ns + p->attention_ns + p->moving_ns) / 100;
        printf("%-16s %-13s %-12s %-12s %7" PRIu32 " %4" PRIu32 " %4" PRIu32 " %8.1f", r->of,
               r->llm, r->task, r->way, r->n_modules, r->result.tp, r->result.pp, p->tokens);
        if (p->tokens > 0)
            printf(" %9.1f %5.1f%% %5.1f%% %5.1f%% %5.1f%%\n", r->result.tokens_s,
                   100 * r->result.utilisation, p->fc_ns / sum, p->attention_ns / sum,
                   p->moving_ns / sum);
        else
            printf(" no room\n");
    }
}

/* What their utilisation is of: a token needs the layers' matrices and the mean context alone. */
static void print_need(void)
{
    static const struct {
        const char *tokens_s, *utilisation;
        int llm;
        double nodes;
    } of[] = {{"lol.t8.7b.123", "lol.t8.7b.util.123", SYS_QWEN_7B, 4},
              {"lol.t8.14b.123", "lol.t8.14b.util.123", SYS_QWEN_14B, 5},
              {"lol.t8.72b.123", "lol.t8.72b.util.123", SYS_QWEN_72B, 16}};
    const double node_flops = 65.536e12; /* 32 GFLOPS of 16 banks, 16 channels, 8 modules */
    uint64_t tokens = (uint64_t)lengths_tasks[LENGTHS_MUSIQUE].mean;
    for (size_t i = 0; i < EX_COUNT(of); i++) {
        double theirs = published_find(of[i].utilisation)->value / 100 * of[i].nodes * node_flops /
                        published_find(of[i].tokens_s)->value;
        printf("  %s: %.2f GFLOP a token by LoL-PIM's utilisation and throughput, %.2f counted\n",
               sys_llms[of[i].llm].name, theirs * 1e-9,
               2e-9 * sys_macs(&sys_llms[of[i].llm], tokens));
    }
}

static void print_figures(const results *all)
{
    printf("\n");
    for (size_t i = 0; i < all->n_figures; i++) {
        const figure *f = &all->figures[i];
        published_print(stdout, f->of, f->ours);
        printf("%23s%s\n", "", f->setting);
    }
    printf("\n");
    print_need();
    printf("\nRefresh is %s; batches are means of up to %d draws, seed %" PRIu64 ".\n",
           all->refresh ? "on" : "off", (int)SYS_RUNS, all->seed);
    printf(
        "Where papers do not say it, we chose: as many micro-batches as stages (single: of one\n"
        "request each, beside no figure); lengths of PIMphony's Fig. 17; an xPU and the units by\n"
        "turns, not side by side. With the figures in view, so what hangs on it says calibrated:\n"
        "for LoL-PIM's baseline as much tensor parallelism as there are heads (its best cut "
        "stands\n"
        "in the table, too); for PIMphony's query heads on channels of their own, but K and V\n"
        "counted once. No constant of the model was chosen for a figure here.\n");
}

static void json_record(const record *r)
{
    printf("{\"figure\": \"%s\", \"model\": \"%s\", \"task\": \"%s\", \"techniques\": \"%s\", "
           "\"modules\": %" PRIu32 ", \"tp\": %" PRIu32 ", \"pp\": %" PRIu32,
           r->of, r->llm, r->task, r->way, r->n_modules, r->result.tp, r->result.pp);
    const ex_value numbers[] = {
        {"requests", r->result.parts.tokens},           {"tokens_per_s", r->result.tokens_s},
        {"utilisation", r->result.utilisation},         {"fc_ns", r->result.parts.fc_ns},
        {"attention_ns", r->result.parts.attention_ns}, {"moving_ns", r->result.parts.moving_ns},
        {"attention_pJ", r->result.parts.attention_pJ}};
    printf(", ");
    ex_json_values(stdout, numbers, EX_COUNT(numbers));
    printf("}");
}

static void json_figure(const figure *f)
{
    printf("{\"figure\": \"%s\", \"ours_is\": \"%s\", \"unit\": \"%s\", \"what\": \"%s\", "
           "\"setting\": \"%s\", ",
           f->of->id, published_kind_str(f->of->kind), f->of->unit, f->of->what, f->setting);
    const ex_value numbers[] = {{"ours", f->ours},
                                {"published", f->of->value},
                                {"difference_percent", published_difference(f->of, f->ours)}};
    ex_json_values(stdout, numbers, EX_COUNT(numbers));
    printf("}");
}

static void print_json(const results *all)
{
    printf("{\"schema\": %d, \"seed\": %" PRIu64 ", \"refresh\": %s, \"cases\": [\n ",
           (int)EX_SCHEMA, all->seed, all->refresh ? "true" : "false");
    for (size_t i = 0; i < all->n_records; i++) {
        if (i) printf(",\n ");
        json_record(&all->records[i]);
    }
    printf("], \"figures\": [\n ");
    for (size_t i = 0; i < all->n_figures; i++) {
        if (i) printf(",\n ");
        json_figure(&all->figures[i]);
    }
    printf("]");
    printf("}\n");
}

int main(int argc, char **argv)
{
    bool json = false;
    uint32_t seed = 1, refresh = 0;
    const ex_option options[] = {
        {.name = "--refresh",
         .value = "off|on",
         .choice = &refresh,
         .help = "default off, as in the papers"},
        {.name = "--seed", .value = "N", .number = &seed, .help = "of the lengths; default 1"},
        {.name = "--json", .flag = &json, .help = "cases and figures as JSON"}};
    ex_options(
        argc, argv,
        "usage: build/predict_system [options]\n"
        "Systems of many PIM modules: published figures beside ours. build/system has yours.",
        options, EX_COUNT(options), NULL, 0);
    results *all = (results *)ex_alloc(1, sizeof *all);
    all->seed = seed, all->refresh = refresh != 0;
    lol_table_8(all);
    lol_scaling(all);
    lol_figure_11(all);
    phony_throughput(all);
    phony_contexts(all);
    if (json) {
        print_json(all);
    } else {
        print_records(all);
        print_figures(all);
    }
    free(all);
    return ex_done();
}
