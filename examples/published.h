/* published.h - the figures of papers and of other simulators that we print ours beside.
 *
 * Every such figure stands in the table below and nowhere else. What ours is:
 *
 *     exact       the same number, to the clock
 *     counted     follows from counting alone, no clock of ours is in it
 *     calibrated  a number or a rule that no paper gives was chosen so that this comes out
 *     predicted   the model says so; nothing was chosen for it
 */
#ifndef PUBLISHED_H
#define PUBLISHED_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

typedef enum published_kind {
    PUBLISHED_EXACT = 0,
    PUBLISHED_COUNTED,
    PUBLISHED_CALIBRATED,
    PUBLISHED_PREDICTED
} published_kind;

typedef struct published {
    const char *id;
    published_kind kind; /* of our number */
    double bound;        /* tests: ours differs by so many percent at most; negative: any */
    double value;
    const char *unit;
    const char *what;
} published;

/*
 * ph: PIMphony. lol: LoL-PIM. attacc: AttAcc's simulator, commit c600051, bank units, head_dim 128,
 * fp16, one head on a channel. sait: Samsung's PIMSimulator, commit b464dde. unindp: UniNDP.
 * facil, pam: FACIL, PAM; examples/facil.c and examples/pam_study.c print what theirs rest on, and
 * examples/predict_system.c what those of lol's and ph's whole systems do.
 */
