/* Trajectories of the paper's field, forward and backward, a group of 16 at a time, in float32.

   contiformer/paths/trajectories.py is the listing of these formulas. The field is
       f(t, x) = amplitude * sigmoid(stretch (gain n + shift)) + offset,  n = z / sqrt(mean z^2 + eps),  z = x M + slope t + bias;
   where there is no norm, n = z, gain = 1 and shift = 0. Amplitude, offset and stretch are 2, -1 and 2 for tanh.

   The lanes of a vector are the trajectories of a group: a state is one vector for each channel, so no step of the solver adds up
   the lanes of a vector, and what a lane holds does not depend on the others. Every lane keeps its own times; where it has
   arrived before the others it takes steps of length 0, which change nothing. A lane without a trajectory repeats the last one, with
   a gradient of zero. */

#include "matmul.h"

#define GROUP (2 * LANES)
#define STAGES 4
/* One number for each trajectory of a group, and a loop over channels and lanes. */
typedef float Group[GROUP];
#define EACH_LANE(j, from, to) for (long j = from; j < (to); j++) EACH(l, GROUP)

typedef struct {
    /* Sizes; a piece has per_piece steps between nodes, and twice its nodes as terms. The states are keys and values, each with a
       field of its own, which works on `part` of the width at a time: a part does not see the others, nor does its norm. */
    long states, batch, obs, width, part, heads, pieces, nodes, substeps, per_piece;
    int causal;
    /* the items to be solved, each a trajectory (state, sequence, observation), in order; NULL: all of them. The others are
       not written. */
    const int64_t *items;
    /* constants of the field */
    float eps, amplitude, offset, stretch;
    /* times [batch, obs], edges of the pieces [batch, pieces + 1], nodes of a piece on [-1, 1] [per_piece + 1]; basis [terms, terms]
       from value and slope, in turn, at each of a piece's nodes to its series */
    const double *times, *edges, *node;
    const float *basis;
    /* states at the observations [batch, obs, width] */
    const float *key, *value;
    /* of each part of each state: matrix, slope and bias [part + 2, part]; gain and shift [2, states, width] or NULL */
    const float *affine, *norm;
    /* values and slopes [states, batch, obs, nodes + 1, 2, width] at the nodes, and at the observation itself, kept for the
       backward pass; NULL where there will be none */
    float *table;
    /* of keys and of values: series [batch, heads, obs, pieces, terms, width / heads], and their gradients */
    float *key_series, *value_series;
    const float *g_key_series, *g_value_series;
    /* sums of squares [3, states, batch, obs, pieces]: of the last two coefficients together, of all, and of the initial value;
       zero where a causal model does not look */
    float *squares;
    /* backward pass: gradients of the states and, for this call alone, of the parameters */
    float *g_key, *g_value, *g_affine, *g_norm;
} Sweep;

/* An evaluation of the field: its arguments, the result k, which lies behind x, and what its adjoint asks for (n by channel,
   lengths by part). */
typedef struct {
    Group time, *x, *k, *n, *length;
} Stage;

/* Working memory of a group. Arrays of vectors are by channel, for states and then for their slopes; `path` has those before each
   substep. */
typedef struct {
    float *memory;
    Stage stage[STAGES];
    Group *path, *lambda, *kappa, *g_initial, *g, *gz, *gx, *sum;
    /* by lane: gz, and values and slopes at the nodes or, in the backward pass, their gradients; and one piece of a series */
    float *rows, *table, *piece, *zeros;
    /* Gradients of the parameters: matrix, slope, bias, gain and shift, all but the first by lane. In float within a group, in
       double over the groups: one float for all would soon be too large to feel what is added. */
    long numbers;
    float *group;
    double *all;
    /* times of the nodes [batch, nodes] */
    double *grid;
    /* of the group's state: matrices, gain and shift; these two NULL where there is no norm */
    const float *affine, *gain, *shift;
} Work;

