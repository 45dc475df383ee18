/* pam_study - PAM's comparison of systems with KV in HBM, DDR and SSD: its Figs. 9, 10, 12, 13 and
 * its counts beside ours, every assumption printed. The attention times are of programs, timed. */
#define EX_NAME "pam_study"
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#include <stddef.h>

#include "common.h"
#include "pam_model.h"
#include "published.h"

enum { MOST_FIGURES = 40, N_LIMITS = 3, N_BATCHES = 3, N_RUNS = 2, N_ABLATED = 5, N_SEEDS = 3 };
enum { QWEN, LLAMA, OPT };

static const double limits_s[N_LIMITS] = {0.1, 0.15, 0.2};
static const double chats[2] = {534, 738}; /* ShareGPT, WildChat [PAM 7.2] */
static const uint64_t batches[2][N_BATCHES] = {{256, 512, 1024}, {16, 32, 64}}; /* LLaMA3, OPT */
static const pam_who ablated[N_ABLATED] = {PAM_LS_PIM, PAM_PAM, PAM_NO_ATTENTION, PAM_NO_MAPPING,
                                           PAM_NO_SCHEDULING};

/* What one set of assumptions gives. */
typedef struct run {
    pam_study *study; /* of all runs */
    pam_assumed by;
    double tier_Bps[EX_COUNT(pam_llms)][PAM_TIERS], ratio[EX_COUNT(pam_llms)][PAM_TIERS];
    uint64_t online[EX_COUNT(pam_llms)][2][N_LIMITS][PAM_PAM + 1]; /* batches */
    double online_tps[EX_COUNT(pam_llms)][2][N_LIMITS][PAM_PAM + 1];
    pam_step offline[2][2][N_BATCHES][PAM_PAM + 1]; /* LLaMA3, OPT; Arxiv_sum, write_doc */
    pam_step ablation[2][N_BATCHES][N_ABLATED];
    double scale[4][2]; /* of 1, 2, 4, 8 instances: tokens per second of L-PIM and PAM */
    double moved[N_SEEDS], from_ssd[N_SEEDS];
    pam_step idle[3]; /* LS-PIM, no scheduling, PAM, in rooms of 30, 50 and 20 % */
    double one_head;  /* reduction of one head in each channel, share */
} run;

/* --- Figures ------------------------------------------------------------------------------- */

typedef struct figures {
    const published *of[MOST_FIGURES];
    const char *assumes[MOST_FIGURES];
    double ours[MOST_FIGURES][N_RUNS];
    size_t n;
} figures;

static void figure(figures *list, const char *id, double ours, double strict, const char *assumes)
{
    if (list->n == MOST_FIGURES) ex_die("more than %d figures", (int)MOST_FIGURES);
    list->of[list->n] = published_find(id);
    if (!list->of[list->n]) ex_die("no published figure %s", id);
    list->assumes[list->n] = assumes;
    list->ours[list->n][0] = ours;
    list->ours[list->n++][1] = strict;
}

/* --- Computing ----------------------------------------------------------------------------- */

static double tokens_s(uint64_t batch, const pam_step *step)
{
    return step->fits ? (double)batch / step->seconds : 0;
}

/* One system's largest batches under ever longer limits. */
static void run_limits(run *r, size_t llm, int chat, pam_who who)
{
    uint64_t batch = 0;
    pam_step step;
    memset(&step, 0, sizeof step);
    for (int i = 0; i < N_LIMITS; i++) {
        pam_largest(r->study, who, llm, chats[chat], limits_s[i], &batch, &step);
        r->online[llm][chat][i][who] = batch;
        r->online_tps[llm][chat][i][who] = tokens_s(batch, &step);
    }
}

static void run_online(run *r)
{
    for (size_t llm = 0; llm < EX_COUNT(pam_llms); llm++)
        for (int chat = 0; chat < 2; chat++)
            for (int who = 0; who <= PAM_PAM; who++)
                run_limits(r, llm, chat, (pam_who)who);
}

