/* Rounds of loops that are multiplied, not walked, change nothing: every reading of random programs
 * is the same to the last bit, on all presets, under all controllers, with and without refresh. */
#define PIMATTN_IMPLEMENTATION
#include "hw.h"

enum { BLOCKS = 24 };

static pimhw_program program;
static pimhw_block blocks[BLOCKS];

static void ignore(void *user, const pimhw_event *event)
{
    (void)user;
    (void)event;
}

/* Any preset and controller; small refresh intervals, so that programs meet many. */
static pimhw_config random_device(check_rng *rng)
{
    pimhw_config c;
    pimhw_cause why;
    do {
        uint32_t preset = (uint32_t)rng_range(rng, 0, 13);
        CHECK_U(pimhw_config_init(&c, pimhw_preset_name(preset), NULL), PIMHW_OK);
        c.controller = (uint32_t)rng_range(rng, 0, 3);
        c.n_channels = (uint32_t)rng_range(rng, 1, rng_range(rng, 0, 7) ? 4 : 32);
        c.refresh = rng_range(rng, 0, 3) == 0;
        if (rng_range(rng, 0, 2)) c.tREFI = (uint32_t)rng_range(rng, 1300, 6000);
        c.refresh_phase = (uint32_t)rng_range(rng, 1, c.tREFI);
        c.row_opening = (uint32_t)rng_range(rng, 0, 2);
        c.extra_region = (uint32_t)rng_range(rng, 0, 1);
        c.early_tiles = (uint32_t)rng_range(rng, 0, 1);
        c.is_mac = rng_range(rng, 0, 3) > 0;
        c.in_entries = (uint32_t)rng_range(rng, 4, 64);
        c.out_entries = (uint32_t)rng_range(rng, 1, 8);
        c.obuf = (uint32_t)rng_range(rng, 1, 8);
        c.epu_ck_per_op = (uint32_t)rng_range(rng, 0, 2);
    } while (pimhw_config_check(&c, &why) != PIMHW_OK);
    return c;
}

/* A number, now and then what is left of the request's, so that the last rounds differ. */
static uint8_t random_operand(check_rng *rng, uint64_t least, uint64_t most, uint32_t depth)
{
    pimhw_operand o = {.base = rng_range(rng, least, most)};
    if (rng_range(rng, 0, 3) == 0) {
        pimhw_tail t = {.base = rng_range(rng, 0, 3), .rest = 1, .unit = rng_range(rng, 1, 4)};
        t.channel_step = rng_range(rng, 0, 2);
        t.channel_div = (uint32_t)rng_range(rng, 0, 3);
        for (uint32_t l = 0; l < depth; l++)
            t.step[l] = rng_range(rng, 0, 2);
        o.tail[0] = pimhw_program_tail(&program, &t);
    }
    if (rng_range(rng, 0, 4) == 0 && depth > 0) { /* grows up to a limit */
        pimhw_tail limit = {.base = rng_range(rng, 1, 4)};
        o.base = rng_range(rng, 0, 1);
        o.step[rng_range(rng, 0, depth - 1)] = 1;
        o.tail[1] = pimhw_program_tail(&program, &limit);
    }
    return pimhw_program_operand(&program, &o);
}

/* How wild a program is: what keeps rounds from being alike. */
typedef struct wild {
    bool kinds, rows, sizes, spaces;
} wild;

static uint32_t random_kind(check_rng *rng, const wild *how)
{
    static const uint32_t plain[] = {PIMHW_WR_GB,   PIMHW_MAC_ABK, PIMHW_MAC_ABK,
                                     PIMHW_WR_BIAS, PIMHW_RD_MAC,  PIMHW_RD_MAC};
    if (how->kinds && rng_range(rng, 0, 3) == 0)
        return (uint32_t)rng_range(rng, PIMHW_MAC_SBK, PIMHW_SYNC);
    if (rng_range(rng, 0, 19) == 0) return PIMHW_EWMUL;
    return plain[rng_range(rng, 0, 5)];
}

static void random_instruction(check_rng *rng, const pimhw_config *c, const wild *how,
                               uint32_t depth, const pimhw_operand *row)
{
    pimhw_item item = {.mask = (UINT64_C(1) << c->n_channels) - 1};
    pimhw_operand its_row = *row, entry = {.base = 0};
    item.kind = (uint8_t)random_kind(rng, how);
    bool sized = item.kind == PIMHW_WR_GB || item.kind == PIMHW_MAC_ABK || item.kind == PIMHW_EWMUL;
    if (rng_range(rng, 0, 7) == 0 || item.kind == PIMHW_WR_ABK) item.mask = 1;
    item.op_size = sized && how->sizes ? random_operand(rng, 1, 3, depth)
                                       : pimhw_program_const(&program, 1 + sized);
    if (item.kind == PIMHW_MAC_ABK && !how->sizes)
        item.op_size = pimhw_program_const(&program, rng_range(rng, 1, c->in_entries));
    if (how->rows) its_row.step[rng_range(rng, 0, depth ? depth - 1 : 0)] = rng_range(rng, 0, 2);
    for (uint32_t l = depth; l < PIMHW_LOOPS; l++)
        its_row.step[l] = 0;
    entry.base = rng_range(rng, 0, pimhw_config_outs(c) - 1);
    item.row = pimhw_program_operand(&program, &its_row);
    if (how->spaces) item.space = (uint8_t)rng_range(rng, 0, 1);
    if (item.kind != PIMHW_EWMUL) item.out = pimhw_program_operand(&program, &entry);
    pimhw_program_item(&program, &item);
}

