/* works.h - GEMVs on AiM channels as programs: rows, blocks, queries and steps in loops.
 *
 * Everything here is one pattern. A row of the work has blocks, a block has queries, a query has
 * steps. A block writes the inputs of its queries; a step is some MACs into one accumulator, and
 * mostly the read of it. FC layers are here, attention is in predict.c. Include it after pim_hw.h
 * and common.h.
 */
#ifndef WORKS_H
#define WORKS_H

enum { LANES = 16, BANKS = 16, ROW_COLUMNS = 64 };
enum { ROW_ELEMENTS = ROW_COLUMNS * LANES };

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

typedef struct work {
    uint64_t mask; /* of channels that do the same */
    uint64_t n_rows;
    uint64_t first_row;
    uint64_t row_rows;      /* DRAM rows of a row of the work */
    uint64_t n_blocks;      /* of a row */
    uint64_t turn;          /* so many blocks have tiles or accumulators of their own, in turn */
    uint64_t block_queries; /* of a block */
    uint64_t n_steps;       /* of a query */
    uint64_t n_inputs;      /* columns to write for a query */
    uint64_t n_columns;     /* MACs of a step */
    uint64_t row_step, column_step, tile_step; /* from step to step */
    uint64_t n_outs;                           /* accumulators the steps of a query take in turn */
    uint64_t query_outs, turn_outs;            /* from query to query, from turn to turn */
    bool resident;                             /* the inputs are written once */
    bool read_once;                            /* results are read at the end only */
    uint64_t ahead; /* W first: each block's inputs are written so many blocks ahead; 0: not */
} work;

enum { BY_ROW, BY_TURN, BY_BLOCK, BY_QUERY, BY_STEPS, BY_STEP, BY_LOOPS }; /* loops, by depth */

static inline uint8_t operand(pimhw_program *p, uint64_t base, const uint64_t step[BY_LOOPS])
{
    pimhw_operand o = {.base = base};
    memcpy(o.step, step, sizeof o.step);
    return pimhw_program_operand(p, &o);
}

static inline void loop(pimhw_program *p, const work *w, uint64_t rounds)
{
    pimhw_program_loop(p, pimhw_program_const(p, rounds), w->mask);
}

/* The inputs of the first blocks (before the loops), or inside them of this or a later block. */
static inline void add_write(pimhw_program *p, const work *w, bool first)
{
    uint64_t n = w->block_queries * w->n_inputs, blocks = w->n_rows * w->n_blocks;
    uint64_t tile_step = w->turn * n <= ROW_COLUMNS ? n : 0;
    const uint64_t tile[BY_LOOPS] = {first ? tile_step : 0, 0, first ? 0 : tile_step};
    pimhw_operand size = {.base = n};
    pimhw_tail left = {.base = blocks - w->ahead, .mul = n, .step = {w->n_blocks, w->turn, 1}};
    if (!first) size.tail[0] = pimhw_program_tail(p, &left);
    pimhw_program_item(p, &(pimhw_item){.kind = PIMHW_WR_GB,
                                        .mask = w->mask,
                                        .op_size = pimhw_program_operand(p, &size),
                                        .tile = operand(p, 0, tile)});
}

static inline uint8_t out_of(pimhw_program *p, const work *w, uint64_t step, bool looping)
{
    const uint64_t steps[BY_LOOPS] = {
        0, w->turn_outs, w->block_queries * w->query_outs, w->query_outs, 0, looping};
    return operand(p, step % w->n_outs, steps);
}

/* MACs of a step: that of the loops, or (not looping) a given one. */
static inline void add_macs(pimhw_program *p, const work *w, uint64_t step, bool looping)
{
    uint64_t n = w->block_queries * w->n_inputs, many = looping ? w->n_outs : 0, one = looping;
    const uint64_t row[BY_LOOPS] = {w->row_rows, 0, 0, 0, many * w->row_step, one * w->row_step};
    const uint64_t column[BY_LOOPS] = {0, 0, 0, 0, many * w->column_step, one * w->column_step};
    const uint64_t tile[BY_LOOPS] = {0,
                                     0,
                                     w->turn * n <= ROW_COLUMNS ? n : 0,
                                     w->n_inputs,
                                     many * w->tile_step,
                                     one * w->tile_step};
    pimhw_program_item(p, &(pimhw_item){.kind = PIMHW_MAC_ABK,
                                        .mask = w->mask,
                                        .op_size = pimhw_program_const(p, w->n_columns),
                                        .row = operand(p, w->first_row + step * w->row_step, row),
                                        .column = operand(p, step * w->column_step, column),
                                        .tile = operand(p, step * w->tile_step, tile),
                                        .out = out_of(p, w, step, looping)});
}

