// Enables libtorch's autocast during the lifetime of this object: computes in a
// smaller type where that is safe. Parameters stay float.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/Device.h>

namespace elasticdl::worker {

// kFloat16 is for devices only.
enum class Precision { kFloat32, kBFloat16, kFloat16 };

// Of one thread.
class Autocast {
 public:
  Autocast(c10::Device device, Precision precision)
      : on_(precision != Precision::kFloat32), cpu_(device.is_cpu()) {
    if (!on_) return;
    if (cpu_) {
      at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
    } else {
      at::autocast::set_autocast_gpu_dtype(
          precision == Precision::kFloat16 ? at::kHalf : at::kBFloat16);
    }
    Enable(true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (!on_) return;
    // The weights that were converted are those of this step.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    Enable(false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  void Enable(bool enabled) const {
    if (cpu_) {
      at::autocast::set_cpu_enabled(enabled);
    } else {
      at::autocast::set_enabled(enabled);
    }
  }

  const bool on_;
  const bool cpu_;
};

}  // namespace elasticdl::worker