/* Of the outermost loops: long ones repeat, short ones hardly. */
static uint64_t most_rounds;

static void random_loops(check_rng *rng, const pimhw_config *c, const wild *how, uint32_t depth,
                         const pimhw_operand *row)
{
    uint64_t most = depth == 0 ? most_rounds : depth == 1 ? 3 + most_rounds / 1000 : 3;
    pimhw_program_loop(&program,
                       how->sizes ? random_operand(rng, 1, most, depth)
                                  : pimhw_program_const(&program, rng_range(rng, most / 2, most)),
                       (UINT64_C(1) << c->n_channels) - 1);
    for (uint64_t n = rng_range(rng, 1, 4); n > 0; n--) {
        if (depth < 2 && rng_range(rng, 0, 7) == 0)
            random_loops(rng, c, how, depth + 1, row);
        else
            random_instruction(rng, c, how, depth + 1, row);
    }
    pimhw_program_end(&program);
}

/* The same readings; which way the rounds went is all that may differ. */
static bool agree(pimhw_readings walked, pimhw_readings skipped)
{
    skipped.walked_rounds += skipped.skipped_rounds;
    skipped.skipped_rounds = 0;
    return CHECK_BYTES(&walked, &skipped, sizeof walked);
}

typedef struct tally {
    uint64_t n, nearly_all, none;
} tally;

/* Times the program with a sink, which walks, and without. */
static bool both_ways(pimhw_device *device, const pimhw_request *request, tally *t)
{
    pimhw_readings walked, skipped;
    pimhw_sink sink = {ignore, NULL, NULL};
    pimhw_cause why[2] = {{""}, {""}};
    pimhw_status status = pimhw_device_time(device, &walked, &program, request, &sink, &why[0]);
    CHECK_U(pimhw_device_time(device, &skipped, &program, request, NULL, &why[1]), status);
    if (!CHECK_STR(why[1].text, why[0].text)) return false;
    if (status != PIMHW_OK) return true;
    t->n++;
    t->nearly_all += skipped.skipped_rounds > 9 * skipped.walked_rounds;
    t->none += skipped.skipped_rounds == 0;
    return agree(walked, skipped);
}

/* In two spaces, rows near each other and far. */
static void random_block(check_rng *rng)
{
    blocks[0].rest[0] = rng_range(rng, 0, 900);
    for (int k = 0; k < 2; k++)
        blocks[0].row_base[k] = (uint32_t)rng_range(rng, 0, rng_range(rng, 0, 1) ? 3 : 30);
}

static bool one_case(uint64_t seed, tally *t, tally *later)
{
    check_rng rng = {seed};
    pimhw_config c = random_device(&rng);
    uint64_t sort = rng_range(&rng, 0, 19);
    most_rounds = sort < 14 ? 4000 : sort < 19 ? 3 : 60;
    wild how = {sort == 19, sort == 19, sort == 18 || sort > 11, rng_range(&rng, 0, 2) == 0};
    pimhw_request request = {.blocks = blocks, .n_blocks = 1};
    pimhw_operand row = {.base = rng_range(&rng, 0, 3)};
    memset(blocks, 0, sizeof blocks);
    random_block(&rng);
    if (rng_range(&rng, 0, 7) == 0) request.repeats = (uint32_t)rng_range(&rng, 1, 12);
    for (int l = 0; l < 3; l++)
        row.step[l] = rng_range(&rng, 0, 2);
    pimhw_program_init(&program);
    random_loops(&rng, &c, &how, 0, &row);
    if (rng_range(&rng, 0, 3) == 0) random_loops(&rng, &c, &how, 0, &row);
    pimhw_device *device;
    CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK);
    bool fine = both_ways(device, &request, t);
    if (fine && seed % 4 == 0) { /* what the device knows by now holds for others, too */
        random_block(&rng);
        fine = both_ways(device, &request, later);
    }
    if (fine && seed % 8 == 0 && program.n_operands > 0) { /* but not for another program */
        program.operands[rng_range(&rng, 0, program.n_operands - 1)].base += 1;
        fine = both_ways(device, &request, later);
    }
    pimhw_device_destroy(device);
    if (!fine)
        printf("  seed %u: %s, %s, refresh %u, tREFI %u\n", (unsigned)seed, c.preset,
               pimhw_controller_str(c.controller), c.refresh, c.tREFI);
    return fine;
}

static uint64_t n_cases = 500, first_case = 1;

static void skipping_equals_walking_everywhere(void)
{
    tally t = {0, 0, 0}, later = {0, 0, 0}; /* later: on a device that has timed others */
    uint32_t wrong = 0;
    for (uint64_t seed = first_case; seed < first_case + n_cases && wrong < 10; seed++)
        wrong += !one_case(seed, &t, &later);
    printf("%u programs ran; over 90 %% of the rounds skipped in %u, none in %u\n", (unsigned)t.n,
           (unsigned)t.nearly_all, (unsigned)t.none);
    CHECK(2 * t.nearly_all >= t.n && 4 * t.none >= t.n);
    printf("%u more on a device that had timed others\n", (unsigned)later.n);
    CHECK(4 * later.n >= t.n);
}

int main(int argc, char **argv)
{
    if (argc > 1) n_cases = strtoull(argv[1], NULL, 10);
    if (argc > 2) first_case = strtoull(argv[2], NULL, 10);
    RUN(skipping_equals_walking_everywhere);
    return check_end();
}
