/* host.c: what libtenon asks of the language that it is used from (tn_host_set_hooks), and the tables that
 * higher rooms fill at start. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core_priv.h"
#include "os_priv.h"

tni_offer_hooks tni_offers;
void (*tni_note_read)(const tn_tensor *t);
void (*tni_note_write)(void);
tn_host tni_host;
tni_late_hooks tni_late;

bool tni_is_conjugate(const tn_tensor *t) {
    const tni_life *l =
        t->storage ? atomic_load_explicit(&t->storage->life, memory_order_acquire) : NULL;
    return l && l->origin;
}

bool tni_origin_is_there(const tn_tensor *t) {
    const tni_life *l = atomic_load_explicit(&t->storage->life, memory_order_acquire);
    while ((l = l->origin) && atomic_load_explicit(&l->ended, memory_order_acquire)) continue;
    return l != NULL;
}

bool tni_is_readonly(const tn_tensor *t) {
    if (TN_LIKELY(!(t->v.word & TN_W_READONLY))) return false;
    bool lent = t->storage && (t->storage->flags & TNI_ST_LENT);
    if (t->storage && tni_is_conjugate(t)) {
        if (tni_origin_is_there(t)) return true;
    } else if (!lent) {
        return true;
    }
    if (lent && tni_late.settle_all() != TN_OK) return true;
    ((tn_tensor *)(uintptr_t)t)->v.word &= ~TN_W_READONLY; /* a view has its base's */
    return false;
}

tn_status tni_release(tn_tensor *t) {
    TN_TRY(tni_settle(t));
    bool lent = (t->v.word & TN_W_READONLY) && t->storage && (t->storage->flags & TNI_ST_LENT);
    return lent && tni_is_readonly(t) ? TN_E_STATE : TN_OK;
}

static tn_host_hooks hooks;

void tn_host_set_hooks(const tn_host_hooks *h) {
    if (!h) return;
    tn_host_hooks copy = {0};
    memcpy(&copy, h, h->struct_size < sizeof copy ? h->struct_size : sizeof copy);
    hooks = copy;
}

void tni_host_tensor_dying(tn_tensor *t) {
    if (hooks.tensor_dying) hooks.tensor_dying(t);
}

char *tni_host_where(void) { return hooks.where ? hooks.where() : NULL; }

/* ---- Messages ---------------------------------------------------------------------------------*/

struct tni_message {
    struct tni_message *next;
    int32_t level;
    char text[1024];
};

/* Messages that wait for tni_host_log_release, and whether they do. */
static TN_TLS struct tni_message *messages;
static TN_TLS int32_t log_held;

/* At the end of the thread's list; lost when there is no memory for it. */
static void keep_message(int32_t level, const char *text) {
    struct tni_message *m = malloc(sizeof *m), **at = &messages;
    if (!m) return;
    m->next = NULL;
    m->level = level;
    memcpy(m->text, text, strlen(text) + 1);
    while (*at) at = &(*at)->next;
    *at = m;
}

void tni_host_log(int32_t level, const char *fmt, ...) {
    char text[sizeof((struct tni_message *)0)->text];
    va_list ap;
    if (!hooks.log) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (log_held > 0)
        keep_message(level, text);
    else
        hooks.log(level, text);
}

void tni_host_log_hold(void) { log_held++; }

void tni_host_log_release(void) {
    if (--log_held > 0) return;
    while (messages) {
        struct tni_message *m = messages;
        messages = m->next;
        if (hooks.log) hooks.log(m->level, m->text);
        free(m);
    }
}

/* ---- Settings ---------------------------------------------------------------------------------*/

int tni_setting(const char *name, const char *const *words, int nwords, int other) {
    const char *text = tni_os_getenv(name);
    char all[128] = "";
    if (!text || !*text) return other;
    for (int i = 0; i < nwords; i++) {
        if (strcmp(text, words[i]) == 0) return i;
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    tni_host_log(2, "%s is '%s', none of %s; ignored", name, text, all);
    return other;
}

bool tni_setting_is_on(const char *name, bool other) {
    static const char *const words[] = {"0", "1"};
    return tni_setting(name, words, TN_COUNT(words), other) == 1;
}

int64_t tni_setting_number(const char *name, int64_t least, int64_t most, int64_t other) {
    const char *text = tni_os_getenv(name);
    char *end;
    if (!text || !*text) return other;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno == 0 && *end == '\0' && n >= least && n <= most) return n;
    tni_host_log(2, "%s is '%s', no number from %lld to %lld; ignored", name, text,
                 (long long)least, (long long)most);
    return other;
}

/* ---- Plugins ----------------------------------------------------------------------------------*/

tn_status tni_host_admit_plugin(const char *name, const char *path, int32_t ours) {
    return hooks.admit_plugin ? hooks.admit_plugin(name, path, ours) : TN_OK;
}

tn_status tni_host_find_plugins(bool *ret_asked) {
    *ret_asked = hooks.find_plugins != NULL;
    return hooks.find_plugins ? hooks.find_plugins() : TN_OK;
}

/* ---- Others -----------------------------------------------------------------------------------*/

tn_status tni_host_poll(void) { return hooks.poll ? hooks.poll() : TN_OK; }

/* Calls from one look at the clock to the next; the time from one poll to the next. */
enum { POLL_CALLS = 64, POLL_NS = 10000000 };

tn_status tni_poll(void) {
    static TN_TLS uint32_t turn;
    static TN_TLS int64_t asked;
    if (++turn % POLL_CALLS != 0) return TN_OK;
    int64_t now = tni_os_clock_ns();
    if (now - asked < POLL_NS) return TN_OK;
    asked = now;
    return tni_host_poll();
}

void tn_free(void *p) { free(p); }

const char *tn_version(void) { return TN_VERSION; }
