/* Other simulators' devices under our in-order controller: AttAcc's HBM3 (attention of one head)
 * and Samsung's HBM2 (a GEMV), against the clocks those simulators gave. The published numbers and
 * the bounds are in examples/published.h. */
#define PIMHW_IMPLEMENTATION
#include "pim_hw.h"

#include "check.h"
#include "examples/published.h"

enum { LANES = 16, ROW_COLUMNS = 32, HEAD_COLUMNS = 128 / LANES };
enum { SLOTS = ROW_COLUMNS / HEAD_COLUMNS, BANKS = 64, ROW_TOKENS = SLOTS * BANKS };
enum { BATCH_ROWS = 16, ENTRIES = BATCH_ROWS * SLOTS }; /* scores in the accumulators at a time */
enum { P_ROWS = 4 }; /* rows of V that one global buffer serves */

/* What a listing shows: counts, and whether the clocks a row needs were kept. */
typedef struct listing {
    const pimhw_config *c;
    uint64_t last_ck[PIMHW_N_COMMANDS], count[PIMHW_N_COMMANDS], n_switches, end_ck, n_early;
    bool open;
} listing;

static void listing_after(listing *l, const pimhw_event *e, pimhw_command earlier, uint64_t clocks)
{
    if (l->count[earlier] && e->issue_ck < l->last_ck[earlier] + clocks) l->n_early++;
}

static void listing_event(void *user, const pimhw_event *e)
{
    listing *l = (listing *)user;
    if (e->channel != 0) return;
    switch (e->command) {
    case PIMHW_CMD_ACT16:
        l->n_early += l->open;
        l->n_switches += l->count[PIMHW_CMD_PREA] > 0;
        l->open = true;
        listing_after(l, e, PIMHW_CMD_PREA, l->c->tRP);
        listing_after(l, e, PIMHW_CMD_ACT16, l->c->tRC);
        break;
    case PIMHW_CMD_PREA:
        l->n_early += !l->open;
        l->open = false;
        listing_after(l, e, PIMHW_CMD_MAC16, l->c->tRTP);
        listing_after(l, e, PIMHW_CMD_ACT16, l->c->tRAS);
        break;
    case PIMHW_CMD_MAC16:
        l->n_early += !l->open;
        listing_after(l, e, PIMHW_CMD_ACT16, l->c->tRCD_MAC);
        listing_after(l, e, PIMHW_CMD_MAC16, l->c->tCCD_MAC);
        l->end_ck = e->issue_ck + l->c->tCL_MAC;
        break;
    case PIMHW_CMD_RDMAC16: listing_after(l, e, PIMHW_CMD_MAC16, l->c->tCCD_L); break;
    case PIMHW_CMD_WRGB: listing_after(l, e, PIMHW_CMD_MAC16, l->c->tMTW); break;
    case PIMHW_CMD_REF:
        l->n_early += l->open;
        listing_after(l, e, PIMHW_CMD_PREA, l->c->tRP);
        break;
    default: break;
    }
    listing_after(l, e, PIMHW_CMD_REF, l->c->tRFC);
    l->last_ck[e->command] = e->issue_ck;
    l->count[e->command]++;
}

static pimhw_config peer(const char *preset, uint32_t n_channels, bool refresh)
{
    pimhw_config c;
    CHECK_U(pimhw_config_init(&c, preset, NULL), PIMHW_OK);
    c.n_channels = n_channels;
    c.refresh = refresh;
    CHECK_U(c.controller, PIMHW_IN_ORDER);
    return c;
}

/* The clocks of a program; its listing in *l. */
static uint64_t clocks_of(const pimhw_config *c, const pimhw_program *program,
                          const pimhw_request *request, listing *l)
{
    pimhw_device *device = NULL;
    pimhw_readings walked = {0}, r = {0};
    pimhw_cause why = {""};
    memset(l, 0, sizeof *l);
    l->c = c;
    pimhw_sink sink = {listing_event, l, NULL};
    bool ok = CHECK_U(pimhw_device_create(&device, c, &why), PIMHW_OK);
    ok = ok && CHECK_U(pimhw_device_time(device, &r, program, request, NULL, &why), PIMHW_OK);
    ok = ok && CHECK_U(pimhw_device_time(device, &walked, program, request, &sink, &why), PIMHW_OK);
    if (!ok) printf("  %s\n", why.text);
    pimhw_device_destroy(device);
    CHECK_U(walked.cycles, r.cycles);
    CHECK_U(l->n_early, 0);
    return r.cycles;
}

