/* SPDX-License-Identifier: Apache-2.0 */
// world.cc: the threads of a world, and the functions that replace those of the system (see world.h).
#include "world.h"

#include <zoff/zoff.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

extern "C" {
ssize_t __real_pread(int, void *, size_t, off_t);
ssize_t __real_pwrite(int, const void *, size_t, off_t);
}

namespace
{
const uint64_t TURN_NS = 1000, NEVER = UINT64_MAX;
const uint64_t MOST_TURNS = 1000000,
               MOST_NS = 4000ull * 1000000000; // most time from one transfer, or the begin of an operation, to the next

// A thread. It runs, could run, or waits for an address, until some moment at most.
struct strand {
    sem_t go;
    pthread_t id = {};
    const char *waits = nullptr; // what the thread waits for; NULL: it could run
    const void *on = nullptr;
    uint64_t until = NEVER;
    bool is_late = false; // the moment has come
    void *(*fn)(void *) = nullptr;
    void *ctx = nullptr;
    bool has_ended = false;
    unsigned number = 0;
};

// The writes to a file since its last flush, in their order.
struct unflushed {
    struct part {
        off_t offset;
        std::string old, now;
    };
    dev_t device;
    ino_t inode;
    int fd = -1;
    std::vector<part> parts;
};

struct world {
    sim::dice random{0};
    unsigned stay = 4;
    std::function<void(const std::string &)> on_end;
    std::function<void()> on_crash;
    std::vector<unflushed> files; // in the order of their first writes, because numbers of inodes differ from run to run
    bool remembers = false;
    std::vector<std::unique_ptr<strand>> strands;
    std::map<const void *, std::pair<strand *, unsigned>> locks; // mutexes that are locked, by whom, how often
    uint64_t now = 1000000000, turns = 0, first_turn = 0, first_now = 0;
    sim::fault_kind fault = sim::fault_kind::none;
    unsigned nth = 0, errors = 0;
    int error = 0;
    bool lasts = false, was_hit = false;
    pthread_key_t end_key;
    uint64_t trace = 14695981039346656037u; // a hash of all turns and transfers
};

world *all; // NULL: there is none, and functions are the system's
thread_local strand *self;

void end(const std::string &how)
{
    std::string text = how;
    for (const auto &one : all->strands) {
        if (!one->has_ended)
            text += "\n  thread " + std::to_string(one->number) + (one.get() == self ? " (this one)" : "") + ": " +
                    (one->waits ? one->waits : "runs");
    }
    all->on_end(text);
    _exit(1);
}

void check_limits()
{
    if (all->turns - all->first_turn > MOST_TURNS)
        end("HANG: " + std::to_string(MOST_TURNS) + " turns without a transfer");
    if (all->now - all->first_now > MOST_NS)
        end("HANG: " + std::to_string(MOST_NS / 1000000000) + " s of virtual time without a transfer");
}

void trace(uint64_t a, uint64_t b)
{
    for (const uint64_t one : {a, b})
        all->trace = (all->trace ^ one) * 1099511628211u;
}

// Which thread runs next. `stays`: the calling one may.
strand *choose(bool stays)
{
    for (;;) {
        std::vector<strand *> ready;
        uint64_t next = NEVER;
        for (const auto &one : all->strands) {
            if (one->waits && one->until <= all->now) {
                one->waits = nullptr;
                one->is_late = true;
            }
            if (one->has_ended || (one.get() == self && !stays && one->waits))
                continue;
            if (!one->waits)
                ready.push_back(one.get());
        }
        if (!ready.empty()) {
            strand *const found = ready[all->random.below(ready.size())];
            trace(all->now, found->number);
            return found;
        }
        for (const auto &one : all->strands)
            next = one->waits && one->until < next ? one->until : next;
        if (next == NEVER)
            end("DEADLOCK: every thread waits");
        all->now = next;
        check_limits();
    }
}

void run(strand *next)
{
    strand *const me = self;
    if (next == me)
        return;
    sem_post(&next->go);
    while (me && sem_wait(&me->go) != 0)
        ;
}

// Any thread may go on.
void turn(unsigned stay)
{
    all->turns++;
    all->now += TURN_NS;
    check_limits();
    if (stay <= 1 || all->random.below(stay) == 0)
        run(choose(true));
}

// Wait for an address. @return false: the moment has come
bool wait(const char *what, const void *on, uint64_t until)
{
    strand *const me = self;
    all->turns++;
    all->now += TURN_NS;
    check_limits();
    me->waits = what;
    me->on = on;
    me->until = until;
    me->is_late = false;
    run(choose(false));
    me->until = NEVER;
    me->on = nullptr;
    return !me->is_late;
}

// Let threads that wait for an address go on: all, or some.
int wake(const void *on, uint64_t most)
{
    std::vector<strand *> found;
    for (const auto &one : all->strands) {
        if (one->waits && one->on == on)
            found.push_back(one.get());
    }
    int woken = 0;
    for (; !found.empty() && most; most--, woken++) {
        const size_t at = all->random.below(found.size());
        found[at]->waits = nullptr;
        found[at]->until = NEVER;
        found.erase(found.begin() + static_cast<ptrdiff_t>(at));
    }
    return woken;
}

void lock(const void *mutex)
{
    for (;;) {
        auto &[owner, count] = all->locks[mutex];
        if (!owner || owner == self) {
            owner = self;
            count++;
            return;
        }
        wait("a mutex", mutex, NEVER);
    }
}

void unlock(const void *mutex)
{
    auto found = all->locks.find(mutex);
    if (found == all->locks.end() || found->second.first != self)
        end("FAULT: a thread unlocks a mutex that it has not locked");
    if (--found->second.second == 0) {
        all->locks.erase(found);
        wake(mutex, UINT64_MAX);
    }
}

// Behind the destructors of thread-local data, which may wait for other threads, too: they run in the first round.
void leave(void *value)
{
    const auto round = reinterpret_cast<uintptr_t>(value);
    if (round < 3) {
        pthread_setspecific(all->end_key, reinterpret_cast<void *>(round + 1));
        return;
    }
    self->has_ended = true;
    wake(self, UINT64_MAX);
    strand *const next = choose(false);
    self = nullptr;
    run(next);
}

void *begin(void *ctx)
{
    self = static_cast<strand *>(ctx);
    while (sem_wait(&self->go) != 0)
        ;
    pthread_setspecific(all->end_key, reinterpret_cast<void *>(1));
    return self->fn(self->ctx);
}

uint64_t moment(const timespec *at) // moment in virtual time, which both clocks show
{
    return static_cast<uint64_t>(at->tv_sec) * 1000000000 + static_cast<uint64_t>(at->tv_nsec);
}

unflushed &file_of(int fd)
{
    struct stat st = {};
    (void)fstat(fd, &st);
    for (unflushed &file : all->files) {
        if (file.device == st.st_dev && file.inode == st.st_ino)
            return file;
    }
    all->files.push_back({st.st_dev, st.st_ino, -1, {}});
    return all->files.back();
}

// Takes some of the bytes of each write that nothing has flushed: sectors, or whole writes.
void lose()
{
    static const unsigned SHARES[] = {0, 20, 50, 80, 100};
    for (const unflushed &file : all->files) {
        const unsigned kept = SHARES[all->random.below(5)];
        const size_t unit = all->random.chance(50) ? 512 : SIZE_MAX;
        for (auto part = file.parts.rbegin(); part != file.parts.rend(); part++)
            (void)!__real_pwrite(file.fd, part->old.data(), part->old.size(), part->offset);
        for (const auto &part : file.parts) {
            for (size_t at = 0; at < part.now.size(); at += std::min(unit, part.now.size() - at)) {
                if (all->random.chance(kept))
                    (void)!__real_pwrite(file.fd, &part.now[at], std::min(unit, part.now.size() - at),
                                         part.offset + static_cast<off_t>(at));
            }
        }
    }
}

void remember(int fd, const void *src, size_t bytes, off_t offset)
{
    unflushed &file = file_of(fd);
    if (file.fd < 0)
        file.fd = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
    std::string old(bytes, 0); // zeros behind the end of a file
    (void)!__real_pread(file.fd, &old[0], bytes, offset);
    file.parts.push_back({offset, old, std::string(static_cast<const char *>(src), bytes)});
}

// Whether this is the one that fails, of those that count.
bool is_the_nth()
{
    if (!all->nth || --all->nth)
        return false;
    all->nth = all->lasts;
    return true;
}

// Takes the time of a transfer. @return the errno of a fault, -1: it moves a part, 0: none
int transfer(sim::fault_kind kind)
{
    uint64_t ns = 5000 + all->random.below(200000);
    int result = 0;
    const bool ends = all->fault == sim::fault_kind::kill || all->fault == sim::fault_kind::power;
    const bool moves = kind != sim::fault_kind::flush;
    const bool counts = ends || all->fault == kind || (all->fault == sim::fault_kind::slow && moves);
    const bool fails =
        counts ? is_the_nth() : all->fault == sim::fault_kind::some && moves && all->random.below(1000) < all->nth;
    all->was_hit = all->was_hit || fails;
    if (fails && all->fault == sim::fault_kind::power)
        lose();
    if (fails && ends)
        all->on_crash();
    if (fails && all->fault == sim::fault_kind::slow)
        ns += static_cast<uint64_t>(all->error) * 1000000;
    else if (fails)
        result = all->error ? all->error : moves ? -1 : EIO;
    all->errors += result > 0;
    sim::world_sleep(ns);
    sim::world_operation();
    return result;
}

// A flush does not cover what is written while it runs.
int flush(int fd, int (*real)(int))
{
    if (!all || !self)
        return real(fd);
    const size_t before = all->remembers ? file_of(fd).parts.size() : 0;
    errno = transfer(sim::fault_kind::flush);
    if (errno)
        return -1;
    if (all->remembers) {
        auto &parts = file_of(fd).parts;
        parts.erase(parts.begin(), parts.begin() + static_cast<ptrdiff_t>(std::min(before, parts.size())));
    }
    return 0;
}
} // namespace

