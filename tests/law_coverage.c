/* The coverage law: what plan, program and request say is what attention needs.
 *
 * Lowered programs are resolved and executed on symbols, channel by channel, with the layout as the
 * specification gives it (K by token over channels and banks, V by mapping A, B or K) and nothing
 * of the lowering: a buffer entry holds the name of what W wrote there, a bank row the tokens and
 * elements that the layout puts there. Every (token, element of K) must meet the element of q,
 * every (token, element of V) its p, once per query; what else meets is padding. DCS wants its
 * inputs before the reads still due, and ping-pong stays in its regions. */
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#include "checker.h"

enum { MOST_SPANS = 5, MOST_TILES = 256, MOST_OUTS = 64, MOST_BLOCKS = 1024 };

/* What a span is in this layer: queries that are its last tokens, or see all of a prefix. */
typedef struct task {
    uint64_t context_tokens, n_tokens;
    bool prefix;
} task;

/* One random case. */
typedef struct law {
    pimhw_config device;
    pimattn_shape shape;
    pimattn_plan plan;
    pimattn_span spans[MOST_SPANS];
    size_t n_spans;
    task works[MOST_SPANS];
    size_t n_works;
    uint64_t banks, lanes, columns; /* of a channel, a column, a row */
    uint64_t unit;                  /* channels that share a block */
    uint64_t n_units;               /* blocks of a sequence */
    uint64_t group;                 /* query heads of a block */
    /* layout */
    uint64_t dk, dv, k_columns, row_tokens, token_rows; /* row_tokens 0: token_rows rows a token */
    uint64_t mapping;                                   /* pimattn_v_mapping */
    uint64_t v_blocks, spread, v_groups;                /* channels of a group, and groups */
    uint64_t v_passes, v_width;           /* blocks of a channel; columns of one in a row */
    uint64_t in_region, outs, out_region; /* buffer entries: of a phase, all, of a phase */
    bool inputs_first;
} law;

/* What has been met of one block. */
typedef struct cover {
    const task *work;
    uint64_t tokens, queries, slots, v_columns; /* slots of a lane, V columns of a group: at most */
    uint64_t k_first, k_rows, v_first, v_rows;  /* rows */
    uint8_t *k;                                 /* [unit][slots][queries][k_columns] */
    uint8_t *v;                                 /* [unit][v_passes][v_columns][queries] */
} cover;

/* What one W wrote into a buffer entry. */
typedef struct tile {
    bool written, used, distinct;
    uint32_t gpr, aux;
    uint64_t offset; /* in that W */
} tile;

/* An output entry: cleared, or summing one score or one partial of the output. */
typedef struct out {
    bool cleared;
    uint64_t n_columns;   /* added since it was cleared */
    uint64_t block, a, b; /* K: slot, query; V: pass, query */
    bool is_v;
} out;

typedef struct channel {
    bool reads_wait; /* its last command was a read, and nobody waited for it */
    tile tiles[MOST_TILES];
    out outs[MOST_OUTS];
    uint64_t n_softmax, n_waits;  /* EPU works to be awaited, and awaited, so far */
    uint64_t k_done[MOST_BLOCKS]; /* scores read, per block */
} channel;

static law w;
static cover covers[MOST_BLOCKS];
static channel channels[64];
static uint64_t useful, n_macs;
static uint64_t epu_softmax, epu_sums, wanted_sums; /* elements: as told to the hub, as read */
static const pimhw_request *request;

static uint64_t up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static bool wrong(const pimhw_instruction *in, uint64_t ch, const char *what)
{
    if (check_now.n_errors < CHECK_PRINTED)
        printf("  channel %u: kind %u op %u row %u column %u tile %u out %u gpr %u aux %u: %s\n",
               (unsigned)ch, (unsigned)in->kind, (unsigned)in->op_size, in->row, in->column,
               in->tile, in->out, in->gpr, in->aux, what);
    return false;
}

/* Block number i of the list of a channel. */
static uint64_t listed(uint64_t ch, uint64_t i)
{
    return request->list_begin ? request->order[request->list_begin[ch] + i] : i;
}

static uint64_t n_listed(uint64_t ch)
{
    return request->list_begin ? request->list_begin[ch + 1] - request->list_begin[ch]
                               : request->n_blocks;
}

/* Position of a block in the list of a channel. */
static uint64_t position(uint64_t ch, uint64_t block)
{
    uint64_t i = 0;
    while (i < n_listed(ch) && listed(ch, i) != block)
        i++;
    return i;
}

