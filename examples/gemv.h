/* gemv.h - a matrix in pimhw_alloc's memory times a vector, by the units beside the banks.
 *
 * The program is for chunks of AiM's kind (PIMHW_CHUNK_AIM). Where a row of the matrix is in
 * several parts, each channel gets its part of the vector and the host adds the parts' sums; where
 * it is also split over ranks, whose banks take the same input, each part is a pass of its own.
 *
 * GPR, in blocks of one column: the vector; zeros for WR_BIAS; then of every page, pass, tile and
 * channel the results of its banks. Include it after pim_hw.h.
 */
#ifndef GEMV_H
#define GEMV_H

#include <string.h>

typedef struct gemv {
    uint64_t n_rows;    /* of the matrix */
    uint32_t n_columns; /* DRAM columns of the vector */
    uint32_t n_zeros;   /* GPR blocks of one element a bank */
    uint32_t n_blocks;  /* the same of one result a bank */
    uint32_t n_channels, n_ranks, n_banks;
    uint32_t chunk;    /* DRAM columns of a chunk */
    uint32_t n_parts;  /* of a row of the matrix */
    uint32_t n_passes; /* ranks that share a row */
    uint32_t n_chunks; /* of a part */
    uint32_t row_step; /* DRAM rows from tile to tile */
    uint32_t tile_rows,
        n_tiles;        /* rows of the matrix that one DRAM row of all banks holds parts of;
                                    tiles of a page */
    uint64_t page_rows; /* rows of the matrix in a page */
    uint32_t n_pages;
} gemv;

/* Loops of the program, outermost first; results are read in a loop that stands in GEMV_CHUNK. */
enum { GEMV_PAGE, GEMV_PASS, GEMV_GROUP, GEMV_CHUNK, GEMV_PIECE, GEMV_TILE };

static inline uint64_t gemv_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline gemv gemv_of(const pimhw_config *c, const pimhw_geometry *g, const pimhw_placement *p,
                           uint64_t rows, uint64_t columns)
{
    gemv v;
    memset(&v, 0, sizeof v);
    uint32_t lanes = pimhw_config_lanes(c), banks = pimhw_config_banks(c);
    uint32_t units = g->n_channels * g->n_ranks * g->n_banks;
    v.n_rows = rows;
    v.n_columns = (uint32_t)((columns + lanes - 1) / lanes);
    v.n_zeros = (banks + lanes - 1) / lanes;
    v.n_blocks = (banks * (c->out_bits / 16) + lanes - 1) / lanes;
    v.n_channels = g->n_channels, v.n_ranks = g->n_ranks, v.n_banks = g->n_banks;
    v.chunk = g->chunk_bytes / g->transfer_bytes;
    v.n_parts = p->n_parts;
    v.n_passes = p->n_parts > g->n_channels ? p->n_parts / g->n_channels : 1;
    v.row_step = 1u << p->map_id;
    uint64_t chunks = (v.n_columns + v.chunk - 1) / v.chunk;
    v.n_chunks = (uint32_t)gemv_min(v.row_step, chunks);
    v.tile_rows = units / p->n_parts;
    v.page_rows = p->page_rows;
    v.n_tiles = (uint32_t)(p->page_rows / v.tile_rows);
    v.n_pages = (uint32_t)p->n_pages;
    return v;
}

/* First block of results; behind the last one. */
static inline uint64_t gemv_results(const gemv *v)
{
    return (uint64_t)v->n_columns + v->n_zeros;
}

static inline uint64_t gemv_end(const gemv *v)
{
    return gemv_results(v) +
           (uint64_t)v->n_pages * v->n_passes * v->n_tiles * v->n_channels * v->n_blocks;
}

/* First GPR block of the channel that has the sum of a part of a row, and the bank's number. */
static inline uint64_t gemv_block(const gemv *v, uint64_t row, uint32_t part, uint32_t *bank)
{
    uint64_t page = row / v->page_rows, in_page = row % v->page_rows;
    uint64_t tile = in_page / v->tile_rows, unit = in_page % v->tile_rows * v->n_parts + part;
    uint32_t channel = (uint32_t)(unit % v->n_channels);
    uint32_t rank = (uint32_t)(unit / v->n_channels % v->n_ranks), pass = rank % v->n_passes;
    *bank = rank * v->n_banks + (uint32_t)(unit / v->n_channels / v->n_ranks);
    uint64_t tiles = (page * v->n_passes + pass) * v->n_tiles + tile;
    return gemv_results(v) + (tiles * v->n_channels + channel) * v->n_blocks;
}

