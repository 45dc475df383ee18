/* common.h - what several examples share: options, whole files, printing of readings.
 *
 * Include it after pim_hw.h or pimattn.h, with EX_NAME defined as the program's name. Whatever a
 * user got wrong ends the program here: one line on standard error, exit status 2.
 */
#ifndef EX_COMMON_H
#define EX_COMMON_H

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__unix__) || defined(__APPLE__)
#define EX_DESCRIPTORS
#include <fcntl.h>
#include <sys/stat.h>
#endif

enum { EX_SCHEMA = 1, EX_WRONG_USE = 2, EX_MAX_TEXTS = 64 };

#ifdef __GNUC__
#define EX_DIES __attribute__((noreturn, format(printf, 1, 2)))
#else
#define EX_DIES
#endif

/* --- Failing ------------------------------------------------------------------------------- */

static inline void ex_die(const char *format, ...) EX_DIES;
static inline void ex_die(const char *format, ...)
{
    va_list args;
    fflush(stdout);
    fprintf(stderr, "%s: ", EX_NAME);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    fflush(stderr);
    _Exit(EX_WRONG_USE); /* not exit: what main still holds is no leak */
}

/* n elements of so many bytes, zeroed; never NULL. */
static inline void *ex_alloc(uint64_t n, size_t bytes)
{
    void *memory = n <= SIZE_MAX / bytes ? calloc(n > 0 ? (size_t)n : 1, bytes) : NULL;
    if (memory == NULL) ex_die("no memory for %" PRIu64 " times %zu bytes", n, bytes);
    return memory;
}

/* Ends a program that went well; output that could not be written did not. */
static inline int ex_done(void)
{
    if (fflush(stdout) != 0 || ferror(stdout)) ex_die("standard output cannot be written");
    if (ferror(stderr)) ex_die("standard error cannot be written"); /* readings may stand there */
    return 0;
}

/* --- Options ------------------------------------------------------------------------------- */

/* Values of an option that may be given several times. */
typedef struct ex_texts {
    const char *text[EX_MAX_TEXTS];
    size_t n_texts;
} ex_texts;

/* One option. Exactly one target is set: it says what the value must look like. */
typedef struct ex_option {
    const char *name;
    const char *value; /* as --help shows it; of a choice: its words, "tcp|hfp"; NULL: a flag */
    const char *help;
    bool *flag;
    const char **text;
    ex_texts *texts;
    uint32_t *choice; /* index of the word given */
    uint32_t *number; /* at least min, at most max; max 0: any */
    uint32_t min;
    uint32_t max;
} ex_option;

#define EX_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A decimal number of a named option or field. */
static inline uint64_t ex_number(const char *name, const char *text, uint64_t min, uint64_t max)
{
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    bool number = text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0;
    if (!number || value < min || value > max)
        ex_die("%s: '%s' is not a number from %" PRIu64 " to %" PRIu64, name, text, min, max);
    return value;
}

/* Index of a word among "first|second|.."; a wrong word is fatal. */
static inline uint32_t ex_choice(const char *name, const char *words, const char *text)
{
    size_t length = strlen(text);
    uint32_t index = 0;
    for (const char *at = words; *at != 0; index++) {
        size_t word = strcspn(at, "|");
        if (word == length && memcmp(at, text, length) == 0) return index;
        at += word + (at[word] == '|');
    }
    ex_die("%s: '%s' is not one of %s", name, text, words);
    return 0;
}

static inline void ex_option_set(const ex_option *option, const char *text)
{
    if (option->text != NULL) *option->text = text;
    if (option->choice != NULL) *option->choice = ex_choice(option->name, option->value, text);
    if (option->number != NULL) {
        uint32_t max = option->max != 0 ? option->max : UINT32_MAX;
        *option->number = (uint32_t)ex_number(option->name, text, option->min, max);
    }
    if (option->texts != NULL) {
        if (option->texts->n_texts == EX_MAX_TEXTS)
            ex_die("%s: given more than %d times", option->name, (int)EX_MAX_TEXTS);
        option->texts->text[option->texts->n_texts++] = text;
    }
}

static inline void ex_help(const char *usage, const ex_option *options, size_t n_options)
{
    printf("%s\n", usage);
    for (size_t i = 0; i < n_options; i++) {
        char left[48];
        const char *value = options[i].value != NULL ? options[i].value : "";
        snprintf(left, sizeof left, "%s %s", options[i].name, value);
        printf("  %-24s %s\n", left, options[i].help);
    }
    printf("  %-24s %s\n", "--help", "this text");
    exit(ex_done());
}

