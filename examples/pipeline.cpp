// pipeline.cpp: a pipeline with workers, load shedding and a deadline. Reads words from standard
// input (or makes some up), counts their letters in parallel, and prints the longest ones.
#include <weft/weft.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

using namespace std::chrono_literals;

namespace {

struct counted {
  std::string word;
  std::size_t letters = 0;
};

// Ends when the words do, or its context.
void produce(const weft::context& ctx, const weft::sender<std::string>& words) {
  if (::isatty(0) == 0) {
    for (std::string word; std::cin >> word;) {
      if (words.send(ctx, std::move(word))) break;
    }
  } else {
    for (std::size_t i = 1; i <= 2'000; ++i) {
      std::string word(i * 7919 % 61 + 1, 'x');
      if (words.send(ctx, std::move(word))) break;  // the context has ended; word is untouched
    }
  }
  words.close();
}

}  // namespace

int main() {
  return weft::run([] {
    auto [ctx, cancel] = weft::with_timeout(weft::context::background(), 5s);
    const weft::chan<std::string> words(64);
    const weft::chan<counted> results(64);

    weft::group all(ctx);  // the first exception in any of them ends the others
    all.go([&] { produce(all.ctx(), words); });
    weft::wait_group counting;
    for (int i = 0; i < weft::max_procs(); ++i) {
      counting.add(1);
      all.go([&] {
        while (auto word = words.recv(all.ctx())) {
          const std::size_t letters = word->size();
          results.send({std::move(*word), letters});
        }
        counting.done();
      });
    }
    all.go([&] {
      counting.wait();
      results.close();
    });

    std::vector<counted> longest;
    std::size_t seen = 0;
    for (bool more = true; more;) {
      weft::select(weft::recv(results,
                              [&](std::optional<counted> c) {
                                more = c.has_value();
                                if (!c) return;
                                ++seen;
                                longest.push_back(std::move(*c));
                                std::ranges::sort(longest, std::ranges::greater{},
                                                  &counted::letters);
                                if (longest.size() > 5) longest.pop_back();
                              }),
                   weft::after(1s, [&] { std::printf("%zu words so far ...\n", seen); }));
    }
    all.wait();
    cancel();
    std::printf("%zu words; the longest:\n", seen);
    for (const counted& c : longest) std::printf("%4zu  %s\n", c.letters, c.word.c_str());
    return ctx.err() == weft::errc::deadline_exceeded ? 1 : 0;
  });
}
