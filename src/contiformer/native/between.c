/* Means over the time between a query and a key by a rule with a few points, in float32: what the paper's Gauss-Legendre rules
   cost is one evaluation of path and series at every point of every pair. The reference is Pairs in contiformer/nn/mixing.py. */

#include "common.h"

/* Points of a rule, at most, and terms of a series. */
#define POINTS 8
#define TERMS 64
/* Steps from cell to cell before a search. */
#define NEAR 8

typedef struct {
    long heads, rows, keys, knots, powers, pieces, terms, width, points;
    int causal;
    /* [points], in [0, 1] and with a sum of 1 */
    const double *node, *share;
    /* [batch, rows]: of the queries, and up to when the path may be read; [batch, keys]; [batch, knots]; [batch, pieces + 1] */
    const double *time, *known, *key_time, *knot, *edge;
    /* [batch, knots, powers, heads, width]; [batch, heads, keys, pieces, terms, width] */
    const float *path, *series;
    /* [batch, heads, rows, keys]; [batch, heads, rows, width] */
    float *scores;
    const float *weights;
    float *out;
    const float *g_scores, *g_out;
    float *g_path, *g_series, *g_weights;
} Between;

/* Times of one sequence. */
typedef struct {
    const double *time, *known, *key_time, *knot, *edge;
    /* numbers of the path from one power to the next, and from one cell to the next */
    long power_step, cell_step;
    long last_piece; /* that is not empty */
} Sequence;

/* A point between a query and a key: the piece of the series and its polynomials there, the cell of the path and where in it. */
typedef struct {
    long piece, cell;
    float share, place, basis[TERMS];
} Point;

INLINE Sequence sequence_of(const Between *w, long item) {
    const long batch = item / w->heads, power = w->heads * w->width;
    Sequence q = {w->time + batch * w->rows, w->known + batch * w->rows, w->key_time + batch * w->keys,
                  w->knot + batch * w->knots, w->edge + batch * (w->pieces + 1), power, w->powers * power, 0};
    for (long p = 0; p < w->pieces; p++) q.last_piece += q.edge[p + 1] > q.edge[p];
    q.last_piece = q.last_piece > 0 ? q.last_piece - 1 : 0;
    return q;
}

INLINE const float *path_of(const Between *w, long item) {
    return w->path + item / w->heads * w->knots * w->powers * w->heads * w->width + item % w->heads * w->width;
}

/* The cell of a time: few steps from the one before where queries come in order, halving the rest where they do not. */
INLINE long cell_of(const double *knot, long knots, double time, long near) {
    for (int step = 0; step < NEAR; step++) {
        if (near > 0 && knot[near] > time)
            near--;
        else if (near + 1 < knots && knot[near + 1] <= time)
            near++;
        else
            return near;
    }
    long low = 0, high = knots;
    while (high - low > 1) {
        const long middle = (low + high) / 2;
        if (knot[middle] <= time)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* `reads`, a constant: whether the path is asked for as well. */
INLINE void locate(const Between *w, const Sequence *q, const int reads, long key, long row, int number, Point *point) {
    const double start = q->key_time[key], time = start + (q->time[row] - start) * w->node[number];
    long piece = 0;
    while (piece < q->last_piece && q->edge[piece + 1] <= time) piece++;
    const double half = (q->edge[piece + 1] - q->edge[piece]) / 2;
    double x = half > 0 ? (time - q->edge[piece]) / half - 1 : 0;
    x = x < -1 ? -1 : x > 1 ? 1 : x;
    double before = 1, now = x;
    for (long m = 0; m < w->terms; m++) {
        point->basis[m] = (float)before;
        const double next = 2 * x * now - before;
        before = now;
        now = next;
    }
    point->piece = piece;
    point->share = (float)w->share[number];
    if (!reads) return;
    const double read = w->causal && q->known[row] < time ? q->known[row] : time;
    const long cell = point->cell = cell_of(q->knot, w->knots, read, point->cell);
    const double length = cell + 1 < w->knots ? q->knot[cell + 1] - q->knot[cell] : 0;
    const double place = length > 0 ? (read - q->knot[cell]) / length : 0;
    point->place = (float)(place < 0 ? 0 : place > 1 ? 1 : place);
}

/* The series, and the path, at a point. */
INLINE void curve(const Between *w, const long width, const float *series, const Point *point, float *to) {
    const float *term = series + point->piece * w->terms * width;
    for (long j = 0; j < width; j++) to[j] = 0;
    for (long m = 0; m < w->terms; m++, term += width)
#pragma omp simd
        for (long j = 0; j < width; j++) to[j] += point->basis[m] * term[j];
}

INLINE void query(const Between *w, const Sequence *q, const long width, const float *path, const Point *point, float *to) {
    const float *term = path + point->cell * q->cell_step + (w->powers - 1) * q->power_step;
    for (long j = 0; j < width; j++) to[j] = term[j];
    for (long k = w->powers - 2; k >= 0; k--) {
        term -= q->power_step;
#pragma omp simd
        for (long j = 0; j < width; j++) to[j] = to[j] * point->place + term[j];
    }
}

INLINE float dot(const long width, const float *a, const float *b) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long j = 0; j < width; j++) sum += a[j] * b[j];
    return sum;
}

