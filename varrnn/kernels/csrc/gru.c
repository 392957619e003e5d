/* The GRU over a whole sequence, forward and backward: kernels/gru_torch.py in C, for float32 on a CPU. */

#include "layer.h"

enum { GATES = 3 }; /* r, u, n */

typedef struct {
    layer all;
    i64 reset_after;      /* r multiplies the candidate's recurrent product h_n (torch), or the h that goes into it */
    const float *bias_hn; /* (size) or NULL */
    float *h_n;           /* laid out as the gates, with one of them; reset after only */
    float *read;          /* (batch, size): r o h o z, and its gradient; reset before only */
    float *factor_read;   /* forward: read as a first factor; NULL: read is */
    float *packed_n;      /* backward: the candidate's U in panels */
    float *dh_n;          /* (chunk_rows, size): gradient of h_n; reset after only */
    float *factor_dh_n;   /* dh_n as a first factor; NULL: dh_n is */
    float *db_hh;         /* (3 size) or NULL; reset after only: otherwise it is that of b_ih */
} gru;

INLINE float *h_n_at(const gru *p, i64 t, i64 row) {
    const layer *s = &p->all;
    return p->h_n + (begin_of(s, t) - (s->save_gates ? 0 : begin_of(s, s->chunk_start)) + row) * s->size;
}

/* The mask of the candidate at a step, or NULL */
INLINE const float *candidate_mask(const layer *s, i64 t, i64 row) {
    return s->z_h.data ? mask_of(&s->z_h, t, 2, s->batch, row, s->size) : 0;
}

/* sums = init + h U of one gate, for the rows of a tile and the units of a panel; h is a first factor */
INLINE void recur(const layer *s, i64 t, i64 gate, i64 rows, i64 width, i64 column, const float *h, const float *init,
                  i64 init_row, float *sums) {
    const i64 next = padded(s->size);
    const float *panel = s->packed_hh + (column / WIDTH * GATES + gate) * next * WIDTH;
    const matmul_args f = {h, next, s->size, panel, few_rows(s, t), WIDTH};
    product(rows, width, f, init, init_row, sums, WIDTH);
}

INLINE void gates_pointwise(const int kind, i64 n, const float *from, float *to) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) to[j] = activation(kind, from[j]);
}

/* r and u, and h_n where the reset comes after the product, for the units of one panel of a tile of rows */
static void compute_ru(const gru *p, i64 t, i64 row, i64 rows, i64 column) {
    const layer *s = &p->all;
    const i64 n = s->size, width = min_i64(WIDTH, n - column);
    float sums[ROWS * WIDTH];
    for (i64 gate = 0; gate < 2 + p->reset_after; gate++) {
        const i64 copy = s->z_h.num_gates > 1 ? gate : 0;
        const float *h = (s->masked_h ? s->masked_h + copy * s->batch * padded(n) : h_before(s, t)) + row * padded(n);
        float *to = gate == 2 ? h_n_at(p, t, row) + column : gates_at(s, t, row) + gate * n + column;
        const float *init = gate == 2 ? (p->bias_hn ? p->bias_hn + column : 0) : to;
        const i64 next = gate == 2 ? n : GATES * n;
        recur(s, t, gate, rows, width, column, h, init, gate == 2 ? 0 : next, sums);
        for (i64 r = 0; r < rows; r++)
            if (gate == 2) memcpy(to + r * next, sums + r * WIDTH, width * sizeof(float));
            else if (s->gate_activation == SIGMOID) gates_pointwise(SIGMOID, width, sums + r * WIDTH, to + r * next);
            else gates_pointwise(HARD_SIGMOID, width, sums + r * WIDTH, to + r * next);
    }
}

/* n and the new h from the candidate's input and its recurrent product, reset or not */
INLINE void gru_pointwise(const int kind, i64 width, const float *input, const float *product_, const float *u,
                          const float *previous, float *n, float *h) {
#pragma omp simd
    for (i64 j = 0; j < width; j++) {
        float candidate = activation(kind, input[j] + product_[j]);
        n[j] = candidate;
        h[j] = candidate + u[j] * (previous[j] - candidate);
    }
}

