/* llama.h - a small inference engine on pimattn.h: llama2.c checkpoints, their tokenizers, the
 * forward pass of a batch, greedy decoding.
 *
 * Include it after common.h. A file that is not what its header says ends the program, with the
 * byte where it went wrong.
 */
#ifndef EX_LLAMA_H
#define EX_LLAMA_H

enum { LLAMA_HEADER = 28, LLAMA_BOS = 1, LLAMA_FIRST_BYTE = 3 };

/* --- Checkpoint ---------------------------------------------------------------------------- */

/* Weights of a llama2.c checkpoint, row-major; they point into bytes. */
typedef struct llama_model {
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
} llama_model;

static inline size_t llama_field(const unsigned char *bytes, const char *path, const char *name,
                                 size_t index, int32_t max)
{
    int32_t value = ex_le_int(bytes + 4 * index);
    if (value < 1 || value > max)
        ex_die("%s: byte %zu: %s is %" PRId32 ", not 1 to %" PRId32, path, 4 * index, name, value,
               max);
    return (size_t)value;
}

/* The seven numbers of the header. Their limits keep every product below in 64 bits. */
static inline void llama_header(llama_model *m, const char *path, size_t n_bytes)
{
    const unsigned char *b = m->bytes;
    if (n_bytes < LLAMA_HEADER)
        ex_die("%s: byte %zu: the file ends inside its header of %d bytes", path, n_bytes,
               (int)LLAMA_HEADER);
    m->dim = llama_field(b, path, "dim", 0, 1 << 20);
    m->hidden_dim = llama_field(b, path, "hidden_dim", 1, 1 << 20);
    m->n_layers = llama_field(b, path, "n_layers", 2, 1 << 16);
    m->n_heads = llama_field(b, path, "n_heads", 3, 1 << 16);
    m->n_kv_heads = llama_field(b, path, "n_kv_heads", 4, 1 << 16);
    m->seq_len = llama_field(b, path, "seq_len", 6, 1 << 24);
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
static inline uint64_t llama_bytes(const llama_model *m)
{
    uint64_t dim = m->dim, layers = m->n_layers;
    uint64_t attention = layers * dim * (1 + 2 * dim + 2 * (uint64_t)m->kv_dim);
    uint64_t ffn = layers * dim * (1 + 3 * (uint64_t)m->hidden_dim);
    uint64_t rope = (uint64_t)m->seq_len * (m->head_dim / 2) * 2;
    uint64_t vocab = (uint64_t)m->n_pieces * dim * (m->own_classifier ? 2 : 1);
    return LLAMA_HEADER + 4 * (vocab + attention + ffn + dim + rope);
}

static inline const float *llama_take(const float **at, size_t n_floats)
{
    const float *taken = *at;
    *at += n_floats;
    return taken;
}

/* Lays the weights of m out in its bytes, as a checkpoint at path has them. */
static inline void llama_lay_out(llama_model *m, const char *path, size_t n_bytes)
{
    llama_header(m, path, n_bytes);
    uint64_t expected = llama_bytes(m);
    if (n_bytes != expected)
        ex_die("%s: byte %zu: the file ends here, but its header says %" PRIu64 " bytes", path,
               n_bytes, expected);
    for (size_t i = LLAMA_HEADER; i < n_bytes; i += 4) {
        float value = ex_le_float(m->bytes + i);
        memcpy(m->bytes + i, &value, 4); /* from here on in the host's byte order */
    }
    size_t dim = m->dim, layers = m->n_layers;
    const float *at = (const float *)(const void *)(m->bytes + LLAMA_HEADER);
    m->embedding = llama_take(&at, m->n_pieces * dim);
    m->attention_norm = llama_take(&at, layers * dim);
    m->wq = llama_take(&at, layers * dim * dim);
    m->wk = llama_take(&at, layers * m->kv_dim * dim);
    m->wv = llama_take(&at, layers * m->kv_dim * dim);
    m->wo = llama_take(&at, layers * dim * dim);
    m->ffn_norm = llama_take(&at, layers * dim);
    m->w1 = llama_take(&at, layers * m->hidden_dim * dim);
    m->w2 = llama_take(&at, layers * m->hidden_dim * dim);
    m->w3 = llama_take(&at, layers * m->hidden_dim * dim);
    m->final_norm = llama_take(&at, dim);
    (void)llama_take(&at, m->seq_len * m->head_dim); /* rotations, computed instead */
    m->classifier = m->own_classifier ? at : m->embedding;
}

static inline void llama_read(llama_model *m, const char *path)
{
    size_t n_bytes = 0;
    m->bytes = ex_read_file(path, &n_bytes);
    llama_lay_out(m, path, n_bytes);
}

/* --- Tokenizer ----------------------------------------------------------------------------- */

typedef struct llama_piece {
    float score;
    uint32_t length;
    const unsigned char *text; /* not ended by a 0 */
} llama_piece;

/* A piece found by its text. */
typedef struct llama_entry {
    const llama_piece *p;
    uint32_t id;
} llama_entry;

typedef struct llama_tokenizer {
    size_t n_pieces;
    size_t longest;
    llama_piece *pieces;  /* [n_pieces] */
    llama_entry *by_text; /* [n_pieces], sorted */
    unsigned char *bytes;
} llama_tokenizer;

static inline int llama_compare(const void *left, const void *right)
{
    const llama_piece *a = ((const llama_entry *)left)->p;
    const llama_piece *b = ((const llama_entry *)right)->p;
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    return memcmp(a->text, b->text, a->length);
}

/* Finds the n_pieces pieces in the bytes of t, as a tokenizer at path has them. */
static inline void llama_cut_pieces(llama_tokenizer *t, const char *path, size_t n_bytes,
                                    size_t n_pieces)
{
    size_t at = 4;
    if (n_bytes < 4) ex_die("%s: byte %zu: the file ends inside its header", path, n_bytes);
    t->longest = llama_field(t->bytes, path, "longest piece", 0, 1 << 16);
    t->n_pieces = n_pieces;
    t->pieces = (llama_piece *)ex_alloc(n_pieces, sizeof *t->pieces);
    t->by_text = (llama_entry *)ex_alloc(n_pieces, sizeof *t->by_text);
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
        t->pieces[i] =
            (llama_piece){ex_le_float(t->bytes + at), (uint32_t)length, t->bytes + at + 8};
        t->by_text[i] = (llama_entry){&t->pieces[i], (uint32_t)i};
        at += 8 + (size_t)length;
    }
    if (at != n_bytes)
        ex_die("%s: byte %zu: more follows the %zu pieces the model has", path, at, n_pieces);
    qsort(t->by_text, n_pieces, sizeof *t->by_text, llama_compare);
}

