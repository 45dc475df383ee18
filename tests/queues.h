/* queues.h - the controllers once more, command by command: the plainest code for their rules.
 *
 * A stream of instructions gives a listing per channel: the commands with clock and reason. Every
 * channel keeps all its commands in one array, in program order; run_channel gives clocks to those
 * that have none yet, always to the one of two stream heads that can go first. Shares with
 * pim_hw.h names only. In-order here is that of channels with streams of their own, and its reasons
 * are not those of the library at equal clocks: the checker judges them.
 *
 * What the rules leave open is decided so: a gap counts as a wait of the later command; a barrier
 * that has commands makes the gaps of W, M and R begin anew; EPU work and EPU_WAIT empty the
 * streams of their channels (nothing later issues before what is already on its way; of ping-pong
 * all phases are over); the row of a first M waits for the start of a phase before it waits for the
 * last command of its stream, where both are at one clock.
 */
#ifndef QUEUES_H
#define QUEUES_H

#include "rules.h"

enum {
    Q_COMMANDS = 1 << 16, /* of a channel: events, and column commands */
    Q_CHANNELS = 4,
    Q_ENTRIES = 64, /* tiles, outputs */
    Q_PHASES = 1 << 10,
    Q_JOBS = 64,
    Q_NONE = -1,
    Q_NO_OUT = Q_ENTRIES
};

/* A column command of the program. */
typedef struct q_command {
    uint32_t command, bank, column, tile, out, instruction;
    uint64_t row;
    bool done;
    uint64_t ck;          /* issued, if done */
    int full;             /* DCS: the one whose place in the queue it takes */
    int tile_w, tile_m;   /* last writer and last reader of its tile, as it must wait for them */
    int on_out;           /* last on its output entry */
    int phase, group;     /* ping-pong: phase in which it issues; of inputs, Q_NONE: no group */
    bool first;           /* ping-pong: the first M of its phase */
    uint64_t dispatch_ck; /* DCS */
} q_command;

typedef struct q_event {
    uint64_t ck;
    uint32_t command, bank, column, tile, out, reason;
    uint64_t row;
} q_event;

/* A clock and what set it. */
typedef struct q_bound {
    uint64_t ck;
    uint32_t reason;
} q_bound;

/* Ping-pong: how the program is cut, from the last hold on. */
typedef struct q_cut {
    int phase, newest_group, group_used;                  /* Q_NONE: none yet */
    uint32_t group_size, n_sums, n_m_records, n_m_before; /* .._before: of the phase before */
    bool m_since_w;
    int waiting[Q_COMMANDS], n_waiting; /* W without a phase */
    int last_m_record;                  /* the command that the next may share a record with */
    uint32_t n_w_records[Q_PHASES], n_r_records[Q_PHASES];
    int last_r[Q_PHASES]; /* the last command put there */
    int tile_group[Q_ENTRIES];
    int out_phase[Q_ENTRIES]; /* phase of the last M on an entry */
    int sum_phase[Q_ENTRIES]; /* .. of its accumulation; Q_NONE: the next M starts one */
} q_cut;

typedef struct q_channel {
    rules_past past;
    q_command program[Q_COMMANDS];
    int n, n_run; /* commands; those before n_run are done */
    q_event events[Q_COMMANDS];
    int n_events, n_told; /* told: the streams were empty after that many */
    q_bound hold;
    uint64_t end_ck, due_ck, bus_ck;
    bool register_mode;
    uint64_t mac_stream_ck; /* the last of M and row commands */
    int last_io, last_m, last_any;
    int tile_w[Q_ENTRIES], tile_m[Q_ENTRIES], on_out[Q_ENTRIES]; /* the last, in the program */
    int stream[2][Q_COMMANDS], n_stream[2];                      /* all of MAC and I/O, for DCS */
    int n_dispatched;
    uint64_t emptied_ck; /* DCS: the streams were empty then, nothing later is dispatched before */
    int order_io[Q_COMMANDS], order_m[Q_COMMANDS]; /* of the commands not yet done, a stream each */
    int n_io, n_m, at_io, at_m;
    q_bound begin[Q_PHASES]; /* ping-pong: S of the phases, those known */
    q_bound base;            /* ping-pong: all phases before are over */
    int n_begun;
    int n_left[Q_PHASES + 1]; /* commands of phase i - 1 without a clock */
    uint64_t commands[PIMHW_N_COMMANDS];
} q_channel;

typedef struct q_job {
    uint64_t ready_ck, cost_ck;
    bool awaited;
} q_job;