/* Divide the working memory. Without any, this only counts how much it takes, gets that and divides it. */
static int make_work(Work *work, const Sweep *w) {
    const long d = w->width, vectors = d * GROUP;
    long taken = 0;
    work->numbers = d * w->part + 4 * vectors;
    TAKE(group, work->numbers), TAKE(all, 2 * work->numbers), TAKE(zeros, 2 * d);
    for (int s = 0; s < STAGES; s++) {
        TAKE(stage[s].x, 2 * vectors), TAKE(stage[s].n, vectors), TAKE(stage[s].length, vectors);
        work->stage[s].k = work->stage[s].x + (work->memory ? d : 0);
    }
    TAKE(path, 2 * w->substeps * vectors), TAKE(lambda, 2 * vectors), TAKE(g_initial, 2 * vectors), TAKE(g, 2 * vectors);
    TAKE(gz, vectors), TAKE(gx, vectors), TAKE(sum, vectors), TAKE(rows, 2 * vectors), TAKE(piece, 2 * (w->per_piece + 1) * d);
    TAKE(table, 2 * (w->nodes + 1) * vectors), TAKE(grid, 2 * w->batch * w->nodes);
    work->kappa = work->lambda + (work->memory ? d : 0);
    if (!work->memory) {
        work->memory = get_memory(taken);
        return work->memory ? make_work(work, w) : 1;
    }
    memset(work->group, 0, (char *)work->stage[0].x - (char *)work->group);
    for (long b = 0, n = 0; b < w->batch; b++, n++) {
        const double *edges = w->edges + b * (w->pieces + 1);
        for (long p = 0; p < w->pieces; p++, edges++)
            for (long i = 0; i < w->per_piece; i++)
                work->grid[n++] = i ? *edges + (w->node[i] + 1) * ((edges[1] - edges[0]) / 2) : *edges;
        work->grid[n] = *edges;
    }
    return 0;
}

/* From rows, one for each lane, to vectors by channel; or back. */
INLINE void gather(long d, float *const *rows, Group *vectors, const int back) {
    for (long j = 0; j < d; j += LANES)
        for (int half = 0; half < GROUP; half += LANES) {
            Lanes square[LANES];
            UNROLL for (int n = 0; n < LANES; n++) square[n] = back ? AT(vectors[j + n], half) : AT(rows[half + n], j);
            transpose_square(square);
            UNROLL for (int n = 0; n < LANES; n++) PUT(back ? rows[half + n] : vectors[j + n], back ? j : half) = square[n];
        }
}

