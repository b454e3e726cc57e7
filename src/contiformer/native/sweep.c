/* Trajectories of the paper's field, forward and backward, a group of 16 at a time, in float32.

   contiformer/paths/trajectories.py is the listing of these formulas. The field is
       f(t, x) = amplitude * sigmoid(stretch (gain n + shift)) + offset,  n = z / sqrt(mean z^2 + eps),  z = x M + slope t + bias;
   where there is no norm, n = z, gain = 1 and shift = 0. Amplitude, offset and stretch are 2, -1 and 2 for tanh.

   The lanes of a vector are the trajectories of a group: a state is one vector for each channel, so no step of the solver adds up
   the lanes of a vector, and what a lane holds does not depend on the others. Every lane keeps its own times; where it has
   arrived before the others it takes steps of length 0, which change nothing. A lane without a trajectory repeats the last one, with
   a gradient of zero. */

#include <stdint.h>

#include "matmul.h"

#define GROUP (2 * LANES)
#define STAGES 4

typedef struct {
    /* Sizes; a piece has per_piece steps between nodes, and twice its nodes as terms. The states are keys and values, each with a
       field of its own, which works on `part` of the width at a time: a part does not see the others, nor does its norm. */
    long states, batch, obs, width, part, heads, nodes, substeps, per_piece;
    int causal;
    /* the items to be solved, each a trajectory (state, sequence, observation), in order; NULL: all of them. The others are
       not written. */
    const int64_t *items;
    /* constants of the field */
    float eps, amplitude, offset, stretch;
    /* times [batch, obs], edges of the pieces [batch, pieces + 1], nodes of a piece on [-1, 1] [per_piece + 1]; basis [terms, terms]
       from values and slopes at a piece's nodes to its series */
    const double *times, *edges, *node;
    const float *basis;
    /* states at the observations [batch, obs, width] */
    const float *key, *value;
    /* of each part of each state: matrix, slope and bias [part + 2, part]; gain and shift [2, states, width] or NULL */
    const float *affine, *norm;
    /* [states, batch, obs, nodes + 1, width], kept for the backward pass: at the nodes, and at the observation itself. NULL where
       there will be none. */
    float *values, *slopes;
    /* of keys and of values: series [batch, heads, obs, pieces, terms, width / heads], and their gradients */
    float *key_series, *value_series;
    const float *g_key_series, *g_value_series;
    /* sums of squares [3, states, batch, obs, pieces]: of the last two coefficients together, of all, and of the initial value;
       zero where a causal model does not look */
    float *squares;
    /* backward pass: gradients of the states and, for this call alone, of the parameters */
    float *g_key, *g_value, *g_affine, *g_norm;
} Sweep;

/* An evaluation of the field: its arguments, what its adjoint asks for (n by channel, lengths by part), and the result k. */
typedef struct {
    Pair time, *x, *n, *length, *k;
} Stage;

/* Working memory of a group. Arrays of vectors are by channel; `path` has state and slope before each substep. */
typedef struct {
    void *memory;
    Stage stage[STAGES];
    Pair *path, *lambda, *kappa, *g_initial, *g_first, *g, *gz, *gx, *sum;
    /* by lane: gz, and values and slopes at the nodes or, in the backward pass, their gradients; and one piece of a series */
    float *rows, *values, *slopes, *piece, *zeros;
    /* Gradients of the parameters: matrix, slope, bias, gain and shift, all but the first by lane. In float within a group, in
       double over the groups: one float for all would soon be too large to feel what is added. */
    long numbers;
    float *group;
    double *all;
} Work;

INLINE void *next_of(char **memory, long size) {
    char *begin = *memory;
    *memory += (size + 63) / 64 * 64;
    return begin;
}