static void run_offline(run *r)
{
    const double lengths[2] = {r->by.arxiv, r->by.write};
    for (size_t llm = 0; llm < 2; llm++)
        for (int b = 0; b < N_BATCHES; b++) {
            for (int task = 0; task < 2; task++)
                for (int who = 0; who <= PAM_PAM; who++)
                    r->offline[llm][task][b][who] = pam_step_of(r->study, (pam_who)who, LLAMA + llm,
                                                                batches[llm][b], lengths[task]);
            for (int i = 0; i < N_ABLATED; i++)
                r->ablation[llm][b][i] =
                    pam_step_of(r->study, ablated[i], LLAMA + llm, batches[llm][b], r->by.longest);
        }
}

static void run_scaling(run *r)
{
    for (uint32_t i = 0; i < 4; i++) {
        pam_machine_init(&r->study->machine, 1u << i);
        for (int k = 0; k < 2; k++) {
            pam_step step =
                pam_step_of(r->study, k ? PAM_PAM : PAM_L_PIM, LLAMA, 1024, r->by.write);
            r->scale[i][k] = tokens_s(1024, &step);
        }
    }
    pam_machine_init(&r->study->machine, 1);
}

/* Moves and idle tiers in rooms of 30, 50 and 20 % of 4096 tokens. */
static void run_trace(run *r)
{
    static const uint64_t room[PAM_TIERS] = {1229, 2048, 819};
    static const pam_who who[3] = {PAM_LS_PIM, PAM_NO_SCHEDULING, PAM_PAM};
    double seed = r->study->by.seed;
    for (int i = 0; i < N_SEEDS; i++, r->study->by.seed++) {
        pam_case c = {&pam_systems[PAM_PAM], &pam_llms[LLAMA], 256, 4096};
        pam_use use = pam_used(r->study, &c, room, r->study->ratio[LLAMA]);
        r->moved[i] = 2 * (use.swaps[0] + use.swaps[1]) / 4096;
        r->from_ssd[i] = use.swaps[1] / 4096;
    }
    r->study->by.seed = seed;
    for (int i = 0; i < 3; i++) {
        pam_case c = {&pam_systems[who[i]], &pam_llms[LLAMA], 256, 4096};
        r->idle[i] = pam_step_in(r->study, &c, room);
    }
}

static double reduction_share(const pimattn_step_reading *r)
{
    return (r->tiers[r->slowest].reduce_ns + r->merge_ns) / r->ns;
}

static run *run_new(pam_study *study, const pam_assumed *by)
{
    run *r = (run *)ex_alloc(1, sizeof *r);
    pam_study_assume(study, by);
    r->study = study;
    r->by = *by;
    memcpy(r->tier_Bps, study->tier_Bps, sizeof r->tier_Bps);
    memcpy(r->ratio, study->ratio, sizeof r->ratio);
    run_online(r);
    run_offline(r);
    run_scaling(r);
    run_trace(r);
    /* 160 sequences of 8 KV heads: one for each of 1280 channels; 256 active tokens of 2048 */
    pam_case one = {&pam_systems[PAM_PAM], &pam_llms[LLAMA], 160, 2048};
    const uint64_t all_in_hbm[PAM_TIERS] = {2048, 0, 0};
    pam_step step = pam_step_in(r->study, &one, all_in_hbm);
    r->one_head = reduction_share(&step.layer);
    return r;
}

/* Mean over limits of throughput over another system's. */
static double online_ratio(const run *r, size_t llm, int chat, pam_who over)
{
    double sum = 0;
    for (int i = 0; i < N_LIMITS; i++)
        sum += r->online_tps[llm][chat][i][PAM_PAM] / r->online_tps[llm][chat][i][over];
    return sum / N_LIMITS;
}

static double online_mean(const run *r, int chat, pam_who over)
{
    double sum = 0;
    for (size_t llm = 0; llm < EX_COUNT(pam_llms); llm++)
        sum += online_ratio(r, llm, chat, over);
    return sum / (double)EX_COUNT(pam_llms);
}

static double offline_ratio(const run *r, int llm, int task)
{
    double sum = 0;
    for (int b = 0; b < N_BATCHES; b++) {
        const pam_step *steps = r->offline[llm][task][b];
        sum += steps[PAM_VLLM].seconds / steps[PAM_PAM].seconds;
    }
    return sum / N_BATCHES;
}

