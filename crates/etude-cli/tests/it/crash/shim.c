/*
 * Preloaded into the program under test, on Linux: counts what it does to the files below one directory, and at the
 * n-th of these events kills the process or lets the call fail. Nothing of the program is built for it.
 *
 * ETUDE_SHIM_DIR   the directory; nothing else is counted
 * ETUDE_SHIM_PLAN  MODE FIRST LAST ERRNO
 *                  MODE: count | before | after | torn | fail
 *                  before, after: SIGKILL around event FIRST; torn: half of it is written, then SIGKILL;
 *                  fail: the events FIRST to LAST end with ERRNO and do nothing
 * ETUDE_SHIM_CLOCK N SECONDS: from event N on the time of day is wrong by so much
 * ETUDE_SHIM_THREADS N: only so many threads at once, besides the first
 * ETUDE_SHIM_LOG   a line per event: number, call, file, bytes
 * ETUDE_SHIM_DISK  a directory that gets each file as it was when it was last synced, with % for / in its name
 *
 * Children of the program are left alone: the variables are gone before it looks at its environment.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum mode { OFF, COUNT, BEFORE, AFTER, TORN, FAIL };

static enum mode mode = OFF;
static long first, last;
static int error_number;
static char dir[4096];
static size_t dir_length;
static int log_file = -1;
static long events;
/* From the event after which the clock is wrong, by how many seconds. */
static long jump_at = -1, jump_by;
/* How many threads there can be at once, besides the first, and how many there are. */
static long most_threads = -1, threads;

/* Where files lie as the disk has them; empty: nowhere. */
static char disk[4096];

static ssize_t raw_write(int fd, const void *bytes, size_t count) { return syscall(SYS_write, fd, bytes, count); }

__attribute__((constructor)) static void begin(void) {
    const char *plan = getenv("ETUDE_SHIM_PLAN"), *watched = getenv("ETUDE_SHIM_DIR"), *log = getenv("ETUDE_SHIM_LOG");
    char word[16] = "";
    if (plan && watched && sscanf(plan, "%15s %ld %ld %d", word, &first, &last, &error_number) >= 1) {
        static const char *names[] = {"off", "count", "before", "after", "torn", "fail"};
        for (int i = 0; i < 6; i++)
            if (!strcmp(word, names[i])) mode = (enum mode)i;
        snprintf(dir, sizeof dir, "%s", watched);
        dir_length = strlen(dir);
        if (log) log_file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    }
    const char *synced = getenv("ETUDE_SHIM_DISK");
    if (synced) snprintf(disk, sizeof disk, "%s", synced);
    unsetenv("ETUDE_SHIM_DISK");
    const char *clock = getenv("ETUDE_SHIM_CLOCK");
    if (clock && sscanf(clock, "%ld %ld", &jump_at, &jump_by) != 2) jump_at = -1;
    const char *most = getenv("ETUDE_SHIM_THREADS");
    if (most) most_threads = atol(most);
    unsetenv("ETUDE_SHIM_THREADS");
    unsetenv("ETUDE_SHIM_CLOCK");
    unsetenv("ETUDE_SHIM_PLAN");
    unsetenv("ETUDE_SHIM_DIR");
    unsetenv("ETUDE_SHIM_LOG");
    unsetenv("LD_PRELOAD");
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

static int is_watched(const char *path) {
    return mode != OFF && !strncmp(path, dir, dir_length) && (path[dir_length] == '/' || !path[dir_length]);
}

/* True, and the path, if the open file lies below the directory. */
static int is_watched_file(int fd, char *path, size_t size) {
    char link[64];
    if (mode == OFF) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, size - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_watched(path);
}

/* Notes an event and returns its number. */
static long event(const char *call, const char *path, long bytes) {
    long number = __atomic_add_fetch(&events, 1, __ATOMIC_SEQ_CST);
    if (log_file >= 0) {
        char line[4400];
        int length = snprintf(line, sizeof line, "%ld %s %s %ld\n", number, call, path + dir_length, bytes);
        raw_write(log_file, line, (size_t)length);
    }
    if (mode == BEFORE && number == first) die();
    return number;
}

static int is_to_fail(long number) { return mode == FAIL && number >= first && number <= last; }

static void maybe_die_after(long number) {
    if ((mode == AFTER || mode == TORN) && number == first) die();
}

/* What stands round a call that changes a file: FAILED is what the call returns, HALF does half of it. */
#define AROUND(type, number, call_itself, half)                                                                         \
    do {                                                                                                                \
        long n_ = (number);                                                                                             \
        if (is_to_fail(n_)) {                                                                                           \
            errno = error_number;                                                                                       \
            return -1;                                                                                                  \
        }                                                                                                               \
        if (mode == TORN && n_ == first) {                                                                              \
            half;                                                                                                       \
            die();                                                                                                      \
        }                                                                                                               \
        type result_ = (call_itself);                                                                                   \
        int saved_ = errno;                                                                                             \
        maybe_die_after(n_);                                                                                            \
        errno = saved_;                                                                                                 \
        return result_;                                                                                                 \
    } while (0)

#define NEXT(name) __typeof__(&name) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *bytes, size_t count) {
    char path[4096];
    if (!is_watched_file(fd, path, sizeof path)) return raw_write(fd, bytes, count);
    AROUND(ssize_t, event("write", path, (long)count), raw_write(fd, bytes, count), raw_write(fd, bytes, count / 2));
}