static int make_work(Work *work, const Sweep *w) {
    const long d = w->width, vectors = d * (long)sizeof(Pair), nodes = (w->nodes + 1) * d * (long)sizeof(float);
    work->numbers = d * w->part + 4 * d * GROUP;
    const long size = (STAGES * 4 + 11 + 2 * w->substeps) * (vectors + 64) + 2 * GROUP * nodes + GROUP * d * sizeof(float) +
                      3 * (w->per_piece + 1) * d * sizeof(float) + nodes + work->numbers * (sizeof(float) + sizeof(double)) + 1024;
    char *m = work->memory = aligned_alloc(64, (size + 63) / 64 * 64);
    if (!m) return 1;
    for (int s = 0; s < STAGES; s++) {
        work->stage[s].x = next_of(&m, vectors), work->stage[s].n = next_of(&m, vectors);
        work->stage[s].k = next_of(&m, vectors), work->stage[s].length = next_of(&m, vectors);
    }
    Pair **const arrays[] = {&work->lambda, &work->kappa, &work->g_initial, &work->g_first, &work->g,
                             &work->gz, &work->gx, &work->sum};
    for (unsigned n = 0; n < sizeof(arrays) / sizeof(*arrays); n++) *arrays[n] = next_of(&m, vectors);
    work->path = next_of(&m, 2 * w->substeps * vectors);
    work->rows = next_of(&m, vectors), work->piece = next_of(&m, 3 * (w->per_piece + 1) * d * sizeof(float));
    work->values = next_of(&m, GROUP * nodes), work->slopes = next_of(&m, GROUP * nodes);
    work->zeros = memset(next_of(&m, d * sizeof(float)), 0, d * sizeof(float));
    work->group = memset(next_of(&m, work->numbers * sizeof(float)), 0, work->numbers * sizeof(float));
    work->all = memset(next_of(&m, work->numbers * sizeof(double)), 0, work->numbers * sizeof(double));
    return 0;
}

/* The field of one of the states. */
typedef struct {
    long width, part;
    float eps, amplitude, offset, stretch;
    const float *affine, *gain, *shift;
} Field;

INLINE Field field_of(const Sweep *w, long state) {
    const long d = w->width, parts = d / w->part;
    Field f = {d, w->part, w->eps, w->amplitude, w->offset, w->stretch, w->affine + state * parts * (w->part + 2) * w->part};
    if (w->norm) f.gain = w->norm + state * d, f.shift = f.gain + w->states * d;
    return f;
}

/* From rows, one for each lane, to vectors by channel. */
INLINE void gather(long d, const float *const *rows, Pair *to) {
    for (long j = 0; j < d; j += LANES)
        for (int half = 0; half < GROUP; half += LANES) {
            Lanes square[LANES];
            UNROLL for (int n = 0; n < LANES; n++) square[n] = AT(rows[half + n], j);
            transpose_square(square);
            UNROLL for (int n = 0; n < LANES; n++) PUT((float *)(to + j + n), half) = square[n];
        }
}

/* And back. */
INLINE void scatter(long d, const Pair *from, float *const *rows) {
    for (long j = 0; j < d; j += LANES)
        for (int half = 0; half < GROUP; half += LANES) {
            Lanes square[LANES];
            UNROLL for (int n = 0; n < LANES; n++) square[n] = AT((const float *)(from + j + n), half);
            transpose_square(square);
            UNROLL for (int n = 0; n < LANES; n++) PUT(rows[half + n], j) = square[n];
        }
}

