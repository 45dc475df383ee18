/* llama.c - a small inference engine on pimattn.h: llama2.c checkpoints, greedy decoding.
 *
 * Standard output holds the text, as llama2.c prints it. Standard error holds what attention
 * would cost on a PIM memory: a line a token, then a summary.
 */
#define PIMATTN_IMPLEMENTATION
#include "pimattn.h"

#define EX_NAME "llama"
#include "aim_text.h"
#include "common.h"

enum { HEADER_BYTES = 28, BOS = 1, FIRST_BYTE_ID = 3, AIM_CHANNELS = 32 };

/* --- Checkpoint ---------------------------------------------------------------------------- */

/* Weights of a llama2.c checkpoint, row-major; they point into bytes. */
typedef struct model {
    size_t dim, hidden_dim, n_layers, n_heads, n_kv_heads, n_pieces, seq_len;
    size_t head_dim, kv_dim;
    bool own_classifier;
    unsigned char *bytes;
    const float *embedding;         /* [n_pieces][dim] */
    const float *attention_norm;    /* [n_layers][dim] */
    const float *wq, *wk, *wv, *wo; /* [n_layers][dim or kv_dim][dim] */
    const float *ffn_norm;          /* [n_layers][dim] */
    const float *w1, *w2, *w3;      /* hidden x dim, dim x hidden, hidden x dim */
    const float *final_norm;        /* [dim] */
    const float *classifier;        /* [n_pieces][dim] */
} model;

static size_t read_field(const unsigned char *bytes, const char *path, const char *name,
                         size_t index, int32_t max)
{
    int32_t value = ex_le_int(bytes + 4 * index);
    if (value < 1 || value > max)
        ex_die("%s: byte %zu: %s is %" PRId32 ", not 1 to %" PRId32, path, 4 * index, name, value,
               max);
    return (size_t)value;
}

/* The seven numbers of the header. Their limits keep every product below in 64 bits. */
static void read_header(model *m, const char *path, size_t n_bytes)
{
    const unsigned char *b = m->bytes;
    if (n_bytes < HEADER_BYTES)
        ex_die("%s: byte %zu: the file ends inside its header of %d bytes", path, n_bytes,
               (int)HEADER_BYTES);
    m->dim = read_field(b, path, "dim", 0, 1 << 20);
    m->hidden_dim = read_field(b, path, "hidden_dim", 1, 1 << 20);
    m->n_layers = read_field(b, path, "n_layers", 2, 1 << 16);
    m->n_heads = read_field(b, path, "n_heads", 3, 1 << 16);
    m->n_kv_heads = read_field(b, path, "n_kv_heads", 4, 1 << 16);
    m->seq_len = read_field(b, path, "seq_len", 6, 1 << 24);
    int32_t vocab = ex_le_int(b + 20); /* negative: a classifier of its own */
    if (vocab < -(1 << 24) || vocab > 1 << 24 || (vocab > -2 && vocab < 2))
        ex_die("%s: byte 20: vocab is %" PRId32 ", not 2 to %d or its negative", path, vocab,
               1 << 24);
    m->own_classifier = vocab < 0;
    m->n_pieces = (size_t)(vocab < 0 ? -vocab : vocab);
    if (m->dim % m->n_heads != 0)
        ex_die("%s: byte 12: n_heads %zu does not divide dim %zu", path, m->n_heads, m->dim);
    if (m->n_heads % m->n_kv_heads != 0)
        ex_die("%s: byte 16: n_kv_heads %zu does not divide n_heads %zu", path, m->n_kv_heads,
               m->n_heads);
    m->head_dim = m->dim / m->n_heads;
    m->kv_dim = m->n_kv_heads * m->head_dim;
    if (m->head_dim % 2 != 0)
        ex_die("%s: byte 12: a head of %zu elements has no pairs to rotate", path, m->head_dim);
}

