/* Attention from query times to trajectories, in float32, forward and backward, for any length.

   contiformer/nn/reference.py is the listing of these formulas. For a query at time u and key i of one head, with the Chebyshev
   series c_i of the key's and v_i of the value's trajectory on each piece of time:
       score = scale / |u - t_i| * (integral of q . k_i between t_i and u),   scale q(t_i) . key_i where u = t_i
       mean  = 1 / |u - t_i|     * (integral of v_i between t_i and u)
       out   = sum over i of dropout(softmax(score)) mean.

   Keys, queries and the edges between pieces are points; the cell n lies between the points n and n + 1. Points are cut into
   blocks, each within one piece. In a block every series is expanded anew on the block's own interval, with as few terms as it
   needs there: series = E series. With the moments mu_n = integral of T_r q over cell n, the integral of q . k_i is
       between a key and a point of one block: the sum of c_i . mu_n over the cells between, outwards from the key;
       otherwise: carry_i, up to the edge of the block, plus c_i . (sum of mu_n from that edge to the point).
   Nothing is a difference of prefix sums, so close times lose nothing.

   Softmax is computed online over tiles of keys, and again in the backward pass from the stored logarithms of its sums: the
   memory is that of the series. A head is worked on by one thread and by itself, so no batch mate changes its bits. */

#include "matmul.h"

#define TILE 256
#define CHUNK 128
#define NEVER -3e38f

typedef struct {
    /* width: of a head; block: most points of a block; cut: share of the series that a block's terms may leave out */
    long heads, points, keys, rows, pieces, terms, powers, nodes, width, block;
    float cut;
    uint64_t seed;
    /* a weight is dropped when its 24 random bits are below this, else multiplied by `kept` */
    int causal, dropped;
    float kept, scale;
    /* times [batch, points]; edges of the pieces [batch, pieces + 1]; number of keys and of rows of each sequence [batch] */
    const double *time, *edges;
    const int64_t *length, *asking;
    /* The piece of each cell [batch, points]; the point of each key [batch, keys] and of each row [batch, rows], in order, and
       where the row's answer goes. Times do not decrease, unless causal: then the points are a walk, on which each key comes
       before all that see it. */
    const int32_t *piece, *place, *asked, *target;
    /* Gauss-Legendre on [0, 1], exact for the terms times the powers of the path: [nodes] each */
    const double *node, *share;
    /* series [batch, heads, keys, pieces, terms, width], values likewise; path [batch, points, powers, heads, width]; key
       [batch, keys, heads, width] */
    const float *series, *values, *path, *key;
    /* out [batch, rows, heads, width]; logarithms of the softmax's sums [batch, heads, rows]. What is written to begins with zeros */
    float *out, *logsum;
    const float *g_out;
    float *g_series, *g_values, *g_path, *g_key;
} Attention;

/* The points from `first` to `last` - 1, the rows that ask there and the keys that begin there. Their series live on [low, high];
   LEFT keys lie before `left`, RIGHT ones behind `right`. `alone`: [low, high] is the piece, so series are those given. */
typedef struct {
    long first, last, row, rows, key, keys, piece, terms;
    double low, high, left, right;
    int alone;
    /* E [terms, terms]; the integral over the block as a functional of a series; by key, the integral up to the block */
    float *expand, *whole, *carry, *g_carry;
} Block;

/* Keys beside a block: those on other pieces are apart, because the means of their values are put together of two parts. */
enum { FAR_LEFT, LEFT, INSIDE, RIGHT, FAR_RIGHT };
/* The keys from `begin` to `end` - 1 and some rows of the block; series and means of these keys in the block's terms. */
typedef struct {
    const Block *block;
    int side;
    long begin, end, row, rows;
    Matrix keys, values;
} Tile;

/* Working memory for one head. What follows from the times serves all heads of a sequence. Rows are padded to whole vectors. */
typedef struct {
    float *memory;
    /* the head and its sequence; padded: number of keys, keys in a tile, a row of terms. Points in a block, all of the sequence.
       `extra`: 1 where values on a piece have one more term, the integral up to it */
    long item, batch, row, wide, stride, most_points, blocks, length, rows, points, size, extra;
    const float *series, *path;
    Block *block;
    /* of the sequence: times, points of keys and rows, places of answers; begin and end of the cells in the block's variable, times
       of the keys, first key of each piece */
    const double *time;
    const int32_t *place, *asked, *target;
    double *begin, *end, *sums, *term, *key_time;
    int *first_key;
    /* integrals of T_m s^k over the cells [terms, powers, points], T_m at the rows; means of the values [keys, pieces, extra +
       terms, width]; q(t_i) . key_i */
    float *expand, *numbers, *basis, *means, *own, *zeros;
    /* moments of the cells; integrals between points and keys of one block, the inverse of what is between them in time (0 at
       equal times), and integrals between all keys and the right and left ends of their blocks [2, row] */
    float *moments, *whole, *carry, *run, *pairs, *inverse, *ends;
    /* by row: maxima and sums of the softmax. Of a block: moments between its two ends and its rows. Of a tile of keys in the
       block's terms: by row and by column; pairs of rows and keys; sums of values */
    float *most, *total, *sides[2], *key_row, *key_column, *value_row, *value_column, *score, *factor, *used, *scaled, *mixed;
    /* the first five begin with zeros */
    float *g_means, *g_own, *g_moments, *g_carry, *g_pairs, *g_sides[2], *g_tile, *g;
} Work;

INLINE long padded(long size) {
    return (size + LANES - 1) / LANES * LANES;
}

INLINE void clear(float *at, long size) {
    memset(at, 0, size * sizeof(float));
}

INLINE void add_to(long size, const float *from, float *to) {
    EACH(n, size) to[n] += from[n];
}