INLINE void evaluate(const Field *f, Stage *at) {
    const long d = f->width, part = f->part;
    float *n = (float *)at->n, *k = (float *)at->k;
    const float *matrix = f->affine;
    for (long from = 0; from < d; from += part, matrix += (part + 2) * part) {
        const float *slope = matrix + part * part, *bias = slope + part, *x = (const float *)(at->x + from);
        float *z = n + from * GROUP;
        for (long j = 0; j < part; j++) at->n[from + j] = bias[j] + slope[j] * at->time;
        multiply(part, GROUP, part, (Matrix){matrix, 1, part}, x, GROUP, z, GROUP, z, GROUP);
    }
    for (long from = 0; from < d && f->gain; from += part) {
        Pair square = {0};
        for (long j = from; j < from + part; j++) square += at->n[j] * at->n[j];
        float *length = (float *)(at->length + from / part);
        *(Pair *)length = square / (float)part + f->eps;
#pragma omp simd
        for (int l = 0; l < GROUP; l++) length[l] = sqrtf(length[l]);
        const Pair inverse = 1.0f / *(Pair *)length;
        for (long j = from; j < from + part; j++) at->n[j] *= inverse;
    }
    const float amplitude = f->amplitude, offset = f->offset;
    for (long j = 0; j < d; j++) {
        const float gain = f->stretch * (f->gain ? f->gain[j] : 1.0f), shift = f->stretch * (f->gain ? f->shift[j] : 0.0f);
#pragma omp simd
        for (int l = 0; l < GROUP; l++) k[j * GROUP + l] = exp_begun(-(shift + gain * n[j * GROUP + l]));
    }
#pragma omp simd
    for (long n = 0; n < d * GROUP; n++) k[n] = offset + amplitude / (1.0f + exp_ended(k[n]));
}

/* The adjoint of evaluate(): work->gx from g, the gradient of k; the parameters' gradients are added to those of the group. */
INLINE void pull_back(const Field *f, const Stage *at, const Pair *g, Work *work) {
    const long d = f->width, part = f->part;
    const float top = f->amplitude + f->offset, steepness = f->stretch / f->amplitude;
    Pair *gz = work->gz, *g_slope = (Pair *)(work->group + d * part), *g_bias = g_slope + d, *g_gain = g_bias + d, *g_shift = g_gain + d;
    for (long j = 0; j < d; j++) {
        const Pair inner = g[j] * (at->k[j] - f->offset) * (top - at->k[j]) * steepness;
        g_shift[j] += inner, g_gain[j] += inner * at->n[j];
        gz[j] = f->gain ? inner * f->gain[j] : inner;
    }
    for (long from = 0; from < d && f->gain; from += part) {
        Pair along = {0};
        for (long j = from; j < from + part; j++) along += gz[j] * at->n[j];
        const Pair inverse = 1.0f / at->length[from / part];
        along /= (float)part;
        for (long j = from; j < from + part; j++) gz[j] = (gz[j] - along * at->n[j]) * inverse;
    }
    for (long j = 0; j < d; j++) g_bias[j] += gz[j], g_slope[j] += at->time * gz[j];
    float *rows[GROUP];
    for (int l = 0; l < GROUP; l++) rows[l] = work->rows + l * d;
    scatter(d, gz, rows);
    const float *matrix = f->affine;
    for (long j = 0; j < d; j += part, matrix += (part + 2) * part) {
        const float *z = (const float *)(gz + j);
        float *sum = work->group + j * part;
        multiply(part, GROUP, part, (Matrix){matrix, part, 1}, z, GROUP, NULL, 0, (float *)(work->gx + j), GROUP);
        multiply(part, part, GROUP, (Matrix){(float *)(at->x + j), GROUP, 1}, work->rows + j, d, sum, part, sum, part);
    }
}


/* The way of one trajectory: from its observation to the nodes after it one by one, then to those before it. A causal model does
   not go back beyond the observation's own piece. */
typedef struct {
    long row, b, first, stop, crossings;
    double time;
} Way;

INLINE long pieces_of(const Sweep *w) {
    return (w->nodes - 1) / w->per_piece;
}

INLINE double half_length(const Sweep *w, long b, long piece) {
    const double *edges = w->edges + b * (pieces_of(w) + 1) + piece;
    return (edges[1] - edges[0]) / 2;
}

INLINE double node_time(const Sweep *w, long b, long node) {
    const long piece = node / w->per_piece, inside = node % w->per_piece;
    const double edge = w->edges[b * (pieces_of(w) + 1) + piece];
    return inside ? edge + (w->node[inside] + 1) * half_length(w, b, piece) : edge;
}

