/* What must not make a device faster: more tokens, heads, rows; fewer channels; fixed gaps. A law
 * where a controller cannot reorder (in-order, static); under ping-pong and DCS the exceptions are
 * counted and printed. And what must not matter to a controller that tracks nothing. */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#include "check.h"

enum { LANES = 16, BANKS = 16, ROW_COLUMNS = 64, DIMS = 8, CONTROLLERS = 4 };
enum { STREAM = 12288, OUTS = 8 };

/* Instructions for one channel. */
typedef struct stream {
    pimhw_instruction at[STREAM];
    size_t n;
} stream;

static stream now; /* of the running test */

static bool reorders(uint32_t controller)
{
    return controller == PIMHW_PING_PONG || controller == PIMHW_DCS;
}

static pimhw_config channel_of(uint32_t controller, bool refresh, uint32_t n_outs)
{
    pimhw_config c;
    CHECK_U(pimhw_config_init(&c, "aimx", NULL), PIMHW_OK);
    c.n_channels = 1;
    c.controller = controller;
    c.refresh = refresh;
    c.out_entries = c.obuf = n_outs;
    return c;
}

static void add(pimhw_kind kind, uint64_t op_size, uint64_t tile, uint64_t row, uint64_t column,
                uint64_t out)
{
    pimhw_instruction in = {.kind = kind, .mask = 1, .op_size = op_size};
    in.tile = (uint32_t)tile, in.row = (uint32_t)row;
    in.column = (uint32_t)column, in.out = (uint32_t)out;
    if (CHECK(now.n < STREAM)) now.at[now.n++] = in;
}

static void write_tiles(uint64_t tile, uint64_t n)
{
    add(PIMHW_WR_GB, n, tile, 0, 0, 0);
}

static void macs(uint64_t n, uint64_t tile, uint64_t row, uint64_t column, uint64_t out)
{
    add(PIMHW_MAC_ABK, n, tile, row, column, out);
}

static void read_out(uint64_t out)
{
    add(PIMHW_RD_MAC, 1, 0, 0, 0, out);
}

/* Sends the stream; its readings' parts must sum to the whole. */
static uint64_t clocks_of(const pimhw_config *c)
{
    pimhw_device *device = NULL;
    pimhw_readings r = {0};
    pimhw_cause why = {""};
    uint64_t sum = 0;
    bool ok = CHECK_U(pimhw_device_create(&device, c, &why), PIMHW_OK) &&
              CHECK_U(pimhw_device_begin(device, NULL), PIMHW_OK);
    for (size_t i = 0; i < now.n && ok; i++)
        ok = CHECK_U(pimhw_device_submit(device, &now.at[i], &why), PIMHW_OK);
    ok = ok && CHECK_U(pimhw_device_finish(device, &r, &why), PIMHW_OK);
    if (!ok) printf("  %s\n", why.text);
    pimhw_device_destroy(device);
    for (int i = 0; i < PIMHW_N_SPENT; i++)
        sum += r.breakdown_ck[i];
    CHECK_U(sum, r.cycles);
    CHECK_U(r.useful_macs + r.padding_macs, r.macs);
    return r.cycles;
}

/* --- One KV head of dimension 128 on one channel, g queries, t tokens of the channel --------- */

typedef enum mapping { K_ROWS, V_A, V_A_W_FIRST, V_B, V_K, N_MAPPINGS } mapping;

static const char *const mapping_names[N_MAPPINGS] = {"K", "V mapping A", "V mapping A, W first",
                                                      "V mapping B", "V mapping K"};

static uint64_t up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Queries stay in the buffer; 8 slots of a token a bank in a row. */
static void k_rows(uint64_t t, uint64_t g)
{
    uint64_t slots = up(t, BANKS), out = 0;
    write_tiles(0, g * DIMS);
    for (uint64_t row = 0; row < up(slots, 8); row++)
        for (uint64_t q = 0; q < g; q++)
            for (uint64_t s = 0; s < least(8, slots - row * 8); s++) {
                macs(DIMS, q * DIMS, row, s * DIMS, out % OUTS);
                read_out(out++ % OUTS);
            }
}