/* to [columns, to_row] = from [rows, columns] transposed */
DISPATCH static void transpose(long rows, long columns, Matrix from, float *to, long to_row) {
    const long whole = rows / LANES * LANES, wide = columns / LANES * LANES;
    for (long r = 0; r < whole; r += LANES)
        for (long c = 0; c < wide; c += LANES) {
            Lanes square[LANES];
            UNROLL for (int n = 0; n < LANES; n++) square[n] = AT(from.at + (r + n) * from.row, c);
            transpose_square(square);
            UNROLL for (int n = 0; n < LANES; n++) PUT(to + (c + n) * to_row, r) = square[n];
        }
    for (long c = 0; c < columns; c++)
        for (long r = c < wide ? whole : 0; r < rows; r++) to[c * to_row + r] = from.at[r * from.row + c];
}

/* Without memory, this only counts how much it takes, gets that and divides it. */
static int divide_memory(Work *work, const Attention *w, int backward) {
    const long row = work->row = padded(w->keys), terms = w->terms, points = w->points, size = work->size = terms * w->width;
    const long wide = work->wide = padded(MAX(MIN(TILE, w->keys), work->most_points)) + LANES;
    const long stride = work->stride = padded(size + w->width), tile = wide * stride, pairs = MIN(CHUNK, work->most_points) * wide;
    const long means = w->keys * w->pieces * (size + w->width), rows = work->most_points, numbers = terms * w->powers * points;
    long taken = 0;
    TAKE(block, work->blocks * (long)(sizeof(Block) / sizeof(float))), TAKE(first_key, w->pieces + 1);
    TAKE(key_time, 2 * row), TAKE(begin, 2 * points), TAKE(end, 2 * points), TAKE(term, 6 * points), TAKE(sums, 2 * numbers);
    TAKE(numbers, numbers), TAKE(basis, w->rows * terms), TAKE(expand, work->blocks * terms * terms), TAKE(means, means);
    TAKE(own, row), TAKE(zeros, w->width), TAKE(moments, points * stride), TAKE(whole, work->blocks * stride), TAKE(run, row);
    TAKE(carry, work->blocks * row), TAKE(ends, 2 * row), TAKE(pairs, points * wide), TAKE(inverse, points * wide);
    TAKE(sides[0], rows * stride), TAKE(sides[1], rows * stride), TAKE(most, w->rows), TAKE(total, w->rows);
    TAKE(key_row, tile), TAKE(key_column, tile), TAKE(value_row, tile), TAKE(score, pairs);
    TAKE(factor, pairs), TAKE(used, pairs), TAKE(scaled, wide), TAKE(mixed, MIN(CHUNK, rows) * stride);
    if (backward) {
        TAKE(value_column, tile), TAKE(g_means, means), TAKE(g_own, row), TAKE(g_moments, points * stride);
        TAKE(g_carry, work->blocks * row), TAKE(g_pairs, points * wide), TAKE(g_sides[0], rows * stride);
        TAKE(g_sides[1], rows * stride), TAKE(g_tile, tile), TAKE(g, pairs);
    }
    if (work->memory) return 0;
    work->memory = get_memory(taken);
    return work->memory ? divide_memory(work, w, backward) : 1;
}

/* Cut the points of a sequence up to its last key or row into blocks: not between equal times, so that those meet in one block.
   Returns their number; block NULL: count only, and find the largest. */
INLINE long cut_points(const Attention *w, long batch, Block *block, long *most) {
    const long length = w->length[batch], rows = w->asking[batch];
    const long key = length ? w->place[batch * w->keys + length - 1] : 0, row = rows ? w->asked[batch * w->rows + rows - 1] : 0;
    const double *time = w->time + batch * w->points;
    const int32_t *piece = w->piece + batch * w->points;
    long count = 0;
    for (long first = 0, last; first <= MAX(key, row); first = last, count++) {
        for (last = first + 1; last <= MAX(key, row) && piece[last] == piece[first]; last++)
            if (last - first >= w->block && time[last] != time[last - 1]) break;
        *most = MAX(*most, last - first);
        if (block) block[count] = (Block){.first = first, .last = last, .piece = piece[first]};
    }
    return count;
}

static int make_work(Work *work, const Attention *w, long begin, long end, int backward) {
    *work = (Work){.most_points = 1, .extra = w->pieces > 1};
    for (long batch = begin / w->heads; batch <= (end - 1) / w->heads; batch++) {
        const long blocks = cut_points(w, batch, NULL, &work->most_points);
        work->blocks = MAX(blocks, work->blocks);
    }
    if (divide_memory(work, w, backward)) return 1;
    clear(work->zeros, w->width);
    return 0;
}

/* Where a time is on an interval, from -1 to 1. */
INLINE double local(double low, double high, double time) {
    const double half = (high - low) / 2, x = half > 0 ? (time - low) / half - 1 : 0;
    return x < -1 ? -1 : x > 1 ? 1 : x;
}

/* E: the coefficients of T_m(x) on the block's interval, by T_(m+1)(x) = 2 x T_m(x) - T_(m-1)(x) with x = center + half y. */
INLINE void find_expansion(const Attention *w, const double *edges, const Block *block) {
    const long terms = w->terms;
    const double low = local(edges[0], edges[1], block->low), high = local(edges[0], edges[1], block->high);
    const double center = block->alone ? 0 : (low + high) / 2, half = block->alone ? 1 : (high - low) / 2;
    double a[terms + 2], b[terms + 2], c[terms + 2];
    for (long r = 0; r < terms + 2; r++) a[r] = r == 0, b[r] = r == 0 ? center : r == 1 ? half : 0;
    for (long m = 0; m < terms; m++) {
        for (long r = 0; r < terms; r++) block->expand[r * terms + m] = (float)a[r];
        for (long r = 0; r < terms + 2; r++) {
            const double below = r == 0 ? 0 : r == 1 ? 2 * b[0] : b[r - 1], above = r + 1 < terms + 2 ? b[r + 1] : 0;
            c[r] = 2 * center * b[r] + half * (below + above) - a[r];
        }
        memcpy(a, b, sizeof(a)), memcpy(b, c, sizeof(b));
    }
}

