/* The two Runge-Kutta sweeps of the paper's field, a few trajectories at a time, in float32.

   f(t, x) = amplitude * sigmoid(gain n + shift) + offset,  n = z / sqrt(|z|^2 + floor^2),  z = x M + slope t + bias;
   with floor < 0 there is no norm and the sigmoid's argument is z.

   The same computation as contiformer/nn/fused_sweep.py, which is its reference and takes over where no compiler was at hand.
   Two ideas make it fast: the work of a group of trajectories fits into the nearest caches, and all trajectories of a group
   take a step together, so that a number of M that is loaded is used for all of them. Every trajectory keeps its own times
   and steps; one that has arrived before the others of its group takes steps of length 0, which change nothing. A sum
   over k runs in the same order in a group of any size, so values do not depend on who else is in it.
   The calls release Python's lock and touch only their own rows, so the caller may run several at once. */

#include "common.h"

#define STAGES 4
/* Trajectories in a group: 6 rows of 2 vectors are the sums that 16 registers can hold beside what is added to them. */
#define GROUP 6
/* Widths are a multiple of LANES. */

/* `vectors` vectors of y += x M from column j on, for x, y [count, d] and M [d, d]; count and vectors are constants */
INLINE void add_block(const int count, const int vectors, long d, long j, const float *x, const float *M, float *y) {
    Lanes sum[GROUP * 2 > 8 ? GROUP * 2 : 8];
    UNROLL for (int r = 0; r < count; r++)
        UNROLL for (int v = 0; v < vectors; v++) sum[r * vectors + v] = AT(y + r * d, j + v * LANES);
    for (long k = 0; k < d; k++) {
        const float *row = M + k * d + j;
        UNROLL for (int r = 0; r < count; r++) {
            const float factor = x[r * d + k];
            UNROLL for (int v = 0; v < vectors; v++) sum[r * vectors + v] += factor * AT(row, v * LANES);
        }
    }
    UNROLL for (int r = 0; r < count; r++)
        UNROLL for (int v = 0; v < vectors; v++) PUT(y + r * d, j + v * LANES) = sum[r * vectors + v];
}

/* y += x M for x, y [count, d] */
INLINE void add_products(const int count, long d, const float *x, const float *M, float *y) {
    long j = 0;
    if (count == 1) {
        /* many columns at once hide the latency of the additions */
        for (; j + 8 * LANES <= d; j += 8 * LANES) add_block(1, 8, d, j, x, M, y);
        for (; j + 4 * LANES <= d; j += 4 * LANES) add_block(1, 4, d, j, x, M, y);
    } else {
        for (; j + 2 * LANES <= d; j += 2 * LANES) add_block(count, 2, d, j, x, M, y);
    }
    for (; j < d; j += LANES) add_block(count, 1, d, j, x, M, y);
}

/* M += x^T g for x, g [rows, d]: four rows of M and two vectors of them stay in registers */
INLINE void add_outer_products(long rows, long d, const float *restrict x, const float *restrict g, float *restrict M) {
    for (long k = 0; k < d; k += 4) {
        long j = 0;
        for (; j + 2 * LANES <= d; j += 2 * LANES) {
            float *at = M + k * d + j;
            Lanes sum[8];
            UNROLL for (int i = 0; i < 8; i++) sum[i] = AT(at + i / 2 * d, i % 2 * LANES);
            for (long p = 0; p < rows; p++) {
                const Lanes a = AT(g + p * d, j), b = AT(g + p * d, j + LANES);
                const float *factor = x + p * d + k;
                UNROLL for (int i = 0; i < 4; i++) sum[2 * i] += factor[i] * a, sum[2 * i + 1] += factor[i] * b;
            }
            UNROLL for (int i = 0; i < 8; i++) PUT(at + i / 2 * d, i % 2 * LANES) = sum[i];
        }
        for (; j < d; j += LANES) {
            float *at = M + k * d + j;
            Lanes sum[4];
            UNROLL for (int i = 0; i < 4; i++) sum[i] = AT(at + i * d, 0);
            for (long p = 0; p < rows; p++) {
                const Lanes a = AT(g + p * d, j);
                const float *factor = x + p * d + k;
                UNROLL for (int i = 0; i < 4; i++) sum[i] += factor[i] * a;
            }
            UNROLL for (int i = 0; i < 4; i++) PUT(at + i * d, 0) = sum[i];
        }
    }
}

