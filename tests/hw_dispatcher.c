/* [H16] Programs: loops, tails, lists and blocks against the same work written out by hand, and
 * against an interpreter of the contract that runs one channel at a time. */
#define PIMHW_IMPLEMENTATION
#include "hw.h"

enum { MOST = 20000 };

/* The instructions a program resolves to. */
typedef struct resolved {
    pimhw_instruction in[MOST];
    size_t n;
} resolved;

static resolved whole, alone;

static bool keep(void *user, const pimhw_instruction *in)
{
    resolved *list = (resolved *)user;
    if (list->n < MOST) list->in[list->n] = *in;
    return ++list->n < MOST;
}

static bool resolve(const pimhw_config *c, const pimhw_program *p, const pimhw_request *request)
{
    pimhw_device *device;
    pimhw_cause why = {""};
    whole.n = 0;
    if (!CHECK_U(pimhw_device_create(&device, c, &why), PIMHW_OK)) return false;
    bool ok = CHECK_U(pimhw_device_resolve(device, p, request, keep, &whole, &why), PIMHW_OK);
    if (!ok) printf("  %s\n", why.text);
    pimhw_device_destroy(device);
    return ok;
}

/* --------------------------------------------------------------------------
 * The contract, read for one channel.
 * -------------------------------------------------------------------------- */

typedef struct reader {
    const pimhw_program *p;
    const pimhw_request *request;
    uint32_t channel, depth;
    int64_t index[PIMHW_LOOPS];
    const pimhw_block *block;
    int64_t round; /* of the list: block's number */
} reader;

static int64_t read_tail(const reader *r, const pimhw_tail *t)
{
    int64_t unit = t->unit ? (int64_t)t->unit : 1, mul = t->mul ? (int64_t)t->mul : 1;
    int64_t left = (int64_t)t->base;
    if (t->rest && r->block) left += (int64_t)r->block->rest[t->rest - 1];
    left -= (int64_t)t->channel_step * (r->channel / (t->channel_div ? t->channel_div : 1));
    for (uint32_t i = 0; i < r->depth; i++)
        left -= (int64_t)t->step[i] * r->index[i];
    return left <= 0 ? 0 : mul * ((left + unit - 1) / unit);
}

static int64_t read_operand(const reader *r, uint8_t name)
{
    if (!name) return 0;
    const pimhw_operand *o = &r->p->operands[name - 1];
    int64_t value = (int64_t)o->base;
    for (uint32_t i = 0; i < r->depth; i++)
        value += (int64_t)o->step[i] * r->index[i];
    for (int i = 0; i < 2; i++)
        if (o->tail[i] && read_tail(r, &r->p->tails[o->tail[i] - 1]) < value)
            value = read_tail(r, &r->p->tails[o->tail[i] - 1]);
    return value;
}

static int64_t read_blocks(const reader *r)
{
    if (!r->request) return 0;
    if (!r->request->list_begin) return r->request->n_blocks;
    return (int64_t)r->request->list_begin[r->channel + 1] - r->request->list_begin[r->channel];
}

static const pimhw_block *read_block(const reader *r, int64_t i)
{
    if (i < 0 || i >= read_blocks(r)) return NULL;
    if (!r->request->list_begin) return &r->request->blocks[i];
    return &r->request->blocks[r->request->order[r->request->list_begin[r->channel] + i]];
}

