/* Products and transposes of small matrices. A sum over k runs in the same order for any number of rows, so values do not depend
   on who else is there. */

#pragma once

#include "common.h"

/* x[r][k] is at[r * row + k * along], so that a transpose costs nothing. */
typedef struct {
    const float *at;
    long row, along;
} Matrix;

/* What is left to do of c [rows, .] = start + x y. */
typedef struct {
    long rows, inner;
    Matrix x;
    const float *y, *start;
    long y_row, start_row;
    float *c;
    long c_row;
} Product;

/* As many rows as there are, `height` at a time, of `many` vectors of columns; both are constants. Sums run over k in order. */
#define DEFINE_TILES(name, Vector)                                                                                            \
    INLINE void name(Product *p, const int height, const int many) {                                                          \
        const long per = sizeof(Vector) / sizeof(float);                                                                      \
        for (; p->rows >= height; p->rows -= height) {                                                                        \
            Vector sum[16] = {{0}};                                                                                           \
            if (p->start) UNROLL for (int n = 0; n < height * many; n++)                                                      \
                sum[n] = *(const Vector *)(p->start + n / many * p->start_row + n % many * per);                              \
            const float *x = p->x.at, *y = p->y;                                                                              \
            for (long k = 0; k < p->inner; k++, x += p->x.along, y += p->y_row)                                               \
                UNROLL for (int n = 0; n < height * many; n++)                                                                \
                    sum[n] += x[n / many * p->x.row] * *(const Vector *)(y + n % many * per);                                 \
            UNROLL for (int n = 0; n < height * many; n++)                                                                    \
                *(Vector *)(p->c + n / many * p->c_row + n % many * per) = sum[n];                                            \
            p->x.at += height * p->x.row, p->c += height * p->c_row, p->start += p->start ? height * p->start_row : 0;        \
        }                                                                                                                     \
    }

DEFINE_TILES(tiles, Lanes)
DEFINE_TILES(pair_tiles, Pair)

/* Whether there are 32 registers of 16 numbers. Otherwise 6 rows of 2 vectors are the sums that 16 registers can hold beside
   what is added to them; a Pair would then be kept in memory. */
INLINE int many_registers(void) {
#if defined(__x86_64__) && defined(__GNUC__)
    return __builtin_cpu_supports("avx512f");
#else
    return 0;
#endif
}

/* c [rows, columns] = start + x y with y [inner, columns]. Columns are rounded up to whole vectors, which y and c must have
   room for. start: c itself, one row for all, or NULL for zeros. */
DISPATCH static void multiply(
    long rows, long columns, long inner, Matrix x, const float *y, long y_row, const float *start, float *c, long c_row
) {
    const long start_row = start == c ? c_row : 0;
    const int wide = many_registers();
    for (long done = 0, width; done < columns; done += width) {
        const long left = (columns - done + LANES - 1) / LANES;
        width = (left == 1 ? 1 : left >= 4 && wide ? 4 : 2) * LANES;
        Product p = {rows, inner, x, y + done, start ? start + done : NULL, y_row, start_row, c + done, c_row};
        if (width == 4 * LANES) {
            pair_tiles(&p, 8, 2), pair_tiles(&p, 4, 2), pair_tiles(&p, 2, 2), pair_tiles(&p, 1, 2);
        } else if (width == 2 * LANES && wide) {
            pair_tiles(&p, 12, 1), pair_tiles(&p, 8, 1), pair_tiles(&p, 4, 1), pair_tiles(&p, 2, 1), pair_tiles(&p, 1, 1);
        } else if (width == 2 * LANES) {
            tiles(&p, 6, 2), tiles(&p, 4, 2), tiles(&p, 2, 2), tiles(&p, 1, 2);
        } else {
            tiles(&p, 6, 1), tiles(&p, 4, 1), tiles(&p, 2, 1), tiles(&p, 1, 1);
        }
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
