/* What does attention over 1 / c of the tokens cost in error, and save in time? CSV. The captured
 * tensors of a real model, every layer and step, in pages of so many tokens: the share of tokens
 * chosen, the largest difference from dense attention over all heads, the root of its mean square
 * over that of the output, and the probability that the tokens left out have, on average and at
 * most. Then 32 K tokens of a layer of Llama-3-8B (32 heads, 8 KV heads of 128 in f16): median
 * microseconds to choose and to attend. */
#define _DEFAULT_SOURCE
#define _POSIX_C_SOURCE 200809L
#define PIMATTN_IMPLEMENTATION
#include "../pimattn.h"
#define EX_NAME "sparse"
#include "../examples/common.h"
#include "../examples/capture.h"
#include "clean.h"

enum { MOST_WORDS = 1024, ROUNDS = 7, LONG = 32768, CHUNK = 256 };

static const uint32_t parts[] = {1, 2, 4, 8, 16};
static const uint32_t pages[] = {8, 16, 32};

typedef struct sums {
    uint64_t n_rows, n_chosen, n_tokens;
    double worst, squares, of_squares, missed, most_missed;
} sums;

static pimattn_engine *engine_of(const pimattn_shape *shape, uint32_t page_tokens)
{
    pimattn_config c;
    memset(&c, 0, sizeof c);
    c.shape = *shape;
    c.page_tokens = page_tokens;
    return bench_engine(&c);
}

static pimattn_choice choice_of(const pimattn_shape *s)
{
    pimattn_choice c = {NULL, 0, MOST_WORDS, s->n_kv_heads};
    c.bits = (uint64_t *)calloc(MOST_WORDS * s->n_kv_heads, sizeof(uint64_t));
    bench_must(c.bits != NULL, "memory");
    return c;
}

/* The newest token's attention with a choice or, if that is NULL, without. */
static void attend(pimattn_engine *e, uint32_t layer, pimattn_seq seq, const pimattn_choice *choice,
                   const float *q, float *out, float *lse)
{
    const pimattn_item item = {seq, 1};
    pimattn_call call;
    memset(&call, 0, sizeof call);
    call.out = out;
    call.lse = lse;
    call.q = q;
    call.items = &item;
    call.n_items = 1;
    call.choices = choice;
    bench_must(pimattn_attend(e, layer, &call, NULL) == PIMATTN_OK, "attend");
}

/* The newest token of a layer, by 1 / c and by all. */
static void compare(pimattn_engine *e, pimattn_seq seq, uint32_t layer, uint32_t c,
                    pimattn_choice *choice, const float *q, float *work, sums *to)
{
    const pimattn_shape *s = &pimattn_engine_config(e)->shape;
    size_t n = (size_t)s->n_heads * s->head_dim;
    float *dense = work, *some = work + n, *lse = some + n, *some_lse = lse + s->n_heads;
    bench_must(pimattn_retrieve(e, seq, layer, choice, NULL, q, c) == PIMATTN_OK, "retrieve");
    attend(e, layer, seq, NULL, q, dense, lse);
    attend(e, layer, seq, choice, q, some, some_lse);
    for (uint32_t h = 0; h < s->n_kv_heads; h++)
        for (uint64_t t = 0; t < choice->n_tokens; t++, to->n_tokens++)
            to->n_chosen += choice->bits[h * choice->stride + t / 64] >> t % 64 & 1;
    for (size_t i = 0; i < n; i++) {
        double d = (double)some[i] - (double)dense[i];
        to->worst = fmax(to->worst, fabs(d));
        to->squares += d * d;
        to->of_squares += (double)dense[i] * (double)dense[i];
    }
    for (uint32_t h = 0; h < s->n_heads; h++, to->n_rows++) {
        double missed = fmax(0, 1 - exp((double)some_lse[h] - (double)lse[h]));
        to->missed += missed;
        to->most_missed = fmax(to->most_missed, missed);
    }
}

