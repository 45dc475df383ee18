/* The life of sequences against a model that stores each of them as its own array: random calls,
 * every one first with its n-th allocation failing for all n, outputs equal to the byte with those
 * of an engine that was given the model's tokens, pages counted after every call. And rows fetched
 * as they are on each kind of CPU: no bit changes, and no line is forgotten.
 *
 *     law_cache [CALLS [SEED]]
 */
#define _DEFAULT_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __x86_64__
#include <immintrin.h> /* has fetches of its own */
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ALLOWS
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ALLOWS
#endif
#ifdef ALLOWS
#include <sanitizer/asan_interface.h>
#endif

enum { FETCHED_LINES = 1 << 15, EVERY_TILE = 0xff, HOLES = 0x100 };

static const unsigned char *fetched_from; /* of these lines */
static bool fetched_line[FETCHED_LINES];

static void fetched(const void *at)
{
    size_t line = (size_t)((uintptr_t)at - (uintptr_t)fetched_from) / 64;
    if (fetched_from && line < FETCHED_LINES) fetched_line[line] = true;
}

#define FETCHED(at, ...)        fetched(at)
#define __builtin_prefetch(...) FETCHED(__VA_ARGS__, 0)
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"
#include "attn.h"

enum {
    SEQS = 7,
    MOST = 1400,
    SETS = 512,
    SET_TOKENS = 64,
    ROW = 64,
    QUERIES = 5,
    SLAB = 5,
    DRAFTS = 24
};

/* The pages of all layers and heads for the same tokens. */
typedef struct model_set {
    uint64_t n_seqs;  /* that hold it */
    uint64_t n_pages; /* it still has: of layers with windows those are let go that these hide */
    bool known;
    uint64_t serial, parent, salt, idle_since;
    uint32_t tokens[SET_TOKENS];
} model_set;

typedef struct model_seq {
    pimattn_seq id;            /* 0: free */
    uint64_t begin, n, hidden; /* queries before that last one are not asked any more */
    uint32_t tokens[MOST];
    size_t n_sets; /* those before begin are let go, but for those of the first tokens */
    size_t sets[MOST];
    unsigned char *swapped;
    uint64_t swapped_bytes;
} model_seq;

typedef struct saved_seq {
    uint64_t begin, n, hidden, has;
    size_t from; /* SEQS: nobody */
    uint32_t tokens[MOST];
} saved_seq;

typedef struct world {
    pimattn_config config;
    check_heap heap;
    pimattn_engine *e, *plain;
    uint32_t page, most, plain_page;
    uint64_t set_pages, total, used; /* pages; used: known ones too */
    uint64_t sinks;                  /* first tokens that stay */
    uint64_t windows[3], widest;     /* of layers; 0: none */
    uint64_t clock, serial;
    model_set sets[SETS];
    model_seq seqs[SEQS];
    unsigned char *saved;
    uint64_t saved_bytes;
    saved_seq saved_seqs[SEQS];
    size_t n_saved;
    uint64_t n_evicted, n_moved; /* pages, as told by the engine */
    uint64_t moved_bytes;        /* in all */
    pimattn_transfer swapped;    /* likewise */
    uint8_t *taken;              /* [total] */
    check_rng rng;
    uint64_t n_attended;
} world;

static uint64_t failures, hits, evictions, moves, accepted, dropped;
static world w;

static uint64_t some(uint64_t first, uint64_t last)
{
    return rng_range(&w.rng, first, last);
}

/* --------------------------------------------------------------------------
 * Values: of a token id at a position
 * -------------------------------------------------------------------------- */

static void rows_of(float *k, float *v, const model_seq *s, uint32_t layer, uint64_t first,
                    uint64_t n)
{
    size_t k_row = (size_t)w.config.shape.n_kv_heads * w.config.shape.head_dim;
    size_t v_row = (size_t)w.config.shape.n_kv_heads * shape_dv(&w.config.shape);
    for (uint64_t t = 0; t < n; t++) {
        check_rng rng = {((uint64_t)s->tokens[first + t] << 32 | layer << 16) + first + t};
        for (size_t i = 0; i < k_row + v_row; i++) {
            float x = (float)(int32_t)(rng_u64(&rng) >> 40) * 0x1p-22f - 2;
            *(i < k_row ? &k[t * k_row + i] : &v[t * v_row + i - k_row]) = x;
        }
    }
}

static float k_rows[MOST * ROW], v_rows[MOST * ROW];

/* --------------------------------------------------------------------------
 * The model's sets
 * -------------------------------------------------------------------------- */

static void evict_oldest(void)
{
    size_t oldest = SETS;
    for (size_t i = 0; i < SETS; i++) {
        const model_set *s = &w.sets[i];
        if (!s->known || s->n_seqs > 0) continue;
        if (oldest == SETS || s->idle_since < w.sets[oldest].idle_since) oldest = i;
    }
    if (!CHECK(oldest < SETS)) return;
    w.sets[oldest].known = false;
    w.used -= w.set_pages;
    evictions++;
}

static size_t set_new(uint64_t n_pages)
{
    for (size_t i = 0; i < SETS; i++)
        if (w.sets[i].n_seqs == 0 && !w.sets[i].known) {
            w.sets[i].n_seqs = 1;
            w.sets[i].n_pages = n_pages;
            w.used += n_pages;
            return i;
        }
    CHECK(SETS == 0); /* there are enough of them */
    return 0;
}

static void set_drop(size_t i)
{
    model_set *s = &w.sets[i];
    if (--s->n_seqs > 0) return;
    if (s->known)
        s->idle_since = ++w.clock;
    else
        w.used -= s->n_pages;
}

/* First token that a query of a layer sees if it stands at `at`. */
static uint64_t seen_from(uint32_t layer, uint64_t at)
{
    const uint64_t window = w.windows[layer];
    return window && at >= window ? at - window + 1 : 0;
}

/* Pages of a set that no query of a sequence sees any more; the first one stays. */
static uint64_t hidden_of(const model_seq *s, size_t set)
{
    uint64_t n = 0;
    for (uint64_t i = 1; i < w.set_pages && set * w.page >= w.sinks; i++)
        n += (set + 1) * w.page <= seen_from((uint32_t)(i / w.config.shape.n_kv_heads), s->hidden);
    return n;
}

/* Whether a sequence with tokens from begin on, and the first ones, has one of a set. */
static bool there(uint64_t begin, size_t set)
{
    return set * w.page < w.sinks || (set + 1) * w.page > begin;
}

static void seq_cut(model_seq *s, size_t begin, size_t end)
{
    while (end-- > begin)
        if (there(s->begin, end)) set_drop(s->sets[end]);
}

static uint64_t sinks_of(uint64_t begin)
{
    return begin ? w.sinks : 0;
}

/* Idle pages the model has to give up for n more. */
static bool model_room(uint64_t n)
{
    uint64_t idle = 0;
    for (size_t i = 0; i < SETS; i++)
        idle += w.sets[i].known && w.sets[i].n_seqs == 0 ? w.set_pages : 0;
    return n <= w.total - w.used + idle;
}

/* Makes tokens from .. to - 1 the sequence's own; false: no pages. */
static bool model_hold(model_seq *s, uint64_t from, uint64_t to, bool told)
{
    size_t need = (to + w.page - 1) / w.page;
    uint64_t fresh = 0, known = 0; /* by the store besides: it lets go where there is no page */
    for (size_t i = s->n_sets; i < need; i++)
        fresh += w.set_pages - hidden_of(s, i);
    for (size_t i = from / w.page; from < to && i < need && i < s->n_sets; i++) {
        const model_set *set = &w.sets[s->sets[i]];
        if (set->n_seqs + (set->known ? 1 : 0) > 1) fresh += w.set_pages;
        if (set->n_seqs == 1 && set->known) known += w.set_pages;
    }
    const bool lacks = !model_room(fresh);
    if (lacks && !model_room(fresh - known)) return false;
    for (size_t i = from / w.page; lacks && from < to && i < need && i < s->n_sets; i++)
        if (w.sets[s->sets[i]].n_seqs == 1) w.sets[s->sets[i]].known = false;
    if (lacks) fresh -= known;
    if (told) /* an allocation that failed may have made it give up more */
        for (uint64_t n = w.n_evicted; n >= w.set_pages; n -= w.set_pages)
            evict_oldest();
    while (w.total - w.used < fresh)
        evict_oldest();
    for (size_t i = from / w.page; from < to && i < need && i < s->n_sets; i++) {
        const model_set *set = &w.sets[s->sets[i]];
        if (set->n_seqs + (set->known ? 1 : 0) <= 1) continue;
        size_t old = s->sets[i];
        s->sets[i] = set_new(w.set_pages);
        set_drop(old);
    }
    for (; s->n_sets < need; s->n_sets++)
        s->sets[s->n_sets] = set_new(w.set_pages - hidden_of(s, s->n_sets));
    return true;
}

static void model_share(model_seq *s, const model_seq *from, size_t end)
{
    for (s->n_sets = 0; s->n_sets < end; s->n_sets++) {
        if (!there(s->begin, s->n_sets)) continue;
        s->sets[s->n_sets] = from->sets[s->n_sets];
        w.sets[s->sets[s->n_sets]].n_seqs++;
    }
}

/* Of tokens that come from a state, of which it has some: first ones, then those behind. */
static bool model_fill(model_seq *s, uint64_t has, bool told)
{
    const bool apart = has <= w.sinks && sinks_of(s->begin) > 0;
    const uint64_t from = has > s->begin ? has : s->begin;
    if (apart && !model_hold(s, has, w.sinks, told)) return false;
    while (!there(s->begin, s->n_sets))
        s->n_sets++;
    return model_hold(s, from, s->n, told && !apart);
}

static void model_end(model_seq *s)
{
    if (!s->swapped) seq_cut(s, 0, s->n_sets);
    free(s->swapped);
    s->swapped = NULL;
    s->id = 0;
}

static size_t find_known(uint64_t parent, uint64_t salt, const uint32_t *tokens)
{
    for (size_t i = 0; i < SETS; i++)
        if (w.sets[i].known && w.sets[i].parent == parent && w.sets[i].salt == salt &&
            memcmp(w.sets[i].tokens, tokens, w.page * sizeof *tokens) == 0)
            return i;
    return SETS;
}

/* --------------------------------------------------------------------------
 * Accounting
 * -------------------------------------------------------------------------- */

