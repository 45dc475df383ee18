/* The public AiM simulator once more, clock by clock and channel by channel, straight from its
 * rules (../shared/oracle/aim-rules.md, sections 2 and 3); and random traces, of which the
 * library's listing must be the same command by command. Shares nothing with pim_hw.h but names,
 * nor with rules.h, whose formulas must come to the same numbers. */
#define PIMHW_IMPLEMENTATION
#include "pim_hw.h"

#include "check.h"
#include "rules.h"

enum { CHANNELS = 32, BANKS = 16, GROUP_BANKS = 4 };
enum { MOST_WAITING = 512, MOST_ISSUED = 1 << 14, MOST_LINES = 1 << 13, MOST_CK = 1 << 20 };

/* What a channel is asked for: a command, or (SYNC and EOC) to be done. */
enum { DONE = PIMHW_N_COMMANDS };

/* -------------------------------------------------------------------------- Device rules */

enum {
    ACT16 = 1 << PIMHW_CMD_ACT16,
    PREA = 1 << PIMHW_CMD_PREA,
    MAC16 = 1 << PIMHW_CMD_MAC16,
    WRGB = 1 << PIMHW_CMD_WRGB,
    WRMAC16 = 1 << PIMHW_CMD_WRMAC16,
    RDMAC16 = 1 << PIMHW_CMD_RDMAC16,
    TMOD = 1 << PIMHW_CMD_TMOD,
    EWMUL16 = 1 << PIMHW_CMD_EWMUL16,
    AF16 = 1 << PIMHW_CMD_AF16,
    WRA16 = 1 << PIMHW_CMD_WRA16,
    RDAF16 = 1 << PIMHW_CMD_RDAF16,
    ACT = 1 << PIMHW_CMD_ACT,
    PRE = 1 << PIMHW_CMD_PRE,
    RD = 1 << PIMHW_CMD_RD,
    WR = 1 << PIMHW_CMD_WR,
    MAC = 1 << PIMHW_CMD_MAC,
    RDCP = 1 << PIMHW_CMD_RDCP,
    WRCP = 1 << PIMHW_CMD_WRCP,
    REF = 1 << PIMHW_CMD_REF,
    EVERY = (1 << PIMHW_N_COMMANDS) - 1,
    RESULTS = RDMAC16 | RDAF16,
    ONE_BANK = ACT | PRE | RD | WR | MAC | RDCP | WRCP,
    ALL_BANKS = MAC16 | EWMUL16 | AF16 | WRA16, /* with a row open */
    REGISTERS = WRGB | WRMAC16 | RESULTS,
    DATA_IN = WR | WRA16 | WRGB | WRMAC16,
    UNITS = RESULTS | MAC16 | EWMUL16,
    WIDE_WRITES = WRA16 | WRMAC16 | EWMUL16,
    OPENING = ACT | ACT16
};

enum { OF_CHANNEL, OF_GROUP, OF_BANK, N_SCOPES };

