/* The controllers static, ping-pong and DCS, in-order on streams of its own, and refresh under all
 * four: random streams on random devices, of which the library's listing must be that of queues.h
 * command by command: clock, command, row, operands; and cycles, counts and breakdown. */
#define PIMHW_IMPLEMENTATION
#include "pim_hw.h"

#include "checker.h"
#include "queues.h"

enum { MOST = 400, STREAMS = 12000 };

static queues oracle;
static checker own;
static pimhw_instruction stream[MOST];
static size_t n_stream;
static uint64_t n_compared[4][PIMHW_N_COMMANDS], n_reasons[4][PIMHW_N_SPENT];

/* --------------------------------------------------------------------------
 * The comparison.
 * -------------------------------------------------------------------------- */

typedef struct judge {
    int n[Q_CHANNELS];
    bool differs;
    pimhw_event first; /* that differs */
    q_event want;
} judge;

/* Operands are told of the commands that use them. */
static bool same_event(const pimhw_event *is, const q_event *want)
{
    uint32_t command = want->command;
    bool tile = command == PIMHW_CMD_WRGB || command == PIMHW_CMD_MAC16;
    bool out =
        command == PIMHW_CMD_WRMAC16 || command == PIMHW_CMD_MAC16 || command == PIMHW_CMD_RDMAC16;
    bool reason = oracle.config.controller == PIMHW_IN_ORDER || is->reason == want->reason;
    return is->issue_ck == want->ck && (uint32_t)is->command == command && is->bank == want->bank &&
           is->row == want->row && (!tile || is->tile == want->tile) &&
           (!out || is->out == want->out) &&
           (command != PIMHW_CMD_MAC16 || is->column == want->column) && reason;
}

static void judge_event(void *user, const pimhw_event *e)
{
    static const q_event nothing = {.command = PIMHW_N_COMMANDS};
    judge *j = (judge *)user;
    const q_channel *ch = &oracle.channels[e->channel];
    checker_event(&own, e);
    int at = j->n[e->channel]++;
    const q_event *want = at < ch->n_events ? &ch->events[at] : &nothing;
    n_compared[oracle.config.controller][e->command]++;
    n_reasons[oracle.config.controller][e->reason]++;
    if (j->differs || same_event(e, want)) return;
    j->differs = true;
    j->first = *e;
    j->want = *want;
}

static void explain(const judge *j)
{
    const pimhw_event *e = &j->first;
    const q_event *w = &j->want;
    if (!j->differs) return;
    printf("  channel %u: %s at %llu, bank %u row %u tile %u out %u, %s\n", e->channel,
           pimhw_command_str(e->command), (unsigned long long)e->issue_ck, e->bank, e->row, e->tile,
           e->out, pimhw_spent_str(e->reason));
    printf("  oracle:    %s at %llu, bank %u row %u tile %u out %u, %s\n",
           pimhw_command_str((pimhw_command)w->command), (unsigned long long)w->ck, w->bank,
           (unsigned)w->row, w->tile, w->out, pimhw_spent_str((pimhw_spent)w->reason));
}

static void list_stream(void)
{
    static const char *const kinds[] = {
        "WR_GB",     "WR_BIAS",   "MAC_ABK", "RD_MAC", "MAC_SBK", "EWMUL",   "AF",     "RD_AF",
        "COPY_BKGB", "COPY_GBBK", "WR_SBK",  "RD_SBK", "WR_ABK",  "MEM_WR",  "MEM_RD", "EWADD",
        "GPR",       "CFR",       "SYNC",    "EOC",    "EPU",     "EPU_WAIT"};
    for (size_t i = 0; i < n_stream; i++)
        printf("    %s mask %llx n %llu bank %u row %u tile %u out %u\n",
               kinds[stream[i].kind - PIMHW_WR_GB], (unsigned long long)stream[i].mask,
               (unsigned long long)stream[i].op_size, stream[i].bank, stream[i].row, stream[i].tile,
               stream[i].out);
}

/* A device that the oracle takes for another: what must be noticed. */
typedef struct mistake {
    uint32_t controller;
    const char *field; /* NULL: of the oracle itself */
    uint32_t more, modulo;
    int queue;        /* fewer places in a queue of DCS */
    uint32_t records; /* fewer records in a phase of ping-pong */
} mistake;

