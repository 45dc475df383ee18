/* The contract of the cache's life cycle: what is refused and that nothing changes then, saved
 * states that are damaged, and figures that follow from the shape alone.
 *
 *     contract_cache                 every test
 *     contract_cache save FILE       writes a state that any architecture ..
 *     contract_cache restore FILE    .. restores: here, and goes on with it
 */
#include <stddef.h>

/* What Linux is asked for, also where -std=c99 hides it, as here. */
#define madvise advised
int advised(void *at, size_t bytes, int advice);

#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"

static struct {
    void *at;
    size_t bytes, n;
    int advice;
} advice_heard;

int advised(void *at, size_t bytes, int advice)
{
    advice_heard.at = at, advice_heard.bytes = bytes, advice_heard.advice = advice;
    advice_heard.n++;
    return 0;
}

#define COUNT(a) (sizeof(a) / sizeof(a)[0])

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, DIM = 8, PAGE = 4, TOKENS = 40 };

typedef struct rig {
    pimattn_config config;
    pimattn_engine *e;
    attn_kv kv;
    float q[HEADS * DIM], out[HEADS * DIM];
} rig;

static rig rig_new(uint32_t k_type, uint32_t v_type)
{
    rig r;
    check_rng rng = {5};
    pimattn_shape s = shape_of(LAYERS, HEADS, KV_HEADS, DIM, 0);
    memset(&r, 0, sizeof r);
    s.k_type = k_type;
    s.v_type = v_type;
    r.config = config_of(&s);
    r.config.page_tokens = PAGE;
    r.config.max_seqs = 6;
    r.config.pool_bytes = 1u << 20;
    r.kv = kv_random(&s, TOKENS, &rng);
    fill_normal(r.q, COUNT(r.q), 1, &rng);
    r.e = engine_new(&r.config);
    return r;
}

/* An engine anew, of so large a pool. */
static void rig_pool(rig *r, uint64_t pool_bytes)
{
    pimattn_engine_destroy(r->e);
    r->config.pool_bytes = pool_bytes;
    r->e = engine_new(&r->config);
}

/* An engine whose layers have windows, 0: none. */
static rig rig_windows(uint64_t a, uint64_t b, uint64_t pool_bytes)
{
    const uint64_t windows[LAYERS] = {a, b};
    rig r = rig_new(PIMATTN_F16, PIMATTN_INT8);
    r.config.shape.windows = windows;
    rig_pool(&r, pool_bytes);
    r.config.shape.windows = NULL;
    return r;
}

static void rig_end(rig *r)
{
    pimattn_engine_destroy(r->e);
    kv_free(&r->kv);
}

/* Pages of 4 KiB cost single queries up to a third of their speed. */
static void slabs_are_asked_for_as_huge_pages(void)
{
#ifdef __linux__
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    pimattn_seq seq;
    rig_pool(&r, 8u << 20);
    memset(&advice_heard, 0, sizeof advice_heard);
    CHECK_U(pimattn_seq_create(r.e, &seq), PIMATTN_OK);
    CHECK_U(kv_append(r.e, seq, 0, &r.kv, 0, 1), PIMATTN_OK);
    CHECK_U(advice_heard.n, 1);
    CHECK_U(advice_heard.advice, 14); /* MADV_HUGEPAGE */
    CHECK(advice_heard.bytes >= 2u << 20 && advice_heard.bytes % (2u << 20) == 0);
    CHECK((uintptr_t)advice_heard.at % (2u << 20) == 0);
    for (uint32_t page_tokens = 128; page_tokens < 40000; page_tokens += page_tokens / 5) {
        r.config.page_tokens = page_tokens; /* of 16 KiB to 5 MiB */
        rig_pool(&r, 1u << 30);
        memset(&advice_heard, 0, sizeof advice_heard);
        CHECK_U(pimattn_seq_create(r.e, &seq), PIMATTN_OK);
        CHECK_U(pimattn_seq_reserve(r.e, seq, 1), PIMATTN_OK);
        const uint64_t bytes = pimattn_page_bytes(r.e), pages = r.e->pool.slab_pages * bytes;
        CHECK(advice_heard.n > 0 && advice_heard.bytes % (2u << 20) == 0);
        CHECK(advice_heard.bytes <= pages + pages / 8);
    }
    pimattn_tiers tiers = {.n_tiers = 1, .tier = {{.n_devices = 1, .n_tokens = 20000}}};
    CHECK_U(pimhw_config_init(&tiers.tier[0].device, "pam-ddr4", NULL), PIMHW_OK);
    r.config.tiers = &tiers, r.config.page_tokens = 0;
    memset(&advice_heard, 0, sizeof advice_heard);
    rig_pool(&r, 0);
    CHECK_U(advice_heard.n, 1);
    CHECK_U(advice_heard.bytes, r.e->tiered->bins[0].memory_bytes / (2u << 20) * (2u << 20));
    rig_end(&r);
#else
    skip("Linux alone is asked");
#endif
}

static void append(rig *r, pimattn_engine *e, pimattn_seq seq, uint64_t first, uint64_t n)
{
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        CHECK_U(kv_append(e, seq, layer, &r->kv, first, n), PIMATTN_OK);
}

static pimattn_seq seq_of(rig *r, uint64_t n)
{
    pimattn_seq seq = 0;
    CHECK_U(pimattn_seq_create(r->e, &seq), PIMATTN_OK);
    append(r, r->e, seq, 0, n);
    return seq;
}

static void attend(rig *r, pimattn_engine *e, pimattn_seq seq, float *out)
{
    CHECK_U(pimattn_attend_one(e, seq, LAYERS - 1, out, r->q, NULL), PIMATTN_OK);
}

/* --------------------------------------------------------------------------
 * Bad input
 * -------------------------------------------------------------------------- */

#define REFUSED(call, status, word)                                                                \
    do {                                                                                           \
        CHECK_U((call), (status));                                                                 \
        CHECK_HAS(pimattn_engine_cause(r.e), (word));                                              \
        CHECK_U(pimattn_pages_used(r.e), used);                                                    \
    } while (0)

