/* Products of float32 numbers, each as the sum of two bfloat16 numbers, in the tile registers of AMX.
 *
 * Included by tiles.h, as an alternative to float_tiles.h: both have the same functions. With x = hi + lo, a product of
 * two numbers is hi hi + hi lo + lo hi; what is left out is 2^-16 of it at most. Sums are float32.
 *
 * A row of a first factor has its hi followed by its lo, so it takes the bytes of as many floats. A panel has for each
 * DEPTH_STEP rows four tiles of 1 KB (hi of its left and right columns, lo of both), in which two rows alternate. Both
 * have zeros up to a multiple of DEPTH_STEP. Parts of a row are written at multiples of DEPTH_STEP, so that these zeros
 * never fall on another part.
 */

#if !defined(__AMX_BF16__) || !defined(__AVX512BF16__)
#error "the processor does not have AMX with bfloat16"
#endif

enum { GRADIENT_ROWS = 384 }; /* rows of a panel that a weight's gradient is computed from at once, at most */
enum { TILE_ROWS = 16, ROWS = 2 * TILE_ROWS, DEPTH_STEP = 32, TILE_BYTES = 1024, LINE_BYTES = 64 };

/* Rows as tiles of ROWS, the last with what is left: how many, and where one begins. */
INLINE i64 tiles(i64 rows) { return (rows + ROWS - 1) / ROWS; }
INLINE i64 tile_begin(i64 rows, i64 k) { return min_i64(rows, k * ROWS); }

/* The depth of a factor in memory, and the distance of the rows of a transposed first factor. */
INLINE i64 padded(i64 depth) { return (depth + DEPTH_STEP - 1) / DEPTH_STEP * DEPTH_STEP; }
INLINE i64 transposed_row(i64 depth) { return padded(depth); }

/* The nearest bfloat16 numbers, as floats; NaN and infinities stay what they are. */
INLINE __m512 round_bfloat16(__m512 x) {
    return (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x)), 16);
}

/* A column of a row of a first factor, and some numbers written there, as they are or times z; zeros behind them. */
INLINE const float *factor_at(const float *row, i64 column) { return (const float *)((const uint16_t *)row + column); }

INLINE void write_split(__m512 x, uint16_t *hi, uint16_t *lo) {
    const __m512 rest = _mm512_sub_ps(x, round_bfloat16(x));
    _mm256_storeu_si256((__m256i *)hi, (__m256i)_mm512_cvtneps_pbh(x));
    _mm256_storeu_si256((__m256i *)lo, (__m256i)_mm512_cvtneps_pbh(rest));
}

INLINE __mmask16 lanes_left(i64 n) { return n >= LANES ? 0xffff : n > 0 ? (1 << n) - 1 : 0; }

INLINE void write_factor(i64 n, const float *from, const float *z, float *row, i64 row_size, i64 column) {
    uint16_t *hi = (uint16_t *)row + column;
    for (i64 j = 0; j < padded(n); j += LANES) {
        const __mmask16 which = lanes_left(n - j);
        __m512 x = _mm512_maskz_loadu_ps(which, from + j);
        if (z) x = _mm512_mul_ps(x, _mm512_maskz_loadu_ps(which, z + j));
        write_split(x, hi + j, hi + row_size + j);
    }
}

/* Turn a row of n numbers, with room for MAX_ROW, into a row of a first factor, in the same memory. */
enum { MAX_ROW = 256 };
static void convert_row(i64 n, float *row) {
    float copy[MAX_ROW];
    memcpy(copy, row, n * sizeof(float));
    write_factor(n, copy, 0, row, MAX_ROW, 0);
}

/* Sixteen rows become sixteen columns. */
INLINE void transpose(__m512 *x) {
    __m512 y[LANES];
    for (int i = 0; i < LANES; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        const __m512d a = (__m512d)y[i], b = (__m512d)y[i + 1], c = (__m512d)y[i + 2], d = (__m512d)y[i + 3];
        x[i] = (__m512)_mm512_unpacklo_pd(a, c), x[i + 1] = (__m512)_mm512_unpackhi_pd(a, c);
        x[i + 2] = (__m512)_mm512_unpacklo_pd(b, d), x[i + 3] = (__m512)_mm512_unpackhi_pd(b, d);
    }
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88), y[i + 4] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        x[i] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0xdd);
    }
}

/* Up to DEPTH_STEP rows of up to WIDTH columns as tiles of a panel, with zeros for the others. */
INLINE void write_tiles(i64 rows, i64 columns, const float *from, i64 row, float *panel) {
    for (i64 side = 0; side < 2; side++)
        for (i64 k = 0; k < DEPTH_STEP; k += 2) {
            const __mmask16 which = lanes_left(columns - side * LANES);
            const float *source = from + k * row + side * LANES;
            const __m512 even = _mm512_maskz_loadu_ps(k < rows ? which : 0, source);
            const __m512 odd = _mm512_maskz_loadu_ps(k + 1 < rows ? which : 0, source + row);
            const __m512 even_hi = round_bfloat16(even), odd_hi = round_bfloat16(odd);
            const __m512 even_lo = round_bfloat16(_mm512_sub_ps(even, even_hi));
            const __m512 odd_lo = round_bfloat16(_mm512_sub_ps(odd, odd_hi));
            float *hi = panel + (side * TILE_ROWS + k / 2) * LANES, *lo = hi + 2 * TILE_ROWS * LANES;
            _mm512_storeu_si512(hi, _mm512_or_si512(_mm512_srli_epi32((__m512i)even_hi, 16), (__m512i)odd_hi));
            _mm512_storeu_si512(lo, _mm512_or_si512(_mm512_srli_epi32((__m512i)even_lo, 16), (__m512i)odd_lo));
        }
}

