/* run.c: the parent: starts workers by executing this program again, hands them rows, and survives whatever
 * becomes of them. A worker that dies or hangs costs the row that it was at; another one goes on with the
 * next. */
#include "conform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "facts.h"

extern char **environ;

typedef struct worker {
    pid_t pid;    /* 0: not running */
    int to, from; /* its standard input, its answers */
    cf_row *row;  /* what it is at, or NULL */
    double deadline;
    bool hung;
    cf_text line, at, fails, note, down;
    cf_device_facts *facts; /* where a probe's answers go */
} worker;

/* ---- Processes ---------------------------------------------------------------------------------*/

static bool spawn(worker *w, char **argv) {
    posix_spawn_file_actions_t actions;
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0) return false;
    if (pipe2(out, O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return false;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 10); /* away from 0 to 3 first */
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, 10, 3);
    posix_spawn_file_actions_addclose(&actions, 10);
    posix_spawn_file_actions_adddup2(&actions, 2, 1); /* what a plugin prints is no answer */
    int failed = posix_spawn(&w->pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    w->to = in[1];
    w->from = out[0];
    w->hung = false;
    if (!failed) return true;
    close(w->to);
    close(w->from);
    w->pid = 0;
    return false;
}

/* argv with --worker in front of the options. */
static char **worker_argv(char **argv) {
    size_t n = 0;
    while (argv[n]) n++;
    char **with = cf_alloc((n + 2) * sizeof *with);
    with[0] = argv[0];
    with[1] = (char *)"--worker";
    memcpy(with + 2, argv + 1, n * sizeof *with); /* and the NULL */
    return with;
}

const char *cf_signal_name(int number) {
    static const struct {
        int number;
        const char *name;
    } names[] = {{SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},
                 {SIGFPE, "SIGFPE"},   {SIGILL, "SIGILL"},   {SIGKILL, "SIGKILL"},
                 {SIGTRAP, "SIGTRAP"}, {SIGPIPE, "SIGPIPE"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == number) return names[i].name;
    return strsignal(number);
}

/* How a worker ended, in words. */
static void reap(worker *w, const cf_options *o, cf_text *how) {
    int status = 0;
    close(w->to);
    close(w->from);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR) continue;
    w->pid = 0;
    if (w->hung)
        cf_add(how, "hangs: no answer within %g s", o->timeout);
    else if (WIFSIGNALED(status))
        cf_add(how, "crashed: killed by %s", cf_signal_name(WTERMSIG(status)));
    else
        cf_add(how, "ended the process with exit status %d", WEXITSTATUS(status));
}

static void stop(worker *w) {
    if (!w->pid) return;
    close(w->to);
    close(w->from);
    while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR) continue;
    w->pid = 0;
}

/* ---- Answers -----------------------------------------------------------------------------------*/

static void finish(worker *w, const cf_options *o) {
    cf_row *row = w->row;
    row->fails = w->fails.n ? cf_copy(w->fails.s) : NULL;
    row->note = w->note.n ? cf_copy(w->note.s) : NULL;
    if (row->fails)
        row->status = CF_FAILED;
    else
        row->status = row->cases > 0 ? CF_PASSED : CF_SKIPPED;
    w->row = NULL;
    if (o->resume) cf_journal_add(row);
    cf_report_fails(row);
}

static void probe_answer(worker *w, const char *word, const char *text) {
    if (strcmp(word, "library") == 0) w->facts->library = cf_copy(text);
    if (strcmp(word, "describe") == 0) w->facts->describe = cf_copy(text);
    if (strcmp(word, "met") == 0) w->facts->met[strtol(text, NULL, 10)] = true;
}

static void take_line(worker *w, const cf_options *o, char *line) {
    char *text = strchr(line, ' ');
    if (text) *text++ = '\0';
    if (!text) return;
    if (strcmp(line, "at") == 0) {
        cf_clear(&w->at);
        cf_add(&w->at, "%s", text);
    } else if (strcmp(line, "fail") == 0) {
        cf_add(&w->fails, "%s%s", w->fails.n ? "\n" : "", text);
    } else if (strcmp(line, "note") == 0) {
        cf_add(&w->note, "%s", text);
    } else if (strcmp(line, "down") == 0) {
        cf_add(&w->down, "%s", text);
    } else if (strcmp(line, "done") == 0 && w->row) {
        char *rest;
        w->row->cases = strtoll(text, &rest, 10);
        w->row->ms = strtod(rest, NULL);
        finish(w, o);
    } else if (w->facts) {
        probe_answer(w, line, text);
    }
}

/* false: the worker has ended. */
static bool take(worker *w, const cf_options *o) {
    char buffer[4096];
    ssize_t n = read(w->from, buffer, sizeof buffer);
    if (n <= 0) return n < 0 && errno == EINTR;
    for (ssize_t i = 0; i < n; i++) {
        if (buffer[i] != '\n') {
            cf_add(&w->line, "%c", buffer[i]);
            continue;
        }
        if (w->line.n) take_line(w, o, w->line.s);
        cf_clear(&w->line);
    }
    return true;
}

