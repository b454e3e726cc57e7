/* Attention from query times to trajectories, in float32, forward and backward, for any length.

   contiformer/nn/reference.py is the listing of these formulas. For a query at time u and key i of one head, with the Chebyshev
   series c_i of the key's and v_i of the value's trajectory on each piece of time:
       score = scale / |u - t_i| * (integral of q . k_i between t_i and u),   scale q(t_i) . key_i where u = t_i
       mean  = 1 / |u - t_i|     * (integral of v_i between t_i and u)
       out   = sum over i of dropout(softmax(score)) mean.

   Points are the times of the keys, the edges between pieces and (unless causal) the queries, in order; the cell n lies between
   the points n and n + 1. Points are cut into blocks, each within one piece. In a block every series is expanded anew on the
   block's own interval, with as few terms as it needs there: series = E series. With the moments mu_n = integral of T_r q over
   cell n, the integral of q . k_i is
       between a key and a point of one block: the sum of c_i . mu_n over the cells between, outwards from the key;
       otherwise: carry_i, up to the edge of the block, plus c_i . (sum of mu_n from that edge to the point).
   Nothing is a difference of prefix sums, so close times lose nothing.

   Softmax is computed online over tiles of keys, and again in the backward pass from the stored logarithms of its sums: the
   memory is that of the series. A head is worked on by one thread and by itself, so no batch mate changes its bits. */

#include <limits.h>

#include "draws.h"
#include "matmul.h"

#define TILE 256
#define NEVER -3e38f
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

typedef struct {
    long heads, points, keys, rows, pieces, terms, powers, nodes, key_width, value_width;
    /* points in a block; so many are one block by themselves; terms of a block may leave out this share of the series */
    long block, single;
    float cut;
    uint64_t seed;
    /* a weight is dropped when its 24 random bits are below this, else multiplied by `kept` */
    int causal, dropped;
    float kept, scale;
    /* times [batch, points]; edges of the pieces [batch, pieces + 1]; number of keys of each sequence [batch] */
    const double *time, *edges;
    const int64_t *length;
    /* The point of each key [batch, keys], in order, and of each query [batch, rows], in order, and where the answer to that
       query goes; NULL where points, keys and queries are the same. */
    const int64_t *place, *asked, *target;
    /* Causal queries between observations [batch, rows]: their times. They ask at the last point before, and from the last
       observation on, the point `source` (-1: none), the path is held. */
    const double *when;
    const int64_t *source;
    /* Gauss-Legendre on [0, 1], exact for the terms times the powers of the path: [nodes] each */
    const double *node, *share;
    /* series [batch, heads, keys, pieces, terms, key_width], values likewise; path [batch, points, powers, heads, key_width];
       key [batch, keys, heads, key_width] */
    const float *series, *values, *path, *key;
    /* out [batch, rows, heads, value_width]; logarithms of the softmax's sums [batch, heads, rows] */
    float *out, *logsum;
    const float *g_out;
    float *g_series, *g_values, *g_path, *g_key;
} Attention;

/* to [columns, to_row] = from [rows, columns] transposed, with zeros behind the last of the rows */
DISPATCH static void transpose(long rows, long columns, const float *from, long from_row, float *to, long to_row) {
    const long whole = rows / LANES * LANES, wide = columns / LANES * LANES;
    for (long r = 0; r < whole; r += LANES)
        for (long c = 0; c < wide; c += LANES) {
            Lanes square[LANES];
            UNROLL for (int n = 0; n < LANES; n++) square[n] = AT(from + (r + n) * from_row, c);
            transpose_square(square);
            UNROLL for (int n = 0; n < LANES; n++) PUT(to + (c + n) * to_row, r) = square[n];
        }
    for (long c = 0; c < columns; c++) {
        for (long r = c < wide ? whole : 0; r < rows; r++) to[c * to_row + r] = from[r * from_row + c];
        for (long r = rows; r < to_row; r++) to[c * to_row + r] = 0;
    }
}

/* The points from `first` to `last` - 1, the rows that ask there, the first of them before any of its keys, and the keys that begin there; `piece_key` and so many more are
   the keys of the whole piece. They lie in
   [begin, end]; their series live on [low, high]. `alone`: that is the piece itself, so series are those that were given. */
typedef struct {
    long first, last, row, rows, held_rows, key, keys, piece, piece_key, piece_keys, terms;
    double begin, end, low, high;
    int alone;
} Block;

/* Working memory for one head. What follows from the times serves all heads of a sequence. Widths are padded to whole vectors. */
typedef struct {
    float *memory;
    /* padded: number of keys; keys in a tile; terms times the width of keys and of values; rows at a time; points in a block */
    long row, wide, keys, values, chunk, size, blocks, length;
    Block *block;
    /* times: begin and end of the cells in the block's variable, times of keys and rows; points of keys and rows, and answers */
    double *begin, *end, *sums, *term, *key_time, *when;
    int *place, *asked, *target, *source;
    /* E of each block; integrals of T_m s^k over the cells [terms, powers, points], of T_m where the path is held, T_m at rows */
    float *expand, *numbers, *held, *basis;
    /* series and means by column: [pieces, terms * width, row]; means [keys, pieces, terms * width]; integrals of the values up
       to a piece [keys, pieces, width]; q(t_i) . key_i */
    float *columns, *mean_columns, *means, *beyond, *own, *zeros;
    /* moments of the cells; per block and key the integral up to the block; up to the ends of the key's own block */
    float *moments, *carry, *held_carry, *run, *to_left, *to_right;
    /* of a block: moments from its left end to the points, and from them to its right end; the same for rows; integrals
       between the points and the block's keys */
    float *left, *right, *before, *after, *inner, *pairs;
    /* of a tile of keys in the block's terms: by row, by column, values likewise; pairs of rows and keys */
    float *key_row, *key_column, *value_row, *value_column, *score, *factor, *used, *near, *far, *gap;
    float *mixed, *outside, *most, *total;
    float *g_means, *g_beyond, *g_own, *g_moments, *g_left, *g_right, *g_before, *g_after, *g_inner, *g_carry, *g_held_carry, *g_tile, *g_pairs, *g, *delta;
} Work;

INLINE long padded(long size) {
    return (size + LANES - 1) / LANES * LANES;
}

/* The next `size` numbers of the memory, which begin at a line of the cache; from NULL on it only counts. */
INLINE void *next_of(float *memory, long *taken, long size) {
    const long line = 16, begin = *taken;
    *taken += (size + LANES + line - 1) / line * line;
    return memory ? memory + begin : NULL;
}

#define TAKE(name, size) work->name = next_of(memory, &taken, size)

