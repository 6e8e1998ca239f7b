/* os.c: the one file of libtenon with calls into the operating system (Linux, POSIX). */
#define _GNU_SOURCE
#include "os_priv.h"

#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

/* ---- Threads -----------------------------------------------------------------------------------*/

void tni_os_lock(tni_os_mutex *m) { pthread_mutex_lock(m); }
void tni_os_unlock(tni_os_mutex *m) { pthread_mutex_unlock(m); }
void tni_os_call_once(tni_os_once *once, void (*fn)(void)) { pthread_once(once, fn); }

typedef struct exit_entry {
    void (*fn)(void *arg);
    void *arg;
    struct exit_entry *next;
} exit_entry;

static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static bool exit_key_ok;

static void run_exits(void *list) {
    for (exit_entry *e = list; e;) {
        exit_entry *next = e->next;
        e->fn(e->arg);
        free(e);
        e = next;
    }
}

static void make_exit_key(void) { exit_key_ok = pthread_key_create(&exit_key, run_exits) == 0; }

void tni_os_at_thread_exit(void (*fn)(void *arg), void *arg) {
    pthread_once(&exit_once, make_exit_key);
    exit_entry *e = exit_key_ok ? malloc(sizeof *e) : NULL;
    if (!e) return;
    e->fn = fn;
    e->arg = arg;
    e->next = pthread_getspecific(exit_key);
    if (pthread_setspecific(exit_key, e) != 0) free(e);
}

/* ---- Environment, randomness, time -------------------------------------------------------------*/

const char *tni_os_getenv(const char *name) { return secure_getenv(name); }

uint64_t tni_os_random_seed(void) {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = (uint64_t)now.tv_sec * 1000000007u ^ (uint64_t)now.tv_nsec;
    }
    return seed;
}
