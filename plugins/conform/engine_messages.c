/* engine_messages.c: messages between two ranks: their order, tags and senders, and those of another size
 * than the place that they are received in. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"

enum { GUARD_BYTE = 0x5c, FLIGHT = 16, GUARD = 64 };

cf_block cf_block_new(size_t bytes, size_t guard) {
    cf_block b = {.n = bytes, .guard = guard};
    b.all = cf_alloc(b.n + 2 * guard);
    memset(b.all, GUARD_BYTE, b.n + 2 * guard);
    b.at = b.all + guard;
    return b;
}

void cf_block_free(cf_rank *r, cf_block *b, const tn_exchange *x) {
    size_t beside = 0;
    for (size_t i = 0; i < b->guard; i++)
        beside +=
            (size_t)(b->all[i] != GUARD_BYTE) + (size_t)(b->all[b->guard + b->n + i] != GUARD_BYTE);
    if (beside)
        cf_rank_fail(r, "%s: %zu bytes beside its memory were written", cf_exchange_text(x),
                     beside);
    free(b->all);
    *b = (cf_block){0};
}

static int64_t timeout_ms(const cf_rank *r) { return (int64_t)(1e3 * r->options->timeout); }

/* Messages of one tag come in the order in which they were sent; tags tell others apart. */
void cf_check_tags(cf_rank *r) {
    int64_t sent[FLIGHT], got[FLIGHT];
    tn_exchange sends[FLIGHT], recvs[FLIGHT];
    void *out[FLIGHT], *in[FLIGHT];
    for (int32_t i = 0; i < FLIGHT && !r->lost; i++) {
        sent[i] = 1000 * r->rank + i;
        sends[i] = (tn_exchange){.kind = TN_EXCHANGE_SEND,
                                 .dtype = TN_I64,
                                 .element = TN_I64,
                                 .peer = (r->rank + 1) % r->size,
                                 .tag = i % 2 ? 32767 : 0,
                                 .count = 1,
                                 .in = &sent[i],
                                 .timeout_ms = timeout_ms(r)};
        out[i] = cf_rank_start(r, r->world, &sends[i]);
    }
    for (int32_t i = 0; i < FLIGHT && !r->lost; i++) { /* the second tag's first */
        int32_t k = i < FLIGHT / 2 ? 2 * i + 1 : 2 * (i - FLIGHT / 2);
        recvs[i] = sends[k];
        recvs[i].kind = TN_EXCHANGE_RECV;
        recvs[i].peer = (r->rank + r->size - 1) % r->size;
        recvs[i].in = NULL;
        recvs[i].out = &got[k];
        in[i] = cf_rank_start(r, r->world, &recvs[i]);
    }
    for (int32_t i = 0; i < FLIGHT && !r->lost; i++)
        if (!cf_rank_finish(r, r->world, in[i], &recvs[i])) return;
    for (int32_t i = 0; i < FLIGHT && !r->lost; i++)
        if (!cf_rank_finish(r, r->world, out[i], &sends[i])) return;
    r->cases++;
    for (int32_t i = 0; i < FLIGHT && !r->lost; i++) {
        int64_t want = 1000 * ((r->rank + r->size - 1) % r->size) + i;
        if (got[i] == want) continue;
        cf_rank_fail(r, "messages: number %d of tag %d is %lld, not %lld", i / 2, i % 2 ? 32767 : 0,
                     (long long)got[i], (long long)want);
        return;
    }
}

/* ---- Whose they are ----------------------------------------------------------------------------*/

/* Every other rank sends to rank 0, which hears whose each message is, and gets those of one rank in
 * their order. Other engines pass by. */
static void check_senders(cf_rank *r) {
    int64_t value, next[CF_RANKS] = {0};
    tn_exchange x = {.kind = r->rank ? TN_EXCHANGE_SEND : TN_EXCHANGE_RECV,
                     .dtype = TN_I64,
                     .element = TN_I64,
                     .peer = r->rank ? 0 : TN_EXCHANGE_ANY,
                     .tag = 3,
                     .count = 1,
                     .in = &value,
                     .out = &value,
                     .timeout_ms = timeout_ms(r)};
    int32_t n = r->rank ? FLIGHT : FLIGHT * (r->size - 1), from = 0;
    for (int32_t i = 0; i < n && !r->lost; i++) {
        value = 1000 * r->rank + i;
        void *request = cf_rank_start(r, r->world, &x);
        if (r->lost) return;
        if (r->rank && !cf_rank_finish(r, r->world, request, &x)) return;
        if (r->rank) continue;
        if (!cf_rank_finish_any(r, r->world, request, &x, &from)) return;
        r->cases++;
        if (from >= 1 && from < r->size && value == 1000 * from + next[from]++) continue;
        cf_rank_fail(r, "any: message %d is %lld, said to be of rank %d", i, (long long)value,
                     from);
        r->lost = true;
    }
}

