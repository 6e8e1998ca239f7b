/* locks.h: locks of the plugin's own files. */
#ifndef CPU_LOCKS_H
#define CPU_LOCKS_H

#include "cpu_priv.h"

/* A lock that a fork takes with all others of its kind, so that no child finds it taken by a thread that
 * it does not have. */
#define CPU_LOCK(name) static cpu_lock name __attribute__((section("cpu_locks")))

void cpu_locks_init(void);

#endif