static void oracle_runs(const pimhw_config *c, const mistake *m)
{
    pimhw_config other = *c;
    uint32_t value = 0;
    if (m && m->field) {
        CHECK_U(pimhw_config_get(c, m->field, &value, NULL), PIMHW_OK);
        value = m->modulo ? (value + m->more) % m->modulo : value + m->more;
        CHECK_U(pimhw_config_set(&other, m->field, value, NULL), PIMHW_OK);
    }
    queues_begin(&oracle, &other);
    if (m) oracle.queue -= m->queue, oracle.records -= m->records;
    for (size_t i = 0; i < n_stream; i++)
        queues_submit(&oracle, &stream[i]);
    queues_finish(&oracle);
}

/* Runs the stream on both; with a mistake without a word if they differ. */
static bool agrees(const pimhw_config *c, const mistake *m)
{
    static judge j;
    pimhw_device *device;
    pimhw_sink sink = {judge_event, &j, NULL};
    pimhw_readings r;
    pimhw_cause why = {""};
    memset(&j, 0, sizeof j);
    checker_begin(&own, c);
    oracle_runs(c, m);
    bool ok = pimhw_device_create(&device, c, &why) == PIMHW_OK;
    ok = ok && pimhw_device_begin(device, &sink) == PIMHW_OK;
    for (size_t i = 0; i < n_stream && ok; i++)
        ok = pimhw_device_submit(device, &stream[i], &why) == PIMHW_OK;
    ok = ok && pimhw_device_finish(device, &r, &why) == PIMHW_OK;
    pimhw_device_destroy(device);
    if (!ok) return CHECK_STR(why.text, "a stream that the device takes");
    checker_end(&own, &r);
    ok = (m || !own.fault) && !j.differs && r.cycles == oracle.cycles && r.epu_ck == oracle.epu_ck;
    for (uint32_t i = 0; i < c->n_channels; i++)
        ok &= j.n[i] == oracle.channels[i].n_events;
    ok &= memcmp(r.commands, oracle.commands, sizeof r.commands) == 0;
    if (c->controller != PIMHW_IN_ORDER)
        ok &= memcmp(r.breakdown_ck, oracle.breakdown_ck, sizeof r.breakdown_ck) == 0;
    ok &= r.critical_channel == oracle.critical || r.cycles == 0;
    if (ok || m) return ok;
    CHECK_U(r.cycles, oracle.cycles);
    CHECK_U(r.epu_ck, oracle.epu_ck);
    CHECK_U(r.critical_channel, oracle.critical);
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        CHECK_U(r.commands[i], oracle.commands[i]);
    for (int i = 0; i < PIMHW_N_SPENT && c->controller != PIMHW_IN_ORDER; i++)
        CHECK_U(r.breakdown_ck[i], oracle.breakdown_ck[i]);
    explain(&j);
    CHECK(checker_agrees(&own, "listing"));
    bool same_listing = false;
    return CHECK(same_listing);
}

/* --------------------------------------------------------------------------
 * Random devices.
 * -------------------------------------------------------------------------- */

static uint32_t draw(check_rng *rng, uint32_t n)
{
    return (uint32_t)rng_range(rng, 0, n - 1);
}

static void odd_clocks(check_rng *rng, pimhw_config *c)
{
    uint32_t *const ck[] = {&c->tBL,        &c->tCCD_S,  &c->tCCD_L,    &c->tCCD_MAC,  &c->tRCD_MAC,
                            &c->tRCD_EWMUL, &c->tRCD_AF, &c->tRCD_RDCP, &c->tRCD_WRCP, &c->tRP,
                            &c->tRAS,       &c->tRTP,    &c->tWTR_S,    &c->tWTR_L,    &c->tCL,
                            &c->tCWL,       &c->tWR,     &c->tRRD_S,    &c->tRRD_L,    &c->tMTW,
                            &c->tWR_INP,    &c->tMAC,    &c->tRD_OUT,   &c->tCL_MAC,   &c->tCL_REG,
                            &c->tCWL_REG,   &c->tCWL_GB, &c->tWPRE};
    for (size_t i = 0; i < sizeof ck / sizeof *ck; i++)
        if (draw(rng, 2)) *ck[i] = 1 + draw(rng, 1 + draw(rng, 60));
    rules_long_not_shorter(c);
    if (c->tRAS < c->tRCD_RD) c->tRAS = c->tRCD_RD; /* the check asks for it */
    if (c->tRAS < c->tRCD_WR) c->tRAS = c->tRCD_WR;
    c->tRC = c->tRAS + draw(rng, 60);
    c->tMOD = draw(rng, 4) ? 1 + draw(rng, 40) : 0;
}