/* gradient of the series += factor * basis x direction */
INLINE void spread(const Between *w, const long width, const Point *point, float factor, const float *direction, float *g_series) {
    float *term = g_series + point->piece * w->terms * width;
    for (long m = 0; m < w->terms; m++, term += width) {
        const float times = factor * point->basis[m];
#pragma omp simd
        for (long j = 0; j < width; j++) term[j] += times * direction[j];
    }
}

/* What is done at every point of every pair that may see each other. */
typedef enum { SCORES, SCORES_BACK, VALUES, VALUES_BACK } Task;

INLINE void visit(const Between *w, const Task task, const long width, long item, float *curved, float *queried) {
    const Sequence q = sequence_of(w, item);
    const int reads = task == SCORES || task == SCORES_BACK, back = task == SCORES_BACK || task == VALUES_BACK;
    const float *path = reads ? path_of(w, item) : NULL;
    float *g_path = task == SCORES_BACK ? w->g_path + (path - w->path) : NULL;
    const long length = w->pieces * w->terms * width;
    Point points[POINTS];
    for (long n = 0; n < w->keys; n++) {
        const float *series = w->series + (item * w->keys + n) * length;
        float *g_series = back ? w->g_series + (item * w->keys + n) * length : NULL;
        for (int p = 0; p < w->points; p++) points[p].cell = n < w->knots ? n : w->knots - 1;
        for (long r = 0; r < w->rows; r++) {
            if (w->causal && q.time[r] < q.key_time[n]) continue;
            const long pair = (item * w->rows + r) * w->keys + n;
            const float *g_out = task == VALUES_BACK ? w->g_out + (item * w->rows + r) * width : NULL;
            float *out = task == VALUES ? w->out + (item * w->rows + r) * width : NULL;
            for (int p = 0; p < w->points; p++) {
                Point *point = points + p;
                locate(w, &q, reads, n, r, p, point);
                curve(w, width, series, point, curved);
                if (reads) query(w, &q, width, path, point, queried);
                if (task == SCORES) w->scores[pair] += point->share * dot(width, curved, queried);
                if (task == SCORES_BACK) {
                    float factor = point->share * w->g_scores[pair];
                    spread(w, width, point, factor, queried, g_series);
                    float *term = g_path + point->cell * q.cell_step;
                    for (long k = 0; k < w->powers; k++, term += q.power_step, factor *= point->place)
#pragma omp simd
                        for (long j = 0; j < width; j++) term[j] += factor * curved[j];
                }
                if (task == VALUES)
#pragma omp simd
                    for (long j = 0; j < width; j++) out[j] += point->share * w->weights[pair] * curved[j];
                if (task == VALUES_BACK) {
                    w->g_weights[pair] += point->share * dot(width, curved, g_out);
                    spread(w, width, point, point->share * w->weights[pair], g_out, g_series);
                }
            }
        }
    }
}

INLINE int visit_all(const Between *w, const Task task, long begin, long end) {
    float *memory = malloc(2 * w->width * sizeof(float));
    if (!memory) return 1;
    for (long item = begin; item < end; item++) {
        if (w->width == LANES)
            visit(w, task, LANES, item, memory, memory + LANES);
        else
            visit(w, task, w->width, item, memory, memory + w->width);
    }
    free(memory);
    return 0;
}

DISPATCH int between_scores(const Between *w, long begin, long end) { return visit_all(w, SCORES, begin, end); }

DISPATCH int between_scores_back(const Between *w, long begin, long end) { return visit_all(w, SCORES_BACK, begin, end); }

DISPATCH int between_values(const Between *w, long begin, long end) { return visit_all(w, VALUES, begin, end); }

DISPATCH int between_values_back(const Between *w, long begin, long end) { return visit_all(w, VALUES_BACK, begin, end); }
