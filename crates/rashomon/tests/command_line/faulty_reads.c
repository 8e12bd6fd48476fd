/* While the file that FAULTY_READS names exists, reads of the store's file and log fail as those of a faulty disk do.
 * If it is not empty, only reads of the log at a position fail, as SQLite reads it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(int fd, int at_position)
{
	struct stat status;
	const char *flag = getenv("FAULTY_READS");
	char link[64], path[4096];
	ssize_t length;

	if (!flag || stat(flag, &status))
		return 0;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof path - 1);
	if (length < 0)
		return 0;
	path[length] = 0;
	if (status.st_size > 0)
		return at_position && strstr(path, "rashomon.sqlite-wal");
	return strstr(path, "rashomon.sqlite") && !strstr(path, "-shm");
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t at)
{
	ssize_t (*real)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");

	if (fails(fd, 1)) {
		errno = EIO;
		return -1;
	}
	return real(fd, bytes, count, at);
}

ssize_t pread(int fd, void *bytes, size_t count, off_t at)
{
	return pread64(fd, bytes, count, at);
}

ssize_t read(int fd, void *bytes, size_t count)
{
	ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");

	if (fails(fd, 0)) {
		errno = EIO;
		return -1;
	}
	return real(fd, bytes, count);
}