/* Sums over channels of products x y, by lane. */
INLINE void sum_channels(long count, Group *x, Group *y, float *sums) {
    Pair sum[4] = {{0}};
    for (long j = 0; j < count; j += 4)
        UNROLL for (int n = 0; n < 4; n++) sum[n] += *(Pair *)x[j + n] * *(Pair *)y[j + n];
    *(Pair *)sums = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

INLINE void evaluate(const Sweep *w, const Work *work, Stage *at) {
    const long d = w->width, part = w->part;
    const float half = w->amplitude / 2, middle = w->offset + half, stretch = w->stretch, eps = w->eps;
    const float *matrix = work->affine, *gain = work->gain;
    for (long from = 0; from < d; from += part, matrix += (part + 2) * part) {
        const float *slope = matrix + part * part, *bias = slope + part;
        float *z = at->n[from], *length = at->length[from / part], inverse[GROUP];
        EACH_LANE(j, 0, part) z[j * GROUP + l] = bias[j] + slope[j] * at->time[l];
        multiply(part, GROUP, part, (Matrix){matrix, 1, part}, at->x[from], GROUP, z, z, GROUP);
        if (gain) sum_channels(part, at->n + from, at->n + from, length);
        EACH(l, GROUP) length[l] = gain ? sqrtf(length[l] / part + eps) : 1.0f, inverse[l] = 1 / length[l];
        for (long j = from; j < from + part; j++) {
            const float factor = gain ? stretch * gain[j] : stretch, shift = gain ? stretch * work->shift[j] : 0.0f;
            EACH(l, GROUP) {
                const float n = at->n[j][l] * inverse[l], x = shift + factor * n, e = exp_bounded(-fabsf(x));
                at->n[j][l] = n, at->k[j][l] = middle + half * copysignf((1.0f - e) / (1.0f + e), x);
            }
        }
    }
}

/* The adjoint of evaluate(): work->gx from g, the gradient of k; the parameters' gradients are added to those of the group. */
INLINE void pull_back(const Sweep *w, Work *work, const Stage *at, Group *g) {
    const long d = w->width, part = w->part;
    const float bottom = w->offset, top = w->amplitude + bottom, steepness = w->stretch / w->amplitude;
    const float *matrix = work->affine, *gain = work->gain;
    Group *gz = work->gz, *g_slope = (Group *)(work->group + d * part), *g_bias = g_slope + d, *g_gain = g_bias + d;
    Group *g_shift = g_gain + d;
    float *rows[GROUP], along[GROUP], inverse[GROUP];
    EACH_LANE(j, 0, d) {
        const float inner = g[j][l] * (at->k[j][l] - bottom) * (top - at->k[j][l]) * steepness;
        g_shift[j][l] += inner, g_gain[j][l] += inner * at->n[j][l];
        gz[j][l] = gain ? inner * gain[j] : inner;
    }
    for (long from = 0; from < d; from += part) {
        if (gain) sum_channels(part, gz + from, at->n + from, along);
        EACH(l, GROUP) along[l] = gain ? along[l] / part : 0.0f, inverse[l] = 1 / at->length[from / part][l];
        EACH_LANE(j, from, from + part) {
            const float one = (gz[j][l] - along[l] * at->n[j][l]) * inverse[l];
            gz[j][l] = one, g_bias[j][l] += one, g_slope[j][l] += at->time[l] * one;
        }
    }
    for (int l = 0; l < GROUP; l++) rows[l] = work->rows + l * d;
    gather(d, rows, gz, 1);
    for (long j = 0; j < d; j += part, matrix += (part + 2) * part) {
        float *sum = work->group + j * part;
        multiply(part, GROUP, part, (Matrix){matrix, part, 1}, gz[j], GROUP, NULL, work->gx[j], GROUP);
        multiply(part, part, GROUP, (Matrix){at->x[j], GROUP, 1}, work->rows + j, d, sum, sum, part);
    }
}

/* The way of one trajectory: from its observation to the nodes after it one by one, then to those before it. A causal model does
   not go back beyond the observation's own piece. */
typedef struct {
    long row, observed, first, stop, crossings; /* observed: where the observation is in `key` or `value` */
    double time;
    const double *grid;
} Way;

/* Crossing number i of a group, -1 for none: by lane the node it leads to and the one it comes from, w->nodes for the
   observation itself, and the time and length of its substeps. Whether any lane moves, and whether any
   begins again at its observation or rests. */
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
        if (i != 0 && i != ahead) c.before[l] = back ? c.node[l] + 1 : c.node[l] - 1, c.from[l] = way[l].grid[c.before[l]];
        c.length[l] = (way[l].grid[c.node[l]] - c.from[l]) / w->substeps;
        c.moving |= c.length[l] != 0;
    }
    return c;
}

/* The trajectory (state, sequence, observation) of an item. */
INLINE long row_of(const Sweep *w, long item) {
    return w->items ? w->items[item] : item;
}

/* The ways of the items from `begin` on; the last of `count` for the lanes behind them. Returns the most crossings. */
INLINE long find_ways(const Sweep *w, const Work *work, long begin, long count, Way *way) {
    long most = 0;
    for (long l = 0; l < GROUP; l++, way++) {
        const long row = row_of(w, begin + MIN(l, count - 1)), at = row % (w->batch * w->obs);
        *way = (Way){.row = row, .observed = at * w->width, .time = w->times[at], .grid = work->grid + at / w->obs * w->nodes};
        while (way->first < w->nodes && way->grid[way->first] < way->time) way->first++;
        way->stop = w->causal && way->first > 0 ? (way->first - 1) / w->per_piece * w->per_piece : 0;
        way->crossings = w->nodes - way->stop;
        most = MAX(most, way->crossings);
    }
    return most;
}