/* --- AttAcc: one head a channel, its 64 banks in lock step ---------------------------------
 *
 * K: a row of a bank holds 4 tokens of 8 columns, so 256 tokens a row of the channel and an
 * accumulator a token; V: the same rows hold 256 tokens of two dimensions, 16 columns each. The
 * query lies in the global buffer and the softmax gives p back without a clock, as there.
 */

enum { THE_LIST, BATCH, ROW, SLOT }; /* loops, by depth */

/* ceil(left / unit) of the block's tokens, at most so many. */
static uint8_t rest_of(pimhw_program *p, uint64_t most, pimhw_tail tail)
{
    pimhw_operand o = {.base = most};
    tail.rest = 1;
    o.tail[0] = pimhw_program_tail(p, &tail);
    return pimhw_program_operand(p, &o);
}

static uint8_t steps_of(pimhw_program *p, uint64_t batch, uint64_t row, uint64_t slot)
{
    pimhw_operand o = {.step = {0, batch, row, slot}};
    return pimhw_program_operand(p, &o);
}

enum { MANY = 1 << 20 }; /* rounds, before the tokens are looked at */

/* Scores of all tokens, a batch after the other: MACs of up to 16 rows, then their accumulators. */
static void add_k_phase(pimhw_program *p, uint64_t mask)
{
    const uint64_t batch = (uint64_t)BATCH_ROWS * ROW_TOKENS;
    pimhw_program_loop(p, rest_of(p, MANY, (pimhw_tail){.unit = batch}), mask);
    pimhw_program_loop(
        p, rest_of(p, BATCH_ROWS, (pimhw_tail){.unit = ROW_TOKENS, .step = {0, batch}}), mask);
    pimhw_tail slots = {.unit = BANKS, .step = {0, batch, ROW_TOKENS}};
    pimhw_program_loop(p, rest_of(p, SLOTS, slots), mask);
    pimhw_program_item(p, &(pimhw_item){.kind = PIMHW_MAC_ABK,
                                        .mask = mask,
                                        .op_size = pimhw_program_const(p, HEAD_COLUMNS),
                                        .row = steps_of(p, BATCH_ROWS, 1, 0),
                                        .column = steps_of(p, 0, 0, HEAD_COLUMNS),
                                        .out = steps_of(p, 0, SLOTS, 1)});
    pimhw_program_end(p);
    pimhw_program_end(p);
    pimhw_program_loop(p, rest_of(p, ENTRIES, (pimhw_tail){.unit = BANKS, .step = {0, batch}}),
                       mask);
    pimhw_program_item(
        p, &(pimhw_item){.kind = PIMHW_RD_MAC, .mask = mask, .out = steps_of(p, 0, 1, 0)});
    pimhw_program_end(p);
    pimhw_program_end(p);
}

/* Two dimensions a bank: each row's columns of the one, then of the other. */
static void add_v_phase(pimhw_program *p, uint64_t mask)
{
    const uint64_t strip = (uint64_t)P_ROWS * ROW_TOKENS;
    pimhw_program_loop(p, rest_of(p, MANY, (pimhw_tail){.unit = strip}), mask);
    pimhw_program_loop(p, rest_of(p, P_ROWS, (pimhw_tail){.unit = ROW_TOKENS, .step = {0, strip}}),
                       mask);
    pimhw_tail columns = {.unit = LANES, .step = {0, strip, ROW_TOKENS}};
    pimhw_program_loop(p, pimhw_program_const(p, 2), mask);
    pimhw_program_item(p, &(pimhw_item){.kind = PIMHW_MAC_ABK,
                                        .mask = mask,
                                        .space = 1,
                                        .op_size = rest_of(p, ROW_COLUMNS / 2, columns),
                                        .row = steps_of(p, P_ROWS, 1, 0),
                                        .column = steps_of(p, 0, 0, ROW_COLUMNS / 2),
                                        .tile = steps_of(p, 0, ROW_COLUMNS / 2, 0),
                                        .out = steps_of(p, 0, 0, 1)});
    pimhw_program_end(p);
    pimhw_program_end(p);
    pimhw_program_end(p);
}

/* For any number of heads a channel and tokens a head. */
static void attention(pimhw_program *p, uint32_t n_channels)
{
    uint64_t mask = (UINT64_C(1) << n_channels) - 1;
    pimhw_program_init(p);
    pimhw_program_item(p, &(pimhw_item){.kind = PIMHW_LIST, .mask = mask});
    pimhw_program_item(p, &(pimhw_item){.kind = PIMHW_BLOCK, .mask = mask});
    add_k_phase(p, mask);
    add_v_phase(p, mask);
    pimhw_program_end(p);
    pimhw_program_end(p);
}

