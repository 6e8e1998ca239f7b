/* copy.c: strided copies. Packed runs become memcpy, a transposed operand is moved in square tiles
 * through the caches (transpose.c), everything else goes element by element along the fastest dimension. Also the
 * gather, scatter and streaming services of the pointwise driver.
 *
 * family: copy */
#include "copy.h"

#include <wchar.h>

#include <tenon/args_pointwise.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "run.h"

/* ---- Elements ----------------------------------------------------------------------------------*/

/* Items may be runs of smaller elements, which are aligned as those are. */
static inline void move_by(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n,
                           size_t size) {
    for (int64_t i = 0; i < n; i++) memcpy(dst + i * ds, src + i * ss, size);
}

static void move8(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n) {
    move_by(dst, ds, src, ss, n, 1);
}

static void move16(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n) {
    move_by(dst, ds, src, ss, n, 2);
}

static void move32(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n) {
    move_by(dst, ds, src, ss, n, 4);
}

static void move64(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n) {
    move_by(dst, ds, src, ss, n, 8);
}

static void move128(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n) {
    move_by(dst, ds, src, ss, n, 16);
}

/* The same into packed memory, whose step compilers then know. */
static bool take(char *dst, const char *src, int64_t ss, int64_t n, int32_t size) {
    switch (size) {
    case 1: move_by(dst, 1, src, ss, n, 1); return true;
    case 2: move_by(dst, 2, src, ss, n, 2); return true;
    case 4: move_by(dst, 4, src, ss, n, 4); return true;
    case 8: move_by(dst, 8, src, ss, n, 8); return true;
    case 16: move_by(dst, 16, src, ss, n, 16); return true;
    default: return false;
    }
}

typedef void (*move_fn)(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n);

static void move_any(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n, int32_t size) {
    for (int64_t i = 0; i < n; i++) memcpy(dst + i * ds, src + i * ss, (size_t)size);
}

static move_fn move_of(int32_t size) {
    switch (size) {
    case 1: return move8;
    case 2: return move16;
    case 4: return move32;
    case 8: return move64;
    case 16: return move128;
    default: return NULL;
    }
}

/* One element all over a short packed run, in a loop that becomes vector code. */
static inline void fill_by(char *dst, const char *src, int64_t n, size_t size) {
    for (int64_t i = 0; i < n; i++) memcpy(dst + i * (int64_t)size, src, size);
}

static bool fill_short(char *dst, const char *src, int64_t n, int64_t size) {
    char item[8];
    memcpy(item, src, (size_t)size <= sizeof item ? (size_t)size : 0); /* dst may begin with src */
    switch (size) {
    case 2: fill_by(dst, item, n, 2); return true;
    case 4: fill_by(dst, item, n, 4); return true;
    case 8: fill_by(dst, item, n, 8); return true;
    default: return false;
    }
}

/* One element all over a packed run: of a long one a block is built by doubling, the rest are copies
 * of it. */
static void spread(char *dst, const char *src, int64_t n, int64_t size) {
    int64_t bytes = n * size, done = size;
    if (bytes <= 1024 && fill_short(dst, src, n, size)) return;
    if (memcmp(src, src + 1, (size_t)size - 1) == 0) { /* all bytes alike: zero, above all */
        memset(dst, *src, (size_t)bytes);
        return;
    }
    if (size == sizeof(wchar_t) && (uintptr_t)dst % sizeof(wchar_t) == 0) {
        wchar_t item;
        memcpy(&item, src, sizeof item);
        wmemset((wchar_t *)(void *)dst, item, (size_t)n);
        return;
    }
    memcpy(dst, src, (size_t)size);
    for (; done < bytes && done < 4096; done *= 2)
        memcpy(dst + done, dst, (size_t)(bytes - done < done ? bytes - done : done));
    for (int64_t block = done; done < bytes; done += block)
        memcpy(dst + done, dst, (size_t)(bytes - done < block ? bytes - done : block));
}

/* Runs in reversed order, packed on both sides: loops of known steps become vector code. */
static void turn32(uint32_t *dst, const uint32_t *src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = src[-i];
}

static void turn64(uint64_t *dst, const uint64_t *src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = src[-i];
}

/* Eight bytes at a time, in reversed order. */
static uint64_t turned_8(const void *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return __builtin_bswap64(x);
}

