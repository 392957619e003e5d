/* The LSTM over a whole sequence, forward and backward: kernels/lstm_torch.py in C, for float32 on a CPU. */

#include "layer.h"

enum { GATES = 4 }; /* i, f, g, o */

typedef struct {
    layer all;
    const float *c0;
    mask z_c;            /* factors on c, and on h where it is read */
    float *c;
    const float *dc_out; /* gradient from outside, or NULL */
    float *dc;           /* (batch, size) after the last step; becomes that of c0 */
} lstm;

/* The gates of some units of one sequence from their inputs. */
INLINE void lstm_pointwise(const int gate, const int candidate, const int has_cell_mask, i64 width, i64 n,
                           const float *sums, const float *previous, const float *z_c, const float *z_r, float *a,
                           float *c, float *h) {
    const i64 next = ROWS * WIDTH;
#pragma omp simd
    for (i64 j = 0; j < width; j++) {
        float i = activation(gate, sums[j]), f = activation(gate, sums[next + j]);
        float g = activation(candidate, sums[2 * next + j]), o = activation(gate, sums[3 * next + j]);
        float memory = f * previous[j] + i * g;
        if (has_cell_mask) memory *= z_c[j];
        float read = o * tanh_(memory);
        if (has_cell_mask) read *= z_r[j];
        a[j] = i, a[n + j] = f, a[2 * n + j] = g, a[3 * n + j] = o;
        c[j] = memory, h[j] = read;
    }
}

/* The units of one panel of a tile of rows. */
static void forward_tile(const lstm *p, i64 t, i64 row, i64 rows, i64 column, const float *c_before) {
    const layer *s = &p->all;
    const i64 n = s->size, next = padded(n), all = s->batch * next, width = min_i64(WIDTH, n - column);
    float sums[GATES * ROWS * WIDTH];
    for (i64 gate = 0; gate < GATES; gate++) {
        const float *read = s->masked_h ? s->masked_h + (s->z_h.num_gates > 1 ? gate : 0) * all : h_before(s, t);
        const float *panel = s->packed_hh + (column / WIDTH * GATES + gate) * next * WIDTH;
        const matmul_args f = {read + row * next, next, n, panel, few_rows(s, t), WIDTH};
        const float *a = gates_at(s, t, row) + gate * n + column;
        product(rows, width, f, a, GATES * n, sums + gate * ROWS * WIDTH, WIDTH);
    }
    for (i64 r = 0; r < rows; r++) {
        const i64 at = (row + r) * n + column;
        const float *src = sums + r * WIDTH, *previous = c_before + at;
        float *a = gates_at(s, t, row + r) + column, *c = p->c + begin_of(s, t) * n + at;
        float *h = s->h + begin_of(s, t) * n + at;
        if (p->z_c.data) {
            const float *z_c = mask_of(&p->z_c, t, 0, s->batch, row + r, n) + column;
            const float *z_r = mask_of(&p->z_c, t, 1, s->batch, row + r, n) + column;
#define MASKED(gate, candidate) lstm_pointwise(gate, candidate, 1, width, n, src, previous, z_c, z_r, a, c, h)
            WITH_ACTIVATIONS(s->gate_activation, s->candidate_activation, MASKED)
        } else if (width == WIDTH) {
#define WHOLE(gate, candidate) lstm_pointwise(gate, candidate, 0, WIDTH, n, src, previous, 0, 0, a, c, h)
            WITH_ACTIVATIONS(s->gate_activation, s->candidate_activation, WHOLE)
        } else {
#define PART(gate, candidate) lstm_pointwise(gate, candidate, 0, width, n, src, previous, 0, 0, a, c, h)
            WITH_ACTIVATIONS(s->gate_activation, s->candidate_activation, PART)
        }
    }
}