/* Turn a panel of `depth` rows of WIDTH numbers into tiles, in the same memory. */
static void convert_panel(i64 depth, float *panel) {
    for (i64 k = 0; k < depth; k += DEPTH_STEP, panel += DEPTH_STEP * WIDTH) {
        float copy[DEPTH_STEP * WIDTH] __attribute__((aligned(LINE_BYTES)));
        const i64 rows = min_i64(DEPTH_STEP, depth - k);
        memcpy(copy, panel, rows * WIDTH * sizeof(float));
        write_tiles(rows, WIDTH, copy, WIDTH, panel);
    }
}

/* Some panels of a matrix (depth, columns), `next` after the other; the columns of some rows, as they lie in memory. */
static void pack_panels(const float *from, i64 depth, i64 columns, i64 first, i64 last, float *to, i64 next) {
    for (i64 k = 0; k < depth; k += DEPTH_STEP)
        for (i64 panel = first; panel < last; panel++)
            write_tiles(min_i64(DEPTH_STEP, depth - k), columns - panel * WIDTH, from + k * columns + panel * WIDTH,
                        columns, to + panel * next + k * WIDTH);
}

/* A panel of up to WIDTH rows of a matrix, transposed: two adjacent numbers of a row are 32 bits of a tile's column. */
static void pack_transposed_panel(i64 columns, i64 depth, const float *from, i64 row, float *panel) {
    for (i64 k = 0; k < depth; k += DEPTH_STEP, panel += DEPTH_STEP * WIDTH)
        for (i64 side = 0; side < 2; side++) {
            __m512 hi[LANES], lo[LANES];
            for (i64 j = 0; j < LANES; j++) {
                const i64 column = side * LANES + j;
                const float *source = from + column * row + k;
                const __mmask16 first = column < columns ? lanes_left(depth - k) : 0;
                const __mmask16 second = column < columns ? lanes_left(depth - k - LANES) : 0;
                __builtin_prefetch(source + PACK_AHEAD);
                __builtin_prefetch(source + PACK_AHEAD + LANES);
                const __m512 a = _mm512_maskz_loadu_ps(first, source), b = _mm512_maskz_loadu_ps(second, source + LANES);
                const __m512 rest_a = _mm512_sub_ps(a, round_bfloat16(a)), rest_b = _mm512_sub_ps(b, round_bfloat16(b));
                hi[j] = (__m512)_mm512_cvtne2ps_pbh(b, a), lo[j] = (__m512)_mm512_cvtne2ps_pbh(rest_b, rest_a);
            }
            transpose(hi);
            transpose(lo);
            float *to = panel + side * TILE_ROWS * LANES;
            for (i64 j = 0; j < LANES; j++, to += LANES) {
                _mm512_storeu_ps(to, hi[j]);
                _mm512_storeu_ps(to + 2 * TILE_ROWS * LANES, lo[j]);
            }
        }
}

/* Some adjacent columns of a matrix with `depth` rows, as the rows of a first factor. */
static void load_transposed(i64 columns, i64 depth, const float *from, i64 row, float *to) {
    const i64 size = transposed_row(depth);
    for (i64 first = 0; first < columns; first += LANES)
        for (i64 k = 0; k < size; k += LANES) {
            const __mmask16 which = lanes_left(columns - first);
            __m512 block[LANES];
            for (int i = 0; i < LANES; i++) {
                const float *source = from + (k + i) * row + first;
                block[i] = k + i < depth ? _mm512_maskz_loadu_ps(which, source) : _mm512_setzero_ps();
                __builtin_prefetch(source + ROWS); /* of the next tile */
            }
            transpose(block);
            for (int j = 0; j < LANES; j++) {
                if (first + j >= columns) break;
                uint16_t *hi = (uint16_t *)(to + (first + j) * size) + k;
                write_split(block[j], hi, hi + size);
            }
        }
}

/* The shapes of the tile registers: 0 to 3 are sums, 4 and 5 the first factor, of up to ROWS rows; 6 and 7 the second.
 * Each thread remembers its number of rows; 0 once the registers are released (threads.c). */
extern __thread i64 tile_rows __attribute__((visibility("hidden")));

typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} __attribute__((packed)) tile_shapes;

