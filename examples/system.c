/* system - a language model on PIM modules of yours: what a decode step takes under every cut into
 * tensor and pipeline parallel, and a run that serves requests. What is counted and what not stands
 * in system_model.h.
 */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#define EX_NAME "system"
#include "common.h"
#include "system_model.h"

/* What the command line says. */
typedef struct own {
    sys_llm llm;
    sys_machine machine;
    sys_way way;
    lengths lengths;
    ex_texts sets;
    uint64_t window, seed;
    uint32_t tp, serve, output; /* tp 0: all cuts; requests, tokens of each */
    const char *trace;
    bool refresh, json;
} own;

typedef struct asked {
    double arrival_s;
    uint64_t prompt, output; /* tokens */
} asked;

/* A run that serves requests: from arrival to the first step, and to the last token. */
typedef struct served {
    uint64_t n_steps; /* 0: a request has no room */
    double tokens, seconds, busy_s, longest_s, wait_s, latency_s, slow_s; /* means; 99th of 100 */
} served;

/* A cut, and what memory it has. */
typedef struct record {
    sys_result result;
    double request_bytes, room_bytes; /* of the first request; of a module */
    served run;
} record;

/* --- Requests ------------------------------------------------------------------------------ */

static bool take_number(char **at, uint64_t *value)
{
    char *first = *at + strspn(*at, " \t");
    *value = strtoull(first, at, 10);
    return first[0] >= '0' && first[0] <= '9';
}

/* A line's request; or what is wrong with it. */
static const char *read_request(asked *a, char *line, double before_s, uint64_t window)
{
    char *at = line;
    a->arrival_s = 1e-3 * strtod(line, &at);
    if (line[strspn(line, "0123456789. \t\r")] != 0 || at == line ||
        !take_number(&at, &a->prompt) || !take_number(&at, &a->output) ||
        at[strspn(at, " \t\r")] != 0)
        return "is not three numbers: milliseconds of arrival, tokens of the prompt, tokens to "
               "make";
    if (a->output == 0) return "makes no token";
    if (a->prompt > window || a->output > window - a->prompt)
        return "has more tokens than the window";
    if (a->arrival_s < before_s) return "arrives before the one before it";
    return a->arrival_s < 1e9 ? NULL : "arrives in more than 30 years";
}

static asked *read_trace(const own *o, size_t *n)
{
    size_t n_bytes = 0, room = 1;
    char *text = (char *)ex_read_file(o->trace, &n_bytes), *line = text;
    for (size_t i = 0; i < n_bytes; i++)
        room += text[i] == '\n';
    asked *all = (asked *)ex_alloc(room, sizeof *all);
    if (strlen(text) != n_bytes) ex_die("%s: not text", o->trace);
    for (size_t number = 1; *line != 0; number++) {
        char *next = line + strcspn(line, "\n");
        if (*next != 0) *next++ = 0;
        if (line[0] != '#' && line[strspn(line, " \t\r")] != 0) {
            double before_s = *n > 0 ? all[*n - 1].arrival_s : 0;
            const char *wrong = read_request(&all[*n], line, before_s, o->window);
            if (wrong != NULL) ex_die("%s: line %zu %s", o->trace, number, wrong);
            ++*n;
        }
        line = next;
    }
    free(text);
    if (*n == 0) ex_die("%s: no request", o->trace);
    return all;
}

static asked *draw_requests(const own *o, size_t *n)
{
    uint64_t random = o->seed;
    asked *all = (asked *)ex_alloc(o->serve, sizeof *all);
    for (*n = 0; *n < o->serve; ++*n) {
        uint64_t prompt = lengths_draw(&o->lengths, &random);
        if (prompt + o->output > o->window)
            ex_die("--output: %" PRIu64 " tokens with it, --window is %" PRIu64, prompt + o->output,
                   o->window);
        all[*n] = (asked){0, prompt, o->output};
    }
    return all;
}

/* --- Serving ------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Continuous batching: whenever there is room for all the tokens that the next request will have it
 * comes in; each has a token a step. Prefill takes no time here. */
