/* The LSTM over a whole sequence, forward and backward: kernels/lstm.py in C, for float32 on a CPU.
 *
 * Sequences do not need each other, so a thread takes its rows of the batch through all steps of a chunk without ever
 * waiting for another thread, and the gates are made where their products are, in the cache. Only the gradients of the
 * weights need all rows: there every thread takes some units. Masks of one gate or of four cost the same.
 */

#include "tiles.h"

enum { DEPTH = 512 }; /* so many rows at once go into the gradients of the weights */

/* Shapes are (steps, batch, units) unless told otherwise. */
typedef struct {
    word steps, batch, inputs, size, threads;
    word chunk;                            /* so many steps at once: their gates stay in the cache */
    word kept;                             /* 1: the gates of all steps are kept; 0: of one chunk */
    const float *x, *w_ih, *w_hh, *bias;   /* bias (4 size) or NULL */
    const float *h0, *c0;                  /* (batch, size) */
    mask z_x, z_h, z_c;                    /* z_c: factors on c, and on h where it is read */
    float *gates, *h, *c;                  /* gates (steps, batch, 4, size): i, f, g, o */
    float *packed_ih, *packed_hh;          /* W and U in panels */
    float *masked_x, *masked_h;            /* forward: (copies, chunk, batch, inputs) and (copies, batch, size) */
    const float *dh_out, *dc_out;          /* gradients from outside, or NULL */
    float *da;                             /* (chunk, batch, 4, size): gradient of the gates' inputs */
    float *dh, *dc;                        /* (batch, size) after the last step; become those of h0 and c0 */
    float *dx, *dw_ih, *dw_hh, *db;        /* NULL where not wanted; dw and db are added to */
    word now;                              /* the first step of the current chunk */
} lstm;

static word end_of(const lstm *s) { return least(s->now + s->chunk, s->steps); }

/* Rows of a step as tiles of equal height: the number of tiles, and where one begins. */
INLINE word tiles(word rows) { return (rows + ROWS - 1) / ROWS; }

static void pack_forward(const void *of, word thread) {
    const lstm *s = of;
    const word panels = (s->size + WIDTH - 1) / WIDTH;
    const word first = part(panels, thread, s->threads), last = part(panels, thread + 1, s->threads);
    pack_transposed(s->w_ih, 4, s->size, s->inputs, first, last, s->packed_ih);
    pack_transposed(s->w_hh, 4, s->size, s->size, first, last, s->packed_hh);
}

static void pack_backward(const void *of, word thread) {
    const lstm *s = of;
    word panels = (s->size + WIDTH - 1) / WIDTH;
    pack(s->w_hh, 4, s->size, s->size, part(panels, thread, s->threads), part(panels, thread + 1, s->threads),
         s->packed_hh);
    panels = (s->inputs + WIDTH - 1) / WIDTH;
    if (s->dx)
        pack(s->w_ih, 4, s->size, s->inputs, part(panels, thread, s->threads), part(panels, thread + 1, s->threads),
             s->packed_ih);
}

/* x W of all steps of the chunk for the thread's rows, panel by panel, into the gates. */
static void project(const lstm *s, word first, word last) {
    const word n = s->size, units = s->inputs, apart = s->chunk * s->batch * units;
    if (s->z_x.at)
        for (word t = s->now; t < end_of(s); t++)
            apply(&s->z_x, t, s->batch, first, last, units, s->x + t * s->batch * units,
                  s->masked_x + (t - s->now) * s->batch * units, apart);
    for (word column = 0; column < n; column += WIDTH)
        for (word gate = 0; gate < 4; gate++) {
            const word width = least(WIDTH, n - column), own = gate * n + column;
            const float *panel = s->packed_ih + (column / WIDTH * 4 + gate) * units * WIDTH;
            for (word t = s->now; t < end_of(s); t++)
                for (word k = 0, all = tiles(last - first); k < all; k++) {
                    const word row = first + part(last - first, k, all), rows = first + part(last - first, k + 1, all) - row;
                    const word at = ((t - s->now) * s->batch + row) * units, copy = s->z_x.copies > 1 ? gate : 0;
                    const float *x = s->z_x.at ? s->masked_x + copy * apart + at : s->x + s->now * s->batch * units + at;
                    float *to = s->gates + ((s->kept ? t : t - s->now) * s->batch + row) * 4 * n + own;
                    product(rows, width, (factors){x, units, 1, units, panel, WIDTH}, s->bias ? s->bias + own : 0, 0, to,
                            4 * n);
                }
        }
}

