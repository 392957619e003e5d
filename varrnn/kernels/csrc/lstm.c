/* The LSTM over a whole sequence, forward and backward: kernels/lstm.py in C, for float32 on a CPU. */

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
INLINE void cells(const int moon, word width, word n, const float *sums, const float *before, const float *z_c,
                  const float *z_r, float *a, float *c, float *h) {
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

static void forward_step(const void *cell, word t, word row, word rows) {
    const lstm *of = cell;
    const layer *s = &of->all;
    const word n = s->size, all = s->batch * n;
    const float *c_before = t ? of->c + (t - 1) * all : of->c0;
    float sums[GATES * ROWS * WIDTH];
    if (s->z_h.at) apply(&s->z_h, t, s->batch, row, row + rows, n, h_before(s, t), s->masked_h, all);
    for (word column = 0; column < n; column += WIDTH) {
        const word width = least(WIDTH, n - column);
        for (word gate = 0; gate < GATES; gate++) {
            const float *read = s->z_h.at ? s->masked_h + (s->z_h.copies > 1 ? gate : 0) * all : h_before(s, t);
            const float *panel = s->packed_hh + (column / WIDTH * GATES + gate) * n * WIDTH;
            const factors f = {read + row * n, n, 1, n, panel, WIDTH};
            const float *a = gates_at(s, GATES, t, row) + gate * n + column;
            product(rows, width, f, a, GATES * n, sums + gate * ROWS * WIDTH, WIDTH);
        }
        for (word r = 0; r < rows; r++) {
            const word at = (row + r) * n + column;
            const float *own = sums + r * WIDTH, *before = c_before + at;
            float *a = gates_at(s, GATES, t, row + r) + column, *c = of->c + t * all + at, *h = s->h + t * all + at;
            if (of->z_c.at) {
                const float *z_c = mask_of(&of->z_c, t, 0, s->batch, row + r, n) + column;
                const float *z_r = mask_of(&of->z_c, t, 1, s->batch, row + r, n) + column;
                cells(1, width, n, own, before, z_c, z_r, a, c, h);
            } else if (width == WIDTH) {
                cells(0, WIDTH, n, own, before, 0, 0, a, c, h);
            } else {
                cells(0, width, n, own, before, 0, 0, a, c, h);
            }
        }
    }
}

static void forward_chunk(const void *of, word thread) { walk_forward(of, GATES, thread, forward_step); }

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

static void backward_step(const void *cell, word t, word row, word rows) {
    const lstm *of = cell;
    const layer *s = &of->all;
    const word n = s->size, all = s->batch * n;
    for (word b = row; b < row + rows; b++) {
        const float *a = gates_at(s, GATES, t, b), *c = of->c + t * all + b * n;
        const float *before = (t ? of->c + (t - 1) * all : of->c0) + b * n;
        float *dh = s->dh + b * n, *dc = of->dc + b * n, *da = da_at(s, GATES, t, b);
        if (s->dh_out) add(n, s->dh_out + t * all + b * n, dh);
        if (of->dc_out) add(n, of->dc_out + t * all + b * n, dc);
        if (of->z_c.at) {
            const float *z_c = mask_of(&of->z_c, t, 0, s->batch, b, n), *z_r = mask_of(&of->z_c, t, 1, s->batch, b, n);
            cells_back(1, n, a, c, before, z_c, z_r, dh, dc, da);
        } else {
            cells_back(0, n, a, c, before, 0, 0, dh, dc, da);
        }
    }
    const float *m = s->z_h.at ? s->z_h.at + t * s->z_h.step : 0;
    back(s, GATES, da_at(s, GATES, t, row), GATES * n, &s->z_h, m, row, rows, n, s->packed_hh, s->dh);
}

static void backward_chunk(const void *of, word thread) { walk_back(of, GATES, thread, backward_step); }

static void gradients(const void *of, word thread) {
    const layer *s = &((const lstm *)of)->all;
    const word next = GATES * s->size, rows = (end_of(s) - s->now) * s->batch;
    const operand x = {&s->z_x, s->x, 0, 0, s->inputs, 0}, h = {&s->z_h, s->h, s->h0, 0, s->size, 0};
    for (word from = 0; from < rows; from += DEPTH) {
        const word depth = least(DEPTH, rows - from);
        if (s->dw_ih) gradient(s, &x, 0, GATES, s->da, next, thread, from, depth, s->dw_ih);
        if (s->dw_hh) gradient(s, &h, 0, GATES, s->da, next, thread, from, depth, s->dw_hh);
        if (s->db) bias_gradient(s, s->da, next, next, thread, from, depth, s->db);
    }
}

static void pack_forth(const void *of, word thread) { pack_forward(of, GATES, thread); }

static void pack_back(const void *of, word thread) {
    const layer *s = of;
    const word h = panels(s->size), x = panels(s->inputs);
    pack(s->w_hh, GATES, s->size, s->size, first_of(s, h, thread), first_of(s, h, thread + 1), s->packed_hh);
    if (s->dx) pack(s->w_ih, GATES, s->size, s->inputs, first_of(s, x, thread), first_of(s, x, thread + 1), s->packed_ih);
}

void lstm_forward(lstm *of) { run_forward(&of->all, pack_forth, forward_chunk); }

void lstm_backward(lstm *of) {
    const layer *s = &of->all;
    run_back(&of->all, pack_back, backward_chunk, s->dw_ih || s->dw_hh || s->db ? gradients : 0);
}