static served serve(sys *s, const asked *requests, size_t n_requests)
{
    static size_t who[SYS_MOST_BATCH];
    served run = {.n_steps = 0};
    pimattn_plan plan = sys_plan(s);
    double room = sys_room(s), *latency_s = (double *)ex_alloc(n_requests, sizeof *latency_s);
    size_t n = 0, next = 0, n_done = 0;
    sys_parts parts;
    memset(&parts, 0, sizeof parts);
    for (; n > 0 || next < n_requests; run.n_steps++) {
        if (n == 0) run.seconds = fmax(run.seconds, requests[next].arrival_s);
        for (; next < n_requests && n < SYS_MOST_BATCH; n++, next++) {
            const asked *a = &requests[next];
            double its = sys_kv_bytes(s, &plan, a->prompt + a->output);
            if (a->arrival_s > run.seconds || its > room) break;
            room -= its;
            run.wait_s += (run.seconds - a->arrival_s) / (double)n_requests;
            who[n] = next, s->tokens[n] = a->prompt + 1;
        }
        if (n == 0) break;
        double seconds = sys_seconds(s, n, &parts);
        run.seconds += seconds, run.busy_s += seconds, run.tokens += (double)n;
        run.longest_s = fmax(run.longest_s, seconds);
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            const asked *a = &requests[who[i]];
            bool done = s->tokens[i] == a->prompt + a->output;
            if (done) room += sys_kv_bytes(s, &plan, s->tokens[i]);
            if (done) latency_s[n_done++] = run.seconds - a->arrival_s;
            if (!done) who[kept] = who[i], s->tokens[kept++] = s->tokens[i] + 1;
        }
        n = kept;
    }
    qsort(latency_s, n_done, sizeof *latency_s, by_size);
    for (size_t i = 0; i < n_done; i++)
        run.latency_s += latency_s[i] / (double)n_done;
    if (n_done > 0) run.slow_s = latency_s[(n_done * 99 + 99) / 100 - 1];
    if (n_done < n_requests) run.n_steps = 0;
    free(latency_s);
    return run;
}

/* --- Cuts ---------------------------------------------------------------------------------- */

static record run_cut(const own *o, uint32_t tp, const asked *requests, size_t n_requests)
{
    record r;
    uint64_t random = o->seed;
    memset(&r, 0, sizeof r);
    sys *s = sys_new(&o->llm, &o->machine, &o->way, o->window, o->refresh);
    r.result = sys_run(s, tp, &o->lengths, o->seed);
    pimattn_plan plan = sys_plan(s);
    r.request_bytes = sys_kv_bytes(s, &plan, lengths_draw(&o->lengths, &random));
    r.room_bytes = sys_room(s);
    if (n_requests > 0) r.run = serve(s, requests, n_requests);
    free(s);
    return r;
}

/* The cut that serves fastest, or of the most tokens a second; n: none. */
static size_t best_of(const record *records, size_t n, bool serves)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++) {
        const record *r = &records[i], *most = best < n ? &records[best] : NULL;
        if (serves ? r->run.n_steps == 0 : r->result.parts.tokens == 0) continue;
        if (most == NULL || (serves ? r->run.seconds < most->run.seconds
                                    : r->result.tokens_s > most->result.tokens_s))
            best = i;
    }
    return best;
}

static size_t run_cuts(const own *o, record *records, const asked *requests, size_t n_requests)
{
    size_t n = 0, most = 0;
    for (uint32_t tp = 1; tp <= o->machine.n_modules && n < SYS_MOST_CUTS; tp++)
        if (sys_can_cut(&o->llm, o->machine.n_modules, tp) && (o->tp == 0 || tp == o->tp))
            records[n++] = run_cut(o, tp, requests, n_requests);
    if (n == 0)
        ex_die("no such cut of %s into %" PRIu32 " modules has whole heads and layers", o->llm.name,
               o->machine.n_modules);
    for (size_t i = 1; i < n; i++) /* where least is missing */
        if (records[i].request_bytes - records[i].room_bytes <
            records[most].request_bytes - records[most].room_bytes)
            most = i;
    if (best_of(records, n, false) == n)
        ex_die("no cut has room: a request of --context takes %.0f MiB of a module, of which "
               "weights leave %.0f (TP %" PRIu32 ", PP %" PRIu32 ")",
               records[most].request_bytes / 1048576, fmax(records[most].room_bytes, 0) / 1048576,
               records[most].result.tp, records[most].result.pp);
    if (n_requests > 0 && best_of(records, n, true) == n)
        ex_die("no cut has room for each of the requests, even alone");
    return n;
}

/* --- Printing ------------------------------------------------------------------------------ */

