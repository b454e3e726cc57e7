/* Random bits that a backward pass finds again: two keys for a row, and from them 32 bits for each place in it. */

#pragma once

#include <stdint.h>

#include "common.h"

#define GOLDEN 0x9e3779b97f4a7c15u

/* What the generator splitmix64 makes of its counter: 64 bits, each of which depends on all that are given. */
INLINE uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

typedef struct {
    uint32_t first, second;
} Draws;

INLINE Draws halves(uint64_t keys) {
    return (Draws){(uint32_t)keys, (uint32_t)(keys >> 32)};
}

/* With the first key alone, a row could have the bits of another one, shifted. */
INLINE uint32_t bits_at(Draws row, uint32_t place) {
    uint32_t x = place * (uint32_t)0x9e3779b9u + row.first;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15 ^ row.second) * 0x846ca68bu;
    return x ^ x >> 16;
}