INLINE void find_blocks(const Attention *w, Work *work) {
    const long batch = work->batch, length = work->length = w->length[batch], rows = work->rows = w->asking[batch];
    const double *time = work->time = w->time + batch * w->points, *edges = w->edges + batch * (w->pieces + 1);
    long key = 0, row = 0, piece = 0;
    work->place = w->place + batch * w->keys, work->asked = w->asked + batch * w->rows, work->target = w->target + batch * w->rows;
    for (long i = 0; i < length; i++) {
        work->key_time[i] = time[work->place[i]];
        while (piece <= w->piece[batch * w->points + work->place[i]]) work->first_key[piece++] = (int)i;
    }
    while (piece <= w->pieces) work->first_key[piece++] = (int)length;
    work->blocks = cut_points(w, batch, work->block, &work->most_points);
    work->points = work->block[work->blocks - 1].last;
    for (long j = 0; j < work->blocks; j++) {
        Block *block = work->block + j;
        for (block->key = key; key < length && work->place[key] < block->last; key++) block->keys++;
        for (block->row = row; row < rows && work->asked[row] < block->last; row++) block->rows++;
        block->expand = work->expand + j * w->terms * w->terms, block->whole = work->whole + j * work->stride;
        block->carry = work->carry + j * work->row, block->g_carry = work->g_carry ? work->g_carry + j * work->row : NULL;
        block->left = time[block->first], block->right = time[MIN(block->last, work->points - 1)];
        for (long n = block->first; n < block->last; n++) block->left = MIN(block->left, time[n]);
        /* what is known at a time must not depend on later ones, so in a causal model no block has an interval of its own */
        block->alone = w->causal || ((j == 0 || block[-1].piece != block->piece) &&
                                     (j + 1 == work->blocks || block[1].piece != block->piece));
        block->low = block->alone ? edges[block->piece] : block->left;
        block->high = block->alone ? edges[block->piece + 1] : block->right;
        for (long n = block->first; n < block->last; n++) {
            work->begin[n] = local(block->low, block->high, time[n]);
            work->end[n] = local(block->low, block->high, time[MIN(n + 1, work->points - 1)]);
        }
        find_expansion(w, edges + block->piece, block);
    }
}

/* The terms at the rows; the integrals of T_m s^k over the cells, s in [0, 1] along each: times the path's coefficients they are
   the moments. */
INLINE void find_numbers(const Attention *w, Work *work) {
    const long points = work->points, row = w->points, count = w->terms * w->powers;
    const double *time = work->time, *begin = work->begin, *end = work->end;
    double *sums = work->sums, *term = work->term, *next = term + row, *twice = next + row;
    for (long r = 0; r < work->rows; r++) {
        double a = 1, b = begin[work->asked[r]], x = 2 * b;
        for (long m = 0; m < w->terms; m++) {
            const double c = x * b - a;
            work->basis[r * w->terms + m] = (float)a, a = b, b = c;
        }
    }
    memset(sums, 0, count * row * sizeof(double));
    for (long g = 0; g < w->nodes; g++) {
        EACH(n, points) term[n] = 1, next[n] = begin[n] + (end[n] - begin[n]) * w->node[g], twice[n] = 2 * next[n];
        for (long m = 0; m < w->terms; m++) {
            double share = w->share[g];
            for (long k = 0; k < w->powers; k++, share *= w->node[g]) {
                double *sum = sums + (m * w->powers + k) * row;
                EACH(n, points) sum[n] += share * term[n];
            }
            EACH(n, points) {
                const double after = twice[n] * next[n] - term[n];
                term[n] = next[n], next[n] = after;
            }
        }
    }
    for (long c = 0; c < count; c++) {
        float *numbers = work->numbers + c * row;
        for (long n = 0; n + 1 < points; n++) numbers[n] = (float)(sums[c * row + n] * (time[n + 1] - time[n]));
        numbers[points - 1] = 0;
    }
}

/* What is between the points and the keys of each block, inverted. */
INLINE void find_gaps(Work *work) {
    for (const Block *block = work->block; block < work->block + work->blocks; block++)
        for (long n = block->first; n < block->last; n++) {
            const double here = work->time[n], *there = work->key_time + block->key;
            float *inverse = work->inverse + n * work->wide;
            EACH(i, block->keys) {
                const double apart = here - there[i];
                const float size = (float)apart, least = apart < 0 ? -1e-37f : 1e-37f;
                inverse[i] = apart == 0 ? 0.0f : 1 / (fabsf(size) < 1e-37f ? least : size);
            }
        }
}

/* The series of the mean from x = a to x of the series d: its primitive divided by x - a, which is the downward recurrence
   of paths/chebyshev.py, t_q = (d_q - d_(q+2)) / (q + 1) + 2 a t_(q+1) - t_(q+2). The first term is twice as much in d and
   half as much in the mean as the others. */
INLINE void mean_series(long terms, const long width, float a, const float *zeros, const float *d, float *mean) {
    for (long q = terms - 1; q >= 0; q--) {
        const float share = 1.0f / (q + 1), first = q ? share : 2 * share, half = q ? 1.0f : 0.5f;
        const float *beyond = q + 2 < terms ? d + (q + 2) * width : zeros;
        const float *next = q + 1 < terms ? mean + (q + 1) * width : zeros, *after = q + 2 < terms ? next + width : zeros;
        EACH(j, width) mean[q * width + j] = half * (first * d[q * width + j] - share * beyond[j] + 2 * a * next[j] - after[j]);
    }
}