/* Request data: blocks[n_pages], from the memory's own table, so pages may lie anywhere. */
static inline pimhw_status gemv_request(pimhw_request *request, pimhw_block *blocks, const gemv *v,
                                        const pimhw_memory *memory, const void *matrix,
                                        uint64_t useful_macs, pimhw_cause *why)
{
    const pimhw_geometry *g = pimhw_memory_geometry(memory);
    memset(request, 0, sizeof *request);
    memset(blocks, 0, v->n_pages * sizeof *blocks);
    for (uint32_t i = 0; i < v->n_pages; i++) {
        const unsigned char *at = (const unsigned char *)matrix + i * g->page_bytes;
        uint64_t pa = 0;
        pimhw_status status = pimhw_memory_find(memory, &pa, NULL, at, why);
        if (status != PIMHW_OK) return status;
        blocks[i].rest[0] = gemv_min(v->page_rows, v->n_rows - i * v->page_rows);
        blocks[i].row_base[0] = (uint32_t)(pa / g->page_bytes) * v->n_tiles * v->row_step;
    }
    request->blocks = blocks;
    request->n_blocks = v->n_pages;
    request->useful_macs = useful_macs;
    return PIMHW_OK;
}

/* What the building functions share. */
typedef struct gemv_builder {
    pimhw_program *program;
    const gemv *v;
    uint64_t all;    /* channels */
    uint32_t piece;  /* DRAM columns that go into the global buffer at once */
    uint32_t n_outs; /* tiles that share it */
} gemv_builder;

/* Columns of a piece: fewer where the vector ends. */
static inline uint8_t gemv_size(const gemv_builder *b, uint64_t first)
{
    const gemv *v = b->v;
    pimhw_operand size = {.base = b->piece};
    pimhw_tail left = {.base = first < v->n_columns ? v->n_columns - first : 0};
    left.step[GEMV_PASS] = (uint64_t)v->n_channels * v->n_chunks * v->chunk;
    left.step[GEMV_CHUNK] = v->chunk;
    left.step[GEMV_PIECE] = b->piece;
    size.tail[0] = pimhw_program_tail(b->program, &left);
    return pimhw_program_operand(b->program, &size);
}

/* Channels whose part of the vector is number `part`. */
static inline uint64_t gemv_mask(const gemv *v, uint32_t n_parts, uint32_t part)
{
    uint64_t mask = 0;
    for (uint32_t c = part; c < v->n_channels; c += n_parts)
        mask |= (uint64_t)1 << c;
    return mask;
}

static inline void gemv_add_inputs(const gemv_builder *b)
{
    const gemv *v = b->v;
    uint32_t n_parts = v->n_parts / v->n_passes;
    for (uint32_t part = 0; part < n_parts; part++) {
        uint64_t first = (uint64_t)part * v->n_chunks * v->chunk;
        pimhw_operand gpr = {.base = first};
        gpr.step[GEMV_PASS] = (uint64_t)v->n_channels * v->n_chunks * v->chunk;
        gpr.step[GEMV_CHUNK] = v->chunk;
        gpr.step[GEMV_PIECE] = b->piece;
        pimhw_program_item(b->program,
                           &(pimhw_item){.kind = PIMHW_WR_GB,
                                         .mask = gemv_mask(v, n_parts, part),
                                         .op_size = gemv_size(b, first),
                                         .gpr = pimhw_program_operand(b->program, &gpr)});
    }
}

static inline void gemv_add_macs(const gemv_builder *b)
{
    const gemv *v = b->v;
    uint32_t n_parts = v->n_parts / v->n_passes;
    pimhw_operand row = {0}, column = {0}, out = {0};
    row.step[GEMV_GROUP] = (uint64_t)b->n_outs * v->row_step;
    row.step[GEMV_CHUNK] = 1;
    row.step[GEMV_TILE] = v->row_step;
    column.step[GEMV_PIECE] = b->piece;
    out.step[GEMV_TILE] = 1;
    for (uint32_t part = 0; part < n_parts; part++)
        pimhw_program_item(
            b->program,
            &(pimhw_item){.kind = PIMHW_MAC_ABK,
                          .mask = gemv_mask(v, n_parts, part),
                          .op_size = gemv_size(b, (uint64_t)part * v->n_chunks * v->chunk),
                          .row = pimhw_program_operand(b->program, &row),
                          .column = pimhw_program_operand(b->program, &column),
                          .out = pimhw_program_operand(b->program, &out)});
}

