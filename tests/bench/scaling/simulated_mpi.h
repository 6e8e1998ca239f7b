/* simulated_mpi.h: included before the engine where SimGrid's SMPI stands in for MPI. */
#ifndef SIMULATED_MPI_H
#define SIMULATED_MPI_H

#include <mpi.h>

/* SMPI's non-blocking all-reduce has every rank send all of its data to every other one; the blocking
 * one takes the algorithm that is asked for (smpi/allreduce), here the ring that the model counts. The
 * request has ended at once. SMPI would copy what is reduced in its place, in every rank; values mean
 * nothing here, so that it may read where it writes. */
#define MPI_Iallreduce(in, out, count, type, op, comm, ret_request)                                \
    (*(ret_request) = MPI_REQUEST_NULL, MPI_Allreduce(out, out, count, type, op, comm))

/* SMPI says that one thread may call it; a simulated process has one. */
#define MPI_Query_thread(ret_level) (*(ret_level) = MPI_THREAD_SERIALIZED, MPI_SUCCESS)

#endif