/* Section 2a, line by line: commands `to` come no earlier than so many clocks after `from`. */
static const struct {
    uint8_t scope, gap_ck;
    int from, to;
} published[] = {
    {OF_CHANNEL, 2, RD | RESULTS, RD | RESULTS},
    {OF_CHANNEL, 2, DATA_IN, DATA_IN},
    {OF_CHANNEL, 2, RD | MAC | MAC16 | RDCP | RESULTS, RD | MAC | MAC16 | RDCP | RESULTS},
    {OF_CHANNEL, 2, DATA_IN | WRCP, DATA_IN | WRCP},
    {OF_CHANNEL, 2, RD | MAC | RDCP | UNITS, UNITS},
    {OF_CHANNEL, 2, UNITS, RD | MAC | RDCP | UNITS},
    {OF_CHANNEL, 2, WR | WRCP | WIDE_WRITES, WIDE_WRITES},
    {OF_CHANNEL, 2, WIDE_WRITES, WR | WRCP | WIDE_WRITES},
    {OF_CHANNEL, 50, RD, WR | WRA16},
    {OF_CHANNEL, 55, RD, WRGB | WRMAC16},
    {OF_CHANNEL, 5, RESULTS, WRGB | WRMAC16},
    {OF_CHANNEL, 17, WR, RD},
    {OF_CHANNEL, 19, WR, RESULTS},
    {OF_CHANNEL, 19, WRA16, RD | RESULTS},
    {OF_CHANNEL, 12, WRGB, RD | RESULTS},
    {OF_CHANNEL, 14, WRMAC16, RD | RESULTS},
    {OF_CHANNEL, 12, RD | RDCP | MAC, PREA},
    {OF_CHANNEL, 12, MAC16 | AF16, PREA | PRE},
    {OF_CHANNEL, 39, EWMUL16, PREA | PRE},
    {OF_CHANNEL, 41, WR | WRCP, PREA},
    {OF_CHANNEL, 5, ACT, ACT},
    {OF_CHANNEL, 89, OPENING, ACT16},
    {OF_CHANNEL, 89, ACT16, ACT},
    {OF_CHANNEL, 54, OPENING, PREA},
    {OF_CHANNEL, 54, ACT16, PRE},
    {OF_CHANNEL, 32, PRE | PREA, ACT16},
    {OF_CHANNEL, 32, PREA, ACT | PREA | PRE},
    {OF_CHANNEL, 32, PRE, PREA},
    {OF_CHANNEL, 56, OPENING, MAC16},
    {OF_CHANNEL, 86, OPENING, AF16},
    {OF_CHANNEL, 25, OPENING, EWMUL16},
    {OF_CHANNEL, 28, OPENING, WRA16},
    {OF_CHANNEL, 56, ACT16, MAC},
    {OF_CHANNEL, 66, ACT16, RDCP},
    {OF_CHANNEL, 36, ACT16, RD},
    {OF_CHANNEL, 28, ACT16, WR},
    {OF_CHANNEL, 48, ACT16, WRCP},
    {OF_CHANNEL, 73, WRA16, OPENING},
    {OF_CHANNEL, 32, TMOD, EVERY - TMOD},
    {OF_CHANNEL, 73, WRA16, REF}, /* refresh is not the simulator's but ours */
    {OF_CHANNEL, 32, PRE | PREA, REF},
    {OF_CHANNEL, 210, REF, EVERY},
    {OF_GROUP, 2, RD | MAC | RDCP, RD | MAC | RDCP},
    {OF_GROUP, 2, WR | WRCP, WR | WRCP},
    {OF_GROUP, 19, WR, RD},
    {OF_GROUP, 6, ACT, ACT},
    {OF_BANK, 56, ACT, MAC},
    {OF_BANK, 66, ACT, RDCP},
    {OF_BANK, 36, ACT, RD},
    {OF_BANK, 48, ACT, WRCP},
    {OF_BANK, 28, ACT, WR},
    {OF_BANK, 54, ACT, PRE},
    {OF_BANK, 89, ACT, ACT},
    {OF_BANK, 12, RD | RDCP | MAC, PRE},
    {OF_BANK, 41, WR | WRCP, PRE},
    {OF_BANK, 32, PRE, ACT | PRE},
};
enum { N_RULES = sizeof published / sizeof *published };

static uint64_t gaps[N_SCOPES][PIMHW_N_COMMANDS][PIMHW_N_COMMANDS];

static void gaps_init(void)
{
    memset(gaps, 0, sizeof gaps);
    for (int i = 0; i < N_RULES; i++)
        for (int from = 0; from < PIMHW_N_COMMANDS; from++)
            for (int to = 0; to < PIMHW_N_COMMANDS; to++) {
                uint64_t *gap = &gaps[published[i].scope][from][to];
                bool named = published[i].from >> from & 1 && published[i].to >> to & 1;
                if (named && published[i].gap_ck > *gap) *gap = published[i].gap_ck;
            }
}

static bool in(uint32_t command, int set)
{
    return set >> command & 1;
}

static uint64_t latency_ck(uint32_t command)
{
    if (in(command, RD)) return 52;
    if (in(command, WR)) return 8;
    if (in(command, WRA16)) return 40;
    if (in(command, WRGB | WRMAC16)) return 3;
    return in(command, RESULTS) ? 2 : 1;
}

/* -------------------------------------------------------------------------- A channel */

typedef struct request {
    uint32_t command, bank, row;
    bool blocks;
    uint64_t arrival_ck, depart_ck;
} request;

typedef struct list {
    request at[MOST_WAITING];
    uint32_t n;
} list;

typedef struct issued {
    uint64_t ck;
    uint32_t command, bank, row;
} issued;

typedef struct channel {
    uint64_t ck;
    bool register_mode, write_mode;
    uint32_t open[BANKS]; /* row + 1; 0: closed */
    uint64_t channel_ck[PIMHW_N_COMMANDS], group_ck[BANKS / GROUP_BANKS][PIMHW_N_COMMANDS],
        bank_ck[BANKS][PIMHW_N_COMMANDS]; /* a command may come from here on */
    list pim, queue[2], active, answers;
    uint64_t written_ck; /* the last pending write leaves */
    uint64_t n_left;     /* requests of the instruction being decoded that found no room */
    uint64_t due_ck;     /* of the next refresh */
    uint64_t wanted_ck;  /* an access would have gone then but for the last one */
    uint32_t n_issued;
    issued issued[MOST_ISSUED];
} channel;

static channel channels[CHANNELS];
static uint32_t n_entries;                /* of every queue */
static uint64_t refresh_ck, refreshes_ck; /* the first refresh, and from one to the next; 0: none */
static uint64_t n_blocking;               /* requests whose answer the host waits for */

