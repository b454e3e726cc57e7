/* The generalised spectral mixture kernel between all pairs of times of a series, in float32:
       k(t, s) = sum over i of u exp(-(t - s)^2 u^2) (a_t a_s + b_t b_s),  u = (q_t + q_s)^(-1/2),
   where q, a and b are functions of time for each component i: a squared length, and a point in the plane whose
   distance from the origin is a weight and whose angle is a phase, so that no pair needs a cosine of its own.

   The same computation as SpectralMixtureKernel in contiformer/backbones/nstka.py, which is its reference and takes
   over where no compiler was at hand. Nothing is kept for each pair and component: the backward pass computes it again.
   Second times come in whole vectors; what lies behind the last has q = a = b = 0 and adds nothing. */

#include "../common.h"

typedef struct {
    /* first times, second times, and second times with those behind the last */
    long mixtures, times, others, width;
    /* t [batch, times], s [batch, width] */
    const float *t, *s;
    /* q, a and b [batch, 3, mixtures, times] and [batch, 3, mixtures, width] */
    const float *points, *other_points;
    /* gradients of q, of the logarithm of the distance from the origin, and of the angle; in the same shapes */
    float *g_points, *g_other_points;
    /* [batch, times, others] */
    float *matrix;
    const float *g_matrix;
} Spectral;

/* Of one component: its functions at all times of a series, and at one. */
typedef struct {
    const float *s, *q, *a, *b;
} Column;

typedef struct {
    float t, q, a, b;
} Point;

INLINE Point point_at(const Spectral *w, long batch, long i, long n) {
    const long apart = w->mixtures * w->times;
    const float *q = w->points + (batch * 3 * w->mixtures + i) * w->times + n;
    return (Point){w->t[batch * w->times + n], q[0], q[apart], q[2 * apart]};
}

INLINE Column column_of(const Spectral *w, long batch, long i) {
    const long apart = w->mixtures * w->width;
    const float *q = w->other_points + (batch * 3 * w->mixtures + i) * w->width;
    return (Column){w->s + batch * w->width, q, q + apart, q + 2 * apart};
}

/* exp(-square). Beyond 1e-26 it is zero: what comes of still smaller numbers is denormal, and slow. */
INLINE float decay(float square) {
    return square > 60.0f ? 0.0f : exp_bounded(-square);
}

/* Adds one component to a row of the matrix. */
INLINE void add_component(long width, Point p, Column c, float *restrict sum) {
    const float *restrict s = c.s, *restrict q = c.q, *restrict a = c.a, *restrict b = c.b;
#pragma omp simd
    for (long j = 0; j < width; j++) {
        const float u = 1.0f / sqrtf(p.q + q[j]), gap = (p.t - s[j]) * u;
        sum[j] += u * decay(gap * gap) * (p.a * a[j] + p.b * b[j]);
    }
}

/* Items are rows of the matrix. */
DISPATCH int spectral_forward(const Spectral *w, long begin, long end) {
    /* an empty matrix may be NULL */
    if (!w->others) return 0;
    const size_t row = w->width * sizeof(float);
    float *sum = malloc(row);
    if (!sum) return 1;
    for (long item = begin; item < end; item++) {
        const long batch = item / w->times;
        memset(sum, 0, row);
        for (long i = 0; i < w->mixtures; i++)
            add_component(w->width, point_at(w, batch, i, item % w->times), column_of(w, batch, i), sum);
        memcpy(w->matrix + item * w->others, sum, w->others * sizeof(float));
    }
    free(sum);
    return 0;
}

/* Without the vectors of zeros at the end: causal attention asks for no gradient of what is later. */
INLINE long width_of(const float *g, long width) {
    for (; width; width -= LANES) {
        int some = 0;
        for (long k = width - LANES; k < width; k++) some |= g[k] != 0.0f;
        if (some) break;
    }
    return width;
}

/* One component and one row with gradients g: to[0], to[apart] and to[2 apart] get what belongs to the row's time, and
   the gradients at the others, gq, gr and gp, get what the row adds to them. */
INLINE void pull_component(long width, Point p, Column c, const float *restrict g, float *restrict gq,
                           float *restrict gr, float *restrict gp, float *to, long apart) {
    const float *restrict s = c.s, *restrict q = c.q, *restrict a = c.a, *restrict b = c.b;
    float sum_q = 0, sum_r = 0, sum_p = 0;
#pragma omp simd reduction(+ : sum_q, sum_r, sum_p)
    for (long j = 0; j < width; j++) {
        const float u = 1.0f / sqrtf(p.q + q[j]), gap = (p.t - s[j]) * u, square = gap * gap;
        const float gibbs = g[j] * u * decay(square);
        const float radial = gibbs * (p.a * a[j] + p.b * b[j]);
        const float length = radial * (u * u) * (square - 0.5f);
        /* a b' - b a', but exactly zero for a time and itself, and with all its digits for two that are close */
        const float phase = gibbs * (p.a * (b[j] - p.b) - p.b * (a[j] - p.a));
        sum_q += length, sum_r += radial, sum_p += phase;
        gq[j] += length, gr[j] += radial, gp[j] -= phase;
    }
    to[0] = sum_q, to[apart] = sum_r, to[2 * apart] = sum_p;
}

/* Items are the components of each series: all their gradients are sums within one item. */
DISPATCH int spectral_backward(const Spectral *w, long begin, long end) {
    const long mixtures = w->mixtures, width = w->width, others = w->others;
    float *g = calloc(width + 1, sizeof(float));
    if (!g) return 1;
    for (long item = begin; item < end; item++) {
        const long batch = item / mixtures, i = item % mixtures, first = batch * 3 * mixtures + i;
        float *to = w->g_points + first * w->times, *gq = w->g_other_points + first * width;
        float *gr = gq + mixtures * width, *gp = gr + mixtures * width;
        for (long j = 0; j < width; j++) gq[j] = gr[j] = gp[j] = 0;
        for (long n = 0; n < w->times; n++) {
            if (others) memcpy(g, w->g_matrix + (batch * w->times + n) * others, others * sizeof(float));
            pull_component(width_of(g, width), point_at(w, batch, i, n), column_of(w, batch, i), g, gq, gr, gp, to + n,
                           mixtures * w->times);
        }
    }
    free(g);
    return 0;
}
