/* predict.c - what the model says where papers print a number: ours beside theirs.
 *
 * Attention and FC layers on AiM channels under the four controllers: MAC utilisation of QK^T and
 * of SV for several layouts of K and V, what I/O-aware buffering saves, two calibration points.
 * One channel stands for all (each does the same), refresh is off as in the papers' figures.
 */
#define PIMHW_IMPLEMENTATION
#include "pim_hw.h"

#define EX_NAME "predict"
#include "common.h"
#include "published.h"
#include "works.h"

enum { CHANNELS = 16, CONTROLLERS = 4 };

/* One channel of AiMX under a controller. */
static pimhw_config channel_of(uint32_t controller)
{
    pimhw_config c;
    ex_device(&c, "aimx", 1, NULL);
    c.controller = controller;
    c.refresh = 0;
    return c;
}

/* --- Attention ----------------------------------------------------------------------------- */

typedef enum phase {
    QK,      /* a row holds tokens of one KV head */
    QK_CENT, /* a row holds one token of several KV heads, as CENT stores it */
    SV_A,    /* a bank holds one dimension, a row 1024 tokens of it */
    SV_B,    /* a bank holds head_dim / 16 dimensions, a row 1024 tokens of one of them */
    SV_K,    /* the same; a row holds a few tokens of all of them, the sums stay in the unit */
    N_PHASES
} phase;

static const char *const phase_names[N_PHASES] = {"QK^T", "QK^T, CENT rows", "SV mapping A",
                                                  "SV mapping B", "SV mapping K"};

/* Columns the controller can hold for the MACs of now. */
static uint64_t input_columns(const pimhw_config *c)
{
    bool halves = c->controller == PIMHW_PING_PONG && !c->extra_region;
    return halves ? c->in_entries / 2 : c->in_entries;
}

/* Cuts a row's queries into blocks. same: all rows have the same inputs. */
static void cut_queries(work *w, const pimhw_config *c, uint64_t group, bool same)
{
    uint64_t fits = input_columns(c) / w->n_inputs;
    bool dcs = c->controller == PIMHW_DCS;
    if (fits == 0) fits = 1;
    w->resident = same && group * w->n_inputs <= input_columns(c);
    w->block_queries = w->resident || !dcs ? least(group, w->resident ? group : fits) : 1;
    w->n_blocks = group / w->block_queries;
    w->turn = w->n_blocks;
    w->ahead = dcs && !w->resident ? least(fits, w->n_blocks) : 0;
    if (w->ahead > 1) w->turn = w->ahead;
}

/* The steps of a phase for head_dim dim. */
static void shape_steps(work *w, phase ph, uint64_t dim, uint64_t group)
{
    uint64_t cols = dim / LANES; /* of a token; and a bank's dimensions where it has several */
    w->row_rows = 1;
    w->n_inputs = ROW_COLUMNS;
    w->n_columns = ROW_COLUMNS;
    w->n_steps = 1;
    if (ph == QK || ph == QK_CENT) {
        w->n_steps = ROW_COLUMNS / cols;
        w->n_columns = cols;
        w->column_step = cols;
        if (ph == QK) w->n_inputs = cols;
        if (ph == QK_CENT) w->tile_step = cols;
    } else if (ph == SV_B && group == 1) { /* the tiles of 1024 tokens serve all dimensions */
        w->n_steps = cols;
        w->row_step = 1;
        w->row_rows = cols;
    } else if (ph == SV_K) {
        w->n_steps = cols;
        w->n_inputs = ROW_COLUMNS / cols;
        w->n_columns = w->n_inputs;
        w->column_step = w->n_columns;
    }
}

