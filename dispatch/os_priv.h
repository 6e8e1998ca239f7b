/* os_priv.h: everything libtenon asks of the operating system; os.c is the one file to port. */
#ifndef TENON_OS_PRIV_H
#define TENON_OS_PRIV_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Threads -----------------------------------------------------------------------------------*/
typedef pthread_mutex_t tni_os_mutex;
#define TNI_OS_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
void tni_os_lock(tni_os_mutex *m);
void tni_os_unlock(tni_os_mutex *m);

typedef pthread_once_t tni_os_once;
#define TNI_OS_ONCE_INIT PTHREAD_ONCE_INIT
void tni_os_call_once(tni_os_once *once, void (*fn)(void));

/* Calls fn(arg) when the calling thread ends; the last registered first. Registrations may be lost
 * when memory runs out: what fn would release is then leaked, nothing worse. */
void tni_os_at_thread_exit(void (*fn)(void *arg), void *arg);

/* ---- Environment, randomness, time -------------------------------------------------------------*/
/* NULL when unset or when the process runs with elevated rights. */
const char *tni_os_getenv(const char *name);
/* A seed from the system's random source. */
uint64_t tni_os_random_seed(void);

#endif