static long divide_memory(Work *work, const Attention *w, int backward, float *memory) {
    const long row = work->row = padded(w->keys), points = w->points, keys = w->keys;
    const long wide = work->wide = padded(MAX(MIN(TILE, keys), work->size)) + LANES, chunk = work->chunk;
    const long k = work->keys = padded(w->terms * w->key_width), v = work->values = padded(w->terms * w->value_width);
    const long cut = w->pieces > 1, dv = padded(w->value_width), blocks = work->blocks, pairs = chunk * wide;
    long taken = 0;
    work->memory = memory;
    TAKE(block, blocks * (long)(sizeof(Block) / sizeof(float)));
    TAKE(begin, 2 * points), TAKE(end, 2 * points), TAKE(sums, 2 * w->terms * w->powers * points), TAKE(term, 6 * points);
    TAKE(key_time, 2 * row), TAKE(when, 2 * w->rows), TAKE(place, row), TAKE(asked, w->rows), TAKE(target, w->rows), TAKE(source, w->rows);
    TAKE(expand, blocks * w->terms * w->terms), TAKE(numbers, w->terms * w->powers * points);
    TAKE(held, w->when ? w->rows * w->terms : 0), TAKE(basis, w->rows * w->terms);
    TAKE(columns, w->pieces * w->terms * w->key_width * row), TAKE(means, keys * w->pieces * w->terms * w->value_width);
    TAKE(beyond, cut * keys * w->pieces * w->value_width), TAKE(own, row), TAKE(zeros, w->value_width);
    TAKE(moments, points * k), TAKE(carry, blocks * row), TAKE(held_carry, w->when ? blocks * row : 0), TAKE(run, row), TAKE(to_left, row), TAKE(to_right, row);
    TAKE(left, (work->size + 1) * k), TAKE(right, (work->size + 1) * k), TAKE(before, chunk * k), TAKE(after, chunk * k);
    TAKE(inner, chunk * k), TAKE(pairs, work->size * wide);
    TAKE(key_row, wide * k), TAKE(key_column, k * wide), TAKE(value_row, wide * v), TAKE(value_column, MAX(v, dv) * wide);
    TAKE(score, pairs), TAKE(factor, pairs), TAKE(used, pairs), TAKE(near, cut * pairs), TAKE(far, cut * pairs), TAKE(gap, wide);
    TAKE(mixed, chunk * v), TAKE(outside, chunk * dv), TAKE(most, chunk), TAKE(total, chunk);
    if (backward) {
        TAKE(mean_columns, w->pieces * w->terms * w->value_width * row), TAKE(g_means, keys * w->pieces * w->terms * w->value_width);
        TAKE(g_beyond, cut * keys * w->pieces * w->value_width), TAKE(g_own, row), TAKE(g_moments, points * k);
        TAKE(g_left, (work->size + 1) * k), TAKE(g_right, (work->size + 1) * k), TAKE(g_before, chunk * k);
        TAKE(g_after, chunk * k), TAKE(g_inner, chunk * k), TAKE(g_carry, blocks * row), TAKE(g_held_carry, w->when ? blocks * row : 0), TAKE(g_tile, wide * MAX(k, v));
        TAKE(g_pairs, work->size * wide), TAKE(g, pairs), TAKE(delta, chunk);
    }
    return taken;
}

/* Where a time is on an interval, from -1 to 1. */
INLINE double local(double low, double high, double time) {
    const double half = (high - low) / 2, x = half > 0 ? (time - low) / half - 1 : 0;
    return x < -1 ? -1 : x > 1 ? 1 : x;
}

INLINE double clamped(double time, double low, double high) {
    return time < low ? low : time > high ? high : time;
}

/* The piece of cell n, no earlier than the given one. A time at an edge belongs to the piece behind it, unless that is one of
   the empty pieces at the end. */
INLINE long piece_of(const Attention *w, long batch, long n, long piece) {
    const double *time = w->time + batch * w->points, *edges = w->edges + batch * (w->pieces + 1);
    const double middle = (time[n] + time[n + 1 < w->points ? n + 1 : n]) / 2;
    while (piece + 1 < w->pieces && middle >= edges[piece + 1] && edges[piece + 2] > edges[piece + 1]) piece++;
    return piece;
}

/* Cut the points of a sequence into blocks: not between equal times, so that those meet in one block. Returns their number;
   block NULL: count only, and find the largest. */
INLINE long cut_points(const Attention *w, long batch, Block *block, long *size) {
    const double *time = w->time + batch * w->points;
    long count = 0, piece = 0, earlier = 0, last;
    /* padding is at the last time: it must not count, nor may later points in a causal model */
    while (earlier < w->single && time[earlier] < time[w->points - 1]) earlier++;
    const long most = w->causal || earlier == w->single ? w->block : w->single;
    for (long first = 0; first < w->points; first = last) {
        piece = piece_of(w, batch, first, piece);
        for (last = first + 1; last < w->points; last++)
            if ((last - first >= most && time[last] > time[last - 1]) || piece_of(w, batch, last, piece) != piece) break;
        if (last - first > *size) *size = last - first;
        if (block) block[count] = (Block){.first = first, .last = last, .piece = piece};
        count++;
    }
    return count;
}

static int make_work(Work *work, const Attention *w, long begin, long end, int backward) {
    work->size = work->blocks = 0, work->chunk = MIN(w->block, w->rows);
    for (long batch = begin / w->heads; batch <= (end - 1) / w->heads; batch++) {
        const long blocks = cut_points(w, batch, NULL, &work->size);
        work->blocks = MAX(blocks, work->blocks);
    }
    float *memory = aligned_alloc(64, divide_memory(work, w, backward, NULL) * sizeof(float));
    if (!memory) return 1;
    divide_memory(work, w, backward, memory);
    memset(work->zeros, 0, w->value_width * sizeof(float));
    return 0;
}

/* E: the coefficients of T_m(x) on the block's interval, by T_(m+1)(x) = 2 x T_m(x) - T_(m-1)(x) with x = center + half y. */
INLINE void find_expansion(const Attention *w, const double *edges, const Block *block, float *expand) {
    const long terms = w->terms;
    const double low = local(edges[0], edges[1], block->low), high = local(edges[0], edges[1], block->high);
    const double center = block->alone ? 0 : (low + high) / 2, half = block->alone ? 1 : (high - low) / 2;
    double a[terms + 2], b[terms + 2], c[terms + 2];
    for (long r = 0; r < terms + 2; r++) a[r] = r == 0, b[r] = r == 0 ? center : r == 1 ? half : 0;
    for (long m = 0; m < terms; m++) {
        for (long r = 0; r < terms; r++) expand[r * terms + m] = (float)a[r];
        for (long r = 0; r < terms + 2; r++) {
            const double below = r == 0 ? 0 : r == 1 ? 2 * b[0] : b[r - 1], above = r + 1 < terms + 2 ? b[r + 1] : 0;
            c[r] = 2 * center * b[r] + half * (below + above) - a[r];
        }
        memcpy(a, b, sizeof(a)), memcpy(b, c, sizeof(b));
    }
}

INLINE void find_blocks(const Attention *w, long batch, Work *work) {
    const double *time = w->time + batch * w->points, *edges = w->edges + batch * (w->pieces + 1);
    const long length = work->length = w->length[batch], rows = w->asked ? w->rows : length;
    for (long i = 0; i < length; i++) {
        work->place[i] = w->place ? (int)w->place[batch * w->keys + i] : (int)i;
        work->key_time[i] = time[work->place[i]];
    }
    for (long r = 0; r < rows; r++) {
        const long at = batch * w->rows + r;
        work->asked[r] = w->asked ? (int)w->asked[at] : (int)r;
        work->target[r] = w->target ? (int)w->target[at] : (int)r;
        work->source[r] = w->source ? (int)w->source[at] : work->asked[r];
        work->when[r] = w->when ? w->when[at] : time[work->asked[r]];
    }
    long ignored = 0, key = 0, row = 0;
    work->blocks = cut_points(w, batch, work->block, &ignored);
    while (row < rows && work->source[row] < 0) row++;
    for (long j = 0; j < work->blocks; j++) {
        Block *block = work->block + j;
        for (block->key = key; key < length && work->place[key] < block->last; key++) block->keys++;
        for (block->row = row; row < rows && work->asked[row] < block->last; row++) {
            block->rows++;
            block->held_rows += work->source[row] < block->first;
        }
        const int same_before = j > 0 && block[-1].piece == block->piece;
        /* what is known at a time must not depend on later ones, so in a causal model no block has an interval of its own */
        block->alone = w->causal || (!same_before && (j + 1 == work->blocks || block[1].piece != block->piece));
        block->begin = time[block->first], block->end = time[MIN(block->last, w->points - 1)];
        block->low = block->alone ? edges[block->piece] : block->begin;
        block->high = block->alone ? edges[block->piece + 1] : block->end;
        block->piece_key = same_before ? block[-1].piece_key : block->key;
        for (long k = j; k >= 0 && work->block[k].piece == block->piece; k--)
            work->block[k].piece_keys = key - block->piece_key;
        for (long n = block->first; n < block->last; n++) {
            work->begin[n] = local(block->low, block->high, time[n]);
            work->end[n] = local(block->low, block->high, time[MIN(n + 1, w->points - 1)]);
        }
        find_expansion(w, edges + block->piece, block, work->expand + j * w->terms * w->terms);
    }
}

