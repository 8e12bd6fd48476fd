/* A preloaded library that shows a process the time of day in a file, in microseconds since 1970,
   and random bytes that only depend on FROZEN_SEED. The file may change at any moment. Clocks for
   elapsed time are ahead by as much as the time of day was moved since the process began. */
#include "time_of_day.h"
#include <sys/types.h>

static int64_t began;

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!true_clock) {
        prepare("FROZEN_CLOCK");
        began = *number;
    }
    int64_t nanos = 0;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        nanos = *number * 1000;
        break;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        if (true_clock(clock, now)) return -1;
        nanos = now->tv_sec * 1000000000 + now->tv_nsec + (*number - began) * 1000;
        break;
    default:
        return true_clock(clock, now);
    }
    now->tv_sec = nanos / 1000000000;
    now->tv_nsec = nanos % 1000000000;
    return 0;
}

/* Returns the same bytes at each call, so that they do not depend on the order in which threads ask. */
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
