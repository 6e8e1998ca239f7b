/* tenon/error.h: what went wrong, one record per thread. */
#ifndef TENON_ERROR_H
#define TENON_ERROR_H

#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Valid until the thread's next failing call. */
typedef struct tn_error {
    tn_status code;
    int32_t arg;         /* position of the argument in the signature, or -1 */
    const char *op;      /* operator name, or "" */
    const char *message; /* never NULL */
    const char *detail;  /* shapes and dtypes of the arguments, or "" */
} tn_error;

TN_API const tn_error *tn_error_last(void);
TN_API const char *tn_status_text(tn_status code);

/* Records a failure and returns `code`; for C programs that extend the library. */
TN_API tn_status tn_fail(tn_status code, int32_t arg, const char *fmt, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

#ifdef __cplusplus
}
#endif
#endif
