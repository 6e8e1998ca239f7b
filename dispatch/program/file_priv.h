/* file_priv.h: the .tng file. All numbers are little-endian.
 *
 *     0   8  magic             8   4  version          12   4  bytes of this header (64)
 *    16   8  place of the graph    24   8  its bytes
 *    32   8  place of the data     40   8  its bytes
 *    48   8  FNV-1a of the graph   56   8  zero
 *
 * The graph is a stream of 32-bit counts and numbers, 64-bit numbers, and texts (count, then bytes), in
 * the order in which write.c puts them and read.c takes them. The data are the weights, row-major, each
 * at a multiple of TNI_FILE_ALIGN from the file's start. docs/graphs.md says what is where.
 *
 * Behind the data come the checksums (CRC-32) of the weights, in their order:
 *
 *     0   8  magic             8   4  how many         12   4  CRC-32 of them
 *    16      32-bit numbers
 *
 * A file without weights has none, nor has one of an earlier Tenon.
 *
 * The parts stand in this order with nothing between them but zeros up to the next multiple, and so do
 * the weights: a byte that is another one is seen, wherever it stands.
 *
 * In version 2 a number that follows from a size says how it goes on from the one before it. In version
 * 3 the outputs are followed by the rules of values: what sizes of results have to follow from. In version
 * 4 there are checksums: a file that ends before them was cut off. A
 * program is written in the oldest version that can hold it, which older readers know. */
#ifndef TENON_FILE_PRIV_H
#define TENON_FILE_PRIV_H

#include <stdint.h>
#include <string.h>

#define TNI_FILE_MAGIC "\x89TNG\r\n\x1a\n"
enum { TNI_FILE_VERSION = 4, TNI_FILE_HEADER = 64, TNI_FILE_ALIGN = 64 };
typedef struct tni_file_header {
    unsigned char magic[8];
    uint32_t version, bytes;
    uint64_t graph_at, graph_n, data_at, data_n, hash, zero;
} tni_file_header;

#define TNI_FILE_SUMS_MAGIC "TNGSUMS\n"
typedef struct tni_file_sums {
    unsigned char magic[8];
    uint32_t count, sum;
} tni_file_sums;

static inline uint64_t tni_file_aligned(uint64_t n) {
    return (n + TNI_FILE_ALIGN - 1) / TNI_FILE_ALIGN * TNI_FILE_ALIGN;
}

static inline uint64_t tni_file_hash(const void *bytes, uint64_t n) {
    const unsigned char *at = bytes;
    uint64_t h = UINT64_C(14695981039346656037);
    for (uint64_t i = 0; i < n; i++) h = (h ^ at[i]) * UINT64_C(1099511628211);
    return h;
}

#endif
