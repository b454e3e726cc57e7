/* The paper's field and Runge-Kutta steps along it, a few trajectories at a time, in float32.

   f(t, x) = amplitude * sigmoid(gain n + shift) + offset,  n = z / sqrt(|z|^2 + floor^2),  z = x M + slope t + bias;
   with floor < 0 there is no norm and the sigmoid's argument is z.

   All trajectories of a group take a step together, so that a number of M that is loaded is used for all of them. Every
   trajectory keeps its own times and steps. A sum over k runs in the same order in a group of any size, so values do not
   depend on who else is in it. */

#ifndef CONTIFORMER_FIELD_H
#define CONTIFORMER_FIELD_H

#include "matmul.h"

#define STAGES 4
/* Trajectories in a group: 6 rows of 2 vectors are the sums that 16 registers can hold beside what is added to them. */
#define GROUP 6
/* Widths are a multiple of LANES. */

/* y += x M for x, y [count, d], part by part of their width, and M [d / part, part, part] */
INLINE void add_products(long count, long d, long part, const float *x, const float *M, float *y) {
    for (long j = 0; j < d; j += part)
        multiply(count, part, part, (Matrix){x + j, d, 1}, M + j * part, part, y + j, d, y + j, d);
}

/* M += x^T g for x, g [rows, d] */
INLINE void add_outer_products(long rows, long d, long part, const float *x, const float *g, float *M) {
    for (long j = 0; j < d; j += part)
        multiply(part, part, rows, (Matrix){x + j, 1, d}, g + j, d, M + j * part, part, M + j * part, part);
}

/* One field, and where the gradients of its parameters are added. */
typedef struct {
    /* a part of the width does not see the others, nor does its norm */
    long width, part;
    float floor, amplitude, offset;
    /* matrix [parts, part, part], its transposes, and slope, bias, gain, shift [width] */
    const float *matrix, *transposed, *slope, *bias, *gain, *shift;
    float *g_matrix, *g_slope, *g_bias, *g_gain, *g_shift;
} Field;

/* Told to the compiler: no row of a width that is a multiple of LANES leaves a rest. */
#define WIDTH(of) ((of)->width / LANES * LANES)

/* What one evaluation of a group leaves for its adjoint: x, n, y [count, d], and the lengths [count, parts]. */
typedef struct {
    float *x, *n, *y, *length, time[GROUP];
} Stage;