typedef struct queues {
    pimhw_config config;
    rules r;
    int queue;        /* commands a queue of DCS holds */
    uint32_t records; /* of one kind in a phase of ping-pong */
    uint32_t af_mode, n_instructions;
    q_job jobs[Q_JOBS];
    int n_jobs, n_served, n_waited;
    uint64_t epu_free_ck, epu_ck;
    uint64_t done_ck[Q_JOBS];
    uint64_t cycles;
    uint32_t critical;
    uint64_t breakdown_ck[PIMHW_N_SPENT], commands[PIMHW_N_COMMANDS];
    q_cut cut[Q_CHANNELS];
    q_channel channels[Q_CHANNELS];
} queues;

static inline void q_need(bool ok, const char *what)
{
    if (ok) return;
    printf("queues: %s\n", what);
    exit(1);
}

static inline void q_atleast(q_bound *b, uint64_t ck, uint32_t reason)
{
    if (ck > b->ck) b->ck = ck, b->reason = reason;
}

static inline int q_class(const q_command *c)
{
    return rules_class[c->command];
}

/* What a wait for a command of class W, M, R is called. */
static inline uint32_t q_wait_for(const q_command *c)
{
    return q_class(c) == RULES_W   ? PIMHW_WAIT_INPUT
           : q_class(c) == RULES_M ? PIMHW_WAIT_OPERAND
                                   : PIMHW_WAIT_OUTPUT;
}

/* Distance of two commands of one stream: of one class by the table, also that of a bank group. */
static inline uint64_t q_gap_ck(const queues *q, const q_command *a, const q_command *b)
{
    uint64_t gap = q->config.tCCD_S;
    bool banks = rules_in(a->command, RULES_ONE_BANK) && rules_in(b->command, RULES_ONE_BANK);
    bool group = banks && a->bank / q->config.n_group_banks == b->bank / q->config.n_group_banks;
    if (q_class(a) != q_class(b)) return gap;
    for (int scope = RULES_CHANNEL; scope <= (group ? RULES_GROUP : RULES_CHANNEL); scope++) {
        uint64_t line = q->r.pair[scope][a->command][b->command].gap_ck;
        if (line > gap) gap = line;
    }
    return gap;
}

static inline uint64_t q_ends_ck(const queues *q, const q_command *c)
{
    return c->ck + rules_ends_ck(&q->config, c->command);
}

/* -------------------------------------------------------------------------- Events */

/* Charges the clocks between events to the first of each two, what is beyond it to a reason. */
static inline void q_charge(const queues *q, const q_channel *ch, uint64_t *spent_ck)
{
    uint64_t from = 0;
    for (int i = 0; i <= ch->n_events; i++) {
        bool drain = i == ch->n_events;
        uint64_t to = drain ? ch->end_ck : ch->events[i].ck, busy = 0;
        if (i > 0) {
            uint32_t last = ch->events[i - 1].command;
            busy = rules_busy_ck(&q->config, last);
            if (busy > to - from) busy = to - from;
            spent_ck[rules_spent(last)] += busy;
        }
        spent_ck[drain ? PIMHW_WAIT_DRAIN : ch->events[i].reason] += to - from - busy;
        from = to;
    }
}

static inline bool q_is_io(uint32_t command)
{
    return rules_class[command] == RULES_W || rules_class[command] == RULES_R;
}

/* Of two streams that of MACs is told first at one clock. */
static inline void q_happens(const queues *q, q_channel *ch, const q_event *e)
{
    q_need(ch->n_events < Q_COMMANDS, "too many events");
    q_need(ch->n_events == 0 || ch->events[ch->n_events - 1].ck <= e->ck, "events out of order");
    int at = ch->n_events++;
    bool two = q->config.controller == PIMHW_DCS || q->config.controller == PIMHW_PING_PONG;
    for (; at > ch->n_told && two && !q_is_io(e->command); at--) {
        if (ch->events[at - 1].ck < e->ck || !q_is_io(ch->events[at - 1].command)) break;
        ch->events[at] = ch->events[at - 1];
    }
    ch->events[at] = *e;
    ch->commands[e->command]++;
    ch->bus_ck = e->ck + 1;
    /* under the fixed controllers no line of the table is about W and R but that of REF */
    bool in_order = q->config.controller == PIMHW_IN_ORDER;
    if (in_order || !q_is_io(e->command))
        rules_happened(&ch->past, e->command, e->bank, e->row, e->ck);
    uint64_t end = e->ck + rules_ends_ck(&q->config, e->command);
    if (end > ch->end_ck) ch->end_ck = end;
}

static inline q_bound q_table(const queues *q, const q_channel *ch, uint32_t command, uint32_t bank,
                              uint32_t of)
{
    rules_clock at = rules_earliest(&q->r, &ch->past, command, bank, of);
    q_bound b = {at.ck, at.first};
    return b;
}

