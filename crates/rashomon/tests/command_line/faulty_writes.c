/* Counts the calls that change files of a directory named "faulty-store", and ends the process or fails at one of them.
 * FAULTY_WRITES=kill:N kills the process before the Nth call. full:N makes the disk full from the Nth call on.
 * sync:N fails the Nth synchronization. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static long calls, syncs;

static int is_ours(const char *path)
{
	return strstr(path, "faulty-store") && !strstr(path, "-shm") && !strstr(path, ".lock");
}

/* Whether this call fails, and with which error. "needs_room": whether the call needs room on the disk. */
static int fails(const char *path, int needs_room, int is_sync)
{
	const char *mode = getenv("FAULTY_WRITES");
	const char *number = mode ? strchr(mode, ':') : NULL;
	long at = number ? atol(number + 1) : 0;

	if (!number || !is_ours(path))
		return 0;
	calls++;
	syncs += is_sync;
	if (!strncmp(mode, "kill", 4) && calls == at)
		kill(getpid(), SIGKILL);
	if (!strncmp(mode, "full", 4) && calls >= at && needs_room) {
		errno = ENOSPC;
		return 1;
	}
	if (!strncmp(mode, "sync", 4) && is_sync && syncs == at) {
		dprintf(2, "fault: %s\n", path);
		errno = EIO;
		return 1;
	}
	return 0;
}

static int fd_fails(int fd, int needs_room, int is_sync)
{
	char link[64], path[4096];
	ssize_t length;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof path - 1);
	if (length < 0)
		return 0;
	path[length] = 0;
	return fails(path, needs_room, is_sync);
}

#define REAL(name, result, ...) ((result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *bytes, size_t count)
{
	return fd_fails(fd, 1, 0) ? -1 : REAL(write, ssize_t, int, const void *, size_t)(fd, bytes, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at)
{
	return fd_fails(fd, 1, 0) ? -1 : REAL(pwrite64, ssize_t, int, const void *, size_t, off64_t)(fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
	return pwrite64(fd, bytes, count, at);
}

int ftruncate64(int fd, off64_t length)
{
	return fd_fails(fd, 0, 0) ? -1 : REAL(ftruncate64, int, int, off64_t)(fd, length);
}

int ftruncate(int fd, off_t length)
{
	return ftruncate64(fd, length);
}

int fsync(int fd)
{
	return fd_fails(fd, 0, 1) ? -1 : REAL(fsync, int, int)(fd);
}

int fdatasync(int fd)
{
	return fd_fails(fd, 0, 1) ? -1 : REAL(fdatasync, int, int)(fd);
}

int rename(const char *from, const char *to)
{
	return fails(from, 0, 0) ? -1 : REAL(rename, int, const char *, const char *)(from, to);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
	return fails(from, 1, 0)
		? -1
		: REAL(linkat, int, int, const char *, int, const char *, int)(from_fd, from, to_fd, to, flags);
}

int unlink(const char *path)
{
	return fails(path, 0, 0) ? -1 : REAL(unlink, int, const char *)(path);
}
