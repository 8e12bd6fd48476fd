/* Preloaded, it shows a process the time of day that a file holds, eight bytes in the order of the machine that count
   microseconds since 1970, and random bytes that only depend on FROZEN_SEED. The file may change at any moment. Clocks
   that measure how much time passes are ahead by as much as the time of day was moved since the process began. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>

static int (*true_clock)(clockid_t, struct timespec *);
static const volatile int64_t *micros;
static int64_t began;

/* The first call comes before there are threads. */
static void prepare(void) {
    const char *path = getenv("FROZEN_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = mmap(NULL, sizeof *micros, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) abort();
    micros = page;
    began = *micros;
    true_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!true_clock) prepare();
    int64_t nanos = 0;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        nanos = *micros * 1000;
        break;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        if (true_clock(clock, now)) return -1;
        nanos = now->tv_sec * 1000000000 + now->tv_nsec + (*micros - began) * 1000;
        break;
    default:
        return true_clock(clock, now);
    }
    now->tv_sec = nanos / 1000000000;
    now->tv_nsec = nanos % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}

/* The same bytes at each call, so that they do not depend on the order in which threads ask. */
ssize_t getrandom(void *buffer, size_t length, unsigned int flags) {
    const char *seed = getenv("FROZEN_SEED");
    uint64_t state = (seed ? strtoull(seed, NULL, 10) : 0) * 2 + 0x9e3779b97f4a7c15;
    (void)flags;
    for (size_t at = 0; at < length; at++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((unsigned char *)buffer)[at] = (unsigned char)(state >> 32);
    }
    return (ssize_t)length;
}
