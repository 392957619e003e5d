/* What every recurrent layer does over a chunk of steps: x W into the gates, and the gradients of x, W, U and b.
 *
 * Threads share the steps in one of two ways. Sequences are independent, so a thread can take its rows of the batch
 * through all steps of a chunk without ever waiting for another thread; but then each thread reads all of U at every
 * step. If U is larger than the last-level cache, or if a thread had too few rows for a tile of split_tiles.h, each
 * thread takes some units of all rows instead and reads their part of U only; the threads then wait for each other
 * after each part of a step. Both ways give the same bits: every sum has the same order. The gradients of the weights
 * need all rows: there every thread takes some units. Masks of one gate or of all cost the same.
 */

#include "tiles.h"

enum { DEPTH = 512 }; /* rows that are multiplied into the gradients of the weights at once, at most */

/* Step t has the rows from begins[t] to begins[t + 1]; their number never grows, and row b of a step continues row b of
 * the step before (packed sequences, the longest first). With begins NULL every step has the whole batch. Shapes are
 * (rows of all steps, units) unless stated otherwise. */
typedef struct {
    i64 steps, batch, inputs, size, num_gates, threads;
    const i64 *begins;
    i64 chunk_rows;                      /* rows of a chunk, at most: their gates stay in the cache */
    i64 split_units;                     /* 1: threads share the units of a step, 0: the rows */
    i64 save_gates;                      /* 1: the gates of all steps are kept; 0: of one chunk */
    i64 gate_activation, candidate_activation;
    const float *x, *w_ih, *w_hh, *bias; /* bias (num_gates * size) or NULL */
    const float *h0;                     /* (batch, size) */
    mask z_x, z_h;
    float *gates, *h;                    /* gates (rows, num_gates, size) */
    float *packed_ih, *packed_hh;        /* W and U in panels */
    float *masked_x, *masked_h;          /* forward: (copies, chunk_rows, inputs) and (copies, batch, size), which are
                                            first factors; NULL: x and h are */
    const float *dh_out;                 /* gradient from outside, or NULL */
    float *da;                           /* (chunk_rows, num_gates, size): gradient of the gates' inputs */
    float *factor_da;                    /* da as a first factor; NULL: da is */
    float *dh;                           /* (batch, size) after the last step; becomes that of h0 */
    float *dx, *dw_ih, *dw_hh, *db;      /* NULL where not wanted; db is added to */
    i64 depth, packed_columns;           /* depth: rows that go into weight_grad at once, up to DEPTH */
    float *packed_x;                     /* backward: (threads, depth, packed_columns), x or h in panels */
    i64 *row_begins;                     /* (threads + 1): the rows of the batch that each thread has in a chunk */
    i64 chunk_start, chunk_end;          /* the steps of the current chunk */
} layer;

INLINE i64 all_units(const layer *s) { return s->num_gates * s->size; } /* of all gates, in one row */
INLINE i64 first_of(const layer *s, i64 n, i64 thread) { return split_begin(n, thread, s->threads); }

/* The first row of a step, the number of its rows, the rows of the chunk. */
INLINE i64 begin_of(const layer *s, i64 t) { return s->begins ? s->begins[t] : t * s->batch; }
INLINE i64 rows_of(const layer *s, i64 t) { return s->begins ? s->begins[t + 1] - s->begins[t] : s->batch; }
INLINE i64 few_rows(const layer *s, i64 t) { return rows_of(s, t) <= FEW ? rows_of(s, t) : 0; }
static i64 rows_in_chunk(const layer *s) { return begin_of(s, s->chunk_end) - begin_of(s, s->chunk_start); }

INLINE const float *h_before(const layer *s, i64 t) { return t ? s->h + begin_of(s, t - 1) * s->size : s->h0; }

/* The gates of a step, or of its gradient, at a row of the batch. */
INLINE float *gates_at(const layer *s, i64 t, i64 row) {
    return s->gates + (begin_of(s, t) - (s->save_gates ? 0 : begin_of(s, s->chunk_start)) + row) * all_units(s);
}
INLINE float *da_at(const layer *s, i64 t, i64 row) {
    return s->da + (begin_of(s, t) - begin_of(s, s->chunk_start) + row) * all_units(s);
}