/* Lanes of a column whose elements exist: [first, first + lanes) of n. */
static uint64_t filled(uint64_t n, uint64_t first, uint64_t width)
{
    return first >= n ? 0 : n - first < width ? n - first : width;
}

/* Tokens of `width` lanes that a query sees: those up to its own, in its window, and the first. */
static uint64_t seen_by(const cover *c, uint64_t query, uint64_t first, uint64_t width)
{
    uint64_t old = c->work->context_tokens - c->work->n_tokens, own = old + query / w.group, n = 0;
    uint64_t gone = c->work->context_tokens - c->tokens, sinks = w.shape.sink_tokens;
    if (c->work->prefix) own = c->work->context_tokens;
    for (uint64_t i = first; i < first + width && i < c->tokens; i++) {
        uint64_t t = i < sinks ? i : i + gone;
        n += t <= own && (w.shape.window == 0 || t + w.shape.window > own || t < sinks);
    }
    return n;
}

/* One column of keys against one entry of q. */
static bool meet_k(const pimhw_instruction *in, uint64_t ch, uint64_t b, uint64_t i)
{
    cover *c = &covers[b];
    const tile *t = &channels[ch].tiles[in->tile + i];
    out *o = &channels[ch].outs[in->out];
    uint64_t row = in->row - c->k_first, column = in->column + i, slot, k;
    uint64_t unit_channel = w.unit == 1 ? 0 : ch;
    if (w.row_tokens) {
        slot = row * w.row_tokens + column / w.k_columns;
        k = column % w.k_columns;
        if (column / w.k_columns >= w.row_tokens)
            return wrong(in, ch, "K: no token in this column");
    } else {
        slot = row / w.token_rows;
        k = row % w.token_rows * w.columns + column;
        if (k >= w.k_columns) return wrong(in, ch, "K: beyond the token");
    }
    if (slot >= c->slots) return wrong(in, ch, "K: a slot without tokens");
    uint64_t query = (t->gpr + t->offset) / w.k_columns;
    if (!t->written || t->distinct || t->aux) return wrong(in, ch, "K: the buffer holds no q");
    if ((t->gpr + t->offset) % w.k_columns != k) return wrong(in, ch, "K: other elements of q");
    if (query >= c->queries) return wrong(in, ch, "K: no such query");
    if (o->n_columns && (o->is_v || o->block != b || o->a != slot || o->b != query))
        return wrong(in, ch, "K: two scores in one output entry");
    o->is_v = false, o->block = b, o->a = slot, o->b = query;
    uint64_t first = slot * w.unit * w.banks + unit_channel * w.banks;
    if (first >= c->tokens) return wrong(in, ch, "K: no token of this channel in the slot");
    useful += seen_by(c, query, first, w.banks) * filled(w.dk, k * w.lanes, w.lanes);
    uint8_t *met = &c->k[((unit_channel * c->slots + slot) * c->queries + query) * w.k_columns + k];
    return (*met)++ == 0 || wrong(in, ch, "K: met twice");
}

/* One column of values against one entry of p. */
static bool meet_v(const pimhw_instruction *in, uint64_t ch, uint64_t b, uint64_t i)
{
    cover *c = &covers[b];
    const tile *t = &channels[ch].tiles[in->tile + i];
    out *o = &channels[ch].outs[in->out];
    uint64_t row = in->row - c->v_first, unit_channel = w.unit == 1 ? 0 : ch;
    uint64_t pass = row % w.v_passes, j = row / w.v_passes * w.columns + in->column + i;
    if (w.mapping == PIMATTN_V_K) {
        pass = (in->column + i) / w.v_width;
        j = row * w.v_width + (in->column + i) % w.v_width;
    }
    uint64_t group = unit_channel / w.spread, block = pass * w.spread + unit_channel % w.spread;
    uint64_t first = w.lanes * (j * w.v_groups + group), query = t->gpr;
    if (group >= w.v_groups || block >= w.v_blocks) return wrong(in, ch, "V: a spare channel");
    if (in->out >= w.out_region) return wrong(in, ch, "V: beyond the region of outputs");
    if (first >= c->tokens) return wrong(in, ch, "V: a column without tokens");
    if (!t->written || t->aux + t->offset != j) return wrong(in, ch, "V: other columns of p");
    if (w.v_groups > 1 && !t->distinct) return wrong(in, ch, "V: p of another group");
    if (query >= c->queries) return wrong(in, ch, "V: no such query");
    if (o->n_columns && (!o->is_v || o->block != b || o->a != pass || o->b != query))
        return wrong(in, ch, "V: two sums in one output entry");
    o->is_v = true, o->block = b, o->a = pass, o->b = query;
    useful += seen_by(c, query, first, w.lanes) * filled(w.dv, block * w.banks, w.banks);
    uint8_t *met =
        &c->v[((unit_channel * w.v_passes + pass) * c->v_columns + j) * c->queries + query];
    return (*met)++ == 0 || wrong(in, ch, "V: met twice");
}

