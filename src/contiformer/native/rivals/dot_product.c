/* Attention of Vaswani et al. with dropout of its weights, in float32: what takes PyTorch a dozen passes over all scores is done
   for a few queries at a time, whose scores stay in the cache. The reference is contiformer/nn/dot_product.py.

   Nothing of the size of the scores is kept. Backwards the same scores are made again, the weights from their largest and
   from the sum of their exponentials, and which are dropped from the same hash. */

#include "products.h"

/* Queries that are treated together, and keys: as many as 12 sums hold for four queries. */
#define ROWS 8
#define STRIP (3 * LANES)

/* Distances between batches, heads and rows; the numbers of a row follow each other. */
typedef struct {
    long batch, head, row;
} Layout;

typedef struct {
    long heads, rows, others, part;
    int causal;
    /* a weight is dropped where 31 random bits are below this, and else multiplied by the factor */
    int dropped;
    float scale, factor;
    uint64_t seed;
    Layout query_layout, key_layout, value_layout, g_layout;
    const float *query, *key, *value, *g;
    /* [batch, rows, heads, part] */
    float *out;
    /* [batch * heads, rows, 2]: the largest score of a row, and one over the sum of exponentials */
    float *norms;
    /* [batch, rows, heads, part], [batch, others, heads, part] */
    float *g_query, *g_key, *g_value;
} Attention;

/* Working memory of one head. Rows of numbers have zeros up to `part`; rows of scores are `others` apart. */
typedef struct {
    long part, others;
    float *memory;
    float *query, *g, *result, *nothing, *scores, *slopes, *kept;
    float *key, *value, *key_strips, *value_strips, *g_key, *g_value;
} Desk;

INLINE Layout rows_of_heads(const Attention *w, long rows) {
    return (Layout){rows * w->heads * w->part, w->part, w->heads * w->part};
}

INLINE long place(const Attention *w, Layout layout, long item, long n) {
    return item / w->heads * layout.batch + item % w->heads * layout.head + n * layout.row;
}

INLINE int open_desk(Desk *d, const Attention *w) {
    d->part = whole(w->part);
    d->others = (w->others + STRIP - 1) / STRIP * STRIP;
    const long rows = ROWS * d->part, scores = ROWS * d->others, keys = d->others * d->part;
    float *next = d->memory = malloc((4 * rows + 2 * scores + 6 * keys + d->others) * sizeof(float));
    if (!next) return 1;
    float **small[] = {&d->query, &d->g, &d->result, &d->nothing}, **wide[] = {&d->scores, &d->slopes};
    float **large[] = {&d->key, &d->value, &d->key_strips, &d->value_strips, &d->g_key, &d->g_value};
    for (int n = 0; n < 4; n++, next += rows) *small[n] = next;
    for (int n = 0; n < 2; n++, next += scores) *wide[n] = next;
    for (int n = 0; n < 6; n++, next += keys) *large[n] = next;
    d->kept = next;
    memset(d->nothing, 0, rows * sizeof(float));
    return 0;
}

/* `count` rows times a factor, and zeros up to `padded` rows */
INLINE void take(const Attention *w, const Desk *d, const float *from, long step, float factor, long count, long padded,
                 float *to) {
    for (long n = 0; n < count; n++)
        for (long k = 0; k < d->part; k++) to[n * d->part + k] = k < w->part ? from[n * step + k] * factor : 0.0f;
    memset(to + count * d->part, 0, (padded - count) * d->part * sizeof(float));
}

INLINE void give(const Attention *w, const Desk *d, const float *from, float factor, long count, float *to, long step) {
    for (long n = 0; n < count; n++)
        for (long k = 0; k < w->part; k++) to[n * step + k] = from[n * d->part + k] * factor;
}

/* [others, part] as strips of keys [others / STRIP, part, STRIP], which a product takes one by one */
INLINE void turn(const Desk *d, const float *rows, float *strips) {
    for (long first = 0; first < d->others; first += STRIP, rows += STRIP * d->part)
        for (long k = 0; k < d->part; k++)
            for (long n = 0; n < STRIP; n++) *strips++ = rows[n * d->part + k];
}

/* How many others a query sees; and up to where scores are made for all queries before `row`. */
INLINE long seen_by(const Attention *w, long row) {
    return w->causal && row + 1 < w->others ? row + 1 : w->others;
}

INLINE long width_before(const Attention *w, long row) {
    return (seen_by(w, row - 1) + STRIP - 1) / STRIP * STRIP;
}

INLINE void score(const Desk *d, long count, long width, const float *rows, const float *strips, float *scores) {
    for (long first = 0; first < width; first += STRIP)
        multiply((Product){count, d->part, STRIP, rows, d->part, strips + first * d->part, d->nothing, 0, scores + first,
                           d->others});
}

INLINE void weigh(const Desk *d, long count, long width, const float *weights, const float *rows, float *result) {
    multiply((Product){count, width, d->part, weights, d->others, rows, d->nothing, 0, result, d->part});
}

INLINE uint64_t seed_of(const Attention *w, long row) {
    return mixed(w->seed + ((uint64_t)row + 1) * GOLDEN);
}

INLINE float stays(uint64_t seed, long n, int dropped) {
    return (int)(bits_at(seed, (uint32_t)n) >> 1) < dropped ? 0.0f : 1.0f;
}

