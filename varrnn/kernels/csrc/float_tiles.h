/* Products of float32 numbers, in tiles whose sums stay in the registers of AVX2 or AVX512.
 *
 * Included by tiles.h, as an alternative to split_tiles.h: both have the same functions.
 */

#if defined(__AVX512F__)
enum { ROWS = 12 };
#else
enum { ROWS = 6 };
#endif
enum { GRADIENT_ROWS = 768 }; /* rows of a panel that a weight's gradient is computed from at once, at most */

/* sum + x y, rounded once. Where a loop has a single sum, GCC avoids this instruction on AMD's processors and rounds
 * twice: the bits would depend on the height of a tile. In other loops x * y + sum is the same, and faster. */
INLINE vec multiply_add(float x, vec y, vec sum) {
#if defined(__AVX512F__)
    return (vec)_mm512_fmadd_ps(_mm512_set1_ps(x), (__m512)y, (__m512)sum);
#else
    return (vec)_mm256_fmadd_ps(_mm256_set1_ps(x), (__m256)y, (__m256)sum);
#endif
}

/* Rows as tiles of equal height: how many, and where one begins. */
INLINE i64 tiles(i64 rows) { return (rows + ROWS - 1) / ROWS; }
INLINE i64 tile_begin(i64 rows, i64 k) { return rows * k / tiles(rows); }

enum { TRANSPOSED = 0 };

enum { AHEAD = 24 };      /* rows of b that are prefetched, for weights that are larger than the cache */

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

static void load_transposed(i64 columns, i64 depth, const float *from, i64 row, float *to) {
#undef CASE
#define CASE(n) \
    case n: copy_constant_columns(n, depth, from, row, to); break;
    switch (columns) { ALL_ROWS }
}

/* The depth of a factor in memory, and the distance of the rows of a transposed first factor. */
INLINE i64 padded(i64 depth) { return depth; }
INLINE i64 transposed_row(i64 depth) { return (void)depth, TRANSPOSED; }

/* A column of a row of a first factor, and some numbers written there, as they are or times z. */
INLINE const float *factor_at(const float *row, i64 column) { return row + column; }
INLINE void write_factor(i64 n, const float *from, const float *z, float *row, i64 row_size, i64 column) {
    (void)row_size;
    if (z) multiply(n, from, z, row + column);
    else memcpy(row + column, from, n * sizeof(float));
}

/* Nothing is to be done with a row of numbers that becomes a first factor, or with a panel once it is packed. */
INLINE void convert_row(i64 n, float *row) { (void)n, (void)row; }
INLINE void convert_panel(i64 depth, float *panel) { (void)depth, (void)panel; }

/* Some panels of a matrix (depth, columns), `next` after the other; row by row, as they lie in memory. */
static void pack_panels(const float *from, i64 depth, i64 columns, i64 first, i64 last, float *to, i64 next) {
    for (i64 k = 0; k < depth; k++, from += columns)
        for (i64 panel = first; panel < last; panel++) {
            float *row = to + panel * next + k * WIDTH;
            const i64 width = min_i64(WIDTH, columns - panel * WIDTH);
            memcpy(row, from + panel * WIDTH, width * sizeof(float));
            memset(row + width, 0, (WIDTH - width) * sizeof(float));
        }
}

/* A panel of up to WIDTH rows of a matrix, transposed; LANES entries of a row at a time. */
static void pack_transposed_panel(i64 columns, i64 depth, const float *from, i64 row, float *panel) {
    for (i64 start = 0; start < depth; start += LANES) {
        const i64 end = min_i64(start + LANES, depth);
        for (i64 j = 0; j < columns; j++) {
            __builtin_prefetch(from + j * row + start + PACK_AHEAD);
            for (i64 k = start; k < end; k++) panel[k * WIDTH + j] = from[j * row + k];
        }
        for (i64 j = columns; j < WIDTH; j++)
            for (i64 k = start; k < end; k++) panel[k * WIDTH + j] = 0;
    }
}
