/* timeline.c - a program's schedule to look at.
 *
 * Chrome trace JSON (Perfetto opens it) and SVG of one controller, and an HTML page that shows the
 * same program under all of them. The program is a small attention, a stream of PIMphony, or an
 * AiM text trace.
 */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#define EX_NAME "timeline"
#include "common.h"
#include "aim_text.h"
#include "timeline_page.h"

enum { CONTROLLERS = 4, NO_PARTITION = 2, MOST_COMMANDS = 4000000 };

/* --- What the command line says -------------------------------------------------------------- */

typedef struct arguments {
    uint32_t example; /* of EXAMPLES, or none of them */
    const char *trace_path;
    char *trace; /* its text */
    size_t trace_bytes;
    uint32_t n_tokens, group, n_kv_heads, head_dim, partition;
    const char *preset;
    ex_texts sets;
    uint32_t controller; /* CONTROLLERS: as the preset has it */
    bool own_plans, one_plan;
    uint32_t channel; /* PIMHW_MAX_CHANNELS: the critical one */
    bool all_channels;
    uint32_t from_ck, to_ck; /* of the SVG; to_ck 0: to the end */
    const char *json_path, *svg_path, *html_path, *export_path;
    pimhw_config device;
} arguments;

#define EXAMPLES   "attention|fig7|gemv128"
#define CONTROLLED "in-order|static|ping-pong|dcs"
enum { EXAMPLE_ATTENTION = 0, EXAMPLE_FIG7, EXAMPLE_GEMV128, EXAMPLE_NONE };

static void parse(arguments *a, int argc, char **argv)
{
    const ex_option options[] = {
        {.name = "--example",
         .value = EXAMPLES,
         .choice = &a->example,
         .help = "default: attention; the others on one channel"},
        {.name = "--trace",
         .value = "FILE",
         .text = &a->trace_path,
         .help = "an AiM text trace instead; - is standard input"},
        {.name = "--tokens",
         .value = "N",
         .number = &a->n_tokens,
         .min = 1,
         .help = "attention: tokens in the cache; default 1024"},
        {.name = "--group",
         .value = "N",
         .number = &a->group,
         .min = 1,
         .max = 256,
         .help = "query heads of a KV head; default 4"},
        {.name = "--kv-heads",
         .value = "N",
         .number = &a->n_kv_heads,
         .min = 1,
         .max = 256,
         .help = "default 1"},
        {.name = "--head-dim",
         .value = "N",
         .number = &a->head_dim,
         .min = 1,
         .help = "default 128"},
        {.name = "--partition",
         .value = EX_PARTITIONS,
         .choice = &a->partition,
         .help = "default tcp"},
        {.name = "--own-plans",
         .flag = &a->own_plans,
         .help =
             "examples: use each controller's output entries, not those all have; attention does"},
        {.name = "--one-plan",
         .flag = &a->one_plan,
         .help = "attention: one program for all controllers, not each its own"},
        {.name = "--device",
         .value = "PRESET",
         .text = &a->preset,
         .help = "default: as the trace says, else aim-gddr6; of examples aimx"},
        {.name = "--set",
         .value = "FIELD=N",
         .texts = &a->sets,
         .help = "a field of the device; repeatable"},
        {.name = "--controller",
         .value = CONTROLLED,
         .choice = &a->controller,
         .help = "of JSON and SVG; default: as the device has"},
        {.name = "--channel",
         .value = "N",
         .number = &a->channel,
         .max = PIMHW_MAX_CHANNELS - 1,
         .help = "default: the slowest"},
        {.name = "--all-channels", .flag = &a->all_channels, .help = "in the JSON"},
        {.name = "--from", .value = "CK", .number = &a->from_ck, .help = "first clock of the SVG"},
        {.name = "--to", .value = "CK", .number = &a->to_ck, .help = "last clock of the SVG"},
        {.name = "--json", .value = "FILE", .text = &a->json_path, .help = "Chrome trace"},
        {.name = "--svg", .value = "FILE", .text = &a->svg_path, .help = "picture"},
        {.name = "--html", .value = "FILE", .text = &a->html_path, .help = "page, all controllers"},
        {.name = "--export",
         .value = "FILE",
         .text = &a->export_path,
         .help = "the program as an AiM text trace"}};
    ex_options(argc, argv,
               "usage: build/timeline [options]\n"
               "Writes when each command of a PIM program issues, under which controller and why.",
               options, EX_COUNT(options), NULL, 0);
}

/* --- The program ----------------------------------------------------------------------------- */

/* One instruction of a stream and the line of the trace it stands on. */
typedef struct step {
    pimhw_instruction instruction;
    uint64_t line; /* 0: none */
} step;

/* A stream of instructions, or (steps NULL) a program and its request. */
typedef struct work {
    char title[200];
    step *steps;
    size_t n_steps, room;
    pimhw_program program;
    pimhw_request request;
    pimhw_block *blocks;
    uint32_t *order;
    uint32_t list_begin[PIMHW_MAX_CHANNELS + 1];
} work;

static void add_step(work *w, const pimhw_instruction *instruction, uint64_t line)
{
    if (w->n_steps == w->room) {
        size_t room = w->room > 0 ? 2 * w->room : 256;
        step *more = (step *)realloc(w->steps, room * sizeof *more);
        if (more == NULL) ex_die("no memory for %zu instructions", room);
        w->steps = more;
        w->room = room;
    }
    w->steps[w->n_steps].instruction = *instruction;
    w->steps[w->n_steps++].line = line;
}

/* n columns into the buffer from tile 0; n MACs from a column on; one result. */
static void add_write(work *w, uint32_t n)
{
    add_step(w, &(pimhw_instruction){.kind = PIMHW_WR_GB, .mask = 1, .op_size = n}, 0);
}

static void add_output(work *w, uint32_t column, uint32_t n, uint32_t out)
{
    add_step(w,
             &(pimhw_instruction){
                 .kind = PIMHW_MAC_ABK, .mask = 1, .op_size = n, .column = column, .out = out},
             0);
    add_step(w, &(pimhw_instruction){.kind = PIMHW_RD_MAC, .mask = 1, .op_size = 1, .out = out}, 0);
}

/* Three input tiles, two outputs: [PHONY] Fig. 7. */
static void make_fig7(work *w, uint32_t n_outs)
{
    snprintf(w->title, sizeof w->title, "three tiles, two outputs (PIMphony Fig. 7)");
    add_write(w, 3);
    for (uint32_t i = 0; i < 2; i++)
        add_output(w, 3 * i, 3, i % n_outs);
}

/* A 128 x 128 matrix, one row of 16 banks, times a vector: [PHONY] Fig. 8. */
static void make_gemv128(work *w, uint32_t n_outs)
{
    snprintf(w->title, sizeof w->title, "128 x 128 matrix times a vector");
    add_write(w, 8);
    for (uint32_t i = 0; i < 8; i++)
        add_output(w, 8 * i, 8, i % n_outs);
}