INLINE Way way_of(const Sweep *w, long row) {
    Way way = {.row = row, .b = row / w->obs % w->batch, .time = w->times[row % (w->batch * w->obs)]};
    while (way.first < w->nodes && node_time(w, way.b, way.first) < way.time) way.first++;
    way.stop = w->causal && way.first > 0 ? (way.first - 1) / w->per_piece * w->per_piece : 0;
    way.crossings = w->nodes - way.stop;
    return way;
}

/* Crossing number i of a group, -1 for none: by lane the node it leads to and the one it comes from, w->nodes for the observation itself, and
   the time and length of its substeps. Whether any lane moves, and whether any begins again at its observation or rests. */
typedef struct {
    long node[GROUP], before[GROUP];
    double from[GROUP], length[GROUP];
    int moving, again;
} Crossing;

INLINE Crossing crossing(const Sweep *w, const Way *way, long i) {
    Crossing c = {.moving = 0, .again = 0};
    for (int l = 0; l < GROUP; l++) {
        const long ahead = w->nodes - way[l].first, back = i >= ahead;
        c.node[l] = c.before[l] = w->nodes, c.from[l] = way[l].time, c.length[l] = 0;
        c.again |= i <= 0 || i == ahead || i >= way[l].crossings;
        if (i < 0 || i >= way[l].crossings) continue;
        c.node[l] = back ? way[l].first - 1 - (i - ahead) : way[l].first + i;
        if (i != 0 && i != ahead) c.before[l] = back ? c.node[l] + 1 : c.node[l] - 1, c.from[l] = node_time(w, way[l].b, c.before[l]);
        c.length[l] = (node_time(w, way[l].b, c.node[l]) - c.from[l]) / w->substeps;
        c.moving |= c.length[l] != 0;
    }
    return c;
}

/* The ways of the items from `begin` on; the last of `count` for the lanes behind them. Returns the most crossings. */
INLINE long find_ways(const Sweep *w, long begin, long count, Way *way) {
    long most = 0;
    for (long l = 0; l < GROUP; l++) {
        const long number = begin + (l < count ? l : count - 1);
        way[l] = way_of(w, w->items ? w->items[number] : number);
        most = way[l].crossings > most ? way[l].crossings : most;
    }
    return most;
}

/* Substep s of a crossing by Runge-Kutta's method, from x with slope k there. The last stage is the end of the step. */
INLINE void take_step(const Field *f, const Crossing *c, long s, const Pair *x, const Pair *k, Stage *stage) {
    const long d = f->width;
    Pair half, whole, sixth;
    for (int l = 0; l < GROUP; l++) {
        const double length = c->length[l], from = c->from[l] + s * length;
        half[l] = (float)(length / 2), whole[l] = (float)length, sixth[l] = (float)(length / 6);
        stage[0].time[l] = stage[1].time[l] = (float)(from + length / 2);
        stage[2].time[l] = stage[3].time[l] = (float)(from + length);
    }
    for (long j = 0; j < d; j++) stage[0].x[j] = x[j] + half * k[j];
    evaluate(f, stage);
    for (long j = 0; j < d; j++) stage[1].x[j] = x[j] + half * stage[0].k[j];
    evaluate(f, stage + 1);
    for (long j = 0; j < d; j++) stage[2].x[j] = x[j] + whole * stage[1].k[j];
    evaluate(f, stage + 2);
    for (long j = 0; j < d; j++)
        stage[3].x[j] = x[j] + sixth * (k[j] + 2 * (stage[0].k[j] + stage[1].k[j]) + stage[2].k[j]);
    evaluate(f, stage + 3);
}

