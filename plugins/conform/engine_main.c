/* engine_main.c: `tenon-conform --engine NAME`: starts the processes that test an engine, hears what they
 * find, and buries them. Under a launcher of MPI it is one of these processes itself. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine.h"

extern char **environ;

static const char usage[] =
    "usage: tenon-conform --engine NAME [options]\n"
    "\n"
    "Says what is wrong with an engine, by which processes exchange data.\n"
    "NAME: tenon_NAME.so in TENON_ENGINE_PATH or beside the plugins, or a library's path.\n"
    "Engines of MPI are tested under their launcher: mpirun -n 3 tenon conform --engine ...\n"
    "\n"
    "  --ranks N          how many processes (default 3)\n"
    "  --check NAME       only this check\n"
    "  --timeout SECONDS  for one exchange (default 5)\n"
    "  --list             list the checks and run none\n"
    "\n"
    "Exit status: 0 all passed, 1 something failed, 2 bad usage.\n";

/* ---- Checks ------------------------------------------------------------------------------------*/

bool cf_engine_wants(const cf_engine_options *o, const cf_engine_check *c) {
    bool launched = o->rank >= 0 && !o->meet; /* whose launcher does not like processes that die */
    if (o->only) return strcmp(o->only, c->name) == 0;
    return c->mortal == 0 && !(launched && strcmp(c->name, "deadline") == 0);
}

static int list(void) {
    for (const cf_engine_check *c = cf_engine_results; c->name; c++) puts(c->name);
    for (const cf_engine_check *c = cf_engine_faults; c->name; c++) puts(c->name);
    return 0;
}

/* ---- The command line --------------------------------------------------------------------------*/

enum { O_ENGINE = 1, O_RANKS, O_CHECK, O_TIMEOUT, O_LIST, O_MEET, O_AS, O_HELP };

static const struct option longs[] = {
    {"engine", required_argument, NULL, O_ENGINE},
    {"ranks", required_argument, NULL, O_RANKS},
    {"check", required_argument, NULL, O_CHECK},
    {"timeout", required_argument, NULL, O_TIMEOUT},
    {"list", no_argument, NULL, O_LIST},
    {"meet", required_argument, NULL, O_MEET}, /* the kit's own: a folder, and which rank this is */
    {"as", required_argument, NULL, O_AS},
    {"help", no_argument, NULL, O_HELP},
    {NULL, 0, NULL, 0},
};

static int bad(const char *text) {
    fprintf(stderr, "tenon-conform: %s\n", text);
    return 2;
}

/* Whether there is a library of that name in a folder; its path is put into `ret_path`. */
static bool is_in(const char *folder, size_t n, const char *name, char *ret_path, size_t size) {
    char path[4096];
    int length = snprintf(path, sizeof path, "%.*s/tenon_%s.so", (int)n, folder, name);
    return length > 0 && (size_t)length < sizeof path && access(path, R_OK) == 0 &&
           snprintf(ret_path, size, "%s", path) > 0;
}

static bool find_library(const char *name, char *ret_path, size_t size) {
    const char *folders = getenv("TENON_ENGINE_PATH");
    Dl_info core;
    if (strchr(name, '/')) {
        char *real = realpath(name, NULL);
        if (real) snprintf(ret_path, size, "%s", real);
        free(real);
        return real != NULL;
    }
    while (folders && *folders) {
        size_t n = strcspn(folders, ":");
        if (n && is_in(folders, n, name, ret_path, size)) return true;
        folders += n + (folders[n] == ':');
    }
    if (!dladdr(dlsym(RTLD_DEFAULT, "tn_world_open"), &core)) return false;
    char *real = realpath(core.dli_fname, NULL), beside[4096];
    char *slash = real ? strrchr(real, '/') : NULL;
    snprintf(beside, sizeof beside, "%.*s/plugins", slash ? (int)(slash - real) : 0,
             real ? real : "");
    free(real);
    return is_in(beside, strlen(beside), name, ret_path, size);
}

static bool number(const char *text, double low, double high, double *ret_value) {
    char *end;
    *ret_value = strtod(text, &end);
    return end != text && !*end && *ret_value >= low && *ret_value <= high;
}

/* What the launcher of MPI says, if there is one. */
static void ask_launcher(cf_engine_options *o) {
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"}};
    for (int i = 0; i < 2; i++) {
        const char *rank = getenv(names[i][0]), *size = getenv(names[i][1]);
        if (!rank || !size) continue;
        o->rank = (int32_t)strtol(rank, NULL, 10);
        o->size = (int32_t)strtol(size, NULL, 10);
    }
}

