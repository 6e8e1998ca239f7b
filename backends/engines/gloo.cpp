// gloo.cpp: Gloo as an engine (tenon/engine.h), for programs that start without a launcher of MPI.
// Ranks find each other by files in the folder that they are given, then talk over TCP, on the
// loopback interface unless another one is named. Gloo's calls wait, so that a group has a thread for
// its exchanges, one after the other, and a message between two ranks has one that waits for it: what
// waits in one group never keeps another from going on.
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <pthread.h>

#include <tenon/dtype.h>
#include <tenon/engine.h>

namespace {

using Milliseconds = std::chrono::milliseconds;
using Reduce = std::function<void(void *, const void *, const void *, size_t)>;

struct Meeting {
    std::string folder;
    std::shared_ptr<gloo::transport::Device> device;
};

// An exchange of all ranks, or a message of two. The thread that waits for it holds it, too, so that
// it may be given up.
struct Exchange {
    tn_exchange x;
    std::vector<int64_t> counts; // those of x, of all_to_all
    // Of a message: what goes ahead of it, and the message. Gloo ends the process where a message does
    // not fit, so one of another size than is expected goes to `dropped`.
    uint64_t bytes = 0;
    std::array<uint64_t, 2> ahead{};
    std::unique_ptr<gloo::transport::UnboundBuffer> ahead_buffer, buffer;
    std::vector<char> dropped;
    bool posted = false;  // of a RECV, guarded by its inbox: Gloo knows of it
    std::string unposted; // why not
    tn_status status = TN_OK;
    char why[TN_ENGINE_WHY] = "";
    std::atomic<bool> done{false};
};

// RECVs that no message has come for, by tag, in the order of their starts. Gloo gives a message to one
// from its rank before one from any: what follows one from any is kept back until that one has its own.
struct Inbox {
    std::mutex lock;
    std::map<int32_t, std::deque<std::shared_ptr<Exchange>>> waiting;
};

struct Group {
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::shared_ptr<Inbox> inbox = std::make_shared<Inbox>();
    std::shared_ptr<Meeting> meeting;
    std::string name;
    uint32_t calls = 0; // the thread's: tells exchanges apart that follow each other
    uint32_t sent = 0;  // messages
    std::thread thread; // from the first exchange on
    std::atomic<int> asked{0};
    std::mutex lock; // guards what follows
    std::condition_variable more;
    std::deque<std::shared_ptr<Exchange>> queue;
    bool ends = false;

    ~Group() {
        if (!thread.joinable()) return;
        {
            std::lock_guard<std::mutex> held(lock);
            ends = true;
        }
        more.notify_one();
        thread.join();
    }
};

struct Request {
    std::shared_ptr<Exchange> exchange; // none: it is done
};

void say(char *why, const char *text) { std::snprintf(why, TN_ENGINE_WHY, "%s", text); }

// What a rank called does not fit what another one did; the group is as it was.
struct Mismatch : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Runs fn; an exception becomes a status.
template <typename F> tn_status guarded(char *why, F fn) {
    try {
        fn();
        return TN_OK;
    } catch (const std::bad_alloc &) {
        say(why, "out of memory");
        return TN_E_MEMORY;
    } catch (const Mismatch &e) {
        say(why, e.what());
        return TN_E_VALUE;
    } catch (const std::exception &e) {
        say(why, e.what());
    } catch (...) {
        say(why, "an exception of an unknown kind");
    }
    return TN_E_IO;
}

// Gloo writes to sockets as they come: to that of a rank which has died it is a SIGPIPE, whose usual
// meaning is the end of the process. While this lives, the thread's are kept back, and gone at its end;
// threads that are made meanwhile never take one.
class NoPipeSignal {
    sigset_t pipe, before;
    bool waited; // before this began: it is another's

