/* binding_priv.h: what the files of the extension module share.
 *
 * A Python tensor is its tn_tensor: the object's head stands in the TN_HOST_PREFIX bytes in front of
 * the struct, 16 for the garbage collector, 16 for PyObject. While the head is alive it owns one
 * reference of the core. When Python drops its last reference but the core does not, and the object
 * has a dict, weak references or a class of its own, the head goes dormant: it keeps them, and the
 * next wrap brings the same object back.
 *
 * Functions return a new reference or NULL with an exception set unless they say otherwise. */
#ifndef TENON_BINDING_PRIV_H
#define TENON_BINDING_PRIV_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/autograd.h>
#include <tenon/device_ext.h>
#include <tenon/error.h>
#include <tenon/ops_meta.h>
#include <tenon/runtime.h>
#include <tenon/tensor.h>

#define TNP_COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))
#define TNP_LIKELY(x) __builtin_expect(!!(x), 1)
#define TNP_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* A function of one of CPython's calling conventions, as tables hold it. */
#define TNP_CFUNC(f) ((PyCFunction)(void (*)(void))(f))

/* A slot of a type. CPython keeps functions as void *, which ISO C has no conversion for. */
#define TNP_SLOT(id, f)                                                                            \
    { id, __extension__(void *)(f) }

/* Operators with more elements than this run without the interpreter's lock. */
enum { TNP_LOCK_FREE_NUMEL = 32768 };

/* ---- module.c: one set of everything, made at import and kept ----------------------------------*/
typedef struct tnp_state {
    PyTypeObject *tensor, *size, *dtype, *device, *layout, *format, *generator;
    PyTypeObject *plain; /* the class whose instances nobody overrides: tensor, NULL under a mode */
    PyObject *prefix;    /* "tenon", or "torch" for programs run as PyTorch ones */
    PyObject *str_out, *str_requires_grad, *str_pin_memory, *str_layout; /* interned */
    bool overrides; /* some class may override calls; see overrides.c */
    uint64_t host_offset;
    tn_device new_device; /* where new tensors are made, see tnp_new_device() */
    int new_device_set;   /* it is not the CPU, or how many `with device` there are, or both */
} tnp_state;
extern tnp_state tnp;

/* A Python function tenon.<module>.<name>, imported when first needed; borrowed. */
/* Where the calling thread makes new tensors: the device of its innermost `with`, or the default.
 * Asked only where tnp.new_device_set is not 0. */
tn_device tnp_new_device(void);
bool tnp_enter_device(tn_device device);
void tnp_leave_device(void);
PyObject *tnp_helper(const char *module, const char *name);

/* ---- The tensor object -------------------------------------------------------------------------*/
enum { TNP_HEAD_BYTES = 16 /* of the garbage collector, in front of PyObject */ };
static inline tn_tensor *tnp_of(PyObject *o) {
    return (tn_tensor *)(void *)((char *)o + sizeof(PyObject));
}
static inline PyObject *tnp_object(tn_tensor *t) {
    return (PyObject *)(void *)((char *)t - sizeof(PyObject));
}
static inline tn_host_slots *tnp_host(tn_tensor *t) {
    return (tn_host_slots *)(void *)((char *)t + tnp.host_offset);
}
/* A tensor of no subclass, where no mode wants to see calls. */
static inline bool tnp_is_plain(PyObject *o) { return Py_TYPE(o) == tnp.plain; }
/* A tensor of vmap: it shows one element and stands for many. */
bool tnp_stands_for_many(PyObject *o);
/* Says of such a tensor that `what` takes the memory of one; true, with the error set. */
bool tnp_refuse_many(PyObject *o, const char *what);

static inline bool tnp_is_tensor(PyObject *o) {
    return Py_TYPE(o) == tnp.tensor || PyType_IsSubtype(Py_TYPE(o), tnp.tensor);
}
/* Makes the Python object of t; takes over the caller's reference, also on failure. */
PyObject *tnp_wrap(tn_tensor *t);
/* The same for a tensor that has no object yet, as an instance of `type`. */
PyObject *tnp_wrap_as(tn_tensor *t, PyTypeObject *type);
/* Tensors of classes with __torch_dispatch__, made of others (wrapped.c, tenon/wrapped.h): what the
 * core keeps of one, by which its aliases are instances that share a dict. */
