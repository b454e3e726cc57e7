/* Attention from points in time to keys, in float32: from the trajectories to the mixed values in one pass over a sequence's
   head, whose numbers stay in the nearest caches meanwhile. The reference is contiformer/nn/{cells,knot_attention,mixing}.py,
   which does the same step by step for all sequences.

   Points t_n are in order; among them are the times of the keys and those of the queries, and the edges of the pieces, so
   that the cell between two neighbours lies in one piece. For the query at point j and key i of one head, with the series
   c_i and v_i of the key on each piece, where x is the time on the piece from -1 to 1:
       moments_nm = integral of T_m(x) q         over the cell between the points n and n + 1
       integral_ji = sum of c_i . moments_n      over the cells n between i and j, outwards from i
       score_ji = scale integral_ji / |t_j - t_i|,  and scale q(t_i) . key_i where j is the point of the key itself
       means_i = the series of the mean of v_i   from x_i, or from the piece's edge that is nearer to it, to x
       carry_i = the integral of v_i             from the key to that edge
       out_j = sum over i of weight_ji (carry_i + (t_j - edge) sum of T_m(x_j) means_im) / (t_j - t_i),
       weight = dropout(softmax(score)).
   With one piece there is no edge between, and the mean alone is left.

   Matrices of pairs have a row for each point or query and a column for each key, and rows of whole vectors: the columns
   behind the last key hold zeros. A head is worked on by one thread and by itself, so nobody else in the batch changes its
   bits. */

#include <limits.h>

#include "draws.h"

/* 6 rows of 2 vectors are the sums that 16 registers can hold beside what is added to them. */
#define ROWS 6
#define NEVER -3e38f
#define MAX(a, b) ((a) > (b) ? (a) : (b))

typedef struct {
    long heads, points, keys, rows, pieces, terms, powers, nodes, key_width, value_width;
    uint64_t seed;
    /* a weight is dropped when its 24 random bits are below this, else multiplied by `kept` */
    int causal, dropped;
    float kept, scale;
    /* times [batch, points]; edges of the pieces [batch, pieces + 1]; valid keys [batch, keys] or NULL */
    const double *time, *edges;
    const unsigned char *valid;
    /* The point of each key [batch, keys], in order, and of each query [batch, rows], in order, and where the answer to that
       query goes; NULL where points, keys and queries are the same. */
    const int64_t *place, *asked, *target;
    /* Gauss-Legendre on [0, 1], exact for the terms times the powers of the path: [nodes] each */
    const double *node, *share;
    /* series [batch, heads, keys, pieces, terms, key_width], values likewise; path [batch, points, powers, heads, key_width];
       key [batch, keys, heads, key_width] */
    const float *series, *values, *path, *key;
    /* out [batch, rows, heads, value_width]; weights before dropout [batch, heads, rows, keys], or NULL */
    float *out, *weights;
    const float *g_out;
    float *g_series, *g_values, *g_path, *g_key;
} Knots;

/* `count` rows and `vectors` vectors of c = x y, both constants; the sums run over k in order */
INLINE void tile(
    const int count, const int vectors, long inner, const float *x, long row, long along, const float *y, long y_row, float *c,
    long c_row
) {
    Lanes sum[ROWS * 2] = {{0}};
    for (long k = 0; k < inner; k++) {
        UNROLL for (int r = 0; r < count; r++) {
            const float factor = x[r * row + k * along];
            UNROLL for (int v = 0; v < vectors; v++) sum[r * vectors + v] += factor * AT(y + k * y_row, v * LANES);
        }
    }
    UNROLL for (int r = 0; r < count; r++)
        UNROLL for (int v = 0; v < vectors; v++) PUT(c + r * c_row, v * LANES) = sum[r * vectors + v];
}

/* All rows of `vectors` vectors of columns. */
INLINE void panel(
    const int vectors, long rows, long inner, const float *x, long row, long along, const float *y, long y_row, float *c,
    long c_row
) {
    for (; rows >= ROWS; rows -= ROWS, x += ROWS * row, c += ROWS * c_row)
        tile(ROWS, vectors, inner, x, row, along, y, y_row, c, c_row);
    switch (rows) {
    case 5: tile(5, vectors, inner, x, row, along, y, y_row, c, c_row); break;
    case 4: tile(4, vectors, inner, x, row, along, y, y_row, c, c_row); break;
    case 3: tile(3, vectors, inner, x, row, along, y, y_row, c, c_row); break;
    case 2: tile(2, vectors, inner, x, row, along, y, y_row, c, c_row); break;
    case 1: tile(1, vectors, inner, x, row, along, y, y_row, c, c_row);
    }
}

