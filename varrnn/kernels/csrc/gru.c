/* The GRU over a whole sequence, forward and backward: kernels/gru.py in C, for float32 on a CPU. */

#include "layer.h"

enum { GATES = 3 }; /* r, u, n */

typedef struct {
    layer all;
    word reset_after;    /* r multiplies the candidate's recurrent product q (torch), or the h that goes into it */
    const float *bias_q; /* (size) or NULL */
    float *q;            /* laid out as the gates, with one of them; reset after only */
    float *read;         /* (batch, size): r o h o z, and its gradient; reset before only */
    float *packed_n;     /* backward: the candidate's U in panels */
    float *dq;           /* (chunk, batch, size): gradient of q; reset after only */
    float *db_hh;        /* (3 size) or NULL; reset after only: otherwise it is that of b_ih */
} gru;

INLINE float *q_at(const gru *of, word t, word row) {
    return of->q + ((of->all.kept ? t : t - of->all.now) * of->all.batch + row) * of->all.size;
}

/* The mask of the candidate at a step, or NULL */
INLINE const float *candidate_mask(const layer *s, word t, word row) {
    return s->z_h.at ? mask_of(&s->z_h, t, 2, s->batch, row, s->size) : 0;
}

/* sums = init + h U of one gate, for the rows of a tile and the units of a panel */
INLINE void recur(const layer *s, word gate, word rows, word width, word column, const float *h, const float *init,
                  word init_row, float *sums) {
    const float *panel = s->packed_hh + (column / WIDTH * GATES + gate) * s->size * WIDTH;
    product(rows, width, (factors){h, s->size, 1, s->size, panel, WIDTH}, init, init_row, sums, WIDTH);
}

/* r and u, and q where the reset comes after the product */
static void open_gates(const gru *of, word t, word row, word rows) {
    const layer *s = &of->all;
    const word n = s->size;
    float sums[ROWS * WIDTH];
    for (word column = 0; column < n; column += WIDTH)
        for (word gate = 0; gate < 2 + of->reset_after; gate++) {
            const word width = least(WIDTH, n - column), copy = s->z_h.copies > 1 ? gate : 0;
            const float *h = s->z_h.at ? s->masked_h + copy * s->batch * n : h_before(s, t);
            float *to = gate == 2 ? q_at(of, t, row) + column : gates_at(s, GATES, t, row) + gate * n + column;
            const float *init = gate == 2 ? (of->bias_q ? of->bias_q + column : 0) : to;
            const word next = gate == 2 ? n : GATES * n;
            recur(s, gate, rows, width, column, h + row * n, init, gate == 2 ? 0 : next, sums);
            for (word r = 0; r < rows; r++)
#pragma omp simd
                for (word j = 0; j < width; j++)
                    to[r * next + j] = gate == 2 ? sums[r * WIDTH + j] : sigm(sums[r * WIDTH + j]);
        }
}

/* n and the new h from the candidate's input and its recurrent product, reset or not */
INLINE void cells(word width, const float *input, const float *product_, const float *u, const float *before, float *n,
                  float *h) {
#pragma omp simd
    for (word j = 0; j < width; j++) {
        float new = tanh_(input[j] + product_[j]);
        n[j] = new;
        h[j] = new + u[j] * (before[j] - new);
    }
}

static void forward_step(const void *cell, word t, word row, word rows) {
    const gru *of = cell;
    const layer *s = &of->all;
    const word n = s->size, all = s->batch * n;
    const float *before = h_before(s, t);
    float sums[ROWS * WIDTH];
    if (s->z_h.at) apply(&s->z_h, t, s->batch, row, row + rows, n, before, s->masked_h, all);
    open_gates(of, t, row, rows);
    for (word b = row; !of->reset_after && b < row + rows; b++) {
        multiply(n, gates_at(s, GATES, t, b), before + b * n, of->read + b * n);
        if (s->z_h.at) multiply(n, of->read + b * n, candidate_mask(s, t, b), of->read + b * n);
    }
    for (word column = 0; column < n; column += WIDTH) {
        const word width = least(WIDTH, n - column);
        if (!of->reset_after) recur(s, 2, rows, width, column, of->read + row * n, 0, 0, sums);
        for (word r = 0; r < rows; r++) {
            const word at = (row + r) * n + column;
            float *gates = gates_at(s, GATES, t, row + r) + column;
            if (of->reset_after) multiply(width, gates, q_at(of, t, row + r) + column, sums + r * WIDTH);
            cells(width, gates + 2 * n, sums + r * WIDTH, gates + n, before + at, gates + 2 * n, s->h + t * all + at);
        }
    }
}

static void forward_chunk(const void *of, word thread) { walk_forward(of, GATES, thread, forward_step); }