/* Attention of a system over PAM's, mean of both models. */
static double ablation_ratio(const run *r, int batch, int over)
{
    double sum = 0;
    for (int llm = 0; llm < 2; llm++)
        sum += r->ablation[llm][batch][over].attention_s / r->ablation[llm][batch][1].attention_s;
    return sum / 2;
}

static double scale_ratio(const run *r, bool most)
{
    double best = r->scale[0][1] / r->scale[0][0];
    for (int i = 1; i < 4; i++) {
        double ratio = r->scale[i][1] / r->scale[i][0];
        best = most ? fmax(best, ratio) : fmin(best, ratio);
    }
    return best;
}

/* --- Figures of the two runs --------------------------------------------------------------- */

static void throughput_figures(figures *list, run *const r[N_RUNS])
{
    static const char *const online[] = {"pam.f9.qwen", "pam.f9.llama", "pam.f9.opt"};
    static const char *const chat[] = {"pam.f9.sharegpt", "pam.f9.wildchat"};
    static const char *const offline[2][2] = {{"pam.f10.llama.arxiv", "pam.f10.llama.write"},
                                              {"pam.f10.opt.arxiv", "pam.f10.opt.write"}};
    double x[N_RUNS];
    for (size_t llm = 0; llm < EX_COUNT(online); llm++) {
        for (int k = 0; k < N_RUNS; k++)
            x[k] =
                (online_ratio(r[k], llm, 0, PAM_VLLM) + online_ratio(r[k], llm, 1, PAM_VLLM)) / 2;
        figure(list, online[llm], x[0], x[1],
               "decode only, largest batch in the SLO, mean of 3 SLOs and 2 contexts");
    }
    for (int k = 0; k < N_RUNS; k++)
        x[k] = (online_mean(r[k], 0, PAM_LS_PIM) + online_mean(r[k], 1, PAM_LS_PIM)) / 2;
    figure(list, "pam.f9.lspim", x[0], x[1], "the same, mean of the models");
    for (int c = 0; c < 2; c++)
        figure(list, chat[c], online_mean(r[0], c, PAM_VLLM), online_mean(r[1], c, PAM_VLLM),
               "mean of models and SLOs");
    for (int llm = 0; llm < 2; llm++)
        for (int task = 0; task < 2; task++)
            figure(
                list, offline[llm][task], offline_ratio(r[0], llm, task),
                offline_ratio(r[1], llm, task),
                "decode only, mean of the 3 batches; of the length only 1500 to 8000 is published");
    for (int k = 0; k < N_RUNS; k++) {
        const pam_step *step = &r[k]->offline[0][0][2][PAM_L_PIM];
        x[k] = 100 * step->layer.tiers[2].ns * pam_llms[LLAMA].n_layers / 1e9 / step->seconds;
    }
    figure(list, "pam.f10.lpim.ssd", x[0], x[1], "LLaMA3-70B, Arxiv_sum, batch 1024");
    for (int k = 0; k < 2; k++)
        figure(list, k ? "pam.scale.max" : "pam.scale.min", scale_ratio(r[0], k),
               scale_ratio(r[1], k),
               "LLaMA3-70B, write_doc; all devices and GPUs times n; no cost of TP and PP");
}

static void ablation_figures(figures *list, run *const r[N_RUNS])
{
    static const char *const ids[2][N_ABLATED] = {{"pam.f12.small", NULL, "pam.f12.small.noattn",
                                                   "pam.f12.small.nomap", "pam.f12.small.nosched"},
                                                  {"pam.f12.large", NULL, "pam.f12.large.noattn",
                                                   "pam.f12.large.nomap", "pam.f12.large.nosched"}};
    static const char *const assumes[N_ABLATED] = {
        "batch, length, models not published: least (SSDs are empty) and largest of Fig. 10", NULL,
        "not described: tiers one after the other, no reduction units",
        "tokens take the place of those they swap with; in the trace, neighbours are not alike",
        "tokens stay where importance put them before the first of all steps"};
    for (int large = 0; large < 2; large++)
        for (int i = 0; i < N_ABLATED; i++)
            if (ids[large][i])
                figure(list, ids[large][i], ablation_ratio(r[0], 2 * large, i),
                       ablation_ratio(r[1], 2 * large, i), assumes[i]);
}