static void read_items(reader *r, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        const pimhw_item *item = &r->p->items[i];
        bool here = item->mask >> r->channel & 1;
        const pimhw_block *outer = r->block;
        int64_t round = r->round;
        if (item->kind == PIMHW_LOOP || item->kind == PIMHW_LIST) {
            bool list = item->kind == PIMHW_LIST;
            int64_t rounds = !list            ? read_operand(r, item->op_size)
                             : read_blocks(r) ? read_blocks(r) + read_operand(r, item->aux)
                                              : 0;
            uint32_t level = r->depth++;
            for (int64_t n = 0; n < rounds && (list || here); n++) {
                r->index[level] = n;
                if (list) r->block = read_block(r, n), r->round = n;
                read_items(r, i + 1, item->end);
            }
            r->depth--;
            r->block = outer, r->round = round;
            i = item->end;
        } else if (item->kind == PIMHW_BLOCK) {
            r->round = r->index[0] - read_operand(r, item->aux);
            r->block = read_block(r, r->round);
            if (r->block) read_items(r, i + 1, item->end);
            r->block = outer, r->round = round;
            i = item->end;
        } else if (item->kind != PIMHW_END && here) {
            pimhw_instruction in = {.kind = (pimhw_kind)item->kind, .flags = item->flags};
            in.mask = UINT64_C(1) << r->channel;
            in.op_size = item->op_size ? (uint64_t)read_operand(r, item->op_size) : 1;
            in.row = (uint32_t)read_operand(r, item->row);
            if (r->block && item->kind == PIMHW_MAC_ABK) in.row += r->block->row_base[item->space];
            in.column = (uint32_t)read_operand(r, item->column);
            in.tile = (uint32_t)read_operand(r, item->tile);
            in.out = (uint32_t)read_operand(r, item->out);
            in.gpr = (uint32_t)read_operand(r, item->gpr);
            in.aux = (uint32_t)read_operand(r, item->aux);
            in.round = (uint32_t)r->round;
            if (in.op_size) keep(&alone, &in);
        }
    }
}

static bool same(const pimhw_instruction *a, const pimhw_instruction *b)
{
    return a->kind == b->kind && a->flags == b->flags && a->op_size == b->op_size &&
           a->bank == b->bank && a->row == b->row && a->column == b->column && a->tile == b->tile &&
           a->out == b->out && a->gpr == b->gpr && a->aux == b->aux && a->round == b->round;
}

/* Each channel's part of `whole` is what the reader finds for it. */
static void channels_agree(const pimhw_config *c, const pimhw_program *p,
                           const pimhw_request *request)
{
    for (uint32_t ch = 0; ch < c->n_channels; ch++) {
        reader r = {.p = p, .request = request, .channel = ch};
        size_t at = 0;
        alone.n = 0;
        if (request && (p->n_items == 0 || p->items[0].kind != PIMHW_LIST))
            r.block = read_block(&r, 0);
        read_items(&r, 0, p->n_items);
        for (size_t i = 0; i < whole.n; i++) {
            if (!(whole.in[i].mask >> ch & 1)) continue;
            if (at < alone.n && !CHECK(same(&whole.in[i], &alone.in[at]))) return;
            at++;
        }
        if (!CHECK_U(at, alone.n)) return;
    }
}

/* Timed as it stands and sent instruction by instruction: the same run. */
static void timed_is_sent(const pimhw_config *c, const pimhw_program *p,
                          const pimhw_request *request)
{
    if (!hw_program(c, p, request)) return;
    pimhw_readings timed = hw.r;
    if (!hw_stream(c, whole.in, whole.n)) return;
    CHECK_U(timed.cycles, hw.r.cycles);
    CHECK_U(timed.macs, hw.r.macs);
    CHECK_BYTES(timed.commands, hw.r.commands, sizeof hw.r.commands);
    CHECK_BYTES(timed.breakdown_ck, hw.r.breakdown_ck, sizeof hw.r.breakdown_ck);
    CHECK_U(timed.program_bytes, pimhw_program_bytes(p));
}

/* The same program three times: each run after a SYNC, which is all channels at their end. */
static void repeats_are_runs(const pimhw_config *c, const pimhw_program *p, pimhw_request request)
{
    static pimhw_instruction thrice[3 * 64 + 2];
    size_t n = 0;
    if (whole.n > 64) return;
    for (int run = 0; run < 3; run++) {
        if (run > 0) thrice[n++] = hw_all(PIMHW_SYNC, UINT64_MAX, 1);
        memcpy(&thrice[n], whole.in, whole.n * sizeof whole.in[0]);
        n += whole.n;
    }
    request.repeats = 3;
    if (!hw_program(c, p, &request)) return;
    pimhw_readings timed = hw.r;
    if (!hw_stream(c, thrice, n)) return;
    CHECK_U(timed.cycles, hw.r.cycles);
    CHECK_U(timed.macs, hw.r.macs);
    CHECK_BYTES(timed.commands, hw.r.commands, sizeof hw.r.commands);
    CHECK_BYTES(timed.breakdown_ck, hw.r.breakdown_ck, sizeof hw.r.breakdown_ck);
}