static void what_cannot_be_is_refused(void)
{
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    pimattn_seq s = seq_of(&r, 10), gone = seq_of(&r, 3), half = seq_of(&r, 5), t = 77;
    uint32_t ids[TOKENS] = {0};
    uint64_t n = 77, known = 77, bytes[257];
    pimattn_cache_info cache;
    pimattn_stream none = {0};
    size_t count;
    float before[HEADS * DIM];
    CHECK_U(pimattn_seq_free(r.e, gone), PIMATTN_OK);
    CHECK_U(pimattn_prefix_start(r.e, &gone, NULL, 0, 0, &known), PIMATTN_OK); /* of nothing */
    CHECK_U(known, 0);
    CHECK_U(pimattn_seq_free(r.e, gone), PIMATTN_OK);
    CHECK_U(kv_append(r.e, half, 1, &r.kv, 0, 1), PIMATTN_OK);
    attend(&r, r.e, s, before);
    uint64_t used = pimattn_pages_used(r.e);
    REFUSED(pimattn_seq_fork(r.e, &t, gone), PIMATTN_ERR_SEQ, "freed");
    REFUSED(pimattn_seq_truncate(r.e, gone, 0), PIMATTN_ERR_SEQ, "freed");
    REFUSED(pimattn_seq_keep(r.e, gone, 0, 0), PIMATTN_ERR_SEQ, "freed");
    REFUSED(pimattn_seq_accept(r.e, gone, 0, NULL, 0), PIMATTN_ERR_SEQ, "freed");
    REFUSED(pimattn_prefix_remember(r.e, gone, ids, 0, 0), PIMATTN_ERR_SEQ, "freed");
    REFUSED(pimattn_save(r.e, &gone, 1, NULL, &n), PIMATTN_ERR_SEQ, "freed");
    REFUSED(pimattn_seq_swap_out(r.e, gone, bytes, sizeof bytes, NULL), PIMATTN_ERR_SEQ, "freed");
    REFUSED(pimattn_seq_swap_in(r.e, gone, bytes, sizeof bytes, NULL), PIMATTN_ERR_SEQ, "freed");
    REFUSED(pimattn_seq_query(r.e, gone, (pimattn_seq_info *)(void *)bytes), PIMATTN_ERR_SEQ,
            "freed");
    REFUSED(pimattn_seq_banks(r.e, gone, 0, bytes, 256), PIMATTN_ERR_SEQ, "freed");
    REFUSED(pimattn_seq_fork(r.e, &t, half), PIMATTN_ERR_ARGUMENT, "layer 1");
    REFUSED(pimattn_seq_truncate(r.e, half, 6), PIMATTN_ERR_ARGUMENT, "5 of layer 0");
    REFUSED(pimattn_save(r.e, &half, 1, NULL, &n), PIMATTN_ERR_ARGUMENT, "layer 1");
    REFUSED(pimattn_seq_truncate(r.e, s, 11), PIMATTN_ERR_ARGUMENT, "11");
    REFUSED(pimattn_seq_truncate(r.e, s, UINT64_MAX), PIMATTN_ERR_ARGUMENT, "10 of layer 0");
    REFUSED(pimattn_seq_keep(r.e, s, 0, 11), PIMATTN_ERR_ARGUMENT, "11");
    REFUSED(pimattn_seq_keep(r.e, s, 8, 7), PIMATTN_ERR_ARGUMENT, "8");
    const uint32_t kept[4] = {1, 4, 4, 5}, far[2] = {0, UINT32_MAX};
    REFUSED(pimattn_seq_accept(r.e, half, 0, kept, 1), PIMATTN_ERR_ARGUMENT, "layer 1");
    REFUSED(pimattn_seq_accept(r.e, s, 5, NULL, 2), PIMATTN_ERR_ARGUMENT, "NULL for 2 tokens");
    REFUSED(pimattn_seq_accept(r.e, s, 11, NULL, 0), PIMATTN_ERR_ARGUMENT,
            "first is 11, not 0 to 10");
    REFUSED(pimattn_seq_accept(r.e, s, 5, kept, 3), PIMATTN_ERR_ARGUMENT, "kept[2] is 4");
    REFUSED(pimattn_seq_accept(r.e, s, 5, kept + 2, 2), PIMATTN_ERR_ARGUMENT, "kept[1] is 5");
    REFUSED(pimattn_seq_accept(r.e, s, 5, far, 2), PIMATTN_ERR_ARGUMENT, "4294967295");
    REFUSED(pimattn_seq_accept(r.e, s, 10, far, 1), PIMATTN_ERR_ARGUMENT, "n is 1, of 0 tokens");
    REFUSED(pimattn_seq_accept(r.e, s, 7, kept, 4), PIMATTN_ERR_ARGUMENT, "n is 4, of 3 tokens");
    REFUSED(pimattn_seq_accept(r.e, s, 5, kept + 3, SIZE_MAX), PIMATTN_ERR_ARGUMENT, "of 5");
    REFUSED(pimattn_prefix_remember(r.e, s, ids, 11, 0), PIMATTN_ERR_ARGUMENT, "11");
    REFUSED(pimattn_prefix_remember(r.e, s, NULL, 4, 0), PIMATTN_ERR_ARGUMENT, "tokens");
    CHECK_U(pimattn_prefix_remember(r.e, s, NULL, 0, 0), PIMATTN_OK);
    REFUSED(pimattn_prefix_start(r.e, &t, NULL, 4, 0, &n), PIMATTN_ERR_ARGUMENT, "NULL");
    REFUSED(pimattn_prefix_start(r.e, &t, ids, 4, 0, NULL), PIMATTN_ERR_ARGUMENT, "NULL");
    REFUSED(pimattn_seq_fork(r.e, NULL, s), PIMATTN_ERR_ARGUMENT, "NULL");
    REFUSED(pimattn_seq_query(r.e, s, NULL), PIMATTN_ERR_ARGUMENT, "NULL");
    REFUSED(pimattn_cache_query(r.e, NULL), PIMATTN_ERR_ARGUMENT, "NULL");
    REFUSED(pimattn_seq_banks(r.e, s, LAYERS, bytes, 256), PIMATTN_ERR_ARGUMENT, "layer");
    REFUSED(pimattn_seq_banks(r.e, s, 0, bytes, 255), PIMATTN_ERR_ARGUMENT, "256");
    REFUSED(pimattn_seq_banks(r.e, s, 0, bytes, 257), PIMATTN_ERR_ARGUMENT, "256");
    REFUSED(pimattn_seq_swap_out(r.e, s, bytes, 8, NULL), PIMATTN_ERR_ARGUMENT, "bytes");
    REFUSED(pimattn_seq_swap_in(r.e, s, bytes, 8, NULL), PIMATTN_ERR_ARGUMENT, "not swapped");
    REFUSED(pimattn_save(r.e, &s, 1, &none, NULL), PIMATTN_ERR_ARGUMENT, "stream");
    REFUSED(pimattn_save(r.e, &s, 1, NULL, NULL), PIMATTN_ERR_ARGUMENT, "stream");
    REFUSED(pimattn_restore(r.e, &t, 1, &count, &none), PIMATTN_ERR_ARGUMENT, "stream");
    REFUSED(pimattn_restore(r.e, &t, 1, NULL, &none), PIMATTN_ERR_ARGUMENT, "n_seqs");
    pimattn_seq twice[2] = {s, s};
    REFUSED(pimattn_save(r.e, twice, 2, NULL, &n), PIMATTN_ERR_ARGUMENT, "twice");
    REFUSED(pimattn_save(r.e, &s, SIZE_MAX, NULL, &n), PIMATTN_ERR_ARGUMENT, "max_seqs");
    CHECK_U(n, 77);
    CHECK_U(t, 77);
    CHECK_U(pimattn_seq_keep(r.e, s, 6, 10), PIMATTN_OK);
    used = pimattn_pages_used(r.e);
    REFUSED(pimattn_seq_keep(r.e, s, 5, 10), PIMATTN_ERR_ARGUMENT, "gone");
    REFUSED(pimattn_seq_truncate(r.e, s, 5), PIMATTN_ERR_ARGUMENT, "are gone");
    REFUSED(pimattn_prefix_remember(r.e, s, ids, 8, 0), PIMATTN_ERR_ARGUMENT, "gone");
    REFUSED(pimattn_seq_accept(r.e, s, 5, NULL, 0), PIMATTN_ERR_ARGUMENT, "first is 5, not 6 to");
    CHECK_U(pimattn_seq_fork(NULL, &t, s), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_keep(NULL, s, 0, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_truncate(NULL, s, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_accept(NULL, s, 0, NULL, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_prefix_remember(NULL, s, ids, 0, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_prefix_start(NULL, &t, ids, 0, 0, &n), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_save(NULL, &s, 1, NULL, &n), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_save(NULL, &s, 1, &none, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_restore(NULL, &t, 1, &count, &none), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_swap_out(NULL, s, bytes, 8, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_swap_in(NULL, s, bytes, 8, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_cache_compact(NULL, &n), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_cache_query(NULL, &cache), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_query(NULL, s, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_seq_banks(NULL, s, 0, bytes, 256), PIMATTN_ERR_ARGUMENT);
    rig_end(&r);
}

static void what_is_swapped_out_can_only_come_back(void)
{
    rig r = rig_new(PIMATTN_F16, PIMATTN_INT8);
    pimattn_seq s = seq_of(&r, 10), other = seq_of(&r, 9), t;
    unsigned char memory[2][4096];
    uint64_t bytes = 0, n;
    float before[HEADS * DIM];
    attend(&r, r.e, s, before);
    CHECK_U(pimattn_save(r.e, &s, 1, NULL, &bytes), PIMATTN_OK);
    CHECK_U(pimattn_seq_swap_out(r.e, other, memory[1], sizeof memory[1], NULL), PIMATTN_OK);
    CHECK_U(pimattn_seq_swap_out(r.e, s, memory[0], bytes, NULL), PIMATTN_OK);
    CHECK_U(pimattn_pages_used(r.e), 0);
    uint64_t used = 0;
    REFUSED(pimattn_seq_fork(r.e, &t, s), PIMATTN_ERR_SEQ, "swapped");
    REFUSED(pimattn_seq_truncate(r.e, s, 1), PIMATTN_ERR_SEQ, "swapped");
    REFUSED(pimattn_seq_swap_out(r.e, s, memory[0], bytes, NULL), PIMATTN_ERR_SEQ, "swapped");
    REFUSED(pimattn_seq_reserve(r.e, s, 1), PIMATTN_ERR_SEQ, "swapped");
    REFUSED(pimattn_attend_one(r.e, s, 0, r.out, r.q, NULL), PIMATTN_ERR_SEQ, "swapped");
    REFUSED(kv_append(r.e, s, 0, &r.kv, 0, 1), PIMATTN_ERR_SEQ, "swapped");
    REFUSED(pimattn_save(r.e, NULL, 0, NULL, &n), PIMATTN_ERR_SEQ, "swapped");
    REFUSED(pimattn_seq_swap_in(r.e, s, memory[1], bytes, NULL), PIMATTN_ERR_STATE, "not what");
    REFUSED(pimattn_seq_swap_in(r.e, s, NULL, bytes, NULL), PIMATTN_ERR_ARGUMENT, "NULL");
    memory[0][bytes / 2] ^= 4;
    REFUSED(pimattn_seq_swap_in(r.e, s, memory[0], bytes, NULL), PIMATTN_ERR_STATE, "damaged");
    memory[0][bytes / 2] ^= 4;
    CHECK_U(pimattn_seq_swap_in(r.e, s, memory[0], bytes, NULL), PIMATTN_OK);
    attend(&r, r.e, s, r.out);
    CHECK_BYTES(r.out, before, sizeof before);
    /* what another sequence has lost is not lost here */
    pimattn_seq_info info;
    CHECK_U(pimattn_seq_keep(r.e, s, 3, 10), PIMATTN_OK);
    CHECK_U(pimattn_seq_swap_out(r.e, s, memory[0], sizeof memory[0], NULL), PIMATTN_OK);
    REFUSED(pimattn_seq_truncate(r.e, s, 1), PIMATTN_ERR_SEQ, "swapped");
    REFUSED(pimattn_seq_swap_in(r.e, s, memory[1], bytes, NULL), PIMATTN_ERR_STATE, "not what");
    CHECK_U(pimattn_seq_query(r.e, s, &info), PIMATTN_OK);
    CHECK_U(info.first_token, 3);
    CHECK_U(info.n_tokens, 10);
    CHECK_U(pimattn_seq_free(r.e, other), PIMATTN_OK);
    rig_end(&r);
}

/* --------------------------------------------------------------------------
 * Saved states
 * -------------------------------------------------------------------------- */

static unsigned char state[1 << 16];

static pimattn_stream in_memory(uint64_t bytes)
{
    pimattn_stream s = {state, bytes, NULL, NULL, NULL};
    return s;
}

static void no_damaged_state_is_restored(void)
{
    rig r = rig_new(PIMATTN_F16, PIMATTN_INT8);
    pimattn_seq s[2] = {seq_of(&r, 6), 0}, back[4] = {9, 9, 9, 9};
    uint64_t bytes = 0;
    size_t n = 9;
    CHECK_U(pimattn_seq_fork(r.e, &s[1], s[0]), PIMATTN_OK);
    append(&r, r.e, s[1], 6, 3);
    CHECK_U(pimattn_save(r.e, s, 2, NULL, &bytes), PIMATTN_OK);
    pimattn_stream stream = in_memory(bytes);
    CHECK_U(pimattn_save(r.e, s, 2, &stream, NULL), PIMATTN_OK);
    uint64_t used = pimattn_pages_used(r.e);
    for (uint64_t bit = 0; bit < bytes * 8; bit++) {
        state[bit / 8] ^= (unsigned char)(1u << bit % 8);
        CHECK_U(pimattn_restore(r.e, back, 4, &n, &stream), PIMATTN_ERR_STATE);
        CHECK_U(pimattn_pages_used(r.e), used);
        state[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    for (stream.bytes = 0; stream.bytes < bytes; stream.bytes++)
        REFUSED(pimattn_restore(r.e, back, 4, &n, &stream), PIMATTN_ERR_STATE, "ends");
    REFUSED(pimattn_restore(r.e, back, 1, &n, &stream), PIMATTN_ERR_ARGUMENT, "2 sequences");
    state[0] ^= 1;
    REFUSED(pimattn_restore(r.e, back, 4, &n, &stream), PIMATTN_ERR_STATE, "no saved state");
    state[0] ^= 1;
    state[8] ^= 2;
    REFUSED(pimattn_restore(r.e, back, 4, &n, &stream), PIMATTN_ERR_STATE, "version 6");
    state[8] ^= 2;
    CHECK_U(back[0] + back[1] + n, 27);
    for (uint32_t i = 0; i < 6; i++) {
        static const char *const words[] = {"n_layers",   "n_kv_heads", "head_dim ",
                                            "head_dim_v", "k_type",     "v_type"};
        pimattn_config c = r.config;
        *(i == 0   ? &c.shape.n_layers
          : i == 1 ? &c.shape.n_kv_heads
          : i == 2 ? &c.shape.head_dim
          : i == 3 ? &c.shape.head_dim_v
          : i == 4 ? &c.shape.k_type
                   : &c.shape.v_type) = 1;
        if (i == 2) c.shape.head_dim_v = DIM;
        if (i == 4) c.shape.k_type = PIMATTN_BF16;
        pimattn_engine *e = engine_new(&c);
        CHECK_U(pimattn_restore(e, back, 4, &n, &stream), PIMATTN_ERR_STATE);
        CHECK_HAS(pimattn_engine_cause(e), words[i]);
        CHECK_U(pimattn_pages_used(e), 0);
        pimattn_engine_destroy(e);
    }
    CHECK_U(pimattn_restore(r.e, back, 4, &n, &stream), PIMATTN_OK);
    CHECK_U(n, 2);
    rig_end(&r);
}

/* Whoever can make hashes fit may write any head: it makes a sequence that is sound, or none. */
static void crafted_heads_do_no_harm(void)
{
    static const uint64_t odd[] = {0, 1, 3, 4, 5, 8, 10, 17, 40, 41, 4095, 1ull << 32, UINT64_MAX};
    rig r = rig_windows(4, 0, 1u << 20);
    pimattn_seq first = seq_of(&r, 17), made;
    uint64_t used = pimattn_pages_used(r.e), n_made = 0, n_hidden = 0, n_refused = 0;
    CHECK_U(pimattn_seq_keep(r.e, first, 5, 17), PIMATTN_OK);
    CHECK_U(pimattn_seq_drop_hidden(r.e, first, 15), PIMATTN_OK);
    CHECK_U(pimattn_pages_used(r.e), used - LAYERS * KV_HEADS - 2); /* tokens 4 to 11 */
    used = pimattn_pages_used(r.e);
    check_rng rng = {0xc4a5};
    for (uint64_t i = 0; i < 7000; i++) {
        uint64_t n[4] = {5, 17, 10, 17}; /* the second one: half of a page that lacks some */
        for (size_t k = 0; k < COUNT(n) && i != 1; k++)
            n[k] = odd[rng_range(&rng, 0, COUNT(odd) - 1)];
        uint64_t head[] = {0,
                           n[0],
                           n[1],
                           i % 4,
                           n[2],
                           i % 5 == 0,
                           i % 3 ? n[3] : 0,
                           i % 7 ? pimattn_i_flow_windows(r.e) : i};
        pimattn_i_seq *s;
        pimattn_i_unmark(r.e);
        pimattn_i_seq_find(r.e, first)->arrival = 1;
        CHECK_U(pimattn_i_seq_new(r.e, &s), PIMATTN_OK);
        s->arrival = 2;
        pimattn_status status = pimattn_i_flow_room(r.e, s, head);
        CHECK(status == PIMATTN_OK || status == PIMATTN_ERR_STATE || status == PIMATTN_ERR_PAGES);
        if (status == PIMATTN_OK) {
            n_made++;
            CHECK(head[1] <= head[2] && head[4] <= head[2] && head[5] == 0);
            CHECK(head[6] <= head[2] && (head[6] == 0 || i % 7 > 0));
            n_hidden += head[6] > 0;
            if (head[2] < 100) append(&r, r.e, s->id, 0, 3);
            if (head[2] < 100 || (head[2] > head[1] && head[2] > head[6]))
                for (uint32_t layer = 0; layer < LAYERS; layer++)
                    CHECK_U(pimattn_attend_one(r.e, s->id, layer, r.out, r.q, NULL), PIMATTN_OK);
        }
        n_refused += status != PIMATTN_OK;
        if (pimattn_i_seq_made(r.e, s, status, &made) == PIMATTN_OK)
            CHECK_U(pimattn_seq_free(r.e, made), PIMATTN_OK);
        CHECK_U(pimattn_pages_used(r.e), used);
    }
    CHECK(n_made > 100 && n_hidden > 30 && n_refused > 100);
    rig_end(&r);
}

/* What a step of a sequence gives in each layer, of a token more. */
static void step(rig *r, pimattn_engine *e, pimattn_seq seq, uint64_t token, float *out)
{
    append(r, e, seq, token, 1);
    for (uint32_t layer = 0; layer < LAYERS; layer++, out += HEADS * DIM)
        CHECK_U(pimattn_attend_one(e, seq, layer, out, r->q, NULL), PIMATTN_OK);
}

/* Layer 0 lets go of pages behind its window, layer 1 has none. */
static void what_windows_hide_is_let_go(void)
{
    enum { SEEN = 36, GONE = (SEEN - 6 + 1) / PAGE * (KV_HEADS - 1) };
    rig r = rig_windows(6, 0, 1u << 20), whole = rig_windows(6, 0, 1u << 20);
    pimattn_seq s = seq_of(&r, SEEN), w = seq_of(&whole, SEEN), other;
    uint64_t used = pimattn_pages_used(r.e), bytes = 0;
    const uint32_t none[1] = {0};
    float out[LAYERS * HEADS * DIM], want[LAYERS * HEADS * DIM];
    unsigned char memory[1 << 14], others[1 << 14];
    pimattn_seq_info info;
    REFUSED(pimattn_seq_drop_hidden(r.e, s, SEEN + 1), PIMATTN_ERR_ARGUMENT, "beyond the 36");
    REFUSED(pimattn_seq_drop_hidden(r.e, s + 1, 1), PIMATTN_ERR_SEQ, "sequence");
    CHECK_U(pimattn_seq_drop_hidden(r.e, s, SEEN), PIMATTN_OK);
    used -= GONE;
    CHECK_U(pimattn_pages_used(r.e), used);
    CHECK_U(pimattn_seq_drop_hidden(r.e, s, 3), PIMATTN_OK); /* is no more */
    CHECK_U(pimattn_seq_query(r.e, s, &info), PIMATTN_OK);
    CHECK_U(info.first_query, SEEN);
    CHECK_U(info.pages, used);
    CHECK_U(info.first_token, 0);
    REFUSED(pimattn_attend_one(r.e, s, 0, out, r.q, NULL), PIMATTN_ERR_ARGUMENT, "gone");
    REFUSED(pimattn_seq_truncate(r.e, s, SEEN - 1), PIMATTN_ERR_ARGUMENT, "before token 36");
    REFUSED(pimattn_seq_accept(r.e, s, SEEN - 1, none, 1), PIMATTN_ERR_ARGUMENT, "36 to 36");
    REFUSED(pimattn_prefix_remember(r.e, s, none, 0, 0), PIMATTN_ERR_ARGUMENT, "before 36");
    CHECK_U(pimattn_seq_truncate(r.e, s, SEEN), PIMATTN_OK);
    /* out and in again, where there is no room for what is gone */
    CHECK_U(pimattn_save(r.e, &s, 1, NULL, &bytes), PIMATTN_OK);
    CHECK_U(pimattn_seq_swap_out(r.e, s, memory, bytes, NULL), PIMATTN_OK);
    other = seq_of(&r, SEEN);
    CHECK_U(pimattn_seq_swap_out(r.e, other, others, sizeof others, NULL), PIMATTN_OK);
    CHECK_U(pimattn_seq_swap_in(r.e, s, others, sizeof others, NULL), PIMATTN_ERR_STATE);
    CHECK_U(pimattn_seq_query(r.e, s, &info), PIMATTN_OK);
    CHECK_U(info.first_query, SEEN);
    r.e->pool.n_pages_most = used - 1;
    CHECK_U(pimattn_seq_swap_in(r.e, s, memory, bytes, NULL), PIMATTN_ERR_PAGES);
    r.e->pool.n_pages_most = used;
    memory[bytes / 2] ^= 1;
    CHECK_U(pimattn_seq_swap_in(r.e, s, memory, bytes, NULL), PIMATTN_ERR_STATE);
    memory[bytes / 2] ^= 1;
    CHECK_U(pimattn_seq_query(r.e, s, &info), PIMATTN_OK);
    CHECK_U(info.first_query, SEEN);
    CHECK_U(pimattn_seq_swap_in(r.e, s, memory, bytes, NULL), PIMATTN_OK);
    CHECK_U(pimattn_pages_used(r.e), used);
    r.e->pool.n_pages_most = 1u << 20;
    for (uint64_t t = SEEN; t < TOKENS; t++) {
        step(&r, r.e, s, t, out);
        step(&whole, whole.e, w, t, want);
        CHECK_BYTES(out, want, sizeof want);
        for (uint32_t source = 0; source < 2; source++) { /* which tokens count, likewise */
            float p[2][TOKENS];
            CHECK_U(pimattn_probabilities(r.e, s, 0, p[0], r.q, source), PIMATTN_OK);
            CHECK_U(pimattn_probabilities(whole.e, w, 0, p[1], r.q, source), PIMATTN_OK);
            CHECK_BYTES(p[0], p[1], (t + 1) * sizeof(float));
        }
        CHECK_U(pimattn_seq_drop_hidden(r.e, s, t + 1), PIMATTN_OK);
    }
    rig_end(&whole);
    rig_end(&r);
}

/* A state lacks what was let go, and nothing that another sequence of it still sees. */
static void states_lack_what_windows_hide(void)
{
    static const uint32_t pages[] = {1, 4, 7, 16};
    rig r = rig_windows(6, 0, 1u << 20), other = rig_windows(7, 0, 1u << 20);
    pimattn_seq s[3] = {seq_of(&r, 30), 0, seq_of(&r, 30)}, back[3];
    uint64_t bytes = 0, whole = 0;
    float out[LAYERS * HEADS * DIM], want[2][LAYERS * HEADS * DIM];
    size_t n = 0;
    CHECK_U(pimattn_seq_fork(r.e, &s[1], s[0]), PIMATTN_OK);
    CHECK_U(pimattn_save(r.e, &s[2], 1, NULL, &whole), PIMATTN_OK);
    for (size_t i = 0; i < 3; i += 2)
        CHECK_U(pimattn_seq_drop_hidden(r.e, s[i], 30), PIMATTN_OK);
    CHECK_U(pimattn_save(r.e, &s[2], 1, NULL, &bytes), PIMATTN_OK);
    CHECK_U(whole - bytes, (30 - 6 + 1) * KV_HEADS * r.e->layout.token_bytes);
    pimattn_stream stream = in_memory(sizeof state);
    CHECK_U(pimattn_save(r.e, s, 3, &stream, NULL), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(r.e, s[1], 10), PIMATTN_OK); /* sees what s[0] does not */
    step(&r, r.e, s[1], 10, want[0]);
    step(&r, r.e, s[2], 30, want[1]);
    for (size_t i = 0; i < COUNT(pages); i++) {
        r.config.page_tokens = pages[i];
        rig here = r;
        const uint64_t windows[LAYERS] = {6, 0};
        here.config.shape.windows = windows;
        here.e = engine_new(&here.config);
        if (!CHECK_U(pimattn_restore(here.e, back, 3, &n, &stream), PIMATTN_OK)) break;
        for (size_t k = 0; k < 3; k += 2) {
            step(&here, here.e, back[k], 30, out);
            CHECK_BYTES(out, want[1], sizeof out);
        }
        CHECK_U(pimattn_seq_truncate(here.e, back[0], 29), PIMATTN_ERR_ARGUMENT);
        CHECK_U(pimattn_seq_truncate(here.e, back[1], 10), PIMATTN_OK);
        step(&here, here.e, back[1], 10, out);
        CHECK_BYTES(out, want[0], sizeof out);
        pimattn_engine_destroy(here.e);
    }
    CHECK_U(pimattn_restore(other.e, back, 3, &n, &stream), PIMATTN_ERR_STATE);
    CHECK_HAS(pimattn_engine_cause(other.e), "other windows");
    rig_end(&other);
    rig_end(&r);
}

typedef struct pipe {
    uint64_t at, end;
} pipe;

static bool pipe_write(void *user, const void *from, size_t n)
{
    pipe *p = (pipe *)user;
    if (p->at + n > p->end) return false;
    memcpy(state + p->at, from, n);
    p->at += n;
    return true;
}

static bool pipe_read(void *user, void *to, size_t n)
{
    pipe *p = (pipe *)user;
    if (p->at + n > p->end) return false;
    memcpy(to, state + p->at, n);
    p->at += n;
    return true;
}

/* Through functions, into engines of other page sizes; shared pages are shared again. */
static void states_fit_other_page_sizes(void)
{
    static const uint32_t pages[] = {1, 4, 7, 16, 32};
    rig r = rig_new(PIMATTN_INT8, PIMATTN_BF16);
    pimattn_seq s[3] = {seq_of(&r, 21), 0, 0}, back[3];
    CHECK_U(pimattn_seq_fork(r.e, &s[1], s[0]), PIMATTN_OK);
    append(&r, r.e, s[1], 21, 4);
    CHECK_U(pimattn_seq_fork(r.e, &s[2], s[1]), PIMATTN_OK);
    CHECK_U(pimattn_seq_keep(r.e, s[2], 9, 24), PIMATTN_OK);
    uint64_t bytes = 0;
    CHECK_U(pimattn_save(r.e, s, 3, NULL, &bytes), PIMATTN_OK);
    pipe to = {0, bytes - 1};
    pimattn_stream stream = {NULL, 0, pipe_write, pipe_read, &to};
    CHECK_U(pimattn_save(r.e, s, 3, &stream, NULL), PIMATTN_ERR_STATE);
    CHECK_HAS(pimattn_engine_cause(r.e), "write gave up");
    to.at = 0;
    to.end = sizeof state;
    CHECK_U(pimattn_save(r.e, s, 3, &stream, NULL), PIMATTN_OK);
    CHECK_U(to.at, bytes);
    for (size_t i = 0; i < COUNT(pages); i++) {
        pimattn_config c = r.config;
        c.page_tokens = pages[i];
        c.max_seqs = 3;
        pimattn_engine *e = engine_new(&c);
        size_t n;
        for (pipe from = {0, 0}; from.end < bytes; from.end += 13, from.at = 0) {
            stream.user = &from;
            CHECK_U(pimattn_restore(e, back, 3, &n, &stream), PIMATTN_ERR_STATE);
            CHECK_U(pimattn_pages_used(e), 0);
        }
        pipe from = {0, bytes};
        stream.user = &from;
        CHECK_U(pimattn_restore(e, back, 3, &n, &stream), PIMATTN_OK);
        for (size_t k = 0; k < 3; k++) {
            float want[HEADS * DIM];
            attend(&r, r.e, s[k], want);
            attend(&r, e, back[k], r.out);
            CHECK_BYTES(r.out, want, sizeof want);
        }
        uint64_t sets = (21 + pages[i] - 1) / pages[i]; /* s1 shares the pages that were full */
        sets += (25 + pages[i] - 1) / pages[i] - 20 / pages[i];
        CHECK_U(pimattn_pages_used(e), sets * LAYERS * KV_HEADS);
        CHECK_U(pimattn_restore(e, back, 3, &n, &stream), PIMATTN_ERR_STATE); /* it is at its end */
        from.at = 0;
        CHECK_U(pimattn_restore(e, back, 3, &n, &stream), PIMATTN_ERR_SEQ);
        CHECK_U(pimattn_pages_used(e), sets * LAYERS * KV_HEADS);
        pimattn_engine_destroy(e);
    }
    rig_end(&r);
}

/* A part, the end or the begin, in a slot before the whole: no token is saved twice. */
static void all_alive_fit_where_they_were(void)
{
    static const uint64_t parts[2][2] = {{TOKENS / 2, TOKENS}, {0, TOKENS - 2}};
    for (size_t i = 0; i < 2; i++) {
        rig r = rig_new(PIMATTN_F32, PIMATTN_F16);
        pimattn_seq s[2] = {seq_of(&r, TOKENS), 0}, back[2];
        pimattn_stream stream = {state, sizeof state, NULL, NULL, NULL};
        uint64_t whole = 0, bytes = 0, used = pimattn_pages_used(r.e);
        size_t n = 0;
        CHECK_U(pimattn_seq_fork(r.e, &s[1], s[0]), PIMATTN_OK);
        CHECK_U(pimattn_save(r.e, s, 1, NULL, &whole), PIMATTN_OK);
        CHECK_U(pimattn_seq_keep(r.e, s[0], parts[i][0], parts[i][1]), PIMATTN_OK);
        CHECK_U(pimattn_save(r.e, NULL, 0, &stream, &bytes), PIMATTN_OK);
        CHECK_U(bytes, whole + 10 * sizeof(uint64_t)); /* a head and two hashes */
        for (size_t k = 0; k < 2; k++)
            CHECK_U(pimattn_seq_free(r.e, s[k]), PIMATTN_OK);
        CHECK_U(pimattn_restore(r.e, back, 2, &n, &stream), PIMATTN_OK);
        CHECK_U(n, 2);
        CHECK_U(pimattn_pages_used(r.e), used);
        rig_end(&r);
    }
}

/* --------------------------------------------------------------------------
 * What the life cycle means
 * -------------------------------------------------------------------------- */

/* A page that both hold has one more token for the second, which has it from no other. */
static void what_one_lacks_of_a_shared_page_is_saved(void)
{
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    pimattn_seq all = seq_of(&r, PAGE + 3), s[2] = {0, all}, back[2] = {0, 0};
    uint64_t bytes = 0;
    size_t n = 0;
    float before[HEADS * DIM];
    attend(&r, r.e, all, before);
    CHECK_U(pimattn_seq_fork(r.e, &s[0], all), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(r.e, s[0], PAGE + 2), PIMATTN_OK);
    CHECK_U(pimattn_save(r.e, s, 2, NULL, &bytes), PIMATTN_OK);
    pimattn_stream stream = in_memory(bytes);
    CHECK_U(pimattn_save(r.e, s, 2, &stream, NULL), PIMATTN_OK);
    CHECK_U(pimattn_restore(r.e, back, 2, &n, &stream), PIMATTN_OK);
    CHECK_U(n, 2);
    attend(&r, r.e, back[1], r.out);
    CHECK_BYTES(r.out, before, sizeof before);
    rig_end(&r);
}

/* Beside float64 over what is kept, over several leaves, at every kind of first token. */
static void a_kept_range_is_all_that_is_seen(void)
{
    static const uint64_t ranges[][2] = {{0, 1300},    {1, 1300},   {15, 1300},  {16, 1299},
                                         {511, 1300},  {512, 1300}, {600, 1201}, {1023, 1300},
                                         {1025, 1026}, {1299, 1300}};
    pimattn_shape s = shape_of(1, 4, 2, 16, 0);
    check_rng rng = {11};
    attn_kv kv = kv_random(&s, 1300, &rng);
    float q[4 * 4 * 16], out[4 * 4 * 16];
    fill_normal(q, COUNT(q), 1, &rng);
    for (size_t i = 0; i < COUNT(ranges) * 2; i++) {
        const uint64_t *range = ranges[i / 2];
        pimattn_config c = config_of(&s);
        c.page_tokens = i % 2 ? 32 : 24; /* in place, and copied */
        pimattn_engine *e = engine_new(&c);
        pimattn_item item = {0, range[1] - range[0] < 4 ? range[1] - range[0] : 4};
        pimattn_call call = {.out = out, .q = q, .items = &item, .n_items = 1};
        pimattn_readings readings;
        CHECK_U(pimattn_seq_create(e, &item.seq), PIMATTN_OK);
        CHECK_U(kv_append(e, item.seq, 0, &kv, 0, 1300), PIMATTN_OK);
        CHECK_U(pimattn_seq_keep(e, item.seq, range[0], range[1]), PIMATTN_OK);
        uint64_t pages = (range[1] + c.page_tokens - 1) / c.page_tokens - range[0] / c.page_tokens;
        CHECK_U(pimattn_pages_used(e), pages * 2);
        CHECK_U(pimattn_attend(e, 0, &call, &readings), PIMATTN_OK);
        CHECK_U(readings.kv_tokens, range[1] - range[0]);
        attn_kv kept = kv;
        kept.k_kept += range[0] * kv.k_row;
        kept.v_kept += range[0] * kv.v_row;
        for (uint64_t t = 0; t < item.n_tokens; t++)
            check_row(&kept, range[1] - range[0] - item.n_tokens + t + 1, q + t * 64, out + t * 64,
                      NULL);
        item.n_tokens = range[1] - range[0] + 1;
        CHECK_U(pimattn_attend(e, 0, &call, NULL), PIMATTN_ERR_ARGUMENT);
        pimattn_engine_destroy(e);
    }
    kv_free(&kv);
}

/* A sequence that goes on for ever: memory for a few leaves, positions far beyond. */
static void a_stream_needs_only_what_it_keeps(void)
{
    enum { ALL = 9000, STEP = 250, KEPT = 1100, STREAM_PAGE = 16 };
    pimattn_shape s = shape_of(1, 2, 1, 16, 0);
    check_rng rng = {13};
    attn_kv kv = kv_random(&s, ALL, &rng);
    float q[2 * 16], out[2 * 16], want[2 * 16];
    pimattn_config c = config_of(&s);
    c.page_tokens = STREAM_PAGE;
    pimattn_engine *plain = engine_new(&c);
    c.pool_bytes = (KEPT + STEP) / STREAM_PAGE * pimattn_page_bytes(plain) + (1u << 12);
    pimattn_engine *e = engine_new(&c);
    pimattn_seq seq, all, part;
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    CHECK_U(pimattn_seq_create(plain, &all), PIMATTN_OK);
    for (uint64_t t = 0; t < ALL; t += STEP) {
        uint64_t first = t + STEP > KEPT ? t + STEP - KEPT : 0;
        if (!CHECK_U(kv_append(e, seq, 0, &kv, t, STEP), PIMATTN_OK)) break;
        CHECK_U(pimattn_seq_keep(e, seq, first, t + STEP), PIMATTN_OK);
        CHECK_U(kv_append(plain, all, 0, &kv, t, STEP), PIMATTN_OK);
        CHECK_U(pimattn_seq_fork(plain, &part, all), PIMATTN_OK);
        CHECK_U(pimattn_seq_keep(plain, part, first, t + STEP), PIMATTN_OK);
        fill_normal(q, COUNT(q), 1, &rng);
        CHECK_U(pimattn_attend_one(e, seq, 0, out, q, NULL), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(plain, part, 0, want, q, NULL), PIMATTN_OK);
        CHECK_BYTES(out, want, sizeof out);
        attn_kv kept = kv;
        kept.k_kept += first * kv.k_row;
        kept.v_kept += first * kv.v_row;
        check_row(&kept, t + STEP - first, q, out, NULL);
        CHECK_U(pimattn_seq_free(plain, part), PIMATTN_OK);
    }
    CHECK_U(pimattn_seq_free(e, seq), PIMATTN_OK);
    pimattn_engine_destroy(e);
    pimattn_engine_destroy(plain);
    kv_free(&kv);
}

static uint64_t n_taken;

static void count_taken(void *user, pimattn_page_event event, uint32_t page, uint32_t to)
{
    (void)user, (void)page, (void)to;
    n_taken += event == PIMATTN_PAGE_TAKEN;
}

static void a_long_fork_copies_no_page(void)
{
    enum { LONG = 32768, DEEP = 32 };
    pimattn_shape s = shape_of(DEEP, 1, 1, 1, 0);
    pimattn_config c = config_of(&s);
    static float rows[LONG];
    pimattn_seq seq, child;
    pimattn_seq_info info;
    c.on_page = count_taken;
    pimattn_engine *e = engine_new(&c);
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    for (uint32_t layer = 0; layer < DEEP; layer++)
        CHECK_U(pimattn_append(e, seq, layer, rows, rows, LONG - 1, 0, 0), PIMATTN_OK);
    uint64_t used = pimattn_pages_used(e);
    n_taken = 0;
    CHECK_U(pimattn_seq_fork(e, &child, seq), PIMATTN_OK);
    CHECK_U(n_taken, 0);
    CHECK_U(pimattn_pages_used(e), used);
    CHECK_U(pimattn_seq_query(e, child, &info), PIMATTN_OK);
    CHECK_U(info.pages, LONG / 128 * DEEP);
    CHECK_U(info.pages_shared, info.pages);
    CHECK_U(pimattn_append(e, child, 0, rows, rows, 1, 0, 0), PIMATTN_OK);
    CHECK_U(n_taken, DEEP); /* the last partial page, in every layer */
    CHECK_U(pimattn_seq_free(e, seq), PIMATTN_OK);
    CHECK_U(pimattn_pages_used(e), used);
    pimattn_engine_destroy(e);
}

static void static_reservation_takes_all_at_once(void)
{
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    r.config.reserve_tokens = 18;
    rig_pool(&r, 12 * LAYERS * KV_HEADS * 512); /* two sequences of 5 pages, and a rest */
    pimattn_seq s = seq_of(&r, 0), t, u;
    uint64_t each = 5 * LAYERS * KV_HEADS, used = 2 * each;
    CHECK_U(pimattn_pages_used(r.e), each);
    append(&r, r.e, s, 0, 10);
    CHECK_U(pimattn_pages_used(r.e), each);
    CHECK_U(pimattn_seq_create(r.e, &t), PIMATTN_OK);
    REFUSED(pimattn_seq_create(r.e, &u), PIMATTN_ERR_PAGES, "free");
    REFUSED(kv_append(r.e, s, 0, &r.kv, 0, 9), PIMATTN_ERR_PAGES, "reserve_tokens");
    CHECK_U(pimattn_seq_free(r.e, t), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(r.e, s, 3), PIMATTN_OK);
    CHECK_U(pimattn_pages_used(r.e), each);
    CHECK_U(pimattn_seq_fork(r.e, &t, s), PIMATTN_OK);
    CHECK_U(pimattn_pages_used(r.e), 2 * each);
    append(&r, r.e, s, 3, 15);
    append(&r, r.e, t, 3, 10);
    CHECK_U(pimattn_seq_free(r.e, s), PIMATTN_OK);
    attend(&r, r.e, t, r.out);
    check_row(&r.kv, 13, r.q, r.out, NULL);
    rig_end(&r);
}

static void a_known_prefix_takes_the_rest_at_once(void)
{
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    r.config.reserve_tokens = 4 * PAGE;
    rig_pool(&r, 7 * LAYERS * KV_HEADS * 512); /* two such sequences, and a page */
    const uint32_t ids[2 * PAGE] = {1, 2, 3};
    pimattn_seq s = seq_of(&r, 2 * PAGE), t, u;
    uint64_t n = 0, used = 6 * LAYERS * KV_HEADS;
    CHECK_U(pimattn_prefix_remember(r.e, s, ids, 2 * PAGE, 0), PIMATTN_OK);
    CHECK_U(pimattn_prefix_start(r.e, &t, ids, 2 * PAGE, 0, &n), PIMATTN_OK);
    CHECK_U(n, 2 * PAGE);
    CHECK_U(pimattn_pages_used(r.e), used);
    REFUSED(pimattn_prefix_start(r.e, &u, ids, 2 * PAGE, 0, &n), PIMATTN_ERR_PAGES, "are free");
    rig_end(&r);
}

/* Where append fits, so does a reservation: it copies nothing that is not written. */
static void static_pages_that_are_shared_need_a_copy_of_what_is_written(void)
{
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    r.config.reserve_tokens = 4 * PAGE;
    rig_pool(&r, 6 * LAYERS * KV_HEADS * 512); /* a sequence, and two pages */
    pimattn_seq s = seq_of(&r, 4 * PAGE), t;
    CHECK_U(pimattn_seq_fork(r.e, &t, s), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(r.e, s, 0), PIMATTN_OK);
    CHECK_U(pimattn_seq_reserve(r.e, s, 1), PIMATTN_OK);
    append(&r, r.e, s, 0, 1);
    const uint64_t used = 5 * LAYERS * KV_HEADS;
    CHECK_U(pimattn_pages_used(r.e), used);
    REFUSED(pimattn_seq_reserve(r.e, s, 2 * PAGE), PIMATTN_ERR_PAGES, "are free");
    rig_end(&r);
}

/* What is known by its tokens is given up where a sequence writes into it and no page is free. */
static void remembered_pages_can_be_written_again(void)
{
    for (uint64_t reserve = 0; reserve <= 20; reserve += 20) {
        rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
        r.config.reserve_tokens = reserve;
        rig_pool(&r, 5 * LAYERS * KV_HEADS * 512); /* 5 pages of 4 tokens */
        pimattn_seq s = seq_of(&r, 20);
        uint32_t tokens[20] = {0};
        CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 20, 0), PIMATTN_OK);
        CHECK_U(pimattn_seq_truncate(r.e, s, 15), PIMATTN_OK);
        append(&r, r.e, s, 15, 5); /* without reserve_tokens, page 4 is free, for a copy of 3 */
        attend(&r, r.e, s, r.out);
        check_row(&r.kv, 20, r.q, r.out, NULL);
        CHECK_U(pimattn_seq_free(r.e, s), PIMATTN_OK);
        CHECK_U(pimattn_pages_used(r.e), 0);
        rig_end(&r);
    }
}

/* Who only asks how much is known of some tokens does not use it. */
static void asking_for_a_prefix_changes_nothing(void)
{
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    rig_pool(&r, 5 * LAYERS * KV_HEADS * 512); /* 5 pages of 4 tokens */
    uint32_t tokens[2][8] = {{1}, {2}};
    uint64_t n = 0;
    for (int i = 0; i < 2; i++) {
        pimattn_seq s = seq_of(&r, 8);
        CHECK_U(pimattn_prefix_remember(r.e, s, tokens[i], 8, 0), PIMATTN_OK);
        CHECK_U(pimattn_seq_free(r.e, s), PIMATTN_OK);
    }
    CHECK_U(pimattn_prefix_start(r.e, NULL, tokens[0], 8, 0, &n), PIMATTN_OK);
    CHECK_U(n, 8);
    CHECK_U(pimattn_pages_used(r.e), 0);
    (void)seq_of(&r, 8); /* one page is free, and the first text was used longest ago */
    CHECK_U(pimattn_prefix_start(r.e, NULL, tokens[0], 8, 0, &n), PIMATTN_OK);
    CHECK_U(n, 4);
    CHECK_U(pimattn_prefix_start(r.e, NULL, tokens[1], 8, 0, &n), PIMATTN_OK);
    CHECK_U(n, 8);
    CHECK_U(pimattn_prefix_start(r.e, NULL, tokens[1], 8, 1, &n), PIMATTN_OK);
    CHECK_U(n, 0);
    rig_end(&r);
}

/* It stays known where a page is free, be it the last one. */
static void remembered_pages_stay_where_there_is_a_page(void)
{
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    rig_pool(&r, 6 * LAYERS * KV_HEADS * 512);
    pimattn_seq s = seq_of(&r, 20), t;
    uint32_t tokens[20] = {0};
    uint64_t n = 0;
    CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 20, 0), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(r.e, s, 19), PIMATTN_OK);
    append(&r, r.e, s, 19, 1);
    CHECK_U(pimattn_pages_used(r.e), 5 * LAYERS * KV_HEADS);
    CHECK_U(pimattn_seq_free(r.e, s), PIMATTN_OK);
    CHECK_U(pimattn_prefix_start(r.e, &t, tokens, 20, 0, &n), PIMATTN_OK);
    CHECK_U(n, 20);
    rig_end(&r);
}

/* That the store lets go of it frees no page that another sequence holds. */
static void remembered_pages_of_two_sequences_need_a_copy(void)
{
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    rig_pool(&r, 5 * LAYERS * KV_HEADS * 512);
    pimattn_seq s = seq_of(&r, 20), t;
    uint32_t tokens[20] = {0};
    const uint64_t used = 5 * LAYERS * KV_HEADS;
    CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 20, 0), PIMATTN_OK);
    CHECK_U(pimattn_seq_fork(r.e, &t, s), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(r.e, t, 19), PIMATTN_OK);
    REFUSED(kv_append(r.e, t, 0, &r.kv, 19, 1), PIMATTN_ERR_PAGES, "free");
    CHECK_U(pimattn_seq_free(r.e, s), PIMATTN_OK);
    append(&r, r.e, t, 19, 1);
    attend(&r, r.e, t, r.out);
    check_row(&r.kv, 20, r.q, r.out, NULL);
    rig_end(&r);
}

/* Accepted tokens lie as if they alone had been appended, rows and scales, in every layer. */
static void what_is_accepted_lies_as_if_appended(uint32_t type, bool v_in_k)
{
    static const uint32_t drafts[] = {30, 9, 31, 10, 11, 32, 12, 33, 13, 14, 34}; /* 9 to 14 */
    static const uint32_t kept[] = {1, 3, 4, 6, 8, 9};
    rig r = rig_new(type, type);
    pimattn_shape *s = &r.config.shape;
    s->v_in_k = v_in_k;
    if (v_in_k) s->n_kv_heads = 1, s->head_dim_v = DIM / 2;
    kv_free(&r.kv);
    check_rng rng = {6};
    r.kv = kv_random(s, TOKENS, &rng);
    rig_pool(&r, 1u << 20);
    pimattn_seq seq = seq_of(&r, 9), like = seq_of(&r, 9 + COUNT(kept)), child;
    float want[HEADS * DIM];
    for (size_t i = 0; i < COUNT(drafts); i++)
        append(&r, r.e, seq, drafts[i], 1);
    CHECK_U(pimattn_seq_fork(r.e, &child, seq), PIMATTN_OK);
    for (uint32_t i = 0; i < 2; i++) { /* from shared pages, and where they lie */
        const pimattn_seq its = i ? child : seq;
        CHECK_U(pimattn_seq_accept(r.e, its, 9, kept, COUNT(kept)), PIMATTN_OK);
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            CHECK_U(pimattn_attend_one(r.e, its, layer, r.out, r.q, NULL), PIMATTN_OK);
            CHECK_U(pimattn_attend_one(r.e, like, layer, want, r.q, NULL), PIMATTN_OK);
            CHECK_BYTES(r.out, want, HEADS * shape_dv(s) * sizeof *want);
        }
    }
    rig_end(&r);
}

static void the_accepted_lies_as_if_appended(void)
{
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++) {
        what_is_accepted_lies_as_if_appended(type, false);
        what_is_accepted_lies_as_if_appended(type, true);
    }
}

/* Shared pages are copied where rows change, and there alone; no page: nothing changes. */
static void what_is_accepted_needs_pages_where_it_moves(void)
{
    static const uint32_t first[] = {0, 1, 2}, moved[] = {0, 2, 3, 4};
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    rig_pool(&r, 5 * LAYERS * KV_HEADS * 512); /* 5 pages of 4 tokens */
    pimattn_seq s = seq_of(&r, 20), t;
    const uint64_t used = 5 * LAYERS * KV_HEADS;
    uint32_t tokens[20] = {0};
    float want[HEADS * DIM];
    attend(&r, r.e, s, want);
    CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 20, 0), PIMATTN_OK);
    CHECK_U(pimattn_seq_fork(r.e, &t, s), PIMATTN_OK);
    REFUSED(pimattn_seq_accept(r.e, t, 6, moved, COUNT(moved)), PIMATTN_ERR_PAGES, "8 more KV");
    attend(&r, r.e, t, r.out);
    CHECK_BYTES(r.out, want, sizeof want);
    CHECK_U(pimattn_seq_accept(r.e, t, 6, first, COUNT(first)), PIMATTN_OK); /* a truncation */
    attend(&r, r.e, t, r.out);
    check_row(&r.kv, 9, r.q, r.out, NULL);
    CHECK_U(pimattn_pages_used(r.e), used);
    CHECK_U(pimattn_seq_free(r.e, t), PIMATTN_OK);
    CHECK_U(pimattn_seq_accept(r.e, s, 6, moved, COUNT(moved)), PIMATTN_OK); /* known no longer */
    attend(&r, r.e, s, r.out);
    rig like = rig_new(PIMATTN_F32, PIMATTN_F32);
    s = seq_of(&like, 7);
    append(&like, like.e, s, 8, 3);
    attend(&like, like.e, s, want);
    CHECK_BYTES(r.out, want, sizeof want);
    rig_end(&like);
    static const uint32_t next[] = {1, 2};
    rig_pool(&r, 4 * LAYERS * KV_HEADS * 512);
    s = seq_of(&r, 8);
    CHECK_U(pimattn_seq_fork(r.e, &t, s), PIMATTN_OK);
    append(&r, r.e, s, 8, 8); /* the pool is full */
    CHECK_U(pimattn_seq_accept(r.e, s, 6, next, 2), PIMATTN_ERR_PAGES);
    CHECK_U(pimattn_seq_truncate(r.e, s, 6 + next[1] + 1), PIMATTN_OK);
    CHECK_U(pimattn_seq_accept(r.e, s, 6, next, 2), PIMATTN_OK);
    rig_end(&r);
}