/* Refresh as often as the check lets it. */
static void often_refreshed(check_rng *rng, pimhw_config *c)
{
    c->refresh = 1;
    if (draw(rng, 2)) c->tRFC = 1 + draw(rng, 100);
    c->tREFI = rules_least_tREFI(*c) + (draw(rng, 2) ? draw(rng, 400) : 0);
    c->refresh_phase = 1 + draw(rng, c->tREFI);
}

static pimhw_config random_device(check_rng *rng)
{
    pimhw_config c;
    uint32_t n_presets = 0;
    while (pimhw_preset_name(n_presets))
        n_presets++;
    pimhw_config_init(&c, pimhw_preset_name(draw(rng, n_presets - 1)), NULL); /* the last: flash */
    c.controller = draw(rng, 4);
    c.n_channels = 1 + draw(rng, draw(rng, 3) ? 1 : Q_CHANNELS);
    c.front_end = c.controller == PIMHW_IN_ORDER ? PIMHW_PER_CHANNEL : draw(rng, 2);
    c.in_entries = 4 + draw(rng, 61);
    c.out_entries = 1 + draw(rng, 8);
    if (c.controller == PIMHW_PING_PONG && c.out_entries == 1) c.out_entries = 8;
    c.obuf = 1 + draw(rng, 8);
    c.row_opening = draw(rng, 3);
    c.extra_region = draw(rng, 2);
    c.early_tiles = draw(rng, 2);
    c.is_mac = draw(rng, 4) > 0;
    c.refresh = 0;
    if (draw(rng, 2)) odd_clocks(rng, &c);
    if (draw(rng, 2)) often_refreshed(rng, &c);
    return c;
}

/* --------------------------------------------------------------------------
 * Random streams.
 * -------------------------------------------------------------------------- */

/* What a stream is made of: weights of kinds, how many tiles, outputs and rows it uses. */
typedef struct recipe {
    check_rng rng;
    const pimhw_config *c;
    uint32_t weight[PIMHW_N_KINDS], n_tiles, n_outs, n_rows, most, n_pending;
    uint64_t epu_mask;
} recipe;

static void put(recipe *p, pimhw_kind kind, uint64_t op_size)
{
    check_rng *rng = &p->rng;
    uint64_t all = (UINT64_C(1) << p->c->n_channels) - 1;
    uint32_t columns = pimhw_config_columns(p->c);
    pimhw_instruction in = {.kind = kind, .op_size = op_size};
    if (n_stream == MOST) return;
    in.mask = draw(rng, 3) ? all : UINT64_C(1) << draw(rng, p->c->n_channels);
    in.out = draw(rng, p->n_outs);
    in.row = draw(rng, p->n_rows);
    in.bank = draw(rng, 3) ? draw(rng, 3) : draw(rng, pimhw_config_banks(p->c));
    if (op_size < columns) in.column = draw(rng, columns - (uint32_t)op_size);
    in.tile = p->n_tiles > op_size ? draw(rng, p->n_tiles - (uint32_t)op_size + 1) : 0;
    if (kind == PIMHW_WR_ABK) in.mask = UINT64_C(1) << draw(rng, p->c->n_channels);
    if (kind == PIMHW_CFR) in.out = 1, in.aux = 2, in.gpr = draw(rng, 2);
    if (kind == PIMHW_EPU || kind == PIMHW_EPU_WAIT) in.mask = p->epu_mask;
    if (kind == PIMHW_EPU) in.flags = PIMHW_AWAITED;
    stream[n_stream++] = in;
}