/* The gates of some units of one sequence from their inputs a and the recurrent product. */
INLINE void cells(const int moon, word width, word n, float *a, const float *sums, const float *before,
                  const float *z_c, const float *z_r, float *c, float *h) {
    const word next = ROWS * WIDTH;
#pragma omp simd
    for (word j = 0; j < width; j++) {
        float i = sigm(sums[j]), f = sigm(sums[next + j]);
        float g = tanh_(sums[2 * next + j]), o = sigm(sums[3 * next + j]);
        float memory = f * before[j] + i * g;
        if (moon) memory *= z_c[j];
        float read = o * tanh_(memory);
        if (moon) read *= z_r[j];
        a[j] = i, a[n + j] = f, a[2 * n + j] = g, a[3 * n + j] = o;
        c[j] = memory, h[j] = read;
    }
}

static void forward_step(const lstm *s, word t, word row, word rows) {
    const word n = s->size, all = s->batch * n;
    const float *h_before = t ? s->h + (t - 1) * all : s->h0, *c_before = t ? s->c + (t - 1) * all : s->c0;
    float sums[4 * ROWS * WIDTH];
    if (s->z_h.at) apply(&s->z_h, t, s->batch, row, row + rows, n, h_before, s->masked_h, all);
    for (word column = 0; column < n; column += WIDTH) {
        const word width = least(WIDTH, n - column);
        for (word gate = 0; gate < 4; gate++) {
            const float *read = s->z_h.at ? s->masked_h + (s->z_h.copies > 1 ? gate : 0) * all : h_before;
            const float *panel = s->packed_hh + (column / WIDTH * 4 + gate) * n * WIDTH;
            const float *a = s->gates + ((s->kept ? t : t - s->now) * s->batch + row) * 4 * n + gate * n + column;
            product(rows, width, (factors){read + row * n, n, 1, n, panel, WIDTH}, a, 4 * n,
                    sums + gate * ROWS * WIDTH, WIDTH);
        }
        for (word r = 0; r < rows; r++) {
            const word at = (row + r) * n + column;
            float *a = s->gates + ((s->kept ? t : t - s->now) * s->batch + row + r) * 4 * n + column;
            float *c = s->c + t * all + at, *h = s->h + t * all + at;
            if (s->z_c.at) {
                const float *z_c = mask_of(&s->z_c, t, 0, s->batch, row + r, n) + column;
                const float *z_r = mask_of(&s->z_c, t, 1, s->batch, row + r, n) + column;
                cells(1, width, n, a, sums + r * WIDTH, c_before + at, z_c, z_r, c, h);
            } else if (width == WIDTH) {
                cells(0, WIDTH, n, a, sums + r * WIDTH, c_before + at, 0, 0, c, h);
            } else {
                cells(0, width, n, a, sums + r * WIDTH, c_before + at, 0, 0, c, h);
            }
        }
    }
}

static void forward_chunk(const void *of, word thread) {
    const lstm *s = of;
    const word first = part(s->batch, thread, s->threads), last = part(s->batch, thread + 1, s->threads);
    project(s, first, last);
    for (word k = 0, all = tiles(last - first); k < all; k++) {
        const word row = first + part(last - first, k, all), rows = first + part(last - first, k + 1, all) - row;
        for (word t = s->now; t < end_of(s); t++) forward_step(s, t, row, rows);
    }
}

