/* dtype.c: the dtype table, promotion, numbers to and from single elements. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "bits_priv.h"
#include "core_priv.h"
#include "text_priv.h"

typedef struct dtype_row {
    const char *name;
    int32_t bytes;
    int32_t category;
    int32_t rank; /* within the category; the higher wins promotion */
    uint8_t dl_code;
    tn_dtype_desc desc; /* of a plugin's dtype */
    const char *plugin; /* its name; NULL: built in */
} dtype_row;

/* X(slot, name, bytes, DLPack code, category) */
#define CORE_LIST(X)                                                                               \
    X(TN_U16, "uint16", 2, 1, INT)                                                                 \
    X(TN_U32, "uint32", 4, 1, INT)                                                                 \
    X(TN_U64, "uint64", 8, 1, INT)                                                                 \
    X(TN_F8_E4M3FN, "float8_e4m3fn", 1, 10, FLOAT)                                                 \
    X(TN_F8_E5M2, "float8_e5m2", 1, 12, FLOAT)                                                     \
    X(TN_F8_E4M3FNUZ, "float8_e4m3fnuz", 1, 11, FLOAT)                                             \
    X(TN_F8_E5M2FNUZ, "float8_e5m2fnuz", 1, 13, FLOAT)                                             \
    X(TN_F8_E8M0FNU, "float8_e8m0fnu", 1, 14, FLOAT)                                               \
    X(TN_C32, "complex32", 4, 5, COMPLEX)

