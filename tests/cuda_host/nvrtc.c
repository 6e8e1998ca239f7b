/* nvrtc.c: the stand-in for NVRTC. Kernels of the plugin are not compiled: the harness has them in its
 * own library and finds them by name; what is handed over is looked at, so that a plugin that forgets a
 * header is found out. Other programs, whose names end in ".cu", are compiled by the host's compiler
 * into a shared object, whose bytes are the "cubin". */
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cubin.h"

typedef struct nvrtc_program {
    char *source, *log, *cubin;
    size_t cubin_bytes;
    char name[80];
    int n;
    char **header, **header_name;
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

enum { FAILED = 6, PATH = 1024, PATHS = 2 * PATH, LOG = 1 << 16 };

int nvrtcVersion(int *ret_major, int *ret_minor) {
    *ret_major = 13;
    *ret_minor = 0;
    return 0;
}

static void say(nvrtc_program p, const char *format, ...) {
    va_list list;
    size_t at = strlen(p->log);
    va_start(list, format);
    vsnprintf(p->log + at, LOG - at, format, list);
    va_end(list);
}

/* ---- What is handed over -----------------------------------------------------------------------*/

/* Comments become spaces: what stands in them is no kernel. */
static void blank_comments(char *text) {
    for (char *at = text, *end; *at; at++) {
        if (*at == '"') {
            while (at[1] && at[1] != '"') at += at[1] == '\\' && at[2] ? 2 : 1;
            if (at[1]) at++;
            continue;
        }
        if (strncmp(at, "//", 2) == 0)
            end = strchr(at, '\n');
        else if (strncmp(at, "/*", 2) == 0)
            end = (end = strstr(at, "*/")) ? end + 2 : NULL;
        else
            continue;
        for (; *at && at != end; at++)
            if (*at != '\n') *at = ' ';
        at--;
    }
}

/* Headers that the host's compiler has itself. */
static bool is_of_c(const char *name) {
    static const char *const names[] = {"stdint.h", "math.h", "string.h", "stdbool.h"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* The first file that the text includes and that was not handed over. */
static void look_for_includes(nvrtc_program p, const char *text) {
    for (const char *at = text; (at = strstr(at, "#include")) != NULL; at++) {
        char file[80] = "";
        bool known = false;
        if (sscanf(at, "#include %*[\"<]%79[^\">]", file) != 1) continue;
        for (int i = 0; i < p->n; i++) known |= strcmp(p->header_name[i], file) == 0;
        if (!known && strcmp(file, "scalar_complex.h") != 0 && strcmp(file, "complex.h") != 0)
            say(p, "%s: catastrophic error: cannot open source file \"%s\"\n", p->name, file);
    }
}

int nvrtcCreateProgram(nvrtc_program *ret_program, const char *source, const char *name, int n,
                       const char *const *headers, const char *const *names) {
    nvrtc_program p = calloc(1, sizeof *p);
    if (!p) return 1;
    p->log = calloc(1, LOG);
    p->source = strdup(source);
    p->n = n;
    p->header = calloc((size_t)n + 1, sizeof *p->header);
    p->header_name = calloc((size_t)n + 1, sizeof *p->header_name);
    snprintf(p->name, sizeof p->name, "%s", name);
    for (int i = 0; i < n; i++) p->header[i] = strdup(headers[i]);
    for (int i = 0; i < n; i++) p->header_name[i] = strdup(names[i]);
    blank_comments(p->source);
    look_for_includes(p, p->source);
    for (int i = 0; i < n; i++) look_for_includes(p, headers[i]);
    *ret_program = p;
    return 0;
}

int nvrtcDestroyProgram(nvrtc_program *program) {
    nvrtc_program p = *program;
    for (int i = 0; i < p->n; i++) free(p->header[i]);
    for (int i = 0; i < p->n; i++) free(p->header_name[i]);
    free(p->header);
    free(p->header_name);
    free(p->source);
    free(p->log);
    free(p->cubin);
    free(p);
    *program = NULL;
    return 0;
}

/* ---- From CUDA C to C++ ------------------------------------------------------------------------*/

/* "__shared__ float tile[32][33];" becomes an array of the harness, "extern __shared__ float a[];" all
 * that the launch asks for. One declarator each. */
static void write_shared(FILE *f, const char *text, const char *end, bool is_dynamic) {
    const char *dims = memchr(text, '[', (size_t)(end - text));
    const char *stop = dims ? dims : end, *name;
    while (stop > text && isspace((unsigned char)stop[-1])) stop--;
    for (name = stop; name > text && (isalnum((unsigned char)name[-1]) || name[-1] == '_');) name--;
    int type = (int)(name - text), length = (int)(stop - name), rest = (int)(end - stop);
    if (is_dynamic)
        fprintf(f, "%.*s *const %.*s = (%.*s *)host_dynamic()", type, text, length, name, type,
                text);
    else
        fprintf(f,
                "static const char %.*s_site = 0; auto &%.*s = *(%.*s (*)%.*s)host_shared("
                "&%.*s_site, \"%.*s\", sizeof(%.*s%.*s))",
                length, name, length, name, type, text, rest, stop, length, name, length, name,
                type, text, rest, stop);
}

static void write_source(FILE *f, const char *source) {
    const char *at = source, *word, *end;
    while ((word = strstr(at, "__shared__")) && (end = strchr(word, ';'))) {
        const char *before = word;
        while (before > at && isspace((unsigned char)before[-1])) before--;
        bool is_dynamic = before - at >= 6 && strncmp(before - 6, "extern", 6) == 0;
        if (is_dynamic) before -= 6;
        fwrite(at, 1, (size_t)(before - at), f);
        fputc(' ', f);
        write_shared(f, word + strlen("__shared__"), end, is_dynamic);
        at = end;
    }
    fputs(at, f);
}

/* What the driver calls, for each kernel. */
static void write_entries(FILE *f, const char *source) {
    fputs("\nHOST_IMAGE\n", f);
    for (const char *at = source; (at = strstr(at, "__global__")) != NULL; at++) {
        const char *from = strstr(at, "void"), *open = from ? strchr(from, '(') : NULL;
        const char *bounds = from ? strstr(from, "__launch_bounds__") : NULL;
        if (open && bounds && bounds < open && (open = strchr(open, ')'))) open = strchr(open, '(');
        const char *end = open, *name;
        while (end && end > at && isspace((unsigned char)end[-1])) end--;
        for (name = end; name && (isalnum((unsigned char)name[-1]) || name[-1] == '_');) name--;
        if (name) fprintf(f, "HOST_ENTRY(%.*s)\n", (int)(end - name), name);
    }
}

/* ---- Compiling ---------------------------------------------------------------------------------*/

static bool write_file(const char *folder, const char *name, const char *source, bool is_main) {
    char path[PATHS];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f) return false;
    if (is_main) {
        fprintf(f, "#line 1 \"%s\"\n", name);
        write_source(f, source);
        write_entries(f, source);
    } else {
        fputs(source, f);
    }
    return fclose(f) == 0;
}

static char *read_file(const char *path, size_t room_before, size_t *ret_bytes) {
    struct stat info;
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    if (f && fstat(fileno(f), &info) == 0) {
        *ret_bytes = room_before + (size_t)info.st_size;
        data = calloc(1, *ret_bytes + 1);
        if (data && fread(data + room_before, 1, (size_t)info.st_size, f) != (size_t)info.st_size) {
            free(data);
            data = NULL;
        }
    }
    if (f) fclose(f);
    return data;
}

static void take_log(nvrtc_program p, const char *folder) {
    char path[PATHS];
    size_t bytes;
    snprintf(path, sizeof path, "%s/log", folder);
    char *text = read_file(path, 0, &bytes);
    say(p, "%s", text ? text : "the host's compiler cannot be run\n");
    free(text);
}

static int compile_in(nvrtc_program p, const char *folder, int n, const char *const *options) {
    char command[8 * PATH], path[PATHS];
    bool fine = write_file(folder, p->name, p->source, true);
    for (int i = 0; i < p->n; i++)
        if (!is_of_c(p->header_name[i]))
            fine &= write_file(folder, p->header_name[i], p->header[i], false);
    int at = snprintf(command, sizeof command, "cd '%s' && " HOST_COMPILE, folder);
    for (int i = 0; i < n; i++)
        if (options[i][0] == '-' && (options[i][1] == 'D' || options[i][1] == 'I'))
            at += snprintf(command + at, sizeof command - (size_t)at, " '%s'", options[i]);
    snprintf(command + at, sizeof command - (size_t)at,
             " -I. '%s' -x none '" HOST_LIBRARY "' -o image.so > log 2>&1", p->name);
    if (!fine || system(command) != 0) return take_log(p, folder), FAILED;
    snprintf(path, sizeof path, "%s/image.so", folder);
    p->cubin = read_file(path, sizeof(host_cubin), &p->cubin_bytes);
    if (!p->cubin) return FAILED;
    const host_cubin head = {HOST_CUBIN_MAGIC, p->cubin_bytes - sizeof head};
    memcpy(p->cubin, &head, sizeof head);
    return 0;
}

static int compile(nvrtc_program p, int n, const char *const *options) {
    char folder[PATH], command[PATHS];
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tenon-nvrtc-XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(folder)) return say(p, "no folder for temporary files\n"), FAILED;
    int result = compile_in(p, folder, n, options);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) fprintf(stderr, "CUDA host harness: %s remains\n", folder);
    return result;
}

int nvrtcCompileProgram(nvrtc_program program, int n, const char *const *options) {
    const char *suffix = strrchr(program->name, '.');
    if (n < 1 || strncmp(options[0], "-arch=sm_", 9) != 0) say(program, "no architecture is given");
    if (program->log[0]) return FAILED;
    if (suffix && strcmp(suffix, ".cu") == 0) return compile(program, n, options);
    program->cubin = strdup("a cubin of the host harness");
    program->cubin_bytes = strlen(program->cubin) + 1;
    return 0;
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
    *ret_bytes = program->cubin_bytes;
    return 0;
}

int nvrtcGetCUBIN(nvrtc_program program, char *ret_data) {
    memcpy(ret_data, program->cubin, program->cubin_bytes);
    return 0;
}