/* Its adjoint: lambda and kappa, the gradients of state and slope, from the end of the step to its beginning. */
INLINE void return_step(const Field *f, const Crossing *c, Work *work) {
    const long d = f->width;
    Pair *lambda = work->lambda, *kappa = work->kappa, *g = work->g, *gx = work->gx, half, third, sixth, whole;
    for (int l = 0; l < GROUP; l++) {
        half[l] = (float)(c->length[l] / 2), whole[l] = (float)c->length[l];
        third[l] = (float)(c->length[l] / 3), sixth[l] = (float)(c->length[l] / 6);
    }
    pull_back(f, work->stage + 3, kappa, work);
    for (long j = 0; j < d; j++) lambda[j] += gx[j], kappa[j] = sixth * lambda[j], g[j] = kappa[j];
    /* lambda is that of the end as long as stages ask for it: what they add is kept beside it */
    Pair *sum = work->sum;
    pull_back(f, work->stage + 2, g, work);
    for (long j = 0; j < d; j++) sum[j] = gx[j], g[j] = third * lambda[j] + whole * gx[j];
    pull_back(f, work->stage + 1, g, work);
    for (long j = 0; j < d; j++) sum[j] += gx[j], g[j] = third * lambda[j] + half * gx[j];
    pull_back(f, work->stage, g, work);
    for (long j = 0; j < d; j++) lambda[j] += sum[j] + gx[j], kappa[j] += half * gx[j];
}

/* Where the series of head h of a trajectory begins, among those of the keys or of the values. */
INLINE long place(const Sweep *w, long row, long h) {
    const long pieces = pieces_of(w), terms = 2 * (w->per_piece + 1);
    return ((row / w->obs % w->batch * w->heads + h) * w->obs + row % w->obs) * pieces * terms * (w->width / w->heads);
}