static const published published_table[] = {
    {"ph.f8", PUBLISHED_CALIBRATED, 1, 14.7, "percent",
     "MAC utilisation, 128 x 128 fp16 GEMV on one channel, static"},
    {"ph.f7.static", PUBLISHED_CALIBRATED, 0, 34, "clocks", "the 11-command GEMV, static"},
    {"ph.f7.dcs", PUBLISHED_CALIBRATED, 0, 22, "clocks", "the 11-command GEMV, DCS"},
    {"ph.meta", PUBLISHED_CALIBRATED, 0, 576, "bytes", "D-Table and S-Table of a channel, DCS"},
    {"ph.f18", PUBLISHED_PREDICTED, -1, 1.4, "x",
     "compute utilisation of DCS over ping-pong, at most"},
    {"lol.f7.qk", PUBLISHED_PREDICTED, -1, 40, "percent",
     "latency less by I/O-aware buffering, QK^T"},
    {"lol.f7.sv", PUBLISHED_PREDICTED, -1, 44, "percent",
     "latency less by I/O-aware buffering, SV"},
    /* row_opening was chosen for these two, of three rules that all meet ph.f8 */
    {"lol.f7.ffn1", PUBLISHED_CALIBRATED, -1, 29, "percent",
     "latency less by I/O-aware buffering, FFN1"},
    {"lol.f7.ffn2", PUBLISHED_CALIBRATED, -1, 28, "percent",
     "latency less by I/O-aware buffering, FFN2"},
    {"lol.f7.io", PUBLISHED_PREDICTED, -1, 50, "percent",
     "share of DT-Out and DT-GB in QK^T and SV under static, more than"},
    /* calibrated from here on: how the baselines are cut and what of them a channel gets was chosen
       with these figures in view (examples/predict_system.c says what, and what else was tried) */
    {"lol.t8.7b.base", PUBLISHED_CALIBRATED, -1, 1833, "token/s",
     "Qwen 7B, 4 nodes, Musique, baseline"},
    {"lol.t8.7b.util.base", PUBLISHED_CALIBRATED, -1, 15.1, "percent", "utilisation of that"},
    {"lol.t8.7b.12", PUBLISHED_PREDICTED, -1, 2455, "token/s",
     "Qwen 7B, 4 nodes, Musique, ITPP and DPA"},
    {"lol.t8.7b.util.12", PUBLISHED_PREDICTED, -1, 20.2, "percent", "utilisation of that"},
    {"lol.t8.7b.123", PUBLISHED_PREDICTED, -1, 3668, "token/s",
     "Qwen 7B, 4 nodes, Musique, and I/O-aware buffering"},
    {"lol.t8.7b.util.123", PUBLISHED_PREDICTED, -1, 30.1, "percent", "utilisation of that"},
    {"lol.t8.14b.base", PUBLISHED_CALIBRATED, -1, 1309, "token/s",
     "Qwen 14B, 5 nodes, Musique, baseline"},
    {"lol.t8.14b.util.base", PUBLISHED_CALIBRATED, -1, 15.4, "percent", "utilisation of that"},
    {"lol.t8.14b.12", PUBLISHED_PREDICTED, -1, 1737, "token/s",
     "Qwen 14B, 5 nodes, Musique, ITPP and DPA"},
    {"lol.t8.14b.util.12", PUBLISHED_PREDICTED, -1, 20.5, "percent", "utilisation of that"},
    {"lol.t8.14b.123", PUBLISHED_PREDICTED, -1, 2553, "token/s",
     "Qwen 14B, 5 nodes, Musique, and I/O-aware buffering"},
    {"lol.t8.14b.util.123", PUBLISHED_PREDICTED, -1, 30.1, "percent", "utilisation of that"},
    {"lol.t8.72b.base", PUBLISHED_CALIBRATED, -1, 737, "token/s",
     "Qwen 72B, 16 nodes, Musique, baseline"},
    {"lol.t8.72b.util.base", PUBLISHED_CALIBRATED, -1, 12.8, "percent", "utilisation of that"},
    {"lol.t8.72b.12", PUBLISHED_PREDICTED, -1, 1211, "token/s",
     "Qwen 72B, 16 nodes, Musique, ITPP and DPA"},
    {"lol.t8.72b.util.12", PUBLISHED_PREDICTED, -1, 21.1, "percent", "utilisation of that"},
    {"lol.t8.72b.123", PUBLISHED_PREDICTED, -1, 1740, "token/s",
     "Qwen 72B, 16 nodes, Musique, and I/O-aware buffering"},
    {"lol.t8.72b.util.123", PUBLISHED_PREDICTED, -1, 30.3, "percent", "utilisation of that"},
    {"lol.f9.7b.gpu", PUBLISHED_PREDICTED, -1, 3.53, "x", "Qwen 7B over GPU-GDDR, 1024 GB"},
    {"lol.f9.7b.pim", PUBLISHED_CALIBRATED, -1, 4.74, "x", "Qwen 7B over baseline PIM, 1024 GB"},
    {"lol.f10.72b.gpu", PUBLISHED_PREDICTED, -1, 8.54, "x", "Qwen 72B over GPU-GDDR, at most"},
    {"lol.f10.72b.pim", PUBLISHED_CALIBRATED, -1, 2.65, "x", "Qwen 72B over baseline PIM"},
    {"lol.f11.dpa", PUBLISHED_PREDICTED, -1, 1.3, "x", "lazy over static allocation, at most"},
    {"lol.f11.tppp", PUBLISHED_PREDICTED, -1, 1.73, "x", "best over worst TP and PP, at most"},
    {"lol.f12", PUBLISHED_CALIBRATED, -1, 60, "percent", "less latency of all three, over"},
    {"ph.f13.nogqa.min", PUBLISHED_PREDICTED, -1, 2.1, "x",
     "throughput without GQA, CENT and NeuPIMs, least"},
    {"ph.f13.nogqa.max", PUBLISHED_PREDICTED, -1, 4.5, "x", "the same, most"},
    {"ph.f13.gqa", PUBLISHED_CALIBRATED, -1, 11.3, "x",
     "throughput with GQA, CENT, LV-Eval, at most"},
    {"ph.f14.gqa", PUBLISHED_CALIBRATED, -1, 8.4, "x", "throughput, xPU and PIM, at most"},
    {"ph.f16.bg.base", PUBLISHED_CALIBRATED, -1, 71.5, "percent",
     "background of attention energy, CENT"},
    {"ph.f16.bg.ours", PUBLISHED_CALIBRATED, -1, 13.0, "percent", "the same with PIMphony"},
    {"ph.f16.red", PUBLISHED_CALIBRATED, -1, 3.46, "x", "less attention energy, at most"},
    {"ph.f16.speed", PUBLISHED_CALIBRATED, -1, 19, "x", "faster attention, at most"},
    {"ph.f17.cent", PUBLISHED_CALIBRATED, -1, 46.6, "x", "CENT, 512 GB, 1 M tokens"},
    {"ph.f17.centutil", PUBLISHED_CALIBRATED, -1, 2, "percent", "utilisation of that baseline"},
    {"ph.f17.neu", PUBLISHED_CALIBRATED, -1, 5.0, "x", "NeuPIMs, 512 GB, 1 M tokens"},
    {"ph.f17.short", PUBLISHED_CALIBRATED, -1, 2.1, "x", "256 tokens, over both baselines"},
    {"attacc.limit.slope", PUBLISHED_EXACT, 0, 1.875, "clocks a token",
     "with the power limit, refresh off"},
    {"attacc.limit.start", PUBLISHED_CALIBRATED, 0, -30, "clocks", "the same: beside the slope"},
    {"attacc.nolimit.slope", PUBLISHED_EXACT, 0, 1.390625, "clocks a token",
     "without the power limit, refresh off"},
    {"attacc.nolimit.start", PUBLISHED_EXACT, 0, -30, "clocks", "the same: beside the slope"},
    {"attacc.limit.512", PUBLISHED_CALIBRATED, 0, 930, "clocks", "512 tokens, power limit"},
    {"attacc.limit.1024", PUBLISHED_EXACT, 0, 1890, "clocks", "1024 tokens, power limit"},
    {"attacc.limit.2048", PUBLISHED_EXACT, 0, 3810, "clocks", "2048 tokens, power limit"},
    {"attacc.limit.4096", PUBLISHED_PREDICTED, 1, 8088, "clocks", "4096 tokens, power limit"},
    {"attacc.nolimit.512", PUBLISHED_EXACT, 0, 682, "clocks", "512 tokens, no limit"},
    {"attacc.nolimit.2048", PUBLISHED_EXACT, 0, 2818, "clocks", "2048 tokens, no limit"},
    {"attacc.nolimit.4096", PUBLISHED_PREDICTED, 1, 6104, "clocks", "4096 tokens, no limit"},
    {"attacc.heads.32", PUBLISHED_PREDICTED, 5, 7861, "clocks",
     "32 heads of 2048 tokens on 16 channels, power limit"},
    {"sait.gemv", PUBLISHED_PREDICTED, 10, 13166, "clocks",
     "GEMV 4096 x 4096, 64 pseudo-channels, Samsung's simulator"},
    {"unindp.gemv", PUBLISHED_PREDICTED, -1, 11528, "clocks", "the same GEMV, UniNDP's model"},
    {"facil.mapid", PUBLISHED_EXACT, 0, 13, "MapID", "the largest: 1 channel, 1 rank, 8 banks"},
    {"facil.f10.high", PUBLISHED_EXACT, 0, 20, "bit", "highest that changes the unit, 128 KB rows"},
    {"facil.f10.low", PUBLISHED_EXACT, 0, 16, "bit", "lowest of them"},
    {"facil.f13.jetson", PUBLISHED_CALIBRATED, 15, 2.89, "x", "TTFT over static hybrid"},
    {"facil.f13.macbook", PUBLISHED_CALIBRATED, 15, 2.19, "x", "TTFT over static hybrid"},
    {"facil.f13.ideapad", PUBLISHED_CALIBRATED, 15, 1.55, "x", "TTFT over static hybrid"},
    {"facil.f13.iphone", PUBLISHED_CALIBRATED, 15, 2.36, "x", "TTFT over static hybrid"},
    {"facil.f15.alpaca", PUBLISHED_CALIBRATED, 15, 2.37, "x", "TTFT over static hybrid"},
    {"facil.f15.code", PUBLISHED_CALIBRATED, 15, 2.63, "x", "TTFT over static hybrid"},
    {"facil.f16.alpaca", PUBLISHED_CALIBRATED, 15, 1.20, "x", "TTLT over static hybrid"},
    {"facil.f16.code", PUBLISHED_CALIBRATED, 15, 1.20, "x", "TTLT over static hybrid"},
    {"facil.f16.soc.alpaca", PUBLISHED_PREDICTED, 30, 3.55, "x", "TTLT over SoC only"},
    {"facil.f16.soc.code", PUBLISHED_PREDICTED, 30, 3.58, "x", "TTLT over SoC only"},
    {"facil.f3", PUBLISHED_PREDICTED, -1, 3.32, "x",
     "PIM over an ideal NPU, 64 in, 64 out, Jetson"},
    {"ph.tcp.qk", PUBLISHED_COUNTED, 0, 256, "tokens", "from which QK^T has every bank at work"},
    {"ph.tcp.sv", PUBLISHED_COUNTED, 0, 32, "tokens", "from which SV has"},
    {"ph.f19.static.avg", PUBLISHED_COUNTED, -1, 36.2, "percent", "capacity utilisation, static"},
    {"ph.f19.static.min", PUBLISHED_COUNTED, -1, 31.0, "percent", "the same, lowest workload"},
    {"ph.f19.static.max", PUBLISHED_COUNTED, -1, 40.5, "percent", "the same, highest workload"},
    {"ph.f19.dpa", PUBLISHED_COUNTED, -1, 75.6, "percent", "capacity utilisation, lazy"},
    {"lol.f4.batch", PUBLISHED_COUNTED, -1, 380, "percent", "larger batch of lazy, at most"},
    {"lol.disp", PUBLISHED_COUNTED, -1, 200, "KB", "buffers of the dispatcher, less than"},
    {"facil.f6", PUBLISHED_CALIBRATED, 15, 3, "x", "TTFT with re-layout over without, 8 tokens"},
    {"pam.f9.qwen", PUBLISHED_PREDICTED, -1, 7.20, "x", "Qwen2.5-32B over vLLM, online"},
    {"pam.f9.llama", PUBLISHED_PREDICTED, -1, 6.93, "x", "LLaMA3-70B over vLLM, online"},
    {"pam.f9.opt", PUBLISHED_PREDICTED, -1, 24.53, "x", "OPT-175B over vLLM, online"},
    {"pam.f9.lspim", PUBLISHED_PREDICTED, -1, 4.54, "x", "over LS-PIM, online, in the mean"},
    {"pam.f9.sharegpt", PUBLISHED_PREDICTED, -1, 6.12, "x", "over vLLM, 534 tokens"},
    {"pam.f9.wildchat", PUBLISHED_PREDICTED, -1, 13.76, "x", "over vLLM, 738 tokens"},
    {"pam.f10.llama.arxiv", PUBLISHED_PREDICTED, -1, 39.2, "x", "LLaMA3-70B over vLLM, Arxiv_sum"},
    {"pam.f10.llama.write", PUBLISHED_PREDICTED, -1, 25.2, "x", "LLaMA3-70B over vLLM, write_doc"},
    {"pam.f10.opt.arxiv", PUBLISHED_PREDICTED, -1, 33.0, "x", "OPT-175B over vLLM, Arxiv_sum"},
    {"pam.f10.opt.write", PUBLISHED_PREDICTED, -1, 8.26, "x", "OPT-175B over vLLM, write_doc"},
    {"pam.f10.lpim.ssd", PUBLISHED_PREDICTED, -1, 93, "percent",
     "of L-PIM's time in the SSDs, more than"},
    {"pam.f12.small", PUBLISHED_PREDICTED, -1, 18.7, "x", "attention over LS-PIM, small batch"},
    {"pam.f12.small.noattn", PUBLISHED_PREDICTED, -1, 1.93, "x", "over no PAMattention, small"},
    {"pam.f12.small.nomap", PUBLISHED_PREDICTED, -1, 2.06, "x", "over no KV mapping, small"},
    {"pam.f12.small.nosched", PUBLISHED_PREDICTED, -1, 2.74, "x", "over no scheduling, small"},
    {"pam.f12.large", PUBLISHED_PREDICTED, -1, 48.56, "x", "attention over LS-PIM, large batch"},
    {"pam.f12.large.noattn", PUBLISHED_PREDICTED, -1, 2.35, "x", "over no PAMattention, large"},
    {"pam.f12.large.nomap", PUBLISHED_PREDICTED, -1, 4.15, "x", "over no KV mapping, large"},
    {"pam.f12.large.nosched", PUBLISHED_PREDICTED, -1, 4.62, "x", "over no scheduling, large"},
    {"pam.scale.min", PUBLISHED_PREDICTED, -1, 6.03, "x", "over L-PIM, 1 to 8 instances, least"},
    {"pam.scale.max", PUBLISHED_PREDICTED, -1, 16.96, "x", "the same, most"},
    {"pam.sched.moves", PUBLISHED_CALIBRATED, -1, 0.7, "percent", "of all tokens move in a step"},
    {"pam.sched.ssd", PUBLISHED_CALIBRATED, -1, 0.1, "percent",
     "of all tokens go from SSD to DDR, less than"},
    {"pam.ru.transfer", PUBLISHED_COUNTED, 5, 59, "percent", "less bytes within a device"},
    {"pam.ru.latency", PUBLISHED_PREDICTED, -1, 2, "percent",
     "of PAMattention is reduction, less than"},
    {"pam.ru.bw.low", PUBLISHED_COUNTED, 5, 8, "x", "reduction over one central unit, least"},
    {"pam.ru.bw.high", PUBLISHED_COUNTED, 5, 12, "x", "the same, most"},
    {"pam.if", PUBLISHED_COUNTED, 0, 20, "x", "interface over host path, more than"},
    {"pam.map.bytes", PUBLISHED_CALIBRATED, 2, 2.8, "KB", "bank group ids, 5 devices"},
    {"pam.map.track", PUBLISHED_COUNTED, -1, 50, "KB", "counts of 10 steps, less than"},
    {"pam.kv.opt", PUBLISHED_COUNTED, 7.4, 2304, "GB", /* exact, had it said GiB */
     "KV of 256 requests of 2048 tokens, OPT-175B, approximately"},
};

