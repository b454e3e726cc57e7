/* The two Runge-Kutta sweeps of the paper's field, one trajectory at a time, in float32.

   f(t, x) = amplitude * sigmoid(gain n + shift) + offset,  n = z / sqrt(|z|^2 + floor^2),  z = x M + slope t + bias;
   with floor < 0 there is no norm and the sigmoid's argument is z.

   The same computation as contiformer/nn/fused_sweep.py, which is its reference and takes over where no compiler was at hand.
   A trajectory's whole work fits into the first cache, which is what makes this fast; there is no other idea in it.
   The calls release Python's lock and touch only their own rows, so the caller may run several at once. */

#include "common.h"

#define STAGES 4
#define LANES 8

/* Widths are a multiple of LANES: products keep up to four vectors of their result in registers. */
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));
#define AT(p, j) (*(const Lanes *)((p) + (j)))
#define PUT(p, j) (*(Lanes *)((p) + (j)))

/* y += x M for M [d, d] */
INLINE void add_product(long d, const float *x, const float *M, float *y) {
    long j = 0;
    for (; j + 4 * LANES <= d; j += 4 * LANES) {
        /* two sets of sums, for even and odd k, hide the latency of the additions */
        Lanes a = AT(y, j), b = AT(y, j + LANES), c = AT(y, j + 2 * LANES), e = AT(y, j + 3 * LANES);
        Lanes a2 = {0}, b2 = {0}, c2 = {0}, e2 = {0};
        for (long k = 0; k < d; k += 2) {
            const float *row = M + k * d + j, *next = row + d;
            const float x0 = x[k], x1 = x[k + 1];
            a += x0 * AT(row, 0), a2 += x1 * AT(next, 0);
            b += x0 * AT(row, LANES), b2 += x1 * AT(next, LANES);
            c += x0 * AT(row, 2 * LANES), c2 += x1 * AT(next, 2 * LANES);
            e += x0 * AT(row, 3 * LANES), e2 += x1 * AT(next, 3 * LANES);
        }
        PUT(y, j) = a + a2, PUT(y, j + LANES) = b + b2, PUT(y, j + 2 * LANES) = c + c2, PUT(y, j + 3 * LANES) = e + e2;
    }
    for (; j < d; j += LANES) {
        Lanes a = AT(y, j);
        for (long k = 0; k < d; k++) a += x[k] * AT(M + k * d, j);
        PUT(y, j) = a;
    }
}

/* What one evaluation leaves for its adjoint. */
typedef struct {
    float *x, *n, *y, length;
    float time;
} Stage;

/* M += x^T g */
INLINE void add_outer_product(long d, const float *restrict x, const float *restrict g, float *restrict M) {
    for (long j = 0; j < d; j += LANES) {
        const Lanes gj = AT(g, j);
        for (long k = 0; k < d; k++) PUT(M + k * d, j) += x[k] * gj;
    }
}

/* M += sum of x_s^T g_s over the four stages, whose g_s follow each other: one pass over M for all */
INLINE void add_four_outer_products(long d, const Stage *stage, const float *restrict g, float *restrict M) {
    const float *restrict x0 = stage[0].x, *restrict x1 = stage[1].x, *restrict x2 = stage[2].x, *restrict x3 = stage[3].x;
    long j = 0;
    for (; j + 2 * LANES <= d; j += 2 * LANES) {
        const Lanes a0 = AT(g, j), a1 = AT(g + d, j), a2 = AT(g + 2 * d, j), a3 = AT(g + 3 * d, j);
        const Lanes b0 = AT(g, j + LANES), b1 = AT(g + d, j + LANES), b2 = AT(g + 2 * d, j + LANES),
                    b3 = AT(g + 3 * d, j + LANES);
        for (long k = 0; k < d; k++) {
            float *row = M + k * d + j;
            PUT(row, 0) += (x0[k] * a0 + x1[k] * a1) + (x2[k] * a2 + x3[k] * a3);
            PUT(row, LANES) += (x0[k] * b0 + x1[k] * b1) + (x2[k] * b2 + x3[k] * b3);
        }
    }
    for (; j < d; j += LANES) {
        const Lanes a0 = AT(g, j), a1 = AT(g + d, j), a2 = AT(g + 2 * d, j), a3 = AT(g + 3 * d, j);
        for (long k = 0; k < d; k++)
            PUT(M + k * d, j) += (x0[k] * a0 + x1[k] * a1) + (x2[k] * a2 + x3[k] * a3);
    }
}