/* False if the phase needs more accumulators than there are. */
static bool attention_work(work *w, const pimhw_config *c, phase ph, uint64_t dim, uint64_t group)
{
    uint64_t entries = pimhw_config_outs(c);
    memset(w, 0, sizeof *w);
    w->mask = 1;
    shape_steps(w, ph, dim, group);
    cut_queries(w, c, group, ph == QK || ph == QK_CENT);
    w->n_outs = least(w->n_steps, entries);
    if (ph == SV_K) {
        if (group * w->n_steps > entries) return false;
        w->query_outs = w->n_steps;
        w->turn_outs = w->turn * w->block_queries * w->query_outs;
        w->read_once = true;
    } else if (ph == SV_A || (ph == SV_B && group > 1)) {
        w->turn = least(group, entries);
        w->query_outs = 1;
        w->read_once = ph == SV_A && group == 1;
    }
    return true;
}

enum { STEADY_ROWS = 64 };

/* Clocks of a row in the steady state, or negative. *macs: of one such row. */
static double row_clocks(const pimhw_config *c, phase ph, uint64_t dim, uint64_t group,
                         double *macs)
{
    work w;
    if (!attention_work(&w, c, ph, dim, group)) return -1;
    w.n_rows = STEADY_ROWS;
    pimhw_readings once = time_works(c, &w, 1);
    w.n_rows = 2 * STEADY_ROWS;
    pimhw_readings twice = time_works(c, &w, 1);
    uint64_t more = twice.commands[PIMHW_CMD_MAC16] - once.commands[PIMHW_CMD_MAC16];
    *macs = (double)more / STEADY_ROWS;
    return (double)(twice.cycles - once.cycles) / STEADY_ROWS;
}

/* Accumulators: what the papers give each controller, or for all what the phase can use. */
typedef enum buffers { OF_PAPERS, EQUAL, N_BUFFERS } buffers;

static const char *const buffer_names[N_BUFFERS] = {"papers", "equal"};

static const uint64_t dims[] = {64, 128, 256}, groups[] = {1, 2, 4, 8};
enum { N_DIMS = 3, N_GROUPS = 4, DIM_128 = 1 };

/* Steady clocks of a row, and its MACs; clocks below 0: cannot be run. */
typedef struct steady {
    double clocks, macs;
} steady;

/* Everything computed, before anything is printed. */
typedef struct results {
    steady of[N_BUFFERS][N_DIMS][N_PHASES][N_GROUPS][CONTROLLERS];
    uint32_t tCCD;
} results;

static void steady_states(results *all)
{
    all->tCCD = channel_of(PIMHW_IN_ORDER).tCCD_S;
    for (int b = 0; b < N_BUFFERS; b++)
        for (int d = 0; d < N_DIMS; d++)
            for (int ph = 0; ph < N_PHASES; ph++)
                for (int g = 0; g < N_GROUPS; g++)
                    for (uint32_t i = 0; i < CONTROLLERS; i++) {
                        pimhw_config c = channel_of(i);
                        uint32_t sums = (uint32_t)(dims[d] / LANES * groups[g]);
                        if (b == EQUAL) c.out_entries = c.obuf;
                        if (b == EQUAL && ph == SV_K && c.obuf < sums) c.out_entries = sums;
                        if (b == EQUAL) c.obuf = c.out_entries;
                        steady *s = &all->of[b][d][ph][g][i];
                        s->clocks = row_clocks(&c, (phase)ph, dims[d], groups[g], &s->macs);
                    }
}

static double utilisation(const results *all, const steady *s)
{
    return s->macs * all->tCCD / s->clocks;
}

/* DCS over ping-pong: the clocks both need for the same MACs of one phase, or of two. */
static double over_ping_pong(const steady one[CONTROLLERS], const steady other[CONTROLLERS])
{
    double ping_pong = one[PIMHW_PING_PONG].clocks / one[PIMHW_PING_PONG].macs;
    double dcs = one[PIMHW_DCS].clocks / one[PIMHW_DCS].macs;
    if (other != NULL) {
        ping_pong += other[PIMHW_PING_PONG].clocks / other[PIMHW_PING_PONG].macs;
        dcs += other[PIMHW_DCS].clocks / other[PIMHW_DCS].macs;
    }
    return ping_pong / dcs;
}