static void on_page(void *user, pimattn_page_event event, uint32_t page, uint32_t to)
{
    (void)user;
    if (!CHECK(page < w.total && to < w.total)) return;
    CHECK_U(w.taken[page], event != PIMATTN_PAGE_TAKEN);
    w.taken[page] = event == PIMATTN_PAGE_TAKEN;
    if (event == PIMATTN_PAGE_MOVED) {
        CHECK(to < page && !w.taken[to]);
        w.taken[to] = 1;
        w.n_moved++;
    }
    w.n_evicted += event == PIMATTN_PAGE_EVICTED;
}

static uint32_t refs[1 << 16], first_of[1 << 16];

/* A set is referred to, always by the same first page. */
static void refer(const uint32_t *pages)
{
    for (size_t p = 0; p < w.set_pages; p++) {
        if (pages[p] == PIMATTN_I_NO_PAGE) continue;
        if (refs[pages[p]]++ > 0) CHECK_U(first_of[pages[p]], pages[0]);
        first_of[pages[p]] = pages[0];
    }
}

/* Every set is referred to as often as the count of its first page says, and numbers agree with the
 * model. */
static void check_pages(void)
{
    uint64_t held = 0, alone_all = 0, pages = 0, distinct = 0, shared = 0, known = 0;
    pimattn_cache_info c;
    memset(refs, 0, w.total * sizeof *refs);
    for (size_t i = 0; i < SETS; i++) {
        held += w.sets[i].n_seqs > 0 ? w.sets[i].n_pages : 0;
        shared += w.sets[i].n_seqs > 1 ? w.sets[i].n_pages : 0;
        known += w.sets[i].known && w.sets[i].n_seqs == 0 ? w.set_pages : 0;
    }
    for (size_t i = 0; i < SEQS; i++) {
        const model_seq *s = &w.seqs[i];
        pimattn_seq_info info;
        if (!s->id) continue;
        if (!CHECK_U(pimattn_seq_query(w.e, s->id, &info), PIMATTN_OK)) continue;
        uint64_t alone = 0;
        pages = 0;
        for (size_t k = 0; !s->swapped && k < s->n_sets; k++) {
            if (!there(s->begin, k)) continue;
            const model_set *set = &w.sets[s->sets[k]];
            alone += set->n_seqs == 1 ? set->n_pages : 0;
            pages += set->n_pages;
        }
        CHECK_U(info.pages, pages);
        CHECK_U(info.pages - info.pages_shared, alone);
        CHECK_U(info.bytes, info.pages * pimattn_page_bytes(w.e));
        CHECK_U(info.n_tokens, s->n);
        CHECK_U(info.first_token, s->begin);
        CHECK_U(info.first_query, s->hidden);
        CHECK_U(info.swapped_out, s->swapped != NULL);
        alone_all += info.pages - info.pages_shared;
        const pimattn_i_seq *its = pimattn_i_seq_find(w.e, s->id);
        for (size_t k = 0; !s->swapped && k < s->n_sets; k++)
            if (there(s->begin, k)) refer(&its->table[k * w.set_pages]);
    }
    for (uint32_t i = 1; i <= w.e->pool.store.n_most; i++) {
        pimattn_i_entry *entry = pimattn_i_entry_at(&w.e->pool.store, i);
        if (entry->serial) refer(pimattn_i_entry_pages(entry));
    }
    for (uint64_t p = 0; p < w.total; p++) {
        distinct += refs[p] > 0;
        uint32_t first = first_of[p], counts = refs[p] > 0 ? first == p ? refs[p] : 1 : 0;
        if (refs[p] > 0 && refs[p] != refs[first]) CHECK_U(refs[p], refs[first]);
        if (w.taken[p] != (refs[p] > 0) ||
            counts != (p < w.e->pool.n_fresh ? w.e->pool.refs[p].count : 0))
            CHECK_U(counts, p < w.e->pool.n_fresh ? w.e->pool.refs[p].count : 0);
    }
    CHECK_U(pimattn_cache_query(w.e, &c), PIMATTN_OK);
    CHECK_U(c.pages_used, held);
    CHECK_U(c.pages_used, pimattn_pages_used(w.e));
    CHECK_U(c.pages_shared, shared);
    CHECK_U(alone_all + c.pages_shared, c.pages_used);
    CHECK_U(c.pages_known, known);
    CHECK_U(c.pages_used + c.pages_free, w.total);
    CHECK_U(distinct, c.pages_used + c.pages_known);
    CHECK_U(w.used, distinct);
}

/* --------------------------------------------------------------------------
 * Calls
 * -------------------------------------------------------------------------- */

/* What must not change when a call fails: sequences, their pages and what is in them. */
static uint64_t digest(void)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < w.config.max_seqs; i++) {
        const pimattn_i_seq *s = &w.e->seqs[i];
        if (!s->id) continue;
        h = pimattn_i_mix(pimattn_i_mix(pimattn_i_mix(h, s->id), s->begin), s->swapped);
        h = pimattn_i_mix(pimattn_i_mix(h, s->hidden), 1);
        h = pimattn_i_mix(pimattn_i_mix(h, s->n_pages), s->tokens[w.config.shape.n_layers - 1]);
        for (uint64_t k = 0; k < s->n_pages * w.set_pages; k++)
            if (there(s->begin, k / w.set_pages)) h = pimattn_i_mix(h, s->table[k]);
    }
    return pimattn_i_mix(h, pimattn_pages_used(w.e));
}

/*
 * Calls again and again, with the first, second, .. allocation failing, until that does not matter
 * any more. gives_up: it may have given up known pages when it fails.
 */
static pimattn_status insist(pimattn_status (*call)(void *), void *arg, bool gives_up)
{
    uint64_t before = digest(), known = w.e->pool.store.n;
    for (uint64_t n = 1;; n++) {
        w.n_evicted = w.n_moved = 0;
        w.heap.fail_at = w.heap.n_calls + n;
        pimattn_status status = call(arg);
        bool reached = w.heap.n_calls >= w.heap.fail_at;
        w.heap.fail_at = 0;
        if (status != PIMATTN_OK) {
            CHECK(pimattn_engine_cause(w.e)[0] != 0);
            if (!CHECK_U(digest(), before)) printf("  %s\n", pimattn_engine_cause(w.e));
            if (!gives_up) CHECK_U(w.e->pool.store.n, known);
        }
        if (status != PIMATTN_ERR_MEMORY) return status;
        failures++;
        CHECK(reached && n < 100);
        for (; gives_up && w.n_evicted >= w.set_pages; w.n_evicted -= w.set_pages)
            evict_oldest();
    }
}

static model_seq *alive(void)
{
    size_t at = some(0, SEQS - 1);
    for (size_t i = 0; i < SEQS; i++, at = (at + 1) % SEQS)
        if (w.seqs[at].id) return &w.seqs[at];
    return NULL;
}

static model_seq *vacant(void)
{
    for (size_t i = 0; i < SEQS; i++)
        if (!w.seqs[i].id) return &w.seqs[i];
    return NULL;
}

typedef struct args {
    pimattn_seq seq, made;
    uint64_t first, n, salt;
    const uint32_t *tokens;
    const float *k, *v;
    const uint32_t *kept;
    uint32_t layer;
    unsigned char *memory;
    uint64_t bytes;
    pimattn_seq many[SEQS];
    size_t n_many;
    pimattn_transfer transfer;
} args;

static pimattn_status call_create(void *user)
{
    return pimattn_seq_create(w.e, &((args *)user)->made);
}

static void do_create(void)
{
    args a = {0};
    model_seq *s = vacant();
    pimattn_status status = insist(call_create, &a, false);
    CHECK_U(status, s ? PIMATTN_OK : PIMATTN_ERR_SEQ);
    if (!s || status) return;
    memset(s, 0, sizeof *s);
    s->id = a.made;
}

static pimattn_status call_append(void *user)
{
    args *a = (args *)user;
    return pimattn_append(w.e, a->seq, a->layer, a->k, a->v, a->n, 0, 0);
}

/* Ids of a few texts that begin alike, so that prefixes are found; after some tokens all differ. */
static uint32_t next_token(const model_seq *s, uint64_t at)
{
    static uint32_t fresh;
    if (at < 3 * w.page && s->n == 0) return (uint32_t)(at * 7 + (at >= w.page ? s->id % 2 : 0));
    return at % 5 ? (uint32_t)(at * 3 + s->id % 3) : ++fresh;
}

static void do_append(void)
{
    model_seq *s = alive();
    if (!s) return;
    uint64_t most = s->swapped ? 1 : w.most - s->n, n = some(0, w.most > 200 ? 300 : 12);
    args a = {.seq = s->id, .n = n < most ? n : most, .k = k_rows, .v = v_rows};
    if (s->n + a.n > MOST) a.n = 0;
    for (uint64_t t = s->n; t < s->n + a.n; t++)
        s->tokens[t] = next_token(s, t);
    rows_of(k_rows, v_rows, s, 0, s->n, a.n);
    pimattn_status status = insist(call_append, &a, false);
    if (s->swapped) {
        CHECK_U(status, PIMATTN_ERR_SEQ);
        return;
    }
    bool held = a.n == 0 || model_hold(s, s->n, s->n + a.n, true);
    CHECK_U(status, held ? PIMATTN_OK : PIMATTN_ERR_PAGES);
    if (status || !held || a.n == 0) return;
    pimattn_seq child;
    if (w.config.shape.n_layers > 1) /* half a step is under way */
        CHECK_U(pimattn_seq_fork(w.e, &child, s->id), PIMATTN_ERR_ARGUMENT);
    for (a.layer = 1; a.layer < w.config.shape.n_layers; a.layer++) {
        rows_of(k_rows, v_rows, s, a.layer, s->n, a.n);
        CHECK_U(insist(call_append, &a, false), PIMATTN_OK);
    }
    s->n += a.n;
}

static pimattn_status call_fork(void *user)
{
    args *a = (args *)user;
    return pimattn_seq_fork(w.e, &a->made, a->seq);
}

static model_seq *fork_of(model_seq *s)
{
    model_seq *to = vacant();
    args a = {.seq = s->id};
    uint64_t used = w.e->pool.n_used;
    pimattn_status status = insist(call_fork, &a, false);
    CHECK_U(status, s->swapped || !to ? PIMATTN_ERR_SEQ : PIMATTN_OK);
    CHECK_U(w.e->pool.n_used, used);
    if (status) return NULL;
    *to = *s;
    to->id = a.made;
    model_share(to, s, (s->n + w.page - 1) / w.page);
    return to;
}

static void do_fork(void)
{
    model_seq *s = alive();
    if (s) (void)fork_of(s);
}

