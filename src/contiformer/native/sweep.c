/* The two Runge-Kutta sweeps of the paper's field, a few trajectories at a time, in float32.

   contiformer/paths/trajectories.py is its reference and takes over where no compiler was at hand. The work of a group of trajectories fits into the nearest caches. A trajectory that has arrived before the others of
   its group takes steps of length 0, which change nothing.
   The calls release Python's lock and touch only their own rows, so the caller may run several at once. */

#include <stdint.h>

#include "field.h"

typedef struct {
    /* Sizes; a piece has per_piece steps between nodes, and twice its nodes as terms. The states are keys and values, each with a
       field of its own, which works on `part` of the width at a time. */
    long states, batch, obs, width, part, heads, nodes, substeps, per_piece;
    int causal;
    /* the items to be solved, each a trajectory (state, sequence, observation), in order; NULL: all of them. The others are
       not written. */
    const int64_t *items;
    /* constants of the field */
    float floor, amplitude, offset;
    /* inputs: times [batch, obs], grid [batch, nodes], half lengths of the pieces [batch, pieces];
       initial [states, batch, obs, width]; basis [terms, terms] from values and slopes at a piece's nodes to its series */
    const double *times, *grid, *half;
    const float *initial, *basis;
    /* matrix [states, parts, part, part], its transposes, and slope, bias, gain, shift [states, width] */
    const float *matrix, *transposed, *slope, *bias, *gain, *shift;
    /* values at the nodes [states, batch, obs, nodes, width], kept for the backward pass */
    float *values;
    /* of keys and of values: series [batch, heads, obs, pieces, terms, width / heads], and their gradients */
    float *key_series, *value_series;
    const float *g_key_series, *g_value_series;
    /* sums of squares [3, states, batch, obs, pieces]: of the last two coefficients together, of all, and of the initial value;
       zero where a causal model does not look */
    float *squares;
    /* backward pass: gradients of initial and, for this call alone, of the parameters */
    float *g_initial, *g_matrix, *g_slope, *g_bias, *g_gain, *g_shift;
} Sweep;

/* The field of one of the states. */
INLINE Field field_of(const Sweep *w, long state) {
    const long d = w->width, at = state * d;
    Field f = {.width = d, .part = w->part, .floor = w->floor, .amplitude = w->amplitude, .offset = w->offset};
    f.matrix = w->matrix + at * w->part, f.slope = w->slope + at, f.bias = w->bias + at;
    if (w->gain) f.gain = w->gain + at, f.shift = w->shift + at;
    if (!w->g_matrix) return f;
    f.transposed = w->transposed + at * w->part;
    f.g_matrix = w->g_matrix + at * w->part, f.g_slope = w->g_slope + at, f.g_bias = w->g_bias + at;
    if (w->g_gain) f.g_gain = w->g_gain + at, f.g_shift = w->g_shift + at;
    return f;
}

/* A group's working memory beside that of its walk: gradients of the first slope [count, d]; of each trajectory the values
   and slopes at the nodes, and one piece of the series. */
typedef struct {
    float *memory, *slope, *nodes, *slopes, *piece;
    Walk walk;
} Work;

static int make_work(Work *work, const Sweep *w) {
    const long all = GROUP * w->width, terms = 2 * (w->per_piece + 1), walk = walk_size(w->width, w->substeps);
    float *m = work->memory = malloc((walk + (1 + 2 * w->nodes) * all + (terms + terms / 2) * w->width) * sizeof(float));
    if (!m) return 1;
    place_walk(&work->walk, m, w->width, w->substeps), m += walk;
    work->slope = m, m += all;
    work->nodes = m, m += w->nodes * all;
    work->slopes = m, m += w->nodes * all;
    work->piece = m;
    return 0;
}

/* Nodes before this one are not reached by the backward sweep of an observation whose first later node is `first`. */
INLINE long backward_end(const Sweep *w, long first) {
    return w->causal && first > 0 ? (first - 1) / w->per_piece * w->per_piece : 0;
}

INLINE double node_time(const Sweep *w, long b, long node) {
    return w->grid[b * w->nodes + node];
}

