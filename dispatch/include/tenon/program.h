/* tenon/program.h: programs, graphs of operators that were recorded once and run without the language
 * that they were written in.
 *
 * Recording sees what the dispatcher sees: every operator that the calling thread calls, with its
 * arguments. A program keeps order and effects, so running it does what the recorded calls did: views
 * share memory, writes happen where they happened, random numbers are drawn anew, gradients are
 * recorded when gradients are on. What is no operator (a number that was read out of a tensor, a size)
 * is part of the program as it was; sizes that may differ are found by tn_program_generalize.
 *
 * docs/graphs.md explains the parts and the file. */
#ifndef TENON_PROGRAM_H
#define TENON_PROGRAM_H

#include <tenon/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_program tn_program;

/* ---- Running -----------------------------------------------------------------------------------*/

/* Reads a .tng file; its weights are mapped, and held against their checksums. Loads the plugins whose
 * operators it names. TN_E_VALUE with the place and the fault for anything that is no such file; TN_E_PLUGIN for an
 * operator that is not there. */
TN_API tn_status tn_program_load(const char *path, tn_program **ret_program);
/* The same out of memory, which is copied. */
TN_API tn_status tn_program_parse(const void *bytes, uint64_t n, tn_program **ret_program);
TN_API tn_program *tn_program_ref(tn_program *p);
TN_API void tn_program_unref(tn_program **p);

/* outputs[i]: new references. TN_E_SHAPE, TN_E_DTYPE, TN_E_DEVICE with the input's name when one does
 * not fit. From several threads at once, unless the program writes its own weights. */
TN_API tn_status tn_program_run(const tn_program *p, tn_tensor *const *inputs, int32_t n,
                                tn_tensor **outputs, int32_t m);

/* Groups of nodes that run as one kernel where nothing is recorded for gradients: 0 .. until
 * TN_E_INDEX. */
TN_API tn_status tn_program_fused_at(const tn_program *p, int32_t i, int32_t *ret_first,
                                     int32_t *ret_count);

/* Parts of the program that its devices take as their own ("tn.program/1" of tenon/device.h), in the
 * same way; where sizes are free, at those of the recording. */
TN_API tn_status tn_program_region_at(const tn_program *p, int32_t i, int32_t *ret_first,
                                      int32_t *ret_count);

/* What goes in and comes out. A size of -1 may differ from run to run. */
typedef struct tn_program_slot {
    const char *name; /* lives as long as the program */
    const int64_t *shape;
    int32_t dtype;
    int32_t ndim;
    tn_device device;
    int32_t kind; /* TN_PROGRAM_* of a weight */
    int32_t reserved;
} tn_program_slot;
TN_API int32_t tn_program_inputs(const tn_program *p);
TN_API int32_t tn_program_outputs(const tn_program *p);
TN_API int32_t tn_program_nodes(const tn_program *p);
TN_API tn_status tn_program_input_at(const tn_program *p, int32_t i, tn_program_slot *ret_slot);
TN_API tn_status tn_program_output_at(const tn_program *p, int32_t i, tn_program_slot *ret_slot);
/* The size of input i's dimension dim when the program was recorded, free or not; -1: there is none. */
TN_API int64_t tn_program_size_seen(const tn_program *p, int32_t i, int32_t dim);

/* Tensors that belong to the program, 0 .. until TN_E_INDEX; ret_tensor, a new reference, may be NULL. */
#define TN_PROGRAM_CONSTANT 0 /* nobody changes it: may be computed with in advance */
#define TN_PROGRAM_PARAMETER 1
#define TN_PROGRAM_BUFFER 2
TN_API tn_status tn_program_weight_at(const tn_program *p, int32_t i, tn_program_slot *ret_slot,
                                      tn_tensor **ret_tensor);
/* Puts a tensor of the same dtype, shape and device in a weight's place. Not while the program runs. */
TN_API tn_status tn_program_set_weight(tn_program *p, int32_t i, tn_tensor *t);
/* Text that whoever made the program keeps with it; "" at first. */
TN_API const char *tn_program_note(const tn_program *p);
TN_API tn_status tn_program_set_note(tn_program *p, const char *text);

/* ---- Recording ---------------------------------------------------------------------------------
 * The calling thread's operators become nodes until tn_program_end or _cancel. One recording at a time
 * on a thread. Tensors that come up and were neither declared nor computed become constants; a write
 * to such a tensor fails. */
TN_API tn_status tn_program_begin(tn_program **ret_program);
TN_API tn_status tn_program_add_input(tn_program *p, tn_tensor *t, const char *name);
TN_API tn_status tn_program_add_weight(tn_program *p, tn_tensor *t, const char *name, int32_t kind);
/* Ends the recording: these tensors are what the program computes. On failure it is cancelled. */
TN_API tn_status tn_program_end(tn_program *p, tn_tensors outputs);
TN_API void tn_program_cancel(tn_program *p);
TN_API int tn_program_is_recording(void); /* on the calling thread; not while it pauses */
/* From here on a call that cannot be recorded runs all the same, and tn_program_end says why not. */
TN_API tn_status tn_program_tolerate(tn_program *p);
/* Whether operators are left out for a while: their results may be declared as inputs afterwards. */
TN_API tn_status tn_program_pause(tn_program *p, int on);
/* How the calling thread's recording notes the calls that follow: made with gradients on (1), off (0),
 * or as they are (-1), which holds at first. For code that is run with gradients off so that a rule of
 * the caller's stands for its derivative, which no program has. Returns what held before. */
