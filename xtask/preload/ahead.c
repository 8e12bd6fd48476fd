/* A preloaded library that shows one process a wrong time: it adds the seconds in a file to the time of day. The file
   may change at any moment. Clocks for elapsed time stay correct. */
#include "time_of_day.h"

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!true_clock) prepare("CLOCK_AHEAD");
    int failed = true_clock(clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += *number;
    return failed;
}
