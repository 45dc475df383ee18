/* llama.c - continues a prompt: the small inference engine of llama.h, greedy decoding.
 *
 * Standard output holds the text, as llama2.c prints it. Standard error holds what attention
 * would cost on a PIM memory: a line a token, then a summary.
 */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#define EX_NAME "llama"
#include "common.h"
#include "aim_text.h"
#include "llama.h"

enum { AIM_CHANNELS = 32 };

/* --- Readings ------------------------------------------------------------------------------ */

typedef struct arguments {
    const char *files[2]; /* checkpoint, tokenizer */
    uint32_t n_steps;     /* 0: as many as the model has positions */
    const char *prompt;
    uint32_t kv_type, sparse;
    const char *preset;
    uint32_t n_channels;
    ex_texts sets;
    const char *export_path, *expect_path;
    FILE *export_file;
    bool readings_off, quiet, json;
    pimattn_config config;
} arguments;

/* Sums over the steps. */
typedef struct costs {
    uint64_t n_tokens;
    uint64_t attention_ck;
    uint64_t memory_ck; /* of the last step, one layer */
    double pim_us;
    pimattn_readings last;
    uint64_t other; /* the first token whose text is not the expected one; 0: none so far */
} costs;

static void report_token(const costs *c, const arguments *a, uint64_t kv_pages)
{
    const pimattn_readings *r = &c->last;
    if (a->quiet) return;
    if (a->json) {
        fprintf(stderr, "{\"schema\": %d, \"token\": %" PRIu64 ", \"readings\": ", (int)EX_SCHEMA,
                c->n_tokens);
        ex_json_readings(stderr, r, a->config.device.tCK_ps);
        fprintf(stderr, "}\n");
        return;
    }
    fprintf(stderr,
            "token %" PRIu64 " %s %" PRIu64 " layer_ck %" PRIu64 " step_ck %" PRIu64
            " step_us %.3f kv_pages %" PRIu64 "\n",
            c->n_tokens, a->sparse ? "chosen_tokens" : "context_tokens", r->kv_tokens,
            r->device.cycles, r->step_ck, r->step_us, kv_pages);
}

static void report_summary(const costs *c, const arguments *a, uint64_t kv_pages)
{
    if (a->json) {
        fprintf(stderr, "{\"schema\": %d, \"tokens\": %" PRIu64 ", \"kv_pages\": %" PRIu64,
                (int)EX_SCHEMA, c->n_tokens, kv_pages);
        if (!a->readings_off) {
            fprintf(stderr, ", \"attention_ck\": %" PRIu64 ", ", c->attention_ck);
            ex_json_number(stderr, "pim_us", c->pim_us);
            fprintf(stderr, ", \"memory_ck\": %" PRIu64 ", \"last_step\": ", c->memory_ck);
            ex_json_readings(stderr, &c->last, a->config.device.tCK_ps);
        }
        if (a->expect_path) fprintf(stderr, ", \"first_other_token\": %" PRIu64, c->other);
        fprintf(stderr, "}\n");
        return;
    }
    fprintf(stderr, "tokens %" PRIu64 "\n", c->n_tokens);
    if (!a->readings_off)
        fprintf(stderr,
                "attention_ck %" PRIu64 " (all steps and layers; clocks of tCK_ps %" PRIu32 ")\n"
                "pim_us %.3f\n"
                "memory_ck %" PRIu64 " (one layer of the last step, without softmax)\n",
                c->attention_ck, a->config.device.tCK_ps, c->pim_us, c->memory_ck);
    fprintf(stderr, "kv_pages %" PRIu64 "\n", kv_pages);
    if (a->expect_path)
        fprintf(stderr, "first_other_token %" PRIu64 "%s\n", c->other, c->other ? "" : " (none)");
}

/* --- Export -------------------------------------------------------------------------------- */

/* Writes what the last step's first layer asks of the memory as an AiM text trace. */
static void export_trace(const arguments *a, pimattn_engine *engine, pimattn_seq seq)
{
    const pimattn_item item = {seq, 1};
    const pimhw_program *program = NULL;
    const pimhw_request *request = NULL;
    ex_aim_trace t = {.file = a->export_file};
    ex_check(engine, "--export", pimattn_engine_program(engine, 0, &item, 1, &program, &request));
    pimhw_status status =
        ex_aim_write_program(&t, &pimattn_engine_config(engine)->device, program, request);
    if (status != PIMHW_OK) ex_die("--export: %s: %s", pimhw_status_str(status), t.why.text);
    if (!t.ended) fprintf(t.file, "AiM EOC\n");
    ex_close("--export", a->export_path, t.file);
}