/* --------------------------------------------------------------------------
 * Small programs.
 * -------------------------------------------------------------------------- */

static uint8_t constant(pimhw_program *p, uint64_t value)
{
    return pimhw_program_const(p, value);
}

static uint8_t stepped(pimhw_program *p, uint64_t base, unsigned loop, uint64_t step)
{
    pimhw_operand o = {.base = base};
    o.step[loop] = step;
    return pimhw_program_operand(p, &o);
}

/* value = at most `most`, and what is left: ceil((rest - step * index[loop] - ..) / unit) */
static uint8_t tailed(pimhw_program *p, uint64_t most, const pimhw_tail *tail)
{
    pimhw_operand o = {.base = most, .tail = {pimhw_program_tail(p, tail)}};
    return pimhw_program_operand(p, &o);
}

static void loop_is_its_rounds_written_out(void)
{
    pimhw_config c = hw_config("aim-gddr6", 4);
    pimhw_program p, flat;
    pimhw_program_init(&p);
    pimhw_program_init(&flat);
    pimhw_item mac = {.mask = 15, .kind = PIMHW_MAC_ABK, .op_size = constant(&p, 8)};
    pimhw_program_loop(&p, constant(&p, 5), 15);
    pimhw_instruction gb = hw_gb(15, 8, 16);
    pimhw_program_add(&p, &gb);
    pimhw_program_loop(&p, constant(&p, 3), 15);
    mac.row = stepped(&p, 2, 0, 1);
    mac.column = stepped(&p, 0, 1, 8);
    pimhw_program_item(&p, &mac);
    pimhw_program_end(&p);
    pimhw_instruction rd = hw_rd(15, 0);
    pimhw_program_add(&p, &rd);
    pimhw_program_end(&p);
    for (uint32_t i = 0; i < 5; i++) {
        pimhw_program_add(&flat, &gb);
        for (uint32_t j = 0; j < 3; j++) {
            pimhw_instruction in = hw_mac(15, 8, 2 + i, 0);
            in.column = 8 * j;
            pimhw_program_add(&flat, &in);
        }
        pimhw_program_add(&flat, &rd);
    }
    if (!resolve(&c, &flat, NULL)) return;
    CHECK_U(whole.n, 25);
    timed_is_sent(&c, &flat, NULL);
    timed_is_sent(&c, &p, NULL); /* against the flat one's instructions */
    if (resolve(&c, &p, NULL)) CHECK_U(whole.n, 25);
    channels_agree(&c, &p, NULL);
}

/* 100 columns of rest in rows of 64: 64, then 36, then nothing, and no row is opened for it. */
static void tail_cuts_the_last_round(void)
{
    pimhw_config c = hw_config("aimx", 2);
    pimhw_program p;
    pimhw_program_init(&p);
    pimhw_tail rest = {.rest = 3, .step = {64}};
    pimhw_item mac = {.mask = 3, .kind = PIMHW_MAC_ABK};
    pimhw_program_loop(&p, constant(&p, 4), 3);
    mac.op_size = tailed(&p, 64, &rest);
    mac.row = stepped(&p, 0, 0, 1);
    pimhw_program_item(&p, &mac);
    pimhw_program_end(&p);
    pimhw_block block = {.rest = {0, 0, 100}};
    pimhw_request request = {.blocks = &block, .n_blocks = 1};
    if (!resolve(&c, &p, &request) || !CHECK_U(whole.n, 2)) return;
    CHECK_U(whole.in[0].op_size, 64);
    CHECK_U(whole.in[1].op_size, 36);
    timed_is_sent(&c, &p, &request);
    CHECK_U(hw.r.commands[PIMHW_CMD_ACT16], 4);
    if (resolve(&c, &p, NULL)) CHECK_U(whole.n, 0); /* no request: no rest */
}