/* ---- Rows --------------------------------------------------------------------------------------*/

static cf_row *next_row(cf_plan *p, int32_t *at) {
    while (*at < p->n && p->rows[*at].status != CF_PENDING) ++*at;
    return *at < p->n ? &p->rows[(*at)++] : NULL;
}

static void hand_out(worker *w, const cf_options *o, const cf_plan *p, cf_row *row) {
    char line[32];
    int n = snprintf(line, sizeof line, "%ld\n", (long)(row - p->rows));
    w->row = row;
    w->deadline = cf_seconds() + o->timeout;
    cf_clear(&w->at);
    cf_clear(&w->fails);
    cf_clear(&w->note);
    if (write(w->to, line, (size_t)n) != n) w->hung = false; /* its end is seen by the reader */
}

/* The row that a worker died of. */
static void bury(worker *w, const cf_options *o) {
    cf_text how = {0};
    cf_row *row = w->row;
    reap(w, o, &how);
    if (row) {
        cf_add(&w->fails, "%s%s%s%s", w->fails.n ? "\n" : "", w->at.n ? w->at.s : "",
               w->at.n ? ": " : "", how.s);
        row->cases++;
        finish(w, o);
    }
    cf_free(&how);
}

static void progress(const cf_plan *p, const worker *w) {
    static double shown;
    char name[128];
    if (!isatty(2) || !w->row || cf_seconds() - shown < 0.1) return;
    shown = cf_seconds();
    fprintf(stderr, "\r\033[K%ld/%d %s", (long)(w->row - p->rows), p->n,
            cf_row_name(w->row, name, sizeof name));
}

/* Waits for one event of the workers. */
static void wait_once(worker *w, int32_t n, const cf_options *o) {
    struct pollfd fds[64];
    double now = cf_seconds(), first = now + 1;
    for (int32_t i = 0; i < n; i++) {
        fds[i] = (struct pollfd){.fd = w[i].pid ? w[i].from : -1, .events = POLLIN};
        if (w[i].pid && w[i].row && w[i].deadline < first) first = w[i].deadline;
    }
    int ready = poll(fds, (nfds_t)n, first > now ? (int)(1e3 * (first - now)) + 1 : 0);
    for (int32_t i = 0; i < n; i++) {
        if (ready > 0 && fds[i].revents && !take(&w[i], o)) bury(&w[i], o);
        if (w[i].pid && w[i].row && cf_seconds() > w[i].deadline) {
            w[i].hung = true;
            kill(w[i].pid, SIGKILL);
            bury(&w[i], o);
        }
    }
}

bool cf_run_plan(const cf_options *o, char **argv, cf_plan *p, cf_text *why) {
    worker *w = cf_alloc((size_t)o->jobs * sizeof *w);
    char **with = worker_argv(argv);
    int32_t at = 0, busy;
    bool good = true;
    signal(SIGPIPE, SIG_IGN);
    do {
        busy = 0;
        for (int32_t i = 0; good && i < o->jobs; i++) {
            cf_row *row = w[i].row ? NULL : next_row(p, &at);
            if (row && !w[i].pid && !spawn(&w[i], with)) {
                cf_add(why, "no worker could be started: %s", strerror(errno));
                good = false;
            } else if (row) {
                hand_out(&w[i], o, p, row);
            }
            busy += w[i].row != NULL;
            progress(p, &w[i]);
        }
        if (good && busy) wait_once(w, o->jobs, o);
        for (int32_t i = 0; good && i < o->jobs; i++) {
            if (!w[i].down.n) continue;
            cf_add(why, "%s", w[i].down.s);
            good = false;
        }
    } while (good && busy);
    for (int32_t i = 0; i < o->jobs; i++) stop(&w[i]);
    if (isatty(2)) fputs("\r\033[K", stderr);
    return good;
}

bool cf_run_probe(const cf_options *o, const cf_data *d, char **argv, cf_device_facts *ret_facts,
                  cf_text *why) {
    worker w = {.facts = ret_facts};
    cf_text how = {0};
    ret_facts->met = cf_alloc((size_t)(d->nneeds + 1) * sizeof(bool));
    signal(SIGPIPE, SIG_IGN);
    if (!spawn(&w, worker_argv(argv)) || write(w.to, "probe\n", 6) != 6) {
        cf_add(why, "no worker could be started: %s", strerror(errno));
        return false;
    }
    double deadline = cf_seconds() + o->timeout;
    struct pollfd fd = {.fd = w.from, .events = POLLIN};
    for (bool alive = true; alive;) {
        int left = (int)(1e3 * (deadline - cf_seconds())) + 1;
        int ready = poll(&fd, 1, left > 0 ? left : 0);
        w.hung = ready == 0;
        if (w.hung) kill(w.pid, SIGKILL);
        alive = ready > 0 && take(&w, o);
    }
    reap(&w, o, &how);
    if (!w.down.n && ret_facts->describe) return true;
    cf_add(why, "%s", w.down.n ? w.down.s : how.s);
    return false;
}
