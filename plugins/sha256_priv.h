/* sha256_priv.h: the hash by which a lock file names libraries. */
#ifndef TENON_SHA256_PRIV_H
#define TENON_SHA256_PRIV_H

#include <stdbool.h>

enum { TNI_SHA256_TEXT = 65 }; /* 64 hexadecimal digits and the NUL */

/* SHA-256 of a file's content; false: *ret_why says why it could not be read. */
bool tni_sha256_file(const char *path, char ret_text[TNI_SHA256_TEXT], const char **ret_why);

#endif