/* Substep s of a crossing by Runge-Kutta's method, from state and slope x. The last stage is the end of the step. */
INLINE void take_step(const Sweep *w, Work *work, const Crossing *c, long s, Group *x) {
    const long d = w->width;
    Stage *stage = work->stage;
    Group half, whole, sixth, *k = x + d;
    for (int l = 0; l < GROUP; l++) {
        const double length = c->length[l], from = c->from[l] + s * length;
        half[l] = (float)(length / 2), whole[l] = (float)length, sixth[l] = (float)(length / 6);
        stage[0].time[l] = stage[1].time[l] = (float)(from + length / 2);
        stage[2].time[l] = stage[3].time[l] = (float)(from + length);
    }
    EACH_LANE(j, 0, d) stage[0].x[j][l] = x[j][l] + half[l] * k[j][l];
    evaluate(w, work, stage);
    EACH_LANE(j, 0, d) stage[1].x[j][l] = x[j][l] + half[l] * stage[0].k[j][l];
    evaluate(w, work, stage + 1);
    EACH_LANE(j, 0, d) stage[2].x[j][l] = x[j][l] + whole[l] * stage[1].k[j][l];
    evaluate(w, work, stage + 2);
    EACH_LANE(j, 0, d)
        stage[3].x[j][l] = x[j][l] + sixth[l] * (k[j][l] + 2 * (stage[0].k[j][l] + stage[1].k[j][l]) + stage[2].k[j][l]);
    evaluate(w, work, stage + 3);
}

/* Its adjoint: lambda and kappa, the gradients of state and slope, from the end of the step to its beginning. As long as stages
   ask for that of the end, what they add is kept beside it. */
INLINE void return_step(const Sweep *w, Work *work, const Crossing *c) {
    const long d = w->width;
    Group *lambda = work->lambda, *kappa = work->kappa, *g = work->g, *gx = work->gx, *sum = work->sum, h;
    for (int l = 0; l < GROUP; l++) h[l] = (float)c->length[l];
    pull_back(w, work, work->stage + 3, kappa);
    EACH_LANE(j, 0, d) lambda[j][l] += gx[j][l], g[j][l] = kappa[j][l] = (1 / 6.0f) * h[l] * lambda[j][l];
    pull_back(w, work, work->stage + 2, g);
    EACH_LANE(j, 0, d) sum[j][l] = gx[j][l], g[j][l] = (1 / 3.0f) * h[l] * lambda[j][l] + h[l] * gx[j][l];
    pull_back(w, work, work->stage + 1, g);
    EACH_LANE(j, 0, d) sum[j][l] += gx[j][l], g[j][l] = (1 / 3.0f) * h[l] * lambda[j][l] + 0.5f * h[l] * gx[j][l];
    pull_back(w, work, work->stage, g);
    EACH_LANE(j, 0, d) lambda[j][l] += sum[j][l] + gx[j][l], kappa[j][l] += 0.5f * h[l] * gx[j][l];
}

/* From rows [terms, width] of a piece to the series of its heads [heads, obs, pieces, terms, width / heads], or back. */
INLINE void copy_heads(const long width, const Sweep *w, long row, long piece, float *rows, float *series, const int back) {
    const long terms = 2 * (w->per_piece + 1), apart = w->obs * w->pieces * terms * width;
    series += row / w->obs % w->batch * w->heads * apart + (row % w->obs * w->pieces + piece) * terms * width;
    for (long h = 0; h < w->heads; h++, series += apart, rows += width)
        for (long m = 0; m < terms; m++) {
            float *one = rows + m * w->width, *other = series + m * width;
            EACH(j, width) *(back ? one + j : other + j) = *(back ? other + j : one + j);
        }
}

/* The basis of a piece: slopes are in time, the series in the variable of the piece. */
INLINE void scale_basis(const Sweep *w, const Way *way, long piece, long size, float *scaled) {
    const double *edge = way->grid + piece * w->per_piece;
    const float half = (float)((edge[w->per_piece] - *edge) / 2);
    EACH(m, size) scaled[2 * m] = w->basis[2 * m], scaled[2 * m + 1] = half * w->basis[2 * m + 1];
}