/* The terms at the rows; and their integrals from the asked point to the row where the path is held there. */
INLINE void find_basis(const Attention *w, long batch, Work *work) {
    const double *time = w->time + batch * w->points;
    for (long j = 0; j < work->blocks; j++) {
        const Block *block = work->block + j;
        for (long r = block->row; r < block->row + block->rows; r++) {
            const double from = time[work->asked[r]], length = work->when[r] - from;
            for (long g = -1; g < (w->when ? w->nodes : 0); g++) {
                const double x = local(block->low, block->high, g < 0 ? work->when[r] : from + length * w->node[g]);
                float *to = (g < 0 ? work->basis : work->held) + r * w->terms;
                double term = 1, next = x;
                for (long m = 0; m < w->terms; m++) {
                    const double later = 2 * x * next - term;
                    to[m] = (float)(g < 0 ? term : (g ? to[m] : 0) + w->share[g] * length * term);
                    term = next, next = later;
                }
            }
        }
    }
}

/* The integrals of T_m s^k over the cells, s in [0, 1] along each: times the path's coefficients they are the moments. */
INLINE void find_numbers(const Attention *w, const double *time, Work *work) {
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

/* All that follows from the times. */
INLINE void read_sequence(const Attention *w, long batch, Work *work) {
    find_blocks(w, batch, work);
    find_basis(w, batch, work);
    find_numbers(w, w->time + batch * w->points, work);
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
#define WITH_WIDTH(size, call)         \
    if ((size) == LANES) {             \
        const long width = LANES;      \
        call;                          \
    } else if ((size) == 2 * LANES) {  \
        const long width = 2 * LANES;  \
        call;                          \
    } else {                           \
        const long width = (size);     \
        call;                          \
    }

/* Where the mean of a key begins on a piece: at the key, or at the edge that is nearer to it. */
INLINE double nearest(const Attention *w, long batch, const Work *work, long i, long piece) {
    const double *edges = w->edges + batch * (w->pieces + 1) + piece;
    return clamped(work->key_time[i], edges[0], edges[1]);
}

INLINE float start_of_mean(const Attention *w, long batch, const Work *work, long i, long piece) {
    const double *edges = w->edges + batch * (w->pieces + 1) + piece;
    return (float)local(edges[0], edges[1], work->key_time[i]);
}

INLINE void find_means(const Attention *w, long item, Work *work) {
    const long batch = item / w->heads, size = w->terms * w->value_width;
    const float *values = w->values + item * w->keys * w->pieces * size;
    for (long i = 0; i < work->length; i++)
        for (long p = 0; p < w->pieces; p++) {
            const float a = start_of_mean(w, batch, work, i, p);
            const long at = (i * w->pieces + p) * size;
            WITH_WIDTH(w->value_width, mean_series(w->terms, width, a, work->zeros, values + at, work->means + at))
        }
}

/* A mean at an edge of its piece: the sum of the series, or the alternating one. */
INLINE float at_edge(long terms, long width, const float *mean, int right) {
    float sum = 0;
    for (long m = 0; m < terms; m++) sum += m % 2 && !right ? -mean[m * width] : mean[m * width];
    return sum;
}

/* The integral of the values between a key and a piece: the sum over the pieces between and the key's own. */
INLINE void find_beyond(const Attention *w, long item, Work *work) {
    const long batch = item / w->heads, width = w->value_width, size = w->terms * width;
    const double *edges = w->edges + batch * (w->pieces + 1);
    for (long i = 0; i < work->length; i++)
        for (long d = 0; d < width; d++) {
            const float *means = work->means + i * w->pieces * size + d;
            float *beyond = work->beyond + i * w->pieces * width + d, sum = 0;
            for (long p = 0; p < w->pieces; p++) {
                beyond[p * width] = sum;
                const float length = (float)(edges[p + 1] - nearest(w, batch, work, i, p));
                sum += length > 0 ? length * at_edge(w->terms, width, means + p * size, 1) : 0;
            }
            sum = 0;
            for (long p = w->pieces - 1; p >= 0 && !w->causal; p--) {
                beyond[p * width] += sum;
                const float length = (float)(nearest(w, batch, work, i, p) - edges[p]);
                sum += length > 0 ? length * at_edge(w->terms, width, means + p * size, 0) : 0;
            }
        }
}

/* Its adjoint: the gradient of the integrals goes to the means. */
INLINE void return_beyond(const Attention *w, long item, Work *work) {
    const long batch = item / w->heads, width = w->value_width, size = w->terms * width;
    const double *edges = w->edges + batch * (w->pieces + 1);
    for (long i = 0; i < work->length; i++)
        for (long d = 0; d < width; d++) {
            float *g_means = work->g_means + i * w->pieces * size + d, sum = 0;
            const float *g_beyond = work->g_beyond + i * w->pieces * width + d;
            for (long p = w->pieces - 1; p >= 0; p--) {
                const float g = sum * (float)(edges[p + 1] - nearest(w, batch, work, i, p));
                for (long m = 0; m < w->terms; m++) g_means[p * size + m * width] += g;
                sum += g_beyond[p * width];
            }
            sum = 0;
            for (long p = 0; p < w->pieces && !w->causal; p++) {
                const float g = sum * (float)(nearest(w, batch, work, i, p) - edges[p]);
                for (long m = 0; m < w->terms; m++) g_means[p * size + m * width] += m % 2 ? -g : g;
                sum += g_beyond[p * width];
            }
        }
}

/* to [count, terms of the block, width] = E from [count, terms, width]; the rows of both are so far apart */
INLINE void expand_rows(
    const long width, long count, long few, long terms, const float *expand, const float *from, long from_row, float *to, long to_row
) {
    for (long i = 0; i < count; i++, from += from_row, to += to_row)
        for (long r = 0; r < few; r++)
            for (long d = 0; d < width; d += LANES) {
                const long some = MIN(width - d, LANES);
                float sum[LANES] = {0};
                for (long m = r; m < terms; m++)
#pragma omp simd
                    for (long e = 0; e < some; e++) sum[e] += expand[r * terms + m] * from[m * width + d + e];
                memcpy(to + r * width + d, sum, some * sizeof(float));
            }
}

/* Its adjoint, added to what is there. */
INLINE void add_unexpanded(
    const long width, long count, long few, long terms, const float *expand, const float *from, long from_row, float *to, long to_row
) {
    for (long i = 0; i < count; i++, from += from_row, to += to_row)
        for (long r = 0; r < few; r++)
            for (long m = r; m < terms; m++)
#pragma omp simd
                for (long d = 0; d < width; d++) to[m * width + d] += expand[r * terms + m] * from[r * width + d];
}

/* The same by columns: to [few * width, to_row] = E from [terms * width, from_row], `count` keys of them */
INLINE void expand_columns(
    long width, long count, long few, long terms, const float *expand, const float *from, long from_row, float *to, long to_row
) {
    for (long r = 0; r < few; r++)
        for (long d = 0; d < width; d++, to += to_row)
            for (long i = 0; i < count; i += LANES) {
                Lanes sum = {0};
                for (long m = r; m < terms; m++) sum += expand[r * terms + m] * AT(from + (m * width + d) * from_row, i);
                PUT(to, i) = sum;
            }
}

/* Root mean squares over `count` series [terms, width] of each of their terms, up to a factor. */
INLINE void find_sizes(long terms, long width, long count, const float *from, long from_row, double *size) {
    float sum[terms * width];
    memset(sum, 0, sizeof(sum));
    for (long i = 0; i < count; i++, from += from_row)
#pragma omp simd
        for (long n = 0; n < terms * width; n++) sum[n] += from[n] * from[n];
    for (long m = 0; m < terms; m++) {
        double all = 0;
        for (long d = 0; d < width; d++) all += sum[m * width + d];
        size[m] = sqrt(all);
    }
}

/* How many terms series of these sizes on a piece need on a block: what is left out is `cut` of them, in the root mean square. */
INLINE long terms_for(long terms, double cut, const float *expand, const double *size) {
    double all = 0, lost = 0;
    for (long m = 0; m < terms; m++) all += size[m] * size[m];
    long few = terms;
    for (; few > 1; few--) {
        for (long m = few - 1; m < terms; m++) lost += fabs(expand[(few - 1) * terms + m]) * size[m];
        if (!(lost <= cut * sqrt(all))) break;
    }
    return few;
}

/* Moments of the cells in the terms of their blocks [points, terms, key_width]. */
INLINE void find_moments(const Attention *w, long item, Work *work) {
    const long batch = item / w->heads, head = item % w->heads, width = w->key_width, step = w->heads * width;
    const float *path = w->path + batch * w->points * w->powers * step + head * width;
    for (long n = 0; n < w->points; n++, path += w->powers * step) {
        float *moments = work->moments + n * work->keys;
        for (long m = 0; m < w->terms; m++, moments += width) {
            const float *numbers = work->numbers + m * w->powers * w->points + n;
#pragma omp simd
            for (long d = 0; d < width; d++) moments[d] = numbers[0] * path[d];
            for (long k = 1; k < w->powers; k++)
#pragma omp simd
                for (long d = 0; d < width; d++) moments[d] += numbers[k * w->points] * path[k * step + d];
        }
    }
}

/* Where the series of key i on a piece begins. */
INLINE long series_at(const Attention *w, long item, long i, long piece) {
    return ((item * w->keys + i) * w->pieces + piece) * w->terms * w->key_width;
}

INLINE const float *expansion(const Attention *w, const Work *work, const Block *block) {
    return work->expand + (block - work->block) * w->terms * w->terms;
}

INLINE void add_to(long size, const float *restrict from, float *restrict to) {
#pragma omp simd
    for (long n = 0; n < size; n++) to[n] += from[n];
}

/* The integral over a whole block as a functional of a piece's series: z = E^T (sum of the moments). */
INLINE void whole_block(const Attention *w, const Work *work, const Block *block, float *z) {
    const long size = block->terms * w->key_width;
    float total[work->keys];
    memset(total, 0, work->keys * sizeof(float)), memset(z, 0, work->keys * sizeof(float));
    for (long n = block->first; n < block->last; n++) add_to(size, work->moments + n * work->keys, total);
    add_unexpanded(w->key_width, 1, block->terms, w->terms, expansion(w, work, block), total, 0, z, 0);
}

/* From the integrals over whole blocks to the sums up to each block, from the left and from the right; forward, or the adjoint
   of that: then from the gradients of the sums to those of the integrals. `ends` are those up to the end of the own block. */
INLINE void sum_blocks(const Work *work, int causal, int adjoint, float *table) {
    for (int side = 0; side < (causal ? 1 : 2); side++) {
        float *run = work->run, *ends = side ? work->to_left : work->to_right;
        memset(run, 0, work->row * sizeof(float));
        for (long n = 0; n < work->blocks; n++) {
            const long j = side ^ adjoint ? work->blocks - 1 - n : n;
            const Block *block = work->block + j;
            const long begin = side ? block->key + block->keys : 0, end = side ? work->length : block->key;
            float *restrict of = table + j * work->row;
#pragma omp simd
            for (long i = begin; i < end; i++) {
                const float here = of[i];
                of[i] = run[i], run[i] += here;
            }
            for (long i = block->key; i < block->key + block->keys; i++) {
                if (adjoint)
                    ends[i] = run[i];
                else
                    run[i] = ends[i];
            }
        }
    }
}

/* Moments between the ends of a block and its points. */
INLINE void find_sides(const Work *work, const Block *block) {
    const long keys = work->keys, size = block->last - block->first;
    memset(work->left, 0, keys * sizeof(float)), memset(work->right + size * keys, 0, keys * sizeof(float));
    for (long n = 0; n < size; n++) {
        memcpy(work->left + (n + 1) * keys, work->left + n * keys, keys * sizeof(float));
        add_to(keys, work->moments + (block->first + n) * keys, work->left + (n + 1) * keys);
    }
    for (long n = size - 1; n >= 0; n--) {
        memcpy(work->right + n * keys, work->right + (n + 1) * keys, keys * sizeof(float));
        add_to(keys, work->moments + (block->first + n) * keys, work->right + n * keys);
    }
}

/* Its adjoint: a cell lies before all later points, and behind all earlier ones and the one where it begins. */
INLINE void return_sides(Work *work, const Block *block) {
    const long keys = work->keys, size = block->last - block->first;
    float *g_moments = work->g_moments + block->first * keys;
    for (long n = size - 1; n >= 0; n--) {
        add_to(keys, work->g_left + (n + 1) * keys, g_moments + n * keys);
        add_to(keys, work->g_left + (n + 1) * keys, work->g_left + n * keys);
    }
    for (long n = 0; n < size; n++) {
        add_to(keys, work->g_right + n * keys, g_moments + n * keys);
        add_to(keys, work->g_right + n * keys, work->g_right + (n + 1) * keys);
    }
}

/* Integrals between the keys of a block and its ends. */
INLINE void find_ends(const Attention *w, long item, Work *work, const Block *block) {
    float c[work->keys];
    find_sides(work, block);
    for (long i = block->key; i < block->key + block->keys; i++) {
        const float *left = work->left + (work->place[i] - block->first) * work->keys, *right = work->right + (left - work->left);
        const float *series = w->series + series_at(w, item, i, block->piece);
        expand_rows(w->key_width, 1, block->terms, w->terms, expansion(w, work, block), series, 0, c, 0);
        work->to_left[i] = work->to_right[i] = 0;
        for (long d = 0; d < block->terms * w->key_width; d++)
            work->to_left[i] += c[d] * left[d], work->to_right[i] += c[d] * right[d];
    }
}

/* Its adjoint: what was found is now the gradients of it. */
INLINE void return_ends(const Attention *w, long item, Work *work, const Block *block) {
    const long size = (block->last - block->first + 1) * work->keys;
    const float *expand = expansion(w, work, block);
    float c[work->keys], g_c[work->keys];
    find_sides(work, block);
    memset(work->g_left, 0, size * sizeof(float)), memset(work->g_right, 0, size * sizeof(float));
    for (long i = block->key; i < block->key + block->keys; i++) {
        const long at = (work->place[i] - block->first) * work->keys, place = series_at(w, item, i, block->piece);
        const float to_left = w->causal ? 0 : work->to_left[i], to_right = work->to_right[i];
        expand_rows(w->key_width, 1, block->terms, w->terms, expand, w->series + place, 0, c, 0);
        for (long d = 0; d < block->terms * w->key_width; d++) {
            work->g_left[at + d] += to_left * c[d], work->g_right[at + d] += to_right * c[d];
            g_c[d] = to_left * work->left[at + d] + to_right * work->right[at + d];
        }
        add_unexpanded(w->key_width, 1, block->terms, w->terms, expand, g_c, 0, w->g_series + place, 0);
    }
    return_sides(work, block);
}

/* Between observations a causal path is held. What that changes in the last cell of block j, as a functional of the series:
   the difference of the moments, [terms, key_width]. Returns the point whose value is held. */
INLINE long held_difference(const Attention *w, long item, const Work *work, long j, float *z) {
    const Block *block = work->block + j;
    const long batch = item / w->heads, dk = w->key_width, step = w->heads * dk, last = block->last - 1;
    const long keys = block->key + block->keys, source = keys ? work->place[keys - 1] : 0;
    const float *query = w->path + (batch * w->points + source) * w->powers * step + item % w->heads * dk;
    for (long m = 0; m < w->terms; m++)
        for (long d = 0; d < dk; d++)
            z[m * dk + d] = work->numbers[m * w->powers * w->points + last] * query[d] - work->moments[last * work->keys + m * dk + d];
    return source;
}

/* Integrals up to each block with the path held from the last observation before it on. */
INLINE void hold_carry(const Attention *w, long item, Work *work) {
    const long size = w->terms * w->key_width, row = work->row;
    memcpy(work->held_carry, work->carry, row * sizeof(float));
    for (long j = 0; j + 1 < work->blocks; j++) {
        const Block *block = work->block + j;
        float z[size], *more = work->held_carry + (j + 1) * row;
        held_difference(w, item, work, j, z);
        multiply(1, work->length, size, (Matrix){z, 0, 1}, work->columns + block->piece * size * row, row, NULL, 0, more, row);
        add_to(work->length, work->carry + (j + 1) * row, more);
        if (block->keys) continue;
        for (long i = 0; i < work->length; i++) more[i] += work->held_carry[j * row + i] - work->carry[j * row + i];
    }
}

/* Its adjoint. Of the part that is the carry itself, the rows take care. */
INLINE void return_held_carry(const Attention *w, long item, Work *work) {
    const long size = w->terms * w->key_width, stride = w->pieces * size, row = work->row, dk = w->key_width;
    const long batch = item / w->heads, step = w->heads * dk;
    for (long j = work->blocks - 2; j >= 0; j--) {
        const Block *block = work->block + j;
        const long place = series_at(w, item, 0, block->piece), last = block->last - 1;
        const float *g = work->g_held_carry + (j + 1) * row;
        float z[size], g_z[size];
        const long source = held_difference(w, item, work, j, z);
        memset(g_z, 0, size * sizeof(float));
        for (long i = 0; i < block->key + block->keys; i++) {
            const float *restrict c = w->series + place + i * stride;
            float *restrict g_c = w->g_series + place + i * stride;
#pragma omp simd
            for (long d = 0; d < size; d++) g_z[d] += g[i] * c[d], g_c[d] += g[i] * z[d];
        }
        if (!block->keys) add_to(block->key, g, work->g_held_carry + j * row);
        float *g_path = w->g_path + (batch * w->points + source) * w->powers * step + item % w->heads * dk;
        for (long m = 0; m < w->terms; m++)
            for (long d = 0; d < dk; d++) {
                g_path[d] += work->numbers[m * w->powers * w->points + last] * g_z[m * dk + d];
                work->g_moments[last * work->keys + m * dk + d] -= g_z[m * dk + d];
            }
    }
}

/* All that follows from a head's numbers and not from a single block's. */
INLINE void read_head(const Attention *w, long item, Work *work, int backward) {
    const long batch = item / w->heads, head = item % w->heads, dk = w->key_width, step = w->heads * dk, row = work->row;
    const long keys = w->terms * dk, values = w->terms * w->value_width, length = work->length;
    find_means(w, item, work);
    if (w->pieces > 1) find_beyond(w, item, work);
    for (long p = 0; p < w->pieces; p++) {
        transpose(length, keys, w->series + series_at(w, item, 0, p), w->pieces * keys, work->columns + p * keys * row, row);
        if (backward)
            transpose(length, values, work->means + p * values, w->pieces * values, work->mean_columns + p * values * row, row);
    }
    for (long i = 0; i < length; i++) {
        const float *query = w->path + (batch * w->points + work->place[i]) * w->powers * step + head * dk;
        const float *key = w->key + (batch * w->keys + i) * step + head * dk;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (long d = 0; d < dk; d++) sum += query[d] * key[d];
        work->own[i] = sum;
    }
    double sizes[2][w->terms];
    for (long j = 0; j < work->blocks; j++) {
        Block *block = work->block + j;
        block->terms = w->terms;
        if (w->causal) continue;
        if (j == 0 || block[-1].piece != block->piece) {
            find_sizes(w->terms, dk, length, w->series + series_at(w, item, 0, block->piece), w->pieces * keys, sizes[0]);
            find_sizes(w->terms, w->value_width, length, work->means + block->piece * values, w->pieces * values, sizes[1]);
        }
        const double cut = block->alone ? 0 : w->cut;
        const long few = terms_for(w->terms, cut, expansion(w, work, block), sizes[0]);
        block->terms = MAX(few, terms_for(w->terms, cut, expansion(w, work, block), sizes[1]));
    }
    find_moments(w, item, work);
    if (work->blocks == 1) return;
    for (long j = 0; j < work->blocks; j++) {
        const Block *block = work->block + j;
        float z[work->keys];
        whole_block(w, work, block, z);
        multiply(1, length, keys, (Matrix){z, 0, 1}, work->columns + block->piece * keys * row, row, NULL, 0, work->carry + j * row, row);
    }
    for (long j = 0; j < work->blocks; j++) find_ends(w, item, work, work->block + j);
    sum_blocks(work, w->causal, 0, work->carry);
    if (w->when) hold_carry(w, item, work);
}

/* In place: from each[n][i], the integral over cell n against key i, to their sums from i to n. */
INLINE void sum_outwards(long count, long length, const int *restrict place, long first, long row, float *pairs, float *restrict sum) {
    memset(sum, 0, count * sizeof(float));
    for (int n = 0; n < length; n++) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (long i = 0; i < count; i++) {
            const float cell = each[i], reached = sum[i];
            each[i] = place[i] - first < n ? reached : place[i] - first > n ? cell : 0.0f;
            sum[i] = place[i] - first <= n ? reached + cell : 0.0f;
        }
    }
    memset(sum, 0, count * sizeof(float));
    for (int n = (int)length - 1; n >= 0; n--) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (long i = 0; i < count; i++) {
            const float next = place[i] - first > n ? sum[i] + each[i] : 0.0f;
            each[i] = place[i] - first > n ? next : each[i];
            sum[i] = next;
        }
    }
}

