/* A state driven by a path, dz = f(z) dX, by the classical Runge-Kutta method, several sequences at a time, in float32.

   f(z) [d, channels] comes out of a network of linear layers with ReLU between them and a tanh at its end. A sequence
   takes its own number of steps, and behind the last its state stays. In stage s of a step the state moves by
       slope_s = sum over j of tanh(b_j + y W_j) dX_j,  y the last hidden layer at z + reach_s slope_{s - 1}.

   The same computation as NeuralCDE._advance in contiformer/backbones/neural_cde.py, which is its reference and takes
   over where no compiler was at hand. The last layer is nearly all the work: it goes channel by channel, [units, d] of
   the weights at a time for a whole group of sequences, so that neither f(z) nor its gradient is ever written down.
   The backward pass has the states of all stages from the forward pass, and computes f there once more. A channel that
   does not move in any sequence is passed over: it would add zeros. */

#include <stdint.h>

#include "products.h"

#define STAGES 4
/* Sequences in a group: a weight comes once from the second cache for all of them. */
#define GROUP 32

typedef struct {
    long steps, channels, layers;
    /* of the layers: numbers before, between and behind them [layers + 1]; the first and the last are the state's d */
    const int64_t *sizes;
    /* how many of the steps each sequence takes [batch] */
    const int64_t *count;
    /* dX of each step, by the slope at its start, middle and end [batch, steps, 3, channels] */
    const float *pieces;
    /* layers one after the other, each [in + 1, out] with the bias as the last row, and of the last as many as there
       are channels; and the same, each [out, in] */
    const float *field, *field_back;
    /* states before the first and after each step [batch, steps + 1, d]; the first is given */
    float *path;
    /* kept for the backward pass, or NULL: states of the stages [batch, steps, STAGES, d] */
    float *kept;
    const float *g_path;
    /* gradients: of the first states [batch, d]; of the pieces, or NULL; of the field for this call alone */
    float *g_start, *g_pieces, *g_field;
} Drive;

/* Stage s is at z + reach[s] slope[s - 1], the step ends at z + sum of share[s] slope[s], and piece[s] drives it. */
static const float reach[STAGES + 1] = {0.0f, 0.5f, 0.5f, 1.0f, 0.0f};
static const float share[STAGES] = {1.0f / 6, 1.0f / 3, 1.0f / 3, 1.0f / 6};
static const int piece[STAGES] = {0, 1, 1, 2};

/* A group's working memory, [GROUP, size] each: at and g are what enters each layer and its gradient, for all layers
   one after the other; the rest is as wide as the state: the slope of a stage, a column of f(z), what a step adds to
   the gradients lambda of the states, and the gradients from which a stage is pulled back. */
typedef struct {
    float *memory, *at, *g, *slope, *matrix, *more, *lambda, *from, *zeros;
    /* of the sequences that take this step */
    long which[GROUP];
    const float *dx[GROUP];
    float *g_dx[GROUP];
} Work;

static int make_work(Work *work, const Drive *w) {
    const long d = whole(w->sizes[0]);
    long sizes = 0, widest = 0;
    for (long l = 0; l < w->layers; l++) {
        const long size = whole(w->sizes[l]);
        sizes += size, widest = size > widest ? size : widest;
    }
    float *m = work->memory = calloc(GROUP * (2 * sizes + 5 * d) + widest, sizeof(float));
    if (!m) return 1;
    work->at = m, m += GROUP * sizes;
    work->g = m, m += GROUP * sizes;
    work->slope = m, m += GROUP * d;
    work->matrix = m, m += GROUP * d;
    work->more = m, m += GROUP * d;
    work->lambda = m, m += GROUP * d;
    work->from = m, m += GROUP * d;
    work->zeros = m;
    return 0;
}

/* Where the last layer's input, its weights and its weights transposed begin. */
typedef struct {
    long at, field, back;
} Last;

INLINE Last last_layer(const Drive *w) {
    Last last = {0, 0, 0};
    for (long l = 0; l + 1 < w->layers; l++) {
        const long in = whole(w->sizes[l]), out = whole(w->sizes[l + 1]);
        last.at += GROUP * in, last.field += (in + 1) * out, last.back += in * out;
    }
    return last;
}

/* The hidden layers, for `count` sequences. */
INLINE void evaluate_hidden(const Drive *w, long count, Work *work) {
    float *x = work->at;
    const float *matrix = w->field;
    for (long l = 0; l + 1 < w->layers; l++) {
        const long in = whole(w->sizes[l]), out = whole(w->sizes[l + 1]);
        float *y = x + GROUP * in;
        multiply((Product){.rows = count, .inner = w->sizes[l], .columns = out, .x = x, .x_row = in, .matrix = matrix,
                           .start = matrix + in * out, .y = y, .y_row = out});
        /* written so that what is no number stays so */
#pragma omp simd
        for (long j = 0; j < count * out; j++) y[j] = 0.0f > y[j] ? 0.0f : y[j];
        matrix += (in + 1) * out, x = y;
    }
}

