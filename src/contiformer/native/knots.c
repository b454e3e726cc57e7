/* Attention at the knots of one piece and one block, in float32: from the trajectories to the mixed values in one pass over
   a sequence's head, whose numbers stay in the nearest caches meanwhile. The reference is contiformer/nn/{cells,knot_attention,
   mixing}.py, which does the same step by step for all sequences.

   For query j and key i of one head, with the series c_i [terms, key_width] and v_i [terms, value_width] of the key, where
   x is the time on the piece from -1 to 1:
       moments_nm = integral of T_m(x) q         over the cell between the points n and n + 1
       integral_ji = sum of c_i . moments_n      over the cells n between i and j, outwards from i
       score_ji = scale integral_ji / |t_j - t_i|,  score_jj = scale q(t_j) . key_j
       means_i = the series of the mean of v_i   from x_i to x
       out_j = sum of T_m(x_j) weight_ji means_im over i and m,  weight = dropout(softmax(score)).

   Matrices of pairs have a row for each query and a column for each key, and rows of whole vectors: the columns behind the
   last key hold zeros. A head is worked on by one thread and by itself, so nobody else in the batch changes its bits. */

#include <stdint.h>

#include "common.h"

/* 6 rows of 2 vectors are the sums that 16 registers can hold beside what is added to them. */
#define ROWS 6
#define NEVER -3e38f