/* --- Generation ---------------------------------------------------------------------------- */

/* What chooses the tokens that take part. */
typedef struct chooser {
    pimattn_engine *engine;
    pimattn_seq seq;
    pimattn_choice choice;
    uint32_t sparse;
} chooser;

static void choose(void *user, uint32_t layer, const float *q, bool attended)
{
    chooser *c = (chooser *)user;
    if (attended) return;
    ex_check(c->engine, "retrieve",
             pimattn_retrieve(c->engine, c->seq, layer, &c->choice, NULL, q, c->sparse));
}

/* Whether the next token's text is what stands at *at, which it passes. */
static bool is_expected(const llama_tokenizer *t, uint32_t token, uint32_t next,
                        const unsigned char **at, const unsigned char *end)
{
    unsigned char byte;
    size_t length;
    const unsigned char *text = llama_text(t, token, next, &byte, &length);
    if (length > (size_t)(end - *at) || memcmp(*at, text, length) != 0) return false;
    *at += length;
    return true;
}

/* Follows the prompt, then the likeliest token, until BOS or the last step. */
static void generate(const llama_model *m, const llama_tokenizer *t, arguments *a,
                     pimattn_engine *engine)
{
    llama_state s;
    costs c = {0};
    size_t n_prompt = 0, n_expected = 0;
    unsigned char *expected = a->expect_path ? ex_read_file(a->expect_path, &n_expected) : NULL;
    const unsigned char *at = expected, *end = expected ? expected + n_expected : NULL;
    uint32_t *prompt = llama_encode(t, &n_prompt, a->prompt, a->n_steps);
    if (a->export_path != NULL) a->export_file = ex_open("--export", a->export_path);
    uint32_t token = prompt[0];
    pimattn_seq seq;
    llama_state_make(&s, m, 1);
    ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
    const size_t words = m->seq_len / 64 + 1;
    chooser chosen = {engine, seq, {NULL, 0, words, (uint32_t)m->n_kv_heads}, a->sparse};
    chosen.choice.bits = (uint64_t *)ex_alloc(words * m->n_kv_heads, sizeof(uint64_t));
    for (size_t position = 0; position < a->n_steps; position++) {
        const pimattn_item item = {seq, 1};
        const llama_batch b = {.tokens = &token,
                               .positions = &position,
                               .items = &item,
                               .n_items = 1,
                               .choices = a->sparse ? &chosen.choice : NULL,
                               .on_layer = a->sparse ? choose : NULL,
                               .user = &chosen};
        llama_forward(m, &s, engine, &b, a->readings_off ? NULL : &c.last);
        c.n_tokens++;
        if (!a->readings_off) {
            c.attention_ck += c.last.step_ck;
            c.pim_us += c.last.step_us;
            report_token(&c, a, pimattn_pages_used(engine));
        }
        uint32_t next =
            position + 1 < n_prompt ? prompt[position + 1] : llama_likeliest(s.logits, m->n_pieces);
        if (next == LLAMA_BOS) break;
        llama_print(t, token, next);
        if (expected && !c.other && !is_expected(t, token, next, &at, end)) c.other = c.n_tokens;
        token = next;
    }
    printf("\n");
    fflush(stdout);
    if (expected && !c.other && (end - at != 1 || *at != '\n')) c.other = c.n_tokens + 1;
    if (!a->readings_off) c.memory_ck = ex_memory_ck(&a->config, c.last.kv_tokens, 1);
    report_summary(&c, a, pimattn_pages_used(engine));
    if (a->export_path != NULL) export_trace(a, engine, seq);
    free(prompt), free(chosen.choice.bits), free(expected);
    llama_state_free(&s);
}