INLINE long first_node(const Sweep *w, long b, double time) {
    long first = 0;
    while (first < w->nodes && node_time(w, b, first) < time) first++;
    return first;
}

/* Where the series of head h of a trajectory begins, among those of the keys or of the values. */
INLINE long place(const Sweep *w, long row, long h) {
    const long pieces = (w->nodes - 1) / w->per_piece, terms = 2 * (w->per_piece + 1);
    const long obs = row % w->obs, b = row / w->obs % w->batch;
    return ((b * w->heads + h) * w->obs + obs) * pieces * terms * (w->width / w->heads);
}

INLINE int of_values(const Sweep *w, long row) {
    return row >= w->obs * w->batch;
}

/* The way of one trajectory: from its observation to the nodes after it one by one, then to those before it. */
typedef struct {
    long row, b, first, stop, crossings;
    double time;
} Way;

INLINE Way way_of(const Sweep *w, long row) {
    Way way = {.row = row, .b = row / w->obs % w->batch, .time = w->times[row % (w->batch * w->obs)]};
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
    *from = *before < 0 ? way->time : node_time(w, way->b, *before);
    *to = node_time(w, way->b, node);
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
INLINE void write_series(const Sweep *w, const Way *way, const float *values, const float *slopes, float *sum) {
    const long d = WIDTH(w), dk = d / w->heads, n = w->per_piece + 1, terms = 2 * n, row = way->row;
    const long pieces = (w->nodes - 1) / w->per_piece, rows = w->states * w->obs * w->batch;
    float *series = of_values(w, row) ? w->value_series : w->key_series, start = 0;
#pragma omp simd reduction(+ : start)
    for (long j = 0; j < d; j++) start += w->initial[row * d + j] * w->initial[row * d + j];
    for (long p = 0; p < pieces; p++) {
        /* slopes are in time, the series in the variable of the piece */
        const float half = (float)w->half[way->b * pieces + p], *from = slopes + p * w->per_piece * d;
        float *scaled = sum + terms * d;
#pragma omp simd
        for (long j = 0; j < n * d; j++) scaled[j] = half * from[j];
        combine(0, terms, n, d, w->basis, terms, 1, values + p * w->per_piece * d, sum);
        combine(1, terms, n, d, w->basis + n, terms, 1, scaled, sum);
        const float *end = sum + (terms - 2) * d;
        float all = 0, last = 0;
#pragma omp simd reduction(+ : all)
        for (long j = 0; j < terms * d; j++) all += sum[j] * sum[j];
#pragma omp simd reduction(+ : last)
        for (long j = 0; j < d; j++) last += (fabsf(end[j]) + fabsf(end[d + j])) * (fabsf(end[j]) + fabsf(end[d + j]));
        for (long h = 0; h < w->heads; h++) {
            float *to = series + place(w, row, h) + p * terms * dk;
            for (long m = 0; m < terms; m++) memcpy(to + m * dk, sum + m * d + h * dk, dk * sizeof(float));
        }
        const float seen = (p + 1) * w->per_piece > way->stop, squares[] = {last, all, start};
        for (int k = 0; k < 3; k++) w->squares[(k * rows + row) * pieces + p] = seen ? squares[k] : 0;
    }
}

/* Its adjoint: gradients of values and slopes from that of the series. */
INLINE void read_gradient(const Sweep *w, const Way *way, float *g_values, float *g_slopes, float *g) {
    const long d = WIDTH(w), dk = d / w->heads, n = w->per_piece + 1, terms = 2 * n;
    const long pieces = (w->nodes - 1) / w->per_piece;
    const float *g_series = of_values(w, way->row) ? w->g_value_series : w->g_key_series;
    memset(g_values, 0, w->nodes * d * sizeof(float));
    memset(g_slopes, 0, w->nodes * d * sizeof(float));
    for (long p = 0; p < pieces; p++) {
        for (long h = 0; h < w->heads; h++) {
            const float *from = g_series + place(w, way->row, h) + p * terms * dk;
            for (long m = 0; m < terms; m++) memcpy(g + m * d + h * dk, from + m * dk, dk * sizeof(float));
        }
        const float half = (float)w->half[way->b * pieces + p];
        float *scaled = g + terms * d, *to = g_slopes + p * w->per_piece * d;
        combine(1, n, terms, d, w->basis, 1, terms, g, g_values + p * w->per_piece * d);
        combine(0, n, terms, d, w->basis + n, 1, terms, g, scaled);
#pragma omp simd
        for (long j = 0; j < n * d; j++) to[j] += half * scaled[j];
    }
}

/* The slope at a node from the sigmoid there. */
INLINE void write_slope(const Sweep *w, long node, const float *restrict y, float *restrict slopes) {
    const long d = WIDTH(w);
#pragma omp simd
    for (long j = 0; j < d; j++) slopes[node * d + j] = w->offset + w->amplitude * y[j];
}

INLINE long item_at(const Sweep *w, long number) {
    return w->items ? w->items[number] : number;
}

/* Trajectories of `count` items of one state from `begin` on, and their series. */
INLINE void forward_group(const int count, const Sweep *w, const Field *f, long begin, Work *work) {
    const long d = WIDTH(w);
    Walk *walk = &work->walk;
    Way way[GROUP];
    long crossings = 0;
    place_stages(count, d, walk);
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
            if (before[r] < 0) memcpy(walk->x + r * d, w->initial + way[r].row * d, d * sizeof(float));
            moving |= from[r] != to[r];
        }
        if (moving)
            cross(count, f, w->substeps, from, to, walk->x, walk, NULL);
        else if (w->substeps == 1)
            evaluate_at(count, f, from, walk);
        for (int r = 0; r < count; r++) {
            if (node[r] >= 0) memcpy(values[r] + node[r] * d, walk->x + r * d, d * sizeof(float));
            if (before[r] >= 0 && w->substeps == 1)
                write_slope(w, before[r], walk->stage->y + r * d, work->slopes + r * w->nodes * d);
        }
    }
    for (int r = 0; r < count; r++)
        for (long g = 0; g < way[r].stop; g++) memcpy(values[r] + g * d, values[r] + way[r].stop * d, d * sizeof(float));
    for (long g = 0; g < w->nodes; g++) {
        double at[GROUP];
        int known = 1;
        for (int r = 0; r < count; r++) {
            known &= begins_step(w, way + r, g);
            at[r] = node_time(w, way[r].b, g);
            memcpy(walk->x + r * d, values[r] + g * d, d * sizeof(float));
        }
        if (known) continue;
        evaluate_at(count, f, at, walk);
        for (int r = 0; r < count; r++)
            write_slope(w, g, walk->stage->y + r * d, work->slopes + r * w->nodes * d);
    }
    for (int r = 0; r < count; r++)
        write_series(w, way + r, values[r], work->slopes + r * w->nodes * d, work->piece);
}

