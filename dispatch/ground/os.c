/* os.c: the one file of libtenon with calls into the operating system (Linux, POSIX). */
#define _GNU_SOURCE
#include "os_priv.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <link.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- Threads -----------------------------------------------------------------------------------*/

/* Note [Locks and forks]
 * A fork copies locks as they are and, of the threads that hold them, none: what such a lock guards is
 * half changed in the child, which would wait for it for ever. So it is counted which threads hold a
 * lock or wait for one. A fork waits until no other thread does, and those that hold none take none
 * meanwhile. It gives up after a while, since a lock may be held for as long as a library is loaded. */
enum { FORK_WAIT_MS = 5000, FORK_STEP_NS = 20000 };
static _Atomic int32_t inside;  /* threads with a lock, or at one */
static _Atomic int32_t forking; /* threads that are about to fork */
static _Thread_local __attribute__((tls_model("initial-exec"))) int32_t held; /* by this one */

static void come_in(void) {
    if (held++ > 0) return;
    atomic_fetch_add(&inside, 1);
    while (atomic_load(&forking)) {
        atomic_fetch_sub(&inside, 1);
        tni_os_sleep_ns(FORK_STEP_NS);
        atomic_fetch_add(&inside, 1);
    }
}

/* Whether it was the thread's last lock. */
static bool go_out(void) { return --held == 0 && atomic_fetch_sub(&inside, 1); }

/* The other functions around a fork that take locks are called within these. */
static void wait_for_locks(void) {
    int32_t mine = held++ > 0;
    int64_t end = tni_os_clock_ns() + FORK_WAIT_MS * INT64_C(1000000);
    atomic_fetch_add(&forking, 1);
    while (atomic_load(&inside) > mine && tni_os_clock_ns() < end) tni_os_sleep_ns(FORK_STEP_NS);
}

static void locks_in_parent(void) {
    held--;
    atomic_fetch_sub(&forking, 1);
}

static void locks_in_child(void) {
    atomic_store(&inside, --held > 0);
    atomic_store(&forking, 0);
}

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(wait_for_locks, locks_in_parent, locks_in_child);
}

void tni_os_lock(tni_os_mutex *m) {
    come_in();
    pthread_mutex_lock(m);
}

bool tni_os_try_lock(tni_os_mutex *m) {
    come_in();
    if (pthread_mutex_trylock(m) == 0) return true;
    (void)go_out();
    return false;
}

/* A thread that a fork has waited for goes no further: it may have loaded a plugin, of whose own locks
 * the fork does not know. */
void tni_os_unlock(tni_os_mutex *m) {
    pthread_mutex_unlock(m);
    if (!go_out()) return;
    while (atomic_load(&forking)) tni_os_sleep_ns(FORK_STEP_NS);
}

void tni_os_mutex_init(tni_os_mutex *m) { pthread_mutex_init(m, NULL); }
void tni_os_cond_init(tni_os_cond *c) { pthread_cond_init(c, NULL); }

/* Whoever waits here holds no lock that a fork would have to wait for. */
void tni_os_wait(tni_os_cond *c, tni_os_mutex *m) {
    (void)go_out();
    pthread_cond_wait(c, m);
    pthread_mutex_unlock(m);
    tni_os_lock(m);
}

void tni_os_wake(tni_os_cond *c) { pthread_cond_signal(c); }
void tni_os_yield(void) { sched_yield(); }

const void *tni_os_stack_end(void) {
    static _Thread_local const char *end;
    pthread_attr_t attr;
    void *low;
    size_t bytes;
    if (end || pthread_getattr_np(pthread_self(), &attr) != 0) return end;
    if (pthread_attr_getstack(&attr, &low, &bytes) == 0) end = (const char *)low + bytes;
    pthread_attr_destroy(&attr);
    return end;
}

void tni_os_sleep_ns(int64_t ns) {
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&t, NULL);
}

typedef struct thread_job {
    void (*fn)(void *arg);
    void *arg;
} thread_job;

static void *run_thread(void *arg) {
    thread_job job = *(thread_job *)arg;
    free(arg);
    job.fn(job.arg);
    return NULL;
}

bool tni_os_thread_start(void (*fn)(void *arg), void *arg) {
    thread_job *job = malloc(sizeof *job);
    if (!job) return false;
    *job = (thread_job){fn, arg};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_thread, job) != 0) {
        free(job);
        return false;
    }
    pthread_detach(thread);
    return true;
}

void tni_os_call_once(tni_os_once *once, void (*fn)(void)) { pthread_once(once, fn); }

static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static bool exit_key_ok;