static double mean_of_seeds(const double *x)
{
    double sum = 0;
    for (int i = 0; i < N_SEEDS; i++)
        sum += x[i];
    return 100 * sum / N_SEEDS;
}

static double host_over_interface(const pimattn_tier *from, const pimattn_tier *to)
{
    pimattn_relayout way[2];
    pimattn_relayout_reading r[2];
    pimhw_cause why = {{0}};
    memset(way, 0, sizeof way);
    way[1].by_host = true;
    for (int i = 0; i < 2; i++)
        if (pimattn_relayout_time(&r[i], from, to, &way[i], 1 << 20, 64, &why) != PIMATTN_OK)
            ex_die("interface: %s", why.text);
    return r[1].ns / r[0].ns;
}

/* Bookkeeping of 5 devices that hold 2048 tokens: an engine's own reading. */
static pimattn_tier_info bookkeeping(const pam_machine *m)
{
    pimattn_config c;
    pimattn_tiers tiers;
    pimattn_tier_info info;
    memset(&c, 0, sizeof c);
    memset(&tiers, 0, sizeof tiers);
    c.shape.n_layers = c.shape.n_heads = c.shape.n_kv_heads = 1;
    c.shape.head_dim = 128;
    c.tiers = &tiers;
    tiers.n_tiers = 1;
    tiers.tier[0] = m->tier[0];
    tiers.tier[0].n_devices = 5;
    tiers.tier[0].n_tokens = 2048;
    pimattn_engine *engine = ex_engine(&c);
    ex_check(engine, "tier", pimattn_tier_query(engine, 0, &info));
    pimattn_engine_destroy(engine);
    return info;
}

static void count_figures(figures *list, run *const r[N_RUNS])
{
    const pam_machine *m = &r[0]->study->machine;
    const pimhw_config *hbm = &m->tier[0].device;
    const pam_step *last[N_RUNS] = {&r[0]->offline[0][0][2][PAM_PAM],
                                    &r[1]->offline[0][0][2][PAM_PAM]};
    double x[N_RUNS];
    figure(
        list, "pam.sched.moves", mean_of_seeds(r[0]->moved), mean_of_seeds(r[1]->moved),
        "rooms of 30, 50, 20 %: not published; both of a swap count; the trace was made for this");
    figure(list, "pam.sched.ssd", mean_of_seeds(r[0]->from_ssd), mean_of_seeds(r[1]->from_ssd),
           "the same");
    for (int k = 0; k < N_RUNS; k++) {
        const pimattn_tier_reading *t = &last[k]->layer.tiers[0];
        x[k] = 100 * (1 - (double)t->group_bytes / (double)t->bare_bytes);
    }
    figure(list, "pam.ru.transfer", x[0], x[1], "q down and one partial up for 4 banks, HBM");
    figure(list, "pam.ru.latency", 100 * reduction_share(&last[0]->layer),
           100 * reduction_share(&last[1]->layer),
           "what no unit's work hides, LLaMA3-70B, Arxiv_sum, batch 1024");
    double unit = pimhw_config_lanes(hbm) * 2.0 * hbm->unit_MHz;
    double groups = (double)hbm->n_channels * hbm->n_bank_groups;
    figure(list, "pam.ru.bw.low", groups * unit / hbm->link_MBps, groups * unit / hbm->link_MBps,
           "units of bank groups over the stack's link");
    unit *= groups + hbm->reduction_units;
    figure(list, "pam.ru.bw.high", unit / hbm->link_MBps, unit / hbm->link_MBps,
           "those of the logic die too");
    double same = host_over_interface(&m->tier[1], &m->tier[1]);
    figure(list, "pam.if", same, same, "both ends alike; host at a tenth of each, in two passes");
    pimattn_tier_info info = bookkeeping(m);
    figure(list, "pam.map.bytes", (double)info.id_bytes / 1e3, (double)info.id_bytes / 1e3,
           "2048 tokens, chosen: the paper gives no number; an id of 1280 groups is 11 bits");
    figure(list, "pam.map.track", (double)info.count_bytes / 1e3, (double)info.count_bytes / 1e3,
           "10 counters and their sum for each of 1280 groups, 16 bits");
    double gb = 256 * 2048 * pam_layer_bytes(&pam_llms[OPT]) * pam_llms[OPT].n_layers / 1e9;
    figure(list, "pam.kv.opt", gb, gb, "fp16; 2304 in units of 2^30 bytes");
}

