/* pieces_priv.h: memory of the host that processes share. Needs tensor_priv.h. */
#ifndef TENON_PIECES_PRIV_H
#define TENON_PIECES_PRIV_H

#include "os_priv.h"

/* Part of a segment, or the whole of one. */
typedef struct tni_piece tni_piece;

/* What a piece is found by in another process. */
typedef struct tni_piece_name {
    tni_os_file file;
    uint32_t kind;
    uint32_t granules; /* of the segment */
    uint64_t offset, bytes;
} tni_piece_name;

/* Memory of any content. */
tn_status tni_piece_new(uint64_t bytes, tni_piece **ret_piece);
void *tni_piece_data(const tni_piece *p);
void tni_piece_free(void *piece);
/* Each name keeps the memory until it is opened once. *ret_file: an open file that the caller closes
 * when the name was opened, or -1: the other process finds it by itself. */
tn_status tni_piece_send(tni_piece *p, tni_piece_name *ret_name, int32_t *ret_file);
/* NULL: *ret_why says why. */
tni_piece *tni_piece_open(const tni_piece_name *name, int32_t file, const char **ret_why);

#endif
