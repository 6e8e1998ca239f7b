/* caches.h: how much the caches of a core hold; asked once. */
#ifndef TENON_CPU_CACHES_H
#define TENON_CPU_CACHES_H

#include <stdint.h>

uint64_t cpu_os_l1_bytes(void); /* 32 KiB when unknown */
uint64_t cpu_os_l2_bytes(void); /* 512 KiB when unknown */

#endif
