/* Random bits that a backward pass finds again: 64 bits are the seed of a row, and give 32 for each place in it. */

#pragma once

#include "common.h"

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