static void print_setting(const own *o)
{
    printf("%s on %" PRIu32 " modules of %s, %" PRIu32
           " on a switch, %s, partition %s, memory %s,\n",
           o->llm.name, o->machine.n_modules, o->machine.preset, o->machine.node_modules,
           pimhw_controller_str(o->way.controller), ex_partition_str(o->way.partition),
           o->way.lazy ? "lazy" : "by window");
    printf("micro-batches %s, refresh %s; requests of %.0f tokens (deviation %.0f, window %" PRIu64
           "),\nseed %" PRIu64 "\n",
           o->way.one_by_one ? "of one request" : "as stages", o->refresh ? "on" : "off",
           o->lengths.mean, o->lengths.std, o->window, o->seed);
    ex_print_sets(&o->sets);
    printf("\n");
}

static void print_cuts(const record *records, size_t n, size_t best)
{
    printf("  %4s %4s %9s %9s %9s %7s %7s %7s %7s %9s %9s %9s\n", "TP", "PP", "requests",
           "tokens/s", "ms a step", "util", "FC", "attn", "moving", "mJ", "MiB", "of MiB");
    for (size_t i = 0; i < n; i++) {
        const sys_result *r = &records[i].result;
        const sys_parts *p = &r->parts;
        double sum = (p->fc_ns + p->attention_ns + p->moving_ns) / 100;
        printf("%s %4" PRIu32 " %4" PRIu32 " %9.1f", i == best ? " *" : "  ", r->tp, r->pp,
               p->tokens);
        if (p->tokens > 0)
            printf(" %9.1f %9.3f %6.1f%% %6.1f%% %6.1f%% %6.1f%% %9.1f", r->tokens_s,
                   1e3 * p->tokens / r->tokens_s, 100 * r->utilisation, p->fc_ns / sum,
                   p->attention_ns / sum, p->moving_ns / sum,
                   1e-9 * (p->attention_pJ + p->fc_pJ) / p->tokens);
        else
            printf(" %61s", "no room");
        printf(" %9.1f %9.1f\n", records[i].request_bytes / 1048576,
               fmax(records[i].room_bytes, 0) / 1048576);
    }
    printf("\n%s\nmJ: of a token, in units at work; links between modules, an xPU and units that "
           "wait for\n"
           "other stages are not in it. MiB: of each module a request of --context takes, of what\n"
           "weights leave: chunks of a KV head and layer, or the window. *: the most tokens a "
           "second.\n",
           SYS_LEGEND);
}

static void print_served(const record *records, size_t n, size_t best, size_t n_requests)
{
    printf("\n%zu requests served, each as soon as there is room for all its tokens, without "
           "prefill:\n  %4s %4s %9s %9s %9s %9s %9s %9s %9s %9s\n",
           n_requests, "TP", "PP", "seconds", "idle", "steps", "tokens/s", "longest", "wait",
           "latency", "99 %");
    for (size_t i = 0; i < n; i++) {
        const served *r = &records[i].run;
        printf("%s %4" PRIu32 " %4" PRIu32, i == best ? " *" : "  ", records[i].result.tp,
               records[i].result.pp);
        if (r->n_steps > 0)
            printf(" %9.3f %9.3f %9" PRIu64 " %9.1f %9.4f %9.3f %9.3f %9.3f\n", r->seconds,
                   r->seconds - r->busy_s, r->n_steps, r->tokens / r->seconds, r->longest_s,
                   r->wait_s, r->latency_s, r->slow_s);
        else
            printf(" no room for one of them, even alone\n");
    }
    printf(
        "\nIn seconds: of the run, of it without a request, the longest step; from arrival to the "
        "first\nstep and to the last token on average, and to the last token of 99 of 100. *: "
        "done first.\n");
}

static void json_cut(const record *r)
{
    const sys_parts *p = &r->result.parts;
    const ex_value numbers[] = {{"tp", r->result.tp},
                                {"pp", r->result.pp},
                                {"requests", p->tokens},
                                {"tokens_per_s", r->result.tokens_s},
                                {"utilisation", r->result.utilisation},
                                {"fc_ns", p->fc_ns},
                                {"attention_ns", p->attention_ns},
                                {"moving_ns", p->moving_ns},
                                {"attention_pJ", p->attention_pJ},
                                {"fc_pJ", p->fc_pJ},
                                {"request_bytes", r->request_bytes},
                                {"room_bytes", r->room_bytes}};
    const ex_value run[] = {{"steps", (double)r->run.n_steps},    {"tokens", r->run.tokens},
                            {"seconds", r->run.seconds},          {"busy_s", r->run.busy_s},
                            {"longest_s", r->run.longest_s},      {"mean_wait_s", r->run.wait_s},
                            {"mean_latency_s", r->run.latency_s}, {"latency_99_s", r->run.slow_s}};
    printf("{");
    ex_json_values(stdout, numbers, EX_COUNT(numbers));
    if (r->run.n_steps > 0) {
        printf(", \"served\": {");
        ex_json_values(stdout, run, EX_COUNT(run));
        printf("}");
    }
    printf("}");
}