/* Back through u and n of one sequence: dh turns into the part that passes by u. */
INLINE void cells_back(word n, const float *gates, const float *before, float *dh, float *da) {
#pragma omp simd
    for (word j = 0; j < n; j++) {
        float u = gates[n + j], new = gates[2 * n + j];
        da[n + j] = dh[j] * (before[j] - new) * u * (1 - u);
        da[2 * n + j] = dh[j] * (1 - u) * (1 - new * new);
        dh[j] *= u;
    }
}

/* The gradient of r: of what it multiplied, and what came from there. */
INLINE void reset_back(word n, const float *r, const float *of, const float *from, float *d_r) {
#pragma omp simd
    for (word j = 0; j < n; j++) d_r[j] = from[j] * of[j] * r[j] * (1 - r[j]);
}

static void backward_step(const void *cell, word t, word row, word rows) {
    const gru *of = cell;
    const layer *s = &of->all;
    const word n = s->size, all = s->batch * n, next = GATES * n;
    const float *before = h_before(s, t), *m = s->z_h.at ? s->z_h.at + t * s->z_h.step : 0;
    const float *m_n = candidate_mask(s, t, 0);
    float *dq = of->reset_after ? of->dq + (t - s->now) * all : 0;
    for (word b = row; b < row + rows; b++) {
        float *dh = s->dh + b * n, *da = da_at(s, GATES, t, b), *gates = gates_at(s, GATES, t, b);
        if (s->dh_out) add(n, s->dh_out + t * all + b * n, dh);
        cells_back(n, gates, before + b * n, dh, da);
        if (!of->reset_after) continue;
        reset_back(n, gates, q_at(of, t, b), da + 2 * n, da);
        multiply(n, da + 2 * n, gates, dq + b * n);
    }
    if (of->reset_after) {
        back(s, 1, dq + row * n, n, &s->z_h, m_n, row, rows, n, of->packed_n, s->dh);
    } else {
        memset(of->read + row * n, 0, rows * n * sizeof(float));
        back(s, 1, da_at(s, GATES, t, row) + 2 * n, next, &s->z_h, m_n, row, rows, n, of->packed_n, of->read);
        for (word b = row; b < row + rows; b++) {
            const float *r = gates_at(s, GATES, t, b), *d_read = of->read + b * n;
            reset_back(n, r, before + b * n, d_read, da_at(s, GATES, t, b));
            add_product(n, d_read, r, s->dh + b * n);
        }
    }
    back(s, 2, da_at(s, GATES, t, row), next, &s->z_h, m, row, rows, n, s->packed_hh, s->dh);
}

static void backward_chunk(const void *of, word thread) { walk_back(of, GATES, thread, backward_step); }

static void gradients(const void *work, word thread) {
    const gru *of = work;
    const layer *s = &of->all;
    const word n = s->size, next = GATES * n, rows = (end_of(s) - s->now) * s->batch;
    const operand x = {&s->z_x, s->x, 0, 0, s->inputs, 0}, h = {&s->z_h, s->h, s->h0, 0, n, 0};
    const operand reset = {&s->z_h, s->h, s->h0, s->gates, n, next};
    for (word from = 0; from < rows; from += DEPTH) {
        const word depth = least(DEPTH, rows - from);
        if (s->dw_ih) gradient(s, &x, 0, GATES, s->da, next, thread, from, depth, s->dw_ih);
        if (s->dw_hh) {
            gradient(s, &h, 0, 2, s->da, next, thread, from, depth, s->dw_hh);
            if (of->reset_after) gradient(s, &h, 2, 1, of->dq, n, thread, from, depth, s->dw_hh + 2 * n * n);
            else gradient(s, &reset, 2, 1, s->da + 2 * n, next, thread, from, depth, s->dw_hh + 2 * n * n);
        }
        if (s->db) bias_gradient(s, s->da, next, next, thread, from, depth, s->db);
        if (of->db_hh) {
            bias_gradient(s, s->da, next, 2 * n, thread, from, depth, of->db_hh);
            bias_gradient(s, of->dq, n, n, thread, from, depth, of->db_hh + 2 * n);
        }
    }
}

static void pack_forth(const void *of, word thread) { pack_forward(of, GATES, thread); }

static void pack_back(const void *work, word thread) {
    const gru *of = work;
    const layer *s = &of->all;
    const word n = s->size, h = panels(n), x = panels(s->inputs);
    pack(s->w_hh, 2, n, n, first_of(s, h, thread), first_of(s, h, thread + 1), s->packed_hh);
    pack(s->w_hh + 2 * n * n, 1, n, n, first_of(s, h, thread), first_of(s, h, thread + 1), of->packed_n);
    if (s->dx) pack(s->w_ih, GATES, n, s->inputs, first_of(s, x, thread), first_of(s, x, thread + 1), s->packed_ih);
}

void gru_forward(gru *of) { run_forward(&of->all, pack_forth, forward_chunk); }

void gru_backward(gru *of) {
    const layer *s = &of->all;
    run_back(&of->all, pack_back, backward_chunk, s->dw_ih || s->dw_hh || s->db || of->db_hh ? gradients : 0);
}