/* The last slab is what is left of pool_bytes. */
static void pages_take_no_more_than_the_pool(void)
{
    check_heap heap = {0};
    const pimhw_allocator counted = {heap_alloc, heap_release, &heap};
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    r.config.allocator = counted;
    rig_pool(&r, 5 << 20);
    if (!r.e) return;
    const uint64_t before = heap.live_bytes;
    pimattn_seq s = seq_of(&r, 0);
    CHECK_U(pimattn_seq_reserve(r.e, s, (5 << 20) / (LAYERS * KV_HEADS * 512) * PAGE), PIMATTN_OK);
    CHECK(heap.live_bytes - before < (5 << 20) + (1 << 19)); /* pages, and what lists them */
    rig_end(&r);
}

/* A page whose predecessor was given up is found again once that is known anew, by its own salt. */
static void remembered_pages_find_a_new_parent(void)
{
    const uint32_t tokens[2 * PAGE] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (uint64_t salt = 0; salt < 2; salt++) {
        rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
        rig_pool(&r, 5 * LAYERS * KV_HEADS * 512); /* 5 pages of 4 tokens */
        uint64_t n_known = 0;
        pimattn_seq first = seq_of(&r, PAGE), s, t = 0;
        CHECK_U(pimattn_prefix_remember(r.e, first, tokens, PAGE, 0), PIMATTN_OK);
        s = seq_of(&r, 2 * PAGE); /* its second page behind the page of the first */
        CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 2 * PAGE, 0), PIMATTN_OK);
        CHECK_U(pimattn_seq_free(r.e, first), PIMATTN_OK);
        CHECK_U(pimattn_seq_free(r.e, seq_of(&r, 3 * PAGE)), PIMATTN_OK); /* which is wanted now */
        CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 2 * PAGE, salt), PIMATTN_OK);
        CHECK_U(pimattn_prefix_start(r.e, &t, tokens, 2 * PAGE, salt, &n_known), PIMATTN_OK);
        CHECK_U(n_known, salt ? PAGE : 2 * PAGE);
        attend(&r, r.e, t, r.out);
        check_row(&r.kv, n_known, r.q, r.out, NULL);
        rig_end(&r);
    }
}