static void bound(bool ok, const char *what)
{
    if (ok) return;
    printf("oracle_ticks: %s\n", what);
    exit(1);
}

static void append(list *l, const request *r)
{
    bound(l->n < MOST_WAITING, "too many requests");
    l->at[l->n++] = *r;
}

static void erase(list *l, uint32_t at)
{
    memmove(&l->at[at], &l->at[at + 1], (--l->n - at) * sizeof *l->at);
}

/* Whether the channel accepts a request in this clock. */
static bool accept(channel *ch, request r)
{
    bool ordinary = in(r.command, RD | WR);
    list *l = ordinary ? &ch->queue[in(r.command, WR)] : &ch->pim;
    if (ordinary ? ch->pim.n > 0 : ch->queue[0].n + ch->queue[1].n > 0) return false;
    if (in(r.command, RD) && ch->queue[1].n > 0) { /* forwarded, whatever the address */
        r.depart_ck = ch->ck + 1;
        append(&ch->answers, &r);
        return true;
    }
    if (l->n == n_entries) return false;
    r.arrival_ck = ch->ck;
    append(l, &r);
    return true;
}

/* The request's own command, or what its row needs before. */
static uint32_t needed(const channel *ch, const request *r)
{
    bool any_closed = false;
    if (in(r->command, ONE_BANK)) {
        if (!ch->open[r->bank]) return PIMHW_CMD_ACT;
        return ch->open[r->bank] == r->row + 1 ? r->command : (uint32_t)PIMHW_CMD_PRE;
    }
    if (!in(r->command, ALL_BANKS)) return r->command;
    for (int i = 0; i < BANKS; i++) {
        if (ch->open[i] && ch->open[i] != r->row + 1) return PIMHW_CMD_PREA;
        any_closed |= !ch->open[i];
    }
    return any_closed ? (uint32_t)PIMHW_CMD_ACT16 : r->command;
}

/* When the device lets the next command of a request go. */
static uint64_t ready_ck(const channel *ch, const request *r)
{
    uint32_t command = needed(ch, r);
    uint64_t ck = ch->channel_ck[command];
    if (!in(command, ONE_BANK)) return ck;
    uint64_t group_ck = ch->group_ck[r->bank / GROUP_BANKS][command];
    uint64_t bank_ck = ch->bank_ck[r->bank][command];
    if (group_ck > ck) ck = group_ck;
    return bank_ck > ck ? bank_ck : ck;
}

static bool ready(const channel *ch, const request *r)
{
    return ch->ck < ch->due_ck && ready_ck(ch, r) <= ch->ck;
}

static void hold(uint64_t *from_ck, const uint64_t *gap_ck, uint64_t ck)
{
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        if (gap_ck[i] && ck + gap_ck[i] > from_ck[i]) from_ck[i] = ck + gap_ck[i];
}

static void issue(channel *ch, uint32_t command, const request *r)
{
    bool one = in(command, ONE_BANK), has_row = in(command, OPENING | RD | WR | MAC | RDCP | WRCP);
    bound(ch->n_issued < MOST_ISSUED, "too many commands");
    issued *e = &ch->issued[ch->n_issued++];
    e->ck = ch->ck;
    e->command = command;
    e->bank = one ? r->bank : 0;
    e->row = has_row || in(command, ALL_BANKS) ? r->row : 0;
    hold(ch->channel_ck, gaps[OF_CHANNEL][command], ch->ck);
    if (one) hold(ch->group_ck[r->bank / GROUP_BANKS], gaps[OF_GROUP][command], ch->ck);
    if (one) hold(ch->bank_ck[r->bank], gaps[OF_BANK][command], ch->ck);
    if (in(command, ACT | PRE)) ch->open[r->bank] = in(command, ACT) ? r->row + 1 : 0;
    for (int i = 0; i < BANKS && in(command, ACT16 | PREA | WRA16); i++)
        ch->open[i] = in(command, ACT16) ? r->row + 1 : 0;
}

/* Ready first, then oldest. */
static uint32_t best(const channel *ch, const list *l, bool *found)
{
    uint32_t at = 0;
    *found = false;
    for (uint32_t i = 0; i < l->n; i++) {
        if (!ready(ch, &l->at[i])) continue;
        if (!*found || l->at[i].arrival_ck < l->at[at].arrival_ck) at = i;
        *found = true;
    }
    return at;
}

/* Answers leave in their order, one a clock; that of SYNC only if no write was pending. */
static void answer(channel *ch)
{
    const request *head = ch->answers.at;
    if (ch->answers.n == 0 || head->depart_ck > ch->ck) return;
    if (head->command == DONE && ch->written_ck >= ch->ck) return;
    n_blocking -= head->blocks;
    erase(&ch->answers, 0);
}