/* 40 tokens, 16 a channel: channels 0 and 1 do 16, channel 2 does 8, channel 3 nothing. */
static void channels_differ_by_their_step(void)
{
    pimhw_config c = hw_config("aimx", 4);
    pimhw_program p;
    pimhw_program_init(&p);
    pimhw_tail rest = {.rest = 1, .channel_step = 16};
    pimhw_item gb = {.mask = 15, .kind = PIMHW_WR_GB, .op_size = tailed(&p, 16, &rest)};
    pimhw_program_item(&p, &gb);
    pimhw_block block = {.rest = {40}};
    pimhw_request request = {.blocks = &block, .n_blocks = 1};
    if (!resolve(&c, &p, &request) || !CHECK_U(whole.n, 2)) return;
    CHECK_U(whole.in[0].mask, 3);
    CHECK_U(whole.in[0].op_size, 16);
    CHECK_U(whole.in[1].mask, 4);
    CHECK_U(whole.in[1].op_size, 8);
    channels_agree(&c, &p, &request);
}

/* Lists of 2, 0, 1 blocks: the mask shrinks as they end; rows are the block's own. */
static void mask_shrinks_as_lists_end(void)
{
    static const uint32_t begin[] = {0, 2, 2, 3}, order[] = {2, 0, 1};
    static const pimhw_block blocks[] = {
        {.row_base = {10, 100}}, {.row_base = {20, 200}}, {.row_base = {30, 300}}};
    pimhw_request request = {.blocks = blocks, .n_blocks = 3, .list_begin = begin, .order = order};
    pimhw_config c = hw_config("aim-gddr6", 3);
    pimhw_program p;
    pimhw_program_init(&p);
    pimhw_item list = {.kind = PIMHW_LIST, .mask = 7}, block = {.kind = PIMHW_BLOCK, .mask = 7};
    pimhw_program_item(&p, &list);
    pimhw_program_item(&p, &block);
    pimhw_instruction gb = hw_gb(7, 4, 0);
    pimhw_program_add(&p, &gb);
    pimhw_item mac = {.mask = 7, .kind = PIMHW_MAC_ABK, .space = 1, .row = constant(&p, 5)};
    mac.op_size = constant(&p, 1);
    pimhw_program_item(&p, &mac);
    pimhw_program_end(&p);
    pimhw_program_end(&p);
    if (!resolve(&c, &p, &request) || !CHECK_U(whole.n, 5)) return;
    CHECK_U(whole.in[0].mask, 5);
    CHECK_U(whole.in[1].row, 305);
    CHECK_U(whole.in[2].row, 205);
    CHECK_U(whole.in[2].mask, 4);
    CHECK_U(whole.in[3].mask, 1);
    CHECK_U(whole.in[4].row, 105);
    channels_agree(&c, &p, &request);
    timed_is_sent(&c, &p, &request);
    c.front_end = PIMHW_PER_CHANNEL;
    timed_is_sent(&c, &p, &request);
}

/* A block one round late: K of block i beside V of block i - 1. */
static void late_block_runs_with_the_block_before(void)
{
    static const pimhw_block blocks[] = {{.row_base = {10, 100}}, {.row_base = {20, 200}}};
    static const uint32_t rows[] = {10, 10, 20, 100, 20, 200, 0};
    pimhw_request request = {.blocks = blocks, .n_blocks = 2};
    pimhw_config c = hw_config("aimx", 2);
    pimhw_program p;
    pimhw_program_init(&p);
    pimhw_item list = {.kind = PIMHW_LIST, .mask = 3, .aux = constant(&p, 1)};
    pimhw_program_item(&p, &list);
    for (uint8_t space = 0; space < 2; space++) {
        pimhw_item block = {.kind = PIMHW_BLOCK, .mask = 3, .aux = constant(&p, space)};
        pimhw_item mac = {.mask = 3, .kind = PIMHW_MAC_ABK, .space = space};
        mac.op_size = constant(&p, 1);
        pimhw_program_item(&p, &block);
        pimhw_program_item(&p, &mac);
        pimhw_program_end(&p);
    }
    pimhw_item behind = {.mask = 3, .kind = PIMHW_MAC_ABK}; /* of the round's own block */
    behind.op_size = constant(&p, 1);
    pimhw_program_item(&p, &behind);
    pimhw_program_end(&p);
    if (!resolve(&c, &p, &request) || !CHECK_U(whole.n, 7)) return;
    for (int i = 0; i < 7; i++)
        CHECK_U(whole.in[i].row, rows[i]);
    channels_agree(&c, &p, &request);
}

