/* log softmax(x W^T + b) at the targets, forward and backward: kernels/softmax.py in C, for float32 on a CPU.
 *
 * Without a gradient the logits of a few rows live in the cache and nowhere else.
 */

#include <math.h>

#include "tiles.h"

/* At once: rows and words of a piece of logits, which fits into the second cache; rows of a gradient. */
enum { BLOCK = 128, WORDS = 1024, SLICE = 256, DEPTH = 768 };

typedef struct {
    word rows, size, words, threads;
    word kept;                  /* 1: the logits of all rows are kept; 0: a piece for each thread */
    const float *x;             /* (rows, size) */
    const float *weight, *bias; /* (words, size), and (words) or NULL */
    const word *targets;        /* (rows) */
    float *packed;              /* forward: W in panels; backward: the x of a block in panels */
    float *logits;              /* (rows, words), or (threads, BLOCK, WORDS) */
    float *norm, *out;          /* (rows): log of the sum of exponentials; the result */
    const float *d_out;         /* (rows) */
    float *d;                   /* (threads, block, SLICE): gradient of the logits */
    float *dx;                  /* (threads, rows, size), to be summed over the threads, or NULL */
    float *dw, *db;             /* NULL where not wanted; db is added to */
    word block;                 /* backward: so many rows at once, at most DEPTH */
    word now;                   /* the first row of the current block */
} softmax;

static void pack_weight(const void *of, word thread) {
    const softmax *s = of;
    const word all = panels(s->words);
    pack_transposed(s->weight, 1, s->words, s->size, share(all, thread, s->threads), share(all, thread + 1, s->threads),
                    s->packed);
}

/* Take some logits into the logarithm of a sum of exponentials. */
static float log_sum_exp(float before, word n, const float *x) {
    float most = before, sum = 0;
#pragma omp simd reduction(max : most)
    for (word j = 0; j < n; j++) most = x[j] > most ? x[j] : most;
    const float shift = most == -INFINITY ? 0 : most;
#pragma omp simd reduction(+ : sum)
    for (word j = 0; j < n; j++) sum += exp_(x[j] - shift);
    if (most == -INFINITY) return sum == sum ? most : sum; /* words that cannot be, or are not a number */
    return most + logf(sum + expf(before - most));
}

/* The logits of some rows and words. */
static void piece(const softmax *s, word from, word rows, word first, word last, float *logits, word next) {
    const word n = s->size;
    for (word column = first; column < last; column += WIDTH)
        for (word k = 0; k < tiles(rows); k++) {
            const word row = tile_at(rows, k);
            const factors f = {s->x + (from + row) * n, n, 1, n, s->packed + column * n, WIDTH};
            product(tile_at(rows, k + 1) - row, least(WIDTH, last - column), f, s->bias ? s->bias + column : 0, 0,
                    logits + row * next + column - first, next);
        }
}

static void forward_rows(const void *of, word thread) {
    const softmax *s = of;
    const word v = s->words, end = share(s->rows, thread + 1, s->threads), next = s->kept ? v : WORDS;
    for (word from = share(s->rows, thread, s->threads); from < end; from += BLOCK) {
        const word rows = least(BLOCK, end - from);
        for (word row = from; row < from + rows; row++) s->norm[row] = -INFINITY;
        for (word first = 0; first < v; first += WORDS) {
            const word last = least(first + WORDS, v);
            float *logits = s->kept ? s->logits + from * v + first : s->logits + thread * BLOCK * WORDS;
            piece(s, from, rows, first, last, logits, next);
            for (word row = from; row < from + rows; row++, logits += next) {
                const word target = s->targets[row];
                if (first <= target && target < last) s->out[row] = logits[target - first];
                s->norm[row] = log_sum_exp(s->norm[row], last - first, logits);
            }
        }
        for (word row = from; row < from + rows; row++) s->out[row] -= s->norm[row];
    }
}

void softmax_forward(softmax *s) {
    in_threads(pack_weight, s, s->threads);
    in_threads(forward_rows, s, s->threads);
}

static word rows_of(const softmax *s) { return least(s->block, s->rows - s->now); }

