// Shared by the two files that use Gloo; no other file includes its headers.
//
// Gloo moves the data. Three things that it cannot do are done here: members
// prove their identity on separate connections, over which they also exchange
// the addresses of Gloo's (connector.cc); those connections show when a member
// dies or leaves (member_watch.h); and every wait in Gloo has the deadline of
// the call and can be woken (WatchedBuffer).
#pragma once

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/deadline.h"
#include "elasticdl/collective/communicator.h"
#include "tcp/member_watch.h"

namespace elasticdl::collective {

// Gloo writes to sockets whose other end may be gone. This thread, and threads
// that it starts meanwhile, get no SIGPIPE then.
class NoSigPipe {
 public:
  NoSigPipe();
  ~NoSigPipe();
  NoSigPipe(const NoSigPipe&) = delete;
  NoSigPipe& operator=(const NoSigPipe&) = delete;

 private:
  sigset_t before_;
  bool pending_before_ = false;
};

// Runs Gloo code. Its exceptions become ABORTED, or DEADLINE_EXCEEDED when the
// deadline has passed, and end the world.
absl::Status RunGloo(MemberWatch& watch, Deadline& deadline,
                     const std::function<void()>& body);

// Gives Gloo's algorithms buffers that can be woken. Delegates everything else
// to Gloo's own context.
class WatchedContext final : public gloo::transport::Context {
 public:
  WatchedContext(std::shared_ptr<gloo::transport::Context> inner,
                 MemberWatch& watch);

  std::unique_ptr<gloo::transport::Pair>& getPair(int rank) override {
    return inner_->getPair(rank);
  }
  std::unique_ptr<gloo::transport::Pair>& createPair(int rank) override {
    return inner_->createPair(rank);
  }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(
      void* ptr, size_t size) override;

  // Of the current call.
  void set_deadline(Deadline* deadline) { deadline_ = deadline; }

 private:
  const std::shared_ptr<gloo::transport::Context> inner_;
  MemberWatch& watch_;
  Deadline* deadline_ = nullptr;
};

// Gloo's context over such a transport.
class GlooContext final : public gloo::Context {
 public:
  GlooContext(std::shared_ptr<gloo::transport::Device> device,
              std::shared_ptr<WatchedContext> transport);
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(std::shared_ptr<MemberWatch> watch,
                   std::shared_ptr<gloo::transport::Device> device,
                   std::shared_ptr<WatchedContext> transport);
  ~GlooCommunicator() override;

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  absl::Status AllReduce(void* data, size_t count, DataType type,
                         absl::Duration timeout) override;
  absl::Status Broadcast(void* data, size_t bytes, int root,
                         absl::Duration timeout) override;
  absl::Status AllGather(const void* in, void* out, size_t bytes,
                         absl::Duration timeout) override;
  absl::Status ReduceScatter(void* data, size_t count, DataType type,
                             absl::Duration timeout) override;
  absl::Status Barrier(absl::Duration timeout) override;
  void Abort(const std::string& reason) override {
    watch_->End(absl::AbortedError(reason));
  }

 private:
  // One call of the Communicator interface.
  absl::Status Call(const char* failpoint, absl::Duration timeout,
                    const std::function<void()>& body);
  // Parts of calls; they throw.
  void Reduce(void* data, size_t count, DataType type);
  void ReduceSmall(char* data, size_t bytes, DataType type);
  template <typename T>
  void ReduceRing(void* data, size_t count, DataType type);
  void Gather(char* all, size_t bytes);
  void Synchronise();

  const std::shared_ptr<MemberWatch> watch_;
  std::shared_ptr<WatchedContext> transport_;
  std::shared_ptr<GlooContext> context_;
  std::vector<char> scratch_;
};

}  // namespace elasticdl::collective