typedef struct {
    long heads, length, terms, powers, nodes, key_width, value_width;
    uint64_t seed;
    /* a weight is dropped when its 24 random bits are below this, else multiplied by `kept` */
    int causal, dropped;
    float kept, scale;
    /* times [batch, length]; both edges of the piece [batch, 2]; valid [batch, length] or NULL */
    const double *time, *edges;
    const unsigned char *valid;
    /* Gauss-Legendre on [0, 1], exact for the terms times the powers of the path: [nodes] each */
    const double *node, *share;
    /* series [batch, heads, length, terms, key_width], values likewise; path [batch, length, powers, heads, key_width];
       key [batch, length, heads, key_width] */
    const float *series, *values, *path, *key;
    /* out [batch, length, heads, value_width]; weights before dropout [batch, heads, length, length], or NULL */
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
DISPATCH static void transpose(long rows, long columns, const float *from, float *to, long to_row) {
    const long whole = rows / LANES * LANES, wide = columns / LANES * LANES;
    for (long r = 0; r < whole; r += LANES)
        for (long c = 0; c < wide; c += LANES) transpose_square(from + r * columns + c, columns, to + c * to_row + r, to_row);
    for (long c = 0; c < columns; c++) {
        for (long r = c < wide ? whole : 0; r < rows; r++) to[c * to_row + r] = from[r * columns + c];
        for (long r = rows; r < to_row; r++) to[c * to_row + r] = 0;
    }
}

/* Working memory for one head; `row` is the length of a row of pairs. What follows from the times serves all heads of a
   sequence: factors, open keys, x [row], basis [length, terms], numbers [terms, powers, row]. */
typedef struct {
    float *memory, *factors, *weights, *used, *g, *running, *own, *moments, *g_moments, *means, *g_means, *mixed, *transposed;
    float *basis, *numbers, *zeros;
    double *x, *sums, *term;
    int *open;
    long row;
} Work;

/* The next `size` numbers of the memory, which begin at a line of the cache; from NULL on it only counts. */
INLINE float *next_of(float *memory, long *taken, long size) {
    const long line = 16, begin = *taken;
    *taken += (size + line - 1) / line * line;
    return memory ? memory + begin : NULL;
}

static long divide_memory(Work *work, const Knots *w, float *memory) {
    const long row = (w->length + LANES - 1) / LANES * LANES, pairs = w->length * row;
    const long keys = w->terms * w->key_width, values = w->terms * w->value_width;
    long taken = 0;
    work->row = row, work->memory = memory;
    work->factors = next_of(memory, &taken, pairs);
    work->weights = next_of(memory, &taken, pairs);
    work->used = next_of(memory, &taken, pairs);
    work->g = next_of(memory, &taken, pairs);
    work->running = next_of(memory, &taken, row);
    work->own = next_of(memory, &taken, row);
    work->open = (int *)next_of(memory, &taken, row);
    work->basis = next_of(memory, &taken, w->length * w->terms);
    work->numbers = next_of(memory, &taken, w->terms * w->powers * row);
    work->zeros = next_of(memory, &taken, w->value_width);
    work->x = (double *)next_of(memory, &taken, 2 * row);
    work->sums = (double *)next_of(memory, &taken, 2 * w->terms * w->powers * row);
    work->term = (double *)next_of(memory, &taken, 2 * 3 * row);
    work->moments = next_of(memory, &taken, w->length * keys);
    work->g_moments = next_of(memory, &taken, w->length * keys);
    work->means = next_of(memory, &taken, w->length * values);
    work->g_means = next_of(memory, &taken, w->length * values);
    work->mixed = next_of(memory, &taken, w->length * values);
    work->transposed = next_of(memory, &taken, row * (keys > values ? keys : values));
    return taken;
}

static int make_work(Work *work, const Knots *w) {
    float *memory = aligned_alloc(64, divide_memory(work, w, NULL) * sizeof(float));
    if (!memory) return 1;
    divide_memory(work, w, memory);
    memset(work->zeros, 0, w->value_width * sizeof(float));
    return 0;
}

/* scale / |t_j - t_i|, and the scale itself where the score is a product and no mean. */
INLINE void find_factors(const Knots *w, const double *time, Work *work) {
    for (long j = 0; j < w->length; j++) {
        float *restrict factor = work->factors + j * work->row;
        const double here = time[j];
#pragma omp simd
        for (long i = 0; i < w->length; i++) {
            const float gap = fabsf((float)(here - time[i]));
            factor[i] = w->scale / (gap < 1e-37f ? 1e-37f : gap);
        }
        factor[j] = w->scale;
        for (long i = w->length; i < work->row; i++) factor[i] = 0;
    }
}

/* Where the points are on the piece from -1 to 1, and the terms there. */
INLINE void find_basis(const Knots *w, const double *time, const double *edges, Work *work) {
    const double half = (edges[1] - edges[0]) / 2;
    for (long j = 0; j < w->length; j++) {
        const double x = half > 0 ? (time[j] - edges[0]) / half - 1 : 0;
        work->x[j] = x < -1 ? -1 : x > 1 ? 1 : x;
        double term = 1, next = work->x[j];
        for (long m = 0; m < w->terms; m++) {
            const double later = 2 * work->x[j] * next - term;
            work->basis[j * w->terms + m] = (float)term;
            term = next, next = later;
        }
    }
}

/* The integrals of T_m s^k over the cells, s in [0, 1] along each: times the path's coefficients they are the moments. */
INLINE void find_numbers(const Knots *w, const double *time, Work *work) {
    const long length = w->length, row = work->row, count = w->terms * w->powers;
    double *restrict sums = work->sums, *term = work->term, *next = term + row, *later = next + row;
    const double *restrict x = work->x;
    memset(sums, 0, count * row * sizeof(double));
    for (long g = 0; g < w->nodes; g++) {
        for (long n = 0; n < length; n++) {
            const long end = n + 1 < length ? n + 1 : n;
            term[n] = 1, next[n] = x[n] + (x[end] - x[n]) * w->node[g], later[n] = 2 * next[n];
        }
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
    const double *time = w->time + batch * w->length;
    find_factors(w, time, work);
    find_basis(w, time, w->edges + 2 * batch, work);
    find_numbers(w, time, work);
    for (long i = 0; i < work->row; i++) work->open[i] = i < w->length && (!w->valid || w->valid[batch * w->length + i]);
}

/* [length, terms, key_width] */
INLINE void find_moments(const Knots *w, long item, Work *work) {
    const long batch = item / w->heads, head = item % w->heads, step = w->heads * w->key_width;
    const float *path = w->path + batch * w->length * w->powers * step + head * w->key_width;
    for (long n = 0; n < w->length; n++)
        multiply(w->terms, w->key_width, w->powers, work->numbers + n, w->powers * work->row, work->row,
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

/* [length, terms, value_width] */
INLINE void find_means(const Knots *w, long item, Work *work) {
    const long size = w->terms * w->value_width;
    const float *values = w->values + item * w->length * size;
    for (long i = 0; i < w->length; i++) {
        const float a = (float)work->x[i];
        WITH_WIDTH(mean_series(w->terms, width, a, work->zeros, values + i * size, work->means + i * size))
    }
}

/* In place: from each[n][i], the integral over cell n against key i, to their sums from i to n. The diagonal is left. */
INLINE void sum_outwards(const Work *work, long length, float *pairs) {
    const int row = (int)work->row;
    float *restrict sum = work->running;
    memset(sum, 0, row * sizeof(float));
    for (int n = 0; n < length; n++) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (int i = 0; i < row; i++) {
            const float cell = each[i], reached = sum[i];
            each[i] = i < n ? reached : cell;
            sum[i] = i <= n ? reached + cell : 0.0f;
        }
    }
    memset(sum, 0, row * sizeof(float));
    for (int n = (int)length - 1; n >= 0; n--) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (int i = 0; i < row; i++) {
            const float next = i > n ? sum[i] + each[i] : 0.0f;
            each[i] = i > n ? next : each[i];
            sum[i] = next;
        }
    }
}

/* The adjoint of sum_outwards(), in place; what the diagonal holds is not a sum and goes nowhere. */
INLINE void sum_inwards(const Work *work, long length, float *pairs) {
    const int row = (int)work->row;
    float *restrict sum = work->running;
    memset(sum, 0, row * sizeof(float));
    for (int n = (int)length - 1; n >= 0; n--) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (int i = 0; i < row; i++) {
            const float here = each[i], later = sum[i];
            each[i] = i <= n ? later : here;
            sum[i] = i < n ? later + here : later;
        }
    }
    memset(sum, 0, row * sizeof(float));
    for (int n = 0; n < length; n++) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (int i = 0; i < row; i++) {
            const float next = i > n ? sum[i] + each[i] : 0.0f;
            each[i] = i > n ? next : each[i];
            sum[i] = next;
        }
    }
}

