/* conv_geometry.h: the sizes of a convolution, and which pixels and taps meet in it; for every kernel of it. */
#ifndef TENON_CPU_CONV_GEOMETRY_H
#define TENON_CPU_CONV_GEOMETRY_H

#include <stdint.h>

#include <tenon/plugin.h>

#include "common/room.h"

/* Three dimensions always; missing ones have size 1. */
typedef struct geometry {
    int64_t n, groups;
    int64_t ci, co; /* channels of one group */
    int64_t in[3], out[3], k[3];
    int64_t stride[3], pad[3], dilation[3];
    int64_t taps, in_size, out_size; /* products of k, in, out */
} geometry;

static inline void geometry_init(geometry *g, int32_t ndim, const int64_t *in,
                                 const int64_t *weight, const int64_t *out, tn_ints stride,
                                 tn_ints pad, tn_ints dilation, int64_t groups) {
    g->n = in[0];
    g->groups = groups;
    g->ci = weight[1];
    g->co = weight[0] / groups;
    g->taps = g->in_size = g->out_size = 1;
    for (int32_t d = 0; d < 3; d++) {
        int32_t from = d - (3 - (ndim - 2));
        g->in[d] = from < 0 ? 1 : in[from + 2];
        g->out[d] = from < 0 ? 1 : out[from + 2];
        g->k[d] = from < 0 ? 1 : weight[from + 2];
        g->stride[d] = from < 0 ? 1 : stride.v[from];
        g->pad[d] = from < 0 ? 0 : pad.v[from];
        g->dilation[d] = from < 0 ? 1 : dilation.v[from];
        g->taps *= g->k[d];
        g->in_size *= g->in[d];
        g->out_size *= g->out[d];
    }
}

/* How far the window reaches past the end of the image. */
static inline void forward_room(const geometry *g, int64_t *ret_high) {
    for (int d = 0; d < 3; d++) {
        int64_t reach = (g->out[d] - 1) * g->stride[d] + (g->k[d] - 1) * g->dilation[d] + 1;
        ret_high[d] = reach - g->in[d] - g->pad[d] > 0 ? reach - g->in[d] - g->pad[d] : 0;
    }
}

/* Note [Residues]: pixels whose position leaves the same rest when divided by the stride. There are as many
 * kinds as the stride is long, but no more than there are pixels, however long the stride. */
static inline int64_t residues(const geometry *g, int64_t *ret_each) {
    for (int d = 0; d < 3; d++) ret_each[d] = g->stride[d] < g->in[d] ? g->stride[d] : g->in[d];
    return room_mul3(ret_each[0], ret_each[1], ret_each[2]);
}

static inline void residue_at(const int64_t *each, int64_t r, int64_t *ret_residue) {
    ret_residue[0] = r / each[2] / each[1];
    ret_residue[1] = r / each[2] % each[1];
    ret_residue[2] = r % each[2];
}

/* Taps k of one dimension that pixels of residue r meet, with their offsets in the gradient. */
static inline int64_t residue_taps(const geometry *g, int d, int64_t r, int64_t *tap,
                                   int64_t *offset) {
    int64_t n = 0;
    for (int64_t k = 0; k < g->k[d]; k++) {
        int64_t at = r + g->pad[d] - k * g->dilation[d];
        if (at % g->stride[d] != 0) continue;
        tap[n] = k;
        offset[n++] = at / g->stride[d];
    }
    return n;
}

/* How far offsets reach outside of the gradient's planes. */
static inline void backward_room(const geometry *g, int64_t *low, int64_t *high) {
    for (int d = 0; d < 3; d++) {
        int64_t least = g->pad[d] - (g->k[d] - 1) * g->dilation[d];
        int64_t most = (g->in[d] - 1 + g->pad[d]) / g->stride[d];
        low[d] = least < 0 ? (-least + g->stride[d] - 1) / g->stride[d] : 0;
        high[d] = most >= g->out[d] ? most - g->out[d] + 1 : 0;
    }
}

#endif