/* An item for channel 1 inside a loop for channel 0 runs nowhere. */
static void masks_of_loop_and_item_both_count(void)
{
    pimhw_config c = hw_config("aimx", 2);
    pimhw_program p;
    pimhw_program_init(&p);
    pimhw_instruction gb = hw_gb(3, 1, 0), mac = hw_mac(2, 1, 0, 0), rd = hw_rd(1, 0);
    pimhw_program_add(&p, &gb);
    pimhw_program_loop(&p, constant(&p, 2), 1);
    pimhw_program_add(&p, &mac);
    pimhw_program_add(&p, &rd);
    pimhw_program_end(&p);
    if (!resolve(&c, &p, NULL)) return;
    CHECK_U(whole.n, 3);
    CHECK_U(whole.in[1].kind, PIMHW_RD_MAC);
    channels_agree(&c, &p, NULL);
}

/* Only the source differs from channel to channel: still one instruction each, and a clock each. */
static void other_sources_are_other_instructions(void)
{
    pimhw_config c = hw_config("aim-gddr6", 2);
    pimhw_program p;
    pimhw_program_init(&p);
    pimhw_tail source = {.base = 10, .channel_step = 1};
    pimhw_item gb = {.mask = 3, .kind = PIMHW_WR_GB, .gpr = tailed(&p, 100, &source)};
    gb.op_size = constant(&p, 1);
    pimhw_program_item(&p, &gb);
    if (!resolve(&c, &p, NULL) || !CHECK_U(whole.n, 2)) return;
    CHECK_U(whole.in[0].gpr, 10);
    CHECK_U(whole.in[1].gpr, 9);
    timed_is_sent(&c, &p, NULL);
}

/* Channel 1 has no block: no rows of channel 0's are added to its own. */
static void no_block_adds_no_row(void)
{
    static const uint32_t begin[] = {0, 1, 1}, order[] = {0};
    static const pimhw_block block = {.row_base = {50}};
    pimhw_request request = {.blocks = &block, .n_blocks = 1, .list_begin = begin, .order = order};
    pimhw_config c = hw_config("aimx", 2);
    pimhw_program p;
    pimhw_program_init(&p);
    pimhw_instruction mac = hw_mac(3, 1, 7, 0);
    pimhw_program_add(&p, &mac);
    if (!resolve(&c, &p, &request) || !CHECK_U(whole.n, 2)) return;
    CHECK_U(whole.in[0].row, 57);
    CHECK_U(whole.in[1].row, 7);
}

/* Sums and products of what may be without limit end at the largest number. */
static void nothing_wraps(void)
{
    static const pimhw_tail tails[] = {{.base = UINT64_MAX, .rest = 1},
                                       {.base = UINT64_C(1) << 34, .mul = UINT64_C(1) << 30},
                                       {.base = UINT64_MAX, .unit = 3, .mul = UINT32_MAX},
                                       {.base = UINT64_MAX, .unit = UINT64_C(1) << 63, .rest = 1}};
    const pimhw_block block = {.rest = {5}};
    const pimhw_request request = {.blocks = &block, .n_blocks = 1};
    pimhw_config c = hw_config("aimx", 1);
    pimhw_program p;
    pimhw_program_init(&p);
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        pimhw_item gb = {.mask = 1, .kind = PIMHW_WR_GB, .op_size = tailed(&p, 8, &tails[i])};
        pimhw_program_item(&p, &gb);
    }
    if (!resolve(&c, &p, &request) || !CHECK_U(whole.n, 4)) return;
    for (size_t i = 0; i < whole.n; i++)
        CHECK_U(whole.in[i].op_size, i == 3 ? 2 : 8);
}

/* Where there is no block, there are no further rounds either. */
static void no_block_is_no_round(void)
{
    static const uint32_t begin[] = {0, 1, 1}, order[] = {0};
    static const pimhw_block block = {.row_base = {50}};
    pimhw_request request = {.blocks = &block, .n_blocks = 1};
    pimhw_config c = hw_config("aimx", 2);
    pimhw_program p;
    pimhw_program_init(&p);
    pimhw_item list = {.kind = PIMHW_LIST, .aux = constant(&p, 2)};
    pimhw_instruction rd = hw_rd(3, 0);
    pimhw_program_item(&p, &list);
    pimhw_program_add(&p, &rd);
    pimhw_program_end(&p);
    if (resolve(&c, &p, NULL)) CHECK_U(whole.n, 0);
    if (resolve(&c, &p, &request)) CHECK_U(whole.n, 3);
    channels_agree(&c, &p, &request);
    request.list_begin = begin, request.order = order; /* of channel 0 alone */
    if (!resolve(&c, &p, &request) || !CHECK_U(whole.n, 3)) return;
    for (size_t i = 0; i < whole.n; i++)
        CHECK_U(whole.in[i].mask, 1);
}