typedef struct {
    /* sizes; a piece has per_piece steps between nodes, and twice its nodes as terms */
    long states, obs, batch, width, heads, nodes, substeps, per_piece;
    int causal;
    /* constants of the field */
    float floor, amplitude, offset;
    /* inputs: times [obs, batch], grid [nodes, batch], half lengths of the pieces [batch, pieces];
       initial [states, obs, batch, width]; basis [terms, terms] from values and slopes at a piece's nodes to its series */
    const double *times, *grid, *half;
    const float *initial, *basis;
    /* matrix [states, width, width], its transpose, and slope, bias, gain, shift [states, width] */
    const float *matrix, *transposed, *slope, *bias, *gain, *shift;
    /* values at the nodes [states, obs, batch, nodes, width], kept for the backward pass */
    float *values;
    /* for each state: series [batch, heads, obs, pieces, terms, width / heads], and their gradients */
    float *const *series;
    const float *const *g_series;
    /* sums of squares [2, states, obs, batch, pieces]: of the last two coefficients together, and of all */
    float *squares;
    /* backward pass: gradients of initial and, for this call alone, of the parameters */
    float *g_initial, *g_matrix, *g_slope, *g_bias, *g_gain, *g_shift;
} Sweep;

INLINE void evaluate(const Sweep *w, long state, float t, const float *x, Stage *out) {
    const long d = w->width;
    const float *M = w->matrix + state * d * d, *slope = w->slope + state * d, *bias = w->bias + state * d;
    float *z = out->n, *y = out->y;
    memcpy(out->x, x, d * sizeof(float));
    out->time = t;
#pragma omp simd
    for (long j = 0; j < d; j++) z[j] = bias[j] + slope[j] * t;
    add_product(d, x, M, z);
    if (w->floor >= 0) {
        const float *gain = w->gain + state * d, *shift = w->shift + state * d;
        float square = w->floor * w->floor;
#pragma omp simd reduction(+ : square)
        for (long j = 0; j < d; j++) square += z[j] * z[j];
        const float length = sqrtf(square), inverse = 1.0f / length;
        out->length = length;
#pragma omp simd
        for (long j = 0; j < d; j++) {
            z[j] *= inverse;
            y[j] = 1.0f / (1.0f + exp_fast(-(shift[j] + gain[j] * z[j])));
        }
    } else {
#pragma omp simd
        for (long j = 0; j < d; j++) y[j] = 1.0f / (1.0f + exp_fast(-z[j]));
    }
}

/* Gradient gx with respect to the input, given g with respect to the field; gz and inner are left for the parameters. */
INLINE void pull_back(const Sweep *w, long state, const Stage *at, const float *g, float *inner, float *gz, float *gx) {
    const long d = w->width;
    const float *T = w->transposed + state * d * d;
    const float *n = at->n, *y = at->y;
#pragma omp simd
    for (long j = 0; j < d; j++) inner[j] = w->amplitude * g[j] * y[j] * (1.0f - y[j]);
    if (w->floor >= 0) {
        const float *gain = w->gain + state * d;
        float along = 0;
#pragma omp simd reduction(+ : along)
        for (long j = 0; j < d; j++) {
            gz[j] = inner[j] * gain[j];
            along += gz[j] * n[j];
        }
        const float inverse = 1.0f / at->length;
#pragma omp simd
        for (long j = 0; j < d; j++) gz[j] = (gz[j] - along * n[j]) * inverse;
    } else {
        memcpy(gz, inner, d * sizeof(float));
    }
    memset(gx, 0, d * sizeof(float));
    add_product(d, gz, T, gx);
}

/* Add what `count` evaluations contribute to the gradients of the parameters. */
INLINE void add_parameters(const Sweep *w, long state, const Stage *stage, const float *inner, const float *gz, int count) {
    const long d = w->width;
    float *g_matrix = w->g_matrix + state * d * d;
    if (count == STAGES)
        add_four_outer_products(d, stage, gz, g_matrix);
    else
        for (int s = 0; s < count; s++) add_outer_product(d, stage[s].x, gz + s * d, g_matrix);
    float *g_slope = w->g_slope + state * d, *g_bias = w->g_bias + state * d;
    for (int s = 0; s < count; s++) {
        const float *g = gz + s * d;
        const float t = stage[s].time;
#pragma omp simd
        for (long j = 0; j < d; j++) {
            g_bias[j] += g[j];
            g_slope[j] += t * g[j];
        }
        if (w->floor >= 0) {
            float *g_gain = w->g_gain + state * d, *g_shift = w->g_shift + state * d;
            const float *i = inner + s * d, *n = stage[s].n;
#pragma omp simd
            for (long j = 0; j < d; j++) {
                g_shift[j] += i[j];
                g_gain[j] += i[j] * n[j];
            }
        }
    }
}