/* da as the first factor of a product: of all rows of the chunk, the size of a row, and a row at a step. */
INLINE float *first_factor(const layer *s) { return s->factor_da ? s->factor_da : s->da; }
INLINE i64 factor_size(const layer *s) { return s->num_gates * padded(s->size); }
INLINE float *factor_da_at(const layer *s, i64 t, i64 row) {
    return first_factor(s) + (begin_of(s, t) - begin_of(s, s->chunk_start) + row) * factor_size(s);
}

/* Some units of a gate of da, which has just been computed, as a first factor. */
INLINE void write_factor_da(const layer *s, i64 t, i64 row, i64 gate, i64 column, i64 width) {
    const float *da = da_at(s, t, row) + gate * s->size + column;
    if (s->factor_da)
        write_factor(width, da, 0, factor_da_at(s, t, row), factor_size(s), gate * padded(s->size) + column);
}

/* The share of a thread in some work; p is a layer, or a cell, whose first member is a layer. */
typedef void work_fn(const void *p, i64 thread);

/* The thread's panels of W and U for a forward pass. */
static void pack_forward(const void *p, i64 thread) {
    const layer *s = p;
    const i64 first = first_of(s, panels(s->size), thread), last = first_of(s, panels(s->size), thread + 1);
    pack_transposed(s->w_ih, s->num_gates, s->size, s->inputs, first, last, s->packed_ih);
    pack_transposed(s->w_hh, s->num_gates, s->size, s->size, first, last, s->packed_hh);
}

/* The thread's panels of W for a backward pass. */
static void pack_w_ih(const layer *s, i64 thread) {
    const i64 first = first_of(s, panels(s->inputs), thread), last = first_of(s, panels(s->inputs), thread + 1);
    if (s->dx) pack(s->w_ih, s->num_gates, s->size, s->inputs, first, last, s->packed_ih);
}

/* The thread's panels of U and W for a backward pass; a cell may have another function for U. */
static void pack_backward(const void *p, i64 thread) {
    const layer *s = p;
    const i64 first = first_of(s, panels(s->size), thread), last = first_of(s, panels(s->size), thread + 1);
    pack(s->w_hh, s->num_gates, s->size, s->size, first, last, s->packed_hh);
    pack_w_ih(s, thread);
}

/* Rows of the chunk that a thread has, as blocks of adjacent rows numbered from the chunk's first row: some rows of the
 * batch, a block for each step; or all rows from `first` to `last`, one block. */
typedef struct {
    i64 first, last, adjacent, count;
} blocks;

static blocks blocks_of_batch(const layer *s, i64 first, i64 last) {
    if (first == 0 && last >= rows_of(s, s->chunk_start)) return (blocks){0, rows_in_chunk(s), 1, 1};
    return (blocks){first, last, 0, s->chunk_end - s->chunk_start};
}

static blocks blocks_of_thread(const layer *s, i64 thread) {
    const i64 rows = rows_in_chunk(s);
    return (blocks){first_of(s, rows, thread), first_of(s, rows, thread + 1), 1, 1};
}

INLINE void block_at(const layer *s, const blocks *all, i64 k, i64 *from, i64 *rows) {
    const i64 t = s->chunk_start + k;
    *from = all->adjacent ? all->first : begin_of(s, t) - begin_of(s, s->chunk_start) + all->first;
    *rows = all->adjacent ? all->last - all->first : min_i64(all->last, rows_of(s, t)) - all->first;
}

/* The rows of the batch that the blocks have at a step. */
INLINE region rows_at(const layer *s, const blocks *all, i64 t, i64 units) {
    const i64 before = all->adjacent ? begin_of(s, t) - begin_of(s, s->chunk_start) : 0;
    const i64 first = all->first > before ? all->first - before : 0, last = min_i64(all->last - before, rows_of(s, t));
    return (region){first, last - first, 0, units};
}

/* The steps of some adjacent rows of the chunk, and their rows of the batch. */
typedef struct {
    i64 t[ROWS], b[ROWS];
} places;

