/* gemm_bf16_units.c: instructions for products of bfloat16 pairs: VDPBF16PS, which adds two products to
 * each of 16 floats (twice the rate of float, and half the memory), and TDPBF16PS, which multiplies tiles of
 * 16 rows by 32 elements (eight times that rate). Both take subnormal numbers for zero. */
#include "cpu_priv.h"
#include "gemm_bf16.h"

#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
#include <immintrin.h>

#define DOT __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define AMX __attribute__((target("amx-tile,amx-bf16")))

enum { ROWS = 8, VECTORS = 3, LANES = 16, COLS = VECTORS * LANES };
enum { SIDE = 16, TILE = SIDE * SIDE, ROW_BYTES = 64 }; /* of a tile, in pairs or floats */

/* ---- VDPBF16PS ---------------------------------------------------------------------------------*/

DOT static void dot_add(const bf16_add *t) {
    __m512 c[ROWS][VECTORS];
    const uint32_t *a = t->a, *b = t->b;
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < VECTORS; v++)
            c[i][v] =
                t->first ? _mm512_setzero_ps() : _mm512_loadu_ps(t->sum + i * t->ld + v * LANES);
    for (int64_t p = 0; p < t->pairs; p++, a += ROWS, b += COLS) {
        __m512i y[VECTORS];
        for (int v = 0; v < VECTORS; v++) y[v] = _mm512_loadu_si512(b + v * LANES);
        for (int i = 0; i < ROWS; i++) {
            __m512i x = _mm512_set1_epi32((int)a[i]);
            for (int v = 0; v < VECTORS; v++)
                c[i][v] = _mm512_dpbf16_ps(c[i][v], (__m512bh)x, (__m512bh)y[v]);
        }
    }
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < VECTORS; v++) _mm512_storeu_ps(t->sum + i * t->ld + v * LANES, c[i][v]);
}

static const bf16_unit dot = {
    .rows = ROWS,
    .cols = COLS,
    .step = 1,
    .deep = 512,
    .block_strips = 12,
    .block_panels = 4,
    .add = dot_add,
};

/* ---- Tiles -------------------------------------------------------------------------------------*/

/* Eight tiles of 16 rows by 64 bytes: 0 to 3 are sums, 4 and 5 of a strip, 6 and 7 of a panel. */
AMX static void tiles_begin(void) {
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1,
               .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
               .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&shape);
}

AMX static void tiles_end(void) { _tile_release(); }

AMX static void tiles_add(const bf16_add *t) {
    const int64_t down = t->ld * (int64_t)sizeof *t->sum;
    const uint32_t *a = t->a, *b = t->b;
    const bool low = t->rows > SIDE, right = t->cols > SIDE; /* whether there are such halves */
    float *below = t->sum + SIDE * t->ld;
    if (t->first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, t->sum, down);
        if (right) _tile_loadd(1, t->sum + SIDE, down);
        if (low) _tile_loadd(2, below, down);
        if (low && right) _tile_loadd(3, below + SIDE, down);
    }
    for (int64_t p = 0; p < t->pairs; p += SIDE, a += 2 * TILE, b += 2 * TILE) {
        _tile_loadd(6, b, 2 * ROW_BYTES);
        _tile_loadd(4, a, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (right) {
            _tile_loadd(7, b + SIDE, 2 * ROW_BYTES);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (!low) continue;
        _tile_loadd(5, a + TILE, ROW_BYTES);
        _tile_dpbf16ps(2, 5, 6);
        if (right) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, t->sum, down);
    if (right) _tile_stored(1, t->sum + SIDE, down);
    if (low) _tile_stored(2, below, down);
    if (low && right) _tile_stored(3, below + SIDE, down);
}

/* So deep that a strip and a panel share the first cache. Measured on a Xeon of 2023, products of tiles in
 * registers run at 2.8 TFLOP/s, and 1024 x 1024 x 1024 with packing and rounding at 1.1. */
static const bf16_unit tiles = {
    .rows = 2 * SIDE,
    .cols = 2 * SIDE,
    .step = BF16_TURNED,
    .deep = 128,
    .block_strips = 8,
    .block_panels = 8,
    .turned = true,
    .begin = tiles_begin,
    .end = tiles_end,
    .add = tiles_add,
};

/* ---- What there is -----------------------------------------------------------------------------*/

static const bf16_unit *best(void) {
    if (cpu_isa_pick() != CPU_ISA_AVX512 || !__builtin_cpu_supports("avx512bf16")) return NULL;
    return cpu_isa_tiles() ? &tiles : &dot;
}

const bf16_unit *cpu_bf16_unit(void) {
    static const bf16_unit none,
        *known; /* NULL: not asked; a race does no harm, the answer is one */
    const bf16_unit *unit = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!unit) {
        unit = best();
        if (!unit) unit = &none;
        __atomic_store_n(&known, unit, __ATOMIC_RELAXED);
    }
    return unit == &none ? NULL : unit;
}
#else
const bf16_unit *cpu_bf16_unit(void) { return NULL; }
#endif
