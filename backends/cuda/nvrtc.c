/* nvrtc.c: compiles the embedded sources of a module when nvcc did not. What comes out is kept in a
 * folder of the user's cache, under the hash of everything that went in. */
#include "images.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvrtc_program *program_handle;
#define NVRTC_LIST(X)                                                                              \
    X(version, nvrtcVersion, (int *ret_major, int *ret_minor))                                     \
    X(create, nvrtcCreateProgram,                                                                  \
      (program_handle * ret_program, const char *source, const char *name, int nheaders,           \
       const char *const *headers, const char *const *header_names))                               \
    X(destroy, nvrtcDestroyProgram, (program_handle * program))                                    \
    X(compile, nvrtcCompileProgram, (program_handle program, int n, const char *const *options))   \
    X(log_size, nvrtcGetProgramLogSize, (program_handle program, size_t * ret_bytes))              \
    X(log, nvrtcGetProgramLog, (program_handle program, char *ret_text))                           \
    X(cubin_size, nvrtcGetCUBINSize, (program_handle program, size_t * ret_bytes))                 \
    X(cubin, nvrtcGetCUBIN, (program_handle program, char *ret_data))

static struct nvrtc {
#define MEMBER(member, symbol, params) int(*member) params;
    NVRTC_LIST(MEMBER)
#undef MEMBER
} nvrtc;
#define SYMBOL(member, symbol, params) {#symbol, offsetof(struct nvrtc, member)},
static const cuda_symbol symbols[] = {NVRTC_LIST(SYMBOL)};

/* The C library's headers, as far as kernels need them: NVRTC has the functions built in. */
static const char stdint_text[] =
    "typedef signed char int8_t; typedef unsigned char uint8_t;\n"
    "typedef short int16_t; typedef unsigned short uint16_t;\n"
    "typedef int int32_t; typedef unsigned int uint32_t;\n"
    "typedef long long int64_t; typedef unsigned long long uint64_t;\n"
    "typedef unsigned long long uintptr_t;\n"
    "#define UINT64_C(x) x##ull\n#define INT64_C(x) x##ll\n"
    "#define INT32_MIN (-2147483647 - 1)\n#define INT32_MAX 2147483647\n"
    "#define INT64_MIN (-9223372036854775807ll - 1)\n#define INT64_MAX 9223372036854775807ll\n";
static const char math_text[] = "#define INFINITY __int_as_float(0x7f800000)\n"
                                "#define NAN __int_as_float(0x7fffffff)\n";

enum { HEADERS = 64 };

/* ---- Sources -----------------------------------------------------------------------------------*/

const void *cuda_image_find(const char *name) {
    for (const cuda_embedded *m = cuda_embedded_modules; m->name; m++)
        if (strcmp(m->name, name) == 0) return m->data;
    return NULL;
}

typedef struct sources {
    const char *main; /* the text of the .cu file */
    char option[32];  /* "" or "-DTMPL_DTYPE=8" */
    const char *header[HEADERS], *name[HEADERS];
    int n;
} sources;

static void add_header(sources *s, const char *name, const char *text) {
    if (s->n == HEADERS) return;
    s->header[s->n] = text;
    s->name[s->n++] = name;
}

/* "map_f32" is map.cu for slot 8; "copy" is copy.cu. */
static void find_sources(const char *module, sources *ret_sources) {
    static const char *const dtypes[] = {"b8",  "u8",  "i8",   "i16", "i32",
                                         "i64", "f16", "bf16", "f32", "f64"};
    sources *s = ret_sources;
    const char *cut = strrchr(module, '_');
    size_t stem = strlen(module);
    memset(s, 0, sizeof *s);
    for (int i = 0; cut && i < 10; i++) {
        if (strcmp(cut + 1, dtypes[i]) != 0) continue;
        snprintf(s->option, sizeof s->option, "-DTMPL_DTYPE=%d", i);
        stem = (size_t)(cut - module);
    }
    for (const cuda_embedded *e = cuda_embedded_sources; e->name; e++) {
        if (strncmp(e->name, module, stem) == 0 && strcmp(e->name + stem, ".cu") == 0)
            s->main = e->data;
        else if (!strstr(e->name, ".cu"))
            add_header(s, e->name, e->data);
    }
    add_header(s, "stdint.h", stdint_text);
    add_header(s, "math.h", math_text);
    add_header(s, "string.h", "");
    add_header(s, "stdbool.h", "");
}