static void find_places(const layer *s, i64 from, i64 rows, places *to) {
    const i64 start = begin_of(s, s->chunk_start) + from;
    i64 t = s->begins ? s->chunk_start : start / s->batch;
    while (start >= begin_of(s, t + 1)) t++;
    i64 b = start - begin_of(s, t);
    for (i64 r = 0; r < rows; r++) {
        to->t[r] = t, to->b[r] = b;
        if (++b == rows_of(s, t)) b = 0, t++;
    }
}

/* x W + b for a tile of the chunk's rows and some units of all gates, into the gates. */
static void project_tile(const layer *s, i64 row, i64 last_row, i64 begin, i64 end) {
    const i64 n = s->size, gates = s->num_gates, units = s->inputs, next = padded(units);
    const i64 copies = s->z_x.data ? s->z_x.num_gates : 1, copy_stride = s->chunk_rows * next;
    const float *x = s->masked_x ? s->masked_x : s->x + begin_of(s, s->chunk_start) * units;
    for (i64 column = begin; column < end; column += WIDTH)
        for (i64 gate = 0; gate < gates; gate++) {
            const float *read = x + (copies > 1 ? gate : 0) * copy_stride + row * next;
            const float *panel = s->packed_ih + (column / WIDTH * gates + gate) * next * WIDTH;
            const float *bias = s->bias ? s->bias + gate * n + column : 0;
            const matmul_args f = {read, next, units, panel, 0, 0};
            float *to = gates_at(s, s->chunk_start, row) + gate * n + column;
            product(last_row - row, min_i64(WIDTH, end - column), f, bias, 0, to, gates * n);
        }
}

/* x W + b for some rows of the chunk, into the gates. */
static void project(const layer *s, blocks all) {
    const i64 n = s->size, gates = s->num_gates, units = s->inputs, next = padded(units);
    const i64 start = begin_of(s, s->chunk_start);
    for (i64 t = s->chunk_start; s->masked_x && t < s->chunk_end; t++)
        apply(&s->z_x, t, s->batch, rows_at(s, &all, t, units), units, s->x + begin_of(s, t) * units,
              s->masked_x + (begin_of(s, t) - start) * next, s->chunk_rows * next);
    for (i64 begin = 0, end; begin < n; begin = end) {
        end = min_i64(n, begin + cached_columns(gates * units));
        for (i64 block = 0; block < all.count; block++) {
            i64 from, height;
            block_at(s, &all, block, &from, &height);
            for (i64 k = 0; height > 0 && k < tiles(height); k++)
                project_tile(s, from + tile_begin(height, k), from + tile_begin(height, k + 1), begin, end);
        }
    }
}

/* The columns of the k-th panel of a region at step t: every other step takes them in reverse, so that it begins with
 * the panels of U that are still in the cache. */
INLINE i64 panel_column(region at, i64 t, i64 k) {
    return at.column + (t % 2 ? panels(at.end - at.column) - 1 - k : k) * WIDTH;
}

/* to += the gradient of h at step t through `count` gates: da U of a region, whose first column begins a panel, through
 * the mask, summed over gates. da has the region's first row, as a first factor; its rows are `next` long; m is the
 * first gate's mask. A panel of U serves all rows before the next is read. */
static void state_grad(const layer *s, i64 t, i64 count, const float *da, i64 next, const float *m, region at,
                       const float *packed, float *to) {
    const i64 n = padded(s->size), copies = m && s->z_h.num_gates > 1 ? count : 1, depth = count / copies * n;
    float sums[ROWS * WIDTH];
    for (i64 panel_number = 0; panel_number < panels(at.end - at.column); panel_number++)
        for (i64 k = 0; at.rows > 0 && k < tiles(at.rows); k++)
            for (i64 copy = 0; copy < copies; copy++) {
                const i64 column = panel_column(at, t, panel_number), width = min_i64(WIDTH, s->size - column);
                const i64 row = tile_begin(at.rows, k), rows = tile_begin(at.rows, k + 1) - row;
                const float *panel = packed + (column / WIDTH * copies + copy) * depth * WIDTH;
                const matmul_args f = {factor_at(da + row * next, copy * n), next, depth, panel, few_rows(s, t),
                                       rows * s->size};
                float *dst = to + (at.row + row) * s->size + column;
                if (!m) {
                    product(rows, width, f, dst, s->size, dst, s->size);
                    continue;
                }
                const float *z = m + (copy * s->batch + at.row + row) * s->size + column;
                product(rows, width, f, 0, 0, sums, WIDTH);
                for (i64 r = 0; r < rows; r++, z += s->size, dst += s->size)
                    if (width == WIDTH) add_product(WIDTH, sums + r * WIDTH, z, dst);
                    else add_product(width, sums + r * WIDTH, z, dst);
            }
}

