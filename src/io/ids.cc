#include "io/ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace hognose::io {

core::Result<std::vector<int32_t>> ParseIds(std::string_view text, const std::string& where) {
  constexpr std::string_view kBetween = " \t\r\n\v\f,";
  std::vector<int32_t> ids;
  for (size_t i = text.find_first_not_of(kBetween); i != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, i), text.size());
    int32_t id = 0;
    const auto [next, error] = std::from_chars(text.data() + i, text.data() + end, id);
    if (error != std::errc() || next != text.data() + end || id < 0) {
      return core::Status::Failed(fmt::format("{}: token {}: got \"{}\", want a decimal id", where,
                                              ids.size(),
                                              text.substr(i, std::min(end - i, size_t{40}))));
    }
    ids.push_back(id);
    i = text.find_first_not_of(kBetween, end);
  }
  return ids;
}

}  // namespace hognose::io