static void read_trace(work *w, const arguments *a)
{
    const char *path = a->trace_path;
    uint64_t line = 0;
    snprintf(w->title, sizeof w->title, "%s", path);
    for (size_t at = 0; at < a->trace_bytes;) {
        pimhw_instruction instruction;
        pimhw_cause why = {{0}};
        bool found = false;
        char *text = a->trace + at;
        size_t length = strcspn(text, "\n");
        line++;
        if (at + length < a->trace_bytes && text[length] == 0)
            ex_die("%s: line %" PRIu64 ": a zero byte in the text", path, line);
        text[length] = 0;
        if (ex_aim_parse(text, &instruction, &found, &why) != PIMHW_OK)
            ex_die("%s: line %" PRIu64 ": %s", path, line, why.text);
        if (found) add_step(w, &instruction, line);
        at += length + 1;
    }
    if (w->n_steps == 0) ex_die("%s: no instruction", path);
}

static void make_attention(work *w, const arguments *a, const pimhw_config *device)
{
    pimattn_shape shape = {.n_layers = 1,
                           .n_heads = a->group * a->n_kv_heads,
                           .n_kv_heads = a->n_kv_heads,
                           .head_dim = a->head_dim,
                           .k_type = PIMATTN_F16,
                           .v_type = PIMATTN_F16};
    pimattn_span span = {a->n_tokens, 1};
    pimattn_plan plan;
    pimhw_cause why = {{0}};
    pimattn_status status = pimattn_plan_init(&plan, &shape, device, a->partition,
                                              PIMATTN_BY_KV_HEAD, false, a->group, &why);
    if (status == PIMATTN_OK) status = pimattn_plan_lower(&plan, &w->program, &why);
    if (status != PIMATTN_OK) ex_die("%s: %s", pimattn_status_str(status), why.text);
    size_t n_blocks = pimattn_plan_blocks(&plan, 1);
    w->blocks = (pimhw_block *)ex_alloc(n_blocks, sizeof *w->blocks);
    w->order = (uint32_t *)ex_alloc(n_blocks, sizeof *w->order);
    status = pimattn_plan_request(&plan, &w->request, w->blocks, w->order, w->list_begin, &span, 1,
                                  &why);
    if (status != PIMATTN_OK) ex_die("%s: %s", pimattn_status_str(status), why.text);
    snprintf(w->title, sizeof w->title,
             "attention: %" PRIu32 " tokens, %" PRIu32 " KV head%s, %" PRIu32
             " queries each, head_dim %" PRIu32 ", %s",
             a->n_tokens, a->n_kv_heads, a->n_kv_heads > 1 ? "s" : "", a->group, a->head_dim,
             ex_partition_str(a->partition));
}

/* The program for a controller: of output entries it uses those that all have, or its own. */
static void make_work(work *w, const arguments *a, uint32_t controller)
{
    pimhw_config device = a->device;
    device.controller = controller;
    if (!a->own_plans && device.obuf > device.out_entries) device.obuf = device.out_entries;
    if (!a->own_plans && device.out_entries > device.obuf) device.out_entries = device.obuf;
    if (a->trace_path != NULL)
        read_trace(w, a);
    else if (a->example == EXAMPLE_FIG7)
        make_fig7(w, pimhw_config_outs(&device));
    else if (a->example == EXAMPLE_GEMV128)
        make_gemv128(w, pimhw_config_outs(&device));
    else
        make_attention(w, a, &device);
}

static void release_work(work *w)
{
    free(w->steps);
    free(w->blocks);
    free(w->order);
}

static pimhw_status run_steps(pimhw_device *device, const work *w, const pimhw_sink *sink,
                              pimhw_readings *readings, pimhw_cause *why)
{
    pimhw_cause what = {{0}};
    pimhw_status status = pimhw_device_begin(device, sink);
    for (size_t i = 0; i < w->n_steps && status == PIMHW_OK; i++) {
        status = pimhw_device_submit(device, &w->steps[i].instruction, &what);
        if (status != PIMHW_OK)
            pimhw_cause_write(why, "%s %u: %s", w->steps[i].line > 0 ? "line" : "instruction",
                              w->steps[i].line > 0 ? w->steps[i].line : (uint64_t)i, what.text);
    }
    return status == PIMHW_OK ? pimhw_device_finish(device, readings, why) : status;
}

static pimhw_status run_work(pimhw_device *device, const work *w, const pimhw_sink *sink,
                             pimhw_readings *readings, pimhw_cause *why)
{
    if (w->steps != NULL) return run_steps(device, w, sink, readings, why);
    return pimhw_device_time(device, readings, &w->program, &w->request, sink, why);
}

/* --- Export ---------------------------------------------------------------------------------- */

/* All lines to a file or, to see whether there is a form for them, to none. */
static bool write_work(FILE *file, const work *w, const pimhw_config *config)
{
    ex_aim_trace t = {.file = file};
    if (w->steps == NULL)
        t.status = ex_aim_write_program(&t, config, &w->program, &w->request);
    else
        ex_aim_write_device(&t, config);
    for (size_t i = 0; i < w->n_steps && t.status == PIMHW_OK; i++)
        ex_aim_write(&t, &w->steps[i].instruction);
    if (t.status != PIMHW_OK) ex_die("--export: %s", t.why.text);
    return t.ended;
}

static void export_work(const char *path, const work *w, const pimhw_config *config)
{
    write_work(NULL, w, config);
    FILE *file = ex_open("--export", path);
    if (!write_work(file, w, config)) fprintf(file, "AiM EOC\n");
    ex_close("--export", path, file);
}

/* --- Schedules ------------------------------------------------------------------------------- */

/* Tracks of a channel. From TRACK_BANK on: single banks. */
enum {
    TRACK_IO = 0,
    TRACK_UNITS,
    TRACK_ROWS,
    TRACK_REFRESH,
    TRACK_MODE,
    TRACK_SPENT,
    TRACK_BANK,
    N_TRACKS = TRACK_BANK + PIMHW_MAX_BANKS
};

/* Fields of an event that say something about a command. */
enum { HAS_BANK = 1, HAS_ROW = 2, HAS_COLUMN = 4, HAS_TILE = 8, HAS_OUT = 16 };

/* A command: its track, what its clocks are charged to, the field that says how many. */
typedef struct command_kind {
    uint32_t track;
    pimhw_spent spent;
    const char *occupies;
    uint32_t has;
    const char *letter; /* of a label */
} command_kind;

