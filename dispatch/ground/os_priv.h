/* os_priv.h: everything libtenon asks of the operating system; os.c is the one file to port. */
#ifndef TENON_OS_PRIV_H
#define TENON_OS_PRIV_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tenon/status.h>

/* ---- Threads -----------------------------------------------------------------------------------*/
typedef pthread_mutex_t tni_os_mutex;
#define TNI_OS_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
void tni_os_lock(tni_os_mutex *m);
/* false: another thread has it, or this one. */
bool tni_os_try_lock(tni_os_mutex *m);
void tni_os_unlock(tni_os_mutex *m);

void tni_os_mutex_init(tni_os_mutex *m);
/* A place to wait at, with the mutex held, until another thread wakes one that waits. */
typedef pthread_cond_t tni_os_cond;
void tni_os_cond_init(tni_os_cond *c);
void tni_os_wait(tni_os_cond *c, tni_os_mutex *m);
void tni_os_wake(tni_os_cond *c);
/* Runs fn(arg) in a thread of its own, which nobody joins; false: there is none to be had. */
bool tni_os_thread_start(void (*fn)(void *arg), void *arg);
/* Calls the three around every fork from now on; false: out of memory. */
bool tni_os_at_fork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void));
void tni_os_yield(void);
/* The end of the calling thread's stack, which grows towards lower addresses; NULL: not known. */
const void *tni_os_stack_end(void);
void tni_os_sleep_ns(int64_t ns);

typedef pthread_once_t tni_os_once;
#define TNI_OS_ONCE_INIT PTHREAD_ONCE_INIT
void tni_os_call_once(tni_os_once *once, void (*fn)(void));

/* Calls fn when the calling thread ends, once, however often it was registered; what the process has
 * registered last comes first. Needs no memory: a thread keeps a bit for each of at most 32 functions. */
void tni_os_at_thread_exit(void (*fn)(void));

/* ---- Environment, randomness, time -------------------------------------------------------------*/
/* NULL when unset or when the process runs with elevated rights. */
const char *tni_os_getenv(const char *name);
/* Nanoseconds of a clock that never goes back, and the system's number of the calling thread. */
int64_t tni_os_clock_ns(void);
int64_t tni_os_thread_id(void);
/* Calls fn, which may do no more than a signal handler, before the process dies of a fault or abort. */
void tni_os_on_crash(void (*fn)(void));
/* Writes a text where errors are shown; may be called by such a function. */
void tni_os_write_error(const char *text);
/* A seed from the system's random source. */
uint64_t tni_os_random_seed(void);

/* ---- Memory that processes share ---------------------------------------------------------------*/
/* Which file of which process is meant, and that it is still the same. */
typedef struct tni_os_file {
    int32_t process, number;
    uint64_t device, inode;
} tni_os_file;
/* A nameless file that keeps its size, mapped; its number, or -1: *ret_why says why. */
int32_t tni_os_shared_new(uint64_t bytes, void **ret_data, const char **ret_why);
/* The same for a file of another process, or for `file` when it is not negative; a number of one's own.
 * Fails for anything but a file that tni_os_shared_new has made, with room for `bytes`. */
int32_t tni_os_shared_open(const tni_os_file *of, int32_t file, uint64_t bytes, void **ret_data,
                           const char **ret_why);
void tni_os_shared_unmap(void *data, uint64_t bytes);
bool tni_os_file_name(int32_t file, tni_os_file *ret_file);
int32_t tni_os_dup(int32_t file); /* -1: too many open files */
void tni_os_close(int32_t file);

/* ---- Files and libraries -----------------------------------------------------------------------*/
/* The whole file as a NUL-terminated block (free), at most `limit` bytes; NULL: *ret_why says why. */
char *tni_os_read_file(const char *path, size_t limit, const char **ret_why);
/* Calls fn for one block of a file after the other; false: *ret_why says why it ended early. */
bool tni_os_read_blocks(const char *path, void (*fn)(void *ctx, const void *block, size_t n),
                        void *ctx, const char **ret_why);
/* The whole of a file as memory, page by page when it is first touched; what is written there stays in
 * the process. NULL: *ret_why says why. An empty file is refused. */
void *tni_os_map_file(const char *path, uint64_t *ret_bytes, const char **ret_why);
void tni_os_unmap(void *data, uint64_t bytes);
/* Puts a file with these bytes in place of what is there, once all is written. */
bool tni_os_replace_file(const char *path, const void *bytes, size_t n, const char **ret_why);
/* Whether there is such a file or folder. */
bool tni_os_exists(const char *path);
/* Right after a function of this section has failed: TN_E_MEMORY or TN_E_IO when the system lacked memory
 * or file descriptors, so that the same call may succeed later. */
tn_status tni_os_shortage(void);
/* Calls fn for every entry of a folder, in sorted order; false when it cannot be read. */
bool tni_os_list(const char *folder, void (*fn)(void *ctx, const char *name), void *ctx);
/* NULL when nobody but root, the user and the owner of libtenon can change a regular file or what its
 * path leads to; else why not. */
const char *tni_os_untrusted(const char *path);
/* The folder that holds libtenon, without a trailing slash; false when unknown. */
bool tni_os_own_folder(char *dst, size_t size);
/* The user's folder for settings, $XDG_CONFIG_HOME or ~/.config; false when unknown. */
bool tni_os_config_folder(char *dst, size_t size);
/* Maps a library for good, path NULL: the program itself; NULL and a text (valid until the next call)
 * on failure. `variable`, NAME=value or NULL, stands in the environment meanwhile; one for all calls. */
void *tni_os_library_open(const char *path, const char *variable, const char **ret_why);
/* A library that is in the process already, by its SONAME; NULL: it is not. */
void *tni_os_library_present(const char *name);
void *tni_os_library_symbol(void *library, const char *name);
/* False when a symbol's address is known to be that of data. */
bool tni_os_is_code(void *address);

#endif
