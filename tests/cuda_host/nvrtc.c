/* nvrtc.c: the stand-in for NVRTC. It compiles nothing: the harness finds kernels by name in its own
 * library. What it is given is looked at, so that a plugin that forgets a header is found out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvrtc_program {
    char log[200];
} * nvrtc_program;

int nvrtcVersion(int *ret_major, int *ret_minor);
int nvrtcCreateProgram(nvrtc_program *ret_program, const char *source, const char *name, int n,
                       const char *const *headers, const char *const *names);
int nvrtcDestroyProgram(nvrtc_program *program);
int nvrtcCompileProgram(nvrtc_program program, int n, const char *const *options);
int nvrtcGetProgramLogSize(nvrtc_program program, size_t *ret_bytes);
int nvrtcGetProgramLog(nvrtc_program program, char *ret_text);
int nvrtcGetCUBINSize(nvrtc_program program, size_t *ret_bytes);
int nvrtcGetCUBIN(nvrtc_program program, char *ret_data);

enum { FAILED = 6 };
static const char cubin[] = "a cubin of the host harness";

int nvrtcVersion(int *ret_major, int *ret_minor) {
    *ret_major = 13;
    *ret_minor = 0;
    return 0;
}

/* The first file that the text includes and that was not handed over. */
static void look_for_includes(nvrtc_program p, const char *text, int n, const char *const *names) {
    for (const char *at = text; (at = strstr(at, "#include")) != NULL; at++) {
        char file[80] = "";
        int known = 0;
        if (sscanf(at, "#include %*[\"<]%79[^\">]", file) != 1) continue;
        for (int i = 0; i < n; i++) known |= strcmp(names[i], file) == 0;
        if (!known && strcmp(file, "scalar_complex.h") != 0 && strcmp(file, "complex.h") != 0)
            snprintf(p->log, sizeof p->log, "cannot open source file \"%s\"", file);
    }
}

int nvrtcCreateProgram(nvrtc_program *ret_program, const char *source, const char *name, int n,
                       const char *const *headers, const char *const *names) {
    nvrtc_program p = calloc(1, sizeof *p);
    (void)name;
    if (!p) return 1;
    look_for_includes(p, source, n, names);
    for (int i = 0; i < n; i++) look_for_includes(p, headers[i], n, names);
    *ret_program = p;
    return 0;
}

int nvrtcDestroyProgram(nvrtc_program *program) {
    free(*program);
    *program = NULL;
    return 0;
}

int nvrtcCompileProgram(nvrtc_program program, int n, const char *const *options) {
    if (n < 1 || strncmp(options[0], "-arch=sm_", 9) != 0)
        snprintf(program->log, sizeof program->log, "no architecture is given");
    return program->log[0] ? FAILED : 0;
}

int nvrtcGetProgramLogSize(nvrtc_program program, size_t *ret_bytes) {
    *ret_bytes = strlen(program->log) + 1;
    return 0;
}

int nvrtcGetProgramLog(nvrtc_program program, char *ret_text) {
    strcpy(ret_text, program->log);
    return 0;
}

int nvrtcGetCUBINSize(nvrtc_program program, size_t *ret_bytes) {
    (void)program;
    *ret_bytes = sizeof cubin;
    return 0;
}

int nvrtcGetCUBIN(nvrtc_program program, char *ret_data) {
    (void)program;
    memcpy(ret_data, cubin, sizeof cubin);
    return 0;
}
