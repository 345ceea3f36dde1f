/* SPDX-License-Identifier: Apache-2.0 */
// comm_fault.h: wraps an engine's communicator. Can stop or end a rank where it starts an operation, make the start fail, and
// hide that an operation is done.
#ifndef ZOFF_COMM_FAULT_H
#define ZOFF_COMM_FAULT_H

#include <functional>

extern "C" {
#include "comm.h"
}

namespace zoff_test
{
// Wraps one communicator until that is closed.
struct comm_fault {
    explicit comm_fault(zoff_comm *comm) : ops(*comm->ops), real(comm->ops)
    {
        ops.start = start;
        ops.poll = poll;
        comm->ops = &ops;
    }
    comm_fault(const comm_fault &) = delete;

    zoff_comm_ops ops; // the first member: start() finds the object by it
    const zoff_comm_ops *real;
    // Called before each operation starts. If it returns an error, the caller gets the error and the operation does not start.
    std::function<zoff_status(const zoff_comm_work &work)> before;
    // Called at each poll. If it returns true, the poll returns ZOFF_PENDING.
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

// A fault that leaves the communicator open afterwards.
struct passing_comm_fault : comm_fault {
    explicit passing_comm_fault(zoff_comm *comm_) : comm_fault(comm_), comm(comm_) {}
    ~passing_comm_fault() { comm->ops = real; }
    zoff_comm *comm;
};
} // namespace zoff_test

#endif