static dtype_row rows[TN_DTYPE_SLOTS] = {
#define ROW(ID, slot, name, bytes, dl, cat, ctype)                                                 \
    [slot] = {name, bytes, TN_CAT_##cat, slot, dl, {0}, NULL},
    TN_DTYPE_LIST(ROW)
#undef ROW
#define ROW(id, name, bytes, dl, cat) [id] = {name, bytes, TN_CAT_##cat, id, dl, {0}, NULL},
        CORE_LIST(ROW)
#undef ROW
};
uint8_t tni_categories[TN_DTYPE_SLOTS] = {
#define ROW(ID, slot, name, bytes, dl, cat, ctype) [slot] = TN_CAT_##cat,
    TN_DTYPE_LIST(ROW)
#undef ROW
#define ROW(id, name, bytes, dl, cat) [id] = TN_CAT_##cat,
        CORE_LIST(ROW)
#undef ROW
};
/* Rows below this are in use and never change again. */
static _Atomic int32_t row_count = TN_DTYPE_CORE_COUNT;
static _Atomic int32_t default_dtype = TN_F32;

static bool known(int32_t dtype) {
    return dtype >= 0 && dtype < atomic_load_explicit(&row_count, memory_order_acquire);
}

const char *tn_dtype_name(int32_t dtype) { return known(dtype) ? rows[dtype].name : NULL; }
int64_t tn_dtype_size(int32_t dtype) { return known(dtype) ? rows[dtype].bytes : 0; }
int32_t tn_dtype_category(int32_t dtype) { return known(dtype) ? rows[dtype].category : -1; }
uint8_t tni_dtype_dl_code(int32_t dtype) { return rows[dtype].dl_code; }

int32_t tn_dtype_find(const char *name) {
    for (int32_t i = 0; name && known(i); i++)
        if (strcmp(rows[i].name, name) == 0) return i;
    return -1;
}

tn_status tn_dtype_parse(const char *name, int32_t *ret_dtype) {
    return tni_offers.find(TNI_OFFER_DTYPE, name, tn_dtype_find, ret_dtype);
}

int32_t tn_dtype_default(void) {
    return atomic_load_explicit(&default_dtype, memory_order_relaxed);
}

tn_status tn_dtype_set_default(int32_t dtype) {
    if (tn_dtype_category(dtype) != TN_CAT_FLOAT)
        return tn_fail(TN_E_TYPE, 0, "only floating-point types are supported as the default type");
    atomic_store_explicit(&default_dtype, dtype, memory_order_relaxed);
    return TN_OK;
}

const tn_dtype_desc *tni_dtype_desc(int32_t dtype) {
    return dtype >= TN_DTYPE_CORE_COUNT && known(dtype) ? &rows[dtype].desc : NULL;
}

/* Called with the registry locked. */
static bool is_again(const tn_dtype_desc *a, const tn_dtype_desc *b) {
    return a->bits == b->bits && a->category == b->category && a->rank == b->rank &&
           a->to_f32 == b->to_f32 && a->from_f32 == b->from_f32;
}

const char *tn_dtype_plugin(int32_t dtype) { return known(dtype) ? rows[dtype].plugin : NULL; }

tn_status tni_dtype_add(const tn_dtype_desc *desc, const char *plugin, int32_t *ret_slot) {
    if (!desc->name || desc->bits == 0 || desc->bits % 8 != 0 || desc->bits > 128)
        return tn_fail(TN_E_PLUGIN, -1, "a dtype needs a name and a multiple of 8 bits up to 128");
    if (!desc->name[0] || desc->name[strspn(desc->name, TNI_NAME_LETTERS)])
        return tn_fail(TN_E_PLUGIN, -1,
                       "a dtype's name is letters, digits, '_', '-' and '.': not '%s'", desc->name);
    int32_t same = tn_dtype_find(desc->name);
    if (same >= TN_DTYPE_CORE_COUNT && is_again(&rows[same].desc, desc)) {
        *ret_slot = same; /* its plugin was retired and is loaded again */
        return TN_OK;
    }
    if (same >= 0) return tn_fail(TN_E_PLUGIN, -1, "dtype '%s' exists already", desc->name);
    if (!desc->to_f32 || !desc->from_f32)
        return tn_fail(TN_E_PLUGIN, -1, "dtype '%s' lacks its conversions", desc->name);
    if (desc->category < TN_CAT_BOOL || desc->category > TN_CAT_COMPLEX)
        return tn_fail(TN_E_PLUGIN, -1, "dtype '%s' is of no category", desc->name);
    int32_t slot = atomic_load_explicit(&row_count, memory_order_relaxed);
    if (slot == TN_DTYPE_SLOTS) return tn_fail(TN_E_PLUGIN, -1, "no dtype slot is left");
    size_t bytes = strlen(desc->name) + 1;
    char *name = malloc(bytes);
    if (!name) return tn_fail(TN_E_MEMORY, -1, "out of memory");
    memcpy(name, desc->name, bytes);
    rows[slot] = (dtype_row){.name = name,
                             .bytes = (int32_t)desc->bits / 8,
                             .category = desc->category,
                             .rank = desc->rank,
                             .dl_code = 3,
                             .desc = *desc,
                             .plugin = plugin};
    rows[slot].desc.name = name;
    tni_categories[slot] = (uint8_t)desc->category;
    atomic_store_explicit(&row_count, slot + 1, memory_order_release);
    *ret_slot = slot;
    return TN_OK;
}

int32_t tni_dtype_to_complex(int32_t dtype) {
    if (tn_dtype_category(dtype) == TN_CAT_COMPLEX) return dtype;
    return dtype == TN_F64 ? TN_C128 : dtype == TN_F16 ? TN_C32 : TN_C64;
}

int32_t tni_dtype_to_real(int32_t dtype) {
    return dtype == TN_C64 ? TN_F32 : dtype == TN_C128 ? TN_F64 : dtype == TN_C32 ? TN_F16 : dtype;
}

static bool is_float8(int32_t dtype) { return dtype >= TN_F8_E4M3FN && dtype <= TN_F8_E8M0FNU; }
static bool is_wide_unsigned(int32_t dtype) { return dtype >= TN_U16 && dtype <= TN_U64; }

static int32_t promote_complex(int32_t a, int32_t b) {
    if (a == TN_C128 || b == TN_C128 || a == TN_F64 || b == TN_F64) return TN_C128;
    int32_t other = a == TN_C32 ? b : b == TN_C32 ? a : TN_C64;
    return rows[other].category < TN_CAT_FLOAT || other == TN_F16 ? TN_C32 : TN_C64;
}

tn_status tni_fail_promotion(int32_t a, int32_t b) {
    bool eight = is_float8(a) || is_float8(b);
    return tn_fail(TN_E_DTYPE, -1,
                   "Promotion for %s is not supported, attempted to promote %s and %s",
                   eight ? "Float8 Types" : "uint16, uint32, uint64 types", tni_type_text(a),
                   tni_type_text(b));
}

int32_t tn_dtype_promote(int32_t a, int32_t b) {
    if (a == b || !known(b)) return a;
    if (!known(a)) return b;
    int32_t ca = rows[a].category, cb = rows[b].category;
    if (is_float8(a) || is_float8(b)) return TN_NO_DTYPE;
    if (is_wide_unsigned(a) && cb != TN_CAT_FLOAT) return TN_NO_DTYPE;
    if (is_wide_unsigned(b) && ca != TN_CAT_FLOAT) return TN_NO_DTYPE;
    if (ca == TN_CAT_COMPLEX || cb == TN_CAT_COMPLEX) return promote_complex(a, b);
    if (ca != cb) return ca > cb ? a : b;
    if ((a == TN_F16 && b == TN_BF16) || (a == TN_BF16 && b == TN_F16)) return TN_F32;
    if ((a == TN_U8 && b == TN_I8) || (a == TN_I8 && b == TN_U8)) return TN_I16;
    return rows[a].rank >= rows[b].rank ? a : b;
}

int32_t tn_dtype_dlpack_code(int32_t dtype) { return known(dtype) ? rows[dtype].dl_code : -1; }

int tn_dtype_is_signed(int32_t dtype) {
    bool power = dtype == TN_F8_E8M0FNU; /* which has no zero, even */
    return dtype != TN_BOOL && dtype != TN_U8 && !is_wide_unsigned(dtype) && !power;
}

tn_status tn_dtype_check_promotes(int32_t a, int32_t b) {
    return tn_dtype_promote(a, b) == TN_NO_DTYPE ? tni_fail_promotion(a, b) : TN_OK;
}

/* A lower class of operands may raise the category of a higher class, never its width. */
static int32_t combine(int32_t higher, int32_t lower) {
    if (higher == TN_NO_DTYPE || lower == TN_NO_DTYPE) return TN_NO_DTYPE;
    if (higher < 0) return lower;
    if (lower < 0) return higher;
    int32_t ch = rows[higher].category, cl = rows[lower].category;
    if (ch == TN_CAT_COMPLEX) return higher;
    if (ch == TN_CAT_FLOAT) return cl == TN_CAT_COMPLEX ? tni_dtype_to_complex(higher) : higher;
    if (higher == TN_BOOL || cl >= TN_CAT_FLOAT) return tn_dtype_promote(higher, lower);
    return higher;
}

static int32_t join(int32_t a, int32_t b) {
    if (a == TN_NO_DTYPE) return a;
    return a < 0 ? b : tn_dtype_promote(a, b);
}

int32_t tni_result_dtype(tn_tensor *const *ts, int n) {
    int32_t dimensioned = -1, zero_dim = -1, number = -1;
    for (int i = 0; i < n; i++) {
        const tn_tensor *t = ts[i];
        if (!t) continue;
        int32_t d = tn_view_dtype(&t->v);
        if (t->v.word & TN_W_SCALAR) {
            if (d == TN_F64) d = tn_dtype_default();
            if (d == TN_C128) d = tni_dtype_to_complex(tn_dtype_default());
            number = join(number, d);
        } else if (t->v.ndim == 0) {
            zero_dim = join(zero_dim, d);
        } else {
            dimensioned = join(dimensioned, d);
        }
    }
    return combine(combine(dimensioned, zero_dim), number);
}

tn_status tni_fail_promotions(tn_tensor *const *ts, int n) {
    int32_t before = -1;
    for (int i = 0; i < n; i++) {
        if (!ts[i]) continue;
        int32_t dtype = tn_view_dtype(&ts[i]->v), both = join(before, dtype);
        if (both == TN_NO_DTYPE) return tni_fail_promotion(before, dtype);
        before = both;
    }
    return tni_fail_promotion(before, before);
}

/* ---- Numbers -----------------------------------------------------------------------------------*/

static int64_t to_int(double v) {
    if (!(v > -9223372036854775808.0)) return INT64_MIN; /* NaN too, as the hardware does */
    if (v >= 9223372036854775808.0) return INT64_MIN;
    return (int64_t)v;
}

tn_scalar tn_scalar_float(double v) {
    tn_scalar s = {TN_CAT_FLOAT, 0, to_int(v), v, 0.0};
    return s;
}

tn_scalar tn_scalar_complex(double re, double im) {
    tn_scalar s = {TN_CAT_COMPLEX, 0, to_int(re), re, im};
    return s;
}

static uint16_t to_bf16(float f) {
    uint32_t u = tni_bits_of(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fc0;
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

uint16_t tni_to_f16(float f) {
    uint32_t u = tni_bits_of(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to infinity */
    if (a < 0x38800000u) { /* subnormal: adding 0.5 rounds at the right bit */
        uint32_t v = tni_bits_of(tni_float_of(a) + 0.5f) - 0x3f000000u;
        return (uint16_t)(sign | v);
    }
    a += 0xc8000000u + 0xfffu + ((a >> 13) & 1u);
    return (uint16_t)(sign | (a >> 13));
}

float tni_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 0x1fu, m = h & 0x3ffu;
    if (e == 0x1f) return tni_float_of(sign | 0x7f800000u | (m << 13));
    if (e == 0) return tni_float_of(sign | tni_bits_of((float)m * 0x1p-24f));
    return tni_float_of(sign | ((e + 112u) << 23) | (m << 13));
}

static void store_over_bridge(const tn_scalar *s, int32_t dtype, void *dst) {
    _Alignas(16) unsigned char known_value[16];
    tni_bridge b = tni_dtype_bridge(dtype, s->kind >= TN_CAT_FLOAT ? TN_F64 : TN_I64);
    tni_scalar_store(s, b.dtype, known_value);
    tni_bridge_encode(&b, known_value, dst, 1);
}

void tni_scalar_store(const tn_scalar *s, int32_t dtype, void *dst) {
    float f = (float)s->re;
    switch (dtype) {
    case TN_BOOL:
        *(uint8_t *)dst = s->kind <= TN_CAT_INT ? s->i != 0 : s->re != 0.0 || s->im != 0.0;
        return;
    case TN_U8:
    case TN_I8: *(uint8_t *)dst = (uint8_t)s->i; return;
    case TN_I16: *(int16_t *)dst = (int16_t)s->i; return;
    case TN_I32: *(int32_t *)dst = (int32_t)s->i; return;
    case TN_I64: *(int64_t *)dst = s->i; return;
    case TN_F16: *(uint16_t *)dst = tni_to_f16(f); return;
    case TN_BF16: *(uint16_t *)dst = to_bf16(f); return;
    case TN_F32: *(float *)dst = f; return;
    case TN_F64: *(double *)dst = s->re; return;
    case TN_C64: *(struct tn_c64 *)dst = (struct tn_c64){f, (float)s->im}; return;
    case TN_C128: *(struct tn_c128 *)dst = (struct tn_c128){s->re, s->im}; return;
    case TN_U16: *(uint16_t *)dst = (uint16_t)s->i; return;
    case TN_U32: *(uint32_t *)dst = (uint32_t)s->i; return;
    default: store_over_bridge(s, dtype, dst);
    }
}

/* A number that no int64 holds has its bits there, and its value in `re`. */
static void load_over_bridge(int32_t dtype, const void *src, tn_scalar *ret) {
    _Alignas(16) unsigned char known_value[16];
    tni_bridge b = tni_dtype_bridge(dtype, TN_I64);
    tni_bridge_decode(&b, src, known_value, 1);
    tni_scalar_load(b.dtype, known_value, ret);
    if (dtype == TN_U64) ret->re = (double)(uint64_t)ret->i;
}

void tni_scalar_load(int32_t dtype, const void *src, tn_scalar *ret) {
    switch (dtype) {
    case TN_BOOL: *ret = tn_scalar_bool(*(const uint8_t *)src); return;
    case TN_U8: *ret = tn_scalar_int(*(const uint8_t *)src); return;
    case TN_I8: *ret = tn_scalar_int(*(const int8_t *)src); return;
    case TN_I16: *ret = tn_scalar_int(*(const int16_t *)src); return;
    case TN_I32: *ret = tn_scalar_int(*(const int32_t *)src); return;
    case TN_I64: *ret = tn_scalar_int(*(const int64_t *)src); return;
    case TN_F16: *ret = tn_scalar_float((double)tni_from_f16(*(const uint16_t *)src)); return;
    case TN_BF16:
        *ret = tn_scalar_float((double)tni_float_of((uint32_t) * (const uint16_t *)src << 16));
        return;
    case TN_F32: *ret = tn_scalar_float((double)*(const float *)src); return;
    case TN_F64: *ret = tn_scalar_float(*(const double *)src); return;
    case TN_C64:
        *ret = tn_scalar_complex((double)((const float *)src)[0], (double)((const float *)src)[1]);
        return;
    case TN_C128:
        *ret = tn_scalar_complex(((const double *)src)[0], ((const double *)src)[1]);
        return;
    default: load_over_bridge(dtype, src, ret);
    }
}

tn_status tni_check_scalar_fits(const tn_scalar *value, int32_t dtype) {
    static const double most[] = {[TN_U8] = 255.0,
                                  [TN_I8] = 127.0,
                                  [TN_I16] = 32767.0,
                                  [TN_I32] = 2147483647.0,
                                  [TN_I64] = 9223372036854775807.0,
                                  [TN_F16] = 65504.0,
                                  [TN_BF16] = 3.3895313892515355e38,
                                  [TN_F32] = FLT_MAX,
                                  [TN_F64] = DBL_MAX,
                                  [TN_U16] = 65535.0,
                                  [TN_U32] = 4294967295.0,
                                  [TN_U64] = 18446744073709551615.0};
    static const char *const names[] = {[TN_U8] = "uint8_t",         [TN_I8] = "int8_t",
                                        [TN_I16] = "int16_t",        [TN_I32] = "int",
                                        [TN_I64] = "int64_t",        [TN_F16] = "c10::Half",
                                        [TN_BF16] = "c10::BFloat16", [TN_F32] = "float",
                                        [TN_F64] = "double",         [TN_U16] = "uint16_t",
                                        [TN_U32] = "uint32_t",       [TN_U64] = "uint64_t"};
    int32_t to = tn_dtype_category(dtype);
    bool fits = true, sign = dtype != TN_U8 && !is_wide_unsigned(dtype);
    if (to == TN_CAT_COMPLEX || to == TN_CAT_BOOL) return TN_OK;
    if (dtype >= TN_COUNT(most) || most[dtype] == 0.0) return TN_OK;
    if (value->kind == TN_CAT_COMPLEX && value->im != 0.0) fits = false;
    if (to == TN_CAT_FLOAT) {
        if (isfinite(value->re) && fabs(value->re) > most[dtype]) fits = false;
    } else if (value->kind >= TN_CAT_FLOAT) {
        bool below = sign ? trunc(value->re) < -most[dtype] - 1.0 : value->re < 0.0;
        if (!(trunc(value->re) <= most[dtype]) || below) fits = false;
    } else if (tn_dtype_size(dtype) < 8) {
        int64_t m = (int64_t)most[dtype];
        if (value->i > m || value->i < (sign ? -m - 1 : -m)) fits = false;
        if (tn_scalar_is_beyond(value)) fits = false;
    } else if (sign && tn_scalar_is_beyond(value)) {
        fits = false;
    }
    if (fits) return TN_OK;
    return tn_fail(TN_E_STATE, -1, "value cannot be converted to type %s without overflow",
                   names[dtype]);
}

/* ---- Names --------------------------------------------------------------------------------------*/

const char *tni_type_text(int32_t dtype) {
    static const char *const names[] = {
        [TN_BOOL] = "Bool",
        [TN_U8] = "Byte",
        [TN_I8] = "Char",
        [TN_I16] = "Short",
        [TN_I32] = "Int",
        [TN_I64] = "Long",
        [TN_F16] = "Half",
        [TN_BF16] = "BFloat16",
        [TN_F32] = "Float",
        [TN_F64] = "Double",
        [TN_C64] = "ComplexFloat",
        [TN_C128] = "ComplexDouble",
        [TN_U16] = "UInt16",
        [TN_U32] = "UInt32",
        [TN_U64] = "UInt64",
        [TN_F8_E4M3FN] = "Float8_e4m3fn",
        [TN_F8_E5M2] = "Float8_e5m2",
        [TN_F8_E4M3FNUZ] = "Float8_e4m3fnuz",
        [TN_F8_E5M2FNUZ] = "Float8_e5m2fnuz",
        [TN_F8_E8M0FNU] = "Float8_e8m0fnu",
        [TN_C32] = "ComplexHalf",
    };
    if (dtype >= 0 && dtype < TN_COUNT(names)) return names[dtype];
    const char *name = tn_dtype_name(dtype);
    return name ? name : "?";
}
