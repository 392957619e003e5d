/* What every recurrent layer does over a chunk of steps: x W into the gates, and the gradients of x, W, U and b.
 *
 * Sequences do not need each other, so a thread takes its rows of the batch through all steps of a chunk without ever
 * waiting for another thread, and the gates are made where their products are, in the cache. Only the gradients of the
 * weights need all rows: there every thread takes some units. Masks of one gate or of all cost the same.
 */

#include "tiles.h"

enum { DEPTH = 512 }; /* so many rows at once go into the gradients of the weights */

/* Shapes are (steps, batch, units) unless told otherwise. */
typedef struct {
    word steps, batch, inputs, size, threads;
    word chunk;                          /* so many steps at once: their gates stay in the cache */
    word kept;                           /* 1: the gates of all steps are kept; 0: of one chunk */
    const float *x, *w_ih, *w_hh, *bias; /* bias (gates * size) or NULL */
    const float *h0;                     /* (batch, size) */
    mask z_x, z_h;
    float *gates, *h;                    /* gates (steps, batch, gates, size) */
    float *packed_ih, *packed_hh;        /* W and U in panels */
    float *masked_x, *masked_h;          /* forward: (copies, chunk, batch, inputs) and (copies, batch, size) */
    const float *dh_out;                 /* gradient from outside, or NULL */
    float *da;                           /* (chunk, batch, gates, size): gradient of the gates' inputs */
    float *dh;                           /* (batch, size) after the last step; becomes that of h0 */
    float *dx, *dw_ih, *dw_hh, *db;      /* NULL where not wanted; db is added to */
    word now;                            /* the first step of the current chunk */
} layer;

static word end_of(const layer *s) { return least(s->now + s->chunk, s->steps); }

INLINE word first_of(const layer *s, word n, word thread) { return share(n, thread, s->threads); }

INLINE const float *h_before(const layer *s, word t) { return t ? s->h + (t - 1) * s->batch * s->size : s->h0; }

/* The gates of a step, or of its gradient, at a row of the batch. */
INLINE float *gates_at(const layer *s, int gates, word t, word row) {
    return s->gates + ((s->kept ? t : t - s->now) * s->batch + row) * gates * s->size;
}
INLINE float *da_at(const layer *s, int gates, word t, word row) {
    return s->da + ((t - s->now) * s->batch + row) * gates * s->size;
}

static void pack_forward(const layer *s, int gates, word thread) {
    const word first = first_of(s, panels(s->size), thread), last = first_of(s, panels(s->size), thread + 1);
    pack_transposed(s->w_ih, gates, s->size, s->inputs, first, last, s->packed_ih);
    pack_transposed(s->w_hh, gates, s->size, s->size, first, last, s->packed_hh);
}

/* x W + b of all steps of the chunk for some rows of the batch, panel by panel, into the gates. */
static void project(const layer *s, int gates, word first, word last) {
    const word n = s->size, units = s->inputs, step = s->batch * units;
    const word copies = s->z_x.at ? s->z_x.copies : 1;
    for (word t = s->now; s->z_x.at && t < end_of(s); t++)
        apply(&s->z_x, t, s->batch, first, last, units, s->x + t * step, s->masked_x + (t - s->now) * step,
              s->chunk * step);
    for (word column = 0; column < n; column += WIDTH)
        for (word gate = 0; gate < gates; gate++) {
            const word width = least(WIDTH, n - column), own = gate * n + column;
            const float *panel = s->packed_ih + (column / WIDTH * gates + gate) * units * WIDTH;
            const float *x = s->z_x.at ? s->masked_x + (copies > 1 ? gate : 0) * s->chunk * step : s->x + s->now * step;
            for (word t = s->now; t < end_of(s); t++, x += step)
                for (word k = 0; k < tiles(last - first); k++) {
                    const word row = first + tile_at(last - first, k), rows = first + tile_at(last - first, k + 1) - row;
                    const factors f = {x + row * units, units, 1, units, panel, WIDTH};
                    product(rows, width, f, s->bias ? s->bias + own : 0, 0, gates_at(s, gates, t, row) + own, gates * n);
                }
        }
}

/* to += the gradient of an operand through `count` gates: da U (or W) of some rows, through the mask, summed over gates.
 * da has its first row, a row of it is `next` long; z is the mask of the first of these gates. */
static void back(const layer *s, int count, const float *da, word next, const mask *z, const float *m, word row,
                 word rows, word units, const float *packed, float *to) {
    const word n = s->size, copies = m && z->copies > 1 ? count : 1, depth = count / copies * n;
    float sums[ROWS * WIDTH];
    for (word column = 0; column < units; column += WIDTH)
        for (word copy = 0; copy < copies; copy++) {
            const word width = least(WIDTH, units - column);
            const float *panel = packed + (column / WIDTH * copies + copy) * depth * WIDTH;
            const factors f = {da + copy * n, next, 1, depth, panel, WIDTH};
            float *own = to + row * units + column;
            if (!m) {
                product(rows, width, f, own, units, own, units);
                continue;
            }
            const float *factor = m + (copy * s->batch + row) * units + column;
            product(rows, width, f, 0, 0, sums, WIDTH);
            for (word r = 0; r < rows; r++)
                if (width == WIDTH) add_product(WIDTH, sums + r * WIDTH, factor + r * units, own + r * units);
                else add_product(width, sums + r * WIDTH, factor + r * units, own + r * units);
        }
}