/* Bytes a checkpoint with this header must have. */
static uint64_t checkpoint_bytes(const model *m)
{
    uint64_t dim = m->dim, layers = m->n_layers;
    uint64_t attention = layers * dim * (1 + 2 * dim + 2 * (uint64_t)m->kv_dim);
    uint64_t ffn = layers * dim * (1 + 3 * (uint64_t)m->hidden_dim);
    uint64_t rope = (uint64_t)m->seq_len * (m->head_dim / 2) * 2;
    uint64_t vocab = (uint64_t)m->n_pieces * dim * (m->own_classifier ? 2 : 1);
    return HEADER_BYTES + 4 * (vocab + attention + ffn + dim + rope);
}

static const float *take(const float **at, size_t n_floats)
{
    const float *taken = *at;
    *at += n_floats;
    return taken;
}

static void read_checkpoint(model *m, const char *path)
{
    size_t n_bytes = 0;
    m->bytes = ex_read_file(path, &n_bytes);
    read_header(m, path, n_bytes);
    uint64_t expected = checkpoint_bytes(m);
    if (n_bytes != expected)
        ex_die("%s: byte %zu: the file ends here, but its header says %" PRIu64 " bytes", path,
               n_bytes, expected);
    for (size_t i = HEADER_BYTES; i < n_bytes; i += 4) {
        float value = ex_le_float(m->bytes + i);
        memcpy(m->bytes + i, &value, 4); /* from here on in the host's byte order */
    }
    size_t dim = m->dim, layers = m->n_layers;
    const float *at = (const float *)(const void *)(m->bytes + HEADER_BYTES);
    m->embedding = take(&at, m->n_pieces * dim);
    m->attention_norm = take(&at, layers * dim);
    m->wq = take(&at, layers * dim * dim);
    m->wk = take(&at, layers * m->kv_dim * dim);
    m->wv = take(&at, layers * m->kv_dim * dim);
    m->wo = take(&at, layers * dim * dim);
    m->ffn_norm = take(&at, layers * dim);
    m->w1 = take(&at, layers * m->hidden_dim * dim);
    m->w2 = take(&at, layers * m->hidden_dim * dim);
    m->w3 = take(&at, layers * m->hidden_dim * dim);
    m->final_norm = take(&at, dim);
    (void)take(&at, m->seq_len * m->head_dim); /* rotations, computed instead */
    m->classifier = m->own_classifier ? at : m->embedding;
}

/* --- Tokenizer ----------------------------------------------------------------------------- */

typedef struct piece {
    float score;
    uint32_t length;
    const unsigned char *text; /* not ended by a 0 */
} piece;

/* A piece found by its text. */
typedef struct entry {
    const piece *p;
    uint32_t id;
} entry;

typedef struct tokenizer {
    size_t n_pieces;
    size_t longest;
    piece *pieces;  /* [n_pieces] */
    entry *by_text; /* [n_pieces], sorted */
    unsigned char *bytes;
} tokenizer;

static int compare_text(const void *left, const void *right)
{
    const piece *a = ((const entry *)left)->p;
    const piece *b = ((const entry *)right)->p;
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    return memcmp(a->text, b->text, a->length);
}