/* The functions of the process, by the bits that threads keep under the key. */
typedef void (*exit_fn)(void);
enum { MOST_EXITS = 32 };
static _Atomic(exit_fn) exits[MOST_EXITS];

/* What these register again is run in another round. */
static void run_exits(void *bits) {
    for (int i = MOST_EXITS - 1; i >= 0; i--)
        if ((uintptr_t)bits >> i & 1u) {
            exit_fn fn = atomic_load(&exits[i]);
            fn();
        }
}

static void make_exit_key(void) { exit_key_ok = pthread_key_create(&exit_key, run_exits) == 0; }

/* The bit of a function; MOST_EXITS: there are too many. */
static int exit_bit(exit_fn fn) {
    for (int i = 0; i < MOST_EXITS; i++) {
        exit_fn there = atomic_load(&exits[i]);
        if (!there && atomic_compare_exchange_strong(&exits[i], &there, fn)) return i;
        if (there == fn) return i;
    }
    return MOST_EXITS;
}

void tni_os_at_thread_exit(void (*fn)(void)) {
    pthread_once(&exit_once, make_exit_key);
    int i = exit_bit(fn);
    if (!exit_key_ok || i == MOST_EXITS) return;
    uintptr_t bits = (uintptr_t)pthread_getspecific(exit_key);
    if (bits >> i & 1u) return;
    (void)pthread_setspecific(exit_key, (void *)(bits | (uintptr_t)1 << i)); /* else it is lost */
}

bool tni_os_at_fork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void)) {
    return pthread_atfork(before, in_parent, in_child) == 0;
}

/* ---- Environment, randomness, time -------------------------------------------------------------*/

const char *tni_os_getenv(const char *name) { return secure_getenv(name); }

int64_t tni_os_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t tni_os_thread_id(void) { return gettid(); }

uint64_t tni_os_random_seed(void) {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec;
    }
    return seed;
}

/* ---- Memory that processes share ---------------------------------------------------------------*/

/* Pages past the end of a file end the process that touches them, so the size is fixed. */
static const int SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static void *map_shared(int file, uint64_t bytes) {
    void *p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return p == MAP_FAILED ? NULL : p;
}

int32_t tni_os_shared_new(uint64_t bytes, void **ret_data, const char **ret_why) {
    int file = memfd_create("tenon", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int failed = file < 0 ? errno : posix_fallocate(file, 0, (off_t)(bytes ? bytes : 1));
    if (!failed && fcntl(file, F_ADD_SEALS, SEALS) != 0) failed = errno;
    if (!failed && !(*ret_data = map_shared(file, bytes))) failed = errno;
    if (!failed) return file;
    if (file >= 0) close(file);
    *ret_why = strerror(failed);
    return -1;
}

bool tni_os_file_name(int32_t file, tni_os_file *ret_file) {
    struct stat info;
    if (fstat(file, &info) != 0) return false;
    *ret_file = (tni_os_file){getpid(), file, info.st_dev, info.st_ino};
    return true;
}

/* Why a file must not be mapped; NULL: it may. */
static const char *unfit(int file, const tni_os_file *of, uint64_t bytes) {
    struct stat info;
    if (fstat(file, &info) != 0) return strerror(errno);
    if (info.st_dev != of->device || info.st_ino != of->inode)
        return "the memory is gone: its process has closed it";
    int seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS || (uint64_t)info.st_size < bytes)
        return "it is not shared memory of that size";
    return NULL;
}

int32_t tni_os_shared_open(const tni_os_file *of, int32_t file, uint64_t bytes, void **ret_data,
                           const char **ret_why) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)of->process, (int)of->number);
    int own = file >= 0 ? fcntl(file, F_DUPFD_CLOEXEC, 3) : open(path, O_RDWR | O_CLOEXEC);
    if (own < 0) {
        bool ours = file >= 0 || errno == EMFILE || errno == ENFILE;
        *ret_why = ours ? strerror(errno) : "the process that shared it is gone or not ours";
        return -1;
    }
    *ret_why = unfit(own, of, bytes);
    if (!*ret_why && !(*ret_data = map_shared(own, bytes))) *ret_why = strerror(errno);
    if (!*ret_why) return own;
    close(own);
    return -1;
}

void tni_os_shared_unmap(void *data, uint64_t bytes) { munmap(data, bytes ? bytes : 1); }
int32_t tni_os_dup(int32_t file) { return fcntl(file, F_DUPFD_CLOEXEC, 3); }
void tni_os_close(int32_t file) { close(file); }

/* ---- Crashes -----------------------------------------------------------------------------------*/