static void serve(channel *ch, list *l, uint32_t at)
{
    request r = l->at[at];
    uint32_t command = needed(ch, &r);
    for (uint32_t i = 0; i < ch->active.n && in(command, PRE); i++)
        if (ch->active.at[i].bank == r.bank) return;
    if (ch->register_mode != in(command, REGISTERS)) {
        ch->register_mode = !ch->register_mode;
        issue(ch, PIMHW_CMD_TMOD, &r);
        return;
    }
    issue(ch, command, &r);
    if (command == r.command) {
        r.depart_ck = ch->ck + latency_ck(command);
        erase(l, at);
        if (in(command, RD | RESULTS))
            append(&ch->answers, &r);
        else if (r.depart_ck > ch->written_ck)
            ch->written_ck = r.depart_ck;
    } else if (in(command, ACT) && (l == &ch->queue[0] || l == &ch->queue[1])) {
        erase(l, at);
        append(&ch->active, &r);
    }
}

static list *ordinary_queue(channel *ch)
{
    uint32_t n_reads = ch->queue[0].n, n_writes = ch->queue[1].n;
    uint32_t size = n_entries - 1;
    if (!ch->write_mode)
        ch->write_mode = n_reads == 0 || 10 * n_writes > 8 * size; /* more than 25.6 of 33 */
    else if (n_reads > 0 && 10 * n_writes < 2 * size)              /* less than 6.4 */
        ch->write_mode = false;
    return &ch->queue[ch->write_mode];
}

/* A refresh that is due: rows are closed, REF follows, and nothing else meanwhile. */
static void refresh(channel *ch)
{
    static const request none = {0};
    bool any_open = false, begins = ch->ck == ch->due_ck;
    if (begins) ch->wanted_ck = UINT64_MAX;
    for (uint32_t i = 0; i < ch->active.n && begins; i++)
        if (ready_ck(ch, &ch->active.at[i]) < ch->wanted_ck)
            ch->wanted_ck = ready_ck(ch, &ch->active.at[i]);
    for (int i = 0; i < BANKS; i++)
        any_open |= ch->open[i] > 0;
    uint32_t command = any_open ? PIMHW_CMD_PREA : PIMHW_CMD_REF;
    if (ch->channel_ck[command] > ch->ck) return;
    issue(ch, command, &none);
    if (!any_open) ch->due_ck += refreshes_ck;
}

static void tick(channel *ch)
{
    bool found;
    list *l = &ch->active;
    ch->ck++;
    answer(ch);
    if (ch->ck >= ch->due_ck) refresh(ch);
    uint32_t at = best(ch, l, &found);
    if (!found && ch->pim.n > 0 && ch->pim.at[0].command == DONE) {
        ch->pim.at[0].depart_ck = ch->ck;
        append(&ch->answers, &ch->pim.at[0]);
        erase(&ch->pim, 0);
        return;
    }
    if (!found && ch->pim.n > 0) {
        l = &ch->pim;
        at = 0;
        found = ready(ch, &l->at[at]);
    } else if (!found) {
        l = ordinary_queue(ch);
        at = best(ch, l, &found);
    }
    if (found) serve(ch, l, at);
}

/* -------------------------------------------------------------------------- The host */

/* The command of a kind; -1: the host alone is busy. */
static int command_of(pimhw_kind kind)
{
    uint32_t command = rules_command(kind);
    if (kind == PIMHW_SYNC || kind == PIMHW_EOC) return DONE;
    return command < PIMHW_N_COMMANDS ? (int)command : -1;
}

static uint32_t af_mode; /* CFR 2 */

static request request_of(const pimhw_instruction *line)
{
    request r = {.command = (uint32_t)command_of(line->kind), .bank = line->bank, .row = line->row};
    if (line->kind == PIMHW_AF) r.row = (1u << 29) + af_mode;
    r.blocks = r.command == DONE || in(r.command, RESULTS);
    return r;
}

/* Asks the channels of one instruction; true if some request found no room. */
static bool decode(const pimhw_instruction *line)
{
    bool any_left = false;
    if (line->kind == PIMHW_CFR && line->out == 1 && line->aux == 2) af_mode = line->gpr;
    if (command_of(line->kind) < 0) return false;
    request r = request_of(line);
    for (int i = 0; i < CHANNELS; i++) {
        channel *ch = &channels[i];
        if (r.command != DONE && !(line->mask >> i & 1)) continue;
        ch->n_left = line->op_size;
        while (ch->n_left && accept(ch, r))
            ch->n_left--;
        any_left |= ch->n_left > 0;
        if (r.blocks) n_blocking++;
    }
    return any_left;
}