/* What waits for a rank that sends later keeps no other rank's message from who takes anybody's. */
static void check_apart(cf_rank *r) {
    int64_t value = r->rank, named = -1, anybody = -1;
    int32_t from = 0;
    tn_exchange x = {.kind = TN_EXCHANGE_SEND,
                     .dtype = TN_I64,
                     .element = TN_I64,
                     .tag = 4,
                     .count = 1,
                     .in = &value,
                     .timeout_ms = timeout_ms(r)};
    tn_exchange go = x, recv = x;
    go.tag = 5;
    recv.kind = TN_EXCHANGE_RECV;
    if (r->rank == 1) { /* sends when rank 0 has the other one's */
        recv.tag = 5;
        recv.out = &named;
        if (cf_rank_exchange(r, r->world, &recv)) cf_rank_exchange(r, r->world, &x);
    } else if (r->rank == 2) {
        cf_rank_exchange(r, r->world, &x);
    } else if (r->rank == 0) {
        recv.peer = go.peer = 1;
        recv.out = &named;
        void *first = cf_rank_start(r, r->world, &recv);
        if (r->lost) return;
        tn_exchange second = recv;
        second.peer = TN_EXCHANGE_ANY;
        second.out = &anybody;
        void *any = cf_rank_start(r, r->world, &second);
        if (r->lost || !cf_rank_finish_any(r, r->world, any, &second, &from)) return;
        if (!cf_rank_exchange(r, r->world, &go)) return;
        if (!cf_rank_finish(r, r->world, first, &recv)) return;
        r->cases++;
        if (from != 2 || anybody != 2 || named != 1)
            cf_rank_fail(r, "any: %lld of rank %d, and %lld of rank 1", (long long)anybody, from,
                         (long long)named);
    }
}

/* Engines that cannot receive from any rank pass by. */
void cf_check_any(cf_rank *r) {
    if (r->size == 1 || !cf_engine_has_any(r->engine)) return;
    check_senders(r);
    if (!r->lost && r->size > 2) check_apart(r);
}

/* ---- Messages of another size ------------------------------------------------------------------*/

typedef struct sizes {
    size_t sent, place;
} sizes;

static unsigned char byte_of(int32_t rank, size_t i) {
    return (unsigned char)(i * 31 + (size_t)rank * 7 + i / 255);
}

static void compare_bytes(cf_rank *r, const tn_exchange *x, const cf_block *b) {
    r->cases++;
    for (size_t i = 0; i < b->n; i++) {
        if (b->at[i] == byte_of(x->peer, i)) continue;
        cf_rank_fail(r, "%s: byte %zu of the message after one of another size is %d, not %d",
                     cf_exchange_text(x), i, b->at[i], byte_of(x->peer, i));
        return;
    }
}

static tn_exchange bytes_for(const cf_rank *r, int32_t peer, size_t n) {
    return (tn_exchange){.kind = TN_EXCHANGE_SEND,
                         .dtype = TN_U8,
                         .element = TN_U8,
                         .peer = peer,
                         .tag = 7,
                         .count = (int64_t)n,
                         .timeout_ms = timeout_ms(r)};
}

/* Every rank sends to the next one, first what does not fit, then what does. `at_once`: both places are
 * there before anything comes; `from_any`: whoever sends. */
static void one_size(cf_rank *r, sizes s, bool at_once, bool from_any) {
    int32_t before = (r->rank + r->size - 1) % r->size, from = before;
    cf_block in = cf_block_new(s.sent > s.place ? s.sent : s.place, GUARD);
    cf_block wrong = cf_block_new(s.place, s.sent + GUARD), right = cf_block_new(s.place, GUARD);
    for (size_t i = 0; i < in.n; i++) in.at[i] = byte_of(r->rank, i);
    tn_exchange sends[2], recvs[2];
    void *out[2] = {0}, *into[2] = {0};
    for (int i = 0; i < 2; i++) {
        sends[i] = bytes_for(r, (r->rank + 1) % r->size, i ? s.place : s.sent);
        sends[i].in = in.at;
        recvs[i] = bytes_for(r, from_any && !i ? TN_EXCHANGE_ANY : before, s.place);
        recvs[i].kind = TN_EXCHANGE_RECV;
        recvs[i].out = i ? right.at : wrong.at;
    }
    for (int i = 0; i < 2 && !r->lost; i++) out[i] = cf_rank_start(r, r->world, &sends[i]);
    for (int i = 0; i < 1 + at_once && !r->lost; i++)
        into[i] = cf_rank_start(r, r->world, &recvs[i]);
    if (r->lost) return;
    if (!cf_rank_refuses(r, r->world, into[0], &recvs[0], from_any ? &from : NULL)) return;
    r->cases++;
    if (from != before)
        cf_rank_fail(r, "%s: a message of another size is said to be of rank %d, not %d",
                     cf_exchange_text(&recvs[0]), from, before);
    if (!at_once) into[1] = cf_rank_start(r, r->world, &recvs[1]);
    if (r->lost || !cf_rank_finish(r, r->world, into[1], &recvs[1])) return;
    compare_bytes(r, &recvs[1], &right);
    for (int i = 0; i < 2; i++)
        if (!cf_rank_finish(r, r->world, out[i], &sends[i])) return;
    cf_block_free(r, &wrong, &recvs[0]);
    cf_block_free(r, &right, &recvs[1]);
    cf_block_free(r, &in, &sends[0]);
}

/* Larger and smaller ones, which engines move at once, and which their receivers fetch. */
void cf_check_sizes(cf_rank *r) {
    enum { SMALL = 48, MIDDLE = 6000, LARGE = 3000000 };
    static const sizes all[] = {
        {SMALL, SMALL + 8}, {SMALL + 8, SMALL}, {SMALL, 0},     {0, SMALL},
        {MIDDLE, SMALL},    {SMALL, MIDDLE},    {LARGE, SMALL}, {SMALL, LARGE},
        {LARGE, LARGE - 1}, {LARGE - 1, LARGE}, {LARGE, 0},     {LARGE, LARGE / 3},
    };
    bool has_any = r->size > 1 && cf_engine_has_any(r->engine);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int how = 0; how < (has_any ? 3 : 2) && !r->lost; how++)
            one_size(r, all[i], how != 0, how == 2);
}