static const command_kind KINDS[PIMHW_N_COMMANDS] = {
    [PIMHW_CMD_ACT16] = {TRACK_ROWS, PIMHW_SPENT_ACT, "tRCD_MAC", HAS_ROW, "ACT "},
    [PIMHW_CMD_PREA] = {TRACK_ROWS, PIMHW_SPENT_PRE, "tRP", 0, "PRE"},
    [PIMHW_CMD_MAC16] = {TRACK_UNITS, PIMHW_SPENT_MAC, "tCCD_MAC",
                         HAS_ROW | HAS_COLUMN | HAS_TILE | HAS_OUT, "M"},
    [PIMHW_CMD_WRGB] = {TRACK_IO, PIMHW_SPENT_WR_INP, "tCCD_S", HAS_TILE, "W"},
    [PIMHW_CMD_WRMAC16] = {TRACK_IO, PIMHW_SPENT_WR_INP, "tCCD_S", HAS_OUT, "B"},
    [PIMHW_CMD_RDMAC16] = {TRACK_IO, PIMHW_SPENT_RD_OUT, "tCCD_S", HAS_OUT, "R"},
    [PIMHW_CMD_TMOD] = {TRACK_MODE, PIMHW_SPENT_MODE, "tMOD", 0, "mode"},
    [PIMHW_CMD_EWMUL16] = {TRACK_UNITS, PIMHW_SPENT_MAC, "tCCD_S", HAS_ROW, "EWMUL"},
    [PIMHW_CMD_AF16] = {TRACK_UNITS, PIMHW_SPENT_MAC, "tCCD_S", HAS_ROW, "AF"},
    [PIMHW_CMD_WRA16] = {TRACK_IO, PIMHW_SPENT_ACCESS, "tCCD_S", HAS_ROW, "WRA"},
    [PIMHW_CMD_RDAF16] = {TRACK_IO, PIMHW_SPENT_RD_OUT, "tCCD_S", 0, "RDAF"},
    [PIMHW_CMD_REF] = {TRACK_REFRESH, PIMHW_SPENT_REF, "tRFC", 0, "REF"},
    [PIMHW_CMD_ACT] = {TRACK_BANK, PIMHW_SPENT_ACT, "tRCD_MAC", HAS_BANK | HAS_ROW, "ACT "},
    [PIMHW_CMD_PRE] = {TRACK_BANK, PIMHW_SPENT_PRE, "tRP", HAS_BANK, "PRE"},
    [PIMHW_CMD_RD] = {TRACK_BANK, PIMHW_SPENT_ACCESS, "tCCD_S", HAS_BANK | HAS_ROW, "RD"},
    [PIMHW_CMD_WR] = {TRACK_BANK, PIMHW_SPENT_ACCESS, "tCCD_S", HAS_BANK | HAS_ROW, "WR"},
    [PIMHW_CMD_MAC] = {TRACK_BANK, PIMHW_SPENT_MAC, "tCCD_S", HAS_BANK | HAS_ROW, "MAC"},
    [PIMHW_CMD_RDCP] = {TRACK_BANK, PIMHW_SPENT_ACCESS, "tCCD_S", HAS_BANK | HAS_ROW, "RDCP"},
    [PIMHW_CMD_WRCP] = {TRACK_BANK, PIMHW_SPENT_ACCESS, "tCCD_S", HAS_BANK | HAS_ROW, "WRCP"},
};

/* Each is sent once per command of the program, whatever the controller. */
static bool of_the_program(const command_kind *kind)
{
    return kind->spent != PIMHW_SPENT_ACT && kind->spent != PIMHW_SPENT_PRE &&
           kind->spent != PIMHW_SPENT_REF && kind->spent != PIMHW_SPENT_MODE;
}

/* What a category means, and its colour on white and on black; waits are pale. */
typedef struct category {
    const char *words, *light, *dark;
} category;

static const category CATEGORIES[PIMHW_N_SPENT] = {
    [PIMHW_SPENT_WR_INP] = {"writes of inputs and biases", "#3a6fb5", "#78a9e6"},
    [PIMHW_SPENT_MAC] = {"MAC and other work of the units", "#2b8357", "#62c08d"},
    [PIMHW_SPENT_RD_OUT] = {"reads of results", "#b05f18", "#eba55f"},
    [PIMHW_SPENT_ACT] = {"rows being opened", "#7658b3", "#ad92e6"},
    [PIMHW_SPENT_PRE] = {"rows being closed", "#a35c9f", "#d39ad0"},
    [PIMHW_SPENT_MODE] = {"change between register mode and normal mode", "#6d7784", "#98a3b0"},
    [PIMHW_SPENT_ACCESS] = {"reads, writes and copies of rows", "#1c7f88", "#58c0c8"},
    [PIMHW_SPENT_REF] = {"refresh", "#b8403a", "#ea837d"},
    [PIMHW_WAIT_INPUT] = {"for data on its way into the global buffer or the accumulators",
                          "#c6d8f0", "#2b4364"},
    [PIMHW_WAIT_OUTPUT] = {"for a result being read", "#f4dabd", "#5a4225"},
    [PIMHW_WAIT_OPERAND] = {"for a MAC whose result is asked for", "#c6e5d4", "#264c39"},
    [PIMHW_WAIT_ROW] = {"tRAS, tRC, tRTP: the row cannot change yet", "#dcd2f0", "#42365f"},
    [PIMHW_WAIT_REFRESH] = {"for a refresh to end, beyond its own clocks", "#f3cdca", "#5d312e"},
    [PIMHW_WAIT_HOST] = {"for the host to send, or for other channels to be read", "#dce0e6",
                         "#3c434d"},
    [PIMHW_WAIT_EPU] = {"for the hub's softmax", "#efe4ad", "#544a1f"},
    [PIMHW_WAIT_DRAIN] = {"after the last command", "#e6e8eb", "#33393f"},
};

typedef struct command {
    pimhw_event event;
    uint64_t length_ck; /* what it occupies, but at most to the next command of its track */
    uint64_t waited_ck; /* before it: what breakdown_ck counts for its reason */
} command;

/* Clocks that breakdown_ck counts for one category. */
typedef struct span {
    uint64_t from_ck, to_ck;
    uint32_t spent;
} span;

/* What one channel did under one controller. */
typedef struct schedule {
    pimhw_config config;
    pimhw_readings readings;
    bool failed; /* the device cannot do it: why */
    pimhw_cause why;
    uint32_t channel;
    command *commands;
    size_t n_commands, room;
    span *spans;
    size_t n_spans;
    const char *title; /* of the work */
} schedule;

static uint32_t track_of(const pimhw_event *event)
{
    uint32_t track = KINDS[event->command].track;
    return track == TRACK_BANK ? TRACK_BANK + event->bank : track;
}

static const char *track_name(uint32_t track, char text[32])
{
    static const char *const names[TRACK_BANK] = {"I/O bus", "units",       "rows",
                                                  "refresh", "mode change", "clocks spent"};
    if (track < TRACK_BANK) return names[track];
    snprintf(text, 32, "bank %" PRIu32, track - TRACK_BANK);
    return text;
}

/* Tracks that have something on them; returns how many. */
static uint32_t used_tracks(bool used[N_TRACKS], const schedule *s)
{
    uint32_t n = 0;
    memset(used, 0, N_TRACKS * sizeof used[0]);
    used[TRACK_SPENT] = s->n_spans > 0;
    for (size_t i = 0; i < s->n_commands; i++)
        used[track_of(&s->commands[i].event)] = true;
    for (uint32_t track = 0; track < N_TRACKS; track++)
        n += used[track];
    return n;
}