/* Its adjoint, the same recurrence upwards; g becomes the gradient of t. */
INLINE void unmean_series(long terms, const long width, float a, const float *zeros, float *g, float *g_d) {
    for (long q = 0; q < terms; q++) {
        const float first = q ? 1.0f / (q + 1) : 2.0f, half = q ? 1.0f : 0.5f, share = q > 1 ? 1.0f / (q - 1) : 0;
        const float *last = q > 0 ? g + (q - 1) * width : zeros, *before = q > 1 ? last - width : zeros;
        EACH(j, width) {
            const float h = half * g[q * width + j] + 2 * a * last[j] - before[j];
            g[q * width + j] = h;
            g_d[q * width + j] = first * h - share * before[j];
        }
    }
}

/* Means of the values from the key on, on its own piece, or else from the edge that is nearer to it; or their gradients. */
INLINE void find_means(const Attention *w, Work *work, int adjoint) {
    const double *edges = w->edges + work->batch * (w->pieces + 1);
    const long extra = work->extra * w->width, first = work->item * w->keys * w->pieces * work->size;
    for (long n = 0; n < work->length * w->pieces; n++) {
        const long p = n % w->pieces, at = first + n * work->size, to = n * (work->size + extra) + extra;
        const float a = (float)local(edges[p], edges[p + 1], work->key_time[n / w->pieces]);
        clear(work->means + to - extra, extra);
        if (adjoint) {
            WITH_WIDTH(w->width, unmean_series(w->terms, width, a, work->zeros, work->g_means + to, w->g_values + at))
        } else {
            WITH_WIDTH(w->width, mean_series(w->terms, width, a, work->zeros, w->values + at, work->means + to))
        }
    }
}

/* The integral of the values between a key and each piece, in the extra term: the sum of the integrals over the key's own piece
   and those between, each the mean at an edge times a length. Or its adjoint, for gradients. */
INLINE void sum_pieces(const Attention *w, const Work *work, float *means, int adjoint) {
    const double *edges = w->edges + work->batch * (w->pieces + 1);
    const long width = w->width, size = work->size + width;
    float sum[width];
    for (long i = 0; i < work->length; i++)
        for (int left = 0; left < (w->causal ? 1 : 2); left++) {
            clear(sum, width);
            for (long n = 0; n < w->pieces; n++) {
                const long p = left ^ adjoint ? w->pieces - 1 - n : n;
                const double time = MIN(MAX(work->key_time[i], edges[p]), edges[p + 1]);
                const float length = (float)(left ? time - edges[p] : edges[p + 1] - time);
                float *beyond = means + (i * w->pieces + p) * size;
                if (!adjoint) add_to(width, sum, beyond);
                for (long m = 0; m < w->terms; m++) {
                    const float by = left && m % 2 ? -length : length;
                    float *mean = beyond + (m + 1) * width;
                    if (adjoint) EACH(d, width) mean[d] += by * sum[d];
                    else EACH(d, width) sum[d] += by * mean[d];
                }
                if (adjoint) add_to(width, beyond, sum);
            }
        }
}

/* to [width] = start + sum of share[m] from[m]; start NULL: zeros */
INLINE void sum_rows(const long width, long terms, const float *share, const float *from, const float *start, float *to) {
    for (long d = 0; d < width; d += 2 * LANES) {
        const long some = MIN(width - d, 2 * LANES);
        float sum[2 * LANES];
        EACH(e, some) sum[e] = start ? start[d + e] : 0;
        for (long m = 0; m < terms; m++) EACH(e, some) sum[e] += share[m] * from[m * width + d + e];
        EACH(e, some) to[d + e] = sum[e];
    }
}

/* to [extra + terms of the block, width] = E from [extra + terms, width] */
INLINE void expand(const long width, long terms, const Block *block, long extra, const float *from, float *to) {
    memcpy(to, from, extra * width * sizeof(float));
    for (long r = extra; r < extra + block->terms; r++)
        sum_rows(width, extra + terms - r, block->expand + (r - extra) * (terms + 1), from + r * width, NULL, to + r * width);
}

/* Its adjoint, added to what is there. */
INLINE void add_unexpanded(const long width, long terms, const Block *block, long extra, const float *from, float *to) {
    add_to(extra * width, from, to);
    for (long r = 0; r < block->terms; r++)
        for (long m = r; m < terms; m++)
            EACH(d, width) to[(extra + m) * width + d] += block->expand[r * terms + m] * from[(extra + r) * width + d];
}

/* Add E^T x^T y to the series of a tile's keys, with x [rows, wide] and y [rows, stride]. */
INLINE void add_product(const Attention *w, Work *work, const Tile *tile, long extra, const float *x, const float *y, float *to) {
    const Block *block = tile->block;
    const long size = work->size + extra * w->width, apart = w->pieces * size, columns = (extra + block->terms) * w->width;
    const long keys = tile->end - tile->begin, stride = work->stride;
    const Matrix turned = {x, 1, work->wide};
    to += (tile->begin * w->pieces + block->piece) * size;
    if (block->alone && size % LANES == 0) {
        multiply(keys, size, tile->rows, turned, y, stride, to, to, apart);
        return;
    }
    multiply(keys, columns, tile->rows, turned, y, stride, NULL, work->g_tile, stride);
    for (long i = 0; i < keys; i++)
        WITH_WIDTH(w->width, add_unexpanded(width, w->terms, block, extra, work->g_tile + i * stride, to + i * apart))
}

/* Root mean squares over `count` series [terms, width] of each of their terms, as shares of that of all; the larger of these and
   what is there. */