typedef struct {
    /* sizes; a piece has per_piece steps between nodes, and twice its nodes as terms */
    long states, obs, batch, width, heads, nodes, substeps, per_piece;
    int causal;
    /* the items to be solved, `each` of every state, in order; NULL: all of them. The others are not written. */
    long each;
    const long *items;
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

/* Told to the compiler: no row of a width that is a multiple of LANES leaves a rest. */
#define WIDTH(w) ((w)->width / LANES * LANES)

/* What one evaluation of a group leaves for its adjoint: x, n, y [count, d]. */
typedef struct {
    float *x, *n, *y, length[GROUP], time[GROUP];
} Stage;

/* The field at out->x and the times of out. */
INLINE void evaluate(const int count, const Sweep *w, long state, Stage *out) {
    const long d = WIDTH(w);
    const float *slope = w->slope + state * d, *bias = w->bias + state * d;
    for (int r = 0; r < count; r++) {
        float *z = out->n + r * d;
        const float t = out->time[r];
#pragma omp simd
        for (long j = 0; j < d; j++) z[j] = bias[j] + slope[j] * t;
    }
    add_products(count, d, out->x, w->matrix + state * d * d, out->n);
    for (int r = 0; r < count; r++) {
        float *restrict z = out->n + r * d, *restrict y = out->y + r * d;
        if (w->floor >= 0) {
            const float *gain = w->gain + state * d, *shift = w->shift + state * d;
            float square = w->floor * w->floor;
#pragma omp simd reduction(+ : square)
            for (long j = 0; j < d; j++) square += z[j] * z[j];
            const float length = sqrtf(square), inverse = 1.0f / length;
            out->length[r] = length;
#pragma omp simd
            for (long j = 0; j < d; j++) {
                z[j] *= inverse;
                y[j] = exp_begun(-(shift[j] + gain[j] * z[j]));
            }
        } else {
#pragma omp simd
            for (long j = 0; j < d; j++) y[j] = exp_begun(-z[j]);
        }
#pragma omp simd
        for (long j = 0; j < d; j++) y[j] = 1.0f / (1.0f + exp_ended(y[j]));
    }
}

/* Gradient gx with respect to the input, given g with respect to the field; gz and inner are left for the parameters. */
INLINE void pull_back(
    const int count, const Sweep *w, long state, const Stage *at, const float *g, float *inner, float *gz, float *gx
) {
    const long d = WIDTH(w);
    for (int r = 0; r < count; r++) {
        const float *restrict n = at->n + r * d, *restrict y = at->y + r * d, *restrict from = g + r * d;
        float *restrict i = inner + r * d, *restrict z = gz + r * d;
        if (w->floor >= 0) {
            const float *restrict gain = w->gain + state * d;
            float along = 0;
#pragma omp simd reduction(+ : along)
            for (long j = 0; j < d; j++) {
                i[j] = w->amplitude * from[j] * y[j] * (1.0f - y[j]);
                z[j] = i[j] * gain[j];
                along += z[j] * n[j];
            }
            const float inverse = 1.0f / at->length[r];
#pragma omp simd
            for (long j = 0; j < d; j++) z[j] = (z[j] - along * n[j]) * inverse;
        } else {
#pragma omp simd
            for (long j = 0; j < d; j++) z[j] = i[j] = w->amplitude * from[j] * y[j] * (1.0f - y[j]);
        }
    }
    memset(gx, 0, count * d * sizeof(float));
    add_products(count, d, gz, w->transposed + state * d * d, gx);
}

/* Add what the evaluations of some stages contribute to the gradients of the parameters; their x, n, inner and gz follow
   each other. */
INLINE void add_parameters(
    const int count, const Sweep *w, long state, const Stage *stage, const float *inner, const float *gz, int stages
) {
    const long d = WIDTH(w), rows = (long)stages * count;
    add_outer_products(rows, d, stage->x, gz, w->g_matrix + state * d * d);
    float *g_slope = w->g_slope + state * d, *g_bias = w->g_bias + state * d;
    for (long j = 0; j < d; j += LANES) {
        Lanes bias = AT(g_bias, j), slope = AT(g_slope, j);
        for (long p = 0; p < rows; p++) {
            const Lanes g = AT(gz + p * d, j);
            bias += g, slope += stage[p / count].time[p % count] * g;
        }
        PUT(g_bias, j) = bias, PUT(g_slope, j) = slope;
    }
    if (w->floor < 0) return;
    float *g_gain = w->g_gain + state * d, *g_shift = w->g_shift + state * d;
    for (long j = 0; j < d; j += LANES) {
        Lanes gain = AT(g_gain, j), shift = AT(g_shift, j);
        for (long p = 0; p < rows; p++) {
            const Lanes i = AT(inner + p * d, j);
            shift += i, gain += i * AT(stage->n + p * d, j);
        }
        PUT(g_gain, j) = gain, PUT(g_shift, j) = shift;
    }
}

/* One step of each trajectory of a group. */
typedef struct {
    double from[GROUP], length[GROUP];
} Step;

/* The four stages of a step from x [count, d], and, where next is given, the states after it. */
INLINE void stages(const int count, const Sweep *w, long state, const Step *step, const float *x, Stage *stage, float *next) {
    const long d = WIDTH(w);
    memcpy(stage->x, x, count * d * sizeof(float));
    for (int r = 0; r < count; r++) {
        const double t = step->from[r], h = step->length[r];
        stage[0].time[r] = (float)t;
        stage[1].time[r] = stage[2].time[r] = (float)(t + h / 2);
        stage[3].time[r] = (float)(t + h);
    }
    evaluate(count, w, state, stage);
    for (int s = 1; s < STAGES; s++) {
        for (int r = 0; r < count; r++) {
            const float reach = (float)(s < STAGES - 1 ? step->length[r] / 2 : step->length[r]);
            const float a = reach * w->amplitude, o = reach * w->offset;
            const float *restrict y = stage[s - 1].y + r * d, *restrict start = x + r * d;
            float *restrict moved = stage[s].x + r * d;
#pragma omp simd
            for (long j = 0; j < d; j++) moved[j] = start[j] + o + a * y[j];
        }
        evaluate(count, w, state, stage + s);
    }
    if (!next) return;
    for (int r = 0; r < count; r++) {
        const float h = (float)step->length[r], a = (float)(step->length[r] / 6) * w->amplitude, o = h * w->offset;
        const float *y0 = stage[0].y + r * d, *y1 = stage[1].y + r * d, *y2 = stage[2].y + r * d, *y3 = stage[3].y + r * d;
        const float *start = x + r * d;
        float *end = next + r * d;
#pragma omp simd
        for (long j = 0; j < d; j++) end[j] = start[j] + o + a * (y0[j] + 2 * (y1[j] + y2[j]) + y3[j]);
    }
}

/* A group's working memory; arrays are [count, d], those of the stages [STAGES, count, d]. */
typedef struct {
    float *memory, *path, *x, *lambda, *g, *slope, *inner, *gz, *gx, *nodes, *slopes, *piece;
    Stage stage[STAGES];
} Work;

static int make_work(Work *work, const Sweep *w) {
    const long row = w->width, all = GROUP * row, terms = 2 * (w->per_piece + 1);
    float *m = work->memory = malloc(((6 * STAGES + w->substeps + 4 + 2 * w->nodes) * all + terms * row) * sizeof(float));
    if (!m) return 1;
    float *x = m, *n = m + STAGES * all, *y = m + 2 * STAGES * all;
    m += 3 * STAGES * all;
    for (int s = 0; s < STAGES; s++) work->stage[s].x = x, work->stage[s].n = n, work->stage[s].y = y;
    work->inner = m, m += STAGES * all;
    work->gz = m, m += STAGES * all;
    work->gx = m, m += STAGES * all;
    work->path = m, m += w->substeps * all;
    work->x = m, m += all;
    work->lambda = m, m += all;
    work->g = m, m += all;
    work->slope = m, m += all;
    work->nodes = m, m += w->nodes * all;
    work->slopes = m, m += w->nodes * all;
    work->piece = m;
    return 0;
}

/* Stages of a group of this size follow each other without gaps. */
INLINE void place_stages(const int count, long d, Work *work) {
    for (int s = 1; s < STAGES; s++) {
        work->stage[s].x = work->stage[0].x + s * count * d;
        work->stage[s].n = work->stage[0].n + s * count * d;
        work->stage[s].y = work->stage[0].y + s * count * d;
    }
}

/* From `from` to `to` in substeps; path, where given, keeps the states before each of them. */
INLINE void cross(
    const int count, const Sweep *w, long state, const double *from, const double *to, float *x, Work *work, float *path
) {
    const long d = WIDTH(w);
    Step step;
    for (int r = 0; r < count; r++) step.length[r] = (to[r] - from[r]) / w->substeps;
    for (long s = 0; s < w->substeps; s++) {
        if (path) memcpy(path + s * count * d, x, count * d * sizeof(float));
        for (int r = 0; r < count; r++) step.from[r] = from[r] + s * step.length[r];
        stages(count, w, state, &step, x, work->stage, x);
    }
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

/* The way of one trajectory: from its observation to the nodes after it one by one, then to those before it. */
typedef struct {
    long row, b, first, stop, crossings;
    double time;
} Way;

/* Items are counted observation by observation of a sequence, so that a group goes nearly the same way. */
INLINE Way way_of(const Sweep *w, long item) {
    const long b = item / w->obs % w->batch, obs = item % w->obs, state = item / (w->obs * w->batch);
    Way way = {.row = (state * w->obs + obs) * w->batch + b, .b = b, .time = w->times[obs * w->batch + b]};
    way.first = first_node(w, way.b, way.time);
    way.stop = backward_end(w, way.first);
    way.crossings = w->nodes - way.stop;
    return way;
}

/* Crossing number i: the node it leads to, the node it comes from (-1: the observation), and its times. */
INLINE long crossing(const Sweep *w, const Way *way, long i, long *before, double *from, double *to) {
    const long ahead = w->nodes - way->first, back = i >= ahead;
    const long node = back ? way->first - 1 - (i - ahead) : way->first + i;
    *before = i == 0 || i == ahead ? -1 : back ? node + 1 : node - 1;
    *from = *before < 0 ? way->time : w->grid[*before * w->batch + way->b];
    *to = w->grid[node * w->batch + way->b];
    return node;
}

/* Whether a step begins at this node: its first stage is then the slope there, which needs no evaluation of its own. */
INLINE int begins_step(const Sweep *w, const Way *way, long node) {
    return w->substeps == 1 && (node >= way->first ? node < w->nodes - 1 : node > way->stop);
}

/* out [rows, d] = factors [rows, inner] in [inner, d], or added to it; factors are `step` apart within a row */
INLINE void combine(
    const int adding, long rows, long inner, long d, const float *factors, long row, long step, const float *in, float *out
) {
    for (long i = 0; i < rows; i++, factors += row, out += d) {
        long j = 0;
        for (; j + 4 * LANES <= d; j += 4 * LANES) {
            Lanes sum[4] = {{0}};
            if (adding) UNROLL for (int v = 0; v < 4; v++) sum[v] = AT(out, j + v * LANES);
            for (long k = 0; k < inner; k++)
                UNROLL for (int v = 0; v < 4; v++) sum[v] += factors[k * step] * AT(in + k * d, j + v * LANES);
            UNROLL for (int v = 0; v < 4; v++) PUT(out, j + v * LANES) = sum[v];
        }
        for (; j < d; j += LANES) {
            Lanes sum = {0};
            if (adding) sum = AT(out, j);
            for (long k = 0; k < inner; k++) sum += factors[k * step] * AT(in + k * d, j);
            PUT(out, j) = sum;
        }
    }
}

/* series = basis (values, slopes) on every piece, head by head; sums of squares on the way */
INLINE void write_series(const Sweep *w, long r, const float *values, const float *slopes, float *sum) {
    const long d = WIDTH(w), dk = d / w->heads, n = w->per_piece + 1, terms = 2 * n;
    const long pieces = (w->nodes - 1) / w->per_piece, rows = w->states * w->obs * w->batch;
    const long b = r % w->batch, obs = r / w->batch % w->obs, state = r / (w->obs * w->batch);
    float *series = w->series[state];
    for (long p = 0; p < pieces; p++) {
        combine(0, terms, n, d, w->basis, terms, 1, values + p * w->per_piece * d, sum);
        if (w->half[b * pieces + p] > 0) combine(1, terms, n, d, w->basis + n, terms, 1, slopes + p * w->per_piece * d, sum);
        const float *end = sum + (terms - 2) * d;
        float all = 0, last = 0;
#pragma omp simd reduction(+ : all)
        for (long j = 0; j < terms * d; j++) all += sum[j] * sum[j];
#pragma omp simd reduction(+ : last)
        for (long j = 0; j < d; j++) last += (fabsf(end[j]) + fabsf(end[d + j])) * (fabsf(end[j]) + fabsf(end[d + j]));
        for (long h = 0; h < w->heads; h++) {
            float *to = series + place(w, b, h, obs) + p * terms * dk;
            for (long m = 0; m < terms; m++) memcpy(to + m * dk, sum + m * d + h * dk, dk * sizeof(float));
        }
        w->squares[r * pieces + p] = last;
        w->squares[(rows + r) * pieces + p] = all;
    }
}

/* Its adjoint: gradients of values and slopes from that of the series. */
INLINE void read_gradient(const Sweep *w, long r, float *g_values, float *g_slopes, float *g) {
    const long d = WIDTH(w), dk = d / w->heads, n = w->per_piece + 1, terms = 2 * n;
    const long pieces = (w->nodes - 1) / w->per_piece;
    const long b = r % w->batch, obs = r / w->batch % w->obs, state = r / (w->obs * w->batch);
    const float *g_series = w->g_series[state];
    memset(g_values, 0, w->nodes * d * sizeof(float));
    memset(g_slopes, 0, w->nodes * d * sizeof(float));
    for (long p = 0; p < pieces; p++) {
        for (long h = 0; h < w->heads; h++) {
            const float *from = g_series + place(w, b, h, obs) + p * terms * dk;
            for (long m = 0; m < terms; m++) memcpy(g + m * d + h * dk, from + m * dk, dk * sizeof(float));
        }
        combine(1, n, terms, d, w->basis, 1, terms, g, g_values + p * w->per_piece * d);
        if (w->half[b * pieces + p] > 0) combine(1, n, terms, d, w->basis + n, 1, terms, g, g_slopes + p * w->per_piece * d);
    }
}

/* The slope at a node, in the time of its piece, from the sigmoid there. */
INLINE void write_slope(const Sweep *w, const Way *way, long node, const float *restrict y, float *restrict slopes) {
    const long d = WIDTH(w), pieces = (w->nodes - 1) / w->per_piece;
    const float stretch = (float)w->half[way->b * pieces], a = stretch * w->amplitude, o = stretch * w->offset;
#pragma omp simd
    for (long j = 0; j < d; j++) slopes[node * d + j] = o + a * y[j];
}

/* The field at work->x and these times, as the first stage. */
INLINE void evaluate_at(const int count, const Sweep *w, long state, const double *times, Work *work) {
    for (int r = 0; r < count; r++) work->stage->time[r] = (float)times[r];
    memcpy(work->stage->x, work->x, count * WIDTH(w) * sizeof(float));
    evaluate(count, w, state, work->stage);
}

INLINE long item_at(const Sweep *w, long number) {
    return w->items ? w->items[number] : number;
}

/* Trajectories of `count` items of one state from `begin` on, and their series. */
INLINE void forward_group(const int count, const Sweep *w, long begin, Work *work) {
    const long d = WIDTH(w), state = begin / w->each;
    Way way[GROUP];
    long crossings = 0;
    place_stages(count, d, work);
    for (int r = 0; r < count; r++) {
        way[r] = way_of(w, item_at(w, begin + r));
        crossings = way[r].crossings > crossings ? way[r].crossings : crossings;
    }
    float *values[GROUP];
    for (int r = 0; r < count; r++) values[r] = w->values + way[r].row * w->nodes * d;
    for (long i = 0; i < crossings; i++) {
        double from[GROUP], to[GROUP];
        long node[GROUP], before[GROUP];
        int moving = 0;
        for (int r = 0; r < count; r++) {
            node[r] = before[r] = -1, from[r] = to[r] = way[r].time;
            if (i >= way[r].crossings) continue;
            node[r] = crossing(w, way + r, i, before + r, from + r, to + r);
            if (before[r] < 0) memcpy(work->x + r * d, w->initial + way[r].row * d, d * sizeof(float));
            moving |= from[r] != to[r];
        }
        if (moving)
            cross(count, w, state, from, to, work->x, work, NULL);
        else if (w->substeps == 1)
            evaluate_at(count, w, state, from, work);
        for (int r = 0; r < count; r++) {
            if (node[r] >= 0) memcpy(values[r] + node[r] * d, work->x + r * d, d * sizeof(float));
            if (before[r] >= 0 && w->substeps == 1)
                write_slope(w, way + r, before[r], work->stage->y + r * d, work->slopes + r * w->nodes * d);
        }
    }
    for (int r = 0; r < count; r++)
        for (long g = 0; g < way[r].stop; g++) memcpy(values[r] + g * d, values[r] + way[r].stop * d, d * sizeof(float));
    for (long g = 0; g < w->nodes; g++) {
        double at[GROUP];
        int known = 1;
        for (int r = 0; r < count; r++) {
            known &= begins_step(w, way + r, g);
            at[r] = w->grid[g * w->batch + way[r].b];
            memcpy(work->x + r * d, values[r] + g * d, d * sizeof(float));
        }
        if (known) continue;
        evaluate_at(count, w, state, at, work);
        for (int r = 0; r < count; r++)
            write_slope(w, way + r, g, work->stage->y + r * d, work->slopes + r * w->nodes * d);
    }
    for (int r = 0; r < count; r++)
        write_series(w, way[r].row, values[r], work->slopes + r * w->nodes * d, work->piece);
}

/* The adjoint of evaluate_at(), given work->g with respect to the field; work->gx is left. */
INLINE void unevaluate_at(const int count, const Sweep *w, long state, const double *times, Work *work) {
    evaluate_at(count, w, state, times, work);
    pull_back(count, w, state, work->stage, work->g, work->inner, work->gz, work->gx);
    add_parameters(count, w, state, work->stage, work->inner, work->gz, 1);
}

/* The adjoint of cross(): lambda with respect to the end becomes lambda with respect to the beginning; slope is the
   gradient of the field there. */
INLINE void uncross(
    const int count, const Sweep *w, long state, const double *from, const double *to, const float *slope, Work *work
) {
    const long d = WIDTH(w), size = count * d;
    const float *start = work->x;
    if (w->substeps > 1) {
        cross(count, w, state, from, to, work->x, work, work->path);
        start = work->path;
    }
    Step step;
    for (int r = 0; r < count; r++) step.length[r] = (to[r] - from[r]) / w->substeps;
    for (long s = w->substeps - 1; s >= 0; s--) {
        for (int r = 0; r < count; r++) step.from[r] = from[r] + s * step.length[r];
        stages(count, w, state, &step, start + s * size, work->stage, NULL);
        for (int i = STAGES - 1; i >= 0; i--) {
            for (int r = 0; r < count; r++) {
                const double h = step.length[r];
                const float c = (float)(i == 0 || i == STAGES - 1 ? h / 6 : h / 3);
                const float k = (float)(i == STAGES - 2 ? h : h / 2);
                const float *restrict lambda = work->lambda + r * d, *restrict later = work->gx + (i + 1) * size + r * d;
                float *restrict g = work->g + r * d;
                if (i == STAGES - 1) {
#pragma omp simd
                    for (long j = 0; j < d; j++) g[j] = c * lambda[j];
                } else {
#pragma omp simd
                    for (long j = 0; j < d; j++) g[j] = c * lambda[j] + k * later[j];
                }
                if (i == 0 && s == 0) {
#pragma omp simd
                    for (long j = 0; j < d; j++) g[j] += slope[r * d + j];
                }
            }
            float *inner = work->inner + i * size, *gz = work->gz + i * size;
            pull_back(count, w, state, work->stage + i, work->g, inner, gz, work->gx + i * size);
        }
        add_parameters(count, w, state, work->stage, work->inner, work->gz, STAGES);
        float *restrict lambda = work->lambda;
        const float *restrict gx = work->gx;
#pragma omp simd
        for (long j = 0; j < size; j++) lambda[j] += gx[j] + gx[size + j] + gx[2 * size + j] + gx[3 * size + j];
    }
}

/* The adjoint of write_slope(); node -1: none. */
INLINE void read_slope(const Sweep *w, const Way *way, long node, const float *restrict slopes, float *restrict g) {
    const long d = WIDTH(w), pieces = (w->nodes - 1) / w->per_piece;
    const float stretch = node < 0 ? 0 : (float)w->half[way->b * pieces];
    slopes += node < 0 ? 0 : node * d;
#pragma omp simd
    for (long j = 0; j < d; j++) g[j] = stretch * slopes[j];
}

/* The adjoint of forward_group(). */
INLINE void backward_group(const int count, const Sweep *w, long begin, Work *work) {
    const long d = WIDTH(w), state = begin / w->each;
    const float *values[GROUP], *initial[GROUP];
    Way way[GROUP];
    long crossings = 0;
    place_stages(count, d, work);
    for (int r = 0; r < count; r++) {
        way[r] = way_of(w, item_at(w, begin + r));
        crossings = way[r].crossings > crossings ? way[r].crossings : crossings;
        values[r] = w->values + way[r].row * w->nodes * d, initial[r] = w->initial + way[r].row * d;
        memset(w->g_initial + way[r].row * d, 0, d * sizeof(float));
        read_gradient(w, way[r].row, work->nodes + r * w->nodes * d, work->slopes + r * w->nodes * d, work->piece);
    }
    for (long g = 0; g < w->nodes; g++) {
        double at[GROUP];
        int later = 1;
        for (int r = 0; r < count; r++) {
            later &= begins_step(w, way + r, g);
            at[r] = w->grid[g * w->batch + way[r].b];
            memcpy(work->x + r * d, values[r] + g * d, d * sizeof(float));
            read_slope(w, way + r, begins_step(w, way + r, g) ? -1 : g, work->slopes + r * w->nodes * d, work->g + r * d);
        }
        if (later) continue;
        unevaluate_at(count, w, state, at, work);
        for (int r = 0; r < count; r++) {
            float *restrict node = work->nodes + (r * w->nodes + g) * d;
            const float *restrict gx = work->gx + r * d;
#pragma omp simd
            for (long j = 0; j < d; j++) node[j] += gx[j];
        }
    }
    memset(work->lambda, 0, count * d * sizeof(float));
    /* each half of a way from its far end to the observation; what no crossing reaches is carried by the farthest node */
    for (long i = 0; i < crossings; i++) {
        double from[GROUP], to[GROUP];
        int own[GROUP], moving = 0;
        for (int r = 0; r < count; r++) {
            own[r] = 0, from[r] = to[r] = way[r].time;
            memset(work->slope + r * d, 0, d * sizeof(float));
            if (i >= way[r].crossings) continue;
            const long ahead = w->nodes - way[r].first;
            long before;
            const long node = crossing(w, way + r, i < ahead ? ahead - 1 - i : way[r].crossings - 1 - (i - ahead), &before,
                                       from + r, to + r);
            own[r] = before < 0;
            float *restrict lambda = work->lambda + r * d;
            const float *restrict nodes = work->nodes + r * w->nodes * d;
            for (long g = i >= ahead && node == way[r].stop ? 0 : node; g <= node; g++)
#pragma omp simd
                for (long j = 0; j < d; j++) lambda[j] += nodes[g * d + j];
            memcpy(work->x + r * d, own[r] ? initial[r] : values[r] + before * d, d * sizeof(float));
            if (w->substeps == 1) read_slope(w, way + r, before, work->slopes + r * w->nodes * d, work->slope + r * d);
            moving |= from[r] != to[r];
        }
        if (moving) {
            uncross(count, w, state, from, to, work->slope, work);
        } else if (w->substeps == 1) {
            memcpy(work->g, work->slope, count * d * sizeof(float));
            unevaluate_at(count, w, state, from, work);
            for (long j = 0; j < count * d; j++) work->lambda[j] += work->gx[j];
        }
        for (int r = 0; r < count; r++) {
            if (!own[r]) continue;
            float *restrict g_initial = w->g_initial + way[r].row * d, *restrict lambda = work->lambda + r * d;
#pragma omp simd
            for (long j = 0; j < d; j++) g_initial[j] += lambda[j], lambda[j] = 0;
        }
    }
}

/* Groups as long as items of the same state last, then one by one. */
#define IN_GROUPS(what)                                                            \
    Work work;                                                                     \
    if (make_work(&work, w)) return 1;                                             \
    for (long r = begin; r < end;) {                                               \
        const long next = (r / w->each + 1) * w->each, stop = next < end ? next : end;   \
        for (; r + GROUP <= stop; r += GROUP) what(GROUP, w, r, &work);            \
        for (; r < stop; r++) what(1, w, r, &work);                                \
    }                                                                              \
    free(work.memory);                                                             \
    return 0;

DISPATCH int sweep_forward(const Sweep *w, long begin, long end) {
    IN_GROUPS(forward_group)
}

DISPATCH int sweep_backward(const Sweep *w, long begin, long end) {
    IN_GROUPS(backward_group)
}
