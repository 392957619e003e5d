/* log softmax(x W^T + b) at the targets, forward and backward: kernels/softmax.py in C, for float32 on a CPU.
 *
 * Without a gradient the logits of a few rows exist in the cache only.
 */

#include <math.h>

#include "tiles.h"

/* At once: rows and words of a piece of logits, words and rows of a gradient. Many rows, for W is read again for each
 * piece of rows; a logarithm of a sum takes WORDS logits at a time, so this number affects the rounding. */
enum { BLOCK = 384, WORDS = 1024, SLICE = 256, DEPTH = 768 };

typedef struct {
    i64 rows, size, words, threads;
    i64 save_logits;            /* 1: the logits of all rows are kept; 0: a piece for each thread */
    const float *x;             /* (rows, size) */
    const float *weight, *bias; /* (words, size), and (words) or NULL */
    const i64 *targets;         /* (rows) */
    float *factor_x;            /* forward: x as a first factor (tiles.h); NULL: x is */
    float *packed;              /* forward: W in panels; backward: the x of a block in panels */
    float *logits;              /* (rows, words), or (threads, BLOCK, WORDS) */
    float *logsumexp, *out;     /* (rows); the result */
    const float *d_out;         /* (rows) */
    float *d;                   /* (threads, block, SLICE): gradient of the logits */
    float *dx;                  /* (threads, rows, size), to be summed over the threads, or NULL */
    float *dw, *db;             /* NULL where not wanted; db is added to */
    i64 block;                  /* backward: rows of a block, at most DEPTH */
    i64 block_start;            /* the first row of the current block */
    float *packed_words;        /* (threads, SLICE, size in panels): backward: W of some words */
} softmax;

static void pack_inputs(const void *p, i64 thread) {
    const softmax *s = p;
    const i64 all = panels(s->words);
    const i64 first = split_begin(all, thread, s->threads), last = split_begin(all, thread + 1, s->threads);
    pack_transposed(s->weight, 1, s->words, s->size, first, last, s->packed);
    const i64 end = split_begin(s->rows, thread + 1, s->threads);
    for (i64 row = split_begin(s->rows, thread, s->threads); s->factor_x && row < end; row++)
        write_factor(s->size, s->x + row * s->size, 0, s->factor_x + row * padded(s->size), padded(s->size), 0);
}

/* Add some logits to the logarithm of a sum of exponentials. */
static float log_sum_exp(float previous, i64 n, const float *x) {
    float most = previous, sum = 0;
#pragma omp simd reduction(max : most)
    for (i64 j = 0; j < n; j++) most = x[j] > most ? x[j] : most;
    const float shift = most == -INFINITY ? 0 : most;
#pragma omp simd reduction(+ : sum)
    for (i64 j = 0; j < n; j++) sum += exp_(x[j] - shift);
    if (most == -INFINITY) return sum == sum ? most : sum; /* all of probability 0, or not a number */
    return most + logf(sum + expf(previous - most));
}

/* The logits of some rows and words. */
static void compute_logits(const softmax *s, i64 from, i64 rows, i64 first, i64 last, float *logits, i64 next) {
    const i64 n = s->size, next_x = padded(n);
    const float *x = s->factor_x ? s->factor_x : s->x;
    for (i64 begin = first, end; begin < last; begin = end) {
        end = min_i64(last, begin + cached_columns(n));
        for (i64 k = 0; k < tiles(rows); k++)
            for (i64 column = begin; column < end; column += WIDTH) {
                const i64 row = tile_begin(rows, k), height = tile_begin(rows, k + 1) - row;
                const matmul_args f = {x + (from + row) * next_x, next_x, n, s->packed + column * next_x, 0, 0};
                product(height, min_i64(WIDTH, end - column), f, s->bias ? s->bias + column : 0, 0,
                        logits + row * next + column - first, next);
            }
    }
}

static void forward_rows(const void *p, i64 thread) {
    const softmax *s = p;
    const i64 v = s->words, end = split_begin(s->rows, thread + 1, s->threads), next = s->save_logits ? v : WORDS;
    for (i64 from = split_begin(s->rows, thread, s->threads); from < end; from += BLOCK) {
        const i64 rows = min_i64(BLOCK, end - from);
        for (i64 row = from; row < from + rows; row++) s->logsumexp[row] = -INFINITY;
        for (i64 first = 0; first < v; first += WORDS) {
            const i64 last = min_i64(first + WORDS, v);
            float *logits = s->save_logits ? s->logits + from * v + first : s->logits + thread * BLOCK * WORDS;
            compute_logits(s, from, rows, first, last, logits, next);
            for (i64 row = from; row < from + rows; row++, logits += next) {
                const i64 target = s->targets[row];
                if (first <= target && target < last) s->out[row] = logits[target - first];
                s->logsumexp[row] = log_sum_exp(s->logsumexp[row], last - first, logits);
            }
        }
        for (i64 row = from; row < from + rows; row++) s->out[row] -= s->logsumexp[row];
    }
}

void softmax_forward(softmax *s) {
    in_threads(pack_inputs, s, s->threads);
    in_threads(forward_rows, s, s->threads);
}

