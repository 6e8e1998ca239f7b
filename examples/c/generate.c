/* generate.c: lets a language model that was exported as a .tng file go on with a text, without Python.
 *
 *     cc generate.c $(pkg-config --cflags --libs tenon) -o generate
 *     ./generate gpt.tng "once upon" 40
 *
 * The program takes int64 tokens [1, T], which are bytes here, and gives float32 scores [1, T, 256]; T
 * is free within bounds. The likeliest byte comes next. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/error.h>
#include <tenon/program.h>

enum { BYTES = 256, ROOM = 4096 };

/* The likeliest byte behind the text. */
static tn_status next_byte(const tn_program *p, const unsigned char *text, int64_t n,
                           unsigned char *ret_byte) {
    const int64_t shape[2] = {1, n};
    tn_tensor *tokens = NULL, *scores = NULL;
    float *all = malloc(sizeof *all * BYTES * (size_t)n);
    int64_t *ids = malloc(sizeof *ids * (size_t)n);
    tn_status st = all && ids ? TN_OK : TN_E_MEMORY;
    for (int64_t i = 0; i < n && !st; i++) ids[i] = text[i];
    if (!st) st = tn_tensor_from_data(TN_I64, 2, shape, ids, &tokens);
    if (!st) st = tn_program_run(p, &tokens, 1, &scores, 1);
    if (!st) st = tn_tensor_read(scores, all, sizeof *all * BYTES * (uint64_t)n);
    if (!st) {
        const float *last = all + (n - 1) * BYTES;
        int best = 0;
        for (int b = 1; b < BYTES; b++)
            if (last[b] > last[best]) best = b;
        *ret_byte = (unsigned char)best;
    }
    tn_tensor_unref(&tokens);
    tn_tensor_unref(&scores);
    free(all);
    free(ids);
    return st;
}

int main(int argc, char **argv) {
    unsigned char text[ROOM];
    tn_program *p = NULL;
    int64_t n = argc == 4 ? (int64_t)strlen(argv[2]) : 0;
    long more = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    if (n < 1 || more < 1 || n + more > ROOM) {
        fprintf(stderr, "usage: generate GPT.tng TEXT COUNT\n");
        return 2;
    }
    memcpy(text, argv[2], (size_t)n);
    tn_status st = tn_program_load(argv[1], &p);
    for (; more > 0 && !st; more--, n++) st = next_byte(p, text, n, &text[n]);
    if (st)
        fprintf(stderr, "generate: %s\n", tn_error_last()->message);
    else
        printf("%.*s\n", (int)n, (const char *)text);
    tn_program_unref(&p);
    return st != TN_OK;
}