static inline void add_read(pimhw_program *p, const work *w, uint64_t step, bool looping)
{
    if (w->read_once) return;
    pimhw_program_item(
        p,
        &(pimhw_item){.kind = PIMHW_RD_MAC, .mask = w->mask, .out = out_of(p, w, step, looping)});
}

/* The first steps of a query. */
static inline void add_steps(pimhw_program *p, const work *w, uint64_t n_steps)
{
    pimhw_operand size = {.base = w->n_outs};
    pimhw_tail left = {.base = n_steps, .step = {0, 0, 0, 0, w->n_outs}};
    if (n_steps == 0) return;
    size.tail[0] = pimhw_program_tail(p, &left);
    loop(p, w, up(n_steps, w->n_outs));
    pimhw_program_loop(p, pimhw_program_operand(p, &size), w->mask);
    add_macs(p, w, 0, true);
    add_read(p, w, 0, true);
    pimhw_program_end(p);
    pimhw_program_end(p);
}

/* W first: a later block's inputs are written before the last result of this one is read. */
static inline void add_block(pimhw_program *p, const work *w)
{
    if (w->ahead == 0 && !w->resident) add_write(p, w, false);
    loop(p, w, w->block_queries);
    add_steps(p, w, w->ahead > 0 ? w->n_steps - 1 : w->n_steps);
    if (w->ahead > 0) {
        add_macs(p, w, w->n_steps - 1, false);
        add_write(p, w, false);
        add_read(p, w, w->n_steps - 1, false);
    }
    pimhw_program_end(p);
}

static inline void add_work(pimhw_program *p, const work *w)
{
    if (w->resident || w->ahead > 0) {
        loop(p, w, w->resident ? 1 : w->ahead);
        add_write(p, w, true);
        pimhw_program_end(p);
    }
    loop(p, w, w->n_rows);
    loop(p, w, w->n_blocks / w->turn);
    loop(p, w, w->turn);
    add_block(p, w);
    pimhw_program_end(p);
    pimhw_program_end(p);
    pimhw_program_end(p);
    if (!w->read_once) return;
    const uint64_t step[BY_LOOPS] = {1};
    loop(p, w, w->n_blocks * w->block_queries * w->n_steps);
    pimhw_program_item(
        p, &(pimhw_item){.kind = PIMHW_RD_MAC, .mask = w->mask, .out = operand(p, 0, step)});
    pimhw_program_end(p);
}

static inline pimhw_readings time_program(const pimhw_config *c, const pimhw_program *program)
{
    pimhw_device *device = NULL;
    pimhw_readings r;
    pimhw_cause why = {{0}};
    if (pimhw_program_check(program, c, &why) != PIMHW_OK) ex_die("program: %s", why.text);
    if (pimhw_device_create(&device, c, &why) != PIMHW_OK) ex_die("device: %s", why.text);
    if (pimhw_device_time(device, &r, program, NULL, NULL, &why) != PIMHW_OK)
        ex_die("program: %s", why.text);
    pimhw_device_destroy(device);
    return r;
}

static inline pimhw_readings time_works(const pimhw_config *c, const work *works, size_t n_works)
{
    static pimhw_program program;
    pimhw_program_init(&program);
    for (size_t i = 0; i < n_works; i++)
        add_work(&program, &works[i]);
    return time_program(c, &program);
}

/* The GEMV of an FC layer: chunks of a row of inputs, or as many as are held at once, each with all
 * outputs of a bank, one request after the other. Returns how many works it is. */
static inline size_t fc_works(work works[2], const pimhw_config *c, uint64_t n_inputs,
                              uint64_t n_outputs, uint64_t n_requests)
{
    size_t n = 0;
    uint64_t lanes = pimhw_config_lanes(c);
    uint64_t columns = least(pimhw_config_columns(c), pimhw_config_in_region(c));
    uint64_t chunks = n_inputs / (columns * lanes), rest = up(n_inputs % (columns * lanes), lanes);
    for (int tail = 0; tail < 2; tail++) {
        work w = {.turn = 1, .n_blocks = n_requests, .block_queries = 1, .row_step = 1};
        w.mask = UINT64_MAX >> (64 - c->n_channels);
        w.n_outs = pimhw_config_outs(c);
        w.n_rows = tail ? rest > 0 : chunks;
        w.n_inputs = tail ? rest : columns;
        w.n_columns = w.n_inputs;
        w.n_steps = up(n_outputs, (uint64_t)pimhw_config_banks(c) * c->n_channels);
        w.row_rows = w.n_steps;
        w.first_row = tail ? chunks * w.n_steps : 0;
        if (w.n_rows > 0) works[n++] = w;
    }
    return n;
}

#endif
