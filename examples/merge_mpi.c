/* Context parallel: every rank owns whole leaves (512 tokens) of one long sequence, attends to them
 * alone, and sends its partials (m, l, o) to all others; merged by the tree of leaves they give the
 * bytes that one process with all tokens gives, on any number of ranks.
 *
 *     mpirun -n 4 build/merge_mpi
 */
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#define EX_NAME "merge_mpi"
#include "common.h"
#include <mpi.h>

enum { LEAF = 512, HEADS = 8, KV_HEADS = 2, DIM = 64, ROW = KV_HEADS * DIM, MOST = 64 };

/* Partials of a block of leaves, aligned to their number, which is a power of two. */
typedef struct block {
    uint64_t first, n_leaves;
    float m[HEADS], l[HEADS], o[HEADS][DIM];
} block;

/* Blocks one after the other, no two of which make a larger one. */
typedef struct stack {
    uint64_t n;
    block blocks[MOST];
} stack;

static pimattn_partial view(block *b, uint32_t head)
{
    return (pimattn_partial){b->m[head], b->l[head], b->o[head], DIM};
}

/* Merges the last block into the one before. */
static void fold(stack *s)
{
    block *left = &s->blocks[s->n - 2], *right = &s->blocks[s->n - 1];
    for (uint32_t head = 0; head < HEADS; head++) {
        pimattn_partial to = view(left, head), from = view(right, head);
        pimattn_status status = pimattn_partial_merge(&to, &from);
        if (status != PIMATTN_OK) ex_die("merge: %s", pimattn_status_str(status));
        left->m[head] = to.m, left->l[head] = to.l;
    }
    left->n_leaves += right->n_leaves;
    s->n--;
}

/* The rule of a binary counter: two neighbours that make an aligned block are one. */
static void push(stack *s, const block *b)
{
    if (s->n == MOST) ex_die("more than %d blocks", (int)MOST);
    s->blocks[s->n++] = *b;
    while (s->n > 1) {
        const block *left = &s->blocks[s->n - 2], *right = &s->blocks[s->n - 1];
        bool pair = left->n_leaves == right->n_leaves && left->first % (2 * left->n_leaves) == 0;
        if (!pair || left->first + left->n_leaves != right->first) return;
        fold(s);
    }
}

/* Numbers from -1 to 1, the same on every rank. */
static void fill(float *values, size_t n, uint64_t first)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t x = (first + i + 1) * 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
        values[i] = (float)(x >> 40) / 8388608.0f - 1.0f;
    }
}

/* K and V of a leaf; a key is longer than a random one, so that heads attend to something. */
static void fill_leaf(float *k, float *v, uint64_t leaf)
{
    fill(k, LEAF * ROW, leaf * LEAF * ROW);
    fill(v, LEAF * ROW, (leaf * LEAF * ROW) ^ (uint64_t)1 << 40);
    for (size_t i = 0; i < LEAF * ROW; i++)
        k[i] *= 4;
}

/* Attention of a query to the first n_tokens tokens of a leaf: a page of the caller's. */
static void attend_leaf(pimattn_engine *engine, block *b, const float *q, const float *k,
                        const float *v, uint64_t n_tokens)
{
    const uint32_t table = 0, length = (uint32_t)n_tokens;
    const uint64_t position = b->first * LEAF;
    const pimattn_pages pages = {.k = {.at = k},
                                 .v = {.at = v},
                                 .n_pages = 1,
                                 .page_tokens = LEAF,
                                 .table = &table,
                                 .lengths = &length,
                                 .table_stride = 1,
                                 .first_position = &position};
    const pimattn_item item = {0, 1};
    pimattn_partial partials[HEADS];
    for (uint32_t head = 0; head < HEADS; head++)
        partials[head] = view(b, head);
    const pimattn_call call = {.partials = partials, .q = q, .items = &item, .n_items = 1};
    ex_check(engine, "attend", pimattn_attend_pages(engine, 0, &pages, &call, NULL));
    for (uint32_t head = 0; head < HEADS; head++)
        b->m[head] = partials[head].m, b->l[head] = partials[head].l;
}

/* The blocks of all ranks, in order, on every rank; returns how many were sent. */
static uint64_t exchange(stack *all, const stack *mine, int n_ranks)
{
    int bytes[MOST], at[MOST], n = (int)(mine->n * sizeof(block)), end = 0;
    MPI_Allgather(&n, 1, MPI_INT, bytes, 1, MPI_INT, MPI_COMM_WORLD);
    for (int rank = 0; rank < n_ranks; rank++)
        at[rank] = end, end += bytes[rank];
    block *blocks = (block *)ex_alloc((uint64_t)end, 1);
    MPI_Allgatherv(mine->blocks, n, MPI_BYTE, blocks, bytes, at, MPI_BYTE, MPI_COMM_WORLD);
    uint64_t n_blocks = (uint64_t)end / sizeof(block);
    all->n = 0;
    for (uint64_t i = 0; i < n_blocks; i++)
        push(all, &blocks[i]);
    while (all->n > 1)
        fold(all);
    free(blocks);
    return n_blocks;
}