/* Query after query in each row; with W first the next inputs are sent before the read. */
static void v_a_in_order(uint64_t t, uint64_t g, bool w_first)
{
    uint64_t columns = up(t, LANES), rows = up(columns, ROW_COLUMNS);
    for (uint64_t i = 0; i < rows * g; i++) {
        uint64_t row = i / g, q = i % g, n = least(ROW_COLUMNS, columns - row * ROW_COLUMNS);
        uint64_t next_row = (i + 1) / g;
        if (i == 0 || !w_first) write_tiles(0, n);
        macs(n, 0, row, 0, q);
        if (w_first && next_row < rows)
            write_tiles(0, least(ROW_COLUMNS, columns - next_row * ROW_COLUMNS));
        if (g > 1 || row + 1 == rows) read_out(q);
    }
}

static void v_a(uint64_t t, uint64_t g)
{
    v_a_in_order(t, g, false);
}

static void v_a_w_first(uint64_t t, uint64_t g)
{
    v_a_in_order(t, g, true);
}

static void v_b(uint64_t t, uint64_t g)
{
    uint64_t columns = up(t, LANES);
    for (uint64_t strip = 0; strip < up(columns, ROW_COLUMNS); strip++)
        for (uint64_t d = 0; d < DIMS; d++)
            for (uint64_t q = 0; q < g; q++) {
                uint64_t n = least(ROW_COLUMNS, columns - strip * ROW_COLUMNS);
                if (g > 1 || d == 0) write_tiles(0, n);
                macs(n, 0, strip * DIMS + d, 0, q);
                read_out(q);
            }
}

static void v_k(uint64_t t, uint64_t g)
{
    uint64_t columns = up(t, LANES);
    for (uint64_t row = 0; row < up(columns, 8); row++)
        for (uint64_t q = 0; q < g; q++) {
            uint64_t n = least(8, columns - row * 8);
            write_tiles(q * 8, n);
            for (uint64_t d = 0; d < DIMS; d++)
                macs(n, q * 8, row, d * 8, q * DIMS + d);
        }
    for (uint64_t out = 0; out < g * DIMS; out++)
        read_out(out);
}

static uint64_t phase_clocks(const pimhw_config *c, mapping m, uint64_t t, uint64_t g)
{
    static void (*const build[N_MAPPINGS])(uint64_t t, uint64_t g) = {k_rows, v_a, v_a_w_first, v_b,
                                                                      v_k};
    now.n = 0;
    build[m](t, g);
    return clocks_of(c);
}

/* Lengths at which something changes: every column to 600 tokens, then about whole rows. */
static uint64_t next_length(uint64_t t)
{
    uint64_t in_row = t % 1024;
    if (t < 600) return t + LANES;
    if (in_row == 0) return t + 1;
    return in_row < 1024 - LANES ? t - in_row + 1024 - LANES : t - in_row + 1024;
}

/* Drops from a length to the next by more than allowed_ck; the worst is printed. */
static unsigned drops_with_tokens(uint32_t controller, bool refresh, uint64_t allowed_ck)
{
    unsigned n_drops = 0;
    uint64_t worst = 0;
    for (int m = 0; m < N_MAPPINGS; m++)
        for (uint64_t g = 1; g <= 4; g += 3) {
            uint64_t before = 0;
            pimhw_config c = channel_of(controller, refresh, 64);
            for (uint64_t t = 1; t < 4200; t = next_length(t)) {
                uint64_t ck = phase_clocks(&c, (mapping)m, t, g);
                n_drops += ck + allowed_ck < before;
                if (ck < before && before - ck > worst) worst = before - ck;
                if (ck + allowed_ck < before && !reorders(controller))
                    printf("  %s, %s, g %u: %u clocks less at %u tokens\n", mapping_names[m],
                           pimhw_controller_str(controller), (unsigned)g, (unsigned)(before - ck),
                           (unsigned)t);
                before = ck;
            }
        }
    printf("more tokens, %s, refresh %s: %u drops beyond %u clocks, the largest drop is %u\n",
           pimhw_controller_str(controller), refresh ? "on" : "off", n_drops, (unsigned)allowed_ck,
           (unsigned)worst);
    return n_drops;
}

static void more_tokens_never_take_fewer_clocks(void)
{
    for (uint32_t i = 0; i < CONTROLLERS; i++) {
        unsigned n_drops = drops_with_tokens(i, false, 0);
        if (!reorders(i)) CHECK_U(n_drops, 0);
    }
}

