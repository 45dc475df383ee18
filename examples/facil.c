/* facil - one copy of the weights for the host and the units beside the banks, as in FACIL; then
 * what that is worth on FACIL's four platforms, with what the numbers rest on. */
#define EX_NAME "facil"
#define PIMHW_IMPLEMENTATION
#include "pim_hw.h"

#include "common.h"
#include "facil_model.h"
#include "gemv.h"
#include "published.h"

enum { ROWS = 300, COLUMNS = 3000, MOST_FIGURES = 32 };

/* A GEMV by hand: one rank's banks read a row each, a column every so many ns, and change rows. */
enum { HAND_BANKS = 16, HAND_ROW_BYTES = 2048, HAND_READS = 64 };
static const double hand_read_ns = 5, hand_row_ns = 18 + 18 + 60, hand_bus_GBps = 12.8;

/* Lengths of prompts and answers: log-normal. */
static const double prompt_sigma = 0.6, answer_sigma = 0.9, answer_median = 45;
static const double prompt_medians[] = {18, 14}; /* Alpaca, code */

/* A matrix in the device's memory. */
typedef struct shared_matrix {
    pimhw_memory *memory;
    pimhw_placement place;
    unsigned char *bytes; /* row-major, place.stride_bytes from row to row */
    uint64_t rows, columns;
} shared_matrix;

static void must(pimhw_status status, const pimhw_cause *why, const char *what)
{
    if (status != PIMHW_OK) ex_die("%s: %s: %s", what, pimhw_status_str(status), why->text);
}

static shared_matrix matrix_of(const pimhw_config *config, uint64_t rows, uint64_t columns)
{
    shared_matrix m = {.rows = rows, .columns = columns};
    pimhw_cause why = {{0}};
    void *bytes = NULL;
    must(pimhw_memory_create(&m.memory, config, PIMHW_CHUNK_AIM, &why), &why, "memory");
    must(pimhw_map_select(&m.place, pimhw_memory_geometry(m.memory), rows, columns, 2, &why), &why,
         "matrix");
    must(pimhw_alloc(m.memory, &bytes, m.place.bytes, m.place.map_id, &why), &why, "pimhw_alloc");
    m.bytes = (unsigned char *)bytes;
    return m;
}

/* Element i, j; its bits are those of a small whole number in f16. */
static double element(const unsigned char *bytes)
{
    uint16_t bits;
    memcpy(&bits, bytes, sizeof bits);
    double value = ldexp(1 + (bits & 1023) / 1024.0, (bits >> 10 & 31) - 15);
    return bits == 0 ? 0 : bits >> 15 ? -value : value;
}

static void host_writes(const shared_matrix *m)
{
    static const uint16_t numbers[] = {0x0000, 0x3c00, 0x4000, 0x4200, 0xbc00, 0xc000, 0xc200};
    for (uint64_t i = 0; i < m->rows; i++)
        for (uint64_t j = 0; j < m->columns; j++)
            memcpy(m->bytes + i * m->place.stride_bytes + 2 * j,
                   &numbers[(3 * i + 5 * j + i * j / 11) % 7], 2);
}

/* Row i times the vector 1, 2, 3, 1, 2, 3, .. by the host, over the same pointer. */
static double host_row(const shared_matrix *m, uint64_t i)
{
    double sum = 0;
    for (uint64_t j = 0; j < m->columns; j++)
        sum += element(m->bytes + i * m->place.stride_bytes + 2 * j) * (double)(1 + j % 3);
    return sum;
}

/* The vector goes into the hub's registers, the program runs, the host adds the parts of rows. */
static void units_run(pimhw_readings *r, double *sums, pimhw_device *device, const shared_matrix *m,
                      const gemv *v, const pimhw_program *program, const pimhw_request *request)
{
    const pimhw_config *config = pimhw_device_config(device);
    pimhw_cause why = {{0}};
    pimhw_units *units = NULL;
    must(pimhw_units_create(&units, config, m->memory, &why), &why, "units");
    for (uint64_t j = 0; j < m->columns; j++)
        pimhw_units_gpr(units, 0)[j] = pimhw_lane_round(config->lane_type, (float)(1 + j % 3));
    must(pimhw_device_run(device, r, units, program, request, NULL, &why), &why, "program");
    for (uint64_t i = 0; i < m->rows; i++) {
        sums[i] = 0;
        for (uint32_t part = 0; part < v->n_parts; part++) {
            uint32_t bank = 0;
            float sum;
            const uint16_t *block = pimhw_units_gpr(units, (uint32_t)gemv_block(v, i, part, &bank));
            memcpy(&sum, block + 2 * bank, sizeof sum);
            sums[i] += (double)sum;
        }
    }
    pimhw_units_destroy(units);
}

