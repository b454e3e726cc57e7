/* What the kernels share. */

#ifndef CONTIFORMER_COMMON_H
#define CONTIFORMER_COMMON_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define DISPATCH __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define DISPATCH
#endif
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define LANES 8
typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(sizeof(float))));
#define AT(p, j) (*(const Lanes *)((p) + (j)))
#define PUT(p, j) (*(Lanes *)((p) + (j)))

/* exp in two halves, for two loops: a compiler makes one instruction of a bound, but a tangle of two in one loop. Written so
   that what is no number stays so. */
INLINE float exp_begun(float x) {
    const float scaled = x * 1.44269504f;
    return -125.0f > scaled ? -125.0f : scaled;
}

/* The same where 125 is known to be the larger. */
INLINE float exp_bounded(float scaled) {
    /* 2^k 2^f with |f| <= 1/2 and a polynomial of degree 6: relative error below 2e-7 */
    float whole = rintf(scaled);
    float f = (scaled - whole) * 0.69314718f;
    float tail = 1.66666672e-1f + f * (4.16664568e-2f + f * (8.33336077e-3f + f * 1.39304265e-3f));
    float p = 1.0f + f * (1.0f + f * (0.5f + f * tail));
    union {
        int i;
        float f;
    } power;
    power.i = ((int)whole + 127) << 23;
    return p * power.f;
}

INLINE float exp_ended(float scaled) {
    return exp_bounded(125.0f < scaled ? 125.0f : scaled);
}

INLINE float exp_fast(float x) {
    return exp_ended(exp_begun(x));
}

#endif
