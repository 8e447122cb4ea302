// Status: what every fallible call of the runtime and the driver's codegen returns. No exception crosses a C boundary.
#pragma once

#include "common/base/api.h"
#include <source_location>
#include <string>
#include <utility>
#include <variant>

namespace zefuse {

// Each code names who has to act. When two fit, take the earlier one.
enum class Code {
  ok,
  invalid_argument,  // the caller passed something wrong (bad option, wrong dtype); not for damaged files
  index_error,       // an index inside tensor data is out of range; becomes Python's IndexError
  not_found,         // a named thing (device, op, file) does not exist
  damaged,           // a plan, package, cache entry or SPIR-V module fails its checks
  unsupported,       // valid, but this build or device cannot do it; the message says what could
  out_of_memory,
  deadline,        // an outside tool or a wait did not end in time
  device,          // Level Zero or oneDNN returned an error; the message has call, code, device
  internal,        // our own bug
  cancelled,       // the caller asked for the end
  linear_algebra,  // a matrix that a factorisation cannot take, such as a singular one; becomes torch's LinAlgError
};

const char* codeName(Code code);

// Cheap when ok. A message's first line says what, where and what to do.
class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Code code, std::string message, std::source_location place = std::source_location::current())
      : code_(code), message_(std::move(message)), place_(place) {}

  bool ok() const { return code_ == Code::ok; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::source_location& place() const { return place_; }
  ZEFUSE_API std::string toString() const;  // "damaged: plan: value 7 ... [executable.cpp:88]"

private:
  Code code_ = Code::ok;
  std::string message_;
  std::source_location place_;
};

// A value or the Status that says why there is none.
template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : state_(std::move(value)) {}
  Result(Status status) : state_(std::move(status)) {}

  bool ok() const { return std::holds_alternative<T>(state_); }
  const Status& status() const {
    static const Status fine;
    return ok() ? fine : std::get<Status>(state_);
  }
  T& operator*() { return std::get<T>(state_); }
  const T& operator*() const { return std::get<T>(state_); }
  T* operator->() { return &std::get<T>(state_); }
  const T* operator->() const { return &std::get<T>(state_); }

private:
  std::variant<T, Status> state_;
};

#define ZEFUSE_RETURN_IF_ERROR(expression)                                                                             \
  do {                                                                                                                 \
    if (::zefuse::Status status_ = (expression); !status_.ok())                                                        \
      return status_;                                                                                                  \
  } while (false)

}  // namespace zefuse