static bool multiply(const pimhw_instruction *in, uint64_t ch)
{
    out *o = &channels[ch].outs[in->out];
    if (in->out >= w.outs || in->tile + in->op_size > w.in_region ||
        in->column + in->op_size > w.columns)
        return wrong(in, ch, "beyond the device");
    if (!o->cleared) return wrong(in, ch, "MAC into an entry that was not cleared");
    n_macs += in->op_size;
    for (uint64_t n = n_listed(ch), i = 0; i < n; i++) {
        uint64_t b = listed(ch, i);
        const cover *c = &covers[b];
        bool k = in->row >= c->k_first && in->row < c->k_first + c->k_rows;
        bool v = in->row >= c->v_first && in->row < c->v_first + c->v_rows;
        if (v && channels[ch].n_waits <= i) return wrong(in, ch, "V: before its softmax");
        for (uint64_t column = 0; (k || v) && column < in->op_size; column++) {
            if (!(k ? meet_k : meet_v)(in, ch, b, column)) return false;
            channels[ch].tiles[in->tile + column].used = true;
            o->n_columns++;
        }
        if (k || v) return true;
    }
    return wrong(in, ch, "a row of no block of this channel");
}

/* Dims of V that a channel's banks hold in a pass. */
static uint64_t dims_of(uint64_t ch, uint64_t pass)
{
    uint64_t block = pass * w.spread + (w.unit == 1 ? 0 : ch) % w.spread;
    return filled(w.dv, block * w.banks, w.banks);
}

static bool read_out(const pimhw_instruction *in, uint64_t ch)
{
    out *o = &channels[ch].outs[in->out];
    if (in->out >= w.outs) return wrong(in, ch, "beyond the device");
    if (!o->n_columns) return wrong(in, ch, "RD_MAC of nothing");
    if (!o->is_v && o->n_columns != w.k_columns) return wrong(in, ch, "K: half a score read");
    if (!o->is_v) channels[ch].k_done[o->block]++;
    if (o->is_v) wanted_sums += dims_of(ch, o->a);
    o->n_columns = 0;
    o->cleared = w.device.out_clear == PIMHW_CLEAR_READ;
    return true;
}

/* Scores that a channel owes for a block. */
static uint64_t scores(uint64_t ch, uint64_t b)
{
    uint64_t first = (w.unit == 1 ? 0 : ch) * w.banks, all = w.unit * w.banks;
    uint64_t tokens = covers[b].tokens;
    return first >= tokens ? 0 : up(tokens - first, all) * covers[b].queries;
}

static bool softmax(const pimhw_instruction *in, uint64_t ch)
{
    uint64_t i = channels[ch].n_softmax;
    if (!(in->flags & PIMHW_AWAITED)) return true;
    if (i >= n_listed(ch)) return wrong(in, ch, "softmax of no block");
    uint64_t b = listed(ch, i);
    if (channels[ch].k_done[b] != scores(ch, b)) return wrong(in, ch, "softmax before all scores");
    channels[ch].n_softmax++;
    return true;
}

static bool step(const pimhw_instruction *in, uint64_t ch)
{
    channel *c = &channels[ch];
    bool reads_waited = c->reads_wait;
    c->reads_wait = in->kind == PIMHW_RD_MAC;
    switch (in->kind) {
    case PIMHW_WR_GB:
        if (in->tile + in->op_size > w.in_region) return wrong(in, ch, "beyond the region");
        if (w.inputs_first && reads_waited) return wrong(in, ch, "W behind a read");
        for (uint64_t i = 0; i < in->op_size; i++) {
            tile t = {true, false, (in->flags & PIMHW_DISTINCT) != 0, in->gpr, in->aux, i};
            tile *before = &c->tiles[in->tile + i];
            if (before->written && !before->used) return wrong(in, ch, "over an entry nobody met");
            *before = t;
        }
        return true;
    case PIMHW_WR_BIAS:
        if (w.device.out_clear != PIMHW_CLEAR_BIAS)
            return wrong(in, ch, "this device reads to clear");
        if (in->out >= w.outs) return wrong(in, ch, "beyond the device");
        if (c->outs[in->out].n_columns) return wrong(in, ch, "WR_BIAS over an unread sum");
        c->outs[in->out].cleared = true;
        return true;
    case PIMHW_MAC_ABK: return multiply(in, ch);
    case PIMHW_RD_MAC: return read_out(in, ch);
    case PIMHW_EPU: return softmax(in, ch);
    case PIMHW_EPU_WAIT:
        if (c->n_waits == c->n_softmax) return wrong(in, ch, "a wait for no softmax");
        c->n_waits++;
        return true;
    default: return true;
    }
}