static void read_tokenizer(tokenizer *t, const char *path, size_t n_pieces)
{
    size_t n_bytes = 0, at = 4;
    t->bytes = ex_read_file(path, &n_bytes);
    if (n_bytes < 4) ex_die("%s: byte %zu: the file ends inside its header", path, n_bytes);
    t->longest = read_field(t->bytes, path, "longest piece", 0, 1 << 16);
    t->n_pieces = n_pieces;
    t->pieces = (piece *)ex_alloc(n_pieces, sizeof *t->pieces);
    t->by_text = (entry *)ex_alloc(n_pieces, sizeof *t->by_text);
    for (size_t i = 0; i < n_pieces; i++) {
        if (n_bytes - at < 8)
            ex_die("%s: byte %zu: the file ends inside piece %zu of %zu", path, n_bytes, i,
                   n_pieces);
        int32_t length = ex_le_int(t->bytes + at + 4);
        if (length < 0 || (size_t)length > t->longest)
            ex_die("%s: byte %zu: piece %zu has length %" PRId32 ", not 0 to %zu", path, at + 4, i,
                   length, t->longest);
        if (n_bytes - at - 8 < (size_t)length)
            ex_die("%s: byte %zu: the file ends inside piece %zu of %zu", path, n_bytes, i,
                   n_pieces);
        t->pieces[i] = (piece){ex_le_float(t->bytes + at), (uint32_t)length, t->bytes + at + 8};
        t->by_text[i] = (entry){&t->pieces[i], (uint32_t)i};
        at += 8 + (size_t)length;
    }
    if (at != n_bytes)
        ex_die("%s: byte %zu: more follows the %zu pieces the model has", path, at, n_pieces);
    qsort(t->by_text, n_pieces, sizeof *t->by_text, compare_text);
}

/* Finds the id of a text. */
static bool find_piece(const tokenizer *t, uint32_t *id, const unsigned char *text, size_t length)
{
    piece wanted = {0.0f, (uint32_t)length, text};
    entry key = {&wanted, 0};
    const entry *found =
        (const entry *)bsearch(&key, t->by_text, t->n_pieces, sizeof key, compare_text);
    if (found != NULL) *id = found->id;
    return found != NULL;
}

/* One id per character that is a piece, one per byte of any other. */
static size_t split_characters(const tokenizer *t, uint32_t *ids, const unsigned char *text)
{
    size_t n_ids = 0;
    for (size_t i = 0; text[i] != 0;) {
        size_t length = 1;
        while (length < 4 && (text[i + length] & 0xc0) == 0x80)
            length++;
        if (find_piece(t, &ids[n_ids], text + i, length)) {
            n_ids++;
        } else {
            for (size_t b = 0; b < length; b++)
                ids[n_ids++] = text[i + b] + FIRST_BYTE_ID;
        }
        i += length;
    }
    return n_ids;
}

/* Joins the neighbours whose union scores best, until no two make a piece. */
static size_t merge_pieces(const tokenizer *t, uint32_t *ids, size_t n_ids)
{
    unsigned char *joined = (unsigned char *)ex_alloc(2 * t->longest, 1);
    for (;;) {
        float best_score = -1e10f;
        size_t best = n_ids;
        uint32_t best_id = 0, id = 0;
        for (size_t i = 0; i + 1 < n_ids; i++) {
            const piece *a = &t->pieces[ids[i]];
            const piece *b = &t->pieces[ids[i + 1]];
            memcpy(joined, a->text, a->length);
            memcpy(joined + a->length, b->text, b->length);
            if (!find_piece(t, &id, joined, a->length + b->length)) continue;
            if (!(t->pieces[id].score > best_score)) continue;
            best_score = t->pieces[id].score;
            best_id = id;
            best = i;
        }
        if (best == n_ids) break;
        ids[best] = best_id;
        n_ids--;
        memmove(ids + best + 1, ids + best + 2, (n_ids - best - 1) * sizeof *ids);
    }
    free(joined);
    return n_ids;
}

/* BOS, a space in front of a text, the text. To be freed by the caller. */
static uint32_t *encode(const tokenizer *t, size_t *n_ids, const char *text)
{
    uint32_t *ids = (uint32_t *)ex_alloc((uint64_t)strlen(text) + 2, sizeof *ids);
    const unsigned char space[2] = " ";
    *n_ids = 1;
    ids[0] = BOS;
    if (text[0] == 0) return ids;
    size_t n_rest = split_characters(t, ids + 1, space);
    n_rest += split_characters(t, ids + 1 + n_rest, (const unsigned char *)text);
    for (size_t i = 1; i <= n_rest; i++)
        if (ids[i] >= t->n_pieces)
            ex_die("-p: byte %" PRIu32 " has no piece in this tokenizer", ids[i] - FIRST_BYTE_ID);
    *n_ids += merge_pieces(t, ids + 1, n_rest);
    return ids;
}