/* The adjoint of sum_outwards(), in place. */
INLINE void sum_inwards(long count, long length, const int *restrict place, long first, long row, float *pairs, float *restrict sum) {
    memset(sum, 0, count * sizeof(float));
    for (int n = (int)length - 1; n >= 0; n--) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (long i = 0; i < count; i++) {
            const float here = each[i], later = sum[i];
            each[i] = place[i] - first <= n ? later : here;
            sum[i] = place[i] - first < n ? later + here : later;
        }
    }
    memset(sum, 0, count * sizeof(float));
    for (int n = 0; n < length; n++) {
        float *restrict each = pairs + n * row;
#pragma omp simd
        for (long i = 0; i < count; i++) {
            const float next = place[i] - first > n ? sum[i] + each[i] : 0.0f;
            each[i] = place[i] - first > n ? next : each[i];
            sum[i] = next;
        }
    }
}

/* The keys from `begin` to `end` - 1 of a head beside a block: on its left, inside, or on its right. */
typedef enum { LEFT, INSIDE, RIGHT } Side;
typedef struct {
    Side side;
    long begin, end;
} Tile;

/* The tiles of a block one after the other; 0 when there is none left. */
INLINE int next_tile(const Attention *w, const Work *work, const Block *block, Tile *tile) {
    const long inside = block->key + block->keys;
    long begin = tile->end;
    if (begin == block->key && tile->side == LEFT && block->keys) {
        *tile = (Tile){INSIDE, begin, inside};
        return 1;
    }
    const Side side = begin < block->key ? LEFT : RIGHT;
    const long end = side == LEFT ? block->key : work->length;
    if (begin >= end || (side == RIGHT && w->causal)) return 0;
    *tile = (Tile){side, begin, MIN(begin + TILE, end)};
    return 1;
}

