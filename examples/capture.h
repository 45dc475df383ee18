/* capture.h - tensors captured from a real model, checked (layout: ../shared/data/README.md).
 *
 * Include it after common.h. A file that is no capture ends the program, with the byte where it
 * went wrong.
 */
#ifndef EX_CAPTURE_H
#define EX_CAPTURE_H

enum { CAPTURE_HEADER = 28, CAPTURE_MOST = 65536 };

/* A capture in memory. One record per position: a token id, then q, k, v, out of every layer. */
typedef struct capture {
    uint32_t n_layers, n_heads, n_kv_heads, head_dim, n_steps;
    size_t n_records;           /* at least 1 */
    size_t q_floats, kv_floats; /* of one layer of one record */
    size_t record_bytes;
    unsigned char *bytes; /* to be freed by the caller */
} capture;

static inline uint32_t capture_field(const capture *c, const char *path, const char *name,
                                     size_t offset)
{
    int32_t value = ex_le_int(c->bytes + offset);
    if (value < 1 || value > CAPTURE_MOST)
        ex_die("%s: byte %zu: %s is %" PRId32 ", not 1 to %d", path, offset, name, value,
               (int)CAPTURE_MOST);
    return (uint32_t)value;
}

/* "PKVC", 6 int32, records; every size is checked before it is used. */
static inline void capture_read(capture *c, const char *path)
{
    size_t n_bytes = 0;
    c->bytes = ex_read_file(path, &n_bytes);
    if (n_bytes < CAPTURE_HEADER)
        ex_die("%s: byte %zu: the file ends inside its header of %d bytes", path, n_bytes,
               (int)CAPTURE_HEADER);
    if (memcmp(c->bytes, "PKVC", 4) != 0) ex_die("%s: byte 0: not a capture (PKVC)", path);
    c->n_layers = capture_field(c, path, "n_layers", 4);
    c->n_heads = capture_field(c, path, "n_heads", 8);
    c->n_kv_heads = capture_field(c, path, "n_kv_heads", 12);
    c->head_dim = capture_field(c, path, "head_size", 16);
    c->n_steps = capture_field(c, path, "steps", 20);
    if (c->n_heads % c->n_kv_heads != 0)
        ex_die("%s: byte 12: n_kv_heads %" PRIu32 " does not divide n_heads %" PRIu32, path,
               c->n_kv_heads, c->n_heads);
    if (ex_le32(c->bytes + 24) != 0) ex_die("%s: byte 24: the reserved field is not 0", path);

    /* Below 2^16 each: 4 * 2^16 * 4 * 2^16 * 2^16 fits in 64 bits. */
    uint64_t layer = (2 * (uint64_t)c->n_heads + 2 * (uint64_t)c->n_kv_heads) * c->head_dim;
    uint64_t record = 4 + 4 * layer * c->n_layers;
    uint64_t left = n_bytes - CAPTURE_HEADER;
    if (left % record != 0 || left == 0)
        ex_die("%s: byte %zu: the file ends inside record %" PRIu64 " of %" PRIu64 " bytes", path,
               n_bytes, left / record, record);
    if (left / record > c->n_steps)
        ex_die("%s: byte 20: %" PRIu64 " records, but only %" PRIu32 " steps", path, left / record,
               c->n_steps);
    for (size_t i = CAPTURE_HEADER; i < n_bytes; i += 4) {
        float value = ex_le_float(c->bytes + i);
        memcpy(c->bytes + i, &value, 4); /* from here on in the host's byte order */
    }
    c->record_bytes = (size_t)record;
    c->n_records = (size_t)(left / record);
    c->q_floats = (size_t)c->n_heads * c->head_dim;
    c->kv_floats = (size_t)c->n_kv_heads * c->head_dim;
}

/* What layer `layer` had at a position: q, then k, then v, then out. */
static inline const float *capture_at(const capture *c, size_t record, size_t layer)
{
    const unsigned char *at = c->bytes + CAPTURE_HEADER + record * c->record_bytes + 4;
    at += layer * (2 * c->q_floats + 2 * c->kv_floats) * sizeof(float);
    return (const float *)(const void *)at;
}

#endif /* EX_CAPTURE_H */