/* n_heads heads of so many tokens, all on every channel. */
static uint64_t attention_clocks(const pimhw_config *c, uint64_t tokens, uint32_t n_heads,
                                 listing *l)
{
    static pimhw_program program;
    pimhw_block blocks[2];
    pimhw_cause why = {""};
    uint32_t rows = (uint32_t)((tokens + ROW_TOKENS - 1) / ROW_TOKENS);
    memset(blocks, 0, sizeof blocks);
    for (uint32_t i = 0; i < n_heads; i++) {
        blocks[i].rest[0] = tokens;
        blocks[i].row_base[0] = 2 * i * rows;
        blocks[i].row_base[1] = (2 * i + 1) * rows;
    }
    pimhw_request request = {.blocks = blocks, .n_blocks = n_heads};
    attention(&program, c->n_channels);
    if (!CHECK_U(pimhw_program_check(&program, c, &why), PIMHW_OK)) printf("  %s\n", why.text);
    return clocks_of(c, &program, &request, l);
}

static double value_of(const char *id)
{
    const published *p = published_find(id);
    return CHECK(p) ? p->value : 0;
}

/* Prints ours beside theirs and holds it to the bound of the table. */
static void compare(const char *id, uint64_t ours)
{
    const published *p = published_find(id);
    if (!CHECK(p)) return;
    published_print(stdout, p, (double)ours);
    CHECK(published_holds(p, (double)ours));
}

/*  0 ACT, 19 MAC .. every 6 (4) clocks; 8 after a row's last PREA, ACT 19 later, MAC 19 later;
 *  RD_MAC 4 after the last MAC of K and every 4; PREA 1 after the last of them; the end is 4
 *  after the last MAC of V. */
static void attacc_law(const char *preset, double slope, double start)
{
    pimhw_config c = peer(preset, 1, false);
    for (uint64_t tokens = 512; tokens <= 4096; tokens *= 2) {
        listing l;
        uint64_t ck = attention_clocks(&c, tokens, 1, &l);
        CHECK_NEAR(ck, slope * (double)tokens + start, 0);
        CHECK_U(l.count[PIMHW_CMD_MAC16], tokens / 4);
        CHECK_U(l.count[PIMHW_CMD_RDMAC16], tokens / 64);
        CHECK_U(l.n_switches, tokens / 128 - 1); /* the first row has nothing to close */
        CHECK_U(l.end_ck, ck);
    }
}

static void attacc_meets_its_law_without_refresh(void)
{
    attacc_law("attacc-hbm3", value_of("attacc.limit.slope"), value_of("attacc.limit.start"));
    attacc_law("attacc-hbm3-nolimit", value_of("attacc.nolimit.slope"),
               value_of("attacc.nolimit.start"));
}

/* Lengths that fill neither a column, a row nor a batch: the counts, worked out here. */
static void attacc_runs_any_length(void)
{
    static const uint64_t lengths[] = {1, 63, 64, 65, 255, 257, 1000, 4095, 4097, 9999, 131072};
    pimhw_config c = peer("attacc-hbm3", 1, false);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        listing l;
        uint64_t t = lengths[i], rows = (t + 255) / 256, columns = (t + 15) / 16;
        attention_clocks(&c, t, 1, &l);
        CHECK_U(l.count[PIMHW_CMD_MAC16], (t + 63) / 64 * HEAD_COLUMNS + 2 * columns);
        CHECK_U(l.count[PIMHW_CMD_RDMAC16], (t + 63) / 64);
        CHECK_U(l.count[PIMHW_CMD_ACT16], 2 * rows);
    }
}

static void attacc_is_near_with_refresh(void)
{
    static const unsigned limit[] = {512, 1024, 2048, 4096}, nolimit[] = {512, 2048, 4096};
    pimhw_config c = peer("attacc-hbm3", 1, true);
    char id[32];
    listing l;
    for (size_t i = 0; i < sizeof limit / sizeof *limit; i++) {
        snprintf(id, sizeof id, "attacc.limit.%u", limit[i]);
        uint64_t ck = attention_clocks(&c, limit[i], 1, &l);
        compare(id, ck);
        CHECK_U(l.count[PIMHW_CMD_REF], ck / c.tREFI);
    }
    c = peer("attacc-hbm3-nolimit", 1, true);
    for (size_t i = 0; i < sizeof nolimit / sizeof *nolimit; i++) {
        snprintf(id, sizeof id, "attacc.nolimit.%u", nolimit[i]);
        compare(id, attention_clocks(&c, nolimit[i], 1, &l));
    }
}