/* A tile's series in the block's terms. Where nothing changes, they are read where they are. */
INLINE const float *tile_columns(
    const Attention *w, const Work *work, const Block *block, const Tile *tile, const float *from, long width, float *to, long *row
) {
    from += block->piece * w->terms * width * work->row + tile->begin;
    *row = work->row;
    if (block->alone) return from;
    *row = work->wide;
    expand_columns(width, tile->end - tile->begin, block->terms, w->terms, expansion(w, work, block), from, work->row, to, work->wide);
    return to;
}

INLINE const float *tile_rows(
    const Attention *w, const Work *work, const Block *block, const Tile *tile, const float *from, long each, float *to, long *row
) {
    const long size = w->terms * each, stride = w->pieces * size, count = tile->end - tile->begin;
    from += tile->begin * stride + block->piece * size;
    *row = stride;
    if (block->alone && size % LANES == 0) return from;
    *row = padded(size);
    WITH_WIDTH(each, expand_rows(width, count, block->terms, w->terms, expansion(w, work, block), from, stride, to, *row))
    return to;
}

/* Integrals from the keys of a tile to the rows, in work->score. Inside, `pairs` has those to the points. */
INLINE void find_integrals(const Attention *w, Work *work, const Block *block, const Tile *tile, long first, long count) {
    const long wide = work->wide, keys = work->keys, width = tile->end - tile->begin, size = block->terms * w->key_width;
    long row;
    const float *column = tile_columns(w, work, block, tile, work->columns, w->key_width, work->key_column, &row);
    if (tile->side != INSIDE) {
        const Matrix moments = {tile->side == LEFT ? work->before : work->after, keys, 1};
        const float *carry = first < block->row + block->held_rows ? work->held_carry : work->carry;
        const float *start = carry + (block - work->block) * work->row + tile->begin;
        multiply(count, width, size, moments, column, row, start, 0, work->score, wide);
        return;
    }
    if (first == block->row || first == block->row + block->held_rows) {
        const Matrix moments = {work->moments + block->first * keys, keys, 1};
        multiply(block->last - block->first, width, size, moments, column, row, NULL, 0, work->pairs, wide);
        sum_outwards(width, block->last - block->first, work->place + tile->begin, block->first, wide, work->pairs, work->run);
    }
    for (long r = 0; r < count; r++)
        memcpy(work->score + r * wide, work->pairs + (work->asked[first + r] - block->first) * wide, width * sizeof(float));
    if (w->when)
        multiply(count, width, size, (Matrix){work->inner, keys, 1}, column, row, work->score, wide, work->score, wide);
}