static void turn8(uint8_t *dst, const uint8_t *src, int64_t n) {
    for (; n >= 8; n -= 8, dst += 8, src -= 8) {
        uint64_t x = turned_8(src - 7);
        memcpy(dst, &x, sizeof x);
    }
    for (int64_t i = 0; i < n; i++) dst[i] = src[-i];
}

static void turn16(uint16_t *dst, const uint16_t *src, int64_t n) {
    const uint64_t low = UINT64_C(0x00ff00ff00ff00ff);
    for (; n >= 4; n -= 4, dst += 4, src -= 4) {
        uint64_t x = turned_8(src - 3);
        x = (x & low) << 8 | (x >> 8 & low); /* the bytes of each as they were */
        memcpy(dst, &x, sizeof x);
    }
    for (int64_t i = 0; i < n; i++) dst[i] = src[-i];
}

void cpu_copy_apart(void *dst, const void *src, size_t bytes) {
    char *d = dst;
    const char *s = src;
    for (; bytes >= 256; bytes -= 256) {
        char block[256];
        memcpy(block, s + bytes - sizeof block, sizeof block);
        memcpy(d + bytes - sizeof block, block, sizeof block);
    }
    memcpy(d, s, bytes);
}

static void move(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n, int32_t size) {
    move_fn fn = move_of(size);
    if (ds == size && ss == size)
        cpu_copy_run(dst, src, (size_t)(n * size));
    else if (ds == size && ss == 0 && n > 16)
        spread(dst, src, n, size);
    else if (size == 1 && ds == 1 && ss == -1)
        turn8((uint8_t *)dst, (const uint8_t *)src, n);
    else if (size == 2 && ds == 2 && ss == -2)
        turn16((uint16_t *)(void *)dst, (const uint16_t *)(const void *)src, n);
    else if (size == 4 && ds == 4 && ss == -4)
        turn32((uint32_t *)(void *)dst, (const uint32_t *)(const void *)src, n);
    else if (size == 8 && ds == 8 && ss == -8)
        turn64((uint64_t *)(void *)dst, (const uint64_t *)(const void *)src, n);
    else if (ds == size && take(dst, src, ss, n, size))
        return;
    else if (fn)
        fn(dst, ds, src, ss, n);
    else
        move_any(dst, ds, src, ss, n, size);
}

void cpu_gather(void *dst, const void *src, int64_t n, int64_t stride, int32_t size) {
    move(dst, size, src, stride, n, size);
}

void cpu_scatter(void *dst, const void *src, int64_t n, int64_t stride, int32_t size) {
    move(dst, stride, src, size, n, size);
}

void cpu_spread(void *dst, const void *src, int64_t n, int32_t size) {
    move(dst, size, src, 0, n, size);
}

/* ---- Past the caches ---------------------------------------------------------------------------*/

void cpu_stream(void *dst, const void *src, uint64_t bytes) {
#if defined(__SSE2__)
    if ((((uintptr_t)dst | (uintptr_t)src) & 15u) == 0) {
        char *d = dst;
        const char *s = src;
        uint64_t i = 0;
        for (; i + 64 <= bytes; i += 64) {
            __m128i a = _mm_load_si128((const __m128i *)(const void *)(s + i));
            __m128i b = _mm_load_si128((const __m128i *)(const void *)(s + i + 16));
            __m128i c = _mm_load_si128((const __m128i *)(const void *)(s + i + 32));
            __m128i e = _mm_load_si128((const __m128i *)(const void *)(s + i + 48));
            _mm_stream_si128((__m128i *)(void *)(d + i), a);
            _mm_stream_si128((__m128i *)(void *)(d + i + 16), b);
            _mm_stream_si128((__m128i *)(void *)(d + i + 32), c);
            _mm_stream_si128((__m128i *)(void *)(d + i + 48), e);
        }
        memcpy(d + i, s + i, bytes - i);
        return;
    }
#endif
    cpu_copy_run(dst, src, bytes);
}