/* The refresh that is due; about: why the next command would have waited. */
static inline void q_refresh(const queues *q, q_channel *ch, uint32_t about)
{
    static const uint32_t steps[2] = {PIMHW_CMD_PREA, PIMHW_CMD_REF};
    for (int i = 0; i < 2; i++) {
        if (steps[i] == PIMHW_CMD_PREA && !rules_any_open(&ch->past)) continue;
        q_bound at = {ch->due_ck, about};
        q_bound table = q_table(q, ch, steps[i], 0, RULES_EVERY);
        q_atleast(&at, table.ck, table.reason);
        q_event e = {.ck = at.ck, .command = steps[i], .reason = at.reason};
        q_happens(q, ch, &e);
    }
    ch->due_ck += q->config.tREFI;
}

/* -------------------------------------------------------------------------- The next command */

/* What a stream would issue next, and when. */
typedef struct q_next {
    bool known; /* its clock depends on nothing that is still to come */
    uint32_t command;
    q_bound at;
} q_next;

/* Command itself or, if rows must be switched first, the command for that. */
static inline uint32_t q_needed(const queues *q, const q_channel *ch, const q_command *c)
{
    bool hidden = q->config.controller == PIMHW_STATIC_GAPS &&
                  q->config.row_opening == PIMHW_ROW_HIDDEN && q_class(c) == RULES_M;
    return hidden ? c->command : rules_needed(&ch->past, c->command, c->bank, c->row);
}

/* Rows and M by the table; W, R and an M whose rows are hidden by REF only. */
static inline void q_by_table(const queues *q, const q_channel *ch, const q_command *c, q_next *n)
{
    bool hidden =
        q->config.controller == PIMHW_STATIC_GAPS && q->config.row_opening == PIMHW_ROW_HIDDEN;
    uint32_t of = q_class(c) == RULES_M && !hidden ? RULES_EVERY : RULES_SET(REF);
    q_bound table = q_table(q, ch, n->command, c->bank, of);
    q_atleast(&n->at, table.ck, table.reason);
}

/* In-order, and the commands of a barrier: the whole table; one command a clock. */
static inline q_next q_next_in_order(const queues *q, const q_channel *ch, const q_command *c)
{
    q_next n = {true, q_needed(q, ch, c), {0, 0}};
    n.at = q_table(q, ch, n.command, c->bank, RULES_EVERY);
    q_atleast(&n.at, ch->bus_ck, PIMHW_WAIT_HOST);
    q_atleast(&n.at, ch->hold.ck, ch->hold.reason);
    return n;
}

static inline q_next q_next_static(const queues *q, const q_channel *ch, const q_command *c)
{
    q_next n = {true, q_needed(q, ch, c), ch->hold};
    bool row = n.command != c->command;
    if (ch->last_any != Q_NONE) {
        const q_command *last = &ch->program[ch->last_any];
        uint64_t gap = q_class(last) == q_class(c) ? q_gap_ck(q, last, c)
                                                   : rules_ends_ck(&q->config, last->command);
        if (row && q->config.row_opening == PIMHW_ROW_HEAD) gap = 0;
        q_atleast(&n.at, last->ck + gap, q_wait_for(last));
    }
    q_by_table(q, ch, c, &n);
    return n;
}

/* A command waits for another: until its end, or for early clocks only. */
static inline bool q_wait(const queues *q, const q_channel *ch, int on, uint64_t early_ck,
                          q_bound *at)
{
    if (on == Q_NONE) return true;
    const q_command *c = &ch->program[on];
    if (!c->done) return false;
    q_atleast(at, early_ck ? c->ck + early_ck : q_ends_ck(q, c), q_wait_for(c));
    return true;
}

/* Dispatch clocks, as far as they are known. */
static inline void q_dispatch(q_channel *ch)
{
    for (; ch->n_dispatched < ch->n; ch->n_dispatched++) {
        q_command *c = &ch->program[ch->n_dispatched];
        c->dispatch_ck = ch->hold.ck > ch->emptied_ck ? ch->hold.ck : ch->emptied_ck;
        if (ch->n_dispatched > 0 && c[-1].dispatch_ck > c->dispatch_ck)
            c->dispatch_ck = c[-1].dispatch_ck;
        if (c->full == Q_NONE) continue;
        if (!ch->program[c->full].done) return;
        if (ch->program[c->full].ck > c->dispatch_ck) c->dispatch_ck = ch->program[c->full].ck;
    }
}

static inline q_next q_next_dcs(const queues *q, q_channel *ch, int i)
{
    const q_command *c = &ch->program[i];
    q_next n = {false, q_needed(q, ch, c), ch->hold};
    int last = q_class(c) == RULES_M ? ch->last_m : ch->last_io;
    q_dispatch(ch);
    if (i >= ch->n_dispatched) return n;
    q_atleast(&n.at, c->dispatch_ck, PIMHW_WAIT_HOST);
    if (n.command != c->command) {
        q_atleast(&n.at, ch->mac_stream_ck, PIMHW_WAIT_OPERAND);
    } else {
        if (last != Q_NONE)
            q_atleast(&n.at, ch->program[last].ck + q_gap_ck(q, &ch->program[last], c),
                      q_wait_for(c));
        if (!q_wait(q, ch, c->tile_w, 0, &n.at)) return n;
        if (!q_wait(q, ch, c->tile_m, q->config.early_tiles ? q->config.tCCD_S : 0, &n.at))
            return n;
        bool sums = c->on_out != Q_NONE && q_class(c) == RULES_M &&
                    q_class(&ch->program[c->on_out]) == RULES_M;
        if (!(sums && q->config.is_mac) && !q_wait(q, ch, c->on_out, 0, &n.at)) return n;
    }
    q_by_table(q, ch, c, &n);
    n.known = true;
    return n;
}