/* The candidate and h for the units of one panel of a tile of rows. */
static void compute_h(const gru *p, i64 t, i64 row, i64 rows, i64 column) {
    const layer *s = &p->all;
    const i64 n = s->size, now = begin_of(s, t) * n, width = min_i64(WIDTH, n - column);
    const float *previous = h_before(s, t);
    float sums[ROWS * WIDTH];
    const float *read = (p->factor_read ? p->factor_read : p->read) + row * padded(n);
    if (!p->reset_after) recur(s, t, 2, rows, width, column, read, 0, 0, sums);
    for (i64 r = 0; r < rows; r++) {
        const i64 at = (row + r) * n + column;
        float *gates = gates_at(s, t, row + r) + column;
        if (p->reset_after) multiply(width, gates, h_n_at(p, t, row + r) + column, sums + r * WIDTH);
        float *input = gates + 2 * n, *h = s->h + now + at;
#define FORWARD(gate, candidate) \
    gru_pointwise(candidate, width, input, sums + r * WIDTH, gates + n, previous + at, input, h)
        WITH_ACTIVATIONS(SIGMOID, s->candidate_activation, FORWARD)
    }
}

/* r and u of a region, and r o h o z where the reset comes before the product */
static void forward_gates(const void *cell, i64 t, region at) {
    const gru *p = cell;
    const layer *s = &p->all;
    const i64 n = s->size, width = at.end - at.column;
    for (i64 column = at.column; column < at.end; column += WIDTH)
        for (i64 k = 0; k < tiles(at.rows); k++) {
            const i64 first = tile_begin(at.rows, k), height = tile_begin(at.rows, k + 1) - first;
            compute_ru(p, t, at.row + first, height, column);
        }
    for (i64 b = at.row; !p->reset_after && b < at.row + at.rows; b++) {
        float *read = p->read + b * n + at.column;
        multiply(width, gates_at(s, t, b) + at.column, h_before(s, t) + b * n + at.column, read);
        if (s->z_h.data) multiply(width, read, candidate_mask(s, t, b) + at.column, read);
        if (p->factor_read) write_factor(width, read, 0, p->factor_read + b * padded(n), padded(n), at.column);
    }
}

static void forward_state(const void *p, i64 t, region at) {
    for (i64 column = at.column; column < at.end; column += WIDTH)
        for (i64 k = 0; k < tiles(at.rows); k++) {
            const i64 first = tile_begin(at.rows, k), height = tile_begin(at.rows, k + 1) - first;
            compute_h(p, t, at.row + first, height, column);
        }
}

/* Back through u and n of some units of one sequence: dh turns into the part that passes by u. */
INLINE void gru_pointwise_grad(const int gate, const int kind, i64 width, i64 n, const float *gates,
                               const float *previous, float *dh, float *da) {
#pragma omp simd
    for (i64 j = 0; j < width; j++) {
        float u = gates[n + j], candidate = gates[2 * n + j];
        da[n + j] = dh[j] * (previous[j] - candidate) * activation_grad(gate, u);
        da[2 * n + j] = dh[j] * (1 - u) * activation_grad(kind, candidate);
        dh[j] *= u;
    }
}

/* The gradient of r: of what it multiplied, and what came from there. */
INLINE void reset_pointwise(const int gate, i64 n, const float *r, const float *factor, const float *from, float *d_r) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) d_r[j] = from[j] * factor[j] * activation_grad(gate, r[j]);
}

static void reset_grad(const layer *s, i64 width, const float *r, const float *factor, const float *from, float *d_r) {
    if (s->gate_activation == SIGMOID) reset_pointwise(SIGMOID, width, r, factor, from, d_r);
    else reset_pointwise(HARD_SIGMOID, width, r, factor, from, d_r);
}

/* The gradient of h_n at a step and a row, and the same as a first factor; reset after only. */
INLINE float *dh_n_at(const gru *p, i64 t, i64 row) {
    return p->dh_n + (begin_of(&p->all, t) - begin_of(&p->all, p->all.chunk_start) + row) * p->all.size;
}
INLINE float *factor_dh_n_at(const gru *p, i64 t, i64 row) {
    const i64 at = begin_of(&p->all, t) - begin_of(&p->all, p->all.chunk_start) + row;
    return (p->factor_dh_n ? p->factor_dh_n : p->dh_n) + at * padded(p->all.size);
}

static void backward_gates(const void *cell, i64 t, region at) {
    const gru *p = cell;
    const layer *s = &p->all;
    const i64 n = s->size, width = at.end - at.column, now = begin_of(s, t) * n;
    for (i64 b = at.row; b < at.row + at.rows; b++) {
        const i64 first = b * n + at.column;
        const float *previous = h_before(s, t) + first, *gates = gates_at(s, t, b) + at.column;
        float *dh = s->dh + first, *da = da_at(s, t, b) + at.column;
        if (s->dh_out) add(width, s->dh_out + now + first, dh);
#define BACKWARD(gate, candidate) gru_pointwise_grad(gate, candidate, width, n, gates, previous, dh, da)
        WITH_ACTIVATIONS(s->gate_activation, s->candidate_activation, BACKWARD)
        for (i64 gate = 1; gate < GATES; gate++) write_factor_da(s, t, b, gate, at.column, width);
        if (!p->reset_after) continue;
        float *dh_n = dh_n_at(p, t, b) + at.column;
        reset_grad(s, width, gates, h_n_at(p, t, b) + at.column, da + 2 * n, da);
        write_factor_da(s, t, b, 0, at.column, width);
        multiply(width, da + 2 * n, gates, dh_n);
        if (p->factor_dh_n) write_factor(width, dh_n, 0, factor_dh_n_at(p, t, b), padded(n), at.column);
    }
}