static void model_keep(model_seq *s, uint64_t first, uint64_t end)
{
    if (first <= w.sinks) first = 0;
    size_t last = (end + w.page - 1) / w.page, next = first / w.page;
    if (last > s->n_sets) last = s->n_sets;
    seq_cut(s, last, s->n_sets);
    for (size_t i = last; i-- > 0;)
        if (there(s->begin, i) && !there(first, i)) set_drop(s->sets[i]);
    s->n_sets = last > next ? last : next;
    s->begin = first;
    s->n = end;
}

static pimattn_status call_keep(void *user)
{
    args *a = (args *)user;
    return pimattn_seq_keep(w.e, a->seq, a->first, a->n);
}

static pimattn_status call_truncate(void *user)
{
    args *a = (args *)user;
    return pimattn_seq_truncate(w.e, a->seq, a->n);
}

static void keep_or_truncate(bool truncate)
{
    model_seq *s = alive();
    if (!s) return;
    bool wild = some(0, 9) == 0;
    const uint64_t least = s->begin > s->hidden ? s->begin : s->hidden;
    args a = {.seq = s->id, .n = some(wild ? 0 : least, s->n + (wild ? 3 : 0))};
    a.first = truncate ? s->begin : some(wild ? 0 : s->begin, a.n + (wild ? 2 : 0));
    bool good = s->begin <= a.first && a.first <= a.n && s->hidden <= a.n && a.n <= s->n;
    pimattn_status status = insist(truncate ? call_truncate : call_keep, &a, false);
    CHECK_U(status, s->swapped ? PIMATTN_ERR_SEQ : good ? PIMATTN_OK : PIMATTN_ERR_ARGUMENT);
    if (!status) model_keep(s, a.first, a.n);
}

static void do_keep(void)
{
    keep_or_truncate(false);
}

static void do_truncate(void)
{
    keep_or_truncate(true);
}

static pimattn_status call_hide(void *user)
{
    args *a = (args *)user;
    return pimattn_seq_drop_hidden(w.e, a->seq, a->first);
}

static void do_hide(void)
{
    model_seq *s = alive();
    if (!s) return;
    args a = {.seq = s->id, .first = some(s->n - s->n / 8, s->n + (some(0, 9) == 0))};
    pimattn_status status = insist(call_hide, &a, false);
    CHECK_U(status, s->swapped        ? PIMATTN_ERR_SEQ
                    : a.first <= s->n ? PIMATTN_OK
                                      : PIMATTN_ERR_ARGUMENT);
    if (status || w.widest == 0 || a.first <= s->hidden) return;
    size_t k = s->hidden >= w.widest ? (size_t)((s->hidden - w.widest + 1) / w.page) : 0;
    s->hidden = a.first;
    for (; k * w.page < a.first; k++) {
        model_set *set = &w.sets[s->sets[k]];
        if (!there(s->begin, k) || set->n_seqs > 1 || set->known) continue;
        const uint64_t left = w.set_pages - hidden_of(s, k);
        dropped += set->n_pages - left;
        w.used -= set->n_pages - left;
        set->n_pages = left;
    }
}

static pimattn_status call_remember(void *user)
{
    args *a = (args *)user;
    return pimattn_prefix_remember(w.e, a->seq, a->tokens, a->n, a->salt);
}

static void remember(model_seq *s, uint64_t n, uint64_t salt)
{
    args a = {.seq = s->id, .n = n, .salt = salt, .tokens = s->tokens};
    pimattn_status status = insist(call_remember, &a, false);
    bool good = a.n <= s->n && s->begin == 0 && s->hidden == 0;
    CHECK_U(status, s->swapped ? PIMATTN_ERR_SEQ : good ? PIMATTN_OK : PIMATTN_ERR_ARGUMENT);
    if (status) return;
    uint64_t parent = 0;
    for (size_t i = 0; i < a.n / w.page; i++) {
        size_t at = find_known(parent, a.salt, s->tokens + i * w.page);
        model_set *set = &w.sets[at < SETS ? at : s->sets[i]];
        if (at == SETS && set->known && set->salt != a.salt) break; /* its tokens never change */
        set->parent = parent; /* another than before if that was given up */
        if (at == SETS && !set->known) {
            set->known = true;
            set->salt = a.salt;
            set->serial = ++w.serial;
            memcpy(set->tokens, s->tokens + i * w.page, w.page * sizeof *set->tokens);
        }
        parent = set->serial;
    }
}

static void do_remember(void)
{
    model_seq *s = alive();
    if (s) remember(s, some(0, s->n + (some(0, 9) == 0)), some(0, 4) / 4);
}

static pimattn_status call_accept(void *user)
{
    args *a = (args *)user;
    return pimattn_seq_accept(w.e, a->seq, a->first, a->kept, (size_t)a->n);
}

/* Branch `which` of the drafts from `first` on; for want of pages none. */
static void accept(model_seq *s, uint64_t first, const uint32_t *branch_of, const uint32_t *tokens,
                   uint32_t which)
{
    uint32_t kept[DRAFTS + 1], n = 0, same = 0;
    args a = {.seq = s->id, .first = first, .kept = kept};
    for (uint32_t i = 0; i < s->n - first; i++)
        if (branch_of[i] == which) kept[n++] = i;
    for (; same < n && kept[same] == same;)
        same++;
    bool wild = some(0, 9) == 0;
    if (wild) { /* one too many, or twice the same, or a token too far */
        kept[n] = some(0, 1) && n ? kept[n - 1] : (uint32_t)(s->n - first);
        a.n = n + 1;
        CHECK_U(insist(call_accept, &a, false), PIMATTN_ERR_ARGUMENT);
        a.first = some(0, 1) && s->begin ? s->begin - 1 : s->n + 1;
        a.n = 0;
        CHECK_U(insist(call_accept, &a, false), PIMATTN_ERR_ARGUMENT);
        a.first = first;
    }
    a.n = n;
    pimattn_status status = insist(call_accept, &a, false);
    bool held = model_hold(s, first + same, first + n, true);
    CHECK_U(status, held ? PIMATTN_OK : PIMATTN_ERR_PAGES);
    if (!held) CHECK_U(pimattn_seq_truncate(w.e, s->id, first), PIMATTN_OK);
    model_keep(s, s->begin, first + (held ? n : 0));
    for (uint32_t i = 0; held && i < n; i++)
        s->tokens[first + i] = tokens[kept[i]];
    accepted += held && same < n;
}

/* Drafts of two branches, mingled, and of neither; K and V of each are made for the position that
 * it has in its branch. One is accepted, and the other by a sequence that shares the drafts. */
static void do_accept(void)
{
    static model_seq draft; /* a token at the position it is made for */
    const pimattn_shape *shape = &w.config.shape;
    const size_t k_row = (size_t)shape->n_kv_heads * shape->head_dim;
    const size_t v_row = (size_t)shape->n_kv_heads * shape_dv(shape);
    model_seq *s = alive(), *fork;
    uint64_t n_of[3] = {0}, at[DRAFTS];
    uint32_t branch_of[DRAFTS], tokens[DRAFTS];
    if (!s) return;
    const uint64_t first = s->n;
    args a = {.seq = s->id, .first = first, .n = some(1, DRAFTS), .k = k_rows, .v = v_rows};
    if (s->swapped) CHECK_U(pimattn_seq_accept(w.e, s->id, 0, NULL, 0), PIMATTN_ERR_SEQ);
    if (s->swapped || first + a.n > w.most) return;
    for (uint32_t i = 0; i < a.n; i++) {
        branch_of[i] = (uint32_t)some(0, 2);
        at[i] = first + n_of[branch_of[i]]++;
        tokens[i] = next_token(s, at[i]) ^ branch_of[i] << 20;
        s->tokens[first + i] = tokens[i];
    }
    for (a.layer = 0; a.layer < shape->n_layers; a.layer++) {
        for (uint32_t i = 0; i < a.n; i++) {
            draft.tokens[at[i]] = tokens[i];
            rows_of(k_rows + i * k_row, v_rows + i * v_row, &draft, a.layer, at[i], 1);
        }
        pimattn_status status = insist(call_append, &a, false);
        bool held = a.layer > 0 || model_hold(s, first, first + a.n, true);
        CHECK_U(status, held ? PIMATTN_OK : PIMATTN_ERR_PAGES);
        if (!held) return;
    }
    s->n += a.n;
    if (some(0, 3) == 0) remember(s, s->n, DRAFTS); /* under a salt that nobody asks for */
    fork = some(0, 1) ? fork_of(s) : NULL;
    check_pages();
    accept(s, first, branch_of, tokens, 0);
    check_pages();
    if (fork) accept(fork, first, branch_of, tokens, 1);
}

static void do_free(void)
{
    model_seq *s = alive();
    if (!s) return;
    pimattn_seq child;
    CHECK_U(pimattn_seq_free(w.e, s->id), PIMATTN_OK);
    CHECK_U(pimattn_seq_free(w.e, s->id), PIMATTN_ERR_SEQ);
    CHECK_U(pimattn_seq_fork(w.e, &child, s->id), PIMATTN_ERR_SEQ);
    model_end(s);
}

static pimattn_status call_start(void *user)
{
    args *a = (args *)user;
    a->first = 0;
    return pimattn_prefix_start(w.e, &a->made, a->tokens, a->n, a->salt, &a->first);
}

static void do_start(void)
{
    static uint32_t tokens[MOST];
    const model_seq *like = alive();
    model_seq *s = vacant();
    uint64_t n = like ? like->n : 3 * w.page;
    for (uint64_t t = 0; t < n; t++) /* another's, up to somewhere; or those of a sequence gone */
        tokens[t] = like ? like->tokens[t] : (uint32_t)(t * 7);
    if (n && some(0, 3) == 0) tokens[some(0, n - 1)] ^= 1u << some(0, 31);
    args a = {.tokens = tokens, .n = n, .salt = some(0, 4) / 4};
    uint64_t found = UINT64_MAX, before = digest();
    CHECK_U(pimattn_prefix_start(w.e, NULL, tokens, n, a.salt, &found), PIMATTN_OK);
    CHECK_U(digest(), before);
    pimattn_status status = insist(call_start, &a, false);
    CHECK_U(status, s ? PIMATTN_OK : PIMATTN_ERR_SEQ);
    if (status) return;
    memset(s, 0, sizeof *s);
    s->id = a.made;
    uint64_t parent = 0;
    for (; s->n + w.page <= n; s->n += w.page) {
        size_t at = find_known(parent, a.salt, tokens + s->n);
        if (at == SETS) break;
        parent = w.sets[at].serial;
        w.sets[at].n_seqs++;
        s->sets[s->n_sets++] = at;
    }
    memcpy(s->tokens, tokens, s->n * sizeof *tokens);
    CHECK_U(a.first, s->n);
    CHECK_U(found, s->n);
    hits += s->n > 0;
}