/* The sequences of a group that take step t. */
INLINE long movers(const Drive *w, long first, long group, long t, Work *work) {
    long count = 0;
    for (long r = 0; r < group; r++)
        if (w->count[first + r] > t) work->which[count++] = first + r;
    return count;
}

/* What drives them in stage s. */
INLINE void choose_pieces(const Drive *w, long count, long t, long s, Work *work) {
    for (long i = 0; i < count; i++) {
        const long place = ((work->which[i] * w->steps + t) * 3 + piece[s]) * w->channels;
        work->dx[i] = w->pieces + place;
        work->g_dx[i] = w->g_pieces ? w->g_pieces + place : NULL;
    }
}

/* Whether channel j moves in any of them. */
INLINE int moves(long count, long j, const Work *work) {
    for (long i = 0; i < count; i++)
        if (work->dx[i][j] != 0.0f) return 1;
    return 0;
}

/* Column j of f(z), [count, d] of it, before the tanh. */
INLINE void column(const Drive *w, long count, long j, Last last, Work *work) {
    const long d = whole(w->sizes[0]), units = whole(w->sizes[w->layers - 1]);
    const float *matrix = w->field + last.field + j * (units + 1) * d;
    multiply((Product){.rows = count, .inner = w->sizes[w->layers - 1], .columns = d, .x = work->at + last.at,
                       .x_row = units, .matrix = matrix, .start = matrix + units * d, .y = work->matrix, .y_row = d});
}

/* work->slope = f(z) dX at the states that lie in work->at. */
INLINE void drive(const Drive *w, long count, Last last, Work *work) {
    const long d = whole(w->sizes[0]);
    evaluate_hidden(w, count, work);
    memset(work->slope, 0, count * d * sizeof(float));
    for (long j = 0; j < w->channels; j++) {
        if (!moves(count, j, work)) continue;
        column(w, count, j, last, work);
        for (long i = 0; i < count; i++) {
            const float dx = work->dx[i][j];
            const float *restrict x = work->matrix + i * d;
            float *restrict slope = work->slope + i * d;
#pragma omp simd
            for (long k = 0; k < d; k++) slope[k] += dx * tanh_fast(x[k]);
        }
    }
}

INLINE void forward_group(const Drive *w, long first, long group, Work *work) {
    const long d = whole(w->sizes[0]), apart = (w->steps + 1) * d;
    const size_t row = d * sizeof(float);
    const Last last = last_layer(w);
    for (long t = 0; t < w->steps; t++) {
        const long count = movers(w, first, group, t, work);
        for (long r = first; r < first + group; r++) {
            float *state = w->path + r * apart + t * d;
            memcpy(state + d, state, row);
        }
        for (long s = 0; count && s < STAGES; s++) {
            for (long i = 0; i < count; i++) {
                const float *restrict start = w->path + work->which[i] * apart + t * d;
                const float *restrict slope = work->slope + i * d;
                float *restrict x = work->at + i * d;
#pragma omp simd
                for (long k = 0; k < d; k++) x[k] = s ? start[k] + reach[s] * slope[k] : start[k];
                if (w->kept) memcpy(w->kept + ((work->which[i] * w->steps + t) * STAGES + s) * d, x, row);
            }
            choose_pieces(w, count, t, s, work);
            drive(w, count, last, work);
            for (long i = 0; i < count; i++) {
                const float *restrict slope = work->slope + i * d;
                float *restrict next = w->path + work->which[i] * apart + (t + 1) * d;
#pragma omp simd
                for (long k = 0; k < d; k++) next[k] += share[s] * slope[k];
            }
        }
    }
}

/* From the gradients of the slopes, to which a column adds its values times dX_j, to those of its arguments, in their
   place. */
INLINE void undo_tanh(long d, long count, long j, Work *work) {
    apply_tanh(count * d, work->matrix);
    for (long i = 0; i < count; i++) {
        const float dx = work->dx[i][j];
        const float *restrict from = work->from + i * d;
        float *restrict y = work->matrix + i * d;
        if (work->g_dx[i]) {
            float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
            for (long k = 0; k < d; k++) sum += from[k] * y[k];
            work->g_dx[i][j] += sum;
        }
#pragma omp simd
        for (long k = 0; k < d; k++) y[k] = from[k] * dx * (1.0f - y[k] * y[k]);
    }
}

