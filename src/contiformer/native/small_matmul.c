/* Many small matrix products, in float32: what PyTorch's batched product spends most of its time preparing.
   The reference is `@` in contiformer/nn/mixing.py. */

#include "common.h"

typedef struct {
    /* left [batch, items, rows, inner], shared by the heads; right [batch, heads, items, inner, columns];
       out [batch, heads, items, rows, columns]. With transposed, left is [batch, items, inner, rows]. */
    long heads, items, rows, inner, columns;
    int transposed;
    const float *left, *right;
    float *out;
} Products;

INLINE void product(const Products *w, long columns, const float *left, const float *right, float *restrict out) {
    const long step = w->transposed ? 1 : w->inner, along = w->transposed ? w->rows : 1;
    for (long i = 0; i < w->rows; i++, out += columns) {
        for (long j = 0; j < columns; j++) out[j] = 0;
        for (long k = 0; k < w->inner; k++) {
            const float a = left[i * step + k * along];
            const float *x = right + k * columns;
#pragma omp simd
            for (long j = 0; j < columns; j++) out[j] += a * x[j];
        }
    }
}

/* The same for `vectors` vectors of columns, a constant: a row of the result stays in registers. */
INLINE void narrow(const int vectors, const Products *w, const float *left, const float *right, float *out) {
    const long step = w->transposed ? 1 : w->inner, along = w->transposed ? w->rows : 1, columns = vectors * LANES;
    for (long i = 0; i < w->rows; i++, out += columns) {
        Lanes sum[4] = {{0}};
        for (long k = 0; k < w->inner; k++)
            UNROLL for (int v = 0; v < vectors; v++)
                sum[v] += left[i * step + k * along] * AT(right + k * columns, v * LANES);
        UNROLL for (int v = 0; v < vectors; v++) PUT(out, v * LANES) = sum[v];
    }
}

DISPATCH int small_products(const Products *w, long begin, long end) {
    for (long n = begin; n < end; n++) {
        const long item = n % w->items, batch = n / w->items / w->heads;
        const float *left = w->left + (batch * w->items + item) * w->rows * w->inner;
        const float *right = w->right + n * w->inner * w->columns;
        float *out = w->out + n * w->rows * w->columns;
        if (w->columns == LANES)
            narrow(1, w, left, right, out);
        else if (w->columns == 2 * LANES)
            narrow(2, w, left, right, out);
        else if (w->columns == 4 * LANES)
            narrow(4, w, left, right, out);
        else
            product(w, w->columns, left, right, out);
    }
    return 0;
}