static bool is_check(const char *name) {
    const cf_engine_check *lists[] = {cf_engine_results, cf_engine_faults};
    for (int i = 0; i < 2; i++)
        for (const cf_engine_check *c = lists[i]; c->name; c++)
            if (strcmp(c->name, name) == 0) return true;
    return false;
}

static int read_options(int argc, char **argv, cf_engine_options *o, const char **ret_name) {
    int option;
    double v = 0;
    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) switch (option) {
        case O_ENGINE: *ret_name = optarg; break;
        case O_CHECK:
            if (!is_check(optarg)) return bad("--check: there is no such check; see --list");
            o->only = optarg;
            break;
        case O_LIST: o->list = true; break;
        case O_MEET: o->meet = optarg; break;
        case O_AS:
            if (!number(optarg, 0, CF_RANKS - 1, &v)) return bad("--as must be a rank");
            o->rank = (int32_t)v;
            break;
        case O_RANKS:
            if (!number(optarg, 1, CF_RANKS, &v) || v != (int32_t)v)
                return bad("--ranks must be 1 to 64");
            o->size = (int32_t)v;
            break;
        case O_TIMEOUT:
            if (!number(optarg, 0.1, 3600, &o->timeout))
                return bad("--timeout must be seconds, at least 0.1");
            break;
        case O_HELP: fputs(usage, stdout); return 0;
        default: return bad("try 'tenon-conform --engine NAME --help'");
        }
    return optind != argc ? bad("an engine needs no device; see --engine NAME --help") : -1;
}

/* ---- The parent --------------------------------------------------------------------------------*/

typedef struct child {
    pid_t pid;
    bool ended, failed;
    char at[32]; /* the check that it is in; "": none */
} child;

typedef struct parent {
    const cf_engine_options *o;
    child ranks[CF_RANKS];
    int from;
    int32_t mortal;
    int32_t passed, failed; /* checks, of all processes */
    int64_t cases;
    char seen[32][32], bad[32][32]; /* names of checks that were begun, and that have failed */
    int32_t nseen, nbad;
    cf_text line;
} parent;

static void note(char names[32][32], int32_t *n, const char *name) {
    for (int32_t i = 0; i < *n; i++)
        if (strcmp(names[i], name) == 0) return;
    if (*n < 32) snprintf(names[(*n)++], 32, "%s", name);
}

static void fail_rank(parent *p, int32_t rank, const char *check, const char *text) {
    printf("FAIL engine %s, rank %d: %s\n", check, (int)rank, text);
    p->ranks[rank].failed = true;
    note(p->bad, &p->nbad, check);
}

/* "RANK WORD CHECK TEXT" */
static void take_line(parent *p, char *line) {
    char *word, *check, *text;
    long rank = strtol(line, &word, 10);
    if (rank < 0 || rank >= p->o->size || *word++ != ' ') return;
    if (!(check = strchr(word, ' '))) return;
    *check++ = '\0';
    if (!(text = strchr(check, ' '))) return;
    *text++ = '\0';
    child *c = &p->ranks[rank];
    if (strcmp(word, "at") == 0) {
        snprintf(c->at, sizeof c->at, "%s", check);
        note(p->seen, &p->nseen, check);
    } else if (strcmp(word, "fail") == 0) {
        fail_rank(p, (int32_t)rank, check, text);
    } else {
        p->cases += strtoll(text, NULL, 10);
        c->at[0] = '\0';
    }
}