INLINE void find_sizes(long terms, long width, long count, const float *from, long from_row, double *size) {
    float sum[terms * width];
    double each[terms], all = 1e-30;
    clear(sum, terms * width);
    for (long i = 0; i < count; i++, from += from_row) EACH(n, terms * width) sum[n] += from[n] * from[n];
    for (long m = 0; m < terms; m++, all += each[m - 1]) {
        each[m] = 0;
        for (long d = 0; d < width; d++) each[m] += sum[m * width + d];
    }
    for (long m = 0; m < terms; m++) size[m] = MAX(size[m], sqrt(each[m] / all));
}

/* How many terms a block needs: what is left out of keys and of values is `cut` of them, in the root mean square. */
INLINE void find_terms(const Attention *w, Work *work) {
    const long terms = w->terms, extra = work->extra * w->width, all = work->size + extra;
    double size[terms];
    for (Block *block = work->block; block < work->block + work->blocks; block++) {
        double lost = 0;
        block->terms = terms;
        if (block->alone) continue;
        if (block == work->block || block[-1].piece != block->piece) {
            memset(size, 0, sizeof(size));
            find_sizes(terms, w->width, work->length, work->series + block->piece * work->size, w->pieces * work->size, size);
            find_sizes(terms, w->width, work->length, work->means + block->piece * all + extra, w->pieces * all, size);
        }
        for (; block->terms > 1; block->terms--) {
            for (long m = block->terms - 1; m < terms; m++) lost += fabs(block->expand[(block->terms - 1) * terms + m]) * size[m];
            if (!(lost <= w->cut)) break;
        }
    }
}

/* Moments of the cells of all blocks, each in the block's terms [points, terms, width]. Or, where gradients of the moments are
   given, those of the path. */
INLINE void find_moments(const long width, const Attention *w, const Work *work, const float *g_moments, float *g_path) {
    const long step = w->heads * width;
    for (const Block *block = work->block; block < work->block + work->blocks; block++)
        for (long n = block->first; n < block->last; n++)
            for (long m = 0; m < block->terms; m++) {
                const long at = n * work->stride + m * width, from = n * w->powers * step;
                for (long k = 0; k < w->powers; k++) {
                    const float number = work->numbers[(m * w->powers + k) * w->points + n];
                    if (g_path) EACH(d, width) g_path[from + k * step + d] += number * g_moments[at + d];
                    else EACH(d, width)
                        work->moments[at + d] = (k ? work->moments[at + d] : 0) + number * work->path[from + k * step + d];
                }
            }
}

/* In place: from each[n][i], the integral over cell n against key i, to their sums from i to n; `ends` are zero before, and then
   have the sums from the key to the ends. Or the adjoint of that, which begins with the gradients of these. */
INLINE void sum_outwards(const Work *work, const Block *block, float *pairs, const int adjoint) {
    const int32_t *place = work->place + block->key;
    float *right = work->ends + block->key, *left = right + work->row;
    for (int side = 0; side < 2; side++)
        for (long k = 0, begun = 0; k < block->last - block->first; k++) {
            const long n = side ^ adjoint ? block->last - 1 - k : block->first + k;
            float *each = pairs + n * work->wide;
            while (begun < block->keys && place[begun] <= n) begun++;
            while (begun > 0 && place[begun - 1] > n) begun--;
            if (side)
                EACH(i, block->keys - begun) each[begun + i] = left[begun + i] += each[begun + i];
            else EACH(i, begun) {
                const float here = each[i];
                each[i] = right[i], right[i] += here;
            }
        }
}

/* From the integrals over whole blocks to the sums up to each block, from the left and from the right; or the adjoint of that:
   from the gradients of the sums to those of the integrals. A sum begins with the integral up to the end of the own block. */
INLINE void sum_blocks(const Work *work, int causal, int adjoint) {
    for (int side = 0; side < (causal ? 1 : 2); side++) {
        float *run = work->run, *ends = work->ends + side * work->row;
        clear(run, work->row);
        for (long n = 0; n < work->blocks; n++) {
            const Block *block = work->block + (side ^ adjoint ? work->blocks - 1 - n : n);
            const long begin = side ? block->key + block->keys : 0, count = (side ? work->length : block->key) - begin;
            float *of = (adjoint ? block->g_carry : block->carry) + begin, *sum = run + begin;
            EACH(i, count) {
                const float here = of[i];
                of[i] = sum[i], sum[i] += here;
            }
            memcpy((adjoint ? ends : run) + block->key, (adjoint ? run : ends) + block->key, block->keys * sizeof(float));
        }
    }
}

/* Whether a key is on neither side of a block that sees it. */
INLINE int unseen(const Attention *w, const Block *block, long i) {
    return i >= block->key && (w->causal || i < block->key + block->keys);
}

/* Integrals over whole blocks, as functionals z = E^T (sum of the moments) of a piece's series, and sums of them by key. */
INLINE void find_carry(const Attention *w, Work *work) {
    for (const Block *block = work->block; block < work->block + work->blocks; block++) {
        float total[work->stride];
        clear(total, work->stride), clear(block->whole, work->stride);
        for (long n = block->first; n < block->last; n++)
            add_to(block->terms * w->width, work->moments + n * work->stride, total);
        add_unexpanded(w->width, w->terms, block, 0, total, block->whole);
        const float *series = work->series + block->piece * work->size;
        for (long i = 0; i < work->length; i++, series += w->pieces * work->size)
            block->carry[i] = unseen(w, block, i) ? 0 : dot(work->size, series, block->whole);
    }
    sum_blocks(work, w->causal, 0);
}

INLINE void return_carry(const Attention *w, Work *work) {
    sum_blocks(work, w->causal, 1);
    for (const Block *block = work->block; block < work->block + work->blocks; block++) {
        float g_whole[work->stride], g_total[work->stride];
        clear(g_whole, work->stride);
        for (long i = 0; i < work->length; i++) {
            if (unseen(w, block, i)) continue;
            const long at = (i * w->pieces + block->piece) * work->size;
            const float g = block->g_carry[i], *series = work->series + at;
            float *g_series = w->g_series + (work->series - w->series) + at;
            EACH(d, work->size) g_whole[d] += g * series[d], g_series[d] += g * block->whole[d];
        }
        expand(w->width, w->terms, block, 0, g_whole, g_total);
        for (long n = block->first; n < block->last; n++)
            add_to(block->terms * w->width, g_total, work->g_moments + n * work->stride);
    }
}