/* Softmax over the keys that row j may see, in place; weights of zero where there are none. */
INLINE void softmax_row(const Knots *w, const Work *work, int j, float *restrict s) {
    const int row = (int)work->row, last = w->causal ? j : row;
    const int *restrict open = work->open;
    const float *restrict factor = work->factors + j * row;
    float most = NEVER, total = 0;
#pragma omp simd reduction(max : most)
    for (int i = 0; i < row; i++) {
        const float score = s[i] * factor[i];
        s[i] = open[i] & (i <= last) ? score : NEVER;
        most = s[i] > most ? s[i] : most;
    }
#pragma omp simd
    for (int i = 0; i < row; i++) s[i] = exp_begun(s[i] - most);
#pragma omp simd reduction(+ : total)
    for (int i = 0; i < row; i++) {
        const float share = exp_ended(s[i]);
        s[i] = open[i] & (i <= last) ? share : 0.0f;
        total += s[i];
    }
    const float inverse = total != 0 ? 1.0f / total : 0.0f;
#pragma omp simd
    for (int i = 0; i < row; i++) s[i] *= inverse;
}

/* q(t_j) . key_j */
INLINE float own_score(const Knots *w, long item, long j) {
    const long batch = item / w->heads, head = item % w->heads, at = batch * w->length + j;
    const float *query = w->path + (at * w->powers * w->heads + head) * w->key_width;
    const float *key = w->key + (at * w->heads + head) * w->key_width;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long d = 0; d < w->key_width; d++) sum += query[d] * key[d];
    return sum;
}