void sim::world_start(const world_opts &opts, std::function<void(const std::string &)> on_end, std::function<void()> on_crash)
{
    world *const made = new world;
    made->random = dice(opts.seed);
    made->stay = opts.stay;
    made->on_end = std::move(on_end);
    made->on_crash = std::move(on_crash);
    pthread_key_create(&made->end_key, leave);
    made->strands.push_back(std::make_unique<strand>());
    self = made->strands.back().get();
    sem_init(&self->go, 0, 0);
    all = made;
}

void sim::world_operation()
{
    all->first_turn = all->turns;
    all->first_now = all->now;
}

void sim::world_fault(fault_kind kind, unsigned nth, int error, bool lasts)
{
    all->fault = kind;
    all->nth = nth;
    all->error = error;
    all->lasts = lasts;
}

uint64_t sim::world_trace()
{
    return all ? all->trace : 0;
}

unsigned sim::world_errors()
{
    return all->errors;
}

bool sim::world_was_hit()
{
    return all->was_hit;
}

void sim::world_remember()
{
    all->remembers = true;
}

void sim::world_sleep(uint64_t nanoseconds)
{
    wait("a moment", nullptr, all->now + nanoseconds);
}

#define REAL(type, name, ...)                                                                                                  \
    type __real_##name(__VA_ARGS__);                                                                                           \
    type __wrap_##name(__VA_ARGS__)