/* The tiles of a block one after the other; 0 when there is none left. */
INLINE int next_tile(const Attention *w, const Work *work, Tile *tile) {
    const Block *block = tile->block;
    const int *own = work->first_key + block->piece, sides = w->causal ? INSIDE + 1 : FAR_RIGHT + 1;
    const long end[] = {own[0], block->key, block->key + block->keys, own[1], work->length};
    tile->begin = tile->end;
    while (tile->side < sides && tile->begin >= end[tile->side]) tile->side++;
    if (tile->side == sides) return 0;
    tile->end = tile->side == INSIDE ? end[INSIDE] : MIN(tile->begin + TILE, end[tile->side]);
    return 1;
}

/* Series of a tile's keys, or means of their values, in the block's terms: by row, and if asked for by column. Where nothing
   changes, rows are read where they are. */
INLINE Matrix read_tile(const Attention *w, const Work *work, const Tile *tile, const int values, const int columns) {
    const Block *block = tile->block;
    const long extra = values ? work->extra : 0, size = work->size + extra * w->width, count = tile->end - tile->begin;
    const float *from = (values ? work->means : work->series) + (tile->begin * w->pieces + block->piece) * size;
    float *to = values ? work->value_row : work->key_row;
    Matrix rows = {from, w->pieces * size, 1};
    if (!block->alone || size % LANES) {
        for (long i = 0; i < count; i++)
            WITH_WIDTH(w->width, expand(width, w->terms, block, extra, from + i * rows.row, to + i * work->stride))
        rows = (Matrix){to, work->stride, 1};
    }
    float *column = values ? work->value_column : work->key_column;
    if (columns) transpose(count, (extra + block->terms) * w->width, rows, column, work->wide);
    return rows;
}

/* Gradients of a tile's series and of the moments, given those of the integrals g [rows, wide] = moments . series. */
INLINE void return_series(const Attention *w, Work *work, const Tile *tile, float *g, const float *moments, float *g_moments) {
    const long width = tile->end - tile->begin, size = tile->block->terms * w->width, stride = work->stride;
    add_product(w, work, tile, 0, g, moments, w->g_series + (work->series - w->series));
    const Matrix rows = {g, work->wide, 1};
    multiply(tile->rows, size, width, rows, tile->keys.at, tile->keys.row, g_moments, g_moments, stride);
}

/* Integrals between the points of a block and its keys. Or from their gradients those of the keys' series and of the moments. */
INLINE void find_pairs(const Attention *w, Work *work, const Block *block, const int adjoint) {
    Tile tile = {block, INSIDE, block->key, block->key + block->keys, .rows = block->last - block->first};
    const long at = block->first * work->stride, from = block->first * work->wide, size = block->terms * w->width;
    const Matrix moments = {work->moments + at, work->stride, 1};
    float *pairs = work->pairs + from;
    tile.keys = read_tile(w, work, &tile, 0, !adjoint);
    if (!adjoint) multiply(tile.rows, block->keys, size, moments, work->key_column, work->wide, NULL, pairs, work->wide);
    sum_outwards(work, block, adjoint ? work->g_pairs : work->pairs, adjoint);
    if (adjoint) return_series(w, work, &tile, work->g_pairs + from, moments.at, work->g_moments + at);
}

/* All that follows from the times of a sequence and from a head's numbers, up to the integrals between keys and blocks. */
INLINE void read_head(const Attention *w, long item, const int again, Work *work) {
    const long head = item % w->heads, step = w->heads * w->width;
    work->item = item, work->batch = item / w->heads;
    if (!again) find_blocks(w, work), find_numbers(w, work), find_gaps(work);
    work->series = w->series + item * w->keys * w->pieces * work->size;
    work->path = w->path + work->batch * w->points * w->powers * step + head * w->width;
    find_means(w, work, 0);
    if (work->extra) sum_pieces(w, work, work->means, 0);
    for (long i = 0; i < work->length; i++) {
        const float *key = w->key + (work->batch * w->keys + i) * step + head * w->width;
        work->own[i] = dot(w->width, work->path + work->place[i] * w->powers * step, key);
    }
    find_terms(w, work);
    WITH_WIDTH(w->width, find_moments(width, w, work, NULL, NULL))
    clear(work->ends, 2 * work->row);
    for (long j = 0; j < work->blocks; j++) find_pairs(w, work, work->block + j, 0);
    if (work->blocks > 1) find_carry(w, work);
}

/* Moments between the ends of a block and its rows: before each row the cells up to its point, behind it the others. Or the adjoint
   of that: the sums over the rows that a cell is before, and over those that it is behind. */
INLINE void find_sides(const Attention *w, Work *work, const Block *block, const int adjoint) {
    const long size = block->terms * w->width, stride = work->stride, cells = block->last - block->first;
    const int32_t *asked = work->asked + block->row;
    float run[stride];
    for (int behind = 0; behind < 2; behind++) {
        const int down = behind ^ adjoint; /* the direction of the sum */
        float *rows = (adjoint ? work->g_sides : work->sides)[behind];
        clear(run, stride);
        for (long i = 0, r = down ? block->rows - 1 : 0; i < cells + !adjoint; i++) {
            const long n = down ? block->last - 1 - i : block->first + i;
            /* the rows whose sum is complete with the cells so far, or which this cell is the first to be part of */
            for (; r >= 0 && r < block->rows && (down ? asked[r] > n : asked[r] <= n); r += down ? -1 : 1)
                if (adjoint) add_to(size, rows + r * stride, run);
                else memcpy(rows + r * stride, run, stride * sizeof(float));
            if (adjoint) add_to(size, run, work->g_moments + n * stride);
            else if (i < cells) add_to(size, work->moments + n * stride, run);
        }
    }
}