static bool execute(void *user, const pimhw_instruction *in)
{
    bool ok = true;
    for (uint64_t ch = 0; ch < w.device.n_channels && ok; ch++)
        if (in->mask >> ch & 1) ok = step(in, ch);
    if (in->kind == PIMHW_EPU)
        *(in->flags & PIMHW_AWAITED ? &epu_softmax : &epu_sums) += in->op_size;
    *(bool *)user = ok;
    return ok;
}

/* --------------------------------------------------------------------------
 * What must have happened.
 * -------------------------------------------------------------------------- */

static bool all_met_once(uint64_t b)
{
    const cover *c = &covers[b];
    for (uint64_t ch = 0; ch < w.unit; ch++) {
        for (uint64_t slot = 0; slot < c->slots; slot++) {
            bool tokens = slot * w.unit * w.banks + ch * w.banks < c->tokens;
            const uint8_t *met = &c->k[(ch * c->slots + slot) * c->queries * w.k_columns];
            for (uint64_t i = 0; i < c->queries * w.k_columns; i++)
                if (!CHECK(met[i] == tokens)) return false;
        }
        uint64_t group = ch / w.spread;
        for (uint64_t pass = 0; pass < w.v_passes; pass++)
            for (uint64_t j = 0; j < c->v_columns; j++) {
                bool tokens = w.lanes * (j * w.v_groups + group) < c->tokens;
                bool here = group < w.v_groups && pass * w.spread + ch % w.spread < w.v_blocks;
                const uint8_t *met =
                    &c->v[((ch * w.v_passes + pass) * c->v_columns + j) * c->queries];
                for (uint64_t q = 0; q < c->queries; q++)
                    if (!CHECK(met[q] == (tokens && here))) return false;
            }
    }
    return true;
}

static bool nothing_unread(void)
{
    for (uint64_t ch = 0; ch < w.device.n_channels; ch++) {
        for (int i = 0; i < MOST_OUTS; i++)
            if (!CHECK_U(channels[ch].outs[i].n_columns, 0)) return false; /* unread */
        for (int i = 0; i < MOST_TILES; i++)
            if (!CHECK_U(channels[ch].tiles[i].written, channels[ch].tiles[i].used)) return false;
        if (!CHECK_U(channels[ch].n_waits, n_listed(ch))) return false;
    }
    return true;
}

static bool rows_apart(uint64_t a, uint64_t b)
{
    const cover *x = &covers[a], *y = &covers[b];
    const uint64_t first[4] = {x->k_first, x->v_first, y->k_first, y->v_first};
    const uint64_t rows[4] = {x->k_rows, x->v_rows, y->k_rows, y->v_rows};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            if ((a != b || (i < 2 && j < 2)) && first[i] < first[j] + rows[j] &&
                first[j] < first[i] + rows[i])
                return false;
    return true;
}

/* Every block on one channel (HFP), or all on all; the blocks of a channel in rows of their own. */
static bool lists_are_sound(void)
{
    static unsigned n_seen[MOST_BLOCKS];
    if (!CHECK_U(request->list_begin != NULL, w.plan.partition == PIMATTN_HFP)) return false;
    memset(n_seen, 0, sizeof n_seen);
    for (uint64_t ch = 0; ch < w.device.n_channels; ch++)
        for (uint64_t i = 0; i < n_listed(ch); i++) {
            n_seen[listed(ch, i)]++;
            for (uint64_t j = 0; j <= i; j++)
                if (!CHECK(rows_apart(listed(ch, i), listed(ch, j)))) return false;
        }
    for (uint64_t b = 0; b < request->n_blocks; b++)
        if (!CHECK_U(n_seen[b], request->list_begin ? 1 : w.device.n_channels)) return false;
    return true;
}

