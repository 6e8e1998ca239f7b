/* catch_priv.h: exceptions of C++ stop where a plugin was called. */
#ifndef TENON_CATCH_PRIV_H
#define TENON_CATCH_PRIV_H

#include "core_priv.h"

/* An exception that leaves a function which is called like this,
 *
 *     st = tni_caught(cell->fn(&call, args));
 *
 * becomes the status of that call, TN_E_STATE or TN_E_MEMORY, with its text as the error. Costs
 * nothing: the directive names tni_catch as what the unwinder asks about the calling function, for all
 * calls in it, and the call's value is used so that no jump replaces the call. Of the calls in such a
 * function only those that return a status or nothing may let an exception out. */
__attribute__((always_inline)) static inline tn_status tni_caught(tn_status st) {
#if defined(__ELF__) && defined(__GCC_HAVE_DWARF2_CFI_ASM) &&                                      \
    (defined(__x86_64__) || defined(__aarch64__))
    __asm__ volatile(".cfi_personality 0x1b, tni_catch" : "+r"(st));
#endif
    return st;
}
/* The same after the call of a function that returns nothing. */
__attribute__((always_inline)) static inline void tni_caught_any(void) { (void)tni_caught(TN_OK); }

#endif