typedef struct tnp_wrapped {
    PyTypeObject *type;
    PyObject *dict;
} tnp_wrapped;
PyObject *tnp_wrap_wrapped(tn_tensor *t);                        /* as tnp_wrap */
PyObject *tnp_wrap_wrapped_as(tn_tensor *t, PyTypeObject *type); /* as tnp_wrap_as */
bool tnp_watches(void); /* a dispatch mode sees the thread's calls */
int tnp_wrapped_item(const tn_tensor *t, tn_scalar *ret_scalar); /* 0, or -1: exception */
bool tnp_wrapped_init(PyObject *module);
/* None for NULL. */
PyObject *tnp_wrap_opt(tn_tensor *t);
/* Starts garbage collection of an object that has come to hold Python references. */
void tnp_track(PyObject *self);
bool tnp_tensor_init(PyObject *module);
/* Hook of the core; see tn_host_hooks. */
void tnp_tensor_dying(tn_tensor *t);
/* Checks that `type` adds no C fields, since an instance has room for none. */
bool tnp_check_layout(PyTypeObject *type);
bool tnp_check_size(PyTypeObject *type);
/* Number of elements along dimension 0, or an exception for 0-d tensors. */
Py_ssize_t tnp_len(PyObject *self);
extern PyMethodDef tnp_tensor_methods[];     /* tensor_methods.c */
extern PyMethodDef tnp_conversion_methods[]; /* tensor_convert.c */
extern PyGetSetDef tnp_tensor_getset[];      /* tensor_attrs.c */
extern PyMethodDef tnp_autograd_methods[];   /* autograd_py.c */

/* ---- plugins.c ---------------------------------------------------------------------------------*/
/* Hooks of the core; see tn_host_hooks. */
tn_status tnp_admit_plugin(const char *name, const char *path, int32_t ours);
tn_status tnp_find_plugins(void);

/* ---- error.c -----------------------------------------------------------------------------------*/
/* Turns the thread's error record into an exception; NULL always. */
void *tnp_raise(tn_status st);
/* The same; 0 when st is TN_OK, else -1. */
int tnp_check(tn_status st);
/* TypeError with the name of o's type in place of the text's %U; NULL always. */
void *tnp_type_error(const char *text, PyObject *o);
void *tnp_error_about(PyObject *kind, const char *text,
                      PyObject *o); /* the same, of another class */
bool tnp_error_init(PyObject *module);

/* ---- dtype_type.c ------------------------------------------------------------------------------*/
typedef struct tnp_device_object {
    PyObject_HEAD char name[24];
    int32_t index; /* -1: not given */
} tnp_device_object;
bool tnp_dtype_init(PyObject *module);
PyObject *tnp_dtype_object(int32_t slot);
/* The slot of a dtype object or of Python's float, int, bool, complex; -1 when it is neither. */
int32_t tnp_dtype_slot(PyObject *o);
PyObject *tnp_device_object_of(tn_device device);
/* ---- tensor_sparse.c ---------------------------------------------------------------------------*/
/* The error for a sparse tensor where its memory was asked for; NULL. */
PyObject *tnp_no_memory(PyObject *self, const char *what);
/* A result of a deferred call gets its memory, before anybody asks for its layout; -1: an exception. */
int tnp_settle_late(const tn_tensor *t);
static inline int tnp_settle(const tn_tensor *t) {
    return TNP_UNLIKELY(tn_tensor_view(t)->word & TN_W_LAYOUT) ? tnp_settle_late(t) : 0;
}
/* The same elements without history, of any layout. */
tn_status tnp_alias_of(tn_tensor *t, tn_tensor **ret_tensor);
PyObject *tnp_nnz(PyObject *self, PyObject *unused);
PyObject *tnp_sparse_dim(PyObject *self, PyObject *unused);
PyObject *tnp_dense_dim(PyObject *self, PyObject *unused);
PyObject *tnp_is_coalesced(PyObject *self, PyObject *unused);