static void parse(arguments *a, int argc, char **argv)
{
    const ex_option options[] = {
        {.name = "-n",
         .value = "STEPS",
         .number = &a->n_steps,
         .help = "positions to run; default and 0: all the model has"},
        {.name = "-p", .value = "PROMPT", .text = &a->prompt, .help = "default: none"},
        {.name = "--kv", .value = EX_KV_TYPES, .choice = &a->kv_type, .help = "default f32"},
        {.name = "--sparse",
         .value = "C",
         .number = &a->sparse,
         .min = 1,
         .help = "attend to 1 / C of the tokens, by page bounds; default all"},
        {.name = "--simd",
         .value = EX_SIMD,
         .choice = &a->config.simd,
         .help = "most bits of the host kernel's vectors; default what the CPU has"},
        {.name = "--page-tokens",
         .value = "N",
         .number = &a->config.page_tokens,
         .min = 1,
         .help = "tokens of a KV page; default 128"},
        {.name = "--partition",
         .value = EX_PARTITIONS,
         .choice = &a->config.partition,
         .help = "default tcp"},
        {.name = "--channels",
         .value = "N",
         .number = &a->n_channels,
         .min = 1,
         .help = "default: as the device has"},
        {.name = "--way",
         .value = EX_WAYS,
         .choice = &a->config.way,
         .help = "who computes attention: this CPU (default), or the modelled units"},
        {.name = "--device", .value = "PRESET", .text = &a->preset, .help = "default aimx"},
        {.name = "--set",
         .value = "FIELD=N",
         .texts = &a->sets,
         .help = "a field of the device, such as lane_type=1 (bf16); repeatable"},
        {.name = "--export",
         .value = "FILE",
         .text = &a->export_path,
         .help = "the last step's program of one layer, as an AiM text trace"},
        {.name = "--expect",
         .value = "FILE",
         .text = &a->expect_path,
         .help = "the text to expect: which token is the first other one"},
        {.name = "--no-readings", .flag = &a->readings_off, .help = "time nothing"},
        {.name = "--quiet", .flag = &a->quiet, .help = "the summary only, no line a token"},
        {.name = "--json", .flag = &a->json, .help = "readings as JSON, one object a line"}};
    ex_options(argc, argv,
               "usage: build/llama [options] MODEL TOKENIZER\n"
               "Continues a prompt with a llama2.c model. Text on standard output; what its\n"
               "attention would cost on a PIM memory on standard error.",
               options, EX_COUNT(options), a->files, 2);
}

int main(int argc, char **argv)
{
    arguments a = {.prompt = "", .preset = "aimx", .config = {.max_seqs = 1}};
    llama_model m = {0};
    llama_tokenizer t = {0};
    parse(&a, argc, argv);
    ex_device(&a.config.device, a.preset, a.n_channels, &a.sets);
    if (a.config.way == PIMATTN_DEVICE && a.kv_type != PIMATTN_F32)
        ex_die("--kv: of pages, not of --way device: banks hold lanes, --set lane_type=0 or 1");
    if (a.config.way == PIMATTN_DEVICE && (a.config.page_tokens != 0 || a.config.simd != 0))
        ex_die("--page-tokens, --simd: of the host's way, not of --way device");
    if (a.export_path != NULL && a.config.device.n_channels > AIM_CHANNELS)
        ex_die("--export: the text of a trace has room for %d channels, not %" PRIu32,
               (int)AIM_CHANNELS, a.config.device.n_channels);
    if (a.export_path != NULL && a.sparse > 0)
        ex_die("--export: not together with --sparse: the program would be that of all tokens");
    const char *paths[] = {a.files[0], a.files[1], a.expect_path, a.export_path};
    if (a.export_path != NULL) ex_distinct(paths, EX_COUNT(paths));
    llama_read(&m, a.files[0]);
    llama_read_tokenizer(&t, a.files[1], m.n_pieces);
    if (a.n_steps == 0) a.n_steps = (uint32_t)m.seq_len;
    if (a.n_steps > m.seq_len)
        ex_die("-n: %" PRIu32 " steps, but the model has %zu positions", a.n_steps, m.seq_len);
    a.config.shape = llama_shape(&m, a.kv_type);
    pimattn_engine *engine = ex_engine(&a.config);
    generate(&m, &t, &a, engine);
    pimattn_engine_destroy(engine);
    llama_close(&m, &t);
    return ex_done();
}
