/* Matrix products in tiles whose sums stay in registers, the pointwise functions, and masks.
 *
 * C without any library, written for the vectors that the compiler's target has.
 */

#include <immintrin.h>
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

typedef int64_t i64;
typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));

/* sum + x y, rounded once. Where a loop has a single sum, GCC avoids this instruction on AMD's processors and rounds
 * twice: the bits would depend on the height of a tile. In other loops x * y + sum is the same, and faster. */
INLINE vec multiply_add(float x, vec y, vec sum) {
#if defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps(_mm512_set1_ps(x), (__m512)y, (__m512)sum);
#else
    return (vec)_mm256_fmadd_ps(_mm256_set1_ps(x), (__m256)y, (__m256)sum);
#endif
}

INLINE i64 min_i64(i64 a, i64 b) { return a < b ? a : b; }

/* Where the share of a thread begins when n items are split evenly. */
INLINE i64 split_begin(i64 n, i64 thread, i64 threads) { return n * thread / threads; }

/* Rows as tiles of equal height: how many, and where one begins. Columns as panels of WIDTH. */
INLINE i64 tiles(i64 rows) { return (rows + ROWS - 1) / ROWS; }
INLINE i64 tile_begin(i64 rows, i64 k) { return rows * k / tiles(rows); }
INLINE i64 panels(i64 columns) { return (columns + WIDTH - 1) / WIDTH; }

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

enum { TRANSPOSED = 0, FEW = 3 };

enum { LINE = 16 };       /* floats of a cache line */
enum { AHEAD = 24 };      /* rows of b that are prefetched, for weights that are larger than the cache */
enum { PACK_AHEAD = 64 }; /* floats of a row of a weight that are prefetched while it is packed */

/* Prefetch the numbers of a tile, for writing: tens of memory accesses at its end would otherwise wait for each other. */
INLINE void prefetch_tile(const int rows, const int vectors, const float *from, i64 row) {
    for (int r = 0; r < rows; r++, from += row)
        for (int j = 0; j <= vectors * LANES; j += LINE) /* one line more, for rows are not aligned */
            __builtin_prefetch(from + (j < vectors * LANES ? j : vectors * LANES - 1), 1);
}

/* out = init + a b, one or two vectors wide; init may be NULL for zeros, or out itself. The strides of a and b are
 * constants as far as possible: with variables the loop has too few registers for its addresses. */
INLINE void tile(const int rows, const int vectors, const int transposed, matmul_args f, const float *init,
                 i64 init_row, float *out, i64 out_row) {
    vec sum[ROWS][2];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++)
            sum[r][v] = init ? *(const vec *)(init + r * init_row + v * LANES) : (vec){0};
    if (init && init_row) prefetch_tile(rows, vectors, init + f.ahead, init_row);
    if (init != out) prefetch_tile(rows, vectors, out, out_row);
    for (i64 k = 0; k < f.depth; k++, f.a += transposed ? rows : 1, f.b += WIDTH) {
        __builtin_prefetch(f.b + AHEAD * WIDTH);
        if (vectors > 1 && LANES == 16) __builtin_prefetch(f.b + AHEAD * WIDTH + LANES); /* another cache line */
        vec left = *(const vec *)f.b, right = left;
        if (vectors > 1) right = *(const vec *)(f.b + LANES);
        for (int r = 0; r < rows; r++) {
            float x = f.a[transposed ? r : r * f.a_row];
            sum[r][0] = rows * vectors == 1 ? multiply_add(x, left, sum[r][0]) : sum[r][0] + x * left;
            if (vectors > 1) sum[r][1] += x * right;
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) *(vec *)(out + r * out_row + v * LANES) = sum[r][v];
}

/* The same for a few rows: their sums are too few to keep the units busy, so every `ways`-th k has separate ones. */
INLINE void flat_tile(const int rows, const int ways, const int vectors, matmul_args f, const float *init, i64 init_row,
                      float *out, i64 out_row) {
    vec sum[4][FEW][2] = {0};
    i64 k = 0;
    for (; k + ways <= f.depth; k += ways)
        for (int w = 0; w < ways; w++, f.a++, f.b += WIDTH)
            for (int r = 0; r < rows; r++)
                for (int v = 0; v < vectors; v++)
                    sum[w][r][v] += f.a[r * f.a_row] * *(const vec *)(f.b + v * LANES);
    for (; k < f.depth; k++, f.a++, f.b += WIDTH)
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < vectors; v++)
                sum[0][r][v] = multiply_add(f.a[r * f.a_row], *(const vec *)(f.b + v * LANES), sum[0][r][v]);
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) {
            vec all = sum[0][r][v];
            for (int w = 1; w < ways; w++) all += sum[w][r][v];
            if (init) all += *(const vec *)(init + r * init_row + v * LANES);
            *(vec *)(out + r * out_row + v * LANES) = all;
        }
}

/* A tile with its number of rows as a constant. Not inlined: one copy of each loop stays in the instruction cache. */
#define NOT_INLINE static __attribute__((noinline))
#if defined(__AVX512F__)
#define ALL_ROWS \
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#else
#define ALL_ROWS CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#endif
#define CASE(n) \
    case n: tile(n, 2, IS_TRANSPOSED, f, init, init_row, out, out_row); break; \
    case n + 16: tile(n, 1, IS_TRANSPOSED, f, init, init_row, out, out_row); break;
