/* Matrix products in tiles whose sums stay in registers, the pointwise functions, and masks.
 *
 * C without any library, written for the vectors that the compiler's target has.
 */

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__) && defined(__FMA__)
enum { LANES = 8 };
#else
#error "the processor has neither AVX2 nor AVX512"
#endif
enum { WIDTH = 2 * LANES };   /* a tile has up to ROWS rows and WIDTH columns */
enum { FEW = 3 };             /* rows */
enum { LINE = 16 };           /* floats of a cache line */
enum { PACK_AHEAD = 64 };     /* floats of a row of a weight that are prefetched while it is packed */

#define INLINE static inline __attribute__((always_inline))

typedef int64_t i64;
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE i64 min_i64(i64 a, i64 b) { return a < b ? a : b; }

/* Where the share of a thread begins when n items are split evenly. */
INLINE i64 split_begin(i64 n, i64 thread, i64 threads) { return n * thread / threads; }

/* Columns as panels of WIDTH. */
INLINE i64 panels(i64 columns) { return (columns + WIDTH - 1) / WIDTH; }

INLINE void add(i64 n, const float *from, float *to) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) to[j] += from[j];
}

INLINE void multiply(i64 n, const float *from, const float *z, float *to) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) to[j] = from[j] * z[j];
}

INLINE void add_product(i64 n, const float *from, const float *z, float *to) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) to[j] += from[j] * z[j];
}

/* The factors of a product: a (rows, depth), whose rows are a_row apart, or its transpose (depth, rows) where a_row is
 * TRANSPOSED; and b (depth, WIDTH), a panel. `few`: the number of rows that are multiplied at this step by all threads
 * together, if no more than FEW, else 0: the order of a row's sum depends on it, not on the rows that one thread has.
 * `ahead`: the offset from the sums that a tile starts with to those of the next tile, which are prefetched. */
typedef struct {
    const float *a;
    i64 a_row, depth;
    const float *b;
    i64 few, ahead;
} matmul_args;

#if defined(SPLIT_BFLOAT16)
#include "split_tiles.h"
#else
#include "float_tiles.h"
#endif

/* Some panels of a weight (gates * size, columns), each (gates, size), zeros at the end of the last. */
static void pack(const float *from, i64 gates, i64 size, i64 columns, i64 first, i64 last, float *to) {
    for (i64 gate = 0; gate < gates; gate++, from += size * columns)
        pack_panels(from, size, columns, first, last, to + gate * padded(size) * WIDTH, gates * padded(size) * WIDTH);
}

/* Some panels of a weight (gates * size, columns) whose gates are transposed, each to (columns, size). */
static void pack_transposed(const float *from, i64 gates, i64 size, i64 columns, i64 first, i64 last, float *to) {
    for (i64 panel = first; panel < last; panel++)
        for (i64 gate = 0; gate < gates; gate++)
            pack_transposed_panel(min_i64(WIDTH, size - panel * WIDTH), columns,
                                  from + (gate * size + panel * WIDTH) * columns, columns,
                                  to + (panel * gates + gate) * padded(columns) * WIDTH);
}

/* exp(x) = 2^n e^r with |r| <= ln(2)/2, to about 2 ulp. NaN stays NaN; beyond the ends sigmoid is 0 or 1 anyway. */
INLINE float exp_(float x) {
    x = x > 87.0f ? 87.0f : x;
    x = x < -87.0f ? -87.0f : x;
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds, and leaves n in the low bits */
    float z = x * 1.44269504f + shift, n = z - shift;
    float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float y = 1.38888889e-3f;
    y = y * r + 8.33333333e-3f;
    y = y * r + 4.16666667e-2f;
    y = y * r + 1.66666667e-1f;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &z, 4);
    bits = (bits << 23) + 0x3f800000u;
    float power;
    memcpy(&power, &bits, 4);
    return y * power;
}

INLINE float sigm(float x) { return 1.0f / (1.0f + exp_(-x)); }