static void keep_command(void *user, const pimhw_event *event)
{
    schedule *s = (schedule *)user;
    if (event->channel != s->channel) return;
    if (s->n_commands == s->room) {
        size_t room = s->room > 0 ? 2 * s->room : 1024;
        if (s->room >= MOST_COMMANDS)
            ex_die("more than %d commands in channel %" PRIu32, (int)MOST_COMMANDS, s->channel);
        command *more = (command *)realloc(s->commands, room * sizeof *more);
        if (more == NULL) ex_die("no memory for %zu commands", room);
        s->commands = more;
        s->room = room;
    }
    s->commands[s->n_commands++].event = *event;
}

static void add_span(schedule *s, uint64_t from_ck, uint64_t to_ck, uint32_t spent)
{
    if (to_ck <= from_ck) return;
    span *last = s->n_spans > 0 ? &s->spans[s->n_spans - 1] : NULL;
    if (last != NULL && last->spent == spent)
        last->to_ck = to_ck;
    else
        s->spans[s->n_spans++] = (span){from_ck, to_ck, spent};
}

/* The clocks from the last command, which occupies busy_ck, to the end. */
static void add_end(schedule *s, uint64_t at_ck, uint64_t busy_ck, uint32_t spent)
{
    uint64_t cycles = s->readings.cycles, drained = 0;
    uint64_t busy_to = at_ck + busy_ck < cycles ? at_ck + busy_ck : cycles;
    for (size_t i = 0; i < s->n_spans; i++)
        if (s->spans[i].spent == PIMHW_WAIT_DRAIN)
            drained += s->spans[i].to_ck - s->spans[i].from_ck;
    uint64_t drain_to = cycles;
    if (s->channel == s->readings.critical_channel)
        drain_to = busy_to + s->readings.breakdown_ck[PIMHW_WAIT_DRAIN] - drained;
    add_span(s, at_ck, busy_to, spent);
    add_span(s, busy_to, drain_to, PIMHW_WAIT_DRAIN);
    add_span(s, drain_to, cycles, PIMHW_WAIT_EPU);
}

/* Fills in lengths, waits and spans, as breakdown_ck counts: first the command, then the wait. */
static void measure(schedule *s)
{
    size_t last_of[N_TRACKS] = {0}; /* index of a track's last command, plus 1 */
    uint64_t at_ck = 0, busy_ck = 0;
    uint32_t spent = 0;
    s->spans = (span *)ex_alloc(2 * s->n_commands + 3, sizeof *s->spans);
    for (size_t i = 0; i < s->n_commands; i++) {
        command *c = &s->commands[i];
        uint64_t issue = c->event.issue_ck;
        size_t *last = &last_of[track_of(&c->event)];
        command *before = *last > 0 ? &s->commands[*last - 1] : c;
        uint32_t occupies = 0;
        pimhw_config_get(&s->config, KINDS[c->event.command].occupies, &occupies, NULL);
        if (before != c && before->length_ck > issue - before->event.issue_ck)
            before->length_ck = issue - before->event.issue_ck;
        *last = i + 1;
        c->length_ck = occupies;
        uint64_t free_ck = at_ck + busy_ck < issue ? at_ck + busy_ck : issue;
        c->waited_ck = issue - free_ck;
        add_span(s, at_ck, free_ck, spent);
        add_span(s, free_ck, issue, c->event.reason);
        at_ck = issue, busy_ck = occupies, spent = KINDS[c->event.command].spent;
    }
    add_end(s, at_ck, busy_ck, spent);
}

/* Runs the program under a controller; the commands of the critical or the wanted channel. */
static void make_schedule(schedule *s, const work *w, const pimhw_config *device,
                          uint32_t controller, uint32_t channel)
{
    pimhw_device *timer = NULL;
    pimhw_sink sink = {keep_command, s, NULL};
    memset(s, 0, sizeof *s);
    s->title = w->title;
    s->config = *device;
    s->config.controller = controller;
    pimhw_status status = pimhw_config_check(&s->config, &s->why);
    if (status == PIMHW_OK) status = pimhw_device_create(&timer, &s->config, &s->why);
    if (status == PIMHW_OK) status = run_work(timer, w, NULL, &s->readings, &s->why);
    s->channel = channel < PIMHW_MAX_CHANNELS ? channel : s->readings.critical_channel;
    if (status == PIMHW_OK) status = run_work(timer, w, &sink, &s->readings, &s->why);
    s->failed = status != PIMHW_OK;
    if (!s->failed) measure(s);
    pimhw_device_destroy(timer);
}

static void release_schedule(schedule *s)
{
    free(s->commands);
    free(s->spans);
}

/* --- Chrome trace ---------------------------------------------------------------------------- */

/* A text as JSON and HTML's scripts have it: quoted, ASCII, no < in it. */
static void json_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (const char *c = text; *c != 0; c++) {
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\' || *c == '<')
            fprintf(file, "\\u%04x", (unsigned)(unsigned char)*c);
        else
            fputc(*c, file);
    }
    fputc('"', file);
}

/* Clocks as microseconds, exact to the picosecond. */
static void json_us(FILE *file, const char *key, uint64_t ck, uint32_t tCK_ps)
{
    uint64_t ps = ck * tCK_ps;
    fprintf(file, ", \"%s\": %" PRIu64 ".%06" PRIu64, key, ps / 1000000, ps % 1000000);
}

static void json_fields(FILE *file, const pimhw_event *event)
{
    uint32_t has = KINDS[event->command].has;
    if (has & HAS_BANK) fprintf(file, ", \"bank\": %" PRIu32, event->bank);
    if (has & HAS_ROW) fprintf(file, ", \"row\": %" PRIu32, event->row);
    if (has & HAS_COLUMN) fprintf(file, ", \"column\": %" PRIu32, event->column);
    if (has & HAS_TILE) fprintf(file, ", \"tile\": %" PRIu32, event->tile);
    if (has & HAS_OUT) fprintf(file, ", \"out\": %" PRIu32, event->out);
}

/* The beginning of an event; numbers from 1 on, for 0 means idle to the readers of traces. */
static void json_open(FILE *file, const schedule *s, uint32_t track, const char *phase,
                      const char *name)
{
    fprintf(file, "{\"ph\": \"%s\", \"pid\": %" PRIu32 ", \"tid\": %" PRIu32 ", \"name\": \"%s\"",
            phase, s->channel + 1, track + 1, name);
}

/* The beginning of an X event, up to its own args. */
static void json_event(FILE *file, const schedule *s, uint32_t track, const char *name,
                       uint64_t from_ck, uint64_t length_ck)
{
    fprintf(file, ",\n");
    json_open(file, s, track, "X", name);
    json_us(file, "ts", from_ck, s->config.tCK_ps);
    json_us(file, "dur", length_ck, s->config.tCK_ps);
    fprintf(file, ", \"args\": {\"clock\": %" PRIu64 ", \"clocks\": %" PRIu64, from_ck, length_ck);
}