TN_API int tn_program_note_grad(int on);
/* From here on a call of one of these composite operators becomes the calls that it makes, and with
 * n = -1 that of any composite. It stays one node where it writes to its arguments or into a given
 * result, looks at values, or makes a tensor otherwise than by operators. Other names are passed over. */
TN_API tn_status tn_program_take_apart(tn_program *p, const char *const *names, int32_t n);
/* Whether the recording failed as a gradient that was computed meanwhile reads what the forward pass of
 * a composite has kept: all composites have to become their parts. */
TN_API int tn_program_needs_parts(const tn_program *p);
/* A number of the caller's that the nodes recorded from here on bear; 0 at first. JSON shows it.
 * TN_PROGRAM_SCOPE_NODE: that of the node, in another program that runs, whose call it is. */
#define TN_PROGRAM_SCOPE_NODE (-1)
TN_API tn_status tn_program_set_scope(tn_program *p, int32_t scope);
/* Which value t is, as JSON counts them. */
TN_API tn_status tn_program_value(tn_program *p, tn_tensor *t, int32_t *ret_value);
/* Somebody is about to look at t's values: counted when they depend on inputs or random numbers. */
TN_API void tn_program_note_read(const tn_tensor *t);
/* Somebody is about to read t's sizes: numbers of what is recorded from here on may come from there. */
TN_API void tn_program_note_sizes(const tn_tensor *t);
/* How often values were looked at while the program was recorded: its course may depend on them. */
TN_API int64_t tn_program_reads(const tn_program *p);
/* The host language's line of the first such look, or NULL. */
TN_API const char *tn_program_read_where(const tn_program *p);

/* One look at a value: at weights, too. */
typedef struct tn_program_look {
    int32_t position; /* nodes before it */
    int32_t value;    /* -1: a tensor that is no value of the program */
    const char *where;
    const int32_t *live; /* computed values that somebody beside the recording still held */
    int32_t nlive;
    uint32_t version; /* of the tensor when it was looked at */
    const tn_tensor *tensor;
} tn_program_look;
/* 0 .. until TN_E_INDEX; they live as long as the program. No more than a thousand are kept. */
TN_API tn_status tn_program_look_at(const tn_program *p, int32_t i, tn_program_look *ret_look);

/* Makes sizes free. `other` is a recording of the same function in which dimension `dim` of the inputs
 * named by the bits of `inputs` had another size: whatever differs between the two must follow from it
 * by x * num / den + add. dim -1: that size, or another one that follows from it, is in every dimension of
 * these inputs in which the recordings differ. What follows from a size that is free already is taken to go on as its multiple
 * or as a sum: tn_program_agrees tells whether it does. TN_E_UNSUPPORTED names what does not follow, and
 * p stays as it was. low, high: the sizes that a run accepts. */
TN_API tn_status tn_program_generalize(tn_program *p, const tn_program *other, uint64_t inputs,
                                       int32_t dim, int64_t low, int64_t high, const char *name);
/* Whether `other`, a recording of the same function in which all free sizes of p may differ at once, is
 * what p is at those sizes. TN_E_UNSUPPORTED names what is another. */
TN_API tn_status tn_program_agrees(const tn_program *p, const tn_program *other);

/* The calling thread's modes on which a recording depends, as one number; -1: something looks at its
 * calls (autocast, a recording, a profiler, a layer), or captures them. */
TN_API int tn_program_modes(void);

/* ---- Deferring ---------------------------------------------------------------------------------
 * Between the two (they nest) the calling thread's pointwise calls on larger tensors wait, and run
 * together when something needs one of their results; results have their dtype, shape and strides at
 * once. Bits are those of a program's run. */
TN_API tn_status tn_deferred_begin(void);
/* Runs what waits. */
TN_API tn_status tn_deferred_end(void);
/* How many calls of this thread wait. */
TN_API int32_t tn_deferred_calls(void);

/* ---- Changing and looking ----------------------------------------------------------------------*/
#define TN_PROGRAM_DEAD 0x1u   /* drops what no output and no write needs */
#define TN_PROGRAM_COMMON 0x2u /* computes equal things once */
#define TN_PROGRAM_FOLD 0x4u   /* computes in advance what depends on constants alone */
#define TN_PROGRAM_FREEZE                                                                          \
    0x8u /* first makes constants of weights that the program does not write */
/* Nothing that changes what a run does. Not while another thread uses the program. */
TN_API tn_status tn_program_optimize(tn_program *p, uint32_t passes);
/* Whether everything is defined before it is used and fits its operator; TN_E_VALUE names the node. */
TN_API tn_status tn_program_verify(const tn_program *p);

#define TN_PROGRAM_TEXT 0
#define TN_PROGRAM_DOT 1
#define TN_PROGRAM_JSON 2
/* Free with tn_free. */
TN_API tn_status tn_program_print(const tn_program *p, int32_t form, char **ret_text);

/* ---- Files -------------------------------------------------------------------------------------*/
/* The bytes of a .tng file, equal for equal programs; free with tn_free. TN_E_UNSUPPORTED names what a
 * file cannot hold: a generator. */
TN_API tn_status tn_program_write(const tn_program *p, void **ret_bytes, uint64_t *ret_n);
/* Replaces the file once all is written. */
TN_API tn_status tn_program_save(const tn_program *p, const char *path);

#ifdef __cplusplus
}
#endif
#endif