/* Prints a piece as llama2.c does: no space after BOS, <0xNN> as its byte, no lone unprintables. */
static void print_piece(const tokenizer *t, uint32_t previous, uint32_t id)
{
    const unsigned char *text = t->pieces[id].text;
    size_t length = t->pieces[id].length;
    char code[8] = {0};
    unsigned char byte;
    if (previous == BOS && length > 0 && text[0] == ' ') text++, length--;
    if (length == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>') {
        char *end = NULL;
        memcpy(code, text + 3, 2);
        byte = (unsigned char)strtoul(code, &end, 16);
        if (end == code + 2) text = &byte, length = 1;
    }
    bool printable =
        length != 1 || (text[0] >= 0x20 && text[0] < 0x7f) || (text[0] >= '\t' && text[0] <= '\r');
    if (printable) fwrite(text, 1, length, stdout);
    fflush(stdout);
}

/* --- Forward pass -------------------------------------------------------------------------- */

/* What one token needs on its way through the layers. */
typedef struct state {
    float *x, *normed, *change; /* [dim] */
    float *gate, *up;           /* [hidden_dim] */
    float *q, *out;             /* [dim] */
    float *k, *v;               /* [kv_dim] */
    float *logits;              /* [n_pieces] */
    uint32_t sparse;            /* attention is over 1 / sparse of the tokens; 0: over all .. */
    pimattn_choice choice;      /* .. else these */
} state;

static void make_state(state *s, const model *m, uint32_t sparse)
{
    size_t words = m->seq_len / 64 + 1;
    s->sparse = sparse;
    s->choice = (pimattn_choice){NULL, 0, words, (uint32_t)m->n_kv_heads};
    s->choice.bits = (uint64_t *)ex_alloc(words * m->n_kv_heads, sizeof *s->choice.bits);
    size_t floats = 5 * m->dim + 2 * m->hidden_dim + 2 * m->kv_dim + m->n_pieces;
    s->x = (float *)ex_alloc(floats, sizeof *s->x);
    s->normed = s->x + m->dim;
    s->change = s->normed + m->dim;
    s->q = s->change + m->dim;
    s->out = s->q + m->dim;
    s->gate = s->out + m->dim;
    s->up = s->gate + m->hidden_dim;
    s->k = s->up + m->hidden_dim;
    s->v = s->k + m->kv_dim;
    s->logits = s->v + m->kv_dim;
}

static void multiply(float *out, const float *matrix, const float *x, size_t n_rows,
                     size_t n_columns)
{
    for (size_t i = 0; i < n_rows; i++) {
        float sum = 0.0f;
        for (size_t j = 0; j < n_columns; j++)
            sum += matrix[i * n_columns + j] * x[j];
        out[i] = sum;
    }
}

static void normalise(float *out, const float *x, const float *weight, size_t dim)
{
    float squares = 0.0f;
    for (size_t i = 0; i < dim; i++)
        squares += x[i] * x[i];
    float factor = 1.0f / sqrtf(squares / (float)dim + 1e-5f);
    for (size_t i = 0; i < dim; i++)
        out[i] = weight[i] * (factor * x[i]);
}

/* Rotates the pairs of every head by their frequency times the position. */
static void rotate(float *values, size_t n_values, size_t head_dim, size_t position)
{
    for (size_t i = 0; i < n_values; i += 2) {
        float frequency = 1.0f / powf(10000.0f, (float)(i % head_dim) / (float)head_dim);
        float angle = (float)position * frequency;
        float c = cosf(angle), s = sinf(angle);
        float a = values[i], b = values[i + 1];
        values[i] = a * c - b * s;
        values[i + 1] = a * s + b * c;
    }
}

