// Looks at error messages.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string_view>

#include "core/status.h"

namespace hognose::testing {

// Passes if the status is kFailed, its message begins with `where` and holds every one of the
// words.
inline ::testing::AssertionResult FailsAt(const core::Status& status, std::string_view where,
                                          std::initializer_list<std::string_view> words) {
  if (status.code() != core::StatusCode::kFailed) {
    return ::testing::AssertionFailure() << "no failure: " << status.message();
  }
  const auto fault = [&](std::string_view what, std::string_view word) {
    return ::testing::AssertionFailure()
           << "\"" << status.message() << "\" " << what << " \"" << word << "\"";
  };
  if (!status.message().starts_with(where)) return fault("doesn't begin with", where);
  for (const auto word : words) {
    if (status.message().find(word) == std::string::npos) return fault("doesn't hold", word);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace hognose::testing
