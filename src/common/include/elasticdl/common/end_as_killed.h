// The end of a process as if somebody had killed it.
#pragma once

namespace elasticdl {

// SIGKILL to this process. The first process of a pod or container cannot kill
// itself (the kernel ignores the signal); it exits with code 137, which is what
// its parent would be told of a SIGKILL. No destructor or handler runs.
[[noreturn]] void EndAsKilled();

}  // namespace elasticdl