static void forward_units(const void *cell, i64 t, region at) {
    const lstm *p = cell;
    const layer *s = &p->all;
    const float *previous = t ? p->c + begin_of(s, t - 1) * s->size : p->c0;
    for (i64 panel = 0; panel < panels(at.end - at.column); panel++)
        for (i64 k = 0; k < tiles(at.rows); k++) {
            const i64 first = tile_begin(at.rows, k), height = tile_begin(at.rows, k + 1) - first;
            forward_tile(p, t, at.row + first, height, panel_column(at, t, panel), previous);
        }
}

/* Back through the gates of some units of one sequence: dc becomes the gradient before the step, dh becomes zero. */
INLINE void lstm_pointwise_grad(const int gate, const int candidate, const int has_cell_mask, i64 width, i64 n,
                                const float *a, const float *c, const float *previous, const float *z_c,
                                const float *z_r, float *dh, float *dc, float *da) {
#pragma omp simd
    for (i64 j = 0; j < width; j++) {
        float i = a[j], f = a[n + j], g = a[2 * n + j], o = a[3 * n + j];
        float d_h = dh[j], tanh_c = tanh_(c[j]);
        if (has_cell_mask) d_h *= z_r[j];
        float d_c = dc[j] + d_h * o * (1 - tanh_c * tanh_c);
        if (has_cell_mask) d_c *= z_c[j];
        da[j] = d_c * g * activation_grad(gate, i);
        da[n + j] = d_c * previous[j] * activation_grad(gate, f);
        da[2 * n + j] = d_c * i * activation_grad(candidate, g);
        da[3 * n + j] = d_h * tanh_c * activation_grad(gate, o);
        dc[j] = d_c * f;
        dh[j] = 0;
    }
}

static void backward_gates(const void *cell, i64 t, region at) {
    const lstm *p = cell;
    const layer *s = &p->all;
    const i64 n = s->size, width = at.end - at.column, now = begin_of(s, t) * n;
    const float *c_before = t ? p->c + begin_of(s, t - 1) * n : p->c0;
    for (i64 b = at.row; b < at.row + at.rows; b++) {
        const i64 first = b * n + at.column;
        const float *a = gates_at(s, t, b) + at.column, *c = p->c + now + first, *previous = c_before + first;
        float *dh = s->dh + first, *dc = p->dc + first, *da = da_at(s, t, b) + at.column;
        if (s->dh_out) add(width, s->dh_out + now + first, dh);
        if (p->dc_out) add(width, p->dc_out + now + first, dc);
        if (p->z_c.data) {
            const float *z_c = mask_of(&p->z_c, t, 0, s->batch, b, n) + at.column;
            const float *z_r = mask_of(&p->z_c, t, 1, s->batch, b, n) + at.column;
#define MASKED_GRAD(gate, candidate) \
    lstm_pointwise_grad(gate, candidate, 1, width, n, a, c, previous, z_c, z_r, dh, dc, da)
            WITH_ACTIVATIONS(s->gate_activation, s->candidate_activation, MASKED_GRAD)
        } else {
#define PLAIN_GRAD(gate, candidate) lstm_pointwise_grad(gate, candidate, 0, width, n, a, c, previous, 0, 0, dh, dc, da)
            WITH_ACTIVATIONS(s->gate_activation, s->candidate_activation, PLAIN_GRAD)
        }
        for (i64 gate = 0; gate < GATES; gate++) write_factor_da(s, t, b, gate, at.column, width);
    }
}

static void backward_state(const void *p, i64 t, region at) {
    const layer *s = p;
    const float *m = s->z_h.data ? mask_of(&s->z_h, t, 0, s->batch, 0, s->size) : 0;
    state_grad(s, t, GATES, factor_da_at(s, t, at.row), factor_size(s), m, at, s->packed_hh, s->dh);
}

static part_fn *const forward_parts[] = {mask_state, forward_units, 0};
static part_fn *const backward_parts[] = {backward_gates, backward_state, 0};

void lstm_forward(lstm *p) { run_forward(&p->all, forward_parts); }

void lstm_backward(lstm *p) { run_backward(&p->all, pack_backward, backward_parts, weight_grads); }
