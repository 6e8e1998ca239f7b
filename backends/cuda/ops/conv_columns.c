/* conv_columns.c: convolutions as products of matrices. Images are unfolded into a matrix (channels *
 * taps, columns), whose columns are the places of windows, and products with it are cuBLAS's:
 *
 *     forward             y = w @ columns
 *     gradient of images  columns = transposed w @ y, then folded
 *     gradient of w       w = y @ transposed columns
 *
 * A window of one tap and stride leaves the images as they are. */
#include "conv_ways.h"
#include "gemm.h"

static cuda_float_kernels unfold_kernels = CUDA_FLOAT_KERNELS(conv, conv_unfold),
                          fold_kernels = CUDA_FLOAT_KERNELS(conv, conv_fold);

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t at_least_one(int64_t x) { return x > 1 ? x : 1; }

/* Bytes of an element, and of one in the type that sums are computed in. */
static int64_t item_of(const tn_call *call) {
    return call->dtype == TN_F64 ? 8 : call->dtype == TN_F32 ? 4 : 2;
}
static bool is_half(const tn_call *call) { return call->dtype == TN_F16 || call->dtype == TN_BF16; }

static bool is_plain(const cuda_conv *c) {
    bool plain = c->taps == 1;
    for (int d = 0; d < 3; d++) plain &= c->s.stride[d] == 1 && c->s.pad[d] == 0;
    return plain;
}

/* ---- Products for all images and groups --------------------------------------------------------*/

/* A matrix of the first image and group, and the way to those of others, in elements. */
typedef struct spread {
    cuda_matrix m;
    int64_t image, group;
} spread;

/* A batch runs over images or groups, whichever are more. */
typedef struct batch {
    int64_t images, groups;
    double beta;
    bool widened; /* c has the type that sums are computed in */
} batch;

static cuda_matrix pick(const spread *s, const batch *b, int64_t i, int64_t item) {
    bool by_image = b->images >= b->groups;
    cuda_matrix m = s->m;
    m.data = (char *)m.data + i * (by_image ? s->group : s->image) * item;
    m.batch = by_image ? s->image : s->group;
    return m;
}

static tn_status multiply(const tn_call *call, const cuda_conv *conv, const spread *a,
                          const spread *b, const spread *c, const batch *by) {
    bool by_image = by->images >= by->groups;
    int64_t inner = by_image ? by->images : by->groups, outer = by_image ? by->groups : by->images;
    int64_t item = item_of(call), to = by->widened ? cuda_sum_bytes(call) : item;
    tn_status st = TN_OK;
    for (int64_t i = 0; i < outer && st == TN_OK; i++) {
        const cuda_matrix ma = pick(a, by, i, item), mb = pick(b, by, i, item),
                          mc = pick(c, by, i, to);
        const cuda_product p = {.a = &ma,
                                .b = &mb,
                                .c = &mc,
                                .n = inner,
                                .alpha = 1,
                                .beta = by->beta,
                                .widened = by->widened,
                                .tf32 = cuda_option_value(CUDA_CUDNN_TF32) != 0,
                                .room = conv->room};
        st = cuda_gemm_product(call, &p);
    }
    return st;
}

/* ---- Pieces ------------------------------------------------------------------------------------*/

/* The matrix of columns of some images, or of some places of one image. */
typedef struct piece {
    void *matrix;
    int64_t image, images, place, places;
} piece;

static int64_t columns_of(const piece *p) { return room_mul(p->images, p->places); }

/* The largest piece: what there is room for. */
static tn_status start_piece(const tn_call *call, const cuda_conv *c, piece *ret_piece) {
    int64_t column = room_mul(at_least_one(room_mul3(c->groups, c->ci, c->taps)), item_of(call));
    int64_t room = least(at_least_one(cuda_settings_conv_bytes() / column), INT32_MAX);
    piece *p = ret_piece;
    *p = (piece){NULL, 0, at_least_one(least(room / c->places, c->images)), 0, c->places};
    if (room < c->places) p->places = room;
    return room_scratch(call, columns_of(p), (size_t)column, &p->matrix);
}

/* The piece from an image and place on, no larger than `most`. */
static piece cut_piece(const cuda_conv *c, const piece *most, int64_t image, int64_t place) {
    return (piece){most->matrix, image, least(most->images, c->images - image), place,
                   least(most->places, c->places - place)};
}