static bool refuse_all(void *user, const pimhw_instruction *in)
{
    (void)user;
    (void)in;
    return false;
}

/* 2^28 rounds, or an operand of 2^32. */
static void large_numbers_are_refused(void)
{
    const uint64_t most[2] = {UINT64_C(1) << 28, UINT64_C(1) << 32};
    pimhw_config c = hw_config("aimx", 1);
    pimhw_device *d = NULL;
    pimhw_program p;
    if (!CHECK_U(pimhw_device_create(&d, &c, NULL), PIMHW_OK)) return;
    for (size_t f = offsetof(pimhw_item, op_size); f <= offsetof(pimhw_item, aux); f++)
        for (uint64_t less = 0; less < 2; less++) {
            bool loop = f == offsetof(pimhw_item, op_size);
            pimhw_item rd = {.kind = PIMHW_RD_MAC, .mask = 1};
            pimhw_cause why = {""};
            pimhw_program_init(&p);
            uint8_t name = constant(&p, most[!loop] - less);
            if (loop) pimhw_program_loop(&p, name, 1);
            if (!loop) ((uint8_t *)&rd)[f] = name;
            pimhw_program_item(&p, &rd);
            if (loop) pimhw_program_end(&p);
            pimhw_status status = pimhw_device_resolve(d, &p, NULL, refuse_all, NULL, &why);
            bool large = strstr(why.text, loop ? "2^28 rounds or more" : "of 2^32 or more");
            CHECK_U(large, !less);
            if (!less) CHECK_U(status, PIMHW_ERR_PROGRAM);
        }
    pimhw_device_destroy(d);
}

/* The hub has one unit: of one block its work is done once, that of lists adds up. */
static void work_of_lists_adds_up(void)
{
    static const uint32_t begin[] = {0, 1, 2, 3}, order[] = {0, 1, 2};
    static const pimhw_block blocks[] = {{.rest = {10}}, {.rest = {200}}, {.rest = {3000}}};
    pimhw_request request = {.blocks = blocks, .n_blocks = 3};
    pimhw_config c = hw_config("aim-gddr6", 3);
    const pimhw_tail rest = {.rest = 1};
    pimhw_program p;
    pimhw_program_init(&p);
    pimhw_item epu = {.mask = 7, .kind = PIMHW_EPU, .op_size = tailed(&p, 9000, &rest)};
    pimhw_program_item(&p, &epu);
    for (int lists = 0; lists < 2; lists++) {
        if (lists) request.list_begin = begin, request.order = order;
        if (!resolve(&c, &p, &request) || !CHECK_U(whole.n, 1)) return;
        CHECK_U(whole.in[0].op_size, lists ? 3210 : 10);
        CHECK_U(whole.in[0].mask, 7);
    }
}

static void equal_operands_share_a_name(void)
{
    pimhw_program p;
    pimhw_program_init(&p);
    uint8_t a = constant(&p, 7), b = stepped(&p, 7, 1, 3), c = constant(&p, 7);
    CHECK_U(a, c);
    CHECK(a != b);
    CHECK_U(constant(&p, 0), 0);
    CHECK_U(p.n_operands, 2);
}