/* From integrals to scores, in place, and the factors between them; NEVER where a row must not look, 0 for the factor where the
   score is no integral. */
INLINE void find_scores(const Attention *w, Work *work, const Block *block, const Tile *tile, long first, long count) {
    const long width = tile->end - tile->begin, all = padded(width);
    const double *restrict there = work->key_time + tile->begin;
    const double origin = tile->side == LEFT ? block->begin : block->end;
    const float scale = w->scale, *restrict own = work->own + tile->begin;
    float *restrict gap = work->gap;
    if (tile->side != INSIDE)
        for (long i = 0; i < width; i++) gap[i] = (float)fabs(there[i] - origin);
    for (long r = 0; r < count; r++) {
        float *restrict s = work->score + r * work->wide, *restrict factor = work->factor + r * work->wide;
        const double here = work->when[first + r];
        if (tile->side != INSIDE) {
            const float mine = (float)fabs(here - origin);
#pragma omp simd
            for (long i = 0; i < width; i++) {
                const float f = scale / (mine + gap[i]);
                factor[i] = f, s[i] *= f;
            }
        } else {
            const int causal = w->causal;
#pragma omp simd
            for (long i = 0; i < width; i++) {
                const double apart = here - there[i];
                const float size = (float)fabs(apart), f = scale / (size < 1e-37f ? 1e-37f : size);
                const float score = apart == 0 ? scale * own[i] : s[i] * f;
                factor[i] = apart == 0 ? 0.0f : f;
                s[i] = causal && apart < 0 ? NEVER : score;
            }
        }
        for (long i = width; i < all; i++) s[i] = NEVER, factor[i] = 0;
    }
}

/* Weights exp(s - top) of a row, in place; zero where it must not look. Returns their sum. */
INLINE float exponentials(long count, float top, float *restrict s, float *restrict scaled) {
    float sum = 0;
#pragma omp simd
    for (long i = 0; i < count; i++) scaled[i] = exp_begun(s[i] - top);
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < count; i++) {
        const float share = exp_ended(scaled[i]);
        s[i] = s[i] <= NEVER ? 0.0f : share;
        sum += s[i];
    }
    return sum;
}

/* The weights after dropout. A row takes two keys from its place in the batch, a weight its bits from these and its place in
   the row by two rounds of multiplying and shifting: the backward pass finds the same ones. */
INLINE void find_used(const Attention *w, long item, const Work *work, const Tile *tile, long first, long count) {
    const long all = padded(tile->end - tile->begin);
    const int dropped = w->dropped, begin = (int)tile->begin;
    const float kept = w->kept;
    for (long r = 0; r < count; r++) {
        const uint64_t place = mixed(((uint64_t)(item * w->rows + work->target[first + r]) + 1) * GOLDEN);
        const Draws draws = halves(mixed((w->seed + place) * GOLDEN));
        const float *restrict weights = work->score + r * work->wide;
        float *restrict used = work->used + r * work->wide;
#pragma omp simd
        for (int i = 0; i < all; i++) {
            const float factor = (int)(bits_at(draws, (uint32_t)(begin + i)) >> 8) >= dropped ? kept : 0.0f;
            used[i] = weights[i] * factor;
        }
    }
}

/* The share of the mean on the row's piece in the mean of key i: all of it where the key began there. */
#define SHARE(i) ((i) >= own && (i) < own_end ? 1.0f : ((i) < own ? since : until) * factor[i] * unscale)

/* Divide the weights in use between the means on the row's piece and what lies beyond its edges. */
INLINE void divide_used(const Attention *w, long batch, Work *work, const Block *block, const Tile *tile, long first, long count, const float *all_used) {
    const double *edges = w->edges + batch * (w->pieces + 1) + block->piece;
    const long own = block->piece_key - tile->begin, own_end = own + block->piece_keys, all = padded(tile->end - tile->begin);
    const float unscale = 1.0f / w->scale;
    for (long r = 0; r < count; r++) {
        const float since = (float)(work->when[first + r] - edges[0]), until = (float)(edges[1] - work->when[first + r]);
        const float *restrict used = all_used + r * work->wide, *restrict factor = work->factor + r * work->wide;
        float *restrict near = work->near + r * work->wide, *restrict far = work->far + r * work->wide;
#pragma omp simd
        for (long i = 0; i < all; i++) near[i] = used[i] * SHARE(i), far[i] = used[i] * factor[i] * unscale;
    }
}

/* The moments between the ends of a block and some of its rows. */
INLINE void find_row_sides(const Attention *w, long item, const Work *work, const Block *block, long first, long count) {
    const long keys = work->keys, dk = w->key_width, step = w->heads * dk, batch = item / w->heads;
    for (long r = 0; r < count; r++) {
        const long point = work->asked[first + r], at = (point - block->first) * keys;
        if (work->blocks > 1) {
            memcpy(work->before + r * keys, work->left + at, keys * sizeof(float));
            memcpy(work->after + r * keys, work->right + at, keys * sizeof(float));
        }
        if (!w->when) continue;
        const float *query = w->path + (batch * w->points + work->source[first + r]) * w->powers * step + item % w->heads * dk;
        for (long m = 0; m < block->terms; m++)
            for (long d = 0; d < dk; d++) work->inner[r * keys + m * dk + d] = work->held[(first + r) * w->terms + m] * query[d];
        add_to(block->terms * dk, work->inner + r * keys, work->before + r * keys);
    }
}

/* Where the answer to row r is, in `out` and in its gradient. */
INLINE long answer(const Attention *w, long item, const Work *work, long r) {
    return ((item / w->heads * w->rows + work->target[r]) * w->heads + item % w->heads) * w->value_width;
}

/* How many rows of a block from number r on are worked on at once: those where the path is held all along are apart. */
INLINE long next_rows(const Work *work, const Block *block, long r) {
    const long end = r < block->held_rows ? block->held_rows : block->rows;
    return MIN(work->chunk, end - r);
}

INLINE void forward_rows(const Attention *w, long item, Work *work, const Block *block, long first, long count) {
    const long batch = item / w->heads, dv = w->value_width, wide = work->wide, values = work->values, rest = padded(dv);
    find_row_sides(w, item, work, block, first, count);
    for (long r = 0; r < count; r++) work->most[r] = NEVER, work->total[r] = 0;
    memset(work->mixed, 0, count * values * sizeof(float)), memset(work->outside, 0, count * rest * sizeof(float));
    for (Tile tile = {LEFT, 0, 0}; next_tile(w, work, block, &tile);) {
        const long width = tile.end - tile.begin;
        find_integrals(w, work, block, &tile, first, count);
        find_scores(w, work, block, &tile, first, count);
        for (long r = 0; r < count; r++) {
            float *restrict s = work->score + r * wide, most = work->most[r];
#pragma omp simd reduction(max : most)
            for (long i = 0; i < width; i++) most = s[i] > most ? s[i] : most;
            const float shrink = exp_fast(work->most[r] - most);
            work->total[r] = work->total[r] * shrink + exponentials(padded(width), most, s, work->gap);
            work->most[r] = most;
            if (shrink == 1.0f) continue;
            for (long d = 0; d < values; d++) work->mixed[r * values + d] *= shrink;
            for (long d = 0; d < rest; d++) work->outside[r * rest + d] *= shrink;
        }
        const float *near = work->score;
        if (w->dropped) find_used(w, item, work, &tile, first, count), near = work->used;
        if (w->pieces > 1) divide_used(w, batch, work, block, &tile, first, count, near), near = work->near;
        long row;
        const float *means = tile_rows(w, work, block, &tile, work->means, dv, work->value_row, &row);
        multiply(count, block->terms * dv, width, (Matrix){near, wide, 1}, means, row, work->mixed, values, work->mixed, values);
        if (w->pieces > 1)
            multiply(count, dv, width, (Matrix){work->far, wide, 1}, work->beyond + (tile.begin * w->pieces + block->piece) * dv,
                     w->pieces * dv, work->outside, rest, work->outside, rest);
    }
    for (long r = 0; r < count; r++) {
        float *out = w->out + answer(w, item, work, first + r), total = work->total[r];
        const float inverse = total > 0 ? 1.0f / total : 0.0f, *basis = work->basis + (first + r) * w->terms;
        w->logsum[item * w->rows + first + r] = total > 0 ? work->most[r] + logf(total) : -NEVER;
        for (long d = 0; d < dv; d++) {
            float sum = work->outside[r * rest + d];
            for (long m = 0; m < block->terms; m++) sum += basis[m] * work->mixed[r * values + m * dv + d];
            out[d] = sum * inverse;
        }
    }
}

