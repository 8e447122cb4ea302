// Semantic search with a model that `zefuse compile` packed: no Python, no torch.
//
//   search minilm.zefuse tokens.txt [expected.txt]
//
// expected.txt holds Python's embeddings: the largest difference is printed, and more than 1e-4 is a failure.
#include <zefuse/zefuse.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Sentences {
  std::int64_t corpus = 0, queries = 0, length = 0;
  std::vector<std::string> text;
  std::vector<std::int64_t> ids, mask;  // [corpus + queries, length]
};

Sentences read(const std::string& path) {
  std::ifstream file(path);
  Sentences sentences;
  std::string line;
  std::getline(file, line);
  std::istringstream(line) >> sentences.corpus >> sentences.queries >> sentences.length;
  while (std::getline(file, line)) {
    sentences.text.push_back(line);
    for (std::vector<std::int64_t>* numbers : {&sentences.ids, &sentences.mask}) {
      std::getline(file, line);
      std::istringstream words(line);
      for (std::int64_t number; words >> number;)
        numbers->push_back(number);
    }
  }
  if (!sentences.length || sentences.ids.size() != sentences.text.size() * std::size_t(sentences.length))
    throw std::runtime_error(path + ": not what export.py writes");
  return sentences;
}

double milliseconds(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

int run(const std::vector<std::string>& arguments) {
  const Sentences sentences = read(arguments.at(1));
  auto start = std::chrono::steady_clock::now();
  auto model = zefuse::Model::fromFile(arguments.at(0));
  std::printf("load: %.1f ms\n", milliseconds(start));
  for (const zefuse_tensor_info& info : model.inputs()) {
    std::printf("input %s [", info.name);
    for (int d = 0; d < info.ndim; ++d)
      std::printf("%s%s", d ? ", " : "", info.size_text[d]);
    std::printf("]\n");
  }

  const std::vector<std::int64_t> sizes{std::int64_t(sentences.text.size()), sentences.length};
  const std::vector<zefuse::View> inputs{{sentences.ids.data(), sizes}, {sentences.mask.data(), sizes}};
  start = std::chrono::steady_clock::now();
  auto outputs = model(inputs);
  std::printf("first call: %.1f ms\n", milliseconds(start));
  start = std::chrono::steady_clock::now();
  outputs = model(inputs);
  std::printf("second call: %.1f ms\n", milliseconds(start));

  const float* embeddings = outputs.at(0).data<float>();
  const auto width = std::size_t(outputs[0].sizes()[1]);
  for (std::int64_t query = sentences.corpus; query < sizes[0]; ++query) {
    const float* wanted = embeddings + std::size_t(query) * width;
    std::vector<float> scores;
    for (std::int64_t i = 0; i < sentences.corpus; ++i)
      scores.push_back(std::inner_product(wanted, wanted + width, embeddings + std::size_t(i) * width, 0.0f));
    const auto best = std::max_element(scores.begin(), scores.end());
    std::printf("%s -> %s (%.3f)\n", sentences.text[std::size_t(query)].c_str(),
                sentences.text[std::size_t(best - scores.begin())].c_str(), *best);
  }

  if (arguments.size() < 3)
    return 0;
  std::ifstream file(arguments[2]);
  double largest = 0;
  for (std::size_t i = 0; i < std::size_t(sizes[0]) * width; ++i) {
    double expected = NAN;
    file >> expected;
    largest = std::max(largest, std::isnan(expected) ? INFINITY : std::abs(expected - double(embeddings[i])));
  }
  std::printf("largest difference from Python: %.2g\n", largest);
  return largest < 1e-4 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: search minilm.zefuse tokens.txt [expected.txt]\n");
    return 2;
  }
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "search: %s\n", error.what());
    return 1;
  }
}