enum { N_PUBLISHED = sizeof published_table / sizeof published_table[0] };

static inline const char *published_kind_str(published_kind kind)
{
    static const char *const names[] = {"exact", "counted", "calibrated", "predicted"};
    return names[kind];
}

/* The row of an id; NULL: there is none. */
static inline const published *published_find(const char *id)
{
    for (size_t i = 0; i < N_PUBLISHED; i++)
        if (strcmp(published_table[i].id, id) == 0) return &published_table[i];
    return NULL;
}

/* Ours less the published one, in percent of the latter. */
static inline double published_difference(const published *p, double ours)
{
    return 100 * (ours - p->value) / p->value;
}

/* The same to one decimal: no -0.0. */
static inline double published_shown(const published *p, double ours)
{
    double percent = published_difference(p, ours);
    return fabs(percent) < 0.05 ? 0 : percent;
}

static inline bool published_holds(const published *p, double ours)
{
    return p->bound < 0 || fabs(published_difference(p, ours)) <= p->bound;
}

/* Ours that is no number, a ratio of nothing to nothing, is none. */
static inline void published_print(FILE *file, const published *p, double ours)
{
    if (!isfinite(ours)) {
        fprintf(file, "  %-20s %-10s ours %9s  published %9.6g  %8s  %s: %s\n", p->id,
                published_kind_str(p->kind), "none", p->value, "", p->unit, p->what);
        return;
    }
    fprintf(file, "  %-20s %-10s ours %9.6g  published %9.6g  %+6.1f %%  %s: %s\n", p->id,
            published_kind_str(p->kind), ours, p->value, published_shown(p, ours), p->unit,
            p->what);
}

#endif