/* series = basis (values, slopes) on every piece, head by head; sums of squares on the way */
INLINE void write_series(const Sweep *w, const Way *way, const float *table, float *sum) {
    const long d = w->width, terms = 2 * (w->per_piece + 1), row = way->row;
    const long pieces = w->pieces, rows = w->states * w->obs * w->batch;
    float *series = row < w->obs * w->batch ? w->key_series : w->value_series, scaled[terms * terms];
    const float *end = sum + (terms - 2) * d, *first = table + w->nodes * 2 * d, start = dot(d, first, first);
    for (long p = 0; p < pieces; p++, table += w->per_piece * 2 * d) {
        scale_basis(w, way, p, terms * terms / 2, scaled);
        multiply(terms, d, terms, (Matrix){scaled, terms, 1}, table, d, NULL, sum, d);
        WITH_WIDTH(d / w->heads, copy_heads(width, w, row, p, sum, series, 0))
        float last = 0;
#pragma omp simd reduction(+ : last)
        for (long j = 0; j < d; j++) last += (fabsf(end[j]) + fabsf(end[d + j])) * (fabsf(end[j]) + fabsf(end[d + j]));
        const float seen = (p + 1) * w->per_piece > way->stop, squares[] = {last, dot(terms * d, sum, sum), start};
        for (int k = 0; k < 3; k++) w->squares[(k * rows + row) * pieces + p] = seen ? squares[k] : 0;
    }
}

/* Its adjoint: gradients of values and slopes at the nodes from that of the series. */
INLINE void read_gradient(const Sweep *w, const Way *way, float *g_table, float *g) {
    const long d = w->width, terms = 2 * (w->per_piece + 1);
    float *g_series = (float *)(way->row < w->obs * w->batch ? w->g_key_series : w->g_value_series), scaled[terms * terms];
    for (long p = 0; p < w->pieces; p++, g_table += w->per_piece * 2 * d) {
        WITH_WIDTH(d / w->heads, copy_heads(width, w, way->row, p, g, g_series, 1))
        scale_basis(w, way, p, terms * terms / 2, scaled);
        multiply(terms, d, terms, (Matrix){scaled, 1, terms}, g, d, g_table, g_table, d);
    }
}

/* State and slope that each lane has at its node: in the table that is kept, or in working memory. */
INLINE void find_rows(const Sweep *w, const Way *way, const long *node, const Work *work, float **rows) {
    const long both = 2 * w->width, size = (w->nodes + 1) * both;
    for (long l = 0; l < GROUP; l++)
        rows[l] = (w->table ? w->table + way[l].row * size : work->table + l * size) + node[l] * both;
}

/* Gather states at the observations, and evaluate the field there. */
INLINE void observe(const Sweep *w, const Work *work, const Way *way, Stage *stage) {
    float *rows[GROUP];
    for (int l = 0; l < GROUP; l++) {
        rows[l] = (float *)(way[l].row < w->batch * w->obs ? w->key : w->value) + way[l].observed;
        stage->time[l] = (float)way[l].time;
    }
    gather(w->width, rows, stage->x, 0);
    evaluate(w, work, stage);
}

/* Trajectories of `count` items of one state from `begin` on, and their series. State and slope are in the last stage. */
INLINE void forward_group(const Sweep *w, Work *work, long begin, long count) {
    const long both = 2 * w->width, none[GROUP] = {0};
    Stage *here = work->stage + STAGES - 1;
    Way way[GROUP];
    float *rows[GROUP];
    const long crossings = find_ways(w, work, begin, count, way);
    observe(w, work, way, here);
    for (long i = -1; i < crossings; i++) {
        const Crossing c = crossing(w, way, i);
        if (i > 0 && c.again) find_rows(w, way, c.before, work, rows), gather(both, rows, here->x, 0);
        for (long s = 0; s < w->substeps && c.moving; s++) take_step(w, work, &c, s, here->x);
        find_rows(w, way, c.node, work, rows), gather(both, rows, here->x, 1);
    }
    find_rows(w, way, none, work, rows);
    for (long l = 0; l < count; l++) {
        for (long g = 0; g < way[l].stop; g++) memcpy(rows[l] + g * both, rows[l] + way[l].stop * both, both * sizeof(float));
        write_series(w, way + l, rows[l], work->piece);
    }
}