static pimattn_status call_out(void *user)
{
    args *a = (args *)user;
    return pimattn_seq_swap_out(w.e, a->seq, a->memory, a->bytes, &a->transfer);
}

static pimattn_status call_in(void *user)
{
    args *a = (args *)user;
    return pimattn_seq_swap_in(w.e, a->seq, a->memory, a->bytes, &a->transfer);
}

/* Bytes of all rows of a sequence but those that windows hide behind its first tokens. */
static uint64_t row_bytes(const model_seq *of)
{
    const pimattn_shape *s = &w.config.shape;
    const uint64_t from = of->begin > w.sinks ? of->begin : w.sinks;
    uint64_t tokens = s->n_layers * (of->n - of->begin + sinks_of(of->begin));
    for (uint32_t i = 0; i < s->n_layers; i++) {
        const uint64_t seen = seen_from(i, of->hidden);
        tokens -= seen > from ? seen - from : 0;
    }
    uint64_t scales = 4 * ((s->k_type == PIMATTN_INT8 ? 1u : 0u) + (s->v_type == PIMATTN_INT8));
    uint64_t k = (uint64_t)s->head_dim * pimattn_i_type_bytes(s->k_type);
    uint64_t v = (uint64_t)shape_dv(s) * pimattn_i_type_bytes(s->v_type);
    return tokens * s->n_kv_heads * (k + v + scales);
}

static void do_swap(void)
{
    model_seq *s = alive();
    if (!s) return;
    args a = {.seq = s->id, .memory = s->swapped, .bytes = s->swapped_bytes};
    pimattn_status status;
    if (s->swapped) {
        CHECK_U(pimattn_save(w.e, &s->id, 1, NULL, &a.bytes), PIMATTN_ERR_SEQ);
        status = insist(call_in, &a, true);
        s->n_sets = 0;
        bool held = model_fill(s, 0, true);
        CHECK_U(status, held ? PIMATTN_OK : PIMATTN_ERR_PAGES);
        if (!held) seq_cut(s, 0, s->n_sets);
        if (status) return;
        free(s->swapped);
        s->swapped = NULL;
    } else {
        CHECK_U(pimattn_save(w.e, &s->id, 1, NULL, &a.bytes), PIMATTN_OK);
        a.memory = (unsigned char *)check_alloc(a.bytes, 1);
        a.bytes--;
        CHECK_U(call_out(&a), PIMATTN_ERR_ARGUMENT);
        a.bytes++;
        if (!CHECK_U(insist(call_out, &a, false), PIMATTN_OK)) return;
        seq_cut(s, 0, s->n_sets);
        s->swapped = a.memory;
        s->swapped_bytes = a.bytes;
    }
    CHECK_U(a.transfer.bytes, row_bytes(s));
    CHECK_NEAR(a.transfer.ns, (double)a.transfer.bytes / 64.0, 1e-6); /* aimx: 64 GB/s */
    double link_fJ = (double)pimattn_engine_config(w.e)->device.eLINK_fJ;
    CHECK_NEAR(a.transfer.pJ, (double)((a.transfer.bytes + 31) / 32) * link_fJ * 1e-3, 1e-6);
    pimattn_cache_info c;
    CHECK_U(pimattn_cache_query(w.e, &c), PIMATTN_OK);
    w.swapped.bytes += a.transfer.bytes;
    w.swapped.ck += (a.transfer.bytes + 31) / 32; /* of .5 ns */
    CHECK_U(c.swapped.ck, w.swapped.ck);
    w.swapped.ns += a.transfer.ns;
    w.swapped.pJ += a.transfer.pJ;
    CHECK_U(c.swapped.bytes, w.swapped.bytes);
    CHECK_NEAR(c.swapped.ns, w.swapped.ns, 0);
    CHECK_NEAR(c.swapped.pJ, w.swapped.pJ, 0);
}

static void do_compact(void)
{
    uint64_t moved = UINT64_MAX;
    pimattn_cache_info c;
    w.n_moved = 0;
    CHECK_U(pimattn_cache_compact(w.e, &moved), PIMATTN_OK);
    CHECK_U(moved, w.n_moved * pimattn_page_bytes(w.e));
    CHECK_U(pimattn_cache_query(w.e, &c), PIMATTN_OK);
    uint64_t slabs = (w.used + SLAB - 1) / SLAB;
    CHECK_U(w.e->pool.n_slabs, slabs);
    CHECK(c.memory_bytes <= slabs * SLAB * pimattn_page_bytes(w.e));
    w.moved_bytes += moved;
    CHECK_U(c.moved_bytes, w.moved_bytes);
    moves += w.n_moved;
}

static pimattn_status call_save(void *user)
{
    args *a = (args *)user;
    pimattn_stream stream = {.memory = a->memory, .bytes = a->bytes};
    return pimattn_save(w.e, a->n_many ? a->many : NULL, a->n_many, &stream, NULL);
}

/* Tokens that s shares with an earlier one of the same state. */
static uint64_t shared_tokens(const model_seq *s, const model_seq *with)
{
    const bool sinks = with->begin > s->begin;
    size_t i = 0;
    if (with->hidden > s->hidden) return 0; /* it may lack more */
    while (i < s->n_sets && i < with->n_sets && (!sinks || i * w.page < w.sinks) &&
           (!there(s->begin, i) || s->sets[i] == with->sets[i]))
        i++;
    uint64_t n = i * w.page;
    n = n < s->n ? n : s->n;
    n = n < with->n ? n : with->n;
    return (sinks || n <= s->begin) && n > w.sinks ? w.sinks : n;
}

static void do_save(void)
{
    args a = {0};
    const model_seq *list[SEQS];
    bool all = some(0, 1), swapped = false;
    for (uint64_t slot = 0; slot < w.config.max_seqs; slot++) /* all: in the order of the slots */
        for (size_t i = 0; i < SEQS; i++) {
            if (!w.seqs[i].id || (w.seqs[i].id & 0xffff) != slot) continue;
            if (!all && some(0, 1)) continue;
            list[a.n_many] = &w.seqs[i];
            a.many[a.n_many++] = w.seqs[i].id;
            swapped = swapped || w.seqs[i].swapped;
        }
    if (a.n_many == 0) return;
    size_t n = a.n_many;
    for (size_t i = 1; all && i < n; i++) /* who begins first, or is longer, comes first */
        for (size_t k = i; k > 0; k--) {
            const model_seq *x = list[k - 1], *y = list[k];
            if (x->begin < y->begin || (x->begin == y->begin && x->n >= y->n)) break;
            list[k - 1] = y;
            list[k] = x;
        }
    if (all) a.n_many = 0;
    pimattn_status status = pimattn_save(w.e, all ? NULL : a.many, a.n_many, NULL, &a.bytes);
    CHECK_U(status, swapped ? PIMATTN_ERR_SEQ : PIMATTN_OK);
    if (status) return;
    a.memory = (unsigned char *)check_alloc(a.bytes, 1);
    CHECK_U(insist(call_save, &a, false), PIMATTN_OK);
    free(w.saved);
    w.saved = a.memory;
    w.saved_bytes = a.bytes;
    w.n_saved = n;
    for (size_t i = 0; i < n; i++) {
        saved_seq *to = &w.saved_seqs[i];
        to->begin = list[i]->begin;
        to->hidden = list[i]->hidden;
        to->n = list[i]->n;
        to->has = 0;
        to->from = SEQS;
        memcpy(to->tokens, list[i]->tokens, sizeof to->tokens);
        for (size_t k = 0; k < n; k++) {
            uint64_t shares = k < i ? shared_tokens(list[i], list[k]) : 0;
            if (shares <= to->has) continue;
            to->has = shares;
            to->from = k;
        }
    }
}

static pimattn_status call_restore(void *user)
{
    args *a = (args *)user;
    pimattn_stream stream = {.memory = w.saved, .bytes = w.saved_bytes};
    return pimattn_restore(w.e, a->many, SEQS, &a->n_many, &stream);
}

static void do_restore(void)
{
    args a = {0};
    if (!w.saved) return;
    size_t made[SEQS], n = 0, free_slots = 0;
    for (size_t i = 0; i < SEQS; i++)
        free_slots += !w.seqs[i].id;
    pimattn_status status = insist(call_restore, &a, true), want = PIMATTN_OK;
    for (; w.n_evicted >= w.set_pages; w.n_evicted -= w.set_pages) /* for one sequence or another */
        evict_oldest();
    for (; n < w.n_saved && want == PIMATTN_OK; n++) {
        const saved_seq *from = &w.saved_seqs[n];
        model_seq *s = vacant();
        if (!s) {
            want = PIMATTN_ERR_SEQ;
            break;
        }
        memset(s, 0, sizeof *s);
        made[n] = (size_t)(s - w.seqs);
        s->id = UINT64_MAX;
        s->begin = from->begin;
        s->hidden = from->hidden;
        s->n = from->n;
        memcpy(s->tokens, from->tokens, sizeof s->tokens);
        if (from->has > 0)
            model_share(s, &w.seqs[made[from->from]], (from->has + w.page - 1) / w.page);
        if (!model_fill(s, from->has, false)) want = PIMATTN_ERR_PAGES;
    }
    CHECK_U(status, want);
    if (w.n_saved > free_slots) CHECK(status != PIMATTN_OK);
    for (size_t i = 0; i < n; i++)
        if (want)
            model_end(&w.seqs[made[i]]);
        else
            w.seqs[made[i]].id = a.many[i];
    if (!want) CHECK_U(a.n_many, w.n_saved);
}

