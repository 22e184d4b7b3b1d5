// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "digits.hpp"

namespace {

// CLI11's own checks let "inf" through.
const CLI::Validator finite_positive(
    [](const std::string& text) {
      double value = 0;
      const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
      const bool number = code == std::errc() && end == text.data() + text.size() && std::isfinite(value);
      return number && value > 0 ? std::string() : "\"" + text + "\" is not a finite number above 0";
    },
    "POSITIVE");

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& status) {
  Options options;
  options.data = digits::default_path();
  CLI::App app{
      "Trains a perceptron 64-128-10 on hand-written digits, data-parallel over the ranks of the launcher (tuttirun -n "
      "4\n"
      "train_digits), or alone without one. Whatever the number of ranks, the result is the same.\n"
      "Data: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, CC BY "
      "4.0.",
      "train_digits"};
  app.add_option("--epochs", options.epochs, "Passes over the training digits")
      ->check(CLI::Range(1u, 100000u))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "Samples per step, of all ranks together")
      ->check(CLI::Range(1u, 1000000u))
      ->capture_default_str();
  app.add_option("--rate", options.rate, "Learning rate")->check(finite_positive)->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the shuffle and of the first weights")->capture_default_str();
  app.add_option("--data", options.data, "The digits: lines of 64 pixels 0..16 and a label, maybe gzip-compressed")
      ->capture_default_str();
  app.add_option("--device", options.device, "Where gradients are summed over the ranks: host, or a device (cuda)")
      ->capture_default_str();
  app.add_option("--wire", options.wire, "How the gradient travels")
      ->check(CLI::IsMember({"plain", "float16", "bfloat16", "float8"}))
      ->capture_default_str();
  app.add_option(
         "--min-accuracy", options.min_accuracy,
         "Fail below this percentage of the held-out digits; default: 95, or 0 where --epochs, --batch, --rate, "
         "--seed or --data are given")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--loss-file", options.loss_file, "Write the final loss there, with 17 digits");
  app.add_option("--expect-loss", options.expect_loss,
                 "Fail unless the final loss agrees with the one in this file to 1e-5 of it");
  app.add_option("--expect-transport", options.expect_transport,
                 "Fail unless this transport, and no other, served every collective");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    status = app.exit(e);
    return std::nullopt;
  }
  if (options.device != "host" && options.wire != "plain") {
    std::fprintf(stderr, "train_digits: --wire %s is for gradients in host memory, not with --device\n",
                 options.wire.c_str());
    status = 2;
    return std::nullopt;
  }
  // The accuracy of the default training says nothing of another one.
  for (const char* option : {"--epochs", "--batch", "--rate", "--seed", "--data"})
    if (app.count(option) > 0 && app.count("--min-accuracy") == 0) options.min_accuracy = 0;
  return options;
}