static void put_any(recipe *p)
{
    uint32_t total = 0, kind = 0;
    for (int i = 0; i < PIMHW_N_KINDS; i++)
        total += p->weight[i];
    for (uint32_t at = draw(&p->rng, total); at >= p->weight[kind]; kind++)
        at -= p->weight[kind];
    if (kind == PIMHW_EWMUL && p->c->n_group_banks < 3) kind = PIMHW_MAC_ABK;
    if (kind == PIMHW_EPU && p->n_pending == 3) kind = PIMHW_EPU_WAIT;
    if (kind == PIMHW_EPU_WAIT && p->n_pending == 0) kind = PIMHW_EPU;
    p->n_pending += kind == PIMHW_EPU;
    p->n_pending -= kind == PIMHW_EPU_WAIT;
    bool sized = kind == PIMHW_WR_GB || kind == PIMHW_MAC_ABK || kind == PIMHW_MAC_SBK ||
                 kind == PIMHW_EWMUL || kind == PIMHW_COPY_BKGB || kind == PIMHW_COPY_GBBK;
    uint32_t columns = pimhw_config_columns(p->c);
    uint32_t most = p->most < columns ? p->most : columns;
    if (most > p->n_tiles) most = p->n_tiles;
    uint64_t op_size = sized ? 1 + draw(&p->rng, 1 + draw(&p->rng, most)) : 1;
    if (kind == PIMHW_EPU) op_size = draw(&p->rng, 2) ? 0 : draw(&p->rng, 40000);
    if (kind == PIMHW_EPU && op_size == 0) op_size = 1 + draw(&p->rng, 300);
    put(p, (pimhw_kind)kind, op_size);
}

/* One bias or input after the other, or one result: more than a phase holds. */
static void put_many(recipe *p)
{
    static const pimhw_kind kinds[4] = {PIMHW_WR_GB, PIMHW_WR_BIAS, PIMHW_RD_MAC, PIMHW_MAC_ABK};
    pimhw_kind kind = kinds[draw(&p->rng, 4)];
    for (uint32_t i = 50 + draw(&p->rng, 100); i > 0; i--)
        put(p, kind, 1);
}

static void random_stream(recipe *p)
{
    check_rng *rng = &p->rng;
    uint32_t outs = pimhw_config_outs(p->c), style = draw(rng, 8);
    memset(p->weight, 0, sizeof p->weight);
    p->n_tiles = draw(rng, 2) ? p->c->in_entries : 1 + draw(rng, p->c->in_entries);
    p->n_outs = draw(rng, 2) ? outs : 1 + draw(rng, outs);
    p->n_rows = 1 + draw(rng, 3);
    p->most = draw(rng, 2) ? 4 : 64;
    p->n_pending = 0;
    p->epu_mask = draw(rng, 2) ? 1 : (UINT64_C(1) << p->c->n_channels) - 1;
    for (int i = PIMHW_WR_GB; i <= PIMHW_RD_MAC; i++)
        p->weight[i] = 1 + draw(rng, 20);
    p->weight[PIMHW_WR_BIAS] = draw(rng, 2) ? 0 : draw(rng, 10);
    for (int i = PIMHW_MAC_SBK; i <= PIMHW_RD_AF && style < 5; i++)
        p->weight[i] = draw(rng, 2) ? 0 : draw(rng, 10);
    for (int i = PIMHW_COPY_BKGB; i <= PIMHW_EPU_WAIT && style < 3; i++)
        p->weight[i] = draw(rng, 3) ? 0 : draw(rng, 5);
    p->weight[PIMHW_EOC] = 0;
    if (style < 3) p->weight[PIMHW_EPU] = p->weight[PIMHW_EPU_WAIT] = draw(rng, 3);
    n_stream = 0;
    uint32_t n = draw(rng, 100) ? 1 + draw(rng, p->most == 4 ? 120 : 40) : MOST;
    for (uint32_t i = 0; i < n; i++)
        put_any(p);
    if (draw(rng, 8) == 0) put_many(p);
    for (uint32_t i = draw(rng, 10); i > 0; i--)
        put_any(p);
}

static pimhw_config random_run(uint64_t seed)
{
    static pimhw_config c;
    recipe p = {.rng = {seed}};
    c = random_device(&p.rng);
    p.c = &c;
    random_stream(&p);
    return c;
}

static uint64_t first = 1, last = STREAMS;

static void streams_agree(void)
{
    for (uint64_t seed = first; seed <= last; seed++) {
        pimhw_config c = random_run(seed);
        unsigned before = check_now.n_errors;
        if (first == last) list_stream();
        if (agrees(&c, NULL) || before >= CHECK_PRINTED) continue;
        printf("  stream %llu, %s, %s%s\n", (unsigned long long)seed, c.preset,
               pimhw_controller_str(c.controller), c.refresh ? ", refresh" : "");
    }
}