static tn_status unfold(const tn_call *call, const cuda_conv *c, const piece *p) {
    int64_t channels = c->groups * c->ci;
    cuda_columns_args a = {.s = c->s,
                           .x = cuda_images_of(c->x),
                           .matrix = p->matrix,
                           .columns = columns_of(p),
                           .places = (uint32_t)p->places,
                           .first = (uint32_t)p->place,
                           .channels = (uint32_t)channels};
    if (channels == 0 || a.columns == 0) return TN_OK;
    a.x.data = (char *)a.x.data + p->image * a.x.image * item_of(call);
    uint32_t threads = cuda_conv_threads(a.columns, &a.tiles);
    return cuda_launch(call, cuda_float_kernel(call, unfold_kernels), channels * a.tiles, threads,
                       &a);
}

/* ---- Forward -----------------------------------------------------------------------------------*/

/* Fills what is made with the bias of its channels, to which products are added then. */
static tn_status put_bias(const tn_call *call, const cuda_conv *c, const tn_view *made) {
    int64_t shape[3] = {made->shape[0], made->shape[1], 1}, planes[3], each[3];
    if (!c->bias) return TN_OK;
    for (int32_t d = 2; d < made->ndim; d++) shape[2] *= made->shape[d];
    for (int32_t d = 2; d >= 0; d--) {
        planes[d] = d == 2 ? 1 : planes[d + 1] * shape[d + 1];
        each[d] = d == 1 ? c->bias->strides[0] : 0;
    }
    tn_view to = *made, from = *c->bias;
    to.ndim = from.ndim = 3;
    to.shape = from.shape = shape;
    to.strides = planes;
    from.strides = each;
    return cuda_copy_view(call, &to, &from);
}

static tn_status forward_piece(const tn_call *call, const cuda_conv *c, const spread *w,
                               const piece *p) {
    int64_t k = c->ci * c->taps, columns = columns_of(p), image = c->groups * c->co * c->places;
    char *y = (char *)c->y->data + (p->image * image + p->place) * item_of(call);
    const spread matrix = {{p->matrix, k, p->places, columns, 1, 0}, p->places, k * columns};
    const spread to = {{y, c->co, p->places, c->places, 1, 0}, image, c->co * c->places};
    const batch by = {p->images, c->groups, c->bias ? 1 : 0, false};
    tn_status st = unfold(call, c, p);
    return st == TN_OK ? multiply(call, c, w, &matrix, &to, &by) : st;
}

tn_status cuda_columns_forward(const tn_call *call, const cuda_conv *c) {
    int64_t k = c->ci * c->taps;
    spread w = {{NULL, c->co, k, k, 1, 0}, 0, c->co * k};
    piece most;
    tn_status st = cuda_conv_packed(call, c->w, &w.m.data);
    if (st == TN_OK) st = put_bias(call, c, c->y);
    if (st != TN_OK) return st;
    if (is_plain(c) && tn_view_is_contiguous(c->x)) {
        const spread x = {
            {c->x->data, k, c->places, c->places, 1, 0}, c->groups * k * c->places, k * c->places};
        const spread y = {{c->y->data, c->co, c->places, c->places, 1, 0},
                          c->groups * c->co * c->places,
                          c->co * c->places};
        const batch by = {c->images, c->groups, c->bias ? 1 : 0, false};
        return multiply(call, c, &w, &x, &y, &by);
    }
    st = start_piece(call, c, &most);
    for (int64_t i = 0; i < c->images; i += most.images)
        for (int64_t place = 0; place < c->places && st == TN_OK; place += most.places) {
            const piece p = cut_piece(c, &most, i, place);
            st = forward_piece(call, c, &w, &p);
        }
    return st;
}

/* ---- The gradient of the images ----------------------------------------------------------------*/

/* Some groups, or some channels of one group, of some images. */
typedef struct slab {
    void *matrix;
    int64_t image, images, group, groups, channel, channels;
} slab;