/* Longest first onto the least loaded channel, ties to the lowest number; n_tokens are equal. */
static void longest_first(void)
{
    uint64_t load[64] = {0};
    bool done[MOST_BLOCKS] = {false};
    if (!request->list_begin) return;
    for (size_t i = 1; i < w.n_works; i++)
        if (w.works[i].n_tokens != w.works[0].n_tokens) return;
    for (uint64_t n = 0; n < request->n_blocks; n++) {
        uint64_t longest = MOST_BLOCKS, least = 0;
        for (uint64_t b = 0; b < request->n_blocks; b++)
            if (!done[b] && (longest == MOST_BLOCKS || covers[b].tokens > covers[longest].tokens))
                longest = b;
        for (uint64_t ch = 1; ch < w.device.n_channels; ch++)
            if (load[ch] < load[least]) least = ch;
        done[longest] = true;
        load[least] += covers[longest].tokens;
        if (!CHECK(position(least, longest) < n_listed(least))) return;
    }
}

/* --------------------------------------------------------------------------
 * Random cases.
 * -------------------------------------------------------------------------- */

static void random_device(check_rng *rng)
{
    pimhw_config *c = &w.device;
    CHECK_U(pimhw_config_init(c, rng_range(rng, 0, 1) ? "aimx" : "aim-gddr6", NULL), PIMHW_OK);
    c->n_channels = (uint32_t)rng_range(rng, 1, 32);
    if (rng_range(rng, 0, 2) == 0) c->n_channels = 1u << rng_range(rng, 0, 5);
    c->controller = (uint32_t)rng_range(rng, 0, 3);
    c->refresh = c->controller != PIMHW_IN_ORDER && rng_range(rng, 0, 1); /* the checker has none */
    if (rng_range(rng, 0, 2)) return;
    c->front_end = (uint32_t)rng_range(rng, 0, 1);
    c->out_clear = (uint32_t)rng_range(rng, 0, 1);
    c->epu_overlap = (uint32_t)rng_range(rng, 0, 1);
    bool halves = c->controller == PIMHW_PING_PONG;
    c->out_entries = 1u << rng_range(rng, halves, 6);
    c->obuf = (uint32_t)rng_range(rng, 1, MOST_OUTS);
    c->extra_region = (uint32_t)rng_range(rng, 0, 1);
    if (rng_range(rng, 0, 1)) c->in_entries = (uint32_t)rng_range(rng, 1u + halves, MOST_TILES);
    if (rng_range(rng, 0, 3) == 0) c->row_bytes = 32u << rng_range(rng, 2, 7);
    if (rng_range(rng, 0, 3) == 0) c->n_group_banks = (uint32_t)rng_range(rng, 1, 8);
}

static void random_shape(check_rng *rng)
{
    static const uint32_t usual[] = {64, 128, 96, 80, 256, 1040, 2048, 1024};
    pimattn_shape *s = &w.shape;
    memset(s, 0, sizeof *s);
    s->n_layers = 1;
    s->head_dim = (uint32_t)rng_range(rng, 1, rng_range(rng, 0, 1) ? 300 : 40);
    if (rng_range(rng, 0, 3) == 0) s->head_dim = usual[rng_range(rng, 0, rng_range(rng, 3, 7))];
    if (rng_range(rng, 0, 2) == 0) s->head_dim_v = (uint32_t)rng_range(rng, 1, 300);
    if (rng_range(rng, 0, 9) == 0) s->head_dim_v = usual[rng_range(rng, 0, 7)];
    s->n_kv_heads = (uint32_t)rng_range(rng, 1, rng_range(rng, 1, 8));
    s->n_heads = s->n_kv_heads * (uint32_t)rng_range(rng, 1, 8);
    if (rng_range(rng, 0, 3) != 0) return;
    s->window = rng_range(rng, 1, 600);
    if (rng_range(rng, 0, 1)) s->sink_tokens = rng_range(rng, 1, 40);
}

/* Tokens that one of the queries sees: counted. */
static uint64_t seen_tokens(const task *work)
{
    uint64_t n = 0, first = work->context_tokens - work->n_tokens;
    if (work->prefix) return work->context_tokens;
    for (uint64_t t = 0; t < work->context_tokens; t++)
        n += w.shape.window == 0 || t + w.shape.window > first || t < w.shape.sink_tokens;
    return n;
}