static void print_json(const own *o, const record *records, size_t n)
{
    printf("{\"schema\": %d, \"model\": \"%s\", \"device\": \"%s\", ", (int)EX_SCHEMA, o->llm.name,
           o->machine.preset);
    ex_json_texts(stdout, "set", &o->sets);
    printf(", \"controller\": \"%s\", \"partition\": \"%s\", \"lazy\": %s, \"single\": %s, "
           "\"refresh\": %s, ",
           pimhw_controller_str(o->way.controller), ex_partition_str(o->way.partition),
           o->way.lazy ? "true" : "false", o->way.one_by_one ? "true" : "false",
           o->refresh ? "true" : "false");
    const ex_value numbers[] = {
        {"modules", o->machine.n_modules}, {"node_modules", o->machine.node_modules},
        {"node_Bps", o->machine.node_Bps}, {"xpu_flops", o->machine.xpu_flops},
        {"context", o->lengths.mean},      {"spread", o->lengths.std},
        {"window", (double)o->window},     {"seed", (double)o->seed}};
    ex_json_values(stdout, numbers, EX_COUNT(numbers));
    printf(", \"cuts\": [\n ");
    for (size_t i = 0; i < n; i++) {
        if (i) printf(",\n ");
        json_cut(&records[i]);
    }
    printf("]}\n");
}

/* --- Command line -------------------------------------------------------------------------- */

/* What options are kept in, before it is judged. */
typedef struct words {
    uint32_t model, n_layers, d_model, n_heads, n_kv_heads, ffn, vocab;
    uint32_t xpu_tflops, node_gbps, context, spread, window, memory, micro, refresh, seed;
} words;

static void judge(own *o, const words *w)
{
    const uint32_t given[] = {w->n_layers, w->d_model, w->n_heads, w->n_kv_heads, w->ffn, w->vocab};
    o->llm = sys_llms[w->model];
    uint32_t *const of[] = {&o->llm.n_layers,   &o->llm.d_model, &o->llm.n_heads,
                            &o->llm.n_kv_heads, &o->llm.ffn,     &o->llm.vocab};
    for (size_t i = 0; i < EX_COUNT(of); i++)
        if (given[i] > 0) *of[i] = given[i], o->llm.name = "A model";
    if (o->llm.n_heads % o->llm.n_kv_heads != 0)
        ex_die("--heads: %" PRIu32 " is no multiple of --kv-heads, %" PRIu32, o->llm.n_heads,
               o->llm.n_kv_heads);
    const uint32_t context = w->context > 0 ? w->context : (uint32_t)least(16000, w->window);
    if (context > w->window)
        ex_die("--context: %" PRIu32 " is more than --window, %" PRIu32, context, w->window);
    if (w->spread > w->window / 2) /* few lengths drawn would be within the window */
        ex_die("--spread: %" PRIu32 " is more than half of --window, %" PRIu32, w->spread,
               w->window);
    if (o->serve > 0 && o->trace != NULL) ex_die("--serve: not together with --trace");
    o->lengths = (lengths){"own", context, w->spread, 1, w->window};
    o->window = w->window;
    o->machine.sets = &o->sets;
    o->machine.node_Bps = 1e9 * w->node_gbps;
    o->machine.xpu_flops = 1e12 * w->xpu_tflops;
    o->way.name = "own";
    o->way.lazy = w->memory == 0;
    o->way.one_by_one = w->micro == 1;
    o->seed = w->seed;
    pimhw_config device; /* what --set makes of it */
    ex_device_preset(&device, o->machine.preset);
    device.controller = o->way.controller;
    if (!w->refresh) device.refresh = 0;
    ex_device_change(&device, 0, &o->sets);
    o->way.controller = device.controller, o->refresh = device.refresh > 0;
}

#define NUMBER(name_, to, help_)                                                                   \
    {                                                                                              \
        .name = name_, .value = "N", .number = to, .min = 1, .max = 1u << 20, .help = help_        \
    }

