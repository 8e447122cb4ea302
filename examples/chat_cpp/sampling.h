// Which token comes next, as generate() of transformers chooses it.
#pragma once

#include <cstdint>
#include <random>
#include <set>
#include <span>
#include <vector>

struct Sampling {
  double temperature = 0;  // 0: the likeliest token each time
  std::size_t top_k = 50;  // 0: all tokens
  double top_p = 1;
  double repetition_penalty = 1;         // above 1: against tokens that came
  std::size_t no_repeat_ngram_size = 0;  // so many tokens in a row come once; 0: as often as they like
  std::int64_t min_new_tokens = 0;       // before an answer ends
};

// `sequence`: the tokens so far, the prompt's among them; `added`: how many of them are the answer's. `ends`: tokens
// that end it. Changes `logits`.
std::int64_t choose(std::span<float> logits, std::span<const std::int64_t> sequence, std::int64_t added,
                    const std::set<std::int64_t>& ends, const Sampling& sampling, std::mt19937_64& draws);