#define FLAT(n, ways) \
    case n: flat_tile(n, ways, 2, f, init, init_row, out, out_row); return; \
    case n + 16: flat_tile(n, ways, 1, f, init, init_row, out, out_row); return;

#define IS_TRANSPOSED 0
NOT_INLINE void rows_tile(i64 rows, i64 vectors, matmul_args f, const float *init, i64 init_row, float *out,
                          i64 out_row) {
    if (f.few == 1) switch (vectors > 1 ? 1 : 17) { FLAT(1, 4) }
    if (f.few) switch (rows + (vectors > 1 ? 0 : 16)) { FLAT(1, 2) FLAT(2, 2) FLAT(3, 2) }
    switch (rows + (vectors > 1 ? 0 : 16)) { ALL_ROWS }
}
#undef IS_TRANSPOSED

#define IS_TRANSPOSED 1
NOT_INLINE void transposed_tile(i64 rows, i64 vectors, matmul_args f, const float *init, i64 init_row, float *out,
                                i64 out_row) {
    switch (rows + (vectors > 1 ? 0 : 16)) { ALL_ROWS }
}
#undef IS_TRANSPOSED

INLINE void whole_tile(i64 rows, i64 vectors, matmul_args f, const float *init, i64 init_row, float *out, i64 out_row) {
    if (f.a_row == TRANSPOSED) transposed_tile(rows, vectors, f, init, init_row, out, out_row);
    else rows_tile(rows, vectors, f, init, init_row, out, out_row);
}

/* A tile of up to WIDTH columns; b has a multiple of LANES columns, init and out have just `width`. */
static void product(i64 rows, i64 width, matmul_args f, const float *init, i64 init_row, float *out, i64 out_row) {
    if (width % LANES == 0) {
        whole_tile(rows, width / LANES, f, init, init_row, out, out_row);
        return;
    }
    float sums[ROWS * WIDTH] = {0};
    for (i64 r = 0; init && r < rows; r++) memcpy(sums + r * WIDTH, init + r * init_row, width * sizeof(float));
    whole_tile(rows, (width + LANES - 1) / LANES, f, init ? sums : 0, WIDTH, sums, WIDTH);
    for (i64 r = 0; r < rows; r++) memcpy(out + r * out_row, sums + r * WIDTH, width * sizeof(float));
}

/* Copy some adjacent columns of a matrix with `depth` rows: the first factor of a transposed tile. The cache line behind
 * them, which the next tile needs, is prefetched. */
INLINE void copy_constant_columns(const int columns, i64 depth, const float *from, i64 row, float *to) {
    for (i64 k = 0; k < depth; k++, from += row, to += columns) {
        __builtin_prefetch(from + LINE);
        memcpy(to, from, columns * sizeof(float));
    }
}

static void copy_columns(i64 columns, i64 depth, const float *from, i64 row, float *to) {
#undef CASE
#define CASE(n) \
    case n: copy_constant_columns(n, depth, from, row, to); break;
    switch (columns) { ALL_ROWS }
}

/* Some panels of a matrix (rows, columns), zeros at the end of the last; row by row, as they lie in memory. */
static void pack(const float *from, i64 rows, i64 columns, i64 first, i64 last, float *to) {
    for (i64 k = 0; k < rows; k++)
        for (i64 panel = first; panel < last; panel++) {
            float *row = to + (panel * rows + k) * WIDTH;
            const i64 width = min_i64(WIDTH, columns - panel * WIDTH);
            memcpy(row, from + k * columns + panel * WIDTH, width * sizeof(float));
            memset(row + width, 0, (WIDTH - width) * sizeof(float));
        }
}

/* Some panels of a weight (gates * size, columns) whose gates are transposed, each to (columns, size); LANES entries of
 * a row at a time. */
static void pack_transposed(const float *from, i64 gates, i64 size, i64 columns, i64 first, i64 last, float *to) {
    for (i64 panel = first; panel < last; panel++)
        for (i64 gate = 0; gate < gates; gate++) {
            const i64 width = min_i64(WIDTH, size - panel * WIDTH);
            const float *source = from + (gate * size + panel * WIDTH) * columns;
            float *target = to + (panel * gates + gate) * columns * WIDTH;
            for (i64 start = 0; start < columns; start += LANES) {
                const i64 end = min_i64(start + LANES, columns);
                for (i64 j = 0; j < width; j++) {
                    __builtin_prefetch(source + j * columns + start + PACK_AHEAD);
                    for (i64 k = start; k < end; k++) target[k * WIDTH + j] = source[j * columns + k];
                }
                for (i64 j = width; j < WIDTH; j++)
                    for (i64 k = start; k < end; k++) target[k * WIDTH + j] = 0;
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

/* x o z for a region of a step's rows, a copy for every gate's mask, `copy_stride` after the other */
static void apply(const mask *z, i64 t, i64 batch, region at, i64 units, const float *x, float *to,
                  i64 copy_stride) {
    for (i64 copy = 0; copy < z->num_gates; copy++)
        for (i64 row = at.row; row < at.row + at.rows; row++) {
            const float *factor = mask_of(z, t, copy, batch, row, units) + at.column;
            const i64 first = row * units + at.column;
            multiply(at.end - at.column, x + first, factor, to + copy * copy_stride + first);
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