static void parse(own *o, int argc, char **argv)
{
    words w = {.model = SYS_LLAMA_8B, .node_gbps = 10, .window = 32768, .seed = 1};
    const ex_option options[] = {
        {.name = "--model",
         .value = "7b|14b|72b|8b|70b",
         .choice = &w.model,
         .help = "Qwen1.5 7B, 14B, 72B or Llama3.1 8B (default), 70B, but for:"},
        NUMBER("--layers", &w.n_layers, "layers"),
        NUMBER("--d-model", &w.d_model, "dims between layers; heads have 128"),
        NUMBER("--heads", &w.n_heads, "query heads"),
        NUMBER("--kv-heads", &w.n_kv_heads, "KV heads"),
        NUMBER("--ffn", &w.ffn, "dims within a feed-forward layer of three matrices"),
        NUMBER("--vocab", &w.vocab, "tokens of the vocabulary"),
        {.name = "--device", .value = "PRESET", .text = &o->machine.preset, .help = "default aimx"},
        {.name = "--set",
         .value = "FIELD=N",
         .texts = &o->sets,
         .help = "a field of the device, whatever else is said; repeatable"},
        {.name = "--modules",
         .value = "N",
         .number = &o->machine.n_modules,
         .min = 1,
         .max = 4096,
         .help = "default 8"},
        NUMBER("--node-modules", &o->machine.node_modules, "that one switch joins; default 8"),
        NUMBER("--node-gbps", &w.node_gbps, "gigabytes a second between these; default 10"),
        {.name = "--xpu-tflops",
         .value = "N",
         .number = &w.xpu_tflops,
         .help = "of each module's xPU, for FC layers and softmax; default 0: none"},
        NUMBER("--tp", &o->tp, "this tensor parallelism alone; default: all"),
        NUMBER("--context", &w.context,
               "tokens of a request, their mean; default 16000, or the window"),
        {.name = "--spread",
         .value = "N",
         .number = &w.spread,
         .help = "their standard deviation; default 0"},
        NUMBER("--window", &w.window, "the most tokens; default 32768"),
        {.name = "--partition",
         .value = EX_PARTITIONS,
         .choice = &o->way.partition,
         .help = "default tcp"},
        {.name = "--hfp-unit",
         .value = "kv_head|query_head",
         .choice = &o->way.hfp_unit,
         .help = "what hfp gives to a channel; K and V are counted once"},
        {.name = "--controller",
         .value = "in-order|static|ping-pong|dcs",
         .choice = &o->way.controller,
         .help = "default dcs"},
        {.name = "--memory",
         .value = "lazy|window",
         .choice = &w.memory,
         .help = "of a request: as tokens come, or for all of the window; default lazy"},
        {.name = "--micro",
         .value = "stages|single",
         .choice = &w.micro,
         .help = "micro-batches: as many as stages, or of one request each; default stages"},
        {.name = "--serve",
         .value = "N",
         .number = &o->serve,
         .max = 100000,
         .help = "serve so many requests, all there from the start .."},
        {.name = "--output",
         .value = "N",
         .number = &o->output,
         .min = 1,
         .max = 65536,
         .help = ".. of so many tokens more; default 128"},
        {.name = "--trace",
         .value = "FILE",
         .text = &o->trace,
         .help = "serve these: lines of milliseconds of arrival, prompt, output; # remarks"},
        {.name = "--refresh", .value = "off|on", .choice = &w.refresh, .help = "default off"},
        {.name = "--seed", .value = "N", .number = &w.seed, .help = "of the lengths; default 1"},
        {.name = "--json", .flag = &o->json, .help = "as JSON"}};
    ex_options(argc, argv,
               "usage: build/system [options]\n"
               "A decode step of a language model on many PIM modules, tensor and pipeline "
               "parallel.",
               options, EX_COUNT(options), NULL, 0);
    judge(o, &w);
}

int main(int argc, char **argv)
{
    static record records[SYS_MOST_CUTS];
    own o = {.output = 128};
    o.machine.preset = "aimx", o.machine.n_modules = 8, o.machine.node_modules = 8;
    o.way.controller = PIMHW_DCS;
    parse(&o, argc, argv);
    size_t n_requests = 0;
    asked *requests = NULL;
    if (o.trace != NULL) requests = read_trace(&o, &n_requests);
    if (o.serve > 0) requests = draw_requests(&o, &n_requests);
    size_t n = run_cuts(&o, records, requests, n_requests);
    if (o.json) {
        print_json(&o, records, n);
    } else {
        print_setting(&o);
        print_cuts(records, n, best_of(records, n, false));
        if (n_requests > 0) print_served(records, n, best_of(records, n, true), n_requests);
    }
    free(requests);
    return ex_done();
}
