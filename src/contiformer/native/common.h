/* What the kernels share. */

#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define DISPATCH __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DISPATCH
#endif
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define LANES 8
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));
/* Two of them, which a processor may have registers for. */
typedef float Pair __attribute__((vector_size(2 * LANES * sizeof(float)), aligned(sizeof(float))));
#define AT(p, j) (*(const Lanes *)((p) + (j)))
#define PUT(p, j) (*(Lanes *)((p) + (j)))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
/* A loop whose turns do not depend on each other. */
#define EACH(n, size) _Pragma("omp simd") for (long n = 0; n < (size); n++)

/* Widths that are known in advance need no loop over the columns. */
#define WITH_WIDTH(size, call)                                            \
    if ((size) == LANES) { const long width = LANES; call; }              \
    else if ((size) == 2 * LANES) { const long width = 2 * LANES; call; } \
    else { const long width = (size); call; }

INLINE float dot(long size, const float *a, const float *b) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (long n = 0; n < size; n++) sum += a[n] * b[n];
    return sum;
}

float *get_memory(long size);

/* The next `size` numbers of the working memory, which begin at a line of the cache; from NULL on it only counts. */
INLINE void *next_of(float *memory, long *taken, long size) {
    const long line = 16, begin = *taken;
    *taken += (size + LANES + line - 1) / line * line;
    return memory ? memory + begin : NULL;
}

#define TAKE(name, size) work->name = next_of(work->memory, &taken, size)

/* Set the power of two of the whole number next to one of size up to 126, and return the rest between -1/2 and 1/2. In a float
   near `rounder` the last bits are the nearest whole number. Taken from there, NaN gives a power without meaning and stays NaN
   in the rest; its conversion to an integer would be undefined. */
INLINE float split(float x, float *power) {
    const float rounder = 12582912.0f; /* 1.5 * 2^23 */
    union {
        float f;
        unsigned i;
    } near = {x + rounder};
    const float rest = x - (near.f - rounder);
    near.i = (near.i + 127) << 23;
    *power = near.f;
    return rest;
}

/* exp of what is at most 85: 2^k 2^f with |f| <= 1/2 and a polynomial of degree 6, relative error below 2e-7. Written so that
   what is no number stays so. */
INLINE float exp_bounded(float x) {
    const float scaled = x * 1.44269504f;
    float power;
    const float f = split(-125.0f > scaled ? -125.0f : scaled, &power) * 0.69314718f;
    const float tail = 1.66666672e-1f + f * (4.16664568e-2f + f * (8.33336077e-3f + f * 1.39304265e-3f));
    return (1.0f + f * (1.0f + f * (0.5f + f * tail))) * power;
}

/* Random bits that a backward pass finds again: 64 bits are the seed of a row, and give 32 for each place in it. */
#define GOLDEN 0x9e3779b97f4a7c15u

/* What the generator splitmix64 makes of its counter: 64 bits, each of which depends on all that are given. */
INLINE uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* With the lower half of the seed alone, a row could have the bits of another one, shifted. */
INLINE uint32_t bits_at(uint64_t seed, uint32_t place) {
    uint32_t x = place * (uint32_t)0x9e3779b9u + (uint32_t)seed;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15 ^ (uint32_t)(seed >> 32)) * 0x846ca68bu;
    return x ^ x >> 16;
}