/* Asks again; true if there still is no room for some. */
static bool retry(const pimhw_instruction *line)
{
    bool any_left = false;
    request r = request_of(line);
    for (int i = 0; i < CHANNELS; i++) {
        while (channels[i].n_left && accept(&channels[i], r))
            channels[i].n_left--;
        any_left |= channels[i].n_left > 0;
    }
    return any_left;
}

static void channel_init(channel *ch)
{
    ch->ck = ch->written_ck = ch->n_left = 0;
    ch->register_mode = ch->write_mode = false;
    ch->due_ck = refreshes_ck ? refresh_ck : UINT64_MAX;
    ch->wanted_ck = UINT64_MAX;
    ch->pim.n = ch->queue[0].n = ch->queue[1].n = ch->active.n = ch->answers.n = ch->n_issued = 0;
    memset(ch->open, 0, sizeof ch->open);
    memset(ch->channel_ck, 0, sizeof ch->channel_ck);
    memset(ch->group_ck, 0, sizeof ch->group_ck);
    memset(ch->bank_ck, 0, sizeof ch->bank_ck);
}

/* At the end of a run a refresh that an access had met is brought to its end; one that nobody met
 * did not take place. */
static void end_refresh(channel *ch)
{
    bool met = ch->wanted_ck <= ch->ck;
    while (met && ch->ck++ >= ch->due_ck)
        refresh(ch);
    while (!met && refreshes_ck && ch->n_issued > 0 &&
           in(ch->issued[ch->n_issued - 1].command, PREA | REF))
        ch->n_issued--;
}

/* Runs a trace; returns its cycles. Its listing is in the channels. */
static uint64_t simulate(const pimhw_instruction *lines, size_t n)
{
    bool any_left = false;
    uint64_t ck = 0;
    size_t at = 0;
    n_blocking = 0;
    af_mode = 0;
    for (int i = 0; i < CHANNELS; i++)
        channel_init(&channels[i]);
    for (; at < n || any_left || n_blocking; ck++) {
        bound(ck < MOST_CK, "a trace does not end");
        if (any_left)
            any_left = retry(&lines[at - 1]);
        else if (n_blocking == 0 && at < n)
            any_left = decode(&lines[at++]);
        for (int i = 0; i < CHANNELS; i++)
            tick(&channels[i]);
    }
    for (int i = 0; i < CHANNELS; i++) {
        const channel *ch = &channels[i];
        end_refresh(&channels[i]);
        if (refreshes_ck && ch->n_issued > 0 && ch->issued[ch->n_issued - 1].ck > ck)
            ck = ch->issued[ch->n_issued - 1].ck; /* no command comes after the end */
    }
    return ck;
}

/* -------------------------------------------------------------------------- The comparison */

static pimhw_instruction trace[MOST_LINES];
static size_t n_lines;
static pimhw_device *device;
static uint64_t n_compared[PIMHW_N_COMMANDS];

/* The library's listing against that in the channels. */
typedef struct judge {
    uint32_t n[CHANNELS];
    uint64_t count[PIMHW_N_COMMANDS];
    bool differs;
    pimhw_event first; /* that differs */
} judge;

static void judge_event(void *user, const pimhw_event *e)
{
    judge *j = (judge *)user;
    const channel *ch = &channels[e->channel];
    uint32_t at = j->n[e->channel]++;
    const issued *want = &ch->issued[at < ch->n_issued ? at : 0];
    j->count[e->command]++;
    if (j->differs) return;
    j->differs = at >= ch->n_issued || want->ck != e->issue_ck ||
                 want->command != (uint32_t)e->command || want->bank != e->bank ||
                 want->row != e->row;
    j->first = *e;
}

static void explain(const judge *j)
{
    const pimhw_event *e = &j->first;
    const channel *ch = &channels[e->channel];
    if (!j->differs) return;
    printf("  channel %u: %s at %llu, bank %u, row %u", e->channel, pimhw_command_str(e->command),
           (unsigned long long)e->issue_ck, e->bank, e->row);
    if (j->n[e->channel] > ch->n_issued || ch->n_issued == 0) {
        printf(": the oracle has fewer commands\n");
        return;
    }
    for (uint32_t i = 0; i < ch->n_issued; i++) {
        const issued *w = &ch->issued[i];
        if (w->ck < e->issue_ck && i + 1 < ch->n_issued) continue;
        printf("; the oracle near it: %s at %llu, bank %u, row %u\n",
               pimhw_command_str((pimhw_command)w->command), (unsigned long long)w->ck, w->bank,
               w->row);
        return;
    }
}

