/* to.c: a tensor as another dtype, on another device, in another layout: what Tensor.to() is made of. */
#include "binding_priv.h"

static tnp_direct to_copy = {.name = "_to_copy"};
static tnp_direct detach = {.name = "detach"};

static void *field_at(unsigned char *args, const tnp_direct *d, const char *name) {
    for (int32_t i = 0; i < d->o.meta.nfields; i++)
        if (strcmp(d->o.meta.fields[i].name, name) == 0) return args + d->o.meta.fields[i].offset;
    return NULL;
}

static tn_tensor *call_one(tnp_direct *d, unsigned char *args, tn_tensor *t) {
    tn_tensor *ret[2] = {NULL};
    *(tn_tensor **)(void *)(args + d->in[0]) = t;
    tn_status st = tnp_invoke(d->o.meta.info, args, ret, tn_tensor_numel(t));
    return st == TN_OK ? ret[0] : tnp_raise(st);
}

/* The format that the strides speak of: of one channel, or of single places, both may be told. */
static int32_t format_of(const tn_tensor *t) {
    if (!tn_tensor_lies_channels_last(t)) return TN_FORMAT_CONTIGUOUS;
    return tn_tensor_ndim(t) == 4 ? TN_FORMAT_CHANNELS_LAST : TN_FORMAT_CHANNELS_LAST_3D;
}

tn_tensor *tnp_to_target(tn_tensor *t, const tnp_target *to) {
    _Alignas(16) unsigned char args[TNP_DIRECT_ARGS_BYTES];
    tn_device here = tn_tensor_device(t), there = to->device;
    bool moves = to->moves && (there.slot != here.slot || there.index != here.index);
    bool converts = to->dtype >= 0 && to->dtype != tn_tensor_dtype(t);
    bool asks = to->format == TN_FORMAT_CONTIGUOUS || to->format >= TN_FORMAT_CHANNELS_LAST;
    if (asks && tnp_settle(t) < 0) return NULL;
    bool formats = asks && to->format != format_of(t);
    if (!moves && !converts && !formats && !to->copy) return tn_tensor_ref(t);
    if (!tnp_direct_ready(&to_copy)) return NULL;
    memcpy(args, to_copy.o.image, (size_t)to_copy.o.meta.args_bytes);
    *(int64_t *)field_at(args, &to_copy, "dtype") = to->dtype;
    *(int64_t *)field_at(args, &to_copy, "memory_format") = to->format;
    *(int64_t *)field_at(args, &to_copy, "non_blocking") = to->non_blocking;
    if (to->moves)
        *(int64_t *)field_at(args, &to_copy, "device") = (int64_t)there.slot << 8 | there.index;
    return call_one(&to_copy, args, t);
}

tn_tensor *tnp_to(tn_tensor *t, int32_t dtype, const tn_device *device, bool copy, int32_t format) {
    tnp_target to = {.dtype = dtype, .moves = device != NULL, .copy = copy, .format = format};
    if (device) to.device = *device;
    return tnp_to_target(t, &to);
}

tn_tensor *tnp_detached(tn_tensor *t) {
    _Alignas(16) unsigned char args[TNP_DIRECT_ARGS_BYTES];
    if (!tnp_direct_ready(&detach)) return NULL;
    memcpy(args, detach.o.image, (size_t)detach.o.meta.args_bytes);
    return call_one(&detach, args, t);
}