static i64 rows_of(const softmax *s) { return min_i64(s->block, s->rows - s->block_start); }

/* The thread's panels of the block's x, of GRADIENT_ROWS rows after the other. */
static void pack_rows(const void *p, i64 thread) {
    const softmax *s = p;
    const i64 all = panels(s->size);
    const i64 first = split_begin(all, thread, s->threads), last = split_begin(all, thread + 1, s->threads);
    for (i64 from = 0; from < rows_of(s); from += GRADIENT_ROWS)
        pack(s->x + (s->block_start + from) * s->size, 1, min_i64(GRADIENT_ROWS, rows_of(s) - from), s->size, first,
             last, s->packed + from * all * WIDTH);
}

enum { AHEAD_ROWS = 4 }; /* rows of logits that are prefetched */

/* The gradient of the logits of some words: d_out o (one at the target - softmax), (rows, SLICE). */
static void logits_grad(const softmax *s, i64 first, i64 last, float *d) {
    for (i64 row = s->block_start; row < s->block_start + rows_of(s); row++, d += SLICE) {
        const float *logits = s->logits + row * s->words + first, logsumexp = s->logsumexp[row], g = s->d_out[row];
        const i64 target = s->targets[row];
        for (i64 j = 0; j < last - first; j += LINE) __builtin_prefetch(logits + AHEAD_ROWS * s->words + j);
#pragma omp simd
        for (i64 j = 0; j < last - first; j++) d[j] = -g * exp_(logits[j] - logsumexp);
        if (first <= target && target < last) d[target - first] += g;
    }
}

/* dx += d W of some words for all rows of the block */
static void x_grad(const softmax *s, i64 first, i64 last, const float *d, float *dx, float *packed) {
    const i64 n = s->size, depth = last - first, rows = rows_of(s);
    for (i64 begin = 0, end; begin < n; begin = end) {
        end = min_i64(n, begin + cached_columns(depth));
        pack(s->weight + first * n, 1, depth, n, begin / WIDTH, panels(end), packed);
        for (i64 k = 0; k < tiles(rows); k++)
            for (i64 column = begin; column < end; column += WIDTH) {
                const i64 row = tile_begin(rows, k), height = tile_begin(rows, k + 1) - row;
                float *to = dx + (s->block_start + row) * n + column;
                const matmul_args f = {d + row * SLICE, SLICE, depth, packed + column * padded(depth), 0, WIDTH};
                product(height, min_i64(WIDTH, end - column), f, to, n, to, n);
            }
    }
}

/* dw += d^T x and db += the sum of d, of some words */
static void weight_grad(const softmax *s, i64 first, i64 last, const float *d) {
    const i64 n = s->size, all = last - first;
    float part[GRADIENT_ROWS * ROWS] __attribute__((aligned(64)));
    for (i64 from = 0; s->dw && from < rows_of(s); from += GRADIENT_ROWS) {
        const i64 depth = min_i64(GRADIENT_ROWS, rows_of(s) - from);
        const float *packed = s->packed + from * panels(n) * WIDTH;
        for (i64 k = 0; k < tiles(all); k++) {
            const i64 j = tile_begin(all, k), rows = tile_begin(all, k + 1) - j;
            load_transposed(rows, depth, d + from * SLICE + j, SLICE, part);
            for (i64 column = 0; column < n; column += WIDTH) {
                float *to = s->dw + (first + j) * n + column;
                const matmul_args f = {part, transposed_row(depth), depth, packed + column * padded(depth), 0, WIDTH};
                product(rows, min_i64(WIDTH, n - column), f, s->block_start + from ? to : 0, n, to, n);
            }
        }
    }
    for (i64 row = 0; s->db && row < rows_of(s); row++) add(all, d + row * SLICE, s->db + first);
}

static void backward_words(const void *p, i64 thread) {
    const softmax *s = p;
    const i64 slices = (s->words + SLICE - 1) / SLICE, end = split_begin(slices, thread + 1, s->threads) * SLICE;
    float *d = s->d + thread * s->block * SLICE;
    float *packed = s->packed_words + thread * SLICE * panels(s->size) * WIDTH;
    for (i64 first = split_begin(slices, thread, s->threads) * SLICE; first < min_i64(end, s->words); first += SLICE) {
        const i64 last = min_i64(first + SLICE, s->words);
        logits_grad(s, first, last, d);
        weight_grad(s, first, last, d);
        for (i64 row = 0; s->dx && row < rows_of(s); row++) convert_row(last - first, d + row * SLICE);
        if (s->dx) x_grad(s, first, last, d, s->dx + thread * s->rows * s->size, packed);
    }
}

void softmax_backward(softmax *s) {
    for (s->block_start = 0; s->block_start < s->rows; s->block_start += s->block) {
        in_threads(pack_rows, s, s->threads);
        in_threads(backward_words, s, s->threads);
    }
}

i64 sum_block_size(void) { return DEPTH; }
i64 logits_piece_size(void) { return BLOCK * WORDS; }
i64 word_slice_size(void) { return SLICE; }
