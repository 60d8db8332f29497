#include "operation_scope.h"

#include <torch/library.h>

#include <utility>

namespace elasticdl::model {
namespace {

// libtorch calls what is registered for this key before its own autograd, and
// registers nothing itself. It is on while a scope lives.
constexpr auto kScopeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// Of this thread's scope. A variable of the thread, because nothing can be
// passed through libtorch's calls.
const OperationScope::Handler*& HandlerOfThread() {
  thread_local const OperationScope::Handler* handler = nullptr;
  return handler;
}

void InScope(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(kScopeKey);
  const OperationScope::Handler* const handler = HandlerOfThread();
  // libtorch may have passed the key on to a thread of its own.
  if (handler == nullptr || !(*handler)(op, stack)) op.callBoxed(stack);
}

// Takes all operations with this key. Must not be destroyed: that would undo
// it.
struct ScopeFallback {
  ScopeFallback() {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&InScope>());
  }
  torch::Library library{torch::Library::IMPL, "_", kScopeKey, __FILE__,
                         __LINE__};
  const c10::DispatchKeySet keys{kScopeKey};
};

// With the first scope: other jobs use libtorch as it is.
c10::DispatchKeySet ScopeKeys() {
  static const auto* const fallback = new ScopeFallback();
  return fallback->keys;
}

}  // namespace

OperationScope::OperationScope(Handler handler)
    : handler_(std::move(handler)), guard_(ScopeKeys()) {
  HandlerOfThread() = &handler_;
}

OperationScope::~OperationScope() { HandlerOfThread() = nullptr; }

}  // namespace elasticdl::model
