/* A GRU whose state follows dh/dt = f(h) between rows, several sequences at a time, in float32.

   f is a network of linear layers with tanh between them. Before row n the state of a sequence takes its own number of
   Runge-Kutta steps, and at the row it is updated:
       z, r = sigmoid(input_zr + h U_zr),  c = tanh(input_c + (r h) U_c),  h <- h + z (c - h).

   The same computation as FlowingGRU in contiformer/backbones/ode_rnn.py, which is its reference and takes over where
   no compiler was at hand. The sequences of a group go row by row together, so that a weight that is loaded is used for
   all of them; those that have arrived before the others sit a step out. */

#include <stdint.h>

#include "products.h"

#define STAGES 4
/* Sequences in a group: a weight comes once from the second cache for all of them. */
#define GROUP 16
/* Evaluations whose part in the gradients of the weights is added at once. */
#define PAIRS (2 * STAGES * GROUP)

typedef struct {
    long rows, layers, stages;
    /* of the layers: numbers before, between and behind them [layers + 1]; the first and the last are the state's */
    const int64_t *sizes;
    /* stage s is at h + length reach[s] slope[s - 1]; the step ends at h + length sum of share[s] slope[s] */
    float reach[STAGES], share[STAGES];
    /* steps before each row and their length [batch, rows]; where the states of a row begin in the path */
    const int64_t *count, *place;
    const float *length;
    /* layers one after the other, each [in + 1, out] with the bias as the last row; and each [out, in] */
    const float *field, *field_back;
    /* gates [d, 2d] and candidate [d, d], and both transposed */
    const float *gates, *gates_back, *candidate, *candidate_back;
    /* input [batch, rows, 3d]: what z, r and c get from the row; states [batch, rows, d] */
    const float *input;
    float *states;
    /* kept for the backward pass, or NULL: states before each step and after the last [steps + rows, d]; z, r, c
       [batch, rows, 3d] */
    float *path, *kept;
    const float *g_states;
    /* gradients, that of the field for this call alone */
    float *g_input, *g_field;
} Flow;

/* A group's working memory. Evaluations have a slot each: at and g are [slots, size] for every size of the layers, one
   after the other, with what enters a layer and the gradients of what the tanh before it was given. */
typedef struct {
    float *memory, *at, *g, *h, *start, *next, *gates, *reset, *zeros;
    long slots, used;
    long which[GROUP];
    float length[GROUP];
} Work;

static int make_work(Work *work, const Flow *w, long slots, int backward) {
    long sizes = 0, widest = 0;
    for (long l = 0; l <= w->layers; l++) {
        const long size = whole(w->sizes[l]);
        sizes += size, widest = size > widest ? size : widest;
    }
    const long d = whole(w->sizes[0]), all = GROUP * d, numbers = (1 + backward) * slots * sizes + 6 * all + widest;
    float *m = work->memory = calloc(numbers, sizeof(float));
    if (!m) return 1;
    work->slots = slots, work->used = 0;
    work->at = m, m += slots * sizes;
    work->g = m, m += backward * slots * sizes;
    work->h = m, m += all;
    work->start = m, m += all;
    work->next = m, m += all;
    work->gates = m, m += 2 * all;
    work->reset = m, m += all;
    work->zeros = m;
    return 0;
}

/* The first `layers` layers for `count` slots from this one on; what comes out of the last stays behind the others. */
INLINE const float *evaluate(const Flow *w, long count, long slot, long layers, Work *work) {
    float *x = work->at;
    const float *matrix = w->field;
    long in = whole(w->sizes[0]);
    for (long l = 0; l < layers; l++) {
        const long out = whole(w->sizes[l + 1]);
        float *y = x + work->slots * in;
        multiply((Product){.rows = count, .inner = w->sizes[l], .columns = out, .x = x + slot * in, .x_row = in,
                           .matrix = matrix, .start = matrix + in * out, .y = y + slot * out, .y_row = out});
        if (l + 1 < w->layers) apply_tanh(count * out, y + slot * out);
        matrix += (in + 1) * out, x = y, in = out;
    }
    return x + slot * in;
}

/* One step of `count` sequences from work->start, with its stages `apart` slots from each other: to its end in `next`,
   or, without that, only as far as the gradients need it. */
INLINE void step(const Flow *w, long count, long slot, long apart, Work *work, float *next) {
    const long d = whole(w->sizes[0]);
    const float *slope = work->zeros;
    if (next) memcpy(next, work->start, count * d * sizeof(float));
    for (long s = 0; s < w->stages; s++) {
        float *x = work->at + (slot + s * apart) * d;
        if (s == 0)
            memcpy(x, work->start, count * d * sizeof(float));
        else
            for (long i = 0; i < count; i++) {
                const float reach = work->length[i] * w->reach[s];
#pragma omp simd
                for (long j = 0; j < d; j++) x[i * d + j] = work->start[i * d + j] + reach * slope[i * d + j];
            }
        slope = evaluate(w, count, slot + s * apart, w->layers - (!next && s == w->stages - 1), work);
        if (!next) continue;
        for (long i = 0; i < count; i++) {
            const float share = work->length[i] * w->share[s];
#pragma omp simd
            for (long j = 0; j < d; j++) next[i * d + j] += share * slope[i * d + j];
        }
    }
}