/* The adjoint of write_slope() up to the amplitude; node -1: none. */
INLINE void read_slope(const Sweep *w, long node, const float *restrict slopes, float *restrict g) {
    const long d = WIDTH(w);
    if (node < 0)
        memset(g, 0, d * sizeof(float));
    else
        memcpy(g, slopes + node * d, d * sizeof(float));
}

/* The adjoint of forward_group(). */
INLINE void backward_group(const int count, const Sweep *w, const Field *f, long begin, Work *work) {
    const long d = WIDTH(w);
    Walk *walk = &work->walk;
    const float *values[GROUP], *initial[GROUP];
    Way way[GROUP];
    long crossings = 0;
    place_stages(count, d, walk);
    for (int r = 0; r < count; r++) {
        way[r] = way_of(w, item_at(w, begin + r));
        crossings = way[r].crossings > crossings ? way[r].crossings : crossings;
        values[r] = w->values + way[r].row * w->nodes * d, initial[r] = w->initial + way[r].row * d;
        memset(w->g_initial + way[r].row * d, 0, d * sizeof(float));
        read_gradient(w, way + r, work->nodes + r * w->nodes * d, work->slopes + r * w->nodes * d, work->piece);
    }
    for (long g = 0; g < w->nodes; g++) {
        double at[GROUP];
        int later = 1;
        for (int r = 0; r < count; r++) {
            later &= begins_step(w, way + r, g);
            at[r] = node_time(w, way[r].b, g);
            memcpy(walk->x + r * d, values[r] + g * d, d * sizeof(float));
            read_slope(w, begins_step(w, way + r, g) ? -1 : g, work->slopes + r * w->nodes * d, walk->g + r * d);
        }
        if (later) continue;
        unevaluate_at(count, f, at, walk);
        for (int r = 0; r < count; r++) {
            float *restrict node = work->nodes + (r * w->nodes + g) * d;
            const float *restrict gx = walk->gx + r * d;
#pragma omp simd
            for (long j = 0; j < d; j++) node[j] += gx[j];
        }
    }
    memset(walk->lambda, 0, count * d * sizeof(float));
    /* each half of a way from its far end to the observation; what no crossing reaches is carried by the farthest node
       (!=, since a compiler warns of a loop that might not end where the body subtracts from i) */
    for (long i = 0; i != crossings; i++) {
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
            float *restrict lambda = walk->lambda + r * d;
            const float *restrict nodes = work->nodes + r * w->nodes * d;
            for (long g = i >= ahead && node == way[r].stop ? 0 : node; g <= node; g++)
#pragma omp simd
                for (long j = 0; j < d; j++) lambda[j] += nodes[g * d + j];
            memcpy(walk->x + r * d, own[r] ? initial[r] : values[r] + before * d, d * sizeof(float));
            if (w->substeps == 1) read_slope(w, before, work->slopes + r * w->nodes * d, work->slope + r * d);
            moving |= from[r] != to[r];
        }
        if (moving) {
            uncross(count, f, w->substeps, from, to, work->slope, walk);
        } else if (w->substeps == 1) {
            memcpy(walk->g, work->slope, count * d * sizeof(float));
            unevaluate_at(count, f, from, walk);
            for (long j = 0; j < count * d; j++) walk->lambda[j] += walk->gx[j];
        }
        for (int r = 0; r < count; r++) {
            if (!own[r]) continue;
            float *restrict g_initial = w->g_initial + way[r].row * d, *restrict lambda = walk->lambda + r * d;
#pragma omp simd
            for (long j = 0; j < d; j++) g_initial[j] += lambda[j], lambda[j] = 0;
        }
    }
}