PyObject *tnp_layout_object(int32_t layout);
int32_t tnp_layout_value(PyObject *o); /* -1 when it is none */
/* In one of the sparse layouts. */
static inline bool tnp_is_sparse(const tn_tensor *t) {
    int32_t layout = tn_tensor_layout(t);
    return layout != TN_LAYOUT_STRIDED && layout < TN_LAYOUT_COUNT;
}
PyObject *tnp_format_object(int32_t format);
int32_t tnp_format_value(PyObject *o); /* -1 when it is none */
/* A device from an object, a string or an index. False: exception set. */
bool tnp_device_from(PyObject *o, tn_device *ret_device);
static inline bool tnp_is_device_like(PyObject *o) {
    return Py_TYPE(o) == tnp.device || PyUnicode_Check(o);
}
PyObject *tnp_size_from(const int64_t *v, int32_t n);
/* A size that is read of a tensor: while a program is recorded, what sees how it is compared. */
PyObject *tnp_size_number(int64_t v);
bool tnp_size_init(PyObject *module);
bool tnp_generator_init(PyObject *module);
bool tnp_memory_init(PyObject *module);
bool tnp_program_init(PyObject *module);
/* Somebody asks for what guards of a compiled function do not compare. -1: exception. */
int tnp_program_look(const char *what);
bool tnp_quick_init(PyObject *module);

/* ---- convert.c ---------------------------------------------------------------------------------*/
/* A number: float, int, bool, complex, NumPy scalar or 0-d tensor. 1: done; 0: not a number, no
 * exception; -1: exception. */
int tnp_scalar_from(PyObject *o, tn_scalar *ret_scalar);
PyObject *tnp_scalar_to(const tn_scalar *s);
/* The one element of t as a Python number; as a scalar, OverflowError where an int64 does not hold it. */
PyObject *tnp_item_of(const tn_tensor *t);
int tnp_item_from(const tn_tensor *t, tn_scalar *ret_scalar); /* 0, or -1: exception */
int tnp_read_item(const tn_tensor *t, tn_scalar *ret_scalar);
/* An integer that is not a bool: int, NumPy integer, 0-d integer tensor. Results as above. */
int tnp_int_from(PyObject *o, int64_t *ret_value);
/* The generator in a Generator object, or NULL; borrowed, no exception. */
tn_generator *tnp_generator_of(PyObject *o);
PyObject *tnp_generator_object(tn_generator *gen); /* takes over gen */
bool tnp_is_numpy_scalar(PyObject *o);
bool tnp_is_numpy_array(PyObject *o);
/* numpy, or NULL with ImportError naming what needs it; borrowed. */
PyObject *tnp_numpy(const char *what);

/* ---- elements.c: tensors as Python numbers -----------------------------------------------------*/
bool tnp_is_element(int32_t dtype); /* Python has numbers for it */
/* The element of `dtype` at p as a Python number. */
PyObject *tnp_element(int32_t dtype, const void *p);
/* Bytes from one element of a dimension to the next. A stride that nobody walks may be any number: 0
 * where its bytes are none. */
static inline int64_t tnp_step(const tn_view *v, int32_t dim) {
    int64_t bytes;
    bool counted = !__builtin_mul_overflow(v->strides[dim], tn_view_itemsize(v), &bytes);
    return counted && v->numel > 0 ? bytes : 0;
}
PyObject *tnp_tolist(const tn_tensor *t);

/* ---- factory.c: tensors out of Python data -----------------------------------------------------*/
/* A new tensor from numbers, nested sequences, arrays and buffers. copy: 1 always, 0 never, -1 only
 * when needed. */
tn_tensor *tnp_tensor_from(PyObject *data, int32_t dtype, int copy);
bool tnp_factory_init(PyObject *module);

/* ---- to.c --------------------------------------------------------------------------------------*/
/* What Tensor.to() makes of a tensor. */
typedef struct tnp_target {
    int32_t dtype; /* -1: as it is */
    bool moves;
    tn_device device;
    bool copy, non_blocking;
    int32_t format;
} tnp_target;
/* NULL on failure. */
tn_tensor *tnp_to_target(tn_tensor *t, const tnp_target *to);
tn_tensor *tnp_to(tn_tensor *t, int32_t dtype, const tn_device *device, bool copy, int32_t format);
/* An alias without history. */
tn_tensor *tnp_detached(tn_tensor *t);

/* ---- dlpack.c ----------------------------------------------------------------------------------*/
tn_tensor *tnp_from_buffer(PyObject *o, bool copy);
tn_tensor *tnp_from_dlpack(PyObject *o);
/* Whether an object has __dlpack__; -1: exception. */
int tnp_speaks_dlpack(PyObject *o);
PyObject *tnp_to_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *tnp_dlpack_device(PyObject *self, PyObject *unused);
int tnp_getbuffer(PyObject *self, Py_buffer *view, int flags);
void tnp_releasebuffer(PyObject *self, Py_buffer *view);
/* Drops the reference to a tensor that something foreign held. */
void tnp_release_tensor(void *ctx);

