/* The simple RNN over a whole sequence, forward and backward: kernels/rnn_torch.py in C, for float32 on a CPU. */

#include "layer.h"

/* One gate: the layer's gates are the inputs of the activation, of one chunk; its candidate_activation gives h. */

INLINE void rnn_pointwise(const int kind, i64 n, const float *from, float *h) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) h[j] = activation(kind, from[j]);
}

static void forward_units(const void *p, i64 t, region at) {
    const layer *s = p;
    const i64 n = s->size, next = padded(n);
    const float *read = s->masked_h ? s->masked_h : h_before(s, t);
    for (i64 column = at.column; column < at.end; column += WIDTH)
        for (i64 k = 0; k < tiles(at.rows); k++) {
            const i64 row = at.row + tile_begin(at.rows, k), height = at.row + tile_begin(at.rows, k + 1) - row;
            const i64 width = min_i64(WIDTH, n - column);
            const matmul_args f = {read + row * next, next, n, s->packed_hh + column * next, few_rows(s, t), WIDTH};
            float sums[ROWS * WIDTH], *h = s->h + (begin_of(s, t) + row) * n + column;
            product(height, width, f, gates_at(s, t, row) + column, n, sums, WIDTH);
            for (i64 r = 0; r < height; r++)
                if (s->candidate_activation == TANH) rnn_pointwise(TANH, width, sums + r * WIDTH, h + r * n);
                else rnn_pointwise(RELU, width, sums + r * WIDTH, h + r * n);
        }
}

/* Back through the activation: dh becomes zero. */
INLINE void rnn_pointwise_grad(const int kind, i64 n, const float *h, float *dh, float *da) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) da[j] = dh[j] * activation_grad(kind, h[j]), dh[j] = 0;
}

static void backward_gates(const void *p, i64 t, region at) {
    const layer *s = p;
    const i64 n = s->size, width = at.end - at.column, now = begin_of(s, t) * n;
    for (i64 b = at.row; b < at.row + at.rows; b++) {
        const i64 first = b * n + at.column;
        float *dh = s->dh + first, *da = da_at(s, t, b) + at.column;
        if (s->dh_out) add(width, s->dh_out + now + first, dh);
        if (s->candidate_activation == TANH) rnn_pointwise_grad(TANH, width, s->h + now + first, dh, da);
        else rnn_pointwise_grad(RELU, width, s->h + now + first, dh, da);
        write_factor_da(s, t, b, 0, at.column, width);
    }
}

static void backward_state(const void *p, i64 t, region at) {
    const layer *s = p;
    const float *m = s->z_h.data ? mask_of(&s->z_h, t, 0, s->batch, 0, s->size) : 0;
    state_grad(s, t, 1, factor_da_at(s, t, at.row), factor_size(s), m, at, s->packed_hh, s->dh);
}

static part_fn *const forward_parts[] = {mask_state, forward_units, 0};
static part_fn *const backward_parts[] = {backward_gates, backward_state, 0};

void rnn_forward(layer *s) { run_forward(s, forward_parts); }

void rnn_backward(layer *s) { run_backward(s, pack_backward, backward_parts, weight_grads); }