static void set_tile_rows(i64 rows) {
    if (tile_rows == rows) return;
    tile_rows = rows;
    const uint8_t upper = min_i64(rows, TILE_ROWS), lower = rows > TILE_ROWS ? rows - TILE_ROWS : 1;
    const tile_shapes shapes = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64},
                                {upper, upper, lower, lower, upper, lower, TILE_ROWS, TILE_ROWS}};
    __asm__ volatile("" : : "r"(&shapes) : "memory"); /* _tile_loadconfig tells GCC of the first 8 bytes only */
    _tile_loadconfig(&shapes);
}

/* Load the tile registers of a first factor, of its rows from TILE_ROWS on, and of a panel. Numbers are constants. */
#define LOAD_UPPER(column) _tile_loadd(4, a + (column), a_bytes)
#define LOAD_LOWER(column) \
    if (two) _tile_loadd(5, lower + (column), a_bytes)
#define LOAD_LEFT(tile) _tile_loadd(6, b + (tile) * TILE_BYTES, LINE_BYTES)
#define LOAD_RIGHT(tile) _tile_loadd(7, b + ((tile) + 1) * TILE_BYTES, LINE_BYTES)
#define ADD_UPPER(sum, side) _tile_dpbf16ps(sum, 4, side)
#define ADD_LOWER(sum, side) \
    if (two) _tile_dpbf16ps(sum, 5, side)

/* Prefetch the numbers of a tile, for writing: its rows would otherwise be waited for one after the other. */
INLINE void prefetch_tile(i64 rows, const float *from, i64 row) {
    for (i64 r = 0; r < rows; r++, from += row)
        for (int j = 0; j < 3; j++) /* rows are not aligned */
            __builtin_prefetch((const char *)from + (j < 2 ? j * LINE_BYTES : WIDTH * sizeof(float) - 1), 1);
}

/* out = init + a b for up to TILE_ROWS rows, or with `two` for more. Loads and products alternate, so that both units
 * are busy; no tile is loaded twice. */
INLINE void multiply_tiles(const int two, matmul_args f, const float *init, i64 init_row, float *out, i64 out_row) {
    const i64 a_bytes = f.a_row * sizeof(float), lo = f.a_row, init_bytes = init_row * sizeof(float);
    const uint16_t *a = (const uint16_t *)f.a, *lower = a + TILE_ROWS * 2 * f.a_row;
    const char *b = (const char *)f.b;
    if (init) {
        _tile_loadd(0, init, init_bytes);
        _tile_loadd(1, init + LANES, init_bytes);
        if (two) {
            _tile_loadd(2, init + TILE_ROWS * init_row, init_bytes);
            _tile_loadd(3, init + TILE_ROWS * init_row + LANES, init_bytes);
        }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        if (two) {
            _tile_zero(2);
            _tile_zero(3);
        }
    }
    for (i64 k = 0; k < f.depth; k += DEPTH_STEP, b += 4 * TILE_BYTES) {
        LOAD_LEFT(0);
        LOAD_UPPER(lo + k);
        ADD_UPPER(0, 6);
        LOAD_LOWER(lo + k);
        ADD_LOWER(2, 6);
        LOAD_RIGHT(0);
        ADD_UPPER(1, 7);
        ADD_LOWER(3, 7);
        LOAD_UPPER(k);
        ADD_UPPER(0, 6);
        ADD_UPPER(1, 7);
        LOAD_LOWER(k);
        ADD_LOWER(2, 6);
        ADD_LOWER(3, 7);
        LOAD_LEFT(2);
        ADD_UPPER(0, 6);
        ADD_LOWER(2, 6);
        LOAD_RIGHT(2);
        ADD_UPPER(1, 7);
        ADD_LOWER(3, 7);
    }
    _tile_stored(0, out, out_row * sizeof(float));
    _tile_stored(1, out + LANES, out_row * sizeof(float));
    if (two) {
        _tile_stored(2, out + TILE_ROWS * out_row, out_row * sizeof(float));
        _tile_stored(3, out + TILE_ROWS * out_row + LANES, out_row * sizeof(float));
    }
}

static void whole_tile(i64 rows, matmul_args f, const float *init, i64 init_row, float *out, i64 out_row) {
    set_tile_rows(rows);
    if (init && init_row) prefetch_tile(rows, init + f.ahead, init_row);
    if (init != out) prefetch_tile(rows, out, out_row);
    __asm__ volatile("" ::: "memory"); /* _tile_loadd does not tell GCC that it reads memory */
    if (rows > TILE_ROWS) multiply_tiles(1, f, init, init_row, out, out_row);
    else multiply_tiles(0, f, init, init_row, out, out_row);
}

/* A tile of up to WIDTH columns; b has all of them, init and out have just `width`. */
static void product(i64 rows, i64 width, matmul_args f, const float *init, i64 init_row, float *out, i64 out_row) {
    if (width == WIDTH) {
        whole_tile(rows, f, init, init_row, out, out_row);
        return;
    }
    float sums[ROWS * WIDTH] = {0};
    for (i64 r = 0; init && r < rows; r++) memcpy(sums + r * WIDTH, init + r * init_row, width * sizeof(float));
    whole_tile(rows, f, init ? sums : 0, WIDTH, sums, WIDTH);
    for (i64 r = 0; r < rows; r++) memcpy(out + r * out_row, sums + r * WIDTH, width * sizeof(float));
}