/* ---- opcall.c ----------------------------------------------------------------------------------*/
enum { TNP_MAX_ARGS_BYTES = 768, TNP_MAX_RETS = 8, TNP_MAX_KEYWORDS = 24 };
enum tnp_form { TNP_FORM_FUNCTION, TNP_FORM_METHOD, TNP_FORM_INPLACE };
#define TN_PY_TORCH 0x1u
#define TN_PY_METHOD 0x2u
#define TN_PY_NN 0x4u
#define TN_PY_INPLACE 0x8u
#define TN_PY_OUT 0x10u

/* One parameter of one overload. */
typedef struct tnp_param {
    PyObject *name; /* interned */
    const tn_field *field;
    bool kwonly;
    bool required;
    bool number; /* of a tensor: a number may stand for it */
} tnp_param;

typedef struct tnp_overload {
    const char *op_name;
    tn_op_meta meta;
    tnp_param *params;
    int32_t nparams;
    int32_t npositional;
    int32_t self_param;   /* which parameter a method's self is */
    int32_t spread[2];    /* as function, as method: the parameter that may be spread, or -1 */
    uint32_t forms;       /* TN_PY_* */
    uint32_t numbers;     /* bit i: parameter i may be a number; bit 31: all tensors may be */
    const char *old;      /* orders of its arguments that were given up: opold.c; or NULL */
    bool creates;         /* takes requires_grad=, layout=, pin_memory= */
    bool ready;           /* defaults and names have been prepared */
    unsigned char *image; /* the argument struct filled with defaults */
    int64_t *image_ints;  /* the lists in it */
    PyTypeObject *result; /* named results, or NULL */
} tnp_overload;

typedef struct tnp_group {
    const char *name;
    char *inplace_name;
    char *doc;
    uint32_t forms; /* TN_PY_* of all overloads together */
    int32_t n;
    tnp_overload *overloads;
} tnp_group;

/* Storage of one call. Nothing in it is initialised but the counters. */
enum { TNP_MAX_INTS = 256, TNP_MAX_BOXES = 4, TNP_MAX_HELD = 24 };
typedef struct tnp_frame {
    int32_t nints, nboxes, nheld, nblocks;
    int64_t work; /* the largest element count seen */
    PyObject *held[TNP_MAX_HELD];
    void *blocks[TNP_MAX_HELD];
    tn_scalar_box boxes[TNP_MAX_BOXES];
    int64_t ints[TNP_MAX_INTS];
    _Alignas(16) unsigned char args[TNP_MAX_ARGS_BYTES];
} tnp_frame;
static inline void tnp_frame_init(tnp_frame *f) {
    f->nints = f->nboxes = f->nheld = f->nblocks = 0;
    f->work = 0;
}
void tnp_frame_free(tnp_frame *f);
/* Takes o over until the frame is freed; false with an exception. */
bool tnp_hold(tnp_frame *f, PyObject *o);

bool tnp_ops_init(PyObject *module);
/* Method tables of all operators for the tensor type, after `extra`; kept for ever. */
PyMethodDef *tnp_op_methods(PyMethodDef *const *extra, int nextra);
PyObject *tnp_group_call(int32_t group, enum tnp_form form, PyObject *self, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames);
PyObject *tnp_call(tnp_group *g, enum tnp_form form, PyObject *self, PyObject *const *args,
                   Py_ssize_t nargs, PyObject *kwnames);
/* opadded.c: operators of plugins. */
bool tnp_added_init(PyObject *module);
/* ffi_scope.c: C functions; ffi_priv.h has the rest. */
bool tnp_ffi_init(PyObject *module);
/* The type of an operator's results, by its name in Python: None where they have no names. */
PyObject *tnp_result_type(PyObject *unused, PyObject *name);
/* An in-place form called as a function: the first argument is what a method's self is. */
PyObject *tnp_group_call_inplace(int32_t group, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames);
typedef PyObject *(*tnp_call_fn)(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                                 PyObject *kwnames);
/* The trampolines of one group, NULL where there is no such form, the parameters of its functions
 * and methods as inspect.signature reads them, and what help() says behind the first sentence. */
typedef struct tnp_calls {
    tnp_call_fn function, method, inplace, function_inplace;
    const char *function_sig, *method_sig, *inplace_sig, *facts;
} tnp_calls;
/* overrides.c. 1: an argument's class has taken the call, *ret_result is its result or NULL for an
 * exception; 0: none does. self may be NULL. */