/* --- Printing ------------------------------------------------------------------------------ */

static void print_assumed(const pam_assumed *a)
{
    printf("Assumed; --set NAME=VALUE changes it:\n");
    for (size_t i = 0; i < EX_COUNT(pam_names); i++) {
        pam_assumed copy = *a;
        double value = *pam_field(&copy, &pam_names[i]);
        bool set = value != pam_names[i].usual;
        printf("  %-12s %8g  %-10s  %s\n", pam_names[i].name, value,
               set ? "set" : pam_names[i].source, pam_names[i].what);
    }
    printf("Systems are sets of switches:\n  %-11s %5s %9s %6s %7s %6s %9s %8s %8s\n", "", "GPUs",
           "HBM only", "dense", "sorted", "moves", "balanced", "overlap", "reduces");
    for (int i = 0; i < PAM_SYSTEMS; i++) {
        const pam_system *y = &pam_systems[i];
        printf("  %-11s %5d %9d %6d %7d %6d %9d %8d %8d\n", y->name, y->gpu, y->hbm_only, y->dense,
               y->sorted, y->swaps, y->balanced, y->overlap, y->reduces);
    }
    printf(
        "  GPUs: they fetch K and V, which else are computed on where they lie; sorted: the most\n"
        "  important tokens are in HBM at first; balanced: bank groups of tokens that move\n");
    printf("  decode only, no time between GPUs and memories; %d GPUs of %g TFLOPS; tokens of a\n"
           "  sequence alike; calibrated trace: drift of spread %g, memory %g, noise %g a step\n",
           (int)PAM_GPUS, PAM_GPU_FLOPS / 1e12, PAM_SPREAD, PAM_MEMORY, PAM_NOISE);
}

static void print_tiers(run *const r[N_RUNS])
{
    printf("\nBandwidth of the tiers' attention, TB/s, timed; and x : y : 1 from it\n"
           "  %-12s %31s    %31s\n",
           "", "as set", "every query head, move and page");
    for (size_t llm = 0; llm < EX_COUNT(pam_llms); llm++) {
        printf("  %-12s", pam_llms[llm].name);
        for (int k = 0; k < N_RUNS; k++) {
            const double *ratio = r[k]->ratio[llm];
            for (int t = 0; t < PAM_TIERS; t++)
                printf(" %6.3f", r[k]->tier_Bps[llm][t] / 1e12);
            printf("  %4.1f : %4.1f%s", ratio[0], ratio[1], k == 0 ? "   " : "\n");
        }
    }
}

/* What the moves of a step take, be they hidden or not. */
static void print_moves(const run *r)
{
    printf("Moves of a step of PAM, Arxiv_sum, largest batch: what they take beside the step, ms\n"
           "  %-12s %7s %9s %12s %14s %11s\n",
           "", "moved %", "GB", "full pages", "a page each", "step");
    for (size_t llm = 0; llm < 2; llm++) {
        const pam_step *s = &r->offline[llm][0][N_BATCHES - 1][PAM_PAM];
        pam_case c = {&pam_systems[PAM_PAM], &pam_llms[LLAMA + llm], batches[llm][N_BATCHES - 1],
                      (uint64_t)r->by.arxiv};
        double moved = 2 * (s->use.swaps[0] + s->use.swaps[1]), ms[2];
        for (int k = 0; k < 2; k++) {
            r->study->by.moves = k + 1;
            ms[k] = pam_moves_ns(r->study, &c, s->use.swaps) * c.llm->n_layers / 1e6;
        }
        r->study->by.moves = r->by.moves;
        printf("  %-12s %7.2f %9.2f %12.1f %14.1f %11.1f\n", c.llm->name, 100 * moved / r->by.arxiv,
               moved * (double)c.batch * pam_layer_bytes(c.llm) * c.llm->n_layers / 1e9, ms[0],
               ms[1], 1e3 * s->seconds);
    }
}