/* From gradients of the slopes, in work->from, to those of the states that lie in work->at, in work->g; what this
   contributes to the gradients of the weights is added to them. */
INLINE void pull_back(const Drive *w, long count, Last last, Work *work) {
    const long d = whole(w->sizes[0]), units = whole(w->sizes[w->layers - 1]);
    long at = last.at, out = units, field = last.field, back = last.back;
    float *g = work->g + at;
    evaluate_hidden(w, count, work);
    memset(g, 0, count * units * sizeof(float));
    for (long j = 0; j < w->channels; j++) {
        if (!w->g_pieces && !moves(count, j, work)) continue;
        column(w, count, j, last, work);
        undo_tanh(d, count, j, work);
        add_outer_products(count, units, d, work->at + at, work->matrix, w->g_field + field + j * (units + 1) * d);
        multiply((Product){.rows = count, .inner = w->sizes[0], .columns = units, .x = work->matrix, .x_row = d,
                           .matrix = w->field_back + back + j * d * units, .start = g, .start_row = units, .y = g,
                           .y_row = units});
    }
    for (long l = w->layers - 2; l >= 0; l--) {
        const long in = whole(w->sizes[l]);
        const float *restrict y = work->at + at;
        float *restrict gy = work->g + at;
#pragma omp simd
        for (long j = 0; j < count * out; j++) gy[j] = y[j] <= 0.0f ? 0.0f : gy[j];
        at -= GROUP * in, field -= (in + 1) * out, back -= in * out;
        add_outer_products(count, in, out, work->at + at, gy, w->g_field + field);
        multiply((Product){.rows = count, .inner = w->sizes[l + 1], .columns = in, .x = gy, .x_row = out,
                           .matrix = w->field_back + back, .start = work->zeros, .y = work->g + at, .y_row = in});
        out = in;
    }
}

/* The adjoint of step t: work->lambda, the gradients of its ends, become those of its starts. */
INLINE void unstep(const Drive *w, long first, long count, long t, Last last, Work *work) {
    const long d = whole(w->sizes[0]);
    memset(work->more, 0, count * d * sizeof(float));
    for (long s = STAGES - 1; s >= 0; s--) {
        for (long i = 0; i < count; i++) {
            const long item = work->which[i];
            const float *restrict lambda = work->lambda + (item - first) * d, *restrict later = work->g + i * d;
            float *restrict from = work->from + i * d;
            memcpy(work->at + i * d, w->kept + ((item * w->steps + t) * STAGES + s) * d, d * sizeof(float));
            if (s == STAGES - 1)
#pragma omp simd
                for (long k = 0; k < d; k++) from[k] = share[s] * lambda[k];
            else
#pragma omp simd
                for (long k = 0; k < d; k++) from[k] = share[s] * lambda[k] + reach[s + 1] * later[k];
        }
        choose_pieces(w, count, t, s, work);
        pull_back(w, count, last, work);
#pragma omp simd
        for (long k = 0; k < count * d; k++) work->more[k] += work->g[k];
    }
    for (long i = 0; i < count; i++) {
        float *restrict lambda = work->lambda + (work->which[i] - first) * d;
        const float *restrict more = work->more + i * d;
#pragma omp simd
        for (long k = 0; k < d; k++) lambda[k] += more[k];
    }
}

INLINE void backward_group(const Drive *w, long first, long group, Work *work) {
    const long d = whole(w->sizes[0]), apart = (w->steps + 1) * d;
    const Last last = last_layer(w);
    memset(work->lambda, 0, group * d * sizeof(float));
    for (long t = w->steps; t >= 0; t--) {
        for (long r = 0; r < group; r++) {
            const float *restrict from = w->g_path + (first + r) * apart + t * d;
            float *restrict lambda = work->lambda + r * d;
#pragma omp simd
            for (long k = 0; k < d; k++) lambda[k] += from[k];
        }
        const long count = t ? movers(w, first, group, t - 1, work) : 0;
        if (count) unstep(w, first, count, t - 1, last, work);
    }
    memcpy(w->g_start + first * d, work->lambda, group * d * sizeof(float));
}

#define IN_GROUPS(what) \
    for (long b = begin; b < end; b += GROUP) what(w, b, end - b < GROUP ? end - b : GROUP, &work)

DISPATCH int drive_forward(const Drive *w, long begin, long end) {
    Work work;
    if (make_work(&work, w)) return 1;
    IN_GROUPS(forward_group);
    free(work.memory);
    return 0;
}

DISPATCH int drive_backward(const Drive *w, long begin, long end) {
    Work work;
    if (make_work(&work, w)) return 1;
    IN_GROUPS(backward_group);
    free(work.memory);
    return 0;
}