/* ---- The cache on disk -------------------------------------------------------------------------*/

static uint64_t hash_text(uint64_t h, const char *text) {
    return cuda_cache_hash(h, text, strlen(text) + 1);
}

static bool find_cached(const sources *s, const char *arch, char ret_path[CUDA_CACHE_PATH]) {
    char file[120];
    int major = 0, minor = 0;
    nvrtc.version(&major, &minor);
    uint64_t h = hash_text(hash_text(CUDA_CACHE_SEED, s->main), s->option);
    for (int i = 0; i < s->n; i++) h = hash_text(h, s->header[i]);
    snprintf(file, sizeof file, "%016llx_%s_%d_%d.cubin", (unsigned long long)h, arch, major,
             minor);
    return cuda_cache_path(file, ret_path);
}

/* ---- Compiling ---------------------------------------------------------------------------------*/

static tn_status open_nvrtc(void) {
    static const cuda_toolkit_library library = {
        "libnvrtc", "NVRTC",
        "this build has no compiled kernels and there is no NVRTC to compile "
        "them (libnvrtc.so.13 or .12): pip install nvidia-cuda-nvrtc, or name "
        "its folder in TENON_CUDA_PATH",
        symbols, sizeof symbols / sizeof symbols[0]};
    static bool is_open;
    tn_status st = is_open ? TN_OK : cuda_open_toolkit(&library, &nvrtc);
    is_open = st == TN_OK;
    return st;
}

static tn_status fail_compile(program_handle p, const char *module) {
    size_t bytes = 0;
    char *text = NULL;
    if (nvrtc.log_size(p, &bytes) == 0 && bytes) text = calloc(1, bytes + 1);
    if (text) nvrtc.log(p, text);
    tn_status st =
        cuda_host->fail(TN_E_INTERNAL, -1, "NVRTC cannot compile the kernels of '%s': %.600s",
                        module, text ? text : "no log");
    free(text);
    return st;
}

static tn_status take_cubin(program_handle p, const char *module, void **ret_cubin,
                            size_t *ret_bytes) {
    size_t bytes = 0;
    void *cubin = NULL;
    if (nvrtc.cubin_size(p, &bytes) == 0 && bytes) cubin = malloc(bytes);
    if (!cubin || nvrtc.cubin(p, cubin) != 0) {
        free(cubin);
        return fail_compile(p, module);
    }
    *ret_cubin = cubin;
    *ret_bytes = bytes;
    return TN_OK;
}

static tn_status compile(const sources *s, const char *module, const char *arch, void **ret_cubin,
                         size_t *ret_bytes) {
    char arch_option[48];
    const char *options[] = {arch_option, "-std=c++17", "-default-device", "--fmad=false",
                             s->option};
    program_handle p = NULL;
    snprintf(arch_option, sizeof arch_option, "-arch=%s", arch);
    if (nvrtc.create(&p, s->main, module, s->n, s->header, s->name) != 0)
        return cuda_host->fail(TN_E_INTERNAL, -1, "NVRTC does not take the kernels of '%s'",
                               module);
    tn_status st = TN_OK;
    if (nvrtc.compile(p, s->option[0] ? 5 : 4, options) != 0) st = fail_compile(p, module);
    if (st == TN_OK) st = take_cubin(p, module, ret_cubin, ret_bytes);
    nvrtc.destroy(&p);
    return st;
}

tn_status cuda_nvrtc_compile(const char *module, int major, int minor, void **ret_cubin) {
    sources s;
    char arch[24], path[CUDA_CACHE_PATH];
    size_t bytes = 0;
    tn_status st = open_nvrtc();
    if (st != TN_OK) return st;
    find_sources(module, &s);
    if (!s.main) return cuda_host->fail(TN_E_INTERNAL, -1, "there are no kernels '%s'", module);
    snprintf(arch, sizeof arch, "sm_%d%d", major, minor);
    bool cached = find_cached(&s, arch, path);
    if (cached && cuda_cache_read(path, ret_cubin, &bytes)) return TN_OK;
    st = compile(&s, module, arch, ret_cubin, &bytes);
    if (st == TN_OK && cached) cuda_cache_write(path, *ret_cubin, bytes);
    return st;
}