/* The x of the thread's rows in panels. */
static void pack_rows(const void *of, word thread) {
    const softmax *s = of;
    const word n = s->size, rows = rows_of(s), last = share(rows, thread + 1, s->threads);
    for (word row = share(rows, thread, s->threads); row < last; row++)
        for (word column = 0; column < n; column += WIDTH) {
            float *to = s->packed + (column / WIDTH * rows + row) * WIDTH;
            const word width = least(WIDTH, n - column);
            memcpy(to, s->x + (s->now + row) * n + column, width * sizeof(float));
            memset(to + width, 0, (WIDTH - width) * sizeof(float));
        }
}

/* The gradient of the logits of some words: d_out o (one at the target - softmax), (rows, SLICE). */
static void logits_back(const softmax *s, word first, word last, float *d) {
    for (word row = s->now; row < s->now + rows_of(s); row++, d += SLICE) {
        const float *logits = s->logits + row * s->words + first, norm = s->norm[row], g = s->d_out[row];
        const word target = s->targets[row];
#pragma omp simd
        for (word j = 0; j < last - first; j++) d[j] = -g * exp_(logits[j] - norm);
        if (first <= target && target < last) d[target - first] += g;
    }
}

/* dx += d W of some words for all rows of the block */
static void inputs_back(const softmax *s, word first, word last, const float *d, float *dx) {
    const word n = s->size, depth = last - first, rows = rows_of(s);
    float panel[SLICE * WIDTH];
    for (word column = 0; column < n; column += WIDTH) {
        const word width = least(WIDTH, n - column);
        for (word k = 0; k < depth; k++) {
            memcpy(panel + k * WIDTH, s->weight + (first + k) * n + column, width * sizeof(float));
            memset(panel + k * WIDTH + width, 0, (WIDTH - width) * sizeof(float));
        }
        for (word k = 0; k < tiles(rows); k++) {
            const word row = tile_at(rows, k);
            float *to = dx + (s->now + row) * n + column;
            const factors f = {d + row * SLICE, SLICE, 1, depth, panel, WIDTH};
            product(tile_at(rows, k + 1) - row, width, f, to, n, to, n);
        }
    }
}

/* dw += d^T x and db += the sum of d, of some words */
static void weights_back(const softmax *s, word first, word last, const float *d) {
    const word n = s->size, depth = rows_of(s), all = last - first;
    float part[DEPTH * ROWS];
    for (word k = 0; s->dw && k < tiles(all); k++) {
        const word j = tile_at(all, k), rows = tile_at(all, k + 1) - j;
        for (word row = 0; row < depth; row++)
            for (word r = 0; r < rows; r++) part[row * rows + r] = d[row * SLICE + j + r];
        for (word column = 0; column < n; column += WIDTH) {
            float *to = s->dw + (first + j) * n + column;
            const factors f = {part, 1, rows, depth, s->packed + column * depth, WIDTH};
            product(rows, least(WIDTH, n - column), f, s->now ? to : 0, n, to, n);
        }
    }
    for (word row = 0; s->db && row < depth; row++) add(all, d + row * SLICE, s->db + first);
}

static void backward_words(const void *of, word thread) {
    const softmax *s = of;
    const word slices = (s->words + SLICE - 1) / SLICE, end = share(slices, thread + 1, s->threads) * SLICE;
    float *d = s->d + thread * s->block * SLICE;
    for (word first = share(slices, thread, s->threads) * SLICE; first < least(end, s->words); first += SLICE) {
        const word last = least(first + SLICE, s->words);
        logits_back(s, first, last, d);
        if (s->dx) inputs_back(s, first, last, d, s->dx + thread * s->rows * s->size);
        weights_back(s, first, last, d);
    }
}

void softmax_backward(softmax *s) {
    for (s->now = 0; s->now < s->rows; s->now += s->block) {
        in_threads(pack_rows, s, s->threads);
        in_threads(backward_words, s, s->threads);
    }
}

word rows_of_a_sum(void) { return DEPTH; }
word piece_of_logits(void) { return BLOCK * WORDS; }
word slice_of_words(void) { return SLICE; }