/* The adjoint of forward_group(). Nodes that a causal model does not go back to have no gradient: nobody reads there. */
INLINE void backward_group(const Sweep *w, Work *work, long begin, long count) {
    const long d = w->width, both = 2 * d, size = both * (long)sizeof(Group), nodes = w->nodes * both;
    Way way[GROUP];
    float *rows[GROUP];
    const long crossings = find_ways(w, work, begin, count, way);
    memset(work->table, 0, GROUP * nodes * sizeof(float));
    for (long l = 0; l < count; l++) read_gradient(w, way + l, work->table + l * nodes, work->piece);
    memset(work->lambda, 0, size), memset(work->g_initial, 0, size);
    for (long i = crossings - 1; i >= 0; i--) {
        const Crossing c = crossing(w, way, i);
        for (int l = 0; l < GROUP; l++)
            rows[l] = c.node[l] == w->nodes ? work->zeros : work->table + l * nodes + c.node[l] * both;
        gather(both, rows, work->g, 0);
        EACH_LANE(j, 0, both) work->lambda[j][l] += work->g[j][l];
        if (c.moving) {
            Group *path = work->path;
            find_rows(w, way, c.before, work, rows), gather(both, rows, path, 0);
            for (long s = 0; s + 1 < w->substeps; s++, path += both) {
                take_step(w, work, &c, s, path);
                memcpy(path + both, work->stage[STAGES - 1].x, size);
            }
            for (long s = w->substeps - 1; s >= 0; s--, path -= both) {
                take_step(w, work, &c, s, path);
                return_step(w, work, &c);
            }
        }
        if (!c.again) continue;
        Group own;
        for (int l = 0; l < GROUP; l++) own[l] = c.before[l] == w->nodes;
        EACH_LANE(j, 0, both) work->g_initial[j][l] += own[l] * work->lambda[j][l], work->lambda[j][l] *= 1 - own[l];
    }
    observe(w, work, way, work->stage);
    pull_back(w, work, work->stage, work->g_initial + d);
    EACH_LANE(j, 0, d) work->g_initial[j][l] += work->gx[j][l];
    float *to = way->row < w->batch * w->obs ? w->g_key : w->g_value;
    for (int l = 0; l < GROUP; l++) rows[l] = l < count ? to + way[l].observed : work->rows + l * d;
    gather(d, rows, work->g_initial, 1);
    EACH(n, work->numbers) work->all[n] += work->group[n], work->group[n] = 0;
}

/* From the sums over groups, which begin anew, to the gradients of a state's parameters. */
INLINE void hand_over(const Sweep *w, long state, Work *work) {
    const long d = w->width, part = w->part, at = state * d * (part + 2);
    const double *from = work->all + d * part;
    for (long j = 0; j < d * part; j++)
        w->g_affine[at + j / (part * part) * (part + 2) * part + j % (part * part)] = (float)work->all[j];
    for (int row = 0; row < (w->norm ? 4 : 2); row++)
        for (long j = 0; j < d; j++, from += GROUP) {
            double sum = 0;
            for (int l = 0; l < GROUP; l++) sum += from[l];
            float *to = row < 2 ? w->g_affine + at + (j / part * (part + 2) + part + row) * part + j % part
                                : w->g_norm + ((row - 2) * w->states + state) * d + j;
            *to = (float)sum;
        }
    memset(work->all, 0, work->numbers * sizeof(double));
}

/* In groups, each of items of one state. */
INLINE int sweep(const Sweep *w, long begin, long end, const int backward) {
    const long rows = w->obs * w->batch, d = w->width;
    Work work = {0};
    if (make_work(&work, w)) return 1;
    for (long n = begin, count; n < end; n += count) {
        const long state = row_of(w, n) / rows;
        for (count = 1; count < GROUP && n + count < end && row_of(w, n + count) / rows == state;) count++;
        work.affine = w->affine + state * d * (w->part + 2);
        if (w->norm) work.gain = w->norm + state * d, work.shift = work.gain + w->states * d;
        if (!backward) forward_group(w, &work, n, count);
        else backward_group(w, &work, n, count);
        if (backward && (n + count == end || row_of(w, n + count) / rows != state)) hand_over(w, state, &work);
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
