/* tenon/status.h: result codes, shared by the core, plugins and language bindings.
 *
 * Every fallible function returns a tn_status; 0 is success. The text of a failure is kept in a
 * per-thread record (tenon/error.h in the core, host->fail in a plugin), never in the code. */
#ifndef TENON_STATUS_H
#define TENON_STATUS_H

#include <stdint.h>

typedef int32_t tn_status;

/* X(name, value, meaning, Python exception). Values are part of the ABI and never change. */
#define TN_STATUS_LIST(X)                                                                          \
    X(OK, 0, "success", NULL)                                                                      \
    X(E_VALUE, 1, "a value outside what the operator accepts", "ValueError")                       \
    X(E_TYPE, 2, "an argument of the wrong kind", "TypeError")                                     \
    X(E_INDEX, 3, "an index or dimension out of range", "IndexError")                              \
    X(E_SHAPE, 4, "shapes that do not fit together", "RuntimeError")                               \
    X(E_DTYPE, 5, "a dtype the operator does not take", "RuntimeError")                            \
    X(E_DEVICE, 6, "devices that do not fit together, or are absent", "RuntimeError")              \
    X(E_STATE, 7, "an object in the wrong state for the call", "RuntimeError")                     \
    X(E_MEMORY, 8, "out of memory", "MemoryError")                                                 \
    X(E_IO, 9, "a file or system call failed", "OSError")                                          \
    X(E_UNSUPPORTED, 10, "no kernel or feature for this call", "NotImplementedError")              \
    X(E_INTERRUPTED, 11, "stopped by the user", "KeyboardInterrupt")                               \
    X(E_PLUGIN, 12, "a plugin is missing, broken or does not fit", "ImportError")                  \
    X(E_HOST, 13, "an exception is pending in the host language", NULL)                            \
    X(E_BUFFER, 14, "memory that cannot be exchanged as asked", "BufferError")                     \
    X(E_INTERNAL, 15, "a bug in the library", "RuntimeError")                                      \
    X(E_LINALG, 16, "a matrix without the wanted factorisation", "LinAlgError")                    \
    X(DECLINE, 100, "a kernel leaves this call to the next candidate", NULL)                       \
    X(ASYNC, 101, "a failure found at a later synchronisation", "RuntimeError")

enum tn_status_code {
#define TN_STATUS_ENUM(name, value, meaning, exc) TN_##name = value,
    TN_STATUS_LIST(TN_STATUS_ENUM)
#undef TN_STATUS_ENUM
};

#endif