static inline void llama_read_tokenizer(llama_tokenizer *t, const char *path, size_t n_pieces)
{
    size_t n_bytes = 0;
    t->bytes = ex_read_file(path, &n_bytes);
    llama_cut_pieces(t, path, n_bytes, n_pieces);
}

/* Finds the id of a text. */
static inline bool llama_find(const llama_tokenizer *t, uint32_t *id, const unsigned char *text,
                              size_t length)
{
    llama_piece wanted = {0.0f, (uint32_t)length, text};
    llama_entry key = {&wanted, 0};
    const llama_entry *found =
        (const llama_entry *)bsearch(&key, t->by_text, t->n_pieces, sizeof key, llama_compare);
    if (found != NULL) *id = found->id;
    return found != NULL;
}

/* The id of a byte, whose piece is <0xNN>. */
static inline uint32_t llama_byte(const llama_tokenizer *t, unsigned char byte)
{
    uint32_t id = (uint32_t)byte + LLAMA_FIRST_BYTE;
    char code[8];
    snprintf(code, sizeof code, "<0x%02X>", (unsigned)byte);
    if (id >= t->n_pieces || t->pieces[id].length != 6 || memcmp(t->pieces[id].text, code, 6) != 0)
        ex_die("-p: byte %u has no piece in this tokenizer", (unsigned)byte);
    return id;
}