/* The gradient of x for a tile of the chunk's rows and some columns. */
static void x_grad_tile(const layer *s, i64 from, i64 rows, i64 begin, i64 end) {
    const i64 units = s->inputs, gates = s->num_gates, n = padded(s->size), next = factor_size(s);
    const i64 copies = s->z_x.data && s->z_x.num_gates > 1 ? gates : 1, depth = gates / copies * n;
    const float *da = first_factor(s) + from * next;
    float *dx = s->dx + (begin_of(s, s->chunk_start) + from) * units, sums[ROWS * WIDTH];
    places at;
    if (s->z_x.data) find_places(s, from, rows, &at);
    for (i64 column = begin; column < end; column += WIDTH)
        for (i64 copy = 0; copy < copies; copy++) {
            const i64 width = min_i64(WIDTH, end - column);
            const float *panel = s->packed_ih + (column / WIDTH * copies + copy) * depth * WIDTH;
            const matmul_args f = {factor_at(da, copy * n), next, depth, panel, 0, 0};
            float *to = dx + column;
            if (!s->z_x.data) {
                product(rows, width, f, 0, 0, to, units);
                continue;
            }
            product(rows, width, f, 0, 0, sums, WIDTH);
            for (i64 r = 0; r < rows; r++, to += units) {
                const float *z = mask_of(&s->z_x, at.t[r], copy, s->batch, at.b[r], units) + column;
                if (copy == 0) multiply(width, sums + r * WIDTH, z, to);
                else if (width == WIDTH) add_product(WIDTH, sums + r * WIDTH, z, to);
                else add_product(width, sums + r * WIDTH, z, to);
            }
        }
}

/* The gradient of x for some rows of the chunk. */
static void x_grad(const layer *s, blocks all) {
    const i64 units = s->inputs;
    for (i64 begin = 0, end; s->dx && begin < units; begin = end) {
        end = min_i64(units, begin + cached_columns(factor_size(s)));
        for (i64 block = 0; block < all.count; block++) {
            i64 from, height;
            block_at(s, &all, block, &from, &height);
            for (i64 k = 0; height > 0 && k < tiles(height); k++) {
                const i64 row = tile_begin(height, k);
                x_grad_tile(s, from + row, tile_begin(height, k + 1) - row, begin, end);
            }
        }
    }
}

/* What a weight was multiplied with: x, or with `first` the h of the step before, which may have passed a gate. */
typedef struct {
    const mask *z;
    const float *x, *first, *reset;
    i64 units, reset_row;
} operand;

/* Some columns of an operand under the mask of a gate, over some rows of the chunk. */
static void load_panel(const layer *s, const operand *p, i64 gate, i64 column, i64 from, i64 depth, float *to) {
    float *const panel = to;
    const i64 rows = depth;
    const i64 units = p->units, width = min_i64(WIDTH, units - column);
    i64 t = s->chunk_start, b = begin_of(s, t) + from;
    while (b >= begin_of(s, t + 1)) t++;
    for (b -= begin_of(s, t); depth > 0; depth--, to += WIDTH) {
        const float *x = p->first ? (t ? p->x + begin_of(s, t - 1) * units : p->first) : p->x + begin_of(s, t) * units;
        x += b * units + column;
        if (p->z->data) multiply(width, x, mask_of(p->z, t, gate, s->batch, b, units) + column, to);
        else memcpy(to, x, width * sizeof(float));
        if (p->reset) multiply(width, to, p->reset + (begin_of(s, t) + b) * p->reset_row + column, to);
        memset(to + width, 0, (WIDTH - width) * sizeof(float));
        if (++b == rows_of(s, t)) b = 0, t++;
    }
    convert_panel(rows, panel);
}