static bool spawn(parent *p, int32_t rank, const char *meet, const char *only, int to) {
    char as[16], size[16], timeout[32];
    const cf_engine_options *o = p->o;
    snprintf(as, sizeof as, "%d", (int)rank);
    snprintf(size, sizeof size, "%d", (int)o->size);
    snprintf(timeout, sizeof timeout, "%g", o->timeout);
    char *argv[] = {(char *)"tenon-conform",
                    (char *)"--engine",
                    (char *)o->library,
                    (char *)"--ranks",
                    size,
                    (char *)"--as",
                    as,
                    (char *)"--meet",
                    (char *)meet,
                    (char *)"--timeout",
                    timeout,
                    (char *)(only ? "--check" : NULL),
                    (char *)only,
                    NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to, 3);
    posix_spawn_file_actions_adddup2(&actions, 2, 1); /* what an engine prints is no answer */
    p->ranks[rank] = (child){0};
    int failed = posix_spawn(&p->ranks[rank].pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed == 0;
}

/* false: all ends of the pipe are closed, or nothing was heard for too long. */
static bool hear(parent *p, double patience) {
    struct pollfd fd = {.fd = p->from, .events = POLLIN};
    char buffer[4096];
    if (poll(&fd, 1, (int)(1e3 * patience)) <= 0) return false;
    ssize_t n = read(p->from, buffer, sizeof buffer);
    for (ssize_t i = 0; i < n; i++) {
        if (buffer[i] != '\n') {
            cf_add(&p->line, "%c", buffer[i]);
            continue;
        }
        if (p->line.n) take_line(p, p->line.s);
        cf_clear(&p->line);
    }
    return n > 0;
}

/* The last ranks of a check are those that may be killed, and only so: another signal is a crash. */
static bool may_die(const parent *p, int32_t rank, int number) {
    return number == SIGKILL && rank >= p->o->size - p->mortal;
}

static void bury(parent *p, int32_t rank, bool hangs) {
    child *c = &p->ranks[rank];
    char text[128] = "";
    int status = 0;
    if (hangs) kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR) continue;
    bool killed = WIFSIGNALED(status);
    if (killed && !hangs && may_die(p, rank, WTERMSIG(status))) return;
    if (hangs && killed)
        snprintf(text, sizeof text, "hangs");
    else if (killed)
        snprintf(text, sizeof text, "crashed: killed by %s", cf_signal_name(WTERMSIG(status)));
    else if (WEXITSTATUS(status) != 0 && !c->failed)
        snprintf(text, sizeof text, "ended with exit status %d", WEXITSTATUS(status));
    if (text[0]) fail_rank(p, rank, c->at[0] ? c->at : "end", text);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* Runs checks in processes of their own. */
static bool run_set(parent *p, const char *only, int32_t mortal) {
    const char *base = getenv("TMPDIR");
    char folder[4096];
    int ends[2];
    snprintf(folder, sizeof folder, "%s/tenon-conform-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder) || pipe2(ends, O_CLOEXEC) != 0) return false;
    p->from = ends[0];
    p->mortal = mortal;
    int32_t n = 0;
    while (n < p->o->size && spawn(p, n, folder, only, ends[1])) n++;
    close(ends[1]);
    double start = cf_seconds(), patience = 2 * p->o->timeout + 20;
    while (n == p->o->size && hear(p, patience)) start = cf_seconds();
    bool hangs = n < p->o->size || cf_seconds() - start >= patience;
    for (int32_t r = 0; r < n; r++) bury(p, r, hangs);
    close(ends[0]);
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return n == p->o->size;
}

static int run_parent(const cf_engine_options *o) {
    static parent p;
    p.o = o;
    setvbuf(stdout, NULL, _IOLBF, 0);
    const cf_engine_check *mortal = cf_engine_faults;
    while (mortal->name && mortal->mortal == 0) mortal++;
    bool alone = false, good = true;
    for (const cf_engine_check *c = mortal; o->only && c->name; c++)
        alone |= strcmp(o->only, c->name) == 0;
    if (!alone) good = run_set(&p, o->only, 0);
    for (; good && mortal->name && o->size > 1; mortal++)
        if (!o->only || strcmp(o->only, mortal->name) == 0)
            good = run_set(&p, mortal->name, mortal->mortal);
    if (!good) return bad("the processes could not be started");
    printf("%s, %d ranks: %d/%d checks, %lld cases\n", o->library, (int)o->size,
           (int)(p.nseen - p.nbad), (int)p.nseen, (long long)p.cases);
    return p.nbad ? 1 : 0;
}

int cf_engine_main(int argc, char **argv) {
    static cf_engine_options o = {.rank = -1, .size = 3, .timeout = 5};
    const char *name = "";
    int done = read_options(argc, argv, &o, &name);
    if (done >= 0) return done;
    if (o.list) return list();
    if (!find_library(name, o.library, sizeof o.library)) {
        fprintf(stderr, "tenon-conform: there is no engine '%s'\n", name);
        return 2;
    }
    if (o.rank < 0) ask_launcher(&o);
    if (o.rank < 0) return run_parent(&o);
    int status = cf_engine_rank(&o);
    if (!o.meet && o.rank == 0 && status == 0)
        printf("%s, %d ranks: passed, as far as rank 0 knows\n", o.library, (int)o.size);
    return status;
}