int tnp_override(const char *name, enum tnp_form form, PyObject *self, PyObject *const *args,
                 Py_ssize_t nargs, PyObject *kwnames, PyObject **ret_result);
bool tnp_overrides(PyObject *o);
/* The call as a tuple and a dict. */
bool tnp_pack_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                   PyObject **ret_args, PyObject **ret_kwargs);
/* A function that is no operator: whether a mode has taken the call, as above. */
bool tnp_mode_takes(const char *name, PyObject *args, PyObject *kwargs, PyObject **ret_result);
/* A result of a method that is no operator, as an instance of self's class. Takes over `result`. */
PyObject *tnp_same_class(PyObject *self, PyObject *result);
bool tnp_overrides_init(PyObject *module);
bool tnp_overload_has(const tnp_overload *o, enum tnp_form form);
/* Runs an operator on a filled struct; gives the interpreter's lock away for large work. */
tn_status tnp_invoke(const tn_op_info *op, void *args, tn_tensor **rets, int64_t work);

/* opparse.c: fills f->args for one overload. 1: done; 0: the arguments do not fit, *why says why;
 * -1: exception. */
enum tnp_mismatch_kind {
    TNP_BAD_TYPE,
    TNP_BAD_ELEMENT,
    TNP_MISSING,
    TNP_TOO_MANY,
    TNP_UNKNOWN_KEYWORD,
    TNP_TWICE,
    TNP_BAD_LENGTH
};
typedef struct tnp_mismatch {
    enum tnp_mismatch_kind kind;
    int32_t param;
    int32_t position; /* of the argument as the caller counts, from 1; 0: keyword */
    PyObject *value;  /* borrowed; of a bad element: its type */
    int64_t element;
    bool unboxed; /* a tensor was taken for a number */
} tnp_mismatch;
typedef struct tnp_extras {
    PyObject *out;
    bool requires_grad, pin_memory;
} tnp_extras;
bool tnp_overload_prepare(tnp_overload *o);
int tnp_bind(tnp_overload *o, enum tnp_form form, PyObject *self, PyObject *const *args,
             Py_ssize_t nargs, PyObject *kwnames, tnp_frame *f, tnp_extras *extras,
             tnp_mismatch *why);
/* Raises TypeError from the mismatch of the only overload, or a list of the overloads. */
void *tnp_bind_error(const tnp_group *g, const char *name, enum tnp_form form,
                     PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                     const tnp_mismatch *why);
/* opold.c. 1: the arguments stand in an order that was given up, *ret_result is the call's result; 0:
 * they do not; -1: exception, *ret_result is NULL. */
int tnp_call_old(tnp_group *g, enum tnp_form form, PyObject *self, PyObject *const *args,
                 Py_ssize_t nargs, PyObject *kwnames, PyObject **ret_result);
/* oplayout.c: a factory that is asked for a sparse layout. Results as above. */
int tnp_call_laid(tnp_group *g, PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                  PyObject *kwnames, PyObject **ret_result);
/* One value into its field. Results as tnp_bind. */
int tnp_convert(const tnp_param *param, PyObject *value, tnp_frame *f, tnp_mismatch *why);

/* ---- numbers.c ---------------------------------------------------------------------------------*/
bool tnp_numbers_init(void);
/* An operator called by the binding, with its defaults at hand. Callers keep the argument struct in
 * TNP_DIRECT_ARGS_BYTES of their stack. */