extern "C" {
REAL(int, pthread_create, pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
REAL(int, pthread_join, pthread_t, void **);
REAL(int, pthread_mutex_lock, pthread_mutex_t *);
REAL(int, pthread_mutex_trylock, pthread_mutex_t *);
REAL(int, pthread_mutex_unlock, pthread_mutex_t *);
REAL(int, pthread_cond_wait, pthread_cond_t *, pthread_mutex_t *);
REAL(int, pthread_cond_timedwait, pthread_cond_t *, pthread_mutex_t *, const timespec *);
REAL(int, pthread_cond_signal, pthread_cond_t *);
REAL(int, pthread_cond_broadcast, pthread_cond_t *);
REAL(int, sched_yield, void);
REAL(int, nanosleep, const timespec *, timespec *);
REAL(int, clock_gettime, clockid_t, timespec *);
REAL(ssize_t, pread, int, void *, size_t, off_t);
REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
REAL(int, fdatasync, int);
REAL(int, fsync, int);
long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);

REAL(zoff_status, zoff_base_mem_alloc, size_t, size_t, const char *, void *);
zoff_status zoff_base_status_fail(zoff_status status, const char *format, ...);

zoff_status __wrap_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer)
{
    if (!all || !self || all->fault != sim::fault_kind::memory || !is_the_nth())
        return __real_zoff_base_mem_alloc(count, bytes, what, out_pointer);
    all->was_hit = true;
    all->errors++;
    return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "no memory for %s", what);
}

int __wrap_pthread_create(pthread_t *id, const pthread_attr_t *attributes, void *(*fn)(void *), void *ctx)
{
    if (!all || !self)
        return __real_pthread_create(id, attributes, fn, ctx);
    auto made = std::make_unique<strand>();
    sem_init(&made->go, 0, 0);
    made->fn = fn;
    made->ctx = ctx;
    made->number = static_cast<unsigned>(all->strands.size());
    const int error = __real_pthread_create(&made->id, attributes, begin, made.get());
    if (error)
        return error;
    *id = made->id;
    all->strands.push_back(std::move(made));
    turn(2);
    return 0;
}