/* series = basis (values, slopes) on every piece, head by head; sums of squares on the way */
INLINE void write_series(const Sweep *w, const Way *way, const float *values, const float *all_slopes, float *sum) {
    const long d = w->width, dk = d / w->heads, n = w->per_piece + 1, terms = 2 * n, row = way->row;
    const long pieces = pieces_of(w), rows = w->states * w->obs * w->batch;
    float *series = row < w->obs * w->batch ? w->key_series : w->value_series, *scaled = sum + terms * d, start = 0;
    const float *initial = values + w->nodes * d;
#pragma omp simd reduction(+ : start)
    for (long j = 0; j < d; j++) start += initial[j] * initial[j];
    for (long p = 0; p < pieces; p++) {
        const long at = p * w->per_piece * d;
        /* slopes are in time, the series in the variable of the piece */
        const float half = (float)half_length(w, way->b, p), *slopes = all_slopes + at;
#pragma omp simd
        for (long j = 0; j < n * d; j++) scaled[j] = half * slopes[j];
        multiply(terms, d, n, (Matrix){w->basis, terms, 1}, values + at, d, NULL, 0, sum, d);
        multiply(terms, d, n, (Matrix){w->basis + n, terms, 1}, scaled, d, sum, d, sum, d);
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

/* Its adjoint: gradients of values and slopes at the nodes from that of the series. */
INLINE void read_gradient(const Sweep *w, const Way *way, float *g_values, float *g_slopes, float *g) {
    const long d = w->width, dk = d / w->heads, n = w->per_piece + 1, terms = 2 * n;
    const long pieces = pieces_of(w);
    const float *g_series = way->row < w->obs * w->batch ? w->g_key_series : w->g_value_series;
    for (long p = 0; p < pieces; p++) {
        for (long h = 0; h < w->heads; h++) {
            const float *from = g_series + place(w, way->row, h) + p * terms * dk;
            for (long m = 0; m < terms; m++) memcpy(g + m * d + h * dk, from + m * dk, dk * sizeof(float));
        }
        const float half = (float)half_length(w, way->b, p);
        float *scaled = g + terms * d, *to = g_values + p * w->per_piece * d, *slopes = g_slopes + p * w->per_piece * d;
        multiply(n, d, terms, (Matrix){w->basis, 1, terms}, g, d, to, d, to, d);
        multiply(n, d, terms, (Matrix){w->basis + n, 1, terms}, g, d, NULL, 0, scaled, d);
#pragma omp simd
        for (long j = 0; j < n * d; j++) slopes[j] += half * scaled[j];
    }
}

/* A state at its observation, or its gradient. */
INLINE long observed(const Sweep *w, long row) {
    return row % (w->batch * w->obs) * w->width;
}

/* The rows of a group's table that lanes have at these nodes: in the one that is kept, or in working memory. */
INLINE void find_rows(const Sweep *w, const Way *way, const long *node, float *kept, float *table, float **rows) {
    for (long l = 0; l < GROUP; l++)
        rows[l] = (kept ? kept + way[l].row * (w->nodes + 1) * w->width : table + l * (w->nodes + 1) * w->width) + node[l] * w->width;
}

/* Gather states at the observations, and evaluate the field there. */
INLINE void observe(const Sweep *w, const Field *f, const Way *way, Stage *stage) {
    const float *rows[GROUP];
    for (int l = 0; l < GROUP; l++) {
        rows[l] = (way[l].row < w->batch * w->obs ? w->key : w->value) + observed(w, way[l].row);
        stage->time[l] = (float)way[l].time;
    }
    gather(w->width, rows, stage->x);
    evaluate(f, stage);
}

INLINE void gather_nodes(const Sweep *w, const Way *way, const long *node, Work *work, Pair *x, Pair *k) {
    float *rows[GROUP];
    find_rows(w, way, node, w->values, work->values, rows), gather(w->width, (const float *const *)rows, x);
    find_rows(w, way, node, w->slopes, work->slopes, rows), gather(w->width, (const float *const *)rows, k);
}

/* Trajectories of `count` items of one state from `begin` on, and their series. State and slope are in the last stage. */
INLINE void forward_group(const Sweep *w, const Field *f, long begin, long count, Work *work) {
    const long d = w->width;
    const long none[GROUP] = {0};
    Stage *stage = work->stage, *here = stage + STAGES - 1;
    Way way[GROUP];
    float *values[GROUP], *slopes[GROUP];
    const long crossings = find_ways(w, begin, count, way);
    observe(w, f, way, here);
    for (long i = -1; i < crossings; i++) {
        const Crossing c = crossing(w, way, i);
        if (i > 0 && c.again) gather_nodes(w, way, c.before, work, here->x, here->k);
        for (long s = 0; s < w->substeps && c.moving; s++) take_step(f, &c, s, here->x, here->k, stage);
        find_rows(w, way, c.node, w->values, work->values, values), scatter(d, here->x, values);
        find_rows(w, way, c.node, w->slopes, work->slopes, slopes), scatter(d, here->k, slopes);
    }
    find_rows(w, way, none, w->values, work->values, values);
    find_rows(w, way, none, w->slopes, work->slopes, slopes);
    for (long l = 0; l < count; l++) {
        for (long g = 0; g < way[l].stop; g++) {
            memcpy(values[l] + g * d, values[l] + way[l].stop * d, d * sizeof(float));
            memcpy(slopes[l] + g * d, slopes[l] + way[l].stop * d, d * sizeof(float));
        }
        write_series(w, way + l, values[l], slopes[l], work->piece);
    }
}

/* The adjoint of forward_group(). Nodes that a causal model does not go back to have no gradient: nobody reads there. */
INLINE void backward_group(const Sweep *w, const Field *f, long begin, long count, Work *work) {
    const long d = w->width, size = d * (long)sizeof(Pair), nodes = w->nodes * d;
    Stage *stage = work->stage;
    Way way[GROUP];
    float *rows[GROUP];
    const float *gradients[GROUP];
    const long crossings = find_ways(w, begin, count, way);
    memset(work->values, 0, GROUP * nodes * sizeof(float)), memset(work->slopes, 0, GROUP * nodes * sizeof(float));
    for (long l = 0; l < count; l++)
        read_gradient(w, way + l, work->values + l * nodes, work->slopes + l * nodes, work->piece);
    memset(work->lambda, 0, size), memset(work->kappa, 0, size);
    memset(work->g_initial, 0, size), memset(work->g_first, 0, size);
    for (long i = crossings - 1; i >= 0; i--) {
        const Crossing c = crossing(w, way, i);
        for (int slope = 0; slope < 2; slope++) {
            const float *from = slope ? work->slopes : work->values;
            Pair *to = slope ? work->kappa : work->lambda;
            for (int l = 0; l < GROUP; l++)
                gradients[l] = c.node[l] == w->nodes ? work->zeros : from + l * nodes + c.node[l] * d;
            gather(d, gradients, work->g);
            for (long j = 0; j < d; j++) to[j] += work->g[j];
        }
        if (c.moving) {
            Pair *path = work->path;
            gather_nodes(w, way, c.before, work, path, path + d);
            for (long s = 0; s + 1 < w->substeps; s++, path += 2 * d) {
                take_step(f, &c, s, path, path + d, stage);
                memcpy(path + 2 * d, stage[STAGES - 1].x, size), memcpy(path + 3 * d, stage[STAGES - 1].k, size);
            }
            for (long s = w->substeps - 1; s >= 0; s--, path -= 2 * d) {
                take_step(f, &c, s, path, path + d, stage);
                return_step(f, &c, work);
            }
        }
        if (!c.again) continue;
        Pair own;
        for (int l = 0; l < GROUP; l++) own[l] = c.before[l] == w->nodes;
        for (long j = 0; j < d; j++) {
            work->g_initial[j] += own * work->lambda[j], work->g_first[j] += own * work->kappa[j];
            work->lambda[j] *= 1 - own, work->kappa[j] *= 1 - own;
        }
    }
    observe(w, f, way, stage);
    pull_back(f, stage, work->g_first, work);
    for (long j = 0; j < d; j++) work->g_initial[j] += work->gx[j];
    float *to = way->row < w->batch * w->obs ? w->g_key : w->g_value;
    for (int l = 0; l < GROUP; l++) rows[l] = l < count ? to + observed(w, way[l].row) : work->rows + l * d;
    scatter(d, work->g_initial, rows);
#pragma omp simd
    for (long n = 0; n < work->numbers; n++) work->all[n] += work->group[n], work->group[n] = 0;
}

/* From the sums over groups, which begin anew, to the gradients of a state's parameters. */
INLINE void hand_over(const Sweep *w, long state, Work *work) {
    const long d = w->width, part = w->part, at = state * d * (part + 2);
    const double *from = work->all + d * part;
    for (long j = 0; j < d * part; j++) w->g_affine[at + j / (part * part) * (part + 2) * part + j % (part * part)] = (float)work->all[j];
    for (int row = 0; row < (w->norm ? 4 : 2); row++)
        for (long j = 0; j < d; j++, from += GROUP) {
            double sum = 0;
            for (int l = 0; l < GROUP; l++) sum += from[l];
            if (row < 2)
                w->g_affine[at + j / part * (part + 2) * part + (part + row) * part + j % part] = (float)sum;
            else
                w->g_norm[((row - 2) * w->states + state) * d + j] = (float)sum;
        }
    memset(work->all, 0, work->numbers * sizeof(double));
}

INLINE long state_of(const Sweep *w, long number) {
    return (w->items ? w->items[number] : number) / (w->obs * w->batch);
}

/* In groups, each of items of one state. */
INLINE int sweep(const Sweep *w, long begin, long end, const int backward) {
    Work work;
    if (make_work(&work, w)) return 1;
    for (long n = begin, stop; n < end;) {
        const long state = state_of(w, n);
        const Field f = field_of(w, state);
        for (stop = n + 1; stop < end && state_of(w, stop) == state;) stop++;
        for (; n < stop; n += GROUP) {
            const long count = stop - n < GROUP ? stop - n : GROUP;
            if (backward)
                backward_group(w, &f, n, count, &work);
            else
                forward_group(w, &f, n, count, &work);
        }
        n = stop;
        if (backward) hand_over(w, state, &work);
    }
    free(work.memory);
    return 0;
}

DISPATCH int sweep_forward(const Sweep *w, long begin, long end) {
    return sweep(w, begin, end, 0);
}

DISPATCH int sweep_backward(const Sweep *w, long begin, long end) {
    return sweep(w, begin, end, 1);
}