/* A sequence whose first page is known under another salt: what follows it is left out, but where
 * another page is known by the same tokens. */
static void remembered_pages_follow_those_of_others(void)
{
    const uint32_t tokens[2 * PAGE] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int other = 0; other < 2; other++) {
        rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
        uint64_t n_known = 77;
        pimattn_seq s = seq_of(&r, 2 * PAGE), t = 0;
        CHECK_U(pimattn_prefix_remember(r.e, s, tokens, PAGE, 1), PIMATTN_OK);
        if (other)
            CHECK_U(pimattn_prefix_remember(r.e, seq_of(&r, PAGE), tokens, PAGE, 0), PIMATTN_OK);
        CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 2 * PAGE, 0), PIMATTN_OK);
        CHECK_U(pimattn_prefix_start(r.e, &t, tokens, 2 * PAGE, 0, &n_known), PIMATTN_OK);
        CHECK_U(n_known, other ? 2 * PAGE : 0);
        if (other) attend(&r, r.e, t, r.out);
        if (other) check_row(&r.kv, n_known, r.q, r.out, NULL);
        rig_end(&r);
    }
}

/* A page of its own is given up for a copy only where none that nobody holds can be. */
static void remembered_pages_are_kept_where_others_idle(void)
{
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    rig_pool(&r, 5 * LAYERS * KV_HEADS * 512); /* 5 pages of 4 tokens */
    uint32_t idle[8] = {1}, tokens[12] = {2};
    uint64_t n_known = 0;
    pimattn_seq gone = seq_of(&r, 8), s, t = 0;
    CHECK_U(pimattn_prefix_remember(r.e, gone, idle, 8, 0), PIMATTN_OK);
    CHECK_U(pimattn_seq_free(r.e, gone), PIMATTN_OK);
    s = seq_of(&r, 12);
    CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 12, 0), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(r.e, s, 11), PIMATTN_OK);
    append(&r, r.e, s, 11, 1);
    CHECK_U(pimattn_prefix_start(r.e, &t, tokens, 12, 0, &n_known), PIMATTN_OK);
    CHECK_U(n_known, 12);
    CHECK_U(pimattn_prefix_start(r.e, &t, idle, 8, 0, &n_known), PIMATTN_OK);
    CHECK_U(n_known, 4);
    rig_end(&r);
}

