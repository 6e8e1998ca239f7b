/* nvrtc.c: compiles at run time: the embedded sources of a module when nvcc did not, and programs that
 * are made or given while the process runs. What comes out is kept in a folder of the user's cache,
 * under the hash of everything that went in. */
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
    "#define UINT8_MAX 255\n#define UINT16_MAX 65535\n#define UINT32_MAX 4294967295u\n"
    "#define UINT64_MAX 18446744073709551615ull\n"
    "#define INT8_MIN (-128)\n#define INT8_MAX 127\n"
    "#define INT16_MIN (-32768)\n#define INT16_MAX 32767\n"
    "#define INT32_MIN (-2147483647 - 1)\n#define INT32_MAX 2147483647\n"
    "#define INT64_MIN (-9223372036854775807ll - 1)\n#define INT64_MAX 9223372036854775807ll\n";
static const char math_text[] = "#define INFINITY __int_as_float(0x7f800000)\n"
                                "#define NAN __int_as_float(0x7fffffff)\n";

enum { HEADERS = 128, OPTIONS = 32 };

/* ---- Sources -----------------------------------------------------------------------------------*/

const void *cuda_image_find(const char *name) {
    for (const cuda_embedded *m = cuda_embedded_modules; m->name; m++)
        if (strcmp(m->name, name) == 0) return m->data;
    return NULL;
}

typedef struct sources {
    const char *title; /* for messages; of a module, its name */
    const char *main;  /* the text of the .cu file */
    char dtype[32];    /* "-DTMPL_DTYPE=8" */
    const char *option[OPTIONS];
    const char *header[HEADERS], *name[HEADERS];
    int noptions, n;
} sources;

/* One that there is no room for is counted, and refused by make(). */
static void add_header(sources *s, const char *name, const char *text) {
    if (s->n < HEADERS) {
        s->header[s->n] = text;
        s->name[s->n] = name;
    }
    s->n++;
}

static void add_c_headers(sources *s) {
    add_header(s, "stdint.h", stdint_text);
    add_header(s, "math.h", math_text);
    add_header(s, "string.h", "");
    add_header(s, "stdbool.h", "");
}

/* Headers and options of our own kernels. */
static void add_ours(sources *s) {
    for (const cuda_embedded *e = cuda_embedded_sources; e->name; e++)
        if (!strstr(e->name, ".cu")) add_header(s, e->name, e->data);
    s->option[s->noptions++] = "-default-device";
    s->option[s->noptions++] = "--fmad=false";
}

/* "map_f32" is map.cu for slot 8; "copy" is copy.cu. */
static void find_sources(const char *module, sources *ret_sources) {
    static const char *const dtypes[] = {"b8",  "u8",   "i8",  "i16", "i32", "i64",
                                         "f16", "bf16", "f32", "f64", "c64", "c128"};
    sources *s = ret_sources;
    const char *cut = strrchr(module, '_');
    size_t stem = strlen(module);
    memset(s, 0, sizeof *s);
    s->title = module;
    add_ours(s);
    for (int i = 0; cut && i < TN_DTYPE_BUILTIN_COUNT; i++) {
        if (strcmp(cut + 1, dtypes[i]) != 0) continue;
        snprintf(s->dtype, sizeof s->dtype, "-DTMPL_DTYPE=%d", i);
        s->option[s->noptions++] = s->dtype;
        stem = (size_t)(cut - module);
    }
    for (const cuda_embedded *e = cuda_embedded_sources; e->name; e++)
        if (strncmp(e->name, module, stem) == 0 && strcmp(e->name + stem, ".cu") == 0)
            s->main = e->data;
    add_c_headers(s);
}

/* ---- The cache on disk -------------------------------------------------------------------------*/

static uint64_t hash_text(uint64_t h, const char *text) {
    return cuda_cache_hash(h, text, strlen(text) + 1);
}

static bool find_cached(const sources *s, const char *arch, char ret_path[CUDA_CACHE_PATH]) {
    char file[120];
    int major = 0, minor = 0;
    nvrtc.version(&major, &minor);
    uint64_t h = hash_text(CUDA_CACHE_SEED, s->main);
    for (int i = 0; i < s->noptions; i++) h = hash_text(h, s->option[i]);
    for (int i = 0; i < s->n; i++) h = hash_text(h, s->header[i]);
    snprintf(file, sizeof file, "%016llx_%s_%d_%d.cubin", (unsigned long long)h, arch, major,
             minor);
    return cuda_cache_path(file, ret_path);
}

/* ---- Compiling ---------------------------------------------------------------------------------*/