static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
static struct sigaction before_crash[sizeof crashes / sizeof crashes[0]];
static void (*on_crash)(void);

/* The earlier handler comes next: a fault happens again when this returns, an abort is repeated. */
static void crash(int number) {
    on_crash();
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
        sigaction(crashes[i], &before_crash[i], NULL);
    if (number == SIGABRT) raise(number);
}

void tni_os_on_crash(void (*fn)(void)) {
    struct sigaction action = {.sa_handler = crash, .sa_flags = SA_ONSTACK};
    on_crash = fn;
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++)
        sigaction(crashes[i], &action, &before_crash[i]);
}

void tni_os_write_error(const char *text) {
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n; /* there is nobody else to tell */
}

/* ---- Files and libraries -----------------------------------------------------------------------*/

static const char not_regular[] = "it is not a regular file";

/* An open regular file, or -1. A pipe or a device may make its readers wait for ever. */
static int open_regular(const char *path, struct stat *ret_info, const char **ret_why) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        *ret_why = strerror(errno);
        return -1;
    }
    if (fstat(fd, ret_info) == 0 && S_ISREG(ret_info->st_mode)) return fd;
    *ret_why = not_regular;
    close(fd);
    errno = EINVAL;
    return -1;
}

char *tni_os_read_file(const char *path, size_t limit, const char **ret_why) {
    char *text = NULL;
    struct stat info;
    int fd = open_regular(path, &info, ret_why), failed = EINVAL;
    if (fd < 0) return NULL;
    if ((uint64_t)info.st_size > limit) {
        *ret_why = "it is too large";
    } else if (!(text = malloc((size_t)info.st_size + 1))) {
        *ret_why = "out of memory";
        failed = ENOMEM;
    } else {
        ssize_t n = read(fd, text, (size_t)info.st_size);
        if (n != info.st_size) {
            *ret_why = "it could not be read whole";
            free(text);
            text = NULL;
        } else {
            text[n] = '\0';
        }
    }
    close(fd);
    if (!text) errno = failed;
    return text;
}

void *tni_os_map_file(const char *path, uint64_t *ret_bytes, const char **ret_why) {
    struct stat info;
    void *data = MAP_FAILED;
    int fd = open_regular(path, &info, ret_why);
    if (fd < 0) return NULL;
    if (info.st_size == 0)
        *ret_why = "it is empty";
    else if ((data = mmap(NULL, (size_t)info.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd,
                          0)) == MAP_FAILED)
        *ret_why = strerror(errno);
    close(fd);
    if (data == MAP_FAILED) return NULL;
    *ret_bytes = (uint64_t)info.st_size;
    return data;
}

void tni_os_unmap(void *data, uint64_t bytes) { munmap(data, (size_t)bytes); }

static bool write_all(int fd, const char *at, size_t n) {
    while (n > 0) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        n -= (size_t)done;
    }
    return true;
}

/* A new file beside `path`, which nobody else writes: no thread, and no container with the same pid. */
static int open_beside(const char *path, char name[PATH_MAX]) {
    int fd = -1;
    errno = EEXIST;
    for (int i = 0; i < 100 && fd < 0 && errno == EEXIST; i++) {
        uint64_t number = 0;
        if (getrandom(&number, sizeof number, GRND_NONBLOCK) < 0) number = (uint64_t)i;
        int length = snprintf(name, PATH_MAX, "%s.%016llx.part", path, (unsigned long long)number);
        if (length >= PATH_MAX) errno = ENAMETOOLONG;
        if (length < 0 || length >= PATH_MAX) return -1;
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    }
    return fd;
}

bool tni_os_replace_file(const char *path, const void *bytes, size_t n, const char **ret_why) {
    char name[PATH_MAX], target[PATH_MAX];
    struct stat old;
    bool exists = stat(path, &old) == 0;
    if (exists && !S_ISREG(old.st_mode)) {
        *ret_why = not_regular;
        return false;
    }
    if (exists && realpath(path, target)) path = target; /* a link stays */
    int fd = open_beside(path, name);
    bool good = fd >= 0 && (!exists || fchmod(fd, old.st_mode & 07777) == 0) &&
                write_all(fd, bytes, n) && fsync(fd) == 0;
    if (fd >= 0 && close(fd) != 0) good = false;
    if (good && rename(name, path) == 0) return true;
    *ret_why = strerror(errno);
    if (fd >= 0) unlink(name);
    return false;
}

