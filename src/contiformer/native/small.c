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

INLINE void product(const Products *w, long columns, const float *left, const float *right, float *out) {
    const long step = w->transposed ? 1 : w->inner, along = w->transposed ? w->rows : 1;
    for (long i = 0; i < w->rows; i++) {
        float *o = out + i * columns;
        for (long j = 0; j < columns; j++) o[j] = 0;
        for (long k = 0; k < w->inner; k++) {
            const float a = left[i * step + k * along];
            const float *x = right + k * columns;
#pragma omp simd
            for (long j = 0; j < columns; j++) o[j] += a * x[j];
        }
    }
}

DISPATCH int small_products(const Products *w, long begin, long end) {
    for (long n = begin; n < end; n++) {
        const long item = n % w->items, batch = n / w->items / w->heads;
        const float *left = w->left + (batch * w->items + item) * w->rows * w->inner;
        const float *right = w->right + n * w->inner * w->columns;
        float *out = w->out + n * w->rows * w->columns;
        /* a number the compiler knows keeps a row of the result in registers */
        if (w->columns == 8)
            product(w, 8, left, right, out);
        else if (w->columns == 16)
            product(w, 16, left, right, out);
        else
            product(w, w->columns, left, right, out);
    }
    return 0;
}
