/* Means over the time between a query and a key by a rule with a few points, in float32: what the paper's Gauss-Legendre rules
   cost is one evaluation of path and series at every point of every pair. The reference is Pairs in contiformer/nn/mixing.py. */

#include "common.h"

/* Places for the points of a rule, of which there are at most five, and terms of a series. */
#define POINTS LANES
#define TERMS 64
/* Steps from cell to cell before a search. */
#define NEAR 8

typedef double Doubles __attribute__((vector_size(POINTS * sizeof(double))));

typedef struct {
    /* an item is a sequence, or one of so many groups of its heads; `width` is a whole number of vectors */
    long heads, groups, rows, keys, knots, powers, pieces, terms, width, points;
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

/* The points between a query and a key: pieces of the series and polynomials there, cells of the path and where in them. They
   are the same for all heads. */
typedef struct {
    long piece[POINTS], cell[POINTS];
    float share[POINTS], place[POINTS], basis[TERMS][POINTS];
    /* shares of the polynomials added up, where all points lie in one piece */
    int together;
    float mean[TERMS];
} Points;

INLINE Sequence sequence_of(const Between *w, long batch) {
    const long power = w->heads * w->width;
    Sequence q = {w->time + batch * w->rows, w->known + batch * w->rows, w->key_time + batch * w->keys,
                  w->knot + batch * w->knots, w->edge + batch * (w->pieces + 1), power, w->powers * power, 0};
    for (long p = 0; p < w->pieces; p++) q.last_piece += q.edge[p + 1] > q.edge[p];
    q.last_piece = q.last_piece > 0 ? q.last_piece - 1 : 0;
    return q;
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
INLINE void locate(const Between *w, const Sequence *q, const int reads, const int points, long key, long row, Points *at) {
    const double start = q->key_time[key], gap = q->time[row] - start;
    Doubles x = {0};
    at->together = 1;
    for (int p = 0; p < points; p++) {
        const double time = start + gap * w->node[p];
        long piece = 0;
        while (piece < q->last_piece && q->edge[piece + 1] <= time) piece++;
        const double half = (q->edge[piece + 1] - q->edge[piece]) / 2, inside = half > 0 ? (time - q->edge[piece]) / half - 1 : 0;
        x[p] = inside < -1 ? -1 : inside > 1 ? 1 : inside;
        at->piece[p] = piece;
        at->together &= piece == at->piece[0];
        if (!reads) continue;
        const double read = w->causal && q->known[row] < time ? q->known[row] : time;
        const long cell = at->cell[p] = cell_of(q->knot, w->knots, read, at->cell[p]);
        const double length = cell + 1 < w->knots ? q->knot[cell + 1] - q->knot[cell] : 0;
        const double place = length > 0 ? (read - q->knot[cell]) / length : 0;
        at->place[p] = (float)(place < 0 ? 0 : place > 1 ? 1 : place);
    }
    Doubles before = x - x + 1, now = x;
    x += x;
    for (long m = 0; m < w->terms; m++) {
        PUT(at->basis[m], 0) = __builtin_convertvector(before, Lanes);
        const Doubles next = x * now - before;
        before = now;
        now = next;
    }
    if (reads || !at->together) return;
    for (long m = 0; m < w->terms; m++) {
        at->mean[m] = 0;
        for (int p = 0; p < points; p++) at->mean[m] += at->share[p] * at->basis[m][p];
    }
}

INLINE float total(Lanes x) {
    float sum = 0;
    UNROLL for (int j = 0; j < LANES; j++) sum += x[j];
    return sum;
}

/* One vector of the numbers of a head: the series of a key at all points, [terms, width] for each piece. */
INLINE void curves(const Between *w, const int points, const float *series, const Points *at, Lanes *to) {
    const long piece = w->terms * w->width;
    UNROLL for (int p = 0; p < points; p++) to[p] = (Lanes){0};
    for (long m = 0; m < w->terms; m++)
        UNROLL for (int p = 0; p < points; p++) to[p] += at->basis[m][p] * AT(series, at->piece[p] * piece + m * w->width);
}

/* The path of the queries at all points. */
INLINE void queries(const Between *w, const Sequence *q, const int points, const float *path, const Points *at, Lanes *to) {
    UNROLL for (int p = 0; p < points; p++) {
        const float *term = path + at->cell[p] * q->cell_step + (w->powers - 1) * q->power_step;
        to[p] = AT(term, 0);
        for (long k = w->powers - 2; k >= 0; k--) {
            term -= q->power_step;
            to[p] = to[p] * at->place[p] + AT(term, 0);
        }
    }
}

INLINE Lanes score(const Between *w, const Sequence *q, const int points, const float *series, const float *path, const Points *at) {
    Lanes curved[POINTS], queried[POINTS], sum = {0};
    curves(w, points, series, at, curved);
    queries(w, q, points, path, at, queried);
    UNROLL for (int p = 0; p < points; p++) sum += at->share[p] * curved[p] * queried[p];
    return sum;
}

INLINE void score_back(const Between *w, const Sequence *q, const int points, const float *series, const float *path,
                       const Points *at, float g, float *g_series, float *g_path) {
    const long piece = w->terms * w->width;
    Lanes curved[POINTS], queried[POINTS];
    curves(w, points, series, at, curved);
    queries(w, q, points, path, at, queried);
    UNROLL for (int p = 0; p < points; p++) {
        Lanes along = g * at->share[p] * curved[p];
        float *term = g_path + at->cell[p] * q->cell_step;
        for (long k = 0; k < w->powers; k++, term += q->power_step, along *= at->place[p]) PUT(term, 0) += along;
        queried[p] *= g * at->share[p];
    }
    if (at->together) {
        float *term = g_series + at->piece[0] * piece;
        for (long m = 0; m < w->terms; m++, term += w->width) {
            Lanes sum = AT(term, 0);
            UNROLL for (int p = 0; p < points; p++) sum += at->basis[m][p] * queried[p];
            PUT(term, 0) = sum;
        }
        return;
    }
    for (int p = 0; p < points; p++) {
        float *term = g_series + at->piece[p] * piece;
        for (long m = 0; m < w->terms; m++, term += w->width) PUT(term, 0) += at->basis[m][p] * queried[p];
    }
}

/* The mean of the series over the points. */
INLINE Lanes mean_value(const Between *w, const int points, const float *series, const Points *at) {
    const long piece = w->terms * w->width;
    Lanes sum = {0};
    if (at->together) {
        const float *term = series + at->piece[0] * piece;
        for (long m = 0; m < w->terms; m++, term += w->width) sum += at->mean[m] * AT(term, 0);
        return sum;
    }
    for (int p = 0; p < points; p++) {
        const float *term = series + at->piece[p] * piece;
        for (long m = 0; m < w->terms; m++, term += w->width) sum += at->share[p] * at->basis[m][p] * AT(term, 0);
    }
    return sum;
}

INLINE void mean_value_back(const Between *w, const int points, const Points *at, Lanes g, float *g_series) {
    const long piece = w->terms * w->width;
    if (at->together) {
        float *term = g_series + at->piece[0] * piece;
        for (long m = 0; m < w->terms; m++, term += w->width) PUT(term, 0) += at->mean[m] * g;
        return;
    }
    for (int p = 0; p < points; p++) {
        float *term = g_series + at->piece[p] * piece;
        for (long m = 0; m < w->terms; m++, term += w->width) PUT(term, 0) += at->share[p] * at->basis[m][p] * g;
    }
}

/* What is done for every pair that may see each other. */
typedef enum { SCORES, SCORES_BACK, VALUES, VALUES_BACK } Task;

INLINE void visit(const Between *w, const Task task, const int points, const Sequence *q, long head, long n, long r,
                  const Points *at) {
    const long length = w->pieces * w->terms * w->width, row = head * w->rows + r, pair = row * w->keys + n;
    const long path = head / w->heads * w->knots * q->cell_step + head % w->heads * w->width;
    const long place = (head * w->keys + n) * length;
    Lanes sum = {0};
    for (long j = 0; j < w->width; j += LANES) {
        const float *series = w->series + place + j;
        if (task == SCORES) sum += score(w, q, points, series, w->path + path + j, at);
        if (task == SCORES_BACK)
            score_back(w, q, points, series, w->path + path + j, at, w->g_scores[pair], w->g_series + place + j, w->g_path + path + j);
        if (task == VALUES) PUT(w->out + row * w->width, j) += w->weights[pair] * mean_value(w, points, series, at);
        if (task == VALUES_BACK) {
            const Lanes g = AT(w->g_out + row * w->width, j);
            sum += mean_value(w, points, series, at) * g;
            mean_value_back(w, points, at, w->weights[pair] * g, w->g_series + place + j);
        }
    }
    if (task == SCORES) w->scores[pair] = total(sum);
    if (task == VALUES_BACK) w->g_weights[pair] = total(sum);
}

/* `points`, a constant: of the rule. */
INLINE void visit_pairs(const Between *w, const Task task, const int points, long item) {
    const long batch = item / w->groups, heads = w->heads / w->groups, first = batch * w->heads + item % w->groups * heads;
    const Sequence q = sequence_of(w, batch);
    Points at = {0};
    for (int p = 0; p < points; p++) at.share[p] = (float)w->share[p];
    for (long n = 0; n < w->keys; n++) {
        for (int p = 0; p < points; p++) at.cell[p] = n < w->knots ? n : w->knots - 1;
        for (long r = 0; r < w->rows; r++) {
            if (w->causal && q.time[r] < q.key_time[n]) continue;
            locate(w, &q, task == SCORES || task == SCORES_BACK, points, n, r, &at);
            for (long head = first; head < first + heads; head++) visit(w, task, points, &q, head, n, r, &at);
        }
    }
}

INLINE int visit_all(const Between *w, const Task task, long begin, long end) {
    for (long item = begin; item < end; item++) {
        if (w->points == 2)
            visit_pairs(w, task, 2, item);
        else if (w->points == 3)
            visit_pairs(w, task, 3, item);
        else if (w->points == 4)
            visit_pairs(w, task, 4, item);
        else
            visit_pairs(w, task, 5, item);
    }
    return 0;
}

DISPATCH int between_scores(const Between *w, long begin, long end) { return visit_all(w, SCORES, begin, end); }

DISPATCH int between_scores_back(const Between *w, long begin, long end) { return visit_all(w, SCORES_BACK, begin, end); }

DISPATCH int between_values(const Between *w, long begin, long end) { return visit_all(w, VALUES, begin, end); }

DISPATCH int between_values_back(const Between *w, long begin, long end) { return visit_all(w, VALUES_BACK, begin, end); }