/* dw (count * size, units) + da^T (x o z) over some rows, for those units of every gate that the thread has.
 * The gates are `gate` and the next ones; da has the first of them in the first row of the chunk. All panels of x are
 * packed first and stay in the second-level cache; a tile of da^T, whose rows lie far apart, is copied. */
static void weight_grad(const layer *s, const operand *p, i64 gate, i64 count, const float *da, i64 next, i64 thread,
                        i64 from, i64 depth, float *dw) {
    const i64 first = first_of(s, s->size, thread), last = first_of(s, s->size, thread + 1), units = p->units;
    const int is_first = s->chunk_end == s->steps && from == 0; /* nothing was added before */
    float part[DEPTH * ROWS] __attribute__((aligned(64)));
    float *packed = s->packed_x + thread * padded(s->depth) * s->packed_columns;
    for (i64 g = 0; g < count; g++) {
        for (i64 column = 0; (g == 0 || (p->z->data && p->z->num_gates > 1)) && column < units; column += WIDTH)
            load_panel(s, p, gate + g, column, from, depth, packed + column * padded(depth));
        for (i64 k = 0; k < tiles(last - first); k++) {
            const i64 j = first + tile_begin(last - first, k), rows = first + tile_begin(last - first, k + 1) - j;
            const float *source = da + from * next + g * s->size + j;
            load_transposed(rows, depth, source, next, part);
            for (i64 column = 0; column < units; column += WIDTH) {
                float *to = dw + (g * s->size + j) * units + column;
                const matmul_args f = {part, transposed_row(depth), depth, packed + column * padded(depth), 0, WIDTH};
                product(rows, min_i64(WIDTH, units - column), f, is_first ? 0 : to, units, to, units);
            }
        }
    }
}

/* db += the sum of da (rows, columns) over some rows, for the thread's columns */
static void bias_grad(const layer *s, const float *da, i64 next, i64 columns, i64 thread, i64 from, i64 depth,
                      float *db) {
    const i64 last = first_of(s, columns, thread + 1);
    for (i64 column = first_of(s, columns, thread); column < last; column += WIDTH) {
        const i64 width = min_i64(WIDTH, last - column);
        float sums[WIDTH] = {0};
        for (i64 row = from; row < from + depth; row++) add(width, da + row * next + column, sums);
        add(width, sums, db + column);
    }
}

/* The gradients of W, U and b where every gate's product with U reads the same h. */
static void weight_grads(const void *p, i64 thread) {
    const layer *s = p;
    const i64 gates = s->num_gates, next = all_units(s), rows = rows_in_chunk(s);
    const operand x = {&s->z_x, s->x, 0, 0, s->inputs, 0}, h = {&s->z_h, s->h, s->h0, 0, s->size, 0};
    for (i64 from = 0; from < rows; from += s->depth) {
        const i64 depth = min_i64(s->depth, rows - from);
        if (s->dw_ih) weight_grad(s, &x, 0, gates, s->da, next, thread, from, depth, s->dw_ih);
        if (s->dw_hh) weight_grad(s, &h, 0, gates, s->da, next, thread, from, depth, s->dw_hh);
        if (s->db) bias_grad(s, s->da, next, next, thread, from, depth, s->db);
    }
}

/* A part of a step, forward or backward, for a region of the batch; p as above. It may read what the parts before it
 * have written for other units of the same rows. */
typedef void part_fn(const void *p, i64 t, region at);

/* A layer, or a cell, and the parts of its step, NULL after the last one. */
typedef struct {
    const void *p;
    part_fn *const *parts;
} step_parts;

/* h o z of the step before, the first part of a step forward. */
static void mask_state(const void *p, i64 t, region at) {
    const layer *s = p;
    if (s->masked_h) apply(&s->z_h, t, s->batch, at, s->size, h_before(s, t), s->masked_h, s->batch * padded(s->size));
}

/* All parts of a step for some rows with all of their units: a panel of U serves all rows before the next is read. */
INLINE void step_of_rows(const step_parts *all, i64 t, i64 first, i64 last) {
    const layer *s = all->p;
    const region at = {first, min_i64(last, rows_of(s, t)) - first, 0, s->size};
    for (part_fn *const *part = all->parts; at.rows > 0 && *part; part++) (*part)(s, t, at);
}

