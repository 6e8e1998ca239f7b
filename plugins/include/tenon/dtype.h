/* tenon/dtype.h: element types, shared by the core, plugins and language bindings.
 *
 * A dtype is a small slot number. The twelve built-in slots below are fixed for ever; slots from
 * TN_DTYPE_BUILTIN_COUNT up to TN_DTYPE_SLOTS are handed out per process to further dtypes of the host
 * and those that plugins add, whose stable identity is their name. */
#ifndef TENON_DTYPE_H
#define TENON_DTYPE_H

#include <stdint.h>

/* X(ID, slot, name, bytes, DLPack code, category, C type)
 * bf16 and f16 are stored as their bit patterns in uint16_t. */
#define TN_DTYPE_LIST(X)                                                                           \
    X(BOOL, 0, "bool", 1, 6, BOOL, uint8_t)                                                        \
    X(U8, 1, "uint8", 1, 1, INT, uint8_t)                                                          \
    X(I8, 2, "int8", 1, 0, INT, int8_t)                                                            \
    X(I16, 3, "int16", 2, 0, INT, int16_t)                                                         \
    X(I32, 4, "int32", 4, 0, INT, int32_t)                                                         \
    X(I64, 5, "int64", 8, 0, INT, int64_t)                                                         \
    X(F16, 6, "float16", 2, 2, FLOAT, uint16_t)                                                    \
    X(BF16, 7, "bfloat16", 2, 4, FLOAT, uint16_t)                                                  \
    X(F32, 8, "float32", 4, 2, FLOAT, float)                                                       \
    X(F64, 9, "float64", 8, 2, FLOAT, double)                                                      \
    X(C64, 10, "complex64", 8, 5, COMPLEX, struct tn_c64)                                          \
    X(C128, 11, "complex128", 16, 5, COMPLEX, struct tn_c128)

enum tn_dtype_slot {
#define TN_DTYPE_ENUM(ID, slot, name, bytes, dl, cat, ctype) TN_##ID = slot,
    TN_DTYPE_LIST(TN_DTYPE_ENUM)
#undef TN_DTYPE_ENUM
};

#define TN_DTYPE_BUILTIN_COUNT 12
#define TN_DTYPE_SLOTS 64

/* Promotion categories, in rising order. */
enum tn_category { TN_CAT_BOOL = 0, TN_CAT_INT = 1, TN_CAT_FLOAT = 2, TN_CAT_COMPLEX = 3 };

struct tn_c64 {
    float re, im;
};
struct tn_c128 {
    double re, im;
};

#endif