/* Whether library and oracle agree on the trace; quiet: without a word if not. */
static bool agrees(bool quiet)
{
    static judge j;
    uint64_t count[PIMHW_N_COMMANDS] = {0}, cycles = simulate(trace, n_lines);
    pimhw_sink sink = {judge_event, &j, NULL};
    pimhw_readings r;
    pimhw_cause why = {""};
    memset(&j, 0, sizeof j);
    bool ok = pimhw_device_begin(device, &sink) == PIMHW_OK;
    for (size_t i = 0; i < n_lines && ok; i++)
        ok = pimhw_device_submit(device, &trace[i], &why) == PIMHW_OK;
    ok = ok && pimhw_device_finish(device, &r, &why) == PIMHW_OK;
    if (!ok) return CHECK_STR(why.text, "a trace that the device takes");
    for (int i = 0; i < CHANNELS; i++) {
        ok &= j.n[i] == channels[i].n_issued;
        for (uint32_t k = 0; k < channels[i].n_issued; k++)
            count[channels[i].issued[k].command]++;
    }
    ok &= !j.differs && r.cycles == cycles;
    ok &= memcmp(count, r.commands, sizeof count) == 0 && memcmp(count, j.count, sizeof count) == 0;
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        n_compared[i] += count[i];
    if (ok || quiet) return ok;
    CHECK_U(r.cycles, cycles);
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        CHECK_U(r.commands[i], count[i]);
    explain(&j);
    bool same_listing = false;
    return CHECK(same_listing);
}

/* -------------------------------------------------------------------------- Random traces */

typedef struct recipe {
    check_rng rng;
    uint64_t mask[4]; /* that instructions address; mem: channels of MEM */
    uint64_t mem[4];
    uint32_t n_mems, n_banks, n_rows, n_sizes, weight[20];
    const uint64_t *sizes;
} recipe;

static uint32_t draw(recipe *p, uint32_t n)
{
    return (uint32_t)rng_range(&p->rng, 0, n - 1);
}

static void add(recipe *p, pimhw_kind kind, uint64_t mask, uint64_t op_size)
{
    bound(n_lines < MOST_LINES, "too many lines");
    pimhw_instruction line = {.kind = kind, .mask = mask, .op_size = op_size};
    int command = command_of(kind);
    if (command >= 0 && command != DONE && in((uint32_t)command, ONE_BANK))
        line.bank = draw(p, p->n_banks);
    if (command >= 0 && command != DONE && in((uint32_t)command, ONE_BANK | (ALL_BANKS - AF16)))
        line.row = draw(p, p->n_rows);
    if (kind == PIMHW_CFR) {
        line.out = 1;
        line.aux = 2;
        line.gpr = draw(p, 3);
    }
    trace[n_lines++] = line;
}

/* Host accesses to some channels; write 2: reads and writes mixed. */
static void add_burst(recipe *p, uint32_t write)
{
    static const uint32_t lengths[] = {1, 3, 8, 40, 50, 70};
    for (uint32_t n = lengths[draw(p, 6)]; n > 0; n--) {
        bool writes = write == 2 ? draw(p, 2) : write;
        add(p, writes ? PIMHW_MEM_WR : PIMHW_MEM_RD, p->mem[draw(p, p->n_mems)], 1);
    }
}

/* The operations of the LCG mixes (section 5d), reads and writes mixed, and two of the host. */
static void add_step(recipe *p)
{
    static const pimhw_kind kinds[20] = {
        PIMHW_MEM_RD, PIMHW_MEM_WR, PIMHW_N_KINDS, PIMHW_WR_SBK,    PIMHW_RD_SBK,
        PIMHW_WR_ABK, PIMHW_WR_GB,  PIMHW_WR_BIAS, PIMHW_RD_MAC,    PIMHW_RD_AF,
        PIMHW_AF,     PIMHW_EWMUL,  PIMHW_MAC_ABK, PIMHW_COPY_BKGB, PIMHW_COPY_GBBK,
        PIMHW_SYNC,   PIMHW_EWADD,  PIMHW_GPR,     PIMHW_CFR,       PIMHW_MAC_SBK};
    uint32_t total = 0, op = 0;
    for (int i = 0; i < 20; i++)
        total += p->weight[i];
    for (uint32_t at = draw(p, total); at >= p->weight[op]; op++)
        at -= p->weight[op];
    pimhw_kind kind = kinds[op];
    bool sized = kind == PIMHW_WR_GB || kind == PIMHW_EWMUL || kind == PIMHW_MAC_ABK ||
                 kind == PIMHW_MAC_SBK || kind == PIMHW_COPY_BKGB || kind == PIMHW_COPY_GBBK;
    if (op < 3)
        add_burst(p, kind == PIMHW_N_KINDS ? 2 : kind == PIMHW_MEM_WR);
    else if (kind == PIMHW_WR_ABK)
        add(p, kind, p->mem[draw(p, p->n_mems)], 1);
    else
        add(p, kind, p->mask[draw(p, 4)], sized ? p->sizes[draw(p, p->n_sizes)] : 1);
}

