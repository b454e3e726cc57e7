/* Dividing the items of a kernel among threads, and memory for them.

   The threads are those of the OpenMP runtime that PyTorch itself runs on, by the entry point that GNU's compiler would
   call: a second pool would fight for the cores with PyTorch's threads, which wait for work by spinning. */

#include <stdatomic.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "common.h"

/* The checksum of the sources, from setup.py: Python reads structs from them, and refuses a library of others. */
unsigned contiformer_checksum(void) { return SOURCES; }

/* Ask for large pages, before anything is written there: a fault of the processor for every 2 MB instead of every 4 kB. */
void use_large_pages(void *memory, size_t size) {
#if defined(__linux__)
    const uintptr_t page = 4096, begin = ((uintptr_t)memory + page - 1) / page * page, end = ((uintptr_t)memory + size) / page * page;
    if (end > begin) madvise((void *)begin, end - begin, MADV_HUGEPAGE);
#else
    (void)memory, (void)size;
#endif
}

/* Working memory of a kernel; NULL where there is none. */
float *get_memory(long size) {
    float *memory = aligned_alloc(64, size * sizeof(float));
    if (memory && size >= 1 << 19) use_large_pages(memory, size * sizeof(float));
    return memory;
}

typedef int (*Kernel)(const void *work, long begin, long end);
typedef void (*Parallel)(void (*body)(void *), void *data, unsigned threads, unsigned flags);

typedef struct {
    Kernel kernel;
    const void *const *works;
    long count, items;
    atomic_long next;
    atomic_int failed;
} Share;

/* A runtime may give fewer threads than were asked for: each takes shares until none is left. */
static void take_shares(void *data) {
    Share *share = data;
    const long size = (share->items + share->count - 1) / share->count;
    for (long n; (n = atomic_fetch_add(&share->next, 1)) < share->count;) {
        const long begin = n * size, end = MIN(begin + size, share->items);
        if (begin < end && share->kernel(share->works[n], begin, end)) atomic_store(&share->failed, 1);
    }
}

/* Calls kernel(works[n], begin, end) for count ranges that make up the items; NULL for parallel: one after the other. */
int share_out(Kernel kernel, const void *const *works, long count, long items, Parallel parallel) {
    if (count < 1 || items < 1) return 0;
    Share share = {kernel, works, count, items, 0, 0};
    if (parallel && count > 1) parallel(take_shares, &share, (unsigned)count, 0);
    else take_shares(&share);
    return atomic_load(&share.failed);
}