/* The units' GEMV over it. sums: [rows], or NULL: it is timed, not executed. */
static pimhw_readings units_multiply(const pimhw_config *config, const shared_matrix *m,
                                     double *sums)
{
    static pimhw_program program;
    pimhw_cause why = {{0}};
    pimhw_device *device = NULL;
    pimhw_request request;
    pimhw_readings r;
    const pimhw_geometry *g = pimhw_memory_geometry(m->memory);
    gemv v = gemv_of(config, g, &m->place, m->rows, m->columns);
    pimhw_block *blocks = (pimhw_block *)ex_alloc(v.n_pages, sizeof *blocks);
    must(gemv_program(&program, &v, config, &why), &why, "program");
    must(gemv_request(&request, blocks, &v, m->memory, m->bytes, m->rows * m->columns, &why), &why,
         "request");
    must(pimhw_device_create(&device, config, &why), &why, "device");
    if (sums)
        units_run(&r, sums, device, m, &v, &program, &request);
    else
        must(pimhw_device_time(device, &r, &program, &request, NULL, &why), &why, "program");
    pimhw_device_destroy(device);
    free(blocks);
    return r;
}

static void share_one_matrix(const pimhw_config *config)
{
    shared_matrix m = matrix_of(config, ROWS, COLUMNS);
    uint64_t before = pimhw_memory_bytes(m.memory);
    double *sums = (double *)ex_alloc(ROWS, sizeof *sums);
    host_writes(&m);
    pimhw_readings r = units_multiply(config, &m, sums);
    uint64_t n_alike = 0;
    for (uint64_t i = 0; i < m.rows; i++)
        n_alike += host_row(&m, i) == sums[i];
    printf("%d x %d f16 on %s: MapID %" PRIu32 ", %" PRIu32 " parts, stride %" PRIu64
           " bytes, %" PRIu64 " pages\n",
           (int)ROWS, (int)COLUMNS, config->preset, m.place.map_id, m.place.n_parts,
           m.place.stride_bytes, m.place.n_pages);
    printf("  times a vector, by the host over its pointer and by the units in the banks: %" PRIu64
           " of %d sums alike\n",
           n_alike, (int)ROWS);
    printf("  GEMV by the units: %" PRIu64 " clocks, %.1f us; bytes of a second copy: %" PRIu64
           "\n",
           r.cycles, r.ns / 1000, pimhw_memory_bytes(m.memory) - before);
    if (n_alike != m.rows) ex_die("host and units disagree");
    free(sums);
    pimhw_memory_destroy(m.memory);
}

/* --- Figures ------------------------------------------------------------------------------- */

typedef struct figures {
    const published *of[MOST_FIGURES];
    double ours[MOST_FIGURES];
    size_t n;
} figures;

static void figure(figures *list, const char *id, double ours)
{
    list->of[list->n] = published_find(id);
    if (!list->of[list->n] || list->n + 1 == MOST_FIGURES) ex_die("no published figure %s", id);
    list->ours[list->n++] = ours;
}

static void map_figures(figures *list)
{
    pimhw_geometry g = {1, 1, 8, 1, 2048, 32, 1, 2048, 1u << 21};
    pimhw_placement p;
    pimhw_cause why = {{0}};
    uint32_t bound = 0, low = 0, high = 0;
    must(pimhw_map_ids(&g, &bound, NULL, &why), &why, "MapIDs");
    figure(list, "facil.mapid", bound);
    g.n_channels = 2, g.n_banks = 16, g.n_rows = 32;
    must(pimhw_map_select(&p, &g, 16, 65536, 2, &why), &why, "Fig. 10");
    for (uint32_t bit = 21; bit-- > 0;) {
        pimhw_da da;
        must(pimhw_map_da(&da, &g, p.map_id, (uint64_t)1 << bit, &why), &why, "Fig. 10");
        if (da.channel + da.rank + da.bank == 0) continue;
        low = bit;
        if (high == 0) high = bit;
    }
    figure(list, "facil.f10.high", high);
    figure(list, "facil.f10.low", low);
}

/* Geometric means over the platforms and what stands inside. */
static double ttft_over(const facil_times *t, size_t n, facil_way slow, facil_way fast,
                        double median)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        for (int p = 0; p < FACIL_DRAWS; p++) {
            double tokens = facil_length(median, prompt_sigma, p);
            sum += log(facil_ttft(&t[i], slow, tokens) / facil_ttft(&t[i], fast, tokens));
        }
    return exp(sum / (double)(n * FACIL_DRAWS));
}