/* The next file opened takes the number of a closed standard stream, and what is printed goes into
 * it: so those numbers are taken, by what can neither be read there nor written. */
static inline void ex_take_streams(void)
{
#ifdef EX_DESCRIPTORS
    for (int i = 0; i <= 2; i++)
        if (fcntl(i, F_GETFD) < 0 && open("/dev/null", i == 0 ? O_WRONLY : O_RDONLY) < 0)
            _Exit(EX_WRONG_USE);
#endif
}

/* Takes the options; what is left must be exactly n_files words, kept in files. */
static inline void ex_options(int argc, char **argv, const char *usage, const ex_option *options,
                              size_t n_options, const char **files, size_t n_files)
{
    size_t n_found = 0;
    ex_take_streams();
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        size_t o = 0;
        if (strcmp(word, "--help") == 0) ex_help(usage, options, n_options);
        while (o < n_options && strcmp(word, options[o].name) != 0)
            o++;
        if (o < n_options && options[o].flag != NULL) {
            *options[o].flag = true;
        } else if (o < n_options) {
            if (i + 1 == argc) ex_die("%s: %s expected after it", word, options[o].value);
            ex_option_set(&options[o], argv[++i]);
        } else if (word[0] == '-' && word[1] != 0) {
            ex_die("unknown option '%s'; --help lists them", word);
        } else if (n_found == n_files) {
            ex_die("'%s' is one file too many; --help says what is expected", word);
        } else {
            files[n_found++] = word;
        }
    }
    if (n_found < n_files)
        ex_die("%zu of %zu files given; --help says what is expected", n_found, n_files);
}

static inline void ex_device_preset(pimhw_config *config, const char *preset)
{
    pimhw_cause why = {{0}};
    if (pimhw_config_init(config, preset, &why) != PIMHW_OK) ex_die("--device: %s", why.text);
}

/* So many channels (0: as it has), then "FIELD=VALUE" texts (or NULL); not yet judged. */
static inline void ex_device_change(pimhw_config *config, uint32_t n_channels, const ex_texts *sets)
{
    pimhw_cause why = {{0}};
    if (n_channels != 0) config->n_channels = n_channels;
    for (size_t i = 0; sets != NULL && i < sets->n_texts; i++) {
        char field[64];
        const char *text = sets->text[i];
        size_t length = strcspn(text, "=");
        if (length == 0 || text[length] == 0 || length >= sizeof field)
            ex_die("--set: '%s' is not FIELD=VALUE", text);
        memcpy(field, text, length);
        field[length] = 0;
        uint32_t value = (uint32_t)ex_number(field, text + length + 1, 0, UINT32_MAX);
        if (pimhw_config_set(config, field, value, &why) != PIMHW_OK) ex_die("--set: %s", why.text);
    }
}

static inline void ex_device_check(const pimhw_config *config)
{
    pimhw_cause why = {{0}};
    if (pimhw_config_check(config, &why) != PIMHW_OK) ex_die("device: %s", why.text);
}

/* A preset, changed and judged. */
static inline void ex_device(pimhw_config *config, const char *preset, uint32_t n_channels,
                             const ex_texts *sets)
{
    ex_device_preset(config, preset);
    ex_device_change(config, n_channels, sets);
    ex_device_check(config);
}

/* --- Files --------------------------------------------------------------------------------- */

/* Whether two names are of one file, as far as can be told: an output may not be there yet. */
static inline bool ex_same_file(const char *a, const char *b)
{
#ifdef EX_DESCRIPTORS
    struct stat x, y;
    if (stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
        x.st_ino == y.st_ino)
        return true;
#endif
    while (strncmp(a, "./", 2) == 0)
        a += 2;
    while (strncmp(b, "./", 2) == 0)
        b += 2;
    return strcmp(a, b) == 0;
}

/* Ends the program if an output is another of the files given; NULL is none. */
static inline void ex_distinct(const char *const *paths, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (paths[i] != NULL && paths[k] != NULL && ex_same_file(paths[i], paths[k]))
                ex_die("%s: given for two files", paths[i]);
}

/* A file to write to, or the end of the program. */
static inline FILE *ex_open(const char *option, const char *path)
{
    if (strcmp(path, "-") == 0) ex_die("%s: a file: standard output is taken", option);
    FILE *file = fopen(path, "wb");
    if (file == NULL) ex_die("%s: %s: %s", option, path, strerror(errno));
    return file;
}

static inline void ex_close(const char *option, const char *path, FILE *file)
{
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) ex_die("%s: %s cannot be written", option, path);
}

