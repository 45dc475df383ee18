/* capture.h - tensors captured from a real model (../shared/data/README.md has the layout). */
#ifndef CAPTURE_H
#define CAPTURE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct capture {
    int32_t head[6]; /* n_layers, n_heads, n_kv_heads, head_dim, steps, 0 */
    long n_records;
    size_t record_floats; /* of one layer: q, k, v, out */
    float *data;          /* [n_records][n_layers][record_floats], to be freed */
} capture;

/* False: there is no such file. What is no capture, or an empty one, has no records. */
static inline bool capture_read(capture *c, const char *path)
{
    char magic[4];
    memset(c, 0, sizeof *c);
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    bool ok = fread(magic, 4, 1, f) == 1 && memcmp(magic, "PKVC", 4) == 0 &&
              fread(c->head, sizeof c->head, 1, f) == 1;
    size_t n_layers = (size_t)c->head[0];
    c->record_floats = (size_t)(2 * c->head[1] + 2 * c->head[2]) * (size_t)c->head[3];
    size_t layer_bytes = c->record_floats * sizeof(float), row = n_layers * c->record_floats;
    if (ok) c->data = (float *)calloc((size_t)c->head[4] * row, sizeof(float));
    int32_t token;
    while (c->data && c->n_records < c->head[4] && fread(&token, sizeof token, 1, f) == 1) {
        if (fread(c->data + (size_t)c->n_records * row, layer_bytes, n_layers, f) != n_layers)
            break;
        c->n_records++;
    }
    fclose(f);
    return true;
}

/* What layer `layer` had at a step: q, then k, then v, then out. */
static inline const float *capture_at(const capture *c, uint64_t step, uint32_t layer)
{
    return c->data + (step * (size_t)c->head[0] + layer) * c->record_floats;
}

#endif
