/* SPDX-License-Identifier: Apache-2.0 */
// post_office.h: a transport between threads of one process, for communicators over messages without a network. A large message
// waits for its receive, as on a network; on demand it never arrives.
#ifndef ZOFF_TESTS_POST_OFFICE_H
#define ZOFF_TESTS_POST_OFFICE_H

#include "zoff_test.h"

#include <string.h>

#include <atomic>
#include <list>
#include <map>
#include <mutex>

namespace zoff_test
{
class post_office
{
  public:
    explicit post_office(unsigned size)
    {
        for (unsigned rank = 0; rank < size; rank++)
            desks.push_back(desk{this, rank, {}, {}, {}});
    }

    // The transport that rank `rank` passes to zoff_comm_open_transport().
    zoff_comm_transport transport(unsigned rank, size_t most_bytes = 0)
    {
        zoff_comm_transport t = {};
        t.struct_size = sizeof t;
        t.name = "messages";
        t.ctx = &desks[rank];
        t.rank = rank;
        t.size = (unsigned)desks.size();
        t.most_bytes = most_bytes;
        t.send = send;
        t.receive = receive;
        t.test = test;
        t.cancel = cancel;
        t.error = [](void *) -> const char * { return "the post office is on strike"; };
        t.close = [](void *ctx, int) { static_cast<desk *>(ctx)->office->closed++; };
        return t;
    }

    // Messages and bytes from one rank to another so far.
    struct traffic {
        uint64_t messages = 0, bytes = 0;
    };
    traffic between(unsigned from, unsigned to)
    {
        std::lock_guard<std::mutex> lock(mutex);
        return carried[{from, to}];
    }

    std::atomic<bool> holds_large{false};   // large messages that start from now on never complete
    std::atomic<int> fails_after{-1};       // calls until one fails; -1: none fails
    std::atomic<bool> refuses_large{false}; // sends of large messages fail
    std::atomic<unsigned> closed{0};
    std::atomic<unsigned> large{0}; // number of large messages that were matched with a receive

  private:
    enum { SMALL = 2048 };
    struct request {
        unsigned from, tag;
        const char *data; // bytes of a send that waits
        std::vector<char> copy;
        char *out; // memory of a receive
        size_t bytes;
        bool over;
    };
    struct desk {
        post_office *office;
        unsigned rank;
        std::list<request *> mail, waiting;             // mail: sends without a receive; waiting: receives without a send
        std::list<std::unique_ptr<request>> everything; // requests whose end this rank has not seen
    };

    bool fails() { return fails_after >= 0 && fails_after-- <= 0; }

    // Call with the lock held.
    void hand_over(const request &sent, request *to)
    {
        EXPECT_LE(sent.bytes, to->bytes) << "a message is longer than its receive";
        memcpy(to->out, sent.data ? sent.data : sent.copy.data(), sent.bytes);
        to->over = true;
    }

    static request *add(desk *d, request r, void **out)
    {
        d->everything.push_back(std::make_unique<request>(std::move(r)));
        *out = d->everything.back().get();
        return d->everything.back().get();
    }

    static int send(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out)
    {
        desk *from = static_cast<desk *>(ctx);
        post_office *o = from->office;
        std::lock_guard<std::mutex> lock(o->mutex);
        if (o->fails())
            return -1;
        if (bytes > SMALL && o->refuses_large)
            return -1;
        o->carried[{from->rank, to}].messages++;
        o->carried[{from->rank, to}].bytes += bytes;
        const char *text = static_cast<const char *>(data);
        request *r = add(from, request{from->rank, (unsigned)tag, text, {}, nullptr, bytes, false}, out);
        o->large += bytes > SMALL;
        if (bytes > SMALL && o->holds_large)
            return 0;
        auto &waiting = o->desks[to].waiting;
        for (auto it = waiting.begin(); it != waiting.end(); ++it) {
            if ((*it)->tag != r->tag || ((*it)->from != ZOFF_COMM_ANY_RANK && (*it)->from != from->rank))
                continue;
            o->hand_over(*r, *it);
            r->over = true;
            waiting.erase(it);
            return 0;
        }
        if (bytes <= SMALL) {
            // The sender is done; the receiver keeps a copy of the message.
            void *unused;
            request kept = *r;
            kept.copy.assign(text, text + bytes);
            kept.data = nullptr;
            r->over = true;
            r = add(&o->desks[to], kept, &unused);
        }
        o->desks[to].mail.push_back(r);
        return 0;
    }

    static int receive(void *ctx, unsigned from, int tag, void *data, size_t bytes, void **out)
    {
        desk *at = static_cast<desk *>(ctx);
        post_office *o = at->office;
        std::lock_guard<std::mutex> lock(o->mutex);
        if (o->fails())
            return -1;
        request *r = add(at, request{from, (unsigned)tag, nullptr, {}, static_cast<char *>(data), bytes, false}, out);
        for (auto it = at->mail.begin(); it != at->mail.end(); ++it) {
            request *sent = *it;
            if (sent->tag != r->tag || (from != ZOFF_COMM_ANY_RANK && sent->from != from))
                continue;
            o->hand_over(*sent, r);
            at->mail.erase(it);
            if (sent->data)
                sent->over = true; // the sender polls for this
            else
                drop(at, sent);
            return 0;
        }
        at->waiting.push_back(r);
        return 0;
    }

    static int test(void *ctx, void **io)
    {
        desk *d = static_cast<desk *>(ctx);
        std::lock_guard<std::mutex> lock(d->office->mutex);
        if (d->office->fails())
            return -1;
        request *r = static_cast<request *>(*io);
        if (!r->over)
            return 0;
        drop(d, r);
        return 1;
    }

    static int cancel(void *ctx, void **io)
    {
        desk *d = static_cast<desk *>(ctx);
        std::lock_guard<std::mutex> lock(d->office->mutex);
        request *r = static_cast<request *>(*io);
        d->waiting.remove(r);
        r->over = true;
        return 0;
    }

    static void drop(desk *d, request *r)
    {
        d->everything.remove_if([r](const auto &one) { return one.get() == r; });
    }

    std::mutex mutex;
    std::vector<desk> desks;
    std::map<std::pair<unsigned, unsigned>, traffic> carried;
};
} // namespace zoff_test

#endif