/* The largest ratio over the GQA groups at a head_dim; second phase N_PHASES: none. */
static double largest_ratio(const results *all, buffers b, int d, phase first, phase second)
{
    double largest = 0;
    for (int g = 0; g < N_GROUPS; g++) {
        const steady *other = second == N_PHASES ? NULL : all->of[b][d][second][g];
        largest = fmax(largest, over_ping_pong(all->of[b][d][first][g], other));
    }
    return largest;
}

/* --- Comparisons --------------------------------------------------------------------------- */

/* Ours beside a published figure. */
typedef struct comparison {
    const published *figure;
    char setting[96];
    double ours;
} comparison;

enum { MAX_COMPARISONS = 64 };

typedef struct comparisons {
    comparison at[MAX_COMPARISONS];
    size_t n;
} comparisons;

#ifdef __GNUC__
static void compare(comparisons *list, const char *id, double ours, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
#endif
static void compare(comparisons *list, const char *id, double ours, const char *format, ...)
{
    va_list args;
    comparison *c = &list->at[list->n];
    if (list->n == MAX_COMPARISONS) ex_die("too many comparisons");
    c->figure = published_find(id);
    if (c->figure == NULL) ex_die("no published figure %s", id);
    c->ours = ours;
    va_start(args, format);
    vsnprintf(c->setting, sizeof c->setting, format, args);
    va_end(args);
    list->n++;
}

static void add_instruction(pimhw_program *p, pimhw_kind kind, uint64_t op_size, uint32_t out)
{
    const pimhw_instruction in = {.kind = kind, .mask = 1, .op_size = op_size, .out = out};
    pimhw_program_add(p, &in);
}

/* 128 inputs once; 8 outputs of each bank one after the other, all in one row. */
static void compare_gemv(comparisons *list)
{
    pimhw_config c = channel_of(PIMHW_STATIC_GAPS);
    work w = {.mask = 1, .n_rows = 1, .n_blocks = 1, .turn = 1, .block_queries = 1};
    w.n_inputs = 128 / LANES;
    w.n_steps = 128 / BANKS;
    w.n_columns = w.n_inputs;
    w.column_step = w.n_inputs;
    w.n_outs = c.out_entries;
    pimhw_readings r = time_works(&c, &w, 1);
    compare(list, "ph.f8", 100 * r.mac_utilisation, "%" PRIu64 " clocks", r.cycles);
}

/* W W W M M M R M M M R, rows aside, with gaps that fit the drawing. */
static void compare_drawing(comparisons *list)
{
    static const uint32_t gaps[2][4] = {{1, 6, 6, 5}, {2, 2, 5, 5}};
    pimhw_program p;
    pimhw_program_init(&p);
    add_instruction(&p, PIMHW_WR_GB, 3, 0);
    for (uint32_t out = 0; out < 2; out++) {
        add_instruction(&p, PIMHW_MAC_ABK, 3, out);
        add_instruction(&p, PIMHW_RD_MAC, 1, out);
    }
    for (int i = 0; i < 2; i++) {
        const uint32_t *gap = gaps[i];
        for (int dcs = 0; dcs < 2; dcs++) {
            pimhw_config c = channel_of(dcs ? PIMHW_DCS : PIMHW_STATIC_GAPS);
            c.row_opening = PIMHW_ROW_HIDDEN;
            c.tRCD_MAC = 1;
            c.tBL = c.tCCD_S = c.tCCD_L = c.tCCD_MAC = gap[0];
            c.tWR_INP = gap[1], c.tMAC = gap[2], c.tRD_OUT = gap[3];
            compare(list, dcs ? "ph.f7.dcs" : "ph.f7.static", (double)time_program(&c, &p).cycles,
                    "tCCD %" PRIu32 ", tWR_INP %" PRIu32 ", tMAC %" PRIu32 ", tRD_OUT %" PRIu32,
                    gap[0], gap[1], gap[2], gap[3]);
        }
    }
}

/* Tables of 8 bytes an entry: for that obuf was chosen. */
static void compare_tables(comparisons *list)
{
    pimhw_config c = channel_of(PIMHW_DCS);
    pimhw_program p;
    pimhw_program_init(&p);
    add_instruction(&p, PIMHW_WR_GB, 1, 0);
    compare(list, "ph.meta", (double)time_program(&c, &p).controller_bytes,
            "%" PRIu32 " input and %" PRIu32 " output entries, 8 bytes each", c.in_entries, c.obuf);
}

static void compare_ratios(comparisons *list, const results *all)
{
    for (int b = N_BUFFERS - 1; b >= 0; b--) {
        const char *name = buffer_names[b];
        for (int d = 0; d < N_DIMS; d++)
            compare(list, "ph.f18", largest_ratio(all, (buffers)b, d, QK, SV_A),
                    "QK^T and SV mapping A, head_dim %d, buffers %s", (int)dims[d], name);
        compare(list, "ph.f18", largest_ratio(all, (buffers)b, DIM_128, QK, N_PHASES),
                "QK^T alone, head_dim 128, buffers %s", name);
        compare(list, "ph.f18", largest_ratio(all, (buffers)b, DIM_128, SV_A, N_PHASES),
                "SV mapping A alone, head_dim 128, buffers %s", name);
    }
}

/* What a second buffer saves over static scheduling, in percent. */
static double saved_by_buffering(const work *works, size_t n_works)
{
    pimhw_config before = channel_of(PIMHW_STATIC_GAPS), after = channel_of(PIMHW_PING_PONG);
    after.extra_region = 1;
    uint64_t ck = time_works(&before, works, n_works).cycles;
    return 100 * (1 - (double)time_works(&after, works, n_works).cycles / (double)ck);
}

/* Share of the clocks that go into moving inputs and results, in percent. */
static double transfer_share(const pimhw_readings *r)
{
    static const pimhw_spent of[] = {PIMHW_SPENT_WR_INP, PIMHW_WAIT_INPUT, PIMHW_SPENT_RD_OUT,
                                     PIMHW_WAIT_OUTPUT, PIMHW_WAIT_OPERAND};
    uint64_t sum = 0;
    for (size_t i = 0; i < EX_COUNT(of); i++)
        sum += r->breakdown_ck[of[i]];
    return ex_percent(sum, r->cycles);
}

/* Qwen1.5-7B at the mean length of Musique (to the next row), one head over a module's channels. */
enum { LENGTH = 16384, DIM = 128 };

static void compare_buffering_of_attention(comparisons *list)
{
    pimhw_config c = channel_of(PIMHW_STATIC_GAPS);
    work qk, sv;
    if (!attention_work(&qk, &c, QK, DIM, 1) || !attention_work(&sv, &c, SV_A, DIM, 1))
        ex_die("too few accumulators");
    qk.n_rows = LENGTH / (CHANNELS * BANKS) / (ROW_ELEMENTS / DIM);
    sv.n_rows = LENGTH / (CHANNELS / (DIM / BANKS)) / ROW_ELEMENTS;
    compare(list, "lol.f7.qk", saved_by_buffering(&qk, 1), "%d tokens, %d channels", (int)LENGTH,
            (int)CHANNELS);
    compare(list, "lol.f7.sv", saved_by_buffering(&sv, 1), "the same, mapping A");
    pimhw_readings of_qk = time_works(&c, &qk, 1), of_sv = time_works(&c, &sv, 1);
    compare(list, "lol.f7.io", transfer_share(&of_qk), "QK^T");
    compare(list, "lol.f7.io", transfer_share(&of_sv), "SV mapping A");
}

/*
 * Qwen1.5-7B: FFN1 is gate and up, its outputs split over the modules; FFN2's inputs are. The paper
 * does not say over how many modules, nor how many requests: so several of each.
 */
enum { HIDDEN = 4096, FFN = 11008 };

static void compare_buffering_of_fc(comparisons *list)
{
    static const uint64_t modules[] = {16, 4, 8, 32};
    pimhw_config c = channel_of(PIMHW_STATIC_GAPS);
    for (size_t i = 0; i < EX_COUNT(modules); i++)
        for (uint64_t requests = 1; requests <= 8; requests *= 8) {
            work works[2];
            uint64_t gate_up = up(up(2 * FFN, modules[i]), CHANNELS);
            size_t n = fc_works(works, &c, HIDDEN, gate_up, requests);
            compare(list, "lol.f7.ffn1", saved_by_buffering(works, n),
                    "TP %" PRIu64 ", %" PRIu64 " requests", modules[i], requests);
            n = fc_works(works, &c, up(FFN, modules[i]), up(HIDDEN, CHANNELS), requests);
            compare(list, "lol.f7.ffn2", saved_by_buffering(works, n),
                    "TP %" PRIu64 ", %" PRIu64 " requests", modules[i], requests);
        }
}

/* --- Printing ------------------------------------------------------------------------------ */

static void print_comparisons(const comparisons *list)
{
    printf("%-12s %-10s %10s %10s %12s  %s\n", "figure", "ours is", "ours", "published",
           "difference", "what");
    for (size_t i = 0; i < list->n; i++) {
        const comparison *c = &list->at[i];
        const published *p = c->figure;
        bool again = i > 0 && list->at[i - 1].figure == p;
        printf("%-12s %-10s %10.4g %10.4g %+10.1f %%  %s%s%s (%s)\n", p->id,
               published_kind_str(p->kind), c->ours, p->value, published_shown(p, c->ours),
               again ? ".. " : p->what, again ? "" : ", ", again ? "" : p->unit, c->setting);
    }
}

static void print_line(const results *all, int b, int d, int ph, int g)
{
    const steady *s = all->of[b][d][ph][g];
    printf("%-8s %-16s %8" PRIu64 " %5" PRIu64, buffer_names[b], phase_names[ph], dims[d],
           groups[g]);
    for (int i = 0; i < CONTROLLERS; i++) {
        if (s[i].clocks > 0)
            printf(" %9.3f", utilisation(all, &s[i]));
        else
            printf(" %9s", "-");
    }
    if (s[PIMHW_PING_PONG].clocks > 0 && s[PIMHW_DCS].clocks > 0)
        printf(" %14.2f", over_ping_pong(s, NULL));
    printf("\n");
}

static void print_utilisation(const results *all)
{
    printf("\nMAC utilisation in the steady state, predicted (SV A: any head_dim; -: too few "
           "accumulators)\n");
    printf("%-8s %-16s %8s %5s", "buffers", "phase", "head_dim", "group");
    for (uint32_t i = 0; i < CONTROLLERS; i++)
        printf(" %9s", pimhw_controller_str(i));
    printf(" %14s\n", "dcs/ping-pong");
    for (int b = 0; b < N_BUFFERS; b++)
        for (int d = 0; d < N_DIMS; d++)
            for (int ph = 0; ph < N_PHASES; ph++)
                for (int g = 0; g < N_GROUPS; g++)
                    print_line(all, b, d, ph, g);
}

/* One flat record of the machine-readable forms; a comparison or a utilisation. */
typedef struct record {
    const comparison *compared; /* NULL: utilisation */
    const char *buffers, *phase, *controller;
    uint64_t dim, group;
    double utilisation;
} record;

static void print_csv(const record *r, bool first)
{
    if (first)
        printf("figure,ours_is,ours,published,difference_percent,unit,buffers,phase,head_dim,"
               "gqa_group,controller,setting\n");
    if (r->compared != NULL) {
        const published *p = r->compared->figure;
        printf("%s,%s,%.9g,%.9g,%.3f,%s,,,,,,\"%s\"\n", p->id, published_kind_str(p->kind),
               r->compared->ours, p->value, published_difference(p, r->compared->ours), p->unit,
               r->compared->setting);
        return;
    }
    printf("mac_utilisation,%s,%.9g,,,,%s,\"%s\",%" PRIu64 ",%" PRIu64 ",%s,\n",
           published_kind_str(PUBLISHED_PREDICTED), r->utilisation, r->buffers, r->phase, r->dim,
           r->group, r->controller);
}

static void print_json(const record *r, bool first)
{
    printf("%s{", first ? "" : ",\n ");
    if (r->compared != NULL) {
        const published *p = r->compared->figure;
        printf("\"figure\": \"%s\", \"ours_is\": \"%s\", \"unit\": \"%s\", \"what\": \"%s\", "
               "\"setting\": \"%s\", ",
               p->id, published_kind_str(p->kind), p->unit, p->what, r->compared->setting);
        ex_json_number(stdout, "ours", r->compared->ours);
        printf(", ");
        ex_json_number(stdout, "published", p->value);
        printf(", ");
        ex_json_number(stdout, "difference_percent", published_difference(p, r->compared->ours));
    } else {
        printf("\"figure\": \"mac_utilisation\", \"ours_is\": \"%s\", \"buffers\": \"%s\", "
               "\"phase\": \"%s\", \"head_dim\": %" PRIu64 ", \"gqa_group\": %" PRIu64
               ", \"controller\": \"%s\", ",
               published_kind_str(PUBLISHED_PREDICTED), r->buffers, r->phase, r->dim, r->group,
               r->controller);
        ex_json_number(stdout, "ours", r->utilisation);
    }
    printf("}");
}

typedef void print_record(const record *r, bool first);

static void each_record(const results *all, const comparisons *list, print_record *print)
{
    for (size_t i = 0; i < list->n; i++)
        print(&(record){.compared = &list->at[i]}, i == 0);
    for (int b = 0; b < N_BUFFERS; b++)
        for (int d = 0; d < N_DIMS; d++)
            for (int ph = 0; ph < N_PHASES; ph++)
                for (int g = 0; g < N_GROUPS; g++)
                    for (uint32_t i = 0; i < CONTROLLERS; i++) {
                        const steady *s = &all->of[b][d][ph][g][i];
                        const record r = {.buffers = buffer_names[b],
                                          .phase = phase_names[ph],
                                          .controller = pimhw_controller_str(i),
                                          .dim = dims[d],
                                          .group = groups[g],
                                          .utilisation = utilisation(all, s)};
                        if (s->clocks > 0) print(&r, false);
                    }
}

int main(int argc, char **argv)
{
    bool json = false, csv = false;
    const ex_option options[] = {{.name = "--json", .flag = &json, .help = "everything as JSON"},
                                 {.name = "--csv", .flag = &csv, .help = "everything as CSV"}};
    ex_options(argc, argv,
               "usage: build/predict [options]\n"
               "Figures of papers beside ours, and MAC utilisation under the four controllers.",
               options, EX_COUNT(options), NULL, 0);
    if (json && csv) ex_die("--csv: not together with --json");
    results *all = (results *)ex_alloc(1, sizeof *all);
    comparisons list = {.n = 0};
    steady_states(all);
    compare_gemv(&list);
    compare_drawing(&list);
    compare_tables(&list);
    compare_buffering_of_attention(&list);
    compare_buffering_of_fc(&list);
    compare_ratios(&list, all);
    if (json) {
        printf("{\"schema\": %d, \"records\": [\n ", (int)EX_SCHEMA);
        each_record(all, &list, print_json);
        printf("]}\n");
    } else if (csv) {
        each_record(all, &list, print_csv);
    } else {
        print_comparisons(&list);
        print_utilisation(all);
    }
    free(all);
    return ex_done();
}