/* Back through the gates of one sequence: dc turns from after the step to before it, dh is used up. */
INLINE void cells_back(const int moon, word n, const float *a, const float *c, const float *before, const float *z_c,
                       const float *z_r, float *dh, float *dc, float *da) {
#pragma omp simd
    for (word j = 0; j < n; j++) {
        float i = a[j], f = a[n + j], g = a[2 * n + j], o = a[3 * n + j];
        float d_h = dh[j], tanh_c = tanh_(c[j]);
        if (moon) d_h *= z_r[j];
        float d_c = dc[j] + d_h * o * (1 - tanh_c * tanh_c);
        if (moon) d_c *= z_c[j];
        da[j] = d_c * g * i * (1 - i);
        da[n + j] = d_c * before[j] * f * (1 - f);
        da[2 * n + j] = d_c * i * (1 - g * g);
        da[3 * n + j] = d_h * tanh_c * o * (1 - o);
        dc[j] = d_c * f;
        dh[j] = 0;
    }
}

/* to += the gradient of an operand: da U (or W) of some rows, through the mask, summed over the gates. */
static void back(const lstm *s, const mask *z, word t, word row, word rows, word units, const float *packed, float *to) {
    const word n = s->size, copies = z->at ? z->copies : 1, depth = 4 / copies * n;
    const float *da = s->da + ((t - s->now) * s->batch + row) * 4 * n;
    float sums[ROWS * WIDTH];
    for (word column = 0; column < units; column += WIDTH)
        for (word copy = 0; copy < copies; copy++) {
            const word width = least(WIDTH, units - column);
            const float *panel = packed + (column / WIDTH * copies + copy) * depth * WIDTH;
            const factors f = {da + copy * n, 4 * n, 1, depth, panel, WIDTH};
            float *own = to + row * units + column;
            if (!z->at) {
                product(rows, width, f, own, units, own, units);
                continue;
            }
            const float *m = mask_of(z, t, copy, s->batch, row, units) + column;
            product(rows, width, f, 0, 0, sums, WIDTH);
            for (word r = 0; r < rows; r++)
                if (width == WIDTH) add_product(WIDTH, sums + r * WIDTH, m + r * units, own + r * units);
                else add_product(width, sums + r * WIDTH, m + r * units, own + r * units);
        }
}

static void backward_step(const lstm *s, word t, word row, word rows) {
    const word n = s->size, all = s->batch * n;
    for (word b = row; b < row + rows; b++) {
        const word at = b * n;
        const float *a = s->gates + (t * s->batch + b) * 4 * n, *c = s->c + t * all + at;
        const float *before = (t ? s->c + (t - 1) * all : s->c0) + at;
        float *dh = s->dh + at, *dc = s->dc + at, *da = s->da + ((t - s->now) * s->batch + b) * 4 * n;
        if (s->dh_out) add(n, s->dh_out + t * all + at, dh);
        if (s->dc_out) add(n, s->dc_out + t * all + at, dc);
        if (s->z_c.at)
            cells_back(1, n, a, c, before, mask_of(&s->z_c, t, 0, s->batch, b, n), mask_of(&s->z_c, t, 1, s->batch, b, n),
                       dh, dc, da);
        else
            cells_back(0, n, a, c, before, 0, 0, dh, dc, da);
    }
    back(s, &s->z_h, t, row, rows, n, s->packed_hh, s->dh);
}

static void backward_chunk(const void *of, word thread) {
    const lstm *s = of;
    const word first = part(s->batch, thread, s->threads), last = part(s->batch, thread + 1, s->threads);
    const word step = s->batch * s->inputs;
    for (word k = 0, all = tiles(last - first); k < all; k++) {
        const word row = first + part(last - first, k, all), rows = first + part(last - first, k + 1, all) - row;
        for (word t = end_of(s) - 1; t >= s->now; t--) backward_step(s, t, row, rows);
        for (word t = s->now; s->dx && t < end_of(s); t++) {
            memset(s->dx + t * step + row * s->inputs, 0, rows * s->inputs * sizeof(float));
            back(s, &s->z_x, t, row, rows, s->inputs, s->packed_ih, s->dx + t * step);
        }
    }
}