static ssize_t raw_pwrite(int fd, const void *bytes, size_t count, off_t at) {
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    char path[4096];
    if (!is_watched_file(fd, path, sizeof path)) return raw_pwrite(fd, bytes, count, at);
    AROUND(ssize_t, event("pwrite", path, (long)count), raw_pwrite(fd, bytes, count, at),
           raw_pwrite(fd, bytes, count / 2, at));
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) { return pwrite(fd, bytes, count, (off_t)at); }

static int around_truncate(int fd, off_t length) {
    char path[4096];
    if (!is_watched_file(fd, path, sizeof path)) return (int)syscall(SYS_ftruncate, fd, length);
    AROUND(int, event("ftruncate", path, (long)length), (int)syscall(SYS_ftruncate, fd, length), (void)0);
}

int ftruncate(int fd, off_t length) { return around_truncate(fd, length); }
int ftruncate64(int fd, off64_t length) { return around_truncate(fd, (off_t)length); }

/* Where a watched file lies on the disk. */
static void on_disk(const char *path, const char *end, char *place, size_t size) {
    int length = snprintf(place, size, "%s/", disk);
    for (const char *at = path + dir_length + 1; *at && length < (int)size - 1; at++) place[length++] = *at == '/' ? '%' : *at;
    snprintf(place + length, size - (size_t)length, "%s", end);
}