/* The gradient of x for some rows of all steps of the chunk. */
static void inputs_back(const layer *s, int gates, word row, word rows) {
    const word units = s->inputs, step = s->batch * units;
    for (word t = s->now; s->dx && t < end_of(s); t++) {
        memset(s->dx + t * step + row * units, 0, rows * units * sizeof(float));
        const float *m = s->z_x.at ? s->z_x.at + t * s->z_x.step : 0;
        back(s, gates, da_at(s, gates, t, row), gates * s->size, &s->z_x, m, row, rows, units, s->packed_ih,
             s->dx + t * step);
    }
}

/* What a weight was multiplied with: x, or with `first` the h of the step before, which may have passed a gate. */
typedef struct {
    const mask *z;
    const float *x, *first, *reset;
    word units, reset_row;
} operand;

/* Some columns of an operand under the mask of a gate, over some rows of the chunk. */
static void read_panel(const layer *s, const operand *of, word gate, word column, word from, word depth, float *to) {
    const word units = of->units, width = least(WIDTH, units - column);
    word t = s->now + from / s->batch, b = from % s->batch;
    for (word k = 0; k < depth; k++, to += WIDTH) {
        const float *x = of->x + (t - (of->first ? 1 : 0)) * s->batch * units;
        if (of->first && t == 0) x = of->first;
        x += b * units + column;
        if (of->z->at) multiply(width, x, mask_of(of->z, t, gate, s->batch, b, units) + column, to);
        else memcpy(to, x, width * sizeof(float));
        if (of->reset) multiply(width, to, of->reset + (t * s->batch + b) * of->reset_row + column, to);
        memset(to + width, 0, (WIDTH - width) * sizeof(float));
        if (++b == s->batch) b = 0, t++;
    }
}

/* dw (count * size, units) + da^T (x o z) over some rows, for those units of every gate that the thread has.
 * The gates are `gate` and the next ones; da has the first of them in the first row of the chunk. */
static void gradient(const layer *s, const operand *of, int gate, int count, const float *da, word next, word thread,
                     word from, word depth, float *dw) {
    const word first = first_of(s, s->size, thread), last = first_of(s, s->size, thread + 1), units = of->units;
    const int fresh = end_of(s) == s->steps && from == 0; /* nothing was added before */
    float panel[DEPTH * WIDTH], sums[ROWS * WIDTH];
    for (word column = 0; column < units; column += WIDTH)
        for (int g = 0; g < count; g++) {
            const word width = least(WIDTH, units - column);
            if (g == 0 || (of->z->at && of->z->copies > 1)) read_panel(s, of, gate + g, column, from, depth, panel);
            for (word k = 0; k < tiles(last - first); k++) {
                const word j = first + tile_at(last - first, k), rows = first + tile_at(last - first, k + 1) - j;
                const factors f = {da + from * next + g * s->size + j, 1, next, depth, panel, WIDTH};
                float *to = dw + (g * s->size + j) * units + column;
                product(rows, width, f, 0, 0, fresh ? to : sums, fresh ? units : WIDTH);
                for (word r = 0; !fresh && r < rows; r++)
                    if (width == WIDTH) add(WIDTH, sums + r * WIDTH, to + r * units);
                    else add(width, sums + r * WIDTH, to + r * units);
            }
        }
}

/* db += the sum of da (rows, columns) over some rows, for the thread's columns */
static void bias_gradient(const layer *s, const float *da, word next, word columns, word thread, word from, word depth,
                          float *db) {
    const word last = first_of(s, columns, thread + 1);
    for (word column = first_of(s, columns, thread); column < last; column += WIDTH) {
        const word width = least(WIDTH, last - column);
        float sums[WIDTH] = {0};
        for (word row = from; row < from + depth; row++) add(width, da + row * next + column, sums);
        add(width, sums, db + column);
    }
}

/* One step of some rows of the batch, forward or backward; `of` is the cell, whose first member is the layer. */
typedef void step(const void *of, word t, word row, word rows);
typedef void task(const void *of, word thread);

/* The thread's rows through the chunk, tile by tile. */
static void walk_forward(const layer *s, int gates, word thread, step *one) {
    const word first = first_of(s, s->batch, thread), all = first_of(s, s->batch, thread + 1) - first;
    project(s, gates, first, first + all);
    for (word k = 0; k < tiles(all); k++)
        for (word t = s->now; t < end_of(s); t++) one(s, t, first + tile_at(all, k), tile_at(all, k + 1) - tile_at(all, k));
}

static void walk_back(const layer *s, int gates, word thread, step *one) {
    const word first = first_of(s, s->batch, thread), all = first_of(s, s->batch, thread + 1) - first;
    for (word k = 0; k < tiles(all); k++) {
        const word row = first + tile_at(all, k), rows = first + tile_at(all, k + 1) - row;
        for (word t = end_of(s) - 1; t >= s->now; t--) one(s, t, row, rows);
        inputs_back(s, gates, row, rows);
    }
}

/* All chunks, forward and backward. */
static void run_forward(layer *s, task *pack_weights, task *chunk) {
    in_threads(pack_weights, s, s->threads);
    for (s->now = 0; s->now < s->steps; s->now += s->chunk) in_threads(chunk, s, s->threads);
}

static void run_back(layer *s, task *pack_weights, task *chunk, task *gradients) {
    in_threads(pack_weights, s, s->threads);
    for (s->now = (s->steps - 1) / s->chunk * s->chunk; s->now >= 0; s->now -= s->chunk) {
        in_threads(chunk, s, s->threads);
        if (gradients) in_threads(gradients, s, s->threads);
    }
}
