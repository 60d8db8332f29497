#include "elasticdl/collective/communicator.h"
#include "elasticdl/common/check.h"

namespace elasticdl::collective {

size_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return 4;
    case DataType::kBFloat16:
    case DataType::kFloat16:
      return 2;
    case DataType::kInt64:
      return 8;
  }
  ELASTICDL_CHECK(false);
}

}  // namespace elasticdl::collective
