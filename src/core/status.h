// Status and Result<T>: how every module reports that the caller or a file is wrong.
//
// A message reads "where: what: got, want", for example
//   "model.safetensors: layers.3.mixer.A_log: got f32 [32], want f32 [64, 16]".
// Faults of our own are HOGNOSE_CHECK (check.h), never a Status.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "core/check.h"

namespace hognose::core {

enum class StatusCode : uint8_t {
  kOk,
  kFailed,  // the work could not be done: exit code 1
  kUsage,   // the request itself is wrong: exit code 2
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  static Status Failed(std::string message) { return {StatusCode::kFailed, std::move(message)}; }
  static Status Usage(std::string message) { return {StatusCode::kUsage, std::move(message)}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const& { return message_; }
  std::string message() && { return std::move(message_); }  // of a temporary: no reference into it

 private:
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}        // NOLINT: implicit on purpose
  Result(Status status) : state_(std::move(status)) {  // NOLINT: implicit on purpose
    HOGNOSE_CHECK(!std::get<Status>(state_).ok());
  }

  bool ok() const { return std::holds_alternative<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  T& value() {
    HOGNOSE_CHECK(ok());
    return std::get<T>(state_);
  }
  const T& value() const {
    HOGNOSE_CHECK(ok());
    return std::get<T>(state_);
  }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace hognose::core

#define HOGNOSE_CONCAT_INNER(a, b) a##b
#define HOGNOSE_CONCAT(a, b) HOGNOSE_CONCAT_INNER(a, b)

// Leaves the calling function with the Status of `expr` if it is not ok.
#define HOGNOSE_TRY(expr)                                     \
  do {                                                        \
    if (auto hognose_status = (expr); !hognose_status.ok()) { \
      return hognose_status;                                  \
    }                                                         \
  } while (false)

// HOGNOSE_ASSIGN(auto x, F()): x = *F(), or leaves with F's Status.
#define HOGNOSE_ASSIGN(declaration, expr) \
  HOGNOSE_ASSIGN_INNER(HOGNOSE_CONCAT(hognose_result_, __LINE__), declaration, expr)
#define HOGNOSE_ASSIGN_INNER(result, declaration, expr) \
  auto result = (expr);                                 \
  if (!result.ok()) return result.status();             \
  declaration = std::move(result.value())