/* Scores of a tile, and the factors between integrals and scores; NEVER where a row must not look, 0 for the factor where the
   score is no integral. */
INLINE void find_scores(const Attention *w, Work *work, const Tile *tile) {
    const Block *block = tile->block;
    const long wide = work->wide, stride = work->stride, width = tile->end - tile->begin, all = padded(width);
    const double *there = work->key_time + tile->begin, origin = tile->side < INSIDE ? block->left : block->right;
    const float scale = w->scale, *own = work->own + tile->begin;
    const int causal = w->causal;
    float *gap = work->scaled;
    if (tile->side != INSIDE) {
        const Matrix moments = {work->sides[tile->side > INSIDE] + (tile->row - block->row) * stride, stride, 1};
        const float *carry = block->carry + tile->begin;
        multiply(tile->rows, width, block->terms * w->width, moments, work->key_column, wide, carry, work->score, wide);
        for (long i = 0; i < width; i++) gap[i] = (float)fabs(there[i] - origin);
    }
    for (long r = 0; r < tile->rows; r++) {
        float *s = work->score + r * wide, *factor = work->factor + r * wide;
        const long point = work->asked[tile->row + r];
        if (tile->side != INSIDE) {
            const float mine = (float)fabs(work->time[point] - origin);
            EACH(i, width) {
                const float f = scale / (mine + gap[i]);
                factor[i] = f, s[i] *= f;
            }
        } else {
            const float *integral = work->pairs + point * wide, *inverse = work->inverse + point * wide;
            EACH(i, width) {
                const float f = scale * fabsf(inverse[i]), score = f == 0 ? scale * own[i] : integral[i] * f;
                factor[i] = f;
                s[i] = causal && inverse[i] < 0 ? NEVER : score;
            }
        }
        for (long i = width; i < all; i++) s[i] = NEVER, factor[i] = 0;
    }
}

/* Weights exp(s - top) of a row, in place, where no s is above top; zero where it must not look. Returns their sum. */
INLINE float exponentials(long count, float top, float *s) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long i = 0; i < count; i++) {
        const float share = exp_bounded(s[i] - top);
        s[i] = s[i] <= NEVER ? 0.0f : share;
        sum += s[i];
    }
    return sum;
}

/* The weights of a tile's means: after dropout, and on other pieces divided by the distance in time, for the means there are
   integrals. The bits of a weight come from its row and its place in the row: the backward pass finds the same ones. */
INLINE const float *find_used(const Attention *w, const Work *work, const Tile *tile) {
    const int far = tile->side == FAR_LEFT || tile->side == FAR_RIGHT, dropped = w->dropped, begin = (int)tile->begin;
    const int all = (int)padded(tile->end - tile->begin);
    const float kept = w->kept, unscale = 1 / w->scale;
    if (!far && !dropped) return work->score;
    for (long r = 0; r < tile->rows; r++) {
        const float *weights = work->score + r * work->wide, *factor = work->factor + r * work->wide;
        const uint64_t place = mixed(((uint64_t)(work->item * w->rows + work->target[tile->row + r]) + 1) * GOLDEN);
        const uint64_t seed = mixed((w->seed + place) * GOLDEN);
        float *used = work->used + r * work->wide;
        EACH(i, all) used[i] = far ? weights[i] * factor[i] * unscale : weights[i];
        if (!dropped) continue;
#pragma omp simd
        for (int i = 0; i < all; i++) used[i] *= (int)(bits_at(seed, (uint32_t)(begin + i)) >> 8) >= dropped ? kept : 0.0f;
    }
    return work->used;
}

/* Factors of the terms of a tile's means at a row: T_m there, on other pieces times the distance to the edge from which on they are
   means, and 1 for the integral up to that edge. */
INLINE void find_shares(const Attention *w, const Work *work, const Tile *tile, long row, float *share) {
    const double *edges = w->edges + work->batch * (w->pieces + 1) + tile->block->piece, when = work->time[work->asked[row]];
    const float reach = tile->side == FAR_LEFT ? (float)(when - edges[0]) : tile->side == FAR_RIGHT ? (float)(edges[1] - when) : 1;
    share[0] = 1;
    for (long m = 0; m < tile->block->terms; m++) share[work->extra + m] = reach * work->basis[row * w->terms + m];
}

/* Where the answer to a row is, in `out` and in its gradient. */
INLINE long answer(const Attention *w, const Work *work, long row) {
    return ((work->batch * w->rows + work->target[row]) * w->heads + work->item % w->heads) * w->width;
}

/* Add a tile to the sums of some rows: exponentials and weighted values, beside the largest score so far. */
INLINE void forward_rows(const Attention *w, Work *work, const Tile *tile) {
    const long width = tile->end - tile->begin, terms = work->extra + tile->block->terms, wide = work->wide;
    for (long r = 0, row = tile->row; r < tile->rows; r++, row++) {
        float *s = work->score + r * wide, most = work->most[row], *out = w->out + answer(w, work, row);
#pragma omp simd reduction(max : most)
        for (long i = 0; i < width; i++) most = s[i] > most ? s[i] : most;
        const float shrink = exp_bounded(work->most[row] - most);
        work->total[row] = work->total[row] * shrink + exponentials(padded(width), most, s);
        work->most[row] = most;
        EACH(d, w->width) out[d] *= shrink;
    }
    const Matrix used = {find_used(w, work, tile), wide, 1};
    multiply(tile->rows, terms * w->width, width, used, tile->values.at, tile->values.row, NULL, work->mixed, work->stride);
    for (long r = 0; r < tile->rows; r++) {
        float share[terms], *out = w->out + answer(w, work, tile->row + r);
        find_shares(w, work, tile, tile->row + r, share);
        WITH_WIDTH(w->width, sum_rows(width, terms, share, work->mixed + r * work->stride, out, out))
    }
}

