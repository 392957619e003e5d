/* The simple RNN over a whole sequence, forward and backward: kernels/rnn_torch.py in C, for float32 on a CPU. */

#include "layer.h"

enum { GATES = 1 };

/* The layer's gates are the inputs of the activation, of one chunk; its candidate's activation is that of h. */

INLINE void rnn_pointwise(const int kind, i64 n, const float *from, float *h) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) h[j] = activation(kind, from[j]);
}

static void forward_step(const void *p, i64 t, i64 row, i64 rows) {
    const layer *s = p;
    const i64 n = s->size;
    const float *read = h_before(s, t);
    if (s->z_h.data) apply(&s->z_h, t, s->batch, row, row + rows, n, read, s->masked_h, s->batch * n), read = s->masked_h;
    for (i64 column = 0; column < n; column += WIDTH)
        for (i64 k = 0; k < tiles(rows); k++) {
            const i64 at = row + tile_begin(rows, k), height = row + tile_begin(rows, k + 1) - at;
            const i64 width = min_i64(WIDTH, n - column);
            const matmul_args f = {read + at * n, n, 1, n, s->packed_hh + column * n, WIDTH, few_rows(s, t)};
            float sums[ROWS * WIDTH], *h = s->h + (begin_of(s, t) + at) * n + column;
            product(height, width, f, gates_at(s, GATES, t, at) + column, n, sums, WIDTH);
            for (i64 r = 0; r < height; r++)
                if (s->candidate_activation == TANH) rnn_pointwise(TANH, width, sums + r * WIDTH, h + r * n);
                else rnn_pointwise(RELU, width, sums + r * WIDTH, h + r * n);
        }
}

/* Back through the activation: dh is used up. */
INLINE void rnn_pointwise_grad(const int kind, i64 n, const float *h, float *dh, float *da) {
#pragma omp simd
    for (i64 j = 0; j < n; j++) da[j] = dh[j] * activation_grad(kind, h[j]), dh[j] = 0;
}

static void backward_step(const void *p, i64 t, i64 row, i64 rows) {
    const layer *s = p;
    const i64 n = s->size, now = begin_of(s, t) * n;
    for (i64 b = row; b < row + rows; b++) {
        float *dh = s->dh + b * n, *da = da_at(s, GATES, t, b);
        if (s->dh_out) add(n, s->dh_out + now + b * n, dh);
        if (s->candidate_activation == TANH) rnn_pointwise_grad(TANH, n, s->h + now + b * n, dh, da);
        else rnn_pointwise_grad(RELU, n, s->h + now + b * n, dh, da);
    }
    const float *m = s->z_h.data ? s->z_h.data + t * s->z_h.step_stride : 0;
    input_grad(s, GATES, da_at(s, GATES, t, row), n, &s->z_h, m, row, rows, n, s->packed_hh, s->dh,
               few_rows(s, t));
}

static void forward_chunk(const void *p, i64 thread) { walk_forward(p, GATES, thread, forward_step); }

static void backward_chunk(const void *p, i64 thread) { walk_backward(p, GATES, thread, backward_step); }

static void weight_grads(const void *p, i64 thread) {
    const layer *s = p;
    const i64 n = s->size, rows = rows_in_chunk(s);
    const operand x = {&s->z_x, s->x, 0, 0, s->inputs, 0}, h = {&s->z_h, s->h, s->h0, 0, n, 0};
    for (i64 from = 0; from < rows; from += s->depth) {
        const i64 depth = min_i64(s->depth, rows - from);
        if (s->dw_ih) weight_grad(s, &x, 0, GATES, s->da, n, thread, from, depth, s->dw_ih);
        if (s->dw_hh) weight_grad(s, &h, 0, GATES, s->da, n, thread, from, depth, s->dw_hh);
        if (s->db) bias_grad(s, s->da, n, n, thread, from, depth, s->db);
    }
}

static void pack_forward_weights(const void *p, i64 thread) { pack_forward(p, GATES, thread); }

static void pack_backward_weights(const void *p, i64 thread) { pack_backward(p, GATES, thread); }

void rnn_forward(layer *s) { run_forward(s, pack_forward_weights, forward_chunk); }

void rnn_backward(layer *s) {
    run_backward(s, pack_backward_weights, backward_chunk, s->dw_ih || s->dw_hh || s->db ? weight_grads : 0);
}
