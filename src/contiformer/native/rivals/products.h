/* Products of matrices whose rows have a whole number of vectors, with zeros behind the last number, and tanh.

   A sum over k runs in the same order for any number of rows, so values do not depend on who else is there. */

#ifndef CONTIFORMER_PRODUCTS_H
#define CONTIFORMER_PRODUCTS_H

#include "../common.h"

INLINE long whole(long size) {
    return (size + LANES - 1) / LANES * LANES;
}

/* e / (e + 2) with e = expm1(2 |x|) = 2^k p + (2^k - 1), where p is expm1 of the rest: small numbers keep all their
   digits. One bound is enough, and what is no number stays so. */
INLINE float tanh_fast(float x) {
    const float size = fabsf(x);
    float power;
    const float f = split((9.5f < size ? 9.5f : size) * 2.88539008f, &power) * 0.69314718f;
    const float tail = 1.66666672e-1f + f * (4.16664568e-2f + f * (8.33336077e-3f + f * 1.39304265e-3f));
    const float p = f * (1.0f + f * (0.5f + f * tail));
    const float e = power * p + (power - 1.0f);
    return copysignf(e / (e + 2.0f), x);
}

INLINE void apply_tanh(long size, float *x) {
#pragma omp simd
    for (long j = 0; j < size; j++) x[j] = tanh_fast(x[j]);
}

/* A product y = start + x W for x [rows, inner], W [inner, columns]. Rows of x, start and y are so far apart; 0: all
   rows have the same start. */
typedef struct {
    long rows, inner, columns;
    const float *x;
    long x_row;
    const float *matrix, *start;
    long start_row;
    float *y;
    long y_row;
} Product;

/* `count` rows and `vectors` vectors of it, both constants, from row r and column j on */
INLINE void tile(const int count, const int vectors, const Product *p, long r, long j) {
    Lanes sum[12];
    UNROLL for (int i = 0; i < count; i++)
        UNROLL for (int v = 0; v < vectors; v++)
            sum[i * vectors + v] = AT(p->start + (r + i) * p->start_row, j + v * LANES);
    const long columns = p->columns, x_row = p->x_row, inner = p->inner;
    const float *x = p->x + r * x_row, *matrix = p->matrix + j;
    for (long k = 0; k < inner; k++, matrix += columns)
        UNROLL for (int i = 0; i < count; i++)
            UNROLL for (int v = 0; v < vectors; v++) sum[i * vectors + v] += x[i * x_row + k] * AT(matrix, v * LANES);
    UNROLL for (int i = 0; i < count; i++)
        UNROLL for (int v = 0; v < vectors; v++) PUT(p->y + (r + i) * p->y_row, j + v * LANES) = sum[i * vectors + v];
}

/* 12 sums are what 16 registers can hold beside what is added to them, and 8 hide the latency of the additions. */
INLINE void multiply(Product p) {
    const long fours = p.rows / 4 * 4;
    long r = fours, j = 0;
    for (long left; fours && (left = (p.columns - j) / LANES) > 0;) {
        const int vectors = left == 1 ? 1 : left == 2 || left == 4 ? 2 : 3;
        for (r = 0; r < fours; r += 4) {
            if (vectors == 3)
                tile(4, 3, &p, r, j);
            else if (vectors == 2)
                tile(4, 2, &p, r, j);
            else
                tile(4, 1, &p, r, j);
        }
        j += vectors * LANES;
    }
    if (p.rows - r >= 2) {
        for (j = 0; j + 4 * LANES <= p.columns; j += 4 * LANES) tile(2, 4, &p, r, j);
        for (; j < p.columns; j += LANES) tile(2, 1, &p, r, j);
        r += 2;
    }
    if (p.rows - r == 1) {
        for (j = 0; j + 8 * LANES <= p.columns; j += 8 * LANES) tile(1, 8, &p, r, j);
        for (; j + 4 * LANES <= p.columns; j += 4 * LANES) tile(1, 4, &p, r, j);
        for (; j < p.columns; j += LANES) tile(1, 1, &p, r, j);
    }
}

/* M += x^T g for x [pairs, in], g [pairs, out]: four rows and `vectors` vectors of M, a constant, stay in registers */
INLINE void outer_tile(const int vectors, long pairs, long x_row, long out, const float *x, const float *g, float *M) {
    Lanes sum[12];
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int v = 0; v < vectors; v++) sum[i * vectors + v] = AT(M + i * out, v * LANES);
    for (long p = 0; p < pairs; p++, x += x_row, g += out)
        UNROLL for (int i = 0; i < 4; i++)
            UNROLL for (int v = 0; v < vectors; v++) sum[i * vectors + v] += x[i] * AT(g, v * LANES);
    UNROLL for (int i = 0; i < 4; i++)
        UNROLL for (int v = 0; v < vectors; v++) PUT(M + i * out, v * LANES) = sum[i * vectors + v];
}

/* The same for all of M [in, out], in being a multiple of four; rows of x are `x_row` apart. */
INLINE void add_outer(long pairs, long in, long out, const float *x, long x_row, const float *g, float *M) {
    for (long j = 0, left; (left = (out - j) / LANES) > 0;) {
        const int vectors = left == 1 ? 1 : left == 2 || left == 4 ? 2 : 3;
        for (long k = 0; k < in; k += 4) {
            if (vectors == 3)
                outer_tile(3, pairs, x_row, out, x + k, g + j, M + k * out + j);
            else if (vectors == 2)
                outer_tile(2, pairs, x_row, out, x + k, g + j, M + k * out + j);
            else
                outer_tile(1, pairs, x_row, out, x + k, g + j, M + k * out + j);
        }
        j += vectors * LANES;
    }
}

/* With the sums of g in a row more of M. */
INLINE void add_outer_products(long pairs, long in, long out, const float *x, const float *g, float *M) {
    add_outer(pairs, in, out, x, in, g, M);
    float *bias = M + in * out;
    for (long p = 0; p < pairs; p++, g += out)
#pragma omp simd
        for (long j = 0; j < out; j++) bias[j] += g[j];
}

#endif