static void layout(void)
{
    const pimhw_config *c = &w.device;
    w.banks = (uint64_t)c->n_bank_groups * c->n_group_banks;
    w.lanes = c->column_bytes / c->element_bytes;
    w.columns = c->row_bytes / c->column_bytes;
    w.dk = w.shape.head_dim;
    w.dv = w.shape.head_dim_v ? w.shape.head_dim_v : w.dk;
    w.k_columns = up(w.dk, w.lanes);
    w.row_tokens = w.columns / w.k_columns;
    w.token_rows = w.row_tokens ? 1 : up(w.k_columns, w.columns);
    w.v_blocks = up(w.dv, w.banks);
    bool halves = c->controller == PIMHW_PING_PONG;
    w.inputs_first = c->controller == PIMHW_DCS;
    w.in_region = halves && !c->extra_region ? c->in_entries / 2 : c->in_entries;
    w.outs = c->controller == PIMHW_DCS ? c->obuf : c->out_entries;
    w.out_region = halves ? w.outs / 2 : w.outs;
}

/* K: all blocks of dims side by side in a row, an output entry for each and every query. */
static uint64_t mapping_taken(uint64_t wanted, bool row_reuse_off, uint64_t n_queries)
{
    uint64_t queries = row_reuse_off ? 1 : n_queries;
    bool fits =
        w.v_blocks <= w.columns && queries * w.v_blocks <= w.out_region && queries <= w.in_region;
    return wanted == PIMATTN_V_K && !fits ? PIMATTN_V_A : wanted;
}

static void layout_v(uint64_t mapping)
{
    w.mapping = mapping;
    w.spread = mapping != PIMATTN_V_A ? 1 : w.v_blocks < w.unit ? w.v_blocks : w.unit;
    w.v_groups = w.unit / w.spread;
    w.v_passes = up(w.v_blocks, w.spread);
    w.v_width = mapping == PIMATTN_V_K ? w.columns / w.v_blocks : w.columns;
}

/* Sizes and rows of every block; bytes of its cover. */
static uint64_t size_blocks(const pimhw_block *blocks, uint64_t n)
{
    uint64_t bytes = 0;
    for (uint64_t b = 0; b < n; b++) {
        const task *work = &w.works[b / w.n_units];
        cover *c = &covers[b];
        c->work = work;
        c->tokens = seen_tokens(work);
        c->queries = work->n_tokens * w.group;
        c->slots = up(c->tokens, w.unit * w.banks);
        c->v_columns = up(c->tokens, w.lanes * w.v_groups);
        c->k_rows = w.row_tokens ? up(c->slots, w.row_tokens) : c->slots * w.token_rows;
        c->v_rows = up(c->v_columns, w.v_width) * (w.mapping == PIMATTN_V_K ? 1 : w.v_passes);
        if (blocks) c->k_first = blocks[b].row_base[0], c->v_first = blocks[b].row_base[1];
        bytes += w.unit * c->queries * (c->slots * w.k_columns + w.v_passes * c->v_columns);
    }
    return bytes;
}

/* Takes memory for the covers, all 0. */
static void lay_covers(uint8_t *memory, uint64_t n)
{
    for (uint64_t b = 0; b < n; b++) {
        cover *c = &covers[b];
        c->k = memory;
        c->v = c->k + w.unit * c->slots * c->queries * w.k_columns;
        memory = c->v + w.unit * w.v_passes * c->v_columns * c->queries;
    }
}

/* What the layer makes of the spans, of which the second is a prefix of so many that follow it, or
 * none is. */
static void lay_works(uint64_t n_sharing)
{
    w.n_works = 0;
    for (size_t i = 0; i < w.n_spans; i++) {
        task *to = &w.works[w.n_works];
        to->context_tokens = w.spans[i].context_tokens;
        to->n_tokens = w.spans[i].n_tokens % PIMATTN_PREFIX;
        to->prefix = n_sharing > 0 && i == 1;
        if (to->prefix && w.shape.window) continue;
        if (w.shape.window && n_sharing > 0 && i >= 2 && i < 2 + n_sharing)
            to->context_tokens += w.spans[1].context_tokens;
        w.n_works++;
    }
}

/* n_sharing sequences have a prefix, and a token each: as many queries as are planned. */
static void random_spans(check_rng *rng, uint64_t n_tokens, uint64_t n_sharing)
{
    uint64_t most = rng_range(rng, 0, 3) ? 400 : 5000;
    w.n_spans = (size_t)rng_range(rng, 1, rng_range(rng, 1, MOST_SPANS));
    if (n_sharing > 0) w.n_spans = (size_t)rng_range(rng, 2 + n_sharing, MOST_SPANS);
    for (;; most = most / 2 + 1) {
        for (size_t i = 0; i < w.n_spans; i++) {
            uint64_t n = rng_range(rng, 0, 1) ? n_tokens : rng_range(rng, 1, n_tokens);
            if (n_sharing > 0 && i >= 1 && i < 2 + n_sharing) n = 1;
            w.spans[i].context_tokens = rng_range(rng, n, most > n ? most : n);
            w.spans[i].n_tokens = n_sharing > 0 && i == 1 ? PIMATTN_PREFIX + n_sharing : n;
        }
        lay_works(n_sharing);
        if (size_blocks(NULL, w.n_works * w.n_units) < 400000 || most <= n_tokens + 1) return;
    }
}