static void captured(const capture *from, const char *name, uint32_t page_tokens, uint32_t c)
{
    pimattn_shape s;
    pimattn_seq seq;
    sums to;
    memset(&s, 0, sizeof s);
    memset(&to, 0, sizeof to);
    s.n_layers = from->n_layers;
    s.n_heads = from->n_heads;
    s.n_kv_heads = from->n_kv_heads;
    s.head_dim = from->head_dim;
    pimattn_engine *e = engine_of(&s, page_tokens);
    pimattn_choice choice = choice_of(&s);
    size_t q_row = from->q_floats, k_row = from->kv_floats;
    float *work = (float *)malloc(2 * (q_row + s.n_heads) * sizeof *work);
    bench_must(work && pimattn_seq_create(e, &seq) == PIMATTN_OK, "sequence");
    for (size_t t = 0; t < from->n_records; t++)
        for (uint32_t layer = 0; layer < s.n_layers; layer++) {
            const float *q = capture_at(from, t, layer), *k = q + q_row;
            pimattn_status status = pimattn_append(e, seq, layer, k, k + k_row, 1, 0, 0);
            bench_must(status == PIMATTN_OK, "append");
            compare(e, seq, layer, c, &choice, q, work, &to);
        }
    printf("%s,%u,%u,%.4f,%.3g,%.3g,%.3g,%.3g,,\n", name, (unsigned)page_tokens, (unsigned)c,
           (double)to.n_chosen / (double)to.n_tokens, to.worst, sqrt(to.squares / to.of_squares),
           to.missed / (double)to.n_rows, to.most_missed);
    pimattn_engine_destroy(e);
    free(work);
    free(choice.bits);
}

static void timed(uint32_t page_tokens)
{
    pimattn_shape s;
    pimattn_seq seq;
    memset(&s, 0, sizeof s);
    s.n_layers = 1, s.n_heads = 32, s.n_kv_heads = 8, s.head_dim = 128;
    s.k_type = s.v_type = PIMATTN_F16;
    pimattn_engine *e = engine_of(&s, page_tokens);
    pimattn_choice choice = choice_of(&s);
    size_t row = (size_t)s.n_kv_heads * s.head_dim, q_row = (size_t)s.n_heads * s.head_dim;
    float *k = (float *)malloc(2 * CHUNK * row * sizeof *k), *q = k;
    bench_must(k && pimattn_seq_create(e, &seq) == PIMATTN_OK, "sequence");
    for (uint32_t t = 0; t < LONG; t += CHUNK) {
        bench_fill(k, 2 * CHUNK * row, t + 1);
        bench_must(pimattn_append(e, seq, 0, k, k + CHUNK * row, CHUNK, 0, 0) == PIMATTN_OK,
                   "fill");
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        double choose_us[ROUNDS], attend_us[ROUNDS];
        uint64_t n = 0;
        for (int r = 0; r < ROUNDS; r++) {
            bench_fill(q, q_row, (uint32_t)r);
            double start = bench_now_us();
            bench_must(pimattn_retrieve(e, seq, 0, &choice, NULL, q, parts[i]) == PIMATTN_OK, "c");
            double between = bench_now_us();
            attend(e, 0, seq, &choice, q, q + q_row, NULL);
            attend_us[r] = bench_now_us() - between;
            choose_us[r] = between - start;
        }
        for (uint64_t t = 0; t < LONG; t++)
            n += choice.bits[t / 64] >> t % 64 & 1;
        printf("32K,%u,%u,%.4f,,,,,%.0f,%.0f\n", (unsigned)page_tokens, (unsigned)parts[i],
               (double)n / LONG, bench_median(choose_us, ROUNDS), bench_median(attend_us, ROUNDS));
    }
    pimattn_engine_destroy(e);
    free(k);
    free(choice.bits);
}

/* False: there is no such file, and a line says so. */
static bool read_if_there(capture *from, const char *dir, const char *name, const char *then)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.attn", dir, name);
    FILE *f = fopen(path, "rb");
    if (f) {
        fclose(f);
        capture_read(from, path);
    } else {
        fprintf(stderr, "sparse: %s: not there%s\n", path, then);
    }
    return f != NULL;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"stories260K_once_n256", "stories260K_dog_n256",
                                        "aidreams260K_dream_n100"};
    capture from[sizeof names / sizeof *names] = {{0}};
    bench_takes(argc, argv, 1, "[DIRECTORY of captured tensors]");
    const char *dir = argc > 1 ? argv[1] : "../shared/data";
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) /* the usual place may lack them */
        if (!read_if_there(&from[n], dir, names[n], argc > 1 ? "" : ", left out") && argc > 1)
            return 2;
    printf("tensors,page_tokens,c,chosen,max_error,rms_error,mean_missed,max_missed,choose_us,"
           "attend_us\n");
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        for (size_t p = 0; from[n].bytes && p < sizeof pages / sizeof *pages; p++)
            for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
                captured(&from[n], names[n], pages[p], parts[i]);
        free(from[n].bytes);
    }
    timed(16);
    timed(128);
    return bench_done();
}