/* Some columns of what a weight was multiplied with, x o z, over some rows of the chunk; of h the step before. */
static void read_panel(const lstm *s, const mask *z, const float *x, const float *first, word units, word copy,
                       word column, word from, word depth, float *to) {
    const word width = least(WIDTH, units - column);
    word t = s->now + from / s->batch, b = from % s->batch;
    for (word k = 0; k < depth; k++, to += WIDTH) {
        const float *own = (first && t == 0 ? first : x + (t - (first ? 1 : 0)) * s->batch * units) + b * units + column;
        const float *m = z->at ? mask_of(z, t, copy, s->batch, b, units) + column : 0;
        if (m && width == WIDTH) multiply(WIDTH, own, m, to);
        else if (m) multiply(width, own, m, to);
        else memcpy(to, own, width * sizeof(float));
        memset(to + width, 0, (WIDTH - width) * sizeof(float));
        if (++b == s->batch) b = 0, t++;
    }
}

/* dw (4 size, units) += da^T (x o z) over some rows of the chunk, for those units of every gate that the thread has. */
static void gradient(const lstm *s, const mask *z, const float *x, const float *before, word units, word first,
                     word last, word from, word depth, float *dw) {
    float panel[DEPTH * WIDTH], sums[ROWS * WIDTH];
    for (word column = 0; column < units; column += WIDTH)
        for (word gate = 0; gate < 4; gate++) {
            const word width = least(WIDTH, units - column);
            if (gate == 0 || (z->at && z->copies > 1))
                read_panel(s, z, x, before, units, gate, column, from, depth, panel);
            for (word k = 0, all = tiles(last - first); k < all; k++) {
                const word j = part(last - first, k, all), rows = part(last - first, k + 1, all) - j;
                const factors f = {s->da + (from * 4 + gate) * s->size + first + j, 1, 4 * s->size, depth, panel, WIDTH};
                float *to = dw + (gate * s->size + first + j) * units + column;
                product(rows, width, f, 0, 0, sums, WIDTH);
                for (word r = 0; r < rows; r++)
                    if (width == WIDTH) add(WIDTH, sums + r * WIDTH, to + r * units);
                    else add(width, sums + r * WIDTH, to + r * units);
            }
        }
}

/* db += the sum of da over some rows, for the gates' inputs first to last */
static void bias_gradient(const lstm *s, word first, word last, word from, word depth) {
    for (word column = first; column < last; column += WIDTH) {
        const word width = least(WIDTH, last - column);
        float sums[WIDTH] = {0};
        for (word row = from; row < from + depth; row++) add(width, s->da + row * 4 * s->size + column, sums);
        add(width, sums, s->db + column);
    }
}

static void gradients(const void *of, word thread) {
    const lstm *s = of;
    const word n = s->size, rows = (end_of(s) - s->now) * s->batch;
    const word first = part(n, thread, s->threads), last = part(n, thread + 1, s->threads);
    for (word from = 0; from < rows; from += DEPTH) {
        const word depth = least(DEPTH, rows - from);
        if (s->dw_ih) gradient(s, &s->z_x, s->x, 0, s->inputs, first, last, from, depth, s->dw_ih);
        if (s->dw_hh) gradient(s, &s->z_h, s->h, s->h0, n, first, last, from, depth, s->dw_hh);
        if (s->db) bias_gradient(s, part(4 * n, thread, s->threads), part(4 * n, thread + 1, s->threads), from, depth);
    }
}

word packed_floats(word units, word size) {
    const word forth = packed_size(4 * units, size), back = packed_size(4 * size, units);
    return forth > back ? forth : back;
}

void lstm_forward(lstm *s) {
    in_threads(pack_forward, s, s->threads);
    for (s->now = 0; s->now < s->steps; s->now += s->chunk) in_threads(forward_chunk, s, s->threads);
}

void lstm_backward(lstm *s) {
    in_threads(pack_backward, s, s->threads);
    for (s->now = (s->steps - 1) / s->chunk * s->chunk; s->now >= 0; s->now -= s->chunk) {
        in_threads(backward_chunk, s, s->threads);
        if (s->dw_ih || s->dw_hh || s->db) in_threads(gradients, s, s->threads);
    }
}
