#include "fork_wire.h"

#include <cstring>

namespace elasticdl::process {
namespace {

struct Header {
  uint64_t request;
  uint64_t parent;
  uint64_t arguments;
  uint64_t variables;
};

void Append(const std::vector<std::string>& strings, std::string* bytes) {
  for (const std::string& text : strings) bytes->append(text.c_str()) += '\0';
}

// Moves `count` strings from the front of `rest`.
bool Take(uint64_t count, const char** rest, const char* end,
          std::vector<std::string>* strings) {
  for (; count > 0; --count) {
    const size_t length = strnlen(*rest, static_cast<size_t>(end - *rest));
    if (*rest + length == end) return false;
    strings->emplace_back(*rest, length);
    *rest += length + 1;
  }
  return true;
}

}  // namespace

std::string EncodeForkRequest(const ForkRequest& request) {
  const Header header = {request.request, static_cast<uint64_t>(request.parent),
                         request.argv.size(), request.environment.size()};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  Append(request.argv, &bytes);
  Append(request.environment, &bytes);
  return bytes;
}

bool DecodeForkRequest(const std::string& bytes, ForkRequest* request) {
  Header header;
  if (bytes.size() < sizeof(header)) return false;
  std::memcpy(&header, bytes.data(), sizeof(header));
  request->request = header.request;
  request->parent = static_cast<int32_t>(header.parent);
  const char* rest = bytes.data() + sizeof(header);
  const char* const end = bytes.data() + bytes.size();
  return Take(header.arguments, &rest, end, &request->argv) &&
         Take(header.variables, &rest, end, &request->environment) &&
         rest == end;
}

}  // namespace elasticdl::process
