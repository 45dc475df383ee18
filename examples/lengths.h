/* lengths.h - context lengths of requests as papers give them: normal distributions, cut off. */
#ifndef LENGTHS_H
#define LENGTHS_H

#include <math.h>
#include <stdint.h>

typedef struct lengths {
    const char *name;
    double mean, std, least, most; /* tokens */
} lengths;

/* Tasks of LongBench [LoL-PIM, Table 2] and of LV-Eval [PIMphony, Table II]. */
enum { LENGTHS_QMSUM, LENGTHS_HOTPOTQA, LENGTHS_MUSIQUE, LENGTHS_MULTIFIELDQA, LENGTHS_LOOGLE };

static const lengths lengths_tasks[] = {{"QMSum", 13966, 6182, 2651, 30456},
                                        {"HotpotQA", 13465, 3921, 1917, 17674},
                                        {"Musique", 16362, 1651, 6820, 17917},
                                        {"multifieldqa", 60780, 31025, 20333, 119480},
                                        {"Loogle-SD", 50693, 26506, 13347, 109221}};

static inline double lengths_uniform(uint64_t *random)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*random >> 11) + 0.5) / 9007199254740992.0;
}

/* A length, drawn again until it is within the limits. */
static inline uint64_t lengths_draw(const lengths *of, uint64_t *random)
{
    double tokens;
    do {
        double turn = 2 * 3.14159265358979323846 * lengths_uniform(random);
        tokens = of->mean + of->std * sqrt(-2 * log(lengths_uniform(random))) * cos(turn);
    } while (tokens < of->least || tokens > of->most);
    return (uint64_t)tokens;
}

#endif