/* S of a phase; false if a command of the phase before has no clock yet. */
static inline bool q_begins(const queues *q, q_channel *ch, int phase, q_bound *at)
{
    /* of commands that end together M counts before R, R before W */
    static const int classes[3] = {RULES_M, RULES_R, RULES_W};
    while (ch->n_begun <= phase) {
        int k = ch->n_begun;
        if (ch->n_left[k] > 0) return false;
        q_bound s = k > 0 ? ch->begin[k - 1] : ch->base;
        for (int j = 0; j < 3; j++)
            for (int i = ch->n_run; i < ch->n; i++) {
                const q_command *c = &ch->program[i];
                if (c->phase != k - 1 || q_class(c) != classes[j]) continue;
                q_atleast(&s, q_ends_ck(q, c), q_wait_for(c));
            }
        ch->begin[ch->n_begun++] = s;
    }
    *at = ch->begin[phase];
    return true;
}

static inline q_next q_next_ping_pong(const queues *q, q_channel *ch, int i)
{
    const q_command *c = &ch->program[i];
    q_next n = {false, q_needed(q, ch, c), ch->hold};
    q_bound s;
    int last = q_class(c) == RULES_M ? ch->last_m : ch->last_io;
    bool row = n.command != c->command;
    if (!row && last != Q_NONE)
        q_atleast(&n.at, ch->program[last].ck + q_gap_ck(q, &ch->program[last], c), q_wait_for(c));
    int phase = row && c->first ? c->phase - 1 : c->phase;
    s = ch->base;
    if (phase >= 0 && !q_begins(q, ch, phase, &s)) return n;
    q_atleast(&n.at, s.ck, s.reason);
    if (row) q_atleast(&n.at, ch->mac_stream_ck, PIMHW_WAIT_OPERAND);
    q_by_table(q, ch, c, &n);
    n.known = true;
    return n;
}

/* -------------------------------------------------------------------------- Running */

static inline q_next q_head(const queues *q, q_channel *ch, const int *order, int n, int at)
{
    q_next none = {false, 0, {0, 0}};
    if (at == n) return none;
    int i = order[at];
    switch (q->config.controller) {
    case PIMHW_IN_ORDER: return q_next_in_order(q, ch, &ch->program[i]);
    case PIMHW_STATIC_GAPS: return q_next_static(q, ch, &ch->program[i]);
    case PIMHW_PING_PONG: return q_next_ping_pong(q, ch, i);
    default: return q_next_dcs(q, ch, i);
    }
}

/* Issues what a head needs next; true if that was the head itself. */
static inline bool q_issue(const queues *q, q_channel *ch, int i, q_next n)
{
    q_command *c = &ch->program[i];
    bool modes = q->config.controller == PIMHW_IN_ORDER && q->config.tMOD > 0;
    if (modes && ch->register_mode != rules_in(n.command, RULES_REGISTERS)) {
        ch->register_mode = !ch->register_mode;
        n.command = PIMHW_CMD_TMOD;
    }
    q_event e = {.ck = n.at.ck, .command = n.command, .reason = n.at.reason};
    if (rules_in(n.command, RULES_ONE_BANK)) e.bank = c->bank;
    if (rules_in(n.command, RULES_NEED_ROWS | RULES_OPENING)) e.row = c->row;
    if (n.command == c->command) e.column = c->column, e.tile = c->tile, e.out = c->out;
    q_happens(q, ch, &e);
    if (q_class(c) == RULES_M) ch->mac_stream_ck = e.ck;
    if (n.command != c->command) return false;
    c->done = true;
    c->ck = e.ck;
    if (q->config.controller == PIMHW_PING_PONG) ch->n_left[c->phase + 1]--;
    ch->last_any = i;
    if (q_class(c) == RULES_M) ch->last_m = i;
    if (q_class(c) == RULES_W || q_class(c) == RULES_R) ch->last_io = i;
    return true;
}

