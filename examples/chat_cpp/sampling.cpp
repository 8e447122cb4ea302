#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace {

constexpr float never = -std::numeric_limits<float>::infinity();

void penalize(std::span<float> logits, std::span<const std::int64_t> sequence, float penalty) {
  for (const std::int64_t token : std::set<std::int64_t>(sequence.begin(), sequence.end())) {
    float& logit = logits[std::size_t(token)];
    logit = logit < 0 ? logit * penalty : logit / penalty;
  }
}

// No `size` tokens are to follow each other as they did before.
void forbidRepeats(std::span<float> logits, std::span<const std::int64_t> sequence, std::size_t size) {
  if (size == 0 || sequence.size() < size)
    return;
  const auto last = sequence.last(size - 1);
  for (std::size_t at = 0; at + size <= sequence.size(); ++at)
    if (std::ranges::equal(sequence.subspan(at, size - 1), last))
      logits[std::size_t(sequence[at + size - 1])] = never;
}

std::int64_t draw(std::span<const float> logits, const Sampling& sampling, std::mt19937_64& draws) {
  std::vector<std::int64_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const std::size_t count = sampling.top_k ? std::min(sampling.top_k, logits.size()) : logits.size();
  const auto likelier = [&](std::int64_t a, std::int64_t b) { return logits[std::size_t(a)] > logits[std::size_t(b)]; };
  std::ranges::partial_sort(tokens, tokens.begin() + std::ptrdiff_t(count), likelier);
  std::vector<double> weights;
  for (std::size_t i = 0; i < count; ++i)
    weights.push_back(std::exp((double(logits[std::size_t(tokens[i])]) - double(logits[std::size_t(tokens[0])])) /
                               sampling.temperature));
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double before = 0;
  for (double& weight : weights) {
    const double own = weight;
    if (before >= sampling.top_p * all)
      weight = 0;
    before += own;
  }
  return tokens[std::discrete_distribution<std::size_t>(weights.begin(), weights.end())(draws)];
}

}  // namespace

std::int64_t choose(std::span<float> logits, std::span<const std::int64_t> sequence, std::int64_t added,
                    const std::set<std::int64_t>& ends, const Sampling& sampling, std::mt19937_64& draws) {
  if (sampling.repetition_penalty != 1)
    penalize(logits, sequence, float(sampling.repetition_penalty));
  forbidRepeats(logits, sequence, sampling.no_repeat_ngram_size);
  if (added < sampling.min_new_tokens)
    for (const std::int64_t token : ends)
      logits[std::size_t(token)] = never;
  if (sampling.temperature <= 0)
    return std::ranges::max_element(logits) - logits.begin();
  return draw(logits, sampling, draws);
}