/* A refresh that falls elsewhere may save itself, and the row that it closed. */
static void with_refresh_a_drop_is_a_refresh_at_most(void)
{
    pimhw_config c = channel_of(PIMHW_IN_ORDER, true, 64);
    uint64_t allowed = (uint64_t)c.tRFC + c.tRAS + c.tRP + c.tRCD_MAC;
    for (uint32_t i = 0; i < CONTROLLERS; i++) {
        unsigned n_drops = drops_with_tokens(i, true, allowed);
        if (!reorders(i)) CHECK_U(n_drops, 0);
    }
}

/* --- Whole plans: tokens, heads, sequences, channels ----------------------------------------- */

static pimattn_config plan_of(uint32_t controller, uint32_t n_heads, uint32_t n_kv_heads)
{
    pimattn_config c;
    memset(&c, 0, sizeof c);
    c.shape.n_layers = 1;
    c.shape.n_heads = n_heads;
    c.shape.n_kv_heads = n_kv_heads;
    c.shape.head_dim = 128;
    CHECK_U(pimhw_config_init(&c.device, "aimx", NULL), PIMHW_OK);
    c.device.controller = controller;
    c.device.refresh = 0;
    return c;
}

static uint64_t attention_clocks(const pimattn_config *c, uint64_t tokens, size_t n_seqs)
{
    pimattn_span spans[8];
    pimattn_readings r;
    pimhw_cause why = {""};
    for (size_t i = 0; i < n_seqs; i++)
        spans[i] = (pimattn_span){tokens + 37 * (i % 3), 1};
    bool ok = CHECK_U(pimattn_estimate(&r, c, spans, n_seqs, &why), PIMATTN_OK);
    if (!ok) printf("  %s\n", why.text);
    return ok ? r.device.cycles : 0;
}

/* One count of drops, asserted to be none where it is a law. */
typedef struct drops {
    const char *what;
    uint32_t controller;
    bool counted; /* not a law */
    unsigned n, n_cases;
    uint64_t before;
} drops;

static drops drops_of(const char *what, uint32_t controller)
{
    drops d = {.what = what, .controller = controller, .counted = reorders(controller)};
    return d;
}

/* The next of a series in which clocks must not drop; restart: the first. */
static void drops_next(drops *d, uint64_t ck, bool restart)
{
    if (!restart) {
        d->n_cases++;
        d->n += ck < d->before;
        if (ck < d->before && !d->counted)
            printf("  %s, %s: %u clocks after %u\n", d->what, pimhw_controller_str(d->controller),
                   (unsigned)ck, (unsigned)d->before);
    }
    d->before = ck;
}

static void drops_end(const drops *d)
{
    printf("%s, %s: %u drops in %u cases\n", d->what, pimhw_controller_str(d->controller), d->n,
           d->n_cases);
    if (!d->counted) CHECK_U(d->n, 0);
}

/* Channels of a shared front end take turns on it, where a token more may bring a better order. */
static void more_tokens(uint32_t controller, bool shared)
{
    static const uint32_t channels[] = {1, 2, 3, 8, 16, 32};
    drops d = drops_of(shared ? "plans: more tokens, shared front end" : "plans: more tokens",
                       controller);
    d.counted = d.counted || shared;
    for (size_t j = 0; j < sizeof channels / sizeof *channels; j++)
        for (uint32_t g = 1; g <= 8; g *= 8) {
            pimattn_config c = plan_of(controller, 2 * g, 2);
            if (shared) c.shape.head_dim = 64, c.v_mapping = PIMATTN_V_B;
            c.device.n_channels = channels[j];
            c.device.front_end = shared;
            for (uint64_t t = 1; t < 1200; t += t < 100 ? 1 : 16)
                drops_next(&d, attention_clocks(&c, t, 1), t == 1);
        }
    drops_end(&d);
}

static void plans_grow_with_tokens(void)
{
    for (uint32_t i = 0; i < CONTROLLERS; i++) {
        more_tokens(i, false);
        more_tokens(i, true);
    }
}