/* The feed-forward half of a layer: W2 (silu(W1 x) * (W3 x)). */
static void feed_forward(const model *m, state *s, size_t layer)
{
    size_t weights = layer * m->hidden_dim * m->dim;
    normalise(s->normed, s->x, m->ffn_norm + layer * m->dim, m->dim);
    multiply(s->gate, m->w1 + weights, s->normed, m->hidden_dim, m->dim);
    multiply(s->up, m->w3 + weights, s->normed, m->hidden_dim, m->dim);
    for (size_t i = 0; i < m->hidden_dim; i++) {
        s->gate[i] *= 1.0f / (1.0f + expf(-s->gate[i]));
        s->gate[i] *= s->up[i];
    }
    multiply(s->change, m->w2 + weights, s->gate, m->dim, m->hidden_dim);
    for (size_t i = 0; i < m->dim; i++)
        s->x[i] += s->change[i];
}

/* Attention of the newest token. */
static void attend(state *s, pimattn_engine *engine, pimattn_seq seq, uint32_t layer,
                   pimattn_readings *readings)
{
    const pimattn_item item = {seq, 1};
    pimattn_call call = {.out = s->out, .q = s->q, .items = &item, .n_items = 1};
    if (s->sparse) {
        ex_check(engine, "retrieve",
                 pimattn_retrieve(engine, seq, layer, &s->choice, NULL, s->q, s->sparse));
        call.choices = &s->choice;
    }
    ex_check(engine, "attend", pimattn_attend(engine, layer, &call, readings));
}

/* The logits of the token that follows; its K and V go into the cache. */
static void forward(const model *m, state *s, pimattn_engine *engine, pimattn_seq seq,
                    uint32_t token, size_t position, pimattn_readings *readings)
{
    size_t dim = m->dim;
    memcpy(s->x, m->embedding + token * dim, dim * sizeof *s->x);
    ex_check(engine, "reserve", pimattn_seq_reserve(engine, seq, 1));
    for (size_t layer = 0; layer < m->n_layers; layer++) {
        normalise(s->normed, s->x, m->attention_norm + layer * dim, dim);
        multiply(s->q, m->wq + layer * dim * dim, s->normed, dim, dim);
        multiply(s->k, m->wk + layer * m->kv_dim * dim, s->normed, m->kv_dim, dim);
        multiply(s->v, m->wv + layer * m->kv_dim * dim, s->normed, m->kv_dim, dim);
        rotate(s->q, dim, m->head_dim, position);
        rotate(s->k, m->kv_dim, m->head_dim, position);
        ex_check(engine, "append",
                 pimattn_append(engine, seq, (uint32_t)layer, s->k, s->v, 1, 0, 0));
        /* All layers of a step cost the same, so one of them is read. */
        attend(s, engine, seq, (uint32_t)layer, layer == 0 ? readings : NULL);
        multiply(s->change, m->wo + layer * dim * dim, s->out, dim, dim);
        for (size_t i = 0; i < dim; i++)
            s->x[i] += s->change[i];
        feed_forward(m, s, layer);
    }
    normalise(s->normed, s->x, m->final_norm, dim);
    multiply(s->logits, m->classifier, s->normed, m->n_pieces, dim);
}

static uint32_t likeliest(const float *logits, size_t n_logits)
{
    size_t best = 0;
    for (size_t i = 1; i < n_logits; i++)
        if (logits[i] > logits[best]) best = i;
    return (uint32_t)best;
}

/* --- Readings ------------------------------------------------------------------------------ */

typedef struct arguments {
    const char *files[2]; /* checkpoint, tokenizer */
    uint32_t n_steps;     /* 0: as many as the model has positions */
    const char *prompt;
    uint32_t kv_type, sparse;
    const char *preset;
    uint32_t n_channels;
    ex_texts sets;
    const char *export_path;
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
} costs;