bool tni_os_read_blocks(const char *path, void (*fn)(void *ctx, const void *block, size_t n),
                        void *ctx, const char **ret_why) {
    char block[1 << 14];
    struct stat info;
    ssize_t n;
    int fd = open_regular(path, &info, ret_why);
    if (fd < 0) return false;
    while ((n = read(fd, block, sizeof block)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0) fn(ctx, block, (size_t)n);
    if (n < 0) *ret_why = strerror(errno);
    close(fd);
    return n == 0;
}

tn_status tni_os_shortage(void) {
    bool files = errno == EMFILE || errno == ENFILE;
    return errno == ENOMEM || errno == EAGAIN ? TN_E_MEMORY : files ? TN_E_IO : TN_OK;
}

bool tni_os_exists(const char *path) { return access(path, F_OK) == 0; }

bool tni_os_list(const char *folder, void (*fn)(void *ctx, const char *name), void *ctx) {
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort);
    if (n < 0) return false;
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') fn(ctx, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return true;
}

/* ---- Trust -------------------------------------------------------------------------------------*/

/* Note [Trusted paths]
 * A file is trusted when nobody but root, the user and the owner of libtenon can change what its path
 * leads to. So every folder and every link on the way from the root is looked at, not the file
 * alone. Where all of them are trusted, only these three can exchange something between the look and
 * the use, and they need not: a path is as good as a descriptor. Folders in which libtenon lies
 * itself are not looked at, because who may write there can replace libtenon. */

/* The file of libtenon; false when it is not known. */
static bool own_file(struct stat *ret_info) {
    Dl_info info;
    return dladdr((void *)(uintptr_t)tni_os_own_folder, &info) && info.dli_fname &&
           stat(info.dli_fname, ret_info) == 0;
}

static bool trusted_owner(uid_t owner) {
    struct stat own;
    return owner == 0 || owner == geteuid() || (own_file(&own) && own.st_uid == owner);
}

/* A group may write where it may write libtenon: in an environment of a user whose group is theirs. */
static bool trusted_group(gid_t group) {
    struct stat own;
    return own_file(&own) && own.st_gid == group && (own.st_mode & S_IWGRP);
}

/* Why others could change a file or folder; NULL: they cannot. Where only owners may rename (a sticky
 * folder), what lies there is as safe as its own owner. */
static const char *open_to_others(const struct stat *info, bool may_be_sticky) {
    if (!trusted_owner(info->st_uid)) return "it belongs to another user";
    if (may_be_sticky && S_ISDIR(info->st_mode) && (info->st_mode & S_ISVTX)) return NULL;
    if (info->st_mode & S_IWOTH) return "everybody may write it";
    if ((info->st_mode & S_IWGRP) && !trusted_group(info->st_gid)) return "its group may write it";
    return NULL;
}

/* Whether libtenon lies in a folder or below it. */
static bool holds_libtenon(const char *folder) {
    char own[PATH_MAX];
    size_t n = strlen(folder);
    return tni_os_own_folder(own, sizeof own) && strncmp(own, folder, n) == 0 &&
           (own[n] == '/' || own[n] == '\0');
}

/* A path that is walked: the folders behind, free of links, and what is still to come. */
typedef struct walk {
    char done[PATH_MAX], rest[PATH_MAX];
    int links;
} walk;

static void leave_folder(walk *w) {
    char *slash = strrchr(w->done, '/');
    if (slash) *slash = '\0';
}

/* Puts what a link says in front of the rest. */
static const char *follow(walk *w) {
    char target[PATH_MAX], rest[PATH_MAX];
    ssize_t n = readlink(w->done, target, sizeof target - 1);
    if (n < 0) return strerror(errno);
    target[n] = '\0';
    if (++w->links > 40) return "there are too many links on its path";
    if (snprintf(rest, sizeof rest, "%s/%s", target, w->rest) >= (int)sizeof rest)
        return "its path is too long";
    memcpy(w->rest, rest, strlen(rest) + 1);
    leave_folder(w);
    if (target[0] == '/') w->done[0] = '\0';
    return NULL;
}

/* Takes one name from the rest; *ret_info: what it is, when it is neither a link nor a step up. */
static const char *step(walk *w, struct stat *ret_info, bool *ret_known) {
    char *name = w->rest + strspn(w->rest, "/"), *end = name + strcspn(name, "/");
    size_t n = (size_t)(end - name), at = strlen(w->done);
    bool up = n == 2 && memcmp(name, "..", 2) == 0, stay = n == 0 || (n == 1 && name[0] == '.');
    *ret_known = false;
    if (up) leave_folder(w);
    if (!up && !stay) {
        if (at + n + 2 > sizeof w->done) return "its path is too long";
        w->done[at] = '/';
        memcpy(w->done + at + 1, name, n);
        w->done[at + 1 + n] = '\0';
    }
    memmove(w->rest, end, strlen(end) + 1);
    if (up || stay) return NULL;
    if (lstat(w->done, ret_info) != 0) return strerror(errno);
    if (!S_ISLNK(ret_info->st_mode)) {
        *ret_known = true;
        return NULL;
    }
    return trusted_owner(ret_info->st_uid) ? follow(w)
                                           : "a link on its path belongs to another user";
}

