/* row.h: one row of elements at a time, copied or converted. */
#ifndef TENON_CPU_ROW_H
#define TENON_CPU_ROW_H

#include "cpu_priv.h"

/* Bytes of one element of a built-in dtype. */
int64_t cpu_row_item(int32_t dtype);
/* n elements of `item` bytes, strides in elements. */
void cpu_row_copy(int64_t item, const char *src, int64_t ss, char *dst, int64_t ds, int64_t n);
/* The same with a conversion between a half precision type and f32, or none. */
void cpu_row_convert(int32_t from, const char *src, int64_t ss, int32_t to, char *dst, int64_t ds,
                     int64_t n);
/* Picks the conversions of the instruction set in use. */
void cpu_row_init(cpu_isa isa);

#endif
