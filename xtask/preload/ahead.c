/* Shows one process another time than it is: preloaded, it adds the seconds that a file holds to the time of day. The
   file may change at any moment. How much time passes stays true. */
#include "time_of_day.h"

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!true_clock) prepare("CLOCK_AHEAD");
    int failed = true_clock(clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += *number;
    return failed;
}
