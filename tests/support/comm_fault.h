// comm_fault.h: stands between an engine and its communicator, and may stop, refuse or end a rank where it starts an operation,
// and keep from it that one is done.
#ifndef ZOFF_COMM_FAULT_H
#define ZOFF_COMM_FAULT_H

#include <functional>

extern "C" {
#include "comm.h"
}

namespace zoff_test
{
// In front of one communicator, for as long as that is open.
struct comm_fault {
    explicit comm_fault(zoff_comm *comm) : ops(*comm->ops), real(comm->ops)
    {
        ops.start = start;
        ops.poll = poll;
        comm->ops = &ops;
    }
    comm_fault(const comm_fault &) = delete;

    zoff_comm_ops ops; // the first member: this is how start() finds the rest
    const zoff_comm_ops *real;
    // Called before each operation is started; an error is what its caller gets, and nobody hears of the operation.
    std::function<zoff_status(const zoff_comm_work &work)> before;
    // Asked each time the rank asks: whether it hears nothing yet.
    std::function<bool(const zoff_comm_work &work)> not_yet;

  private:
    static zoff_status poll(zoff_comm *comm, zoff_comm_work *work)
    {
        auto self = (const comm_fault *)comm->ops;
        return self->not_yet && self->not_yet(*work) ? ZOFF_PENDING : self->real->poll(comm, work);
    }
    static zoff_status start(zoff_comm *comm, zoff_comm_work *work)
    {
        auto self = (const comm_fault *)comm->ops;
        const zoff_status status = self->before ? self->before(*work) : ZOFF_OK;
        return status < 0 ? status : self->real->start(comm, work);
    }
};

// The same for a communicator that stays open for longer.
struct passing_comm_fault : comm_fault {
    explicit passing_comm_fault(zoff_comm *comm_) : comm_fault(comm_), comm(comm_) {}
    ~passing_comm_fault() { comm->ops = real; }
    zoff_comm *comm;
};
} // namespace zoff_test

#endif
