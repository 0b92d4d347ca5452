/* Preloaded into a process: the n-th call of one kind on files below a folder fails, or ends the process.

   Below Python, so that Arrow, SQLite and the interpreter itself meet the failure as they would meet a broken disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, WRITE, SYNC, REPLACE, REMOVE };

static char folder[PATH_MAX];
static int wanted = -1, failure;
static long nth;
static atomic_long calls;

/* An error number of 0 ends the process at once, as kill -9 does. nth 0 only counts. */
void fault_arm(const char *below, int kind, long which, int error_number) {
    snprintf(folder, sizeof folder, "%s/", below);
    atomic_store(&calls, 0);
    nth = which;
    failure = error_number;
    wanted = kind;
}

long fault_disarm(void) {
    wanted = -1;
    return atomic_load(&calls);
}

static int below(const char *path) { return path && strncmp(path, folder, strlen(folder)) == 0; }

static int fails(int kind, const char *path) {
    if (kind != wanted || !below(path)) return 0;
    if (atomic_fetch_add(&calls, 1) + 1 != nth) return 0;
    if (failure == 0) _exit(99);
    errno = failure;
    return 1;
}

static const char *of_descriptor(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    return path;
}

static const char *full(int at, const char *name, char *path) {
    if (name == NULL || name[0] == '/') return name;
    char base[PATH_MAX];
    if (at == AT_FDCWD ? getcwd(base, sizeof base) == NULL : of_descriptor(at, base) == NULL) return NULL;
    return snprintf(path, PATH_MAX, "%s/%s", base, name) < PATH_MAX ? path : NULL;
}

static int opened(int at, const char *name) {
    char path[PATH_MAX];
    return wanted == OPEN && fails(OPEN, full(at, name, path));
}

static int on_descriptor(int kind, int descriptor) {
    char path[PATH_MAX];
    return wanted == kind && fails(kind, of_descriptor(descriptor, path));
}

static int on_name(int kind, int at, const char *name) {
    char path[PATH_MAX];
    return wanted == kind && fails(kind, full(at, name, path));
}

#define NEXT(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))
#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *p, int flags, ...) { MODE(flags) return opened(AT_FDCWD, p) ? -1 : NEXT(open)(p, flags, mode); }
int open64(const char *p, int flags, ...) { MODE(flags) return opened(AT_FDCWD, p) ? -1 : NEXT(open64)(p, flags, mode); }
int openat(int d, const char *p, int flags, ...) { MODE(flags) return opened(d, p) ? -1 : NEXT(openat)(d, p, flags, mode); }
int openat64(int d, const char *p, int flags, ...) { MODE(flags) return opened(d, p) ? -1 : NEXT(openat64)(d, p, flags, mode); }
ssize_t write(int d, const void *b, size_t n) { return on_descriptor(WRITE, d) ? -1 : NEXT(write)(d, b, n); }
ssize_t pwrite(int d, const void *b, size_t n, off_t o) { return on_descriptor(WRITE, d) ? -1 : NEXT(pwrite)(d, b, n, o); }
ssize_t pwrite64(int d, const void *b, size_t n, off64_t o) { return on_descriptor(WRITE, d) ? -1 : NEXT(pwrite64)(d, b, n, o); }
ssize_t writev(int d, const struct iovec *v, int n) { return on_descriptor(WRITE, d) ? -1 : NEXT(writev)(d, v, n); }
int fsync(int d) { return on_descriptor(SYNC, d) ? -1 : NEXT(fsync)(d); }
int fdatasync(int d) { return on_descriptor(SYNC, d) ? -1 : NEXT(fdatasync)(d); }
int rename(const char *a, const char *b) { return on_name(REPLACE, AT_FDCWD, b) ? -1 : NEXT(rename)(a, b); }
int renameat(int x, const char *a, int y, const char *b) { return on_name(REPLACE, y, b) ? -1 : NEXT(renameat)(x, a, y, b); }
int unlink(const char *p) { return on_name(REMOVE, AT_FDCWD, p) ? -1 : NEXT(unlink)(p); }
int unlinkat(int d, const char *p, int f) { return on_name(REMOVE, d, p) ? -1 : NEXT(unlinkat)(d, p, f); }
