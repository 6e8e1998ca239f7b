/* join_lanes.h: what the threads of a block found, joined: by shuffles inside a warp, through shared
 * memory beyond it. The order depends on the numbers of threads alone. All threads take part. */
#ifndef CUDA_JOIN_LANES_H
#define CUDA_JOIN_LANES_H

#include "device.h"

/* The value of the thread whose number in the warp differs in the bits of `by`. */
template <typename V> TMPL_INLINE V lanes_swap(V x, int by) {
    return (V)__shfl_xor_sync(0xffffffffu, x, by);
}
template <typename V> TMPL_INLINE tmpl_complex<V> lanes_swap(tmpl_complex<V> x, int by) {
    return tmpl_complex<V>(lanes_swap(x.re, by), lanes_swap(x.im, by));
}

/* Joins the `to / from` threads of a warp that are `from` apart; from and to are powers of two. */
template <typename V, typename F> TMPL_INLINE V lanes_join(V x, int from, int to, F join) {
    for (int by = to / 2; by >= from; by /= 2) x = join(x, lanes_swap(x, by));
    return x;
}

/* Rows: joins `lanes` neighbouring threads, a power of two, in all of them. `room` has a place for
 * each warp. */
template <typename V, typename F> TMPL_INLINE V lanes_join_row(V *room, V x, int lanes, F join) {
    x = lanes_join(x, 1, lanes < 32 ? lanes : 32, join);
    if (lanes <= 32) return x;
    int warp = (int)threadIdx.x / 32, warps = lanes / 32, first = warp & ~(warps - 1);
    __syncthreads();
    if (threadIdx.x % 32 == 0) room[warp] = x;
    __syncthreads();
    x = room[first];
    for (int i = 1; i < warps; i++) x = join(x, room[first + i]);
    return x;
}

/* Columns: thread t has N values of columns N * (t % width) .. , `width` a power of two up to 32. A
 * warp's go to `room`, which holds N * CUDA_BLOCK; lanes_column then joins a column's. */
template <int N, typename V, typename F>
TMPL_INLINE void lanes_put_columns(V *room, V *x, int width, F join) {
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int k = 0; k < N; k++) {
        x[k] = lanes_join(x[k], width, 32, join);
        if (lane < width) room[(warp * width + lane) * N + k] = x[k];
    }
    __syncthreads();
}
template <int N, typename V, typename F>
TMPL_INLINE V lanes_column(const V *room, int column, int width, F join) {
    V x = room[column];
    int warps = (int)blockDim.x / 32;
    for (int i = 1; i < warps; i++) x = join(x, room[i * width * N + column]);
    return x;
}

#endif
