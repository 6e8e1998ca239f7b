/* facts.h: what shim.c sees of the plugin that it stands in front of, for the program to judge. Both are
 * built together, so this is no interface for anybody else. */
#ifndef TENON_CONFORM_FACTS_H
#define TENON_CONFORM_FACTS_H

#include <tenon/plugin.h>

enum { CF_FACT_ROWS = 4096, CF_FACT_TEXT = 512, CF_FACT_NAME = 64 };

/* The environment variables that name the plugin's library and the device under test to the shim, and
 * the function by which the program finds what it saw. */
#define CF_LIBRARY_VARIABLE "TENON_CONFORM_LIBRARY"
#define CF_DEVICE_VARIABLE "TENON_CONFORM_DEVICE"
#define CF_FACTS_SYMBOL "cf_shim_facts"

/* A registered kernel; the plugin may reuse the memory of its rows, so the name is copied. */
typedef struct cf_fact_row {
    char op[CF_FACT_NAME];
    tn_kernel_row row;
} cf_fact_row;

typedef struct cf_facts {
    int32_t entered;                   /* the entry function returned TN_OK */
    int32_t early;                     /* registrations while the entry function ran */
    tn_plugin plugin;                  /* what it filled in */
    tn_device_desc device;             /* what it registered for the device under test */
    int32_t devices;                   /* device kinds that it registered */
    int32_t nrows, bad_rows;           /* kernels; those without a name or a function */
    uint32_t row_size;                 /* of the rows, as it says */
    cf_fact_row rows[CF_FACT_ROWS];    /* as many as fit */
    int64_t bytes, allocations, frees; /* of the device under test, now */
} cf_facts;

typedef const cf_facts *(*cf_facts_fn)(void);

#endif
