/* Masks from the numbers of a torch.Generator on a CPU, bit by bit those of uniform_: several numbers at once. */

#include <stdint.h>

#include "tiles.h"

enum { STATE_SIZE = 624, SHIFT = 397 }; /* of the Mersenne Twister, mt19937 */

/* The first part of what torch.Generator.get_state() returns. */
typedef struct {
    uint64_t seed;
    int32_t left, seeded; /* left: numbers before the next ones are computed, plus one */
    uint64_t next;
    uint64_t numbers[STATE_SIZE];
} generator_state;

INLINE uint32_t twist(uint32_t a, uint32_t b) {
    return (((a & 0x80000000u) | (b & 0x7fffffffu)) >> 1) ^ (b & 1u ? 0x9908b0dfu : 0u);
}

/* A number depends on one that was computed 227 numbers before at the latest, so whole vectors are independent. */
static void compute_next(uint32_t *x) {
#pragma omp simd safelen(32)
    for (int i = 0; i < STATE_SIZE - SHIFT; i++) x[i] = x[i + SHIFT] ^ twist(x[i], x[i + 1]);
#pragma omp simd safelen(32)
    for (int i = STATE_SIZE - SHIFT; i < STATE_SIZE - 1; i++)
        x[i] = x[i + SHIFT - STATE_SIZE] ^ twist(x[i], x[i + 1]);
    x[STATE_SIZE - 1] = x[SHIFT - 1] ^ twist(x[STATE_SIZE - 1], x[0]);
}

INLINE uint32_t temper(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* out = value with the probability threshold / 2^24, else 0; uniform_ takes the lowest 24 bits of a number. */
void sample_bernoulli(generator_state *s, float *out, i64 count, i64 threshold, float value) {
    uint32_t x[STATE_SIZE];
    const int32_t limit = threshold;
    for (int i = 0; i < STATE_SIZE; i++) x[i] = s->numbers[i];
    while (count > 0) {
        if (s->left == 1) {
            compute_next(x);
            s->left = STATE_SIZE + 1;
            s->next = 0;
        }
        const i64 now = min_i64(count, s->left - 1);
        const uint32_t *from = x + s->next;
#pragma omp simd
        for (i64 i = 0; i < now; i++) out[i] = (int32_t)(temper(from[i]) & 0xffffffu) < limit ? value : 0.0f;
        out += now, count -= now;
        s->left -= now, s->next += now;
    }
    for (int i = 0; i < STATE_SIZE; i++) s->numbers[i] = x[i];
}