/* One instruction for every tile of the group: WR_BIAS before it, RD_MAC after it. */
static inline void gemv_add_outs(const gemv_builder *b, pimhw_kind kind, uint8_t n_tiles)
{
    const gemv *v = b->v;
    pimhw_operand gpr = {.base = v->n_columns}, out = {0};
    out.step[GEMV_CHUNK] = 1;
    if (kind == PIMHW_RD_MAC) {
        gpr.base = gemv_results(v);
        gpr.step[GEMV_CHUNK] = (uint64_t)v->n_channels * v->n_blocks;
        gpr.step[GEMV_GROUP] = b->n_outs * gpr.step[GEMV_CHUNK];
        gpr.step[GEMV_PASS] = v->n_tiles * gpr.step[GEMV_CHUNK];
        gpr.step[GEMV_PAGE] = v->n_passes * gpr.step[GEMV_PASS];
    }
    pimhw_program_loop(b->program, n_tiles, b->all);
    pimhw_program_item(b->program, &(pimhw_item){.kind = (uint8_t)kind,
                                                 .mask = b->all,
                                                 .out = pimhw_program_operand(b->program, &out),
                                                 .gpr = pimhw_program_operand(b->program, &gpr)});
    pimhw_program_end(b->program);
}

/* One page in one pass: groups of as many tiles as there are accumulators share each input. */
static inline void gemv_add_page(const gemv_builder *b, const pimhw_config *config)
{
    const gemv *v = b->v;
    pimhw_program *p = b->program;
    uint32_t pieces = (v->chunk + b->piece - 1) / b->piece;
    pimhw_operand groups = {.base = (v->n_tiles + b->n_outs - 1) / b->n_outs};
    pimhw_operand tiles = {.base = b->n_outs};
    pimhw_tail left = {.rest = 1, .unit = (uint64_t)b->n_outs * v->tile_rows};
    groups.tail[0] = pimhw_program_tail(p, &left);
    left.step[GEMV_GROUP] = left.unit;
    left.unit = v->tile_rows;
    tiles.tail[0] = pimhw_program_tail(p, &left);
    uint8_t n_tiles = pimhw_program_operand(p, &tiles);
    pimhw_program_loop(p, pimhw_program_operand(p, &groups), b->all);
    if (config->out_clear == PIMHW_CLEAR_BIAS) gemv_add_outs(b, PIMHW_WR_BIAS, n_tiles);
    pimhw_program_loop(p, pimhw_program_const(p, v->n_chunks), b->all);
    pimhw_program_loop(p, pimhw_program_const(p, pieces), b->all);
    gemv_add_inputs(b);
    pimhw_program_loop(p, n_tiles, b->all);
    gemv_add_macs(b);
    pimhw_program_end(p);
    pimhw_program_end(p);
    pimhw_program_end(p);
    gemv_add_outs(b, PIMHW_RD_MAC, n_tiles);
    pimhw_program_end(p);
}

/*
 * The program: one for every placement of the pages and every number of rows.
 *
 *   returns  as pimhw_program_check
 */
static inline pimhw_status gemv_program(pimhw_program *program, const gemv *v,
                                        const pimhw_config *config, pimhw_cause *why)
{
    uint64_t all = gemv_mask(v, 1, 0);
    uint32_t piece = (uint32_t)gemv_min(v->chunk, pimhw_config_in_region(config));
    uint32_t n_outs = pimhw_config_outs(config); /* ping-pong reads half of them meanwhile */
    if (config->controller == PIMHW_PING_PONG && n_outs > 1) n_outs /= 2;
    n_outs = (uint32_t)gemv_min(v->n_tiles, n_outs);
    gemv_builder b = {program, v, all, piece, n_outs};
    pimhw_program_init(program);
    pimhw_program_item(program, &(pimhw_item){.kind = PIMHW_LIST, .mask = all});
    pimhw_program_item(program, &(pimhw_item){.kind = PIMHW_BLOCK, .mask = all});
    pimhw_program_loop(program, pimhw_program_const(program, v->n_passes), all);
    gemv_add_page(&b, config);
    pimhw_program_end(program);
    pimhw_program_end(program);
    pimhw_program_end(program);
    return pimhw_program_check(program, config, why);
}

#endif