/* The outputs of a batch, beside those of an engine that only ever appended. */
static void do_attend(void)
{
    static float q[SEQS * QUERIES * ROW], out[SEQS * QUERIES * ROW], want[QUERIES * ROW];
    const pimattn_shape *shape = &w.config.shape;
    pimattn_item items[3], one;
    const model_seq *its[3];
    pimattn_call call = {.out = out, .q = q, .items = items};
    uint32_t layer = (uint32_t)some(0, shape->n_layers - 1);
    size_t q_row = (size_t)shape->n_heads * shape->head_dim, row = 0;
    size_t out_row = (size_t)shape->n_heads * shape_dv(shape);
    for (uint64_t i = some(1, w.most > 200 ? 1 : 3); i > 0; i--) {
        const model_seq *s = alive();
        const uint64_t gone = !s ? 0 : s->begin > s->hidden ? s->begin : s->hidden;
        if (!s || s->swapped || s->n == gone) continue;
        uint64_t most = s->n - gone < QUERIES ? s->n - gone : QUERIES;
        its[call.n_items] = s;
        items[call.n_items].seq = s->id;
        items[call.n_items++].n_tokens = some(1, most);
    }
    if (call.n_items == 0) return;
    fill_normal(q, sizeof q / sizeof *q, 1, &w.rng);
    if (!CHECK_U(pimattn_attend(w.e, layer, &call, NULL), PIMATTN_OK)) return;
    if (w.n_attended++ % 40 == 0) {
        pimattn_config c = w.config;
        c.page_tokens = w.plain_page;
        c.pool_bytes = 64u << 20;
        memset(&c.allocator, 0, sizeof c.allocator);
        c.on_page = NULL;
        pimattn_engine_destroy(w.plain);
        w.plain = engine_new(&c);
    }
    for (size_t i = 0; i < call.n_items; i++) {
        const model_seq *s = its[i];
        one.n_tokens = items[i].n_tokens;
        CHECK_U(pimattn_seq_create(w.plain, &one.seq), PIMATTN_OK);
        for (uint32_t l = 0; l < shape->n_layers; l++) {
            rows_of(k_rows, v_rows, s, l, 0, s->n);
            CHECK_U(pimattn_append(w.plain, one.seq, l, k_rows, v_rows, s->n, 0, 0), PIMATTN_OK);
        }
        if (s->begin) CHECK_U(pimattn_seq_keep(w.plain, one.seq, s->begin, s->n), PIMATTN_OK);
        pimattn_call plain = {.out = want, .q = q + row * q_row, .items = &one, .n_items = 1};
        CHECK_U(pimattn_attend(w.plain, layer, &plain, NULL), PIMATTN_OK);
        CHECK_BYTES(out + row * out_row, want, one.n_tokens * out_row * sizeof *out);
        CHECK_U(pimattn_seq_free(w.plain, one.seq), PIMATTN_OK);
        row += one.n_tokens;
    }
}

/* --------------------------------------------------------------------------
 * Worlds
 * -------------------------------------------------------------------------- */

/* Slabs of a few pages, so that there is something to compact. Before any page is taken. */
static void small_slabs(pimattn_i_pool *pool)
{
    const pimhw_allocator *a = &pool->allocator;
    pimattn_i_release(a, pool->slabs, pool->n_slabs_most * sizeof *pool->slabs);
    pool->slab_pages = SLAB;
    pool->n_slabs_most = (pool->n_pages_most + SLAB - 1) / SLAB;
    pool->slabs =
        (unsigned char **)pimattn_i_alloc(a, pool->n_slabs_most * sizeof *pool->slabs, 64);
}

static void world_begin(uint64_t number, uint64_t seed)
{
    static const struct {
        uint32_t layers, heads, kv_heads, dim, dim_v, k_type, v_type, page, plain_page, most;
        uint64_t pages;
    } worlds[] = {
        {2, 4, 2, 4, 0, PIMATTN_F32, PIMATTN_F32, 4, 7, 60, 173},
        {1, 2, 1, 16, 0, PIMATTN_F16, PIMATTN_INT8, 16, 48, 100, 23},
        {3, 2, 2, 5, 3, PIMATTN_INT8, PIMATTN_BF16, 7, 1, 70, 190},
        {1, 2, 1, 16, 16, PIMATTN_BF16, PIMATTN_F16, 64, 128, MOST, 60},
        {2, 2, 1, 16, 0, PIMATTN_INT8, PIMATTN_INT8, 32, 16, 120, 30},
        {1, 2, 1, 1, 17, PIMATTN_BF16, PIMATTN_F16, 16, 7, 120, 60},
    };
    const size_t n_worlds = sizeof worlds / sizeof *worlds, i = number % n_worlds;
    memset(&w, 0, sizeof w);
    w.rng.state = seed * 1000003 + number;
    pimattn_shape s = shape_of(worlds[i].layers, worlds[i].heads, worlds[i].kv_heads, worlds[i].dim,
                               worlds[i].dim_v);
    s.k_type = worlds[i].k_type;
    s.v_type = worlds[i].v_type;
    s.sink_tokens = w.sinks = number / n_worlds % 2 ? some(1, worlds[i].most / 2) : 0;
    for (uint32_t k = 0; k < s.n_layers && number / n_worlds / 2 % 2; k++) {
        w.windows[k] = some(0, 2) ? some(1, worlds[i].most / 8) : 0;
        w.widest = w.windows[k] > w.widest ? w.windows[k] : w.widest;
        s.windows = w.windows;
    }
    w.config = config_of(&s);
    w.config.page_tokens = w.page = worlds[i].page;
    w.config.max_seqs = SEQS;
    w.config.memo_entries = 1;
    w.config.scratch_bytes = 1u << 18;
    w.most = worlds[i].most;
    w.plain_page = worlds[i].plain_page;
    w.set_pages = (uint64_t)s.n_layers * s.n_kv_heads;
    w.total = worlds[i].pages;
    pimattn_i_layout lay;
    s.head_dim_v = shape_dv(&s);
    pimattn_i_lay_out(&lay, &s, w.page);
    w.config.pool_bytes = w.total * lay.page_bytes;
    w.total -= w.total % w.set_pages; /* the others would help nobody */
    w.config.allocator = heap_allocator(&w.heap);
    w.config.on_page = on_page;
    w.taken = (uint8_t *)check_alloc(w.total, 1);
    w.e = engine_new(&w.config);
    CHECK_U(pimattn_pages_total(w.e), w.total);
    small_slabs(&w.e->pool);
}

static void world_end(void)
{
    while (alive())
        do_free();
    check_pages();
    CHECK_U(pimattn_pages_used(w.e), 0);
    pimattn_engine_destroy(w.e);
    for (uint32_t page = 0; page < w.total; page++)
        CHECK(!w.taken[page]);
    pimattn_engine_destroy(w.plain);
    CHECK_U(w.heap.n_live, 0);
    CHECK_U(w.heap.n_wrong, 0);
    free(w.saved);
    free(w.taken);
}

static uint64_t n_calls = 24000, seed = 1;

static void lives_are_those_of_the_model(void)
{
    enum { CALLS = 500 };
    for (uint64_t i = 0; i < n_calls && check_now.n_errors == 0; i++) {
        if (i % CALLS == 0) world_begin(i / CALLS, seed);
        /* how often each of them comes, of 34 */
        static void (*const calls[])(void) = {
            do_create, do_fork,    do_accept,   do_truncate, do_keep,   do_free,   do_free,
            do_free,   do_accept,  do_remember, do_start,    do_start,  do_start,  do_swap,
            do_swap,   do_compact, do_save,     do_restore,  do_append, do_append, do_append,
            do_append, do_append,  do_append,   do_append,   do_attend, do_attend, do_attend,
            do_attend, do_attend,  do_remember, do_start,    do_hide,   do_hide};
        uint64_t kind = some(0, 33);
        calls[kind]();
        check_pages();
        if (check_now.n_errors)
            printf("call %llu of kind %llu in world %llu\n", (unsigned long long)i,
                   (unsigned long long)kind, (unsigned long long)(i / CALLS));
        if (i % CALLS == CALLS - 1 || i + 1 == n_calls) world_end();
    }
    if (n_calls < 24000) return;
    CHECK(failures > 1000 && hits > 100 && evictions > 100 && moves > 100 && accepted > 100);
    CHECK(dropped > 100);
    printf("%llu calls: %llu failed allocations, %llu hits, %llu evictions, %llu pages moved,"
           " %llu branches accepted, %llu hidden pages dropped\n",
           (unsigned long long)n_calls, (unsigned long long)failures, (unsigned long long)hits,
           (unsigned long long)evictions, (unsigned long long)moves, (unsigned long long)accepted,
           (unsigned long long)dropped);
}

/* Rows as they lie, of every type and for every block of queries; short pages and long ones. For
 * each kind of CPU memory is fetched otherwise, and rows, also wide ones, in another order. */
static void rows_fetched_otherwise(uint32_t type, uint32_t group, uint32_t dim)
{
    enum { TOKENS = 600 };
    static float q[16 * 256], out[PIMATTN_I_DEEP + 1][16 * 256];
    check_rng rng = {5};
    pimattn_shape s = shape_of(1, 2 * group, 2, dim, type == PIMATTN_F16 || dim == 240 ? 64 : 0);
    s.k_type = s.v_type = type;
    attn_kv kv = kv_random(&s, TOKENS, &rng);
    fill_normal(q, 16 * 256, 1, &rng);
    for (uint32_t page_tokens = 16; page_tokens <= 4096; page_tokens *= 16)
        for (uint32_t ahead = 0; ahead <= PIMATTN_I_DEEP; ahead++) {
            pimattn_config c = config_of(&s);
            pimattn_seq seq = 0;
            c.page_tokens = page_tokens;
            pimattn_engine *e = engine_new(&c);
            if (!e) return;
            e->ahead = (pimattn_i_ahead)ahead;
            CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
            CHECK_U(kv_append(e, seq, 0, &kv, 0, TOKENS), PIMATTN_OK);
            CHECK_U(pimattn_attend_one(e, seq, 0, out[ahead], q, NULL), PIMATTN_OK);
            pimattn_engine_destroy(e);
            if (!CHECK_BYTES(out[ahead], out[0], 2 * group * shape_dv(&s) * sizeof(float)))
                printf("type %u, group %u, dim %u, pages of %u, ahead %u\n", type, group, dim,
                       page_tokens, ahead);
        }
    kv_free(&kv);
}

static void fetched_otherwise(void)
{
    static const uint32_t dims[] = {128, 144, 192, 240, 256};
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++)
        for (uint32_t group = 1; group <= 8; group *= 2)
            for (uint32_t i = 0; i < (group == 1 ? 5 : 1); i++)
                rows_fetched_otherwise(type, group, dims[i]);
}

/* Numbers to a type; of int8 per_unit is the same for all. */
static void store_all(unsigned char *to, const unsigned char *from, uint32_t type, float per_unit,
                      uint32_t n)
{
    const pimattn_i_row row = {to, from, per_unit};
    pimattn_i_kernel_scalar.store(&row, 1, type, n);
}