DISPATCH int attention_forward(const Attention *w, long begin, long end) {
    Work work;
    if (make_work(&work, w, begin, end, 0)) return 1;
    for (long item = begin; item < end; item++) {
        if (item == begin || item % w->heads == 0) read_sequence(w, item / w->heads, &work);
        for (long r = 0; r < w->rows; r++) {
            const long place = ((item / w->heads * w->rows + r) * w->heads + item % w->heads) * w->value_width;
            memset(w->out + place, 0, w->value_width * sizeof(float));
        }
        read_head(w, item, &work, 0);
        for (long j = 0; j < work.blocks; j++) {
            const Block *block = work.block + j;
            if (block->rows && work.blocks > 1) find_sides(&work, block);
            for (long r = 0, count; r < block->rows; r += count) {
                count = next_rows(&work, block, r);
                forward_rows(w, item, &work, block, block->row + r, count);
            }
        }
    }
    free(work.memory);
    return 0;
}

/* Gradients of the means of a tile's values and of what lies beyond, and g [rows, wide], those of the weights in use. */
INLINE void return_values(
    const Attention *w, long batch, Work *work, const Block *block, const Tile *tile, long first, long count, const float *used, float *g
) {
    const long dv = w->value_width, wide = work->wide, values = work->values, size = w->terms * dv, rest = padded(dv);
    const long width = tile->end - tile->begin, few = block->terms * dv, stride = w->pieces * size;
    const float *near = w->pieces > 1 ? work->near : used, *expand = expansion(w, work, block);
    float *g_means = work->g_means + tile->begin * stride + block->piece * size;
    long row;
    multiply(width, few, count, (Matrix){near, 1, wide}, work->mixed, values, NULL, 0, work->g_tile, values);
    WITH_WIDTH(dv, add_unexpanded(width, tile->end - tile->begin, block->terms, w->terms, expand, work->g_tile, values, g_means, stride))
    const float *column = tile_columns(w, work, block, tile, work->mean_columns, dv, work->value_column, &row);
    multiply(count, width, few, (Matrix){work->mixed, values, 1}, column, row, NULL, 0, g, wide);
    if (w->pieces == 1) return;
    const double *edges = w->edges + batch * (w->pieces + 1) + block->piece;
    const long own = block->piece_key - tile->begin, own_end = own + block->piece_keys, apart = w->pieces * dv;
    const long place = (tile->begin * w->pieces + block->piece) * dv;
    const float unscale = 1.0f / w->scale;
    multiply(width, dv, count, (Matrix){work->far, 1, wide}, work->outside, rest, NULL, 0, work->g_tile, rest);
    for (long i = 0; i < width; i++) add_to(dv, work->g_tile + i * rest, work->g_beyond + place + i * apart);
    transpose(width, dv, work->beyond + place, apart, work->value_column, wide);
    /* what the weights were divided into is not asked for again */
    multiply(count, width, dv, (Matrix){work->outside, rest, 1}, work->value_column, wide, NULL, 0, work->far, wide);
    for (long r = 0; r < count; r++) {
        const float since = (float)(work->when[first + r] - edges[0]), until = (float)(edges[1] - work->when[first + r]);
        const float *restrict factor = work->factor + r * wide, *restrict g_far = work->far + r * wide;
        float *restrict to = g + r * wide;
#pragma omp simd
        for (long i = 0; i < width; i++) to[i] = to[i] * SHARE(i) + g_far[i] * factor[i] * unscale;
    }
}

/* Gradients of the keys' series in a tile, given those of the integrals: g [rows, wide] against the rows' moments. */
INLINE void return_series(
    const Attention *w, long item, Work *work, const Block *block, const Tile *tile, long rows, const float *g, const float *moments,
    float *g_moments
) {
    const long keys = work->keys, width = tile->end - tile->begin, size = w->terms * w->key_width, stride = w->pieces * size;
    const long few = block->terms * w->key_width, place = series_at(w, item, tile->begin, block->piece);
    long row;
    multiply(width, few, rows, (Matrix){g, 1, work->wide}, moments, keys, NULL, 0, work->g_tile, keys);
    const float *expand = expansion(w, work, block);
    WITH_WIDTH(w->key_width, add_unexpanded(width, tile->end - tile->begin, block->terms, w->terms, expand, work->g_tile, keys, w->g_series + place, stride))
    const float *by_row = tile_rows(w, work, block, tile, w->series + series_at(w, item, 0, 0), w->key_width, work->key_row, &row);
    multiply(rows, few, width, (Matrix){g, work->wide, 1}, by_row, row, g_moments, keys, g_moments, keys);
}

INLINE void backward_rows(const Attention *w, long item, Work *work, const Block *block, long first, long count) {
    const long batch = item / w->heads, dv = w->value_width, wide = work->wide, keys = work->keys, values = work->values;
    const long rest = padded(dv), dk = w->key_width, step = w->heads * dk;
    float *g = work->g;
    find_row_sides(w, item, work, block, first, count);
    for (long r = 0; r < count; r++) {
        const long at = answer(w, item, work, first + r);
        const float *restrict g_out = w->g_out + at, *basis = work->basis + (first + r) * w->terms;
        float sum = 0;
        for (long d = 0; d < dv; d++) sum += w->out[at + d] * g_out[d], work->outside[r * rest + d] = g_out[d];
        work->delta[r] = sum;
        for (long m = 0; m < block->terms; m++)
            for (long d = 0; d < dv; d++) work->mixed[r * values + m * dv + d] = basis[m] * g_out[d];
    }
    memset(work->g_before, 0, count * keys * sizeof(float)), memset(work->g_after, 0, count * keys * sizeof(float));
    memset(work->g_inner, 0, count * keys * sizeof(float));
    for (Tile tile = {LEFT, 0, 0}; next_tile(w, work, block, &tile);) {
        const long width = tile.end - tile.begin;
        find_integrals(w, work, block, &tile, first, count);
        find_scores(w, work, block, &tile, first, count);
        for (long r = 0; r < count; r++)
            exponentials(padded(width), w->logsum[item * w->rows + first + r], work->score + r * wide, work->gap);
        const float *used = work->score;
        if (w->dropped) find_used(w, item, work, &tile, first, count), used = work->used;
        if (w->pieces > 1) divide_used(w, batch, work, block, &tile, first, count, used);
        return_values(w, batch, work, block, &tile, first, count, used, g);
        for (long r = 0; r < count; r++) {
            const float *restrict weight = work->score + r * wide, *restrict mine = used + r * wide;
            const float *restrict factor = work->factor + r * wide, delta = work->delta[r];
            float *restrict to = g + r * wide;
            if (tile.side == INSIDE)
                for (long i = 0; i < width; i++)
                    if (factor[i] == 0) work->g_own[tile.begin + i] += (mine[i] * to[i] - delta * weight[i]) * w->scale;
#pragma omp simd
            for (long i = 0; i < width; i++) to[i] = (mine[i] * to[i] - delta * weight[i]) * factor[i];
        }
        if (tile.side == INSIDE) {
            for (long r = 0; r < count; r++) add_to(width, g + r * wide, work->g_pairs + (work->asked[first + r] - block->first) * wide);
            if (w->when) return_series(w, item, work, block, &tile, count, g, work->inner, work->g_inner);
            continue;
        }
        float *g_carry = work->g_carry + (block - work->block) * work->row + tile.begin;
        for (long r = 0; r < count; r++) add_to(width, g + r * wide, g_carry);
        if (first < block->row + block->held_rows)
            for (long r = 0; r < count; r++)
                add_to(width, g + r * wide, work->g_held_carry + (block - work->block) * work->row + tile.begin);
        if (tile.side == LEFT)
            return_series(w, item, work, block, &tile, count, g, work->before, work->g_before);
        else
            return_series(w, item, work, block, &tile, count, g, work->after, work->g_after);
    }
    for (long r = 0; r < count; r++) {
        const long point = work->asked[first + r], at = (point - block->first) * keys, few = block->terms * dk;
        add_to(few, work->g_before + r * keys, work->g_left + at);
        add_to(few, work->g_after + r * keys, work->g_right + at);
        if (!w->when) continue;
        add_to(few, work->g_before + r * keys, work->g_inner + r * keys);
        float *g_path = w->g_path + (batch * w->points + work->source[first + r]) * w->powers * step + item % w->heads * dk;
        for (long m = 0; m < block->terms; m++)
            for (long d = 0; d < dk; d++) g_path[d] += work->held[(first + r) * w->terms + m] * work->g_inner[r * keys + m * dk + d];
    }
}