/* Weights before dropout, given the moments. */
INLINE void find_weights(const Knots *w, long item, Work *work) {
    const long length = w->length, width = w->terms * w->key_width, row = work->row;
    transpose(length, width, w->series + item * length * width, work->transposed, row);
    multiply(length, row, width, work->moments, width, 1, work->transposed, row, work->weights, row);
    sum_outwards(work, length, work->weights);
    for (long j = 0; j < length; j++) {
        work->weights[j * row + j] = own_score(w, item, j);
        softmax_row(w, work, (int)j, work->weights + j * row);
    }
}

INLINE void keep_weights(const Knots *w, long item, const Work *work) {
    const long length = w->length;
    for (long j = 0; j < length; j++)
        memcpy(w->weights + (item * length + j) * length, work->weights + j * work->row, length * sizeof(float));
}

INLINE void recall_weights(const Knots *w, long item, Work *work) {
    const long length = w->length;
    for (long j = 0; j < length; j++) {
        float *weights = work->weights + j * work->row;
        memcpy(weights, w->weights + (item * length + j) * length, length * sizeof(float));
        for (long i = length; i < work->row; i++) weights[i] = 0;
    }
}

/* The generator splitmix64: 64 bits that are as good as independent for each counter. */
INLINE uint64_t scrambled(uint64_t counter) {
    uint64_t x = counter * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The weights after dropout. A row takes two keys from its place in the batch, a weight its bits from these and its place in
   the row by two rounds of multiplying and shifting: the backward pass finds the same ones. */
INLINE void find_used(const Knots *w, long item, Work *work) {
    const int row = (int)work->row, dropped = w->dropped;
    const float kept = w->kept;
    for (long j = 0; j < w->length; j++) {
        const uint64_t keys = scrambled(w->seed + scrambled((uint64_t)(item * w->length + j) + 1));
        const uint32_t first = (uint32_t)keys, second = (uint32_t)(keys >> 32);
        const float *restrict weights = work->weights + j * row;
        float *restrict used = work->used + j * row;
#pragma omp simd
        for (int i = 0; i < row; i++) {
            uint32_t x = (uint32_t)i * 0x9e3779b9u + first;
            x = (x ^ x >> 16) * 0x7feb352du;
            x = (x ^ x >> 15 ^ second) * 0x846ca68bu;
            x ^= x >> 16;
            const float factor = (int)(x >> 8) >= dropped ? kept : 0.0f;
            used[i] = weights[i] * factor;
        }
    }
}

DISPATCH int knots_forward(const Knots *w, long begin, long end) {
    const long length = w->length, terms = w->terms, width = w->value_width, mixed = terms * width;
    Work work;
    if (make_work(&work, w)) return 1;
    const float *used = w->dropped ? work.used : work.weights;
    for (long item = begin; item < end; item++) {
        const long batch = item / w->heads, head = item % w->heads;
        if (item == begin || head == 0) read_sequence(w, batch, &work);
        find_moments(w, item, &work);
        find_weights(w, item, &work);
        if (w->weights) keep_weights(w, item, &work);
        if (w->dropped) find_used(w, item, &work);
        find_means(w, item, &work);
        multiply(length, mixed, length, used, work.row, 1, work.means, mixed, work.mixed, mixed);
        for (long j = 0; j < length; j++) {
            const long at = batch * length + j;
            multiply(1, width, terms, work.basis + j * terms, terms, 1, work.mixed + j * mixed, width,
                     w->out + (at * w->heads + head) * width, width);
        }
    }
    free(work.memory);
    return 0;
}

/* The gradient of the mixed values: basis_j times that of the output. */
INLINE void spread_gradient(const Knots *w, long item, Work *work) {
    const long batch = item / w->heads, head = item % w->heads, width = w->value_width;
    float *restrict to = work->mixed;
    for (long j = 0; j < w->length; j++) {
        const long at = batch * w->length + j;
        const float *restrict g = w->g_out + (at * w->heads + head) * width;
        for (long m = 0; m < w->terms; m++, to += width)
#pragma omp simd
            for (long d = 0; d < width; d++) to[d] = work->basis[j * w->terms + m] * g[d];
    }
}

/* From the gradient of the weights in use to that of the integrals, in place: weights * (g - sum of weights * g) * factor. */
INLINE void through_softmax(const Work *work, long length, const float *used) {
    const int row = (int)work->row;
    for (long j = 0; j < length; j++) {
        const float *restrict weight = work->weights + j * row, *restrict mine = used + j * row;
        const float *restrict factor = work->factors + j * row;
        float *restrict g = work->g + j * row;
        float along = 0;
#pragma omp simd reduction(+ : along)
        for (int i = 0; i < row; i++) along += mine[i] * g[i];
#pragma omp simd
        for (int i = 0; i < row; i++) g[i] = (mine[i] * g[i] - along * weight[i]) * factor[i];
    }
}

/* Gradients of the path and of the keys themselves, given those of the moments and of the scores on the diagonal. */
INLINE void write_path(const Knots *w, long item, const Work *work) {
    const long batch = item / w->heads, head = item % w->heads, width = w->key_width, step = w->heads * width;
    for (long n = 0; n < w->length; n++) {
        const long at = batch * w->length + n, place = at * w->powers * step + head * width, mine = at * step + head * width;
        multiply(w->powers, width, w->terms, work->numbers + n, work->row, w->powers * work->row,
                 work->g_moments + n * w->terms * width, width, w->g_path + place, step);
        for (long d = 0; d < width; d++) {
            w->g_path[place + d] += work->own[n] * w->key[mine + d];
            w->g_key[mine + d] = work->own[n] * w->path[place + d];
        }
    }
}

INLINE void write_values(const Knots *w, long item, Work *work) {
    const long size = w->terms * w->value_width;
    float *g_values = w->g_values + item * w->length * size;
    for (long i = 0; i < w->length; i++) {
        const float a = (float)work->x[i];
        WITH_WIDTH(unmean_series(w->terms, width, a, work->zeros, work->g_means + i * size, g_values + i * size))
    }
}

DISPATCH int knots_backward(const Knots *w, long begin, long end) {
    const long length = w->length, keys = w->terms * w->key_width, values = w->terms * w->value_width;
    Work work;
    if (make_work(&work, w)) return 1;
    const long row = work.row;
    const float *used = w->dropped ? work.used : work.weights;
    for (long item = begin; item < end; item++) {
        if (item == begin || item % w->heads == 0) read_sequence(w, item / w->heads, &work);
        find_moments(w, item, &work);
        if (w->weights)
            recall_weights(w, item, &work);
        else
            find_weights(w, item, &work);
        if (w->dropped) find_used(w, item, &work);
        spread_gradient(w, item, &work);
        multiply(length, values, length, used, 1, row, work.mixed, values, work.g_means, values);
        write_values(w, item, &work);
        find_means(w, item, &work);
        transpose(length, values, work.means, work.transposed, row);
        multiply(length, row, values, work.mixed, values, 1, work.transposed, row, work.g, row);
        through_softmax(&work, length, used);
        for (long j = 0; j < length; j++) work.own[j] = work.g[j * row + j];
        sum_inwards(&work, length, work.g);
        const long place = item * length * keys;
        multiply(length, keys, length, work.g, 1, row, work.moments, keys, w->g_series + place, keys);
        multiply(length, keys, length, work.g, row, 1, w->series + place, keys, work.g_moments, keys);
        write_path(w, item, &work);
    }
    free(work.memory);
    return 0;
}
