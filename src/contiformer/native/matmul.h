/* Products and transposes of small matrices. A sum over k runs in the same order for any number of rows, so values do not depend
   on who else is there. */

#ifndef CONTIFORMER_MATMUL_H
#define CONTIFORMER_MATMUL_H

#include "common.h"

/* 6 rows of 2 vectors are the sums that 16 registers can hold beside what is added to them. */
#define ROWS 6

/* `count` rows and `vectors` vectors of c = start + x y, both constants; the sums run over k in order */
#define TILE_LOOPS(Vector, per, count, many)                                                                                \
    Vector sum[12] = {{0}};                                                                                                 \
    if (start) UNROLL for (int r = 0; r < (count); r++)                                                                     \
        UNROLL for (int v = 0; v < (many); v++) sum[r * (many) + v] = *(const Vector *)(start + r * start_row + v * (per)); \
    for (long k = 0; k < inner; k++) {                                                                                      \
        UNROLL for (int r = 0; r < (count); r++) {                                                                          \
            const float factor = x[r * row + k * along];                                                                    \
            UNROLL for (int v = 0; v < (many); v++)                                                                         \
                sum[r * (many) + v] += factor * *(const Vector *)(y + k * y_row + v * (per));                               \
        }                                                                                                                   \
    }                                                                                                                       \
    UNROLL for (int r = 0; r < (count); r++)                                                                                \
        UNROLL for (int v = 0; v < (many); v++) *(Vector *)(c + r * c_row + v * (per)) = sum[r * (many) + v];

INLINE void tile(
    const int count, const int vectors, long inner, const float *x, long row, long along, const float *y, long y_row,
    const float *start, long start_row, float *c, long c_row
) {
    if (vectors == 2) {
        TILE_LOOPS(Pair, 2 * LANES, count, 1)
    } else {
        TILE_LOOPS(Lanes, LANES, count, vectors)
    }
}

#define TILES(count, vectors) tile(count, vectors, inner, x, row, along, y, y_row, start, start_row, c, c_row)

/* All rows of `vectors` vectors of columns, `most` at a time. */
INLINE void panel(
    const int most, const int vectors, long rows, long inner, const float *x, long row, long along, const float *y, long y_row,
    const float *start, long start_row, float *c, long c_row
) {
    for (; rows >= most; rows -= most, x += most * row, c += most * c_row, start += start ? most * start_row : 0)
        TILES(most, vectors);
    switch (rows) {
    case 5: TILES(5, vectors); break;
    case 4: TILES(4, vectors); break;
    case 3: TILES(3, vectors); break;
    case 2: TILES(2, vectors); break;
    case 1: TILES(1, vectors);
    }
}

typedef struct {
    const float *at;
    long row, along;
} Matrix;

/* c [rows, columns] = start + x y with x[r][k] at x.at[r * x.row + k * x.along], so that transposes of x cost nothing, and
   y [inner, columns]. Columns are rounded up to whole vectors, which y and c must have room for. start NULL: zeros. */
DISPATCH static void multiply(
    long rows, long columns, long inner, Matrix m, const float *y, long y_row, const float *start, long start_row, float *c,
    long c_row
) {
    const float *x = m.at;
    const long row = m.row, along = m.along;
    for (long left; (left = (columns + LANES - 1) / LANES) > 0;) {
        const int vectors = left == 1 ? 1 : left == 3 ? 3 : 2;
        if (vectors == 3)
            panel(4, 3, rows, inner, x, row, along, y, y_row, start, start_row, c, c_row);
        else if (vectors == 2)
            panel(ROWS, 2, rows, inner, x, row, along, y, y_row, start, start_row, c, c_row);
        else
            panel(ROWS, 1, rows, inner, x, row, along, y, y_row, start, start_row, c, c_row);
        columns -= vectors * LANES, y += vectors * LANES, c += vectors * LANES, start += start ? vectors * LANES : 0;
    }
}

#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int Places __attribute__((vector_size(LANES * sizeof(int))));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (Places){__VA_ARGS__})
#endif

/* A square of 8 numbers each way in place: neighbours, pairs and fours change places. */
INLINE void transpose_square(Lanes *a) {
    Lanes b[LANES];
    UNROLL for (int r = 0; r < LANES; r += 2) {
        b[r] = PICK(a[r], a[r + 1], 0, 8, 2, 10, 4, 12, 6, 14);
        b[r + 1] = PICK(a[r], a[r + 1], 1, 9, 3, 11, 5, 13, 7, 15);
    }
    Lanes c[LANES];
    UNROLL for (int r = 0; r < LANES; r++) {
        const int first = r / 4 * 4 + r % 2;
        c[r] = r % 4 < 2 ? PICK(b[first], b[first + 2], 0, 1, 8, 9, 4, 5, 12, 13)
                         : PICK(b[first], b[first + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    UNROLL for (int r = 0; r < 4; r++) {
        a[r] = PICK(c[r], c[r + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        a[r + 4] = PICK(c[r], c[r + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

#endif
