// What the tests of this folder share.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

namespace hognose::train {

// The bytes of an NPY file.
template <typename T>
std::string MakeNpy(std::string_view descr, std::string_view shape, const std::vector<T>& values) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shape);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string file("\x93NUMPY\1\0", 8);
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return file;
}

}  // namespace hognose::train