static tn_status open_nvrtc(void) {
    static const cuda_toolkit_library library = {
        "libnvrtc", "NVRTC",
        "there is no NVRTC to compile kernels (libnvrtc.so.13 or .12): pip install "
        "nvidia-cuda-nvrtc, or name its folder in TENON_CUDA_PATH",
        symbols, sizeof symbols / sizeof symbols[0]};
    static bool is_open;
    tn_status st = is_open ? TN_OK : cuda_open_toolkit(&library, &nvrtc);
    is_open = st == TN_OK;
    return st;
}

/* The compiler's words; free them. NULL where there are none. */
static char *take_log(program_handle p) {
    size_t bytes = 0;
    char *text = NULL;
    if (nvrtc.log_size(p, &bytes) == 0 && bytes) text = calloc(1, bytes + 1);
    if (text) nvrtc.log(p, text);
    return text;
}

static tn_status take_cubin(program_handle p, void **ret_cubin, size_t *ret_bytes) {
    size_t bytes = 0;
    void *cubin = NULL;
    if (nvrtc.cubin_size(p, &bytes) == 0 && bytes) cubin = malloc(bytes);
    if (!cubin || nvrtc.cubin(p, cubin) != 0) {
        free(cubin);
        return cuda_host->fail(TN_E_INTERNAL, -1, "NVRTC hands out no code");
    }
    *ret_cubin = cubin;
    *ret_bytes = bytes;
    return TN_OK;
}

static tn_status compile(const sources *s, const char *arch, void **ret_cubin, size_t *ret_bytes,
                         char **ret_log) {
    char arch_option[48];
    const char *options[OPTIONS + 2] = {arch_option};
    program_handle p = NULL;
    int n = 1;
    bool has_language = false;
    snprintf(arch_option, sizeof arch_option, "-arch=%s", arch);
    for (int i = 0; i < s->noptions; i++) {
        has_language |= strstr(s->option[i], "-std") != NULL;
        options[n++] = s->option[i];
    }
    if (!has_language) options[n++] = "-std=c++17";
    if (nvrtc.create(&p, s->main, s->title, s->n, s->header, s->name) != 0)
        return cuda_host->fail(TN_E_INTERNAL, -1, "NVRTC does not take the kernels of '%s'",
                               s->title);
    tn_status st = TN_OK;
    if (nvrtc.compile(p, n, options) != 0) {
        *ret_log = take_log(p);
        st = cuda_host->fail(TN_E_INTERNAL, -1, "NVRTC cannot compile the kernels of '%s': %.600s",
                             s->title, *ret_log ? *ret_log : "no log");
    }
    if (st == TN_OK) st = take_cubin(p, ret_cubin, ret_bytes);
    nvrtc.destroy(&p);
    return st;
}

/* From the cache, or compiled and put there. */
static tn_status make(const sources *s, const cuda_device *d, void **ret_cubin, char **ret_log) {
    char arch[24], path[CUDA_CACHE_PATH];
    size_t bytes = 0;
    if (s->n > HEADERS)
        return cuda_host->fail(TN_E_INTERNAL, -1, "there are %d headers, room is for %d", s->n,
                               HEADERS);
    snprintf(arch, sizeof arch, "sm_%d%d", d->major, d->minor);
    bool cached = find_cached(s, arch, path);
    if (cached && cuda_cache_read(path, ret_cubin, &bytes)) return TN_OK;
    tn_status st = compile(s, arch, ret_cubin, &bytes, ret_log);
    if (st == TN_OK && cached) cuda_cache_write(path, *ret_cubin, bytes);
    return st;
}

tn_status cuda_nvrtc_compile(const char *module, const cuda_device *d, void **ret_cubin) {
    sources s;
    char *log = NULL;
    tn_status st = open_nvrtc();
    if (st != TN_OK) return st;
    find_sources(module, &s);
    if (!s.main) return cuda_host->fail(TN_E_INTERNAL, -1, "there are no kernels '%s'", module);
    st = make(&s, d, ret_cubin, &log);
    free(log);
    return st;
}

tn_status cuda_nvrtc_program(const cuda_program *p, const cuda_device *d, void **ret_cubin,
                             char **ret_log) {
    sources s;
    tn_status st = open_nvrtc();
    if (st != TN_OK) return st;
    memset(&s, 0, sizeof s);
    s.title = p->title;
    s.main = p->source;
    if (p->is_ours) add_ours(&s);
    add_c_headers(&s);
    if (p->noptions > OPTIONS - s.noptions)
        return cuda_host->fail(TN_E_VALUE, -1, "%s: more than %d options", p->title,
                               OPTIONS - s.noptions);
    for (int i = 0; i < p->noptions; i++) s.option[s.noptions++] = p->options[i];
    return make(&s, d, ret_cubin, ret_log);
}