/* Time and resolve speak of the same program; its listing keeps every rule. Its cycles. */
static uint64_t timed_is_resolved(pimhw_device *device, const pimhw_program *program, bool epu_free)
{
    static checker k;
    pimhw_sink sink = {checker_event, &k, NULL};
    pimhw_readings r;
    pimhw_cause why = {""};
    checker_begin(&k, &w.device);
    if (!CHECK_U(pimhw_device_time(device, &r, program, request, &sink, &why), PIMHW_OK)) {
        printf("  %s\n", why.text);
        return 0;
    }
    CHECK_U(r.commands[PIMHW_CMD_MAC16], n_macs);
    CHECK_U(r.useful_macs, useful);
    CHECK_U(r.padding_macs, n_macs * w.banks * w.lanes - useful);
    CHECK_U(r.epu_ck != 0, !epu_free);
    if (w.device.controller != PIMHW_IN_ORDER) return r.cycles; /* not its rules */
    checker_end(&k, &r);
    CHECK(checker_agrees(&k, "attention"));
    return r.cycles;
}

static void check_case(const pimhw_program *program, const pimhw_request *given, bool timed)
{
    pimhw_device *device;
    pimhw_cause why = {""};
    bool ok = true;
    request = given;
    uint64_t bytes = size_blocks(given->blocks, given->n_blocks);
    if (!lists_are_sound()) return;
    longest_first();
    uint8_t *memory = (uint8_t *)check_alloc((size_t)bytes, 1);
    lay_covers(memory, given->n_blocks);
    memset(channels, 0, sizeof channels);
    for (uint64_t ch = 0; ch < w.device.n_channels; ch++)
        for (int i = 0; i < MOST_OUTS; i++)
            channels[ch].outs[i].cleared = w.device.out_clear == PIMHW_CLEAR_READ;
    useful = n_macs = epu_softmax = epu_sums = wanted_sums = 0;
    if (!CHECK_U(pimhw_device_create(&device, &w.device, &why), PIMHW_OK)) return;
    if (!CHECK_U(pimhw_device_resolve(device, program, given, execute, &ok, &why), PIMHW_OK))
        printf("  %s\n", why.text);
    CHECK(ok);
    for (uint64_t b = 0; b < given->n_blocks && ok; b++)
        ok = all_met_once(b);
    for (uint64_t b = 0; b < given->n_blocks; b++) /* which the hub adds to others' */
        wanted_sums += covers[b].work->prefix ? covers[b].queries * w.dv : 0;
    if (ok) ok = nothing_unread();
    CHECK_U(given->useful_macs, useful);
    uint64_t wanted_softmax = 0;
    for (uint64_t b = 0; b < given->n_blocks; b++)
        wanted_softmax += covers[b].tokens * covers[b].queries * w.device.epu_passes;
    CHECK_U(epu_softmax, wanted_softmax);
    CHECK_U(epu_sums, wanted_sums);
    uint64_t cycles = ok && timed ? timed_is_resolved(device, program, false) : 0;
    pimhw_device_destroy(device);
    if (ok && timed && w.device.controller == PIMHW_IN_ORDER) {
        w.device.epu_ck_per_op = 0; /* what the memory takes alone */
        CHECK_U(pimhw_device_create(&device, &w.device, &why), PIMHW_OK);
        CHECK(timed_is_resolved(device, program, true) <= cycles);
        pimhw_device_destroy(device);
    }
    free(memory);
}

static void print_case(uint64_t seed, bool row_reuse_off)
{
    printf("  seed %u: %s, %u channels, %s, in %u, out %u, %s, V %s, dims %u/%u, heads %u/%u, "
           "row reuse %s\n",
           (unsigned)seed, w.device.preset, w.device.n_channels,
           pimhw_controller_str(w.device.controller), w.device.in_entries, (unsigned)w.outs,
           w.plan.partition == PIMATTN_TCP ? "TCP" : "HFP",
           pimattn_v_mapping_str((uint32_t)w.mapping), (unsigned)w.dk, (unsigned)w.dv,
           w.shape.n_heads, w.shape.n_kv_heads, row_reuse_off ? "off" : "on");
    for (size_t i = 0; i < w.n_spans; i++)
        printf("    %u tokens, %u queries%s\n", (unsigned)w.spans[i].context_tokens,
               (unsigned)(w.spans[i].n_tokens % PIMATTN_PREFIX),
               w.spans[i].n_tokens & PIMATTN_PREFIX ? ", a prefix" : "");
}

