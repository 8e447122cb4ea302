// A package of `zefuse compile --llm`: its plans, its key-value cache, and what it says of conversations.
#pragma once

#include <zefuse/zefuse.hpp>

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "sampling.h"
#include "tokenizer.h"

// What a template writes around messages. `between`: from an answer's end to the next message; none where a
// conversation cannot go on.
struct Conversation {
  std::string before, after;
  std::optional<std::string> between;
};

class LanguageModel {
public:
  // Throws zefuse::Error or std::runtime_error: what is wrong with the file.
  explicit LanguageModel(const std::string& path);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const std::optional<Conversation>& conversation() const { return conversation_; }
  bool ends(std::int64_t token) const { return ends_.contains(token); }
  std::int64_t context() const { return context_; }  // tokens that the cache may have
  std::int64_t length() const { return length_; }    // tokens that it has

  // Adds tokens to the cache and chooses the next one, which `added` tokens of its answer come before. Throws
  // std::runtime_error, before any work, where they do not fit.
  std::int64_t next(std::span<const std::int64_t> tokens, std::int64_t added, const Sampling& sampling,
                    std::mt19937_64& draws);
  // Room in the cache for so many tokens in all: what is in it stays.
  void reserve(std::int64_t tokens);

private:
  struct Layer {  // keys or values, token after token
    std::vector<std::byte> memory;
    std::vector<std::int64_t> sizes, strides;
    std::size_t bytes_per_token = 0;
    DLTensor tensor{};
  };

  zefuse::Model model_;
  Tokenizer tokenizer_;
  std::optional<Conversation> conversation_;
  std::set<std::int64_t> ends_;
  std::vector<std::int64_t> sequence_;  // what the cache has
  std::int64_t context_ = 0, step_ = 1, length_ = 0, capacity_ = 0;
  std::vector<Layer> layers_;
};