/* c [rows, columns] = x y with x[r][k] at x[r * row + k * along] and y [inner, columns]: transposes of x cost nothing. */
DISPATCH static void multiply(
    long rows, long columns, long inner, const float *x, long row, long along, const float *y, long y_row, float *c, long c_row
) {
    long j = 0;
    for (; j + 2 * LANES <= columns; j += 2 * LANES) panel(2, rows, inner, x, row, along, y + j, y_row, c + j, c_row);
    for (; j + LANES <= columns; j += LANES) panel(1, rows, inner, x, row, along, y + j, y_row, c + j, c_row);
    for (; j < columns; j++)
        for (long r = 0; r < rows; r++) {
            float sum = 0;
            for (long k = 0; k < inner; k++) sum += x[r * row + k * along] * y[k * y_row + j];
            c[r * c_row + j] = sum;
        }
}

#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int Places __attribute__((vector_size(LANES * sizeof(int))));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (Places){__VA_ARGS__})
#endif

/* A square of 8 numbers each way: neighbours, pairs and fours change places. */
INLINE void transpose_square(const float *from, long from_row, float *to, long to_row) {
    Lanes a[LANES], b[LANES];
    UNROLL for (int r = 0; r < LANES; r++) a[r] = AT(from + r * from_row, 0);
    UNROLL for (int r = 0; r < LANES; r += 2) {
        b[r] = PICK(a[r], a[r + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        b[r + 1] = PICK(a[r], a[r + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    UNROLL for (int r = 0; r < LANES; r++) {
        const int first = r / 4 * 4 + r % 2;
        a[r] = r % 4 < 2 ? PICK(b[first], b[first + 2], 0, 1, 8, 9, 4, 5, 12, 13)
                         : PICK(b[first], b[first + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    UNROLL for (int r = 0; r < 4; r++) {
        PUT(to + r * to_row, 0) = PICK(a[r], a[r + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        PUT(to + (r + 4) * to_row, 0) = PICK(a[r], a[r + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* to [columns, to_row] = from [rows, columns] transposed, with zeros behind the last of the rows */
DISPATCH static void transpose(long rows, long columns, const float *from, long from_row, float *to, long to_row) {
    const long whole = rows / LANES * LANES, wide = columns / LANES * LANES;
    for (long r = 0; r < whole; r += LANES)
        for (long c = 0; c < wide; c += LANES)
            transpose_square(from + r * from_row + c, from_row, to + c * to_row + r, to_row);
    for (long c = 0; c < columns; c++) {
        for (long r = c < wide ? whole : 0; r < rows; r++) to[c * to_row + r] = from[r * from_row + c];
        for (long r = rows; r < to_row; r++) to[c * to_row + r] = 0;
    }
}

/* Working memory for one head; `row` is the length of a row of pairs. What follows from the times serves all heads of a
   sequence. */
typedef struct {
    float *memory;
    /* [rows, row]: scale / gap of a query and a key; the share of the gap that lies in the query's piece */
    float *factors, *inside;
    /* [rows, row] */
    float *weights, *used, *near, *far, *g;
    /* [points, row] */
    float *pairs;
    float *running, *own, *moments, *g_moments, *means, *g_means, *carry, *g_carry, *mixed, *beyond, *transposed;
    float *basis, *numbers, *zeros;
    double *begin, *end, *sums, *term;
    /* keys: whether they may be seen, and their points. Points: their key or -1. Queries: their points and answers. */
    int *open, *place, *key_at, *asked, *target;
    /* the first cell and the first query of each piece, and the number of them behind the last */
    int *cells, *queries;
    long row;
} Work;

/* The next `size` numbers of the memory, which begin at a line of the cache; from NULL on it only counts. */
INLINE float *next_of(float *memory, long *taken, long size) {
    const long line = 16, begin = *taken;
    *taken += (size + line - 1) / line * line;
    return memory ? memory + begin : NULL;
}

static long divide_memory(Work *work, const Knots *w, float *memory) {
    const long row = (w->keys + LANES - 1) / LANES * LANES, pairs = w->rows * row, cut = w->pieces > 1 ? pairs : 0;
    const long keys = w->terms * w->key_width, values = w->terms * w->value_width, cells = w->points;
    const long carry = w->pieces > 1 ? w->keys * w->pieces * w->value_width : 0;
    long taken = 0;
    work->row = row, work->memory = memory;
    work->factors = next_of(memory, &taken, pairs);
    work->inside = next_of(memory, &taken, cut);
    work->weights = next_of(memory, &taken, pairs);
    work->used = next_of(memory, &taken, pairs);
    work->near = next_of(memory, &taken, cut);
    work->far = next_of(memory, &taken, cut);
    work->g = next_of(memory, &taken, pairs);
    work->pairs = next_of(memory, &taken, cells * row);
    work->running = next_of(memory, &taken, row);
    work->own = next_of(memory, &taken, row);
    work->basis = next_of(memory, &taken, w->rows * w->terms);
    work->numbers = next_of(memory, &taken, w->terms * w->powers * cells);
    work->zeros = next_of(memory, &taken, w->value_width);
    work->begin = (double *)next_of(memory, &taken, 2 * cells);
    work->end = (double *)next_of(memory, &taken, 2 * cells);
    work->sums = (double *)next_of(memory, &taken, 2 * w->terms * w->powers * cells);
    work->term = (double *)next_of(memory, &taken, 2 * 3 * cells);
    work->moments = next_of(memory, &taken, cells * keys);
    work->g_moments = next_of(memory, &taken, cells * keys);
    work->means = next_of(memory, &taken, w->keys * w->pieces * values);
    work->g_means = next_of(memory, &taken, w->keys * w->pieces * values);
    work->carry = next_of(memory, &taken, carry);
    work->g_carry = next_of(memory, &taken, carry);
    work->mixed = next_of(memory, &taken, w->rows * values);
    work->beyond = next_of(memory, &taken, w->rows * w->value_width);
    work->transposed = next_of(memory, &taken, row * MAX(keys, values));
    work->open = (int *)next_of(memory, &taken, row);
    work->place = (int *)next_of(memory, &taken, row);
    work->key_at = (int *)next_of(memory, &taken, cells);
    work->asked = (int *)next_of(memory, &taken, w->rows);
    work->target = (int *)next_of(memory, &taken, w->rows);
    work->cells = (int *)next_of(memory, &taken, w->pieces + 1);
    work->queries = (int *)next_of(memory, &taken, w->pieces + 1);
    return taken;
}

static int make_work(Work *work, const Knots *w) {
    float *memory = aligned_alloc(64, divide_memory(work, w, NULL) * sizeof(float));
    if (!memory) return 1;
    divide_memory(work, w, memory);
    memset(work->zeros, 0, w->value_width * sizeof(float));
    return 0;
}

/* Where a time is on a piece from -1 to 1. */
INLINE double local(const double *edges, long piece, double time) {
    const double half = (edges[piece + 1] - edges[piece]) / 2;
    const double x = half > 0 ? (time - edges[piece]) / half - 1 : 0;
    return x < -1 ? -1 : x > 1 ? 1 : x;
}

INLINE double clamped(double time, double low, double high) {
    return time < low ? low : time > high ? high : time;
}

/* The piece of a time, no earlier than the given one. A time at an edge belongs to the piece behind it, unless that is one of
   the empty pieces at the end. */
INLINE long piece_of(const Knots *w, const double *edges, double time, long piece) {
    while (piece + 1 < w->pieces && time >= edges[piece + 1] && edges[piece + 2] > edges[piece + 1]) piece++;
    return piece;
}

/* Who is where: points of keys and queries, and which cells and queries lie in which piece. */
INLINE void find_places(const Knots *w, long batch, const double *time, const double *edges, Work *work) {
    for (long i = 0; i < work->row; i++) {
        const long at = batch * w->keys + i;
        work->open[i] = i < w->keys && (!w->valid || w->valid[at]);
        work->place[i] = i >= w->keys ? INT_MAX : w->place ? (int)w->place[at] : (int)i;
    }
    for (long n = 0; n < w->points; n++) work->key_at[n] = -1;
    for (long i = 0; i < w->keys; i++) work->key_at[work->place[i]] = (int)i;
    for (long r = 0; r < w->rows; r++) {
        const long at = batch * w->rows + r;
        work->asked[r] = w->asked ? (int)w->asked[at] : (int)r;
        work->target[r] = w->target ? (int)w->target[at] : (int)r;
    }
    long piece = 0, mine = 0;
    for (long n = 0; n < w->points; n++) {
        const long end = n + 1 < w->points ? n + 1 : n;
        const long here = piece_of(w, edges, (time[n] + time[end]) / 2, piece);
        for (; mine <= here; mine++) work->cells[mine] = (int)n;
        piece = here;
        work->begin[n] = local(edges, piece, time[n]), work->end[n] = local(edges, piece, time[end]);
    }
    for (; mine <= w->pieces; mine++) work->cells[mine] = (int)w->points;
    piece = mine = 0;
    for (long r = 0; r < w->rows; r++) {
        const long here = piece_of(w, edges, time[work->asked[r]], piece);
        for (; mine <= here; mine++) work->queries[mine] = (int)r;
        piece = here;
    }
    for (; mine <= w->pieces; mine++) work->queries[mine] = (int)w->rows;
}

/* scale / |t_j - t_i|, and the scale itself where the score is a product and no mean. */
INLINE void find_factors(const Knots *w, const double *time, Work *work) {
    for (long i = 0; i < w->keys; i++) work->term[i] = time[work->place[i]];
    for (long r = 0; r < w->rows; r++) {
        float *restrict factor = work->factors + r * work->row;
        const double here = time[work->asked[r]], *restrict there = work->term;
        const int key = work->key_at[work->asked[r]];
#pragma omp simd
        for (long i = 0; i < w->keys; i++) {
            const float gap = fabsf((float)(here - there[i]));
            factor[i] = w->scale / (gap < 1e-37f ? 1e-37f : gap);
        }
        if (key >= 0) factor[key] = w->scale;
        for (long i = w->keys; i < work->row; i++) factor[i] = 0;
    }
}

/* The part of each gap that lies in the query's piece; all of it where there is no gap. */
INLINE void find_inside(const Knots *w, const double *time, const double *edges, Work *work) {
    for (long p = 0; p < w->pieces; p++)
        for (long r = work->queries[p]; r < work->queries[p + 1]; r++) {
            float *restrict inside = work->inside + r * work->row;
            const double here = time[work->asked[r]], low = edges[p], high = edges[p + 1], *restrict there = work->term;
#pragma omp simd
            for (long i = 0; i < w->keys; i++) {
                const double edge = there[i] < low ? low : there[i] > high ? high : there[i];
                const double gap = fabs(here - there[i]);
                inside[i] = gap > 0 ? (float)(fabs(here - edge) / gap) : 1.0f;
            }
            for (long i = w->keys; i < work->row; i++) inside[i] = 0;
        }
}

/* The terms at the queries. */
INLINE void find_basis(const Knots *w, const double *time, const double *edges, Work *work) {
    for (long p = 0; p < w->pieces; p++)
        for (long r = work->queries[p]; r < work->queries[p + 1]; r++) {
            const double x = local(edges, p, time[work->asked[r]]);
            double term = 1, next = x;
            for (long m = 0; m < w->terms; m++) {
                const double later = 2 * x * next - term;
                work->basis[r * w->terms + m] = (float)term;
                term = next, next = later;
            }
        }
}

/* The integrals of T_m s^k over the cells, s in [0, 1] along each: times the path's coefficients they are the moments. */
INLINE void find_numbers(const Knots *w, const double *time, Work *work) {
    const long length = w->points, row = length, count = w->terms * w->powers;
    double *restrict sums = work->sums, *term = work->term, *next = term + row, *later = next + row;
    const double *restrict begin = work->begin, *restrict end = work->end;
    memset(sums, 0, count * row * sizeof(double));
    for (long g = 0; g < w->nodes; g++) {
#pragma omp simd
        for (long n = 0; n < length; n++)
            term[n] = 1, next[n] = begin[n] + (end[n] - begin[n]) * w->node[g], later[n] = 2 * next[n];
        for (long m = 0; m < w->terms; m++) {
            double share = w->share[g];
            for (long k = 0; k < w->powers; k++, share *= w->node[g]) {
                double *restrict sum = sums + (m * w->powers + k) * row;
#pragma omp simd
                for (long n = 0; n < length; n++) sum[n] += share * term[n];
            }
#pragma omp simd
            for (long n = 0; n < length; n++) {
                const double after = later[n] * next[n] - term[n];
                term[n] = next[n], next[n] = after;
            }
        }
    }
    for (long c = 0; c < count; c++) {
        float *restrict numbers = work->numbers + c * row;
        for (long n = 0; n + 1 < length; n++) numbers[n] = (float)(sums[c * row + n] * (time[n + 1] - time[n]));
        numbers[length - 1] = 0;
    }
}

/* All that follows from the times and from who is valid. */
INLINE void read_sequence(const Knots *w, long batch, Work *work) {
    const double *time = w->time + batch * w->points, *edges = w->edges + batch * (w->pieces + 1);
    find_places(w, batch, time, edges, work);
    find_factors(w, time, work);
    if (w->pieces > 1) find_inside(w, time, edges, work);
    find_basis(w, time, edges, work);
    find_numbers(w, time, work);
}

/* [points, terms, key_width] */
INLINE void find_moments(const Knots *w, long item, Work *work) {
    const long batch = item / w->heads, head = item % w->heads, step = w->heads * w->key_width;
    const float *path = w->path + batch * w->points * w->powers * step + head * w->key_width;
    for (long n = 0; n < w->points; n++)
        multiply(w->terms, w->key_width, w->powers, work->numbers + n, w->powers * w->points, w->points,
                 path + n * w->powers * step, step, work->moments + n * w->terms * w->key_width, w->key_width);
}

/* The series of the mean from x = a to x of the series d: its primitive divided by x - a, which is the downward recurrence
   of paths/chebyshev.py, t_q = (d_q - d_(q+2)) / (q + 1) + 2 a t_(q+1) - t_(q+2). The first term is twice as much in d and
   half as much in the mean as the others. */
INLINE void mean_series(
    long terms, const long width, float a, const float *zeros, const float *restrict d, float *restrict mean
) {
    for (long q = terms - 1; q >= 0; q--) {
        const float share = 1.0f / (q + 1), first = q ? share : 2 * share, half = q ? 1.0f : 0.5f;
        const float *beyond = q + 2 < terms ? d + (q + 2) * width : zeros;
        const float *next = q + 1 < terms ? mean + (q + 1) * width : zeros, *after = q + 2 < terms ? next + width : zeros;
#pragma omp simd
        for (long j = 0; j < width; j++)
            mean[q * width + j] = half * (first * d[q * width + j] - share * beyond[j] + 2 * a * next[j] - after[j]);
    }
}

/* Its adjoint, the same recurrence upwards; g becomes the gradient of t. */
INLINE void unmean_series(long terms, const long width, float a, const float *zeros, float *g, float *restrict g_d) {
    for (long q = 0; q < terms; q++) {
        const float first = q ? 1.0f / (q + 1) : 2.0f, half = q ? 1.0f : 0.5f, share = q > 1 ? 1.0f / (q - 1) : 0;
        const float *last = q > 0 ? g + (q - 1) * width : zeros, *before = q > 1 ? last - width : zeros;
#pragma omp simd
        for (long j = 0; j < width; j++) {
            const float h = half * g[q * width + j] + 2 * a * last[j] - before[j];
            g[q * width + j] = h;
            g_d[q * width + j] = first * h - share * before[j];
        }
    }
}

/* Widths that are known in advance need no loop over the columns. */
#define WITH_WIDTH(call)                      \
    if (w->value_width == LANES) {            \
        const long width = LANES;             \
        call;                                 \
    } else if (w->value_width == 2 * LANES) { \
        const long width = 2 * LANES;         \
        call;                                 \
    } else {                                  \
        const long width = w->value_width;    \
        call;                                 \
    }

/* Where the mean of a key begins on a piece: at the key, or at the edge that is nearer to it. */
INLINE double nearest(const Knots *w, long batch, const Work *work, long i, long piece) {
    const double *edges = w->edges + batch * (w->pieces + 1) + piece;
    return clamped(w->time[batch * w->points + work->place[i]], edges[0], edges[1]);
}

/* [keys, pieces, terms, value_width] */
INLINE void find_means(const Knots *w, long item, Work *work) {
    const long batch = item / w->heads, size = w->terms * w->value_width;
    const double *edges = w->edges + batch * (w->pieces + 1);
    const float *values = w->values + item * w->keys * w->pieces * size;
    for (long i = 0; i < w->keys; i++)
        for (long p = 0; p < w->pieces; p++) {
            const float a = (float)local(edges, p, nearest(w, batch, work, i, p));
            const long at = (i * w->pieces + p) * size;
            WITH_WIDTH(mean_series(w->terms, width, a, work->zeros, values + at, work->means + at))
        }
}

/* A mean at an edge of its piece: the sum of the series, or the alternating one. */
INLINE float at_edge(long terms, long width, const float *mean, int right) {
    float sum = 0;
    for (long m = 0; m < terms; m++) sum += m % 2 && !right ? -mean[m * width] : mean[m * width];
    return sum;
}

/* [keys, pieces, value_width]: what lies between a key and a piece is the sum over the pieces between and the key's own. */
INLINE void find_carry(const Knots *w, long item, Work *work) {
    const long batch = item / w->heads, width = w->value_width, size = w->terms * width;
    const double *edges = w->edges + batch * (w->pieces + 1);
    for (long i = 0; i < w->keys; i++)
        for (long d = 0; d < width; d++) {
            const float *means = work->means + i * w->pieces * size + d;
            float *carry = work->carry + i * w->pieces * width + d, sum = 0;
            for (long p = 0; p < w->pieces; p++) {
                carry[p * width] = sum;
                const float length = (float)(edges[p + 1] - nearest(w, batch, work, i, p));
                sum += length > 0 ? length * at_edge(w->terms, width, means + p * size, 1) : 0;
            }
            sum = 0;
            for (long p = w->pieces - 1; p >= 0; p--) {
                carry[p * width] += sum;
                const float length = (float)(nearest(w, batch, work, i, p) - edges[p]);
                sum += length > 0 ? length * at_edge(w->terms, width, means + p * size, 0) : 0;
            }
        }
}

/* Its adjoint: the gradient of the carry goes to the means. */
INLINE void uncarry(const Knots *w, long item, Work *work) {
    const long batch = item / w->heads, width = w->value_width, size = w->terms * width;
    const double *edges = w->edges + batch * (w->pieces + 1);
    for (long i = 0; i < w->keys; i++)
        for (long d = 0; d < width; d++) {
            float *g_means = work->g_means + i * w->pieces * size + d, sum = 0;
            const float *g_carry = work->g_carry + i * w->pieces * width + d;
            for (long p = w->pieces - 1; p >= 0; p--) {
                const float g = sum * (float)(edges[p + 1] - nearest(w, batch, work, i, p));
                for (long m = 0; m < w->terms; m++) g_means[p * size + m * width] += g;
                sum += g_carry[p * width];
            }
            sum = 0;
            for (long p = 0; p < w->pieces; p++) {
                const float g = sum * (float)(nearest(w, batch, work, i, p) - edges[p]);
                for (long m = 0; m < w->terms; m++) g_means[p * size + m * width] += m % 2 ? -g : g;
                sum += g_carry[p * width];
            }
        }
}

/* In place: from each[n][i], the integral over cell n against key i, to their sums from i to n. The key's point is left. */
INLINE void sum_outwards(const Work *work, long length, float *pairs) {
    const int row = (int)work->row;
    const int *restrict place = work->place;
    float *restrict sum = work->running;
    memset(sum, 0, row * sizeof(float));
    for (int n = 0; n < length; n++) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (int i = 0; i < row; i++) {
            const float cell = each[i], reached = sum[i];
            each[i] = place[i] < n ? reached : cell;
            sum[i] = place[i] <= n ? reached + cell : 0.0f;
        }
    }
    memset(sum, 0, row * sizeof(float));
    for (int n = (int)length - 1; n >= 0; n--) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (int i = 0; i < row; i++) {
            const float next = place[i] > n ? sum[i] + each[i] : 0.0f;
            each[i] = place[i] > n ? next : each[i];
            sum[i] = next;
        }
    }
}

/* The adjoint of sum_outwards(), in place; what stands at the key's point is not a sum and goes nowhere. */
INLINE void sum_inwards(const Work *work, long length, float *pairs) {
    const int row = (int)work->row;
    const int *restrict place = work->place;
    float *restrict sum = work->running;
    memset(sum, 0, row * sizeof(float));
    for (int n = (int)length - 1; n >= 0; n--) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (int i = 0; i < row; i++) {
            const float here = each[i], later = sum[i];
            each[i] = place[i] <= n ? later : here;
            sum[i] = place[i] < n ? later + here : later;
        }
    }
    memset(sum, 0, row * sizeof(float));
    for (int n = 0; n < length; n++) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (int i = 0; i < row; i++) {
            const float next = place[i] > n ? sum[i] + each[i] : 0.0f;
            each[i] = place[i] > n ? next : each[i];
            sum[i] = next;
        }
    }
}

/* Softmax over the keys that query r may see, in place; weights of zero where there are none. */
INLINE void softmax_row(const Knots *w, const Work *work, long r, float *restrict s) {
    const int row = (int)work->row, last = w->causal ? work->asked[r] : INT_MAX;
    const int *restrict open = work->open, *restrict place = work->place;
    const float *restrict factor = work->factors + r * row;
    float most = NEVER, total = 0;
#pragma omp simd reduction(max : most)
    for (int i = 0; i < row; i++) {
        const float score = s[i] * factor[i];
        s[i] = open[i] & (place[i] <= last) ? score : NEVER;
        most = s[i] > most ? s[i] : most;
    }
#pragma omp simd
    for (int i = 0; i < row; i++) s[i] = exp_begun(s[i] - most);
#pragma omp simd reduction(+ : total)
    for (int i = 0; i < row; i++) {
        const float share = exp_ended(s[i]);
        s[i] = open[i] & (place[i] <= last) ? share : 0.0f;
        total += s[i];
    }
    const float inverse = total != 0 ? 1.0f / total : 0.0f;
#pragma omp simd
    for (int i = 0; i < row; i++) s[i] *= inverse;
}

/* q(t_i) . key_i */
INLINE float own_score(const Knots *w, long item, const Work *work, long i) {
    const long batch = item / w->heads, head = item % w->heads;
    const float *query = w->path + ((batch * w->points + work->place[i]) * w->powers * w->heads + head) * w->key_width;
    const float *key = w->key + ((batch * w->keys + i) * w->heads + head) * w->key_width;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long d = 0; d < w->key_width; d++) sum += query[d] * key[d];
    return sum;
}

/* Weights before dropout, given the moments. */
INLINE void find_weights(const Knots *w, long item, Work *work) {
    const long width = w->terms * w->key_width, row = work->row;
    for (long p = 0; p < w->pieces; p++) {
        const long first = work->cells[p], count = work->cells[p + 1] - first;
        if (!count) continue;
        transpose(w->keys, width, w->series + (item * w->keys * w->pieces + p) * width, w->pieces * width, work->transposed, row);
        multiply(count, row, width, work->moments + first * width, width, 1, work->transposed, row, work->pairs + first * row, row);
    }
    sum_outwards(work, w->points, work->pairs);
    for (long r = 0; r < w->rows; r++) {
        const long j = work->asked[r];
        float *weights = work->weights + r * row;
        memcpy(weights, work->pairs + j * row, row * sizeof(float));
        if (work->key_at[j] >= 0) weights[work->key_at[j]] = own_score(w, item, work, work->key_at[j]);
        softmax_row(w, work, r, weights);
    }
}

INLINE void keep_weights(const Knots *w, long item, const Work *work) {
    for (long r = 0; r < w->rows; r++)
        memcpy(w->weights + (item * w->rows + r) * w->keys, work->weights + r * work->row, w->keys * sizeof(float));
}

INLINE void recall_weights(const Knots *w, long item, Work *work) {
    for (long r = 0; r < w->rows; r++) {
        float *weights = work->weights + r * work->row;
        memcpy(weights, w->weights + (item * w->rows + r) * w->keys, w->keys * sizeof(float));
        for (long i = w->keys; i < work->row; i++) weights[i] = 0;
    }
}

/* The weights after dropout. A row takes two keys from its place in the batch, a weight its bits from these and its place in
   the row by two rounds of multiplying and shifting: the backward pass finds the same ones. */
INLINE void find_used(const Knots *w, long item, Work *work) {
    const int row = (int)work->row, dropped = w->dropped;
    const float kept = w->kept;
    for (long r = 0; r < w->rows; r++) {
        const uint64_t place = mixed(((uint64_t)(item * w->rows + r) + 1) * GOLDEN);
        const Draws draws = halves(mixed((w->seed + place) * GOLDEN));
        const float *restrict weights = work->weights + r * row;
        float *restrict used = work->used + r * row;
#pragma omp simd
        for (int i = 0; i < row; i++) {
            const float factor = (int)(bits_at(draws, (uint32_t)i) >> 8) >= dropped ? kept : 0.0f;
            used[i] = weights[i] * factor;
        }
    }
}

/* The weights of the means in the query's piece, and those of what lies beyond its edges. */
INLINE void divide_used(const Knots *w, const Work *work, const float *used) {
    const float unscale = 1.0f / w->scale;
    const long count = w->rows * work->row;
    const float *restrict inside = work->inside, *restrict factors = work->factors, *restrict all = used;
    float *restrict near = work->near, *restrict far = work->far;
#pragma omp simd
    for (long n = 0; n < count; n++) near[n] = all[n] * inside[n], far[n] = all[n] * (factors[n] * unscale);
}

/* Where the answer to query r is, in `out` and in its gradient. */
INLINE long answer(const Knots *w, long item, const Work *work, long r) {
    const long batch = item / w->heads, head = item % w->heads;
    return ((batch * w->rows + work->target[r]) * w->heads + head) * w->value_width;
}

DISPATCH int knots_forward(const Knots *w, long begin, long end) {
    const long width = w->value_width, mixed = w->terms * width, keys = w->keys;
    Work work;
    if (make_work(&work, w)) return 1;
    const long row = work.row;
    const float *used = w->dropped ? work.used : work.weights, *near = w->pieces > 1 ? work.near : used;
    for (long item = begin; item < end; item++) {
        if (item == begin || item % w->heads == 0) read_sequence(w, item / w->heads, &work);
        find_moments(w, item, &work);
        find_weights(w, item, &work);
        if (w->weights) keep_weights(w, item, &work);
        if (w->dropped) find_used(w, item, &work);
        find_means(w, item, &work);
        if (w->pieces > 1) find_carry(w, item, &work), divide_used(w, &work, used);
        for (long p = 0; p < w->pieces; p++) {
            const long first = work.queries[p], count = work.queries[p + 1] - first;
            multiply(count, mixed, keys, near + first * row, row, 1, work.means + p * mixed, w->pieces * mixed,
                     work.mixed + first * mixed, mixed);
            if (w->pieces > 1)
                multiply(count, width, keys, work.far + first * row, row, 1, work.carry + p * width, w->pieces * width,
                         work.beyond + first * width, width);
        }
        for (long r = 0; r < w->rows; r++) {
            float *out = w->out + answer(w, item, &work, r);
            multiply(1, width, w->terms, work.basis + r * w->terms, w->terms, 1, work.mixed + r * mixed, width, out, width);
            if (w->pieces > 1)
                for (long d = 0; d < width; d++) out[d] += work.beyond[r * width + d];
        }
    }
    free(work.memory);
    return 0;
}

/* The gradient of the mixed values: basis_j times that of the output, which is put in the order of the queries. */
INLINE void spread_gradient(const Knots *w, long item, Work *work) {
    const long width = w->value_width;
    float *restrict to = work->mixed;
    for (long r = 0; r < w->rows; r++) {
        const float *restrict g = w->g_out + answer(w, item, work, r);
        memcpy(work->beyond + r * width, g, width * sizeof(float));
        for (long m = 0; m < w->terms; m++, to += width)
#pragma omp simd
            for (long d = 0; d < width; d++) to[d] = work->basis[r * w->terms + m] * g[d];
    }
}

/* Gradients of the means, of the carry, and of the weights in use. */
INLINE void unmix(const Knots *w, Work *work, const float *near) {
    const long width = w->value_width, mixed = w->terms * width, keys = w->keys, row = work->row;
    const float unscale = 1.0f / w->scale;
    for (long p = 0; p < w->pieces; p++) {
        const long first = work->queries[p], count = work->queries[p + 1] - first, place = first * row;
        const float *g_mixed = work->mixed + first * mixed, *g_out = work->beyond + first * width;
        multiply(keys, mixed, count, near + place, 1, row, g_mixed, mixed, work->g_means + p * mixed, w->pieces * mixed);
        if (count) {
            transpose(keys, mixed, work->means + p * mixed, w->pieces * mixed, work->transposed, row);
            multiply(count, row, mixed, g_mixed, mixed, 1, work->transposed, row, work->g + place, row);
        }
        if (w->pieces == 1) continue;
        multiply(keys, width, count, work->far + place, 1, row, g_out, width, work->g_carry + p * width, w->pieces * width);
        if (!count) continue;
        /* what the weights of this piece were divided into is not asked for again */
        float *restrict g_far = work->far + place, *restrict g = work->g + place;
        const float *restrict inside = work->inside + place, *restrict factors = work->factors + place;
        transpose(keys, width, work->carry + p * width, w->pieces * width, work->transposed, row);
        multiply(count, row, width, g_out, width, 1, work->transposed, row, g_far, row);
#pragma omp simd
        for (long n = 0; n < count * row; n++) g[n] = g[n] * inside[n] + g_far[n] * (factors[n] * unscale);
    }
}

/* From the gradient of the weights in use to that of the integrals: weights * (g - sum of weights * g) * factor, summed over
   the queries at a point; and that of the keys' own scores. */
INLINE void through_softmax(const Knots *w, Work *work, const float *used) {
    const int row = (int)work->row;
    memset(work->pairs, 0, w->points * row * sizeof(float));
    memset(work->own, 0, row * sizeof(float));
    for (long r = 0; r < w->rows; r++) {
        const float *restrict weight = work->weights + r * row, *restrict mine = used + r * row;
        const float *restrict factor = work->factors + r * row, *restrict g = work->g + r * row;
        float *restrict to = work->pairs + work->asked[r] * row;
        const int key = work->key_at[work->asked[r]];
        float along = 0;
#pragma omp simd reduction(+ : along)
        for (int i = 0; i < row; i++) along += mine[i] * g[i];
#pragma omp simd
        for (int i = 0; i < row; i++) to[i] += (mine[i] * g[i] - along * weight[i]) * factor[i];
        if (key >= 0) work->own[key] += (mine[key] * g[key] - along * weight[key]) * factor[key];
    }
}

/* Gradients of the path and of the keys themselves, given those of the moments and of the keys' own scores. */
INLINE void write_path(const Knots *w, long item, const Work *work) {
    const long batch = item / w->heads, head = item % w->heads, width = w->key_width, step = w->heads * width;
    for (long n = 0; n < w->points; n++)
        multiply(w->powers, width, w->terms, work->numbers + n, w->points, w->powers * w->points,
                 work->g_moments + n * w->terms * width, width,
                 w->g_path + (batch * w->points + n) * w->powers * step + head * width, step);
    for (long i = 0; i < w->keys; i++) {
        const long place = (batch * w->points + work->place[i]) * w->powers * step + head * width;
        const long mine = (batch * w->keys + i) * step + head * width;
        for (long d = 0; d < width; d++) {
            w->g_path[place + d] += work->own[i] * w->key[mine + d];
            w->g_key[mine + d] = work->own[i] * w->path[place + d];
        }
    }
}

INLINE void write_values(const Knots *w, long item, Work *work) {
    const long batch = item / w->heads, size = w->terms * w->value_width;
    const double *edges = w->edges + batch * (w->pieces + 1);
    float *g_values = w->g_values + item * w->keys * w->pieces * size;
    for (long i = 0; i < w->keys; i++)
        for (long p = 0; p < w->pieces; p++) {
            const float a = (float)local(edges, p, nearest(w, batch, work, i, p));
            const long at = (i * w->pieces + p) * size;
            WITH_WIDTH(unmean_series(w->terms, width, a, work->zeros, work->g_means + at, g_values + at))
        }
}

DISPATCH int knots_backward(const Knots *w, long begin, long end) {
    const long keys = w->terms * w->key_width, piece_row = w->pieces * keys;
    Work work;
    if (make_work(&work, w)) return 1;
    const long row = work.row;
    const float *used = w->dropped ? work.used : work.weights, *near = w->pieces > 1 ? work.near : used;
    for (long item = begin; item < end; item++) {
        if (item == begin || item % w->heads == 0) read_sequence(w, item / w->heads, &work);
        find_moments(w, item, &work);
        if (w->weights)
            recall_weights(w, item, &work);
        else
            find_weights(w, item, &work);
        if (w->dropped) find_used(w, item, &work);
        spread_gradient(w, item, &work);
        find_means(w, item, &work);
        if (w->pieces > 1) find_carry(w, item, &work), divide_used(w, &work, used);
        unmix(w, &work, near);
        if (w->pieces > 1) uncarry(w, item, &work);
        write_values(w, item, &work);
        through_softmax(w, &work, used);
        sum_inwards(&work, w->points, work.pairs);
        const float *series = w->series + item * w->keys * piece_row;
        float *g_series = w->g_series + item * w->keys * piece_row;
        for (long p = 0; p < w->pieces; p++) {
            const long first = work.cells[p], count = work.cells[p + 1] - first;
            const float *g = work.pairs + first * row;
            multiply(w->keys, keys, count, g, 1, row, work.moments + first * keys, keys, g_series + p * keys, piece_row);
            multiply(count, keys, w->keys, g, row, 1, series + p * keys, piece_row, work.g_moments + first * keys, keys);
        }
        write_path(w, item, &work);
    }
    free(work.memory);
    return 0;
}