  public:
    NoPipeSignal() {
        sigset_t pending;
        sigemptyset(&pipe);
        sigaddset(&pipe, SIGPIPE);
        sigemptyset(&pending);
        sigpending(&pending);
        waited = sigismember(&pending, SIGPIPE) == 1;
        pthread_sigmask(SIG_BLOCK, &pipe, &before);
    }
    ~NoPipeSignal() {
        const timespec now = {0, 0};
        while (!waited && sigtimedwait(&pipe, nullptr, &now) < 0 && errno == EINTR) continue;
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    NoPipeSignal(const NoPipeSignal &) = delete;
    NoPipeSignal &operator=(const NoPipeSignal &) = delete;
};

// ---- Types and reductions ----

size_t bytes_of(int32_t dtype) {
    switch (dtype) {
    case TN_I32:
    case TN_F32: return 4;
    case TN_I64:
    case TN_F64: return 8;
    default: return 1;
    }
}

template <typename T, typename F>
void each(void *out, const void *a, const void *b, size_t n, F f) {
    auto *o = static_cast<T *>(out);
    auto *x = static_cast<const T *>(a);
    auto *y = static_cast<const T *>(b);
    for (size_t i = 0; i < n; i++) o[i] = static_cast<T>(f(x[i], y[i]));
}

template <typename T> T bits(uint32_t op, T x, T y) {
    return static_cast<T>(op == TN_EXCHANGE_BAND ? x & y : op == TN_EXCHANGE_BOR ? x | y : x ^ y);
}

template <typename T> Reduce arithmetic(uint32_t op) {
    // A NaN of either side stays, as it does in the reductions of tensors.
    auto less = [](T x, T y) { return x < y || x != x ? x : y; };
    auto more = [](T x, T y) { return x > y || x != x ? x : y; };
    switch (op) {
    case TN_EXCHANGE_SUM:
        return [](void *o, const void *a, const void *b, size_t n) {
            each<T>(o, a, b, n, [](T x, T y) { return x + y; });
        };
    case TN_EXCHANGE_PRODUCT:
        return [](void *o, const void *a, const void *b, size_t n) {
            each<T>(o, a, b, n, [](T x, T y) { return x * y; });
        };
    case TN_EXCHANGE_MIN:
        return
            [less](void *o, const void *a, const void *b, size_t n) { each<T>(o, a, b, n, less); };
    default:
        return
            [more](void *o, const void *a, const void *b, size_t n) { each<T>(o, a, b, n, more); };
    }
}

template <typename T> Reduce integral(uint32_t op) {
    if (op < TN_EXCHANGE_BAND) return arithmetic<T>(op);
    return [op](void *o, const void *a, const void *b, size_t n) {
        each<T>(o, a, b, n, [op](T x, T y) { return bits<T>(op, x, y); });
    };
}

Reduce reduction(int32_t dtype, uint32_t op) {
    switch (dtype) {
    case TN_U8: return integral<uint8_t>(op);
    case TN_I8: return integral<int8_t>(op);
    case TN_I32: return integral<int32_t>(op);
    case TN_I64: return integral<int64_t>(op);
    case TN_F32: return arithmetic<float>(op);
    default: return arithmetic<double>(op);
    }
}

// ---- Groups ----

// Gloo asks a store for single keys without saying for how long, and takes 30 seconds then.
class PatientStore : public gloo::rendezvous::Store {
    gloo::rendezvous::FileStore files;
    const Milliseconds timeout;