INLINE long state_of(const Sweep *w, long number) {
    return item_at(w, number) / (w->obs * w->batch);
}

/* Where the items of the state end of which this one is. */
INLINE long end_of_state(const Sweep *w, long number, long end) {
    long stop = number + 1;
    while (stop < end && state_of(w, stop) == state_of(w, number)) stop++;
    return stop;
}

/* In groups as long as items of the same state last, then one by one. */
DISPATCH int sweep_forward(const Sweep *w, long begin, long end) {
    Work work;
    if (make_work(&work, w)) return 1;
    for (long n = begin; n < end;) {
        const Field f = field_of(w, state_of(w, n));
        const long stop = end_of_state(w, n, end);
        for (; n + GROUP <= stop; n += GROUP) forward_group(GROUP, w, &f, n, &work);
        for (; n < stop; n++) forward_group(1, w, &f, n, &work);
    }
    free(work.memory);
    return 0;
}

DISPATCH int sweep_backward(const Sweep *w, long begin, long end) {
    Work work;
    Sums sums;
    if (make_work(&work, w)) return 1;
    if (make_sums(&sums, w->width, w->part)) {
        free(work.memory);
        return 1;
    }
    for (long n = begin; n < end;) {
        const Field whole = field_of(w, state_of(w, n)), f = summed_in(&sums, whole);
        const long stop = end_of_state(w, n, end);
        for (; n + GROUP <= stop; n += GROUP) backward_group(GROUP, w, &f, n, &work), end_group(&sums);
        for (; n < stop; n++) backward_group(1, w, &f, n, &work), end_group(&sums);
        hand_over(&sums, &whole);
    }
    free(sums.all);
    free(work.memory);
    return 0;
}