/* The thread's rows through the chunk, step by step. */
static void forward_rows(const void *work, i64 thread) {
    const step_parts *all = work;
    const layer *s = all->p;
    const i64 first = s->row_begins[thread], last = s->row_begins[thread + 1];
    project(s, blocks_of_batch(s, first, last));
    for (i64 t = s->chunk_start; t < s->chunk_end; t++) step_of_rows(all, t, first, last);
}

static void backward_rows(const void *work, i64 thread) {
    const step_parts *all = work;
    const layer *s = all->p;
    const i64 first = s->row_begins[thread], last = s->row_begins[thread + 1];
    for (i64 t = s->chunk_end - 1; t >= s->chunk_start; t--) step_of_rows(all, t, first, last);
    x_grad(s, blocks_of_batch(s, first, last));
}

/* One part of step t, of which every thread does some panels of units. */
typedef struct {
    const layer *s;
    part_fn *part;
    i64 t;
} shared_part;

static void part_of_units(const void *work, i64 thread) {
    const shared_part *all = work;
    const layer *s = all->s;
    const i64 first = first_of(s, panels(s->size), thread), last = first_of(s, panels(s->size), thread + 1);
    const region at = {0, rows_of(s, all->t), first * WIDTH, min_i64(last * WIDTH, s->size)};
    if (first < last) all->part(s, all->t, at);
}

static void step_of_units(const step_parts *all, i64 t) {
    const layer *s = all->p;
    for (part_fn *const *part = all->parts; *part; part++) {
        const shared_part work = {s, *part, t};
        in_threads(part_of_units, &work, s->threads);
    }
}

static void project_rows(const void *p, i64 thread) {
    const layer *s = p;
    project(s, blocks_of_thread(s, thread));
}

static void x_grad_rows(const void *p, i64 thread) {
    const layer *s = p;
    x_grad(s, blocks_of_thread(s, thread));
}

/* Give each thread rows of the batch, so that all have about the same number of rows in the chunk. */
static void split_rows(layer *s) {
    i64 row = 0, given = 0, t = s->chunk_end;
    for (i64 thread = 0; thread < s->threads; thread++) {
        s->row_begins[thread] = s->begins ? row : first_of(s, s->batch, thread);
        const i64 wanted = s->begins ? first_of(s, rows_in_chunk(s), thread + 1) : 0;
        for (; given < wanted; row++) {
            while (rows_of(s, t - 1) <= row) t--; /* the row is in the steps from the first of the chunk to t */
            given += t - s->chunk_start;
        }
    }
    s->row_begins[s->threads] = s->batch;
}

/* All chunks, forward and backward. */
static void run_forward(layer *s, part_fn *const *parts) {
    const step_parts all = {s, parts};
    in_threads(pack_forward, s, s->threads);
    for (s->chunk_start = 0; s->chunk_start < s->steps; s->chunk_start = s->chunk_end) {
        s->chunk_end = s->chunk_start + 1;
        while (s->chunk_end < s->steps && rows_in_chunk(s) + rows_of(s, s->chunk_end) <= s->chunk_rows) s->chunk_end++;
        split_rows(s);
        if (s->split_units) {
            in_threads(project_rows, s, s->threads);
            for (i64 t = s->chunk_start; t < s->chunk_end; t++) step_of_units(&all, t);
        } else {
            in_threads(forward_rows, &all, s->threads);
        }
    }
}

static void run_backward(layer *s, work_fn *pack_weights, part_fn *const *parts, work_fn *grads) {
    const step_parts all = {s, parts};
    in_threads(pack_weights, s, s->threads);
    for (s->chunk_end = s->steps; s->chunk_end > 0; s->chunk_end = s->chunk_start) {
        s->chunk_start = s->chunk_end - 1;
        while (s->chunk_start && rows_in_chunk(s) + rows_of(s, s->chunk_start - 1) <= s->chunk_rows) s->chunk_start--;
        split_rows(s);
        if (s->split_units) {
            for (i64 t = s->chunk_end - 1; t >= s->chunk_start; t--) step_of_units(&all, t);
            in_threads(x_grad_rows, s, s->threads);
        } else {
            in_threads(backward_rows, &all, s->threads);
        }
        in_threads(grads, s, s->threads);
    }
}
