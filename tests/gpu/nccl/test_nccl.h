// A libnccl for machines without a GPU, compiled against the real nccl.h: what
// tests know of it beyond the NCCL API. It works on the memory and streams of
// the test libcudart; ranks are processes, or threads, of one host.
//
// What it does as NCCL does, and often as nobody expects:
//  * Non-blocking communicators: init, collectives and finalize return
//    ncclInProgress. A collective is not on the stream before
//    ncclCommGetAsyncError was asked; another call before that is refused.
//  * A collective whose peer is dead, stopped or never comes does not end, and
//  the
//    state stays ncclSuccess. So does ncclCommDestroy and ncclCommFinalize
//    then.
//  * ncclCommAbort ends it, and waits until nothing touches memory any more.
//  * Two ranks on one GPU: ncclInvalidUsage for all of them.
// What it does better than NCCL, for tests: two threads in one communicator at
// the same time, and ranks that call different operations, end the process with
// a message. Host memory, memory of another GPU and streams of another GPU are
// ncclInvalidArgument.
//
// Settings, read at each call:
//   TEST_NCCL_PEER_DEATH=remote_error  a waiting operation notices that a peer
//       died: the state becomes ncclRemoteError (it still does not end)
//   TEST_NCCL_ABORT=collective  ncclCommAbort waits until all living ranks have
//       called it, as NCCL does within a host
//   TEST_NCCL_ABORT=hang        ncclCommAbort never returns
//   TEST_NCCL_INIT=hang         communicators never become ready
//   TEST_NCCL_SUM=error         sums fail when they connect: the state becomes
//       ncclSystemError
#pragma once

#include "segment.h"