static void add_steps(recipe *p, uint32_t n)
{
    n_lines = 0;
    while (n-- > 0)
        add_step(p);
    add(p, PIMHW_EOC, UINT32_MAX, 1);
}

/* Two to four channels and all, few banks and rows, sizes around what a queue holds. */
static void dense_trace(uint64_t seed)
{
    static const uint64_t sizes[] = {1, 1, 2, 3, 5, 31, 32, 33, 34, 35, 40, 64};
    static const uint32_t banks[] = {1, 2, 4, 16}, steps[] = {8, 20, 60};
    recipe p = {.rng = {seed}, .sizes = sizes, .n_sizes = sizeof sizes / sizeof *sizes};
    uint32_t first = draw(&p, CHANNELS - 4);
    p.n_mems = 2 + draw(&p, 3);
    for (uint32_t i = 0; i < p.n_mems; i++)
        p.mem[i] = UINT64_C(1) << (first + i);
    p.mask[0] = p.mem[0];
    p.mask[1] = p.mem[1];
    p.mask[2] = p.mem[p.n_mems - 1] * 2 - p.mem[0];
    p.mask[3] = UINT32_MAX;
    p.n_banks = banks[draw(&p, 4)];
    p.n_rows = 1 + draw(&p, 3);
    for (int i = 0; i < 20; i++)
        p.weight[i] = draw(&p, 3) ? draw(&p, 100) : 0;
    p.weight[draw(&p, 20)] += 10;
    add_steps(&p, steps[draw(&p, 3)]);
}

/* As the mixes of section 5d, with other numbers. */
static void mixed_trace(uint64_t seed)
{
    static const uint64_t sizes[] = {1, 2, 8, 40, 64};
    recipe p = {.rng = {seed}, .sizes = sizes, .n_sizes = 5, .n_banks = BANKS, .n_rows = 3};
    p.mask[0] = p.mask[1] = UINT32_MAX;
    p.mask[2] = 15;
    p.mask[3] = UINT64_C(1) << draw(&p, CHANNELS);
    p.n_mems = 4;
    for (int i = 0; i < 4; i++)
        p.mem[i] = UINT64_C(1) << (i < 2 ? (uint32_t)i : draw(&p, CHANNELS));
    for (int i = 0; i < 20; i++)
        p.weight[i] = 1;
    add_steps(&p, 150);
}

enum { DENSE_TRACES = 1200, MIXED_TRACES = 60, REFRESHED_TRACES = 800, QUEUE_TRACES = 700 };

static void dense_traces_agree(void)
{
    for (uint64_t seed = 1; seed <= DENSE_TRACES; seed++) {
        dense_trace(seed);
        if (!agrees(false)) printf("  in dense trace %llu\n", (unsigned long long)seed);
    }
}

static void mixed_traces_agree(void)
{
    for (uint64_t seed = 1; seed <= MIXED_TRACES; seed++) {
        mixed_trace(seed);
        if (!agrees(false)) printf("  in mixed trace %llu\n", (unsigned long long)seed);
    }
}

/* The same with refresh, which the simulator never does: as often as may be, at any time. */
static void refreshed_traces_agree(void)
{
    pimhw_device *simulators = device;
    for (uint64_t seed = 1; seed <= REFRESHED_TRACES; seed++) {
        pimhw_config c = *pimhw_device_config(simulators);
        check_rng rng = {seed};
        c.refresh = 1;
        c.tREFI = (uint32_t)rng_range(&rng, rules_least_tREFI(c), 2000);
        c.refresh_phase = (uint32_t)rng_range(&rng, 1, 1200);
        if (!CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK)) break;
        refresh_ck = c.refresh_phase;
        refreshes_ck = c.tREFI;
        if (seed % 16)
            dense_trace(seed);
        else
            mixed_trace(seed);
        if (!agrees(false)) printf("  in refreshed trace %llu\n", (unsigned long long)seed);
        pimhw_device_destroy(device);
    }
    device = simulators;
    refreshes_ck = 0;
}

/* Shorter queues and longer ones. Of 5 entries and one, or 10 and one, .., eight and two tenths are
 * whole numbers: a burst of writes begins above the former, and goes on at the latter. */
static void traces_of_other_queues_agree(void)
{
    static const uint32_t entries[] = {2, 6, 11, 16, 21, 31, 64};
    pimhw_device *simulators = device;
    for (uint64_t seed = 1; seed <= QUEUE_TRACES; seed++) {
        pimhw_config c = *pimhw_device_config(simulators);
        n_entries = c.queue_entries = entries[seed % (sizeof entries / sizeof *entries)];
        if (!CHECK_U(pimhw_device_create(&device, &c, NULL), PIMHW_OK)) break;
        dense_trace(seed);
        if (!agrees(false)) printf("  in trace %llu of other queues\n", (unsigned long long)seed);
        pimhw_device_destroy(device);
    }
    device = simulators;
    n_entries = pimhw_device_config(device)->queue_entries;
}