/* The four stages of a step from x at time t, and, where next is given, the state after it. */
INLINE void stages(const Sweep *w, long state, double t, double h, const float *x, Stage *stage, float *moved, float *next) {
    const long d = w->width;
    const double at[STAGES] = {t, t + h / 2, t + h / 2, t + h};
    const float reach[STAGES] = {0, (float)(h / 2), (float)(h / 2), (float)h};
    evaluate(w, state, (float)at[0], x, &stage[0]);
    for (int s = 1; s < STAGES; s++) {
        const float *y = stage[s - 1].y;
        const float a = reach[s] * w->amplitude, o = reach[s] * w->offset;
#pragma omp simd
        for (long j = 0; j < d; j++) moved[j] = x[j] + o + a * y[j];
        evaluate(w, state, (float)at[s], moved, &stage[s]);
    }
    if (next) {
        const float a = (float)(h / 6) * w->amplitude, o = (float)h * w->offset;
        const float *y0 = stage[0].y, *y1 = stage[1].y, *y2 = stage[2].y, *y3 = stage[3].y;
#pragma omp simd
        for (long j = 0; j < d; j++) next[j] = x[j] + o + a * (y0[j] + 2 * (y1[j] + y2[j]) + y3[j]);
    }
}

/* From x at time `from` to time `to`; path, where given, keeps the state before every substep. */
INLINE void cross(const Sweep *w, long state, double from, double to, float *x, Stage *stage, float *moved, float *path) {
    const long d = w->width;
    const double h = (to - from) / w->substeps;
    for (long s = 0; s < w->substeps; s++) {
        if (path) memcpy(path + s * d, x, d * sizeof(float));
        if (h != 0) stages(w, state, from + s * h, h, x, stage, moved, x);
    }
}

typedef struct {
    float *memory, *moved, *path, *x, *lambda, *inner, *gz, *gx, *g;
    Stage stage[STAGES];
} Work;

static int make_work(Work *work, long d, long substeps) {
    float *m = work->memory = malloc((3 * STAGES + substeps + 4 + 2 * STAGES + STAGES) * d * sizeof(float));
    if (!m) return 1;
    for (int s = 0; s < STAGES; s++, m += 3 * d) {
        work->stage[s].x = m;
        work->stage[s].n = m + d;
        work->stage[s].y = m + 2 * d;
    }
    work->path = m, m += substeps * d;
    work->moved = m, m += d;
    work->x = m, m += d;
    work->lambda = m, m += d;
    work->g = m, m += d;
    work->inner = m, m += STAGES * d;
    work->gz = m, m += STAGES * d;
    work->gx = m;
    return 0;
}

/* Nodes before this one are not reached by the backward sweep of an observation whose first later node is `first`. */
INLINE long backward_end(const Sweep *w, long first) {
    return w->causal && first > 0 ? (first - 1) / w->per_piece * w->per_piece : 0;
}

INLINE long first_node(const Sweep *w, long b, double time) {
    long first = 0;
    while (first < w->nodes && w->grid[first * w->batch + b] < time) first++;
    return first;
}

/* Where the series of observation `obs` in sequence b begins for head h. */
INLINE long place(const Sweep *w, long b, long h, long obs) {
    const long pieces = (w->nodes - 1) / w->per_piece, terms = 2 * (w->per_piece + 1);
    return ((b * w->heads + h) * w->obs + obs) * pieces * terms * (w->width / w->heads);
}