/* Through the candidate's product to h, or to r o h, and on to r and h. */
static void backward_candidate(const void *cell, i64 t, region at) {
    const gru *p = cell;
    const layer *s = &p->all;
    const i64 n = s->size, width = at.end - at.column;
    const float *m = candidate_mask(s, t, 0);
    if (p->reset_after) {
        state_grad(s, t, 1, factor_dh_n_at(p, t, at.row), padded(n), m, at, p->packed_n, s->dh);
        return;
    }
    for (i64 b = at.row; b < at.row + at.rows; b++) memset(p->read + b * n + at.column, 0, width * sizeof(float));
    const float *da_n = factor_at(factor_da_at(s, t, at.row), 2 * padded(n));
    state_grad(s, t, 1, da_n, factor_size(s), m, at, p->packed_n, p->read);
    for (i64 b = at.row; b < at.row + at.rows; b++) {
        const i64 first = b * n + at.column;
        const float *r = gates_at(s, t, b) + at.column, *d_read = p->read + first;
        reset_grad(s, width, r, h_before(s, t) + first, d_read, da_at(s, t, b) + at.column);
        write_factor_da(s, t, b, 0, at.column, width);
        add_product(width, d_read, r, s->dh + first);
    }
}

static void backward_state(const void *p, i64 t, region at) {
    const layer *s = p;
    const float *m = s->z_h.data ? mask_of(&s->z_h, t, 0, s->batch, 0, s->size) : 0;
    state_grad(s, t, 2, factor_da_at(s, t, at.row), factor_size(s), m, at, s->packed_hh, s->dh);
}

/* The candidate's product with U reads another h, or has another gradient, than those of r and u. */
static void gru_weight_grads(const void *work, i64 thread) {
    const gru *p = work;
    const layer *s = &p->all;
    const i64 n = s->size, next = GATES * n, rows = rows_in_chunk(s);
    const operand x = {&s->z_x, s->x, 0, 0, s->inputs, 0}, h = {&s->z_h, s->h, s->h0, 0, n, 0};
    const operand reset = {&s->z_h, s->h, s->h0, s->gates, n, next};
    for (i64 from = 0; from < rows; from += s->depth) {
        const i64 depth = min_i64(s->depth, rows - from);
        if (s->dw_ih) weight_grad(s, &x, 0, GATES, s->da, next, thread, from, depth, s->dw_ih);
        if (s->dw_hh) {
            weight_grad(s, &h, 0, 2, s->da, next, thread, from, depth, s->dw_hh);
            if (p->reset_after) weight_grad(s, &h, 2, 1, p->dh_n, n, thread, from, depth, s->dw_hh + 2 * n * n);
            else weight_grad(s, &reset, 2, 1, s->da + 2 * n, next, thread, from, depth, s->dw_hh + 2 * n * n);
        }
        if (s->db) bias_grad(s, s->da, next, next, thread, from, depth, s->db);
        if (p->db_hh) {
            bias_grad(s, s->da, next, 2 * n, thread, from, depth, p->db_hh);
            bias_grad(s, p->dh_n, n, n, thread, from, depth, p->db_hh + 2 * n);
        }
    }
}

static void gru_pack_backward(const void *work, i64 thread) {
    const gru *p = work;
    const layer *s = &p->all;
    const i64 n = s->size, first = first_of(s, panels(n), thread), last = first_of(s, panels(n), thread + 1);
    pack(s->w_hh, 2, n, n, first, last, s->packed_hh);
    pack(s->w_hh + 2 * n * n, 1, n, n, first, last, p->packed_n);
    pack_w_ih(s, thread);
}

static part_fn *const forward_parts[] = {mask_state, forward_gates, forward_state, 0};
static part_fn *const backward_parts[] = {backward_gates, backward_candidate, backward_state, 0};

void gru_forward(gru *p) { run_forward(&p->all, forward_parts); }

void gru_backward(gru *p) { run_backward(&p->all, gru_pack_backward, backward_parts, gru_weight_grads); }