/* The store grows with its 17th page, and finds the 16 before. */
static void remembered_pages_are_found_as_they_become_many(void)
{
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t tokens[32] = {i};
        pimattn_seq s = seq_of(&r, 32), t = 0;
        CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 32, 0), PIMATTN_OK);
        for (tokens[0] = 0; tokens[0] <= i; tokens[0]++) {
            uint64_t n_known = 0;
            CHECK_U(pimattn_prefix_start(r.e, &t, tokens, 32, 0, &n_known), PIMATTN_OK);
            CHECK_U(n_known, 32);
            CHECK_U(pimattn_seq_free(r.e, t), PIMATTN_OK);
        }
    }
    rig_end(&r);
}

/* As many known pages as there are records, all beyond the slab that stays: the last moves, too. */
static void all_that_is_known_is_compacted(void)
{
    enum { SETS = 16, TOKENS_OF = 64, N = SETS * TOKENS_OF };
    static uint32_t ids[N];
    pimattn_shape s = shape_of(1, 1, 1, 128, 0);
    pimattn_config c = config_of(&s);
    check_rng rng = {8};
    attn_kv kv = kv_random(&s, N, &rng);
    float q[128], before[128], after[128];
    pimattn_seq first, seq;
    uint64_t moved = 0, n = 0;
    c.page_tokens = TOKENS_OF;
    pimattn_engine *e = engine_new(&c);
    fill_normal(q, COUNT(q), 1, &rng);
    for (uint32_t i = 0; i < N; i++)
        ids[i] = i;
    CHECK_U(pimattn_seq_create(e, &first), PIMATTN_OK);
    for (int i = 0; i < 3; i++) /* more than a slab */
        CHECK_U(kv_append(e, first, 0, &kv, 0, N), PIMATTN_OK);
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    CHECK_U(kv_append(e, seq, 0, &kv, 0, N), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(e, seq, 0, before, q, NULL), PIMATTN_OK);
    CHECK_U(pimattn_prefix_remember(e, seq, ids, N, 0), PIMATTN_OK);
    CHECK_U(e->pool.store.n, e->pool.store.n_most);
    CHECK_U(pimattn_seq_free(e, first), PIMATTN_OK);
    CHECK_U(pimattn_seq_free(e, seq), PIMATTN_OK);
    CHECK_U(pimattn_cache_compact(e, &moved), PIMATTN_OK);
    CHECK_U(moved, SETS * pimattn_page_bytes(e));
    CHECK_U(pimattn_prefix_start(e, &seq, ids, N, 0, &n), PIMATTN_OK);
    CHECK_U(n, N);
    CHECK_U(pimattn_attend_one(e, seq, 0, after, q, NULL), PIMATTN_OK);
    CHECK_BYTES(after, before, sizeof after);
    pimattn_engine_destroy(e);
    kv_free(&kv);
}

