/* tenon/ops_meta.h: operators as data, for language bindings.
 *
 * A binding does not call the C functions of tenon/ops.h: it fills an operator's argument struct
 * (tn_<op>_args of tenon/op_args.h) from what its language passes, following the field table below,
 * and hands it to tn_op_invoke. Fields that hold results are left NULL, or name the tensors to write
 * into: the out= forms, and the in-place forms with the first input itself. */
#ifndef TENON_OPS_META_H
#define TENON_OPS_META_H

#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tn_field_kind {
    TN_F_TENSOR,     /* tn_view *; never NULL */
    TN_F_TENSOR_OPT, /* tn_view * or NULL */
    TN_F_TENSORS,    /* tn_views */
    TN_F_OPERAND,    /* tn_view *: a tensor, or a number as a 0-d tensor with TN_W_SCALAR */
    TN_F_INT,        /* int64_t */
    TN_F_INT_OPT,    /* tn_opt_int */
    TN_F_DIM,        /* int64_t, wrapped by the first tensor's rank before anything else runs */
    TN_F_DIM_OPT,    /* tn_opt_int, wrapped when given */
    TN_F_INTS,       /* tn_ints */
    TN_F_DIMS,       /* tn_ints; not given or empty = all; wrapped by whoever reads it */
    TN_F_BOOL,       /* int64_t 0 or 1 */
    TN_F_FLOAT,      /* double */
    TN_F_FLOAT_OPT,  /* tn_opt_float */
    TN_F_SCALAR,     /* tn_scalar */
    TN_F_SCALAR_OPT, /* tn_scalar, kind TN_SCALAR_NONE when not given */
    TN_F_DTYPE,      /* int64_t slot; -1 when not given */
    TN_F_DEVICE,     /* int64_t: slot << 8 | index; -1 when not given */
    TN_F_FORMAT,     /* int64_t tn_memory_format */
    TN_F_STR,        /* const char * or NULL */
    TN_F_GENERATOR,  /* tn_generator * or NULL */
    TN_F_OUT,        /* tn_view *: given by out= or the in-place form, else allocated by core */
    TN_F_OUTS        /* tn_views: a list result */
} tn_field_kind;

typedef struct tn_field {
    const char *name;
    uint16_t kind;
    uint16_t offset; /* in the argument struct */
    uint16_t fixed;  /* int[N]: N (a single int is repeated); Tensor(int8): TNI_FIXED_DTYPE + slot;
                     * a composite's index or mask: TNI_FIXED_ANY; a bool: TNI_FIXED_GATE or 0 */
    uint16_t flags;  /* TNI_FIELD_* */
    const char *deflt; /* default as Python text, NULL: required */
} tn_field;
#define TNI_FIXED_DTYPE 1 /* of a tensor argument that has a dtype of its own */
#define TNI_FIXED_ANY 0xffffu
#define TNI_FIXED_GATE 0xfffeu /* where it is false the operator writes to none of its arguments */
#define TNI_FIELD_KWONLY 0x1u
#define TNI_FIELD_SAVED 0x2u        /* the gradient reads it */
#define TNI_FIELD_DIFF 0x4u         /* a gradient flows to this input */
#define TNI_FIELD_MUTATED 0x8u      /* written by the operator (running statistics) */
#define TNI_FIELD_SAVED_SHAPE 0x10u /* the gradient reads its geometry and dtype only */
#define TNI_FIELD_OPTIONAL 0x20u    /* may be missing; of a list, its entries */
#define TNI_FIELD_PARAM 0x40u       /* a number that the pointwise formula takes */
#define TNI_FIELD_BOOL_INPUT 0x80u  /* a bool operand that takes no part in promotion */
/* A saved tensor is kept only when one of these inputs wants a gradient; no reader named: always. */
#define TNI_FIELD_READERS_SHIFT 8
#define TNI_FIELD_READER(input) (0x100u << (input))