/* Gives clocks to the heads of both streams, the earlier one first. */
static inline void q_run_streams(const queues *q, q_channel *ch)
{
    while (ch->at_io < ch->n_io || ch->at_m < ch->n_m) {
        q_next io = q_head(q, ch, ch->order_io, ch->n_io, ch->at_io);
        q_next m = q_head(q, ch, ch->order_m, ch->n_m, ch->at_m);
        q_need(io.known || m.known, "commands wait for each other");
        bool mac = m.known && (!io.known || m.at.ck <= io.at.ck);
        q_next next = mac ? m : io;
        if (q->config.refresh && next.at.ck >= ch->due_ck) {
            q_refresh(q, ch, next.at.reason);
            continue;
        }
        if (mac)
            ch->at_m += q_issue(q, ch, ch->order_m[ch->at_m], next);
        else
            ch->at_io += q_issue(q, ch, ch->order_io[ch->at_io], next);
    }
}

/* -------------------------------------------------------------------------- Ping-pong: phases */

static inline void q_cut_init(q_cut *t)
{
    t->phase = 0;
    t->newest_group = t->group_used = t->last_m_record = Q_NONE;
    t->group_size = t->n_sums = t->n_m_records = t->n_m_before = 0;
    t->m_since_w = false;
    t->n_waiting = 0;
    for (int i = 0; i < Q_PHASES; i++)
        t->n_w_records[i] = t->n_r_records[i] = 0, t->last_r[i] = Q_NONE;
    for (int i = 0; i < Q_ENTRIES; i++)
        t->tile_group[i] = t->out_phase[i] = t->sum_phase[i] = Q_NONE;
}

static inline void q_new_phase(q_cut *t)
{
    t->phase++;
    q_need(t->phase + 2 < Q_PHASES, "too many phases");
    t->last_m_record = Q_NONE;
    t->n_m_before = t->n_m_records;
    t->n_sums = t->n_m_records = 0;
}

/* Whether command i goes on with the record of the command put before it at the same place. */
static inline bool q_goes_on(const q_channel *ch, int before, int i)
{
    if (before == Q_NONE) return false;
    const q_command *a = &ch->program[before], *b = &ch->program[i];
    return a->instruction == b->instruction && a->group == b->group;
}

/* A W that no phase has yet: how many records come with it, 0 or 1. */
static inline uint32_t q_is_record(const q_channel *ch, const q_cut *t, int k)
{
    return !q_goes_on(ch, k > 0 ? t->waiting[k - 1] : Q_NONE, t->waiting[k]);
}

/* Whether what uses a group and an output takes a W that waits: the inputs of that group and those
 * before, the bias of that output. */
static inline bool q_taken(const q_channel *ch, int w, int group, uint32_t out)
{
    const q_command *c = &ch->program[w];
    if (group == INT32_MAX) return true;
    return c->command == PIMHW_CMD_WRMAC16 ? c->out == out : c->group <= group;
}

/* W that wait into the writes of the current phase: beside the MACs of the phase before. */
static inline void q_cut_writes(q_channel *ch, q_cut *t, int group, uint32_t out)
{
    int n_left = 0;
    for (int k = 0; k < t->n_waiting; k++) {
        int w = t->waiting[k];
        if (!q_taken(ch, w, group, out)) {
            t->waiting[n_left++] = w;
            continue;
        }
        ch->program[w].phase = t->phase - 1;
        ch->order_io[ch->n_io++] = w;
    }
    t->n_waiting = n_left;
}

static inline uint32_t q_waiting_records(const q_channel *ch, const q_cut *t, int group,
                                         uint32_t out)
{
    uint32_t n = 0;
    for (int k = 0; k < t->n_waiting; k++)
        if (q_taken(ch, t->waiting[k], group, out)) n += q_is_record(ch, t, k);
    return n;
}

static inline void q_cut_claim(const queues *q, q_channel *ch, q_cut *t, int group, uint32_t out)
{
    uint32_t n_w = q_waiting_records(ch, t, group, out);
    if (t->n_w_records[t->phase] + n_w > q->records) q_new_phase(t);
    t->n_w_records[t->phase] += n_w;
    q_cut_writes(ch, t, group, out);
}

/* One more W; no more than a phase can take ever wait. */
static inline void q_cut_w(const queues *q, q_channel *ch, q_cut *t, int i)
{
    t->waiting[t->n_waiting++] = i;
    if (q_waiting_records(ch, t, INT32_MAX, Q_NO_OUT) <= q->records) return;
    t->n_waiting--;
    q_new_phase(t);
    t->n_w_records[t->phase] = q->records;
    q_cut_writes(ch, t, INT32_MAX, Q_NO_OUT);
    t->waiting[t->n_waiting++] = i;
}

static inline void q_cut_group(const queues *q, q_cut *t, q_command *c)
{
    uint32_t region = q->config.extra_region ? q->config.in_entries : q->config.in_entries / 2;
    if (t->newest_group == Q_NONE || t->m_since_w || t->group_size >= region) {
        t->newest_group++;
        t->group_size = 0;
    }
    t->m_since_w = false;
    t->group_size++;
    c->group = t->tile_group[c->tile] = t->newest_group;
}

