/* Elementwise parts of attention at the knots, in float32: outward sums within blocks, and the softmax of scores that are still
   to be divided by differences of times. Each does in one pass over its rows what takes PyTorch several; the reference is
   contiformer/nn/{cells,knot_attention}.py. */

#include "common.h"

typedef struct {
    long size;
    const float *from;
    float *to;
} Outward;

/* sums[i][m] = sum of each[i][n] over the cells n between points i and m, for blocks of [size, size]. */
DISPATCH int outward_forward(const Outward *w, long begin, long end) {
    const long size = w->size;
    for (long block = begin; block < end; block++)
        for (long i = 0; i < size; i++) {
            const float *in = w->from + (block * size + i) * size;
            float *out = w->to + (block * size + i) * (size + 1);
            float total = 0;
            out[i] = 0;
            for (long m = i; m < size; m++) out[m + 1] = total += in[m];
            total = 0;
            for (long m = i - 1; m >= 0; m--) out[m] = total += in[m];
        }
    return 0;
}

DISPATCH int outward_backward(const Outward *w, long begin, long end) {
    const long size = w->size;
    for (long block = begin; block < end; block++)
        for (long i = 0; i < size; i++) {
            const float *in = w->from + (block * size + i) * (size + 1);
            float *out = w->to + (block * size + i) * size;
            float total = 0;
            for (long n = size - 1; n >= i; n--) out[n] = total += in[n + 1];
            total = 0;
            for (long n = 0; n < i; n++) out[n] = total += in[n];
        }
    return 0;
}

/* One block of query rows against all keys, see contiformer/nn/knot_attention.py. The keys before the block, in it and
   after it come from three places. */
typedef struct {
    /* the block is number `block` of `blocks` with `size` points each, and has rows first .. first + rows */
    long heads, length, blocks, size, block, first, rows, keys;
    int causal;
    float scale;
    /* times [batch, length]; valid [batch, length] or NULL */
    const double *time;
    const unsigned char *valid;
    /* products [batch * heads, rows, first] and [batch * heads, rows, keys - first - rows] */
    const float *before, *after;
    /* carries [batch * heads, blocks, length]; integrals [batch * heads, blocks, size, size], key by row */
    const float *left, *right, *within;
    /* [batch * heads, rows, keys]: weights; the gradient of the weights, then of the sums */
    float *weights, *g;
    float *g_left, *g_right, *g_within;
} Softmax;

INLINE void gap_factors(const Softmax *w, long batch, long row, float *factor) {
    const double *time = w->time + batch * w->length;
    const double here = time[row];
    for (long i = 0; i < w->keys; i++) {
        float gap = fabsf((float)(here - time[i]));
        gap = gap < 1e-37f ? 1e-37f : gap;
        factor[i] = w->scale / gap;
    }
    if (row < w->keys) factor[row] = w->scale;
}

INLINE void gather_scores(const Softmax *w, long bh, long r, const float *factor, float *s) {
    const long stop = w->first + w->rows, beyond = w->keys - stop, place = bh * w->blocks + w->block;
    const float *before = w->before + (bh * w->rows + r) * w->first, *left = w->left + place * w->length;
    for (long i = 0; i < w->first; i++) s[i] = (before[i] + left[i]) * factor[i];
    const float *within = w->within + place * w->size * w->size + r;
    for (long i = 0; i < w->rows; i++) s[w->first + i] = within[i * w->size] * factor[w->first + i];
    const float *after = w->after + (bh * w->rows + r) * beyond, *right = w->right + place * w->length + stop;
    for (long i = 0; i < beyond; i++) s[stop + i] = (after[i] + right[i]) * factor[stop + i];
}

DISPATCH int softmax_forward(const Softmax *w, long begin, long end) {
    float *factor = malloc(w->keys * sizeof(float));
    if (!factor) return 1;
    for (long r = 0; r < w->rows; r++) {
        const long row = w->first + r;
        for (long bh = begin; bh < end; bh++) {
            if (bh == begin || bh % w->heads == 0) gap_factors(w, bh / w->heads, row, factor);
            const unsigned char *valid = w->valid ? w->valid + bh / w->heads * w->length : NULL;
            float *s = w->weights + (bh * w->rows + r) * w->keys;
            const long keys = w->causal && row + 1 < w->keys ? row + 1 : w->keys;
            float most = -3e38f, total = 0;
            gather_scores(w, bh, r, factor, s);
            if (valid)
                for (long i = 0; i < keys; i++) s[i] = valid[i] ? s[i] : -3e38f;
#pragma omp simd reduction(max : most)
            for (long i = 0; i < keys; i++) most = s[i] > most ? s[i] : most;
#pragma omp simd reduction(+ : total)
            for (long i = 0; i < keys; i++) {
                s[i] = exp_fast(s[i] - most);
                total += s[i];
            }
            const float inverse = 1.0f / total;
#pragma omp simd
            for (long i = 0; i < keys; i++) s[i] *= inverse;
            if (valid)
                for (long i = 0; i < keys; i++) s[i] = valid[i] ? s[i] : 0.0f;
            for (long i = keys; i < w->keys; i++) s[i] = 0;
        }
    }
    free(factor);
    return 0;
}

/* The gradients of the carries: the sum over the rows for the keys that use them, zero for the others. */
INLINE void sum_carries(const Softmax *w, long bh) {
    const long stop = w->first + w->rows, place = bh * w->blocks + w->block;
    float *left = w->g_left + place * w->length, *right = w->g_right + place * w->length;
    memset(left, 0, w->length * sizeof(float));
    memset(right, 0, w->length * sizeof(float));
    for (long r = 0; r < w->rows; r++) {
        const float *g = w->g + (bh * w->rows + r) * w->keys;
        for (long i = 0; i < w->first; i++) left[i] += g[i];
        for (long i = stop; i < w->keys; i++) right[i] += g[i];
    }
}

DISPATCH int softmax_backward(const Softmax *w, long begin, long end) {
    float *factor = malloc(w->keys * sizeof(float));
    if (!factor) return 1;
    for (long r = 0; r < w->rows; r++) {
        const long row = w->first + r;
        for (long bh = begin; bh < end; bh++) {
            if (bh == begin || bh % w->heads == 0) gap_factors(w, bh / w->heads, row, factor);
            const float *s = w->weights + (bh * w->rows + r) * w->keys;
            float *g = w->g + (bh * w->rows + r) * w->keys;
            float along = 0;
#pragma omp simd reduction(+ : along)
            for (long i = 0; i < w->keys; i++) along += s[i] * g[i];
#pragma omp simd
            for (long i = 0; i < w->keys; i++) g[i] = (g[i] - along) * s[i] * factor[i];
            float *within = w->g_within + (bh * w->blocks + w->block) * w->size * w->size + r;
            for (long i = 0; i < w->rows; i++) within[i * w->size] = g[w->first + i];
        }
    }
    if (w->blocks > 1)
        for (long bh = begin; bh < end; bh++) sum_carries(w, bh);
    free(factor);
    return 0;
}