/* Gradients of a tile's values, and g [rows, wide], those of the integrals; from these those of the keys on other blocks. */
INLINE void backward_rows(const Attention *w, Work *work, const Tile *tile) {
    const Block *block = tile->block;
    const long wide = work->wide, stride = work->stride, width = tile->end - tile->begin, terms = work->extra + block->terms;
    float delta[CHUNK];
    for (long r = 0; r < tile->rows; r++) {
        const long row = tile->row + r, at = answer(w, work, row);
        float share[terms];
        exponentials(padded(width), w->logsum[work->item * w->rows + row], work->score + r * wide);
        find_shares(w, work, tile, row, share);
        delta[r] = dot(w->width, w->out + at, w->g_out + at);
        for (long m = 0; m < terms; m++)
            EACH(d, w->width) work->mixed[r * stride + m * w->width + d] = share[m] * w->g_out[at + d];
    }
    const float *used = find_used(w, work, tile);
    add_product(w, work, tile, work->extra, used, work->mixed, work->g_means);
    const Matrix rows = {work->mixed, stride, 1};
    multiply(tile->rows, width, terms * w->width, rows, work->value_column, wide, NULL, work->g, wide);
    for (long r = 0; r < tile->rows; r++) {
        const float *weight = work->score + r * wide, *mine = used + r * wide, *factor = work->factor + r * wide;
        float *g = work->g + r * wide, *g_own = work->g_own + tile->begin;
        if (tile->side != INSIDE) {
            float *g_carry = block->g_carry + tile->begin;
            EACH(i, width) g[i] = (mine[i] * g[i] - delta[r] * weight[i]) * factor[i], g_carry[i] += g[i];
        } else {
            float *to = work->g_pairs + work->asked[tile->row + r] * wide;
            EACH(i, width) {
                const float one = mine[i] * g[i] - delta[r] * weight[i];
                to[i] = one * factor[i], g_own[i] += factor[i] == 0 ? one * w->scale : 0;
            }
        }
    }
    const long at = (tile->row - block->row) * stride, right = tile->side > INSIDE;
    if (tile->side != INSIDE) return_series(w, work, tile, work->g, work->sides[right] + at, work->g_sides[right] + at);
}

/* All rows of a block against all keys that they see. */
INLINE void attend(const Attention *w, Work *work, const Block *block, const int backward) {
    const long end = block->row + block->rows, size = block->rows * work->stride;
    if (!block->rows) return;
    if (work->blocks > 1) find_sides(w, work, block, 0);
    if (backward) clear(work->g_sides[0], size), clear(work->g_sides[1], size);
    for (Tile tile = {.block = block}; next_tile(w, work, &tile);) {
        tile.values = read_tile(w, work, &tile, 1, backward);
        if (tile.side != INSIDE) tile.keys = read_tile(w, work, &tile, 0, 1);
        for (tile.row = block->row; tile.row < end; tile.row += tile.rows) {
            tile.rows = MIN(CHUNK, end - tile.row);
            find_scores(w, work, &tile);
            if (backward) backward_rows(w, work, &tile);
            else forward_rows(w, work, &tile);
        }
    }
    if (backward && work->blocks > 1) find_sides(w, work, block, 1);
}

DISPATCH int attention_forward(const Attention *w, long begin, long end) {
    Work work;
    if (make_work(&work, w, begin, end, 0)) return 1;
    for (long item = begin; item < end; item++) {
        read_head(w, item, item > begin && item % w->heads, &work);
        for (long r = 0; r < work.rows; r++) work.most[r] = NEVER, work.total[r] = 0;
        for (long j = 0; j < work.blocks; j++) attend(w, &work, work.block + j, 0);
        for (long r = 0; r < work.rows; r++) {
            const float total = work.total[r], inverse = total > 0 ? 1 / total : 0;
            float *out = w->out + answer(w, &work, r);
            EACH(d, w->width) out[d] *= inverse;
            w->logsum[item * w->rows + r] = total > 0 ? work.most[r] + logf(total) : -NEVER;
        }
    }
    free(work.memory);
    return 0;
}

DISPATCH int attention_backward(const Attention *w, long begin, long end) {
    Work work;
    if (make_work(&work, w, begin, end, 1)) return 1;
    for (long item = begin; item < end; item++) {
        read_head(w, item, item > begin && item % w->heads, &work);
        clear(work.g_means, work.g_sides[0] - work.g_means), clear(work.ends, 2 * work.row);
        for (long j = 0; j < work.blocks; j++) attend(w, &work, work.block + j, 1);
        if (work.blocks > 1) return_carry(w, &work);
        for (long j = 0; j < work.blocks; j++) find_pairs(w, &work, work.block + j, 1);
        if (work.extra) sum_pieces(w, &work, work.g_means, 1);
        find_means(w, &work, 1);
        float *g_path = w->g_path + (work.path - w->path);
        WITH_WIDTH(w->width, find_moments(width, w, &work, work.g_moments, g_path))
        for (long i = 0; i < work.length; i++) {
            const long step = w->heads * w->width, place = work.place[i] * w->powers * step;
            const long mine = (work.batch * w->keys + i) * step + item % w->heads * w->width;
            EACH(d, w->width) {
                g_path[place + d] += work.g_own[i] * w->key[mine + d];
                w->g_key[mine + d] = work.g_own[i] * work.path[place + d];
            }
        }
    }
    free(work.memory);
    return 0;
}
