/* conform.h: what the files of the conformance kit share. README.md says how they fit together. */
#ifndef TENON_CONFORM_H
#define TENON_CONFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <tenon/error.h>
#include <tenon/ops_meta.h>
#include <tenon/runtime.h>
#include <tenon/tensor.h>

enum { CF_DIMS = 8, CF_LEVELS = 4, CF_RESULTS = 64 };

/* ---- Text (text.c) -----------------------------------------------------------------------------
 * The kit is a program: when memory for its own books runs out it says so and ends. */
typedef struct cf_text {
    char *s; /* never NULL after the first append */
    size_t n, room;
} cf_text;
void *cf_alloc(size_t bytes); /* zeroed */
/* The list of n elements with room for one more; it has room up to the next power of two. */
void *cf_grow(void *list, int64_t n, size_t size);
char *cf_copy(const char *s);
void cf_add(cf_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cf_add_shape(cf_text *t, int32_t ndim, const int64_t *shape);
void cf_clear(cf_text *t); /* keeps the memory */
void cf_free(cf_text *t);
bool cf_glob(const char *pattern, const char *text);
double cf_seconds(void); /* a clock that only goes forward */

/* ---- The data file (data.c) --------------------------------------------------------------------*/
typedef enum cf_kind { CF_NONE, CF_TENSOR, CF_LIST, CF_INTS, CF_NUMBER, CF_TEXT } cf_kind;

/* An argument of a sample. */
typedef struct cf_value {
    cf_kind kind;
    int32_t dtype; /* tensor: -1, that of the case. CF_TEXT of a DType: the slot */
    int32_t ndim;
    int64_t shape[CF_DIMS];
    bool on_cpu;      /* tensor: whatever the device under test is */
    double low, high; /* tensor: between these are its elements, unless `data` gives them */
    double *data;
    int64_t *ints;
    struct cf_value *items;
    int64_t n; /* of data, ints or items */
    tn_scalar number;
    const char *text;
} cf_value;

typedef struct cf_sample {
    cf_value *values; /* by field of the operator */
    bool grad;        /* for gradients only */
} cf_sample;

enum { CF_FORM_INPLACE = 1, CF_FORM_OUT = 2, CF_UNSET = 4 };

typedef struct cf_op {
    const char *name, *kind;
    uint32_t forms;
    double tol;
    uint32_t dtypes; /* by slot */
    cf_sample *samples;
    int32_t nsamples;
    bool own_grad; /* gradients have samples of their own */
    tn_op_meta meta;
} cf_op;

typedef struct cf_need { /* what a level asks for */
    int32_t level;
    const char *op, *iface; /* one of them is NULL */
    uint32_t dtypes;        /* a kernel for one of these */
} cf_need;

typedef struct cf_tolerance {
    double relative, absolute, epsilon;
} cf_tolerance;

typedef struct cf_data {
    cf_op *ops;
    int32_t nops;
    cf_need *needs;
    int32_t nneeds;
    cf_tolerance tolerances[TN_DTYPE_BUILTIN_COUNT];
} cf_data;

/* Whether two calls differ because they draw numbers. */
bool cf_is_random(const cf_op *op);
/* Reads the file; false, with the reason in `why`. */
bool cf_data_read(const char *path, cf_data *ret_data, cf_text *why);

/* ---- Options and the plan (options.c, plan.c) --------------------------------------------------*/
typedef enum cf_mode {
    CF_ABI,
    CF_SUPPORT,
    CF_TEST,
    CF_GRAD,
    CF_THREADS,
    CF_STREAMS,
    CF_PERF,
    CF_MODES
} cf_mode;
extern const char *const cf_mode_names[CF_MODES];

typedef struct cf_options {
    const char *device, *plugin, *manifest, *json, *junit, *html, *resume;
    const char *ops[32]; /* patterns; none: all */
    int32_t nops;
    uint32_t dtypes; /* by slot */
    uint32_t modes;  /* by cf_mode */
    int32_t level;   /* that must be reached, or -1 */
    int32_t jobs;
    uint64_t seed;
    double timeout;
    bool list, large, worker;
} cf_options;

/* -1: go on; else the exit status to end with. */
int cf_options_read(int argc, char **argv, cf_options *ret_options);

typedef enum cf_status { CF_PENDING, CF_PASSED, CF_FAILED, CF_SKIPPED } cf_status;

/* One line of the plan: what one message to a worker asks for. */
typedef struct cf_row {
    cf_mode mode;
    int32_t op;       /* index, or -1: a check of the device as a whole */
    int32_t dtype;    /* slot, or -1 */
    int32_t check;    /* index of such a check in its mode's table */
    const char *name; /* of the operator or the check */
    cf_status status;
    int64_t cases;
    double ms;
    char *note;  /* what was found out: a way, timings; or NULL */
    char *fails; /* one line each; or NULL */
} cf_row;

typedef struct cf_plan {
    cf_row *rows;
    int32_t n;
} cf_plan;
void cf_plan_make(const cf_options *o, const cf_data *d, cf_plan *ret_plan);
/* "test add float32", the row's name in journals and reports. */
const char *cf_row_name(const cf_row *r, char *dst, size_t size);

/* ---- Cases (values.c, call.c, compare.c) -------------------------------------------------------*/
typedef enum cf_layout {
    CF_PLAIN,
    CF_TRANSPOSED,
    CF_STRIDED,
    CF_OFFSET,
    CF_NEGATIVE,
    CF_EXPANDED
} cf_layout;
typedef enum cf_shaping { CF_AS_IS, CF_0D, CF_EMPTY, CF_BROADCAST, CF_VECTOR } cf_shaping;
typedef enum cf_form { CF_CALL, CF_INPLACE, CF_OUT, CF_OUT_STRIDED, CF_PROGRAM } cf_form;

/* What the kit makes of a sample. */
typedef struct cf_variant {
    const char *name;
    cf_layout layout;
    cf_shaping shaping;
    cf_form form;
    bool special; /* some elements are NaN, infinities and -0 */
    int64_t size; /* CF_VECTOR: elements of every tensor */
} cf_variant;

/* How tensors are made of values. */
typedef struct cf_build {
    const cf_variant *variant;
    tn_device device;
    int32_t dtype;
    uint64_t seed;
    bool wide; /* the CPU's reference: floating tensors in float64 or complex128 */
} cf_build;

/* A tensor in the variant's shape, values and layout. TN_DECLINE: the variant makes no sense here. */
tn_status cf_tensor_make(const cf_value *v, const cf_build *b, int32_t position,
                         tn_tensor **ret_tensor);
/* An empty place for a result like `model` (a CPU tensor) on a device; strided: with gaps. */
tn_status cf_tensor_like(const tn_tensor *model, tn_device device, bool strided,
                         tn_tensor **ret_tensor);

/* A call with everything it owns. */
typedef struct cf_call {
    const cf_op *op;
    unsigned char *args, *used; /* used: the copy that a call may change */
    tn_tensor **tensors;        /* inputs, in order; lists flattened */
    int32_t ntensors;
    void *blocks[64];
    int32_t nblocks;
    tn_tensor *results[CF_RESULTS]; /* and then the inputs that it writes */
    int32_t nresults;
} cf_call;
tn_status cf_call_build(cf_call *c, const cf_op *op, const cf_sample *s, const cf_build *b);
tn_status cf_call_run(cf_call *c, cf_form form, tn_tensor *const *outs);
/* Whether the operator writes into that input. */
bool cf_call_writes(const cf_call *c, const tn_tensor *t);
void cf_call_drop(cf_call *c); /* the results; the call can be made again */
void cf_call_free(cf_call *c);
/* "input[3,4], dim=1" */
void cf_call_describe(const cf_op *op, const cf_sample *s, cf_text *ret_text);

/* Elements on the host: exact integers, or (real, imaginary) pairs. */
typedef struct cf_array {
    int32_t dtype, ndim;
    int64_t shape[TN_MAX_DIMS];
    int64_t n;
    int64_t *ints;
    double *pairs;
} cf_array;
tn_status cf_array_read(const tn_tensor *t, cf_array *ret_array);
void cf_array_free(cf_array *a);
/* What counts as right. */
typedef struct cf_measure {
    cf_tolerance tolerance;
    double factor;
    bool strict; /* NaN and infinities are told apart */
} cf_measure;
/* The measure for results of a row's operator. */
cf_measure cf_measure_of(const cf_data *d, const cf_op *op, int32_t dtype);
/* Whether got is right: each element within tolerance of `wide` (may be NULL) or of `same`. */
bool cf_compare(const cf_array *got, const cf_array *same, const cf_array *wide,
                const cf_measure *m, cf_text *why);
/* Whether two samples of numbers come from one distribution. */
bool cf_same_distribution(const cf_array *a, const cf_array *b, cf_text *why);

/* ---- Running rows, in a worker (worker.c, mode_*.c) --------------------------------------------*/
typedef struct cf_run {
    const cf_options *options;
    const cf_data *data;
    tn_device device;
    const cf_row *row;
    const cf_op *op;
    int64_t cases;
    int32_t nfails;
    cf_text note;
} cf_run;
/* Says what is about to happen, for the case that the worker does not live to tell. */
void cf_at(cf_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void cf_fail(cf_run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The last error's text. */
const char *cf_why(void);

void cf_mode_test(cf_run *r);
void cf_mode_grad(cf_run *r);
void cf_mode_support(cf_run *r);
void cf_mode_perf(cf_run *r);
void cf_mode_threads(cf_run *r);

typedef struct cf_check { /* of a device as a whole */
    const char *name;
    void (*run)(cf_run *r);
} cf_check;
extern const cf_check cf_abi_checks[], cf_streams_checks[]; /* until a NULL name */

/* Bytes of the device that are in use: what went through its alloc and free, and what its "tn.memory/1"
 * says; -1: nobody counts. */
typedef struct cf_held {
    int64_t handed_out, reported;
} cf_held;
void cf_held_count(tn_device device, cf_held *ret_held);
int cf_worker(const cf_options *o, const cf_data *d, cf_plan *p);

/* What is seen through shim.c, which stands between Tenon and the plugin; NULL without it. */
struct cf_facts;
const struct cf_facts *cf_facts_get(void);
const char *cf_facts_why(void); /* there are none */

/* ---- Running workers (run.c, journal.c) and reporting (report.c, html.c, levels.c) -------------*/
typedef struct cf_device_facts { /* what a worker found before anything else ran */
    char *describe, *library;    /* library: NULL when the device came with Tenon */
    bool *met;                   /* by need of the data file */
} cf_device_facts;
/* false, with the reason: the device cannot be loaded. */
bool cf_run_probe(const cf_options *o, const cf_data *d, char **argv, cf_device_facts *ret_facts,
                  cf_text *why);
/* Runs what is pending in worker processes. */
bool cf_run_plan(const cf_options *o, char **argv, cf_plan *p, cf_text *why);
const char *cf_signal_name(int number); /* "SIGSEGV" */
bool cf_journal_open(const cf_options *o, cf_plan *p, cf_text *why);
void cf_journal_add(const cf_row *r);

typedef struct cf_verdict {
    int32_t level; /* -1: none */
    int32_t passed, failed, skipped;
    cf_text missing[CF_LEVELS]; /* what each level lacks */
    const char *describe;       /* the device in words */
} cf_verdict;
void cf_levels_judge(const cf_data *d, const cf_plan *p, const cf_device_facts *facts,
                     cf_verdict *ret_verdict);
void cf_report_fails(const cf_row *r);
void cf_report_close(const cf_options *o, const cf_plan *p, const cf_verdict *v);
bool cf_report_json(const cf_options *o, const cf_plan *p, const cf_verdict *v);
bool cf_report_junit(const cf_options *o, const cf_plan *p, const cf_verdict *v);
bool cf_report_html(const cf_options *o, const cf_data *d, const cf_plan *p, const cf_verdict *v);

/* ---- The device (device.c) ---------------------------------------------------------------------*/
/* Loads the plugin, through the shim where the library is known, and finds the device. */
tn_status cf_device_load(const cf_options *o, tn_device *ret_device);
/* The same, and the path of the library behind it, NULL when it came with Tenon. */
tn_status cf_device_probe(const cf_options *o, const char **ret_library, tn_device *ret_device);
const char *cf_data_path(void);

#endif