const char *tni_os_untrusted(const char *path) {
    walk w = {.done = ""};
    errno = EINVAL;
    struct stat info = {0};
    bool known;
    if (path[0] != '/') return "its path is not absolute";
    if (snprintf(w.rest, sizeof w.rest, "%s", path) >= (int)sizeof w.rest)
        return "its path is too long";
    while (w.rest[strspn(w.rest, "/")]) {
        const char *why = step(&w, &info, &known);
        if (why) return why;
        if (known && S_ISDIR(info.st_mode) && !holds_libtenon(w.done) &&
            open_to_others(&info, true))
            return "a folder on its path may be written by others";
    }
    if (!S_ISREG(info.st_mode)) return not_regular;
    const char *why = open_to_others(&info, false);
    if (why) return why;
    leave_folder(&w);
    if (holds_libtenon(w.done)) return NULL;
    if (lstat(w.done[0] ? w.done : "/", &info) != 0) return strerror(errno);
    return open_to_others(&info, false) ? "its folder may be written by others" : NULL;
}

bool tni_os_own_folder(char *dst, size_t size) {
    Dl_info info;
    if (!dladdr((void *)(uintptr_t)tni_os_own_folder, &info) || !info.dli_fname) return false;
    char real[PATH_MAX];
    char *slash = realpath(info.dli_fname, real) ? strrchr(real, '/') : NULL;
    bool ok = slash && (size_t)(slash - real) < size;
    if (ok) {
        memcpy(dst, real, (size_t)(slash - real));
        dst[slash - real] = '\0';
    }
    return ok;
}

bool tni_os_config_folder(char *dst, size_t size) {
    const char *config = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
    int n = -1;
    if (config && config[0] == '/')
        n = snprintf(dst, size, "%s", config);
    else if (home && home[0] == '/')
        n = snprintf(dst, size, "%s/.config", home);
    return n > 0 && (size_t)n < size;
}

/* The environment with one more variable; NULL: no memory. Readers on other threads may hold it for ever. */
static char **environment_with(const char *variable) {
    size_t n = 0, at = 1, name = strcspn(variable, "=") + 1;
    while (environ && environ[n]) n++;
    char **all = calloc(n + 2, sizeof *all);
    if (!all) return NULL;
    all[0] = (char *)(uintptr_t)variable;
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], variable, name) != 0) all[at++] = environ[i];
    all[at] = NULL;
    return all;
}

void *tni_os_library_open(const char *path, const char *variable, const char **ret_why) {
    struct stat info;
    if (path && strchr(path, '/') && stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        *ret_why = not_regular; /* the dynamic loader would wait for a pipe */
        errno = EINVAL;
        return NULL;
    }
    errno = 0;
    static char **changed;
    char **before = environ;
    if (variable && !changed) changed = environment_with(variable);
    if (variable && changed) environ = changed;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    int failed = errno;
    if (variable && changed && environ == changed) environ = before;
    if (library) return library;
    const char *why = dlerror();
    *ret_why = why ? why : "out of memory";
    /* What glibc says when it has no room for its own tables; it does not always set errno. */
    static const char *const words[] = {"annot allocate", "annot create", "out of memory",
                                        "cannot enlarge", "cannot make",  "cannot load any more"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(*ret_why, words[i])) failed = ENOMEM;
    bool refused = failed == EPERM || failed == EACCES; /* a file system without executables */
    if (strstr(*ret_why, "failed to map segment") && !refused) failed = ENOMEM;
    errno = failed;
    return NULL;
}

void *tni_os_library_present(const char *name) { return dlopen(name, RTLD_LAZY | RTLD_NOLOAD); }

void *tni_os_library_symbol(void *library, const char *name) { return dlsym(library, name); }

bool tni_os_is_code(void *address) {
    Dl_info info;
    void *extra = NULL;
    if (!dladdr1(address, &info, &extra, RTLD_DL_SYMENT) || info.dli_saddr != address || !extra)
        return true;
    const unsigned char type = ELF64_ST_TYPE(((const ElfW(Sym) *)extra)->st_info);
    return type != STT_OBJECT && type != STT_TLS && type != STT_COMMON;
}
