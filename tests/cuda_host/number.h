/* number.h: elements of the floating types, by cuBLAS's numbers for them, as double. Shared by the
 * stand-ins of NVIDIA's libraries. A complex element has two of them. */
#ifndef NUMBER_H
#define NUMBER_H

#include <stdint.h>
#include <string.h>

#include "../../backends/common/tmpl.h"
#include "../../backends/cuda/libs/cublas.h"

static inline size_t number_bytes(int type) {
    switch (type) {
    case CUBLAS_C128: return 16;
    case CUBLAS_C64:
    case CUBLAS_F64: return 8;
    case CUBLAS_F32: return 4;
    default: return 2;
    }
}

static inline double number_load(const void *data, int type, int64_t i) {
    uint16_t half;
    float single;
    double whole;
    const char *at = (const char *)data + i * (int64_t)number_bytes(type);
    switch (type) {
    case CUBLAS_F64: memcpy(&whole, at, sizeof whole); return whole;
    case CUBLAS_F32: memcpy(&single, at, sizeof single); return (double)single;
    default: memcpy(&half, at, sizeof half);
    }
    return (double)(type == CUBLAS_F16 ? tmpl_from_f16(half) : tmpl_from_bf16(half));
}

static inline void number_store(const void *data, int type, int64_t i, double x) {
    float single = (float)x;
    uint16_t half = type == CUBLAS_F16 ? tmpl_to_f16(single) : tmpl_to_bf16(single);
    char *at = (char *)(uintptr_t)data + i * (int64_t)number_bytes(type);
    const void *from = type == CUBLAS_F64   ? (const void *)&x
                       : type == CUBLAS_F32 ? (const void *)&single
                                            : (const void *)&half;
    memcpy(at, from, number_bytes(type));
}

#endif