static double ttlt_over(const facil_times *t, size_t n, facil_way slow, facil_way fast,
                        double median)
{
    double sum = 0;
    for (int p = 0; p < FACIL_DRAWS; p++)
        for (int a = 0; a < FACIL_DRAWS; a++) {
            double tokens = facil_length(median, prompt_sigma, p);
            double answer = facil_length(answer_median, answer_sigma, a);
            for (size_t i = 0; i < n; i++)
                sum += log(facil_ttlt(&t[i], slow, tokens, answer) /
                           facil_ttlt(&t[i], fast, tokens, answer));
        }
    return exp(sum / ((double)n * FACIL_DRAWS * FACIL_DRAWS));
}

static const double prefills[] = {4, 8, 16, 32, 64};

static void time_figures(figures *list, const facil_times t[FACIL_PLATFORMS])
{
    static const struct {
        const char *ttft, *ttlt, *soc;
    } sets[] = {{"facil.f15.alpaca", "facil.f16.alpaca", "facil.f16.soc.alpaca"},
                {"facil.f15.code", "facil.f16.code", "facil.f16.soc.code"}};
    for (size_t i = 0; i < FACIL_PLATFORMS; i++) {
        char id[32];
        double sum = 0;
        for (size_t p = 0; p < EX_COUNT(prefills); p++)
            sum += log(facil_ttft(&t[i], FACIL_STATIC, prefills[p]) /
                       facil_ttft(&t[i], FACIL_SHARED, prefills[p]));
        snprintf(id, sizeof id, "facil.f13.%s", t[i].platform->name);
        figure(list, id, exp(sum / (double)EX_COUNT(prefills)));
    }
    for (size_t i = 0; i < EX_COUNT(sets); i++) {
        double median = prompt_medians[i];
        figure(list, sets[i].ttft, ttft_over(t, FACIL_PLATFORMS, FACIL_STATIC, FACIL_BEST, median));
        figure(list, sets[i].ttlt, ttlt_over(t, FACIL_PLATFORMS, FACIL_STATIC, FACIL_BEST, median));
        figure(list, sets[i].soc, ttlt_over(t, FACIL_PLATFORMS, FACIL_SOC, FACIL_BEST, median));
    }
    /* an ideal NPU is bound by the bus alone, in the prompt too; beside PIM that is the SoC's */
    double read = t[0].weights / t[0].bandwidth, other = facil_other(&t[0]);
    double beside = facil_soc(&t[0], 64) + 63 * facil_pim(&t[0], 1) + 64 * other;
    figure(list, "facil.f3", 64 * (read + other) / beside);
    figure(list, "facil.f6", facil_ttft(&t[0], FACIL_STATIC, 8) / facil_ttft(&t[0], FACIL_SOC, 8));
}

/* --- Readings ------------------------------------------------------------------------------ */

/* Bandwidth of the units in a GEMV of the platform over that of its bus; the banks of one rank. */
static double timed_k(const pimhw_config *config, uint32_t controller, bool both_ranks)
{
    pimhw_config c = *config;
    c.controller = controller;
    if (!both_ranks) c.n_bank_groups /= c.n_ranks, c.n_ranks = 1;
    shared_matrix m = matrix_of(&c, 4096, 4096);
    pimhw_readings r = units_multiply(&c, &m, NULL);
    pimhw_memory_destroy(m.memory);
    return 2.0 * 4096 * 4096 / r.ns * 1e3 / c.link_MBps;
}

/* Bytes of a platform's weights as placed, row strides padded. */
static double placed_bytes(const facil_platform *platform, const pimhw_config *config)
{
    pimhw_geometry g;
    pimhw_cause why = {{0}};
    double bytes = 0;
    must(pimhw_geometry_init(&g, config, PIMHW_CHUNK_AIM, &why), &why, platform->name);
    for (int i = 0; i < FACIL_MATRICES; i++) {
        const facil_matrix *m = &platform->matrices[i];
        pimhw_placement p;
        if (m->rows == 0) continue;
        must(pimhw_map_select(&p, &g, m->rows, m->columns, 2, &why), &why, platform->name);
        bytes += (double)p.bytes * m->times;
    }
    return bytes;
}

