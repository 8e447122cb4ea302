// How work that may take long learns that nobody waits for it any more.
#pragma once

#include <atomic>
#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

namespace zefuse {

// A question of the caller's: true ends the work, whose Status is then Code::cancelled, and whose outside programs are
// killed. Asked again and again, about every 20 ms while an outside program runs or is waited for, from any thread and
// from several at a time: what it calls must be thread-safe, must not block and must not throw. After the first true it
// is not asked any more, nor are its copies: the answer stays. Empty: never true.
class CancelCheck {
public:
  CancelCheck() = default;
  template <std::predicate Asked>
    requires(!std::same_as<std::remove_cvref_t<Asked>, CancelCheck>)
  CancelCheck(Asked&& asked) : question_(std::make_shared<Question>(std::forward<Asked>(asked))) {}

  bool operator()() const {
    return question_ && (question_->answered || (question_->asked() && (question_->answered = true)));
  }

private:
  struct Question {
    explicit Question(std::function<bool()> question) : asked(std::move(question)) {}
    const std::function<bool()> asked;
    std::atomic<bool> answered{false};
  };
  std::shared_ptr<Question> question_;
};

}  // namespace zefuse