static void print_trace(const run *r, double one_head_in_full)
{
    static const char *const names[] = {"as tokens came (LS-PIM)", "by importance at first",
                                        "scheduled (PAM)"};
    printf(
        "\nTrace of 4096 tokens in rooms of 30, 50, 20 %%; moved a step: calibrated to %g and %g\n",
        published_find("pam.sched.moves")->value, published_find("pam.sched.ssd")->value);
    for (int i = 0; i < N_SEEDS; i++)
        printf("  seed %-4g moved %.3f %%, SSD to DDR %.3f %%\n", r->by.seed + i, 100 * r->moved[i],
               100 * r->from_ssd[i]);
    printf("One layer's attention, LLaMA3-70B, 256 such sequences; what waits for the slowest\n"
           "  %-24s %22s %26s %23s %10s\n",
           "", "active tokens, %", "us of HBM, DDR, SSD", "idle, %", "over PAM");
    for (int i = 0; i < 3; i++) {
        const pam_step *s = &r->idle[i];
        printf("  %-24s", names[i]);
        for (int t = 0; t < PAM_TIERS; t++)
            printf(" %6.2f%s", 100 * s->use.active[t], t == 2 ? "  " : " ");
        for (int t = 0; t < PAM_TIERS; t++)
            printf(" %8.1f", s->layer.tiers[t].ns / 1e3);
        for (int t = 0; t < PAM_TIERS; t++)
            printf(" %6.1f ", 100 * s->layer.idle_ns[t] / s->layer.attention_ns);
        printf(" %9.2fx\n", s->attention_s / r->idle[2].attention_s);
    }
    printf("Interface over host path, HBM to DDR %.1f x, DDR to SSD %.1f x; ends alike %.0f x\n",
           host_over_interface(&r->study->machine.tier[0], &r->study->machine.tier[1]),
           host_over_interface(&r->study->machine.tier[1], &r->study->machine.tier[2]),
           host_over_interface(&r->study->machine.tier[0], &r->study->machine.tier[0]));
    printf("Reduction that no unit's work hides, one head of 2048 tokens a channel: %.1f %%, and\n"
           "%.1f %% of 8 query heads\n",
           100 * r->one_head, 100 * one_head_in_full);
    print_moves(r);
}

static void print_online(const run *r)
{
    printf("\nFig. 9: largest batch within the SLO (it to 1 in 32, or the step to 1 in 64) / "
           "tokens per second\n  %-19s",
           "model, tokens, ms");
    for (int who = 0; who <= PAM_PAM; who++)
        printf(" %15s", pam_systems[who].name);
    printf("  over vLLM\n");
    for (size_t llm = 0; llm < EX_COUNT(pam_llms); llm++)
        for (int chat = 0; chat < 2; chat++)
            for (int i = 0; i < N_LIMITS; i++) {
                const double *tps = r->online_tps[llm][chat][i];
                printf("  %-11s %3.0f %3.0f", pam_llms[llm].name, chats[chat], 1e3 * limits_s[i]);
                for (int who = 0; who <= PAM_PAM; who++)
                    printf(" %6" PRIu64 " /%7.0f", r->online[llm][chat][i][who], tps[who]);
                if (tps[PAM_VLLM] > 0)
                    printf("  %9.2f\n", tps[PAM_PAM] / tps[PAM_VLLM]);
                else
                    printf("  %9s\n", "none");
            }
}