/* A copy of a file as it is before a sync: what is written meanwhile need not be on the disk afterwards. */
static int snapshot(const char *path, const char *place) {
    struct stat about;
    char bytes[65536];
    int from = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (from < 0) return -1;
    if (fstat(from, &about) || !S_ISREG(about.st_mode)) {
        close(from);
        return -1;
    }
    int to = (int)syscall(SYS_openat, AT_FDCWD, place, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (ssize_t count; to >= 0 && (count = read(from, bytes, sizeof bytes)) > 0;) raw_write(to, bytes, (size_t)count);
    close(from);
    if (to >= 0) close(to);
    return to < 0 ? -1 : 0;
}

static int synced(int fd, const char *path, long call) {
    char fresh[8300], place[8300], end[32];
    snprintf(end, sizeof end, ".%ld", (long)syscall(SYS_gettid));
    int is_kept = 0;
    if (*disk) {
        on_disk(path, end, fresh, sizeof fresh);
        on_disk(path, "", place, sizeof place);
        is_kept = !snapshot(path, fresh);
    }
    int result = (int)syscall(call, fd);
    if (is_kept) syscall(SYS_renameat2, AT_FDCWD, fresh, AT_FDCWD, place, 0);
    return result;
}

int fsync(int fd) {
    char path[4096];
    if (!is_watched_file(fd, path, sizeof path)) return (int)syscall(SYS_fsync, fd);
    AROUND(int, event("fsync", path, 0), synced(fd, path, SYS_fsync), (void)0);
}

int fdatasync(int fd) {
    char path[4096];
    if (!is_watched_file(fd, path, sizeof path)) return (int)syscall(SYS_fdatasync, fd);
    AROUND(int, event("fdatasync", path, 0), synced(fd, path, SYS_fdatasync), (void)0);
}

struct work {
    void *(*begin_at)(void *);
    void *argument;
};

static void *counted(void *given) {
    struct work work = *(struct work *)given;
    free(given);
    void *result = work.begin_at(work.argument);
    __atomic_sub_fetch(&threads, 1, __ATOMIC_SEQ_CST);
    return result;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin_at)(void *), void *argument) {
    NEXT(pthread_create);
    if (most_threads < 0) return next(thread, attributes, begin_at, argument);
    struct work *work = malloc(sizeof *work);
    if (!work) return EAGAIN;
    *work = (struct work){begin_at, argument};
    if (__atomic_add_fetch(&threads, 1, __ATOMIC_SEQ_CST) <= most_threads) return next(thread, attributes, counted, work);
    __atomic_sub_fetch(&threads, 1, __ATOMIC_SEQ_CST);
    free(work);
    return EAGAIN;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME && jump_at >= 0 && events >= jump_at) now->tv_sec += jump_by;
    return result;
}

/* A name is taken to be on the disk at once, what is in the file is not. */
static int renamed(const char *from, const char *to) {
    NEXT(rename);
    int result = next(from, to);
    if (*disk && !result && is_watched(from)) {
        char before[8300], after[8300];
        on_disk(from, "", before, sizeof before);
        on_disk(to, "", after, sizeof after);
        syscall(SYS_unlinkat, AT_FDCWD, after, 0);
        syscall(SYS_renameat2, AT_FDCWD, before, AT_FDCWD, after, 0);
    }
    return result;
}

static int unlinked(const char *path) {
    NEXT(unlink);
    int result = next(path);
    if (*disk && !result) {
        char place[8300];
        on_disk(path, "", place, sizeof place);
        syscall(SYS_unlinkat, AT_FDCWD, place, 0);
    }
    return result;
}

int rename(const char *from, const char *to) {
    NEXT(rename);
    if (!is_watched(to)) return next(from, to);
    AROUND(int, event("rename", to, 0), renamed(from, to), (void)0);
}

int unlink(const char *path) {
    NEXT(unlink);
    if (!is_watched(path)) return next(path);
    AROUND(int, event("unlink", path, 0), unlinked(path), (void)0);
}

/* Only opens that may create a file are events. */
static int around_open(const char *path, int flags, mode_t permissions) {
    if (!(flags & O_CREAT) || !is_watched(path)) return (int)syscall(SYS_openat, AT_FDCWD, path, flags, permissions);
    long number = event("open", path, 0);
    /* A full disk keeps no program from opening what is there. */
    if (is_to_fail(number) && error_number == ENOSPC && !access(path, F_OK))
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, permissions);
    AROUND(int, number, (int)syscall(SYS_openat, AT_FDCWD, path, flags, permissions), (void)0);
}

#define OPEN(name)                                                                                                      \
    int name(const char *path, int flags, ...) {                                                                        \
        va_list rest;                                                                                                   \
        va_start(rest, flags);                                                                                          \
        mode_t permissions = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;                                \
        va_end(rest);                                                                                                   \
        return around_open(path, flags, permissions);                                                                   \
    }

OPEN(open)
OPEN(open64)