/* The sequences of a group that take step k before row n, and how long it is. */
INLINE long movers(const Flow *w, long first, long group, long n, long k, Work *work) {
    long count = 0;
    for (long r = 0; r < group; r++) {
        const long item = (first + r) * w->rows + n;
        if (w->count[item] > k) work->which[count] = r, work->length[count++] = w->length[item];
    }
    return count;
}

/* The GRU at row n: work->h becomes the state after it. */
INLINE void update(const Flow *w, long first, long group, long n, Work *work) {
    const long d = whole(w->sizes[0]), apart = w->rows * 3 * d;
    const float *input = w->input + (first * w->rows + n) * 3 * d;
    float *gates = work->gates, *reset = work->reset, *candidate = work->next;
    multiply((Product){.rows = group, .inner = w->sizes[0], .columns = 2 * d, .x = work->h, .x_row = d,
                       .matrix = w->gates, .start = input, .start_row = apart, .y = gates, .y_row = 2 * d});
#pragma omp simd
    for (long j = 0; j < group * 2 * d; j++) gates[j] = 0.5f + 0.5f * tanh_fast(0.5f * gates[j]);
    for (long r = 0; r < group; r++)
#pragma omp simd
        for (long j = 0; j < d; j++) reset[r * d + j] = gates[r * 2 * d + d + j] * work->h[r * d + j];
    multiply((Product){.rows = group, .inner = w->sizes[0], .columns = d, .x = reset, .x_row = d,
                       .matrix = w->candidate, .start = input + 2 * d, .start_row = apart, .y = candidate, .y_row = d});
    apply_tanh(group * d, candidate);
    for (long r = 0; r < group; r++) {
        const long item = (first + r) * w->rows + n;
        const float *z = gates + r * 2 * d, *c = candidate + r * d;
        float *h = work->h + r * d, *state = w->states + item * d;
        if (w->kept) {
            memcpy(w->kept + item * 3 * d, z, 2 * d * sizeof(float));
            memcpy(w->kept + item * 3 * d + 2 * d, c, d * sizeof(float));
        }
#pragma omp simd
        for (long j = 0; j < d; j++) h[j] += z[j] * (c[j] - h[j]);
        memcpy(state, h, d * sizeof(float));
    }
}

INLINE void forward_group(const Flow *w, long first, long group, Work *work) {
    const long d = whole(w->sizes[0]);
    const size_t row = d * sizeof(float);
    memset(work->h, 0, group * row);
    for (long n = 0; n < w->rows; n++) {
        for (long k = 0, count; (count = movers(w, first, group, n, k, work)); k++) {
            for (long i = 0; i < count; i++) {
                const long r = work->which[i], item = (first + r) * w->rows + n;
                memcpy(work->start + i * d, work->h + r * d, row);
                if (w->path) memcpy(w->path + (w->place[item] + k) * d, work->h + r * d, row);
            }
            step(w, count, 0, 0, work, work->next);
            for (long i = 0; i < count; i++) memcpy(work->h + work->which[i] * d, work->next + i * d, row);
        }
        for (long r = 0; w->path && r < group; r++) {
            const long item = (first + r) * w->rows + n;
            memcpy(w->path + (w->place[item] + w->count[item]) * d, work->h + r * d, row);
        }
        update(w, first, group, n, work);
    }
}

/* From the gradients of the slopes in `count` slots to those of the states there, which are returned. */
INLINE const float *pull_back(const Flow *w, long count, long slot, long sizes, Work *work) {
    long out = whole(w->sizes[w->layers]), at = work->slots * (sizes - out), matrix = 0;
    for (long l = 0; l < w->layers; l++) matrix += whole(w->sizes[l]) * whole(w->sizes[l + 1]);
    for (long l = w->layers - 1; l >= 0; l--) {
        const long in = whole(w->sizes[l]), before = at - work->slots * in;
        matrix -= in * out;
        float *restrict gx = work->g + before + slot * in;
        multiply((Product){.rows = count, .inner = w->sizes[l + 1], .columns = in, .x = work->g + at + slot * out,
                           .x_row = out, .matrix = w->field_back + matrix, .start = work->zeros, .y = gx, .y_row = in});
        if (l) {
            const float *restrict x = work->at + before + slot * in;
#pragma omp simd
            for (long j = 0; j < count * in; j++) gx[j] *= 1.0f - x[j] * x[j];
        }
        at = before, out = in;
    }
    return work->g + slot * out;
}

/* Adds what the used slots contribute to the gradients of the weights, and empties them. */
INLINE void add_weights(const Flow *w, Work *work) {
    const float *x = work->at, *g = work->g;
    float *to = w->g_field;
    for (long l = 0; l < w->layers; l++) {
        const long in = whole(w->sizes[l]), out = whole(w->sizes[l + 1]);
        g += work->slots * in;
        add_outer_products(work->used, in, out, x, g, to);
        x += work->slots * in, to += (in + 1) * out;
    }
    work->used = 0;
}