/* Of two pages with one hash only the one that was remembered is found. */
static void a_hit_is_compared_token_by_token(void)
{
    const uint32_t fibonacci = 2971215073u; /* nearly a whole number of golden ratios */
    const uint64_t none = pimattn_i_mix(0, 0);
    uint32_t a[PAGE] = {0}, b[PAGE] = {0};
    uint64_t differ = 1;
    for (uint32_t i = 0; i < 1000 && differ; i++) { /* until the upper halves are equal */
        a[0] = (uint32_t)none ^ i, b[0] = (uint32_t)none ^ (i + fibonacci);
        differ = (pimattn_i_mix(none, a[0]) ^ pimattn_i_mix(none, b[0])) >> 32;
    }
    b[1] = (uint32_t)(pimattn_i_mix(none, a[0]) ^ pimattn_i_mix(none, b[0]));
    CHECK_U(pimattn_i_mix(pimattn_i_mix(none, a[0]), a[1]),
            pimattn_i_mix(pimattn_i_mix(none, b[0]), b[1]));
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    pimattn_seq s = seq_of(&r, PAGE), t = 0;
    uint64_t n_known = 77;
    CHECK_U(pimattn_prefix_remember(r.e, s, a, PAGE, 0), PIMATTN_OK);
    CHECK_U(pimattn_prefix_start(r.e, &t, b, PAGE, 0, &n_known), PIMATTN_OK);
    CHECK_U(n_known, 0);
    CHECK_U(pimattn_prefix_start(r.e, &t, a, PAGE, 0, &n_known), PIMATTN_OK);
    CHECK_U(n_known, PAGE);
    rig_end(&r);
}

static uint32_t n_events[PIMATTN_PAGE_MOVED + 1];
static pimattn_seq told_of;

/* Calls what must not be called from within a function of the caller. */
static void calls_are_refused(rig *r, const char *why)
{
    float row[KV_HEADS * DIM] = {0};
    const uint32_t token = 0;
    uint64_t n;
    pimattn_seq s = told_of;
    CHECK_U(pimattn_seq_free(r->e, s), PIMATTN_ERR_SEQ);
    CHECK_HAS(pimattn_engine_cause(r->e), why);
    CHECK_U(pimattn_append(r->e, s, 0, row, row, 1, 0, 0), PIMATTN_ERR_SEQ);
    CHECK_U(pimattn_seq_truncate(r->e, s, 0), PIMATTN_ERR_SEQ);
    CHECK_U(pimattn_seq_create(r->e, &s), PIMATTN_ERR_SEQ);
    CHECK_U(pimattn_cache_compact(r->e, &n), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_prefix_start(r->e, &s, &token, 1, 0, &n), PIMATTN_ERR_ARGUMENT);
    uint64_t bits[KV_HEADS] = {0};
    float of_tokens[TOKENS];
    pimattn_choice choice = {.bits = bits, .stride = 1, .n_kv_heads = KV_HEADS};
    pimattn_item item = {told_of, 1};
    const pimhw_program *program;
    const pimhw_request *request;
    CHECK_U(pimattn_attend_one(r->e, told_of, 0, of_tokens, row, NULL), PIMATTN_ERR_ARGUMENT);
    CHECK(pimattn_retrieve(r->e, told_of, 0, &choice, NULL, r->q, 1) != PIMATTN_OK); /* or gone */
    CHECK_U(pimattn_probabilities(r->e, told_of, 0, of_tokens, r->q, 0), PIMATTN_ERR_ARGUMENT);
    CHECK_U(pimattn_engine_program(r->e, 0, &item, 1, &program, &request), PIMATTN_ERR_ARGUMENT);
}

/* Counts; a rig is given where calls are to be refused. */
static void count_events(void *user, pimattn_page_event event, uint32_t page, uint32_t to)
{
    (void)page, (void)to;
    n_events[event]++;
    if (user) calls_are_refused((rig *)user, "on_page is under way");
}

/* Pages that are known are evicted, when room is wanted and at the end; the others are freed. And
 * slabs take no more than they have pages for, or an eighth. */
static void pages_say_what_becomes_of_them(void)
{
    enum { SET = LAYERS * KV_HEADS };
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    r.config.on_page = count_events;
    rig_pool(&r, 5 * SET * 512); /* 5 pages of 4 tokens */
    memset(n_events, 0, sizeof n_events);
    uint32_t tokens[12] = {0};
    pimattn_cache_info info;
    pimattn_seq s = seq_of(&r, 12);
    CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 8, 0), PIMATTN_OK);
    CHECK_U(pimattn_seq_free(r.e, s), PIMATTN_OK);
    CHECK_U(n_events[PIMATTN_PAGE_TAKEN], 3 * SET);
    CHECK_U(n_events[PIMATTN_PAGE_FREED], SET);
    CHECK_U(n_events[PIMATTN_PAGE_EVICTED], 0);
    (void)seq_of(&r, 16);
    CHECK_U(n_events[PIMATTN_PAGE_EVICTED], SET);
    CHECK_U(pimattn_cache_query(r.e, &info), PIMATTN_OK);
    CHECK_U(info.memory_bytes, r.config.pool_bytes);
    rig_end(&r);
    CHECK_U(n_events[PIMATTN_PAGE_TAKEN], 7 * SET);
    CHECK_U(n_events[PIMATTN_PAGE_EVICTED], 2 * SET);
    CHECK_U(n_events[PIMATTN_PAGE_FREED], 5 * SET);
    CHECK_U(n_events[PIMATTN_PAGE_MOVED], 0);
}

static uint32_t listed_pages[1024];
static size_t n_listed;

static void list_pages(void *user, pimattn_page_event event, uint32_t page, uint32_t to)
{
    (void)user, (void)to;
    if (event == PIMATTN_PAGE_TAKEN && n_listed < 1024) listed_pages[n_listed++] = page;
}

/* Pages of a KV head that are taken together have numbers, and so memory, that follow one another:
 * new ones, those of a sequence that was freed, and of two that grew by turns. */
static void pages_of_a_head_follow_one_another(void)
{
    enum { SET = LAYERS * KV_HEADS, N = 16 };
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    r.config.on_page = list_pages;
    rig_pool(&r, N * SET * 512);
    for (int round = 0; round < 3; round++) {
        pimattn_seq s = 0, turns[2];
        for (int i = 0; i < 2; i++)
            CHECK_U(pimattn_seq_create(r.e, &turns[i]), PIMATTN_OK);
        for (uint64_t n = 1; n <= N / 2 && round == 2; n++)
            for (int i = 0; i < 2; i++)
                CHECK_U(pimattn_seq_reserve(r.e, turns[i], n * PAGE), PIMATTN_OK);
        for (int i = 0; i < 2; i++)
            CHECK_U(pimattn_seq_free(r.e, turns[i]), PIMATTN_OK);
        n_listed = 0;
        CHECK_U(pimattn_seq_create(r.e, &s), PIMATTN_OK);
        CHECK_U(pimattn_seq_reserve(r.e, s, N * PAGE), PIMATTN_OK);
        CHECK_U(n_listed, N * SET);
        size_t jumps = 0;
        for (size_t i = 0; i < n_listed; i++)
            jumps += i % N && listed_pages[i] != listed_pages[i - 1] + 1;
        CHECK(jumps <= (round == 2 ? SET : 0));
        CHECK_U(pimattn_seq_free(r.e, s), PIMATTN_OK);
    }
    rig_end(&r);
}

/* Pages taken, given up and freed: who is told may not call, and nothing is harmed. */
static void who_is_told_of_pages_may_not_call(void)
{
    enum { SET = LAYERS * KV_HEADS };
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    r.config.on_page = count_events, r.config.page_user = &r;
    rig_pool(&r, 8 * SET * 512);
    memset(n_events, 0, sizeof n_events);
    uint32_t tokens[8] = {0};
    pimattn_seq s = seq_of(&r, 8);
    told_of = s;
    CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 8, 0), PIMATTN_OK);
    CHECK_U(pimattn_seq_free(r.e, s), PIMATTN_OK);
    s = told_of = seq_of(&r, 32);
    CHECK_U(pimattn_seq_keep(r.e, s, 28, 32), PIMATTN_OK);
    CHECK_U(n_events[PIMATTN_PAGE_TAKEN], 10 * SET);
    CHECK_U(n_events[PIMATTN_PAGE_EVICTED], 2 * SET);
    CHECK_U(n_events[PIMATTN_PAGE_FREED], 7 * SET);
    rig_end(&r);
}

/* The functions of a stream. */
typedef struct calling_pipe {
    pipe pipe;
    rig *rig;
} calling_pipe;

static bool calling_write(void *user, const void *from, size_t n)
{
    calling_pipe *p = (calling_pipe *)user;
    calls_are_refused(p->rig, "a stream is under way");
    return pipe_write(&p->pipe, from, n);
}

static bool calling_read(void *user, void *to, size_t n)
{
    calling_pipe *p = (calling_pipe *)user;
    calls_are_refused(p->rig, "a stream is under way");
    return pipe_read(&p->pipe, to, n);
}

/* A state is written and read as if they had not; one that ends too soon leaves no guard behind. */
static void who_moves_a_state_may_not_call(void)
{
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    r.config.on_page = count_events, r.config.page_user = &r;
    rig_pool(&r, 0);
    pimattn_seq s = seq_of(&r, 21), back = 0;
    size_t n = 0;
    uint64_t bytes = 0;
    calling_pipe moved = {{0, sizeof state}, &r};
    pimattn_stream stream = {NULL, 0, calling_write, calling_read, &moved};
    told_of = s;
    CHECK_U(pimattn_save(r.e, &s, 1, &stream, &bytes), PIMATTN_OK);
    CHECK_U(moved.pipe.at, bytes);
    moved.pipe.at = 0, moved.pipe.end = bytes - 1;
    CHECK_U(pimattn_restore(r.e, &back, 1, &n, &stream), PIMATTN_ERR_STATE);
    moved.pipe.at = 0, moved.pipe.end = bytes;
    CHECK_U(pimattn_restore(r.e, &back, 1, &n, &stream), PIMATTN_OK);
    float want[HEADS * DIM];
    attend(&r, r.e, s, want);
    attend(&r, r.e, back, r.out);
    CHECK_BYTES(r.out, want, sizeof want);
    rig_end(&r);
}

static int n_calling;

static void calling_for(void *user, size_t n, void (*fn)(void *, size_t, size_t), void *arg)
{
    n_calling++;
    calls_are_refused((rig *)user, "an attend is under way");
    for (size_t i = 0; i < n; i++)
        fn(arg, i, 0);
}

/* Over the cache and over pages of the caller. */
static void who_runs_the_jobs_may_not_call(void)
{
    enum { N_PAGES = 2 };
    rig r = rig_new(PIMATTN_F32, PIMATTN_F32);
    float want[HEADS * DIM];
    float(*rows)[N_PAGES][PAGE][KV_HEADS][DIM] = check_alloc(2, sizeof *rows);
    pimattn_seq s = seq_of(&r, 5);
    attend(&r, r.e, s, want);
    pimattn_engine_destroy(r.e);
    r.config.parallel_for = calling_for, r.config.parallel_user = &r, r.config.max_workers = 2;
    r.e = engine_new(&r.config);
    s = told_of = seq_of(&r, 5);
    n_calling = 0;
    attend(&r, r.e, s, r.out);
    CHECK_BYTES(r.out, want, sizeof want);
    CHECK_U(n_calling, 1);
    const uint32_t table[N_PAGES] = {0, 1}, length = 5;
    pimattn_pages pages = {.n_pages = N_PAGES, .page_tokens = PAGE, .order = PIMATTN_NHD};
    pages.k.at = rows[0], pages.v.at = rows[1];
    pages.table = table, pages.table_stride = N_PAGES, pages.lengths = &length;
    pimattn_item item = {0, 1};
    pimattn_call call = {.out = r.out, .q = r.q, .items = &item, .n_items = 1};
    CHECK_U(pimattn_attend_pages(r.e, 0, &pages, &call, NULL), PIMATTN_OK);
    CHECK_U(n_calling, 2);
    for (size_t i = 0; i < COUNT(r.out); i++)
        CHECK(r.out[i] == 0.0f);
    free(rows);
    rig_end(&r);
}

