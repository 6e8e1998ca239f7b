/* options.c: the command line. */
#include "conform.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

const char *const cf_mode_names[CF_MODES] = {"abi",     "support", "test", "grad",
                                             "threads", "streams", "perf"};

static const char usage[] =
    "usage: tenon-conform DEVICE[:INDEX] [options]\n"
    "\n"
    "Says what works on a device, what is slow and what is wrong, with the CPU as reference.\n"
    "tenon-conform --engine NAME tests what processes exchange data through.\n"
    "\n"
    "  --op GLOB          only these operators; repeatable\n"
    "  --dtype NAME       only these dtypes; repeatable\n"
    "  --mode MODE        abi, support, test, grad, threads, streams or perf; repeatable\n"
    "                     (default: all but perf)\n"
    "  --level N          fail unless the device reaches level N, 0 to 3\n"
    "  --plugin LIBRARY   the plugin's library, when no manifest is found for the device\n"
    "  --manifest FILE    a manifest, or a folder of them, to look at as well\n"
    "  --json FILE, --junit FILE, --html FILE\n"
    "                     write the results there\n"
    "  --resume FILE      keep a journal; what stands in it is not run again\n"
    "  --jobs N           worker processes (default 1)\n"
    "  --timeout SECONDS  a check that takes longer hangs (default 60)\n"
    "  --seed N           of the numbers in tensors (default 1)\n"
    "  --large            tensors with four million elements too\n"
    "  --list             list the checks and run none\n"
    "\n"
    "Exit status: 0 all passed, 1 something failed, 2 bad usage.\n";

enum {
    O_OP = 1,
    O_DTYPE,
    O_MODE,
    O_LEVEL,
    O_PLUGIN,
    O_MANIFEST,
    O_JSON,
    O_JUNIT,
    O_HTML,
    O_RESUME,
    O_JOBS,
    O_TIMEOUT,
    O_SEED,
    O_LARGE,
    O_LIST,
    O_WORKER,
    O_HELP
};

static const struct option longs[] = {
    {"op", required_argument, NULL, O_OP},
    {"dtype", required_argument, NULL, O_DTYPE},
    {"mode", required_argument, NULL, O_MODE},
    {"level", required_argument, NULL, O_LEVEL},
    {"plugin", required_argument, NULL, O_PLUGIN},
    {"manifest", required_argument, NULL, O_MANIFEST},
    {"json", required_argument, NULL, O_JSON},
    {"junit", required_argument, NULL, O_JUNIT},
    {"html", required_argument, NULL, O_HTML},
    {"resume", required_argument, NULL, O_RESUME},
    {"jobs", required_argument, NULL, O_JOBS},
    {"timeout", required_argument, NULL, O_TIMEOUT},
    {"seed", required_argument, NULL, O_SEED},
    {"large", no_argument, NULL, O_LARGE},
    {"list", no_argument, NULL, O_LIST},
    {"worker", no_argument, NULL, O_WORKER}, /* the kit's own: run what standard input names */
    {"help", no_argument, NULL, O_HELP},
    {NULL, 0, NULL, 0},
};

static int bad(const char *option, const char *value, const char *expected) {
    fprintf(stderr, "tenon-conform: --%s must be %s, not '%s'\n", option, expected, value);
    return 2;
}

static bool number(const char *text, double low, double high, double *ret_value) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high)) return false;
    *ret_value = value;
    return true;
}

static int read_mode(cf_options *o, const char *text) {
    for (int m = 0; m < CF_MODES; m++)
        if (strcmp(text, cf_mode_names[m]) == 0) {
            o->modes |= 1u << m;
            return -1;
        }
    return bad("mode", text, "abi, support, test, grad, threads, streams or perf");
}

static int read_dtype(cf_options *o, const char *text) {
    int32_t slot = tn_dtype_find(text);
    if (slot < 0 || slot >= TN_DTYPE_BUILTIN_COUNT)
        return bad("dtype", text, "the name of a built-in dtype, such as float32");
    o->dtypes |= 1u << slot;
    return -1;
}

static int read_number(cf_options *o, int option, const char *text) {
    double v;
    switch (option) {
    case O_LEVEL:
        if (!number(text, 0, CF_LEVELS - 1, &v) || v != (int32_t)v)
            return bad("level", text, "0, 1, 2 or 3");
        o->level = (int32_t)v;
        break;
    case O_JOBS:
        if (!number(text, 1, 64, &v) || v != (int32_t)v) return bad("jobs", text, "1 to 64");
        o->jobs = (int32_t)v;
        break;
    case O_TIMEOUT:
        if (!number(text, 0.1, 86400, &v)) return bad("timeout", text, "seconds, at least 0.1");
        o->timeout = v;
        break;
    default:
        if (!number(text, 0, 9007199254740992.0, &v)) return bad("seed", text, "a whole number");
        o->seed = (uint64_t)v;
    }
    return -1;
}

static int read_option(cf_options *o, int option, const char *text) {
    switch (option) {
    case O_OP:
        if (o->nops == (int32_t)(sizeof o->ops / sizeof *o->ops))
            return bad("op", text, "given at most 32 times");
        o->ops[o->nops++] = text;
        break;
    case O_DTYPE: return read_dtype(o, text);
    case O_MODE: return read_mode(o, text);
    case O_PLUGIN: o->plugin = text; break;
    case O_MANIFEST: o->manifest = text; break;
    case O_JSON: o->json = text; break;
    case O_JUNIT: o->junit = text; break;
    case O_HTML: o->html = text; break;
    case O_RESUME: o->resume = text; break;
    case O_LARGE: o->large = true; break;
    case O_LIST: o->list = true; break;
    case O_WORKER: o->worker = true; break;
    case O_LEVEL:
    case O_JOBS:
    case O_TIMEOUT:
    case O_SEED: return read_number(o, option, text);
    case O_HELP: fputs(usage, stdout); return 0;
    default: fputs("try 'tenon-conform --help'\n", stderr); return 2;
    }
    return -1;
}

/* A path that works in every process. */
static int absolute(const char *option, const char **path) {
    if (!*path) return -1;
    char *real = realpath(*path, NULL);
    if (!real) return bad(option, *path, "a file that exists");
    *path = real;
    return -1;
}

int cf_options_read(int argc, char **argv, cf_options *ret_options) {
    cf_options o = {.level = -1, .jobs = 1, .seed = 1, .timeout = 60};
    int option, done;
    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1)
        if ((done = read_option(&o, option, optarg)) >= 0) return done;
    if (optind != argc - 1) {
        fputs(optind == argc ? "tenon-conform: name a device, such as acme or acme:1\n"
                             : "tenon-conform: name one device only\n",
              stderr);
        return 2;
    }
    o.device = argv[optind];
    if (!o.modes) o.modes = ((1u << CF_MODES) - 1) & ~(1u << CF_PERF);
    if (!o.dtypes) o.dtypes = (1u << TN_DTYPE_BUILTIN_COUNT) - 1;
    if ((done = absolute("plugin", &o.plugin)) >= 0) return done;
    if ((done = absolute("manifest", &o.manifest)) >= 0) return done;
    *ret_options = o;
    return -1;
}