static unsigned n_taken[2][PIMATTN_V_CHEAPEST]; /* by inputs_first and mapping */
static unsigned n_prefixes[2];                  /* without and with a window */

static void random_case(uint64_t seed, uint32_t partition, bool parts)
{
    static pimhw_program program;
    static pimhw_block blocks[MOST_BLOCKS];
    static uint32_t order[MOST_BLOCKS], begin[PIMHW_MAX_CHANNELS + 1];
    check_rng rng = {seed * 2 + partition};
    pimhw_request given;
    pimhw_cause why = {""};
    random_device(&rng);
    random_shape(&rng);
    if (parts) { /* keys of several rows, or larger than the global buffer */
        w.shape.head_dim = (uint32_t)rng_range(&rng, 65, 600);
        w.device.row_bytes = 32u << rng_range(&rng, 0, 4);
        w.device.in_entries = (uint32_t)rng_range(&rng, 2, rng_range(&rng, 2, MOST_TILES));
    }
    uint32_t unit = (uint32_t)rng_range(&rng, 0, 1);
    bool row_reuse_off = rng_range(&rng, 0, 2) == 0;
    bool by_query = partition == PIMATTN_HFP && unit == PIMATTN_BY_QUERY_HEAD;
    uint64_t n_tokens = rng_range(&rng, 0, 1) ? 1 : rng_range(&rng, 1, 3), n_sharing = 0;
    if (rng_range(&rng, 0, 4) == 0) n_sharing = n_tokens = rng_range(&rng, 1, MOST_SPANS - 2);
    w.unit = partition == PIMATTN_TCP ? w.device.n_channels : 1;
    w.n_units = by_query ? w.shape.n_heads : w.shape.n_kv_heads;
    w.group = by_query ? 1 : w.shape.n_heads / w.shape.n_kv_heads;
    layout();
    uint32_t wanted = (uint32_t)rng_range(&rng, 0, 2);
    layout_v(mapping_taken(wanted, row_reuse_off, n_tokens * w.group));
    n_taken[w.inputs_first][w.mapping]++;
    random_spans(&rng, n_tokens, n_sharing);
    n_prefixes[w.shape.window > 0] += n_sharing > 0;
    unsigned before = check_now.n_errors;
    bool ok = CHECK_U(pimattn_plan_init(&w.plan, &w.shape, &w.device, partition, unit,
                                        row_reuse_off, n_tokens * w.group, &why),
                      PIMATTN_OK) &&
              CHECK_U(pimattn_plan_map_v(&w.plan, wanted, &why), PIMATTN_OK) &&
              CHECK_U(w.plan.v_mapping, w.mapping) && CHECK_U(w.plan.v_wanted, wanted) &&
              CHECK_U(pimattn_plan_lower(&w.plan, &program, &why), PIMATTN_OK) &&
              CHECK_U(pimattn_plan_blocks(&w.plan, w.n_spans), w.n_spans * w.n_units) &&
              CHECK_U(pimattn_plan_request(&w.plan, &given, blocks, order, begin, w.spans,
                                           w.n_spans, &why),
                      PIMATTN_OK) &&
              CHECK_U(given.n_blocks, w.n_works * w.n_units);
    if (ok)
        check_case(&program, &given, seed % 4 == 0);
    else
        printf("  %s\n", why.text);
    if (check_now.n_errors != before && before < CHECK_PRINTED) print_case(seed, row_reuse_off);
}

static void token_centric_plans_cover(void)
{
    for (uint64_t seed = 0; seed < 1200; seed++)
        random_case(seed, PIMATTN_TCP, seed % 8 == 7);
}

static void head_first_plans_cover(void)
{
    for (uint64_t seed = 0; seed < 1200; seed++)
        random_case(seed, PIMATTN_HFP, seed % 8 == 7);
}

static void every_mapping_was_there(void)
{
    for (int i = 0; i < 6; i++)
        CHECK(n_taken[i / 3][i % 3] > 80);
    CHECK(n_prefixes[0] > 100 && n_prefixes[1] > 100);
}

int main(void)
{
    RUN(token_centric_plans_cover);
    RUN(head_first_plans_cover);
    RUN(every_mapping_was_there);
    return check_end();
}
