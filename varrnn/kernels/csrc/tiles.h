/* Matrix products in tiles whose sums stay in registers, the pointwise functions, and masks.
 *
 * Plain C without any library, written for the vectors that the compiler's target has.
 */

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, ROWS = 12 };
#elif defined(__AVX2__) && defined(__FMA__)
enum { LANES = 8, ROWS = 6 };
#else
#error "the processor has neither AVX2 nor AVX512"
#endif
enum { WIDTH = 2 * LANES }; /* a tile has ROWS rows and WIDTH columns */

#define INLINE static inline __attribute__((always_inline))

typedef int64_t word;
typedef float lanes __attribute__((vector_size(4 * LANES), aligned(4)));

INLINE word least(word a, word b) { return a < b ? a : b; }

/* Where the share of a thread begins when n things are given out. */
INLINE word share(word n, word thread, word threads) { return n * thread / threads; }

/* Rows as tiles of equal height: how many, and where one begins. Columns as panels of WIDTH. */
INLINE word tiles(word rows) { return (rows + ROWS - 1) / ROWS; }
INLINE word tile_at(word rows, word k) { return rows * k / tiles(rows); }
INLINE word panels(word columns) { return (columns + WIDTH - 1) / WIDTH; }

/* What a product takes: a (rows, depth) with entries `row` and `column` apart, and b (depth, width), rows `below`. */
typedef struct {
    const float *a;
    word row, column, depth;
    const float *b;
    word below;
} factors;

/* out = init + a b, one or two vectors wide; init may be NULL for zeros, or out itself. */
INLINE void tile(const int rows, const int vectors, factors f, const float *init, word init_row, float *out,
                 word out_row) {
    lanes sum[ROWS][2];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = init ? *(const lanes *)(init + r * init_row + v * LANES) : (lanes){0};
    for (word k = 0; k < f.depth; k++, f.a += f.column, f.b += f.below) {
        lanes left = *(const lanes *)f.b, right = left;
        if (vectors > 1) right = *(const lanes *)(f.b + LANES);
        for (int r = 0; r < rows; r++) {
            float x = f.a[r * f.row];
            sum[r][0] += x * left;
            if (vectors > 1) sum[r][1] += x * right;
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) *(lanes *)(out + r * out_row + v * LANES) = sum[r][v];
}

/* A tile with its number of rows as a constant. */
static void whole_tile(word rows, word vectors, factors f, const float *init, word init_row, float *out, word out_row) {
#define CASE(n) \
    case n: tile(n, 2, f, init, init_row, out, out_row); break; \
    case n + 16: tile(n, 1, f, init, init_row, out, out_row); break;
    switch (rows + (vectors > 1 ? 0 : 16)) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if defined(__AVX512F__)
        CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
}

/* A tile of up to WIDTH columns; b has a multiple of LANES columns, init and out have just `width`. */
static void product(word rows, word width, factors f, const float *init, word init_row, float *out, word out_row) {
    if (width % LANES == 0) {
        whole_tile(rows, width / LANES, f, init, init_row, out, out_row);
        return;
    }
    float sums[ROWS * WIDTH] = {0};
    for (word r = 0; init && r < rows; r++) memcpy(sums + r * WIDTH, init + r * init_row, width * sizeof(float));
    whole_tile(rows, (width + LANES - 1) / LANES, f, init ? sums : 0, WIDTH, sums, WIDTH);
    for (word r = 0; r < rows; r++) memcpy(out + r * out_row, sums + r * WIDTH, width * sizeof(float));
}

/* Some panels of a weight (gates * size, columns), a gate below the other, zeros at the end of the last. */
static void pack(const float *from, word gates, word size, word columns, word first, word last, float *to) {
    for (word panel = first; panel < last; panel++)
        for (word k = 0; k < gates * size; k++) {
            float *row = to + (panel * gates * size + k) * WIDTH;
            const word width = least(WIDTH, columns - panel * WIDTH);
            memcpy(row, from + k * columns + panel * WIDTH, width * sizeof(float));
            memset(row + width, 0, (WIDTH - width) * sizeof(float));
        }
}

/* The same of a weight whose gates are transposed, each to (columns, size); LANES entries of a row at a time. */
static void pack_transposed(const float *from, word gates, word size, word columns, word first, word last, float *to) {
    for (word panel = first; panel < last; panel++)
        for (word gate = 0; gate < gates; gate++) {
            const word width = least(WIDTH, size - panel * WIDTH);
            const float *source = from + (gate * size + panel * WIDTH) * columns;
            float *target = to + (panel * gates + gate) * columns * WIDTH;
            for (word start = 0; start < columns; start += LANES) {
                const word end = least(start + LANES, columns);
                for (word j = 0; j < width; j++)
                    for (word k = start; k < end; k++) target[k * WIDTH + j] = source[j * columns + k];
                for (word j = width; j < WIDTH; j++)
                    for (word k = start; k < end; k++) target[k * WIDTH + j] = 0;
            }
        }
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

INLINE void add(word n, const float *from, float *to) {
#pragma omp simd
    for (word j = 0; j < n; j++) to[j] += from[j];
}

INLINE void multiply(word n, const float *from, const float *z, float *to) {
#pragma omp simd
    for (word j = 0; j < n; j++) to[j] = from[j] * z[j];
}

INLINE void add_product(word n, const float *from, const float *z, float *to) {
#pragma omp simd
    for (word j = 0; j < n; j++) to[j] += from[j] * z[j];
}

/* A mask (steps or 1, copies, batch, units): how many floats from a step to the next, and how many gates' masks. */
typedef struct {
    const float *at; /* NULL: ones */
    word step, copies;
} mask;

INLINE const float *mask_of(const mask *z, word t, word copy, word batch, word row, word units) {
    return z->at + t * z->step + ((z->copies > 1 ? copy : 0) * batch + row) * units;
}

/* x o z for some rows of a step, a copy for every gate's mask; copies of the result lie `apart` */
static void apply(const mask *z, word t, word batch, word first, word last, word units, const float *x, float *to,
                  word apart) {
    for (word copy = 0; copy < z->copies; copy++)
        for (word row = first; row < last; row++)
            multiply(units, x + row * units, mask_of(z, t, copy, batch, row, units), to + copy * apart + row * units);
}

/* Give out shares of some work (threads.c). */
void in_threads(void (*task)(const void *, word), const void *of, word shares);