/* series = basis (values, slopes) on every piece, head by head; sums of squares on the way */
INLINE void write_series(const Sweep *w, long r, const float *values, const float *slopes, float *sum, float *next) {
    const long d = w->width, dk = d / w->heads, n = w->per_piece + 1, terms = 2 * n;
    const long pieces = (w->nodes - 1) / w->per_piece, rows = w->states * w->obs * w->batch;
    const long b = r % w->batch, obs = r / w->batch % w->obs, state = r / (w->obs * w->batch);
    float *series = w->series[state];
    for (long p = 0; p < pieces; p++) {
        const float proper = w->half[b * pieces + p] > 0;
        const float *v = values + p * w->per_piece * d, *s = slopes + p * w->per_piece * d;
        float all = 0, last = 0;
        memset(next, 0, d * sizeof(float));
        for (long m = 0; m < terms; m++) {
            const float *basis = w->basis + m * terms;
            memset(sum, 0, d * sizeof(float));
            for (long k = 0; k < n; k++) {
                const float a = basis[k], c = basis[n + k] * proper;
#pragma omp simd
                for (long j = 0; j < d; j++) sum[j] += a * v[k * d + j] + c * s[k * d + j];
            }
#pragma omp simd reduction(+ : all)
            for (long j = 0; j < d; j++) all += sum[j] * sum[j];
            if (m >= terms - 2)
                for (long j = 0; j < d; j++) next[j] += fabsf(sum[j]);
            for (long h = 0; h < w->heads; h++)
                memcpy(series + place(w, b, h, obs) + (p * terms + m) * dk, sum + h * dk, dk * sizeof(float));
        }
        for (long j = 0; j < d; j++) last += next[j] * next[j];
        w->squares[r * pieces + p] = last;
        w->squares[(rows + r) * pieces + p] = all;
    }
}

/* Its adjoint: gradients of values and slopes from that of the series. */
INLINE void read_gradient(const Sweep *w, long r, float *g_values, float *g_slopes, float *g) {
    const long d = w->width, dk = d / w->heads, n = w->per_piece + 1, terms = 2 * n;
    const long pieces = (w->nodes - 1) / w->per_piece;
    const long b = r % w->batch, obs = r / w->batch % w->obs, state = r / (w->obs * w->batch);
    const float *g_series = w->g_series[state];
    memset(g_values, 0, w->nodes * d * sizeof(float));
    memset(g_slopes, 0, w->nodes * d * sizeof(float));
    for (long p = 0; p < pieces; p++) {
        const float proper = w->half[b * pieces + p] > 0;
        float *v = g_values + p * w->per_piece * d, *s = g_slopes + p * w->per_piece * d;
        for (long m = 0; m < terms; m++) {
            const float *basis = w->basis + m * terms;
            for (long h = 0; h < w->heads; h++)
                memcpy(g + h * dk, g_series + place(w, b, h, obs) + (p * terms + m) * dk, dk * sizeof(float));
            for (long k = 0; k < n; k++) {
                const float a = basis[k], c = basis[n + k] * proper;
#pragma omp simd
                for (long j = 0; j < d; j++) {
                    v[k * d + j] += a * g[j];
                    s[k * d + j] += c * g[j];
                }
            }
        }
    }
}

DISPATCH int sweep_forward(const Sweep *w, long begin, long end) {
    const long d = w->width, pieces = (w->nodes - 1) / w->per_piece;
    Work work;
    if (make_work(&work, d, w->substeps)) return 1;
    float *slopes = malloc(w->nodes * d * sizeof(float));
    if (!slopes) {
        free(work.memory);
        return 1;
    }
    for (long r = begin; r < end; r++) {
        const long b = r % w->batch, state = r / (w->obs * w->batch);
        const double time = w->times[r % (w->obs * w->batch)];
        const long first = first_node(w, b, time), stop = backward_end(w, first);
        float *values = w->values + r * w->nodes * d;
        for (int back = 0; back < 2; back++) {
            double from = time;
            memcpy(work.x, w->initial + r * d, d * sizeof(float));
            for (long g = back ? first - 1 : first; back ? g >= 0 : g < w->nodes; g += back ? -1 : 1) {
                const double to = w->grid[g * w->batch + b];
                if (!back || g >= stop) cross(w, state, from, to, work.x, work.stage, work.moved, NULL);
                from = to;
                memcpy(values + g * d, work.x, d * sizeof(float));
            }
        }
        const float stretch = (float)w->half[b * pieces], a = stretch * w->amplitude, o = stretch * w->offset;
        for (long g = 0; g < w->nodes; g++) {
            evaluate(w, state, (float)w->grid[g * w->batch + b], values + g * d, &work.stage[0]);
            const float *y = work.stage[0].y;
            float *out = slopes + g * d;
#pragma omp simd
            for (long j = 0; j < d; j++) out[j] = o + a * y[j];
        }
        write_series(w, r, values, slopes, work.x, work.moved);
    }
    free(slopes);
    free(work.memory);
    return 0;
}

