/* gemm_tiles.h: tiles of a matrix product in float and double that read their operands in vectors. */
#ifndef TENON_CPU_GEMM_TILES_H
#define TENON_CPU_GEMM_TILES_H

#include "cpu_priv.h"
#include "gemm.h"

/* Rows of A at most where B is read as it lies; columns of a dot's tile; vectors of a row's. */
enum { TILE_MOST = 64, TILE_DOT_COLS = 4, TILE_VECTORS = 3 };

/* Columns [j, j + n) of entry e, all of its at most TILE_MOST rows. */
typedef void (*gemm_columns_fn)(const gemm_args *g, int64_t e, int64_t j, int64_t n);

typedef struct gemm_tiles {
    gemm_columns_fn row_columns; /* rows of B are packed; n at most TILE_VECTORS vectors */
    gemm_columns_fn dot_columns; /* columns of B and rows of A are; n at most TILE_DOT_COLS */
    /* Rows [i, i + m) and columns [j, j + n) of entry e, m at most `rows`: `strip` has that many rows
     * with the strides rs and cs, of which m count; `panel` is packed as (k, TILE_VECTORS * lanes) with
     * zeros behind its n columns. NULL where a BLAS is as fast. */
    void (*block)(const gemm_args *g, int64_t e, int64_t i, int64_t m, int64_t j, int64_t n,
                  const void *strip, int64_t rs, int64_t cs, const void *panel, int64_t k);
    /* k rows of n columns of B, `step` elements apart, into a panel. */
    void (*pack_rows)(const void *from, int64_t step, int64_t k, int64_t n, void *panel);
    int32_t lanes, rows; /* elements of a vector; rows of a strip */
} gemm_tiles;

void cpu_gemm_tiles_init(cpu_isa picked);
/* NULL: none for that type here. */
const gemm_tiles *cpu_gemm_tiles(int32_t dtype);

#endif