/* The rows of a block, and then what they leave at its points and for its own keys. */
INLINE void backward_block(const Attention *w, long item, Work *work, const Block *block) {
    const long keys = work->keys, wide = work->wide, size = block->last - block->first;
    const Tile inside = {INSIDE, block->key, block->key + block->keys};
    float *moments = work->moments + block->first * keys, *g_moments = work->g_moments + block->first * keys;
    if (!block->rows) return;
    if (work->blocks > 1) find_sides(work, block);
    memset(work->g_left, 0, (size + 1) * keys * sizeof(float)), memset(work->g_right, 0, (size + 1) * keys * sizeof(float));
    memset(work->g_pairs, 0, size * wide * sizeof(float));
    for (long r = 0, count; r < block->rows; r += count) {
        count = next_rows(work, block, r);
        backward_rows(w, item, work, block, block->row + r, count);
    }
    if (block->keys) {
        sum_inwards(block->keys, size, work->place + block->key, block->first, wide, work->g_pairs, work->run);
        return_series(w, item, work, block, &inside, size, work->g_pairs, moments, g_moments);
    }
    if (work->blocks > 1) return_sides(work, block);
}

/* The adjoint of the carry from block to block. */
INLINE void return_carry(const Attention *w, long item, Work *work) {
    const long size = w->terms * w->key_width, stride = w->pieces * size;
    sum_blocks(work, w->causal, 1, work->g_carry);
    for (long j = 0; j < work->blocks; j++) {
        const Block *block = work->block + j;
        const long place = series_at(w, item, 0, block->piece);
        float z[work->keys], g_z[work->keys], g_total[work->keys];
        whole_block(w, work, block, z);
        memset(g_z, 0, work->keys * sizeof(float));
        const float *g = work->g_carry + j * work->row;
        for (long i = 0; i < work->length; i++) {
            if ((i >= block->key && i < block->key + block->keys) || (w->causal && i >= block->key)) continue;
            const float *restrict c = w->series + place + i * stride;
            float *restrict g_c = w->g_series + place + i * stride;
#pragma omp simd
            for (long d = 0; d < size; d++) g_z[d] += g[i] * c[d], g_c[d] += g[i] * z[d];
        }
        expand_rows(w->key_width, 1, block->terms, w->terms, expansion(w, work, block), g_z, 0, g_total, 0);
        for (long n = block->first; n < block->last; n++)
            add_to(block->terms * w->key_width, g_total, work->g_moments + n * work->keys);
    }
    for (long j = 0; j < work->blocks; j++) return_ends(w, item, work, work->block + j);
}

/* Gradients of the path and of the keys themselves, given those of the moments and of the keys' own scores. */
INLINE void write_path(const Attention *w, long item, const Work *work) {
    const long batch = item / w->heads, head = item % w->heads, width = w->key_width, step = w->heads * width;
    float *g_path = w->g_path + batch * w->points * w->powers * step + head * width;
    for (long j = 0; j < work->blocks; j++)
        for (long n = work->block[j].first; n < work->block[j].last; n++)
            for (long m = 0; m < work->block[j].terms; m++)
                for (long k = 0; k < w->powers; k++) {
                    const float number = work->numbers[(m * w->powers + k) * w->points + n];
                    const float *restrict g = work->g_moments + n * work->keys + m * width;
                    float *restrict to = g_path + (n * w->powers + k) * step;
#pragma omp simd
                    for (long d = 0; d < width; d++) to[d] += number * g[d];
                }
    for (long i = 0; i < work->length; i++) {
        const long place = work->place[i] * w->powers * step, mine = (batch * w->keys + i) * step + head * width;
        const float *query = w->path + batch * w->points * w->powers * step + head * width + place;
        for (long d = 0; d < width; d++) {
            g_path[place + d] += work->g_own[i] * w->key[mine + d];
            w->g_key[mine + d] = work->g_own[i] * query[d];
        }
    }
}

INLINE void write_values(const Attention *w, long item, Work *work) {
    const long batch = item / w->heads, size = w->terms * w->value_width;
    float *g_values = w->g_values + item * w->keys * w->pieces * size;
    for (long i = 0; i < work->length; i++)
        for (long p = 0; p < w->pieces; p++) {
            const float a = start_of_mean(w, batch, work, i, p);
            const long at = (i * w->pieces + p) * size;
            WITH_WIDTH(w->value_width, unmean_series(w->terms, width, a, work->zeros, work->g_means + at, g_values + at))
        }
}

/* Zeros in a head's part of the gradients, to which all blocks add. */
INLINE void clear_gradients(const Attention *w, long item) {
    const long batch = item / w->heads, head = item % w->heads, dk = w->key_width, all = w->keys * w->pieces * w->terms;
    memset(w->g_series + item * all * dk, 0, all * dk * sizeof(float));
    memset(w->g_values + item * all * w->value_width, 0, all * w->value_width * sizeof(float));
    for (long n = batch * w->points * w->powers; n < (batch + 1) * w->points * w->powers; n++)
        memset(w->g_path + (n * w->heads + head) * dk, 0, dk * sizeof(float));
    for (long n = batch * w->keys; n < (batch + 1) * w->keys; n++)
        memset(w->g_key + (n * w->heads + head) * dk, 0, dk * sizeof(float));
}

DISPATCH int attention_backward(const Attention *w, long begin, long end) {
    Work work;
    if (make_work(&work, w, begin, end, 1)) return 1;
    for (long item = begin; item < end; item++) {
        if (item == begin || item % w->heads == 0) read_sequence(w, item / w->heads, &work);
        read_head(w, item, &work, 1);
        clear_gradients(w, item);
        memset(work.g_means, 0, w->keys * w->pieces * w->terms * w->value_width * sizeof(float));
        if (w->pieces > 1) memset(work.g_beyond, 0, w->keys * w->pieces * w->value_width * sizeof(float));
        memset(work.g_own, 0, work.row * sizeof(float));
        memset(work.g_moments, 0, w->points * work.keys * sizeof(float));
        memset(work.g_carry, 0, work.blocks * work.row * sizeof(float));
        if (w->when) memset(work.g_held_carry, 0, work.blocks * work.row * sizeof(float));
        for (long j = 0; j < work.blocks; j++) backward_block(w, item, &work, work.block + j);
        if (work.blocks > 1) {
            if (w->when) return_held_carry(w, item, &work);
            return_carry(w, item, &work);
        }
        if (w->pieces > 1) return_beyond(w, item, &work);
        write_values(w, item, &work);
        write_path(w, item, &work);
    }
    free(work.memory);
    return 0;
}
