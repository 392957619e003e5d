/* The simple RNN over a whole sequence, forward and backward: kernels/rnn_torch.py in C, for float32 on a CPU. */

#include "layer.h"

/* One gate: the layer's gates are the inputs of the activation, of one chunk; its candidate_activation gives h. */

INLINE void rnn_pointwise(const int kind, i64 n, const float *from, float *h) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) h[j] = activation(kind, from[j]);
}

static void forward_step(const void *p, i64 t, i64 row, i64 rows) {
    const layer *s = p;
    const i64 n = s->size;
    const float *read = h_before(s, t);
    if (s->z_h.data) {
        apply(&s->z_h, t, s->batch, row, row + rows, n, read, s->masked_h, s->batch * n);
        read = s->masked_h;
    }
    for (i64 column = 0; column < n; column += WIDTH)
        for (i64 k = 0; k < tiles(rows); k++) {
            const i64 at = row + tile_begin(rows, k), height = row + tile_begin(rows, k + 1) - at;
            const i64 width = min_i64(WIDTH, n - column);
            const matmul_args f = {read + at * n, n, n, s->packed_hh + column * n, few_rows(s, t), WIDTH};
            float sums[ROWS * WIDTH], *h = s->h + (begin_of(s, t) + at) * n + column;
            product(height, width, f, gates_at(s, t, at) + column, n, sums, WIDTH);
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

static void backward_step(const void *p, i64 t, i64 row, i64 rows) {
    const layer *s = p;
    const i64 n = s->size, now = begin_of(s, t) * n;
    for (i64 b = row; b < row + rows; b++) {
        float *dh = s->dh + b * n, *da = da_at(s, t, b);
        if (s->dh_out) add(n, s->dh_out + now + b * n, dh);
        if (s->candidate_activation == TANH) rnn_pointwise_grad(TANH, n, s->h + now + b * n, dh, da);
        else rnn_pointwise_grad(RELU, n, s->h + now + b * n, dh, da);
    }
    const float *m = s->z_h.data ? s->z_h.data + t * s->z_h.step_stride : 0;
    input_grad(s, 1, da_at(s, t, row), n, &s->z_h, m, row, rows, n, s->packed_hh, s->dh, few_rows(s, t));
}

void rnn_forward(layer *s) { run_forward(s, forward_step); }

void rnn_backward(layer *s) { run_backward(s, pack_backward, backward_step, weight_grads); }