/* Scores become exponentials, zero where dropped; `norms` as in the struct. */
INLINE void exponentiate(const Attention *w, uint64_t seed, long seen, long width, float *s, float *norms) {
    float most = s[0], total = 0;
#pragma omp simd reduction(max : most)
    for (long i = 0; i < seen; i++) most = s[i] > most ? s[i] : most;
#pragma omp simd reduction(+ : total)
    for (long i = 0; i < seen; i++) {
        s[i] = exp_bounded(s[i] - most);
        total += s[i];
    }
#pragma omp simd
    for (long i = 0; i < seen; i++) s[i] *= stays(seed, i, w->dropped);
    for (long i = seen; i < width; i++) s[i] = 0.0f;
    norms[0] = most;
    norms[1] = 1.0f / total;
}

DISPATCH int dot_product_forward(const Attention *w, long begin, long end) {
    Desk d;
    if (open_desk(&d, w)) return 1;
    const Layout out = rows_of_heads(w, w->rows);
    for (long item = begin; item < end; item++) {
        take(w, &d, w->key + place(w, w->key_layout, item, 0), w->key_layout.row, 1.0f, w->others, d.others, d.key);
        take(w, &d, w->value + place(w, w->value_layout, item, 0), w->value_layout.row, 1.0f, w->others, d.others, d.value);
        turn(&d, d.key, d.key_strips);
        for (long r = 0; r < w->rows; r += ROWS) {
            const long count = w->rows - r < ROWS ? w->rows - r : ROWS, width = width_before(w, r + count);
            take(w, &d, w->query + place(w, w->query_layout, item, r), w->query_layout.row, w->scale, count, count, d.query);
            score(&d, count, width, d.query, d.key_strips, d.scores);
            float *norms = w->norms + 2 * (item * w->rows + r);
            for (long i = 0; i < count; i++) {
                const uint64_t seed = seed_of(w, item * w->rows + r + i);
                exponentiate(w, seed, seen_by(w, r + i), width, d.scores + i * d.others, norms + 2 * i);
            }
            weigh(&d, count, width, d.scores, d.value, d.result);
            for (long i = 0; i < count; i++)
                give(w, &d, d.result + i * d.part, w->factor * norms[2 * i + 1], 1, w->out + place(w, out, item, r + i), 0);
        }
    }
    free(d.memory);
    return 0;
}

/* From scores and from the products of the gradient with the values: weights after dropout, and the scores' gradients. */
INLINE void differentiate(const Attention *w, uint64_t seed, long seen, long width, const float *norms, float *kept, float *s,
                          float *t) {
    const float most = norms[0], per_sum = norms[1], factor = w->factor;
    float along = 0;
#pragma omp simd
    for (long i = 0; i < seen; i++) s[i] = exp_bounded(s[i] - most) * per_sum;
#pragma omp simd reduction(+ : along)
    for (long i = 0; i < seen; i++) {
        kept[i] = factor * stays(seed, i, w->dropped);
        t[i] *= kept[i];
        along += s[i] * t[i];
    }
#pragma omp simd
    for (long i = 0; i < seen; i++) {
        t[i] = s[i] * (t[i] - along);
        s[i] *= kept[i];
    }
    for (long i = seen; i < width; i++) s[i] = t[i] = 0.0f;
}

DISPATCH int dot_product_backward(const Attention *w, long begin, long end) {
    Desk d;
    if (open_desk(&d, w)) return 1;
    const Layout out = rows_of_heads(w, w->rows), keys = rows_of_heads(w, w->others);
    for (long item = begin; item < end; item++) {
        take(w, &d, w->key + place(w, w->key_layout, item, 0), w->key_layout.row, 1.0f, w->others, d.others, d.key);
        take(w, &d, w->value + place(w, w->value_layout, item, 0), w->value_layout.row, 1.0f, w->others, d.others, d.value);
        turn(&d, d.key, d.key_strips);
        turn(&d, d.value, d.value_strips);
        memset(d.g_key, 0, d.others * d.part * sizeof(float));
        memset(d.g_value, 0, d.others * d.part * sizeof(float));
        for (long r = 0; r < w->rows; r += ROWS) {
            const long count = w->rows - r < ROWS ? w->rows - r : ROWS, width = width_before(w, r + count);
            take(w, &d, w->query + place(w, w->query_layout, item, r), w->query_layout.row, w->scale, count, count, d.query);
            take(w, &d, w->g + place(w, w->g_layout, item, r), w->g_layout.row, 1.0f, count, count, d.g);
            score(&d, count, width, d.query, d.key_strips, d.scores);
            score(&d, count, width, d.g, d.value_strips, d.slopes);
            for (long i = 0; i < count; i++) {
                const long row = item * w->rows + r + i;
                differentiate(w, seed_of(w, row), seen_by(w, r + i), width, w->norms + 2 * row, d.kept,
                              d.scores + i * d.others, d.slopes + i * d.others);
            }
            weigh(&d, count, width, d.slopes, d.key, d.result);
            give(w, &d, d.result, w->scale, count, w->g_query + place(w, out, item, r), out.row);
            add_outer(count, width, d.part, d.slopes, d.others, d.query, d.g_key);
            add_outer(count, width, d.part, d.scores, d.others, d.g, d.g_value);
        }
        give(w, &d, d.g_key, 1.0f, w->others, w->g_key + place(w, keys, item, 0), keys.row);
        give(w, &d, d.g_value, 1.0f, w->others, w->g_value + place(w, keys, item, 0), keys.row);
    }
    free(d.memory);
    return 0;
}