/* Rows of a head that lie apart: heads take turns, and fetch for one another. */
static void pages_fetched_otherwise(uint32_t type)
{
    enum { TOKENS = 1088, PAGE = 64, DIM = 128, KV_HEADS = 4, N = TOKENS * KV_HEADS * DIM };
    static float q[8 * KV_HEADS * DIM], out[2][8 * KV_HEADS * DIM], rows[2][N];
    unsigned char *k = (unsigned char *)rows[0], *v = (unsigned char *)rows[1];
    uint32_t table[TOKENS / PAGE], length = TOKENS;
    check_rng rng = {6};
    for (uint32_t i = 0; i < TOKENS / PAGE; i++)
        table[i] = i;
    for (uint32_t group = 1; group <= 8; group *= 2) {
        pimattn_shape s = shape_of(1, KV_HEADS * group, KV_HEADS, DIM, group == 2 ? 64 : 0);
        s.k_type = s.v_type = type;
        attn_kv kv = kv_random(&s, TOKENS, &rng);
        pimattn_item item = {0, 1};
        pimattn_call call = {.q = q, .items = &item, .n_items = 1};
        pimattn_pages pages = {.k = {.at = k},
                               .v = {.at = v},
                               .n_pages = TOKENS / PAGE,
                               .page_tokens = PAGE,
                               .order = PIMATTN_NHD,
                               .table = table,
                               .lengths = &length,
                               .table_stride = TOKENS / PAGE};
        store_all(k, (const unsigned char *)kv.k, type, 0, N);
        store_all(v, (const unsigned char *)kv.v, type, 0, TOKENS * KV_HEADS * shape_dv(&s));
        fill_normal(q, 8 * KV_HEADS * DIM, 1, &rng);
        for (uint32_t ahead = 0; ahead <= PIMATTN_I_DEEP; ahead++) {
            pimattn_config c = config_of(&s);
            pimattn_seq seq = 0;
            pimattn_engine *e = engine_new(&c);
            if (!e) return;
            e->ahead = (pimattn_i_ahead)ahead;
            call.out = out[1];
            CHECK_U(pimattn_attend_pages(e, 0, &pages, &call, NULL), PIMATTN_OK);
            if (ahead == 0) {
                CHECK_U(pimattn_seq_create(e, &seq), PIMATTN_OK);
                CHECK_U(kv_append(e, seq, 0, &kv, 0, TOKENS), PIMATTN_OK);
                CHECK_U(pimattn_attend_one(e, seq, 0, out[0], q, NULL), PIMATTN_OK);
            }
            pimattn_engine_destroy(e);
            if (!CHECK_BYTES(out[1], out[0], KV_HEADS * group * shape_dv(&s) * sizeof(float)))
                printf("type %u, group %u, ahead %u\n", type, group, ahead);
        }
        kv_free(&kv);
    }
}

/* Two query blocks of each head, of which a gang has two heads: what they read ahead ends with the
 * memory, which is all there is of it (sanitizers see what goes beyond). */
static void gangs_read_what_is_there(void)
{
    enum { TOKENS = 32, DIM = 64, KV_HEADS = 4, N = TOKENS * KV_HEADS * DIM };
    static float q[N], out[2][N];
    uint32_t page = 0, length = TOKENS;
    check_rng rng = {11};
    fill_normal(q, N, 1, &rng);
    for (uint32_t type = 0; type < PIMATTN_INT8; type++) {
        pimattn_shape s = shape_of(1, KV_HEADS, KV_HEADS, DIM, 0);
        s.k_type = s.v_type = type;
        attn_kv kv = kv_random(&s, TOKENS, &rng);
        const size_t bytes = (size_t)N * pimattn_i_type_bytes(type);
        pimattn_item item = {0, TOKENS};
        pimattn_call call = {.q = q, .items = &item, .n_items = 1};
        unsigned char *k = (unsigned char *)malloc(bytes), *v = (unsigned char *)malloc(bytes);
        pimattn_pages pages = {.k = {.at = k},
                               .v = {.at = v},
                               .n_pages = 1,
                               .page_tokens = TOKENS,
                               .order = PIMATTN_NHD,
                               .table = &page,
                               .lengths = &length,
                               .table_stride = 1};
        if (!CHECK(k && v)) return;
        store_all(k, (const unsigned char *)kv.k, type, 0, N);
        store_all(v, (const unsigned char *)kv.v, type, 0, N);
        for (uint32_t ahead = 0; ahead <= PIMATTN_I_DEEP; ahead++) {
            pimattn_config c = config_of(&s);
            pimattn_engine *e = engine_new(&c);
            if (!e) return;
            e->ahead = (pimattn_i_ahead)ahead;
            call.out = out[ahead > 0];
            CHECK_U(pimattn_attend_pages(e, 0, &pages, &call, NULL), PIMATTN_OK);
            CHECK_BYTES(out[ahead > 0], out[0], sizeof out[0]);
            pimattn_engine_destroy(e);
        }
        free(k), free(v), kv_free(&kv);
    }
}

#ifdef MAP_ANONYMOUS
enum { GUARD = 1 << 16 }; /* no less than a page of any system */

/* Rows of K or V of two heads, each of which ends where nothing is; together: of each token side by
 * side. */
static void rows_at_guards(pimattn_rows *rows, bool together, uint32_t tokens, uint32_t page_tokens,
                           unsigned char **map)
{
    enum { ROW_BYTES = 128 };
    const size_t used = (size_t)tokens * 2 * ROW_BYTES - (together ? 0 : ROW_BYTES);
    *map = (unsigned char *)mmap(NULL, 4 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(*map != MAP_FAILED && used <= GUARD)) return;
    for (int i = 0; i < 4; i += 2)
        CHECK(mprotect(*map + i * GUARD, GUARD, PROT_READ | PROT_WRITE) == 0);
    rows->at = *map + GUARD - used;
    rows->token = 2 * ROW_BYTES;
    rows->page = page_tokens * rows->token;
    rows->head = together ? (size_t)ROW_BYTES : (size_t)2 * GUARD;
}

/* Masked: no query sees the last token, and it is not there. Of eight queries a head, the most that
 * kernels take at once, near and deep CPUs read ahead of tiles. */
static void guarded_case(uint32_t page_tokens, bool k_together, bool v_together, bool masked)
{
    enum { DIM = 64, TOKENS = 16, GROUP = 8, MOST_NEW = 2 };
    static float q[MOST_NEW * 2 * GROUP * DIM], out[MOST_NEW * 2 * GROUP * DIM];
    const uint32_t n_new = masked ? MOST_NEW : 1, held = TOKENS - masked;
    uint32_t list[TOKENS], length = TOKENS;
    uint64_t bits[MOST_NEW] = {1, 1};
    unsigned char *map[2];
    for (uint32_t i = 0; i < TOKENS; i++)
        list[i] = i;
    for (uint32_t ahead = 0; ahead <= PIMATTN_I_DEEP; ahead++) {
        pimattn_shape s = shape_of(1, 2 * GROUP, 2, DIM, 0);
        s.k_type = s.v_type = PIMATTN_BF16;
        pimattn_config c = config_of(&s);
        pimattn_mask mask = {.bits = bits, .n_tokens = MOST_NEW};
        pimattn_item item = {0, n_new};
        pimattn_call call = {.out = out, .q = q, .items = &item, .n_items = 1};
        pimattn_pages pages = {.n_pages = TOKENS / page_tokens,
                               .page_tokens = page_tokens,
                               .table = list,
                               .lengths = &length,
                               .table_stride = TOKENS};
        if (masked) call.masks = &mask;
        rows_at_guards(&pages.k, k_together, held, page_tokens, &map[0]);
        rows_at_guards(&pages.v, v_together, held, page_tokens, &map[1]);
        pimattn_engine *e = engine_new(&c);
        if (!e) return;
        e->ahead = (pimattn_i_ahead)ahead;
        CHECK_U(pimattn_attend_pages(e, 0, &pages, &call, NULL), PIMATTN_OK);
        CHECK(out[0] == 0.0f); /* all rows are zeros */
        pimattn_engine_destroy(e);
        for (int i = 0; i < 2; i++)
            CHECK(munmap(map[i], 4 * GUARD) == 0);
    }
}

static void guarded_cases(void)
{
    for (uint32_t page_tokens = 1; page_tokens <= 16; page_tokens *= 2) {
        guarded_case(page_tokens, false, false, false);
        guarded_case(page_tokens, true, false, false);
        guarded_case(page_tokens, false, true, false);
        guarded_case(page_tokens, true, true, false);
        guarded_case(page_tokens, true, true, true);
    }
}
#endif

/* Whatever is read ahead: rows that are held, of tokens that some query sees. */
static void what_no_query_sees_is_not_read(void)
{
#ifdef MAP_ANONYMOUS
    over_kernels(guarded_cases);
#else
    skip("no mmap");
#endif
}

/* Queries as SIMD kernels take them. */
static uint32_t kernel_queries(uint32_t group)
{
    return group % 4 == 3 ? group + 1 : group;
}

/* Bits of chosen tiles; with holes, not all of their tokens. */
static bool chosen(uint32_t tiles, size_t token)
{
    return (tiles >> token / PIMATTN_I_TILE & 1) && (!(tiles & HOLES) || token % 5 > 1);
}

/* All lines of K, V and, if rows are not copied, their scales but those of the first two tiles, of
 * int8 by turns of two three; of chosen tiles, whatever lies between, and of small pages, which lie
 * in reverse. Of a head's rows that follow each other a deep CPU has some left to it where memory
 * sets its pace. */