/* The adjoint of cross(): lambda with respect to the end becomes lambda with respect to the beginning. */
INLINE void uncross(const Sweep *w, long state, double from, double to, const float *start, Work *work) {
    const long d = w->width;
    const double h = (to - from) / w->substeps;
    if (h == 0) return;
    if (w->substeps > 1) {
        memcpy(work->x, start, d * sizeof(float));
        cross(w, state, from, to, work->x, work->stage, work->moved, work->path);
        start = work->path;
    }
    const float reach[STAGES] = {0, (float)(h / 2), (float)(h / 2), (float)h};
    const float weight[STAGES] = {(float)(h / 6), (float)(h / 3), (float)(h / 3), (float)(h / 6)};
    for (long s = w->substeps - 1; s >= 0; s--) {
        stages(w, state, from + s * h, h, start + s * d, work->stage, work->moved, NULL);
        for (int i = STAGES - 1; i >= 0; i--) {
            const float *later = work->gx + (i + 1) * d;
            const float c = weight[i], k = i < STAGES - 1 ? reach[i + 1] : 0;
#pragma omp simd
            for (long j = 0; j < d; j++) work->g[j] = c * work->lambda[j];
            if (i < STAGES - 1) {
#pragma omp simd
                for (long j = 0; j < d; j++) work->g[j] += k * later[j];
            }
            pull_back(w, state, &work->stage[i], work->g, work->inner + i * d, work->gz + i * d, work->gx + i * d);
        }
        add_parameters(w, state, work->stage, work->inner, work->gz, STAGES);
#pragma omp simd
        for (long j = 0; j < d; j++)
            work->lambda[j] += work->gx[j] + work->gx[d + j] + work->gx[2 * d + j] + work->gx[3 * d + j];
    }
}

DISPATCH int sweep_backward(const Sweep *w, long begin, long end) {
    const long d = w->width, pieces = (w->nodes - 1) / w->per_piece;
    Work work;
    if (make_work(&work, d, w->substeps)) return 1;
    float *g_nodes = malloc(2 * w->nodes * d * sizeof(float)), *g_slopes = g_nodes + w->nodes * d;
    if (!g_nodes) {
        free(work.memory);
        return 1;
    }
    for (long r = begin; r < end; r++) {
        const long b = r % w->batch, state = r / (w->obs * w->batch);
        const double time = w->times[r % (w->obs * w->batch)];
        const long first = first_node(w, b, time), stop = backward_end(w, first);
        const float *values = w->values + r * w->nodes * d;
        const float *initial = w->initial + r * d;
        const float stretch = (float)w->half[b * pieces];
        read_gradient(w, r, g_nodes, g_slopes, work.g);
        for (long g = 0; g < w->nodes; g++) {
            evaluate(w, state, (float)w->grid[g * w->batch + b], values + g * d, &work.stage[0]);
#pragma omp simd
            for (long j = 0; j < d; j++) work.g[j] = stretch * g_slopes[g * d + j];
            pull_back(w, state, &work.stage[0], work.g, work.inner, work.gz, work.gx);
            add_parameters(w, state, work.stage, work.inner, work.gz, 1);
#pragma omp simd
            for (long j = 0; j < d; j++) g_nodes[g * d + j] += work.gx[j];
        }
        float *g_initial = w->g_initial + r * d;
        memset(g_initial, 0, d * sizeof(float));
        for (int back = 0; back < 2; back++) {
            memset(work.lambda, 0, d * sizeof(float));
            for (long g = back ? 0 : w->nodes - 1; back ? g < first : g >= first; g += back ? 1 : -1) {
                const float *gv = g_nodes + g * d;
#pragma omp simd
                for (long j = 0; j < d; j++) work.lambda[j] += gv[j];
                if (back && g < stop) continue;
                const long previous = back ? g + 1 : g - 1;
                const int own = back ? previous == first : previous < first;
                const double from = own ? time : w->grid[previous * w->batch + b];
                uncross(w, state, from, w->grid[g * w->batch + b], own ? initial : values + previous * d, &work);
            }
#pragma omp simd
            for (long j = 0; j < d; j++) g_initial[j] += work.lambda[j];
        }
    }
    free(g_nodes);
    free(work.memory);
    return 0;
}