/* An append that is refused gives up nothing that is known. */
static void remembered_pages_outlive_a_refusal(void)
{
    float beyond[KV_HEADS * DIM] = {1e9f};
    rig r = rig_new(PIMATTN_F16, PIMATTN_F16);
    rig_pool(&r, 5 * LAYERS * KV_HEADS * 256); /* 5 pages of 4 tokens */
    pimattn_seq s = seq_of(&r, 20), t = 0;
    uint32_t tokens[20] = {0};
    uint64_t n_known = 0;
    CHECK_U(pimattn_prefix_remember(r.e, s, tokens, 20, 0), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(r.e, s, 19), PIMATTN_OK);
    CHECK_U(pimattn_append(r.e, s, 0, beyond, beyond, 1, 0, 0), PIMATTN_ERR_RANGE);
    CHECK_U(pimattn_prefix_start(r.e, &t, tokens, 20, 0, &n_known), PIMATTN_OK);
    CHECK_U(n_known, 20);
    CHECK_U(pimattn_seq_free(r.e, t), PIMATTN_OK);
    append(&r, r.e, s, 19, 1); /* into the page, which is then known no longer */
    CHECK_U(pimattn_prefix_start(r.e, &t, tokens, 20, 0, &n_known), PIMATTN_OK);
    CHECK_U(n_known, 16);
    rig_end(&r);
}

/* Of a device, too: what is cut off leaves the chunks that were reserved. */
static void reserved_chunks_outlive_a_cut(void)
{
    pimattn_shape s = shape_of(1, 1, 1, 16, 0);
    pimattn_config c = config_of(&s);
    check_rng rng = {5};
    attn_kv kv = kv_random(&s, 10, &rng);
    pimattn_seq_info info;
    pimattn_seq seq;
    c.way = PIMATTN_DEVICE;
    c.reserve_tokens = 100000;
    pimattn_engine *e = engine_new(&c);
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    CHECK_U(pimattn_seq_query(e, seq, &info), PIMATTN_OK);
    const uint64_t pages = info.pages;
    CHECK(pages > 2);
    CHECK_U(kv_append(e, seq, 0, &kv, 0, 10), PIMATTN_OK);
    CHECK_U(pimattn_seq_truncate(e, seq, 3), PIMATTN_OK);
    CHECK_U(pimattn_seq_query(e, seq, &info), PIMATTN_OK);
    CHECK_U(info.pages, pages);
    pimattn_engine_destroy(e);
    kv_free(&kv);
}

/* Token by token, as the plan places them. */
static void bytes_of_banks_are_those_of_the_columns(void)
{
    enum { BANKS = 256 };
    for (uint32_t i = 0; i < 12; i++) {
        pimattn_shape s = shape_of(2, 4, 2, 40, 72);
        uint32_t lanes = i < 6 ? 16 : 32; /* of int8 a lane is a byte */
        if (i >= 6) s.k_type = s.v_type = PIMATTN_INT8;
        pimattn_config c = config_of(&s);
        c.partition = i % 2;
        c.v_mapping = i / 2 % 3;
        pimattn_engine *e = engine_new(&c);
        pimattn_plan plan;
        uint64_t want[BANKS] = {0}, bytes[BANKS], n = 1000;
        check_rng rng = {1};
        attn_kv kv = kv_random(&s, n, &rng);
        pimattn_seq seq;
        CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
        CHECK_U(kv_append(e, seq, 1, &kv, 0, n), PIMATTN_OK);
        CHECK_U(pimattn_seq_banks(e, seq, 1, bytes, BANKS), PIMATTN_OK);
        pimhw_config device = pimattn_engine_config(e)->device;
        device.element_bytes = 32 / lanes;
        CHECK_U(pimattn_plan_init(&plan, &s, &device, c.partition, 0, false, 2, NULL), PIMATTN_OK);
        CHECK_U(pimattn_plan_map_v(&plan, c.v_mapping, NULL), PIMATTN_OK);
        for (uint32_t h = 0; h < 2; h++)
            for (uint64_t t = 0; t < n; t++) {
                uint32_t first = c.partition == PIMATTN_HFP ? h : 0;
                pimattn_i_place k = pimattn_i_place_k(&plan, t, 0);
                want[(k.channel + first) * 16 + k.bank] += (40 + lanes - 1) / lanes * 32;
                for (uint32_t d = 0; d < 72 && t % lanes == 0; d++) {
                    pimattn_i_place v = pimattn_i_place_v(&plan, t, d);
                    want[(v.channel + first) * 16 + v.bank] += 32;
                }
            }
        CHECK_BYTES(bytes, want, sizeof want);
        /* what is gone takes no place: those left are as many new ones */
        pimattn_seq few;
        CHECK_U(pimattn_seq_create(e, &few), PIMATTN_OK);
        CHECK_U(kv_append(e, few, 1, &kv, 0, 700), PIMATTN_OK);
        CHECK_U(pimattn_seq_banks(e, few, 1, want, BANKS), PIMATTN_OK);
        CHECK_U(kv_append(e, seq, 0, &kv, 0, n), PIMATTN_OK);
        CHECK_U(pimattn_seq_keep(e, seq, 300, n), PIMATTN_OK);
        CHECK_U(pimattn_seq_banks(e, seq, 1, bytes, BANKS), PIMATTN_OK);
        CHECK_BYTES(bytes, want, sizeof want);
        /* of fewer tokens than banks each has its own */
        uint64_t sum = 0, least = (40 + lanes - 1) / lanes * 100 + (100 + lanes - 1) / lanes * 72;
        CHECK_U(pimattn_seq_truncate(e, few, 0), PIMATTN_OK);
        CHECK_U(kv_append(e, few, 1, &kv, 0, 100), PIMATTN_OK);
        CHECK_U(pimattn_seq_banks(e, few, 1, bytes, BANKS), PIMATTN_OK);
        for (int b = 0; b < BANKS; b++)
            sum += bytes[b];
        CHECK_U(sum, least * 2 * 32);
        kv_free(&kv);
        pimattn_engine_destroy(e);
    }
}

/* --------------------------------------------------------------------------
 * The device way
 * -------------------------------------------------------------------------- */

/* Truncated and appended again, it equals one that never had more; NaN leaves no trace. */
static void the_device_truncates(void)
{
    enum { N = 300 };
    pimattn_shape s = shape_of(2, 4, 2, 32, 0);
    check_rng rng = {2};
    attn_kv kv = kv_random(&s, N, &rng), bad = kv_new(&s, N);
    float q[4 * 32], out[4 * 32], want[4 * 32];
    fill_normal(q, COUNT(q), 1, &rng);
    for (size_t i = 0; i < N * bad.k_row; i++)
        bad.k[i] = bad.v[i] = NAN;
    for (uint32_t i = 0; i < 2; i++) {
        pimattn_config c = config_of(&s);
        c.way = PIMATTN_DEVICE;
        c.partition = i;
        pimattn_engine *e = engine_new(&c);
        pimattn_seq a, b, t;
        pimattn_seq_info info;
        CHECK_U(pimattn_seq_create(e, &a), PIMATTN_OK);
        CHECK_U(pimattn_seq_create(e, &b), PIMATTN_OK);
        for (uint32_t layer = 0; layer < 2; layer++) {
            CHECK_U(kv_append(e, a, layer, &kv, 0, 37), PIMATTN_OK);
            CHECK_U(kv_append(e, b, layer, &kv, 0, 37), PIMATTN_OK);
        }
        uint32_t chunks = e->module->n_used;
        for (uint32_t layer = 0; layer < 2; layer++)
            CHECK_U(kv_append(e, a, layer, &bad, 37, N - 37), PIMATTN_OK);
        CHECK_U(pimattn_seq_truncate(e, a, N + 1), PIMATTN_ERR_ARGUMENT);
        CHECK_U(pimattn_seq_truncate(e, a, 37), PIMATTN_OK);
        CHECK_U(e->module->n_used, chunks);
        for (int step = 0; step < 2; step++) {
            CHECK_U(pimattn_attend_one(e, a, 1, out, q, NULL), PIMATTN_OK);
            CHECK_U(pimattn_attend_one(e, b, 1, want, q, NULL), PIMATTN_OK);
            CHECK(isfinite(out[0]));
            CHECK_BYTES(out, want, sizeof out);
            for (uint32_t layer = 0; layer < 2; layer++) {
                CHECK_U(kv_append(e, a, layer, &kv, 37, 3), PIMATTN_OK);
                CHECK_U(kv_append(e, b, layer, &kv, 37, 3), PIMATTN_OK);
            }
        }
        CHECK_U(pimattn_seq_query(e, a, &info), PIMATTN_OK);
        CHECK_U(info.pages, pimattn_pages_used(e) / 2);
        CHECK_U(info.bytes, info.pages * pimattn_page_bytes(e));
        CHECK_U(info.layer_bytes, info.bytes / 2);
        CHECK_U(pimattn_seq_fork(e, &t, a), PIMATTN_ERR_DEVICE);
        CHECK_HAS(pimattn_engine_cause(e), "append, reserve, truncate and free");
        CHECK_HAS(pimattn_engine_cause(e), "so far");
        CHECK_U(pimattn_seq_keep(e, a, 1, 20), PIMATTN_ERR_DEVICE);
        CHECK_U(pimattn_seq_accept(e, a, 0, NULL, 0), PIMATTN_ERR_DEVICE);
        CHECK_U(pimattn_cache_compact(e, NULL), PIMATTN_ERR_DEVICE);
        CHECK_U(pimattn_seq_swap_out(e, a, out, 1, NULL), PIMATTN_ERR_DEVICE);
        CHECK_U(pimattn_seq_truncate(e, a, 0), PIMATTN_OK);
        CHECK_U(pimattn_seq_truncate(e, b, 0), PIMATTN_OK);
        CHECK_U(e->module->n_used, 0);
        pimattn_engine_destroy(e);
    }
    kv_free(&kv);
    kv_free(&bad);
}

/* Appends since the last readings cost what each of them would. */
static void what_appends_cost_adds_up(void)
{
    pimattn_shape s = shape_of(1, 1, 1, 16, 0);
    pimattn_config c = config_of(&s);
    check_rng rng = {7};
    attn_kv kv = kv_random(&s, 32, &rng);
    float q[16] = {1}, out[16];
    pimattn_readings r[3];
    pimattn_seq one, both;
    c.way = PIMATTN_DEVICE;
    c.partition = PIMATTN_HFP;
    pimattn_engine *e = engine_new(&c);
    CHECK_U(pimattn_seq_create(e, &one), PIMATTN_OK);
    CHECK_U(pimattn_seq_create(e, &both), PIMATTN_OK);
    for (uint64_t i = 0; i < 2; i++) {
        CHECK_U(kv_append(e, one, 0, &kv, 16 * i, 16), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e, one, 0, out, q, &r[i]), PIMATTN_OK);
    }
    for (uint64_t i = 0; i < 2; i++)
        CHECK_U(kv_append(e, both, 0, &kv, 16 * i, 16), PIMATTN_OK);
    CHECK_U(pimattn_attend_one(e, both, 0, out, q, &r[2]), PIMATTN_OK);
    CHECK_U(r[2].append_ck, r[0].append_ck + r[1].append_ck);
    CHECK_U(r[2].append_commands, r[0].append_commands + r[1].append_commands);
    CHECK_NEAR(r[2].append_pJ, r[0].append_pJ + r[1].append_pJ, 1e-6 * r[2].append_pJ);
    CHECK(r[0].append_ck > 0 && r[1].append_ck > 0);
    CHECK_U(r[2].chunks_used, pimattn_pages_used(e)); /* beside what they take */
    CHECK_U(r[2].chunks_total, pimattn_pages_total(e));
    CHECK_U(r[2].memory_bytes, pimhw_memory_bytes(pimattn_engine_memory(e)));
    pimattn_engine_destroy(e);
    kv_free(&kv);
}

/* Zeros go behind what is left of a column of V; where columns end there is nothing to write. */
static void a_cut_between_columns_writes_nothing(void)
{
    pimattn_shape s = shape_of(1, 1, 1, 16, 0);
    pimattn_config c = config_of(&s);
    check_rng rng = {6};
    attn_kv kv = kv_random(&s, 48, &rng);
    float q[16] = {1}, out[16];
    pimattn_readings r;
    pimattn_seq seq;
    c.way = PIMATTN_DEVICE;
    pimattn_engine *e = engine_new(&c);
    CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
    CHECK_U(kv_append(e, seq, 0, &kv, 0, 48), PIMATTN_OK);
    for (uint64_t left = 48; left > 0; left = left == 48 ? 32 : left == 32 ? 5 : 0) {
        CHECK_U(pimattn_seq_truncate(e, seq, left), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e, seq, 0, out, q, &r), PIMATTN_OK);
        CHECK_U(r.append_commands > 0, left != 32);
    }
    pimattn_engine_destroy(e);
    kv_free(&kv);
}

/* Sequences go where there is room, also where many layers have one token, and what is too much is
 * refused before host memory is taken for it. */