/* All bytes of a file and a 0 behind them; "-" is standard input. To be freed by the caller. */
static inline unsigned char *ex_read_file(const char *path, size_t *n_bytes)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (file == NULL) ex_die("%s: %s", path, strerror(errno));
    size_t room = 1u << 20;
    size_t used = 0;
    unsigned char *bytes = (unsigned char *)ex_alloc(room, 1);
    for (;;) {
        size_t got = fread(bytes + used, 1, room - used - 1, file);
        used += got;
        if (got == 0) break;
        if (used < room - 1) continue;
        if (room > SIZE_MAX / 2) ex_die("%s: too large", path);
        room *= 2;
        unsigned char *more = (unsigned char *)realloc(bytes, room);
        if (more == NULL) ex_die("%s: no memory for %zu bytes", path, room);
        bytes = more;
    }
    if (ferror(file)) ex_die("%s: cannot be read: %s", path, strerror(errno));
    if (file != stdin) fclose(file);
    bytes[used] = 0;
    *n_bytes = used;
    return bytes;
}

/* Little-endian numbers of a file, on any host. */
static inline uint32_t ex_le32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static inline int32_t ex_le_int(const unsigned char *bytes)
{
    uint32_t bits = ex_le32(bytes);
    int32_t value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float ex_le_float(const unsigned char *bytes)
{
    uint32_t bits = ex_le32(bytes);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* --- Reference numbers --------------------------------------------------------------------- */

/* The nearest half-precision number (ties to even) of a value below its overflow. */
static inline float ex_round_f16(float value)
{
    int exponent = 0;
    (void)frexp((double)value, &exponent);
    int quantum = exponent - 11 > -24 ? exponent - 11 : -24;
    return (float)ldexp(nearbyint(ldexp((double)value, -quantum)), quantum);
}

/*
 * Attention of one query head in double precision, the plain way: all scores, then all weights.
 *
 *   shape    out, q: [dim]; token t of k and v at k + t * stride; weights: [n_tokens] scratch
 *   units    *max_score, *max_v: largest |score| and |v| met, for the error bound
 */
static inline void ex_exact_attention(double *out, double *max_score, double *max_v,
                                      double *weights, const float *q, const float *k,
                                      const float *v, size_t stride, size_t n_tokens, size_t dim)
{
    double maximum = -HUGE_VAL;
    double sum = 0;
    *max_score = 0;
    *max_v = 0;
    for (size_t t = 0; t < n_tokens; t++) {
        double dot = 0;
        for (size_t j = 0; j < dim; j++)
            dot += (double)q[j] * (double)k[t * stride + j];
        weights[t] = dot / sqrt((double)dim);
        maximum = fmax(maximum, weights[t]);
        *max_score = fmax(*max_score, fabs(weights[t]));
    }
    for (size_t j = 0; j < dim; j++)
        out[j] = 0;
    for (size_t t = 0; t < n_tokens; t++) {
        double weight = exp(weights[t] - maximum);
        sum += weight;
        for (size_t j = 0; j < dim; j++) {
            double element = (double)v[t * stride + j];
            out[j] += weight * element;
            if (fabs(element) > *max_v) *max_v = fabs(element);
        }
    }
    for (size_t j = 0; j < dim; j++)
        out[j] /= sum;
}

/* --- Readings ------------------------------------------------------------------------------ */

/* A number as JSON has it, to the last bit: what is not finite has no form there. */
static inline void ex_json_number(FILE *file, const char *key, double value)
{
    if (isfinite(value))
        fprintf(file, "\"%s\": %.17g", key, value);
    else
        fprintf(file, "\"%s\": null", key);
}

typedef struct ex_value {
    const char *key;
    double value;
} ex_value;

static inline void ex_json_values(FILE *file, const ex_value *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i) fprintf(file, ", ");
        ex_json_number(file, values[i].key, values[i].value);
    }
}

/* What --set made of a device, on a line of its own. */
static inline void ex_print_sets(const ex_texts *sets)
{
    for (size_t i = 0; i < sets->n_texts; i++)
        printf("%s%s%s", i ? " " : "with ", sets->text[i], i + 1 == sets->n_texts ? "\n" : "");
}

/* What was given to an option several times: its values, or none. */
static inline void ex_json_texts(FILE *file, const char *key, const ex_texts *texts)
{
    fprintf(file, "\"%s\": [", key);
    for (size_t i = 0; i < texts->n_texts; i++)
        fprintf(file, "%s\"%s\"", i ? ", " : "", texts->text[i]);
    fprintf(file, "]");
}