static tn_status start_slab(const tn_call *call, const cuda_conv *c, slab *ret_slab) {
    int64_t channel = room_mul3(c->taps, c->places, cuda_sum_bytes(call)), all = c->groups * c->ci;
    int64_t room = at_least_one(cuda_settings_conv_bytes() / channel); /* channels of an image */
    slab *s = ret_slab;
    *s = (slab){NULL, 0, least(room / all, c->images), 0, c->groups, 0, c->ci};
    s->images = least(at_least_one(s->images), at_least_one(INT32_MAX / c->places));
    if (room < all) {
        s->groups = 1;
        s->channels = least(room, c->ci);
    }
    return room_scratch(call, room_mul3(s->images, s->groups, s->channels), (size_t)channel,
                        &s->matrix);
}

static tn_status fold(const tn_call *call, const cuda_conv *c, const slab *s, const void *bias) {
    int64_t channels = s->groups * s->channels, first = s->group * c->ci + s->channel;
    int64_t item = item_of(call), image = c->groups * c->ci * c->pixels;
    char *x = (char *)c->x->data + (s->image * image + first * c->pixels) * item;
    cuda_columns_args a = {.s = c->s,
                           .x = {x, image, c->pixels, {0, 0, 0}},
                           .matrix = s->matrix,
                           .bias = bias ? (const char *)bias + first * item : NULL,
                           .columns = s->images * c->places,
                           .places = (uint32_t)c->places,
                           .channels = (uint32_t)channels};
    uint32_t threads = cuda_conv_threads(c->pixels, &a.tiles);
    return cuda_launch(call, cuda_float_kernel(call, fold_kernels), s->images * channels * a.tiles,
                       threads, &a);
}

/* The matrices of a slab: transposed w and y. */
static void read_slab(const tn_call *call, const cuda_conv *c, const slab *s, const void *w,
                      const void *y, spread *ret_w, spread *ret_y) {
    int64_t k = c->ci * c->taps, item = item_of(call), image = c->groups * c->co * c->places;
    const char *from_w = (const char *)w + (s->group * c->co * k + s->channel * c->taps) * item;
    const char *from_y = (const char *)y + (s->image * image + s->group * c->co * c->places) * item;
    *ret_w =
        (spread){{(void *)(uintptr_t)from_w, s->channels * c->taps, c->co, 1, k, 0}, 0, c->co * k};
    *ret_y = (spread){
        {(void *)(uintptr_t)from_y, c->co, c->places, c->places, 1, 0}, image, c->co * c->places};
}

static tn_status input_slab(const tn_call *call, const cuda_conv *c, const slab *s, const void *w,
                            const void *y, const void *bias) {
    spread a, b;
    int64_t rows = s->channels * c->taps, columns = s->images * c->places;
    const spread matrix = {{s->matrix, rows, c->places, columns, 1, 0}, c->places, rows * columns};
    const batch by = {s->images, s->groups, 0, true};
    read_slab(call, c, s, w, y, &a, &b);
    tn_status st = multiply(call, c, &a, &b, &matrix, &by);
    return st == TN_OK ? fold(call, c, s, bias) : st;
}

static tn_status input_plain(const tn_call *call, const cuda_conv *c, const void *w,
                             const void *y) {
    const slab whole = {NULL, 0, c->images, 0, c->groups, 0, c->ci};
    const spread x = {{c->x->data, c->ci, c->pixels, c->pixels, 1, 0},
                      c->groups * c->ci * c->pixels,
                      c->ci * c->pixels};
    const batch by = {c->images, c->groups, c->bias ? 1 : 0, false};
    spread a, b;
    tn_status st = put_bias(call, c, c->x);
    read_slab(call, c, &whole, w, y, &a, &b);
    return st == TN_OK ? multiply(call, c, &a, &b, &x, &by) : st;
}

tn_status cuda_columns_input(const tn_call *call, const cuda_conv *c) {
    void *w = NULL, *y = NULL, *bias = NULL;
    slab most;
    tn_status st = cuda_conv_packed(call, c->w, &w);
    if (st == TN_OK) st = cuda_conv_packed(call, c->y, &y);
    if (st == TN_OK && is_plain(c)) return input_plain(call, c, w, y);
    if (st == TN_OK && c->bias) st = cuda_conv_packed(call, c->bias, &bias);
    if (st == TN_OK) st = start_slab(call, c, &most);
    if (st != TN_OK) return st;
    for (slab s = most; s.image < c->images; s.image += most.images) {
        s.images = least(most.images, c->images - s.image);
        for (s.group = 0; s.group < c->groups; s.group += most.groups)
            for (s.channel = 0; s.channel < c->ci && st == TN_OK; s.channel += most.channels) {
                s.channels = least(most.channels, c->ci - s.channel);
                st = input_slab(call, c, &s, w, y, bias);
            }
    }
    return st;
}