static void report_token(const costs *c, const arguments *a)
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
            "token %" PRIu64 " context_tokens %" PRIu64 " layer_ck %" PRIu64 " step_ck %" PRIu64
            " step_us %.3f kv_pages %" PRIu64 "\n",
            c->n_tokens, r->kv_tokens, r->device.cycles, r->step_ck, r->step_us, r->pages_used);
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

/* Follows the prompt, then the likeliest token, until BOS or the last step. */
static void generate(const model *m, const tokenizer *t, arguments *a, pimattn_engine *engine)
{
    state s;
    costs c = {0};
    size_t n_prompt = 0;
    uint32_t *prompt = encode(t, &n_prompt, a->prompt);
    uint32_t token = prompt[0];
    pimattn_seq seq;
    make_state(&s, m, a->sparse);
    ex_check(engine, "sequence", pimattn_seq_create(engine, &seq));
    for (size_t position = 0; position < a->n_steps; position++) {
        forward(m, &s, engine, seq, token, position, a->readings_off ? NULL : &c.last);
        c.n_tokens++;
        if (!a->readings_off) {
            c.attention_ck += c.last.step_ck;
            c.pim_us += c.last.step_us;
            report_token(&c, a);
        }
        uint32_t next =
            position + 1 < n_prompt ? prompt[position + 1] : likeliest(s.logits, m->n_pieces);
        if (next == BOS) break;
        print_piece(t, token, next);
        token = next;
    }
    printf("\n");
    fflush(stdout);
    if (!a->readings_off) c.memory_ck = ex_memory_ck(&a->config, c.last.kv_tokens, 1);
    report_summary(&c, a, pimattn_pages_used(engine));
    if (a->export_path != NULL) export_trace(a, engine, seq);
    free(prompt);
    free(s.x);
    free(s.choice.bits);
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
        {.name = "--simd",
         .value = EX_SIMD,
         .choice = &a->config.simd,
         .help = "most bits of the host kernel's vectors; default what the CPU has"},
        {.name = "--page-tokens",
         .value = "N",
         .number = &a->config.page_tokens,
         .min = 1,
         .help = "tokens of a KV page; default 128"},
        {.name = "--sparse",
         .value = "C",
         .number = &a->sparse,
         .min = 1,
         .help = "attend to 1 / C of the tokens, by page bounds; default all"},
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
    model m = {0};
    tokenizer t = {0};
    parse(&a, argc, argv);
    ex_device(&a.config.device, a.preset, a.n_channels, &a.sets);
    if (a.export_path != NULL && a.config.device.n_channels > AIM_CHANNELS)
        ex_die("--export: the text of a trace has room for %d channels, not %" PRIu32,
               (int)AIM_CHANNELS, a.config.device.n_channels);
    read_checkpoint(&m, a.files[0]);
    read_tokenizer(&t, a.files[1], m.n_pieces);
    if (a.n_steps == 0) a.n_steps = (uint32_t)m.seq_len;
    if (a.n_steps > m.seq_len)
        ex_die("-n: %" PRIu32 " steps, but the model has %zu positions", a.n_steps, m.seq_len);
    a.config.shape = (pimattn_shape){.n_layers = (uint32_t)m.n_layers,
                                     .n_heads = (uint32_t)m.n_heads,
                                     .n_kv_heads = (uint32_t)m.n_kv_heads,
                                     .head_dim = (uint32_t)m.head_dim,
                                     .k_type = a.kv_type,
                                     .v_type = a.kv_type};
    pimattn_engine *engine = ex_engine(&a.config);
    if (a.export_path != NULL) a.export_file = ex_open("--export", a.export_path);
    generate(&m, &t, &a, engine);
    pimattn_engine_destroy(engine);
    free(m.bytes), free(t.bytes), free(t.pieces), free(t.by_text);
    return ex_done();
}
