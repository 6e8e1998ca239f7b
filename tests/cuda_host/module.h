/* module.h: kernels of the host harness, found by module.c and launched by driver.c. */
#ifndef MODULE_H
#define MODULE_H

#include <stddef.h>

enum { HOST_PARAMS = 64 };

struct CUfunc_st {
    const char *name;
    void (*entry)(const void *args);
    size_t bytes; /* of all arguments, one behind the other */
    size_t nparams;
    struct {
        size_t at, bytes;
    } param[HOST_PARAMS];
    const void *image; /* constants of a program that was compiled at run time */
    size_t image_bytes;
    unsigned shared_most; /* bytes that a launch may ask for */
};

#endif