/* ---- The gradient of the weight ----------------------------------------------------------------*/

/* y of a piece as (channels, columns): a copy in `room`, unless it is that already. */
static tn_status collect(const tn_call *call, const cuda_conv *c, const piece *p, const void *y,
                         void *room, spread *ret_y) {
    int64_t channels = c->groups * c->co, columns = columns_of(p), item = item_of(call);
    char *from = (char *)(uintptr_t)y + (p->image * channels * c->places + p->place) * item;
    *ret_y = (spread){{room, c->co, columns, columns, 1, 0}, 0, c->co * columns};
    if (p->images == 1) {
        *ret_y = (spread){{from, c->co, columns, c->places, 1, 0}, 0, c->co * c->places};
        return TN_OK;
    }
    int64_t shape[3] = {channels, p->images, p->places};
    int64_t to[3] = {columns, p->places, 1}, strides[3] = {c->places, channels * c->places, 1};
    tn_view target = *c->y, source = *c->y;
    target.ndim = source.ndim = 3;
    target.shape = source.shape = shape;
    target.strides = to;
    source.strides = strides;
    target.data = room;
    source.data = from;
    return cuda_copy_view(call, &target, &source);
}

/* The gradient so far, in `sum`; in the type that sums are computed in where it is `widened`. */
typedef struct gradient {
    void *sum, *room;
    const void *y;
    bool widened;
} gradient;

static tn_status weight_piece(const tn_call *call, const cuda_conv *c, const gradient *g,
                              const piece *p) {
    int64_t k = c->ci * c->taps, columns = columns_of(p);
    const spread matrix = {{p->matrix, columns, k, 1, columns, 0}, 0, k * columns};
    const spread w = {{g->sum, c->co, k, k, 1, 0}, 0, c->co * k};
    const batch by = {1, c->groups, p->image || p->place ? 1 : 0, g->widened};
    spread y;
    tn_status st = unfold(call, c, p);
    if (st == TN_OK) st = collect(call, c, p, g->y, g->room, &y);
    return st == TN_OK ? multiply(call, c, &y, &matrix, &w, &by) : st;
}

/* Memory for the parts of a gradient: half precision is not summed up in half precision. */
static tn_status start_gradient(const tn_call *call, const cuda_conv *c, const piece *most,
                                gradient *ret_gradient) {
    gradient *g = ret_gradient;
    void *y = NULL;
    int64_t room = room_mul3(c->groups, c->co, columns_of(most));
    bool once = most->images >= c->images && most->places == c->places;
    *g = (gradient){c->w->data, NULL, NULL, is_half(call) && !once};
    tn_status st = cuda_conv_packed(call, c->y, &y);
    g->y = y;
    if (st == TN_OK && g->widened)
        st = room_scratch(call, c->w->numel, (size_t)cuda_sum_bytes(call), &g->sum);
    if (st == TN_OK && most->images > 1)
        st = room_scratch(call, room, (size_t)item_of(call), &g->room);
    return st;
}

/* Without images the product has no columns, and makes zeros. */
tn_status cuda_columns_weight(const tn_call *call, const cuda_conv *c) {
    piece most;
    gradient g;
    tn_status st = start_piece(call, c, &most);
    if (st == TN_OK) st = start_gradient(call, c, &most, &g);
    if (st != TN_OK) return st;
    for (int64_t i = 0; i == 0 || i < c->images; i += most.images)
        for (int64_t place = 0; place < c->places && st == TN_OK; place += most.places) {
            const piece p = cut_piece(c, &most, i, place);
            st = weight_piece(call, c, &g, &p);
        }
    if (st != TN_OK || !g.widened) return st;
    return cuda_cast_packed(call, g.sum, TN_F32, c->w->data, call->dtype, c->w->numel);
}
