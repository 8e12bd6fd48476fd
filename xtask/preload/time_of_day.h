/* Reads a number from a mapped file, and answers the older calls for the time of day by clock_gettime. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static int (*true_clock)(clockid_t, struct timespec *);
static const volatile int64_t *number;

/* Runs in the first call of clock_gettime, before the process has threads. The environment variable `variable` has the
   path of the file, which contains eight bytes in native byte order. */
static void prepare(const char *variable) {
    const char *path = getenv(variable);
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = mmap(NULL, sizeof *number, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) abort();
    number = page;
    true_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
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
