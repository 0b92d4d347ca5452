/* Preloaded into a process: the n-th call of one kind on files below a folder fails, or ends the process.

   It notes whether the failure happened: in the process, and in a file outside the folder if the process ends there.
   It also notes which files were written and not forced to the disk, for a model of a power failure.

   Below Python, so that Arrow, SQLite and the interpreter itself meet the failure as they would meet a broken disk. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN, READ, WRITE, SYNC, REPLACE, REMOVE, MAKE_FOLDER, LINK, LIST };

static char folder[PATH_MAX];
static int wanted = -1, failure;
static long nth;
static atomic_long calls, fired;
/* A file that is made when the failure happens, so that a process that ends there has told it. */
static char witness[PATH_MAX];
/* A file with one line for each write and each sync: "w PATH" or "s PATH". Empty: nothing is noted. */
static int journal = -1;

/* An error number of 0 ends the process at once, as kill -9 does. nth 0 only counts. */
void fault_arm(const char *below, const char *fired_file, int kind, long which, int error_number) {
    snprintf(folder, sizeof folder, "%s/", below);
    snprintf(witness, sizeof witness, "%s", fired_file);
    atomic_store(&calls, 0);
    atomic_store(&fired, 0);
    nth = which;
    failure = error_number;
    wanted = kind;
}

long fault_disarm(void) {
    wanted = -1;
    return atomic_load(&calls);
}

long fault_fired(void) { return atomic_load(&fired); }

/* From now on, writes, syncs and renames below the folder are noted in a file outside of it. */
void fault_journal(const char *below, const char *file) {
    snprintf(folder, sizeof folder, "%s/", below);
    journal = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
}

static int below(const char *path) { return path && strncmp(path, folder, strlen(folder)) == 0; }

static int fails(int kind, const char *path) {
    if (kind != wanted || !below(path)) return 0;
    if (atomic_fetch_add(&calls, 1) + 1 != nth) return 0;
    atomic_store(&fired, 1);
    wanted = -1;
    close(creat(witness, 0600));
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

/* One line of the journal; lines of one write are whole, also from several threads and processes. */
static void note(const char *what, const char *path, const char *target) {
    char line[2 * PATH_MAX + 16];
    if (!below(path) && !below(target)) return;
    int length = snprintf(line, sizeof line, "%s\t%s\t%s\n", what, path ? path : "", target ? target : "");
    ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    if (next(journal, line, length) != length) _exit(98);
}

static void note_descriptor(const char *what, int descriptor) {
    char path[PATH_MAX];
    if (journal >= 0 && descriptor != journal) note(what, of_descriptor(descriptor, path), NULL);
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
ssize_t read(int d, void *b, size_t n) { return on_descriptor(READ, d) ? -1 : NEXT(read)(d, b, n); }
ssize_t pread(int d, void *b, size_t n, off_t o) { return on_descriptor(READ, d) ? -1 : NEXT(pread)(d, b, n, o); }
ssize_t pread64(int d, void *b, size_t n, off64_t o) { return on_descriptor(READ, d) ? -1 : NEXT(pread64)(d, b, n, o); }

/* What was written is noted before it is written, as a failure may come at any time. */
#define WRITES(call) \
    note_descriptor("write", d); \
    return on_descriptor(WRITE, d) ? -1 : (call);
ssize_t write(int d, const void *b, size_t n) { WRITES(NEXT(write)(d, b, n)) }
ssize_t pwrite(int d, const void *b, size_t n, off_t o) { WRITES(NEXT(pwrite)(d, b, n, o)) }
ssize_t pwrite64(int d, const void *b, size_t n, off64_t o) { WRITES(NEXT(pwrite64)(d, b, n, o)) }
ssize_t writev(int d, const struct iovec *v, int n) { WRITES(NEXT(writev)(d, v, n)) }

static int synced(int d, int result) {
    if (result == 0) note_descriptor("sync", d);
    return result;
}
int fsync(int d) { return on_descriptor(SYNC, d) ? -1 : synced(d, NEXT(fsync)(d)); }
int fdatasync(int d) { return on_descriptor(SYNC, d) ? -1 : synced(d, NEXT(fdatasync)(d)); }

static int renamed(int x, const char *a, int y, const char *b, int result) {
    char from[PATH_MAX], to[PATH_MAX];
    if (result == 0 && journal >= 0) note("rename", full(x, a, from), full(y, b, to));
    return result;
}
int rename(const char *a, const char *b) {
    return on_name(REPLACE, AT_FDCWD, b) ? -1 : renamed(AT_FDCWD, a, AT_FDCWD, b, NEXT(rename)(a, b));
}
int renameat(int x, const char *a, int y, const char *b) {
    return on_name(REPLACE, y, b) ? -1 : renamed(x, a, y, b, NEXT(renameat)(x, a, y, b));
}
int unlink(const char *p) { return on_name(REMOVE, AT_FDCWD, p) ? -1 : NEXT(unlink)(p); }
int unlinkat(int d, const char *p, int f) { return on_name(REMOVE, d, p) ? -1 : NEXT(unlinkat)(d, p, f); }
int mkdir(const char *p, mode_t m) { return on_name(MAKE_FOLDER, AT_FDCWD, p) ? -1 : NEXT(mkdir)(p, m); }
int mkdirat(int d, const char *p, mode_t m) { return on_name(MAKE_FOLDER, d, p) ? -1 : NEXT(mkdirat)(d, p, m); }
int link(const char *a, const char *b) { return on_name(LINK, AT_FDCWD, b) ? -1 : NEXT(link)(a, b); }
int linkat(int x, const char *a, int y, const char *b, int f) { return on_name(LINK, y, b) ? -1 : NEXT(linkat)(x, a, y, b, f); }
/* Folders are listed through descriptors: the failure comes with the next entry, or with opening. */
struct dirent *readdir(DIR *d) { return on_descriptor(LIST, dirfd(d)) ? NULL : NEXT(readdir)(d); }
struct dirent64 *readdir64(DIR *d) { return on_descriptor(LIST, dirfd(d)) ? NULL : NEXT(readdir64)(d); }