static void print_offline(const run *r)
{
    static const char *const tasks[2] = {"Arxiv_sum", "write_doc"};
    printf(
        "\nFig. 10: tokens per second; OOM: does not fit; tokens of PAM in HBM, DDR, SSD; moved a "
        "step\n  %-27s",
        "model, task, batch");
    for (int who = 0; who <= PAM_PAM; who++)
        printf(" %8s", pam_systems[who].name);
    printf("  over vLLM   tiers, %%   moved, %%\n");
    for (int llm = 0; llm < 2; llm++)
        for (int task = 0; task < 2; task++)
            for (int b = 0; b < N_BATCHES; b++) {
                const pam_step *s = r->offline[llm][task][b], *pam = &s[PAM_PAM];
                double n = task ? r->by.write : r->by.arxiv;
                printf("  %-11s %s %5" PRIu64, pam_llms[LLAMA + llm].name, tasks[task],
                       batches[llm][b]);
                for (int who = 0; who <= PAM_PAM; who++)
                    if (s[who].fits)
                        printf(" %8.1f", tokens_s(batches[llm][b], &s[who]));
                    else
                        printf(" %8s", "OOM");
                printf("  %9.2f  ", s[PAM_VLLM].seconds / pam->seconds);
                for (int t = 0; t < PAM_TIERS; t++)
                    printf(" %2.0f", 100 * (double)pam->room[t] / n);
                printf("  %9.2f\n", 200 * (pam->use.swaps[0] + pam->use.swaps[1]) / n);
            }
}

static void print_ablation(const run *r)
{
    printf("\nFig. 12: ms of attention, %g tokens a request, and over PAM's\n  %-17s",
           r->by.longest, "model, batch");
    for (int i = 0; i < N_ABLATED; i++)
        printf(" %17s", pam_systems[ablated[i]].name);
    printf("\n");
    for (int llm = 0; llm < 2; llm++)
        for (int b = 0; b < N_BATCHES; b++) {
            const pam_step *s = r->ablation[llm][b];
            printf("  %-11s %5" PRIu64, pam_llms[LLAMA + llm].name, batches[llm][b]);
            for (int i = 0; i < N_ABLATED; i++)
                printf(" %8.2f  %6.2fx", 1e3 * s[i].attention_s,
                       s[i].attention_s / s[1].attention_s);
            printf("\n");
        }
    printf("\nFig. 13: tokens per second of L-PIM and PAM, LLaMA3-70B, write_doc, 1024 requests\n");
    for (int i = 0; i < 4; i++)
        printf("  %d instances %10.1f %10.1f  %6.2fx\n", 1 << i, r->scale[i][0], r->scale[i][1],
               r->scale[i][1] / r->scale[i][0]);
}

static void print_figures(const figures *list, const pam_assumed *full)
{
    printf("\nPublished beside ours, as set; and with a MAC for every query head, moves paid and\n"
           "hidden only behind the step, a page of flash for each token (queries %g, moves %g,\n"
           "scattered %g), where our number is not a count:\n",
           full->queries, full->moves, full->scattered);
    for (size_t i = 0; i < list->n; i++) {
        const published *p = list->of[i];
        published_print(stdout, p, list->ours[i][0]);
        if (p->kind >= PUBLISHED_CALIBRATED && !isfinite(list->ours[i][1]))
            printf("%23s%-10s ours %9s\n", "", "in full", "none");
        else if (p->kind >= PUBLISHED_CALIBRATED)
            printf("%23s%-10s ours %9.6g %+31.1f %%\n", "", "in full", list->ours[i][1],
                   published_shown(p, list->ours[i][1]));
        printf("%23s%s\n", "", list->assumes[i]);
    }
}

/* --- JSON ---------------------------------------------------------------------------------- */

static void json_figures(const figures *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const published *p = list->of[i];
        printf("%s{\"figure\": \"%s\", \"ours_is\": \"%s\", \"unit\": \"%s\", \"what\": \"%s\", "
               "\"assumes\": \"%s\", ",
               i ? ",\n " : "", p->id, published_kind_str(p->kind), p->unit, p->what,
               list->assumes[i]);
        ex_json_number(stdout, "ours", list->ours[i][0]);
        printf(", ");
        ex_json_number(stdout, "in_full", list->ours[i][1]);
        printf(", ");
        ex_json_number(stdout, "published", p->value);
        printf(", ");
        ex_json_number(stdout, "deviation_percent", published_difference(p, list->ours[i][0]));
        printf(", ");
        ex_json_number(stdout, "bound_percent", p->bound < 0 ? HUGE_VAL : p->bound);
        if (p->bound >= 0)
            printf(", \"holds\": %s", published_holds(p, list->ours[i][0]) ? "true" : "false");
        printf("}");
    }
}