/* What one process with all tokens puts out at each step. */
static void alone(const pimattn_config *config, float *outs, uint64_t n_tokens, uint64_t n_steps)
{
    static float k[LEAF * ROW], v[LEAF * ROW], q[HEADS * DIM];
    pimattn_engine *engine = ex_engine(config);
    pimattn_seq seq;
    ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
    for (uint64_t t = 0; t < n_tokens + n_steps - 1; t++) {
        if (t % LEAF == 0) fill_leaf(k, v, t / LEAF);
        size_t row = t % LEAF * ROW;
        ex_check(engine, "append", pimattn_append(engine, seq, 0, k + row, v + row, 1, 0, 0));
        if (t + 1 < n_tokens) continue;
        fill(q, HEADS * DIM, (t + 1) << 48);
        ex_check(engine, "attend", pimattn_attend_one(engine, seq, 0, outs, q, NULL));
        outs += HEADS * DIM;
    }
    pimattn_engine_destroy(engine);
}

/* This rank's part of all steps; the outputs are the same on every rank. */
static uint64_t together(const pimattn_config *config, float *outs, uint64_t n_tokens,
                         uint64_t n_steps, int rank, int n_ranks)
{
    static float q[HEADS * DIM];
    static stack mine, all;
    uint64_t n_leaves = (n_tokens + n_steps - 1 + LEAF - 1) / LEAF, n_sent = 0;
    uint64_t first = n_leaves * (uint64_t)rank / (uint64_t)n_ranks;
    uint64_t end = n_leaves * (uint64_t)(rank + 1) / (uint64_t)n_ranks;
    pimattn_engine *engine = ex_engine(config);
    float *k = (float *)ex_alloc((end - first) * LEAF * ROW, sizeof *k);
    float *v = (float *)ex_alloc((end - first) * LEAF * ROW, sizeof *v);
    for (uint64_t leaf = first; leaf < end; leaf++)
        fill_leaf(k + (leaf - first) * LEAF * ROW, v + (leaf - first) * LEAF * ROW, leaf);
    for (uint64_t n = n_tokens; n < n_tokens + n_steps; n++) {
        fill(q, HEADS * DIM, n << 48);
        mine.n = 0;
        for (uint64_t leaf = first; leaf < end && leaf * LEAF < n; leaf++) {
            block b = {.first = leaf, .n_leaves = 1};
            uint64_t at = (leaf - first) * LEAF * ROW, rest = n - leaf * LEAF;
            attend_leaf(engine, &b, q, k + at, v + at, rest < LEAF ? rest : LEAF);
            push(&mine, &b);
        }
        n_sent += exchange(&all, &mine, n_ranks);
        for (uint32_t head = 0; head < HEADS; head++, outs += DIM) {
            const pimattn_partial p = view(&all.blocks[0], head);
            pimattn_partial_output(&p, outs);
        }
    }
    free(k), free(v);
    pimattn_engine_destroy(engine);
    return n_sent;
}

int main(int argc, char **argv)
{
    uint32_t n_tokens = 5000, n_steps = 8;
    int rank = 0, n_ranks = 1;
    const ex_option options[] = {{.name = "--tokens",
                                  .value = "N",
                                  .number = &n_tokens,
                                  .min = 1,
                                  .max = 1 << 18,
                                  .help = "at the first step; default 5000"},
                                 {.name = "--steps",
                                  .value = "N",
                                  .number = &n_steps,
                                  .min = 1,
                                  .max = 4096,
                                  .help = "of one token; default 8"}};
    ex_options(
        argc, argv,
        "usage: mpirun -n RANKS build/merge_mpi [options]\n"
        "Attention to a sequence that lies on several ranks, beside one process: same bytes.",
        options, EX_COUNT(options), NULL, 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    if (n_ranks > MOST) ex_die("at most %d ranks", (int)MOST);
    const pimattn_config config = {
        .shape = {.n_layers = 1, .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = DIM}};
    size_t n = (size_t)n_steps * HEADS * DIM;
    float *outs = (float *)ex_alloc(n, sizeof *outs), *want = (float *)ex_alloc(n, sizeof *want);
    uint64_t n_sent = together(&config, outs, n_tokens, n_steps, rank, n_ranks);
    alone(&config, want, n_tokens, n_steps);
    int same = memcmp(outs, want, n * sizeof *outs) == 0, all_same = 0;
    MPI_Allreduce(&same, &all_same, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < n * sizeof *outs; i++)
        hash = (hash ^ ((const unsigned char *)outs)[i]) * 1099511628211u;
    if (rank == 0)
        printf("%d ranks, %" PRIu32 " steps from %" PRIu32 " tokens: %" PRIu64
               " blocks of %zu bytes exchanged\n"
               "outputs %016" PRIx64 ": %s\n",
               n_ranks, n_steps, n_tokens, n_sent, sizeof(block), hash,
               all_same ? "on every rank the bytes of one process"
                        : "other bytes than one process");
    free(outs), free(want);
    MPI_Finalize();
    return all_same ? ex_done() : 1;
}