/* Names of the channel and of those of its tracks that have events. */
static void json_names(FILE *file, const schedule *s, bool first)
{
    bool used[N_TRACKS];
    used_tracks(used, s);
    fprintf(file, "%s\n", first ? "" : ",");
    json_open(file, s, 0, "M", "process_name");
    fprintf(file, ", \"args\": {\"name\": \"channel %" PRIu32 "\"}}", s->channel);
    for (uint32_t track = 0; track < N_TRACKS; track++) {
        char text[32];
        if (!used[track]) continue;
        fprintf(file, ",\n");
        json_open(file, s, track, "M", "thread_name");
        fprintf(file, ", \"args\": {\"name\": \"%s\"}},\n", track_name(track, text));
        json_open(file, s, track, "M", "thread_sort_index");
        fprintf(file, ", \"args\": {\"sort_index\": %" PRIu32 "}}", track);
    }
}

static void json_channel(FILE *file, const schedule *s, bool first)
{
    json_names(file, s, first);
    for (size_t i = 0; i < s->n_commands; i++) {
        const command *c = &s->commands[i];
        json_event(file, s, track_of(&c->event), pimhw_command_str(c->event.command),
                   c->event.issue_ck, c->length_ck);
        json_fields(file, &c->event);
        fprintf(file, ", \"reason\": \"%s\", \"waited\": %" PRIu64 "}}",
                pimhw_spent_str(c->event.reason), c->waited_ck);
    }
    for (size_t i = 0; i < s->n_spans; i++) {
        const span *p = &s->spans[i];
        json_event(file, s, TRACK_SPENT, pimhw_spent_str((pimhw_spent)p->spent), p->from_ck,
                   p->to_ck - p->from_ck);
        fprintf(file, "}}");
    }
}

static void json_breakdown(FILE *file, const pimhw_readings *r)
{
    fprintf(file, "{");
    for (int i = 0; i < PIMHW_N_SPENT; i++)
        fprintf(file, "%s\"%s\": %" PRIu64, i > 0 ? ", " : "", pimhw_spent_str((pimhw_spent)i),
                r->breakdown_ck[i]);
    fprintf(file, "}");
}

static void write_json(const arguments *a, const schedule *s, const work *w)
{
    FILE *file = ex_open("--json", a->json_path);
    const pimhw_readings *r = &s->readings;
    fprintf(file, "{\"displayTimeUnit\": \"ns\", \"otherData\": {\"schema\": %d, \"program\": ",
            (int)EX_SCHEMA);
    json_text(file, s->title);
    fprintf(file, ", \"device\": \"%s\", \"controller\": \"%s\", \"tCK_ps\": %" PRIu32,
            s->config.preset, pimhw_controller_str(s->config.controller), s->config.tCK_ps);
    fprintf(file, ", \"cycles\": %" PRIu64 ", ", r->cycles);
    ex_json_number(file, "mac_utilisation", r->mac_utilisation);
    fprintf(file, ", \"critical_channel\": %" PRIu32 ", \"breakdown_ck\": ", r->critical_channel);
    json_breakdown(file, r);
    fprintf(file, "},\n\"traceEvents\": [");
    for (uint32_t i = 0; a->all_channels && i < s->config.n_channels; i++) {
        schedule other;
        make_schedule(&other, w, &s->config, s->config.controller, i);
        json_channel(file, &other, i == 0);
        release_schedule(&other);
    }
    if (!a->all_channels) json_channel(file, s, true);
    fprintf(file, "\n]}\n");
    ex_close("--json", a->json_path, file);
}

/* --- SVG ------------------------------------------------------------------------------------- */

enum { SVG_LEFT = 112, SVG_PLOT = 1060, SVG_RIGHT = 24, SVG_TOP = 84, SVG_ROW = 24, SVG_STEP = 30 };

/* The picture: clocks from_ck to to_ck over SVG_PLOT pixels. */
typedef struct picture {
    FILE *file;
    const schedule *s;
    double from_ck, per_ck; /* pixels of a clock */
    uint64_t to_ck;
    bool used[PIMHW_N_SPENT];
    double share[PIMHW_N_SPENT][SVG_PLOT]; /* of a track: what is too narrow to be a box */
    double base[SVG_PLOT];                 /* already filled of a pixel */
} picture;

static void svg_text(FILE *file, const char *text)
{
    for (const char *c = text; *c != 0; c++) {
        if (*c < ' ' || *c > '~' || *c == '&' || *c == '<' || *c == '>')
            fprintf(file, "&#%u;", *c < ' ' && *c >= 0 ? (unsigned)'?' : (unsigned char)*c);
        else
            fputc(*c, file);
    }
}

/* Fills are classes, so that the picture follows the reader's light or dark scheme. */
static void svg_style(FILE *file)
{
    fprintf(file, "<style>\ntext { font: 12px system-ui, 'DejaVu Sans', sans-serif; fill: #1c2127 }"
                  "\n.soft { fill: #5b6470 } .ground { fill: #ffffff } .lane { fill: #f2f4f6 }\n"
                  ".grid { fill: #d5dae0 } .name { font-size: 16px; font-weight: 600 }\n"
                  "text.on { font-size: 11px; fill: #ffffff } text.off { font-size: 11px }\n");
    for (int i = 0; i < PIMHW_N_SPENT; i++)
        fprintf(file, ".s%d { fill: %s }\n", i, CATEGORIES[i].light);
    fprintf(file, "@media (prefers-color-scheme: dark) {\ntext { fill: #e4e7ea }\n"
                  ".soft { fill: #9aa3ae } .ground { fill: #191d22 } .lane { fill: #20252b }\n"
                  ".grid { fill: #3a424b } text.on { fill: #101418 }\n");
    for (int i = 0; i < PIMHW_N_SPENT; i++)
        fprintf(file, ".s%d { fill: %s }\n", i, CATEGORIES[i].dark);
    fprintf(file, "}\n</style>\n");
}