/* Head-first: 16 heads on 16 channels take what one takes, 32 heads twice that and a refresh (there
 * the hand-over of the one head hides behind the MACs of the other, here it does not). */
static void attacc_heads_fill_channels(void)
{
    listing l;
    pimhw_config one = peer("attacc-hbm3", 1, true), all = peer("attacc-hbm3", 16, true);
    CHECK_U(attention_clocks(&all, 2048, 1, &l), attention_clocks(&one, 2048, 1, &l));
    compare("attacc.heads.32", attention_clocks(&all, 2048, 2, &l));
}

/* --- Samsung: GEMV on every pseudo-channel, a unit for two banks ----------------------------
 *
 * 4096 outputs on 64 pseudo-channels x 8 units: 8 accumulators each. A group takes 128 inputs (8
 * columns): 4 outputs from a row of the even banks, 4 from one of the odd ones. In the model both
 * are rows of the one bank of the unit.
 */
enum { GEMV = 4096, PCHS = 64, UNITS = 8, GROUP_COLUMNS = 8, GROUP_ROWS = 2 };
enum { OUTPUTS = GEMV / (PCHS * UNITS), GROUPS = GEMV / (GROUP_COLUMNS * LANES) };
enum { ROW_OUTPUTS = OUTPUTS / GROUP_ROWS };

static void samsung_gemv(pimhw_program *p)
{
    const uint64_t mask = UINT64_MAX;
    pimhw_operand row = {.step = {GROUP_ROWS, 1}}, column = {.step = {0, 0, GROUP_COLUMNS}};
    pimhw_operand out = {.step = {0, ROW_OUTPUTS, 1}}, result = {.step = {1}};
    pimhw_program_init(p);
    pimhw_program_loop(p, pimhw_program_const(p, GROUPS), mask);
    pimhw_program_item(p, &(pimhw_item){.kind = PIMHW_WR_GB,
                                        .mask = mask,
                                        .op_size = pimhw_program_const(p, GROUP_COLUMNS)});
    pimhw_program_loop(p, pimhw_program_const(p, GROUP_ROWS), mask);
    pimhw_program_loop(p, pimhw_program_const(p, ROW_OUTPUTS), mask);
    pimhw_program_item(p, &(pimhw_item){.kind = PIMHW_MAC_ABK,
                                        .mask = mask,
                                        .op_size = pimhw_program_const(p, GROUP_COLUMNS),
                                        .row = pimhw_program_operand(p, &row),
                                        .column = pimhw_program_operand(p, &column),
                                        .out = pimhw_program_operand(p, &out)});
    pimhw_program_end(p);
    pimhw_program_end(p);
    pimhw_program_end(p);
    pimhw_program_loop(p, pimhw_program_const(p, OUTPUTS), mask);
    pimhw_program_item(p, &(pimhw_item){.kind = PIMHW_RD_MAC,
                                        .mask = mask,
                                        .out = pimhw_program_operand(p, &result)});
    pimhw_program_end(p);
}

static uint64_t samsung_clocks(bool refresh, listing *l)
{
    static pimhw_program program;
    pimhw_config c = peer("samsung-hbm2", PCHS, refresh);
    CHECK_U(pimhw_config_banks(&c), UNITS);
    CHECK_U(c.out_entries, OUTPUTS);
    samsung_gemv(&program);
    return clocks_of(&c, &program, NULL, l);
}

static void samsung_gemv_makes_every_product(void)
{
    listing l;
    samsung_clocks(false, &l);
    CHECK_U(l.count[PIMHW_CMD_MAC16] * UNITS * LANES * PCHS, (uint64_t)GEMV * GEMV);
    CHECK_U(l.count[PIMHW_CMD_WRGB] * LANES, GEMV);
    CHECK_U(l.count[PIMHW_CMD_ACT16], GROUPS * GROUP_ROWS);
    CHECK_U(l.count[PIMHW_CMD_RDMAC16] * UNITS * PCHS, GEMV);
}

static void samsung_gemv_is_near(void)
{
    listing l;
    uint64_t ours = samsung_clocks(true, &l);
    compare("sait.gemv", ours);
    compare("unindp.gemv", ours);
}

int main(void)
{
    RUN(attacc_meets_its_law_without_refresh);
    RUN(attacc_runs_any_length);
    RUN(attacc_is_near_with_refresh);
    RUN(attacc_heads_fill_channels);
    RUN(samsung_gemv_makes_every_product);
    RUN(samsung_gemv_is_near);
    return check_end();
}