/* The adjoint of step(): gradients in work->next with respect to its end become those with respect to work->start. */
INLINE void unstep(const Flow *w, long count, long sizes, Work *work) {
    const long d = whole(w->sizes[0]), last = w->stages - 1;
    if (work->used + w->stages * count > work->slots) add_weights(w, work);
    step(w, count, work->used, count, work, NULL);
    float *lambda = work->gates, *next = work->next;
    memcpy(lambda, next, count * d * sizeof(float));
    const float *later = work->zeros;
    for (long s = last; s >= 0; s--) {
        const long slot = work->used + s * count;
        float *g = work->g + work->slots * (sizes - d) + slot * d;
        for (long i = 0; i < count; i++) {
            const float share = work->length[i] * w->share[s];
#pragma omp simd
            for (long j = 0; j < d; j++) g[i * d + j] = share * lambda[i * d + j];
            if (s == last) continue;
            const float reach = work->length[i] * w->reach[s + 1];
#pragma omp simd
            for (long j = 0; j < d; j++) g[i * d + j] += reach * later[i * d + j];
        }
        later = pull_back(w, count, slot, sizes, work);
#pragma omp simd
        for (long j = 0; j < count * d; j++) next[j] += later[j];
    }
    work->used += w->stages * count;
}

/* The adjoint of update(): work->h holds gradients. */
INLINE void unupdate(const Flow *w, long first, long group, long n, Work *work) {
    const long d = whole(w->sizes[0]), apart = w->rows * 3 * d;
    float *inputs = w->g_input + (first * w->rows + n) * 3 * d;
    for (long r = 0; r < group; r++) {
        const long item = (first + r) * w->rows + n;
        const float *restrict h = w->path + (w->place[item] + w->count[item]) * d;
        const float *restrict kept = w->kept + item * 3 * d;
        const float *restrict from = w->g_states + item * d;
        float *restrict g = work->h + r * d, *restrict to = inputs + r * apart;
#pragma omp simd
        for (long j = 0; j < d; j++) {
            const float z = kept[j], c = kept[2 * d + j], lambda = g[j] + from[j];
            to[j] = lambda * (c - h[j]) * z * (1.0f - z);
            to[2 * d + j] = lambda * z * (1.0f - c * c);
            g[j] = lambda * (1.0f - z);
        }
    }
    multiply((Product){.rows = group, .inner = w->sizes[0], .columns = d, .x = inputs + 2 * d, .x_row = apart,
                       .matrix = w->candidate_back, .start = work->zeros, .y = work->reset, .y_row = d});
    for (long r = 0; r < group; r++) {
        const long item = (first + r) * w->rows + n;
        const float *restrict h = w->path + (w->place[item] + w->count[item]) * d;
        const float *restrict kept = w->kept + item * 3 * d;
        const float *restrict reset = work->reset + r * d;
        float *restrict g = work->h + r * d, *restrict to = inputs + r * apart;
#pragma omp simd
        for (long j = 0; j < d; j++) {
            const float gate = kept[d + j];
            to[d + j] = reset[j] * h[j] * gate * (1.0f - gate);
            g[j] += reset[j] * gate;
        }
    }
    multiply((Product){.rows = group, .inner = 2 * d, .columns = d, .x = inputs, .x_row = apart,
                       .matrix = w->gates_back, .start = work->h, .start_row = d, .y = work->h, .y_row = d});
}

INLINE void backward_group(const Flow *w, long first, long group, Work *work) {
    const long d = whole(w->sizes[0]);
    const size_t row = d * sizeof(float);
    long sizes = 0;
    for (long l = 0; l <= w->layers; l++) sizes += whole(w->sizes[l]);
    memset(work->h, 0, group * row);
    for (long n = w->rows - 1; n >= 0; n--) {
        unupdate(w, first, group, n, work);
        long most = 0;
        for (long r = 0; r < group; r++) {
            const long count = w->count[(first + r) * w->rows + n];
            most = count > most ? count : most;
        }
        for (long k = most - 1; k >= 0; k--) {
            const long count = movers(w, first, group, n, k, work);
            for (long i = 0; i < count; i++) {
                const long r = work->which[i], item = (first + r) * w->rows + n;
                memcpy(work->start + i * d, w->path + (w->place[item] + k) * d, row);
                memcpy(work->next + i * d, work->h + r * d, row);
            }
            unstep(w, count, sizes, work);
            for (long i = 0; i < count; i++) memcpy(work->h + work->which[i] * d, work->next + i * d, row);
        }
    }
}

#define IN_GROUPS(what) \
    for (long b = begin; b < end; b += GROUP) what(w, b, end - b < GROUP ? end - b : GROUP, &work)

DISPATCH int flow_forward(const Flow *w, long begin, long end) {
    Work work;
    if (make_work(&work, w, GROUP, 0)) return 1;
    IN_GROUPS(forward_group);
    free(work.memory);
    return 0;
}

DISPATCH int flow_backward(const Flow *w, long begin, long end) {
    Work work;
    if (make_work(&work, w, PAIRS, 1)) return 1;
    IN_GROUPS(backward_group);
    add_weights(w, &work);
    free(work.memory);
    return 0;
}