static inline void q_cut_m(const queues *q, q_channel *ch, q_cut *t, int i)
{
    q_command *c = &ch->program[i];
    bool reads = c->command == PIMHW_CMD_MAC16 || c->command == PIMHW_CMD_MAC;
    uint32_t region = pimhw_config_outs(&q->config) / 2;
    bool adds = c->command != PIMHW_CMD_EWMUL16;
    bool starts = adds && t->sum_phase[c->out] == Q_NONE;
    c->group = reads ? t->tile_group[c->tile] : Q_NONE;
    bool newer = c->group > t->group_used && t->n_m_records > 0;
    bool full = starts && t->n_sums >= region;
    bool long_one = t->n_m_records == q->records && !q_goes_on(ch, t->last_m_record, i);
    if (newer || full || long_one) q_new_phase(t);
    /* the MACs of the phase before use the region that this group is written to */
    if (c->group > t->group_used + 1 && t->n_m_before > 0) {
        q_cut_claim(q, ch, t, t->group_used + 1, Q_NO_OUT);
        q_new_phase(t);
    }
    q_cut_claim(q, ch, t, c->group, adds ? c->out : Q_NO_OUT);
    if (adds && t->sum_phase[c->out] != t->phase) t->n_sums++;
    if (adds) t->sum_phase[c->out] = t->out_phase[c->out] = t->phase;
    if (!q_goes_on(ch, t->last_m_record, i)) t->n_m_records++;
    c->first = t->last_m_record == Q_NONE;
    t->last_m_record = i;
    if (c->group > t->group_used) t->group_used = c->group;
    t->m_since_w = true;
    c->phase = t->phase;
}

static inline void q_cut_r(const queues *q, q_channel *ch, q_cut *t, int i)
{
    q_command *c = &ch->program[i];
    if (c->command == PIMHW_CMD_RDMAC16) q_cut_claim(q, ch, t, Q_NONE, c->out);
    int after = t->out_phase[c->out] == Q_NONE ? 0 : t->out_phase[c->out] + 1;
    for (;; q_new_phase(t)) {
        int j = t->phase > after ? t->phase : after;
        bool goes_on = q_goes_on(ch, t->last_r[j], i);
        if (!goes_on && t->n_r_records[j] == q->records) continue;
        t->n_r_records[j] += !goes_on;
        t->last_r[j] = i;
        c->phase = j;
        break;
    }
    t->sum_phase[c->out] = Q_NONE;
    ch->order_io[ch->n_io++] = i;
}

/* Ping-pong: puts I/O into its order: phase by phase, reads before writes. */
static inline void q_sort_io(q_channel *ch)
{
    for (int i = 1; i < ch->n_io; i++) {
        int now = ch->order_io[i], j = i;
        const q_command *c = &ch->program[now];
        for (; j > 0; j--) {
            const q_command *before = &ch->program[ch->order_io[j - 1]];
            bool later =
                before->phase > c->phase ||
                (before->phase == c->phase && q_class(before) == RULES_W && q_class(c) == RULES_R);
            if (!later) break;
            ch->order_io[j] = ch->order_io[j - 1];
        }
        ch->order_io[j] = now;
    }
}

static inline void q_cut_all(const queues *q, q_channel *ch, q_cut *t)
{
    q_cut_init(t);
    ch->n_begun = 0;
    for (int i = ch->n_run; i < ch->n; i++) {
        q_command *c = &ch->program[i];
        c->group = Q_NONE;
        if (q_class(c) == RULES_M) {
            q_cut_m(q, ch, t, i);
        } else if (q_class(c) == RULES_R) {
            q_cut_r(q, ch, t, i);
        } else {
            if (c->command == PIMHW_CMD_WRGB) q_cut_group(q, t, c);
            if (c->command == PIMHW_CMD_WRMAC16) t->sum_phase[c->out] = Q_NONE;
            q_cut_w(q, ch, t, i);
        }
    }
    /* writes that nobody used follow the last reads */
    for (int k = 0; k < t->n_waiting; k++) {
        ch->program[t->waiting[k]].phase = t->phase + 1;
        ch->order_io[ch->n_io++] = t->waiting[k];
    }
    q_sort_io(ch);
    memset(ch->n_left, 0, sizeof ch->n_left);
    for (int i = ch->n_run; i < ch->n; i++)
        ch->n_left[ch->program[i].phase + 1]++;
}

/* -------------------------------------------------------------------------- The program */

