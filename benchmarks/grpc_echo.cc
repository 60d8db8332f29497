#include "grpc_echo.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace elasticdl::bench {
namespace {

grpc::ByteBuffer MakeBytes(size_t size) {
  const std::string bytes(size, 'x');
  const grpc::Slice slice(bytes);
  return {&slice, 1};
}

class Service : public grpc::CallbackGenericService {
 public:
  explicit Service(size_t back) : answer_(MakeBytes(back)) {}
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext*) override {
    return new Call(answer_);
  }

 private:
  class Call : public grpc::ServerGenericBidiReactor {
   public:
    explicit Call(const grpc::ByteBuffer& answer) : answer_(answer) {
      StartRead(&request_);
    }
    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      StartWriteAndFinish(&answer_, {}, grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    const grpc::ByteBuffer& answer_;
    grpc::ByteBuffer request_;
  };
  const grpc::ByteBuffer answer_;
};

}  // namespace

void WithGrpcEcho(
    size_t there, size_t back,
    const std::function<void(const std::function<void()>& call)>& measure) {
  constexpr int kMaxBytes = 64 << 20;
  Service service(back);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.RegisterCallbackGenericService(&service);
  builder.SetMaxReceiveMessageSize(kMaxBytes);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxBytes);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                grpc::InsecureChannelCredentials(), arguments));
  const grpc::ByteBuffer request = MakeBytes(there);
  grpc::CompletionQueue queue;
  measure([&] {
    grpc::ClientContext context;
    grpc::ByteBuffer answer;
    grpc::Status status;
    const auto call =
        stub.PrepareUnaryCall(&context, "/bench/Echo", request, &queue);
    call->StartCall();
    call->Finish(&answer, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    if (status.ok() && answer.Length() == back) return;
    std::fprintf(stderr, "gRPC: %s\n", status.error_message().c_str());
    std::exit(1);
  });
  queue.Shutdown();
  server->Shutdown();
}

}  // namespace elasticdl::bench