/* After the streams: none of the commands is rare, nor a reason that can be. */
static void streams_hold_everything(void)
{
    for (uint32_t controller = 0; controller < 4; controller++) {
        for (int i = 0; i < PIMHW_N_COMMANDS; i++) {
            bool never = i == PIMHW_CMD_TMOD && controller != PIMHW_IN_ORDER;
            uint64_t n = n_compared[controller][i];
            if (!CHECK(never ? n == 0 : n > 100))
                printf("  %s, %s\n", pimhw_controller_str(controller),
                       pimhw_command_str((pimhw_command)i));
        }
        for (int i = PIMHW_WAIT_INPUT; i < PIMHW_WAIT_DRAIN; i++)
            if (!CHECK(n_reasons[controller][i] > 100))
                printf("  %s, %s\n", pimhw_controller_str(controller),
                       pimhw_spent_str((pimhw_spent)i));
    }
}

/* One number more, or another setting: some of the streams tell. */
static void mistakes_are_noticed(void)
{
    static const mistake mistakes[] = {{PIMHW_IN_ORDER, "tRFC", 1, 0, 0, 0},
                                       {PIMHW_IN_ORDER, "tREFI", 1, 0, 0, 0},
                                       {PIMHW_IN_ORDER, "tRTP", 1, 0, 0, 0},
                                       {PIMHW_IN_ORDER, "tMOD", 1, 0, 0, 0},
                                       {PIMHW_IN_ORDER, "tMTW", 1, 0, 0, 0},
                                       {PIMHW_STATIC_GAPS, "tWR_INP", 1, 0, 0, 0},
                                       {PIMHW_STATIC_GAPS, "tMAC", 1, 0, 0, 0},
                                       {PIMHW_STATIC_GAPS, "tRD_OUT", 1, 0, 0, 0},
                                       {PIMHW_STATIC_GAPS, "row_opening", 1, 3, 0, 0},
                                       {PIMHW_STATIC_GAPS, "row_opening", 2, 3, 0, 0},
                                       {PIMHW_STATIC_GAPS, "tRAS", 1, 0, 0, 0},
                                       {PIMHW_STATIC_GAPS, "refresh_phase", 1, 0, 0, 0},
                                       {PIMHW_PING_PONG, "tWR_INP", 1, 0, 0, 0},
                                       {PIMHW_PING_PONG, "tMAC", 1, 0, 0, 0},
                                       {PIMHW_PING_PONG, "tRD_OUT", 1, 0, 0, 0},
                                       {PIMHW_PING_PONG, "in_entries", 2, 0, 0, 0},
                                       {PIMHW_PING_PONG, "out_entries", 2, 0, 0, 0},
                                       {PIMHW_PING_PONG, "extra_region", 1, 2, 0, 0},
                                       {PIMHW_PING_PONG, "refresh", 1, 2, 0, 0},
                                       {PIMHW_PING_PONG, "tRP", 1, 0, 0, 0},
                                       {PIMHW_PING_PONG, NULL, 0, 0, 0, 1},
                                       {PIMHW_DCS, "tWR_INP", 1, 0, 0, 0},
                                       {PIMHW_DCS, "tMAC", 1, 0, 0, 0},
                                       {PIMHW_DCS, "tRD_OUT", 1, 0, 0, 0},
                                       {PIMHW_DCS, "early_tiles", 1, 2, 0, 0},
                                       {PIMHW_DCS, "is_mac", 1, 2, 0, 0},
                                       {PIMHW_DCS, "tRFC", 1, 0, 0, 0},
                                       {PIMHW_DCS, "tREFI", 1, 0, 0, 0},
                                       {PIMHW_DCS, "tRC", 1, 0, 0, 0},
                                       {PIMHW_DCS, "tCCD_L", 1, 0, 0, 0},
                                       {PIMHW_DCS, "tRCD_AF", 1, 0, 0, 0},
                                       {PIMHW_DCS, NULL, 0, 0, 1, 0}};
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const mistake *m = &mistakes[i];
        bool noticed = false;
        for (uint64_t seed = first; seed <= last && !noticed; seed++) {
            pimhw_config c = random_run(seed);
            noticed = c.controller == m->controller && !agrees(&c, m);
        }
        if (!CHECK(noticed))
            printf("  %s: %s\n", pimhw_controller_str(m->controller),
                   m->field ? m->field : "limit");
    }
}

/* With a number: that stream only, and what is in it. */
int main(int argc, char **argv)
{
    if (argc > 1) first = last = strtoull(argv[1], NULL, 10);
    RUN(streams_agree);
    if (argc > 1) return check_end();
    RUN(streams_hold_everything);
    RUN(mistakes_are_noticed);
    return check_end();
}
