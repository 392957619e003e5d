/* The tile registers of AMX in ordinary memory, for tests of split_tiles.h on processors without them: compiled in with
 * -include. As on a processor, the registers must be set up before they are used, and have no more than 16 rows. */

#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define __AMX_BF16__ 1

enum { EMULATED_TILES = 8, EMULATED_ROWS = 16, EMULATED_BYTES = 64 };

typedef struct {
    uint16_t row_bytes[EMULATED_TILES];
    uint8_t rows[EMULATED_TILES], data[EMULATED_TILES][EMULATED_ROWS][EMULATED_BYTES];
} emulated_registers;

/* Of each thread, and the same in all source files. */
__attribute__((weak, visibility("hidden"))) __thread emulated_registers emulated;

static inline void emulated_loadconfig(const void *config) {
    const uint8_t *bytes = config;
    if (bytes[0] != 1) abort(); /* the palette */
    for (int i = 0; i < EMULATED_TILES; i++) {
        memcpy(&emulated.row_bytes[i], bytes + 16 + 2 * i, 2);
        emulated.rows[i] = bytes[48 + i];
        if (emulated.row_bytes[i] > EMULATED_BYTES || emulated.rows[i] > EMULATED_ROWS) abort();
    }
}

static inline void emulated_release(void) { memset(&emulated, 0, sizeof(emulated)); }

static inline void require(int tile) {
    if (!emulated.rows[tile] || !emulated.row_bytes[tile]) abort();
}

static inline void emulated_zero(int tile) {
    require(tile);
    memset(emulated.data[tile], 0, sizeof(emulated.data[tile]));
}

static inline void emulated_loadd(int tile, const void *from, int64_t stride) {
    emulated_zero(tile);
    for (int r = 0; r < emulated.rows[tile]; r++)
        memcpy(emulated.data[tile][r], (const char *)from + r * stride, emulated.row_bytes[tile]);
}

static inline void emulated_stored(int tile, void *to, int64_t stride) {
    require(tile);
    for (int r = 0; r < emulated.rows[tile]; r++)
        memcpy((char *)to + r * stride, emulated.data[tile][r], emulated.row_bytes[tile]);
}

static inline float emulated_bfloat16(const uint8_t *row, int column) {
    uint32_t bits = 0;
    float x;
    memcpy((char *)&bits + 2, row + 2 * column, 2);
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* sums += a b; b has two rows in each of its own, alternating. */
static inline void emulated_dpbf16ps(int sums, int a, int b) {
    require(sums), require(a), require(b);
    if (emulated.rows[sums] != emulated.rows[a] || emulated.row_bytes[a] > 4 * emulated.rows[b]) abort();
    for (int r = 0; r < emulated.rows[sums]; r++) {
        float row[EMULATED_BYTES / 4];
        memcpy(row, emulated.data[sums][r], sizeof(row));
        for (int k = 0; k < emulated.row_bytes[a] / 2; k++)
            for (int c = 0; c < emulated.row_bytes[sums] / 4; c++)
                row[c] += emulated_bfloat16(emulated.data[a][r], k) *
                          emulated_bfloat16(emulated.data[b][k / 2], 2 * c + k % 2);
        memcpy(emulated.data[sums][r], row, sizeof(row));
    }
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_loadconfig
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd emulated_loadd
#define _tile_stored emulated_stored
#define _tile_dpbf16ps emulated_dpbf16ps