/* One id per character that is a piece, one per byte of any other. */
static inline size_t llama_split(const llama_tokenizer *t, uint32_t *ids, const unsigned char *text)
{
    size_t n_ids = 0;
    for (size_t i = 0; text[i] != 0;) {
        size_t length = 1;
        while (length < 4 && (text[i + length] & 0xc0) == 0x80)
            length++;
        if (llama_find(t, &ids[n_ids], text + i, length)) {
            n_ids++;
        } else {
            for (size_t b = 0; b < length; b++)
                ids[n_ids++] = llama_byte(t, text[i + b]);
        }
        i += length;
    }
    return n_ids;
}

/* Joins the neighbours whose union scores best, until no two make a piece. */
static inline size_t llama_merge(const llama_tokenizer *t, uint32_t *ids, size_t n_ids)
{
    unsigned char *joined = (unsigned char *)ex_alloc(2 * t->longest, 1);
    for (;;) {
        float best_score = -1e10f;
        size_t best = n_ids;
        uint32_t best_id = 0, id = 0;
        for (size_t i = 0; i + 1 < n_ids; i++) {
            const llama_piece *a = &t->pieces[ids[i]];
            const llama_piece *b = &t->pieces[ids[i + 1]];
            memcpy(joined, a->text, a->length);
            memcpy(joined + a->length, b->text, b->length);
            if (!llama_find(t, &id, joined, a->length + b->length)) continue;
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

/* BOS, a space in front of a text, the text: n_steps tokens at most. To be freed by the caller. */
static inline uint32_t *llama_encode(const llama_tokenizer *t, size_t *n_ids, const char *text,
                                     uint32_t n_steps)
{
    uint32_t *ids = (uint32_t *)ex_alloc((uint64_t)strlen(text) + 2, sizeof *ids);
    const unsigned char space[2] = " ";
    *n_ids = 1;
    ids[0] = LLAMA_BOS;
    if (text[0] == 0) return ids;
    /* No token has more bytes than the longest piece, and to join very many takes minutes. */
    size_t n_least = strlen(text) / t->longest + 2;
    if (n_least > n_steps)
        ex_die("-p: '%s' has at least %zu tokens, more than -n %" PRIu32, text, n_least, n_steps);
    size_t n_rest = llama_split(t, ids + 1, space);
    n_rest += llama_split(t, ids + 1 + n_rest, (const unsigned char *)text);
    *n_ids += llama_merge(t, ids + 1, n_rest);
    if (*n_ids > n_steps)
        ex_die("-p: '%s' has %zu tokens, more than -n %" PRIu32, text, *n_ids, n_steps);
    return ids;
}

/* What llama2.c prints of a piece: no space after BOS, <0xNN> as its byte, which *byte then is, no
 * lone unprintables. Returns its first byte, of *length. */
static inline const unsigned char *llama_text(const llama_tokenizer *t, uint32_t previous,
                                              uint32_t id, unsigned char *byte, size_t *length)
{
    const unsigned char *text = t->pieces[id].text;
    char code[8] = {0};
    *length = t->pieces[id].length;
    if (previous == LLAMA_BOS && *length > 0 && text[0] == ' ') text++, --*length;
    if (*length == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>') {
        char *end = NULL;
        memcpy(code, text + 3, 2);
        *byte = (unsigned char)strtoul(code, &end, 16);
        if (end == code + 2) text = byte, *length = 1;
    }
    bool printable =
        *length != 1 || (text[0] >= 0x20 && text[0] < 0x7f) || (text[0] >= '\t' && text[0] <= '\r');
    if (!printable) *length = 0;
    return text;
}

static inline void llama_print(const llama_tokenizer *t, uint32_t previous, uint32_t id)
{
    unsigned char byte;
    size_t length;
    const unsigned char *text = llama_text(t, previous, id, &byte, &length);
    fwrite(text, 1, length, stdout);
    fflush(stdout);
}

/* --- A model from nothing ------------------------------------------------------------------ */

static inline void llama_put(unsigned char **at, uint32_t bits)
{
    for (int shift = 0; shift < 32; shift += 8)
        *(*at)++ = (unsigned char)(bits >> shift & 0xff);
}

/* Pieces: three marks, then each printable character. */
static inline void llama_invent_tokenizer(llama_tokenizer *t, size_t n_pieces)
{
    unsigned char *at = t->bytes = (unsigned char *)ex_alloc(4 + 9 * n_pieces, 1);
    llama_put(&at, 1);
    for (size_t i = 0; i < n_pieces; i++) {
        llama_put(&at, 0); /* score */
        llama_put(&at, i >= LLAMA_FIRST_BYTE);
        if (i >= LLAMA_FIRST_BYTE) *at++ = (unsigned char)(' ' + i - LLAMA_FIRST_BYTE);
    }
    llama_cut_pieces(t, "the invented tokenizer", (size_t)(at - t->bytes), n_pieces);
}

/* Weights from -1 to 1 by a seed: text without sense, but all that needs no sense works on it. */
static inline void llama_invent(llama_model *m, llama_tokenizer *t, uint32_t seed)
{
    const uint32_t numbers[7] = {32, 64, 2, 4, 2, 3 + '~' - ' ' + 1, 4096};
    unsigned char header[LLAMA_HEADER], *at = header;
    for (size_t i = 0; i < EX_COUNT(numbers); i++)
        llama_put(&at, numbers[i]);
    m->bytes = header;
    llama_header(m, "the invented model", sizeof header);
    uint64_t n_bytes = llama_bytes(m), random = seed;
    m->bytes = at = (unsigned char *)ex_alloc(n_bytes, 1);
    for (size_t i = 0; i < EX_COUNT(numbers); i++)
        llama_put(&at, numbers[i]);
    while (at < m->bytes + n_bytes) {
        random = random * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
        float weight = (float)(uint32_t)(random >> 40) / 8388608.0f - 1.0f;
        uint32_t bits;
        memcpy(&bits, &weight, sizeof bits);
        llama_put(&at, bits);
    }
    llama_lay_out(m, "the invented model", (size_t)n_bytes);
    llama_invent_tokenizer(t, m->n_pieces);
}

/* Of the invented model, if none is given. */
enum { LLAMA_SEED = 1 };

/* A model and its tokenizer from their files, or, where both are NULL, by a seed. */
static inline void llama_open(llama_model *m, llama_tokenizer *t, const char *model,
                              const char *tokenizer, uint32_t seed)
{
    if ((model == NULL) != (tokenizer == NULL))
        ex_die("--model and --tokenizer go together: only one is given");
    if (model == NULL) {
        llama_invent(m, t, seed);
        return;
    }
    if (seed != LLAMA_SEED) ex_die("--seed is for the invented model: --model has its weights");
    llama_read(m, model);
    llama_read_tokenizer(t, tokenizer, m->n_pieces);
}

static inline void llama_close(llama_model *m, llama_tokenizer *t)
{
    free(m->bytes), free(t->bytes), free(t->pieces), free(t->by_text);
}

static inline pimattn_shape llama_shape(const llama_model *m, uint32_t kv_type)
{
    return (pimattn_shape){.n_layers = (uint32_t)m->n_layers,
                           .n_heads = (uint32_t)m->n_heads,
                           .n_kv_heads = (uint32_t)m->n_kv_heads,
                           .head_dim = (uint32_t)m->head_dim,
                           .k_type = kv_type,
                           .v_type = kv_type};
}

/* --- Forward pass -------------------------------------------------------------------------- */

/* Room for rows tokens on their way through the layers. */
typedef struct llama_state {
    float *x, *q, *out;     /* [rows][dim] */
    float *k, *v;           /* [rows][kv_dim] */
    float *logits;          /* [rows][n_pieces] */
    float *normed, *change; /* [dim] */
    float *gate, *up;       /* [hidden_dim] */
    size_t rows;
} llama_state;

static inline void llama_state_make(llama_state *s, const llama_model *m, size_t rows)
{
    size_t floats = 3 * m->dim + 2 * m->kv_dim + m->n_pieces;
    s->x = (float *)ex_alloc((uint64_t)rows * floats + 2 * (m->dim + m->hidden_dim), sizeof *s->x);
    s->q = s->x + rows * m->dim;
    s->out = s->q + rows * m->dim;
    s->k = s->out + rows * m->dim;
    s->v = s->k + rows * m->kv_dim;
    s->logits = s->v + rows * m->kv_dim;
    s->normed = s->logits + rows * m->n_pieces;
    s->change = s->normed + m->dim;
    s->gate = s->change + m->dim;
    s->up = s->gate + m->hidden_dim;
    s->rows = rows;
}

static inline void llama_state_free(llama_state *s)
{
    free(s->x);
}

static inline void llama_multiply(float *out, const float *matrix, const float *x, size_t n_rows,
                                  size_t n_columns)
{
    for (size_t i = 0; i < n_rows; i++) {
        float sum = 0.0f;
        for (size_t j = 0; j < n_columns; j++)
            sum += matrix[i * n_columns + j] * x[j];
        out[i] = sum;
    }
}

static inline void llama_normalise(float *out, const float *x, const float *weight, size_t dim)
{
    float squares = 0.0f;
    for (size_t i = 0; i < dim; i++)
        squares += x[i] * x[i];
    float factor = 1.0f / sqrtf(squares / (float)dim + 1e-5f);
    for (size_t i = 0; i < dim; i++)
        out[i] = weight[i] * (factor * x[i]);
}

/* Rotates the pairs of every head by their frequency times the position. */
static inline void llama_rotate(float *values, size_t n_values, size_t head_dim, size_t position)
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

/* The feed-forward half of a layer for one row: x += W2 (silu(W1 x) * (W3 x)). */
static inline void llama_feed_forward(const llama_model *m, llama_state *s, float *x, size_t layer)
{
    size_t weights = layer * m->hidden_dim * m->dim;
    llama_normalise(s->normed, x, m->ffn_norm + layer * m->dim, m->dim);
    llama_multiply(s->gate, m->w1 + weights, s->normed, m->hidden_dim, m->dim);
    llama_multiply(s->up, m->w3 + weights, s->normed, m->hidden_dim, m->dim);
    for (size_t i = 0; i < m->hidden_dim; i++) {
        s->gate[i] *= 1.0f / (1.0f + expf(-s->gate[i]));
        s->gate[i] *= s->up[i];
    }
    llama_multiply(s->change, m->w2 + weights, s->gate, m->dim, m->hidden_dim);
    for (size_t i = 0; i < m->dim; i++)
        x[i] += s->change[i];
}

/* New tokens of several sequences; their rows follow one another in the order of the items. */
typedef struct llama_batch {
    const uint32_t *tokens;  /* [rows] */
    const size_t *positions; /* [rows], for the rotation */
    const pimattn_item *items;
    size_t n_items;
    const pimattn_mask *masks; /* [n_items] or NULL */
    /* [n_items] or NULL, and what is called in every layer before and after attention */
    const pimattn_choice *choices;
    void (*on_layer)(void *user, uint32_t layer, const float *q, bool attended);
    void *user;
} llama_batch;

/* q of every row of a layer; k and v, which go into the cache. */
static inline void llama_project(const llama_model *m, llama_state *s, pimattn_engine *engine,
                                 const llama_batch *b, size_t layer)
{
    size_t dim = m->dim, kv_dim = m->kv_dim, row = 0;
    for (size_t i = 0; i < b->n_items; i++) {
        size_t first = row, n = (size_t)b->items[i].n_tokens;
        for (; row < first + n; row++) {
            float *q = s->q + row * dim, *k = s->k + row * kv_dim;
            llama_normalise(s->normed, s->x + row * dim, m->attention_norm + layer * dim, dim);
            llama_multiply(q, m->wq + layer * dim * dim, s->normed, dim, dim);
            llama_multiply(k, m->wk + layer * kv_dim * dim, s->normed, kv_dim, dim);
            llama_multiply(s->v + row * kv_dim, m->wv + layer * kv_dim * dim, s->normed, kv_dim,
                           dim);
            llama_rotate(q, dim, m->head_dim, b->positions[row]);
            llama_rotate(k, kv_dim, m->head_dim, b->positions[row]);
        }
        ex_check(engine, "append",
                 pimattn_append(engine, b->items[i].seq, (uint32_t)layer, s->k + first * kv_dim,
                                s->v + first * kv_dim, n, 0, 0));
    }
}

/* The logits of what follows each row; K and V of the rows go into the cache. */
static inline void llama_forward(const llama_model *m, llama_state *s, pimattn_engine *engine,
                                 const llama_batch *b, pimattn_readings *readings)
{
    size_t dim = m->dim, rows = 0;
    const pimattn_call call = {.out = s->out,
                               .q = s->q,
                               .items = b->items,
                               .n_items = b->n_items,
                               .masks = b->masks,
                               .choices = b->choices};
    for (size_t i = 0; i < b->n_items; i++) {
        rows += (size_t)b->items[i].n_tokens;
        ex_check(engine, "reserve",
                 pimattn_seq_reserve(engine, b->items[i].seq, b->items[i].n_tokens));
    }
    for (size_t row = 0; row < rows; row++)
        memcpy(s->x + row * dim, m->embedding + b->tokens[row] * dim, dim * sizeof *s->x);
    for (size_t layer = 0; layer < m->n_layers; layer++) {
        llama_project(m, s, engine, b, layer);
        if (b->on_layer) b->on_layer(b->user, (uint32_t)layer, s->q, false);
        /* All layers of a step cost the same, so one of them is read. */
        ex_check(engine, "attend",
                 pimattn_attend(engine, (uint32_t)layer, &call, layer == 0 ? readings : NULL));
        if (b->on_layer) b->on_layer(b->user, (uint32_t)layer, s->q, true);
        for (size_t row = 0; row < rows; row++) {
            float *x = s->x + row * dim;
            llama_multiply(s->change, m->wo + layer * dim * dim, s->out + row * dim, dim, dim);
            for (size_t i = 0; i < dim; i++)
                x[i] += s->change[i];
            llama_feed_forward(m, s, x, layer);
        }
    }
    for (size_t row = 0; row < rows; row++) {
        llama_normalise(s->normed, s->x + row * dim, m->final_norm, dim);
        llama_multiply(s->logits + row * m->n_pieces, m->classifier, s->normed, m->n_pieces, dim);
    }
}

static inline uint32_t llama_likeliest(const float *logits, size_t n_logits)
{
    size_t best = 0;
    for (size_t i = 1; i < n_logits; i++)
        if (logits[i] > logits[best]) best = i;
    return (uint32_t)best;
}

/* --- Greedy decoding ----------------------------------------------------------------------- */

/*
 * Follows a prompt, then the likeliest token, one token a call, until BOS or n_steps positions.
 *
 *   shape    tokens: [n_steps + 1], of which n_prompt are there; returns how many are there then
 *   clocks   of attention in all steps and layers are added; NULL: nothing is timed
 */
static inline size_t llama_greedy(const llama_model *m, pimattn_engine *engine, pimattn_seq seq,
                                  uint32_t *tokens, size_t n_prompt, size_t n_steps,
                                  uint64_t *clocks)
{
    llama_state s;
    pimattn_readings r;
    const pimattn_item item = {seq, 1};
    size_t position = 0, n_tokens = n_prompt;
    llama_state_make(&s, m, 1);
    for (; position < n_steps; position++) {
        const llama_batch b = {
            .tokens = tokens + position, .positions = &position, .items = &item, .n_items = 1};
        llama_forward(m, &s, engine, &b, clocks != NULL ? &r : NULL);
        if (clocks != NULL) *clocks += r.step_ck;
        if (position + 1 < n_tokens) continue;
        uint32_t next = llama_likeliest(s.logits, m->n_pieces);
        if (next == LLAMA_BOS) break;
        tokens[n_tokens++] = next;
    }
    llama_state_free(&s);
    return n_tokens;
}

#endif /* EX_LLAMA_H */