/* Facts of an operator as a whole. */
#define TNI_OP_CONTIGUOUS 0x1u    /* inputs are made packed before the kernel runs */
#define TNI_OP_LIST_OUT 0x2u      /* returns a list of tensors: rets[0] is a tn_tensor_list */
#define TNI_OP_CAST 0x4u          /* structured: floating inputs are converted to compute */
#define TNI_OP_DYNAMIC 0x8u       /* the kernel calls resize_output */
#define TNI_OP_INPLACE_ONLY 0x10u /* fill_, copy_, ...: the first input is the output */
#define TNI_OP_NO_INPLACE 0x20u
#define TNI_OP_NO_OUT 0x40u
#define TNI_OP_RANDOM 0x80u
#define TNI_OP_HAS_DIM 0x100u    /* some field is a TN_F_DIM or TN_F_DIM_OPT */
#define TNI_OP_BOOL_INPUT 0x200u /* some operand has TNI_FIELD_BOOL_INPUT */
#define TNI_OP_PACKED 0x400u     /* pointwise: the result's dtype is the operands', or bool */
#define TNI_OP_FLOATING 0x800u   /* pointwise: computes in floating dtypes only */
#define TNI_OP_TAKES_OUT 0x1000u /* composite: writes an out= or in-place target itself */
#define TNI_OP_ADDED 0x2000u     /* a plugin's */
#define TNI_OP_WRITES 0x4000u    /* some argument is written, and is not the result */
#define TNI_OP_POINTERS 0x8000u  /* some argument is a text or a list */
#define TNI_OP_WIDE 0x20000u     /* composite: half precision is computed in float32 */
#define TNI_OP_NUMBERS                                                                             \
    0x40000u /* pointwise: takes Scalar arguments, which must fit the compute dtype */
#define TNI_OP_FITS 0x80000u     /* pointwise: so must its operands that are numbers */
#define TNI_OP_SPARSE 0x1000000u /* takes sparse tensors as they come */
#define TNI_OP_BITS 0x100000u    /* right on the bits of unsigned numbers, taken for signed ones */
#define TNI_OP_ORDER 0x200000u   /* compares its arguments: see [Unsigned 64 bits] in fallback.c */
#define TNI_OP_NO_ZEROS 0x10000u /* its gradient takes NULL for results that no gradient came to */
/* What out= tensors must be: of the result's dtype; apart from the inputs in part, or at all. */
#define TNI_OP_OUT_EXACT 0x400000u
#define TNI_OP_OUT_WHOLE 0x800000u
#define TNI_OP_OUT_APART 0x2000000u
#define TNI_OP_OUT_ITSELF 0x40000000u /* apart, but for the first input itself */
#define TNI_OP_OUT_FILLED 0x10000000u /* one of as many elements keeps its shape */
#define TNI_OP_OUT_DTYPE 0x20000000u  /* its dtype is the one that is computed in */
#define TNI_OP_FOLLOWS 0x4000000u     /* results lie channels last where an image does */
#define TNI_OP_FIRST 0x8000000u       /* of several results the first alone has a history */

typedef struct tn_op_meta {
    const tn_op_info *info;
    const tn_field *fields;  /* arguments in order, then results */
    const uint8_t *in_field; /* field index of each tensor input */
    const uint8_t *out_field;
    int32_t nfields;
    int32_t nin;  /* tensor inputs; a list counts once */
    int32_t nout; /* results */
    int32_t args_bytes;
    uint32_t flags; /* TNI_OP_* */
    uint32_t reserved;
    const char *doc;
    const char *vmap; /* of a plugin's operator: "pointwise", "batch", or NULL */
} tn_op_meta;

/* The operator of that C name; one that a plugin added is called "acme::gelu", and the plugin that
 * offers it is loaded. TN_E_VALUE or TN_E_PLUGIN when there is none. */
TN_API tn_status tn_op_meta_find(const char *name, tn_op_meta *ret_meta);
/* The names of the operators that plugins have added, 0 .. until NULL; kept for ever. */
TN_API const char *tn_op_added_at(int32_t i);
/* Runs an operator. args: its struct, which the call may change. rets: nout new references, or one
 * tn_tensor_list where the operator returns a list. */
TN_API tn_status tn_op_invoke(const tn_op_info *op, void *args, tn_tensor **rets);

#ifdef __cplusplus
}
#endif
#endif