/* Head-first: longest first onto the least loaded channel, which is no law. */
static void plans_grow_with_heads_and_sequences(void)
{
    static const uint64_t lengths[] = {1, 100, 1000, 5000};
    for (uint32_t i = 0; i < CONTROLLERS; i++) {
        drops heads = drops_of("plans: more KV heads", i);
        drops queries = drops_of("plans: more query heads", i);
        drops seqs = drops_of("plans: more sequences", i);
        drops hfp = drops_of("plans: more sequences, head-first", i);
        hfp.counted = true;
        for (int j = 0; j < 4; j++) {
            for (uint32_t h = 1; h <= 12; h++) {
                pimattn_config c = plan_of(i, h, h);
                drops_next(&heads, attention_clocks(&c, lengths[j], 1), h == 1);
            }
            for (uint32_t g = 1; g <= 12; g++) {
                pimattn_config c = plan_of(i, g, 1);
                drops_next(&queries, attention_clocks(&c, lengths[j], 1), g == 1);
            }
            pimattn_config c = plan_of(i, 8, 2);
            for (size_t n = 1; n <= 8; n++)
                drops_next(&seqs, attention_clocks(&c, lengths[j], n), n == 1);
            c.partition = PIMATTN_HFP;
            for (size_t n = 1; n <= 8; n++)
                drops_next(&hfp, attention_clocks(&c, lengths[j], n), n == 1);
        }
        drops_end(&heads);
        drops_end(&queries);
        drops_end(&seqs);
        drops_end(&hfp);
    }
}

typedef enum channels_of { MEMORY, WITH_HUB, HEAD_FIRST, N_CHANNELS_OF } channels_of;

/* Channels are counted down, so that clocks must not drop. A law of the memory: the hub has more
 * sums to add where more channels share the tokens of V, and head-first gives the shortest heads of
 * a batch to a channel together. */
static void fewer_channels(uint32_t controller, channels_of of)
{
    static const uint64_t lengths[] = {17, 300, 1000, 20000};
    static const char *const what[N_CHANNELS_OF] = {"plans: fewer channels, the memory alone",
                                                    "plans: fewer channels, with the hub's clocks",
                                                    "plans: fewer channels, head-first"};
    drops d = drops_of(what[of], controller);
    d.counted = of != MEMORY;
    for (int j = 0; j < 4; j++)
        for (uint32_t g = 1; g <= 4; g *= 4) {
            pimattn_config c = plan_of(controller, 2 * g, 2);
            if (of != WITH_HUB) c.device.epu_ck_per_op = 0;
            if (of == HEAD_FIRST)
                c.partition = PIMATTN_HFP, c.shape.n_heads *= 2, c.shape.n_kv_heads = 4;
            for (uint32_t n = 64; n > 0; n--) {
                c.device.n_channels = n;
                drops_next(&d, attention_clocks(&c, lengths[j], of == HEAD_FIRST ? 3 : 1), n == 64);
            }
        }
    drops_end(&d);
}

static void fewer_channels_never_take_fewer_clocks(void)
{
    for (uint32_t i = 0; i < CONTROLLERS; i++) {
        for (channels_of of = MEMORY; of < N_CHANNELS_OF; of = (channels_of)(of + 1))
            fewer_channels(i, of);
    }
}

/* --- Random streams -------------------------------------------------------------------------- */

enum { TILES = 64, STREAMS = 1500 };

/* W, M, R in any order. clean: no tile written twice, no entry read twice without a MAC between. */
static void random_stream(check_rng *rng, bool clean)
{
    uint64_t written = 0, row = 0;
    bool fresh[OUTS] = {false};
    uint64_t n = rng_range(rng, 3, 60);
    now.n = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t kind = rng_range(rng, 0, 2), out = rng_range(rng, 0, OUTS - 1);
        uint64_t tile = rng_range(rng, 0, TILES - 1), size = rng_range(rng, 1, 8);
        if (rng_range(rng, 0, 9) == 0) row = rng_range(rng, 0, 3);
        size = least(size, TILES - tile);
        uint64_t bits = ((UINT64_C(1) << size) - 1) << tile;
        if (kind == 0 && !(clean && (written & bits))) {
            write_tiles(tile, size);
            written |= bits;
        } else if (kind == 1) {
            macs(size, tile, row, 0, out);
            fresh[out] = true;
        } else if (kind == 2 && (fresh[out] || !clean)) {
            read_out(out);
            fresh[out] = false;
        }
    }
}

