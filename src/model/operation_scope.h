// Lets a function see the operations of libtorch that custom_model calls, and
// do some of them in another way, without any change to the model file.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <functional>

namespace elasticdl::model {

// During its lifetime, each operation of this thread is given to `handler`
// first; operations that these call in turn are not. Scopes do not nest.
class OperationScope {
 public:
  // Does the operation as a boxed kernel does and returns true, or returns
  // false: libtorch does it.
  using Handler = std::function<bool(const c10::OperatorHandle& op,
                                     torch::jit::Stack* stack)>;

  explicit OperationScope(Handler handler);
  ~OperationScope();
  OperationScope(const OperationScope&) = delete;
  OperationScope& operator=(const OperationScope&) = delete;

 private:
  const Handler handler_;
  const c10::impl::IncludeDispatchKeyGuard guard_;
};

}  // namespace elasticdl::model