/* Gives a clock to every command the channel has. */
static inline void q_run_channel(queues *q, uint32_t channel)
{
    q_channel *ch = &q->channels[channel];
    if (ch->n_run == ch->n) return;
    ch->n_io = ch->n_m = ch->at_io = ch->at_m = 0;
    bool ping_pong = q->config.controller == PIMHW_PING_PONG;
    bool two = ping_pong || q->config.controller == PIMHW_DCS;
    for (int i = ch->n_run; i < ch->n; i++)
        if (!two || q_class(&ch->program[i]) == RULES_M)
            ch->order_m[ch->n_m++] = i;
        else if (!ping_pong)
            ch->order_io[ch->n_io++] = i;
    if (ping_pong) q_cut_all(q, ch, &q->cut[channel]);
    q_run_streams(q, ch);
    if (ping_pong) q_begins(q, ch, q->cut[channel].phase + 2, &ch->base);
    ch->n_run = ch->n_dispatched = ch->n;
    ch->n_told = ch->n_events;
}

/* Everything before is on its way; nothing later overtakes it. */
static inline void q_empty(queues *q, uint32_t channel)
{
    q_channel *ch = &q->channels[channel];
    q_run_channel(q, channel);
    if (ch->n_events > 0) ch->emptied_ck = ch->events[ch->n_events - 1].ck;
}

static inline void q_hold(q_channel *ch, uint64_t ck, uint32_t reason)
{
    q_bound hold = {ck, reason};
    if (ck > ch->hold.ck) ch->hold = hold;
}

/* A command of W, M or R: whom it waits for. */
static inline void q_link(const queues *q, q_channel *ch, int i)
{
    q_command *c = &ch->program[i];
    bool writes = c->command == PIMHW_CMD_WRGB;
    bool reads = c->command == PIMHW_CMD_MAC16 || c->command == PIMHW_CMD_MAC;
    int io = q_class(c) != RULES_M;
    q_need(c->tile < Q_ENTRIES && c->out < Q_ENTRIES, "too many entries");
    c->tile_w = writes || reads ? ch->tile_w[c->tile] : Q_NONE;
    c->tile_m = writes ? ch->tile_m[c->tile] : Q_NONE;
    bool none = writes || c->command == PIMHW_CMD_EWMUL16; /* of the output entries */
    c->on_out = none ? Q_NONE : ch->on_out[c->out];
    if (writes) ch->tile_w[c->tile] = i;
    if (reads) ch->tile_m[c->tile] = i;
    if (!none) ch->on_out[c->out] = i;
    int n = ch->n_stream[io]++;
    ch->stream[io][n] = i;
    c->full = n >= q->queue ? ch->stream[io][n - q->queue] : Q_NONE;
}

static inline void q_barrier(queues *q, uint32_t channel, q_command c, uint64_t n)
{
    q_channel *ch = &q->channels[channel];
    q_run_channel(q, channel);
    q_hold(ch, ch->end_ck, PIMHW_WAIT_HOST);
    while (n > 0) {
        q_next next = q_next_in_order(q, ch, &c);
        if (q->config.refresh && next.at.ck >= ch->due_ck) {
            q_refresh(q, ch, next.at.reason);
            continue;
        }
        q_event e = {.ck = next.at.ck, .command = next.command, .reason = next.at.reason};
        if (rules_in(e.command, RULES_ONE_BANK)) e.bank = c.bank;
        if (rules_in(e.command, RULES_NEED_ROWS | RULES_OPENING)) e.row = c.row;
        q_happens(q, ch, &e);
        if (next.command == c.command) n--;
    }
    ch->last_io = ch->last_m = ch->last_any = Q_NONE;
    q_hold(ch, ch->end_ck, PIMHW_WAIT_HOST);
}

static inline void q_add(queues *q, uint32_t channel, const pimhw_instruction *in)
{
    q_channel *ch = &q->channels[channel];
    q_command c = {.command = rules_command(in->kind), .bank = in->bank, .out = in->out};
    c.row = in->kind == PIMHW_AF ? (UINT64_C(1) << 29) + q->af_mode : in->row;
    c.instruction = q->n_instructions;
    c.tile = in->tile;
    c.column = in->column;
    bool column = rules_class[c.command] <= RULES_R;
    if (!column && q->config.controller != PIMHW_IN_ORDER) {
        q_barrier(q, channel, c, in->op_size);
        return;
    }
    for (uint64_t i = 0; i < in->op_size; i++, c.tile++, c.column++) {
        q_need(ch->n < Q_COMMANDS, "too many commands");
        ch->program[ch->n] = c;
        if (column) q_link(q, ch, ch->n);
        ch->n++;
    }
}

/* All channels wait for the end of everything. */
static inline void q_sync(queues *q)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < q->config.n_channels; i++) {
        q_channel *ch = &q->channels[i];
        q_run_channel(q, i);
        if (ch->end_ck > end) end = ch->end_ck;
        if (ch->hold.ck > end) end = ch->hold.ck;
    }
    for (uint32_t i = 0; i < q->config.n_channels; i++)
        q_hold(&q->channels[i], end, PIMHW_WAIT_HOST);
}