enum { TNP_DIRECT_ARGS_BYTES = 256 };
typedef struct tnp_direct {
    const char *name;
    tnp_overload o;
    uint16_t in[3], out; /* offsets of the first inputs and of the first result */
} tnp_direct;
/* Finds and readies it. False: exception. */
bool tnp_direct_ready(tnp_direct *d);
PyObject *tnp_add(PyObject *a, PyObject *b);
PyObject *tnp_sub(PyObject *a, PyObject *b);
PyObject *tnp_mul(PyObject *a, PyObject *b);
PyObject *tnp_truediv(PyObject *a, PyObject *b);
PyObject *tnp_floordiv(PyObject *a, PyObject *b);
PyObject *tnp_mod(PyObject *a, PyObject *b);
PyObject *tnp_pow(PyObject *a, PyObject *b, PyObject *mod);
PyObject *tnp_matmul(PyObject *a, PyObject *b);
PyObject *tnp_and(PyObject *a, PyObject *b);
PyObject *tnp_or(PyObject *a, PyObject *b);
PyObject *tnp_xor(PyObject *a, PyObject *b);
PyObject *tnp_lshift(PyObject *a, PyObject *b);
PyObject *tnp_rshift(PyObject *a, PyObject *b);
PyObject *tnp_iadd(PyObject *a, PyObject *b);
PyObject *tnp_isub(PyObject *a, PyObject *b);
PyObject *tnp_imul(PyObject *a, PyObject *b);
PyObject *tnp_itruediv(PyObject *a, PyObject *b);
PyObject *tnp_ifloordiv(PyObject *a, PyObject *b);
PyObject *tnp_imod(PyObject *a, PyObject *b);
PyObject *tnp_ipow(PyObject *a, PyObject *b, PyObject *mod);
PyObject *tnp_iand(PyObject *a, PyObject *b);
PyObject *tnp_ior(PyObject *a, PyObject *b);
PyObject *tnp_ixor(PyObject *a, PyObject *b);
PyObject *tnp_ilshift(PyObject *a, PyObject *b);
PyObject *tnp_irshift(PyObject *a, PyObject *b);
PyObject *tnp_neg(PyObject *a);
PyObject *tnp_pos(PyObject *a);
PyObject *tnp_abs(PyObject *a);
PyObject *tnp_invert(PyObject *a);
int tnp_bool(PyObject *a);
PyObject *tnp_int(PyObject *a);
PyObject *tnp_float(PyObject *a);
PyObject *tnp_index(PyObject *a);
PyObject *tnp_richcompare(PyObject *a, PyObject *b, int op);

/* ---- index.c -----------------------------------------------------------------------------------*/
bool tnp_index_init(PyObject *module);
PyObject *tnp_getitem(PyObject *self, PyObject *key);
int tnp_setitem(PyObject *self, PyObject *key, PyObject *value);
/* A new tensor over the same elements, recorded as a view; NULL: exception. */
tn_tensor *tnp_alias(tn_tensor *t);

/* ---- share.c, group.c --------------------------------------------------------------------------*/
bool tnp_group_init(PyObject *module);
bool tnp_share_init(PyObject *module);
PyObject *tnp_share_memory(PyObject *self, PyObject *unused);
PyObject *tnp_is_shared(PyObject *self, PyObject *unused);

/* ---- memory.c ----------------------------------------------------------------------------------*/
/* Moves *inout_t into pinned memory; on failure, with an exception, it becomes NULL. */
bool tnp_pin(tn_tensor **inout_t, int32_t device_slot);
PyObject *tnp_pin_memory(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *tnp_is_pinned(PyObject *self, PyObject *args, PyObject *kwargs);

/* ---- modes.c, node_type.c, autograd_py.c, function.c, saved_hooks.c ----------------------------*/
bool tnp_modes_init(PyObject *module);
bool tnp_function_init(PyObject *module);
bool tnp_module_call_init(PyObject *module);
bool tnp_autograd_init(PyObject *module);
bool tnp_node_init(PyObject *module);
bool tnp_saved_hooks_init(PyObject *module);
extern PyTypeObject *tnp_node_type;
/* What a Node object and the ctx of a Function begin with. */
typedef struct tnp_node_head {
    PyObject_HEAD tn_node *node;
} tnp_node_head;
/* _edge_tensor(node, number): a tensor whose history is that output of the node. */
PyObject *tnp_edge_tensor(PyObject *unused, PyObject *args);
PyObject *tnp_hook_leaf_end(PyObject *unused, PyObject *args);
/* The collector's visit of what a tensor or a node keeps alive: a tn_reach_fn whose arg this is. */
typedef struct tnp_visitor {
    visitproc visit;
    void *arg;
    int result;
} tnp_visitor;
void tnp_visit_reached(void *visitor, void *data, void (*release)(void *data));
PyObject *tnp_node_object(tn_node *node); /* keeps a reference to node */
void tnp_release_ctx(void *ctx);          /* the release function of a Function's node */
/* A callback's result: NULL or None is no tensor. Takes over `result`. */
tn_status tnp_hook_result(PyObject *result, tn_tensor **ret_tensor);
/* Handle with remove() for a registered hook; takes over it. */
PyObject *tnp_hook_object(tn_hook *hook);
/* Drops a Python object from whatever thread; the release function of hooks. */
void tnp_release_object(void *o);
/* Borrowed tensors as a tuple, None for NULL. */
PyObject *tnp_tuple_of(tn_tensor *const *v, int64_t n);

#endif
