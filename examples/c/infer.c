/* infer.c: runs a network that was exported as a .tng file, without Python.
 *
 *     cc infer.c $(pkg-config --cflags --libs tenon) -o infer
 *     ./infer net.tng image.f32
 *
 * The second file holds the values of all inputs, one behind the other, row-major, as the machine
 * writes them. A first size that is free is taken to be 1, another one to be what it was when the
 * network was exported. Prints the outputs, one per line. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <tenon/error.h>
#include <tenon/program.h>

enum { MOST = 8 };

/* The next input, read from the file. */
static tn_status read_input(const tn_program *p, int32_t i, FILE *file, tn_tensor **ret_tensor) {
    tn_program_slot slot;
    int64_t shape[TN_MAX_DIMS], bytes;
    tn_status st = tn_program_input_at(p, i, &slot);
    if (st) return st;
    bytes = tn_dtype_size(slot.dtype);
    for (int32_t d = 0; d < slot.ndim; d++) {
        shape[d] = slot.shape[0] < 0 && d == 0 ? 1 : tn_program_size_seen(p, i, d);
        if (__builtin_mul_overflow(bytes, shape[d], &bytes)) return TN_E_MEMORY;
    }
    void *data = malloc((size_t)bytes + 1);
    if (!data) return TN_E_MEMORY;
    if (fread(data, 1, (size_t)bytes, file) != (size_t)bytes)
        st = tn_fail(TN_E_VALUE, -1, "input '%s' needs %" PRId64 " bytes more", slot.name, bytes);
    if (!st) st = tn_tensor_from_data(slot.dtype, slot.ndim, shape, data, ret_tensor);
    free(data);
    return st;
}

static tn_status print_output(const tn_tensor *t) {
    const tn_device cpu = {0, 0};
    int64_t n = tn_tensor_numel(t);
    if (tn_tensor_dtype(t) != TN_F32 || tn_tensor_device(t).slot != cpu.slot)
        return tn_fail(TN_E_DTYPE, -1, "this program prints float32 alone");
    float *data = malloc(sizeof *data * (size_t)(n + 1));
    if (!data) return TN_E_MEMORY;
    tn_status st = tn_tensor_read(t, data, sizeof *data * (uint64_t)n);
    for (int64_t i = 0; i < n && !st; i++) printf("%s%.9g", i ? " " : "", (double)data[i]);
    printf("\n");
    free(data);
    return st;
}

static tn_status infer(const char *path, FILE *file) {
    tn_program *p = NULL;
    tn_tensor *in[MOST] = {NULL}, *out[MOST] = {NULL};
    tn_status st = tn_program_load(path, &p);
    if (st) goto out;
    int32_t n = tn_program_inputs(p), m = tn_program_outputs(p);
    if (n > MOST || m > MOST) {
        st = tn_fail(TN_E_VALUE, -1, "at most %d inputs and outputs", (int)MOST);
        goto out;
    }
    for (int32_t i = 0; i < n; i++)
        if ((st = read_input(p, i, file, &in[i]))) goto out;
    if ((st = tn_program_run(p, in, n, out, m))) goto out;
    for (int32_t i = 0; i < m; i++)
        if ((st = print_output(out[i]))) goto out;
out:
    for (int i = 0; i < MOST; i++) tn_tensor_unref(&in[i]);
    for (int i = 0; i < MOST; i++) tn_tensor_unref(&out[i]);
    tn_program_unref(&p);
    return st;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: infer NET.tng INPUTS\n");
        return 2;
    }
    FILE *file = fopen(argv[2], "rb");
    if (!file) {
        fprintf(stderr, "infer: %s cannot be read\n", argv[2]);
        return 1;
    }
    tn_status st = infer(argv[1], file);
    fclose(file);
    if (st) fprintf(stderr, "infer: %s\n", tn_error_last()->message);
    return st != TN_OK;
}