static void full_program_says_so(void)
{
    pimhw_config c = hw_config("aimx", 2);
    pimhw_cause why = {""};
    pimhw_program p;
    pimhw_instruction gb = hw_gb(1, 1, 0);
    pimhw_program_init(&p);
    for (int i = 0; i < PIMHW_PROGRAM_ITEMS; i++)
        pimhw_program_add(&p, &gb);
    CHECK_U(pimhw_program_check(&p, &c, &why), PIMHW_OK);
    pimhw_program_add(&p, &gb);
    CHECK_U(pimhw_program_check(&p, &c, &why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(why.text, "96 items");
    pimhw_program_init(&p);
    for (uint64_t i = 1; i <= PIMHW_PROGRAM_OPERANDS; i++)
        CHECK_U(constant(&p, i), i);
    CHECK_U(constant(&p, 1000), 0);
    CHECK_U(constant(&p, 3), 3);
    CHECK_U(pimhw_program_check(&p, &c, &why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(why.text, "80 operands");
    pimhw_program_init(&p);
    for (uint64_t i = 1; i <= PIMHW_PROGRAM_TAILS + 1; i++) {
        pimhw_tail t = {.base = i};
        CHECK_U(pimhw_program_tail(&p, &t), i <= PIMHW_PROGRAM_TAILS ? i : 0);
    }
    CHECK_U(pimhw_program_check(&p, &c, &why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(why.text, "40 tails");
    pimhw_program_init(&p);
    for (int i = 0; i <= PIMHW_LOOPS; i++)
        pimhw_program_loop(&p, constant(&p, 1), 1);
    for (int i = 0; i <= PIMHW_LOOPS; i++)
        pimhw_program_end(&p);
    CHECK_U(pimhw_program_check(&p, &c, &why), PIMHW_ERR_PROGRAM);
    CHECK_HAS(why.text, "too deep");
}

/* --------------------------------------------------------------------------
 * Random programs.
 * -------------------------------------------------------------------------- */

typedef struct maker {
    check_rng rng;
    pimhw_program *p;
    uint64_t all;
    uint32_t depth;
    bool in_block;
} maker;

static uint8_t random_operand(maker *m, uint64_t most)
{
    pimhw_operand o = {.base = rng_range(&m->rng, 0, most / 2)};
    uint64_t left = most - o.base;
    for (uint32_t i = 0; i < m->depth && left; i++) {
        if (rng_range(&m->rng, 0, 2)) continue;
        o.step[i] = rng_range(&m->rng, 0, left / 8);
        left -= o.step[i] * (left / 8 ? 4 : 0) < left ? o.step[i] * 4 : left;
    }
    if (rng_range(&m->rng, 0, 2) == 0) {
        pimhw_tail t = {.base = rng_range(&m->rng, 0, most),
                        .rest = (uint32_t)rng_range(&m->rng, 0, 6)};
        t.unit = rng_range(&m->rng, 0, 3);
        t.mul = rng_range(&m->rng, 0, 2);
        for (uint32_t i = 0; i < m->depth; i++)
            if (rng_range(&m->rng, 0, 1)) t.step[i] = rng_range(&m->rng, 0, most / 4 + 1);
        if (rng_range(&m->rng, 0, 1)) t.channel_step = rng_range(&m->rng, 0, most / 4 + 1);
        t.channel_div = (uint32_t)rng_range(&m->rng, 0, 2);
        o.tail[rng_range(&m->rng, 0, 1)] = pimhw_program_tail(m->p, &t);
    }
    return pimhw_program_operand(m->p, &o);
}

static uint64_t random_mask(maker *m)
{
    uint64_t mask = rng_u64(&m->rng) & m->all;
    return rng_range(&m->rng, 0, 2) && mask ? mask : m->all;
}

static void random_items(maker *m, int n)
{
    for (int i = 0; i < n && m->p->n_items < 60 && m->p->n_operands < 60 && m->p->n_tails < 30;
         i++) {
        if (m->depth < 4 && rng_range(&m->rng, 0, 3) == 0) {
            pimhw_program_loop(m->p, random_operand(m, 4), random_mask(m));
            m->depth++;
            random_items(m, (int)rng_range(&m->rng, 1, 3));
            m->depth--;
            pimhw_program_end(m->p);
            continue;
        }
        pimhw_item item = {.mask = random_mask(m)};
        item.kind = (uint8_t)rng_range(&m->rng, PIMHW_WR_GB, PIMHW_RD_MAC);
        item.space = (uint8_t)rng_range(&m->rng, 0, 1);
        if (item.kind == PIMHW_WR_GB || item.kind == PIMHW_MAC_ABK) {
            item.op_size = random_operand(m, 16);
            item.tile = random_operand(m, 40);
        }
        if (item.kind == PIMHW_MAC_ABK)
            item.row = random_operand(m, 3), item.column = random_operand(m, 40);
        if (item.kind != PIMHW_WR_GB) item.out = random_operand(m, 1);
        item.gpr = random_operand(m, 1000);
        pimhw_program_item(m->p, &item);
    }
}

static void random_program(maker *m)
{
    pimhw_program_init(m->p);
    m->depth = 0;
    if (rng_range(&m->rng, 0, 1)) {
        pimhw_item list = {
            .kind = PIMHW_LIST, .mask = m->all, .aux = constant(m->p, rng_range(&m->rng, 0, 2))};
        pimhw_program_item(m->p, &list);
        m->depth = 1;
        bool inside = rng_range(&m->rng, 0, 2) == 0; /* a loop of the list */
        if (inside) pimhw_program_loop(m->p, constant(m->p, rng_range(&m->rng, 1, 3)), m->all);
        m->depth += inside;
        for (uint64_t n = rng_range(&m->rng, 1, 4); n--;) {
            pimhw_item block = {.kind = PIMHW_BLOCK,
                                .mask = m->all,
                                .aux = constant(m->p, rng_range(&m->rng, 0, 2))};
            pimhw_program_item(m->p, &block);
            random_items(m, 3);
            pimhw_program_end(m->p);
        }
        if (inside) pimhw_program_end(m->p);
        pimhw_program_end(m->p);
        return;
    }
    random_items(m, 4);
}

/* Programs whose numbers leave the device's limits are refused: nothing to compare then. */
static void random_programs_mean_what_they_say(void)
{
    static pimhw_program p;
    unsigned n_run = 0, n_long = 0;
    for (uint64_t round = 0; round < 6000; round++) {
        maker m = {.rng = {round}, .p = &p};
        pimhw_config c = hw_odd_config(&m.rng);
        pimhw_device *device;
        pimhw_block blocks[5];
        uint32_t begin[9], order[40], n = 0;
        m.all = (UINT64_C(1) << c.n_channels) - 1;
        random_program(&m);
        for (size_t i = 0; i < 5; i++) {
            for (int k = 0; k < PIMHW_RESTS; k++)
                blocks[i].rest[k] = rng_range(&m.rng, 0, 30);
            blocks[i].row_base[0] = (uint32_t)rng_range(&m.rng, 0, 50);
            blocks[i].row_base[1] = (uint32_t)rng_range(&m.rng, 100, 150);
        }
        pimhw_request request = {.blocks = blocks, .n_blocks = (uint32_t)rng_range(&m.rng, 0, 5)};
        for (uint32_t ch = 0; ch < c.n_channels; ch++) {
            begin[ch] = n;
            for (uint64_t k = request.n_blocks ? rng_range(&m.rng, 0, 4) : 0; k--;)
                order[n++] = (uint32_t)rng_range(&m.rng, 0, request.n_blocks - 1);
        }
        begin[c.n_channels] = n;
        if (rng_range(&m.rng, 0, 1)) request.list_begin = begin, request.order = order;
        if (!CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK)) return;
        whole.n = 0;
        pimhw_status status = pimhw_device_resolve(device, &p, &request, keep, &whole, NULL);
        pimhw_device_destroy(device);
        if (status != PIMHW_OK || whole.n >= MOST) continue;
        unsigned before = check_now.n_errors;
        channels_agree(&c, &p, &request);
        if (whole.n < 300) timed_is_sent(&c, &p, &request);
        repeats_are_runs(&c, &p, request);
        if (check_now.n_errors != before && before < CHECK_PRINTED)
            printf("  round %u\n", (unsigned)round);
        n_run++;
        n_long += whole.n > 20;
    }
    CHECK(n_run > 2000);
    CHECK(n_long > 300);
}

int main(void)
{
    RUN(loop_is_its_rounds_written_out);
    RUN(tail_cuts_the_last_round);
    RUN(channels_differ_by_their_step);
    RUN(mask_shrinks_as_lists_end);
    RUN(late_block_runs_with_the_block_before);
    RUN(masks_of_loop_and_item_both_count);
    RUN(other_sources_are_other_instructions);
    RUN(no_block_adds_no_row);
    RUN(no_block_is_no_round);
    RUN(nothing_wraps);
    RUN(work_of_lists_adds_up);
    RUN(large_numbers_are_refused);
    RUN(equal_operands_share_a_name);
    RUN(full_program_says_so);
    RUN(random_programs_mean_what_they_say);
    return check_end();
}