/* After the traces: none of the commands is rare. */
static void traces_hold_every_command(void)
{
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        if (!CHECK(n_compared[i] > 1000)) printf("  %s\n", pimhw_command_str((pimhw_command)i));
}

static uint64_t cycles_of(pimhw_kind kind, uint64_t mask, uint64_t op_size, uint32_t rows)
{
    recipe p = {.n_banks = 1, .n_rows = 1};
    n_lines = 0;
    for (uint32_t i = 0; i < rows; i++) {
        add(&p, kind, mask, op_size);
        trace[i].row = i;
    }
    add(&p, PIMHW_EOC, mask, 1);
    return simulate(trace, n_lines);
}

/* Of section 5: the oracle itself, without the library. */
static void oracle_gives_published_totals(void)
{
    CHECK_U(cycles_of(PIMHW_EOC, 1, 1, 0), 2);
    CHECK_U(cycles_of(PIMHW_MAC_ABK, UINT32_MAX, 64, 100), 100 * 226 - 41);
    CHECK_U(cycles_of(PIMHW_EWMUL, UINT32_MAX, 64, 100), 100 * 222 - 68);
    CHECK_U(cycles_of(PIMHW_WR_ABK, 1, 1, 1024), 103393);
    CHECK_U(cycles_of(PIMHW_COPY_BKGB, UINT32_MAX, 64, 64), 15063);
    CHECK_U(cycles_of(PIMHW_COPY_GBBK, UINT32_MAX, 64, 64), 15738);
    CHECK_U(cycles_of(PIMHW_MAC_SBK, UINT32_MAX, 64, 64), 14423);
    CHECK_U(cycles_of(PIMHW_RD_MAC, UINT32_MAX, 1, 1024), 3106);
    CHECK_U(cycles_of(PIMHW_WR_BIAS, UINT32_MAX, 1, 1024), 2083);
    CHECK_U(cycles_of(PIMHW_MEM_RD, 1, 1, 64), 5610);
    CHECK_U(cycles_of(PIMHW_MEM_WR, 1, 1, 64), 6366);
}

/* The formulas of rules.h, which the checker and the other oracle go by, on this device. */
static void formulas_give_these_numbers(void)
{
    static rules r;
    rules_init(&r, pimhw_device_config(device));
    for (int scope = 0; scope < N_SCOPES; scope++)
        for (int from = 0; from < PIMHW_N_COMMANDS; from++)
            for (int to = 0; to < PIMHW_N_COMMANDS; to++)
                if (!CHECK_U(r.pair[scope][from][to].gap_ck, gaps[scope][from][to]))
                    printf("  scope %d, %s to %s\n", scope, pimhw_command_str((pimhw_command)from),
                           pimhw_command_str((pimhw_command)to));
}

/* Were one constraint a clock longer, some of the traces would tell. */
static void a_clock_more_is_noticed(void)
{
    static const struct {
        int scope;
        pimhw_command from, to;
    } longer[] = {
        {OF_CHANNEL, PIMHW_CMD_RD, PIMHW_CMD_WR},
        {OF_CHANNEL, PIMHW_CMD_WRA16, PIMHW_CMD_ACT},
        {OF_CHANNEL, PIMHW_CMD_EWMUL16, PIMHW_CMD_PRE},
        {OF_CHANNEL, PIMHW_CMD_ACT16, PIMHW_CMD_WRCP},
        {OF_GROUP, PIMHW_CMD_ACT, PIMHW_CMD_ACT},
        {OF_BANK, PIMHW_CMD_WRCP, PIMHW_CMD_PRE},
    };
    for (size_t i = 0; i < sizeof longer / sizeof *longer; i++) {
        bool noticed = false;
        gaps[longer[i].scope][longer[i].from][longer[i].to]++;
        for (uint64_t seed = 1; seed <= DENSE_TRACES && !noticed; seed++) {
            dense_trace(seed);
            noticed = !agrees(true);
        }
        gaps_init();
        if (!CHECK(noticed)) printf("  constraint %zu\n", i);
    }
}

int main(void)
{
    pimhw_config c;
    gaps_init();
    if (pimhw_config_init(&c, "aim-gddr6", NULL) != PIMHW_OK ||
        pimhw_device_create(&device, &c, NULL) != PIMHW_OK)
        return 1;
    n_entries = c.queue_entries;
    RUN(oracle_gives_published_totals);
    RUN(formulas_give_these_numbers);
    RUN(dense_traces_agree);
    RUN(mixed_traces_agree);
    RUN(refreshed_traces_agree);
    RUN(traces_of_other_queues_agree);
    RUN(traces_hold_every_command);
    RUN(a_clock_more_is_noticed);
    pimhw_device_destroy(device);
    return check_end();
}