static void a_device_is_filled_to_the_last_chunk(void)
{
    enum { CHANNELS = 16, CHUNKS = 8 };
    static const float row[16] = {1};
    for (uint32_t n_layers = 1; n_layers <= 8; n_layers *= 8) {
        pimattn_shape s = shape_of(n_layers, 1, 1, 16, 0);
        pimattn_config c = config_of(&s);
        pimattn_cache_info info;
        pimattn_seq seq, last = 0;
        c.way = PIMATTN_DEVICE;
        c.partition = PIMATTN_HFP;
        c.max_seqs = CHANNELS * CHUNKS;
        pimhw_config_init(&c.device, "aimx", NULL);
        c.device.n_channels = CHANNELS;
        c.device.n_rows = CHUNKS * 32; /* of a chunk */
        pimattn_engine *e = engine_new(&c);
        CHECK_U(pimattn_pages_total(e), CHANNELS * CHUNKS);
        for (uint32_t n = 0; n < CHANNELS * CHUNKS; n += 2 * n_layers) {
            CHECK_U(pimattn_cache_query(e, &info), PIMATTN_OK);
            CHECK_U(info.pages_used, n);
            CHECK_U(info.pages_free, CHANNELS * CHUNKS - n);
            CHECK_U(info.memory_bytes, pimhw_memory_bytes(e->module->memory));
            CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
            if (n == 0) { /* far too much: none of it is taken */
                CHECK_U(pimattn_seq_reserve(e, seq, (uint64_t)1 << 31), PIMATTN_ERR_PAGES);
                CHECK_U(pimhw_memory_bytes(e->module->memory), info.memory_bytes);
            }
            CHECK_U(pimattn_append(e, seq, 0, row, row, 1, 0, 0), PIMATTN_OK);
            last = seq;
        }
        CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
        CHECK_U(pimattn_append(e, seq, 0, row, row, 1, 0, 0), PIMATTN_ERR_PAGES);
        CHECK_HAS(pimattn_engine_cause(e), "128 of the device's 128");
        CHECK_U(pimattn_seq_free(e, last), PIMATTN_OK); /* what it had on its channels is free */
        CHECK_U(pimattn_append(e, seq, 0, row, row, 1, 0, 0), PIMATTN_OK);
        pimattn_engine_destroy(e);
    }
    /* of units with no token of a layer, that with fewer chunks of all layers is the emptiest */
    {
        pimattn_shape s = shape_of(2, 1, 1, 16, 0);
        pimattn_config c = config_of(&s);
        uint64_t bytes[CHANNELS * 16];
        pimattn_seq seq;
        c.way = PIMATTN_DEVICE;
        c.partition = PIMATTN_HFP;
        pimattn_engine *e = engine_new(&c);
        CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
        for (uint32_t layer = 0; layer < 2; layer++) {
            CHECK_U(pimattn_append(e, seq, layer, row, row, 1, 0, 0), PIMATTN_OK);
            CHECK_U(pimattn_seq_banks(e, seq, layer, bytes, COUNT(bytes)), PIMATTN_OK);
            CHECK(bytes[layer * 16] > 0 && bytes[(1 - layer) * 16] == 0);
        }
        pimattn_engine_destroy(e);
    }
    /* a unit whose chunks are reserved is not the emptiest */
    pimattn_shape s = shape_of(1, 1, 1, 16, 0);
    pimattn_config c = config_of(&s);
    pimattn_seq all, seq;
    c.way = PIMATTN_DEVICE;
    c.partition = PIMATTN_HFP;
    pimhw_config_init(&c.device, "aimx", NULL);
    c.device.n_rows = CHUNKS * 32;
    pimattn_engine *e = engine_new(&c);
    CHECK_U(pimattn_seq_create(e, &all), PIMATTN_OK);
    uint64_t n = 1;
    while (pimattn_seq_reserve(e, all, 2 * n) == PIMATTN_OK)
        n *= 2;
    for (uint64_t more = n / 2; more; more /= 2)
        if (pimattn_seq_reserve(e, all, n + more) == PIMATTN_OK) n += more;
    for (uint32_t i = 0; i < 2 * c.device.n_channels; i++) {
        CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
        CHECK_U(pimattn_append(e, seq, 0, row, row, 1, 0, 0), PIMATTN_OK);
    }
    pimattn_engine_destroy(e);
}

/* Units multiply hidden tokens by 0: NaN of V comes through and NaN of K does not. The host reads
 * neither. */
static void what_is_hidden_is_multiplied_in_banks(void)
{
    pimattn_shape s = shape_of(1, 1, 1, 16, 0);
    check_rng rng = {3};
    attn_kv kv = kv_random(&s, 20, &rng);
    float q[16] = {1}, out[16];
    kv.k[0] = kv.v[3] = NAN;
    kv.v[5] = INFINITY;
    s.window = 4;
    for (uint32_t way = PIMATTN_HOST; way <= PIMATTN_DEVICE; way++) {
        pimattn_config c = config_of(&s);
        pimattn_seq seq = 0;
        c.way = way;
        pimattn_engine *e = engine_new(&c);
        CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
        CHECK_U(kv_append(e, seq, 0, &kv, 0, 20), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e, seq, 0, out, q, NULL), PIMATTN_OK);
        for (uint32_t j = 0; j < 16; j++)
            CHECK_U(isfinite(out[j]) == 0, way == PIMATTN_DEVICE && (j == 3 || j == 5));
        pimattn_engine_destroy(e);
    }
    kv_free(&kv);
}

/* Lanes behind the last dim of a head are zeros, whatever the next head has: NaN of K or of q. */
static void lanes_behind_a_head_are_zeros(void)
{
    enum { HALF = 20 };
    pimattn_shape s = shape_of(1, 2, 2, HALF, 0);
    check_rng rng = {4};
    attn_kv kv = kv_random(&s, 5, &rng);
    float q[2 * HALF], out[2 * HALF];
    for (int of_q = 0; of_q < 2; of_q++) {
        pimattn_config c = config_of(&s);
        pimattn_seq seq = 0;
        c.way = PIMATTN_DEVICE;
        pimattn_engine *e = engine_new(&c);
        fill_normal(q, COUNT(q), 1, &rng);
        *(of_q ? &q[HALF] : &kv.k[2 * kv.k_row + HALF]) = NAN;
        CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
        CHECK_U(kv_append(e, seq, 0, &kv, 0, 5), PIMATTN_OK);
        CHECK_U(pimattn_attend_one(e, seq, 0, out, q, NULL), PIMATTN_OK);
        for (uint32_t j = 0; j < COUNT(out); j++)
            CHECK_U(isnan(out[j]) != 0, j >= HALF);
        kv.k[2 * kv.k_row + HALF] = 1;
        pimattn_engine_destroy(e);
    }
    kv_free(&kv);
}

/* --------------------------------------------------------------------------
 * A state from one architecture to another
 * -------------------------------------------------------------------------- */

/* One state for each pair of types in turn: a sequence, a fork of it, one that lost its head. */
static int state_file(const char *path, bool save)
{
    FILE *f = fopen(path, save ? "wb" : "rb");
    if (!f) return 2;
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++) {
        engines_simd = PIMATTN_SIMD_NONE;
        rig r = rig_new(type, (type + 1) % PIMATTN_N_TYPE);
        pimattn_seq s[3] = {seq_of(&r, 19), 0, 0}, back[3];
        CHECK_U(pimattn_seq_fork(r.e, &s[1], s[0]), PIMATTN_OK);
        append(&r, r.e, s[1], 19, 9);
        CHECK_U(pimattn_seq_fork(r.e, &s[2], s[1]), PIMATTN_OK);
        CHECK_U(pimattn_seq_keep(r.e, s[2], 7, 28), PIMATTN_OK);
        uint64_t bytes = 0;
        size_t n = 0;
        CHECK_U(pimattn_save(r.e, s, 3, NULL, &bytes), PIMATTN_OK);
        pimattn_stream stream = in_memory(bytes);
        if (save) {
            CHECK_U(pimattn_save(r.e, s, 3, &stream, NULL), PIMATTN_OK);
            CHECK_U(fwrite(state, 1, bytes, f), bytes);
        } else if (CHECK_U(fread(state, 1, bytes, f), bytes)) {
            CHECK_U(pimattn_restore(r.e, back, 3, &n, &stream), PIMATTN_OK);
        }
        for (size_t i = 0; i < n; i++) {
            float want[HEADS * DIM];
            append(&r, r.e, s[i], 30, 5);
            append(&r, r.e, back[i], 30, 5);
            attend(&r, r.e, s[i], want);
            attend(&r, r.e, back[i], r.out);
            CHECK_BYTES(r.out, want, sizeof want);
        }
        CHECK_U(n, save ? 0 : 3);
        rig_end(&r);
    }
    fclose(f);
    return check_now.n_errors ? 1 : 0;
}

/* Layer 0 took a step that layer 1 refused. way: the device's banks, or pages of the host. */
static void a_step_is_taken_back(uint32_t way, uint64_t n)
{
    rig r = rig_new(PIMATTN_F16, PIMATTN_F16);
    r.config.way = way;
    pimattn_engine_destroy(r.e);
    r.e = engine_new(&r.config);
    float want[HEADS * DIM];
    uint64_t tokens = 0;
    pimattn_seq s = seq_of(&r, n);
    attend(&r, r.e, s, want);
    float *k = r.kv.k + n * r.kv.k_row + 5, kept = *k;
    CHECK_U(kv_append(r.e, s, 0, &r.kv, n, 3), PIMATTN_OK);
    *k = 1e6f;
    CHECK_U(kv_append(r.e, s, 1, &r.kv, n, 3), PIMATTN_ERR_RANGE);
    *k = kept;
    CHECK_U(pimattn_seq_truncate(r.e, s, n), PIMATTN_OK);
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        CHECK_U(pimattn_seq_tokens(r.e, s, layer, &tokens), PIMATTN_OK);
        CHECK_U(tokens, n);
    }
    attend(&r, r.e, s, r.out);
    CHECK_BYTES(r.out, want, sizeof want);
    append(&r, r.e, s, n, TOKENS - n);
    attend(&r, r.e, s, r.out);
    pimattn_seq whole = seq_of(&r, TOKENS);
    attend(&r, r.e, whole, want);
    CHECK_BYTES(r.out, want, sizeof want);
    rig_end(&r);
}

static void a_refused_step_is_taken_back(void)
{
    for (uint64_t n = 3; n < 20; n += 4) {
        a_step_is_taken_back(PIMATTN_HOST, n);
        a_step_is_taken_back(PIMATTN_DEVICE, n);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3) return state_file(argv[2], strcmp(argv[1], "save") == 0);
    RUN(slabs_are_asked_for_as_huge_pages);
    RUN(what_cannot_be_is_refused);
    RUN(what_is_swapped_out_can_only_come_back);
    RUN(no_damaged_state_is_restored);
    RUN(crafted_heads_do_no_harm);
    RUN(what_windows_hide_is_let_go);
    RUN(states_lack_what_windows_hide);
    RUN(states_fit_other_page_sizes);
    RUN(all_alive_fit_where_they_were);
    RUN(what_one_lacks_of_a_shared_page_is_saved);
    RUN(a_kept_range_is_all_that_is_seen);
    RUN(a_stream_needs_only_what_it_keeps);
    RUN(a_long_fork_copies_no_page);
    RUN(static_reservation_takes_all_at_once);
    RUN(a_known_prefix_takes_the_rest_at_once);
    RUN(static_pages_that_are_shared_need_a_copy_of_what_is_written);
    RUN(remembered_pages_can_be_written_again);
    RUN(asking_for_a_prefix_changes_nothing);
    RUN(remembered_pages_stay_where_there_is_a_page);
    RUN(remembered_pages_of_two_sequences_need_a_copy);
    RUN(the_accepted_lies_as_if_appended);
    RUN(what_is_accepted_needs_pages_where_it_moves);
    RUN(pages_take_no_more_than_the_pool);
    RUN(remembered_pages_find_a_new_parent);
    RUN(remembered_pages_follow_those_of_others);
    RUN(remembered_pages_are_kept_where_others_idle);
    RUN(remembered_pages_are_found_as_they_become_many);
    RUN(all_that_is_known_is_compacted);
    RUN(a_hit_is_compared_token_by_token);
    RUN(pages_say_what_becomes_of_them);
    RUN(pages_of_a_head_follow_one_another);
    RUN(who_is_told_of_pages_may_not_call);
    RUN(who_moves_a_state_may_not_call);
    RUN(who_runs_the_jobs_may_not_call);
    RUN(remembered_pages_outlive_a_refusal);
    RUN(reserved_chunks_outlive_a_cut);
    RUN(what_appends_cost_adds_up);
    RUN(a_cut_between_columns_writes_nothing);
    RUN(a_device_is_filled_to_the_last_chunk);
    RUN(bytes_of_banks_are_those_of_the_columns);
    RUN(the_device_truncates);
    RUN(what_is_hidden_is_multiplied_in_banks);
    RUN(lanes_behind_a_head_are_zeros);
    RUN(a_refused_step_is_taken_back);
    return check_end();
}