/* By the sigmoid, which leaves an absolute error of 1e-7, and near zero, where that is much, by its series. */
INLINE float tanh_(float x) {
    const float s = x * x, large = 2.0f * sigm(2.0f * x) - 1.0f;
    float y = 62.0f / 2835.0f;
    y = y * s - 17.0f / 315.0f;
    y = y * s + 2.0f / 15.0f;
    y = y * s - 1.0f / 3.0f;
    return s < 0.0625f ? x + x * s * y : large;
}

/* Activations of gates (the first two) and of candidates (sigmoid, tanh, relu), as pointwise.py numbers them. */
enum { SIGMOID, HARD_SIGMOID, TANH, RELU };

/* An activation whose kind is a constant at compile time. NaN stays NaN in all of them. */
INLINE float activation(const int kind, float x) {
    if (kind == SIGMOID) return sigm(x);
    if (kind == TANH) return tanh_(x);
    if (kind == RELU) return x < 0.0f ? 0.0f : x;
    x = 0.2f * x + 0.5f;
    x = x > 1.0f ? 1.0f : x;
    return x < 0.0f ? 0.0f : x;
}

/* Its derivative, from its value y. */
INLINE float activation_grad(const int kind, float y) {
    if (kind == SIGMOID) return y * (1 - y);
    if (kind == TANH) return 1 - y * y;
    if (kind == RELU) return y > 0.0f ? 1.0f : 0.0f;
    return y > 0.0f && y < 1.0f ? 0.2f : 0.0f;
}

/* CALL(gate, candidate) with the kinds of both as constants. */
#define WITH_ACTIVATIONS(gate, candidate, CALL) \
    switch (4 * (gate) + (candidate)) { \
        case 4 * SIGMOID + TANH: CALL(SIGMOID, TANH); break; \
        case 4 * SIGMOID + SIGMOID: CALL(SIGMOID, SIGMOID); break; \
        case 4 * SIGMOID + RELU: CALL(SIGMOID, RELU); break; \
        case 4 * HARD_SIGMOID + TANH: CALL(HARD_SIGMOID, TANH); break; \
        case 4 * HARD_SIGMOID + SIGMOID: CALL(HARD_SIGMOID, SIGMOID); break; \
        case 4 * HARD_SIGMOID + RELU: CALL(HARD_SIGMOID, RELU); break; \
    }

/* A mask (steps or 1, gates or 1, batch, units): floats from one step to the next, and the size of the gate axis. */
typedef struct {
    const float *data; /* NULL: ones */
    i64 step_stride, num_gates;
} mask;

INLINE const float *mask_of(const mask *z, i64 t, i64 copy, i64 batch, i64 row, i64 units) {
    return z->data + t * z->step_stride + ((z->num_gates > 1 ? copy : 0) * batch + row) * units;
}

/* Some units, from `column` to `end`, of some rows of a batch. */
typedef struct {
    i64 row, rows, column, end;
} region;

/* x o z for a region of a step's rows as the first factor of a product, a copy for every gate's mask, `copy_stride`
 * after the other */
static void apply(const mask *z, i64 t, i64 batch, region at, i64 units, const float *x, float *to,
                  i64 copy_stride) {
    const i64 next = padded(units);
    for (i64 copy = 0; copy < z->num_gates; copy++)
        for (i64 row = at.row; row < at.row + at.rows; row++) {
            const float *factor = z->data ? mask_of(z, t, copy, batch, row, units) + at.column : 0;
            write_factor(at.end - at.column, x + row * units + at.column, factor, to + copy * copy_stride + row * next,
                         next, at.column);
        }
}

/* Bytes of panels that stay in the second-level cache while all tiles of rows are multiplied with them (threads.c). */
extern i64 panel_cache __attribute__((visibility("hidden")));

/* The columns of as many panels with `depth` rows as fit there, at least of one. */
INLINE i64 cached_columns(i64 depth) {
    const i64 fit = panel_cache / (depth * WIDTH * (i64)sizeof(float) + 1);
    return (fit > 1 ? fit : 1) * WIDTH;
}

/* Run work_fn(p, k) for k = 0 to num_shares - 1 in torch's threads, and wait for all (threads.c). */
void in_threads(void (*work_fn)(const void *, i64), const void *p, i64 num_shares);