static inline double ex_percent(uint64_t part, uint64_t whole)
{
    return whole != 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

/* Commands by type and where the clocks went: the buckets that are not 0. */
static inline void ex_print_breakdown(const pimhw_readings *r)
{
    printf("  where the clocks of channel %" PRIu32 ", the slowest, went:\n", r->critical_channel);
    for (int i = 0; i < PIMHW_N_SPENT; i++) {
        if (r->breakdown_ck[i] == 0) continue;
        printf("    %-16s %12" PRIu64 " ck  %5.1f %%\n", pimhw_spent_str((pimhw_spent)i),
               r->breakdown_ck[i], ex_percent(r->breakdown_ck[i], r->cycles));
    }
}

/* The parts that are not 0, which sum to the total. */
static inline void ex_print_energy(const double pJ[PIMHW_N_ENERGY], double total_pJ)
{
    for (int i = 0; i < PIMHW_N_ENERGY; i++) {
        if (pJ[i] == 0) continue;
        printf("    %-16s %12.3f uJ  %5.1f %%\n", pimhw_energy_str((pimhw_energy)i), pJ[i] * 1e-6,
               total_pJ > 0 ? 100 * pJ[i] / total_pJ : 0);
    }
}

static inline void ex_json_energy(FILE *file, const char *key, const double pJ[PIMHW_N_ENERGY])
{
    fprintf(file, "\"%s\": {", key);
    for (int i = 0; i < PIMHW_N_ENERGY; i++) {
        if (i > 0) fprintf(file, ", ");
        ex_json_number(file, pimhw_energy_str((pimhw_energy)i), pJ[i]);
    }
    fprintf(file, "}");
}

static inline void ex_print_device(const pimhw_readings *r, uint32_t tCK_ps)
{
    printf("  cycles_ck        %12" PRIu64 "  clocks of tCK_ps %" PRIu32 "\n", r->cycles, tCK_ps);
    printf("  time_us          %12.3f\n", r->ns / 1000.0);
    printf("  mac_utilisation  %12.4f  %" PRIu64 " lane products, %.1f %% of them padding\n",
           r->mac_utilisation, r->macs, ex_percent(r->padding_macs, r->macs));
    printf("  n_busy_channels  %12" PRIu32 "\n", r->n_busy_channels);
    printf("  epu_ck           %12" PRIu64 "  clocks the softmax unit was busy\n", r->epu_ck);
    printf("  program_bytes    %12" PRIu64 "  and %" PRIu64 " of request data\n", r->program_bytes,
           r->request_bytes);
    printf("  n_instructions   %12" PRIu64 "  as sent\n", r->n_instructions);
    printf("  link_bytes       %12" PRIu64 "  between hub and channels\n", r->link_bytes);
    printf("  walked_rounds    %12" PRIu64 "  of loops, and %" PRIu64 " like them skipped\n",
           r->walked_rounds, r->skipped_rounds);
    printf("  commands over all channels:\n");
    for (int i = 0; i < PIMHW_N_COMMANDS; i++) {
        if (r->commands[i] == 0) continue;
        printf("    %-16s %12" PRIu64 "\n", pimhw_command_str((pimhw_command)i), r->commands[i]);
    }
    ex_print_breakdown(r);
}

/* One JSON object, without a line end. */
static inline void ex_json_device(FILE *file, const pimhw_readings *r, uint32_t tCK_ps)
{
    fprintf(file, "{\"tCK_ps\": %" PRIu32 ", \"cycles_ck\": %" PRIu64 ", ", tCK_ps, r->cycles);
    ex_json_number(file, "time_us", r->ns / 1000.0);
    fprintf(file, ", \"critical_channel\": %" PRIu32 ", \"n_busy_channels\": %" PRIu32,
            r->critical_channel, r->n_busy_channels);
    fprintf(file, ", \"critical_macs\": %" PRIu64, r->critical_macs);
    fprintf(file, ", \"commands\": {");
    for (int i = 0; i < PIMHW_N_COMMANDS; i++)
        fprintf(file, "%s\"%s\": %" PRIu64, i > 0 ? ", " : "", pimhw_command_str((pimhw_command)i),
                r->commands[i]);
    fprintf(file, "}, \"breakdown_ck\": {");
    for (int i = 0; i < PIMHW_N_SPENT; i++)
        fprintf(file, "%s\"%s\": %" PRIu64, i > 0 ? ", " : "", pimhw_spent_str((pimhw_spent)i),
                r->breakdown_ck[i]);
    fprintf(file, "}, \"macs\": %" PRIu64 ", \"useful_macs\": %" PRIu64, r->macs, r->useful_macs);
    fprintf(file, ", \"padding_macs\": %" PRIu64 ", ", r->padding_macs);
    ex_json_number(file, "mac_utilisation", r->mac_utilisation);
    fprintf(file, ", \"epu_ck\": %" PRIu64 ", \"n_instructions\": %" PRIu64, r->epu_ck,
            r->n_instructions);
    fprintf(file, ", \"link_bytes\": %" PRIu64 ", \"walked_rounds\": %" PRIu64, r->link_bytes,
            r->walked_rounds);
    fprintf(file, ", \"skipped_rounds\": %" PRIu64 ", \"program_bytes\": %" PRIu64,
            r->skipped_rounds, r->program_bytes);
    fprintf(file, ", \"request_bytes\": %" PRIu64 ", \"va2pa_bytes\": %" PRIu64 ", ",
            r->request_bytes, r->va2pa_bytes);
    ex_json_energy(file, "energy_pJ", r->energy_pJ);
    fprintf(file, ", ");
    ex_json_number(file, "total_pJ", r->total_pJ);
    fprintf(file, "}");
}

#ifdef PIMATTN_H

#define EX_PARTITIONS "tcp|hfp"
#define EX_KV_TYPES   "f32|f16|bf16|int8"
#define EX_SIMD       "most|none|256|512"
#define EX_WAYS       "host|device"

static inline const char *ex_partition_str(uint32_t partition)
{
    return partition == PIMATTN_TCP ? "tcp" : "hfp";
}

static inline void ex_print_readings(const pimattn_readings *r, uint32_t tCK_ps)
{
    printf("attention of one layer, %s, %" PRIu64 " context tokens, %" PRIu64 " bytes of K and V\n",
           ex_partition_str(r->partition), r->kv_tokens, r->kv_bytes);
    ex_print_device(&r->device, tCK_ps);
    if (r->used_out < r->wanted_out)
        printf("  output entries   %12" PRIu32 "  used; the plan would have liked %" PRIu32 "\n",
               r->used_out, r->wanted_out);
    printf("the same for %" PRIu32 " layers\n", r->n_layers);
    printf("  step_ck          %12" PRIu64 "\n", r->step_ck);
    printf("  step_us          %12.3f\n", r->step_us);
}

/* Clocks of one layer's attention if softmax took no time: the memory alone. */
static inline uint64_t ex_memory_ck(const pimattn_config *config, uint64_t context_tokens,
                                    uint64_t n_tokens)
{
    pimattn_config c = *config;
    pimattn_span span = {context_tokens, n_tokens};
    pimattn_readings r;
    pimhw_cause why = {""};
    c.device.epu_ck_per_op = 0;
    if (pimattn_estimate(&r, &c, &span, 1, &why) != PIMATTN_OK) ex_die("%s", why.text);
    return r.device.cycles;
}

/* One JSON object, without a line end. */
static inline void ex_json_readings(FILE *file, const pimattn_readings *r, uint32_t tCK_ps)
{
    fprintf(file, "{\"partition\": \"%s\", \"n_layers\": %" PRIu32 ", \"step_ck\": %" PRIu64 ", ",
            ex_partition_str(r->partition), r->n_layers, r->step_ck);
    ex_json_number(file, "step_us", r->step_us);
    fprintf(file, ", \"kv_tokens\": %" PRIu64, r->kv_tokens);
    fprintf(file, ", \"kv_bytes\": %" PRIu64 ", \"pages_used\": %" PRIu64, r->kv_bytes,
            r->pages_used);
    fprintf(file, ", \"pages_total\": %" PRIu64 ", \"wanted_out\": %" PRIu32, r->pages_total,
            r->wanted_out);
    fprintf(file, ", \"used_out\": %" PRIu32 ", \"kernel\": \"%s\", \"layer\": ", r->used_out,
            r->kernel != NULL ? r->kernel : "");
    ex_json_device(file, &r->device, tCK_ps);
    fputc('}', file);
}

/* A failing call on an engine; the engine knows why. */
static inline void ex_check(const pimattn_engine *engine, const char *what, pimattn_status status)
{
    if (status != PIMATTN_OK)
        ex_die("%s: %s: %s", what, pimattn_status_str(status), pimattn_engine_cause(engine));
}

/* An engine of this configuration. */
static inline pimattn_engine *ex_engine(const pimattn_config *config)
{
    pimattn_engine *engine = NULL;
    pimhw_cause why = {{0}};
    pimattn_status status = pimattn_engine_create(&engine, config, &why);
    if (status != PIMATTN_OK) ex_die("engine: %s: %s", pimattn_status_str(status), why.text);
    return engine;
}

#endif /* PIMATTN_H */

#endif /* EX_COMMON_H */
