/* The paper's algorithm: one differential equation for every pair of a key and a query time, in float32.

   Pair p starts at states[p] and goes from from[p] to to[p] in `steps` Runge-Kutta steps of equal length, as in
   contiformer/nn/pairwise.py, which is its reference and takes over where no compiler was at hand. The backward pass runs
   the trajectories of a group again: their states between steps stay in the caches, while those of all pairs would be
   gigabytes. */

#include "field.h"

typedef struct {
    long width, steps;
    float floor, amplitude, offset;
    /* [pairs] */
    const double *from, *to;
    /* [pairs, width] */
    const float *states;
    /* of the field, as in field.h */
    const float *matrix, *transposed, *slope, *bias, *gain, *shift;
    /* the states at the end [pairs, width]; gradients with respect to them and to the states */
    float *ends;
    const float *g_ends;
    float *g_states;
    /* gradients of the field, for this call alone */
    float *g_matrix, *g_slope, *g_bias, *g_gain, *g_shift;
} Pairs;

INLINE Field field_of(const Pairs *w) {
    return (Field){w->width, w->floor, w->amplitude, w->offset, w->matrix, w->transposed, w->slope, w->bias, w->gain,
                   w->shift, w->g_matrix, w->g_slope, w->g_bias, w->g_gain, w->g_shift};
}

INLINE void forward_group(const int count, const Pairs *w, const Field *f, long p, Walk *walk) {
    const long d = WIDTH(w);
    place_stages(count, d, walk);
    memcpy(walk->x, w->states + p * d, count * d * sizeof(float));
    cross(count, f, w->steps, w->from + p, w->to + p, walk->x, walk, NULL);
    memcpy(w->ends + p * d, walk->x, count * d * sizeof(float));
}

INLINE void backward_group(const int count, const Pairs *w, const Field *f, long p, Walk *walk) {
    const long d = WIDTH(w);
    place_stages(count, d, walk);
    memcpy(walk->x, w->states + p * d, count * d * sizeof(float));
    memcpy(walk->lambda, w->g_ends + p * d, count * d * sizeof(float));
    uncross(count, f, w->steps, w->from + p, w->to + p, NULL, walk);
    memcpy(w->g_states + p * d, walk->lambda, count * d * sizeof(float));
}

DISPATCH int pairs_forward(const Pairs *w, long begin, long end) {
    const Field f = field_of(w);
    Walk walk;
    float *memory = malloc(walk_size(w->width, 0) * sizeof(float));
    if (!memory) return 1;
    place_walk(&walk, memory, w->width, 0);
    long p = begin;
    for (; p + GROUP <= end; p += GROUP) forward_group(GROUP, w, &f, p, &walk);
    for (; p < end; p++) forward_group(1, w, &f, p, &walk);
    free(memory);
    return 0;
}

DISPATCH int pairs_backward(const Pairs *w, long begin, long end) {
    const Field whole = field_of(w);
    Walk walk;
    Sums sums;
    float *memory = malloc(walk_size(w->width, w->steps) * sizeof(float));
    if (!memory) return 1;
    if (make_sums(&sums, w->width)) {
        free(memory);
        return 1;
    }
    const Field f = summed_in(&sums, whole);
    place_walk(&walk, memory, w->width, w->steps);
    long p = begin;
    for (; p + GROUP <= end; p += GROUP) backward_group(GROUP, w, &f, p, &walk), end_group(&sums);
    for (; p < end; p++) backward_group(1, w, &f, p, &walk), end_group(&sums);
    hand_over(&sums, &whole);
    free(sums.all);
    free(memory);
    return 0;
}