static void print_platform(const facil_times *t, const pimhw_config *c)
{
    double placed = placed_bytes(t->platform, c);
    printf("\n%s, %s: %.2f GB of weights, %.1f GB/s\n", t->platform->name, t->platform->model,
           t->weights / 1e9, t->bandwidth / 1e9);
    printf(
        "  shared: padding %.2f GB (%.1f %%); duplicated: %.2f GB more; re-layout: %.2f GB moved, "
        "%.0f ms a prompt\n",
        (placed - t->weights) / 1e9, 100 * (placed / t->weights - 1), t->weights / 1e9,
        2 * t->weights / 1e9, 1e3 * facil_relayout(t));
    printf("  k of a timed 4096 x 4096 GEMV: one rank %.2f in-order, %.2f dcs; both ranks %.2f, "
           "%.2f; used: %.2f\n",
           timed_k(c, PIMHW_IN_ORDER, false), timed_k(c, PIMHW_DCS, false),
           timed_k(c, PIMHW_IN_ORDER, true), timed_k(c, PIMHW_DCS, true), t->by.k);
    printf("  TTFT, ms %8s %8s %8s %8s %8s\n", "static", "dynamic", "SoC only", "FACIL", "or PIM");
    for (size_t p = 0; p < EX_COUNT(prefills); p++) {
        printf("  %8.0f", prefills[p]);
        for (int way = 0; way < FACIL_WAYS; way++)
            printf(" %8.1f", 1e3 * facil_ttft(t, (facil_way)way, prefills[p]));
        printf("\n");
    }
}

static void print_assumptions(const facil_constants *by)
{
    printf(
        "What the times rest on:\n"
        "  exact       weights, peaks, u, slowdown: FACIL's Table II, III, VI-C\n"
        "  counted     k %.2f: one rank's %d banks of %d bytes in %d reads at %g ns, %g ns of row\n"
        "  assumed     other: a ninth of the weights' time, FACIL's \"linear is more than 90 %%\"\n"
        "  calibrated  e %.2f of the bandwidth for re-layout; eta %.2f of the peak for GEMM\n"
        "  assumed     prefills of Fig. 13:",
        by->k, (int)HAND_BANKS, (int)HAND_ROW_BYTES, (int)HAND_READS, hand_read_ns, hand_row_ns,
        by->e, by->eta);
    for (size_t p = 0; p < EX_COUNT(prefills); p++)
        printf(" %g", prefills[p]);
    printf(" tokens\n  calibrated  prompts log-normal, sigma %g, medians %g and %g (code); answers "
           "%g, %g\n",
           prompt_sigma, prompt_medians[0], prompt_medians[1], answer_median, answer_sigma);
}

static void print_json(const figures *list)
{
    printf("{\"schema\": %d, \"figures\": [\n ", (int)EX_SCHEMA);
    for (size_t i = 0; i < list->n; i++) {
        const published *p = list->of[i];
        printf("%s{\"figure\": \"%s\", \"ours_is\": \"%s\", \"unit\": \"%s\", \"what\": \"%s\", ",
               i ? ",\n " : "", p->id, published_kind_str(p->kind), p->unit, p->what);
        ex_json_number(stdout, "ours", list->ours[i]);
        printf(", ");
        ex_json_number(stdout, "published", p->value);
        printf(", ");
        ex_json_number(stdout, "bound_percent", p->bound < 0 ? HUGE_VAL : p->bound);
        if (p->bound >= 0)
            printf(", \"holds\": %s", published_holds(p, list->ours[i]) ? "true" : "false");
        printf("}");
    }
    printf("]}\n");
}

int main(int argc, char **argv)
{
    bool json = false;
    const ex_option options[] = {{.name = "--json", .flag = &json, .help = "figures as JSON"}};
    ex_options(argc, argv,
               "usage: build/facil [options]\n"
               "One copy of the weights for host and units; TTFT and TTLT beside FACIL's.",
               options, EX_COUNT(options), NULL, 0);
    const facil_constants by = {0.75, 0.40,
                                HAND_BANKS * HAND_ROW_BYTES /
                                    (HAND_READS * hand_read_ns + hand_row_ns) / hand_bus_GBps};
    pimhw_config c[FACIL_PLATFORMS];
    facil_times t[FACIL_PLATFORMS];
    figures list = {.n = 0};
    for (size_t i = 0; i < FACIL_PLATFORMS; i++) {
        ex_device(&c[i], facil_platforms[i].preset, 0, NULL);
        t[i] = facil_times_of(&facil_platforms[i], c[i].link_MBps * 1e6, by);
    }
    map_figures(&list);
    time_figures(&list, t);
    if (json) {
        print_json(&list);
        return ex_done();
    }
    pimhw_config iphone = c[FACIL_PLATFORMS - 1];
    iphone.out_bits = 32; /* sums as the units have them */
    share_one_matrix(&iphone);
    for (size_t i = 0; i < FACIL_PLATFORMS; i++)
        print_platform(&t[i], &c[i]);
    printf("\n");
    print_assumptions(&by);
    for (size_t i = 0; i < list.n; i++)
        published_print(stdout, list.of[i], list.ours[i]);
    return ex_done();
}