static void svg_rect(FILE *file, const char *kind, int number, double x, double y, double width,
                     double height)
{
    fprintf(file, "<rect class=\"%s", kind);
    if (number >= 0) fprintf(file, "%d", number);
    fprintf(file, "\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"", x, y, width, height);
}

/* What stands in a box: W and its tile, M and its tile, R and its output entry. */
static void label_of(char text[32], const pimhw_event *event)
{
    const command_kind *kind = &KINDS[event->command];
    uint32_t has = kind->has;
    uint32_t number = has & HAS_TILE ? event->tile : has & HAS_OUT ? event->out : event->row;
    if (has & (HAS_TILE | HAS_OUT | HAS_ROW))
        snprintf(text, 32, "%s%" PRIu32, kind->letter, number);
    else
        snprintf(text, 32, "%s", kind->letter);
}

/* One box of so many clocks, or its share of the pixels where it is too narrow. */
static void svg_box(picture *p, double y, uint64_t from_ck, uint64_t length_ck, uint32_t spent,
                    const char *text, const char *words)
{
    double x = ((double)from_ck - p->from_ck) * p->per_ck, width = (double)length_ck * p->per_ck;
    bool on = spent < PIMHW_WAIT_INPUT;
    if (x + width <= 0 || x >= SVG_PLOT) return;
    if (x < 0) width += x, x = 0;
    if (x + width > SVG_PLOT) width = SVG_PLOT - x;
    p->used[spent] = true;
    if (width < 1.5) {
        int pixel = (int)x;
        double over = x + width > pixel + 1 ? x + width - pixel - 1 : 0;
        p->share[spent][pixel] += width - over;
        if (pixel + 1 < SVG_PLOT) p->share[spent][pixel + 1] += over;
        return;
    }
    svg_rect(p->file, "s", (int)spent, SVG_LEFT + x, y, width > 4 ? width - 1 : width, SVG_ROW);
    fprintf(p->file, "><title>%s</title></rect>\n", words);
    if ((double)strlen(text) * 7.0 + 6 < width)
        fprintf(p->file, "<text class=\"%s\" x=\"%.2f\" y=\"%.2f\">%s</text>\n", on ? "on" : "off",
                SVG_LEFT + x + 4, y + SVG_ROW - 8, text);
}

/* The narrow ones of a track: runs of pixels with one share, to a sixteenth, at least so much. */
static void svg_shares(picture *p, double y, double least)
{
    double *base = p->base;
    memset(base, 0, sizeof p->base);
    for (int spent = 0; spent < PIMHW_N_SPENT; spent++) {
        double *share = p->share[spent];
        for (int i = 0; i < SVG_PLOT; i++)
            if (share[i] > 0) share[i] = fmin(1 - base[i], fmax(least, ceil(share[i] * 16) / 16));
        for (int i = 0, end = 0; i < SVG_PLOT; i = end) {
            while (end < SVG_PLOT && share[end] == share[i] && base[end] == base[i])
                end++;
            if (share[i] <= 0) continue;
            svg_rect(p->file, "s", spent, SVG_LEFT + i, y + SVG_ROW * (1 - base[i] - share[i]),
                     end - i, SVG_ROW * share[i]);
            fprintf(p->file, "/>\n");
        }
        for (int i = 0; i < SVG_PLOT; i++)
            base[i] += share[i];
        memset(share, 0, sizeof p->share[spent]);
    }
}

/* A line as long as a row stays open: from an ACT to what follows it on the track. */
static void svg_open_rows(const picture *p, double y)
{
    const schedule *s = p->s;
    uint64_t open_ck = s->readings.cycles;
    for (size_t i = 0; i <= s->n_commands; i++) {
        const command *c = i < s->n_commands ? &s->commands[i] : NULL;
        uint64_t at_ck = c != NULL ? c->event.issue_ck : s->readings.cycles;
        if (c != NULL && KINDS[c->event.command].track != TRACK_ROWS) continue;
        double from = fmax(0, ((double)open_ck - p->from_ck) * p->per_ck);
        double to = fmin(SVG_PLOT, ((double)at_ck - p->from_ck) * p->per_ck);
        if (to - from >= 1) {
            svg_rect(p->file, "s", PIMHW_SPENT_ACT, SVG_LEFT + from, y + SVG_ROW / 2 - 1, to - from,
                     2);
            fprintf(p->file, " opacity=\"0.45\"/>\n");
        }
        open_ck = s->readings.cycles;
        if (c != NULL && c->event.command == PIMHW_CMD_ACT16) open_ck = at_ck + c->length_ck;
    }
}

static void svg_track(picture *p, uint32_t track, double y)
{
    const schedule *s = p->s;
    char text[32], words[160];
    double end = ((double)s->readings.cycles - p->from_ck) * p->per_ck;
    fprintf(p->file, "<text x=\"12\" y=\"%.1f\">%s</text>\n", y + SVG_ROW - 7,
            track_name(track, text));
    svg_rect(p->file, "lane", -1, SVG_LEFT, y, fmin(end, SVG_PLOT), SVG_ROW);
    fprintf(p->file, "/>\n");
    if (track == TRACK_ROWS) svg_open_rows(p, y);
    for (size_t i = 0; track != TRACK_SPENT && i < s->n_commands; i++) {
        const command *c = &s->commands[i];
        if (track_of(&c->event) != track) continue;
        label_of(text, &c->event);
        snprintf(words, sizeof words, "%s at clock %" PRIu64 ", after %" PRIu64 " clocks of %s",
                 pimhw_command_str(c->event.command), c->event.issue_ck, c->waited_ck,
                 pimhw_spent_str(c->event.reason));
        svg_box(p, y, c->event.issue_ck, c->length_ck, KINDS[c->event.command].spent, text, words);
    }
    for (size_t i = 0; track == TRACK_SPENT && i < s->n_spans; i++) {
        const span *n = &s->spans[i];
        const char *name = pimhw_spent_str((pimhw_spent)n->spent);
        snprintf(words, sizeof words, "%s, clocks %" PRIu64 " to %" PRIu64, name, n->from_ck,
                 n->to_ck);
        svg_box(p, y, n->from_ck, n->to_ck - n->from_ck, n->spent, name, words);
    }
    svg_shares(p, y, track != TRACK_SPENT ? 0.2 : 0);
}

/* A step of 1, 2 or 5 times a power of ten that takes 80 pixels or more. */
static double svg_step(double per_unit)
{
    double units = 0.1;
    for (int i = 0; units * per_unit < 80; i++)
        units *= i % 3 == 1 ? 2.5 : 2;
    return units;
}

/* Ticks every step of so many clocks a unit, their numbers at y, lines down to bottom. */
static void svg_axis(const picture *p, const char *unit, double unit_ck, double y, double bottom)
{
    double every = fmax(svg_step(p->per_ck * unit_ck), unit_ck < 2 && p->per_ck > 40 ? 1 : 0);
    fprintf(p->file, "<text class=\"soft\" x=\"12\" y=\"%.1f\">%s</text>\n", y, unit);
    for (double n = ceil(p->from_ck / unit_ck / every); n * every * unit_ck <= (double)p->to_ck;
         n++) {
        double x = SVG_LEFT + (n * every * unit_ck - p->from_ck) * p->per_ck;
        fprintf(p->file, "<text class=\"soft\" x=\"%.2f\" y=\"%.1f\" text-anchor=\"middle\">", x,
                y);
        fprintf(p->file, "%.*f</text>\n", every < 1 ? 1 : 0, n * every);
        svg_rect(p->file, "grid", -1, x, y < bottom ? y + 5 : bottom, 1,
                 y < bottom ? bottom - y - 5 : 5);
        fprintf(p->file, "/>\n");
    }
}

static void svg_legend(const picture *p, double y)
{
    double x = 12;
    for (int i = 0; i < PIMHW_N_SPENT; i++) {
        if (!p->used[i]) continue;
        const char *name = pimhw_spent_str((pimhw_spent)i);
        svg_rect(p->file, "s", i, x, y - 10, 12, 12);
        fprintf(p->file, "><title>%s</title></rect>\n", CATEGORIES[i].words);
        fprintf(p->file, "<text x=\"%.1f\" y=\"%.1f\">%s</text>\n", x + 17, y, name);
        x += 34 + 7.6 * (double)strlen(name);
    }
}

static void svg_head(const picture *p, double height)
{
    const schedule *s = p->s;
    const pimhw_readings *r = &s->readings;
    int width = SVG_LEFT + SVG_PLOT + SVG_RIGHT;
    fprintf(p->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\" role=\"img\">\n<title>",
            width, height, width, height);
    svg_text(p->file, s->title);
    fprintf(p->file, "</title>\n");
    svg_style(p->file);
    svg_rect(p->file, "ground", -1, 0, 0, width, height);
    fprintf(p->file, "/>\n<text class=\"name\" x=\"12\" y=\"26\">");
    svg_text(p->file, s->title);
    fprintf(p->file,
            "</text>\n<text class=\"soft\" x=\"12\" y=\"46\">controller %s on %s, channel %" PRIu32
            ": %" PRIu64 " clocks of %.3f ns, %.1f ns, MAC utilisation %.1f %%</text>\n",
            pimhw_controller_str(s->config.controller), s->config.preset, s->channel, r->cycles,
            s->config.tCK_ps * 1e-3, r->ns, 100 * r->mac_utilisation);
}

static void write_svg(const arguments *a, const schedule *s)
{
    picture *p = (picture *)ex_alloc(1, sizeof *p);
    bool used[N_TRACKS];
    uint32_t row = 0;
    p->file = ex_open("--svg", a->svg_path);
    p->s = s;
    p->to_ck = a->to_ck > 0 ? a->to_ck : s->readings.cycles > 0 ? s->readings.cycles : 1;
    p->from_ck = a->from_ck;
    p->per_ck = SVG_PLOT / ((double)p->to_ck - p->from_ck);
    double bottom = SVG_TOP + used_tracks(used, s) * SVG_STEP;
    svg_head(p, bottom + 62);
    svg_axis(p, "clock", 1, SVG_TOP - 14, bottom);
    for (uint32_t track = 0; track < N_TRACKS; track++)
        if (used[track]) svg_track(p, track, SVG_TOP + SVG_STEP * row++);
    svg_axis(p, "ns", 1000.0 / s->config.tCK_ps, bottom + 18, bottom);
    svg_legend(p, bottom + 46);
    fprintf(p->file, "</svg>\n");
    ex_close("--svg", a->svg_path, p->file);
    free(p);
}

/* --- HTML ------------------------------------------------------------------------------------ */

/* What the page is told of every command, column by column. */
static const char *const COLUMNS[] = {"command", "issue", "length", "waited", "reason",
                                      "bank",    "row",   "column", "tile",   "out"};

static uint64_t value_of(const command *c, size_t column)
{
    switch (column) {
    case 0: return (uint64_t)c->event.command;
    case 1: return c->event.issue_ck;
    case 2: return c->length_ck;
    case 3: return c->waited_ck;
    case 4: return (uint64_t)c->event.reason;
    case 5: return c->event.bank;
    case 6: return c->event.row;
    case 7: return c->event.column;
    case 8: return c->event.tile;
    default: return c->event.out;
    }
}

/* One number of an array; a line holds 32. Clocks are written as differences. */
static void html_number(FILE *file, size_t *n, uint64_t value, uint64_t before)
{
    fprintf(file, "%s%" PRIu64, *n == 0 ? "" : *n % 32 == 0 ? ",\n" : ",", value - before);
    ++*n;
}

static void html_track(FILE *file, const schedule *s, uint32_t track)
{
    char text[32];
    fprintf(file, "{\"name\": \"%s\"", track_name(track, text));
    for (size_t column = 0; column < EX_COUNT(COLUMNS); column++) {
        size_t n = 0;
        uint64_t before = 0;
        fprintf(file, ",\n\"%s\": [", COLUMNS[column]);
        for (size_t i = 0; i < s->n_commands; i++) {
            const command *c = &s->commands[i];
            if (track_of(&c->event) != track) continue;
            html_number(file, &n, value_of(c, column), column == 1 ? before : 0);
            before = c->event.issue_ck;
        }
        fprintf(file, "]");
    }
    fprintf(file, "},\n");
}

static void html_spans(FILE *file, const schedule *s)
{
    char text[32];
    size_t n = 0;
    fprintf(file, "{\"name\": \"%s\",\n\"issue\": [", track_name(TRACK_SPENT, text));
    for (size_t i = 0; i < s->n_spans; i++)
        html_number(file, &n, s->spans[i].from_ck, i > 0 ? s->spans[i - 1].from_ck : 0);
    fprintf(file, "],\n\"length\": [");
    for (size_t i = n = 0; i < s->n_spans; i++)
        html_number(file, &n, s->spans[i].to_ck, s->spans[i].from_ck);
    fprintf(file, "],\n\"spent\": [");
    for (size_t i = n = 0; i < s->n_spans; i++)
        html_number(file, &n, s->spans[i].spent, 0);
    fprintf(file, "]}");
}

static void html_run(FILE *file, const schedule *s)
{
    const pimhw_readings *r = &s->readings;
    bool used[N_TRACKS];
    fprintf(file, "{\"controller\": \"%s\"", pimhw_controller_str(s->config.controller));
    if (s->failed) {
        fprintf(file, ", \"cause\": ");
        json_text(file, s->why.text);
        fprintf(file, "}");
        return;
    }
    fprintf(file, ", \"cycles\": %" PRIu64 ", ", r->cycles);
    ex_json_number(file, "mac_utilisation", r->mac_utilisation);
    fprintf(file, ",\n\"breakdown_ck\": [");
    for (int i = 0; i < PIMHW_N_SPENT; i++)
        fprintf(file, "%s%" PRIu64, i > 0 ? ", " : "", r->breakdown_ck[i]);
    fprintf(file, "],\n\"tracks\": [");
    used_tracks(used, s);
    for (uint32_t track = 0; track < N_TRACKS; track++)
        if (used[track] && track != TRACK_SPENT) html_track(file, s, track);
    html_spans(file, s);
    fprintf(file, "]}");
}

/* What all runs share: names, words, colours. */
static void html_tables(FILE *file)
{
    fprintf(file, "\"first_wait\": %d, \"spent\": [", (int)PIMHW_WAIT_INPUT);
    for (int i = 0; i < PIMHW_N_SPENT; i++)
        fprintf(file,
                "%s\n{\"name\": \"%s\", \"words\": \"%s\", \"light\": \"%s\", \"dark\": \"%s\"}",
                i > 0 ? "," : "", pimhw_spent_str((pimhw_spent)i), CATEGORIES[i].words,
                CATEGORIES[i].light, CATEGORIES[i].dark);
    fprintf(file, "],\n\"commands\": [");
    for (int i = 0; i < PIMHW_N_COMMANDS; i++) {
        const command_kind *kind = &KINDS[i];
        fprintf(file, "%s\n{\"name\": \"%s\", \"letter\": \"%s\", \"spent\": %d, \"twin\": %s",
                i > 0 ? "," : "", pimhw_command_str((pimhw_command)i), kind->letter,
                (int)kind->spent, of_the_program(kind) ? "true" : "false");
        if (kind->spent == PIMHW_SPENT_ACT) fprintf(file, ", \"opens\": true");
        for (uint32_t field = 0; field < 5; field++)
            if (kind->has >> field & 1) fprintf(file, ", \"%s\": true", COLUMNS[5 + field]);
        fprintf(file, "}");
    }
    fprintf(file, "],\n");
}

static void write_html(const arguments *a, const schedule runs[CONTROLLERS])
{
    FILE *file = ex_open("--html", a->html_path);
    for (size_t i = 0; i < EX_COUNT(PAGE_HEAD); i++)
        fprintf(file, "%s\n", PAGE_HEAD[i]);
    fprintf(file, "{\"schema\": %d, \"title\": ", (int)EX_SCHEMA);
    json_text(file, runs[0].title);
    fprintf(file, ", \"device\": \"%s\", \"channel\": %" PRIu32 ", \"n_channels\": %" PRIu32,
            a->device.preset, runs[0].channel, a->device.n_channels);
    fprintf(file, ", \"tCK_ps\": %" PRIu32 ", \"own_plans\": %s,\n", a->device.tCK_ps,
            a->own_plans ? "true" : "false");
    html_tables(file);
    fprintf(file, "\"runs\": [");
    for (uint32_t i = 0; i < CONTROLLERS; i++) {
        fprintf(file, "%s\n", i > 0 ? "," : "");
        html_run(file, &runs[i]);
    }
    fprintf(file, "]}\n");
    for (size_t i = 0; i < EX_COUNT(PAGE_TAIL); i++)
        fprintf(file, "%s\n", PAGE_TAIL[i]);
    ex_close("--html", a->html_path, file);
}

/* --- All of it ------------------------------------------------------------------------------- */

static void print_runs(const arguments *a, const schedule runs[CONTROLLERS])
{
    printf("%s\non %s, channel %" PRIu32 "\n", runs[0].title, a->device.preset, runs[0].channel);
    ex_print_sets(&a->sets);
    printf("%-12s %12s %12s %16s\n", "controller", "cycles_ck", "time_us", "mac_utilisation");
    for (uint32_t i = 0; i < CONTROLLERS; i++) {
        const pimhw_readings *r = &runs[i].readings;
        printf("%-12s ", pimhw_controller_str(i));
        if (runs[i].failed)
            printf("%s\n", runs[i].why.text);
        else
            printf("%12" PRIu64 " %12.4f %16.4f\n", r->cycles, r->ns / 1000.0, r->mac_utilisation);
    }
    if (a->trace != NULL) ex_aim_print_untimed(a->trace, a->trace_bytes);
}

/* Refuses options that go with none of the others given, and files that are two things at once. */
static void judge(const arguments *a)
{
    const char *paths[] = {a->trace_path, a->json_path, a->svg_path, a->html_path, a->export_path};
    const bool trace = a->trace_path != NULL;
    if (trace && a->example != EXAMPLE_NONE) ex_die("--trace: a trace, or one of the examples");
    if (trace && a->own_plans) ex_die("--own-plans: a trace has one plan");
    if (a->own_plans && a->one_plan) ex_die("--own-plans: not together with --one-plan");
    if ((trace || a->example == EXAMPLE_FIG7 || a->example == EXAMPLE_GEMV128) &&
        (a->n_tokens || a->group || a->n_kv_heads || a->head_dim || a->one_plan ||
         a->partition != NO_PARTITION))
        ex_die("--tokens, --group, --kv-heads, --head-dim, --partition, --one-plan: of the example "
               "attention");
    if (a->svg_path == NULL && (a->from_ck != 0 || a->to_ck != 0))
        ex_die("--from, --to: of a picture, --svg");
    if (a->json_path == NULL && a->all_channels) ex_die("--all-channels: of --json");
    if (a->to_ck != 0 && a->from_ck >= a->to_ck)
        ex_die("--from: clock %" PRIu32 " is not before %" PRIu32, a->from_ck, a->to_ck);
    ex_distinct(paths, EX_COUNT(paths));
}

/* What was not said of attention. */
static void fill_in(arguments *a)
{
    if (a->n_tokens == 0) a->n_tokens = 1024;
    if (a->group == 0) a->group = 4;
    if (a->n_kv_heads == 0) a->n_kv_heads = 1;
    if (a->head_dim == 0) a->head_dim = 128;
    if (a->partition == NO_PARTITION) a->partition = PIMATTN_TCP;
    bool attention = a->example == EXAMPLE_NONE || a->example == EXAMPLE_ATTENTION;
    if (attention && a->trace_path == NULL && !a->one_plan) a->own_plans = true;
}

/* The device: of a stream one channel. */
static void make_device(arguments *a)
{
    bool one = a->example == EXAMPLE_FIG7 || a->example == EXAMPLE_GEMV128;
    if (a->trace_path != NULL) a->trace = (char *)ex_read_file(a->trace_path, &a->trace_bytes);
    ex_aim_device(&a->device, a->trace_path, a->trace != NULL ? a->trace : "", a->preset,
                  a->trace != NULL ? "aim-gddr6" : "aimx", one ? 1 : 0, &a->sets);
    if (a->device.flash_page_bytes != 0)
        ex_die("--device: %s is flash, without banks", a->device.preset);
    if (a->controller == CONTROLLERS) a->controller = a->device.controller;
    if (a->channel < PIMHW_MAX_CHANNELS && a->channel >= a->device.n_channels)
        ex_die("--channel: %" PRIu32 ", the device has %" PRIu32 " channels", a->channel,
               a->device.n_channels);
}

int main(int argc, char **argv)
{
    arguments a = {.example = EXAMPLE_NONE,
                   .partition = NO_PARTITION,
                   .controller = CONTROLLERS,
                   .channel = PIMHW_MAX_CHANNELS};
    schedule runs[CONTROLLERS];
    parse(&a, argc, argv);
    judge(&a);
    fill_in(&a);
    make_device(&a);
    uint32_t n_works = a.own_plans ? CONTROLLERS : 1;
    work *works = (work *)ex_alloc(n_works, sizeof *works);
    for (uint32_t i = 0; i < n_works; i++)
        make_work(&works[i], &a, a.own_plans ? i : a.controller);

    /* One channel for all: the slowest under the controller asked for. */
    const schedule *wanted = &runs[a.controller];
    const work *w = &works[a.own_plans ? a.controller : 0];
    make_schedule(&runs[a.controller], w, &a.device, a.controller, a.channel);
    if (wanted->failed) ex_die("%s: %s", w->title, wanted->why.text);
    if (a.from_ck > 0 && a.from_ck >= wanted->readings.cycles)
        ex_die("--from: clock %" PRIu32 " is not before %" PRIu64 ", the end", a.from_ck,
               wanted->readings.cycles);
    for (uint32_t i = 0; i < CONTROLLERS; i++)
        if (i != a.controller)
            make_schedule(&runs[i], &works[a.own_plans ? i : 0], &a.device, i, wanted->channel);

    if (a.export_path != NULL) export_work(a.export_path, w, &wanted->config);
    if (a.json_path != NULL) write_json(&a, wanted, w);
    if (a.svg_path != NULL) write_svg(&a, wanted);
    if (a.html_path != NULL) write_html(&a, runs);
    print_runs(&a, runs);
    for (uint32_t i = 0; i < CONTROLLERS; i++)
        release_schedule(&runs[i]);
    for (uint32_t i = 0; i < n_works; i++)
        release_work(&works[i]);
    free(works);
    free(a.trace);
    return ex_done();
}