static inline void q_epu(queues *q, const pimhw_instruction *in)
{
    q_need(q->n_jobs < Q_JOBS, "too many works of the EPU");
    q_job *job = &q->jobs[q->n_jobs++];
    job->cost_ck =
        (in->op_size + q->config.epu_lanes - 1) / q->config.epu_lanes * q->config.epu_ck_per_op;
    job->ready_ck = 0;
    job->awaited = in->flags & PIMHW_AWAITED;
    for (uint32_t i = 0; i < q->config.n_channels; i++) {
        q_channel *ch = &q->channels[i];
        if (!(in->mask >> i & 1)) continue;
        q_empty(q, i);
        if (ch->end_ck > job->ready_ck) job->ready_ck = ch->end_ck;
    }
}

/* Does the oldest work that is not done. */
static inline void q_epu_serve(queues *q)
{
    q_job *job = &q->jobs[q->n_served];
    if (job->ready_ck > q->epu_free_ck) q->epu_free_ck = job->ready_ck;
    q->epu_free_ck += job->cost_ck;
    q->epu_ck += job->cost_ck;
    q->done_ck[q->n_served++] = q->epu_free_ck;
}

static inline void q_epu_wait(queues *q, uint64_t mask)
{
    int i = q->n_waited;
    while (i < q->n_jobs && !q->jobs[i].awaited)
        i++;
    if (i == q->n_jobs) return;
    q->n_waited = i + 1;
    while (q->n_served <= i)
        q_epu_serve(q);
    for (uint32_t k = 0; k < q->config.n_channels; k++) {
        if (!(mask >> k & 1)) continue;
        q_empty(q, k);
        q_hold(&q->channels[k], q->done_ck[i], PIMHW_WAIT_EPU);
    }
}

static inline void queues_begin(queues *q, const pimhw_config *config)
{
    q_need(config->n_channels <= Q_CHANNELS, "too many channels");
    q->config = *config;
    q->queue = 128;
    q->records = 64;
    rules_init(&q->r, config);
    q->af_mode = q->n_instructions = 0;
    q->n_jobs = q->n_served = q->n_waited = 0;
    q->epu_free_ck = q->epu_ck = 0;
    for (uint32_t i = 0; i < config->n_channels; i++) {
        q_channel *ch = &q->channels[i];
        rules_past_init(&ch->past, config);
        ch->n = ch->n_run = ch->n_events = ch->n_told = ch->n_dispatched = 0;
        ch->hold.ck = ch->end_ck = ch->bus_ck = ch->mac_stream_ck = ch->emptied_ck = 0;
        ch->hold.reason = PIMHW_WAIT_HOST;
        ch->due_ck = config->refresh_phase;
        ch->base = ch->hold;
        ch->register_mode = false;
        ch->last_io = ch->last_m = ch->last_any = Q_NONE;
        ch->n_stream[0] = ch->n_stream[1] = 0;
        for (int k = 0; k < Q_ENTRIES; k++)
            ch->tile_w[k] = ch->tile_m[k] = ch->on_out[k] = Q_NONE;
        memset(ch->commands, 0, sizeof ch->commands);
    }
}

static inline void queues_submit(queues *q, const pimhw_instruction *in)
{
    bool in_order = q->config.controller == PIMHW_IN_ORDER;
    switch (in->kind) {
    case PIMHW_EWADD:
    case PIMHW_GPR: break;
    case PIMHW_CFR:
        if (!in_order) q_sync(q);
        if (in->out == 1 && in->aux == 2) q->af_mode = in->gpr;
        break;
    case PIMHW_SYNC:
    case PIMHW_EOC: q_sync(q); break;
    case PIMHW_EPU: q_epu(q, in); break;
    case PIMHW_EPU_WAIT: q_epu_wait(q, in->mask); break;
    default:
        for (uint32_t i = 0; i < q->config.n_channels; i++)
            if (in->mask >> i & 1) q_add(q, i, in);
    }
    q->n_instructions++;
}

static inline void queues_finish(queues *q)
{
    memset(q->commands, 0, sizeof q->commands);
    q->critical = 0;
    for (uint32_t i = 0; i < q->config.n_channels; i++) {
        q_run_channel(q, i);
        if (q->channels[i].end_ck > q->channels[q->critical].end_ck) q->critical = i;
        for (int k = 0; k < PIMHW_N_COMMANDS; k++)
            q->commands[k] += q->channels[i].commands[k];
    }
    while (q->n_served < q->n_jobs)
        q_epu_serve(q);
    const q_channel *ch = &q->channels[q->critical];
    q->cycles = ch->end_ck > q->epu_free_ck ? ch->end_ck : q->epu_free_ck;
    memset(q->breakdown_ck, 0, sizeof q->breakdown_ck);
    q_charge(q, ch, q->breakdown_ck);
    q->breakdown_ck[PIMHW_WAIT_EPU] += q->cycles - ch->end_ck;
}

#endif