  public:
    PatientStore(const std::string &folder, Milliseconds timeout)
        : files(folder), timeout(timeout) {}
    void set(const std::string &key, const std::vector<char> &data) override {
        return files.set(key, data);
    }
    std::vector<char> get(const std::string &key) override {
        files.wait({key}, timeout);
        return files.get(key);
    }
    void wait(const std::vector<std::string> &keys) override { files.wait(keys, timeout); }
    void wait(const std::vector<std::string> &keys, const Milliseconds &) override {
        files.wait(keys, timeout);
    }
};

Group *join(std::shared_ptr<Meeting> meeting, const std::string &name, int rank, int size,
            int64_t timeout_ms) {
    auto group = std::make_unique<Group>();
    group->context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    group->context->setTimeout(Milliseconds(timeout_ms));
    PatientStore files(meeting->folder, Milliseconds(timeout_ms));
    gloo::rendezvous::PrefixStore store(name, files);
    group->context->connectFullMesh(store, meeting->device);
    // A rank that went on, and left, would end connections that others have not made yet.
    gloo::BarrierOptions all(group->context);
    all.setTag(group->calls++);
    all.setTimeout(Milliseconds(timeout_ms));
    gloo::barrier(all);
    group->meeting = std::move(meeting);
    group->name = name;
    return group.release();
}

tn_status open_world(const tn_engine_place *place, void **ret_group, char *why) {
    NoPipeSignal quiet;
    return guarded(why, [&] {
        auto meeting = std::make_shared<Meeting>();
        gloo::transport::tcp::attr where;
        if (place->interface)
            where.iface = place->interface;
        else
            where.hostname = "127.0.0.1";
        meeting->folder = place->folder;
        meeting->device = gloo::transport::tcp::CreateDevice(where);
        *ret_group = join(meeting, "world", place->rank, place->size, place->timeout_ms);
    });
}

tn_status part(void *group, const int32_t *ranks, int32_t n, uint32_t id, int64_t timeout_ms,
               void **ret_group, char *why) {
    auto *g = static_cast<Group *>(group);
    NoPipeSignal quiet;
    return guarded(why, [&] {
        int rank = 0;
        for (int32_t i = 0; i < n; i++)
            if (ranks[i] == g->context->rank) rank = i;
        std::string name = g->name + "." + std::to_string(id);
        *ret_group = join(g->meeting, name, rank, n, timeout_ms);
    });
}

void close_group(void *group) {
    NoPipeSignal quiet;
    delete static_cast<Group *>(group);
}

// Other ranks notice that this one's connections have ended.
void abort_group(void *group, int32_t code) {
    (void)group;
    (void)code;
}

// ---- Exchanges ----

void all_reduce(Group *g, const tn_exchange *x, void *data, size_t count) {
    gloo::AllreduceOptions o(g->context);
    size_t size = bytes_of(x->dtype);
    // Every rank passes memory of one type, so the bytes say enough.
    switch (size) {
    case 1: o.setOutput(static_cast<uint8_t *>(data), count); break;
    case 4: o.setOutput(static_cast<uint32_t *>(data), count); break;
    default: o.setOutput(static_cast<uint64_t *>(data), count);
    }
    o.setReduceFunction(reduction(x->dtype, x->op));
    o.setTag(g->calls);
    o.setTimeout(Milliseconds(x->timeout_ms));
    gloo::allreduce(o);
}

void broadcast(Group *g, const tn_exchange *x) {
    gloo::BroadcastOptions o(g->context);
    o.setOutput(static_cast<uint8_t *>(x->out), static_cast<size_t>(x->count) * bytes_of(x->dtype));
    o.setRoot(x->peer);
    o.setTag(g->calls);
    o.setTimeout(Milliseconds(x->timeout_ms));
    gloo::broadcast(o);
}

void all_gather(Group *g, const tn_exchange *x) {
    gloo::AllgatherOptions o(g->context);
    size_t bytes = static_cast<size_t>(x->count) * bytes_of(x->dtype);
    o.setInput(static_cast<uint8_t *>(const_cast<void *>(x->in)), bytes);
    o.setOutput(static_cast<uint8_t *>(x->out), bytes * static_cast<size_t>(g->context->size));
    o.setTag(g->calls);
    o.setTimeout(Milliseconds(x->timeout_ms));
    gloo::allgather(o);
}

// All of it is reduced, and a part taken: the bits are those of ALL_REDUCE.
void reduce_scatter(Group *g, const tn_exchange *x) {
    size_t count = static_cast<size_t>(x->count), size = bytes_of(x->dtype);
    size_t ranks = static_cast<size_t>(g->context->size);
    std::vector<char> all(ranks * count * size);
    if (all.empty()) return;
    std::memcpy(all.data(), x->in, all.size());
    all_reduce(g, x, all.data(), ranks * count);
    std::memcpy(x->out, all.data() + static_cast<size_t>(g->context->rank) * count * size,
                count * size);
}

void all_to_all(Group *g, const tn_exchange *x) {
    gloo::AlltoallvOptions o(g->context);
    int64_t size = static_cast<int64_t>(bytes_of(x->dtype));
    std::vector<int64_t> in(x->in_counts, x->in_counts + g->context->size);
    std::vector<int64_t> out(x->out_counts, x->out_counts + g->context->size);
    for (auto &n : in) n *= size;
    for (auto &n : out) n *= size;
    o.setInput(static_cast<uint8_t *>(const_cast<void *>(x->in)), in);
    o.setOutput(static_cast<uint8_t *>(x->out), out);
    o.setTag(g->calls);
    o.setTimeout(Milliseconds(x->timeout_ms));
    gloo::alltoallv(o);
}

void barrier(Group *g, const tn_exchange *x) {
    gloo::BarrierOptions o(g->context);
    o.setTag(g->calls);
    o.setTimeout(Milliseconds(x->timeout_ms));
    gloo::barrier(o);
}

void run(Group *g, const tn_exchange *x) {
    if (x->kind == TN_EXCHANGE_BARRIER) return barrier(g, x);
    if (x->count == 0 && x->kind != TN_EXCHANGE_ALL_TO_ALL) return;
    switch (x->kind) {
    case TN_EXCHANGE_BROADCAST: return broadcast(g, x);
    case TN_EXCHANGE_ALL_GATHER: return all_gather(g, x);
    case TN_EXCHANGE_REDUCE_SCATTER: return reduce_scatter(g, x);
    case TN_EXCHANGE_ALL_TO_ALL: return all_to_all(g, x);
    default: return all_reduce(g, x, x->out, static_cast<size_t>(x->count)); // REDUCE, too
    }
}

// Slots of messages lie beside those of exchanges, whose tags go through the same numbers. What goes
// ahead has a slot for each tag, where it keeps its order; each message has one of its own.
uint64_t slot_of(int32_t tag) { return (uint64_t{1} << 40) + static_cast<uint64_t>(tag); }
uint64_t slot_of_message(uint64_t number) { return (uint64_t{1} << 41) + number; }

// Runs what waits for other ranks, and says how it ended.
template <typename F> void finish(Exchange &e, F fn) {
    e.status = guarded(e.why, fn);
    e.done.store(true, std::memory_order_release);
}

void wait_for_send(Exchange &e, Milliseconds timeout) {
    e.ahead_buffer->waitSend(timeout);
    e.buffer->waitSend(timeout);
}

std::vector<int> others(const gloo::Context &context) {
    std::vector<int> ranks;
    for (int r = 0; r < context.size; r++)
        if (r != context.rank) ranks.push_back(r);
    return ranks;
}

void post(const gloo::Context &context, Exchange &e) {
    e.posted = true;
    try {
        if (e.x.peer == TN_EXCHANGE_ANY)
            e.ahead_buffer->recv(others(context), slot_of(e.x.tag));
        else
            e.ahead_buffer->recv(e.x.peer, slot_of(e.x.tag));
    } catch (const std::exception &error) {
        e.unposted = error.what();
        e.ahead_buffer->abortWaitRecv();
    }
}

// Posts what may be posted of a tag, under the inbox's lock.
void post_waiting(const gloo::Context &context, Inbox &inbox, int32_t tag) {
    bool any_waits = false;
    for (const auto &e : inbox.waiting[tag]) {
        const bool is_any = e->x.peer == TN_EXCHANGE_ANY;
        if (!e->posted && any_waits && !is_any) return;
        if (!e->posted) post(context, *e);
        any_waits = any_waits || is_any;
    }
}

void wait_for_ahead(const gloo::Context &context, Inbox &inbox, Exchange &e, Milliseconds timeout) {
    int from = e.x.peer;
    bool came = false;
    std::exception_ptr failure;
    try {
        came = e.ahead_buffer->waitRecv(&from, timeout);
    } catch (...) {
        failure = std::current_exception();
    }
    std::lock_guard<std::mutex> held(inbox.lock);
    auto &waiting = inbox.waiting[e.x.tag];
    for (auto at = waiting.begin(); at != waiting.end(); ++at) {
        if (at->get() != &e) continue;
        waiting.erase(at);
        break;
    }
    if (failure) std::rethrow_exception(failure);
    if (!came) throw std::runtime_error(e.unposted);
    e.x.peer = from;
    post_waiting(context, inbox, e.x.tag);
}

void receive(gloo::Context &context, Inbox &inbox, Exchange &e, Milliseconds timeout) {
    wait_for_ahead(context, inbox, e, timeout);
    const uint64_t bytes = e.ahead[0], expected = e.bytes;
    void *data = e.x.out;
    if (bytes != expected) {
        e.dropped.resize(bytes);
        data = e.dropped.data();
    }
    e.buffer = context.createUnboundBuffer(data, bytes);
    e.buffer->recv(e.x.peer, slot_of_message(e.ahead[1]));
    e.buffer->waitRecv(timeout);
    if (bytes != expected)
        throw Mismatch("the message has " + std::to_string(bytes) + " bytes, " +
                       std::to_string(expected) + " are expected");
}

void start_message(Group *g, const std::shared_ptr<Exchange> &e) {
    const tn_exchange *x = &e->x;
    bool sends = x->kind == TN_EXCHANGE_SEND;
    NoPipeSignal quiet;
    e->bytes = static_cast<uint64_t>(x->count) * bytes_of(x->dtype);
    e->ahead_buffer = g->context->createUnboundBuffer(e->ahead.data(), sizeof e->ahead);
    if (sends) {
        e->ahead = {e->bytes, g->sent++};
        e->ahead_buffer->send(x->peer, slot_of(x->tag));
        e->buffer = g->context->createUnboundBuffer(const_cast<void *>(x->in), e->bytes);
        e->buffer->send(x->peer, slot_of_message(e->ahead[1]));
    } else {
        std::lock_guard<std::mutex> held(g->inbox->lock);
        g->inbox->waiting[x->tag].push_back(e);
        post_waiting(*g->context, *g->inbox, x->tag);
    }
    auto timeout = Milliseconds(x->timeout_ms);
    std::thread([e, sends, timeout, context = g->context, inbox = g->inbox] {
        finish(*e, [&] {
            if (sends)
                wait_for_send(*e, timeout);
            else
                receive(*context, *inbox, *e, timeout);
        });
    }).detach();
}

// Looks for the next exchange before the thread sleeps: many come soon after the last one.
constexpr int LOOKS = 200;

void attend(Group *g) {
    for (;;) {
        for (int i = 0; i < LOOKS && g->asked == 0; i++) std::this_thread::yield();
        std::shared_ptr<Exchange> e;
        {
            std::unique_lock<std::mutex> held(g->lock);
            g->more.wait(held, [g] { return g->ends || !g->queue.empty(); });
            if (g->queue.empty()) return;
            e = std::move(g->queue.front());
            g->queue.pop_front();
        }
        g->asked--;
        g->calls = (g->calls + 1) & 0xffffff;
        finish(*e, [&] { run(g, &e->x); });
    }
}

void start_exchange(Group *g, const std::shared_ptr<Exchange> &e) {
    tn_exchange &x = e->x;
    if (x.kind == TN_EXCHANGE_ALL_TO_ALL) { // the caller's go when the exchange is given up
        size_t ranks = static_cast<size_t>(g->context->size);
        e->counts.assign(x.in_counts, x.in_counts + ranks);
        e->counts.insert(e->counts.end(), x.out_counts, x.out_counts + ranks);
        x.in_counts = e->counts.data();
        x.out_counts = e->counts.data() + ranks;
    }
    if (!g->thread.joinable()) {
        NoPipeSignal quiet;
        g->thread = std::thread(attend, g);
    }
    {
        std::lock_guard<std::mutex> held(g->lock);
        g->queue.push_back(e);
    }
    g->asked++;
    g->more.notify_one();
}

tn_status start(void *group, const tn_exchange *x, void **ret_request, char *why) {
    auto *g = static_cast<Group *>(group);
    return guarded(why, [&] {
        auto request = std::make_unique<Request>();
        if (g->context->size > 1) {
            request->exchange = std::make_shared<Exchange>();
            request->exchange->x = *x;
            bool is_message = x->kind == TN_EXCHANGE_SEND || x->kind == TN_EXCHANGE_RECV;
            (is_message ? start_message : start_exchange)(g, request->exchange);
        } else if (x->in && x->out && x->in != x->out) {
            int64_t count = x->kind == TN_EXCHANGE_ALL_TO_ALL ? x->in_counts[0] : x->count;
            std::memcpy(x->out, x->in, static_cast<size_t>(count) * bytes_of(x->dtype));
        }
        *ret_request = request.release();
    });
}

tn_status test_from(void *group, void *request, int32_t *ret_done, int32_t *ret_peer, char *why) {
    (void)group;
    auto *r = static_cast<Request *>(request);
    *ret_done = !r->exchange || r->exchange->done.load(std::memory_order_acquire);
    if (!*ret_done) return TN_OK;
    std::unique_ptr<Request> ended(r);
    if (!r->exchange) return TN_OK;
    *ret_peer = r->exchange->x.peer;
    if (r->exchange->status != TN_OK) say(why, r->exchange->why);
    return r->exchange->status;
}

tn_status test(void *group, void *request, int32_t *ret_done, char *why) {
    int32_t peer;
    return test_from(group, request, ret_done, &peer, why);
}

const tn_engine table = {
    sizeof(tn_engine), TN_ENGINE_VERSION, "gloo",    open_world, part,    start,   test,
    close_group,       abort_group,       test_from, nullptr,    nullptr, nullptr, nullptr,
    nullptr,
};

} // namespace

extern "C" __attribute__((visibility("default"))) const tn_engine *
tn_engine_main(uint32_t version) {
    return version == TN_ENGINE_VERSION ? &table : nullptr;
}