static void dcs_is_never_behind_static_on_clean_streams(void)
{
    pimhw_config fixed = channel_of(PIMHW_STATIC_GAPS, false, OUTS);
    pimhw_config dcs = channel_of(PIMHW_DCS, false, OUTS);
    check_rng rng = {9};
    for (int clean = 1; clean >= 0; clean--) {
        unsigned n_behind = 0;
        for (int i = 0; i < STREAMS; i++) {
            random_stream(&rng, clean);
            n_behind += clocks_of(&dcs) > clocks_of(&fixed);
        }
        printf("dcs behind static: %u of %d %s streams\n", n_behind, (int)STREAMS,
               clean ? "clean" : "other");
        if (clean) CHECK_U(n_behind, 0);
    }
}

/* No law in general; this is QK^T, and SV from 1,024 tokens of the channel on. */
static void dcs_is_never_behind_ping_pong_on_attention(void)
{
    unsigned n_behind = 0, n_cases = 0;
    pimhw_config halves = channel_of(PIMHW_PING_PONG, false, OUTS);
    pimhw_config dcs = channel_of(PIMHW_DCS, false, OUTS);
    for (uint64_t g = 1; g <= 8; g *= 2)
        for (uint64_t t = 16; t < 5200; t = next_length(t)) {
            bool long_enough = t >= 1024;
            if (!CHECK(phase_clocks(&dcs, K_ROWS, t, g) <= phase_clocks(&halves, K_ROWS, t, g)))
                printf("  g %u, %u tokens\n", (unsigned)g, (unsigned)t);
            for (int m = V_A; m <= V_A_W_FIRST; m++) {
                bool behind =
                    phase_clocks(&dcs, (mapping)m, t, g) > phase_clocks(&halves, (mapping)m, t, g);
                if (long_enough && m == V_A_W_FIRST) CHECK(!behind);
                if (long_enough && m == V_A_W_FIRST) continue;
                n_behind += behind;
                n_cases++;
            }
        }
    printf("dcs behind ping-pong, SV of few tokens or with R first: %u of %u\n", n_behind, n_cases);
}

/* The same stream with other names of tiles and entries. */
static void static_ignores_names_and_obuf(void)
{
    pimhw_config c = channel_of(PIMHW_STATIC_GAPS, false, OUTS), other = c;
    check_rng rng = {10};
    other.out_entries = 3 * OUTS;
    other.obuf = 1;
    for (int i = 0; i < 500; i++) {
        random_stream(&rng, false);
        uint64_t ck = clocks_of(&c);
        for (size_t j = 0; j < now.n; j++) {
            pimhw_instruction *in = &now.at[j];
            if (in->kind != PIMHW_RD_MAC)
                in->tile = (uint32_t)rng_range(&rng, 0, TILES - in->op_size);
            if (in->kind != PIMHW_WR_GB) in->out = (uint32_t)rng_range(&rng, 0, 3 * OUTS - 1);
        }
        CHECK_U(clocks_of(&other), ck);
    }
}

/* One command more at the end, or a row more, is never faster. */
static void a_longer_stream_never_takes_fewer_clocks(void)
{
    for (uint32_t i = 0; i < CONTROLLERS; i++) {
        pimhw_config c = channel_of(i, false, OUTS);
        check_rng rng = {11};
        drops d = drops_of("a longer stream", i);
        for (int j = 0; j < 50; j++) {
            random_stream(&rng, false);
            size_t all = now.n;
            for (now.n = 1; now.n <= all; now.n++)
                drops_next(&d, clocks_of(&c), now.n == 1);
        }
        drops_end(&d);
    }
}

int main(void)
{
    RUN(more_tokens_never_take_fewer_clocks);
    RUN(with_refresh_a_drop_is_a_refresh_at_most);
    RUN(plans_grow_with_tokens);
    RUN(plans_grow_with_heads_and_sequences);
    RUN(fewer_channels_never_take_fewer_clocks);
    RUN(a_longer_stream_never_takes_fewer_clocks);
    RUN(dcs_is_never_behind_static_on_clean_streams);
    RUN(dcs_is_never_behind_ping_pong_on_attention);
    RUN(static_ignores_names_and_obuf);
    return check_end();
}