static void all_is_fetched(uint32_t type, uint32_t dim, uint32_t kv_heads, uint32_t group,
                           uint32_t ahead, uint32_t order, uint32_t page_tokens, uint32_t tiles)
{
    enum { TOKENS = 128 };
    static float q[128 * 128], out[128 * 128];
    static unsigned char memory[64 * FETCHED_LINES + 64];
    unsigned char *rows = memory + 64 - (uintptr_t)memory % 64;
    uint32_t list[TOKENS], n_pages = TOKENS / page_tokens, length = TOKENS;
    uint32_t bytes = dim * pimattn_i_type_bytes(type), missed = 0;
    size_t half = (size_t)TOKENS * kv_heads * bytes, scales = (size_t)TOKENS * kv_heads * 4;
    const bool copied = tiles & HOLES;
    size_t end = 2 * half + (type == PIMATTN_INT8 && !copied ? 2 * scales : 0);
    pimattn_shape s = shape_of(1, kv_heads * group, kv_heads, dim, 0);
    s.k_type = s.v_type = type;
    pimattn_config c = config_of(&s);
    pimattn_item item = {0, 1};
    uint64_t bits[TOKENS / 64] = {0};
    for (uint32_t t = 0; t < TOKENS; t++)
        bits[t / 64] |= (uint64_t)chosen(tiles, t) << t % 64;
    pimattn_choice choice = {bits, TOKENS, 0, 1};
    pimattn_call call = {.out = out, .q = q, .items = &item, .n_items = 1};
    if (tiles != EVERY_TILE) call.choices = &choice;
    pimattn_pages pages = {.k = {.at = rows},
                           .v = {.at = rows + half},
                           .n_pages = n_pages,
                           .page_tokens = page_tokens,
                           .order = order,
                           .table = list,
                           .lengths = &length,
                           .table_stride = n_pages};
    if (type == PIMATTN_INT8)
        pages.k_scale.at = rows + 2 * half, pages.v_scale.at = rows + 2 * half + scales;
    pimattn_engine *e = engine_new(&c);
    if (!e) return;
    e->ahead = (pimattn_i_ahead)ahead;
    const uint32_t late = ahead < PIMATTN_I_NEAR ? UINT32_MAX : ahead > PIMATTN_I_NEAR ? 4 : 8;
    const uint32_t n = e->kernel->most_queries;
    const bool turns = order == PIMATTN_NHD && kernel_queries(group) >= late && n >= late;
    const size_t n_first = type == PIMATTN_INT8 && turns ? 3 : 2;
    for (uint32_t i = 0; i < n_pages; i++)
        list[i] = n_pages - 1 - i;
    memset(fetched_line, 0, sizeof fetched_line);
    CHECK(end <= 64 * FETCHED_LINES);
    fetched_from = rows;
    CHECK_U(pimattn_attend_pages(e, 0, &pages, &call, NULL), PIMATTN_OK);
    fetched_from = NULL;
    for (size_t at = 0; at < end && e->kernel->soft; at += 64) {
        size_t row = at < 2 * half ? at % half / bytes : (at - 2 * half) % scales / 4;
        size_t place = order == PIMATTN_NHD ? row / kv_heads % page_tokens : row % page_tokens;
        size_t token = list[row / (kv_heads * page_tokens)] * page_tokens + place;
        missed +=
            token >= n_first * PIMATTN_I_TILE && chosen(tiles, token) && !fetched_line[at / 64];
    }
    pimattn_engine_destroy(e);
    if (!CHECK_U(missed, 0))
        printf("type %u, dim %u, %u KV heads, group %u, ahead %u, order %u, pages %u, tiles %x\n",
               type, dim, kv_heads, group, ahead, order, page_tokens, tiles);
}

static void no_line_is_forgotten(void)
{
    static const uint32_t kv_heads[] = {2, 3, 16}, dims[] = {64, 72, 128};
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++)
        for (uint32_t group = 1; group <= 8; group++)
            for (uint32_t i = 0; i < 3; i++)
                for (uint32_t ahead = 0; ahead <= PIMATTN_I_DEEP; ahead++)
                    for (uint32_t order = 0; order <= PIMATTN_HND; order++) {
                        const bool late = kernel_queries(group) >= 4 && type != PIMATTN_F32;
                        if (order == PIMATTN_HND && ahead == PIMATTN_I_DEEP && !late) continue;
                        /* of pages of 1 and 4 tokens rows are gathered, on any CPU alike */
                        for (uint32_t k = 0; k < (ahead ? 6 : 12); k++)
                            all_is_fetched(type, dims[k % 3], kv_heads[i], group, ahead, order,
                                           k < 6 ? 32u << (group + k) % 2 * 2 : 4u >> k % 2 * 2,
                                           k % 6 < 3            ? EVERY_TILE
                                           : k % 3 == group % 3 ? 0xa7 | HOLES
                                                                : 0xa7);
                    }
}

/* Rows that lie apart and are no power of two of bytes, or longer than a piece. */
static void no_line_of_odd_rows_is_forgotten(void)
{
    static const uint32_t dims[] = {48, 80, 96, 112, 144, 192, 256};
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++)
        for (uint32_t group = 1; group <= 8; group++)
            for (uint32_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
                for (uint32_t ahead = 0; ahead <= PIMATTN_I_DEEP; ahead++)
                    for (uint32_t kv_heads = 2; kv_heads <= 3; kv_heads++)
                        all_is_fetched(type, dims[i], kv_heads, group, ahead, PIMATTN_NHD, 128,
                                       EVERY_TILE);
}

static void fetching_forgets_no_line(void)
{
#ifndef __OPTIMIZE__
    skip("without optimisation not all is fetched");
    return;
#endif
    over_kernels(no_line_is_forgotten);
    over_kernels(no_line_of_odd_rows_is_forgotten);
}

static void third_first(void *user, size_t n, void (*fn)(void *arg, size_t index, size_t worker),
                        void *arg)
{
    (void)user;
    for (size_t from = 3; from-- > 0;)
        for (size_t i = from; i < n; i += 3)
            fn(arg, i, from);
}

/* The same rows in both orders, of more leaves than a gang has at once: heads by turns and heads
 * alone give the same bytes, whatever is hidden. */
static void gangs_are_heads_alone(uint64_t from)
{
    enum {
        LONGEST = 6000,
        DIM = 64,
        HEADS = 4,
        NEW = 40,
        MOST_GROUP = 8,
        WORDS = (LONGEST + 63) / 64
    };
    enum { N_OUT = NEW * HEADS * MOST_GROUP * (DIM + 1) };
    check_rng rng = {from};
    const uint64_t in_a_row = rng_range(&rng, 0, 1) * 30, longest_page = in_a_row ? 20 : 300;
    const uint32_t page_tokens = (uint32_t)rng_range(&rng, 1, longest_page),
                   group = (uint32_t)rng_range(&rng, 1, MOST_GROUP);
    const uint32_t kv_heads = (uint32_t)rng_range(&rng, 2, HEADS),
                   types[2] = {(uint32_t)rng_range(&rng, 0, 3), (uint32_t)rng_range(&rng, 0, 3)};
    const uint32_t longest[3] = {60, 700, LONGEST};
    uint32_t length = (uint32_t)rng_range(&rng, 1, longest[rng_range(&rng, 0, 2)]);
    const uint32_t n_pages = (length + page_tokens - 1) / page_tokens;
    const size_t n_rows = (size_t)n_pages * page_tokens * kv_heads;
    pimattn_item item = {0, rng_range(&rng, 0, 2) ? 1 : rng_range(&rng, 1, NEW)};
    if (item.n_tokens > length) item.n_tokens = length;
    pimattn_shape s = shape_of(1, kv_heads * group, kv_heads, DIM, 0);
    s.k_type = types[0], s.v_type = types[1];
    if (rng_range(&rng, 0, 2) == 0) s.window = rng_range(&rng, 1, 1500);
    if (rng_range(&rng, 0, 2) == 0) s.sink_tokens = (uint32_t)rng_range(&rng, 1, 700);
    uint32_t *table = (uint32_t *)check_alloc(n_pages, sizeof *table);
    float *q = (float *)check_alloc((size_t)NEW * kv_heads * group * DIM, sizeof *q);
    float *out[2] = {(float *)check_alloc(N_OUT, 4), (float *)check_alloc(N_OUT, 4)};
    uint64_t *bits = (uint64_t *)check_alloc(HEADS * WORDS, sizeof *bits);
    pimattn_choice choice = {bits, rng_range(&rng, 0, length), WORDS,
                             (uint32_t)(rng_range(&rng, 0, 1) ? 1 : kv_heads)};
    const bool chooses = rng_range(&rng, 0, 2) == 0;
    for (size_t i = 0; i < HEADS * WORDS; i++)
        bits[i] = rng_u64(&rng) & (rng_range(&rng, 0, 2) ? rng_u64(&rng) : 0);
    for (uint32_t i = 0; i < n_pages; i++) { /* some in a row, or most */
        const uint32_t j = rng_range(&rng, 0, in_a_row) ? i : (uint32_t)rng_range(&rng, 0, i);
        table[i] = table[j];
        table[j] = i;
    }
    fill_normal(q, (size_t)NEW * kv_heads * group * DIM, 1, &rng);
    unsigned char *rows[2][4];
    float one[DIM];
    for (int k = 0; k < 4; k++)
        for (int order = 0; order < 2; order++)
            rows[order][k] = (unsigned char *)check_alloc(
                n_rows, k < 2 ? DIM * pimattn_i_type_bytes(types[k]) : 4);
    for (size_t page = 0; page < n_pages; page++)
        for (size_t at = 0; at < page_tokens; at++)
            for (size_t head = 0; head < kv_heads; head++)
                for (int k = 0; k < 4; k++) {
                    const size_t bytes = k < 2 ? DIM * pimattn_i_type_bytes(types[k]) : 4;
                    const size_t nhd = (page * page_tokens + at) * kv_heads + head;
                    const size_t hnd = (page * kv_heads + head) * page_tokens + at;
                    fill_normal(one, k < 2 ? DIM : 1, 1, &rng);
                    if (k < 2)
                        store_all(rows[0][k] + nhd * bytes, (unsigned char *)one, types[k], 20,
                                  DIM);
                    else
                        memcpy(rows[0][k] + nhd * 4, one, 4);
                    memcpy(rows[1][k] + hnd * bytes, rows[0][k] + nhd * bytes, bytes);
                }
    for (int order = 0; order < 2; order++) {
        pimattn_config c = config_of(&s);
        c.max_workers = rng_range(&rng, 0, 1) ? 3 : 1;
        c.parallel_for = c.max_workers > 1 ? third_first : NULL;
        pimattn_engine *e = engine_new(&c);
        if (!e) return;
        e->ahead = (pimattn_i_ahead)(rng_range(&rng, 0, 1) ? PIMATTN_I_DEEP
                                                           : rng_range(&rng, 0, PIMATTN_I_NEAR));
        pimattn_pages pages = {.k = {.at = rows[order][0]},
                               .v = {.at = rows[order][1]},
                               .n_pages = n_pages,
                               .page_tokens = page_tokens,
                               .order = order ? PIMATTN_HND : PIMATTN_NHD,
                               .table = table,
                               .lengths = &length,
                               .table_stride = n_pages};
        if (types[0] == PIMATTN_INT8) pages.k_scale.at = rows[order][2];
        if (types[1] == PIMATTN_INT8) pages.v_scale.at = rows[order][3];
        pimattn_call call = {.out = out[order],
                             .lse = out[order] + NEW * HEADS * MOST_GROUP * DIM,
                             .q = q,
                             .items = &item,
                             .n_items = 1,
                             .choices = chooses ? &choice : NULL};
        if (!CHECK_U(pimattn_attend_pages(e, 0, &pages, &call, NULL), PIMATTN_OK))
            printf("  %s\n", pimattn_engine_cause(e));
        pimattn_engine_destroy(e);
    }
    if (!CHECK_BYTES(out[0], out[1], N_OUT * sizeof(float)))
        printf("  seed %llu\n", (unsigned long long)from);
    for (int k = 0; k < 8; k++)
        free(rows[k / 4][k % 4]);
    free(table), free(q), free(out[0]), free(out[1]), free(bits);
}

static void many_gangs_are_heads_alone(void)
{
    for (uint64_t i = 0; i < 160; i++)
        gangs_are_heads_alone(seed + i);
}