void cpu_stream_end(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

typedef struct bytes_job {
    char *dst;
    const char *src;
    bool stream;
} bytes_job;

static tn_status copy_chunk(void *arg, int64_t begin, int64_t end) {
    const bytes_job *j = arg;
    if (!j->stream) {
        cpu_copy_run(j->dst + begin, j->src + begin, (size_t)(end - begin));
        return TN_OK;
    }
    cpu_stream(j->dst + begin, j->src + begin, (uint64_t)(end - begin));
    cpu_stream_end();
    return TN_OK;
}

tn_status cpu_copy_bytes(void *dst, const void *src, uint64_t bytes) {
    bytes_job j = {dst, src, bytes >= cpu_os_l3_bytes() / 2};
    if (bytes > 65536) return cpu_parallel((int64_t)bytes, 65536, copy_chunk, &j);
    cpu_copy_run(dst, src, bytes);
    return TN_OK;
}

/* ---- Tiles -------------------------------------------------------------------------------------*/

static cpu_transpose_fn *transpose = cpu_transpose_baseline;

void cpu_copy_init(cpu_isa isa) {
#if defined(__x86_64__) && !defined(CPU_BASELINE_ONLY)
    if (isa == CPU_ISA_AVX2) transpose = cpu_transpose_avx2;
    if (isa == CPU_ISA_AVX512) transpose = cpu_transpose_avx512;
#endif
    (void)isa;
}

void cpu_gather_tile(void *dst, int64_t ds, const void *src, int64_t ss, int64_t rows, int64_t cols,
                     int32_t size) {
    transpose(dst, ds, src, ss, rows, cols, size);
}

/* ---- Plans -------------------------------------------------------------------------------------*/

typedef struct copy_job {
    const tn_plan *plan;
    int32_t size;
    int32_t tile_dim; /* the dimension along which operand 1 is packed, or 0 */
} copy_job;

/* Where a row of dimension 0 stands: its indices along the others, and its places. */
typedef struct copy_at {
    int64_t at[TN_MAX_DIMS];
    char *dst;
    const char *src;
} copy_at;

/* The rows go along the dimensions from `first` on. */
static void seek_row(const tn_plan *p, int32_t first, int64_t row, copy_at *ret) {
    ret->dst = p->data[0];
    ret->src = p->data[1];
    for (int32_t d = first; d < p->ndim; d++) {
        ret->at[d] = row % p->shape[d];
        row /= p->shape[d];
        ret->dst += ret->at[d] * p->stride[d][0];
        ret->src += ret->at[d] * p->stride[d][1];
    }
}

static void next_row(const tn_plan *p, int32_t first, copy_at *c) {
    for (int32_t d = first; d < p->ndim; d++) {
        c->dst += p->stride[d][0];
        c->src += p->stride[d][1];
        if (++c->at[d] < p->shape[d]) return;
        c->dst -= p->shape[d] * p->stride[d][0];
        c->src -= p->shape[d] * p->stride[d][1];
        c->at[d] = 0;
    }
}

/* Rows of few bytes that are packed on both sides: those of dimension 1 without a call for each. */
enum { SMALL_ROW = 256 };
static inline void pack_by(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n,
                           size_t size) {
    for (int64_t i = 0; i < n; i++) memcpy(dst + i * ds, src + i * ss, size);
}

static void small_rows(char *dst, int64_t ds, const char *src, int64_t ss, int64_t n, size_t size) {
    switch (size) {
    case 32: pack_by(dst, ds, src, ss, n, 32); break;
    case 64: pack_by(dst, ds, src, ss, n, 64); break;
    case 128: pack_by(dst, ds, src, ss, n, 128); break;
    case 256: pack_by(dst, ds, src, ss, n, 256); break;
    default: pack_by(dst, ds, src, ss, n, size);
    }
}

static void copy_small_rows(const copy_job *j, int64_t begin, int64_t end) {
    const tn_plan *p = j->plan;
    copy_at c;
    int64_t n1 = p->shape[1], at = begin % n1, count;
    const int64_t *step = p->stride[1];
    seek_row(p, 2, begin / n1, &c);
    for (int64_t row = begin; row < end; row += count, at = 0, next_row(p, 2, &c)) {
        count = n1 - at < end - row ? n1 - at : end - row;
        small_rows(c.dst + at * step[0], step[0], c.src + at * step[1], step[1], count,
                   (size_t)(p->shape[0] * j->size));
    }
}

static tn_status copy_rows(void *arg, int64_t begin, int64_t end) {
    const copy_job *j = arg;
    const tn_plan *p = j->plan;
    copy_at c;
    if (p->ndim > 1 && p->stride[0][0] == j->size && p->stride[0][1] == j->size &&
        p->shape[0] * j->size <= SMALL_ROW) {
        copy_small_rows(j, begin, end);
        return TN_OK;
    }
    seek_row(p, 1, begin, &c);
    for (int64_t row = begin; row < end; row++, next_row(p, 1, &c))
        move(c.dst, p->stride[0][0], c.src, p->stride[0][1], p->shape[0], j->size);
    return TN_OK;
}

/* Dimension 0 is short: its few places one after the other, a band of dimension 1 at a time, which
 * stays in the first cache until all of them are filled. */
enum { BAND_BYTES = 16384 };

static int64_t band_of(const copy_job *j) { return BAND_BYTES / (j->plan->shape[0] * j->size) + 1; }

static tn_status copy_bands(void *arg, int64_t begin, int64_t end) {
    const copy_job *j = arg;
    const tn_plan *p = j->plan;
    const int64_t *s0 = p->stride[0], *s1 = p->stride[1];
    int64_t n1 = p->shape[1], side = band_of(j), bands = (n1 + side - 1) / side;
    int64_t band = begin % bands;
    copy_at c;
    seek_row(p, 2, begin / bands, &c);
    for (int64_t item = begin; item < end; item++) {
        int64_t r0 = band * side, n = n1 - r0 < side ? n1 - r0 : side;
        for (int64_t i = 0; i < p->shape[0]; i++)
            move(c.dst + r0 * s1[0] + i * s0[0], s1[0], c.src + r0 * s1[1] + i * s0[1], s1[1], n,
                 j->size);
        if (++band < bands) continue;
        band = 0;
        next_row(p, 2, &c);
    }
    return TN_OK;
}

/* dst is packed along dimension 0, src along tile_dim. */
static tn_status copy_tiles(void *arg, int64_t begin, int64_t end) {
    const copy_job *j = arg;
    const tn_plan *p = j->plan;
    int64_t side = 64 / j->size, n0 = p->shape[0], n1 = p->shape[j->tile_dim];
    int64_t bands = (n1 + side - 1) / side;
    for (int64_t item = begin; item < end; item++) {
        int64_t band = item % bands, row = item / bands, r0 = band * side;
        int64_t rows = n1 - r0 < side ? n1 - r0 : side;
        char *dst = p->data[0];
        const char *src = p->data[1];
        for (int32_t d = 1; d < p->ndim; d++) {
            if (d == j->tile_dim) continue;
            int64_t i = row % p->shape[d];
            row /= p->shape[d];
            dst += i * p->stride[d][0];
            src += i * p->stride[d][1];
        }
        dst += r0 * p->stride[j->tile_dim][0];
        src += r0 * p->stride[j->tile_dim][1];
        transpose(dst, p->stride[j->tile_dim][0], src, p->stride[0][1], rows, n0, j->size);
    }
    return TN_OK;
}

/* Whether rows along dimension 0 are so short that what goes before each takes longer than they do;
 * long enough ones that are packed on both sides move as wholes. */
static bool rows_are_short(const tn_plan *p, int32_t size) {
    bool packed = p->stride[0][0] == size && p->stride[0][1] == size;
    return p->ndim > 1 && p->shape[0] <= (packed ? 4 : 16) && p->shape[1] >= p->shape[0];
}

/* Short runs that are packed on both sides are items themselves. */
static bool join_items(const tn_plan *p, int32_t size, tn_plan *ret) {
    int64_t run = p->shape[0] * size;
    if (p->ndim < 2 || p->stride[0][0] != size || p->stride[0][1] != size) return false;
    if (run > 16 || !move_of((int32_t)run)) return false;
    *ret = *p;
    ret->ndim = p->ndim - 1;
    ret->numel = p->numel / p->shape[0];
    for (int32_t d = 0; d < ret->ndim; d++) {
        ret->shape[d] = p->shape[d + 1];
        memcpy(ret->stride[d], p->stride[d + 1], sizeof ret->stride[d]);
    }
    return true;
}

tn_status cpu_copy_plan(const tn_plan *p, int32_t item) {
    tn_plan joined;
    if (p->numel == 0) return TN_OK;
    if (join_items(p, item, &joined)) {
        item *= (int32_t)p->shape[0];
        p = &joined;
    }
    copy_job j = {.plan = p, .size = item};
    int64_t size = j.size, n0 = p->shape[0], rows = p->numel / n0;
    if (p->ndim == 1 && p->stride[0][0] == size && p->stride[0][1] == size)
        return cpu_copy_bytes(p->data[0], p->data[1], (uint64_t)(p->numel * size));
    if (p->stride[0][0] == size && p->stride[0][1] != size && p->stride[0][1] != 0)
        for (int32_t d = 1; d < p->ndim; d++)
            if (p->stride[d][1] == size && p->shape[d] >= 8 && n0 >= 8 && move_of(item))
                j.tile_dim = d;
    if (j.tile_dim) {
        int64_t side = 64 / size, n1 = p->shape[j.tile_dim];
        int64_t items = (n1 + side - 1) / side * (p->numel / (n0 * n1));
        int64_t grain = 16384 / (n0 * side) + 1;
        return cpu_parallel(items, grain, copy_tiles, &j);
    }
    if (rows_are_short(p, item)) {
        int64_t n1 = p->shape[1], side = band_of(&j), bands = (n1 + side - 1) / side;
        int64_t cost = n0 * (n1 < side ? n1 : side);
        return cpu_parallel(rows / n1 * bands, 16384 / cost + 1, copy_bands, &j);
    }
    if (rows == 1 && n0 > 65536) {
        /* One long strided row: cut it, so that threads share it. */
        tn_plan cut = *p;
        cut.ndim = 2;
        cut.shape[0] = 4096;
        cut.shape[1] = n0 / 4096;
        cut.numel = cut.shape[0] * cut.shape[1];
        for (int32_t k = 0; k < 2; k++) cut.stride[1][k] = p->stride[0][k] * 4096;
        copy_job c = {.plan = &cut, .size = j.size};
        tn_status st = cpu_parallel(cut.shape[1], 4, copy_rows, &c);
        move((char *)p->data[0] + cut.numel * p->stride[0][0], p->stride[0][0],
             (const char *)p->data[1] + cut.numel * p->stride[0][1], p->stride[0][1],
             n0 - cut.numel, j.size);
        return st;
    }
    return cpu_parallel(rows, 16384 / n0 + 1, copy_rows, &j);
}

/* ---- Plans over two views ----------------------------------------------------------------------*/

static bool mergeable(const tn_plan *p, int32_t inner, int32_t outer) {
    for (int32_t k = 0; k < 2; k++)
        if (p->stride[outer][k] != p->stride[inner][k] * p->shape[inner]) return false;
    return true;
}

void cpu_plan_pair(const tn_view *out, const tn_view *in, tn_plan *ret) {
    tn_plan *p = ret;
    const tn_view *of[2] = {out, in};
    p->noperands = 2;
    p->noutputs = 1;
    p->scalar_mask = 0;
    p->flags = 0;
    p->numel = out->numel;
    p->ndim = 0;
    for (int32_t k = 0; k < 2; k++) {
        p->data[k] = of[k]->data;
        p->dtype[k] = (uint8_t)tn_view_dtype(of[k]);
    }
    bool packed = tn_view_is_contiguous(out) && tn_view_is_contiguous(in);
    for (int32_t d = out->ndim - 1; d >= 0 && !packed; d--) {
        int64_t step = tn_view_itemsize(out) * out->strides[d];
        int32_t at = p->ndim;
        if (out->shape[d] == 1) continue;
        /* Insertion by the output's stride keeps writing sequential. */
        for (; at > 0 && step < p->stride[at - 1][0]; at--) {
            p->shape[at] = p->shape[at - 1];
            p->stride[at][0] = p->stride[at - 1][0];
            p->stride[at][1] = p->stride[at - 1][1];
        }
        p->shape[at] = out->shape[d];
        p->stride[at][0] = step;
        p->stride[at][1] = tn_view_itemsize(in) * in->strides[d];
        p->ndim++;
    }
    if (p->ndim == 0) {
        p->ndim = 1;
        p->shape[0] = p->numel;
        for (int32_t k = 0; k < 2; k++) p->stride[0][k] = tn_view_itemsize(of[k]);
    }
    int32_t last = 0;
    for (int32_t i = 1; i < p->ndim; i++) {
        if (mergeable(p, last, i)) {
            p->shape[last] *= p->shape[i];
            continue;
        }
        last++;
        p->shape[last] = p->shape[i];
        p->stride[last][0] = p->stride[i][0];
        p->stride[last][1] = p->stride[i][1];
    }
    p->ndim = last + 1;
}

/* ---- The kernel --------------------------------------------------------------------------------*/

static tn_status copy_any(const tn_call *call, const void *args) {
    const tn__copy_args *a = args;
    (void)call;
    return cpu_copy_plan(a->plan, (int32_t)tn_view_itemsize(a->out));
}

static const tn_kernel_row rows_[] = {
    {"_copy", TN_SIG__copy, copy_any, NULL, TN_DTYPE_ANY, 0, TN_K_CAPTURE_SAFE, 0},
};
const cpu_rows cpu_copy_rows = CPU_ROWS_OF(rows_);