int __wrap_pthread_join(pthread_t id, void **result)
{
    if (all && self) {
        strand *other = nullptr;
        for (const auto &one : all->strands)
            other = pthread_equal(one->id, id) && one->fn ? one.get() : other; // the last one: ids are used again
        while (other && !other->has_ended)
            wait("the end of a thread", other, NEVER);
    }
    return __real_pthread_join(id, result);
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    if (!all || !self)
        return __real_pthread_mutex_lock(mutex);
    turn(all->stay);
    lock(mutex);
    return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    if (!all || !self)
        return __real_pthread_mutex_trylock(mutex);
    turn(all->stay);
    const auto found = all->locks.find(mutex);
    if (found != all->locks.end() && found->second.first && found->second.first != self)
        return EBUSY;
    lock(mutex);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (!all || !self)
        return __real_pthread_mutex_unlock(mutex);
    unlock(mutex);
    turn(all->stay);
    return 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    if (!all || !self)
        return __real_pthread_cond_wait(cond, mutex);
    unlock(mutex);
    wait("a condition", cond, NEVER);
    lock(mutex);
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const timespec *at)
{
    if (!all || !self)
        return __real_pthread_cond_timedwait(cond, mutex, at);
    unlock(mutex);
    const bool in_time = wait("a condition", cond, moment(at));
    lock(mutex);
    return in_time ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    if (!all || !self)
        return __real_pthread_cond_signal(cond);
    wake(cond, 1);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    if (!all || !self)
        return __real_pthread_cond_broadcast(cond);
    wake(cond, UINT64_MAX);
    return 0;
}

int __wrap_sched_yield(void)
{
    if (!all || !self)
        return __real_sched_yield();
    turn(1);
    return 0;
}

int __wrap_nanosleep(const timespec *duration, timespec *left)
{
    if (!all || !self)
        return __real_nanosleep(duration, left);
    sim::world_sleep(moment(duration));
    return 0;
}

int __wrap_clock_gettime(clockid_t clock, timespec *out)
{
    if (!all || !self || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME))
        return __real_clock_gettime(clock, out);
    turn(16);
    out->tv_sec = static_cast<time_t>(all->now / 1000000000);
    out->tv_nsec = static_cast<long>(all->now % 1000000000);
    return 0;
}

// futex() is the only call that goes this way and waits. Some threads may be woken for nothing. Other calls have fewer
// arguments, and the rest are not read.
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
    if (!all || !self || number != SYS_futex)
        return __real_syscall(number, a, b, c, d, e, f);
    const void *word = reinterpret_cast<const void *>(a);
    const int operation = static_cast<int>(b) & ~(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    if (operation == FUTEX_WAKE || operation == FUTEX_WAKE_BITSET) {
        const int woken = wake(word, static_cast<uint32_t>(operation == FUTEX_WAKE ? c : INT32_MAX));
        turn(all->stay);
        return woken;
    }
    turn(all->stay);
    uint32_t value;
    memcpy(&value, word, sizeof value);
    if (value != static_cast<uint32_t>(c)) {
        errno = EAGAIN;
        return -1;
    }
    wait("a futex", word, NEVER);
    return 0;
}

ssize_t __wrap_pread(int fd, void *dst, size_t bytes, off_t offset)
{
    if (all && self)
        trace(bytes, static_cast<uint64_t>(offset));
    const int fault = all && self ? transfer(sim::fault_kind::read) : 0;
    if (fault > 0) {
        errno = fault;
        return -1;
    }
    return __real_pread(fd, dst, fault && bytes > 512 ? bytes / 2 / 512 * 512 : bytes, offset);
}

ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset)
{
    if (all && self)
        trace(bytes, static_cast<uint64_t>(offset));
    const int fault = all && self ? transfer(sim::fault_kind::write) : 0;
    if (fault > 0) {
        errno = fault;
        return -1;
    }
    const size_t moved = fault && bytes > 512 ? bytes / 2 / 512 * 512 : bytes;
    if (all && self && all->remembers)
        remember(fd, src, moved, offset);
    return __real_pwrite(fd, src, moved, offset);
}

int __wrap_fdatasync(int fd)
{
    return flush(fd, __real_fdatasync);
}

int __wrap_fsync(int fd)
{
    return flush(fd, __real_fsync);
}
}