/* With the address sanitizer: bytes that may, or may not, be touched. */
static void allow(const void *at, size_t bytes, bool allowed)
{
#ifdef ALLOWS
    if (allowed)
        __asan_unpoison_memory_region(at, bytes);
    else
        __asan_poison_memory_region(at, bytes);
#else
    (void)at, (void)bytes, (void)allowed;
#endif
}

/* Rows of dims that are no multiples of 16, in pages of the caller: where vectors may reach from a
 * row into the next, of a token or of a head, kernels read them as they lie. Beside rows that lie
 * apart, which are copied: the same bytes, though no row that a query does not see is a number, nor
 * is what lies between rows, nor any row of one of the heads. Only rows that are seen are read. */
static void odd_rows_are_their_copies(uint64_t from)
{
    enum { LONGEST = 120, DIM = 100, HEADS = 5, NEW = 3, GROUP = 4, WORDS = 2 };
    enum { N_OUT = NEW * HEADS * GROUP * (DIM + 1) };
    static const uint32_t odd[] = {1, 6, 7, 8, 9, 15, 17, 20, 32, 63, 72, 100};
    static const uint32_t sizes[] = {16, 17, 20, 32, 50, 128};
    static float q[NEW * HEADS * GROUP * DIM], out[2][N_OUT];
    check_rng rng = {from};
    const uint32_t kv_heads = (uint32_t)rng_range(&rng, 1, HEADS);
    const uint32_t group = (uint32_t)rng_range(&rng, 1, GROUP);
    const uint32_t dims[4] = {odd[rng_range(&rng, 0, 11)], odd[rng_range(&rng, 0, 11)], 1, 1};
    const uint32_t types[4] = {(uint32_t)rng_range(&rng, 0, 3), (uint32_t)rng_range(&rng, 0, 3)};
    const uint32_t page_tokens = sizes[rng_range(&rng, 0, 5)];
    const uint32_t bad = (uint32_t)rng_range(&rng, 0, HEADS);
    pimattn_item item = {0, (uint32_t)rng_range(&rng, 1, NEW)};
    uint32_t length = (uint32_t)rng_range(&rng, NEW, LONGEST);
    if (rng_range(&rng, 0, 1)) length = length / 16 * 16 + (uint32_t)item.n_tokens;
    const uint32_t n_pages = (length + page_tokens - 1) / page_tokens;
    pimattn_shape s = shape_of(1, kv_heads * group, kv_heads, dims[0], dims[1]);
    s.k_type = types[0], s.v_type = types[1];
    if (rng_range(&rng, 0, 2) == 0) s.window = rng_range(&rng, 1, length);
    if (rng_range(&rng, 0, 2) == 0) s.sink_tokens = 16 * (uint32_t)rng_range(&rng, 1, 3);
    uint64_t bits[WORDS] = {rng_u64(&rng), rng_u64(&rng)};
    for (int i = 0; i < 8; i++) /* most tiles whole */
        if (rng_range(&rng, 0, 3)) bits[i / 4] |= (uint64_t)0xffff << i % 4 * 16;
    const pimattn_choice choice = {bits, rng_range(&rng, 0, 2) ? 0 : length, WORDS, 1};
    uint32_t table[LONGEST];
    for (uint32_t i = 0; i < n_pages; i++) {
        const uint32_t j = (uint32_t)rng_range(&rng, 0, i);
        table[i] = table[j];
        table[j] = i;
    }
    fill_normal(q, NEW * kv_heads * group * dims[0], 1, &rng);
    pimattn_pages pages[2];
    pimattn_rows *rows[2][4];
    const bool by_heads = rng_range(&rng, 0, 1), last = table[n_pages - 1] == n_pages - 1;
    const bool ends = last && (kv_heads == 1 || by_heads); /* memory, with the tokens */
    const size_t n_rows = kv_heads * (ends ? length : (size_t)n_pages * page_tokens);
    memset(pages, 0, sizeof pages);
    for (int order = 0; order < 2; order++) {
        pimattn_pages *p = &pages[order];
        pimattn_rows *const to[4] = {&p->k, &p->v, &p->k_scale, &p->v_scale};
        p->n_pages = n_pages, p->page_tokens = page_tokens, p->order = (uint32_t)order;
        p->table = table, p->lengths = &length, p->table_stride = n_pages;
        for (int k = 0; k < 4; k++) {
            const size_t bytes = dims[k] * (k < 2 ? pimattn_i_type_bytes(types[k]) : 4);
            const size_t pitch = bytes + (order == 0 || rng_range(&rng, 0, 7) == 0 ? 8 : 0);
            rows[order][k] = to[k];
            to[k]->token = by_heads ? kv_heads * pitch : pitch;
            to[k]->head = by_heads ? pitch : page_tokens * pitch;
            to[k]->page = kv_heads * page_tokens * pitch;
            to[k]->at = memset(check_alloc(n_rows, pitch), 0xff, n_rows * pitch);
            allow(to[k]->at, n_rows * pitch, false);
        }
    }
    const uint64_t old = length - item.n_tokens;
    const uint64_t begin = s.window && old + 1 > s.window ? old + 1 - s.window : 0;
    for (uint32_t t = 0; t < length; t++)
        for (uint32_t head = 0; head < kv_heads; head++) {
            float one[DIM];
            const bool seen = t >= begin || t < s.sink_tokens;
            if (!seen || (t < choice.n_tokens && !(bits[t / 64] >> t % 64 & 1))) continue;
            const bool number = head != bad && (t < old || rng_range(&rng, 0, 3));
            for (int k = 0; k < 4; k++) {
                fill_normal(one, dims[k], 1, &rng);
                for (int order = 0; order < 2; order++) {
                    const pimattn_rows *r = rows[order][k];
                    unsigned char *at = (unsigned char *)(uintptr_t)r->at +
                                        table[t / page_tokens] * r->page +
                                        t % page_tokens * r->token + head * r->head;
                    allow(at, dims[k] * (k < 2 ? pimattn_i_type_bytes(types[k]) : 4), true);
                    if (number)
                        store_all(at, (unsigned char *)one, k < 2 ? types[k] : PIMATTN_F32, 20,
                                  dims[k]);
                }
            }
        }
    pimattn_config c = config_of(&s);
    pimattn_engine *e = engine_new(&c);
    if (e) e->ahead = (pimattn_i_ahead)rng_range(&rng, 0, PIMATTN_I_DEEP);
    for (uint64_t i = 0, first = rng_range(&rng, 0, 1); i < 2 && e; i++) {
        const uint64_t order = i ^ first;
        pimattn_call call = {.out = out[order], .q = q, .items = &item, .n_items = 1};
        call.lse = out[order] + NEW * HEADS * GROUP * DIM;
        call.choices = choice.n_tokens ? &choice : NULL;
        pimattn_pages given = pages[order];
        if (types[0] != PIMATTN_INT8) given.k_scale.at = NULL;
        if (types[1] != PIMATTN_INT8) given.v_scale.at = NULL;
        if (!CHECK_U(pimattn_attend_pages(e, 0, &given, &call, NULL), PIMATTN_OK))
            printf("  %s\n", pimattn_engine_cause(e));
    }
    pimattn_engine_destroy(e);
    if (!CHECK_BYTES(out[1], out[0], sizeof out[0]))
        printf("  seed %llu: dims %u and %u, types %u and %u, pages of %u, %u tokens\n",
               (unsigned long long)from, dims[0], dims[1], types[0], types[1], page_tokens, length);
    for (int k = 0; k < 8; k++) {
        const pimattn_rows *r = rows[k / 4][k % 4];
        allow(r->at, n_rows * (by_heads ? r->head : r->token), true);
        free((void *)(uintptr_t)r->at);
    }
}

static void many_odd_rows(void)
{
    for (uint64_t i = 0; i < 2500; i++)
        odd_rows_are_their_copies(seed + i);
}

static void odd_rows_of_the_caller_are_their_copies(void)
{
    over_kernels(many_odd_rows);
}

static void wide_pages_fetched_otherwise(void)
{
    pages_fetched_otherwise(PIMATTN_F32);
}

static void narrow_pages_fetched_otherwise(void)
{
    pages_fetched_otherwise(PIMATTN_BF16);
}

static void fetching_changes_no_bit(void)
{
    over_kernels(fetched_otherwise);
    over_kernels(wide_pages_fetched_otherwise);
    over_kernels(narrow_pages_fetched_otherwise);
}

/* Rows of every length, from and to anywhere, are stored as the scalar kernel stores them, and
 * nothing behind them. */
static void rows_are_stored_alike(void)
{
    enum { DIM = 150, ROWS = 3 };
    static unsigned char from[ROWS][4 * DIM + 1], to[2][ROWS][4 * DIM + 1];
    const pimattn_i_kernel *kernel = pimattn_i_kernel_take(engines_simd);
    check_rng rng = {7};
    for (uint32_t type = 0; type < PIMATTN_N_TYPE; type++)
        for (uint32_t n = 1; n < DIM; n++) {
            pimattn_i_row rows[2][ROWS];
            for (uint32_t r = 0; r < ROWS; r++) {
                float x[DIM];
                fill_normal(x, DIM, n % 3 ? 1 : 1e-6, &rng);
                memcpy(from[r] + 1, x, 4 * n);
                const uint32_t bits = kernel->magnitude(from[r] + 1, n);
                const float peak = pimattn_i_from_bits(bits);
                CHECK_U(bits, pimattn_i_magnitude(from[r] + 1, n));
                for (int i = 0; i < 2; i++) {
                    const pimattn_i_row row = {to[i][r] + 1, from[r] + 1, 127 / peak};
                    rows[i][r] = row;
                }
            }
            memset(to, 0x5a, sizeof to);
            kernel->store(rows[0], ROWS, type, n);
            pimattn_i_kernel_scalar.store(rows[1], ROWS, type, n);
            if (!CHECK_BYTES(to[0], to[1], sizeof to[0])) printf("type %u, %u numbers\n", type, n);
        }
}

static void kernels_store_alike(void)
{
    over_kernels(rows_are_stored_alike);
}

int main(int argc, char **argv)
{
    if (argc > 1) n_calls = strtoull(argv[1], NULL, 10);
    if (argc > 2) seed = strtoull(argv[2], NULL, 10);
    RUN(what_no_query_sees_is_not_read);
    RUN(lives_are_those_of_the_model);
    RUN(kernels_store_alike);
    RUN(fetching_changes_no_bit);
    RUN(many_gangs_are_heads_alone);
    RUN(odd_rows_of_the_caller_are_their_copies);
    RUN(gangs_read_what_is_there);
    RUN(fetching_forgets_no_line);
    return check_end();
}