static void json_case(const char *kind, const char *system, size_t llm, uint64_t batch,
                      double context, double tps, bool *more)
{
    printf("%s{\"kind\": \"%s\", \"system\": \"%s\", \"model\": \"%s\", \"batch\": %" PRIu64
           ", \"context\": %.0f, ",
           *more ? ",\n " : "", kind, system, pam_llms[llm].name, batch, context);
    ex_json_number(stdout, "tokens_per_s", tps);
    printf("}");
    *more = true;
}

static void json_cases(const run *r)
{
    bool more = false;
    for (size_t llm = 0; llm < EX_COUNT(pam_llms); llm++)
        for (int chat = 0; chat < 2; chat++)
            for (int i = 0; i < N_LIMITS; i++)
                for (int who = 0; who <= PAM_PAM; who++) {
                    char kind[32];
                    snprintf(kind, sizeof kind, "online %.0f ms", 1e3 * limits_s[i]);
                    json_case(kind, pam_systems[who].name, llm, r->online[llm][chat][i][who],
                              chats[chat], r->online_tps[llm][chat][i][who], &more);
                }
    for (size_t llm = 0; llm < 2; llm++)
        for (int task = 0; task < 2; task++)
            for (int b = 0; b < N_BATCHES; b++)
                for (int who = 0; who <= PAM_PAM; who++) {
                    const pam_step *step = &r->offline[llm][task][b][who];
                    double tps = step->fits ? tokens_s(batches[llm][b], step) : HUGE_VAL;
                    json_case("offline", pam_systems[who].name, LLAMA + llm, batches[llm][b],
                              task ? r->by.write : r->by.arxiv, tps, &more);
                }
}

static void print_json(const figures *list, const run *r)
{
    pam_assumed a = r->by;
    printf("{\"schema\": %d, \"assumed\": {", (int)EX_SCHEMA);
    for (size_t i = 0; i < EX_COUNT(pam_names); i++) {
        printf("%s", i ? ", " : "");
        ex_json_number(stdout, pam_names[i].name, *pam_field(&a, &pam_names[i]));
    }
    printf("}, \"figures\": [\n ");
    json_figures(list);
    printf("], \"cases\": [\n ");
    json_cases(r);
    printf("]}\n");
}

int main(int argc, char **argv)
{
    bool json = false;
    ex_texts sets = {.n_texts = 0};
    const ex_option options[] = {
        {.name = "--set", .value = "NAME=VALUE", .texts = &sets, .help = "another assumption"},
        {.name = "--json", .flag = &json, .help = "figures and cases as JSON"}};
    ex_options(argc, argv,
               "usage: build/pam_study [options]\n"
               "PAM's systems over HBM, DDR and SSD: published figures beside ours.",
               options, EX_COUNT(options), NULL, 0);
    pam_assumed by[N_RUNS];
    pam_assume(&by[0], &sets);
    by[1] = by[0];
    by[1].queries = fmax(by[0].queries, 1);
    by[1].moves = 2;
    by[1].scattered = 1;
    run *r[N_RUNS];
    figures list = {.n = 0};
    pam_study *study = pam_study_new();
    for (int k = 0; k < N_RUNS; k++)
        r[k] = run_new(study, &by[k]);
    throughput_figures(&list, r);
    ablation_figures(&list, r);
    count_figures(&list, r);
    if (json) {
        print_json(&list, r[0]);
    } else {
        print_assumed(&by[0]);
        print_tiers(r);
        print_trace(r[0], r[1]->one_head);
        print_online(r[0]);
        print_offline(r[0]);
        print_ablation(r[0]);
        print_figures(&list, &by[1]);
    }
    for (int k = 0; k < N_RUNS; k++)
        free(r[k]);
    pam_study_free(study);
    return ex_done();
}