/* The field at out->x and the times of out. */
INLINE void evaluate(const int count, const Field *f, Stage *out) {
    const long d = WIDTH(f);
    const float *slope = f->slope, *bias = f->bias;
    for (int r = 0; r < count; r++) {
        float *z = out->n + r * d;
        const float t = out->time[r];
#pragma omp simd
        for (long j = 0; j < d; j++) z[j] = bias[j] + slope[j] * t;
    }
    add_products(count, d, f->part, out->x, f->matrix, out->n);
    const long part = f->part / LANES * LANES;
    for (int r = 0; r < count; r++) {
        float *restrict z = out->n + r * d, *restrict y = out->y + r * d;
        if (f->floor >= 0) {
            const float *gain = f->gain, *shift = f->shift;
            float *length = out->length + r * (d / part);
            for (long from = 0; from < d; from += part) {
                float square = f->floor * f->floor;
#pragma omp simd reduction(+ : square)
                for (long j = from; j < from + part; j++) square += z[j] * z[j];
                const float inverse = 1.0f / (*length++ = sqrtf(square));
#pragma omp simd
                for (long j = from; j < from + part; j++) z[j] *= inverse;
            }
#pragma omp simd
            for (long j = 0; j < d; j++) y[j] = exp_begun(-(shift[j] + gain[j] * z[j]));
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
    const int count, const Field *f, const Stage *at, const float *g, float *inner, float *gz, float *gx
) {
    const long d = WIDTH(f), part = f->part / LANES * LANES;
    for (int r = 0; r < count; r++) {
        const float *restrict n = at->n + r * d, *restrict y = at->y + r * d, *restrict from = g + r * d;
        float *restrict i = inner + r * d, *restrict z = gz + r * d;
        if (f->floor >= 0) {
            const float *restrict gain = f->gain, *length = at->length + r * (d / part);
            for (long first = 0; first < d; first += part) {
                float along = 0;
#pragma omp simd reduction(+ : along)
                for (long j = first; j < first + part; j++) {
                    i[j] = f->amplitude * from[j] * y[j] * (1.0f - y[j]);
                    z[j] = i[j] * gain[j];
                    along += z[j] * n[j];
                }
                const float inverse = 1.0f / *length++;
#pragma omp simd
                for (long j = first; j < first + part; j++) z[j] = (z[j] - along * n[j]) * inverse;
            }
        } else {
#pragma omp simd
            for (long j = 0; j < d; j++) z[j] = i[j] = f->amplitude * from[j] * y[j] * (1.0f - y[j]);
        }
    }
    memset(gx, 0, count * d * sizeof(float));
    add_products(count, d, f->part, gz, f->transposed, gx);
}

/* Add what the evaluations of some stages contribute to the gradients of the parameters; their x, n, inner and gz follow
   each other. */
INLINE void add_parameters(
    const int count, const Field *f, const Stage *stage, const float *inner, const float *gz, int stages
) {
    const long d = WIDTH(f), rows = (long)stages * count;
    add_outer_products(rows, d, f->part, stage->x, gz, f->g_matrix);
    float *g_slope = f->g_slope, *g_bias = f->g_bias;
    for (long j = 0; j < d; j += LANES) {
        Lanes bias = AT(g_bias, j), slope = AT(g_slope, j);
        for (long p = 0; p < rows; p++) {
            const Lanes g = AT(gz + p * d, j);
            bias += g, slope += stage[p / count].time[p % count] * g;
        }
        PUT(g_bias, j) = bias, PUT(g_slope, j) = slope;
    }
    if (f->floor < 0) return;
    float *g_gain = f->g_gain, *g_shift = f->g_shift;
    for (long j = 0; j < d; j += LANES) {
        Lanes gain = AT(g_gain, j), shift = AT(g_shift, j);
        for (long p = 0; p < rows; p++) {
            const Lanes i = AT(inner + p * d, j);
            shift += i, gain += i * AT(stage->n + p * d, j);
        }
        PUT(g_gain, j) = gain, PUT(g_shift, j) = shift;
    }
}

/* Gradients of a field's parameters: in float within a group, in double over the groups. One float for all of them would
   soon be too large to feel what is added. */
typedef struct {
    long numbers;
    double *all;
    float *group;
} Sums;

static int make_sums(Sums *sums, long width, long part) {
    sums->numbers = (part + 4) * width;
    sums->all = calloc(sums->numbers, sizeof(double) + sizeof(float));
    if (!sums->all) return 1;
    sums->group = (float *)(sums->all + sums->numbers);
    return 0;
}

/* The field with its gradients in the sums of a group. */
INLINE Field summed_in(const Sums *sums, Field f) {
    float *rows = sums->group + f.width * f.part;
    f.g_matrix = sums->group, f.g_slope = rows, f.g_bias = rows + f.width;
    f.g_gain = rows + 2 * f.width, f.g_shift = rows + 3 * f.width;
    return f;
}

INLINE void end_group(Sums *sums) {
#pragma omp simd
    for (long j = 0; j < sums->numbers; j++) sums->all[j] += sums->group[j], sums->group[j] = 0;
}

/* From the sums, which begin anew, to the gradients of the field. */
INLINE void hand_over(Sums *sums, const Field *f) {
    const long d = f->width;
    float *const to[] = {f->g_slope, f->g_bias, f->g_gain, f->g_shift};
    const double *from = sums->all;
    for (long j = 0; j < d * f->part; j++) f->g_matrix[j] = (float)*from++;
    for (int row = 0; row < (f->floor < 0 ? 2 : 4); row++)
        for (long j = 0; j < d; j++) to[row][j] = (float)*from++;
    memset(sums->all, 0, sums->numbers * sizeof(double));
}

/* One step of each trajectory of a group. */
typedef struct {
    double from[GROUP], length[GROUP];
} Step;

/* The four stages of a step from x [count, d], and, where next is given, the states after it. */
INLINE void stages(const int count, const Field *f, const Step *step, const float *x, Stage *stage, float *next) {
    const long d = WIDTH(f);
    memcpy(stage->x, x, count * d * sizeof(float));
    for (int r = 0; r < count; r++) {
        const double t = step->from[r], h = step->length[r];
        stage[0].time[r] = (float)t;
        stage[1].time[r] = stage[2].time[r] = (float)(t + h / 2);
        stage[3].time[r] = (float)(t + h);
    }
    evaluate(count, f, stage);
    for (int s = 1; s < STAGES; s++) {
        for (int r = 0; r < count; r++) {
            const float reach = (float)(s < STAGES - 1 ? step->length[r] / 2 : step->length[r]);
            const float a = reach * f->amplitude, o = reach * f->offset;
            const float *restrict y = stage[s - 1].y + r * d, *restrict start = x + r * d;
            float *restrict moved = stage[s].x + r * d;
#pragma omp simd
            for (long j = 0; j < d; j++) moved[j] = start[j] + o + a * y[j];
        }
        evaluate(count, f, stage + s);
    }
    if (!next) return;
    for (int r = 0; r < count; r++) {
        const float h = (float)step->length[r], a = (float)(step->length[r] / 6) * f->amplitude, o = h * f->offset;
        const float *y0 = stage[0].y + r * d, *y1 = stage[1].y + r * d, *y2 = stage[2].y + r * d, *y3 = stage[3].y + r * d;
        const float *start = x + r * d;
        float *end = next + r * d;
#pragma omp simd
        for (long j = 0; j < d; j++) end[j] = start[j] + o + a * (y0[j] + 2 * (y1[j] + y2[j]) + y3[j]);
    }
}

/* What a group needs to walk; arrays are [count, d], those of the stages [STAGES, count, d], path [substeps, count, d]. */
typedef struct {
    float *path, *x, *lambda, *g, *inner, *gz, *gx;
    Stage stage[STAGES];
} Walk;

INLINE long walk_size(long width, long substeps) {
    return (6 * STAGES + substeps + 3) * GROUP * width + STAGES * GROUP * (width / LANES);
}

/* Takes its arrays from so many numbers at m. */
INLINE void place_walk(Walk *walk, float *m, long width, long substeps) {
    const long all = GROUP * width;
    float *x = m, *n = m + STAGES * all, *y = m + 2 * STAGES * all;
    m += 3 * STAGES * all;
    for (int s = 0; s < STAGES; s++) walk->stage[s].x = x, walk->stage[s].n = n, walk->stage[s].y = y;
    walk->inner = m, m += STAGES * all;
    walk->gz = m, m += STAGES * all;
    walk->gx = m, m += STAGES * all;
    walk->path = m, m += substeps * all;
    walk->x = m, m += all;
    walk->lambda = m, m += all;
    walk->g = m, m += all;
    for (int s = 0; s < STAGES; s++, m += GROUP * (width / LANES)) walk->stage[s].length = m;
}

/* Stages of a group of this size follow each other without gaps. */
INLINE void place_stages(const int count, long d, Walk *walk) {
    for (int s = 1; s < STAGES; s++) {
        walk->stage[s].x = walk->stage[0].x + s * count * d;
        walk->stage[s].n = walk->stage[0].n + s * count * d;
        walk->stage[s].y = walk->stage[0].y + s * count * d;
    }
}

/* The field at walk->x and these times, as the first stage. */
INLINE void evaluate_at(const int count, const Field *f, const double *times, Walk *walk) {
    for (int r = 0; r < count; r++) walk->stage->time[r] = (float)times[r];
    memcpy(walk->stage->x, walk->x, count * WIDTH(f) * sizeof(float));
    evaluate(count, f, walk->stage);
}

/* The adjoint of evaluate_at(), given walk->g with respect to the field; walk->gx is left. */
INLINE void unevaluate_at(const int count, const Field *f, const double *times, Walk *walk) {
    evaluate_at(count, f, times, walk);
    pull_back(count, f, walk->stage, walk->g, walk->inner, walk->gz, walk->gx);
    add_parameters(count, f, walk->stage, walk->inner, walk->gz, 1);
}

/* From `from` to `to` in substeps; path, where given, keeps the states before each of them. */
INLINE void cross(
    const int count, const Field *f, long substeps, const double *from, const double *to, float *x, Walk *walk, float *path
) {
    const long d = WIDTH(f);
    Step step;
    for (int r = 0; r < count; r++) step.length[r] = (to[r] - from[r]) / substeps;
    for (long s = 0; s < substeps; s++) {
        if (path) memcpy(path + s * count * d, x, count * d * sizeof(float));
        for (int r = 0; r < count; r++) step.from[r] = from[r] + s * step.length[r];
        stages(count, f, &step, x, walk->stage, x);
    }
}

/* The adjoint of cross(): lambda with respect to the end becomes lambda with respect to the beginning; slope, where
   given, is the gradient of the field there. */
INLINE void uncross(
    const int count, const Field *f, long substeps, const double *from, const double *to, const float *slope, Walk *walk
) {
    const long d = WIDTH(f), size = count * d;
    const float *start = walk->x;
    if (substeps > 1) {
        cross(count, f, substeps, from, to, walk->x, walk, walk->path);
        start = walk->path;
    }
    Step step;
    for (int r = 0; r < count; r++) step.length[r] = (to[r] - from[r]) / substeps;
    for (long s = substeps - 1; s >= 0; s--) {
        for (int r = 0; r < count; r++) step.from[r] = from[r] + s * step.length[r];
        stages(count, f, &step, start + s * size, walk->stage, NULL);
        for (int i = STAGES - 1; i >= 0; i--) {
            for (int r = 0; r < count; r++) {
                const double h = step.length[r];
                const float c = (float)(i == 0 || i == STAGES - 1 ? h / 6 : h / 3);
                const float k = (float)(i == STAGES - 2 ? h : h / 2);
                const float *restrict lambda = walk->lambda + r * d, *restrict later = walk->gx + (i + 1) * size + r * d;
                float *restrict g = walk->g + r * d;
                if (i == STAGES - 1) {
#pragma omp simd
                    for (long j = 0; j < d; j++) g[j] = c * lambda[j];
                } else {
#pragma omp simd
                    for (long j = 0; j < d; j++) g[j] = c * lambda[j] + k * later[j];
                }
                if (slope && i == 0 && s == 0) {
#pragma omp simd
                    for (long j = 0; j < d; j++) g[j] += slope[r * d + j];
                }
            }
            float *inner = walk->inner + i * size, *gz = walk->gz + i * size;
            pull_back(count, f, walk->stage + i, walk->g, inner, gz, walk->gx + i * size);
        }
        add_parameters(count, f, walk->stage, walk->inner, walk->gz, STAGES);
        float *restrict lambda = walk->lambda;
        const float *restrict gx = walk->gx;
#pragma omp simd
        for (long j = 0; j < size; j++) lambda[j] += gx[j] + gx[size + j] + gx[2 * size + j] + gx[3 * size + j];
    }
}

#endif
